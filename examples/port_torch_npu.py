"""Port a torch_npu script by one import. It then also takes CPU tensors; NPU tensors use npu_rope's kernels.

Before:  import torch_npu
After:   import npu_rope.compat.torch_npu as torch_npu
"""

import torch

import npu_rope.compat.torch_npu as torch_npu

torch.manual_seed(0)
BATCH, HEADS, TOKENS, HEAD_SIZE = 2, 4, 16, 64
query, key = torch.randn(BATCH, HEADS, TOKENS, HEAD_SIZE), torch.randn(BATCH, 2, TOKENS, HEAD_SIZE)
hidden, residual, gamma = torch.randn(BATCH, TOKENS, 256), torch.randn(BATCH, TOKENS, 256), torch.rand(256)
angles = torch.arange(TOKENS)[:, None] * 10000.0 ** (-torch.arange(HEAD_SIZE // 2) / (HEAD_SIZE // 2))
cos, sin = (t.repeat(1, 2)[None, None] for t in (angles.cos(), angles.sin()))  # [1, 1, S, D]

lengths = query.norm(dim=-1)
query = torch_npu.npu_rotary_mul(query, cos, sin)
key = torch_npu.npu_rotary_mul(key, cos, sin, "half")
normed, rstd, total = torch_npu.npu_add_rms_norm(hidden, residual, gamma, 1e-6)

print("query", list(query.shape), "key", list(key.shape))
print("rotated heads keep their length:", torch.allclose(query.norm(dim=-1), lengths))
print("normed", list(normed.shape), "rstd", list(rstd.shape))
print("the sum is hidden + residual:", torch.equal(total, hidden + residual))
expected = (hidden + residual) * torch.rsqrt((hidden + residual).pow(2).mean(-1, keepdim=True) + 1e-6) * gamma
print("the norm equals its formula:", torch.allclose(normed, expected, atol=1e-5))
