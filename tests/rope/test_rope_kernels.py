"""The paths inside the C++ kernels: instruction sets, threads, stepped tables, streaming stores, caches."""

from __future__ import annotations

import dataclasses
import functools
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from instruction_sets import SUPPORTED
from rope_cases import NUMPY_DTYPES, assert_within, values_of

from npu_rope import RopeParams, native, rope, rope_set_rows

DTYPES = list(NUMPY_DTYPES)
MODES = ["normal", "neox"]


def normal(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(NUMPY_DTYPES[dtype])


@pytest.fixture
def threads():
    """Return a function that sets torch's thread count, which the library uses. The fixture restores it."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


# ---- instruction sets ---------------------------------------------------------------------------

CPUINFO = Path("/proc/cpuinfo")
# Flags of /proc/cpuinfo that an instruction set needs, the widest first.
FLAGS = {
    "avx512_fp16": {"avx512_fp16", "avx512_bf16", "avx512f", "avx512bw", "avx512vl", "avx512dq"},
    "avx512_bf16": {"avx512_bf16", "avx512f", "avx512bw", "avx512vl", "avx512dq"},
    "avx512": {"avx512f", "avx512bw", "avx512vl", "avx512dq"},
    "avx2": {"avx2", "fma", "f16c"},
    "baseline": set(),
}


@pytest.mark.native
@pytest.mark.skipif(platform.machine() != "x86_64" or not CPUINFO.is_file(), reason="Linux on x86-64 only")
def test_the_widest_instruction_set_of_the_processor_is_used():
    flags = set(re.search(r"^flags\s*:(.*)$", CPUINFO.read_text(), re.MULTILINE)[1].split())
    possible = [name for name, needed in FLAGS.items() if needed <= flags]
    chosen = native.load().isa()
    # A compiler that does not know AVX512-FP16 leaves it out.
    assert possible.index(chosen) <= (possible[0] == "avx512_fp16"), (chosen, possible)


@pytest.mark.parametrize("isa", SUPPORTED)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_instruction_set_meets_the_bound_at_many_head_sizes(isa, mode, dtype, library, guarded):
    library.force_isa(isa)
    assert library.isa() == isa
    positions = np.array([5, 6, 7, -3, 2**31 - 1, -(2**31)])
    for pairs in [*range(1, 40), 47, 48, 49, 63, 64, 65, 96, 112, 128, 192, 256]:
        x = guarded.input(normal((6, 2, 2 * pairs + 1), dtype, pairs))
        out = guarded.empty(x.shape, x.dtype)
        params = RopeParams(2 * pairs, mode)
        rope(x, positions, params, out=out, backend="cpu")
        assert_within(out, x, positions, params, dtype=dtype)


@pytest.mark.skipif(len(SUPPORTED) < 2, reason="this machine has one instruction set")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_sets_are_bit_equal(mode, dtype, library):
    x, positions = normal((70, 3, 130), dtype), np.arange(70) + 12345
    for n_dims in (2, 18, 64, 96, 128, 130):
        results = []
        for isa in SUPPORTED:
            library.force_isa(isa)
            results.append(rope(x, positions, RopeParams(n_dims, mode), backend="cpu").tobytes())
        assert len(set(results)) == 1


@pytest.mark.parametrize("isa", SUPPORTED)
def test_every_finite_float16_survives_the_conversion_to_float32_and_back(isa, library):
    """At position 0, pairs of finite numbers stay the same, and other pairs do not become finite."""
    library.force_isa(isa)
    x = np.arange(65536, dtype=np.uint16).view(np.float16).reshape(1, 1024, 64)
    finite = np.isfinite(x).reshape(1, 1024, 32, 2).all(-1)
    y = rope(x, np.array([0]), RopeParams(64), backend="cpu")
    assert np.array_equal(y.reshape(1, 1024, 32, 2)[finite], x.reshape(1, 1024, 32, 2)[finite])
    assert not np.isfinite(y.reshape(1, 1024, 32, 2)[~finite]).all(-1).any()


@pytest.mark.parametrize("isa", SUPPORTED)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("mode", MODES)
def test_results_round_to_nearest_even(isa, dtype, mode, library):
    """At position 0, cos is attn_factor. With x2 = 0, y1 is one product, and NumPy gives its rounding."""
    library.force_isa(isa)
    bits = np.random.default_rng(0).integers(0, 65536, 64 * 1024).astype(np.uint16)
    x1 = bits.view(NUMPY_DTYPES[dtype])
    with np.errstate(invalid="ignore"):  # NumPy's conversion of a signalling NaN on aarch64
        x1[~np.isfinite(x1.astype(np.float32))] = 1
    attn_factor = np.float32(1.5)  # many products are ties
    x = np.zeros((1, 1024, 128), NUMPY_DTYPES[dtype])
    first = slice(0, None, 2) if mode == "normal" else slice(0, 64)
    x[..., first] = x1.reshape(1, 1024, 64)
    y = rope(x, np.array([0]), RopeParams(128, mode, attn_factor=float(attn_factor)), backend="cpu")
    with np.errstate(over="ignore"):
        rounded = (x1.astype(np.float32) * attn_factor).astype(NUMPY_DTYPES[dtype])
    assert np.array_equal(y[..., first].ravel(), rounded)


# ---- threads ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(1, 300, 16, 128), (3, 1, 70, 640), (1, 1, 501, 256), (7, 33, 9, 65)])
def test_the_number_of_threads_does_not_change_the_bits(dtype, mode, shape, threads):
    x = torch.from_numpy(normal(shape, "float32")).to(getattr(torch, dtype))
    positions, params = torch.arange(shape[1]), RopeParams(shape[-1] // 2 * 2, mode)
    results = []
    for count in (1, 2, 3):
        threads(count)
        assert native.load().num_threads() == count
        results.append(rope(x, positions, params))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("shape", [(1, 1025, 4, 64), (3, 95, 33, 64), (40, 1, 71, 64), (2, 64, 1, 2048)])
def test_the_result_does_not_depend_on_where_a_threads_share_begins(shape, threads):
    """A table that is stepped from the previous one and a new table sometimes round differently."""
    params, rng = RopeParams(shape[-1], "neox"), np.random.default_rng(5)
    x = torch.ones(shape)
    positions = torch.arange(shape[1]) + torch.from_numpy(rng.integers(0, 2**24, (shape[0], 1)))
    results = []
    for count in (1, 2, 3, 5, 8):
        threads(count)
        results.append(rope(x, positions, params))
    assert all(torch.equal(results[0], other) for other in results[1:])


def test_tokens_without_a_row_change_no_other_token_whatever_the_threads(threads):
    """A thread whose share begins inside a segment skips the tokens that other threads skip."""
    params, rng = RopeParams(2048, "neox"), np.random.default_rng(6)
    x = torch.ones(40, 64, 1, 2048)
    positions = torch.arange(64) + torch.from_numpy(rng.integers(0, 2**24, (40, 1)))
    rows = torch.from_numpy(np.where(rng.random((40, 64)) < 0.3, -1, np.arange(40 * 64).reshape(40, 64)))
    caches = []
    for count in (1, 3, 5, 8):
        threads(count)
        caches.append(torch.zeros(40 * 64, 1, 2048))
        rope_set_rows(x, positions, rows, caches[-1], params)
    assert all(torch.equal(caches[0], other) for other in caches[1:])
    assert caches[0].any()


def test_without_torch_the_library_uses_openmp():
    """OMP_NUM_THREADS sets the number of threads."""
    program = """
import sys
sys.modules["torch"] = None
import numpy as np
from npu_rope import RopeParams, native, rope, rope_set_rows
x = np.random.default_rng(0).standard_normal((200, 8, 128)).astype(np.float32)
y = rope(x, np.arange(200), RopeParams(128), backend="cpu")
sys.stdout.write(f"{native.load().num_threads()} {y.tobytes().hex()[:4000]} {hash(y.tobytes())}")
"""
    outputs = []
    for count in ("1", "2"):
        environment = {**os.environ, "OMP_NUM_THREADS": count, "PYTHONHASHSEED": "0"}
        completed = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        outputs.append(completed.stdout.split(" ", 1))
    assert [threads for threads, _ in outputs] == ["1", "2"]
    assert outputs[0][1] == outputs[1][1]


# ---- stepped tables --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("start", [0, -100, 131_000, 2**24 - 70, 2**31 - 300])
def test_tables_stepped_from_position_to_position_meet_the_bound(dtype, mode, start):
    x, positions = normal((300, 2, 34), dtype), np.arange(300) + start
    for forward in (True, False):
        params = RopeParams(32, mode, n_ctx_orig=4096, freq_scale=0.5, ext_factor=1.0)
        y = rope(x, positions, params, backend="cpu", forward=forward)
        assert_within(y, x, positions, params, dtype=dtype, forward=forward)


def test_positions_that_repeat_jump_and_descend_meet_the_bound():
    """Runs of lengths around 64, the tokens after which the CPU computes a new table, and other sequences."""
    rng = np.random.default_rng(4)
    runs = [np.arange(n) + rng.integers(-(2**20), 2**20) for n in (1, 2, 63, 64, 65, 66, 130, 3)]
    runs += [np.zeros(5, np.int64), np.arange(70, 0, -1), np.repeat(np.arange(40), 2), np.arange(0, 90, 2)]
    positions = np.concatenate(runs)
    x, params = normal((len(positions), 1, 64), "float32"), RopeParams(64, "neox")
    assert_within(rope(x, positions, params, backend="cpu"), x, positions, params, dtype="float32")


# ---- large outputs: streaming stores -----------------------------------------------------------


@functools.cache
def large(tokens, dtype):
    """Return a random x, made once for all windows, modes and instruction sets."""
    x = normal((tokens, 32, 128), dtype)
    x.flags.writeable = False
    return x


LARGE_WINDOWS = [
    pytest.param((0, 128), id="0+128"),
    pytest.param((12, 80), id="12+80"),
    pytest.param((0, 112), id="0+112"),
    pytest.param((0, 96), id="0+96", marks=pytest.mark.slow),
    pytest.param((16, 64), id="16+64", marks=pytest.mark.slow),
]


@pytest.mark.long
@pytest.mark.parametrize("isa", SUPPORTED)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("window", LARGE_WINDOWS)
def test_large_outputs_are_the_same_with_and_without_streaming_stores(
    isa, mode, dtype, window, library, guarded
):
    """Outputs above 16 MiB use streaming stores if the parts of each head begin at multiples of 32 bytes.
    In some of these windows, and in outputs that are misaligned by 8 bytes, they do not."""
    library.force_isa(isa)
    item = NUMPY_DTYPES[dtype].itemsize
    tokens = 17 * 2**20 // (32 * 128 * item)
    first, n_dims = window
    x = large(tokens, dtype)
    positions, params = np.arange(tokens), RopeParams(n_dims, mode, n_offs=first)
    results = [guarded.empty(x.shape, x.dtype, misalign=k) for k in (0, 32, 8)]
    for out in results:
        rope(x, positions, params, out=out, backend="cpu")
        checked = slice(0, tokens, 149)
        assert_within(out[checked], x[checked], positions[checked], params, dtype=dtype)
        outside = np.r_[0:first, first + n_dims : 128]
        assert np.array_equal(out[..., outside], x[..., outside])
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])


def test_a_large_output_with_gaps_and_a_partial_window_meets_the_bound(guarded):
    shape = (150, 32, 1040)
    x = normal(shape, "float32")
    out = guarded.empty(shape, np.float32, (32 * 1056, 1056, 1))
    params, positions = RopeParams(512, "neox", n_offs=16), np.arange(150)
    rope(x, positions, params, out=out, backend="cpu")
    checked = slice(0, 150, 29)
    assert_within(out[checked], x[checked], positions[checked], params, dtype="float32")
    assert np.array_equal(out[..., :16], x[..., :16])
    assert np.array_equal(out[..., 528:], x[..., 528:])


# ---- parameters cached between calls ---------------------------------------------------------------


def test_a_change_of_factors_in_place_is_noticed(backend):
    x, factors = normal((4, 1, 16), "float32"), np.full(8, 1, np.float32)
    params = RopeParams(16)
    for value in (1.0, 3.0, 1.0):
        factors[5] = value
        y = rope(x, np.arange(4), params, factors, backend=backend)
        assert_within(y, x, np.arange(4), params, factors, dtype="float32", backend=backend)


CHANGES = {
    "n_dims": 14,
    "mode": "neox",
    "n_ctx_orig": 1000,
    "freq_base": 500.0,
    "freq_scale": 0.5,
    "ext_factor": 0.5,
    "attn_factor": 2.0,
    "beta_fast": 4.0,
    "beta_slow": 0.25,
    "n_offs": 2,
}


@pytest.mark.parametrize("angle", ["exact", "f32", "ggml"])
@pytest.mark.parametrize("name", CHANGES)
def test_params_that_differ_in_one_field_are_not_confused(name, angle):
    x, positions = normal((4, 1, 18), "float64"), np.arange(4) * 100
    base = RopeParams(16, n_ctx_orig=4096, freq_scale=0.25, ext_factor=1.0, freq_base=100.0)
    other = dataclasses.replace(base, **{name: CHANGES[name]})
    results = []
    for params in (base, other, base):
        y = rope(x, positions, params, backend="cpu", angle=angle)
        assert_within(y, x, positions, params, dtype="float64", angle=angle)
        results.append(y)
    assert not np.array_equal(results[0], results[1])


def test_more_parameter_sets_than_the_cache_holds_are_not_confused():
    x, positions = normal((4, 1, 16), "float64"), np.arange(4)
    sets = [RopeParams(16, freq_base=10000.0 + k) for k in range(20)]
    for params in [*sets, *sets[::-1]]:
        y = rope(x, positions, params, backend="cpu")
        assert_within(values_of(y), x, positions, params, dtype="float64")


FORKED = """
import multiprocessing, os, sys
import numpy as np
if "torch" not in sys.argv[1:]:
    sys.modules["torch"] = None
from npu_rope import RopeParams, rope
x = np.ones((1, 2048, 16, 64), np.float32)
def rotate(_):
    return float(rope(x, np.arange(2048), RopeParams(64), backend="cpu").sum())
in_parent = rotate(0)
with multiprocessing.get_context("fork").Pool(2) as pool:
    in_children = pool.map_async(rotate, range(2)).get(timeout=60)
assert in_children == [in_parent] * 2, in_children
"""


@pytest.mark.parametrize("pool", ["openmp", "torch"])
def test_a_forked_child_of_a_threaded_parent_gets_the_same_result(pool):
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED, pool], check=True, timeout=120)
