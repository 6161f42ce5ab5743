"""The command line ``npu-rope``. One module a command; this one joins them."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of ``npu-rope``."""
    try:
        from npu_rope.cli.app import app
    except ImportError as error:
        if error.name not in ("typer", "rich", "click"):
            raise
        print(
            f"[npu-rope] command line must have typer and rich but got {error}.\n"
            "Install them with: pip install 'npu-rope[cli]'",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    app()
