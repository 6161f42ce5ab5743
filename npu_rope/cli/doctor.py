"""``npu-rope doctor``: list the present parts, and for each absent part the reason and the remedy."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from ascend_sim import Unavailable, folders
from ascend_sim.texts import printable
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from npu_rope import (
    __version__,
    backends,
    cann_versions,
    chips,
    native,
    operator_package,
    optional_torch,
    simulated_package,
)
from npu_rope.bench.machine import version_of
from npu_rope.errors import BackendUnavailable
from npu_rope.ops.registrar import REINSTALL, npu_binding_error, registration_error
from npu_rope.testing.ggml import GgmlAborted, GgmlProcess, GgmlUnavailable

BUILD_PACKAGE = "in a checkout: scripts/build_npu.sh && pip install --no-build-isolation ./simulator ."
INSTALL_AGAIN = "in a checkout: pip install --no-build-isolation --force-reinstall --no-deps ."
PEERS = ("onnx", "onnxruntime", "transformers")
SLOWER = "torch calls go through Python and ctypes, each about 10 microseconds slower"
COMMAND_SECONDS = 10  # time limit of a tool's --version


@dataclass
class Finding:
    """One line of the report. ``present`` is None for a fact that is neither good nor bad."""

    group: str
    piece: str
    present: bool | None
    detail: str
    remedy: str = ""


def _finding_of(group: str, piece: str, detail: str | None, absent: str, remedy: str) -> Finding:
    """Return the finding of a piece. The piece is absent if ``detail`` is None."""
    if detail is None:
        return Finding(group, piece, False, absent, remedy)
    return Finding(group, piece, True, detail)


def doctor(
    json_: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """List the parts that npu_rope finds: back ends, torch, CANN, NPU, CPU, peers.

    The last line says what this machine can do, and the next command to type.

    Always exits 0: an absent part is an error only when something needs it.
    """
    findings = find_all()
    if json_:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
        return
    console = Console(highlight=False)
    if console.is_terminal:
        _show(findings, console)
        return
    console.width = 400  # a program that reads the output needs whole paths and commands
    with console.capture() as captured:
        _show(findings, console)
    print(*(line.rstrip() for line in captured.get().splitlines()), sep="\n")


def find_all() -> list[Finding]:
    """Return the findings about every part."""
    npu = _npu()
    return [*_package(), *_backends(npu), *_simulator(), *_torch(), *npu, *_tools(), *_peers()]


def next_step(findings: list[Finding]) -> str:
    """Return in one line what this machine can do, and the next command to type."""
    by_piece = {(finding.group, finding.piece): finding for finding in findings}
    can_run = {f.piece for f in findings if f.group == "back ends" and f.present}
    library, device = by_piece["npu_rope", "C library"], by_piece["NPU", "device"]
    command = backends.command_line()
    if not library.present:
        text = "This machine computes only the float64 reference, because npu_rope's C library is absent"
        return f"{text}. Next: {library.remedy}"
    default = by_piece["back ends", "default"]
    if default.present is False:
        return f"Calls without backend= fail: {default.detail}. Next: {default.remedy}"
    if "npu" in can_run and (soc := backends.simulated_soc()):
        return f"This process runs npu_rope on a simulated {soc}. Next: {command} validate --backend npu"
    if "npu" in can_run:
        return f"This machine runs npu_rope on its NPU. Next: {command} hardware-report --quick"
    if device.present:
        fault = next(f for f in findings if f.group == "NPU" and f.present is False)
        text = f"This machine has an NPU that npu_rope cannot use yet: {fault.piece} is not in order"
        return f"{text}. Next: {fault.remedy or fault.detail}"
    if "sim" in can_run:
        text = "This machine runs npu_rope on the CPU, and its NPU kernels on the simulator; it has no NPU"
        return f"{text}. Next: {command} validate"
    text = "This machine runs npu_rope on the CPU only, because the simulator is absent"
    return f"{text}. Next: {command} validate --backend cpu"


def _show(findings: list[Finding], console: Console) -> None:
    for group in dict.fromkeys(finding.group for finding in findings):
        table = Table(title=group, title_justify="left", title_style="bold", show_header=False, box=None)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for finding in findings:
            if finding.group == group:
                mark = {True: "[green]yes[/]", False: "[yellow]no[/]", None: ""}[finding.present]
                texts = map(printable, filter(None, (finding.detail, finding.remedy)))
                table.add_row(mark, finding.piece, escape("\n".join(texts)))
        console.print(table)
        console.print()
    console.print(escape(printable(next_step(findings))), style="bold", soft_wrap=True)


def _package() -> list[Finding]:
    group = "npu_rope"
    findings = [
        Finding(group, "version", None, __version__),
        Finding(group, "Python", None, _python()),
    ]
    try:
        library = native.load()
    except BackendUnavailable as error:
        return [*findings, Finding(group, "C library", False, error.missing, error.remedy)]
    return [
        *findings,
        Finding(group, "C library", True, f"version {library.version()}, {library.path}"),
        Finding(group, "instruction set", None, f"{library.isa()} (the widest this CPU has of those built)"),
        Finding(group, "threads", None, f"{library.num_threads()} ({os.cpu_count()} CPUs)"),
    ]


def _python() -> str:
    return f"{platform.python_version()} on {platform.system()} {platform.machine()}"


def _backends(npu: list[Finding]) -> list[Finding]:
    """Return a finding for each back end and for the default. Back end npu is present only if all findings of
    group NPU are good."""
    faulty = ", ".join(finding.piece for finding in npu if finding.present is False)
    findings = []
    for backend in backends.BACKENDS.values():
        if backend.same_as:
            continue  # the other back end's finding covers it
        missing = backend.missing()
        if missing is None and backend.name == "npu" and faulty:
            missing = backends.Missing(f"not in order: {faulty}", "")
        if missing is None:
            soc = backends.simulated_soc() if backend.name == "npu" else None
            summary = f"torch_npu, simulated CANN and {soc}" if soc else backend.summary
            findings.append(Finding("back ends", backend.name, True, summary))
        else:
            remedy = "see NPU below" if backend.name == "npu" else missing.remedy
            findings.append(Finding("back ends", backend.name, False, missing.what, remedy))
    return [*findings, _default()]


def _default() -> Finding:
    """Return the finding about the back end of calls without ``backend=``."""
    group, piece, chosen = "back ends", "default", backends.default_backend
    if chosen is None:
        return Finding(group, piece, None, "by the tensor's device (NumPy: cpu)")
    detail = f"{backends.ENVIRONMENT_VARIABLE}={chosen}"
    if chosen in backends.BACKENDS and backends.BACKENDS[chosen].missing() is None:
        return Finding(group, piece, None, detail)
    names = [name for name, backend in backends.BACKENDS.items() if backend.missing() is None]
    remedy = f"unset {backends.ENVIRONMENT_VARIABLE}, or set it to one of {', '.join(names)}"
    return Finding(group, piece, False, f"{detail} is absent here", remedy)


def _simulator() -> list[Finding]:
    group = "simulator"
    try:
        package = simulated_package.load()
    except BackendUnavailable as error:
        return [Finding(group, "library", False, error.missing, error.remedy)]
    findings = [
        Finding(group, "library", True, str(package.simulator.path)),
        Finding(group, "operator package", True, str(package.folder)),
        Finding(group, "kernels for", None, ", ".join(package.socs)),
        _kernels(package.folder / "sim_kernels"),
        Finding(
            group, "chips", None, ", ".join(str(profile["name"]) for profile in package.simulator.profiles())
        ),
        Finding(group, "rules", None, f"{len(package.simulator.rules())}, all on"),
    ]
    try:
        findings.append(Finding(group, "kernel headers", True, str(folders.include())))
    except Unavailable as error:
        findings.append(Finding(group, "kernel headers", False, error.missing, error.remedy))
    return findings


def _kernels(folder: Path) -> Finding:
    socs = ", ".join(sorted(library.stem for library in folder.glob("*.so")))
    if socs:
        return Finding("simulator", "kernels", True, f"{socs} in {folder}")
    return Finding("simulator", "kernels", False, f"none in {folder}", "Reinstall npu-rope.")


def _torch() -> list[Finding]:
    torch = optional_torch.torch
    if torch is None:
        return [Finding("torch", "torch", False, optional_torch.cause, optional_torch.remedy)]
    findings = [Finding("torch", "torch", True, f"{torch.__version__}, {torch.get_num_threads()} threads")]
    path = backends.torch_registration()
    if path:
        error = registration_error(path)
        remedy = REINSTALL if error else ""
        detail = f"it does not load: {error}; {SLOWER}" if error else path
        return [*findings, Finding("torch", "C++ registration", not error, detail, remedy)]
    return [
        *findings,
        Finding(
            "torch",
            "C++ registration",
            False,
            f"not built: {SLOWER}",
            "If the compiler has no C++20, which torch's headers need, name a newer one with CXX. If torch"
            " was absent at build time (it is in pip's isolated builds), install it. Then, in a checkout:"
            " pip install --no-build-isolation ./simulator .",
        ),
    ]


def _npu() -> list[Finding]:
    pieces = backends.npu_pieces()
    findings = [
        _finding_of("NPU", piece.name, piece.found, f"{piece.what} is absent", piece.remedy)
        for piece in pieces
    ]
    found = {piece.name: piece.found for piece in pieces}
    return [*findings, *_cann_environment(found), *_npu_versions(found), *_npu_chip(found)]


def _cann_environment(found: dict[str, str | None]) -> list[Finding]:
    """Check ASCEND_OPP_PATH. Without it, CANN treats the last custom package as its own. It then does not
    load the tilings of that package (hicann/opbase, NnopbaseLoadTilingSo)."""
    named = os.environ.get("ASCEND_OPP_PATH", "")
    if not found["CANN"] or os.path.isdir(named):
        return []
    detail = f"must be CANN's folder of operators but is {named or 'not set'}"
    return [Finding("NPU", "ASCEND_OPP_PATH", False, detail, "Source CANN's set_env.sh.")]


def _npu_versions(found: dict[str, str | None]) -> list[Finding]:
    """Check whether the versions of CANN, torch_npu and the binding are compatible."""
    simulated = backends.simulated_soc() is not None
    torch_npu = version_of("torch_npu") if found["torch_npu"] else None
    findings = []
    if found["CANN"] or torch_npu:
        home = found["CANN"]
        cann = cann_versions.cann_version(home) if home and not simulated else None
        verdict = (
            cann_versions.Compatibility(None, f"torch_npu {torch_npu} on a simulated CANN without a version")
            if simulated
            else cann_versions.judge(cann, torch_npu)
        )
        findings.append(Finding("NPU", "versions", verdict.compatible, verdict.text, verdict.remedy))
    if found["binding"] and (error := npu_binding_error()):
        findings.append(Finding("NPU", "binding for", False, f"it does not load: {error}", REINSTALL))
    elif found["binding"]:
        built_for = cann_versions.binding_built_for(found["binding"])
        verdict = cann_versions.judge_binding(built_for, torch_npu)
        findings.append(Finding("NPU", "binding for", verdict.compatible, verdict.text, verdict.remedy))
    return findings


def _npu_chip(found: dict[str, str | None]) -> list[Finding]:
    """Return the machine's chip, and whether the operator package is complete and has kernels for it."""
    soc = None
    findings = []
    if simulated := backends.simulated_soc():
        soc = chips.soc_of(simulated)  # another finding names the chip
    else:
        try:
            chip = chips.chip_of_machine()
        except chips.NoChip as why:
            if found["device"]:
                remedy = "Name the SoC to scripts/build_npu.sh of a checkout yourself, such as ascend910b."
                findings.append(Finding("NPU", "chip", None, f"not known: {why}", remedy))
        else:
            soc = chips.soc_of(chip)
            text = f"{chip}: {soc}" if soc else f"{chip}, for which npu_rope has no kernels"
            findings.append(Finding("NPU", "chip", soc is not None, text))
    if found["operators"]:
        fault = operator_package.fault_of(found["operators"], soc)
        text = fault or f"kernels for {', '.join(operator_package.socs_of(found['operators']))}"
        remedy = _package_remedy(found["operators"]) if fault else ""
        findings.append(Finding("NPU", "kernels", fault is None, text, remedy))
    return findings


def _package_remedy(folder: str) -> str:
    """Return the remedy for the faulty package in this folder. The package is npu_rope's own, or another one
    that CANN finds first."""
    bundled = backends.bundled_package()
    if folder == bundled and operator_package.path_fault_of(folder) is not None:
        return "Install npu_rope in an environment whose path does not contain .o"
    if folder == bundled:
        if backends.simulated_soc() is not None:  # an install of npu_rope builds that package
            return f"Install npu_rope again: {INSTALL_AGAIN}"
        return f"Build it again, {BUILD_PACKAGE}"
    named = folder in os.environ.get(backends.CUSTOM_OPP, "").split(os.pathsep)
    removal = f"Take {folder} out of {backends.CUSTOM_OPP}" if named else f"Remove {folder}"
    build = f"Then build it, {BUILD_PACKAGE}"
    next_step = f"npu_rope then uses its own package, {bundled}" if bundled else build
    return f"{removal}: CANN takes it before npu_rope's own package. {next_step}"


def _tools() -> list[Finding]:
    group, compilers = "build tools", (os.environ.get("CXX"), "c++", "g++", "clang++")
    compiler = next((name for name in compilers if name and shutil.which(name)), None)
    version = compiler and _first_line([compiler, "--version"])
    findings = [_finding_of(group, "C++ compiler", version, "none on PATH", "install g++ or clang++ (C++17)")]
    for tool in ("cmake", "ninja", "npm"):
        version = None
        if shutil.which(tool):
            version = f"{tool} {_first_line([tool, '--version']).removeprefix('cmake version ')}"
        findings.append(_finding_of(group, tool, version, "not on PATH", ""))
    return findings


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run: {error}"
    lines = (done.stdout or done.stderr).splitlines()
    return lines[0] if lines else "(no output)"


def _peers() -> list[Finding]:
    findings = []
    try:
        with GgmlProcess() as ggml:
            info = ggml.info
        findings.append(Finding("peers", "ggml", True, f"{info.version} ({info.commit}), {info.cpu_library}"))
    except (GgmlUnavailable, GgmlAborted) as error:
        first, _, remedy = str(error).partition("\n")
        findings.append(Finding("peers", "ggml", False, first, remedy))
    installed = (
        _finding_of("peers", package, version_of(package), "not installed", f"pip install {package}")
        for package in PEERS
    )
    return [*findings, *installed]
