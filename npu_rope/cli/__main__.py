"""`python -m npu_rope.cli`."""

from npu_rope.cli import main

main()
