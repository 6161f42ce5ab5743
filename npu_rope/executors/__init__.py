"""Execute operators on arrays: ``rotations.py``, ``rms_norm.py``, and a file for each new operator.

``tensors.py`` handles arrays and tensors, ``rules.py`` checks calls, ``sim.py`` and ``npu.py`` launch them.
"""
