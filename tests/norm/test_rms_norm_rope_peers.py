"""rms_norm_rope compared with models that have QK-norm: transformers' q_norm, k_norm and
apply_rotary_pos_emb, and OLMo 2's norm of all heads together, which is rms_norm and then rope_qk.
"""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch
from norm_cases import values_of

from npu_rope import RopeParams, rms_norm, rms_norm_rope, rope_qk
from npu_rope.testing import norm_rope_spec
from npu_rope.testing.bounds import PEER_FLOAT32_TABLE, PEER_ROUNDED_STEPS, UNIT_ROUNDOFF, worst_ratio
from npu_rope.testing.norm_rope_spec import NormRopeCall

pytestmark = pytest.mark.peer
TOKENS, HEAD, EPSILON = 40, 64, 1e-6


def inputs_of(dtype):
    """Return q and k ([B,S,N,D]), their scales, and positions."""
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, TOKENS, n, HEAD, generator=generator).to(dtype) for n in (6, 2))
    scales = [(torch.rand(HEAD, generator=generator) + 0.5).to(dtype) for _ in range(2)]
    return q, k, *scales, torch.arange(TOKENS)


def table(positions, width, base, dtype):
    """Return transformers' default table ``[1,S,width]``: float32 angles, cos and sin in the model's type."""
    frequency = 1.0 / (base ** (torch.arange(0, width, 2).float() / width))
    angle = torch.cat([positions[:, None].float() * frequency] * 2, -1)[None]
    return angle.cos().to(dtype), angle.sin().to(dtype)


def by_transformers(module, name, q, k, scales, positions, width, base):
    """Run the model's code between its projections and the product of q and k."""
    model = importlib.import_module(f"transformers.models.{module}")
    norms = []
    for scale in scales:
        norm = getattr(model, f"{name}RMSNorm")(HEAD, eps=EPSILON)
        norm.weight.data = scale - 1 if name == "Gemma3" else scale
        norms.append(norm)
    with torch.no_grad():
        normalized = [norm(x).transpose(1, 2) for norm, x in zip(norms, (q, k), strict=True)]
        rotated = model.apply_rotary_pos_emb(*normalized, *table(positions, width, base, q.dtype))
    return [y.transpose(1, 2) for y in rotated]


MODELS = {
    "qwen3": ("qwen3.modeling_qwen3", "Qwen3", HEAD),
    "glm4_moe": ("glm4_moe.modeling_glm4_moe", "Glm4Moe", HEAD // 2),
    "gemma3": ("gemma3.modeling_gemma3", "Gemma3", HEAD),
}


@pytest.mark.parametrize("rounding", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("model", MODELS)
def test_results_are_near_transformers_attention(model, dtype, rounding):
    """The peer is within the errors of its roundings; ours is within its own bound."""
    module, name, width = MODELS[model]
    q, k, *scales, positions = inputs_of(dtype)
    params = RopeParams(width, "neox", freq_base=1e6)
    ours = rms_norm_rope(q, k, *scales, positions, params, epsilon=EPSILON, intermediate_rounding=rounding)
    theirs = by_transformers(module, name, q, k, scales, positions, width, 1e6)
    type_name = str(dtype).removeprefix("torch.")
    for x, scale, a, b in zip((q, k), scales, ours, theirs, strict=True):
        call = NormRopeCall(
            values_of(x),
            values_of(scale),
            positions.numpy(),
            params,
            type_name,
            epsilon=EPSILON,
            intermediate_rounding=rounding,
        )
        value, bound = norm_rope_spec.rms_norm_rope(call)
        assert worst_ratio(values_of(a), value, bound)[0] <= 1
        # Roundings besides the angles': normalization, product, table entries, two products and a sum.
        table_error = (PEER_FLOAT32_TABLE if dtype == torch.float32 else PEER_ROUNDED_STEPS)[0]
        magnitude = np.abs(value).max(-1, keepdims=True)
        peer_error = (table_error + 8 * UNIT_ROUNDOFF[type_name]) * magnitude
        assert worst_ratio(values_of(b), value, peer_error + bound)[0] <= 1
        share = np.mean(np.abs(values_of(a) - values_of(b)) <= 4 * UNIT_ROUNDOFF[type_name] * magnitude)
        assert share > 0.95


def test_at_position_0_intermediate_rounding_nearly_always_gives_qwen3s_bits():
    """At angle 0 the table is exact, and intermediate_rounding has the roundings of transformers' norm."""
    q, k, *scales, _ = inputs_of(torch.bfloat16)
    positions = torch.zeros(TOKENS, dtype=torch.int64)
    given = q, k, *scales, positions, RopeParams(HEAD, "neox")
    theirs = by_transformers(*MODELS["qwen3"][:2], q, k, scales, positions, HEAD, 1e4)
    rounded_twice = rms_norm_rope(*given, epsilon=EPSILON, intermediate_rounding=True)
    rounded_once = rms_norm_rope(*given, epsilon=EPSILON)
    for twice, peer, once in zip(rounded_twice, theirs, rounded_once, strict=True):
        assert (twice == peer).float().mean() > 0.999
        assert (once == peer).float().mean() < 0.9


def test_rms_norm_and_rope_qk_give_olmo_2s_results():
    """The equivalent is rms_norm, then rope_qk, as in docs/ops/rms_norm_rope.md."""
    from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm, apply_rotary_pos_emb

    q, k, *_, positions = inputs_of(torch.float32)
    norms = [Olmo2RMSNorm(x.shape[2] * HEAD, eps=EPSILON) for x in (q, k)]
    for norm in norms:
        norm.weight.data.uniform_(0.5, 1.5)
    with torch.no_grad():
        flat = [norm(x.flatten(2)).view(x.shape) for norm, x in zip(norms, (q, k), strict=True)]
        cos_sin = table(positions, HEAD, 1e4, torch.float32)
        theirs = apply_rotary_pos_emb(*(x.transpose(1, 2) for x in flat), *cos_sin)
        normalized = [
            rms_norm(x.flatten(2), norm.weight, epsilon=EPSILON).view(x.shape)
            for norm, x in zip(norms, (q, k), strict=True)
        ]
    ours = rope_qk(*normalized, positions, RopeParams(HEAD, "neox"))
    for a, b in zip(ours, theirs, strict=True):
        assert torch.allclose(a, b.transpose(1, 2), rtol=1e-4, atol=1e-4)


def test_a_qwen3_model_gives_the_same_logits_with_the_operator(monkeypatch):
    """In a small model, one call replaces the norms and the rotation of the attention."""
    from transformers import Qwen3Config
    from transformers.models.qwen3 import modeling_qwen3 as qwen3

    config = Qwen3Config(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    model = qwen3.Qwen3ForCausalLM(config).eval()
    for layer in model.model.layers:
        for norm in (layer.self_attn.q_norm, layer.self_attn.k_norm):
            norm.weight.data.uniform_(0.5, 1.5)
    tokens = torch.randint(0, 97, (2, 23))
    with torch.no_grad():
        expected = model(tokens).logits
    base = config.rope_parameters["rope_theta"]
    params, calls = RopeParams(32, "neox", freq_base=base), []

    def fused(q, k, cos, sin):
        layer = model.model.layers[len(calls)].self_attn
        scales = layer.q_norm.scale, layer.k_norm.scale
        calls.append(q.shape)
        given = q.transpose(1, 2), k.transpose(1, 2), *scales, torch.arange(23), params
        ours = rms_norm_rope(*given, epsilon=config.rms_norm_eps)
        return [y.transpose(1, 2) for y in ours]

    for layer in model.model.layers:
        for name in ("q_norm", "k_norm"):
            identity = torch.nn.Identity()
            identity.scale = getattr(layer.self_attn, name).weight.data
            setattr(layer.self_attn, name, identity)
    monkeypatch.setattr(qwen3, "apply_rotary_pos_emb", fused)
    with torch.no_grad():
        logits = model(tokens).logits
    assert len(calls) == 2
    assert torch.allclose(logits, expected, rtol=1e-4, atol=1e-4)
