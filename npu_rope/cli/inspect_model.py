"""The rope of a model's file: a config.json of transformers or a GGUF file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from ascend_sim.texts import printable

from npu_rope import RopeParams, hf_config, hf_params
from npu_rope.gguf_params import GgufFile
from npu_rope.params import ModelRope

MAGIC = b"GGUF"
# Radians per token. Positions are below 2^31, so a slower pair rotates by less than 2^-24 radians.
SLOWEST_FREQUENCY = 2.0**-55


@dataclass
class LayerRope:
    """The rope of some layers of a model."""

    layers: str  # the layers that use it, in words
    call: str  # the Python call that reads it from the file
    model: ModelRope
    theta: float  # base of the frequencies
    context: int | None  # in tokens, from the file
    trained: int | None  # the context before scaling
    session: int | None  # the context that the user requests

    @property
    def effective_context(self) -> int | None:
        """The context in which the report counts a pair's turns, in tokens."""
        return self.session or self.context or self.trained

    @property
    def params(self) -> RopeParams:
        """The parameters without the frequency factors."""
        return self.model.params

    def unscaled_frequencies(self) -> npt.NDArray[np.float64]:
        """Return the radians per token of each pair without scaling. A GGUF's theta may already be scaled."""
        params = self.params
        more: dict[str, Any] = {}
        if params.rope_mode.has_sections:
            more["sections"] = params.sections
        plain = RopeParams(params.n_dims, params.rope_mode, freq_base=self.theta, **more)
        return np.asarray(plain.frequencies(), np.float64)

    def scaled_frequencies(self) -> npt.NDArray[np.float64]:
        """Return the radians per token of each pair with scaling."""
        return np.asarray(self.model.frequencies(), np.float64)

    def rotating_pairs(self) -> npt.NDArray[np.bool_]:
        """Return whether each pair rotates. A pair with a large frequency factor does not."""
        return self.scaled_frequencies() > SLOWEST_FREQUENCY


@dataclass
class ModelFile:
    """The ropes of a file."""

    kind: str  # of file
    title: str
    ropes: list[LayerRope]
    without_rope: list[int] | None = None  # layers that do not rotate; None: unknown


def read(file: Path, layer_type: str | None, layer: int | None, n_ctx: int | None) -> ModelFile:
    """Read a model's file.

    Args:
        file: a config.json, its folder, or a GGUF file.
        layer_type: of a config.json: only this type of layer.
        layer: of a GGUF file: only this layer.
        n_ctx: tokens of the session.

    Raises:
        ValueError, TypeError, OSError: the file cannot be read, or has invalid values.
        ImportError: gguf is not installed.
    """
    if _is_gguf(file):
        if layer_type is not None:
            raise ValueError(f"[inspect] layer-type must be of a config.json but got {file}; see --layer.")
        return _read_gguf(file, layer, n_ctx)
    if layer is not None:
        raise ValueError(f"[inspect] layer must be of a GGUF file but got {file}; see --layer-type.")
    return _read_config(file, layer_type, n_ctx)


def _is_gguf(file: Path) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def _read_config(file: Path, layer_type: str | None, n_ctx: int | None) -> ModelFile:
    ropes, model_type, config = [], "", hf_config.read(file)
    for name in [layer_type] if layer_type is not None else hf_params.layer_types(config):
        info = hf_params.model_info(config, name)
        model_type = info.model_type
        arguments = [_quoted(str(file))] + ([f"layer_type={_quoted(name)}"] if name else [])
        arguments += [f"seq_len={n_ctx}"] if n_ctx else []
        ropes.append(
            LayerRope(
                f"{printable(name or 'all layers')}, rope_type {info.rope_type}",
                f"RopeParams.from_hf({', '.join(arguments)})",
                RopeParams.from_hf(config, name, n_ctx),
                info.theta,
                info.context,
                info.trained_context,
                n_ctx,
            )
        )
    return ModelFile("transformers configuration", printable(model_type or str(file)), ropes)


def _read_gguf(file: Path, layer: int | None, n_ctx: int | None) -> ModelFile:
    gguf = GgufFile(file)
    if layer is not None:
        wanted: dict[str, int | None] = {f"layer {layer}": layer}
    else:
        wanted = _kinds_of_layers(gguf, n_ctx)
    ropes = []
    for layers, number in wanted.items():
        model = gguf.rope(number, n_ctx)
        arguments = [_quoted(str(file))] + ([f"layer={number}"] if number is not None else [])
        arguments += [f"n_ctx={n_ctx}"] if n_ctx else []
        call = f"RopeParams.from_gguf({', '.join(arguments)})"
        context = gguf.count("context_length")
        trained = gguf.trained_context or None
        ropes.append(
            LayerRope(layers, call, ModelRope.of(model), gguf.theta(number), context, trained, n_ctx)
        )
    name = gguf.values["general.name"]
    title = f"{name}, {gguf.architecture}" if isinstance(name, str) else gguf.architecture
    without = [i for i in range(gguf.layers or 0) if not gguf.rotates(i)]
    return ModelFile("GGUF file", printable(title), ropes, without)


def _quoted(text: str) -> str:
    """Quote the text as a Python string."""
    return json.dumps(text, ensure_ascii=False) if text.isprintable() else repr(text)


def _kinds_of_layers(gguf: GgufFile, n_ctx: int | None) -> dict[str, int | None]:
    """Return a layer of each group of layers with the same rope, by the group's name. The value is None for
    the file's default rope."""
    rotating = [i for i in range(gguf.layers or 0) if gguf.rotates(i)]
    windows = [i for i in rotating if gguf.attends_to_window(i)]
    full_attention = [i for i in rotating if i not in windows]
    suffix = f" ({ranges(rotating)})" if len(rotating) < (gguf.layers or 0) else ""
    if (
        not (windows and full_attention)
        or gguf.rope(windows[0], n_ctx).attributes == gguf.rope(None, n_ctx).attributes
    ):
        return {f"layers with rope{suffix}" if suffix else "all layers": None}
    suffix = f" ({ranges(full_attention)})" if suffix else ""
    return {
        f"layers with full attention{suffix}": None,
        f"layers with a window ({ranges(windows)})": windows[0],
    }


def ranges(numbers: list[int]) -> str:
    """Return the numbers as ranges, such as 0-4, 6-10. If there are more than four ranges, return the first
    three and the last."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    runs_text = [f"{first}-{last}" if first != last else str(first) for first, last in runs]
    return ", ".join(runs_text if len(runs_text) <= 4 else [*runs_text[:3], "...", runs_text[-1]])
