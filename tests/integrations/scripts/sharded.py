"""Compare results of operators and a model on sharded tensors with those on full ones. Run by torchrun."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
import transformers
from torch.distributed.tensor import (
    DTensor,
    Partial,
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
    qk_square_sums,
    qkv_norm_rope_cache,
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


def expect_error(what, run, tensors, placements, text="placements must be one of ("):
    """Check that a call is refused, by default for an output tensor with an unsupported placement."""
    global case_count
    sharded = [shard(t, p) for t, p in zip(tensors, placements, strict=True)]
    message = ""
    try:
        run(*sharded)
    except ValueError as error:
        message = str(error)
    assert text in message, f"{what} was accepted: {message}"
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


def qkv():
    """qkv_norm_rope_cache has no batches: its tokens are dimension 0 and its heads dimension 1."""
    global case_count
    torch.manual_seed(0)
    tokens, heads = Shard(0), Shard(1)
    q, k, v = torch.randn(6, 4, 16), torch.randn(6, 2, 16), torch.randn(6, 2, 8)
    positions, planes = torch.arange(6) + 3, torch.arange(24).view(4, 6)
    q_scale, k_scale = torch.rand(16), torch.rand(16)
    cos, sin = torch.rand(9, 8), torch.rand(9, 8)

    def per_head(q, k, positions, q_scale, k_scale, q_bias, k_bias):
        norm = {"q_scale": q_scale, "k_scale": k_scale, "q_bias": q_bias, "k_bias": k_bias}
        return qkv_norm_rope_cache(q, k, None, positions, PARAMS, **norm)[:2]

    def by_tables(q, k, positions, cos, sin):
        return qkv_norm_rope_cache(q, k, None, positions, PARAMS, cos=cos, sin=sin)[:2]

    def by_rows(q, k, cos, sin):
        return by_tables(q, k, None, cos, sin)

    def by_sections(q, k, planes):
        return qkv_norm_rope_cache(q, k, None, planes, SECTIONS)[:2]

    norms = (q_scale, k_scale, q_scale - 1, k_scale - 1)
    for x, p in ((heads, ALL), (tokens, Shard(0)), (ALL, ALL)):
        compare("norm per head", per_head, (q, k, positions, *norms), (x, x, p, *[ALL] * 4), x)
        placements = (x, x, p, ALL, ALL)
        compare("rows of tables", by_tables, (q, k, positions, cos, sin), placements, x, constant=(3, 4))
        rows = cos[:6], sin[:6]
        compare("a row for each token", by_rows, (q, k, *rows), (x, x, p, p), x, constant=(2, 3))
        of_planes = Shard(1) if x == tokens else ALL
        compare("sections", by_sections, (q, k, planes), (x, x, of_planes), x)
    compare("sections, flat, gathered", by_sections, (q, k, planes.flatten()), (tokens, tokens, ALL), ALL)

    for x, sums_placement in ((heads, Partial()), (tokens, tokens), (ALL, ALL)):
        compare("square sums", qk_square_sums, (q, k), (x, x), sums_placement)

    # Norms over all heads: the sums are added over the ranks.
    all_q, all_k = torch.rand(64), torch.rand(32)

    def over_all_heads(q, k, positions, q_scale, k_scale, ranks=1):
        norm = {"q_scale": q_scale, "k_scale": k_scale, "square_sums": qk_square_sums(q, k), "ranks": ranks}
        return qkv_norm_rope_cache(q, k, None, positions, PARAMS, **norm)[:2]

    full = q, k, positions, all_q, all_k
    expected = over_all_heads(*full)
    without_sums = qkv_norm_rope_cache(q, k, None, positions, PARAMS, q_scale=all_q, k_scale=all_k)
    for with_sums, value in zip(expected, without_sums, strict=False):
        assert (with_sums - value).abs().max() < 1e-5
    for placements, ranks, placement in (
        ((heads, heads, ALL, Shard(0), Shard(0)), MESH.size(), heads),
        ((heads, ALL, ALL, ALL, Shard(0)), MESH.size(), heads),
        ((tokens, tokens, Shard(0), ALL, ALL), 1, tokens),
        ((heads, heads, ALL, Shard(0), Shard(0)), 1, None),  # DTensor gathers the heads or shards the tokens
    ):
        results = over_all_heads(*(shard(t, p) for t, p in zip(full, placements, strict=True)), ranks=ranks)
        for result, value in zip(results, expected, strict=True):
            assert_close(result, value, "norm over all heads")
            assert result.placements[0] in ((tokens, ALL) if placement is None else (placement,))
        case_count += 1
        if placement is not None:
            run = lambda *t: over_all_heads(*t, ranks=ranks if hasattr(t[0], "placements") else 1)  # noqa: B023, E731
            compare("norm over all heads", run, full, placements, placement)
    text = f"ranks must be the number of parts of q's heads, 1 but got {MESH.size()}"
    of_tokens = (tokens, tokens, Shard(0), ALL, ALL)
    wrong_ranks = lambda *t: over_all_heads(*t, ranks=MESH.size())  # noqa: E731
    expect_error("ranks without sharded heads", wrong_ranks, full, of_tokens, text)

    def over_all_heads_of_one_rank(q, k, positions, q_scale):
        return qkv_norm_rope_cache(q, k, None, positions, PARAMS, q_scale=q_scale)[:2]

    one_rank = q, k, positions, all_q
    compare("gathered heads", over_all_heads_of_one_rank, one_rank, (heads, heads, ALL, ALL), ALL)

    # Stores into caches
    slots = torch.tensor([5, 0, -1, 7, 2, 3])
    scale, offset = torch.rand(2, 8) * 30, torch.rand(2, 8)

    def store(q, k, v, positions, slots, k_cache, v_cache, scale, offset, q_out=None):
        quantization = {"v_quant_scale": scale, "v_quant_offset": offset}
        caches = {"slots": slots, "k_cache": k_cache, "v_cache": v_cache}
        return qkv_norm_rope_cache(q, k, v, positions, PARAMS, **caches, **quantization, out=q_out)[0]

    caches = torch.zeros(4, 2, 2, 16, dtype=torch.float16), torch.zeros(8, 2, 8, dtype=torch.int8)
    stored = q, k, v, positions, slots, *caches, scale, offset
    placements = [*[heads] * 3, ALL, ALL, Shard(2), Shard(1), Shard(0), Shard(0)]
    for written in (5, 6):
        compare_in_place("caches of sharded heads", store, stored, placements, written)
    rows = *stored[:5], torch.zeros(8, 2, 16), *stored[6:], torch.zeros_like(q)
    for written in (5, 6, 9):
        compare_in_place(
            "caches and q_out", store, rows, [*placements[:5], heads, *placements[6:], heads], written
        )
    text = "k_cache must have shape [rows,N,D] where q_out is given"
    expect_error("a paged cache and q_out", store, (*stored, torch.zeros_like(q)), [*placements, heads], text)
    of_tensor = [*placements[:7], ALL, ALL]
    one_factor = (*stored[:7], torch.tensor([9.0]), torch.tensor([0.5]))
    compare_in_place("a factor of the tensor", store, one_factor, of_tensor, 6)
    text = "[qkv_norm_rope_cache] placements must be one of ("
    for of_slots in (Shard(0), ALL):
        wrong = [tokens, tokens, tokens, Shard(0), of_slots, ALL, ALL, ALL, ALL]
        expect_error("caches of sharded tokens", store, stored, wrong, text)
    wrong = [*placements[:5], Shard(0), *placements[6:]]
    expect_error("a cache of sharded blocks", store, stored, wrong, text)

    def into(q, k, v, positions, *outs):
        qkv_norm_rope_cache(q, k, v, positions, PARAMS, out=outs)

    outs = [torch.zeros_like(x) for x in (q, k, v)]
    for x, p in ((heads, ALL), (tokens, Shard(0))):
        for written in (4, 5, 6):
            compare_in_place("out", into, (q, k, v, positions, *outs), (x, x, x, p, x, x, x), written)


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
    {"operators": operators, "qkv": qkv, "llama": llama}[what]()
    if dist.get_rank() == 0:
        print(f"{what}: {case_count} cases, {dist.get_world_size()} processes")
dist.destroy_process_group()
# DTensor's caches keep the mesh and its group, so gloo's threads run after the interpreter has ended. They
# may then request its lock, which aborts the process (pytorch/pytorch#179291). All checks have passed at
# this point, so the process ends here.
sys.stdout.flush()
os._exit(0)
