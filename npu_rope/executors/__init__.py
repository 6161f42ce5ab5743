"""Run operators on arrays and tensors: ``rotations.py``, ``rms_norm.py``, and a file for each new operator.

``tensors.py`` handles arrays and tensors, ``rules.py`` checks calls, ``sim.py`` and ``npu.py`` launch them.
``rotary_position_embedding.py`` plans its operator's calls of rope.
"""
