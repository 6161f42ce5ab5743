"""npu-rope doctor reports what is here and how to get what is not."""

import json
import subprocess
import sys


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "npu_rope.cli", *arguments], capture_output=True, text=True, check=False
    )


def test_doctor_exits_0_and_names_every_back_end():
    done = run("doctor")
    assert done.returncode == 0, done.stderr
    for name in ("reference", "cpu", "sim", "npu"):
        assert name in done.stdout


def test_absent_pieces_come_with_a_remedy():
    findings = json.loads(run("doctor", "--json").stdout)
    absent = [f for f in findings if f["present"] is False and f["group"] in ("back ends", "NPU", "peers")]
    assert absent
    assert all(f["remedy"] for f in absent)


def test_the_library_in_use_is_named():
    findings = {(f["group"], f["piece"]): f for f in json.loads(run("doctor", "--json").stdout)}
    assert findings["npu_rope", "C library"]["present"] is True
    assert findings["npu_rope", "instruction set"]["detail"].split()[0] in (
        "avx512_bf16",
        "avx512",
        "avx2",
        "baseline",
        "neon",
    )


def test_no_arguments_print_help():
    done = run()
    assert "validate" in done.stdout + done.stderr
    assert "doctor" in done.stdout + done.stderr
