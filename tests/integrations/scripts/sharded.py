"""Compare results of operators and a model on sharded tensors with those on full ones. Run by torchrun."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
import transformers
from torch.distributed.tensor import (
    DTensor,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
    init_device_mesh,
)
from torch.distributed.tensor.experimental import implicit_replication
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import npu_rope.integrations.dtensor  # noqa: F401 - registers the rules
from npu_rope import (
    RopeParams,
    add_rms_norm,
    rms_norm,
    rms_norm_rope,
    rope,
    rope_,
    rope_qk,
    rope_qk_,
    rope_set_rows,
    rotary_embedding,
    rotary_mul,
    rotary_mul_,
    rotary_mul_qk,
    rotary_position_embedding,
)
from npu_rope.integrations.transformers import apply_npu_rope

ALL, BATCH, TOKENS, HEADS = Replicate(), Shard(0), Shard(1), Shard(2)
PARAMS = RopeParams(16, "neox")
SECTIONS = RopeParams(16, "mrope", sections=(3, 3, 2, 0))
case_count = 0


def shard(t, placement):
    return distribute_tensor(t.detach().clone(), MESH, [placement])


def assert_close(got, expected, what):
    full = got.full_tensor()
    assert (full - expected).abs().max() <= 1e-5 * (1 + expected.abs().max()), what


def compare(what, run, tensors, placements, expected_placement, constant=()):
    """Compare results, their placement and gradients. The placement shows whether tensors were gathered."""
    global case_count
    full = [
        t.clone().requires_grad_(t.is_floating_point() and i not in constant) for i, t in enumerate(tensors)
    ]
    sharded = [
        shard(t, p).requires_grad_(w.requires_grad) for t, p, w in zip(tensors, placements, full, strict=True)
    ]
    wanted, got = run(*full), run(*sharded)
    wanted, got = ((r,) if isinstance(r, torch.Tensor) else r for r in (wanted, got))
    grads = [torch.randn(w.shape, generator=torch.Generator().manual_seed(1)) for w in wanted]
    for w, g in zip(wanted, got, strict=True):
        assert_close(g, w, what)
        assert g.placements == (expected_placement,), (what, g.placements)
    torch.autograd.backward(wanted, grads)
    torch.autograd.backward(got, [shard(g, r.placements[0]) for g, r in zip(grads, got, strict=True)])
    for w, s in zip(full, sharded, strict=True):
        if w.requires_grad:
            assert_close(s.grad, w.grad, f"{what}, gradient")
    case_count += 1


def compare_in_place(what, run, tensors, placements, written):
    global case_count
    full, sharded = (
        [t.clone() for t in tensors],
        [shard(t, p) for t, p in zip(tensors, placements, strict=True)],
    )
    run(*full), run(*sharded)
    assert_close(sharded[written], full[written], what)
    case_count += 1


def expect_error(what, run, tensors, placements):
    """Check that an output tensor with an unsupported placement is refused."""
    global case_count
    sharded = [shard(t, p) for t, p in zip(tensors, placements, strict=True)]
    message = ""
    try:
        run(*sharded)
    except ValueError as error:
        message = str(error)
    assert "placements must be one of (" in message, f"{what} was accepted: {message}"
    case_count += 1


def operators():
    torch.manual_seed(0)
    q, k, positions, scale = (
        torch.randn(2, 6, 4, 16),
        torch.randn(2, 6, 2, 16),
        torch.arange(6) + 3,
        torch.rand(16),
    )
    batch_positions = torch.stack((positions, positions + 9))
    angles = torch.rand(6, 8)
    cos, sin = angles.cos(), angles.sin()
    planes = torch.stack((positions, positions + 1, positions + 2, positions))
    rotate = lambda x, p: rope(x, p, PARAMS)  # noqa: E731
    for x_placement, p_placement in ((HEADS, ALL), (TOKENS, Shard(0)), (BATCH, ALL), (ALL, ALL)):
        compare("rope", rotate, (q, positions), (x_placement, p_placement), x_placement)
        rotate_qk = lambda a, b, p: rope_qk(a, b, p, PARAMS)  # noqa: E731
        compare("rope_qk", rotate_qk, (q, k, positions), (x_placement, x_placement, p_placement), x_placement)
        norm_rope = lambda a, b, s, t, p: rms_norm_rope(a, b, s, t, p, PARAMS)  # noqa: E731
        placements = (x_placement, x_placement, ALL, ALL, p_placement)
        compare("rms_norm_rope", norm_rope, (q, k, scale, scale + 1, positions), placements, x_placement)
        compare("rotary_mul", rotary_mul, (q, cos, sin), (x_placement, p_placement, p_placement), x_placement)
        compare(
            "rotary_mul_qk",
            rotary_mul_qk,
            (q, k, cos, sin),
            (x_placement, x_placement, p_placement, p_placement),
            x_placement,
        )
        compare("rms_norm", rms_norm, (q, scale), (x_placement, ALL), x_placement)
        compare("add_rms_norm", add_rms_norm, (q, q * 2, scale), (x_placement, x_placement, ALL), x_placement)
    for x_placement, p_placement in ((BATCH, Shard(0)), (TOKENS, Shard(1))):
        compare(
            "rope, positions for each batch",
            rotate,
            (q, batch_positions),
            (x_placement, p_placement),
            x_placement,
        )
    rotate_sections = lambda x, p: rope(x, p, SECTIONS)  # noqa: E731
    compare("sections", rotate_sections, (q, planes), (TOKENS, Shard(1)), TOKENS)
    compare("sections, flat", rotate_sections, (q, planes.flatten()), (HEADS, ALL), HEADS)
    compare("sections, flat, gathered", rotate_sections, (q, planes.flatten()), (TOKENS, ALL), ALL)
    compare("lanes are gathered", rotate, (q, positions), (Shard(3), ALL), ALL)
    heads_first, ids = q.transpose(1, 2).contiguous(), torch.randint(0, 6, (2, 6))
    for x_placement, ids_placement in ((Shard(1), ALL), (Shard(2), Shard(1)), (Shard(0), Shard(0))):
        placements = (x_placement, ALL, ALL, ids_placement)
        compare(
            "rotary_embedding",
            rotary_embedding,
            (heads_first, cos, sin, ids),
            placements,
            x_placement,
            constant=(1, 2),
        )
    pmx = lambda a, b: rotary_position_embedding(a, b, 5)  # noqa: E731
    with implicit_replication():  # the operator makes its own positions
        compare("rotary_position_embedding", pmx, (q, k), (HEADS, HEADS), HEADS)

    rotate_in_place = lambda x, p: rope_(x, p, PARAMS)  # noqa: E731
    compare_in_place("rope_", rotate_in_place, (q, positions), (HEADS, ALL), 0)
    compare_in_place(
        "rope_qk_",
        lambda a, b, p: rope_qk_(a, b, p, PARAMS),
        (q, k, positions),
        (TOKENS, TOKENS, Shard(0)),
        1,
    )
    compare_in_place("rotary_mul_", rotary_mul_, (q, cos, sin), (TOKENS, Shard(0), Shard(0)), 0)
    rows, cache = torch.randperm(20)[:12].reshape(2, 6), torch.zeros(20, 4, 16)
    scatter = lambda x, p, r, c: rope_set_rows(x, p, r, c, PARAMS)  # noqa: E731
    compare_in_place("rope_set_rows", scatter, (q, positions, rows, cache), (HEADS, ALL, ALL, Shard(1)), 3)
    norm_into = lambda x, s, o: rms_norm(x, s, out=o)  # noqa: E731
    compare_in_place("rms_norm, out", norm_into, (q, scale, q * 0), (TOKENS, ALL, TOKENS), 2)
    expect_error("a cache of sharded rows", scatter, (q, positions, rows, cache), (HEADS, ALL, ALL, Shard(0)))
    expect_error("tokens without their positions", rotate_in_place, (q, positions), (TOKENS, ALL))
    expect_error("out of sharded lanes", norm_into, (q, scale, q * 0), (TOKENS, ALL, Shard(3)))


def shard_tokens(_, inputs, mesh):
    return DTensor.from_local(inputs[0], mesh, [ALL], run_check=False).redistribute(placements=[TOKENS])


def gather_tokens(_, outputs, mesh):
    assert outputs.placements == (TOKENS,)
    return outputs.redistribute(placements=[ALL]).to_local(grad_placements=[ALL])


def llama():
    """Shard a model's heads with parallelize_module, and the tokens of its layers' norms. The loss and the
    gradients equal those of the full model."""
    global case_count
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    ids = torch.randint(0, 64, (2, 8), generator=torch.Generator().manual_seed(2))
    for level in ("tables", "positions"):
        torch.manual_seed(1)
        full = transformers.LlamaForCausalLM(config)
        torch.manual_seed(1)
        sharded = transformers.LlamaForCausalLM(config)
        expected = full(ids, labels=ids).loss
        expected.backward()
        assert len(apply_npu_rope(sharded, level=level).replaced) == 7
        plan = {
            "self_attn.q_proj": ColwiseParallel(),
            "self_attn.k_proj": ColwiseParallel(),
            "self_attn.v_proj": ColwiseParallel(),
            "self_attn.o_proj": RowwiseParallel(),
            "mlp.gate_proj": ColwiseParallel(),
            "mlp.up_proj": ColwiseParallel(),
            "mlp.down_proj": RowwiseParallel(),
        }
        for layer in sharded.model.layers:
            parallelize_module(layer, MESH, plan)
            for norm in (layer.input_layernorm, layer.post_attention_layernorm):
                distribute_module(norm, MESH, input_fn=shard_tokens, output_fn=gather_tokens)
        loss = sharded(ids, labels=ids).loss
        loss.backward()
        assert (loss - expected).abs() <= 1e-5 * expected.abs()
        full_parameters = dict(full.named_parameters())
        for name, parameter in sharded.named_parameters():
            gradient = (
                parameter.grad.full_tensor() if hasattr(parameter.grad, "full_tensor") else parameter.grad
            )
            worst = (gradient - full_parameters[name].grad).abs().max()
            assert worst <= 1e-4 * full_parameters[name].grad.abs().max() + 1e-7, (level, name, worst)
        case_count += 1


dist.init_process_group("gloo")
MESH = init_device_mesh("cpu", (dist.get_world_size(),))
for what in sys.argv[1:]:
    case_count = 0
    {"operators": operators, "llama": llama}[what]()
    if dist.get_rank() == 0:
        print(f"{what}: {case_count} cases, {dist.get_world_size()} processes")
dist.destroy_process_group()
# DTensor's caches keep the mesh and its group, so gloo's threads run after the interpreter has ended. They
# may then request its lock, which aborts the process (pytorch/pytorch#179291). All checks have passed at
# this point, so the process ends here.
sys.stdout.flush()
os._exit(0)
