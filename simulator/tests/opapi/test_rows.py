"""Rows and indices: stand-ins that gather, scatter, fill and repeat slices, against NumPy."""

import numpy as np
import pytest
from aclnn import RefusedPhase
from operands import (
    HALF_AND_FLOAT,
    INVALID,
    NULL,
    NUMBERS,
    TYPES,
    UNLISTED_CHIP,
    WIDE_UNSIGNED,
    assert_beyond_document,
    assert_refused,
    assert_same,
    check_types,
    random_of,
    reasons_beyond_document,
    strided,
)

INNER_NULLPTR = 561103  # ACLNN_ERR_INNER_NULLPTR
INDEX = np.array([2, 0, 2, 1], np.int32)


def fails(device, op, given, message):
    """The body fails with a message, and the output keeps its values."""
    outputs = [array.copy() for array in given.values() if isinstance(array, np.ndarray)]
    with pytest.raises(RefusedPhase, match=message):
        device.call(op, given)
    device.free_tensors()
    for before, after in zip(outputs, (a for a in given.values() if isinstance(a, np.ndarray)), strict=True):
        assert_same(after, before)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_index_select_copies_slices(opapi_910b, name, dim):
    x = strided(random_of(name, (3, 4, 5)))
    out = np.zeros_like(np.take(x, INDEX, dim))
    for index in (INDEX, INDEX.astype(np.int64)):
        opapi_910b.call("IndexSelect", {"self": x, "dim": dim, "index": index, "out": out})
        assert_same(out, np.take(x, INDEX, dim))


def test_index_select_keeps_the_bits_of_nans(opapi):
    x = np.array([[0x7FA00001, 0xFFC12345]], np.uint32).view(np.float32)
    out = np.zeros((2, 2), np.float32)
    opapi.call("IndexSelect", {"self": x, "dim": 0, "index": np.zeros(2, np.int32), "out": out})
    assert_same(out, np.repeat(x, 2, 0))


def test_index_select_of_a_scalar_takes_one_index(opapi):
    x, out = np.array(7, np.int64), np.array(0, np.int64)
    opapi.call("IndexSelect", {"self": x, "dim": 0, "index": np.zeros(1, np.int64), "out": out})
    assert out == 7
    assert_refused(
        opapi,
        "IndexSelect",
        {"self": x, "dim": 0, "index": np.zeros(2, np.int64), "out": out},
        r"shape \[1\]",
    )


def test_index_select_of_an_empty_tensor_writes_nothing(opapi):
    x, out = np.zeros((0, 3), np.float32), np.ones((0, 3), np.float32)
    opapi.call("IndexSelect", {"self": x, "dim": 0, "index": np.zeros(0, np.int32), "out": out})


def test_index_select_checks_its_arguments(opapi):
    x, out = np.zeros((3, 4), np.float32), np.zeros((4, 4), np.float32)
    given = {"self": x, "dim": 0, "index": INDEX, "out": out}
    for change, message in (
        ({"dim": 2}, r"dim must be in \[-2, 2\) but got 2"),
        ({"index": INDEX.reshape(2, 2)}, "index must have 0 to 1 dimensions but got 2"),
        ({"index": np.zeros(4, np.float32)}, "index must be int32 or int64"),
        ({"out": np.zeros((3, 4), np.float32)}, r"out must have the shape \[4,4\]"),
        ({"out": np.zeros((4, 4), np.float16)}, "out must be float32"),
    ):
        assert_refused(opapi, "IndexSelect", given | change, message)
    for name in ("self", "index", "out"):
        assert_refused(opapi, "IndexSelect", given | {name: None}, f"{name} must not be null", NULL)
    check_types(
        opapi,
        "IndexSelect",
        lambda name: given | {"self": x.astype(TYPES[name]), "out": out.astype(TYPES[name])},
        NUMBERS + WIDE_UNSIGNED,
        ("bfloat16",),
    )


@pytest.mark.parametrize("bad", [3, -1])
def test_an_index_out_of_range_fails_and_names_function_index_and_limit(opapi, bad):
    x, out = random_of("float32", (3, 4)), np.zeros((2, 4), np.float32)
    index = np.array([0, bad], np.int64)
    message = rf"aclnn{{}}: {{}} must be in \[0, 3\) but got {bad} in element 1\."
    for op in ("IndexSelect", "GatherV2"):
        given = {"self": x, "dim": 0, "index": index, "out": out}
        fails(opapi, op, given, message.format(op, "index"))
    given = {"weight": x, "indices": index, "out": out}
    fails(opapi, "Embedding", given, message.format("Embedding", "indices"))
    given = {"self": x, "dim": 0, "index": index, "source": out}
    fails(opapi, "InplaceIndexCopy", given, message.format("InplaceIndexCopy", "index"))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gather_v2_takes_an_index_of_any_rank(opapi, dim):
    x, index = strided(random_of("float16", (3, 4, 5))), strided(INDEX.reshape(2, 2))
    out = np.zeros_like(np.take(x, index, dim))
    opapi.call("GatherV2", {"self": x, "dim": dim, "index": index, "out": out})
    assert_same(out, np.take(x, index, dim))


def test_gather_v2_checks_its_arguments(opapi):
    x, out = np.zeros((3, 4), np.float32), np.zeros((4, 4), np.float32)
    given = {"self": x, "dim": 0, "index": INDEX, "out": out}
    for change, message in (
        ({"out": np.zeros((2, 2, 4), np.float32)}, r"out must have the shape \[4,4\]"),
        ({"self": np.array(0, np.float32)}, "self must have 1 to 8 dimensions but got 0"),
    ):
        assert_refused(opapi, "GatherV2", given | change, message)
    check_types(
        opapi,
        "GatherV2",
        lambda name: given | {"self": x.astype(TYPES[name]), "out": out.astype(TYPES[name])},
        NUMBERS,
        ("bfloat16",),
    )


def test_views_and_ranks_that_only_the_sources_accept(opapi):
    x = random_of("float32", (3, 4))
    for op, index in (("IndexSelect", strided(INDEX)), ("GatherV2", INDEX)):
        given = {"self": x, "dim": 0, "index": index, "out": strided(np.zeros((4, 4), np.float32))}
        assert_beyond_document(opapi, op, given, "its document requires a contiguous out")
        opapi.call(op, given)
        assert_same(np.ascontiguousarray(given["out"]), x[INDEX])
    given = {"self": x, "dim": 1, "index": np.array(2, np.int64), "out": np.zeros((3, 1), np.float32)}
    assert_beyond_document(opapi, "GatherV2", given, "its document does not list an index without dimensions")
    opapi.call("GatherV2", given)
    assert_same(given["out"], x[:, 2:3])


def test_embedding_takes_rows_of_a_matrix(opapi):
    weight, indices = strided(random_of("float32", (3, 5))), INDEX.reshape(2, 2)
    out = strided(np.zeros((2, 2, 5), np.float32))
    opapi.call("Embedding", {"weight": weight, "indices": indices, "out": out})
    assert_same(out, weight[indices])


@pytest.mark.parametrize(
    ("weight", "out", "message", "status"),
    [
        ((5,), (2, 2, 5), "weight must have 2 dimensions but got 1", INNER_NULLPTR),
        ((3, 5, 2), (2, 2, 5), "weight must have 2 dimensions but got 3", INNER_NULLPTR),
        ((3, 5), (2, 2, 4), "the last dimension of out must be 5 but got 4", INNER_NULLPTR),
        ((3, 5), (4, 5), r"out must have the dimensions of indices, \[2,2\], and one more", INVALID),
        ((3, 5), (2, 3, 5), r"out must have the dimensions of indices, \[2,2\], and one more", INVALID),
    ],
)
def test_embedding_checks_its_arguments(opapi, weight, out, message, status):
    given = {"weight": np.ones(weight, np.float32), "indices": INDEX.reshape(2, 2)}
    assert_refused(opapi, "Embedding", given | {"out": np.ones(out, np.float32)}, message, status)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("name", ["float32", "bfloat16", "int8", "complex128"])
def test_index_copy_writes_slices(opapi_910b, name, dim):
    x, index = random_of(name, (3, 4, 5)), np.array([2, 0], np.int64)
    source = strided(np.take(random_of(name, (3, 4, 5), 1), [0, 1], dim))
    expected, out, owner = x.copy(), np.zeros_like(x), strided(x)
    np.moveaxis(expected, dim, 0)[index] = np.moveaxis(source, dim, 0)
    given = {"self": owner, "dim": dim, "index": index, "source": source}
    opapi_910b.call("IndexCopy", given | {"out": out})
    assert_same(out, expected)
    assert_same(owner, x)
    opapi_910b.call("InplaceIndexCopy", given)
    assert_same(owner, expected)


def test_index_copy_checks_its_arguments(opapi):
    x, source = np.zeros((3, 4), np.float32), np.zeros((4, 4), np.float32)
    given = {"self": x, "dim": 0, "index": INDEX, "source": source}
    if opapi.is_310p:
        assert_beyond_document(opapi, "InplaceIndexCopy", given, UNLISTED_CHIP)
    bools = given | {"self": x.astype(np.bool_), "source": source.astype(np.bool_)}  # no kernel has this type
    assert_refused(opapi, "InplaceIndexCopy", bools, "selfRef must be .* but got bool")
    for change, message in (
        ({"dim": -3}, "dim must be in"),
        ({"source": source[:3]}, r"source must have the shape \[4,4\]"),
        ({"source": source.astype(np.float16)}, "source must be float32"),
        ({"index": INDEX.reshape(2, 2)}, "index must have 0 to 1 dimensions"),
        ({"source": np.array(0, np.float32)}, "index must have 1 element but got 4"),
    ):
        assert_refused(opapi, "InplaceIndexCopy", given | change, message)
    assert_refused(opapi, "InplaceIndexCopy", given | {"source": None}, "source must not be null", NULL)


def test_index_copy_without_indices_writes_nothing(opapi):
    """Not even out: aclnn_index_copy.cpp returns before."""
    x, source, out = (
        random_of("float32", (3, 4)),
        np.zeros((0, 4), np.float32),
        np.full((3, 4), 7, np.float32),
    )
    given = {"self": x, "dim": 0, "index": np.zeros(0, np.int64), "source": source}
    opapi.call("IndexCopy", given | {"out": out})
    assert np.all(out == 7)
    opapi.call("InplaceIndexCopy", given)
    assert_same(x, random_of("float32", (3, 4)))


def test_index_copy_of_a_scalar_has_one_element(opapi):
    """source and index have one element. A self of two dimensions has no source without dimensions."""
    for shape, of_source, index in (
        ((), (), (1,)),
        ((1,), (), ()),
        ((), (1,), ()),
        ((3,), (), (1,)),
        ((), (1, 1), (1,)),
    ):
        x, source = np.zeros(shape, np.float32), np.ones(of_source, np.float32)
        opapi.call(
            "InplaceIndexCopy", {"self": x, "dim": 0, "index": np.zeros(index, np.int32), "source": source}
        )
        assert x.ravel().tolist() == [1, 0, 0][: x.size]
    for shape, of_source, index, message in (
        ((), (), (2,), "index must have 1 element but got 2"),
        ((), (), (0,), "index must have 1 element but got 0"),
        ((), (2,), (1,), "source must have 1 element but got 2"),
        ((1, 1), (), (1,), r"source must have the rank of selfRef but got \[\]"),
    ):
        given = {"self": np.zeros(shape, np.float32), "dim": 0, "index": np.zeros(index, np.int32)}
        refused = given | {"source": np.zeros(of_source, np.float32)}
        assert_refused(opapi, "InplaceIndexCopy", refused, message)


@pytest.mark.parametrize("name", ["float16", "float32", "int32", "int64", "bool", "bfloat16"])
def test_index_fill_tensor_sets_slices(opapi_910b, name):
    x = random_of(name, (3, 4))
    for dim in (0, 1, -1):
        expected, owner, out = x.copy(), strided(x), strided(np.zeros_like(x))
        np.moveaxis(expected, dim, 0)[[2, 0]] = TYPES[name](-1.0)
        given = {
            "self": owner,
            "dim": dim,
            "index": [2, -np.moveaxis(x, dim, 0).shape[0]],
            "value": np.float32(-1),
        }
        opapi_910b.call("IndexFillTensor", given | {"out": out})
        assert_same(out, expected)
        assert_same(owner, x)
        opapi_910b.call("InplaceIndexFillTensor", given)
        assert_same(owner, expected)


def test_index_fill_tensor_checks_its_arguments(opapi):
    given = {"self": np.zeros((3, 4), np.float32), "dim": 1, "index": [0, 2], "value": np.float32(-1)}
    if opapi.is_310p:
        assert_beyond_document(opapi, "InplaceIndexFillTensor", given, UNLISTED_CHIP)
    for change, message in (
        ({"index": [0, 4]}, r"index must be in \[-4, 4\) but got 4"),
        ({"dim": 2}, "dim must be in"),
        ({"value": np.complex64(1)}, "value must be .* but got complex64"),
    ):
        assert_refused(opapi, "InplaceIndexFillTensor", given | change, message)

    def value_of(name):
        """A value of self's type. The source refuses complex values for another reason."""
        return np.float32(0) if name.startswith("complex") else TYPES[name](0)

    for name in ("self", "index", "value"):
        assert_refused(opapi, "InplaceIndexFillTensor", given | {name: None}, "must not be null", NULL)
    check_types(
        opapi,
        "InplaceIndexFillTensor",
        lambda name: given | {"self": np.zeros((3, 4), TYPES[name]), "value": value_of(name)},
        [*HALF_AND_FLOAT, "int32", "int64", "bool"],
        ("bfloat16",),
        is_310p_unlisted=True,
    )


def test_index_fill_tensor_of_a_scalar_has_no_negative_index(opapi):
    """The source adds the size of a dimension that does not exist to -1."""
    given = {"self": np.array(5, np.float32), "dim": 0, "index": [-1], "value": np.float32(7)}
    message = r"index must be in \[0, 1\) but got -1"
    assert_refused(opapi, "InplaceIndexFillTensor", given, message)
    assert_refused(opapi, "IndexFillTensor", given | {"out": np.array(5, np.float32)}, message)
    opapi.call("InplaceIndexFillTensor", given | {"index": [0]})
    assert given["self"] == 7


def test_index_fill_tensor_converts_a_value_of_another_type(opapi):
    """Only the source does; the document requires the type of self."""
    given = {"self": np.zeros(3, np.float16), "dim": 0, "index": [1]}
    beyond = [UNLISTED_CHIP] if opapi.is_310p else []
    another = "its document requires the type of self for value"
    for value, reasons in ((np.float16(2), []), (np.float32(2), [another]), (np.uint16(2), [another])):
        found = reasons_beyond_document(opapi, "InplaceIndexFillTensor", given | {"value": value})
        assert sorted(found) == sorted(reasons + beyond)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_repeat_interleave_repeats_each_slice(opapi_910b, dim):
    x = strided(random_of("bfloat16", (2, 3, 4)))
    expected = np.repeat(x, 3, dim)
    out = strided(np.zeros_like(expected))
    given = {"self": x, "repeats": 3, "dim": dim, "output_size": expected.shape[dim], "out": out}
    opapi_910b.call("RepeatInterleaveIntWithDim", given)
    assert_same(out, expected)


def test_repeat_interleave_without_dim_repeats_each_element(opapi_910b):
    x = strided(random_of("int16", (2, 3)))
    out = np.zeros(12, np.int16)
    opapi_910b.call("RepeatInterleaveInt", {"self": x, "repeats": 2, "output_size": 12, "out": out})
    assert_same(out, np.repeat(x, 2))


def test_repeat_interleave_checks_its_arguments(opapi):
    x, out = np.zeros((2, 3), np.float32), np.zeros((2, 6), np.float32)
    given = {"self": x, "repeats": 2, "dim": 1, "output_size": 6, "out": out}
    op = "RepeatInterleaveIntWithDim"
    if opapi.is_310p:
        assert_beyond_document(opapi, op, given, UNLISTED_CHIP)
    for change, message in (
        ({"repeats": -2}, "repeats must be at least 0 but got -2"),
        ({"output_size": 5}, "outputSize must be 6 but got 5"),
        ({"dim": 2}, "dim must be in"),
        ({"out": out.T}, r"out must have the shape \[2,6\]"),
        ({"self": np.array(1, np.float32)}, "self must have 1 to 8 dimensions"),
    ):
        assert_refused(opapi, op, given | change, message)
    check_types(
        opapi,
        op,
        lambda name: given | {"self": x.astype(TYPES[name]), "out": out.astype(TYPES[name])},
        [*HALF_AND_FLOAT, "int8", "int16", "int32", "int64", "uint8", "bool"],
        ("bfloat16",),
        is_310p_unlisted=True,
    )


def test_the_calls_of_rope_in_ggml(opapi):
    """Shapes and types of aclnn_rope_cache_init and ggml_cann_rope (ggml src/ggml-cann/aclnn_ops.cpp)."""
    positions, angles, heads = 7, 6, 3
    ids = random_of("int32", (4, positions))
    sections = np.array([0, 1, 2, 2, 1, 3], np.int32)
    chosen = np.zeros((angles, positions), np.int32)
    opapi.call("IndexSelect", {"self": ids, "dim": 0, "index": sections, "out": chosen})
    assert_same(chosen, ids[sections])
    sines = random_of("float32", (1, positions, 1, angles))
    table = np.zeros((1, positions, 1, 2 * angles), np.float32)
    opapi.call("Repeat", {"self": sines, "repeats": [1, 1, 1, 2], "out": table})
    assert_same(table, np.concatenate([sines, sines], 3))
    x = random_of("float16", (1, positions, heads, 2 * angles))
    rolled = np.zeros_like(x)
    opapi.call("Roll", {"x": x, "shifts": [angles], "dims": [3], "out": rolled})
    assert_same(rolled, np.roll(x, angles, 3))
    pairs, swapped = (
        x.reshape(1, positions, heads * angles, 2),
        np.zeros((1, positions, heads * angles, 2), x.dtype),
    )
    opapi.call("Roll", {"x": pairs, "shifts": [1], "dims": [3], "out": swapped})
    assert_same(swapped, pairs[..., ::-1].copy())
    interleaved = {"self": sines, "repeats": 2, "dim": 3, "output_size": 2 * angles, "out": table}
    signs = {"self": np.ones((1, 1, 1, 8), np.float32), "dim": 3, "index": [0, 0, 2, 2, 4, 4, 6, 6],
             "value": np.float32(-1)}  # fmt: skip
    opapi.call("RepeatInterleaveIntWithDim", interleaved)
    assert_same(table, np.repeat(sines, 2, 3))
    opapi.call("InplaceIndexFillTensor", signs)
    assert signs["self"].ravel().tolist() == [-1, 1] * 4
