"""Seeds of random operators on the host, from the NPU's generators."""

from __future__ import annotations

from typing import Any

import torch

RANDOM_STEP = 4  # a random operator advances the generator's offset by this; torch_npu needs multiples of 4
# 2**64 over the golden ratio: consecutive operators get seeds that differ in many bits.
SEED_STEP = 0x9E3779B97F4A7C15
INT64_MAX = 2**63 - 1
_npu: Any = vars(torch).get("npu")  # torch_npu adds it


def next_seed(generator: torch.Generator | None, device: torch.device) -> int:
    """Return a seed from the NPU generator's state, and advance the state."""
    if generator is None:
        generator = _npu.default_generators[device.index or 0]
    state = generator.get_state()
    numbers = state.view(torch.int64)  # the seed, then the offset
    seed, offset = int(numbers[0]), int(numbers[1])
    numbers[1] = offset + RANDOM_STEP
    generator.set_state(state)
    return (seed + offset // RANDOM_STEP * SEED_STEP) & INT64_MAX


def host_generator(generator: torch.Generator | None, device: torch.device) -> torch.Generator:
    """Return a generator on the host with the next seed of an NPU generator, or of the default one."""
    if generator is not None and generator.device.type == "cpu":
        raise RuntimeError("Expected a 'npu' device type for generator but found 'cpu' (simulated)")
    host = torch.Generator()
    host.manual_seed(next_seed(generator, device))
    return host
