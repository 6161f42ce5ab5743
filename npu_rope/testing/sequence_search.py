"""Judge the sequences of a run. For each fault, find the shortest sequence that fails.

A sequence that fails is simplified as long as it fails in the same way. From the simplest sequence follows
what the failure needs: attributes in which calls differ, or attributes of one call. A later sequence that
passes without them has the same fault: it is counted, and not simplified. If it then fails in another way, it
has a second fault, which is examined too.

A sequence runs on new backends of ggml, in the process of the earlier sequences. Before a failure is
simplified, it is repeated in a new process. If it does not occur there, the sequences before it are put in
front of it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

from npu_rope.testing.faults import general_kind_of
from npu_rope.testing.ggml import GgmlProcess
from npu_rope.testing.outcomes import FAIL, CaseResult, Judgement
from npu_rope.testing.sequence_causes import Cause, cause_of
from npu_rope.testing.sequence_judge import ON_CPU, judge_as_given, judge_calls, judgement_of
from npu_rope.testing.sequence_shrink import shrink
from npu_rope.testing.sequences import Node, Sequence

MOST_ATTEMPTS = 400
MOST_NEW_PROCESSES = 150
MOST_BACKENDS = 32  # of one process: a device keeps them (Ggml.free)
MOST_SIMPLIFIED = 40  # sequences of a run
VALUES = "values"


@dataclass(frozen=True)
class Failure:
    """The kind of a failure (empty: there is none), and the calls that fail."""

    kind: str
    nodes: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Known:
    """A failure that has been simplified."""

    executor: str
    kind: str
    cause: Cause
    simplest: Sequence


@dataclass
class Memory:
    """The results of one ggml process.

    Attributes:
        known: the simplified failures.
        in_new_processes: what occurred in new processes, by executor and name of the sequence. Simple
            sequences are tried for many failures.
    """

    known: list[Known] = field(default_factory=list)
    in_new_processes: dict[tuple[str, str], Failure] = field(default_factory=dict)


_memories: WeakKeyDictionary[GgmlProcess, Memory] = WeakKeyDictionary()


def judge_sequence(sequence: Sequence, backends: list[str], ggml: GgmlProcess | None) -> CaseResult:
    """Run and judge a sequence. If it was drawn and has a new fault, return that of the simplest one."""
    earlier = _before(sequence, ggml)
    result = judge_as_given(sequence, backends, ggml)
    failed = next((j for j in result.judgements if j.verdict == FAIL), None)
    if failed is None or not sequence.source:
        return result
    memory = _memories.setdefault(ggml, Memory()) if ggml is not None else Memory()
    with Search(failed.executor, ggml, memory) as search:
        found = search.find(sequence, _kind(failed), earlier)
        result.note, result.cause, result.like = found.note, found.cause, found.like
        if found.simplest is None:
            return result
        with ggml.new_process() if ggml is not None else nullcontext() as process:
            simplest = judge_as_given(found.simplest, backends, process)
    return replace(simplest, note=found.note, cause=found.cause)


def _before(sequence: Sequence, ggml: GgmlProcess | None) -> list[Sequence]:
    """Return the sequences that have run in ggml's process, and add one to them."""
    if ggml is None:
        return []
    if ggml.backends >= MOST_BACKENDS:
        ggml.close()  # the next call starts a process
    earlier = list(ggml.sequences)
    ggml.sequences.append(sequence)
    return earlier


def _kind(judgement: Judgement) -> str:
    if judgement.verdict != FAIL:
        return ""
    return general_kind_of(judgement) if judgement.message else VALUES


@dataclass(frozen=True)
class Found:
    """The facts about a failing sequence.

    Attributes:
        note: how it was found, in words.
        simplest: the simplest sequence of a new fault.
        cause: what the failure needs, in words.
        like: the name of the simplest sequence of a known fault that the sequence has.
    """

    note: str
    simplest: Sequence | None = None
    cause: str = ""
    like: str = ""


class Search:
    """Runs of sequences that look for the faults of one executor.

    Most of those that simplify a sequence run in one process. What they find is compared with new processes:
    if it differs, state outlives the backends, and only runs in new processes count.
    """

    def __init__(self, executor: str, ggml: GgmlProcess | None, memory: Memory) -> None:
        self.executor = executor
        self.ggml = ggml if executor in ("ggml", ON_CPU) else None
        self.backends = [] if self.ggml is not None else [executor.partition(":ggml")[0]]
        self.kind = ""  # of the failure that is simplified
        self.shared: GgmlProcess | None = None
        self.memory = memory

    def __enter__(self) -> Search:
        return self

    def __exit__(self, *error: object) -> None:
        if self.shared is not None:
            self.shared.close()

    # ---- known faults ------------------------------------------------------------------------------

    def find(self, sequence: Sequence, kind: str, earlier: list[Sequence]) -> Found:
        """Return which known fault a failing sequence has, or its simplest one if it has a new fault."""
        source, counted = sequence.source, None
        while kind:
            known, sequence, remaining = self._without_known(sequence, kind)
            if remaining == kind:
                known, sequence, remaining = self._of_known_message(sequence, kind)
            if remaining == kind:
                found = self._simplified(sequence, kind, earlier)
                return found if counted is None or found.simplest is not None else counted
            assert known is not None
            note = f"{source}: it has the fault of another sequence"
            counted = counted or Found(note, cause=str(known.cause), like=known.simplest.name)
            kind, earlier = remaining, []
        assert counted is not None
        return counted

    def _without_known(self, sequence: Sequence, kind: str) -> tuple[Known | None, Sequence, str]:
        """Return the sequence without what a known fault needs, or what all of them need, and the kind of
        failure that remains."""
        applicable = []
        for known in self._known_of(kind):
            other = known.cause.removed_from(sequence)
            if other is not None:
                applicable.append(known)
                if (remaining := self._in_process_of_the_run(other)) != kind:
                    source = f"{sequence.source} without {known.cause.names_in_words}"
                    return known, replace(other, source=source), remaining
        if not applicable:
            return None, sequence, kind
        for known in applicable:
            sequence = known.cause.removed_from(sequence) or sequence
        remaining = self._in_process_of_the_run(sequence) if len(applicable) > 1 else kind
        words = ", ".join(known.cause.names_in_words for known in applicable)
        return applicable[0], replace(sequence, source=f"{sequence.source} without {words}"), remaining

    def _of_known_message(self, sequence: Sequence, kind: str) -> tuple[Known | None, Sequence, str]:
        """Return the same for a failure with a known message, which has one fault whatever the failure needs.

        Runs without some of the differences of the calls find the attributes that make this sequence fail.
        """
        same = self._known_of(kind)
        if kind == VALUES or not same:
            return None, sequence, kind
        names: tuple[str, ...] = cause_of(sequence).names
        remaining = kind
        for name in (None, *names):
            fewer = Cause(tuple(other for other in names if other != name), is_alone=False)
            if (other := fewer.removed_from(sequence)) is None:
                continue
            found = self._in_process_of_the_run(other)
            if found != kind:
                names, best, remaining = fewer.names, other, found
            elif name is None:
                break
        if remaining == kind:
            return same[0], sequence, ""
        known = replace(same[0], cause=Cause(names, is_alone=False))
        self.memory.known.append(known)
        return known, best, remaining

    def _known_of(self, kind: str) -> list[Known]:
        return [known for known in self.memory.known if (known.executor, known.kind) == (self.executor, kind)]

    def _in_process_of_the_run(self, sequence: Sequence) -> str:
        _before(sequence, self.ggml)
        return self._run(sequence, self.ggml).kind

    # ---- the simplest sequence ---------------------------------------------------------------------

    def _simplified(self, sequence: Sequence, kind: str, earlier: list[Sequence]) -> Found:
        if len({known.simplest for known in self.memory.known}) >= MOST_SIMPLIFIED:
            return Found(f"{sequence.source}: not simplified, because {MOST_SIMPLIFIED} others were")
        simplest, kind, note = self._simplest(sequence, earlier)
        if simplest is None:
            return Found(note)
        cause = cause_of(simplest)
        for known in self._known_of(kind):
            if known.cause == cause:
                return Found(note, cause=str(cause), like=known.simplest.name)
        self.memory.known.append(Known(self.executor, kind, cause, simplest))
        return Found(note, simplest, str(cause))

    def _simplest(self, sequence: Sequence, earlier: list[Sequence]) -> tuple[Sequence | None, str, str]:
        """Return the simplest sequence that fails in a new process, the kind of its failure, and how it was
        found."""
        found = self._repeated(sequence, earlier)
        if found is None:
            behind = f" and behind the {len(earlier)} sequences before it" if earlier else ""
            return None, "", f"{sequence.source}: it passes in a new process, alone{behind}"
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
            return simplest, self.kind, f"{sequence.source}: a call that fails alone"
        return simplest, self.kind, f"{sequence.source}: each call passes alone"

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

    # ---- runs --------------------------------------------------------------------------------------

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
        if key not in self.memory.in_new_processes:
            with self.ggml.new_process() if self.ggml is not None else nullcontext() as process:
                self.memory.in_new_processes[key] = self._run(sequence, process)
        return self.memory.in_new_processes[key]

    def _run(self, sequence: Sequence, ggml: GgmlProcess | None) -> Failure:
        results = judge_calls(sequence, self.backends, ggml, also_on_cpu=self.executor == ON_CPU)
        kinds = [_kind(judgement_of(result, self.executor)) for result in results]
        kind = VALUES if VALUES in kinds else next(filter(None, kinds), "")
        nodes = [node for node, its_kind in zip(sequence.nodes, kinds, strict=True) if its_kind == kind]
        # If the process ended, every call has failed, and the last one is as good as any.
        return Failure(kind, tuple(nodes[-1:] if kind != VALUES else nodes) if kind else ())


def _joined(sequences: list[Sequence]) -> Sequence:
    """Return the sequences as one, each on a new backend."""
    signs = [sign for sequence in sequences for sign in ("|", *sequence.signs)]
    nodes = [node for sequence in sequences for node in sequence.nodes]
    return Sequence(tuple(nodes), tuple(signs[1:]), sequences[-1].source)
