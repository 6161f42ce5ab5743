"""ascend_sim.package calls WeightedAdd, the operator of the folder foreign/, on NumPy arrays."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from ascend_sim import KernelBroken, Options, Unavailable, library
from ascend_sim.package import Package, Refused, Tensor
from foreign_operator import FOREIGN, build_kernel, call, expected

OP = "WeightedAdd"


@pytest.fixture
def package(foreign_package, foreign_kernel, monkeypatch):
    monkeypatch.setenv("ASCEND_SIM_KERNELS", str(foreign_kernel))
    return Package(foreign_package)


def given(**changed):
    """All arguments of a call, by the definition's names."""
    arguments = call()
    arguments["z"] = arguments.pop("out")
    return arguments | {"kind": None, "weights": None, "flags": None} | changed


def test_a_call_runs_the_operator_and_returns_its_report(package):
    arguments = given()
    report = package.call(OP, arguments, Options("Ascend910B4"))
    assert np.array_equal(arguments["z"], expected(arguments))
    assert report.errors == []
    assert report.summary["soc"] == "Ascend910B4"


def test_an_operator_names_its_parameters_in_order(package):
    operator = package.operators("ascend910b")[OP]
    assert operator.parameters() == [
        "x", "y", "alpha", "kind", "weights", "flags", "axes", "adds", "shift", "copies", "z",
    ]  # fmt: skip
    assert operator.inputs["x"] == ("float32", "float16")
    assert operator.attributes["weights"] == "listFloat"
    assert package.socs == ("ascend910b",)


def test_operators_of_an_soc_that_the_package_lacks_are_refused(package):
    with pytest.raises(ValueError, match=r"^\[sim\] soc must be one of ascend910b but got ascend310p\.$"):
        package.operators("ascend310p")


def test_each_call_may_name_another_chip(package):
    for chip in ("Ascend910B1", "Ascend910B3", "ascend910b"):
        report = package.call(OP, given(), Options(chip))
        assert report.summary["soc"] == ("Ascend910B1" if chip == "ascend910b" else chip)


def test_views_of_one_array_are_separate_memories(package):
    memory = np.zeros((6, 7), np.float32)
    memory[:3] = 2
    arguments = given(x=memory[:3], z=memory[3:])
    package.call(OP, arguments)
    assert np.array_equal(memory[3:], expected(arguments))
    assert np.all(memory[:3] == 2)


def test_memory_may_be_given_by_its_address(package):
    arguments = given()
    x = arguments["x"]
    arguments["x"] = Tensor(x.ctypes.data, "float32", x.shape, (7, 1))
    package.call(OP, arguments)
    assert np.array_equal(arguments["z"], expected(arguments | {"x": x}))


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"kind": "other"}, Refused, "[WeightedAdd] tiling must succeed but got a failure"),
        ({"axes": []}, Refused, "[WeightedAdd] axes must have elements but got an empty list."),
        ({"x": np.ones((7, 3), np.float32).T}, Refused, "[WeightedAdd] x must be contiguous, or declared"),
        ({"z": np.zeros(21, np.float32)}, Refused, "[WeightedAdd] z must have shape [3, 7] but got [21]."),
        ({"x": np.ones((3, 7), np.complex64)}, TypeError, "[sim] x must be float32, float16, int8"),
        ({"x": np.ones((3, 7), ">f4")}, TypeError, "[sim] x must be in the machine's byte order but"),
        ({"x": 3.0}, TypeError, "[sim] x must be an array, a Tensor or None but got float."),
        ({"weights": np.ones(1)}, TypeError, "[sim] weights must be a list or None but got Tensor."),
        ({"alpha": None}, TypeError, "[sim] alpha must be a number but got NoneType."),
        ({"copies": 2**64}, ValueError, "[sim] copies must be in the int64 range but got"),
        ({"w": 1}, ValueError, "[sim] arguments of WeightedAdd must be x, y, alpha,"),
    ],
    ids=["tiling", "list", "view", "shape", "type", "order", "number", "array", "none", "range", "unknown"],
)
def test_a_bad_call_is_refused_and_nothing_is_written(package, changed, error, text):
    arguments = given(**changed)
    launches = library.load().launches()
    with pytest.raises(error) as caught:
        package.call(OP, arguments)
    assert str(caught.value).startswith(text)
    assert not arguments["z"].any()
    assert library.load().launches() == launches


def test_an_output_must_be_writeable(package):
    arguments = given()
    arguments["z"].flags.writeable = False
    with pytest.raises(ValueError, match="z must be writeable but got a read-only array"):
        package.call(OP, arguments)


def test_refused_calls_leave_no_executor(package):
    """Each call searches the pool of executors, so an executor that stays there slows down later calls."""
    destroyed = []

    class RecordingLibrary:
        def __init__(self, lib):
            self.lib = lib

        def __getattr__(self, name):
            if name == "aclDestroyAclOpExecutor":
                destroyed.append(name)
            return getattr(self.lib, name)

    cann = package._cann
    original, cann.lib = cann.lib, RecordingLibrary(cann.lib)
    try:
        for changed in ({"kind": "other"}, {}):
            with contextlib.suppress(Refused):
                package.call(OP, given(**changed))
    finally:
        cann.lib = original
    assert len(destroyed) == 1


def test_a_missing_argument_and_a_missing_operator_are_named(package):
    arguments = given()
    del arguments["y"]
    with pytest.raises(ValueError, match=r"arguments of WeightedAdd must have all of .* but got no y\.$"):
        package.call(OP, arguments)
    with pytest.raises(ValueError, match=r"^\[sim\] op must be one of WeightedAdd but got Add\.$"):
        package.call("Add", {})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"soc": "ascend1"}, "soc must be one of Ascend910B1, .* but got ascend1"),
        ({"soc": "ascend310p"}, "but got ascend310p, for which the package has no operators"),
        ({"lenient": "SIM-NONE-01"}, "options.lenient must name rules or be all but got SIM-NONE-01"),
        ({"most_cores": -1}, r"options.most_cores must be 0 \(all\) or a number of cores but got -1"),
        ({"trace_path": "/nonexistent/x.json"}, "options.trace_path must be a file one may write"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_bad_options_are_refused(package, options, text):
    with pytest.raises(ValueError, match=text):
        package.call(OP, given(), Options(**options))


def test_a_kernel_that_breaks_a_rule_is_an_error(package, tmp_path, monkeypatch):
    source = (FOREIGN / "weighted_add.cpp").read_text()
    broken = tmp_path / "weighted_add.cpp"
    broken.write_text(source.replace("PipeBarrier<PIPE_V>();", ""))
    assert broken.read_text() != source
    monkeypatch.setenv("ASCEND_SIM_KERNELS", str(build_kernel(tmp_path, broken)))
    arguments = given()
    with pytest.raises(KernelBroken) as caught:
        package.call(OP, arguments)
    assert [error["rule"] for error in caught.value.report.errors] == ["SIM-HAZARD-02"]
    assert not arguments["z"].any()


def test_a_timeline_that_does_not_fit_on_the_disk_is_an_error(package):
    arguments = given()
    with pytest.raises(ValueError, match="launch must be possible but got cannot write /dev/full"):
        package.call(OP, arguments, Options(trace_path="/dev/full"))
    assert not arguments["z"].any()


def test_a_folder_without_a_package_is_reported(tmp_path):
    with pytest.raises(Unavailable, match=r"operator package must be available but .* was not found"):
        Package(tmp_path)
