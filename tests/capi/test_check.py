"""npu_rope_check and npu_rope_check_on_chip check calls of every operator and compute nothing."""

from __future__ import annotations

import ctypes as C

import numpy as np
import pytest

from npu_rope import RopeParams, native, simulated_package
from npu_rope.call_tensors import FLOAT_DTYPES
from npu_rope.errors import InvalidType, InvalidValue
from npu_rope.executors import sim
from npu_rope.native import CCall, c_tensor, describe

PARAMS = {"params": RopeParams(8)}
X, POSITIONS, SCALE = np.ones((3, 2, 8), np.float32), np.arange(3), np.ones(8, np.float32)
TABLE, ROWS, CACHE = np.ones((3, 8), np.float32), np.array([0, 2, 1]), np.zeros((4, 2, 8), np.float32)
NORM = {"axis": -1, "epsilon": 1e-5, "stash_type": 1}
ONNX_X, ONNX_TABLE = np.ones((1, 2, 3, 8), np.float32), np.ones((1, 3, 4), np.float32)

# By operator: the inputs, the outputs and the other arguments of a correct call.
CALLS = {
    "rope": ((X, POSITIONS), (X,), PARAMS),
    "rope_qk": ((X, X + 0, POSITIONS), (), PARAMS),
    "rope_set_rows": ((X, POSITIONS, ROWS), (CACHE,), PARAMS),
    "rotary_mul": ((X, TABLE, TABLE), (X,), {}),
    "rotary_mul_qk": ((X, X + 0, TABLE, TABLE), (), {}),
    "rotary_embedding": ((ONNX_X, ONNX_TABLE, ONNX_TABLE), (ONNX_X,), {}),
    "rms_norm": ((X, SCALE), (X,), NORM),
    "rms_norm_backward": ((X, X, SCALE), (X + 0, SCALE + 0), NORM),
    "add_rms_norm": ((X, X, SCALE), (X, X + 0), NORM),
    "rms_norm_rope": ((X, X + 0, SCALE, SCALE, POSITIONS), (), {**PARAMS, "epsilon": 1e-5}),
    "rms_norm_rope_set_rows": (
        (X, X, SCALE, SCALE, POSITIONS, ROWS),
        (X + 0, CACHE),
        {**PARAMS, "epsilon": 1e-5},
    ),
}


def check(op, inputs, outs, others, known="values"):
    native.load().check(op, [describe(a) for a in inputs], [describe(a) for a in outs], known, **others)


@pytest.mark.parametrize("known", ["values", "addresses", "layout"])
@pytest.mark.parametrize("op", CALLS)
def test_a_correct_call_passes_and_nothing_is_written(op, known):
    inputs, outs, others = CALLS[op]
    before = [a.copy() for a in (*inputs, *outs)]
    check(op, inputs, outs, others, known)
    check(op, inputs, (), others, known)
    assert all(np.array_equal(a, b) for a, b in zip((*inputs, *outs), before, strict=True))


@pytest.mark.parametrize("op", CALLS)
def test_a_wrong_type_is_found_in_a_call_of_each_operator(op):
    inputs, outs, others = CALLS[op]
    pairs = ("rope_qk", "rotary_mul_qk", "rms_norm_rope", "rms_norm_rope_set_rows")
    name = "X" if op == "rotary_embedding" else "q" if op in pairs else "x"
    index = 1 if op == "rms_norm_backward" else 0
    wrong = [a.astype(np.int32) if k == index else a for k, a in enumerate(inputs)]
    reported = "rms_norm_rope" if op == "rms_norm_rope_set_rows" else op
    with pytest.raises(InvalidType) as caught:
        check(op, wrong, outs, others)
    error = caught.value
    assert (error.op, error.argument, error.value) == (reported, name, "int32")


def test_only_known_values_and_addresses_are_read():
    far = np.array([0, 1, 2**40])
    with pytest.raises(InvalidValue, match="int32 range"):
        check("rope", (X, far), (), PARAMS)
    check("rope", (X, far), (), PARAMS, "addresses")
    memory = np.ones(60, np.float32)
    x, out = memory[:48].reshape(3, 2, 8), memory[8:56].reshape(3, 2, 8)
    with pytest.raises(InvalidValue, match="share no memory"):
        check("rope", (x, POSITIONS), (out,), PARAMS, "addresses")
    check("rope", (x, POSITIONS), (out,), PARAMS, "layout")
    without_memory = [c_tensor(0, "float32", (3, 2, 8), (16, 8, 1)), c_tensor(0, "int64", (3,), (1,))]
    native.load().check("rope", without_memory, [], "layout", **PARAMS)


@pytest.mark.parametrize("op", ["rms_norm_backward", "add_rms_norm"])
@pytest.mark.parametrize("place", [0, 1])
def test_an_output_is_checked_if_the_other_one_is_not_allocated_yet(op, place):
    inputs, outs, others = CALLS[op]
    tensors, wrong = [describe(a) for a in inputs], describe(outs[place][..., :4].copy())
    call = CCall(op=op.encode(), **others)
    for k, tensor in enumerate(tensors):
        call.inputs[k] = C.pointer(tensor)
    assert native.load().lib.npu_rope_check(C.byref(call)) == 0
    call.outputs[place] = C.pointer(wrong)
    assert native.load().lib.npu_rope_check(C.byref(call)) == 1
    assert b"shape" in native.load().last_error().message


def test_frequencies_above_the_limit_are_refused_also_if_only_the_layout_is_known():
    fast = {"params": RopeParams(8, freq_scale=2e9)}
    for known in ("values", "layout"):
        with pytest.raises(InvalidValue, match="frequencies must be at most"):
            check("rope", (X, POSITIONS), (), fast, known)


def test_an_expanded_view_of_the_output_shares_its_memory():
    """The view's stride of 0 follows all strides of the output."""
    out = np.zeros((2, 3, 4, 8), np.float32)
    x = np.broadcast_to(out[:, :, :1], out.shape)
    with pytest.raises(InvalidValue, match="share no memory"):
        check("rope", (x, POSITIONS), (out,), PARAMS)


def test_an_unknown_operator_is_named():
    with pytest.raises(InvalidValue) as caught:
        check("rope_twice", (X,), (), {})
    assert str(caught.value) == "[check] op must be an operator of npu_rope.h but got rope_twice."


def test_missing_arguments_are_named():
    library = native.load()
    assert library.lib.npu_rope_check(None) == 1
    assert library.last_error().message == b"[check] call must name its operator but got NULL."
    assert library.lib.npu_rope_check(C.byref(CCall(op=b"rope"))) == 1
    assert library.last_error().message == b"[rope] x must be a tensor but got NULL."
    assert library.lib.npu_rope_check_on_chip(None, None) == 1


# ---- the rules of a chip -----------------------------------------------------------------------------


def check_on(chip, op, inputs, outs, **others):
    native.load().check(op, inputs, outs, "layout", chip=chip, **others)


@pytest.mark.parametrize("chip", ["Ascend910B1", "Ascend910_9392", "Ascend310P3", "Ascend950PR_9589"])
@pytest.mark.parametrize("op", CALLS)
def test_a_chip_accepts_the_types_of_its_kernels_and_no_others(op, chip):
    """The types are the columns of the operator's definition."""
    inputs, outs, others = CALLS[op]
    package = simulated_package.load()
    kernel = {"rotary_embedding": "rotary_mul", "rms_norm_rope_set_rows": "rms_norm_rope"}.get(op, op)
    operator = package.operators(package.chip(chip)["soc"])[sim.type_of(kernel)]
    columns = next(iter(operator.inputs.values()))
    for dtype in FLOAT_DTYPES:

        def described(a, dtype=dtype):
            name = dtype if a.dtype == np.float32 else a.dtype.name
            return c_tensor(0, name, a.shape, tuple(n // a.itemsize for n in a.strides))

        call = [described(a) for a in inputs], [described(a) for a in outs]
        if dtype in columns:
            check_on(chip, op, *call, **others)
        else:
            with pytest.raises(InvalidType, match=f" on {chip} but got {dtype}") as caught:
                check_on(chip, op, *call, **others)
            assert caught.value.value == dtype


def test_the_rules_of_the_operator_come_before_those_of_the_chip():
    memory = np.ones(60, np.float64)
    x, out = memory[:48].reshape(3, 2, 8), memory[8:56].reshape(3, 2, 8)
    inputs = [describe(x), describe(POSITIONS)]
    with pytest.raises(InvalidValue, match="share no memory"):
        native.load().check("rope", inputs, [describe(out)], "addresses", chip="Ascend310P3", **PARAMS)


def test_a_chip_that_no_kernel_supports_is_named():
    with pytest.raises(InvalidValue) as caught:
        check_on("Ascend910A", "rope", [describe(X), describe(POSITIONS)], [], **PARAMS)
    rule = "be CANN's name of a chip that docs/npu.md lists"
    assert (caught.value.argument, caught.value.rule, caught.value.value) == ("chip", rule, "Ascend910A")


# ---- wide heads ----------------------------------------------------------------------------------------

WIDEST = 1 << 24  # lanes that a call rotates


def wide(*shape):
    """Return a view of memory that is not there: all rows are the same."""
    strides = [0] * (len(shape) - 1) + [1]
    return c_tensor(0, "float16", shape, tuple(strides))


@pytest.mark.parametrize("chip", [None, "Ascend910B1", "Ascend310P3", "Ascend950PR_9589"])
@pytest.mark.parametrize("mode", ["neox", "vision"])
@pytest.mark.parametrize("width", [1 << 12, 1 << 20])
def test_a_call_without_elements_has_heads_of_any_size(chip, mode, width):
    """The tiling data has room for the frequencies of the widest head of a kernel only."""
    x, sections = wide(0, 1, 2 * width), (1, 1, 0, 0) if mode == "vision" else (0, 0, 0, 0)
    positions = c_tensor(0, "int32", (4, 0) if mode == "vision" else (0,), (2**62, 1))
    params = RopeParams(width, mode, sections=sections)
    native.load().check("rope", (x, positions), (), "layout", chip=chip, params=params)


def test_a_call_rotates_so_many_lanes_that_their_number_fits_an_int():
    position = c_tensor(0, "int32", (1,), (1,))

    def rope(n_dims):
        check = native.load().check
        check("rope", (wide(1, 1, 2 * WIDEST), position), (), "layout", params=RopeParams(n_dims))

    def rotary_mul(head_size, rotary_dim):
        table = wide(1, (rotary_dim or head_size) // 2)
        inputs = wide(1, 1, head_size), table, table
        native.load().check("rotary_mul", inputs, (), "layout", rotary_dim=rotary_dim)

    rope(WIDEST)
    rotary_mul(WIDEST, 0)
    rotary_mul(2**40, WIDEST)
    with pytest.raises(InvalidValue, match=r"n_dims must be at most 16777216 but got 16777218\."):
        rope(WIDEST + 2)
    with pytest.raises(
        InvalidValue, match=r"the head size must be at most 16777216 where it is .* got 8589934592\."
    ):
        rotary_mul(2**33, 0)
    with pytest.raises(InvalidValue, match=r"rotary_dim must be at most 16777216 but got 2147483646\."):
        rotary_mul(2**40, 2**31 - 2)
