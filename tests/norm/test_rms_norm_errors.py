"""Bad calls of rms_norm, rms_norm_backward and add_rms_norm have the same message on every path and write
nothing."""

from __future__ import annotations

import ctypes as C
import re
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from norm_cases import to_torch
from together import together

from npu_rope import add_rms_norm, backends, native, rms_norm, rms_norm_backward
from npu_rope.errors import BrokenRule
from npu_rope.native import c_tensor

A, B, N = 2, 3, 8


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


def strided(a, *strides):
    """Return ones of a's shape and type with these strides."""
    last = sum((n - 1) * s for n, s in zip(a.shape, strides, strict=True))
    memory = np.ones(last + 1, a.dtype)
    return np.lib.stride_tricks.as_strided(memory, a.shape, [s * a.itemsize for s in strides])


@dataclass(frozen=True)
class NormOperator:
    name: str
    call: Any
    read: tuple[str, ...]
    written: tuple[str, ...]

    def correct(self):
        named = {name: ones(A, B, N) for name in ("grad", "x", "residual")} | {"scale": ones(N)}
        return {name: named[name] for name in self.read}


OPS = {
    "rms_norm": NormOperator("rms_norm", rms_norm, ("x", "scale"), ("out",)),
    "rms_norm_backward": NormOperator(
        "rms_norm_backward", rms_norm_backward, ("grad", "x", "scale"), ("dx", "dscale")
    ),
    "add_rms_norm": NormOperator("add_rms_norm", add_rms_norm, ("x", "residual", "scale"), ("out", "sum")),
}


@dataclass(frozen=True)
class BadNorm:
    """A bad call. ``only`` names the path, "python" or "c", if the other cannot make the call."""

    op: str
    name: str
    text: str
    changed: dict[str, Any]
    kind: type[Exception]
    only: str

    def __str__(self):
        return f"{self.op}-{self.name}"


def bad(op, name, text, kind=ValueError, only="", **changed):
    return BadNorm(op, name, text, changed, kind, only)


forward, backward, add = (partial(bad, op) for op in OPS)
TYPES = "must be float32, float16, bfloat16 or float64 but got"
BROADCAST = "scale must be broadcastable to x's shape [2, 3, 8] but got"
STASH = "stash_type must be 1 (float32), 10 (float16), 11 (float64) or 16 (bfloat16) but got"
EPSILON = "epsilon must be >= 0 and finite in float32 but got"
ROWS = "must be contiguous in the normalized dimensions but got strides"
SHARED = "but got overlapping memory."
BUFFER = np.ones(200, np.float32)
PART = BUFFER[: A * B * N].reshape(A, B, N)
half = np.float16


def for_each_op(name, text, kind=ValueError, only="", **changed):
    return [bad(op, name, text, kind, only, **changed) for op in OPS]


BAD = [
    *for_each_op("x-int", f"x {TYPES} int32.", TypeError, x=ones(A, B, N, dtype=np.int32)),
    *for_each_op("x-bool", f"x {TYPES} bool.", TypeError, "python", x=ones(A, B, N, dtype=bool)),
    *for_each_op("scale-int", f"scale {TYPES} int64.", TypeError, scale=ones(N, dtype=np.int64)),
    *for_each_op("x-0d", "x must have at least one dimension but got [].", x=ones()),
    *for_each_op("axis-beyond", "axis must be in [-3, 2] but got 3.", axis=3),
    *for_each_op("axis-below", "axis must be in [-3, 2] but got -4.", axis=-4),
    *for_each_op("axis-huge", f"axis must be in [-3, 2] but got {-(2**63)}.", axis=-(2**63)),
    *for_each_op("epsilon-negative", f"{EPSILON} -1e-05.", epsilon=-1e-5),
    *for_each_op("epsilon-nan", f"{EPSILON} nan.", epsilon=float("nan")),
    *for_each_op("epsilon-infinite", f"{EPSILON} inf.", epsilon=float("inf")),
    *for_each_op("epsilon-too-large", f"{EPSILON} 1e+39.", epsilon=1e39),
    *for_each_op("stash-0", f"{STASH} 0.", stash_type=0),
    *for_each_op("stash-int64", f"{STASH} 7.", stash_type=7),
    *for_each_op("stash-huge", f"{STASH} {2**32 + 1}.", stash_type=2**32 + 1),
    *for_each_op("scale-size", f"{BROADCAST} [7].", scale=ones(7)),
    *for_each_op("scale-middle", f"{BROADCAST} [2, 8].", scale=ones(A, N)),
    *for_each_op("scale-rank", f"{BROADCAST} [1, 2, 3, 8].", scale=ones(1, A, B, N)),
    *for_each_op("axis-float", "axis must be an integer but got 1.0.", TypeError, "python", axis=1.0),
    *for_each_op("axis-bool", "axis must be an integer but got True.", TypeError, "python", axis=True),
    *for_each_op("epsilon-text", "epsilon must be a number but got '1'.", TypeError, "python", epsilon="1"),
    *for_each_op(
        "epsilon-huge",
        "epsilon must be finite but got an integer beyond float64.",
        ValueError,
        "python",
        epsilon=10**400,
    ),
    *for_each_op(
        "epsilon-complex",
        "epsilon must be a number but got np.complex64(1+2j).",
        TypeError,
        "python",
        epsilon=np.complex64(1 + 2j),
    ),
    *for_each_op(
        "epsilon-seconds",
        "epsilon must be a number but got np.timedelta64(1,'s').",
        TypeError,
        "python",
        epsilon=np.timedelta64(1, "s"),
    ),
    *for_each_op("epsilon-none", "epsilon must be a number but got None.", TypeError, "python", epsilon=None),
    *for_each_op(
        "stash-text", "stash_type must be an integer but got 'f'.", TypeError, "python", stash_type="f"
    ),
    *for_each_op(
        "x-text", "x must be a torch tensor or a NumPy array but got str.", TypeError, "python", x="x"
    ),
    *for_each_op("x-gaps", f"x {ROWS} [48, 16, 2].", only="c", x=ones(A, B, 2 * N)[..., ::2]),
    *for_each_op("x-expanded", f"x {ROWS} [24, 8, 0].", only="c", x=strided(PART, 24, 8, 0)),
    *for_each_op("x-transposed", f"x {ROWS} [24, 1, 3].", only="c", axis=1, x=ones(A, N, B).swapaxes(1, 2)),
    forward(
        "out-dtype",
        "out must have scale's dtype float32 but got float16.",
        TypeError,
        out=ones(A, B, N, dtype=half),
    ),
    forward(
        "out-like-x",
        "out must have scale's dtype float16 but got float32.",
        TypeError,
        scale=ones(N, dtype=half),
        out=PART,
    ),
    forward("out-shape", "out must have x's shape [2, 3, 8] but got [2, 3, 7].", out=ones(A, B, 7)),
    forward("out-rank", "out must have x's shape [2, 3, 8] but got [6, 8].", out=ones(6, N)),
    forward("out-gaps", f"out {ROWS} [48, 16, 2].", out=ones(A, B, 2 * N)[..., ::2]),
    forward("out-rows", f"out {ROWS} [30, 10, 1].", axis=1, out=ones(A, B, 10)[..., :N]),
    forward(
        "out-itself",
        "out must not overlap itself but got strides [0, 8, 1].",
        out=strided(ones(A, B, N), 0, 8, 1),
    ),
    forward(
        "out-shifted",
        f"out must be x itself or share no memory with x {SHARED}",
        x=PART,
        out=BUFFER[8 : 8 + PART.size].reshape(A, B, N),
    ),
    forward(
        "out-on-scale",
        f"out must share no memory with scale {SHARED}",
        out=PART,
        scale=BUFFER[:N],
    ),
    forward(
        "out-is-x-with-scale",
        f"out must share no memory with scale {SHARED}",
        x=PART,
        out=PART,
        scale=BUFFER[:N],
    ),
    forward(
        "out-5d",
        "out must be contiguous but got strides [48, 48, 24, 10, 1].",
        only="python",
        x=ones(1, 1, 2, 2, 8),
        out=strided(ones(1, 1, 2, 2, 8), 48, 48, 24, 10, 1),
    ),
    backward(
        "grad-dtype",
        "grad must have scale's dtype float32 but got float16.",
        TypeError,
        grad=ones(A, B, N, dtype=half),
    ),
    backward("grad-shape", "grad must have x's shape [2, 3, 8] but got [2, 3, 7].", grad=ones(A, B, 7)),
    backward(
        "grad-text",
        "grad must be a torch tensor or a NumPy array but got str.",
        TypeError,
        "python",
        grad="g",
    ),
    backward(
        "dx-dtype",
        "dx must have x's dtype float32 but got float16.",
        TypeError,
        "c",
        dx=ones(A, B, N, dtype=half),
    ),
    backward("dx-shape", "dx must have x's shape [2, 3, 8] but got [2, 3, 7].", only="c", dx=ones(A, B, 7)),
    backward("dx-on-x", f"dx must share no memory with x {SHARED}", only="c", x=PART, dx=PART),
    backward("dx-on-grad", f"dx must share no memory with grad {SHARED}", only="c", grad=PART, dx=PART),
    backward("grad-gaps", f"grad {ROWS} [48, 16, 2].", only="c", grad=ones(A, B, 2 * N)[..., ::2]),
    backward(
        "dscale-dtype",
        "dscale must have scale's dtype float32 but got float16.",
        TypeError,
        "c",
        dscale=ones(N, dtype=half),
    ),
    backward("dscale-shape", "dscale must have scale's shape [8] but got [1].", only="c", dscale=ones(1)),
    backward(
        "dscale-gaps", "dscale must be contiguous but got strides [2].", only="c", dscale=ones(2 * N)[::2]
    ),
    backward(
        "dscale-on-scale",
        f"dscale must share no memory with scale {SHARED}",
        only="c",
        scale=BUFFER[:N],
        dscale=BUFFER[:N],
    ),
    backward(
        "dscale-on-dx", f"dscale must share no memory with dx {SHARED}", only="c", dx=PART, dscale=BUFFER[:N]
    ),
    add(
        "residual-dtype",
        "residual must have x's dtype float32 but got float16.",
        TypeError,
        residual=ones(A, B, N, dtype=half),
    ),
    add(
        "residual-shape", "residual must have x's shape [2, 3, 8] but got [2, 3, 7].", residual=ones(A, B, 7)
    ),
    add("residual-broadcast", "residual must have x's shape [2, 3, 8] but got [8].", residual=ones(N)),
    add(
        "residual-text",
        "residual must be a torch tensor or a NumPy array but got str.",
        TypeError,
        "python",
        residual="r",
    ),
    add("residual-gaps", f"residual {ROWS} [48, 16, 2].", only="c", residual=ones(A, B, 2 * N)[..., ::2]),
    add(
        "y-dtype",
        "out must have scale's dtype float16 but got float32.",
        TypeError,
        scale=ones(N, dtype=half),
        out=ones(A, B, N),
    ),
    add("y-shape", "out must have x's shape [2, 3, 8] but got [6, 8].", out=ones(6, N)),
    add("y-gaps", f"out {ROWS} [48, 16, 2].", out=ones(A, B, 2 * N)[..., ::2]),
    add(
        "sum-dtype",
        "sum must have x's dtype float32 but got float16.",
        TypeError,
        sum=ones(A, B, N, dtype=half),
    ),
    add("sum-shape", "sum must have x's shape [2, 3, 8] but got [2, 3, 7].", sum=ones(A, B, 7)),
    add("sum-gaps", f"sum {ROWS} [48, 16, 2].", sum=ones(A, B, 2 * N)[..., ::2]),
    add(
        "sum-itself",
        "sum must not overlap itself but got strides [0, 8, 1].",
        sum=strided(ones(A, B, N), 0, 8, 1),
    ),
    add("y-is-sum", f"out must share no memory with sum {SHARED}", out=PART, sum=PART),
    add("y-and-sum-are-x", f"out must share no memory with sum {SHARED}", x=PART, out=PART, sum=PART),
    add(
        "y-on-sum",
        f"out must share no memory with sum {SHARED}",
        out=PART,
        sum=BUFFER[8 : 8 + PART.size].reshape(A, B, N),
    ),
    add(
        "sum-on-x",
        f"sum must be x or residual itself or share no memory with x {SHARED}",
        x=PART,
        sum=BUFFER[8 : 8 + PART.size].reshape(A, B, N),
    ),
    add(
        "sum-on-residual",
        f"sum must be x or residual itself or share no memory with residual {SHARED}",
        residual=PART,
        sum=BUFFER[8 : 8 + PART.size].reshape(A, B, N),
    ),
    add(
        "y-is-x-on-residual",
        f"out must be x or residual itself or share no memory with residual {SHARED}",
        x=PART,
        out=PART,
        residual=BUFFER[8 : 8 + PART.size].reshape(A, B, N),
    ),
    add(
        "sum-on-scale",
        f"sum must share no memory with scale {SHARED}",
        sum=PART,
        scale=BUFFER[:N],
    ),
    add(
        "y-on-scale",
        f"out must share no memory with scale {SHARED}",
        out=PART,
        scale=BUFFER[:N],
    ),
    add("out-alone", "out must be a pair (y, sum) but got str.", TypeError, "python", pair="both"),
    add(
        "out-of-three",
        "out must be a pair (y, sum) but got 3 elements.",
        only="python",
        pair=[ones(A, B, N)] * 3,
    ),
]


def arguments_of(case):
    """Return a correct call's arguments with the case's changes, and separately its outputs."""
    op = OPS[case.op]
    named = {**op.correct(), **case.changed}
    return op, named, [named.pop(name, None) for name in op.written]


def given_outs(op, named, outs):
    """Return the Python function's argument ``out``. A missing tensor of a pair is created."""
    if "pair" in named:
        return {"out": named.pop("pair")}
    if all(out is None for out in outs):
        return {}
    if len(op.written) == 1:
        return {"out": outs[0]}
    make = torch.ones if any(isinstance(out, torch.Tensor) for out in outs) else np.ones
    dtypes = named["scale"].dtype, named["x"].dtype
    return {
        "out": tuple(
            make(named["x"].shape, dtype=dtype) if out is None else out
            for out, dtype in zip(outs, dtypes, strict=True)
        )
    }


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@together("case", [c for c in BAD if c.only != "c"])
def test_a_bad_call_is_refused_with_the_same_message(case, framework, backend):
    op, named, outs = arguments_of(case)
    arrays = [a for a in (*named.values(), *outs) if isinstance(a, np.ndarray)]
    before = [a.tobytes() for a in arrays]
    if framework == "torch":
        tensors = {}
        convert = lambda a: tensors.setdefault(id(a), to_torch(a)) if isinstance(a, np.ndarray) else a  # noqa: E731
        named, outs = {n: convert(a) for n, a in named.items()}, [convert(o) for o in outs]
    destination = given_outs(op, named, outs)
    with pytest.raises(case.kind) as caught:
        op.call(**named, **destination, backend=backend)
    assert str(caught.value) == f"[{op.name}] {case.text}"
    assert before == [a.tobytes() for a in arrays]


def tensor_of(a):
    return C.byref(c_tensor(a.ctypes.data, a.dtype.name, a.shape, tuple(s // a.itemsize for s in a.strides)))


@pytest.mark.parametrize("case", [c for c in BAD if c.only != "python"], ids=str)
def test_the_c_function_has_the_same_messages(case):
    op, named, outs = arguments_of(case)
    models = {"out": "x", "sum": "x", "dx": "x", "dscale": "scale"}
    fresh = [
        np.full(named[models[n]].shape, 7, named["scale" if n == "out" else models[n]].dtype)
        for n in op.written
    ]
    outs = [new if out is None else out for out, new in zip(outs, fresh, strict=True)]
    before = [o.tobytes() for o in outs]
    library = native.load()
    entry = library.lib[f"npu_rope_{op.name}"]
    entry.restype = C.c_int32
    attributes = (
        C.c_int64(named.pop("axis", -1)),
        C.c_double(named.pop("epsilon", 1e-5)),
        C.c_int64(named.pop("stash_type", 1)),
    )
    status = entry(*(tensor_of(named[n]) for n in op.read), *attributes, *map(tensor_of, outs))
    assert library.last_error().message.decode() == f"[{op.name}] {case.text}"
    assert status == (2 if case.kind is TypeError else 1)
    assert before == [o.tobytes() for o in outs]


@pytest.mark.parametrize("op", OPS)
def test_null_arguments_are_named(op):
    library, op = native.load(), OPS[op]
    tensor = tensor_of(ones(A, B, N))
    entry = library.lib[f"npu_rope_{op.name}"]
    for missing in (*op.read, *op.written):
        if missing == "dscale":  # optional
            continue
        read = [None if n == missing else tensor for n in op.read]
        written = [None if n == missing else tensor for n in op.written]
        assert entry(*read, C.c_int64(-1), C.c_double(0), C.c_int64(1), *written) == 1
        message = library.last_error().message.decode()
        assert message == f"[{op.name}] {missing} must be a tensor but got NULL."


def test_the_c_function_accepts_at_most_four_dimensions():
    library, x = native.load(), ones(4)
    tensor = c_tensor(x.ctypes.data, "float32", (1, 1, 1, 1, 4), (4, 4, 4, 4, 1))
    entry = library.lib.npu_rope_rms_norm
    assert (
        entry(C.byref(tensor), C.byref(tensor), C.c_int64(-1), C.c_double(0), C.c_int64(1), C.byref(tensor))
        == 1
    )
    message = library.last_error().message.decode()
    assert message == "[rms_norm] x must have at least one dimension and at most 4 but got 5 dimensions."


@pytest.mark.parametrize(("backend", "chip"), [("sim", "Ascend910B1"), ("sim:ascend310p", "Ascend310P3")])
def test_a_device_refuses_gradients_of_types_that_it_lacks(backend, chip):
    correct, wide, narrow = ones(A, B, N), ones(A, B, N, dtype=np.float64), chip == "Ascend310P3"
    types = "float32 or float16" if narrow else "float32, float16 or bfloat16"
    stashes = "1 (float32) or 10 (float16)" if narrow else "1 (float32), 10 (float16) or 16 (bfloat16)"

    for kind, text, changed in (
        (TypeError, f"x must be {types} on {chip} but got float64.", {"x": wide}),
        (TypeError, f"scale must be {types} on {chip} but got float64.", {"grad": wide, "scale": wide[0, 0]}),
        (ValueError, f"stash_type must be {stashes} on {chip} but got 11 (float64).", {"stash_type": 11}),
    ):
        with pytest.raises(kind) as caught:
            rms_norm_backward(**{"grad": correct, "x": correct, "scale": ones(N), **changed}, backend=backend)
        assert str(caught.value) == f"[rms_norm_backward] {text}"


@pytest.mark.parametrize("backend", ["sim", "sim:ascend310p"])
@pytest.mark.parametrize("op", OPS)
def test_a_device_refuses_an_epsilon_beyond_its_range(op, backend):
    """2^64 is accepted; with stash type float16 the limit is 65504."""
    correct = OPS[op].correct()
    OPS[op].call(**correct, epsilon=2.0**64, backend=backend)
    OPS[op].call(**correct, epsilon=65504.0, stash_type=10, backend=backend)
    for rule, epsilon, stash in (
        ("2^64", 3e38, 1),
        ("65504, float16's largest number,", 65504.5, 10),
    ):
        with pytest.raises(ValueError, match="epsilon") as caught:
            OPS[op].call(**correct, epsilon=epsilon, stash_type=stash, backend=backend)
        assert (
            str(caught.value) == f"[{op}] epsilon must be at most {rule} on the device but got {epsilon:g}."
        )


def test_tensors_of_another_framework_are_refused():
    x, scale = torch.ones(B, N), ones(N)
    with pytest.raises(
        TypeError, match=r"^\[rms_norm\] scale must be a torch tensor like x but got ndarray\.$"
    ):
        rms_norm(x, scale)
    for scale in (torch.ones(N, requires_grad=True), torch.ones(N, dtype=torch.bfloat16)):
        with pytest.raises(TypeError, match="scale") as caught:
            rms_norm(ones(B, N), scale)
        assert str(caught.value) == "[rms_norm] scale must be convertible to a NumPy array but got Tensor."
    with pytest.raises(TypeError, match=r"^\[rms_norm\] out must be a NumPy array like x but got Tensor\.$"):
        rms_norm(x.numpy(), scale, out=x)
    with pytest.raises(
        TypeError, match=r"^\[rms_norm_backward\] grad must be a torch tensor like x but got ndarray\.$"
    ):
        rms_norm_backward(x.numpy(), x, torch.ones(N))


def test_a_read_only_out_is_refused():
    with pytest.raises(ValueError, match=r"^\[rms_norm\] out must be writeable but got a read-only array\.$"):
        rms_norm(ones(B, N), ones(N), out=np.broadcast_to(np.float32(0), (B, N)))


def test_a_gradient_through_a_named_backend_is_refused():
    x, scale = torch.ones(B, N, requires_grad=True), torch.ones(N)
    with pytest.raises(ValueError, match="x must not need a gradient for backend reference"):
        rms_norm(x, scale, backend="reference")
    with pytest.raises(ValueError, match="residual must not need a gradient for backend reference"):
        add_rms_norm(x.detach(), x, scale, backend="reference")


@pytest.mark.parametrize("which", ["x", "residual", "out", "sum", "grad"])
def test_shapes_of_more_than_four_dimensions_are_compared_before_they_are_joined(which):
    """The C library gets joined dimensions, which hide the wrong size."""
    shape, other = (2, 1, 3, 2, 8), (2, 1, 3, 1, 8)
    named = {
        name: torch.full(other if name == which else shape, 5.0)
        for name in ("x", "residual", "out", "sum", "grad")
    }
    scale, text = torch.ones(8), f"{which} must have x's shape [2, 1, 3, 2, 8] but got [2, 1, 3, 1, 8]."
    if which == "x":
        text = "residual must have x's shape [2, 1, 3, 1, 8] but got [2, 1, 3, 2, 8]."
    x, residual, outs = named["x"], named["residual"], (named["out"], named["sum"])
    calls = {
        "grad": [lambda: rms_norm_backward(named["grad"], x, scale)],
        "out": [lambda: add_rms_norm(x, residual, scale, out=outs), lambda: rms_norm(x, scale, out=outs[0])],
    }
    for run in calls.get(which, [lambda: add_rms_norm(x, residual, scale, out=outs)]):
        with pytest.raises(ValueError, match=re.escape(text)):
            run()
    assert all(torch.all(t == 5) for t in named.values())


SHAPE_5D = 2, 1, 3, 2, 8
GAPS_5D = np.ones((*SHAPE_5D[:-1], 9), np.float32)[..., :8]
BAD_5D = [
    {"axis": 5},
    {"axis": -6},
    {"axis": 2**62},
    {"scale": ones(7)},
    {"scale": ones(2, 2, 8)},
    {"scale": ones(1, *SHAPE_5D)},
    {"scale": ones(8, dtype=np.int32)},
    {"x": ones(*SHAPE_5D, dtype=np.int32)},
    {"epsilon": -1.0},
    {"stash_type": 7},
]
BAD_5D_BY_OP = {
    "rms_norm": [{"out": ones(2, 1, 3, 1, 8)}, {"out": GAPS_5D}, {"out": ones(*SHAPE_5D, dtype=np.float16)}],
    "rms_norm_backward": [{"grad": ones(2, 1, 3, 1, 8)}, {"grad": ones(8)}],
    "add_rms_norm": [
        {"residual": ones(2, 1, 3, 1, 8)},
        {"residual": ones(1, *SHAPE_5D)},
        {"out": ones(12, 8)},
        {"sum": ones(2, 1, 3, 1, 8)},
        {"sum": GAPS_5D},
        {"residual": ones(8), "out": GAPS_5D},
        {"axis": 5, "scale": ones(7)},
    ],
}


@together("op, changed", [(op, c) for op in OPS for c in BAD_5D + BAD_5D_BY_OP[op]])
def test_cpp_and_python_state_the_same_rules_of_five_dimensions(op, changed, backend):
    """csrc/core checks the operators of torch; npu_rope/rms_norm_calls.py checks calls on arrays."""
    correct = {name: ones(*SHAPE_5D) for name in OPS[op].read if name != "scale"}
    named = {**correct, "scale": ones(8), **changed}
    outs = [named.pop(name, None) for name in OPS[op].written]
    with pytest.raises(BrokenRule) as by_python:
        OPS[op].call(**named, **given_outs(OPS[op], named, outs), backend=backend)

    def on_device(a):
        t = to_torch(a)
        device = "npu" if backend == "npu" else "cpu"
        return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=device).copy_(t)

    tensors = [on_device(named.pop(name)) for name in OPS[op].read]
    suffix = "_out" if any(out is not None for out in outs) else ""
    tensors += [on_device(ones(*SHAPE_5D) if out is None else out) for out in outs if suffix]
    with pytest.raises((RuntimeError, ValueError, TypeError)) as by_torch:
        getattr(torch.ops.npu_rope, op + suffix)(*tensors, **named)
    assert backend == "npu" or type(by_torch.value) is RuntimeError
    by_cpp = backends.raised_by_torch(str(by_torch.value))
    if backend == "npu" and op == "rms_norm_backward" and isinstance(by_torch.value, BrokenRule):
        by_cpp = by_torch.value  # torch's operations compute gradients for a scale that differs among rows
    assert type(by_cpp) is type(by_python.value)
    assert vars(by_cpp) == vars(by_python.value)
