"""Tensors of one call of any operator, by their names. Their rules are those of ``csrc/core``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

FLOAT_DTYPES = ("float32", "float16", "bfloat16", "float64")


@dataclass(frozen=True)
class TensorSpec:
    """A tensor's properties that the rules check. Strides count elements."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def text(self) -> str:
        """Return the shape as the messages print it."""
        return str(list(self.shape))


T = TypeVar("T")
U = TypeVar("U")


@dataclass(slots=True)
class CallTensors(Generic[T]):
    """One call's tensors, as its caller passed them, by their names in error messages.

    Attributes:
        op: the operator's name.
        xs: the main inputs, by name: one tensor, queries and keys, or terms of a sum.
        other_inputs: the other inputs that the call has, by name, in the order of the C function.
        outs: the outputs, by name; empty if the operator allocates them.
        in_place: the names of those of xs that are outputs as well.
        c_inputs: the names of the C function's inputs, if one of them may be absent before one that is
            present; else empty.
        c_outs: the names of its outputs, likewise.
    """

    op: str
    xs: Mapping[str, T]
    other_inputs: Mapping[str, T] = field(default_factory=dict)
    outs: Mapping[str, T] = field(default_factory=dict)
    in_place: tuple[str, ...] = ()
    c_inputs: tuple[str, ...] = ()
    c_outs: tuple[str, ...] = ()

    @property
    def scatters(self) -> bool:
        """Whether the last output is rows of a cache."""
        return "cache" in self.outs

    @property
    def first(self) -> tuple[str, T]:
        """Name and tensor of x or q, with which the other tensors are compared."""
        return next(iter(self.xs.items()))

    @property
    def x(self) -> T:
        """The input ``x`` of the norms."""
        return self.xs["x"]

    @property
    def scale(self) -> T:
        """The input ``scale`` of the norms."""
        return self.other_inputs["scale"]

    @property
    def entry(self) -> str:
        """The name of the call's C function, without its prefix."""
        return f"{self.op}_set_rows" if self.scatters and self.op == "rms_norm_rope" else self.op

    def inputs(self) -> dict[str, T]:
        """Return all inputs, by name, in the order of the C function: a gradient comes first."""
        named = {**self.xs, **self.other_inputs}
        return {"grad": named.pop("grad"), **named} if "grad" in named else named

    def in_c_order(
        self, inputs: Mapping[str, U], outs: Mapping[str, U]
    ) -> tuple[list[U | None], list[U | None]]:
        """Return inputs and outputs in the C function's order; an absent one is None."""
        ordered = ((inputs, self.c_inputs), (outs, self.c_outs))
        return tuple([named.get(name) for name in names or named] for named, names in ordered)  # type: ignore

    def map(self, convert: Callable[[T], U]) -> CallTensors[U]:
        """Return the call with ``convert`` applied to each tensor."""

        def converted(tensors: Mapping[str, T]) -> dict[str, U]:
            return {name: convert(tensor) for name, tensor in tensors.items()}

        xs, other_inputs, outs = map(converted, (self.xs, self.other_inputs, self.outs))
        return replace(self, xs=xs, other_inputs=other_inputs, outs=outs)  # type: ignore[arg-type, return-value]

    def differentiable(self) -> dict[str, T]:
        """Return all tensors by name, except the frequency factors, which get no gradient."""
        named = {**self.xs, **self.other_inputs, **self.outs}
        named.pop("freq_factors", None)
        return named


def given(**tensors: Any) -> dict[str, Any]:
    """Return the tensors that are not None."""
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def named_outs(names: tuple[str, str], out: tuple[T, T] | None) -> dict[str, T]:
    """Return the two outputs by name, or an empty dictionary for None."""
    return {} if out is None else dict(zip(names, out, strict=True))


def call_of(op: str, xs: Mapping[str, T], others: Mapping[str, T], outs: Mapping[str, T]) -> CallTensors[T]:
    """Return a call whose n-th output belongs to the n-th of xs. A cache is never in place."""
    in_place: tuple[str, ...] = ()
    if outs:
        both = zip(xs.items(), outs.items(), strict=False)
        in_place = tuple([x_name for (x_name, x), (name, out) in both if out is x and name != "cache"])
    return CallTensors(op, xs, others, outs, in_place)
