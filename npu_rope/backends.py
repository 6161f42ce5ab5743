"""Who executes an operator: ``reference``, ``cpu``, ``sim`` / ``sim:<soc>`` and ``npu``.

An explicit backend never falls back to another: absent is :class:`BackendUnavailable`.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope import native
from npu_rope.checks import TensorSpec, check_out
from npu_rope.dtypes import bfloat16_bits, bfloat16_values
from npu_rope.errors import BackendUnavailable, bad_type, bad_value
from npu_rope.optional_torch import torch
from npu_rope.params import ANGLE_POLICIES, AnglePolicy, RopeParams
from npu_rope.reference import rope as reference

# The explicit default, read once: a look at the environment costs as much as a decode-sized call.
ENVIRONMENT_VARIABLE = "NPU_ROPE_BACKEND"
default_backend: str | None = os.environ.get(ENVIRONMENT_VARIABLE) or None
SIMULATED_SOCS = ("ascend910b", "ascend910_93", "ascend310p", "ascend950")


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


def _sim_missing() -> Missing:
    return Missing(
        "the Ascend simulator and its kernels are not part of this version",
        "Use backend='cpu' (fast) or backend='reference' (float64).",
    )


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

    def require(self) -> Backend:
        """Itself, or BackendUnavailable."""
        missing = self.missing()
        if missing is not None:
            raise BackendUnavailable(self.name, missing.what, missing.remedy)
        return self


# ---- reference and cpu on NumPy arrays -----------------------------------------------------------


def spec_of_array(a: npt.NDArray[Any]) -> TensorSpec:
    """What the rules need to know of an array."""
    size = max(a.dtype.itemsize, 1)
    return TensorSpec(a.dtype.name, a.shape, tuple(s // size for s in a.strides))


def _round_to(values: npt.NDArray[np.float64], dtype: Any) -> npt.NDArray[Any]:
    if dtype.name == "bfloat16":
        return bfloat16_bits(values).view(dtype)
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def _require_writeable(out: npt.NDArray[Any]) -> None:
    if not out.flags.writeable:
        raise bad_value("rope", "out must be writeable but got a read-only array.")


def _rope_reference_numpy(
    x: Any, positions: Any, params: RopeParams, freq_factors: Any, out: Any, forward: bool, angle: AnglePolicy
) -> Any:
    if out is not None:
        check_out(spec_of_array(out), spec_of_array(x))
        _require_writeable(out)
    y = _round_to(reference.rope(x, positions, params, freq_factors, forward=forward, angle=angle), x.dtype)
    if out is None:
        return y
    out[...] = y
    return out


def _readable(a: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array itself, or a copy where the kernels cannot read it in place."""
    item = max(a.dtype.itemsize, 1)
    unit = a.ndim == 0 or a.shape[-1] <= 1 or a.strides[-1] == item
    whole = all(s % item == 0 for s in a.strides)
    return a if unit and whole and a.flags.aligned else np.ascontiguousarray(a)


def _rope_cpu_numpy(
    x: Any, positions: Any, params: RopeParams, freq_factors: Any, out: Any, forward: bool, angle: AnglePolicy
) -> Any:
    library = native.load()
    in_place = out is x
    result = np.empty(x.shape, x.dtype) if out is None else out
    if out is not None:
        _require_writeable(out)
    if not in_place:
        x = _readable(x)
    positions = np.asarray(positions)
    factors = None if freq_factors is None else np.asarray(freq_factors)
    library.rope(
        native.describe(x),
        native.describe(positions),
        None if factors is None else native.describe(factors),
        native.c_params(params),
        forward,
        angle,
        native.describe(result),
    )
    return result


def _numpy_or_torch(run: RopeFunction) -> RopeFunction:
    """Let a NumPy executor take CPU torch tensors too (no gradient flows through it)."""

    def call(
        x: Any,
        positions: Any,
        params: RopeParams,
        freq_factors: Any,
        out: Any,
        forward: bool,
        angle: AnglePolicy,
    ) -> Any:
        if torch is None or not isinstance(x, torch.Tensor):
            return run(np.asarray(x), positions, params, freq_factors, out, forward, angle)
        for name, t in (("x", x), ("positions", positions), ("freq_factors", freq_factors), ("out", out)):
            if isinstance(t, torch.Tensor) and t.device.type != "cpu":
                raise bad_value("rope", f"{name} must be on device cpu for this backend but got {t.device}.")
        arrays = [None if t is None else _array_of(t) for t in (x, positions, freq_factors)]
        y = run(arrays[0], arrays[1], params, arrays[2], None, forward, angle)
        result = _tensor_of(y, x.dtype)
        if out is None:
            return result
        if out.dtype != x.dtype or out.shape != x.shape:
            check_out(spec_of_tensor(out), spec_of_tensor(x))
        return out.copy_(result)

    return call


def _array_of(t: Any) -> npt.NDArray[Any]:
    """A torch tensor's memory as an array; bfloat16 as the float32 values it stands for."""
    t = torch.as_tensor(t).detach()
    if t.dtype == torch.bfloat16:
        bits: npt.NDArray[np.uint16] = t.contiguous().view(torch.int16).numpy().view(np.uint16)
        return bfloat16_values(bits)
    array: npt.NDArray[Any] = t.numpy()
    return array


def _tensor_of(a: npt.NDArray[Any], dtype: Any) -> Any:
    if dtype == torch.bfloat16:
        return torch.from_numpy(bfloat16_bits(a).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(a)


def spec_of_tensor(t: Any) -> TensorSpec:
    """What the rules need to know of a torch tensor, fake ones included."""
    return TensorSpec(str(t.dtype).removeprefix("torch."), tuple(t.shape), tuple(t.stride()))


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
    call = native.PackedCall.from_buffer_copy(packed.numpy().tobytes())
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


# ---- the registry -------------------------------------------------------------------------------

BACKENDS: dict[str, Backend] = {
    "reference": Backend(
        "reference", "NumPy, float64", _nothing_missing, _numpy_or_torch(_rope_reference_numpy)
    ),
    "cpu": Backend("cpu", "C++: SIMD, threads", _cpu_missing, _rope_cpu_numpy),
    "sim": Backend("sim", "the AscendC kernels on the simulator", _sim_missing),
    **{
        f"sim:{soc}": Backend(f"sim:{soc}", f"the same with {soc}'s profile", _sim_missing)
        for soc in SIMULATED_SOCS
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
    """Names of the backends that run here."""
    return [name for name, b in BACKENDS.items() if b.missing() is None]


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
