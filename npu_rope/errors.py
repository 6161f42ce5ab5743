"""Errors that npu_rope raises. A broken rule's message is ``[op] argument must RULE but got VALUE.``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar


class BackendUnavailable(RuntimeError):
    """The requested back end is unavailable.

    Attributes:
        backend: its name, such as ``"npu"``.
        missing: the cause as a clause, such as "it does not have rope".
        remedy: how to get it.
    """

    def __init__(self, backend: str, missing: str, remedy: str) -> None:
        self.backend, self.missing, self.remedy = backend, missing, remedy
        super().__init__(f"[{backend}] backend must be available but {missing}.\n{remedy}")


class BrokenRule(Exception):
    """A call breaks a rule. The classes below are also the built-in ones that a caller expects.

    Attributes:
        op: the operator or function, such as ``"rope"``.
        argument: the argument that breaks its rule.
        rule: the rule, after "must".
        value: the value that the argument has, as a text.
    """

    op: str
    argument: str
    rule: str
    value: str


class InvalidValue(BrokenRule, ValueError):
    """A value breaks its rule."""


class InvalidType(BrokenRule, TypeError):
    """An element type or a Python type is unsupported."""


class InternalError(BrokenRule, RuntimeError):
    """The machine or npu_rope failed, not the call."""


class GradientRefused(BrokenRule, RuntimeError):
    """An operator of ``torch.ops`` has no gradient for the call, which torch's own operators report as
    RuntimeError."""


E = TypeVar("E", bound=BrokenRule)
_LONGEST_VALUE = 1000  # characters in a message


def broken(kind: type[E], op: str, argument: str, rule: str, value: Any, remedy: str = "") -> E:
    """Return an error of that class. The remedy is another line of its message. The message cuts a
    long value."""
    text = full = f"{value}"
    if len(full) > _LONGEST_VALUE:
        text = f"{text[:_LONGEST_VALUE]}... ({len(text)} characters)"
    error = kind(f"[{op}] {argument} must {rule} but got {text}." + (f"\n{remedy}" if remedy else ""))
    error.op, error.argument, error.rule, error.value = op, argument, rule, full
    return error


def bad_value(op: str, argument: str, rule: str, value: Any, *, remedy: str = "") -> InvalidValue:
    """Return the error for a value that breaks its rule."""
    return broken(InvalidValue, op, argument, rule, value, remedy)


def bad_type(op: str, argument: str, rule: str, value: Any, *, remedy: str = "") -> InvalidType:
    """Return the error for an unsupported element type or Python type."""
    return broken(InvalidType, op, argument, rule, value, remedy)


def renamed(error: BrokenRule, op: str, names: Mapping[str, str]) -> BrokenRule:
    """Return an error of a function that another function calls as one of its caller.

    Args:
        error: the error.
        op: the caller.
        names: the caller's names of the arguments that error names. Other words remain.
    """
    argument, rule = (
        re.sub(r"\w+", lambda word: names.get(word[0], word[0]), text)
        for text in (error.argument, error.rule)
    )
    return broken(type(error), op, argument, rule, error.value, f"{error}".partition("\n")[2])


# By the status of a C call (npu_rope_status).
BY_STATUS: dict[int, type[BrokenRule]] = {1: InvalidValue, 2: InvalidType, 3: InternalError}
