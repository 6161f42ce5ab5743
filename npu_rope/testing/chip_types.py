"""The dtypes that a back end's chip lacks, and the rounding of attributes by a back end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

import numpy as np
from ascend_sim.library import DEFAULT_SOC

from npu_rope import backends, chips
from npu_rope.params import RopeParams
from npu_rope.testing.bounds import is_device


def soc_of(backend: str) -> str:
    """Return the name of a device back end's SoC or chip; "an NPU" for hardware."""
    if backend == "npu":
        return backends.simulated_soc() or "an NPU"
    return backend.partition(":")[2] or DEFAULT_SOC


def has_bfloat16(backend: str) -> bool:
    """Return whether the back end has bfloat16, which some chips lack."""
    return chips.has_bfloat16(soc_of(backend))


def lacks_type(backend: str, dtypes: Iterable[str]) -> str:
    """Return why the back end's device lacks one of these dtypes; empty if it has all."""
    reasons = (chip_lacks(dtype, backend) for dtype in dtypes) if is_device(backend) else ()
    return next(filter(None, reasons), "")


def chip_lacks(dtype: str, backend: str) -> str:
    """Return why a device back end's SoC lacks the dtype; empty if it has the dtype."""
    if dtype == "float64":
        return "no Ascend vector core computes in float64"
    if dtype == "bfloat16" and not has_bfloat16(backend):
        return "Ascend310P has no bfloat16"
    return ""


def rounded_for(params: RopeParams, backend: str) -> RopeParams:
    """Return the parameters as the back end receives them. CANN rounds float attributes to float32."""
    if not is_device(backend):
        return params
    numbers = {field.name: getattr(params, field.name) for field in fields(params)}
    narrow: dict[str, Any] = {
        name: float(np.float32(value)) for name, value in numbers.items() if isinstance(value, float)
    }
    return replace(params, **narrow)
