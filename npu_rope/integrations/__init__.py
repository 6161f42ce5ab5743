"""Integrations of npu_rope into other software. Each one needs that software and an explicit import."""
