"""The names that CANN has for the chips of the supported SoCs, as data.

``op_host/chips.h`` holds the same table for C++, and the source of its figures; a test compares both.

``scripts/build_npu.sh`` runs this file by itself, before npu_rope is installed. Therefore the file imports
only the standard library. ``python3 -I npu_rope/chips.py`` prints the SoC of this machine's NPU.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

NPU_SMI_SECONDS = 30

# CANN's names of the chips of each SoC.
CHIPS = {
    "ascend910b": (
        "Ascend910B1",
        "Ascend910B2",
        "Ascend910B2C",
        "Ascend910B3",
        "Ascend910B4",
        "Ascend910B4-1",
    ),
    "ascend910_93": (
        "Ascend910_9391",
        "Ascend910_9392",
        "Ascend910_9381",
        "Ascend910_9382",
        "Ascend910_9372",
        "Ascend910_9362",
        "Ascend910_9363",
    ),
    "ascend310p": ("Ascend310P1", "Ascend310P3", "Ascend310P5", "Ascend310P7"),
    "ascend950": ("Ascend950PR_9589", "Ascend950PR_9599"),
}
SOCS = tuple(CHIPS)

# A chip's name begins with a family's prefix and a digit. "Ascend910B" alone is of another family.
PREFIXES = {
    "Ascend910B": "ascend910b",
    "Ascend910_93": "ascend910_93",
    "Ascend310P": "ascend310p",
    "Ascend950PR_": "ascend950",
    "Ascend950DT_": "ascend950",
}


def soc_of(chip: str) -> str | None:
    """Return the SoC of a chip's name. The name need not be in :data:`CHIPS`.

    Returns:
        A key of :data:`CHIPS`; None if the chip belongs to none of these SoCs.

    Example:
        >>> soc_of("Ascend910B4-1"), soc_of("Ascend910B9"), soc_of("Ascend910B")
        ('ascend910b', 'ascend910b', None)
    """
    for prefix, soc in PREFIXES.items():
        if re.match(re.escape(prefix) + "[0-9]", chip):
            return soc
    return None


def has_bfloat16(name: str) -> bool:
    """Return whether the vector cores of a chip, or of an SoC, compute in bfloat16."""
    return not name.lower().startswith("ascend310p")


class NoChip(Exception):
    """This machine's chip is unknown. The text gives the reason."""


def _npu_smi(*arguments: str) -> str:
    """Return the output of ``npu-smi info``; raise NoChip if the command fails."""
    if shutil.which("npu-smi") is None:
        raise NoChip("npu-smi, which comes with the NPU's driver, is not on PATH")
    command = ["npu-smi", "info", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=NPU_SMI_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoChip(f"{' '.join(command)} does not run: {error}") from None
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise NoChip(
            f"{' '.join(command)} failed with status {done.returncode}: {words[-1] if words else 'no output'}"
        )
    return done.stdout


def _fields(text: str) -> dict[str, str]:
    """Return the values of ``name : value`` lines by name, the first one of each name."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(" ".join(name.split()), value.strip())
    return found


def chip_of_machine() -> str:
    """Return CANN's name of this machine's first NPU, as ``npu-smi`` reports it.

    The fields are those that vllm-ascend's setup.py reads: on A2 and 310P "Chip Type" and "Chip Name"
    (Ascend, 910B3), on A3 and Ascend950 "Chip Name" and "NPU Name" (Ascend910, 9392). Some A2 firmware has
    the Chip Name A2G3, which vllm-ascend treats as 910B1.

    Raises:
        NoChip: there is no npu-smi, it fails, or it does not name a chip.
    """
    number = _fields(_npu_smi("-l")).get("NPU ID", "")
    if not number.isdigit():
        raise NoChip("npu-smi info -l must list an NPU ID but lists none")
    board = _fields(_npu_smi("-t", "board", "-i", number))
    if not board.get("Chip Name"):
        board = _fields(_npu_smi("-t", "board", "-i", number, "-c", "0"))
    kind, name, npu = (board.get(key, "") for key in ("Chip Type", "Chip Name", "NPU Name"))
    if not name:
        raise NoChip(f"npu-smi info -t board -i {number} must have a Chip Name but has none")
    if name.upper() == "A2G3":
        return "Ascend910B1"
    if kind:
        return kind + name
    return f"{name}_{npu}" if npu else name


def main() -> int:
    """Print chip and SoC. Return 0, or 1 if the chip is unknown, or 2 if no package supports it."""
    try:
        chip = chip_of_machine()
    except NoChip as error:
        print(error)
        return 1
    print(chip)
    soc = soc_of(chip)
    if soc is None:
        return 2
    print(soc)
    return 0


if __name__ == "__main__":
    sys.exit(main())
