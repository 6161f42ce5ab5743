"""First phases at the bounds of sizes and counts. The tensors have no memory, so that they may be large."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from neighbours import Call, Tensor
from test_attention import DEFAULTS, OPTIONAL

TILING = 561002


def answer(device: Any, op: str, **given: Any) -> str:
    """Return the answer of the first phase. Texts describe tensors; a list of texts is a list of tensors."""

    def argument(value: Any) -> Any:
        if isinstance(value, str):
            return Tensor.of(value)
        return [argument(item) for item in value] if isinstance(value, list) else value

    return Call(op, {name: argument(value) for name, value in given.items()}).answer(device)


def is_accepted(text: str) -> bool:
    return text.startswith("accepted")


# ---- convolution ---------------------------------------------------------------------------------

FORMAT = {3: 47, 4: 0, 5: 30}  # NCL, NCHW, NCDHW


def convolution(device, input_shape, weight_shape, output_shape, *, transposed=False, groups=1, **options):
    def tensor(shape):
        return f"float16[{','.join(map(str, shape))}] format {FORMAT[len(shape)]}"

    dims = len(input_shape) - 2
    given = {
        "stride": [1] * dims,
        "padding": [0] * dims,
        "dilation": [1] * dims,
        "output_padding": [0] * dims,
    }
    tensors = {"input": input_shape, "weight": weight_shape, "output": output_shape}
    given |= {name: tensor(shape) for name, shape in tensors.items()} | options
    return answer(
        device, "Convolution", **given, bias=None, transposed=transposed, groups=groups, cube_math_type=0
    )


@pytest.mark.parametrize(
    ("dims", "transposed", "name", "bound"),
    [
        *((dims, False, "padding", 255) for dims in (1, 2, 3)),
        (3, False, "kernel", 511),
        (3, False, "stride", 63),
        (3, False, "dilation", 255),
        *((dims, True, "kernel", 255) for dims in (1, 2, 3)),
        *((dims, True, "dilation", 255) for dims in (1, 2, 3)),
        (3, True, "stride", 63),
        (3, True, "padding", 255),
    ],
)
def test_bounds_of_a_convolution(opapi_910b, dims, transposed, name, bound):
    """They hold for each dimension except the depth of an image of three dimensions."""
    usual = {"kernel": 1, "stride": 1, "padding": 0, "dilation": 1}
    special = {"kernel": 255, "dilation": 2} if transposed and name == "padding" else {}
    size = 600
    for at, value in itertools.product(range(dims), (bound, bound + 1)):
        axes = [usual | (special | {name: value} if i == at else {}) for i in range(dims)]
        output = []
        for axis in axes:
            reach, room = axis["dilation"] * (axis["kernel"] - 1), size - 1 + 2 * axis["padding"]
            if transposed:
                output.append((size - 1) * axis["stride"] - 2 * axis["padding"] + reach + 1)
            else:
                output.append((room - reach) // axis["stride"] + 1)
        kernel = [axis["kernel"] for axis in axes]
        options = {key: [axis[key] for axis in axes] for key in ("stride", "padding", "dilation")}
        shapes = (1, 1, *[size] * dims), (1, 1, *kernel), (1, 1, *output)
        found = convolution(opapi_910b, *shapes, transposed=transposed, **options)
        is_depth = dims == 3 and at == 0
        assert is_accepted(found) == (value == bound or is_depth), (at, value, found)
        if not is_accepted(found):
            what = "kernel dimension of weight" if name == "kernel" else f"element of {name}"
            assert f"each {what} must be in [{int(name != 'padding')}, {bound}]" in found


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_the_reach_of_a_transposed_kernel(opapi_910b, dims):
    """(kernel - 1) * dilation - padding is at most 255 and, with three dimensions, at least 0."""

    def found(kernel, dilation, padding):
        size = 300
        output = size - 1 - 2 * padding + dilation * (kernel - 1) + 1
        ones = [1] * (dims - 1)
        image, zeros = [size] * (dims - 1), [0] * (dims - 1)
        return convolution(
            opapi_910b, (1, 1, *image, size), (1, 1, *ones, kernel), (1, 1, *image, output), transposed=True,
            dilation=[*ones, dilation], padding=[*zeros, padding],
        )  # fmt: skip

    rule = "(kernel - 1) * dilation - padding must be " + ("in [0, 255]" if dims == 3 else "at most 255")
    assert is_accepted(found(129, 2, 1))
    assert rule in found(129, 2, 0)
    assert is_accepted(found(3, 1, 2))
    assert is_accepted(found(3, 1, 3)) == (dims < 3)
    assert dims < 3 or rule in found(3, 1, 3)


def test_groups_and_dimensions_of_a_convolution(opapi):
    for groups in (65535, 65536):
        found = convolution(opapi, (1, groups, 1), (groups, 1, 1), (1, groups, 1), groups=groups)
        assert is_accepted(found) == (groups == 65535)
    assert "groups must be in [1, 65535]" in found
    rule = "each dimension of input and weight must be at most 1000000"
    for size in (1000000, 1000001):
        for shapes in (
            ((size, 1, 1), (1, 1, 1), (size, 1, 1)),
            ((1, size, 1), (1, size, 1), (1, 1, 1)),
            ((1, 1, 1), (size, 1, 1), (1, size, 1)),
        ):
            found = convolution(opapi, *shapes)
            assert is_accepted(found) == (size == 1000000), (shapes, found)
            assert is_accepted(found) or rule in found


def test_images_and_kernels_on_310p(opapi):
    for size in (4096, 4097):
        found = convolution(opapi, (1, 1, size), (1, 1, 1), (1, 1, size))
        assert is_accepted(found) == (size == 4096 or not opapi.is_310p)
    assert not opapi.is_310p or "each image dimension of input must be in [0, 4096]" in found
    for size in (255, 256):
        found = convolution(opapi, (1, 1, 300), (1, 1, size), (1, 1, 301 - size))
        assert is_accepted(found) == (size == 255 or not opapi.is_310p)
    assert not opapi.is_310p or "each kernel dimension of weight must be in [1, 255]" in found


# ---- attention -----------------------------------------------------------------------------------


def attention(device, batch=1, heads=2, key_heads=None, tokens=3, keys=5, size=16, **options):
    key_heads = heads if key_heads is None else key_heads
    query, key = (
        f"float16[{batch},{n},{length},{size}]" for n, length in ((heads, tokens), (key_heads, keys))
    )
    given = dict.fromkeys(OPTIONAL) | DEFAULTS | {"num_heads": heads, "num_key_value_heads": key_heads}
    given |= {"query": query, "key": [key], "value": [key], "attention_out": query} | options
    layout = {"text": given["input_layout"].decode()}
    return answer(device, "FusedInferAttentionScoreV2", **given | {"input_layout": layout})


@pytest.mark.parametrize(
    ("valid", "refused", "message"),
    [
        ({"batch": 65536}, {"batch": 65537}, "the batch must be in [1, 65536]"),
        ({"heads": 256}, {"heads": 257}, "numHeads must be in [1, 256]"),
        ({"size": 512}, {"size": 528}, "the size of a head must be in [1, 512]"),
        ({"size": 16}, {"size": 17}, "the size of a head must be a multiple of 16"),
        ({"size": 17, "tokens": 1}, {"size": 0, "tokens": 1}, "the size of a head must be in [1, 512]"),
        ({"tokens": 20971520}, {"tokens": 20971521}, "the number of tokens must be at most 20971520"),
        ({"keys": 20971520}, {"keys": 20971521}, "the number of tokens must be at most 20971520"),
        (
            {"heads": 128, "key_heads": 2},
            {"heads": 65, "key_heads": 1},
            "numHeads must be at most 64 times numKeyValueHeads",
        ),
        (
            {"heads": 64, "key_heads": 1},
            {"heads": 3, "key_heads": 2},
            "numKeyValueHeads must divide numHeads 3",
        ),
        ({"inner_precise": 3}, {"inner_precise": 4}, "innerPrecise must be in [0, 3]"),
        ({"inner_precise": 0}, {"inner_precise": -1}, "innerPrecise must be in [0, 3]"),
        ({"num_key_value_heads": 0}, {"num_key_value_heads": -1}, "numKeyValueHeads must divide numHeads 2"),
        ({}, {"heads": 0}, "numHeads must be in [1, 256]"),
        ({}, {"sparse_mode": -1}, "sparseMode must be in [0, 4]"),
    ],
)
def test_bounds_of_attention(opapi_910b, valid, refused, message):
    assert is_accepted(attention(opapi_910b, **valid))
    assert attention(opapi_910b, **refused).startswith(f"{TILING} {message}")


# ---- rotations -----------------------------------------------------------------------------------


def rotary(device, shape, table, mode=0):
    x, cos = (f"float16[{','.join(map(str, sizes))}]" for sizes in (shape, table))
    return answer(device, "RotaryPositionEmbedding", x=x, cos=cos, sin=cos, mode=mode, out=x)


def rotary_gradient(device, shape, table, mode=0, has_x=True):
    x, cos = (f"float16[{','.join(map(str, sizes))}]" for sizes in (shape, table))
    return answer(
        device, "RotaryPositionEmbeddingGrad", dy=x, cos=cos, sin=cos, x=x if has_x else None, mode=mode,
        dx_out=x, dcos_out=cos, dsin_out=cos,
    )  # fmt: skip


def test_bounds_of_rotary_position_embedding(opapi_910b):
    """The tiling does not run if all outputs are empty."""
    for call in (rotary, rotary_gradient):
        for size, valid in ((894, True), (896, False), (895, False), (2, True), (0, False)):
            found = call(opapi_910b, (2, 3, 4, size), (1, 3, 1, size))
            assert is_accepted(found) == valid or size == 0, (size, found)
    for sizes, valid in (((999, 3), True), ((1000, 3), False), ((3, 999), True), ((3, 1000), False)):
        batch, heads = sizes
        found = rotary(opapi_910b, (batch, 7, heads, 64), (1, 7, 1, 64))
        assert is_accepted(found) == valid, (sizes, found)
    for sizes, valid in (((333, 3), True), ((3, 333), True), ((500, 2), False), ((2, 500), False)):
        batch, heads = sizes
        found = rotary(opapi_910b, (batch, 7, heads, 64), (1, 7, 1, 64), mode=1)
        assert is_accepted(found) == valid, (sizes, found)
    for mode, valid in ((-1, False), (0, True), (1, True), (2, False)):
        assert is_accepted(rotary(opapi_910b, (2, 7, 3, 64), (1, 7, 1, 64), mode)) == valid


def test_heads_with_gradients_of_the_tables(opapi_910b):
    for heads, valid in ((512, True), (513, False)):
        shapes = (2, 7, heads, 64), (1, 7, 1, 64)
        found = rotary_gradient(opapi_910b, *shapes)
        assert is_accepted(found) == valid, found
        assert valid or "batch * heads must be at most 1024" in found
        assert is_accepted(rotary_gradient(opapi_910b, *shapes, has_x=False))


# ---- products of quantized weights ---------------------------------------------------------------


def weight_quant(device, m, k, n, x_strides="", weight_strides=""):
    given = dict.fromkeys(("antiquant_offset", "quant_scale", "quant_offset", "bias"))
    return answer(
        device, "WeightQuantBatchMatmulV2", **given, x=f"float16[{m},{k}]{x_strides}",
        weight=f"int8[{k},{n}]{weight_strides}", antiquant_scale=f"float16[{n}]", antiquant_group_size=0,
        y=f"float16[{m},{n}]",
    )  # fmt: skip


def test_bounds_of_products_of_quantized_weights(opapi):
    """Both chips limit each of m, k and n. Ascend310P also limits m * k."""
    for m, k, n, on_910b, on_310p in (
        (1000000, 512, 64, True, True),
        (1000001, 512, 64, True, False),
        (512000000, 1, 64, True, True),
        (512000001, 1, 64, True, False),
        (2**31 - 1, 64, 64, True, False),
        (2**31, 64, 64, False, False),
        (32, 65535, 64, True, True),
        (32, 65536, 64, False, False),
        (32, 64, 65535, True, True),
        (32, 64, 65536, False, False),
    ):
        found = weight_quant(opapi, m, k, n)
        assert is_accepted(found) == (on_310p if opapi.is_310p else on_910b), (m, k, n, found)
    assert found == "161002 each of k and n must be at most 65535"
    for m in (65535, 65536):
        found = weight_quant(opapi, m, 64, 64, f" strides 1,{m}", " strides 1,64")
        assert is_accepted(found) == (m == 65535), found
    assert found == "161002 m must be at most 65535"


@pytest.mark.parametrize(("name", "item"), [("int32", 4), ("int64", 8)])
def test_indices_of_a_scatter_update_fit_in_ub(opapi, name, item):
    most = ((262144 if opapi.is_310p else 196608) - 224) // item
    for count in (most, most + 1):
        found = answer(
            opapi, "InplaceScatterUpdate", data=f"float16[{count},8]", indices=f"{name}[{count}]",
            updates=f"float16[{count},4]", axis=1,
        )  # fmt: skip
        assert is_accepted(found) == (count == most), found
    assert found == f"561103 indices must have at most {most} elements"


# ---- images --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "output", "reason"),
    [
        ((2**20, 1, 1, 1), (1, 1), ""),
        ((2**20 + 1, 1, 1, 1), (1, 1), "sizes of at most 2^20"),
        ((1, 2**20 + 1, 1, 1), (1, 1), "sizes of at most 2^20"),
        ((1, 1, 2**20 + 1, 1), (1, 1), "sizes of at most 2^20"),
        ((1, 1, 1, 2), (1, 2**20 + 1), "sizes of at most 2^20"),
        # 2 bytes in 16 channels for (2^20 - 1) * 1920 - 1 and 1 elements, and for one more.
        ((1, 1, 2**20 - 1, 1920), (1, 1919), ""),
        ((1, 1, 2**20 - 1, 1920), (1, 1920), "less than 60 GiB"),
        ((1, 16, 2**20 - 1, 1920), (1, 1919), ""),
        ((1, 17, 2**20 - 1, 960), (1, 960), "less than 60 GiB"),
    ],
)
def test_images_beyond_the_document(opapi, shape, output, reason):
    texts = [",".join(map(str, sizes)) for sizes in (shape, (*shape[:2], *output))]
    found = answer(
        opapi, "UpsampleNearest2d", self=f"float16[{texts[0]}] format 0", output_size=list(output),
        out=f"float16[{texts[1]}] format 0",
    )  # fmt: skip
    assert is_accepted(found), found
    assert ("although" in found) == bool(reason), found
    assert found.endswith(reason), found


def test_an_image_has_sizes_of_int32(opapi):
    for size in (2**31 - 1, 2**31):
        found = answer(
            opapi, "UpsampleNearest2d", self=f"float16[{size},1,1,1] format 0", output_size=[1, 1],
            out=f"float16[{size},1,1,1] format 0",
        )  # fmt: skip
        assert is_accepted(found) == (size < 2**31), found
    assert found == "161002 self must have at most 2147483647 elements in each dimension"


def test_images_whose_positions_are_exact_in_float32(opapi):
    """Types other than the floating-point ones of 16 and 32 bits have fewer than 2^24 rows and columns."""
    for name in ("float32", "float16", "bfloat16", "float64", "uint8"):
        if name == "bfloat16" and opapi.is_310p:
            continue
        for size in (2**24 - 1, 2**24):
            for rows, columns in ((size, 1), (1, size)):
                found = answer(
                    opapi, "UpsampleNearest2d", self=f"{name}[1,1,{rows},{columns}] format 0",
                    output_size=[2, 2], out=f"{name}[1,1,2,2] format 0",
                )  # fmt: skip
                is_valid = size < 2**24 or name not in ("float64", "uint8")
                assert is_accepted(found) == is_valid, (name, rows, columns, found)
