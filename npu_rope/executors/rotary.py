"""Executors of rotary_mul, rotary_mul_qk and rotary_embedding on arrays and tensors, by backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ascend_sim import Options

from npu_rope import backends, native
from npu_rope.executors import npu, rules, sim
from npu_rope.executors.tensors import (
    array_of,
    c_tensor,
    is_tensor,
    on_arrays,
    readable_array,
    readable_tensor,
    round_to,
    rounded,
    taken,
)
from npu_rope.optional_torch import torch
from npu_rope.reference import rotary as reference
from npu_rope.rotary_checks import RotaryAttributes, RotaryTensors

Tensors = RotaryTensors[Any]
Results = tuple[Any, ...]


def check(t: Tensors, a: RotaryAttributes) -> None:
    """Check every rule."""
    rules.check(t, a.rules)


def on_reference(t: Tensors, a: RotaryAttributes) -> Results:
    """Run NumPy in float64 and round the results once."""
    t = taken("reference", t)
    check(t, a)
    return rounded(t, reference.rotary(t.map(array_of), a))


def launch(library: native.Native, t: Tensors, results: Results, a: RotaryAttributes) -> None:
    """Call the library's entry of the operator, on copies of the inputs that it cannot read in place."""
    read, see = (readable_tensor, c_tensor) if is_tensor(t.first[1]) else (readable_array, native.describe)
    # Copies live until the call is over.
    sources = [x if name in t.in_place else read(x) for name, x in t.xs.items()]
    sources += [read(table) for table in t.tables.values()]
    if t.position_ids is not None:
        sources.append(read(t.position_ids, unit_stride=False))
    inputs: list[native.CTensor | None] = [see(source) for source in sources]
    if t.onnx and t.position_ids is None:
        inputs.append(None)
    sizes = (a.num_heads, a.rotary_dim) if t.onnx else (a.rotary_dim, a.offset)
    library.rotary(t.op, inputs, a.interleaved, sizes, a.forward, [see(r) for r in results])


def on_cpu(t: Tensors, a: RotaryAttributes) -> Results:
    """Run the C library on arrays."""
    library = native.load()
    return on_arrays(t, lambda t, results: launch(library, t, results, a))


def on_cpu_tensors(t: Tensors, a: RotaryAttributes) -> None:
    """Run the C library on torch tensors, into outs."""
    launch(native.load(), t, tuple(t.outs.values()), a)


OUTS = {"rotary_mul": ("out",), "rotary_mul_qk": ("q_out", "k_out"), "rotary_embedding": ("Y",)}


def on_sim(options: Options, t: Tensors, a: RotaryAttributes) -> Results:
    """Run the AscendC kernel on the simulated core."""

    def run(t: Tensors, results: Results) -> None:
        launch_on_sim(options, t, results, a)

    def check_for_sim(t: Tensors) -> None:
        check(t, a)
        if t.onnx:
            sim.check_types(options, t.op, "rotary_mul", {"x": t.first[1]}, ONNX_NAMES)
        else:
            sim.check_types(options, t.op, t.op, t.xs)

    return sim.run(options, t, check_for_sim, run)


# rotary_mul's tensors by their names in messages of rotary_embedding, which launches it.
ONNX_NAMES = {"x": "X", "cos": "cos_cache", "sin": "sin_cache", "out": "Y"}


def launch_on_sim(options: Options, t: Tensors, results: Results, a: RotaryAttributes) -> None:
    """Launch the kernel for a checked call; bfloat16 may be its bits in uint16 (:func:`.sim.launch`)."""
    read = readable_tensor if is_tensor(t.first[1]) else readable_array
    xs = {name: x if name in t.in_place else read(x) for name, x in t.xs.items()}
    tables = [read(table) for table in t.tables.values()]
    written = dict(zip(t.outs or OUTS[t.op], results, strict=True))
    attributes = {"interleaved": a.interleaved, "offset": a.offset, "forward": a.forward}
    if not t.onnx:
        tensors = {**xs, **dict(zip(("cos", "sin"), tables, strict=True))}
        if t.op == "rotary_mul":
            tensors["position_ids"] = None
        sim.launch(options, t.op, t.op, {**tensors, **written}, {**attributes, "rotary_dim": a.rotary_dim})
        return
    # A launch of rotary_mul on views: heads in their own dimension, and the entries that the rotation reads.
    (x,), (y,) = xs.values(), written.values()
    x, y = _with_heads(x, a.num_heads), _with_heads(y, a.num_heads)
    width = a.rotary_dim or x.shape[-1]
    cos, sin = (table[..., : width // 2] for table in tables)
    ids = sim.rows_of(t.position_ids)
    named = {"x": x, "cos": cos, "sin": sin, "position_ids": ids, "out": y}
    sim.launch(options, t.op, "rotary_mul", named, {**attributes, "rotary_dim": a.rotary_dim}, ONNX_NAMES)


def _with_heads(x: Any, num_heads: int) -> Any:
    """Return the view ``[B,S,N,D]`` of ``[B,N,S,D]``, or of ``[B,S,N*D]``."""
    if x.ndim == 4:
        return x.swapaxes(1, 2)
    return x.reshape(*x.shape[:2], num_heads, x.shape[2] // num_heads)


def on_npu(t: Tensors, a: RotaryAttributes) -> Results:
    """Run the call on the NPU for arrays, or for CPU torch tensors without a gradient."""

    def run_operator(xs: dict[str, Any], beside: dict[str, Any], written: list[Any]) -> None:
        attributes: dict[str, Any] = {"interleaved": a.interleaved, "forward": a.forward}
        if t.onnx:
            beside.setdefault("position_ids", None)
            attributes |= {"num_heads": a.num_heads, "rotary_embedding_dim": a.rotary_dim}
        else:
            attributes |= {"rotary_dim": a.rotary_dim, "offset": a.offset}
        named = dict(zip(OUTS[t.op], written, strict=True))
        getattr(torch.ops.npu_rope, f"{t.op}_out").default(**xs, **beside, **attributes, **named)

    return npu.run(t, lambda t: check(t, a), run_operator)


EXECUTORS: Mapping[str, Callable[[Tensors, RotaryAttributes], Results]] = {
    "reference": on_reference,
    "cpu": on_cpu,
    "npu": on_npu,
    **sim.by_soc(on_sim),
}


def run(backend: str, t: Tensors, a: RotaryAttributes) -> Results:
    """Run a call on the backend of that name.

    Raises:
        ValueError, TypeError: an argument breaks its rule; nothing was written.
        BackendUnavailable: the backend is unavailable or lacks this operator.
    """
    executor = backends.executor_of(t.op, EXECUTORS, backend)
    return executor(t, a)


def table_gradients(t: Tensors, grads: Results, a: RotaryAttributes) -> tuple[Any, Any]:
    """Return the tables' gradients of a call on arrays, summed in float64 and rounded once to their type."""
    wide = reference.table_gradients(t.map(array_of), tuple(array_of(g) for g in grads), a)
    cos, sin = (round_to(w, table) for w, table in zip(wide, t.tables.values(), strict=True))
    return cos, sin
