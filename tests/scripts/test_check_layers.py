"""scripts/check_layers.py reports violations that are planted in a copy of the tree."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "check_layers.py"


def module_of(name: str) -> Any:
    """Return a module of the scripts."""
    spec = importlib.util.spec_from_file_location(name, SCRIPT.with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


layer_tables = module_of("layer_tables")  # check_layers imports it


def memoized(judge: Any) -> Any:
    return cache(lambda *file: list(judge(*file)))


@pytest.fixture(scope="module")
def layers() -> Iterator[Any]:
    module = module_of("check_layers")
    # Tests change one or two files of the tree, so verdicts are memoized by path and text.
    for judge in (
        "check_c_file",
        "check_python_file",
        "check_public_names",
        "check_outside_package",
        "check_other_file",
        "check_hostile_input",
    ):
        setattr(module, judge, memoized(getattr(module, judge)))
    yield module
    del sys.modules["check_layers"], sys.modules["layer_tables"]


@pytest.fixture(scope="module")
def tree(layers: Any) -> dict[str, str]:
    """The texts of the files, by their paths. The tests may not change them."""
    return dict(layers.texts_below(ROOT))


def planted(tree: dict[str, str], file: str, line: str) -> tuple[dict[str, str], int]:
    """Return a tree with a line at the end of a file, which may be new, and the line's number."""
    before = tree.get(file, "")
    return {**tree, file: f"{before}{line}\n"}, before.count("\n") + 1


def violations_in(layers: Any, tree: dict[str, str]) -> list[str]:
    return [str(violation) for violation in layers.check(tree)]


@pytest.mark.long
def test_the_tree_itself_keeps_its_layers(layers: Any, tree: dict[str, str]) -> None:
    assert violations_in(layers, tree) == []


@pytest.mark.parametrize("violates", [False, True])
def test_exit_status_and_count(tmp_path: Path, violates: bool) -> None:
    file = tmp_path / "csrc/cpu/rope.cpp"
    file.parent.mkdir(parents=True)
    file.write_text("#include <Python.h>\n" if violates else "#include <vector>\n")
    done = subprocess.run([sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, timeout=60)
    assert done.returncode == violates, done.stderr
    assert done.stdout == f"layers: {int(violates)} violation(s)\n"


@pytest.mark.parametrize("folder", ["nope", "."])
def test_a_folder_without_sources_is_refused(tmp_path: Path, folder: str) -> None:
    root = tmp_path / folder
    done = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"[check_layers] ROOT must be a checkout with sources but got {root}.\n"


def test_help_shows_the_usage_and_checks_nothing() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--help"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: check_layers.py [-h] [ROOT]\n")
    assert "violation(s)" not in done.stdout


VIOLATIONS = {
    "tiling data that includes another header": (
        "op_kernel/x_tiling_data.h",
        "#include <vector>",
    ),
    "kernel that uses the host": ("op_kernel/npu_x.cpp", '#include "csrc/core/check.h"'),
    "kernel that uses the simulator": ("op_kernel/npu_x.cpp", '#include "simulator/src/memory.h"'),
    "kernel that tests whether it is simulated": ("op_kernel/npu_x.cpp", "#ifdef ASCENDC_CPU_DEBUG"),
    "memory that uses a norm": ("op_kernel/memory/tiles.h", '#include "../norm/row_norm.h"'),
    "norm that uses the rotation": ("op_kernel/norm/row_norm.h", '#include "../rotation/rope_kernel.h"'),
    "core that uses CANN": ("csrc/core/rope_check.cpp", '#include "register/op_def_registry.h"'),
    "core that uses a tiling": ("csrc/core/rope_check.cpp", '#include "op_host/rope_tiling.h"'),
    "tiling that uses CANN": ("op_host/x_tiling.cpp", '#include "register/op_def_registry.h"'),
    "tiling that uses CANN through another header": ("op_host/rope_tiling.cpp", '#include "cann.h"'),
    "C++ file in no layer": ("csrc/extra/x.cpp", "int x;"),
    "header of the simulator in no layer": ("simulator/x.h", "int x;"),
    "core that uses #include_next": ("csrc/core/rope_check.cpp", "#include_next <register/op_def.h>"),
    "core that includes a macro": ("csrc/core/rope_check.cpp", "#include HEADER"),
    "core file with another suffix": ("csrc/core/x.inc", '#include "register/op_def_registry.h"'),
    "benchmark that uses a private name of ascend_sim": (
        "benchmarks/x.py",
        "from ascend_sim.kernels import _private",
    ),
    "tiling that uses torch": ("op_host/x_tiling.h", "#include <torch/torch.h>"),
    "op definition that uses torch": ("op_host/x_def.cpp", "#include <torch/torch.h>"),
    "op definition that uses the simulator": ("op_host/x_def.cpp", '#include "cann/host/node.h"'),
    "CANN adapter that uses torch": ("op_host/x_cann.cpp", "#include <torch/torch.h>"),
    "CANN's headers that use the simulator": (
        "simulator/cann/include/register/op_def.h",
        '#include "src/profile.h"',
    ),
    "simulated package that names an operator": ("simulator/cann/host/op_call.cpp", "int npu_rope = 0;"),
    "simulated package that uses an operator": (
        "simulator/cann/host/op_call.cpp",
        '#include "op_host/cann.h"',
    ),
    "simulated package that uses the simulated runtime": (
        "simulator/cann/host/op_call.cpp",
        '#include "cann/runtime/scheduler.h"',
    ),
    "simulated runtime that uses the simulated package": (
        "simulator/cann/runtime/launch.cpp",
        '#include "cann/host/node.h"',
    ),
    "simulator's test that uses an operator's rules": (
        "simulator/tests/test_shadow.cpp",
        '#include "csrc/core/rope_check.h"',
    ),
    "simulator's test that uses a tiling": (
        "simulator/tests/kernels/x.cpp",
        '#include "op_host/rope_tiling.h"',
    ),
    "simulator's test that uses a kernel": (
        "simulator/tests/kernels/x.cpp",
        '#include "../../../op_kernel/memory/tiles.h"',
    ),
    "simulator's test that uses the C interface": (
        "simulator/tests/test_shadow.cpp",
        '#include "npu_rope.h"',
    ),
    "simulator's example that uses the C interface": (
        "simulator/examples/add_custom.cpp",
        '#include "include/npu_rope.h"',
    ),
    "simulator that uses an operator's header": ("simulator/src/x.cpp", '#include "csrc/core/rope_check.h"'),
    "simulator that uses npu_rope": ("simulator/ascend_sim/kernels.py", "import npu_rope"),
    "simulator's test that uses npu_rope": ("simulator/tests/test_rules.py", "from npu_rope import rope"),
    "simulator's example that uses npu_rope": (
        "simulator/examples/late.py",
        "def f():\n    import npu_rope.cli",
    ),
    "simulator that uses npu_rope in a function": (
        "simulator/ascend_sim/cli/run.py",
        "def f():\n    from npu_rope import backends",
    ),
    "simulator that names an operator": ("simulator/src/x.cpp", "int rope = 0;"),
    "CPU kernel that uses torch": ("csrc/cpu/rope.cpp", "#include <torch/csrc/stable/tensor.h>"),
    "CPU kernel that uses Python": ("csrc/cpu/rope.cpp", "#include <Python.h>"),
    "CPU kernel that uses the C ABI's sources": ("csrc/cpu/rope.cpp", '#include "csrc/capi/common.h"'),
    "C ABI that uses torch": ("csrc/capi/rope.cpp", "#include <torch/csrc/stable/tensor.h>"),
    "torch registration that uses ATen": ("csrc/torch/rope.cpp", "#include <ATen/ATen.h>"),
    "torch registration that uses c10": ("csrc/torch/rope.cpp", "using c10::Half;"),
    "torch registration that uses the kernels": ("csrc/torch/rope.cpp", '#include "csrc/cpu/rope.h"'),
    "NPU binding that uses the CPU kernels": ("csrc/npu/rope.cpp", '#include "csrc/cpu/rope.h"'),
    "public header that needs C++": ("include/npu_rope.h", "#include <vector>"),
    "library that imports a private name of ascend_sim": (
        "npu_rope/executors/sim.py",
        "from ascend_sim.package import HostCalls",
    ),
    "library that imports a private name of ascend_sim in a function": (
        "npu_rope/cli/doctor.py",
        "def f():\n    from ascend_sim.programs import session",
    ),
    "library that uses an attribute that is not public": (
        "npu_rope/hardware/worker.py",
        "def f():\n    return library.ABI_VERSION",
    ),
    "reference that uses torch": ("npu_rope/reference/rope.py", "import torch"),
    "reference that uses native code": ("npu_rope/reference/rope.py", "from npu_rope import native"),
    "reference that uses ctypes": ("npu_rope/reference/rope.py", "import ctypes"),
    "op that uses ctypes": ("npu_rope/ops/rope.py", "from ctypes import c_int"),
    "op that uses the reference": ("npu_rope/ops/rope.py", "from npu_rope.reference.rope import rope as r"),
    "op that imports the reference in a function": (
        "npu_rope/ops/rope.py",
        "def f():\n    from npu_rope.reference import rope",
    ),
    "op that imports the reference relatively": ("npu_rope/ops/rope.py", "from ..reference import rope as r"),
    "op that imports the reference by name": (
        "npu_rope/ops/rope.py",
        "import_module('npu_rope.reference.rope')",
    ),
    "op that imports torch itself": ("npu_rope/ops/rope.py", "import torch as t"),
    "op that imports a part of torch at module level": ("npu_rope/ops/rope.py", "from torch import nn"),
    "op that imports torch in a function": ("npu_rope/ops/rope.py", "def f():\n    import torch"),
    "parameters that use torch": ("npu_rope/params.py", "import torch"),
    "library that uses the tests": ("npu_rope/backends.py", "from npu_rope.testing import bounds"),
    "module in no layer": ("npu_rope/elsewhere.py", "x = 1"),
    "tolerance as an argument": ("npu_rope/backends.py", "f(rtol=1)"),
    "tolerance as a parameter": ("npu_rope/backends.py", "def f(atol): ..."),
    "tolerance hidden in a call": ("npu_rope/cli/app.py", "np.testing.assert_allclose(a, b)"),
    "tolerance of pytest": ("npu_rope/cli/app.py", "assert a == pytest.approx(b)"),
    "tolerance of NumPy": ("npu_rope/cli/app.py", "np.testing.assert_array_almost_equal(a, b)"),
    "tolerance of torch": ("npu_rope/cli/app.py", "torch.testing.assert_close(a, b)"),
    "tolerance in a benchmark": ("benchmarks/bench_rope.py", "f(rtol=1)"),
    "tolerance in a template": ("scripts/templates/npu_rope/ops/@op@.py.in", "assert abs(a - b) < 1e-6"),
    "tolerance as a bare number": ("npu_rope/cli/app.py", "ok = abs(a - b) < 1e-6"),
    "pickle in another file of the tests' tools": ("npu_rope/testing/judge.py", "import pickle"),
    "eval in a benchmark": ("benchmarks/bench_rope.py", "eval(text)"),
    "shell in a script": ("scripts/new_op.py", "subprocess.run(text, shell=True)"),
    "shell in the library": ("csrc/cpu/rope.cpp", "int run(const char* s) { return system(s); }"),
    "shell by popen": ("simulator/src/launch.cpp", 'auto* p = popen(s, "r");'),
    "predictable file": ("simulator/cann/runtime/report.cpp", "const char* n = std::tmpnam(nullptr);"),
    "copy without a size": ("csrc/core/rope_check.cpp", "void f(char* a, char* b) { std::strcpy(a, b); }"),
    "clock that can jump": ("csrc/cpu/rope.cpp", "auto now = std::chrono::system_clock::now();"),
    "print without a size": ("csrc/core/rope_check.cpp", 'sprintf(a, "%s", b);'),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_violation_is_caught(layers: Any, tree: dict[str, str], name: str) -> None:
    file, line = VIOLATIONS[name]
    changed, first = planted(tree, file, line)
    number = first + line.count("\n")
    reported = violations_in(layers, changed)
    assert any(violation.startswith(f"{file}:{number}: ") for violation in reported), reported
    in_no_layer = any("belongs to no layer" in violation for violation in reported)
    assert in_no_layer == name.endswith(" in no layer"), reported


HOSTILE_TEXTS = [
    "from pickle import loads",
    "def f():\n    import marshal as m",
    "import_module('shelve')",
    "import builtins as b\nb.eval(text)",
    "import os as o\no.popen(text)",
    "from os import system as run\nrun(text)",
    "from os import *",
    "from subprocess import getoutput\ngetoutput(text)",
    "import numpy as np\nnp.load(text, allow_pickle=True)",
    "f(text, weights_only=False)",
    "f(text, trust_remote_code=True)",
    "import runpy as r",
    "from asyncio import create_subprocess_shell as run\nrun(text)",
    "import subprocess\nsubprocess.run(text, shell=True)",
    "import subprocess\nsubprocess.run(text, shell=1)",
    "import subprocess\nsubprocess.run(text, shell=wanted)",
    "from subprocess import Popen\nPopen(text, 0, None, None, None, None, None, True, True)",
    "import subprocess\nsubprocess.run(text, -1, None, None, None, None, None, True, True)",
    "import numpy as np\nnp.load(text, None, True)",
    "import numpy as np\nnp.lib.npyio.load(text, None, True)",
    "from multiprocessing.connection import Client",
    "from numpy import load\nload(text, None, wanted)",
    "f(text, allow_pickle=1)",
    "import pandas as pd\npd.read_pickle(text)",
    "run = eval",
    "import os\nrun = os.system",
    "import time as t\nnow = t.time",
    "from time import time_ns as now\nnow()",
    *(f"import {name}" for name in layer_tables.HOSTILE_MODULES),
    *(
        f"import {name.split('.')[0]}\n{name}(text)" if "." in name else f"{name}(text)"
        for name in (*layer_tables.HOSTILE_CALLS, *layer_tables.JUMPING_CLOCKS)
    ),
]


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_hostile_input_finds_no_way_to_run(layers: Any, text: str) -> None:
    (violation,) = layers.check_hostile_input("npu_rope/planted.py", text)
    assert violation.line == text.count("\n") + 1
    assert violation.text.startswith(("may not ", "must pass "))


@pytest.mark.parametrize(
    "line",
    [
        *(f"x = {name}(s);" for name in layer_tables.C_CALLS),
        *(f"x = f({name});" for name in layer_tables.C_CLOCKS),
        "x = std::system\n(s);",
        "x = (system)(s);",
        "#define RUN system",
        'const char* u = "http://x"; x = system(s);',
        'const char* u = "/*";\nx = system(s); // */',
        "char c = '\\\\'; x = system(s);",
        'auto t = R"(" // )"; x = system(s);',
        "x = 1'000; y = system(s); z = 1'000;",
        "x = std::time(nullptr);",
    ],
)
def test_hostile_calls_in_c_are_caught(layers: Any, line: str) -> None:
    found = list(layers.check_c_file("csrc/cpu/x.cpp", f"\n{line}\n", frozenset(), frozenset()))
    assert [violation.line for violation in found] == [3 if "\nx" in line else 2], found


@pytest.mark.parametrize(
    "line", ["// system(s)", "/* system\n(s) */", "x = 'a'; // it's system(s)", 'x = "\\"system(s)";']
)
def test_comments_and_texts_call_nothing(layers: Any, line: str) -> None:
    assert not list(layers.check_c_file("csrc/cpu/x.cpp", line, frozenset(), frozenset()))


def test_a_circle_of_imports_is_caught_also_inside_a_function(layers: Any, tree: dict[str, str]) -> None:
    changed, _ = planted(tree, "npu_rope/errors.py", "def f():\n    from npu_rope.params import RopeParams")
    reported = violations_in(layers, changed)
    assert any("imports must form no circle but got npu_rope." in violation for violation in reported)


@pytest.mark.parametrize(
    "file", ["npu_rope/testing/x.py", "csrc/cpu/x.h", "simulator/src/x.cpp", "scripts/x.sh"]
)
def test_a_file_of_code_has_at_most_500_lines(layers: Any, tree: dict[str, str], file: str) -> None:
    changed, _ = planted(tree, file, "\n" * 499)
    assert violations_in(layers, changed) == []
    changed, _ = planted(changed, file, "")
    expected = f"{file}:501: must have at most 500 lines but got 501: split it by subject"
    assert violations_in(layers, changed) == [expected]


@pytest.mark.parametrize("file", ["npu_rope/testing/x.py", "simulator/ascend_sim/x.py"])
def test_two_classes_have_two_names(layers: Any, tree: dict[str, str], file: str) -> None:
    changed, number = planted(tree, file, "class RopeMode: ...")
    reported = [text for text in violations_in(layers, changed) if "must have a name of its own" in text]
    assert len(reported) == 1
    assert "class RopeMode must have a name of its own but got that of " in reported[0]
    assert f"{file}:{number}" in reported[0]


ALLOWED = {
    "table of data with more than 500 lines": ("simulator/cann/x.def", "\n" * 600),
    "test with more than 500 lines": ("simulator/tests/x.py", "\n" * 600),
    "comment that names a header": ("csrc/cpu/rope.cpp", "// #include <torch/torch.h>"),
    "docstring that names a module": ("npu_rope/reference/rope.py", '"""import torch"""'),
    "kernel that includes its tiling struct": (
        "op_kernel/npu_planted.cpp",
        '#include "planted_tiling_data.h"',
    ),
    "op definition that uses CANN": ("op_host/x_def.cpp", '#include "register/op_def_registry.h"'),
    "op that imports a part of torch in a function": (
        "npu_rope/ops/rope.py",
        "def f():\n    from torch import nn",
    ),
    "tolerance in npu_rope/testing": ("npu_rope/testing/bounds.py", "def f(rtol=1e-3): ..."),
    "standard header in a CPU kernel": ("csrc/cpu/rope.cpp", "#include <vector>"),
    "pickle in the file that is named for it": ("npu_rope/testing/child.py", "import pickle as p"),
    "hostile calls in a test": ("simulator/tests/x.py", "import pickle\neval(text)"),
    "a method with the name of a hostile function": ("npu_rope/bench/run.py", "model.eval()\nf.system(x)"),
    "a shell that is off": ("npu_rope/bench/run.py", "subprocess.run(command, shell=False)"),
    "a text that names a hostile call": ("csrc/cpu/rope.cpp", 'const char* t = "system(x), strcpy(a, b)";'),
    "a method in C++ with the name of a hostile function": ("csrc/cpu/rope.cpp", "int n = host.system(3);"),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_allowed_passes(layers: Any, tree: dict[str, str], name: str) -> None:
    changed, _ = planted(tree, *ALLOWED[name])
    assert violations_in(layers, changed) == []


def test_message_names_what_the_layer_may_use(layers: Any, tree: dict[str, str]) -> None:
    changed, _ = planted(tree, "op_kernel/x_tiling_data.h", "#include <vector>")
    layer = "layer op_kernel/*_tiling_data.h"
    expected = (
        f"op_kernel/x_tiling_data.h:1: {layer} may not use vector; it may use: cstdint, *_tiling_data.h"
    )
    assert violations_in(layers, changed) == [expected]


def test_message_names_the_pattern_that_matches_the_file(layers: Any, tree: dict[str, str]) -> None:
    changed, _ = planted(tree, "op_host/x_cann.h", "#include <acl/acl.h>")
    (message,) = violations_in(layers, changed)
    assert message.startswith("op_host/x_cann.h:1: layer op_host/*cann.* may not use acl/acl.h; it may use: ")
