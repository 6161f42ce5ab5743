"""rms_norm as a torch operator: opcheck, compilation, meta tensors, given memory, strides; over ctypes."""

from __future__ import annotations

import pytest
import torch

from npu_rope import RopeParams, add_rms_norm, rms_norm, rms_norm_backward, rms_norm_rope, rotary_mul

OPS = torch.ops.npu_rope


def sample(dtype=torch.float32, scale_dtype=None):
    generator = torch.Generator().manual_seed(0)
    x, grad, scale = (torch.randn(s, generator=generator) for s in ((2, 5, 24), (2, 5, 24), (24,)))
    scale_dtype = scale_dtype or dtype
    return x.to(dtype), scale.to(scale_dtype), grad.to(scale_dtype)


@pytest.mark.parametrize("needs_grad", [False, True])
def test_opcheck(needs_grad):
    x, scale, grad = sample(torch.bfloat16, torch.float32)
    rest, out = (-1, 1e-5, 1), torch.empty_like(x, dtype=scale.dtype)
    given = [t.clone().requires_grad_(needs_grad) for t in (x, scale)]
    torch.library.opcheck(OPS.rms_norm.default, (*given, *rest))
    torch.library.opcheck(OPS.rms_norm_backward.default, (grad, *given, *rest))
    if needs_grad:
        return
    torch.library.opcheck(OPS.rms_norm_out.default, (x, scale, out, *rest))
    torch.library.opcheck(OPS.rms_norm.default, (x, torch.randn(5, 1), 1, 0.5, 11))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # from torch
def test_tangents_are_refused():
    """The operators have no forward-mode derivative, and a result without a tangent would be wrong."""
    x, scale, _ = sample()
    q, positions, params = torch.randn(1, 5, 2, 24), torch.arange(5), RopeParams(24, "neox")
    calls = {
        "x": lambda x: rms_norm(x, scale),
        "scale": lambda s: rms_norm(x, s),
        "residual": lambda r: add_rms_norm(x, r, scale)[0],
        "k": lambda k: rms_norm_rope(q, k, scale, scale, positions, params)[1],
        "cos": lambda cos: rotary_mul(q, cos, torch.randn(5, 12)),
    }
    inputs = {"x": x, "scale": scale, "residual": x.flip(0), "k": q.flip(0), "cos": torch.randn(5, 12)}
    for name, call in calls.items():
        with pytest.raises(NotImplementedError, match=rf"\] {name} must carry no tangent"):
            torch.func.jvp(call, (inputs[name],), (torch.ones_like(inputs[name]),))
        with torch.autograd.forward_ad.dual_level():
            call(inputs[name])  # a constant has no tangent
            dual = torch.autograd.forward_ad.make_dual(inputs[name], torch.ones_like(inputs[name]))
            with pytest.raises(NotImplementedError, match=rf"\] {name} must carry no tangent"):
                call(dual)


def jvp(call, x):
    return torch.func.jvp(call, (x,), (x,))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize(
    "call",
    [
        lambda x, scale: jvp(lambda a: jvp(lambda b: rms_norm(b, scale), a)[0], x),
        lambda x, scale: jvp(lambda a: jvp(lambda b: b + rms_norm(a, scale), x)[0], x),
        lambda x, scale: jvp(lambda a: torch.vmap(lambda b: rms_norm(b, scale))(a), x),
        lambda x, scale: torch.vmap(lambda a: jvp(lambda b: rms_norm(b, scale), a)[0])(x),
    ],
    ids=["jvp in jvp", "outer variable", "vmap in jvp", "jvp in vmap"],
)
def test_tangents_are_refused_through_nested_transforms(call):
    x, scale, _ = sample()
    with pytest.raises(NotImplementedError, match=r"\] x must carry no tangent"):
        call(x, scale)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize(
    "constant", [lambda x: torch.ones(x.shape) * 2, lambda x: x.detach()], ids=["made inside", "detached"]
)
def test_constants_inside_forward_mode_have_no_tangents(constant):
    x, scale, _ = sample()
    y, tangent = jvp(lambda a: a * 3 + rms_norm(constant(a), scale), x)
    assert torch.equal(y, x * 3 + rms_norm(constant(x), scale))
    assert torch.equal(tangent, x * 3)


@pytest.mark.filterwarnings("ignore:.*performance drop:UserWarning")
def test_vmap_inside_forward_mode_works_without_tangents():
    x, scale, _ = sample()
    with torch.autograd.forward_ad.dual_level():
        y = torch.vmap(lambda a: rms_norm(a, scale))(x)
    assert torch.equal(y, rms_norm(x, scale))


def test_the_compiled_graph_gives_the_same_results():
    x, scale, _ = sample()

    def model(x, scale):
        return rms_norm(x * 2, scale, epsilon=1e-6) + 1

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, scale), model(x, scale))


def test_the_compiled_graph_writes_into_given_memory():
    x, scale, _ = sample()

    def model(x, scale, out):
        rms_norm(x, scale, out=out)
        return out * 2

    out, eager = torch.empty_like(x), torch.empty_like(x)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, scale, out), model(x, scale, eager))
    assert torch.equal(out, eager)


def test_the_compiled_graph_has_the_same_gradients():
    x, scale, _ = sample()
    grads = []
    for run in (rms_norm, torch.compile(rms_norm, fullgraph=True, backend="aot_eager")):
        leaves = [t.clone().requires_grad_() for t in (x, scale)]
        run(*leaves).pow(2).sum().backward()
        grads.append([leaf.grad for leaf in leaves])
    for eager, compiled in zip(*grads, strict=True):
        assert torch.equal(eager, compiled)


def test_meta_tensors_give_shapes_and_types():
    x, scale, grad = (t.to("meta") for t in sample(torch.float16, torch.float64))
    y = rms_norm(x, scale)
    assert (y.device.type, y.shape, y.dtype) == ("meta", x.shape, torch.float64)
    dx, dscale = rms_norm_backward(grad, x, scale)
    assert (dx.shape, dx.dtype) == (x.shape, torch.float16)
    assert (dscale.shape, dscale.dtype) == (scale.shape, torch.float64)


def test_views_give_the_results_of_contiguous_tensors():
    x, scale, _ = sample()
    big = torch.randn(7, 3, 2, 24)
    for view in (
        big[::2, 1],
        big.transpose(0, 2),
        big.transpose(1, 3)[..., :3, :1].transpose(1, 3),
        big[..., 1],
    ):
        factor = torch.randn(view.shape[-1])
        assert torch.equal(rms_norm(view, factor), rms_norm(view.contiguous(), factor))
    assert torch.equal(rms_norm(x.view(2, 5, 1, 1, 24), scale).view(2, 5, 24), rms_norm(x, scale))
    x = torch.randn(2, 1, 3, 2, 2, 5)
    for factor in (torch.randn(5), torch.randn(3, 1, 1, 5), torch.randn(2, 1, 3, 1, 2, 1)):
        flat = (factor.expand(x.shape) if factor.dim() > 1 else factor).reshape(-1, 5)
        expected = rms_norm(x.reshape(-1, 5), flat if factor.dim() > 1 else factor).view(x.shape)
        assert torch.equal(rms_norm(x, factor), expected)
        assert torch.equal(rms_norm(x.transpose(0, 3).contiguous().transpose(0, 3), factor), expected)


def test_negative_views_are_resolved():
    x = torch.complex(torch.randn(3, 8), torch.randn(3, 8)).conj().imag
    assert x.is_neg()
    scale = torch.randn(8)
    assert torch.equal(rms_norm(x, scale), rms_norm(x.resolve_neg(), scale))


def test_a_write_invalidates_tensors_saved_for_backward():
    x, scale, _ = sample()
    leaf = x.clone().requires_grad_()
    product = leaf * 1
    y = product * product
    with torch.no_grad():
        rms_norm(product, scale, out=product)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_the_raw_operator_refuses_to_write_where_a_gradient_flows():
    x, scale, _ = sample()
    with pytest.raises(RuntimeError, match="out must not need a gradient where memory is given"):
        OPS.rms_norm_out(x, scale, out=torch.empty_like(x).requires_grad_())


SCRIPT = """
import torch
from npu_rope import backends, rms_norm, rms_norm_backward
from npu_rope.ops.calls import packed_attributes

assert backends.torch_registration() is None
x, scale, grad = torch.randn(2, 3, 8), torch.randn(8).bfloat16(), torch.randn(2, 3, 8).bfloat16()
want = torch.nn.functional.rms_norm(x, (8,), None, 1e-5) * scale
y = rms_norm(x, scale)
assert y.dtype == torch.bfloat16
torch.testing.assert_close(y.float(), want, rtol=1e-2, atol=1e-2)
assert torch.equal(rms_norm(x, scale, out=torch.empty_like(y)), y)
assert torch.equal(rms_norm(x.view(2, 1, 3, 1, 8), scale).view(2, 3, 8), y)
leaf = x.clone().requires_grad_()
rms_norm(leaf, scale).backward(grad)
dx, dscale = rms_norm_backward(grad, x, scale)
assert torch.equal(leaf.grad, dx)
packed = packed_attributes("rms_norm_rounded_last", (-1, 1e-5, 1.0))
rounded_last = torch.ops.npu_rope.rms_norm_rounded_last(x.half(), scale, packed)
assert torch.equal(rounded_last, rms_norm(x.half().float(), scale.float() + 1).half())
arrays = rms_norm_backward(grad.float().numpy(), x.numpy(), scale.float().numpy())
torch.testing.assert_close(dx, torch.from_numpy(arrays[0]))
try:
    rms_norm(x, scale[:3])
except ValueError as error:
    print(error)
"""


@pytest.mark.torch
def test_the_operator_works_over_ctypes_without_the_registration(run_without_registration):
    output = run_without_registration(SCRIPT)
    assert output == "[rms_norm] scale must be broadcastable to x's shape [2, 3, 8] but got [3].\n"


@pytest.mark.parametrize("in_place", [False, True])
def test_gradients_flow_through_given_memory_in_the_compiled_graph(in_place):
    def run(x, scale):
        x = x * 2
        return rms_norm(x, scale, out=x if in_place else torch.empty_like(x))

    grads = []
    for function in (run, torch.compile(run, fullgraph=True, backend="aot_eager")):
        x = torch.arange(16.0).reshape(2, 8).requires_grad_()
        function(x, torch.ones(8)).pow(3).sum().backward()
        grads.append(x.grad)
    assert torch.allclose(*grads)
