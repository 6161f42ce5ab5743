"""The paths, which are ways to call rope_qk and rope_set_rows, and bad calls of both. A bad call is a call
with one wrong argument, the error that it must raise, and the paths that can express it.
"""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from rope_bad_calls import ANGLES, DEFAULTS, as_schema, sentinels, tensor_of
from together import together

from npu_rope import RopeParams, native, rope_qk, rope_set_rows
from npu_rope.native import CParams, c_tensor


@dataclass
class PathCall:
    """A call: its tensors by name, its attributes, and the code of its angle policy."""

    op: Operation
    tensors: dict[str, Any]
    attributes: dict[str, Any] = field(default_factory=lambda: dict(DEFAULTS))
    angle: int = 0

    def converted(self, convert):
        """Return the converted tensors by name. A tensor that is passed twice is converted once."""
        converted = {id(t): convert(t) for t in self.tensors.values()}
        return {name: converted[id(t)] for name, t in self.tensors.items()}

    def arrays(self):
        return [t for t in self.tensors.values() if isinstance(t, np.ndarray)]


@dataclass(frozen=True)
class Operation:
    """An operator: the names of its inputs and outputs, and its calls by Python and torch.ops."""

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    python: Callable[..., Any]
    torch_op: Callable[..., Any]


def qk_in_python(t, params, **options):
    out = t["q_out"], t["k_out"]
    rope_qk(t["q"], t["k"], t["positions"], params, t["freq_factors"], out=out, **options)


def qk_in_torch_ops(t, **attributes):
    inputs = t["q"], t["k"], t["positions"], t["freq_factors"]
    if t["q_out"] is t["q"] and t["k_out"] is t["k"]:
        torch.ops.npu_rope.rope_qk_(*inputs, **attributes)
    else:
        torch.ops.npu_rope.rope_qk_out(*inputs, **attributes, q_out=t["q_out"], k_out=t["k_out"])


def set_rows_in_python(t, params, **options):
    tensors = t["x"], t["positions"], t["rows"], t["cache"]
    rope_set_rows(*tensors, params, t["freq_factors"], **options)


def set_rows_in_torch_ops(t, **attributes):
    tensors = t["x"], t["positions"], t["rows"], t["cache"], t["freq_factors"]
    torch.ops.npu_rope.rope_set_rows(*tensors, **attributes)


QK = Operation(
    "rope_qk", ("q", "k", "positions", "freq_factors"), ("q_out", "k_out"), qk_in_python, qk_in_torch_ops
)
SET_ROWS = Operation(
    "rope_set_rows",
    ("x", "positions", "rows", "freq_factors"),
    ("cache",),
    set_rows_in_python,
    set_rows_in_torch_ops,
)


# ---- the paths -------------------------------------------------------------------------------------


def through_python(backend, convert, call):
    params = RopeParams(**call.attributes)
    angle = ANGLES.get(call.angle, call.angle)
    call.op.python(call.converted(convert), params, backend=backend, angle=angle)


def through_torch_ops(call):
    attributes = {**as_schema(call.attributes), "angle": call.angle}
    call.op.torch_op(call.converted(tensor_of), **attributes)


def c_view(array):
    if array is None:
        return None
    strides = tuple(s // array.itemsize for s in array.strides)
    return c_tensor(array.ctypes.data, array.dtype.name, array.shape, strides)


def c_arguments(call):
    """Return the tensors and the parameters of the C function by name: each a struct or None."""
    sections = (C.c_int32 * 4)(*call.attributes["sections"])
    structs = {name: c_view(call.tensors[name]) for name in call.op.reads}
    structs["params"] = CParams(**{**call.attributes, "sections": sections})
    return structs | {name: c_view(call.tensors[name]) for name in call.op.writes}


def c_status(op, structs, angle=0):
    """Call the C function and return its status and error message. A struct that is None becomes NULL."""
    pointers = {name: None if struct is None else C.byref(struct) for name, struct in structs.items()}
    read, written = (tuple(pointers[n] for n in names) for names in (op.reads, op.writes))
    arguments = (*read, pointers["params"], 1, angle, *written)
    library = native.load()
    return getattr(library.lib, f"npu_rope_{op.name}")(*arguments), library.last_error().message.decode()


def through_c(call):
    status, message = c_status(call.op, c_arguments(call), call.angle)
    if status:
        raise {1: ValueError, 2: TypeError}.get(status, RuntimeError)(message)


PATHS: dict[str, Callable[[PathCall], None]] = {
    **{
        f"numpy-{backend}": partial(through_python, backend, lambda a: a)
        for backend in ("reference", "cpu", "sim", "sim:ascend310p")
    },
    **{
        f"torch-{backend or 'default'}": partial(through_python, backend, tensor_of)
        for backend in ("reference", "cpu", "sim", None)
    },
    "torch-ops": through_torch_ops,
    "c": through_c,
}
C_PATHS = ("c",)
PYTHON = tuple(p for p in PATHS if p not in ("torch-ops", *C_PATHS))  # their errors name every dtype
NUMPY = tuple(p for p in PATHS if p.startswith("numpy"))


# ---- bad calls -------------------------------------------------------------------------------------


@dataclass
class BadCall:
    """A call with one wrong argument, and the error that it must raise."""

    name: str
    make: Callable[[], PathCall]
    text: str
    kind: type = ValueError
    paths: tuple[str, ...] = tuple(PATHS)
    operator: str = ""  # the operator that the error names, if not the called one


def bad_calls_of(call):
    """Return ``bad(name, text, **changed)``, which describes the bad call ``call(**changed)``. A changed
    argument may be a function that makes a tensor, so that each path gets new tensors."""

    def bad(name, text, *, kind=ValueError, paths=tuple(PATHS), operator="", **changed):
        def make():
            return call(**{name: v() if callable(v) else v for name, v in changed.items()})

        return BadCall(name, make, text, kind, paths, operator)

    return bad


def make_ones(*shape, dtype=np.float32):
    """Return a function that makes an array of ones."""
    return lambda: np.ones(shape, dtype)


def make_sentinels(*shape, dtype=np.float32):
    """Return a function that makes an array of sentinels."""
    return lambda: sentinels(shape, dtype)


def make_strided(shape, strides):
    """Return a function that makes an array of sentinels with any strides (in elements)."""
    return lambda: np.lib.stride_tricks.as_strided(sentinels(1000), shape, [4 * s for s in strides])


def each_bad_call(bads):
    """Parametrize a test by each bad call and each path that can express it."""
    rows = [(bad, path) for bad in bads for path in bad.paths]
    return together(("bad", "path"), rows, ids=[f"{b.name}-{p}" for b, p in rows])


def assert_refused(bad, path):
    """Require the error's message, its class except in torch.ops, and that nothing is written."""
    call = bad.make()
    before = [a.tobytes() for a in call.arrays()]
    # torch raises most errors of C++ operators as RuntimeError.
    expected = (RuntimeError, ValueError, TypeError) if path == "torch-ops" else bad.kind
    with pytest.raises(expected) as caught:
        PATHS[path](call)
    message, text = str(caught.value), f"[{bad.operator or call.op.name}] {bad.text}"
    assert text in message if path == "torch-ops" else message == text
    assert [a.tobytes() for a in call.arrays()] == before
