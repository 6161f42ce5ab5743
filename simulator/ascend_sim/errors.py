"""Errors of ascend_sim. Their messages have the form ``[sim] argument must RULE but got VALUE.``."""

from __future__ import annotations


class Unavailable(RuntimeError):
    """A piece that the simulator needs is missing.

    Attributes:
        piece: its name, such as ``"C++ compiler"``.
        missing: the cause, such as ``"it was not found"``.
        remedy: how to get it.
    """

    def __init__(self, piece: str, missing: str, remedy: str) -> None:
        self.piece, self.missing, self.remedy = piece, missing, remedy
        super().__init__(f"[sim] {piece} must be available but {missing}.\n{remedy}")


def bad_value(text: str) -> ValueError:
    """Return the error for a value that breaks its rule."""
    return ValueError(f"[sim] {text}")


def bad_type(text: str) -> TypeError:
    """Return the error for an unsupported Python type."""
    return TypeError(f"[sim] {text}")
