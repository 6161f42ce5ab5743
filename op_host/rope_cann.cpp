#include "op_host/rope_cann.h"

#include "op_host/cann.h"
#include "op_host/rope_tiling.h"

namespace npu_rope {
namespace {

using Attribute = RopeAttribute;

Check read_sections(const CannCall& call, const char* op, int32_t* sections) {
    const auto* given_list = call.attributes().GetListInt(kSections);
    size_t count = given_list == nullptr ? 0 : given_list->GetSize();
    if (count == 0) return {};
    const int64_t* given = given_list->GetData();
    if (count != 4) return bad_value(op, "sections", "be four numbers >= 0", formatted("%zu numbers", count));
    for (size_t i = 0; i < count; ++i) {
        if (given[i] < INT32_MIN || given[i] > INT32_MAX)
            return bad_value(op, "sections", "be in the int32 range", std::to_string(given[i]));
        sections[i] = static_cast<int32_t>(given[i]);
    }
    return {};
}

// Converts a call from CANN's form to the form of all native paths.
class Call {
public:
    Call(gert::TilingContext* context, RopeTensors tensors)
        : context_(context), call_(tensors.op, context), t_(tensors) {}

    Check run() {
        if (Check c = call_.begin(kStrides); !c.ok()) return c;
        if (Check c = read_rope_attributes(call_, t_.op, &params_, &forward_); !c.ok()) return c;
        if (Check c = read_tensors(); !c.ok()) return c;
        RopeShape shape;
        if (Check c = check_rope(t_, &params_, NPU_ROPE_ANGLE_EXACT, &shape); !c.ok()) return c;
        Platform platform = {};
        if (Check c = platform_from_cann(t_.op, *context_, &platform); !c.ok()) return c;
        if (shape.empty()) return no_elements(t_);
        RopeTilingData data;
        RopeLaunch launch;
        if (Check c = rope_tiling(rope_tiling_input(t_, shape, params_, forward_), platform, &data, &launch); !c.ok())
            return c;
        return hand_to_cann(t_.op, context_, data, launch.block_dim, launch.tiling_key, launch.workspace_bytes);
    }

private:
    // Reads the tensors in the definition's order, which the three operators share.
    Check read_tensors() {
        t_.known = Known::kLayout;
        size_t input = 0;
        for (int k = 0; k < t_.sides; ++k) t_.x[k] = call_.input(input++);
        t_.positions = call_.input(input++);
        if (t_.scatters) t_.rows = call_.input(input++);
        t_.freq_factors = call_.optional_contiguous(input++);
        if (t_.scatters) t_.out[0] = call_.input(input++);
        for (int k = 0; k < t_.sides && !t_.scatters; ++k) t_.out[k] = call_.output(static_cast<size_t>(k));
        return call_.end();
    }

    gert::TilingContext* context_;
    CannCall call_;
    RopeTensors t_;
    npu_rope_params params_ = {};
    bool forward_ = true;
};

}  // namespace

Check read_rope_attributes(const CannCall& call, const char* op, npu_rope_params* params, bool* forward) {
    const struct {
        Attribute index;
        const char* name;
        int32_t* value;
    } integers[] = {{kNDims, "n_dims", &params->n_dims},
                    {kMode, "mode", &params->mode},
                    {kNCtxOrig, "n_ctx_orig", &params->n_ctx_orig},
                    {kNOffs, "n_offs", &params->n_offs}};
    for (const auto& i : integers)
        if (Check c = call.read(i.index, i.name, i.value); !c.ok()) return c;
    const struct {
        Attribute index;
        const char* name;
        double* value;
    } numbers[] = {{kFreqBase, "freq_base", &params->freq_base},    {kFreqScale, "freq_scale", &params->freq_scale},
                   {kExtFactor, "ext_factor", &params->ext_factor}, {kAttnFactor, "attn_factor", &params->attn_factor},
                   {kBetaFast, "beta_fast", &params->beta_fast},    {kBetaSlow, "beta_slow", &params->beta_slow}};
    for (const auto& n : numbers)
        if (Check c = call.read(n.index, n.name, n.value); !c.ok()) return c;
    if (Check c = call.read(kForward, "forward", forward); !c.ok()) return c;
    return read_sections(call, op, params->sections);
}

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
    add_strides_attribute(def);
}

ge::graphStatus tile_rope(gert::TilingContext* context, RopeTensors tensors) {
    if (context == nullptr) return ge::GRAPH_FAILED;
    return report_to_cann(Call(context, tensors).run());
}

}  // namespace npu_rope
