"""Fixtures for all tests, the profiles of Hypothesis, and the report of cases by back end."""

from __future__ import annotations

import gc
import os
import sys
import time

import changed_kernel as changed
import counts
import guarded_memory
import pytest
from fork_server import ForkServer
from hypothesis import HealthCheck, settings

from npu_rope import backends, native

settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

FORCED = os.environ.get("NPU_ROPE_TEST_BACKEND")
BACKENDS = FORCED.split(",") if FORCED else ["reference", "cpu", "sim", "sim:ascend310p", "sim:ascend950"]

START_SECONDS = time.monotonic()


# Printed commands are those of a user whose environment is active.
os.environ["PATH"] = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", "")))


def pytest_configure(config):
    # Imports and collected tests make millions of objects that stay until the end. Each full garbage
    # collection would visit all of them. pytest-xdist's controller collects no tests, so it would not enable
    # the garbage collection again.
    is_controller = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if not is_controller:
        gc.disable()


def pytest_collection_finish():
    gc.enable()
    gc.freeze()


def pytest_itemcollected(item):
    counts.mark(item)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """On Ascend950 run one case of each test by default: mark the others as slow. In a run on
    back end npu, mark tests that do not run on it as long, because the default suite has them."""
    seen = set()
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if FORCED == "npu" and parameters.get("backend") != "npu":
            item.add_marker(pytest.mark.long)
        if not FORCED and parameters.get("backend") == "sim:ascend950":
            if item.function in seen:
                item.add_marker(pytest.mark.slow)
            seen.add(item.function)


def pytest_terminal_summary(terminalreporter):
    by_backend = counts.passed(terminalreporter.stats.get("passed", ()))
    if len(by_backend) > 1 or FORCED:
        terminalreporter.write_line(counts.line(by_backend))
    if onnx_counts := counts.node_tests(terminalreporter.stats.get("passed", ())):
        terminalreporter.write_line(counts.node_test_line(onnx_counts))
    if path := os.environ.get("NPU_ROPE_TEST_COUNTS"):
        counts.write(path, terminalreporter, time.monotonic() - START_SECONDS)


@pytest.fixture(params=BACKENDS)
def backend(request):
    """The name of each back end in turn. NPU_ROPE_TEST_BACKEND names others; an absent one is an error."""
    backends.find(request.param).require()
    return request.param


@pytest.fixture
def guarded():
    """Memory with guard bytes, checked when the test ends."""
    memory = guarded_memory.GuardedMemory()
    yield memory
    memory.check()


@pytest.fixture(scope="session")
def run_without_registration(tmp_path_factory):
    """Return a function that runs a script and returns its output. The script finds the installed libraries
    except the registration for torch."""
    folder = tmp_path_factory.mktemp("without-registration")
    for file in native.load().path.parent.iterdir():
        if "torch" not in file.name:
            (folder / file.name).symlink_to(file)
    environment = {**os.environ, "NPU_ROPE_LIB_DIR": str(folder)}
    server = ForkServer(sys.executable, ["npu_rope"], env=environment)

    def run(script):
        completed = server.run("-c", script, env=environment, timeout=120)
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    yield run
    server.close()


@pytest.fixture(scope="session")
def run_python():
    """Return ForkServer.run of a server that has imported npu-rope's commands."""
    server = ForkServer(sys.executable, ["npu_rope.cli.app"])
    yield server.run
    server.close()


@pytest.fixture(scope="session")
def npu_rope_command(run_python):
    """Return a function that runs npu-rope in a separate process and returns its CompletedProcess."""

    def run(*arguments, stdout=None, **environment):
        env = {**os.environ, "COLUMNS": "200", **environment}
        return run_python("-m", "npu_rope.cli", *arguments, env=env, stdout=stdout)

    return run


@pytest.fixture
def library():
    """The C library. The fixture restores its default instruction set at the end of the test."""
    loaded = native.load()
    yield loaded
    loaded.force_isa(None)


@pytest.fixture
def force_isa(library):
    """Return a function that uses an instruction set (None: the widest), or skips the test if the machine
    lacks it."""

    def force(name):
        try:
            library.force_isa(name)
        except ValueError:
            pytest.skip(f"this machine has no {name}")

    return force


@pytest.fixture(scope="session")
def changed_kernel(tmp_path_factory):
    """Return a function that compiles rope's kernel with a change of changed_kernel.CHANGES and returns the
    library. Each library is compiled once."""
    base = tmp_path_factory.getbasetemp()  # with xdist, one folder per worker; all workers share its parent
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "changed-kernels"
    folder.mkdir(exist_ok=True)
    return lambda name: changed.build(folder, name)
