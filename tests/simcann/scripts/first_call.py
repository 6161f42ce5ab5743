"""Every operator of the namespace npu_rope as the first call of a process; no variable names a package.

usage: first_call.py ORDER FOLDER

ORDER is what is imported first: npu_rope, torch_npu, or torch, whose import loads torch_npu by itself. Every
operator that torch lists in the namespace is called in a process of its own, which reports to
FOLDER/<operator>. Prints JSON: by operator "ok", or what was wrong.
"""

import gc
import json
import os
import sys
import traceback

assert "ASCEND_CUSTOM_OPP_PATH" not in os.environ, "a variable names the package"
order, folder = sys.argv[1:]
os.environ.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)
if order != "torch":
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
__import__(order)
assert ("torch_npu" in sys.modules) == (order != "npu_rope")
assert ("npu_rope" in sys.modules) == (order == "npu_rope")
import torch  # noqa: E402
import torch_npu  # noqa: E402, F401
from run_checks import refusal  # noqa: E402

import npu_rope  # noqa: E402, F401

HEADS, TABLE, ROWS = (1, 4, 2, 16), (4, 8), torch.tensor([[3, 0, 2, 1]])
# Operands by the names that the schemas give them; tensors as shapes, of ones.
OPERANDS = {
    **dict.fromkeys(("x", "q", "query", "grad", "residual", "out", "sum", "q_out"), HEADS),
    **dict.fromkeys(("k", "key", "k_out"), (1, 4, 1, 16)),
    **dict.fromkeys(("X", "Y"), (1, 2, 4, 16)),
    **dict.fromkeys(("scale", "q_scale", "k_scale"), (16,)),
    **dict.fromkeys(("cos", "sin", "cos_cache", "sin_cache"), TABLE),
    **dict.fromkeys(("positions",), torch.arange(4)),
    **dict.fromkeys(("rows", "position_ids"), ROWS),
    "start_pos": torch.tensor(3),
    "packed": torch.zeros(8, dtype=torch.uint8),
    "n_dims": 16,
    "mode": 2,
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
    """Every operator of the namespace by its name."""
    listed = torch._C._dispatch_get_all_op_names()
    names = sorted(name.partition("::")[2] for name in listed if name.startswith("npu_rope::"))
    return {name: getattr(torch.ops.npu_rope, name).default for name in names}


def operand(name, argument, device):
    """An argument's value: tensors are made on the CPU and copied."""
    if argument.name == "cache":
        return torch.zeros(8, 1 if "rms_norm" in name else 2, 16).to(device)
    value = OPERANDS[argument.name]
    if isinstance(value, tuple):
        generator = torch.Generator().manual_seed(len(argument.name))
        value = torch.rand(value, generator=generator) + 0.5
    return value.to(device) if isinstance(value, torch.Tensor) else value


def called(name, operator, device):
    """Everything that a call gives and writes."""
    schema = operator._schema
    needed = [a for a in schema.arguments if not a.has_default_value() or a.name == "position_ids"]
    values = {a.name: operand(name, a, device) for a in needed}
    results = operator(**values)
    results = results if isinstance(results, tuple) else (results,)
    written = [values[a.name] for a in needed if a.alias_info is not None and a.alias_info.is_write]
    return [t for t in (*results, *written) if t is not None]


def check(name, operator):
    """Call it on the NPU first, then on the CPU, and compare."""
    if "_packed_" in name:
        assert "must be on device cpu" in refusal(lambda: called(name, operator, "npu"))
        return
    on_npu = called(name, operator, "npu")
    on_cpu = called(name, operator, "cpu")
    assert len(on_npu) == len(on_cpu) > 0
    for got, expected in zip(on_npu, on_cpu, strict=True):
        assert got.device.type == "npu", got.device
        assert expected.abs().max() > 0
        assert (got.cpu() - expected).abs().max() < 1e-5


def in_own_process(name, operator):
    """The check in a fork, which begins as a process does that has only imported."""
    answer, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.environ["NPU_ROPE_SIM_REPORT_DIR"] = os.path.join(folder, name)
        os.makedirs(os.environ["NPU_ROPE_SIM_REPORT_DIR"])
        try:
            check(name, operator)
            said = "ok"
        except BaseException:
            said = traceback.format_exc()
        os.write(theirs, said.encode())
        sys.exit()
    os.close(theirs)
    with open(answer) as stream:
        said = stream.read()
    _, status = os.waitpid(child, 0)
    return said if status == 0 else f"{said} (status {status})"


gc.freeze()  # a fork's end would look through everything that was imported
# In a fork this ends by sys.exit inside in_own_process.
found = {name: in_own_process(name, operator) for name, operator in operators().items()}
print(json.dumps(found))
