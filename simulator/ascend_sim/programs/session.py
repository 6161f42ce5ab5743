"""One run of a command on the simulated NPU: its environment, its exit status and its report."""

from __future__ import annotations

import difflib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ascend_sim import folders
from ascend_sim.library import load
from ascend_sim.programs import executables, find_torch_npu, stubs, toolkit, watcher

T = TypeVar("T")

DEFAULT_CHIP = "Ascend910B2"
# The AI cores of each family's largest chip. A chip's name begins with its family's name and a digit.
FAMILIES = {"Ascend910B": 24, "Ascend910_93": 24, "Ascend310P": 10, "Ascend950PR_": 36, "Ascend950DT_": 36}

STARTUP = Path(__file__).parent / "startup"
# The signals that are sent on to the command.
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def chips() -> list[str]:
    """Return the chips that programs run on, by CANN's names; the first is the default."""
    named = [str(p["name"]) for p in load().profiles() if _family_of(str(p["name"]))]
    return sorted(dict.fromkeys(named), key=lambda name: name != DEFAULT_CHIP)


def _family_of(chip: str) -> str | None:
    return next((family for family in FAMILIES if re.match(re.escape(family) + "[0-9]", chip)), None)


def soc_fault(soc: str) -> str | None:
    """Return why ``soc`` is neither one of :func:`chips` nor ``NAME:CORES``, or None if it can be simulated.

    The second form is for future chips: a new name of a known family, and the number of AI cores.
    """
    name, colon, cores = soc.partition(":")
    family, known = _family_of(name), chips()
    if colon and name in known:
        return f"must be {name} without :CORES, which only a chip that is not listed has, but got {soc}."
    if colon and family and re.fullmatch("[0-9]{1,2}", cores) and 1 <= int(cores) <= FAMILIES[family]:
        return None
    if soc in known:
        return None
    fault = (
        f"must be one of {', '.join(known)}, or NAME:CORES for a chip that is not listed: a name of one of "
        f"these families and its number of AI cores, but got {soc}."
    )
    nearest = _nearest(name, known)
    return f"{fault}\nThe nearest names: {', '.join(nearest)}." if nearest else fault


def _nearest(name: str, known: list[str]) -> list[str]:
    """Return the chips whose names contain ``name``, without regard to case, else those that are similar."""
    lower = {chip.lower(): chip for chip in known}
    found = [chip for text, chip in lower.items() if name and name.lower() in text]
    return found or [lower[text] for text in difflib.get_close_matches(name.lower(), lower, cutoff=0.8)]


STREAMS = ("asynchronous", "immediate")  # the first is the default
MAX_DEVICES = 16  # of one server


def environment(
    command: list[str], soc: str, reports: Path, *, devices: int = 1, streams: str = STREAMS[0], seed: int = 0
) -> dict[str, str]:
    """Return the environment variables of the command.

    The command finds CANN's libraries in a toolkit folder. If its Python has torch_npu, it also finds the
    libraries that this torch_npu needs, which are built if they are missing.
    """
    variables = dict(os.environ)
    home = toolkit.cached()
    libraries = [home / "lib64", variables.get("LD_LIBRARY_PATH")]
    npu = find_torch_npu.torch_npu_of(find_torch_npu.python_of(command))
    if npu is not None:
        libraries.insert(0, stubs.prepare(npu, folders.library("ascend_sim_cann")))
        variables["PYTHONPATH"] = _path(STARTUP, variables.get("PYTHONPATH"))
        # 0 turns torch_npu's cache on, as on real machines.
        variables.setdefault("PYTORCH_NO_NPU_MEMORY_CACHING", "0")
        variables.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)  # may be 0 on a machine without CANN
    variables["LD_LIBRARY_PATH"] = _path(*libraries)
    variables["ASCEND_HOME_PATH"] = variables["ASCEND_TOOLKIT_HOME"] = str(home)
    variables["ASCEND_OPP_PATH"] = str(home / "opp")
    variables["ASCEND_SIM_SOC"] = soc
    variables["ASCEND_SIM_DEVICES"] = str(devices)
    variables["ASCEND_SIM_REPORT_DIR"] = str(reports)
    variables["ASCEND_SIM_STREAMS"] = streams
    variables["ASCEND_SIM_SEED"] = str(seed)
    return variables


def _path(*parts: Path | str | None) -> str:
    return os.pathsep.join(str(part) for part in parts if part)


@dataclass
class End:
    """The end of a command.

    Attributes:
        status: its exit status, or 128 plus the signal's number if a signal ended it.
        ended_by: the name of the signal that ended it, or "". A command that ends with a status above 128
            after this process forwarded a signal to it was ended by that signal.
    """

    status: int
    ended_by: str


def run(command: list[str], env: dict[str, str]) -> End:
    """Run the command. If this process is killed, all processes of the command end.

    Raises:
        Unavailable: the command does not start.
    """
    program = executables.find(command[0])
    executables.check(program, env.get("PATH"))
    with _watcher() as variables:
        try:
            child = subprocess.Popen(command, env=env | variables)
        except OSError as error:
            raise executables.not_started(program, error) from None
        with _forwarding(child) as forwarded:
            status = child.wait()
    if status < 0:
        return End(128 - status, _signal_name(-status))
    number = forwarded[-1] if forwarded and status > 128 else status - 128
    return End(status, _signal_name(number))


@contextmanager
def _watcher() -> Iterator[dict[str, str]]:
    """Start a process that ends the command's processes if this process is killed (:mod:`watcher`). Yield the
    variables by which it finds them. Systems other than Linux do not show it the environment of processes."""
    if sys.platform != "linux":
        yield {}
        return
    run = f"{os.getpid()}-{time.monotonic_ns()}"
    arguments = [sys.executable, "-I", "-S", watcher.__file__, run]
    # Without the variables of an outer run, whose watcher must not end this one.
    own = {name: value for name, value in os.environ.items() if name != watcher.VARIABLE}
    quiet, pipe = subprocess.DEVNULL, subprocess.PIPE
    # In a session of its own, it gets no signals of this process's group or terminal.
    with subprocess.Popen(
        arguments, env=own, stdin=pipe, stdout=quiet, stderr=quiet, cwd="/", start_new_session=True
    ) as process:
        try:
            yield {watcher.VARIABLE: run}
        finally:
            process.communicate(b".")


def _signal_name(number: int) -> str:
    """Return the name of a signal, or "" if the number is not that of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


@contextmanager
def _forwarding(child: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Forward signals of this process to the child. Yield the list of those that came."""
    # A terminal sends its own signals to both.
    from_terminal = {signal.SIGINT, signal.SIGQUIT} if sys.stdin is not None and sys.stdin.isatty() else set()

    forwarded: list[int] = []

    def forward(number: int, _frame: Any) -> None:
        forwarded.append(number)
        if number not in from_terminal:
            child.send_signal(number)

    previous_handlers: dict[signal.Signals, Any] = {}
    try:
        for number in FORWARDED:
            previous_handlers[number] = signal.signal(number, forward)
        yield forwarded
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


@dataclass
class SessionReport:
    """Work and errors of all processes of a run on the simulated NPU."""

    soc: str
    devices: int = 1  # that each process sees
    seconds: float = 0.0  # from the command's start to its end
    ended_by: str = ""  # the signal that ended the command, such as "SIGSEGV"
    not_loaded: str = ""  # the symbols that the loader did not find when the command called them
    processes: int = 0
    reports_lost: int = 0  # that did not fit on the disk: errors of their processes may be missing
    processes_without_end: int = 0  # killed, or ended by os._exit: last launches and fallbacks may be missing
    launches: Counter[str] = field(default_factory=Counter)
    fallbacks: Counter[str] = field(default_factory=Counter)
    not_simulated: Counter[str] = field(default_factory=Counter)
    beyond_documents: Counter[str] = field(default_factory=Counter)  # accepted by CANN's sources only
    host_waits: Counter[str] = field(default_factory=Counter)
    timeline: list[dict[str, Any]] = field(default_factory=list)
    launches_with_violations: int = 0
    rule_violations: list[str] = field(default_factory=list)
    guard_damage: list[str] = field(default_factory=list)
    races: list[str] = field(default_factory=list)
    race_count: int = 0
    freed_memory: list[str] = field(default_factory=list)  # uses of freed memory
    failed_work: list[str] = field(default_factory=list)  # of streams, for reasons that no other list has
    failed_work_count: int = 0
    work_left: int = 0  # pieces that were queued when their process ended: they never ran
    bytes_not_freed: int = 0
    streams: str = STREAMS[0]
    seed: int = 0

    @property
    def is_clean(self) -> bool:
        """Return whether every call was simulated, no report was lost, and no error was found.

        With torch_npu's queue, a call that is not simulated leaves undefined data and no error.
        """
        memory_errors = (self.guard_damage, self.race_count, self.freed_memory)
        failures = (
            self.launches_with_violations,
            self.failed_work_count,
            self.not_simulated,
            self.reports_lost,
        )
        return not any((*failures, *memory_errors))

    def as_json(self) -> dict[str, Any]:
        """Return the contents of the --report file."""
        contents = {
            name: dict(value.most_common()) if isinstance(value, Counter) else value
            for name, value in vars(self).items()
        }
        operators = {run["operator"] for run in self.timeline}
        left_off = sum(self.launches[name] for name in operators) - len(self.timeline)
        return {"simulated": True, **contents, "timeline_left_off": left_off}


def read_reports(folder: Path, soc: str) -> SessionReport:
    """Return one report for all reports that the processes wrote to ``folder``."""
    report = SessionReport(soc, reports_lost=sum(1 for _ in folder.glob("*.lost")))
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text())
        if path.name.endswith(".fallback.json"):
            report.fallbacks.update(found["fallbacks"])
            continue
        report.processes += 1
        report.processes_without_end += not found["ended"]
        report.launches.update(found["launches"])
        report.not_simulated.update(found["not_simulated"])
        report.beyond_documents.update(found["beyond_documents"])
        report.host_waits.update(found["host_waits"])
        begin = 0.0
        for run in found["kernel_runs"]:
            report.timeline.append({"process": report.processes, "begin": begin, **run})
            begin += run["microseconds"]
        report.guard_damage += found["damage"]
        report.races += found["races"]
        report.race_count += found["race_count"]
        report.freed_memory += found["freed"]
        report.failed_work += found["failed_work"]
        report.failed_work_count += found["failed_work_count"]
        report.work_left += found["work_left"]
        report.streams, report.seed = found["streams"], found["seed"]
        report.launches_with_violations += found["broken_launches"]
        report.bytes_not_freed += found["bytes_not_freed"]
        for broken in found["broken"]:
            report.rule_violations += [
                f"{broken['operator']}: {error['text']}" for error in broken["report"]["errors"]
            ]
    return report


def print_report(report: SessionReport, print_line: Callable[[str], None]) -> None:
    """Print a summary of the report: a line for each subject, followed by its errors."""
    count = f"{report.devices} devices " if report.devices > 1 else ""
    print_line(f"simulated {count}{report.soc}: nothing of this ran on hardware.")
    end = f", ended by {report.ended_by}" if report.ended_by else ""
    who = f"processes: {report.processes}" if report.processes else "no process used the simulated NPU"
    print_line(f"{who}; seconds: {report.seconds:.1f}{end}")
    if lost := report.reports_lost:
        print_line(f"reports that could not be written: {lost}; errors of their processes may be missing.")
    if not report.processes:
        return
    if without_end := report.processes_without_end:
        print_line(f"{without_end} of {report.processes} processes ended without a final report.")
    print_line(f"launches: {_format_counts(report.launches)}")
    print_line(f"host fallbacks: {_format_counts(report.fallbacks)}")
    if report.not_simulated:
        print_line(f"calls that are not simulated: {_format_counts(report.not_simulated)}")
        print_line("  later results may be undefined; with torch_npu, TASK_QUEUE_ENABLE=0 finds the call")
    if beyond := report.beyond_documents:
        print_line(f"calls beyond CANN's documents, which its sources accept: {beyond.total()}")
        for call, calls in beyond.most_common():
            print_line(f"  {call} ({calls} {'call' if calls == 1 else 'calls'})")
    if left := report.work_left:
        print_line(f"queued work that never ran: {left}; synchronize the device before the process ends")
    if report.timeline:
        microseconds_of: Counter[str] = Counter()
        for run in report.timeline:
            microseconds_of[run["operator"]] += run["microseconds"]
        by_operator = ", ".join(f"{name} {us:.1f}" for name, us in microseconds_of.most_common())
        print_line(f"simulated microseconds of kernels: {sum(microseconds_of.values()):.1f} ({by_operator})")
    order = f", in a random order (--seed {report.seed})" if report.streams == STREAMS[0] else ""
    broken, freed, damage = report.launches_with_violations, report.freed_memory, report.guard_damage
    failed = report.failed_work_count
    intact = "no overrun seen; not checked at the end of every process" if without_end else "intact"
    for title, texts in (
        (f"launches with rule violations: {broken or 'none'}", report.rule_violations),
        (f"work that failed on a stream: {failed}" if failed else "", _grouped(report.failed_work)),
        (f"streams: {report.streams}{order}; races: {report.race_count or 'none'}", _grouped(report.races)),
        (f"uses of freed memory: {len(freed)}" if freed else "", _by_first_use(freed)),
        (f"guard zones: {f'{len(damage)} overrun' if damage else intact}", damage),
    ):
        for line in (title, *(f"  {text}" for text in texts)):
            if line:
                print_line(line)


def _by_first_use(texts: list[str]) -> list[str]:
    """Return the first use of each freed allocation, with the names of the other work that uses it. First
    uses that differ in their numbers only are one row."""
    uses: dict[str, list[str]] = {}
    for text in texts:
        allocation = re.search(r"\(allocation \d+ of \d+ bytes\)", text)
        uses.setdefault(allocation[0] if allocation else text, []).append(text)
    return [_use_of_freed_memory(row) for row in _alike(uses.values(), lambda of_one: of_one[0])]


def _use_of_freed_memory(allocations: list[list[str]]) -> str:
    """Return one row for allocations whose first uses differ in their numbers only."""
    text = allocations[0][0]
    others = (use.partition(":")[0] for uses in allocations for use in uses[1:])
    names = dict.fromkeys(name for name in others if name not in text)
    also = f" Also used by {', '.join(names)}." if names else ""
    return text + also + _more_like_it(allocations)


def _grouped(texts: list[str]) -> list[str]:
    """Return the first of the texts that differ in their numbers only, with the number of the others."""
    return [alike[0] + _more_like_it(alike) for alike in _alike(texts, str)]


def _alike(items: Iterable[T], text_of: Callable[[T], str]) -> list[list[T]]:
    """Return the groups of items whose texts differ in their numbers only."""
    groups: dict[str, list[T]] = {}
    for item in items:
        groups.setdefault(re.sub(r"\d+", "#", text_of(item)), []).append(item)
    return list(groups.values())


def _more_like_it(alike: Sized) -> str:
    return f" ({len(alike) - 1} more like it)" if len(alike) > 1 else ""


MAX_PRINTED_NAMES = 6


def _format_counts(by_name: Counter[str]) -> str:
    if not by_name:
        return "none"
    most = ", ".join(f"{name} {count}" for name, count in by_name.most_common(MAX_PRINTED_NAMES))
    more = len(by_name) - MAX_PRINTED_NAMES
    return f"{by_name.total()} ({most}{f', and {more} more' if more > 0 else ''})"
