"""torch_npu's functions on Ascend310P against float64 NumPy, and the functions that this chip lacks.

The documents of npu_rms_norm, npu_add_rms_norm and npu_swiglu list Ascend310P, with float16 and float32. In
the document of AddRmsNorm, rstd is invalid on this chip.
"""

import functools

import numpy as np
import torch
import torch_npu
from npu_functions import (
    assert_near,
    assert_refused,
    draws,
    norm_roundings,
    reciprocal_rms,
    tensor,
    wide,
)
from run_checks import run

FLOATS = (torch.float16, torch.float32)


def draw_norm(draw):
    """x, gamma and epsilon; rows of at least 32 bytes."""
    dtype, rank = draw.of(FLOATS), draw.size(1, 2)
    shape = [draw.size(1, 5) for _ in range(draw.size(1, 2))] + [draw.size(1, 6) for _ in range(rank - 1)]
    shape.append(draw.size(32 // dtype.itemsize, 60))
    return (
        draw.tensor(*shape, dtype=dtype),
        draw.tensor(*shape[-rank:], dtype=dtype),
        draw.of((1e-6, 1e-3)),
    )


def check_npu_rms_norm():
    for draw in draws():
        x, gamma, epsilon = draw_norm(draw)
        y, rstd = torch_npu.npu_rms_norm(x.npu(), gamma.npu(), epsilon)
        scale, roundings = reciprocal_rms(wide(x), gamma.dim(), epsilon), norm_roundings(gamma.numel())
        assert_near(rstd, scale, float_roundings=roundings)
        assert_near(y, wide(x) * scale * wide(gamma), float_roundings=roundings)


def check_npu_add_rms_norm():
    for draw in draws():
        x1, gamma, epsilon = draw_norm(draw)
        x2 = draw.tensor(*x1.shape, dtype=x1.dtype)
        y, _, x = torch_npu.npu_add_rms_norm(x1.npu(), x2.npu(), gamma.npu(), epsilon)
        total = (x1.float() + x2.float()).to(x1.dtype)
        assert torch.equal(x.cpu(), total)
        # The kernel rounds the normalized sum and its product with gamma.
        expected = wide(total) * reciprocal_rms(wide(total), gamma.dim(), epsilon) * wide(gamma)
        assert_near(y, expected, roundings=2, float_roundings=norm_roundings(gamma.numel()))


def check_npu_swiglu():
    for draw in draws():
        dtype, dim = draw.of(FLOATS), draw.of((-1, 1))
        multiple = 64 // dtype.itemsize  # rows of 64 bytes
        shape = [draw.size(1, 6), 2 * draw.size(1, 4), 2 * multiple * draw.size(1, 2)]
        x = (4 * draw.tensor(*shape, dtype=dtype)).to(dtype)
        y = torch_npu.npu_swiglu(x.npu(), dim=dim)
        gate, value = np.split(wide(x), 2, dim)
        assert_near(y, gate / (1 + np.exp(-gate)) * value, float_roundings=12)


def check_calls_that_break_a_rule():
    x, gamma = tensor(2, 64), tensor(64)
    norm, add, swiglu = torch_npu.npu_rms_norm, torch_npu.npu_add_rms_norm, torch_npu.npu_swiglu
    short = tensor(2, 15)
    assert_refused("have at least 32 bytes on Ascend310P but got 30", lambda: norm(short, tensor(15)))
    norm(tensor(2, 16), tensor(16))
    assert_refused("gamma must be float16 but got float32", lambda: norm(x, gamma.float()))
    brain = tensor(2, 64, dtype=torch.bfloat16)
    brain_gamma = tensor(64, dtype=torch.bfloat16)
    for work in (
        lambda: norm(brain, brain_gamma),
        lambda: add(brain, brain, brain_gamma),
        lambda: swiglu(brain),
    ):
        assert_refused("must be float32 or float16 on Ascend310P3 but got bfloat16", work)
    assert_refused("rows of a multiple of 64 bytes but got 62", lambda: swiglu(tensor(2, 62)))


def check_functions_that_the_chip_lacks():
    q, one, x = tensor(1, 5, 2, 128), tensor(1, 5, 1, 128), tensor(2, 3, 5, 64)
    table = tensor(2, 1, 5, 64)
    functions = {
        "aclnnInterleaveRope": lambda: torch_npu.npu_interleave_rope(x, table, table),
        "aclnnRopeWithSinCosCache": lambda: torch_npu.npu_mrope(
            torch.arange(5).npu(), tensor(5, 64), tensor(5, 64), tensor(9, 64), 64, mrope_section=[0, 0, 0]
        ),
        "aclnnGemmaRmsNorm": lambda: torch_npu.npu_gemma_rms_norm(tensor(2, 64), tensor(64)),
    }
    for name, work in functions.items():
        assert_refused(f"{name}: the chip must be of the series Ascend910B or Ascend910_93", work)
    # On this chip, npu_rotary_mul calls another operator: op-plugin RotaryMulKernelNpuOpApi.cpp.
    rotate = functools.partial(torch_npu.npu_rotary_mul, q, one, one)
    assert_refused("aclop operator RotaryMul is not simulated", rotate)


if __name__ == "__main__":
    run(globals())
