"""``python -m npu_rope``: the command ``npu-rope``."""

from npu_rope.cli import main

main()
