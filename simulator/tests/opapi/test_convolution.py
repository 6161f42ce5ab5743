"""aclnnConvolution of libopapi's stand-ins against torch in float64."""

import ml_dtypes
import numpy as np
import pytest
from aclnn import RefusedPhase, Stored
from operands import INVALID, reasons_beyond_document

torch = pytest.importorskip("torch")

F16, F32, BF16 = np.float16, np.float32, ml_dtypes.bfloat16
KEEP, ALLOW, FP16, HF32, FP32_ADD = range(5)
FORMATS = {3: 47, 4: 0, 5: 30}  # NCL, NCHW, NCDHW


def random(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def call(device, x, weight, output, math=KEEP, *, bias=None, form=None, reports=False, **options):
    """Call the function, or prepare it and return how it goes beyond the document."""
    dims = np.ndim(x) - 2
    given = {"stride": [1] * dims, "padding": [0] * dims, "dilation": [1] * dims, "transposed": False}
    given |= {"output_padding": [0] * dims, "groups": 1} | options
    given |= {"input": x, "weight": weight, "bias": bias, "output": output, "cube_math_type": math}
    before, device.format = device.format, FORMATS[np.ndim(x)] if form is None else form
    try:
        if reports:
            return reasons_beyond_document(device, "Convolution", given)
        device.call("Convolution", given)
    finally:
        device.format = before


def expected(x, weight, **options):
    dims = x.ndim - 2
    transposed = options.pop("transposed", False)
    name = f"conv_transpose{dims}d" if transposed else f"conv{dims}d"
    function = getattr(torch.nn.functional, name)
    arrays = (torch.from_numpy(a.astype(np.float64)) for a in (x, weight))
    if not transposed:
        options.pop("output_padding", None)
    return function(*arrays, **options).numpy()


def check(out, x, weight, rounding=None, bias=None, **options):
    """Allow (k + 2) * 2^-24 of the sum of absolute products, as in test_matmul.py, and one rounding."""
    value = expected(x, weight, **options)
    size = expected(np.abs(x), np.abs(weight), **options)
    if bias is not None:
        shape = (1, -1) + (1,) * (x.ndim - 2)
        value, size = value + bias.reshape(shape), size + np.abs(bias).reshape(shape)
    k = weight[0].size * (weight.shape[0] if options.get("transposed") else 1)
    unit = {None: 0, F16: 2.0**-10, BF16: 2.0**-7}[rounding]
    bound = (k + 2) * 2.0**-24 * size + np.maximum(np.abs(value) * unit / 2 * 1.01, 2.0**-25 if unit else 0)
    assert np.all(np.abs(out.astype(np.float64) - value) <= bound)


CASES = [
    ((2, 4, 11), (6, 4, 3), {"padding": [1], "stride": [2]}),
    ((2, 4, 11), (6, 2, 3), {"groups": 2, "dilation": [3]}),
    ((1, 8, 20), (8, 1, 4), {"groups": 8}),
    ((2, 3, 9, 7), (4, 3, 3, 2), {"padding": [2, 1], "stride": [2, 3], "dilation": [1, 2]}),
    ((1, 4, 5, 6, 7), (2, 2, 2, 3, 2), {"groups": 2, "padding": [1, 0, 1], "stride": [1, 2, 1]}),
    ((2, 4, 5), (4, 3, 4), {"transposed": True, "stride": [3], "output_padding": [1]}),
    ((2, 4, 5, 6), (4, 2, 3, 2), {"transposed": True, "groups": 2, "stride": [2, 1], "padding": [1, 1]}),
    ((1, 4, 5, 6, 3), (4, 2, 2, 3, 2), {"transposed": True, "stride": [2, 1, 2], "dilation": [1, 2, 1]}),
]


@pytest.mark.parametrize(("x_shape", "weight_shape", "options"), CASES)
def test_convolutions_of_float16(opapi, x_shape, weight_shape, options):
    x, weight = random(x_shape, F16), random(weight_shape, F16, 1)
    out = np.zeros(expected(x, weight, **options).shape, F16)
    if opapi.is_310p and len(x_shape) == 5 and options.get("transposed"):
        with pytest.raises(RefusedPhase, match="input must have at most 4 dimensions on this chip"):
            call(opapi, x, weight, out, **options)
        opapi.free_tensors()
        return
    call(opapi, x, weight, out, **options)
    check(out, x, weight, F16, **options)


def test_float32_is_hf32_on_910b_and_float16_on_310p(opapi):
    x, weight, out = random((2, 4, 11), F32), random((6, 4, 3), F32, 1), np.zeros((2, 6, 9), F32)
    call(opapi, x, weight, out, ALLOW)
    if opapi.is_310p:
        check(out, x.astype(F16), weight.astype(F16), F16)
        return
    hf32 = [((a.view(np.uint32) + np.uint32(0x800)) & np.uint32(0xFFFFF000)).view(F32) for a in (x, weight)]
    check(out, *hf32)
    call(opapi, x, weight, out, FP16)
    check(out, x.astype(F16), weight.astype(F16), F16)


def test_bias_and_sides_of_padding(opapi):
    x, weight, bias = random((2, 3, 9, 7), F16), random((4, 3, 3, 2), F16, 1), random(4, F16, 2)
    out = np.zeros((2, 4, 10, 8), F16)
    call(opapi, x, weight, out, bias=bias, padding=[1, 2, 0, 2])
    padded = np.pad(x, ((0, 0), (0, 0), (1, 2), (0, 2)))
    check(out, padded, weight, F16, bias=bias)
    lines, kernel, result = random((1, 3, 9), F16), random((4, 3, 3), F16, 1), np.zeros((1, 4, 9), F16)
    call(opapi, lines, kernel, result, padding=[0, 2])
    check(result, np.pad(lines, ((0, 0), (0, 0), (0, 2))), kernel, F16)


def test_the_depthwise_call_of_ggml_writes_a_transposed_view(opapi):
    """ggml passes cubeMathType 0 on Ascend910B, which only the source supports for float32."""
    x, weight = random((2, 6, 10), F32), random((6, 1, 4), F32, 1)
    memory = np.zeros((2, 7, 6), F32)
    out = memory.transpose(0, 2, 1)
    if opapi.is_310p:
        call(opapi, x, weight, out, ALLOW, groups=6)
        check(out, x.astype(F16), weight.astype(F16), F16, groups=6)
        return
    reason = "its document does not support float32 with cubeMathType 0"
    assert call(opapi, x, weight, out, KEEP, groups=6, reports=True) == [reason]
    call(opapi, x, weight, out, KEEP, groups=6)
    check(out, x, weight, groups=6)


def test_bfloat16(opapi_910b):
    x, weight, out = random((2, 4, 11), BF16), random((6, 4, 3), BF16, 1), np.zeros((2, 6, 9), BF16)
    call(opapi_910b, x, weight, out)
    check(out, x, weight, BF16)
    reason = "its document does not support bfloat16 with cubeMathType 2"
    assert call(opapi_910b, x, weight, out, FP16, reports=True) == [reason]
    call(opapi_910b, x, weight, out, FP16)  # computed in float16
    low = np.zeros(out.shape, F16)
    call(opapi_910b, x.astype(F16), weight.astype(F16), low)
    assert np.array_equal(out, low.astype(BF16))


def test_fp32_add_is_computed_as_keep_dtype(opapi_910b):
    x, weight = random((2, 4, 11), F32), random((6, 4, 3), F32, 1)
    out, kept = np.zeros((2, 6, 9), F32), np.zeros((2, 6, 9), F32)
    reason = "its document does not list cubeMathType 4"
    assert call(opapi_910b, x, weight, out, FP32_ADD, reports=True) == [reason]
    call(opapi_910b, x, weight, out, FP32_ADD)
    call(opapi_910b, x, weight, kept, KEEP)
    assert np.array_equal(out, kept)


@pytest.mark.parametrize("form", [0, 2, 30, 47, 1, 16, 27])
def test_the_format_of_bias(opapi, form):
    x, weight = random((2, 4, 11), F16), random((4, 6, 3), F16, 1)
    bias = Stored(random(6, F16, 2), 1, (6,), (1,), form)
    for is_transposed, kernel, length in ((False, weight.transpose(1, 0, 2).copy(), 9), (True, weight, 13)):
        arguments = (x, kernel, np.zeros((2, 6, length), F16))
        options = {"bias": bias, "transposed": is_transposed, "reports": True}
        if form not in (0, 2, 30, 47):
            with pytest.raises(RefusedPhase) as caught:
                call(opapi, *arguments, **options)
            text = f"bias must be in the format ND, NCL, NCHW or NCDHW but got aclFormat {form}."
            assert text in str(caught.value)
            assert caught.value.status == INVALID
            continue
        reason = "its document requires the format ND for the bias of a transposed convolution"
        assert call(opapi, *arguments, **options) == ([reason] if is_transposed and form != 2 else [])


def test_a_deep_kernel_is_reported_on_ascend310p(opapi):
    for depth in (255, 256):
        weight, x = np.zeros((1, 1, depth, 1, 1), F16), np.zeros((1, 1, 256, 1, 1), F16)
        out = np.zeros((1, 1, 257 - depth, 1, 1), F16)
        reason = "its document limits each kernel dimension of weight to 255 on Ascend310P"
        expected_reasons = [reason] if depth == 256 and opapi.is_310p else []
        assert call(opapi, x, weight, out, reports=True) == expected_reasons


def test_refusals(opapi):
    x, weight, out = random((2, 4, 11), F16), random((6, 4, 3), F16, 1), np.zeros((2, 6, 9), F16)
    short = random((4, 6, 3), F16)
    for arguments, options, text in (
        (
            (None, weight, out),
            {"stride": [1], "padding": [0], "dilation": [1], "form": 47},
            "input must not be null",
        ),
        ((x, weight[0], out), {}, "weight must have 3 to 5 dimensions but got 2"),
        ((x, weight[None], out), {"form": 47}, "weight must be in the format NCHW"),
        ((x, weight, out), {"form": 2}, "input must be in the format NCL (aclFormat 47) but got aclFormat 2"),
        ((x, weight, out[:, :, :8]), {}, "output must have the shape [2,6,9] but got [2,6,8]"),
        ((x, weight, out), {"stride": [0]}, "stride must be positive but got 0"),
        ((x, weight, out), {"stride": [1, 1]}, "stride must have 1 elements but got 2"),
        ((x, weight, out), {"padding": [1, 1, 1]}, "padding must have 1 or 2 elements but got 3"),
        ((x, weight, out), {"padding": [-1]}, "padding must be at least 0 but got -1"),
        ((x, weight, out), {"padding": [256]}, "each element of padding must be in [0, 255] but got 256"),
        ((x, weight, out), {"groups": 0}, "groups must be in [1, 65535] but got 0"),
        ((x, weight, out), {"groups": 2}, "input must have 8 channels but got 4"),
        ((x, weight, out), {"dilation": [6]}, "input must be at least as large as the kernel"),
        ((x, weight, out), {"bias": np.zeros(5, F16)}, "bias must have the shape [6] but got [5]"),
        ((x, weight, out), {"bias": np.zeros(6, F32)}, "bias must be float16 but got float32"),
        ((x, weight, out.astype(F32)), {}, "output must be float16 but got float32"),
        (
            (np.zeros((2, 3, 0, 7), F16), np.zeros((4, 3, 3, 2), F16), np.zeros((2, 4, 2, 8), F16)),
            {"padding": [2, 1]},
            "output must be empty if input or weight is empty but got [2,4,2,8]",
        ),
        (
            (np.zeros((2, 0, 9, 7), F16), np.zeros((4, 0, 3, 2), F16), np.zeros((2, 4, 7, 6), F16)),
            {},
            "output must be empty if input or weight is empty but got [2,4,7,6]",
        ),
        (
            (np.zeros((2, 0, 5), F16), np.zeros((0, 3, 4), F16), np.zeros((2, 3, 8), F16)),
            {"transposed": True},
            "input must have channels in a transposed convolution but got 0",
        ),
        ((x, short, out), {"transposed": True, "padding": [1, 1]}, "padding must have 1 elements but got 2"),
        (
            (x, short, out),
            {"transposed": True, "output_padding": [1]},
            "outputPadding must be at least 0 and below stride or dilation but got 1",
        ),
        (
            (x, np.zeros((4, 6, 256), F16), out),
            {"transposed": True},
            "each kernel dimension of weight must be in [1, 255] but got 256",
        ),
        (
            (x, np.zeros((4, 6, 200), F16), out),
            {"transposed": True, "dilation": [2]},
            "(kernel - 1) * dilation - padding must be at most 255 but got 398",
        ),
    ):
        with pytest.raises(RefusedPhase) as caught:
            call(opapi, *arguments, **options)
        assert text in str(caught.value)
        opapi.free_tensors()
    wide = [a.astype(F32) for a in (x, weight, out)]
    with pytest.raises(RefusedPhase, match=r"cubeMathType must be in \[0, 4\] but got 5"):
        call(opapi, *wide, 5)
    for math in (KEEP, HF32, FP32_ADD) if opapi.is_310p else ():
        with pytest.raises(RefusedPhase, match="cubeMathType must be 1 or 2 for float32"):
            call(opapi, *wide, math)
