#include "op_host/cann.h"

#include <algorithm>

#include "tiling/platform/platform_ascendc.h"

// CANN's base/alog_pub.h has the same declaration. The symbol is weak: it is NULL if CANN's log library is absent.
extern "C" __attribute__((weak, format(printf, 4, 5))) int32_t AlogRecord(uint32_t module, uint32_t log_type,
                                                                          int32_t level, const char* format, ...);

// The SoCs of the definitions, for messages.
#ifdef NPU_ROPE_ASCEND950
#define kSocs "Ascend910B, Ascend910_93, Ascend950 or Ascend310P"
#else
#define kSocs "Ascend910B, Ascend910_93 or Ascend310P"
#endif

namespace npu_rope {
namespace {

bool is_output(const Parameter& p) { return p.kind == kOutput || p.kind == kOptionalOutput; }
bool is_optional(const Parameter& p) {
    return p.kind == kOptionalInput || p.kind == kOptionalContiguousInput || p.kind == kOptionalOutput;
}

}  // namespace

int32_t dtype_from_cann(ge::DataType type) {
    // The types have the order of npu_rope_dtype.
    constexpr ge::DataType kTypes[] = {ge::DT_FLOAT, ge::DT_FLOAT16, ge::DT_BF16, ge::DT_DOUBLE,
                                       ge::DT_INT32, ge::DT_INT64,   ge::DT_INT8};
    const auto* found = std::find(std::begin(kTypes), std::end(kTypes), type);
    return found == std::end(kTypes) ? -1 : static_cast<int32_t>(found - kTypes);
}

npu_rope_tensor tensor_from_cann(const gert::StorageShape& shape, const gert::CompileTimeTensorDesc& desc) {
    const gert::Shape& sizes = shape.GetOriginShape();
    npu_rope_tensor t = {};
    t.dtype = dtype_from_cann(desc.GetDataType());
    t.ndim = static_cast<int32_t>(sizes.GetDimNum());
    size_t dims = sizes.GetDimNum() < NPU_ROPE_MAX_NDIM ? sizes.GetDimNum() : NPU_ROPE_MAX_NDIM;
    int64_t step = 1;
    for (size_t d = dims; d-- > 0;) {
        t.shape[d] = sizes.GetDim(d);
        t.stride[d] = step;
        if (__builtin_mul_overflow(step, t.shape[d], &step)) step = INT64_MAX;
    }
    return t;
}

CannCall::CannCall(const char* op, gert::TilingContext* context)
    : op_(op), context_(context), attrs_(context == nullptr ? nullptr : context->GetAttrs()) {
    if (attrs_ == nullptr) check_ = missing_from_cann(op_, "attributes");
}

void CannCall::keep_first_error(Check check) {
    if (check_.ok()) check_ = std::move(check);
}

template <typename T, typename Value>
void CannCall::read(const char* name, Value* value) {
    const T* given = attrs_ == nullptr ? nullptr : attrs_->GetAttrPointer<T>(attribute_++);
    if (given == nullptr) return keep_first_error(missing_from_cann(op_, name, "be an attribute of the node"));
    *value = *given;
}

void CannCall::set_int32(const char* name, int64_t wide, int32_t* value) {
    *value = static_cast<int32_t>(wide);
    if (*value != wide) keep_first_error(bad_value(op_, name, "be in the int32 range", std::to_string(wide)));
}

void CannCall::required(const char* name, int32_t* value) {
    int64_t wide = *value;
    read<int64_t>(name, &wide);
    set_int32(name, wide, value);
}

void CannCall::optional(const char* name, int64_t* value) { read<int64_t>(name, value); }
void CannCall::optional(const char* name, bool* value) { read<bool>(name, value); }
void CannCall::optional(const char* name, double* value) { read<float>(name, value); }

void CannCall::optional(const char* name, int32_t (*value)[4]) {
    const auto* list = attrs_ == nullptr ? nullptr : attrs_->GetListInt(attribute_++);
    const size_t count = list == nullptr ? 0 : list->GetSize();
    if (count != 0 && count != 4)
        return keep_first_error(bad_value(op_, name, "be four integers >= 0", formatted("%zu integers", count)));
    for (size_t i = 0; i < count; ++i) set_int32(name, list->GetData()[i], &(*value)[i]);
}

// The default [0] means that every tensor is contiguous. An empty list, which a graph may pass, means the same. The
// strides of a call are never a single number, because every operator has at least two tensors with at least one
// dimension each.
void CannCall::strides() {
    const auto* strides = attrs_ == nullptr ? nullptr : attrs_->GetListInt(attribute_++);
    const size_t count = strides == nullptr ? 0 : strides->GetSize();
    const bool contiguous = count == 0 || (count == 1 && *strides->GetData() == 0);
    if (!contiguous) strides_.assign(strides->GetData(), strides->GetData() + count);
}

Check CannCall::tensors(const Parameters& parameters, Tensors* tensors) {
    if (attrs_ == nullptr) return check_;
    size_t inputs = 0, outputs = 0;
    for (const Parameter& p : parameters) {
        // An output with the name of an input is the same tensor as the input.
        auto is_same_input = [&](const Parameter& q) { return &q < &p && std::strcmp(q.name, p.name) == 0; };
        if (std::any_of(parameters.begin(), parameters.end(), is_same_input)) continue;
        const size_t index = is_output(p) ? outputs++ : inputs++;
        const gert::StorageShape* shape = is_output(p)     ? context_->GetOutputShape(index)
                                          : is_optional(p) ? context_->GetOptionalInputShape(index)
                                                           : context_->GetRequiredInputShape(index);
        const gert::CompileTimeTensorDesc* desc = is_output(p)     ? context_->GetOutputDesc(index)
                                                  : is_optional(p) ? context_->GetOptionalInputDesc(index)
                                                                   : context_->GetRequiredInputDesc(index);
        tensors->push_back(nullptr);
        if (shape == nullptr || desc == nullptr) continue;
        npu_rope_tensor* t = &tensors_[tensors->size() - 1];
        *t = tensor_from_cann(*shape, *desc);
        tensors->back() = t;
        if (p.kind != kContiguousInput && p.kind != kOptionalContiguousInput) read_strides(t);
    }
    if (check_.ok() && !strides_.empty() && next_stride_ != strides_.size())
        return bad_value(op_, "strides",
                         formatted("be empty, [0] or the strides of all %zu dimensions of the tensors", next_stride_),
                         formatted("%zu numbers", strides_.size()));
    return check_;
}

void CannCall::read_strides(npu_rope_tensor* t) {
    if (strides_.empty()) return;
    const auto dims = static_cast<size_t>(t->ndim);
    for (size_t d = 0; d < dims && d < NPU_ROPE_MAX_NDIM && next_stride_ + d < strides_.size(); ++d)
        t->stride[d] = strides_[next_stride_ + d];
    next_stride_ += dims;
}

Check platform_from_cann(const char* op, const gert::TilingContext& context, Platform* platform) {
    if (context.GetPlatformInfo() == nullptr) return missing_from_cann(op, "platform");
    platform_ascendc::PlatformAscendC chip(context.GetPlatformInfo());
    switch (chip.GetSocVersion()) {
        case platform_ascendc::SocVersion::ASCEND910B:  // and Ascend910_93
            *platform = {"Ascend910B", kArch910b, 0, 0};
            break;
        case platform_ascendc::SocVersion::ASCEND310P:
            *platform = {"Ascend310P", kArch310p, 0, 0};
            break;
#ifdef NPU_ROPE_ASCEND950
        case platform_ascendc::SocVersion::ASCEND950:
            *platform = {"Ascend950", kArch950, 0, 0};
            break;
#endif
        default:
            return bad_value(op, "soc", "be " kSocs, "another");
    }
    uint64_t ub_bytes = 0;
    chip.GetCoreMemSize(platform_ascendc::CoreMemType::UB, ub_bytes);
    platform->cores = static_cast<int32_t>(chip.GetCoreNumAiv());
    platform->ub_bytes = static_cast<int64_t>(ub_bytes);
    return {};
}

Check missing_from_cann(const char* op, const char* what, const char* rule) {
    return internal_error(op, what, rule, "none");
}

ops::OpAICoreConfig& tile_at_run_time(ops::OpAICoreConfig* config) {
    return config->DynamicCompileStaticFlag(false)
        .DynamicFormatFlag(true)
        .DynamicRankSupportFlag(true)
        .DynamicShapeSupportFlag(true)
        .NeedCheckSupportFlag(false)
        .PrecisionReduceFlag(true);
}

Check empty_tensor_error(const char* op, const char* name, const npu_rope_tensor& t) {
    return bad_value(op, name, "have elements on an NPU", "shape " + shape_text(t.shape, t.ndim));
}

static Check not_set_in_cann(const char* op, const char* what) {
    return internal_error(op, what, "be accepted by CANN's tiling context", "an error");
}

Check pass_to_cann(const char* op, gert::TilingContext* context, const void* data, size_t bytes, void* tiling_memory,
                   const KernelLaunch& launch) {
    if (tiling_memory == nullptr) {
        const gert::TilingData* tiling = context->GetRawTilingData();
        const size_t capacity = tiling == nullptr ? 0 : tiling->GetCapacity();
        return internal_error(op, "the capacity of CANN's tiling data", formatted("be at least %zu bytes", bytes),
                              formatted("%zu", capacity));
    }
    std::memcpy(tiling_memory, data, bytes);
    size_t* workspaces = context->GetWorkspaceSizes(1);
    if (workspaces == nullptr) return missing_from_cann(op, "a workspace");
    platform_ascendc::PlatformAscendC chip(context->GetPlatformInfo());
    workspaces[0] = static_cast<size_t>(launch.workspace_bytes) + chip.GetLibApiWorkSpaceSize();
    if (context->SetBlockDim(launch.block_dim) != ge::GRAPH_SUCCESS) return not_set_in_cann(op, "block count");
    if (context->SetTilingKey(launch.tiling_key) != ge::GRAPH_SUCCESS) return not_set_in_cann(op, "tiling key");
    constexpr uint32_t kBatchMode = 1;  // a launch begins when all of its cores are free
    if (launch.cores_wait && context->SetScheduleMode(kBatchMode) != ge::GRAPH_SUCCESS)
        return not_set_in_cann(op, "schedule mode");
    return {};
}

namespace {

// Adds a parameter to a definition or to an SoC's configuration.
template <typename Owner>
void add_parameter(Owner* owner, const Parameter& p, const Types& types) {
    ops::OpParamDef& added = is_output(p) ? owner->Output(p.name) : owner->Input(p.name);
    added.ParamType(is_optional(p) ? ops::OPTIONAL : ops::REQUIRED).DataType(types).FormatList({ge::FORMAT_ND});
    if (p.kind == kContiguousInput || p.kind == kOptionalContiguousInput) {
        added.AutoContiguous();
    } else if (!is_output(p)) {
        added.IgnoreContiguous();
    }
}

// The indices of the columns that the chips of this architecture support.
std::vector<size_t> columns_of(int32_t arch, const Parameters& parameters) {
    std::vector<size_t> columns;
    for (size_t k = 0; k < parameters.front().types.size(); ++k) {
        bool has_bf16 = false;
        for (const Parameter& p : parameters) has_bf16 |= p.types[k] == ge::DT_BF16;
        if (!has_bf16 || has_bfloat16(arch)) columns.push_back(k);
    }
    return columns;
}

}  // namespace

void define(ops::OpDef* def, const Parameters& parameters, void (*attributes)(AttributeAdder*),
            gert::OpImplRegisterV2::TilingKernelFunc tiling) {
    for (const Parameter& p : parameters) add_parameter(def, p, p.types);
    AttributeAdder adder(def);
    attributes(&adder);
    def->AICore().SetTiling(tiling);
    ops::OpAICoreConfig config_910b, config_310p;
    def->AICore().AddConfig("ascend910b", tile_at_run_time(&config_910b));
    def->AICore().AddConfig("ascend910_93", config_910b);
#ifdef NPU_ROPE_ASCEND950
    def->AICore().AddConfig("ascend950", config_910b);
#endif
    const std::vector<size_t> columns = columns_of(kArch310p, parameters);
    for (const Parameter& p : parameters) {
        Types types;
        for (size_t k : columns) types.push_back(p.types[k]);
        add_parameter(&config_310p, p, types);
    }
    def->AICore().AddConfig("ascend310p", tile_at_run_time(&config_310p));
}

ge::graphStatus report_to_cann(const Check& check) {
    if (check.ok()) return ge::GRAPH_SUCCESS;
    constexpr uint32_t kModuleOp = 63, kDebugLog = 0;
    constexpr int32_t kError = 3;
    if (AlogRecord != nullptr) AlogRecord(kModuleOp, kDebugLog, kError, "%s", check.message().c_str());
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
