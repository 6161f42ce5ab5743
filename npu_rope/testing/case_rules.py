"""Find out which cases fail, by their attributes: "mode=neox, type=f16" instead of a list of names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from itertools import combinations
from typing import Any

from npu_rope.testing.cases import SHORT
from npu_rope.testing.outcomes import AnyCase

# Fields that are no attributes, or that other terms express.
_NO_ATTRIBUTES = {"name", "suite", "source", "op", "dtype", "params", "shape"}
_NO_ATTRIBUTES |= {"ggml_n_ctx_orig", "n_ctx_orig"}  # 0 and 1 mean the same (RopeCase)
_SCALARS = (str, bool, int, float)
MOST_TERMS = 3
LEAST_SHARE = 0.3  # of the failing cases, for a rule of its own
CHANCE = 1e-3  # the largest probability that failing cases share a term by chance
TERMS = 30  # about the number of terms of a case; each further term multiplies the number of rules by it
MOST_COMMON = 4  # terms of a description that also fits cases that pass
# The ranks of terms: of several rules that fit, the one of the lowest ranks is preferred.
_KIND, _SWITCH, _VALUE, _SIZE = range(4)


def terms(case: AnyCase) -> dict[str, int]:
    """Return a case's attributes as terms, such as ``mode=neox`` and ``freq_scale≠1``, and their ranks."""
    found = {f"op={case.op}": _KIND, f"type={SHORT.get(case.dtype, case.dtype)}": _KIND}
    params = getattr(case, "params", None)
    for thing in (case, params):
        if is_dataclass(thing):
            for field in fields(thing):
                if field.name not in _NO_ATTRIBUTES:
                    found |= _terms_of(field.name, getattr(thing, field.name), field.default)
    if params is not None and params.n_dims < case.shape[-1]:
        found["n_dims<D"] = _SWITCH
    names = "BSND" if len(case.shape) == 4 else [f"dim{i}" for i in range(len(case.shape))]
    return found | {f"{name}={size}": _SIZE for name, size in zip(names, case.shape, strict=True)}


def _terms_of(name: str, value: Any, default: Any) -> dict[str, int]:
    if isinstance(value, Enum):
        return {f"{name}={value.name.lower()}": _KIND}
    if name == "mode":
        return {f"{name}={value}": _KIND}
    found = {}
    if value is None or isinstance(value, (str, bool)):
        found[f"{name}={int(value) if isinstance(value, bool) else value or 'none'}"] = _SWITCH
    elif isinstance(value, _SCALARS):
        found[f"{name}={value:g}"] = _VALUE
    if default is not MISSING and value != default and not isinstance(value, bool):
        shown = f"{default:g}" if isinstance(default, (int, float)) else default or "none"
        found[f"{name}≠{shown}"] = _SWITCH
    return found


@dataclass(frozen=True)
class Group:
    """Failing cases by their indices, terms that all of them have, and the number of other cases that have
    them."""

    rule: tuple[str, ...]
    members: tuple[int, ...]
    others: int


def split(failing: Sequence[AnyCase], others: Sequence[AnyCase]) -> list[Group]:
    """Divide failing cases into groups that rules describe.

    First come groups whose terms no other case has. The last group has the failing cases that no such rule
    fits. Its terms are common to these cases, but not to all cases.
    """
    table = _Table(failing, others)
    groups = []
    remaining = (1 << len(failing)) - 1
    while remaining:
        rule = table.pure_rule(remaining)
        if rule is None:
            groups.append(table.group(table.common_terms(remaining), remaining))
            break
        groups.append(table.group(rule, remaining & table.matching(rule)[0]))
        remaining &= ~table.matching(rule)[0]
    return groups


def together(failing: Sequence[AnyCase], others: Sequence[AnyCase]) -> Group:
    """Return failing cases as one group."""
    table = _Table(failing, others)
    everyone = (1 << len(failing)) - 1
    return table.group(table.common_terms(everyone), everyone)


class _Table:
    """For each term, the sets of failing and of other cases that have it, as bits."""

    def __init__(self, failing: Sequence[AnyCase], others: Sequence[AnyCase]) -> None:
        self.everyone = (1 << len(failing)) - 1, (1 << len(others)) - 1  # bits of the cases
        self.sets: dict[str, list[int]] = {}
        self.ranks: dict[str, int] = {}
        for side, cases in enumerate((failing, others)):
            for i, case in enumerate(cases):
                for term, rank in terms(case).items():
                    self.sets.setdefault(term, [0, 0])[side] |= 1 << i
                    self.ranks[term] = rank
        for term in [term for term in self.sets if term.startswith("mode=")]:
            pairs = zip(self.everyone, self.sets[term], strict=True)
            self.sets[negated := term.replace("=", "≠", 1)] = [every & ~having for every, having in pairs]
            self.ranks[negated] = _SWITCH

    def matching(self, rule: Sequence[str]) -> tuple[int, int]:
        """Return the failing and the other cases that have all terms."""
        failing, others = self.everyone
        for term in rule:
            failing &= self.sets[term][0]
            others &= self.sets[term][1]
        return failing, others

    def group(self, rule: tuple[str, ...], members: int) -> Group:
        """Return a group of failing cases."""
        indices = tuple(i for i in range(members.bit_length()) if members >> i & 1)
        return Group(rule, indices, self.matching(rule)[1].bit_count())

    def pure_rule(self, remaining: int) -> tuple[str, ...] | None:
        """Return the best rule that fits no other case and enough of the remaining ones."""
        least = max(2, LEAST_SHARE * remaining.bit_count())
        if not self.everyone[1]:
            return ()
        useful = self._useful(remaining, least)
        best, best_score = None, (0.0, 0, 0)
        for size in range(1, MOST_TERMS + 1):
            for rule in combinations(useful, size):
                found, wrong = self.matching(rule)
                covered = (found & remaining).bit_count()
                if wrong or covered < least:
                    continue
                if self._chance((found, wrong), covered) > CHANCE / TERMS ** (size - 1):
                    continue
                score = (float(covered), -size, -sum(self.ranks[term] for term in rule))
                if score > best_score:
                    best, best_score = rule, score
            if best is not None and best_score[0] == remaining.bit_count():
                break
        return best

    def _chance(self, having: Sequence[int], count: int) -> float:
        """Return the probability that ``count`` cases, drawn from all, are among the cases in ``having``."""
        share = sum(bits.bit_count() for bits in having) / sum(bits.bit_count() for bits in self.everyone)
        return float(share**count)

    def _useful(self, remaining: int, least: float) -> list[str]:
        """Return the terms that enough remaining cases have.

        If the same cases have several terms, return only the one with the lowest rank.
        """
        seen: set[tuple[int, int]] = set()
        useful = []
        for term in sorted(self.sets, key=lambda term: self.ranks[term]):
            failing, others = self.sets[term]
            key = failing & remaining, others
            if key[0].bit_count() >= least and others != self.everyone[1] and key not in seen:
                seen.add(key)
                useful.append(term)
        return useful

    def common_terms(self, members: int) -> tuple[str, ...]:
        """Return the terms that all these failing cases have, if it is unlikely that chance explains this."""
        found = [
            term
            for term, (failing, others) in self.sets.items()
            if failing & members == members
            and self.ranks[term] <= _SWITCH
            and self._chance((failing, others), members.bit_count()) <= CHANCE
        ]
        return tuple(sorted(found, key=lambda term: self.ranks[term])[:MOST_COMMON])
