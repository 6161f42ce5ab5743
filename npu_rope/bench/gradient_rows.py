"""Calls under autograd: forward without and with a gradient, and backward.

The floor of these rows is an empty call, so a ratio counts empty calls. The second line is a node of
torch.autograd.Function that only saves two tensors: the least that a gradient in Python costs. The tensors
have the sizes of a decoded token, or of a batch in training. The norm has a copy of as many bytes as its
backward reads and writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import npu_rope
from npu_rope.bench.harness import Contestant, Ready
from npu_rope.bench.rope_rows import DTYPES, HEAD_DIM, Row, ready_from_writes
from npu_rope.optional_torch import torch

GROUP = "gradient"
# B, S and N. A float32 tensor of TRAINING has less than 32 MiB: glibc maps larger ones anew for each call,
# and the page faults would take several times the operators' time.
DECODE, TRAINING = (1, 1, 32), (4, 384, 32)
MODES = ("rms_norm", "rope", "rotary_mul")
EMPTY, NODE = "empty call: torch.ops.aten.alias", "torch.empty_like in a torch.autograd.Function"
COPY = "copy_ of the bytes of backward"
WITHOUT, WITH, BACKWARD = "forward", "forward with requires_grad", "backward"


def row(dtype: str, threads: int, mode: str, sizes: tuple[int, int, int] = DECODE) -> Row:
    """Return the row of one dtype, operator and size."""
    return Row(GROUP, (sizes,), dtype, mode, threads)


def rows(dtypes: Sequence[str], threads: int) -> list[Row]:
    """Return every row for one number of threads."""
    sizes = DECODE, TRAINING
    return [row(dtype, threads, mode, size) for mode in MODES for size in sizes for dtype in dtypes]


class GradientInputs:
    """The tensors of one row, and its operator."""

    def __init__(self, bench_row: Row) -> None:
        generator = torch.Generator().manual_seed(30)
        dtype = getattr(torch, DTYPES[bench_row.dtype])

        def random(*sizes: int) -> Any:
            return torch.randn(*sizes, generator=generator).to(dtype)

        ((batch, tokens, heads),) = bench_row.sizes_bsn
        shape = batch, tokens, heads, HEAD_DIM
        self.mode, self.x, self.gradient = bench_row.mode, random(*shape), random(*shape)
        self.scale, self.tables = random(HEAD_DIM), (random(tokens, HEAD_DIM), random(tokens, HEAD_DIM))
        self.positions = torch.arange(tokens)
        self.params = npu_rope.RopeParams(HEAD_DIM, "neox")

    def leaves(self) -> tuple[Any, ...]:
        """Return new leaves: x, and for the norm its scale."""
        sources = (self.x, self.scale) if self.mode == "rms_norm" else (self.x,)
        return tuple(x.detach().requires_grad_() for x in sources)

    def call(self, x: Any, *scale: Any) -> Callable[[], Any]:
        """Return a call of the operator."""
        if self.mode == "rms_norm":
            return partial(npu_rope.rms_norm, x, *scale)
        if self.mode == "rope":
            return partial(npu_rope.rope, x, self.positions, self.params)
        return partial(npu_rope.rotary_mul, x, *self.tables)

    def expected_gradients(self) -> tuple[Any, ...]:
        """Return the gradients that the backward operator computes."""
        if self.mode == "rms_norm":
            return npu_rope.rms_norm_backward(self.gradient, self.x, self.scale)
        if self.mode == "rope":
            return (npu_rope.rope(self.gradient, self.positions, self.params, forward=False),)
        return npu_rope.rotary_mul_backward(self.gradient, self.x, *self.tables)[:1]


def contestants(bench_row: Row) -> Iterator[Contestant]:
    """Return the empty call, an empty node, a copy for the norm, and the operator's forward and backward."""
    inputs = GradientInputs(bench_row)
    empty = partial(torch.ops.aten.alias.default, inputs.x)
    node = partial(_saving_function().apply, inputs.x.detach().requires_grad_(), inputs.scale)
    yield Contestant(EMPTY, "floor", lambda: Ready(empty, lambda: None))
    yield Contestant(NODE, "call", lambda: Ready(node, lambda: None, torch.enable_grad))
    if inputs.mode == "rms_norm":
        yield Contestant(COPY, "call", partial(_prepare_copy, inputs))
    yield Contestant(WITHOUT, "ours", partial(_prepare_forward, inputs, needs_gradient=False))
    yield Contestant(WITH, "ours", partial(_prepare_forward, inputs, needs_gradient=True), _check_node)
    yield Contestant(BACKWARD, "ours", partial(_prepare_backward, inputs), partial(_check_gradients, inputs))


def _saving_function() -> Any:
    class Saving(torch.autograd.function._SingleLevelFunction):  # type: ignore[misc]
        """The node of two tensors that are saved; apply() is torch's own, without Python in front of it."""

        @staticmethod
        def forward(ctx: Any, x: Any, scale: Any) -> Any:
            ctx.save_for_backward(x, scale)
            return torch.empty_like(x)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> tuple[Any, None]:
            return gradient, None

    return Saving


def _prepare_copy(inputs: GradientInputs) -> Ready:
    """Prepare a copy of x and of half the gradient, because backward reads both and writes x's gradient."""
    sources = inputs.x.flatten(), inputs.gradient.flatten()[: inputs.x.numel() // 2]
    return ready_from_writes(
        [partial(torch.empty_like(source).copy_, source) for source in sources], lambda: None
    )


def _prepare_forward(inputs: GradientInputs, *, needs_gradient: bool) -> Ready:
    given = inputs.leaves() if needs_gradient else (inputs.x, inputs.scale)
    call = inputs.call(*given)
    return Ready(call, call, torch.enable_grad)


def _check_node(result: Any) -> str | None:
    return None if result.requires_grad else "its result needs no gradient"


def _prepare_backward(inputs: GradientInputs) -> Ready:
    leaves = inputs.leaves()
    with torch.enable_grad():
        result = inputs.call(*leaves)()
    call = partial(torch.autograd.grad, result, leaves, inputs.gradient, retain_graph=True)
    return Ready(call, call)


def _check_gradients(inputs: GradientInputs, gradients: Any) -> str | None:
    expected = inputs.expected_gradients()
    is_same = len(gradients) == len(expected) and all(map(torch.equal, gradients, expected))
    return None if is_same else "its gradients are not those of the backward operator"
