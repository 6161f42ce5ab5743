"""The simulated CANN under torch_npu: what ``npu-rope sim`` sets up. Needs nothing of CANN."""
