"""aclnnWeightQuantBatchMatmulV2: weights of int8 and int4 with a scale for each group of rows."""

import ml_dtypes
import numpy as np
import pytest
from aclnn import RefusedPhase, Stored
from operands import assert_refused

F16, BF16 = np.float16, ml_dtypes.bfloat16
INT4, NZ = 29, 29
NAMES = ("antiquant_scale", "antiquant_offset", "quant_scale", "quant_offset", "bias")


def pack(weight):
    """Two int4 in a byte, the first in the lower half."""
    nibbles = weight.reshape(-1).astype(np.uint8) & 15
    return (nibbles[::2] | nibbles[1::2] << 4).astype(np.uint8)


def call(device, x, weight, scale, y, *, group=0, offset=None, bias=None, quant_scale=None):
    given = dict.fromkeys(NAMES)
    given |= {"x": x, "weight": weight, "antiquant_scale": scale, "antiquant_offset": offset, "bias": bias}
    given |= {"quant_scale": quant_scale, "antiquant_group_size": group, "y": y}
    device.call("WeightQuantBatchMatmulV2", given)


def refused(device, *args, **kwargs):
    with pytest.raises(RefusedPhase) as caught:
        call(device, *args, **kwargs)
    assert caught.value.status in (161001, 161002, 200001)
    device.free_tensors()
    return str(caught.value)


def expected(x, weight, scale, *, group=0, offset=None, bias=None):
    """weight is [k, n], scale and offset [groups, n]; the weight is computed in x's type."""
    k, group = weight.shape[0], group or weight.shape[0]
    rows = np.arange(k) // group
    w = weight.astype(np.float32)
    if offset is not None:
        w = w + offset.astype(np.float32)[rows]
        w = w.astype(F16).astype(np.float32) if x.dtype == F16 else w
    w = (w * scale.astype(np.float32)[rows]).astype(x.dtype).astype(np.float64)
    y = x.astype(np.float64) @ w
    size = np.abs(x.astype(np.float64)) @ np.abs(w)
    if bias is not None:
        y, size = y + bias, size + np.abs(bias)
    return y, (k + 2) * 2.0**-24 * size  # k + 1 additions and the products, each in float32


def check(y, reference):
    value, bound = reference
    unit = np.maximum(np.abs(value) * 2.0 ** (-7 if y.dtype == BF16 else -10), 2.0**-24)
    assert np.all(np.abs(y.astype(np.float64) - value) <= bound + unit / 2 * (1 + 2.0**-7))


def case(k, n, m=3, *, group=32, dtype=F16, low=-128, high=128, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((m, k)).astype(dtype)
    weight = rng.integers(low, high, (n, k)).astype(np.int8)  # rows contiguous in k, as ggml keeps them
    scale = rng.uniform(0.001, 0.02, (n, -(-k // group) if group else 1)).astype(dtype)
    return x, weight, scale, np.zeros((m, n), dtype)


@pytest.mark.parametrize(("k", "n"), [(64, 1), (64, 5), (65, 5), (256, 40), (96, 130)])
def test_int8_in_groups_of_32_as_ggml_passes_q8_0(opapi, k, n):
    x, weight, scale, y = case(k, n)
    call(opapi, x, weight.T, scale.T, y, group=32)
    check(y, expected(x, weight.T, scale.T, group=32))


@pytest.mark.parametrize(("k", "n"), [(64, 1), (64, 5), (256, 40)])
def test_int4_in_groups_of_32_as_ggml_passes_q4_0(opapi, k, n):
    x, weight, scale, y = case(k, n, low=-8, high=8)
    stored = Stored(pack(weight), INT4, (k, n), (1, k))
    if opapi.is_310p:
        assert "weight must be int8 on Ascend310P3 but got int4" in refused(
            opapi, x, stored, scale.T, y, group=32
        )
        return
    call(opapi, x, stored, scale.T, y, group=32)
    check(y, expected(x, weight.T, scale.T, group=32))


def test_bfloat16_with_offset_and_bias(opapi_910b):
    x, weight, scale, y = case(100, 6, dtype=BF16, group=0)
    offset, bias = (scale * 100).astype(BF16), np.arange(6, dtype=np.float32)
    call(opapi_910b, x, weight.T, scale.T, y, offset=offset.T, bias=bias)
    check(y, expected(x, weight.T, scale.T, offset=offset.T, bias=bias))


def test_float16_with_offset_rounds_after_each_step(opapi):
    x, weight, scale, y = case(64, 6)
    offset = (scale * 1000).astype(F16)
    bias = np.arange(6, dtype=F16)
    call(opapi, x, weight.T, scale.T, y, offset=offset.T, bias=bias, group=32)
    check(y, expected(x, weight.T, scale.T, offset=offset.T, bias=bias, group=32))


def test_one_scale_for_all_and_one_for_each_column(opapi):
    x, weight, scale, y = case(48, 6, group=0)
    call(opapi, x, weight.T, scale[:1, 0].copy(), y)
    check(y, expected(x, weight.T, np.broadcast_to(scale[:1], (1, 6))))
    call(opapi, x, weight.T, scale[:, 0].copy(), y)
    check(y, expected(x, weight.T, scale.T))


def test_a_contiguous_weight_with_a_transposed_x(opapi):
    x, weight, scale, y = case(64, 6)
    call(opapi, np.asfortranarray(x), weight.T.copy(), scale.T.copy(), y, group=32)
    check(y, expected(x, weight.T, scale.T, group=32))


@pytest.mark.parametrize("n", [1, 6])
def test_batches_on_310p(opapi, n):
    x, weight, scale, _ = case(64, n, m=8)
    batches, y = x.reshape(2, 4, 64), np.zeros((2, 4, n), F16)
    if not opapi.is_310p:
        assert "x must have 2 dimensions but got 3" in refused(opapi, batches, weight.T, scale.T, y, group=32)
        return
    call(opapi, batches, weight.T, scale.T, y, group=32)
    check(y.reshape(8, n), expected(x, weight.T, scale.T, group=32))
    apart = np.repeat(weight[None], 4, axis=0)[::2].transpose(0, 2, 1)  # each batch is transposed
    together = np.repeat(weight[None], 2, axis=0).transpose(0, 2, 1)
    call(opapi, batches, together, scale.T, y, group=32)
    check(y.reshape(8, n), expected(x, weight.T, scale.T, group=32))
    assert "weight must be contiguous or transposed" in refused(opapi, batches, apart, scale.T, y, group=32)


def test_inputs_may_share_memory(opapi_910b):
    x, weight, scale, y = case(64, 6, m=4)
    packed = x.view(np.uint8).reshape(-1)[: weight.size // 2]
    nibbles = np.stack([packed & 15, packed >> 4], -1).reshape(weight.shape).astype(np.int8)
    weight = np.where(nibbles > 7, nibbles - 16, nibbles).astype(np.int8)
    call(opapi_910b, x, Stored(packed, INT4, (64, 6), (1, 64)), scale.T, y, group=32)
    check(y, expected(x, weight.T, scale.T, group=32))


def test_int8_in_blocks_on_910b(opapi):
    x, weight, scale, y = case(64, 40, group=0)
    blocks = weight.T.reshape(4, 16, 40)
    padded = np.zeros((4, 16, 64), np.int8)
    padded[:, :, :40] = blocks
    nz = padded.reshape(4, 16, 2, 32).transpose(2, 0, 1, 3).copy()
    stored = Stored(nz, 2, (64, 40), (40, 1), NZ)
    if opapi.is_310p:
        assert "is not simulated" in refused(opapi, x, stored, scale[:, 0].copy(), y)
        return
    call(opapi, x, stored, scale[:, 0].copy(), y)
    check(y, expected(x, weight.T, scale.T))
    assert "antiquantScale must have one element for each column" in refused(
        opapi, x, stored, scale[:1, 0].copy(), y
    )
    column = Stored(nz, 2, (64, 1), (1, 1), NZ)  # its scale would be one for all
    assert "antiquantScale must have more than one element" in refused(
        opapi, x, column, scale[:1, 0].copy(), y[:, :1].copy()
    )


def test_the_formats_of_a_scale_and_an_offset(opapi):
    x, weight, scale, y = case(64, 6, group=0)
    for name in ("scale", "offset"):
        other = Stored(scale[:, 0].copy(), 1, (6,), (1,), 0)
        given = {"scale": scale[:, 0].copy(), "offset": scale[:, 0].copy(), name: other}
        message = refused(opapi, x, weight.T, given["scale"], y, offset=given["offset"])
        argument = "antiquantScale" if name == "scale" else "antiquantOffsetOptional"
        assert f"{argument} must have the format ND (2) but got 0" in message


def test_refusals(opapi):
    x, weight, scale, y = case(64, 6)
    w, s = weight.T, scale.T
    assert "x must not be null" in refused(opapi, None, w, s, y, group=32)
    assert "multiple of 32 in [32, 63] but got 64" in refused(opapi, x, w, s[:1], y, group=64)
    assert "but got 33" in refused(opapi, x, w, s, y, group=33)
    assert "antiquantScale must have the shape [2,6]" in refused(opapi, x, w, s[:1], y, group=32)
    assert "antiquantScale must be transposed as weight is" in refused(opapi, x, w, s.copy(), y, group=32)
    assert "antiquantScale must be contiguous" in refused(opapi, x, w.copy(), s, y, group=32)
    assert "antiquantScale must be float16" in refused(opapi, x, w, s.astype(np.float32), y, group=32)
    assert "weight must have 64 rows but got 63" in refused(opapi, x, weight[:, :63].copy().T, s, y, group=32)
    assert "y must have the shape [3,6]" in refused(opapi, x, w, s, y[:2].copy(), group=32)
    assert "y must be contiguous" in refused(opapi, x, w, s, np.zeros((6, 3), F16).T, group=32)
    assert "x must be contiguous or transposed" in refused(
        opapi, np.zeros((3, 128), F16)[:, ::2], w, s, y, group=32
    )
    assert "biasOptional must have the shape [n] or [1,n]" in refused(
        opapi, x, w, s, y, group=32, bias=np.zeros(5, F16)
    )
    assert "biasOptional must be float16" in refused(
        opapi, x, w, s, y, group=32, bias=np.zeros(6, np.float32)
    )
    quantized = refused(opapi, x, w, s, y, group=32, quant_scale=np.zeros(6, np.uint64))
    if opapi.is_310p:
        assert "quantScaleOptional must be NULL on Ascend310P" in quantized
    else:
        assert "quantScaleOptional is not simulated" in quantized
    row = np.zeros((1, 6), F16)
    if opapi.is_310p:
        assert "have the shape [1], [6]" in refused(opapi, x, w, row, y)


def test_statuses_of_options_that_are_not_simulated(opapi):
    x, weight, scale, y = case(64, 64, group=0)
    given = dict.fromkeys(NAMES) | {"x": x, "weight": weight.T, "antiquant_scale": scale[:, 0].copy(), "y": y}
    given |= {"antiquant_group_size": 0}
    for name in ("quant_scale", "quant_offset"):
        dtype = np.uint64 if name == "quant_scale" else np.float32
        status = 161001 if opapi.is_310p else 200001
        text = "must be NULL on Ascend310P" if opapi.is_310p else "is not simulated"
        changed = given | {name: np.zeros(64, dtype)}
        assert_refused(opapi, "WeightQuantBatchMatmulV2", changed, text, status)
    for change, text in (
        ({"antiquant_scale": np.ones(64, np.uint64)}, "antiquantScale of 64-bit integers is not simulated"),
        (
            {"antiquant_scale": np.ones(64, np.int64), "antiquant_offset": np.ones(64, np.int32)},
            "antiquantScale of 64-bit integers is not simulated",
        ),
        ({"weight": np.zeros((8, 64), np.int32).T}, "a weight of int32 is not simulated"),
    ):
        if opapi.is_310p:
            assert_refused(opapi, "WeightQuantBatchMatmulV2", given | change, "must be .* but got", 161002)
        else:
            assert_refused(opapi, "WeightQuantBatchMatmulV2", given | change, text, 200001)
    offset = given | {"antiquant_offset": np.ones(64, np.int32)}
    message = "antiquantOffsetOptional must be float16 but got int32"
    if opapi.is_310p:
        message = "antiquantOffsetOptional must be float16 on Ascend310P3 but got int32"
    assert_refused(opapi, "WeightQuantBatchMatmulV2", offset, message, 161002)


def test_a_bias_of_each_batch_on_310p(opapi):
    x, weight, scale, _ = case(64, 6, m=8)
    batches, y = x.reshape(2, 4, 64), np.zeros((2, 4, 6), F16)
    bias = np.arange(12, dtype=F16).reshape(2, 1, 6)
    if not opapi.is_310p:
        message = refused(opapi, x, weight.T, scale.T, np.zeros((8, 6), F16), group=32, bias=bias)
        assert "biasOptional must have 1 to 2 dimensions but got 3" in message
        return
    call(opapi, batches, weight.T, scale.T, y, group=32, bias=bias)
    rows = np.repeat(bias.reshape(2, 6), 4, 0)
    check(y.reshape(8, 6), expected(x, weight.T, scale.T, group=32, bias=rows))
    for shape in ((1, 1, 6), (2, 4, 6), (2, 1, 1), (1, 2, 1, 6)):
        message = refused(opapi, batches, weight.T, scale.T, y, group=32, bias=np.zeros(shape, F16))
        assert "biasOptional must have the shape [n], [1,n] or [2,1,6] with n = 6" in message


def test_910b_refuses_large_and_odd_sizes(opapi_910b):
    weight = np.zeros((65536, 2), np.int8)
    text = refused(opapi_910b, np.zeros((1, 65536), F16), weight, np.ones(2, F16), np.zeros((1, 2), F16))
    assert "each of k and n must be at most 65535 but got 65536" in text
    for k, n in ((3, 5), (1, 2)):
        odd = Stored(np.zeros(8, np.uint8), INT4, (k, n), (1, k))
        text = refused(opapi_910b, np.zeros((1, k), F16), odd, np.ones(n, F16), np.zeros((1, n), F16))
        assert f"the contiguous dimension of a weight of int4 must be even but got {k}" in text
