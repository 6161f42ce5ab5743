"""Train a small Llama with npu_rope's rotations and norms. The model learns to repeat a sequence.

Needs torch and transformers. The script makes the model and downloads nothing.
"""

import torch
import transformers

from npu_rope.integrations.transformers import apply_npu_rope

torch.manual_seed(0)
torch.set_num_threads(1)
config = transformers.LlamaConfig(
    vocab_size=32,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    eos_token_id=None,
)
model = transformers.LlamaForCausalLM(config)
report = apply_npu_rope(model, level="positions")
print(report)

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.01, 500)
for step in range(501):
    half = torch.randint(0, 32, (16, 8))
    tokens = torch.cat((half, half), 1)
    labels = tokens.clone()
    labels[:, :9] = -100  # the loss counts the repetition without its first token
    loss = model(tokens, labels=labels).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    if step in (0, 500):
        print(f"step {step}: loss {'above 3' if loss > 3 else 'below 0.1' if loss < 0.1 else 'in between'}")
print(str(report).splitlines()[1])  # the report now contains how the rotations were computed

prompt = torch.tensor([[5, 17, 7, 29, 11, 3, 23, 8, 5]])
with torch.no_grad():
    answer = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=7, do_sample=False)
print("prompt", prompt[0, :8].tolist())
print("answer", answer[0, 8:].tolist())
