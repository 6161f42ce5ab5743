// Rotate heads by tables of cos and sin that the caller gives: rotary_mul, rotary_mul_qk and rotary_embedding.
#include "csrc/cpu/rotary.h"

#include "csrc/cpu/given_table.h"
#include "csrc/cpu/rotation.h"

namespace npu_rope {
namespace {

class GivenTokenTable;

// The tables that the caller gives: a TableSource of rotation.h.
struct GivenTables {
    using Table = GivenTokenTable;
    const char *cos, *sin;
    int32_t dtype;
    const void* position_ids;  // NULL, or the row of the tables for each token
    bool ids_are_int64;
    const RotaryShape& shape;
    bool forward;
};

given_table::Format format_of(const GivenTables& given, const RotationCall& call) {
    return {given.dtype,  given.shape.entry_per_lane,  given.forward, call.dtype,
            call.pairing, static_cast<int>(call.pairs)};
}

// The tables of one token, from GivenTables: the class Table of a TableSource.
class GivenTokenTable : public given_table::TokenTable {
public:
    struct Memory : TokenTable::Memory {
        Memory(const GivenTables& given, const RotationCall& call, PartMemory& memory)
            : TokenTable::Memory(format_of(given, call), memory) {}
    };

    GivenTokenTable(const GivenTables& given, const RotationCall& call, const RopeKernels& kernels,
                    const Memory& memory)
        : TokenTable(format_of(given, call), kernels, memory), given_(given) {}

    void begin_segment() {}

    void fill(int64_t b, int64_t s) {
        const RotaryShape& shape = given_.shape;
        if (given_.position_ids) {
            s = index_at(given_.position_ids, given_.ids_are_int64,
                         b * shape.rope.pos_stride[0] + s * shape.rope.pos_stride[1]);
            b = 0;
        }
        const int64_t item_bytes = dtype_bytes(given_.dtype);
        read({{given_.cos + (b * shape.cos_stride[0] + s * shape.cos_stride[1]) * item_bytes},
              {given_.sin + (b * shape.sin_stride[0] + s * shape.sin_stride[1]) * item_bytes}});
    }

private:
    const GivenTables& given_;
};

}  // namespace

Check run_rotary_cpu(const RotaryTensors& t, const RotaryAttributes& a, bool forward) {
    RotaryShape shape;
    if (Check c = check_rotary(t, a, &shape); !c.ok()) return c;
    const npu_rope_tensor* ids = t.position_ids;
    GivenTables given{static_cast<const char*>(t.cos->data),
                      static_cast<const char*>(t.sin->data),
                      t.cos->dtype,
                      ids ? ids->data : nullptr,
                      ids && ids->dtype == NPU_ROPE_INT64,
                      shape,
                      forward};
    RotationCall call{};
    for (int k = 0; k < t.sides; ++k) {
        call.x[k] = t.x[k]->data;
        call.out[k] = t.out[k]->data;
    }
    call.dtype = call.out_dtype = t.x[0]->dtype;
    call.pairing = a.interleaved ? kInterleaved : kHalfApart;
    call.offset = a.offset;
    call.pairs = shape.rotary_dim / 2;
    call.shape = shape.rope;
    rotate_all(given, call, rope_kernels_for(call.pairing, call.dtype, call.pairs));
    return {};
}

}  // namespace npu_rope
