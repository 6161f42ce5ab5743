"""Arguments of Python for processes that omit torch, whose import takes a second or more."""

from pathlib import Path

LINE = "import sys; sys.modules['torch'] = None"
_START = LINE + "; import runpy; runpy.run_{}({!r}, run_name='__main__')"


def script(path):
    """Return the arguments that run a script without torch. Its own arguments follow."""
    return "-c", _START.format("path", str(path))


def module(name):
    """Return the arguments that run a module without torch. Its own arguments follow."""
    return "-c", _START.format("module", name)


WORKER = module("npu_rope.testing.ggml_worker")
STAND_INS = script(Path(__file__).parents[1] / "validation" / "stand_in_devices.py")
