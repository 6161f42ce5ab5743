"""A program for an environment with npu_rope's wheels and neither torch nor a compiler.

It runs one call on each back end but npu, and prints the sentences of what needs a compiler.
scripts/test_wheels.sh runs it.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import ascend_sim
import numpy as np
from ascend_sim.folders import library
from ascend_sim.programs import stubs

import npu_rope
from npu_rope import backends

NEEDS = stubs.Needs(sonames=("libascendcl.so",), symbols=())
KERNEL = 'extern "C" __global__ __aicore__ void nothing(GM_ADDR x, GM_ADDR workspace, GM_ADDR tiling) {}\n'


def call_on(backend: str) -> float:
    """Run rope and rms_norm on a back end; return the largest difference from the reference."""
    rng = np.random.default_rng(0)
    params = npu_rope.RopeParams(64, "neox", freq_base=500000.0)
    x, scale = rng.standard_normal((2, 9, 3, 80), np.float32), rng.standard_normal(80, np.float32)
    largest = 0.0
    for dtype in (np.float32, np.float16):
        given = x.astype(dtype)
        calls: list[Callable[[str], np.ndarray]] = [
            lambda name, given=given: npu_rope.rope(given, np.arange(9), params, backend=name),
            lambda name, given=given: npu_rope.rms_norm(given, scale.astype(given.dtype), backend=name),
        ]
        for call in calls:
            difference = np.abs(call(backend).astype(float) - call("reference").astype(float)).max()
            assert difference < (1e-5 if dtype is np.float32 else 2e-2), (backend, dtype, difference)
            largest = max(largest, float(difference))
    return largest


def sentence_of(name: str, call: Callable[[], object]) -> None:
    """Require that the call says that it needs a compiler."""
    try:
        call()
    except ascend_sim.Unavailable as error:
        text = str(error)
    else:
        raise AssertionError(f"{name} must need a compiler but did not")
    assert "C++ compiler" in text, text
    assert "apt install g++" in text, text
    print(f"{name}: {text}")


def main() -> None:
    assert importlib.util.find_spec("torch") is None, "torch is installed"
    for compiler in ("c++", "g++", "gcc", "cc", "clang++", "cmake"):
        assert shutil.which(compiler) is None, compiler
    site = Path(npu_rope.__file__).resolve().parents[1]
    assert site.name == "site-packages", site
    print(f"Python {platform.python_version()} on {platform.machine()}, {site}")
    expected = ["reference", "cpu", "sim", "sim:ascend310p", "sim:ascend950"]
    assert backends.available() == expected, backends.available()
    for name in expected[1:]:
        print(f"{name}: within {call_on(name):.2g} of the reference")
    with tempfile.TemporaryDirectory() as folder:
        kernel = Path(folder) / "nothing.cpp"
        kernel.write_text(KERNEL)
        sentence_of("a kernel of one's own", lambda: ascend_sim.compile(str(kernel), "nothing"))
        sentence_of(
            "stand-ins for a torch_npu", lambda: stubs.build(NEEDS, library("ascend_sim_cann"), Path(folder))
        )
    assert "CXX" not in os.environ


main()
