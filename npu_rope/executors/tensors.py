"""Arrays and torch tensors as the executors meet them: what the rules see of them, the copies that
are made where a kernel cannot read them as they lie, and the rounding of what the reference gives.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from npu_rope import native
from npu_rope.checks import CallTensors, TensorSpec, check_aligned
from npu_rope.dtypes import bfloat16_bits, bfloat16_values
from npu_rope.errors import bad_type, bad_value
from npu_rope.optional_torch import torch
from npu_rope.strided import StridedView

Array = npt.NDArray[Any]
C = TypeVar("C", bound=CallTensors[Any])


def is_tensor(t: Any) -> bool:
    """It is a torch tensor."""
    return torch is not None and isinstance(t, torch.Tensor)


def require_tensor_like(op: str, name: str, value: Any) -> None:
    """TypeError for what is neither an array nor a tensor."""
    if not is_tensor(value) and not (hasattr(value, "shape") and hasattr(value, "dtype")):
        raise bad_type(op, f"{name} must be a torch tensor or a NumPy array but got {type(value).__name__}.")


def require_dense(op: str, name: str, tensor: Any) -> None:
    """TypeError for a torch tensor of another layout: sparse, of mkldnn, nested."""
    if tensor.is_nested or tensor.layout != torch.strided:
        got = "a nested one" if tensor.is_nested else str(tensor.layout)
        raise bad_type(op, f"{name} must be a dense tensor but got {got}.")


# ---- what the rules see ----------------------------------------------------------------------------


def spec_of_array(a: Array) -> TensorSpec:
    """What the rules need to know of an array."""
    size = max(a.dtype.itemsize, 1)
    return TensorSpec(a.dtype.name, a.shape, tuple(s // size for s in a.strides))


def spec_of_tensor(t: Any) -> TensorSpec:
    """What the rules need to know of a torch tensor, fake ones included."""
    return TensorSpec(str(t.dtype).removeprefix("torch."), tuple(t.shape), tuple(t.stride()))


def spec_of(t: Any) -> TensorSpec:
    """What the rules need to know of either."""
    return spec_of_tensor(t) if is_tensor(t) else spec_of_array(t)


def view_of(t: Any) -> StridedView:
    """Which memory either touches."""
    if not is_tensor(t):
        return StridedView(t.ctypes.data, max(t.dtype.itemsize, 1), t.shape, t.strides)
    item = t.element_size()
    return StridedView(t.data_ptr(), item, tuple(t.shape), tuple(s * item for s in t.stride()))


def c_tensor(t: Any) -> native.CTensor:
    """A torch tensor as the C interface sees it. (An array: :func:`npu_rope.native.describe`.)"""
    spec = spec_of_tensor(t)
    return native.c_tensor(t.data_ptr(), spec.dtype, spec.shape, spec.strides)


# ---- what a call may be given ----------------------------------------------------------------------


def as_arrays(t: C) -> C:
    """A call on arrays, where positions, rows and factors may be anything NumPy makes an array of.

    Raises:
        TypeError, ValueError: something is no array, or may not be written.
    """
    for named in (t.xs, t.outs):
        for name, array in named.items():
            if not isinstance(array, np.ndarray):
                like = "" if name == t.first[0] else f" like {t.first[0]}"
                raise bad_type(t.op, f"{name} must be a NumPy array{like} but got {type(array).__name__}.")
    for name, out in t.outs.items():
        _check_writeable(t.op, name, out)
    for value in t.beside().values():
        if not isinstance(value, np.ndarray):
            arrays = {name: _as_array(t.op, name, b) for name, b in t.beside().items()}
            changed: C = t.with_beside(**arrays)
            return changed
    return t


def _as_array(op: str, name: str, value: Any) -> Array:
    if value is None:
        raise bad_type(op, f"{name} must be an array but got NoneType.")
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # ragged; a tensor of a type NumPy does not have
        got = type(value).__name__
        raise bad_type(op, f"{name} must be something NumPy makes an array of but got {got}.") from None


def taken(backend: str, t: C) -> C:
    """A call on torch tensors of the CPU without gradient, or on arrays."""
    if not is_tensor(t.first[1]):
        return as_arrays(t)
    check_tensors(backend, t)
    return t


def _check_writeable(op: str, name: str, out: Array) -> None:
    if not out.flags.writeable:
        raise bad_value(op, f"{name} must be writeable but got a read-only array.")
    if not out.dtype.isnative:
        raise bad_type(op, f"{name} must be in the machine's byte order but got {out.dtype.str}.")


def check_tensors(backend: str, t: CallTensors[Any]) -> None:
    """A call on torch tensors of the CPU through which no gradient flows."""
    first, _ = t.first
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise bad_value(
            t.op, f"{first} must be outside torch.func for backend {backend} but got one of its transforms."
        )
    for name, tensor in t.differentiable().items():
        if torch.is_grad_enabled() and is_tensor(tensor) and tensor.requires_grad:
            raise bad_value(
                t.op, f"{name} must not need a gradient for backend {backend} but got requires_grad."
            )
    if torch.autograd.forward_ad._current_level >= 0:
        raise bad_value(
            t.op, f"{first} must be outside a dual level for backend {backend} but got one inside."
        )
    for name, tensor in {**t.xs, **t.beside(), **t.outs}.items():
        if not is_tensor(tensor):
            raise bad_type(
                t.op, f"{name} must be a torch tensor like {first} but got {type(tensor).__name__}."
            )
        require_dense(t.op, name, tensor)
        if tensor.device.type != "cpu":
            raise bad_value(t.op, f"{name} must be on device cpu for this backend but got {tensor.device}.")


# ---- what a kernel reads, and what it leaves -------------------------------------------------------


def in_whole_elements(a: Array) -> bool:
    """Address and strides are multiples of the element's size."""
    if a.flags.c_contiguous:
        return bool(a.flags.aligned)
    item = a.dtype.itemsize or 1
    return a.flags.aligned and all(s % item == 0 for s in a.strides)


def check_whole_elements(t: CallTensors[Array]) -> None:
    """Of what is written: strides that are not cannot even be said to the C library."""
    for name, out in t.outs.items():
        if not in_whole_elements(out):
            check_aligned(name, view_of(out), op=t.op)


def readable_array(a: Array, *, unit_stride: bool = True) -> Array:
    """The array itself, or a copy where the kernels cannot read it in place."""
    if not a.dtype.isnative:
        return a.astype(a.dtype.newbyteorder("="), order="C")
    unit = not unit_stride or a.ndim == 0 or a.shape[-1] <= 1 or a.strides[-1] == a.dtype.itemsize
    return a if unit and in_whole_elements(a) else a.copy()


def readable_tensor(t: Any, *, unit_stride: bool = True) -> Any:
    """The tensor itself, or a copy where the kernels cannot read it in place."""
    t = t.detach().resolve_neg()
    unit = not unit_stride or t.dim() == 0 or t.shape[-1] <= 1 or t.stride(-1) == 1
    return t if unit else t.contiguous()


def empty_like(t: Any) -> Any:
    """A contiguous array or tensor of the same shape and dtype."""
    if is_tensor(t):
        return torch.empty_like(t, memory_format=torch.contiguous_format)
    return np.empty(t.shape, t.dtype.newbyteorder("="))


def array_of(t: Any) -> Array:
    """A torch tensor's memory as an array; bfloat16 as the float32 values it stands for."""
    if not is_tensor(t):
        array: Array = np.asarray(t)  # of a matrix, too
        return array
    t = t.detach().resolve_neg()
    if t.dtype == torch.bfloat16:
        bits: npt.NDArray[np.uint16] = t.contiguous().view(torch.int16).numpy().view(np.uint16)
        return bfloat16_values(bits)
    array = t.numpy()
    return array


def round_to(values: npt.NDArray[np.float64], like: Any) -> Any:
    """Rounded once to like's dtype, as an array or a tensor as like is."""
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
    """y into given memory of its kind."""
    with writing(out):
        out[...] = y


def writing(out: Any) -> AbstractContextManager[Any]:
    """Where out may be written: torch writes an inference tensor, and then says that it must not be."""
    return torch.inference_mode() if is_tensor(out) and out.is_inference() else nullcontext()


def rounded(t: CallTensors[Any], wide: tuple[npt.NDArray[np.float64], ...]) -> tuple[Any, ...]:
    """The reference's results rounded to their tensors' dtypes: written where outs were given, or new."""
    results = tuple(round_to(y, x) for y, x in zip(wide, t.xs.values(), strict=True))
    for out, y in zip(t.outs.values(), results, strict=False):
        assign(out, y)
    return tuple(t.outs.values()) or results


# ---- native code on arrays ------------------------------------------------------------------------------


def on_arrays(
    t: C, launch: Callable[[C, tuple[Any, ...]], None], check: Callable[[C], None]
) -> tuple[Any, ...]:
    """A C library's launch on arrays, into outs or new ones. It checks first; ``check`` has the words for
    what it cannot say: the names of dtypes it does not take, and more than four sizes."""
    t = as_arrays(t)
    check_whole_elements(t)
    results = tuple(t.outs.values()) or tuple(empty_like(x) for x in t.xs.values())
    try:
        launch(t, results)
    except (ValueError, TypeError):
        check(t)
        raise
    return results
