// The instruction set that every machine of this architecture has: SSE2, or NEON on aarch64.
#define NPU_ROPE_LANES 4
#define NPU_ROPE_KERNELS rms_norm_kernels_baseline
#include "csrc/cpu/rms_norm_kernels.inl"
