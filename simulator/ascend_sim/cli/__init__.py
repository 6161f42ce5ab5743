"""The command line ``ascend-sim``. Each command has a module; ``app.py`` joins them."""

from __future__ import annotations

from ascend_sim import command_line


def main() -> None:
    """Entry point of ``ascend-sim``."""
    command_line.main("ascend-sim", _run)


def _run() -> None:
    from ascend_sim.cli.app import app

    app()
