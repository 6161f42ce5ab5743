"""Compile programs that launch their own kernels: ``kernel<<<blocks, l2ctrl, stream>>>(arguments)``."""

from __future__ import annotations

import os
import shlex
import stat
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ascend_sim import folders
from ascend_sim.compiler import AICORE, compile_into, compile_soc, compiler
from ascend_sim.errors import bad_value
from ascend_sim.files import replacing, shared, unreadable, unwritable
from ascend_sim.launch_syntax import line_directive, rewritten

__all__ = ["build_program"]

_FLAGS = ("-std=c++17", "-O2", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv", "-fPIE")


def build_program(
    sources: Sequence[str | Path],
    output: str | Path,
    soc: str = "ascend910b",
    *,
    defines: Mapping[str, str] | None = None,
    include: Sequence[str | Path] = (),
    flags: Sequence[str] = (),
    auto_sync: bool = True,
) -> Path:
    """Compile a program whose files hold host code and kernels, such as the ``.asc`` files of asc-devkit.

    The program links with the simulated CANN. ``ascend-sim run -- PROGRAM`` runs it.

    Args:
        sources: C++ files; each launch with ``<<<>>>`` must be in one of these.
        output: the program.
        soc: the SoC of the kernels, such as ``"ascend910b"``, or a chip.
        defines: macros.
        include: more folders of headers; each source's own folder is one.
        flags: more flags for the compiler and the linker.
        auto_sync: insert synchronisation in the kernels, as CANN's compiler does for such programs without
            ``--cce-auto-sync=off`` (asc-devkit, page PipeBarrier).

    Returns:
        The program's path.

    Raises:
        CompileFailed: the compiler failed; the message holds its output. An earlier program stays.
        ValueError: a source cannot be read, a launch is incomplete, or there is no such SoC.
        OSError: the disk is full.
        Unavailable: the compiler does not run.
    """
    output = Path(output)
    paths = [Path(source) for source in sources]
    for source in paths:
        if fault := unreadable(source):
            raise bad_value(f"source {fault}")
    if fault := unwritable(output):
        raise bad_value(f"output {fault}")
    if fault := shared([("a source", source) for source in paths], output=output):
        raise bad_value(fault)
    aicore = AICORE[compile_soc(soc)]
    libraries = [folders.library(stem) for stem in ("ascend_sim", "ascend_sim_cann")]
    root = folders.root()
    command = [*shlex.split(compiler()), *_FLAGS, f"-D__CCE_AICORE__={aicore}", "-DASCEND_SIM_PROGRAM"]
    command += [f"-DASCEND_SIM_AUTO_SYNC={int(auto_sync)}"]
    command += [f"-D{name}={value}" for name, value in (defines or {}).items()]
    source_folders = dict.fromkeys(source.resolve().parent for source in paths)
    include_folders = (*source_folders, *include, root / "cann/include", root / "include", root)
    command += [f"-I{path}" for path in include_folders]
    for header in ("tiling_prelude.h", "kernel_operator.h", "ascendc/launch.h"):
        command += ["-include", header]
    command += flags
    with tempfile.TemporaryDirectory() as folder:
        for number, source in enumerate(paths):
            copy = Path(folder) / f"{number}" / f"{source.stem}.cpp"
            copy.parent.mkdir()
            text = rewritten(source.read_text(errors="replace"), source.name)
            copy.write_text(line_directive(source.resolve()) + text)
            command.append(str(copy))
        # The archive has the host functions of library functions, such as GetGeluMaxMinTmpSize.
        made = Path(folder) / "program"
        command += [str(folders.archive("ascend_sim_host")), *map(str, libraries)]
        command += [f"-Wl,-rpath,{libraries[0].parent}", "-pthread"]
        compile_into(made, command)
        with replacing(output, "wb") as stream:
            stream.write(made.read_bytes())
            if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                os.fchmod(stream.fileno(), made.stat().st_mode)
    return output
