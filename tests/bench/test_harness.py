"""The benchmark harness, with contestants of known cost and results. No test checks an absolute time."""

import time

import pytest

from npu_rope.bench.harness import (
    MAX_ROUNDS,
    Contestant,
    NotInstalled,
    Ready,
    Unsupported,
    measure_row,
    quartiles,
    summarize,
)


def sleeper(name, seconds, kind="ours"):
    return Contestant(name, kind, lambda: Ready(lambda: time.sleep(seconds), lambda: None))


def raising(error):
    def prepare():
        raise error

    return prepare


def by_name(figures):
    return {figure.contestant: figure for figure in figures}


def test_quartiles_of_hand_made_numbers():
    assert quartiles([5.0, 1.0, 3.0, 2.0, 4.0]) == (2.0, 3.0, 4.0)
    assert quartiles([7.0]) == (7.0, 7.0, 7.0)


def test_summary_has_median_minimum_and_spread_in_microseconds():
    numbers = summarize([1e-6, 2e-6, 3e-6, 4e-6, 5e-6], [])
    assert numbers["median_us"] == pytest.approx(3)
    assert numbers["min_us"] == pytest.approx(1)
    assert numbers["spread"] == pytest.approx(2)  # (4 - 2) / 1
    assert "ratio" not in numbers


def test_the_ratio_is_taken_per_round_so_that_slow_rounds_cancel():
    # The machine is ten times slower in rounds two and three; the contestant alone is slower in round five.
    floor = [1.0, 10.0, 10.0, 1.0, 1.0]
    numbers = summarize([2.0, 20.0, 20.0, 2.0, 20.0], floor)
    assert numbers["ratio"] == 2.0
    assert numbers["ratio_of_medians"] == 20.0


def test_the_slower_contestant_has_the_larger_ratio():
    row = [sleeper("floor", 0.002, "floor"), sleeper("slow", 0.008), sleeper("middle", 0.004)]
    found = by_name(measure_row(row, 0.0, min_rounds=5)[0])
    assert found["floor"].numbers["ratio"] == 1.0
    assert 1.0 < found["middle"].numbers["ratio"] < found["slow"].numbers["ratio"]


def test_contestants_alternate_in_every_round():
    order = []

    def recording(name):
        def call():
            order.append(name)
            time.sleep(0.0002)

        return Contestant(name, "ours", lambda: Ready(call, lambda: None))

    figures, _ = measure_row([recording("a"), recording("b")], 0.0, min_rounds=4)
    assert [len(figure.seconds) for figure in figures] == [4, 4]
    batches = [name for k, name in enumerate(order) if k == 0 or order[k - 1] != name]
    assert batches[-8:] == ["a", "b"] * 4


def test_the_number_of_rounds_is_limited():
    figures, _ = measure_row([Contestant("free", "ours", lambda: Ready(int, lambda: None))], 60.0)
    assert figures[0].numbers["samples"] == MAX_ROUNDS


def test_a_wrong_contestant_is_reported_and_not_timed():
    calls = []

    def prepare():
        return Ready(lambda: calls.append(1), lambda: 41)

    wrong = Contestant("wrong", "peer", prepare, lambda result: None if result == 42 else f"got {result}")
    figures, _ = measure_row([sleeper("floor", 0.001, "floor"), wrong], 0.0, min_rounds=2)
    found = by_name(figures)["wrong"]
    assert (found.status, found.note, found.numbers, calls) == ("wrong", "got 41", {}, [])


@pytest.mark.parametrize(
    ("error", "status", "note"),
    [
        (Unsupported("no bfloat16"), "unsupported", "no bfloat16"),
        (NotInstalled("pip install it"), "not installed", "pip install it"),
        (RuntimeError("broke\nat length"), "failed", "RuntimeError: broke"),
    ],
    ids=["unsupported", "not installed", "failed"],
)
def test_an_unavailable_contestant_is_reported_with_the_reason(error, status, note):
    row = [sleeper("floor", 0.001, "floor"), Contestant("absent", "peer", raising(error))]
    figures, _ = measure_row(row, 0.0, min_rounds=2)
    assert (figures[1].status, figures[1].note, figures[1].numbers) == (status, note, {})
    assert figures[0].numbers["samples"] == 2


def test_a_contestant_is_closed_and_each_of_its_batches_runs_in_its_context():
    events = []

    class Pool:
        def __enter__(self):
            events.append("in")

        def __exit__(self, *_):
            events.append("out")

    def prepare():
        return Ready(lambda: time.sleep(0.001), lambda: None, Pool, lambda: events.append("closed"))

    measure_row([Contestant("pooled", "peer", prepare)], 0.0, min_rounds=3)
    assert events.pop() == "closed"
    assert events == ["in", "out"] * 5  # the check, the calibration, three rounds
