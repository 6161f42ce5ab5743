"""Calls that the operator package refuses: by the operators' own rules, with the messages of every path, by
the rules of memory, and by the device's rules. A refused call writes and launches nothing."""

from __future__ import annotations

import ctypes as C
from dataclasses import replace

import aclnn
import aclnn_calls
import ascend_sim
import numpy as np
import pytest
from ascend_sim import compiler
from rope_bad_calls import ATTRIBUTES, INPUTS, OUTPUTS, B, D, N, S

from npu_rope import RopeParams, chips, rope

NULL_POINTER, BAD_ARGUMENT, KERNEL_FAILED, TILING_FAILED, NO_KERNEL = 161001, 161002, 361001, 561002, 561003
INNER_NULL_POINTER = 561103
PARAMS = RopeParams(n_dims=D, mode="neox")

# Bad calls whose error is in bytes that the host cannot read on a device: values, addresses.
UNSEEN = {
    "mrope-far", "positions-above", "positions-below", "factors-zero", "factors-nan", "factors-inf",
    "factors-negative", "out-unaligned", "angle-unknown",
}  # fmt: skip
# CANN compares the types of these before the operator's own checks run.
WITHOUT_A_KERNEL = {"x-int32", "positions-float", "out-dtype"}
# For these the package itself reports that memory is shared.
SHARED = "must be an input itself or share no memory with"


def tensors(**changed):
    made = {
        "x": np.ones((B, S, N, D), np.float32),
        "positions": np.arange(S, dtype=np.int32),
        "out": np.full((B, S, N, D), 99.0, np.float32),
    }
    return made | changed


def refused(device, op, given):
    """Check the status and the message, and that every output is unchanged."""
    # Compare the owners, because a view may extend beyond its memory.
    arrays = [aclnn.owner_of(a) for a in given.values() if isinstance(a, np.ndarray)]
    before, launches = [a.tobytes() for a in arrays], device.launches()
    with pytest.raises(aclnn.RefusedPhase) as caught:
        device.call(aclnn_calls.OPERATORS[op], given)
    assert [a.tobytes() for a in arrays] == before
    assert device.launches() == launches
    return caught.value.status, str(caught.value)


def rope_arguments(**changed):
    attributes = {
        k: changed.pop(k) for k in list(changed) if k in aclnn_calls.attributes(PARAMS) or k == "strides"
    }
    given = aclnn_calls.attributes(PARAMS) | attributes
    return aclnn_calls.arguments("rope", tensors(**changed), given)


# ---- the operators' rules ----------------------------------------------------------------------------

IN_THE_TABLE = [bad for bad in (*ATTRIBUTES, *INPUTS, *OUTPUTS) if "c" in bad.paths]


@pytest.mark.parametrize("bad", [b for b in IN_THE_TABLE if b.name not in UNSEEN], ids=lambda bad: bad.name)
def test_bad_calls_are_refused_in_the_words_of_every_path(device, bad):
    call = bad.make()
    given = aclnn_calls.arguments(
        "rope",
        {"x": call.x, "positions": call.positions, "freq_factors": call.factors, "out": call.out},
        {**call.attributes, "forward": True},
    )
    status, words = refused(device, "rope", given)
    if "memory that they share" in bad.text:
        assert status == BAD_ARGUMENT
        assert SHARED in words
    elif bad.name in WITHOUT_A_KERNEL:
        assert status == BAD_ARGUMENT
        assert words.startswith("[NpuRope] tensors must have the types of one of its kernels on ascend910b")
    else:
        assert (status, words) == (TILING_FAILED, f"[rope] {bad.text}")


def test_the_table_has_hardly_any_calls_that_are_not_judged_here():
    assert {bad.name for bad in IN_THE_TABLE} >= UNSEEN
    assert len(IN_THE_TABLE) > 60


# ---- the interface's rules ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x", "positions", "out"])
def test_a_missing_tensor_is_named(device, name):
    given = rope_arguments() | {name: None}
    assert refused(device, "rope", given) == (
        NULL_POINTER,
        f"[NpuRope] {name} must be a tensor but got NULL.",
    )


def test_factors_sections_and_strides_may_be_missing(device):
    given = rope_arguments() | {"freq_factors": None, "sections": None}
    device.call("NpuRope", given)
    assert np.array_equal(given["out"], rope(given["x"], given["positions"], PARAMS, backend="sim"))


def test_types_without_a_kernel_are_refused(device):
    given = aclnn_calls.arguments(
        "rope_set_rows",
        {
            "x": np.ones((S, N, D), np.float32),
            "positions": np.arange(S, dtype=np.int32),
            "rows": np.arange(S, dtype=np.int32),
            "cache": np.zeros((4, N, D), np.float32),
        },
        aclnn_calls.attributes(PARAMS),
    )
    status, words = refused(device, "rope_set_rows", given)
    assert status == BAD_ARGUMENT
    assert words == (
        "[NpuRopeSetRows] tensors must have the types of one of its kernels on ascend910b but got "
        "x float32, positions int32, rows int32, cache float32."
    )


def test_an_optional_tensors_type_is_left_to_the_tiling(device):
    """CANN chooses the kernel by the required tensors."""
    given = rope_arguments(freq_factors=np.ones(D, np.float16))
    said = "[rope] freq_factors must be float32 but got float16."
    assert refused(device, "rope", given) == (TILING_FAILED, said)


def test_an_unknown_chip_is_refused(device):
    device.set_soc("Ascend950PR_9599")
    status, words = refused(device, "rope", rope_arguments())
    assert status == NULL_POINTER
    assert words == "[NpuRope] soc must be a simulated chip but got Ascend950PR_9599."


@pytest.mark.parametrize("chip", chips.NAMES)
def test_every_chip_of_cann_is_known(device, chip):
    device.set_soc(chip)
    given = rope_arguments()
    device.call("NpuRope", given)
    assert np.array_equal(given["out"], rope(given["x"], given["positions"], PARAMS, backend="sim"))


@pytest.mark.parametrize("chip", ["Ascend910B9", "Ascend910_9399", "Ascend310P2"])
def test_a_new_name_of_a_known_family_works_with_the_cores_that_cann_says(device, chip):
    device.set_soc(chip)
    x = np.random.default_rng(1).standard_normal((1, 200, 4, 64)).astype(np.float32)
    given = rope_arguments() | {"x": x, "positions": np.arange(200, dtype=np.int32), "out": np.zeros_like(x)}
    device.call("NpuRope", given)
    report = device.report()
    assert np.array_equal(given["out"], rope(x, given["positions"], PARAMS, backend="sim"))
    assert report["summary"]["cores"] == 6  # Device.set_soc: fewer than any chip of the table


@pytest.mark.parametrize("chip", ["Ascend910B", "Ascend910_5591", "Ascend310B1"])
def test_a_chip_of_another_family_is_refused(device, chip):
    device.set_soc(chip)
    assert refused(device, "rope", rope_arguments()) == (
        NULL_POINTER,
        f"[NpuRope] soc must be a simulated chip but got {chip}.",
    )


def test_a_short_workspace_is_refused(device):
    given = rope_arguments()
    size, executor = device.prepare("NpuRope", given)
    assert size == 16 * 1024 * 1024
    with pytest.raises(
        aclnn.RefusedPhase, match="workspace must have 16777216 bytes but got 16777215"
    ) as caught:
        device.run("NpuRope", size, executor, less=1)
    assert caught.value.status == BAD_ARGUMENT


def test_the_second_phase_without_a_first_is_refused(device):
    with pytest.raises(aclnn.RefusedPhase, match="executor must come from a first phase") as caught:
        device.run("NpuRope", 16, C.c_void_p())
    assert caught.value.status == NULL_POINTER


# ---- views -------------------------------------------------------------------------------------------


def view():
    """x as a slice of a wider array."""
    wide = np.arange(B * S * 3 * N * D, dtype=np.float32).reshape(B, S, 3 * N, D) / 64
    return wide[:, :, N : 2 * N]


def test_a_views_strides_must_be_told(device):
    x = view()
    given = rope_arguments(x=x)
    device.call("NpuRope", given)
    assert np.array_equal(given["out"], rope(x, given["positions"], PARAMS, backend="sim"))
    status, words = refused(device, "rope", rope_arguments(x=x) | {"strides": None})
    assert status == BAD_ARGUMENT
    assert words == "[NpuRope] strides must be those of x, [144, 48, 8, 1], but got [48, 16, 8, 1]."


@pytest.mark.parametrize("strides", [None, [0]], ids=["null", "one-zero"])
def test_a_contiguous_call_passes_no_strides_or_one_zero(device, strides):
    given = rope_arguments() | {"strides": strides}
    device.call("NpuRope", given)
    assert np.array_equal(given["out"], rope(given["x"], given["positions"], PARAMS, backend="sim"))


@pytest.mark.parametrize("name", ["strides", "sections"])
def test_an_empty_list_is_refused_as_aclnn_refuses_it(device, name):
    assert refused(device, "rope", rope_arguments() | {name: []}) == (
        INNER_NULL_POINTER,
        f"[NpuRope] {name} must have elements but got an empty list.",
    )


def test_strides_must_be_the_truth(device):
    given = rope_arguments(x=view())
    given["strides"][0] += 8
    assert refused(device, "rope", given)[0] == BAD_ARGUMENT


def test_factors_that_are_a_view_are_made_contiguous(device):
    factors = np.linspace(1, 3, 2 * D, dtype=np.float32)[::2]
    given = rope_arguments(freq_factors=factors)
    device.call("NpuRope", given)
    assert np.array_equal(given["out"], rope(given["x"], given["positions"], PARAMS, factors, backend="sim"))


def test_a_copied_view_is_part_of_the_workspace(device):
    """The copies lie at its end, each of at least 512 bytes."""
    factors = np.linspace(1, 3, 2 * D, dtype=np.float32)[::2]
    given = rope_arguments(freq_factors=factors)
    size, executor = device.prepare("NpuRope", given)
    assert size == device.prepare("NpuRope", rope_arguments())[0] + 512
    with pytest.raises(
        aclnn.RefusedPhase, match=f"workspace must have {size} bytes but got {size - 1}"
    ) as caught:
        device.run("NpuRope", size, executor, less=1)
    assert caught.value.status == BAD_ARGUMENT
    device.run("NpuRope", size, executor)


def test_host_memory_is_refused(device):
    given = rope_arguments()
    upload = device.upload
    device.upload = lambda array: array.ctypes.data if array is given["x"] else upload(array)
    try:
        status, words = refused(device, "rope", given)
    finally:
        device.upload = upload
    assert status == BAD_ARGUMENT
    assert words == "[NpuRope] x must lie inside one allocation of device memory but got other memory."


def test_a_view_beyond_its_allocation_is_refused(device):
    given = rope_arguments()
    owner = given["x"]
    given["x"] = np.lib.stride_tricks.as_strided(owner, (B, S, N, D), [400, 64, 32, 4])
    given["strides"] = aclnn.strides_of(given["x"], given["positions"], given["out"])
    status, words = refused(device, "rope", given)
    assert status == BAD_ARGUMENT
    assert "x must lie inside one allocation" in words


def test_a_cache_that_shares_memory_with_x_is_refused(device):
    memory = np.ones(400, np.float32)
    given = aclnn_calls.arguments(
        "rope_set_rows",
        {
            "x": memory[: S * N * D].reshape(S, N, D),
            "positions": np.arange(S, dtype=np.int32),
            "rows": np.arange(S),
            "cache": memory[N * D :][: 5 * N * D].reshape(5, N, D),
        },
        aclnn_calls.attributes(PARAMS),
    )
    status, words = refused(device, "rope_set_rows", given)
    assert status == BAD_ARGUMENT
    assert f"cache {SHARED} x" in words


# ---- the device's rules ------------------------------------------------------------------------------


def test_a_kernel_that_breaks_a_rule_is_an_error_and_is_recorded(device, changed_kernel, monkeypatch):
    monkeypatch.setenv("ASCEND_SIM_KERNELS", str(changed_kernel("no order of vector instructions")))
    given = rope_arguments()
    launches = device.launches()
    with pytest.raises(aclnn.RefusedPhase, match="SIM-HAZARD") as caught:
        device.call("NpuRope", given)
    assert caught.value.status == KERNEL_FAILED
    assert str(caught.value).startswith("[NpuRope] kernel must keep the simulator's rules but got ")
    assert device.launches() == launches + 1
    assert device.report()["errors"]
    assert np.all(given["out"] == 99.0)


WRITES_BEHIND_OUT = """
#include "kernel_operator.h"
extern "C" __global__ __aicore__ void npu_rope(GM_ADDR x, GM_ADDR positions, GM_ADDR freq_factors,
                                               GM_ADDR out, GM_ADDR workspace, GM_ADDR tiling) {
    AscendC::TPipe pipe;
    AscendC::TQue<AscendC::TPosition::VECOUT, 1> queue;
    pipe.InitBuffer(queue, 1, 32);
    auto ones = queue.AllocTensor<float>();
    AscendC::Duplicate(ones, 1.0f, 8);
    queue.EnQue(ones);
    ones = queue.DeQue<float>();
    AscendC::GlobalTensor<float> to;
    to.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(out));
    AscendC::DataCopy(to[ELEMENTS], ones, 8);
    queue.FreeTensor(ones);
}
"""


@pytest.mark.parametrize("behind", [-8, -7, 0])
def test_a_tensors_bounds_are_its_views(device, tmp_path, monkeypatch, behind):
    """Memory beyond the view may belong to other tensors, even in the same allocation."""
    source = tmp_path / "npu_rope.cpp"
    source.write_text(WRITES_BEHIND_OUT.replace("ELEMENTS", str(S * N * D + behind)))
    types = {"X": "float", "POSITIONS": "int32_t", "FREQ_FACTORS": "float", "OUT": "float"}
    defines = compiler.column_defines("npu_rope", "ascend910b", types)
    monkeypatch.setenv("ASCEND_SIM_KERNELS", str(ascend_sim.build(source, defines=defines, folder=tmp_path)))
    memory = np.zeros(2 * S * N * D, np.float32)
    given = rope_arguments(x=np.ones((S, N, D), np.float32), out=memory[: S * N * D].reshape(S, N, D))
    if behind == -8:  # the last eight
        device.call("NpuRope", given)
        assert np.flatnonzero(memory).tolist() == list(range(S * N * D - 8, S * N * D))
        return
    with pytest.raises(aclnn.RefusedPhase, match="SIM-BOUNDS-03") as caught:
        device.call("NpuRope", given)
    assert caught.value.status == KERNEL_FAILED
    assert not memory.any()


def test_a_launch_is_recorded_with_the_simulators_report(device):
    launches = device.launches()
    device.call("NpuRope", rope_arguments())
    assert device.launches() == launches + 1
    assert device.report()["errors"] == []


def test_attributes_are_float32(device):
    """CANN stores an attribute in float32: 0.1 becomes the nearest float32."""
    params = replace(PARAMS, freq_scale=0.1)
    given = rope_arguments(freq_scale=0.1, positions=np.array([1, 5000, 1000000], np.int32))
    device.call("NpuRope", given)
    x, positions = given["x"], given["positions"]
    for taken in (params, aclnn_calls.in_float32(params)):
        assert np.array_equal(given["out"], rope(x, positions, taken, backend="sim"))
    as_float32 = rope(x, positions, aclnn_calls.in_float32(params), backend="reference")
    as_double = rope(x, positions, params, backend="reference")
    assert np.abs(given["out"] - as_float32).max() < 0.1 * np.abs(given["out"] - as_double).max()
