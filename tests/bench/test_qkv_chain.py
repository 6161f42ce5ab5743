"""benchmarks/trace_qkv_chain.py: the chain of single launches computes what one launch computes, and moves the bytes that
the picture of docs/ops/qkv_norm_rope_cache.md shows."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from npu_rope import rms_norm_rope
from npu_rope.cli.trace import Dtype

ROOT = Path(__file__).resolve().parents[2]
CHIP = "Ascend910B1"
SVG = "{http://www.w3.org/2000/svg}"


def module(folder: str, name: str) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / folder))
        yield importlib.import_module(name)


@pytest.fixture(scope="module")
def chain() -> Iterator[Any]:
    yield from module("benchmarks", "trace_qkv_chain")


@pytest.fixture(scope="module")
def drawing(chain: Any) -> Iterator[Any]:
    yield from module("scripts", "draw_qkv_bytes")


def run_chain(chain: Any, sizes: Any, slots: Any = None) -> tuple[Any, dict[str, Any]]:
    """Return the call with its results, and the summary of each launch."""
    call = chain.Call(sizes, CHIP)
    if slots is not None:
        call.slots = slots
    return call, {step.name: step.launch(call) for step in chain.CHAIN}


def parts(call: Any) -> list[Any]:
    """q, k and v of the fused tensor."""
    ends = np.cumsum(list(call.sizes.heads.values()))
    return np.split(call.fused, ends[:-1], axis=1)


# ---- results ---------------------------------------------------------------------------------------

SHAPES = {
    "one token": (1, 32, 8, 128),
    "fewer tokens than cores": (32, 32, 8, 128),
    "one token more than cores": (49, 4, 1, 128),
    "tiles that end inside a token": (700, 9, 3, 80),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_chain_gives_the_bits_of_norm_and_rotation_with_intermediate_rounding(chain, shape):
    call, _ = run_chain(chain, chain.Sizes(*shape, dtype=Dtype.F16))
    q, k, v = parts(call)
    scales = call.scales["q"], call.scales["k"]
    positions = call.positions
    rotated = rms_norm_rope(
        *(q[None], k[None], *scales, positions, call.params),
        epsilon=chain.EPSILON,
        intermediate_rounding=True,
        backend="sim",
    )
    assert np.array_equal(call.q_out, rotated[0][0])
    assert np.array_equal(call.caches["k"][call.slots], rotated[1][0])
    assert np.array_equal(call.caches["v"][call.slots], v)


def test_the_one_launch_computes_what_the_chain_computes_but_for_roundings(chain):
    sizes = chain.Sizes(50, dtype=Dtype.F32)
    chained, _ = run_chain(chain, sizes)
    one = chain.Call(sizes, CHIP)
    chain.one_launch(one)
    # float32 differs in the last bits only, float16's least step is 2^-11 of a number.
    assert np.abs(one.q_out - chained.q_out).max() < 2**-18 * np.abs(chained.q_out).max()
    assert np.abs(one.caches["k"] - chained.caches["k"]).max() < 2**-18 * np.abs(chained.caches["k"]).max()
    assert np.array_equal(one.caches["v"], chained.caches["v"])


def test_a_token_whose_slot_is_no_row_is_left_out(chain):
    slots = np.arange(60, dtype=np.int32)[::-1].copy()
    slots[[3, 58]] = -1, 60
    call, _ = run_chain(chain, chain.Sizes(60, 2, 2, 64, Dtype.F16), slots)
    kept = np.flatnonzero((slots >= 0) & (slots < 60))
    assert np.array_equal(call.caches["v"][slots[kept]], parts(call)[2][kept])
    assert not call.caches["v"][[56, 1]].any()  # the rows that tokens 3 and 58 had


# ---- bytes -----------------------------------------------------------------------------------------


def parameter_bytes(call: Any, name: str, summary: Any) -> int:
    """The bytes that a launch reads besides q, k and v."""
    row, tokens, cores = call.scales["q"].nbytes, call.sizes.tokens, int(summary["cores"])
    turns = 2 * 4 * call.sizes.head_size // 2  # two float32 for each pair
    return {
        "split": 0,
        "rms_norm of q": cores * row,
        "rms_norm of k": cores * row,
        "rope_qk": cores * turns + 4 * tokens,
        "store of k": 4 * tokens,
        "store of v": 4 * tokens,
        "qkv_norm_rope_cache": cores * (turns + 2 * row) + 4 * tokens,
    }[name]


@pytest.mark.parametrize("tokens", [48, 96, 240])
def test_each_launch_moves_the_bytes_of_its_tensors_and_its_parameters(chain, tokens):
    sizes = chain.Sizes(tokens)
    call, summaries = run_chain(chain, sizes)
    expected = {traffic.name: traffic for traffic in chain.chain_traffic(sizes)}
    assert list(expected) == list(summaries)
    summaries["qkv_norm_rope_cache"] = chain.one_launch(chain.Call(sizes, CHIP))
    expected["qkv_norm_rope_cache"] = chain.one_launch_traffic(sizes)
    for name, summary in summaries.items():
        reads, writes = (sum(moved.values()) for moved in (expected[name].reads, expected[name].writes))
        assert summary["bytes_written"] == writes, name
        assert summary["bytes_read"] == reads + parameter_bytes(call, name, summary), name


def test_the_chain_moves_three_times_the_bytes_of_one_launch(chain):
    sizes = chain.Sizes(4096)
    assert sum(traffic.total for traffic in chain.chain_traffic(sizes)) == 3 * chain.one_launch_traffic(sizes).total
    assert chain.one_launch_traffic(sizes).total == 2 * 4096 * 48 * 128 * 2
