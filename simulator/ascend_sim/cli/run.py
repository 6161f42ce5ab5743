"""``ascend-sim run``: run a program on a simulated NPU, on a machine without one."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from ascend_sim.cli.application import USAGE_ERROR, usage_error
from ascend_sim.errors import Unavailable
from ascend_sim.files import remove, replacing, unwritable
from ascend_sim.programs import executables, session

__all__ = ["run"]

NOT_CLEAN = 1


def run(
    context: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="The program and its arguments, after --.", show_default=False),
    ] = None,
    soc: Annotated[
        str,
        typer.Option(
            help="The simulated chip by CANN's name, or NAME:CORES for a new one of a known family."
        ),
    ] = session.DEFAULT_CHIP,
    devices: Annotated[
        int, typer.Option(help="The number of simulated NPUs, each with its own memory: 1 to 16.")
    ] = 1,
    streams: Annotated[
        str, typer.Option(help="asynchronous: work runs later, in a random order; immediate: at its launch.")
    ] = session.STREAMS[0],
    seed: Annotated[int, typer.Option(help="The seed of the random order of asynchronous work.")] = 0,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Write launches, fallbacks, rule violations, failed work and the kernels' timeline as JSON."
        ),
    ] = None,
) -> None:
    """Run a program for an NPU, unmodified, on a simulated one.

    The program is a torch_npu script, or any program that uses CANN's acl and
    aclnn. CANN's libraries are simulated: device memory is host memory between
    guard zones, kernels of operator packages run on the simulator, and the
    functions of aclnn that docs/aclnn.md lists run on the host. An installed
    torch_npu is the real one; every other operator of torch runs on the host.
    Times are not those of hardware, and random numbers are not those of an NPU.

    Streams are asynchronous: queued work runs at the latest when something waits
    for it. Its order is random (--seed) and keeps only the guarantees of streams,
    events and waits. Two accesses to the same memory, at least one of them a
    write, are a race if nothing orders them. A race is reported in every order.

    Several devices (--devices) communicate by HCCL between the processes of
    torchrun, or in one process. If a rank ends early, the others fail with an
    error that names it.

    Not supported: several machines, and functions of aclnn that docs/aclnn.md
    does not list. A call of such a function fails with its name: at once with
    TASK_QUEUE_ENABLE=0; with torch_npu's queue the name may be in the report
    only.

    The first run takes some seconds more and needs a C++ compiler; its files are
    kept below $XDG_CACHE_HOME. At the end a short report goes to standard error.

    Exit status: the command's; 128 + n if signal n ended it; 1 if it ended well
    but a kernel broke a rule or wrote outside its memory, other work of a stream
    failed, streams raced, freed memory was used, or a call was not simulated;
    2 bad usage or a missing piece, which may be a symbol that the program calls.

    The options, and not the environment, set ASCEND_SIM_SOC, ASCEND_SIM_DEVICES,
    ASCEND_SIM_STREAMS and ASCEND_SIM_SEED of the program.

    Examples:

      ascend-sim run -- python train.py --steps 10

      ascend-sim run --soc Ascend310P3 -- python infer.py

      ascend-sim run --report run.json -- python -m pytest tests

      ascend-sim run --seed 3 -- python overlapping_streams.py

      ascend-sim run --devices 2 -- torchrun --nproc-per-node 2 train.py

      ascend-sim run -- ./test-backend-ops test -o ROPE -b CANN0
    """
    program = f"{context.find_root().command.name} {context.command.name}"
    if report is not None:
        if fault := unwritable(report):
            raise usage_error(f"[sim] report {fault}")
        remove(report)  # that of an earlier run, which would stay if this one does not start
    if not command:
        raise usage_error(
            "[sim] command must be a program and its arguments but got nothing.\n"
            f"Example: {program} -- python script.py"
        )
    if streams not in session.STREAMS:
        raise usage_error(f"[sim] streams must be one of {', '.join(session.STREAMS)} but got {streams}.")
    if not 1 <= devices <= session.MAX_DEVICES:
        raise usage_error(f"[sim] devices must be 1 to {session.MAX_DEVICES} but got {devices}.")
    if not 0 <= seed < 2**64:
        raise usage_error(f"[sim] seed must be 0 to 2**64 - 1 but got {seed}.")
    try:
        if fault := session.soc_fault(soc):
            raise usage_error(f"[sim] soc {fault}")
        with tempfile.TemporaryDirectory(prefix="ascend-sim-") as folder:
            environment = session.environment(
                command, soc, Path(folder), devices=devices, streams=streams, seed=seed
            )
            begin = time.monotonic()
            end = session.run(command, environment)
            status = end.status
            session_report = session.read_reports(Path(folder), soc)
            if not_loaded := executables.not_loaded(command[0], environment, status):
                if not session_report.processes:  # nothing ran
                    raise not_loaded
                session_report.not_loaded, status = not_loaded.missing, USAGE_ERROR
            session_report.devices = devices
            session_report.seconds = round(time.monotonic() - begin, 3)
            session_report.ended_by = end.ended_by
    except Unavailable as error:
        raise usage_error(str(error)) from None
    session.print_report(session_report, lambda line: print(f"{program}: {line}", file=sys.stderr))
    if not_loaded:
        print(not_loaded, file=sys.stderr)
    status = status or (0 if session_report.is_clean else NOT_CLEAN)
    if report is not None:
        with replacing(report) as stream:
            json.dump(session_report.as_json() | {"exit_status": status}, stream, indent=1)
            stream.write("\n")
    raise typer.Exit(status)
