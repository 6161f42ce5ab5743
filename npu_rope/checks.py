"""Tensors of one call, by their names: a base class for every operator, and the calls of rope, rope_qk and
rope_set_rows. Their rules are those of ``csrc/core``.
"""

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


class CallTensors(Generic[T]):
    """One call's tensors, as its caller passed them, by their names in error messages.

    Attributes:
        op: the operator's name.
        xs: the main inputs, by name.
        outs: the outputs, by name, one for each of xs; empty if the operator allocates them.
        in_place: the names of those of xs that are their own output.
    """

    __slots__ = ()
    op: str
    xs: Mapping[str, T]
    outs: Mapping[str, T]
    in_place: tuple[str, ...]

    @property
    def scatters(self) -> bool:
        """Whether the last output is rows of a cache."""
        return "cache" in self.outs

    @property
    def first(self) -> tuple[str, T]:
        """Name and tensor of x or q, with which the other tensors are compared."""
        return next(iter(self.xs.items()))

    @property
    def entry(self) -> str:
        """The name of the call's C function, without its prefix."""
        return self.op

    def inputs(self) -> dict[str, T]:
        """Return all inputs, by name, in the order of the C function."""
        return {**self.xs, **self.beside()}

    def beside(self) -> dict[str, T]:
        """Return the other inputs that the call has, by name."""
        raise NotImplementedError

    def with_beside(self, **named: T) -> Any:
        """Return the call with the other inputs replaced."""
        raise NotImplementedError

    def map(self, see: Callable[[T], U]) -> Any:
        """Return the call with ``see`` applied to each tensor."""
        raise NotImplementedError

    def differentiable(self) -> dict[str, T]:
        """Return the tensors that may need a gradient, by name: all except the frequency factors."""
        named = {**self.xs, **self.beside(), **self.outs}
        named.pop("freq_factors", None)
        return named


@dataclass(slots=True)
class RopeTensors(CallTensors[T]):
    """A call of rope, rope_qk or rope_set_rows.

    Attributes:
        op: the operator's name.
        xs: the rotated inputs, by name: one tensor, or queries and keys.
        positions, freq_factors: their positions, and the factors or None.
        outs: the outputs, by name, one for each of xs; empty if the operator allocates them.
        rows: the rows to write of the cache, which is then the only one of outs; or None.
        in_place: the names of those of xs that are their own output.
    """

    op: str
    xs: Mapping[str, T]
    positions: T
    freq_factors: T | None = None
    outs: Mapping[str, T] = field(default_factory=dict)
    rows: T | None = None
    in_place: tuple[str, ...] = ()

    def beside(self) -> dict[str, T]:
        """Return the other inputs, by name; the factors only if the call has them."""
        named: dict[str, Any] = {"positions": self.positions}
        if self.scatters:
            named["rows"] = self.rows
        if self.freq_factors is not None:
            named["freq_factors"] = self.freq_factors
        return named

    def with_beside(self, **named: T) -> RopeTensors[T]:
        """Return the call with the other inputs replaced."""
        rows, factors = named.get("rows"), named.get("freq_factors")
        return replace(self, positions=named["positions"], rows=rows, freq_factors=factors)

    def map(self, see: Callable[[T], U]) -> RopeTensors[U]:
        """Return the call with ``see`` applied to each tensor."""
        return RopeTensors(
            self.op,
            {name: see(t) for name, t in self.xs.items()},
            see(self.positions),
            None if self.freq_factors is None else see(self.freq_factors),
            {name: see(t) for name, t in self.outs.items()},
            None if self.rows is None else see(self.rows),
            self.in_place,
        )


def rope_tensors(x: T, positions: T, freq_factors: T | None, out: T | None) -> RopeTensors[T]:
    """Return a call of rope."""
    outs = {} if out is None else {"out": out}
    return RopeTensors("rope", {"x": x}, positions, freq_factors, outs, in_place=("x",) if out is x else ())


def rope_qk_tensors(
    q: T, k: T, positions: T, freq_factors: T | None, out: tuple[T, T] | None
) -> RopeTensors[T]:
    """Return a call of rope_qk."""
    xs, outs = {"q": q, "k": k}, {} if out is None else {"q_out": out[0], "k_out": out[1]}
    in_place = tuple(name for (name, x), o in zip(xs.items(), outs.values(), strict=False) if o is x)
    return RopeTensors("rope_qk", xs, positions, freq_factors, outs, in_place=in_place)


def rope_set_rows_tensors(x: T, positions: T, rows: T, freq_factors: T | None, cache: T) -> RopeTensors[T]:
    """Return a call of rope_set_rows."""
    return RopeTensors("rope_set_rows", {"x": x}, positions, freq_factors, {"cache": cache}, rows)
