"""``npu-rope sim``: ``ascend-sim run`` with npu_rope's simulated operator package."""

from __future__ import annotations

import functools
from typing import Any

from ascend_sim.cli.run import run

from npu_rope import backends, simulated_package


@functools.wraps(run)
def sim(*arguments: Any, **options: Any) -> None:
    """Run the command with npu_rope's simulated operator package in CANN's search path."""
    simulated_package.warn_of_old_variables()
    backends.offer_simulated_package()
    run(*arguments, **options)


_SUMMARY = "Run a program for an NPU, unmodified, on a simulated one."
sim.__doc__ = (
    (run.__doc__ or "")
    .replace("ascend-sim run", "npu-rope sim")
    .replace(
        _SUMMARY,
        f"""{_SUMMARY}

    This is ascend-sim run with one difference: npu_rope's operator package is
    installed on the simulated machine.""",
    )
)
