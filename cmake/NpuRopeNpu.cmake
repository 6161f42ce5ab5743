# If NPU_ROPE_NPU is ON (preset npu), build the operator package for real NPUs. CANN's own CMake functions build it from
# the operators' definitions and kernels. scripts/build_npu.sh calls this; docs/npu.md describes the installation.
#
# CANN contains a project template whose CMake functions expect its layout. The build folder therefore gets
# such a project: the template, with our op_kernel/ and an op_host/ that lists our sources.
option(NPU_ROPE_NPU "Build the operator package for NPUs with CANN" OFF)
set(ASCEND_HOME_PATH "$ENV{ASCEND_HOME_PATH}" CACHE PATH "CANN's folder")
set(NPU_ROPE_COMPUTE_UNITS ascend910b ascend910_93 ascend310p CACHE STRING "SoCs that kernels are compiled for")
set(NPU_ROPE_JOBS 1 CACHE STRING "Kernels that are compiled at a time")
set(NPU_ROPE_OP_BUILD "" CACHE FILEPATH "CANN's op_build, if it is not where the template expects it")
if(NOT NPU_ROPE_NPU)
  return()
endif()

set(template "${ASCEND_HOME_PATH}/tools/op_project_templates/ascendc/customize")
foreach(part cmake/config.cmake cmake/func.cmake cmake/intf.cmake CMakeLists.txt scripts)
  if(NOT EXISTS "${template}/${part}")
    message(FATAL_ERROR "NPU_ROPE_NPU is ON but CANN's project template has no ${template}/${part}. Set "
                        "ASCEND_HOME_PATH to a CANN toolkit, for example by its set_env.sh.")
  endif()
endforeach()

set(project "${CMAKE_BINARY_DIR}/opp_project")
file(REMOVE_RECURSE "${project}/op_host" "${project}/op_kernel" "${project}/cmake" "${project}/scripts")
# The template of CANN 9.1 contains links to files outside it. copy_directory copies the linked files.
foreach(part cmake scripts)
  execute_process(COMMAND ${CMAKE_COMMAND} -E copy_directory "${template}/${part}" "${project}/${part}"
    COMMAND_ERROR_IS_FATAL ANY)
endforeach()
file(COPY "${template}/CMakeLists.txt" DESTINATION "${project}")
# The template calls toolkit/tools/opbuild/op_build, which newer releases may contain in tools/ only.
if(NPU_ROPE_OP_BUILD AND NOT EXISTS "${ASCEND_HOME_PATH}/toolkit/tools/opbuild/op_build")
  file(READ "${project}/cmake/func.cmake" functions)
  string(REPLACE "\${ASCEND_CANN_PACKAGE_PATH}/toolkit/tools/opbuild/op_build" "\"${NPU_ROPE_OP_BUILD}\""
    functions "${functions}")
  file(WRITE "${project}/cmake/func.cmake" "${functions}")
endif()
file(WRITE "${project}/op_kernel.cmake" "add_kernels_compile()\n")
# op_host/cann.h describes this macro.
set(NPU_ROPE_DEFINITIONS "")
if(ascend950 IN_LIST NPU_ROPE_COMPUTE_UNITS)
  set(NPU_ROPE_DEFINITIONS -DNPU_ROPE_ASCEND950)
endif()
file(GLOB NPU_ROPE_OP_HOST_SOURCES CONFIGURE_DEPENDS
  "${PROJECT_SOURCE_DIR}/op_host/*.cpp" "${PROJECT_SOURCE_DIR}/csrc/core/*.cpp")
configure_file("${CMAKE_CURRENT_LIST_DIR}/npu_op_host.cmake.in" "${project}/op_host/CMakeLists.txt" @ONLY)
# The settings of the project, as a file for cmake -C.
configure_file("${CMAKE_CURRENT_LIST_DIR}/npu_cache.cmake.in" "${project}/cache.cmake" @ONLY)

# Use Unix Makefiles: the template runs `make` and passes $(MAKE) to the compilation of kernels. That make must not
# inherit this build's MAKEFLAGS. The build starts with an empty folder, because CANN's ascendc_compile_kernel.py fails if
# a folder of an earlier failed build exists. The package is moved to its place after its check, so that a failed build
# leaves no package.
set(out "${project}/build_out")
set(opp "${CMAKE_BINARY_DIR}/opp")
set(cmake_without_makeflags ${CMAKE_COMMAND} -E env --unset=MAKEFLAGS --unset=MAKELEVEL ${CMAKE_COMMAND})
add_custom_target(npu_rope_opp
  COMMAND ${CMAKE_COMMAND} -E rm -rf "${out}" "${opp}" "${opp}.new" "${project}/op_kernel"
  COMMAND ${CMAKE_COMMAND} -E copy_directory "${PROJECT_SOURCE_DIR}/op_kernel" "${project}/op_kernel"
  COMMAND ${CMAKE_COMMAND} -E copy "${project}/op_kernel.cmake" "${project}/op_kernel/CMakeLists.txt"
  COMMAND ${CMAKE_COMMAND} -C "${project}/cache.cmake" -S "${project}" -B "${out}" -G "Unix Makefiles"
  COMMAND ${cmake_without_makeflags} --build "${out}" --target binary -j ${NPU_ROPE_JOBS}
  COMMAND ${cmake_without_makeflags} --build "${out}" --target package -j ${NPU_ROPE_JOBS}
  COMMAND ${CMAKE_COMMAND} --install "${out}" --prefix "${opp}.new"
  COMMAND python3 -I "${PROJECT_SOURCE_DIR}/npu_rope/operator_package.py" "${opp}.new/packages/vendors/npu_rope"
    ${NPU_ROPE_COMPUTE_UNITS}
  COMMAND ${CMAKE_COMMAND} -DFROM=${out} -DTO=${CMAKE_BINARY_DIR} -P "${CMAKE_CURRENT_LIST_DIR}/copy_run_file.cmake"
  COMMAND ${CMAKE_COMMAND} -E rename "${opp}.new" "${opp}"
  VERBATIM USES_TERMINAL)
