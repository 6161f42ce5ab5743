"""mutate_kernels.py tells caught mutants from survivors, on tiny sources."""

import json
import os
import re
import shlex
import sys
from collections import Counter
from pathlib import Path

import mutate_kernels
import pytest
import source_mutants
from mutation_areas import Area, Check, Part, Recipe, ends
from source_mutants import ROOT

PYTHON_SOURCE = """\
def first(x: int) -> int:
    if x < 1:  # not tested at 1
        return x + 2
    return x - 3
"""
PYTHON_TEST = "import tiny; assert tiny.first(0) == 2; assert tiny.first(5) == 2"


def python_area(root, equivalent=None, test=PYTHON_TEST):
    (root / "tiny.py").write_text(PYTHON_SOURCE)
    recipe = Recipe("tiny", ("tiny.py",), environment={"PYTHONPATH": "{source}"})
    command = (sys.executable, "-S", "-c", test)
    return Area("tiny", (Part(recipe, ("tiny.py",), (Check("call", command),), root=root),), equivalent, root)


def run(root, capsys, *options, **area):
    """Run the program on the tiny Python source; return its status, output and errors."""
    arguments = ["--area", "tiny", "--jobs", "1", *options]
    status = mutate_kernels.main(arguments, known=lambda: {"tiny": python_area(root, **area)})
    return status, *capsys.readouterr()


def saved_labels(state):
    """Return the labels of the outcomes in a state file."""
    files = json.loads(state.read_text())["areas"]["tiny"]
    return [f"{path}:{place}" for path, of_file in files.items() for place in of_file["outcomes"]]


def cells(output):
    """Return the table's row: mutants, caught, timeouts, equivalent, survivors."""
    row = next(line for line in output.splitlines() if line.startswith("| tiny |"))
    return [int(cell) for cell in row.split("|")[2:7]]


COMPARISON = "comparison|number"
SURVIVOR = "tiny.py:2:10 comparison: < -> <="


def test_a_caught_mutant_and_a_survivor_are_counted_and_the_survivor_is_shown(tmp_path, capsys):
    status, output, _ = run(tmp_path, capsys, "--only", "comparison|arithmetic")
    assert status == 1
    assert cells(output) == [3, 2, 0, 0, 1]
    assert f"SURVIVED {SURVIVOR}" in output
    command = next(line for line in output.splitlines() if "mutate_kernels.py --area" in line)
    status, repeated, _ = run(tmp_path, capsys, *shlex.split(command)[4:])
    assert cells(repeated) == [1, 0, 0, 0, 1]
    assert (tmp_path / "tiny.py").read_text() == PYTHON_SOURCE
    assert (tmp_path / "build/mutants/tiny-0/source/tiny.py").read_text() == PYTHON_SOURCE


def test_a_mutant_with_a_reason_is_equivalent_and_a_reason_without_a_mutant_is_refused(tmp_path, capsys):
    key = "tiny.py | comparison | if x {<} 1: # not tested at 1"
    status, output, _ = run(tmp_path, capsys, "--only", "comparison", equivalent={key: "no caller has 1"})
    assert (status, cells(output)) == (0, [1, 0, 0, 1, 0])
    status, _, errors = run(tmp_path, capsys, equivalent={key.replace("1:", "7:"): "no caller has 1"})
    assert status == 2
    assert "EQUIVALENT of tiny must name mutants but got tiny.py | comparison | if x {<} 7:" in errors


def test_a_mutant_without_end_is_a_timeout(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("mutation_areas.MORE_SECONDS", 0.5)
    monkeypatch.setattr("mutation_areas.IDLE_SECONDS", 0.5)
    for endless in ("time.sleep(60)", "\n while True: pass"):
        waits = f"import tiny, time\nif tiny.first(5) != 2: {endless}"
        status, output, _ = run(tmp_path, capsys, "--only", "- -> +", test=waits)
        assert (status, cells(output)) == (0, [1, 0, 1, 0, 0])


@pytest.mark.parametrize(("share", "waits"), [(0.02, True), (0.1, False)])
def test_a_session_that_hardly_uses_the_processor_waits(monkeypatch, share, waits):
    """The session ends after five minutes. Until then, it uses this share of a core."""
    clock = 0.0

    def has_ended(pause):
        nonlocal clock
        clock += pause
        return clock > 300

    ticks = os.sysconf("SC_CLK_TCK")
    monkeypatch.setattr("mutation_areas.processes_of", lambda _: {1: int(share * clock * ticks)})
    assert ends(has_ended, 1, 1000.0) == (not waits)
    assert clock < 80 if waits else clock > 300


def test_sources_that_do_not_pass_are_an_error(tmp_path, capsys):
    status, _, errors = run(tmp_path, capsys, test="import tiny; assert tiny.first(0) == 3")
    assert status == 2
    assert "the unchanged sources do not pass call" in errors


def test_unchanged_sources_are_not_tested_again_until_something_changes(tmp_path, capsys):
    runs = tmp_path / "runs"
    counts = f"{PYTHON_TEST}; open({str(runs)!r}, 'a').write('x')"  # a test that fails does not reach its end
    for test, expected in ((counts, "x"), (counts, "x"), (counts + "  # changed", "xx")):
        _, output, _ = run(tmp_path, capsys, "--only", "arithmetic", test=test)
        assert cells(output)[:2] == [2, 2]
        assert runs.read_text() == expected


def test_a_larger_sample_continues_a_state_and_judges_no_mutant_twice(tmp_path, capsys):
    state = tmp_path / "state.json"
    labels = []
    for count in ("2", "4"):
        _, output, _ = run(tmp_path, capsys, "--count", count, "--state", str(state))
        assert cells(output)[0] == int(count)
        assert output.count(" min left]") == 2
        labels.append(saved_labels(state))
    assert labels[1][:2] == labels[0]
    (tmp_path / "other").mkdir()
    _, output, _ = run(tmp_path / "other", capsys, "--count", "4")
    assert all(label in output for label in labels[1])


def test_after_a_change_only_the_mutants_of_that_file_are_judged_again(tmp_path, capsys):
    (tmp_path / "tiny.py").write_text(PYTHON_SOURCE)
    other = tmp_path / "other.py"
    recipe = Recipe("tiny", ("tiny.py", "other.py"), environment={"PYTHONPATH": "{source}"})
    test = Check(
        "call", (sys.executable, "-S", "-c", PYTHON_TEST + "; import other; assert other.second(4) == 9")
    )
    state = tmp_path / "state.json"

    def judged(source):
        other.write_text(source)
        area = Area("tiny", (Part(recipe, ("*.py",), (test,), root=tmp_path),), root=tmp_path)
        options = ["--area", "tiny", "--jobs", "1", "--count", "6", "--state", str(state)]
        mutate_kernels.main(options, known=lambda: {"tiny": area})
        printed = re.findall(r"min left\] \S+ +(\w+\.py)", capsys.readouterr().out)
        return printed, Counter(re.sub(r":\d+:\d+ ", " ", label) for label in saved_labels(state))

    source = "def second(x):\n    y = x * 2\n    return y + 1\n"
    first, changes = judged(source)
    assert len(first) == changes.total() == 6
    assert set(first) == {"tiny.py", "other.py"}
    assert judged(source) == ([], changes)
    again, same_changes = judged("# a comment\n" + source)
    assert again == ["other.py"] * first.count("other.py")
    assert same_changes == changes
    _, other_changes = judged(source.replace("y + 1", "1 + y"))
    assert (changes & other_changes).total() >= 4  # at most two of six are in the changed line


def test_a_state_of_another_seed_is_refused(tmp_path, capsys):
    state = tmp_path / "state.json"
    run(tmp_path, capsys, "--count", "1", "--state", str(state))
    status, _, errors = run(tmp_path, capsys, "--count", "1", "--seed", "1", "--state", str(state))
    assert status == 2
    assert f"--state must be a file of a run with seed 1 but {state} has 0" in errors


def test_with_no_time_the_outcomes_of_a_state_are_counted_and_nothing_is_judged(tmp_path, capsys):
    state = tmp_path / "state.json"
    options = ("--count", "4", "--state", str(state))
    _, output, _ = run(tmp_path, capsys, *options)
    state.write_text(state.read_text() + "\n")  # a run that saves the state would remove this
    before = state.read_text()
    _, again, _ = run(tmp_path, capsys, *options, "--minutes", "0", test="assert False")
    assert state.read_text() == before
    assert cells(again) == cells(output)
    assert " min left]" not in again


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("--minutes", "nan", "must be at least 0 but got nan"),
        ("--minutes", "-1", "must be at least 0 but got -1"),
        ("--jobs", "0", "must be at least 1 but got 0"),
        ("--jobs", "100000", "cores but got 100000"),
    ],
)
def test_options_that_are_no_time_or_number_of_jobs_are_refused(capsys, option, value, rule):
    with pytest.raises(SystemExit) as ended:
        mutate_kernels.main([option, value])
    assert ended.value.code == 2
    assert f"{option} must be " in (error := capsys.readouterr().err)
    assert rule in error


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--only", "nomatch"), "--only must match a mutant but got nomatch"),
        (("--minutes", "0"), "no mutant was"),
        (("--minutes", "0", "--only", "tiny"), "no mutant was judged"),
    ],
)
def test_a_run_that_judges_nothing_is_no_success(tmp_path, capsys, options, reason):
    status, _, errors = run(tmp_path, capsys, *options)
    assert status == 2
    assert f"mutate_kernels.py: {reason}" in errors


def test_the_documentation_counts_the_outcomes_that_are_kept():
    """The rows of the samples whose outcomes are in tests/mutants/outcomes."""
    rows = {
        row.split("|")[1].strip(" `"): [int(cell.split()[0]) for cell in row.split("|")[2:7]]
        for row in (ROOT / "docs/validation.md").read_text().splitlines()
        if re.match(r"\| `\w+` \| \d+ \|( \d+ \|){3}", row)
    }
    files = sorted((Path(mutate_kernels.__file__).parent / "outcomes").glob("*.json"))
    assert files
    for file in files:
        content = json.loads(file.read_text())
        for area, saved in content["areas"].items():
            states = [
                o.partition(" | ")[0] for of_file in saved.values() for o in of_file["outcomes"].values()
            ]
            count = Counter(states)
            detected, explained = count["caught"] + count["timeout"], count["equivalent"] + count["same code"]
            judged = detected + explained + count["SURVIVED"]
            assert len(states) == judged + count["does not compile"]
            expected = [content["seed"], judged, detected, explained, count["SURVIVED"]]
            assert rows[area] == expected, f"docs/validation.md must have the outcomes of {file.name}"


def test_again_judges_survivors_again(tmp_path, capsys):
    options = ("--only", "comparison|arithmetic", "--state", str(tmp_path / "state.json"))
    run(tmp_path, capsys, *options)
    both = PYTHON_TEST + "; assert tiny.first(1) == -2"
    _, kept, _ = run(tmp_path, capsys, *options, test=both)
    assert cells(kept) == [3, 2, 0, 0, 1]
    status, output, _ = run(tmp_path, capsys, *options, "--again", test=both)
    assert (status, cells(output)) == (0, [3, 3, 0, 0, 0])
    assert output.count(" min left]") == 1


def test_again_with_only_keeps_the_other_survivors(tmp_path, capsys):
    state = tmp_path / "state.json"
    run(tmp_path, capsys, "--only", "comparison|number", "--state", str(state))
    before = saved_labels(state)
    _, output, _ = run(tmp_path, capsys, "--only", "comparison", "--state", str(state), "--again")
    assert output.count(" min left]") == 1
    assert sorted(saved_labels(state)) == sorted(before)


CPP_SOURCE = """\
#include <vector>

// a < b
extern "C" int sum(const std::vector<int>& v, int most) {
    int s = 0;
    for (int x : v)
        if (x <= most && x != 3) s += x;
    return v.empty() ? most : s;
}
const char* text = "a < b";
"""


def test_mutants_of_cpp_leave_comments_texts_and_templates_alone(tmp_path):
    (tmp_path / "sum.cpp").write_text(CPP_SOURCE)
    mutants = source_mutants.mutants_of(tmp_path / "sum.cpp", tmp_path)
    assert [mutant.label().partition(":")[2] for mutant in mutants] == [
        "5:13 number + 1: 0 -> (0 + 1)",
        "7:13 condition negated: x <= most && x != 3 -> !(x <= most && x != 3)",
        "7:15 comparison: <= -> <",
        "7:23 logic: && -> ||",
        "7:28 comparison: != -> ==",
        "7:31 number + 1: 3 -> (3 + 1)",
        "7:36 assignment: += -> -=",
        "8:24 choice swapped: most : s -> s : most",
    ]


def cpp_area(tmp_path, source=CPP_SOURCE, later=None):
    """Return an area of a library, and of a program with objects of its own."""
    (tmp_path / "sum.cpp").write_text(source)
    (tmp_path / "main.cpp").write_text(
        "#include <vector>\n"
        'extern "C" int sum(const std::vector<int>&, int);\n'
        "int main() { return sum({1, 2, 3, 9}, 4) == 3 && sum({3}, 4) == 0 ? 0 : 1; }\n"
    )
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(tiny CXX)\n"
        "add_library(npu_rope SHARED sum.cpp)\nadd_executable(tiny sum.cpp main.cpp)\n"
    )
    recipe = Recipe("tiny", ("CMakeLists.txt", "sum.cpp", "main.cpp"), project=".", later=later)
    test = Check("sum", ("{build}/tiny",), ("tiny",), ("tiny",))
    return Area("tiny", (Part(recipe, ("sum.cpp",), (test,), root=tmp_path),), root=tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("options", [(), ("--switch",)])
@pytest.mark.parametrize("later", [None, lambda: "no object"])
def test_mutants_of_cpp_are_compiled_and_run(tmp_path, capsys, later, options):
    """Also if a recipe compiles some objects of a library later."""
    area = cpp_area(tmp_path, later=later)
    mutate_kernels.main(["--area", "tiny", "--jobs", "1", *options], known=lambda: {"tiny": area})
    output = capsys.readouterr().out
    assert cells(output) == [8, 7, 0, 0, 1]
    assert "SURVIVED sum.cpp:7:15 comparison: <= -> <" in output


# The compiler refuses a condition in the value of `size`, because an array and a case need the constant.
ARRAY = """\
extern "C" int sum(const std::vector<int>& v, int most) {
    const int size = 4 - 3;
    int values[size + 0] = {};
    most = most - 3 + 3 + values[0];
    switch (most) { case size: return 5; }
"""


@pytest.mark.long
def test_mutants_that_the_compiler_refuses_behind_a_condition_are_compiled_alone(tmp_path, capsys):
    source = CPP_SOURCE.replace('extern "C" int sum(const std::vector<int>& v, int most) {\n', ARRAY)
    area = cpp_area(tmp_path, source)
    only = ("--only", "cpp:(5|6|7|8):")
    mutate_kernels.main(["--area", "tiny", "--jobs", "1", *only], known=lambda: {"tiny": area})
    alone = re.findall(r"min left\] (.*?) +(sum\S+) (.*)", capsys.readouterr().out)
    area = cpp_area(tmp_path, source)
    mutate_kernels.main(["--area", "tiny", "--jobs", "1", *only, "--switch"], known=lambda: {"tiny": area})
    output = capsys.readouterr().out
    assert re.findall(r"min left\] (.*?) +(sum\S+) (.*)", output) == alone
    assert len(alone) >= 8
    assert {state for state, *_ in alone} >= {"caught", "SURVIVED"}
    assert {mutant.line for mutant in area._switched} == {7}
