"""The headers for the host code of operators behave as CANN's: host_headers.cpp has the claims."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from ascend_sim import folders
from foreign_operator import HOST_LIBRARY, compile_files

PROGRAM = Path(__file__).resolve().parent / "host_headers.cpp"
INCLUDE = folders.root() / "cann" / "include"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compile_files(PROGRAM, output=tmp_path_factory.mktemp("host") / "headers", more=HOST_LIBRARY)


SECTIONS = dict.fromkeys(re.findall(r'\{"(\w+)", \w+\}', PROGRAM.read_text()), (0, ""))
SECTIONS["platform_without_data"] = (
    3,
    "[sim] platform information must be simulated but got VectorCoreintrinsicDtypeMap.\n",
)
SECTIONS["platform_without_information"] = (
    -6,
    "[sim] platform information must be given but got NULL.\n",
)


@pytest.mark.long
@pytest.mark.parametrize("section", SECTIONS)
def test_the_host_headers_behave_as_cann_says(program, section):
    done = subprocess.run([program, section], capture_output=True, text=True)
    assert done.stdout == ""
    assert (done.returncode, done.stderr) == SECTIONS[section]


@pytest.mark.long
@pytest.mark.parametrize("header", sorted(str(p.relative_to(INCLUDE)) for p in INCLUDE.rglob("*.h")))
def test_each_header_compiles_alone(header, tmp_path):
    source = tmp_path / "one.cpp"
    source.write_text(f'#include "{header}"\n')
    compile_files(source, output=tmp_path / "one.o", more=["-c", "-fsyntax-only"])
