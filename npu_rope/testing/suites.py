"""The suites of ``npu-rope validate``: their cases and their judges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from npu_rope.testing.cases import RopeCase, ggml_cases, model_cases
from npu_rope.testing.ggml import GgmlProcess
from npu_rope.testing.judge import judge as judge_rope
from npu_rope.testing.norm_ropes import NormRopeCase, judge_norm_ropes, norm_rope_cases
from npu_rope.testing.norms import NormCase, judge_norms, norm_cases
from npu_rope.testing.outcomes import AnyCase, CaseResult
from npu_rope.testing.pmx import judge_pmx, pmx_cases
from npu_rope.testing.port_case import PortCase
from npu_rope.testing.ports import PEER, judge_ports, port_cases
from npu_rope.testing.qkv_cases import qkv_cases
from npu_rope.testing.qkv_judge import judge_qkv
from npu_rope.testing.sequence_draw import DEFAULT_COUNT, sequence_cases
from npu_rope.testing.sequence_search import judge_sequence
from npu_rope.testing.tables import TableCase, judge_tables, onnx_cases, torch_npu_cases

# ggml's cases of 2,457 and 8,192 tokens take nine tenths of the time of all cases. The step has no common
# factor with the numbers of types, modes, scalings and directions in their order, so the kept ones have each.
LONG_TOKENS = 1024
LONG_STEP = 13


@dataclass(frozen=True)
class Suite:
    """Cases of one kind.

    Attributes:
        about: their description, for ``--help``.
        cases: returns all of them, in a fixed order; takes a seed and a number if the suite is drawn.
        judge: runs and judges one case on the named back ends, and on a real ggml if one is given.
        reruns: whether a failing case is run again in new processes; otherwise its judge does so.
        is_drawn: whether the cases are drawn from a seed.
    """

    about: str
    cases: Callable[..., Iterator[Any]]
    judge: Callable[[Any, list[str], GgmlProcess | None], CaseResult]
    reruns: bool = True
    is_drawn: bool = False


def _norm_cases() -> Iterator[NormCase | NormRopeCase]:
    yield from norm_cases()
    yield from norm_rope_cases()


def _judge_norm(
    case: NormCase | NormRopeCase, backends: list[str], ggml: GgmlProcess | None = None
) -> CaseResult:
    if isinstance(case, NormRopeCase):
        return judge_norm_ropes(case, backends, ggml)
    return judge_norms(case, backends, ggml)


def _torch_npu_cases() -> Iterator[TableCase | PortCase]:
    yield from torch_npu_cases()
    yield from port_cases()


def _judge_torch_npu(
    case: TableCase | PortCase, backends: list[str], ggml: GgmlProcess | None = None
) -> CaseResult:
    if isinstance(case, PortCase):
        return judge_ports(case, backends, ggml)
    return judge_tables(case, backends, ggml)


SUITES: Mapping[str, Suite] = {
    "ggml": Suite("ggml's own test cases of rope", ggml_cases, judge_rope),
    "models": Suite("rope with real models' parameters", model_cases, judge_rope),
    "onnx": Suite("ONNX's RotaryEmbedding", onnx_cases, judge_tables),
    "torch_npu": Suite(
        "torch_npu's rotary_mul, and the functions of compat.torch_npu beside torch_npu's own",
        _torch_npu_cases,
        _judge_torch_npu,
    ),
    "norm": Suite("ONNX's RMSNormalization, alone and fused with rope", _norm_cases, _judge_norm),
    "qkv": Suite("qkv_norm_rope_cache and qk_square_sums", qkv_cases, judge_qkv),
    "pmx": Suite("PMX's rotary embedding", pmx_cases, judge_pmx),
    "sequences": Suite(
        "two and three calls of rope one after another, drawn",
        sequence_cases,
        judge_sequence,
        reruns=False,
        is_drawn=True,
    ),
}


def all_cases(
    suites: tuple[str, ...] = tuple(SUITES), *, seed: int = 0, count: int = DEFAULT_COUNT
) -> list[AnyCase]:
    """Return every case of the suites, in a fixed order, once each. ``seed`` and ``count`` are those of the
    drawn cases."""
    seen: dict[tuple[str, str], AnyCase] = {}
    for suite in suites:
        for case in SUITES[suite].cases(*((seed, count) if SUITES[suite].is_drawn else ())):
            seen.setdefault((case.suite, case.name), case)
    return list(seen.values())


def without_most_long_cases(cases: list[AnyCase]) -> list[AnyCase]:
    """Leave out all but every ``LONG_STEP``-th of the long cases of rope."""
    long = [case for case in cases if isinstance(case, RopeCase) and case.shape[1] >= LONG_TOKENS]
    left_out = {case.name for case in long} - {case.name for case in long[::LONG_STEP]}
    return [case for case in cases if case.name not in left_out]


def executors_of(case: AnyCase, names: list[str]) -> list[str]:
    """Return those of the named executors that have the case's operation."""
    return [name for name in names if name != PEER or isinstance(case, PortCase)]


def judge(case: AnyCase, backends: list[str], ggml: GgmlProcess | None) -> CaseResult:
    """Run and judge one case of any suite."""
    return SUITES[case.suite].judge(case, backends, ggml)
