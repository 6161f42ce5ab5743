"""npu_rope's operators in graphs: capture and replay with the real torch_npu on the simulated runtime."""

import functools

import torch
import torch_npu  # noqa: F401
from graphs import assert_replays_equal_calls
from namespace import call, operands, operators
from run_checks import run

import npu_rope
from npu_rope.ops.registrar import registered

PARAMS = npu_rope.RopeParams(64, "neox")


def check_rope():
    x, positions = torch.randn(1, 4, 2, 64).npu(), torch.arange(4).npu()
    assert_replays_equal_calls(lambda: npu_rope.rope(x, positions, PARAMS), [x, positions])


def check_rms_norm_backward():
    x, weight, grad = torch.randn(4, 128).npu(), torch.randn(128).npu(), torch.randn(4, 128).npu()

    def work():
        a, w = x.detach().requires_grad_(), weight.detach().requires_grad_()
        return torch.autograd.grad(npu_rope.rms_norm(a, w), (a, w), grad)

    assert_replays_equal_calls(work, [x, weight, grad])


def check_every_operator_of_the_namespace():
    """Replay every schema that is not packed: new outputs, in place, with out, and into a cache."""
    cpu_only = {name for name, operator in registered.items() if not operator.on_npu}
    unpacked = {name: operator for name, operator in operators().items() if "_packed_" not in name}
    assert set(unpacked) >= {name for name in registered if "_packed_" not in name}
    unpacked = {name: operator for name, operator in unpacked.items() if name not in cpu_only}
    for name, operator in unpacked.items():
        values = operands(name, operator, "npu")
        tensors = [value for value in values.values() if isinstance(value, torch.Tensor)]
        assert_replays_equal_calls(functools.partial(call, operator, values), tensors)


if __name__ == "__main__":
    run(globals())
