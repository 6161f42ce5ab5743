# The torch registration. It uses only the headers of torch's stable ABI, so one binary works with torch 2.10 and later.
set(NPU_ROPE_TORCH_TARGET_VERSION 0x020a000000000000)

if(NPU_ROPE_TORCH STREQUAL "OFF")
  return()
endif()
if(NOT NPU_ROPE_TORCH_DIR)
  find_package(Python COMPONENTS Interpreter QUIET)
  if(Python_FOUND)
    execute_process(
      COMMAND ${Python_EXECUTABLE} -c
        "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '', end='')"
      OUTPUT_VARIABLE NPU_ROPE_TORCH_DIR ERROR_QUIET)
  endif()
endif()
if(NOT EXISTS "${NPU_ROPE_TORCH_DIR}/include/torch/csrc/stable/library.h")
  if(NPU_ROPE_TORCH STREQUAL "ON")
    message(FATAL_ERROR "NPU_ROPE_TORCH is ON but no torch >= 2.10 was found. Install torch first and build with "
                        "pip's --no-build-isolation, or give NPU_ROPE_TORCH_DIR.")
  endif()
  message(STATUS "torch not found (pip's build isolation hides it): building without its registration "
                 "(torch calls will go through ctypes).")
  return()
endif()
if(NOT "cxx_std_20" IN_LIST CMAKE_CXX_COMPILE_FEATURES)
  if(NPU_ROPE_TORCH STREQUAL "ON")
    message(FATAL_ERROR "NPU_ROPE_TORCH is ON but this compiler has no C++20, which torch's headers need.")
  endif()
  message(WARNING "no C++20 compiler: building without the torch registration (its headers need C++20).")
  return()
endif()
message(STATUS "torch registration: ${NPU_ROPE_TORCH_DIR}")

add_library(npu_rope_torch MODULE csrc/torch/module.cpp)
target_include_directories(npu_rope_torch SYSTEM PRIVATE "${NPU_ROPE_TORCH_DIR}/include")
target_compile_definitions(npu_rope_torch PRIVATE TORCH_TARGET_VERSION=${NPU_ROPE_TORCH_TARGET_VERSION})
target_compile_features(npu_rope_torch PRIVATE cxx_std_20)
target_compile_options(npu_rope_torch PRIVATE -O2)
# Compile all files as one, because torch's headers take most of the compile time.
set_target_properties(npu_rope_torch PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
# torch is loaded before this library, so the loader finds torch's libraries by name. No path is recorded.
target_link_libraries(npu_rope_torch PRIVATE npu_rope npu_rope_options)
if(CMAKE_CROSSCOMPILING)
  # The library in NPU_ROPE_TORCH_DIR is for the machine that compiles. Its headers are for every machine, and the loader
  # needs only the library's name: link an empty library with this name.
  file(GENERATE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/torch_cpu.cpp" CONTENT "")
  add_library(npu_rope_torch_cpu_name SHARED "${CMAKE_CURRENT_BINARY_DIR}/torch_cpu.cpp")
  set_target_properties(npu_rope_torch_cpu_name PROPERTIES OUTPUT_NAME torch_cpu)
  target_link_libraries(npu_rope_torch PRIVATE -Wl,--no-as-needed npu_rope_torch_cpu_name)
else()
  target_link_directories(npu_rope_torch PRIVATE "${NPU_ROPE_TORCH_DIR}/lib")
  target_link_libraries(npu_rope_torch PRIVATE -ltorch_cpu)
endif()
set_target_properties(npu_rope_torch PROPERTIES INSTALL_RPATH "\$ORIGIN")
