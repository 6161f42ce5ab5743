# The simulator and the kernels it runs: libnpu_rope_sim. Nothing here needs CANN.
option(NPU_ROPE_SIM "Build the Ascend simulator and the kernels for it" ON)
if(NOT NPU_ROPE_SIM)
  function(npu_rope_add_sim_op)
  endfunction()
  function(npu_rope_add_kernel)
  endfunction()
  return()
endif()

find_package(Threads REQUIRED)
file(GLOB sim_sources CONFIGURE_DEPENDS simulator/src/*.cpp)
add_library(npu_rope_sim SHARED ${sim_sources} csrc/sim/common.cpp)
target_include_directories(npu_rope_sim PRIVATE simulator/include)
target_compile_options(npu_rope_sim PRIVATE $<IF:$<CONFIG:Debug>,-O1,-O3> -ffp-contract=off -fno-math-errno)
target_link_libraries(npu_rope_sim PRIVATE npu_rope_options npu_rope_op_host Threads::Threads ${CMAKE_DL_LIBS})

# __CCE_AICORE__ of each SoC, as CANN's compiler defines it.
set(NPU_ROPE_AICORE_ascend910b 220)
set(NPU_ROPE_AICORE_ascend910_93 220)
set(NPU_ROPE_AICORE_ascend310p 200)
set(NPU_ROPE_AICORE_ascend950 310)
# CANN's name of each element type, for #if ORIG_DTYPE_X == DT_BF16.
set(NPU_ROPE_DT_float DT_FLOAT)
set(NPU_ROPE_DT_half DT_FLOAT16)
set(NPU_ROPE_DT_bfloat16_t DT_BF16)
set(NPU_ROPE_DT_int8_t DT_INT8)
set(NPU_ROPE_DT_int32_t DT_INT32)
set(NPU_ROPE_DT_int64_t DT_INT64)

set(NPU_ROPE_SIM_SOCS ascend910b ascend310p CACHE STRING
  "SoCs that the simulator's kernels are compiled for; those of others only where a target needs them")

set(NPU_ROPE_SIM_OPTIMIZE -Og CACHE STRING
  "How the simulator's kernels are optimized, apart from the loops over lanes; -O2 compiles 2.6 times as long")

# npu_rope_add_sim_op(<stem>): the operator's entry csrc/sim/<stem>.cpp.
function(npu_rope_add_sim_op stem)
  target_sources(npu_rope_sim PRIVATE csrc/sim/${stem}.cpp)
endfunction()

# npu_rope_add_kernel(<stem> SOC <soc> ARGUMENTS <names...> COLUMNS <type,type,...> ...)
#
# Compiles op_kernel/npu_<stem>.cpp for the SoC into the library npu_rope_sim_kernels/npu_<stem>__<soc>.so. The kernel
# has an entry for each column of element types (one type per argument), npu_<stem>__<soc>__<type>_<type>... For each
# the source is included once, as CANN compiles it: with DTYPE_<NAME>, ORIG_DTYPE_<NAME> and the tiling prelude. CANN
# starts a compiler for each column; here the columns share what their headers instantiate, which takes a quarter of
# the time. The headers of op_kernel do not depend on a column's macros (tests/ops/test_kernel_headers.py).
function(npu_rope_add_kernel stem)
  cmake_parse_arguments(k "" "SOC" "ARGUMENTS;COLUMNS" ${ARGN})
  set(library npu_${stem}__${k_SOC})
  set(columns "")
  foreach(column IN LISTS k_COLUMNS)
    string(REPLACE "," ";" types "${column}")
    string(REPLACE "," "_" suffix "${column}")
    set(macros "npu_${stem} ${library}__${suffix}")
    foreach(name type IN ZIP_LISTS k_ARGUMENTS types)
      list(APPEND macros "DTYPE_${name} ${type}" "ORIG_DTYPE_${name} ${NPU_ROPE_DT_${type}}")
    endforeach()
    foreach(macro IN LISTS macros)
      string(APPEND columns "#define ${macro}\n")
    endforeach()
    string(APPEND columns "#include \"op_kernel/npu_${stem}.cpp\"\n")
    foreach(macro IN LISTS macros)
      string(REGEX REPLACE " .*" "" name "${macro}")
      string(APPEND columns "#undef ${name}\n")
    endforeach()
  endforeach()
  set(source "${CMAKE_BINARY_DIR}/npu_rope_sim_kernels/${library}.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "${columns}" @ONLY)
  add_library(${library} MODULE "${source}")
  target_compile_definitions(${library} PRIVATE __CCE_AICORE__=${NPU_ROPE_AICORE_${k_SOC}})
  target_include_directories(${library} PRIVATE simulator/include op_kernel)
  target_compile_options(${library} PRIVATE
    -include tiling_prelude.h ${NPU_ROPE_SIM_OPTIMIZE} -ffp-contract=off -fno-strict-aliasing -fwrapv -Wno-unused-parameter)
  target_link_libraries(${library} PRIVATE npu_rope_options npu_rope_sim)
  set_target_properties(${library} PROPERTIES
    PREFIX "" SUFFIX ".so" LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/npu_rope_sim_kernels"
    INSTALL_RPATH "\$ORIGIN/..")
  if(NOT k_SOC IN_LIST NPU_ROPE_SIM_SOCS)
    set_target_properties(${library} PROPERTIES EXCLUDE_FROM_ALL ON)
  else()
    set_property(GLOBAL APPEND PROPERTY NPU_ROPE_SIM_KERNELS ${library})
  endif()
endfunction()
