"""Every operator of the namespace npu_rope, with operands for a call of each."""

import torch

HEADS, TABLE, ROWS = (1, 4, 2, 16), (4, 8), torch.tensor([[3, 0, 2, 1]])
# Operands by their names in the schemas. A tuple is the shape of a tensor with random numbers.
OPERANDS = {
    **dict.fromkeys(("x", "q", "query", "grad", "residual", "out", "sum", "q_out"), HEADS),
    **dict.fromkeys(("k", "key", "k_out"), (1, 4, 1, 16)),
    **dict.fromkeys(("X", "Y"), (1, 2, 4, 16)),
    **dict.fromkeys(("scale", "q_scale", "k_scale"), (16,)),
    "k_cache": (8, 1, 16),
    **dict.fromkeys(("cos", "sin", "cos_cache", "sin_cache"), TABLE),
    "positions": torch.arange(4),
    **dict.fromkeys(("rows", "position_ids"), ROWS),
    "slots": ROWS[0],
    "start_pos": torch.tensor(3),
    "packed": torch.zeros(8, dtype=torch.uint8),
    "n_dims": 16,
    "rope_mode": 2,
    "axis": -1,
    "epsilon": 1e-6,
    "stash_type": 1,
    "interleaved": False,
    "rotary_dim": 16,
    "offset": 0,
    "forward": True,
    "num_heads": 0,
    "rotary_embedding_dim": 0,
}


def operators():
    """Return every operator of the namespace by its name."""
    listed = torch._C._dispatch_get_all_op_names()
    names = sorted(name.partition("::")[2] for name in listed if name.startswith("npu_rope::"))
    return {name: getattr(torch.ops.npu_rope, name).default for name in names}


def operand(name, argument, device):
    """Return an argument's value. Tensors are created on the CPU and copied."""
    if argument.name not in OPERANDS and "Optional" in str(argument.type):
        return None
    if argument.name == "cache":
        return torch.zeros(8, 1 if "rms_norm" in name else 2, 16).to(device)
    value = OPERANDS[argument.name]
    has_batches = not name.startswith(("qkv", "qk_square"))
    if isinstance(value, tuple) and len(value) == 4 and not has_batches:
        value = value[1:]
    if isinstance(value, tuple):
        generator = torch.Generator().manual_seed(len(argument.name))
        value = torch.rand(value, generator=generator) + 0.5
    return value.to(device) if isinstance(value, torch.Tensor) else value


def operands(name, operator, device):
    """Return the values of a call's arguments without a default, and of positions, by name."""
    positions = ("positions", "position_ids")
    needed = [a for a in operator._schema.arguments if not a.has_default_value() or a.name in positions]
    return {a.name: operand(name, a, device) for a in needed}


def call(operator, values):
    """Return all results of a call and all tensors that it writes."""
    results = operator(**values)
    results = results if isinstance(results, tuple) else (results,)
    arguments = operator._schema.arguments
    outs = [a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write]
    written = [values[name] for name in outs if name in values]
    return [t for t in (*results, *written) if t is not None]
