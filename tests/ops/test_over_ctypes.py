"""Without the C++ registration, torch's operators of the rotations run over ctypes."""

from __future__ import annotations

import pytest

SCRIPT = """
import sys
import torch
from npu_rope import RopeParams, backends, rope, rope_, rope_qk, rope_qk_, rope_set_rows
from npu_rope import rotary_embedding, rotary_mul, rotary_mul_, rotary_mul_backward, rotary_mul_qk
from npu_rope.ops.calls import packed_attributes

assert backends.torch_registration() is None
assert "torch._dynamo" not in sys.modules  # the compiler's import takes longer than npu_rope's
OPS, PARAMS, ATTRIBUTES = torch.ops.npu_rope, RopeParams(4, "neox"), {"n_dims": 4, "rope_mode": 2}
PACKED = torch.frombuffer(bytearray(backends.packed_call(PARAMS, True, "exact")), dtype=torch.uint8)
q, k, p = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 2, 4), torch.arange(3)
want_q, want_k = (torch.from_numpy(rope(x.numpy(), p.numpy(), PARAMS)) for x in (q, k))


def check(*got):
    for y, wanted in zip(got, (want_q, want_k)):
        assert torch.equal(y, wanted)


def fresh():
    return torch.empty_like(q), torch.empty_like(k)


check(rope(q, p, PARAMS))
check(rope_(q.clone(), p, PARAMS))
check(OPS.rope(q, p, **ATTRIBUTES))
out, _ = fresh()
OPS.rope_out(q, p, **ATTRIBUTES, out=out)
check(out)

check(*rope_qk(q, k, p, PARAMS))
check(*rope_qk_(q.clone(), k.clone(), p, PARAMS))
check(*OPS.rope_qk(q, k, p, **ATTRIBUTES))
out = q.clone(), k.clone()
OPS.rope_qk_(*out, p, **ATTRIBUTES)
check(*out)
out = fresh()
OPS.rope_qk_out(q, k, p, **ATTRIBUTES, q_out=out[0], k_out=out[1])
check(*out)
out = q.clone(), torch.empty_like(k)
OPS.rope_qk_packed_out(*out, out[0], k, p, PACKED)
check(*out)
out = q.clone(), k.clone()
OPS.rope_qk_packed_(*out, p, PACKED)
check(*out)
spaced = torch.stack([q, q], -1).flatten(-2)[..., ::2], torch.stack([k, k], -1).flatten(-2)[..., ::2]
check(*rope_qk(*spaced, p, PARAMS))

rows, caches = torch.tensor([[4, 0, -1], [1, 2, 3]]), torch.zeros(3, 6, 2, 4, dtype=torch.float16)
rope_set_rows(k, p, rows, caches[0], PARAMS)
OPS.rope_set_rows(k, p, rows, caches[1], **ATTRIBUTES)
OPS.rope_set_rows_packed_(k, p, rows, caches[2], PACKED)
want = torch.zeros(6, 2, 4, dtype=torch.float16)
want[rows[rows >= 0]] = want_k[rows >= 0].half()
assert all(torch.equal(cache, want) for cache in caches)

cos, sin = torch.randn(3, 4), torch.randn(3, 4)
want_q, want_k = (torch.from_numpy(rotary_mul(x.numpy(), cos.numpy(), sin.numpy())) for x in (q, k))
check(rotary_mul(q, cos, sin))
check(rotary_mul_(q.clone(), cos, sin))
check(rotary_mul(q, cos, sin, out=torch.empty_like(q)))
check(*rotary_mul_qk(q, k, cos, sin))
check(*rotary_mul_qk(q, k, cos, sin, out=fresh()))
check(*rotary_mul_qk(spaced[0], spaced[1], cos, sin))
TABLES = packed_attributes("rotary_mul_qk", (False, 0, 0, True))
heads_first = OPS.rotary_mul_qk_heads_first(q.transpose(1, 2), k.transpose(1, 2), cos, sin, TABLES)
check(*(y.transpose(1, 2) for y in heads_first))
neighbours = (x.transpose(1, 2).unflatten(-1, (2, 2)).transpose(-1, -2).flatten(-2) for x in (q, k))
check(*(y.transpose(1, 2) for y in OPS.rotary_mul_qk_to_halves(*neighbours, cos, sin)))
leaf = q.clone().requires_grad_()
rotary_mul(leaf, cos, sin).sum().backward()
assert torch.equal(leaf.grad, rotary_mul_backward(torch.ones_like(q), q, cos, sin)[0])
ids, heads_first = torch.tensor([[0, 2, 1], [1, 1, 0]]), q.transpose(1, 2)
want = rotary_embedding(heads_first.numpy(), cos.numpy(), sin.numpy(), ids.numpy())
assert torch.equal(rotary_embedding(heads_first, cos, sin, ids), torch.from_numpy(want))

for call in (
    lambda: rotary_mul(q, cos, sin[:2]),
    lambda: rope_qk(q, k[:1], p, PARAMS),
    lambda: rope_qk(q, k, p, PARAMS, out=(q, q)),
    lambda: rope_set_rows(k, p, rows + 2, caches[0], PARAMS),
    lambda: OPS.rope_set_rows_packed_(k, p, rows, caches[0], PACKED[1:]),
):
    try:
        call()
    except (ValueError, RuntimeError) as error:
        print(error)
"""

MESSAGES = """\
[rotary_mul] sin must have cos's shape [3, 4] but got [2, 4].
[rope_qk] k must have q's shape [2, 3, 5, 4] except for the heads but got [1, 3, 2, 4].
[rope_qk] k_out must have k's shape [2, 3, 2, 4] but got [2, 3, 5, 4].
[rope_set_rows] rows must be -1 or a row of the cache's 6 but got 6.
[rope_set_rows] packed must be the 88 contiguous bytes of packed_call but got another tensor.
"""


@pytest.mark.torch
def test_the_rotations_work_over_ctypes_without_the_registration(run_without_registration):
    assert run_without_registration(SCRIPT) == MESSAGES
