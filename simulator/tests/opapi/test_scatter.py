"""Stand-ins with an index for each element or slice, against NumPy."""

import numpy as np
import pytest
from aclnn import RefusedPhase
from operands import (
    TYPES,
    UNLISTED_CHIP,
    assert_beyond_document,
    assert_refused,
    assert_same,
    check_types,
    random_of,
    strided,
)

REAL = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"]


def index_of(shape, size, seed=0):
    return strided(np.random.default_rng(seed).integers(0, size, shape).astype(np.int64))


@pytest.mark.parametrize("name", [*REAL, "bfloat16", "uint64"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gather_takes_elements_along_a_dimension(opapi_910b, name, dim):
    x = strided(random_of(name, (3, 4, 5)))
    index = index_of((3, 4, 5), x.shape[dim]) - x.shape[dim] * np.arange(2).repeat(30).reshape(3, 4, 5)
    out = strided(np.zeros((3, 4, 5), x.dtype))
    opapi_910b.call("Gather", {"self": x, "dim": dim, "index": index, "out": out})
    assert_same(out, np.take_along_axis(x, index % x.shape[dim], dim))


def test_gather_may_have_fewer_indices_than_self(opapi_910b):
    x, index = random_of("float32", (3, 4)), np.array([[2, 0, 1]], np.int32)
    out = np.zeros((1, 3), np.float32)
    opapi_910b.call("Gather", {"self": x, "dim": 0, "index": index, "out": out})
    assert_same(out, np.take_along_axis(x[:, :3], index, 0))


def test_gather_checks_its_arguments(opapi):
    x, index = np.zeros((3, 4), np.float32), np.zeros((3, 4), np.int64)
    given = {"self": x, "dim": 0, "index": index, "out": x.copy()}
    if opapi.is_310p:
        assert_beyond_document(opapi, "Gather", given, UNLISTED_CHIP)
    for change, message in (
        ({"dim": 2}, "dim must be in"),
        ({"out": np.zeros((3, 3), np.float32)}, r"out must have the shape \[3,4\]"),
        ({"index": index[0], "out": x[0].copy()}, "index must have 2 dimensions but got 1"),
        (
            {"index": np.zeros((3, 5), np.int64), "out": np.zeros((3, 5), np.float32)},
            "index must have at most 4",
        ),
    ):
        assert_refused(opapi, "Gather", given | change, message)
    check_types(
        opapi,
        "Gather",
        lambda name: given | {"self": x.astype(TYPES[name]), "out": x.astype(TYPES[name])},
        [*REAL, "uint16", "uint32", "uint64"],
        ("bfloat16",),
        is_310p_unlisted=True,
    )


@pytest.mark.parametrize("bad", [3, -4])
def test_an_index_out_of_range_fails(opapi_910b, bad):
    x, index = random_of("float32", (3, 2)), np.array([[0, bad]], np.int64)
    for op, given in (
        ("Gather", {"self": x, "index": index, "dim": 0, "out": np.zeros((1, 2), np.float32)}),
        ("InplaceScatter", {"self": x, "index": index, "dim": 0, "src": x.copy(), "reduce": 0}),
    ):
        with pytest.raises(
            RefusedPhase, match=rf"aclnn{op}: index must be in \[0, 3\) but got {bad} in element 1"
        ):
            opapi_910b.call(op, given)
        opapi_910b.free_tensors()


def test_the_only_index_of_a_number_is_0(opapi_910b):
    given = {"self": np.array(7, np.float32), "dim": 0, "out": np.array(0, np.float32)}
    opapi_910b.call("Gather", given | {"index": np.array(-1)})
    assert given["out"] == 7
    with pytest.raises(RefusedPhase, match=r"index must be in \[0, 1\) but got 1 in element 0"):
        opapi_910b.call("Gather", given | {"index": np.array(1)})
    opapi_910b.free_tensors()


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int8", "complex128"])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("reduce", [0, 1, 2])
def test_scatter_writes_adds_or_multiplies_elements(opapi_910b, name, dim, reduce):
    x, src = random_of(name, (3, 4, 5), 0, 5), strided(random_of(name, (3, 4, 6), 1, 3))
    index = strided(np.argsort(np.random.default_rng(0).random((3, 4, 5)), dim))
    part, expected, owner, out = src[:, :, :5], x.copy(), strided(x), np.zeros_like(x)
    old = np.take_along_axis(x, index, dim)
    np.put_along_axis(expected, index, (part, old + part, old * part)[reduce], dim)
    given = {"self": owner, "dim": dim, "index": index, "src": src, "reduce": reduce}
    opapi_910b.call("Scatter", given | {"out": out})
    assert_same(out, expected)
    assert_same(owner, x)
    opapi_910b.call("InplaceScatter", given)
    assert_same(owner, expected)


def test_scatter_adds_each_element_of_a_position(opapi_910b):
    x, index = np.zeros((1, 2), np.float16), np.array([[1, 1, 1]], np.int32)
    given = {"self": x, "dim": 1, "index": index, "src": np.array([[1, 2, 3]], np.float16), "reduce": 1}
    opapi_910b.call("InplaceScatter", given)
    assert x.tolist() == [[0, 6]]


def test_scatter_checks_its_arguments(opapi):
    x, index = np.zeros((3, 4), np.float32), np.zeros((3, 4), np.int64)
    given = {"self": x, "dim": 0, "index": index, "src": x.copy(), "reduce": 0}
    if opapi.is_310p:
        assert_beyond_document(opapi, "InplaceScatter", given, UNLISTED_CHIP)
    for change, message in (
        ({"reduce": 3}, "reduce must be 0, 1 or 2 but got 3"),
        ({"src": x[:2]}, "index must have at most 2 elements in dimension 0"),
        ({"src": x[0]}, "src must have 2 dimensions but got 1"),
        ({"src": x.astype(np.float16)}, "src must be float32"),
        (
            {"index": np.zeros((3, 5), np.int64), "src": np.zeros((3, 5), np.float32)},
            "index must have at most 4",
        ),
    ):
        assert_refused(opapi, "InplaceScatter", given | change, message)


@pytest.mark.parametrize("axis", [1, -2, -1])
def test_scatter_update_writes_a_range_of_each_batch(opapi_910b, axis):
    data, indices = random_of("int32", (3, 4, 6, 5)), np.array([2, 0], np.int32)
    length = [2, 4, 6, 5]
    length[axis] = 2
    updates = strided(random_of("int32", length, 1))
    expected, owner = data.copy(), strided(data)
    for i, start in enumerate(indices):
        np.moveaxis(expected[i], axis - (axis > 0), 0)[start : start + 2] = np.moveaxis(
            updates[i], axis - (axis > 0), 0
        )
    given = {"data": owner, "indices": indices, "updates": updates, "axis": axis}
    opapi_910b.call("InplaceScatterUpdate", given)
    assert_same(owner, expected)


def test_scatter_update_checks_its_arguments(opapi):
    data, updates = np.zeros((3, 4), np.float32), np.zeros((2, 2), np.float32)
    given = {"data": data, "indices": np.zeros(2, np.int64), "updates": updates, "axis": 1}
    op = "InplaceScatterUpdate"
    if opapi.is_310p:  # whose kernel has no int32
        assert_beyond_document(opapi, op, given, UNLISTED_CHIP)
        integers = given | {"data": data.astype(np.int32), "updates": updates.astype(np.int32)}
        assert_refused(opapi, op, integers, "data must be .* but got int32")
    for change, message in (
        ({"axis": 0}, "axis must not be 0 but got 0"),
        ({"indices": np.zeros(3, np.int64)}, "updates must have 3 slices in dimension 0 but got 2"),
        ({"updates": np.zeros((2, 5), np.float32)}, r"updates must fit the shape \[3,4\]"),
        ({"indices": np.zeros((2, 2), np.int64)}, "indices must have 0 to 1 dimensions but got 2"),
        ({"updates": updates.astype(np.float16)}, "updates must be float32"),
    ):
        assert_refused(opapi, op, given | change, message)
    with pytest.raises(RefusedPhase, match=r"indices must be in \[0, 3\) but got 3 in element 0"):
        opapi.call(op, given | {"indices": np.array([3, 0], np.int64)})
    opapi.free_tensors()
