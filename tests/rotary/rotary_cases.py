"""What the tests of operators with given tables share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "ops"))

from rope_cases import NUMPY_DTYPES, bytes_of, layout_strides, to_torch, values_of

# Backends that have these operators.
hosts = pytest.mark.parametrize("backend", ["reference", "cpu"])

__all__ = ["NUMPY_DTYPES", "bytes_of", "hosts", "layout_strides", "to_torch", "values_of"]
