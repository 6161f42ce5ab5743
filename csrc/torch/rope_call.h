// Shared parts of all registrations: rope's attributes, as in a schema or packed, and tensors in any layout. The
// kernels are boxed and unpack each argument themselves, because a decode-sized call spends most of its time on the
// handling of its arguments.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/core/packed_attributes.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/tensor_view.h"
#include "include/npu_rope.h"

namespace npu_rope {

// The attributes after "*" in the operators' schemas, in their order.
using Attributes = PackedRope;
// Numbers of arguments in a schema: those of `params`, and all attributes.
constexpr int kParams = 11, kAttributes = kParams + 2;

// An argument of type Tensor?.
class Optional {
public:
    explicit Optional(StableIValue v) {
        auto* box = torch::stable::detail::to<StableIValue*>(v);
        if (!box) return;
        handle_ = torch::stable::detail::to<AtenTensorHandle>(*box);
        delete box;
    }
    ~Optional() {
        if (handle_) aoti_torch_delete_tensor_object(handle_);
    }
    Optional(const Optional&) = delete;
    Optional& operator=(const Optional&) = delete;
    AtenTensorHandle get() const { return handle_; }

private:
    AtenTensorHandle handle_ = nullptr;
};

inline int32_t narrow(const char* name, int64_t v) {
    if (v < INT32_MIN || v > INT32_MAX) raise_on(bad_value("rope", name, "be in the int32 range", std::to_string(v)));
    return static_cast<int32_t>(v);
}

inline void read_sections(StableIValue v, int32_t* sections) {
    using torch::stable::detail::to;
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
    if (n != 4) raise_on(bad_value("rope", "sections", "be four integers >= 0", std::to_string(n) + " integers"));
    for (int i = 0; i < 4; ++i) sections[i] = narrow("sections", wide[i]);
}

// Reads the arguments from n_dims to n_offs.
inline npu_rope_params read_params(StableIValue* s) {
    using torch::stable::detail::to;
    npu_rope_params p;
    read_sections(s[9], p.sections);
    p.n_dims = narrow("n_dims", to<int64_t>(s[0]));
    p.mode = narrow("mode", to<int64_t>(s[1]));
    p.n_ctx_orig = narrow("n_ctx_orig", to<int64_t>(s[2]));
    p.freq_base = to<double>(s[3]);
    p.freq_scale = to<double>(s[4]);
    p.ext_factor = to<double>(s[5]);
    p.attn_factor = to<double>(s[6]);
    p.beta_fast = to<double>(s[7]);
    p.beta_slow = to<double>(s[8]);
    p.n_offs = narrow("n_offs", to<int64_t>(s[10]));
    return p;
}

inline int32_t read_angle(StableIValue v) { return narrow("angle", torch::stable::detail::to<int64_t>(v)); }

inline Attributes read_attributes(StableIValue* s) {
    return {read_params(s), torch::stable::detail::to<bool>(s[kParams]), read_angle(s[kParams + 1])};
}

inline void* data_of(AtenTensorHandle h) {
    void* data;
    check(aoti_torch_get_data_ptr(h, &data));
    return data;
}

// Reads a struct of attributes from a uint8 tensor.
template <typename Packed>
Packed unpack_as(const char* op, AtenTensorHandle packed) {
    static const int32_t uint8 = aoti_torch_dtype_uint8();
    Packed p;
    int32_t dtype;
    check(aoti_torch_get_dtype(packed, &dtype));
    const Dims s = dims_of(packed);
    const void* data = data_of(packed);
    if (dtype != uint8 || s.ndim != 1 || s.size[0] != int64_t{sizeof p} || s.stride[0] != 1 || !data)
        raise_on(bad_value(op, "packed", formatted("be the %zu contiguous bytes of packed_call", sizeof p),
                           "another tensor"));
    std::memcpy(&p, data, sizeof p);
    return p;
}

// A tensor in the form that the C interface reads. The kernels read any layout with unit stride in the last dimension;
// a tensor with another layout is copied. A tensor at the output's address is not copied; the C library checks its
// layout. A tensor without an address is not copied: it is empty, or its memory was released, which the C library
// refuses.
class Readable {
public:
    Readable(AtenTensorHandle x, AtenTensorHandle out) : view_(view_of(x)) {
        if (x == out || has_unit_stride() || view_.data == nullptr || view_.data == data_of(out)) return;
        copy_ = torch::stable::contiguous(reference_to(x));
        view_ = view_of(copy_->get());
    }
    const npu_rope_tensor* get() const { return &view_; }

private:
    bool has_unit_stride() const {
        int32_t last = view_.ndim - 1;
        return last < 0 || last >= NPU_ROPE_MAX_NDIM || view_.shape[last] <= 1 || view_.stride[last] == 1;
    }

    npu_rope_tensor view_;
    std::optional<torch::stable::Tensor> copy_;
};

// A tensor that may be missing: freq_factors, position_ids.
class OptionalView {
public:
    explicit OptionalView(const Optional& t) : given_(t.get() != nullptr) {
        if (given_) view_ = view_of(t.get());
    }
    const npu_rope_tensor* get() const { return given_ ? &view_ : nullptr; }

private:
    bool given_;
    npu_rope_tensor view_;
};

// A new tensor with the sizes of `shaped` and the type of `typed`.
inline Owned empty_of(AtenTensorHandle shaped, AtenTensorHandle typed) {
    const Dims s = dims_of(shaped);
    int64_t few[NPU_ROPE_MAX_NDIM], *strides = few, step = 1;
    std::vector<int64_t> many;  // torch limits no number of dimensions
    if (s.ndim > NPU_ROPE_MAX_NDIM) {
        many.resize(static_cast<size_t>(s.ndim));
        strides = many.data();
    }
    for (int64_t k = s.ndim - 1; k >= 0; --k) {
        strides[k] = step;
        step *= s.size[k] > 1 ? s.size[k] : 1;
    }
    int32_t dtype, device, index;
    check(aoti_torch_get_dtype(typed, &dtype));
    check(aoti_torch_get_device_type(shaped, &device));
    check(aoti_torch_get_device_index(shaped, &index));
    return new_tensor(s.ndim, s.size, strides, dtype, device, index);
}

// A tensor to rotate, and its output, which is the same tensor in a call in place.
class Side {
public:
    Side(AtenTensorHandle x, AtenTensorHandle out) : out_handle(out), x_(x, out), is_in_place_(x == out) {
        if (!is_in_place_) out_ = view_of(out);
    }
    const npu_rope_tensor* x() const { return x_.get(); }
    const npu_rope_tensor* out() const { return is_in_place_ ? x_.get() : &out_; }
    const AtenTensorHandle out_handle;

private:
    Readable x_;
    bool is_in_place_;
    npu_rope_tensor out_;
};

// The boxed kernels of an operator whose first inputs, x, have an output each. Call(stack, attributes) reads kInputs
// inputs from the stack; run(outs...) computes. kOutsAt: the index of the outputs in the schema of the out variant,
// before the inputs, before the attributes or after them.
template <typename Call, typename Sides = std::make_index_sequence<Call::kSides>>
struct BoxedKernels;

template <typename Call, size_t... k>
struct BoxedKernels<Call, std::index_sequence<k...>> {
    static void functional(StableIValue* stack, uint64_t, uint64_t) {
        const Call call(stack, stack + Call::kInputs);
        std::array<Owned, Call::kSides> outs{empty_of(call.x[k].get(), call.x[k].get())...};
        call.run(outs[k].get()...);
        ((stack[k] = torch::stable::detail::from(outs[k].release())), ...);
    }

    static void inplace(StableIValue* stack, uint64_t, uint64_t) {
        const Call call(stack, stack + Call::kInputs);
        call.run(call.x[k].get()...);
    }

    static void out(StableIValue* stack, uint64_t, uint64_t) {
        const std::array<Owned, Call::kSides> outs{Owned(stack[Call::kOutsAt + k])...};
        StableIValue* inputs = stack + (Call::kOutsAt == 0 ? Call::kSides : 0);
        const Call call(inputs, inputs + Call::kInputs + (Call::kOutsAt == Call::kInputs ? Call::kSides : 0));
        call.run(outs[k].get()...);
    }
};

}  // namespace npu_rope
