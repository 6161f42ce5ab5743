"""A greedy generator of pairwise test sets: any two values of two factors occur together in some row."""

from __future__ import annotations

import itertools
import random


def pairwise(factors, *, seed=0, candidates=30):
    """Return rows (dicts) that together hold every pair of values.

    Each row starts from a pair that no row has yet and is the random completion, of ``candidates``, with the
    most new pairs.

    >>> rows = pairwise({"a": [1, 2], "b": [1, 2], "c": [1, 2]})
    >>> len(rows) <= 6
    True
    """
    rng = random.Random(seed)
    names = list(factors)
    missing = {
        ((a, i), (b, j))
        for a, b in itertools.combinations(names, 2)
        for i in range(len(factors[a]))
        for j in range(len(factors[b]))
    }
    rows = []
    while missing:
        start = dict(min(missing))
        completions = [
            {n: start.get(n, rng.randrange(len(factors[n]))) for n in names} for _ in range(candidates)
        ]
        best = max(completions, key=lambda row: len(_pairs(names, row) & missing))
        missing -= _pairs(names, best)
        rows.append({n: factors[n][i] for n, i in best.items()})
    return rows


def _pairs(names, row):
    return set(itertools.combinations([(n, row[n]) for n in names], 2))
