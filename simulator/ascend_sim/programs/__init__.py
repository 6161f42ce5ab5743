"""The implementation of ``ascend-sim run``: programs of torch_npu run on the simulated CANN."""
