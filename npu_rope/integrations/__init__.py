"""npu_rope inside other software. Each module needs the package it integrates with, and nothing imports it
by itself.
"""
