"""The simulated CANN for torch_npu, which ``npu-rope sim`` sets up. CANN is not needed."""
