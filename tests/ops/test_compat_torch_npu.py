"""torch_npu's rotary functions on npu_rope, compared with torch_npu's documented formulas in float64."""

from __future__ import annotations

import functools
import inspect
import re

import pytest
import torch
from rope_cases import refusal
from rotated_halves import signed_partners
from together import together

from npu_rope import backends
from npu_rope.compat import torch_npu
from npu_rope.testing.bounds import UNIT_ROUNDOFF

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


@pytest.fixture(autouse=True)
def default_backend(request, monkeypatch):
    """Make the fixture `backend` the default one. Tests without it use the tensors' device."""
    if "backend" in request.fixturenames:
        monkeypatch.setattr(backends, "default_backend", request.getfixturevalue("backend"))


def refused_without_its_dtype(test):
    """Make the test expect a refusal if the back end lacks its dtype."""

    @functools.wraps(test)
    def run(**given):
        refused = refusal(given["backend"], str(given["dtype"]).removeprefix("torch."), name="")
        if refused is None:
            return test(**given)
        kind, text = refused
        with pytest.raises(kind, match=rf"^\[rotary_mul(_qk)?\] [xq]{re.escape(text)}$"):
            test(**given)
        return None

    return run


def randn(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def formula(x, cos, sin, mode="half"):
    """Return the formula's result in float64, and the magnitudes of its summands."""
    x, cos, sin = (t.double() for t in (x, cos, sin))
    a, b = x * cos, signed_partners(x, mode) * sin
    return a + b, a.abs() + b.abs()


def assert_close(got, expected, magnitude, dtype):
    name = str(dtype).removeprefix("torch.")
    roundoff = UNIT_ROUNDOFF["float64" if dtype == torch.float64 else "float32"]
    allowed = 2 * roundoff * magnitude + UNIT_ROUNDOFF[name] * expected.abs() + 2.0**-133
    # Mode quarter has two passes over different elements, so each element is rounded once.
    assert got.dtype == dtype
    assert bool(((got.double() - expected).abs() <= allowed).all())


LAYOUTS = {
    "BNSD-11SD": ((2, 3, 5, 32), (1, 1, 5, 32)),
    "BNSD-B1SD": ((2, 3, 5, 32), (2, 1, 5, 32)),
    "BSND-1S1D": ((2, 5, 3, 32), (1, 5, 1, 32)),
    "BSND-BS1D": ((2, 5, 3, 32), (2, 5, 1, 32)),
    "SBND-S11D": ((5, 2, 3, 32), (5, 1, 1, 32)),
    "SBND-SB1D": ((5, 2, 3, 32), (5, 2, 1, 32)),
    "TND-T1D": ((5, 3, 32), (5, 1, 32)),
    "all": ((2, 5, 3, 32), (2, 5, 3, 32)),
    "one": ((2, 5, 3, 32), (1, 1, 1, 32)),
    "one-token": ((1, 1, 3, 32), (1, 1, 1, 32)),
    "1N1D": ((2, 5, 3, 32), (1, 1, 3, 32)),
    "B11D": ((2, 5, 3, 32), (2, 1, 1, 32)),
    "large": ((1, 4, 2, 1024), (1, 4, 1, 1024)),
}


@together("layout", LAYOUTS)
@pytest.mark.parametrize("mode", torch_npu.ROTARY_MODES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("wide_tables", [False, True])
@refused_without_its_dtype
def test_rotary_mul_equals_the_formula(layout, mode, dtype, wide_tables, backend):
    shape, table = LAYOUTS[layout]
    x = randn(*shape, dtype=dtype)
    cos, sin = (randn(*table, dtype=torch.float32 if wide_tables else dtype, seed=n) for n in (1, 2))
    before = x.clone()
    y = torch_npu.npu_rotary_mul(x, cos, sin, mode)
    assert y.is_contiguous()
    assert torch.equal(x, before)
    assert_close(y, *formula(x, cos, sin, mode), dtype)


@pytest.mark.parametrize("layout", ["BNSD-11SD", "BSND-BS1D", "SBND-S11D", "TND-T1D", "all", "one"])
@pytest.mark.parametrize("mode", torch_npu.ROTARY_MODES)
def test_rotary_mul_has_gradients(layout, mode):
    shape, table = ((*s[:-1], 8) for s in LAYOUTS[layout])
    given = [
        randn(*s, dtype=torch.float64, seed=n).requires_grad_() for n, s in enumerate((shape, table, table))
    ]
    assert torch.autograd.gradcheck(lambda *t: torch_npu.npu_rotary_mul(*t, rotary_mode=mode), given)


@pytest.mark.parametrize("mode", torch_npu.ROTARY_MODES)
def test_the_rotation_matrix_of_torch_npus_examples_is_accepted(mode):
    x, cos, sin = randn(2, 5, 3, 32), randn(1, 5, 1, 32, seed=1), randn(1, 5, 1, 32, seed=2)
    matrix = signed_partners(torch.eye(32), mode)
    assert torch.allclose(x @ matrix, signed_partners(x, mode))
    y = torch_npu.npu_rotary_mul(x, cos, sin, mode, matrix)
    assert torch.equal(y, torch_npu.npu_rotary_mul(x, cos, sin, mode))


APPLY = {
    "BSND": ((2, 5, 4, 64), (2, 5, 1, 64), (2, 5, 1)),
    "SBND": ((5, 2, 4, 64), (5, 2, 1, 64), (5, 1, 1)),
    "BNSD": ((2, 4, 5, 64), (2, 1, 5, 64), (1, 1, 5)),
    "TND": ((5, 4, 64), (5, 2, 64), (5, 1)),
}


@together("layout", APPLY)
@pytest.mark.parametrize("mode", torch_npu.ROTARY_MODES)
@together("width", [64, 32])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@refused_without_its_dtype
def test_apply_rotary_pos_emb_rotates_queries_and_keys_in_place(layout, mode, width, dtype, backend):
    q_shape, k_shape, table = APPLY[layout]
    query, key = randn(*q_shape, dtype=dtype), randn(*k_shape, dtype=dtype, seed=3)
    cos, sin = (randn(*table, width, dtype=dtype, seed=n) for n in (1, 2))
    before = query.clone(), key.clone()
    got = torch_npu.npu_apply_rotary_pos_emb(query, key, cos, sin, layout, mode)
    assert got[0] is query
    assert got[1] is key
    for y, x in zip(got, before, strict=True):
        assert_close(y[..., :width], *formula(x[..., :width], cos, sin, mode), dtype)
        assert torch.equal(y[..., width:], x[..., width:])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("head", [64, 8])
@pytest.mark.parametrize("table", [(2, 1, 5), (1, 1, 5), (2, 1, 1)], ids=str)
@refused_without_its_dtype
def test_interleave_rope_separates_neighbours(dtype, head, table, backend):
    x = randn(2, 3, 5, head, dtype=dtype)
    cos, sin = (randn(*table, head, dtype=dtype, seed=n) for n in (1, 2))
    separated = torch.cat((x[..., ::2], x[..., 1::2]), -1)
    assert_close(torch_npu.npu_interleave_rope(x, cos, sin), *formula(separated, cos, sin), dtype)


def mrope_tables(positions, cache, sections, cache_mode):
    """Return the tables by the formula on aclnnRopeWithSinCosCache's page."""
    cos, sin = cache[positions.long()].chunk(2, -1)
    if not sections:
        return cos, sin
    tables = []
    for t in (cos, sin):
        if cache_mode == "default":
            parts, first = [], 0
            for axis, count in enumerate(sections):
                parts.append(t[axis, :, first : first + count])
                first += count
            tables.append(torch.cat(parts, -1))
        else:
            y = t[0].clone()
            for axis in range(1, len(sections)):
                stop = sections[axis] * len(sections)
                y[:, axis : stop : len(sections)] = t[axis, :, axis : stop : len(sections)]
            tables.append(y)
    return tables


@together("sections", [None, [0, 0, 0], [8, 12, 12], [4, 14, 14], [16, 8, 4, 4]])
@pytest.mark.parametrize("cache_mode", ["default", "interleave"])
@pytest.mark.parametrize("mode", ["half", "interleave"])
@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
@refused_without_its_dtype
def test_mrope_equals_the_formula(sections, cache_mode, mode, dtype, backend):
    if cache_mode == "interleave" and sections in ([4, 14, 14], [16, 8, 4, 4]):
        # Sections that fit into alternating lanes.
        sections = [12, 10, 10] if len(sections) == 3 else [8, 8, 8, 8]
    axes = len(sections) if sections and any(sections) else 0
    positions = torch.randint(0, 40, (axes, 7) if axes else (7,), generator=torch.Generator().manual_seed(5))
    query, key = randn(7, 4 * 80, dtype=dtype), randn(7, 80, dtype=dtype, seed=3)
    cache = randn(40, 64, dtype=dtype, seed=1)
    got = torch_npu.npu_mrope(
        positions, query, key, cache, 80, mrope_section=sections, rotary_mode=mode, cache_mode=cache_mode
    )
    cos, sin = mrope_tables(positions, cache, sections if axes else None, cache_mode)
    full = (t.repeat(1, 2) if mode == "half" else t.repeat_interleave(2, -1) for t in (cos, sin))
    cos, sin = (t[:, None] for t in full)
    for y, x in zip(got, (query, key), strict=True):
        y, x = (t.unflatten(-1, (-1, 80)) for t in (y, x))
        assert_close(y[..., :64], *formula(x[..., :64], cos, sin, mode), dtype)
        assert torch.equal(y[..., 64:], x[..., 64:])


def test_argument_names_are_those_of_torch_npu():
    names = {
        "npu_rms_norm": ["input", "gamma", "epsilon"],
        "npu_gemma_rms_norm": ["input", "gamma", "epsilon"],
        "npu_add_rms_norm": ["x1", "x2", "gamma", "epsilon"],
        "npu_rotary_mul": ["input", "r1", "r2", "rotary_mode", "rotate"],
        "npu_apply_rotary_pos_emb": ["query", "key", "cos", "sin", "layout", "rotary_mode"],
        "npu_interleave_rope": ["x", "cos", "sin"],
        "npu_mrope": [
            "positions",
            "query",
            "key",
            "cos_sin_cache",
            "head_size",
            "mrope_section",
            "rotary_mode",
            "cache_mode",
        ],
    }
    stores = {"_npu_rotary_embedding", "npu_kv_rmsnorm_rope_cache", "npu_qkv_rms_norm_rope_cache"}
    assert sorted({*names, *stores}) == sorted(torch_npu.__all__)  # stores: test_compat_torch_npu_caches.py
    for name, arguments in names.items():
        assert list(inspect.signature(getattr(torch_npu, name)).parameters) == arguments


X, TABLE = torch.ones(2, 5, 3, 8), torch.ones(1, 5, 1, 8)
FLAT, CACHE, IDS = torch.ones(5, 24), torch.ones(9, 8), torch.arange(5)
BAD = {
    "mode": (
        lambda: torch_npu.npu_rotary_mul(X, TABLE, TABLE, "third"),
        "rotary_mode must be one of half, interleave, quarter but got 'third'.",
    ),
    "rotate": (
        lambda: torch_npu.npu_rotary_mul(X, TABLE, TABLE, rotate=TABLE),
        "rotate must have shape [D, D] = [8, 8] but got [1, 5, 1, 8].",
    ),
    "rotate-other": (
        lambda: torch_npu.npu_rotary_mul(X, TABLE, TABLE, "interleave", torch.eye(8)),
        "rotate must be mode interleave's rotation matrix but got another.",
    ),
    "section": (
        lambda: torch_npu.npu_mrope(IDS.repeat(3, 1), FLAT, FLAT, CACHE, 8, mrope_section=[1.5, 1.5, 1.0]),
        "mrope_section must be an integer but got 1.5.",
    ),
    "list": (
        lambda: torch_npu.npu_rotary_mul([1], TABLE, TABLE),
        "input must be a torch tensor but got list.",
    ),
    "table": (
        lambda: torch_npu.npu_rotary_mul(X, TABLE[:, :4], TABLE),
        "r1 must have input's shape [2, 5, 3, 8] with 1 where they are broadcast but got [1, 4, 1, 8].",
    ),
    "sin": (
        lambda: torch_npu.npu_rotary_mul(X, TABLE, TABLE[:, :1]),
        "r2 must have r1's shape [1, 5, 1, 8] but got [1, 1, 1, 8].",
    ),
    "dims": (
        lambda: torch_npu.npu_rotary_mul(X[0, 0], TABLE, TABLE),
        "input must have three or four dimensions but got [3, 8].",
    ),
    "layout": (
        lambda: torch_npu.npu_apply_rotary_pos_emb(X, X, TABLE, TABLE, "NBSD"),
        "layout must be one of BSND, SBND, BNSD, TND but got 'NBSD'.",
    ),
    "rank": (
        lambda: torch_npu.npu_apply_rotary_pos_emb(X, X, TABLE, TABLE, "TND"),
        "query must have 3 dimensions in layout TND but got 4.",
    ),
    "odd": (
        lambda: torch_npu.npu_interleave_rope(X[..., :7], TABLE, TABLE),
        "x must have shape [B,N,S,D] with an even D but got [2, 5, 3, 7].",
    ),
    "positions": (
        lambda: torch_npu.npu_mrope(IDS + 5, FLAT, FLAT, CACHE, 8),
        "positions must be rows 0 to 8 of cos_sin_cache but got 9.",
    ),
    "below": (
        lambda: torch_npu.npu_mrope(IDS - 1, FLAT, FLAT, CACHE, 8),
        "positions must be rows 0 to 8 of cos_sin_cache but got -1.",
    ),
    "float": (
        lambda: torch_npu.npu_mrope(IDS.float(), FLAT, FLAT, CACHE, 8),
        "positions must be int32 or int64 but got float32.",
    ),
    "head": (
        lambda: torch_npu.npu_mrope(IDS, FLAT, FLAT, CACHE, 10),
        "query must have shape [T, N*10] but got [5, 24].",
    ),
    "width": (
        lambda: torch_npu.npu_mrope(IDS, FLAT, FLAT, CACHE, 6),
        "cos_sin_cache must have shape [rows, W] with an even W up to the head size 6 but got [9, 8].",
    ),
    "sections": (
        lambda: torch_npu.npu_mrope(IDS.repeat(3, 1), FLAT, FLAT, CACHE, 8, mrope_section=[1, 1, 1]),
        "mrope_section must be numbers >= 0 that add up to W/2 = 4 but got [1, 1, 1].",
    ),
    "axes": (
        lambda: torch_npu.npu_mrope(IDS, FLAT, FLAT, CACHE, 8, mrope_section=[2, 1, 1]),
        "positions must have shape [3, 5] but got [5].",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_call_is_refused(case, backend):
    run, text = BAD[case]
    with pytest.raises((ValueError, TypeError)) as caught:
        run()
    assert re.fullmatch(r"\[npu_\w+\] " + re.escape(text), str(caught.value))


def test_a_refused_call_writes_nothing(backend):
    query, key = torch.ones(2, 5, 3, 8), torch.ones(2, 5, 1, 8)
    with pytest.raises(ValueError, match=r"^\[rotary_mul_qk\] cos must have shape"):
        torch_npu.npu_apply_rotary_pos_emb(query, key, TABLE[:, :4], TABLE[:, :4])
    assert bool((query == 1).all())
    assert bool((key == 1).all())
