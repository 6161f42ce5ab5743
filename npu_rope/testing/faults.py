"""The faults of a run: failing cases, grouped by the reason of their failure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from npu_rope.testing import case_rules
from npu_rope.testing.outcomes import ALONE, FAIL, NOT_ALONE, UNSUPPORTED, AnyCase, CaseResult, Judgement

KIND_LENGTH = 160  # characters of a kind that is cut
_PATH = re.compile(r"(?:/[\w.+@-]+)+/(?=[\w.+-])")
# Numbers that vary between cases, but not those of rules (SIM-SYNC-01), lines (ops.cpp:12) and signals.
_NUMBER = re.compile(r"(?<![\w:-])-?(?:0x[0-9a-fA-F]+|\d[\d.]*(?:e[+-]?\d+)?)%?")

_CALL = re.compile(r"^call \d+: ")  # of a sequence
# The format of ggml_cann_error in ggml's ggml-cann.cpp.
_CANN_ERROR = "CANN error: "
_CANN_FUNCTION = re.compile(r"current device: -?\d+, in function (\w+)")
# The simulated CANN's error of work on freed memory. Each function that uses the memory has its own text.
_FREED_MEMORY = re.compile(r"(\w+): \w+ is (?:read from|written to) memory that was freed")
_FREED_KIND = "freed memory is used"

Failed = tuple[CaseResult, Judgement]


@dataclass
class Fault:
    """Failures of one executor for one reason.

    Attributes:
        kind: the way in which the cases fail.
        rule: terms that all failing cases have, such as ``mode=neox``.
        failed: the failing cases with the executor's judgements.
        total: the number of these cases, and of the other cases with these terms that the executor ran.
        when: when the failures occur, as in Occurrence; empty if it is not known.
    """

    executor: str
    kind: str
    rule: tuple[str, ...]
    failed: list[Failed]
    total: int
    when: str

    @property
    def worst_ratio(self) -> float:
        """The largest ratio of an error to its bound; NaN if no case has one."""
        ratios = [judgement.ratio for _, judgement in self.failed if not math.isnan(judgement.ratio)]
        return max(ratios, default=math.nan)

    @property
    def example(self) -> Failed:
        """The smallest of the cases that were run again most often; a simplified one if there is one."""

        def size(failed: Failed) -> tuple[bool, bool, int, int, int]:
            result, judgement = failed
            found = judgement.occurrence
            runs, cases_before = (found.runs, len(found.after)) if found else (0, 0)
            return found is None, bool(result.like), cases_before, -runs, math.prod(result.case.shape)

        return min(self.failed, key=size)


def kind_of(judgement: Judgement) -> str:
    """Return the way in which a case fails, in words, cut to ``KIND_LENGTH`` characters."""
    return _shortened(_whole_kind_of(judgement))


def short_kinds(faults: list[Fault]) -> list[str]:
    """Return the faults' kinds. Long kinds are cut, unless two of them would then be equal."""
    count = Counter(_shortened(kind) for kind in {fault.kind for fault in faults})
    return [fault.kind if count[_shortened(fault.kind)] > 1 else _shortened(fault.kind) for fault in faults]


def _shortened(kind: str) -> str:
    return kind if len(kind) <= KIND_LENGTH else kind[: KIND_LENGTH - 1] + "…"


def _common_kind(failed: list[Failed]) -> str:
    """Return the way in which cases of one kind fail: that of the first case, or for uses of freed memory the
    names of all functions that use it."""
    kinds = [_whole_kind_of(judgement) for _, judgement in failed]
    functions = dict.fromkeys(match[1] for match in map(_FREED_MEMORY.search, kinds) if match)
    return f"{_FREED_KIND} by {', '.join(functions)}" if functions else kinds[0]


def _whole_kind_of(judgement: Judgement) -> str:
    if judgement.message:
        first_line = _CALL.sub("", _PATH.sub("", judgement.message.splitlines()[0]))
        first_line = first_line.removeprefix(f"{judgement.executor} ")
        if cann_error := _cann_error(judgement.output):
            first_line = f"{first_line.partition(':')[0]}: {cann_error}"
        return first_line
    if judgement.worst is not None and not math.isfinite(judgement.worst.got):
        return "wrong values: NaN or infinity"
    return "wrong values"


def general_kind_of(judgement: Judgement) -> str:
    """Return the way in which a case fails, without the numbers that vary between cases. Uses of freed memory
    are one kind, because memory that is freed early is used by each function that runs later."""
    kind = _whole_kind_of(judgement)
    return _FREED_KIND if _FREED_MEMORY.search(kind) else _NUMBER.sub("#", kind)


def _cann_error(output: tuple[str, ...]) -> str:
    """Return the error that ggml's CANN backend printed before it aborted, with the failing function; empty
    if there is none. The last line is the same for all of its errors."""
    found, function = "", ""
    for line in output:
        if line.startswith(_CANN_ERROR):
            found = line.removeprefix(_CANN_ERROR)
        elif found and (match := _CANN_FUNCTION.search(line)):
            function = f" in {match[1]}"
    return f"CANN error{function}: {found}" if found else ""


def find_faults(results: Iterable[CaseResult]) -> list[Fault]:
    """Return the faults of all failing judgements, the largest first."""
    results = list(results)
    executors = dict.fromkeys(j.executor for result in results for j in result.judgements)
    faults = [fault for executor in executors for fault in _faults_of(executor, results)]
    return sorted(faults, key=lambda fault: -len(fault.failed))


def _faults_of(executor: str, results: list[CaseResult]) -> list[Fault]:
    ran = [
        (result, judgement)
        for result in results
        if (judgement := result.by(executor)) is not None and judgement.verdict != UNSUPPORTED
    ]
    groups: dict[tuple[str, str], list[Failed]] = {}
    all_failed = [pair for pair in ran if pair[1].verdict == FAIL]
    faults = _by_cause(executor, [pair for pair in all_failed if pair[0].note], len(ran))
    for key, pair in _with_occurrences([pair for pair in all_failed if not pair[0].note]):
        groups.setdefault(key, []).append(pair)
    for (_, when), failed in groups.items():
        members = {id(judgement) for _, judgement in failed}
        others = [result.case for result, judgement in ran if id(judgement) not in members]
        for group in _groups([result.case for result, _ in failed], others, when):
            chosen = [failed[i] for i in group.members]
            total = len(chosen) + group.others
            faults.append(Fault(executor, _common_kind(chosen), group.rule, chosen, total, when))
    return faults


def _by_cause(executor: str, failed: list[Failed], total: int) -> list[Fault]:
    """Return the faults of drawn sequences. Wrong values are one fault for each cause; a message names its
    fault, whatever the cause is. Failures that occur otherwise are another fault."""
    groups: dict[tuple[str, str, str], list[Failed]] = {}
    for result, judgement in failed:
        key = (general_kind_of(judgement), "") if judgement.message else ("", result.cause)
        groups.setdefault((*key, result.when), []).append((result, judgement))
    return [
        Fault(executor, _common_kind(members), (cause,) if cause else (), members, total, when)
        for (_, cause, when), members in groups.items()
    ]


def _with_occurrences(failed: list[Failed]) -> list[tuple[tuple[str, str], Failed]]:
    """Return each failure with its kind and its occurrence. A failure whose occurrence was not found takes
    the occurrence of the other failures of its kind, if these agree."""
    keys = [general_kind_of(judgement) for _, judgement in failed]
    known: dict[str, set[str]] = {}
    for key, pair in zip(keys, failed, strict=True):
        known.setdefault(key, set()).add(_when(pair))
    found = []
    for key, pair in zip(keys, failed, strict=True):
        when = _when(pair)
        others = known[key] - {"", NOT_ALONE} - ({ALONE} if when == NOT_ALONE else set())
        if when in ("", NOT_ALONE) and len(others) == 1:
            (when,) = others
        found.append(((key, when), pair))
    return found


def _when(failed: Failed) -> str:
    occurrence = failed[1].occurrence
    return occurrence.when if occurrence else ""


def _groups(failing: list[AnyCase], others: list[AnyCase], when: str) -> list[case_rules.Group]:
    if when in (ALONE, ""):
        return case_rules.split(failing, others)
    # These failures depend on the order of the cases, and not on their attributes.
    return [case_rules.together(failing, others)]
