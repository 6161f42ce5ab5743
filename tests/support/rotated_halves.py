"""The tensor that the formulas of torch_npu's rotary_mul multiply by sin."""

import torch


def signed_partners(x, mode):
    """Return each lane's partner, negated for the first lane of a pair. The modes are those of rotary_mul."""
    if mode == "half":
        x1, x2 = x.chunk(2, -1)
        return torch.cat((-x2, x1), -1)
    if mode == "interleave":
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    x1, x2, x3, x4 = x.chunk(4, -1)
    return torch.cat((-x2, x1, -x4, x3), -1)
