"""The process that measures: ``python -m npu_rope.bench.worker THREADS OPTIONS_AS_JSON``.

It writes one JSON object per line to standard output; the output of peers goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from typing import Any

from npu_rope import native
from npu_rope.bench import (
    family_rows,
    form_rows,
    gradient_rows,
    growth_rows,
    machine,
    norm_rope_rows,
    norm_rows,
    patched_rows,
    peers,
    qkv_rows,
    rope_rows,
)
from npu_rope.bench.harness import Contestant, Figure, measure_row, wait_for_quiet
from npu_rope.bench.run import BenchOptions
from npu_rope.optional_torch import torch


def contestants(row: rope_rows.Row, options: BenchOptions) -> list[Contestant]:
    """Return all contestants of the row: floor, call cost, npu_rope's own, peers."""
    if row.group == form_rows.GROUP:
        return list(form_rows.contestants(row))
    if row.group == norm_rows.GROUP:
        return list(norm_rows.contestants(row, options.peers, options.ggml_lib))
    if row.group == norm_rope_rows.GROUP:
        return list(norm_rope_rows.contestants(row, options.peers))
    if row.group == qkv_rows.GROUP:
        return list(qkv_rows.contestants(row, options.peers))
    if row.group == patched_rows.GROUP:
        return list(patched_rows.contestants(row))
    if isinstance(row, family_rows.FamilyRow):
        return list(family_rows.contestants(row))
    if isinstance(row, growth_rows.GrowthRow):
        return list(growth_rows.contestants(row))
    if row.group == gradient_rows.GROUP:
        return list(gradient_rows.contestants(row))
    inputs = rope_rows.RopeInputs(row)
    row_contestants = [rope_rows.floor(inputs.xs)]
    if row.is_decode:
        row_contestants.append(rope_rows.empty_call(inputs))
    return [*row_contestants, *rope_rows.ours(inputs), *peers.peers(inputs, options.peers, options.ggml_lib)]


def as_dict(row: rope_rows.Row, figure: Figure, foreign: float | None) -> dict[str, Any]:
    """Return one figure as a flat dictionary."""
    return {
        "row": row.name,
        "group": row.group,
        "shape": row.shape,
        "dtype": row.dtype,
        "mode": row.mode,
        "threads": row.threads,
        "contestant": figure.contestant,
        "kind": figure.kind,
        "status": figure.status,
        "note": figure.note,
        "isa": machine.isa(),
        "foreign_cores": None if foreign is None else round(foreign, 3),
        **{name: float(f"{value:.6g}") for name, value in figure.numbers.items()},
    }


def main() -> None:
    """Measure the rows of one number of threads."""
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    threads = int(sys.argv[1])
    options = BenchOptions(**json.loads(sys.argv[2]))

    def send(**event: Any) -> None:
        try:
            print(json.dumps(event), file=results, flush=True)
        except BrokenPipeError:  # the command has ended
            os._exit(1)

    if options.isa is not None:
        native.load().force_isa(options.isa)
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    quiet_seconds = options.quiet_seconds
    for row in options.chosen_rows(threads):
        send(event="start", row=row.name)
        if options.peers != "none" or row.mode in family_rows.EAGER:
            torch._dynamo.reset()  # at its limit of recompilations, torch would run later rows eagerly
        row_contestants = contestants(row, options)
        quiet_seconds -= wait_for_quiet(quiet_seconds, partial(send, event="wait", row=row.name))
        figures, foreign = measure_row(
            row_contestants,
            options.seconds,
            settle_between=threads > 1,
            min_rounds=options.min_rounds,
            attempts=options.attempts,
        )
        send(event="row", row=row.name, figures=[as_dict(row, figure, foreign) for figure in figures])


if __name__ == "__main__":
    main()
