// AVX-512 F, BW, VL and DQ; compiled with those flags.
#define NPU_ROPE_LANES 16
#define NPU_ROPE_KERNELS rms_norm_rope_kernels_avx512
#include "csrc/cpu/rms_norm_rope_kernels.inl"
