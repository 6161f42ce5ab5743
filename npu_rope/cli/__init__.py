"""The command line ``npu-rope``. Each command has a module; ``app.py`` combines them."""

from __future__ import annotations

from ascend_sim import command_line


def main() -> None:
    """Entry point of ``npu-rope``."""
    command_line.main("npu-rope", _run)


def _run() -> None:
    from npu_rope.cli.app import app

    app()
