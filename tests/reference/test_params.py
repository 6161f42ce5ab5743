"""RopeParams: its rules, and the numbers that it derives by the sections of specs/ggml_rope_acltensor.txt."""

from __future__ import annotations

import dataclasses
import doctest
import re

import mpmath
import numpy as np
import pytest

from npu_rope import RopeMode, RopeParams, params
from npu_rope.reference import qkv_norm_rope_cache, rope_qk, rope_set_rows
from npu_rope.reference import rope as reference
from npu_rope.rope_attributes import ggml_corr_dims

WRONG_TYPES = [
    ("n_dims", 8.0, "n_dims must be an integer but got 8.0."),
    ("n_dims", True, "n_dims must be an integer but got True."),
    ("n_dims", "8", "n_dims must be an integer but got '8'."),
    ("n_ctx_orig", 1.5, "n_ctx_orig must be an integer but got 1.5."),
    ("n_offs", None, "n_offs must be an integer but got None."),
    ("freq_base", "1e4", "freq_base must be a number but got '1e4'."),
    ("freq_scale", True, "freq_scale must be a number but got True."),
    ("attn_factor", None, "attn_factor must be a number but got None."),
    ("sections", 3, "sections must be four integers >= 0 but got 3."),
    ("sections", "1234", "sections must be four integers >= 0 but got '1234'."),
    ("sections", (1, 2, 3, 4.0), "sections[3] must be an integer but got 4.0."),
]


@pytest.mark.parametrize(("name", "value", "text"), WRONG_TYPES)
def test_arguments_of_a_wrong_type_are_type_errors(name, value, text):
    with pytest.raises(TypeError) as caught:
        RopeParams(**{"n_dims": 8, name: value})
    assert str(caught.value) == f"[rope] {text}"


@pytest.mark.parametrize("name", ["n_dims", "n_ctx_orig", "n_offs"])
def test_integers_must_fit_int32(name):
    with pytest.raises(
        ValueError, match=rf"^\[rope\] {name} must be in the int32 range but got 4294967298\.$"
    ):
        RopeParams(**{"n_dims": 8, name: 2**32 + 2})


@pytest.mark.parametrize("mode", ["neox", "NEOX", 2, np.int64(2), RopeMode.NEOX])
def test_a_mode_may_be_a_name_or_a_number(mode):
    assert RopeParams(8, mode).mode is RopeMode.NEOX


@pytest.mark.parametrize("mode", ["glm", 3, -1, None, 2.5, True])
def test_an_unknown_mode_is_refused_with_a_list_of_modes(mode):
    names = "normal (0), neox (2), mrope (8), vision (24), imrope (40)"
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below
        RopeParams(8, mode)
    assert str(caught.value) == f"[rope] mode must be one of {names} but got {mode!r}."


def test_numbers_become_plain_python_ones():
    p = RopeParams(np.int64(8), n_ctx_orig=np.int32(5), freq_base=np.float32(2), sections=np.zeros(4, int))
    numbers = p.n_dims, p.n_ctx_orig, p.freq_base, *p.sections
    assert [type(number) for number in numbers] == [int, int, float, *[int] * 4]


@pytest.mark.parametrize("n_dims", [0, -2, 7])
def test_the_rotated_dimensions_are_a_positive_even_number(n_dims):
    with pytest.raises(ValueError, match=f"n_dims must be a positive even number but got {n_dims}"):
        RopeParams(n_dims)


def test_sections_are_for_the_multimodal_modes():
    assert RopeParams(64, "mrope", sections=[16, 8, 8, 0]).sections == (16, 8, 8, 0)
    with pytest.raises(ValueError, match=r"sections must be \[0, 0, 0, 0\] in mode normal"):
        RopeParams(64, sections=[16, 8, 8, 0])
    with pytest.raises(ValueError, match="sections must name time, height or width in mode mrope"):
        RopeParams(64, "mrope", sections=[0, 0, 0, 32])


def test_yarn_needs_a_context():
    assert RopeParams(64, n_ctx_orig=0).n_ctx_orig == 0
    with pytest.raises(ValueError, match="n_ctx_orig must be positive when ext_factor is not 0 but got 0"):
        RopeParams(64, n_ctx_orig=0, ext_factor=1.0)


def test_params_are_frozen():
    p = RopeParams(8)
    with pytest.raises(dataclasses.FrozenInstanceError):
        p.n_dims = 16


def test_equal_params_are_equal_and_hash_alike():
    a, b = RopeParams(8, "neox", sections=[0, 0, 0, 0]), RopeParams(8, 2, freq_base=10000)
    assert a == b
    assert hash(a) == hash(b)
    for name, value in {"n_dims": 6, "mode": 0, "freq_base": 9.0, "n_offs": 2, "attn_factor": 2.0}.items():
        assert dataclasses.replace(a, **{name: value}) != a


def test_repr_shows_what_differs_from_the_defaults():
    p = RopeParams(64, "neox", 4096, 1e6, 0.25, 1.0, 1.1, 16, 2, n_offs=8)
    assert repr(p) == (
        "RopeParams(n_dims=64, mode=neox, n_ctx_orig=4096, freq_base=1e+06, freq_scale=0.25, ext_factor=1, "
        "attn_factor=1.1, beta_fast=16, beta_slow=2, n_offs=8)"
    )
    assert repr(RopeParams(128)) == "RopeParams(n_dims=128, mode=normal)"


def test_the_defaults_are_those_of_ggml():
    """specs/ggml_rope_acltensor.txt section 1; the ramp's ends are llama.cpp's."""
    assert dataclasses.astuple(RopeParams(8)) == (8, 0, 0, 10000, 1, 0, 1, 32, 1, (0, 0, 0, 0), 0)


# Section 2, computed by hand: d(beta) = n_dims * ln(n_ctx / (2 pi beta)) / (2 ln base).
CORR_DIMS = [
    # DeepSeek-V2/V3: d(32) = 64*ln(20.372)/18.4207 = 10.47, d(1) = 64*ln(651.90)/18.4207 = 22.51
    ((64, 4096, 10000.0, 32, 1), (10, 23)),
    # Qwen YaRN: d(32) = 128*ln(162.97)/27.6310 = 23.60, d(1) = 128*ln(5215.2)/27.6310 = 39.65
    ((128, 32768, 1000000.0, 32, 1), (23, 40)),
    # d(64) = 64*ln(0.6366)/18.4207 = -1.57: clamped to 0; d(0.001) = 64*ln(40744)/18.4207 = 36.88
    ((64, 256, 10000.0, 64, 0.001), (0, 37)),
    # base 2: d(32) = 4*ln(20.372)/1.38629 = 8.70: not clamped below; d(1) = 18.70: clamped to n_dims - 1
    ((4, 4096, 2.0, 32, 1), (8, 3)),
]


@pytest.mark.parametrize(("given", "by_hand"), CORR_DIMS)
def test_corr_dims_equal_hand_computed_values(given, by_hand):
    n_dims, n_ctx_orig, base, fast, slow = given
    p = RopeParams(n_dims, n_ctx_orig=n_ctx_orig, freq_base=base, beta_fast=fast, beta_slow=slow)
    assert p.corr_dims() == by_hand
    assert tuple(float(d) for d in ggml_corr_dims(p)) == by_hand


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({}, "n_ctx_orig must be positive and finite for corr_dims but got 0."),
        (
            {"n_ctx_orig": 5, "beta_fast": 0.0},
            "beta_fast must be positive and finite for corr_dims but got 0.",
        ),
        ({"n_ctx_orig": 5, "freq_base": 1.0}, "freq_base must differ from 1 for corr_dims but got 1."),
    ],
)
def test_corr_dims_refuse_parameters_that_give_none(changed, text):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below
        RopeParams(8, **changed).corr_dims()
    assert str(caught.value) == f"[rope] {text}"


def test_theta_scale_follows_section_1():
    assert RopeParams(4).theta_scale == 0.01
    assert RopeParams(128, freq_base=500000.0).theta_scale == pytest.approx(0.81461723, abs=1e-8)


def true_frequency(p, i, factor=1.0):
    with mpmath.workprec(120):
        unscaled = mpmath.power(p.freq_base, mpmath.mpf(-2 * i) / p.n_dims) / mpmath.mpf(factor)
        return float(unscaled * mpmath.mpf(p.freq_scale))


@pytest.mark.parametrize("base", [10000.0, 500000.0, 1e6, 0.5])
def test_frequencies_are_correctly_rounded(base):
    p = RopeParams(128, freq_base=base, freq_scale=0.3)
    factors = np.linspace(1, 9, 70, dtype=np.float32)
    for divisors in (None, factors):
        expected = [true_frequency(p, i, 1.0 if divisors is None else float(divisors[i])) for i in range(64)]
        got = p.frequencies("exact", divisors)
        assert got.dtype == np.float64
        assert np.all(np.abs(got - expected) <= np.spacing(expected) / 2)
        rounded = p.frequencies("f32", divisors)
        assert rounded.dtype == np.float32
        assert np.array_equal(rounded, np.array(expected).astype(np.float32))


def test_yarn_frequencies_go_from_extrapolated_to_interpolated():
    """With corr_dims (10, 23), pairs up to 10 keep their frequency, 23 and above are scaled, 17 is a mix."""
    p = RopeParams(64, n_ctx_orig=4096, freq_scale=1 / 40, ext_factor=1.0)
    unscaled, got = RopeParams(64).frequencies(), p.frequencies()
    np.testing.assert_allclose(got[:11], unscaled[:11], rtol=1e-15)
    np.testing.assert_allclose(got[23:], unscaled[23:] / 40, rtol=1e-15)
    mix = 1 - 7 / 13
    np.testing.assert_allclose(got[17], unscaled[17] / 40 * (1 - mix) + unscaled[17] * mix, rtol=1e-14)


def test_mscale_differs_from_attn_factor_only_with_yarn():
    assert RopeParams(64, attn_factor=1.5, freq_scale=0.25).mscale() == 1.5
    p = RopeParams(64, attn_factor=1.5, freq_scale=0.25, ext_factor=1.0, n_ctx_orig=4096)
    assert p.mscale() == pytest.approx(1.5 * 1.1386294361119891, rel=1e-15)
    assert p.mscale("f32") == p.mscale()
    assert p.mscale("ggml") == pytest.approx(p.mscale(), rel=2**-22)
    assert np.float32(p.mscale("ggml")) == p.mscale("ggml")


def test_ggml_frequencies_follow_its_recurrence_at_position_1():
    p = RopeParams(8, freq_base=10000.0, freq_scale=0.5)
    scale = np.float32(0.1)  # the float32 nearest to 10000 ** (-2/8)
    theta, expected = np.float32(1), []
    for _ in range(4):
        expected.append(np.float32(0.5) * theta)
        theta *= scale
    got = p.frequencies("ggml")
    assert got.dtype == np.float32
    assert got.tolist() == expected


def test_an_unknown_policy_is_refused():
    with pytest.raises(
        ValueError, match=r"angle must be exact \(0\), f32 \(1\) or ggml \(2\) but got 'fast'"
    ):
        RopeParams(8).frequencies("fast")


@pytest.mark.parametrize("name", ["freq_base", "freq_scale", "beta_fast", "beta_slow"])
@pytest.mark.parametrize("value", [5e-324, 1e39, 10**400])
def test_numbers_that_are_zero_or_infinite_in_float32_are_refused(name, value):
    with pytest.raises(ValueError, match=rf"{name} must be (positive and )?finite"):
        RopeParams(8, n_ctx_orig=4096, ext_factor=1.0, **{name: value})


def test_frequencies_refuse_the_factors_that_rope_refuses():
    for factors in ([1.0], [1.0, 0.0, 1.0, 1.0], [1.0, float("nan"), 1.0, 1.0], [[1.0] * 4]):
        with pytest.raises(ValueError, match="freq_factors must"):
            RopeParams(8).frequencies("exact", factors)


@pytest.mark.parametrize("policy", ["exact", "f32", "ggml"])
def test_frequencies_have_a_limit(policy):
    text = "frequencies must be at most 1e+09 radians per position but got 1e+10 for pair 1"
    with pytest.raises(ValueError, match=re.escape(text)):
        RopeParams(8, freq_base=1.0).frequencies(policy, [1, 1e-10, 1, 1])
    assert RopeParams(2, freq_scale=1e9).frequencies(policy, [1.0]).tolist() == [1e9]


def test_the_rule_of_factors_names_their_number():
    for given, pairs in (
        (RopeParams(8), "n_dims/2 = 4"),
        (RopeParams(8, "vision", sections=(4, 4, 0, 0)), "n_dims = 8"),
    ):
        text = f"freq_factors must have one dimension of at least {pairs} elements but got shape [3]."
        with pytest.raises(ValueError, match=re.escape(text)):
            given.frequencies("exact", [1.0] * 3)


def test_extreme_bases_do_not_warn():
    for base in (1.2e-38, 3.4e38):
        frequencies = RopeParams(128, freq_base=base).frequencies()
        assert frequencies[0] == 1
        assert np.all(np.isfinite(frequencies) & (frequencies > 0))


@pytest.mark.parametrize(
    "module", [params, reference, qkv_norm_rope_cache, rope_qk, rope_set_rows], ids=lambda m: m.__name__
)
def test_docstring_examples(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
