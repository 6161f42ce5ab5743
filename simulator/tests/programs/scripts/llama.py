"""Train a small Llama-like model with AdamW, and decode with a key/value cache, on cpu or npu.

usage: llama.py cpu|npu — prints the losses and the greedily decoded tokens as JSON.
"""

import json
import sys

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, HEADS, KV_HEADS, LAYERS, LENGTH = 97, 64, 4, 2, 2, 24
HEAD_WIDTH = WIDTH // HEADS


def rotate(x, positions):
    """Rotate the pairs (i, i + HEAD_WIDTH/2) by float32 angles."""
    lanes = torch.arange(0, HEAD_WIDTH, 2, device=x.device, dtype=torch.float32)
    frequencies = 10000.0 ** (-lanes / HEAD_WIDTH)
    angles = positions.float()[:, None] * frequencies
    cos, sin = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], -1) * sin


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(WIDTH, HEADS * HEAD_WIDTH, bias=False)
        self.kv = nn.Linear(WIDTH, 2 * KV_HEADS * HEAD_WIDTH, bias=False)
        self.out = nn.Linear(HEADS * HEAD_WIDTH, WIDTH, bias=False)

    def forward(self, x, positions, cache=None):
        batch, length, _ = x.shape
        q = self.q(x).view(batch, length, HEADS, HEAD_WIDTH).transpose(1, 2)
        k, v = self.kv(x).view(batch, length, 2 * KV_HEADS, HEAD_WIDTH).transpose(1, 2).chunk(2, dim=1)
        q, k = rotate(q, positions), rotate(k, positions)
        if cache is None:
            keys, values = k, v
        else:
            end = int(positions[-1]) + 1
            cache[0][:, :, positions] = k
            cache[1].index_copy_(2, positions, v)
            keys, values = cache[0][:, :, :end], cache[1][:, :, :end]
        keys = keys.repeat_interleave(HEADS // KV_HEADS, dim=1)
        values = values.repeat_interleave(HEADS // KV_HEADS, dim=1)
        y = F.scaled_dot_product_attention(q, keys, values, is_causal=length > 1)
        return self.out(y.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attention, self.norm2 = Norm(), Attention(), Norm()
        self.gate_up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x, positions, cache):
        x = x + self.attention(self.norm1(x), positions, cache)
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = Norm(), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens, positions, caches=None):
        x = self.embed(tokens)
        for number, block in enumerate(self.blocks):
            x = block(x, positions, None if caches is None else caches[number])
        return self.head(self.norm(x))


def train(model, device, steps=8):
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses = []
    for _ in range(steps):
        start = torch.randint(0, VOCABULARY, (4, 1), generator=generator)
        tokens = ((start + 5 * torch.arange(LENGTH + 1)) % VOCABULARY).to(device)
        logits = model(tokens[:, :-1], torch.arange(LENGTH, device=device))
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def decode(model, device, prompt, count=16):
    shape = (1, KV_HEADS, 64, HEAD_WIDTH)
    caches = [[torch.zeros(shape, device=device) for _ in "kv"] for _ in range(LAYERS)]
    tokens = torch.tensor([prompt], device=device)
    positions = torch.arange(len(prompt), device=device)
    decoded = []
    for _ in range(count):
        logits = model(tokens, positions, caches)[:, -1]
        tokens = logits.argmax(-1, keepdim=True)
        positions = positions[-1:] + 1
        decoded.append(tokens.item())
    return decoded


def main():
    device = sys.argv[1]
    torch.manual_seed(0)
    model = Model().to(device)
    losses = train(model, device)
    model.eval()
    print(json.dumps({"losses": losses, "tokens": decode(model, device, [3, 8, 13, 18])}))


if __name__ == "__main__":
    main()
