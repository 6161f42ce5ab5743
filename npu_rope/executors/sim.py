"""Calls on the simulated core: arrays, or torch tensors of the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from npu_rope import backends, native_sim
from npu_rope.checks import CallTensors
from npu_rope.errors import bad_value
from npu_rope.executors.tensors import as_arrays, check_tensors, check_whole_elements, empty_like, is_tensor
from npu_rope.optional_torch import torch

C = TypeVar("C", bound=CallTensors[Any])
R = TypeVar("R")


def by_soc(run: Callable[..., R]) -> Mapping[str, Callable[..., R]]:
    """A function of options and a call, as the backends ``sim`` and ``sim:<soc>``."""
    named = {f"sim:{soc}": partial(run, native_sim.SimOptions(soc)) for soc in backends.SIMULATED_SOCS}
    return {"sim": partial(run, native_sim.SimOptions()), **named}


def run(
    options: native_sim.SimOptions,
    t: C,
    check: Callable[[C], None],
    launch: Callable[[native_sim.NativeSim, C, tuple[Any, ...]], None],
    new_results: Callable[[C], tuple[Any, ...]] | None = None,
) -> tuple[Any, ...]:
    """The kernel's launch, into outs or new memory. Through tensors no gradient flows.

    Args:
        check: every rule that needs no element's value; said before anything is launched, because the C
            library cannot speak of foreign dtypes and shapes.
        launch: the library's entry on a call and its results.
        new_results: memory for them where the call names none; like xs if this is not given.
    """
    simulator = native_sim.load()
    tensors = is_tensor(t.first[1])
    if tensors:
        check_tensors("sim" if options.soc in (None, native_sim.DEFAULT_SOC) else f"sim:{options.soc}", t)
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
        # Who saved these tensors for a gradient must learn that they changed.
        torch.autograd.graph.increment_version(results)
    return results
