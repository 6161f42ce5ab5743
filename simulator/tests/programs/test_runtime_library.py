"""libascend_sim_cann alone, through C: memory and guard zones, handles, stand-ins, reports."""

import ctypes as C
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ascend_sim import compiler, folders
from ascend_sim.programs import session

# These tests change the device state of the library. tests/cann loads the same library in the default suite.
# The mark keeps these tests out of that suite's processes.
pytestmark = pytest.mark.slow

OK, INVALID, RT_INVALID, NO_MEMORY = 0, 100000, 107000, 207001
DEVICE_MEMORY, ACLNN_NULL, ACLNN_INVALID = 507053, 161001, 161002
VECTOR_CORE = 507035
FLOAT, INT32, INT64, STRING = 0, 3, 9, 13


@pytest.fixture(scope="module")
def cann():
    library = C.CDLL(str(folders.library("ascend_sim_cann")))
    for name in ("aclGetRecentErrMsg", "aclrtGetSocName"):
        getattr(library, name).restype = C.c_char_p
    for name in ("aclCreateTensor", "aclCreateScalar"):
        getattr(library, name).restype = C.c_void_p
    assert library.aclrtSetDevice(0) == OK
    return library


def error_text(cann):
    return (cann.aclGetRecentErrMsg() or b"").decode()


@pytest.fixture
def memory(cann, capfd):
    """Return a function that allocates memory. No damage may be left unreported at the end of the test."""
    allocated = []

    def allocate(count):
        address = C.c_void_p()
        assert cann.aclrtMalloc(C.byref(address), C.c_size_t(count), 0) == OK
        allocated.append(address)
        return address.value

    yield allocate
    capfd.readouterr()
    for address in allocated:
        assert cann.aclrtFree(address) == OK
    assert capfd.readouterr().err == ""


# ---- memory ------------------------------------------------------------------------------------------


def test_memory_is_aligned_and_starts_as_nan(memory):
    address = memory(100)
    assert address % 512 == 0
    assert C.string_at(address, 100) == b"\xff" * 100


@pytest.mark.parametrize(
    ("offset", "count", "where"),
    [
        (100, 1, "has damage at byte 1 behind its end."),
        (103, 1, "has damage at byte 4 behind its end."),
        (100, 512, "has damage at bytes 1 to 512 behind its end."),
        (-1, 1, "has damage at byte 1 before its start."),
        (-64, 64, "has damage at bytes 1 to 64 before its start."),
    ],
)
def test_damage_is_reported_by_one_synchronization_only(cann, memory, capfd, offset, count, where):
    C.memset(memory(100) + offset, 0, count)
    assert cann.aclrtSynchronizeDevice() == DEVICE_MEMORY
    text = error_text(cann)
    assert re.search(r"allocation \d+ of 100 bytes " + re.escape(where), text), text
    assert "Found when the device was synchronized." in capfd.readouterr().err
    assert cann.aclrtSynchronizeDevice() == OK


def test_damage_on_both_sides_is_one_sentence(cann, memory):
    address = memory(64)
    C.memset(address - 1, 0, 1)
    C.memset(address + 64, 0, 1)
    assert cann.aclrtSynchronizeDevice() == DEVICE_MEMORY
    assert "byte 1 before its start and byte 1 behind its end." in error_text(cann)


@pytest.mark.parametrize("offset", [100 + 64, 100 + 511, -65, -512])
def test_damage_far_from_the_allocation_is_found_when_it_is_freed(cann, capfd, offset):
    address = C.c_void_p()
    assert cann.aclrtMalloc(C.byref(address), C.c_size_t(100), 0) == OK
    C.memset(address.value + offset, 0, 1)
    assert cann.aclrtSynchronizeDevice() == OK
    assert cann.aclrtFree(address) == OK
    distance = offset - 99 if offset > 0 else -offset
    assert f"has damage at byte {distance} " in capfd.readouterr().err


def test_all_of_many_allocations_are_checked_in_turn(cann, memory):
    addresses = [memory(16) for _ in range(1000)]
    assert cann.aclrtSynchronizeDevice() == OK
    for address in addresses[::333]:
        C.memset(address + 16, 0, 1)
    # Each call checks 256 allocations in turn. The fixture fails if any damage was not found.
    statuses = [cann.aclrtSynchronizeDevice() for _ in range(5)]
    assert DEVICE_MEMORY in statuses
    assert cann.aclrtSynchronizeDevice() == OK


def test_damage_is_found_when_the_memory_is_freed(cann, capfd):
    address = C.c_void_p()
    assert cann.aclrtMalloc(C.byref(address), C.c_size_t(8), 0) == OK
    C.memset(address.value + 8, 0, 1)
    assert cann.aclrtFree(address) == OK
    assert "Found when it was freed." in capfd.readouterr().err
    assert cann.aclrtFree(address) == RT_INVALID
    assert "not be freed twice" in error_text(cann)


PADDING = """
import ctypes as C, sys
cann = C.CDLL(sys.argv[1])
cann.aclrtSetDevice(0)
address = C.c_void_p()
assert cann.aclrtMallocAlign32(C.byref(address), C.c_size_t(int(sys.argv[2])), 0) == 0
C.memset(address.value + int(sys.argv[3]), 0, 1)
print(cann.aclrtSynchronizeDevice())
"""


@pytest.mark.parametrize(
    ("count", "offset", "is_damage", "variables"),
    [
        (33, 0, False, {}),
        (33, 1, True, {}),
        (32, 31, False, {}),
        (32, 32, True, {}),
        (1, 0, False, {}),
        (1, 1, True, {}),
        (33, 1, False, {"PYTORCH_NO_NPU_MEMORY_CACHING": "0"}),
        (33, 1, False, {"PYTORCH_NO_NPU_MEMORY_CACHING": ""}),
        (33, 1, False, {"ASCEND_SIM_SOC": "Ascend950PR_9589"}),
        (33, 1, True, {"ASCEND_SIM_SOC": "Ascend310P3"}),
    ],
)
def test_the_padding_of_torch_is_32_bytes(count, offset, is_damage, variables):
    environment = {**os.environ, "PYTORCH_NO_NPU_MEMORY_CACHING": "1", **variables}
    library = str(folders.library("ascend_sim_cann"))
    command = [sys.executable, "-c", PADDING, library, str(count), str(offset)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{DEVICE_MEMORY if is_damage else OK}\n"


def test_torch_s_padding_is_checked_if_its_cache_is_off():
    source = """
import ctypes as C, sys
cann = C.CDLL(sys.argv[1])
cann.aclrtSetDevice(0)
address = C.c_void_p()
cann.aclrtMallocAlign32(C.byref(address), C.c_size_t(40 + 32), 0)
C.memset(address.value + 40, 0, 1)
print(cann.aclrtSynchronizeDevice())
"""
    for uncached, status in (("1", DEVICE_MEMORY), ("0", OK)):
        environment = {**os.environ, "PYTORCH_NO_NPU_MEMORY_CACHING": uncached}
        command = [sys.executable, "-c", source, str(folders.library("ascend_sim_cann"))]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == f"{status}\n"


def test_a_copy_stays_inside_its_allocation_and_destination(cann, memory):
    address, host = memory(64), C.create_string_buffer(200)

    def copy(to, room, source, count):
        return cann.aclrtMemcpy(C.c_void_p(to), C.c_size_t(room), C.c_void_p(source), C.c_size_t(count), 1)

    assert copy(address + 8, 200, C.addressof(host), 57) == INVALID
    assert "dst must stay inside its allocation of 64 bytes but got 57 bytes from byte 8" in error_text(cann)
    assert copy(C.addressof(host), 200, address + 8, 57) == INVALID
    assert "src must stay inside" in error_text(cann)
    assert copy(address, 9, C.addressof(host), 10) == RT_INVALID
    assert "count must be at most destMax 9 but got 10" in error_text(cann)
    assert copy(address + 8, 200, C.addressof(host), 56) == OK
    assert copy(0, 8, C.addressof(host), 8) == INVALID


def test_impossible_allocations_are_refused(cann):
    address = C.c_void_p()
    assert cann.aclrtMalloc(C.byref(address), C.c_size_t(0), 0) == INVALID
    assert cann.aclrtMalloc(C.byref(address), C.c_size_t(1 << 45), 0) == NO_MEMORY
    assert "no memory left for 35184372088832 bytes" in error_text(cann)


def test_the_message_is_returned_once(cann):
    assert cann.aclrtSetDevice(5) == 107001
    assert "deviceId must be 0, the one device that is simulated, but got 5" in error_text(cann)
    assert error_text(cann) == ""


# ---- the chip ----------------------------------------------------------------------------------------


CHIP = """
import ctypes as C, sys
cann = C.CDLL(sys.argv[1])
cann.aclrtGetSocName.restype = C.c_char_p
value = C.c_int64()
print(cann.aclrtGetSocName().decode())
for call, kinds in ("aclGetDeviceCapability", (0, 1)), ("aclrtGetDeviceInfo", (101, 201)):
    for kind in kinds:
        assert getattr(cann, call)(0, kind, C.byref(value)) == 0
        print(value.value)
"""


def chip_process(soc):
    command = [sys.executable, "-c", CHIP, str(folders.library("ascend_sim_cann"))]
    environment = {**os.environ, "ASCEND_SIM_SOC": soc}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


# (ai_core_cnt, vector_core_cnt) of CANN's platform_config. In `NAME:CORES`, CORES is ai_core_cnt.
CORES = {
    "Ascend910B2": (24, 48),
    "Ascend910B2C": (24, 48),
    "Ascend910B4-1": (20, 40),
    "Ascend910_9363": (20, 40),
    "Ascend310P1": (10, 8),
    "Ascend310P3": (8, 7),
    "Ascend310P7": (8, 7),
    "Ascend910B9:11": (11, 22),
    "Ascend310P2:5": (5, 4),
    "Ascend950PR_9589": (32, 64),
    "Ascend950DT_9591:36": (36, 72),
}


@pytest.mark.parametrize("soc", CORES)
def test_capabilities_are_the_chip_s(soc):
    done = chip_process(soc)
    assert done.stdout.split() == [soc.partition(":")[0], *map(str, CORES[soc] * 2)], done.stderr


def test_every_chip_of_the_command_is_one_of_the_library():
    assert [soc for soc in session.chips() if chip_process(soc).returncode] == []


NOT_CHIPS = (
    "Ascend9000", "Ascend910B", "Ascend310B1", "Ascend950", "Ascend910B9", "Ascend910B2:4",
    "Ascend910B9:", "Ascend910B9:0", "Ascend910B9:25", "Ascend310P2:11", "Ascend9000:4", "Ascend910B9:1x",
    "Ascend950DT_9591:37",
)  # fmt: skip


@pytest.mark.parametrize("soc", NOT_CHIPS)
def test_an_unknown_chip_ends_the_process(soc):
    done = chip_process(soc)
    assert done.returncode == 2
    assert "ASCEND_SIM_SOC must be one of Ascend910B1, " in done.stderr
    assert f"but got {soc}." in done.stderr
    assert session.soc_fault(soc)


# ---- the log -----------------------------------------------------------------------------------------

LOG = """
import ctypes as C, sys
cann = C.CDLL(sys.argv[1])
for level in range(5):
    cann.aclAppLog(level, b"function", b"file.cpp", 7, b"%d and %s", level, b"text")
cann.aclAppLog(3, None, None, 0, b"")
C.CDLL(None).fflush(None)
"""


@pytest.mark.parametrize(
    ("level", "least"),
    [
        *((str(level), level) for level in range(5)),
        (None, 3),
        ("5", 3),
        ("-1", 3),
        ("/", 3),
        ("", 3),
        ("10", 3),
    ],
)
def test_the_log_has_the_levels_of_the_environment(level, least):
    environment = {**os.environ, "ASCEND_SLOG_PRINT_TO_STDOUT": "1"}
    environment |= {} if level is None else {"ASCEND_GLOBAL_LOG_LEVEL": level}
    command = [sys.executable, "-c", LOG, str(folders.library("ascend_sim_cann"))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines = [f"[simulated CANN log {n}] file.cpp:7 function: {n} and text" for n in range(least, 5)]
    assert done.stdout.splitlines() == lines
    for off in ("0", "2", ""):
        environment["ASCEND_SLOG_PRINT_TO_STDOUT"] = off
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == lines[-1:]  # only level 4


# ---- stand-ins ---------------------------------------------------------------------------------------


class Tensors:
    """aclTensors over memory of the device."""

    def __init__(self, cann, memory):
        self.cann, self.memory, self.handles = cann, memory, []

    def tensor(self, shape, values=None, dtype=FLOAT, strides=None, offset=0, elements=None, data=None):
        count = elements or max(1, len(values or [0]))
        address = data or self.memory(count * 4)
        if values:
            C.memmove(address, (C.c_float * len(values))(*values), 4 * len(values))
        dims = (C.c_int64 * max(1, len(shape)))(*shape)
        steps = (C.c_int64 * max(1, len(shape)))(*strides) if strides else None
        n = C.c_uint64(len(shape))
        handle = self.cann.aclCreateTensor(
            dims, n, dtype, steps, C.c_int64(offset), 2, dims, n, C.c_void_p(address)
        )
        self.handles.append(handle)
        return C.c_void_p(handle), address

    def run(self, name, *arguments):
        workspace, executor = C.c_uint64(7), C.c_void_p()
        prepare = getattr(self.cann, f"aclnn{name}GetWorkspaceSize")
        status = prepare(*arguments, C.byref(workspace), C.byref(executor))
        if status != OK:
            return status
        space = C.c_void_p(self.memory(workspace.value) if workspace.value else None)
        status = getattr(self.cann, f"aclnn{name}")(space, workspace, executor, None)
        return status or self.cann.aclrtSynchronizeStream(None)


@pytest.fixture
def tensors(cann, memory):
    created = Tensors(cann, memory)
    yield created
    for handle in created.handles:
        assert cann.aclDestroyTensor(C.c_void_p(handle)) == OK


def floats(address, count):
    return list((C.c_float * count).from_address(address))


def test_strides_and_offsets_are_in_elements(tensors):
    source, _ = tensors.tensor([3, 2], list(range(12)), strides=[1, 3], offset=2)
    out, address = tensors.tensor([3, 2], elements=6)
    assert tensors.run("InplaceCopy", out, source) == OK
    assert floats(address, 6) == [2, 5, 3, 6, 4, 7]


@pytest.mark.parametrize(("to", "source"), [(1, 0), (0, 1)])
def test_an_overlapping_copy_reads_the_old_values(tensors, to, source):
    _, address = tensors.tensor([9], [0, 1, 2, 3, 4, 5, 6, 7, 8])
    a, _ = tensors.tensor([2, 4], offset=to, strides=[4, 1], data=address)
    b, _ = tensors.tensor([2, 4], offset=source, strides=[4, 1], data=address)
    assert tensors.run("InplaceCopy", a, b) == OK
    expected = list(range(9))
    expected[to : to + 8] = range(source, source + 8)
    assert floats(address, 9) == expected


def test_shapes_that_do_not_broadcast_are_refused_before_any_write(cann, tensors):
    a, _ = tensors.tensor([2], [1, 2])
    out, address = tensors.tensor([3], [7, 8, 9])
    assert tensors.run("Mul", a, a, out) == ACLNN_INVALID
    assert error_text(cann) == "simulated CANN: aclnnMul: out must have the shape [2] but got [3]."
    assert floats(address, 3) == [7, 8, 9]


def test_a_view_past_its_allocation_is_refused(cann, tensors):
    a, _ = tensors.tensor([4], elements=3)
    out, _ = tensors.tensor([4], elements=4)
    assert tensors.run("Mul", out, a, out) == ACLNN_INVALID
    assert "other must lie inside its allocation of 12 bytes but reaches byte 16" in error_text(cann)


def test_memory_of_the_host_is_refused(cann, tensors):
    host = (C.c_float * 4)()
    a, _ = tensors.tensor([4], data=C.addressof(host))
    assert tensors.run("InplaceZero", a) == ACLNN_INVALID
    assert "self must be in device memory" in error_text(cann)


def test_a_dtype_without_stand_in_is_named(cann, tensors):
    a, _ = tensors.tensor([4], dtype=STRING, elements=16)
    assert tensors.run("InplaceOne", a) == ACLNN_INVALID
    text = error_text(cann)
    assert "aclnnInplaceOne: self must be float32, " in text
    assert text.endswith(" on Ascend910B2 but got aclDataType 13.")


def test_null_arguments_are_refused(cann, tensors):
    a, _ = tensors.tensor([1], [1.0])
    assert tensors.run("Mul", None, a, a) == ACLNN_NULL
    assert tensors.run("Mul", a, None, a) == ACLNN_NULL
    assert tensors.run("Mul", a, a, None) == ACLNN_NULL
    assert tensors.run("InplaceFillScalar", a, None) == ACLNN_NULL
    assert "value must not be null" in error_text(cann)
    assert cann.aclnnMul(None, C.c_uint64(0), None, None) == ACLNN_NULL
    assert error_text(cann) == "simulated CANN: executor must not be null."


def test_a_second_phase_without_executor_repeats_the_first_one_s_error(cann, tensors):
    a, _ = tensors.tensor([1], [1.0])
    assert tensors.run("Mul", a, None, a) == ACLNN_NULL
    assert cann.aclnnMul(None, C.c_uint64(0), None, None) == ACLNN_NULL
    assert error_text(cann) == (
        "simulated CANN: executor must not be null. The error before: "
        "simulated CANN: aclnnMul: other must not be null."
    )


# ---- operators of other libraries --------------------------------------------------------------------

OPERATOR = r"""
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include "cann/runtime/objects.h"
#include "include/ascend_sim_cann.h"
// Queues work that writes `bytes` from `at` on, even past its allocation, or throws if `at` is null.
extern "C" __attribute__((visibility("default"))) int run(char* at, uint64_t bytes, const char* report) {
    auto e = std::make_unique<aclOpExecutor>();
    e->name = "MadeUp";
    e->run = [=](void*, uint64_t) -> int32_t {
        if (!at) throw std::length_error("no address");
        std::memset(at, 0, bytes);
        if (*report) simulated_cann::record_launch("MadeUp", report);
        return bytes == 1 ? 77 : 0;
    };
    return simulated_cann::launch(nullptr, 0, std::move(e), nullptr);
}
static int runs, releases;
static uint8_t* addresses_seen[4];
static void body(uint8_t* const* addresses, const void* context) {
    ++runs;
    std::copy(addresses, addresses + *static_cast<const int*>(context), addresses_seen);
}
// Launches a kernel that notes its addresses.
extern "C" __attribute__((visibility("default")))
int launch_kernel(int arch, int64_t blocks, void* const* pointers, int count) {
    const auto release = [](void* context) { ++releases; delete static_cast<int*>(context); };
    auto* context = new int(count);
    ascend_sim_kernel kernel{"MadeUp", arch, 0, blocks, nullptr, body, context, release, pointers, count};
    runs = releases = 0;
    return ascend_sim_launch_kernel(&kernel);
}
extern "C" __attribute__((visibility("default"))) void seen(int* counts, uint8_t** addresses) {
    counts[0] = runs;
    counts[1] = releases;
    std::copy(addresses_seen, addresses_seen + 4, addresses);
}
// The folders of the operator packages, one a line.
extern "C" __attribute__((visibility("default"))) const char* packages() {
    static std::string lines;
    for (const std::string& folder : simulated_cann::operator_packages().folders) lines += folder + "\n";
    return lines.c_str();
}
extern "C" __attribute__((visibility("default"))) uint64_t find(void* at, uint64_t* offset) {
    void* first = nullptr;
    uint64_t bytes = 0;
    if (!simulated_cann::find_allocation(at, &first, &bytes)) return 0;
    *offset = uint64_t(static_cast<char*>(at) - static_cast<char*>(first));
    return bytes;
}
"""


@pytest.fixture(scope="module")
def operator(cann, tmp_path_factory):
    """A library with an operator: hidden symbols by default, linked to the runtime."""
    folder = tmp_path_factory.mktemp("operator")
    source, library = folder / "operator.cpp", folder / "liboperator.so"
    source.write_text("#include <stdexcept>\n" + OPERATOR)
    libraries = [str(folders.library(name)) for name in ("ascend_sim_cann", "ascend_sim")]
    command = [
        *compiler.compiler().split(),
        "-std=c++17",
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",
        f"-I{folders.root()}",
    ]
    command += [str(source), "-o", str(library), *libraries]
    subprocess.run(command, check=True)
    return C.CDLL(str(library))


def launch_and_synchronize(cann, operator, address, count):
    """Launch the operator and return the status of the synchronization. The launch itself succeeds."""
    assert operator.run(address, C.c_uint64(count), b"") == OK
    return cann.aclrtSynchronizeStream(None)


def test_an_operator_that_overruns_is_named(cann, operator, memory):
    address = C.c_void_p(memory(256))
    assert launch_and_synchronize(cann, operator, address, 256) == OK
    assert launch_and_synchronize(cann, operator, address, 258) == DEVICE_MEMORY
    text = error_text(cann)
    assert "MadeUp: device memory was overrun: allocation" in text
    assert "has damage at bytes 1 to 2 behind its end" in text
    assert launch_and_synchronize(cann, operator, address, 256) == OK


def test_damage_from_before_a_launch_is_not_the_operator_s(cann, operator, memory, capfd):
    address = memory(256)
    C.memset(address + 256, 0, 1)
    assert launch_and_synchronize(cann, operator, C.c_void_p(address), 256) == OK
    assert "Found before MadeUp was launched." in capfd.readouterr().err


def test_a_failed_or_throwing_operator_is_reported_as_a_vector_core_exception(cann, operator, memory):
    assert launch_and_synchronize(cann, operator, C.c_void_p(memory(8)), 1) == VECTOR_CORE
    assert launch_and_synchronize(cann, operator, None, 8) == VECTOR_CORE
    assert error_text(cann) == "simulated CANN: MadeUp: no address"


def test_an_allocation_is_found_by_any_of_its_bytes(operator, memory):
    address, offset = memory(100), C.c_uint64()
    operator.find.restype = C.c_uint64
    for inside in (0, 1, 99):
        assert operator.find(C.c_void_p(address + inside), C.byref(offset)) == 100
        assert offset.value == inside
    for outside in (-1, 100):
        assert operator.find(C.c_void_p(address + outside), C.byref(offset)) == 0


def test_packages_are_listed_in_a_file(operator, tmp_path):
    source = """
import ctypes as C, sys
cann, operator = C.CDLL(sys.argv[1]), C.CDLL(sys.argv[2])
operator.packages.restype = C.c_char_p
print(operator.packages().decode(), end="")
"""
    vendors = [tmp_path / "vendors" / name for name in ("one", "two")]
    for vendor in vendors:
        vendor.mkdir(parents=True)
    (tmp_path / "vendors/config.ini").write_text("load_priority=one,two\n")
    environment = {**os.environ, "ASCEND_OPP_PATH": str(tmp_path), "ASCEND_CUSTOM_OPP_PATH": ""}
    command = [sys.executable, "-c", source, str(folders.library("ascend_sim_cann")), operator._name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(vendor) for vendor in vendors]


def launch_kernel(operator, pointers, *, arch=220, blocks=3):
    """Launch a kernel of Ascend910B; return the status."""
    array = (C.c_void_p * max(len(pointers), 1))(*pointers)
    return operator.launch_kernel(arch, C.c_int64(blocks), array, len(pointers))


def seen_by_kernel(operator):
    """The runs, the releases of the context, and the addresses of the last run."""
    counts, addresses = (C.c_int * 2)(), (C.c_uint64 * 4)()
    operator.seen(counts, addresses)
    return (*counts, list(addresses))


def test_a_kernel_of_a_program_runs_in_each_block(cann, operator, memory):
    one, two = memory(64), memory(64)
    assert launch_kernel(operator, [one, one + 8, None, two + 4]) == OK
    assert seen_by_kernel(operator)[:2] == (0, 0)
    assert cann.aclrtSynchronizeStream(None) == OK
    runs, releases, addresses = seen_by_kernel(operator)
    assert (runs % 3, releases) == (0, 1)  # the simulator may run the blocks in two orders
    assert runs > 0
    assert addresses[1] - addresses[0] == 8
    assert addresses[2] == 0
    assert 0 not in (addresses[0], addresses[3])
    assert addresses[3] % 8 == 4
    assert addresses[0] % 8 == 0


def test_a_kernel_of_a_program_is_refused(cann, operator, memory):
    at = memory(64)
    for arch, blocks, text in (
        (
            200,
            3,
            "MadeUp: the kernel must be compiled for Ascend910B2 but was not (ascend-sim program --soc).",
        ),
        (220, 0, "MadeUp: numBlocks must be 1 to 65535 but got 0."),
        (220, 65536, "MadeUp: numBlocks must be 1 to 65535 but got 65536."),
    ):
        assert launch_kernel(operator, [at], arch=arch, blocks=blocks) == RT_INVALID
        assert error_text(cann) == f"simulated CANN: {text}"
        assert seen_by_kernel(operator)[:2] == (0, 1)
    assert launch_kernel(operator, [at], blocks=1) == OK
    assert cann.aclrtSynchronizeStream(None) == OK
    assert seen_by_kernel(operator)[:2] == (1, 1)


@pytest.mark.parametrize("index", [0, 1])
def test_the_pointers_of_a_kernel_point_to_device_memory(cann, operator, memory, index):
    host = C.create_string_buffer(64)
    pointers = [memory(64), memory(64)]
    pointers[index] = C.addressof(host)
    assert launch_kernel(operator, pointers) == OK
    assert cann.aclrtSynchronizeStream(None) == VECTOR_CORE
    text = f"SIM-BOUNDS-03 MadeUp: pointer {index + 1} of the kernel's arguments points to no device memory."
    assert error_text(cann) == f"simulated CANN: {text}"
    assert seen_by_kernel(operator)[:2] == (0, 1)


# ---- the report --------------------------------------------------------------------------------------


def test_a_process_writes_a_report_of_its_work(operator, tmp_path):
    source = """
import ctypes as C, sys
cann, operator = C.CDLL(sys.argv[1]), C.CDLL(sys.argv[2])
cann.aclrtSetDevice(0)
address = C.c_void_p()
cann.aclrtMalloc(C.byref(address), C.c_size_t(64), 0)
broken = b'{"status":"broken rule","errors":[{"text":"a rule"}]}'
for report in (b'{"status":"ok"}', broken, broken):
    operator.run(address, C.c_uint64(64), report)
cann.aclrtSynchronizeDevice()
cann.simulated_cann_not_simulated(b"aclMadeUp")
C.memset(address.value + 64, 0, 1)
"""
    environment = {**os.environ, "ASCEND_SIM_REPORT_DIR": str(tmp_path), "ASCEND_SIM_SOC": "Ascend310P3"}
    libraries = [str(folders.library("ascend_sim_cann")), operator._name]
    subprocess.run(
        [sys.executable, "-c", source, *libraries], env=environment, check=True, capture_output=True
    )
    (path,) = tmp_path.iterdir()
    found = json.loads(path.read_text())
    assert (found["soc"], found["ended"], found["bytes_not_freed"]) == ("Ascend310P3", True, 64)
    assert found["launches"] == {"MadeUp": 3}
    assert found["broken_launches"] == 2
    assert found["broken"][0]["report"]["errors"] == [{"text": "a rule"}]
    assert found["not_simulated"] == {"aclMadeUp": 1}
    assert "byte 1 behind its end. Found when the process ended." in found["damage"][0]


@pytest.mark.parametrize("streams", ["asynchronous", "immediate"])
def test_a_refused_launch_of_a_program_s_kernel_is_in_the_report(operator, tmp_path, streams):
    """The program cannot see it, because <<<>>> returns nothing. A kernel that has run is there once."""
    source = """
import ctypes as C, sys
cann, operator = C.CDLL(sys.argv[1]), C.CDLL(sys.argv[2])
cann.aclrtSetDevice(0)
address, host = C.c_void_p(), C.create_string_buffer(64)
cann.aclrtMalloc(C.byref(address), C.c_size_t(64), 0)
for blocks, pointer in ((1, address.value), (0, address.value), (1, C.addressof(host))):
    operator.launch_kernel(220, C.c_int64(blocks), (C.c_void_p * 1)(pointer), 1)
    cann.aclrtSynchronizeDevice()
"""
    environment = {**os.environ, "ASCEND_SIM_REPORT_DIR": str(tmp_path), "ASCEND_SIM_STREAMS": streams}
    libraries = [str(folders.library("ascend_sim_cann")), operator._name]
    subprocess.run(
        [sys.executable, "-c", source, *libraries], env=environment, check=True, capture_output=True
    )
    (path,) = tmp_path.iterdir()
    found = json.loads(path.read_text())
    assert (found["launches"], found["broken_launches"]) == ({"MadeUp": 3}, 2)
    refused = "the launch was refused: numBlocks must be 1 to 65535 but got 0."
    text = "SIM-BOUNDS-03 MadeUp: pointer 1 of the kernel's arguments points to no device memory."
    assert [entry["report"]["errors"] for entry in found["broken"]] == [
        [{"rule": "launch", "text": refused}],
        [{"rule": "SIM-BOUNDS-03", "text": text}],
    ]


def test_memory_that_ended_with_its_device_is_reported_as_not_freed(tmp_path):
    source = """
import ctypes as C, sys
cann, address = C.CDLL(sys.argv[1]), C.c_void_p()
cann.aclrtSetDevice(0)
for count in (64, 128, 256):
    cann.aclrtMalloc(C.byref(address), C.c_size_t(count), 0)
cann.aclrtFree(address)
cann.aclrtMalloc(C.byref(address), C.c_size_t(512), 0)
C.memset(address.value + 512, 0, 1)
cann.aclrtResetDevice(0)
"""
    environment = {**os.environ, "ASCEND_SIM_REPORT_DIR": str(tmp_path)}
    command = [sys.executable, "-c", source, str(folders.library("ascend_sim_cann"))]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    (path,) = tmp_path.iterdir()
    found = json.loads(path.read_text())
    assert found["bytes_not_freed"] == 64 + 128 + 512
    (damage,) = found["damage"]
    assert "has damage at byte 1 behind its end. Found when its device was closed." in damage


@pytest.mark.parametrize("call", ["", "cann.aclCreateDataBuffer(None, C.c_size_t(8)); "])
def test_a_process_that_skips_its_exit_handlers_leaves_a_report_without_end(tmp_path, call):
    source = f"import ctypes as C, os, sys; cann = C.CDLL(sys.argv[1]); {call}os._exit(0)"
    environment = {**os.environ, "ASCEND_SIM_REPORT_DIR": str(tmp_path)}
    command = [sys.executable, "-c", source, str(folders.library("ascend_sim_cann"))]
    subprocess.run(command, env=environment, check=True)
    report = session.read_reports(tmp_path, "Ascend910B2")
    assert (report.processes, report.processes_without_end) == (1, 1)
    assert len(report.beyond_documents) == bool(call)


FORKS = """
import ctypes as C, os, sys
cann = C.CDLL(sys.argv[1])
cann.aclrtSetDevice(0)
address = C.c_void_p()
cann.aclrtMalloc(C.byref(address), C.c_size_t(64), 0)
cann.aclrtSynchronizeDevice()
cann.simulated_cann_not_simulated(b"aclOfTheParent")
if os.fork() == 0:
    what = sys.argv[2]
    if what == "folder":
        os.environ["ASCEND_SIM_REPORT_DIR"] = sys.argv[3]
    if what == "used":
        cann.simulated_cann_not_simulated(b"aclOfTheFork")
    if what == "waited":
        cann.aclrtSynchronizeDevice()
    if what == "damaged":
        C.memset(address.value + 64, 0, 1)
        cann.aclrtSynchronizeDevice()
    if what == "raced":
        cann.aclrtMemsetAsync(address, C.c_size_t(64), 1, C.c_size_t(64), None)
        cann.aclrtFree(address)
    if what == "allocated":
        cann.aclrtMalloc(C.byref(address), C.c_size_t(16), 0)
        cann.simulated_cann_not_simulated(b"aclOfTheFork")
    sys.exit(0)
os.wait()
"""


@pytest.mark.parametrize("what", ["nothing", "folder", "used", "waited", "damaged", "raced", "allocated"])
def test_a_fork_reports_its_own_work(tmp_path, what):
    """It writes no report if it does not use the NPU, unless it has its own folder."""
    folder, other = tmp_path / "reports", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    environment = {**os.environ, "ASCEND_SIM_REPORT_DIR": str(folder)}
    command = [sys.executable, "-c", FORKS, str(folders.library("ascend_sim_cann")), what, str(other)]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    reports = [json.loads(path.read_text()) for path in folder.iterdir()]
    (parent,) = (report for report in reports if "aclOfTheParent" in report["not_simulated"])
    assert (parent["ended"], parent["bytes_not_freed"]) == (True, 64)
    forks = [report for report in reports if report is not parent]
    if what == "folder":
        assert forks == []
        forks = [json.loads(path.read_text()) for path in other.iterdir()]
    assert len(forks) == (what != "nothing")
    for fork in forks:
        names = {"aclOfTheFork": 1} if what in ("used", "allocated") else {}
        assert fork["not_simulated"] == names
        assert fork["ended"]
        assert fork["bytes_not_freed"] == (16 if what == "allocated" else 0)
        assert sum(fork["host_waits"].values()) == (what in ("waited", "damaged"))
        assert len(fork["damage"]) == (what == "damaged")
        assert (fork["race_count"], len(fork["races"])) == ((1, 1) if what == "raced" else (0, 0))


def test_a_fork_without_an_end_reports_64_launches(operator, tmp_path):
    source = """
import ctypes as C, os, sys
cann, operator = C.CDLL(sys.argv[1]), C.CDLL(sys.argv[2])
cann.aclrtSetDevice(0)
address = C.c_void_p()
cann.aclrtMalloc(C.byref(address), C.c_size_t(64), 0)
if os.fork() == 0:
    for _ in range(64):
        operator.run(address, C.c_uint64(64), b'{"status":"ok"}')
    cann.aclrtSynchronizeDevice()
    os._exit(0)
os.wait()
"""
    environment = {**os.environ, "ASCEND_SIM_REPORT_DIR": str(tmp_path)}
    command = [sys.executable, "-c", source, str(folders.library("ascend_sim_cann")), operator._name]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    report = session.read_reports(tmp_path, "Ascend910B2")
    assert (report.processes, report.processes_without_end) == (2, 1)
    assert report.launches == {"MadeUp": 64}


def test_a_process_without_a_folder_writes_no_report():
    source = "import ctypes, os, sys; ctypes.CDLL(sys.argv[1]).aclrtSetDevice(0); print(os.getpid())"
    environment = {name: value for name, value in os.environ.items() if name != "ASCEND_SIM_REPORT_DIR"}
    command = [sys.executable, "-c", source, str(folders.library("ascend_sim_cann"))]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert done.stderr == (
        "simulated CANN: this is ascend_sim, nothing runs on hardware; ascend-sim run -- PROGRAM prints a "
        "report.\n"
    )
    left = Path(f"/{done.stdout.strip()}.runtime.json")  # the name of a report in the folder ""
    found = left.exists()
    left.unlink(missing_ok=True)
    assert not found
