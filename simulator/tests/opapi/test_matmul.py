"""Matrix products of libopapi's stand-ins against float64."""

import ctypes as C

import ml_dtypes
import numpy as np
import pytest
from aclnn import RefusedPhase, Stored
from operands import UNLISTED_CHIP, assert_beyond_document, assert_refused, reasons_beyond_document

F16, F32, BF16 = np.float16, np.float32, ml_dtypes.bfloat16
KEEP, ALLOW, FP16, HF32, FP32_ADD = range(5)
NZ = 29
INVALID = 161002


def random(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def hf32(array):
    """Round to 11 bits of fraction, ties away from zero."""
    bits = array.astype(F32).view(np.uint32)
    return ((bits + np.uint32(0x800)) & np.uint32(0xFFFFF000)).view(F32)


def exact(a, b):
    return a.astype(np.float64) @ b.astype(np.float64)


def check(out, a, b, *, roundings):
    """Compare with the product of the rounded inputs `a` and `b`.

    Each of k float32 additions and each product errs by at most 2^-24 of the sum of the absolute products. A
    rounding of the result adds half a unit in the last place of its type.
    """
    k = a.shape[-1]
    bound = (k + 1) * 2.0**-24 * exact(np.abs(a), np.abs(b))
    expected = exact(a, b)
    for dtype in roundings:
        bound = bound + ulp(expected, dtype) / 2
    error = np.abs(out.astype(np.float64) - expected)
    assert np.all(error <= bound), (error - bound).max()


def ulp(values, dtype):
    bits, least = {F16: (10, -24), BF16: (7, -133), F32: (23, -149)}[dtype]
    exponent = np.floor(np.log2(np.maximum(np.abs(values), 2.0**-140))) + 1  # one more: the sum may round up
    return np.maximum(2.0 ** (exponent - bits), 2.0**least)


def call(device, name, a, b, out, math=KEEP, second="mat2"):
    device.call(name, {"self": a, second: b, "out": out, "cube_math_type": math})


def refused(device, name, *args, **kwargs):
    with pytest.raises(RefusedPhase) as caught:
        call(device, name, *args, **kwargs)
    return caught.value


SIZES = [(1, 1, 1), (1, 7, 8), (5, 16, 9), (4, 33, 17), (3, 300, 8), (9, 64, 40)]


@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_mm_of_float16_sums_in_float32(opapi, m, k, n):
    a, b, out = random((m, k), F16), random((k, n), F16, 1), np.zeros((m, n), F16)
    call(opapi, "Mm", a, b, out)
    check(out, a, b, roundings=[F16])


@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_mm_of_transposed_and_strided_views(opapi, m, k, n):
    a, b = random((k, m), F16).T, random((2 * n, 3 * k), F16, 1)[::2, ::3].T
    out = np.zeros((m, n), F16)
    call(opapi, "Mm", a, b, out)
    check(out, a, b, roundings=[F16])


def test_mm_of_bfloat16(opapi_910b):
    a, b, out = random((5, 100), BF16), random((100, 11), BF16, 1), np.zeros((5, 11), BF16)
    for math in (KEEP, ALLOW, FP16, HF32, FP32_ADD):  # bfloat16 ignores them
        call(opapi_910b, "Mm", a, b, out, math)
        check(out, a, b, roundings=[BF16])


def test_float32_keeps_its_precision_on_910b(opapi_910b):
    a, b, out = random((5, 100), F32), random((100, 11), F32, 1), np.zeros((5, 11), F32)
    for math in (KEEP, FP32_ADD):
        call(opapi_910b, "Mm", a, b, out, math)
        check(out, a, b, roundings=[])


@pytest.mark.parametrize("math", [ALLOW, HF32])
def test_down_precision_is_hf32_on_910b(opapi_910b, math):
    a, b, out = random((5, 100), F32), random((100, 11), F32, 1), np.zeros((5, 11), F32)
    call(opapi_910b, "Mm", a, b, out, math)
    check(out, hf32(a), hf32(b), roundings=[])
    half = np.zeros((5, 11), F32)
    call(opapi_910b, "Mm", a.astype(F16).astype(F32), b.astype(F16).astype(F32), half, HF32)
    check(half, a.astype(F16), b.astype(F16), roundings=[])


def test_hf32_rounds_ties_away_from_zero(opapi_910b):
    tie = np.array([[1 + 2.0**-12], [-1 - 2.0**-12], [1 + 2.0**-12 - 2.0**-23]], F32)
    out = np.zeros((3, 2), F32)
    call(opapi_910b, "Mm", tie, np.ones((1, 2), F32), out, HF32)
    assert out[:, 0].tolist() == [1 + 2.0**-11, -1 - 2.0**-11, 1]


def test_down_precision_is_float16_on_310p(opapi):
    if not opapi.is_310p:
        pytest.skip("of Ascend310P")
    a, b, out = random((5, 100), F32), random((100, 11), F32, 1), np.zeros((5, 11), F32)
    for math in (ALLOW, FP16):
        call(opapi, "Mm", a, b, out, math)
        check(out, a.astype(F16), b.astype(F16), roundings=[])


def test_float16_inputs_keep_their_sums_in_float32(opapi):
    a, b, out = random((5, 100), F16), random((100, 11), F16, 1), np.zeros((5, 11), F32)
    for math in (KEEP, ALLOW, FP16):
        call(opapi, "Mm", a, b, out, math)
        check(out, a, b, roundings=[])


def test_use_fp16_rounds_the_result_of_float32_inputs_on_910b(opapi_910b):
    a, b, out = random((5, 100), F32), random((100, 11), F16, 1), np.zeros((5, 11), F32)
    call(opapi_910b, "Mm", a, b, out, FP16)
    check(out, a.astype(F16), b, roundings=[F16])
    assert np.array_equal(out, out.astype(F16).astype(F32))
    call(opapi_910b, "Mm", np.full((5, 100), 1e5, F32), np.abs(b), out, FP16)
    assert np.all(np.isinf(out))
    edge = np.array([[65519], [65520], [-65520], [2.0**-24], [2.0**-25], [2.0**-25 * 1.001], [np.nan]], F32)
    result = np.zeros((7, 2), F32)
    call(opapi_910b, "Mm", edge, np.ones((1, 2), F32), result, FP16)
    with np.errstate(over="ignore"):
        assert np.array_equal(result[:, :1], edge.astype(F16).astype(F32), equal_nan=True)


def test_subnormal_and_special_numbers_of_float16_are_read_exactly(opapi):
    a = np.array([2.0**-24, 2.0**-14, -3 * 2.0**-24, np.inf, -np.inf, 65504, -0.0, np.nan], F16)[:, None]
    out = np.zeros((8, 1), F16)
    call(opapi, "Mm", a, np.ones((1, 1), F16), out)
    assert np.array_equal(out[:-1], a[:-1])
    assert np.isnan(out[-1, 0])


def test_the_result_of_mm_is_cast_to_the_type_of_out(opapi):
    a, b, out = random((4, 8), F16), random((8, 5), F16), np.zeros((4, 5), F32)
    call(opapi, "Mm", a, b, out)
    check(out, a, b, roundings=[F32])


def test_mm_refuses_wrong_arguments(opapi):
    a, b, out = random((4, 8), F16), random((8, 5), F16), np.zeros((4, 5), F16)
    assert refused(opapi, "Mm", None, b, out).status == 161001
    assert "mat2 must have 8 rows but got 5" in str(refused(opapi, "Mm", a, b.T.copy(), out))
    assert "out must have the shape [4,5]" in str(refused(opapi, "Mm", a, b, out.T))
    assert "self must have 2 dimensions" in str(refused(opapi, "Mm", a[None], b, out))
    error = refused(opapi, "Mm", a.astype(np.int8), b, out)
    assert error.status == INVALID
    assert "self must be float32" in str(error)
    assert "cubeMathType must be in [0," in str(refused(opapi, "Mm", a, b, out, 5))
    assert "cubeMathType must be in [0," in str(refused(opapi, "Mm", a, b, out, -1))
    opapi.free_tensors()


def test_310p_refuses_float32_without_down_precision(opapi):
    a, b, out = random((4, 8), F32), random((8, 5), F32), np.zeros((4, 5), F32)
    for math in (KEEP, HF32, FP32_ADD):
        if opapi.is_310p:
            assert "cubeMathType must be 1 or 2" in str(refused(opapi, "Mm", a, b, out, math))
        else:
            call(opapi, "Mm", a, b, out, math)
    if opapi.is_310p:
        assert "self must be float32 or float16" in str(refused(opapi, "Mm", a.astype(BF16), b, out, ALLOW))
        halves = [x.astype(F16) for x in (a, b, out)]
        call(opapi, "Mm", *halves, HF32)  # only the document excludes it
        assert "in [0, 3]" in str(refused(opapi, "Mm", *halves, FP32_ADD))
    opapi.free_tensors()


def test_inner_dimension_zero_gives_zeros(opapi):
    out = np.ones((3, 4), F16)
    call(opapi, "Mm", np.zeros((3, 0), F16), np.zeros((0, 4), F16), out)
    assert not out.any()


MATMUL_SHAPES = [
    ((7,), (7,)), ((7,), (7, 3)), ((5, 7), (7,)), ((5, 7), (7, 3)), ((2, 5, 7), (7, 3)), ((2, 5, 7), (7,)),
    ((7,), (2, 7, 3)), ((5, 7), (2, 7, 3)), ((2, 5, 7), (2, 7, 3)), ((2, 1, 5, 7), (3, 7, 3)),
    ((2, 3, 2, 2, 5, 7), (2, 1, 2, 1, 7, 3)), ((1, 5, 7), (4, 7, 3)), ((4, 5, 7), (1, 7, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), MATMUL_SHAPES)
def test_matmul_broadcasts_as_numpy(opapi, left, right):
    a, b = random(left, F16), random(right, F16, 1)
    out = np.zeros(exact(a, b).shape, F16)
    call(opapi, "Matmul", a, b, out)
    check(out, a, b, roundings=[F16])


def test_matmul_converts_to_the_type_of_out(opapi_910b):
    a, b = random((5, 7), F32), random((7, 3), F16, 1)
    out = np.zeros((5, 3), BF16)
    call(opapi_910b, "Matmul", a, b, out)
    check(out, a, b, roundings=[BF16])
    wide = np.zeros((5, 3), F32)
    call(opapi_910b, "Matmul", a.astype(F16), b, wide)
    check(wide, a.astype(F16), b, roundings=[])


def test_matmul_reshapes_its_result(opapi):
    a, b, out = random((5, 6), F16), random((6, 4), F16, 1), np.zeros((2, 10), F16)
    given = {"self": a, "mat2": b, "out": out, "cube_math_type": KEEP}
    reason = "its document does not mention an out of another shape"
    assert_beyond_document(opapi, "Matmul", given, reason)
    opapi.call("Matmul", given)
    check(out.reshape(5, 4), a, b, roundings=[F16])
    message = r"out must have the shape \[5,4\] or as many elements but got \[3,7\]"
    assert_refused(opapi, "Matmul", given | {"out": np.zeros((3, 7), F16)}, message, 561103)
    assert_refused(opapi, "Mm", given, r"out must have the shape \[5,4\]")
    for rows, inner in ((0, 6), (5, 0)):
        filled = np.ones((3, 7), F16)
        empty = given | {"self": a[:rows, :inner], "mat2": b[:inner], "out": filled}
        assert_beyond_document(opapi, "Matmul", empty, reason)
        opapi.call("Matmul", empty)
        assert np.all(filled == 0)


def test_matmul_refuses_batches_that_do_not_broadcast(opapi):
    error = refused(opapi, "Matmul", random((2, 3, 4), F16), random((3, 4, 5), F16), np.zeros((2, 3, 5), F16))
    assert "mat2 must broadcast to the batch of self [2,3,4] but got [3,4,5]" in str(error)
    error = refused(
        opapi, "Matmul", np.float16(1)[None][0:1].reshape(()), random((3,), F16), np.zeros((), F16)
    )
    assert "self must have 1 to 6 dimensions but got 0" in str(error)


def test_batch_matmul_broadcasts_one_batch(opapi):
    for left, right in (((3, 5, 7), (3, 7, 2)), ((1, 5, 7), (3, 7, 2)), ((3, 5, 7), (1, 7, 2))):
        a, b, out = random(left, F16), random(right, F16, 1), np.zeros((3, 5, 2), F16)
        call(opapi, "BatchMatMul", a, b, out)
        check(out, a, b, roundings=[F16])
    assert "self must have 3 dimensions" in str(refused(opapi, "BatchMatMul", a[0], b, out))
    opapi.free_tensors()


def test_mv_multiplies_a_transposed_state(opapi):
    s, q, out = random((16, 16), F32), random(16, F32, 1), np.zeros(16, F32)
    call(opapi, "Mv", s.T, q, out, ALLOW, second="vec")
    rounded = (lambda x: x.astype(F16)) if opapi.is_310p else hf32
    check(out, rounded(s.T), rounded(q), roundings=[])
    assert "vec must have the shape [16]" in str(
        refused(opapi, "Mv", s, random(15, F32), out, ALLOW, second="vec")
    )
    assert "vec must be float32" in str(refused(opapi, "Mv", s, q.astype(F16), out, ALLOW, second="vec"))
    opapi.free_tensors()


# ---- FRACTAL_NZ ----------------------------------------------------------------------------------


def nz_count(device, shape, dtype=1):
    count = C.c_uint64()
    array = device.array("Int", shape)
    with device.calls:
        status = device.cann.aclnnCalculateMatmulWeightSizeV2(array, dtype, C.byref(count))
    return status, count.value


def to_nz(weight, *, columns=16):
    """Blocks of 16 rows and `columns` columns; the blocks of a column of blocks follow each other."""
    r, c = (-(-size // unit) for size, unit in zip(weight.shape, (16, columns), strict=True))
    padded = np.zeros((16 * r, columns * c), weight.dtype)
    padded[: weight.shape[0], : weight.shape[1]] = weight
    return padded.reshape(r, 16, c, columns).transpose(2, 0, 1, 3).copy()


def test_weight_size_is_in_elements_of_whole_blocks(opapi):
    assert nz_count(opapi, [510, 510]) == (0, 512 * 512)
    assert nz_count(opapi, [510, 270], dtype=2) == (0, 512 * 288)
    assert nz_count(opapi, [3, 510, 510]) == (0, 3 * 512 * 512)
    assert nz_count(opapi, [510])[0] == INVALID
    assert nz_count(opapi, [0, 16])[0] == INVALID
    assert nz_count(opapi, [16, 16], dtype=0)[0] == INVALID


@pytest.mark.parametrize(("n", "k"), [(16, 16), (40, 48), (17, 33)])
@pytest.mark.parametrize("dtype", [F16, np.int8])
def test_trans_matmul_weight_makes_blocks(opapi, n, k, dtype):
    weight = (random((n, k), F32) * 50).astype(dtype)
    blocks = to_nz(weight, columns=32 // weight.itemsize)
    memory = np.zeros(blocks.size, dtype)
    memory[: n * k] = weight.reshape(-1)
    opapi.call("TransMatmulWeight", {"mm_weight": Stored(memory, 1 if dtype is F16 else 2, (n, k), (k, 1))})
    assert np.array_equal(memory, blocks.reshape(-1))


def test_trans_matmul_weight_refuses_a_short_allocation_and_float32(opapi):
    given = {"mm_weight": Stored(np.zeros(17 * 17, F16), 1, (17, 17), (17, 1))}
    with pytest.raises(
        RefusedPhase, match="must lie inside its allocation of 578 bytes but reaches byte 2048"
    ):
        opapi.call("TransMatmulWeight", given)
    with pytest.raises(RefusedPhase, match="mmWeightRef must be"):
        opapi.call("TransMatmulWeight", {"mm_weight": np.zeros((16, 16), F32)})


def test_trans_matmul_weight_changes_the_format_of_its_tensor(opapi):
    handle, size, executor = opapi.tensor(random((16, 32), F16)), C.c_uint64(), C.c_void_p()
    with opapi.calls:
        status = opapi.cann.aclnnTransMatmulWeightGetWorkspaceSize(
            C.c_void_p(handle), C.byref(size), C.byref(executor)
        )
    found = C.c_int()
    opapi.cann.aclGetFormat(C.c_void_p(handle), C.byref(found))
    assert (status, size.value, found.value) == (0, 1536, NZ)  # 1024 bytes and CANN's padding
    opapi.run("TransMatmulWeight", size.value, executor)
    opapi.free_tensors()


@pytest.mark.parametrize("is_transposed", [True, False])
@pytest.mark.parametrize(("k", "n"), [(16, 32), (48, 40), (33, 17)])
def test_products_read_a_weight_in_blocks(opapi, k, n, is_transposed):
    weight = random((n, k) if is_transposed else (k, n), F16)
    matrix = weight.T if is_transposed else weight
    strides = (1, k) if is_transposed else (n, 1)
    a = random((2, 3, k), F16, 1)
    memory = to_nz(weight)
    for name, left, lead in (("Mm", a[0], ()), ("BatchMatMul", a, (1,)), ("Matmul", a[None, None], (1, 1))):
        out = np.zeros((*left.shape[:-1], n), F16)
        stored = Stored(memory, 1, (*lead, k, n), (*(k * n for _ in lead), *strides), NZ)
        call(opapi, name, left, stored, out)
        check(out, left, matrix, roundings=[F16])


def test_the_stride_of_the_batch_of_a_weight_in_blocks(opapi):
    a, weight, out = random((2, 3, 16), F16), random((32, 16), F16, 1), np.zeros((2, 3, 32), F16)
    call(opapi, "BatchMatMul", a, Stored(to_nz(weight), 1, (1, 16, 32), (7, 1, 16), NZ), out)
    check(out, a, weight.T, roundings=[F16])
    apart = Stored(np.zeros(2048, F16), 1, (2, 16, 32), (1024, 32, 1), NZ)
    text = "mat2 must be contiguous or transposed in its last two dimensions but got the strides [1024,32,1]"
    assert text in str(refused(opapi, "BatchMatMul", a, apart, out))
    opapi.free_tensors()


def test_nz_is_refused_for_other_arguments(opapi):
    a, nz, out = random((16, 16), F16), to_nz(random((16, 16), F16)), np.zeros((16, 16), F16)
    stored = Stored(nz, 1, (16, 16), (16, 1), NZ)
    assert "self must be in a plain format but got aclFormat 29" in str(refused(opapi, "Mm", stored, a, out))
    column = Stored(nz, 1, (16, 1), (1, 1), NZ)
    assert "mat2 must have no 1 in its last two dimensions" in str(
        refused(opapi, "Mm", a, column, out[:, :1])
    )
    if not opapi.is_310p:
        for name, left in (("Mm", a.astype(F32)), ("Matmul", a.astype(F32)), ("Mm", a.astype(BF16))):
            message = (
                "mat2 must be float32, the type of the product, in the format FRACTAL_NZ but got float16"
            )
            assert message in str(refused(opapi, name, left, stored, out))
            call(opapi, name, left, stored, out, FP16)
    wide = Stored(nz, 0, (16, 16), (16, 1), NZ)
    assert "of a dtype of 1 or 2 bytes" in str(refused(opapi, "Mm", a, wide, out))
    opapi.free_tensors()


def test_ger_is_an_outer_product(opapi):
    a, b, out = random(5, F16), random(7, F32, 1), np.zeros((5, 7), F32)
    given = {"self": a, "vec2": b, "out": out}
    if opapi.is_310p:
        assert_beyond_document(opapi, "Ger", given, UNLISTED_CHIP)
    opapi.call("Ger", given)
    assert np.array_equal(out, np.outer(a.astype(F32), b))
    i, j, small = np.array([100, 2], np.int8), np.array([3], np.int8), np.zeros((2, 1), np.int32)
    opapi.call("Ger", {"self": i, "vec2": j, "out": small})
    assert small[:, 0].tolist() == [300 - 256, 6]
    far, wrapped = np.array([2**62 + 1, -1], np.int64), np.zeros((2, 1), np.int64)
    opapi.call("Ger", {"self": far, "vec2": np.array([4]), "out": wrapped})
    assert wrapped[:, 0].tolist() == [4, -4]
    with pytest.raises(RefusedPhase, match="out must have a type to which float32 converts but got int32"):
        opapi.call("Ger", {"self": a, "vec2": b, "out": np.zeros((5, 7), np.int32)})


def given_product(a, b, out, math):
    return {"self": a, "mat2": b, "out": out, "cube_math_type": math}


def test_products_that_only_the_source_accepts_are_reported(opapi_910b):
    a, b, out = random((4, 8), BF16), random((8, 5), F32, 1), np.zeros((4, 5), F32)
    mixed = given_product(a, b, out, KEEP)
    reason = "its document does not support bfloat16 beside another type"
    assert reasons_beyond_document(opapi_910b, "Matmul", mixed) == [reason]
    assert reasons_beyond_document(opapi_910b, "Mm", mixed) == []
    opapi_910b.call("Matmul", mixed)
    check(out, a, b, roundings=[F32])
    low = given_product(a, a.T.copy(), np.zeros((4, 4), BF16), FP16)
    reason = "its document does not support bfloat16 with cubeMathType 2"
    assert reasons_beyond_document(opapi_910b, "Mm", low) == [reason]
    batches = given_product(random((3, 4, 8), F16), random((1, 8, 5), F16), np.zeros((3, 4, 5), F16), KEEP)
    assert reasons_beyond_document(opapi_910b, "BatchMatMul", batches) == []
    reason = "its document does not list cubeMathType 4"
    batches["cube_math_type"] = FP32_ADD
    assert reasons_beyond_document(opapi_910b, "BatchMatMul", batches) == [reason]
    vectors = {"self": np.zeros((3, 4), F32), "vec": np.zeros(4, F32), "out": np.zeros(3, F32)}
    assert reasons_beyond_document(opapi_910b, "Mv", vectors | {"cube_math_type": FP32_ADD}) == [reason]


def test_dot_adds_the_products(opapi):
    for dtype in (F32, F16, np.int8, np.int32, np.uint8):
        a, b = (np.arange(1, 101) % 5).astype(dtype), (np.arange(1, 101) % 3).astype(dtype)
        out = np.zeros((), dtype)
        opapi.call("Dot", {"self": a, "tensor": b, "out": out})
        assert out == np.sum(a.astype(np.int64) * b.astype(np.int64)).astype(dtype)
    given = {"self": np.ones(3, F32), "tensor": np.ones(3, F32), "out": np.zeros((), F32)}
    for change, message in (
        ({"tensor": np.ones(4, F32)}, r"tensor must have the shape \[3\]"),
        ({"tensor": np.ones(3, F16)}, "tensor must be float32"),
        ({"out": np.zeros(1, F32)}, "out must have 0 dimensions"),
    ):
        assert_refused(opapi, "Dot", given | change, message)
    opapi.call("Dot", given | {"self": np.ones(0, F32), "tensor": np.ones(0, F32)})
    assert given["out"] == 0
