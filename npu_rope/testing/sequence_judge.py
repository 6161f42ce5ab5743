"""Run and judge a sequence.

Every call of a sequence is judged as a case of suite ggml is, on every back end of npu_rope and by ggml. A
back end of npu_rope runs the calls one after another. On a device of ggml (``--ggml-device``), the CPU
backend of the same library also runs the sequence (``ggml:CPU``): if it fails, the fault is not the device's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from npu_rope.params import RopeParams
from npu_rope.testing.cases import CaseData
from npu_rope.testing.ggml import (
    GgmlFailed,
    GgmlInfo,
    GgmlProcess,
    GgmlRefused,
    GgmlRope,
    GgmlStep,
    GgmlUnavailable,
    Start,
    StepResult,
)
from npu_rope.testing.judge import Array, ggml_call, ggml_cannot, judge_data
from npu_rope.testing.outcomes import FAIL, OK, UNSUPPORTED, CaseResult, Judgement
from npu_rope.testing.sequences import CallSequence

CPU = "CPU"  # ggml's name of its CPU device
ON_CPU = "ggml:CPU"
_STARTS: tuple[Start, ...] = ("node", "graph", "backend")


def judge_as_given(
    sequence: CallSequence, backends: list[str], ggml: GgmlProcess | None, *, also_on_cpu: bool = True
) -> CaseResult:
    """Run and judge a sequence as it is."""
    return result_of(sequence, judge_calls(sequence, backends, ggml, also_on_cpu=also_on_cpu))


def result_of(sequence: CallSequence, results: list[CaseResult]) -> CaseResult:
    """Return a result for the sequence from those of its calls."""
    names = [judgement.executor for judgement in results[0].judgements]
    return CaseResult(
        sequence, [_merged([judgement_of(result, name) for result in results]) for name in names]
    )


def judge_calls(
    sequence: CallSequence, backends: list[str], ggml: GgmlProcess | None, *, also_on_cpu: bool
) -> list[CaseResult]:
    """Return a result for each call."""
    data = [node.data() for node in sequence.nodes]
    cases = [node.rope_case for node in sequence.nodes]
    results = [
        judge_data(case, case_data, backends, None) for case, case_data in zip(cases, data, strict=True)
    ]
    if ggml is None:
        return results
    devices = {"ggml": ""}
    if also_on_cpu and ggml.info.device not in ("", CPU):
        devices[ON_CPU] = CPU
    for executor, device in devices.items():
        for i, returned in enumerate(_run(sequence, data, ggml, device)):
            (judgement,) = judge_data(cases[i], data[i], [], returned).judgements
            judgement.executor = executor
            if judgement.verdict == OK and returned.failed:
                judgement.verdict, judgement.message = FAIL, returned.failed
            results[i].judgements.append(judgement)
    return results


def judgement_of(result: CaseResult, executor: str) -> Judgement:
    """Return the judgement of one executor, which has run the case."""
    judgement = result.by(executor)
    assert judgement is not None
    return judgement


_TABLES = ("neither", "float32", "fused", "plain", "")


def _merged(judgements: list[Judgement]) -> Judgement:
    """Return one executor's judgement on all calls: the worst, with the call's number."""
    ran = [judgement for judgement in judgements if judgement.verdict != UNSUPPORTED]
    if not ran:
        return judgements[0]
    failed = [judgement for judgement in ran if judgement.verdict == FAIL]
    wrong = [judgement for judgement in failed if not judgement.message]
    chosen = max(wrong or failed[:1] or ran, key=lambda j: -1.0 if math.isnan(j.ratio) else j.ratio)
    merged = replace(chosen, table=min((j.table for j in ran), key=_TABLES.index))
    if len(judgements) > 1:
        number = next(i for i, judgement in enumerate(judgements, 1) if judgement is chosen)
        if chosen.message and not all(judgement.message == chosen.message for judgement in ran):
            merged.message = f"call {number}: {chosen.message}"
        if chosen.worst is not None:
            merged.worst = replace(chosen.worst, names=f"{chosen.worst.names} of call {number}")
    exact = [judgement.exact_error for judgement in ran if judgement.exact_error is not None]
    near = [judgement.near_cpu for judgement in ran if judgement.near_cpu is not None]
    equal = [judgement.bit_equal for judgement in ran if judgement.bit_equal is not None]
    merged.exact_error = max(exact, default=None)
    merged.near_cpu = min(near, default=None)
    merged.bit_equal = sum(equal) / len(equal) if equal else None
    return merged


# ---- ggml ------------------------------------------------------------------------------------------


@dataclass
class _Returned:
    """The results of one call that ggml returned. ``judge_data`` uses this object in the place of ggml."""

    info: GgmlInfo
    too_old: str
    result: StepResult | GgmlFailed

    @property
    def failed(self) -> str:
        """The reason why the call failed although it has a result."""
        return "" if isinstance(self.result, GgmlFailed) else self.result.failed

    def rope(self, call: GgmlRope) -> Array:
        """Return the result of the call, or raise as ggml did."""
        if isinstance(self.result, GgmlFailed):
            raise self.result
        if self.result.refused:
            raise GgmlRefused(self.result.refused)
        if self.result.value is None:
            raise GgmlFailed(self.result.failed)
        return self.result.value

    def too_old_for(self, params: RopeParams, *, inplace: bool, set_rows: bool) -> str:
        """Return what this ggml lacks for the call."""
        return self.too_old


def _run(sequence: CallSequence, data: list[CaseData], ggml: GgmlProcess, device: str) -> list[_Returned]:
    """Run the calls that this ggml has. ``device`` is empty for the requested one."""
    steps, reasons = [], []
    pending: Start = "node"
    for node, node_data, start in zip(sequence.nodes, data, sequence.starts, strict=True):
        case = node.rope_case
        pending = max(pending, start, key=_STARTS.index)
        reasons.append(ggml_cannot(case, ggml))
        if not reasons[-1]:
            steps.append(GgmlStep(ggml_call(case, node_data), pending))
            pending = "node"
    info = replace(ggml.info, device=device) if device else ggml.info
    results: list[StepResult | GgmlFailed]
    try:
        results = list(ggml.sequence(steps, device)) if steps else []
    except (GgmlFailed, GgmlUnavailable) as error:
        if isinstance(error, GgmlUnavailable):  # the library has no such device
            results = [StepResult(refused=str(error)) for _ in steps]
        else:
            results = [error for _ in steps]
    remaining = iter(results)
    return [_Returned(info, reason, StepResult() if reason else next(remaining)) for reason in reasons]
