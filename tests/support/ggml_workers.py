"""Arguments of Python for the processes in which ggml runs. They omit torch, whose import takes a second."""

from pathlib import Path

_START = "import runpy, sys; sys.modules['torch'] = None; runpy.run_{}({!r}, run_name='__main__')"


def script(path):
    """Return the arguments that run a script without torch. Its own arguments follow."""
    return "-c", _START.format("path", str(path))


WORKER = ("-c", _START.format("module", "npu_rope.testing.ggml_worker"))
STAND_INS = script(Path(__file__).parents[1] / "validation" / "stand_in_devices.py")
