"""Who executes an operator: ``reference``, ``cpu``, ``sim`` / ``sim:<soc>`` and ``npu``.

An explicit backend never falls back to another: absent is :class:`BackendUnavailable`.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope import native, native_sim
from npu_rope.checks import (
    TensorSpec,
    check_aligned,
    check_angle,
    check_freq_factors,
    check_out,
    check_out_memory,
    check_positions,
    check_x,
)
from npu_rope.dtypes import bfloat16_bits, bfloat16_values
from npu_rope.errors import BackendUnavailable, bad_type, bad_value
from npu_rope.optional_torch import torch
from npu_rope.params import ANGLE_POLICIES, AnglePolicy, RopeParams
from npu_rope.reference import rope as reference
from npu_rope.strided import StridedView

# The explicit default, read once: a look at the environment costs as much as a decode-sized call.
ENVIRONMENT_VARIABLE = "NPU_ROPE_BACKEND"
default_backend: str | None = os.environ.get(ENVIRONMENT_VARIABLE) or None
# SoC -> the backend that runs the very same kernels on a core of the same sizes.
SIMULATED_SOCS = {"ascend910b": "sim", "ascend910_93": "sim", "ascend310p": ""}


@dataclass(frozen=True)
class Missing:
    """What keeps a backend from running, and how to get it."""

    what: str
    remedy: str


def _nothing_missing() -> None:
    return None


def _cpu_missing() -> Missing | None:
    try:
        native.load()
    except BackendUnavailable as error:
        return Missing(error.missing, error.remedy)
    return None


def _sim_missing() -> Missing | None:
    try:
        native_sim.load()
    except BackendUnavailable as error:
        return Missing(error.missing, error.remedy)
    return None


def npu_pieces() -> list[tuple[str, bool, str]]:
    """What the npu backend needs: (piece, present, how to get it)."""
    has_torch_npu = importlib.util.find_spec("torch_npu") is not None
    cann = os.environ.get("ASCEND_HOME_PATH", "")
    has_device = any(name.startswith("davinci") for name in _device_names())
    return [
        ("the torch_npu package", has_torch_npu, "pip install torch_npu (the version of your torch)"),
        (
            "CANN (ASCEND_HOME_PATH)",
            bool(cann) and os.path.isdir(cann),
            "install the CANN toolkit, then: source /usr/local/Ascend/ascend-toolkit/set_env.sh",
        ),
        (
            "an Ascend device (/dev/davinci*)",
            has_device,
            "run on a machine with an Ascend NPU and its driver",
        ),
        ("npu_rope's NPU kernels", False, "they are not part of this version"),
    ]


def _device_names() -> list[str]:
    try:
        return os.listdir("/dev")
    except OSError:
        return []


def _npu_missing() -> Missing | None:
    absent = [(piece, remedy) for piece, present, remedy in npu_pieces() if not present]
    if not absent:
        return None
    return Missing(
        "missing: " + "; ".join(piece for piece, _ in absent),
        "\n".join(f"- {piece}: {remedy}." for piece, remedy in absent),
    )


RopeFunction = Callable[..., Any]


@dataclass(frozen=True)
class Backend:
    """A named executor. ``missing()`` is None where it can run."""

    name: str
    summary: str
    missing: Callable[[], Missing | None]
    rope: RopeFunction | None = None
    same_as: str = ""  # another backend that runs the same code on the same sizes

    def require(self) -> Backend:
        """Itself, or BackendUnavailable."""
        missing = self.missing()
        if missing is not None:
            raise BackendUnavailable(self.name, missing.what, missing.remedy)
        return self


# ---- what the rules see of an array or a tensor ---------------------------------------------------


def _is_tensor(t: Any) -> bool:
    return torch is not None and isinstance(t, torch.Tensor)


def spec_of_array(a: npt.NDArray[Any]) -> TensorSpec:
    """What the rules need to know of an array."""
    size = max(a.dtype.itemsize, 1)
    return TensorSpec(a.dtype.name, a.shape, tuple(s // size for s in a.strides))


def spec_of_tensor(t: Any) -> TensorSpec:
    """What the rules need to know of a torch tensor, fake ones included."""
    return TensorSpec(str(t.dtype).removeprefix("torch."), tuple(t.shape), tuple(t.stride()))


def _spec_of(t: Any) -> TensorSpec:
    return spec_of_tensor(t) if _is_tensor(t) else spec_of_array(t)


def _view_of(t: Any) -> StridedView:
    if not _is_tensor(t):
        return StridedView(t.ctypes.data, max(t.dtype.itemsize, 1), t.shape, t.strides)
    item = t.element_size()
    return StridedView(t.data_ptr(), item, tuple(t.shape), tuple(s * item for s in t.stride()))


def _check_out_kind(out: Any, x: Any) -> None:
    wanted, kind = (torch.Tensor, "torch tensor") if _is_tensor(x) else (np.ndarray, "NumPy array")
    if not isinstance(out, wanted):
        raise bad_type("rope", f"out must be a {kind} like x but got {type(out).__name__}.")
    if not isinstance(out, np.ndarray):
        return
    if not out.flags.writeable:
        raise bad_value("rope", "out must be writeable but got a read-only array.")
    if not out.dtype.isnative:
        raise bad_type("rope", f"out must be in the machine's byte order but got {out.dtype.str}.")


def _check_call(
    x: Any, positions: Any, params: RopeParams, freq_factors: Any, out: Any, angle: AnglePolicy
) -> None:
    """Every rule that needs no element's value."""
    spec = _spec_of(x)
    check_angle(angle)
    check_x(spec, params, unit_stride=out is x)
    check_positions(_spec_of(positions), spec, params)
    if freq_factors is not None:
        check_freq_factors(_spec_of(freq_factors), params)
    if out is None:
        return
    check_out(_spec_of(out), spec)
    others = {"positions": positions, "freq_factors": freq_factors}
    views = {name: _view_of(t) for name, t in others.items() if t is not None}
    check_out_memory(_view_of(out), _view_of(x), views)


def _as_arrays(positions: Any, freq_factors: Any) -> tuple[Any, Any]:
    if positions is None:
        raise bad_type("rope", "positions must be an array but got NoneType.")
    return np.asarray(positions), None if freq_factors is None else np.asarray(freq_factors)


# ---- reference ------------------------------------------------------------------------------------


def _check_plain_tensors(backend: str, x: Any, **others: Any) -> None:
    """torch tensors of the CPU through which no gradient flows."""
    for name, t in {"x": x, "out": others.get("out")}.items():
        if torch.is_grad_enabled() and _is_tensor(t) and t.requires_grad:
            raise bad_value(
                "rope", f"{name} must not need a gradient for backend {backend} but got requires_grad."
            )
    if torch.autograd.forward_ad._current_level >= 0:
        raise bad_value("rope", f"x must be outside a dual level for backend {backend} but got one inside.")
    for name, t in {"x": x, **others}.items():
        if t is not None and not _is_tensor(t):
            raise bad_type("rope", f"{name} must be a torch tensor like x but got {type(t).__name__}.")
        if t is not None and t.device.type != "cpu":
            raise bad_value("rope", f"{name} must be on device cpu for this backend but got {t.device}.")


def _rope_reference(
    x: Any, positions: Any, params: RopeParams, freq_factors: Any, out: Any, forward: bool, angle: AnglePolicy
) -> Any:
    """Arrays, or torch tensors of the CPU (no gradient flows through)."""
    if _is_tensor(x):
        _check_plain_tensors("reference", x, positions=positions, freq_factors=freq_factors, out=out)
    else:
        positions, freq_factors = _as_arrays(positions, freq_factors)
    if out is not None:
        _check_out_kind(out, x)
    _check_call(x, positions, params, freq_factors, out, angle)
    factors = None if freq_factors is None else _array_of(freq_factors)
    wide = reference.rope(_array_of(x), _array_of(positions), params, factors, forward=forward, angle=angle)
    y = _round_to(wide, x)
    if out is None:
        return y
    if _is_tensor(out):
        return out.copy_(y)
    out[...] = y
    return out


def _array_of(t: Any) -> npt.NDArray[Any]:
    """A torch tensor's memory as an array; bfloat16 as the float32 values it stands for."""
    if not _is_tensor(t):
        array: npt.NDArray[Any] = t
        return array
    t = t.detach().resolve_neg()
    if t.dtype == torch.bfloat16:
        bits: npt.NDArray[np.uint16] = t.contiguous().view(torch.int16).numpy().view(np.uint16)
        return bfloat16_values(bits)
    array = t.numpy()
    return array


def _round_to(values: npt.NDArray[np.float64], like: Any) -> Any:
    """Rounded once to like's dtype, as an array or a tensor as like is."""
    name = _spec_of(like).dtype
    if name == "bfloat16":
        bits = bfloat16_bits(values)
        if _is_tensor(like):
            return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)
        return bits.view(like.dtype)
    with np.errstate(over="ignore", under="ignore"):
        rounded = values.astype(name)
    return torch.from_numpy(rounded) if _is_tensor(like) else rounded


# ---- cpu --------------------------------------------------------------------------------------------


def _in_whole_elements(a: npt.NDArray[Any]) -> bool:
    """Address and strides are multiples of the element's size."""
    if a.flags.c_contiguous:
        return bool(a.flags.aligned)
    item = a.dtype.itemsize or 1
    return a.flags.aligned and all(s % item == 0 for s in a.strides)


def _readable(a: npt.NDArray[Any], *, unit_stride: bool = True) -> npt.NDArray[Any]:
    """The array itself, or a copy where the kernels cannot read it in place."""
    if not a.dtype.isnative:
        return a.astype(a.dtype.newbyteorder("="), order="C")
    unit = not unit_stride or a.ndim == 0 or a.shape[-1] <= 1 or a.strides[-1] == a.dtype.itemsize
    return a if unit and _in_whole_elements(a) else a.copy()


def _rope_cpu_numpy(
    x: Any, positions: Any, params: RopeParams, freq_factors: Any, out: Any, forward: bool, angle: AnglePolicy
) -> Any:
    library = native.load()
    positions, factors = _as_arrays(positions, freq_factors)
    if out is not None:
        _check_out_kind(out, x)
        if not _in_whole_elements(out):
            check_aligned("out", _view_of(out))
    result = np.empty(x.shape, x.dtype.newbyteorder("=")) if out is None else out
    source = x if out is x else _readable(x)
    read_positions = _readable(positions, unit_stride=False)
    read_factors = None if factors is None else _readable(factors, unit_stride=False)
    try:
        library.rope(
            native.describe(source),
            native.describe(read_positions),
            None if read_factors is None else native.describe(read_factors),
            native.c_params(params),
            forward,
            angle,
            native.describe(result),
        )
    except (ValueError, TypeError):
        # The C library knows neither the names of dtypes it does not take nor more than four sizes.
        _check_call(x, positions, params, factors, out, angle)
        raise
    return result


def rope_cpu_tensors(
    x: Any,
    positions: Any,
    freq_factors: Any,
    out: Any,
    params: RopeParams,
    forward: bool,
    angle: AnglePolicy,
) -> None:
    """The cpu backend on torch tensors through ctypes (where the C++ registration was not built)."""
    native.load().rope(
        _c_tensor(x),
        _c_tensor(positions),
        None if freq_factors is None else _c_tensor(freq_factors),
        native.c_params(params),
        forward,
        angle,
        _c_tensor(out),
    )


def rope_cpu_packed(out: Any, x: Any, positions: Any, packed: Any, freq_factors: Any) -> None:
    """The same with the attributes packed (:func:`packed_call`)."""
    held = packed.numpy().tobytes()
    size = len(bytes(native.PackedCall()))
    if packed.dim() != 1 or len(held) != size:
        raise bad_value(
            "rope", f"packed must be the {size} contiguous bytes of packed_call but got another tensor."
        )
    call = native.PackedCall.from_buffer_copy(held)
    native.load().rope(
        _c_tensor(x),
        _c_tensor(positions),
        None if freq_factors is None else _c_tensor(freq_factors),
        call.params,
        bool(call.forward),
        ANGLE_POLICIES[call.angle],
        _c_tensor(out),
    )


def _c_tensor(t: Any) -> native.CTensor:
    s = spec_of_tensor(t)
    return native.c_tensor(t.data_ptr(), s.dtype, s.shape, s.strides)


# ---- sim --------------------------------------------------------------------------------------------


def rope_sim(
    options: native_sim.SimOptions,
    x: Any,
    positions: Any,
    params: RopeParams,
    freq_factors: Any,
    out: Any,
    forward: bool,
    angle: AnglePolicy,
) -> Any:
    """The AscendC kernel on the simulated core: arrays, or torch tensors of the CPU without gradient."""
    simulator = native_sim.load()
    is_tensor = _is_tensor(x)
    if is_tensor:
        name = "sim" if options.soc == native_sim.DEFAULT_SOC else f"sim:{options.soc}"
        _check_plain_tensors(name, x, positions=positions, freq_factors=freq_factors, out=out)
    else:
        positions, freq_factors = _as_arrays(positions, freq_factors)
    if out is not None:
        _check_out_kind(out, x)
        if is_tensor and out.is_neg():
            raise bad_value("rope", "out must hold its own values but got a view that negates them.")
        if not is_tensor and not _in_whole_elements(out):
            check_aligned("out", _view_of(out))
    # What the C library cannot say of foreign dtypes and shapes is checked first.
    _check_call(x, positions, params, freq_factors, out, angle)
    if out is None:
        result = torch.empty_like(x, memory_format=torch.contiguous_format) if is_tensor else _empty_like(x)
    else:
        result = out
    source = x if out is x else _readable_any(x)
    describe = _c_tensor if is_tensor else native.describe
    positions, factors = _readable_any(positions, unit_stride=False), freq_factors
    factors = None if factors is None else _readable_any(factors, unit_stride=False)
    simulator.rope(
        describe(source),
        describe(positions),
        None if factors is None else describe(factors),
        native.c_params(params),
        forward,
        angle,
        describe(result),
        options,
    )
    if is_tensor and out is not None:
        # Who saved this tensor for a gradient must learn that it changed.
        torch.autograd.graph.increment_version(out)
    return result


def _empty_like(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.empty(x.shape, x.dtype.newbyteorder("="))


def _readable_any(t: Any, *, unit_stride: bool = True) -> Any:
    """An array or tensor the kernels can read, copied where they could not."""
    if not _is_tensor(t):
        return _readable(t, unit_stride=unit_stride)
    t = t.detach().resolve_neg()
    unit = not unit_stride or t.dim() == 0 or t.shape[-1] <= 1 or t.stride(-1) == 1
    return t if unit else t.contiguous()


def _rope_on(soc: str) -> RopeFunction:
    return partial(rope_sim, native_sim.SimOptions(soc))


# ---- the registry -------------------------------------------------------------------------------

BACKENDS: dict[str, Backend] = {
    "reference": Backend("reference", "NumPy, float64", _nothing_missing, _rope_reference),
    "cpu": Backend("cpu", "C++: SIMD, threads", _cpu_missing, _rope_cpu_numpy),
    "sim": Backend(
        "sim", "the AscendC kernels on the simulator", _sim_missing, _rope_on(native_sim.DEFAULT_SOC)
    ),
    **{
        f"sim:{soc}": Backend(f"sim:{soc}", f"the same on {soc}", _sim_missing, _rope_on(soc), same_as)
        for soc, same_as in SIMULATED_SOCS.items()
    },
    "npu": Backend("npu", "torch_npu on Ascend hardware", _npu_missing),
}


def find(name: str) -> Backend:
    """The backend of that name, available or not.

    Raises:
        ValueError: there is no such backend.
    """
    try:
        return BACKENDS[name]
    except (KeyError, TypeError):
        raise bad_value("rope", f"backend must be one of {', '.join(BACKENDS)} but got {name}.") from None


def available() -> list[str]:
    """Names of the backends that run here, each one's aliases left out."""
    return [name for name, b in BACKENDS.items() if not b.same_as and b.missing() is None]


def packed_call(params: RopeParams, forward: bool, angle: AnglePolicy) -> bytes:
    """The attributes as ``torch.ops.npu_rope.rope_packed_`` reads them."""
    if angle not in ANGLE_POLICIES:
        raise bad_value("rope", f"angle must be exact (0), f32 (1) or ggml (2) but got {angle}.")
    return bytes(native.PackedCall(native.c_params(params), forward, ANGLE_POLICIES.index(angle)))


def torch_registration() -> str | None:
    """Path of the C++ torch registration, or None where it was not built."""
    path = native.find_library("npu_rope_torch")
    return None if path is None else str(path)


def require_tensor_like(name: str, value: Any) -> None:
    """TypeError for what is neither an array nor a tensor."""
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        raise bad_type(
            "rope", f"{name} must be a torch tensor or a NumPy array but got {type(value).__name__}."
        )
