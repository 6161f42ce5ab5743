# The binding of torch_npu, libnpu_rope_torch_npu. It is built with torch's registration if torch_npu is installed. It
# needs no CANN. It uses the headers of ATen and torch_npu, so it works only with the versions with which it was built.
set(NPU_ROPE_TORCH_NPU "AUTO" CACHE STRING "Build the binding of torch_npu: AUTO, ON or OFF")
set(NPU_ROPE_TORCH_NPU_DIR "" CACHE PATH "torch_npu's package folder (default: ask Python)")
if(NPU_ROPE_TORCH_NPU STREQUAL "OFF")
  return()
endif()
find_package(Python COMPONENTS Interpreter QUIET)
if(NOT NPU_ROPE_TORCH_NPU_DIR AND Python_FOUND)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c
      "import importlib.util as u; s = u.find_spec('torch_npu'); print(s.submodule_search_locations[0] if s else '', end='')"
    OUTPUT_VARIABLE NPU_ROPE_TORCH_NPU_DIR ERROR_QUIET)
endif()
set(torch_npu_headers "${NPU_ROPE_TORCH_NPU_DIR}/include")
set(torch_npu_macros "${torch_npu_headers}/third_party/op-plugin/op_plugin/include/npu_cpp_extension.h")
if(NOT EXISTS "${torch_npu_macros}" OR NOT TARGET npu_rope_torch)
  if(NPU_ROPE_TORCH_NPU STREQUAL "ON")
    message(FATAL_ERROR "NPU_ROPE_TORCH_NPU is ON but torch and torch_npu were not both found. Install them first "
                        "and build with pip's --no-build-isolation, or give NPU_ROPE_TORCH_NPU_DIR.")
  endif()
  return()
endif()
message(STATUS "torch_npu binding: ${NPU_ROPE_TORCH_NPU_DIR}")
# CURRENT_VERSION has the form V2R13, here for torch_npu 2.13.
file(READ "${NPU_ROPE_TORCH_NPU_DIR}/version.py" torch_npu_version)
if(NOT torch_npu_version MATCHES "__version__ = '(([0-9]+)\\.([0-9]+)[^']*)'")
  message(FATAL_ERROR "${NPU_ROPE_TORCH_NPU_DIR}/version.py names no version of torch_npu.")
endif()
set(torch_npu_full_version "${CMAKE_MATCH_1}")
set(torch_npu_version "V${CMAKE_MATCH_2}R${CMAKE_MATCH_3}")
execute_process(
  COMMAND ${Python_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_paths()['include'], end='')"
  OUTPUT_VARIABLE python_headers)

add_library(npu_rope_torch_npu MODULE csrc/npu/launch.cpp csrc/npu/package.cpp csrc/npu/rope_call.cpp
  csrc/npu/built_for.cpp)
set(torch_headers "${NPU_ROPE_TORCH_DIR}/include")
target_include_directories(npu_rope_torch_npu SYSTEM PRIVATE
  "${torch_npu_headers}" "${torch_npu_headers}/third_party/acl/inc" "${torch_npu_headers}/third_party/hccl/inc"
  "${torch_npu_headers}/third_party/op-plugin" "${torch_headers}" "${torch_headers}/torch/csrc/api/include"
  "${python_headers}")
# torch_npu's own extensions use the same definitions.
target_compile_definitions(npu_rope_torch_npu PRIVATE WITH_EXEC_CMD CURRENT_VERSION=${torch_npu_version})
target_compile_features(npu_rope_torch_npu PRIVATE cxx_std_20)
target_compile_options(npu_rope_torch_npu PRIVATE -O2)
# Torch's headers take most of the compile time: compile all files as one (32 s; one by one with a precompiled header
# 97 s).
set_target_properties(npu_rope_torch_npu PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
set_source_files_properties(csrc/npu/built_for.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
set_source_files_properties(csrc/npu/built_for.cpp PROPERTIES
  COMPILE_DEFINITIONS NPU_ROPE_TORCH_NPU_VERSION="${torch_npu_full_version}")
# torch, torch_npu and CANN are loaded before this library: no path is recorded.
target_link_directories(npu_rope_torch_npu PRIVATE "${NPU_ROPE_TORCH_DIR}/lib" "${NPU_ROPE_TORCH_NPU_DIR}/lib")
target_link_libraries(npu_rope_torch_npu PRIVATE npu_rope_options npu_rope_op_host -ltorch -ltorch_cpu -lc10 -ltorch_npu
  -Wl,--allow-shlib-undefined)
