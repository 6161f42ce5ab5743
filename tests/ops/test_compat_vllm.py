"""vLLM's rotary_embedding equals its formula in float64, in place, for every layout of queries and keys."""

from __future__ import annotations

import itertools

import pytest
import torch

from npu_rope.compat.vllm import rotary_embedding

ROWS = 40


def cache(width, dtype=torch.float32):
    angles = torch.rand(ROWS, width // 2, generator=torch.Generator().manual_seed(1)) * 9
    return torch.cat((angles.cos(), angles.sin()), -1).to(dtype)


def expected(positions, x, size, table, neox):
    """Return the heads of each token rotated by the row of its position, in float64."""
    width = table.shape[1]
    cos, sin = table[positions.flatten()].double().chunk(2, -1)
    heads = x.double().reshape(positions.numel(), -1, size).clone()
    first, second = (
        (slice(0, width // 2), slice(width // 2, width)) if neox else (slice(0, width, 2), slice(1, width, 2))
    )
    a, b = heads[..., first].clone(), heads[..., second].clone()
    heads[..., first] = a * cos[:, None] - b * sin[:, None]
    heads[..., second] = b * cos[:, None] + a * sin[:, None]
    return heads.reshape(x.shape)


def random_tensor(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape) + shape[-1]))


BOUND = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}


@pytest.mark.parametrize("neox", [True, False])
@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("layout", ["[T,N*D]", "[T,N,D]", "[B,S,N*D]", "[B,S,N,D]"])
def test_results_equal_the_formula(layout, dtype, neox):
    lead = (6,) if layout.startswith("[T") else (2, 3)
    flat = layout.endswith("N*D]")
    for (size, width), with_key, float32_table, position_dtype in itertools.product(
        ((64, 64), (64, 32), (36, 20)), (True, False), (True, False), (torch.int32, torch.int64)
    ):
        table = cache(width, torch.float32 if float32_table else dtype)
        positions = torch.randint(0, ROWS, lead).to(position_dtype)
        shapes = [(*lead, n * size) if flat else (*lead, n, size) for n in (4, 2)]
        query, key = (random_tensor(*s).to(dtype) for s in shapes)
        wanted = [expected(positions, x, size, table, neox) for x in (query, key)]
        before = key.clone()
        assert rotary_embedding(positions, query, key if with_key else None, size, table, neox) is None
        for got, want in zip((query, key), wanted if with_key else (wanted[0], before), strict=True):
            assert (got.double() - want).abs().max() <= BOUND[dtype] * want.abs().max()


def test_a_fused_projection_is_rotated_in_place():
    table, positions = cache(16), torch.arange(5)
    fused = random_tensor(5, 4 * 16 + 2 * 16 + 2 * 16)
    before = fused.clone()
    query, key, value = fused.split((64, 32, 32), -1)
    wanted = [expected(positions, x, 16, table, True) for x in (query, key)]
    rotary_embedding(positions, query, key, 16, table, True)
    assert (fused[:, :64].double() - wanted[0]).abs().max() <= 1e-5
    assert (fused[:, 64:96].double() - wanted[1]).abs().max() <= 1e-5
    assert torch.equal(value, before[:, 96:])


def test_a_call_without_tokens_is_accepted():
    query = torch.empty(0, 32)
    rotary_embedding(torch.empty(0, dtype=torch.int64), query, None, 16, cache(16), True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("compiler", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_the_function_compiles_without_graph_breaks(compiler):
    table = cache(16)

    def rotated(positions, query, key):
        rotary_embedding(positions, query, key, 16, table, True)
        return query * 2, key

    compiled = torch.compile(rotated, fullgraph=True, backend=compiler)
    for tokens in (5, 7):  # torch compiles the second call with symbolic sizes
        positions, query, key = torch.arange(tokens), random_tensor(tokens, 64), random_tensor(tokens, 32)
        wanted = [expected(positions, x, 16, table, True) for x in (query, key)]
        got = compiled(positions, query, key)
        for x, want in ((got[0] / 2, wanted[0]), (got[1], wanted[1]), (query, wanted[0]), (key, wanted[1])):
            assert (x.double() - want).abs().max() <= 1e-5
    for bad in (ROWS, -1):
        with pytest.raises(
            RuntimeError, match=r"\[rotary_embedding\] positions must be rows of cos_sin_cache"
        ):
            compiled(torch.full((7,), bad), query, key)
    torch._dynamo.reset()


CORRECT = {
    "positions": torch.arange(3),
    "query": torch.ones(3, 32),
    "key": None,
    "head_size": 16,
    "cos_sin_cache": cache(16),
    "is_neox": True,
}
POSITIONS, QUERY, CACHE = CORRECT["positions"], CORRECT["query"], CORRECT["cos_sin_cache"]
# The arguments that a call changes, by the message of its error.
BAD = {
    "positions must be a torch tensor but got list.": {"positions": [0, 1, 2]},
    "key must be a torch tensor but got int.": {"key": 3},
    "positions must be int32 or int64 but got torch.float32.": {"positions": POSITIONS.float()},
    "positions must be [T] or [B,S] but got [1, 1, 3].": {"positions": POSITIONS[None, None]},
    "positions must be rows 0 to 39 of cos_sin_cache but got 40.": {"positions": POSITIONS + 38},
    "positions must be rows 0 to 39 of cos_sin_cache but got -1.": {"positions": POSITIONS - 1},
    "cos_sin_cache must be [rows, W] with an even W but got [40, 3].": {"cos_sin_cache": cache(4)[:, :3]},
    "head_size must be at least the cache's width 16 but got 8.": {"head_size": 8},
    "head_size must be at least the cache's width 16 but got -16.": {"head_size": -16},
    "query must be [3, N*24] or [3, N, 24] but got [3, 32].": {"head_size": 24},
    "key must be [3, N*16] or [3, N, 16] but got [2, 32].": {"key": QUERY[:2]},
    "query must be float32, float16, bfloat16 or float64 but got int32.": {"query": QUERY.int()},
    "key must have query's dtype float32 but got float16.": {"key": QUERY.half()},
    "query must have unit stride in its last dimension but got 3.": {"query": QUERY.T.contiguous().T},
    "key must have unit stride in its last dimension but got 2.": {"key": torch.ones(3, 64)[:, ::2]},
    "key must be on query's device cpu but got meta.": {"key": QUERY.to("meta")},
    "positions must be on query's device cpu but got meta.": {"positions": POSITIONS.to("meta")},
    "cos_sin_cache must be on query's device cpu but got meta.": {"cos_sin_cache": CACHE.to("meta")},
    "query must share no memory with key but got overlapping memory.": {"key": QUERY[:, 16:]},
    "query must not overlap itself but got strides [0, 16, 1].": {"query": QUERY[:1].expand(3, -1)},
    "is_neox must be True or False but got 1.": {"is_neox": 1},
    "cos_sin_cache must be of query's dtype or float32 but got torch.float16 with torch.float32.": {
        "cos_sin_cache": CACHE.half()
    },
}


@pytest.mark.parametrize("message", BAD)
def test_a_bad_call_is_refused_and_nothing_is_written(message):
    with pytest.raises((ValueError, TypeError)) as caught:
        rotary_embedding(**{**CORRECT, **BAD[message]})
    assert str(caught.value) == f"[rotary_embedding] {message}"
    assert torch.equal(QUERY, torch.ones(3, 32))
