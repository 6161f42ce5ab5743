#include "op_host/cann.h"

#include "tiling/platform/platform_ascendc.h"

// Declared in base/alog_pub.h of CANN, weak as in that header: NULL where CANN's log library is absent.
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

void add_strides_attribute(ops::OpDef* def) { def->Attr("strides").AttrType(ops::OPTIONAL).ListInt({0}); }

// A graph may still pass an empty list, which has the meaning of one 0. One 0 cannot be the strides of a call, because
// every operator has at least two tensors with at least one dimension each.
Check CannCall::begin(size_t strides_attribute) {
    attrs_ = context_->GetAttrs();
    if (attrs_ == nullptr) return missing_from_cann(op_, "attributes");
    const auto* strides = attrs_->GetListInt(strides_attribute);
    size_t count = strides == nullptr ? 0 : strides->GetSize();
    const bool contiguous = count == 0 || (count == 1 && *strides->GetData() == 0);
    if (!contiguous) strides_.assign(strides->GetData(), strides->GetData() + count);
    return {};
}

Check CannCall::read(size_t index, const char* name, int64_t* value) const {
    const int64_t* given = attrs_->GetInt(index);
    if (given == nullptr) return missing_from_cann(op_, name);
    *value = *given;
    return {};
}

Check CannCall::read(size_t index, const char* name, int32_t* value) const {
    int64_t wide = 0;
    if (Check c = read(index, name, &wide); !c.ok()) return c;
    if (wide < INT32_MIN || wide > INT32_MAX)
        return bad_value(op_, name, "be in the int32 range", std::to_string(wide));
    *value = static_cast<int32_t>(wide);
    return {};
}

Check CannCall::read(size_t index, const char* name, double* value) const {
    const float* given = attrs_->GetFloat(index);
    if (given == nullptr) return missing_from_cann(op_, name);
    *value = *given;
    return {};
}

Check CannCall::read(size_t index, const char* name, bool* value) const {
    const bool* given = attrs_->GetBool(index);
    if (given == nullptr) return missing_from_cann(op_, name);
    *value = *given;
    return {};
}

const npu_rope_tensor* CannCall::input(size_t index) {
    return tensor(context_->GetRequiredInputShape(index), context_->GetRequiredInputDesc(index), true);
}

const npu_rope_tensor* CannCall::contiguous_input(size_t index) {
    return tensor(context_->GetRequiredInputShape(index), context_->GetRequiredInputDesc(index), false);
}

const npu_rope_tensor* CannCall::optional_view(size_t index) {
    return tensor(context_->GetOptionalInputShape(index), context_->GetOptionalInputDesc(index), true);
}

const npu_rope_tensor* CannCall::optional_contiguous(size_t index) {
    return tensor(context_->GetOptionalInputShape(index), context_->GetOptionalInputDesc(index), false);
}

const npu_rope_tensor* CannCall::output(size_t index) {
    return tensor(context_->GetOutputShape(index), context_->GetOutputDesc(index), true);
}

Check CannCall::end() const {
    if (strides_.empty() || strides_at_ == strides_.size()) return {};
    return bad_value(op_, "strides",
                     formatted("be [0] or the strides of all %zu dimensions of the tensors", strides_at_),
                     formatted("%zu numbers", strides_.size()));
}

const npu_rope_tensor* CannCall::tensor(const gert::StorageShape* shape, const gert::CompileTimeTensorDesc* desc,
                                        bool may_be_view) {
    if (shape == nullptr || desc == nullptr) return nullptr;
    npu_rope_tensor* t = &tensors_[tensor_count_++];
    *t = tensor_from_cann(*shape, *desc);
    if (!may_be_view || strides_.empty()) return t;
    auto dims = static_cast<size_t>(t->ndim);
    for (size_t d = 0; d < dims && d < NPU_ROPE_MAX_NDIM && strides_at_ + d < strides_.size(); ++d)
        t->stride[d] = strides_[strides_at_ + d];
    strides_at_ += dims;
    return t;
}

Check platform_from_cann(const char* op, const gert::TilingContext& context, Platform* platform) {
    if (context.GetPlatformInfo() == nullptr) return missing_from_cann(op, "platform");
    platform_ascendc::PlatformAscendC chip(context.GetPlatformInfo());
    switch (chip.GetSocVersion()) {
        case platform_ascendc::SocVersion::ASCEND910B:  // and Ascend910_93
            platform->arch = kArch910b;
            break;
        case platform_ascendc::SocVersion::ASCEND310P:
            platform->arch = kArch310p;
            break;
        default:
            return bad_value(op, "soc", "be Ascend910B, Ascend910_93 or Ascend310P", "another");
    }
    uint64_t ub_bytes = 0;
    chip.GetCoreMemSize(platform_ascendc::CoreMemType::UB, ub_bytes);
    platform->cores = static_cast<int32_t>(chip.GetCoreNumAiv());
    platform->ub_bytes = static_cast<int64_t>(ub_bytes);
    return {};
}

Check missing_from_cann(const char* op, const char* what) { return internal_error(op, what, "be there", "none"); }

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
    if (room == nullptr) return missing_from_cann(op, "room for the tiling data");
    std::memcpy(room, data, bytes);
    size_t* workspaces = context->GetWorkspaceSizes(1);
    if (workspaces == nullptr) return missing_from_cann(op, "a workspace");
    platform_ascendc::PlatformAscendC chip(context->GetPlatformInfo());
    workspaces[0] = static_cast<size_t>(workspace_bytes) + chip.GetLibApiWorkSpaceSize();
    if (context->SetBlockDim(block_dim) != ge::GRAPH_SUCCESS) return missing_from_cann(op, "a block count");
    if (context->SetTilingKey(tiling_key) != ge::GRAPH_SUCCESS) return missing_from_cann(op, "a tiling key");
    return {};
}

namespace {

// Adds a parameter to a definition or to a SoC's configuration.
template <typename Owner>
void add_parameter(Owner* owner, const Parameter& p, const Types& types) {
    const bool is_optional = p.kind == kOptionalInput || p.kind == kOptionalContiguousInput;
    ops::OpParamDef& added = p.kind == kOutput ? owner->Output(p.name) : owner->Input(p.name);
    added.ParamType(is_optional ? ops::OPTIONAL : ops::REQUIRED).DataType(types).FormatList({ge::FORMAT_ND});
    if (p.kind == kContiguousInput || p.kind == kOptionalContiguousInput) {
        added.AutoContiguous();
    } else if (p.kind != kOutput) {
        added.IgnoreContiguous();
    }
}

// The indices of the columns without bfloat16.
std::vector<size_t> columns_without_bfloat16(const std::vector<Parameter>& parameters) {
    std::vector<size_t> columns;
    for (size_t k = 0; k < parameters.front().types.size(); ++k) {
        bool has_bfloat16 = false;
        for (const Parameter& p : parameters) has_bfloat16 |= p.types[k] == ge::DT_BF16;
        if (!has_bfloat16) columns.push_back(k);
    }
    return columns;
}

}  // namespace

void add_parameters(ops::OpDef* def, const std::vector<Parameter>& parameters) {
    for (const Parameter& p : parameters) add_parameter(def, p, p.types);
}

void add_chips(ops::OpDef* def, const std::vector<Parameter>& parameters) {
    ops::OpAICoreConfig of_910b, of_310p;
    def->AICore().AddConfig("ascend910b", tile_at_run_time(&of_910b));
    def->AICore().AddConfig("ascend910_93", of_910b);
    const std::vector<size_t> columns = columns_without_bfloat16(parameters);
    for (const Parameter& p : parameters) {
        Types types;
        for (size_t k : columns) types.push_back(p.types[k]);
        add_parameter(&of_310p, p, types);
    }
    def->AICore().AddConfig("ascend310p", tile_at_run_time(&of_310p));
}

ge::graphStatus report_to_cann(const Check& check) {
    if (check.ok()) return ge::GRAPH_SUCCESS;
    log_to_cann(check.message());
    return ge::GRAPH_FAILED;
}

ge::graphStatus infer_shapes(gert::InferShapeContext* context, const std::vector<size_t>& inputs) {
    for (size_t k = 0; k < inputs.size(); ++k) {
        const gert::Shape* in = context->GetRequiredInputShape(inputs[k]);
        gert::Shape* out = context->GetOutputShape(k);
        if (in == nullptr || out == nullptr) return ge::GRAPH_FAILED;
        *out = *in;
    }
    return ge::GRAPH_SUCCESS;
}

ge::graphStatus infer_types(gert::InferDataTypeContext* context, const std::vector<size_t>& inputs) {
    for (size_t k = 0; k < inputs.size(); ++k) {
        ge::DataType type = context->GetRequiredInputDataType(inputs[k]);
        if (type == ge::DT_UNDEFINED) return ge::GRAPH_FAILED;
        if (context->SetOutputDataType(k, type) != ge::GRAPH_SUCCESS) return ge::GRAPH_FAILED;
    }
    return ge::GRAPH_SUCCESS;
}

}  // namespace npu_rope
