"""Functions of other libraries with their names and conventions, computed by npu_rope's operators."""
