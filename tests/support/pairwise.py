"""A greedy generator of pairwise test sets: any two values of two factors occur together in some case."""

from __future__ import annotations

import itertools
import random

TRIES = 1000  # a pair without a possible completion in this number of tries is left out


def pairwise(factors, make=dict, possible=lambda case: True, *, seed=0, candidates=30):
    """Return cases ``make(**row)`` that together hold every pair of values that some possible case has.

    Each case starts from a pair that no case has yet. The other values are drawn ``candidates`` times. The
    possible draw with the most new pairs becomes the case.

    >>> cases = pairwise({"a": [1, 2], "b": [1, 2]}, possible=lambda case: case["a"] <= case["b"])
    >>> sorted((case["a"], case["b"]) for case in cases)
    [(1, 1), (1, 2), (2, 2)]
    """
    draw = random.Random(seed).random  # randrange() takes three times as long
    names = list(factors)
    counts = {name: len(values) for name, values in factors.items()}
    missing = {
        ((a, i), (b, j))
        for a, b in itertools.combinations(names, 2)
        for i in range(len(factors[a]))
        for j in range(len(factors[b]))
    }
    cases = []
    while missing:
        pair = min(missing)
        completions = []
        for _ in range(TRIES):
            row = {name: int(draw() * count) for name, count in counts.items()} | dict(pair)
            case = make(**{name: factors[name][i] for name, i in row.items()})
            if possible(case):
                completions.append((row, case))
                if len(completions) == candidates:
                    break
        if not completions:
            missing.remove(pair)
            continue
        row, case = max(completions, key=lambda completion: len(_pairs(names, completion[0]) & missing))
        missing -= _pairs(names, row)
        cases.append(case)
    return cases


def _pairs(names, row):
    return set(itertools.combinations([(n, row[n]) for n in names], 2))
