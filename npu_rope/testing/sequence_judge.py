"""Run and judge a sequence; if it fails, find the shortest one that does.

Every call of a sequence is judged as a case of suite ggml is, on every back end of npu_rope and by ggml. A
back end of npu_rope runs the calls one after another. On a device of ggml (``--ggml-device``), the CPU
backend of the same library also runs the sequence (``ggml:CPU``): if it fails, the fault is not the device's.

A sequence runs on new backends of ggml, in the process of the earlier sequences. A failure is repeated in a
new process. If it does not occur there, the sequences before it are put in front of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

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
from npu_rope.testing.sequence_shrink import shrink
from npu_rope.testing.sequences import Node, Sequence

CPU = "CPU"  # ggml's name of its CPU device
ON_CPU = "ggml:CPU"
_STARTS: tuple[Start, ...] = ("node", "graph", "backend")
MOST_ATTEMPTS = 400
MOST_NEW_PROCESSES = 150
MOST_BACKENDS = 32  # of one process: a device keeps them (Ggml.free)
# What occurred in new processes, by process, executor and name of the sequence. Simple sequences are tried
# for many failures.
_known: WeakKeyDictionary[GgmlProcess, dict[tuple[str, str], Failure]] = WeakKeyDictionary()


def judge_sequence(sequence: Sequence, backends: list[str], ggml: GgmlProcess | None) -> CaseResult:
    """Run and judge a sequence. If it was drawn and fails, return the result of the simplest one."""
    earlier: list[Sequence] = []
    if ggml is not None:
        if ggml.backends >= MOST_BACKENDS:
            ggml.close()  # the next call starts a process
        earlier = list(ggml.sequences)
        ggml.sequences.append(sequence)
    result = judge_as_given(sequence, backends, ggml)
    failed = next((j for j in result.judgements if j.verdict == FAIL), None)
    if failed is None or not sequence.source:
        return result
    with Attempts(failed, ggml) as attempts:
        simplest, result.note = attempts.simplest(sequence, earlier)
    if simplest is None:
        return result
    with ggml.new_process() if ggml is not None else nullcontext() as process:
        shrunk = judge_as_given(simplest, backends, process)
    shrunk.note = result.note
    return shrunk


def judge_as_given(
    sequence: Sequence, backends: list[str], ggml: GgmlProcess | None, *, also_on_cpu: bool = True
) -> CaseResult:
    """Run and judge a sequence as it is."""
    results = _judge_calls(sequence, backends, ggml, also_on_cpu=also_on_cpu)
    names = [judgement.executor for judgement in results[0].judgements]
    return CaseResult(sequence, [_merged([_of(result, name) for result in results]) for name in names])


def _judge_calls(
    sequence: Sequence, backends: list[str], ggml: GgmlProcess | None, *, also_on_cpu: bool
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


def _of(result: CaseResult, executor: str) -> Judgement:
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
        if chosen.message:
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


# ---- the simplest sequence -------------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """The kind of a failure (empty: there is none), and the calls that fail."""

    kind: str
    nodes: tuple[Node, ...] = ()


def _kind(judgement: Judgement) -> str:
    if judgement.verdict != FAIL:
        return ""
    # A message without numbers, up to what the library printed.
    return re.sub(r"\d+", "#", judgement.message.partition(":")[0]) or "values"


class Attempts:
    """Runs of sequences that look for one failure: of one executor and of one kind.

    Most run in one process. What they find is compared with new processes: if it differs, state outlives the
    backends, and only runs in new processes count.
    """

    def __init__(self, failed: Judgement, ggml: GgmlProcess | None) -> None:
        self.executor = failed.executor
        self.ggml = ggml if self.executor in ("ggml", ON_CPU) else None
        self.backends = [] if self.ggml is not None else [self.executor.partition(":ggml")[0]]
        self.kind = ""
        self.shared: GgmlProcess | None = None
        self.known = _known.setdefault(ggml, {}) if self.ggml is not None and ggml is not None else {}

    def __enter__(self) -> Attempts:
        return self

    def __exit__(self, *error: object) -> None:
        if self.shared is not None:
            self.shared.close()

    def simplest(self, sequence: Sequence, earlier: list[Sequence]) -> tuple[Sequence | None, str]:
        """Return the simplest sequence that fails in a new process, and how it was found."""
        found = self._repeated(sequence, earlier)
        if found is None:
            behind = f" and behind the {len(earlier)} sequences before it" if earlier else ""
            return None, f"{sequence.source}: it passes in a new process, alone{behind}"
        start, failure = found
        self.kind = failure.kind
        alone = next((node for node in failure.nodes if self._fails_alone(node, self.in_new_process)), None)
        if alone is not None:
            start = Sequence((alone,), source=sequence.source)
        simplest = shrink(start, lambda tried: self._is_same(tried, self.in_shared_process), MOST_ATTEMPTS)
        if not self._is_confirmed(simplest):
            simplest = shrink(
                start, lambda tried: self._is_same(tried, self.in_new_process), MOST_NEW_PROCESSES
            )
        if len(simplest.nodes) == 1:
            return simplest, f"{sequence.source}: a call that fails alone"
        return simplest, f"{sequence.source}: each call passes alone"

    def _repeated(self, sequence: Sequence, earlier: list[Sequence]) -> tuple[Sequence, Failure] | None:
        """Return the sequence, or with earlier ones before it, that fails in a new process."""
        count = 0
        while True:
            joined = _joined([*earlier[len(earlier) - count :], sequence])
            failure = self.in_new_process(joined)
            if failure.kind:
                return joined, failure
            if count >= len(earlier):
                return None
            count = min(max(1, 2 * count), len(earlier))

    def _is_confirmed(self, simplest: Sequence) -> bool:
        """Return whether new processes agree with the shared one on the sequence and on its calls alone."""
        alone = [Sequence((node,)) for node in simplest.nodes]
        same = all(
            self.in_shared_process(tried).kind == self.in_new_process(tried).kind
            for tried in (simplest, *alone)
        )
        return same and self._is_same(simplest, self.in_new_process)

    def _is_same(self, tried: Sequence, run: Callable[[Sequence], Failure]) -> bool:
        """Return whether the sequence fails in the same way, by calls that pass alone."""
        failure = run(tried)
        if failure.kind != self.kind:
            return False
        return len(tried.nodes) == 1 or not any(self._fails_alone(node, run) for node in failure.nodes)

    def _fails_alone(self, node: Node, run: Callable[[Sequence], Failure]) -> bool:
        return run(Sequence((node,))).kind == self.kind

    def in_shared_process(self, sequence: Sequence) -> Failure:
        """Run a sequence in the process of most attempts."""
        if self.ggml is not None and self.shared is None:
            self.shared = self.ggml.new_process()
        if self.shared is not None and self.shared.backends >= MOST_BACKENDS:
            self.shared.close()
        return self._run(sequence, self.shared)

    def in_new_process(self, sequence: Sequence) -> Failure:
        """Run a sequence in a process of its own; a back end of npu_rope runs it in this one."""
        key = self.executor, sequence.name
        if key not in self.known:
            with self.ggml.new_process() if self.ggml is not None else nullcontext() as process:
                self.known[key] = self._run(sequence, process)
        return self.known[key]

    def _run(self, sequence: Sequence, ggml: GgmlProcess | None) -> Failure:
        results = _judge_calls(sequence, self.backends, ggml, also_on_cpu=self.executor == ON_CPU)
        kinds = [_kind(_of(result, self.executor)) for result in results]
        kind = "values" if "values" in kinds else next(filter(None, kinds), "")
        nodes = [node for node, its_kind in zip(sequence.nodes, kinds, strict=True) if its_kind == kind]
        # If the process ended, every call has failed, and the last one is as good as any.
        return Failure(kind, tuple(nodes[-1:] if kind != "values" else nodes) if kind else ())


def _joined(sequences: list[Sequence]) -> Sequence:
    """Return the sequences as one, each on a new backend."""
    signs = [sign for sequence in sequences for sign in ("|", *sequence.signs)]
    nodes = [node for sequence in sequences for node in sequence.nodes]
    return Sequence(tuple(nodes), tuple(signs[1:]), sequences[-1].source)


# ---- ggml ------------------------------------------------------------------------------------------


@dataclass
class _Returned:
    """What ggml returned for one call, in the place of ggml."""

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


def _run(sequence: Sequence, data: list[CaseData], ggml: GgmlProcess, device: str) -> list[_Returned]:
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
