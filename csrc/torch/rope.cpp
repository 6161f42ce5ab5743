// rope for CPU tensors, through torch's stable ABI. The schemas, fakes and gradients are in
// npu_rope/ops/rope.py; these are the kernels, in boxed form: every argument is unpacked by hand
// because a decode-sized call is mostly argument handling.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstring>
#include <stdexcept>
#include <string>

#include "csrc/torch/tensor_view.h"
#include "include/npu_rope.h"

namespace {

using npu_rope::check;
using npu_rope::Owned;
using npu_rope::view_of;

using torch::stable::Tensor;
using torch::stable::detail::to;

void run(AtenTensorHandle x, AtenTensorHandle positions, const AtenTensorHandle* freq_factors,
         const npu_rope_params& params, bool forward, int64_t angle, AtenTensorHandle out) {
    npu_rope_tensor tx = view_of(x), tp = view_of(positions), tf, to = out == x ? tx : view_of(out);
    if (freq_factors) tf = view_of(*freq_factors);
    if (npu_rope_rope(&tx, &tp, freq_factors ? &tf : nullptr, &params, forward, static_cast<npu_rope_angle>(angle),
                      &to) != NPU_ROPE_OK)
        throw std::runtime_error(npu_rope_last_error());
}

// A last dimension without unit stride is the one layout the kernels do not read.
bool needs_copy(AtenTensorHandle x) {
    int64_t ndim, *sizes, *strides;
    check(aoti_torch_get_dim(x, &ndim));
    check(aoti_torch_get_sizes(x, &sizes));
    check(aoti_torch_get_strides(x, &strides));
    return ndim > 0 && sizes[ndim - 1] > 1 && strides[ndim - 1] != 1;
}

Owned empty_contiguous(AtenTensorHandle x) {
    int64_t ndim, *sizes, strides[64], step = 1;
    int32_t dtype, device, index;
    check(aoti_torch_get_dim(x, &ndim));
    check(aoti_torch_get_sizes(x, &sizes));
    check(aoti_torch_get_dtype(x, &dtype));
    check(aoti_torch_get_device_type(x, &device));
    check(aoti_torch_get_device_index(x, &index));
    for (int64_t k = ndim - 1; k >= 0; --k) {
        strides[k] = step;
        step *= sizes[k] > 1 ? sizes[k] : 1;
    }
    AtenTensorHandle out;
    check(aoti_torch_empty_strided(ndim, sizes, strides, dtype, device, index, &out));
    return Owned(out);
}

// The attributes behind "*" in the schema of rope, rope_ and rope_out, in its order.
struct Attributes {
    npu_rope_params params;
    bool forward;
    int64_t angle;
};

// An argument of type Tensor?.
class Optional {
public:
    explicit Optional(StableIValue v) {
        auto* box = to<StableIValue*>(v);
        if (!box) return;
        handle_ = to<AtenTensorHandle>(*box);
        delete box;
    }
    ~Optional() {
        if (handle_) aoti_torch_delete_tensor_object(handle_);
    }
    Optional(const Optional&) = delete;
    Optional& operator=(const Optional&) = delete;
    AtenTensorHandle get() const { return handle_; }
    const AtenTensorHandle* get_or_null() const { return handle_ ? &handle_ : nullptr; }

private:
    AtenTensorHandle handle_ = nullptr;
};

int32_t narrow(const char* name, int64_t v) {
    if (v < INT32_MIN || v > INT32_MAX)
        throw std::runtime_error("[rope] " + std::string(name) + " must be in the int32 range but got " +
                                 std::to_string(v) + ".");
    return static_cast<int32_t>(v);
}

void read_sections(StableIValue v, int32_t* sections) {
    std::memset(sections, 0, 4 * sizeof *sections);
    int64_t wide[4] = {};
    auto* box = to<StableIValue*>(v);
    if (!box) return;
    auto list = to<StableListHandle>(*box);
    delete box;
    size_t n = 0;
    torch_list_size(list, &n);
    for (size_t i = 0; i < n && i < 4; ++i) {
        StableIValue item;
        torch_list_get_item(list, i, &item);
        wide[i] = to<int64_t>(item);
    }
    torch_delete_list(list);
    if (n != 4)
        throw std::runtime_error("[rope] sections must be four numbers >= 0 but got " + std::to_string(n) + ".");
    for (int i = 0; i < 4; ++i) sections[i] = narrow("sections", wide[i]);
}

Attributes read_attributes(StableIValue* s) {
    Attributes a;
    read_sections(s[9], a.params.sections);
    a.params.n_dims = narrow("n_dims", to<int64_t>(s[0]));
    a.params.mode = narrow("mode", to<int64_t>(s[1]));
    a.params.n_ctx_orig = narrow("n_ctx_orig", to<int64_t>(s[2]));
    a.params.freq_base = to<double>(s[3]);
    a.params.freq_scale = to<double>(s[4]);
    a.params.ext_factor = to<double>(s[5]);
    a.params.attn_factor = to<double>(s[6]);
    a.params.beta_fast = to<double>(s[7]);
    a.params.beta_slow = to<double>(s[8]);
    a.params.n_offs = narrow("n_offs", to<int64_t>(s[10]));
    a.forward = to<bool>(s[11]);
    a.angle = narrow("angle", to<int64_t>(s[12]));
    return a;
}

// x, positions and freq_factors, which come first in the schemas of rope, rope_ and rope_out.
struct Inputs {
    Owned x, positions;
    Optional factors;
    explicit Inputs(StableIValue* s) : x(s[0]), positions(s[1]), factors(s[2]) {}
    const AtenTensorHandle* factors_or_null() const { return factors.get_or_null(); }
};

void* data_of(AtenTensorHandle h) {
    void* data;
    check(aoti_torch_get_data_ptr(h, &data));
    return data;
}

// From whatever layout x has; in place, where nothing can be copied, the C library says what it needs.
void run_readable(AtenTensorHandle x, AtenTensorHandle positions, const AtenTensorHandle* factors, const Attributes& a,
                  AtenTensorHandle out) {
    if (!needs_copy(x) || data_of(x) == data_of(out))
        return run(x, positions, factors, a.params, a.forward, a.angle, out);
    AtenTensorHandle same;
    check(aoti_torch_new_tensor_handle(x, &same));
    Tensor copy = torch::stable::contiguous(Tensor(same));
    run(copy.get(), positions, factors, a.params, a.forward, a.angle, out);
}

void run_readable(const Inputs& in, const Attributes& a, AtenTensorHandle out) {
    run_readable(in.x.get(), in.positions.get(), in.factors_or_null(), a, out);
}

// rope(x, positions, freq_factors, *, attributes) -> Tensor
void rope(StableIValue* stack, uint64_t, uint64_t) {
    Inputs in(stack);
    Attributes a = read_attributes(stack + 3);
    Owned result = empty_contiguous(in.x.get());
    run_readable(in, a, result.get());
    stack[0] = torch::stable::detail::from(result.release());
}

// rope_(Tensor(a!) x, positions, freq_factors, *, attributes) -> ()
void rope_inplace(StableIValue* stack, uint64_t, uint64_t) {
    Inputs in(stack);
    Attributes a = read_attributes(stack + 3);
    run(in.x.get(), in.positions.get(), in.factors_or_null(), a.params, a.forward, a.angle, in.x.get());
}

// rope_out(x, positions, freq_factors, *, attributes, Tensor(a!) out) -> ()
void rope_out(StableIValue* stack, uint64_t, uint64_t) {
    Inputs in(stack);
    Owned out(stack[16]);
    run_readable(in, read_attributes(stack + 3), out.get());
}

Attributes unpack(AtenTensorHandle packed) {
    struct {
        npu_rope_params params;
        int32_t forward, angle;
    } p;
    int64_t ndim, *sizes, *strides;
    check(aoti_torch_get_dim(packed, &ndim));
    check(aoti_torch_get_sizes(packed, &sizes));
    check(aoti_torch_get_strides(packed, &strides));
    if (ndim != 1 || sizes[0] != int64_t{sizeof p} || strides[0] != 1)
        throw std::runtime_error("[rope] packed must be the " + std::to_string(sizeof p) +
                                 " contiguous bytes of packed_call but got another tensor.");
    std::memcpy(&p, data_of(packed), sizeof p);
    return {p.params, p.forward != 0, p.angle};
}

// rope_packed_(Tensor(a!) out, Tensor? x, positions, Tensor packed, Tensor? freq_factors) -> (): packed
// holds the attributes as npu_rope_params followed by forward and angle as int32 (uint8). Without x
// the call is in place: handing torch the same tensor twice would cost a tenth of a decode step.
void rope_packed(StableIValue* stack, uint64_t, uint64_t) {
    Owned out(stack[0]), positions(stack[2]), packed(stack[3]);
    Optional x(stack[1]), factors(stack[4]);
    const Attributes a = unpack(packed.get());
    if (x.get())
        run_readable(x.get(), positions.get(), factors.get_or_null(), a, out.get());
    else
        run(out.get(), positions.get(), factors.get_or_null(), a.params, a.forward, a.angle, out.get());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(npu_rope, CPU, m) {
    m.impl("rope", &rope);
    m.impl("rope_", &rope_inplace);
    m.impl("rope_out", &rope_out);
    m.impl("rope_packed_", &rope_packed);
}
