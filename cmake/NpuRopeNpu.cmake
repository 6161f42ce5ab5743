# The operator package for real NPUs, built with CANN 8.1's own functions from the operators' definitions
# and kernels: NPU_ROPE_NPU=ON, preset npu, scripts/build_npu.sh. Where it goes: docs/npu.md.
#
# CANN comes with a project template whose CMake functions expect its layout, so such a project is laid
# out in the build folder: the template, with our op_kernel/ and an op_host/ that names our sources.
option(NPU_ROPE_NPU "Build the operator package for NPUs with CANN" OFF)
set(ASCEND_HOME_PATH "$ENV{ASCEND_HOME_PATH}" CACHE PATH "CANN's folder")
set(NPU_ROPE_COMPUTE_UNITS ascend910b ascend910_93 ascend310p CACHE STRING "SoCs that kernels are compiled for")
if(NOT NPU_ROPE_NPU)
  return()
endif()

set(template "${ASCEND_HOME_PATH}/tools/op_project_templates/ascendc/customize")
foreach(part cmake/config.cmake cmake/func.cmake cmake/intf.cmake CMakeLists.txt scripts)
  if(NOT EXISTS "${template}/${part}")
    message(FATAL_ERROR "NPU_ROPE_NPU is ON but CANN's project template has no ${template}/${part}. Set "
                        "ASCEND_HOME_PATH to a CANN toolkit (8.1), for example by its set_env.sh.")
  endif()
endforeach()

set(project "${CMAKE_BINARY_DIR}/opp_project")
file(REMOVE_RECURSE "${project}/op_host" "${project}/op_kernel" "${project}/cmake" "${project}/scripts")
file(COPY "${template}/cmake" "${template}/scripts" "${template}/CMakeLists.txt" DESTINATION "${project}")
file(COPY "${PROJECT_SOURCE_DIR}/op_kernel" DESTINATION "${project}")
file(WRITE "${project}/op_kernel/CMakeLists.txt" "add_kernels_compile()\n")
file(GLOB NPU_ROPE_OP_HOST_SOURCES CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/op_host/*.cpp")
configure_file("${CMAKE_CURRENT_LIST_DIR}/npu_op_host.cmake.in" "${project}/op_host/CMakeLists.txt" @ONLY)
# A list cannot be handed over on a command line.
configure_file("${CMAKE_CURRENT_LIST_DIR}/npu_cache.cmake.in" "${project}/cache.cmake" @ONLY)

# Kernels are compiled by make, which the template calls by name.
set(out "${project}/build_out")
add_custom_target(npu_rope_opp
  COMMAND ${CMAKE_COMMAND} -C "${project}/cache.cmake" -S "${project}" -B "${out}" -G "Unix Makefiles"
  COMMAND ${CMAKE_COMMAND} --build "${out}" --target binary
  COMMAND ${CMAKE_COMMAND} --build "${out}" --target package
  COMMAND ${CMAKE_COMMAND} --install "${out}" --prefix "${CMAKE_BINARY_DIR}/opp"
  VERBATIM USES_TERMINAL)
