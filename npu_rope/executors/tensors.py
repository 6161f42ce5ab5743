"""Arrays and torch tensors for the executors: specs for the rules, copies of inputs that a kernel cannot read
in place, and the rounding of the reference's results.
"""

from __future__ import annotations

import ctypes as C
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


def is_tensor(value: Any) -> bool:
    """Return whether the value is a torch tensor."""
    return torch is not None and isinstance(value, torch.Tensor)


def require_tensor_like(op: str, name: str, value: Any) -> None:
    """Raise TypeError for a value that is neither an array nor a tensor."""
    if not is_tensor(value) and not (hasattr(value, "shape") and hasattr(value, "dtype")):
        raise bad_type(op, name, "be a torch tensor or a NumPy array", type(value).__name__)


def require_dense(op: str, name: str, tensor: Any) -> None:
    """Raise TypeError for a torch tensor that is sparse, nested or of mkldnn's layout."""
    if tensor.is_nested or tensor.layout != torch.strided:
        got = "a nested one" if tensor.is_nested else str(tensor.layout)
        raise bad_type(op, name, "be a dense tensor", got)


def require_no_negation(op: str, name: str, tensor: Any) -> None:
    """Raise ValueError for a tensor to write that torch negates lazily (``is_neg``)."""
    if tensor.is_neg():
        raise bad_value(op, name, "be written without a lazy negation", "a tensor with torch's bit for it")


# ---- specs for the rules ---------------------------------------------------------------------------


def spec_of(tensor: Any) -> TensorSpec:
    """Return the dtype, shape and strides of an array or a tensor, perhaps a fake one, for the rules."""
    if is_tensor(tensor):
        dtype = str(tensor.dtype).removeprefix("torch.")
        return TensorSpec(dtype, tuple(tensor.shape), tuple(tensor.stride()))
    size = max(tensor.dtype.itemsize, 1)
    return TensorSpec(native.dtype_name(tensor.dtype), tensor.shape, tuple(s // size for s in tensor.strides))


def with_actual_value(error: BrokenRule, call: CallTensors[TensorSpec]) -> BrokenRule:
    """Return an error of the C library with the value that the caller passed. The C struct cannot represent
    every dtype and every number of dimensions. If it does not represent the error's argument, the value of
    the returned error is the argument's dtype or shape."""
    spec = {**call.inputs(), **call.outs}.get(error.argument)
    if spec is None:
        return error
    if isinstance(error, InvalidType) and spec.dtype not in native.DTYPES:
        return broken(type(error), error.op, error.argument, error.rule, spec.dtype)
    if isinstance(error, InvalidValue) and len(spec.shape) > native.MAX_NDIM:
        return broken(type(error), error.op, error.argument, error.rule, spec.text())
    return error


def c_tensor(tensor: Any) -> native.CTensor:
    """Return the C struct of a torch tensor. (For an array: :func:`npu_rope.native.describe`.)"""
    spec = spec_of(tensor)
    return native.c_tensor(tensor.data_ptr(), spec.dtype, spec.shape, spec.strides)


def unpacked(call: Call, packed: Any) -> Any:
    """Return the attributes in a tensor, made by :func:`npu_rope.native.packed`, as a struct."""
    attribute_bytes, struct = packed.numpy().tobytes(), native.packed_type(call.entry)
    size = C.sizeof(struct)
    if packed.dim() != 1 or packed.dtype != torch.uint8 or len(attribute_bytes) != size:
        raise bad_value(call.op, "packed", f"be the {size} contiguous bytes of packed_call", "another tensor")
    return struct.from_buffer_copy(attribute_bytes)


# ---- accepted inputs -------------------------------------------------------------------------------


def as_arrays(call: Call) -> Call:
    """Return a call whose inputs are all arrays. Inputs other than xs are converted if NumPy can do so.

    Raises:
        TypeError, ValueError: one of xs or outs is not an array, an input cannot become one, or an output is
            read-only or not in the machine's byte order.
    """
    for named in (call.xs, call.outs):
        for name, array in named.items():
            if not isinstance(array, np.ndarray):
                like = "" if name == call.first[0] else f" like {call.first[0]}"
                raise bad_type(call.op, name, f"be a NumPy array{like}", type(array).__name__)
    for name, value in {**call.xs, **call.other_inputs, **call.outs}.items():
        if isinstance(value, np.ma.MaskedArray):  # the result would have no mask
            raise bad_type(call.op, name, "be an array without a mask", "a masked array")
    for name, out in call.outs.items():
        if not out.flags.writeable:
            raise bad_value(call.op, name, "be writeable", "a read-only array")
        if not out.dtype.isnative:
            raise bad_type(call.op, name, "be in the machine's byte order", out.dtype.str)
    if all(isinstance(value, np.ndarray) for value in call.other_inputs.values()):
        return call
    arrays = {name: _as_array(call.op, name, value) for name, value in call.other_inputs.items()}
    return replace(call, other_inputs=arrays)


def _as_array(op: str, name: str, value: Any) -> Array:
    if value is None:
        raise bad_type(op, name, "be an array", "NoneType")
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # a ragged list, or a tensor of a dtype that NumPy lacks
        got = type(value).__name__
        raise bad_type(op, name, "be convertible to a NumPy array", got) from None


def accepted_call(backend: str, call: Call) -> Call:
    """Return a call that the executors accept. Check that torch tensors are on the CPU and need no gradient.
    If the first tensor is an array, convert the other inputs to arrays."""
    if not is_tensor(call.first[1]):
        return as_arrays(call)
    check_tensors(backend, call)
    return call


def check_tensors(backend: str, call: Call) -> None:
    """Check that all tensors of a call are dense CPU torch tensors and that no gradient flows through
    them."""
    first, _ = call.first
    if torch._C._functorch.peek_interpreter_stack() is not None:
        rule = f"be outside torch.func for backend {backend}"
        raise bad_value(call.op, first, rule, "one of its transforms")
    for name, tensor in call.differentiable().items():
        if torch.is_grad_enabled() and is_tensor(tensor) and tensor.requires_grad:
            raise bad_value(call.op, name, f"not need a gradient for backend {backend}", "requires_grad")
    if torch.autograd.forward_ad._current_level >= 0:
        raise bad_value(call.op, first, f"be outside a dual level for backend {backend}", "one inside")
    for name, tensor in {**call.xs, **call.other_inputs, **call.outs}.items():
        if not is_tensor(tensor):
            raise bad_type(call.op, name, f"be a torch tensor like {first}", type(tensor).__name__)
        require_dense(call.op, name, tensor)
        if tensor.device.type != "cpu":
            raise bad_value(call.op, name, "be on device cpu for this backend", tensor.device)


# ---- inputs and results of kernels -----------------------------------------------------------------


def in_whole_elements(array: Array) -> bool:
    """Return whether an array is aligned and its strides are multiples of the element's size."""
    if array.flags.c_contiguous:
        return bool(array.flags.aligned)
    item = array.dtype.itemsize or 1
    return array.flags.aligned and all(s % item == 0 for s in array.strides)


def check_whole_elements(call: CallTensors[Array]) -> None:
    """Check the outputs: the C interface represents only strides that are multiples of the element's size."""
    for name, out in call.outs.items():
        if out.size and not in_whole_elements(out):
            rule = f"be aligned to its {out.itemsize}-byte elements"
            has_aligned_address = out.ctypes.data % out.dtype.alignment == 0
            got = "strides that are not" if has_aligned_address else "an address that is not"
            raise bad_value(call.op, name, rule, got)


def readable_array(array: Array, *, unit_stride: bool = True) -> Array:
    """Return the array itself, or a copy if the kernels cannot read it in place."""
    if not array.dtype.isnative:
        return array.astype(array.dtype.newbyteorder("="), order="C")
    if array.flags.c_contiguous:
        return array if array.flags.aligned else array.copy()
    needs_unit_stride = unit_stride and array.ndim > 0 and array.shape[-1] > 1
    is_readable = not needs_unit_stride or array.strides[-1] == array.dtype.itemsize
    return array if is_readable and in_whole_elements(array) else array.copy()


def readable_tensor(tensor: Any, *, unit_stride: bool = True) -> Any:
    """Return the tensor itself, or a copy if the kernels cannot read it in place."""
    tensor = tensor.detach().resolve_neg()
    needs_unit_stride = unit_stride and tensor.dim() > 0 and tensor.shape[-1] > 1
    is_readable = not needs_unit_stride or tensor.stride(-1) == 1
    return tensor if is_readable else tensor.contiguous()


# Inputs whose last stride need not be 1.
_ANY_STRIDE = ("positions", "rows", "slots", "freq_factors", "position_ids")


def readable_inputs(call: Call) -> dict[str, Any]:
    """Return all inputs of a call, by name, copied where the kernels cannot read them in place."""
    readable = readable_tensor if is_tensor(call.first[1]) else readable_array
    return {
        name: x if name in call.in_place else readable(x, unit_stride=name not in _ANY_STRIDE)
        for name, x in call.inputs().items()
    }


def empty_like(tensor: Any) -> Any:
    """Return a contiguous array or tensor of the same shape and dtype."""
    if is_tensor(tensor):
        return torch.empty_like(tensor, memory_format=torch.contiguous_format)
    return np.empty(tensor.shape, tensor.dtype.newbyteorder("="))


def array_of(tensor: Any) -> Array:
    """Return a torch tensor's memory as an array; for bfloat16, an array of its float32 values."""
    if not is_tensor(tensor):
        array: Array = np.asarray(tensor)  # the argument may be a numpy.matrix
        return array
    tensor = tensor.detach().resolve_neg()
    if tensor.dtype == torch.bfloat16:
        bits: npt.NDArray[np.uint16] = tensor.contiguous().view(torch.int16).numpy().view(np.uint16)
        return bfloat16_values(bits)
    array = tensor.numpy()
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


def rounded(call: Call, wide: tuple[npt.NDArray[np.float64], ...]) -> tuple[Any, ...]:
    """Round the reference's results to the dtypes of xs or a cache. Write them into outs if there are any."""
    if not call.outs:
        return tuple(round_to(y, x) for y, x in zip(wide, call.xs.values(), strict=True))
    for (name, out), y, x in zip(call.outs.items(), wide, call.xs.values(), strict=True):
        if name == "cache":
            rows = array_of(call.other_inputs["rows"]).ravel()
            _write_rows(out, rows, y.reshape(rows.size, *y.shape[-2:]))
        else:
            assign(out, round_to(y, x))
    return tuple(call.outs.values())


def _write_rows(cache: Any, rows: Array, tokens: Array) -> None:
    """Write the rounded tokens into the cache at their rows. Other rows keep their values."""
    used = rows >= 0
    indices = rows[used].astype(np.int64)
    with writing(cache):
        cache[torch.from_numpy(indices) if is_tensor(cache) else indices] = round_to(tokens[used], cache)


# ---- native code on arrays ------------------------------------------------------------------------------


def on_arrays(call: Call, launch: Callable[[Call, tuple[Any, ...]], None]) -> tuple[Any, ...]:
    """Run the C library on arrays, into outs or new arrays. ``launch`` calls a C function, which checks the
    call before it writes."""
    call = as_arrays(call)
    check_whole_elements(call)
    results = tuple(call.outs.values()) or tuple(empty_like(x) for x in call.xs.values())
    try:
        launch(call, results)
    except BrokenRule as error:
        raise with_actual_value(error, call.map(spec_of)) from None
    return results
