"""aclnnFusedInferAttentionScoreV2 against attention in float64."""

import ctypes as C

import ml_dtypes
import numpy as np
import pytest
from aclnn import RefusedPhase
from operands import INVALID, NULL, reasons_beyond_document, strided

F16, BF16 = np.float16, ml_dtypes.bfloat16
TILING = 561002
OPTIONAL = (
    "pse_shift", "atten_mask", "actual_seq_lengths", "actual_seq_lengths_kv", "deq_scale1", "quant_scale1",
    "deq_scale2", "quant_scale2", "quant_offset2", "antiquant_scale", "antiquant_offset", "block_table",
    "query_padding_size", "kv_padding_size", "key_antiquant_scale", "key_antiquant_offset",
    "value_antiquant_scale", "value_antiquant_offset", "key_shared_prefix", "value_shared_prefix",
    "actual_shared_prefix_len", "softmax_lse", "query_rope", "key_rope", "key_rope_antiquant_scale",
)  # fmt: skip
DEFAULTS = {
    "scale_value": 0.125, "pre_tokens": 65535, "next_tokens": 65535, "input_layout": b"BNSD",
    "sparse_mode": 0, "inner_precise": 0, "block_size": 0, "antiquant_mode": 0, "softmax_lse_flag": False,
    "key_antiquant_mode": 0, "value_antiquant_mode": 0,
}  # fmt: skip


def call(device, query, key, value, out, *, version="V2", **options):
    device.call(f"FusedInferAttentionScore{version}", given_of(query, key, value, out, **options))


def given_of(query, key, value, out, **options):
    heads = {"num_heads": query.shape[1], "num_key_value_heads": key.shape[1]}
    given = dict.fromkeys(OPTIONAL) | DEFAULTS | heads | options
    return given | {"query": query, "key": [key], "value": [value], "attention_out": out}


def refused(device, *args, **options):
    with pytest.raises(RefusedPhase) as caught:
        call(device, *args, **options)
    device.free_tensors()
    return caught.value


def case(batch, heads, key_heads, tokens, keys, size, dtype=F16, seed=0):
    rng = np.random.default_rng(seed)
    query = rng.standard_normal((batch, heads, tokens, size)).astype(dtype)
    key = rng.standard_normal((batch, key_heads, keys, size)).astype(dtype)
    value = rng.standard_normal((batch, key_heads, keys, size)).astype(dtype)
    return query, key, value, np.full_like(query, np.nan)


def attention(query, key, value, *, scale=0.125, pse=None, hidden=None):
    """The result, the logarithm of the sums, and a bound of the error of the result."""
    q, k, v = (x.astype(np.float64) for x in (query, key, value))
    ratio = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, ratio, axis=1) for x in (k, v))
    scores = q @ k.transpose(0, 1, 3, 2) * scale
    score_error = (q.shape[3] + 3) * 2.0**-24 * (np.abs(q) @ np.abs(k).transpose(0, 1, 3, 2)).max() * scale
    if pse is not None:
        scores = scores + pse.astype(np.float64)
    if hidden is not None:
        scores = np.where(hidden, -np.inf, scores)
    maximum = scores.max(-1, keepdims=True)
    weights = np.exp(scores - maximum)
    sums = weights.sum(-1, keepdims=True)
    bits, least = (11, -25) if query.dtype == F16 else (8, -134)
    # The weights are rounded to the type of value, by half a unit or half the smallest subnormal number.
    n = k.shape[2]
    relative = 2.0**-bits + 2 * score_error + (2 * n + 20) * 2.0**-24
    result = weights / sums @ v
    bound = np.abs(v).max() * (relative + n * 2.0**least) + np.abs(result) * 2.0**-bits
    return result, np.log(sums) + maximum, bound


def check(out, reference):
    result, _, bound = reference
    assert np.all(np.abs(out.astype(np.float64) - result) <= bound)


@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize(
    ("batch", "heads", "key_heads", "tokens", "keys", "size"),
    [
        (1, 1, 1, 1, 1, 16),
        (2, 4, 2, 5, 9, 32),
        (1, 8, 1, 34, 40, 64),
        (1, 2, 2, 3, 1100, 16),
        (2, 2, 1, 1, 600, 40),
    ],
)
def test_attention_of_grouped_heads(opapi_910b, dtype, batch, heads, key_heads, tokens, keys, size):
    tensors = case(batch, heads, key_heads, tokens, keys, size, dtype)
    call(opapi_910b, *tensors)
    check(tensors[3], attention(*tensors[:3]))


@pytest.mark.parametrize("version", ["", "V2", "V3"])
def test_the_versions_compute_the_same(opapi_910b, version):
    tensors = case(2, 4, 2, 5, 9, 32)
    pse = np.random.default_rng(1).standard_normal((2, 4, 5, 9)).astype(F16)
    mask = np.triu(np.ones((5, 9), np.bool_), 4)
    call(opapi_910b, *tensors, version=version, pse_shift=pse, atten_mask=mask)
    check(tensors[3], attention(*tensors[:3], pse=pse, hidden=mask))
    with pytest.raises(
        RefusedPhase, match=f"aclnnFusedInferAttentionScore{version}: blockTable is not simulated"
    ):
        call(opapi_910b, *tensors, version=version, block_table=np.zeros((2, 1), np.int32))


@pytest.mark.parametrize("layout", [b"BSND", b"BSH", b"BNSD_BSND"])
def test_layouts(opapi_910b, layout):
    query, key, value, _ = case(2, 4, 2, 5, 9, 32)
    reference = attention(query, key, value)
    by_token = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in (query, key, value)]
    out = np.zeros((2, 5, 4, 32), F16)
    heads = {"num_heads": 4, "num_key_value_heads": 2, "input_layout": layout}
    if layout == b"BSH":
        call(opapi_910b, *(x.reshape(2, x.shape[1], -1) for x in by_token), out.reshape(2, 5, -1), **heads)
    elif layout == b"BSND":
        call(opapi_910b, *by_token, out, **heads)
    else:
        call(opapi_910b, query, key, value, out, **heads)
    check(out.transpose(0, 2, 1, 3), reference)


def test_the_call_of_ggml_with_a_mask_shared_by_all_heads(opapi_910b):
    """ggml passes its mask as pseShift with the stride 0 along the heads, and views of its cache."""
    query, key, value, _ = case(1, 4, 2, 7, 20, 32)
    cache = np.zeros((1, 64, 2, 2, 32), F16)
    cache[:, :20, 0], cache[:, :20, 1] = key.transpose(0, 2, 1, 3), value.transpose(0, 2, 1, 3)
    causal = np.where(np.arange(20)[None] > np.arange(7)[:, None] + 13, -np.inf, 0).astype(F16)[None, None]
    shared = np.broadcast_to(causal, (1, 4, 7, 20))
    out = np.zeros((1, 7, 4, 32), F16)
    call(
        opapi_910b, query.transpose(0, 2, 1, 3).copy(), cache[:, :20, 0], cache[:, :20, 1], out,
        pse_shift=shared, num_heads=4, num_key_value_heads=2, input_layout=b"BSND", inner_precise=2,
    )  # fmt: skip
    check(out.transpose(0, 2, 1, 3), attention(query, key, value, pse=causal))


def test_pse_of_each_batch_and_larger_than_the_keys(opapi_910b):
    tensors = case(2, 4, 2, 5, 9, 32)
    pse = np.random.default_rng(1).standard_normal((2, 4, 6, 16)).astype(F16)
    call(opapi_910b, *tensors, pse_shift=pse, inner_precise=1)
    check(tensors[3], attention(*tensors[:3], pse=pse[:, :, :5, :9]))


def test_a_pse_of_one_batch_is_that_of_all_batches(opapi_910b):
    tensors = case(2, 4, 2, 5, 9, 32)
    pse = np.random.default_rng(1).standard_normal((1, 4, 5, 9)).astype(F16)
    call(opapi_910b, *tensors, pse_shift=pse)
    check(tensors[3], attention(*tensors[:3], pse=pse))


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8])
def test_masks_of_all_shapes(opapi_910b, dtype):
    tensors = case(2, 4, 2, 5, 9, 32)
    rng = np.random.default_rng(1)
    for shape in ((5, 9), (2, 5, 9), (1, 6, 12), (2, 1, 5, 9), (1, 1, 5, 9)):
        mask = (rng.random(shape) < 0.4).astype(dtype)
        mask[..., 0] = 0
        hidden = mask.reshape(-1, 1, *shape[-2:])[:, :, :5, :9].astype(bool)
        call(opapi_910b, *tensors, atten_mask=mask)
        check(tensors[3], attention(*tensors[:3], hidden=hidden))


def test_a_mask_of_many_keys_with_gaps(opapi_910b):
    """The keys are processed in several parts."""
    query, key, value, out = case(2, 2, 2, 3, 1100, 16)
    hidden = np.random.default_rng(1).random((2, 1, 3, 1100)) < 0.4
    pse = np.random.default_rng(2).standard_normal((2, 2, 3, 1100)).astype(F16)
    call(opapi_910b, query, key, value, out, atten_mask=strided(hidden), pse_shift=strided(pse))
    check(out, attention(query, key, value, pse=pse, hidden=hidden))


def test_masks_of_one_query(opapi_910b):
    tensors = case(2, 4, 2, 1, 9, 32)
    mask = np.random.default_rng(1).random((2, 9)) < 0.4
    for shape in ((2, 9), (2, 1, 9), (2, 1, 1, 9)):
        call(opapi_910b, *tensors, atten_mask=mask.reshape(shape), sparse_mode=2)
        check(tensors[3], attention(*tensors[:3], hidden=mask[:, None, None]))


def test_bands_of_the_sparse_modes(opapi_910b):
    tensors = case(1, 2, 2, 6, 9, 16)
    triangle, full = np.triu(np.ones((2048, 2048), np.bool_), 1), np.zeros((6, 9), np.bool_)
    distance = np.arange(9)[None] - np.arange(6)[:, None]
    tokens = {"pre_tokens": 2, "next_tokens": 1}
    for mode, mask, hidden in (
        (0, full, (distance < -2) | (distance > 1)),
        (1, full, full),
        (2, triangle, distance > 0),
        (3, triangle, distance > 3),
        (4, triangle, (distance < 1) | (distance > 4)),
    ):
        call(opapi_910b, *tensors, atten_mask=mask, sparse_mode=mode, **tokens)
        check(tensors[3], attention(*tensors[:3], hidden=hidden))
    call(opapi_910b, *tensors, **tokens)  # without a mask, the band of mode 0 is ignored
    check(tensors[3], attention(*tensors[:3]))


def test_the_mask_of_a_causal_mode_is_checked(opapi_910b):
    """Each element, also of a mask that is not contiguous."""
    tensors = case(1, 2, 2, 6, 9, 16)
    distance = np.arange(9)[None] - np.arange(6)[:, None]
    views = (
        np.zeros((2048, 2048), np.int8),
        np.zeros((2048, 4096), np.int8)[:, ::2],
        np.zeros((2048, 2048), np.int8).T,
        np.zeros((1, 1, 2048, 2048), np.int8),
    )
    for mask in views:
        mask[...] = np.triu(np.ones((2048, 2048), np.int8), 1)
        call(opapi_910b, *tensors, atten_mask=mask, sparse_mode=2)
        check(tensors[3], attention(*tensors[:3], hidden=distance > 0))
    for mask in views[:2]:
        for at in ((0, 0), (0, 1), (0, 2047), (2047, 0), (2047, 2047), (1030, 5)):
            before = mask[at]
            mask[at] = 1 - before
            message = (
                "attenMask must be 1 above the diagonal and 0 elsewhere for sparseMode 2, 3 and 4 but got "
                f"{1 - before} in row {at[0]}, column {at[1]}[.]"
            )
            with pytest.raises(RefusedPhase, match=message):
                call(opapi_910b, *tensors, atten_mask=mask, sparse_mode=2)
            mask[at] = before


def test_queries_that_see_no_key(opapi_910b):
    tensors = case(1, 2, 2, 4, 6, 16)
    mask = np.zeros((4, 6), np.bool_)
    mask[1] = True
    lse = np.full((1, 2, 4, 1), np.nan, np.float32)
    call(opapi_910b, *tensors, atten_mask=mask, inner_precise=2, softmax_lse=lse, softmax_lse_flag=True)
    assert not tensors[3][:, :, 1].any()
    assert np.isposinf(lse[:, :, 1]).all()
    assert np.isfinite(lse[:, :, [0, 2, 3]]).all()
    call(opapi_910b, *tensors, atten_mask=mask, inner_precise=0)
    mean = tensors[2].astype(np.float64).mean(2)
    assert np.allclose(tensors[3][:, :, 1].astype(np.float64), mean, atol=2e-3)
    call(opapi_910b, *tensors, atten_mask=np.triu(np.ones((2048, 2048), np.bool_), 1), sparse_mode=4,
         pre_tokens=-3, next_tokens=9)  # fmt: skip
    assert not tensors[3][:, :, 1:].any()
    assert tensors[3][:, :, 0].any()


def test_lengths_of_each_batch(opapi_910b):
    query, key, value, out = case(2, 2, 2, 5, 9, 16)
    lse = np.full((2, 2, 5, 1), np.nan, np.float32)
    lengths = {"actual_seq_lengths": [3, 5], "actual_seq_lengths_kv": [4, 9]}
    call(opapi_910b, query, key, value, out, **lengths, softmax_lse=lse, softmax_lse_flag=True)
    for batch, tokens, keys in ((0, 3, 4), (1, 5, 9)):
        part = [x[batch : batch + 1] for x in (query[:, :, :tokens], key[:, :, :keys], value[:, :, :keys])]
        reference = attention(*part)
        check(out[batch : batch + 1, :, :tokens], reference)
        assert np.allclose(lse[batch : batch + 1, :, :tokens], reference[1], rtol=0, atol=1e-5)
    assert not out[0, :, 3:].any()
    assert np.isposinf(lse[0, :, 3:]).all()
    call(opapi_910b, query, key, value, out, actual_seq_lengths_kv=[7])
    check(out, attention(query, key[:, :, :7], value[:, :, :7]))
    error = refused(opapi_910b, query, key, value, out, actual_seq_lengths_kv=[4, 10])
    assert "actualSeqLengthsKv must be in [0, 9] but got 10" in str(error)


def test_softmax_lse(opapi_910b):
    tensors, lse = case(2, 4, 2, 5, 9, 32), np.full((2, 4, 5, 1), np.nan, np.float32)
    call(opapi_910b, *tensors, softmax_lse=lse, softmax_lse_flag=True)
    assert np.allclose(lse, attention(*tensors[:3])[1], rtol=0, atol=1e-5)


def test_high_performance_rounds_the_scores(opapi_910b):
    # Scores near 2000 have a unit of 1 in float16.
    query, key = np.full((1, 1, 2, 16), 10, F16), np.full((1, 1, 2, 16), 12, F16)
    key[0, 0, 1, 0] = 12.03125  # another score by 0.3125
    value, out = np.zeros((1, 1, 2, 16), F16), np.zeros((1, 1, 2, 16), F16)
    value[0, 0, 1] = 1
    call(opapi_910b, query, key, value, out, scale_value=1.0, inner_precise=1)
    assert np.all(out == 0.5)
    call(opapi_910b, query, key, value, out, scale_value=1.0, inner_precise=0)
    assert np.all(np.abs(out.astype(float) - 1 / (1 + np.exp(-0.3125))) < 1e-3)


@pytest.mark.parametrize(("dtype", "fraction_bits"), [(F16, 10), (BF16, 7)])
def test_weights_are_rounded_to_the_type_of_value(opapi_910b, dtype, fraction_bits):
    # 100 weights just below a tie are rounded down, so the mean of ones is one unit below 1.
    weight = 0.5 + 2.0 ** (-fraction_bits - 2) * 0.98
    assert mean_of_ones(opapi_910b, dtype, weight, -np.log(weight)) == 1 - 2.0 ** (-fraction_bits - 1)


def mean_of_ones(device, dtype, weight, scale):
    """The mean of ones: the first one has the weight 1, and 100 others exp(-scale), which is the weight."""
    query, key = np.zeros((1, 1, 1, 16), dtype), np.zeros((1, 1, 101, 16), dtype)
    query[..., 0], key[0, 0, 1:, 0] = 1, -1
    value, out = np.ones_like(key), np.zeros_like(query)
    call(device, query, key, value, out, scale_value=scale)
    assert np.all(out == out[0, 0, 0, 0])
    return float(out[0, 0, 0, 0])


@pytest.mark.parametrize(("dtype", "fraction_bits"), [(F16, 10), (BF16, 7)])
@pytest.mark.parametrize(("quarters", "is_up"), [(1, False), (3, True), (5, False), (7, True)])
def test_weights_between_two_numbers_become_the_even_one(opapi_910b, dtype, fraction_bits, quarters, is_up):
    """A weight rounded up gives a mean of 1, because the mean has fewer bits than the weights."""
    weight = np.float32(0.5 + quarters * 2.0 ** (-fraction_bits - 2))
    exp = C.CDLL("libm.so.6").expf
    exp.restype, exp.argtypes = C.c_float, (C.c_float,)
    near = np.float32(-np.log(np.float64(weight)))
    scales = near + np.arange(-4, 5, dtype=np.float32) * np.spacing(near)
    scale = next(float(one) for one in scales if np.float32(exp(-one)) == weight)
    mean = mean_of_ones(opapi_910b, dtype, weight, scale)
    assert mean == (1 if is_up else 1 - 2.0 ** (-fraction_bits - 1))


def test_refusals_with_the_status_of_a_tiling(opapi_910b):
    tensors = case(2, 4, 2, 5, 9, 32)
    query, key, value, out = tensors
    odd = case(1, 2, 2, 5, 9, 40)
    for error, text in (
        (
            refused(opapi_910b, *tensors, input_layout=b"TND"),
            "inputLayout must be BSH, BSND, BNSD or BNSD_BSND",
        ),
        (refused(opapi_910b, *tensors, num_heads=3), "numKeyValueHeads must divide numHeads 3 but got 2"),
        (refused(opapi_910b, *tensors, num_heads=2), "query must have 2 heads but got 4"),
        (refused(opapi_910b, query, key, value[:, :, :8], out), "value must have the shape of key"),
        (refused(opapi_910b, query, key[:1], value[:1], out), "key must have 2 batches but got 1"),
        (refused(opapi_910b, *tensors, input_layout=b"BSH"), "query must have 3 dimensions but got 4"),
        (refused(opapi_910b, query, key, value, out[0]), "attentionOut must have 4 dimensions but got 3"),
        (refused(opapi_910b, query, key, value, out[:, :, :4]), "attentionOut must have the shape of query"),
        (refused(opapi_910b, *odd), "the size of a head must be a multiple of 16 but got 40"),
        (refused(opapi_910b, *tensors, inner_precise=4), "innerPrecise must be in [0, 3]"),
        (refused(opapi_910b, *tensors, sparse_mode=5), "sparseMode must be in [0, 4]"),
        (refused(opapi_910b, *tensors, sparse_mode=2), "attenMask must not be null for sparseMode 2"),
        (
            refused(opapi_910b, *tensors, sparse_mode=3, atten_mask=np.zeros((5, 9), np.bool_)),
            "attenMask must have the shape [2048,2048]",
        ),
        *(
            (
                refused(opapi_910b, *tensors, sparse_mode=mode, atten_mask=np.zeros(shape, np.bool_)),
                "attenMask must have the shape [2048,2048]",
            )
            for mode, shape in (
                (2, (2048, 2047)),
                (2, (2047, 2048)),
                (3, (2, 2048, 2048)),
                (3, (2, 1, 2048, 2048)),
                (4, (1, 2, 2048, 2048)),
            )
        ),
        (
            refused(opapi_910b, *tensors, atten_mask=np.zeros((5, 8), np.bool_)),
            "attenMask must have 1 or 2 batches, at least 5 queries and at least 9 keys",
        ),
        (
            refused(opapi_910b, *tensors, pse_shift=np.zeros((2, 4, 5, 8), F16)),
            "pseShift must have the shape [1 or 2,4,>=5,>=9] but got [2,4,5,8]",
        ),
        (
            refused(opapi_910b, *case(1, 1, 1, 1, 4, 16), input_layout=b"BNSD_BSND"),
            "inputLayout must not be BNSD_BSND for one query",
        ),
    ):
        assert text in str(error)
        assert error.status == TILING


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"pre_tokens": -1, "next_tokens": -1}, "preTokens and nextTokens must not both be negative for"),
        ({"pre_tokens": 2, "next_tokens": -3}, "preTokens and nextTokens must have a sum of at least 0"),
        ({"pre_tokens": -1, "next_tokens": 0}, "preTokens and nextTokens must have a sum of at least 0"),
        ({"pre_tokens": -9}, "preTokens must be greater than -9 for sparseMode 0 but got -9."),
        ({"next_tokens": -5}, "nextTokens must be greater than -5 for sparseMode 0 but got -5."),
        ({"next_tokens": -3, "actual_seq_lengths": [5, 3]}, "nextTokens must be greater than -3"),
        ({"pre_tokens": -4, "actual_seq_lengths_kv": [4]}, "preTokens must be greater than -4"),
        ({"sparse_mode": 4, "pre_tokens": -1, "next_tokens": -1}, "preTokens and nextTokens must not both"),
        ({"sparse_mode": 4, "pre_tokens": -5}, "preTokens must be greater than -5 for sparseMode 4"),
        ({"sparse_mode": 4, "next_tokens": -9}, "nextTokens must be greater than -9 for sparseMode 4"),
    ],
)
def test_negative_tokens(opapi_910b, options, text):
    """Each call has a neighbour, by one token, that is accepted."""
    is_band = options.get("sparse_mode") == 4
    mask = np.triu(np.ones((2048, 2048), np.bool_), 1) if is_band else np.zeros((5, 9), np.bool_)
    tensors = case(2, 2, 2, 5, 9, 16)
    error = refused(opapi_910b, *tensors, atten_mask=mask, **options)
    assert text in str(error)
    assert error.status == TILING
    moved = {name: options[name] + 1 for name in ("pre_tokens", "next_tokens") if options.get(name, 0) < 0}
    call(opapi_910b, *tensors, atten_mask=mask, **options | moved)


@pytest.mark.parametrize("version", ["", "V2", "V3"])
def test_rules_of_one_and_of_several_queries(opapi_910b, version):
    several, one = case(2, 4, 2, 5, 9, 32), case(2, 4, 2, 1, 9, 32)
    error = refused(opapi_910b, *several, version=version, antiquant_mode=1)
    assert "antiquantMode must be 0 for several queries but got 1." in str(error)
    assert error.status == TILING
    call(opapi_910b, *one, version=version, antiquant_mode=1)
    for mode in (2, 3):
        error = refused(opapi_910b, *one, version=version, inner_precise=mode)
        assert f"innerPrecise must be in [0, 1] for one query but got {mode}." in str(error)
        assert error.status == TILING


@pytest.mark.parametrize("version", ["V2", "V3"])
@pytest.mark.parametrize(
    ("tokens", "key", "value", "both", "reasons"),
    [
        (5, 0, 1, 0, []),
        (5, 1, 1, 0, []),
        (5, 2, 2, 0, ["its document limits keyAntiquantMode and valueAntiquantMode to 0 to 1"]),
        (1, 5, 5, 1, []),
        (1, 6, 6, 0, ["its document limits keyAntiquantMode and valueAntiquantMode to 0 to 5"]),
        (1, 1, 0, 0, ["its document requires one mode for keyAntiquantMode and valueAntiquantMode"]),
        (1, 0, 0, 2, ["its document limits antiquantMode to 0 and 1"]),
    ],
)
def test_modes_beyond_the_document_are_reported(opapi_910b, version, tokens, key, value, both, reasons):
    modes = {"key_antiquant_mode": key, "value_antiquant_mode": value, "antiquant_mode": both}
    given = given_of(*case(2, 4, 2, tokens, 9, 32), **modes)
    assert reasons_beyond_document(opapi_910b, f"FusedInferAttentionScore{version}", given) == reasons


def test_masks_of_one_query_that_are_refused(opapi_910b):
    tensors = case(2, 4, 2, 1, 9, 32)
    causal = np.triu(np.ones((2048, 2048), np.bool_), 1)
    for mode, mask, text, status in (
        (0, np.zeros((2, 5, 9), np.bool_), "attenMask must have one row for each batch of one query", TILING),
        (3, np.zeros((2, 9), np.bool_), "attenMask must have the shape [2048,2048] for", TILING),
        (4, np.zeros((2, 1, 9), np.bool_), "attenMask must have the shape [2048,2048] for", TILING),
        (3, causal[None], "attenMask must have the shape [2048,2048] for", TILING),
        (3, causal, "sparseMode 3 or 4 with a mask for one query is not simulated.", 200001),
    ):
        error = refused(opapi_910b, *tensors, atten_mask=mask, sparse_mode=mode)
        assert text in str(error)
        assert error.status == status


def test_layouts_that_only_v3_has_are_not_simulated(opapi_910b):
    error = refused(opapi_910b, *case(2, 4, 2, 5, 9, 32), version="V3", input_layout=b"TND")
    assert "an inputLayout with T or NBSD is not simulated." in str(error)


def test_refusals_of_types_and_chip(opapi):
    tensors = case(1, 2, 2, 5, 9, 16)
    if opapi.is_310p:
        error = refused(opapi, *tensors)
        assert "the chip must be" in str(error)
        assert error.status == NULL
        return
    query, key, value, out = tensors
    assert "query must be float16 or bfloat16" in str(
        refused(opapi, query.astype(np.float32), key, value, out)
    )
    assert "key must be float16 but got bfloat16" in str(refused(opapi, query, key.astype(BF16), value, out))
    error = refused(opapi, *tensors, atten_mask=np.zeros((5, 9), F16))
    assert "attenMask must be int8, uint8 or bool but got float16." in str(error)
    assert error.status == TILING
    error = refused(opapi, *tensors, atten_mask=np.zeros((5, 9), np.float32))
    assert "attenMask must be int8, uint8 or bool on" in str(error)
    assert error.status == INVALID
    for lse in (np.zeros((1, 2, 5), np.float32), np.zeros((1, 2, 5, 2), np.float32)):
        error = refused(opapi, *tensors, softmax_lse=lse, softmax_lse_flag=True)
        assert "softmaxLse must have the shape [1,2,5,1] but got" in str(error)
        assert error.status == TILING


def test_options_that_are_not_simulated_are_named(opapi_910b):
    tensors = case(1, 2, 2, 5, 9, 16)
    for name, text in (("block_table", "blockTable"), ("key_antiquant_scale", "keyAntiquantScale")):
        error = refused(opapi_910b, *tensors, **{name: np.zeros(1, np.float32)})
        assert f"{text} is not simulated." in str(error)
        assert error.status == 200001
