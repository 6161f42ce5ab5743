"""rope and rope_qk into given memory on small torch tensors: the direct path (csrc/capi/python.cpp) beside
the usual path, through torch's operators."""

import ctypes as C
import importlib
import subprocess
import sys
import threading
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import npu_rope  # noqa: E402
from npu_rope import RopeParams, backends, native  # noqa: E402
from npu_rope.ops import calls  # noqa: E402

ROPE, ROPE_QK = (importlib.import_module(f"npu_rope.ops.{op}") for op in ("rope", "rope_qk"))
PARAMS = RopeParams(8, "neox")
POSITIONS = torch.tensor([3, -1])
FACTORS = torch.linspace(1, 2, 8)[::2]
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)

pytestmark = pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="this torch has no exchange interface"
)


def random(*shape, dtype=torch.float32):
    return torch.from_numpy(np.random.default_rng(7).standard_normal(shape)).to(dtype)


@pytest.fixture
def direct(monkeypatch):
    """For each call: whether the direct path ran it."""
    taken = []
    for module, op in ((ROPE, "rope"), (ROPE_QK, "rope_qk")):
        run = calls.direct_function(op)

        def record(*arguments, run=run):
            taken.append(run(*arguments))
            return taken[-1]

        monkeypatch.setattr(module, "_run_directly", record)
    return taken


def usual(function, *arguments, monkeypatch, **options):
    with monkeypatch.context() as without:
        for module in (ROPE, ROPE_QK):
            without.setattr(module, "_run_directly", lambda *arguments: False)
        return function(*arguments, **options)


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.view(torch.uint8), b.view(torch.uint8))


# ---- results ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("angle", ["exact", "f32", "ggml"])
@pytest.mark.parametrize("positions", [POSITIONS, POSITIONS.int(), torch.tensor([3, 9, -1])[::2]])
def test_rope_has_the_bits_of_the_usual_path(direct, monkeypatch, dtype, angle, positions):
    x = random(1, 2, 3, 12, dtype=dtype)[..., :10]
    for forward in (True, False):
        for factors in (None, FACTORS):
            given = x, positions, PARAMS, factors
            options = {"angle": angle, "forward": forward}
            out = torch.empty(1, 2, 3, 10, dtype=dtype)
            assert npu_rope.rope(*given, **options, out=out) is out
            assert direct == [True]
            expected = usual(
                npu_rope.rope, *given, **options, out=torch.empty_like(out), monkeypatch=monkeypatch
            )
            assert same_bits(out, expected)
            in_place = x.clone()
            assert npu_rope.rope_(in_place, *given[1:], **options) is in_place
            assert same_bits(in_place, expected)
            assert direct == [True, True]
            direct.clear()


@pytest.mark.parametrize("dtype", DTYPES)
def test_rope_qk_has_the_bits_of_the_usual_path(direct, monkeypatch, dtype):
    q, k = random(2, 4, 8, dtype=dtype), random(2, 1, 8, dtype=dtype)
    for factors in (None, FACTORS):
        given = POSITIONS, PARAMS, factors
        out = torch.empty_like(q), torch.empty_like(k)
        assert npu_rope.rope_qk(q, k, *given, out=out) is out
        new = torch.empty_like(q), torch.empty_like(k)
        expected = usual(npu_rope.rope_qk, q, k, *given, out=new, monkeypatch=monkeypatch)
        in_place = q.clone(), k.clone()
        pair = npu_rope.rope_qk_(*in_place, *given)
        one_in_place = q.clone(), torch.empty_like(k)
        npu_rope.rope_qk(one_in_place[0], k, *given, out=one_in_place)
        assert direct == [True, True, True]
        direct.clear()
        assert all(y is x for y, x in zip(pair, in_place, strict=True))
        for ys in (out, in_place, one_in_place):
            assert all(same_bits(y, want) for y, want in zip(ys, expected, strict=True))


def test_parameters_inference_and_calls_without_gradients_are_direct(direct):
    expected = npu_rope.rope(random(2, 1, 8), POSITIONS, PARAMS)
    with torch.no_grad():
        x = torch.nn.Parameter(random(2, 1, 8))
        npu_rope.rope_(x, POSITIONS, PARAMS)
        assert torch.equal(x, expected)
    with torch.inference_mode():
        x = random(2, 1, 8)
        npu_rope.rope_(x, POSITIONS, PARAMS)
        assert torch.equal(x, expected)
    assert direct == [True, True]


def test_autograd_detects_that_a_saved_tensor_has_changed(direct):
    x, weight = random(2, 1, 8), random(2, 1, 8).requires_grad_()
    product = (x * weight).sum()
    version = x._version
    npu_rope.rope_(x, POSITIONS, PARAMS)
    assert direct == [True]
    assert x._version == version + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
    versions = x._version, weight._version
    npu_rope.rope_qk_(x, weight.detach(), POSITIONS, PARAMS)
    assert direct == [True, True]
    assert (x._version, weight._version) == (versions[0] + 1, versions[1] + 1)


def test_threads_call_at_once(direct):
    x = random(2, 4, 8)
    expected, wrong = npu_rope.rope(x, POSITIONS, PARAMS), []

    def run():
        out = torch.empty_like(x)
        for _ in range(200):
            npu_rope.rope(x, POSITIONS, PARAMS, out=out.zero_())
            if not torch.equal(out, expected):
                wrong.append(out.clone())

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert direct == [True] * 800


# ---- calls that need torch --------------------------------------------------------------------------


class Subclass(torch.Tensor):
    """A subclass without functions of its own."""


def negated(x):
    """Return a tensor with x's values and the opposite values in memory."""
    return torch._neg_view(-x)


@pytest.mark.parametrize(
    ("x", "out"),
    [
        (negated(random(2, 1, 8)), torch.empty(2, 1, 8)),
        (random(2, 1, 8).as_subclass(Subclass), torch.empty(2, 1, 8)),
        (random(2, 1, 8), torch.empty(2, 1, 8).as_subclass(Subclass)),
    ],
    ids=["negative x", "subclass", "subclass of out"],
)
def test_tensors_with_meanings_of_their_own_are_no_direct_calls(direct, x, out):
    plain = torch.as_tensor(x.detach().numpy() if type(x) is Subclass else x.clone())
    expected = npu_rope.rope(plain, POSITIONS, PARAMS)
    assert True not in direct
    npu_rope.rope(x, POSITIONS, PARAMS, out=out)
    assert True not in direct
    assert torch.equal(out, expected)
    pair = torch.empty(2, 1, 8), torch.empty(2, 1, 8)
    for xs, outs in (((x, plain), (out, pair[1])), ((plain, x), (pair[0], out))):
        npu_rope.rope_qk(*xs, POSITIONS, PARAMS, out=outs)
        assert True not in direct
        assert all(torch.equal(y, expected) for y in outs)


def test_positions_of_a_subclass_see_the_call(direct):
    seen = []

    class Watching(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return super().__torch_function__(func, types, args, kwargs or {})

    x = random(2, 1, 8)
    positions = POSITIONS.as_subclass(Watching)
    npu_rope.rope_(x, positions, PARAMS)
    npu_rope.rope_qk_(x, x.clone(), positions, PARAMS)
    assert not direct
    assert [name for name in seen if "npu_rope.rope" in name]


def test_memory_with_the_negative_bit_is_no_direct_call(direct):
    out = negated(torch.zeros(2, 1, 8))
    message = "must be written without a lazy negation but got a tensor with torch's bit for it"
    with pytest.raises(ValueError, match=rf"\[rope\] out {message}"):
        npu_rope.rope(random(2, 1, 8), POSITIONS, PARAMS, out=out)
    with pytest.raises(ValueError, match=rf"\[rope_\] x {message}"):
        npu_rope.rope_(out, POSITIONS, PARAMS)
    assert True not in direct
    assert not out.any()


def test_positions_with_the_negative_bit_are_no_direct_call(direct):
    positions = negated(POSITIONS)
    for x in (random(2, 1, 8), random(2, 1, 8)):
        expected = npu_rope.rope(x, POSITIONS, PARAMS)
        npu_rope.rope_(x, positions, PARAMS)
        assert torch.equal(x, expected)
        pair = random(2, 1, 8), random(2, 1, 8)
        npu_rope.rope_qk_(*pair, positions, PARAMS)
        assert all(torch.equal(y, expected) for y in pair)
    assert True not in direct


def test_negative_factors_are_no_direct_call(direct):
    x, factors = random(2, 1, 8), negated(FACTORS)
    expected = npu_rope.rope(x, POSITIONS, PARAMS, FACTORS)
    out = torch.empty_like(x)
    npu_rope.rope(x, POSITIONS, PARAMS, factors, out=out)
    npu_rope.rope_qk_(x.clone(), x.clone(), POSITIONS, PARAMS, factors)
    assert True not in direct
    assert torch.equal(out, expected)


@pytest.mark.parametrize(
    "x",
    [random(2, 1, 16)[..., ::2], random(2, 10000, 8), random(1, 1, 8).expand(2, 1, 8)],
    ids=["strided", "large", "expanded"],
)
def test_other_layouts_take_the_usual_path_or_not_and_have_its_bits(direct, monkeypatch, x):
    out = torch.empty(x.shape)
    npu_rope.rope(x, POSITIONS, PARAMS, out=out)
    assert direct == [x.stride()[0] == 0]
    new = torch.empty(x.shape)
    assert same_bits(out, usual(npu_rope.rope, x, POSITIONS, PARAMS, out=new, monkeypatch=monkeypatch))


def test_modes_see_the_call(direct):
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Dispatched(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    class Function(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x = random(2, 1, 8)
    for mode in (Dispatched(), Function()):
        seen.clear()
        with mode:
            npu_rope.rope_(x, POSITIONS, PARAMS)
            npu_rope.rope_qk_(x, x.clone(), POSITIONS, PARAMS)
        assert any("npu_rope.rope" in name for name in seen), mode
        assert any("npu_rope.rope_qk" in name for name in seen), mode
    assert True not in direct
    npu_rope.rope_(x, POSITIONS, PARAMS)
    assert direct[-1]


def test_a_profiler_sees_the_call(direct):
    x = random(2, 1, 8)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        npu_rope.rope_(x, POSITIONS, PARAMS)
    assert direct == [False]
    assert any("npu_rope::rope" in event.key for event in profile.key_averages())


@pytest.mark.filterwarnings("ignore:.torch.jit.trace:DeprecationWarning")
def test_a_trace_has_the_call(direct):
    def rotated(x):
        return npu_rope.rope_(x.clone(), POSITIONS, PARAMS)

    x = random(2, 1, 8)
    expected = rotated(x)
    direct.clear()
    traced = torch.jit.trace(rotated, (x,), check_trace=False)
    assert True not in direct
    assert torch.equal(traced(2 * x), rotated(2 * x))
    assert torch.equal(traced(x), expected)


def test_compiled_code_has_the_call(direct):
    x = random(2, 1, 8)
    compiled = torch.compile(
        lambda x: npu_rope.rope_(x.clone(), POSITIONS, PARAMS), backend="eager", fullgraph=True
    )
    assert torch.equal(compiled(x), npu_rope.rope(x, POSITIONS, PARAMS))
    assert not direct


def test_a_gradient_flows_through_a_call_in_place(direct):
    x = random(2, 1, 8).requires_grad_()
    y = x * 1
    npu_rope.rope_(y, POSITIONS, PARAMS)
    y.sum().backward()
    assert not direct
    inverse = npu_rope.rope(torch.ones(2, 1, 8), POSITIONS, PARAMS, forward=False)
    assert torch.equal(x.grad, inverse)
    q, k = x * 1, random(2, 1, 8)
    npu_rope.rope_qk_(q, k, POSITIONS, PARAMS)
    assert not direct
    x.grad = None
    q.sum().backward()
    assert torch.equal(x.grad, inverse)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # of torch.func.jvp
def test_tangents_and_transforms_see_the_call(direct):
    x, tangent = random(2, 1, 8), random(2, 1, 8)

    def rotated(x):
        return npu_rope.rope_(x * 1, POSITIONS, PARAMS)

    y, dy = torch.func.jvp(rotated, (x,), (tangent,))
    expected = npu_rope.rope(tangent, POSITIONS, PARAMS)
    assert True not in direct
    assert torch.equal(dy, expected)
    assert torch.equal(y, npu_rope.rope(x, POSITIONS, PARAMS))
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.clone(), tangent.clone())
        npu_rope.rope_(dual, POSITIONS, PARAMS)
        assert torch.equal(forward_ad.unpack_dual(dual).tangent, expected)
        pair = forward_ad.make_dual(x.clone(), tangent.clone()), x.clone()
        npu_rope.rope_qk_(*pair, POSITIONS, PARAMS)
        assert torch.equal(forward_ad.unpack_dual(pair[0]).tangent, expected)
    assert True not in direct

    plain = tangent.clone()

    def with_a_plain_tensor(x):
        npu_rope.rope(plain, POSITIONS, PARAMS, out=plain)
        return x.sum()

    torch.func.grad(with_a_plain_tensor)(x)
    assert direct[-1:] == [False]


def test_many_tokens_release_the_lock(direct):
    """The library computes their sines without the interpreter's lock, which other threads wait for."""
    for tokens in (256, 257):
        x, positions = random(tokens, 1, 8), torch.arange(tokens)
        npu_rope.rope_(x, positions, PARAMS)
        npu_rope.rope_(x, positions.int(), PARAMS)
    assert direct == [True, True, False, True]


@pytest.mark.parametrize("named", [True, False])
def test_calls_of_the_back_end_cpu_are_direct(direct, monkeypatch, named):
    options = {"backend": "cpu"} if named else {}
    if not named:
        monkeypatch.setattr(backends, "default_backend", "cpu")
    x = random(2, 1, 8)
    for out in (torch.empty_like(x), x):
        npu_rope.rope(x, POSITIONS, PARAMS, out=out, **options)
    npu_rope.rope_(x, POSITIONS, PARAMS, **options)
    npu_rope.rope_qk_(x, x.clone(), POSITIONS, PARAMS, **options)
    assert direct == [True] * 4


@pytest.mark.parametrize("number", [0, 1, 2])
def test_angle_policies_may_be_numbers(direct, number):
    params = RopeParams(8, "neox")
    a, b = random(2, 1, 8), random(2, 1, 8)
    npu_rope.rope_(a, POSITIONS, params, angle=number)
    npu_rope.rope_(b, POSITIONS, params, angle=("exact", "f32", "ggml")[number])
    assert direct == [True, True]
    assert torch.equal(a, b)
    for wrong in (True, False, 3, -1):
        with pytest.raises((ValueError, TypeError), match=r"\[rope_\] angle must be "):
            npu_rope.rope_(a, POSITIONS, params, angle=wrong)
    assert torch.equal(a, b)


def test_a_named_or_default_back_end_runs_the_call(direct, monkeypatch):
    x = random(2, 1, 8)
    expected = npu_rope.rope(x, POSITIONS, PARAMS)
    for options in ({"backend": "reference"}, {}):
        if not options:
            monkeypatch.setattr(backends, "default_backend", "reference")
        out = torch.empty_like(x)
        npu_rope.rope(x, POSITIONS, PARAMS, out=out, **options)
        assert torch.allclose(out, expected, atol=1e-6)
    assert not direct


# ---- errors -----------------------------------------------------------------------------------------

X = random(2, 1, 8)
OVERLAPPING = random(3, 1, 8)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((X, POSITIONS[:1], PARAMS), {}),
        ((X, POSITIONS.float(), PARAMS), {}),
        ((X, [3, -1], PARAMS), {}),
        ((X, POSITIONS.numpy(), PARAMS), {}),
        ((X, POSITIONS, None), {}),
        ((X, POSITIONS, PARAMS, FACTORS.double()), {}),
        ((X, POSITIONS, PARAMS, -FACTORS), {}),
        ((X[..., :4], POSITIONS, PARAMS), {}),
        ((X.to_sparse(), POSITIONS, PARAMS), {}),
        ((X, POSITIONS, PARAMS), {"out": X.double()}),
        ((OVERLAPPING[:2], POSITIONS, PARAMS), {"out": OVERLAPPING[1:]}),
        ((X, POSITIONS, PARAMS), {"out": torch.empty(2, 1, 8, device="meta")}),
        ((X, POSITIONS, PARAMS), {"out": X.numpy()}),
        ((X, POSITIONS, PARAMS), {"angle": "fast"}),
        ((X, POSITIONS, PARAMS), {"angle": True}),
        ((X, POSITIONS, PARAMS), {"forward": 1}),
        ((X, POSITIONS + 2**40, PARAMS), {}),
    ],
)
def test_errors_are_those_of_the_usual_path(direct, monkeypatch, arguments, options):
    out = options.get("out", torch.zeros(2, 1, 8))
    options = {**options, "out": out}
    before = None if isinstance(out, torch.Tensor) and out.is_meta else bytes(np.asarray(out))
    errors = []
    for run in (npu_rope.rope, lambda *a, **o: usual(npu_rope.rope, *a, monkeypatch=monkeypatch, **o)):
        with pytest.raises((ValueError, TypeError, RuntimeError)) as raised:
            run(*arguments, **options)
        errors.append((raised.type, str(raised.value)))
    assert errors[0] == errors[1]
    assert "[rope] " in errors[0][1]
    assert True not in direct
    assert before is None or bytes(np.asarray(out)) == before


def test_objects_that_are_no_parameters_are_refused_and_unchanged(direct):
    fields = {**{name: getattr(PARAMS, name) for name in PARAMS.__dataclass_fields__}, "rope_mode": 2}
    x = X.clone()
    for wrong in (types.SimpleNamespace(**fields), torch.nn.Linear(1, 1)):
        before = set(vars(wrong))
        for call in (npu_rope.rope_, lambda x, *rest: npu_rope.rope_qk_(x, x.clone(), *rest)):
            with pytest.raises(TypeError, match="params must be a RopeParams but got "):
                call(x, POSITIONS, wrong)
        assert set(vars(wrong)) == before
    assert not direct
    assert torch.equal(x, X)


def test_parameters_of_a_subclass_take_the_usual_path(direct):
    class Parameters(RopeParams):
        pass

    params, x = Parameters(8, "neox"), random(2, 1, 8)
    expected = npu_rope.rope(x, POSITIONS, PARAMS)
    assert torch.equal(npu_rope.rope(x, POSITIONS, params), expected)
    assert torch.equal(npu_rope.rope_(x.clone(), POSITIONS, params), expected)
    array = npu_rope.rope(x.numpy(), POSITIONS.numpy(), params)
    assert np.array_equal(array, expected.numpy())
    assert not direct


def test_a_pair_with_an_error_is_refused_as_on_the_usual_path(direct, monkeypatch):
    q, k = random(2, 2, 8), random(2, 1, 8)
    for out in ((q,), [q, q], (q, q), (q, None), (torch.empty_like(q), k.double())):
        errors = []
        for run in (
            npu_rope.rope_qk,
            lambda *a, **o: usual(npu_rope.rope_qk, *a, monkeypatch=monkeypatch, **o),
        ):
            with pytest.raises((ValueError, TypeError)) as raised:
                run(q, k, POSITIONS, PARAMS, out=out)
            errors.append((raised.type, str(raised.value)))
        assert errors[0] == errors[1]
    assert True not in direct


# ---- references and interfaces ----------------------------------------------------------------------


def test_a_call_leaves_no_reference_and_no_error():
    run = calls.direct_function("rope")
    x, positions, out = random(2, 1, 8), POSITIONS.clone(), torch.empty(2, 1, 8)
    packed = bytes(native.packed_type("rope")(native.c_params(PARAMS), True, 0))
    given = packed, x, positions, out, None, True, False
    counts = [sys.getrefcount(one) for one in given]
    for _ in range(100):
        assert run(packed, x, positions, None, out)
        for wrong in (
            (packed, x, x, None, out),
            (packed, x, positions, None, None),
            (packed, x, positions, None, 3),
            (packed, x, positions, None, out.numpy()),
            (packed[1:], x, positions, None, out),
            ("text", x, positions, None, out),
            (packed, x, positions, None),
            (packed, x, positions, None, out, None),
            (),
        ):
            assert not run(*wrong)
    leaked = [sys.getrefcount(one) - count for one, count in zip(given, counts, strict=True)]
    assert all(abs(count) < 100 for count in leaked), leaked  # None, True and False have other users


def test_a_torch_without_the_interface_takes_the_usual_path(monkeypatch):
    for function in (calls.direct_function, calls._direct_functions):
        function.cache_clear()
    with monkeypatch.context() as older:
        older.delattr(torch.Tensor, "__dlpack_c_exchange_api__")
        run = calls.direct_function("rope")
    for function in (calls.direct_function, calls._direct_functions):
        function.cache_clear()
    assert run(b"", 1, 2, 3, 4) is False


IN_ANOTHER_PROCESS = """
import ctypes as C
from npu_rope import native

class Exchange(C.Structure):
    pass

Exchange._fields_ = [("major", C.c_uint32), ("minor", C.c_uint32), ("older", C.POINTER(Exchange)),
                     ("functions", C.c_void_p * 3), ("export", C.c_void_p), ("stream", C.c_void_p)]
use = C.CDLL(str(native.load().path)).npu_rope_python_use_torch
use.argtypes = [C.c_void_p, C.py_object, C.c_void_p, C.c_size_t]
first = Exchange(major=1, export=1)
newer = Exchange(major=2, export=1)
both = Exchange(major=3, export=1, older=C.pointer(Exchange(major=2, older=C.pointer(first))))
without = Exchange(major=1)
for one in (first, newer, both, without):
    print(use(C.addressof(one), len, None, 0))
print(use(None, len, None, 0), use(C.addressof(first), len, None, 9))
"""


def test_only_the_known_version_of_the_interface_is_used():
    done = subprocess.run([sys.executable, "-c", IN_ANOTHER_PROCESS], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["1", "0", "1", "0", "0", "0"]


AT_THE_END = """
import sys
import torch, npu_rope
from npu_rope.ops import calls

class AtEnd:
    def __init__(self):
        x, params = torch.ones(2, 1, 8), npu_rope.RopeParams(8, "neox")
        npu_rope.rope_(x, torch.tensor([3, 5]), params)
        packed = params.__dict__["_packed_bytes"][True, "exact"]
        self.given = packed, x, torch.tensor([3, 5]), None, x
        self.run = calls.direct_function("rope")

    def __del__(self):
        self.run(*self.given)

sys.kept = torch._C.kept = AtEnd()
"""


def test_a_call_while_the_interpreter_ends_does_not_crash():
    done = subprocess.run([sys.executable, "-c", AT_THE_END], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_library_reads_the_struct_of_this_torch():
    pointer = C.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = C.c_void_p, [C.py_object, C.c_char_p]
    address = pointer(torch.Tensor.__dlpack_c_exchange_api__, b"dlpack_exchange_api")
    assert C.cast(address, C.POINTER(C.c_uint32))[0] == 1
