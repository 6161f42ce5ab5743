// Checks and launches of single nodes, and of consecutive nodes of a graph as one call. A check reads no data of
// tensors.
#pragma once

#include "npu_rope_ggml_call.h"

namespace npu_rope_ggml {

// ROPE and ROPE_BACK.
Reason check_rope(const ggml_tensor& node, bool has_bfloat16);
int launch_rope(const ggml_tensor& node, const npu_rope_ggml_target& target, Message why);

// RMS_NORM.
Reason check_rms_norm(const ggml_tensor& node);
int launch_rms_norm(const ggml_tensor& node, const npu_rope_ggml_target& target, Message why);

// Consecutive nodes. Their operations and uses are those of the form.
using Nodes = const ggml_tensor* const*;

// ROPE, VIEW or RESHAPE, SET_ROWS.
Reason check_rope_set_rows(Nodes nodes, bool has_bfloat16);
int launch_rope_set_rows(Nodes nodes, const npu_rope_ggml_target& target, Message why);

// RMS_NORM, MUL, ROPE.
Reason check_rms_norm_mul_rope(Nodes nodes, bool has_bfloat16);
int launch_rms_norm_mul_rope(Nodes nodes, const npu_rope_ggml_target& target, Message why);

// RMS_NORM, MUL.
Reason check_rms_norm_mul(Nodes nodes, bool has_bfloat16);
int launch_rms_norm_mul(Nodes nodes, const npu_rope_ggml_target& target, Message why);

// ADD, RMS_NORM.
Reason check_add_rms_norm(Nodes nodes, bool has_bfloat16);
int launch_add_rms_norm(Nodes nodes, const npu_rope_ggml_target& target, Message why);

// ADD, RMS_NORM, MUL.
Reason check_add_rms_norm_mul(Nodes nodes, bool has_bfloat16);
int launch_add_rms_norm_mul(Nodes nodes, const npu_rope_ggml_target& target, Message why);

// The weight of an RMS_NORM's multiplication: the other source of MUL.
const ggml_tensor& weight_of(const ggml_tensor& norm, const ggml_tensor& mul);
float epsilon_of(const ggml_tensor& norm);

}  // namespace npu_rope_ggml
