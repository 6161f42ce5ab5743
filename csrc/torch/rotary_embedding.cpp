// rotary_embedding for CPU tensors, through torch's stable ABI. Schema, fake and gradient are in
// npu_rope/ops/rotary.py; this is the kernel.
#include "csrc/torch/rotary_call.h"

namespace {

using namespace npu_rope;

// X, cos_cache, sin_cache and position_ids, the first arguments of the schemas, and the attributes.
class Call {
public:
    Call(const StableIValue* stack, const StableIValue* attributes)
        : x(stack[0]), cos_(stack[1]), sin_(stack[2]), position_ids_(stack[3]), attributes_(attributes) {}

    void run(AtenTensorHandle out) const {
        const Readable tx(x.get(), out), tcos(cos_.get(), out), tsin(sin_.get(), out);
        const npu_rope_tensor to = view_of(out);
        raise_on(npu_rope_rotary_embedding(tx.get(), tcos.get(), tsin.get(), Given(position_ids_).get(),
                                           attributes_.interleaved, attributes_.first, attributes_.second,
                                           attributes_.forward, &to));
    }

    Owned x;

private:
    Owned cos_, sin_;
    Optional position_ids_;
    RotaryAttributes attributes_;
};

// rotary_embedding(X, cos_cache, sin_cache, position_ids, attributes)
void rotary_embedding(StableIValue* stack, uint64_t, uint64_t) {
    const Call call(stack, stack + 4);
    Owned out = empty_contiguous(call.x.get());
    call.run(out.get());
    stack[0] = torch::stable::detail::from(out.release());
}

// rotary_embedding_out(X, cos_cache, sin_cache, position_ids, Y, attributes)
void rotary_embedding_out(StableIValue* stack, uint64_t, uint64_t) {
    const Call call(stack, stack + 5);
    const Owned out(stack[4]);
    call.run(out.get());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(npu_rope, CPU, m) {
    m.impl("rotary_embedding", &rotary_embedding);
    m.impl("rotary_embedding_out", &rotary_embedding_out);
}
