"""Arrays and torch tensors for the executors: specs for the rules, copies of inputs that a kernel cannot read
in place, and the rounding of the reference's results.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope import native
from npu_rope.call_tensors import CallTensors, TensorSpec
from npu_rope.dtypes import bfloat16_bits, bfloat16_values
from npu_rope.errors import BrokenRule, InvalidType, InvalidValue, bad_type, bad_value, broken
from npu_rope.optional_torch import torch

Array = npt.NDArray[Any]
Call = CallTensors[Any]


def is_tensor(t: Any) -> bool:
    """Return whether t is a torch tensor."""
    return torch is not None and isinstance(t, torch.Tensor)


def require_tensor_like(op: str, name: str, value: Any) -> None:
    """Raise TypeError for a value that is neither an array nor a tensor."""
    if not is_tensor(value) and not (hasattr(value, "shape") and hasattr(value, "dtype")):
        raise bad_type(op, name, "be a torch tensor or a NumPy array", type(value).__name__)


def require_dense(op: str, name: str, tensor: Any) -> None:
    """Raise TypeError for a torch tensor that is sparse, nested or of mkldnn's layout."""
    if tensor.is_nested or tensor.layout != torch.strided:
        got = "a nested one" if tensor.is_nested else str(tensor.layout)
        raise bad_type(op, name, "be a dense tensor", got)


# ---- specs for the rules ---------------------------------------------------------------------------


def spec_of(t: Any) -> TensorSpec:
    """Return the dtype, shape and strides of an array or a tensor, perhaps a fake one, for the rules."""
    if is_tensor(t):
        return TensorSpec(str(t.dtype).removeprefix("torch."), tuple(t.shape), tuple(t.stride()))
    size = max(t.dtype.itemsize, 1)
    return TensorSpec(native.dtype_name(t.dtype), t.shape, tuple(s // size for s in t.strides))


def with_actual_value(error: BrokenRule, t: CallTensors[TensorSpec]) -> BrokenRule:
    """Return an error of the C library. If its argument is a tensor with a dtype or a number of dimensions
    that the C struct cannot represent, the error's value becomes the actual dtype or shape."""
    spec = {**t.inputs(), **t.outs}.get(error.argument)
    if spec is None:
        return error
    if isinstance(error, InvalidType) and spec.dtype not in native.DTYPES:
        return broken(type(error), error.op, error.argument, error.rule, spec.dtype)
    if isinstance(error, InvalidValue) and len(spec.shape) > native.MAX_NDIM:
        return broken(type(error), error.op, error.argument, error.rule, spec.text())
    return error


def c_tensor(t: Any) -> native.CTensor:
    """Return the C struct of a torch tensor. (For an array: :func:`npu_rope.native.describe`.)"""
    spec = spec_of(t)
    return native.c_tensor(t.data_ptr(), spec.dtype, spec.shape, spec.strides)


# ---- accepted inputs -------------------------------------------------------------------------------


def as_arrays(t: Call) -> Call:
    """Return a call whose inputs are all arrays. Inputs other than xs are converted if NumPy can do so.

    Raises:
        TypeError, ValueError: one of xs or outs is not an array, an input cannot become one, or an output is
            read-only or not in the machine's byte order.
    """
    for named in (t.xs, t.outs):
        for name, array in named.items():
            if not isinstance(array, np.ndarray):
                like = "" if name == t.first[0] else f" like {t.first[0]}"
                raise bad_type(t.op, name, f"be a NumPy array{like}", type(array).__name__)
    for name, out in t.outs.items():
        if not out.flags.writeable:
            raise bad_value(t.op, name, "be writeable", "a read-only array")
        if not out.dtype.isnative:
            raise bad_type(t.op, name, "be in the machine's byte order", out.dtype.str)
    if all(isinstance(value, np.ndarray) for value in t.other_inputs.values()):
        return t
    return replace(t, other_inputs={name: _as_array(t.op, name, b) for name, b in t.other_inputs.items()})


def _as_array(op: str, name: str, value: Any) -> Array:
    if value is None:
        raise bad_type(op, name, "be an array", "NoneType")
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # a ragged list, or a tensor of a dtype that NumPy lacks
        got = type(value).__name__
        raise bad_type(op, name, "be something NumPy makes an array of", got) from None


def accepted_call(backend: str, t: Call) -> Call:
    """Check and return a call on CPU torch tensors without a gradient, or a call on arrays."""
    if not is_tensor(t.first[1]):
        return as_arrays(t)
    check_tensors(backend, t)
    return t


def check_tensors(backend: str, t: Call) -> None:
    """Check that all tensors of a call are dense CPU torch tensors and that no gradient flows through
    them."""
    first, _ = t.first
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise bad_value(t.op, first, f"be outside torch.func for backend {backend}", "one of its transforms")
    for name, tensor in t.differentiable().items():
        if torch.is_grad_enabled() and is_tensor(tensor) and tensor.requires_grad:
            raise bad_value(t.op, name, f"not need a gradient for backend {backend}", "requires_grad")
    if torch.autograd.forward_ad._current_level >= 0:
        raise bad_value(t.op, first, f"be outside a dual level for backend {backend}", "one inside")
    for name, tensor in {**t.xs, **t.other_inputs, **t.outs}.items():
        if not is_tensor(tensor):
            raise bad_type(t.op, name, f"be a torch tensor like {first}", type(tensor).__name__)
        require_dense(t.op, name, tensor)
        if tensor.device.type != "cpu":
            raise bad_value(t.op, name, "be on device cpu for this backend", tensor.device)


# ---- inputs and results of kernels -----------------------------------------------------------------


def in_whole_elements(a: Array) -> bool:
    """Return whether an array is aligned and its strides are multiples of the element's size."""
    if a.flags.c_contiguous:
        return bool(a.flags.aligned)
    item = a.dtype.itemsize or 1
    return a.flags.aligned and all(s % item == 0 for s in a.strides)


def check_whole_elements(t: CallTensors[Array]) -> None:
    """Check the outputs: the C interface represents only strides that are multiples of the element's size."""
    for name, out in t.outs.items():
        if out.size and not in_whole_elements(out):
            rule = f"be aligned to its {out.itemsize}-byte elements"
            raise bad_value(t.op, name, rule, "an address that is not")


def readable_array(a: Array, *, unit_stride: bool = True) -> Array:
    """Return the array itself, or a copy if the kernels cannot read it in place."""
    if not a.dtype.isnative:
        return a.astype(a.dtype.newbyteorder("="), order="C")
    if a.flags.c_contiguous:
        return a if a.flags.aligned else a.copy()
    unit = not unit_stride or a.ndim == 0 or a.shape[-1] <= 1 or a.strides[-1] == a.dtype.itemsize
    return a if unit and in_whole_elements(a) else a.copy()


def readable_tensor(t: Any, *, unit_stride: bool = True) -> Any:
    """Return the tensor itself, or a copy if the kernels cannot read it in place."""
    t = t.detach().resolve_neg()
    unit = not unit_stride or t.dim() == 0 or t.shape[-1] <= 1 or t.stride(-1) == 1
    return t if unit else t.contiguous()


# Inputs whose last stride need not be 1.
_ANY_STRIDE = ("positions", "rows", "freq_factors", "position_ids")


def readable_inputs(t: Call) -> dict[str, Any]:
    """Return all inputs of a call, by name, copied where the kernels cannot read them in place."""
    readable = readable_tensor if is_tensor(t.first[1]) else readable_array
    return {
        name: x if name in t.in_place else readable(x, unit_stride=name not in _ANY_STRIDE)
        for name, x in t.inputs().items()
    }


def empty_like(t: Any) -> Any:
    """Return a contiguous array or tensor of the same shape and dtype."""
    if is_tensor(t):
        return torch.empty_like(t, memory_format=torch.contiguous_format)
    return np.empty(t.shape, t.dtype.newbyteorder("="))


def array_of(t: Any) -> Array:
    """Return a torch tensor's memory as an array; for bfloat16, an array of its float32 values."""
    if not is_tensor(t):
        array: Array = np.asarray(t)  # t may be a numpy.matrix
        return array
    t = t.detach().resolve_neg()
    if t.dtype == torch.bfloat16:
        bits: npt.NDArray[np.uint16] = t.contiguous().view(torch.int16).numpy().view(np.uint16)
        return bfloat16_values(bits)
    array = t.numpy()
    return array


def round_to(values: npt.NDArray[np.float64], like: Any) -> Any:
    """Round values once to the dtype of ``like``. The result is an array or a tensor, as ``like`` is."""
    name = spec_of(like).dtype
    if name == "bfloat16":
        bits = bfloat16_bits(values)
        if is_tensor(like):
            return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)
        return bits.view(like.dtype)
    with np.errstate(over="ignore", under="ignore"):
        rounded = values.astype(name)
    return torch.from_numpy(rounded) if is_tensor(like) else rounded


def assign(out: Any, y: Any) -> None:
    """Write y into out, which is an array or a tensor as y is."""
    with writing(out):
        out[...] = y


def writing(out: Any) -> AbstractContextManager[Any]:
    """Return the context in which out may be written: torch rejects writes to an inference tensor outside of
    inference mode, but only after it has written."""
    return torch.inference_mode() if is_tensor(out) and out.is_inference() else nullcontext()


def rounded(t: Call, wide: tuple[npt.NDArray[np.float64], ...]) -> tuple[Any, ...]:
    """Round the reference's results to the dtypes of xs or a cache. Write them into outs if there are any."""
    if not t.outs:
        return tuple(round_to(y, x) for y, x in zip(wide, t.xs.values(), strict=True))
    for (name, out), y, x in zip(t.outs.items(), wide, t.xs.values(), strict=True):
        if name == "cache":
            rows = array_of(t.other_inputs["rows"]).ravel()
            _write_rows(out, rows, y.reshape(rows.size, *y.shape[-2:]))
        else:
            assign(out, round_to(y, x))
    return tuple(t.outs.values())


def _write_rows(cache: Any, rows: Array, tokens: Array) -> None:
    """Write the rounded tokens into the cache at their rows. Other rows keep their values."""
    used = rows >= 0
    indices = rows[used].astype(np.int64)
    with writing(cache):
        cache[torch.from_numpy(indices) if is_tensor(cache) else indices] = round_to(tokens[used], cache)


# ---- native code on arrays ------------------------------------------------------------------------------


def on_arrays(t: Call, launch: Callable[[Call, tuple[Any, ...]], None]) -> tuple[Any, ...]:
    """Run the C library on arrays, into outs or new arrays. ``launch`` calls it; it checks the call first."""
    t = as_arrays(t)
    check_whole_elements(t)
    results = tuple(t.outs.values()) or tuple(empty_like(x) for x in t.xs.values())
    try:
        launch(t, results)
    except BrokenRule as error:
        raise with_actual_value(error, t.map(spec_of)) from None
    return results
