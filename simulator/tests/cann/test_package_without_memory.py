"""The first call of an operator package in processes without memory: no_memory_package.cpp has the claims."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from foreign_operator import LIBRARIES, RUNTIME_LIBRARIES, compile_files

PROGRAM = Path(__file__).resolve().parent / "no_memory_package.cpp"


@pytest.mark.long
def test_the_first_call_may_find_no_memory(foreign_package, foreign_kernel, tmp_path):
    opapi = foreign_package / "op_api/lib/libcust_opapi.so"
    more = ["-pthread", opapi, *RUNTIME_LIBRARIES, f"-Wl,-rpath,{opapi.parent}", "-ldl"]
    program = compile_files(PROGRAM, output=tmp_path / "program", more=more)
    variables = {
        "ASCEND_CUSTOM_OPP_PATH": str(foreign_package),
        "ASCEND_OPP_PATH": str(tmp_path),
        "ASCEND_SIM_KERNELS": str(foreign_kernel),
        "ASCEND_SIM_SOC": "Ascend910B4",
        "LD_LIBRARY_PATH": str(LIBRARIES),
    }
    done = subprocess.run(
        [program],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout
    assert len(re.findall(r"^\d+ failed allocations;", done.stdout, re.MULTILINE)) == 2
