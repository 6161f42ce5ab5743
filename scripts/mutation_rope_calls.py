"""The calls that a mutant of rope's kernel must get right, each path of the kernel at least once.

Exit 0 where every result is within its bound, no rule of the simulator broke and none took longer than
its limit on the simulated timeline; 1 and one line that says what was noticed otherwise.

usage: mutation_rope_calls.py [SOC DTYPE]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from npu_rope import native, native_sim
from npu_rope.dtypes import bfloat16_bits, bfloat16_values
from npu_rope.params import RopeParams
from npu_rope.reference import rope as reference
from npu_rope.testing.bounds import E_ANGLE_DEVICE, rotation_bound, worst_ratio

BF16, F16, F32 = "bfloat16", "float16", "float32"
INT = {BF16: np.int32, F16: np.int64, F32: np.int32}  # the columns that are compiled
INT_310P = {F16: np.int32, F32: np.int64}


@dataclass(frozen=True)
class Call:
    """One call; ``order`` is how B, S, N lie in memory, ``pad`` extra elements at the end of each row."""

    soc: str
    dtype: str
    shape: tuple[int, int, int, int]
    params: RopeParams
    order: str = "BSN"
    pad: int = 0
    factors: bool = False
    forward: bool = True
    in_place: bool = False
    far: int = 0
    batch_positions: bool = False
    positions_step: int = 1
    most_cycles: float = float("inf")


def yarn(n_dims: int, mode: str) -> RopeParams:
    return RopeParams(n_dims, mode, n_ctx_orig=4096, freq_scale=0.25, ext_factor=1.0, attn_factor=1.2)


def calls() -> list[Call]:
    a, p = "ascend910b", "ascend310p"
    many = [
        # Whole rows: aligned halves, shifts, gather.
        Call(a, BF16, (1, 70, 8, 128), RopeParams(128, "neox"), far=4_000_000),
        Call(a, F16, (2, 33, 4, 64), RopeParams(64, "normal"), far=-4_000_000, batch_positions=True),
        Call(a, F32, (1, 40, 6, 128), yarn(128, "neox")),
        Call(a, F32, (2, 9, 5, 96), yarn(96, "normal"), forward=False),
        Call(a, BF16, (1, 19, 3, 128), yarn(128, "normal"), in_place=True, far=100_000),
        # Few tokens: heads are split. One row. More tokens than a table.
        Call(a, BF16, (1, 1, 32, 128), RopeParams(128, "neox"), far=1_000_000),
        Call(a, F32, (1, 1, 1, 2), RopeParams(2, "normal"), far=77),
        Call(a, F16, (1, 6000, 1, 32), RopeParams(32, "neox"), far=12345),
        # Windows, unaligned halves, ragged rows.
        Call(a, F16, (1, 21, 3, 80), RopeParams(20, "neox", n_offs=6), far=5000),
        Call(a, BF16, (2, 11, 3, 36), RopeParams(36, "neox"), far=9000),
        Call(a, BF16, (1, 50, 4, 96), RopeParams(64, "neox", n_offs=16), far=9000),
        Call(a, BF16, (1, 17, 2, 70), RopeParams(30, "normal", n_offs=10), far=600),
        Call(a, F32, (1, 13, 2, 200), RopeParams(150, "neox", n_offs=2), far=300),
        Call(a, F32, (1, 300, 2, 576), RopeParams(64, "neox", n_offs=512), far=300),
        # Strides: heads before tokens, rows with gaps, factors on the device.
        Call(a, BF16, (2, 130, 4, 64), RopeParams(64, "neox"), order="BNS", factors=True, far=20_000),
        Call(
            a, F16, (1, 45, 3, 64), RopeParams(64, "normal"), pad=24, factors=True, in_place=True, far=20_000
        ),
        Call(a, F32, (3, 7, 2, 64), RopeParams(64, "normal"), order="SBN", pad=3, positions_step=2, far=64),
        # No padding DMA: rows of whole blocks, repacked rows, element by element.
        Call(p, F16, (1, 70, 8, 128), RopeParams(128, "neox"), far=4_000_000),
        Call(p, F32, (2, 9, 5, 96), yarn(96, "normal"), forward=False, batch_positions=True),
        Call(p, F16, (1, 33, 3, 36), RopeParams(36, "neox"), far=9000),
        Call(p, F16, (1, 41, 5, 70), RopeParams(30, "normal", n_offs=10), in_place=True, far=600),
        Call(p, F32, (1, 19, 3, 50), RopeParams(50, "neox"), factors=True, far=6000),
        Call(p, F16, (1, 9, 2, 50), RopeParams(40, "normal"), pad=7, far=50),
        Call(p, F16, (1, 3, 2, 6), RopeParams(6, "neox"), pad=3, far=50),
        Call(p, F16, (2, 70, 4, 64), RopeParams(64, "normal"), order="BNS", far=70_000),
        # Many tiles a core: 2 % slower on the timeline counts as noticed.
        Call(a, BF16, (1, 1024, 16, 128), RopeParams(128, "neox"), far=1000, most_cycles=12_680),
        Call(a, F16, (1, 1024, 16, 128), RopeParams(128, "normal"), far=1000, most_cycles=14_675),
        Call(a, F32, (1, 1024, 16, 128), RopeParams(64, "neox"), far=1000, most_cycles=24_040),
        Call(p, F16, (1, 256, 16, 128), RopeParams(128, "neox"), far=1000, most_cycles=16_880),
        Call(p, F32, (1, 256, 16, 100), RopeParams(64, "neox"), far=1000, most_cycles=28_675),
    ]
    return many


def laid_out(call: Call, values: np.ndarray) -> np.ndarray:
    """[B,S,N,D] values as a view of memory in the call's order."""
    axes = ["BSN".index(c) for c in call.order]
    shape = [values.shape[i] for i in axes] + [values.shape[3] + call.pad]
    back = [axes.index(i) for i in range(3)]
    view = np.zeros(shape, values.dtype).transpose(*back, 3)[..., : values.shape[3]]
    view[...] = values
    return view


def describe(a: np.ndarray, dtype: str) -> native.CTensor:
    return native.c_tensor(a.ctypes.data, dtype, a.shape, tuple(s // a.itemsize for s in a.strides))


def check(call: Call) -> str:
    """What was noticed; empty where all is well."""
    rng = np.random.default_rng(sum(call.shape))
    values = rng.standard_normal(call.shape, dtype=np.float32)
    bits = bfloat16_bits(values) if call.dtype == BF16 else values.astype(call.dtype)
    exact = bfloat16_values(bits) if call.dtype == BF16 else bits
    b, s, _, _ = call.shape
    integer = (INT if call.soc == "ascend910b" else INT_310P)[call.dtype]
    rows = (b, s) if call.batch_positions else (s,)
    low, high = sorted((call.far, 0))
    wide = rng.integers(low, high + 1, (*rows[:-1], rows[-1] * call.positions_step)).astype(integer)
    positions = wide[..., :: call.positions_step]
    factors = rng.uniform(0.5, 8, call.params.n_dims // 2).astype(np.float32) if call.factors else None
    x = laid_out(call, bits)
    base = x.base if x.base is not None else x
    out = x if call.in_place else laid_out(call, np.full_like(bits, 7))
    native_sim.load().rope(
        describe(x, call.dtype), describe(positions, positions.dtype.name),
        None if factors is None else describe(factors, "float32"), native.c_params(call.params),
        call.forward, "exact", describe(out, call.dtype), native_sim.SimOptions(call.soc),
    )  # fmt: skip
    got = bfloat16_values(np.ascontiguousarray(out)) if call.dtype == BF16 else out
    c, sine = reference.cos_sin(positions, call.params, factors, forward=call.forward)
    c, sine = c[..., None, :], sine[..., None, :]
    expected = reference.rotate(exact, c, sine, call.params)
    bound = rotation_bound(exact, c, sine, expected, call.params, call.dtype, E_ANGLE_DEVICE)
    ratio, at = worst_ratio(got, expected, bound)
    if not ratio <= 1:
        return f"error {ratio:.3g} times its bound at {at} of {call.soc} {call.dtype} {call.shape}"
    if not call.in_place and not np.array_equal(x, bits):
        return "x was written"
    if call.pad and base is not x and np.any(np.moveaxis(base, -1, 0)[call.shape[3] :] != 0):
        return "memory between the rows was written"
    return timing(call)


def timing(call: Call) -> str:
    """A call that became slower than its limit on the timeline."""
    cycles = native_sim.load().report()["summary"]["cycles"]
    return f"{cycles:.0f} cycles instead of {call.most_cycles:.0f}" if cycles > call.most_cycles else ""


def main(soc: str = "", dtype: str = "") -> int:
    for call in calls():
        if soc not in ("", call.soc) or dtype not in ("", call.dtype):
            continue
        try:
            noticed = check(call)
        except (RuntimeError, ValueError, TypeError) as error:
            noticed = str(error).splitlines()[0]
        if noticed:
            print(noticed)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
