"""Types of tensors that CANN's functions refuse, for operators that run as host fallbacks.

torch's CPU kernels accept more types than the aclnn functions that torch_npu calls. :data:`TABLE` has the
operators that torch_npu passes to one aclnn function without a conversion (Ascend/op-plugin
``op_plugin/config/op_plugin_functions.yaml``, ``gen_opapi``, and the files of the products and of
linalg_vector_norm in ``op_plugin/ops/opapi``). The types of an argument are those that the host code of this
function accepts on the chip, in the lists of ``OP_CHECK_DTYPE_NOT_SUPPORT``; the function's document has no
others. The table is stricter than the host code in two cases:

- Some lists name bfloat16 for every chip, but Ascend310P has no kernels for it.
- Some functions accept a type with some values or shapes only, which the table cannot express:
  ``threshold_backward`` accepts int64 on Ascend950 if the threshold is 0, and
  ``adaptive_avg_pool3d_backward`` float64, and ``_ctc_loss_backward`` float16 and bfloat16 on Ascend910B,
  for some shapes. The table does not have these types.

Operators that torch_npu converts before the call are not in the table, and are not checked.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator

import torch

# The path of a source, without its folders op_host and op_api, in hicann/ops-math or hicann/ops-nn. Below it
# are operators, arguments and types. A name covers all forms of the operator: in place, with out=. If a type
# or a group has a colon before it, only the chips before the colon accept it.
TABLE = """
ops-math conversion/clip_by_value_v2/aclnn_clamp.cpp
    clamp.Tensor clamp_max clamp_max.Tensor clamp_min clamp_min.Tensor | self | FLOATS INTEGERS float64
ops-math conversion/clip_by_value_v2/aclnn_hardtanh.cpp
    hardtanh | self | FLOATS INTEGERS float64
ops-math conversion/pad_v3_grad_replicate/aclnn_pad2d_backward.cpp
    reflection_pad2d_backward replication_pad2d_backward | grad_output self | FRACTIONS
ops-math conversion/pad_v3_grad_replicate/aclnn_replication_pad1d_backward.cpp
    replication_pad1d_backward | grad_output self | FRACTIONS
ops-math conversion/pad_v3_grad_replication/aclnn_pad3d_backward.cpp
    reflection_pad3d_backward replication_pad3d_backward | grad_output self | FRACTIONS
ops-math conversion/pad_v4_grad/aclnn_reflection_pad1d_backward.cpp
    reflection_pad1d_backward | grad_output self | FRACTIONS
ops-math conversion/roll/aclnn_roll.cpp
    roll | self | FLOATS int8 int32 int64 uint8 bool 910B,950:int16 950:complex64
ops-math conversion/tril/aclnn_tril.cpp
    tril | self | FLOATS INTEGERS float64 bool 950:complex64
ops-math conversion/triu/aclnn_triu.cpp
    triu | self | FLOATS INTEGERS float64 bool 950:complex64
ops-math math/abs/aclnn_abs.cpp
    abs | self | FLOATS INTEGERS float64 bool 910B,950:complex64
ops-math math/acos/aclnn_acos.cpp
    acos | self | FLOATS INTEGERS float64 bool
ops-math math/addr/aclnn_addr.cpp
    addr | self vec1 vec2 | FLOATS INTEGERS float64 bool
ops-math math/bitwise_not/aclnn_bitwise_not.cpp
    bitwise_not | self | INTEGERS bool
ops-math math/cdist/aclnn_cdist.cpp
    _cdist_forward | x1 x2 | 910B,950:FLOATS
ops-math math/ceil/aclnn_ceil.cpp
    ceil | self | FLOATS float64
ops-math math/cumprod/aclnn_cumprod.cpp
    cumprod | self | FLOATS INTEGERS float64
ops-math math/dot/aclnn_dot.cpp
    dot vdot | self | FLOATS int8 int32 uint8
ops-math math/erf/aclnn_erf.cpp
    erf | self | FLOATS float64 int64 bool
ops-math math/erfc/aclnn_erfc.cpp
    erfc | self | FLOATS float64 int64 bool
ops-math math/exp/aclnn_exp.cpp
    exp | self | FLOATS float64 int64 bool complex64 complex128
ops-math math/expm1/aclnn_expm1.cpp
    expm1 | self | FLOATS int64 bool
ops-math math/floor/aclnn_floor.cpp
    floor | self | FLOATS INTEGERS float64
ops-math math/left_shift/aclnn_left_shift.cpp
    bitwise_left_shift.Tensor | self | INTEGERS
ops-math math/lerp/aclnn_lerp_scalar.cpp
    lerp.Scalar | self end | FLOATS
ops-math math/lerp/aclnn_lerp_tensor.cpp
    lerp.Tensor | self | FLOATS
ops-math math/log_add_exp/aclnn_logaddexp.cpp
    logaddexp | self other | FLOATS INTEGERS float64 bool
ops-math math/log_add_exp/aclnn_logaddexp2.cpp
    logaddexp2 | self other | FLOATS INTEGERS float64 bool
ops-math math/logical_not/aclnn_logical_not.cpp
    logical_not | self | FLOATS INTEGERS float64 bool
ops-math math/mod/aclnn_fmod_scalar.cpp
    fmod.Scalar | self | FLOATS float64 int8 int32 int64 uint8
ops-math math/polar/aclnn_polar.cpp
    polar | angle | float32
ops-math math/pow/aclnn_exp2.cpp
    exp2 | self | FLOATS INTEGERS float64 bool
ops-math math/reduce_max/aclnn_amax.cpp
    amax | self | FLOATS INTEGERS float64 bool
ops-math math/reduce_min/aclnn_amin.cpp
    amin | self | FLOATS INTEGERS float64 bool
ops-math math/reduce_min/aclnn_aminmax_all.cpp
    _aminmax | self | FLOATS INTEGERS float64 bool
ops-math math/reduce_min/aclnn_aminmax_dim.cpp
    _aminmax.dim | self | FLOATS INTEGERS float64 bool
ops-math math/right_shift/aclnn_right_shift.cpp
    bitwise_right_shift.Tensor | self | INTEGERS
ops-math math/round/aclnn_round.cpp
    round | self | FLOATS float64 int32 int64
ops-math math/search_sorted/aclnn_searchsorted.cpp
    searchsorted.Scalar | sorted_sequence | INTEGERS float16 float32 float64
    searchsorted.Tensor | sorted_sequence self | INTEGERS float16 float32 float64
ops-math math/signbit/aclnn_signbit.cpp
    signbit | self | FLOATS INTEGERS float64 bool
ops-math math/sinc/aclnn_sinc.cpp
    sinc | self | FLOATS INTEGERS float64 bool
ops-math math/sub/aclnn_frac.cpp
    frac | self | FLOATS INTEGERS
ops-math math/sub/aclnn_rsub.cpp
    rsub.Scalar | self | FLOATS INTEGERS float64 complex64 complex128
    rsub.Tensor | self other | FLOATS INTEGERS float64 complex64 complex128
ops-math math/tanh_grad/aclnn_tanh_backward.cpp
    tanh_backward | grad_output output | FLOATS float64
ops-math math/triangular_solve/aclnn_triangular_solve.cpp
    triangular_solve.X | self A | float32 float64 complex64 complex128
ops-math math/trunc/aclnn_trunc.cpp
    trunc | self | FLOATS 950:int8 950:int32 950:uint8
ops-math math/xlogy/aclnn_x_log_y_scalar_other.cpp
    xlogy.OutScalar_Other xlogy.Scalar_Other | self | FLOATS INTEGERS bool
ops-math math/xlogy/aclnn_x_log_y_tensor.cpp
    xlogy.OutTensor xlogy.Tensor | self other | FLOATS INTEGERS bool
ops-nn activation/celu_v2/aclnn_celu.cpp
    celu | self | FLOATS
ops-nn activation/elu/aclnn_elu.cpp
    elu | self | FLOATS float64
ops-nn activation/elu_grad_v2/aclnn_elu_backward.cpp
    elu_backward | grad_output | FLOATS
ops-nn activation/erfinv/aclnn_erfinv.cpp
    erfinv | self | FLOATS INTEGERS bool
ops-nn activation/glu/aclnn_glu.cpp
    glu | self | FLOATS float64
ops-nn activation/glu_grad/aclnn_glu_backward.cpp
    glu_backward | self | FLOATS float64
ops-nn activation/hard_shrink/aclnn_hardshrink.cpp
    hardshrink | self | FLOATS
ops-nn activation/hard_shrink_grad/aclnn_hardshrink_backward.cpp
    hardshrink_backward | self | FLOATS
ops-nn activation/hard_sigmoid/aclnn_hardsigmoid.cpp
    hardsigmoid | self | FLOATS int32
ops-nn activation/hard_sigmoid_grad/aclnn_hardsigmoid_backward.cpp
    hardsigmoid_backward | grad_output self | FLOATS
ops-nn activation/hard_swish/aclnn_hardswish.cpp
    hardswish | self | FLOATS
ops-nn activation/hardtanh_grad/aclnn_hardtanh_backward.cpp
    hardtanh_backward | grad_output self | FLOATS
ops-nn activation/leaky_relu/aclnn_leaky_relu.cpp
    leaky_relu | self | FLOATS float64
ops-nn activation/leaky_relu_grad/aclnn_leaky_relu_backward.cpp
    leaky_relu_backward | grad_output self | FLOATS float64
ops-nn activation/log_softmax_grad/aclnn_logsoftmax_backward.cpp
    _log_softmax_backward_data | grad_output output | FLOATS
ops-nn activation/log_softmax_v2/aclnn_log_softmax.cpp
    _log_softmax | self | FLOATS float64
ops-nn activation/logsigmoid_grad/aclnn_logsigmoid_backward.cpp
    log_sigmoid_backward | grad_output self | FLOATS
ops-nn activation/p_relu/aclnn_prelu.cpp
    _prelu_kernel | self weight | FLOATS
ops-nn activation/relu/aclnn_add_relu.cpp
    _add_relu.Tensor _add_relu | self other | FLOATS INTEGERS
ops-nn activation/sigmoid_grad/aclnn_sigmoid_backward.cpp
    sigmoid_backward | grad_output output | FRACTIONS
ops-nn activation/soft_shrink_grad/aclnn_softshrink_backward.cpp
    softshrink_backward | grad_output self | FLOATS
ops-nn activation/softmax_v2/aclnn_softmax.cpp
    _softmax | self | FLOATS float64
ops-nn activation/softplus_v2/aclnn_softplus.cpp
    softplus | self | FLOATS
ops-nn activation/softplus_v2_grad/aclnn_softplus_backward.cpp
    softplus_backward | grad_output | FLOATS float64
    softplus_backward | self | FLOATS INTEGERS float64 bool
ops-nn activation/softshrink/aclnn_softshrink.cpp
    softshrink | self | FLOATS
ops-nn activation/threshold_grad_v2_d/aclnn_threshold_backward.cpp
    threshold_backward | grad_output self | FLOATS int8 int32 uint8
ops-nn index/gather_v2/aclnn_median.cpp
    median.dim median.dim_values nanmedian nanmedian.dim | self | FLOATS INTEGERS
ops-nn index/scatter_elements/aclnn_max_unpool2d.cpp
    max_unpool2d | self | INTEGERS float16 float32 float64
ops-nn index/scatter_elements/aclnn_max_unpool3d.cpp
    max_unpool3d | self | INTEGERS float16 float32 float64
ops-nn loss/binary_cross_entropy/aclnn_binary_cross_entropy.cpp
    binary_cross_entropy | self target | FLOATS
ops-nn loss/binary_cross_entropy_grad/aclnn_binary_cross_entropy_backward.cpp
    binary_cross_entropy_backward | grad_output self target | FLOATS
ops-nn loss/ctc_loss_v2_grad/aclnn_ctc_loss_backward.cpp
    _ctc_loss_backward | log_probs | float32 float64 950:float16 950:bfloat16
    _ctc_loss_backward | targets | float16 float32 int32 int64 bool
ops-nn loss/mse_loss_grad_v2/aclnn_mse_loss_backward.cpp
    mse_loss_backward | self | FLOATS
ops-nn loss/soft_margin_loss/aclnn_soft_margin_loss.cpp
    soft_margin_loss | self target | FLOATS
ops-nn matmul/batch_mat_mul_v3/aclnn_baddbmm.cpp
    baddbmm | self batch1 batch2 | FLOATS
ops-nn matmul/batch_mat_mul_v3/aclnn_batch_matmul.cpp
    bmm | self mat2 | FLOATS
ops-nn matmul/mat_mul_v3/aclnn_addmm.cpp
    addmm | self mat1 mat2 | FLOATS
ops-nn matmul/mat_mul_v3/aclnn_mm.cpp
    mm | self mat2 | FLOATS
ops-nn norm/batch_norm_v3/aclnn_batch_norm.cpp
    native_batch_norm | input weight bias running_mean running_var | FLOATS
ops-nn norm/lp_norm_v2/aclnn_linalg_vector_norm.cpp
    linalg_vector_norm | self | FLOATS
ops-nn pooling/adaptive_avg_pool2d_grad/aclnn_adaptive_avg_pool2d_backward.cpp
    _adaptive_avg_pool2d_backward | grad_output self | FLOATS
ops-nn pooling/adaptive_avg_pool3d/aclnn_adaptive_avg_pool3d.cpp
    _adaptive_avg_pool3d adaptive_avg_pool3d | self | FLOATS
ops-nn pooling/adaptive_avg_pool3d_grad/aclnn_adaptive_avg_pool3d_backward.cpp
    _adaptive_avg_pool3d_backward adaptive_avg_pool3d_backward | grad_output self | FLOATS
ops-nn pooling/adaptive_max_pool2d/aclnn_adaptive_max_pool2d.cpp
    adaptive_max_pool2d | self | FLOATS float64
"""
GROUPS = {
    "FLOATS": "float16 910B,950:bfloat16 float32",
    "FRACTIONS": "FLOATS float64 complex64 complex128",
    "INTEGERS": "int8 int16 int32 int64 uint8",
}


def chip_of(soc: str) -> str:
    """Return the name of a SoC's chip in the table, such as ``310P`` for Ascend310P3."""
    chips = {"Ascend310P": "310P", "Ascend950": "950"}
    # The sources treat Ascend910_93 as Ascend910B, which is also the chip without ASCEND_SIM_SOC.
    return next((chip for family, chip in chips.items() if soc.startswith(family)), "910B")


def _types(cell: str, chip: str) -> Iterator[torch.dtype]:
    """Yield the types of a cell of the table on a chip."""
    for word in cell.split():
        chips, _, name = word.rpartition(":")
        if chips and chip not in chips.split(","):
            continue
        if name in GROUPS:
            yield from _types(GROUPS[name], chip)
        else:
            yield getattr(torch, name)


def read_table(chip: str) -> dict[str, tuple[str, dict[str, frozenset[torch.dtype]]]]:
    """Return, for each operator, the source and the types of arguments on a chip of :func:`chip_of`."""
    operators: dict[str, tuple[str, dict[str, frozenset[torch.dtype]]]] = {}
    source = ""
    for line in TABLE.strip().splitlines():
        if not line.startswith(" "):
            source = line
            continue
        names, arguments, types = line.split("|")
        allowed = frozenset(_types(types, chip))
        for name in names.split():
            operators.setdefault(name, (source, {}))[1].update(dict.fromkeys(arguments.split(), allowed))
    return operators


SOC = os.environ.get("ASCEND_SIM_SOC", "")
OPERATORS = read_table(chip_of(SOC))


@functools.cache
def form_of(name: str) -> str:
    """Return an operator's name in the table, such as ``lerp.Scalar`` for ``aten.lerp_.Scalar``."""
    stem, _, overload = name.removeprefix("aten.").partition(".")
    overload = "" if overload in ("default", "out", "grad_input") else overload.removesuffix("_out")
    return ".".join(filter(None, (stem.removesuffix("_"), overload)))


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def check(name: str, argument: str, dtype: torch.dtype) -> None:
    """Raise RuntimeError if CANN's function for an operator refuses this type of an argument."""
    source, arguments = OPERATORS.get(form_of(name), ("", {}))
    allowed = arguments.get(argument)
    if allowed is None or dtype in allowed:
        return
    if not allowed:
        raise RuntimeError(
            f"{name}: the chip must be one on which CANN's function accepts a type but got {SOC} "
            f"(hicann/{source}, simulated)."
        )
    types = ", ".join(sorted(map(_name_of, allowed)))
    raise RuntimeError(
        f"{name}: {argument} must be one of {types} on {SOC} but got {_name_of(dtype)}: CANN's function "
        f"refuses other types (hicann/{source}, simulated)."
    )
