"""Bad calls of rms_norm_rope have the same message on every path and write nothing."""

from __future__ import annotations

import ctypes as C
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from norm_cases import on_hosts, to_torch
from together import together

from npu_rope import RopeParams, native, rms_norm_rope
from npu_rope.native import CParams, c_params, c_tensor

B, S, N, K, D, R = 2, 3, 4, 2, 8, 9
PARAMS = RopeParams(D, "neox")
half = np.float16


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


def correct():
    return {
        "q": ones(B, S, N, D),
        "k": ones(B, S, K, D),
        "q_scale": ones(D),
        "k_scale": ones(D),
        "positions": np.arange(S),
        "params": PARAMS,
    }


def with_cache():
    return {"rows": np.arange(B * S).reshape(B, S), "cache": ones(R, K, D)}


@dataclass(frozen=True)
class BadNormRope:
    """A bad call. ``only`` names the path, "python", "numpy" or "c", if the others cannot make the call."""

    name: str
    text: str
    changed: dict[str, Any]
    kind: type[Exception]
    only: str

    def __str__(self):
        return self.name


def bad(name, text, kind=ValueError, only="", **changed):
    return BadNormRope(name, text, changed, kind, only)


def on_cache(name, text, kind=ValueError, only="", **changed):
    return bad(f"cache-{name}", text, kind, only, **{**with_cache(), **changed})


TYPES = "must be float32, float16, bfloat16 or float64 but got"
EPSILON = "epsilon must be >= 0 and finite in float32 but got"
SHARED = "but got overlapping memory."
BUFFER = np.ones(4000, np.float32)


def part(at, *shape):
    """Return a part of one buffer, so that tensors can share memory."""
    return BUFFER[at : at + int(np.prod(shape))].reshape(shape)


def outs(q=None, k=None):
    return ones(B, S, N, D) if q is None else q, ones(B, S, K, D) if k is None else k


BAD = [
    bad("q-int", f"q {TYPES} int32.", TypeError, q=ones(B, S, N, D, dtype=np.int32)),
    bad("q-rank", "q must have shape [B,S,N,D] or [S,N,D] but got [6, 8].", q=ones(6, D)),
    bad(
        "k-dtype", "k must have q's dtype float32 but got float16.", TypeError, k=ones(B, S, K, D, dtype=half)
    ),
    bad(
        "k-shape",
        "k must have q's shape [2, 3, 4, 8] except for the heads but got [2, 4, 2, 8].",
        k=ones(B, 4, K, D),
    ),
    bad(
        "q-scale-dtype",
        "q_scale must have q's dtype float32 but got float16.",
        TypeError,
        q_scale=ones(D, dtype=half),
    ),
    bad(
        "k-scale-int",
        "k_scale must have k's dtype float32 but got int64.",
        TypeError,
        k_scale=ones(D, dtype=np.int64),
    ),
    bad("q-scale-size", "q_scale must have shape [D] = [8] but got [7].", q_scale=ones(7)),
    bad("k-scale-rank", "k_scale must have shape [D] = [8] but got [1, 8].", k_scale=ones(1, D)),
    bad("k-scale-0d", "k_scale must have shape [D] = [8] but got [].", k_scale=ones()),
    bad(
        "q-scale-gaps",
        "q_scale must have unit stride in its last dimension but got 2.",
        only="c",
        q_scale=ones(2 * D)[::2],
    ),
    bad("positions-float", "positions must be int32 or int64 but got float32.", TypeError, positions=ones(S)),
    bad(
        "positions-shape",
        "positions must have shape [S] = [3], [B, S] = [2, 3] or [1, S] but got [4].",
        positions=np.arange(4),
    ),
    bad(
        "position-far",
        "positions must be in the int32 range but got 2147483648.",
        positions=np.array([0, 2**31, 0]),
    ),
    bad("window", "n_dims must be at most the head size 8 but got 10.", params=RopeParams(10)),
    bad(
        "offset",
        "n_offs + n_dims must be at most the head size 8 but got 10.",
        params=RopeParams(8, n_offs=2),
    ),
    bad(
        "factor-0",
        "freq_factors must be positive and finite but got 0 at index 1.",
        freq_factors=np.array([1, 0, 1, 1], np.float32),
    ),
    bad("epsilon-negative", f"{EPSILON} -1e-05.", epsilon=-1e-5),
    bad("epsilon-nan", f"{EPSILON} nan.", epsilon=float("nan")),
    bad("epsilon-infinite", f"{EPSILON} inf.", epsilon=float("inf")),
    bad("epsilon-too-large", f"{EPSILON} 1e+39.", epsilon=1e39),
    bad("epsilon-text", "epsilon must be a number but got '1'.", TypeError, "python", epsilon="1"),
    bad("epsilon-bool", "epsilon must be a number but got True.", TypeError, "python", epsilon=True),
    bad(
        "rounding-1",
        "intermediate_rounding must be True or False but got 1.",
        TypeError,
        "python",
        intermediate_rounding=1,
    ),
    bad("angle", "angle must be exact (0), f32 (1) or ggml (2) but got 3.", angle=3),
    bad("params", "params must be a RopeParams but got NoneType.", TypeError, "python", params=None),
    bad("q-text", "q must be a torch tensor or a NumPy array but got str.", TypeError, "python", q="q"),
    bad("rows-alone", "cache must be given where rows is but got None.", only="python", rows=np.arange(S)),
    bad("cache-alone", "rows must be given where cache is but got None.", only="python", cache=ones(R, K, D)),
    bad(
        "out-one",
        "out must be a pair (q_out, k_out) but got ndarray.",
        TypeError,
        "numpy",
        out=ones(B, S, N, D),
    ),
    bad("out-three", "out must be a pair (q_out, k_out) but got 3 elements.", only="python", out=(1, 2, 3)),
    bad(
        "q-out-dtype",
        "q_out must have q's dtype float32 but got float16.",
        TypeError,
        out=outs(q=ones(B, S, N, D, dtype=half)),
    ),
    bad(
        "k-out-shape",
        "k_out must have k's shape [2, 3, 2, 8] but got [2, 3, 4, 8].",
        out=outs(k=ones(B, S, N, D)),
    ),
    bad(
        "k-out-gaps",
        "k_out must have unit stride in its last dimension but got 2.",
        out=outs(k=ones(B, S, K, 2 * D)[..., ::2]),
    ),
    bad(
        "q-out-on-q",
        f"q_out must be q itself or share no memory with q {SHARED}",
        q=part(0, B, S, N, D),
        out=outs(q=part(8, B, S, N, D)),
    ),
    bad(
        "k-out-on-q-scale",
        f"k_out must share no memory with q_scale {SHARED}",
        q_scale=part(8, D),
        out=outs(k=part(0, B, S, K, D)),
    ),
    bad(
        "q-out-on-k-scale",
        f"q_out must share no memory with k_scale {SHARED}",
        k_scale=part(0, D),
        out=outs(q=part(0, B, S, N, D)),
    ),
    bad(
        "k-out-on-q-out",
        f"k_out must share no memory with q_out {SHARED}",
        out=(part(0, B, S, N, D), part(8, B, S, K, D)),
    ),
    on_cache(
        "dtype",
        "cache must have k's dtype float32 but got float16.",
        TypeError,
        cache=ones(R, K, D, dtype=half),
    ),
    on_cache("shape", "cache must have shape [R,N,D] = [R, 2, 8] but got [9, 4, 8].", cache=ones(R, N, D)),
    on_cache(
        "gaps",
        "cache must have unit stride in its last dimension but got 2.",
        cache=ones(R, K, 2 * D)[..., ::2],
    ),
    on_cache(
        "on-k", f"cache must share no memory with k {SHARED}", k=part(0, B, S, K, D), cache=part(0, R, K, D)
    ),
    on_cache(
        "on-scale",
        f"cache must share no memory with k_scale {SHARED}",
        k_scale=part(8, D),
        cache=part(0, R, K, D),
    ),
    on_cache(
        "on-q-out",
        f"cache must share no memory with q_out {SHARED}",
        out=part(0, B, S, N, D),
        cache=part(8, R, K, D),
    ),
    on_cache("rows-dtype", "rows must be int32 or int64 but got float32.", TypeError, rows=ones(B, S)),
    on_cache("rows-shape", "rows must have shape [B, S] = [2, 3] but got [3].", rows=np.arange(S)),
    on_cache(
        "rows-beyond",
        "rows must be -1 or a row of the cache's 9 but got 9.",
        rows=np.array([[0, 1, 2], [3, 4, 9]]),
    ),
    on_cache(
        "rows-twice",
        "rows must differ from each other but got 4 twice.",
        rows=np.array([[0, 1, 2], [3, 4, 4]]),
    ),
    on_cache(
        "q-out-shape", "q_out must have q's shape [2, 3, 4, 8] but got [2, 3, 2, 8].", out=ones(B, S, K, D)
    ),
]


def arrays_of(named):
    flat = [*named.values(), *(named["out"] if isinstance(named.get("out"), tuple) else ())]
    return [a for a in flat if isinstance(a, np.ndarray)]


def in_torch(named):
    tensors = {}

    def convert(a):
        if isinstance(a, tuple):
            return tuple(convert(b) for b in a)
        return tensors.setdefault(id(a), to_torch(a)) if isinstance(a, np.ndarray) else a

    return {name: convert(a) for name, a in named.items()}


@on_hosts
@together("case, framework", [(c, f) for c in BAD for f in ("numpy", "torch") if c.only in ("", "python", f)])
def test_a_bad_call_is_refused_with_the_same_message(case, framework, backend):
    named = {**correct(), **case.changed}
    before = [a.tobytes() for a in arrays_of(named)]
    with pytest.raises(case.kind) as caught:
        rms_norm_rope(**(in_torch(named) if framework == "torch" else named), backend=backend)
    assert str(caught.value) == f"[rms_norm_rope] {case.text}"
    assert before == [a.tobytes() for a in arrays_of(named)]


def tensor_of(a):
    strides = tuple(s // a.itemsize for s in a.strides)
    return C.byref(c_tensor(a.ctypes.data, a.dtype.name, a.shape, strides))


def c_entry(scatters):
    entry = native.load().lib[f"npu_rope_rms_norm_rope{'_set_rows' if scatters else ''}"]
    entry.restype = C.c_int32
    return entry


def c_call(named):
    """Return the C function's arguments by name, in its order, and the arrays that it writes."""
    scatters = "rows" in named
    out = named.get("out")
    q_out, k_out = (out, named["cache"]) if scatters else outs() if out is None else out
    q_out = ones(*named["q"].shape) if q_out is None else q_out
    tensors = {n: tensor_of(named[n]) for n in ("q", "k", "q_scale", "k_scale", "positions")}
    if scatters:
        tensors["rows"] = tensor_of(named["rows"])
    factors = named.get("freq_factors")
    tensors["freq_factors"] = None if factors is None else tensor_of(factors)
    written = {"q_out": tensor_of(q_out), "cache" if scatters else "k_out": tensor_of(k_out)}
    attributes = {
        "params": C.byref(c_params(named["params"])),
        "epsilon": C.c_double(named.get("epsilon", 1e-5)),
        "intermediate_rounding": C.c_int32(0),
        "angle": C.c_int32(named.get("angle", 0)),
    }
    return {**tensors, **attributes, **written}, [q_out, k_out]


@pytest.mark.parametrize("case", [c for c in BAD if c.only in ("", "c")], ids=str)
def test_the_c_interface_has_the_same_messages(case):
    named = {**correct(), **case.changed}
    arguments, written = c_call(named)
    before = [o.tobytes() for o in written]
    status = c_entry("rows" in named)(*arguments.values())
    assert native.load().last_error().message.decode() == f"[rms_norm_rope] {case.text}"
    assert status == (2 if case.kind is TypeError else 1)
    assert before == [o.tobytes() for o in written]


@pytest.mark.parametrize("scatters", [False, True])
def test_null_arguments_are_named(scatters):
    named = {**correct(), **(with_cache() if scatters else {})}
    arguments, _ = c_call(named)
    assert c_entry(scatters)(*arguments.values()) == 0
    for name in arguments:
        if name in ("freq_factors", "epsilon", "intermediate_rounding", "angle"):
            continue
        assert c_entry(scatters)(*{**arguments, name: None}.values()) == 1
        kind = "struct" if name == "params" else "tensor"
        message = native.load().last_error().message.decode()
        assert message == f"[rms_norm_rope] {name} must be a {kind} but got NULL."


def test_parameters_are_checked_before_they_are_used():
    arguments, _ = c_call(correct())
    params = CParams.from_buffer_copy(c_params(PARAMS))
    params.freq_base = -1
    assert c_entry(False)(*{**arguments, "params": C.byref(params)}.values()) == 1
    message = native.load().last_error().message.decode()
    assert message == "[rope] freq_base must be positive and finite but got -1."


def test_tensors_of_another_framework_are_refused():
    named = in_torch(correct())
    for name in ("k", "q_scale", "positions"):
        with pytest.raises(TypeError) as caught:
            rms_norm_rope(**{**named, name: correct()[name]})
        assert str(caught.value) == f"[rms_norm_rope] {name} must be a torch tensor like q but got ndarray."
    with pytest.raises(
        TypeError, match=r"^\[rms_norm_rope\] k must be a NumPy array like q but got Tensor\.$"
    ):
        rms_norm_rope(**{**correct(), "k": named["k"]})


@pytest.mark.parametrize("name", ["q", "k", "q_scale", "k_scale"])
def test_a_gradient_through_a_named_backend_or_given_memory_is_refused(name):
    named = in_torch(correct())
    named[name] = named[name].clone().requires_grad_()
    with pytest.raises(ValueError, match=f"{name} must not need a gradient for backend reference"):
        rms_norm_rope(**named, backend="reference")
    given = tuple(torch.empty_like(named[n]) for n in "qk")
    for where in ({"out": given}, in_torch(with_cache()), {**in_torch(with_cache()), "out": given[0]}):
        with pytest.raises(
            ValueError, match=rf"^\[rms_norm_rope\] {name} must not need a gradient where memory"
        ):
            rms_norm_rope(**named, **where)
