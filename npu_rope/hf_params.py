"""The rope of a transformers configuration (an object, a dict, or a config.json).

The entries have the meaning of ``modeling_rope_utils`` in transformers 5.24. ggml's parameters express the
rope types default, linear, dynamic, and yarn with ``truncate``. Frequency factors express the others.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.errors import BrokenRule, bad_value
from npu_rope.hf_config import MAX_LAYER_TYPES, OP, Config, RopeEntry, config_of, is_count
from npu_rope.rope_attributes import FileRope, RopeAttributes, RopeMode, wrong_factors

# Models that pair neighbouring lanes; all others pair halves. tests/integrations/test_transformers.py
# compares the list with the functions of the installed transformers.
INTERLEAVED = frozenset(
    """
    axk1 axk2 bailing_hybrid blt codegen cohere cohere2 cohere2_moe deepseek_v2 deepseek_v3 deepseek_v32
    deepseek_v4 ernie4_5 ernie4_5_moe glm glm4 glm4_moe_lite glm_moe_dsa gptj helium llama4 llama4_text
    longcat_flash mistral4 mistral_large4 moonshine moonshine_streaming openai_privacy_filter youtu
    """.split()  # noqa: SIM905
)
# Models that pair neighbouring lanes and rotate them by several positions: no mode does both.
INTERLEAVED_SECTIONS = frozenset(
    model + part for model in ("ernie4_5_vl_moe", "glm4v", "glm_ocr", "hy_v4_vl") for part in ("", "_text")
)
# Models with consecutive sections. The code of these models, and of those in INTERLEAVED_SECTIONS and
# ALTERNATING_SECTIONS, uses sections even if the configuration has none.
CONSECUTIVE_SECTIONS = ("qwen2_vl", "qwen2_5_vl", "qwen2_5_omni", "paddleocr_vl")
# Models that rotate a head's last dimensions instead of the first.
ROTATES_LAST_DIMENSIONS = ("deepseek_v4",)
# Models whose sections alternate from pair to pair (imrope), with or without mrope_interleaved.
ALTERNATING_SECTIONS = ("qwen3_vl", "qwen3_5", "qwen3_omni_moe", "qwen4_exp", "cosmos3", "cohere_compass")

# Models that rotate tokens by their row and column in an image; rope's parameters cannot express that.
ROTATES_BY_ROW_AND_COLUMN = ("dinov3", "eomt_dinov3", "llama4_vision", "pixtral")
NO_ROTATION_FACTOR = np.float32(1e30)  # a frequency divided by this factor is practically 0


def from_hf(config: Any, layer_type: str | None = None, seq_len: int | None = None) -> FileRope:
    """Implement :meth:`npu_rope.RopeParams.from_hf`, which documents the arguments."""
    if seq_len is not None and (
        isinstance(seq_len, bool) or not isinstance(seq_len, (int, np.integer)) or seq_len <= 0
    ):
        raise bad_value(OP, "seq_len", "be a positive number of tokens", repr(seq_len))
    model_config = config_of(config, layer_type)
    with _arithmetic_errors_converted():
        rope = model_config.rope()
        head_size = model_config.head_size()
        return _CONVERTERS[rope.rope_type](rope, model_config, head_size, seq_len)


@contextlib.contextmanager
def _arithmetic_errors_converted() -> Iterator[None]:
    """Convert the arithmetic errors that a configuration's values cause to errors of the library."""
    try:
        yield
    except (TypeError, ValueError, ArithmeticError) as error:
        if isinstance(error, BrokenRule):
            raise
        raise bad_value(OP, "config", "have rope entries of valid types and sizes", error) from None


# ---- pairs and sections -----------------------------------------------------------------------------


def _pair_parameters(rope: RopeEntry, config: Config, head_size: int, width: int) -> dict[str, Any]:
    """Return n_dims, mode and n_offs, which select the pairs, and sections for several positions."""
    model = config.model_type
    if model.startswith(ROTATES_BY_ROW_AND_COLUMN):
        raise bad_value(
            OP,
            "model_type",
            "rotate by a token's position in a sequence",
            f"{model!r}, which rotates by row and column",
            remedy="Rotate its heads by the tables that the model makes: rotary_mul(x, cos, sin).",
        )
    sections = rope.entries.get("mrope_section")
    needs_sections = model.startswith((*ALTERNATING_SECTIONS, *CONSECUTIVE_SECTIONS))
    if not sections and (needs_sections or model in INTERLEAVED_SECTIONS):
        raise bad_value(OP, "rope_parameters", f"have mrope_section for model_type {model}", "none")
    if not sections:
        mode = RopeMode.NORMAL if _is_interleaved(config) else RopeMode.NEOX
        n_offs = head_size - width if model in ROTATES_LAST_DIMENSIONS else 0
        return {"n_dims": width, "mode": mode, "n_offs": n_offs}
    if model in INTERLEAVED_SECTIONS:
        raise bad_value(
            OP,
            "mrope_section",
            "belong to a model that pairs halves",
            repr(model),
            remedy="Rotate its heads by the tables that the model makes:"
            " rotary_mul(x, cos, sin, interleaved=True).",
        )
    if not isinstance(sections, (list, tuple)) or not 1 <= len(sections) <= 4:
        raise bad_value(OP, "mrope_section", "be up to four integers", repr(sections))
    if sum(sections) > width // 2:
        raise bad_value(OP, "mrope_section", f"add up to at most {width // 2} pairs", repr(sections))
    sections = [*sections, 0, 0, 0][:4]
    if not (rope.entries.get("mrope_interleaved") or model.startswith(ALTERNATING_SECTIONS)):
        return {"n_dims": width, "mode": RopeMode.MROPE, "sections": sections}
    # ggml repeats the sections until all pairs have one; transformers does not. Therefore all remaining
    # pairs go to the fourth section.
    sections[3] = width // 2 - sum(sections[:3])
    return {"n_dims": width, "mode": RopeMode.IMROPE, "sections": sections}


def _is_interleaved(config: Config) -> bool:
    value = config.get("rope_interleave", config.get("rope_interleaved"))
    return config.model_type in INTERLEAVED if value is None else bool(value)


def _rotated_width(rope: RopeEntry, head_size: int) -> int:
    if (width := rope.entries.get("rotary_dim")) is not None:
        if not is_count(width) or width > head_size:
            raise bad_value(OP, "rotary_dim", f"be an integer from 2 to head_dim {head_size}", repr(width))
        return int(width)
    share = rope.number("partial_rotary_factor")
    if share > 1:
        raise bad_value(OP, "partial_rotary_factor", "be at most 1", f"{share:g}")
    return int(head_size * share)


def _trained_context(rope: RopeEntry, config: Config) -> int:
    """Return the context length before scaling."""
    value = None if rope.nested else config.get("original_max_position_embeddings")
    value = rope.entries.get("original_max_position_embeddings") if value is None else value
    value = config.get("max_position_embeddings") if value is None else value
    if not is_count(value):
        raise bad_value(OP, "original_max_position_embeddings", "be a positive integer", repr(value))
    return int(value)


def _max_context(config: Config) -> int:
    value = config.get("max_position_embeddings")
    if not is_count(value):
        raise bad_value(OP, "max_position_embeddings", "be a positive integer", repr(value))
    return int(value)


def _scaling_factor(rope: RopeEntry, config: Config, trained_context: int) -> float:
    default = None if "factor" in rope.entries else _max_context(config) / trained_context
    return rope.number("factor", default)


def _default(rope: RopeEntry, config: Config, head_size: int, _: int | None) -> FileRope:
    pair_parameters = _pair_parameters(rope, config, head_size, _rotated_width(rope, head_size))
    return FileRope(RopeAttributes(**pair_parameters, freq_base=rope.number("rope_theta")))


def _linear(rope: RopeEntry, config: Config, head_size: int, _: int | None) -> FileRope:
    pair_parameters = _pair_parameters(rope, config, head_size, _rotated_width(rope, head_size))
    scale = 1 / rope.number("factor")
    return FileRope(RopeAttributes(**pair_parameters, freq_base=rope.number("rope_theta"), freq_scale=scale))


def _dynamic(rope: RopeEntry, config: Config, head_size: int, seq_len: int | None) -> FileRope:
    # Hunyuan's alpha scales theta instead of the sequence's length, and applies to the whole head.
    scales_by_alpha = bool(rope.entries.get("alpha")) and (
        not config.is_of_known_class() or config.model_type.startswith("hunyuan")
    )
    width = head_size if scales_by_alpha else _rotated_width(rope, head_size)
    if width <= 2:
        raise bad_value(OP, "rope_type dynamic", "rotate more than 2 dimensions", width)
    if scales_by_alpha:
        base = rope.number("rope_theta") * rope.number("alpha") ** (width / (width - 2))
        return FileRope(RopeAttributes(**_pair_parameters(rope, config, head_size, width), freq_base=base))
    factor, trained_context = rope.number("factor"), _max_context(config)
    length = max(seq_len or trained_context, trained_context)
    ratio = factor * length / trained_context - (factor - 1)
    base = rope.number("rope_theta") * ratio ** (width / (width - 2))
    return FileRope(RopeAttributes(**_pair_parameters(rope, config, head_size, width), freq_base=base))


def _unscaled_frequencies(width: int, theta: float) -> npt.NDArray[np.float64]:
    frequencies: npt.NDArray[np.float64] = theta ** (-2.0 * np.arange(width // 2) / width)
    return frequencies


def _rope_by_factors(
    pair_parameters: dict[str, Any], theta: float, frequencies: npt.NDArray[np.float64], attention: float
) -> FileRope:
    """Express any frequencies by a factor for each pair, which divides the pair's unscaled frequency."""
    width = pair_parameters["n_dims"]
    with np.errstate(all="ignore"):
        quotients = _unscaled_frequencies(width, theta) / frequencies
        factors = np.where(frequencies == 0, NO_ROTATION_FACTOR, quotients).astype(np.float32)
    wrong = wrong_factors(factors)
    if wrong.size:
        rule = "give each pair a frequency whose factor fits float32"
        got = f"{frequencies[wrong[0]]:g} radians per position for pair {wrong[0]}"
        raise bad_value(OP, "rope_parameters", rule, got)
    params = RopeAttributes(**pair_parameters, freq_base=theta, attn_factor=attention)
    return FileRope(params, factors)


def _yarn(rope: RopeEntry, config: Config, head_size: int, _: int | None) -> FileRope:
    width, theta = _rotated_width(rope, head_size), rope.number("rope_theta")
    trained_context = _trained_context(rope, config)
    if theta == 1:
        raise bad_value(OP, "rope_theta", "differ from 1 for rope_type yarn", "1")
    factor = _scaling_factor(rope, config, trained_context)
    fast, slow = rope.number("beta_fast", 32.0), rope.number("beta_slow", 1.0)
    attention = _yarn_attention(rope, factor)
    pair_parameters = _pair_parameters(rope, config, head_size, width)

    def pair_index(rotations: float) -> float:
        return width * math.log(trained_context / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair_index(fast), pair_index(slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    ggml_factor = 1 + 0.1 * math.log(factor)  # ggml multiplies attn_factor by it
    if rope.truncate and high >= low and ggml_factor > 0:
        params = RopeAttributes(
            **pair_parameters,
            freq_base=theta,
            freq_scale=1 / factor,
            beta_fast=fast,
            beta_slow=slow,
            n_ctx_orig=trained_context,
            ext_factor=1.0,
            attn_factor=attention / ggml_factor,
        )
        return FileRope(params)
    high = high + 0.001 if high == low else high
    ramp = np.clip((np.arange(width // 2) - low) / (high - low), 0, 1)
    unscaled = _unscaled_frequencies(width, theta)
    return _rope_by_factors(
        pair_parameters, theta, unscaled / factor * ramp + unscaled * (1 - ramp), attention
    )


def _yarn_attention(rope: RopeEntry, factor: float) -> float:
    def mscale(multiplier: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * multiplier * math.log(factor) + 1.0

    if "attention_factor" in rope.entries:
        return rope.number("attention_factor")
    if rope.entries.get("mscale") and rope.entries.get("mscale_all_dim"):
        return mscale(rope.number("mscale")) / mscale(rope.number("mscale_all_dim"))
    return mscale(1.0)


def _longrope(rope: RopeEntry, config: Config, head_size: int, seq_len: int | None) -> FileRope:
    width, theta = _rotated_width(rope, head_size), rope.number("rope_theta")
    trained_context = _trained_context(rope, config)
    factor = _scaling_factor(rope, config, trained_context)
    if "attention_factor" in rope.entries:
        attention = rope.number("attention_factor")
    else:
        attention = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(trained_context))
    name = "long_factor" if seq_len is not None and seq_len > trained_context else "short_factor"
    pair_parameters = _pair_parameters(rope, config, head_size, width)
    params = RopeAttributes(**pair_parameters, freq_base=theta, attn_factor=attention)
    return FileRope(params, rope.factors(name, width // 2))


def _llama3(rope: RopeEntry, config: Config, head_size: int, _: int | None) -> FileRope:
    width, theta = _rotated_width(rope, head_size), rope.number("rope_theta")
    trained_context = _trained_context(rope, config)
    factor, low, high = (rope.number(name) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    unscaled = _unscaled_frequencies(width, theta)
    turns = trained_context * unscaled / (2 * math.pi)  # of each pair, over the trained context
    smooth = np.where(turns < low, 0.0, 1.0) if low == high else (turns - low) / (high - low)
    medium = unscaled * ((1 - smooth) / factor + smooth)
    frequencies = np.where(turns < low, unscaled / factor, np.where(turns > high, unscaled, medium))
    return _rope_by_factors(_pair_parameters(rope, config, head_size, width), theta, frequencies, 1.0)


def _proportional(rope: RopeEntry, config: Config, head_size: int, _: int | None) -> FileRope:
    """Use the frequencies of the whole head, but rotate only the first pairs."""
    theta, factor = rope.number("rope_theta"), rope.number("factor", 1.0)
    rotated_pairs = int(rope.number("partial_rotary_factor") * head_size // 2)
    frequencies = _unscaled_frequencies(head_size, theta) / factor
    frequencies[rotated_pairs:] = 0
    return _rope_by_factors(_pair_parameters(rope, config, head_size, head_size), theta, frequencies, 1.0)


_CONVERTERS = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
    "proportional": _proportional,
}


@dataclass(frozen=True)
class ModelInfo:
    """A configuration's model type; rope type, frequency base and context lengths of one layer type."""

    model_type: str
    rope_type: str
    theta: float
    context: int | None  # max_position_embeddings, in tokens
    trained_context: int | None  # in tokens, before scaling; equal to context if nothing is scaled


def model_info(config: Any, layer_type: str | None = None) -> ModelInfo:
    """Return the ModelInfo of a configuration, for this type of layer."""
    model_config = config_of(config, layer_type)
    with _arithmetic_errors_converted():
        rope, context = model_config.rope(), model_config.get("max_position_embeddings")
        context = int(context) if is_count(context) else None
        is_scaled = rope.rope_type in ("yarn", "longrope", "llama3")
        trained = _trained_context(rope, model_config) if is_scaled else context
        theta = rope.number("rope_theta")
        return ModelInfo(model_config.model_type, rope.rope_type, theta, context, trained)


def layer_types(config: Any) -> list[str | None]:
    """Return the layer types that rotate differently; ``[None]`` if all rotate alike."""
    model_config = config_of(config, None)
    entries = model_config.get("rope_parameters", model_config.get("rope_scaling", {}))
    nested = model_config._nested(entries) if isinstance(entries, Mapping) else {}
    if len(nested) > MAX_LAYER_TYPES:
        raise bad_value(
            OP, "rope_parameters", f"be for at most {MAX_LAYER_TYPES} types of layers", len(nested)
        )
    return [name for name, value in nested.items() if value is not None] if nested else [None]
