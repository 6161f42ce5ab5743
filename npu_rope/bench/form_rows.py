"""rope's modes and forms compared with NeoX on the same bytes.

There is one row for each dtype, with the size of a prefill. A text has the positions 0..S-1. An image, in
modes with sections, has the positions of its pixels row by row. Its axes therefore advance at different
tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import npu_rope
from npu_rope.bench.harness import Contestant, Ready
from npu_rope.bench.rope_rows import DTYPES, HEAD_DIM, Row, floor
from npu_rope.bench.verify import ExpectedRotation
from npu_rope.optional_torch import torch
from npu_rope.params import RopeParams
from npu_rope.testing.bounds import OURS

GROUP, MODE = "forms", "every mode"
NEOX = "neox"
IMAGE_WIDTH = 32
SECTIONS = {"mrope": (16, 24, 24, 0), "imrope": (24, 20, 20, 0), "vision": (32, 32, 0, 0)}
# The parameters of each form, and whether its positions are those of an image.
FORMS: dict[str, tuple[RopeParams, bool]] = {
    NEOX: (RopeParams(HEAD_DIM, "neox"), False),
    "normal": (RopeParams(HEAD_DIM, "normal"), False),
    "mrope, text": (RopeParams(HEAD_DIM, "mrope", sections=SECTIONS["mrope"]), False),
    "mrope, image": (RopeParams(HEAD_DIM, "mrope", sections=SECTIONS["mrope"]), True),
    "imrope, image": (RopeParams(HEAD_DIM, "imrope", sections=SECTIONS["imrope"]), True),
    "vision, image": (RopeParams(HEAD_DIM // 2, "vision", sections=SECTIONS["vision"]), True),
    "neox, half of the head": (RopeParams(HEAD_DIM // 2, "neox"), False),
    "neox, the head's second half": (RopeParams(HEAD_DIM // 2, "neox", n_offs=HEAD_DIM // 2), False),
    "normal, half of the head": (RopeParams(HEAD_DIM // 2, "normal"), False),
    "neox, three quarters": (RopeParams(HEAD_DIM // 4 * 3, "neox"), False),
    "neox, a quarter": (RopeParams(HEAD_DIM // 4, "neox"), False),
}


def row(dtype: str, threads: int) -> Row:
    """Return the row of one dtype."""
    return Row(GROUP, ((1, 2048, 32),), dtype, MODE, threads)


def positions_of(params: RopeParams, is_image: bool, tokens: int) -> Any:
    """Return the positions of a text, or of an image's pixels row by row: ``[S]``, or ``[4,S]`` in modes with
    sections."""
    token = torch.arange(tokens)
    if not params.rope_mode.has_sections:
        return token
    if not is_image:
        return token.expand(4, tokens).contiguous()
    height = torch.div(token, IMAGE_WIDTH, rounding_mode="floor")
    return torch.stack([torch.zeros_like(token), height, token % IMAGE_WIDTH, torch.zeros_like(token)])


def contestants(bench_row: Row) -> Iterator[Contestant]:
    """Yield the floor, and each form. All calls write into one output buffer."""
    batch, tokens, heads = bench_row.sizes_bsn[0]
    x = torch.randn(batch, tokens, heads, HEAD_DIM, generator=torch.Generator().manual_seed(21))
    x = x.to(getattr(torch, DTYPES[bench_row.dtype]))
    out = torch.empty_like(x)
    yield floor([x])
    for name, (params, is_image) in FORMS.items():
        positions = positions_of(params, is_image, tokens)
        call = partial(npu_rope.rope, x, positions, params, out=out)
        yield Contestant(
            name, "ours", partial(Ready, call, call), _check(x, positions, params, bench_row.dtype)
        )


def _check(x: Any, positions: Any, params: RopeParams, dtype: str) -> Callable[[Any], str | None]:
    def check(result: Any) -> str | None:
        return ExpectedRotation(x, positions, params, DTYPES[dtype]).fault_of(result, *OURS)

    return check
