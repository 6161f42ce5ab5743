"""What ``npu-rope hardware-report`` measures on a machine with an Ascend NPU, and how it writes it down."""
