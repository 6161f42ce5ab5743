"""Handles of aclnn and aclop, contexts, attributes of the chip, options and functions that are not simulated,
through C and without torch. Each check runs in a separate process.

usage: handle_rules.py LIBRARY [CHECK ...]
"""

import ctypes as C
import json
import os
import tempfile
import threading

from forked_checks import run_checks
from stream_rules import (
    CANN,
    CONTEXT_NULL,
    INVALID,
    IS_310P,
    KERNEL,
    NO_DEVICE,
    NOT_SUPPORTED,
    OK,
    RT_INVALID,
    STOP,
    error_text,
    fail_on,
    make_memory,
    make_stream,
)

ACLNN_NULL, INNER_NULL, INNER, NOT_SIMULATED, NO_FILE = 161001, 561103, 561000, 200001, 100003
HALF = 1
for name in ("Scalar", "IntArray", "FloatArray", "BoolArray", "TensorList", "ScalarList", "Tensor"):
    getattr(CANN, f"aclCreate{name}").restype = C.c_void_p
CANN.aclCreateDataBuffer.restype = CANN.aclopCreateAttr.restype = C.c_void_p
CANN.aclGetCompileoptSize.restype = C.c_size_t
CANN.simulated_cann_calls_beyond_documents.restype = C.c_char_p


def calls_beyond_documents():
    """The names of the functions in the report's entry."""
    return [text.split()[0] for text in json.loads(CANN.simulated_cann_calls_beyond_documents())]


def in_another_thread(run):
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def numbers(values):
    return (C.c_int64 * max(len(values), 1))(*values)


def make_tensor(shape, strides=None, offset=0, storage=(), form=2, dtype=HALF, data=None):
    return C.c_void_p(
        CANN.aclCreateTensor(
            numbers(shape), C.c_uint64(len(shape)), dtype, None if strides is None else numbers(strides),
            C.c_int64(offset), form, numbers(storage), C.c_uint64(len(storage)), data,
        )
    )  # fmt: skip


def list_of(call, tensor):
    values, count = C.POINTER(C.c_int64)(), C.c_uint64(77)
    assert getattr(CANN, call)(tensor, C.byref(values), C.byref(count)) == OK
    return [values[i] for i in range(count.value)]


def number_of(call, tensor, kind=C.c_int32):
    value = kind(-7)
    assert getattr(CANN, call)(tensor, C.byref(value)) == OK
    return value.value


# ---- handles of aclnn --------------------------------------------------------------------------------


def check_a_tensor_keeps_its_values():
    data = make_memory()
    tensor = make_tensor([2, 3], [1, 2], 4, [10], 29, 27, data)
    assert list_of("aclGetViewShape", tensor) == [2, 3]
    assert list_of("aclGetViewStrides", tensor) == [1, 2]
    assert list_of("aclGetStorageShape", tensor) == [10]
    assert number_of("aclGetViewOffset", tensor, C.c_int64) == 4
    assert (number_of("aclGetDataType", tensor), number_of("aclGetFormat", tensor)) == (27, 29)
    assert number_of("aclGetRawTensorAddr", tensor, C.c_size_t) == data.value
    assert CANN.aclSetRawTensorAddr(tensor, C.c_void_p(64)) == OK
    assert number_of("aclGetRawTensorAddr", tensor, C.c_size_t) == 64
    assert CANN.aclDestroyTensor(tensor) == OK
    assert list_of("aclGetViewStrides", make_tensor([2, 3, 4])) == [12, 4, 1]
    assert list_of("aclGetViewShape", make_tensor([])) == []
    assert number_of("aclGetDataType", make_tensor([1], dtype=28)) == -1  # undefined


def check_a_null_argument_of_a_tensor():
    tensor, value, values = make_tensor([1]), C.c_int64(), C.POINTER(C.c_int64)()
    for call in ("aclGetViewShape", "aclGetViewStrides", "aclGetStorageShape"):
        get = getattr(CANN, call)
        assert get(None, C.byref(values), C.byref(value)) == ACLNN_NULL
        assert get(tensor, None, C.byref(value)) == ACLNN_NULL
        assert get(tensor, C.byref(values), None) == ACLNN_NULL
    for call in ("aclGetViewOffset", "aclGetDataType", "aclGetFormat", "aclGetRawTensorAddr"):
        assert getattr(CANN, call)(None, C.byref(value)) == ACLNN_NULL
        assert getattr(CANN, call)(tensor, None) == ACLNN_NULL
    assert CANN.aclSetRawTensorAddr(None, C.c_void_p(64)) == ACLNN_NULL
    for shape, dims, storage, storage_dims in ((None, 1, numbers([1]), 1), (numbers([1]), 1, None, 1)):
        made = CANN.aclCreateTensor(
            shape, C.c_uint64(dims), 0, None, C.c_int64(0), 2, storage, C.c_uint64(storage_dims), None
        )
        assert made is None
        assert "aclCreateTensor: viewDims and storageDims must not be null." in error_text()
    none = C.c_uint64(0)
    assert CANN.aclCreateTensor(None, none, 0, None, C.c_int64(0), 2, None, none, None) is not None


def check_a_scalar_has_the_type_of_a_number():
    value = (C.c_uint8 * 16)()
    for dtype in (0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 16, 17, 27, *range(34, 42)):
        assert CANN.aclCreateScalar(value, dtype) is not None, dtype
        assert CANN.aclCreateScalar(None, dtype) is None
    for dtype in (5, 13, 28, 33, 42, -1):
        assert CANN.aclCreateScalar(value, dtype) is None
        assert f"dataType must be the type of a number but got {dtype}." in error_text()


def check_a_scalar_keeps_the_bytes_of_its_type():
    """A tensor that the scalar fills has them."""
    value = C.create_string_buffer(bytes(range(1, 17)), 16)
    for dtype, count in ((2, 1), (27, 2), (6, 2), (1, 2), (0, 4), (3, 4), (9, 8), (11, 8), (16, 8), (17, 16)):
        at = make_memory(32, value=0)
        tensor, bytes_, executor = (
            make_tensor([2], storage=[2], dtype=dtype, data=at),
            C.c_uint64(),
            C.c_void_p(),
        )
        scalar = C.c_void_p(CANN.aclCreateScalar(value, dtype))
        prepare = CANN.aclnnInplaceFillScalarGetWorkspaceSize
        assert prepare(tensor, scalar, C.byref(bytes_), C.byref(executor)) == OK, (dtype, error_text())
        assert CANN.aclDestroyScalar(scalar) == OK
        assert CANN.aclnnInplaceFillScalar(None, bytes_, executor, None) == OK
        assert CANN.aclrtSynchronizeStream(None) == OK
        assert C.string_at(at, 2 * count) == value.raw[:count] * 2, dtype


def check_lists_have_sizes():
    count = C.c_uint64()
    for name, values in (
        ("IntArray", numbers([1, 2, 3])),
        ("FloatArray", (C.c_float * 3)()),
        ("BoolArray", (C.c_bool * 3)()),
        ("TensorList", (C.c_void_p * 3)(*(make_tensor([1]).value for _ in range(3)))),
        ("ScalarList", (C.c_void_p * 3)(*(CANN.aclCreateScalar(numbers([1]), 9) for _ in range(3)))),
    ):
        create, size_of = getattr(CANN, f"aclCreate{name}"), getattr(CANN, f"aclGet{name}Size")
        for given, wanted in ((values, 3), (None, 0)):  # NULL: an empty list for every count
            made = C.c_void_p(create(given, C.c_uint64(3)))
            assert size_of(made, C.byref(count)) == OK
            assert count.value == wanted
            assert size_of(made, None) == size_of(None, C.byref(count)) == ACLNN_NULL
            assert getattr(CANN, f"aclDestroy{name}")(made) == OK
        assert getattr(CANN, f"aclDestroy{name}")(None) == OK


def check_the_executor_of_a_stand_in():
    """Its addresses cannot be changed, and it runs once. The tensor's address changes nevertheless."""
    at, junk = make_memory(16, value=0), C.c_void_p(64)
    tensor, bytes_, executor = make_tensor([4], storage=[4], dtype=0, data=at), C.c_uint64(), C.c_void_p()
    prepare = CANN.aclnnInplaceOneGetWorkspaceSize
    assert prepare(tensor, C.byref(bytes_), C.byref(executor)) == OK
    for name in ("aclSetTensorAddr", "aclSetInputTensorAddr", "aclSetOutputTensorAddr"):
        for call in (getattr(CANN, name), getattr(CANN, f"A{name[1:]}")):
            assert CANN.aclSetRawTensorAddr(tensor, at) == OK
            assert call(executor, C.c_size_t(0), None, junk) == INNER_NULL
            assert "tensor must not be null." in error_text()
            assert call(None, C.c_size_t(0), tensor, junk) == INNER_NULL
            assert "executor must not be null." in error_text()
            assert call(executor, C.c_size_t(0), tensor, junk) == INNER
            assert "changing the addresses of aclnnInplaceOne is not simulated." in error_text()
            assert number_of("aclGetRawTensorAddr", tensor, C.c_size_t) == junk.value
    for name in ("aclSetDynamicTensorAddr", "aclSetDynamicInputTensorAddr", "aclSetDynamicOutputTensorAddr"):
        assert getattr(CANN, name)(executor, C.c_size_t(0), C.c_size_t(0), None, junk) == INNER
        assert f"{name} is not simulated, because" in error_text()
    assert CANN.aclSetAclOpExecutorRepeatable(None) == CANN.aclDestroyAclOpExecutor(None) == INNER_NULL
    assert CANN.aclSetAclOpExecutorRepeatable(executor) == INNER
    assert "is not simulated for aclnnInplaceOne." in error_text()
    assert CANN.aclDestroyAclOpExecutor(executor) == OK
    assert CANN.aclnnInplaceOne(None, bytes_, executor, None) == 161002


# ---- aclop -------------------------------------------------------------------------------------------


def check_attributes_and_operators_of_aclop():
    attributes, listed = C.c_void_p(CANN.aclopCreateAttr()), (C.c_int64 * 1)(1)
    calls = {
        **dict.fromkeys(("Bool", "Int", "DataType"), (1,)),
        "Float": (C.c_float(1),),
        "String": (b"text",),
        **dict.fromkeys(("ListBool", "ListInt", "ListFloat"), (1, listed)),
        "ListListInt": (1, listed, None),
    }
    for kind, value in calls.items():
        call = getattr(CANN, f"aclopSetAttr{kind}")
        assert call(attributes, b"name", *value) == OK
        assert call(None, b"name", *value) == call(attributes, None, *value) == INVALID
    CANN.aclopDestroyAttr(attributes)
    buffer = C.c_void_p(CANN.aclCreateDataBuffer(listed, C.c_size_t(8)))
    assert buffer
    assert CANN.aclDestroyDataBuffer(buffer) == OK
    assert CANN.aclDestroyDataBuffer(None) == INVALID
    for count in (0, 8):
        assert CANN.aclCreateDataBuffer(None, C.c_size_t(count))
        assert calls_beyond_documents() == (["aclCreateDataBuffer:"] if count else [])
    for call in (CANN.aclopCompileAndExecute, CANN.aclopCompileAndExecuteV2):
        assert call(b"Range", 0, None, None, 0, None, None, None, 0, 0, None, None) == NOT_SIMULATED
        assert "aclop operator Range is not simulated" in error_text()
        assert call(None, 0, None, None, 0, None, None, None, 0, 0, None, None) == NOT_SIMULATED


def check_options_of_the_compiler():
    text = C.create_string_buffer(16)
    jit, other = 10, 3
    assert CANN.aclGetCompileoptSize(jit) == len("disable") + 1
    assert CANN.aclGetCompileopt(jit, text, C.c_size_t(8)) == OK
    assert text.value == b"disable"
    assert CANN.aclGetCompileopt(jit, text, C.c_size_t(7)) == INVALID
    assert CANN.aclGetCompileopt(jit, None, C.c_size_t(8)) == INVALID
    assert CANN.aclSetCompileopt(jit, None) == INVALID
    assert CANN.aclSetCompileopt(jit, b"enable") == OK
    assert CANN.aclGetCompileopt(jit, text, C.c_size_t(16)) == OK
    assert text.value == b"enable"
    assert CANN.aclGetCompileoptSize(other) == 1
    assert CANN.aclGetCompileopt(other, text, C.c_size_t(1)) == OK
    assert text.value == b""


# ---- contexts and devices ----------------------------------------------------------------------------


def current_context():
    found = C.c_void_p()
    return CANN.aclrtGetCurrentContext(C.byref(found)), found.value


def check_contexts():
    made, device = C.c_void_p(), C.c_int32(-1)
    status, primary = current_context()
    assert (status, bool(primary)) == (OK, True)
    assert CANN.aclrtCreateContext(C.byref(made), 0) == OK
    assert current_context() == (OK, made.value)
    assert CANN.aclrtSetCurrentContext(C.c_void_p(primary)) == OK
    assert current_context() == (OK, primary)
    assert CANN.aclrtSetCurrentContext(made) == OK
    assert CANN.aclrtDestroyContext(made) == OK
    assert current_context()[0] == CONTEXT_NULL
    assert CANN.aclrtGetDevice(C.byref(device)) == CONTEXT_NULL
    assert CANN.aclrtSetCurrentContext(made) == RT_INVALID
    assert CANN.aclrtDestroyContext(made) == CANN.aclrtDestroyContext(C.c_void_p(primary)) == CONTEXT_NULL
    assert CANN.aclrtSetCurrentContext(C.c_void_p(primary)) == OK
    assert CANN.aclrtGetDevice(C.byref(device)) == OK
    assert device.value == 0
    for status in (
        CANN.aclrtCreateContext(None, 0),
        CANN.aclrtDestroyContext(None),
        CANN.aclrtSetCurrentContext(None),
        CANN.aclrtGetCurrentContext(None),
        CANN.aclrtGetDevice(None),
        CANN.aclrtGetDeviceCount(None),
    ):
        assert status == INVALID
    assert CANN.aclrtCreateContext(C.byref(made), 1) == NO_DEVICE
    assert CANN.aclrtResetDevice(0) == OK
    assert CANN.aclrtSetCurrentContext(C.c_void_p(primary)) == RT_INVALID
    assert current_context()[0] == CONTEXT_NULL
    assert CANN.aclrtCreateContext(C.byref(made), 0) == OK  # also without aclrtSetDevice
    assert CANN.aclrtSynchronizeStream(make_stream()) == OK


def check_access_of_one_device_to_another():
    status, count = C.c_int32(7), C.c_uint32()
    assert CANN.aclrtGetDeviceCount(C.byref(count)) == OK
    assert count.value == 1
    for call in (lambda peer: CANN.aclrtDeviceEnablePeerAccess(peer, 0), CANN.aclrtDeviceDisablePeerAccess):
        assert (call(0), call(1), call(-1)) == (INVALID, NO_DEVICE, NO_DEVICE)
    assert CANN.aclrtDeviceEnablePeerAccess(1, 1) == NOT_SIMULATED
    assert CANN.aclrtDevicePeerAccessStatus(0, 0, C.byref(status)) == OK
    assert status.value == 0
    for pair in ((0, 1), (1, 0), (-1, 0), (0, -1)):
        assert CANN.aclrtDevicePeerAccessStatus(*pair, C.byref(status)) == RT_INVALID
    assert CANN.aclrtDevicePeerAccessStatus(0, 0, None) == INVALID
    found = []

    def without_a_device():
        found.extend([CANN.aclrtDeviceEnablePeerAccess(1, 0), CANN.aclrtDeviceDisablePeerAccess(1)])

    thread = threading.Thread(target=without_a_device)
    thread.start()
    thread.join()
    assert found == [CONTEXT_NULL] * 2


def check_attributes_of_the_chip():
    """Ascend910B2: 24 AI cores, 48 vector cores and an L2 of 192 MiB."""
    value, cores = C.c_int64(-1), {0: 24, 1: 48, 2: 192 << 20}
    for attribute, wanted in cores.items():
        assert CANN.aclGetDeviceCapability(0, attribute, C.byref(value)) == OK
        assert value.value == wanted
    for attribute, wanted in {101: 24, 102: 24, 201: 48, 302: 192 << 20}.items():
        assert CANN.aclrtGetDeviceInfo(0, attribute, C.byref(value)) == OK
        assert value.value == wanted
    for attribute in (1, 202, 212, 301, 401, 409, 501, 601):
        assert CANN.aclrtGetDeviceInfo(0, attribute, C.byref(value)) == NOT_SIMULATED
        assert f"attribute {attribute} is not simulated" in error_text()
    for attribute in (-1, 0, 2, 100, 103, 200, 213, 303, 400, 410, 502, 602, 700, 701):
        assert CANN.aclrtGetDeviceInfo(0, attribute, C.byref(value)) == RT_INVALID, attribute
    for attribute in (-1, 3):
        assert CANN.aclGetDeviceCapability(0, attribute, C.byref(value)) == INVALID
    for call, attribute, unknown in (
        (CANN.aclGetDeviceCapability, 0, INVALID),
        (CANN.aclrtGetDeviceInfo, 101, RT_INVALID),
    ):
        for device in (1, -1):
            assert call(device, attribute, C.byref(value)) == unknown
        assert call(1, attribute, None) == INVALID
    assert CANN.aclrtGetDeviceInfo(1, 0, C.byref(value)) == RT_INVALID
    assert "deviceId must be a device that is simulated but got 1." in error_text()


def check_features_of_the_chip():
    """Infinity and NaN, bfloat16, compilation at run time. Only those that the chip has are listed."""
    kind, listed, count = C.c_int32(), C.POINTER(C.c_int32)(), C.c_size_t()
    assert CANN.aclGetCannAttributeList(C.byref(listed), C.byref(count)) == OK
    assert listed[: count.value] == ([2] if IS_310P else [0, 1, 2])
    assert CANN.aclGetCannAttributeList(None, C.byref(count)) == INVALID
    assert CANN.aclGetCannAttributeList(C.byref(listed), None) == INVALID
    found = []
    for attribute in range(3):
        assert CANN.aclGetCannAttribute(attribute, C.byref(kind)) == OK
        found.append(kind.value)
    assert found == [not IS_310P, not IS_310P, True]
    for attribute, to in ((-1, C.byref(kind)), (3, C.byref(kind)), (0, None)):
        assert CANN.aclGetCannAttribute(attribute, to) == INVALID


def check_the_uuid_of_a_device():
    """The document does not list Ascend310P."""
    uuid = C.create_string_buffer(b"\xff" * 20, 20)
    assert CANN.aclrtDeviceGetUuid(0, uuid) == OK
    assert uuid.raw == b"ascend_sim 0000\0\xff\xff\xff\xff"
    assert CANN.aclrtDeviceGetUuid(0, None) == INVALID
    assert CANN.aclrtDeviceGetUuid(1, uuid) == NO_DEVICE
    assert calls_beyond_documents() == (["aclrtDeviceGetUuid"] if IS_310P else [])


def check_faults_of_memory():
    count, place = C.c_size_t(7), C.c_size_t()
    more = (C.c_size_t(1), C.byref(count))
    assert CANN.aclrtGetMemUceInfo(9, None, *more) == INVALID
    assert CANN.aclrtGetMemUceInfo(9, C.byref(place), C.c_size_t(1), None) == INVALID
    for device, status in ((0, OK), (1, NO_DEVICE), (-1, NO_DEVICE)):
        wanted = NOT_SUPPORTED if IS_310P else status
        assert CANN.aclrtGetMemUceInfo(device, C.byref(place), *more) == wanted
    assert count.value == (7 if IS_310P else 0)


def check_timeouts_of_operators():
    """The effective one is a multiple of an interval of the chip, at most 254 of them."""
    interval, actual, found = 2147483.648 if IS_310P else 4294967.296, C.c_uint64(7), []
    assert CANN.aclrtSetOpExecuteTimeOutV2(C.c_uint64(9), None) == INVALID
    for timeout, intervals in (
        (1, 1),
        (int(interval), 1),
        (int(interval) + 1, 2),
        (0, 254),
        (2**64 - 1, 254),
    ):
        assert CANN.aclrtSetOpExecuteTimeOutV2(C.c_uint64(timeout), C.byref(actual)) == OK
        assert actual.value == int(intervals * interval), timeout
    assert CANN.aclrtSetOpExecuteTimeOut(3) == CANN.aclrtSetOpWaitTimeout(3) == OK
    assert calls_beyond_documents() == (["aclrtSetOpWaitTimeout"] if IS_310P else [])

    def without_context():
        found.append(CANN.aclrtSetOpExecuteTimeOutV2(C.c_uint64(9), C.byref(actual)))
        found.append(CANN.aclrtSetOpWaitTimeout(3))
        found.append(CANN.aclrtSetOpExecuteTimeOut(3))

    in_another_thread(without_context)
    assert found == [CONTEXT_NULL, CONTEXT_NULL if IS_310P else OK, OK]


def check_the_last_error_of_a_thread():
    """It is the last status of the runtime that a call of the thread returned."""
    one, found = make_stream(), []
    assert CANN.aclrtGetLastError(0) == CANN.aclrtPeekAtLastError(0) == OK
    for level in (1, -1, 2):
        assert CANN.aclrtGetLastError(level) == CANN.aclrtPeekAtLastError(level) == INVALID
    assert CANN.aclrtSynchronizeStreamWithTimeout(one, 0) == RT_INVALID
    assert CANN.aclrtSynchronizeStream(one) == OK
    assert CANN.aclrtMalloc(None, C.c_size_t(1), 0) == INVALID  # acl's status
    in_another_thread(lambda: found.append(CANN.aclrtPeekAtLastError(0)))
    assert found == [OK]
    assert CANN.aclrtPeekAtLastError(0) == CANN.aclrtGetLastError(0) == RT_INVALID
    assert CANN.aclrtPeekAtLastError(0) == CANN.aclrtGetLastError(0) == OK
    in_another_thread(
        lambda: found.extend([CANN.aclrtGetDevice(C.byref(C.c_int32())), CANN.aclrtGetLastError(0)])
    )
    assert found[1:] == [CONTEXT_NULL, OK]  # no error, by the runtime's source


def check_the_error_of_work_is_the_last_one_of_its_wait():
    one = make_stream()
    fail_on(one)
    for _ in range(20):  # runs the work
        assert CANN.aclrtStreamQuery(one, C.byref(C.c_int32())) == OK
        assert CANN.aclrtPeekAtLastError(0) == OK
    assert CANN.aclrtSynchronizeStream(one) == CANN.aclrtGetLastError(0) == KERNEL
    two = make_stream(STOP)
    fail_on(two)
    assert CANN.aclrtSynchronizeDevice() == CANN.aclrtGetLastError(0) == KERNEL
    assert CANN.aclrtSynchronizeStream(one) == CANN.aclrtGetLastError(0) == KERNEL


def check_calls_without_an_effect():
    data = C.create_string_buffer(8)
    for call, more in (
        (CANN.MsprofRegisterCallback, ()),
        (CANN.MsprofReportApi, ()),
        (CANN.MsprofReportCompactInfo, (8,)),
        (CANN.MsprofReportAdditionalInfo, (8,)),
    ):
        assert call(0, data, *more) == 0
        assert call(0, None, *more) == -1
    CANN.MsprofGetHashId.restype = CANN.MsprofSysCycleTime.restype = C.c_uint64
    hashes = [CANN.MsprofGetHashId(*one) for one in ((b"ab", C.c_size_t(2)), (b"abc", C.c_size_t(3)))]
    assert len({0, *hashes}) == 3
    assert CANN.MsprofGetHashId(b"abc", C.c_size_t(2)) == hashes[0]
    assert CANN.MsprofGetHashId(None, C.c_size_t(2)) == 2**64 - 1
    assert CANN.MsprofGetHashId(b"abc", C.c_size_t(0)) == 2**64 - 1
    first = CANN.MsprofSysCycleTime()
    assert 0 < first <= CANN.MsprofSysCycleTime()


def check_versions():
    text, version = (C.create_string_buffer(b"\xff" * count, count) for count in (128, 520))
    for home in (None, "", "/no folder", __file__, os.curdir):
        os.environ.pop("ASCEND_HOME_PATH", None)
        if home is not None:
            os.environ["ASCEND_HOME_PATH"] = home
        wanted = OK if home == os.curdir else NO_FILE
        assert CANN.aclsysGetVersionStr(b"runtime", text) == wanted, home
        assert CANN.aclsysGetCANNVersion(0, version) == wanted, home
        assert CANN.aclsysGetCANNVersion(8, version) == INVALID
    text, version = (C.create_string_buffer(b"\xff" * count, count) for count in (128, 520))
    for package in (b"runtime", b"ops_math", b"ops-math", b"pyACL", b"bisheng-compiler", b"hccl"):
        assert CANN.aclsysGetVersionStr(package, text) == OK
        assert text.raw[:7] == b"9.1.0\0\xff"
    for package in (b"driver", b"", b"Runtime"):
        assert CANN.aclsysGetVersionStr(package, text) == NO_FILE
        assert f"share/info must have the package {package.decode()}." in error_text()
    assert CANN.aclsysGetVersionStr(None, text) == CANN.aclsysGetVersionStr(b"runtime", None) == INVALID
    for package in range(7):
        assert CANN.aclsysGetCANNVersion(package, version) == OK
        found = [version.raw[at:].partition(b"\0")[0] for at in (0, 128, 192, 256, 320)]
        assert found == [b"9.1.0", b"9", b"1", b"0", b"0"]
        assert version.raw[512:] == b"\xff" * 8
    assert CANN.aclsysGetCANNVersion(7, version) == NO_FILE
    assert CANN.aclsysGetCANNVersion(-1, version) == CANN.aclsysGetCANNVersion(8, version) == INVALID
    assert CANN.aclsysGetCANNVersion(0, None) == INVALID


def check_a_log_without_its_texts_is_not_written():
    os.environ.update(ASCEND_GLOBAL_LOG_LEVEL="0", ASCEND_SLOG_PRINT_TO_STDOUT="1")
    texts = (b"function", b"file", 7, b"format")
    reader, writer = os.pipe()
    os.dup2(writer, 1)
    for missing in (0, 1, 3, None):
        function, file, line, text = (None if i == missing else texts[i] for i in range(4))
        CANN.aclAppLog(3, function, file, line, text)
    C.CDLL(None).fflush(None)
    assert os.read(reader, 4096) == b"[simulated CANN log 3] file:7 function: format\n"


# ---- initialization ----------------------------------------------------------------------------------

# Contents of the file and the status of aclInit. PARSE: not JSON, or nested too deep.
PARSE, INVALID_DUMP, FAILURE = 100006, 100009, 500001
FILES = (
    ("", OK),
    ("{}", OK),
    ('{"dump": {"dump_scene": "lite_exception"}}', OK),  # torch_npu's file
    ('{"dump": {"dump_scene": "aic_err_detail_dump"}}', OK),
    ('{"dump": {}}', OK),
    ('{"dump": []}', INVALID_DUMP),
    ('{"dump": {"dump_scene": "aic_err"}}', INVALID_DUMP),
    ('{"dump": {"dump_scene": 1}}', INVALID_DUMP),
    ('{"dump": {"dump_scene": "watcher"}}', NOT_SIMULATED),
    ('{"dump": {"dump_path": "/tmp", "dump_list": []}}', NOT_SIMULATED),
    ('{"profiler": {}}', OK),
    ('{"profiler": {"switch": "off"}}', OK),
    ('{"profiler": {"switch": "on"}}', NOT_SIMULATED),
    ('{"profiler": {"switch": "off", "output": "/tmp"}}', NOT_SIMULATED),
    ('{"profiler": {"switch": true}}', INVALID),
    ('{"profiler": "off"}', INVALID),
    (" [1, 2] ", OK),
    ("{", PARSE),
    ("{} {}", PARSE),
    ("err_msg_mode", PARSE),
    ('{"a": [0, 0.5, -0]}', OK),
    ('{"a": 01}', PARSE),
    ('{"a": -00.5}', PARSE),
    ("[" * 10 + "]" * 10, OK),
    ("[" * 11 + "]" * 11, PARSE),
    ('{"a":' * 10 + "1" + "}" * 10, OK),
    ('{"a":' * 11 + "1" + "}" * 11, PARSE),
    ('{"err_msg_mode": "1"}', OK),
    ('{"err_msg_mode": "0"}', OK),
    ('{"err_msg_mode": 1}', INVALID),
    ('{"err_msg_mode": "2"}', INVALID),
    ('{"err_msg_mode": "2", "err_msg_mode": "1"}', OK),
    ('{"acl_graph": {"event_mode": "1"}}', OK),
    ('{"acl_graph": {"event_mode": "2"}}', INVALID),
    ('{"acl_graph": 3}', OK),
    ('{"StackSize": {"aicore_stack_size": 32768}}', OK),
    ('{"StackSize": {"aicore_stack_size": "32768"}}', FAILURE),
    ('{"simd_printf_fifo_size_per_core": 1024, "simt_printf_fifo_size": 7}', OK),
    ('{"simd_printf_fifo_size_per_core": 0}', FAILURE),
    ('{"simt_printf_fifo_size": "1024"}', FAILURE),
    ('{"defaultDevice": {"default_device": "0"}}', OK),
    ('{"defaultDevice": {}}', OK),
    ('{"defaultDevice": {"default_device": 0}}', FAILURE),
    ('{"defaultDevice": {"default_device": "00"}}', FAILURE),
    ('{"defaultDevice": {"default_device": "-1"}}', FAILURE),
    ('{"defaultDevice": {"default_device": "1"}}', NO_DEVICE),
    ('{"defaultDevice": {"default_device": "4294967296"}}', NO_DEVICE),
)


def initialize(content):
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(content)
        file.flush()
        return CANN.aclInit(file.name.encode())


def check_the_file_of_the_initialization():
    """A refused call initializes nothing. A path that is empty counts as none."""
    for content, status in FILES:
        reader, writer = os.pipe()
        if os.fork() == 0:
            found = initialize(content)
            again = CANN.aclInit(None)
            os.write(writer, json.dumps([found, again]).encode())
            os._exit(0)
        os.wait()
        repeated = 100002 if status == OK else OK
        assert json.loads(os.read(reader, 100)) == [status, repeated], (content, error_text())
    for path in (b"/no folder/acl.json", b"/"):
        assert CANN.aclInit(path) == NO_FILE
        assert "configPath must be a" in error_text()
    assert initialize("{}" + " " * (10 << 20)) == NO_FILE
    C.CDLL(None).setenv(b"PROFILER_SAMPLECONFIG", b"{}", 1)
    assert CANN.aclInit(None) == initialize('{"profiler": 1}') == NOT_SIMULATED
    assert "PROFILER_SAMPLECONFIG must not be set: the profiler is not simulated." in error_text()
    C.CDLL(None).setenv(b"PROFILER_SAMPLECONFIG", b"", 1)
    assert CANN.aclInit(b"") == OK
    assert CANN.aclInit(b"/no folder/acl.json") == 100002


def check_each_initialization_of_a_process_has_the_same_file():
    assert initialize("{") == PARSE  # does not count
    assert initialize("{}") == CANN.aclFinalize() == OK
    assert CANN.aclInit(None) == initialize("{ }") == INVALID
    assert "must be a file with the content of the first aclInit of the process." in error_text()
    assert initialize("{}") == OK


def check_the_default_device():
    """A thread without a context sets it at its first call that needs one."""
    found, made, device = [], C.c_void_p(), C.c_int32(-1)

    def work():
        found.append(CANN.aclrtMalloc(C.byref(made), C.c_size_t(8), 0))
        found.append(CANN.aclrtGetDevice(C.byref(device)))

    in_another_thread(work)
    assert initialize('{"defaultDevice": {"default_device": "0"}}') == OK
    assert CANN.aclrtResetDevice(0) == OK
    in_another_thread(work)
    assert CANN.aclrtResetDevice(0) == OK
    in_another_thread(lambda: found.append(CANN.aclrtMalloc(C.byref(made), C.c_size_t(8), 0)))
    assert CANN.aclrtResetDevice(0) == CANN.aclFinalize() == OK
    in_another_thread(work)
    assert found == [CONTEXT_NULL] * 2 + [OK] * 3 + [CONTEXT_NULL] * 2


# ---- functions that are not simulated ----------------------------------------------------------------


def check_a_function_that_is_not_simulated_returns_nothing():
    """It returns its error or, if its type is another one, 0. The message names it."""
    CANN.aclGetDataBufferAddr.restype = CANN.aclrtCreateGroupInfo.restype = C.c_void_p
    CANN.aclGetDataBufferSizeV2.restype, CANN.aclFloat16ToFloat.restype = C.c_size_t, C.c_float
    for call, arguments, result in (
        ("aclGetDataBufferAddr", (None,), None),
        ("aclGetDataBufferSizeV2", (None,), 0),
        ("aclFloat16ToFloat", (0x3C00,), 0.0),
        ("aclrtCreateGroupInfo", (), None),
        ("aclopLoad", (None, C.c_size_t(0)), NOT_SIMULATED),
    ):
        assert getattr(CANN, call)(*arguments) == result
        assert error_text().startswith(f"simulated CANN: {call} is not simulated. Report it to the project")


def check_the_message_of_a_function_that_is_not_simulated():
    page = "The page simulator/docs/aclnn.md lists the functions that are."
    for symbol, name, folder in (
        (b"aclnnMadeUp", "aclnnMadeUp", "opapi"),
        (b"HcclMadeUp", "HcclMadeUp", "hccl"),
        (b"aclMadeUp", "aclMadeUp", "runtime"),
        (b"_ZN2at6MadeUpEi", "at::MadeUp(int)", "runtime"),
    ):
        assert CANN.simulated_cann_not_simulated(symbol) == NOT_SIMULATED
        text = error_text()
        assert text.startswith(f"simulated CANN: {name} is not simulated. "), text
        assert text.endswith(f"contribute it in simulator/cann/{folder}/."), text
        assert (page in text) == (folder == "opapi"), text


if __name__ == "__main__":
    run_checks(globals())
