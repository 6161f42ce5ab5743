"""qkv_norm_rope_cache and qk_square_sums on NPU tensors as a serving engine uses it.

usage: qkv.py — prints JSON: the result of every check.
"""

import functools
import re

import torch
import torch_npu  # noqa: F401
from run_checks import near, run, values

from npu_rope import RopeParams, qk_square_sums, qkv_norm_rope_cache
from npu_rope.compat import torch_npu as compat

TOKENS, HEADS, SIZE = 33, (4, 2, 2), 64
PARAMS = RopeParams(SIZE, "neox")


def views(device, dtype=torch.float32):
    """Return q, k and v, views of one fused tensor."""
    return values(TOKENS, sum(HEADS), SIZE, dtype=dtype).to(device).split(HEADS, dim=1)


def agree(call, units=2):
    """Check that a call has the same results on the NPU and on the CPU."""
    for on_npu, on_cpu in zip(call("npu"), call("cpu"), strict=True):
        assert on_npu.device.type == "npu"
        assert on_npu.shape == on_cpu.shape
        if on_cpu.numel() == 0:
            continue
        if on_cpu.dtype is torch.int8:  # a value near the middle of two numbers
            assert (on_npu.cpu().int() - on_cpu.int()).abs().max() <= 1
        else:
            near(on_npu, on_cpu, units=units)


def check_caches_of_each_type():
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for cache_type in (dtype, torch.int8):
            for index in (torch.int32, torch.int64):
                agree(lambda device: stored(device, dtype, cache_type, index))  # noqa: B023


def stored(device, dtype, cache_type, index):
    """Store into blocks of 16 rows that lie head by head. Return the queries and the caches."""
    caches = torch.zeros(2, 5, 2, 16, SIZE, dtype=cache_type, device=device).transpose(2, 3)
    scale = values(SIZE, dtype=dtype, seed=1).to(device)
    slots = torch.arange(70, 70 - 2 * TOKENS, -2).to(index)
    slots[3] = -1
    named = {"slots": slots.to(device), "k_cache": caches[0], "v_cache": caches[1]}
    if cache_type is torch.int8:
        named |= {"k_quant_scale": torch.full((2,), 20.0, device=device)}
        named |= {"v_quant_scale": torch.full((1,), 20.0, device=device)}
    positions = torch.arange(TOKENS, dtype=index, device=device)
    results = qkv_norm_rope_cache(
        *views(device, dtype), positions, PARAMS, q_scale=scale, k_scale=scale, **named
    )
    assert results[1].data_ptr() == caches[0].data_ptr()
    return results


def check_slots_outside_the_caches_are_skipped():
    """The host does not read the slots."""
    outside = [40, -2, 2**31 - 1, -(2**31)]
    for index, step in ((torch.int64, 1), (torch.int64, 2), (torch.int32, 1)):
        caches = torch.zeros(2, 40, 2, SIZE, device="npu")
        rows = torch.full((TOKENS * step,), 3)
        for token in range(TOKENS):
            rows[token * step] = token if token % 2 else outside[token // 2 % len(outside)]
        slots = rows.to(index).to("npu")[::step]
        q, k, v = views("npu")
        named = {"slots": slots, "k_cache": caches[0], "v_cache": caches[1]}
        qkv_norm_rope_cache(q, k, v, torch.arange(TOKENS, device="npu"), PARAMS, **named)
        written = caches.cpu().flatten(2).any(-1)
        expected = torch.arange(40) % 2 * (torch.arange(40) < TOKENS)
        assert written.equal(expected.bool().expand(2, 40)), (index, step, written)


def check_parameters_of_two_types_and_tables():
    def call(device):
        q_scale, k_scale = values(4 * SIZE, seed=1), values(2 * SIZE, dtype=torch.float16, seed=2)
        table = values(50, SIZE, dtype=torch.float16, seed=3)
        rows = torch.arange(TOKENS) + 9
        named = {"cos": table[:, : SIZE // 2], "sin": table[:, SIZE // 2 :], "q_scale": q_scale}
        named = {name: tensor.to(device) for name, tensor in {**named, "k_scale": k_scale}.items()}
        q, k, v = views(device, torch.float16)
        results = qkv_norm_rope_cache(q, k, v, rows.to(device), PARAMS, **named)
        assert results[2] is v
        return results[:2]

    agree(call)


def check_in_place_without_norm():
    def call(device):
        q, k, v = views(device)
        qkv_norm_rope_cache(q, k, v, torch.arange(TOKENS, device=device), PARAMS, out=(q, k, v))
        return q, k, v

    agree(call)


def check_gradients():
    grads = []
    for device in ("npu", "cpu"):
        q, k, _ = (x.detach().clone().requires_grad_() for x in views(device))
        scale = values(SIZE, seed=1).to(device).requires_grad_()
        positions = torch.arange(TOKENS, device=device)
        a, b, _ = qkv_norm_rope_cache(q, k, None, positions, PARAMS, q_scale=scale, k_scale=scale)
        (a.square().sum() + (b**3).sum()).backward()
        grads.append((q.grad, k.grad, scale.grad))
    for on_npu, on_cpu in zip(*grads, strict=True):
        near(on_npu, on_cpu, units=16)


def check_gradients_with_given_sums():
    grads = []
    for device in ("npu", "cpu"):
        q, k, _ = (x.detach().clone().requires_grad_() for x in views(device))
        scales = [values(n * SIZE, seed=n).to(device).requires_grad_() for n in (q.shape[1], k.shape[1])]
        sums = (qk_square_sums(q, k).detach() * 2).requires_grad_()
        named = {"q_scale": scales[0], "k_scale": scales[1], "square_sums": sums, "ranks": 2}
        positions = torch.arange(TOKENS, device=device)
        a, b, _ = qkv_norm_rope_cache(q, k, None, positions, PARAMS, **named)
        (a.square().sum() + (b**3).sum()).backward()
        grads.append((q.grad, k.grad, *(scale.grad for scale in scales), sums.grad))
    for on_npu, on_cpu in zip(*grads, strict=True):
        near(on_npu, on_cpu, units=16)


def check_sums_of_squares():
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        agree(lambda device: (qk_square_sums(*views(device, dtype)[:2]),))  # noqa: B023
        agree(lambda device: (qk_square_sums(*(x[:, :, ::2] for x in views(device, dtype)[:2])),))  # noqa: B023
    # A few long tokens, whose heads are on several cores.
    agree(lambda device: (qk_square_sums(*(values(2, n, 4096, seed=n).to(device) for n in (100, 20))),))
    for heads in ((0, 2), (4, 0), (0, 0)):
        agree(lambda device: (qk_square_sums(*(values(TOKENS, n, SIZE).to(device) for n in heads)),))  # noqa: B023
    assert qk_square_sums(*(values(0, 2, 8).to("npu") for _ in "qk")).shape == (0, 2)


def check_a_norm_over_all_heads_of_two_ranks():
    """Each rank has half of the heads; the sums are added as all_reduce adds them."""

    def call(device):
        q, k, _ = views(device, torch.float16)
        ranks = [(q[:, 2 * rank : 2 * rank + 2], k[:, rank : rank + 1]) for rank in range(2)]
        sums = qk_square_sums(*ranks[0]) + qk_square_sums(*ranks[1])
        results = []
        for rank, xs in enumerate(ranks):
            scales = [values(n * SIZE, dtype=torch.float16, seed=rank + n).to(device) for n in (2, 1)]
            named = {"q_scale": scales[0], "k_scale": scales[1], "square_sums": sums, "ranks": 2}
            positions = torch.arange(TOKENS, device=device)
            results += qkv_norm_rope_cache(*xs, None, positions, PARAMS, **named)[:2]
        return results

    agree(call)


def check_gradients_of_sums():
    grads = []
    for device in ("npu", "cpu"):
        q, k, _ = (x.detach().clone().requires_grad_() for x in views(device))
        qk_square_sums(q, k).square().sum().backward()
        grads.append((q.grad, k.grad))
    for on_npu, on_cpu in zip(*grads, strict=True):
        near(on_npu, on_cpu, units=16)


def check_bad_sums_are_refused():
    q, k, _ = views("npu")
    refused = {
        "q must have shape [S,N,D] but got [4, 64]": (q[0], k),
        "k must have q's dtype float32 but got float16": (q, k.half()),
        "k must be on q's device npu:0 but got cpu": (q, k.cpu()),
    }
    for text, given in refused.items():
        message = "no error"
        try:
            qk_square_sums(*given)
        except (TypeError, ValueError) as error:
            message = str(error)
        assert text in message, message


def check_sides_without_heads_values_of_another_size_and_caches_of_two_types():
    """Latent attention stores keys without queries; other layers have shorter values than keys."""
    for kept in ("q", "k", "v", "kv", "qkv"):
        agree(lambda device: partly_stored(device, kept))  # noqa: B023


def partly_stored(device, kept):
    """Store the kept sides, of which values have another head size, into an int8 cache and a float32 one."""
    tokens, caches, shapes = 21, [], {"q": (3, 96), "k": (2, 96), "v": (2, 64)}
    xs = {
        name: values(tokens, heads, size, dtype=torch.float16).to(device)[:, : heads * (name in kept)]
        for name, (heads, size) in shapes.items()
    }
    for name, dtype in (("k", torch.int8), ("v", torch.float32)):
        caches.append(torch.zeros(40, *xs[name].shape[1:], dtype=dtype, device=device))
    named = {"slots": torch.arange(40, 40 - tokens, -1, device=device) - 1, "k_cache": caches[0]}
    named |= {"v_cache": caches[1], "k_quant_scale": torch.full((1,), 20.0, device=device)}
    scale = values(96, dtype=torch.float16, seed=1).to(device)
    scales = {f"{name}_scale": scale for name in "qk" if name in kept}
    positions = torch.arange(tokens, device=device)
    return qkv_norm_rope_cache(*xs.values(), positions, RopeParams(64, n_offs=32), **named, **scales)


def check_bad_calls_are_refused():
    q, k, v = views("npu")
    positions = torch.arange(TOKENS, device="npu")
    cache = torch.zeros(40, 2, SIZE, device="npu")
    named = {"slots": positions, "k_cache": cache, "v_cache": cache.to(torch.int16)}
    refused = {
        "v_cache must be float32, float16, bfloat16 or int8 but got int16": (positions, named),
        "positions must be on q's device npu:0 but got cpu": (positions.cpu(), {}),
    }
    for text, (given, arguments) in refused.items():
        message = "no error"
        try:
            qkv_norm_rope_cache(q, k, v, given, PARAMS, **arguments)
        except (TypeError, ValueError) as error:
            message = str(error)
        assert text in message, message
    assert not cache.cpu().any()


# The caches' types, the scale or offset that is given, and the refusal.
FLOAT, INT8 = torch.float32, torch.int8
BAD_STORES = (
    (INT8, FLOAT, (), "k_scale must be given for an int8 k_cache but got None."),
    (FLOAT, INT8, (), "v_scale must be given for an int8 v_cache but got None."),
    (FLOAT, FLOAT, ("k_scale",), "k_scale must be given for an int8 k_cache only but got float32."),
    (FLOAT, FLOAT, ("k_offset",), "k_offset must be given for an int8 k_cache only but got float32."),
    (INT8, FLOAT, ("k_offset",), "k_scale must be given for an int8 k_cache but got None."),
    (torch.int32, FLOAT, (), "k_cache must be float32, float16, bfloat16 or int8 but got int32."),
)
OF_KV = {
    "k_scale": "k_rope_scale",
    "k_offset": "k_rope_offset",
    "v_scale": "c_kv_scale",
    "v_cache": "ckv_cache",
}


def refusal_of_store(call, written):
    """Return the error of a call that must leave the written tensors, full of 9, as they are."""
    message = "no error"
    try:
        call()
    except (TypeError, ValueError) as error:
        message = str(error)
    assert all(bool((tensor.cpu() == 9).all()) for tensor in written), f"written, and then: {message}"
    return message


def full(device, dtype, *shape):
    return torch.full(shape, 9, dtype=dtype).to(device)


def bad_store_of_kv(device, mode, types, named):
    """Return the error of npu_kv_rmsnorm_rope_cache with caches of two types."""
    tables = [values(2, 1, 5, 32, seed=seed).to(device) for seed in (1, 2)]
    caches = [full(device, dtype, 4, 8, 1, 32) for dtype in types]
    given = values(2, 1, 5, 64).to(device), torch.ones(32, device=device), *tables
    index = torch.arange(10, device=device)
    named = {OF_KV[name]: torch.ones(1, device=device) for name in named}
    return refusal_of_store(
        lambda: compat.npu_kv_rmsnorm_rope_cache(*given, index, *caches, cache_mode=mode, **named), caches
    )


def bad_store_of_qkv(device, types, named):
    """Return the error of npu_qkv_rms_norm_rope_cache with caches of two types."""
    widths = [32 // dtype.itemsize for dtype in types]
    caches = [full(device, dtype, 2, 32 // w, 8, w) for dtype, w in zip(types, widths, strict=True)]
    q_out, gamma = full(device, torch.float32, 4, 32), torch.ones(32, device=device)
    tables = [values(4, 32, seed=seed).to(device) for seed in (1, 2)]
    index = torch.arange(4, device=device)
    given = values(4, 96).to(device), gamma, gamma, *tables, index, q_out, *caches, [1, 4, 3, 32], [1, 1, 1]
    named = {name: torch.ones(1, device=device) for name in named}
    return refusal_of_store(lambda: compat.npu_qkv_rms_norm_rope_cache(*given, **named), (q_out, *caches))


def check_bad_stores_of_torch_npu_s_names_are_refused_before_a_write():
    for *types, named, text in BAD_STORES:
        of_kv = re.sub(r"\w+", lambda word: OF_KV.get(word[0], word[0]), text)
        for device in ("cpu", "npu"):
            got = bad_store_of_qkv(device, types, named)
            assert got == f"[npu_qkv_rms_norm_rope_cache] {text}", (device, got)
            for mode in ("PA_BNSD", "PA_NZ"):
                got = bad_store_of_kv(device, mode, types, named)
                assert got == f"[npu_kv_rmsnorm_rope_cache] {of_kv}", (device, mode, got)


def arguments_of_kv(device, mode):
    """Return the tensors of npu_kv_rmsnorm_rope_cache by name, and a call of it with them."""
    given = {"kv": values(2, 1, 5, 64), "gamma": torch.ones(32), "cos": values(2, 1, 5, 32, seed=1)}
    given |= {"sin": values(2, 1, 5, 32, seed=2), "index": torch.arange(10)}
    caches = {name: full(device, torch.int8, 4, 8, 1, 32) for name in ("k_cache", "ckv_cache")}
    factors = {
        name: torch.ones(32) for name in ("k_rope_scale", "k_rope_offset", "c_kv_scale", "c_kv_offset")
    }
    given = {name: t.to(device) for name, t in {**given, **factors}.items()} | caches
    return given, functools.partial(compat.npu_kv_rmsnorm_rope_cache, cache_mode=mode)


def arguments_of_qkv(device, mode):
    """Return the tensors of npu_qkv_rms_norm_rope_cache by name, and a call of it with them."""
    given = {"qkv": values(4, 96), "q_gamma": torch.ones(32), "k_gamma": torch.ones(32)}
    given |= {"cos": values(4, 32, seed=1), "sin": values(4, 32, seed=2), "index": torch.arange(4)}
    written = {"q_out": full(device, torch.float32, 4, 32)}
    written |= {name: full(device, torch.int8, 2, 1, 8, 32) for name in ("k_cache", "v_cache")}
    factors = {name: torch.ones(32) for name in ("k_scale", "k_offset", "v_scale", "v_offset")}
    given = {name: t.to(device) for name, t in {**given, **factors}.items()} | written
    sizes = {"qkv_size": [1, 4, 3, 32], "head_nums": [1, 1, 1], "cache_mode": mode}
    return given, functools.partial(compat.npu_qkv_rms_norm_rope_cache, **sizes)


def overlapped(first, second):
    """Return tensors like two others. The last eight bytes of the first one are the first ones of the
    other."""
    start = first.numel() * first.element_size() - 8
    memory = torch.full((start // 8 + second.numel() * second.element_size() // 8,), 9, device=first.device)
    parts = memory[: start // 8 + 1], memory[start // 8 :]
    return [part.view(t.dtype).view(t.shape) for part, t in zip(parts, (first, second), strict=True)]


def check_no_written_tensor_of_torch_npu_s_names_shares_memory_or_needs_a_gradient():
    written = ("q_out", "k_cache", "ckv_cache", "v_cache")
    cases = (arguments_of_kv, "PA_BNSD"), (arguments_of_kv, "PA_NZ"), (arguments_of_qkv, "PA_NZ")
    for make, mode in cases:
        tensors, call = make("npu", mode)
        op = call.func.__name__
        for name in (name for name in tensors if name in written):
            for other in (other for other in tensors if other != name):
                given = dict(tensors)
                given[name], given[other] = overlapped(tensors[name], tensors[other])
                assert given[other].data_ptr() - given[name].data_ptr() == tensors[name].nbytes - 8
                both = [t.cpu() for t in given.values()]
                got = refusal_of_store(functools.partial(call, **given), ())
                last, first = sorted((name, other), key=lambda n: written.index(n) if n in written else -1)[
                    ::-1
                ]
                rule = f"{last} must share no memory with {first} but got overlapping memory."
                assert got == f"[{op}] {rule}", (mode, name, other, got)
                assert all(torch.equal(t.cpu(), old) for t, old in zip(given.values(), both, strict=True))
        for name in (name for name, t in tensors.items() if t.is_floating_point()):
            given = {**tensors, name: tensors[name].clone().requires_grad_()}
            outs = [given[out] for out in written if out in given]
            got = refusal_of_store(functools.partial(call, **given), [out.detach() for out in outs])
            assert got.startswith(f"[{op}] {name} must not need a gradient but got one that does."), got


def check_caches_of_torch_npu_s_names_share_no_memory_with_inputs():
    texts = {"k_cache": "kv", "ckv_cache": "k_cache"}
    for cache, other in texts.items():
        for device in ("cpu", "npu"):
            memory, apart = (full(device, torch.float32, 4, 8, 1, 32) for _ in range(2))
            kv = values(2, 1, 5, 64).to(device)
            if other == "kv":
                kv = memory.flatten()[: kv.numel()].view(kv.shape)
            caches = (memory, apart) if other == "kv" else (memory, memory)
            table, index = values(2, 1, 5, 32).to(device), torch.arange(10, device=device)
            given = kv, torch.ones(32, device=device), table, table, index, *caches
            call = functools.partial(compat.npu_kv_rmsnorm_rope_cache, *given, cache_mode="PA_BNSD")
            got = refusal_of_store(call, (memory, apart))
            rule = f"{cache} must share no memory with {other} but got overlapping memory."
            assert got == f"[npu_kv_rmsnorm_rope_cache] {rule}", (device, got)


run(globals())
