"""Bounds of the results' errors against their float64 references.

A rotation has the outputs y = x1*c - x2*s and x1*s + x2*c, with c = cos and s = sin. They are computed in a
type of unit roundoff u_c and rounded to an output type of unit roundoff u_out. The bound of y is the sum of:

- The roundings of two products and of their sum: ``2 u_c (|x1 c| + |x2 s|)``. A fused multiply-add saves one
  of these roundings.
- The errors of c and s, up to ``table_error`` each: ``table_error (|x1| + |x2|)``. An mscale above 1
  multiplies this term, because a table entry is mscale*cos.
- The rounding to the output type: ``u_out |y|``, plus the smallest subnormal.

A constant relative or absolute tolerance would be wrong. Where x1 c and x2 s cancel, y is small and its error
is not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope import backends
from npu_rope.dtypes import bfloat16_bits
from npu_rope.params import RopeParams

UNIT_ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}
SMALLEST_SUBNORMAL = {"float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133, "float64": 2.0**-1074}

# table_error is the largest error of cos and of sin. For policy exact on back ends reference and cpu:
TABLE_ERROR_HOST = 2.0**-23
# table_error of the device's kernels, for positions below 2^22.
TABLE_ERROR_DEVICE = 2.0**-20
# 16-bit results of the device: this share of elements must be within one unit in the last place of cpu's.
DEVICE_NEAR_CPU = 0.995
# table_error for a comparison with ggml's own table: the angles must be the same bit for bit.
TABLE_ERROR_NONE = 0.0

# The largest normalised mean squared error that ggml's test-backend-ops accepts; reported, not used to judge.
TEST_BACKEND_OPS_NMSE = 1e-7

# Before a benchmark times npu_rope and its peers, it checks their results with these limits. A limit has two
# numbers. The first one is table_error. The second one is the number of further roundings to the tensor's
# dtype; each of them adds u_out to table_error. The bound includes the rounding of the output in any case.
OURS = (TABLE_ERROR_HOST, 0)
# Float32 tables, for positions up to 2047. With 128 dimensions and freq_base 10000, cos and sin of ggml's
# running product have errors of up to 3.2e-4. With one float32 product per angle the errors are up to 1.2e-4.
# Both are below 2e-3.
PEER_FLOAT32_TABLE = (2e-3, 0)
# As PEER_FLOAT32_TABLE. Also, a table entry, two products and their sum are rounded to the tensor's dtype.
PEER_ROUNDED_STEPS = (2e-3, 4)


def rotation_bound(
    x: npt.NDArray[Any],
    c: npt.NDArray[np.float64],
    s: npt.NDArray[np.float64],
    expected: npt.NDArray[np.float64],
    params: RopeParams,
    dtype: str,
    table_error: float | npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Return the largest allowed ``|got - expected|``, element by element.

    Args:
        x: the input, ``[B,S,N,D]`` or ``[S,N,D]``, as float64 or a type that float64 represents exactly.
        c, s: the reference's table, broadcastable to ``[..., 1, pairs]``.
        expected: the reference's float64 result, x's shape.
        params: the parameters of the rotation.
        dtype: name of the result's dtype.
        table_error: the policy's cos/sin error; one number, or one for every c and s.

    Returns:
        The bounds, in x's shape. They are zero outside the rotated window, where the input stays unchanged.
    """
    u_out = UNIT_ROUNDOFF[dtype]
    u_compute = UNIT_ROUNDOFF["float64" if dtype == "float64" else "float32"]
    table_error = table_error * max(1.0, abs(params.mscale()))
    first, second = params.pair_lanes()
    wide = np.abs(x.astype(np.float64))
    x1, x2, c, s = wide[..., first], wide[..., second], np.abs(c), np.abs(s)
    bound = np.zeros(x.shape, np.float64)
    for part, products in ((first, x1 * c + x2 * s), (second, x1 * s + x2 * c)):
        bound[..., part] = (
            2 * u_compute * products
            + table_error * (x1 + x2)
            + u_out * np.abs(expected[..., part])
            + SMALLEST_SUBNORMAL[dtype]
        )
    return bound


def table_bound(
    magnitude: npt.NDArray[np.float64],
    expected: npt.NDArray[np.float64],
    dtype: str,
    compute: str = "",
) -> npt.NDArray[np.float64]:
    """Return the bound of a rotation whose cos and sin are given, and therefore exact.

    Args:
        magnitude: ``|x1 c| + |x2 s|`` of every output; zero where the input stays unchanged.
        expected: the reference's float64 result.
        dtype: name of the result's dtype.
        compute: dtype of intermediate values; npu_rope's is float32, or float64 for float64.
    """
    u_compute = UNIT_ROUNDOFF[compute or ("float64" if dtype == "float64" else "float32")]
    rounded = 2 * u_compute * magnitude + UNIT_ROUNDOFF[dtype] * np.abs(expected) + SMALLEST_SUBNORMAL[dtype]
    return np.where(magnitude == 0, 0.0, rounded)


def normalized_error(n: int, precision: str) -> float:
    """Return the largest relative error of rms_norm's Normalized (ONNX's name of x / RMS) on the CPU. A
    rounding to a type narrower than float32 is not included. ``csrc/cpu/rms_norm.cpp`` derives the numbers.

    Args:
        n: elements of a row.
        precision: type of the computation, float32 or float64.
    """
    log2_n = float(np.log2(max(n, 1)))
    if precision == "float64":
        return (36 + log2_n / 2) * 2.0**-53
    return 5.1 * 2.0**-24 + log2_n * 2.0**-53


def device_normalized_error(n: int, backend: str = "sim") -> float:
    """Return :func:`normalized_error` for the device's kernels, which add in float32.
    ``op_kernel/norm/row_norm.h`` derives it, and the two additional roundings of Ascend950."""
    roundings = 9 if _has_loose_functions(backend) else 7
    return (roundings + float(np.log2(max(n, 1))) / 2) * 2.0**-24


def square_sums_bound(
    sums: npt.NDArray[np.float64], n: int, dtype: str, backend: str
) -> npt.NDArray[np.float64]:
    """Return the largest allowed error of qk_square_sums on a back end.

    An NPU adds in float32; ``op_kernel/norm/square_sums_kernel.h`` derives its error. There a square also
    loses what float32 cannot represent. The other back ends add in float64 and round once.

    Args:
        sums: the sums in float64.
        n: the number of squares in each sum.
        dtype: name of the type of q and k.
    """
    wide = "float64" if dtype == "float64" else "float32"
    roundings, lost = (100.0, 0.0) if wide == "float64" else (1.001, SMALLEST_SUBNORMAL[wide])
    if is_device(backend):
        roundings, lost = 6 + float(np.log2(max(n, 1))), n * SMALLEST_SUBNORMAL[wide]
    return roundings * UNIT_ROUNDOFF[wide] * sums + lost


def normalized_error_on(backend: str, n: int) -> float | None:
    """Return the argument ``error`` of :func:`npu_rope.testing.norm_spec.rms_norm` for a back end. It is None
    for the host's back ends: norm_spec then uses :func:`normalized_error`."""
    return device_normalized_error(n, backend) if is_device(backend) else None


def is_device(backend: str) -> bool:
    """Return whether the back end runs the AscendC kernels: ``sim``, ``sim:<soc>`` or ``npu``."""
    return backend.partition(":")[0] in ("sim", "npu")


def _has_loose_functions(backend: str) -> bool:
    """Return whether the device's Sqrt and Div have errors of up to one unit in the last place, instead of
    half of one: on Ascend950. (``simulator/include/ascendc/functions.h`` names the source.)"""
    soc = backends.simulated_soc() if backend == "npu" else backend.partition(":")[2]
    return (soc or "").lower().startswith("ascend950")


def device_gradient_error(n: int, backend: str = "sim") -> float:
    """Return the largest error of the device's gradient of x, relative to ``(|g| + |N| mean|g N|) / RMS``. N
    is Normalized, and g is grad times scale. ``op_kernel/norm/gradient_rows.h`` derives it."""
    roundings = 38 if _has_loose_functions(backend) else 32
    return (roundings + 2.5 * float(np.log2(max(n, 1)))) * 2.0**-24


def peer_norm_bound(expected: npt.NDArray[np.float64], dtype: str) -> npt.NDArray[np.float64]:
    """Return the bound of another library's result, which may round each step to the tensor's dtype and sum
    squares in float32 in any order. It is tight enough to reject a missing scale or a wrong row."""
    allowed = 4 * UNIT_ROUNDOFF[dtype] + 1e-5
    bound: npt.NDArray[np.float64] = allowed * np.abs(expected) + SMALLEST_SUBNORMAL[dtype]
    return bound


def int8_expectation(
    value: npt.NDArray[np.float64], bound: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the expectation for a result that is rounded to an integer and saturated to int8.

    A value within ``bound`` of the exact one rounds to an integer within ``bound + 1/2`` of it. Saturation
    clips the exact value and the integer to [-128, 127]. This does not increase their distance.

    An unrotated value (bound 0) is an integer. It is the only integer within 1/2 of itself, so the result
    must equal it.
    """
    return np.clip(value, -128, 127), bound + 0.5


def float32_angle_error(
    positions: npt.NDArray[Any], params: RopeParams, freq_factors: npt.NDArray[np.float32] | None
) -> npt.NDArray[np.float64]:
    """Return the largest error of cos and sin if the angle is computed in float32, in any order.

    Let ``u = 2^-24``. Pair i uses theta_scale to the power ``e(i) = params.exponents()[i]``. The computation
    has at most e(i) multiplications by theta_scale. Each of them rounds once (u), and theta_scale has an
    error of ``2 u``. The error of the power is thus ``3 e(i) u``.

    Position, freq_factors, freq_scale, YaRN's two products, ``1 - mix``, mix and their sum round at most once
    each: ``8 u``. Both errors are relative to the angle. With YaRN the angle is the sum of two terms, and the
    errors are relative to each term.

    One unit in the last place of a number from 1 to 2 is ``2 u``. The error of cos or sin is up to four
    units, and so is that of mscale. The sum of the two errors is ``8 * 2 u``.

    Args:
        positions: the position that rotates each pair, broadcastable to ``[..., pairs]``.
        params, freq_factors: those of the call.
    """
    u = UNIT_ROUNDOFF["float32"]
    frequencies = params.freq_base ** (-2.0 * params.exponents() / params.n_dims)
    if freq_factors is not None:
        frequencies = frequencies / freq_factors[: params.pairs]
    scaling = max(1.0, params.freq_scale) * max(1.0, abs(params.ext_factor) + abs(1 - params.ext_factor))
    angles = np.abs(positions.astype(np.float64)) * frequencies * scaling
    error: npt.NDArray[np.float64] = (3 * params.exponents() + 8) * u * angles + 16 * u
    return error


def error_ratios(
    got: npt.NDArray[Any], expected: npt.NDArray[np.float64], bound: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return each element's error, and its ratio to the element's bound. An error is infinite if only one of
    got and expected is NaN. A ratio is infinite if the error is infinite, or if it is not zero and the bound
    is zero or NaN."""
    got = got.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error: npt.NDArray[np.float64] = np.abs(got - expected)
    error[(got == expected) | (np.isnan(got) & np.isnan(expected))] = 0.0
    error[np.isnan(error)] = np.inf
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(error == 0, 0.0, error / bound)
    ratio[np.isinf(error) | np.isnan(ratio)] = np.inf
    return error, ratio


def worst_ratio(
    got: npt.NDArray[Any], expected: npt.NDArray[np.float64], bound: npt.NDArray[np.float64]
) -> tuple[float, tuple[int, ...]]:
    """Return the largest ratio of an error to its bound, and its index; 1 or less is within the bound."""
    return largest(error_ratios(got, expected, bound)[1])


def largest(ratio: npt.NDArray[np.float64]) -> tuple[float, tuple[int, ...]]:
    """Return the largest element and its index; 0 and no index if there is none."""
    if ratio.size == 0:
        return 0.0, ()
    index = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    return float(ratio[index]), tuple(int(i) for i in index)


def within_one_ulp(a: npt.NDArray[Any], b: npt.NDArray[Any], dtype: str) -> float:
    """Return the share of elements of two 16-bit results that are equal or neighbours (NaN equals NaN).

    Args:
        a, b: values of the dtype, held in it or in a wider type.
        dtype: ``"float16"`` or ``"bfloat16"``.
    """
    if a.size == 0:
        return 1.0

    def ordered(values: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """Map 16-bit numbers to integers so that neighbours differ by 1. 0x8000 is the sign bit."""
        if dtype == "bfloat16":
            bits = bfloat16_bits(values).astype(np.int32)
        else:
            bits = values.astype(np.float16).view(np.uint16).astype(np.int32)
        return np.where(bits & 0x8000, 0x8000 - bits, bits)

    with np.errstate(invalid="ignore"):  # a signalling NaN raises this flag
        a_nan, b_nan = np.isnan(a), np.isnan(b)
    near = np.abs(ordered(a) - ordered(b)) <= 1
    return float(np.where(a_nan | b_nan, a_nan & b_nan, near).mean())
