"""The real ggml: found, driven, and outlived when it aborts."""

import dataclasses
import platform
import sys

import numpy as np
import pytest

from npu_rope.params import RopeParams
from npu_rope.testing.cases import ggml_cases, make_data
from npu_rope.testing.ggml import GgmlAborted, GgmlProcess, GgmlRope, GgmlUnavailable, find_library_dir
from npu_rope.testing.judge import OK, judge

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def ggml():
    if sys.platform != "linux" or platform.machine() != "x86_64":
        pytest.skip("prebuilt ggml packages exist for Linux on x86_64 only")
    with GgmlProcess() as process:
        yield process


def _call(n_dims=8, width=8):
    x = np.arange(3 * width, dtype=np.float32).reshape(1, 3, 1, width)
    positions = np.arange(3, dtype=np.int32)
    return GgmlRope(x, x.shape, 0, positions, RopeParams(n_dims, "neox"), 0, None, True, False)


def test_ggml_says_its_version(ggml):
    assert ggml.info.version[0].isdigit()
    assert ggml.info.cpu_library.startswith("libggml-cpu")


def test_position_zero_is_the_identity(ggml):
    call = _call()
    np.testing.assert_array_equal(ggml.rope(call)[0, 0], call.parent[0, 0])


def test_an_abort_is_reported_with_its_words_and_survived(ggml):
    with pytest.raises(GgmlAborted, match=r"SIGABRT.*GGML_ASSERT.*n_dims"):
        ggml.rope(_call(n_dims=16))
    assert ggml.rope(_call()).shape == (1, 3, 1, 8)


def test_missing_folder_says_how_to_get_one(tmp_path):
    with pytest.raises(GgmlUnavailable, match="npm install"):
        find_library_dir(str(tmp_path))


def test_library_that_does_not_load_is_reported(tmp_path):
    for name in ("libggml-base.so", "libggml-cpu.so"):
        (tmp_path / name).write_text("not a library")
    with pytest.raises(GgmlUnavailable, match="must load"):
        GgmlProcess(str(tmp_path))


def _one_of_each():
    seen = {}
    for case in ggml_cases():
        if case.shape[1] <= 4:
            p = case.params
            key = (
                case.dtype,
                p.rope_mode,
                case.factors,
                case.view,
                case.inplace,
                case.forward,
                p.ext_factor,
                p.n_offs,
            )
            seen.setdefault(key, case)
    return list(seen.values())


@pytest.mark.parametrize("case", _one_of_each(), ids=lambda c: c.name)
def test_ggml_agrees_with_policy_ggml(ggml, case):
    result = judge(case, ["cpu"], ggml)
    assert {j.executor: j.verdict for j in result.judgements} == {"cpu": OK, "cpu:ggml": OK, "ggml": OK}


def test_a_different_position_is_not_agreement(ggml, monkeypatch):
    from npu_rope.testing import judge as module

    original = module._ggml_call

    def shifted(case, data):
        call = original(case, data)
        return dataclasses.replace(call, positions=call.positions + 1)

    monkeypatch.setattr(module, "_ggml_call", shifted)
    case = next(ggml_cases())
    assert judge(case, ["cpu"], ggml).by("ggml").verdict != OK
    assert make_data(case).x.size
