"""The configuration of a transformers model, as :mod:`npu_rope.hf_params` reads it."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.errors import bad_type, bad_value
from npu_rope.rope_attributes import wrong_factors

OP = "rope"  # the prefix of errors, the same as RopeParams'
# The file may be damaged or hostile, so these are limited.
MAX_HEAD_SIZE = 65536  # dimensions
MAX_BYTES = 1 << 22  # of the file; the objects of its content need up to 100 times as many
MAX_COUNT = 1 << 16  # of layers and labels
MAX_LAYER_TYPES = 64  # with ropes of their own; known models have at most three
# The entries for which classes of transformers make lists of their length.
COUNTS = re.compile(r"layers?$|num_labels|num_blocks|depths?$|out_indices|_replace$|attention_types$")

# Models whose code reads rotary_dim. The other classes of transformers ignore it, though files may have it.
READS_ROTARY_DIM = ("codegen", "gptj", "minimax_m2")

# A model with one of these keys has rope.
ROPE_KEYS = ("rope_theta", "global_rope_theta", "rotary_emb_base", "rotary_pct", "rotary_dim")
ROPE_TYPES = ("default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional")
# The entries of a rope that are numbers or texts. A dict in their place is no type of layer.
ROPE_ENTRIES = frozenset(
    [
        "alpha",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "factor",
        "high_freq_factor",
        "long_factor",
        "low_freq_factor",
        "mscale",
        "mscale_all_dim",
        "original_max_position_embeddings",
        "partial_rotary_factor",
        "rope_theta",
        "rope_type",
        "short_factor",
        "type",
    ]
)
OLD_ROPE_TYPES = {"su": "longrope", "mrope": "default", "ntk": "dynamic"}  # names in older files
# The keys of the language model's part in a configuration that has several parts.
TEXT_CONFIG_KEYS = ("text_config", "thinker_config", "llm_config", "language_config", "decoder")


def config_of(config: Any, layer_type: str | None) -> Config:
    """Return the language model's configuration, for a type of layer."""
    return Config(text_config(read(config)), layer_type)


def read(config: Any) -> Any:
    """Read and convert a configuration. :func:`config_of` accepts the result as well."""
    return as_transformers(read_file(config))


def read_file(config: Any) -> Any:
    """Return a configuration object or a dict: the argument itself, or the content of the file it names."""
    if isinstance(config, bytes):
        raise bad_type(OP, "config", "be a path, a dict or a configuration", "bytes")
    if not isinstance(config, (str, PathLike)):
        return config
    path = Path(config)
    if "\0" in str(path):
        raise bad_value(OP, "config", "be a readable file", repr(config))
    path = path / "config.json" if path.is_dir() else path
    if path.exists() and not path.is_file():
        raise bad_value(OP, "config", "be a readable file", f"{path} (it is no file)")
    try:
        with path.open("rb") as stream:
            text = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise bad_value(OP, "config", "be a readable file", f"{path} ({error.strerror})") from None
    if len(text) > MAX_BYTES:
        raise bad_value(OP, "config", f"have at most {MAX_BYTES} bytes", f"{path} with more")
    try:
        content = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise bad_value(OP, "config", "be a JSON file", f"{path} ({error})") from None
    if not isinstance(content, dict):
        raise bad_value(OP, "config", "hold a JSON object", f"{path} with a {type(content).__name__}")
    return content


def as_transformers(config: Any) -> Any:
    """Convert a dict to transformers' configuration, whose class may have its own names and defaults. Return
    the dict if transformers is not installed or does not have the model."""
    if not isinstance(config, Mapping) or not isinstance(config.get("model_type"), str):
        return config
    try:
        from transformers import CONFIG_MAPPING
    except ImportError:
        return config
    if config["model_type"] not in CONFIG_MAPPING:
        return config
    check_counts(config)
    scaling = text_config(config).get("rope_scaling")
    if not (scaling is None or isinstance(scaling, Mapping)):  # transformers takes 0 and [] for no scaling
        raise bad_type(OP, "rope_scaling", "be a dict", type(scaling).__name__)
    try:
        return CONFIG_MAPPING[config["model_type"]].from_dict(copy.deepcopy(dict(config)))
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise bad_value(OP, "config", "be one that transformers can read", reason.rstrip(".")) from None


def check_counts(config: Mapping[str, Any]) -> None:
    """Refuse counts, also in parts of the configuration, from which transformers would make endless lists."""
    parts: list[tuple[str, Any]] = [("", config)]
    while parts:
        name, part = parts.pop()
        if isinstance(part, Mapping):
            parts += [(str(key), value) for key, value in part.items()]
        elif not COUNTS.search(name):
            continue
        elif isinstance(part, (list, tuple)):
            parts += [(name, value) for value in part]
        elif isinstance(part, (int, float)) and part > MAX_COUNT:
            raise bad_value(OP, name, f"be at most {MAX_COUNT}", part)


def text_config(config: Any) -> Any:
    """Return the language model's part of a configuration that has several parts."""
    if isinstance(config, Mapping):
        for name in TEXT_CONFIG_KEYS:
            if isinstance(config.get(name), Mapping):
                return text_config(config[name])
        return config
    if config is None or isinstance(config, (bool, int, float, list, tuple)):
        raise bad_type(OP, "config", "be a configuration, a dict or a path", type(config).__name__)
    thinker = getattr(config, "thinker_config", None)
    if thinker is not None:
        return text_config(thinker)
    return config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config


class Config:
    """A configuration object or dict, with its entries for one type of layer."""

    def __init__(self, config: Any, layer_type: str | None) -> None:
        self.config, self.layer_type = config, layer_type
        self.layer_config = self._find_layer_config()

    def _find_layer_config(self) -> Any:
        """Return the configuration that takes precedence for this type of layer."""
        is_dict = isinstance(self.config, Mapping)
        per_layer = None if is_dict else getattr(self.config, "per_layer_config", None)
        if self.layer_type is None or per_layer is None:
            return self.config
        try:
            return per_layer[self.layer_type]
        except (KeyError, ValueError, TypeError, IndexError):
            return self.config

    def get(self, name: str, default: Any = None) -> Any:
        """Return an entry of the layer's configuration, else of the whole configuration, else the default."""
        for source in (self.layer_config, self.config):
            value = source.get(name) if isinstance(source, Mapping) else attribute(source, name)
            if value is not None:
                return value
        return default

    @property
    def model_type(self) -> str:
        """The entry ``model_type``; empty if there is none."""
        return str(self.get("model_type", ""))

    def head_size(self) -> int:
        """Return the largest number of dimensions of a head that may rotate."""
        size = self.get("head_dim")
        if isinstance(self.config, Mapping):  # transformers' classes have these values in head_dim
            size = self.get("qk_rope_head_dim", size)
            if self.layer_type == "full_attention":
                size = self.get("global_head_dim", size)
        if size is None:
            hidden = self.get("hidden_size", self.get("n_embd"))
            heads = self.get("num_attention_heads", self.get("n_head"))
            if not (is_count(hidden) and is_count(heads)):
                raise bad_value(
                    OP,
                    "config",
                    "have head_dim, or hidden_size and num_attention_heads,",
                    f"{hidden!r} and {heads!r}",
                )
            size = hidden // heads
        if not is_count(size):
            raise bad_value(OP, "head_dim", "be a positive integer", repr(size))
        if size > MAX_HEAD_SIZE:
            raise bad_value(OP, "head_dim", f"be at most {MAX_HEAD_SIZE}", size)
        return int(size)

    def rope(self) -> RopeEntry:
        """Return the entries of rope_parameters, or of the older rope_scaling, for this type of layer."""
        given = self.get("rope_parameters")
        if given is None:
            given = self.get("rope_scaling")
        given = {} if given is None else given
        if not isinstance(given, Mapping):
            raise bad_type(OP, "rope_parameters", "be a dict", type(given).__name__)
        nested = self._nested(given)
        if not nested:
            self._require_rope(given)
            return RopeEntry(self._with_defaults(dict(given)), given, nested=False)
        types = ", ".join(nested)
        chosen = self.layer_type
        if chosen is None:
            if len(nested) > 1:
                raise bad_value(OP, "layer_type", f"be one of {types} for this config", "None")
            (chosen,) = nested
        if chosen not in nested:
            raise bad_value(OP, "layer_type", f"be one of {types} for this config", repr(chosen))
        entries = nested[chosen]
        if entries is None:
            raise bad_value(OP, "layer_type", "be one whose heads rotate", repr(chosen))
        return RopeEntry(self._with_defaults(dict(entries)), given, nested=True)

    def _require_rope(self, given: Mapping[str, Any]) -> None:
        """Require a key that indicates rope, and a layer type that the configuration has."""
        has_rope_scaling = isinstance(self.config, Mapping) and "rope_scaling" in self.config
        if not given and not has_rope_scaling and all(self.get(name) is None for name in ROPE_KEYS):
            given_model = f"neither in a config of {self.model_type}" if self.model_type else "neither"
            raise bad_value(OP, "config", "have rope_parameters, or rope_theta,", given_model)
        known = self.get("layer_types") or ()
        if self.layer_type is not None and self.layer_type not in known:
            rule = f"one of {', '.join(dict.fromkeys(known))}" if known else "None for this config"
            raise bad_value(OP, "layer_type", f"be {rule}", repr(self.layer_type))

    def _nested(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entries by type of layer; empty if all layers have the same entries."""
        for name, value in given.items():
            if name in ROPE_ENTRIES and isinstance(value, Mapping):
                raise bad_type(OP, name, "not be a dict", "one")
        labels = self.get("_rope_type_labels") or self.get("layer_types") or ()
        by_layer_type = {
            name: value
            for name, value in given.items()
            if isinstance(value, Mapping) or (value is None and name in labels)
        }
        if by_layer_type:
            return by_layer_type
        # Configurations older than rope_parameters have a separate theta for sliding-window layers.
        sliding_theta = self.get("rope_local_base_freq", self.get("local_rope_theta"))
        if sliding_theta is None or isinstance(self.get("rope_parameters"), Mapping):
            return {}
        sliding = {"rope_type": "default", "rope_theta": sliding_theta}
        return {"sliding_attention": sliding, "full_attention": dict(given)}

    def _with_defaults(self, entries: dict[str, Any]) -> dict[str, Any]:
        def first_present(*names: str) -> Any:
            return next((value for name in names if (value := self.get(name)) is not None), None)

        entries = {name: value for name, value in entries.items() if value is not None}
        if "rope_theta" not in entries:
            theta = first_present("rope_theta", "global_rope_theta", "rotary_emb_base", "default_theta")
            entries["rope_theta"] = 10000.0 if theta is None else theta
        if "partial_rotary_factor" not in entries:
            partial = first_present("partial_rotary_factor", "rotary_pct")
            if partial is None and self._has_rotary_dim() and first_present("rotary_dim") is not None:
                entries["rotary_dim"] = first_present("rotary_dim")
            entries["partial_rotary_factor"] = 1.0 if partial is None else partial
        return entries

    def _has_rotary_dim(self) -> bool:
        """Return whether the model's code reads rotary_dim. An unknown model is assumed to read it."""
        known = self.is_of_known_class() or self.model_type.startswith("minimax")
        return not known or self.model_type in READS_ROTARY_DIM

    def is_of_known_class(self) -> bool:
        """Return whether the class is one of transformers, whose code ignores the keys of other models."""
        return type(self.config).__module__.startswith("transformers.models.")


def attribute(config: Any, name: str) -> Any:
    """Return an attribute, or None if it is absent or cannot be read."""
    try:
        return getattr(config, name, None)
    except Exception:  # a configuration whose layers differ raises where they have no common value
        return None


def is_count(value: Any) -> bool:
    """Return whether a value is a positive integer below 2**63."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(0 < value < 2**63)


class RopeEntry:
    """The entries of one rope_parameters dict. Each entry is checked when it is read."""

    def __init__(self, entries: dict[str, Any], all_entries: Mapping[str, Any], nested: bool) -> None:
        self.entries, self.nested = entries, nested
        # If rope_parameters has a dict for each type of layer, truncate is beside these dicts.
        self.truncate = bool(all_entries.get("truncate", True))
        rope_type = str(entries.get("rope_type", entries.get("type", "default")))
        self.rope_type = OLD_ROPE_TYPES.get(rope_type, rope_type)
        if self.rope_type not in ROPE_TYPES:
            raise bad_value(OP, "rope_type", f"be one of {', '.join(ROPE_TYPES)}", repr(rope_type))

    def number(self, name: str, default: float | None = None) -> float:
        """Return a positive number; the entry is required if there is no default."""
        value = self.entries.get(name, default)
        if value is None:
            raise bad_value(
                OP,
                "rope_parameters",
                f"have {name} for rope_type {self.rope_type}",
                ", ".join(sorted(self.entries)),
            )
        if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
            raise bad_type(OP, name, "be a number", repr(value))
        if not (math.isfinite(value) and value > 0):
            raise bad_value(OP, name, "be positive and finite", f"{value:g}")
        return float(value)

    def factors(self, name: str, count: int) -> npt.NDArray[np.float32]:
        """Return a positive number for each pair."""
        value = self.entries.get(name)
        if value is None:
            raise bad_value(OP, "rope_parameters", f"have {name} for rope_type {self.rope_type}", "none")
        try:
            factors = np.asarray(value, np.float32)
        except (TypeError, ValueError):
            raise bad_type(OP, name, "be a list of numbers", type(value).__name__) from None
        if factors.shape != (count,):
            raise bad_value(OP, name, f"have a number for each of {count} pairs", factors.shape)
        if wrong_factors(factors).size:
            raise bad_value(OP, name, "be positive and finite numbers", "others")
        return factors
