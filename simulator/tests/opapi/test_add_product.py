"""Addmm and Baddbmm of libopapi's stand-ins against float64, with the roundings of each step."""

import ml_dtypes
import numpy as np
import pytest
from aclnn import RefusedPhase
from operands import reasons_beyond_document

F16, F32, BF16 = np.float16, np.float32, ml_dtypes.bfloat16
KEEP, ALLOW, FP16, HF32, FP32_ADD = range(5)
ROUNDOFF = {F16: 2.0**-11, BF16: 2.0**-8, F32: 2.0**-24}  # relative error of one rounding


def random(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def call(device, name, self, first, second, out, math=KEEP, *, beta=1.0, alpha=1.0):
    names = ("batch1", "batch2") if "bmm" in name else ("mat1", "mat2")
    given = {"self": self, names[0]: first, names[1]: second, "out": out, "cube_math_type": math}
    given |= {"beta": np.float64(beta), "alpha": np.float64(alpha)}
    device.call(name, given)


def check(out, self, first, second, *, beta=1.0, alpha=1.0, product, scaled, total):
    """`product`, `scaled` and `total` are the types of the product, beta * self and the sum."""
    p = first.astype(np.float64) @ second.astype(np.float64)
    size = np.abs(first).astype(np.float64) @ np.abs(second).astype(np.float64)
    s = np.broadcast_to(self.astype(np.float64), out.shape) * beta
    expected = alpha * p + s
    bound = abs(alpha) * ((first.shape[-1] + 2) * 2.0**-24 * size + np.abs(p) * 1.01 * ROUNDOFF[product])
    bound = bound + np.abs(s) * 1.01 * (ROUNDOFF[scaled] + 2.0**-23)
    bound = bound + np.abs(expected) * 1.01 * (ROUNDOFF[total] + ROUNDOFF[out.dtype.type]) + 2.0**-22
    assert np.all(np.abs(out.astype(np.float64) - expected) <= bound)


@pytest.mark.parametrize("shape", [(5, 7), (1, 7), (7,), (5, 1), (1,)])
@pytest.mark.parametrize(("k", "beta", "alpha"), [(40, 1.0, 1.0), (40, 0.5, 2.0), (1, 0.5, 2.0)])
def test_addmm_broadcasts_self(opapi, shape, k, beta, alpha):
    self, a, b, out = (
        random(shape, F16),
        random((5, k), F16, 1),
        random((k, 7), F16, 2),
        np.zeros((5, 7), F16),
    )
    factors = {"beta": beta, "alpha": alpha}
    call(opapi, "Addmm", self, a, b, out, **factors)
    check(out, self, a, b, product=F16, scaled=F16, total=F16, **factors)


def test_a_bias_of_one_row_is_added_before_the_rounding_on_910b(opapi_910b):
    # With one rounding, 2048 + 0.5 + 1 becomes 2050. With a rounding of the product, 2048.5 becomes 2048, and
    # 2048 + 1 becomes 2048.
    a, b = np.array([[2048, 1]], F16), np.array([[1], [0.5]], F16)
    out, one = np.zeros((1, 1), F16), np.ones((1, 1), F16)
    call(opapi_910b, "Addmm", one, a, b, out, ALLOW)
    assert out == 2050
    two, rows = np.zeros((2, 1), F16), np.repeat(a, 2, axis=0)
    call(opapi_910b, "Addmm", np.ones((2, 1), F16), rows, b, two, ALLOW)
    assert np.all(two == 2048)
    call(opapi_910b, "Addmm", np.ones((2, 1), F16), rows, b, two, KEEP)  # keeps the product in float32
    assert np.all(two == 2050)


def test_beta_zero_ignores_self_and_alpha_zero_ignores_the_product(opapi):
    a, b, out = random((5, 40), F16, 1), random((40, 7), F16, 2), np.zeros((5, 7), F16)
    nan = np.full((5, 7), np.nan, F16)
    call(opapi, "Addmm", nan, a, b, out, beta=0, alpha=2)
    check(out, np.zeros(1), a, b, alpha=2, product=F16, scaled=F16, total=F16)
    call(opapi, "Addmm", a[:, :7], nan[:, :1], b[:1], out, beta=2, alpha=0)
    assert np.array_equal(out, 2 * a[:, :7])
    call(opapi, "Addmm", a[:, :7], np.zeros((5, 0), F16), np.zeros((0, 7), F16), out, beta=2)
    assert np.array_equal(out, 2 * a[:, :7])


def test_self_of_16_bits_beside_float32_keeps_its_type(opapi_910b):
    """beta * self is rounded to float16: only factors of 16 bits widen it."""
    self, a, b, out = (
        np.full((1, 1), 3, F16),
        np.zeros((1, 4), F32),
        np.zeros((4, 1), F32),
        np.zeros((1, 1), F32),
    )
    call(opapi_910b, "Addmm", self, a, b, out, beta=0.1)
    assert out == F32(F16(F32(0.1) * 3)) != F32(0.1) * 3


def test_float32_and_bfloat16_on_910b(opapi_910b):
    for dtype, math, product in ((F32, KEEP, F32), (BF16, KEEP, F32), (BF16, ALLOW, BF16)):
        self, a, b = random((5, 7), dtype), random((5, 40), dtype, 1), random((40, 7), dtype, 2)
        out = np.zeros((5, 7), dtype)
        call(opapi_910b, "Addmm", self, a, b, out, math, beta=0.5, alpha=3)
        check(out, self, a, b, beta=0.5, alpha=3, product=product, scaled=dtype, total=product)


@pytest.mark.parametrize("shape", [(3, 5, 7), (1, 5, 7), (5, 7), (3, 1, 1), ()])
def test_baddbmm_broadcasts_self_and_the_second_batch(opapi, shape):
    self, a, out = random(shape, F16), random((3, 5, 20), F16, 1), np.zeros((3, 5, 7), F16)
    for batches in (3, 1):
        b = random((batches, 20, 7), F16, 2)
        call(opapi, "Baddbmm", self, a, b, out, beta=0.5, alpha=2)
        check(out, self, a, b, beta=0.5, alpha=2, product=F16, scaled=F16, total=F16)


@pytest.mark.parametrize(("beta", "alpha"), [(1.0, 1.0), (0.5, 2.0), (0.0, 2.0)])
def test_a_product_of_no_columns_is_zero(opapi, beta, alpha):
    self, first, second = random((3, 5, 7), F16), np.zeros((3, 5, 0), F16), np.zeros((3, 0, 7), F16)
    out = np.full((3, 5, 7), np.nan, F16)
    if not beta:
        self[0] = np.nan
    call(opapi, "Baddbmm", self, first, second, out, beta=beta, alpha=alpha)
    assert np.array_equal(out, self * F16(beta) if beta else np.zeros_like(self))


def test_a_product_of_no_columns_with_float32_sums_is_not_simulated(opapi_910b):
    self, first, second = np.zeros((3, 5, 7), F32), np.zeros((3, 5, 0), F16), np.zeros((3, 0, 7), F16)
    for out, math in ((self, KEEP), (self.astype(F16), FP32_ADD)):
        with pytest.raises(
            RefusedPhase, match="a product of no columns with float32 sums is not simul"
        ) as error:
            call(opapi_910b, "Baddbmm", self, first, second, out, math)
        assert error.value.status == 200001
        opapi_910b.free_tensors()


def test_in_place_forms(opapi):
    for name, lead in (("InplaceAddmm", ()), ("InplaceBaddbmm", (2,))):
        self, a, b = (
            random((*lead, 5, 7), F16),
            random((*lead, 5, 20), F16, 1),
            random((*lead, 20, 7), F16, 2),
        )
        names = ("batch1", "batch2") if lead else ("mat1", "mat2")
        out = self.copy()
        given = {"self": out, names[0]: a, names[1]: b, "beta": np.float32(2), "alpha": np.int64(3)}
        opapi.call(name, given | {"cube_math_type": KEEP})
        check(out, self, a, b, beta=2, alpha=3, product=F16, scaled=F16, total=F16)


def test_refusals(opapi):
    self, a, b, out = random((5, 7), F16), random((5, 4), F16), random((4, 7), F16), np.zeros((5, 7), F16)
    for name, arguments, text in (
        ("Addmm", (None, a, b, out), "self must not be null"),
        ("Addmm", (self, a, b, None), "out must not be null"),
        ("Addmm", (self[:, :3], a, b, out), "self must broadcast to [5,7] but got [5,3]"),
        ("Addmm", (self[None], a, b, out), "self must have 1 to 2 dimensions but got 3"),
        ("Addmm", (self, a[:, :3], b, out), "mat2 must have 3 rows but got 4"),
        ("Addmm", (self, a, b, out[:4]), "out must have the shape [5,7] but got [4,7]"),
        ("Addmm", (self.astype(np.int32), a, b, out), "self must be float32"),
        ("Addmm", (self, a, b, out, 5), "cubeMathType must be in [0,"),
        ("Baddbmm", (self, a, b, out), "batch1 must have 3 dimensions"),
        (
            "Baddbmm",
            (self, a[None], np.stack([b, b]), out[None]),
            "batch2 must have the batch size 1 but got 2",
        ),
        (
            "Baddbmm",
            (self[:1], a[None, :0], b[None], out[None, :0]),
            "self must be empty, as the product but got [1,7]",
        ),
        ("Baddbmm", (self[:0], a[None, :1], b[None], out[None, :1]), "self must have elements, as the"),
    ):
        with pytest.raises(RefusedPhase) as caught:
            call(opapi, name, *arguments)
        assert text in str(caught.value)
        opapi.free_tensors()
    given = {"self": self[:1].copy(), "mat1": a, "mat2": b, "beta": np.float32(2), "alpha": np.float32(3)}
    with pytest.raises(RefusedPhase, match="selfRef must have the shape"):
        opapi.call("InplaceAddmm", given | {"cube_math_type": KEEP})
    with pytest.raises(RefusedPhase, match="alpha must be"):
        opapi.call("InplaceAddmm", given | {"alpha": np.complex64(1), "cube_math_type": KEEP})


ONE_TYPE = "its document requires one type for self, batch1, batch2 and out"


@pytest.mark.parametrize(
    ("name", "types", "reasons"),
    [
        ("Baddbmm", (F16, F16, F16, F16), []),
        ("Baddbmm", (F32, F16, F16, F32), []),
        ("Baddbmm", (F16, F16, F16, F32), [ONE_TYPE]),
        ("Baddbmm", (F16, F16, F32, F16), [ONE_TYPE]),
        ("Baddbmm", (F32, BF16, F32, F32), [ONE_TYPE]),
        ("InplaceBaddbmm", (F16, F32, F32, None), [ONE_TYPE]),
        ("InplaceBaddbmm", (F16, F16, F16, None), []),
        ("Addmm", (F16, F16, F16, F16), []),
        ("Addmm", (F16, F16, F16, F32), ["its document requires the common type of self and mat2 for out"]),
        ("Addmm", (F32, F16, F16, F16), ["its document requires the common type of self and mat2 for out"]),
        ("InplaceAddmm", (F16, F16, F32, None), []),  # its document has no rule for the type of the result
    ],
)
def test_types_beyond_the_document_are_reported(opapi_910b, name, types, reasons):
    lead = (2,) if "bmm" in name else ()
    names = ("batch1", "batch2") if lead else ("mat1", "mat2")
    shapes = ((*lead, 5, 7), (*lead, 5, 4), (*lead, 4, 7), (*lead, 5, 7))
    given = {
        key: np.zeros(shape, dtype)
        for key, shape, dtype in zip(("self", *names, "out"), shapes, types, strict=True)
        if dtype
    }
    factors = {"beta": np.float32(1), "alpha": np.float32(1), "cube_math_type": KEEP}
    assert reasons_beyond_document(opapi_910b, name, given | factors) == reasons


def test_a_number_as_self_is_reported(opapi_910b):
    given = {
        "self": np.zeros((), F16),
        "batch1": np.zeros((2, 5, 4), F16),
        "batch2": np.zeros((2, 4, 7), F16),
    }
    given |= {"beta": np.float32(1), "alpha": np.float32(1), "cube_math_type": KEEP}
    reasons = reasons_beyond_document(opapi_910b, "Baddbmm", given | {"out": np.zeros((2, 5, 7), F16)})
    assert reasons == ["its document requires 1 to 3 dimensions for self"]
