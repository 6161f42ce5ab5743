#include "op_host/cann.h"

#include "tiling/platform/platform_ascendc.h"

// base/alog_pub.h of CANN. Weak as in that header: without the library nothing is logged.
extern "C" __attribute__((weak, format(printf, 4, 5))) int32_t AlogRecord(uint32_t module, uint32_t log_type,
                                                                          int32_t level, const char* format, ...);

namespace npu_rope {

int32_t dtype_from_cann(ge::DataType type) {
    switch (type) {
        case ge::DT_FLOAT:
            return NPU_ROPE_FLOAT32;
        case ge::DT_FLOAT16:
            return NPU_ROPE_FLOAT16;
        case ge::DT_BF16:
            return NPU_ROPE_BFLOAT16;
        case ge::DT_DOUBLE:
            return NPU_ROPE_FLOAT64;
        case ge::DT_INT32:
            return NPU_ROPE_INT32;
        case ge::DT_INT64:
            return NPU_ROPE_INT64;
        default:
            return -1;
    }
}

npu_rope_tensor tensor_from_cann(const gert::StorageShape& shape, const gert::CompileTimeTensorDesc& desc) {
    const gert::Shape& sizes = shape.GetOriginShape();
    npu_rope_tensor t = {};
    t.dtype = dtype_from_cann(desc.GetDataType());
    t.ndim = static_cast<int32_t>(sizes.GetDimNum());
    size_t kept = sizes.GetDimNum() < NPU_ROPE_MAX_NDIM ? sizes.GetDimNum() : NPU_ROPE_MAX_NDIM;
    int64_t step = 1;
    for (size_t d = kept; d-- > 0;) {
        t.shape[d] = sizes.GetDim(d);
        t.stride[d] = step;
        if (__builtin_mul_overflow(step, t.shape[d], &step)) step = INT64_MAX;
    }
    return t;
}

Check platform_from_cann(const char* op, const gert::TilingContext& context, Platform* platform) {
    if (context.GetPlatformInfo() == nullptr) return nothing_of(op, "platform");
    platform_ascendc::PlatformAscendC chip(context.GetPlatformInfo());
    switch (chip.GetSocVersion()) {
        case platform_ascendc::SocVersion::ASCEND910B:  // and Ascend910_93
            platform->arch = kArch910b;
            break;
        case platform_ascendc::SocVersion::ASCEND310P:
            platform->arch = kArch310p;
            break;
        default:
            return bad_value(op, "soc must be Ascend910B, Ascend910_93 or Ascend310P but got another.");
    }
    uint64_t ub_bytes = 0;
    chip.GetCoreMemSize(platform_ascendc::CoreMemType::UB, ub_bytes);
    platform->cores = static_cast<int32_t>(chip.GetCoreNumAiv());
    platform->ub_bytes = static_cast<int64_t>(ub_bytes);
    return {};
}

Check nothing_of(const char* op, const char* what) {
    return {Check::kInternal, "[" + std::string(op) + "] " + what + " must be there but got none."};
}

void log_to_cann(const std::string& error) {
    constexpr uint32_t kModuleOp = 63, kDebugLog = 0;
    constexpr int32_t kError = 3;
    if (AlogRecord != nullptr) AlogRecord(kModuleOp, kDebugLog, kError, "%s", error.c_str());
}

ops::OpAICoreConfig& tile_at_run_time(ops::OpAICoreConfig* config) {
    return config->DynamicCompileStaticFlag(false)
        .DynamicFormatFlag(true)
        .DynamicRankSupportFlag(true)
        .DynamicShapeSupportFlag(true)
        .NeedCheckSupportFlag(false)
        .PrecisionReduceFlag(true);
}

Check hand_to_cann(const char* op, gert::TilingContext* context, const void* data, size_t bytes, void* room,
                   uint32_t block_dim, uint64_t tiling_key, int64_t workspace_bytes) {
    if (room == nullptr) return nothing_of(op, "room for the tiling data");
    std::memcpy(room, data, bytes);
    size_t* workspaces = context->GetWorkspaceSizes(1);
    if (workspaces == nullptr) return nothing_of(op, "a workspace");
    platform_ascendc::PlatformAscendC chip(context->GetPlatformInfo());
    workspaces[0] = static_cast<size_t>(workspace_bytes) + chip.GetLibApiWorkSpaceSize();
    if (context->SetBlockDim(block_dim) != ge::GRAPH_SUCCESS) return nothing_of(op, "a block count");
    if (context->SetTilingKey(tiling_key) != ge::GRAPH_SUCCESS) return nothing_of(op, "a tiling key");
    return {};
}

ge::graphStatus infer_shapes_of_inputs(gert::InferShapeContext* context, size_t first_input, size_t outputs) {
    for (size_t k = 0; k < outputs; ++k) {
        const gert::Shape* in = context->GetRequiredInputShape(first_input + k);
        gert::Shape* out = context->GetOutputShape(k);
        if (in == nullptr || out == nullptr) return ge::GRAPH_FAILED;
        *out = *in;
    }
    return ge::GRAPH_SUCCESS;
}

ge::graphStatus infer_types_of_inputs(gert::InferDataTypeContext* context, size_t first_input, size_t outputs) {
    for (size_t k = 0; k < outputs; ++k) {
        ge::DataType type = context->GetRequiredInputDataType(first_input + k);
        if (type == ge::DT_UNDEFINED) return ge::GRAPH_FAILED;
        if (context->SetOutputDataType(k, type) != ge::GRAPH_SUCCESS) return ge::GRAPH_FAILED;
    }
    return ge::GRAPH_SUCCESS;
}

}  // namespace npu_rope
