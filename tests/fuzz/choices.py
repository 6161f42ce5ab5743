"""The choices that make up a random call: drawn from a name, or given; and their reduction to simpler ones.

A draw asks for each choice in turn. Every choice is a number, and 0 is the simplest option. Other numbers in
place of these ones make another call, so one search simplifies the calls of every operator.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")
MOST_ATTEMPTS = 1000


class Choices:
    """The choices of one call.

    Args:
        name: the call's name. It determines the choices, and the numbers in the call's tensors.
        given: choices to take instead. A number beyond the last option is the last option; 0 follows the last
            number.
        attempt: makes other choices for the same numbers.

    Attributes:
        made: the choices so far.
        seed: the seed of the numbers in the call's tensors.
    """

    def __init__(self, name: str, given: Sequence[int] | None = None, attempt: int = 0) -> None:
        self.made: list[int] = []
        self.seed = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
        self._random = random.Random(f"{name}/{attempt}")
        self._given = None if given is None else iter(given)

    def _make(self, drawn: Callable[[], int], limit: int) -> int:
        made = drawn() if self._given is None else min(next(self._given, 0), limit - 1)
        self.made.append(made)
        return made

    def below(self, limit: int) -> int:
        """Return a number from 0 to limit - 1."""
        return self._make(lambda: int(self._random.random() * limit), limit)

    def integer(self, low: int, high: int) -> int:
        """Return a number from low, the simplest, to high."""
        return low + self.below(high - low + 1)

    def choice(self, options: Sequence[T]) -> T:
        """Return one of the options, the simplest first. One that occurs twice is twice as likely."""
        return options[self.below(len(options))]

    def chance(self, probability: float) -> bool:
        """Return True with this probability; False is the simplest."""
        return bool(self._make(lambda: int(self._random.random() < probability), 2))

    def numbers(self) -> np.random.Generator:
        """Return a generator for the numbers in the tensors. They are no choices."""
        return np.random.default_rng(self.seed)


def simplified(choices: Sequence[int], fails: Callable[[list[int]], list[int] | None]) -> list[int]:
    """Return choices of a call that fails and whose simplifications pass, or the simplest ones after
    MOST_ATTEMPTS.

    Args:
        choices: those of a call that fails.
        fails: makes a call of choices. Returns the choices that the call made if it fails in the same way,
            else None.
    """
    best, tried = list(choices), set[tuple[int, ...]]()

    def attempt(candidate: list[int]) -> bool:
        nonlocal best
        key = tuple(without_final_zeros(candidate))
        if key in tried or key >= tuple(without_final_zeros(best)) or len(tried) >= MOST_ATTEMPTS:
            return False
        tried.add(key)
        if (made := fails(candidate)) is None:
            return False
        best = made
        return True

    progress = True
    while progress:
        progress = False
        for size in (16, 4, 1):  # many at once first
            for begin in range(0, len(best), size):
                progress |= attempt([*best[:begin], *[0] * size, *best[begin + size :]])
        for at in range(len(best)):
            value = best[at] if at < len(best) else 0
            for smaller in (value // 2, value - value // 4, value - 1):
                if 0 < smaller < value and attempt([*best[:at], smaller, *best[at + 1 :]]):
                    progress = True
                    break
        # One option less, without choices that belong to it: those after it, or one of a list.
        gone = [(0, size) for size in range(1, 9)] + [(skipped, 1) for skipped in range(1, 40)]
        for at in [] if progress else range(len(best)):
            for skipped, size in gone:
                if at < len(best) and best[at]:
                    rest = best[at + 1 :]
                    fewer = [*best[:at], best[at] - 1, *rest[:skipped], *rest[skipped + size :]]
                    progress |= attempt(fewer)
    return without_final_zeros(best)


def without_final_zeros(choices: Sequence[int]) -> list[int]:
    """Return the choices without the zeros at their end, which are implied."""
    end = max((at + 1 for at, choice in enumerate(choices) if choice), default=0)
    return list(choices[:end])
