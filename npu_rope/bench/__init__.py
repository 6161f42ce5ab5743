"""Measure npu_rope's operators, a copy of the same bytes (the memory floor) and the peers.

``harness`` measures, ``*_rows`` define the rows, ``peers*`` the other libraries. ``verify`` checks
results, ``report`` and ``plot`` show the times. The command is ``npu-rope bench``.
"""
