"""The short path of small NumPy arrays (csrc/capi/python.cpp) beside the usual path."""

import sys

import ml_dtypes
import numpy as np
import pytest

import npu_rope
from npu_rope import RopeParams
from npu_rope.executors import rotations
from npu_rope.ops import calls

PARAMS = RopeParams(8, "neox")
POSITIONS = np.array([3, -1])
DTYPES = (np.float32, np.float16, np.float64)


def random(*shape, dtype=np.float32):
    return np.random.default_rng(7).standard_normal(shape).astype(dtype)


@pytest.fixture
def usual_calls(monkeypatch):
    """The calls that took the usual path."""
    taken = []
    run_named = calls.run_named

    def record(chosen, call, *rest):
        taken.append(call.op)
        return run_named(chosen, call, *rest)

    monkeypatch.setattr(calls, "run_named", record)
    npu_rope.rope(random(2, 1, 8), POSITIONS, PARAMS)  # the first call of PARAMS takes the usual path
    taken.clear()
    return taken


def usual(function, *arguments, monkeypatch, **options):
    with monkeypatch.context() as without:
        without.setattr(rotations, "on_small_arrays", lambda *arguments: None)
        return function(*arguments, **options)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("angle", ["exact", "f32", "ggml"])
@pytest.mark.parametrize("positions", [POSITIONS, POSITIONS.astype(np.int32), POSITIONS[::-1]])
def test_rope_has_the_bits_of_the_usual_path(usual_calls, monkeypatch, dtype, angle, positions):
    x, factors = random(1, 2, 3, 12, dtype=dtype)[..., :10], np.linspace(1, 2, 8, dtype=np.float32)[::2]
    for forward in (True, False):
        options = {"angle": angle, "forward": forward}
        short = npu_rope.rope(x, positions, PARAMS, factors, **options)
        assert not usual_calls
        expected = usual(npu_rope.rope, x, positions, PARAMS, factors, monkeypatch=monkeypatch, **options)
        assert usual_calls.pop() == "rope"
        assert short.dtype == dtype
        assert short.tobytes() == expected.tobytes()
        assert short.flags.c_contiguous


@pytest.mark.parametrize("dtype", DTYPES)
def test_rope_qk_has_the_bits_of_the_usual_path(usual_calls, monkeypatch, dtype):
    q, k = random(2, 4, 8, dtype=dtype), random(2, 1, 8, dtype=dtype)
    short = npu_rope.rope_qk(q, k, POSITIONS, PARAMS)
    assert not usual_calls
    expected = usual(npu_rope.rope_qk, q, k, POSITIONS, PARAMS, monkeypatch=monkeypatch)
    assert [y.tobytes() for y in short] == [y.tobytes() for y in expected]
    assert isinstance(short, tuple)


def test_results_are_written_to_out_and_in_place(usual_calls):
    x = random(2, 1, 8)
    expected, out = npu_rope.rope(x, POSITIONS, PARAMS), np.empty_like(x)
    assert npu_rope.rope(x, POSITIONS, PARAMS, out=out) is out
    in_place = x.copy()
    assert npu_rope.rope_(in_place, POSITIONS, PARAMS) is in_place
    q, k = x.copy(), x.copy()
    pair = npu_rope.rope_qk_(q, k, POSITIONS, PARAMS)
    assert all(y is x for y, x in zip(pair, (q, k), strict=True))
    for y in (out, in_place, q, k):
        assert y.tobytes() == expected.tobytes()
    assert not usual_calls


class Array(np.ndarray):
    """A subclass of NumPy's array."""


@pytest.mark.parametrize(
    "x",
    [
        random(2, 1, 16)[..., ::2],  # a copy is needed
        random(2, 1, 8).astype(ml_dtypes.bfloat16),  # no buffers
        random(2, 1, 8).view(Array),
        random(2, 10000, 8),  # large: the interpreter's lock must be released
    ],
    ids=["strided", "bfloat16", "subclass", "large"],
)
def test_other_arrays_take_the_usual_path(usual_calls, x):
    y = npu_rope.rope(x, POSITIONS, PARAMS)
    assert usual_calls == ["rope"]
    expected = npu_rope.rope(x.astype(np.float64), POSITIONS, PARAMS, backend="reference")
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("positions", [[3, -1], POSITIONS.astype(">i8")], ids=["list", "other byte order"])
def test_positions_that_must_be_converted_take_the_usual_path(usual_calls, positions):
    x = random(2, 1, 8)
    y = npu_rope.rope(x, positions, PARAMS)
    assert usual_calls == ["rope"]
    assert y.tobytes() == npu_rope.rope(x, POSITIONS, PARAMS).tobytes()


def read_only(out):
    out.flags.writeable = False
    return out


def overlapping():
    memory = random(3, 1, 8)
    return memory[:2], memory[1:]


FROZEN = read_only(random(2, 1, 8))
X, OTHER_X = random(2, 1, 8), overlapping()


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((X, POSITIONS[:1]), {}, r"^\[rope\] positions must have shape \[S\] = \[2\] but got \[1\]\.$"),
        (
            (X, POSITIONS.astype(np.float32)),
            {},
            r"^\[rope\] positions must be int32 or int64 but got float32\.$",
        ),
        ((X.astype(np.int16), POSITIONS), {}, r"^\[rope\] x must be float32.* but got int16\.$"),
        ((X.astype(np.complex64), POSITIONS), {}, r"^\[rope\] x must be float32.* but got complex64\.$"),
        ((X[..., :4], POSITIONS), {}, r"^\[rope\] "),
        ((X, POSITIONS), {"out": read_only(X.copy())}, r"^\[rope\] out must "),
        ((X, POSITIONS), {"out": X.astype(np.float64)}, r"^\[rope\] out must have x's dtype"),
        ((OTHER_X[0], POSITIONS), {"out": OTHER_X[1]}, r"^\[rope\] out must "),
        ((X, POSITIONS), {"angle": "fast"}, r"^\[rope\] angle must be "),
        ((X, POSITIONS), {"angle": True}, r"^\[rope\] angle must be "),
    ],
)
def test_errors_are_those_of_the_usual_path(usual_calls, monkeypatch, arguments, options, message):
    before = options["out"].tobytes() if "out" in options else b""
    errors = []
    for run in (npu_rope.rope, lambda *a, **o: usual(npu_rope.rope, *a, monkeypatch=monkeypatch, **o)):
        with pytest.raises((ValueError, TypeError), match=message) as raised:
            run(*arguments, PARAMS, **options)
        errors.append((raised.type, str(raised.value)))
    assert errors[0] == errors[1]
    assert "out" not in options or options["out"].tobytes() == before


def run_short(x, positions, out):
    """Run the short path, and return whether it was possible."""
    return (
        rotations.on_small_arrays("rope", (x,), (positions, None), PARAMS, True, "exact", (out,)) is not None
    )


def test_a_call_leaves_no_reference_and_no_buffer(usual_calls):
    x, positions = random(2, 1, 8), POSITIONS.copy()
    out = np.empty_like(x)
    counts = sys.getrefcount(x), sys.getrefcount(out), sys.getrefcount(positions)
    for _ in range(100):
        npu_rope.rope(x, positions, PARAMS, out=out)
        assert not run_short(x, x, out)  # positions of float32
        assert not run_short(x, positions, FROZEN)
    assert (sys.getrefcount(x), sys.getrefcount(out), sys.getrefcount(positions)) == counts
    x.resize((1, 1, 8), refcheck=True)  # NumPy refuses this for an array whose buffer is in use
