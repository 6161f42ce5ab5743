"""rms_norm_rope compared with a copy of the same bytes, its parts as separate calls, and transformers' Qwen3.

There is one row for each dtype: the queries and keys of a prefill of 2048 tokens. npu_rope's calls write into
preallocated buffers. The code of transformers makes new tensors and receives cos and sin, as in its models.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import npu_rope
from npu_rope.bench.harness import Contestant, Ready
from npu_rope.bench.peers import is_wanted, require
from npu_rope.bench.rope_rows import DTYPES, HEAD_DIM, Row, floor, in_order, ready_from_writes
from npu_rope.bench.verify import as_float64
from npu_rope.optional_torch import torch
from npu_rope.params import RopeParams
from npu_rope.testing.bounds import PEER_FLOAT32_TABLE, UNIT_ROUNDOFF, worst_ratio
from npu_rope.testing.norm_rope_spec import NormRopeCall, rms_norm_rope

GROUP, MODE = "norm-rope", "rms_norm_rope"
TOKENS, EPSILON, FREQ_BASE = 2048, 1e-6, 1e6
OUT, ROUNDED = "npu_rope.rms_norm_rope(out=)", "npu_rope.rms_norm_rope(out=, intermediate_rounding=True)"
PARTS = "npu_rope.rms_norm twice, then rope_qk (out=)"
TRANSFORMERS = "transformers Qwen3 q_norm, k_norm, apply_rotary_pos_emb"
CHECKED = slice(None, None, 128)  # the tokens that are checked
PEER_ROUNDINGS = 8  # the number of roundings to the tensors' dtype before a peer's result


def row(dtype: str, threads: int) -> Row:
    """Return the row of one dtype."""
    return Row(GROUP, ((1, TOKENS, 32), (1, TOKENS, 8)), dtype, MODE, threads)


@dataclass(frozen=True)
class NormRopeInputs:
    """The input of all contestants."""

    xs: tuple[Any, Any]
    scales: tuple[Any, Any]
    positions: Any
    dtype: str

    params = RopeParams(HEAD_DIM, "neox", freq_base=FREQ_BASE)

    @cached_property
    def outs(self) -> tuple[Any, Any]:
        """The buffers that all calls write to."""
        return torch.empty_like(self.xs[0]), torch.empty_like(self.xs[1])

    def check(self, peer_roundings: int, intermediate_rounding: bool) -> Callable[[Any], str | None]:
        """Return a check of some tokens by npu_rope's bound, widened for a peer's table and roundings."""

        def check(results: Any) -> str | None:
            for x, scale, result in zip(self.xs, self.scales, results, strict=True):
                arrays = as_float64(x[:, CHECKED]), as_float64(scale), self.positions[CHECKED].numpy()
                call = NormRopeCall(
                    *arrays,
                    self.params,
                    self.dtype,
                    epsilon=EPSILON,
                    intermediate_rounding=intermediate_rounding,
                )
                value, bound = rms_norm_rope(call)
                if peer_roundings:
                    relative_error = PEER_FLOAT32_TABLE[0] + peer_roundings * UNIT_ROUNDOFF[self.dtype]
                    bound = bound + relative_error * abs(value).max(-1, keepdims=True)
                ratio, worst_index = worst_ratio(as_float64(result[:, CHECKED]), value, bound)
                if ratio > 1:
                    return f"{ratio:.3g} times its bound at {list(worst_index)}"
            return None

        return check


def contestants(bench_row: Row, pattern: str | None) -> Iterator[Contestant]:
    """Yield the floor, npu_rope's own, and the peers whose name matches the pattern."""
    generator = torch.Generator().manual_seed(23)
    dtype = getattr(torch, DTYPES[bench_row.dtype])
    shapes = [*((b, s, n, HEAD_DIM) for b, s, n in bench_row.sizes_bsn), (HEAD_DIM,), (HEAD_DIM,)]
    q, k, *scales = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    inputs = NormRopeInputs((q, k), (scales[0], scales[1]), torch.arange(TOKENS), DTYPES[bench_row.dtype])
    yield floor(inputs.xs)
    arrays = q, k, *scales, inputs.positions, inputs.params
    for name, rounding in ((OUT, False), (ROUNDED, True)):
        call = partial(npu_rope.rms_norm_rope, *arrays, epsilon=EPSILON, intermediate_rounding=rounding)
        prepare = partial(ready_from_writes, [partial(call, out=inputs.outs)], lambda: inputs.outs)
        yield Contestant(name, "ours", prepare, inputs.check(0, rounding))
    yield Contestant(PARTS, "ours", partial(_parts, inputs), inputs.check(0, True))
    if is_wanted(TRANSFORMERS, pattern):
        check = inputs.check(PEER_ROUNDINGS, False)
        yield Contestant(TRANSFORMERS, "peer", partial(_transformers, inputs), check)


def _parts(inputs: NormRopeInputs) -> Ready:
    normalized = [torch.empty_like(x) for x in inputs.xs]
    norms = [
        partial(npu_rope.rms_norm, x, scale, epsilon=EPSILON, out=y)
        for x, scale, y in zip(inputs.xs, inputs.scales, normalized, strict=True)
    ]
    q, k = normalized
    rotate = partial(npu_rope.rope_qk, q, k, inputs.positions, inputs.params, out=inputs.outs)
    return ready_from_writes([in_order(norms), rotate], lambda: inputs.outs)


def _transformers(inputs: NormRopeInputs) -> Ready:
    require("transformers")
    model: Any = importlib.import_module("transformers.models.qwen3.modeling_qwen3")
    norms = [model.Qwen3RMSNorm(HEAD_DIM, eps=EPSILON) for _ in inputs.xs]
    for norm, scale in zip(norms, inputs.scales, strict=True):
        norm.weight.data = scale
    frequency = 1.0 / (FREQ_BASE ** (torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM))
    angle = torch.cat([inputs.positions[:, None].float() * frequency] * 2, -1)[None]
    cos_and_sin = [table.to(inputs.xs[0].dtype) for table in (angle.cos(), angle.sin())]

    def call() -> Any:
        q, k = (norm(x).transpose(1, 2) for norm, x in zip(norms, inputs.xs, strict=True))
        return model.apply_rotary_pos_emb(q, k, *cos_and_sin)

    return Ready(call, lambda: [y.transpose(1, 2) for y in call()])
