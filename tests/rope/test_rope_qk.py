"""rope_qk on every back end: it rotates queries and keys like rope, in one launch."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import rope_cases
import torch
from ascend_sim import library as simulator
from guarded_memory import GuardedMemory
from hypothesis import given, settings
from hypothesis import strategies as st
from pairwise import pairwise
from rope_cases import (
    NUMPY_DTYPES,
    Case,
    assert_within,
    bytes_of,
    element_strides,
    factors_of,
    layout_strides,
    params_of,
    positions_of,
    to_torch,
    values_of,
)
from together import together

from npu_rope import RopeParams, native, rope, rope_qk, rope_qk_
from npu_rope.executors import rotations


@dataclass(frozen=True)
class QkCase(Case):
    """A call of rope_qk. ``sizes`` are those of q; q and k have the same layout."""

    keys: int = 2  # heads of k


FACTORS = {
    **{name: rope_cases.FACTORS[name] for name in ("dtype", "mode", "framework", "rank", "window")},
    **{name: rope_cases.FACTORS[name] for name in ("sections", "planes", "freq_factors")},
    "scaling": ["none", "yarn"],
    "forward": [True, False],
    "positions": ["ascending", "int64", "per-batch", "negative", "strided", "equal-rows", "extreme"],
    "x_layout": ["contiguous", "bnsd", "fused", "gaps", "shared-batch", "non-unit", "reversed"],
    "out": ["new", "given", "in-place", "q-in-place", "k-in-place", "gaps", "bnsd", "beside-v"],
    "angle": ["exact", "f32", "ggml"],
    "keys": [2, 1, 3, 7],
}


def possible(case):
    if not rope_cases.possible(case):
        return False
    may_be_out = case.x_layout not in ("shared-batch", "non-unit")
    return may_be_out or not case.out.endswith("in-place")


def shapes_of(case):
    B, S, N, D = case.sizes
    shapes = (B, S, N, D), (B, S, case.keys, D)
    return shapes if case.rank == 4 else tuple(shape[1:] for shape in shapes)


def empty(guarded, layout, shapes, dtype):
    """Return memory for q and k in a layout. "fused" are slices of one projection, which also holds v."""
    if layout != "fused":
        return [guarded.empty(shape, dtype, layout_strides(layout, shape)) for shape in shapes]
    q, k = shapes
    all_heads = guarded.empty((*q[:-2], q[-2] + 2 * k[-2], q[-1]), dtype)
    all_heads[...] = 7
    return [all_heads[..., : q[-2], :], all_heads[..., q[-2] : q[-2] + k[-2], :]]


@dataclass
class QkArrays:
    """A case's arrays in guarded memory."""

    params: RopeParams
    xs: list[np.ndarray]
    positions: np.ndarray
    factors: np.ndarray | None
    outs: list[np.ndarray] | None


def make_inputs(case, guarded, seed=0):
    rng = np.random.default_rng(seed)
    params, shapes, dtype = params_of(case), shapes_of(case), NUMPY_DTYPES[case.dtype]
    positions, factors = positions_of(case, rng), factors_of(case, params, rng)
    xs = empty(guarded, case.x_layout, shapes, dtype)
    for x in xs:
        values = rng.standard_normal(x.shape).astype(dtype)
        x[...] = values[:1] if case.x_layout == "shared-batch" and case.rank == 4 else values
    outs = None
    if case.out != "new":
        layout = {"gaps": "gaps", "bnsd": "bnsd", "beside-v": "fused"}.get(case.out, "contiguous")
        outs = empty(guarded, layout, shapes, dtype)
        in_place = {"in-place": (0, 1), "q-in-place": (0,), "k-in-place": (1,)}.get(case.out, ())
        for side in in_place:
            outs[side] = xs[side]
    positions = guarded.input(positions, element_strides(positions))
    if factors is not None:
        factors = guarded.input(factors, element_strides(factors))
    return QkArrays(params, xs, positions, factors, outs)


def refusal(backend, case, positions, size):
    """Return (class, message) of the error if the back end does not support the call, else None."""
    refused = rope_cases.refusal(backend, case.dtype, positions=positions, angle=case.angle, size=size)
    return refused and (
        refused[0],
        refused[1].replace("[rope] x ", "[rope] q ").replace("[rope]", "[rope_qk]"),
    )


def converter(case):
    """Return a function that converts arrays for the framework. One array always gives the same tensor."""
    if case.framework == "numpy":
        return lambda a: a
    tensors = {}

    def convert(a):
        return tensors.setdefault(id(a), to_torch(a))

    return convert


def call(case, inputs, backend):
    """Return the results; None if the back end must refuse the call, after a check that it writes nothing."""
    convert = converter(case)
    arrays = [convert(t) for t in (*inputs.xs, inputs.positions)]
    out = None if inputs.outs is None else tuple(convert(out) for out in inputs.outs)

    def run():
        factors = convert(inputs.factors)
        options = {"backend": backend, "out": out, "forward": case.forward, "angle": case.angle}
        return rope_qk(*arrays, inputs.params, factors, **options)

    refused = refusal(backend, case, inputs.positions, sum(x.size for x in inputs.xs))
    if refused is None:
        return run()
    watched = [*inputs.xs, *(inputs.outs or [])]
    before = [bytes_of(t) for t in watched]
    with pytest.raises(refused[0]) as caught:
        run()
    assert str(caught.value) == refused[1]
    assert [bytes_of(t) for t in watched] == before
    return None


def run_and_judge(case, backend, guarded, seed=0):
    """Require both results to meet their bounds, and inputs that are not outputs to stay unchanged."""
    inputs = make_inputs(case, guarded, seed)
    before = [x.copy() for x in inputs.xs]
    got = call(case, inputs, backend)
    guarded.check()
    if got is None:
        return
    assert isinstance(got, tuple)
    for side, y in enumerate(got):
        x, x_before = inputs.xs[side], before[side]
        if inputs.outs is not None:
            assert np.array_equal(values_of(y), inputs.outs[side].astype(np.float64), equal_nan=True)
        if inputs.outs is None or inputs.outs[side] is not x:
            assert np.array_equal(x, x_before)
        options = {"dtype": case.dtype, "forward": case.forward, "angle": case.angle, "backend": backend}
        assert_within(y, x_before, inputs.positions, inputs.params, inputs.factors, **options)


def cases(candidates):
    return together("case", [c for c in candidates if possible(c)], share=True)


BASES = [
    QkCase(),
    QkCase("float16", "neox", "torch"),
    QkCase("bfloat16", "mrope"),
    QkCase("float32", "imrope", "torch"),
    QkCase("float64", "vision", "torch"),
]
ONE_FACTOR = BASES + [
    replace(base, **{name: value})
    for base in BASES
    for name, values in FACTORS.items()
    for value in values
    if value != getattr(base, name)
]


@cases(dict.fromkeys(ONE_FACTOR))
def test_one_factor_changed_meets_the_bound(case, backend, guarded):
    run_and_judge(case, backend, guarded)


@cases(pairwise(FACTORS, QkCase, possible))
def test_every_pair_of_factors_meets_the_bound(case, backend, guarded):
    run_and_judge(case, backend, guarded)


@settings(max_examples=60)
@given(
    case=st.builds(
        QkCase,
        **{name: st.sampled_from(values) for name, values in FACTORS.items()},
        sizes=st.tuples(
            st.integers(1, 3), st.integers(0, 9), st.integers(0, 9), st.sampled_from([16, 36, 64, 70, 128])
        ),
    ).filter(possible),
    seed=st.integers(0, 2**16),
)
def test_any_call_meets_the_bound(case, seed, backend):
    run_and_judge(case, backend, GuardedMemory(), seed)


HEADS = [(32, 8), (8, 1), (1, 8), (71, 1), (5, 5), (0, 3), (3, 0), (0, 0)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_q_and_k_may_have_any_numbers_of_heads(heads, dtype, backend, guarded):
    for S, mode, positions in [
        (1, "neox", "ascending"),
        (37, "normal", "ascending"),
        (37, "normal", "extreme"),
        (0, "neox", "ascending"),
    ]:
        for out in ("given", "in-place"):
            sizes = (2, S, heads[0], 64)
            case = QkCase(dtype, mode, sizes=sizes, keys=heads[1], positions=positions, out=out)
            run_and_judge(case, backend, guarded)


@pytest.mark.parametrize("D", [2, 6, 36, 80, 96, 112, 192, 576, 1024])
@pytest.mark.parametrize("layout", ["contiguous", "fused"])
def test_head_sizes_that_models_have_meet_the_bound(D, layout, backend, guarded):
    for dtype in ("float32", "float16"):
        sizes = (1, 5, 4, D)
        run_and_judge(QkCase(dtype, "neox", sizes=sizes, x_layout=layout, out="in-place"), backend, guarded)


def test_many_tokens_on_several_threads_and_cores_meet_the_bound(backend, guarded):
    case = QkCase("float16", "neox", sizes=(2, 400, 8, 128), keys=2, x_layout="fused", out="in-place")
    run_and_judge(case, backend, guarded)


# ---- one call instead of two -----------------------------------------------------------------------


@cases(pairwise({**FACTORS, "out": ["new"]}, QkCase, possible, seed=1))
def test_each_result_equals_ropes_bit_for_bit(case, backend):
    guarded = GuardedMemory()
    inputs, convert = make_inputs(case, guarded), converter(case)
    got = call(case, inputs, backend)
    if got is None:
        return
    for x, y in zip(inputs.xs, got, strict=True):
        arguments = convert(x), convert(inputs.positions), inputs.params, convert(inputs.factors)
        alone = rope(*arguments, backend=backend, forward=case.forward, angle=case.angle)
        assert bytes_of(y) == bytes_of(alone)


@pytest.mark.parametrize("device", ["sim", "sim:ascend310p"])
@pytest.mark.parametrize("case", [QkCase(), QkCase("float16", "mrope", "torch", out="in-place")], ids=str)
def test_a_call_is_one_launch(case, device, guarded):
    inputs = make_inputs(case, guarded)
    before = simulator.load().launches()
    call(case, inputs, device)
    assert simulator.load().launches() == before + 1


def test_a_call_on_the_cpu_enters_the_library_once(monkeypatch, guarded):
    """The library gets the addresses and strides of the arrays."""
    calls = []

    def record(self, op, inputs, a, outputs):
        calls.append([(t.data, list(t.stride)) for t in (*inputs[:2], *outputs)])

    monkeypatch.setattr(native.Native, "call", record)
    monkeypatch.setattr(rotations, "on_small_arrays", lambda *arguments: None)  # it has its own function
    case = QkCase(x_layout="fused", out="beside-v")
    inputs = make_inputs(case, guarded)
    call(case, inputs, "cpu")
    expected = [(a.ctypes.data, [s // a.itemsize for s in a.strides]) for a in (*inputs.xs, *inputs.outs)]
    assert calls == [expected]


def test_a_torch_call_on_slices_of_a_projection_allocates_no_tensor():
    qkv = torch.randn(512, 32 + 2 * 8, 128)
    q, k, positions = qkv[:, :32], qkv[:, 32:40], torch.arange(512)
    params = RopeParams(128, "neox")
    rope_qk_(q, k, positions, params)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        rope_qk_(q, k, positions, params)
    assert sum(max(0, e.self_cpu_memory_usage) for e in profile.key_averages()) < 4096


# ---- in place --------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_in_place_returns_q_and_k_themselves(framework, backend):
    q, k = np.ones((3, 2, 16), np.float32), np.full((3, 1, 16), 2, np.float32)
    convert = to_torch if framework == "torch" else lambda a: a
    passed = convert(q), convert(k)
    got = rope_qk_(*passed, convert(np.arange(3)), RopeParams(16), backend=backend)
    assert all(a is b for a, b in zip(got, passed, strict=True))
    for x, value in ((q, 1), (k, 2)):
        before = np.full(x.shape, value)
        assert_within(x, before, np.arange(3), RopeParams(16), dtype="float32", backend=backend)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_out_may_be_a_list_and_its_tensors_are_returned(framework, backend):
    convert = to_torch if framework == "torch" else lambda a: a
    q, k = convert(np.ones((3, 2, 16), np.float32)), convert(np.ones((3, 1, 16), np.float32))
    out = [convert(np.zeros((3, 2, 16), np.float32)), k]
    got = rope_qk(q, k, convert(np.arange(3)), RopeParams(16), backend=backend, out=out)
    assert got[0] is out[0]
    assert got[1] is k


def test_v_in_the_same_projection_stays_unchanged(backend, guarded):
    for framework in ("numpy", "torch"):
        case = QkCase(framework=framework, x_layout="fused", out="in-place")
        inputs = make_inputs(case, guarded)
        call(case, inputs, backend)
        k = inputs.xs[1]  # v lies behind k in each row and has the same shape
        k_and_v = np.lib.stride_tricks.as_strided(k, (2, 5, 2 * case.keys, 64), k.strides)
        assert np.all(k_and_v[..., case.keys :, :] == 7)


# ---- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", list(NUMPY_DTYPES))
def test_a_nan_in_the_queries_does_not_reach_the_keys(dtype, backend):
    if rope_cases.refusal(backend, dtype) is not None:
        return
    q, k = (np.ones((4, n, 32), NUMPY_DTYPES[dtype]) for n in (3, 2))
    q[...] = np.nan
    _, rotated = rope_qk(q, k, np.arange(4), RopeParams(32), backend=backend)
    assert np.all(np.isfinite(values_of(rotated)))


def test_arrays_of_the_other_byte_order_give_the_same_result(backend):
    q, k = (np.random.default_rng(n).standard_normal((3, n, 8)).astype(np.float32) for n in (2, 1))
    expected = rope_qk(q, k, np.arange(3), RopeParams(8), backend=backend)
    swapped = [x.astype(x.dtype.newbyteorder()) for x in (q, k)]
    got = rope_qk(*swapped, np.arange(3).astype(">i8"), RopeParams(8), backend=backend)
    assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))
