"""Behaviour of aclnn's runtime and of CANN's generated code, tested with the operator WeightedAdd.

simulator/docs/programs.md names the source of each in "Behaviours of the real CANN".
"""

from __future__ import annotations

import contextlib
import ctypes as C
import json
import os
import subprocess
import sys
from pathlib import Path

import aclnn
import foreign_operator
import numpy as np
import pytest
from foreign_operator import call, expected

OK, NULL_POINTER, BAD_ARGUMENT, KERNEL_FAILED = 0, 161001, 161002, 361001
INNER, TILING_FAILED, INNER_NULL_POINTER = 561000, 561002, 561103
OP = "WeightedAdd"


def refused(action):
    with pytest.raises(aclnn.RefusedPhase) as caught:
        action()
    return caught.value


def prepare_fails(device, given, **options):
    return refused(lambda: device.prepare(OP, given, **options))


def tiling_runs(device):
    return C.c_int.in_dll(device.tiling_library(), "weighted_add_tilings").value


@pytest.fixture
def prepared(device):
    """A call after its first phase: arguments, bytes of the workspace, executor."""
    given = call()
    size, executor = device.prepare(OP, given)
    return given, size, executor


def download_out(device, given):
    device.download(given["out"])
    return given["out"]


# ---- argument checks ---------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", ["x", "y", "out"])
def test_a_null_tensor_is_found_before_a_bad_attribute(device, name):
    failure = prepare_fails(device, call(**{name: None}, axes=[]))
    assert failure.status == NULL_POINTER
    assert failure.executor is None


def test_a_bad_attribute_is_found_before_bad_types(device):
    half = np.zeros((3, 7), np.float16)
    assert prepare_fails(device, call(out=half, axes=[])).status == INNER_NULL_POINTER
    assert prepare_fails(device, call(out=half)).status == BAD_ARGUMENT


def test_types_are_compared_before_the_tiling_runs(device):
    before = tiling_runs(device)
    half = np.zeros((3, 7), np.float16)
    assert prepare_fails(device, call(out=half, kind=b"other")).status == BAD_ARGUMENT
    assert tiling_runs(device) == before
    assert prepare_fails(device, call(kind=b"other")).status == TILING_FAILED
    assert tiling_runs(device) == before + 1


@pytest.mark.parametrize("like_nd", [0, 1, 2, 30, 31, 47])
def test_public_formats_count_as_nd(device, like_nd):
    device.format = like_nd
    given = call()
    device.call(OP, given)
    assert np.array_equal(given["out"], expected(given))


@pytest.mark.parametrize("private", [3, 29])
def test_a_private_format_has_no_kernel(device, private):
    device.format = private
    failure = prepare_fails(device, call())
    assert failure.status == BAD_ARGUMENT
    assert f"x float32 in format {private}" in str(failure)


def test_a_view_fails_in_the_second_phase_without_auto_or_ignore_contiguous(device):
    given = call(x=np.ones((7, 3), np.float32).T)
    size, executor = device.prepare(OP, given)
    failure = refused(lambda: device.run(OP, size, executor))
    assert failure.status == INNER
    assert not download_out(device, given).any()


def test_a_chip_without_the_operators_kernels_has_no_executor(device):
    device.set_soc("Ascend310P3")
    failure = prepare_fails(device, call(axes=[]))
    assert failure.status == NULL_POINTER
    assert failure.executor is None


def test_a_null_executor_pointer_is_found_before_a_bad_attribute(device):
    assert prepare_fails(device, call(axes=[]), null=("executor",)).status == NULL_POINTER


def test_tiling_data_has_eight_kibibytes(device):
    device.prepare(OP, call())
    assert C.c_int.in_dll(device.tiling_library(), "weighted_add_capacity").value == 8192


@pytest.mark.parametrize(("created_type", "returned_type"), [(0, 0), (27, 27), (28, -1)])
def test_the_undefined_data_type_is_minus_one(device, created_type, returned_type):
    dims, steps, dtype = (C.c_int64 * 1)(4), (C.c_int64 * 1)(1), C.c_int32(7)
    tensor = device.cann.aclCreateTensor(
        dims, C.c_uint64(1), created_type, steps, C.c_int64(0), 2, dims, C.c_uint64(1), None
    )
    assert device.cann.aclGetDataType(C.c_void_p(tensor), C.byref(dtype)) == OK
    assert dtype.value == returned_type
    assert device.cann.aclDestroyTensor(C.c_void_p(tensor)) == OK


# ---- null and zero-length cases ----------------------------------------------------------------------


def test_a_null_workspace_size_succeeds_and_its_second_phase_fails(device):
    """NnopbaseMatchArgs fails, and the generated code treats that error as a hit in the cache of tilings."""
    _, executor = device.prepare(OP, call(), null=("workspace_size",))
    assert executor.value
    assert refused(lambda: device.launch(OP, None, 0, executor)).status == NULL_POINTER


def test_a_call_whose_outputs_are_empty_is_neither_tiled_nor_launched(device):
    before, launches = tiling_runs(device), device.launches()
    empty = np.zeros((0, 7), np.float32)
    given = call(x=empty, y=empty.copy(), out=empty.copy(), kind=b"other")
    size, executor = device.prepare(OP, given)
    assert size == 0
    device.launch(OP, None, 0, executor)
    assert (tiling_runs(device), device.launches()) == (before, launches)


def test_a_view_fails_in_the_second_phase_even_if_the_outputs_are_empty(device):
    empty = np.zeros((0, 7), np.float32)
    given = call(x=np.ones((7, 3), np.float32).T, y=empty, out=empty.copy())
    _, executor = device.prepare(OP, given)
    assert refused(lambda: device.launch(OP, None, 0, executor)).status == INNER


def test_types_of_an_empty_call_are_compared(device):
    empty = np.zeros((0, 7), np.float32)
    given = call(x=empty, y=empty.copy(), out=np.zeros((0, 7), np.float16))
    assert prepare_fails(device, given).status == BAD_ARGUMENT


@pytest.mark.parametrize("kind", ["Int", "Float", "Bool", "Tensor", "Scalar"])
def test_a_list_of_null_is_an_empty_list(device, kind):
    suffix = "List" if kind in ("Tensor", "Scalar") else "Array"
    create = getattr(device.cann, f"aclCreate{kind}{suffix}")
    create.restype = C.c_void_p
    made, count = C.c_void_p(create(None, C.c_uint64(3))), C.c_uint64(7)
    assert made.value
    assert getattr(device.cann, f"aclGet{kind}{suffix}Size")(made, C.byref(count)) == OK
    assert count.value == 0
    assert getattr(device.cann, f"aclDestroy{kind}{suffix}")(made) == OK


def test_a_tensor_without_its_dimensions_and_a_scalar_without_its_value_are_null(device):
    runtime = device.cann
    runtime.aclCreateScalar.restype = C.c_void_p
    two, memory = (C.c_int64 * 2)(2, 3), C.c_void_p()
    arguments = (0, None, C.c_int64(0), 2)
    assert runtime.aclCreateTensor(None, C.c_uint64(2), *arguments, two, C.c_uint64(2), memory) is None
    assert runtime.aclCreateTensor(two, C.c_uint64(2), *arguments, None, C.c_uint64(2), memory) is None
    assert runtime.aclCreateScalar(None, 0) is None
    # A tensor without dimensions and without data is valid.
    made = runtime.aclCreateTensor(None, C.c_uint64(0), *arguments, None, C.c_uint64(0), memory)
    assert made
    assert runtime.aclDestroyTensor(C.c_void_p(made)) == OK


@pytest.mark.parametrize(
    "kind", ["Tensor", "Scalar", "IntArray", "FloatArray", "BoolArray", "TensorList", "ScalarList"]
)
def test_destroying_null_succeeds(device, kind):
    assert getattr(device.cann, f"aclDestroy{kind}")(None) == OK


def test_functions_of_tensors_refuse_null(device):
    somewhere = C.byref(C.c_uint64())
    for name in ("DataType", "Format", "ViewOffset"):
        assert getattr(device.cann, f"aclGet{name}")(None, somewhere) == NULL_POINTER
    for name in ("ViewShape", "ViewStrides", "StorageShape"):
        assert getattr(device.cann, f"aclGet{name}")(None, somewhere, somewhere) == NULL_POINTER
    assert device.cann.aclSetRawTensorAddr(None, None) == NULL_POINTER


def test_functions_of_executors_give_the_inner_null_status(device):
    runtime, handle = device.cann, C.c_void_p(device.tensor(np.zeros(3, np.float32)))
    assert runtime.aclDestroyAclOpExecutor(None) == INNER_NULL_POINTER
    assert runtime.aclSetAclOpExecutorRepeatable(None) == INNER_NULL_POINTER
    assert runtime.aclSetTensorAddr(None, C.c_size_t(0), handle, None) == INNER_NULL_POINTER
    runtime.aclDestroyTensor(handle)


# ---- values that are read once -----------------------------------------------------------------------


def test_a_call_is_tiled_once(device):
    before = tiling_runs(device)
    for alpha in (0.25, 0.125, 0.25, 0.125):
        given = call(alpha=alpha)
        device.call(OP, given)
        assert np.array_equal(given["out"], expected(given))
    assert tiling_runs(device) == before + 2


def test_a_refused_tiling_is_not_cached(device):
    before = tiling_runs(device)
    for _ in range(2):
        prepare_fails(device, call(kind=b"never"))
    assert tiling_runs(device) == before + 2


def view(shape=(3, 7), strides=(7, 1), offset=0, dtype=np.float32):
    """A view of a new array of 64 elements; strides and offset count elements."""
    memory = np.ones(64, dtype)
    return np.lib.stride_tricks.as_strided(memory[offset:], shape, [s * memory.itemsize for s in strides])


def views(**layout):
    return {name: view(**layout) for name in ("x", "y", "out")}


def key_call(serial, changed):
    """A call on views. alpha distinguishes the keys of different tests."""
    return call(**{"alpha": 64.0 + serial, **views(), **changed})


# Each changes one part of the tiling cache's key. All tensors have memories of 64 elements, so their storage
# shape is the same.
KEY_PARTS = {
    "shape": views(shape=(7, 3)),
    "rank": views(shape=(1, 3, 7), strides=(21, 7, 1)),
    "dtype": views(dtype=np.float16),
    "format": {},  # NCHW for ND
    "input strides": {"y": view(strides=(8, 1))},
    "input offset": {"y": view(offset=1)},
    "output strides": {"out": view(strides=(8, 1))},
    "output offset": {"out": view(offset=1)},
    "float": {"alpha": 0.75},
    "text": {"kind": b"never"},
    "list of floats": {"weights": [1.5, 2.5]},
    "list of bools": {"flags": [True, True]},
    "list of ints": {"axes": [1]},
    "bool": {"adds": False},
    "list of ints with an empty default": {"shift": [1]},
    "int": {"copies": 2},
    "chip": {},  # Ascend910B1 for Ascend910B4
}


@pytest.mark.long
@pytest.mark.parametrize("part", KEY_PARTS)
def test_each_part_of_the_key_alone_makes_another_tiling(
    device, foreign_kernel, foreign_half_kernel, monkeypatch, part
):
    monkeypatch.setenv("ASCEND_SIM_KERNELS", f"{foreign_kernel}:{foreign_half_kernel}")
    serial = list(KEY_PARTS).index(part)
    device.call(OP, key_call(serial, {}))
    before = tiling_runs(device)
    if part == "format":
        monkeypatch.setattr(device, "format", 0)
    if part == "chip":
        device.set_soc("Ascend910B1")
    with contextlib.suppress(aclnn.RefusedPhase):  # the tiling counts a call before it refuses it
        device.prepare(OP, key_call(serial, KEY_PARTS[part]))
    assert tiling_runs(device) == before + 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {}),
        ({"weights": [1.5, 0.0], "flags": [True]}, {"weights": [1.5], "flags": [False] * 4 + [True]}),
    ],
    ids=["addresses and elements", "lengths of lists"],
)
def test_the_key_has_neither_addresses_nor_elements_nor_lengths_of_lists(device, first, second):
    """The key concatenates the lists' bytes; four false bools have the bytes of 0.0."""
    serial = len(KEY_PARTS) + len(first)
    one, other = key_call(serial, first), key_call(serial, second)
    for name in ("x", "y", "out"):
        other[name][...] = 2
    # CANN does not reuse the tiling of an executor that has not run yet.
    device.run(OP, *device.prepare(OP, one))
    before = tiling_runs(device)
    device.run(OP, *device.prepare(OP, other))
    assert tiling_runs(device) == before
    assert len(set(device.memories.values())) == 6


ONE_PROCESS = """
import ctypes, os, sys
import aclnn
from pathlib import Path
from foreign_operator import call
device = aclnn.Device.open(Path(sys.argv[1]))
device.set_soc("Ascend910B4")
os.environ.update(item.split("=") for item in sys.argv[2:])
for _ in range(3):
    device.call("WeightedAdd", call())
    os.environ.update({"DISABLE_L2_CACHE": "1", "ACLNN_CACHE_LIMIT": "0"})
print(ctypes.c_int.in_dll(device.tiling_library(), "weighted_add_tilings").value)
"""


@pytest.mark.parametrize(
    ("before_loading", "before_the_first_call", "count"),
    [
        ({}, [], 1),
        ({"ACLNN_CACHE_LIMIT": "0"}, ["ACLNN_CACHE_LIMIT=100"], 3),
        pytest.param({}, ["ACLNN_CACHE_LIMIT=0"], 1, marks=pytest.mark.slow),
        pytest.param({"ACLNN_CACHE_LIMIT": "many"}, [], 1, marks=pytest.mark.slow),
        # std::stoull reads -1 as the largest number, and refuses one that is too large and no number at all.
        *(
            pytest.param({"ACLNN_CACHE_LIMIT": limit, "DISABLE_L2_CACHE": l2}, [], 1, marks=pytest.mark.slow)
            for limit, l2 in (
                ("", ""),
                ("-1", "-1"),
                ("9" * 30, "9" * 30),
                ("\udcff", "\udcff"),
                ("5x", "yes"),
            )
        ),
        ({}, ["DISABLE_L2_CACHE=1"], 3),
        ({"DISABLE_L2_CACHE": "1"}, ["DISABLE_L2_CACHE=0"], 1),
    ],
)
def test_the_environment_of_the_cache_is_read_once(
    foreign_package, foreign_kernel, before_loading, before_the_first_call, count
):
    """ACLNN_CACHE_LIMIT is read when the library is loaded, DISABLE_L2_CACHE at the first call."""
    environment = {k: v for k, v in os.environ.items() if k not in ("ACLNN_CACHE_LIMIT", "DISABLE_L2_CACHE")}
    done = subprocess.run(
        [sys.executable, "-c", ONE_PROCESS, str(foreign_package), *before_the_first_call],
        env={
            **environment,
            **before_loading,
            "ASCEND_SIM_KERNELS": str(foreign_kernel),
            "PYTHONPATH": str(Path(__file__).parent),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == count


# ---- literals in generated code ----------------------------------------------------------------------


def test_defaults_of_floats_have_six_digits(foreign_package):
    """alpha's default is 0.123456789f in the definition."""
    described = json.loads((foreign_package / "op_api/include/aic-ascend910b-ops-info.json").read_text())
    alphas = [operator["attr_alpha"] for operator in described.values() if "attr_alpha" in operator]
    assert [alpha["defaultValue"] for alpha in alphas] == ["0.123457"]


# ---- object lifetimes --------------------------------------------------------------------------------


def test_tensors_and_arrays_may_be_destroyed_between_the_phases(device):
    """Device.prepare destroys the tensors and the arrays."""
    given = call(weights=[1.5], flags=[True])
    size, executor = device.prepare(OP, given)
    device.run(OP, size, executor)
    assert np.array_equal(download_out(device, given), expected(given))


def test_an_executor_stays_usable_after_a_short_workspace(device, prepared):
    given, size, executor = prepared
    assert refused(lambda: device.run(OP, size, executor, missing_bytes=1)).status == BAD_ARGUMENT
    assert refused(lambda: device.launch(OP, None, size, executor)).status == NULL_POINTER
    device.run(OP, size, executor)
    assert np.array_equal(download_out(device, given), expected(given))


def test_an_executor_runs_once(device, prepared):
    _, size, executor = prepared
    device.run(OP, size, executor)
    failure = refused(lambda: device.run(OP, size, executor))
    assert failure.status == NULL_POINTER
    assert "executor must come from a first phase that succeeded" in str(failure)


def test_a_failure_on_the_device_uses_up_the_executor(device, prepared):
    _, size, executor = prepared
    device.free_tensors()
    failure = refused(lambda: device.run(OP, size, executor))
    assert failure.status == KERNEL_FAILED
    assert "memory that was freed" in str(failure)
    assert refused(lambda: device.run(OP, size, executor)).status == NULL_POINTER


def test_a_failed_first_phase_leaves_an_executor_that_does_not_run(device):
    failure = prepare_fails(device, call(kind=b"other"))
    assert failure.executor
    executor = C.c_void_p(failure.executor)
    second = refused(lambda: device.launch(OP, None, 0, executor))
    assert second.status == NULL_POINTER
    assert f"Its first phase failed: {failure}" in str(second)
    assert device.cann.aclDestroyAclOpExecutor(executor) == OK


def test_an_executor_returns_to_its_operators_pool(device, prepared):
    _, size, executor = prepared
    _, other = device.prepare(OP, call())
    assert other.value != executor.value
    device.run(OP, size, executor)
    assert device.prepare(OP, call())[1].value == executor.value
    assert device.cann.aclDestroyAclOpExecutor(other) == OK
    assert device.prepare(OP, call())[1].value == other.value


# ---- executor reuse ----------------------------------------------------------------------------------


def test_a_repeatable_executor_runs_again_until_it_is_destroyed(device, prepared):
    given, size, executor = prepared
    assert device.cann.aclSetAclOpExecutorRepeatable(executor) == OK
    for _ in range(3):
        given["out"][:] = 0
        device.run(OP, size, executor)
        assert np.array_equal(download_out(device, given), expected(given))
    assert device.cann.aclDestroyAclOpExecutor(executor) == OK
    assert refused(lambda: device.run(OP, size, executor)).status == NULL_POINTER


@pytest.mark.parametrize("function", ["aclSetTensorAddr", "AclSetTensorAddr", "aclSetInputTensorAddr"])
def test_an_input_gets_another_address(device, prepared, function):
    given, size, executor = prepared
    assert device.cann.aclSetAclOpExecutorRepeatable(executor) == OK
    other = np.full((3, 7), 5, np.float32)
    handle = C.c_void_p(device.tensor(other))
    address = C.c_void_p(device.upload(other))
    assert getattr(device.cann, function)(executor, C.c_size_t(1), handle, address) == OK
    device.run(OP, size, executor)
    assert np.array_equal(download_out(device, given), expected({**given, "y": other}))
    device.cann.aclDestroyTensor(handle)


@pytest.mark.parametrize(("function", "index"), [("aclSetTensorAddr", 2), ("aclSetOutputTensorAddr", 0)])
def test_an_output_gets_another_address(device, prepared, function, index):
    """aclSetTensorAddr counts inputs and then outputs; aclSetOutputTensorAddr counts outputs only."""
    given, size, executor = prepared
    other = np.zeros((3, 7), np.float32)
    handle = C.c_void_p(device.tensor(other))
    address = C.c_void_p(device.upload(other))
    assert getattr(device.cann, function)(executor, C.c_size_t(index), handle, address) == OK
    device.run(OP, size, executor)
    device.download(other)
    assert np.array_equal(other, expected(given))
    assert not download_out(device, given).any()
    device.cann.aclDestroyTensor(handle)


@pytest.mark.parametrize(
    ("function", "index"),
    [("aclSetTensorAddr", 3), ("aclSetInputTensorAddr", 2), ("aclSetOutputTensorAddr", 1)],
)
def test_an_index_beyond_the_tensors_is_refused(device, prepared, function, index):
    _, _, executor = prepared
    handle = C.c_void_p(device.tensor(np.zeros((3, 7), np.float32)))
    set_address = getattr(device.cann, function)
    assert set_address(executor, C.c_size_t(index), handle, None) == BAD_ARGUMENT
    assert set_address(executor, C.c_size_t(0), None, None) == INNER_NULL_POINTER
    device.cann.aclDestroyTensor(handle)


def test_another_address_must_be_device_memory(device, prepared):
    _, size, executor = prepared
    other = np.zeros((3, 7), np.float32)
    handle = C.c_void_p(device.tensor(other))
    address = C.c_void_p(other.ctypes.data)
    assert device.cann.aclSetTensorAddr(executor, C.c_size_t(0), handle, address) == OK
    failure = refused(lambda: device.run(OP, size, executor))
    assert failure.status == BAD_ARGUMENT
    assert "x must lie inside one allocation of device memory" in str(failure)
    device.cann.aclDestroyTensor(handle)


# ---- workspace contents ------------------------------------------------------------------------------


def test_a_workspace_must_be_live_device_memory(device, prepared):
    given, size, executor = prepared
    freed = device.allocate(size)
    device.free(freed)
    failure = refused(lambda: device.launch(OP, freed, size, executor))
    assert failure.status == KERNEL_FAILED
    assert "workspace must lie inside one allocation" in str(failure)
    assert not download_out(device, given).any()


def test_a_workspace_is_overwritten_after_the_kernel(device, prepared):
    _, size, executor = prepared
    workspace = device.allocate(size)
    C.memset(workspace, 0, size)
    device.launch(OP, workspace, size, executor)
    assert any(C.string_at(workspace, 4096))
    device.free(workspace)


READS_ITS_WORKSPACE = """
#include "kernel_operator.h"
#include "weighted_add_tiling.h"
extern "C" __global__ __aicore__ void weighted_add(GM_ADDR x, GM_ADDR y, GM_ADDR z, GM_ADDR workspace,
                                                   GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(WeightedAddTilingData);
    GET_TILING_DATA(td, tiling);
    if (!TILING_KEY_IS(1)) return;
    using namespace AscendC;
    TPipe pipe;
    TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> queue;
    pipe.InitBuffer(queue, 1, 64);
    GlobalTensor<float> from, to;
    from.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(workspace));
    to.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(z));
    LocalTensor<float> a = queue.AllocTensor<float>();
    DataCopy(a, from, 16);
    queue.EnQue(a);
    a = queue.DeQue<float>();
    DataCopy(to, a, 16);
    queue.FreeTensor(a);
}
"""


def test_a_kernel_that_reads_a_fresh_workspace_is_reported(device, tmp_path, monkeypatch):
    """A workspace contains the bytes of the memory's earlier use, not zeros."""
    source = tmp_path / "reads_its_workspace.cpp"
    source.write_text(READS_ITS_WORKSPACE)
    kernel = foreign_operator.build_kernel(tmp_path, source)
    monkeypatch.setenv("ASCEND_SIM_KERNELS", str(kernel))
    given = call()
    failure = refused(lambda: device.call(OP, given))
    assert failure.status == KERNEL_FAILED
    assert "SIM-INIT-01" in str(failure)
