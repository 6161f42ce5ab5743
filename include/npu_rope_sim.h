/* npu_rope's operators on the simulated Ascend core: libascend_sim runs the AscendC kernels and their
 * tiling, with the arguments of npu_rope.h. Nothing here was run on hardware. */
#ifndef NPU_ROPE_SIM_H
#define NPU_ROPE_SIM_H

#include "npu_rope.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct npu_rope_sim_options {
    const char *soc;        /* "ascend910b", "ascend910_93", "ascend310p", or a chip's name */
    const char *lenient;    /* rules that only warn, separated by commas; NULL: none */
    const char *trace_path; /* file for the timeline; NULL: none */
    int32_t auto_sync;      /* non-zero: insert the synchronisation that CANN's compiler would insert */
    int32_t saturate;       /* non-zero: half overflow clamps */
    int32_t one_order;      /* non-zero: cores run in ascending order only */
    int32_t trace_cores;    /* number of cores in the timeline, from the first; 0: all */
    int32_t most_cores;     /* number of cores that the tiling may use; 0: all of the chip */
} npu_rope_sim_options;

/* As npu_rope_rope(). A kernel that breaks a rule of the simulator is NPU_ROPE_INTERNAL_ERROR. */
NPU_ROPE_API npu_rope_status npu_rope_sim_rope(const npu_rope_tensor *x, const npu_rope_tensor *positions,
                                               const npu_rope_tensor *freq_factors, const npu_rope_params *params,
                                               int32_t forward, npu_rope_angle angle, const npu_rope_tensor *out,
                                               const npu_rope_sim_options *options);

/* As npu_rope_rope_qk() and npu_rope_rope_set_rows(): one launch each. */
NPU_ROPE_API npu_rope_status npu_rope_sim_rope_qk(const npu_rope_tensor *q, const npu_rope_tensor *k,
                                                  const npu_rope_tensor *positions, const npu_rope_tensor *freq_factors,
                                                  const npu_rope_params *params, int32_t forward, npu_rope_angle angle,
                                                  const npu_rope_tensor *q_out, const npu_rope_tensor *k_out,
                                                  const npu_rope_sim_options *options);
NPU_ROPE_API npu_rope_status npu_rope_sim_rope_set_rows(const npu_rope_tensor *x, const npu_rope_tensor *positions,
                                                        const npu_rope_tensor *rows,
                                                        const npu_rope_tensor *freq_factors,
                                                        const npu_rope_params *params, int32_t forward,
                                                        npu_rope_angle angle, const npu_rope_tensor *cache,
                                                        const npu_rope_sim_options *options);

/* As npu_rope_rotary_mul(), npu_rope_rotary_mul_qk() and npu_rope_rotary_embedding(): one launch each. */
NPU_ROPE_API npu_rope_status npu_rope_sim_rotary_mul(const npu_rope_tensor *x, const npu_rope_tensor *cos,
                                                     const npu_rope_tensor *sin, int32_t interleaved,
                                                     int64_t rotary_dim, int64_t offset, int32_t forward,
                                                     const npu_rope_tensor *out, const npu_rope_sim_options *options);
NPU_ROPE_API npu_rope_status npu_rope_sim_rotary_mul_qk(const npu_rope_tensor *q, const npu_rope_tensor *k,
                                                        const npu_rope_tensor *cos, const npu_rope_tensor *sin,
                                                        int32_t interleaved, int64_t rotary_dim, int64_t offset,
                                                        int32_t forward, const npu_rope_tensor *q_out,
                                                        const npu_rope_tensor *k_out,
                                                        const npu_rope_sim_options *options);
NPU_ROPE_API npu_rope_status npu_rope_sim_rotary_embedding(const npu_rope_tensor *X, const npu_rope_tensor *cos_cache,
                                                           const npu_rope_tensor *sin_cache,
                                                           const npu_rope_tensor *position_ids, int32_t interleaved,
                                                           int64_t num_heads, int64_t rotary_embedding_dim,
                                                           int32_t forward, const npu_rope_tensor *Y,
                                                           const npu_rope_sim_options *options);

/* As npu_rope_rms_norm(), npu_rope_add_rms_norm() and npu_rope_rms_norm_rope(): one launch each. */
NPU_ROPE_API npu_rope_status npu_rope_sim_rms_norm(const npu_rope_tensor *x, const npu_rope_tensor *scale, int64_t axis,
                                                   double epsilon, int64_t stash_type, const npu_rope_tensor *out,
                                                   const npu_rope_sim_options *options);
NPU_ROPE_API npu_rope_status npu_rope_sim_add_rms_norm(const npu_rope_tensor *x, const npu_rope_tensor *residual,
                                                       const npu_rope_tensor *scale, int64_t axis, double epsilon,
                                                       int64_t stash_type, const npu_rope_tensor *out,
                                                       const npu_rope_tensor *sum, const npu_rope_sim_options *options);
/* As npu_rope_rms_norm_backward(), but all rows share a scale of one contiguous row of elements. dscale is float32; the
 * sums are added to its contents, zeros. */
NPU_ROPE_API npu_rope_status npu_rope_sim_rms_norm_backward(const npu_rope_tensor *grad, const npu_rope_tensor *x,
                                                            const npu_rope_tensor *scale, int64_t axis, double epsilon,
                                                            int64_t stash_type, const npu_rope_tensor *dx,
                                                            const npu_rope_tensor *dscale,
                                                            const npu_rope_sim_options *options);
NPU_ROPE_API npu_rope_status npu_rope_sim_rms_norm_rope(
    const npu_rope_tensor *q, const npu_rope_tensor *k, const npu_rope_tensor *q_scale, const npu_rope_tensor *k_scale,
    const npu_rope_tensor *positions, const npu_rope_tensor *freq_factors, const npu_rope_params *params,
    double epsilon, int32_t intermediate_rounding, npu_rope_angle angle, const npu_rope_tensor *q_out,
    const npu_rope_tensor *k_out, const npu_rope_sim_options *options);
NPU_ROPE_API npu_rope_status npu_rope_sim_rms_norm_rope_set_rows(
    const npu_rope_tensor *q, const npu_rope_tensor *k, const npu_rope_tensor *q_scale, const npu_rope_tensor *k_scale,
    const npu_rope_tensor *positions, const npu_rope_tensor *rows, const npu_rope_tensor *freq_factors,
    const npu_rope_params *params, double epsilon, int32_t intermediate_rounding, npu_rope_angle angle,
    const npu_rope_tensor *q_out, const npu_rope_tensor *cache, const npu_rope_sim_options *options);

/* The last error of this thread. */
NPU_ROPE_API const char *npu_rope_sim_last_error(void);

/* Comma-separated SoCs for which kernels were compiled. */
NPU_ROPE_API const char *npu_rope_sim_socs(void);

#ifdef __cplusplus
}
#endif

#endif
