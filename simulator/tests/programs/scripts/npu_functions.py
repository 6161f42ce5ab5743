"""torch_npu's own functions of rotary position embedding, norms and gates against float64 NumPy.

A bound is one rounding to the result's type for each rounding of the kernel, and the float32 roundings of the
formula, relative to the sizes of its terms.
"""

import numpy as np
import torch
import torch_npu
from run_checks import refusal, run

CALLS = 500  # of each function
HALVES = (torch.float16, torch.bfloat16)
FLOATS = (torch.float32, *HALVES)
UNIT = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}
LEAST = 2.0**-24  # smallest float16; the other types have smaller numbers


class Draw:
    """Random sizes, choices and tensors of one call."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.generator = torch.Generator().manual_seed(seed)

    def size(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def of(self, choices):
        return choices[self.size(0, len(choices) - 1)]

    def tensor(self, *shape, dtype=torch.float32):
        return (torch.rand(shape, generator=self.generator) * 2 - 1).to(dtype)


def draws():
    return (Draw(seed) for seed in range(CALLS))


def wide(*tensors):
    arrays = [tensor.detach().cpu().double().numpy() for tensor in tensors]
    return arrays if len(arrays) > 1 else arrays[0]


def assert_near(got, expected, size=None, roundings=1, float_roundings=4):
    """Allow roundings to the type of `got` and of float32, relative to the sizes of the formula's terms."""
    assert got.device.type == "npu", got.device
    assert tuple(got.shape) == expected.shape, (got.shape, expected.shape)
    size = np.abs(expected) if size is None else size
    allowed = (roundings * UNIT[got.dtype] + float_roundings * UNIT[torch.float32]) * size + roundings * LEAST
    error = np.abs(wide(got) - expected)
    assert np.all(error <= allowed), f"{np.max(error / allowed)} times the bound"


def crossed(x, mode):
    if mode == "half":
        first, second = np.split(x, 2, -1)
        return np.concatenate([-second, first], -1)
    return np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)


def rotated(x, cos, sin, mode="half"):
    """The rotation and the sizes of its terms."""
    return x * cos + crossed(x, mode) * sin, np.abs(x * cos) + np.abs(crossed(x, mode) * sin)


def reciprocal_rms(x, rank, epsilon):
    return 1 / np.sqrt((x**2).mean(tuple(range(-rank, 0)), keepdims=True) + epsilon)


def norm_roundings(columns):
    """Float32 roundings of a norm: a sum in 64 lanes, the mean, the root and the products."""
    return columns / 64 + 16


# ---- rotary position embedding ---------------------------------------------------------------------------


def draw_rotary(draw):
    """x and its tables in a documented layout, and the mode."""
    mode, dtype = draw.of(("half", "interleave")), draw.of(FLOATS)
    batch, tokens, heads, size = draw.size(1, 3), draw.size(1, 9), draw.size(1, 4), 2 * draw.size(1, 70)
    layout = draw.of(("BSND", "SBND", "BNSD"))
    if layout == "BNSD":  # the tiling refuses short sequences and unaligned heads
        tokens, size = 100 + tokens, 32 * draw.size(1, 4)
    sizes = {"B": batch, "S": tokens, "N": heads, "D": size}
    own = {"S", "D"} if mode == "interleave" else draw.of(({"S", "D"}, {"B", "S", "D"}, {"B", "S", "N", "D"}))
    table = [sizes[name] if name in own else 1 for name in layout]
    x = draw.tensor(*(sizes[name] for name in layout), dtype=dtype)
    return x, draw.tensor(*table, dtype=dtype), draw.tensor(*table, dtype=dtype), mode


def check_npu_rotary_mul():
    for draw in draws():
        x, cos, sin, mode = draw_rotary(draw)
        if draw.of((False, False, True)):  # torch_npu rounds other tables to the type of x
            cos, sin = cos.float(), sin.float()
        y = torch_npu.npu_rotary_mul(x.npu(), cos.npu(), sin.npu(), mode)
        assert y.dtype == x.dtype
        assert_near(y, *rotated(*wide(x, cos.to(x.dtype), sin.to(x.dtype)), mode))


def check_npu_rotary_mul_backward():
    for draw in draws():
        x, cos, sin, mode = draw_rotary(draw)
        with_tables = draw.of((False, True))
        dy = draw.tensor(*x.shape, dtype=x.dtype)
        on_npu = [x.npu().requires_grad_(), *(t.npu().requires_grad_(with_tables) for t in (cos, sin))]
        torch_npu.npu_rotary_mul(*on_npu, mode).backward(dy.npu())
        g, x, cos, sin = wide(dy, x, cos, sin)
        sizes = np.abs(g * cos) + np.abs(crossed(g * sin, mode))
        assert_near(on_npu[0].grad, g * cos - crossed(g * sin, mode), sizes)
        if not with_tables:
            continue
        axes = tuple(i for i in range(4) if cos.shape[i] == 1 and g.shape[i] != 1)
        terms = int(np.prod([g.shape[i] for i in axes]))
        for got, products in ((on_npu[1].grad, g * x), (on_npu[2].grad, g * crossed(x, mode))):
            total, size = (values.sum(axes, keepdims=True) for values in (products, np.abs(products)))
            assert_near(got, total, size, float_roundings=terms + 3)


def check_npu_apply_rotary_pos_emb():
    for draw in draws():
        dtype = draw.of(FLOATS)
        batch, tokens, heads = draw.size(1, 3), draw.size(1, 5), (draw.size(1, 6), draw.size(1, 3))
        query, key = (draw.tensor(batch, tokens, n, 128, dtype=dtype) for n in heads)
        cos, sin = (draw.tensor(batch, tokens, 1, 128, dtype=dtype) for _ in range(2))
        on_npu = query.npu(), key.npu()
        results = torch_npu.npu_apply_rotary_pos_emb(*on_npu, cos.npu(), sin.npu(), layout="BSND")
        for result, tensor, before in zip(results, on_npu, (query, key), strict=True):
            assert result.data_ptr() == tensor.data_ptr()
            expected, size = rotated(*wide(before, cos, sin))
            # The kernel computes float16 in float16: two products and their sum are rounded.
            assert_near(tensor, expected, size, roundings=2 if dtype == torch.float16 else 1)


def check_npu_interleave_rope():
    for draw in draws():
        dtype = draw.of(HALVES)
        batch, heads, tokens = draw.size(1, 3), draw.size(1, 5), draw.size(1, 6)
        x = draw.tensor(batch, heads, tokens, 64, dtype=dtype)
        cos, sin = (draw.tensor(batch, 1, draw.of((1, tokens)), 64, dtype=dtype) for _ in range(2))
        sin = sin[:, :, : cos.shape[2]].expand_as(cos).contiguous()
        y = torch_npu.npu_interleave_rope(x.npu(), cos.npu(), sin.npu())
        halves = wide(x)
        halves = np.concatenate([halves[..., ::2], halves[..., 1::2]], -1)
        assert_near(y, *rotated(halves, *wide(cos, sin)))


def check_npu_mrope():
    for draw in draws():
        dtype, with_sections = draw.of(FLOATS), draw.of((False, True))
        multiple = 16 if dtype == torch.float32 else 32
        size = 128 if with_sections else multiple * draw.size(1, 128 // multiple)
        width = size if with_sections else multiple * draw.size(1, size // multiple)
        tokens, rows, mode = draw.size(1, 7), draw.size(1, 20), draw.of(("half", "interleave"))
        sections = [16, 24, 24] if with_sections else [0, 0, 0]
        shape = (3, tokens) if with_sections else (tokens,)
        positions = torch.from_numpy(draw.rng.integers(0, rows, shape))
        query, key = (draw.tensor(tokens, n * size, dtype=dtype) for n in (draw.size(1, 4), draw.size(1, 2)))
        cache = draw.tensor(rows, width, dtype=dtype)
        results = torch_npu.npu_mrope(
            positions.npu(),
            query.npu(),
            key.npu(),
            cache.npu(),
            size,
            mrope_section=sections,
            rotary_mode=mode,
        )
        tables = wide(cache)[positions.numpy()]
        if with_sections:
            kinds = np.repeat(np.arange(3), sections)
            cos, sin = (half[kinds, :, np.arange(64)].T for half in np.split(tables, 2, -1))
        else:
            cos, sin = np.split(tables, 2, -1)
        doubled = [
            np.concatenate([half, half], -1) if mode == "half" else half.repeat(2, -1) for half in (cos, sin)
        ]
        for result, before in zip(results, (query, key), strict=True):
            heads = wide(before).reshape(tokens, -1, size)
            turned, terms = rotated(heads[..., :width], *(table[:, None] for table in doubled), mode)
            expected = np.concatenate([turned, heads[..., width:]], -1).reshape(before.shape)
            terms = np.concatenate([terms, np.abs(heads[..., width:])], -1).reshape(before.shape)
            assert_near(result, expected, terms)


# ---- norms -----------------------------------------------------------------------------------------------


def draw_norm(draw):
    """x, gamma, the number of normalized dimensions and epsilon."""
    dtype, rank = draw.of(FLOATS), draw.size(1, 2)
    shape = [draw.size(1, 5) for _ in range(draw.size(1, 2))] + [draw.size(1, 30) for _ in range(rank)]
    return (
        draw.tensor(*shape, dtype=dtype),
        draw.tensor(*shape[-rank:], dtype=dtype),
        rank,
        draw.of((1e-6, 1e-3)),
    )


def check_npu_rms_norm():
    for draw in draws():
        x, gamma, rank, epsilon = draw_norm(draw)
        if draw.of((False, True)):
            gamma = gamma.float()
        y, rstd = torch_npu.npu_rms_norm(x.npu(), gamma.npu(), epsilon)
        scale = reciprocal_rms(wide(x), rank, epsilon)
        roundings = norm_roundings(gamma.numel())
        assert rstd.dtype == torch.float32
        assert_near(rstd, scale, float_roundings=roundings)
        assert_near(y, wide(x) * scale * wide(gamma), float_roundings=roundings)


def check_npu_rms_norm_backward():
    for draw in draws():
        x, gamma, rank, epsilon = draw_norm(draw)
        dy = draw.tensor(*x.shape, dtype=x.dtype)
        on_npu = [tensor.npu().requires_grad_() for tensor in (x, gamma)]
        torch_npu.npu_rms_norm(*on_npu, epsilon)[0].backward(dy.npu())
        g, x, gamma = wide(dy, x, gamma)
        axes, scale = tuple(range(-rank, 0)), reciprocal_rms(x, rank, epsilon)
        normalized, weighted = x * scale, g * gamma
        mean = (weighted * normalized).mean(axes, keepdims=True)
        mean_size = np.abs(weighted * normalized).mean(axes, keepdims=True)
        size = (np.abs(weighted) + np.abs(normalized) * mean_size) * scale
        roundings = 2 * norm_roundings(gamma.size)
        assert_near(on_npu[0].grad, (weighted - normalized * mean) * scale, size, float_roundings=roundings)
        rows = (-1, *gamma.shape)
        products = (g * normalized).reshape(rows)
        roundings += len(products)
        # torch_npu rounds the float32 result to the type of gamma.
        assert_near(on_npu[1].grad, products.sum(0), np.abs(products).sum(0), float_roundings=roundings)


def check_npu_gemma_rms_norm():
    for draw in draws():
        x, gamma, rank, epsilon = draw_norm(draw)
        y, rstd = torch_npu.npu_gemma_rms_norm(x.npu(), gamma.npu(), epsilon)
        scale, roundings = reciprocal_rms(wide(x), rank, epsilon), norm_roundings(gamma.numel())
        assert_near(rstd, scale, float_roundings=roundings)
        assert_near(y, wide(x) * scale * (1 + wide(gamma)), float_roundings=roundings)


def assert_added_norm(x1, x2, gamma, rank, epsilon, y, rstd, x):
    total, roundings = wide(x1) + wide(x2), norm_roundings(gamma.numel())
    rounded_sum = (x1.float() + x2.float()).to(x1.dtype)
    assert torch.equal(x.cpu(), rounded_sum)
    # The kernel rounds the sum, whose error also changes the root mean square, x * rstd, and y.
    of_sum = 0 if x1.dtype == torch.float32 else 1
    scale = reciprocal_rms(total, rank, epsilon)
    # The sum's error is relative to the largest sum of a row, as small sums stand beside large ones.
    assert_near(
        rstd, scale, scale * (1 + of_sum * UNIT[x1.dtype] / UNIT[torch.float32]), float_roundings=roundings
    )
    assert_near(y, total * scale * wide(gamma), roundings=4, float_roundings=roundings)


def check_npu_add_rms_norm():
    for draw in draws():
        x1, gamma, rank, epsilon = draw_norm(draw)
        x2 = draw.tensor(*x1.shape, dtype=x1.dtype)
        results = torch_npu.npu_add_rms_norm(x1.npu(), x2.npu(), gamma.npu(), epsilon)
        assert_added_norm(x1, x2, gamma, rank, epsilon, *results)


def check_npu_add_rms_norm_v2():
    for draw in draws():
        x1, gamma, rank, epsilon = draw_norm(draw)
        x2 = draw.tensor(*x1.shape, dtype=x1.dtype)
        y, x = x1.npu(), x2.npu()
        rstd = torch_npu.npu_add_rms_norm_v2(y, x, gamma.npu(), epsilon)
        assert_added_norm(x1, x2, gamma, rank, epsilon, y, rstd, x)


def check_npu_kv_rmsnorm_rope_cache():
    for draw in draws():
        dtype, mode = draw.of(HALVES), draw.of(("Norm", "PA", "PA_BNSD", "PA_BLK_BNSD"))
        batch, tokens, blocks, block = draw.size(1, 3), draw.size(1, 5), draw.size(3, 5), 16
        rows = tokens + draw.size(0, 3)
        kv = draw.tensor(batch, 1, tokens, 576, dtype=dtype)
        gamma = draw.tensor(512, dtype=dtype)
        cos, sin = (draw.tensor(batch, 1, tokens, 64, dtype=dtype) for _ in range(2))
        outer = (batch, 1, rows) if mode == "Norm" else (blocks, block, 1)
        caches = [torch.full((*outer, size), 9.0, dtype=dtype).npu() for size in (64, 512)]
        if mode == "Norm":
            index = np.stack([draw.rng.permutation(rows)[:tokens] for _ in range(batch)])
            written = index + rows * np.arange(batch)[:, None]
        elif "BLK" in mode:
            index = block * draw.rng.permutation(blocks)[:batch]
            written = index[:, None] + np.arange(tokens)
        else:
            index = draw.rng.permutation(blocks * block)[: batch * tokens]
            written = index
        with_output = draw.of((False, True))
        results = torch_npu.npu_kv_rmsnorm_rope_cache(
            kv.npu(), gamma.npu(), cos.npu(), sin.npu(), torch.from_numpy(index).npu(), *caches,
            cache_mode=mode, is_output_kv=with_output,
        )  # fmt: skip
        x, rope = np.split(wide(kv), [512], -1)
        normalized = x * reciprocal_rms(x, 1, 1e-5) * wide(gamma)
        turned = rotated(np.concatenate([rope[..., ::2], rope[..., 1::2]], -1), *wide(cos, sin))
        expected = [turned, (normalized, np.abs(normalized))]
        for cache, result, out, (values, size) in zip(
            caches, results[:2], results[2:], expected, strict=True
        ):
            assert cache.data_ptr() == result.data_ptr()
            flat, last = cache.view(-1, cache.shape[-1]), values.shape[-1]
            assert_near(
                flat[written.ravel()], values.reshape(-1, last), size.reshape(-1, last), float_roundings=24
            )
            assert np.all(np.delete(wide(flat), written.ravel(), axis=0) == 9)
            if with_output and mode != "Norm":
                assert_near(out, values, size, float_roundings=24)


def check_npu_swiglu():
    for draw in draws():
        dtype = draw.of(FLOATS)
        shape = [draw.size(1, 6), draw.size(1, 6), 2 * draw.size(1, 40)]
        dim = draw.of((-1, 2))
        x = (4 * draw.tensor(*shape, dtype=dtype)).to(dtype)
        y = torch_npu.npu_swiglu(x.npu(), dim=dim)
        gate, value = np.split(wide(x), 2, dim)
        # exp's relative error is that of its argument, of up to 4, and of the function, of two roundings.
        assert_near(y, gate / (1 + np.exp(-gate)) * value, float_roundings=12)


def check_npu_swiglu_backward():
    for draw in draws():
        dtype, dim = draw.of(FLOATS), draw.of((-1, 1))
        multiple = 64 // dtype.itemsize  # the document requires rows of 64 bytes
        shape = [draw.size(1, 6), 2 * draw.size(1, 4), 2 * multiple * draw.size(1, 2)]
        x = (4 * draw.tensor(*shape, dtype=dtype)).to(dtype)
        on_npu = x.npu().requires_grad_()
        y = torch_npu.npu_swiglu(on_npu, dim=dim)
        dy = draw.tensor(*y.shape, dtype=dtype)
        y.backward(dy.npu())
        gate, value = np.split(wide(x), 2, dim)
        g, s = wide(dy), 1 / (1 + np.exp(-gate))
        slope = s * (1 + gate * (1 - s))
        expected = np.concatenate([g * value * slope, g * gate * s], dim)
        slope_size = s * (1 + np.abs(gate) * (1 - s))
        size = np.abs(np.concatenate([g * value * slope_size, g * gate * s], dim))
        assert_near(on_npu.grad, expected, size, float_roundings=20)


# ---- calls that break a rule -----------------------------------------------------------------------------


def tensor(*shape, dtype=torch.float16):
    return torch.ones(shape, dtype=dtype).npu()


def assert_refused(message, work):
    text = refusal(work)
    assert message in text, text


def check_rotary_calls_that_break_a_rule():
    mul, apply = torch_npu.npu_rotary_mul, torch_npu.npu_apply_rotary_pos_emb
    x, table = tensor(2, 5, 3, 64), tensor(1, 5, 1, 64)
    assert_refused("half or interleave, but got quarter", lambda: mul(x, table, table, "quarter"))
    large, large_table = tensor(1, 2, 3, 896), tensor(1, 2, 1, 896)
    assert_refused("be even and less than 896 but got 896", lambda: mul(large, large_table, large_table))
    assert_refused(
        "cos must have a documented shape", lambda: mul(x, tensor(1, 5, 3, 64), tensor(1, 5, 3, 64))
    )
    assert_refused("cos must have 4 dimensions", lambda: mul(x, tensor(5, 1, 64), tensor(5, 1, 64)))
    per_batch = tensor(2, 5, 1, 64)
    assert_refused("cos must have a documented shape", lambda: mul(x, per_batch, per_batch, "interleave"))
    many = tensor(300, 2, 8, 8).requires_grad_()
    tables = tensor(1, 2, 1, 8).requires_grad_(), tensor(1, 2, 1, 8)
    assert_refused("be at most 1024", lambda: mul(many, *tables).sum().backward())
    query, key, rows = tensor(1, 5, 4, 128), tensor(1, 5, 2, 128), tensor(1, 5, 1, 128)
    assert_refused("layout must be 1 (BSND) but got 3", lambda: apply(query, key, rows, rows, layout="BNSD"))
    assert_refused(
        "rotary_mode must be half but got interleave",
        lambda: apply(query, key, rows, rows, rotary_mode="interleave"),
    )
    assert_refused(
        "should be half/quarter/interleave", lambda: apply(query, key, rows, rows, rotary_mode="x")
    )
    assert_refused("the last dimension of query must be 128", lambda: apply(x, x, per_batch, per_batch))
    one = tensor(1, 1, 1, 128)
    assert_refused("cos must have the shape [1,5,1,128]", lambda: apply(query, key, one, one))
    many = tensor(1, 1, 153, 128)
    assert_refused("196608 bytes of UB", lambda: apply(many, one, one, one))


def check_reordering_and_cached_calls_that_break_a_rule():
    interleave, mrope = torch_npu.npu_interleave_rope, torch_npu.npu_mrope
    x, table = tensor(2, 3, 5, 64), tensor(2, 1, 5, 64)
    narrow, narrow_table = tensor(2, 3, 5, 32), tensor(2, 1, 5, 32)
    assert_refused("must be 64 but got 32", lambda: interleave(narrow, narrow_table, narrow_table))
    assert_refused("cos must have the shape", lambda: interleave(x, tensor(1, 1, 5, 64), tensor(1, 1, 5, 64)))
    wide_type = [t.float() for t in (x, table, table)]
    assert_refused("x must be float16 or bfloat16", lambda: interleave(*wide_type))
    assert_refused("x must be contiguous", lambda: interleave(x.transpose(1, 2), table, table))
    positions = torch.arange(5).npu()

    def call(size, width, sections=(0, 0, 0), positions=positions, dtype=torch.float16, mode="half"):
        tensors = [
            tensor(5, 2 * size, dtype=dtype),
            tensor(5, size, dtype=dtype),
            tensor(9, width, dtype=dtype),
        ]
        return mrope(positions, *tensors, size, mrope_section=list(sections), rotary_mode=mode)

    assert_refused("head_size must be a multiple of 32", lambda: call(48, 32))
    assert_refused("at most head_size but got 64", lambda: call(32, 64))
    assert_refused("mrope_section must be [16,24,24] or NULL", lambda: call(128, 128, (24, 20, 20)))
    assert_refused("positions must have the shape [3,5]", lambda: call(128, 128, (16, 24, 24)))
    assert_refused("positions must be int64", lambda: call(64, 64, positions=positions.int()))
    assert_refused("rotary_mode", lambda: call(64, 64, mode="quarter"))


def check_norm_calls_that_break_a_rule():
    x, gamma = tensor(2, 3, 32), tensor(32)
    for function in (torch_npu.npu_rms_norm, torch_npu.npu_gemma_rms_norm):
        assert_refused("gamma must have the last dimensions of x", lambda f=function: f(x, tensor(3)))
        assert_refused("epsilon must be at least 0", lambda f=function: f(x, gamma, -1.0))
        assert_refused("gamma must be float16", lambda f=function: f(x, gamma.bfloat16()))
        assert_refused("x must be", lambda f=function: f(x.int(), gamma.int()))
    assert_refused(
        "gamma must be float16 but got float32", lambda: torch_npu.npu_gemma_rms_norm(x, gamma.float())
    )
    add = torch_npu.npu_add_rms_norm
    assert_refused("x2 must have the shape [2,3,32]", lambda: add(x, tensor(2, 3, 1), gamma))
    assert_refused("gamma must be float16 but got float32", lambda: add(x, x, gamma.float()))
    assert_refused("gamma must have the last dimensions of x1", lambda: add(x, x, tensor(3)))
    strided = tensor(2, 3, 64)[..., ::2]
    assert_refused("x1 must be contiguous", lambda: torch_npu.npu_add_rms_norm_v2(strided, x, gamma))


def check_cache_calls_that_break_a_rule():
    def call(mode="PA", size=576, scale=None, block=16, gamma=512, tables=3, index=6):
        return torch_npu.npu_kv_rmsnorm_rope_cache(
            tensor(2, 1, 3, size), tensor(gamma), tensor(2, 1, tables, 64), tensor(2, 1, tables, 64),
            torch.arange(index).npu(), tensor(3, block, 1, 64), tensor(3, block, 1, 512),
            k_rope_scale=scale, cache_mode=mode,
        )  # fmt: skip

    call()
    assert_refused("cache_mode must be Norm, PA", lambda: call("PA_X"))
    assert_refused("kv must have the shape [2,1,3,576]", lambda: call(size=512))
    assert_refused("k_cache must be a multiple of 16 but got 24", lambda: call(block=24))
    assert_refused("gamma must have the shape [512]", lambda: call(gamma=64))
    assert_refused("cos must have the shape [2,1,3,64]", lambda: call(tables=2))
    assert_refused("index must have the shape [6]", lambda: call(index=5))
    scale = tensor(64, dtype=torch.float32)
    assert_refused("k_cache must be int8 but got float16", lambda: call(scale=scale))


if __name__ == "__main__":
    run(globals())
