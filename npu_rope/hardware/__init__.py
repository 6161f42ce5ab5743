"""The steps of ``npu-rope hardware-report`` and the files that it writes."""
