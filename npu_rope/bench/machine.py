"""Descriptions of the machine and the packages, without host names and paths."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

from npu_rope import native
from npu_rope.errors import BackendUnavailable
from npu_rope.testing.ggml import GgmlAborted, GgmlProcess, GgmlUnavailable

_PACKAGES = ("npu-rope", "torch", "numpy", "onnxruntime", "onnx", "transformers")
_FLAGS = ("avx512f", "avx512_bf16", "avx512_fp16", "avx2", "f16c", "fma", "asimd", "sve")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def machine() -> str:
    """Return processor, cores, caches, memory and system in one line."""
    parts = [_processor(), f"{os.cpu_count()} cores", *_caches()]
    try:
        gibibytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        parts.append(f"{gibibytes:.0f} GiB memory")
    except (ValueError, OSError):
        pass
    return ", ".join([*parts, platform.system()])


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    facts: dict[str, str] = {}
    for line in lines:  # the first processor describes all
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    name = facts.get("model name", platform.machine())
    if "cpu family" in facts:
        name += f" (family {facts['cpu family']} model {facts.get('model', '?')})"
    flags = set((facts.get("flags") or facts.get("Features") or "").split())
    listed_flags = "/".join(flag for flag in _FLAGS if flag in flags)
    return " ".join([name, *(["with"] if flags else []), listed_flags]).strip()


def _caches() -> list[str]:
    caches = []
    for index in sorted(_CACHES.glob("index*")):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction":
            caches.append(f"L{level}{'d' if kind == 'Data' else ''} {size.removesuffix('K')} KiB")
    return caches


def version_of(package: str) -> str | None:
    """Return the version of an installed package without importing it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def versions(ggml_lib: str | None) -> dict[str, str]:
    """Return package versions; ``not installed`` for a missing one."""
    found = {"python": platform.python_version()}
    found |= {name: version_of(name) or "not installed" for name in _PACKAGES}
    try:
        with GgmlProcess(ggml_lib) as process:
            found["ggml"] = f"{process.info.version} ({process.info.cpu_library})"
    except (GgmlUnavailable, GgmlAborted):
        found["ggml"] = "not installed"
    return found


def isa() -> str:
    """Return the instruction set that npu_rope's kernels use here."""
    try:
        return native.load().isa()
    except BackendUnavailable:
        return "no native library"
