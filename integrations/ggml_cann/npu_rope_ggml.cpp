// The adapter's C functions: which function computes a node, and which consecutive nodes of a graph one call computes.
#include "npu_rope_ggml.h"

#include <cstring>

#include "npu_rope_ggml_nodes.h"

namespace npu_rope_ggml {
namespace {

constexpr int kMaxNodes = 3;

// Consecutive nodes that one call computes. The nodes in outputs are written; no other node may use the rest.
struct Form {
    int count;
    const char* ops[kMaxNodes];
    int num_outputs;
    int outputs[2];  // offsets from the first node
    Reason (*check)(Nodes, bool);
    int (*launch)(Nodes, const npu_rope_ggml_target&, Message);
};

// A form comes before its shorter variants.
constexpr Form kRopeSetRows = {
    3, {"ROPE", "VIEW", "SET_ROWS"}, 1, {2}, check_rope_set_rows, launch_rope_set_rows,
};
constexpr Form kForms[] = {
    {3, {"ADD", "RMS_NORM", "MUL"}, 2, {0, 2}, check_add_rms_norm_mul, launch_add_rms_norm_mul},
    {2, {"ADD", "RMS_NORM"}, 2, {0, 1}, check_add_rms_norm, launch_add_rms_norm},
    {3, {"RMS_NORM", "MUL", "ROPE"}, 1, {2}, check_rms_norm_mul_rope, launch_rms_norm_mul_rope},
    {2, {"RMS_NORM", "MUL"}, 1, {1}, check_rms_norm_mul, launch_rms_norm_mul},
    kRopeSetRows,
};

bool is_op_of_form(const ggml_tensor& node, const char* op) {
    return has_op(node, op) || (std::strcmp(op, "VIEW") == 0 && has_op(node, "RESHAPE"));
}

// Whether a node of a form has its sources. RMS_NORM and VIEW have one, the others have two.
bool has_sources(const ggml_tensor& node) {
    return node.src[0] && (node.src[1] || has_op(node, "RMS_NORM") || is_op_of_form(node, "VIEW"));
}

// Returns why the graph's nodes from index on do not have the form, or nullptr. If their operations are not the form's,
// the reason is empty. Fills nodes.
Reason match(const Form& form, ggml_cgraph* graph, int index, bool has_bfloat16, const ggml_tensor** nodes) {
    if (index + form.count > ggml_graph_n_nodes(graph)) return "";
    decltype(ggml_tensor::op) ops[kMaxNodes];
    int indices[kMaxNodes], outputs[2];
    for (int i = 0; i < form.count; ++i) {
        nodes[i] = ggml_graph_node(graph, index + i);
        if (!is_op_of_form(*nodes[i], form.ops[i])) return "";
        if (is_empty(*nodes[i])) return "a node is empty";
        if (!has_sources(*nodes[i])) return "a node lacks a source";
        if (Reason reason = check_layouts(*nodes[i])) return reason;
        ops[i] = nodes[i]->op, indices[i] = index + i;
    }
    for (int i = 0; i < form.num_outputs; ++i) outputs[i] = index + form.outputs[i];
    if (!ggml_can_fuse_subgraph_ext(graph, indices, form.count, ops, outputs, form.num_outputs))
        return "another node uses a result that the call does not write";
    return form.check(nodes, has_bfloat16);
}

// Whether the ROPE of the form RMS_NORM, MUL, ROPE begins kRopeSetRows. kRopeSetRows then computes the
// ROPE, because the operator of the norm cannot write into the cache.
bool is_followed_by_set_rows(const Form& form, ggml_cgraph* graph, int index, bool has_bfloat16) {
    const int last = form.count - 1;
    const ggml_tensor* nodes[kMaxNodes];
    return last == 2 && std::strcmp(form.ops[last], "ROPE") == 0 &&
           match(kRopeSetRows, graph, index + last, has_bfloat16, nodes) == nullptr;
}

Reason check_node(const ggml_tensor* node, bool has_bfloat16) {
    if (!node) return "the node is NULL";
    const bool is_norm = has_op(*node, "RMS_NORM");
    if (!is_norm && !has_op(*node, "ROPE") && !has_op(*node, "ROPE_BACK"))
        return "the node is not a rope or an RMS norm";
    if (Reason reason = check_layouts(*node)) return reason;
    return is_norm ? check_rms_norm(*node) : check_rope(*node, has_bfloat16);
}

int compute_fused(ggml_cgraph* graph, int index, const npu_rope_ggml_target& target, Message why) {
    Reason first_reason = "";
    for (const Form& form : kForms) {
        const ggml_tensor* nodes[kMaxNodes];
        const bool has_bfloat16 = target.has_bfloat16 != 0;
        const Reason reason = match(form, graph, index, has_bfloat16, nodes);
        if (!reason) {
            if (is_followed_by_set_rows(form, graph, index, has_bfloat16)) continue;
            return form.launch(nodes, target, why) == NPU_ROPE_GGML_OK ? form.count : -1;
        }
        if (!*first_reason) first_reason = reason;
    }
    return why.report(0, "%s", first_reason);
}

}  // namespace
}  // namespace npu_rope_ggml

using namespace npu_rope_ggml;

extern "C" int npu_rope_ggml_supports(const ggml_tensor* node, int has_bfloat16, char* why, size_t why_bytes) {
    const Reason reason = check_node(node, has_bfloat16 != 0);
    return Message{why, why_bytes}.report(reason ? NPU_ROPE_GGML_UNSUPPORTED : NPU_ROPE_GGML_OK, "%s",
                                          reason ? reason : "");
}

extern "C" int npu_rope_ggml_compute(const ggml_tensor* node, const npu_rope_ggml_target* target, char* why,
                                     size_t why_bytes) try {
    const int status = npu_rope_ggml_supports(node, target->has_bfloat16, why, why_bytes);
    if (status != NPU_ROPE_GGML_OK || is_empty(*node)) return status;
    const auto launch = has_op(*node, "RMS_NORM") ? launch_rms_norm : launch_rope;
    return launch(*node, *target, {why, why_bytes});
} catch (...) {
    return Message{why, why_bytes}.report(NPU_ROPE_GGML_FAILED, "out of memory");
}

extern "C" int npu_rope_ggml_compute_fused(ggml_cgraph* graph, int index, const npu_rope_ggml_target* target, char* why,
                                           size_t why_bytes) try {
    return compute_fused(graph, index, *target, {why, why_bytes});
} catch (...) {
    return Message{why, why_bytes}.report(-1, "out of memory");
}
