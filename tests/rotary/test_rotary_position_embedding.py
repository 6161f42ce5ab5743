"""rotary_position_embedding, on every back end and in torch, against the loop of PMX's specification."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pairwise import pairwise
from rope_cases import (
    DEVICE_REACH,
    NUMPY_DTYPES,
    bytes_of,
    chip_of,
    layout_strides,
    table_error_of,
    to_torch,
    values_of,
)
from together import together

import npu_rope
from npu_rope import RopeParams, backends, rope, rotary_position_embedding
from npu_rope.testing.bounds import is_device, worst_ratio
from npu_rope.testing.chip_types import has_bfloat16
from npu_rope.testing.pmx import PmxCase, angles_of, expectation

OPS = torch.ops.npu_rope
DTYPES = {**NUMPY_DTYPES, "int8": np.int8}


@dataclass(frozen=True)
class PmxCall:
    """A call. ``sizes`` is (B, S, Nq, D), ``keys`` the number of key heads.

    A packed call has B sequences of S, S + 1, ... tokens.
    """

    dtype: str = "float32"
    framework: str = "numpy"
    form: str = "batched"
    sizes: tuple[int, int, int, int] = (3, 5, 4, 24)
    keys: int = 2
    start: int = 3
    pads: str = "none"
    rotary_dim: int = 0
    theta: float = 10000.0
    bypass_key: bool = False
    scaling: str = ""
    layout: str = "contiguous"
    integers: str = "int64"

    @property
    def case(self) -> PmxCase:
        """Return the call's data for the specification's loop."""
        B, S, N, D = self.sizes
        pads = {"some": tuple(range(B)), "far": tuple(900 * (b + 1) for b in range(B)), "none": None}
        scalings = {"": ("", 1.0, 8), "linear": ("linear", 2.5, 8), "dynamic": ("dynamic", 3.0, 6)}
        packed = self.form == "packed"
        lengths = tuple(S + b for b in range(B))
        return PmxCase(
            str(self),
            self.dtype,
            (sum(lengths), N, D) if packed else self.sizes,
            self.keys,
            tuple(self.start + 4 * b for b in range(B)) if packed else self.start,
            None if packed else pads[self.pads],
            lengths if packed else None,
            self.rotary_dim,
            self.theta,
            self.bypass_key,
            scalings[self.scaling],
        )


FACTORS = {
    "dtype": ["float32", "float16", "int8", "bfloat16", "float64"],
    "framework": ["numpy", "torch"],
    "form": ["batched", "packed"],
    "sizes": [(3, 5, 4, 24), (1, 1, 4, 24), (2, 1, 3, 128), (2, 7, 1, 80), (2, 0, 4, 24), (0, 3, 4, 24)],
    "keys": [2, 1, 4, 0],
    "start": [3, 0, -7, 2**22 - 32],
    "pads": ["none", "some", "far"],
    "rotary_dim": [0, 8, 20],
    "theta": [10000.0, 5e5, 1.0],
    "bypass_key": [False, True],
    "scaling": ["", "linear", "dynamic"],
    "layout": ["contiguous", "gaps", "non-unit", "bnsd"],
    "integers": ["int64", "int32", "list"],
}


def possible(call):
    return not (call.form == "packed" and (call.pads != "none" or call.layout == "bnsd"))


def heads_of(call, heads, rng):
    """Return queries or keys of ``heads`` heads, in the call's layout."""
    case = call.case
    shape = (*case.query_shape[:-2], heads, case.query_shape[-1])
    dtype = DTYPES[call.dtype]
    strides = [n * np.dtype(dtype).itemsize for n in layout_strides(call.layout, shape)]
    memory = np.zeros(2 * sum(n * s for n, s in zip(shape, strides, strict=True)) + 64, np.uint8).view(dtype)
    view = np.lib.stride_tricks.as_strided(memory, shape, strides)
    if call.dtype == "int8":
        view[...] = rng.integers(-128, 128, shape, np.int8)
    else:
        view[...] = rng.standard_normal(shape).astype(dtype)
    return view


def integers_of(call, values):
    if values is None or call.integers == "list":
        return values
    return np.array(values, call.integers)


def arguments_of(call, seed=0):
    """Return the call's positional and keyword arguments."""
    rng = np.random.default_rng(seed)
    case = call.case
    xs = [heads_of(call, n, rng) for n in (call.sizes[2], call.keys)]
    starts = None if case.seqlens is None else [0, *np.cumsum(case.seqlens).tolist()]
    start = case.start_pos
    start = integers_of(call, list(start) if isinstance(start, tuple) else start)
    pads = integers_of(call, None if case.pad_len is None else list(case.pad_len))
    starts = integers_of(call, starts)
    if call.framework == "torch":
        start, pads, starts = (to_torch(t) if isinstance(t, np.ndarray) else t for t in (start, pads, starts))
        xs = [to_torch(x) for x in xs]
    kind, factor, max_positions = case.scaling
    attributes = {
        "rotary_dim": call.rotary_dim,
        "theta": call.theta,
        "bypass_key": call.bypass_key,
        "max_position_embeddings": max_positions,
        "scaling_type": kind,
        "scaling_factor": factor,
        "seqstarts": starts,
    }
    return (*xs, start, pads), attributes


def refusal(call, backend):
    """Return (class, message) of the error if the device does not support the call, else None."""
    if not is_device(backend):
        return None
    chip, dtype = chip_of(backend), call.dtype
    rule = "query must be float32, float16 or bfloat16"
    if not has_bfloat16(backend):
        rule = "query must be float32 or float16"
    if dtype == "float64" or (dtype == "bfloat16" and not has_bfloat16(backend)):
        return TypeError, f"[rotary_position_embedding] {rule} on {chip} but got {dtype}."
    return None


def rounding_of(backend):
    """Return the rounding of an attribute on the back end: CANN stores float32 (docs/npu.md)."""
    return (lambda number: float(np.float32(number))) if is_device(backend) else float


def run_and_judge(call, backend, seed=0):
    """Require both results to meet their bounds, and the inputs to stay unchanged."""
    args, attributes = arguments_of(call, seed)
    before = [bytes_of(t) for t in args[:2]]
    refused = refusal(call, backend)
    if refused:
        with pytest.raises(refused[0]) as caught:
            rotary_position_embedding(*args, **attributes, backend=backend)
        assert str(caught.value) == refused[1]
        return
    got = rotary_position_embedding(*args, **attributes, backend=backend)
    assert isinstance(got, tuple)
    assert [bytes_of(t) for t in args[:2]] == before
    for y, x in zip(got, args[:2], strict=True):
        assert (type(y), y.dtype, tuple(y.shape)) == (type(x), x.dtype, tuple(x.shape))
    assert (got[1] is args[1]) == call.bypass_key
    inputs = [np.asarray(values_of(x)).astype(DTYPES[call.dtype]) for x in args[:2]]
    angles = angles_of(call.case, rounding_of(backend))
    expected = expectation(call.case, *inputs, angles, table_error_of(backend))
    result = np.concatenate([values_of(y) for y in got], -2)
    ratio, at = worst_ratio(result, expected.value, expected.bound)
    assert ratio <= 1, f"error is {ratio:.3g} of its bound at {at}"


def calls(candidates):
    return together("call", [c for c in candidates if possible(c)], share=True)


BASES = [
    PmxCall(),
    PmxCall("float16", "torch", "packed"),
    PmxCall("int8", "numpy", "batched", pads="some"),
    PmxCall("int8", "torch", "packed"),
]
ONE_FACTOR = [
    replace(base, **{name: value}) for base in BASES for name, values in FACTORS.items() for value in values
]


@calls(dict.fromkeys(ONE_FACTOR))
def test_one_factor_changed_meets_the_specification(call, backend):
    run_and_judge(call, backend)


@calls(pairwise(FACTORS, PmxCall, possible))
def test_every_pair_of_factors_meets_the_specification(call, backend):
    run_and_judge(call, backend)


@settings(max_examples=60)
@given(
    call=st.builds(
        PmxCall,
        **{name: st.sampled_from(values) for name, values in FACTORS.items()},
    )
    .flatmap(
        lambda call: st.tuples(
            st.just(call), st.integers(0, 4), st.integers(0, 9), st.integers(1, 20), st.integers(-40, 9000)
        )
    )
    .map(lambda t: replace(t[0], sizes=(t[1], t[2], t[0].sizes[2], 20 + 2 * t[3]), start=t[4]))
    .filter(possible),
    seed=st.integers(0, 2**16),
)
def test_any_call_meets_the_specification(call, seed, backend):
    run_and_judge(call, backend, seed)


# ---- properties that the specification's loop does not define ----------------------------------------


def test_it_equals_rope_of_the_same_positions_bit_for_bit(backend):
    rng = np.random.default_rng(1)
    query, key = (rng.standard_normal((2, 6, n, 64)).astype(np.float32) for n in (8, 2))
    got = rotary_position_embedding(query, key, 11, np.array([0, 4]), rotary_dim=48, backend=backend)
    positions = np.array([[11], [7]]) + np.arange(6)
    for y, x in zip(got, (query, key), strict=True):
        assert np.array_equal(y, rope(x, positions, RopeParams(48, "normal"), backend=backend))


def test_int8_is_rounded_to_nearest_and_saturated(backend):
    """Position 0 leaves x unchanged. At position 1 some sums exceed the range of int8 and saturate."""
    query = np.array([-128, -128, 127, 127, 100, -100], np.int8).reshape(1, 1, 3, 2)
    unrotated, _ = rotary_position_embedding(query, query, 0, backend=backend)
    assert np.array_equal(unrotated, query)
    rotated, _ = rotary_position_embedding(query, query, 1, backend=backend)
    c, s = np.cos(1.0), np.sin(1.0)
    a, b = query[..., 0].astype(float), query[..., 1].astype(float)
    exact = np.stack([a * c - b * s, a * s + b * c], -1)
    assert np.abs(exact).max() > 128
    assert np.array_equal(rotated, np.clip(np.rint(exact), -128, 127).astype(np.int8))


def test_the_default_back_end_reference_rounds_int8_once(monkeypatch):
    """The first element is 65.4999967. Rounded to float32 and then to int8 it would be 66."""
    query = np.array([-75, 62], np.int8).reshape(1, 1, 1, 2)
    monkeypatch.setattr(backends, "default_backend", "reference")
    assert rotary_position_embedding(query, query, 3)[0].flat[0] == 65


def test_ties_round_to_even():
    from npu_rope.executors.rotary_position_embedding import narrowed

    values = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 127.5, 200.0, -128.5, -300.0, 126.5], np.float32)
    expected = [0, 2, 2, 0, -2, 127, 127, -128, -128, 126]
    assert narrowed(values).tolist() == expected
    assert narrowed(torch.from_numpy(values)).tolist() == expected


def test_a_packed_sequence_gives_the_result_that_it_gives_alone(backend):
    rng = np.random.default_rng(2)
    query, key = (rng.standard_normal((12, n, 32)).astype(np.float32) for n in (4, 1))
    bounds, start_positions = [0, 5, 5, 6, 12], [0, 3, 70, 9]
    options = {"scaling_type": "dynamic", "max_position_embeddings": 8, "backend": backend}
    packed = rotary_position_embedding(query, key, start_positions, seqstarts=bounds, **options)
    for i, start in enumerate(start_positions):
        tokens = slice(bounds[i], bounds[i + 1])
        alone = rotary_position_embedding(query[None, tokens], key[None, tokens], start, **options)
        for y, z in zip(packed, alone, strict=True):
            assert np.array_equal(y[tokens], z[0])


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_bypassed_key_is_the_key_itself(dtype, backend):
    query, key = (np.ones((1, 3, n, 8), dtype) for n in (2, 1))
    assert rotary_position_embedding(query, key, 5, bypass_key=True, backend=backend)[1] is key
    packed = rotary_position_embedding(
        np.ones((6, 2, 8), dtype),
        packed_key := np.ones((6, 1, 8), dtype),
        [0, 90],
        seqstarts=[0, 3, 6],
        scaling_type="dynamic",
        max_position_embeddings=4,
        bypass_key=True,
        backend=backend,
    )
    assert packed[1] is packed_key


@pytest.mark.parametrize("packed", [False, True])
def test_the_error_for_positions_beyond_a_devices_reach_names_this_operator(packed, backend):
    query = np.ones((2, 1, 8) if packed else (1, 2, 1, 8), np.float32)
    start, seqstarts = ([DEVICE_REACH - 1], [0, 2]) if packed else (DEVICE_REACH - 1, None)

    def run():
        return rotary_position_embedding(query, query, start, seqstarts=seqstarts, backend=backend)[0]

    if is_device(backend):
        name = r"start_pos \+ s" if packed else r"start_pos \+ s - pad_len"
        rule = r"must be between -4194303 and 4194303 on the device but got 4194304\."
        with pytest.raises(ValueError, match=rf"^\[rotary_position_embedding\] {name} {rule}$"):
            run()
    else:
        positions = np.arange(DEVICE_REACH - 1, DEVICE_REACH + 1)
        assert np.array_equal(run(), rope(query, positions, RopeParams(8, "normal"), backend=backend))


# ---- torch -------------------------------------------------------------------------------------------


def tensors(dtype=torch.float32, shape=(2, 5, 4, 24), keys=2, grad=False):
    generator = torch.Generator().manual_seed(0)
    shapes = shape, (*shape[:-2], keys, shape[-1])
    tensors = [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]
    return [t.requires_grad_(grad) for t in tensors]


SAMPLES = [
    ({}, {}),
    ({"dtype": torch.int8}, {"pad_len": torch.tensor([0, 3]), "rotary_dim": 8}),
    ({"dtype": torch.bfloat16}, {"pad_len": torch.tensor([0, 3]), "bypass_key": True}),
    ({}, {"scaling_type": "linear", "scaling_factor": 4.0}),
    ({"shape": (7, 4, 24)}, {"seqstarts": torch.tensor([0, 3, 7]), "start_pos": torch.tensor([2, 9])}),
]
samples = pytest.mark.parametrize(
    ("shape_and_dtype", "options"), SAMPLES, ids=["plain", "int8", "bypass", "linear", "packed"]
)


@samples
def test_opcheck(shape_and_dtype, options):
    options = dict(options)
    start, pads = options.pop("start_pos", torch.tensor(3)), options.pop("pad_len", None)
    starts = options.pop("seqstarts", None)
    for grad in (False, True):
        if grad and shape_and_dtype.get("dtype") is torch.int8:
            continue  # integers have no gradient
        query, key = tensors(**shape_and_dtype, grad=grad)
        torch.library.opcheck(
            OPS.rotary_position_embedding.default, (query, key, start, pads, starts), options
        )


@samples
def test_compile_without_graph_breaks_gives_the_same_result(shape_and_dtype, options):
    options = {"start_pos": 3, **options}
    query, key = tensors(**shape_and_dtype)

    def model(query, key):
        y, z = rotary_position_embedding(query, key, **options)
        return y, z + 0

    eager, compiled = model(query, key), torch.compile(model, fullgraph=True, backend="aot_eager")(query, key)
    for y, z in zip(eager, compiled, strict=True):
        assert torch.equal(y, z)


def test_a_bypassed_key_is_the_key_itself_under_compile():
    query, key = tensors()
    run = torch.compile(
        lambda q, k: rotary_position_embedding(q, k, 3, bypass_key=True), fullgraph=True, backend="aot_eager"
    )
    assert run(query, key)[1] is key


def test_dynamic_scaling_runs_eagerly_under_compile():
    query, key = tensors()

    def model(query, key):
        return rotary_position_embedding(
            query, key, 3, scaling_type="dynamic", max_position_embeddings=4, scaling_factor=2.0
        )

    with pytest.raises(torch._dynamo.exc.Unsupported, match="reads values for dynamic scaling"):
        torch.compile(model, fullgraph=True, backend="eager")(query, key)
    for y, z in zip(model(query, key), torch.compile(model, backend="eager")(query, key), strict=True):
        assert torch.equal(y, z)


def test_one_compilation_serves_every_start():
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    run = torch.compile(
        lambda q, k, start: rotary_position_embedding(q, k, start)[0], fullgraph=True, backend=counter
    )
    query, key = tensors()
    for start in (0, 5, 900):
        assert torch.equal(
            run(query, key, torch.tensor(start)), rotary_position_embedding(query, key, start)[0]
        )
    assert counter.frame_count == 1


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("bypass", [False, True])
def test_gradients_pass_gradcheck(packed, bypass):
    if packed:
        query, key = tensors(torch.float64, (7, 3, 8), grad=True)
        options = {"start_pos": [2, 9], "seqstarts": [0, 3, 7]}
    else:
        query, key = tensors(torch.float64, (2, 3, 3, 8), grad=True)
        options = {"start_pos": 2, "pad_len": [0, 4]}
    for scaling in ("", "dynamic"):
        scaled = {
            "rotary_dim": 6,
            "scaling_type": scaling,
            "max_position_embeddings": 4,
            "scaling_factor": 3.0,
        }

        def run(q, k, scaled=scaled):
            return rotary_position_embedding(q, k, **options, **scaled, bypass_key=bypass)

        assert torch.autograd.gradcheck(run, (query, key))


def test_meta_tensors_give_results_of_the_right_shapes():
    query, key = (t.to("meta") for t in tensors())
    for options in ({}, {"pad_len": torch.tensor([0, 1])}, {"bypass_key": True}):
        y, z = rotary_position_embedding(query, key, 3, **options)
        assert (y.device.type, z.device.type) == ("meta", "meta")
        assert (y.shape, z.shape) == (query.shape, key.shape)


def test_it_is_exported():
    assert "rotary_position_embedding" in npu_rope.__all__
