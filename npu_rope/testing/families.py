"""Models of families of transformers with random weights and sizes of choice, so that none is downloaded.

The tests of ``apply_npu_rope`` and the rows ``patched families`` of ``npu-rope bench`` use the same models.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from npu_rope.optional_torch import torch


@dataclass(frozen=True)
class ModelSizes:
    """The sizes of a model, by the names of transformers' configurations."""

    vocab_size: int = 128
    hidden_size: int = 64
    intermediate_size: int = 96
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    max_position_embeddings: int = 256

    @property
    def head_dim(self) -> int:
        """The width of a head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def settings(self) -> dict[str, Any]:
        """The sizes and tokens as settings of a configuration."""
        return {**asdict(self), "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}


SMALL = ModelSizes()
Maker = Callable[[ModelSizes], Any]


def model_of(model: str, config: str, sizes: ModelSizes = SMALL, **settings: Any) -> Any:
    """Return a model of transformers' classes of these names."""
    transformers: Any = importlib.import_module("transformers")
    made_config = getattr(transformers, config)(**{**sizes.settings, **settings})
    return getattr(transformers, model)(made_config)


def _maker(model: str, config: str, settings_of: Callable[[ModelSizes], Any] = lambda sizes: {}) -> Maker:
    return lambda sizes: model_of(model, config, sizes, **settings_of(sizes))


def _head_dim(sizes: ModelSizes) -> dict[str, Any]:
    return {"head_dim": sizes.head_dim}


LLAMA_3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 150000.0,
    "factor": 8.0,
    "truncate": False,
    "original_max_position_embeddings": 32,
}


def _phi3(sizes: ModelSizes) -> dict[str, Any]:
    pairs = range(sizes.head_dim // 2)
    longrope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0 + i / 8 for i in pairs],
        "long_factor": [2.0 + i for i in pairs],
    }
    # A model that is longer than its original length selects its factors by the length.
    return {
        "original_max_position_embeddings": sizes.max_position_embeddings // 4,
        "rope_parameters": longrope,
    }


def _sections(head_dim: int) -> dict[str, Any]:
    sections = [head_dim // 8, 3 * head_dim // 16, 3 * head_dim // 16]
    return {"rope_type": "default", "rope_theta": 1e6, "mrope_section": sections}


def _qwen2_vl(sizes: ModelSizes) -> Any:
    heads = sizes.num_attention_heads
    sizes = replace(sizes, hidden_size=max(sizes.hidden_size, 32 * heads))
    text = {**sizes.settings, "rope_parameters": _sections(sizes.head_dim)}
    vision = {"depth": 1, "embed_dim": 32, "num_heads": 2, "hidden_size": sizes.hidden_size}
    transformers: Any = importlib.import_module("transformers")
    config = transformers.Qwen2VLConfig(text_config=text, vision_config=vision)
    return transformers.Qwen2VLForConditionalGeneration(config)


def _qwen3_vl(sizes: ModelSizes) -> Any:
    head_dim = max(sizes.head_dim, 32)
    parameters = {**_sections(head_dim), "mrope_interleaved": True}
    text = {**sizes.settings, "head_dim": head_dim, "rope_parameters": parameters}
    vision = {
        "depth": 1,
        "hidden_size": 32,
        "num_heads": 2,
        "intermediate_size": 32,
        "out_hidden_size": sizes.hidden_size,
        "deepstack_visual_indexes": [0],
        "num_position_embeddings": 16,
    }
    transformers: Any = importlib.import_module("transformers")
    config = transformers.Qwen3VLConfig(text_config=text, vision_config=vision)
    return transformers.Qwen3VLForConditionalGeneration(config)


def _mixture(sizes: ModelSizes) -> dict[str, Any]:
    return {
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "moe_intermediate_size": sizes.hidden_size // 2,
        "first_k_dense_replace": 1,
    }


def deepseek(sizes: ModelSizes = SMALL) -> dict[str, Any]:
    """Return the settings of DeepSeek's attention and experts."""
    return {
        "q_lora_rank": sizes.hidden_size // 2,
        "kv_lora_rank": sizes.hidden_size // 4,
        "qk_rope_head_dim": sizes.head_dim,
        "qk_nope_head_dim": sizes.head_dim,
        "v_head_dim": sizes.head_dim,
        "num_key_value_heads": sizes.num_attention_heads,
        **_mixture(sizes),
    }


def _gemma3(sizes: ModelSizes) -> dict[str, Any]:
    layer_types = ["sliding_attention", "full_attention"] * (sizes.num_hidden_layers // 2)
    return {**_head_dim(sizes), "layer_types": layer_types, "sliding_window": _window(sizes)}


def _gpt_oss(sizes: ModelSizes) -> dict[str, Any]:
    experts = {"num_local_experts": 2, "num_experts_per_tok": 2}
    return {**_head_dim(sizes), **experts, "sliding_window": _window(sizes), "rope_parameters": dict(YARN)}


def _window(sizes: ModelSizes) -> int:
    return sizes.max_position_embeddings // 16


def _glm4_moe(sizes: ModelSizes) -> dict[str, Any]:
    return {**_head_dim(sizes), "use_qk_norm": True, "attention_bias": True, **_mixture(sizes)}


# A function for each family that makes its model.
MODELS: dict[str, Maker] = {
    "llama": _maker("LlamaForCausalLM", "LlamaConfig"),
    "llama3": _maker("LlamaForCausalLM", "LlamaConfig", lambda sizes: {"rope_parameters": dict(LLAMA_3)}),
    "qwen2.5": _maker("Qwen2ForCausalLM", "Qwen2Config"),
    "qwen3": _maker("Qwen3ForCausalLM", "Qwen3Config", _head_dim),
    "qwen2-vl": _qwen2_vl,
    "qwen3-vl": _qwen3_vl,
    "glm4": _maker("Glm4ForCausalLM", "Glm4Config", _head_dim),
    "glm4-moe": _maker("Glm4MoeForCausalLM", "Glm4MoeConfig", _glm4_moe),
    "cohere": _maker("CohereForCausalLM", "CohereConfig"),
    "phi3": _maker("Phi3ForCausalLM", "Phi3Config", _phi3),
    "olmo2": _maker("Olmo2ForCausalLM", "Olmo2Config"),
    "gemma3": _maker("Gemma3ForCausalLM", "Gemma3TextConfig", _gemma3),
    "gpt-neox": _maker("GPTNeoXForCausalLM", "GPTNeoXConfig"),
    "gpt-oss": _maker("GptOssForCausalLM", "GptOssConfig", _gpt_oss),
    "deepseek-v3": _maker("DeepseekV3ForCausalLM", "DeepseekV3Config", deepseek),
    "mistral": _maker("MistralForCausalLM", "MistralConfig", _head_dim),
}


def make(
    name: str, seed: int = 0, sizes: ModelSizes = SMALL, *, embedding_std: float = 0.05, std: float = 0.3
) -> Any:
    """Return a model of the family for inference. Its norms scale each lane differently.

    Args:
        name: a key of MODELS.
        seed: of the random weights.
        sizes: the model's sizes.
        embedding_std, std: standard deviations of the embeddings and of the other weights. The defaults are
            large enough that a small model's next token depends on the previous ones.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = MODELS[name](sizes).eval()
        model.generation_config.eos_token_id = None
        with torch.no_grad():
            for parameter_name, parameter in model.named_parameters():
                if parameter.ndim == 1:
                    parameter.add_(torch.randn_like(parameter) * 0.1)
                else:
                    scale = embedding_std if "embed" in parameter_name else std
                    parameter.copy_(torch.randn_like(parameter) * scale)
    return model
