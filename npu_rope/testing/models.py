"""Rope parameters of real models for ``npu-rope validate``, as data, each with its source.

A new model is a new entry in ``MODELS``. ``tests/validation/test_models.py`` compares the models that
transformers implements with its code. Pairing, YaRN and factors follow ``specs/ggml_rope_acltensor.txt``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from npu_rope.params import RopeParams


@dataclass(frozen=True)
class PublishedRope:
    """One model's rope, in ggml's parameters.

    Attributes:
        name: the model's usual name in lower case; a suffix distinguishes variants.
        source: the origin of the numbers; after "read in", the copy they were read from.
        n_heads, n_kv_heads: heads of the query and of the key that rope rotates.
        head_dim: head size of these tensors (in DeepSeek's MLA: of the 64-wide rope part).
        context: the number of tokens for which the model is made.
        params: the attributes. ``mode`` is the pairing of the model's transformers code. A GGUF may need
            another mode, because llama.cpp's converter permutes the Q and K weights of some models
            (Llama, Mistral: neox here, normal in a GGUF).
        freq_factors: ``n_dims/2`` divisors of the frequencies, or None.
        note: facts that the numbers alone do not show.
    """

    name: str
    source: str
    n_heads: int
    n_kv_heads: int
    head_dim: int
    context: int
    params: RopeParams
    freq_factors: tuple[float, ...] | None = None
    note: str = ""


def llama3_freq_factors(
    head_dim: int,
    base: float,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_context: int,
) -> tuple[float, ...]:
    """Return Llama 3.1's frequency scaling as divisors for ggml's rope (GGUF: ``rope_freqs.weight``).

    Pair i has the wavelength ``w = 2 pi base**(2i/head_dim)`` in tokens; ``n`` is the original context. The
    divisor is 1 if ``w < n/high_freq_factor``, and ``factor`` if ``w > n/low_freq_factor``. Between them the
    frequency is blended linearly in ``n/w``. This is the formula of transformers' rope_type "llama3"
    (``modeling_rope_utils``), which follows Meta's llama-models.

    Args:
        head_dim: the number of lanes that rotate.
        base: theta.
        factor: divisor of the lowest frequencies.
        low_freq_factor, high_freq_factor: ends of the blend, in turns over the original context.
        original_context: context before the scaling, in tokens.

    Returns:
        ``head_dim/2`` divisors between 1 and ``factor``.

    >>> factors = llama3_freq_factors(128, 500000.0, 8.0, 1.0, 4.0, 8192)
    >>> [round(factors[i], 4) for i in (0, 28, 29, 30, 34, 35, 63)]
    [1.0, 1.0, 1.2075, 1.5534, 5.2573, 8.0, 8.0]
    """

    def divisor(turns: float) -> float:
        if turns > high_freq_factor:
            return 1.0
        if turns < low_freq_factor:
            return factor
        kept = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor)
        return 1.0 / ((1.0 - kept) / factor + kept)

    wavelengths = (2 * math.pi * base ** (2.0 * i / head_dim) for i in range(head_dim // 2))
    return tuple(divisor(original_context / w) for w in wavelengths)


def _yarn_attn_factor(model_factor: float, factor: float) -> float:
    """Return the attn_factor that gives the model's own factor, because rope itself multiplies by
    ``1 + 0.1 ln(factor)`` if ext_factor is not 0."""
    return model_factor / (1.0 + 0.1 * math.log(factor))


def _longrope_attn_factor(context: int, original_context: int) -> float:
    """Return LongRoPE's factor on cos and sin, arXiv 2402.13753; GGUF: ``rope.scaling.attn_factor``."""
    return math.sqrt(1.0 + math.log(context / original_context) / math.log(original_context))


# Values of the configs; Phi-3's are float32 values printed in full.
_PHI3_MINI_128K_LONG_FACTORS = (
    *(1.0700000524520874, 1.1200000047683716, 1.149999976158142, 1.4199999570846558),
    *(1.5699999332427979, 1.7999999523162842, 2.129999876022339, 2.129999876022339),
    *(3.009999990463257, 5.910000324249268, 6.950000286102295, 9.070000648498535),
    *(9.930000305175781, 10.710000038146973, 11.130000114440918, 14.609999656677246),
    *(15.409998893737793, 19.809999465942383, 37.279998779296875, 38.279998779296875),
    *(38.599998474121094, 40.12000274658203, 46.20000457763672, 50.940006256103516),
    *(53.66000747680664, 54.9373893737793, 56.89738845825195, 57.28738784790039),
    *(59.98738479614258, 60.86738586425781, 60.887386322021484, 61.71739196777344),
    *(62.91739273071289, 62.957393646240234, 63.41739273071289, 63.8173942565918),
    *(63.83739471435547, 63.897396087646484, 63.93739700317383, 64.06739807128906),
    *(64.11434936523438, 64.12435150146484, 64.15435028076172, 64.19435119628906),
    *(64.24435424804688, 64.57435607910156, 64.69000244140625, 64.76000213623047),
)
_PHI4_MINI_LONG_FACTORS = (
    *(1.0, 1.118320672, 1.250641126, 1.398617824, 1.564103225, 1.74916897, 1.956131817, 2.187582649),
    *(2.446418898, 2.735880826, 3.059592084, 3.421605075, 3.826451687, 4.279200023, 4.785517845),
    *(5.351743533, 5.984965424, 6.693110555, 7.485043894, 8.370679318, 9.36110372, 10.4687158),
    *(11.70738129, 13.09260651, 14.64173252, 16.37415215, 18.31155283, 20.47818807, 22.90118105),
    *(25.61086418, 28.64115884, 32.03, 32.1, 32.13, 32.23, 32.6, 32.61, 32.64, 32.66, 32.7, 32.71),
    *(32.93, 32.97, 33.28, 33.49, 33.5, 44.16, 47.77),
)

# Copies of the configs that the numbers were read from: mlc-ai/mlc-llm 79d603f (config.json
# files, unabridged) and Lightning-AI/litgpt 2685705 (the same values in litgpt's format).
_MLC = "read in mlc-llm's model_preset.py"
_LITGPT = "read in litgpt's config.py"
_BOTH = "read in mlc-llm's model_preset.py and litgpt's config.py"
_LONGROPE_NOTE = (
    "The long factors, which apply if the context exceeds 4096: in transformers the longest position "
    "decides, in llama.cpp the requested context size."
)
_MLA_NOTE = (
    "MLA: one 64-wide rope key is shared by all heads. mscale == mscale_all_dim, so the model leaves "
    "cos and sin unscaled and scales its softmax instead. "
)

_MROPE_NOTE = "A text token's positions are equal; an image's are its frame, row and column."


def _config(repository: str, read: str) -> str:
    """Return the source of a model whose numbers are those of its config.json on huggingface.co."""
    return f"huggingface.co/{repository} config.json, {read}"


def _model(
    name: str, sizes: tuple[int, int, int, int], params: RopeParams, source: str, **other: Any
) -> PublishedRope:
    """Return a model. sizes: heads, heads of the key, head size, context."""
    return PublishedRope(name, source, *sizes, params, **other)


_DEEPSEEK = RopeParams(
    64, "normal", n_ctx_orig=4096, freq_scale=1 / 40, ext_factor=1.0, attn_factor=_yarn_attn_factor(1.0, 40)
)
MODELS: tuple[PublishedRope, ...] = (
    _model(
        "llama-2-7b",
        (32, 32, 128, 4096),
        RopeParams(128, "neox"),
        _config("meta-llama/Llama-2-7b-hf", _LITGPT),
    ),
    _model(
        "llama-3.1-8b",
        (32, 8, 128, 131072),
        RopeParams(128, "neox", freq_base=500000.0),
        _config("meta-llama/Llama-3.1-8B", _BOTH),
        freq_factors=llama3_freq_factors(128, 500000.0, 8.0, 1.0, 4.0, 8192),
        note="llama.cpp's converter writes the factors as rope_freqs.weight.",
    ),
    _model(
        "llama-3.2-1b",
        (32, 8, 64, 131072),
        RopeParams(64, "neox", freq_base=500000.0),
        _config("meta-llama/Llama-3.2-1B", _BOTH),
        freq_factors=llama3_freq_factors(64, 500000.0, 32.0, 1.0, 4.0, 8192),
    ),
    _model(
        "codellama-7b",
        (32, 32, 128, 16384),
        RopeParams(128, "neox", freq_base=1e6),
        _config("codellama/CodeLlama-7b-hf", _BOTH),
    ),
    _model(
        "mistral-7b-v0.3",
        (32, 8, 128, 32768),
        RopeParams(128, "neox", freq_base=1e6),
        _config("mistralai/Mistral-7B-v0.3", _BOTH),
    ),
    _model(
        "qwen2.5-7b",
        (28, 4, 128, 131072),
        RopeParams(128, "neox", freq_base=1e6),
        _config("Qwen/Qwen2.5-7B", _LITGPT),
    ),
    _model(
        "qwen2.5-7b-instruct-yarn4",
        (28, 4, 128, 131072),
        RopeParams(
            128,
            "neox",
            n_ctx_orig=32768,
            freq_base=1e6,
            freq_scale=1 / 4,
            ext_factor=1.0,
            attn_factor=_yarn_attn_factor(1.0 + 0.1 * math.log(4), 4),
        ),
        "huggingface.co/Qwen/Qwen2.5-7B-Instruct README, Processing Long Texts, read in "
        f"huggingface.co/Qwen/Qwen2.5-32B-Instruct/discussions/5; heads and theta {_LITGPT}",
        note="YaRN is off in the config as published (context 32768); the README describes how to add it.",
    ),
    _model(
        "qwen3-8b",
        (32, 8, 128, 40960),
        RopeParams(128, "neox", freq_base=1e6),
        _config("Qwen/Qwen3-8B", _LITGPT),
    ),
    _model(
        "phi-2",
        (32, 32, 80, 2048),
        RopeParams(32, "neox"),
        _config("microsoft/phi-2", _BOTH),
        note="partial_rotary_factor 0.4.",
    ),
    _model(
        "phi-3-mini-128k",
        (32, 32, 96, 131072),
        RopeParams(96, "neox", n_ctx_orig=4096, attn_factor=_longrope_attn_factor(131072, 4096)),
        f"huggingface.co/microsoft/Phi-3-mini-128k-instruct config.json, {_LITGPT}; long_factor "
        "read in Microsoft's BABILong evaluation script (LONGROPE_PARAMS); its ends and the GGUF's keys "
        "also in github.com/danbev/learning-ai notes/position-embeddings/rope.md",
        freq_factors=_PHI3_MINI_128K_LONG_FACTORS,
        note=_LONGROPE_NOTE + " The GGUF's rope.scaling.attn_factor is 1.190238.",
    ),
    _model(
        "phi-4-mini",
        (24, 8, 128, 131072),
        RopeParams(96, "neox", n_ctx_orig=4096, attn_factor=_longrope_attn_factor(131072, 4096)),
        f"huggingface.co/microsoft/Phi-4-mini-instruct config.json, {_BOTH} (long_factor: mlc-llm)",
        freq_factors=_PHI4_MINI_LONG_FACTORS,
        note="partial_rotary_factor 0.75. " + _LONGROPE_NOTE,
    ),
    _model("gemma-2-9b", (16, 8, 256, 8192), RopeParams(256, "neox"), _config("google/gemma-2-9b", _BOTH)),
    _model(
        "gemma-3-4b-global",
        (8, 4, 256, 131072),
        RopeParams(256, "neox", freq_base=1e6, freq_scale=1 / 8),
        _config("google/gemma-3-4b-it", _LITGPT),
        note="Every sixth layer (full attention): linear scaling, factor 8.",
    ),
    _model(
        "gemma-3-4b-local",
        (8, 4, 256, 131072),
        RopeParams(256, "neox"),
        _config("google/gemma-3-4b-it", _LITGPT),
        note="The other layers (sliding window): rope_local_base_freq, without scaling.",
    ),
    _model(
        "olmo-2-7b",
        (32, 32, 128, 4096),
        RopeParams(128, "neox", freq_base=500000.0),
        _config("allenai/OLMo-2-1124-7B", _BOTH),
    ),
    _model(
        "falcon-7b",
        (71, 1, 64, 2048),
        RopeParams(64, "neox"),
        _config("tiiuae/falcon-7b", _LITGPT),
        note="multi_query: one key head.",
    ),
    _model(
        "gpt-neox-20b",
        (64, 64, 96, 2048),
        RopeParams(24, "neox"),
        "github.com/EleutherAI/gpt-neox configs/20B.yml, read there; "
        "theta is transformers' GPTNeoXConfig default",
        note="rotary_pct 0.25.",
    ),
    _model(
        "stablelm-3b-4e1t",
        (32, 32, 80, 4096),
        RopeParams(20, "neox"),
        _config("stabilityai/stablelm-3b-4e1t", _BOTH),
        note="partial_rotary_factor 0.25: ten pairs, not a multiple of any vector width.",
    ),
    _model(
        "gpt-j-6b",
        (16, 16, 256, 2048),
        RopeParams(64, "normal"),
        f"huggingface.co/EleutherAI/gpt-j-6b config.json, {_MLC}; theta is fixed in transformers' "
        "modeling_gptj",
        note="rotary_dim 64.",
    ),
    _model(
        "glm-4-9b-chat",
        (32, 2, 128, 131072),
        RopeParams(64, "normal", freq_base=5e6),
        "huggingface.co/THUDM/glm-4-9b-chat config.json, read as a training log prints it "
        "(kv_channels 128, multi_query_group_num 2, rope_ratio 500, seq_length 131072)",
        note="theta = 10000 * rope_ratio. The rotary width of half a head is the model code's: "
        "transformers' GlmConfig has partial_rotary_factor 0.5.",
    ),
    _model(
        "command-r-v01",
        (64, 64, 128, 131072),
        RopeParams(128, "normal", freq_base=8e6),
        "huggingface.co/CohereForAI/c4ai-command-r-v01 config.json, read as llama.cpp prints "
        "its GGUF (command-r.rope.freq_base, attention.head_count, context_length)",
        note="context is model_max_length, as in the GGUF; max_position_embeddings is 8192.",
    ),
    _model(
        "deepseek-v2-lite",
        (16, 1, 64, 163840),
        _DEEPSEEK,
        _config("deepseek-ai/DeepSeek-V2-Lite", _MLC),
        note=_MLA_NOTE + "mscale 0.707.",
    ),
    _model(
        "deepseek-v3",
        (128, 1, 64, 163840),
        _DEEPSEEK,
        "huggingface.co/deepseek-ai/DeepSeek-V3 config.json, read as quoted in public notes; "
        "heads also in transformers' DeepseekV3Config, theta and YaRN in "
        "github.com/deepseek-ai/DeepSeek-V3 inference/model.py",
        note=_MLA_NOTE + "mscale 1.0. transformers reads interleaved pairs and writes halves, in Q and K "
        "alike; the dot products are the same.",
    ),
    _model(
        "qwen2-vl-7b",
        (28, 4, 128, 32768),
        RopeParams(128, "mrope", freq_base=1e6, sections=(16, 24, 24, 0)),
        "huggingface.co/Qwen/Qwen2-VL-7B-Instruct: theta, sections and context are the defaults of "
        "transformers' Qwen2VLTextConfig and Qwen2VLRotaryEmbedding, made for that checkpoint; heads follow "
        "from the widths of q_proj and k_proj, read as the model's modules are printed",
        note=_MROPE_NOTE,
    ),
    _model(
        "qwen2.5-vl-7b",
        (28, 4, 128, 32768),
        RopeParams(128, "mrope", freq_base=1e6, sections=(16, 24, 24, 0)),
        "huggingface.co/Qwen/Qwen2.5-VL-7B-Instruct, read as for Qwen2-VL; context is transformers' default",
        note=_MROPE_NOTE,
    ),
    _model(
        "qwen3-vl-4b",
        (32, 8, 128, 262144),
        RopeParams(128, "imrope", freq_base=5e6, sections=(24, 20, 20, 0)),
        "huggingface.co/Qwen/Qwen3-VL-4B-Instruct config.json, read as a training script quotes it",
        note="The sections leave pairs 61 and 62 to the fourth position, which transformers takes from "
        "time; llama.cpp gives text 0 there.",
    ),
    _model(
        "qwen2-vl-vision",
        (16, 16, 80, 1012),
        RopeParams(40, "vision", sections=(20, 20, 0, 0)),
        "huggingface.co/Qwen/Qwen2-VL-7B-Instruct vision_config, as transformers' Qwen2VLVisionConfig "
        "defaults have it; theta is its default for axial rope; context from its image processor's limits",
        note="Positions are a patch's row and column. context is the longest side of an image of 5120 "
        "patches with the aspect ratio 200:1.",
    ),
)
