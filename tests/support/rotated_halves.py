"""The rotated copy of x that torch_npu's rotary_mul multiplies by sin."""

import torch


def rotate(x, mode):
    """Return the factor of sin in the formula of rotary_mul in torch_npu's documentation, for each mode."""
    if mode == "half":
        x1, x2 = x.chunk(2, -1)
        return torch.cat((-x2, x1), -1)
    if mode == "interleave":
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    x1, x2, x3, x4 = x.chunk(4, -1)
    return torch.cat((-x2, x1, -x4, x3), -1)
