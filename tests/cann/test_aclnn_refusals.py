"""Calls that the operator package refuses by the rules of the operators, of aclnn's interface, of views and
of the device. A refused call writes nothing; only one that breaks a rule of the device is launched."""

from __future__ import annotations

import ctypes as C
from dataclasses import replace
from itertools import chain

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

# Bad calls that are left out here. Their errors depend on values or addresses, which the host cannot read, or
# on the angle policy, which is no argument of aclnn.
NOT_FOUND_BY_THE_HOST = {
    "mrope-far", "positions-above", "positions-below", "factors-zero", "factors-nan", "factors-inf",
    "factors-negative", "out-unaligned", "angle-unknown",
}  # fmt: skip
# For these, CANN compares the types before the operator's own checks run.
WITHOUT_A_KERNEL = {"x-int32", "positions-float", "out-dtype"}
# The interface's message for memory that is shared.
SHARED = "share no memory with"


def tensors(**changed):
    correct = {
        "x": np.ones((B, S, N, D), np.float32),
        "positions": np.arange(S, dtype=np.int32),
        "out": np.full((B, S, N, D), 99.0, np.float32),
    }
    return correct | changed


def refused(device, op, arguments):
    """Require a refusal that changes no array and launches nothing; return its status and message."""
    # Compare the owners, because a view may extend beyond its memory.
    arrays = [aclnn.owner_of(a) for a in arguments.values() if isinstance(a, np.ndarray)]
    before, launches = [a.tobytes() for a in arrays], device.launches()
    with pytest.raises(aclnn.RefusedPhase) as caught:
        device.call(aclnn_calls.OPERATORS[op], arguments)
    assert [a.tobytes() for a in arrays] == before
    assert device.launches() == launches
    return caught.value.status, str(caught.value)


def rope_arguments(**changed):
    attributes = {
        k: changed.pop(k) for k in list(changed) if k in aclnn_calls.attributes(PARAMS) or k == "strides"
    }
    return aclnn_calls.arguments("rope", tensors(**changed), aclnn_calls.attributes(PARAMS) | attributes)


# ---- the operators' rules ----------------------------------------------------------------------------

BAD_CALLS = [bad for bad in (*ATTRIBUTES, *INPUTS, *OUTPUTS) if "c" in bad.paths]


@pytest.mark.parametrize(
    "bad", [b for b in BAD_CALLS if b.name not in NOT_FOUND_BY_THE_HOST], ids=lambda bad: bad.name
)
def test_bad_calls_raise_the_same_error_as_on_other_paths(device, bad):
    call = bad.make()
    arguments = aclnn_calls.arguments(
        "rope",
        {"x": call.x, "positions": call.positions, "freq_factors": call.factors, "out": call.out},
        {**call.attributes, "forward": True},
    )
    status, message = refused(device, "rope", arguments)
    if "overlapping memory" in bad.text:
        assert status == BAD_ARGUMENT
        assert SHARED in message
    elif bad.name in WITHOUT_A_KERNEL:
        assert status == BAD_ARGUMENT
        assert message.startswith("[NpuRope] tensors must have the types of one of its kernels on ascend910b")
    else:
        assert (status, message) == (TILING_FAILED, f"[rope] {bad.text}")


def test_the_bad_calls_that_are_left_out_here_are_in_the_table():
    assert {bad.name for bad in BAD_CALLS} >= NOT_FOUND_BY_THE_HOST
    assert len(BAD_CALLS) > 60


# ---- the interface's rules ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x", "positions", "out"])
def test_a_missing_tensor_is_named(device, name):
    arguments = rope_arguments() | {name: None}
    assert refused(device, "rope", arguments) == (
        NULL_POINTER,
        f"[NpuRope] {name} must be a tensor but got NULL.",
    )


def test_factors_sections_and_strides_may_be_missing(device):
    arguments = rope_arguments() | {"freq_factors": None, "sections": None}
    device.call("NpuRope", arguments)
    assert np.array_equal(
        arguments["out"], rope(arguments["x"], arguments["positions"], PARAMS, backend="sim")
    )


def test_types_without_a_kernel_are_refused(device):
    arguments = aclnn_calls.arguments(
        "rope_set_rows",
        {
            "x": np.ones((S, N, D), np.float32),
            "positions": np.arange(S, dtype=np.int32),
            "rows": np.arange(S, dtype=np.int32),
            "cache": np.zeros((4, N, D), np.float32),
        },
        aclnn_calls.attributes(PARAMS),
    )
    status, message = refused(device, "rope_set_rows", arguments)
    assert status == BAD_ARGUMENT
    assert message == (
        "[NpuRopeSetRows] tensors must have the types of one of its kernels on ascend910b but got "
        "x float32, positions int32, rows int32, cache float32."
    )


def test_an_optional_tensors_type_is_left_to_the_tiling(device):
    """CANN chooses the kernel by the required tensors."""
    arguments = rope_arguments(freq_factors=np.ones(D, np.float16))
    message = "[rope] freq_factors must be float32 but got float16."
    assert refused(device, "rope", arguments) == (TILING_FAILED, message)


def test_an_unknown_chip_is_refused(device):
    device.set_soc("Ascend910_9599")
    status, message = refused(device, "rope", rope_arguments())
    assert status == NULL_POINTER
    assert message == "[NpuRope] soc must be a simulated chip but got Ascend910_9599."


@pytest.mark.parametrize("chip", list(chain.from_iterable(chips.CHIPS.values())))
def test_every_chip_of_cann_is_known(device, chip):
    device.set_soc(chip)
    arguments = rope_arguments()
    device.call("NpuRope", arguments)
    assert np.array_equal(
        arguments["out"], rope(arguments["x"], arguments["positions"], PARAMS, backend="sim")
    )


@pytest.mark.parametrize("chip", ["Ascend910B9", "Ascend910_9399", "Ascend310P2", "Ascend950DT_9591"])
def test_a_new_name_of_a_known_family_runs_on_as_many_cores_as_cann_reports(device, chip):
    device.set_soc(chip)
    x = np.random.default_rng(1).standard_normal((1, 200, 4, 64)).astype(np.float32)
    arguments = rope_arguments() | {
        "x": x,
        "positions": np.arange(200, dtype=np.int32),
        "out": np.zeros_like(x),
    }
    device.call("NpuRope", arguments)
    report = device.report()
    assert np.array_equal(arguments["out"], rope(x, arguments["positions"], PARAMS, backend="sim"))
    # Device.set_soc sets 6 cores, fewer than any chip of the table has.
    assert report["summary"]["cores"] == 6


@pytest.mark.parametrize("chip", ["Ascend910B", "Ascend910_5591", "Ascend310B1"])
def test_a_chip_of_another_family_is_refused(device, chip):
    device.set_soc(chip)
    assert refused(device, "rope", rope_arguments()) == (
        NULL_POINTER,
        f"[NpuRope] soc must be a simulated chip but got {chip}.",
    )


def test_a_short_workspace_is_refused(device):
    arguments = rope_arguments()
    size, executor = device.prepare("NpuRope", arguments)
    assert size == 16 * 1024 * 1024
    with pytest.raises(
        aclnn.RefusedPhase, match="workspace must have 16777216 bytes but got 16777215"
    ) as caught:
        device.run("NpuRope", size, executor, missing_bytes=1)
    assert caught.value.status == BAD_ARGUMENT


def test_the_second_phase_without_a_first_is_refused(device):
    with pytest.raises(aclnn.RefusedPhase, match="executor must come from a first phase") as caught:
        device.run("NpuRope", 16, C.c_void_p())
    assert caught.value.status == NULL_POINTER


# ---- views -------------------------------------------------------------------------------------------


def view():
    """Return x as a slice of a wider array."""
    wide = np.arange(B * S * 3 * N * D, dtype=np.float32).reshape(B, S, 3 * N, D) / 64
    return wide[:, :, N : 2 * N]


def test_a_views_strides_must_be_passed(device):
    x = view()
    arguments = rope_arguments(x=x)
    device.call("NpuRope", arguments)
    assert np.array_equal(arguments["out"], rope(x, arguments["positions"], PARAMS, backend="sim"))
    status, message = refused(device, "rope", rope_arguments(x=x) | {"strides": None})
    assert status == BAD_ARGUMENT
    assert message == "[NpuRope] strides must be those of x, [144, 48, 8, 1], but got [48, 16, 8, 1]."


@pytest.mark.parametrize("strides", [None, [0]], ids=["null", "one-zero"])
def test_a_contiguous_call_passes_no_strides_or_one_zero(device, strides):
    arguments = rope_arguments() | {"strides": strides}
    device.call("NpuRope", arguments)
    assert np.array_equal(
        arguments["out"], rope(arguments["x"], arguments["positions"], PARAMS, backend="sim")
    )


@pytest.mark.parametrize("name", ["strides", "sections"])
def test_an_empty_list_is_refused_with_aclnns_status(device, name):
    assert refused(device, "rope", rope_arguments() | {name: []}) == (
        INNER_NULL_POINTER,
        f"[NpuRope] {name} must have elements but got an empty list.",
    )


def test_strides_must_be_those_of_the_view(device):
    arguments = rope_arguments(x=view())
    arguments["strides"][0] += 8
    assert refused(device, "rope", arguments)[0] == BAD_ARGUMENT


def test_factors_that_are_a_view_are_made_contiguous(device):
    factors = np.linspace(1, 3, 2 * D, dtype=np.float32)[::2]
    arguments = rope_arguments(freq_factors=factors)
    device.call("NpuRope", arguments)
    assert np.array_equal(
        arguments["out"], rope(arguments["x"], arguments["positions"], PARAMS, factors, backend="sim")
    )


def test_a_copied_view_is_part_of_the_workspace(device):
    """A copy takes at least 512 bytes."""
    factors = np.linspace(1, 3, 2 * D, dtype=np.float32)[::2]
    arguments = rope_arguments(freq_factors=factors)
    size, executor = device.prepare("NpuRope", arguments)
    assert size == device.prepare("NpuRope", rope_arguments())[0] + 512
    with pytest.raises(
        aclnn.RefusedPhase, match=f"workspace must have {size} bytes but got {size - 1}"
    ) as caught:
        device.run("NpuRope", size, executor, missing_bytes=1)
    assert caught.value.status == BAD_ARGUMENT
    device.run("NpuRope", size, executor)


def test_host_memory_is_refused(device):
    arguments = rope_arguments()
    upload = device.upload
    device.upload = lambda array: array.ctypes.data if array is arguments["x"] else upload(array)
    try:
        status, message = refused(device, "rope", arguments)
    finally:
        device.upload = upload
    assert status == BAD_ARGUMENT
    assert message == "[NpuRope] x must lie inside one allocation of device memory but got other memory."


def test_a_view_beyond_its_allocation_is_refused(device):
    arguments = rope_arguments()
    owner = arguments["x"]
    arguments["x"] = np.lib.stride_tricks.as_strided(owner, (B, S, N, D), [400, 64, 32, 4])
    arguments["strides"] = aclnn.strides_of(arguments["x"], arguments["positions"], arguments["out"])
    status, message = refused(device, "rope", arguments)
    assert status == BAD_ARGUMENT
    assert "x must lie inside one allocation" in message


def test_a_cache_that_shares_memory_with_x_is_refused(device):
    memory = np.ones(400, np.float32)
    arguments = aclnn_calls.arguments(
        "rope_set_rows",
        {
            "x": memory[: S * N * D].reshape(S, N, D),
            "positions": np.arange(S, dtype=np.int32),
            "rows": np.arange(S),
            "cache": memory[N * D :][: 5 * N * D].reshape(5, N, D),
        },
        aclnn_calls.attributes(PARAMS),
    )
    status, message = refused(device, "rope_set_rows", arguments)
    assert status == BAD_ARGUMENT
    assert f"cache must {SHARED} x" in message


# ---- the device's rules ------------------------------------------------------------------------------


@pytest.mark.long
def test_a_kernel_that_breaks_a_rule_is_an_error_and_is_recorded(device, changed_kernel, monkeypatch):
    monkeypatch.setenv("ASCEND_SIM_KERNELS", str(changed_kernel("no order of vector instructions")))
    arguments = rope_arguments()
    launches = device.launches()
    with pytest.raises(aclnn.RefusedPhase, match="SIM-HAZARD") as caught:
        device.call("NpuRope", arguments)
    assert caught.value.status == KERNEL_FAILED
    assert str(caught.value).startswith("[NpuRope] kernel must keep the simulator's rules but got ")
    assert device.launches() == launches + 1
    assert device.report()["errors"]
    assert np.all(arguments["out"] == 99.0)


WRITES_NEAR_THE_END_OF_OUT = """
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


@pytest.mark.long
@pytest.mark.parametrize("offset", [-8, -7, 0])
def test_a_kernel_may_write_only_inside_the_view(device, tmp_path, monkeypatch, offset):
    """Memory beyond the view may belong to other tensors, even in the same allocation."""
    source = tmp_path / "npu_rope.cpp"
    source.write_text(WRITES_NEAR_THE_END_OF_OUT.replace("ELEMENTS", str(S * N * D + offset)))
    types = {"X": "float", "POSITIONS": "int32_t", "FREQ_FACTORS": "float", "OUT": "float"}
    defines = compiler.column_defines("npu_rope", "ascend910b", types)
    monkeypatch.setenv("ASCEND_SIM_KERNELS", str(ascend_sim.build(source, defines=defines, folder=tmp_path)))
    memory = np.zeros(2 * S * N * D, np.float32)
    arguments = rope_arguments(x=np.ones((S, N, D), np.float32), out=memory[: S * N * D].reshape(S, N, D))
    if offset == -8:  # the last eight elements
        device.call("NpuRope", arguments)
        assert np.flatnonzero(memory).tolist() == list(range(S * N * D - 8, S * N * D))
        return
    with pytest.raises(aclnn.RefusedPhase, match="SIM-BOUNDS-03") as caught:
        device.call("NpuRope", arguments)
    assert caught.value.status == KERNEL_FAILED
    assert not memory.any()


def test_a_launch_is_recorded_with_the_simulators_report(device):
    launches = device.launches()
    device.call("NpuRope", rope_arguments())
    assert device.launches() == launches + 1
    assert device.report()["errors"] == []


def test_real_attributes_are_float32(device):
    """CANN stores a real attribute in float32: 0.1 becomes the nearest float32."""
    params = replace(PARAMS, freq_scale=0.1)
    arguments = rope_arguments(freq_scale=0.1, positions=np.array([1, 5000, 1000000], np.int32))
    device.call("NpuRope", arguments)
    x, positions = arguments["x"], arguments["positions"]
    for passed in (params, aclnn_calls.in_float32(params)):
        assert np.array_equal(arguments["out"], rope(x, positions, passed, backend="sim"))
    as_float32 = rope(x, positions, aclnn_calls.in_float32(params), backend="reference")
    as_double = rope(x, positions, params, backend="reference")
    assert np.abs(arguments["out"] - as_float32).max() < 0.1 * np.abs(arguments["out"] - as_double).max()
