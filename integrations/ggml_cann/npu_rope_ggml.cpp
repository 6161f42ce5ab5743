// Converts a ggml rope node's op_params, sources and strides to the arguments of aclnnNpuRope.
//
// ggml's dimensions have the reverse order: ne = [D, N, S, B] is [B, S, N, D] here. Each token has one position; in
// modes with sections it has four, in four planes. Source of the places in op_params: ggml's rope (specs/, ggml.h).
#include "npu_rope_ggml.h"

#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <vector>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"
#include "aclnn_npu_rope.h"
#include "ggml_tensor.h"

namespace {

// Values of ggml_type in GGUF files.
enum Type { kFloat32 = 0, kFloat16 = 1, kInt32 = 26, kBfloat16 = 30 };
// Values of rope's mode.
enum Mode { kNormal = 0, kNeox = 2, kMrope = 8, kVision = 24, kImrope = 40 };

constexpr int kDims = 4;
constexpr int64_t kMaxHeadSize = 1024;  // limit of the operator on an NPU

int report(int status, char* why, size_t why_bytes, const char* format, ...) {
    if (why && why_bytes) {
        va_list arguments;
        va_start(arguments, format);
        std::vsnprintf(why, why_bytes, format, arguments);
        va_end(arguments);
    }
    return status;
}

// The parameters in ggml's op_params.
struct Params {
    int32_t n_dims, mode, n_ctx_orig, sections[4], n_offs;
    float freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow;

    explicit Params(const ggml_tensor& node) {
        const int32_t* p = node.op_params;
        n_dims = p[1], mode = p[2], n_ctx_orig = p[4];
        float* const floats[] = {&freq_base, &freq_scale, &ext_factor, &attn_factor, &beta_fast, &beta_slow};
        for (int i = 0; i < 6; ++i) std::memcpy(floats[i], p + 5 + i, sizeof(float));
        for (int i = 0; i < 4; ++i) sections[i] = has_sections() ? p[11 + i] : 0;
        n_offs = p[15];
    }
    bool has_sections() const { return (mode & kMrope) != 0; }
    bool has_frequencies() const {
        return freq_base > 0 && freq_scale > 0 && std::isfinite(freq_base) && std::isfinite(freq_scale) &&
               std::isfinite(ext_factor) && std::isfinite(attn_factor);
    }
    bool has_yarn() const { return ext_factor != 0; }
    bool has_ramp() const {
        const bool has_limits =
            freq_base != 1 && beta_fast > 0 && beta_slow > 0 && std::isfinite(beta_fast) && std::isfinite(beta_slow);
        return has_limits && (n_ctx_orig > 0 || has_ramp_of_one_token());
    }
    // Whether ggml's YaRN ramp for a context of 0 tokens is that for 1 token: it ends at the first pair. In ggml.c,
    // ggml_rope_yarn_corr_dims gives the limits 0 and minus infinity for 0 tokens, and 0 and a number <= 0 for 1 token,
    // if 2 pi beta >= 1 and freq_base > 1.
    bool has_ramp_of_one_token() const {
        constexpr float kTwoPi = 6.2831853f;
        return freq_base > 1 && beta_fast * kTwoPi >= 1 && beta_slow * kTwoPi >= 1;
    }
    int32_t context() const { return has_yarn() && n_ctx_orig == 0 ? 1 : n_ctx_orig; }
    bool is_known() const {
        return mode == kNormal || mode == kNeox || mode == kMrope || mode == kVision || mode == kImrope;
    }
};

size_t item_bytes(int type) { return type == kFloat32 || type == kInt32 ? 4 : 2; }

bool is_dense(const ggml_tensor& t) {
    size_t expected = item_bytes(t.type);
    for (int d = 0; d < kDims; ++d) {
        if (t.ne[d] != 1 && t.nb[d] != expected) return false;
        expected *= static_cast<size_t>(t.ne[d]);
    }
    return true;
}

// Whether each row is contiguous and all strides are multiples of the element size.
bool has_contiguous_rows(const ggml_tensor& t) {
    const size_t item = item_bytes(t.type);
    if (t.ne[0] != 1 && t.nb[0] != item) return false;
    for (int d = 1; d < kDims; ++d)
        if (t.nb[d] % item) return false;
    return true;
}

int supports(const ggml_tensor* node, int has_bfloat16, char* why, size_t why_bytes) {
    const auto refuse = [&](const char* text) { return report(NPU_ROPE_GGML_UNSUPPORTED, why, why_bytes, "%s", text); };
    if (!node) return refuse("the node is NULL");
    const char* op = ggml_op_name(node->op);
    if (!op || (std::strcmp(op, "ROPE") != 0 && std::strcmp(op, "ROPE_BACK") != 0))
        return refuse("the node is not a rope node");
    const ggml_tensor *x = node->src[0], *positions = node->src[1], *factors = node->src[2];
    if (!x || !positions) return refuse("the node has no x or no positions");
    if (x->type != node->type) return refuse("x and the result have different types");
    if (x->type == kBfloat16 && !has_bfloat16) return refuse("this chip has no bfloat16");
    if (x->type != kFloat32 && x->type != kFloat16 && x->type != kBfloat16)
        return refuse("x is not a floating point tensor");
    if (positions->type != kInt32 || !is_dense(*positions))
        return refuse("positions are not contiguous 32-bit integers");
    for (int d = 0; d < kDims; ++d)
        if (x->ne[d] != node->ne[d]) return refuse("x and the result have different shapes");
    if (!has_contiguous_rows(*x) || !has_contiguous_rows(*node)) return refuse("a head's elements are not contiguous");
    const Params p(*node);
    if (!p.is_known()) return refuse("the node's mode is not known");
    const int64_t planes = p.has_sections() ? 4 : 1;
    if (positions->ne[0] != x->ne[2] * planes) return refuse("there are not as many positions as tokens");
    const int64_t pairs = p.mode == kVision ? p.n_dims : p.n_dims / 2;
    if (p.n_dims <= 0 || p.n_dims % 2 || p.n_offs < 0 || p.n_offs + 2 * pairs > x->ne[0])
        return refuse("the dimensions to rotate are not pairs inside a head");
    if (x->ne[0] > kMaxHeadSize) return refuse("a head has more than 1024 elements");
    if (p.n_ctx_orig < 0) return refuse("n_ctx_orig is negative");
    if (!p.has_frequencies()) return refuse("freq_base, freq_scale or a factor is not a number of the allowed range");
    if (p.has_yarn() && !p.has_ramp()) return refuse("YaRN's ramp is not defined");
    if (p.mode == kVision && 2 * int64_t{p.n_dims} != x->ne[0])
        return refuse("in mode vision the whole head must rotate");
    if (factors && (factors->type != kFloat32 || !is_dense(*factors) || factors->ne[0] < pairs))
        return refuse("freq_factors do not have a contiguous float32 for each pair");
    return NPU_ROPE_GGML_OK;
}

aclDataType acl_type(int type) {
    switch (type) {
        case kFloat32:
            return ACL_FLOAT;
        case kFloat16:
            return ACL_FLOAT16;
        case kBfloat16:
            return ACL_BF16;
        default:
            return ACL_INT32;
    }
}

// The aclTensors of a call and their strides. The destructor frees them.
class Arguments {
public:
    ~Arguments() {
        for (const aclTensor* t : tensors_) aclDestroyTensor(t);
        for (const aclIntArray* a : arrays_) aclDestroyIntArray(a);
    }

    // Makes a tensor [B, S, N, D] of heads, or one with a single dimension, and records its strides.
    const aclTensor* tensor(const ggml_tensor& t, bool heads) {
        std::vector<int64_t> shape, strides;
        const auto item = static_cast<int64_t>(item_bytes(t.type));
        for (int d = heads ? kDims - 1 : 0; d >= 0; --d) {
            shape.push_back(t.ne[d]);
            strides.push_back(d == 0 ? 1 : static_cast<int64_t>(t.nb[d]) / item);
        }
        strides_.insert(strides_.end(), strides.begin(), strides.end());
        return create(t, shape, strides);
    }

    // Makes freq_factors, whose strides are not part of the call.
    const aclTensor* factors(const ggml_tensor* t) { return t ? create(*t, {t->ne[0]}, {1}) : nullptr; }

    const aclIntArray* recorded_strides() { return array(strides_); }
    const aclIntArray* array(const std::vector<int64_t>& values) {
        arrays_.push_back(aclCreateIntArray(values.data(), values.size()));
        return arrays_.back();
    }
    bool complete() const {
        for (const void* t : tensors_)
            if (!t) return false;
        for (const void* a : arrays_)
            if (!a) return false;
        return true;
    }

private:
    const aclTensor* create(const ggml_tensor& t, const std::vector<int64_t>& shape,
                            const std::vector<int64_t>& strides) {
        tensors_.push_back(aclCreateTensor(shape.data(), shape.size(), acl_type(t.type), strides.data(), 0,
                                           ACL_FORMAT_ND, shape.data(), shape.size(), t.data));
        return tensors_.back();
    }

    std::vector<const aclTensor*> tensors_;
    std::vector<const aclIntArray*> arrays_;
    std::vector<int64_t> strides_;
};

int report_acl_error(const char* function, int status, char* why, size_t why_bytes) {
    const char* text = aclGetRecentErrMsg();
    return report(NPU_ROPE_GGML_FAILED, why, why_bytes, "%s: status %d: %s", function, status, text ? text : "");
}

int compute(const ggml_tensor* node, void* stream, npu_rope_ggml_allocate allocate, void* context, char* why,
            size_t why_bytes) {
    const Params p(*node);
    const bool forward = std::strcmp(ggml_op_name(node->op), "ROPE") == 0;
    Arguments arguments;
    const aclTensor* x = arguments.tensor(*node->src[0], true);
    const aclTensor* positions = arguments.tensor(*node->src[1], false);
    const aclTensor* factors = arguments.factors(node->src[2]);
    const aclTensor* out = arguments.tensor(*node, true);
    const aclIntArray* sections = arguments.array({p.sections, p.sections + 4});
    const aclIntArray* strides = arguments.recorded_strides();
    if (!arguments.complete())
        return report(NPU_ROPE_GGML_FAILED, why, why_bytes, "aclCreateTensor or aclCreateIntArray returned NULL");
    uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    int status = aclnnNpuRopeGetWorkspaceSize(x, positions, factors, p.n_dims, p.mode, p.context(),
                                              static_cast<double>(p.freq_base), static_cast<double>(p.freq_scale),
                                              static_cast<double>(p.ext_factor), static_cast<double>(p.attn_factor),
                                              static_cast<double>(p.beta_fast), static_cast<double>(p.beta_slow),
                                              sections, forward, p.n_offs, strides, out, &bytes, &executor);
    if (status != ACL_SUCCESS) return report_acl_error("aclnnNpuRopeGetWorkspaceSize", status, why, why_bytes);
    void* workspace = bytes > 0 ? allocate(context, bytes) : nullptr;
    if (bytes > 0 && !workspace) return report(NPU_ROPE_GGML_FAILED, why, why_bytes, "no memory for a workspace");
    status = aclnnNpuRope(workspace, bytes, executor, static_cast<aclrtStream>(stream));
    if (status != ACL_SUCCESS) return report_acl_error("aclnnNpuRope", status, why, why_bytes);
    return report(NPU_ROPE_GGML_OK, why, why_bytes, "%s", "");
}

}  // namespace

extern "C" int npu_rope_ggml_supports(const ggml_tensor* node, int has_bfloat16, char* why, size_t why_bytes) try {
    const int status = supports(node, has_bfloat16, why, why_bytes);
    return status == NPU_ROPE_GGML_OK ? report(status, why, why_bytes, "%s", "") : status;
} catch (...) {
    return report(NPU_ROPE_GGML_FAILED, why, why_bytes, "out of memory");
}

extern "C" int npu_rope_ggml_compute(const ggml_tensor* node, int has_bfloat16, void* stream,
                                     npu_rope_ggml_allocate allocate, void* context, char* why, size_t why_bytes) try {
    const int status = supports(node, has_bfloat16, why, why_bytes);
    if (status != NPU_ROPE_GGML_OK) return status;
    for (int d = 0; d < kDims; ++d)
        if (node->ne[d] == 0) return report(NPU_ROPE_GGML_OK, why, why_bytes, "%s", "");  // nothing to launch
    return compute(node, stream, allocate, context, why, why_bytes);
} catch (...) {
    return report(NPU_ROPE_GGML_FAILED, why, why_bytes, "out of memory");
}
