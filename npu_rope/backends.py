"""The back ends ``reference``, ``cpu``, ``sim``, ``sim:<soc>`` and ``npu``, and the pieces that each needs.
Their executors are in ``npu_rope/executors/``.

A named back end never falls back to another: if it is absent, :class:`BackendUnavailable` is raised.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from npu_rope import native, simulated_package
from npu_rope.errors import BackendUnavailable, BrokenRule, bad_value
from npu_rope.params import RopeParams
from npu_rope.rope_calls import RopeCallAttributes
from npu_rope.values import Angle, angle_policy, flag

E = TypeVar("E")

# The user's default, read once: reading the environment takes a fifth of the time of a decode-sized call.
ENVIRONMENT_VARIABLE = "NPU_ROPE_BACKEND"
default_backend: str | None = os.environ.get(ENVIRONMENT_VARIABLE) or None
# SoC -> the back end that runs the same kernels on a core of the same sizes, if there is one.
SIMULATED_SOCS = {"ascend910b": "sim", "ascend910_93": "sim", "ascend310p": "", "ascend950": ""}
# Notes for users, in the list of back ends.
NOTES = {"ascend950": ", simulated; for hardware they were only checked against CANN's headers"}


@dataclass(frozen=True)
class Missing:
    """The missing piece of a back end, and how to get it."""

    what: str
    remedy: str


def _nothing_missing() -> None:
    return None


def _missing_of(load: Callable[[], object]) -> Missing | None:
    try:
        load()
    except BackendUnavailable as error:
        return Missing(error.missing, error.remedy)
    return None


def _cpu_missing() -> Missing | None:
    return _missing_of(native.load)


def _sim_missing() -> Missing | None:
    return _missing_of(simulated_package.load)


def simulated_soc() -> str | None:
    """Return the SoC that ``npu-rope sim`` simulates, or None outside of it."""
    return os.environ.get("ASCEND_SIM_SOC")


def command_line(python: str = "") -> str:
    """Return the beginning of a command line that runs npu_rope as this process does: ``npu-rope``, or
    ``npu-rope sim`` with the options of this process and a Python.

    Args:
        python: the Python of the command in a simulation; empty for the one of this process.
    """
    prefix = simulation()
    words = [python or _python(), "-m", "npu_rope.cli"] if prefix else [_npu_rope()]
    return f"{prefix}{shlex.join(words)}"


def _python() -> str:
    """Return ``python``, or this Python's path if ``python`` on PATH is that of another environment."""
    return "python" if _is_on_path("python") else sys.executable


def _npu_rope() -> str:
    """Return ``npu-rope``, or its path if PATH lacks this environment's one."""
    own = _in_environment("npu-rope")
    return "npu-rope" if _is_on_path("npu-rope") or not os.path.exists(own) else own


def _is_on_path(name: str) -> bool:
    # Links are not resolved: the Pythons of several environments can be links to one file.
    return os.path.abspath(shutil.which(name) or "") == _in_environment(name)


def _in_environment(name: str) -> str:
    return os.path.join(os.path.dirname(os.path.abspath(sys.executable)), name)


def simulation() -> str:
    """Return what comes before a program on a command line, so that it runs as this process does: ``npu-rope
    sim`` with the options of this process, ``--`` and a space; empty outside of a simulation."""
    soc = simulated_soc()
    if soc is None:
        return ""
    words = [_npu_rope(), "sim", "--soc", soc]
    for option, variable, default in (
        ("--devices", "ASCEND_SIM_DEVICES", "1"),
        ("--streams", "ASCEND_SIM_STREAMS", "asynchronous"),
        ("--seed", "ASCEND_SIM_SEED", "0"),
    ):
        if (value := os.environ.get(variable, default)) != default:
            words += [option, value]
    return f"{shlex.join(words)} -- "


def python_with_torch_npu() -> str:
    """Return the Python of the environment with torch_npu that ``scripts/test.sh`` makes beside this one in a
    checkout, or ``PYTHON`` for one that the user must name."""
    python = os.path.join(os.path.dirname(sys.prefix), ".venv-npu", "bin", "python")
    return python if os.path.isfile(python) else "PYTHON"


def simulated_torch_npu_remedy(arguments: str) -> str:
    """Return how ``npu-rope sim`` finds torch_npu for ``npu-rope ARGUMENTS``, without a full stop."""
    command = f"{command_line(python_with_torch_npu())} {arguments}"
    return f"install torch_npu for {sys.executable}, or name a Python that has it: {command}"


def npu_binding() -> str | None:
    """Return the path of the torch_npu binding, or None if it was not built."""
    path = native.find_library("npu_rope_torch_npu")
    return None if path is None else str(path)


def raised_by_torch(message: str) -> BrokenRule | None:
    """Return the error that a C++ operator raised in this thread with that message, or None."""
    return native.raised_by_torch(message)


def is_torch_registration(path: str) -> bool:
    """Return whether a library that torch has loaded is npu_rope's registration of CPU operators."""
    return native.is_torch_registration(path)


CUSTOM_OPP, OPP = "ASCEND_CUSTOM_OPP_PATH", "ASCEND_OPP_PATH"


def operator_package() -> str | None:
    """Return the folder of npu_rope's operators that CANN will find, or None. CANN searches the custom
    packages, then those installed in its own folder."""
    return next((f for f in [*_custom_folders(), *_vendor_folders()] if _has_operators(f)), None)


def _custom_folders() -> list[str]:
    return [f for f in os.environ.get(CUSTOM_OPP, "").split(os.pathsep) if f]


def _has_operators(package: str) -> bool:
    return os.path.isfile(os.path.join(package, "op_api", "include", "aclnn_npu_rope.h"))


def _vendor_folders() -> list[str]:
    """Return the folders of the packages installed in CANN's folder, in the order of ``vendors/config.ini``.

    CANN reads only the first line that contains "priority" and is no comment (hicann/opbase
    ``indv_collector.cpp``, ``NnopbaseReadConfigFile``).
    """
    vendors = os.path.join(os.environ.get(OPP, ""), "vendors")
    try:
        with open(os.path.join(vendors, "config.ini"), encoding="utf-8") as stream:
            lines = stream.read().splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    named = (line for line in lines if "priority" in line and not line.startswith("#"))
    names = next(named, "").partition("=")[2]
    return [os.path.join(vendors, name) for name in names.split(",") if name]


def bundled_package() -> str | None:
    """Return the folder of the operator package that is installed with npu_rope, or None. Under ``npu-rope
    sim`` it is the simulated package, otherwise the package that CANN built."""
    inside = "simulated_package" if simulated_soc() else os.path.join("opp", "vendors", "npu_rope")
    return next((str(f / inside) for f in native.library_folders() if (f / inside).is_dir()), None)


def offer_operator_package() -> None:
    """Add the bundled operator package to CANN's custom packages, unless CANN finds npu_rope's operators.

    CANN reads the variable when the process calls its first operator of a generated package (hicann/opbase
    ``src/nnopbase/individual_op/api/individual_op_api.cpp``, ``NnopbaseInit``). The binding of torch_npu
    reads it at its own first launch (``csrc/npu/package.h``).
    """
    if (found := operator_package()) is not None:
        _warn_of_a_truncated_package(found)
        return
    bundled = bundled_package()
    if bundled is None:
        return
    os.environ[CUSTOM_OPP] = os.pathsep.join([bundled, *_custom_folders()])


def offer_simulated_package() -> None:
    """Name the simulated operator package to CANN for a simulated program, unless the user has named a
    package of npu_rope. The simulated package replaces the bundled one, which
    :func:`offer_operator_package` may have added.

    The simulated package's library is added to the linker's search path, as the file ``bin/set_env.bash`` of
    a package that CANN built does (hicann/asc-tools ``utils/templates``).
    """
    simulated = simulated_package.find()
    folders = [f for f in _custom_folders() if f not in (bundled_package(), str(simulated))]
    if simulated is not None and not any(map(_has_operators, folders)):
        folders.insert(0, str(simulated))
        libraries = [str(simulated / "op_api" / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
        os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, libraries))
    os.environ.pop(CUSTOM_OPP, None)
    if folders:
        os.environ[CUSTOM_OPP] = os.pathsep.join(folders)


def _warn_of_a_truncated_package(folder: str) -> None:
    from npu_rope.operator_package import interface_fault_of

    if (fault := interface_fault_of(folder)) is not None:
        warnings.warn(
            f"[npu] operator package must be whole but {fault}.\ntorch_npu's first operator may end this "
            f"process. Build the package again, or take its folder out of {CUSTOM_OPP}.",
            RuntimeWarning,
            stacklevel=2,
        )


@dataclass(frozen=True)
class NpuPiece:
    """A piece that the npu back end needs: its description, its location (None: not found), how to get it."""

    name: str
    what: str
    found: str | None
    remedy: str


def npu_pieces() -> list[NpuPiece]:
    """Return all pieces that the npu back end needs."""
    spec = importlib.util.find_spec("torch_npu")
    cann = os.environ.get("ASCEND_HOME_PATH", "")
    soc = simulated_soc()
    devices = [f"/dev/{name}" for name in _device_names()]
    return [
        NpuPiece(
            "torch_npu",
            "the torch_npu package",
            os.path.dirname(spec.origin) if spec and spec.origin else None,
            simulated_torch_npu_remedy("COMMAND")
            if soc
            else "pip install torch_npu (the version of your torch)",
        ),
        NpuPiece(
            "CANN",
            "CANN (ASCEND_HOME_PATH)",
            ("simulated" if soc else cann) if cann and os.path.isdir(cann) else None,
            "install the CANN toolkit, then: source /usr/local/Ascend/cann/set_env.sh",
        ),
        NpuPiece(
            "device",
            "an Ascend device (/dev/davinci0 or another number)",
            f"{soc}, simulated: no hardware" if soc else ", ".join(devices) or None,
            "run on a machine with an Ascend NPU and its driver; start a container with"
            " --device /dev/davinci0; or simulate: npu-rope sim -- COMMAND",
        ),
        NpuPiece(
            "binding",
            "npu_rope's binding of torch_npu",
            npu_binding(),
            "install npu_rope where torch_npu is: a wheel that scripts/build_wheels.sh --npu made, or in a"
            " checkout: pip install --no-build-isolation ./simulator .",
        ),
        NpuPiece(
            "operators",
            "npu_rope's operator package (ASCEND_CUSTOM_OPP_PATH)",
            operator_package(),
            "in a checkout, build it with CANN, then install npu_rope again:"
            " scripts/build_npu.sh && pip install --no-build-isolation ./simulator .",
        ),
    ]


def _device_names() -> list[str]:
    """Return the names of the NPUs in /dev. ``davinci_manager``, which they share, is not one of them."""
    try:
        names = os.listdir("/dev")
    except OSError:
        return []
    return sorted(name for name in names if re.fullmatch("davinci[0-9]+", name))


def _npu_missing() -> Missing | None:
    absent = [piece for piece in npu_pieces() if piece.found is None]
    if not absent:
        return None
    return Missing(
        "it lacks " + "; ".join(piece.what for piece in absent),
        "\n".join(f"- {piece.what}: {piece.remedy}" for piece in absent),
    )


@dataclass(frozen=True)
class Backend:
    """A back end. ``missing()`` returns None if it can run."""

    name: str
    summary: str
    missing: Callable[[], Missing | None]
    same_as: str = ""  # another back end that runs the same code on the same sizes

    def require(self) -> Backend:
        """Return this back end, or raise BackendUnavailable."""
        missing = self.missing()
        if missing is not None:
            raise BackendUnavailable(self.name, missing.what, missing.remedy)
        return self


# ---- the registry -------------------------------------------------------------------------------

BACKENDS: dict[str, Backend] = {
    "reference": Backend("reference", "NumPy, float64", _nothing_missing),
    "cpu": Backend("cpu", "C++: SIMD, threads", _cpu_missing),
    "sim": Backend("sim", "the AscendC kernels on the simulator, as on ascend910b", _sim_missing),
    **{
        f"sim:{soc}": Backend(f"sim:{soc}", f"the same on {soc}{NOTES.get(soc, '')}", _sim_missing, same_as)
        for soc, same_as in SIMULATED_SOCS.items()
    },
    "npu": Backend("npu", "torch_npu: CANN, or simulated", _npu_missing),
}


def find(name: str, *, op: str = "rope") -> Backend:
    """Return the back end of that name, available or not. Errors name the operator ``op``.

    Raises:
        ValueError: the back end's name is unknown.
    """
    try:
        return BACKENDS[name]
    except (KeyError, TypeError):
        raise bad_value(op, "backend", f"be one of {', '.join(BACKENDS)}", repr(name)) from None


def executor_of(op: str, executors: Mapping[str, E], name: str) -> E:
    """Return an operator's executor on the back end of that name.

    Raises:
        ValueError: the back end's name is unknown.
        BackendUnavailable: the back end is unavailable or lacks this operator.
    """
    find(name, op=op).require()
    if name not in executors:
        raise BackendUnavailable(name, f"it does not have {op}", f"Use one of: {', '.join(executors)}.")
    return executors[name]


def available() -> list[str]:
    """Return the names of the back ends that can run, without aliases."""
    return [name for name, b in BACKENDS.items() if not b.same_as and b.missing() is None]


def packed(op: str, attributes: object) -> bytes:
    """Return a call's attributes as the bytes of the uint8 tensor that the operator's packed schema takes."""
    return native.packed(op, attributes)


def packed_values(op: str, *values: float) -> bytes:
    """Return :func:`packed` for the values of attributes without a RopeParams, as the C function has them.

    Raises:
        ValueError: an integer has more than 64 bits.
    """
    return native.packed_values(op, *values)


def packed_call(params: RopeParams, forward: bool, angle: Angle, *, op: str = "rope") -> bytes:
    """Return the attributes as bytes for the packed schemas of rope, rope_qk and rope_set_rows."""
    policy = angle_policy(op, angle)
    return packed(op, RopeCallAttributes(params, flag(op, "forward", forward), policy))


def torch_registration() -> str | None:
    """Return the path of the C++ torch registration, or None if it was not built."""
    path = native.find_library("npu_rope_torch")
    return None if path is None else str(path)
