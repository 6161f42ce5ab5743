"""Run programs of torch_npu on the simulated CANN: what ``ascend-sim run`` does. CANN is not needed."""
