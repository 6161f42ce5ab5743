"""A small Llama of transformers with npu_rope's operators on several NPUs. Its loss and its gradients equal
those of one NPU. Run by torchrun.

usage: sharded_llama.py [tensor] [context]
"""

from __future__ import annotations

import json
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as differentiable
import torch_npu  # noqa: F401
import transformers
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers import AttentionInterface, AttentionMaskInterface

import npu_rope.integrations.dtensor  # noqa: F401 - registers the rules
from npu_rope.integrations.transformers import apply_npu_rope

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
TOKENS, PER_RANK = 8, 8 // SIZE
ALL, BY_TOKENS = Replicate(), Shard(1)
IDS = torch.randint(0, 64, (2, TOKENS), generator=torch.Generator().manual_seed(2))


def llama(attention="eager"):
    """Return a Llama on this rank's NPU, with the same weights on every rank."""
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=8,
        num_key_value_heads=4, attn_implementation=attention,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).npu()
    assert len(apply_npu_rope(model, level="positions").replaced) == 7
    return model


def on_one_device():
    """Return the loss, and the gradients by parameter."""
    model = llama()
    loss = model(IDS.npu(), labels=IDS.npu()).loss
    loss.backward()
    return loss.item(), {name: p.grad.cpu() for name, p in model.named_parameters()}


def compare(loss, gradients):
    """Compare with one device. Return the largest relative difference of a gradient."""
    expected_loss, expected = on_one_device()
    assert abs(loss - expected_loss) <= 1e-5 * abs(expected_loss), (loss, expected_loss)
    assert gradients.keys() == expected.keys()
    worst = 0.0
    for name, gradient in gradients.items():
        difference, largest = (gradient - expected[name]).abs().max(), expected[name].abs().max()
        assert difference <= 1e-4 * largest + 1e-7, (name, difference, largest)
        worst = max(worst, (difference / largest).item())
    return worst


# ---- tensor parallel: each rank has some heads, and the norms have some tokens -------------------------


def shard_tokens(_, inputs, mesh):
    return DTensor.from_local(inputs[0], mesh, [ALL], run_check=False).redistribute(placements=[BY_TOKENS])


def gather_tokens(_, outputs, mesh):
    assert outputs.placements == (BY_TOKENS,)
    return outputs.redistribute(placements=[ALL]).to_local(grad_placements=[ALL])


def tensor():
    mesh = init_device_mesh("npu", (SIZE,))
    model = llama()
    plan = {f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"}
    plan |= {"mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel()}
    plan |= {"self_attn.o_proj": RowwiseParallel(), "mlp.down_proj": RowwiseParallel()}
    for layer in model.model.layers:
        parallelize_module(layer, mesh, plan)
        for norm in (layer.input_layernorm, layer.post_attention_layernorm):
            distribute_module(norm, mesh, input_fn=shard_tokens, output_fn=gather_tokens)
    loss = model(IDS.npu(), labels=IDS.npu()).loss
    loss.backward()
    full = lambda grad: grad.full_tensor() if isinstance(grad, DTensor) else grad  # noqa: E731
    return compare(loss.item(), {name: full(p.grad).cpu() for name, p in model.named_parameters()})


# ---- context parallel: each rank has some tokens, with their own positions -----------------------------


def gathered_attention(module, query, key, value, attention_mask, scaling, **_):
    """Attend from this rank's queries to the keys and values of all ranks."""
    assert attention_mask is None
    key, value = (torch.cat(differentiable.all_gather(x.contiguous()), dim=2) for x in (key, value))
    repeats = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(repeats, dim=1) for x in (key, value))
    scores = query @ key.transpose(2, 3) * scaling
    rows = torch.arange(PER_RANK)[:, None] + RANK * PER_RANK
    hidden = (torch.arange(TOKENS)[None] > rows).npu()
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    return (weights @ value).transpose(1, 2).contiguous(), weights


def context():
    AttentionInterface.register("gathered", gathered_attention)
    AttentionMaskInterface.register("gathered", lambda *_, **__: None)
    model = llama("gathered")
    mine = slice(RANK * PER_RANK, (RANK + 1) * PER_RANK)
    positions = torch.arange(TOKENS)[None, mine].npu()
    logits = model(IDS[:, mine].contiguous().npu(), position_ids=positions, use_cache=False).logits
    targets = torch.nn.functional.pad(IDS[:, 1:], (0, 1), value=-100)[:, mine].reshape(-1).npu()
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 64), targets, reduction="sum")
    loss = loss / (IDS.shape[0] * (TOKENS - 1))  # of this rank's tokens; the sum over ranks is the loss
    loss.backward()
    total = loss.detach().clone()
    dist.all_reduce(total)
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    return compare(total.item(), {name: p.grad.cpu() for name, p in model.named_parameters()})


def main():
    torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("hccl")
    worst = {name: {"tensor": tensor, "context": context}[name]() for name in sys.argv[1:]}
    everywhere = [None] * SIZE
    dist.all_gather_object(everywhere, worst)
    if RANK == 0:
        print(json.dumps(everywhere), flush=True)
    dist.destroy_process_group()


main()
