"""rope_set_rows as a torch operator: opcheck, compile, refused gradients, tracing."""

from __future__ import annotations

import math
import re

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from npu_rope import RopeParams, backends, rope, rope_set_rows

OPS = torch.ops.npu_rope
PARAMS = RopeParams(16, "neox", n_offs=4)
ATTRIBUTES = {"n_dims": 16, "rope_mode": 2, "n_offs": 4}
SECTIONED = {"n_dims": 24, "rope_mode": 40, "sections": [4, 4, 4, 0], "forward": False, "angle": 1}
ROWS = [[4, 0, -1, 7, 2], [8, 1, 10, -1, 3]]


def tensors(dtype=torch.float32, cache=None, shape=(2, 5, 3, 24)):
    """Return (x, positions, rows, cache)."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    rows = torch.tensor(ROWS if len(shape) == 4 else ROWS[0])
    return x, torch.arange(shape[-3]), rows, torch.zeros(11, *shape[-2:], dtype=cache or dtype)


def in_steps(x, positions, rows, cache, params=PARAMS, **options):
    """Return the expected cache after the call."""
    y, cache = rope(x, positions, params, **options).to(cache.dtype), cache.clone()
    cache[rows[rows >= 0]] = y[rows >= 0]
    return cache


def samples():
    """Yield (x, positions, rows, cache, freq_factors, attributes)."""
    factors, planes = torch.linspace(1, 4, 12), torch.arange(20, dtype=torch.int32).reshape(4, 5)
    yield *tensors(), None, ATTRIBUTES
    x, _, rows, cache = tensors(cache=torch.bfloat16)
    yield x, planes, rows.int(), cache, factors, SECTIONED
    x, positions, rows, cache = tensors(torch.float16, shape=(5, 3, 24))
    yield x, positions, rows, torch.zeros(11, 2, 3, 24, dtype=torch.float16)[:, 1], factors, ATTRIBUTES
    x, positions, rows, cache = tensors(torch.float64)
    yield x[:, :0], positions[:0], rows[:, :0], cache, None, ATTRIBUTES


SAMPLES = range(len(list(samples())))


# ---- opcheck ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", SAMPLES)
def test_opcheck_rope_set_rows(which):
    *given, attributes = list(samples())[which]
    torch.library.opcheck(OPS.rope_set_rows.default, tuple(given), attributes)


@pytest.mark.parametrize("which", [0, 2, 3])
def test_opcheck_rope_set_rows_packed(which):
    *given, factors, _ = list(samples())[which]
    packed = torch.frombuffer(bytearray(backends.packed_call(PARAMS, True, "exact")), dtype=torch.uint8)
    torch.library.opcheck(OPS.rope_set_rows_packed_.default, (*given, packed, factors))


@pytest.mark.parametrize("which", SAMPLES)
def test_every_schema_writes_the_same(which):
    *given, factors, attributes = list(samples())[which]
    sections = attributes.get("sections")
    params = RopeParams(
        attributes["n_dims"], attributes["rope_mode"], sections=sections, n_offs=attributes.get("n_offs", 0)
    )
    options = {
        "forward": attributes.get("forward", True),
        "angle": ["exact", "f32"][attributes.get("angle", 0)],
    }
    expected = in_steps(*given, params, freq_factors=factors, **options)
    *given, cache = given
    caches = [cache.clone() for _ in range(3)]
    packed = backends.packed_call(params, options["forward"], options["angle"])
    packed = torch.frombuffer(bytearray(packed), dtype=torch.uint8)
    assert rope_set_rows(*given, caches[0], params, factors, **options) is caches[0]
    OPS.rope_set_rows(*given, caches[1], factors, **attributes)
    OPS.rope_set_rows_packed_(*given, caches[2], packed, factors)
    assert all(torch.equal(c, expected) for c in caches)


# ---- torch.compile ---------------------------------------------------------------------------------


@pytest.fixture
def compiled():
    """Return torch.compile without graph breaks, and without code generation, which is not under test."""
    torch._dynamo.reset()
    yield lambda f, **options: torch.compile(f, fullgraph=True, backend="aot_eager", **options)
    torch._dynamo.reset()


def write_and_sum(x, positions, rows, cache):
    """Write rows of the cache, and return a sum over the cache that depends on both states."""
    before = cache.sum()
    rope_set_rows(x * 2, positions, rows, cache, PARAMS)
    return cache.float().square().sum() + before


def test_compile_mutates_the_cache(compiled):
    *given, cache = tensors(cache=torch.float16)
    cache += 1
    caches = cache.clone(), cache.clone()
    results = [f(*given, c) for f, c in zip((compiled(write_and_sum), write_and_sum), caches, strict=True)]
    assert torch.equal(*results)
    assert torch.equal(*caches)
    assert not torch.equal(caches[0], cache)


def test_compile_mutates_a_layer_of_the_cache(compiled):
    x, positions, rows, _ = tensors()

    def f(layers):
        rope_set_rows(x, positions, rows, layers[:, 1], PARAMS)
        return layers[:, 0] + 1

    layers = torch.zeros(11, 2, 3, 24)
    assert torch.all(compiled(f)(layers) == 1)
    assert torch.equal(layers[:, 1], in_steps(x, positions, rows, layers[:, 1] * 0))
    assert not layers[:, 0].any()


def test_compile_mutates_a_cache_that_the_function_made(compiled):
    x, positions, rows, cache = tensors()
    f = compiled(lambda x: rope_set_rows(x, positions, rows, torch.zeros_like(cache), PARAMS) + 1)
    assert torch.equal(f(x), in_steps(x, positions, rows, cache) + 1)


def test_compile_writes_keys_in_a_function_that_differentiates_queries(compiled):
    """The queries need a gradient, the keys that are written to the cache do not."""
    x, positions, rows, cache = tensors()
    expected, gradients = in_steps(x, positions, rows, cache), []
    for wrap in (compiled, lambda f: f):
        q = x.clone().requires_grad_()
        cache.zero_()

        def f(q):
            rope_set_rows(q.detach(), positions, rows, cache, PARAMS)
            return rope(q, positions, PARAMS).square().sum() + cache.sum()

        wrap(f)(q).backward()
        assert torch.equal(cache, expected)
        gradients.append(q.grad)
    assert torch.equal(*gradients)


def test_compile_with_dynamic_shapes_compiles_once():
    torch._dynamo.reset()
    count = CompileCounter()
    f = torch.compile(write_and_sum, fullgraph=True, dynamic=True, backend=count)
    for S in (5, 7, 9):
        x, positions = torch.randn(2, S, 3, 24), torch.arange(S)
        given, caches = (x, positions, torch.arange(2 * S).reshape(2, S)), torch.zeros(2, 20, 3, 24)
        assert torch.equal(f(*given, caches[0]), write_and_sum(*given, caches[1]))
        assert torch.equal(*caches)
    assert count.frame_count == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised by torch
def test_generated_code_writes_into_the_cache_itself():
    """The code allocates no tensor of the cache's size."""
    from torch._inductor.utils import run_and_get_code

    def write_and_read(x, positions, rows, cache):
        return rope_set_rows(x * 2, positions, rows, cache, PARAMS).sum()

    torch._dynamo.reset()
    x, positions, rows, cache = tensors()
    expected = in_steps(x * 2, positions, rows, cache)
    _, (code, *_) = run_and_get_code(torch.compile(write_and_read, fullgraph=True), x, positions, rows, cache)
    assert torch.equal(cache, expected)
    body = code[code.index("def call(") : code.index("def get_args(")]
    assert "npu_rope.rope_set_rows" in body
    allocations = re.findall(r"empty_strided_cpu\(\(([\d, ]*)\)", body)
    sizes = [math.prod(int(n) for n in shape.split(",") if n.strip()) for shape in allocations]
    assert sizes
    assert cache.numel() not in sizes


# ---- gradients -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x", "cache"])
@pytest.mark.parametrize("direct", [False, True])
def test_a_tensor_that_needs_a_gradient_is_refused(name, direct):
    x, positions, rows, cache = tensors()
    {"x": x, "cache": cache}[name].requires_grad_()
    text = rf"^\[rope_set_rows\] {name} must not need a gradient but got one that does\."
    given = x, positions, rows, cache
    with pytest.raises(RuntimeError if direct else ValueError, match=text):
        OPS.rope_set_rows(*given, **ATTRIBUTES) if direct else rope_set_rows(*given, PARAMS)
    assert not cache.any()
    with torch.no_grad():
        rope_set_rows(x, positions, rows, cache, PARAMS)
    assert cache.any()


@pytest.mark.parametrize("device", ["reference", "sim", "sim:ascend310p"])
@pytest.mark.parametrize("name", ["x", "cache"])
def test_a_tensor_that_needs_a_gradient_is_refused_by_other_backends(name, device):
    x, positions, rows, cache = tensors()
    {"x": x, "cache": cache}[name].requires_grad_()
    text = (
        rf"^\[rope_set_rows\] {name} must not need a gradient for backend {device} but got requires_grad\.$"
    )
    with pytest.raises(ValueError, match=text):
        rope_set_rows(x, positions, rows, cache, PARAMS, backend=device)
    assert not cache.any()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised by torch
def test_tangents_and_function_transforms_are_refused():
    x, positions, rows, cache = tensors()
    text = r"\[rope_set_rows\] x must not need a gradient but got one that does\."
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x)
        with pytest.raises(ValueError, match=text):
            rope_set_rows(dual, positions, rows, cache, PARAMS)
    with pytest.raises(ValueError, match=text):
        torch.func.grad(lambda x: rope_set_rows(x, positions, rows, cache.clone(), PARAMS).sum())(x)
    assert not cache.any()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_calls_without_gradients_write_the_cache(mode):
    x, positions, rows, cache = tensors()
    expected = in_steps(x, positions, rows, cache)
    with mode():
        rope_set_rows(x.requires_grad_(), positions, rows, cache.requires_grad_(), PARAMS)
    assert torch.equal(cache.detach(), expected)


@pytest.mark.parametrize("function", ["rope_set_rows", "ops.rope_set_rows", "sim"])
def test_a_write_to_a_cache_saved_for_a_gradient_is_detected(function):
    w = torch.ones(3, 1, 4, requires_grad=True)
    saved = w.exp()  # exp keeps its result for the gradient
    given = torch.ones(2, 1, 4), torch.arange(2), torch.tensor([2, 0]), saved
    with torch.no_grad():
        if function == "ops.rope_set_rows":
            OPS.rope_set_rows(*given, n_dims=4, rope_mode=0)
        else:
            rope_set_rows(*given, RopeParams(4), backend="sim" if function == "sim" else None)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.sum().backward()


# ---- tracing and layouts ---------------------------------------------------------------------------


def test_fake_tensors_are_checked_by_the_same_rules():
    x, positions, rows, cache = tensors()
    with FakeTensorMode() as mode:
        x, positions, rows, cache = (mode.from_tensor(t) for t in (x, positions, rows, cache))
        assert rope_set_rows(x, positions, rows, cache, PARAMS) is cache
        with pytest.raises(ValueError, match=r"rows must have shape \[B, S\] = \[2, 5\] but got \[5\]"):
            rope_set_rows(x, positions, positions, cache, PARAMS)
        with pytest.raises(TypeError, match="cache must have x's dtype float16 but got float32"):
            OPS.rope_set_rows(x.half(), positions, rows, cache, **ATTRIBUTES)


@pytest.mark.parametrize("tracing", ["real", "fake", "symbolic"])
def test_a_trace_keeps_the_operator(tracing):
    given = tensors()
    graph = make_fx(lambda *given: rope_set_rows(*given, PARAMS), tracing_mode=tracing)(*given)
    assert OPS.rope_set_rows.default in [n.target for n in graph.graph.nodes]
    *given, cache = tensors()
    assert torch.equal(graph(*given, cache.clone()), in_steps(*given, cache))


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # raised by torch
@pytest.mark.parametrize("decomposed", [False, True])
def test_export_keeps_the_operator_and_its_write(decomposed):
    class SetRowsModule(torch.nn.Module):
        def __init__(self, cache):
            super().__init__()
            self.register_buffer("cache", cache)

        def forward(self, x, positions, rows):
            return rope_set_rows(x, positions, rows, self.cache, PARAMS).sum()

    *given, cache = tensors()
    program = torch.export.export(SetRowsModule(cache.clone()), tuple(given))
    program = program.run_decompositions() if decomposed else program
    assert "npu_rope.rope_set_rows" in str(program.graph)
    module, expected = program.module(), in_steps(*given, cache)
    assert torch.equal(module(*given), expected.sum())
    assert torch.equal(module.cache, expected)


def test_a_non_unit_last_stride_of_x_is_copied():
    x, positions, rows, cache = tensors(shape=(2, 5, 3, 48))
    x, cache = x[..., ::2], cache[..., :24].contiguous()
    expected = in_steps(x, positions, rows, cache)
    direct = cache.clone()
    assert torch.equal(rope_set_rows(x, positions, rows, cache, PARAMS), expected)
    OPS.rope_set_rows(x, positions, rows, direct, **ATTRIBUTES)
    assert torch.equal(direct, expected)


def test_a_negating_view_is_read_as_the_negated_values(backend):
    x, positions, rows, cache = tensors()
    expected = rope_set_rows(-x, positions, rows, cache.clone(), PARAMS, backend=backend)
    got = rope_set_rows(torch._neg_view(x), positions, rows, cache, PARAMS, backend=backend)
    assert torch.equal(got, expected)
