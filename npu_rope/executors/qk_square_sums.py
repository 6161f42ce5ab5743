"""Executors of qk_square_sums on arrays and tensors, by back end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from ascend_sim import Options

from npu_rope import native
from npu_rope.call_tensors import CallTensors
from npu_rope.errors import BrokenRule
from npu_rope.executors import npu, rules, sim
from npu_rope.executors.tensors import (
    accepted_call,
    array_of,
    c_tensor,
    is_tensor,
    readable_inputs,
    spec_of,
    with_actual_value,
)
from npu_rope.optional_torch import torch

Tensors = CallTensors[Any]
Results = tuple[Any, ...]


def new_sums(q: Any) -> Any:
    """Allocate ``[S,2]`` for the tokens of q: float64 for float64, else float32."""
    is_double = spec_of(q).dtype == "float64"
    shape = (q.shape[0] if len(q.shape) else 0, 2)
    if is_tensor(q):
        return q.new_empty(shape, dtype=torch.float64 if is_double else torch.float32)
    return np.empty(shape, np.float64 if is_double else np.float32)


def on_reference(call: Tensors, attributes: Mapping[str, Any]) -> Results:
    """Run NumPy in float64 and round the sums once."""
    call = accepted_call("reference", call)
    rules.check(call, {})
    sums = np.stack([(array_of(x).astype(np.float64) ** 2).sum((1, 2)) for x in call.xs.values()], axis=1)
    out = new_sums(call.first[1])
    with np.errstate(over="ignore"):  # a sum may exceed float32
        out[...] = torch.from_numpy(sums) if is_tensor(out) else sums
    return (out,)


@cache
def _entry() -> Any:
    return native.load().checked_entry("npu_rope_qk_square_sums", *[native.TENSOR] * 3)


def launch(
    call: Tensors,
    results: Results,
    attributes: Mapping[str, Any],
    as_c: Callable[[Any], native.CTensor] | None = None,
) -> None:
    """Call the C function, which checks the call first. ``as_c`` as in :func:`.rotations.launch`."""
    as_c = as_c or (c_tensor if is_tensor(call.first[1]) else native.describe)
    sources = readable_inputs(call)  # keeps the copies in memory until the call ends
    _entry()(*(as_c(tensor) for tensor in (*sources.values(), *results)))


def on_cpu(call: Tensors, attributes: Mapping[str, Any]) -> Results:
    """Run the C library on arrays."""
    call = accepted_call("cpu", call)
    out = new_sums(call.first[1])
    try:
        launch(call, (out,), attributes)
    except BrokenRule as error:
        raise with_actual_value(error, call.map(spec_of)) from None
    return (out,)


def on_cpu_tensors(call: Tensors, attributes: Mapping[str, Any]) -> None:
    """Run the C library on torch tensors, into outs. For builds without the C++ registration."""
    launch(call, tuple(call.outs.values()), attributes)


# ---- sim and npu -----------------------------------------------------------------------------------


def on_sim(options: Options, call: Tensors, attributes: Mapping[str, Any]) -> Results:
    """Run the AscendC kernel on simulated cores, for arrays or CPU torch tensors without a gradient."""

    def check(call: Tensors) -> None:
        rules.check(call, {}, chip=sim.chip_of(options))

    def launch(call: Tensors, results: Results) -> None:
        launch_on_sim(options, call, results, attributes)

    return sim.run(options, call, check, launch, lambda call: (_zeros(call.first[1]),))


def _zeros(q: Any) -> Any:
    """Allocate the sums of tokens without elements, for which there is no launch."""
    out = new_sums(q)
    out[...] = 0
    return out


def launch_on_sim(options: Options, call: Tensors, results: Results, attributes: Mapping[str, Any]) -> None:
    """Launch the kernel for a call whose values were checked. A uint16 array holds bfloat16's bits.

    Raises:
        InvalidValue, InvalidType: the chip does not support the call; nothing was written.
    """
    rules.check_layout(call.map(sim.spec_of_launch), {}, sim.chip_of(options))
    q, k = readable_inputs(call).values()
    given = {"has_q": 0 not in q.shape, "has_k": 0 not in k.shape}
    # aclnn takes no tensor without elements.
    tensors = {"q": q if given["has_q"] else k, "k": k if given["has_k"] else q, "out": results[0]}
    sim.launch(options, call.op, call.op, tensors, given)


def on_npu(call: Tensors, attributes: Mapping[str, Any]) -> Results:
    """Run the call on the NPU for arrays, or for CPU torch tensors without a gradient."""

    def run_operator(xs: dict[str, Any], other_inputs: dict[str, Any], written: list[Any]) -> None:
        written[:] = [torch.ops.npu_rope.qk_square_sums.default(*xs.values())]

    def check(call: Tensors) -> None:
        rules.check(call, {})

    return npu.run(call, check, run_operator, new_results=lambda call: (new_sums(call.first[1]),))


run = sim.by_backend(on_reference, on_cpu, on_npu, on_sim)
