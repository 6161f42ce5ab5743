"""rms_norm, rotary_mul and rms_norm_rope on small NumPy arrays: the short path (csrc/capi/python.cpp)
beside the usual path. ``tests/rope/test_small_arrays.py`` has the tests of the path itself."""

import ml_dtypes
import numpy as np
import pytest

import npu_rope
from npu_rope import RopeParams
from npu_rope.executors import small_arrays

PARAMS = RopeParams(8, "neox")
POSITIONS = np.array([3, -1])
DTYPES = (np.float32, np.float16, np.float64)
OPERATORS = ("rms_norm", "rotary_mul", "rms_norm_rope")


def random(*shape, dtype=np.float32):
    return np.random.default_rng(7).standard_normal(shape).astype(dtype)


def arguments_of(op, x):
    """Return the operator's arguments for an x of the shape [1,2,N,8]."""
    scale = np.linspace(0.5, 2, 8).astype(x.dtype)
    if op == "rms_norm":
        return x, scale
    if op == "rotary_mul":
        return x, random(2, 8).astype(x.dtype), random(2, 8).astype(x.dtype)
    return x[0], x[0, :, :1], scale, scale, POSITIONS, PARAMS


def results_of(op, *arguments, **options):
    results = getattr(npu_rope, op)(*arguments, **options)
    return results if isinstance(results, tuple) else (results,)


@pytest.fixture
def short_calls(monkeypatch):
    """For each call: whether the short path ran it."""
    taken = []
    run = small_arrays.run

    def record(*arguments, **options):
        results = run(*arguments, **options)
        taken.append(results is not None)
        return results

    npu_rope.rope(random(2, 1, 8), POSITIONS, PARAMS)  # the first call of PARAMS takes the usual path
    monkeypatch.setattr(small_arrays, "run", record)
    return taken


def usual(op, *arguments, monkeypatch, **options):
    with monkeypatch.context() as without:
        without.setattr(small_arrays, "run", lambda *arguments, **options: None)
        return results_of(op, *arguments, **options)


OPTIONS = {
    "rms_norm": [{}, {"axis": 2, "epsilon": 0.5}, {"stash_type": 11}, {"axis": -1, "stash_type": 10}],
    "rotary_mul": [{}, {"interleaved": True}, {"rotary_dim": 4, "offset": 2}],
    "rms_norm_rope": [{}, {"epsilon": 0.5, "angle": "f32"}, {"intermediate_rounding": True}],
}
EACH_CALL = [(op, options) for op in OPERATORS for options in OPTIONS[op]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("op", "options"), EACH_CALL)
def test_results_have_the_bits_of_the_usual_path(short_calls, monkeypatch, op, options, dtype):
    arguments = arguments_of(op, random(1, 2, 3, 8, dtype=dtype))
    if "rotary_dim" in options:
        arguments = (arguments[0], *(table[:, :4] for table in arguments[1:]))
    if options.get("axis") == 2:
        arguments = arguments[0], np.tile(arguments[1], (3, 1))
    short = results_of(op, *arguments, **options)
    assert short_calls == [True]
    expected = usual(op, *arguments, monkeypatch=monkeypatch, **options)
    for y, wanted in zip(short, expected, strict=True):
        assert (y.dtype, y.shape) == (wanted.dtype, wanted.shape)
        assert y.tobytes() == wanted.tobytes()
        assert y.flags.c_contiguous


def test_a_norm_has_the_dtype_of_its_scale(short_calls):
    x, scale = random(2, 8, dtype=np.float16), random(8)
    assert npu_rope.rms_norm(x, scale).dtype == np.float32
    assert npu_rope.rms_norm(random(2, 8), scale.astype(np.float16)).dtype == np.float16
    assert short_calls == [True, True]


@pytest.mark.parametrize("op", OPERATORS)
def test_results_are_written_to_out(short_calls, op):
    arguments = arguments_of(op, random(1, 2, 3, 8))
    expected = results_of(op, *arguments)
    outs = tuple(np.empty_like(y) for y in expected)
    results = results_of(op, *arguments, out=outs if len(outs) > 1 else outs[0])
    assert short_calls == [True, True]
    for y, out, wanted in zip(results, outs, expected, strict=True):
        assert y is out
        assert y.tobytes() == wanted.tobytes()


class Array(np.ndarray):
    """A subclass of NumPy's array."""


OTHER_ARRAYS = {
    "strided": random(1, 2, 3, 16)[..., ::2],
    "bfloat16": random(1, 2, 3, 8).astype(ml_dtypes.bfloat16),
    "subclass": random(1, 2, 3, 8).view(Array),
    "other byte order": random(1, 2, 3, 8).astype(">f4"),
    "large": random(1, 2, 10000, 8),
}


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("x", OTHER_ARRAYS.values(), ids=OTHER_ARRAYS)
def test_other_arrays_take_the_usual_path(short_calls, op, x):
    arguments = arguments_of(op, x)
    results = results_of(op, *arguments)
    assert True not in short_calls
    wide = [a.astype(np.float64) if getattr(a, "dtype", None) == x.dtype else a for a in arguments]
    for y, wanted in zip(results, results_of(op, *wide, backend="reference"), strict=True):
        np.testing.assert_allclose(y.astype(np.float64), wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("op", OPERATORS)
def test_a_named_backend_takes_its_own_path(short_calls, monkeypatch, op):
    arguments = arguments_of(op, random(1, 2, 3, 8))
    results_of(op, *arguments, backend="reference")
    monkeypatch.setattr(npu_rope.backends, "default_backend", "reference")
    results_of(op, *arguments)
    assert not short_calls


X = random(1, 2, 3, 8)
SCALE, TABLE = random(8), random(2, 8)
HEADS = X[0], X[0], SCALE, SCALE, POSITIONS, PARAMS


@pytest.mark.parametrize(
    ("op", "arguments", "options"),
    [
        ("rms_norm", (X, random(3)), {}),
        ("rms_norm", (X, SCALE), {"axis": 4}),
        ("rms_norm", (X, SCALE), {"epsilon": -1.0}),
        ("rms_norm", (X, SCALE), {"stash_type": 2}),
        ("rms_norm", (X.astype(np.int32), SCALE), {}),
        ("rms_norm", (X, SCALE), {"out": np.zeros((1, 2, 3, 8), np.float64)}),
        ("rotary_mul", (X, TABLE[:1], TABLE[:, :4]), {}),
        ("rotary_mul", (X, TABLE, TABLE), {"rotary_dim": 3}),
        ("rotary_mul", (X, TABLE, TABLE.astype(np.int32)), {}),
        ("rms_norm_rope", (X[0], X[0], SCALE, SCALE[:4], POSITIONS, PARAMS), {}),
        ("rms_norm_rope", HEADS, {"epsilon": -1.0}),
        ("rms_norm_rope", HEADS, {"intermediate_rounding": 1}),
        ("rms_norm_rope", HEADS, {"angle": "fast"}),
    ],
)
def test_errors_are_those_of_the_usual_path(short_calls, monkeypatch, op, arguments, options):
    errors = []
    for run in (results_of, lambda *a, **o: usual(*a, monkeypatch=monkeypatch, **o)):
        with pytest.raises((ValueError, TypeError), match=rf"^\[{op}\] ") as raised:
            run(op, *arguments, **options)
        errors.append((raised.type, str(raised.value)))
    assert errors[0] == errors[1]
    assert True not in short_calls
    assert "out" not in options or not options["out"].any()


@pytest.mark.parametrize(
    ("op", "options"),
    [
        ("rms_norm", {"axis": 2**64 - 1}),
        ("rms_norm", {"stash_type": 2**64 + 1}),
        ("rotary_mul", {"rotary_dim": 2**64 + 8}),
        ("rotary_mul", {"offset": -(2**64)}),
    ],
)
@pytest.mark.parametrize("to", ["array", "tensor"])
def test_integers_of_more_than_64_bits_are_refused(op, options, to):
    arguments = arguments_of(op, random(1, 2, 3, 8))
    if to == "tensor":
        torch = pytest.importorskip("torch")
        arguments = [torch.from_numpy(x) for x in arguments]
    (name,) = options
    with pytest.raises(ValueError, match=rf"\[{op}\] {name} must be in the int64 range but got "):
        results_of(op, *arguments, **options)
