// qk_square_sums in CANN: the sums of the squares of each token's queries and keys, over the heads. aclnn takes no
// tensor without elements: if q or k has no heads, the call passes the other one twice, and the attribute has_q or
// has_k is false.
#include "op_host/cann.h"
#include "op_host/qk_square_sums_tiling.h"

namespace optiling {

using namespace npu_rope;

static const Types kSquareSumsTypes = {ge::DT_FLOAT16, ge::DT_BF16, ge::DT_FLOAT};

static const Parameters kQkSquareSumsParameters = {
    {"q", kInput, kSquareSumsTypes},
    {"k", kInput, kSquareSumsTypes},
    {"out", kOutput, Types(3, ge::DT_FLOAT)},
};

// Whether q and k have heads.
struct SquareSumsGiven {
    bool q = true, k = true;
};

// Lists the attributes. A: AttributeAdder or CannCall.
template <typename A>
static SquareSumsGiven square_sums_attributes(A* a) {
    SquareSumsGiven given;
    a->optional("has_q", &given.q);
    a->optional("has_k", &given.k);
    a->strides();
    return given;
}

static void declare_square_sums_attributes(AttributeAdder* adder) { square_sums_attributes(adder); }

static Check tile_square_sums(gert::TilingContext* context) {
    constexpr const char* op = "qk_square_sums";
    CannCall call(op, context);
    const SquareSumsGiven given = square_sums_attributes(&call);
    Tensors t;
    if (Check c = call.tensors(kQkSquareSumsParameters, &t); !c.ok()) return c;
    npu_rope_tensor q = *t[0], k = *t[1];
    if (!given.q && q.ndim > 1) q.shape[1] = 0;
    if (!given.k && k.ndim > 1) k.shape[1] = 0;
    Platform platform = {};
    if (Check c = platform_from_cann(op, *context, &platform); !c.ok()) return c;
    TilingResult<QkSquareSumsTilingData> tiled;
    if (Check c = check_and_tile_qk_square_sums({&q, &k, t[2], Known::kLayout}, platform, &tiled); !c.ok()) return c;
    if (!tiled.has_elements()) return empty_tensor_error(op, "q", *t[0]);
    return pass_to_cann(op, context, tiled);
}

static ge::graphStatus NpuQkSquareSumsTiling(gert::TilingContext* context) {
    return report_to_cann(tile_square_sums(context));
}

}  // namespace optiling

namespace ge {

static ge::graphStatus NpuQkSquareSumsInferShape(gert::InferShapeContext* context) {
    const gert::Shape* q = context->GetRequiredInputShape(0);
    gert::Shape* out = context->GetOutputShape(0);
    if (q == nullptr || out == nullptr || q->GetDimNum() == 0) return ge::GRAPH_FAILED;
    *out = gert::Shape({q->GetDim(0), 2});
    return ge::GRAPH_SUCCESS;
}

static ge::graphStatus NpuQkSquareSumsInferDataType(gert::InferDataTypeContext* context) {
    return context->SetOutputDataType(0, ge::DT_FLOAT);
}

}  // namespace ge

namespace ops {

class NpuQkSquareSums : public OpDef {
public:
    explicit NpuQkSquareSums(const char* name) : OpDef(name) {
        npu_rope::define(this, optiling::kQkSquareSumsParameters, optiling::declare_square_sums_attributes,
                         optiling::NpuQkSquareSumsTiling);
        this->SetInferShape(ge::NpuQkSquareSumsInferShape).SetInferDataType(ge::NpuQkSquareSumsInferDataType);
    }
};

OP_ADD(NpuQkSquareSums);

}  // namespace ops
