"""qkv_norm_rope_cache as a torch operator: opcheck, compilation, gradients, meta tensors; and without the
registration, over ctypes.
"""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch
from random_qkv import as_torch, case_of
from torch._subclasses.fake_tensor import FakeTensorMode

from npu_rope import RopeParams, qk_square_sums, qkv_norm_rope_cache
from npu_rope.qkv_norm_rope_cache_calls import OTHERS, XS, attributes_of

OPS = torch.ops.npu_rope
S, N, K, D = 5, 4, 2, 16


def sample(dtype=torch.float32, *, needs_grad=False, **named):
    """Return q, k and v, and other arguments with scales and biases."""
    generator = torch.Generator().manual_seed(0)

    def make(*shape):
        return (
            torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(needs_grad)
        )

    xs = [make(S, heads, D) for heads in (N, K, K)]
    factors = {f"{x}_{part}": make(D) for x in "qk" for part in ("scale", "bias")}
    return xs, {**factors, "epsilon": 1e-3, **named}


PARAMS = RopeParams(D - 4, "neox", n_offs=2)
POSITIONS = torch.arange(S)
TABLES = {"pair": (20, PARAMS.pairs), "lane": (20, 2 * PARAMS.pairs)}


def schema_arguments(xs, named, count):
    """Return the tensors of a call in the order of the schemas, and the attributes."""
    tensors = {**dict(zip(XS, xs, strict=True)), **named, "positions": POSITIONS}
    numbers = {"epsilon": 1e-3, "scale_offset": 0.0, "ranks": 1}
    attributes = attributes_of(PARAMS, angle="exact", **{n: named.get(n, v) for n, v in numbers.items()})
    return [tensors.get(name) for name in (*XS, *OTHERS)][:count], attributes.as_schema()


@pytest.mark.parametrize("needs_grad", [False, True])
def test_opcheck(needs_grad):
    xs, named = sample(needs_grad=needs_grad)
    inputs, attributes = schema_arguments(xs, named, 12)
    del inputs[2]  # v
    torch.library.opcheck(OPS.qkv_norm_rope_cache.default, inputs, attributes)


@pytest.mark.parametrize("has_v", [False, True])
def test_opcheck_of_the_operators_that_write(has_v):
    xs, named = sample()
    if not has_v:
        xs[2] = None
    inputs, attributes = schema_arguments(xs, named, None)
    outs = {f"{name}_out": None if x is None else torch.empty_like(x) for name, x in zip(XS, xs, strict=True)}
    torch.library.opcheck(OPS.qkv_norm_rope_cache_out.default, inputs, {**attributes, **outs})
    inputs[len(XS) + OTHERS.index("slots")] = torch.tensor([3, -1, 0, 5, 1])
    caches = [torch.zeros(6, K, D, dtype=torch.float16), torch.zeros(6, K, D) if has_v else None]
    torch.library.opcheck(OPS.qkv_norm_rope_cache_set_rows.default, (*inputs, *caches), attributes)


def test_sums_of_squares_have_gradients_and_pass_opcheck():
    xs, _ = sample(torch.float64, needs_grad=True)
    torch.library.opcheck(OPS.qk_square_sums.default, xs[:2])
    assert torch.autograd.gradcheck(qk_square_sums, xs[:2])


# ---- compilation ---------------------------------------------------------------------------------------


def test_the_compiled_graph_gives_the_same_results_and_caches():
    xs, named = sample(torch.bfloat16)
    slots = torch.tensor([3, -1, 0, 5, 1])

    def model(q, k, v, k_cache, v_cache, factors):
        caches = {"k_cache": k_cache, "v_cache": v_cache}
        return qkv_norm_rope_cache(q * 2, k, v, POSITIONS, PARAMS, slots=slots, **caches, **factors)[0] + 1

    results = []
    for run in (model, torch.compile(model, fullgraph=True, backend="aot_eager")):
        caches = torch.zeros(2, 3, K, D), torch.zeros(6, K, D, dtype=torch.bfloat16)
        results.append((run(*xs, *caches, named), *caches))
    for got, expected in zip(results[1], results[0], strict=True):
        assert torch.equal(got, expected)
    assert results[0][1].any()
    assert results[0][2].any()


def test_a_compiled_training_step_has_the_same_gradients():
    def step(q, k, factors):
        q, k, _ = qkv_norm_rope_cache(q, k, None, POSITIONS, PARAMS, **factors)
        return (q * q).sum() + (k * 3).sum()

    gradients = []
    for run in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
        xs, named = sample(needs_grad=True)
        run(*xs[:2], named).backward()
        tensors = [*xs[:2], *(t for t in named.values() if isinstance(t, torch.Tensor))]
        gradients.append([t.grad for t in tensors])
    for got, expected in zip(gradients[1], gradients[0], strict=True):
        torch.testing.assert_close(got, expected)


def test_meta_tensors_give_shapes():
    xs, named = sample()
    named = {n: t.to("meta") if isinstance(t, torch.Tensor) else t for n, t in named.items()}
    q, k, v = qkv_norm_rope_cache(*(x.to("meta") for x in xs), POSITIONS.to("meta"), PARAMS, **named)
    assert [tuple(t.shape) for t in (q, k, v)] == [(S, N, D), (S, K, D), (S, K, D)]


WRONG_VALUES = {
    "tokens": (torch.ones(S + 1, K, D), r"v must have shape \[S,N,D\] = \[5,N,D\] but got \[6, 2, 16\]"),
    "type": (torch.ones(S, K, D).half(), "v must have q's dtype float32 but got float16"),
    "device": (torch.ones(S, K, D, device="meta"), "v must be on q's device cpu but got meta"),
}


@pytest.mark.parametrize("name", WRONG_VALUES)
@pytest.mark.parametrize("path", ["hot", "gradient", "fake", "compiled", "reference"])
def test_v_is_checked_where_it_is_only_returned(path, name):
    v, text = WRONG_VALUES[name]
    (q, k, _), named = sample(needs_grad=path == "gradient")
    backend = path if path == "reference" else None

    def call(q, k, v, positions, factors):
        return qkv_norm_rope_cache(q, k, v, positions, PARAMS, **factors, backend=backend)

    run, context = call, contextlib.nullcontext()
    tensors = [q, k, v, POSITIONS, named]
    if path == "compiled":
        torch._dynamo.reset()
        run = torch.compile(call, backend="aot_eager")
    if path == "fake":
        context = FakeTensorMode(allow_non_fake_inputs=True)
        if v.device.type == "cpu":
            tensors[:4] = (context.from_tensor(t) for t in tensors[:4])
            tensors[4] = {n: context.from_tensor(t) if torch.is_tensor(t) else t for n, t in named.items()}
    with context, pytest.raises((ValueError, TypeError), match=text):
        run(*tensors)


# ---- gradients -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["none", "head", "all"])
@pytest.mark.parametrize("table", [None, "pair", "lane", "row"])
@pytest.mark.parametrize("mode", ["normal", "neox", "mrope"])
def test_gradients_are_those_of_finite_differences(mode, table, norm):
    sections = (2, 3, 1, 0) if mode == "mrope" else (0, 0, 0, 0)
    params = RopeParams(D - 4, mode, n_offs=2, sections=sections)
    xs, named = sample(torch.float64, needs_grad=True, scale_offset=1.0)
    positions = torch.randint(0, 20, (3, S)) if mode == "mrope" else torch.randint(0, 20, (S,))
    if table is not None:
        shape = TABLES.get(table, TABLES["pair"])
        named |= {name: torch.randn(shape, dtype=torch.float64) for name in ("cos", "sin")}
        if table == "row" and mode != "mrope":
            positions = None
    if norm == "none":
        named = {n: t for n, t in named.items() if "scale" not in n and "bias" not in n}
    if norm == "all":
        for name, heads in (("q", N), ("k", K)):
            for part in ("scale", "bias"):
                named[f"{name}_{part}"] = torch.randn(heads * D, dtype=torch.float64, requires_grad=True)
    differentiated = {n: t for n, t in named.items() if isinstance(t, torch.Tensor) and t.requires_grad}

    def call(q, k, *factors):
        given = {**named, **dict(zip(differentiated, factors, strict=True))}
        return qkv_norm_rope_cache(q, k, None, positions, params, **given)[:2]

    assert torch.autograd.gradcheck(call, (*xs[:2], *differentiated.values()), fast_mode=True)


def test_gradients_of_16_bit_types_have_the_types_of_their_tensors():
    xs, named = sample(torch.bfloat16, needs_grad=True)
    named["q_scale"] = named["q_scale"].detach().float().requires_grad_()
    q, k, v = qkv_norm_rope_cache(*xs, POSITIONS, PARAMS, **named)
    (q.float().sum() + k.float().sum() + v.float().sum()).backward()
    for tensor in (*xs, named["q_scale"], named["k_bias"]):
        assert tensor.grad.dtype == tensor.dtype
        assert tensor.grad.isfinite().all()


def test_a_gradient_through_written_memory_is_refused():
    xs, named = sample(needs_grad=True)
    outs = tuple(torch.zeros_like(x) for x in xs)
    with pytest.raises(ValueError, match="must not need a gradient where memory is given"):
        qkv_norm_rope_cache(*xs, POSITIONS, PARAMS, **named, out=outs)
    assert not any(out.any() for out in outs)


EMPTY_KEYS = {"[D]": D, "[N*D]": 0}


@pytest.mark.parametrize("has_sums", [False, True])
@pytest.mark.parametrize("size", EMPTY_KEYS)
def test_keys_without_heads_have_gradients(size, has_sums):
    xs, factors, sums = all_heads(torch.float64)
    if has_sums:
        factors["square_sums"] = sums.requires_grad_()
    of_q = {n: t for n, t in factors.items() if not n.startswith("k_")}
    full = qkv_norm_rope_cache(*xs, None, POSITIONS, PARAMS, **factors)[0]
    expected = torch.autograd.grad(full.pow(3).sum(), [xs[0], *of_q.values()])
    empty = {n: torch.zeros(EMPTY_KEYS[size], dtype=torch.float64) for n in ("k_scale", "k_bias")}
    empty |= {"k": xs[1].detach()[:, :0]}
    for tensor in empty.values():
        tensor.requires_grad_()
    parts = {n: t for n, t in empty.items() if n != "k"}
    q, k, _ = qkv_norm_rope_cache(xs[0], empty["k"], None, POSITIONS, PARAMS, **of_q, **parts)
    given = [xs[0], *of_q.values(), *empty.values()]
    got = torch.autograd.grad(q.pow(3).sum() + k.sum(), given)
    for gradient, value in zip(got, expected, strict=False):
        torch.testing.assert_close(gradient, value, rtol=0, atol=0)
    for gradient, tensor in zip(got[len(expected) :], empty.values(), strict=True):
        assert gradient.shape == tensor.shape
        assert not gradient.any()


@pytest.mark.parametrize("norm", ["none", "head", "all"])
@pytest.mark.parametrize("rows", [0, 20])
@pytest.mark.parametrize("planes", [(3, 0), (4, 0), (0,)])
def test_calls_without_tokens_have_gradients(planes, rows, norm):
    params = RopeParams(D - 4, "mrope", n_offs=2, sections=(2, 3, 1, 0))
    xs, factors, _ = all_heads(torch.float64)
    if norm == "head":
        factors = {n: torch.ones(D, dtype=torch.float64, requires_grad=True) for n in factors}
    if norm == "none":
        factors = {}
    xs = [x.detach()[:0].requires_grad_() for x in xs]
    tables = {n: torch.ones(rows, params.pairs, dtype=torch.float64) for n in ("cos", "sin")}
    positions = torch.zeros(planes, dtype=torch.long)
    q, k, _ = qkv_norm_rope_cache(*xs, None, positions, params, **tables, **factors)
    tensors = [*xs, *factors.values()]
    for gradient, tensor in zip(torch.autograd.grad(q.sum() + k.sum(), tensors), tensors, strict=True):
        assert gradient.shape == tensor.shape
        assert not gradient.any()


def all_heads(dtype, ranks=1):
    """Return q, k, scales and biases [N*D] that need a gradient, and sums of squares of other heads."""
    xs, _ = sample(dtype, needs_grad=True)
    generator = torch.Generator().manual_seed(1)
    make = lambda *shape: torch.rand(shape, generator=generator, dtype=torch.float64)  # noqa: E731
    factors = {
        f"{x}_{part}": (make(heads * D) + 0.5).to(dtype).requires_grad_()
        for part in ("scale", "bias")
        for x, heads in (("q", N), ("k", K))
    }
    sums = (make(S, 2) * 100 * ranks).to(torch.promote_types(dtype, torch.float32))
    return xs[:2], factors, sums


def formula(q, k, sums, factors, ranks, scale_offset):
    """Compute the norms by torch's own operators, and rotate."""
    results = []
    for column, (side, x) in enumerate((("q", q), ("k", k))):
        mean = sums[:, column] / (ranks * x.shape[1] * D)
        y = x.flatten(1) / torch.sqrt(mean + float(np.float32(1e-3)))[:, None]
        results.append(
            (y * (factors[f"{side}_scale"] + scale_offset) + factors[f"{side}_bias"]).view(x.shape)
        )
    return qkv_norm_rope_cache(*results, None, POSITIONS, PARAMS)[:2]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("ranks", [1, 3])
def test_gradients_with_given_square_sums_are_those_of_the_formula(ranks, dtype):
    xs, factors, sums = all_heads(dtype, ranks)
    named = {"epsilon": 1e-3, "scale_offset": 0.25, "ranks": ranks}
    tensors = [*xs, *factors.values(), sums.requires_grad_()]
    ys = qkv_norm_rope_cache(*xs, None, POSITIONS, PARAMS, **factors, square_sums=sums, **named)[:2]
    weights = [torch.linspace(-1, 1, y.numel()).view(y.shape).to(dtype) for y in ys]
    got = torch.autograd.grad(ys, tensors, weights)
    wide = [t.detach().double().requires_grad_() for t in tensors]
    wide_factors = dict(zip(factors, wide[2:-1], strict=True))
    expected_ys = formula(*wide[:2], wide[-1], wide_factors, ranks, 0.25)
    expected = torch.autograd.grad(expected_ys, wide, [w.double() for w in weights])
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.02}[dtype]
    for t, gradient, value in zip(tensors, got, expected, strict=True):
        assert gradient.dtype == t.dtype
        assert (gradient.double() - value).abs().max() <= tolerance * value.abs().max()


def test_gradients_with_given_square_sums_are_those_of_finite_differences():
    xs, factors, sums = all_heads(torch.float64)

    def call(q, k, sums, *given):
        named = dict(zip(factors, given, strict=True))
        return qkv_norm_rope_cache(q, k, None, POSITIONS, PARAMS, **named, square_sums=sums, ranks=2)[:2]

    assert torch.autograd.gradcheck(call, (*xs, sums.requires_grad_(), *factors.values()), fast_mode=True)


def test_gradients_flow_through_the_sums_of_the_same_heads():
    xs, factors, _ = all_heads(torch.float64)
    gradients = []
    for sums in (None, qk_square_sums(*xs), qk_square_sums(*xs).detach()):
        q, k, _ = qkv_norm_rope_cache(*xs, None, POSITIONS, PARAMS, **factors, square_sums=sums)
        tensors = [*xs, *factors.values()]
        gradients.append(torch.autograd.grad(q.pow(3).sum() + k.pow(3).sum(), tensors))
    for expected, got in zip(*gradients[:2], strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)
    assert not torch.allclose(gradients[2][0], gradients[0][0])  # constants: another gradient
    torch.testing.assert_close(gradients[2][2], gradients[0][2], rtol=1e-10, atol=1e-10)


# ---- without the registration ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_ctypes_gives_the_same_bits(seed):
    from npu_rope.executors import qkv_norm_rope_cache as executors
    from npu_rope.qkv_norm_rope_cache_calls import qkv_tensors

    case = case_of(3000 + seed, writes="new", norm="head")
    xs = {name: as_torch(x.copy()) for name, x in case.xs.items()}
    others = {name: as_torch(t.copy()) for name, t in case.tensors.items()}
    numbers = {n: t for n, t in case.named.items() if n not in others}
    named = {name: t for name, t in others.items() if name != "positions"}
    expected = qkv_norm_rope_cache(*xs.values(), others.get("positions"), case.params, **named, **numbers)
    outs = {f"{name}_out": torch.empty_like(x.contiguous()) for name, x in xs.items()}
    executors.on_cpu_tensors(qkv_tensors(xs, others, outs), case.attributes())
    for y, out in zip(expected, outs.values(), strict=True):
        assert torch.equal(y, out)
