"""Calls of torch_npu's functions in suite torch_npu: their cases, and their judge's verdicts."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from npu_rope import backends
from npu_rope.compat import torch_npu as compat
from npu_rope.errors import BackendUnavailable
from npu_rope.testing import port_spec, ports
from npu_rope.testing.bounds import is_device, worst_ratio
from npu_rope.testing.chip_types import chip_lacks
from npu_rope.testing.outcomes import FAIL, OK, UNSUPPORTED
from npu_rope.testing.port_functions import FUNCTIONS
from npu_rope.testing.ports import judge_ports, limit_of, make_data, port_cases
from npu_rope.testing.suites import all_cases, executors_of, judge

pytestmark = pytest.mark.torch
CASES = list(port_cases())


def case_of(function, form="", dtype="float32"):
    """Return a case by function, form (the first one by default) and dtype."""
    return next(c for c in CASES if c.function == function and form in ("", c.form) and c.dtype == dtype)


def judgement_of(case, executor="cpu"):
    [judgement] = judge_ports(case, [executor]).judgements
    return judgement


def test_names_are_unique_and_every_form_has_every_type():
    assert len({case.name for case in CASES}) == len(CASES) == 210
    assert {case.function for case in CASES} == set(FUNCTIONS) == set(compat.__all__)
    forms = Counter((case.function, case.form) for case in CASES)
    assert set(forms.values()) == {len(ports.DTYPES)}


def test_the_suite_has_these_cases_after_those_of_rotary_mul():
    cases = all_cases(("torch_npu",))
    assert cases[66:] == CASES
    for case, names in ((cases[0], ["cpu"]), (cases[66], ["cpu", ports.PEER])):
        assert executors_of(case, ["cpu", ports.PEER]) == names
        assert judge(case, ["cpu"], None).verdict == OK


@pytest.mark.parametrize("case", CASES[::5], ids=lambda case: case.name)
def test_correct_results_pass(case, backend):
    judgement = judgement_of(case, backend)
    lacks = is_device(backend) and chip_lacks(case.dtype, backend)
    assert (judgement.verdict, judgement.message) == ((UNSUPPORTED, lacks) if lacks else (OK, ""))
    function = FUNCTIONS[case.function]
    has_narrow = case.dtype in {function.dtype_of(case, name) for name in function.results_of(case)}
    is_near_cpu = is_device(backend) and case.dtype != "float32" and has_narrow and not lacks
    assert (judgement.near_cpu is not None) == is_near_cpu
    assert backends.default_backend is None


def swap_tables(function):
    return lambda x, y, cos, sin, **options: function(x, y, sin, cos, **options)


def change(**other):
    return lambda function: lambda *tensors, **options: function(*tensors, **{**options, **other})


def shift_positions(function):
    return lambda positions, *tensors, **options: function((positions + 1) % 50, *tensors, **options)


def in_mode(cache_mode):
    return change(cache_mode=cache_mode)


def neighbours_apart(function):
    """Rotate neighbours of kv's last dimensions without reordering them."""

    def wrong(kv, gamma, *tensors, **options):
        rest = kv[..., len(gamma) :]
        joined = torch.stack(rest.chunk(2, -1), -1).flatten(-2)
        return function(torch.cat((kv[..., : len(gamma)], joined), -1), gamma, *tensors, **options)

    return wrong


def shift_index(function):
    def wrong(kv, gamma, cos, sin, index, k_cache, *rest, **options):
        rows = k_cache.shape[0] * k_cache.shape[1]
        other = torch.where(index < 0, index, (index + 1) % rows)
        return function(kv, gamma, cos, sin, other, k_cache, *rest, **options)

    return wrong


def swap_gammas(function):
    return lambda qkv, q, k, *tensors, **options: function(qkv, k, q, *tensors, **options)


def without(name):
    return lambda function: lambda *tensors, **options: function(*tensors, **{**options, name: None})


WRONG = {
    "styles": ("_npu_rotary_embedding", "", change(is_neox_style=False)),
    "layouts": ("npu_kv_rmsnorm_rope_cache", "PA_NZ", in_mode("PA")),
    "columns": ("npu_kv_rmsnorm_rope_cache", "PA", in_mode("PA_NZ")),
    "neighbours": ("npu_kv_rmsnorm_rope_cache", "Norm", neighbours_apart),
    "slots": ("npu_kv_rmsnorm_rope_cache", "decode", shift_index),
    "offsets": ("npu_kv_rmsnorm_rope_cache", "asymmetric", without("c_kv_offset")),
    "stored epsilon": ("npu_kv_rmsnorm_rope_cache", "PA_BNSD", change(epsilon=1e-2)),
    "gammas": ("npu_qkv_rms_norm_rope_cache", "", swap_gammas),
    "value offsets": ("npu_qkv_rms_norm_rope_cache", "asymmetric", without("v_offset")),
    "tables": ("npu_rotary_mul", "", lambda f: lambda x, cos, sin, **o: f(x, sin, cos, **o)),
    "pairs": ("npu_rotary_mul", "interleave", change(rotary_mode="half")),
    "quarters": ("npu_rotary_mul", "quarter", change(rotary_mode="half")),
    "tables of queries and keys": ("npu_apply_rotary_pos_emb", "", swap_tables),
    "layout": ("npu_apply_rotary_pos_emb", "interleave", change(rotary_mode="half")),
    "order": ("npu_interleave_rope", "", lambda f: lambda x, *t: f(x.flip(-1), *t)),
    "rows": ("npu_mrope", "partial", shift_positions),
    "sections": ("npu_mrope", "sections", change(mrope_section=[24, 24, 16])),
    "kinds": ("npu_mrope", "cache-interleave", change(cache_mode="default")),
    "epsilon": ("npu_rms_norm", "long-row", change(epsilon=1e-3)),
    "gamma": ("npu_gemma_rms_norm", "", lambda f: lambda x, gamma, **o: f(x, gamma - 1, **o)),
    "sum": ("npu_add_rms_norm", "", lambda f: lambda x1, x2, gamma, **o: f(x1, x1, gamma, **o)),
}


@pytest.mark.parametrize("dtype", ports.DTYPES)
@pytest.mark.parametrize("error", WRONG)
def test_wrong_results_fail(error, dtype, monkeypatch):
    function, form, wrong = WRONG[error]
    monkeypatch.setattr(compat, function, wrong(getattr(compat, function)))
    judgement = judgement_of(case_of(function, form, dtype))
    assert (judgement.verdict, judgement.message) == (FAIL, "")
    assert judgement.ratio > 1


def test_the_first_wrong_result_is_named(monkeypatch):
    def of_one_half(x, gamma, epsilon):
        y, rstd = original(x, gamma, epsilon)
        return y, rstd * (1 + 2.0**-22)

    original = compat.npu_rms_norm
    monkeypatch.setattr(compat, "npu_rms_norm", of_one_half)
    judgement = judgement_of(case_of("npu_rms_norm"))
    assert judgement.verdict == FAIL
    assert judgement.worst.names == "rstd's index"
    assert judgement.region.startswith("100%")


def test_a_written_input_fails(monkeypatch):
    original = compat.npu_rotary_mul

    def written(x, cos, sin, **options):
        y = original(x, cos, sin, **options)
        cos.zero_()
        return y

    monkeypatch.setattr(compat, "npu_rotary_mul", written)
    judgement = judgement_of(case_of("npu_rotary_mul"))
    assert (judgement.verdict, judgement.message) == (FAIL, "an input was written")


def test_an_out_of_place_result_of_an_in_place_function_fails(monkeypatch):
    def out_of_place(*tensors, **options):
        return original(tensors[0].clone(), *tensors[1:], **options)

    original = compat.npu_apply_rotary_pos_emb
    monkeypatch.setattr(compat, "npu_apply_rotary_pos_emb", out_of_place)
    judgement = judgement_of(case_of("npu_apply_rotary_pos_emb"))
    assert judgement.verdict == FAIL
    assert judgement.message == (
        "npu_apply_rotary_pos_emb must return query itself but returned another tensor"
    )


# ---- torch_npu's own functions -------------------------------------------------------------------------


def ratio_to_peer(case):
    """The largest error of npu_rope's results in units of the bounds for torch_npu's own function."""
    arrays = make_data(case)
    expected = FUNCTIONS[case.function].expected(case, arrays, "")
    results = ports._run(case, arrays, "cpu")
    return max(worst_ratio(got, e.value, e.bound)[0] for got, e in zip(results, expected, strict=True))


def test_the_bounds_of_torch_npu_count_its_roundings():
    """npu_rope rounds x * rstd in npu_rms_norm, but torch_npu does not. torch_npu rounds products of float16
    in npu_apply_rotary_pos_emb, but npu_rope does not. In npu_add_rms_norm torch_npu normalizes the unrounded
    sum of bfloat16."""
    assert ratio_to_peer(case_of("npu_rms_norm", dtype="float16")) > 1.2
    assert ratio_to_peer(case_of("npu_gemma_rms_norm", dtype="float16")) <= 1
    assert ratio_to_peer(case_of("npu_apply_rotary_pos_emb", dtype="float16")) < 0.6
    assert ratio_to_peer(case_of("npu_add_rms_norm", dtype="bfloat16")) > 1


def test_torch_npu_converts_tables_to_the_type_of_input():
    case = case_of("npu_rotary_mul", "float32-tables", "float16")
    arrays = make_data(case)
    narrow = {name: array.astype(np.float16) for name, array in arrays.items()}
    function = FUNCTIONS[case.function]
    assert ratio_to_peer(case) > 1
    [of_narrow], [of_peer] = function.expected(case, narrow, "cpu"), function.expected(case, arrays, "")
    assert np.array_equal(of_narrow.value, of_peer.value)


LIMITS = {
    ("_npu_rotary_embedding", "half", "float16", "Ascend310P3"): "",
    ("_npu_rotary_embedding", "half", "float32", "Ascend910B2"): "RopeOperation has no float32",
    ("_npu_rotary_embedding", "half", "bfloat16", "Ascend910B2"): (
        "cos_sin_cache must have the dtype of query in bfloat16"
    ),
    ("npu_kv_rmsnorm_rope_cache", "int8-NZ", "bfloat16", "Ascend910B2"): "",
    ("npu_kv_rmsnorm_rope_cache", "v", "float16", "Ascend910B2"): "v is not documented for torch_npu",
    ("npu_kv_rmsnorm_rope_cache", "PA", "float16", "Ascend310P3"): (
        "its aclnn function does not run on Ascend310P"
    ),
    ("npu_qkv_rms_norm_rope_cache", "int8", "float16", "Ascend910B2"): "",
    ("npu_rotary_mul", "half", "float32", "Ascend910B2"): "",
    ("npu_rotary_mul", "d1024", "float32", "Ascend910B2"): "the head size must be less than 896",
    ("npu_mrope", "one-kind", "float16", "Ascend310P3"): "its aclnn function does not run on Ascend310P",
    ("npu_gemma_rms_norm", "row", "float16", "Ascend310P3"): (
        "its aclnn function does not run on Ascend310P"
    ),
    ("npu_interleave_rope", "prefill", "float32", "Ascend910B2"): "aclnnInterleaveRope has no float32",
    ("npu_rms_norm", "row", "float16", "Ascend310P3"): "",
    ("npu_rms_norm", "row", "bfloat16", "Ascend310P3"): "Ascend310P has no bfloat16",
    ("npu_rms_norm", "float32-gamma", "float16", "Ascend910B2"): "",
    ("npu_rms_norm", "float32-gamma", "float32", "Ascend310P3"): "",
    ("npu_rms_norm", "float32-gamma", "float16", "Ascend310P3"): (
        "gamma must have the dtype of input on Ascend310P"
    ),
    ("npu_add_rms_norm", "float32-gamma", "float16", "Ascend910B2"): "gamma must have the dtype of x1",
    ("npu_add_rms_norm", "float32-gamma", "float32", "Ascend910B2"): "",
}


@pytest.mark.parametrize("call", LIMITS, ids="-".join)
def test_the_limit_that_a_call_breaks_is_named(call):
    *of_case, chip = call
    assert limit_of(case_of(*of_case), chip) == LIMITS[call]


@pytest.fixture
def stand_in_torch_npu(monkeypatch):
    """A torch_npu whose device is the CPU, and whose functions are npu_rope's."""
    functions = SimpleNamespace(**{name: getattr(compat, name) for name in FUNCTIONS})
    npu = SimpleNamespace(get_device_name=lambda index: "Ascend910B2")
    monkeypatch.setattr(backends, "simulated_soc", lambda: "Ascend910B2")
    monkeypatch.setattr(torch, "npu", npu, raising=False)
    monkeypatch.setattr(torch.Tensor, "npu", lambda tensor: tensor.clone(), raising=False)
    monkeypatch.setattr(ports, "load_torch_npu", lambda: None)
    monkeypatch.setitem(ports.sys.modules, "torch_npu", functions)
    return functions


def test_torch_npu_s_result_is_judged_and_compared_with_npu_rope_s(stand_in_torch_npu):
    case = case_of("npu_rotary_mul")
    judgement = judgement_of(case, ports.PEER)
    assert (judgement.verdict, judgement.bit_equal) == (OK, 1.0)
    original = stand_in_torch_npu.npu_rotary_mul
    stand_in_torch_npu.npu_rotary_mul = lambda x, r1, r2, **options: original(x, r1, r2) + 2.0**-30
    assert 0 < judgement_of(case, ports.PEER).bit_equal < 1
    stand_in_torch_npu.npu_rotary_mul = lambda x, r1, r2, **options: original(x, r2, r1)
    judgement = judgement_of(case, ports.PEER)
    assert judgement.verdict == FAIL
    assert judgement.bit_equal < 0.1


def test_a_call_beyond_torch_npu_s_limits_is_not_run(stand_in_torch_npu):
    stand_in_torch_npu.npu_rotary_mul = None
    judgement = judgement_of(case_of("npu_rotary_mul", "quarter"), ports.PEER)
    assert (judgement.verdict, judgement.message) == (
        UNSUPPORTED,
        "rotary_mode must be half or interleave",
    )


def test_a_function_that_is_not_simulated_is_not_run_on_the_simulated_npu(stand_in_torch_npu, monkeypatch):
    case = case_of("npu_qkv_rms_norm_rope_cache", dtype="float16")
    judgement = judgement_of(case, ports.PEER)
    expected = UNSUPPORTED, "aclnnQkvRmsNormRopeCache is not simulated"
    assert (judgement.verdict, judgement.message) == expected
    monkeypatch.setattr(backends, "simulated_soc", lambda: None)
    assert judgement_of(case, ports.PEER).verdict == OK


def test_rstd_of_add_rms_norm_is_not_judged_on_ascend310p(stand_in_torch_npu, monkeypatch):
    original = stand_in_torch_npu.npu_add_rms_norm

    def without_rstd(*tensors, **options):
        y, rstd, x = original(*tensors, **options)
        return y, torch.full_like(rstd, torch.nan), x

    stand_in_torch_npu.npu_add_rms_norm = without_rstd
    case = case_of("npu_add_rms_norm")
    assert judgement_of(case, ports.PEER).verdict == FAIL
    monkeypatch.setattr(torch.npu, "get_device_name", lambda index: "Ascend310P3")
    assert judgement_of(case, ports.PEER).verdict == OK


def test_the_missing_pieces_of_torch_npu_are_named(monkeypatch):
    piece = backends.NpuPiece
    found = [
        piece("torch_npu", "the torch_npu package", None, "install it"),
        piece("CANN", "CANN", "/cann", ""),
        piece("device", "a device", None, ""),
        piece("operators", "npu_rope's operator package", None, ""),
    ]
    monkeypatch.setattr(backends, "npu_pieces", lambda: found)
    lacks = "it lacks the torch_npu package; a device"
    install = "Install torch_npu. Without an NPU, simulate one: npu-rope sim -- npu-rope validate"
    assert ports.peer_missing() == f"{lacks}. {install} --suite torch_npu."
    with pytest.raises(BackendUnavailable, match=lacks):
        ports.require_peer()
    monkeypatch.setattr(backends, "npu_pieces", lambda: found[1:2])
    assert ports.peer_missing() == ""
    ports.require_peer()


@pytest.mark.parametrize("is_checkout", [True, False])
def test_a_simulated_npu_without_torch_npu_names_the_python_to_use(monkeypatch, tmp_path, is_checkout):
    """In a checkout, torch_npu is in .venv-npu only, beside the environment of npu_rope."""
    python = tmp_path / ".venv-npu/bin/python"
    if is_checkout:
        python.parent.mkdir(parents=True)
        python.touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    monkeypatch.setattr(sys, "executable", "/other/bin/python")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    monkeypatch.setenv("ASCEND_SIM_SOC", "Ascend310P3")
    command = f"npu-rope sim --soc Ascend310P3 -- {python if is_checkout else 'PYTHON'} -m npu_rope.cli"
    remedy = "install torch_npu for /other/bin/python, or name a Python that has it: " + command
    assert ports.peer_missing() == (
        f"it lacks the torch_npu package. To run them, {remedy} validate --suite torch_npu."
    )
    with pytest.raises(BackendUnavailable) as refused:
        backends.BACKENDS["npu"].require()
    assert f"{remedy} COMMAND" in str(refused.value)


# ---- the formulas --------------------------------------------------------------------------------------


def test_the_cache_s_rows_follow_the_documents_formula_element_by_element():
    cache = np.arange(5 * 12, dtype=np.float64).reshape(5, 12)
    positions = np.array([[0, 1], [2, 3], [4, 0]])
    # cache_mode default: consecutive pairs; interleave: pair i to kind i mod 3 while it has pairs left.
    for cache_mode, kinds in (("default", [0, 0, 0, 1, 1, 2]), ("interleave", [0, 1, 2, 0, 1, 0])):
        cos, sin = port_spec.rows_of_cache(cache, positions, [3, 2, 1], cache_mode, "half")
        assert cos.shape == sin.shape == (2, 1, 12)
        for token in range(2):
            for lane in range(12):
                pair = lane % 6
                row = positions[kinds[pair], token]
                assert cos[token, 0, lane] == cache[row, pair]
                assert sin[token, 0, lane] == cache[row, 6 + pair]
    cos, _ = port_spec.rows_of_cache(cache, positions[0], [0, 0, 0], "default", "interleave")
    assert cos[1, 0].tolist() == np.repeat(cache[1, :6], 2).tolist()
