"""Kernel times out of the files that CANN's profiler leaves, in both forms that are documented."""

import csv
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pytest

from npu_rope.hardware import kernel_times
from npu_rope.hardware.kernel_times import NoKernelTimes

FILES = Path(__file__).parent / "profiles"
DETAILS, SUMMARY = FILES / "kernel_details.csv", FILES / "op_summary_20260101120000.csv"


def profile_folder(tmp_path, file, into):
    folder = tmp_path / "host_1_20260101_ascend_pt" / into
    folder.mkdir(parents=True)
    (folder / file.name).write_bytes(file.read_bytes())
    return tmp_path


def rewritten(tmp_path, change):
    """kernel_details.csv after a change to its rows."""
    rows = list(csv.reader(DETAILS.read_text().splitlines()))
    change(rows)
    path = tmp_path / "kernel_details.csv"
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows(rows)
    return path


@pytest.mark.parametrize("file", [DETAILS, SUMMARY], ids=lambda f: f.name.partition(".")[0])
def test_both_files_give_the_same_launches_in_the_order_of_their_start(file):
    runs = kernel_times.read_kernels(file)
    assert [(run.type, run.duration_us) for run in runs] == [
        ("NpuRope", 6.2),
        ("NpuRope", 5.96),
        ("Cast", 2.5),
        ("NpuRope", 51.08),
        ("NpuRope", 49.98),
    ]
    assert runs[0].start_us == Decimal("1750000000000010.027")
    assert kernel_times.durations_of(runs, "NpuRope", [2, 2]) == [[6.2, 5.96], [51.08, 49.98]]


def test_start_times_are_compared_with_all_their_digits(tmp_path):
    """Two starts that are the same float64."""

    def change(rows):
        at = rows[0].index("Start Time(us)")
        rows[1][at], rows[2][at] = "1750000000000010.0271\t", "1750000000000010.0270\t"

    assert float("1750000000000010.0271") == float("1750000000000010.0270")
    runs = kernel_times.read_kernels(rewritten(tmp_path, change))
    assert [run.duration_us for run in runs[:2]] == [6.2, 5.96]


def test_without_a_type_the_name_tells_the_operator(tmp_path):
    def change(rows):
        at = rows[0].index("Type")
        for row in rows[1:]:
            row[at] = "N/A"

    runs = kernel_times.read_kernels(rewritten(tmp_path, change))
    assert [len(d) for d in kernel_times.durations_of(runs, "NpuRope", [4])] == [4]
    assert not any(run.is_of("NpuRopeQk") for run in runs)
    assert not any(run.is_of("Rope") for run in runs)


def test_an_operator_whose_name_begins_alike_is_another_one():
    run = kernel_times.KernelRun("aclnnNpuRopeQk_NpuRopeQk_NpuRopeQk", "NpuRopeQk", Decimal(0), 1.0)
    assert run.is_of("NpuRopeQk")
    assert not run.is_of("NpuRope")


@pytest.mark.parametrize("launches", [[2, 1], [2, 3], [5]])
def test_launches_that_are_missing_or_too_many_cannot_be_told_apart(launches):
    runs = kernel_times.read_kernels(DETAILS)
    with pytest.raises(NoKernelTimes, match=rf"lists 4 launches of NpuRope where {sum(launches)} were made"):
        kernel_times.durations_of(runs, "NpuRope", launches)


def test_other_columns_are_named(tmp_path):
    def change(rows):
        rows[0][rows[0].index("Duration(us)")] = "Elapsed(ns)"

    with pytest.raises(NoKernelTimes, match=r"other columns than documented: .*Elapsed\(ns\)"):
        kernel_times.read_kernels(rewritten(tmp_path, change))


@pytest.mark.parametrize("value", ["N/A", "", "nan", "inf", "1,5"])
def test_a_time_that_is_no_number_is_named_with_its_line(tmp_path, value):
    def change(rows):
        rows[3][rows[0].index("Duration(us)")] = value

    with pytest.raises(NoKernelTimes, match=r"kernel_details.csv, line 4: times must be numbers"):
        kernel_times.read_kernels(rewritten(tmp_path, change))


def test_an_empty_file_is_said_to_be_empty(tmp_path):
    (tmp_path / "kernel_details.csv").write_text("")
    with pytest.raises(NoKernelTimes, match=r"kernel_details.csv is empty"):
        kernel_times.read_kernels(tmp_path / "kernel_details.csv")


@pytest.mark.parametrize(
    ("file", "into"),
    [(DETAILS, "ASCEND_PROFILER_OUTPUT"), (SUMMARY, "PROF_000001_20260101_ABC/mindstudio_profiler_output")],
    ids=["torch_npu", "CANN"],
)
def test_the_files_are_found_where_the_profiler_leaves_them(tmp_path, file, into):
    assert len(kernel_times.find_kernels(profile_folder(tmp_path, file, into))) == 5


def test_a_profiler_that_wrote_nothing_is_said_to(tmp_path):
    with pytest.raises(NoKernelTimes, match="wrote neither kernel_details"):
        kernel_times.find_kernels(tmp_path)


def test_without_msprof_there_is_no_profile(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(NoKernelTimes, match="msprof is not on PATH"):
        kernel_times.require_profiler()


@pytest.mark.parametrize("variable", ["PROFILER_SAMPLECONFIG", "PROFILING_MODE"])
def test_beside_another_profile_there_is_none(monkeypatch, variable):
    monkeypatch.setenv(variable, "something")
    with pytest.raises(NoKernelTimes, match=f"{variable} is set"):
        kernel_times.require_profiler()


def test_a_profiler_of_another_version_is_no_crash(tmp_path):
    how = (tmp_path, "NpuRope", [lambda: None], 1, lambda: None)
    with pytest.raises(NoKernelTimes, match="torch_npu's profiler failed: AttributeError"):
        kernel_times.profile(SimpleNamespace(), *how)


def test_a_time_is_the_median_with_its_ends():
    assert kernel_times.summary_of([3.0, 1.0, 100.0], kernel_times.BY_PROFILER) == {
        "us": 3.0,
        "min_us": 1.0,
        "max_us": 100.0,
        "launches": 3,
        "method": "profiler",
    }
