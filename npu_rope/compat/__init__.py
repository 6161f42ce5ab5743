"""Functions with the names and conventions of other libraries, computed by npu_rope's operators."""
