"""Sorting and extremes, against torch on the CPU and NumPy."""

import numpy as np
import pytest
from ml_dtypes import bfloat16
from operands import TYPES, assert_refused, assert_same, check_types, prepared, random_of, strided

SORTED = ["float16", "float32", "int8", "int16", "int32", "int64", "uint8"]


def order_of(x, dim, descending):
    """The stable order of torch: equal elements keep their order, ascending or descending."""
    torch = pytest.importorskip("torch")
    return torch.sort(torch.from_numpy(np.ascontiguousarray(x)), stable=True, dim=dim, descending=descending)


@pytest.mark.parametrize("name", SORTED)
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("descending", [True, False])
def test_sort_and_argsort_order_the_elements(opapi, name, dim, descending):
    x = strided(random_of(name, (3, 40, 5)) % 10)
    expected = order_of(x, dim, descending)
    values, indices, order = (
        np.zeros_like(x),
        strided(np.zeros(x.shape, np.int64)),
        np.zeros(x.shape, np.int64),
    )
    given = {"self": x, "dim": dim, "descending": descending}
    opapi.call("Sort", given | {"stable": True, "values_out": values, "indices_out": indices})
    opapi.call("Argsort", given | {"out": order})
    assert_same(values, expected.values.numpy())
    assert_same(indices, expected.indices.numpy())
    assert_same(order, expected.indices.numpy())


def test_a_number_is_its_only_element(opapi):
    x, index, total = np.array(7, np.float32), np.array(9, np.int64), np.array(0, np.float32)
    opapi.call("Argsort", {"self": x, "dim": 0, "descending": False, "out": index})
    opapi.call("Cumsum", {"self": x, "dim": 0, "dtype": 0, "out": total})
    assert (index, total) == (0, 7)


def test_sort_converts_its_values(opapi):
    x, order = np.array([3, 1, 2], np.int16), np.zeros(3, np.int64)
    given = {"self": x, "stable": True, "dim": 0, "descending": False, "indices_out": order}
    types = [*SORTED, "float64", "bool", *([] if opapi.is_310p else ["bfloat16"])]
    for name in types:
        values = np.zeros(3, TYPES[name])
        opapi.call("Sort", given | {"values_out": values})
        assert_same(values, np.array([1, 2, 3]).astype(TYPES[name]))
    assert prepared(opapi, "Sort", given | {"values_out": np.zeros(3, np.float64)})[0] > 0
    for name in ("uint16", "complex64"):
        message = f"valuesOut must be .* but got {name}"
        assert_refused(opapi, "Sort", given | {"values_out": np.zeros(3, TYPES[name])}, message)
    doubles = given | {"self": np.zeros(3, np.float64), "values_out": np.zeros(3, np.float64)}
    assert_refused(opapi, "Sort", doubles, "self must be .* but got float64")


def test_sort_refuses_what_the_documents_exclude(opapi):
    x, order = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.int64)
    given = {"self": x, "dim": 1, "descending": False, "out": order}
    assert_refused(opapi, "Argsort", given | {"dim": 2}, r"dim must be in \[-2, 2\) but got 2")
    assert_refused(opapi, "Argsort", given | {"out": order.T}, r"out must have the shape \[2,3\]")
    assert_refused(opapi, "Argsort", given | {"out": order.astype(np.int32)}, "out must be int64")
    if not opapi.is_310p:
        one = {"self": np.zeros((3, 1), bfloat16), "out": np.zeros((3, 1), np.int64)}
        assert_refused(opapi, "Argsort", given | one, "self must not be bfloat16 with one element")
    check_types(opapi, "Argsort", lambda name: given | {"self": x.astype(TYPES[name])}, SORTED, ("bfloat16",))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [0, 1, 7])
def test_topk_takes_the_first_elements(opapi, largest, k):
    x = strided(random_of("float32", (7, 20)).T)
    expected = order_of(x, 1, largest)
    values, indices = np.zeros((20, k), np.float32), np.zeros((20, k), np.int64)
    given = {"self": x, "k": k, "dim": 1, "largest": largest, "sorted": True}
    opapi.call("Topk", given | {"values_out": values, "indices_out": indices})
    assert_same(values, expected.values.numpy()[:, :k])
    assert_same(indices, expected.indices.numpy()[:, :k])
    given |= {"values_out": values, "indices_out": indices}
    assert_refused(opapi, "Topk", given | {"sorted": False}, "sorted must be true")
    assert_refused(opapi, "Topk", given | {"k": 8}, r"k must be in \[0, 7\] but got 8")


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_arg_extremes_find_the_first_extreme_element(opapi, dim, keeps, index):
    x = strided(random_of("float16", (4, 30, 5), 0, 10))
    for name, arg, find, expected_values in (
        ("MaxDim", "ArgMax", np.argmax, x.max(dim, keepdims=keeps)),
        ("MinDim", "ArgMin", np.argmin, x.min(dim, keepdims=keeps)),
    ):
        expected = find(x, dim, keepdims=keeps).astype(index)
        out, values = np.zeros_like(expected), np.zeros(expected.shape, x.dtype)
        opapi.call(arg, {"self": x, "dim": dim, "keepdim": keeps, "out": out})
        assert_same(out, expected)
        out[...] = 0
        opapi.call(name, {"self": x, "dim": dim, "keepdim": keeps, "out": values, "indices": out})
        assert_same(out, expected)
        assert_same(values, expected_values)


def test_argmax_refuses_what_the_documents_exclude(opapi):
    x, out = np.zeros((2, 3), np.float32), np.zeros(2, np.int32)
    given = {"self": x, "dim": 1, "keepdim": False, "out": out}
    assert_refused(opapi, "ArgMax", given | {"dim": 2}, "dim must be in")
    assert_refused(opapi, "ArgMax", given | {"keepdim": True}, r"out must have the shape \[2,1\]")
    assert_refused(opapi, "ArgMax", given | {"out": out.astype(np.int16)}, "out must be int32 or int64")
    check_types(
        opapi,
        "ArgMax",
        lambda name: given | {"self": x.astype(TYPES[name])},
        [*SORTED, "float64"],
        ("bfloat16",),
    )
    check_types(
        opapi,
        "MaxDim",
        lambda name: {"self": x.astype(TYPES[name]), "dim": 1, "keepdim": False,
                      "out": np.zeros(2, TYPES[name]), "indices": out},
        ["float16", "float32", "int64", "bool"],
        ("bfloat16",),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("op", "name", "rank", "is_refused_on_310p"),
    [
        ("ArgMin", "int32", 7, False),
        ("ArgMin", "int32", 8, True),
        ("ArgMin", "float32", 8, False),
        ("ArgMax", "int32", 8, False),
    ],
)
def test_arg_extremes_of_many_dimensions(opapi, op, name, rank, is_refused_on_310p):
    x, out = np.zeros((1,) * rank, TYPES[name]), np.ones((1,) * (rank - 1), np.int32)
    given = {"self": x, "dim": 0, "keepdim": False, "out": out}
    if opapi.is_310p and is_refused_on_310p:
        message = "self must have at most 7 dimensions for an integer type on this chip but got 8"
        assert_refused(opapi, op, given, message)
    else:
        opapi.call(op, given)
        assert np.all(out == 0)


@pytest.mark.parametrize("name", [*SORTED, "float64", "bool"])
def test_max_and_min_of_all_elements(opapi, name):
    x = strided(random_of(name, (3, 40)))
    for op, expected in (("Max", x.max()), ("Min", x.min())):
        for shape in ((), (1,)):
            out = np.zeros(shape, x.dtype)
            opapi.call(op, {"self": x, "out": out})
            assert out == expected


def test_a_nan_is_greater_than_every_number(opapi):
    x = np.array([[1, np.nan, 3], [np.nan, np.inf, 0]], np.float32)
    out, order = np.zeros(2, np.int64), np.zeros(x.shape, np.int64)
    opapi.call("ArgMax", {"self": x, "dim": 1, "keepdim": False, "out": out})
    opapi.call("Argsort", {"self": x, "dim": 1, "descending": False, "out": order})
    assert out.tolist() == [1, 0]
    opapi.call("ArgMin", {"self": x, "dim": 1, "keepdim": False, "out": out})
    assert out.tolist() == [1, 0]
    assert order.tolist() == [[0, 2, 1], [2, 1, 0]]
    for op in ("Max", "Min"):
        out = np.zeros(1, np.float32)
        opapi.call(op, {"self": x, "out": out})
        assert np.isnan(out)
