"""Break rope's AscendC kernel on purpose, one mistake at a time: the operator's tests must detect it.

``mutate_kernels.py`` makes many more mutants and runs calls of its own. This file checks that tests of the
default suite detect a mistake.
"""

import os
import subprocess
import sys
from pathlib import Path

import changed_kernel as changed
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def operator_tests(library: Path) -> subprocess.CompletedProcess:
    """Run the tests of one changed factor and of cos and sin on Ascend910B, with the library's kernel."""
    environment = {**os.environ, "NPU_ROPE_TEST_BACKEND": "sim", changed.KERNELS_VARIABLE: str(library)}
    tests = [str(ROOT / "tests/rope" / name) for name in ("test_rope.py", "test_rope_angles.py")]
    options = ["-k", "one_factor or cos_and_sin", "-x", "-q", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *tests, *options]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=ROOT)


def test_the_unbroken_kernel_passes(changed_kernel):
    done = operator_tests(changed_kernel("nothing"))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", [name for name in changed.CHANGES if name != "nothing"])
def test_mutant_is_caught(changed_kernel, name):
    done = operator_tests(changed_kernel(name))
    assert done.returncode == 1, done.stdout
