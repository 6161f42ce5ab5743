"""Decode with a small Llama of transformers, whose rotations and norms npu_rope computes.

On npu, the decoding step runs in two ways: as single operators, and as an NPUGraph that is captured once and
replayed for each token.

usage: llama_graph.py cpu|npu [tables|positions]: prints the tokens and the last logits of each way as JSON.
"""

import json
import sys

import torch
import transformers

from npu_rope.integrations.transformers import apply_npu_rope

TOKENS, PROMPT, LENGTH = 32, [3, 8, 13, 18], 48
SIZE = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": LENGTH,
    "eos_token_id": None,
}


class Decoder:
    """A model with a static cache. ``token`` and ``position`` are the inputs of the next step."""

    def __init__(self, model, device):
        self.model = model
        self.cache = transformers.StaticCache(config=model.config, max_cache_len=LENGTH)
        prompt = torch.tensor([PROMPT], device=device)
        self.position = torch.tensor([[len(PROMPT)]], device=device)
        logits = self.model(prompt, cache=self.cache).logits[:, -1]
        self.token = logits.argmax(-1, keepdim=True)
        self.logits = torch.empty_like(logits)

    def step(self):
        """Replace the token by the one that follows it, without a read on the host."""
        output = self.model(self.token, position_ids=self.position, cache=self.cache)
        self.logits.copy_(output.logits[:, -1])
        self.token.copy_(self.logits.argmax(-1, keepdim=True))
        self.position.add_(1)

    def decode(self, step):
        """Return the tokens of the steps, and the last logits."""
        tokens = []
        for _ in range(TOKENS):
            step()
            tokens.append(self.token.item())
        return {"tokens": tokens, "logits": self.logits[0].tolist()}

    def capture(self):
        """Return the graph of a step. The state is as before."""
        lengths = [layer.cumulative_length for layer in self.cache.layers]
        state = [self.token, self.position, *lengths]
        before = [tensor.clone() for tensor in state]
        side = torch.npu.Stream()
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            self.step()  # a first call may allocate memory that a capture must not
        torch.npu.current_stream().wait_stream(side)
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            self.step()
        for tensor, value in zip(state, before, strict=True):
            tensor.copy_(value)
        return graph


@torch.no_grad()
def main():
    device, level = sys.argv[1], sys.argv[2] if sys.argv[2:] else "tables"
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZE, initializer_range=0.2)
    model = transformers.LlamaForCausalLM(config).eval().to(device)
    report = apply_npu_rope(model, level=level)
    eager = Decoder(model, device)
    found = {"replaced": len(report.replaced), "eager": eager.decode(eager.step)}
    if device == "npu":
        replayed = Decoder(model, device)
        found["graph"] = replayed.decode(replayed.capture().replay)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
