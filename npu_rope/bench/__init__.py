"""Measure an operator: npu_rope's, a copy of the same bytes (the memory floor) and the peers, in turn.

``harness`` measures, ``rope_rows`` defines the rows, ``peers`` the other libraries. ``verify`` checks
that all compute the same, ``report`` and ``plot`` show the results. The command is ``npu-rope bench``.
"""
