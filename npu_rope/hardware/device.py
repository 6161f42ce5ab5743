"""The NPU as the report's workers use it: copies of tensors, events, and facts about the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from npu_rope import backends
from npu_rope.executors import npu
from npu_rope.optional_torch import load_torch_npu, torch

# Properties that describe the chip. The uuid, which identifies the device, is not read.
_PROPERTIES = ("total_memory", "L2_cache_size", "cube_core_num", "vector_core_num", "multi_processor_count")


class NpuDevice:
    """The first NPU that torch_npu lists."""

    backend = "npu"

    def __init__(self) -> None:
        load_torch_npu()
        # The properties of a device include its memory, which aclrtGetMemInfo reports for the current device.
        torch.npu.set_device(0)
        self.simulated = backends.simulated_soc() is not None

    def put(self, tensor: Any) -> Any:
        """Return a copy on the device."""
        return npu.to_device(tensor)

    def get(self, tensor: Any) -> Any:
        """Return a copy on the host."""
        return tensor.cpu()

    def synchronize(self) -> None:
        """Wait for all launches; raise the device's errors."""
        torch.npu.synchronize()

    def failure(self) -> str:
        """Return why the device no longer computes in this process; empty if it computes."""
        try:
            got = (torch.ones(4).to("npu") + 1).cpu().tolist()
        except RuntimeError as error:
            return str(error) or type(error).__name__
        return "" if got == [2.0] * 4 else f"1 + 1 gives {got[0]} on the device"

    def event_us(self, run: Callable[[], object], launches: int) -> float:
        """Return the microseconds between two events divided by the launches between them, including gaps."""
        begin, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(launches):
            run()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3 / launches

    def facts(self) -> dict[str, Any]:
        """Return the chip's name and sizes, and the number of devices."""
        properties = torch.npu.get_device_properties(0)
        sizes = {name: getattr(properties, name, None) for name in _PROPERTIES}
        return {
            "chip": backends.simulated_soc() or torch.npu.get_device_name(0),
            "devices": torch.npu.device_count(),
            **{name: value for name, value in sizes.items() if isinstance(value, int)},
        }
