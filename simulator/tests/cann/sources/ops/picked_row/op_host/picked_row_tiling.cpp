// The tiling of PickedRow: it reads the value of row, and chooses the kernel by template arguments.
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "../op_kernel/picked_row_key.h"
#include "../op_kernel/picked_row_tiling_data.h"
#include "failures.h"
#include "register/op_impl_registry.h"
#include "tiling/platform/platform_ascendc.h"

namespace optiling {

struct PickedRowCompileInfo {
    uint32_t parsed = 0;
};

static ge::graphStatus TilingParseForPickedRow(gert::TilingParseContext* context) {
    ++context->GetCompiledInfo<PickedRowCompileInfo>()->parsed;
    return ge::GRAPH_SUCCESS;
}

static ge::graphStatus TilingForPickedRow(gert::TilingContext* context) {
    const gert::RuntimeAttrs* attrs = context->GetAttrs();
    if (!Succeeds(context, attrs->GetStr(2))) return ge::GRAPH_FAILED;
    const gert::Shape& x = context->GetInputShape(0)->GetStorageShape();
    const int64_t plus = *attrs->GetInt(1);
    auto* data = context->GetTilingData<PickedRowTilingData>();
    data->row = context->GetInputTensor(1)->GetData<int64_t>()[0];
    data->columns = static_cast<uint32_t>(x.GetDim(1));
    data->plus = static_cast<int32_t>(plus);
    data->parsed = context->GetCompileInfo<PickedRowCompileInfo>()->parsed;
    data->deterministic = context->GetDeterministic();
    context->SetTilingKey(GET_TPL_TILING_KEY(plus == 0 ? PLUS_NOTHING : PLUS_NUMBER, *attrs->GetBool(0)));
    context->SetBlockDim(1);
    platform_ascendc::PlatformAscendC chip(context->GetPlatformInfo());
    context->GetWorkspaceSizes(1)[0] = chip.GetLibApiWorkSpaceSize() + 4096;
    return ge::GRAPH_SUCCESS;
}

IMPL_OP_OPTILING(PickedRow)
    .Tiling(TilingForPickedRow)
    .TilingParse<PickedRowCompileInfo>(TilingParseForPickedRow)
    .TilingInputsDataDependency({1});

}  // namespace optiling
