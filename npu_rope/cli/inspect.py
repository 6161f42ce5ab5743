"""``npu-rope inspect``: the rope in a model's own file, and the effect of scaling on each pair."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from ascend_sim import timeline_plot
from ascend_sim.files import replacing, unwritable
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from npu_rope import RopeMode, RopeParams, backends, rope
from npu_rope.cli import inspect_plot
from npu_rope.cli.inspect_model import ModelFile, Rope, printable, ranges, read
from npu_rope.cli.usage import usage_error
from npu_rope.errors import BackendUnavailable
from npu_rope.optional_torch import torch
from npu_rope.rope_attributes import AXIS_NAMES

DTYPES = ("float32", "float16", "bfloat16")
# The largest head that ggml's CANN backend rotates (ggml d99724f); its CPU backend rotates larger ones.
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
        if plot is not None and (reason := timeline_plot.refusal(plot) or unwritable(plot)):
            raise ValueError(f"[inspect] plot {reason}")
        model = read(file, layer_type, layer, n_ctx)
    except (ValueError, TypeError, ImportError, OSError) as error:
        raise usage_error("\n".join(map(printable, str(error).split("\n")))) from None
    if plot is not None:
        with replacing(plot, "wb") as stream:
            inspect_plot.draw(model.title, model.ropes, stream, plot.suffix[1:])
    supported = [_supported(r) for r in model.ropes]
    if json_:
        print(json.dumps(_as_json(file, model, supported), indent=1))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 120
    console.print(f"[bold]{escape(model.title)}[/] ({model.kind})")
    if model.without_rope:
        console.print(f"no rope in layers {ranges(model.without_rope)}")
    for r, found in zip(model.ropes, supported, strict=True):
        _show(console, r, found, pairs)
    if plot is not None:
        console.print(f"Wrote {escape(str(plot))}")


# ---- back ends --------------------------------------------------------------------------------------


def _supported(r: Rope) -> dict[str, str]:
    """Return by back end its dtypes for a call with one token, or the reason for none."""
    found = {}
    for name in (n for n, b in backends.BACKENDS.items() if not b.same_as):
        dtypes, why = [], ""
        for dtype in DTYPES if torch is not None else DTYPES[:2]:  # NumPy has no bfloat16
            try:
                _one_token(r, dtype, name)
                dtypes.append(dtype)
            except BackendUnavailable as error:
                why = error.missing
                break
            except (ValueError, TypeError) as error:
                why = why or str(error).splitlines()[0]  # a later one may be about the dtype only
        found[name] = ", ".join(dtypes) if dtypes else f"no: {why}"
    found["ggml's CANN backend"] = _cann(r.params)
    return found


def _width(r: Rope) -> int:
    """Return the width of the narrowest head with this rope."""
    return r.params.n_offs + 2 * r.params.pairs


def _one_token(r: Rope, dtype: str, backend: str) -> None:
    shape, planes = (1, 1, 1, _width(r)), (4, 1) if r.params.rope_mode.has_sections else (1,)
    positions, factors = np.ones(planes, np.int32), r.model.freq_factors
    if torch is None:
        rope(np.ones(shape, dtype), positions, r.params, factors, backend=backend)
        return
    factors = None if factors is None else torch.from_numpy(factors)
    x = torch.ones(shape, dtype=getattr(torch, dtype))
    rope(x, torch.from_numpy(positions), r.params, factors, backend=backend)


def _cann(params: RopeParams) -> str:
    if params.n_offs:
        return "no: it rotates from the first dimension on (n_offs 0)"
    if 2 * params.pairs > CANN_LARGEST_HEAD:
        return f"no: its heads have at most {CANN_LARGEST_HEAD} dimensions"
    return "yes by its own rules; on Ascend310P only where all of a head rotates"


# ---- output -----------------------------------------------------------------------------------------


def _python_call(r: Rope) -> str:
    positions = "[4,S]" if r.params.rope_mode.has_sections else "[S]"
    shapes = f"x [B,S,N,{_width(r)} or more], positions {positions}"
    return f"params, freq_factors = {r.call}\ny = rope(x, positions, params, freq_factors)  # {shapes}"


def _c_float(value: float) -> str:
    text = f"{value:.9g}"
    return text + ("f" if set(text) & {".", "e"} else ".0f")


def _ggml_call(r: Rope) -> str:
    p = r.params
    scaling = p.freq_base, p.freq_scale, p.ext_factor, p.attn_factor, p.beta_fast, p.beta_slow
    numbers = ", ".join(map(_c_float, scaling))
    factors = "freq_factors" if r.model.freq_factors is not None else "NULL"
    mode = f"GGML_ROPE_TYPE_{p.rope_mode.name}"
    if p.rope_mode.has_sections:
        sections = ", ".join(map(str, p.sections))
        begin = f"int sections[4] = {{{sections}}};\nggml_rope_multi(ctx, x, positions, {factors}, {p.n_dims}"
        return f"{begin}, sections, {mode}, {p.n_ctx_orig}, {numbers})"
    begin = f"ggml_rope_ext(ctx, x, positions, {factors}, {p.n_dims}, {mode}"
    call = f"{begin}, {p.n_ctx_orig}, {numbers})"
    return f"ggml_rope_set_offset({call}, {p.n_offs})" if p.n_offs else call


def _pairs_of(r: Rope) -> list[dict[str, Any]]:
    """Return a row for each pair."""
    before, after, rotating = r.before(), r.after(), r.rotating()
    first, second = (range(_width(r))[lanes] for lanes in r.params.pair_lanes())
    context = r.context_in_force
    rows = []
    for i in range(r.params.pairs):
        rows.append(
            {
                "pair": i,
                "lanes": [first[i], second[i]],
                "frequency": after[i],
                "wavelength": 2 * np.pi / after[i] if rotating[i] else None,
                "wavelength_before": 2 * np.pi / before[i],
                "turns": None if context is None else rotating[i] * float(context) * after[i] / (2 * np.pi),
            }
        )
    return rows


def _show(console: Console, r: Rope, supported: dict[str, str], pairs: bool) -> None:
    p = r.params
    console.print(f"\n[bold]{escape(r.layers)}[/]")
    table = _fact_table()
    for field in fields(p):
        value = p.rope_mode.name.lower() if field.name == "mode" else getattr(p, field.name)
        if field.name == "sections" and not p.rope_mode.has_sections:
            continue
        table.add_row(field.name, f"{value:.9g}" if isinstance(value, float) else str(value))
    table.add_row("freq_factors", _factors_text(r))
    table.add_row("cos, sin times", f"{p.mscale():.9g}")
    table.add_row("context", _context_text(r))
    console.print(table)
    if pairs:
        text = "wavelength in tokens, also before scaling; turns in the context or session"
        console.print(f"[bold]pairs[/]: frequency in radians per token; {text}")
        if r.call.startswith("RopeParams.from_gguf"):
            console.print("before: with the file's theta, which its converter may already have scaled")
        console.print(_pair_table(r))
    console.print("[bold]back ends[/], by a call with one token")
    table = _fact_table()
    for name, found in supported.items():
        colour = "yellow" if found.startswith("no") else "green"
        table.add_row(escape(name), f"[{colour}]{escape(found)}[/]")
    console.print(table)
    console.print("[bold]Python[/]")
    print(_python_call(r))
    permuted = r.call.startswith("RopeParams.from_hf") and p.rope_mode is RopeMode.NEOX
    note = ", for weights as they are here; a converter may have permuted a GGUF file's" if permuted else ""
    console.print(f"[bold]ggml[/]{note}")
    print(_ggml_call(r))


def _fact_table() -> Table:
    table = Table(show_header=False, box=None)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _factors_text(r: Rope) -> str:
    if r.model.freq_factors is None:
        return "none"
    factors, fixed_pairs = r.model.freq_factors[r.rotating()], np.count_nonzero(~r.rotating())
    text = f"{len(r.model.freq_factors)}"
    if len(factors):
        text += f", from {factors.min():.6g} to {factors.max():.6g}"
    return text + (f"; {fixed_pairs} pairs do not rotate" if fixed_pairs else "")


def _context_text(r: Rope) -> str:
    text = "unknown" if r.context is None else f"{r.context} tokens"
    if r.trained not in (None, r.context):
        text += f", trained with {r.trained}"
    if r.session is not None:
        text += f"; session of {r.session}"
    return text


def _pair_table(r: Rope) -> Table:
    table = Table(box=None, header_style="dim")
    axes = r.params.axes() if r.params.rope_mode.has_sections else None
    titles = ["pair", "lanes", *(["by"] if axes is not None else []), "rad/token", "wavelength"]
    for title in [*titles, "before", "times", "turns"]:
        table.add_column(title, justify="right", no_wrap=True)
    for row in _pairs_of(r):
        wavelength, before, turns = row["wavelength"], row["wavelength_before"], row["turns"]
        cells = [str(row["pair"]), "{}, {}".format(*row["lanes"])]
        cells += [AXIS_NAMES[axes[row["pair"]]]] if axes is not None else []
        if wavelength is None:
            cells += ["0", "-", f"{before:.6g}", "-", "does not rotate"]
        else:
            cells += [f"{row['frequency']:.6g}", f"{wavelength:.6g}", f"{before:.6g}"]
            cells += [f"{wavelength / before:.4g}", "" if turns is None else f"{turns:.4g}"]
        table.add_row(*cells, style="dim" if turns is not None and turns < 1 else None)
    return table


def _as_json(file: Path, model: ModelFile, supported: list[dict[str, str]]) -> dict[str, Any]:
    return {
        "file": str(file),
        "kind": model.kind,
        "model": model.title,
        "layers_without_rope": model.without_rope,
        "ropes": [
            {
                "layers": r.layers,
                "params": {f.name: _plain(getattr(r.params, f.name)) for f in fields(r.params)},
                "freq_factors": None if r.model.freq_factors is None else r.model.freq_factors.tolist(),
                "mscale": r.params.mscale(),
                "context": r.context,
                "session": r.session,
                "trained_context": r.trained,
                "pairs": [{k: _plain(v) for k, v in row.items()} for row in _pairs_of(r)],
                "back_ends": found,
                "python": _python_call(r),
                "ggml": _ggml_call(r),
            }
            for r, found in zip(model.ropes, supported, strict=True)
        ],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, RopeMode):
        return value.name.lower()
    if isinstance(value, np.generic):
        return value.item()
    return list(value) if isinstance(value, tuple) else value
