"""The marked lines of refusals/refusals.cpp, and no others, fail to compile; one compiler run per SoC."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from ascend_sim import compiler, folders

SOURCE = Path(__file__).with_name("refusals") / "refusals.cpp"
SOCS = ("ascend910b", "ascend910_93", "ascend310p", "ascend950")
MARK = re.compile(r"// not on (?P<socs>any|[\w, ]+?)(?:: (?P<message>.*))?$")


def error_line_pattern(source):
    """A pattern that captures line numbers of the source in the compiler's output. g++ names a line in the
    error itself, as the place where a template is required, or as the place of a macro."""
    kinds = "error:|required from|note: in expansion of macro"
    return re.compile(rf"^(?:.*/)?{re.escape(source.name)}:(\d+):\d+: +(?:{kinds})", re.MULTILINE)


def required_messages(soc):
    """The required compiler message of each line that must not compile, by line number."""
    marked_soc = {"ascend910_93": "ascend910b"}.get(soc, soc)
    messages = {}
    for number, line in enumerate(SOURCE.read_text().splitlines(), 1):
        mark = MARK.search(line)
        if mark and (mark["socs"] == "any" or marked_soc in mark["socs"].split(", ")):
            messages[number] = mark["message"] or ""
    return messages


def compiler_output(source, soc):
    """The compiler's output for a source, with every error."""
    command = [*compiler.compiler().split(), *compiler.FLAGS, "-fsyntax-only", "-fmax-errors=0", "-w"]
    command += [f"-D__CCE_AICORE__={compiler.AICORE[soc]}", f"-I{folders.include()}"]
    command += ["-include", "tiling_prelude.h", str(source)]
    return subprocess.run(command, capture_output=True, text=True).stderr


@pytest.mark.parametrize("soc", SOCS)
def test_only_calls_that_an_soc_lacks_do_not_compile(soc):
    output = compiler_output(SOURCE, soc)
    refused = {int(line) for line in error_line_pattern(SOURCE).findall(output)}
    expected = required_messages(soc)
    assert sorted(refused) == sorted(expected)
    assert [message for message in expected.values() if message not in output] == []


def test_the_marked_lines_differ_between_instruction_sets():
    marked_lines = {tuple(required_messages(soc)) for soc in ("ascend910b", "ascend310p", "ascend950")}
    assert len(marked_lines) == 3
    assert all(marked_lines)
