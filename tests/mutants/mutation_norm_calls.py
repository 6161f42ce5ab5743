"""Calls that a mutant of the norms' kernels must compute correctly. They cover the paths of the kernels.

Exit status 0 or 1, as in mutation_rope_calls.py. Results are judged like those of random calls
(tests/fuzz/random_norm_calls.py and random_norm_ropes.py): against the specification in long double.

usage: PYTHONPATH=tests/fuzz python tests/mutants/mutation_norm_calls.py [OP SOC DTYPE]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from mutation_rope_calls import BF16, F16, F32, POSITION_DTYPES, SOC_310P, SOC_910B, judge_all, last_warning

# Import these after the module above, which prevents the import of torch.
import numpy as np  # isort: skip

from ascend_sim import Options

from npu_rope.executors import rms_norm, rotations  # isort: skip
from npu_rope.params import RopeParams  # isort: skip
from npu_rope.rms_norm_calls import RmsNormAttributes  # isort: skip
from npu_rope.rms_norm_rope_calls import RmsNormRopeAttributes, rms_norm_rope_tensors  # isort: skip
import random_norm_ropes  # isort: skip
import random_norm_calls  # isort: skip
from random_norm_calls import rounded  # isort: skip

BACKENDS = {SOC_910B: "sim", SOC_310P: "sim:ascend310p"}
# The compiled columns: the dtypes of x and the scale; of backward, those of the gradient and x.
OTHER_DTYPES = {
    ("rms_norm", SOC_910B): {F16: F16, BF16: F32, F32: F16},
    ("add_rms_norm", SOC_910B): {F16: F32, F32: F32},
    ("rms_norm_backward", SOC_910B): {BF16: BF16, F16: F32, F32: F32},
    ("rms_norm", SOC_310P): {F16: F16, F32: F32},
    ("add_rms_norm", SOC_310P): {F16: F16, F32: F32},
    ("rms_norm_backward", SOC_310P): {F16: F16, F32: F32},
}


@dataclass(frozen=True)
class NormRun:
    """A call of rms_norm, add_rms_norm or rms_norm_backward.

    Attributes:
        dtype: that of the call's first tensor.
        pad: elements after each row.
        scale: the scale's shape; empty for that of a row.
        powers: x's rows in turn are multiplied by 2 to these powers.
        cores: number of cores; 0 for all.
        spike: if not 0, each row's last element is made negative and multiplied by 2 to this power.
        deterministic: the order of the cores does not change dscale.
    """

    op: str
    soc: str
    dtype: str
    shape: tuple[int, ...]
    axis: int = -1
    pad: int = 0
    scale: tuple[int, ...] = ()
    powers: tuple[int, ...] = (0,)
    epsilon: float = 1e-5
    stash: int = 1
    in_place: bool = False
    cores: int = 0
    spike: int = 0
    deterministic: bool = False


@dataclass(frozen=True)
class NormRopeRun:
    """A call of rms_norm_rope. Fields without a description are as in NormRun.

    Attributes:
        heads: the numbers of heads of queries and keys.
        far: the limit of the positions.
    """

    soc: str
    dtype: str
    shape: tuple[int, int, int]  # batches, tokens, lanes of a head
    params: RopeParams
    heads: tuple[int, int] = (3, 2)
    pad: int = 0
    cache: bool = False
    intermediate: bool = False
    in_place: bool = False
    powers: tuple[int, ...] = (0,)
    factors: bool = False
    far: int = 1000
    cores: int = 0
    op: str = "rms_norm_rope"


POWERS = {BF16: (0, 90, -90), F16: (0, 6, -9), F32: (0, 90, -90)}


def calls() -> list[NormRun | NormRopeRun]:
    made: list[NormRun | NormRopeRun] = []
    for (op, soc), types in OTHER_DTYPES.items():
        for dtype, other in types.items():
            x = other if op == "rms_norm_backward" else dtype
            made += _norm_calls(op, soc, dtype, POWERS[x])
    for soc, position_dtypes in POSITION_DTYPES.items():
        for dtype in position_dtypes:
            made += _norm_rope_calls(soc, dtype)
    return made


def _norm_calls(op: str, soc: str, dtype: str, powers: tuple[int, ...]) -> list[NormRun | NormRopeRun]:
    run = lambda *a, **k: NormRun(op, soc, dtype, *a, **k)  # noqa: E731
    made = [
        # Many rows a tile: rows of whole repeats, of whole blocks, of neither, and shorter than a block.
        run((3, 41, 256)),
        run((530, 72)),
        run((90, 50)),
        run((9, 244)),
        run((130, 5)),
        run((40, 8)),
        run((2, 300, 16)),
        run((1, 4096)),
        run((1, 1)),
        run((9, 1000), in_place=op != "rms_norm_backward"),
        run((3, 7, 96), 1),
        # Gaps between the rows; large, small and zero rows; epsilon 0.
        run((37, 128), pad=16),
        run((37, 100), pad=3),
        run((70, 64), powers=powers),
        run((70, 60), powers=powers, epsilon=0.0),
        # Rows whose scaling depends only on the last element.
        *([run((70, 64), powers=(-90,), spike=170)] if powers[1] == 90 else []),
        # Stash types of 16 bits.
        run((40, 130), stash=10, epsilon=1e-3),
        # Rows in chunks: rows that stay in UB and rows that are read twice; ends of whole and partial blocks.
        run((3, 12288)),
        run((2, 30_000), powers=powers[::-1]),
        run((2, 40_003), epsilon=0.0),
        run((1, 100_001), powers=powers[2:]),
        run((1, 17_000), stash=10, epsilon=1e-3),
        # Many tiles per core, where missing overlap makes the call slower; many chunks.
        run((300, 256), cores=2),
        run((5, 20_000), cores=1),
        # The most rows of one instruction; wide rows; the most repeats along a row.
        run((255, 16), cores=1),
        run((510, 12), cores=1),
        run((20, 1000), cores=1),
        run((21, 2051), cores=1),
        run((600, 9), cores=1),
        run((1, 16_320)),
    ]
    if soc == SOC_910B:
        made.append(run((40, 130), stash=16, epsilon=1e-3))
    if op == "rms_norm_backward":
        # Sums of whole rows, of chunks that stay in UB, and of longer rows; shares with and without a rest.
        made += [
            run(shape, deterministic=True)
            for shape in ((333, 64), (97, 1003), (40, 5), (7, 20_001), (5, 70_001), (3, 65_536))
        ]
        made += [run((300, 256), cores=3, deterministic=True), run((5, 70_001), cores=2, deterministic=True)]
    else:  # scales that differ between rows
        made += [
            run((5, 9, 72), scale=(9, 72)),
            run((5, 9, 72), scale=(5, 1, 72)),
            run((5, 9, 72), scale=(5, 9, 1)),
            run((5, 9, 4, 8), 2, scale=(4, 1)),
            run((3, 2, 2, 8), 0, scale=(3, 1, 2, 1)),
            run((5, 9, 50), scale=(1,)),
            run((2, 20_000), scale=(2, 20_000)),
            run((2, 20_000), scale=(2, 1)),
        ]
    return made


def _norm_rope_calls(soc: str, dtype: str) -> list[NormRun | NormRopeRun]:
    run = lambda *a, **k: NormRopeRun(soc, dtype, *a, **k)  # noqa: E731
    neox, normal = RopeParams(128, "neox"), RopeParams(64, "normal")
    powers = POWERS[dtype]
    return [
        run((1, 40, 128), neox, (8, 2)),
        run((2, 33, 64), normal, (4, 3), far=90_000),
        run((1, 1, 128), neox, (32, 8)),
        run((2, 9, 128), neox, (6, 6), in_place=True),
        run((1, 50, 128), RopeParams(64, "neox", n_offs=16)),
        run((1, 17, 70), RopeParams(30, "normal", n_offs=10)),
        run((1, 17, 36), RopeParams(36, "neox")),
        run((2, 9, 6), RopeParams(6, "neox")),
        run((1, 19, 64), RopeParams(64, "mrope", sections=(8, 12, 12, 0))),
        run((1, 41, 64), normal, pad=8, factors=True),
        run((1, 41, 66), RopeParams(66, "neox"), pad=5),
        run((1, 40, 128), neox, cache=True),
        run((1, 20, 36), RopeParams(36, "normal"), cache=True),
        run((1, 40, 128), neox, (8, 2), intermediate=True),
        run((1, 17, 70), RopeParams(30, "normal", n_offs=10), intermediate=True),
        run((1, 40, 64), RopeParams(64, "neox"), powers=powers),
        run((1, 40, 64), RopeParams(64, "neox"), powers=powers, intermediate=True),
        run((1, 40, 64), RopeParams(64, "normal"), powers=powers),
        run((1, 40, 64), RopeParams(64, "normal"), powers=powers, intermediate=True),
        # Many tiles per core, where missing overlap makes the call slower.
        run((1, 50, 128), neox, (8, 2), cores=2),
    ]


def random_rows(
    rng: np.random.Generator, shape: tuple[int, ...], powers: tuple[int, ...], dtype: str, spike: int = 0
) -> Any:
    """Rows around 2 to these powers in turn. From the eleventh row on, every fortieth row is zero."""
    values = rng.standard_normal(shape).reshape(-1, shape[-1])
    for at, power in enumerate(powers):
        values[at :: len(powers)] *= 2.0**power
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


def norm_draw(call: NormRun) -> random_norm_calls.NormDraw:
    """The call in the form that random_norm_calls judges."""
    rng = np.random.default_rng(sum(call.shape))
    backward = call.op == "rms_norm_backward"
    other = OTHER_DTYPES[call.op, call.soc][call.dtype]
    x_dtype, scale_dtype = (other, call.dtype) if backward else (call.dtype, other)
    x = with_gaps(random_rows(rng, call.shape, call.powers, x_dtype, call.spike), call.pad)
    shape = call.scale or call.shape[call.axis :]
    scale = rounded(rng.uniform(-2, 2, shape), scale_dtype)
    grad = rounded(rng.standard_normal(call.shape), scale_dtype) if backward else None
    residual = random_rows(rng, call.shape, call.powers, x_dtype) if call.op == "add_rms_norm" else None
    outs: tuple[Any, ...] = ()
    if call.in_place and x_dtype == scale_dtype:
        outs = (x,)
    elif call.pad and not backward:
        outs = (with_gaps(np.zeros(call.shape, scale.dtype), call.pad),)
    if outs and residual is not None:
        outs = (*outs, residual)
    a = RmsNormAttributes(call.axis, call.epsilon, call.stash)
    return random_norm_calls.NormDraw(str(call), x, scale, grad, residual, outs, x_dtype, scale_dtype, a)


def heads_draw(call: NormRopeRun) -> random_norm_ropes.NormRopeDraw:
    """The call in the form that random_norm_ropes judges."""
    rng = np.random.default_rng(sum(call.shape))
    batches, tokens, lanes = call.shape
    lead = (batches, tokens)
    xs = [
        with_gaps(random_rows(rng, (*lead, n, lanes), call.powers, call.dtype), call.pad) for n in call.heads
    ]
    scales = [rounded(rng.uniform(-2, 2, lanes), call.dtype) for _ in xs]
    planes = (4,) if call.params.rope_mode.has_sections else ()
    positions = rng.integers(0, call.far, (*planes, tokens)).astype(POSITION_DTYPES[call.soc][call.dtype])
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


def check(call: NormRun | NormRopeRun) -> str:
    """The detected problem, or an empty string."""
    backend = BACKENDS[call.soc]
    executors = rotations if isinstance(call, NormRopeRun) else rms_norm
    is_deterministic = isinstance(call, NormRun) and call.deterministic
    options = Options(call.soc, most_cores=call.cores, deterministic=is_deterministic)
    executors.run = lambda _, t, a: executors.on_sim(options, t, a)
    if isinstance(call, NormRopeRun):
        ratio = random_norm_ropes.judge(heads_draw(call), backend, parts=False)
    else:
        ratio = random_norm_calls.judge(norm_draw(call), backend)
    return last_warning() if ratio <= 1 else f"error {ratio:.3g} times its bound of {call}"


def main(op: str = "", soc: str = "", dtype: str = "") -> int:
    return judge_all(calls(), check, op, soc, dtype)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
