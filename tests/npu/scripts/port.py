"""A port to Ascend as a user would write it: rotated queries and keys, a cache of keys, a gradient.

usage: port.py — prints JSON: the error of each result against float64, in units of its dtype's rounding.
"""

import json

import torch
import torch_npu  # noqa: F401

import npu_rope

BATCH, TOKENS, HEADS, KV_HEADS, WIDTH = 2, 5, 8, 2, 128
PARAMS = npu_rope.RopeParams(WIDTH, "neox", freq_base=500_000.0)


def error(got, expected):
    """Return the largest error in units of the dtype's rounding of the largest expected value."""
    unit = torch.finfo(got.dtype).eps / 2 * expected.abs().max()
    return ((got.cpu().double() - expected).abs().max() / unit).item()


def main():
    torch.manual_seed(0)
    device = torch.device("npu:0")
    positions = torch.arange(100_000, 100_000 + TOKENS)
    found = {}
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        name = str(dtype).removeprefix("torch.")
        fused = torch.randn(BATCH, TOKENS, HEADS + 2 * KV_HEADS, WIDTH).to(dtype)
        on_npu, at = fused.to(device), positions.to(device)
        q, k = on_npu[:, :, :HEADS], on_npu[:, :, HEADS : HEADS + KV_HEADS]
        expected = npu_rope.rope(fused.double(), positions, PARAMS)
        found[f"rope {name}"] = error(npu_rope.rope(q, at, PARAMS), expected[:, :, :HEADS])
        rotated_q, rotated_k = npu_rope.rope_qk(q, k, at, PARAMS)
        found[f"rope_qk {name}"] = max(
            error(rotated_q, expected[:, :, :HEADS]),
            error(rotated_k, expected[:, :, HEADS : HEADS + KV_HEADS]),
        )
        cache = torch.zeros(64, KV_HEADS, WIDTH, dtype=dtype, device=device)
        slots = torch.arange(7, 7 + BATCH * TOKENS, device=device).view(BATCH, TOKENS)
        npu_rope.rope_set_rows(k, at, slots, cache, PARAMS)
        rows = cache[slots.flatten()].view(BATCH, TOKENS, KV_HEADS, WIDTH)
        found[f"rope_set_rows {name}"] = error(rows, expected[:, :, HEADS : HEADS + KV_HEADS])
        x = on_npu.clone().requires_grad_()
        npu_rope.rope(x, at, PARAMS).float().square().sum().backward()
        found[f"gradient {name}"] = error(x.grad, 2 * fused.double()) / 4
        in_place = on_npu.clone()
        torch.ops.npu_rope.rope_(in_place, at, n_dims=WIDTH, rope_mode=2, freq_base=500_000.0)
        found[f"rope_ {name}"] = error(in_place, expected)
    torch.npu.synchronize()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
