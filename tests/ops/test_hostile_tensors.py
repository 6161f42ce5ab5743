"""Tensors whose memory was released, that torch negates lazily, or that lie elsewhere, are refused before
anything is written. tests/fuzz/coverage/fuzz_torch.py found these calls.
"""

from __future__ import annotations

import re

import pytest
import torch

import npu_rope
from npu_rope import RopeParams, backends

PARAMS = RopeParams(n_dims=8)
POSITIONS = torch.arange(3, dtype=torch.int32)
TABLE = torch.ones(3, 8)
SCALE = torch.ones(8)
operators = torch.ops.npu_rope


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(7))


def released(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same layout without memory, as FSDP leaves parameters between layers."""
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    copy.untyped_storage().resize_(0)
    return copy


# ---- released memory -----------------------------------------------------------------------------------


@pytest.mark.skipif(backends.torch_registration() is None, reason="the C++ registration was not built")
@pytest.mark.parametrize("which", ["q", "k"])
def test_released_memory_is_refused_where_pairs_become_halves(which):
    q, k = random(1, 2, 3, 8), random(1, 1, 3, 8)
    q, k = (released(q), k) if which == "q" else (q, released(k))
    with pytest.raises(RuntimeError, match=rf"^\[rotary_mul_qk\] {which} must have data but got NULL\.$"):
        operators.rotary_mul_qk_to_halves(q, k, TABLE, TABLE)


def test_released_memory_of_any_layout_is_refused():
    x = random(1, 3, 8, 2).transpose(2, 3)  # a tensor that must be copied to be read
    tensors = {"x": (released(x), TABLE, TABLE), "cos": (x, released(TABLE.T.contiguous().T), TABLE)}
    for name, arguments in tensors.items():
        with pytest.raises(ValueError, match=rf"^\[rotary_mul\] {name} must have data but got NULL\.$"):
            npu_rope.rotary_mul(*arguments)


def test_released_attributes_are_refused():
    packed = torch.tensor(list(backends.packed_call(PARAMS, True, "exact")), dtype=torch.uint8)
    x = random(3, 2, 8)
    before = x.clone()
    rule = f"packed must be the {len(packed)} contiguous bytes of packed_call"
    with pytest.raises(RuntimeError, match=rf"^\[rope\] {rule} but got another tensor\.$"):
        operators.rope_packed_(x, POSITIONS, released(packed))
    assert torch.equal(x, before)
    operators.rope_packed_(x, POSITIONS, packed)
    assert not torch.equal(x, before)


# ---- lazy negation -------------------------------------------------------------------------------------

PAIRS = {  # calls that write two tensors, and their names
    "rope_qk_": (lambda q, k: npu_rope.rope_qk_(q, k, POSITIONS, PARAMS), ("q", "k")),
    "rotary_mul_qk_": (lambda q, k: npu_rope.rotary_mul_qk_(q, k, TABLE, TABLE), ("q", "k")),
    "rms_norm_rope": (
        lambda q, k: npu_rope.rms_norm_rope(q, k, SCALE, SCALE, POSITIONS, PARAMS, out=(q, k)),
        ("q_out", "k_out"),
    ),
    "add_rms_norm": (
        lambda q, k: npu_rope.add_rms_norm(random(3, 2, 8), random(3, 2, 8), SCALE, out=(q, k)),
        ("out", "sum"),
    ),
    "rope_qk": (lambda q, k: operators.rope_qk_(q, k, POSITIONS, n_dims=8), ("q_out", "k_out")),
}


@pytest.mark.parametrize("negated", [0, 1])
@pytest.mark.parametrize("op", PAIRS)
def test_neither_of_two_results_is_written_if_torch_negates_one_lazily(op, negated):
    run, names = PAIRS[op]
    memory = [random(3, 2, 8), random(3, 2, 8)]
    tensors = [torch._neg_view(x) if i == negated else x for i, x in enumerate(memory)]
    before = [x.clone() for x in memory]
    rule = "must be written without a lazy negation but got a tensor with torch's bit for it"
    with pytest.raises(ValueError, match=rf"^\[{op}\] {names[negated]} {rule}\.$"):
        run(*tensors)
    assert all(torch.equal(x, y) for x, y in zip(memory, before, strict=True))


def test_an_operator_that_writes_reads_lazy_negations():
    x, out = random(3, 2, 8), torch.empty(3, 2, 8)
    operators.rope_out(torch._neg_view(x), POSITIONS, n_dims=8, out=out)
    assert torch.equal(out, npu_rope.rope(-x, POSITIONS, PARAMS))


# ---- other arguments -----------------------------------------------------------------------------------


def test_a_view_that_is_a_leaf_is_not_written():
    memory = random(3, 2, 8)
    leaf = memory.view(3, 2, 8).requires_grad_()
    before, part = memory.clone(), leaf[0:3]
    for write in (
        lambda: npu_rope.rope_(leaf, POSITIONS, PARAMS),
        lambda: npu_rope.rope_(part, POSITIONS, PARAMS),
        lambda: npu_rope.rope_qk_(random(3, 2, 8), part, POSITIONS, PARAMS),
        lambda: npu_rope.rotary_mul_(leaf, TABLE, TABLE),
        lambda: npu_rope.rotary_mul_(part, TABLE, TABLE),
    ):
        with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad is being used"):
            write()
        assert torch.equal(memory, before)


def test_views_of_one_tensor_are_not_written_if_only_the_tables_need_a_gradient():
    """After the copy into one view, torch refuses the copy into the other."""
    qkv = random(3, 3, 8)
    before, sin = qkv.clone(), random(3, 8).requires_grad_()
    rule = "must be no view of {0}'s tensor where {0} needs a gradient but got one".format
    with pytest.raises(ValueError, match=rf"^\[rotary_mul_qk_\] k {rule('q')}\.$"):
        npu_rope.rotary_mul_qk_(qkv[:, :2], qkv[:, 2:], TABLE, sin)
    scale = SCALE.clone().requires_grad_()
    with pytest.raises(ValueError, match=rf"^\[add_rms_norm\] sum {rule('out')}\.$"):
        npu_rope.add_rms_norm(random(3, 1, 8), random(3, 1, 8), scale, out=(qkv[:, :1], qkv[:, 1:2]))
    assert torch.equal(qkv, before)
    computed = random(3, 3, 8).requires_grad_() * 1
    q, k = npu_rope.rotary_mul_qk_(computed[:, :2], computed[:, 2:], TABLE, sin)
    assert (q.requires_grad, k.requires_grad) == (True, True)


def test_views_of_one_tensor_are_written_if_only_the_last_result_needs_a_gradient():
    q, k, memory = random(3, 2, 8), random(3, 1, 8).requires_grad_(), torch.empty(3, 3, 8)
    npu_rope.rotary_mul_qk(q, k, TABLE, TABLE, out=(memory[:, :2], memory[:, 2:]))
    expected = npu_rope.rotary_mul_qk(q, k, TABLE, TABLE)
    assert torch.equal(memory, torch.cat(expected, dim=1))
    assert memory.requires_grad


def test_neither_of_two_results_is_written_if_one_is_an_inference_tensor():
    x, given = random(3, 1, 8), random(3, 1, 8)
    with torch.inference_mode():
        inferred = random(3, 1, 8)
    scale, sin = SCALE.clone().requires_grad_(), TABLE.clone().requires_grad_()
    calls = {
        "[add_rms_norm] sum": lambda: npu_rope.add_rms_norm(x, x, scale, out=(given, inferred)),
        "[rotary_mul_qk] k_out": lambda: npu_rope.rotary_mul_qk(x, x, TABLE, sin, out=(given, inferred)),
        "[rotary_mul_qk_] k": lambda: npu_rope.rotary_mul_qk_(given, inferred, TABLE, sin),
        "[rms_norm] out": lambda: npu_rope.rms_norm(x, scale, out=inferred),
    }
    for name, call in calls.items():
        rule = "must be no inference tensor where a gradient is needed but got one."
        with pytest.raises(ValueError, match=f"^{re.escape(f'{name} {rule}')}$"):
            call()
        assert torch.equal(given, random(3, 1, 8))
        assert torch.equal(inferred, given)


def test_a_view_of_a_computed_tensor_has_the_error_of_torch():
    computed = random(3, 2, 8).requires_grad_() * 1
    with torch.no_grad():
        view = computed[0:3]
    with pytest.raises(RuntimeError, match="created in no_grad mode and is being modified inplace"):
        npu_rope.rope_(view, POSITIONS, PARAMS)


INFERRED = {
    "positions": (torch.inference_mode()(lambda: torch.arange(3))(), None),
    "freq_factors": (POSITIONS, torch.inference_mode()(lambda: torch.ones(4))()),
}
IN_PLACE = {
    "rope_": lambda x, _, *angles: npu_rope.rope_(x, angles[0], PARAMS, angles[1]),
    "rope": lambda x, _, *angles: npu_rope.rope(x, angles[0], PARAMS, angles[1], out=x),
    "rope_qk_": lambda q, k, *angles: npu_rope.rope_qk_(q, k, angles[0], PARAMS, angles[1]),
}


@pytest.mark.parametrize("op", IN_PLACE)
@pytest.mark.parametrize("name", INFERRED)
def test_nothing_is_rotated_if_autograd_cannot_save_an_inference_tensor(op, name):
    x, other = random(3, 2, 8).requires_grad_() * 1, random(3, 2, 8)
    before, version = x.detach().clone(), x._version
    rule = f"{name} must be no inference tensor where a gradient is needed but got one"
    with pytest.raises(ValueError, match=rf"^\[{op}\] {rule}\.$"):
        IN_PLACE[op](x, other, *INFERRED[name])
    assert torch.equal(x.detach(), before)
    assert (x._version, torch.equal(other, random(3, 2, 8))) == (version, True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit
@pytest.mark.parametrize("name", INFERRED)
def test_a_tangent_alone_is_rotated_with_inference_tensors(name):
    x, tangent = random(3, 2, 8), random(3, 2, 8)
    positions, factors = INFERRED[name]
    expected = npu_rope.rope(tangent, positions, PARAMS, factors)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, tangent)
        npu_rope.rope_(dual, positions, PARAMS, factors)
        assert torch.equal(torch.autograd.forward_ad.unpack_dual(dual).tangent, expected)


def test_both_tensors_have_their_gradients_if_a_hook_of_saved_tensors_fails():
    q, k = (random(3, 2, 8).requires_grad_() for _ in range(2))
    rotated = [q * 1, k * 1]

    def fail(_):
        raise MemoryError("no room")

    with (
        pytest.raises(MemoryError, match="no room"),
        torch.autograd.graph.saved_tensors_hooks(fail, lambda x: x),
    ):
        npu_rope.rope_qk_(*rotated, POSITIONS, PARAMS)
    assert [x._version for x in rotated] == [2, 2]
    assert all(type(x.grad_fn).__name__.startswith("RotatedInPlace") for x in rotated)


@pytest.mark.parametrize("angle", [-1, 3, 8, 2**31 - 1])
def test_a_policy_that_no_enumerator_has_is_refused(angle):
    x = random(3, 2, 8)
    with pytest.raises(RuntimeError, match=rf"^\[rope\] angle must be exact \(0\), .* but got {angle}\.$"):
        operators.rope(x, POSITIONS, n_dims=8, angle=angle)


def test_positions_without_values_are_refused_where_the_query_has_some():
    query = random(1, 3, 2, 8)
    start, pads = torch.tensor(3), torch.tensor([1])
    rule = "must have values but got a tensor on device meta"
    calls = {"start_pos": (start.to("meta"), pads), "pad_len": (start, pads.to("meta"))}
    for name, arguments in calls.items():
        with pytest.raises(ValueError, match=rf"^\[rotary_position_embedding\] {name} {rule}\.$"):
            npu_rope.rotary_position_embedding(query, query, *arguments)
    with pytest.raises(ValueError, match=rf"start_pos {rule}"):
        npu_rope.rotary_position_embedding(query.numpy(), query.numpy(), start.to("meta"))
    fake = query.to("meta")
    assert npu_rope.rotary_position_embedding(fake, fake, start.to("meta"))[0].shape == query.shape
    with pytest.raises(ValueError, match=rf"start_pos {rule}"):
        npu_rope.rotary_position_embedding(fake, fake, start.to("meta"), scaling_type="dynamic")


def test_a_start_may_have_more_dimensions_than_numpy_takes():
    query, start = random(1, 3, 2, 8), torch.tensor(5)
    many = start.reshape([1] * 70)
    for expected, found in zip(
        npu_rope.rotary_position_embedding(query, query, start),
        npu_rope.rotary_position_embedding(query, query, many),
        strict=True,
    ):
        assert torch.equal(found, expected)


def test_rotary_mul_backward_names_a_tensor_of_another_kind():
    grad, x = random(3, 2, 8), random(3, 2, 8)
    for message, arguments in {
        "grad must be on x's device cpu but got meta": (grad.to("meta"), x, TABLE, TABLE),
        "grad must be a NumPy array like x but got Tensor": (grad, x.numpy(), TABLE, TABLE),
        "grad must be a dense tensor but got torch.sparse_coo": (grad.to_sparse(), x, TABLE, TABLE),
        "sin must be a torch tensor or a NumPy array but got NoneType": (grad, x, TABLE, None),
    }.items():
        with pytest.raises((ValueError, TypeError), match=rf"^\[rotary_mul\] {message}\.$"):
            npu_rope.rotary_mul_backward(*arguments)
