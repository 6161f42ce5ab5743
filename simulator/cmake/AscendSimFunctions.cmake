# The CMake function for operator packages on the simulator. It needs the targets ascend_sim, ascend_sim_host,
# ascend_sim_op_build and ascend_sim_tilings: of this project, or of an installed ascend_sim (AscendSim.cmake).

set(ASCEND_SIM_KERNEL_OPTIMIZE -Og CACHE STRING
  "How simulated kernels are optimized, apart from the loops over lanes; -O2 compiles 2.6 times as long")
# Do not treat the headers of an installed ascend_sim as system headers.
set(CMAKE_NO_SYSTEM_FROM_IMPORTED ON)
# Flags of every kernel, apart from its macros; ascend_sim/compiler.py has the same.
set(ASCEND_SIM_KERNEL_FLAGS -ffp-contract=off -fno-strict-aliasing -fwrapv -Wframe-larger-than=32768
  $<$<CXX_COMPILER_ID:GNU>:-Werror=frame-larger-than=32768>)

# ascend_sim_add_package(<name> FOLDER <folder> OPERATORS <snake_case names...> SOCS <socs...>
#                        DEFINITIONS <files...> LINK <targets...> KERNELS <folder>)
#
# Executes the operators' definitions and makes their operator package in FOLDER, with CANN's layout: interfaces,
# tilings, descriptions, lists of kernels, and the kernels in sim_kernels. LINK: the definitions' libraries. Targets:
#   <name>_opapi, <name>_opmaster         the package's libraries
#   <name>_defs, <name>_shapes, <name>_tilings
#                                         the definitions, compiled three times, as CANN does
#   <name>_op_build_files                 the files that the program <name>_op_build generates from the definitions
#   <name>_kernels__<soc>                 an SoC's kernels: <operator>.cpp of the folder KERNELS, compiled for each column
#                                         of the definitions, all as one file. The variable <name>_kernels lists these
#                                         targets
function(ascend_sim_add_package name)
  cmake_parse_arguments(p "" "FOLDER;KERNELS" "OPERATORS;SOCS;DEFINITIONS;LINK" ${ARGN})
  foreach(part defs shapes tilings)
    add_library(${name}_${part} OBJECT ${p_DEFINITIONS})
    target_compile_options(${name}_${part} PRIVATE -O1)
    target_link_libraries(${name}_${part} PRIVATE ascend_sim_host ${p_LINK})
  endforeach()
  target_compile_definitions(${name}_shapes PRIVATE OP_PROTO_LIB)
  target_compile_definitions(${name}_tilings PRIVATE OP_TILING_LIB)

  add_executable(${name}_op_build $<TARGET_OBJECTS:${name}_defs>)
  target_link_libraries(${name}_op_build PRIVATE ascend_sim_op_build ascend_sim_host ${p_LINK})
  set(generated "${CMAKE_CURRENT_BINARY_DIR}/${name}_op_build_files")
  set(tbe "${p_FOLDER}/op_impl/ai_core/tbe")
  foreach(operator IN LISTS p_OPERATORS)
    list(APPEND headers "${generated}/aclnn_${operator}.h")
    list(APPEND sources "${generated}/aclnn_${operator}.cpp")
  endforeach()
  foreach(soc IN LISTS p_SOCS)
    list(APPEND descriptions "${generated}/aic-${soc}-ops-info.json")
    list(APPEND kernel_lists "${tbe}/kernel/config/${soc}/binary_info_config.json")
    list(APPEND copy_descriptions COMMAND ${CMAKE_COMMAND} -E make_directory "${tbe}/config/${soc}"
      COMMAND ${CMAKE_COMMAND} -E copy "${generated}/aic-${soc}-ops-info.json" "${tbe}/config/${soc}")
  endforeach()
  # ascend910_93 runs the kernels of ascend910b (kernel_soc() in cann/host/kernel_names.cpp).
  list(TRANSFORM p_SOCS REPLACE "^ascend910_93$" ascend910b OUTPUT_VARIABLE kernel_socs)
  list(REMOVE_DUPLICATES kernel_socs)
  list(TRANSFORM kernel_socs REPLACE "(.+)" "${generated}/kernels_\\1.cpp" OUTPUT_VARIABLE kernel_sources)
  # op_build does not rewrite unchanged files, so only the files that a changed definition affects compile again. The
  # file `done` is always newer than op_build.
  add_custom_command(OUTPUT "${generated}/done"
    BYPRODUCTS ${headers} ${sources} ${descriptions} ${kernel_lists} ${kernel_sources}
    COMMAND ${CMAKE_COMMAND} -E rm -rf "${tbe}/kernel" "${tbe}/config" "${p_FOLDER}/op_api/include"
    COMMAND ${CMAKE_COMMAND} -E make_directory "${generated}" "${p_FOLDER}/op_api/include"
    COMMAND ${name}_op_build "${generated}" "${p_FOLDER}"
    COMMAND ${CMAKE_COMMAND} -E copy ${headers} "${p_FOLDER}/op_api/include"
    ${copy_descriptions}
    COMMAND ${CMAKE_COMMAND} -E touch "${generated}/done"
    DEPENDS ${name}_op_build VERBATIM)
  add_custom_target(${name}_op_build_files DEPENDS "${generated}/done")

  set(kernels "")
  foreach(soc IN LISTS kernel_socs)
    set(kernel ${name}_kernels__${soc})
    add_library(${kernel} MODULE "${generated}/kernels_${soc}.cpp")
    target_include_directories(${kernel} PRIVATE "${p_KERNELS}")
    # GCC compiles a kernel in a seventh less time if it inlines early only what makes the code smaller. The
    # simulator's hot functions (ASCEND_SIM_HOT in include/ascendc/lanes.h) contain what they call in any case.
    target_compile_options(${kernel} PRIVATE ${ASCEND_SIM_KERNEL_OPTIMIZE} ${ASCEND_SIM_KERNEL_FLAGS}
      $<$<CXX_COMPILER_ID:GNU>:--param=early-inlining-insns=0> -Wno-unused-parameter)
    target_link_libraries(${kernel} PRIVATE ascend_sim)
    # The end of src/pass.cpp has the functions that a kernel calls instead of these.
    target_link_options(${kernel} PRIVATE "LINKER:--wrap=_exit,--wrap=_Exit,--wrap=quick_exit")
    set_target_properties(${kernel} PROPERTIES OUTPUT_NAME ${soc} PREFIX "" SUFFIX ".so" HAS_INSTRUCTIONS ON
      LIBRARY_OUTPUT_DIRECTORY "${p_FOLDER}/sim_kernels")
    add_dependencies(${kernel} ${name}_op_build_files)
    list(APPEND kernels ${kernel})
  endforeach()
  set(${name}_kernels ${kernels} PARENT_SCOPE)

  # The process's simulated CANN runtime provides the functions of cann/runtime/objects.h.
  add_library(${name}_opapi SHARED ${sources} $<TARGET_OBJECTS:${name}_defs> $<TARGET_OBJECTS:${name}_shapes>)
  target_include_directories(${name}_opapi PRIVATE "${generated}")
  target_compile_options(${name}_opapi PRIVATE -O1)
  target_link_libraries(${name}_opapi PRIVATE ascend_sim_host ascend_sim $<TARGET_NAME_IF_EXISTS:ascend_sim_cann>
    ${p_LINK} ${CMAKE_DL_LIBS})
  set_target_properties(${name}_opapi PROPERTIES
    OUTPUT_NAME cust_opapi LIBRARY_OUTPUT_DIRECTORY "${p_FOLDER}/op_api/lib")

  # The tilings, which the runtime loads at the first call. It looks up tiling_library.cpp's symbol by name.
  add_library(${name}_opmaster SHARED $<TARGET_OBJECTS:${name}_tilings>)
  target_link_libraries(${name}_opmaster PRIVATE ascend_sim_tilings ascend_sim_host ${p_LINK})
  target_link_options(${name}_opmaster PRIVATE -Wl,-u,simulated_cann_tiling_library)
  set_target_properties(${name}_opmaster PROPERTIES OUTPUT_NAME cust_opmaster_rt2.0
    LIBRARY_OUTPUT_DIRECTORY "${tbe}/op_tiling/lib/linux/${CMAKE_SYSTEM_PROCESSOR}")
  add_dependencies(${name}_opapi ${name}_op_build_files ${name}_opmaster)
endfunction()
