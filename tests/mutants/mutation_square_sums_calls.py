"""Calls that a mutant of qk_square_sums' kernel must compute correctly. They cover its paths.

Exit status 0 or 1, as in mutation_rope_calls.py. Results are compared with float64, within the bound of
npu_rope/testing/bounds.py.

usage: python tests/mutants/mutation_square_sums_calls.py [OP SOC DTYPE]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from mutation_rope_calls import BF16, F16, F32, SOC_310P, SOC_910B, judge_all, last_warning

# Import these after the module above, which prevents the import of torch.
import numpy as np  # isort: skip

from ascend_sim import Options  # isort: skip

from mutation_qkv_calls import values_of  # isort: skip
from mutation_rotary_calls import rounded  # isort: skip
from npu_rope.call_tensors import CallTensors  # isort: skip
from npu_rope.executors import qk_square_sums as executors  # isort: skip
from npu_rope.testing.bounds import square_sums_bound, worst_ratio  # isort: skip

LONGEST_WHOLE_HEAD = 8192  # elements; longer heads are processed in chunks
FILL = 7  # of the sums before the call


@dataclass(frozen=True)
class SquareSumsRun:
    """A call of qk_square_sums. q and k are views of one tensor.

    Attributes:
        heads: numbers of heads of q and k.
        pad: elements after each head.
        tokens_inner: the tokens of a head follow each other in memory, not the heads of a token.
        cores: maximum number of cores; 0 for all.
    """

    soc: str
    dtype: str
    tokens: int
    heads: tuple[int, int]
    head_size: int
    pad: int = 0
    tokens_inner: bool = False
    cores: int = 0
    op: str = "qk_square_sums"


def calls() -> list[SquareSumsRun]:
    dtypes = {SOC_910B: (F32, F16, BF16), SOC_310P: (F16, F32)}
    return [call for soc, names in dtypes.items() for name in names for call in _calls(soc, name)]


def _calls(soc: str, dtype: str) -> list[SquareSumsRun]:
    run = lambda *a, **k: SquareSumsRun(soc, dtype, *a, **k)  # noqa: E731
    return [
        # Several tiles of each side on a core. Rows of whole repeats, and others. Tiles that fill buffers.
        run(300, (6, 2), 128, cores=2),
        run(130, (4, 4), 40, cores=2),
        run(90, (5, 2), 34, cores=1),
        run(33, (3, 1), 36, pad=3),
        run(40, (3, 2), 64, pad=16, cores=3),
        run(50, (3, 5), 24, tokens_inner=True, cores=2),
        # Small calls, in which one more instruction takes a noticeable time.
        run(5, (1, 1), 64, cores=1),
        run(9, (3, 1), 5),
        # As many blocks of 64 lanes, or as many tokens, as an instruction has repeats, and more.
        run(1, (255, 2), 64, cores=1),
        run(2, (300, 3), 64, cores=1),
        run(511, (1, 1), 8, cores=1),
        # Several blocks of tokens on a core.
        run(1030, (1, 1), 8, cores=1),
        # Sides without heads.
        run(9, (0, 3), 40),
        run(9, (3, 0), 40),
        # Tokens that do not fit UB, on one core and on several.
        run(5, (700, 3), 132, cores=1),
        run(4, (3, 701), 128, pad=4, cores=2),
        run(1, (400, 100), 256),
        run(3, (600, 200), 128),
        # Heads that do not fit UB.
        run(5, (2, 1), LONGEST_WHOLE_HEAD + 1, cores=2),
        run(2, (1, 2), 3 * LONGEST_WHOLE_HEAD, pad=8, cores=1),
        run(1, (5, 2), 30_003),
        # A last chunk of 512 lanes, the fewest that are reduced to sums of blocks.
        run(2, (1, 1), LONGEST_WHOLE_HEAD + 512, cores=1),
        # Few sums, and long heads whose sums have a rest after whole blocks.
        run(1, (2, 1), 64),
        run(3, (2, 1), 50),
        run(6, (1, 1), LONGEST_WHOLE_HEAD + 40, cores=1),
    ]


def inputs_of(call: SquareSumsRun) -> list[np.ndarray]:
    """q and k as they are stored."""
    rng = np.random.default_rng([call.tokens, call.head_size, *call.heads])
    width = call.head_size + call.pad
    shape = (call.tokens, sum(call.heads), width)
    if call.tokens_inner:
        shape = (sum(call.heads), call.tokens, width)
    fused = rounded(rng.standard_normal(shape).astype(np.float32), call.dtype)[0][..., : call.head_size]
    if call.tokens_inner:
        fused = fused.transpose(1, 0, 2)
    return np.split(fused, call.heads[:1], axis=1)


def check(call: SquareSumsRun) -> str:
    """The detected problem, or an empty string."""
    xs = inputs_of(call)
    out = np.full((call.tokens, 2), FILL, np.float32)
    tensors = CallTensors(call.op, dict(zip("qk", xs, strict=True)))
    executors.launch_on_sim(Options(call.soc, most_cores=call.cores), tensors, (out,), {})
    for side, x in enumerate(xs):
        sums = (values_of(x).astype(np.float64) ** 2).sum((1, 2))
        bound = square_sums_bound(sums, x.shape[1] * x.shape[2], call.dtype, "sim")
        ratio, at = worst_ratio(out[:, side], sums, bound)
        if not ratio <= 1:
            return f"error {ratio:.3g} times its bound at {at} of {'qk'[side]} of {call}"
    return last_warning()


def main(op: str = "", soc: str = "", dtype: str = "") -> int:
    return judge_all(calls(), check, op, soc, dtype)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
