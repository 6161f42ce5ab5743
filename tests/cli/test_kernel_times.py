"""Kernel times are read from the profiler's files, in both documented formats."""

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
    """Return a folder as the profiler leaves it, with the file in the subfolder `into`."""
    folder = tmp_path / "host_1_20260101_ascend_pt" / into
    folder.mkdir(parents=True)
    (folder / file.name).write_bytes(file.read_bytes())
    return tmp_path


def edited_details(tmp_path, change):
    """Return the path of a kernel_details.csv whose rows `change` edited."""
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
    """As float64 the two start times are equal."""

    def change(rows):
        column = rows[0].index("Start Time(us)")
        rows[1][column], rows[2][column] = "1750000000000010.0271\t", "1750000000000010.0270\t"

    assert float("1750000000000010.0271") == float("1750000000000010.0270")
    runs = kernel_times.read_kernels(edited_details(tmp_path, change))
    assert [run.duration_us for run in runs[:2]] == [6.2, 5.96]


def test_without_a_type_the_kernels_name_gives_the_operator(tmp_path):
    def change(rows):
        column = rows[0].index("Type")
        for row in rows[1:]:
            row[column] = "N/A"

    runs = kernel_times.read_kernels(edited_details(tmp_path, change))
    assert [len(d) for d in kernel_times.durations_of(runs, "NpuRope", [4])] == [4]
    assert not any(run.is_of("NpuRopeQk") for run in runs)
    assert not any(run.is_of("Rope") for run in runs)


def test_a_prefix_of_the_operators_name_does_not_match():
    run = kernel_times.KernelRun("aclnnNpuRopeQk_NpuRopeQk_NpuRopeQk", "NpuRopeQk", Decimal(0), 1.0)
    assert run.is_of("NpuRopeQk")
    assert not run.is_of("NpuRope")


@pytest.mark.parametrize("launches", [[2, 1], [2, 3], [5]])
def test_a_wrong_number_of_launches_is_an_error(launches):
    runs = kernel_times.read_kernels(DETAILS)
    text = f"launches of NpuRope must be {sum(launches)} but the profiler lists 4"
    with pytest.raises(NoKernelTimes, match=text):
        kernel_times.durations_of(runs, "NpuRope", launches)


def test_an_undocumented_column_is_named(tmp_path):
    def change(rows):
        rows[0][rows[0].index("Duration(us)")] = "Elapsed(ns)"

    with pytest.raises(NoKernelTimes, match=r"other columns than documented: .*Elapsed\(ns\)"):
        kernel_times.read_kernels(edited_details(tmp_path, change))


@pytest.mark.parametrize("value", ["N/A", "", "nan", "inf", "1,5"])
def test_an_invalid_time_is_reported_with_its_line(tmp_path, value):
    def change(rows):
        rows[3][rows[0].index("Duration(us)")] = value

    with pytest.raises(NoKernelTimes, match=r"kernel_details.csv, line 4: times must be numbers"):
        kernel_times.read_kernels(edited_details(tmp_path, change))


def test_an_empty_file_is_reported(tmp_path):
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


def test_a_profiler_that_wrote_no_file_is_reported(tmp_path):
    with pytest.raises(NoKernelTimes, match="wrote neither kernel_details"):
        kernel_times.find_kernels(tmp_path)


def test_without_msprof_there_is_no_profile(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(NoKernelTimes, match="msprof is not on PATH"):
        kernel_times.require_profiler()


@pytest.mark.parametrize("variable", ["PROFILER_SAMPLECONFIG", "PROFILING_MODE"])
def test_a_second_profile_at_the_same_time_is_refused(monkeypatch, variable):
    monkeypatch.setenv(variable, "something")
    with pytest.raises(NoKernelTimes, match=f"{variable} is set"):
        kernel_times.require_profiler()


def test_an_incompatible_profiler_is_reported(tmp_path):
    arguments = (tmp_path, "NpuRope", [lambda: None], 1, lambda: None)
    with pytest.raises(NoKernelTimes, match="torch_npu's profiler failed: AttributeError"):
        kernel_times.profile(SimpleNamespace(), *arguments)


def test_a_time_is_the_median_with_minimum_and_maximum():
    assert kernel_times.summary_of([3.0, 1.0, 100.0], kernel_times.BY_PROFILER) == {
        "us": 3.0,
        "min_us": 1.0,
        "max_us": 100.0,
        "launches": 3,
        "method": "profiler",
    }
