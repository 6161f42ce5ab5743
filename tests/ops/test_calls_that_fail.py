"""Errors of calls through torch that no rule of an operator covers."""

import re
import subprocess
import sys

import numpy as np
import pytest
import without_torch

import npu_rope
from npu_rope import RopeParams
from npu_rope.ops import calls
from npu_rope.optional_torch import torch

if torch is None:
    pytest.skip("torch is not installed", allow_module_level=True)

P4 = RopeParams(4)
TOKENS = 2**44  # of 64 elements: more bytes than a process can address


def endless(*sizes: int):
    """Return a tensor of ones of these sizes in the memory of one element."""
    return torch.ones(1).expand(sizes)


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (lambda: npu_rope.rms_norm(endless(TOKENS, 64), torch.ones(64)), [TOKENS, 64]),
        (lambda: torch.ops.npu_rope.rms_norm(endless(TOKENS, 64), torch.ones(64), -1, 1e-5, 1), [TOKENS, 64]),
        (
            lambda: npu_rope.rotary_mul(endless(1, TOKENS, 1, 64), endless(TOKENS, 32), endless(TOKENS, 32)),
            [1, TOKENS, 1, 64],
        ),
        (
            lambda: npu_rope.rope(
                endless(1, TOKENS, 1, 64), torch.zeros(1, dtype=torch.int32).expand(TOKENS), RopeParams(64)
            ),
            [1, TOKENS, 1, 64],
        ),
    ],
    ids=["rms_norm", "torch.ops", "rotary_mul", "rope"],
)
def test_a_result_without_memory_is_an_error_that_says_so(call, shape):
    rule = (
        f"[torch] memory must be enough for a result of shape {shape} but got an error of torch's allocator."
    )
    with pytest.raises(RuntimeError, match=f"^{re.escape(rule)}$"):
        call()


@pytest.mark.parametrize(
    ("op", "name", "others"),
    [
        ("rms_norm", "x", 1),
        ("add_rms_norm", "x", 2),
        ("rotary_mul", "x", 2),
        ("rotary_mul_", "x", 2),
        ("rotary_mul_qk", "q", 3),
        ("rotary_embedding", "X", 2),
    ],
)
def test_none_instead_of_the_first_tensor_is_refused(op, name, others):
    rule = rf"^\[{op}\] {name} must be a torch tensor or a NumPy array but got NoneType\.$"
    with pytest.raises(TypeError, match=rule):
        getattr(npu_rope, op)(None, *(torch.ones(1, 1, 1, 4) for _ in range(others)))


def run_with_little_memory(program):
    """Run a program that may have 4 GiB of addresses, and return what it prints."""
    beginning = (
        "import numpy as np, resource\n"
        "from npu_rope import RopeParams, rope\n"
        "from npu_rope.errors import InternalError\n"
        "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))\n"
    )
    command = [sys.executable, "-c", f"{without_torch.LINE}\n{beginning}{program}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_AS limits memory on Linux only")
def test_a_simulated_call_without_memory_is_an_internal_error():
    printed = run_with_little_memory(
        "x = np.zeros((1, 100000, 32, 128), np.float32)\n"
        "try:\n"
        "    rope(x, np.arange(100000), RopeParams(128), backend='sim')\n"
        "except InternalError as error:\n"
        "    print(error.op, error)\n"
    )
    text = (
        "[rope] call must succeed but got [sim] launch must be possible but got too little memory or too few"
    )
    assert printed.startswith(f"rope {text}")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_AS limits memory on Linux only")
def test_an_array_without_memory_is_numpys_error():
    printed = run_with_little_memory(
        "x, positions = np.broadcast_to(np.float32(1), (1, 2**26, 1, 64)), np.zeros(2**26, np.int32)\n"
        "try:\n"
        "    rope(x, positions, RopeParams(64))\n"
        "except MemoryError as error:\n"
        "    print(error)\n"
    )
    assert printed.startswith("Unable to allocate 16.0 GiB for an array with shape (1, 67108864, 1, 64)")


@pytest.mark.parametrize("op", ["rope", "rms_norm", "qk_square_sums", "rotary_mul"])
@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("other", [0, False, "", {}, [1, 2]], ids=repr)
def test_a_back_end_is_a_name(op, framework, other):
    x, w, table = torch.ones(1, 1, 1, 4), torch.ones(4), torch.ones(1, 2)
    given = {
        "rope": (x, torch.zeros(1, dtype=torch.int32), RopeParams(4)),
        "rms_norm": (x, w),
        "qk_square_sums": (x[0], x[0]),
        "rotary_mul": (x, table, table),
    }[op]
    if framework == "numpy":
        given = tuple(g.numpy() if isinstance(g, torch.Tensor) else g for g in given)
    text = rf"^\[{op}\] backend must be one of reference, cpu, .* but got {re.escape(repr(other))}\.$"
    with pytest.raises(ValueError, match=text):
        getattr(npu_rope, op)(*given, backend=other)


@pytest.mark.parametrize(
    ("op", "name"), [("rope", "x"), ("rope", "positions"), ("rms_norm", "scale"), ("rope_", "x")]
)
def test_masked_arrays_are_refused(op, name):
    given = {
        "x": np.ones((1, 2, 1, 4), np.float32),
        **({"scale": np.ones(4, np.float32)} if op == "rms_norm" else {"positions": np.arange(2)}),
    }
    given[name] = np.ma.masked_array(given[name], mask=True)
    others = () if op == "rms_norm" else (RopeParams(4),)
    text = rf"^\[{op}\] {name} must be an array without a mask but got a masked array\.$"
    with pytest.raises(TypeError, match=text):
        getattr(npu_rope, op)(*given.values(), *others)


@pytest.mark.parametrize(
    ("op", "given", "text"),
    [
        ("rope_packed", lambda packed: packed.to("meta"), "be on x's device cpu but got meta"),
        ("rope_packed", lambda packed: packed.view(torch.int8), "be the 88 contiguous bytes"),
        ("rope_packed", lambda packed: packed.float(), "be the 88 contiguous bytes"),
        ("rope_packed_", lambda packed: packed.to("meta"), "be on x's device cpu but got meta"),
        ("rope_packed_", lambda packed: packed.float(), "be the 88 contiguous bytes"),
    ],
)
def test_packed_attributes_are_bytes_beside_the_tensors(op, given, text):
    x, positions, params = torch.ones(1, 2, 1, 4), torch.arange(2), RopeParams(4)
    packed = calls.packed_of("rope", params, True, "exact")
    getattr(torch.ops.npu_rope, op)(x.clone(), positions, packed)
    with pytest.raises((ValueError, RuntimeError), match=rf"\[rope\] packed must {text}"):
        getattr(torch.ops.npu_rope, op)(x, positions, given(packed))
    assert (x == 1).all()


@pytest.mark.parametrize(
    ("q", "named", "text"),
    [
        (
            torch.ones(4, 2, 8),
            {"k_cache": np.zeros((8, 2, 8))},
            "slots must be given where k_cache is but got None",
        ),
        (
            torch.ones(4, 2, 8),
            {"v_cache": np.zeros((8, 2, 8))},
            "slots must be given where v_cache is but got None",
        ),
        (torch.tensor(1.0), {}, "q must have shape [S,N,D] but got []"),
    ],
)
def test_odd_arguments_of_the_fused_operator_are_named(q, named, text):
    x = torch.ones(4, 2, 8)
    with pytest.raises(ValueError, match=rf"^\[qkv_norm_rope_cache\] {re.escape(text)}\.$"):
        npu_rope.qkv_norm_rope_cache(q, x, x, torch.arange(4), RopeParams(8), **named)


@pytest.mark.parametrize("count", [5, 65, 66, 80, 300])
def test_a_tensor_may_have_any_number_of_dimensions(count):
    """torch limits none. An operator computes it or refuses it."""
    x, token = torch.ones((1,) * count + (4,)), torch.zeros(1, dtype=torch.int32)
    for result in (
        npu_rope.rms_norm(x, torch.ones(4), epsilon=0),
        npu_rope.add_rms_norm(x, x * 0, torch.ones(4), epsilon=0)[0],
        npu_rope.rms_norm_backward(x, x, torch.ones(4))[0] + 1,
    ):
        assert result.shape == x.shape
        torch.testing.assert_close(result.view(-1), x.view(-1))
    for call in (
        lambda: npu_rope.rope(x, token, P4),
        lambda: npu_rope.rope(x, token, P4, backend="cpu"),
        lambda: npu_rope.rope_qk(x, x, token, P4),
        lambda: npu_rope.rotary_mul(x, x, x),
        lambda: npu_rope.rotary_embedding(x, torch.ones(2, 2), torch.ones(2, 2)),
        lambda: npu_rope.rope_(x.clone(), token, P4),
    ):
        with pytest.raises(ValueError, match=r"must have shape \[B,.* but got \[1, 1, 1, 1, 1, "):
            call()
