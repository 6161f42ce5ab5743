"""Bad calls of rope (rope_bad_calls.py) raise the same error on every path and write nothing."""

from __future__ import annotations

import ctypes as C
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from rope_bad_calls import (
    ATTRIBUTES,
    INPUTS,
    OUTPUTS,
    PATHS,
    SENTINEL,
    D,
    N,
    RopeCall,
    S,
    overlapping_call,
    sentinels,
)
from rope_cases import to_torch
from together import together
from without_torch import LINE

from npu_rope import (
    BackendUnavailable,
    RopeParams,
    native,
    rope,
    rope_,
    rope_qk,
    rotary_position_embedding,
    simulated_package,
)
from npu_rope.native import CParams, c_tensor

TABLE = [(bad, path) for bad in (*ATTRIBUTES, *INPUTS, *OUTPUTS) for path in bad.paths]


def differs(array, before):
    return not np.array_equal(array, before, equal_nan=array.dtype.kind == "f")


@together(("bad", "path"), TABLE, ids=[f"{b.name}-{p}" for b, p in TABLE])
def test_a_bad_call_raises_its_error_and_writes_nothing(bad, path):
    call = bad.make()
    before = [a.copy() for a in call.arrays()]
    # torch raises most errors of C++ operators as RuntimeError.
    expected = (RuntimeError, ValueError, TypeError) if path == "torch-ops" else bad.kind
    with pytest.raises(expected) as caught:
        PATHS[path](call)
    message = str(caught.value)
    if path == "torch-ops":
        text = re.sub("^mode ", "rope_mode ", bad.text)  # the schema's name
        assert f"[rope] {text}" in message
    else:
        assert message == f"[rope] {bad.text}"
    assert not any(differs(a, b) for a, b in zip(call.arrays(), before, strict=True))


@pytest.mark.parametrize("path", PATHS)
def test_a_valid_call_writes_every_output_element(path):
    call = RopeCall(factors=np.ones(4, np.float32))
    PATHS[path](call)
    assert not np.any(call.out == SENTINEL)


@pytest.mark.parametrize("path", PATHS)
def test_back_to_back_memory_is_no_overlap(path):
    PATHS[path](overlapping_call(96, 0)())


# ---- errors that only C can raise ------------------------------------------------------------------


def call_c(x_shape=(3, 2, 8), **changed):
    """Call C with structs that the arguments may replace. Return the status, the message and out."""
    data = np.ones(48, np.float32)
    positions, out = np.arange(3, dtype=np.int32), sentinels(48)
    structs = {
        "x": c_tensor(data.ctypes.data, "float32", x_shape, (16, 8, 1)),
        "positions": c_tensor(positions.ctypes.data, "int32", (3,), (1,)),
        "freq_factors": None,
        "params": CParams(n_dims=8, freq_base=10000.0, freq_scale=1.0, attn_factor=1.0),
        "out": c_tensor(out.ctypes.data, "float32", (3, 2, 8), (16, 8, 1)),
        **changed,
    }
    pointers = [None if s is None else C.byref(s) for s in structs.values()]
    call = (*pointers[:4], 1, 0, pointers[4])
    library = native.load()
    return library.lib.npu_rope_rope(*call), library.last_error().message.decode(), out


@pytest.mark.parametrize(
    ("name", "kind"),
    [("x", "a tensor"), ("positions", "a tensor"), ("params", "a struct"), ("out", "a tensor")],
)
def test_null_arguments_are_named(name, kind):
    status, message, out = call_c(**{name: None})
    assert (status, message) == (1, f"[rope] {name} must be {kind} but got NULL.")
    assert np.all(out == SENTINEL)


@pytest.mark.parametrize("name", ["x", "positions", "freq_factors", "out"])
def test_null_data_of_tensors_with_elements_is_refused(name):
    shapes = {"x": (3, 2, 8), "positions": (3,), "freq_factors": (4,), "out": (3, 2, 8)}
    shape = shapes[name]
    strides = (16, 8, 1)[-len(shape) :]
    dtype = "int32" if name == "positions" else "float32"
    status, message, out = call_c(**{name: c_tensor(0, dtype, shape, strides)})
    assert (status, message) == (1, f"[rope] {name} must have data but got NULL.")
    assert np.all(out == SENTINEL)


def test_null_data_of_empty_tensors_is_accepted():
    no_data = c_tensor(0, "float32", (0, 2, 8), (16, 8, 1))
    status, _, _ = call_c((0, 2, 8), out=no_data, positions=c_tensor(0, "int32", (0,), (1,)))
    assert status == 0


LARGE = 2**31


@pytest.mark.parametrize(
    ("shape", "strides", "fault"),
    [
        ((LARGE, LARGE, LARGE), (0, 0, 1), "shape"),  # elements
        ((2**30, 2**30, 8), (0, 0, 1), "shape"),  # bytes
        ((0, LARGE, LARGE), (0, 0, 1), "empty"),  # elements apart from the size of 0
        ((2, 2, 8), (2**62, 2**62, 1), "strides"),  # extent
        ((2, 1, 8), (-(2**63), 0, 1), "strides"),  # a stride without an absolute value
        ((2, 1, 8), (2**61, 0, 1), "strides"),  # extent in bytes
        ((2, 2, 8), (2**60, -(2**60), 1), "strides"),  # extent, of two ends that fit
    ],
)
def test_sizes_and_strides_that_overflow_are_refused(shape, strides, fault):
    data = np.ones(64, np.float32)
    status, message, out = call_c(x=c_tensor(data.ctypes.data, "float32", shape, strides))
    rules = {
        "shape": f"have fewer than 2^63 bytes but got shape {list(shape)}.",
        "empty": f"have fewer than 2^63 bytes if its sizes of 0 were 1 but got shape {list(shape)}.",
        "strides": f"extend over fewer than 2^63 bytes but got strides {list(strides)}.",
    }
    assert (status, message) == (1, f"[rope] x must {rules[fault]}")
    assert np.all(out == SENTINEL)


def test_negative_sizes_are_refused():
    data = np.ones(64, np.float32)
    status, message, _ = call_c(x=c_tensor(data.ctypes.data, "float32", (-3, 2, 8), (16, 8, 1)))
    assert (status, message) == (1, "[rope] x must have sizes >= 0 but got [-3, 2, 8].")


@pytest.mark.parametrize("ndim", [-1, 0, 5, 99])
def test_ranks_out_of_range_are_refused(ndim):
    x = c_tensor(0, "float32", (3, 2, 8), (16, 8, 1))
    x.ndim = ndim
    status, message, _ = call_c(x=x)
    got = "[]" if ndim == 0 else f"{ndim} dimensions"
    assert (status, message) == (1, f"[rope] x must have shape [B,S,N,D] or [S,N,D] but got {got}.")
    for name in ("positions", "freq_factors", "out"):
        struct = c_tensor(0, "int32" if name == "positions" else "float32", (3,), (1,))
        struct.ndim = ndim
        status, message, _ = call_c(**{name: struct})
        assert status == 1
        assert message.startswith(f"[rope] {name} must have")


@pytest.mark.parametrize("name", ["x", "positions", "freq_factors", "out"])
def test_unknown_dtypes_are_type_errors(name):
    struct = c_tensor(0, "complex64", (3, 2, 8), (16, 8, 1))
    status, message, _ = call_c(**{name: struct})
    assert status == 2
    assert message.startswith(f"[rope] {name} must ")
    assert message.endswith("but got an unknown dtype.")


@pytest.mark.parametrize(("name", "dtype", "size"), [("x", "float32", 4), ("positions", "int64", 8)])
def test_unaligned_data_is_refused(name, dtype, size):
    raw = np.zeros(400, np.uint8)
    address = raw.ctypes.data + (-raw.ctypes.data) % 8 + size // 2
    shape, strides = ((3, 2, 8), (16, 8, 1)) if name == "x" else ((3,), (1,))
    status, message, out = call_c(**{name: c_tensor(address, dtype, shape, strides)})
    text = f"[rope] {name} must be aligned to its {size}-byte elements but got an address that is not."
    assert (status, message) == (1, text)
    assert np.all(out == SENTINEL)


def test_unknown_instruction_set_is_refused(library):
    with pytest.raises(ValueError, match=r"^\[force_isa\] name must be .* but got sse9\.$"):
        library.force_isa("sse9")


# ---- errors that only Python can raise -------------------------------------------------------------


def ones(framework):
    x, positions = np.ones((S, N, D), np.float32), np.arange(S)
    return (x, positions) if framework == "numpy" else (to_torch(x), to_torch(positions))


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_unknown_backend_names_the_known_ones(framework):
    with pytest.raises(
        ValueError, match=r"^\[rope\] backend must be one of reference, cpu, sim.* but got 'cuda'\.$"
    ):
        rope(*ones(framework), RopeParams(8), backend="cuda")


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize(
    ("name", "piece"),
    [
        ("sim", "its operator package simulated_package was not found in "),
        ("sim:ascend310p", "its operator package simulated_package was not found in "),
        ("npu", "npu_rope's operator package"),
    ],
)
def test_the_error_of_an_absent_backend_names_the_missing_piece_and_the_remedy(
    name, piece, framework, monkeypatch
):
    monkeypatch.setattr(simulated_package, "load", simulated_package.load.__wrapped__)  # not cached
    monkeypatch.setattr(simulated_package, "find", lambda: None)
    monkeypatch.delenv("ASCEND_CUSTOM_OPP_PATH", raising=False)
    with pytest.raises(BackendUnavailable) as caught:
        rope(*ones(framework), RopeParams(8), backend=name)
    assert caught.value.backend == name
    assert piece in caught.value.missing
    assert caught.value.remedy
    assert str(caught.value).startswith(f"[{name}] backend must be available but ")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_AS limits memory on Linux only")
@pytest.mark.skipif(
    "sim" not in os.environ.get("NPU_ROPE_TEST_BACKEND", "sim"), reason="another back end is tested"
)
def test_the_simulator_loads_when_there_is_memory_again():
    program = (
        "import resource\n"
        "import numpy as np\n"
        "from npu_rope import BackendUnavailable, RopeParams, rope\n"
        "x, params = np.ones((1, 2, 1, 8), np.float32), RopeParams(8)\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "limits = resource.getrlimit(resource.RLIMIT_AS)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 20), limits[1]))\n"
        "try:\n"
        "    rope(x, np.arange(2), params, backend='sim')\n"
        "except BackendUnavailable as error:\n"
        "    print(error)\n"
        "resource.setrlimit(resource.RLIMIT_AS, limits)\n"
        "print(rope(x, np.arange(2), params, backend='sim').shape)\n"
    )
    command = (sys.executable, "-c", f"{LINE}\n{program}")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    message, remedy, shape = done.stdout.splitlines()
    assert "(too little memory, or a file system whose files may not be executed)." in message
    assert remedy == "Install ascend-sim again."
    assert shape == "(1, 2, 1, 8)"


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("backend_name", ["reference", "cpu", "sim", None])
@pytest.mark.parametrize("wrong", [None, {"n_dims": 8}, 8])
def test_params_must_be_rope_params(framework, backend_name, wrong):
    text = rf"^\[rope\] params must be a RopeParams but got {type(wrong).__name__}\.$"
    with pytest.raises(TypeError, match=text):
        rope(*ones(framework), wrong, backend=backend_name)
    if framework == "torch":
        x, positions = ones(framework)
        with pytest.raises(TypeError, match=text):
            rope(x.requires_grad_(), positions, wrong, backend=backend_name)


@pytest.mark.parametrize("backend_name", ["reference", "cpu", "sim"])
def test_x_must_be_an_array_or_a_tensor(backend_name):
    text = r"^\[rope\] x must be a torch tensor or a NumPy array but got list\.$"
    with pytest.raises(TypeError, match=text):
        rope([[[1.0, 2.0]]], [0], RopeParams(2), backend=backend_name)


@pytest.mark.parametrize("backend_name", ["reference", "cpu", "sim", None])
@pytest.mark.parametrize("name", ["positions", "freq_factors", "out"])
def test_arrays_in_a_call_with_a_tensor_are_refused(name, backend_name):
    x, positions = ones("torch")
    given = {"positions": positions, "freq_factors": torch.ones(4), "out": torch.empty_like(x)}
    given[name] = given[name].numpy()
    text = rf"^\[rope\] {name} must be a torch tensor like x but got ndarray\.$"
    with pytest.raises(TypeError, match=text):
        rope(
            x,
            given["positions"],
            RopeParams(8),
            given["freq_factors"],
            out=given["out"],
            backend=backend_name,
        )


@pytest.mark.parametrize("backend_name", ["reference", "cpu", "sim"])
def test_a_tensor_as_out_of_an_array_is_refused(backend_name):
    x, positions = ones("numpy")
    with pytest.raises(TypeError, match=r"^\[rope\] out must be a NumPy array like x but got Tensor\.$"):
        rope(x, positions, RopeParams(8), out=torch.empty(x.shape), backend=backend_name)


@pytest.mark.parametrize("backend_name", ["reference", "cpu", "sim"])
def test_a_tensor_on_another_device_is_refused(backend_name):
    x = torch.ones(S, N, D, device="meta")
    with pytest.raises(ValueError, match=r"^\[rope\] x must be on device cpu for .* but got meta\.$"):
        rope(x, torch.arange(S), RopeParams(8), backend=backend_name)


@pytest.mark.parametrize("backend_name", ["reference", "cpu", "sim"])
def test_rope_in_place_refuses_a_read_only_array(backend_name):
    x, positions = ones("numpy")
    x.flags.writeable = False
    with pytest.raises(ValueError, match=r"^\[rope_\] x must be writeable but got a read-only array\.$"):
        rope_(x, positions, RopeParams(8), backend=backend_name)


# ---- tensors that are not dense -------------------------------------------------------------------------

NOT_DENSE = {
    "torch.sparse_coo": lambda t: t.to_sparse(),
    "torch._mkldnn": lambda t: t.to_mkldnn(),
    "a nested one": lambda t: torch.nested.nested_tensor(list(t)),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", NOT_DENSE)
@pytest.mark.parametrize("call", ["rope", "rope_qk", "rotary_position_embedding"])
def test_tensors_that_are_not_dense_are_refused(layout, call, backend):
    x = torch.ones(2, 3, 4, 8)
    other = NOT_DENSE[layout](x)
    params, positions = RopeParams(8), torch.arange(3)
    calls = {
        "rope": ("x", lambda: rope(other, positions, params, backend=backend)),
        "rope_qk": ("k", lambda: rope_qk(x, other, positions, params, backend=backend)),
        "rotary_position_embedding": (
            "query",
            lambda: rotary_position_embedding(other, x, 0, backend=backend),
        ),
    }
    name, run = calls[call]
    with pytest.raises(TypeError) as caught:
        run()
    assert str(caught.value) == f"[{call}] {name} must be a dense tensor but got {layout}."


def test_positions_that_are_not_dense_are_refused(backend):
    x, positions = torch.ones(2, 3, 4, 8), torch.arange(3).to_sparse()
    with pytest.raises(
        TypeError, match=r"^\[rope\] positions must be a dense tensor but got torch\.sparse_coo\.$"
    ):
        rope(x, positions, RopeParams(8), backend=backend)
