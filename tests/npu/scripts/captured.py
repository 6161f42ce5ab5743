"""Run COUNT rounds of calls that a graph could capture. They write to existing memory, and the script does
not wait between them.

usage: captured.py COUNT
"""

import sys

import torch
import torch_npu  # noqa: F401

import npu_rope

PARAMS = npu_rope.RopeParams(64, "neox")

x = torch.randn(1, 4, 6, 64, device="npu")
q, k = x[:, :, :4], x[:, :, 4:]
positions = torch.arange(4, device="npu")
rows = torch.arange(4, device="npu")[None]
out, cache = torch.empty_like(x), torch.zeros(16, 2, 64, device="npu")
torch.npu.synchronize()
for _ in range(int(sys.argv[1])):
    npu_rope.rope(x, positions, PARAMS, out=out)
    npu_rope.rope_(x, positions, PARAMS)
    npu_rope.rope_qk_(q, k, positions, PARAMS)
    npu_rope.rope_set_rows(k, positions, rows, cache, PARAMS)
