"""rotary_mul, rotary_mul_qk and rotary_embedding on NPU tensors as torch uses them.

usage: tables.py — prints JSON: the result of every check.
"""

import torch
import torch_npu  # noqa: F401
from run_checks import near, run, values

from npu_rope import rotary_embedding, rotary_mul, rotary_mul_, rotary_mul_qk, rotary_mul_qk_
from npu_rope.compat import torch_npu as compat

OPS = torch.ops.npu_rope


def inputs(dtype=torch.float32):
    """Return x, cos and sin. The tables have one entry for each lane."""
    return values(2, 5, 3, 64, dtype=dtype), values(5, 64, seed=1), values(5, 64, seed=2)


def error_of(call):
    """Return the built-in class and the message of a refused call's error."""
    try:
        call()
    except (ValueError, TypeError, RuntimeError) as error:
        kind = next(c for c in (ValueError, TypeError, RuntimeError) if isinstance(error, c))
        return f"{kind.__name__}: {error}"
    raise AssertionError("no error")


def check_gradients_of_x_and_tables():
    for interleaved in (False, True):
        grads = []
        for device in ("cpu", "npu"):
            given = [t.to(device).requires_grad_() for t in inputs()]
            y = rotary_mul(given[0] * 2, *given[1:], interleaved=interleaved)
            (y * values(2, 5, 3, 64, seed=3).to(device)).sum().backward()
            grads.append([t.grad for t in given])
        for on_npu, on_cpu in zip(*reversed(grads), strict=True):
            near(on_npu, on_cpu, units=8)


def check_gradients_of_queries_and_keys():
    grads = []
    for device in ("cpu", "npu"):
        q, k = (values(1, 5, n, 64, seed=n).to(device).requires_grad_() for n in (4, 2))
        _, cos, sin = inputs()
        a, b = rotary_mul_qk(q, k, cos.to(device), sin.to(device))
        (a.square().sum() + (b**3).sum()).backward()
        grads.append((q.grad, k.grad))
    for on_npu, on_cpu in zip(*reversed(grads), strict=True):
        near(on_npu, on_cpu, units=8)


def check_full_graph_compilation():
    def step(x, y, cos, sin):
        rotary_mul_(y, cos, sin, interleaved=True)
        return rotary_mul(x + 1, cos, sin) * 2 + y

    x, cos, sin = inputs()
    expected = step(x, x.clone(), cos, sin)
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    near(compiled(x.npu(), x.npu(), cos.npu(), sin.npu()), expected, units=4)


def check_every_variant():
    x, cos, sin = inputs()
    k, rest = values(2, 5, 1, 64, seed=5), (False, 0, 0, True)
    y, z = rotary_mul_qk(x, k, cos, sin)
    c, s = cos.npu(), sin.npu()
    near(OPS.rotary_mul(x.npu(), c, s, *rest), y)
    a, b = x.npu(), k.npu()
    assert OPS.rotary_mul_(a, c, s, *rest) is None
    near(a, y)
    a = torch.empty_like(a)
    OPS.rotary_mul_out(x.npu(), c, s, a, *rest)
    near(a, y)
    for got, expected in zip(OPS.rotary_mul_qk(x.npu(), b, c, s, *rest), (y, z), strict=True):
        near(got, expected)
    a = x.npu()
    rotary_mul_qk_(a, b, c, s)
    near(a, y), near(b, z)
    a, b = torch.empty_like(a), torch.empty_like(b)
    OPS.rotary_mul_qk_out(x.npu(), k.npu(), c, s, a, b, *rest)
    near(a, y), near(b, z)


def check_every_type_with_tables_of_its_own_and_of_float32():
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for wide in (False, True):
            x, cos, sin = inputs(dtype)
            cos, sin = (t if wide else t.to(dtype) for t in (cos, sin))
            near(rotary_mul(x.npu(), cos.npu(), sin.npu()), rotary_mul(x, cos, sin))


def check_onnx_s_layouts():
    caches = values(9, 40, seed=1), values(9, 40, seed=2)  # more columns than are read
    ids = torch.tensor([[3, 8, 0, 1, 1], [2, 7, 7, 4, 0]])
    x = values(2, 3, 5, 64)
    for index in (torch.int64, torch.int32):
        for given, heads in ((x, {}), (x.transpose(1, 2).reshape(2, 5, 192), {"num_heads": 3})):
            for options in ({}, {"interleaved": 1}, {"rotary_embedding_dim": 24}):
                read = (given, *caches, ids.to(index))
                near(
                    rotary_embedding(*(t.npu() for t in read), **heads, **options),
                    rotary_embedding(*read, **heads, **options),
                )
                read = (given, *(cache[ids] for cache in caches))
                near(
                    rotary_embedding(*(t.npu() for t in read), **heads, **options),
                    rotary_embedding(*read, **heads, **options),
                )


def check_onnx_in_place_and_out():
    x, caches, ids = (
        values(2, 3, 5, 64),
        (values(9, 32, seed=1), values(9, 32, seed=2)),
        torch.arange(5).repeat(2, 1),
    )
    expected = rotary_embedding(x, *caches, ids)
    given = [t.npu() for t in (*caches, ids)]
    a = x.npu()
    assert rotary_embedding(a, *given, out=a) is a
    near(a, expected)
    out = torch.empty(2, 5, 3, 64).npu().transpose(1, 2)
    assert rotary_embedding(x.npu(), *given, out=out) is out
    near(out, expected)


def check_positions_outside_the_cache_read_the_nearest_row():
    """The host does not read the positions' values: docs/ops/rotary_embedding.md."""
    x, caches = values(1, 2, 6, 64), (values(9, 32, seed=1), values(9, 32, seed=2))
    far = torch.tensor([[-1, -(2**40), 9, 2**40, (1 << 32) + 3, 4]])
    nearest = torch.tensor([[0, 0, 8, 8, 8, 4]])
    got = rotary_embedding(x.npu(), *(c.npu() for c in caches), far.npu())
    near(got, rotary_embedding(x, *caches, nearest))
    narrow = torch.tensor([[-1, -9, 9, 100, 3, 4]], dtype=torch.int32)
    got = rotary_embedding(x.npu(), *(c.npu() for c in caches), narrow.npu())
    near(got, rotary_embedding(x, *caches, torch.tensor([[0, 0, 8, 8, 3, 4]])))


def check_gradients_of_positions_outside_the_cache():
    given = values(1, 2, 4, 64), values(5, 32, seed=1), values(5, 32, seed=2)
    grads = []
    for device, ids in (("npu", [[-1, 0, 1, 9]]), ("cpu", [[0, 0, 1, 4]])):
        leaves = [t.to(device).requires_grad_() for t in given]
        rotary_embedding(*leaves, torch.tensor(ids).to(device)).pow(2).sum().backward()
        grads.append([t.grad for t in leaves])
    for on_npu, on_cpu in zip(*grads, strict=True):
        near(on_npu, on_cpu, units=8)


def check_views():
    _, cos, sin = inputs()
    both = torch.cat((cos, sin), -1).npu()  # cos and sin are read as views of one tensor
    heads_first = values(2, 3, 5, 64).npu().transpose(1, 2)
    near(rotary_mul(heads_first, both[:, :64], both[:, 64:]), rotary_mul(heads_first.cpu(), cos, sin))


def check_tables_for_all_batches_are_expanded_views():
    x, cos, sin = inputs()
    c, s = (t[None].expand(2, 5, 64) for t in (cos, sin))
    near(
        rotary_mul(x.npu(), cos.npu()[None].expand(2, 5, 64), sin.npu()[None].expand(2, 5, 64)),
        rotary_mul(x, c, s),
    )


def check_empty_calls():
    _, cos, sin = (t.npu() for t in inputs())
    for shape in ((0, 5, 3, 64), (2, 0, 3, 64), (2, 5, 0, 64)):
        x = torch.empty(shape).npu()
        tokens = shape[1]
        assert rotary_mul(x, cos[:tokens], sin[:tokens]).shape == shape
    q, k = torch.empty(2, 5, 0, 64).npu(), values(2, 5, 2, 64)
    _, z = rotary_mul_qk(q, k.npu(), cos, sin)
    near(z, rotary_mul(k, cos.cpu(), sin.cpu()))


def check_bad_calls_are_refused_with_the_operator_s_message():
    x, cos, sin = (t.npu() for t in inputs())
    ids = torch.zeros(2, 3, dtype=torch.int64).npu()
    rule = "must have shape [S,W], [B,S,W] or [B,S,1,W] with S = 5, B = 2 or 1 and W = 32 or 64 but got"
    no_row = "must have a row where position_ids is given but got"
    for call, text in (
        (lambda: rotary_mul(x, cos[:4], sin), f"ValueError: [rotary_mul] cos {rule} [4, 64]."),
        (
            lambda: OPS.rotary_mul(x, cos[:4], sin, False, 0, 0, True),
            f"ValueError: [rotary_mul] cos {rule} [4, 64].",
        ),
        (
            lambda: rotary_mul(x, cos, sin.half()),
            "TypeError: [rotary_mul] sin must have cos's dtype float32 but got float16.",
        ),
        (
            lambda: rotary_mul(x.int(), cos, sin),
            "TypeError: [rotary_mul] x must be float32, float16, bfloat16 or float64 but got int32.",
        ),
        (
            lambda: rotary_mul(torch.empty(1, 1, 1, 1026).npu(), *torch.empty(2, 1, 513).npu()),
            "ValueError: [rotary_mul] x must have a head size of at most 1024 on an NPU but got 1026.",
        ),
        (
            lambda: rotary_mul(x, cos, sin, out=x[:, :, :, 0:64].flip(1)[:, :4]),
            "ValueError: [rotary_mul] out must have x's shape [2, 5, 3, 64] but got [2, 4, 3, 64].",
        ),
        (
            lambda: rotary_embedding(x, cos[:, :32], sin[:, :32], ids[:, :2]),
            "ValueError: [rotary_embedding] position_ids must have shape [B, S] = [2, 3] but got [2, 2].",
        ),
        (
            lambda: rotary_embedding(x, cos[:0, :32], sin[:0, :32], ids),
            f"ValueError: [rotary_embedding] cos_cache {no_row} [0, 32].",
        ),
    ):
        got = error_of(call)
        assert got == text, got


def check_tensors_of_two_devices_are_refused():
    x, cos, sin = inputs()
    ids = torch.zeros(2, 3, dtype=torch.int64)
    half_cos, half_sin, npu = cos[:, :32], sin[:, :32], torch.Tensor.npu
    for call in (
        lambda: rotary_mul(npu(x), cos, npu(sin)),
        lambda: rotary_mul(npu(x), npu(cos), sin),
        lambda: rotary_mul(x, npu(cos), npu(sin)),
        lambda: rotary_mul(npu(x), npu(cos), npu(sin), out=x),
        lambda: rotary_mul_(npu(x), cos, npu(sin)),
        lambda: rotary_mul_qk(npu(x), x, npu(cos), npu(sin)),
        lambda: rotary_embedding(npu(x), npu(half_cos), npu(half_sin), ids),
        lambda: rotary_embedding(npu(x), half_cos, npu(half_sin), npu(ids)),
    ):
        text = error_of(call)
        assert text.startswith("ValueError: [rotary_"), text
        assert " must be on " in text, text


def check_compat():
    x, cos, sin = values(2, 3, 5, 64), values(1, 1, 5, 64, seed=1), values(1, 1, 5, 64, seed=2)
    for mode in compat.ROTARY_MODES:
        got = compat.npu_rotary_mul(x.npu(), cos.npu(), sin.npu(), mode)
        near(got, compat.npu_rotary_mul(x, cos, sin, mode), units=4)
    q, k, c, s = (
        values(2, 5, 4, 64),
        values(2, 5, 2, 64),
        values(2, 5, 1, 64, seed=1),
        values(2, 5, 1, 64, seed=2),
    )
    got = compat.npu_apply_rotary_pos_emb(*(t.npu() for t in (q, k, c, s)))
    for on_npu, on_cpu in zip(got, compat.npu_apply_rotary_pos_emb(q, k, c, s), strict=True):
        near(on_npu, on_cpu)
    near(compat.npu_interleave_rope(x.npu(), cos.npu(), sin.npu()), compat.npu_interleave_rope(x, cos, sin))
    given = torch.tensor([0, 3, 8, 1, 1]), values(5, 256), values(5, 128, seed=3), values(9, 32, seed=1)
    got = compat.npu_mrope(*(t.npu() for t in given), 64)
    for on_npu, on_cpu in zip(got, compat.npu_mrope(*given, 64), strict=True):
        near(on_npu, on_cpu)


run(globals())
