"""Integrations of npu_rope into other software. Each module needs the package it integrates with, and must
be imported explicitly.
"""
