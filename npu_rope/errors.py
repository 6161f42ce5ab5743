"""What npu_rope raises. Messages read ``[op] argument must RULE but got VALUE.``."""

from __future__ import annotations


class BackendUnavailable(RuntimeError):
    """The backend that was asked for is not here.

    Attributes:
        backend: its name, such as ``"npu"``.
        missing: the piece that is missing.
        remedy: how to get it.
    """

    def __init__(self, backend: str, missing: str, remedy: str) -> None:
        self.backend, self.missing, self.remedy = backend, missing, remedy
        super().__init__(f"[{backend}] backend must be available but {missing}.\n{remedy}")


def bad_value(op: str, text: str) -> ValueError:
    """The error for a value outside its rule."""
    return ValueError(f"[{op}] {text}")


def bad_type(op: str, text: str) -> TypeError:
    """The error for an element type or Python type that is not taken."""
    return TypeError(f"[{op}] {text}")
