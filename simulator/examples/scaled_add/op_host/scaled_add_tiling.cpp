// The tiling of ScaledAdd: tiles that fill UB, on as many cores as there are tiles.
#include "scaled_add_tiling.h"

#include <algorithm>

#include "base/dlog_pub.h"
#include "register/op_impl_registry.h"
#include "tiling/platform/platform_ascendc.h"

#define OP_LOGE(context, format, ...) \
    DlogRecord(63, DLOG_ERROR, "[%s] " format, (context)->GetNodeName(), ##__VA_ARGS__)

namespace optiling {

constexpr uint32_t kAlignment = 32, kBuffers = 2;
constexpr size_t kScale = 0, kBias = 2;

static ge::graphStatus TilingParseForScaledAdd(gert::TilingParseContext* context) {
    auto* info = context->GetCompiledInfo<ScaledAddCompileInfo>();
    const platform_ascendc::PlatformAscendC platform(context->GetPlatformInfo());
    info->cores = platform.GetCoreNumAiv();
    platform.GetCoreMemSize(platform_ascendc::CoreMemType::UB, info->ubBytes);
    return ge::GRAPH_SUCCESS;
}

static ge::graphStatus TilingForScaledAdd(gert::TilingContext* context) {
    const auto* info = static_cast<const ScaledAddCompileInfo*>(context->GetCompileInfo());
    const gert::Shape& x = context->GetInputShape(0)->GetStorageShape();
    const gert::Shape& y = context->GetInputShape(1)->GetStorageShape();
    if (x != y) {
        OP_LOGE(context, "x and y must have equal shapes but have %lld and %lld elements.",
                static_cast<long long>(x.GetShapeSize()), static_cast<long long>(y.GetShapeSize()));
        return ge::GRAPH_FAILED;
    }
    const bool hasBias = context->GetOptionalInputTensor(kBias) != nullptr;
    const uint32_t typeBytes = context->GetInputDesc(0)->GetDataType() == ge::DT_FLOAT ? 4 : 2;
    const uint32_t tensors = hasBias ? 4 : 3;
    const uint64_t tileBytes = info->ubBytes / (tensors * kBuffers) / kAlignment * kAlignment;
    const int64_t elements = x.GetShapeSize();
    // Divide the elements among all cores. A tile has a multiple of 32 elements and fits into UB.
    // A queue has no buffers of 0 bytes, so an empty tensor has a tile, too.
    int64_t tile = (std::max<int64_t>(elements, 1) + info->cores - 1) / info->cores;
    tile = (tile + kAlignment - 1) / kAlignment * kAlignment;
    tile = std::min<int64_t>(tile, static_cast<int64_t>(tileBytes / typeBytes) / kAlignment * kAlignment);

    ScaledAddTilingData data;
    data.set_elements(elements);
    data.set_tileElements(static_cast<uint32_t>(tile));
    data.set_scale(*context->GetAttrs()->GetFloat(kScale));
    gert::TilingData* raw = context->GetRawTilingData();
    data.SaveToBuffer(raw->GetData(), raw->GetCapacity());
    raw->SetDataSize(data.GetDataSize());
    context->SetTilingKey(hasBias ? 1 : 0);
    const int64_t tiles = (elements + tile - 1) / tile;
    context->SetBlockDim(static_cast<uint32_t>(std::min<int64_t>(std::max<int64_t>(tiles, 1), info->cores)));
    context->GetWorkspaceSizes(1)[0] =
        platform_ascendc::PlatformAscendC(context->GetPlatformInfo()).GetLibApiWorkSpaceSize();
    return ge::GRAPH_SUCCESS;
}

IMPL_OP_OPTILING(ScaledAdd).Tiling(TilingForScaledAdd).TilingParse<ScaledAddCompileInfo>(TilingParseForScaledAdd);

}  // namespace optiling
