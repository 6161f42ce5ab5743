/* npu_rope: rotary position embedding and RMS normalization on the CPU, through a C interface.
 *
 * The interface is C99. No function throws. No operator keeps a pointer to a caller's memory after it returns. An
 * operator that rejects its arguments writes nothing.
 */
#ifndef NPU_ROPE_H
#define NPU_ROPE_H

#include <stdint.h>

#if defined(_WIN32)
#define NPU_ROPE_API __declspec(dllexport)
#else
#define NPU_ROPE_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Increases when the binary form of a struct or a signature below changes. Compare it with npu_rope_abi_version(). */
#define NPU_ROPE_ABI_VERSION 2

/* The result of every operator. npu_rope_last_error() returns the message of an error. */
typedef enum npu_rope_status {
    NPU_ROPE_OK = 0,
    NPU_ROPE_INVALID_VALUE = 1, /* a value breaks its rule */
    NPU_ROPE_INVALID_TYPE = 2,  /* an argument has an element type that the operator does not take */
    NPU_ROPE_INTERNAL_ERROR = 3 /* out of memory, or a defect of the library */
} npu_rope_status;

typedef enum npu_rope_dtype {
    NPU_ROPE_FLOAT32 = 0,
    NPU_ROPE_FLOAT16 = 1,
    NPU_ROPE_BFLOAT16 = 2,
    NPU_ROPE_FLOAT64 = 3,
    NPU_ROPE_INT32 = 4,
    NPU_ROPE_INT64 = 5,
    NPU_ROPE_INT8 = 6, /* of quantized caches */
    /* No operator takes these types. They are listed so that error messages can name them. */
    NPU_ROPE_INT16 = 1001,
    NPU_ROPE_UINT8 = 1002,
    NPU_ROPE_BOOL = 1003,
    NPU_ROPE_COMPLEX64 = 1004,
    NPU_ROPE_COMPLEX128 = 1005
} npu_rope_dtype;

#define NPU_ROPE_MAX_NDIM 4

/* A view of memory that the caller owns. Strides count elements, not bytes. They may be zero or negative if the
 * operator's rules allow it. */
typedef struct npu_rope_tensor {
    void *data;
    int32_t dtype; /* npu_rope_dtype */
    int32_t ndim;  /* 0 .. NPU_ROPE_MAX_NDIM */
    int64_t shape[NPU_ROPE_MAX_NDIM];
    int64_t stride[NPU_ROPE_MAX_NDIM];
} npu_rope_tensor;

/* Modes, with ggml's numbers. A mode determines the pairs of a head and the position by which each pair rotates. */
typedef enum npu_rope_mode {
    NPU_ROPE_MODE_NORMAL = 0,  /* pairs (x[2i], x[2i+1]) */
    NPU_ROPE_MODE_NEOX = 2,    /* pairs (x[i], x[i + n_dims/2]) */
    NPU_ROPE_MODE_MROPE = 8,   /* as NEOX; each section of the pairs has a position of its own */
    NPU_ROPE_MODE_VISION = 24, /* pairs (x[i], x[i + n_dims]), n_dims = D/2; frequencies restart in each section */
    NPU_ROPE_MODE_IMROPE = 40  /* as MROPE, but axes alternate from pair to pair */
} npu_rope_mode;

/* How the angle is computed. */
typedef enum npu_rope_angle {
    NPU_ROPE_ANGLE_EXACT = 0, /* cos and sin within 2^-23 of the exact values for every int32 position */
    NPU_ROPE_ANGLE_F32 = 1,   /* frequency rounded to float32, product in float32 */
    NPU_ROPE_ANGLE_GGML = 2   /* ggml's float32 recurrence, operation by operation */
} npu_rope_angle;

/* Attributes of rope, named as in ggml's rope_ext. Start from npu_rope_default_params(). An error of an attribute
 * begins with "[rope]" in all operators, because its rule is the same in all. */
typedef struct npu_rope_params {
    int32_t n_dims;     /* rotated width: even, 2 .. head size; VISION: half the head size */
    int32_t mode;       /* npu_rope_mode */
    int32_t n_ctx_orig; /* context length the model was trained with; needed by YaRN only */
    int32_t n_offs;     /* where the rotated window starts inside the head: even, >= 0; VISION: 0 */
    double freq_base;   /* > 0 */
    double freq_scale;  /* > 0; 1/factor of linear scaling and of YaRN */
    double ext_factor;  /* 0 = no YaRN */
    double attn_factor; /* multiplies cos and sin */
    double beta_fast;   /* YaRN ramp limits, in rotations over n_ctx_orig */
    double beta_slow;
    int32_t sections[4]; /* MROPE, VISION, IMROPE: numbers of pairs that rotate by time, height, width and an extra
                            position, repeated over all pairs; at least one of the first three > 0 */
} npu_rope_params;

/* The NPU_ROPE_ABI_VERSION with which the library was built. */
NPU_ROPE_API int32_t npu_rope_abi_version(void);

/* The library's version, such as "0.1.0". */
NPU_ROPE_API const char *npu_rope_version(void);

/* The message of this thread's last error: "[op] argument must RULE but got VALUE." Never NULL; empty before the first
 * error. Valid until this thread's next call into the library. */
NPU_ROPE_API const char *npu_rope_last_error(void);

/* The parts of that error, so that callers need not parse the message: the argument `argument` of the operator `op`
 * must `rule` but got `value`. No pointer is NULL; before the first error the status is NPU_ROPE_OK and the texts are
 * empty. The pointers are valid as long as the message. */
typedef struct npu_rope_error {
    npu_rope_status status;
    const char *op, *argument, *rule, *value;
    const char *message; /* npu_rope_last_error() */
} npu_rope_error;
NPU_ROPE_API npu_rope_error npu_rope_last_error_parts(void);

/* The instruction set of the kernels: "avx512_fp16", "avx512_bf16", "avx512", "avx2", "baseline" or "neon". */
NPU_ROPE_API const char *npu_rope_isa(void);

/* Select the instruction set of this process, for tests and comparisons: one of npu_rope_isa()'s names, or NULL for the
 * widest that the machine has. */
NPU_ROPE_API int32_t npu_rope_force_isa(const char *name);

/* The number of threads that a large call may use. */
NPU_ROPE_API int32_t npu_rope_num_threads(void);

/* Use a host framework's thread pool: run(n, threads, body, ctx) must call body(begin, end, ctx) for disjoint ranges
 * that cover [0, n), on at most `threads` threads, and return when all are done. num_threads() returns the size of the
 * pool. Both NULL: use OpenMP again. Do not call this while operators run. */
typedef void (*npu_rope_range_fn)(int64_t begin, int64_t end, void *ctx);
typedef void (*npu_rope_run_fn)(int64_t n, int32_t threads, npu_rope_range_fn body, void *ctx);
typedef int32_t (*npu_rope_num_threads_fn)(void);
NPU_ROPE_API void npu_rope_set_thread_pool(npu_rope_run_fn run, npu_rope_num_threads_fn num_threads);

/* Return parameters with these values of n_dims and mode, and with ggml's defaults for the others: freq_base 10000,
 * freq_scale 1, no YaRN, attn_factor 1, beta_fast 32, beta_slow 1. */
NPU_ROPE_API npu_rope_params npu_rope_default_params(int32_t n_dims, int32_t mode);

/* Rotate x by its positions into out.
 *
 *   x             [B,S,N,D] or [S,N,D]; float32, float16, bfloat16 or float64; any strides in
 *                 B, S and N, unit stride in D
 *   positions     int32 or int64, values of the int32 range, negative ones included. Modes NORMAL and
 *                 NEOX: [S] or [B,S]. MROPE, VISION and IMROPE: time, height, width and extra as [4,S],
 *                 flat [4*S] or [4,B,S]; or only the first three as [3,S] or [3,B,S], and extra then
 *                 equals time. Shapes with B require an x with B. If such a shape has size 1 instead of
 *                 B, all batches share the positions
 *   freq_factors  NULL, or [F] float32, F >= the number of pairs, positive and finite: pair i's frequency
 *                 is divided by freq_factors[i]
 *   forward       non-zero: by the angle; zero: by minus the angle (the gradient)
 *   angle         npu_rope_angle
 *   out           shape and dtype of x, unit stride in D; does not overlap itself. Either x itself (same data,
 *                 same strides: in place) or memory that x, positions and freq_factors do not touch
 *
 * With c = m*cos(angle), s = m*sin(angle) and m = attn_factor times YaRN's own factor, a pair (x1, x2) becomes
 * (x1*c - x2*s, x1*s + x2*c); the rest of the head is copied. */
NPU_ROPE_API npu_rope_status npu_rope_rope(const npu_rope_tensor *x, const npu_rope_tensor *positions,
                                           const npu_rope_tensor *freq_factors, const npu_rope_params *params,
                                           int32_t forward, int32_t angle, const npu_rope_tensor *out);

/* rope on queries and keys in one call, with one table of cos and sin: q [B,S,Nq,D] or [S,Nq,D]; k has q's dtype and
 * its shape except for the number of heads. q_out and k_out follow the rules of out above. They share no memory with
 * each other. q_out shares no memory with k, and k_out none with q. */
NPU_ROPE_API npu_rope_status npu_rope_rope_qk(const npu_rope_tensor *q, const npu_rope_tensor *k,
                                              const npu_rope_tensor *positions, const npu_rope_tensor *freq_factors,
                                              const npu_rope_params *params, int32_t forward, int32_t angle,
                                              const npu_rope_tensor *q_out, const npu_rope_tensor *k_out);

/* rope into rows of a cache: the rotated heads of token t become cache[rows[t]].
 *
 *   rows    [S] (where B is 1) or [B,S]; int32 or int64; for each token a row of the cache that no other token
 *           has, or -1 to skip the token
 *   cache   [R,N,D], unit stride in D; x's dtype, or float16 or bfloat16 for float32 x; does not overlap itself.
 *           Other rows do not change. Shares no memory with the inputs. */
NPU_ROPE_API npu_rope_status npu_rope_rope_set_rows(const npu_rope_tensor *x, const npu_rope_tensor *positions,
                                                    const npu_rope_tensor *rows, const npu_rope_tensor *freq_factors,
                                                    const npu_rope_params *params, int32_t forward, int32_t angle,
                                                    const npu_rope_tensor *cache);

/* Rotate x by tables of cos and sin.
 *
 *   x            [B,S,N,D] or [S,N,D]; float32, float16, bfloat16 or float64; any strides in B, S and
 *                N, unit stride in D
 *   cos, sin     [S,W], [1 or B,S,W] or [1 or B,S,1,W]; if x has no batch: [S,W] or [S,1,W]; x's
 *                dtype or float32, the same for both, unit stride in W. W = rotary_dim/2: one entry per
 *                pair; W = rotary_dim: one entry per lane
 *   interleaved  zero: pairs (x[i], x[i + rotary_dim/2]); non-zero: pairs (x[2i], x[2i+1])
 *   rotary_dim   rotated width: even, at most D; 0: D
 *   offset       first lane of the rotated window in a head: even, 0 .. D - rotary_dim
 *   forward      non-zero: by the tables; zero: the transposed rotation, the gradient for x
 *   out          as npu_rope_rope's; shares no memory with cos and sin
 *
 * A pair (x1, x2) becomes (x1*c1 - x2*s1, x2*c2 + x1*s2). c1 and s1 are the entries of its first lane, c2 and s2 those
 * of its second lane. The rest of the head is copied. */
NPU_ROPE_API npu_rope_status npu_rope_rotary_mul(const npu_rope_tensor *x, const npu_rope_tensor *cos,
                                                 const npu_rope_tensor *sin, int32_t interleaved, int64_t rotary_dim,
                                                 int64_t offset, int32_t forward, const npu_rope_tensor *out);

/* rotary_mul on queries and keys in one call: q, k, q_out and k_out as npu_rope_rope_qk's; the outs share no memory
 * with cos and sin. */
NPU_ROPE_API npu_rope_status npu_rope_rotary_mul_qk(const npu_rope_tensor *q, const npu_rope_tensor *k,
                                                    const npu_rope_tensor *cos, const npu_rope_tensor *sin,
                                                    int32_t interleaved, int64_t rotary_dim, int64_t offset,
                                                    int32_t forward, const npu_rope_tensor *q_out,
                                                    const npu_rope_tensor *k_out);

/* ONNX's RotaryEmbedding (opset 23).
 *
 *   X             [B,N,S,D], or [B,S,hidden] with num_heads; types and strides as rotary_mul's x
 *   cos_cache,    with position_ids [rows,W], without [B,S,W]; W >= rotary_embedding_dim/2. Only the first
 *   sin_cache     rotary_embedding_dim/2 entries of a row are read. X's dtype or float32, the same for both
 *   position_ids  NULL, or [B,S] int64 or int32: rows of the caches
 *   interleaved, rotary_embedding_dim  as rotary_mul's; the window begins at lane 0
 *   num_heads     number of heads of an X [B,S,hidden]; ignored for [B,N,S,D]
 *   forward       as rotary_mul's
 *   Y             as rotary_mul's out */
NPU_ROPE_API npu_rope_status npu_rope_rotary_embedding(const npu_rope_tensor *X, const npu_rope_tensor *cos_cache,
                                                       const npu_rope_tensor *sin_cache,
                                                       const npu_rope_tensor *position_ids, int32_t interleaved,
                                                       int64_t num_heads, int64_t rotary_embedding_dim, int32_t forward,
                                                       const npu_rope_tensor *Y);

/* ONNX's RMSNormalization (opset 23): divide each row (the dimensions from axis on) by sqrt(m + epsilon), where m is
 * the mean of its squares. Round the quotient to x's type and multiply it by scale.
 *
 *   x           any shape of 1 to 4 dimensions; float32, float16, bfloat16 or float64; contiguous in the
 *               dimensions from axis on, any strides in those before
 *   scale       broadcastable to x's shape (each dimension, from the last on, x's or 1); any of these types
 *               and any strides
 *   axis        the first dimension to be normalized, -ndim .. ndim-1; negative ones count from the end
 *   epsilon     added to the mean square: >= 0; rounded to float32, as ONNX stores it
 *   stash_type  a type by ONNX's number: 1 float32, 10 float16, 11 float64, 16 bfloat16. x is rounded to it
 *               first, and the division has its precision. Squares are summed in float64, after
 *               short sums in float32 where these are precise enough
 *   out         x's shape, scale's dtype; contiguous like x; does not overlap itself. Either x itself or memory
 *               that x does not touch; shares no memory with scale */
NPU_ROPE_API npu_rope_status npu_rope_rms_norm(const npu_rope_tensor *x, const npu_rope_tensor *scale, int64_t axis,
                                               double epsilon, int64_t stash_type, const npu_rope_tensor *out);

/* The norm of models that round once, after the scale (Gemma, OLMo 2, gpt-oss), on the CPU only: the quotient times
 * (scale + scale_offset), rounded to x's type. The quotient, the sum and the product are in float32.
 *
 *   x, scale      as npu_rope_rms_norm's, but not float64
 *   scale_offset  finite in float32: 1 for Gemma, whose scales are stored minus 1
 *   out           x's shape and dtype; the rest as npu_rope_rms_norm's */
NPU_ROPE_API npu_rope_status npu_rope_rms_norm_rounded_last(const npu_rope_tensor *x, const npu_rope_tensor *scale,
                                                            int64_t axis, double epsilon, double scale_offset,
                                                            const npu_rope_tensor *out);

/* The gradients of rms_norm, with 1 as the derivative of a rounding.
 *
 *   grad    out's gradient: x's shape, scale's dtype; contiguous like x
 *   dx      x's shape and dtype, contiguous like x
 *   dscale  NULL if it is not needed, or scale's shape and dtype, contiguous; summed in float64, in an order that
 *           depends on the shapes only
 * Neither output overlaps itself, the other, or an input. The rest as above. */
NPU_ROPE_API npu_rope_status npu_rope_rms_norm_backward(const npu_rope_tensor *grad, const npu_rope_tensor *x,
                                                        const npu_rope_tensor *scale, int64_t axis, double epsilon,
                                                        int64_t stash_type, const npu_rope_tensor *dx,
                                                        const npu_rope_tensor *dscale);

/* The norm of queries and keys in models with QK-norm, and rope_qk, in one pass: divide each head of q and k by
 * sqrt(m + epsilon), where m is the mean of its squares. Multiply the quotient by q_scale or k_scale, and rotate it by
 * the token's positions. Lanes outside the rotated window are only normalized and scaled.
 *
 *   q, k, positions, freq_factors, q_out, k_out  as npu_rope_rope_qk's; the outs share no memory with the scales
 *   q_scale, k_scale       [D], of q's dtype, unit stride
 *   epsilon                added to the mean square: >= 0; rounded to float32
 *   intermediate_rounding  zero: all intermediate values are float32 (float64 for float64) and a result rounds once;
 *                          non-zero: bit for bit npu_rope_rms_norm (stash_type 1), then npu_rope_rope_qk */
NPU_ROPE_API npu_rope_status npu_rope_rms_norm_rope(const npu_rope_tensor *q, const npu_rope_tensor *k,
                                                    const npu_rope_tensor *q_scale, const npu_rope_tensor *k_scale,
                                                    const npu_rope_tensor *positions,
                                                    const npu_rope_tensor *freq_factors, const npu_rope_params *params,
                                                    double epsilon, int32_t intermediate_rounding, int32_t angle,
                                                    const npu_rope_tensor *q_out, const npu_rope_tensor *k_out);

/* npu_rope_rms_norm_rope() with the keys stored into rows of a cache.
 *
 *   rows    as npu_rope_rope_set_rows'; for a token with row -1 only q is computed
 *   cache   [R,Nk,D] of k's dtype, unit stride in D; shares no memory with the other tensors */
NPU_ROPE_API npu_rope_status npu_rope_rms_norm_rope_set_rows(
    const npu_rope_tensor *q, const npu_rope_tensor *k, const npu_rope_tensor *q_scale, const npu_rope_tensor *k_scale,
    const npu_rope_tensor *positions, const npu_rope_tensor *rows, const npu_rope_tensor *freq_factors,
    const npu_rope_params *params, double epsilon, int32_t intermediate_rounding, int32_t angle,
    const npu_rope_tensor *q_out, const npu_rope_tensor *cache);

/* A residual connection and the norm after it in one pass: sum = x + residual, out = rms_norm(sum), with the bits of
 * the two separate steps.
 *
 *   residual  x's shape and dtype, contiguous like x
 *   out       x's shape, scale's dtype; contiguous like x; does not overlap itself
 *   sum       x's shape and dtype, contiguous like x: x + residual, rounded once; 16-bit types are added in float32
 * out and sum may each be x or residual itself, or memory that neither touches. out, sum and scale share no memory.
 * The rest as npu_rope_rms_norm's. */
NPU_ROPE_API npu_rope_status npu_rope_add_rms_norm(const npu_rope_tensor *x, const npu_rope_tensor *residual,
                                                   const npu_rope_tensor *scale, int64_t axis, double epsilon,
                                                   int64_t stash_type, const npu_rope_tensor *out,
                                                   const npu_rope_tensor *sum);

/* The step of attention between the projection and the KV cache, in one pass: normalize the heads of queries and keys,
 * rotate them, and store keys and values into rows of caches.
 *
 * Inputs. q, k, positions and the rotation's source are required; the others may be NULL.
 *   q, k, v         [S,N,D]: float32, float16, bfloat16 or float64, the same type; any strides in S and N, unit stride
 *                   in D, so they may be views of one fused tensor. k has q's head size. v has any number of heads and
 *                   any head size; it is neither normalized nor rotated
 *   q_scale, k_scale  factors of the norm, of q's type or float32, unit stride; without them, q or k is not normalized.
 *                   [D]: each head is normalized. [N*D] (with more than one head): all heads of a token together
 *   q_bias, k_bias  added after the norm and its factors; shaped as q_scale and k_scale; of q's type or float32
 *   square_sums     [S,2] float32 (float64 for float64 q), not negative: the sums of squares of each token's q and k,
 *                   over the heads of all ranks; only with norms over all heads. NaN passes to the results.
 *                   npu_rope_qk_square_sums() computes the sums of a rank
 *   positions       as npu_rope_rope's for one batch: [S]; [3,S], [4,S] or [4*S] in the modes with sections. With
 *                   tables: rows of the tables, >= 0; NULL means that token s has row s
 *   freq_factors    as npu_rope_rope's; not with tables
 *   cos, sin        tables [P,W], in place of the frequencies of params: of q's type or float32, unit stride. W is the
 *                   number of pairs, or twice that, with an entry for each lane as in npu_rope_rotary_mul. Of params
 *                   then only n_dims, mode, n_offs and sections are used. With sections, a pair takes its entry from
 *                   the row of its axis
 *   slots           [S] int32 or int64: the row of the caches for each token, or -1 to leave the token's k and v out.
 *                   No two tokens have the same row
 *   k_quant_scale,  float32 factors [1], [N] or [N,D] of an int8 cache, which requires them; contiguous; only with
 *   v_quant_scale   slots, and for v only with v
 *   k_quant_offset,  float32, added after the factor, of the factor's shape; contiguous
 *   v_quant_offset
 *
 * Attributes.
 *   epsilon       added to the mean square: >= 0; rounded to float32
 *   scale_offset  added to the scales in float32: 1 for Gemma, whose scales are stored minus 1
 *   ranks         the number of ranks whose heads square_sums covers, each with as many heads as this call: the mean
 *                 square is the sum divided by ranks * N * D. In [1, 65536]; 1 without square_sums
 *
 * Outputs.
 *   q_out         q's shape and dtype, unit stride in D
 *   k_out, v_out  without slots, as q_out, for k and v. With slots, caches (k_cache, v_cache in errors): [rows,N,D], or
 *                 [blocks,block_size,N,D] with row = block * block_size + place in the block. Any strides, unit
 *                 stride in D; of q's type, float32, float16, bfloat16, or int8. Other rows do not change
 *
 * An output does not overlap itself. q_out, and without slots k_out and v_out, may be the input of the same name
 * without _out. Otherwise an output shares no memory with an input or another output.
 *
 * A result is y = rotate(x / sqrt(m + epsilon) * (scale + scale_offset) + bias), where m is the mean square and rotate
 * is npu_rope_rope's rotation. Intermediate values are float32 (float64 for float64 q), and y is rounded once. An int8
 * cache gets y * quant_scale + quant_offset of the intermediate value, rounded half to even and limited to [-128, 127];
 * NaN becomes 0. */
typedef struct npu_rope_qkv_inputs {
    const npu_rope_tensor *q, *k, *v;
    const npu_rope_tensor *q_scale, *k_scale, *q_bias, *k_bias, *square_sums;
    const npu_rope_tensor *positions, *freq_factors, *cos, *sin;
    const npu_rope_tensor *slots, *k_quant_scale, *k_quant_offset, *v_quant_scale, *v_quant_offset;
} npu_rope_qkv_inputs;

typedef struct npu_rope_qkv_outputs {
    const npu_rope_tensor *q_out, *k_out, *v_out; /* v_out: NULL without v */
} npu_rope_qkv_outputs;

NPU_ROPE_API npu_rope_status npu_rope_qkv_norm_rope_cache(const npu_rope_qkv_inputs *inputs,
                                                          const npu_rope_params *params, double epsilon,
                                                          double scale_offset, int64_t ranks, int32_t angle,
                                                          const npu_rope_qkv_outputs *outputs);

/* The sums of squares of each token's queries and keys, over its heads: out[s] = (sum of q[s]^2, sum of k[s]^2).
 *
 *   q, k  as npu_rope_qkv_norm_rope_cache's
 *   out   [S,2] float32 (float64 for float64 q), unit stride in the last dimension; shares no memory with q and k */
NPU_ROPE_API npu_rope_status npu_rope_qk_square_sums(const npu_rope_tensor *q, const npu_rope_tensor *k,
                                                     const npu_rope_tensor *out);

/* The data that a check may read besides the tensors' sizes, types and strides. A check skips rules that need other
 * data. */
typedef enum npu_rope_known {
    NPU_ROPE_KNOWN_VALUES = 0,    /* addresses and elements: memory of this process */
    NPU_ROPE_KNOWN_ADDRESSES = 1, /* addresses: memory of a device */
    NPU_ROPE_KNOWN_LAYOUT = 2     /* neither: tensors without memory, as in a traced graph; data may be NULL */
} npu_rope_known;

#define NPU_ROPE_MAX_INPUTS 17
#define NPU_ROPE_MAX_OUTPUTS 3

/* A call of any operator. Arguments that the operator does not have are ignored. */
typedef struct npu_rope_call {
    const char *op; /* the name of its function without the prefix: "rope_qk" is npu_rope_rope_qk */
    int32_t known;  /* npu_rope_known */
    int32_t angle;  /* npu_rope_angle */
    const npu_rope_tensor *inputs[NPU_ROPE_MAX_INPUTS];   /* in the order of the function's arguments */
    const npu_rope_tensor *outputs[NPU_ROPE_MAX_OUTPUTS]; /* likewise. NULL: still to be allocated, and not checked */
    const npu_rope_params *params;
    double epsilon;
    double scale_offset;                   /* of qkv_norm_rope_cache and rms_norm_rounded_last */
    int64_t ranks;                         /* of qkv_norm_rope_cache */
    int64_t axis, stash_type;              /* of the norms */
    int64_t rotary_dim, offset, num_heads; /* of the rotary operators; rotary_dim is also rotary_embedding_dim */
} npu_rope_call;

/* Check a call by the rules of its operator, and compute nothing. Status and error are those of the operator. */
NPU_ROPE_API npu_rope_status npu_rope_check(const npu_rope_call *call);

/* Check a call by the rules of its operator and by those of the kernels on a chip: types, sizes and values that they
 * support. chip: CANN's name, such as "Ascend910B3". */
NPU_ROPE_API npu_rope_status npu_rope_check_on_chip(const npu_rope_call *call, const char *chip);

#ifdef __cplusplus
}
#endif

#endif
