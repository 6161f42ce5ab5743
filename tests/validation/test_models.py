"""The table of models is consistent, and it agrees with transformers' code."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from peer_bounds import FREQUENCY_RTOL

from npu_rope.reference.rope import cos_sin, rope
from npu_rope.rope_attributes import RopeMode
from npu_rope.testing.bounds import rotation_bound, worst_ratio
from npu_rope.testing.models import MODELS, PublishedRope, llama3_freq_factors

BY_NAME = {model.name: model for model in MODELS}


@pytest.fixture(params=MODELS, ids=lambda model: model.name)
def model(request: pytest.FixtureRequest) -> PublishedRope:
    return request.param


def test_at_least_sixteen_models_with_unique_names() -> None:
    assert len(MODELS) >= 16
    assert len(BY_NAME) == len(MODELS)


def test_every_model_has_a_source(model: PublishedRope) -> None:
    assert model.name.strip()
    assert model.source.strip()


def test_the_rotated_window_lies_in_the_head(model: PublishedRope) -> None:
    assert model.params.n_offs + 2 * model.params.pairs <= model.head_dim


def test_each_pair_has_a_factor_of_at_least_one_and_factors_do_not_decrease(model: PublishedRope) -> None:
    if model.freq_factors is not None:
        assert len(model.freq_factors) == model.params.pairs
        assert min(model.freq_factors) >= 1.0
        assert list(model.freq_factors) == sorted(model.freq_factors)


def test_numbers_of_heads_and_contexts_are_consistent(model: PublishedRope) -> None:
    assert model.n_heads % model.n_kv_heads == 0
    assert model.context > 0
    assert model.params.n_ctx_orig <= model.context


def test_the_table_covers_every_mode_and_kind_of_scaling() -> None:
    assert {model.params.rope_mode for model in MODELS} == set(RopeMode)
    assert any(model.params.n_dims < model.head_dim for model in MODELS)
    assert any(model.params.ext_factor != 0 for model in MODELS)
    assert any(model.params.ext_factor == 0 and model.params.freq_scale != 1 for model in MODELS)
    assert any(model.freq_factors is not None for model in MODELS)


def test_llama3_factors_keep_short_wavelengths_and_stretch_long_ones() -> None:
    factors = llama3_freq_factors(128, 500000.0, 8.0, 1.0, 4.0, 8192)
    wavelengths = 2 * np.pi * 500000.0 ** (np.arange(64) / 64)
    for factor, wavelength in zip(factors, wavelengths, strict=True):
        if wavelength < 8192 / 4:
            assert factor == 1.0
        elif wavelength > 8192:
            assert factor == 8.0
        else:
            assert 1.0 < factor < 8.0


@dataclass(frozen=True)
class Peer:
    """A model of transformers: its module, the stem of its class names, and the published config."""

    module: str
    stem: str
    config: dict[str, Any] = field(default_factory=dict)
    config_class: str = ""
    layer_type: str | None = None

    def make_config(self) -> Any:
        module = importlib.import_module(f"transformers.models.{self.module}.configuration_{self.module}")
        return getattr(module, self.config_class or f"{self.stem}Config")(**self.config)

    def head_dim(self) -> int:
        config = self.make_config()
        hidden = getattr(config, "embed_dim", config.hidden_size)
        return getattr(config, "head_dim", None) or hidden // config.num_attention_heads

    def code(self) -> Any:
        return importlib.import_module(f"transformers.models.{self.module}.modeling_{self.module}")

    def rotary(self) -> Any:
        return getattr(self.code(), f"{self.stem}RotaryEmbedding")

    def frequencies(self) -> tuple[np.ndarray, float]:
        """Return transformers' inv_freq and attention factor at the full context."""
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        config = self.make_config()
        layer = {} if self.layer_type is None else {"layer_type": self.layer_type}
        rope_parameters = config.rope_parameters[self.layer_type] if layer else config.rope_parameters
        if rope_parameters["rope_type"] == "default":
            inv_freq, factor = self.rotary().compute_default_rope_parameters(config, **layer)
        elif rope_parameters["rope_type"] == "axial":  # row and column, each with the same frequencies
            inv_freq, factor = self.rotary().compute_axial_rope_parameters(config)
            inv_freq = inv_freq.repeat(2)
        else:
            compute = ROPE_INIT_FUNCTIONS[rope_parameters["rope_type"]]
            inv_freq, factor = compute(config, seq_len=config.max_position_embeddings, **layer)
        return inv_freq.double().numpy(), float(factor)


def sizes(hidden: int, heads: int, kv_heads: int, context: int, **more: Any) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": context,
        **more,
    }


def llama3(factor: float) -> dict[str, Any]:
    return {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }


def longrope(name: str, **more: Any) -> dict[str, Any]:
    factors = BY_NAME[name].freq_factors
    assert factors is not None
    return {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "long_factor": list(factors),
        "short_factor": [1.0] * len(factors),
        **more,
    }


def deepseek_yarn(mscale: float) -> dict[str, Any]:
    return {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 40.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": mscale,
        "mscale_all_dim": mscale,
        "original_max_position_embeddings": 4096,
    }


QWEN_YARN = {
    "rope_type": "yarn",
    "rope_theta": 1000000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32768,
}
GEMMA3 = sizes(
    2560,
    8,
    4,
    131072,
    head_dim=256,
    rope_parameters={
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    },
)
PHI_CONFIG = {"vocab_size": 32064, "original_max_position_embeddings": 4096}


def plain(theta: float) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": theta}


PEERS = {
    "llama-2-7b": Peer("llama", "Llama", sizes(4096, 32, 32, 4096)),
    "llama-3.1-8b": Peer("llama", "Llama", sizes(4096, 32, 8, 131072, rope_parameters=llama3(8.0))),
    "llama-3.2-1b": Peer("llama", "Llama", sizes(2048, 32, 8, 131072, rope_parameters=llama3(32.0))),
    "codellama-7b": Peer("llama", "Llama", sizes(4096, 32, 32, 16384, rope_parameters=plain(1e6))),
    "mistral-7b-v0.3": Peer("mistral", "Mistral", sizes(4096, 32, 8, 32768, rope_parameters=plain(1e6))),
    "qwen2.5-7b": Peer("qwen2", "Qwen2", sizes(3584, 28, 4, 131072, rope_parameters=plain(1e6))),
    "qwen2.5-7b-instruct-yarn4": Peer(
        "qwen2", "Qwen2", sizes(3584, 28, 4, 131072, rope_parameters=QWEN_YARN)
    ),
    "qwen3-8b": Peer("qwen3", "Qwen3", sizes(4096, 32, 8, 40960, head_dim=128, rope_parameters=plain(1e6))),
    "phi-2": Peer("phi", "Phi", sizes(2560, 32, 32, 2048, partial_rotary_factor=0.4)),
    "phi-3-mini-128k": Peer(
        "phi3",
        "Phi3",
        sizes(3072, 32, 32, 131072, rope_parameters=longrope("phi-3-mini-128k"), **PHI_CONFIG),
    ),
    "phi-4-mini": Peer(
        "phi3",
        "Phi3",
        sizes(
            3072,
            24,
            8,
            131072,
            rope_parameters=longrope("phi-4-mini", partial_rotary_factor=0.75),
            **PHI_CONFIG,
        ),
    ),
    "gemma-2-9b": Peer("gemma2", "Gemma2", sizes(3584, 16, 8, 8192, head_dim=256)),
    "gemma-3-4b-global": Peer("gemma3", "Gemma3", GEMMA3, "Gemma3TextConfig", "full_attention"),
    "gemma-3-4b-local": Peer("gemma3", "Gemma3", GEMMA3, "Gemma3TextConfig", "sliding_attention"),
    "olmo-2-7b": Peer("olmo2", "Olmo2", sizes(4096, 32, 32, 4096, rope_parameters=plain(500000.0))),
    "falcon-7b": Peer("falcon", "Falcon"),
    "gpt-neox-20b": Peer("gpt_neox", "GPTNeoX"),
    "stablelm-3b-4e1t": Peer("stablelm", "StableLm", sizes(2560, 32, 32, 4096)),
    "glm-4-9b-chat": Peer("glm", "Glm", sizes(4096, 32, 2, 131072, rope_parameters=plain(5e6))),
    "command-r-v01": Peer("cohere", "Cohere", sizes(8192, 64, 64, 8192, rope_parameters=plain(8e6))),
    "deepseek-v2-lite": Peer(
        "deepseek_v2", "DeepseekV2", sizes(2048, 16, 16, 163840, rope_parameters=deepseek_yarn(0.707))
    ),
    "deepseek-v3": Peer(
        "deepseek_v3", "DeepseekV3", sizes(7168, 128, 128, 163840, rope_parameters=deepseek_yarn(1.0))
    ),
    "qwen2-vl-7b": Peer("qwen2_vl", "Qwen2VL", sizes(3584, 28, 4, 32768), "Qwen2VLTextConfig"),
    "qwen2.5-vl-7b": Peer("qwen2_5_vl", "Qwen2_5_VL", sizes(3584, 28, 4, 32768), "Qwen2_5_VLTextConfig"),
    "qwen3-vl-4b": Peer(
        "qwen3_vl", "Qwen3VLText", sizes(2560, 32, 8, 262144, head_dim=128, rope_parameters=plain(5e6))
    ),
    "qwen2-vl-vision": Peer("qwen2_vl", "Qwen2VLVision"),
}
# transformers' GPT-J has neither rope parameters nor an embedding class; another test compares it.
WITHOUT_PEER = {"gpt-j-6b"}
# For MLA, transformers' config counts the keys after the shared rope key is repeated for each head.
MLA = {"deepseek-v2-lite", "deepseek-v3"}


def test_every_model_but_gpt_j_has_a_peer() -> None:
    assert set(PEERS) | WITHOUT_PEER == set(BY_NAME)


@pytest.fixture(params=PEERS)
def model_and_peer(request: pytest.FixtureRequest) -> tuple[PublishedRope, Peer]:
    return BY_NAME[request.param], PEERS[request.param]


@pytest.mark.peer
def test_frequencies_and_attention_factor_are_those_of_transformers(
    model_and_peer: tuple[PublishedRope, Peer],
) -> None:
    model, peer = model_and_peer
    inv_freq, attention_factor = peer.frequencies()
    np.testing.assert_allclose(
        model.params.frequencies("exact", model.freq_factors), inv_freq, rtol=FREQUENCY_RTOL, atol=0
    )
    assert model.params.mscale() == pytest.approx(attention_factor, rel=FREQUENCY_RTOL, abs=0)


@pytest.mark.peer
def test_heads_are_those_of_the_transformers_config(model_and_peer: tuple[PublishedRope, Peer]) -> None:
    model, peer = model_and_peer
    config = peer.make_config()
    assert (model.n_heads, model.head_dim) == (config.num_attention_heads, peer.head_dim())
    if model.name not in MLA and hasattr(config, "num_key_value_heads"):
        assert model.n_kv_heads == config.num_key_value_heads


# The last position selects LongRoPE's long factors. Only the first COMPARED ones are compared, because only
# their float32 angles are exact enough.
POSITIONS = (0, 1, 2, 3, 5000)
COMPARED = 4
# Height and width of the same tokens. The fourth plane repeats time.
HEIGHTS = (2, 0, 3, 1, 7)
WIDTHS = (1, 3, 0, 2, 11)


def positions_of(model: PublishedRope) -> np.ndarray:
    """Return ``[S]``, or ``[4,S]`` in the modes with sections; mode vision has only height and width."""
    if model.params.rope_mode is RopeMode.VISION:
        return np.array([HEIGHTS, WIDTHS, HEIGHTS, WIDTHS])
    planes = np.array([POSITIONS, HEIGHTS, WIDTHS, POSITIONS])
    return planes if model.params.rope_mode.has_sections else planes[0]


def rotated_by_transformers(model: PublishedRope, peer: Peer, x: np.ndarray) -> np.ndarray:
    """Rotate x ``[1, N, S, 2*pairs]`` with the model's functions in transformers."""
    import torch

    code, rotary = peer.code(), peer.rotary()(peer.make_config())
    q, positions = torch.from_numpy(x), torch.tensor([POSITIONS])
    if model.params.rope_mode is RopeMode.VISION:
        tokens = q[0].transpose(0, 1)
        rotated = rotary(tokens, torch.tensor([HEIGHTS, WIDTHS]).T)
        return code.apply_rotary_pos_emb_vision(tokens, tokens, *rotated)[0].transpose(0, 1)[None].numpy()
    if model.params.rope_mode.has_sections:
        positions = torch.tensor([POSITIONS, HEIGHTS, WIDTHS])[:, None]
    layer = {} if peer.layer_type is None else {"layer_type": peer.layer_type}
    rotated = rotary(q, positions, **layer)
    if model.name == "deepseek-v2-lite":
        return code.apply_rotary_emb(q, q, rotated)[0].numpy()
    if model.name == "deepseek-v3":
        halves = code.apply_rotary_pos_emb_interleave(q, q, *rotated)[0]
        return torch.stack(halves.chunk(2, dim=-1), dim=-1).flatten(-2).numpy()
    return code.apply_rotary_pos_emb(q, q, *rotated)[0].numpy()


def assert_rotated(model: PublishedRope, x: np.ndarray, got: np.ndarray) -> None:
    """Check that got is x, both ``[1, S, N, 2*pairs]``, rotated by the model's parameters."""
    positions = positions_of(model)[..., :COMPARED]
    factors = None if model.freq_factors is None else np.array(model.freq_factors, np.float32)
    expected = rope(x, positions, model.params, factors)
    c, s = cos_sin(positions, model.params, factors)
    angle_error = positions.max() * FREQUENCY_RTOL
    bound = rotation_bound(x, c[:, None, :], s[:, None, :], expected, model.params, "float32", angle_error)
    ratio, at = worst_ratio(got, expected, bound)
    assert ratio <= 1.0, (ratio, at)


@pytest.mark.peer
def test_pairs_are_those_of_transformers(model_and_peer: tuple[PublishedRope, Peer]) -> None:
    model, peer = model_and_peer
    rng = np.random.default_rng(7)
    x = rng.standard_normal((1, len(POSITIONS), 2, 2 * model.params.pairs), np.float32)
    got = rotated_by_transformers(model, peer, np.ascontiguousarray(x.swapaxes(1, 2))).swapaxes(1, 2)
    assert_rotated(model, x[:, :COMPARED], got[:, :COMPARED])


@pytest.mark.peer
def test_pairs_of_gpt_j_are_those_of_transformers() -> None:
    import torch
    from transformers.models.gptj import modeling_gptj as code

    model = BY_NAME["gpt-j-6b"]
    config = code.GPTJConfig()
    assert (model.n_heads, model.head_dim) == (config.n_head, config.n_embd // config.n_head)
    assert (model.params.n_dims, model.context) == (config.rotary_dim, config.n_positions)
    x = np.random.default_rng(7).standard_normal((1, COMPARED, 2, model.params.n_dims), np.float32)
    table = code.create_sinusoidal_positions(COMPARED, model.params.n_dims)[None]
    sin, cos = table.chunk(2, dim=-1)
    assert_rotated(model, x, code.apply_rotary_pos_emb(torch.from_numpy(x), sin, cos).numpy())
