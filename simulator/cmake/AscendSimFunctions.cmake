# CMake functions for kernels and operator packages on the simulator. They need the targets ascend_sim, ascend_sim_host,
# ascend_sim_op_build and ascend_sim_tilings: of this project, or of an installed ascend_sim (AscendSim.cmake).

# __CCE_AICORE__ of each SoC, as CANN's compiler defines it.
set(ASCEND_SIM_AICORE_ascend910b 220)
set(ASCEND_SIM_AICORE_ascend910_93 220)
set(ASCEND_SIM_AICORE_ascend310p 200)
set(ASCEND_SIM_AICORE_ascend950 310)
# CANN's name of each element type, for #if ORIG_DTYPE_X == DT_BF16.
set(ASCEND_SIM_DT_float DT_FLOAT)
set(ASCEND_SIM_DT_half DT_FLOAT16)
set(ASCEND_SIM_DT_bfloat16_t DT_BF16)
set(ASCEND_SIM_DT_int8_t DT_INT8)
set(ASCEND_SIM_DT_int32_t DT_INT32)
set(ASCEND_SIM_DT_int64_t DT_INT64)

set(ASCEND_SIM_KERNEL_OPTIMIZE -Og CACHE STRING
  "How simulated kernels are optimized, apart from the loops over lanes; -O2 compiles 2.6 times as long")
# An installed ascend_sim's headers are not system headers.
set(CMAKE_NO_SYSTEM_FROM_IMPORTED ON)
# Flags of every kernel, apart from its macros; ascend_sim/compiler.py has the same.
set(ASCEND_SIM_KERNEL_FLAGS -ffp-contract=off -fno-strict-aliasing -fwrapv)

# ascend_sim_add_kernel(<kernel> SOURCE <file> SOC <soc> FOLDER <folder> ARGUMENTS <names...>
#                       COLUMNS <type,type,...> ... [INCLUDE <folders...>])
#
# Compiles a kernel for the SoC into the library <folder>/<kernel>__<soc>.so, which is also the target's name. The
# library has an entry for each column of element types (one type per argument), <kernel>__<soc>__<type>_<type>... For
# each the source is included once, as CANN compiles it: with DTYPE_<NAME>, ORIG_DTYPE_<NAME> and the tiling prelude.
# CANN starts a compiler for each column; here the columns share what their headers instantiate, which takes a quarter
# of the time. So no header may depend on a column's macros.
function(ascend_sim_add_kernel kernel)
  cmake_parse_arguments(k "" "SOURCE;SOC;FOLDER" "ARGUMENTS;COLUMNS;INCLUDE" ${ARGN})
  set(library ${kernel}__${k_SOC})
  set(columns "")
  foreach(column IN LISTS k_COLUMNS)
    string(REPLACE "," ";" types "${column}")
    string(REPLACE "," "_" suffix "${column}")
    set(macros "${kernel} ${library}__${suffix}")
    foreach(name type IN ZIP_LISTS k_ARGUMENTS types)
      list(APPEND macros "DTYPE_${name} ${type}" "ORIG_DTYPE_${name} ${ASCEND_SIM_DT_${type}}")
    endforeach()
    foreach(macro IN LISTS macros)
      string(APPEND columns "#define ${macro}\n")
    endforeach()
    string(APPEND columns "#include \"${k_SOURCE}\"\n")
    foreach(macro IN LISTS macros)
      string(REGEX REPLACE " .*" "" name "${macro}")
      string(APPEND columns "#undef ${name}\n")
    endforeach()
  endforeach()
  set(source "${CMAKE_CURRENT_BINARY_DIR}/kernel_sources/${library}.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "${columns}" @ONLY)
  add_library(${library} MODULE "${source}")
  target_compile_definitions(${library} PRIVATE __CCE_AICORE__=${ASCEND_SIM_AICORE_${k_SOC}})
  target_include_directories(${library} PRIVATE ${k_INCLUDE})
  target_compile_options(${library} PRIVATE
    -include tiling_prelude.h ${ASCEND_SIM_KERNEL_OPTIMIZE} ${ASCEND_SIM_KERNEL_FLAGS} -Wno-unused-parameter)
  target_link_libraries(${library} PRIVATE ascend_sim)
  set_target_properties(${library} PROPERTIES PREFIX "" SUFFIX ".so" LIBRARY_OUTPUT_DIRECTORY "${k_FOLDER}")
endfunction()

# ascend_sim_add_package(<name> FOLDER <folder> OPERATORS <snake_case names...> SOCS <socs...>
#                        DEFINITIONS <files...> LINK <targets...>)
#
# Executes the operators' definitions and makes their operator package in the folder, with CANN's layout: interfaces,
# tilings, descriptions and lists of kernels. Targets: <name>_opapi and <name>_opmaster, the package's libraries;
# <name>_defs, <name>_shapes and <name>_tilings, the definitions compiled three times, as CANN does. LINK: what the
# definitions need.
function(ascend_sim_add_package name)
  cmake_parse_arguments(p "" "FOLDER" "OPERATORS;SOCS;DEFINITIONS;LINK" ${ARGN})
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
  add_custom_command(OUTPUT ${headers} ${sources} ${descriptions} ${kernel_lists}
    COMMAND ${CMAKE_COMMAND} -E rm -rf "${tbe}/kernel"
    COMMAND ${CMAKE_COMMAND} -E make_directory "${generated}" "${p_FOLDER}/op_api/include"
    COMMAND ${name}_op_build "${generated}" "${p_FOLDER}"
    COMMAND ${CMAKE_COMMAND} -E copy ${headers} "${p_FOLDER}/op_api/include"
    ${copy_descriptions}
    DEPENDS ${name}_op_build VERBATIM)

  # The functions of cann/runtime/objects.h come from the process's CANN runtime: the simulated one, or that of a test.
  add_library(${name}_opapi SHARED ${sources} $<TARGET_OBJECTS:${name}_defs> $<TARGET_OBJECTS:${name}_shapes>)
  target_include_directories(${name}_opapi PRIVATE "${generated}")
  target_compile_options(${name}_opapi PRIVATE -O1)
  target_link_libraries(${name}_opapi PRIVATE ascend_sim_host ascend_sim $<TARGET_NAME_IF_EXISTS:ascend_sim_cann>
    ${p_LINK} ${CMAKE_DL_LIBS})
  set_target_properties(${name}_opapi PROPERTIES
    OUTPUT_NAME cust_opapi LIBRARY_OUTPUT_DIRECTORY "${p_FOLDER}/op_api/lib")

  # The tilings, which the runtime loads at the first call. tiling_library.cpp's symbol is looked up by its name.
  add_library(${name}_opmaster SHARED $<TARGET_OBJECTS:${name}_tilings>)
  target_link_libraries(${name}_opmaster PRIVATE ascend_sim_tilings ascend_sim_host ${p_LINK})
  target_link_options(${name}_opmaster PRIVATE -Wl,-u,npu_cann_tiling_library)
  set_target_properties(${name}_opmaster PROPERTIES OUTPUT_NAME cust_opmaster_rt2.0
    LIBRARY_OUTPUT_DIRECTORY "${tbe}/op_tiling/lib/linux/${CMAKE_SYSTEM_PROCESSOR}")
  add_dependencies(${name}_opapi ${name}_opmaster)
endfunction()
