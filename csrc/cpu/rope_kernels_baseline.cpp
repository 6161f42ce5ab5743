// The instruction set every machine of this architecture has: SSE2, or NEON on aarch64.
#define NPU_ROPE_LANES 4
#define NPU_ROPE_KERNELS kernels_baseline
#if defined(__aarch64__)
#define NPU_ROPE_ISA_NAME "neon"
#else
#define NPU_ROPE_ISA_NAME "baseline"
#endif
#include "csrc/cpu/rope_kernels.inl"
