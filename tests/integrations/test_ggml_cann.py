"""The adapter for ggml's CANN backend compiles without warnings and runs graphs of the installed ggml."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import without_torch
from ascend_sim import folders

from npu_rope import native
from npu_rope.testing import ggml

ROOT = Path(__file__).parents[2]
ADAPTER = ROOT / "integrations" / "ggml_cann"
SCRIPTS = Path(__file__).parent / "scripts"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def compiler(variable, default):
    return shlex.split(os.environ.get(variable, default))


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    cann = folders.library("ascend_sim_cann")
    package = native.load().path.parent / "simulated_package" / "op_api"
    library = tmp_path_factory.mktemp("adapter") / "libnpu_rope_ggml.so"
    command = [*compiler("CXX", "c++"), "-std=c++17", "-O1", *WARNINGS, "-fPIC", "-shared"]
    command += [f"-I{ROOT / 'simulator/cann/include'}", f"-I{package / 'include'}", f"-I{ADAPTER}"]
    command += [*map(str, sorted(ADAPTER.glob("*.cpp")))]
    command += [f"-L{cann.parent}", "-lascend_sim_cann", f"-L{package / 'lib'}"]
    command += ["-lcust_opapi", f"-Wl,-rpath,{cann.parent}:{package / 'lib'}", "-o", str(library)]
    subprocess.run(command, check=True)
    return library, cann, package / "lib" / "libcust_opapi.so"


def run_script(name, adapter, soc):
    """Run a script with the installed ggml on a simulated chip, and return its last line."""
    try:
        ggml.find_library_dir()
    except ggml.GgmlUnavailable as error:
        pytest.skip(str(error))
    command = [sys.executable, *without_torch.script(SCRIPTS / name), *map(str, adapter)]
    package = adapter[2].parents[2]
    paths = {"ASCEND_CUSTOM_OPP_PATH": str(package), "ASCEND_OPP_PATH": str(package.parent)}
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS), "ASCEND_SIM_SOC": soc, **paths}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.long
@pytest.mark.peer
@pytest.mark.parametrize("soc", ["Ascend910B2", "Ascend310P3"])
def test_graphs_of_ggml_give_the_cpus_results(adapter, soc):
    """The graphs cover every mode, partial heads, windows, YaRN, factors, backward, in place, views, float16.
    Nodes that the adapter must refuse are refused."""
    assert run_script("ggml_graphs.py", adapter, soc).startswith("82 graphs, at most 0.")


@pytest.mark.peer
@pytest.mark.parametrize("soc", ["Ascend910B2", "Ascend310P3"])
def test_norms_and_fused_forms_agree_with_their_specifications(adapter, soc):
    """One call computes the nodes of a form. A graph is also captured and replayed. Nodes that break a rule
    of a form are not computed together."""
    assert run_script("ggml_fusion.py", adapter, soc).startswith("35 graphs, at most 0.")


def test_the_header_compiles_as_c99(tmp_path):
    source = tmp_path / "uses.c"
    source.write_text('#include "npu_rope_ggml.h"\nint main(void) { return NPU_ROPE_GGML_OK; }\n')
    command = [*compiler("CC", "cc"), "-std=c99", *WARNINGS, f"-I{ADAPTER}", "-c", str(source)]
    subprocess.run([*command, "-o", str(tmp_path / "uses.o")], check=True)
