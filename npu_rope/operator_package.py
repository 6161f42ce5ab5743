"""Check the files of a built operator package: it must be complete and have kernels for the named SoCs.

CANN's project template packs this layout (hicann/asc-tools utils/templates, ``func.cmake`` and
``ascendc_ops_config.py``): interface and headers in ``op_api``, tilings and kernels in
``op_impl/ai_core/tbe``, with a folder and a list of kernels for each SoC.

The build runs this file by itself. Therefore the file imports only the standard library. ``python3 -I
npu_rope/operator_package.py FOLDER SOC...`` prints a fault and exits with status 1 if it finds one.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from pathlib import Path
from typing import Any

INTERFACE = Path("op_api/lib/libcust_opapi.so")
HEADERS = Path("op_api/include")
TBE = Path("op_impl/ai_core/tbe")
KERNELS = TBE / "kernel"


def socs_of(folder: str | Path) -> list[str]:
    """Return the SoCs that a package has kernels for."""
    kernels = Path(folder) / KERNELS
    if not kernels.is_dir():
        return []
    return sorted(p.name for p in kernels.iterdir() if p.is_dir() and p.name != "config")


def fault_of(folder: str | Path, soc: str | None = None) -> str | None:
    """Return the first fault of a package, or None if it is complete.

    Args:
        folder: ``vendors/npu_rope``.
        soc: the SoC that it must have kernels for; None: any.

    Returns:
        A sentence without its full stop, which names the file and the rule that it breaks, or None.
    """
    return path_fault_of(folder) or content_fault_of(folder, soc)


def path_fault_of(folder: str | Path) -> str | None:
    """Return why CANN cannot run a package in this folder, or None if it can.

    CANN replaces everything after the first ``.o`` of a kernel's path to get the path of the kernel's
    description. It does not resolve links in the package's path. Source: hicann/opbase
    ``src/nnopbase/individual_op/executor/indv_bininfo.cpp``, ``NnopbaseGetKernelJsonPath``, and
    ``indv_collector.cpp``, ``NnopbaseGetCustomOppPath``.
    """
    if ".o" not in str(folder):
        return None
    return (
        f"the path of the operator package must not contain .o but is {folder}: CANN cuts the path of a"
        " kernel at the first .o, so install npu_rope in another folder"
    )


def content_fault_of(folder: str | Path, soc: str | None = None) -> str | None:
    """Return the first fault of a package as :func:`fault_of`, but do not check its path."""
    package = Path(folder)
    tilings = sorted((package / TBE / "op_tiling").rglob("libcust_opmaster*.so"))
    if not tilings:
        return f"{package / TBE / 'op_tiling'} must hold libcust_opmaster_rt2.0.so but does not"
    for library in (package / INTERFACE, *tilings):
        if (fault := _elf_fault(library)) is not None:
            return fault
    operators = sorted(p.stem.removeprefix("aclnn_") for p in (package / HEADERS).glob("aclnn_npu_*.h"))
    if not operators:
        return f"{package / HEADERS} must hold the interfaces aclnn_npu_*.h but holds none"
    socs = socs_of(package)
    if not socs:
        return f"{package / KERNELS} must hold a folder of kernels for each SoC but holds none"
    if soc is not None and soc not in socs:
        return f"the package must have kernels for {soc} but has them for {', '.join(socs)}"
    for name in [soc] if soc else socs:
        if (fault := _kernels_fault(package / KERNELS, name, operators)) is not None:
            return fault
    return None


def interface_fault_of(folder: str | Path) -> str | None:
    """Return why the library of a package's aclnn functions cannot be opened, or None if it is complete.

    At its first operator, torch_npu opens this library of every package in ``ASCEND_CUSTOM_OPP_PATH``. A
    truncated file ends the process with SIGBUS.
    """
    return _elf_fault(Path(folder) / INTERFACE)


def _kernels_fault(kernels: Path, soc: str, operators: list[str]) -> str | None:
    """Return the first fault of an SoC's kernels, their descriptions, and the list of kernels for CANN."""
    for operator in operators:
        described = sorted((kernels / soc / operator).glob("*.json"))
        if not described:
            return f"{kernels / soc / operator} must hold the kernels of {operator} but holds none"
        for description in described:
            if (fault := _kernel_fault(description)) is not None:
                return fault
    listed = kernels / "config" / soc / "binary_info_config.json"
    entries = _json(listed)
    if not isinstance(entries, dict):
        return f"{listed} must list the kernels of {soc} but is {_state(listed)}"
    paths = sorted(set(_bin_paths(entries)))
    for path in paths:
        if not (kernels / path).is_file():
            return f"{kernels / path} must be there, as {listed.name} lists it, but is missing"
    for operator in operators:
        if not any(Path(path).parent.name == operator for path in paths):
            return f"{listed} must list the kernels of {operator} but lists none"
    return None


def _kernel_fault(description: Path) -> str | None:
    """Return the fault of a kernel whose object does not have the hash in its description, or None."""
    described = _json(description)
    if not isinstance(described, dict) or "binFileName" not in described:
        return f"{description} must describe a kernel but is {_state(description)}"
    kernel = description.parent / f"{described['binFileName']}{described.get('binFileSuffix', '.o')}"
    if not kernel.is_file():
        return f"{kernel} must be there, as {description.name} describes it, but is missing"
    if "sha256" in described and hashlib.sha256(kernel.read_bytes()).hexdigest() != described["sha256"]:
        return f"{kernel} must have the bytes that {description.name} describes but is truncated or changed"
    return None


def _bin_paths(entries: Any) -> list[str]:
    """Return all values of ``binPath`` in nested lists and dicts."""
    if isinstance(entries, list):
        return [path for entry in entries for path in _bin_paths(entry)]
    if not isinstance(entries, dict):
        return []
    here = [entries["binPath"]] if isinstance(entries.get("binPath"), str) else []
    return here + [path for value in entries.values() for path in _bin_paths(value)]


def _json(path: Path) -> Any:
    """Return the content of a JSON file; None if the file is missing or is not JSON."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def _state(path: Path) -> str:
    if not path.is_file():
        return "missing"
    return "truncated or changed"


def _elf_fault(path: Path) -> str | None:
    """Return the fault of a shared library that is no ELF file or is truncated; None if it is complete."""
    if not path.is_file():
        return f"{path} must be there but is missing"
    data = path.read_bytes()
    if len(data) < 64 or data[:5] != b"\x7fELF\x02":
        return f"{path} must be a 64-bit ELF library but is truncated or another file"
    table, size, count = (
        struct.unpack_from("<Q", data, 0x28)[0],
        *struct.unpack_from("<HH", data, 0x3A),
    )
    ends = [table + size * count]
    if count and ends[0] <= len(data):
        for k in range(count):
            kind, offset, length = (
                struct.unpack_from("<I", data, table + size * k + 4)[0],
                *struct.unpack_from("<QQ", data, table + size * k + 0x18),
            )
            if kind != 8:  # SHT_NOBITS takes no bytes
                ends.append(offset + length)
    if max(ends) > len(data):
        return f"{path} must have {max(ends)} bytes but is truncated to {len(data)}"
    return None


def main(arguments: list[str]) -> int:
    """Check a package for each named SoC, but not its path, because it may be installed elsewhere."""
    folder, *socs = arguments
    for soc in socs:
        if (fault := content_fault_of(folder, soc)) is not None:
            print(f"[operators] {fault}.", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
