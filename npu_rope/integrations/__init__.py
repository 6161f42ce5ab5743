"""Integrations of npu_rope into other software, which they need. They must be imported explicitly."""
