"""Errors have fields for their parts, which are the same on every path."""

from __future__ import annotations

import copy
import ctypes as C
import pickle

import numpy as np
import pytest
import torch

from npu_rope import RopeParams, add_rms_norm, native, rms_norm, rope, rope_, rotary_mul
from npu_rope.errors import BrokenRule, InternalError, InvalidType, InvalidValue, bad_value

X, POSITIONS, PARAMS = np.ones((3, 2, 8), np.float32), np.arange(3), RopeParams(8)
SCALE = np.ones(8, np.float32)
RULE = "be float32, float16, bfloat16 or float64"

# A call, and the parts of its error.
CALLS = {
    "shape": (
        lambda convert, **options: rope(convert(X), convert(np.arange(4)), PARAMS, **options),
        (InvalidValue, "rope", "positions", "have shape [S] = [3]", "[4]"),
    ),
    "value": (
        lambda convert, **options: rope(convert(X), convert(POSITIONS + 2**31), PARAMS, **options),
        (InvalidValue, "rope", "positions", "be in the int32 range", "2147483648"),
    ),
    "dtype": (
        lambda convert, **options: rope(convert(X.astype(np.int32)), convert(POSITIONS), PARAMS, **options),
        (InvalidType, "rope", "x", RULE, "int32"),
    ),
    "dtype that C lacks": (
        lambda convert, **options: rope(convert(X.astype(np.uint16)), convert(POSITIONS), PARAMS, **options),
        (InvalidType, "rope", "x", RULE, "uint16"),
    ),
    "more dimensions than C has": (
        lambda convert, **options: rope(convert(X[None, None, None]), convert(POSITIONS), PARAMS, **options),
        (InvalidValue, "rope", "x", "have shape [B,S,N,D] or [S,N,D]", "[1, 1, 1, 3, 2, 8]"),
    ),
    "attribute": (
        lambda convert, **options: rotary_mul(
            convert(X), convert(X[:, 0]), convert(X[:, 0]), offset=1, **options
        ),
        (InvalidValue, "rotary_mul", "offset", "be an even number >= 0", "1"),
    ),
    "norm": (
        lambda convert, **options: rms_norm(convert(X), convert(SCALE), axis=3, **options),
        (InvalidValue, "rms_norm", "axis", "be in [-3, 2]", "3"),
    ),
    "norm of a sum": (
        lambda convert, **options: add_rms_norm(convert(X), convert(X), convert(SCALE[:7]), **options),
        (InvalidValue, "add_rms_norm", "scale", "be broadcastable to x's shape [3, 2, 8]", "[7]"),
    ),
}


@pytest.mark.parametrize("convert", [np.asarray, torch.tensor], ids=["array", "tensor"])
@pytest.mark.parametrize("name", CALLS)
def test_an_error_has_the_same_parts_everywhere(name, convert, backend):
    call, (kind, op, argument, rule, value) = CALLS[name]
    for options in ({"backend": backend}, {}):
        with pytest.raises(kind) as caught:
            call(convert, **options)
        error = caught.value
        assert isinstance(error, BrokenRule)
        assert (error.op, error.argument, error.rule, error.value) == (op, argument, rule, value)
        assert str(error) == f"[{op}] {argument} must {rule} but got {value}."


@pytest.mark.parametrize("function", [rope, rope_])
def test_the_message_cuts_a_long_value(function):
    """Also where the error of one function becomes that of another one."""
    with pytest.raises(
        ValueError, match=r"^\[rope_?\] angle must be .* but got .{1000}\.\.\. \(5002 characters\)\.$"
    ):
        function(np.ones((1, 1, 1, 4), np.float32), [0], RopeParams(4), angle="1" * 5000)


def test_the_classes_are_also_the_built_in_ones():
    assert issubclass(InvalidValue, ValueError)
    assert issubclass(InvalidType, TypeError)
    assert issubclass(InternalError, RuntimeError)


@pytest.mark.parametrize("copied", [copy.copy, lambda e: pickle.loads(pickle.dumps(e))])
def test_a_copy_has_the_parts(copied):
    error = copied(bad_value("rope", "x", "be another one", 7, remedy="Pass another."))
    assert type(error) is InvalidValue
    assert (error.op, error.argument, error.rule, error.value) == ("rope", "x", "be another one", "7")
    assert str(error) == "[rope] x must be another one but got 7.\nPass another."


def test_an_error_of_torch_does_not_report_our_earlier_error():
    """The C library keeps its thread's last error; a later failure of torch must not report it."""
    with pytest.raises(InvalidValue, match="head size"):
        rope(torch.tensor(X), torch.tensor(POSITIONS), RopeParams(16))
    assert native.raised_by_torch("expected a tensor") is None
    assert native.raised_by_torch("n_dims") is None


def test_c_gives_the_parts_of_the_last_error():
    library = native.load()
    x = native.c_tensor(X.ctypes.data, "float32", X.shape, (16, 8, 1))
    assert library.lib.npu_rope_rope(C.byref(x), None, None, None, 1, 0, C.byref(x)) == 1
    error = library.last_error()
    parts = error.status, error.op, error.argument, error.rule, error.value
    assert parts == (1, b"rope", b"positions", b"be a tensor", b"NULL")
    assert error.message == b"[rope] positions must be a tensor but got NULL."


INT32 = "be in the int32 range"
MODES = "be one of normal (0), neox (2), mrope (8), vision (24), imrope (40)"
# Calls that only torch.ops allows: RopeParams and packed_call reject such attributes.
REGISTRATION_ERRORS = {
    "n_dims": ({"n_dims": 2**40}, ("rope", "n_dims", INT32, "1099511627776")),
    "n_offs": ({"n_offs": -(2**40)}, ("rope", "n_offs", INT32, "-1099511627776")),
    "angle": ({"angle": 2**31}, ("rope", "angle", INT32, "2147483648")),
    "sections": (
        {"rope_mode": 8, "sections": [1, 2, 3]},
        ("rope", "sections", "be four integers >= 0", "3 integers"),
    ),
    "mode": ({"rope_mode": 7}, ("rope", "rope_mode", MODES, "7")),
    "wide mode": ({"rope_mode": 2**40}, ("rope", "rope_mode", INT32, "1099511627776")),
    "section": ({"rope_mode": 8, "sections": [1, 2, 3, 2**31]}, ("rope", "sections", INT32, "2147483648")),
}


@pytest.mark.parametrize("op", ["rope", "rope_qk", "rope_set_rows"])
@pytest.mark.parametrize("name", REGISTRATION_ERRORS)
def test_the_registration_keeps_the_parts_of_its_own_errors(op, name):
    attributes, parts = REGISTRATION_ERRORS[name]
    x, positions = torch.tensor(X), torch.tensor(POSITIONS)
    tensors = {
        "rope": (x, positions),
        "rope_qk": (x, x, positions),
        "rope_set_rows": (x, positions, positions, x),
    }
    with pytest.raises(RuntimeError) as caught:
        getattr(torch.ops.npu_rope, op)(*tensors[op], **{"n_dims": 4, **attributes})
    error = native.raised_by_torch(str(caught.value))
    assert type(error) is InvalidValue
    assert (error.op, error.argument, error.rule, error.value) == parts


@pytest.mark.parametrize("op", ["rope", "rms_norm_rope"])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_an_error_of_a_schema_names_its_rope_mode(op, device):
    x, positions = torch.tensor(X, device=device), torch.tensor(POSITIONS, device=device)
    scale = torch.ones(8, device=device)
    tensors = {"rope": (x, positions), "rms_norm_rope": (x, x, scale, scale, positions)}[op]
    with pytest.raises(
        (RuntimeError, ValueError), match=r"\[rope\] rope_mode must be one of normal .* got 7\."
    ):
        getattr(torch.ops.npu_rope, op)(*tensors, n_dims=4, rope_mode=7)
    with pytest.raises(InvalidValue, match=r"\[rope\] mode must be one of normal .* got 7\."):
        RopeParams(4, mode=7)


def test_packed_attributes_must_have_their_size():
    x, positions = torch.tensor(X), torch.tensor(POSITIONS)
    with pytest.raises(RuntimeError) as caught:
        torch.ops.npu_rope.rope_packed_(x, positions, torch.zeros(7, dtype=torch.uint8))
    error = native.raised_by_torch(str(caught.value))
    assert type(error) is InvalidValue
    assert (error.argument, error.value) == ("packed", "another tensor")
