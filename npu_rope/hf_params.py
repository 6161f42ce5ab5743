"""The rope of a transformers configuration (an object, a dict, or a config.json).

The numbers have the meaning of transformers' ``modeling_rope_utils`` (5.24). ggml's parameters express the
types default, linear, dynamic and, with ``truncate``, yarn; frequency factors express the others.
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
from npu_rope.hf_config import OP, Config, RopeEntry, config_of, is_count
from npu_rope.rope_attributes import FileRope, RopeAttributes, RopeMode

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
# Models with consecutive sections. The code of these, of INTERLEAVED_SECTIONS and of ALTERNATING uses
# sections even where the configuration has none.
SECTIONED = ("qwen2_vl", "qwen2_5_vl", "qwen2_5_omni", "paddleocr_vl")
# Models that rotate a head's last dimensions.
TAIL = ("deepseek_v4",)
# Models whose sections alternate from pair to pair (imrope), with or without mrope_interleaved.
ALTERNATING = ("qwen3_vl", "qwen3_5", "qwen3_omni_moe", "qwen4_exp", "cosmos3", "cohere_compass")

# Models that rotate tokens by their row and column in an image; rope's parameters cannot express that.
BY_ROW_AND_COLUMN = ("dinov3", "eomt_dinov3", "llama4_vision", "pixtral")
NO_ROTATION = np.float32(1e30)  # a frequency divided by this factor is practically 0


def from_hf(config: Any, layer_type: str | None = None, seq_len: int | None = None) -> FileRope:
    """Implement :meth:`npu_rope.RopeParams.from_hf`, which documents the arguments."""
    if seq_len is not None and (
        isinstance(seq_len, bool) or not isinstance(seq_len, (int, np.integer)) or seq_len <= 0
    ):
        raise bad_value(OP, "seq_len", "be a positive number of tokens", repr(seq_len))
    given = config_of(config, layer_type)
    with _arithmetic_errors_converted():
        rope = given.rope()
        head = given.head_size()
        return _BY_TYPE[rope.kind](rope, given, head, seq_len)


@contextlib.contextmanager
def _arithmetic_errors_converted() -> Iterator[None]:
    """Convert the arithmetic errors that a configuration's values cause to errors of the library."""
    try:
        yield
    except (TypeError, ArithmeticError) as error:
        if isinstance(error, BrokenRule):
            raise
        raise bad_value(OP, "config", "have rope entries of valid types and sizes", error) from None


# ---- pairs and sections -----------------------------------------------------------------------------


def _shape(rope: RopeEntry, config: Config, head: int, width: int) -> dict[str, Any]:
    """Return the parameters that select the pairs, and the sections of several positions."""
    model = config.model_type
    if model.startswith(BY_ROW_AND_COLUMN):
        raise bad_value(
            OP,
            "model_type",
            "rotate by a token's position in a sequence",
            f"{model}, which rotates by row and column",
            remedy="Rotate its heads by the tables that the model makes: rotary_mul(x, cos, sin).",
        )
    sections = rope.entries.get("mrope_section")
    if not sections and (model in INTERLEAVED_SECTIONS or model.startswith((*ALTERNATING, *SECTIONED))):
        raise bad_value(OP, "rope_parameters", f"have mrope_section for model_type {model}", "none")
    if not sections:
        mode = RopeMode.NORMAL if _is_interleaved(config) else RopeMode.NEOX
        return {"n_dims": width, "mode": mode, "n_offs": head - width if model in TAIL else 0}
    if model in INTERLEAVED_SECTIONS:
        raise bad_value(
            OP,
            "mrope_section",
            "belong to a model that pairs halves",
            model,
            remedy="Rotate its heads by the tables that the model makes:"
            " rotary_mul(x, cos, sin, interleaved=True).",
        )
    if not isinstance(sections, (list, tuple)) or not 1 <= len(sections) <= 4:
        raise bad_value(OP, "mrope_section", "be up to four numbers", repr(sections))
    if sum(sections) > width // 2:
        raise bad_value(OP, "mrope_section", f"add up to at most {width // 2} pairs", repr(sections))
    sections = [*sections, 0, 0, 0][:4]
    if not (rope.entries.get("mrope_interleaved") or model.startswith(ALTERNATING)):
        return {"n_dims": width, "mode": RopeMode.MROPE, "sections": sections}
    # ggml repeats the sections until all pairs have one, transformers does not. Therefore the fourth section
    # gets all remaining pairs.
    sections[3] = width // 2 - sum(sections[:3])
    return {"n_dims": width, "mode": RopeMode.IMROPE, "sections": sections}


def _is_interleaved(config: Config) -> bool:
    value = config.get("rope_interleave", config.get("rope_interleaved"))
    return config.model_type in INTERLEAVED if value is None else bool(value)


def _width(rope: RopeEntry, head: int) -> int:
    if (width := rope.entries.get("rotary_dim")) is not None:
        if not is_count(width) or width > head:
            raise bad_value(OP, "rotary_dim", f"be an integer from 2 to head_dim {head}", repr(width))
        return int(width)
    share = rope.number("partial_rotary_factor")
    if share > 1:
        raise bad_value(OP, "partial_rotary_factor", "be at most 1", f"{share:g}")
    return int(head * share)


def _original(rope: RopeEntry, config: Config) -> int:
    """Return the context length before scaling."""
    value = None if rope.nested else config.get("original_max_position_embeddings")
    value = rope.entries.get("original_max_position_embeddings") if value is None else value
    value = config.get("max_position_embeddings") if value is None else value
    if not is_count(value):
        raise bad_value(OP, "original_max_position_embeddings", "be a positive integer", repr(value))
    return int(value)


def _longest(config: Config) -> int:
    value = config.get("max_position_embeddings")
    if not is_count(value):
        raise bad_value(OP, "max_position_embeddings", "be a positive integer", repr(value))
    return int(value)


def _default(rope: RopeEntry, config: Config, head: int, _: int | None) -> FileRope:
    shape = _shape(rope, config, head, _width(rope, head))
    return FileRope(RopeAttributes(**shape, freq_base=rope.number("rope_theta")))


def _linear(rope: RopeEntry, config: Config, head: int, _: int | None) -> FileRope:
    shape = _shape(rope, config, head, _width(rope, head))
    scale = 1 / rope.number("factor")
    return FileRope(RopeAttributes(**shape, freq_base=rope.number("rope_theta"), freq_scale=scale))


def _dynamic(rope: RopeEntry, config: Config, head: int, seq_len: int | None) -> FileRope:
    # Hunyuan's alpha replaces the length, and applies to the whole head.
    fixed = bool(rope.entries.get("alpha")) and (
        not config.is_of_known_class() or config.model_type.startswith("hunyuan")
    )
    width = head if fixed else _width(rope, head)
    if width <= 2:
        raise bad_value(OP, "rope_type dynamic", "rotate more than 2 dimensions", width)
    if fixed:
        base = rope.number("rope_theta") * rope.number("alpha") ** (width / (width - 2))
        return FileRope(RopeAttributes(**_shape(rope, config, head, width), freq_base=base))
    factor, trained = rope.number("factor"), _longest(config)
    length = max(seq_len or trained, trained)
    stretched = factor * length / trained - (factor - 1)
    base = rope.number("rope_theta") * stretched ** (width / (width - 2))
    return FileRope(RopeAttributes(**_shape(rope, config, head, width), freq_base=base))


def _plain_frequencies(width: int, theta: float) -> npt.NDArray[np.float64]:
    frequencies: npt.NDArray[np.float64] = theta ** (-2.0 * np.arange(width // 2) / width)
    return frequencies


def _by_factors(
    shape: dict[str, Any], theta: float, frequencies: npt.NDArray[np.float64], attention: float
) -> FileRope:
    """Express any frequencies by a factor for each pair, which divides the pair's plain frequency."""
    width = shape["n_dims"]
    with np.errstate(divide="ignore"):
        factors = np.where(frequencies == 0, NO_ROTATION, _plain_frequencies(width, theta) / frequencies)
    params = RopeAttributes(**shape, freq_base=theta, attn_factor=attention)
    return FileRope(params, factors.astype(np.float32))


def _yarn(rope: RopeEntry, config: Config, head: int, _: int | None) -> FileRope:
    width, theta, trained = _width(rope, head), rope.number("rope_theta"), _original(rope, config)
    if theta == 1:
        raise bad_value(OP, "rope_theta", "differ from 1 for rope_type yarn", "1")
    factor = rope.number("factor", _longest(config) / trained if "factor" not in rope.entries else None)
    fast, slow = rope.number("beta_fast", 32.0), rope.number("beta_slow", 1.0)
    attention = _yarn_attention(rope, factor)
    shape = _shape(rope, config, head, width)

    def pair(rotations: float) -> float:
        return width * math.log(trained / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair(fast), pair(slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    yarn = 1 + 0.1 * math.log(factor)  # ggml multiplies attn_factor by this
    if rope.truncate and high >= low and yarn > 0:
        params = RopeAttributes(
            **shape,
            freq_base=theta,
            freq_scale=1 / factor,
            beta_fast=fast,
            beta_slow=slow,
            n_ctx_orig=trained,
            ext_factor=1.0,
            attn_factor=attention / yarn,
        )
        return FileRope(params)
    high = high + 0.001 if high == low else high
    ramp = np.clip((np.arange(width // 2) - low) / (high - low), 0, 1)
    plain = _plain_frequencies(width, theta)
    return _by_factors(shape, theta, plain / factor * ramp + plain * (1 - ramp), attention)


def _yarn_attention(rope: RopeEntry, factor: float) -> float:
    def mscale(by: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * by * math.log(factor) + 1.0

    if "attention_factor" in rope.entries:
        return rope.number("attention_factor")
    if rope.entries.get("mscale") and rope.entries.get("mscale_all_dim"):
        return mscale(rope.number("mscale")) / mscale(rope.number("mscale_all_dim"))
    return mscale(1.0)


def _longrope(rope: RopeEntry, config: Config, head: int, seq_len: int | None) -> FileRope:
    width, theta, trained = _width(rope, head), rope.number("rope_theta"), _original(rope, config)
    factor = rope.number("factor", _longest(config) / trained if "factor" not in rope.entries else None)
    if "attention_factor" in rope.entries:
        attention = rope.number("attention_factor")
    else:
        attention = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(trained))
    name = "long_factor" if seq_len is not None and seq_len > trained else "short_factor"
    shape = _shape(rope, config, head, width)
    params = RopeAttributes(**shape, freq_base=theta, attn_factor=attention)
    return FileRope(params, rope.factors(name, width // 2))


def _llama3(rope: RopeEntry, config: Config, head: int, _: int | None) -> FileRope:
    width, theta, trained = _width(rope, head), rope.number("rope_theta"), _original(rope, config)
    factor, low, high = (rope.number(n) for n in ("factor", "low_freq_factor", "high_freq_factor"))
    plain = _plain_frequencies(width, theta)
    turns = trained * plain / (2 * math.pi)  # over the context that the model was trained with
    smooth = np.where(turns < low, 0.0, 1.0) if low == high else (turns - low) / (high - low)
    medium = plain * ((1 - smooth) / factor + smooth)
    frequencies = np.where(turns < low, plain / factor, np.where(turns > high, plain, medium))
    return _by_factors(_shape(rope, config, head, width), theta, frequencies, 1.0)


def _proportional(rope: RopeEntry, config: Config, head: int, _: int | None) -> FileRope:
    """Use the frequencies of the whole head, but rotate only the first pairs."""
    theta, factor = rope.number("rope_theta"), rope.number("factor", 1.0)
    rotated_pairs = int(rope.number("partial_rotary_factor") * head // 2)
    frequencies = _plain_frequencies(head, theta) / factor
    frequencies[rotated_pairs:] = 0
    return _by_factors(_shape(rope, config, head, head), theta, frequencies, 1.0)


_BY_TYPE = {
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
    trained: int | None  # the context before scaling; equal to context if nothing is scaled


def model_info(config: Any, layer_type: str | None = None) -> ModelInfo:
    """Return the model information of a configuration, for this type of layer."""
    given = config_of(config, layer_type)
    with _arithmetic_errors_converted():
        rope, longest = given.rope(), given.get("max_position_embeddings")
        longest = int(longest) if is_count(longest) else None
        scaled = rope.kind in ("yarn", "longrope", "llama3")
        trained = _original(rope, given) if scaled else longest
        return ModelInfo(given.model_type, rope.kind, rope.number("rope_theta"), longest, trained)


def layer_types(config: Any) -> list[str | None]:
    """Return the layer types that rotate differently; ``[None]`` if all rotate alike."""
    given = config_of(config, None)
    entries = given.get("rope_parameters", given.get("rope_scaling", {}))
    nested = given._nested(entries) if isinstance(entries, Mapping) else {}
    return [name for name, value in nested.items() if value is not None] if nested else [None]
