"""The term of torch_npu's rotary_mul that sin multiplies."""

import torch


def rotate(x, mode):
    """Return what torch_npu's documents of rotary_mul multiply by sin, for each mode."""
    if mode == "half":
        x1, x2 = x.chunk(2, -1)
        return torch.cat((-x2, x1), -1)
    if mode == "interleave":
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    x1, x2, x3, x4 = x.chunk(4, -1)
    return torch.cat((-x2, x1, -x4, x3), -1)
