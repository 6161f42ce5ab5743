// AVX2, FMA and F16C; compiled with those flags.
#define NPU_ROPE_LANES 8
#define NPU_ROPE_KERNELS rms_norm_rope_kernels_avx2
#include "csrc/cpu/rms_norm_rope_kernels.inl"
