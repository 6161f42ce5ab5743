"""Windows of images and the solution of triangular systems, against torch on the CPU in float64."""

import numpy as np
import pytest
from operands import (
    TYPES,
    UNLISTED_CHIP,
    assert_beyond_document,
    assert_refused,
    assert_same,
    check_types,
    random_of,
    reasons_beyond_document,
    strided,
)

torch = pytest.importorskip("torch")
NCHW, NHWC, ND, NCL = 0, 1, 2, 47
INNER_NULLPTR = 561103


@pytest.fixture
def formatted(opapi):
    """The device, which restores the format of its tensors."""
    yield opapi
    opapi.format = ND


@pytest.fixture
def formatted_910b(opapi_910b):
    yield opapi_910b
    opapi_910b.format = ND


def torch_of(x):
    return torch.from_numpy(np.ascontiguousarray(x).astype(np.float64))


@pytest.mark.parametrize(
    "window",
    [
        ((3, 2), (1, 1), (1, 0), (1, 1)),
        ((2, 3), (2, 1), (0, 2), (2, 3)),
        ((1, 1), (1, 1), (0, 0), (1, 1)),
        ((5, 5), (1, 1), (4, 4), (3, 2)),
    ],
)
@pytest.mark.parametrize("shape", [(2, 3, 6, 7), (3, 6, 7)])
def test_im2col_puts_windows_into_columns(opapi_910b, window, shape):
    kernel, dilation, padding, stride = window
    x = strided(random_of("float16", shape))
    expected = torch.nn.functional.unfold(torch_of(x), kernel, dilation, padding, stride).numpy()
    out = strided(np.ones(expected.shape, np.float16))
    given = {"self": x, "kernel_size": list(kernel), "dilation": list(dilation), "padding": list(padding),
             "stride": list(stride), "out": out}  # fmt: skip
    opapi_910b.call("Im2col", given)
    assert_same(out, expected.astype(np.float16))


@pytest.mark.parametrize("to", ["float32", "bfloat16", "int8", "uint64", "complex64"])
def test_im2col_casts_to_the_type_of_out(opapi_910b, to):
    x = random_of("float16", (2, 3, 4))
    out, same = np.ones((8, 6), TYPES[to]), np.ones((8, 6), np.float16)
    given = {"self": x, "kernel_size": [2, 2], "dilation": [1, 1], "padding": [0, 0], "stride": [1, 1]}
    opapi_910b.call("Im2col", given | {"out": same})
    opapi_910b.call("Im2col", given | {"out": out})
    assert_same(out, same.astype(TYPES[to]))


def test_im2col_checks_its_arguments(opapi):
    x, out = np.zeros((1, 2, 4, 4), np.float32), np.zeros((1, 8, 9), np.float32)
    given = {
        "self": x,
        "kernel_size": [2, 2],
        "dilation": [1, 1],
        "padding": [0, 0],
        "stride": [1, 1],
        "out": out,
    }
    if opapi.is_310p:
        assert_beyond_document(opapi, "Im2col", given, UNLISTED_CHIP)
    # The elements of a window of all channels are 2**64, which is 0 in 64 bits.
    wide = {
        "self": np.zeros((1, 16, 1, 1), np.float32),
        "kernel_size": [1 << 30] * 2,
        "padding": [1 << 29] * 2,
    }
    wide["out"] = np.zeros((1, 0, 4), np.float32)
    for change, message in (
        ({"kernel_size": [2]}, "kernelSize must have 2 elements but got 1"),
        ({"stride": [0, 1]}, "stride must be at least 1 but got 0"),
        ({"padding": [-1, 0]}, "padding must be at least 0 but got -1"),
        ({"kernel_size": [5, 5]}, "self must contain a window"),
        ({"kernel_size": [5, 2], "out": np.zeros((1, 20, 0), np.float32)}, "self must contain a window"),
        ({"kernel_size": [2, 5], "out": np.zeros((1, 20, 0), np.float32)}, "self must contain a window"),
        ({"dilation": [0, 1]}, "dilation must be at least 1 but got 0"),
        ({"self": x[:, :0]}, "self must have no empty dimension except the batch"),
        ({"self": x[:, :, :0]}, "self must have no empty dimension except the batch"),
        ({"self": x[0, ..., :0], "out": out[0]}, "self must have no empty dimension except the batch"),
        ({"padding": [1, 1]}, r"out must have the shape \[1,8,25\]"),
        ({"self": x[0, 0]}, "self must have 3 to 4 dimensions"),
        (wide, r"out must have the shape \[1,9223372036854775807,4\]"),
    ):
        assert_refused(opapi, "Im2col", given | change, message)
    check_types(
        opapi,
        "Im2col",
        lambda name: given | {"self": x.astype(TYPES[name]), "out": out.astype(TYPES[name])},
        ["float16", "float32"],
        ("bfloat16",),
        is_310p_unlisted=True,
    )


def test_an_average_pool_of_no_images_is_reported(formatted):
    formatted.format = NCHW
    given = {"kernel_size": [2, 2], "strides": [2, 2], "paddings": [0, 0], "ceil_mode": False}
    given |= {"count_include_pad": True, "divisor_override": 0, "cube_math_type": 1}
    for count, reasons in ((0, ["its document does not allow an empty self"]), (1, [])):
        tensors = {
            "self": np.ones((count, 3, 4, 4), np.float16),
            "out": np.ones((count, 3, 2, 2), np.float16),
        }
        assert reasons_beyond_document(formatted, "AvgPool2d", given | tensors) == reasons


WINDOWS = [((2, 2), (2, 2), (0, 0), False), ((3, 2), (2, 1), (1, 1), False), ((3, 3), (2, 2), (1, 0), True),
           ((4, 4), (3, 3), (2, 2), True)]  # fmt: skip


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("counts_padding", [True, False])
@pytest.mark.parametrize("divisor", [0, 3])
@pytest.mark.parametrize("name", ["float16", "float32"])
@pytest.mark.parametrize("shape", [(2, 3, 7, 8), (3, 7, 8)])
def test_avg_pool_averages_windows(formatted, window, counts_padding, divisor, name, shape):
    kernel, stride, padding, ceils = window
    x = strided(np.random.default_rng(0).uniform(0.5, 1, shape).astype(TYPES[name]))
    expected = torch.nn.functional.avg_pool2d(
        torch_of(x), kernel, stride, padding, ceils, counts_padding, divisor or None
    ).numpy()
    out = strided(np.zeros(expected.shape, x.dtype))
    formatted.format = NCHW if len(shape) == 4 else NCL
    given = {
        "self": x, "kernel_size": list(kernel), "strides": list(stride), "paddings": list(padding),
        "ceil_mode": ceils, "count_include_pad": counts_padding, "divisor_override": divisor,
        "cube_math_type": 1 if formatted.is_310p else 0, "out": out,
    }  # fmt: skip
    formatted.call("AvgPool2d", given)
    # float16: one rounding of the result, and on Ascend310P of the input and of the factor.
    # float32: up to 16 products and sums, and the factor.
    unit = 3 * 2.0**-11 if name == "float16" or formatted.is_310p else 20 * 2.0**-24
    assert np.all(np.abs(out - expected) <= unit * np.abs(expected))


def test_avg_pool_checks_its_arguments(formatted):
    formatted.format = NCHW
    x, out = np.zeros((1, 2, 4, 4), np.float16), np.zeros((1, 2, 2, 2), np.float16)
    given = {"self": x, "kernel_size": [2], "strides": [], "paddings": [0], "ceil_mode": False,
             "count_include_pad": True, "divisor_override": 0, "cube_math_type": 0, "out": out}  # fmt: skip
    formatted.call("AvgPool2d", given)
    single = {"self": x.astype(np.float32), "out": out.astype(np.float32)}
    for change, message in (
        ({"paddings": [2]}, "paddings must be at most half of kernelSize but got 2"),
        ({"kernel_size": []}, "kernelSize must have 1 or 2 elements but got 0"),
        ({"strides": [0]}, "strides must be at least 1 but got 0"),
        ({"strides": [1]}, r"out must have the shape \[1,2,3,3\]"),
        ({"kernel_size": [5, 2], "out": out[:, :, :0]}, "self must contain a window"),
        ({"kernel_size": [2, 5], "out": out[..., :0]}, "self must contain a window"),
        ({"self": x[:, :0], "out": out[:, :0]}, "self must have no empty dimension except the batch"),
        ({"self": x[:, :, :0]}, "self must have no empty dimension except the batch"),
        ({"self": x[..., :0]}, "self must have no empty dimension except the batch"),
        ({"cube_math_type": 3}, "cubeMathType must be one that supports float16"),
        (
            single | {"cube_math_type": 0 if formatted.is_310p else 1},
            "cubeMathType must be one that supports float32",
        ),
    ):
        assert_refused(formatted, "AvgPool2d", given | change, message)
    formatted.format = ND
    assert_refused(formatted, "AvgPool2d", given, r"self must have the format NCHW \(0\) but got 2")


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", ["float16", "float32"])
@pytest.mark.parametrize("shape", [(2, 3, 7, 8), (3, 7, 8)])
def test_max_pool_takes_the_greatest_element(formatted_910b, window, name, shape):
    formatted_910b.format = NCHW if len(shape) == 4 else ND
    kernel, stride, padding, ceils = window
    if 2 * max(padding) > min(kernel):
        padding = (0, 0)
    x = strided(-random_of(name, shape) - 1)
    expected = torch.nn.functional.max_pool2d(torch_of(x), kernel, stride, padding, 1, ceils).numpy()
    out = strided(np.zeros(expected.shape, x.dtype))
    given = {"self": x, "kernel_shape": list(kernel), "strides": list(stride), "auto_pad": 0,
             "pads": list(padding), "dilations": [1, 1], "ceil_mode": int(ceils), "out": out}  # fmt: skip
    formatted_910b.call("MaxPool", given)
    assert_same(out, expected.astype(x.dtype))


def test_max_pool_takes_other_formats_than_nchw_in_some_cases_only(formatted):
    x, out = np.zeros((1, 2, 1100, 4), np.float16), np.zeros((1, 2, 100, 3), np.float16)
    given = {"self": x, "kernel_shape": [1001, 2], "strides": [], "auto_pad": 0, "pads": [], "dilations": [],
             "ceil_mode": 0, "out": out}  # fmt: skip
    small = given | {"kernel_shape": [1000, 2], "out": np.zeros((1, 2, 101, 3), np.float16)}
    uneven = given | {"pads": [1, 0, 0, 0], "out": np.zeros((1, 2, 101, 3), np.float16)}
    for form in (NHWC, ND):
        formatted.format = form
        for call in (small, uneven, *([given] if formatted.is_310p else [])):
            message = rf"self must have the format NCHW \(0\) but got {form}"
            assert_refused(formatted, "MaxPool", call, message, INNER_NULLPTR)
        if not formatted.is_310p:
            formatted.call("MaxPool", given)
        formatted.call("MaxPool", small | {"self": x[0], "out": small["out"][0]})
        formatted.call("MaxPool", small | {"self": x[:0], "out": small["out"][:0]})


def test_max_pool_checks_its_arguments(formatted):
    opapi, formatted.format = formatted, NCHW
    x, out = np.zeros((1, 2, 4, 4), np.float16), np.zeros((1, 2, 3, 3), np.float16)
    given = {"self": x, "kernel_shape": [2, 2], "strides": [], "auto_pad": 0, "pads": [], "dilations": [1],
             "ceil_mode": 0, "out": out}  # fmt: skip
    if opapi.is_310p:
        assert_beyond_document(opapi, "MaxPool", given, UNLISTED_CHIP)
    opapi.call("MaxPool", given)
    for change, message in (
        ({"auto_pad": 1}, "autoPad must be 0 but got 1"),
        ({"dilations": [2]}, "dilations must be 1 but got 2"),
        ({"pads": [1, 1, 2, 1]}, "pads must add up to at most kernelShape"),
        ({"pads": [1, 1, 1]}, "pads must have 0, 1, 2 or 4 elements but got 3"),
        ({"strides": [2]}, r"out must have the shape \[1,2,2,2\]"),
    ):
        assert_refused(opapi, "MaxPool", given | change, message)
    check_types(
        opapi,
        "MaxPool",
        lambda name: given | {"self": x.astype(TYPES[name]), "out": out.astype(TYPES[name])},
        ["float16"],
        ("float32",),
        is_310p_unlisted=True,
    )


@pytest.mark.parametrize("size", [(6, 8), (5, 13), (1, 2), (3, 4)])
@pytest.mark.parametrize("name", ["float16", "float64", "uint8"])
def test_upsample_nearest_repeats_elements(formatted, name, size):
    x = strided(random_of(name, (2, 3, 3, 4)))
    expected = torch.nn.functional.interpolate(torch_of(x), size, mode="nearest").numpy().astype(x.dtype)
    out = strided(np.zeros_like(expected))
    formatted.format = NCHW
    formatted.call("UpsampleNearest2d", {"self": x, "output_size": list(size), "out": out})
    assert_same(out, expected)
    formatted.format = NHWC
    rows, last = strided(np.moveaxis(x, 1, 3)), np.zeros_like(np.moveaxis(expected, 1, 3))
    formatted.call("UpsampleNearest2d", {"self": rows, "output_size": list(size), "out": last})
    assert_same(last, np.moveaxis(expected, 1, 3))


def test_upsample_nearest_checks_its_arguments(formatted):
    formatted.format = NCHW
    x, out = np.zeros((1, 2, 3, 4), np.float16), np.zeros((1, 2, 6, 8), np.float16)
    given = {"self": x, "output_size": [6, 8], "out": out}
    for change, message in (
        ({"output_size": [6]}, "outputSize must have 2 elements but got 1"),
        ({"output_size": [6, 0]}, "outputSize must be greater than 0 but got 0"),
        ({"output_size": [6, 7]}, r"out must have the shape \[1,2,6,7\]"),
        ({"self": x[0]}, "self must have 4 dimensions but got 3"),
    ):
        assert_refused(formatted, "UpsampleNearest2d", given | change, message)
    check_types(
        formatted,
        "UpsampleNearest2d",
        lambda name: given | {"self": x.astype(TYPES[name]), "out": out.astype(TYPES[name])},
        ["float16", "float64", "uint8"],
        ("bfloat16", "float32"),
        ("float32",) if formatted.is_310p else (),
    )
    formatted.format = ND
    assert_refused(formatted, "UpsampleNearest2d", given, "self must have the format NCHW")


@pytest.mark.parametrize("format_number", [NCHW, NHWC])
def test_upsample_nearest_of_an_empty_tensor(formatted, format_number):
    """The source refuses an empty dimension 1, 2 or 3 in both formats, the document every empty tensor."""
    formatted.format = format_number
    for empty in range(4):
        sizes = [1, 3, 3, 3]
        sizes[empty] = 0
        rows = 1 if format_number == NHWC else 2
        x, out = np.zeros(sizes, np.float16), np.zeros([*sizes[:rows], 3, 3, *sizes[rows + 2 :]], np.float16)
        given = {"self": x, "output_size": [3, 3], "out": out}
        if empty:
            message = "self must have no empty dimension except the batch"
            assert_refused(formatted, "UpsampleNearest2d", given, message)
        else:
            reason = "its document excludes empty tensors"
            assert_beyond_document(formatted, "UpsampleNearest2d", given, reason)


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize("name", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("batches", [((), ()), ((2, 1), (3,))])
def test_triangular_solve_finds_x(opapi_910b, upper, transpose, name, batches):
    rng = np.random.default_rng(0)
    a = strided((rng.uniform(-0.2, 0.2, (*batches[0], 6, 6)) + 2 * np.eye(6)).astype(TYPES[name]))
    b = strided(rng.standard_normal((*batches[1], 6, 4)).astype(TYPES[name]))
    triangle = np.triu(a) if upper else np.tril(a)
    wide = np.complex128 if "complex" in name else np.float64
    matrix = np.swapaxes(triangle, -1, -2) if transpose else triangle
    expected = np.matmul(np.linalg.inv(matrix.astype(wide)), b.astype(wide))
    x, m = np.zeros(expected.shape, b.dtype), np.zeros((*expected.shape[:-2], 6, 6), b.dtype)
    given = {"self": b, "a": a, "upper": upper, "transpose": transpose, "unitriangular": False}
    opapi_910b.call("TriangularSolve", given | {"x_out": x, "m_out": m})
    assert_same(m, np.ascontiguousarray(np.broadcast_to(triangle, m.shape)))
    # Substitution has a backward error of n units (two for complex), and the condition of A is below 4.
    unit = 2.0**-24 if name in ("float32", "complex64") else 2.0**-53
    assert np.all(np.abs(x - expected) <= 4 * 2 * 6 * unit * np.abs(expected).max())


def test_triangular_solve_checks_its_arguments(opapi):
    a, b = np.eye(3, dtype=np.float32), np.ones((3, 2), np.float32)
    given = {"self": b, "a": a, "upper": True, "transpose": False, "unitriangular": True,
             "x_out": b.copy(), "m_out": a.copy()}  # fmt: skip
    if opapi.is_310p:
        assert_beyond_document(opapi, "TriangularSolve", given, UNLISTED_CHIP)
    opapi.call("TriangularSolve", given)
    for change, message in (
        ({"self": b[:2].copy()}, "self must have 3 rows"),
        ({"a": np.zeros((3, 2), np.float32)}, "A must be square|self must have 2 rows"),
        ({"x_out": np.ones((1, 3, 2), np.float32)}, "xOut must have the batch"),
        ({"m_out": np.ones((3, 2), np.float32)}, r"mOut must have the shape \[3,3\]"),
        ({"self": b.astype(np.float64)}, "self must be float32 on .* but got float64"),
    ):
        assert_refused(opapi, "TriangularSolve", given | change, message)
