"""A GGUF file's rope, as llama.cpp reads it.

Sources: the keys are ``gguf.Keys``. llama.cpp's loaders and its context (ggml 0.25 of 2026) give the meaning
and the default of each key, the mode of each architecture, and the rules of the factors at call time.
"""

from __future__ import annotations

import math
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.errors import bad_type, bad_value
from npu_rope.gguf_header import GgufHeader
from npu_rope.hf_config import MAX_HEAD_SIZE
from npu_rope.rope_attributes import FileRope, RopeAttributes, RopeMode, wrong_factors

OP = "rope"

# ---- modes by architecture ---------------------------------------------------------------------------
#
# A file does not record its mode. The mode may differ from that of the same model in transformers. For
# Llama, the converter permutes the rows of queries and keys: pairs of halves become pairs of neighbours.

NORMAL_ARCHITECTURES = frozenset(
    """
    llama llama4 deci baichuan internlm2 minicpm xverse command-r cohere2 cohere2moe olmo
    arctic deepseek deepseek2 deepseek2-ocr deepseek32 deepseek4 plm chatglm granite granitemoe
    granitehybrid chameleon bailingmoe neo-bert smollm3 arcee ernie4_5 ernie4_5-moe mistral3 mistral4
    llama-embed maincoder glm-dsa eagle3 nanbeige llada
    """.split()  # noqa: SIM905
)
NEOX_ARCHITECTURES = frozenset(
    """
    falcon falcon-h1 grok dbrx jina-bert-v3 modern-bert nomic-bert nomic-bert-moe eurobert
    stablelm bitnet qwen qwen2 dream qwen2moe qwen3 qwen3moe llada-moe rnd1 olmo2 olmoe phi2 phi3
    phimoe plamo plamo2 plamo3 gemma gemma2 gemma3 gemma3n gemma4 gemma-embedding starcoder2 openelm
    gptneox codeshell orion nemotron exaone exaone4 exaone-moe minicpm3 bailingmoe2 dots1 hunyuan-moe
    jais2 gpt-oss hunyuan-dense lfm2 lfm2moe smallthinker seed_oss grovemoe apertus minimax-m2 cogvlm
    pangu-embedded afmoe qwen3next mimo2 step35
    """.split()  # noqa: SIM905
)
MROPE_ARCHITECTURES = frozenset({"qwen2vl", "paddleocr"})
IMROPE_ARCHITECTURES = frozenset({"qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "qwen3tts"})
# The mode is mrope if the file has sections, else this one.
MODE_WITHOUT_SECTIONS = {"glm4": RopeMode.NORMAL, "glm4moe": RopeMode.NEOX, "hunyuan_vl": RopeMode.NEOX}
# Architectures without rope. llama.cpp has a mode for bert and starcoder but does not rotate their heads.
ARCHITECTURES_WITHOUT_ROPE = frozenset(
    """
    bert starcoder clip gpt2 gptj mpt refact bloom mamba mamba2 jamba jina-bert-v2 t5 t5encoder jais rwkv6
    rwkv6qwen2 rwkv7 arwkv7 wavtokenizer-dec nemotron_h nemotron_h_moe kimi-linear
    """.split()  # noqa: SIM905
)

# The number of layers of a period. The last layer of each period attends to all tokens; for
# FIRST_OF_PERIOD_HAS_FULL_ATTENTION, the first one does. The other layers attend to a sliding window, which
# holds the latest tokens only.
ATTENTION_PERIODS = {"gemma3": 6, "gemma-embedding": 6, "gemma3n": 5, "gemma4": 6, "modern-bert": 3}
ATTENTION_PERIODS |= dict.fromkeys(("gemma2", "gpt-oss"), 2)
ATTENTION_PERIODS |= dict.fromkeys(
    ("cohere2", "cohere2moe", "llama4", "olmo2", "exaone4", "exaone-moe", "smallthinker", "afmoe"), 4
)
FIRST_OF_PERIOD_HAS_FULL_ATTENTION = frozenset({"cohere2moe", "modern-bert", "smallthinker"})
# These have sliding windows even if the file lacks attention.sliding_window.
ALWAYS_HAS_SLIDING_WINDOWS = frozenset({"cohere2", "cohere2moe", "exaone-moe"})

# llama.cpp's graphs (src/models) have layers that do not rotate. In these architectures, only layers with a
# sliding window rotate:
ONLY_SLIDING_LAYERS_ROTATE = ALWAYS_HAS_SLIDING_WINDOWS | {"exaone4"}
# A layer does not rotate if its number modulo four is this:
UNROTATED_LAYER_MODULO_4 = {"smallthinker": 0, "llama4": 3, "smollm3": 3, "afmoe": 3}
# Only every n-th layer has heads (n: full_attention_interval); the others are recurrent:
HAS_RECURRENT_LAYERS = frozenset({"qwen3next", "qwen35", "qwen35moe"})
# No layer rotates if this key is false:
ROPE_ENABLED_KEY = "rope.scaling.finetuned"
HAS_ROPE_ENABLED_KEY = frozenset({"granite", "granitemoe", "granitehybrid"})
MAX_LAYERS = 1 << 12  # a file with more layers is damaged; no model has so many

# theta of the layers with a sliding window if the file has none for them; these layers are not scaled.
SLIDING_THETA = dict.fromkeys(("gemma3", "gemma3n", "gemma-embedding", "gemma4", "modern-bert"), 10000.0)
# The layers with a sliding window are not scaled, although they have the theta of the other layers:
SLIDING_LAYERS_NEVER_SCALED = frozenset({"olmo2"})
# The layers with a sliding window are scaled, even if they have their own theta:
SLIDING_LAYERS_ALWAYS_SCALED = frozenset({"cohere2moe", "gpt-oss"})
# theta is multiplied by a power of rope.scaling.alpha:
SCALES_THETA_BY_ALPHA = frozenset({"hunyuan-dense", "hunyuan_vl"})
# The converter writes a tenth of yarn_log_multiplier:
HAS_TENTH_OF_LOG_MULTIPLIER = frozenset({"deepseek2", "deepseek2-ocr", "deepseek32", "glm-dsa", "mistral4"})

# The keys that are read from a file. There the architecture's name precedes each of ARCHITECTURE_KEYS.
GENERAL_KEYS = ("general.architecture", "general.name")
ARCHITECTURE_KEYS = """
    block_count context_length embedding_length full_attention_interval leading_dense_block_count
    nextn_predict_layers attention.head_count attention.head_count_kv attention.key_length
    attention.key_length_swa attention.recurrent_layers attention.sliding_window
    attention.sliding_window_pattern rope.dimension_count rope.dimension_count_swa rope.dimension_sections
    rope.freq_base rope.freq_base_swa rope.scale_linear rope.scaling.alpha rope.scaling.attn_factor
    rope.scaling.factor rope.scaling.finetuned rope.scaling.original_context_length rope.scaling.type
    rope.scaling.yarn_attn_factor rope.scaling.yarn_beta_fast rope.scaling.yarn_beta_slow
    rope.scaling.yarn_ext_factor rope.scaling.yarn_log_multiplier
""".split()  # noqa: SIM905
FACTORS_TENSOR = "rope_freqs.weight"
LONG_FACTORS_TENSOR, SHORT_FACTORS_TENSOR = "rope_factors_long.weight", "rope_factors_short.weight"


def from_gguf(path: str | PathLike[str], layer: int | None = None, n_ctx: int | None = None) -> FileRope:
    """Implement :meth:`npu_rope.RopeParams.from_gguf`, which documents the arguments."""
    for name, value, least in (("layer", layer, 0), ("n_ctx", n_ctx, 1)):
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise bad_value(OP, name, f"be None or an integer from {least} on", repr(value))
    return GgufFile(path).rope(layer, n_ctx)


class GgufFile:
    """The rope parameters of a GGUF file."""

    def __init__(self, path: str | PathLike[str]) -> None:
        if not isinstance(path, (str, PathLike)):
            raise bad_type(OP, "path", "be a file's name", type(path).__name__)
        self.path = Path(fspath(path))
        self.values, self.tensors = _read(self.path)
        self.architecture = str(self._required_value("general.architecture", str))
        if not self.architecture.isprintable():
            got = repr(self.architecture)
            raise bad_value(OP, "general.architecture", f"be a name in {self.path}", got)

    # ---- values

    def _required_value(self, key: str, kind: type) -> Any:
        value = self.values[key]
        if not isinstance(value, kind):
            got = "none" if value is None else repr(value)
            raise bad_value(OP, key, f"be a {kind.__name__} in {self.path}", got)
        return value

    def value(self, key: str) -> Any:
        """Return the value of one of ARCHITECTURE_KEYS; None if the file does not have it."""
        return self.values[f"{self.architecture}.{key}"]

    def number(self, key: str, default: float) -> float:
        """Return a finite number."""
        value = self.value(key)
        if value is None:
            return default
        if isinstance(value, (bool, str, list)) or not math.isfinite(value):
            key_in_file = f"{self.architecture}.{key}"
            raise bad_value(OP, key_in_file, f"be a finite number in {self.path}", repr(value))
        return float(value)

    def count(self, key: str, layer: int | None = None) -> int | None:
        """Return a positive integer, or None if it is missing.

        From a list, return the layer's entry, or the largest one if the layer is None.
        """
        value = self.value(key)
        if isinstance(value, list) and value:
            value = max(value) if layer is None else self._layer_entry(key, layer)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            key_in_file = f"{self.architecture}.{key}"
            raise bad_value(OP, key_in_file, f"be a positive integer in {self.path}", repr(value))
        return value

    # ---- mode and sections

    def mode(self) -> RopeMode:
        """Return the mode, which selects the pairs.

        Raises:
            ValueError: the architecture does not rotate, or its pairs are not known.
        """
        name = self.architecture
        if name in MODE_WITHOUT_SECTIONS:
            return RopeMode.MROPE if any(self.sections()) else MODE_WITHOUT_SECTIONS[name]
        for names, mode in (
            (NORMAL_ARCHITECTURES, RopeMode.NORMAL),
            (NEOX_ARCHITECTURES, RopeMode.NEOX),
            (MROPE_ARCHITECTURES, RopeMode.MROPE),
            (IMROPE_ARCHITECTURES, RopeMode.IMROPE),
        ):
            if name in names:
                return mode
        if name in ARCHITECTURES_WITHOUT_ROPE:
            raise bad_value(OP, "general.architecture", "be one with rope", repr(name))
        raise bad_value(
            OP,
            "general.architecture",
            "be one whose pairs are known",
            repr(name),
            remedy="Make RopeParams yourself: normal where weights pair neighbours,"
            " neox where they pair halves.",
        )

    def sections(self) -> tuple[int, int, int, int]:
        """Return the number of pairs that rotate by each axis."""
        value = self.value("rope.dimension_sections")
        if value is None:
            return (0, 0, 0, 0)
        if not (isinstance(value, list) and len(value) <= 4 and all(isinstance(n, int) for n in value)):
            raise bad_value(OP, "rope.dimension_sections", "be up to four integers", repr(value))
        time, height, width, extra = [*value, 0, 0, 0, 0][:4]
        return (time, height, width, extra)

    def _layer_entry(self, key: str, layer: int) -> Any:
        """Return the layer's entry of a list."""
        values = self.value(key)
        if layer >= len(values):
            key_in_file = f"{self.architecture}.{key}"
            raise bad_value(OP, key_in_file, f"have a value for layer {layer}", f"{len(values)} of them")
        return values[layer]

    # ---- layers

    @property
    def layers(self) -> int | None:
        """The number of layers; None if the file does not have it."""
        layers = self.count("block_count")
        if layers is not None and layers > MAX_LAYERS:
            raise bad_value(OP, "block_count", f"be at most {MAX_LAYERS} in {self.path}", layers)
        return layers

    def _main_layers(self) -> int | None:
        """Return the number of layers, except those that predict further tokens; None if unknown."""
        return None if self.layers is None else self.layers - int(self.number("nextn_predict_layers", 0))

    def _has_sliding_windows(self) -> bool:
        name, window_tokens = self.architecture, self.value("attention.sliding_window")
        if name == "exaone4":
            return self._main_layers() == 64  # the model of 32 billion parameters
        if name in ALWAYS_HAS_SLIDING_WINDOWS or (name == "llama4" and window_tokens is None):
            return True
        return window_tokens not in (None, 0)

    def attends_to_window(self, layer: int | None) -> bool:
        """Return whether the layer attends to a sliding window of the tokens only; False for None."""
        if layer is None or not self._has_sliding_windows():
            return False
        pattern = self.value("attention.sliding_window_pattern")
        if isinstance(pattern, list):
            return bool(self._layer_entry("attention.sliding_window_pattern", layer))
        period = self.count("attention.sliding_window_pattern") or ATTENTION_PERIODS.get(self.architecture)
        if period is None:
            return False
        if self.architecture in FIRST_OF_PERIOD_HAS_FULL_ATTENTION:
            return layer % period != 0
        return layer % period < period - 1

    def rotates(self, layer: int) -> bool:
        """Return whether the layer has heads and llama.cpp rotates them."""
        name, layers = self.architecture, self.layers
        if name in HAS_ROPE_ENABLED_KEY and self.value(ROPE_ENABLED_KEY) is False:
            return False
        if name == "baichuan" and layers not in (
            None,
            32,
        ):  # the model of 13 billion has ALiBi
            return False
        if not self._has_heads(layer):
            return False
        if name in ONLY_SLIDING_LAYERS_ROTATE and self._has_sliding_windows():
            leading = self.number("leading_dense_block_count", 0) if name == "cohere2moe" else 0
            return layer < leading or self.attends_to_window(layer)
        if name == "llama4" and not self._has_sliding_windows():
            return layers is None or (layer + 1) % layers != 0
        if name == "smallthinker" and (layers == 4 or not self._has_sliding_windows()):
            return True
        # For all other architectures get() returns None, so every layer rotates.
        return layer % 4 != UNROTATED_LAYER_MODULO_4.get(name)

    def _has_heads(self, layer: int) -> bool:
        """Return whether the layer has heads. Other layers are recurrent, convolve, or do nothing."""
        for key in ("attention.head_count", "attention.head_count_kv"):
            heads = self.value(key)
            if isinstance(heads, list) and heads and self._layer_entry(key, layer) == 0:
                return False
        if self.architecture not in HAS_RECURRENT_LAYERS:
            return True
        if isinstance(self.value("attention.recurrent_layers"), list):
            return not self._layer_entry("attention.recurrent_layers", layer)
        main_layers, interval = self._main_layers(), self.count("full_attention_interval") or 4
        return (main_layers is not None and layer >= main_layers) or (layer + 1) % interval == 0

    def _checked_layer(self, layer: int | None) -> int | None:
        """Return the layer if it rotates. For None, return a layer that rotates, preferably one without a
        sliding window; or None if all layers rotate."""
        layers = range(self.layers or 0)
        if layer is not None:
            if layers and layer not in layers:
                raise bad_value(OP, "layer", f"be in [0, {layers[-1]}]", layer)
            if not self.rotates(layer):
                raise bad_value(OP, "layer", "be one whose heads rotate", layer)
            return layer
        rotating = [i for i in layers if self.rotates(i)]
        if len(rotating) == len(layers):
            return None
        if not rotating:
            raise bad_value(OP, f"{self.path}", "have a layer whose heads rotate", "none")
        return min(rotating, key=self.attends_to_window)  # False sorts first

    # ---- parameters

    def width(self, has_sliding_window: bool, layer: int | None) -> int:
        """Return n_dims, the number of dimensions of a head that rotate."""
        suffix = "_swa" if has_sliding_window else ""
        for key in (f"rope.dimension_count{suffix}", f"attention.key_length{suffix}", "rope.dimension_count"):
            if (found := self.count(key, layer)) is not None:
                return found
        if (found := self.count("attention.key_length", layer)) is not None:
            return found
        embedding, heads = self.count("embedding_length"), self.count("attention.head_count", layer)
        if embedding is None or heads is None:
            raise bad_value(
                OP,
                f"{self.path}",
                "have rope.dimension_count, or embedding_length and attention.head_count,",
                "neither",
            )
        return embedding // heads

    @property
    def trained_context(self) -> int:
        """The context length before scaling; 0 if the file does not have it."""
        return self.count("rope.scaling.original_context_length") or self.count("context_length") or 0

    def rope(self, layer: int | None, n_ctx: int | None) -> FileRope:
        """Return the parameters of a layer for a session of ``n_ctx`` tokens."""
        mode, layer = self.mode(), self._checked_layer(layer)
        has_sliding_window = self.attends_to_window(layer)
        width = self.width(has_sliding_window, layer)
        if width > MAX_HEAD_SIZE:
            raise bad_value(OP, f"{self.path}", f"have heads of at most {MAX_HEAD_SIZE} lanes", width)
        shape: dict[str, Any] = {"n_dims": width, "mode": mode, "n_ctx_orig": self.trained_context}
        if mode.has_sections:
            shape["sections"] = self.sections()
        factors = self._factors(width // 2, n_ctx)
        theta = self._theta(has_sliding_window)
        always_scaled = self.architecture in SLIDING_LAYERS_ALWAYS_SCALED
        if has_sliding_window and self._has_own_theta() and not always_scaled:
            return FileRope(RopeAttributes(**shape, freq_base=theta))
        base = theta * self._alpha_factor(width)
        if has_sliding_window and self.architecture in SLIDING_LAYERS_NEVER_SCALED:
            return FileRope(RopeAttributes(**shape, freq_base=base))
        return FileRope(RopeAttributes(**shape, freq_base=base, **self._scaling()), factors)

    def theta(self, layer: int | None) -> float:
        """Return the layer's theta from the file. The file does not record whether a converter scaled it."""
        return self._theta(self.attends_to_window(self._checked_layer(layer)))

    def _has_own_theta(self) -> bool:
        """Return whether layers with a sliding window have their own theta."""
        return self.value("rope.freq_base_swa") is not None or self.architecture in SLIDING_THETA

    def _theta(self, has_sliding_window: bool) -> float:
        if has_sliding_window and self._has_own_theta():
            return self.number("rope.freq_base_swa", SLIDING_THETA.get(self.architecture, 10000.0))
        return self.number("rope.freq_base", 10000.0)

    def _alpha_factor(self, width: int) -> float:
        """Return the factor by which alpha multiplies theta."""
        alpha = self.number("rope.scaling.alpha", 0.0)
        if alpha <= 0 or self.architecture not in SCALES_THETA_BY_ALPHA or width <= 2:
            return 1.0
        with np.errstate(over="ignore"):  # RopeParams rejects inf
            return float(np.float64(alpha) ** (width / (width - 2)))

    def _scaling(self) -> dict[str, Any]:
        """Return ggml's scaling parameters, as llama.cpp computes them from the file's values."""
        kind = self.value("rope.scaling.type")
        if kind not in (None, "none", "linear", "yarn", "longrope"):
            raise bad_value(OP, "rope.scaling.type", "be none, linear, yarn or longrope", repr(kind))
        factor = self.number("rope.scaling.factor", self.number("rope.scale_linear", 0.0))
        if factor < 0:
            raise bad_value(OP, "rope.scaling.factor", "not be negative", f"{factor:g}")
        freq_scale = 1.0 if factor == 0 or kind == "none" else 1 / factor
        ext_factor = self.number("rope.scaling.yarn_ext_factor", -1.0)
        if ext_factor < 0:
            ext_factor = 1.0 if kind == "yarn" else 0.0
        attn_factor = self.number("rope.scaling.yarn_attn_factor", 1.0)
        if ext_factor != 0:  # YaRN ignores yarn_attn_factor
            attn_factor = self._yarn_attention(1 / freq_scale)
        return {
            "freq_scale": freq_scale,
            "ext_factor": ext_factor,
            "attn_factor": attn_factor * self.number("rope.scaling.attn_factor", 1.0),
            "beta_fast": self.number("rope.scaling.yarn_beta_fast", 32.0),
            "beta_slow": self.number("rope.scaling.yarn_beta_slow", 1.0),
        }

    def _yarn_attention(self, factor: float) -> float:
        """Return the attention factor of YaRN, divided by the one that ggml applies in addition."""

        def mscale(multiplier: float) -> float:
            return 1.0 if factor <= 1 else 0.1 * multiplier * math.log(factor) + 1.0

        log_multiplier = self.number("rope.scaling.yarn_log_multiplier", 0.0)
        if self.architecture in HAS_TENTH_OF_LOG_MULTIPLIER:
            log_multiplier = float(np.float32(log_multiplier) / np.float32(0.1))
        attn_factor = mscale(1.0)
        if log_multiplier != 0:
            numerator = log_multiplier if self.architecture == "deepseek2" else 1.0
            attn_factor = mscale(numerator) / mscale(log_multiplier)
        return attn_factor / (1 + 0.1 * math.log(factor))

    def _factors(self, pairs: int, n_ctx: int | None) -> npt.NDArray[np.float32] | None:
        """Return rope_freqs, or the long or the short factors, depending on the length of the session."""
        name = FACTORS_TENSOR
        has_long_or_short = LONG_FACTORS_TENSOR in self.tensors or SHORT_FACTORS_TENSOR in self.tensors
        if FACTORS_TENSOR not in self.tensors and has_long_or_short:
            session = n_ctx or self.count("context_length") or 0
            name = LONG_FACTORS_TENSOR if session > self.trained_context else SHORT_FACTORS_TENSOR
            if name not in self.tensors:
                raise bad_value(OP, f"{self.path}", f"have {name} for a context of {session}", "none")
        factors = self.tensors.get(name)
        if factors is None:
            return None
        if factors.ndim != 1 or len(factors) < pairs:
            raise bad_value(OP, name, f"have a factor for each of {pairs} pairs", factors.shape)
        factors = factors[:pairs]
        if wrong_factors(factors).size:
            raise bad_value(OP, name, "be positive and finite numbers", "others")
        return factors


# ---- reading ---------------------------------------------------------------------------------------


def _read(path: Path) -> tuple[dict[str, Any], dict[str, npt.NDArray[np.float32]]]:
    """Return the values of GENERAL_KEYS and ARCHITECTURE_KEYS by their full names, and the factors."""
    try:
        if path.exists() and not path.is_file():
            raise OSError(0, "it is no file")
        with path.open("rb") as stream:
            header = GgufHeader(stream)
            architecture = header.value("general.architecture")
            keys = [*GENERAL_KEYS, *(f"{architecture}.{key}" for key in ARCHITECTURE_KEYS)]
            values = {key: header.value(key) for key in keys}
            names = (FACTORS_TENSOR, LONG_FACTORS_TENSOR, SHORT_FACTORS_TENSOR)
            tensors = {name: tensor for name in names if (tensor := header.floats(name)) is not None}
    except ImportError:
        text = "gguf must be installed to read a GGUF file but it is not.\nInstall it with: pip install gguf"
        raise ImportError(f"[{OP}] {text}") from None
    except OSError as error:
        raise bad_value(OP, "path", "be a readable GGUF file", f"{path} ({error.strerror})") from None
    except ValueError as error:
        raise bad_value(OP, "path", "be a GGUF file that can be read", f"{path} ({error})") from None
    return values, tensors
