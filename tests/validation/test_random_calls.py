"""Random calls of rope: calls of a fixed seed, and wrong results that the judge must find."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from choices import Choices, simplified
from random_calls import (
    ARRAYS,
    DTYPES,
    FASTEST_DRAWN,
    OPERATORS,
    Layout,
    RandomCall,
    draw,
    limits_of,
)
from random_judge import execute, judge, make_data

from npu_rope import RopeParams
from npu_rope.rope_attributes import RopeMode

SEED = 20261
CALLS = {"reference": 100, "cpu": 600, "sim": 100, "sim:ascend310p": 60, "sim:ascend950": 20}


def call_at(seed, index, backend="cpu", given=None):
    """Return a call of one of the operators in turn."""
    choices = Choices(f"{seed}/{index}", given)
    return draw(choices, OPERATORS[index % len(OPERATORS)], limits_of(backend), ARRAYS), choices.made


def drawn(backend, count, seed=SEED):
    return [call_at(seed, index, backend)[0] for index in range(count)]


# ---- fixed calls -----------------------------------------------------------------------------------


@pytest.mark.long
def test_the_fixed_calls_are_within_their_bounds(backend):
    wrong = {}
    for index, call in enumerate(drawn(backend, CALLS[backend])):
        verdict = judge(call, backend)
        if verdict.problem:
            wrong[index] = f"{verdict.problem}; {call}"
    assert wrong == {}


# ---- drawn calls -----------------------------------------------------------------------------------


def test_a_number_always_draws_the_same_call_and_the_same_tensors():
    limits = limits_of("cpu")
    for index in (0, 1, 17):
        first, again = (call_at(3, index)[0] for _ in range(2))
        assert first == again
        assert first != call_at(3, index + 1)[0]
        assert first != call_at(4, index)[0]
        one, other = make_data(first, limits), make_data(again, limits)
        for name, buffer in one.buffers.items():
            assert buffer.flat.tobytes() == other.buffers[name].flat.tobytes()


def properties_of(call):
    """Yield the properties of a call."""
    params, mode = call.params, call.params.rope_mode
    yield from (("operator", call.op, mode), ("dtype", call.dtype), ("positions", call.positions))
    yield from (
        ("values", call.position_values),
        ("position step", call.position_step),
    )
    yield from (
        ("out", call.op, call.out),
        ("angle", call.angle),
        ("arrays", call.arrays),
        ("head", call.head_size),
    )
    yield from (("forward", call.forward), ("factors", call.factors is None), ("fused", call.fused))
    yield from (("cache", call.dtype, call.cache[1]), ("no batch", call.batch == 0))
    yield from (
        ("odd head", call.head_size % 2),
        ("offset", mode, params.n_offs > 0),
        ("yarn", params.ext_factor != 0),
    )
    for layout in (*call.layouts, *call.out_layouts):
        yield from (("order", layout.order), ("unaligned", layout.lead[3] % 2))
        yield from (("layout step", step) for step in layout.step)
    if mode.has_sections:
        total, first = sum(params.sections), params.sections[:3]
        yield from (("extra", params.sections[3] > 0), ("empty", mode, tuple(width == 0 for width in first)))
        yield ("cover", mode, (total > params.pairs) - (total < params.pairs))


def test_every_property_of_the_operators_calls_is_drawn():
    drawn_properties = {p for call in drawn("cpu", 3000) for p in properties_of(call)}
    sectioned = [m for m in RopeMode if m.has_sections]
    shapes = ("[S]", "[B,S]", "[1,S]", "[4,S]", "[4*S]", "[3,S]")
    shapes += ("[4,B,S]", "[3,B,S]", "[4,1,S]", "[3,1,S]")
    wanted = {("operator", op, mode) for op in OPERATORS for mode in RopeMode}
    wanted |= {("dtype", d) for d in DTYPES} | {("positions", s) for s in shapes}
    wanted |= {("values", v) for v in ("run", "random", "negative", "far", "equal")}
    wanted |= {("out", "rope", o) for o in ("new", "in place", "given", "alternating")}
    wanted |= {("out", "rope_qk", o) for o in ("new", "in place", "given")}
    wanted |= {("angle", a) for a in ("exact", "f32", "ggml")} | {("arrays", a) for a in ARRAYS}
    wanted |= {("head", d) for d in (2, 6, 36, 80, 96, 112, 192, 576, 1024)}
    wanted |= {("cache", "float32", d) for d in ("float32", "float16", "bfloat16")}
    wanted |= {("order", o) for o in ("BSN", "BNS", "SBN", "NSB")}
    wanted |= {(name, s) for name in ("position step", "layout step") for s in (-1, 0, 1, 2)}
    wanted |= {("cover", m, c) for m in sectioned for c in (-1, 0, 1)}
    wanted |= {("empty", m, e) for m in sectioned for e in ((True, False, False), (False, True, False))}
    wanted |= {("offset", m, True) for m in RopeMode if m is not RopeMode.VISION}
    names = ("forward", "factors", "fused", "no batch", "yarn", "extra", "odd head", "unaligned")
    wanted |= {(name, value) for name in names for value in (False, True)}
    assert wanted - drawn_properties == set()


@pytest.mark.parametrize("backend", ["cpu", "sim"])
def test_no_frequency_exceeds_the_range_of_the_bound(backend):
    limits = limits_of(backend)
    for call in drawn(backend, 500):
        assert np.abs(call.params.frequencies()).max() <= FASTEST_DRAWN
        factors = make_data(call, limits).factors
        assert np.abs(call.params.frequencies(freq_factors=factors)).max() <= limits.fastest * (1 + 2**-20)


def test_a_device_gets_only_calls_that_it_supports():
    for backend, dtypes in (("sim", set(DTYPES[:3])), ("sim:ascend310p", set(DTYPES[:2]))):
        calls = drawn(backend, 300)
        assert {c.dtype for c in calls} == dtypes
        assert {c.cache[1] for c in calls} == {"", *dtypes}
        assert {c.angle for c in calls} == {"exact"}
        assert max(np.abs(make_data(c, limits_of(backend)).positions).max() for c in calls) == 2**22 - 1


# ---- errors that the judge finds -------------------------------------------------------------------


def call_of(op="rope", mode="mrope", **changed):
    """Return a call whose result depends on positions, sections, window, factors and direction."""
    sections = (4, 3, 2, 1) if RopeMode[mode.upper()].has_sections else (0, 0, 0, 0)
    n_offs, n_dims = (0, 16) if mode == "vision" else (4, 24)
    heads = (3, 2) if op == "rope_qk" else (3,)
    given = op == "rope_set_rows"
    return replace(
        RandomCall(
            seed=55, op=op, arrays="numpy", dtype="float32", batch=2, tokens=5, heads=heads, head_size=32,
            params=RopeParams(n_dims, mode, sections=sections, n_offs=n_offs),
            layouts=tuple(Layout(trail=(0, 0, 1, 3)) for _ in heads),
            positions="[4,B,S]" if mode not in ("normal", "neox") else "[B,S]", position_values="random",
            factors=(2.0, 4.0),
            out="given" if given else "new", out_layouts=(Layout(trail=(0, 0, 1, 3)),) if given else (),
            cache=(4, "float32", "int64") if given else (0, "", "int64"),
        ),
        **changed,
    )  # fmt: skip


def with_call(**changed):
    """Return an executor that runs a changed call on the same tensors."""
    return lambda call, data, backend: execute(replace(call, **changed), data, backend)


def with_params(**changed):
    return lambda call, data, backend: execute(
        replace(call, params=replace(call.params, **changed)), data, backend
    )


def with_data(**functions):
    def run(call, data, backend):
        return execute(call, replace(data, **{n: f(getattr(data, n)) for n, f in functions.items()}), backend)

    return run


def after_the_call(change):
    """Return an executor that changes something after the correct call."""

    def run(call, data, backend):
        results = [np.array(r) if call.out == "new" else r for r in execute(call, data, backend)]
        change(call, data, results)
        return results

    return run


def last_token_moved(positions):
    """Return positions in which the last token is one position off."""
    moved = positions.copy()
    moved[..., -1] += 1
    return moved


def change_one_lane_slightly(call, data, results):
    results[-1][..., 9] *= np.float32(1 + 2**-18)


def change_copied_lane(call, data, results):
    at = (data.rows.max(), 0, 0) if call.op == "rope_set_rows" else (0, 0, 0, 0)
    results[-1][at] += np.float32(1e-7)


def write_x(call, data, results):
    data.x[0][0, 0, 0, 0] += 1


def write_positions(call, data, results):
    data.positions[0, 0] += 1


def write_after(call, data, results):
    data.buffers["cache" if call.op == "rope_set_rows" else "out 0"].flat[-1] += 1


def write_before(call, data, results):
    data.buffers["cache" if call.op == "rope_set_rows" else "out 0"].flat[0] += 1


CORRECT = [call_of(op, mode) for op in OPERATORS for mode in ("normal", "neox", "mrope", "imrope", "vision")]
SECTIONED, ALL = ("mrope", "imrope", "vision"), ("normal", "neox", "mrope", "imrope", "vision")
# name of the error: (executor with the error, modes in which the result changes)
WRONG = {
    "sign of the sine": (with_call(forward=False), ALL),
    "one token moved by a position": (with_data(positions=last_token_moved), ALL),
    "time and height exchanged": (with_data(positions=lambda p: p[[1, 0, 2, 3]]), SECTIONED),
    "time instead of extra": (with_data(positions=lambda p: p[[0, 1, 2, 0]]), SECTIONED),
    "a pair of height rotated by time": (with_params(sections=(5, 2, 2, 1)), SECTIONED),
    "sections that do not repeat": (with_params(sections=(4, 3, 2, 20)), ("mrope", "vision")),
    "mrope instead of imrope": (with_params(mode="mrope"), ("imrope",)),
    "imrope instead of mrope": (with_params(mode="imrope"), ("mrope",)),
    "halves instead of neighbours": (with_params(mode="neox"), ("normal",)),
    "neighbours instead of halves": (with_params(mode="normal"), ("neox",)),
    "a window two lanes later": (with_params(n_offs=6), ("normal", "neox", "mrope", "imrope")),
    "one pair too few": (with_params(n_dims=22), ("normal", "neox")),
    "no freq_factors": (with_data(factors=lambda f: None), ALL),
    "factors of the previous pair": (with_data(factors=lambda f: np.roll(f, 1)), ALL),
    "another base": (with_params(freq_base=10001.0), ALL),
    "a lane changed by 2^-18": (after_the_call(change_one_lane_slightly), ALL),
    "x written": (after_the_call(write_x), ALL),
    "positions written": (after_the_call(write_positions), ALL),
}


@pytest.mark.parametrize("call", CORRECT, ids=lambda c: f"{c.op}-{c.params.rope_mode.name.lower()}")
def test_a_correct_call_has_no_problem(call, backend):
    assert judge(call, backend).problem == ""


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize(
    ("error", "mode"), [(error, mode) for error, (_, modes) in WRONG.items() for mode in modes]
)
def test_a_wrong_call_has_a_problem(error, mode, op):
    assert judge(call_of(op, mode), "cpu", WRONG[error][0]).problem != ""


@pytest.mark.parametrize("op", OPERATORS)
def test_a_changed_lane_outside_the_window_is_found(op):
    assert "times its bound" in judge(call_of(op), "cpu", after_the_call(change_copied_lane)).problem


@pytest.mark.parametrize("write", [write_after, write_before])
@pytest.mark.parametrize("op", OPERATORS)
def test_a_write_next_to_the_result_is_found(op, write):
    call = call_of(op) if op == "rope_set_rows" else call_of(op, out="given", out_layouts=(Layout(),) * 2)
    call = replace(call, out_layouts=call.out_layouts[: len(call.heads)])
    assert judge(call, "cpu").problem == ""
    assert "memory outside the output" in judge(call, "cpu", after_the_call(write)).problem


def test_a_write_into_a_gap_of_the_result_is_found():
    """The gap is between the rows of two heads."""
    call = call_of(out="given", out_layouts=(Layout(trail=(0, 0, 0, 3)),))

    def write(call, data, results):
        row = data.out[0].strides[2] // data.out[0].itemsize
        np.lib.stride_tricks.as_strided(data.out[0][0, 0, 0], (row,), (data.out[0].itemsize,))[-1] += 1

    assert judge(call, "cpu").problem == ""
    assert "memory outside the output" in judge(call, "cpu", after_the_call(write)).problem


def test_a_result_that_is_not_the_given_array_is_found():
    call = call_of(out="given", out_layouts=(Layout(),))
    copies = lambda call, data, backend: [r.copy() for r in execute(call, data, backend)]  # noqa: E731
    assert "must return the given array" in judge(call, "cpu", copies).problem


WRONG_ROWS = {
    "rows moved by one token": lambda rows: np.roll(rows, 1, axis=-1),
    "a skipped token written": lambda rows: np.where(rows < 0, np.setdiff1d(np.arange(14), rows)[0], rows),
    "a token left out": lambda rows: np.where(rows == rows.max(), -1, rows),
}


@pytest.mark.parametrize("error", WRONG_ROWS)
def test_wrong_rows_of_the_cache_are_found(error):
    call = call_of("rope_set_rows")
    rows = make_data(call, limits_of("cpu")).rows
    assert np.count_nonzero(rows < 0) == 1
    assert judge(call, "cpu", with_data(rows=WRONG_ROWS[error])).problem != ""


def test_the_wrong_sign_is_found_in_most_random_calls():
    """The sign has no effect if every position is 0, or every cos and sin is multiplied by 0."""
    flipped = lambda call, data, backend: execute(replace(call, forward=not call.forward), data, backend)  # noqa: E731
    verdicts = [judge(call, "cpu", flipped) for call in drawn("cpu", 100)]
    assert sum(bool(v.problem) for v in verdicts) > 80


def test_a_raised_error_is_a_violation():
    def refuse(call, data, backend):
        raise ValueError("[rope] x must be even but got 7.")

    assert judge(call_of(), "cpu", refuse).problem == "ValueError: [rope] x must be even but got 7."


def test_a_wrong_call_is_reduced_to_the_smallest_wrong_call():
    def wrong_backward(call, data, backend):
        return execute(replace(call, forward=True), data, backend)

    def fails(given):
        call, made = call_at(1, index, given=given)
        return made if judge(call, "cpu", wrong_backward).problem else None

    for index in range(100):
        call, made = call_at(1, index)
        if not call.forward and call.layouts[0] != Layout() and fails(made):
            break
    simplest, _ = call_at(1, index, given=simplified(made, fails))
    assert judge(simplest, "cpu", wrong_backward).problem
    assert not simplest.forward
    assert (simplest.tokens, set(simplest.heads), simplest.layouts[0]) == (1, {1}, Layout())
    assert (simplest.params.ext_factor, simplest.dtype, simplest.out) == (0, "float32", "new")
