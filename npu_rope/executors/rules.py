"""Check calls by the rules of ``csrc/core``, which the C library applies (``npu_rope_check``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from npu_rope import native
from npu_rope.call_tensors import CallTensors, TensorSpec
from npu_rope.errors import BrokenRule
from npu_rope.executors.tensors import (
    c_tensor,
    check_whole_elements,
    is_tensor,
    readable_inputs,
    spec_of,
    with_actual_value,
)
from npu_rope.values import Known


def check(
    call: CallTensors[Any],
    arguments: Mapping[str, Any],
    read: Callable[[CallTensors[Any]], dict[str, Any]] | None = None,
    chip: str | None = None,
    known: Known = "values",
) -> None:
    """Check every rule of a call on arrays or tensors.

    Args:
        call: the call. Outputs that it lacks are not checked.
        arguments: the attributes that csrc/core checks, by name (:meth:`npu_rope.native.Native.check`).
        read: returns the inputs as the kernels read them, by name; by default :func:`.readable_inputs`.
        chip: CANN's name of a chip whose kernels must support the call; None: any back end.
        known: what may be read: ``"values"``, or ``"addresses"`` for tensors of another device than the CPU.

    Raises:
        InvalidValue, InvalidType: an argument breaks its rule.
    """
    tensors = is_tensor(call.first[1])
    if not tensors:
        check_whole_elements(call)
    as_c = c_tensor if tensors else native.describe
    # `sources` keeps the copies in memory until the check ends.
    sources = readable_inputs(call) if read is None else read(call)
    inputs = {name: as_c(source) for name, source in sources.items()}
    outs = {name: as_c(out) for name, out in call.outs.items()}
    _check_by_c(call, lambda: call.map(spec_of), known, inputs, outs, {**arguments, "chip": chip})


def check_layout(
    call: CallTensors[TensorSpec], arguments: Mapping[str, Any], chip: str | None = None
) -> None:
    """Check the rules that need neither an element's value nor an address. A call with symbolic sizes is not
    checked: the operator checks it when it runs. ``chip`` as in :func:`check`.

    Raises:
        InvalidValue, InvalidType: an argument breaks its rule.
    """
    if has_symbolic_sizes(call):
        return
    # Only an in-place input keeps its strides: the kernels can read any other one from a contiguous copy.
    read = {
        name: _without_memory(spec, spec.strides if name in call.in_place else contiguous(spec.shape))
        for name, spec in call.inputs().items()
    }
    written = {name: _without_memory(out, out.strides) for name, out in call.outs.items()}
    _check_by_c(call, lambda: call, "layout", read, written, {**arguments, "chip": chip})


def has_symbolic_sizes(call: CallTensors[TensorSpec]) -> bool:
    """Return whether a size or a stride of the call is symbolic, because a trace leaves it unknown."""
    specs = *call.inputs().values(), *call.outs.values()
    return not all(type(n) is int for spec in specs for n in (*spec.shape, *spec.strides))


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _without_memory(spec: TensorSpec, strides: tuple[int, ...]) -> native.CTensor:
    return native.c_tensor(0, spec.dtype, spec.shape, strides)


def _check_by_c(
    call: CallTensors[Any],
    specs: Callable[[], CallTensors[TensorSpec]],
    known: Known,
    inputs: Mapping[str, native.CTensor],
    outs: Mapping[str, native.CTensor],
    arguments: Mapping[str, Any],
) -> None:
    """Check a call by :meth:`npu_rope.native.Native.check`. An error has the actual dtype or shape."""
    try:
        native.load().check(call.entry, *call.in_c_order(inputs, outs), known, **arguments)
    except BrokenRule as error:
        raise with_actual_value(error, specs()) from None
