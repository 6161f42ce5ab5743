"""Count the instructions of the CPU kernels for aarch64, under emulation.

The program compiles count_instructions.c and runs it with qemu-aarch64 in single steps. It counts the
steps of two calls that differ in the number of heads, and of two that differ in the number of tokens. The
differences are the instructions of a head of 128 lanes, and of a token beside its heads: its tables (64
pairs) and, in operators of queries and keys, its one head of keys and of values. A vector of NEON has 128
bits. The counts say nothing about the time of an instruction.

Needed: a cross compiler and the emulator (Debian: g++-aarch64-linux-gnu, qemu-user-static), and a
libnpu_rope.so for aarch64, for example from a wheel of scripts/build_wheels.sh:

  unzip -d aarch64 dist/npu_rope-*_aarch64.whl
  python benchmarks/count_instructions.py aarch64/npu_rope/lib/libnpu_rope.so
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMPILER, EMULATOR, LOADER_ROOT = "aarch64-linux-gnu-gcc", "qemu-aarch64-static", "/usr/aarch64-linux-gnu"
DTYPES = {"f32": 0, "f16": 1, "bf16": 2}
OPERATORS = (
    *("copy", "rope neox", "rope normal", "rope_qk", "rotary_mul"),
    *("rms_norm", "rms_norm_rope", "qkv_norm_rope_cache"),
)
# The tables of a call with one token are kept for its thread, which takes instructions too.
HEADS, TOKENS = 8, 2


def compiled(folder: Path, library: Path) -> Path:
    """Return the program, linked with the library."""
    program = folder / "count_instructions"
    source = Path(__file__).with_suffix(".c")
    command = [COMPILER, "-O2", f"-I{ROOT}", str(source), str(library), f"-Wl,-rpath,{library.parent}"]
    subprocess.run([*command, "-Wl,--allow-shlib-undefined", "-o", str(program)], check=True)
    return program


def steps(program: Path, op: str, dtype: str, tokens: int, heads: int) -> int:
    """Return the number of instructions that a run of the program executes."""
    command = [EMULATOR, "-L", LOADER_ROOT, "-singlestep", "-d", "exec,nochain", str(program)]
    command += [op, str(DTYPES[dtype]), str(tokens), str(heads)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stderr is not None
        count, rest = 0, b""
        while block := process.stderr.read(1 << 20):
            count += block.count(b"Trace ")
            rest = (rest + block)[-500:]
    if process.returncode != 0:
        sys.exit(
            f"{' '.join(command)} ended with status {process.returncode}: {rest.decode(errors='replace')}"
        )
    return count


def counts(program: Path, op: str, dtype: str) -> tuple[float, float]:
    """Return the instructions of a head, and those of a token beside its heads."""
    one = steps(program, op, dtype, TOKENS, HEADS)
    more_heads, more_tokens = (
        steps(program, op, dtype, TOKENS, 2 * HEADS),
        steps(program, op, dtype, 2 * TOKENS, HEADS),
    )
    of_head = (more_heads - one) / (HEADS * TOKENS)
    return of_head, (more_tokens - one) / TOKENS - HEADS * of_head


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("library", type=Path, help="libnpu_rope.so for aarch64")
    library = parser.parse_args().library.resolve()
    for tool in (COMPILER, EMULATOR):
        if shutil.which(tool) is None:
            parser.error(f"{tool} must be installed (Debian: g++-aarch64-linux-gnu, qemu-user-static)")
    if not library.is_file():
        parser.error(f"library must be a file but got {library}")
    print("| operator | dtype | a head | copies | a token beside its heads |\n|---|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(Path(folder), library)
        copies = {dtype: counts(program, "copy", dtype)[0] for dtype in DTYPES}
        for op in OPERATORS:
            for dtype in DTYPES:
                of_head, of_token = counts(program, op, dtype)
                tables = "" if op in ("copy", "rms_norm") else f"{of_token:.0f}"
                print(
                    f"| {op} | {dtype} | {of_head:.0f} | {of_head / copies[dtype]:.1f} | {tables} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
