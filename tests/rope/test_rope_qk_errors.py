"""Bad calls of rope_qk raise the same error on every path (paths.py) and write nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from paths import (
    C_PATHS,
    NUMPY,
    PATHS,
    PYTHON,
    QK,
    BadCall,
    PathCall,
    assert_refused,
    bad_calls_of,
    c_arguments,
    c_status,
    each_bad_call,
    make_ones,
    make_sentinels,
    make_strided,
)
from rope_bad_calls import SENTINEL, sentinels
from rope_cases import chip_of, to_torch

from npu_rope import BackendUnavailable, RopeParams, rope_qk, rope_qk_
from npu_rope.native import c_tensor

B, S, NQ, NK, D = 2, 3, 4, 2, 8
Q, K = (B, S, NQ, D), (B, S, NK, D)


def call(attributes=None, angle=0, **changed):
    """Return a correct call in which the given arguments are changed."""
    tensors = {
        "q": np.ones(Q, np.float32),
        "k": np.ones(K, np.float32),
        "positions": np.arange(S, dtype=np.int32),
        "freq_factors": None,
        "q_out": sentinels(Q),
        "k_out": sentinels(K),
    }
    new_call = PathCall(QK, {**tensors, **changed}, angle=angle)
    new_call.attributes.update(attributes or {})
    return new_call


bad = bad_calls_of(call)


# ---- inputs ----------------------------------------------------------------------------------------

TYPES = "must be float32, float16, bfloat16 or float64 but got"
SHAPES = "must have shape [B,S,N,D] or [S,N,D] but got"
BUT_HEADS = "k must have q's shape [2, 3, 4, 8] except for the heads but got"
POSITIONS = "positions must have shape [S] = [3], [B, S] = [2, 3] or [1, S] but got"
SECTIONED = {"mode": 8, "sections": (1, 1, 1, 0)}

INPUTS = [
    bad("q-int32", f"q {TYPES} int32.", kind=TypeError, q=make_ones(*Q, dtype=np.int32)),
    bad("k-int32", f"k {TYPES} int32.", kind=TypeError, k=make_ones(*K, dtype=np.int32)),
    bad("k-int16", f"k {TYPES} int16.", kind=TypeError, k=make_ones(*K, dtype=np.int16), paths=PYTHON),
    bad("q-2d", f"q {SHAPES} [3, 8].", q=make_ones(3, 8)),
    bad("k-2d", f"k {SHAPES} [3, 8].", k=make_ones(3, 8)),
    bad("k-5d", f"k {SHAPES} [1, 2, 3, 2, 8].", k=make_ones(1, *K), paths=PYTHON),
    bad(
        "k-other-dtype",
        "k must have q's dtype float32 but got float16.",
        kind=TypeError,
        k=make_ones(*K, dtype=np.float16),
    ),
    bad("k-other-batch", f"{BUT_HEADS} [1, 3, 2, 8].", k=make_ones(1, S, NK, D)),
    bad("k-other-tokens", f"{BUT_HEADS} [2, 4, 2, 8].", k=make_ones(B, 4, NK, D)),
    bad("k-other-head-size", f"{BUT_HEADS} [2, 3, 2, 6].", k=make_ones(B, S, NK, 6)),
    bad("k-without-batch", f"{BUT_HEADS} [3, 2, 8].", k=make_ones(S, NK, D)),
    bad("positions-long", f"{POSITIONS} [4].", positions=lambda: np.arange(4)),
    bad("positions-per-head", f"{POSITIONS} [2, 3, 4].", positions=lambda: np.zeros((B, S, NQ), np.int32)),
    bad(
        "positions-float",
        "positions must be int32 or int64 but got float32.",
        kind=TypeError,
        positions=lambda: np.zeros(3, np.float32),
    ),
    bad(
        "positions-far",
        "positions must be in the int32 range but got 2147483648.",
        positions=lambda: np.array([0, 2**31, 5]),
    ),
    bad(
        "positions-of-no-plane",
        "positions must have shape [4,S] = [4, 3], [4*S], [3,S], [4,B,S] = [4, 2, 3], [3,B,S],"
        " [4,1,S] or [3,1,S] in mode mrope but got [3].",
        attributes=SECTIONED,
    ),
    bad(
        "positions-of-no-plane-for-a-batch-of-one",
        "positions must have shape [4,S] = [4, 3], [4*S], [3,S], [4,B,S] = [4, 1, 3] or [3,B,S]"
        " in mode mrope but got [3].",
        q=make_ones(1, *Q[1:]),
        k=make_ones(1, *K[1:]),
        attributes=SECTIONED,
    ),
    bad(
        "positions-on-meta",
        "positions must be on q's device cpu but got meta.",
        positions=lambda: torch.zeros(S, dtype=torch.int32, device="meta"),
        paths=("torch-cpu", "torch-default", "torch-ops"),
    ),
    bad(
        "k-on-meta",
        "k must be on q's device cpu but got meta.",
        k=lambda: torch.zeros(K, device="meta"),
        paths=("torch-cpu", "torch-default", "torch-ops"),
    ),
    bad(
        "factors-short",
        "freq_factors must have one dimension of at least n_dims/2 = 4 elements but got shape [3].",
        freq_factors=make_ones(3),
    ),
    bad(
        "factors-zero",
        "freq_factors must be positive and finite but got 0 at index 2.",
        freq_factors=lambda: np.float32([1, 1, 0, 1]),
    ),
    bad(
        "n_dims-too-wide",
        "n_dims must be at most the head size 8 but got 10.",
        attributes={"n_dims": 10},
    ),
    bad(
        "sections-too-wide",
        "sections must add up to at most the head size 8 but got [3, 3, 3, 0].",
        attributes={"mode": 8, "sections": (3, 3, 3, 0)},
    ),
    bad("angle-unknown", "angle must be exact (0), f32 (1) or ggml (2) but got 3.", angle=3),
    # Checks of parameters do not depend on the operator; their errors name rope.
    bad(
        "n_dims-odd",
        "n_dims must be a positive even number but got 7.",
        attributes={"n_dims": 7},
        operator="rope",
    ),
    bad(
        "frequency-too-fast",
        "frequencies must be at most 1e+09 radians per position but got 2e+09 for pair 0.",
        attributes={"freq_scale": 2e9},
        operator="rope",
    ),
]

# ---- outputs ---------------------------------------------------------------------------------------


def in_one_buffer(q=0, k=500, q_out=1000, k_out=1500):
    """Return a function that makes a call. All four tensors are in one buffer; each argument is the index of
    the tensor's first element."""

    def make():
        memory = sentinels(2000)
        shapes = {"q": (q, Q), "k": (k, K), "q_out": (q_out, Q), "k_out": (k_out, K)}
        return call(**{
            name: memory[at : at + int(np.prod(shape))].reshape(shape)
            for name, (at, shape) in shapes.items()
        })  # fmt: skip

    return make


def out_over(out, name):
    def make():
        new_call = call(freq_factors=np.ones(4, np.float32))
        inside = new_call.tensors[out].ravel()[5:9]
        new_call.tensors[name] = inside.view(np.int32)[:S] if name == "positions" else inside
        new_call.tensors[name][...] = 1
        return new_call

    return make


def in_place(q=None, k=None):
    q, k = np.ones(Q, np.float32) if q is None else q, np.ones(K, np.float32) if k is None else k
    return call(q=q, k=k, q_out=q, k_out=k)


def one_tensor_twice():
    q = np.ones(Q, np.float32)
    return call(q=q, k=q, q_out=q, k_out=q)


def off_by_a_byte():
    return np.zeros(4 * B * S * NK * D + 1, np.uint8)[1:].view(np.float32).reshape(K)


def read_only():
    out = sentinels(K)
    out.flags.writeable = False
    return out


UNIT_STRIDE = "must have unit stride in its last dimension but got"
OVERLAP = "must share no memory with {} but got overlapping memory."
PARTIAL_OVERLAP = "must be {0} itself or share no memory with {0} but got overlapping memory."
OUTPUTS = [
    bad(
        "q_out-shape",
        "q_out must have q's shape [2, 3, 4, 8] but got [2, 3, 2, 8].",
        q_out=make_sentinels(*K),
    ),
    bad(
        "k_out-shape",
        "k_out must have k's shape [2, 3, 2, 8] but got [2, 3, 4, 8].",
        k_out=make_sentinels(*Q),
    ),
    bad(
        "k_out-dtype",
        "k_out must have k's dtype float32 but got float16.",
        kind=TypeError,
        k_out=make_sentinels(*K, dtype=np.float16),
    ),
    bad(
        "k_out-read-only", "k_out must be writeable but got a read-only array.", k_out=read_only, paths=NUMPY
    ),
    bad("k_out-spaced", f"k_out {UNIT_STRIDE} 2.", k_out=make_strided(K, (96, 32, 16, 2))),
    bad(
        "q_out-folded",
        "q_out must not overlap itself but got strides [96, 32, 4, 1].",
        q_out=make_strided(Q, (96, 32, 4, 1)),
    ),
    bad(
        "k_out-shared-batch",
        "k_out must not overlap itself but got strides [0, 16, 8, 1].",
        k_out=make_strided(K, (0, 16, 8, 1)),
    ),
    bad(
        "k_out-unaligned",
        "k_out must be aligned to its 4-byte elements but got an address that is not.",
        k_out=off_by_a_byte,
    ),
    BadCall("q_out-over-q", in_one_buffer(q_out=8), "q_out " + PARTIAL_OVERLAP.format("q")),
    BadCall("q_out-over-k", in_one_buffer(q_out=400), "q_out " + OVERLAP.format("k")),
    BadCall("k_out-over-k", in_one_buffer(k_out=580), "k_out " + PARTIAL_OVERLAP.format("k")),
    BadCall("k_out-over-q", in_one_buffer(k_out=100), "k_out " + OVERLAP.format("q")),
    BadCall("k_out-over-q_out", in_one_buffer(k_out=1100), "k_out " + OVERLAP.format("q_out")),
    BadCall("k_out-is-q_out", in_one_buffer(k_out=1000), "k_out " + OVERLAP.format("q_out")),
    BadCall("q_out-is-k", in_one_buffer(q_out=500), "q_out " + OVERLAP.format("k")),
    BadCall("q_out-over-positions", out_over("q_out", "positions"), "q_out " + OVERLAP.format("positions")),
    BadCall("k_out-over-positions", out_over("k_out", "positions"), "k_out " + OVERLAP.format("positions")),
    BadCall(
        "k_out-over-factors",
        out_over("k_out", "freq_factors"),
        "k_out " + OVERLAP.format("freq_factors"),
    ),
    BadCall("one-tensor-as-both", one_tensor_twice, "q_out " + OVERLAP.format("k")),
    BadCall(
        "q-spaced-in-place",
        lambda: in_place(q=np.ones((B, S, NQ, 2 * D), np.float32)[..., ::2]),
        f"q {UNIT_STRIDE} 2.",
    ),
    BadCall(
        "k-spaced-in-place",
        lambda: in_place(k=np.ones((B, S, NK, 2 * D), np.float32)[..., ::2]),
        f"k {UNIT_STRIDE} 2.",
    ),
    bad(
        "k_out-backwards",
        f"k_out {UNIT_STRIDE} -1.",
        k_out=lambda: sentinels(K)[..., ::-1],
        paths=(*NUMPY, *C_PATHS),
    ),
]


@each_bad_call([*INPUTS, *OUTPUTS])
def test_a_bad_call_raises_its_error_and_writes_nothing(bad, path):
    assert_refused(bad, path)


@pytest.mark.parametrize("path", PATHS)
def test_a_valid_call_writes_every_output_element(path):
    new_call = call(freq_factors=np.ones(4, np.float32))
    PATHS[path](new_call)
    assert not any(np.any(new_call.tensors[name] == SENTINEL) for name in ("q_out", "k_out"))


@pytest.mark.parametrize("path", PATHS)
def test_back_to_back_memory_is_no_overlap(path):
    PATHS[path](in_one_buffer(q=0, k=192, q_out=288, k_out=480)())


@pytest.mark.parametrize("path", PATHS)
def test_slices_of_one_projection_are_no_overlap(path):
    """Each row holds the heads of q, k and v; q and k have different numbers of heads."""
    projection = np.ones((B, S, NQ + 2 * NK, D), np.float32)
    PATHS[path](in_place(projection[..., :NQ, :], projection[..., NQ : NQ + NK, :]))
    assert np.all(projection[..., NQ + NK :, :] == 1)
    assert np.any(projection[..., :NQ, :] != 1)


# ---- errors that only C can raise ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["q", "k", "positions", "params", "q_out", "k_out"])
def test_null_arguments_are_named(name):
    new_call = call()
    status, message = c_status(QK, {**c_arguments(new_call), name: None})
    kind = "struct" if name == "params" else "tensor"
    assert (status, message) == (1, f"[rope_qk] {name} must be a {kind} but got NULL.")
    assert np.all(new_call.tensors["q_out"] == SENTINEL)
    assert np.all(new_call.tensors["k_out"] == SENTINEL)


@pytest.mark.parametrize("name", ["q", "k", "q_out", "k_out"])
def test_null_data_is_refused(name):
    new_call = call()
    shape = Q if name.startswith("q") else K
    no_data = c_tensor(0, "float32", shape, (1, 1, 1, 1))
    status, message = c_status(QK, {**c_arguments(new_call), name: no_data})
    assert (status, message) == (1, f"[rope_qk] {name} must have data but got NULL.")


# ---- errors that only Python can raise -------------------------------------------------------------


def arguments_of(framework):
    arrays = np.ones(Q, np.float32), np.ones(K, np.float32), np.arange(S)
    return arrays if framework == "numpy" else tuple(map(to_torch, arrays))


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("backend_name", ["reference", "cpu", "sim", None])
def test_out_must_be_a_pair(framework, backend_name):
    q, k, positions = arguments_of(framework)
    for out, kind, got in [
        (q, TypeError, type(q).__name__),
        ((q,), ValueError, "1 elements"),
        ((q, k, k), ValueError, "3 elements"),
    ]:
        with pytest.raises(kind) as caught:
            rope_qk(q, k, positions, RopeParams(8), out=out, backend=backend_name)
        assert str(caught.value) == f"[rope_qk] out must be a pair (q_out, k_out) but got {got}."


@pytest.mark.parametrize("backend_name", ["reference", "cpu", "sim", None])
@pytest.mark.parametrize("name", ["k", "positions", "freq_factors", "q_out", "k_out"])
def test_arrays_in_a_call_with_a_tensor_are_refused(name, backend_name):
    q, k, positions = arguments_of("torch")
    t = {
        "k": k,
        "positions": positions,
        "freq_factors": torch.ones(4),
        "q_out": q.clone(),
        "k_out": k.clone(),
    }
    t[name] = t[name].numpy()
    text = rf"^\[rope_qk\] {name} must be a torch tensor like q but got ndarray\.$"
    with pytest.raises(TypeError, match=text):
        rope_qk(
            q,
            t["k"],
            t["positions"],
            RopeParams(8),
            t["freq_factors"],
            out=(t["q_out"], t["k_out"]),
            backend=backend_name,
        )


@pytest.mark.parametrize("backend_name", ["reference", "cpu", "sim"])
@pytest.mark.parametrize("name", ["k", "k_out"])
def test_tensors_in_a_call_with_an_array_are_refused(name, backend_name):
    q, k, positions = arguments_of("numpy")
    t = {"k": k, "k_out": k.copy()}
    t[name] = to_torch(t[name])
    with pytest.raises(
        TypeError, match=rf"^\[rope_qk\] {name} must be a NumPy array like q but got Tensor\.$"
    ):
        rope_qk(q, t["k"], positions, RopeParams(8), out=(q.copy(), t["k_out"]), backend=backend_name)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("backend_name", ["reference", "cpu", "sim", None])
def test_params_must_be_rope_params(framework, backend_name):
    q, k, positions = arguments_of(framework)
    text = r"^\[rope_qk\] params must be a RopeParams but got int\.$"
    with pytest.raises(TypeError, match=text):
        rope_qk(q, k, positions, 8, backend=backend_name)
    if framework == "torch":
        with pytest.raises(TypeError, match=text):
            rope_qk(q.requires_grad_(), k, positions, 8, backend=backend_name)


def test_q_must_be_an_array_or_a_tensor():
    text = r"^\[rope_qk\] q must be a torch tensor or a NumPy array but got list\.$"
    with pytest.raises(TypeError, match=text):
        rope_qk([[[1.0, 2.0]]], np.ones((1, 1, 2)), [0], RopeParams(2))


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_unknown_and_absent_backends_are_named(framework, monkeypatch):
    monkeypatch.delenv("ASCEND_CUSTOM_OPP_PATH", raising=False)
    with pytest.raises(
        ValueError, match=r"^\[rope_qk\] backend must be one of reference, cpu, sim.* got 'cuda'\.$"
    ):
        rope_qk(*arguments_of(framework), RopeParams(8), backend="cuda")
    with pytest.raises(BackendUnavailable, match=r"^\[npu\] backend must be available but "):
        rope_qk(*arguments_of(framework), RopeParams(8), backend="npu")


# ---- the device's own errors -----------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("backend_name", ["sim", "sim:ascend310p"])
def test_a_call_that_the_device_cannot_run_is_refused_and_nothing_is_written(backend_name, framework):
    convert = to_torch if framework == "torch" else lambda a: a
    reach = "positions must be between -4194303 and 4194303 on the device but got 4194304."
    floats = "float32 or float16" if "310p" in backend_name else "float32, float16 or bfloat16"
    refusals = [
        (
            np.float64,
            np.arange(S),
            "exact",
            TypeError,
            f"q must be {floats} on {chip_of(backend_name)} but got float64.",
        ),
        (np.float32, np.int64([0, 2**22, 1]), "exact", ValueError, reach),
        (
            np.float32,
            np.arange(S),
            "ggml",
            ValueError,
            "angle must be exact (0) on an NPU but got ggml.",
        ),
    ]
    for dtype, positions, angle, kind, text in refusals:
        q, k = sentinels(Q, dtype), sentinels(K, dtype)
        with pytest.raises(kind) as caught:
            rope_qk_(
                convert(q), convert(k), convert(positions), RopeParams(8), backend=backend_name, angle=angle
            )
        assert str(caught.value) == f"[rope_qk_] {text}"
        assert np.all(q == SENTINEL)
        assert np.all(k == SENTINEL)


# ---- gradients and overlaps ------------------------------------------------------------------------


@pytest.mark.parametrize("backend_name", ["reference", "sim", "sim:ascend310p"])
@pytest.mark.parametrize("name", ["q", "k", "q_out", "k_out"])
def test_gradients_of_a_call_with_out_are_refused_and_nothing_is_written(name, backend_name):
    t = {"q": torch.ones(Q), "k": torch.ones(K), "q_out": torch.zeros(Q), "k_out": torch.zeros(K)}
    t[name].requires_grad_()
    text = (
        rf"^\[rope_qk\] {name} must not need a gradient for backend {backend_name} but got requires_grad\.$"
    )

    def run():
        out = t["q_out"], t["k_out"]
        rope_qk(t["q"], t["k"], torch.arange(S), RopeParams(8), out=out, backend=backend_name)

    with pytest.raises(ValueError, match=text):
        run()
    assert not torch.any(t["q_out"])
    assert not torch.any(t["k_out"])
    with torch.no_grad():
        run()
    assert torch.all(t["k_out"][0, 0] == 1)


@pytest.mark.parametrize("convert", [np.asarray, to_torch], ids=["numpy", "torch"])
def test_k_out_over_an_in_place_q_is_refused_and_the_error_names_q(convert, backend):
    """k_out overlaps q, which is also q_out. The error names q."""
    memory = np.ones(2 * B * S * NQ * D, np.float32)
    q, k = memory[: B * S * NQ * D].reshape(Q), np.ones(K, np.float32)
    inside = memory[B * S * D : B * S * D * (1 + NK)].reshape(K)
    rule = "k_out must share no memory with q but got overlapping memory"
    q, k, positions, inside = (convert(a) for a in (q, k, np.arange(S), inside))
    chosen = None if backend == "cpu" else backend  # None: torch calls C without the checks in Python
    with pytest.raises(ValueError, match=rf"^\[rope_qk\] {rule}\.$"):
        rope_qk(q, k, positions, RopeParams(D), out=(q, inside), backend=chosen)
    assert np.all(memory == 1)
