"""Positions with a batch of 1 serve every batch without a copy; transformers' position_ids work unchanged."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch
from peer_bounds import FREQUENCY_RTOL
from rope_bad_calls import c_view
from rope_cases import assert_within, to_torch

from npu_rope import RopeParams, native, rope, rope_qk, rope_set_rows
from npu_rope.reference import rope as reference
from npu_rope.rope_calls import RopeCallAttributes
from npu_rope.testing.bounds import worst_ratio

B, S, N, D = 3, 5, 2, 16
PARAMS = {
    "normal": RopeParams(16, "normal"),
    "neox": RopeParams(12, "neox", n_offs=2),
    "mrope": RopeParams(16, "mrope", sections=(3, 3, 2, 0)),
    "imrope": RopeParams(16, "imrope", sections=(3, 3, 1, 1)),
    "vision": RopeParams(8, "vision", sections=(4, 4, 0, 0)),
}
FORMS = [("normal", 0), ("neox", 0), *((m, p) for m in ("mrope", "imrope", "vision") for p in (3, 4))]


@pytest.fixture(params=FORMS, ids=lambda form: f"{form[0]}-{form[1]}")
def form(request):
    """Return a mode's parameters, and positions of a batch of 1: [1,S], [3,1,S] or [4,1,S]."""
    mode, planes = request.param
    shape = (planes, 1, S) if planes else (1, S)
    return PARAMS[mode], np.random.default_rng(7).integers(0, 3000, shape)


def without_batch(positions):
    """Return the positions as [S], [3,S] or [4,S]."""
    return positions[..., 0, :]


def far_batches(positions):
    """Return the positions with a batch stride that leads out of the memory."""
    strides = list(positions.strides)
    strides[-2] = 2**40
    return np.lib.stride_tricks.as_strided(positions, positions.shape, strides)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_positions_of_one_batch_serve_every_batch(form, dtype, backend):
    params, positions = form[0], form[1].astype(dtype)
    x = normal(B, S, N, D)
    y = rope(x, far_batches(positions), params, backend=backend)
    assert np.array_equal(y, rope(x, without_batch(positions), params, backend=backend))
    assert_within(y, x, positions, params, dtype="float32", backend=backend)
    assert torch.equal(rope(to_torch(x), to_torch(positions), params, backend=backend), to_torch(y))


def test_positions_of_one_batch_serve_every_batch_of_queries_and_keys(form, backend):
    params, positions = form
    q, k = normal(B, S, 4, D), normal(B, S, 1, D, seed=1)
    got = rope_qk(q, k, far_batches(positions), params, backend=backend)
    for y, x in zip(got, (q, k), strict=True):
        assert np.array_equal(y, rope(x, without_batch(positions), params, backend=backend))


def test_positions_of_one_batch_serve_every_batch_written_to_a_cache(form, backend):
    params, positions = form
    x, rows = normal(B, S, N, D), np.arange(B * S).reshape(B, S)
    cache, expected = np.zeros((2, B * S + 1, N, D), np.float32)
    rope_set_rows(x, far_batches(positions), rows, cache, params, backend=backend)
    rope_set_rows(x, without_batch(positions), rows, expected, params, backend=backend)
    assert np.array_equal(cache, expected)
    assert cache[: B * S].any(axis=(1, 2)).all()


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_positions_of_one_batch_serve_any_batch_size(batch, form, backend):
    params, positions = form
    x = normal(batch, S, N, D)
    y = rope(x, positions, params, backend=backend)
    assert np.array_equal(y, rope(x, without_batch(positions), params, backend=backend))


def test_the_c_interface_accepts_positions_of_one_batch(form):
    params, positions = form
    x, out = normal(B, S, N, D), np.zeros((B, S, N, D), np.float32)
    views = [c_view(x), c_view(far_batches(positions))]
    native.load().call("rope", views, RopeCallAttributes(params), [c_view(out)])
    assert np.array_equal(out, rope(x, without_batch(positions), params, backend="cpu"))


def test_compiled_and_differentiated_calls_accept_positions_of_one_batch(form):
    params, positions = form[0], to_torch(form[1])
    x = to_torch(normal(B, S, N, D)).requires_grad_()
    expected = rope(x.detach(), without_batch(positions), params)
    compiled = torch.compile(lambda x, p: rope(x, p, params), fullgraph=True, backend="eager")
    assert torch.equal(compiled(x.detach(), positions), expected)
    rope(x, positions, params).backward(expected)
    assert torch.equal(x.grad, rope(expected, positions, params, forward=False))
    attributes = {"n_dims": params.n_dims, "rope_mode": int(params.rope_mode), "n_offs": params.n_offs}
    attributes["sections"] = list(params.sections)
    torch.library.opcheck(torch.ops.npu_rope.rope.default, (x.detach(), positions), attributes)


# ---- transformers' position_ids ----------------------------------------------------------------------


SMALL_MODEL = {
    "hidden_size": 4 * 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 16,
    "max_position_embeddings": 64,
}


def run_model(name, model_class, config_class, position_ids, **options):
    """Run a small model. Return its Python module, and positions, cos and sin of its rotary embedding."""
    code = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    config = importlib.import_module(f"transformers.models.{name}.configuration_{name}")
    model = getattr(code, model_class)(getattr(config, config_class)(**SMALL_MODEL, **options)).eval()
    captured = {}

    def capture(_, args, kwargs, result):
        captured["positions"] = kwargs.get("position_ids", args[1] if len(args) > 1 else None)
        captured["cos"], captured["sin"] = result

    model.rotary_emb.register_forward_hook(capture, with_kwargs=True)
    with torch.no_grad():
        model(inputs_embeds=torch.randn(2, 6, SMALL_MODEL["hidden_size"]), position_ids=position_ids)
    return code, captured["positions"], captured["cos"], captured["sin"]


def assert_rotated_alike(code, cos, sin, positions, params):
    """Require transformers' function and rope to meet one bound for the model's positions."""
    q = torch.randn(2, 4, 6, 32)
    theirs = code.apply_rotary_pos_emb(q, q, cos, sin)[0].transpose(1, 2)
    ours = rope(q.transpose(1, 2), positions, params)
    wide = q.transpose(1, 2).double().numpy()
    exact = reference.rope(wide, positions.numpy(), params)
    bound = 4 * int(positions.max()) * FREQUENCY_RTOL * np.abs(wide).max()
    assert worst_ratio(theirs.numpy(), exact, np.full_like(exact, bound))[0] <= 1
    assert worst_ratio(ours.numpy(), exact, np.full_like(exact, bound))[0] <= 1


@pytest.mark.peer
def test_llama_passes_positions_of_one_batch():
    code, positions, cos, sin = run_model("llama", "LlamaModel", "LlamaConfig", None)
    assert tuple(positions.shape) == (1, 6)
    assert_rotated_alike(code, cos, sin, positions, RopeParams(32, "neox"))


QWEN2_VL = RopeParams(32, "mrope", freq_base=1e6, sections=(4, 6, 6, 0))


@pytest.mark.peer
@pytest.mark.parametrize("planes", [3, 4])
@pytest.mark.parametrize("batch", [1, 2])
def test_qwen2_vl_rotates_by_the_last_three_planes(planes, batch):
    """Qwen2-VL's four planes are [text, t, h, w]; the mask needs text. rope's are [t, h, w, extra]."""
    position_ids = torch.randint(0, 40, (planes, batch, 6), generator=torch.Generator().manual_seed(planes))
    rope_parameters = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 6, 6]}
    code, positions, cos, sin = run_model(
        "qwen2_vl", "Qwen2VLTextModel", "Qwen2VLTextConfig", position_ids, rope_parameters=rope_parameters
    )
    assert torch.equal(positions, position_ids[-3:])
    assert_rotated_alike(code, cos, sin, position_ids[-3:], QWEN2_VL)
    if planes == 4:  # all four planes give a different result
        q = torch.randn(2, 6, 4, 32)
        assert not torch.equal(rope(q, position_ids, QWEN2_VL), rope(q, position_ids[-3:], QWEN2_VL))
