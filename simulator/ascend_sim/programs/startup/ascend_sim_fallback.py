"""Host fallback: run on the host each operator of torch that has no stand-in.

Simulated device memory is host memory, so torch's own CPU kernel can use an operator's tensors in place.
:func:`install` replaces torch_npu's kernels in the dispatcher, except those of :data:`KEPT`. The replacement
is torch's decomposition into other operators if there is one, else a kernel that

1. runs the earlier work of the current stream, and the work of other streams for which that work waits,
2. makes CPU tensors over the same memory, with the same storage, offset and strides, so that views and
   in-place writes keep their meaning,
3. runs the CPU kernel,
4. copies new results into device memory; a result that is one of the arguments stays that argument, and
5. reports to the runtime which memory it has read and written, as work of the current stream, so that races
   with other streams are found.

During the capture of a graph (``torch.npu.graph``) an operator does not run: it becomes a node that runs
the CPU kernel at each replay, on the same memory. An operator that would wait for the device fails as in
CANN.

Random numbers come from the NPU generator's seed and offset, so that seeds, states and checkpoints work;
an NPU draws other numbers. The fallback counts every operator that it runs.
"""

from __future__ import annotations

import atexit
import collections
import json
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import ascend_sim_atb  # type: ignore[import-not-found]
import ascend_sim_types  # type: ignore[import-not-found]
import torch
from ascend_sim_generators import (  # type: ignore[import-not-found]
    host_generator,
    next_seed,
)
from ascend_sim_stream_work import (  # type: ignore[import-not-found]
    CPU,
    StreamWork,
    device_copy,
    device_guard,
    host_copy,
    host_view,
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OVERLOADS = (".Tensor", ".Scalar", "_.Tensor", "_.Scalar")

# Operators whose torch_npu kernels work on the simulated runtime: those of memory and metadata, and those
# whose aclnn functions libascend_sim_cann implements. A name without an overload includes all overloads.
KEPT = _words(
    """
    empty empty_like empty_strided empty_with_format empty_with_swapped_memory unsafe_empty_with_format
    new_empty_strided resize_ resize_as_ set_ as_strided as_strided_ view _reshape_alias unfold squeeze
    unsqueeze view_as_real view_as_complex copy_ copy_memory_ _copy_from_and_resize _to_copy _lazy_clone
    clone contiguous _local_scalar_dense is_pinned _pin_memory is_set_to record_stream get_storage_size
    get_npu_format zero_ one_ ones zeros fill_ full ones_like _npu_dtype_cast _npu_dtype_cast_backward
    neg neg_ arange arange.start arange.start_step arange.start_out
    """
)
KEPT |= {op + overload for op in _words("add sub mul div") for overload in (*_OVERLOADS, ".out")}
KEPT |= {
    op + overload
    for op in _words("eq ne lt le gt ge")
    for overload in (*_OVERLOADS, ".Tensor_out", ".Scalar_out")
}

# Operators that accept CPU tensors beside tensors on the device.
ACCEPT_CPU_TENSORS = _words(
    """
    index index_put index_put_ _index_put_impl_ _unsafe_index _unsafe_index_put _pack_padded_sequence
    _pad_packed_sequence _ctc_loss _ctc_loss_backward
    """
)

_npu: Any = vars(torch).get("npu")  # torch_npu adds it
_Library: Any = torch.library.Library

counts: collections.Counter[str] = collections.Counter()
_libraries: list[Any] = []  # a Library removes its kernels when it is freed
_counts_lock = threading.Lock()
_random_lock = threading.RLock()


# ---- one operator -----------------------------------------------------------------------------------


class HostKernel:
    """The kernel of one operator on PrivateUse1 that runs it on the CPU, or runs `function` instead of it."""

    def __init__(self, op: torch._ops.OpOverload, function: Callable[..., Any] | None = None) -> None:
        self.op = op
        self.function = function or op
        self.name = str(op)
        schema = op._schema
        self.arguments = schema.arguments
        self.by_name = {argument.name: argument for argument in schema.arguments}
        self.accepts_cpu_tensors = schema.name.split("::")[1] in ACCEPT_CPU_TENSORS
        self.generator_name = next((a.name for a in schema.arguments if "Generator" in str(a.type)), None)
        self.is_random = self.generator_name is not None or torch.Tag.nondeterministic_seeded in op.tags

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the operator; the dispatcher passes positional arguments, then the keyword-only ones."""
        call = _FallbackCall(self)
        host_args = [call.to_host(value, arg) for value, arg in zip(args, self.arguments, strict=False)]
        host_kwargs = {name: call.to_host(value, self.by_name[name]) for name, value in kwargs.items()}
        device = call.device or _device_of(kwargs)
        call.check_devices()
        with device_guard(device):
            return self._run(call, host_args, host_kwargs, device)

    def _run(
        self, call: _FallbackCall, host_args: list[Any], host_kwargs: dict[str, Any], device: torch.device
    ) -> Any:
        work = StreamWork(self.name, device)
        if work.is_captured():
            return self._capture(call, work, host_args, host_kwargs, device)
        work.begin()
        with _counts_lock:
            counts[self.name] += 1
        if self.is_random:
            results = self._run_random(host_args, host_kwargs, device)
        else:
            results = self.function(*host_args, **host_kwargs)
        call.write_outs()
        on_device = call.to_device(results, device)
        call.note_accesses(work, on_device)
        work.end()
        return on_device

    def _capture(
        self,
        call: _FallbackCall,
        work: StreamWork,
        args: list[Any],
        kwargs: dict[str, Any],
        device: torch.device,
    ) -> Any:
        """Make the operator a graph node. A run on copies of the arguments gives its results' shapes."""
        # The shape of x[index] depends on the contents only if an index is a mask.
        has_mask = any(view.dtype in (torch.bool, torch.uint8) for _, view in call.inputs)
        is_dynamic = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & set(self.op.tags)
        if is_dynamic and (has_mask or self.name != "aten.index.Tensor"):
            work.begin()  # waits for the device, which fails in a capture
        if self.is_random:
            raise RuntimeError(
                f"{self.name} draws random numbers on the host: it cannot be captured (simulated)"
            )
        trial = call.on_copies(args, kwargs)
        trial_results = self.function(*trial.args, **trial.kwargs)
        on_device = trial.call.to_device(trial_results, device)
        call.note_accesses(work, on_device)
        result_views = _fixed_views(on_device)
        out_views = _fixed_views([tensor for tensor, _ in call.outs])

        def replay() -> None:
            with _counts_lock:
                counts[self.name] += 1
            results = self.function(*args, **kwargs)
            _write_all(_tensors_of(results), result_views)
            _write_all([cpu_out for _, cpu_out in call.outs], out_views)

        work.capture(replay)
        call.forget_device_tensors()
        return on_device

    def _run_random(self, args: list[Any], kwargs: dict[str, Any], device: torch.device) -> Any:
        with _random_lock:
            if self.generator_name is None:
                host_state = torch.get_rng_state()
                try:
                    torch.default_generator.manual_seed(next_seed(None, device))
                    return self.function(*args, **kwargs)
                finally:
                    torch.set_rng_state(host_state)
            position = next(i for i, a in enumerate(self.arguments) if a.name == self.generator_name)
            if position < len(args):
                args = [*args]
                args[position] = host_generator(args[position], device)
            else:
                kwargs[self.generator_name] = host_generator(kwargs.get(self.generator_name), device)
            return self.function(*args, **kwargs)


class _FallbackCall:
    """One call's arguments on the device and on the host."""

    def __init__(self, kernel: HostKernel) -> None:
        self.kernel = kernel
        self.device: torch.device | None = None
        self.other_device: torch.device | None = None  # of another tensor, if the tensors' devices differ
        self.inputs: list[tuple[torch.Tensor, torch.Tensor]] = []  # device tensor, CPU view of its memory
        self.written: list[torch.Tensor] = []  # device tensors of the inputs that are written
        self.outs: list[tuple[torch.Tensor, torch.Tensor]] = []  # out= on the device, CPU tensor to fill
        self.cpu_tensor: torch.Tensor | None = None
        self.is_captured = False

    def to_host(self, value: Any, argument: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value, argument)
        if isinstance(value, (list, tuple)):
            return [self.to_host(item, argument) for item in value]
        if isinstance(value, torch.device):
            return CPU if value.type == "npu" else value
        if argument.name == "pin_memory":
            return None
        return value

    def _tensor(self, tensor: torch.Tensor, argument: Any) -> torch.Tensor:
        if tensor.device.type != "npu":
            if tensor.dim() and tensor.device.type == "cpu":
                self.cpu_tensor = tensor
            return tensor
        self.device = self.device or tensor.device
        if tensor.device != self.device:
            self.other_device = tensor.device
        if argument.is_out:
            # Separate memory, because out= may be resized, and memory under a view cannot.
            cpu_out = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
            self.outs.append((tensor, cpu_out))
            return cpu_out
        ascend_sim_types.check(self.kernel.name, argument.name, tensor.dtype)
        view: torch.Tensor = host_view(tensor)
        self.inputs.append((tensor, view))
        if argument.alias_info is not None and argument.alias_info.is_write:
            self.written.append(tensor)
        return view

    def check_devices(self) -> None:
        other = self.other_device
        if self.cpu_tensor is not None and self.device is not None and not self.kernel.accepts_cpu_tensors:
            other = CPU
        if other is not None:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, "
                f"{self.device} and {other}! (when checking arguments of {self.kernel.name}, simulated)"
            )

    def write_outs(self) -> None:
        for tensor, cpu_out in self.outs:
            if tensor.size() != cpu_out.size():
                tensor.resize_(cpu_out.size())
            host_view(tensor).copy_(cpu_out)

    def on_copies(self, args: list[Any], kwargs: dict[str, Any]) -> _Trial:
        """Return this call on copies of its arguments. In a capture, their contents are undefined. The copies
        have integers that are valid as indices and as divisors."""
        copies: dict[int, torch.Tensor] = {}

        def copied(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return type(value)(copied(item) for item in value)
            return copies.get(id(value), value) if isinstance(value, torch.Tensor) else value

        trial = _FallbackCall(self.kernel)
        trial.device, trial.is_captured = self.device, True
        for device_tensor, view in self.inputs:
            copies[id(view)] = copy = host_copy(view)
            if not (view.is_floating_point() or view.is_complex()):
                copy.fill_(_harmless_integer(self.kernel.op))
            trial.inputs.append((device_tensor, copies[id(view)]))
        for device_tensor, cpu_out in self.outs:
            copies[id(cpu_out)] = torch.empty_strided(cpu_out.size(), cpu_out.stride(), dtype=cpu_out.dtype)
            trial.outs.append((device_tensor, copies[id(cpu_out)]))
        return _Trial(trial, copied(args), {name: copied(value) for name, value in kwargs.items()})

    def forget_device_tensors(self) -> None:
        """Drop the device tensors: as on the device, a graph does not keep its arguments' memory alive."""
        self.inputs = [(view, view) for _, view in self.inputs]
        self.outs = [(cpu_out, cpu_out) for _, cpu_out in self.outs]
        self.written = []

    def note_accesses(self, work: StreamWork, results: Any) -> None:
        """Report each input as read or written, and out= arguments and new results as written."""
        for tensor, _ in self.inputs:
            work.note(tensor, writes=any(tensor is written for written in self.written))
        for tensor, _ in self.outs:
            work.note(tensor, writes=True)
        for result in results if isinstance(results, (list, tuple)) else [results]:
            if isinstance(result, torch.Tensor) and result.device.type == "npu":
                work.note(result, writes=not self._is_argument(result))

    def _is_argument(self, result: torch.Tensor) -> bool:
        address = result.untyped_storage().data_ptr()
        arguments = (*self.inputs, *self.outs)
        return any(tensor.untyped_storage().data_ptr() == address for tensor, _ in arguments)

    def to_device(self, result: Any, device: torch.device) -> Any:
        """Return the operator's result on the device. A result that is an argument stays that argument."""
        if isinstance(result, (list, tuple)):
            return type(result)(self.to_device(item, device) for item in result)
        if not isinstance(result, torch.Tensor):
            return result
        for tensor, host in (*self.inputs, *self.outs):
            if host is result:
                return tensor
        address = result.untyped_storage().data_ptr()
        for tensor, view in self.inputs:
            if address and address == view.untyped_storage().data_ptr() and view.dtype == result.dtype:
                return torch.as_strided(tensor, result.size(), result.stride(), result.storage_offset())
        return device_copy(result, device, is_captured=self.is_captured)


class _Trial(NamedTuple):
    """A call on copies of its arguments."""

    call: _FallbackCall
    args: list[Any]
    kwargs: dict[str, Any]


def _harmless_integer(op: torch._ops.OpOverload) -> int:
    """Return an integer that the operator takes in each integer argument: 0 as an index, 1 as a divisor."""
    return int(torch.Tag.pointwise in op.tags or op._schema.name.startswith("aten::floor_divide"))


def _tensors_of(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (list, tuple)) else [results]


def _fixed_views(results: Any) -> list[torch.Tensor | None]:
    """Return CPU views of the results' memory, which do not keep the results alive."""
    return [
        host_view(result) if isinstance(result, torch.Tensor) and result.device.type == "npu" else None
        for result in _tensors_of(results)
    ]


def _write_all(results: list[Any], views: list[torch.Tensor | None]) -> None:
    for result, view in zip(results, views, strict=True):
        if view is not None and result.data_ptr() != view.data_ptr():
            view.copy_(result)


def _device_of(kwargs: dict[str, Any]) -> torch.device:
    device = kwargs.get("device")
    if device is None or device.index is None:
        return torch.device("npu", _npu.current_device())
    return torch.device(device)


# ---- all operators ----------------------------------------------------------------------------------


def _binary_cross_entropy_with_logits(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    pos_weight: torch.Tensor | None = None,
    reduction: int = 1,
) -> torch.Tensor:
    log_weight = 1 if pos_weight is None else (pos_weight - 1) * target + 1
    loss = (1 - target) * input - log_weight * torch.nn.functional.logsigmoid(input)
    if weight is not None:
        loss = loss * weight
    return loss.mean() if reduction == 1 else loss.sum() if reduction == 2 else loss


def _renorm(self: torch.Tensor, p: float, dim: int, maxnorm: float) -> torch.Tensor:
    others = [d for d in range(self.dim()) if d != dim % self.dim()]
    norm = torch.linalg.vector_norm(self, p, others, keepdim=True)
    return self * torch.where(norm > maxnorm, maxnorm / (norm + 1e-7), torch.ones_like(norm))


# torch_npu's gradients of these operators are not simulated. These compositions are differentiated by torch.
DIFFERENTIABLE: dict[str, Callable[..., Any]] = {
    "binary_cross_entropy_with_logits": _binary_cross_entropy_with_logits,
    "renorm": _renorm,
}


def _registered(key: str) -> Iterator[str]:
    """Yield the operators of torch that have a kernel for this dispatch key, as name.overload."""
    for name in torch._C._dispatch_get_registrations_for_dispatch_key(key):
        if name.startswith("aten::"):
            yield name.removeprefix("aten::")


def overload_of(name: str) -> torch._ops.OpOverload | None:
    """Return torch.ops.aten.<name>, or None if torch has no such operator."""
    stem, _, overload = name.partition(".")
    try:
        return getattr(getattr(torch.ops.aten, stem), overload or "default")  # type: ignore[no-any-return]
    except AttributeError:
        return None


def install() -> None:
    """Replace torch_npu's kernels by host kernels, once, after torch_npu was imported."""
    if _libraries:
        return
    explicit = set(_registered("CompositeExplicitAutograd"))
    explicit |= set(_registered("CompositeExplicitAutogradNonFunctional"))
    composite = set(_registered("CompositeImplicitAutograd"))
    on_cpu = set(_registered("CPU"))
    with_gradient = set(_registered("AutogradPrivateUse1"))
    torch_npu_kernels = set(_registered("PrivateUse1"))
    library = _Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that kernels are overridden, which is intended here
        # An operator that torch_npu lacks uses torch's composite kernel if there is one. For the others,
        # torch_npu has a fallback that copies to the CPU and back without counting.
        for name in sorted(torch_npu_kernels | (on_cpu - explicit - composite)):
            is_kept = name in KEPT or name.split(".")[0] in KEPT
            op = None if is_kept else overload_of(name)
            if op is None:
                continue
            if name in composite:
                library.impl(op, op.decompose, "PrivateUse1")  # as torch itself does
                if name in with_gradient:
                    library.impl(op, op.decompose, "AutogradPrivateUse1")
            elif name in on_cpu or name in explicit:
                library.impl(op, HostKernel(op), "PrivateUse1")
        for name, kernel in DIFFERENTIABLE.items():
            if name in with_gradient:
                library.impl(name, kernel, "AutogradPrivateUse1")
    _libraries.append(library)
    if (op := ascend_sim_atb.operator()) is not None:
        library_of_atb = _Library("atb", "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            library_of_atb.impl(op, HostKernel(op, ascend_sim_atb.rotary_embedding), "PrivateUse1")
        _libraries.append(library_of_atb)
    atexit.register(write_report)
    os.register_at_fork(after_in_child=counts.clear)  # the parent reports its own counts
    _explain_uncaught_errors()


def explanation(text: str) -> str | None:
    """Return an explanation of torch_npu's error about a missing aclnn function; None for other errors."""
    missing = re.search(r"(aclnn\w+) or \w+ not in libopapi\.so", text)
    if missing is None:
        return None
    return (
        f"simulated CANN: {missing[1]} has no stand-in. To add one, define a pair of functions of this "
        "name in the file of simulator/cann/opapi/ for its subject."
    )


def _explain_uncaught_errors() -> None:
    previous_hook = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        previous_hook(kind, error, trace)
        if text := explanation(str(error)):
            print(text, file=sys.stderr)

    sys.excepthook = hook


def write_report() -> None:
    """Write the counts for ``ascend-sim run`` to <pid>.fallback.json, beside the runtime's file."""
    folder = os.environ.get("ASCEND_SIM_REPORT_DIR")
    if not folder or not counts:
        return
    path = os.path.join(folder, f"{os.getpid()}.fallback.json")
    try:
        with open(path + ".draft", "w", encoding="utf-8") as stream:
            json.dump({"fallbacks": dict(counts)}, stream)
        os.replace(path + ".draft", path)
    except FileNotFoundError:
        pass  # ascend-sim run has ended and removed the folder
    except OSError as error:
        with suppress(OSError):  # by the renamed draft, ascend-sim run knows that a report is lost
            os.replace(path + ".draft", path.removesuffix("json") + "lost")
        print(f"simulated CANN: the count of fallbacks cannot be written: {error}", file=sys.stderr)
