"""Small models of families of transformers, with random weights; nothing is downloaded."""

from __future__ import annotations

import torch
import transformers

SIZE = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
LLAMA_3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0 + i / 8 for i in range(8)],
    "long_factor": [2.0 + i for i in range(8)],
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 150000.0,
    "factor": 8.0,
    "truncate": False,
    "original_max_position_embeddings": 32,
}
SECTIONS = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 6, 6]}


def _model_maker(model, config, **settings):
    return lambda: getattr(transformers, model)(getattr(transformers, config)(**{**SIZE, **settings}))


def _qwen2_vl():
    text = {**SIZE, "hidden_size": 128, "rope_parameters": dict(SECTIONS)}
    vision = {"depth": 1, "embed_dim": 32, "num_heads": 2, "hidden_size": 128}
    config = transformers.Qwen2VLConfig(text_config=text, vision_config=vision)
    return transformers.Qwen2VLForConditionalGeneration(config)


def _qwen3_vl():
    text = {**SIZE, "head_dim": 32, "rope_parameters": {**SECTIONS, "mrope_interleaved": True}}
    vision = {"depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 32, "out_hidden_size": 64}
    vision |= {"deepstack_visual_indexes": [0], "num_position_embeddings": 16}
    config = transformers.Qwen3VLConfig(text_config=text, vision_config=vision)
    return transformers.Qwen3VLForConditionalGeneration(config)


MIXTURE = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
}
DEEPSEEK = {
    "q_lora_rank": 32,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "num_key_value_heads": 4,
    **MIXTURE,
}
GEMMA = {"head_dim": 16, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 16}
GPT_OSS = {"head_dim": 16, "num_local_experts": 2, "num_experts_per_tok": 2, "sliding_window": 16}

GLM_4_MOE = {
    "head_dim": 16,
    "use_qk_norm": True,
    "attention_bias": True,
    **MIXTURE,
}

# A function for each family that makes its model.
MODELS = {
    "llama": _model_maker("LlamaForCausalLM", "LlamaConfig"),
    "llama3": _model_maker("LlamaForCausalLM", "LlamaConfig", rope_parameters=dict(LLAMA_3)),
    "qwen2.5": _model_maker("Qwen2ForCausalLM", "Qwen2Config"),
    "qwen3": _model_maker("Qwen3ForCausalLM", "Qwen3Config", head_dim=16),
    "qwen2-vl": _qwen2_vl,
    "qwen3-vl": _qwen3_vl,
    "glm4": _model_maker("Glm4ForCausalLM", "Glm4Config", head_dim=16),
    "glm4-moe": _model_maker("Glm4MoeForCausalLM", "Glm4MoeConfig", **GLM_4_MOE),
    "cohere": _model_maker("CohereForCausalLM", "CohereConfig"),
    "phi3": _model_maker(
        "Phi3ForCausalLM",
        "Phi3Config",
        original_max_position_embeddings=64,
        rope_parameters=dict(LONGROPE),
    ),
    "olmo2": _model_maker("Olmo2ForCausalLM", "Olmo2Config"),
    "gemma3": _model_maker("Gemma3ForCausalLM", "Gemma3TextConfig", **GEMMA),
    "gpt-neox": _model_maker("GPTNeoXForCausalLM", "GPTNeoXConfig"),
    "gpt-oss": _model_maker("GptOssForCausalLM", "GptOssConfig", **GPT_OSS, rope_parameters=dict(YARN)),
    "deepseek-v3": _model_maker("DeepseekV3ForCausalLM", "DeepseekV3Config", **DEEPSEEK),
    "mistral": _model_maker("MistralForCausalLM", "MistralConfig", head_dim=16),
}


def make(name, seed=0):
    """Return a model of the family for inference. Its weights are large enough that the next token depends on
    the previous ones, and its norms scale each lane differently."""
    torch.manual_seed(seed)
    model = MODELS[name]().eval()
    model.generation_config.eos_token_id = None
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
            else:
                parameter.copy_(torch.randn_like(parameter) * (0.05 if "embed" in parameter_name else 0.3))
    return model
