"""Run calls on the simulated core, for arrays and for CPU torch tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from ascend_sim.library import DEFAULT_SOC

from npu_rope import backends, native_sim
from npu_rope.checks import CallTensors
from npu_rope.errors import bad_value
from npu_rope.executors.tensors import as_arrays, check_tensors, check_whole_elements, empty_like, is_tensor
from npu_rope.optional_torch import torch

C = TypeVar("C", bound=CallTensors[Any])
R = TypeVar("R")


def by_soc(run: Callable[..., R]) -> Mapping[str, Callable[..., R]]:
    """Return the backends ``sim`` and ``sim:<soc>`` of a function that takes simulator options and a call."""
    named = {f"sim:{soc}": partial(run, native_sim.SimOptions(soc)) for soc in backends.SIMULATED_SOCS}
    return {"sim": partial(run, native_sim.SimOptions()), **named}


def run(
    options: native_sim.SimOptions,
    t: C,
    check: Callable[[C], None],
    launch: Callable[[native_sim.NativeSim, C, tuple[Any, ...]], None],
    new_results: Callable[[C], tuple[Any, ...]] | None = None,
) -> tuple[Any, ...]:
    """Launch the kernel, into outs or new memory. No gradient flows through tensors.

    Args:
        check: checks every rule that needs no element's value. It runs before the launch, because the C
            library cannot name dtypes and shapes that its structs do not represent.
        launch: calls the library's entry for a call and its results.
        new_results: allocates the results of a call without outs; by default they are like xs.
    """
    simulator = native_sim.load()
    tensors = is_tensor(t.first[1])
    if tensors:
        check_tensors("sim" if options.soc in (None, DEFAULT_SOC) else f"sim:{options.soc}", t)
        for name, out in t.outs.items():
            if out.is_neg():
                raise bad_value(t.op, f"{name} must hold its own values but got a view that negates them.")
    else:
        t = as_arrays(t)
        check_whole_elements(t)
    check(t)
    make = new_results or (lambda t: tuple(empty_like(x) for x in t.xs.values()))
    results = tuple(t.outs.values()) or make(t)
    launch(simulator, t, results)
    if tensors and t.outs:
        # autograd must detect that tensors it saved for a gradient have changed.
        torch.autograd.graph.increment_version(results)
    return results
