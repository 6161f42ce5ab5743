"""Command lines of the processes in which ggml runs. They omit torch, whose import takes a second."""

from pathlib import Path

_START = "import runpy, sys; sys.modules['torch'] = None; runpy.run_{}({!r}, run_name='__main__')"

WORKER = ("-c", _START.format("module", "npu_rope.testing.ggml_worker"))
STAND_INS = (
    "-c",
    _START.format("path", str(Path(__file__).parents[1] / "validation" / "stand_in_devices.py")),
)
