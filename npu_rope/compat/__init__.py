"""Functions of other libraries, by their names and conventions, on npu_rope's operators."""
