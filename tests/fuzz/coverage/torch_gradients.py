"""Gradients of the calls of fuzz_torch.py.

A call may write into its arguments, or take views, unusual strides and tensors that share memory. Its plain
form takes dense copies of the arguments. If the call is one of a function that writes, its plain form is one
of the function that writes nothing. Both must have the same results, gradients and gradients of gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import atheris
import torch

TOLERANCES = {torch.float32: 1e-4, torch.float16: 2**-8, torch.bfloat16: 2**-5, torch.float64: 1e-4}
POOL = torch.rand(1 << 16, generator=torch.Generator().manual_seed(1)) + 0.5


class Memory(Protocol):
    """The memory of a call: that of fuzz_torch.py."""

    def is_written(self, tensor: torch.Tensor) -> bool:
        """Return whether the call may write this tensor."""

    def replace(self, tensor: torch.Tensor, other: torch.Tensor) -> None:
        """Let the call take another tensor of the same elements instead."""

    def keep(self, values: torch.Tensor) -> torch.Tensor:
        """Compare these elements after the call. Return them."""


def mapped(value: Any, function: Callable[[torch.Tensor], Any]) -> Any:
    """Return an argument with the function applied to its tensors."""
    if isinstance(value, (tuple, list)):
        return tuple(mapped(each, function) for each in value)
    return function(value) if isinstance(value, torch.Tensor) else value


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Return the tensors of an argument or a result, in order."""
    found: list[torch.Tensor] = []
    mapped(value, found.append)
    return found


class DifferentiableCall:
    """A call whose arguments need gradients, and its plain form."""

    def __init__(
        self,
        data: atheris.FuzzedDataProvider,
        memory: Memory,
        positional: Sequence[Any],
        named: dict[str, Any],
    ) -> None:
        self._data, self._memory = data, memory
        self._sources: list[torch.Tensor] = []  # what gradients are computed for
        self._plain_sources: list[torch.Tensor] = []
        self._plain: dict[int, torch.Tensor] = {}  # of each tensor of the call, by its identity
        self.is_comparable = True
        given: dict[int, torch.Tensor] = {}

        def give(tensor: torch.Tensor) -> torch.Tensor:
            if id(tensor) not in given:
                given[id(tensor)] = self._with_gradient(tensor)
                self._alive.append(tensor)
            return given[id(tensor)]

        self._alive: list[torch.Tensor] = []  # an identity is that of one tensor as long as the tensor lives
        self.positional = [mapped(each, give) for each in positional]
        self.named = {name: mapped(each, give) for name, each in named.items()}

    def _with_gradient(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor, or one of the same values that needs a gradient. Keep its plain form."""
        self.is_comparable &= tensor.dim() <= 60  # torch's sums take at most 64 dimensions
        is_plain = tensor.layout == torch.strided and not (
            tensor.is_meta
            or tensor.is_quantized
            or tensor.is_neg()
            or tensor.is_conj()
            or tensor.is_inference()
        )
        if not is_plain or tensor.dtype not in TOLERANCES or not tensor.numel():
            self._plain[id(tensor)] = tensor if tensor.requires_grad else _dense(tensor)
            self.is_comparable &= not tensor.requires_grad
            return tensor
        if tensor.requires_grad:
            # A call changes the history of a tensor that it writes. A view has the history of another one.
            if not tensor.is_leaf and (tensor._base is not None or self._memory.is_written(tensor)):
                self.is_comparable = False
            return self._keep_plain(tensor, tensor)
        kind = self._data.ConsumeIntInRange(0, 3)
        if kind == 1:
            leaf = tensor.detach().requires_grad_()
            self._memory.replace(tensor, leaf)
            return self._keep_plain(leaf, leaf)
        if kind == 2:  # a view of the result of an operation
            shape, steps = tensor.shape, tensor.stride()
            last = sum((n - 1) * step for n, step in zip(shape, steps, strict=True))
            flat = torch.as_strided(tensor, (last + 1,), (1,)).clone().requires_grad_()
            computed = flat * 1
            self._memory.keep(computed.detach())
            view = torch.as_strided(computed, shape, steps)
            self._memory.replace(tensor, view)
            return self._keep_plain(view, flat, lambda copy: torch.as_strided(copy, shape, steps))
        self._plain[id(tensor)] = _dense(tensor)
        return tensor

    def _keep_plain(
        self,
        tensor: torch.Tensor,
        source: torch.Tensor,
        view: Callable[[torch.Tensor], torch.Tensor] = lambda copy: copy,
    ) -> torch.Tensor:
        """Compute gradients for ``source``, of which the tensor is a view. Return the tensor."""
        copy = _dense(source).requires_grad_()
        self._sources.append(source)
        self._plain_sources.append(copy)
        self._plain[id(tensor)] = view(copy).clone(memory_format=torch.contiguous_format)
        return tensor

    def compare(self, run: Callable[..., Any], without_out: bool, result: Any) -> str:
        """Run the plain form, and compare its results and gradients. Return a text that names the gradients
        which were compared. Raise AssertionError if results or gradients differ."""
        if not self._sources or not self.is_comparable:
            return ""

        def plain(tensor: torch.Tensor) -> torch.Tensor:
            return self._plain[id(tensor)]

        positional = [mapped(each, plain) for each in self.positional]
        named = {name: mapped(each, plain) for name, each in self.named.items()}
        if without_out:
            named.pop("out", None)
        plain_result = run(*positional, **named)
        results, plain_results = tensors_of(result), tensors_of(plain_result)
        if not results:  # of an operator that returns nothing
            written = [each for each in tensors_of(self.positional) if self._memory.is_written(each)]
            results, plain_results = written, [plain(each) for each in written]
        _compare("result", results, plain_results)
        if self._data.ConsumeIntInRange(0, 3) == 3:
            results, plain_results = results[:1], plain_results[:1]
        seeds = [self._seed(each) for each in plain_results]
        is_double = self._data.ConsumeBool()
        try:
            first = _gradients(results, seeds, self._sources, is_double)
        except RuntimeError as error:
            # For torch, a write into a tensor is one into all tensors that share its memory.
            if "modified by an inplace operation" in str(error) and self._shares_memory():
                return ""
            raise
        plain_first = _gradients(plain_results, seeds, self._plain_sources, is_double)
        _compare("gradient", first, plain_first)
        if not is_double:
            return " and gradients"
        seeds = [self._seed(each) for each in plain_first]
        second = _gradients(first, seeds, self._sources, False)
        plain_second = _gradients(plain_first, seeds, self._plain_sources, False)
        _compare("second gradient", second, plain_second)
        return " and second gradients"

    def _shares_memory(self) -> bool:
        """Return whether two tensors of the call share memory."""
        tensors = {id(each): each for each in tensors_of([*self.positional, *self.named.values()])}
        dense = [each for each in tensors.values() if each.layout == torch.strided]
        addresses = [each.untyped_storage().data_ptr() for each in dense]
        return len(set(addresses)) < len(addresses)

    def _seed(self, root: torch.Tensor) -> torch.Tensor:
        """Return a gradient of a result: dense, repeated, or with other strides."""
        kind = self._data.ConsumeIntInRange(0, 2)
        if kind == 1:
            return torch.full((), 1.5, dtype=root.dtype).expand(root.shape)
        values = POOL[: root.numel()].to(root.dtype)
        if kind == 2 and root.dim() > 1:
            return values.view(root.shape[::-1]).permute(*range(root.dim())[::-1])
        return values.view(root.shape)


def _gradients(
    results: Sequence[torch.Tensor], seeds: Sequence[torch.Tensor], sources: list[torch.Tensor], is_kept: bool
) -> list[torch.Tensor]:
    """Return the gradient of each source. It is zero where no result depends on the source."""
    pairs = [pair for pair in zip(results, seeds, strict=True) if pair[0].requires_grad]
    found: Sequence[torch.Tensor | None] = [None] * len(sources)
    if pairs:
        roots, seeds = zip(*pairs, strict=True)
        found = torch.autograd.grad(roots, sources, seeds, allow_unused=True, create_graph=is_kept)
    return [torch.zeros_like(own) if each is None else each for each, own in zip(found, sources, strict=True)]


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout != torch.strided or tensor.is_quantized:
        return tensor
    return tensor.detach().resolve_neg().clone(memory_format=torch.contiguous_format)


def _compare(what: str, found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> None:
    for k, (one, other) in enumerate(zip(found, expected, strict=True)):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            raise AssertionError(
                f"{what} {k} must be {other.dtype}{list(other.shape)} but got {one.dtype}{list(one.shape)}"
            )
        if one.is_meta:
            continue
        values, plain = (each.detach().resolve_neg().flatten().double() for each in (one, other))
        size = plain.abs().nan_to_num(0, 0, 0).max() if plain.numel() else 0
        bound = TOLERANCES.get(one.dtype, 1) * float(size)
        if not torch.allclose(values, plain, rtol=0, atol=bound, equal_nan=True):
            raise AssertionError(f"{what} {k} must be {plain.tolist()} but got {values.tolist()}")
