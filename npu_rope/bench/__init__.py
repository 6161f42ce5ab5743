"""Measuring an operator: ours, a copy of the same bytes (the memory floor) and the peers, in turn.

``harness`` measures, ``rope_rows`` says what, ``peers`` against whom, ``verify`` that all of them
compute the same thing, ``report`` and ``plot`` show it. The command is ``npu-rope bench``.
"""
