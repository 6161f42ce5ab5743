"""Rotations of one token in a patched model: their operators, and their results beside transformers'."""

from __future__ import annotations

import importlib

import pytest
import torch

from npu_rope.integrations import rope_forms

HEADS_FIRST, TO_HALVES = "rotary_mul_qk_heads_first", "rotary_mul_qk_to_halves"
# Model, function, width of the tables for heads of 16 lanes, operator.
FUNCTIONS = {
    "neighbours, by halves of tables": ("ernie4_5", "apply_rotary_pos_emb", 16, HEADS_FIRST),
    "halves": ("llama", "apply_rotary_pos_emb", 16, HEADS_FIRST),
    "neighbours": ("cohere", "apply_rotary_pos_emb", 16, HEADS_FIRST),
    "first lanes": ("glm4", "apply_rotary_pos_emb", 8, HEADS_FIRST),
    "an entry per pair": ("gpt_oss", "apply_rotary_pos_emb", 8, HEADS_FIRST),
    "to halves": ("deepseek_v3", "apply_rotary_pos_emb_interleave", 16, TO_HALVES),
}


def function_of(kind):
    """Return a function of transformers, its replacement, the width of its tables, and the operator."""
    model, name, width, operator = FUNCTIONS[kind]
    module = importlib.import_module(f"transformers.models.{model}.modeling_{model}")
    function = getattr(module, name)
    return function, rope_forms.replacement(function, rope_forms.classify(function)), width, operator


def sample(kind, width, tokens=1, dtype=torch.float32, batch=2):
    """Return q and k as views [B,N,tokens,16] of longer heads, and tables [B,tokens,width]."""
    numbers = torch.Generator().manual_seed(tokens)
    heads = (torch.randn(batch, n, tokens, 24, generator=numbers).to(dtype)[..., 8:] for n in (4, 1))
    pairs = width if kind == "an entry per pair" else width // 2
    angles = torch.rand(batch, tokens, pairs, generator=numbers) * 6
    if kind in ("neighbours", "first lanes"):
        angles = angles.repeat_interleave(2, -1)
    elif pairs != width:
        angles = torch.cat((angles, angles), -1)
    return *heads, angles.cos().to(dtype), angles.sin().to(dtype)


@pytest.fixture
def used(monkeypatch):
    """Return the operators that took the short way."""
    names, original = [], rope_forms.try_hot_path

    def record(name, *given):
        results = original(name, *given)
        if results is not NotImplemented:
            names.append(name)
        return results

    monkeypatch.setattr(rope_forms, "try_hot_path", record)
    return names


def assert_same(got, expected):
    for y, e in zip(got, expected, strict=True):
        assert y.shape == e.shape
        assert y.dtype == e.dtype
        assert (y.double() - e.double()).abs().max() <= 4 * torch.finfo(e.dtype).eps * e.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_one_token_is_rotated_by_an_operator_that_reads_heads_first(kind, dtype, used):
    function, ours, width, operator = function_of(kind)
    used.clear()  # calls of the recognition
    given = sample(kind, width, dtype=dtype)
    before = [x.clone() for x in given]
    got = ours(*given)
    assert used == [operator]
    assert_same(got, function(*given))
    assert all(map(torch.equal, before, given))
    shared = [t[:1] for t in given[2:]]  # tables that serve all batches
    assert_same(ours(*given[:2], *shared), function(*given[:2], *shared))
    assert used == [operator] * 2


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_more_tokens_and_gradients_do_not_take_the_short_way(kind, used):
    function, ours, width, _ = function_of(kind)
    used.clear()
    for tokens in (1, 3):
        q, k, cos, sin = sample(kind, width, tokens)
        results = []
        for f in (ours, function):
            leaf = q.clone().requires_grad_(tokens == 1)
            ys = f(leaf, k, cos, sin)
            gradient = torch.autograd.grad(ys[0].square().sum(), leaf) if tokens == 1 else ()
            results.append([*(y.detach() for y in ys), *gradient])
        assert not used
        assert_same(*results)


def test_a_large_batch_is_rearranged_by_torch(used):
    function, ours, width, operator = function_of("to halves")
    most = rope_forms.MOST_REARRANGED // (4 * 16)
    for batch, expected in ((most, [operator]), (most + 1, [])):
        used.clear()
        given = sample("to halves", width, batch=batch)
        assert_same(ours(*given), function(*given))
        assert used == expected


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_float32_tables_give_transformers_type(kind, used):
    function, ours, width, _ = function_of(kind)
    q, k, cos, sin = sample(kind, width, dtype=torch.bfloat16)
    tables = cos.float(), sin.float()
    got, expected = ours(q, k, *tables), function(q, k, *tables)
    for y, e in zip(got, expected, strict=True):
        assert y.dtype == e.dtype
        assert (y.float() - e.float()).abs().max() <= 2**-7 * e.abs().max()


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_what_the_function_rejects_is_rejected_and_what_it_broadcasts_is_broadcast(kind, used):
    function, ours, width, _ = function_of(kind)
    q, k, cos, sin = sample(kind, width)
    for given in (
        (q, k, cos[..., : width - 2], sin[..., : width - 2]),
        (q, k, torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)),
        (q, k, torch.cat((cos, cos)), torch.cat((sin, sin))),
        (q, k, cos, torch.cat((sin, sin), -1)),
        (q, k, torch.cat((cos, cos), -1), sin),
        (q, k, cos, sin[..., : width // 2]),
        (q, k, cos, sin.double()),
        (q.double(), k.double(), cos, sin),
        (q.double(), k, cos, sin),
        (q[0], k[0], cos, sin),
        (q[:1], k[:1], cos, sin),
    ):
        try:
            expected = function(*given)
        except Exception as error:
            with pytest.raises(type(error)):
                ours(*given)
        else:
            assert_same(ours(*given), expected)


def half_keys(q, k, cos, sin, unsqueeze_dim=1):
    """Rotate halves; keys may be absent, as in mistral_large4."""
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)

    def rotated(x):
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin

    return rotated(q), None if k is None else rotated(k)


def test_keys_may_be_absent(used):
    ours = rope_forms.replacement(half_keys, rope_forms.classify(half_keys))
    q, _, cos, sin = sample("halves", 16)
    y, keys = ours(q, None, cos, sin)
    assert torch.equal(y, half_keys(q, None, cos, sin)[0])
    assert keys is None


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_one_token_passed_by_name_and_in_a_promoted_type_takes_the_short_way(kind, used):
    function, ours, width, operator = function_of(kind)
    used.clear()
    q, k, cos, sin = sample(kind, width)
    assert_same(ours(q, k, cos=cos, sin=sin), function(q, k, cos=cos, sin=sin))
    if rope_forms.classify(function).promotes:
        q, k = q.bfloat16(), k.bfloat16()
        assert_same(ours(q, k, cos, sin), function(q, k, cos, sin))
        assert used[-1] == operator
    assert set(used) == {operator}
