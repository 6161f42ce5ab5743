"""Draw and judge random calls of every operator.

A call is drawn from an operator's name, a seed and an index. It is the same on every machine, and the back
end supports it. Modules for groups of operators draw and judge the calls; this one finds the module by the
name.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import random_calls
import random_judge
import random_norm_calls
import random_norm_ropes
import random_pmx
import random_qkv
import random_square_sums
import random_tables
from choices import Choices
from random_calls import ARRAYS
from random_judge import Verdict

from npu_rope.testing.bounds import is_device
from npu_rope.testing.chip_types import has_bfloat16

MODULES: dict[str, ModuleType] = {
    **dict.fromkeys(random_calls.OPERATORS, random_calls),
    **dict.fromkeys(random_tables.OPERATORS, random_tables),
    random_pmx.OP: random_pmx,
    **dict.fromkeys(random_norm_calls.OPERATORS, random_norm_calls),
    random_norm_ropes.OP: random_norm_ropes,
    random_qkv.OP: random_qkv,
    random_square_sums.OP: random_square_sums,
}
OPERATORS = tuple(MODULES)


def draw(
    op: str, seed: int, index: int, backend: str, given: Sequence[int] | None = None
) -> tuple[Any, list[int]]:
    """Return a call that the back end supports, and its choices.

    Args:
        op: one of OPERATORS.
        seed, index: determine the call.
        backend: the name of the back end. It determines the types and ranges to draw from.
        given: choices to make instead (:class:`~choices.Choices`).

    Raises:
        ValueError: the back end does not support the call of the given choices.
    """
    name, module = f"{op}/{seed}/{index}", MODULES[op]
    if given is not None:
        choices = Choices(name, given)
        call = _draw(module, choices, op, backend)
        if _refused(module, call, backend):
            raise ValueError(f"{backend} does not support this call: {text(call)}")
        return call, choices.made
    for attempt in itertools.count():  # the first one that the back end supports
        choices = Choices(name, attempt=attempt)
        call = _draw(module, choices, op, backend)
        if not _refused(module, call, backend):
            return call, choices.made
    raise AssertionError("unreachable")


def _draw(module: ModuleType, choices: Choices, op: str, backend: str) -> Any:
    if module is random_calls:
        return random_calls.draw(choices, op, random_calls.limits_of(backend), ARRAYS)
    dtypes = module.DTYPES
    if is_device(backend):
        lacks = {"float64"} if has_bfloat16(backend) else {"float64", "bfloat16"}
        dtypes = tuple(dtype for dtype in dtypes if dtype not in lacks)
    kinds = (ARRAYS,) if module in (random_tables, random_pmx) else ()
    return module.draw(choices, op, dtypes, *kinds)


def _refused(module: ModuleType, call: Any, backend: str) -> bool:
    return module is not random_calls and bool(module.refused(call, backend))


def text(call: Any) -> str:
    """Return the call in words."""
    return str(getattr(call, "text", None) or call)


def kind(call: Any) -> str:
    """Return the type of the call's elements."""
    return str(getattr(call, "dtype", None) or call.x_dtype)


def judge(op: str, call: Any, backend: str) -> Verdict:
    """Run a call and judge its results. An exception is a problem."""
    try:
        if MODULES[op] is random_calls:
            return random_judge.judge(call, backend)
        ratio = MODULES[op].judge(call, backend)
    except AssertionError as error:
        return Verdict(str(error) or "AssertionError")
    except Exception as error:
        return Verdict(f"{type(error).__name__}: {error}")
    return Verdict("" if ratio <= 1 else f"{ratio:.4g} times its bound", ratio)
