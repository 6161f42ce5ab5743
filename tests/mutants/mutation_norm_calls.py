"""The calls that a mutant of the norms' kernels must compute correctly. They cover each path of the kernels.

Exit status 0 or 1, as in mutation_rope_calls.py. Results are judged like those of random calls
(tests/fuzz/random_norms.py and random_norm_ropes.py): against the specification in long double.

usage: PYTHONPATH=tests/fuzz python tests/mutants/mutation_norm_calls.py [OP SOC DTYPE]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from mutation_rope_calls import judge_all, last_warning

# Import these after the module above, which prevents the import of torch.
import numpy as np  # isort: skip

from ascend_sim import Options

from npu_rope.executors import rms_norm, rotations  # isort: skip
from npu_rope.params import RopeParams  # isort: skip
from npu_rope.rms_norm_calls import RmsNormAttributes  # isort: skip
from npu_rope.rms_norm_rope_calls import RmsNormRopeAttributes, rms_norm_rope_tensors  # isort: skip
import random_norm_ropes  # isort: skip
import random_norms  # isort: skip
from random_norms import rounded  # isort: skip

BF16, F16, F32 = "bfloat16", "float16", "float32"
A, P = "ascend910b", "ascend310p"
BACKENDS = {A: "sim", P: "sim:ascend310p"}
# The compiled columns: the first tensor's type and the type of the others.
SCALES = {
    ("rms_norm", A): {F16: F16, BF16: F32, F32: F16},
    ("add_rms_norm", A): {F16: F32, F32: F32},
    ("rms_norm_backward", A): {BF16: BF16, F16: F32, F32: F32},  # the gradient's type, and then x's
    ("rms_norm", P): {F16: F16, F32: F32},
    ("add_rms_norm", P): {F16: F16, F32: F32},
    ("rms_norm_backward", P): {F16: F16, F32: F32},
}
INT = {A: {BF16: np.int32, F16: np.int64, F32: np.int32}, P: {F16: np.int32, F32: np.int64}}


@dataclass(frozen=True)
class NormRun:
    """A call of rms_norm, add_rms_norm or rms_norm_backward; ``dtype`` is its first tensor's.

    ``pad``: elements after each row; ``sizes``: x's rows in turn are multiplied by 2 to these powers;
    ``scale``: the scale's shape, if it is not a row's; ``cores``: number of cores, 0 for all; ``spike``: the
    power of 2 by which each row's last element is larger, with a negative sign."""

    op: str
    soc: str
    dtype: str
    shape: tuple[int, ...]
    axis: int = -1
    pad: int = 0
    scale: tuple[int, ...] = ()
    sizes: tuple[int, ...] = (0,)
    epsilon: float = 1e-5
    stash: int = 1
    in_place: bool = False
    cores: int = 0
    spike: int = 0


@dataclass(frozen=True)
class Heads:
    """A call of rms_norm_rope; ``heads``: the numbers of heads of queries and keys."""

    soc: str
    dtype: str
    shape: tuple[int, int, int]  # batches, tokens, lanes of a head
    params: RopeParams
    heads: tuple[int, int] = (3, 2)
    pad: int = 0
    cache: bool = False
    intermediate: bool = False
    in_place: bool = False
    sizes: tuple[int, ...] = (0,)
    factors: bool = False
    far: int = 1000
    cores: int = 0
    op: str = "rms_norm_rope"


FAR_SIZES = {BF16: (0, 90, -90), F16: (0, 6, -9), F32: (0, 90, -90)}


def calls() -> list[NormRun | Heads]:
    made: list[NormRun | Heads] = []
    for (op, soc), types in SCALES.items():
        for dtype, other in types.items():
            x = other if op == "rms_norm_backward" else dtype
            made += _of_every_path(op, soc, dtype, FAR_SIZES[x])
    for soc, integers in INT.items():
        for dtype in integers:
            made += _heads(soc, dtype)
    return made


def _of_every_path(op: str, soc: str, dtype: str, far: tuple[int, ...]) -> list[NormRun | Heads]:
    one = lambda *a, **k: NormRun(op, soc, dtype, *a, **k)  # noqa: E731
    made = [
        # Many rows a tile: whole repeats, blocks, neither; fewer lanes than a block; more rows than a repeat.
        one((3, 41, 256)),
        one((530, 72)),
        one((90, 50)),
        one((9, 244)),
        one((130, 5)),
        one((40, 8)),
        one((2, 300, 16)),
        one((1, 4096)),
        one((1, 1)),
        one((9, 1000), in_place=op != "rms_norm_backward"),
        one((3, 7, 96), 1),
        # Gaps between the rows; rows of every size their type has, of zeros, and epsilon 0.
        one((37, 128), pad=16),
        one((37, 100), pad=3),
        one((70, 64), sizes=far),
        one((70, 60), sizes=far, epsilon=0.0),
        # Rows whose scaling depends on one element only, the last one.
        *([one((70, 64), sizes=(-90,), spike=170)] if far[1] == 90 else []),
        # Stash types of 16 bits.
        one((40, 130), stash=10, epsilon=1e-3),
        # Rows in chunks: rows that stay in UB and rows that are read twice; ends of whole and partial blocks.
        one((3, 12288)),
        one((2, 30_000), sizes=far[::-1]),
        one((2, 40_003), epsilon=0.0),
        one((1, 100_001), sizes=far[2:]),
        one((1, 17_000), stash=10, epsilon=1e-3),
        # Many tiles per core, where missing overlap makes the call slower; many chunks.
        one((300, 256), cores=2),
        one((5, 20_000), cores=1),
        # The most rows of one instruction, and wide rows over rows; the most repeats along a row.
        one((255, 16), cores=1),
        one((510, 12), cores=1),
        one((20, 1000), cores=1),
        one((1, 16_320)),
    ]
    if soc == A:
        made.append(one((40, 130), stash=16, epsilon=1e-3))
    if op != "rms_norm_backward":  # scales that differ between rows
        made += [
            one((5, 9, 72), scale=(9, 72)),
            one((5, 9, 72), scale=(5, 1, 72)),
            one((5, 9, 72), scale=(5, 9, 1)),
            one((5, 9, 4, 8), 2, scale=(4, 1)),
            one((3, 2, 2, 8), 0, scale=(3, 1, 2, 1)),
            one((5, 9, 50), scale=(1,)),
            one((2, 20_000), scale=(2, 20_000)),
            one((2, 20_000), scale=(2, 1)),
        ]
    return made


def _heads(soc: str, dtype: str) -> list[NormRun | Heads]:
    one = lambda *a, **k: Heads(soc, dtype, *a, **k)  # noqa: E731
    neox, normal = RopeParams(128, "neox"), RopeParams(64, "normal")
    far = FAR_SIZES[dtype]
    return [
        one((1, 40, 128), neox, (8, 2)),
        one((2, 33, 64), normal, (4, 3), far=90_000),
        one((1, 1, 128), neox, (32, 8)),
        one((2, 9, 128), neox, (6, 6), in_place=True),
        one((1, 50, 128), RopeParams(64, "neox", n_offs=16)),
        one((1, 17, 70), RopeParams(30, "normal", n_offs=10)),
        one((1, 17, 36), RopeParams(36, "neox")),
        one((2, 9, 6), RopeParams(6, "neox")),
        one((1, 19, 64), RopeParams(64, "mrope", sections=(8, 12, 12, 0))),
        one((1, 41, 64), normal, pad=8, factors=True),
        one((1, 41, 66), RopeParams(66, "neox"), pad=5),
        one((1, 40, 128), neox, cache=True),
        one((1, 20, 36), RopeParams(36, "normal"), cache=True),
        one((1, 40, 128), neox, (8, 2), intermediate=True),
        one((1, 17, 70), RopeParams(30, "normal", n_offs=10), intermediate=True),
        one((1, 40, 64), RopeParams(64, "neox"), sizes=far),
        one((1, 40, 64), RopeParams(64, "neox"), sizes=far, intermediate=True),
        one((1, 40, 64), RopeParams(64, "normal"), sizes=far),
        one((1, 40, 64), RopeParams(64, "normal"), sizes=far, intermediate=True),
        # Many tiles per core, where missing overlap makes the call slower.
        one((1, 50, 128), neox, (8, 2), cores=2),
    ]


def numbers(
    rng: np.random.Generator, shape: tuple[int, ...], sizes: tuple[int, ...], dtype: str, spike: int = 0
) -> Any:
    """Rows around 1 and around the other sizes; every fortieth row, from the eleventh on, is zero."""
    values = rng.standard_normal(shape).reshape(-1, shape[-1])
    for at, size in enumerate(sizes):
        values[at :: len(sizes)] *= 2.0**size
    values[10::40] = 0
    if spike:
        values[:, -1] = -np.abs(values[:, -1]) * 2.0**spike
    return rounded(values.reshape(shape), dtype)


def with_gaps(a: Any, pad: int) -> Any:
    if pad == 0:
        return a
    memory = np.zeros((*a.shape[:-1], a.shape[-1] + pad), a.dtype)
    view = memory[..., : a.shape[-1]]
    view[...] = a
    return view


def norm_draw(call: NormRun) -> random_norms.NormDraw:
    """The call in the form that random_norms judges."""
    rng = np.random.default_rng(sum(call.shape))
    backward = call.op == "rms_norm_backward"
    other = SCALES[call.op, call.soc][call.dtype]
    x_dtype, scale_dtype = (other, call.dtype) if backward else (call.dtype, other)
    x = with_gaps(numbers(rng, call.shape, call.sizes, x_dtype, call.spike), call.pad)
    shape = call.scale or call.shape[call.axis :]
    scale = rounded(rng.uniform(-2, 2, shape), scale_dtype)
    grad = rounded(rng.standard_normal(call.shape), scale_dtype) if backward else None
    residual = numbers(rng, call.shape, call.sizes, x_dtype) if call.op == "add_rms_norm" else None
    outs: tuple[Any, ...] = ()
    if call.in_place and x_dtype == scale_dtype:
        outs = (x,)
    elif call.pad and not backward:
        outs = (with_gaps(np.zeros(call.shape, scale.dtype), call.pad),)
    if outs and residual is not None:
        outs = (*outs, residual)
    a = RmsNormAttributes(call.axis, call.epsilon, call.stash)
    return random_norms.NormDraw(str(call), x, scale, grad, residual, outs, x_dtype, scale_dtype, a)


def heads_draw(call: Heads) -> random_norm_ropes.NormRopeDraw:
    """The call in the form that random_norm_ropes judges."""
    rng = np.random.default_rng(sum(call.shape))
    batches, tokens, lanes = call.shape
    lead = (batches, tokens)
    xs = [with_gaps(numbers(rng, (*lead, n, lanes), call.sizes, call.dtype), call.pad) for n in call.heads]
    scales = [rounded(rng.uniform(-2, 2, lanes), call.dtype) for _ in xs]
    planes = (4,) if call.params.rope_mode.has_sections else ()
    positions = rng.integers(0, call.far, (*planes, tokens)).astype(INT[call.soc][call.dtype])
    factors = rng.uniform(0.5, 4, call.params.pairs).astype(np.float32) if call.factors else None
    rows, outs = None, None
    if call.in_place:
        outs = (xs[0], xs[1])
    if call.cache:
        count = batches * tokens
        rows = rng.permutation(count + 3)[:count].reshape(lead)
        rows[..., ::5] = -1
        cache = rounded(rng.standard_normal((count + 3, call.heads[1], lanes)), call.dtype)
        outs = (np.zeros(xs[0].shape, xs[0].dtype), cache)
    t = rms_norm_rope_tensors(xs[0], xs[1], scales[0], scales[1], positions, factors, outs, rows)
    a = RmsNormRopeAttributes(call.params, 1e-6, call.intermediate)
    return random_norm_ropes.NormRopeDraw(str(call), t, call.dtype, a)


def check(call: NormRun | Heads) -> str:
    """The detected problem, or an empty string."""
    backend = BACKENDS[call.soc]
    of_operator = rotations if isinstance(call, Heads) else rms_norm
    options = Options(call.soc, most_cores=call.cores)
    of_operator.run = lambda _, t, a: of_operator.on_sim(options, t, a)
    if isinstance(call, Heads):
        ratio = random_norm_ropes.judge(heads_draw(call), backend, parts=False)
    else:
        ratio = random_norms.judge(norm_draw(call), backend)
    return last_warning() if ratio <= 1 else f"error {ratio:.3g} times its bound of {call}"


def main(op: str = "", soc: str = "", dtype: str = "") -> int:
    return judge_all(calls(), check, op, soc, dtype)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
