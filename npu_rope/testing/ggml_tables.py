"""Tables as ggml computes them: angles by ``rope_attributes.ggml_angles``, cos and sin by C's libm."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.reference import rope as reference
from npu_rope.rope_attributes import ggml_angles
from npu_rope.testing.cases import CaseData, RopeCase

Array = npt.NDArray[Any]


def _libm_function(name: str) -> Callable[[Array], Array]:
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    function = getattr(library, name)
    function.restype, function.argtypes = ctypes.c_float, [ctypes.c_float]
    return np.vectorize(function, otypes=[np.float32])


_cosf, _sinf = _libm_function("cosf"), _libm_function("sinf")


def ggml_table(case: RopeCase, data: CaseData, *, fused: bool) -> tuple[Array, Array]:
    """Return ggml's cos and sin for the case's positions, ``[..., pairs]``, as float64 with float32 values.
    ``fused``: one multiply-add of the angle rounds once."""
    planes = reference.position_planes(data.positions, case.params)
    theta = ggml_angles(planes, case.params, data.freq_factors, fused=fused)
    mscale = np.float32(case.params.mscale("ggml"))
    distinct, inverse = np.unique(theta, return_inverse=True)

    def table(function: Callable[[Array], Array]) -> Array:
        values: Array = (function(distinct) * mscale)[inverse]
        return values.reshape(theta.shape).astype(np.float64)

    cos, sin = table(_cosf), table(_sinf)
    return cos, (sin if case.forward else -sin)
