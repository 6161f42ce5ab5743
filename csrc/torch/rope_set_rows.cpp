// rope_set_rows for CPU tensors, through torch's stable ABI. The schemas and fakes are in
// npu_rope/ops/rope_set_rows.py; this file has the kernels.
#include "csrc/torch/rope_call.h"

namespace {

using namespace npu_rope;

// x, positions, rows and the cache, the first arguments of every schema.
struct Inputs {
    Owned x, positions, rows, cache;
    explicit Inputs(StableIValue* s) : x(s[0]), positions(s[1]), rows(s[2]), cache(s[3]) {}
};

void run(const Inputs& in, const Optional& factors, const Attributes& a) {
    const Readable x(in.x.get(), in.cache.get());
    const npu_rope_tensor positions = view_of(in.positions.get()), rows = view_of(in.rows.get());
    const npu_rope_tensor cache = view_of(in.cache.get());
    raise_on(npu_rope_rope_set_rows(x.get(), &positions, &rows, OptionalView(factors).get(), &a.params, a.forward,
                                    a.angle, &cache));
}

// rope_set_rows(x, positions, rows, cache, freq_factors, attributes)
void rope_set_rows(StableIValue* stack, uint64_t, uint64_t) {
    Inputs in(stack);
    Optional factors(stack[4]);
    run(in, factors, read_attributes(stack + 5));
}

// rope_set_rows_packed_(x, positions, rows, cache, packed, freq_factors)
void rope_set_rows_packed(StableIValue* stack, uint64_t, uint64_t) {
    Inputs in(stack);
    Owned packed(stack[4]);
    Optional factors(stack[5]);
    run(in, factors, unpack_as<Attributes>("rope_set_rows", packed.get()));
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(npu_rope, CPU, m) {
    m.impl("rope_set_rows", &rope_set_rows);
    m.impl("rope_set_rows_packed_", &rope_set_rows_packed);
}
