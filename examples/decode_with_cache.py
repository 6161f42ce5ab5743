"""Decode with a paged KV cache: a new key is rotated, rounded to float16 and written to its slot in one call.

Needs torch. The result is compared with attention over all tokens at once.
"""

import torch

from npu_rope import RopeParams, rope, rope_set_rows

torch.manual_seed(0)
HEADS, KEY_HEADS, HEAD_SIZE, SLOTS, TOKENS = 8, 2, 64, 256, 40
params = RopeParams(HEAD_SIZE, "neox", freq_base=500_000.0)
q, k, v = (torch.randn(1, TOKENS, n, HEAD_SIZE) for n in (HEADS, KEY_HEADS, KEY_HEADS))
positions = torch.arange(TOKENS)


def attention(q, k, v, mask=None):
    """Attend from q [1,S,N,D] to k and v [1,T,M,D]; return [1,S,N,D]."""
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
    return y.transpose(1, 2)


keys = torch.zeros(SLOTS, KEY_HEADS, HEAD_SIZE, dtype=torch.float16)
values = torch.zeros_like(keys)
slots = torch.randperm(SLOTS)[:TOKENS]  # in arbitrary order, as a pager assigns them
decoded = []
for t in range(TOKENS):
    position = positions[t : t + 1]
    rope_set_rows(k[:, t : t + 1], position, slots[None, t : t + 1], keys, params)
    values[slots[t]] = v[0, t].half()
    past_slots = slots[: t + 1]
    query = rope(q[:, t : t + 1], position, params)
    decoded.append(attention(query, keys[past_slots][None].float(), values[past_slots][None].float()))

mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
expected = attention(rope(q, positions, params), rope(k, positions, params), v, mask)
worst = (torch.cat(decoded, 1) - expected).abs().max()
print(f"{TOKENS} tokens decoded into {SLOTS} slots of float16")
print("equal to attention over all tokens at once, within the cache's rounding:", bool(worst < 2e-3))
