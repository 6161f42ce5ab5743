"""A source with all mutants behind conditions does, for each of them, what the mutant alone does."""

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import mutant_switches
import pytest
from mutant_switches import VARIABLE
from source_mutants import changed, mutants_of

# Every form of a region, some inside others. Every loop ends soon with any of its mutants.
PROGRAM = """\
#include <algorithm>
#include <cstdio>
#include <vector>
#define TWICE(x) \\
    ((x) + (x))
namespace {
constexpr int kMost = 7;
struct Pair {
    int first = 2, second = kMost - 3;
    explicit Pair(int given) : first(given * 2) {}
    int sum() const { return first + second; }
};
enum class Kind { kOne = 1 };
template <int N>
int times(int x) {
    if constexpr (N > 2) {
        return x * N;
    } else {
        return x;
    }
}
constexpr int constant(int x) { return x > 3 ? x - 1 : x + 1; }
int run(std::vector<int> v, int limit) {  // { a + b; }
    int total = 0, count = limit / 2;
    const int size = 4 - 1;
    const auto add = [&](int x) {
        total += x;  // "in a lambda"
        return total > 9;
    };
    for (int i = 0; i < 5 && i < limit; ++i)
        if (v[i % 3] == 3)
            total -= 1;
        else if (v[i % 3] > 1 || (i == 2 &&
                                  limit != 4))
            add(v[i % 3] * 2);
    for (int x : std::vector<int>(3, limit + 1)) total += x;
    for (int i = 8; i > 0 && i < 20 && total > -500; i = i - 2) total += i;
    int step = 3, rounds = 0;
    while (--step > 0) count += step;
    switch (limit - 1) {
        case 3: total += 10; break;
        default: total *= 2;
    }
    if (const int rest = limit - 4; rest < 2) count++;
    const char* text = limit > 2 ? "a;{" : ")";
    std::sort(v.begin(), v.end(), [](int a, int b) { return a > b; });
    const int most = std::max(total, count);
    const int* const end = v.data() + limit / 3;
    Pair pair(most + 1 + *end);
    std::printf("%d %d %d %d %s %d %d\\n", total, count, most, v[0], text, pair.sum(), __LINE__);
    const bool is_small = limit < 3;
    do {
        limit = limit - 1;
    } while (limit > 3 && ++rounds < 9);
    if (is_small) throw limit - 1;
    static_assert(constant(2) == 3, "a constant expression");
    return times<3>(TWICE(limit)) + constant(total);
}
}  // namespace
int main() {
    int sum = 0;
    for (int limit : {1, 2, 4, 5, 6}) {
        try {
            sum = sum * 3 + run({1, 2, 3}, limit);
        } catch (int thrown) {
            sum -= thrown;
        }
    }
    std::printf("%d\\n", sum);
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The folder of the program, its mutants with their regions, and those without."""
    folder = tmp_path_factory.mktemp("program")
    path = folder / "program.cpp"
    path.write_text(PROGRAM)
    mutants = mutants_of(path, folder)
    regions = mutant_switches.regions_of(PROGRAM, mutants)
    return folder, regions, [m for m in mutants if m not in regions]


def built(folder, name, text):
    """Compile a text; return the program, or the compiler's errors."""
    source, result = folder / f"{name}.cpp", folder / name
    source.write_text(text)
    command = [os.environ.get("CXX", "c++"), "-std=c++17", "-w", "-fwrapv", str(source), "-o", str(result)]
    done = subprocess.run(command, capture_output=True, text=True)
    return result if done.returncode == 0 else done.stderr


def outcome(program, chosen=""):
    """Return what a program prints, and its status. An endless program is ended."""
    command = ("sh", "-c", 'ulimit -t 2; ulimit -v 1000000; exec "$@"', "sh", str(program))
    done = subprocess.run(command, capture_output=True, env={**os.environ, VARIABLE: chosen})
    return done.returncode, done.stdout


def test_every_form_has_mutants_and_a_constant_has_none(program):
    _, regions, others = program
    assert {region.form for region in regions.values()} == {"value", "condition", "step", "statement"}
    for region in regions.values():
        text = PROGRAM[region.begin : region.end]
        assert text.endswith(";") == (region.form == "statement")
        assert text.count("(") == text.count(")") or '"' in text
    lines = {PROGRAM.splitlines()[m.line - 1].strip() for m in others}
    assert lines == {
        "constexpr int kMost = 7;",
        "enum class Kind { kOne = 1 };",
        "((x) + (x))",
        "if constexpr (N > 2) {",
        "case 3: total += 10; break;",
        'static_assert(constant(2) == 3, "a constant expression");',
        "for (int limit : {1, 2, 4, 5, 6}) {",
    }


@pytest.mark.long
def test_a_chosen_mutant_does_what_it_does_alone(program):
    folder, regions, _ = program
    (folder / "chosen_mutant.h").write_text(mutant_switches.HEADER)
    numbers = {m: number for number, m in enumerate(regions, 1)}
    text = mutant_switches.switched(PROGRAM, regions, numbers, str(folder / "chosen_mutant.h"))
    all_mutants = built(folder, "all", text)
    assert not isinstance(all_mutants, str), all_mutants
    unchanged = outcome(built(folder, "unchanged", PROGRAM))
    assert outcome(all_mutants) == outcome(all_mutants, "0") == unchanged
    with ThreadPoolExecutor() as pool:
        alone = list(pool.map(lambda m: built(folder, f"alone{numbers[m]}", changed(PROGRAM, m)), regions))
    compared = different = 0
    for m, program_of_m in zip(regions, alone, strict=True):
        chosen = outcome(all_mutants, str(numbers[m]))
        if isinstance(program_of_m, str):  # a mutant that breaks the static_assert
            assert "constant(2)" in program_of_m, m.label()
            continue
        assert chosen == outcome(program_of_m), m.label()
        compared, different = compared + 1, different + (chosen != unchanged)
    assert compared > 60
    assert different > 0.7 * compared


def test_the_lines_keep_their_numbers(program):
    _, regions, _ = program
    text = mutant_switches.switched(PROGRAM, regions, dict.fromkeys(regions, 1), "chosen_mutant.h")
    header = '#include "chosen_mutant.h"\n#line 1\n'
    assert text.startswith(header)
    assert text.count("\n") == PROGRAM.count("\n") + header.count("\n")
    for line, new in zip(PROGRAM.splitlines(), text.removeprefix(header).splitlines(), strict=True):
        if comment := re.search(r"//.*", line):
            assert new.endswith(comment[0])
    for region in regions.values():
        before = PROGRAM[: region.begin]
        lines = mutant_switches.lines_of(PROGRAM, region)
        assert lines[0] == before.count("\n") + 1
        assert len(lines) == PROGRAM[region.begin : region.end].count("\n") + 1


def test_an_error_at_a_place_without_mutants_costs_those_of_its_file_only(tmp_path):
    here, there = tmp_path / "here.h", tmp_path / "there.h"
    here.write_text("int a(int x) { return x + 1; }\nint b();\n")
    there.write_text("int c(int x) { return x - 1; }\n")
    mutants = [m for path in (here, there) for m in mutants_of(path, tmp_path)]
    sources = mutant_switches.SwitchedSources(tmp_path, {m: n for n, m in enumerate(mutants, 1)})
    errors = f"{there}:1:5: note: in a call\n{here}:2:5: error: no constant\n"
    assert sources.leave_out(errors, tmp_path)
    assert {m.file for m in sources.mutants()} == {"there.h"}
    assert sources.leave_out(errors, tmp_path)
    assert sources.mutants() == []
    assert not sources.leave_out(errors, tmp_path)


def test_a_call_that_is_inlined_where_an_error_is_has_no_condition(tmp_path):
    """The compiler names a system's header for a number that an instruction must know."""
    (tmp_path / "here.h").write_text("int a(int x) { return x + 1; }\nint b(int x) { return x + 2; }\n")
    mutants = list(mutants_of(tmp_path / "here.h", tmp_path))
    sources = mutant_switches.SwitchedSources(tmp_path, {m: n for n, m in enumerate(mutants, 1)})
    errors = (
        f"    inlined from 'int a()' at {tmp_path}/here.h:2:23,\n/usr/include/x.h:9:2: error: no constant\n"
    )
    assert sources.leave_out(errors, tmp_path)
    assert {m.label().split(":")[1] for m in sources.mutants()} == {"1"}


def test_a_table_of_macros_has_no_conditions(tmp_path):
    """Python's tests read the declarations of functions from such a file."""
    text = "ROW(name, (const aclTensor* cos, int64_t rows))\n"
    (tmp_path / "table.def").write_text(text)
    (mutant, *_) = mutants_of(tmp_path / "table.def", tmp_path)
    sources = mutant_switches.SwitchedSources(tmp_path, {mutant: 1})
    assert not sources.mutants()
    assert not sources.write()
    assert (tmp_path / "table.def").read_text() == text
