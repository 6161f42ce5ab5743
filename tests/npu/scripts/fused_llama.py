"""A Llama and a Qwen3 whose attention modules are fused, on the NPU: logits, and tokens with a static cache.

usage: fused_llama.py — prints JSON: the result of every check.
"""

import copy

import torch
import torch_npu  # noqa: F401
from run_checks import near, run
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from npu_rope.integrations.transformers import apply_npu_rope

SIZES = {"hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 32}
HEADS = {"vocab_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "attn_implementation": "eager"}


def compare(config, model_class):
    """Compare a fused model on the NPU with the model itself on the CPU."""
    torch.manual_seed(0)
    model = model_class(config(**SIZES, **HEADS)).eval()
    ids = torch.randint(0, 64, (1, 9))
    fused = copy.deepcopy(model).npu()
    assert len(apply_npu_rope(fused, fuse=True).fused) == 2
    options = {"max_new_tokens": 6, "do_sample": False, "cache_implementation": "static"}
    with torch.no_grad():
        near(fused(ids.npu()).logits, model(ids).logits, units=16)
        tokens = fused.generate(ids.npu(), **options).cpu()
        assert tokens.equal(model.generate(ids, **options)), tokens


def check_llama():
    compare(LlamaConfig, LlamaForCausalLM)


def check_qwen3():
    compare(Qwen3Config, Qwen3ForCausalLM)


run(globals())
