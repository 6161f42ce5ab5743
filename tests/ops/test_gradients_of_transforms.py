"""Gradients through the hot path where torch records, batches or differentiates forward."""

from __future__ import annotations

from itertools import product

import pytest

torch = pytest.importorskip("torch")

import npu_rope  # noqa: E402
from npu_rope import RopeParams  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit
PARAMS, POSITIONS = RopeParams(4), torch.arange(2)


def numbers(seed, *shape, grad=False):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).requires_grad_(grad)


CALLS = {
    "rope": lambda x: npu_rope.rope(x, POSITIONS, PARAMS),
    "rope_qk": lambda x: sum(npu_rope.rope_qk(x, 2 * x, POSITIONS, PARAMS)),
    "rotary_mul": lambda x: npu_rope.rotary_mul(x, torch.ones(2, 4), torch.ones(2, 4)),
    "rms_norm": lambda x: npu_rope.rms_norm(x, torch.arange(1.0, 5.0)),
    "add_rms_norm": lambda x: sum(npu_rope.add_rms_norm(x, x, torch.arange(1.0, 5.0))),
    "rms_norm_rope": lambda x: sum(
        npu_rope.rms_norm_rope(x, 2 * x, torch.ones(4), torch.ones(4), POSITIONS, PARAMS)
    ),
}


class Model(torch.nn.Module):
    def __init__(self, call):
        super().__init__()
        self.call, self.factor = call, torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        return self.call(x * self.factor)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("op", CALLS)
def test_a_traced_module_computes_the_results_of_other_inputs(op):
    model, traced_input, other = Model(CALLS[op]), numbers(1, 2, 1, 4), numbers(2, 2, 1, 4)
    traced = torch.jit.trace(model, (traced_input,), check_trace=False)
    assert torch.equal(traced(other), model(other))


HEADS = numbers(10, 2, 1, 4)
OF_PARAMETERS = {  # calls of x [2,4], which is a table or one row for each token
    "rotary_mul cos": lambda x: npu_rope.rotary_mul(HEADS, x, torch.ones(2, 4)),
    "rotary_mul cos of neighbours": lambda x: npu_rope.rotary_mul(
        HEADS, x, torch.ones(2, 4), interleaved=True
    ),
    "rotary_embedding cos": lambda x: npu_rope.rotary_embedding(
        HEADS.view(1, 1, 2, 4).expand(1, 2, 2, 4), x.view(1, 2, 4)[..., :2], torch.ones(1, 2, 2)
    ),
    "rotary_embedding cos of neighbours by position_ids": lambda x: npu_rope.rotary_embedding(
        HEADS.view(1, 2, 4), x[:, :2], torch.ones(2, 2), torch.tensor([[1, 1]]), num_heads=1, interleaved=1
    ),
    "rotary_mul sin": lambda x: npu_rope.rotary_mul(HEADS, torch.ones(2, 4), x),
    "rotary_mul_ cos": lambda x: npu_rope.rotary_mul_(HEADS * 1, x, torch.ones(2, 4)),
    "rotary_mul_qk cos": lambda x: sum(npu_rope.rotary_mul_qk(HEADS, HEADS, x, torch.ones(2, 4))),
    "rotary_mul_qk_ sin": lambda x: sum(npu_rope.rotary_mul_qk_(HEADS * 1, HEADS * 1, torch.ones(2, 4), x)),
    "rms_norm scale": lambda x: npu_rope.rms_norm(HEADS, x[:, None]),
}


@pytest.mark.parametrize("op", [*CALLS, *OF_PARAMETERS])
def test_batched_gradients_are_those_of_each_gradient(op):
    x = numbers(3, 2, 1, 4, grad=True)
    y = CALLS[op](x) if op in CALLS else OF_PARAMETERS[op](x[:, 0])
    grads = numbers(4, 3, *y.shape)
    (batched,) = torch.autograd.grad(y, x, grads, is_grads_batched=True, retain_graph=True)
    for one, grad in zip(batched, grads, strict=True):
        torch.testing.assert_close(one, torch.autograd.grad(y, x, grad, retain_graph=True)[0])


@pytest.mark.parametrize("grad_enabled", [True, False])
def test_each_combination_of_tangents_and_gradients_of_rope_qk(grad_enabled):
    ad = torch.autograd.forward_ad
    for q_grad, k_grad, q_dual, k_dual in product((False, True), repeat=4):
        with ad.dual_level(), torch.set_grad_enabled(grad_enabled):
            x = [numbers(5, 2, 1, 4, grad=q_grad), numbers(6, 2, 1, 4, grad=k_grad)]
            tangents = [numbers(7, 2, 1, 4) if q_dual else None, numbers(8, 2, 1, 4) if k_dual else None]
            duals = [p if t is None else ad.make_dual(p, t) for p, t in zip(x, tangents, strict=True)]
            results = npu_rope.rope_qk(*duals, POSITIONS, PARAMS)
            for y, p, t in zip(results, x, tangents, strict=True):
                assert torch.equal(y, CALLS["rope"](p))
                tangent = ad.unpack_dual(y).tangent
                expected = torch.zeros_like(p) if t is None else CALLS["rope"](t)
                assert torch.equal(expected if tangent is None and t is None else tangent, expected)
