// The kernels of rope, compiled with AVX2, FMA and F16C.
#define NPU_ROPE_LANES 8
#define NPU_ROPE_KERNELS kernels_avx2
#include "csrc/cpu/rope_kernels.inl"
