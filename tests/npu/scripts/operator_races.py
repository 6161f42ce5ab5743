"""Two programs, each with one race of a kernel, with and without the missing wait (simulator's races.py).

usage: operator_races.py NAME|with-waits
"""

import torch
from races import WITH_WAITS, first, run, second

import npu_rope

PARAMS = npu_rope.RopeParams(64, "neox")


def missing_wait_after_a_kernel():
    x = torch.ones(4, 2, 64, device="npu")
    positions = torch.arange(4, device="npu") + 7
    out, copied = torch.zeros_like(x), torch.zeros_like(x)
    torch.npu.synchronize()
    with torch.npu.stream(first):
        npu_rope.rope(x, positions, PARAMS, out=out)
    if WITH_WAITS:
        second.wait_stream(first)
    with torch.npu.stream(second):
        copied.copy_(out)
    torch.npu.synchronize()
    return torch.equal(copied.cpu(), out.cpu())


def missing_wait_before_a_kernel():
    x = torch.zeros(4, 2, 64, device="npu")
    positions = torch.arange(4, device="npu")
    out = torch.zeros_like(x)
    torch.npu.synchronize()
    with torch.npu.stream(first):
        x.add_(1)
    if WITH_WAITS:
        second.wait_stream(first)
    with torch.npu.stream(second):
        npu_rope.rope(x, positions, PARAMS, out=out)
    torch.npu.synchronize()
    return bool(out.cpu()[0].eq(1).all())


if __name__ == "__main__":
    run((missing_wait_after_a_kernel, missing_wait_before_a_kernel))
