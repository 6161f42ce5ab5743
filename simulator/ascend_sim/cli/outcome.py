"""The result of a run by ``ascend-sim kernel``, and its comparison with a reference."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Console

from ascend_sim import timeline
from ascend_sim.cli.arguments import KernelArgument
from ascend_sim.errors import bad_value
from ascend_sim.kernels import ArrayArgument, In, InOut, Out, Part, Report, Sum


@dataclass(frozen=True)
class Difference:
    """The largest absolute difference from the reference, infinite if only one of two values is NaN."""

    largest: float
    is_within: bool  # each difference is permitted


def _exact(values: Any) -> Any:
    """Return numbers as ``longdouble``, which has the 64 bits of an integer.

    Raises:
        ValueError: they are no real numbers.
    """
    array = np.asarray(values)
    try:
        if array.dtype.kind in "biu":
            return array.astype(np.longdouble)
        if array.dtype.kind in "fV":  # V: of ml_dtypes
            return array.astype(np.float64).astype(np.longdouble)
    except (TypeError, ValueError):
        pass
    raise bad_value(f"reference must return real numbers but got {array.dtype}.")


@dataclass
class Outcome:
    """A run that broke no rule.

    Attributes:
        call: the name of the kernel.
        report: of the run.
        arguments: all arrays.
        expected: for each written array, a pair: the reference's result, and its tolerances or None. None
            without a reference.
        extras: further entries of the printed report.
    """

    call: str
    report: Report
    arguments: list[KernelArgument]
    expected: list[tuple[Any, Any]] | None = None
    extras: dict[str, Any] = field(default_factory=dict)

    @property
    def written(self) -> list[Any]:
        """The arrays that the kernel has written."""
        return [
            item.argument.array
            for item in self.arguments
            if isinstance(item.argument, ArrayArgument) and item.argument.role
        ]

    @property
    def has_tolerances(self) -> bool:
        """Whether the reference gives the largest permitted differences."""
        return any(tolerances is not None for _, tolerances in self.expected or ())

    def difference(self, within: float) -> Difference | None:
        """Compare with the reference.

        Args:
            within: the largest permitted difference, where the reference gives none.

        Raises:
            ValueError: a result has another shape.
        """
        if self.expected is None:
            return None
        largest, is_within = 0.0, True
        for (result, tolerances), output in zip(self.expected, self.written, strict=True):
            expected, got = _exact(result), _exact(output)
            if expected.shape != got.shape:
                shapes = f"{list(got.shape)} but got {list(expected.shape)}"
                raise bad_value(f"reference must return shape {shapes}.")
            is_equal = (expected == got) | (np.isnan(expected) & np.isnan(got))
            with np.errstate(invalid="ignore"):  # inf - inf
                differences = np.where(is_equal, 0.0, np.abs(expected - got))
            differences = np.where(np.isnan(differences), np.inf, differences)
            largest = max(largest, float(differences.max(initial=0.0)))
            limit = within if tolerances is None else np.asarray(tolerances, np.float64)
            is_within = is_within and bool((differences <= limit).all())
        return Difference(largest, is_within)

    def as_json(self, difference: Difference | None) -> dict[str, Any]:
        """Return the report for ``--json``. An infinity becomes a text, because JSON has no infinity."""
        largest: Any = None if difference is None else difference.largest
        if largest is not None and not math.isfinite(largest):
            largest = "infinite"
        return {
            **self.report.summary,
            "warnings": self.report.warnings,
            "difference": largest,
            **self.extras,
        }

    def show(self) -> None:
        """Print the report."""
        for warning in self.report.warnings:
            print(f"warning: {warning['text']}")
        transfers = {In: 1, Out: 1, Part: 1, InOut: 2, Sum: 2}  # a read, a write, or both
        given = [item.argument for item in self.arguments if isinstance(item.argument, ArrayArgument)]
        minimum_bytes = sum(argument.array.nbytes * transfers[type(argument)] for argument in given)
        timeline.show({**self.report.summary, "call": self.call}, minimum_bytes, Console(highlight=False))
        if self.extras:
            print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in self.extras.items()))
        for item in self.arguments:
            if item.file is not None:
                print(f"{item.text.partition('=')[0]} written to {item.file}")
