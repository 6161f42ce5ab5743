"""rotary_mul and rotary_mul_qk, for arrays and tensors, against torch_npu's formula in float64: tables of
every width, type and shape; layouts, windows, in place; gradients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from guarded_memory import GuardedMemory
from hypothesis import given, settings
from hypothesis import strategies as st
from instruction_sets import SUPPORTED
from pairwise import pairwise
from rope_cases import NUMPY_DTYPES, bytes_of, layout_strides, refusal, to_torch, values_of
from rotated_halves import signed_partners
from together import together

from npu_rope import (
    rotary_embedding,
    rotary_mul,
    rotary_mul_,
    rotary_mul_backward,
    rotary_mul_qk,
    rotary_mul_qk_,
)
from npu_rope.ops.calls import packed_attributes
from npu_rope.ops.rotary import neighbours_to_halves
from npu_rope.testing import rotary_spec
from npu_rope.testing.bounds import table_bound, worst_ratio

OPS = torch.ops.npu_rope


@dataclass(frozen=True)
class RotaryMulCall:
    """A call of rotary_mul, or of rotary_mul_qk if k has heads (``keys``)."""

    dtype: str = "float32"
    table_dtype: str = "own"
    framework: str = "numpy"
    rank: int = 4
    sizes: tuple[int, int, int, int] = (2, 5, 3, 72)
    keys: int = 0
    window: tuple[int, int] = (0, 0)  # rotary_dim, offset
    interleaved: bool = False
    width: str = "half"
    table: str = "S"
    layout: str = "contiguous"
    out: str = "new"

    @property
    def attributes(self):
        return {"interleaved": self.interleaved, "rotary_dim": self.window[0], "offset": self.window[1]}


FACTORS = {
    "dtype": ["float32", "float16", "bfloat16", "float64"],
    "table_dtype": ["own", "float32"],
    "framework": ["numpy", "torch"],
    "rank": [4, 3],
    "sizes": [(2, 5, 3, 72), (1, 1, 8, 128), (2, 70, 1, 64), (3, 2, 2, 130), (2, 0, 3, 72), (0, 5, 3, 72)],
    "keys": [0, 1, 4],
    "window": [(0, 0), (64, 0), (36, 10), (2, 4), (0, 0)],
    "interleaved": [False, True],
    "width": ["half", "full", "twice"],  # twice: full width, equal entries for both lanes of a pair
    "table": ["S", "BS", "1S", "BS1", "1S1"],
    "layout": ["contiguous", "bnsd", "gaps", "non-unit", "fused-qkv", "reversed"],
    "out": ["new", "given", "in-place", "gaps"],
}


def possible(call):
    invalid_in_place = call.out == "in-place" and call.layout == "non-unit"
    D, (width, offset) = call.sizes[-1], call.window
    invalid_tensor = call.framework == "torch" and call.layout == "reversed"
    return not invalid_in_place and not invalid_tensor and offset + (width or D) <= D


def make_array(guarded, shape, dtype, layout, values=None):
    a = guarded.empty(shape, dtype, layout_strides(layout, shape))
    a[...] = 3 if values is None else values
    return a


def tables_of(call, rng):
    B, S, _, D = call.sizes
    width = call.window[0] or D
    shapes = {"S": (S,), "BS": (B, S), "1S": (1, S), "BS1": (B, S, 1), "1S1": (1, S, 1)}
    shape = shapes[call.table] if call.rank == 4 else ((S, 1) if call.table.endswith("1") else (S,))
    dtype = NUMPY_DTYPES[call.dtype if call.table_dtype == "own" else "float32"]
    tables = rng.uniform(-2, 2, (2, *shape, width // 2 if call.width == "half" else width)).astype(dtype)
    if call.width == "twice":
        tables = (
            np.repeat(tables[..., : width // 2], 2, -1)
            if call.interleaved
            else np.tile(tables[..., : width // 2], 2)
        )
    return tables


@dataclass
class RotaryMulInputs:
    xs: list
    tables: np.ndarray
    outs: list | None


def make_inputs(call, guarded, seed=0):
    rng = np.random.default_rng(seed)
    heads = [call.sizes[2]] + ([call.keys] if call.keys else [])
    shapes = [(*call.sizes[:2], n, call.sizes[3])[4 - call.rank :] for n in heads]
    dtype = NUMPY_DTYPES[call.dtype]
    xs = [make_array(guarded, s, dtype, call.layout, rng.standard_normal(s).astype(dtype)) for s in shapes]
    outs = {
        "new": None,
        "given": [make_array(guarded, s, dtype, "contiguous") for s in shapes],
        "gaps": [make_array(guarded, s, dtype, "gaps") for s in shapes],
        "in-place": xs,
    }[call.out]
    return RotaryMulInputs(xs, tables_of(call, rng), outs)


def run(call, inputs, backend):
    convert = to_torch if call.framework == "torch" else (lambda a: a)
    xs, tables = [convert(x) for x in inputs.xs], [convert(t) for t in inputs.tables]
    outs = (
        None if inputs.outs is None else (xs if call.out == "in-place" else [convert(o) for o in inputs.outs])
    )
    options = {**call.attributes, "backend": backend}
    if call.keys:
        got = rotary_mul_qk(*xs, *tables, **options, out=None if outs is None else tuple(outs))
    else:
        got = (rotary_mul(*xs, *tables, **options, out=None if outs is None else outs[0]),)
    for y, out in zip(got, outs or (), strict=False):
        assert y is out
    return got


def run_and_judge(call, backend, guarded, seed=0):
    inputs = make_inputs(call, guarded, seed)
    before = [x.copy() for x in inputs.xs]
    op = ("rotary_mul_qk", "q") if call.keys else ("rotary_mul", "x")
    if refused := refusal(backend, call.dtype, name="[{}] {}".format(*op)):
        kind, text = refused
        with pytest.raises(kind) as caught:
            run(call, inputs, backend)
        assert str(caught.value) == text
        assert [bytes_of(x) for x in inputs.xs] == [bytes_of(x) for x in before]
        return
    got = run(call, inputs, backend)
    guarded.check()
    for y, x, x_before in zip(got, inputs.xs, before, strict=True):
        if call.out != "in-place":
            assert np.array_equal(x, x_before)
        assert tuple(y.shape) == x_before.shape
        value, magnitude = rotary_spec.rotary_mul(x_before, *inputs.tables, **call.attributes)
        ratio, at = worst_ratio(values_of(y), value, table_bound(magnitude, value, call.dtype))
        assert ratio <= 1, f"error is {ratio:.3g} of its bound at {at}"


def calls(candidates):
    return together("call", [c for c in candidates if possible(c)], share=True)


BASES = [
    RotaryMulCall(),
    RotaryMulCall("float16", "own", "torch", interleaved=True, width="full"),
    RotaryMulCall("bfloat16", "float32", "torch", width="full", keys=1, window=(36, 10)),
    RotaryMulCall("bfloat16", "own", interleaved=True),
    RotaryMulCall("float64", "own", width="full", table="BS"),
]
ONE_FACTOR = [
    replace(base, **{name: value}) for base in BASES for name, values in FACTORS.items() for value in values
]


@calls(dict.fromkeys(ONE_FACTOR))
def test_one_factor_changed_meets_the_bound(call, backend, guarded):
    run_and_judge(call, backend, guarded)


@calls(pairwise(FACTORS, RotaryMulCall, possible))
def test_every_pair_of_factors_meets_the_bound(call, backend, guarded):
    run_and_judge(call, backend, guarded)


@settings(max_examples=60)
@given(
    call=st.builds(
        RotaryMulCall,
        **{name: st.sampled_from(values) for name, values in FACTORS.items()},
    ),
    D=st.integers(1, 100).map(lambda n: 2 * n),
    seed=st.integers(0, 2**16),
)
def test_any_call_meets_the_bound(call, D, seed, backend):
    call = replace(call, sizes=(*call.sizes[:3], D))
    if not possible(call):
        call = replace(call, window=(0, 0), layout="gaps")
    run_and_judge(call, backend, GuardedMemory(), seed)


@pytest.mark.parametrize("isa", SUPPORTED)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("width", ["half", "full", "twice"])
def test_every_instruction_set_meets_the_bound(isa, dtype, width, force_isa, guarded):
    force_isa(isa)
    for interleaved in (False, True):
        for D in (2, 6, 30, 64, 96, 130, 1024):
            call = RotaryMulCall(dtype, interleaved=interleaved, width=width, sizes=(1, 3, 2, D), keys=1)
            run_and_judge(call, "cpu", guarded)


@pytest.mark.parametrize("isa", SUPPORTED)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("width", ["half", "full"])
def test_nans_in_float32_tables_make_bfloat16_results_nan(isa, interleaved, width, force_isa):
    """The lower half of a NaN, which bfloat16 lacks, must not carry into the exponent or the sign."""
    force_isa(isa)
    x = np.ones((1, 1, 2, 76), NUMPY_DTYPES["bfloat16"])
    for bits in (0x7FC00000, 0x7F800001, 0x7FBFFFFF, 0x7FFFFFFF, 0xFFFFFFFF):
        bad = np.full((1, 38 if width == "half" else 76), bits, np.uint32).view(np.float32)
        bad[:, 1::3] = np.nan  # in tables of full width, the lanes of some pairs differ
        ones = np.ones_like(bad)
        for cos, sin in ((bad, ones), (ones, bad)):
            y = rotary_mul(x, cos, sin, interleaved=interleaved, backend="cpu")
            assert np.isnan(y.astype(np.float32)).all(), hex(bits)


def in_pytorch(x, cos, sin, interleaved):
    """Return the formula of torch_npu and transformers with each step rounded, for tables [B,S,D]."""
    partners = signed_partners(x, "interleave" if interleaved else "half")
    return x * cos[..., None, :] + partners * sin[..., None, :]


@pytest.mark.parametrize("isa", SUPPORTED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("interleaved", [False, True])
def test_every_bit_equals_pytorchs(isa, dtype, interleaved, force_isa):
    force_isa(isa)
    generator = torch.Generator().manual_seed(0)
    for D in (2, 6, 8, 18, 30, 36, 64, 72, 96, 128, 130, 160, 256, 320):
        x = torch.randn(2, 3, 5, D, generator=generator, dtype=dtype)
        full = torch.randn(2, 3, D, generator=generator, dtype=dtype)
        half = full[..., : D // 2]
        pairs = half.repeat_interleave(2, -1) if interleaved else torch.cat((half, half), -1)
        for tables, lanes in ((full, full), (half, pairs), (pairs, pairs)):
            expected = in_pytorch(x, *lanes, interleaved)
            assert torch.equal(rotary_mul(x, *tables, interleaved=interleaved), expected), D
            assert torch.equal(rotary_mul_(x.clone(), *tables, interleaved=interleaved), expected), D


def test_many_tokens_on_several_threads_meet_the_bound(backend, guarded):
    for width in ("half", "full"):
        call = RotaryMulCall(
            "float16", sizes=(2, 300, 8, 128), keys=2, width=width, table="1S1", out="in-place"
        )
        run_and_judge(call, backend, guarded)


@pytest.mark.long
def test_large_results_with_streaming_stores_meet_the_bound(guarded):
    call = RotaryMulCall("bfloat16", sizes=(1, 1100, 64, 128), table="S")
    run_and_judge(call, "cpu", guarded)


def test_rotary_mul_qk_equals_two_calls_of_rotary_mul():
    rng = np.random.default_rng(0)
    q, k, (c, s) = rng.random((2, 9, 8, 64)), rng.random((2, 9, 3, 64)), rng.random((2, 9, 64))
    for y, x in zip(rotary_mul_qk(q, k, c, s), (q, k), strict=True):
        assert np.array_equal(y, rotary_mul(x, c, s))
    pair = rotary_mul_qk_(q.copy(), k.copy(), c, s)
    for y, x in zip(pair, (q, k), strict=True):
        assert np.array_equal(y, rotary_mul_(x.copy(), c, s))


def heads_first_sample(tokens):
    """Return q and k as views [2,N,tokens,12] of tokens-first memory, and tables for 8 of the 12 lanes."""
    numbers = torch.Generator().manual_seed(tokens)
    q, k = (torch.randn(2, tokens, n, 12, generator=numbers).transpose(1, 2) for n in (3, 2))
    return q, k, *torch.randn(2, 2, tokens, 8, generator=numbers)


@pytest.mark.parametrize("tokens", [1, 4])
def test_queries_and_keys_with_heads_first_are_rotated_as_their_transpositions(tokens):
    *xs, cos, sin = heads_first_sample(tokens)
    options = {"interleaved": True, "rotary_dim": 8, "offset": 4}
    packed = packed_attributes("rotary_mul_qk", (*options.values(), True))
    got = OPS.rotary_mul_qk_heads_first(*xs, cos, sin, packed)
    expected = rotary_mul_qk(*(x.transpose(1, 2) for x in xs), cos, sin, **options)
    for y, e in zip(got, expected, strict=True):
        assert torch.equal(y, e.transpose(1, 2))


def test_the_operator_for_heads_first_names_the_tensors_that_break_a_rule():
    q, k, cos, sin = heads_first_sample(1)
    packed = packed_attributes("rotary_mul_qk", (False, 8, 0, True))
    message = r"\[rotary_mul_qk\] k must have q's "
    with pytest.raises((RuntimeError, ValueError), match=message):
        OPS.rotary_mul_qk_heads_first(q, k[:1], cos, sin, packed)
    message = (
        r"\[rotary_mul_qk\] packed must be the 32 contiguous bytes of packed_call but got another tensor"
    )
    for wrong in (packed[1:], packed.repeat_interleave(2)[::2]):
        with pytest.raises((RuntimeError, ValueError), match=message):
            OPS.rotary_mul_qk_heads_first(q, k, cos, sin, wrong)


def to_halves_sample(dtype=torch.float32, tokens=1, head=16, entries=16):
    """Return q and k as views [2,N,tokens,head] of wider heads, and tables [2,tokens,entries]."""
    numbers = torch.Generator().manual_seed(tokens)
    wide = (torch.randn(2, tokens, n, head + 7, generator=numbers).to(dtype).transpose(1, 2) for n in (3, 1))
    cos, sin = torch.randn(2, 2, tokens, entries, generator=numbers).to(dtype)
    return *(x[..., 7:] for x in wide), cos, sin


def by_definition(x, cos, sin):
    """Rotate pairs (x[2i], x[2i+1]) of heads first and write them as halves, in float64."""
    x1, x2, (cos, sin) = (
        x[..., 0::2].double(),
        x[..., 1::2].double(),
        (t.double()[:, None] for t in (cos, sin)),
    )
    (c1, c2), (s1, s2) = (t.chunk(2, -1) if t.shape[-1] == x.shape[-1] else (t, t) for t in (cos, sin))
    return torch.cat((x1 * c1 - x2 * s1, x2 * c2 + x1 * s2), -1)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=str)
@pytest.mark.parametrize(("tokens", "head", "entries"), [(1, 16, 16), (1, 16, 8), (1, 130, 65), (3, 12, 12)])
def test_neighbours_are_rotated_and_written_as_halves(dtype, tokens, head, entries):
    dtype = getattr(torch, dtype)
    q, k, cos, sin = to_halves_sample(dtype, tokens, head, entries)
    before = q.clone(), k.clone()
    for y, x in zip(OPS.rotary_mul_qk_to_halves(q, k, cos, sin), (q, k), strict=True):
        expected = by_definition(x, cos, sin)
        assert (y - expected).abs().max() <= 2 * torch.finfo(dtype).eps * expected.abs().max()
        halves = rotary_mul(neighbours_to_halves(x).transpose(1, 2), cos, sin).transpose(1, 2)
        assert torch.equal(y, halves)
    assert all(map(torch.equal, before, (q, k)))


def test_elements_that_are_apart_are_rearranged():
    q, k, cos, sin = to_halves_sample()
    apart = (torch.stack((x, x), -1).flatten(-2)[..., ::2] for x in (q, k))
    got, expected = (OPS.rotary_mul_qk_to_halves(*xs, cos, sin) for xs in (apart, (q, k)))
    assert all(map(torch.equal, got, expected))


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q, k, c, s: (q, k[:1], c, s), "k must have q's "),
        (lambda q, k, c, s: (q[..., :15], k[..., :15], c, s), "the head size must be even and positive"),
        (lambda q, k, c, s: (q.int(), k.int(), c, s), "q must be "),
        (lambda q, k, c, s: (q[0, 0], k[0, 0], c, s), "q must have shape "),
        (lambda q, k, c, s: (q, k, c[..., :2], s), "cos must have shape "),
    ],
)
def test_the_operator_for_halves_names_the_tensors_that_break_a_rule(change, message, device):
    given = change(*(x.to(device) for x in to_halves_sample()))
    with pytest.raises((RuntimeError, ValueError, TypeError), match=rf"\[rotary_mul_qk\] {message}"):
        OPS.rotary_mul_qk_to_halves(*given)


def test_a_full_table_with_equal_halves_gives_the_result_of_a_half_table():
    rng = np.random.default_rng(0)
    for dtype in NUMPY_DTYPES.values():
        x, (c, s) = rng.random((2, 9, 3, 64)).astype(dtype), rng.random((2, 9, 32)).astype(dtype)
        half = rotary_mul(x, c, s)
        assert np.array_equal(rotary_mul(x, np.tile(c, 2), np.tile(s, 2)), half)
        pairs = rotary_mul(x, c, s, interleaved=True)
        assert np.array_equal(
            rotary_mul(x, np.repeat(c, 2, -1), np.repeat(s, 2, -1), interleaved=True), pairs
        )


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_position_ids_of_any_strides_select_the_same_rows(dtype):
    rng = np.random.default_rng(0)
    x, tables = rng.random((2, 3, 4, 8), np.float32), rng.random((2, 9, 4), np.float32)
    ids = np.array([[3, 1, 7, 2]] * 2, dtype)
    expected = rotary_embedding(x, *tables, ids, backend="cpu")
    apart = np.full((4, 2, 3), 8, dtype)
    apart[:, :, 1] = ids.T
    for view in (
        apart[:, :, 1].T,
        np.broadcast_to(ids[:1], ids.shape),
        np.ascontiguousarray(ids[:, ::-1])[:, ::-1],
    ):
        assert np.array_equal(rotary_embedding(x, *tables, view, backend="cpu"), expected)


@pytest.mark.parametrize("interleaved", [False, True])
def test_lanes_that_differ_by_one_bit_are_unequal(interleaved):
    """0.25 and 1 differ by one bit of their highest byte, so memcmp may return 1 or -1."""
    x = np.random.default_rng(0).random((1, 2, 3, 64), np.float32)
    for first, second in ((1.0, 0.25), (0.25, 1.0)):
        halves = np.full((2, 32), first, np.float32), np.full((2, 32), second, np.float32)
        table = np.stack(halves, -1).reshape(2, 64) if interleaved else np.concatenate(halves, -1)
        value, magnitude = rotary_spec.rotary_mul(x, table, table, interleaved=interleaved)
        y = rotary_mul(x, table, table, interleaved=interleaved, backend="cpu")
        assert worst_ratio(values_of(y), value, table_bound(magnitude, value, "float32"))[0] <= 1


@pytest.mark.parametrize("interleaved", [False, True])
def test_one_table_may_have_equal_lanes_and_the_other_not(interleaved, backend):
    """Only if both tables have equal lanes may a kernel read half of them."""
    rng = np.random.default_rng(0)
    x, (equal, unequal) = (rng.random(s, np.float32) for s in ((2, 9, 3, 64), (2, 9, 64)))
    equal = np.repeat(equal[:, :32], 2, -1) if interleaved else np.tile(equal[:, :32], 2)
    for cos, sin in ((equal, unequal), (unequal, equal)):
        value, magnitude = rotary_spec.rotary_mul(x, cos, sin, interleaved=interleaved)
        y = rotary_mul(x, cos, sin, interleaved=interleaved, backend=backend)
        assert worst_ratio(values_of(y), value, table_bound(magnitude, value, "float32"))[0] <= 1


def test_tables_may_have_different_strides(backend):
    rng = np.random.default_rng(0)
    x, memory = (rng.random(s, np.float32) for s in ((2, 9, 3, 64), (9, 2, 3, 64)))
    cos, sin = rng.random((2, 9, 64), np.float32), memory[:, :, 1].swapaxes(0, 1)
    assert cos.strides != sin.strides
    for first, second in ((cos, sin), (sin, cos)):
        value, magnitude = rotary_spec.rotary_mul(x, first, second, interleaved=False)
        y = rotary_mul(x, first, second, backend=backend)
        assert worst_ratio(values_of(y), value, table_bound(magnitude, value, "float32"))[0] <= 1


# ---- gradients -----------------------------------------------------------------------------------------

TABLES = ["S", "BS", "1S", "BS1", "1S1"]


def gradient_case(interleaved, width, table, rank=4):
    """Return a float64 call with a window, and its tensors, which need gradients."""
    call = RotaryMulCall(
        "float64", sizes=(2, 3, 2, 14), window=(8, 4), interleaved=interleaved, width=width, table=table
    )
    call = replace(call, rank=rank)
    inputs = make_inputs(call, GuardedMemory())
    return call, [to_torch(np.array(a)).requires_grad_() for a in (*inputs.xs, *inputs.tables)]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("width", ["half", "full"])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rank", [3, 4])
def test_gradients_of_x_and_tables_equal_those_of_rotary_mul_backward(interleaved, width, table, rank):
    call, tensors = gradient_case(interleaved, width, table, rank)

    def rotate_x(x, c, s):
        return rotary_mul(x, c, s, **call.attributes)

    assert torch.autograd.gradcheck(rotate_x, tensors)
    grad = torch.randn_like(tensors[0])
    by_torch = torch.autograd.grad(rotate_x(*tensors), tensors, grad)
    plain = [t.detach() for t in tensors]
    by_backward = rotary_mul_backward(grad, *plain, **call.attributes)
    for backend in ("reference", "cpu"):
        arrays = rotary_mul_backward(*(t.numpy() for t in (grad, *plain)), **call.attributes, backend=backend)
        for a, b, c in zip(by_torch, by_backward, arrays, strict=True):
            assert torch.allclose(a, b, rtol=1e-12)
            assert np.allclose(a.numpy(), c, rtol=1e-12)


def test_gradients_have_gradients():
    call, tensors = gradient_case(False, "full", "BS1")
    assert torch.autograd.gradgradcheck(lambda *t: rotary_mul(*t, **call.attributes), tensors)


@pytest.mark.parametrize("needs_grad", [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (1, 1, 1, 1)])
def test_gradients_of_queries_keys_and_tables_pass_gradcheck(needs_grad):
    rng = np.random.default_rng(0)
    arrays = [rng.random(s) for s in ((2, 3, 2, 8), (2, 3, 1, 8), (3, 8), (3, 8))]
    tensors = [
        torch.from_numpy(a).requires_grad_(bool(needed)) for a, needed in zip(arrays, needs_grad, strict=True)
    ]
    assert torch.autograd.gradcheck(rotary_mul_qk, tensors)


@pytest.mark.parametrize("tables_need_grad", [False, True])
def test_in_place_keeps_gradients(tables_need_grad):
    x, (c, s) = torch.randn(2, 3, 2, 8, dtype=torch.float64), torch.rand(2, 3, 8, dtype=torch.float64)
    c.requires_grad_(tables_need_grad)
    results = []
    for operator in (rotary_mul, rotary_mul_):
        leaf = x.clone().requires_grad_()
        y = operator(leaf * 2, c, s)
        y.pow(2).sum().backward()
        results.append((leaf.grad, c.grad))
        c.grad = None
    assert torch.allclose(results[0][0], results[1][0])
    assert not tables_need_grad or torch.allclose(results[0][1], results[1][1])


def test_16_bit_tables_have_gradients_of_their_type():
    x, c, s = torch.randn(2, 70, 2, 8).half(), torch.rand(70, 4).half(), torch.rand(70, 4)
    c = c.requires_grad_()
    rotary_mul(x, c, s.half()).sum().backward()
    assert c.grad.dtype == torch.float16
    exact = rotary_mul_backward(*(t.double() for t in (torch.ones_like(x), x, c.detach(), s)))[1]
    assert torch.equal(c.grad, exact.half())


# ---- torch ---------------------------------------------------------------------------------------------


def sample(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    shapes = (2, 5, 3, 24), (2, 5, 2, 24), (5, 24), (5, 24)
    return [torch.randn(s, generator=generator).to(dtype) for s in shapes]


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("needs_grad", [False, True])
def test_opcheck(dtype, needs_grad):
    q, k, c, s = sample(dtype)
    leaf = q.clone().requires_grad_(needs_grad)
    rest = (c[:, :16].detach().clone().requires_grad_(needs_grad), s[:, :16].clone(), True, 16, 4, True)
    torch.library.opcheck(OPS.rotary_mul.default, (leaf, *rest))
    torch.library.opcheck(OPS.rotary_mul_qk.default, (leaf, k, *rest))
    plain = [t.detach() if isinstance(t, torch.Tensor) else t for t in rest]
    torch.library.opcheck(OPS.rotary_mul_.default, (q, *plain))
    torch.library.opcheck(OPS.rotary_mul_qk_.default, (q, k, *plain))
    torch.library.opcheck(OPS.rotary_mul_out.default, (q, *plain[:2], torch.empty_like(q), *plain[2:]))
    outs = torch.empty_like(q), torch.empty_like(k)
    torch.library.opcheck(OPS.rotary_mul_qk_out.default, (q, k, *plain[:2], *outs, *plain[2:]))


@pytest.mark.parametrize("op", [rotary_mul, rotary_mul_])
def test_compile_without_graph_breaks_gives_the_same_result(op):
    q, _, c, s = sample()

    def model(x, c, s):
        return op(x * 2, c, s, interleaved=True) + 1

    assert torch.equal(torch.compile(model, fullgraph=True, backend="aot_eager")(q, c, s), model(q, c, s))


def test_compile_gives_the_same_gradients():
    q, _, c, s = sample()
    grads = []
    for operator in (rotary_mul, torch.compile(rotary_mul, fullgraph=True, backend="aot_eager")):
        leaves = [t.clone().requires_grad_() for t in (q, c, s)]
        operator(*leaves).pow(2).sum().backward()
        grads.append([leaf.grad for leaf in leaves])
    for eager, compiled in zip(*grads, strict=True):
        assert torch.allclose(eager, compiled)


@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize("form", ["in place", "pair in place", "out", "embedding out", "embedding in place"])
def test_calls_that_write_compile_without_graph_breaks(form, needs_grad):
    def run(q, k, c, s):
        q, k = q * 2, k * 2
        if form == "in place":
            return rotary_mul_(q, c, s)
        if form == "pair in place":
            return sum(t.sum() for t in rotary_mul_qk_(q, k, c, s))
        if form == "out":
            return rotary_mul(q, c, s, out=torch.empty_like(q))
        X, caches = q.transpose(1, 2), (c[:, :12].expand(2, 5, 12), s[:, :12].expand(2, 5, 12))
        out = X if form == "embedding in place" else torch.empty_like(X)
        return rotary_embedding(X, *caches, out=out)

    torch._dynamo.reset()
    tensors = sample()
    tensors[0].requires_grad_(needs_grad)
    expected = run(*tensors)
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")(*tensors)
    assert torch.equal(compiled, expected)
    if needs_grad and form not in ("out", "embedding out"):
        grads = [torch.autograd.grad(y.pow(2).sum(), tensors[0])[0] for y in (expected, compiled)]
        assert torch.allclose(*grads)


@pytest.mark.parametrize("out", ["in place", "given"])
def test_a_write_that_torch_refuses_changes_neither_output(out):
    q, k, c, s = sample()
    leaf = torch.nn.Parameter(k)
    outs = (q, leaf) if out == "in place" else (torch.zeros_like(q), torch.nn.Parameter(torch.zeros_like(k)))
    before = [t.detach().clone() for t in outs]
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place"):
        rotary_mul_qk(q, leaf, c, s, out=outs)
    assert all(torch.equal(t, b) for t, b in zip(outs, before, strict=True))


def test_meta_tensors_give_shapes():
    q, k, c, s = (t.to("meta") for t in sample())
    y, z = rotary_mul_qk(q, k, c, s)
    assert (y.device.type, y.shape, z.shape) == ("meta", q.shape, k.shape)


def test_a_write_to_a_tensor_saved_for_a_gradient_is_detected():
    q, _, c, s = sample()
    leaf = q.clone().requires_grad_()
    x = leaf * 1
    y = x * x
    with torch.no_grad():
        rotary_mul_(x, c, s)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_nan_outside_the_window_is_copied_bit_for_bit():
    x = np.full((1, 1, 1, 8), np.nan, np.float32)
    x.view(np.uint32)[...] |= 0x1234
    y = rotary_mul(x, np.ones((1, 2), np.float32), np.ones((1, 2), np.float32), rotary_dim=4, offset=2)
    assert bytes_of(y[..., :2]) == bytes_of(x[..., :2])
    assert bytes_of(y[..., 6:]) == bytes_of(x[..., 6:])
