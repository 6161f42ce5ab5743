"""Copy a function with other values of some of its globals."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any


def with_globals(function: types.FunctionType, ours: dict[str, Callable[..., Any]]) -> types.FunctionType:
    """Copy the function. In the copy's globals, the functions in ``ours`` replace those of the same names.
    Keep the function's decorators around the copy."""
    global_names = {**function.__globals__, **ours}
    # With a __name__, torch.compile looks the globals up in the module of that name, not in this dict.
    global_names.pop("__name__", None)
    wrapped = function.__dict__.get("__wrapped__")
    inner = with_globals(wrapped, ours) if isinstance(wrapped, types.FunctionType) else None
    cells = [
        types.CellType(inner) if inner and _contains(cell, wrapped) else cell
        for cell in function.__closure__ or ()
    ]
    copied = types.FunctionType(
        function.__code__,
        global_names,
        function.__name__,
        function.__defaults__,
        tuple(cells) if function.__closure__ else None,
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    copied.__annotations__ = function.__annotations__
    copied.__dict__.update(function.__dict__)
    if inner:
        copied.__dict__["__wrapped__"] = inner
    for name in ("__doc__", "__module__", "__qualname__"):
        setattr(copied, name, getattr(function, name))
    return copied


def _contains(cell: types.CellType, value: Any) -> bool:
    try:
        return cell.cell_contents is value
    except ValueError:
        return False
