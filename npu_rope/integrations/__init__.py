"""Integrations of npu_rope into other software. Each module needs the software that it is named after, and
must be imported explicitly.
"""
