"""Nested transforms of torch.func: derivatives of each operator against those of torch's own operations."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import npu_rope  # noqa: E402
from npu_rope import RopeParams  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of torch.jit
    pytest.mark.filterwarnings("ignore:.*performance drop:UserWarning"),
]
func = torch.func
TOKENS, LANES, EPSILON = 2, 4, 1e-5
PARAMS, POSITIONS = RopeParams(LANES), torch.arange(1, 1 + TOKENS)


def numbers(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


X, DIRECTION = numbers(1, TOKENS, 1, LANES), numbers(2, TOKENS, 1, LANES)
SCALE, COS, SIN = numbers(3, LANES), numbers(4, TOKENS, 1, LANES), numbers(5, TOKENS, 1, LANES)


# ---- operators, and the same by torch's operations -----------------------------------------------------


def rotated(x, cos=None, sin=None):
    """Return x rotated by tables, or by the angles of PARAMS at POSITIONS."""
    if cos is None:
        exponents = torch.arange(0, LANES, 2, dtype=torch.float64) / LANES
        angles = POSITIONS[:, None, None] * 10000.0**-exponents
        x1, x2 = x[..., 0::2], x[..., 1::2]
        c, s = angles.cos(), angles.sin()
        return torch.stack((x1 * c - x2 * s, x1 * s + x2 * c), -1).flatten(-2)
    x1, x2 = x.chunk(2, -1)
    return x * cos + torch.cat((-x2, x1), -1) * sin


def normalized(x, scale=SCALE):
    return x * (x.square().mean(-1, keepdim=True) + EPSILON).rsqrt() * scale


def rotated_in_place(x):
    y = x * 1
    npu_rope.rope_(y, POSITIONS, PARAMS)
    return y


def rope_in_schema(x):
    return torch.ops.npu_rope.rope(x, POSITIONS, n_dims=LANES)


def rms_norm(x, scale=SCALE):
    return npu_rope.rms_norm(x, scale, stash_type=11)


def by_onnx(x):
    return npu_rope.rotary_embedding(x, COS[None, :, 0, :2], SIN[None, :, 0, :2])


def stored_norm_rope(x, scale):
    q, k, v = npu_rope.qkv_norm_rope_cache(x, 2 * x, None, POSITIONS, PARAMS, q_scale=scale, k_scale=scale)
    assert v is None
    return q + k


ROTATIONS = {
    "rope": (lambda x: npu_rope.rope(x, POSITIONS, PARAMS), rotated),
    "torch.ops": (rope_in_schema, rotated),
    "rope_qk": (lambda x: sum(npu_rope.rope_qk(x, x * x, POSITIONS, PARAMS)), lambda x: rotated(x + x * x)),
}
# Operators that refuse tangents.
OTHERS = {
    "rotary_mul": (
        lambda x: npu_rope.rotary_mul(x, x * COS, x * SIN),
        lambda x: rotated(x, x * COS, x * SIN),
    ),
    "rotary_mul_qk": (
        lambda x: sum(npu_rope.rotary_mul_qk(x, x * x, COS, SIN)),
        lambda x: rotated(x + x * x, COS, SIN),
    ),
    "rotary_embedding": (
        lambda x: by_onnx(x[None].transpose(1, 2)),
        lambda x: rotated(x, *(t[..., :2].repeat(1, 1, 2) for t in (COS, SIN)))[None].transpose(1, 2),
    ),
    "rms_norm": (rms_norm, normalized),
    "torch.ops.npu_rope.rms_norm": (
        lambda x: torch.ops.npu_rope.rms_norm(x, SCALE, -1, EPSILON, 11),
        normalized,
    ),
    "scale": (lambda x: rms_norm(X, x[0, 0]), lambda x: normalized(X, x[0, 0])),
    "add_rms_norm": (
        lambda x: sum(npu_rope.add_rms_norm(x, x * x, SCALE, stash_type=11)),
        lambda x: normalized(x + x * x) + x + x * x,
    ),
    "rms_norm_rope": (
        lambda x: npu_rope.rms_norm_rope(x, x * x, x[0, 0], SCALE, POSITIONS, PARAMS)[0],
        lambda x: rotated(normalized(x, x[0, 0])),
    ),
    "qkv_norm_rope_cache": (
        lambda x: stored_norm_rope(x, x[0, 0]),
        lambda x: rotated(normalized(x, x[0, 0]) + normalized(2 * x, x[0, 0])),
    ),
    "qk_square_sums": (
        lambda x: npu_rope.qk_square_sums(x, x * x),
        lambda x: torch.stack((x.square().sum((-1, -2)), (x * x).square().sum((-1, -2))), -1),
    ),
}


# ---- nested derivatives ----------------------------------------------------------------------------------


def cubes(f):
    return lambda x: f(x * x).pow(3).sum()


def along(gradient):
    return lambda x: (gradient(x) * DIRECTION).sum()


def tangent(f):
    return lambda x: func.jvp(f, (x,), (DIRECTION,))[1]


def sum_of_inner_gradient(f):
    """Use the operator's result in the inner transform, where its input is a constant."""
    return lambda x: func.grad(lambda z: (f(x) * z).square().sum())(x.new_ones(f(x).shape)).sum()


BACKWARD = {
    "grad of grad": lambda f: func.grad(along(func.grad(cubes(f)))),
    "grad of grad of grad": lambda f: func.grad(along(func.grad(along(func.grad(cubes(f)))))),
    "jacrev of jacrev": lambda f: func.jacrev(func.jacrev(cubes(f))),
    "constant of the inner grad": lambda f: func.grad(sum_of_inner_gradient(f)),
    "vmap of grad of grad": lambda f: lambda x: torch.vmap(func.grad(along(func.grad(cubes(f)))))(
        torch.stack((x, 2 * x))
    ),
}
FORWARD = {
    "jvp of jvp": lambda f: tangent(tangent(cubes(f))),
    "jvp of jvp of jvp": lambda f: tangent(tangent(tangent(cubes(f)))),
    "jvp of grad": lambda f: tangent(func.grad(cubes(f))),
    "grad of jvp": lambda f: func.grad(tangent(cubes(f))),
    "hessian": lambda f: func.hessian(cubes(f)),
    "jacfwd of jacfwd": lambda f: func.jacfwd(func.jacfwd(cubes(f))),
    "jacrev of jacfwd": lambda f: func.jacrev(func.jacfwd(cubes(f))),
}


def assert_equal_derivatives(transform, call, by_torch):
    expected = transform(by_torch)(X)
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(transform(call)(X), expected)


@pytest.mark.parametrize("nest", BACKWARD)
@pytest.mark.parametrize("op", {**ROTATIONS, **OTHERS})
def test_nested_gradients_are_those_of_torchs_operations(op, nest):
    assert_equal_derivatives(BACKWARD[nest], *{**ROTATIONS, **OTHERS}[op])


@pytest.mark.parametrize("nest", FORWARD)
@pytest.mark.parametrize("op", ROTATIONS)
def test_nested_tangents_of_rotations_are_those_of_torchs_operations(op, nest):
    assert_equal_derivatives(FORWARD[nest], *ROTATIONS[op])


@pytest.mark.parametrize("nest", ["grad of grad", "grad of grad of grad", "constant of the inner grad"])
def test_nested_gradients_of_rope_in_place(nest):
    assert_equal_derivatives(BACKWARD[nest], rotated_in_place, rotated)


@pytest.mark.parametrize("nest", ["jvp of jvp", "jvp of jvp of jvp", "jvp of grad", "grad of jvp"])
def test_nested_tangents_of_rope_in_place(nest):
    assert_equal_derivatives(FORWARD[nest], rotated_in_place, rotated)


def test_vmap_of_rope_in_place_is_refused_in_nested_transforms():
    with pytest.raises(RuntimeError, match="Batching rule not implemented for npu_rope::rope_"):
        func.hessian(cubes(rotated_in_place))(X)


@pytest.mark.parametrize("nest", FORWARD)
@pytest.mark.parametrize("op", OTHERS)
def test_operators_without_tangents_refuse_them_in_nested_transforms(op, nest):
    call, _ = OTHERS[op]
    with pytest.raises(NotImplementedError, match=r"^\[\w+\] \w+ must carry no tangent but got "):
        FORWARD[nest](call)(X)
