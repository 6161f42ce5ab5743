"""qkv_norm_rope_cache on NPU tensors as a serving engine uses it.

usage: qkv.py — prints JSON: the result of every check.
"""

import torch
import torch_npu  # noqa: F401
from run_checks import near, run, values

from npu_rope import RopeParams, qkv_norm_rope_cache

TOKENS, HEADS, SIZE = 33, (4, 2, 2), 64
PARAMS = RopeParams(SIZE, "neox")


def views(device, dtype=torch.float32):
    """Return q, k and v, views of one fused tensor."""
    return values(TOKENS, sum(HEADS), SIZE, dtype=dtype).to(device).split(HEADS, dim=1)


def agree(call, units=2):
    """Check that a call has the same results on the NPU and on the CPU."""
    for on_npu, on_cpu in zip(call("npu"), call("cpu"), strict=True):
        assert on_npu.device.type == "npu"
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


def check_bad_calls_are_refused():
    q, k, v = views("npu")
    positions = torch.arange(TOKENS, device="npu")
    cache = torch.zeros(40, 2, SIZE, device="npu")
    named = {"slots": positions, "k_cache": cache, "v_cache": cache.half()}
    refused = {
        "v_cache must have k_cache's dtype float32 on an NPU but got float16": (positions, named),
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


run(globals())
