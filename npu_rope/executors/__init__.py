"""Run operators on arrays and tensors.

``rotations.py`` and ``rms_norm.py`` run several operators each. Another operator has a file of its own.
``tensors.py`` handles arrays and tensors, ``rules.py`` checks calls, ``sim.py`` and ``npu.py`` launch them.
``rotary_position_embedding.py`` splits a call of its operator into calls of rope.
"""
