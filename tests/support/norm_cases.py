"""A description of a call of rms_norm, and the functions that run it and judge its result."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from guarded_memory import contiguous_strides
from rope_cases import NUMPY_DTYPES, bytes_of, chip_of, has_bfloat16, is_device, to_torch, values_of

from npu_rope import rms_norm, rms_norm_backward
from npu_rope.testing import norm_spec
from npu_rope.testing.bounds import normalized_error_on, worst_ratio
from npu_rope.testing.chip_types import lacks_type
from npu_rope.testing.norm_spec import NormCall

# Back ends with float64, which Ascend cores lack.
on_hosts = pytest.mark.parametrize("backend", ["reference", "cpu"])


def unless_refused(backend, dtypes, run):
    """Return run's result. If the back end's device lacks one of the types, require an error instead."""
    if not lacks_type(backend, dtypes):
        return run()
    with pytest.raises((TypeError, ValueError), match=r"^\[\w+\] \w+ must be "):
        run()
    return None


@dataclass(frozen=True)
class NormSetup:
    """A call of rms_norm.

    ``scale`` names the dimensions of x that the scale has:

    * "normalized": those from axis on
    * "last": the last
    * "one": none
    * "own": all
    * "tokens": the first and the last, with size 1 between them
    * "second": the second and the last, if there are more than two
    * "inner-one": those from axis on, with size 1 for the last
    """

    dtype: str = "float32"
    scale_dtype: str = "own"
    framework: str = "numpy"
    shape: tuple[int, ...] = (3, 5, 40)
    axis: int = -1
    scale: str = "normalized"
    epsilon: float = 1e-5
    stash_type: int = 1
    layout: str = "contiguous"
    out: str = "new"

    @property
    def scale_type(self):
        return self.dtype if self.scale_dtype == "own" else self.scale_dtype

    @property
    def attributes(self):
        return {"axis": self.axis, "epsilon": self.epsilon, "stash_type": self.stash_type}

    def scale_shape(self):
        shape, axis = self.shape, self.axis % len(self.shape)
        return {
            "normalized": shape[axis:],
            "last": shape[-1:],
            "one": (),
            "own": shape,
            "tokens": (shape[0], *(1,) * (len(shape) - 2), shape[-1]) if len(shape) > 1 else shape,
            "second": (shape[1], *(1,) * (len(shape) - 3), shape[-1]) if len(shape) > 2 else shape[-1:],
            "inner-one": (*shape[axis:-1], 1),
        }[self.scale]


def strides_of(layout, shape):
    """Return the strides of a layout, in elements.

    * "gaps" has gaps between rows.
    * "non-unit" has gaps in the last dimension.
    * "reversed" has negative strides except in the last dimension.
    * "transposed" exchanges the first two dimensions in memory.
    """
    strides = list(contiguous_strides(shape))
    if layout == "gaps" and len(shape) > 1:
        row = shape[-1] + 3
        strides = [*(s // max(shape[-1], 1) * row for s in strides[:-1]), 1]
    elif layout == "non-unit":
        strides = [2 * s for s in strides]
    elif layout == "reversed":
        strides = [*(-s for s in strides[:-1]), strides[-1]]
    elif layout == "transposed" and len(shape) > 2:
        swapped = contiguous_strides((shape[1], shape[0], *shape[2:]))
        strides = [swapped[1], swapped[0], *swapped[2:]]
    return tuple(strides)


@dataclass
class NormArrays:
    x: np.ndarray
    scale: np.ndarray
    grad: np.ndarray
    out: np.ndarray | None


def filled(guarded, shape, dtype, layout, values):
    array = guarded.empty(shape, dtype, strides_of(layout, shape))
    with np.errstate(over="ignore"):
        array[...] = np.broadcast_to(values, shape).astype(dtype)
    return array


def make_inputs(call, guarded, seed=0, x=None):
    """Return guarded arrays. Unless x is given, its magnitudes differ along axis 0, from 1e-3 to 1e3."""
    rng = np.random.default_rng(seed)
    dtype, scale_type = NUMPY_DTYPES[call.dtype], NUMPY_DTYPES[call.scale_type]
    if x is None:
        x = rng.standard_normal(call.shape) * 10.0 ** rng.uniform(
            -3, 3, (*call.shape[:1], *[1] * (len(call.shape) - 1))
        )
    x = filled(guarded, call.shape, dtype, call.layout, x)
    scale = guarded.input(rng.uniform(-2, 2, call.scale_shape()).astype(scale_type))
    grad = rng.standard_normal(call.shape).astype(scale_type)
    out = {
        "new": lambda: None,
        "given": lambda: filled(guarded, call.shape, scale_type, "contiguous", 3),
        "gaps": lambda: filled(guarded, call.shape, scale_type, "gaps", 3),
        "in-place": lambda: x,
    }[call.out]()
    return NormArrays(x, scale, grad, out)


def spec_call(call, inputs):
    return NormCall(
        inputs.x.astype(np.float64),
        inputs.scale.astype(np.float64),
        call.dtype,
        call.scale_type,
        **call.attributes,
    )


def converted(call, array):
    return to_torch(array) if call.framework == "torch" else array


def assert_within(result, expected, dtype):
    value, bound = expected
    assert str(result.dtype).removeprefix("torch.") == dtype
    assert tuple(result.shape) == value.shape
    got = np.atleast_1d(values_of(result))
    ratio, at = worst_ratio(got, np.atleast_1d(value), np.atleast_1d(bound))
    assert ratio <= 1, f"error is {ratio:.3g} of its bound at {at}: {got[at]!r}"


def run_and_judge(call, backend, guarded, seed=0, x=None):
    """Return the result after a check of its bound and of the memory around it; None if the back end refuses
    the call's types."""
    inputs = make_inputs(call, guarded, seed, x)
    spec, before = spec_call(call, inputs), inputs.x.copy()
    expected = norm_spec.rms_norm(spec, normalized_error_on(backend, spec.n))
    x = converted(call, inputs.x)
    out = x if call.out == "in-place" else None if inputs.out is None else converted(call, inputs.out)
    result = unless_refused(
        backend,
        (call.dtype, call.scale_type, spec.stash),
        lambda: rms_norm(x, converted(call, inputs.scale), **call.attributes, out=out, backend=backend),
    )
    guarded.check()
    if result is None:
        assert bytes_of(inputs.x) == bytes_of(before)
        return None
    assert out is None or result is out
    if call.out != "in-place":
        assert bytes_of(inputs.x) == bytes_of(before)
    assert_within(result, expected, call.scale_type)
    return result


def torch_computes_gradients(call, backend):
    """Return whether torch's operations, not the kernel, compute the gradients: on an NPU, if rows have
    different scales."""
    scale = call.scale_shape()
    row_dimensions = call.axis % len(call.shape) - (len(call.shape) - len(scale))
    return backend == "npu" and any(size != 1 for size in scale[: max(row_dimensions, 0)])


def gradients_refusal(call, backend):
    """Return (class, message) of the error if the device does not support the backward, else None."""
    if not is_device(backend) or torch_computes_gradients(call, backend):
        return None
    chip, lacking = chip_of(backend), () if has_bfloat16(backend) else ("bfloat16",)
    for name, dtype in (("x", call.dtype), ("scale", call.scale_type)):
        if dtype in ("float64", *lacking):
            rule = "float32 or float16" if lacking else "float32, float16 or bfloat16"
            return TypeError, f"[rms_norm_backward] {name} must be {rule} on {chip} but got {dtype}."
    if norm_spec.STASH[call.stash_type] in ("float64", *lacking):
        return ValueError, "[rms_norm_backward] stash_type must be 1 (float32)"
    return None


def judge_gradients(call, backend, guarded, seed=0, x=None):
    """Require both gradients to meet their bounds, or the error if the back end must refuse the call.

    Gradients that torch computes are compared with a tolerance instead.
    """
    inputs = make_inputs(call, guarded, seed, x)
    arrays = [converted(call, a) for a in (inputs.grad, inputs.x, inputs.scale)]
    if refused := gradients_refusal(call, backend):
        with pytest.raises(refused[0]) as caught:
            rms_norm_backward(*arrays, **call.attributes, backend=backend)
        assert refused[1] in str(caught.value)
        return
    expected = norm_spec.rms_norm_backward(spec_call(call, inputs), inputs.grad.astype(np.float64), backend)
    dx, dscale = rms_norm_backward(*arrays, **call.attributes, backend=backend)
    guarded.check()
    if torch_computes_gradients(call, backend):  # computed in float32 for all types
        for gradient, (value, _) in zip((dx, dscale), expected, strict=True):
            np.testing.assert_allclose(values_of(gradient), value, rtol=2e-2, atol=2e-2)
        return
    assert_within(dx, expected[0], call.dtype)
    assert_within(dscale, expected[1], call.scale_type)


def has_contiguous_rows(call):
    """Return whether a row is one contiguous dimension. With more than the four dimensions of the C
    interface, all of x must be contiguous."""
    rows_are_last = call.axis % len(call.shape) == len(call.shape) - 1
    layouts = ("contiguous", "gaps", "transposed") if len(call.shape) <= 4 else ("contiguous",)
    return call.layout in layouts and rows_are_last


def possible(call):
    """Return False for calls that are not valid: torch has no negative strides; an output in place needs x's
    type and contiguous rows; one with gaps needs axis -1 and at most four dimensions."""
    in_place_fits = call.out != "in-place" or (call.scale_type == call.dtype and has_contiguous_rows(call))
    rows_are_last = call.axis % len(call.shape) == len(call.shape) - 1
    gaps_fit = call.out != "gaps" or (rows_are_last and len(call.shape) <= 4)
    return in_place_fits and gaps_fit and not (call.framework == "torch" and call.layout == "reversed")


__all__ = [
    "NUMPY_DTYPES",
    "NormSetup",
    "assert_within",
    "bytes_of",
    "converted",
    "filled",
    "has_contiguous_rows",
    "judge_gradients",
    "make_inputs",
    "on_hosts",
    "possible",
    "run_and_judge",
    "spec_call",
    "strides_of",
    "to_torch",
    "unless_refused",
    "values_of",
]
