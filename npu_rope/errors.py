"""Errors that npu_rope raises. Their messages have the form ``[op] argument must RULE but got VALUE.``."""

from __future__ import annotations


class BackendUnavailable(RuntimeError):
    """The requested backend is unavailable.

    Attributes:
        backend: its name, such as ``"npu"``.
        missing: the missing piece.
        remedy: how to get it.
    """

    def __init__(self, backend: str, missing: str, remedy: str) -> None:
        self.backend, self.missing, self.remedy = backend, missing, remedy
        super().__init__(f"[{backend}] backend must be available but {missing}.\n{remedy}")


def bad_value(op: str, text: str) -> ValueError:
    """Return the error for a value that breaks its rule."""
    return ValueError(f"[{op}] {text}")


def bad_type(op: str, text: str) -> TypeError:
    """Return the error for an unsupported element type or Python type."""
    return TypeError(f"[{op}] {text}")
