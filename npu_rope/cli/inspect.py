"""``npu-rope inspect``: the rope in a model's own file, and the effect of scaling on each pair."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from ascend_sim import timeline_plot
from ascend_sim.files import replacing
from ascend_sim.texts import printable
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from npu_rope import RopeMode, RopeParams, backends, rope
from npu_rope.cli import inspect_plot
from npu_rope.cli.inspect_model import LayerRope, ModelFile, ranges, read
from npu_rope.cli.usage import require_writable, usage_error
from npu_rope.errors import BackendUnavailable
from npu_rope.optional_torch import torch
from npu_rope.rope_attributes import AXIS_NAMES

DTYPES = ("float32", "float16", "bfloat16")
# The largest head that ggml's CANN backend rotates, in dimensions (ggml d99724f).
CANN_LARGEST_HEAD = 896


def inspect(
    file: Annotated[Path, typer.Argument(help="A config.json of transformers, its folder, or a GGUF file.")],
    layer_type: Annotated[
        str | None, typer.Option(help="For a config.json: only this type of layer, e.g. full_attention.")
    ] = None,
    layer: Annotated[int | None, typer.Option(min=0, help="For a GGUF file: only this layer.")] = None,
    n_ctx: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens of the session: chooses long or short factors, stretches theta."),
    ] = None,
    pairs: Annotated[bool, typer.Option(help="The table of every pair's frequency.")] = True,
    json_: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the wavelengths before and after scaling: .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Show how a model's heads rotate: parameters, frequencies, back ends, the call.

    A pair of dimensions rotates by its frequency, in radians per token. Its
    wavelength is the number of tokens in which it rotates by one turn, 2 pi. A
    pair whose wavelength exceeds the context never completes a turn; scaling
    changes these wavelengths.

    Exit status: 0, or 2 if the file or an option cannot be used.

    Examples:

      npu-rope inspect Qwen3-8B/config.json

      npu-rope inspect model.gguf --n-ctx 131072 --plot wavelengths.svg

      npu-rope inspect gemma-3/config.json --layer-type sliding_attention --json
    """
    try:
        if plot is not None and (reason := timeline_plot.refusal(plot)):
            raise ValueError(f"[inspect] plot {reason}")
        require_writable("inspect", [("file", file)], plot=plot)
        model = read(file, layer_type, layer, n_ctx)
    except (ValueError, TypeError, ImportError, OSError) as error:
        raise usage_error(str(error)) from None
    if plot is not None:
        with replacing(plot, "wb") as stream:
            inspect_plot.draw(model.title, model.ropes, stream, plot.suffix[1:])
    supports = [_backend_support(layer_rope) for layer_rope in model.ropes]
    if json_:
        print(json.dumps(_as_json(file, model, supports), indent=1))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 120
    console.print(f"[bold]{escape(model.title)}[/] ({model.kind})")
    if model.without_rope:
        console.print(f"no rope in layers {ranges(model.without_rope)}")
    for layer_rope, support_by_backend in zip(model.ropes, supports, strict=True):
        _show(console, layer_rope, support_by_backend, pairs)
    if plot is not None:
        console.print(f"Wrote {escape(printable(str(plot)))}")


# ---- back ends --------------------------------------------------------------------------------------


def _backend_support(layer_rope: LayerRope) -> dict[str, str]:
    """Return for each back end the dtypes that it supports in a call with one token, or why it has none."""
    support_by_backend = {}
    for name in (n for n, b in backends.BACKENDS.items() if not b.same_as):
        dtypes, why = [], ""
        for dtype in DTYPES if torch is not None else DTYPES[:2]:  # NumPy has no bfloat16
            try:
                _rotate_one_token(layer_rope, dtype, name)
                dtypes.append(dtype)
            except BackendUnavailable as error:
                why = error.missing
                break
            except (ValueError, TypeError) as error:
                why = why or str(error).splitlines()[0]  # a later error may be about the dtype only
        support_by_backend[name] = ", ".join(dtypes) if dtypes else f"no: {why}"
    support_by_backend["ggml's CANN backend"] = _cann_support(layer_rope.params)
    return support_by_backend


def _least_head_size(layer_rope: LayerRope) -> int:
    """Return the width of the narrowest head with this rope."""
    return layer_rope.params.n_offs + 2 * layer_rope.params.pairs


def _rotate_one_token(layer_rope: LayerRope, dtype: str, backend: str) -> None:
    shape = (1, 1, 1, _least_head_size(layer_rope))
    positions = np.ones((4, 1) if layer_rope.params.rope_mode.has_sections else (1,), np.int32)
    factors = layer_rope.model.freq_factors
    if torch is None:
        rope(np.ones(shape, dtype), positions, layer_rope.params, factors, backend=backend)
        return
    factors = None if factors is None else torch.from_numpy(factors)
    x = torch.ones(shape, dtype=getattr(torch, dtype))
    rope(x, torch.from_numpy(positions), layer_rope.params, factors, backend=backend)


def _cann_support(params: RopeParams) -> str:
    if params.n_offs:
        return "no: it rotates from the first dimension on (n_offs 0)"
    if 2 * params.pairs > CANN_LARGEST_HEAD:
        return f"no: its heads have at most {CANN_LARGEST_HEAD} dimensions"
    return "yes by its own rules; on Ascend310P only where all of a head rotates"


# ---- output -----------------------------------------------------------------------------------------


def _python_call(layer_rope: LayerRope) -> str:
    positions = "[4,S]" if layer_rope.params.rope_mode.has_sections else "[S]"
    shapes = f"x [B,S,N,{_least_head_size(layer_rope)} or more], positions {positions}"
    return (
        f"params, freq_factors = {layer_rope.call}\ny = rope(x, positions, params, freq_factors)  # {shapes}"
    )


def _c_float(value: float) -> str:
    text = f"{value:.9g}"
    return text + ("f" if set(text) & {".", "e"} else ".0f")


def _ggml_call(layer_rope: LayerRope) -> str:
    params = layer_rope.params
    names = ("freq_base", "freq_scale", "ext_factor", "attn_factor", "beta_fast", "beta_slow")
    numbers = ", ".join(_c_float(getattr(params, name)) for name in names)
    factors = "freq_factors" if layer_rope.model.freq_factors is not None else "NULL"
    mode = f"GGML_ROPE_TYPE_{params.rope_mode.name}"
    if params.rope_mode.has_sections:
        sections = ", ".join(map(str, params.sections))
        begin = f"int sections[4] = {{{sections}}};\nggml_rope_multi(ctx, x, positions, {factors}"
        return f"{begin}, {params.n_dims}, sections, {mode}, {params.n_ctx_orig}, {numbers})"
    begin = f"ggml_rope_ext(ctx, x, positions, {factors}, {params.n_dims}, {mode}"
    call = f"{begin}, {params.n_ctx_orig}, {numbers})"
    return f"ggml_rope_set_offset({call}, {params.n_offs})" if params.n_offs else call


def _pairs_of(layer_rope: LayerRope) -> list[dict[str, Any]]:
    """Return a row for each pair."""
    unscaled, scaled = layer_rope.unscaled_frequencies(), layer_rope.scaled_frequencies()
    rotating = layer_rope.rotating_pairs()
    first, second = (range(_least_head_size(layer_rope))[lanes] for lanes in layer_rope.params.pair_lanes())
    context = layer_rope.effective_context
    rows = []
    for i in range(layer_rope.params.pairs):
        rows.append(
            {
                "pair": i,
                "lanes": [first[i], second[i]],
                "frequency": scaled[i],
                "wavelength": 2 * np.pi / scaled[i] if rotating[i] else None,
                "wavelength_before": 2 * np.pi / unscaled[i],
                "turns": None if context is None else rotating[i] * float(context) * scaled[i] / (2 * np.pi),
            }
        )
    return rows


def _show(
    console: Console, layer_rope: LayerRope, support_by_backend: dict[str, str], shows_pairs: bool
) -> None:
    params = layer_rope.params
    console.print(f"\n[bold]{escape(layer_rope.layers)}[/]")
    table = _fact_table()
    for field in fields(params):
        value = params.rope_mode.name.lower() if field.name == "mode" else getattr(params, field.name)
        if field.name == "sections" and not params.rope_mode.has_sections:
            continue
        table.add_row(field.name, f"{value:.9g}" if isinstance(value, float) else str(value))
    table.add_row("freq_factors", _factors_text(layer_rope))
    table.add_row("cos, sin times", f"{params.mscale():.9g}")
    table.add_row("context", _context_text(layer_rope))
    console.print(table)
    if shows_pairs:
        text = "wavelength in tokens, also before scaling; turns in the context or session"
        console.print(f"[bold]pairs[/]: frequency in radians per token; {text}")
        if layer_rope.call.startswith("RopeParams.from_gguf"):
            console.print("before: with the file's theta, which its converter may already have scaled")
        console.print(_pair_table(layer_rope))
    console.print("[bold]back ends[/], by a call with one token")
    table = _fact_table()
    for name, support in support_by_backend.items():
        colour = "yellow" if support.startswith("no") else "green"
        table.add_row(escape(name), f"[{colour}]{escape(support)}[/]")
    console.print(table)
    console.print("[bold]Python[/]")
    print(_python_call(layer_rope))
    permuted = layer_rope.call.startswith("RopeParams.from_hf") and params.rope_mode is RopeMode.NEOX
    note = ", for weights as they are here; a converter may have permuted a GGUF file's" if permuted else ""
    console.print(f"[bold]ggml[/]{note}")
    print(_ggml_call(layer_rope))


def _fact_table() -> Table:
    table = Table(show_header=False, box=None)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _factors_text(layer_rope: LayerRope) -> str:
    if layer_rope.model.freq_factors is None:
        return "none"
    rotating = layer_rope.rotating_pairs()
    factors, fixed_pairs = layer_rope.model.freq_factors[rotating], np.count_nonzero(~rotating)
    text = f"{len(layer_rope.model.freq_factors)}"
    if len(factors):
        text += f", from {factors.min():.6g} to {factors.max():.6g}"
    return text + (f"; pairs that do not rotate: {fixed_pairs}" if fixed_pairs else "")


def _context_text(layer_rope: LayerRope) -> str:
    text = "unknown" if layer_rope.context is None else f"{layer_rope.context} tokens"
    if layer_rope.trained not in (None, layer_rope.context):
        text += f", trained with {layer_rope.trained}"
    if layer_rope.session is not None:
        text += f"; session of {layer_rope.session}"
    return text


def _pair_table(layer_rope: LayerRope) -> Table:
    table = Table(box=None, header_style="dim")
    axes = layer_rope.params.axes() if layer_rope.params.rope_mode.has_sections else None
    titles = ["pair", "lanes", *(["by"] if axes is not None else []), "rad/token", "wavelength"]
    for title in [*titles, "before", "times", "turns"]:
        table.add_column(title, justify="right", no_wrap=True)
    for row in _pairs_of(layer_rope):
        wavelength, unscaled, turns = row["wavelength"], row["wavelength_before"], row["turns"]
        cells = [str(row["pair"]), "{}, {}".format(*row["lanes"])]
        cells += [AXIS_NAMES[axes[row["pair"]]]] if axes is not None else []
        if wavelength is None:
            cells += ["0", "-", f"{unscaled:.6g}", "-", "does not rotate"]
        else:
            cells += [f"{row['frequency']:.6g}", f"{wavelength:.6g}", f"{unscaled:.6g}"]
            cells += [f"{wavelength / unscaled:.4g}", "" if turns is None else f"{turns:.4g}"]
        table.add_row(*cells, style="dim" if turns is not None and turns < 1 else None)
    return table


def _as_json(file: Path, model: ModelFile, supports: list[dict[str, str]]) -> dict[str, Any]:
    return {
        "file": str(file),
        "kind": model.kind,
        "model": model.title,
        "layers_without_rope": model.without_rope,
        "ropes": [
            {
                "layers": layer_rope.layers,
                "params": {
                    f.name: _plain(getattr(layer_rope.params, f.name)) for f in fields(layer_rope.params)
                },
                "freq_factors": None
                if layer_rope.model.freq_factors is None
                else layer_rope.model.freq_factors.tolist(),
                "mscale": layer_rope.params.mscale(),
                "context": layer_rope.context,
                "session": layer_rope.session,
                "trained_context": layer_rope.trained,
                "pairs": [{k: _plain(v) for k, v in row.items()} for row in _pairs_of(layer_rope)],
                "back_ends": support_by_backend,
                "python": _python_call(layer_rope),
                "ggml": _ggml_call(layer_rope),
            }
            for layer_rope, support_by_backend in zip(model.ropes, supports, strict=True)
        ],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, RopeMode):
        return value.name.lower()
    if isinstance(value, np.generic):
        return value.item()
    return list(value) if isinstance(value, tuple) else value
