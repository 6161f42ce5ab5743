"""Which backends there are, and what keeps one from running: ``reference``, ``cpu``, ``sim`` /
``sim:<soc>`` and ``npu``. How one executes an operator is in ``npu_rope/executors/``.

An explicit backend never falls back to another: absent is :class:`BackendUnavailable`.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass

from npu_rope import native, native_sim
from npu_rope.errors import BackendUnavailable, bad_value
from npu_rope.params import ANGLE_POLICIES, Angle, RopeParams, angle_policy, flag

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


def simulated_soc() -> str | None:
    """The chip that ``npu-rope sim`` stands in for, or None outside of it."""
    return os.environ.get("NPU_ROPE_SIM_SOC")


def npu_binding() -> str | None:
    """Path of the binding of torch_npu, or None where it was not built."""
    path = native.find_library("npu_rope_torch_npu")
    return None if path is None else str(path)


def _operator_package() -> bool:
    folders = os.environ.get("ASCEND_CUSTOM_OPP_PATH", "").split(os.pathsep)
    return any(os.path.isfile(os.path.join(f, "op_api", "lib", "libcust_opapi.so")) for f in folders if f)


def npu_pieces() -> list[tuple[str, bool, str]]:
    """What the npu backend needs: (piece, present, how to get it)."""
    has_torch_npu = importlib.util.find_spec("torch_npu") is not None
    cann = os.environ.get("ASCEND_HOME_PATH", "")
    has_device = simulated_soc() is not None or any(n.startswith("davinci") for n in _device_names())
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
            "run on a machine with an Ascend NPU and its driver, or simulated: npu-rope sim -- COMMAND",
        ),
        (
            "npu_rope's binding of torch_npu",
            npu_binding() is not None,
            "install npu_rope where torch_npu is: pip install --no-build-isolation .",
        ),
        (
            "npu_rope's operator package (ASCEND_CUSTOM_OPP_PATH)",
            _operator_package(),
            "build it with CANN: scripts/build_npu.sh",
        ),
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


@dataclass(frozen=True)
class Backend:
    """A named executor. ``missing()`` is None where it can run."""

    name: str
    summary: str
    missing: Callable[[], Missing | None]
    same_as: str = ""  # another backend that runs the same code on the same sizes

    def require(self) -> Backend:
        """Itself, or BackendUnavailable."""
        missing = self.missing()
        if missing is not None:
            raise BackendUnavailable(self.name, missing.what, missing.remedy)
        return self


# ---- the registry -------------------------------------------------------------------------------

BACKENDS: dict[str, Backend] = {
    "reference": Backend("reference", "NumPy, float64", _nothing_missing),
    "cpu": Backend("cpu", "C++: SIMD, threads", _cpu_missing),
    "sim": Backend("sim", "the AscendC kernels on the simulator", _sim_missing),
    **{
        f"sim:{soc}": Backend(f"sim:{soc}", f"the same on {soc}", _sim_missing, same_as)
        for soc, same_as in SIMULATED_SOCS.items()
    },
    "npu": Backend("npu", "torch_npu: CANN, or simulated", _npu_missing),
}


def find(name: str, *, op: str = "rope") -> Backend:
    """The backend of that name, available or not. ``op`` is who asks.

    Raises:
        ValueError: there is no such backend.
    """
    try:
        return BACKENDS[name]
    except (KeyError, TypeError):
        raise bad_value(op, f"backend must be one of {', '.join(BACKENDS)} but got {name}.") from None


def available() -> list[str]:
    """Names of the backends that run here, each one's aliases left out."""
    return [name for name, b in BACKENDS.items() if not b.same_as and b.missing() is None]


def packed_call(params: RopeParams, forward: bool, angle: Angle, *, op: str = "rope") -> bytes:
    """The attributes as the packed schemas of rope, rope_qk and rope_set_rows read them."""
    code = ANGLE_POLICIES.index(angle_policy(op, angle))
    return bytes(native.PackedCall(native.c_params(params), flag(op, "forward", forward), code))


def torch_registration() -> str | None:
    """Path of the C++ torch registration, or None where it was not built."""
    path = native.find_library("npu_rope_torch")
    return None if path is None else str(path)
