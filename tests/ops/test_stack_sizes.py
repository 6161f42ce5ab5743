"""The CPU's kernels need little stack: they run on threads of 64 KiB, as some servers make them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

STACK_BYTES = 64 << 10
CALLS = """
import sys, threading
import numpy as np
import npu_rope
from npu_rope import RopeParams

def run(dtype, tokens, n):
    x, scale = np.ones((1, tokens, 4, n), dtype), np.ones(n, dtype)
    positions, params = np.arange(tokens), RopeParams(n_dims=n, mode="neox")
    table = np.ones((tokens, n), dtype)
    npu_rope.rope(x, positions, params)
    npu_rope.rope_qk(x, x, positions, params)
    npu_rope.rope_set_rows(x, positions, np.arange(tokens)[None], np.zeros((tokens, 4, n), dtype), params)
    npu_rope.rotary_mul(x, table, table)
    halves = table[None, :, : n // 2]
    npu_rope.rotary_embedding(x.reshape(1, tokens, -1), halves, halves, num_heads=4)
    npu_rope.rms_norm(x, scale)
    npu_rope.rms_norm(x[..., ::2], scale[::2])
    npu_rope.add_rms_norm(x, x, scale)
    npu_rope.rms_norm_rope(x, x, scale, scale, positions, params)
    npu_rope.qk_square_sums(x[0], x[0])
    npu_rope.qkv_norm_rope_cache(x[0], x[0], x[0], positions, params, q_scale=scale, k_scale=scale)
    npu_rope.rms_norm_backward(x, x, scale)
    npu_rope.rms_norm_backward(x[..., ::2], x[..., ::2], scale[::2])

def run_all(tokens):
    for dtype in (np.float32, np.float16, np.float64):
        for n in (64, 1024):
            run(dtype, tokens, n)

"""
RUNS = {
    "of Python": f"""
run_all(2)  # loads the library: loading may need more stack
threading.stack_size({STACK_BYTES})
thread = threading.Thread(target=run_all, args=(2,))
thread.start()
thread.join()
print("ended")
""",
    "of OpenMP": """
run_all(256)
print("ended")
""",
}


@pytest.mark.long
@pytest.mark.parametrize("threads", RUNS)
def test_all_operators_run_on_threads_of_64_kib(threads):
    environment = {**os.environ, "OMP_STACKSIZE": "64k", "OMP_NUM_THREADS": "2", "NPU_ROPE_BACKEND": "cpu"}
    ended = subprocess.run(
        [sys.executable, "-c", CALLS + RUNS[threads]],
        env=environment,
        text=True,
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "ended\n"), ended.stderr
