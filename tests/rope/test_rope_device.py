"""rope on the device: refusals, torch's gradients and views, memory traffic, overflow.

test_rope.py judges the results.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from ascend_sim import Options
from ascend_sim import library as simulator
from ascend_sim.package import Package
from rope_bad_calls import SENTINEL, sentinels
from rope_cases import NUMPY_DTYPES, assert_within, layout_strides, to_torch, values_of
from together import together

from npu_rope import RopeParams, backends, rope, rope_, rope_qk
from npu_rope.executors import rotations as executors
from npu_rope.rope_calls import RopeCallAttributes, rope_tensors
from npu_rope.testing.bounds import DEVICE_NEAR_CPU, within_one_ulp

DEVICES = ["sim", "sim:ascend310p"]
SHAPE = (2, 3, 2, 8)
PARAMS = RopeParams(8)

on_each_device = pytest.mark.parametrize("device", DEVICES)
in_each_framework = pytest.mark.parametrize("framework", ["numpy", "torch"])


def normal(shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(NUMPY_DTYPES[dtype])


# ---- refusals --------------------------------------------------------------------------------------

REACH = "[rope] positions must be between -4194303 and 4194303 on the device but got"
POLICY = "[rope] angle must be exact (0) on an NPU but got"
# name: the changed arguments, the error's class, its message, the devices that refuse the call
REFUSALS = {
    "position above the limit": (
        {"positions": np.int32([0, 1, 2**22])}, ValueError, f"{REACH} 4194304.", DEVICES,
    ),
    "position below the limit": (
        {"positions": np.int32([0, -(2**22), 9])}, ValueError, f"{REACH} -4194304.", DEVICES,
    ),
    "int64 position": (
        {"positions": np.int64([2**31 - 1, 0, 0])}, ValueError, f"{REACH} 2147483647.", DEVICES,
    ),
    "position of a batch": (
        {"positions": np.int32([[0, 1, 2], [0, 1, 5_000_000]])}, ValueError, f"{REACH} 5000000.", DEVICES,
    ),
    "float64 on 910B": (
        {"dtype": "float64"}, TypeError,
        "[rope] x must be float32, float16 or bfloat16 on Ascend910B1 but got float64.", DEVICES[:1],
    ),
    "float64 on 310P": (
        {"dtype": "float64"}, TypeError,
        "[rope] x must be float32 or float16 on Ascend310P3 but got float64.", DEVICES[1:],
    ),
    "bfloat16 on 310P": (
        {"dtype": "bfloat16"}, TypeError,
        "[rope] x must be float32 or float16 on Ascend310P3 but got bfloat16.", DEVICES[1:],
    ),
    "policy f32": ({"angle": "f32"}, ValueError, f"{POLICY} f32.", DEVICES),
    "policy ggml": ({"angle": "ggml"}, ValueError, f"{POLICY} ggml.", DEVICES),
    "head size": (
        {"shape": (2, 3, 2, 1026)}, ValueError,
        "[rope] x must have a head size of at most 1024 on an NPU but got 1026.", DEVICES,
    ),
    "factors too small": (
        {"factors": np.float32([1e-10, 1, 1, 1])}, ValueError,
        "[rope] frequencies must be at most 1e+09 radians per position but got 1e+10 for pair 0.",
        ["cpu", *DEVICES],
    ),
}  # fmt: skip


@in_each_framework
@pytest.mark.parametrize(
    ("name", "device"), [(name, device) for name, (*_, devices) in REFUSALS.items() for device in devices]
)
def test_a_call_that_the_device_cannot_run_is_refused_and_nothing_is_written(name, device, framework):
    changed, kind, text, _ = REFUSALS[name]
    changed = {"shape": SHAPE, "dtype": "float32", "positions": np.arange(3), "factors": None, **changed}
    shape, dtype = changed["shape"], NUMPY_DTYPES[changed["dtype"]]
    x, out = np.ones(shape, dtype), sentinels(shape, dtype)
    convert = to_torch if framework == "torch" else lambda a: a
    for target in (out, None):
        with pytest.raises(kind) as caught:
            rope(
                convert(x), convert(changed["positions"]), PARAMS, convert(changed["factors"]),
                backend=device, out=convert(target), angle=changed.get("angle", "exact"),
            )  # fmt: skip
        assert str(caught.value) == text
    assert np.all(out == SENTINEL)
    assert np.all(x == 1)


def test_a_refused_call_of_two_tensors_names_its_operator_and_q():
    q, k = np.ones(SHAPE), np.ones(SHAPE)
    text = r"^\[rope_qk\] q must be float32, float16 or bfloat16 on Ascend910B1 but got float64\.$"
    with pytest.raises(TypeError, match=text):
        rope_qk(q, k, np.arange(3), PARAMS, backend="sim")


@on_each_device
def test_the_outermost_positions_are_accepted(device):
    x = normal((2, 3, 1, 64))
    positions = np.int64([[4194303, -4194303, 0], [-1, 4194302, 7]])
    params = RopeParams(64, "neox")
    for typed in (positions, positions.astype(np.int32)):
        y = rope(x, typed, params, backend=device)
        assert_within(y, x, positions, params, dtype="float32", backend=device)


@on_each_device
@pytest.mark.parametrize("shape", [(0, 3, 2, 8), (2, 0, 2, 8), (2, 3, 0, 8)])
def test_an_empty_x_accepts_any_position(device, shape):
    positions = np.full(shape[1], 2**30)
    assert rope(np.ones(shape, np.float32), positions, PARAMS, backend=device).shape == shape


def launch(x, out, **options):
    t = rope_tensors(x, np.arange(x.shape[-3]), None, out)
    executors.on_sim(Options(**options), t, RopeCallAttributes(RopeParams(x.shape[-1]), True, "exact"))


CHIPS = (
    "Ascend910B1, Ascend910B2, Ascend910B2C, Ascend910B3, Ascend910B4, Ascend910B4-1, Ascend910_9392, "
    "Ascend910_9391, Ascend910_9381, Ascend910_9382, Ascend910_9372, Ascend910_9362, Ascend910_9363, "
    "Ascend310P3, Ascend310P1, Ascend310P5, Ascend310P7, Ascend950PR_9589, Ascend950PR_9599"
)
BAD_OPTIONS = {
    "soc": ({"soc": "ascend999"}, rf"^\[sim\] soc must be one of {CHIPS} but got ascend999\.$"),
    "no soc": ({"soc": ""}, rf"^\[sim\] soc must be one of {CHIPS} but got \.$"),
    "rule": (
        {"lenient": ("SIM-NONE-01",)},
        r"^\[sim\] options.lenient must name rules or be all but got SIM-NONE-01\.$",
    ),
    "trace": (
        {"trace_path": "/nonexistent/x.json"},
        r"^\[sim\] options\.trace_path must be a file one may write but got /nonexistent/x.json\.$",
    ),
}


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_bad_options_are_refused_and_nothing_is_written(name):
    options, text = BAD_OPTIONS[name]
    x, out = np.ones(SHAPE, np.float32), sentinels(SHAPE)
    with pytest.raises(ValueError, match=text):
        launch(x, out, **options)
    assert np.all(out == SENTINEL)


def test_chips_of_two_socs_give_the_same_bits():
    """The chips differ in their number of cores and in their memory, not in arithmetic."""
    x, results = normal((2, 70, 5, 64)), []
    for soc in (
        "ascend910b",
        "ascend910b2",
        "ascend910b3",
        "Ascend910B4-1",
        "ascend910_93",
        "ascend910_9363",
    ):
        results.append(np.empty_like(x))
        launch(x, results[-1], soc=soc)
    for name in ("sim", "sim:ascend910b", "sim:ascend910_93"):
        results.append(rope(x, np.arange(70), RopeParams(64), backend=name))
    assert all(np.array_equal(results[0], other) for other in results[1:])


@on_each_device
@in_each_framework
def test_the_default_backend_may_be_a_device(framework, device, monkeypatch):
    convert = to_torch if framework == "torch" else lambda a: a
    call = (convert(normal(SHAPE)), convert(np.arange(3)), PARAMS)
    named = rope(*call, backend=device)
    monkeypatch.setattr(backends, "default_backend", device)
    assert np.array_equal(values_of(rope(*call)), values_of(named))
    with pytest.raises(ValueError, match="on an NPU but got f32"):
        rope(*call, angle="f32")


# ---- torch's gradients, transforms and views -------------------------------------------------------


@pytest.mark.parametrize("device", ["reference", *DEVICES])
@pytest.mark.parametrize("name", ["x", "out"])
def test_gradients_of_a_call_with_out_are_refused_and_nothing_is_written(name, device):
    tensors = {"x": torch.ones(SHAPE), "out": torch.full(SHAPE, SENTINEL)}
    tensors[name].requires_grad_()
    text = rf"^\[rope\] {name} must not need a gradient for backend {device} but got requires_grad\.$"
    with pytest.raises(ValueError, match=text):
        rope(tensors["x"], torch.arange(3), PARAMS, backend=device, out=tensors["out"])
    assert torch.all(tensors["out"] == SENTINEL)
    with torch.no_grad():
        rope(tensors["x"], torch.arange(3), PARAMS, backend=device, out=tensors["out"])
    assert not torch.any(tensors["out"] == SENTINEL)


@pytest.mark.parametrize("device", ["reference", *DEVICES])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised by torch
def test_dual_levels_are_refused(device):
    text = rf"^\[rope\] x must be outside a dual level for backend {device} but got one inside\.$"
    with torch.autograd.forward_ad.dual_level(), pytest.raises(ValueError, match=text):
        rope(torch.ones(SHAPE), torch.arange(3), PARAMS, backend=device)


@pytest.mark.parametrize("device", ["reference", *DEVICES])
@pytest.mark.parametrize("transform", ["vmap", "grad"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised by torch
def test_function_transforms_are_refused(transform, device):
    def total(x):
        return rope(x, torch.arange(3), PARAMS, backend=device).sum()

    text = rf"^\[rope\] x must be outside torch\.func for backend {device} but got one of its transforms\.$"
    with pytest.raises(ValueError, match=text):
        getattr(torch.func, transform)(total)(
            torch.ones(2, *SHAPE) if transform == "vmap" else torch.ones(SHAPE)
        )


@pytest.mark.parametrize("device", ["reference", *DEVICES])
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # raised by torch's tracing
def test_a_compiled_function_runs_the_call_eagerly(device):
    def double(x):
        return 2 * rope(x + 0, torch.arange(3), PARAMS, backend=device)

    x = torch.arange(math.prod(SHAPE)).reshape(SHAPE).float()
    eager, compiled = x.clone().requires_grad_(), x.clone().requires_grad_()
    torch._dynamo.reset()
    expected, got = double(eager), torch.compile(double, backend="eager")(compiled)
    assert torch.equal(expected, got)
    expected.square().sum().backward()
    got.square().sum().backward()
    assert torch.equal(eager.grad, compiled.grad)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="remove backend= from the call"):
        torch.compile(double, backend="eager", fullgraph=True)(x)


@pytest.mark.parametrize("device", ["reference", *DEVICES])
@pytest.mark.parametrize("in_place", [True, False])
def test_a_write_to_a_tensor_saved_for_a_gradient_is_detected(in_place, device):
    w = torch.ones(SHAPE, requires_grad=True)
    saved = w.exp()  # exp keeps its result for the gradient
    with torch.no_grad():
        source = saved if in_place else torch.ones(SHAPE)
        rope(source, torch.arange(3), PARAMS, backend=device, out=saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.sum().backward()


@pytest.mark.parametrize("device", ["reference", "cpu", *DEVICES])
def test_a_negating_view_is_read_as_the_negated_values(device):
    x = to_torch(normal(SHAPE))
    y = rope(torch._neg_view(x), torch.arange(3), PARAMS, backend=device)
    assert torch.equal(y, rope(-x, torch.arange(3), PARAMS, backend=device))


@on_each_device
def test_a_negating_view_is_refused_as_out(device):
    out = torch.full(SHAPE, SENTINEL)
    text = r"must hold its own values but got a view that negates them\.$"
    with pytest.raises(ValueError, match=rf"^\[rope\] out {text}"):
        rope(torch.ones(SHAPE), torch.arange(3), PARAMS, backend=device, out=torch._neg_view(out))
    with pytest.raises(ValueError, match=rf"^\[rope_\] x {text}"):
        rope_(torch._neg_view(out), torch.arange(3), PARAMS, backend=device)
    assert torch.all(out == SENTINEL)


# ---- memory ----------------------------------------------------------------------------------------


@on_each_device
@in_each_framework
def test_unit_last_stride_reaches_the_kernel_without_a_copy(framework, device, monkeypatch):
    """The kernel gets the addresses and strides of x and out."""
    calls = []
    original = Package.call

    def record(self, op, tensors, options):
        calls.append([(tensors[name].address, list(tensors[name].strides)) for name in ("x", "out")])
        return original(self, op, tensors, options)

    monkeypatch.setattr(Package, "call", record)
    x = normal((2, 3, 6, 40)).transpose(0, 2, 1, 3)
    out = np.empty((2, 6, 3, 80), np.float32)[..., 40:]
    convert = to_torch if framework == "torch" else lambda a: a
    rope(convert(x), convert(np.arange(6)), RopeParams(40), backend=device, out=convert(out))
    assert calls == [[(x.ctypes.data, [720, 40, 240, 1]), (out.ctypes.data, [1440, 240, 80, 1])]]


@pytest.mark.long
@on_each_device
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("D", [128, 80, 70])
@together("layout", ["contiguous", "bnsd", "fused-qkv", "gaps"])
@pytest.mark.parametrize("forward", [True, False])
@together(
    ("mode", "n_offs"),
    [("normal", 0), ("normal", 6), ("neox", 0), ("neox", 6), ("mrope", 0), ("imrope", 6), ("vision", 0)],
)
def test_every_byte_is_moved_once(mode, n_offs, forward, layout, D, dtype, device, guarded):
    """x and the positions are read once and out is written once, with any strides. Each core also reads the
    four parts of the frequencies. Ascend310P copies only whole blocks of 32 bytes, so it may move a row's
    last block twice."""
    D = D // 4 * 4 if mode == "vision" else D
    shape = (1, 70, 4, D)
    x = guarded.input(normal(shape, dtype), layout_strides(layout, shape))
    out = guarded.empty(shape, x.dtype, layout_strides(layout, shape))
    n_dims = D // 2 if mode == "vision" else (D - 2 * n_offs) // 2 * 2
    sections = (7, 5, 3, 1) if mode in ("mrope", "imrope", "vision") else None
    positions = np.arange(70, dtype=np.int32)
    if sections:
        positions = np.stack([positions, positions * 2, positions * 3, positions * 5])
    params = RopeParams(n_dims, mode, n_offs=n_offs, sections=sections)
    rope(x, positions, params, backend=device, out=out, forward=forward)
    summary = simulator.load().report()["summary"]
    frequencies = summary["cores"] * 4 * (D // 2 + 8) * 4
    planes = 4 if sections else 1
    x_bytes = x.size * x.itemsize
    tails = 70 * 4 * 32 if device == "sim:ascend310p" and D * x.itemsize % 32 else 0
    assert x_bytes <= summary["bytes_written"] <= x_bytes + tails
    shared_blocks_of_positions = planes * summary["cores"] * 32
    input_bytes = x_bytes + positions.nbytes
    assert (
        input_bytes <= summary["bytes_read"] <= input_bytes + tails + frequencies + shared_blocks_of_positions
    )


@on_each_device
def test_launches_on_several_threads_do_not_affect_each_other(device):
    """Each thread has a separate report and a separate last error."""
    params = RopeParams(32, "neox")

    def launch_and_fail(seed):
        x = normal((1, 20 + seed, 3, 32), "float16", seed)
        y = rope(x, np.arange(20 + seed), params, backend=device)
        written = simulator.load().report()["summary"]["bytes_written"]
        with pytest.raises(ValueError, match=f"but got {2**22 + seed}"):
            rope(x, np.full(20 + seed, 2**22 + seed), params, backend=device)
        return x, y, written

    with ThreadPoolExecutor(4) as pool:
        for x, y, written in pool.map(launch_and_fail, range(24)):
            assert_within(y, x, np.arange(x.shape[1]), params, dtype="float16", backend=device)
            assert written == x.nbytes


# ---- arithmetic ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "dtype"), [("sim", "float16"), ("sim", "bfloat16"), ("sim:ascend310p", "float16")]
)
@pytest.mark.parametrize("mode", ["normal", "neox"])
def test_most_16_bit_results_are_within_one_ulp_of_the_cpus(mode, device, dtype):
    x = normal((1, 200, 8, 128), dtype)
    positions = np.random.default_rng(1).integers(0, 2**22, 200)
    params = RopeParams(128, mode, freq_base=500000.0)
    on_device, on_cpu = (rope(x, positions, params, backend=b) for b in (device, "cpu"))
    share = within_one_ulp(on_device, on_cpu, dtype)
    assert share >= DEVICE_NEAR_CPU


@pytest.mark.parametrize("soc", ["ascend910b", "ascend310p"])
@pytest.mark.parametrize(("saturate", "largest"), [(False, np.inf), (True, 65504.0)])
def test_half_overflows_to_infinity_unless_saturation_is_set(saturate, largest, soc):
    """Frameworks run the cores in either mode; the default is infinity."""
    x = np.full((1, 1, 64), 65504, np.float16)
    params = RopeParams(64, freq_scale=np.pi / 4, freq_base=1.0)  # 45 degrees
    out = np.empty_like(x)
    t, a = rope_tensors(x, np.int32([1]), None, out), RopeCallAttributes(params, True, "exact")
    executors.on_sim(Options(soc, saturate=saturate), t, a)
    assert np.all(values_of(out)[0, 0, 1::2] == largest)
