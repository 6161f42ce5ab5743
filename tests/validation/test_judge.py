"""The judge of the suites ggml and models accepts correct results and reports where wrong ones are."""

import dataclasses
import functools

import numpy as np
import pytest

import npu_rope
from npu_rope.reference import rope as reference
from npu_rope.rope_attributes import RopeMode
from npu_rope.testing import outcomes
from npu_rope.testing.cases import RopeCase, ggml_cases, model_cases
from npu_rope.testing.judge import execute, judge, make_data
from npu_rope.testing.models import MODELS
from npu_rope.testing.outcomes import FAIL, OK, UNSUPPORTED

ROPE = npu_rope.rope


def _small_cases() -> list[RopeCase]:
    """Return cases with partial windows, offsets, freq_factors and YaRN, of both suites."""
    chosen = [c for c in ggml_cases() if c.shape[1] <= 4 and c.dtype == "float32" and not c.view]
    chosen = [c for c in chosen if not c.cache_rows]
    assert {c.params.rope_mode for c in chosen} == set(RopeMode)
    wanted = [m for m in MODELS if m.params.ext_factor or m.freq_factors]
    assert {bool(m.params.ext_factor) for m in wanted} == {True, False}
    return chosen + [c for c in model_cases(tuple(wanted)) if "/decode(type=f32" in c.name]


CASES = _small_cases()
CACHES = [c for c in ggml_cases() if c.cache_rows and c.shape[1] == 8]


def _with_params(**changes):
    return lambda p: dataclasses.replace(p, **{k: v(p) if callable(v) else v for k, v in changes.items()})


def _wrong(change_params=lambda p: p, change_positions=lambda q: q, change_factors=lambda f: f, flip=False):
    """Return a replacement of npu_rope.rope that makes a mistake on one back end.

    Its extra first argument, ``target``, names that back end.
    """

    def rope(target, x, positions, params, factors=None, *, backend, out=None, forward=True, angle="exact"):
        if backend == target:
            positions, params, factors = (
                change_positions(positions),
                change_params(params),
                change_factors(factors),
            )
            forward ^= flip
        return ROPE(x, positions, params, factors, backend=backend, out=out, forward=forward, angle=angle)

    return rope


# The wrong mode for each mode. Vision keeps its mode: for the same n_dims, every other mode has half as many
# pairs.
OTHER_MODES = {"NORMAL": "neox", "NEOX": "normal", "MROPE": "imrope", "IMROPE": "mrope", "VISION": "vision"}


def _other_mode(p):
    return OTHER_MODES[p.rope_mode.name]


def _shifted_sections(p):
    time, height, width, extra = p.sections
    return (time - 1, height + 1, width, extra) if p.rope_mode.has_sections else p.sections


def _swapped_axes(positions):
    return positions[[1, 0, 2, 3]] if positions.ndim > 1 and len(positions) == 4 else positions


# A reversed YaRN ramp is not in this table, because no attribute reverses it. A mutant of tests/mutants tests
# it.
MISTAKES = {
    "sin sign": _wrong(flip=True),
    "pairing": _wrong(_with_params(mode=_other_mode)),
    "mscale forgotten": _wrong(
        lambda p: dataclasses.replace(p, attn_factor=p.attn_factor / p.mscale()) if p.mscale() != 1 else p
    ),
    "one position off": _wrong(change_positions=lambda q: q + 1),
    "n_offs ignored": _wrong(_with_params(n_offs=0)),
    "sections shifted": _wrong(_with_params(sections=_shifted_sections)),
    "axes swapped": _wrong(change_positions=_swapped_axes),
    "freq_factors multiplied": _wrong(
        change_factors=lambda f: None if f is None else (1 / f).astype(np.float32)
    ),
}


@pytest.mark.long
def test_the_correct_result_passes_every_small_case():
    backends = ["reference", "cpu", "sim", "sim:ascend310p"]
    assert {judge(c, backends, None).verdict for c in CASES} == {OK}


@pytest.mark.long
@pytest.mark.parametrize("backend_name", ["cpu", "sim", "sim:ascend310p"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(monkeypatch, mistake, backend_name):
    monkeypatch.setattr(npu_rope, "rope", functools.partial(MISTAKES[mistake], backend_name))
    judged = (judge(c, [backend_name], None) for c in CASES)
    failed = next((r for r in judged if r.verdict == FAIL), None)
    assert failed
    worst = next(j.worst for j in failed.judgements if j.verdict == FAIL)
    assert worst is not None
    assert len(worst.index) == 4


def test_the_correct_rows_of_a_cache_pass():
    backends = ["reference", "cpu", "sim", "sim:ascend310p"]
    assert {judge(c, backends, None).verdict for c in CACHES} == {OK}


def _changed_set_rows(target, change):
    """Return a replacement of rope_set_rows that changes the correct cache on the back end ``target``."""

    def rope_set_rows(x, positions, rows, cache, params, factors=None, *, backend, angle="exact"):
        values = ROPE(x, positions, params, factors, backend=backend, angle=angle)
        cache[rows] = values.reshape(-1, *cache.shape[1:])
        if backend == target:
            change(rows, cache)

    return rope_set_rows


def _exchange_two_rows(rows, cache):
    cache[rows[:2]] = cache[rows[1::-1]]


def _write_other_rows(rows, cache):
    cache[~np.isin(np.arange(len(cache)), rows)] += 1


@pytest.mark.parametrize("backend_name", ["cpu", "sim"])
def test_a_mistake_with_a_cache_is_found(monkeypatch, backend_name):
    case = next(c for c in CACHES if c.cache_rows > 8 and c.cache_dtype == "float32")
    for change, verdict, message in (
        (lambda rows, cache: None, OK, ""),
        (_exchange_two_rows, FAIL, ""),
        (_write_other_rows, FAIL, "a row of the cache that no token belongs to was written"),
    ):
        monkeypatch.setattr(npu_rope, "rope_set_rows", _changed_set_rows(backend_name, change), raising=False)
        judgement = judge(case, [backend_name], None).by(backend_name)
        assert (judgement.verdict, judgement.message) == (verdict, message)


def test_a_cache_is_judged_by_its_own_dtype(monkeypatch):
    case = next(c for c in CACHES if c.cache_dtype == "float16")
    assert (case.dtype, case.result_dtype) == ("float32", "float16")
    monkeypatch.setattr(npu_rope, "rope_set_rows", _changed_set_rows("", None), raising=False)
    judgement = judge(case, ["sim"], None).by("sim")
    assert judgement.verdict == OK
    assert judgement.near_cpu > 0.999
    assert judgement.max_error > 1e-5


def test_a_write_outside_the_view_is_found(monkeypatch):
    def scribble(x, *args, **kwargs):
        x.base.flat[-1] += 1
        return ROPE(x, *args, **kwargs)

    case = next(c for c in ggml_cases() if c.view == 1)
    monkeypatch.setattr(npu_rope, "rope", scribble)
    result = judge(case, ["cpu"], None)
    assert "memory outside" in result.by("cpu").message


def test_a_case_in_place_equals_the_same_case_out_of_place():
    case = next(c for c in ggml_cases() if c.inplace)
    out_of_place = dataclasses.replace(case, inplace=False)
    np.testing.assert_array_equal(
        execute(case, make_data(case), "cpu", "exact"), execute(out_of_place, make_data(case), "cpu", "exact")
    )


REFERENCE_MISTAKES = {
    "sin sign": (
        "cos_sin",
        lambda real: lambda *a, forward=True, **k: real(*a, forward=not forward, **k),
    ),
    "one position off": ("cos_sin", lambda real: lambda q, *a, **k: real(np.asarray(q) + 1, *a, **k)),
    "pairing": (
        "rotate",
        lambda real: lambda x, c, s, p: real(x, c, s, dataclasses.replace(p, mode=_other_mode(p))),
    ),
    "n_offs ignored": (
        "rotate",
        lambda real: lambda x, c, s, p: real(x, c, s, dataclasses.replace(p, n_offs=0)),
    ),
    "freq_factors ignored": ("cos_sin", lambda real: lambda q, p, f=None, **k: real(q, p, None, **k)),
    "mscale forgotten": (
        "cos_sin",
        lambda real: lambda q, p, f=None, **k: tuple(t / p.mscale() for t in real(q, p, f, **k)),
    ),
}


@pytest.mark.parametrize("mistake", REFERENCE_MISTAKES)
def test_a_mistake_in_the_reference_is_found(monkeypatch, mistake):
    name, wrap = REFERENCE_MISTAKES[mistake]
    monkeypatch.setattr(reference, name, wrap(getattr(reference, name)))
    failed = [r for r in (judge(c, ["reference"], None) for c in CASES) if r.verdict == FAIL]
    assert failed
    assert "must follow the specification" in failed[0].by("reference").message


# ---- simulated devices ---------------------------------------------------------------------------


def _with_cosine_error(e):
    """Return a replacement of npu_rope.rope whose cosines have the error e."""

    def rope(x, positions, params, factors=None, *, backend, out=None, forward=True, angle="exact"):
        c, s = reference.cos_sin(positions, params, factors, forward=forward, policy=angle)
        y = reference.rotate(x, c[..., None, :] + e, s[..., None, :], params).astype(x.dtype)
        if out is None:
            return y
        out[...] = y
        return out

    return rope


WITHOUT_MSCALE = [c for c in CASES if c.params.mscale() == 1]


@pytest.mark.parametrize(
    ("table_error", "on_device", "on_host"),
    [(2.0**-25, OK, OK), (2.0**-21, OK, FAIL), (0.95 * 2.0**-20, OK, FAIL), (2.0**-18, FAIL, FAIL)],
)
def test_a_device_may_have_a_coarser_table_than_the_host_within_its_bound(
    monkeypatch, table_error, on_device, on_host
):
    monkeypatch.setattr(npu_rope, "rope", _with_cosine_error(table_error))
    for name, expected in {"sim": on_device, "sim:ascend310p": on_device, "cpu": on_host}.items():
        verdicts = {c.name: judge(c, [name], None).by(name).verdict for c in WITHOUT_MSCALE}
        assert set(verdicts.values()) == {expected}


HALF = next(c for c in ggml_cases() if c.dtype == "float16" and c.shape[1] <= 4)
assert not HALF.cache_rows


def test_16_bit_results_must_also_be_near_the_cpus(monkeypatch):
    assert judge(HALF, ["sim"], None).by("sim").near_cpu > 0.999
    monkeypatch.setattr(outcomes, "within_one_ulp", lambda *a: 0.9949)
    judgement = judge(HALF, ["sim"], None).by("sim")
    assert (judgement.verdict, judgement.near_cpu) == (FAIL, 0.9949)
    assert judgement.message == "99.5% of the elements must be within one ulp of cpu's but 99.49% are"
    assert judge(HALF, ["cpu"], None).by("cpu").verdict == OK


def test_a_type_that_a_device_lacks_is_unsupported_with_the_reason():
    for dtype, backend_name, why in (
        ("float64", "sim", "no Ascend vector core computes in float64"),
        ("float64", "sim:ascend310p", "no Ascend vector core computes in float64"),
        ("bfloat16", "sim:ascend310p", "Ascend310P has no bfloat16"),
    ):
        case = dataclasses.replace(HALF, dtype=dtype)
        judgement = judge(case, [backend_name], None).by(backend_name)
        assert (judgement.verdict, judgement.message) == (UNSUPPORTED, why)
    bfloat16 = dataclasses.replace(HALF, dtype="bfloat16")
    assert judge(bfloat16, ["sim"], None).by("sim").verdict == OK


def test_a_broken_rule_is_a_failure_with_its_message(monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("[rope] kernel must keep the simulator's rules but got SIM-ALIGN-01 x.h:3")

    monkeypatch.setattr(npu_rope, "rope", broken)
    judgement = judge(CASES[0], ["sim"], None).by("sim")
    assert judgement.verdict == FAIL
    assert "SIM-ALIGN-01 x.h:3" in judgement.message
