"""CPU views of device memory, and operators on the host as work of a stream."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

CPU = torch.device("cpu")
_npu: Any = vars(torch).get("npu")  # torch_npu adds it


def host_view(tensor: torch.Tensor) -> torch.Tensor:
    """Return a CPU tensor over the memory of a tensor on the simulated device."""
    storage = tensor.untyped_storage()
    memory = torch._C._construct_storage_from_data_pointer(storage.data_ptr(), CPU, storage.nbytes())
    view = torch.empty(0, dtype=tensor.dtype)
    view.set_(memory, tensor.storage_offset(), tensor.size(), tensor.stride())
    if tensor.is_complex() and tensor.is_conj():
        view = torch._conj(view)
    if tensor.is_neg():
        view = torch._neg_view(view)
    return view


def device_copy(result: torch.Tensor, device: torch.device, *, is_captured: bool = False) -> torch.Tensor:
    """Copy a CPU result to new device memory with the same strides. A capture only allocates the memory."""
    result = result.resolve_conj().resolve_neg()
    copy = torch.empty_strided(result.size(), result.stride(), dtype=result.dtype, device=device)
    if result.numel() and not is_captured:
        sizes_and_strides = zip(result.size(), result.stride(), strict=True)
        last_offset = sum((size - 1) * stride for size, stride in sizes_and_strides)
        ctypes.memmove(copy.data_ptr(), result.data_ptr(), (last_offset + 1) * result.element_size())
    return copy


def device_guard(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which this device is the current one, as in torch_npu's own kernels."""
    is_current = device.index in (None, _npu.current_device())
    return nullcontext() if is_current else _npu.device(device)


# The functions of graph nodes, by number. No function is ever removed: a graph may be replayed at any time.
_node_functions: list[Callable[[], None]] = []


def _run_node(number: int) -> int:
    try:
        with torch.no_grad():
            _node_functions[number]()
    except Exception as error:
        StreamWork._cann.simulated_cann_set_error(str(error).encode())
        return 1
    return 0


_c_run_node = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)(_run_node)


class StreamWork:
    """One operator on the host as work of the current stream: ``begin``, the operator, ``end``."""

    _cann: Any = None

    def __init__(self, name: str, device: torch.device) -> None:
        self.name = name.encode()
        self.access_words: list[int] = []  # the accesses, in the format of simulated_cann_host_kernel_end
        self.access_count = 0
        if StreamWork._cann is None:
            StreamWork._cann = ctypes.CDLL("libascend_sim_cann.so")
            StreamWork._cann.aclGetRecentErrMsg.restype = ctypes.c_char_p
        self.stream = ctypes.c_void_p(_npu.current_stream(device).npu_stream)

    def is_captured(self) -> bool:
        """Return whether the current stream is being captured."""
        return bool(self._cann.simulated_cann_is_capturing(self.stream))

    def begin(self) -> None:
        """Wait until the stream's earlier work is done."""
        self._check(self._cann.simulated_cann_host_kernel_begin(self.stream, self.name))

    def note(self, tensor: torch.Tensor, *, writes: bool) -> None:
        """Record that the operator reads or writes this device tensor."""
        if tensor.numel() == 0:
            return
        self.access_count += 1
        self.access_words += (tensor.data_ptr(), tensor.element_size(), int(writes), tensor.dim())
        self.access_words += tensor.size()
        self.access_words += tensor.stride()

    def end(self) -> None:
        """Report the operator and its accesses to the runtime after it has run."""
        words = (ctypes.c_int64 * max(1, len(self.access_words)))(*self.access_words)
        count = ctypes.c_int64(self.access_count)
        self._check(self._cann.simulated_cann_host_kernel_end(self.stream, self.name, words, count))

    def capture(self, run: Callable[[], None]) -> None:
        """Add ``run`` as a node to the graph being captured."""
        words = (ctypes.c_int64 * max(1, len(self.access_words)))(*self.access_words)
        _node_functions.append(run)
        number = ctypes.c_int64(len(_node_functions) - 1)
        count = ctypes.c_int64(self.access_count)
        capture = self._cann.simulated_cann_host_kernel_capture
        self._check(capture(self.stream, self.name, words, count, _c_run_node, number))

    def _check(self, status: int) -> None:
        if status:
            text = (self._cann.aclGetRecentErrMsg() or b"").decode(errors="backslashreplace")
            raise RuntimeError(f"{self.name.decode()}: error {status} of the stream. {text}")


def host_copy(view: torch.Tensor) -> torch.Tensor:
    """Return a copy of a CPU view with the same strides. Its storage ends at the view's last element."""
    last_offset = sum((size - 1) * stride for size, stride in zip(view.size(), view.stride(), strict=True))
    memory = torch.zeros(view.storage_offset() + max(0, last_offset) + 1, dtype=view.dtype)
    copied = memory.as_strided(view.size(), view.stride(), view.storage_offset())
    if view.numel():
        copied.copy_(view.resolve_conj().resolve_neg())
    return copied
