#include "op_host/rope_cann.h"

#include <vector>

#include "op_host/cann.h"
#include "op_host/rope_tiling.h"

namespace npu_rope {
namespace {

// Places of the attributes, as add_rope_attributes names them.
enum Attribute : size_t {
    kNDims,
    kMode,
    kNCtxOrig,
    kFreqBase,
    kFreqScale,
    kExtFactor,
    kAttnFactor,
    kBetaFast,
    kBetaSlow,
    kSections,
    kForward,
    kNOffs,
    kStrides,
};

// One call as CANN tells it, made into one as every native path tells it.
class Call {
public:
    Call(gert::TilingContext* context, RopeTensors tensors) : context_(context), t_(tensors) {}

    Check run() {
        attrs_ = context_->GetAttrs();
        if (attrs_ == nullptr) return missing("attributes");
        if (Check c = read_params(); !c.ok()) return c;
        if (Check c = read_tensors(); !c.ok()) return c;
        RopeShape shape;
        if (Check c = check_rope(t_, &params_, NPU_ROPE_ANGLE_EXACT, &shape); !c.ok()) return c;
        Platform platform = {};
        if (Check c = platform_from_cann(t_.op, *context_, &platform); !c.ok()) return c;
        if (shape.empty())
            return bad_value(t_.op, "%s must have elements on an NPU but got shape %s.", t_.x_name[0],
                             shape_text(t_.x[0]->shape, t_.x[0]->ndim).c_str());
        RopeTilingData data;
        RopeLaunch launch;
        if (Check c = rope_tiling(rope_tiling_input(t_, shape, params_, forward_), platform, &data, &launch); !c.ok())
            return c;
        return hand_to_cann(t_.op, context_, data, launch.block_dim, launch.tiling_key, launch.workspace_bytes);
    }

private:
    Check missing(const char* what) const { return nothing_of(t_.op, what); }

    Check read_int(Attribute index, const char* name, int32_t* value) const {
        const int64_t* given = attrs_->GetInt(index);
        if (given == nullptr) return missing(name);
        if (*given < INT32_MIN || *given > INT32_MAX)
            return bad_value(t_.op, "%s must be in the int32 range but got %lld.", name,
                             static_cast<long long>(*given));
        *value = static_cast<int32_t>(*given);
        return {};
    }

    Check read_params() {
        const struct {
            Attribute index;
            const char* name;
            int32_t* value;
        } integers[] = {{kNDims, "n_dims", &params_.n_dims},
                        {kMode, "mode", &params_.mode},
                        {kNCtxOrig, "n_ctx_orig", &params_.n_ctx_orig},
                        {kNOffs, "n_offs", &params_.n_offs}};
        for (const auto& i : integers)
            if (Check c = read_int(i.index, i.name, i.value); !c.ok()) return c;
        const struct {
            Attribute index;
            const char* name;
            double* value;
        } numbers[] = {
            {kFreqBase, "freq_base", &params_.freq_base},    {kFreqScale, "freq_scale", &params_.freq_scale},
            {kExtFactor, "ext_factor", &params_.ext_factor}, {kAttnFactor, "attn_factor", &params_.attn_factor},
            {kBetaFast, "beta_fast", &params_.beta_fast},    {kBetaSlow, "beta_slow", &params_.beta_slow}};
        for (const auto& n : numbers) {
            const float* given = attrs_->GetFloat(n.index);
            if (given == nullptr) return missing(n.name);
            *n.value = *given;
        }
        const bool* forward = attrs_->GetBool(kForward);
        if (forward == nullptr) return missing("forward");
        forward_ = *forward;
        return read_sections();
    }

    Check read_sections() {
        const auto* sections = attrs_->GetListInt(kSections);
        size_t count = sections == nullptr ? 0 : sections->GetSize();
        if (count == 0) return {};
        const int64_t* given = sections->GetData();
        if (count != 4) return bad_value(t_.op, "sections must be four numbers >= 0 but got %zu numbers.", count);
        for (size_t i = 0; i < count; ++i) {
            if (given[i] < INT32_MIN || given[i] > INT32_MAX)
                return bad_value(t_.op, "sections must be in the int32 range but got %lld.",
                                 static_cast<long long>(given[i]));
            params_.sections[i] = static_cast<int32_t>(given[i]);
        }
        return {};
    }

    // The tensors in the definition's order, which the three operators share.
    Check read_tensors() {
        t_.known = Known::kLayout;
        const auto* strides = attrs_->GetListInt(kStrides);
        size_t count = strides == nullptr ? 0 : strides->GetSize();
        if (count > 0) strides_.assign(strides->GetData(), strides->GetData() + count);
        size_t input = 0;
        for (int k = 0; k < t_.sides; ++k) t_.x[k] = read_input(input++);
        t_.positions = read_input(input++);
        if (t_.scatters) t_.rows = read_input(input++);
        t_.freq_factors = read_contiguous(input++);
        if (t_.scatters) t_.out[0] = read_input(input++);
        for (int k = 0; k < t_.sides && !t_.scatters; ++k) t_.out[k] = read_output(static_cast<size_t>(k));
        if (strides_.empty() || strides_at_ == strides_.size()) return {};
        return bad_value(t_.op, "strides must be empty or name the %zu dimensions of all tensors but got %zu numbers.",
                         strides_at_, strides_.size());
    }

    const npu_rope_tensor* read_input(size_t index) {
        return read(context_->GetRequiredInputShape(index), context_->GetRequiredInputDesc(index), true);
    }
    const npu_rope_tensor* read_contiguous(size_t index) {
        return read(context_->GetOptionalInputShape(index), context_->GetOptionalInputDesc(index), false);
    }
    const npu_rope_tensor* read_output(size_t index) {
        return read(context_->GetOutputShape(index), context_->GetOutputDesc(index), true);
    }

    const npu_rope_tensor* read(const gert::StorageShape* shape, const gert::CompileTimeTensorDesc* desc,
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

    gert::TilingContext* context_;
    const gert::RuntimeAttrs* attrs_ = nullptr;
    RopeTensors t_;
    npu_rope_params params_ = {};
    bool forward_ = true;
    std::vector<int64_t> strides_;
    size_t strides_at_ = 0;
    npu_rope_tensor tensors_[6];  // the most that one of the operators has
    size_t tensor_count_ = 0;
};

}  // namespace

void add_rope_attributes(ops::OpDef* def) {
    def->Attr("n_dims").AttrType(ops::REQUIRED).Int();
    def->Attr("mode").AttrType(ops::REQUIRED).Int();
    def->Attr("n_ctx_orig").AttrType(ops::OPTIONAL).Int(0);
    def->Attr("freq_base").AttrType(ops::OPTIONAL).Float(10000.0f);
    def->Attr("freq_scale").AttrType(ops::OPTIONAL).Float(1.0f);
    def->Attr("ext_factor").AttrType(ops::OPTIONAL).Float(0.0f);
    def->Attr("attn_factor").AttrType(ops::OPTIONAL).Float(1.0f);
    def->Attr("beta_fast").AttrType(ops::OPTIONAL).Float(32.0f);
    def->Attr("beta_slow").AttrType(ops::OPTIONAL).Float(1.0f);
    def->Attr("sections").AttrType(ops::OPTIONAL).ListInt({0, 0, 0, 0});
    def->Attr("forward").AttrType(ops::OPTIONAL).Bool(true);
    def->Attr("n_offs").AttrType(ops::OPTIONAL).Int(0);
    def->Attr("strides").AttrType(ops::OPTIONAL).ListInt({});
}

void add_rope_chips(ops::OpDef* def, ops::OpAICoreConfig* of_310p) {
    // The kernel reads its frequencies from the tiling data's address.
    ops::OpAICoreConfig of_910b;
    def->AICore().AddConfig("ascend910b", tile_at_run_time(&of_910b));
    def->AICore().AddConfig("ascend910_93", of_910b);
    def->AICore().AddConfig("ascend310p", tile_at_run_time(of_310p));
}

ge::graphStatus tile_rope(gert::TilingContext* context, RopeTensors tensors) {
    if (context == nullptr) return ge::GRAPH_FAILED;
    Check check = Call(context, tensors).run();
    if (check.ok()) return ge::GRAPH_SUCCESS;
    log_to_cann(check.message);
    return ge::GRAPH_FAILED;
}

}  // namespace npu_rope
