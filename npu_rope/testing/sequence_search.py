"""Judge the sequences of a run. For each fault, find the shortest sequence that fails.

A sequence that fails is simplified as long as it fails in the same way. The simplest sequence shows the cause
of the failure: attributes in which calls differ, or attributes of one call. A later sequence that passes
without this cause has the same fault: it is counted, and not simplified. If the later sequence fails in
another way without the cause, it has a second fault, which is also examined.

The simplification of a sequence with one fault can arrive at a sequence with another fault. It therefore adds
no cause of a known fault, and at its end the original sequence must pass without the cause that was found. If
it does not, the simplest sequence has another fault, which is known from then on, and the simplification
begins again.

A sequence runs on new backends of ggml, in the process of the earlier sequences. Before a failing sequence is
simplified, it is run again in a new process. If it does not fail there, the sequences before it are put in
front of it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

from npu_rope.testing.faults import general_kind_of
from npu_rope.testing.ggml import GgmlProcess
from npu_rope.testing.outcomes import AFTER, ALONE, FAIL, SOMETIMES, CaseResult, Judgement
from npu_rope.testing.sequence_causes import EQUAL_CALLS, Cause, cause_of
from npu_rope.testing.sequence_judge import ON_CPU, judge_as_given, judge_calls, judgement_of, result_of
from npu_rope.testing.sequence_shrink import shrink
from npu_rope.testing.sequences import CallSequence, Node

MOST_ATTEMPTS = 400  # to simplify a sequence, in one process
MOST_NEW_PROCESSES = 150  # to simplify a sequence, if each attempt needs a new process
MOST_BACKENDS = 32  # of one process: a device keeps its backends (see Ggml.free)
MOST_SIMPLIFIED = 40  # sequences of a run
VALUES = "values"  # wrong values of a call that passes alone
VALUES_ALONE = "values alone"  # wrong values of a call that fails alone


@dataclass(frozen=True)
class FailedSequence:
    """The kind of a failure (empty: there is none), and the calls that fail."""

    kind: str
    nodes: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Known:
    """A failure that has been simplified. ``when`` and ``note`` are as in CaseResult."""

    executor: str
    kind: str
    cause: Cause
    simplest: CallSequence
    when: str
    note: str = ""


@dataclass
class ProcessFailures:
    """The results of one ggml process.

    Attributes:
        known: the simplified failures.
        shown: the simplest sequences that are results.
        in_new_processes: the failures of runs in new processes, by executor and name of the sequence. They
            are kept because the same simple sequences are tried for many failures.
    """

    known: list[Known] = field(default_factory=list)
    shown: set[CallSequence] = field(default_factory=set)
    in_new_processes: dict[tuple[str, str], FailedSequence] = field(default_factory=dict)


_process_failures: WeakKeyDictionary[GgmlProcess, ProcessFailures] = WeakKeyDictionary()


def judge_sequence(sequence: CallSequence, backends: list[str], ggml: GgmlProcess | None) -> CaseResult:
    """Run and judge a sequence. If it was drawn and has a new fault, return the simplest one's result. If a
    user wrote it, name the cause as if it were the simplest one."""
    earlier = _before(sequence, ggml)
    results = judge_calls(sequence, backends, ggml, also_on_cpu=True)
    result = result_of(sequence, results)
    failed = next((j for j in result.judgements if j.verdict == FAIL), None)
    if failed is None:
        return result
    failures = (
        _process_failures.setdefault(ggml, ProcessFailures()) if ggml is not None else ProcessFailures()
    )
    with Search(failed.executor, ggml, failures) as search:
        failure = _failure(sequence, results, failed.executor)
        found = search.find(sequence, failure, earlier) if sequence.source else search.as_given(sequence)
        result.note, result.cause, result.like, result.when = found.note, found.cause, found.like, found.when
        if found.simplest is None:
            return result
        with ggml.new_process() if ggml is not None else nullcontext() as process:
            simplest = judge_as_given(found.simplest, backends, process)
    return replace(simplest, note=found.note, cause=found.cause, when=found.when)


def _before(sequence: CallSequence, ggml: GgmlProcess | None) -> list[CallSequence]:
    """Return the sequences that have run in ggml's process, and add one to them."""
    if ggml is None:
        return []
    if ggml.backend_count >= MOST_BACKENDS:
        ggml.end()  # the next call starts a process
    earlier = list(ggml.sequences)
    ggml.sequences.append(sequence)
    return earlier


def _kind(judgement: Judgement) -> str:
    if judgement.verdict != FAIL:
        return ""
    return general_kind_of(judgement) if judgement.message else VALUES


def _failure(sequence: CallSequence, results: list[CaseResult], executor: str) -> FailedSequence:
    kinds = [_kind(judgement_of(result, executor)) for result in results]
    kind = VALUES if VALUES in kinds else next(filter(None, kinds), "")
    nodes = tuple(node for node, its_kind in zip(sequence.nodes, kinds, strict=True) if its_kind == kind)
    if kind == VALUES:
        return FailedSequence(kind if len(sequence.nodes) > 1 else VALUES_ALONE, nodes)
    # If the process ended, every call has failed, and the last one is as good as any.
    return FailedSequence(kind, nodes[-1:] if kind else ())


@dataclass(frozen=True)
class Found:
    """The facts about a failing sequence.

    Attributes:
        note: how it was found, in words.
        simplest: the simplest sequence of a new fault.
        cause: what the failure needs, in words.
        like: the name of the simplest sequence of a known fault that the sequence has.
        when: as in CaseResult.
    """

    note: str
    simplest: CallSequence | None = None
    cause: str = ""
    like: str = ""
    when: str = ""


class Search:
    """Runs of sequences that look for the faults of one executor.

    Most runs that simplify a sequence share one process. Their result is compared with runs in new processes.
    If it differs, state outlives the backends, and only runs in new processes count.
    """

    def __init__(self, executor: str, ggml: GgmlProcess | None, process_failures: ProcessFailures) -> None:
        self.executor = executor
        self.ggml = ggml if executor in ("ggml", ON_CPU) else None
        self.backends = [] if self.ggml is not None else [executor.partition(":ggml")[0]]
        self.kind = ""  # of the failure that is simplified
        self.excluded: list[Cause] = []  # causes that the simplified sequences may not have
        self.shared: GgmlProcess | None = None
        self.process_failures = process_failures

    def __enter__(self) -> Search:
        return self

    def __exit__(self, *error: object) -> None:
        if self.shared is not None:
            self.shared.close()

    # ---- known faults ------------------------------------------------------------------------------

    def find(self, sequence: CallSequence, failure: FailedSequence, earlier: list[CallSequence]) -> Found:
        """Return which known fault a failing sequence has, or its simplest one if it has a new fault."""
        source, counted = sequence.source, None
        seen = set()  # a removed cause can bring back an earlier failure
        kind = self._refined(sequence, self._in_process_of_the_run, failure).kind
        while kind and (sequence.name, kind) not in seen:
            seen.add((sequence.name, kind))
            known, sequence, remaining = self._without_known(sequence, kind)
            if remaining == kind:
                known, sequence, remaining = self._of_known_message(sequence, kind)
            if remaining == kind:
                found = self._simplified(sequence, earlier)
                return found if counted is None or found.simplest is not None else counted
            assert known is not None
            found = self._of_known(known, f"{source}: it has the fault of another sequence")
            if found.simplest is not None:
                return found
            counted = counted or found
            kind, earlier = remaining, []
        assert counted is not None
        return counted

    def as_given(self, sequence: CallSequence) -> Found:
        """Return when a sequence fails, and the cause that it would have if it were the simplest one."""
        failure = self._refined(sequence, self.in_new_process)
        if not failure.kind:
            return Found("given by --op: it passes in a new process", when=SOMETIMES)
        alone = failure.nodes
        if failure.kind != VALUES_ALONE:
            alone = tuple(
                node
                for node in sequence.nodes
                if self.in_new_process(CallSequence((node,))).kind == failure.kind
            )
        if alone and failure.kind != VALUES:
            cause = cause_of(CallSequence(alone[:1]))
            return Found("given by --op: a call that fails alone", cause=str(cause), when=ALONE)
        return Found("given by --op: each call passes alone", cause=str(cause_of(sequence)), when=AFTER)

    def _of_known(self, known: Known, note: str) -> Found:
        """Return the facts about a sequence with a known fault. They contain the fault's simplest sequence,
        unless this has been a result before."""
        if known.simplest in self.process_failures.shown:
            return Found(note, cause=str(known.cause), like=known.simplest.name, when=known.when)
        self.process_failures.shown.add(known.simplest)
        return Found(known.note, known.simplest, str(known.cause), when=known.when)

    def _without_known(self, sequence: CallSequence, kind: str) -> tuple[Known | None, CallSequence, str]:
        """Return a known fault, the sequence without its cause, and the kind of failure that remains. If no
        single cause changes the kind, remove the causes of all known faults."""
        applicable = []
        for known in self._known_of(kind):
            other = known.cause.removed_from(sequence)
            if other is not None:
                applicable.append(known)
                if (remaining := self._kind_in_the_run(other)) != kind:
                    source = f"{sequence.source} without {known.cause.names_in_words}"
                    return known, replace(other, source=source), remaining
        if not applicable:
            return None, sequence, kind
        for known in applicable:
            sequence = known.cause.removed_from(sequence) or sequence
        remaining = self._kind_in_the_run(sequence) if len(applicable) > 1 else kind
        words = ", ".join(known.cause.names_in_words for known in applicable)
        return applicable[0], replace(sequence, source=f"{sequence.source} without {words}"), remaining

    def _of_known_message(self, sequence: CallSequence, kind: str) -> tuple[Known | None, CallSequence, str]:
        """Return the same as ``_without_known`` for a failure with a known message. Each message is one
        fault, whatever its causes.

        Runs without some of the differences of the calls find the attributes that make this sequence fail.
        """
        same = self._known_of(kind)
        if kind in (VALUES, VALUES_ALONE) or not same:
            return None, sequence, kind
        if all(known.when == ALONE for known in same):
            return same[0], sequence, ""
        names: tuple[str, ...] = cause_of(sequence).names
        remaining = kind
        for name in (None, *names):
            fewer = Cause(tuple(other for other in names if other != name), is_alone=False)
            if (other := fewer.removed_from(sequence)) is None:
                continue
            found = self._kind_in_the_run(other)
            if found != kind:
                names, best, remaining = fewer.names, other, found
            elif name is None:
                break
        if remaining == kind:
            return same[0], sequence, ""
        known = replace(same[0], cause=Cause(names, is_alone=False))
        self.process_failures.known.append(known)
        return known, best, remaining

    def _known_of(self, kind: str) -> list[Known]:
        return [
            known
            for known in self.process_failures.known
            if (known.executor, known.kind) == (self.executor, kind)
        ]

    def _kind_in_the_run(self, sequence: CallSequence) -> str:
        return self._refined(sequence, self._in_process_of_the_run).kind

    # ---- the simplest sequence ---------------------------------------------------------------------

    def _simplified(self, sequence: CallSequence, earlier: list[CallSequence]) -> Found:
        others = ""  # faults at which the simplification has arrived before
        while True:
            if len({known.simplest for known in self.process_failures.known}) >= MOST_SIMPLIFIED:
                return Found(f"{sequence.source}: not simplified, because {MOST_SIMPLIFIED} others were")
            found = self._repeated(sequence, earlier)
            if found is None:
                behind = f" and behind the {len(earlier)} sequences before it" if earlier else ""
                note = f"{sequence.source}: it passes in a new process, alone{behind}"
                return Found(note + others, when=SOMETIMES)
            start, failure = found
            known = self._simplest(start, failure)
            how = "a call that fails alone" if known.when == ALONE else "each call passes alone"
            note = f"{sequence.source}: {how}{others}"
            for other in self._known_of(known.kind):
                if other.cause == known.cause:
                    return self._of_known(other, note)
            known = replace(known, note=note)
            self.process_failures.known.append(known)
            remaining = self._without(known, start)
            if remaining is None:
                return self._of_known(known, note)
            others += f"; it also led to another fault ({known.cause}): {known.simplest.name}"
            sequence, earlier = remaining, []

    def _without(self, known: Known, start: CallSequence) -> CallSequence | None:
        """Return the sequence without the cause of a fault of wrong values, if it still fails like that."""
        if known.kind not in (VALUES, VALUES_ALONE):
            return None
        if not known.cause.is_in(start):
            return start
        remaining = known.cause.removed_from(start)
        if remaining is None or self._refined(remaining, self.in_new_process).kind != known.kind:
            return None
        return replace(remaining, source=f"{start.source} without {known.cause.names_in_words}")

    def _simplest(self, start: CallSequence, failure: FailedSequence) -> Known:
        """Return the simplest sequence that fails in a new process as this one does."""
        self.kind = failure.kind
        if self.kind == VALUES_ALONE or (self.kind != VALUES and self._fails_alone(failure.nodes[0])):
            start = CallSequence(failure.nodes[:1], source=start.source)
        # Causes of other faults that the start does not have. A simplification must not add one of them.
        self.excluded = [known.cause for known in self._known_of(self.kind) if not known.cause.is_in(start)]
        simplest = shrink(start, lambda tried: self._is_same(tried, self.in_shared_process), MOST_ATTEMPTS)
        if not self._is_confirmed(simplest):
            simplest = shrink(
                start, lambda tried: self._is_same(tried, self.in_new_process), MOST_NEW_PROCESSES
            )
        when = ALONE if len(simplest.nodes) == 1 else AFTER
        cause = cause_of(simplest, has_own_inputs=EQUAL_CALLS in self.excluded)
        return Known(self.executor, self.kind, cause, simplest, when)

    def _repeated(
        self, sequence: CallSequence, earlier: list[CallSequence]
    ) -> tuple[CallSequence, FailedSequence] | None:
        """Return the sequence, if necessary with earlier ones before it, such that it fails in a new process;
        None if it does not fail there."""
        count = 0
        while True:
            joined = _joined([*earlier[len(earlier) - count :], sequence])
            failure = self._refined(joined, self.in_new_process)
            if failure.kind:
                return joined, failure
            if count >= len(earlier):
                return None
            count = min(max(1, 2 * count), len(earlier))

    def _is_confirmed(self, simplest: CallSequence) -> bool:
        """Return whether new processes agree with the shared one, on the sequence and on each call alone."""
        alone = [CallSequence((node,)) for node in simplest.nodes]
        same = all(
            self.in_shared_process(tried).kind == self.in_new_process(tried).kind
            for tried in (simplest, *alone)
        )
        return same and self._is_same(simplest, self.in_new_process)

    def _is_same(self, tried: CallSequence, run: Callable[[CallSequence], FailedSequence]) -> bool:
        """Return whether the sequence fails in the same way, and has no cause of another fault."""
        if any(cause.is_in(tried) for cause in self.excluded):
            return False
        failure = self._refined(tried, run)
        if failure.kind != self.kind or self.kind in (VALUES, VALUES_ALONE):
            return failure.kind == self.kind
        return len(tried.nodes) == 1 or run(CallSequence(failure.nodes)).kind != self.kind

    def _fails_alone(self, node: Node) -> bool:
        return self.in_new_process(CallSequence((node,))).kind == self.kind

    def _refined(
        self,
        sequence: CallSequence,
        run: Callable[[CallSequence], FailedSequence],
        failure: FailedSequence | None = None,
    ) -> FailedSequence:
        """Run a sequence, unless its failure is given, and return its failure. A failure with wrong values
        names the failing calls that pass alone. If there are none, its kind becomes VALUES_ALONE."""
        failure = failure or run(sequence)
        if failure.kind != VALUES:
            return failure
        alone = {node for node in set(failure.nodes) if run(CallSequence((node,))).kind == VALUES_ALONE}
        after = tuple(node for node in failure.nodes if node not in alone)
        return FailedSequence(VALUES, after) if after else FailedSequence(VALUES_ALONE, failure.nodes)

    # ---- runs --------------------------------------------------------------------------------------

    def _in_process_of_the_run(self, sequence: CallSequence) -> FailedSequence:
        _before(sequence, self.ggml)
        return self._run(sequence, self.ggml)

    def in_shared_process(self, sequence: CallSequence) -> FailedSequence:
        """Run a sequence in the process that most attempts share."""
        if self.ggml is not None and self.shared is None:
            self.shared = self.ggml.new_process()
        if self.shared is not None and self.shared.backend_count >= MOST_BACKENDS:
            self.shared.end()
        return self._run(sequence, self.shared)

    def in_new_process(self, sequence: CallSequence) -> FailedSequence:
        """Run a sequence in a ggml process of its own, or in this process on a back end of npu_rope."""
        key = self.executor, sequence.name
        if key not in self.process_failures.in_new_processes:
            with self.ggml.new_process() if self.ggml is not None else nullcontext() as process:
                self.process_failures.in_new_processes[key] = self._run(sequence, process)
        return self.process_failures.in_new_processes[key]

    def _run(self, sequence: CallSequence, ggml: GgmlProcess | None) -> FailedSequence:
        results = judge_calls(sequence, self.backends, ggml, also_on_cpu=self.executor == ON_CPU)
        return _failure(sequence, results, self.executor)


def _joined(sequences: list[CallSequence]) -> CallSequence:
    """Return the sequences as one, each on a new backend."""
    signs = [sign for sequence in sequences for sign in ("|", *sequence.signs)]
    nodes = [node for sequence in sequences for node in sequence.nodes]
    return CallSequence(tuple(nodes), tuple(signs[1:]), sequences[-1].source)
