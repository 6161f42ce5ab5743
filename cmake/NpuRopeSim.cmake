# The operators on the simulator, ascend_sim: their kernels, compiled for it, and the simulated operator package with
# libcust_opapi.so. cmake/NpuRopeNpu.cmake builds the real package.
option(NPU_ROPE_SIM "Build the kernels and the operator package for the simulator" ON)
# A program of this build writes the package's interfaces, so the program must run on this machine.
if(NOT NPU_ROPE_SIM OR (CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR))
  return()
endif()

# A Python package is built with the installed ascend_sim. Any other build compiles the folder simulator/. A build by
# pip also compiles it if pip's build isolation hides the installed ascend_sim.
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
  if(NPU_ROPE_C_TESTS)
    add_subdirectory(simulator)  # with its tests
  else()
    add_subdirectory(simulator EXCLUDE_FROM_ALL)
  endif()
  include(simulator/cmake/AscendSimFunctions.cmake)
endif()

set(NPU_ROPE_SIM_KERNELS ascend910b ascend310p ascend950 CACHE STRING
  "SoCs whose simulated kernels are compiled by default and installed. Kernels of other SoCs are compiled only if a target depends on them.")

# The functions that convert CANN's contexts to calls of the checks and tilings of npu_rope_op_host.
file(GLOB from_cann CONFIGURE_DEPENDS op_host/*cann.cpp)
add_library(npu_rope_cann_op_host OBJECT ${from_cann})
target_compile_options(npu_rope_cann_op_host PRIVATE -O1)
target_compile_definitions(npu_rope_cann_op_host PRIVATE NPU_ROPE_ASCEND950)
target_link_libraries(npu_rope_cann_op_host PUBLIC npu_rope_op_host npu_rope_options ascend_sim_host)

# The package of all operators with a definition. All columns of an SoC are compiled as one file. This works because the
# headers of op_kernel do not use a column's macros (tests/ops/test_kernel_headers.py).
set(simulated_package "${CMAKE_BINARY_DIR}/simulated_package")
file(GLOB definitions CONFIGURE_DEPENDS op_host/*_def.cpp)
list(TRANSFORM definitions REPLACE ".*/(.+)_def[.]cpp" "npu_\\1" OUTPUT_VARIABLE operators)
ascend_sim_add_package(npu_rope FOLDER "${simulated_package}" OPERATORS ${operators}
  SOCS ascend310p ascend910_93 ascend910b ascend950 DEFINITIONS ${definitions} LINK npu_rope_cann_op_host
  KERNELS "${PROJECT_SOURCE_DIR}/op_kernel")
# Compile all files of a target as one, because the headers take most of the compile time.
set_target_properties(npu_rope_cann_op_host npu_rope_defs npu_rope_shapes npu_rope_tilings npu_rope_opapi PROPERTIES
  UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)

set(folder ${lib_dir}/simulated_package)
foreach(kernel IN LISTS npu_rope_kernels)
  target_link_libraries(${kernel} PRIVATE npu_rope_options)
  set_target_properties(${kernel} PROPERTIES INSTALL_RPATH "\$ORIGIN/../../../../ascend_sim/lib")
  string(REGEX REPLACE ".*__" "" soc ${kernel})
  if(soc IN_LIST NPU_ROPE_SIM_KERNELS)
    install(TARGETS ${kernel} LIBRARY DESTINATION ${folder}/sim_kernels)
  else()
    set_target_properties(${kernel} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endforeach()
set_target_properties(npu_rope_opapi PROPERTIES INSTALL_RPATH "\$ORIGIN/../../../../../ascend_sim/lib")
install(TARGETS npu_rope_opapi LIBRARY DESTINATION ${folder}/op_api/lib)
install(TARGETS npu_rope_opmaster LIBRARY DESTINATION
  ${folder}/op_impl/ai_core/tbe/op_tiling/lib/linux/${CMAKE_SYSTEM_PROCESSOR})
install(DIRECTORY "${simulated_package}/op_api/include" DESTINATION ${folder}/op_api)
foreach(part kernel config)
  install(DIRECTORY "${simulated_package}/op_impl/ai_core/tbe/${part}" DESTINATION ${folder}/op_impl/ai_core/tbe)
endforeach()
