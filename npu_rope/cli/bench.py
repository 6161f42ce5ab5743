"""``npu-rope bench``: ours against the memory floor and the peers, one run."""

from __future__ import annotations


def bench() -> None:
    """Measure rope against the memory floor and other libraries."""
    raise SystemExit("npu-rope bench is not finished yet.")
