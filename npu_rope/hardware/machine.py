"""Facts about the machine: chip, versions, settings; no names of hosts or users (``privacy.py``)."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import npu_rope
from npu_rope import backends, cann_versions, chips
from npu_rope.bench.machine import machine as host
from npu_rope.bench.machine import version_of

UNKNOWN = "unknown"
COMMAND_SECONDS = 20
PACKAGES = ("torch", "torch_npu", "numpy")
# Settings that a result or a time may depend on.
VARIABLES = (
    "TASK_QUEUE_ENABLE",
    "ASCEND_LAUNCH_BLOCKING",
    "ASCEND_RT_VISIBLE_DEVICES",
    "ASCEND_HOME_PATH",
    "ASCEND_OPP_PATH",
    "ASCEND_CUSTOM_OPP_PATH",
    "ACLNN_CACHE_LIMIT",
    "PYTORCH_NPU_ALLOC_CONF",
    "PYTORCH_NO_NPU_MEMORY_CACHING",
    "CPU_AFFINITY_CONF",
    "NPU_ROPE_BACKEND",
)
_DRIVER = Path("/usr/local/Ascend/driver/version.info")
_FIRMWARE = Path("/usr/local/Ascend/firmware/version.info")


def facts(device: Any) -> dict[str, Any]:
    """Return all facts. The device's own facts come first; a fact that it does not report is missing."""
    simulated = bool(device.simulated)
    return {
        **device.facts(),
        "simulated": simulated,
        "cann": "simulated" if simulated else cann_versions.cann_version(_cann_folder()) or UNKNOWN,
        "driver": "none: simulated" if simulated else _version_in_file(_DRIVER),
        "firmware": "none: simulated" if simulated else _version_in_file(_FIRMWARE),
        "npu_smi": "none: simulated" if simulated else npu_smi_version(),
        **software(),
    }


def software() -> dict[str, Any]:
    """Return the facts that need no device."""
    return {
        "npu_rope": npu_rope.__version__,
        "npu_rope_revision": revision(),
        "python": f"{platform.python_version()} ({platform.machine()})",
        **{name: version_of(name) or "not installed" for name in PACKAGES},
        "host": host(),
        "libc": " ".join(platform.libc_ver()).strip() or UNKNOWN,
        "kernel": re.match(r"[\d.]*", platform.release())[0] or UNKNOWN,  # type: ignore[index]
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def _cann_folder() -> str:
    return os.environ.get("ASCEND_HOME_PATH") or "/nonexistent"


def _version_in_file(path: Path) -> str:
    return _value_in_file(path, "Version") or UNKNOWN


def _value_in_file(path: Path, key: str) -> str | None:
    """Return the value of a ``key=value`` line, the format of CANN's version files."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(rf"^\s*{key}\s*=\s*(\S+)", text, re.MULTILINE)
    return match[1] if match else None


def npu_smi_version() -> str:
    """Return the version that npu-smi prints; the rest of its output is dropped."""
    if shutil.which("npu-smi") is None:
        return "npu-smi is not on PATH"
    match = re.search(r"Version:?\s*([\w.]+)", _output_of(["npu-smi", "info"]), re.IGNORECASE)
    return match[1] if match else UNKNOWN


def revision() -> str:
    """Return the commit that npu_rope was installed from, if known."""
    try:
        text = importlib.metadata.distribution("npu-rope").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        text = None
    commit = json.loads(text).get("vcs_info", {}).get("commit_id") if text else None
    if commit:
        return str(commit)
    package = Path(npu_rope.__file__).parent
    git_command = ["git", "-C", str(package)]
    if not _output_of([*git_command, "ls-files", "--error-unmatch", "__init__.py"]):
        return UNKNOWN  # not a checkout of npu_rope
    commit = _output_of([*git_command, "rev-parse", "HEAD"])
    changed = _output_of([*git_command, "status", "--porcelain", "--untracked-files=no"])
    return f"{commit}{', with changes' if changed else ''}" if commit else UNKNOWN


def _output_of(command: list[str]) -> str:
    try:
        completed_process = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return completed_process.stdout.strip() if completed_process.returncode == 0 else ""


def nearest_profile(chip: str, profiles: list[dict[str, Any]]) -> tuple[str | None, str]:
    """Return the simulator's profile of a chip, and a note on it.

    A variant such as Ascend910B2C has the profile of Ascend910B2, with which its name begins.
    """
    by_name = {str(profile["name"]): profile for profile in profiles}
    if chip in by_name:
        return chip, ""
    candidates = sorted((name for name in by_name if chip.startswith(name)), key=len, reverse=True)
    soc = chips.soc_of(chip)
    candidates += [name for name in by_name if soc and chips.soc_of(name) == soc]
    if not candidates:
        return None, f"the simulator has no profile of {chip}; it has {', '.join(by_name)}"
    nearest = candidates[0]
    return nearest, f"the simulator has no profile of {chip}: {nearest}'s is used, whose sizes may differ"


def is_simulated() -> bool:
    """Return whether this process runs under ``npu-rope sim``."""
    return backends.simulated_soc() is not None
