# The operators on the simulator, ascend_sim: their kernels, compiled for it, and the simulated operator package with
# libcust_opapi.so. cmake/NpuRopeNpu.cmake builds the real package.
option(NPU_ROPE_SIM "Build the kernels and the operator package for the simulator" ON)
# The package's interfaces are written by a program of this build, so it must run on this machine.
if(NOT NPU_ROPE_SIM OR (CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR))
  function(npu_rope_add_cann_op)
  endfunction()
  function(npu_rope_add_kernel)
  endfunction()
  function(npu_rope_add_simulated_package)
  endfunction()
  return()
endif()

# A Python package is built with the ascend_sim that is installed beside it. Any other build compiles the folder
# simulator/, with its own settings; so does pip, if it hides the installed one (build isolation).
set(ascend_sim "")
if(SKBUILD)
  find_package(Python COMPONENTS Interpreter QUIET)
  execute_process(COMMAND ${Python_EXECUTABLE} -m ascend_sim --cmake
    OUTPUT_VARIABLE ascend_sim ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
if(ascend_sim)
  string(REPLACE "\n" ";" ascend_sim "${ascend_sim}")
  list(GET ascend_sim 0 ascend_sim_file)
  list(GET ascend_sim 1 ASCEND_SIM_LIB)
  message(STATUS "ascend_sim: ${ASCEND_SIM_LIB}")
  include("${ascend_sim_file}")
else()
  foreach(option SANITIZE WERROR C_TESTS)
    set(ASCEND_SIM_${option} ${NPU_ROPE_${option}})
  endforeach()
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)
  if(NPU_ROPE_C_TESTS)
    add_subdirectory(simulator)  # with its tests
  else()
    add_subdirectory(simulator EXCLUDE_FROM_ALL)
  endif()
  include(simulator/cmake/AscendSimFunctions.cmake)
endif()

set(NPU_ROPE_SIM_SOCS ascend910b ascend310p CACHE STRING
  "SoCs that the simulated kernels are compiled for; those of others only where a target needs them")
set(simulated_package "${CMAKE_BINARY_DIR}/simcann_opp")

# npu_rope_add_kernel(<stem> SOC <soc> ARGUMENTS <names...> COLUMNS <type,type,...> ...): op_kernel/npu_<stem>.cpp, see
# ascend_sim_add_kernel(). The headers of op_kernel do not depend on a column's macros
# (tests/ops/test_kernel_headers.py).
function(npu_rope_add_kernel stem)
  cmake_parse_arguments(k "" "SOC" "" ${ARGN})
  set(library npu_${stem}__${k_SOC})
  ascend_sim_add_kernel(npu_${stem} SOURCE "${PROJECT_SOURCE_DIR}/op_kernel/npu_${stem}.cpp"
    FOLDER "${simulated_package}/sim_kernels" INCLUDE op_kernel ${ARGN})
  target_link_libraries(${library} PRIVATE npu_rope_options)
  set_target_properties(${library} PROPERTIES INSTALL_RPATH "\$ORIGIN/../../../../ascend_sim/lib")
  if(NOT k_SOC IN_LIST NPU_ROPE_SIM_SOCS)
    set_target_properties(${library} PROPERTIES EXCLUDE_FROM_ALL ON)
  else()
    set_property(GLOBAL APPEND PROPERTY NPU_ROPE_SIM_KERNELS ${library})
  endif()
endfunction()

# npu_rope_add_cann_op(<stem>): the operator's definition op_host/<stem>_def.cpp.
function(npu_rope_add_cann_op stem)
  set_property(GLOBAL APPEND PROPERTY NPU_ROPE_CANN_OPS ${stem})
endfunction()

# From CANN's contexts to the checks and tilings of npu_rope_op_host.
file(GLOB from_cann CONFIGURE_DEPENDS op_host/*cann.cpp)
add_library(npu_rope_cann_op_host OBJECT ${from_cann})
target_compile_options(npu_rope_cann_op_host PRIVATE -O1)
target_link_libraries(npu_rope_cann_op_host PUBLIC npu_rope_op_host npu_rope_options ascend_sim_host)

# Called by CMakeLists.txt when all operators are known.
function(npu_rope_add_simulated_package)
  get_property(stems GLOBAL PROPERTY NPU_ROPE_CANN_OPS)
  set(operators ${stems})
  list(TRANSFORM operators PREPEND npu_)
  set(definitions ${stems})
  list(TRANSFORM definitions REPLACE "(.+)" "op_host/\\1_def.cpp")
  ascend_sim_add_package(npu_rope FOLDER "${simulated_package}" OPERATORS ${operators}
    SOCS ascend310p ascend910_93 ascend910b DEFINITIONS ${definitions} LINK npu_rope_cann_op_host)
  set_target_properties(npu_rope_opapi PROPERTIES INSTALL_RPATH "\$ORIGIN/../../../../../ascend_sim/lib")

  set(folder ${lib_dir}/simcann_opp)
  get_property(kernels GLOBAL PROPERTY NPU_ROPE_SIM_KERNELS)
  install(TARGETS ${kernels} LIBRARY DESTINATION ${folder}/sim_kernels)
  install(TARGETS npu_rope_opapi LIBRARY DESTINATION ${folder}/op_api/lib)
  install(TARGETS npu_rope_opmaster LIBRARY DESTINATION
    ${folder}/op_impl/ai_core/tbe/op_tiling/lib/linux/${CMAKE_SYSTEM_PROCESSOR})
  install(DIRECTORY "${simulated_package}/op_api/include" DESTINATION ${folder}/op_api)
  foreach(part kernel config)
    install(DIRECTORY "${simulated_package}/op_impl/ai_core/tbe/${part}" DESTINATION ${folder}/op_impl/ai_core/tbe)
  endforeach()
endfunction()
