"""Calls that an SoC lacks do not compile: line by line, in one pass of the compiler for each SoC."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from ascend_sim import compiler, folders

SOURCE = Path(__file__).with_name("refusals") / "refusals.cpp"
SOCS = ("ascend910b", "ascend910_93", "ascend310p", "ascend950")
MARK = re.compile(r"// not on (?P<socs>any|[\w, ]+?)(?:: (?P<words>.*))?$")


def complaints_about(source):
    """A pattern for the source's lines in the compiler's output: g++ names a line in the error, as the place
    where a template is required, or as that of a macro."""
    kinds = "error:|required from|note: in expansion of macro"
    return re.compile(rf"^(?:.*/)?{re.escape(source.name)}:(\d+):\d+: +(?:{kinds})", re.MULTILINE)


def marked(soc):
    """The required compiler message of each line that must not compile."""
    same_core = {"ascend910_93": "ascend910b"}.get(soc, soc)
    lines = {}
    for number, line in enumerate(SOURCE.read_text().splitlines(), 1):
        mark = MARK.search(line)
        if mark and (mark["socs"] == "any" or same_core in mark["socs"].split(", ")):
            lines[number] = mark["words"] or ""
    return lines


def compile_all(source, soc):
    """The compiler's whole output for a source."""
    command = [*compiler.compiler().split(), *compiler.FLAGS, "-fsyntax-only", "-fmax-errors=0", "-w"]
    command += [f"-D__CCE_AICORE__={compiler.AICORE[soc]}", f"-I{folders.include()}"]
    command += ["-include", "tiling_prelude.h", str(source)]
    return subprocess.run(command, capture_output=True, text=True).stderr


def refused(soc):
    """The lines with compiler errors, and the whole output."""
    output = compile_all(SOURCE, soc)
    return {int(line) for line in complaints_about(SOURCE).findall(output)}, output


@pytest.mark.parametrize("soc", SOCS)
def test_only_calls_that_an_soc_lacks_do_not_compile(soc):
    lines, output = refused(soc)
    expected = marked(soc)
    assert sorted(lines) == sorted(expected)
    assert [words for words in expected.values() if words not in output] == []


def test_every_soc_lacks_different_calls():
    tables = [tuple(marked(soc)) for soc in ("ascend910b", "ascend310p", "ascend950")]
    assert len(set(tables)) == 3
    assert all(tables)
