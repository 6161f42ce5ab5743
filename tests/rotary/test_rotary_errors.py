"""Bad calls of rotary_mul, rotary_mul_qk and rotary_embedding raise the same error on every path and write
nothing.
"""

from __future__ import annotations

import ctypes as C
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from rope_cases import to_torch
from together import together

from npu_rope import (
    native,
    rotary_embedding,
    rotary_mul,
    rotary_mul_backward,
    rotary_mul_qk,
)
from npu_rope.native import c_tensor

B, S, N, D = 2, 3, 4, 8


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


def strided(a, *strides):
    return np.lib.stride_tricks.as_strided(a, strides=[s * a.itemsize for s in strides])


@dataclass(frozen=True)
class TableOperator:
    name: str
    call: Any
    xs: tuple[str, ...]
    tables: tuple[str, ...]
    outs: tuple[str, ...]
    correct: Any


def mul_arguments():
    return {"x": ones(B, S, N, D), "cos": ones(S, 4), "sin": ones(S, 4)}


def qk_arguments():
    return {"q": ones(B, S, N, D), "k": ones(B, S, 1, D), "cos": ones(S, 8), "sin": ones(S, 8)}


def embedding_arguments():
    return {
        "X": ones(B, N, S, D),
        "cos_cache": ones(9, 4),
        "sin_cache": ones(9, 4),
        "position_ids": np.arange(6).reshape(B, S),
    }


OPS = {
    "rotary_mul": TableOperator("rotary_mul", rotary_mul, ("x",), ("cos", "sin"), ("out",), mul_arguments),
    "rotary_mul_qk": TableOperator(
        "rotary_mul_qk", rotary_mul_qk, ("q", "k"), ("cos", "sin"), ("q_out", "k_out"), qk_arguments
    ),
    "rotary_embedding": TableOperator(
        "rotary_embedding",
        rotary_embedding,
        ("X",),
        ("cos_cache", "sin_cache", "position_ids"),
        ("Y",),
        embedding_arguments,
    ),
}


@dataclass(frozen=True)
class BadTableCall:
    op: str
    name: str
    text: str
    changed: dict[str, Any]
    kind: type[Exception]
    python_only: bool

    def __str__(self):
        return f"{self.op}-{self.name}"


def bad(op, name, text, kind=ValueError, python_only=False, **changed):
    return BadTableCall(op, name, text, changed, kind, python_only)


of_mul, of_qk, of_embedding = (partial(bad, op) for op in OPS)
TYPES = "must be float32, float16, bfloat16 or float64 but got"
TABLE = "must have shape [S,W], [B,S,W] or [B,S,1,W] with S = 3, B = 2 or 1 and W = 4 or 8 but got"
WITH_IDS = "cos_cache must have shape [rows, W] with W >= 4 where position_ids is given but got"
WITHOUT_IDS = (
    "cos_cache must have shape [B,S,W] = [2, 3, W] with W >= 4 where position_ids is not given but got"
)
WIDTH = "rotary_dim must be 0 or an even number up to the head size 8 but got"
OVERLAP = "must share no memory with {} but got overlapping memory."
BUFFER = np.ones(2 * B * S * N * D, np.float32)
BUFFER_X = BUFFER[: B * S * N * D].reshape(B, S, N, D)
half, wide = np.float16, np.float64

BAD = [
    of_mul("x-int", f"x {TYPES} int32.", TypeError, x=ones(B, S, N, D, dtype=np.int32)),
    of_mul("x-2d", "x must have shape [B,S,N,D] or [S,N,D] but got [3, 8].", x=ones(3, 8)),
    of_mul(
        "cos-f16", "cos must have x's dtype float32 but got float16.", TypeError, cos=ones(S, 4, dtype=half)
    ),
    of_mul(
        "cos-f64",
        "cos must have x's dtype float16 or float32 but got float64.",
        TypeError,
        x=ones(B, S, N, D, dtype=half),
        cos=ones(S, 4, dtype=wide),
    ),
    of_mul(
        "sin-f64", "sin must have cos's dtype float32 but got float64.", TypeError, sin=ones(S, 4, dtype=wide)
    ),
    of_mul("cos-tokens", f"cos {TABLE} [4, 4].", cos=ones(4, 4)),
    of_mul("cos-width", f"cos {TABLE} [3, 6].", cos=ones(S, 6)),
    of_mul("cos-batch", f"cos {TABLE} [3, 3, 4].", cos=ones(3, S, 4)),
    of_mul("cos-heads", f"cos {TABLE} [2, 3, 4, 4].", cos=ones(B, S, N, 4)),
    of_mul("cos-1d", f"cos {TABLE} [4].", cos=ones(4)),
    of_mul(
        "cos-batch-of-one",
        "cos must have shape [S,W], [B,S,W] or [B,S,1,W] with S = 3, B = 1 and W = 4 or 8 but got [2, 3, 4].",
        x=ones(1, S, N, D),
        cos=ones(B, S, 4),
    ),
    of_mul(
        "cos-batch-of-none",
        "cos must have shape [S,W] or [S,1,W] with S = 3 and W = 4 or 8 but got [2, 3, 4].",
        x=ones(S, N, D),
        cos=ones(B, S, 4),
    ),
    of_mul("sin-shape", "sin must have cos's shape [3, 4] but got [3, 8].", sin=ones(S, 8)),
    of_mul("odd", f"{WIDTH} 3.", rotary_dim=3),
    of_mul("wide", f"{WIDTH} 10.", rotary_dim=10),
    of_mul("negative", f"{WIDTH} -2.", rotary_dim=-2),
    of_mul(
        "odd-head",
        "the head size must be even and positive where rotary_dim is 0 but got 7.",
        x=ones(B, S, N, 7),
    ),
    of_mul("offset-odd", "offset must be an even number >= 0 but got 1.", rotary_dim=4, offset=1),
    of_mul("offset-below", "offset must be an even number >= 0 but got -2.", rotary_dim=4, offset=-2),
    of_mul(
        "offset-far",
        "offset must be at most the head size 8 minus the rotated width 4 but got 6.",
        rotary_dim=4,
        offset=6,
    ),
    of_mul(
        "out-dtype",
        "out must have x's dtype float32 but got float16.",
        TypeError,
        out=ones(B, S, N, D, dtype=half),
    ),
    of_mul("out-shape", "out must have x's shape [2, 3, 4, 8] but got [2, 3, 4, 6].", out=ones(B, S, N, 6)),
    of_mul(
        "out-gaps",
        "out must have unit stride in its last dimension but got 2.",
        out=ones(B, S, N, 2 * D)[..., ::2],
    ),
    of_mul(
        "out-itself",
        "out must not overlap itself but got strides [0, 32, 8, 1].",
        out=strided(ones(B, S, N, D), 0, 32, 8, 1),
    ),
    of_mul(
        "out-shifted",
        "out must be x itself or share no memory with x but got overlapping memory.",
        x=BUFFER_X,
        out=BUFFER[8 : 8 + BUFFER_X.size].reshape(BUFFER_X.shape),
    ),
    of_mul("out-on-cos", "out " + OVERLAP.format("cos"), out=BUFFER_X, cos=BUFFER[:12].reshape(S, 4)),
    of_mul("out-on-sin", "out " + OVERLAP.format("sin"), out=BUFFER_X, sin=BUFFER[:12].reshape(S, 4)),
    of_mul("x-text", "x must be a torch tensor or a NumPy array but got str.", TypeError, True, x="x"),
    of_mul(
        "interleaved-text",
        "interleaved must be True or False but got 'half'.",
        TypeError,
        True,
        interleaved="half",
    ),
    of_mul(
        "rotary-tensor",
        "rotary_dim must be an integer but got tensor(4).",
        TypeError,
        True,
        rotary_dim=torch.tensor(4),
    ),
    of_mul(
        "interleaved-none",
        "interleaved must be True or False but got None.",
        TypeError,
        True,
        interleaved=None,
    ),
    of_embedding(
        "interleaved-2", "interleaved must be True or False but got 2.", TypeError, True, interleaved=2
    ),
    of_embedding(
        "interleaved-1.0", "interleaved must be True or False but got 1.0.", TypeError, True, interleaved=1.0
    ),
    of_mul("interleaved-2", "interleaved must be True or False but got 2.", TypeError, True, interleaved=2),
    of_mul("rotary-float", "rotary_dim must be an integer but got 4.0.", TypeError, True, rotary_dim=4.0),
    of_mul("offset-none", "offset must be an integer but got None.", TypeError, True, offset=None),
    of_qk(
        "k-dtype", "k must have q's dtype float32 but got float16.", TypeError, k=ones(B, S, 1, D, dtype=half)
    ),
    of_qk(
        "k-tokens",
        "k must have q's shape [2, 3, 4, 8] except for the heads but got [2, 4, 1, 8].",
        k=ones(B, 4, 1, D),
    ),
    of_qk("cos-tokens", f"cos {TABLE} [4, 8].", cos=ones(4, 8)),
    of_qk(
        "k_out-on-q",
        "k_out " + OVERLAP.format("q"),
        q=BUFFER_X,
        q_out=ones(B, S, N, D),
        k_out=BUFFER[: B * S * D].reshape(B, S, 1, D),
    ),
    of_embedding("X-2d", "X must have shape [B,N,S,D] or [B,S,hidden] but got [3, 8].", X=ones(3, 8)),
    of_embedding(
        "no-heads", "num_heads must be positive where X has shape [B,S,hidden] but got 0.", X=ones(B, S, 32)
    ),
    of_embedding(
        "heads", "num_heads must divide X's hidden size 32 but got 5.", X=ones(B, S, 32), num_heads=5
    ),
    of_embedding(
        "dim",
        "rotary_embedding_dim must be 0 or an even number up to the head size 8 but got 16.",
        rotary_embedding_dim=16,
    ),
    of_embedding(
        "odd-head",
        "the head size must be even and positive where rotary_embedding_dim is 0 but got 7.",
        X=ones(B, N, S, 7),
    ),
    of_embedding("cache-3d", f"{WITH_IDS} [2, 3, 4].", cos_cache=ones(B, S, 4)),
    of_embedding("cache-narrow", f"{WITH_IDS} [9, 3].", cos_cache=ones(9, 3)),
    of_embedding("cache-2d", f"{WITHOUT_IDS} [9, 4].", position_ids=None),
    of_embedding("cache-batch", f"{WITHOUT_IDS} [1, 3, 4].", position_ids=None, cos_cache=ones(1, S, 4)),
    of_embedding("sin", "sin_cache must have cos_cache's shape [9, 4] but got [8, 4].", sin_cache=ones(8, 4)),
    of_embedding(
        "ids-float",
        "position_ids must be int64 or int32 but got float32.",
        TypeError,
        position_ids=ones(B, S),
    ),
    of_embedding(
        "ids-1d", "position_ids must have shape [B, S] = [2, 3] but got [3].", position_ids=np.arange(3)
    ),
    of_embedding(
        "ids-beyond",
        "position_ids must be rows 0 to 8 of cos_cache but got 9.",
        position_ids=np.array([[0, 1, 2], [3, 9, 4]]),
    ),
    of_embedding(
        "ids-below",
        "position_ids must be rows 0 to 8 of cos_cache but got -1.",
        position_ids=np.array([[0, 1, 2], [3, -1, 4]]),
    ),
    of_embedding(
        "last-id-beyond-with-gaps",
        "position_ids must be rows 0 to 8 of cos_cache but got 9.",
        position_ids=np.array([[0, 0, 1, 0, 2, 0], [3, 0, 4, 0, 9, 0]])[:, ::2],
    ),
    of_embedding(
        "out-on-cache",
        "Y " + OVERLAP.format("cos_cache"),
        Y=BUFFER_X.reshape(B, N, S, D),
        cos_cache=BUFFER[:36].reshape(9, 4),
    ),
    of_embedding(
        "no-rows",
        "cos_cache must have a row where position_ids is given but got [0, 4].",
        cos_cache=ones(0, 4),
        sin_cache=ones(0, 4),
    ),
    of_embedding(
        "no-rows-for-one-token",
        "cos_cache must have a row where position_ids is given but got [0, 4].",
        X=ones(1, N, 1, D),
        position_ids=np.zeros((1, 1), np.int64),
        cos_cache=ones(0, 4),
        sin_cache=ones(0, 4),
    ),
    of_embedding("heads-float", "num_heads must be an integer but got 2.0.", TypeError, True, num_heads=2.0),
]


def arguments_of(case):
    """Return the operator, the arguments of a correct call with the case's changes, and its outputs."""
    op = OPS[case.op]
    arguments = {**op.correct(), **case.changed}
    outs = [arguments.pop(name, None) for name in op.outs]
    return op, arguments, outs


def arrays_of(arguments, outs):
    return [a for a in (*arguments.values(), *outs) if isinstance(a, np.ndarray)]


def tensor_converter():
    """Return a function that converts arrays to tensors. One array always gives the same tensor."""
    tensors = {}
    return lambda a: tensors.setdefault(id(a), to_torch(a)) if isinstance(a, np.ndarray) else a


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@together("case", BAD)
def test_a_bad_call_raises_the_same_error_on_every_back_end(case, framework, backend):
    op, arguments, outs = arguments_of(case)
    arrays = arrays_of(arguments, outs)
    before = [a.tobytes() for a in arrays]
    convert = tensor_converter() if framework == "torch" else lambda a: a
    arguments = {n: convert(a) for n, a in arguments.items()}
    passed = [convert(o) for o in outs if o is not None]
    out = None if not passed else passed[0] if len(op.outs) == 1 else tuple(passed)
    with pytest.raises(case.kind) as caught:
        op.call(**arguments, out=out, backend=backend)
    assert str(caught.value) == f"[{op.name}] {case.text}"
    assert before == [a.tobytes() for a in arrays]


@pytest.mark.parametrize("case", BAD, ids=str)
def test_a_bad_call_without_a_named_backend_raises_the_same_error(case):
    """Most calls of tensors take this path, which omits the checks that a correct call does not need."""
    op, arguments, outs = arguments_of(case)
    arrays = arrays_of(arguments, outs)
    before = [a.tobytes() for a in arrays]
    convert = tensor_converter()
    arguments = {n: convert(a) for n, a in arguments.items()}
    passed = [convert(o) for o in outs if o is not None]
    out = None if not passed else passed[0] if len(op.outs) == 1 else tuple(passed)
    with pytest.raises(case.kind) as caught:
        op.call(**arguments, out=out)
    assert str(caught.value) == f"[{op.name}] {case.text}"
    assert before == [a.tobytes() for a in arrays]


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize(
    ("out", "kind", "text"),
    [
        (5, TypeError, "out must be a pair (q_out, k_out) but got int."),
        ((1,), ValueError, "out must be a pair (q_out, k_out) but got 1 elements."),
        ((1, 2, 3), ValueError, "out must be a pair (q_out, k_out) but got 3 elements."),
        (ones(2, 2), TypeError, "out must be a pair (q_out, k_out) but got {array}."),
    ],
)
def test_out_of_rotary_mul_qk_must_be_a_pair(out, kind, text, framework):
    convert = to_torch if framework == "torch" else (lambda a: a)
    arguments = {name: convert(a) for name, a in qk_arguments().items()}
    out = convert(out) if isinstance(out, np.ndarray) else out
    with pytest.raises(kind) as caught:
        rotary_mul_qk(**arguments, out=out)
    array = "Tensor" if framework == "torch" else "ndarray"
    assert str(caught.value) == f"[rotary_mul_qk] {text.format(array=array)}"


C_INTEGERS = {
    "rotary_mul": ("rotary_dim", "offset"),
    "rotary_mul_qk": ("rotary_dim", "offset"),
    "rotary_embedding": ("num_heads", "rotary_embedding_dim"),
}


def entry_of(op):
    """Return the C function, and a function that returns the last error message."""
    library = native.load()
    entry = library.lib[f"npu_rope_{op.name}"]
    entry.restype = C.c_int32
    return entry, lambda: library.last_error().message.decode()


@pytest.mark.parametrize("case", [c for c in BAD if not c.python_only], ids=str)
def test_the_c_function_raises_the_same_error(case):
    op, arguments, outs = arguments_of(case)
    if outs[0] is None:
        outs = [np.full(arguments[x].shape, 7, arguments[x].dtype) for x in op.xs]
    before = [o.tobytes() for o in outs]

    def as_c_tensor(a):
        if a is None:
            return None
        return C.byref(
            c_tensor(a.ctypes.data, a.dtype.name, a.shape, tuple(s // a.itemsize for s in a.strides))
        )

    entry, last_error = entry_of(op)
    integers = [arguments.get(n, 0) for n in C_INTEGERS[op.name]]
    inputs = [as_c_tensor(arguments[n]) for n in (*op.xs, *op.tables)]
    status = entry(*inputs, C.c_int32(0), *map(C.c_int64, integers), C.c_int32(1), *map(as_c_tensor, outs))
    assert status == (2 if case.kind is TypeError else 1)
    assert last_error() == f"[{op.name}] {case.text}"
    assert before == [o.tobytes() for o in outs]


@pytest.mark.parametrize("op", OPS)
def test_null_arguments_are_named(op):
    op = OPS[op]
    entry, last_error = entry_of(op)
    tensor = c_tensor(ones(B, S, N, D).ctypes.data, "float32", (B, S, N, D), (96, 32, 8, 1))
    for missing in (*op.xs, *op.tables[:2], *op.outs):
        inputs = [None if n == missing else C.byref(tensor) for n in (*op.xs, *op.tables)]
        outputs = [None if n == missing else C.byref(tensor) for n in op.outs]
        assert entry(*inputs, C.c_int32(0), C.c_int64(0), C.c_int64(0), C.c_int32(1), *outputs) == 1
        assert last_error() == f"[{op.name}] {missing} must be a tensor but got NULL."


def test_a_wrong_gradient_is_refused():
    x, cos = ones(S, N, D), ones(S, 4)
    for grad, kind, text in (
        (ones(S, N, 6), ValueError, "grad must have x's shape [3, 4, 8] but got [3, 4, 6]."),
        (ones(S, N, D, dtype=half), TypeError, "grad must have x's dtype float32 but got float16."),
        (3, TypeError, "grad must be a torch tensor or a NumPy array but got int."),
    ):
        with pytest.raises(kind) as caught:
            rotary_mul_backward(grad, x, cos, cos)
        assert str(caught.value) == f"[rotary_mul] {text}"


def test_tables_of_the_other_framework_are_refused_for_tensors_only():
    x, cos = torch.ones(S, N, D), ones(S, 4)
    with pytest.raises(
        TypeError, match=r"^\[rotary_mul\] cos must be a torch tensor like x but got ndarray.$"
    ):
        rotary_mul(x, cos, cos)
    y = rotary_mul(x.numpy(), torch.from_numpy(cos), torch.from_numpy(cos))
    assert np.array_equal(y, rotary_mul(x.numpy(), cos, cos))
