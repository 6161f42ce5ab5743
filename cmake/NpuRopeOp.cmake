# npu_rope_add_op(<stem> [CPU stems...] [KERNELS stems...])
#
# Add the sources of one operator to the targets:
# - csrc/capi/<stem>.cpp,
# - csrc/torch/<stem>.cpp if the registration of torch is built,
# - csrc/npu/<stem>.cpp if the binding of torch_npu is built,
# - csrc/cpu/<name>.cpp for each name in CPU,
# - csrc/cpu/<name>.cpp for each name in KERNELS, compiled once for each instruction set.
# cmake/NpuRopeSim.cmake and cmake/NpuRopeNpu.cmake find the CANN definitions and the AscendC kernels by themselves.
function(npu_rope_add_op stem)
  cmake_parse_arguments(op "" "" "CPU;KERNELS" ${ARGN})
  target_sources(npu_rope PRIVATE csrc/capi/${stem}.cpp)
  set_source_files_properties(csrc/capi/${stem}.cpp PROPERTIES UNITY_GROUP capi)
  foreach(name IN LISTS op_CPU)
    target_sources(npu_rope PRIVATE csrc/cpu/${name}.cpp)
  endforeach()
  foreach(name IN LISTS op_KERNELS)
    npu_rope_add_kernels(${name})
  endforeach()
  if(TARGET npu_rope_torch AND EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/csrc/torch/${stem}.cpp")
    target_sources(npu_rope_torch PRIVATE csrc/torch/${stem}.cpp)
  endif()
  if(TARGET npu_rope_torch_npu AND EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/csrc/npu/${stem}.cpp")
    target_sources(npu_rope_torch_npu PRIVATE csrc/npu/${stem}.cpp)
  endif()
endfunction()

# Multiply-adds are fused only in vec.h's mul_add.
set(NPU_ROPE_CPU_FLAGS $<IF:$<CONFIG:Debug>,-O1,-O3> -ffp-contract=off -fno-math-errno)
set(NPU_ROPE_KERNEL_FLAGS -fno-trapping-math)
set(NPU_ROPE_AVX2_FLAGS -mavx2 -mfma -mf16c)
set(NPU_ROPE_AVX512_FLAGS -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mprefer-vector-width=512)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # gcc's own header for these intrinsics causes these warnings (gcc bug 105593).
  list(APPEND NPU_ROPE_AVX512_FLAGS -Wno-maybe-uninitialized -Wno-uninitialized)
endif()

# The kernels that gain from arithmetic in float16. The others use those of avx512bf16 on such a processor.
set(NPU_ROPE_AVX512FP16_KERNELS rms_norm_kernels)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-mavx512fp16 NPU_ROPE_HAS_AVX512FP16)  # gcc 12, clang 14
  if(NPU_ROPE_HAS_AVX512FP16)
    target_compile_definitions(npu_rope_options INTERFACE NPU_ROPE_HAS_AVX512FP16)
  endif()
endif()

function(npu_rope_add_kernels name)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    npu_rope_compile_kernels(${name} baseline 4)
  else()
    # For processors without AVX2. -O3 compiles twice as long for kernels that are up to a fifth faster.
    npu_rope_compile_kernels(${name} baseline 4 -O1)
    npu_rope_compile_kernels(${name} avx2 8 ${NPU_ROPE_AVX2_FLAGS})
    npu_rope_compile_kernels(${name} avx512 16 ${NPU_ROPE_AVX512_FLAGS})
    npu_rope_compile_kernels(${name} avx512bf16 16 ${NPU_ROPE_AVX512_FLAGS} -mavx512bf16)
    if(NPU_ROPE_HAS_AVX512FP16 AND name IN_LIST NPU_ROPE_AVX512FP16_KERNELS)
      npu_rope_compile_kernels(${name} avx512fp16 16 ${NPU_ROPE_AVX512_FLAGS} -mavx512bf16 -mavx512fp16)
    endif()
  endif()
endfunction()

function(npu_rope_compile_kernels name isa lanes)
  set(compile npu_rope_${name}_${isa})
  add_library(${compile} OBJECT csrc/cpu/${name}.cpp)
  target_compile_definitions(${compile} PRIVATE NPU_ROPE_ISA=${isa} NPU_ROPE_VECTOR_FLOATS=${lanes})
  target_compile_options(${compile} PRIVATE ${NPU_ROPE_CPU_FLAGS} ${NPU_ROPE_KERNEL_FLAGS} ${ARGN})
  target_link_libraries(${compile} PRIVATE npu_rope_options npu_rope_core)
  target_sources(npu_rope PRIVATE $<TARGET_OBJECTS:${compile}>)
endfunction()
