"""The judge must reject what is wrong and say where."""

import dataclasses

import numpy as np
import pytest

import npu_rope
from npu_rope.testing.cases import RopeCase, ggml_cases, model_cases
from npu_rope.testing.judge import FAIL, OK, execute, judge, make_data
from npu_rope.testing.models import MODELS

RIGHT = npu_rope.rope


def _small_cases() -> list[RopeCase]:
    """Partial, offset, freq_factors and YaRN cases, of both suites."""
    chosen = [c for c in ggml_cases() if c.shape[1] <= 4 and c.dtype == "float32" and not c.view]
    wanted = [m for m in MODELS if m.params.ext_factor or m.freq_factors]
    assert {bool(m.params.ext_factor) for m in wanted} == {True, False}
    return chosen + [c for c in model_cases(tuple(wanted)) if "/decode(type=f32" in c.name]


CASES = _small_cases()


def _with_params(**changes):
    return lambda p: dataclasses.replace(p, **{k: v(p) if callable(v) else v for k, v in changes.items()})


def _wrong(change_params=lambda p: p, change_positions=lambda q: q, change_factors=lambda f: f, flip=False):
    def rope(x, positions, params, factors=None, *, backend, out=None, forward=True, angle="exact"):
        if backend != "cpu":
            return RIGHT(
                x, positions, params, factors, backend=backend, out=out, forward=forward, angle=angle
            )
        return RIGHT(
            x,
            change_positions(positions),
            change_params(params),
            change_factors(factors),
            backend="cpu",
            out=out,
            forward=forward ^ flip,
            angle=angle,
        )

    return rope


def _other_mode(p):
    return "normal" if p.rope_mode.name == "NEOX" else "neox"


# The ramp's direction has no attribute to get wrong: tests/mutants breaks it in the source.
MISTAKES = {
    "sin sign": _wrong(flip=True),
    "pairing": _wrong(_with_params(mode=_other_mode)),
    "mscale forgotten": _wrong(
        lambda p: dataclasses.replace(p, attn_factor=p.attn_factor / p.mscale()) if p.mscale() != 1 else p
    ),
    "one position off": _wrong(change_positions=lambda q: q + 1),
    "n_offs ignored": _wrong(_with_params(n_offs=0)),
    "freq_factors multiplied": _wrong(
        change_factors=lambda f: None if f is None else (1 / f).astype(np.float32)
    ),
}


def test_the_right_result_passes_every_small_case():
    assert {judge(c, ["reference", "cpu"], None).verdict for c in CASES} == {OK}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_caught(monkeypatch, mistake):
    monkeypatch.setattr(npu_rope, "rope", MISTAKES[mistake])
    results = [judge(c, ["cpu"], None) for c in CASES]
    failed = [r for r in results if r.verdict == FAIL]
    assert failed
    worst = next(j.worst for r in failed for j in r.judgements if j.verdict == FAIL)
    assert worst is not None
    assert len(worst.index) == 4


def test_writing_outside_the_view_is_caught(monkeypatch):
    def scribble(x, *args, **kwargs):
        x.base.flat[-1] += 1
        return RIGHT(x, *args, **kwargs)

    case = next(c for c in ggml_cases() if c.view == 1)
    monkeypatch.setattr(npu_rope, "rope", scribble)
    result = judge(case, ["cpu"], None)
    assert "memory outside" in result.by("cpu").message


def test_a_case_in_place_gives_what_it_gives_out_of_place():
    case = next(c for c in ggml_cases() if c.inplace)
    apart = dataclasses.replace(case, inplace=False)
    np.testing.assert_array_equal(
        execute(case, make_data(case), "cpu", "exact"), execute(apart, make_data(case), "cpu", "exact")
    )


REFERENCE_MISTAKES = {
    "sin sign": ("cos_sin", lambda right: lambda *a, forward=True, **k: right(*a, forward=not forward, **k)),
    "one position off": ("cos_sin", lambda right: lambda q, *a, **k: right(np.asarray(q) + 1, *a, **k)),
    "pairing": (
        "rotate",
        lambda right: lambda x, c, s, p: right(x, c, s, dataclasses.replace(p, mode=_other_mode(p))),
    ),
    "n_offs ignored": (
        "rotate",
        lambda right: lambda x, c, s, p: right(x, c, s, dataclasses.replace(p, n_offs=0)),
    ),
    "freq_factors ignored": ("cos_sin", lambda right: lambda q, p, f=None, **k: right(q, p, None, **k)),
    "mscale forgotten": (
        "cos_sin",
        lambda right: lambda q, p, f=None, **k: tuple(t / p.mscale() for t in right(q, p, f, **k)),
    ),
}


@pytest.mark.parametrize("mistake", REFERENCE_MISTAKES)
def test_mistake_in_the_reference_alone_is_caught(monkeypatch, mistake):
    from npu_rope.reference import rope as module

    name, wrap = REFERENCE_MISTAKES[mistake]
    monkeypatch.setattr(module, name, wrap(getattr(module, name)))
    failed = [r for r in (judge(c, ["reference"], None) for c in CASES) if r.verdict == FAIL]
    assert failed
    assert "must follow the specification" in failed[0].by("reference").message
