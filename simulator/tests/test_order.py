"""The order of instructions, compared with an independent model: the precedences between the steps of random
programs form a graph, in which the model finds all paths."""

from __future__ import annotations

import itertools
import random
import struct

import numpy as np
import pytest
from ascend_sim import In, InOut

S, V, MTE2, MTE3 = range(4)
# The steps of programs.cpp, and HardEvent and pipe_t of ascendc/types.h, by number.
COPY_IN, VECTOR, COPY_OUT, STORE, LOAD, SET, WAIT, BARRIER = range(8)
EVENTS = [(S, V), (S, MTE2), (S, MTE3), (V, S), (V, MTE2), (V, MTE3)]
EVENTS += [(MTE2, S), (MTE2, V), (MTE2, MTE3), (MTE3, S), (MTE3, V), (MTE3, MTE2)]
BARRIERS = {1: V, 2: MTE2, 3: MTE3, 7: None}
PIPE = {COPY_IN: MTE2, VECTOR: V, COPY_OUT: MTE3, STORE: S, LOAD: S}


def random_program(seed):
    """Return steps in which every WAIT follows its SET, and every SET has a WAIT."""
    rng = random.Random(seed)
    steps, set_events = [], set()
    blocks = rng.choice([2, 3, 8])
    for _ in range(rng.randrange(4, 40)):
        kind = rng.choice([COPY_IN, VECTOR, COPY_OUT, STORE, LOAD, SET, SET, WAIT, WAIT, WAIT, BARRIER])
        if kind == SET:
            event = rng.randrange(12), rng.randrange(2)
            if event not in set_events:
                set_events.add(event)
                steps.append((SET, *event))
        elif kind == WAIT:
            if set_events:
                event = rng.choice(sorted(set_events))
                set_events.remove(event)
                steps.append((WAIT, *event))
        elif kind == BARRIER:
            steps.append((BARRIER, rng.choice([1, 1, 2, 3, 7]), 0))
        else:
            steps.append((kind, rng.randrange(blocks), rng.randrange(blocks)))
    return steps + [(WAIT, *event) for event in sorted(set_events)]


def accesses(step):
    """The blocks that a step reads and writes: UB blocks have numbers from 0, GM blocks from -1 downwards."""
    kind, a, b = step
    gm = -1 - b
    return {
        COPY_IN: ({gm}, {a}),
        VECTOR: ({b}, {a}),
        COPY_OUT: ({a}, {gm}),
        STORE: (set(), {a}),
        LOAD: ({a}, set()),
    }[kind]


def precedences(steps):
    """Pairs of (phase, step): the first must be over before the second may begin.

    The scalar unit issues a step, which then starts and ends on its pipe.
    """
    pairs = []
    blocking = [None] * 4  # the last step that blocks all later steps of its pipe
    work = [[] for _ in range(4)]  # the instructions of each pipe
    last_set = {}
    for n, (kind, a, b) in enumerate(steps):
        pipe = {SET: EVENTS[a % 12][0], WAIT: EVENTS[a % 12][1], BARRIER: BARRIERS.get(a)}.get(
            kind, PIPE.get(kind)
        )
        pipes = range(4) if pipe is None else [pipe]
        pairs += [(("issue", n), ("start", n)), (("start", n), ("end", n))]
        pairs += [(("end", blocking[p]), ("start", n)) for p in pipes if blocking[p] is not None]
        if blocking[S] is not None:
            pairs.append((("end", blocking[S]), ("issue", n)))
        if kind in (SET, BARRIER):
            pairs += [(("end", earlier), ("start", n)) for p in pipes for earlier in work[p]]
        elif kind == WAIT:
            pairs.append((("end", last_set[a, b]), ("start", n)))
        elif pipe == S and work[S]:  # the scalar unit's own accesses are in order
            pairs.append((("end", work[S][-1]), ("start", n)))
        if kind == SET:
            last_set[a, b] = n
        elif kind in PIPE:
            work[pipe].append(n)
        else:
            for p in pipes:
                blocking[p] = n
    return pairs


def ended_before(steps):
    """For each step, the steps that have ended when it starts, for all speeds of the pipes."""
    rank = {"issue": 0, "start": 1, "end": 2}
    ended = {(phase, n): set() for n in range(len(steps)) for phase in rank}
    # Every pair leads from an earlier step to a later one, or within a step.
    for first, second in sorted(precedences(steps), key=lambda pair: (pair[1][1], rank[pair[1][0]])):
        ended[second] |= ended[first] | ({first[1]} if first[0] == "end" else set())
    return [ended["start", n] for n in range(len(steps))]


def first_unordered(steps):
    """The first step that accesses a block while an earlier access may still run, or None."""
    ended = ended_before(steps)
    instructions = [n for n, step in enumerate(steps) if step[0] in PIPE]
    for later in instructions:
        reads, writes = accesses(steps[later])
        for earlier in itertools.takewhile(lambda n, later=later: n < later, instructions):
            read_before, written_before = accesses(steps[earlier])
            if (written_before & (reads | writes) or read_before & writes) and earlier not in ended[later]:
                return later
    return None


def simulated_first_unordered(compiled, steps):
    tiling = struct.pack("<II", len(steps), 0) + bytes(itertools.chain(*steps)).ljust(64 * 3, b"\0")
    x, y = np.ones(4096, np.float32), np.zeros(4096, np.float32)
    report = compiled("programs", "random_program").run(In(x), InOut(y), tiling=tiling, check=False)
    if not report.errors:
        return None
    assert report.errors[0]["rule"].startswith("SIM-HAZARD"), report.errors
    # The number of finished instructions identifies the failed step. One of them, Ub's Duplicate (mini.h),
    # precedes all steps.
    counts = [t for t in report.summary["apis"] if t["pipe"] != "S" or t["api"] in ("GetValue", "SetValue")]
    done = int(sum(total["count"] for total in counts)) - 1
    return [n for n, step in enumerate(steps) if step[0] in PIPE][done]


@pytest.mark.long
def test_the_simulator_finds_the_first_unordered_step_of_the_graph(compiled):
    verdicts = []
    for seed in range(1000):
        steps = random_program(seed)
        expected = first_unordered(steps)
        assert simulated_first_unordered(compiled, steps) == expected, (seed, steps)
        verdicts.append(expected)
    assert 0.05 < np.mean([verdict is None for verdict in verdicts]) < 0.95


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([(COPY_IN, 0, 0), (VECTOR, 1, 0)], 1),
        ([(COPY_IN, 0, 0), (SET, 7, 0), (WAIT, 7, 0), (VECTOR, 1, 0)], None),
        ([(SET, 7, 0), (COPY_IN, 0, 0), (WAIT, 7, 0), (VECTOR, 1, 0)], 3),
        ([(COPY_IN, 0, 0), (SET, 6, 0), (WAIT, 6, 0), (VECTOR, 1, 0)], None),
        ([(VECTOR, 1, 0), (VECTOR, 2, 1)], 1),
        ([(VECTOR, 1, 0), (BARRIER, 1, 0), (VECTOR, 2, 1)], None),
        ([(STORE, 0, 0), (COPY_OUT, 0, 0)], 1),
        # S signals V, V signals S, and then S issues the copy.
        ([(STORE, 0, 0), (SET, 0, 0), (WAIT, 0, 0), (SET, 3, 0), (WAIT, 3, 0), (COPY_OUT, 0, 0)], None),
    ],
)
def test_the_graph_finds_the_first_unordered_step_of_known_programs(steps, expected):
    assert first_unordered(steps) == expected
