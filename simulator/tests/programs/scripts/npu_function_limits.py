"""Calls of torch_npu's functions that break one documented limit each, beside those of npu_functions.py.

Each check has a call within the limits, which must run, and the calls next to it.
"""

import torch
import torch_npu
from npu_functions import assert_refused, tensor
from run_checks import run


def check_rotary_mul():
    """aclnnRotaryPositionEmbedding.md, for Ascend910B."""
    mul = torch_npu.npu_rotary_mul
    x, table = tensor(2, 5, 3, 64), tensor(1, 5, 1, 64)
    mul(x, table, table)
    assert_refused(
        "must have 4 dimensions", lambda: mul(tensor(5, 3, 64), tensor(5, 1, 64), tensor(5, 1, 64))
    )
    odd, odd_table = tensor(2, 5, 3, 63), tensor(1, 5, 1, 63)
    assert_refused("be even and less than 896 but got 63", lambda: mul(odd, odd_table, odd_table))
    assert_refused("sin must have the shape [1,5,1,64] of cos", lambda: mul(x, table, tensor(2, 5, 1, 64)))
    narrow = tensor(1, 5, 1, 32)
    assert_refused("cos must have a documented shape", lambda: mul(x, narrow, narrow))
    shorter = tensor(1, 4, 1, 64)
    assert_refused("cos must have a documented shape", lambda: mul(x, shorter, shorter))
    for mode, fits, breaks in (
        ("half", (999, 2, 1, 8), (1000, 2, 1, 8)),  # B < 1000
        ("half", (1, 2, 999, 8), (1, 2, 1000, 8)),  # N < 1000
        ("interleave", (27, 2, 36, 8), (25, 2, 40, 8)),  # B * N < 1000
    ):
        rows = tensor(1, 2, 1, 8)
        mul(tensor(*fits), rows, rows, mode)
        many = tensor(*breaks)
        assert_refused(
            "cos must have a documented shape", lambda x=many, rows=rows, mode=mode: mul(x, rows, rows, mode)
        )


def check_apply_rotary_pos_emb():
    """aclnnApplyRotaryPosEmbV2.md."""
    apply = torch_npu.npu_apply_rotary_pos_emb
    query, key, rows = tensor(2, 5, 4, 128), tensor(2, 5, 2, 128), tensor(2, 5, 1, 128)
    apply(query, key, rows, rows)
    assert_refused(
        "key must have the shape [2,5,2,128]", lambda: apply(query, tensor(2, 6, 2, 128), rows, rows)
    )
    assert_refused(
        "key must have the shape [2,5,2,128]", lambda: apply(query, tensor(1, 5, 2, 128), rows, rows)
    )
    assert_refused("key must be float16 but got float32", lambda: apply(query, key.float(), rows, rows))
    assert_refused("cos must be float16 but got float32", lambda: apply(query, key, rows.float(), rows))
    assert_refused("sin must be float16 but got float32", lambda: apply(query, key, rows, rows.float()))
    assert_refused("sin must have the shape", lambda: apply(query, key, rows, tensor(2, 5, 2, 128)))
    flat = query.view(2, 5, 512)
    assert_refused("must have 4 dimensions", lambda: apply(flat, flat, flat, flat))


def check_interleave_rope():
    """interleave_rope/README.md."""
    interleave = torch_npu.npu_interleave_rope
    x, table = tensor(2, 3, 5, 64), tensor(2, 1, 5, 64)
    interleave(x, table, table)
    assert_refused("cos must have the shape", lambda: interleave(x, tensor(2, 3, 5, 64), tensor(2, 3, 5, 64)))
    assert_refused("sin must have the shape", lambda: interleave(x, table, tensor(2, 1, 1, 64)))
    assert_refused("cos must be float16", lambda: interleave(x, table.bfloat16(), table))
    assert_refused("cos must be contiguous", lambda: interleave(x, tensor(2, 1, 64, 5).mT, table))
    flat = x.view(6, 5, 64)
    assert_refused("must have 4 dimensions", lambda: interleave(flat, flat, flat))


def check_mrope():
    """aclnnRopeWithSinCosCache.md and its README."""
    positions, query, key, cache = torch.arange(5).npu(), tensor(5, 128), tensor(5, 64), tensor(9, 64)

    def call(positions=positions, query=query, key=key, cache=cache, size=64):
        return torch_npu.npu_mrope(positions, query, key, cache, size, mrope_section=[0, 0, 0])

    call()
    assert_refused("query_in must have the shape [5,N*64]", lambda: call(query=tensor(5, 96)))
    assert_refused("key_in must have the shape [5,N*64]", lambda: call(key=tensor(4, 64)))
    assert_refused("key_in must be float16", lambda: call(key=key.float()))
    assert_refused("cos_sin_cache must be float16", lambda: call(cache=cache.float()))
    assert_refused("positions must have the shape [5]", lambda: call(positions=torch.arange(4).npu()))
    assert_refused("head_size must be a multiple of 32", lambda: call(size=256, query=tensor(5, 256)))
    assert_refused("be a multiple of 32", lambda: call(cache=tensor(9, 48)))
    whole = [t.float() for t in (tensor(5, 48), tensor(5, 48), tensor(9, 48))]
    call(positions, *whole, size=48)  # float32 has multiples of 16
    wide = [t.float() for t in (tensor(5, 40), tensor(5, 40), tensor(9, 32))]
    assert_refused("head_size must be a multiple of 16", lambda: call(positions, *wide, size=40))


def check_rms_norms():
    """aclnnRmsNorm.md and aclnnGemmaRmsNorm.md."""
    for norm in (torch_npu.npu_rms_norm, torch_npu.npu_gemma_rms_norm):
        norm(tensor(*[1] * 7, 32), tensor(32))
        deep = tensor(*[1] * 8, 32)
        assert_refused("dimensions", lambda norm=norm, deep=deep: norm(deep, tensor(32)))
        x = tensor(2, 3, 32)
        assert_refused("gamma must", lambda norm=norm, x=x: norm(x, tensor(2, 3, 1)))
        assert_refused("gamma must have elements", lambda norm=norm: norm(tensor(2, 0), tensor(0)))


def check_add_rms_norm():
    """aclnnAddRmsNorm.md."""
    add, x, gamma = torch_npu.npu_add_rms_norm, tensor(2, 3, 32), tensor(32)
    add(x, x, gamma)
    assert_refused("x2 must be float16 but got float32", lambda: add(x, x.float(), gamma))
    assert_refused("x2 must have the shape [2,3,32]", lambda: add(x, tensor(3, 32), gamma))
    assert_refused("epsilon must be at least 0", lambda: add(x, x, gamma, -1e-6))
    assert_refused("x1 must be", lambda: add(x.int(), x.int(), gamma.int()))
    deep = tensor(*[1] * 8, 32)
    assert_refused("dimensions", lambda: add(deep, deep, gamma))


def check_swiglu():
    """aclnnSwiGlu.md."""
    swiglu, x = torch_npu.npu_swiglu, tensor(3, 4, 6)
    swiglu(x, dim=-2)
    assert_refused("x must have an even size along dim but got 3", lambda: swiglu(x, dim=0))
    assert_refused("dim", lambda: swiglu(x, dim=3))
    assert_refused("dim", lambda: swiglu(x, dim=-4))
    assert_refused("x must be", lambda: swiglu(x.int()))
    assert_refused("dimensions", lambda: swiglu(tensor(*[1] * 8, 2)))


if __name__ == "__main__":
    run(globals())
