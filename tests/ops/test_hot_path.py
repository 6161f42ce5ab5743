"""The calls that take the hot path.

A call outside the hot path checks whether a gradient or a tangent flows through its tensors. These tests
count the checks. Parameters have requires_grad=True in every loaded model: where gradients are off they
must cost no more than other tensors. Where gradients are on, a call adds its node to autograd's graph on the
hot path, and its backward calls kernels on the hot path.
"""

import functools
import itertools

import pytest

import npu_rope
from npu_rope.ops import calls, gradients

torch = pytest.importorskip("torch")

from npu_rope import backends  # noqa: E402

pytestmark = pytest.mark.skipif(
    backends.torch_registration() is None, reason="torch's CPU operators were not built"
)

PARAMS = npu_rope.RopeParams(8, "neox")
PACKED_NORM = calls.packed_attributes("rms_norm", (-1, 1e-5, 1))


@pytest.fixture
def gradient_checks(monkeypatch):
    """Return a list to which each check of a call for gradients or tangents adds the operator's name."""
    checked = []
    for name in ("refuse_tangents", "differentiates", "_needs_gradient"):
        original = getattr(gradients, name)

        def counted(op, *rest, original=original):
            checked.append(op)
            return original(op, *rest)

        monkeypatch.setattr(gradients, name, counted)
    return checked


def heads(wrap, seed=0):
    return wrap(torch.randn(1, 3, 2, 8, generator=torch.Generator().manual_seed(seed)))


def table(wrap):
    return wrap(torch.rand(3, 8, generator=torch.Generator().manual_seed(9)))


def scale(wrap, seed=5):
    return wrap(torch.rand(8, generator=torch.Generator().manual_seed(seed)))


def qkv(wrap, v=None, **named):
    q, k = (wrap(heads(torch.clone, seed)[0]) for seed in range(2))
    named |= {"q_scale": scale(wrap), "k_scale": scale(wrap, 6), "cos": table(wrap), "sin": table(wrap)}
    results = npu_rope.qkv_norm_rope_cache(q, k, v, None, PARAMS, **named)
    return results[: 2 if v is None else 3]


def qkv_into(wrap):
    caches = {f"{x}_cache": torch.zeros(4, 2, 8) for x in "kv"}
    v = wrap(heads(torch.clone, 2)[0])
    return qkv(wrap, v, slots=torch.tensor([3, 0, 1]), **caches, out=torch.empty(3, 2, 8))


POSITIONS = torch.arange(3)
CALLS = {
    "qkv_norm_rope_cache": qkv,
    "qkv_norm_rope_cache(slots=, out=)": qkv_into,
    "rms_norm": lambda wrap: npu_rope.rms_norm(heads(wrap), scale(wrap)),
    "rms_norm(out=)": lambda wrap: npu_rope.rms_norm(heads(wrap), scale(wrap), out=torch.empty(1, 3, 2, 8)),
    "add_rms_norm": lambda wrap: npu_rope.add_rms_norm(heads(wrap), heads(wrap, 1), scale(wrap)),
    "rms_norm_rope": lambda wrap: npu_rope.rms_norm_rope(
        heads(wrap), heads(wrap, 1), scale(wrap), scale(wrap, 6), POSITIONS, PARAMS
    ),
    "rope": lambda wrap: npu_rope.rope(heads(wrap), POSITIONS, PARAMS),
    "rope_qk": lambda wrap: npu_rope.rope_qk(heads(wrap), heads(wrap, 1), POSITIONS, PARAMS),
    "rope_set_rows": lambda wrap: npu_rope.rope_set_rows(
        heads(wrap), POSITIONS, POSITIONS[None], torch.zeros(3, 2, 8), PARAMS
    ),
    "rotary_mul": lambda wrap: npu_rope.rotary_mul(heads(wrap), table(wrap), table(wrap)),
    "rotary_mul_qk": lambda wrap: npu_rope.rotary_mul_qk(
        heads(wrap), heads(wrap, 1), table(wrap), table(wrap)
    ),
    "rotary_embedding": lambda wrap: npu_rope.rotary_embedding(
        heads(wrap).transpose(1, 2), wrap(table(wrap)[None, :, :4]), wrap(table(wrap)[None, :, :4])
    ),
}


def tensors(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def detached(x):
    return x.detach()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode], ids=lambda mode: mode.__name__)
@pytest.mark.parametrize("name", CALLS)
def test_parameters_take_the_hot_path_where_gradients_are_off(name, mode, gradient_checks):
    with mode():
        expected = tensors(CALLS[name](detached))
        assert not gradient_checks
        found = tensors(CALLS[name](torch.nn.Parameter))
    assert not gradient_checks
    assert all(map(torch.equal, found, expected))
    assert not any(y.requires_grad for y in found)


@pytest.mark.parametrize("name", CALLS)
def test_parameters_that_need_no_gradient_take_the_hot_path_where_gradients_are_on(name, gradient_checks):
    CALLS[name](lambda x: torch.nn.Parameter(x, requires_grad=False))
    assert not gradient_checks


@pytest.mark.parametrize("needs_gradient", [False, True])
def test_a_norm_without_a_gradient_calls_the_operator_without_an_autograd_kernel(needs_gradient, monkeypatch):
    called, kernels = [], dict(gradients.without_autograd)
    for name, kernel in kernels.items():
        record = lambda *given, name=name, kernel=kernel: called.append(name) or kernel(*given)  # noqa: E731
        monkeypatch.setitem(gradients.without_autograd, name, record)
    x, factor = heads(torch.clone).requires_grad_(needs_gradient), scale(torch.clone)
    y = npu_rope.rms_norm(x, factor)
    assert called == ([] if needs_gradient else ["rms_norm"])
    assert y.requires_grad == needs_gradient
    assert torch.equal(torch.ops.npu_rope.rms_norm_packed(x, factor, PACKED_NORM), y)


def test_torch_warns_where_a_gradient_flows_through_an_operator_without_an_autograd_kernel():
    x = heads(torch.clone).requires_grad_()
    with pytest.warns(UserWarning, match="npu_rope::rms_norm_packed: an autograd kernel was not registered"):
        torch.ops.npu_rope.rms_norm_packed(x, scale(torch.clone), PACKED_NORM).sum().backward()


TRACED = {
    "rms_norm": lambda x, factor, positions, params: npu_rope.rms_norm(x, factor),
    "rope": lambda x, factor, positions, params: npu_rope.rope(x, positions, params),
    "rope_qk": lambda x, factor, positions, params: npu_rope.rope_qk(x, x, positions, params)[1],
    "rms_norm_rope": lambda x, factor, positions, params: (
        npu_rope.rms_norm_rope(x, x, factor, factor, positions, params)[0]
    ),
    "rotary_mul": lambda x, factor, positions, params: (
        npu_rope.rotary_mul(x, *(factor.expand(x.shape[1], -1),) * 2)
    ),
}


@pytest.mark.filterwarnings("ignore:.torch.jit.trace:DeprecationWarning")
@pytest.mark.parametrize("name", TRACED)
def test_a_trace_records_the_operator_that_has_a_gradient(name):
    """The parameters are new, so that the call in the trace is the first one that packs them. torch.jit.trace
    compares with a second trace."""
    x, factor = heads(torch.clone), scale(torch.clone)
    function, given = TRACED[name], (factor, torch.arange(x.shape[1]), npu_rope.RopeParams(x.shape[-1]))
    traced = torch.jit.trace(lambda x: function(x, *given), (x,))
    assert f"npu_rope::{name}(" in str(traced.graph)
    x.requires_grad_()
    found = torch.autograd.grad(traced(x).square().sum(), x)[0]
    assert torch.equal(found, torch.autograd.grad(function(x, *given).square().sum(), x)[0])


def test_factors_have_no_gradient():
    q, factors = heads(torch.clone), torch.ones(4, requires_grad=True)
    given = torch.arange(3), PARAMS
    y = npu_rope.rope(q, *given, factors)
    pairs = npu_rope.rope_qk(q, q, *given, factors)
    normed = npu_rope.rms_norm_rope(q, q, scale(torch.clone), scale(torch.clone), *given, factors)
    assert not any(result.requires_grad for result in (y, *pairs, *normed))


def test_operators_of_the_hot_path_keep_torch_s_rules():
    packed, positions = npu_rope.ops.calls.packed_of("rope", PARAMS, True, "exact"), torch.arange(3)
    q, k, factor, cos = heads(torch.clone), heads(torch.clone, 1), scale(torch.clone), table(torch.clone)[:1]
    token = q[:, :1].transpose(1, 2)
    tables = npu_rope.ops.calls.packed_attributes("rotary_mul_qk", (False, 0, 0, True))
    ops = torch.ops.npu_rope
    for operator, given in (
        (ops.rope_packed, (q, positions, packed)),
        (ops.rope_qk_packed, (q, k, positions, packed)),
        (ops.rms_norm_packed, (q, factor, PACKED_NORM)),
        (ops.rotary_mul_qk_heads_first, (token, token, cos, cos, tables)),
        (ops.rotary_mul_qk_to_halves, (token, token, cos, cos)),
    ):
        torch.library.opcheck(operator.default, given)


@pytest.mark.parametrize("name", CALLS)
def test_a_negated_view_is_read_with_its_sign(name):
    """Torch's dispatcher negates such a view for a kernel, so no call may go past it."""
    found = tensors(CALLS[name](lambda x: torch._neg_view(x) if x.is_floating_point() else x))
    expected = tensors(CALLS[name](lambda x: -x if x.is_floating_point() else x))
    assert all(map(torch.equal, found, expected))


DIFFERENTIABLE = [name for name in CALLS if name != "rope_set_rows" and "out=" not in name]


class Parameters:
    """Make parameters, and keep them."""

    def __init__(self):
        self.made = []

    def __call__(self, x):
        self.made.append(torch.nn.Parameter(x) if type(x) is torch.Tensor else x)
        return self.made[-1]


def results_and_gradients(name, **options):
    """Return the results of a call on parameters, and the gradients of all its parameters."""
    parameters = Parameters()
    found = tensors(CALLS[name](parameters))
    assert all(y.requires_grad for y in found)
    loss = sum(y.pow(2).sum() for y in found)
    leaves = [x for x in parameters.made if x.is_leaf]
    return found, torch.autograd.grad(loss, leaves, allow_unused=True, **options)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_take_the_hot_path_with_the_same_bits(name, gradient_checks, monkeypatch):
    found, hot = results_and_gradients(name)
    assert not gradient_checks
    monkeypatch.setattr(calls, "ORDINARY", frozenset())
    expected, cold = results_and_gradients(name)
    assert gradient_checks
    assert all(map(torch.equal, found, expected))
    assert len(hot) == len(cold) > 0
    assert any(g is not None for g in hot)
    for g, other in zip(hot, cold, strict=True):
        assert (g is None and other is None) or torch.equal(g, other)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_a_gradient_under_torch_func_leaves_the_hot_path(name, gradient_checks):
    first = []

    def loss(x):
        def wrap(y):
            first.append(y)
            return x if len(first) == 1 else y

        return sum(y.pow(2).sum() for y in tensors(CALLS[name](wrap)))

    x = heads(detached)[0] if name == "qkv_norm_rope_cache" else heads(detached)
    gradient = torch.func.grad(loss)(x)
    assert gradient_checks
    assert gradient.abs().max() > 0


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_a_level_of_forward_mode_leaves_the_hot_path(name, gradient_checks):
    with torch.autograd.forward_ad.dual_level():
        assert all(y.requires_grad for y in tensors(CALLS[name](torch.nn.Parameter)))
    assert gradient_checks


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_a_dispatch_mode_sees_the_operator_where_gradients_are_on(name, gradient_checks):
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Seeing(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    with Seeing():
        assert all(y.requires_grad for y in tensors(CALLS[name](torch.nn.Parameter)))
    assert gradient_checks
    assert f"npu_rope.{name}.default" in seen


def test_a_backward_that_is_differentiated_gives_second_gradients():
    x, factor = heads(torch.clone).double().requires_grad_(), scale(torch.clone).double().requires_grad_()
    norm = functools.partial(npu_rope.rms_norm, stash_type=11)  # float64: a rounding has no gradient
    assert torch.autograd.gradgradcheck(norm, (x, factor))
    assert torch.autograd.gradgradcheck(lambda x: npu_rope.rope(x, POSITIONS, PARAMS), (x,))
    cos = table(torch.clone).double().requires_grad_()
    assert torch.autograd.gradgradcheck(npu_rope.rotary_mul, (x, cos, cos))


def test_a_saved_tensor_that_changes_is_detected_on_the_hot_path():
    x, factor = heads(detached), scale(torch.nn.Parameter)
    y = npu_rope.rms_norm(x, factor)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_hooks_of_saved_tensors_run_once_on_the_hot_path(gradient_checks):
    packed, unpacked = [], []

    def pack(x):
        packed.append(x)
        return x.clone()

    def unpack(x):
        unpacked.append(x)
        return x

    x, factor = heads(torch.nn.Parameter), scale(torch.nn.Parameter)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = npu_rope.rms_norm(x, factor)
    y.sum().backward()
    assert [x.shape for x in packed] == [(1, 3, 2, 8), (8,)]
    assert len(unpacked) == 2
    assert not gradient_checks


def test_an_error_of_a_hook_is_raised_once_and_as_it_is():
    calls_of_pack = []

    def pack(x):
        calls_of_pack.append(x)
        raise ValueError("no room")

    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x),
        pytest.raises(ValueError, match=r"^no room$"),
    ):
        npu_rope.rms_norm(heads(torch.nn.Parameter), scale(torch.nn.Parameter))
    assert len(calls_of_pack) == 1


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_a_checkpoint_recomputes_on_the_hot_path(name, use_reentrant, gradient_checks):
    from torch.utils.checkpoint import checkpoint

    gradients_of_x = []
    for is_checkpointed in (False, True):
        factor = torch.ones((), requires_grad=True)

        def run(factor):
            return CALLS[name](lambda x: x * factor)

        result = checkpoint(run, factor, use_reentrant=use_reentrant) if is_checkpointed else run(factor)
        sum(y.pow(2).sum() for y in tensors(result)).backward()
        gradients_of_x.append(factor.grad)
    assert torch.equal(*gradients_of_x)
    assert not gradient_checks


class CountingTensor(torch.Tensor):
    """A tensor with its own dispatch, which counts the operators of npu_rope."""

    operator_calls = 0

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.operator_calls += str(function).startswith("npu_rope")
        return super().__torch_function__(function, types, args, kwargs)


@pytest.mark.parametrize("wrap", [detached, torch.nn.Parameter], ids=["tensor", "parameter"])
@pytest.mark.parametrize("name", CALLS)
def test_a_subclass_leaves_the_hot_path_even_as_a_parameter(name, wrap, gradient_checks):
    """A Parameter of a subclass is an instance of the subclass, whose dispatch must get the operator."""
    CountingTensor.operator_calls = 0
    with torch.no_grad():
        result = tensors(CALLS[name](lambda x: wrap(x.as_subclass(CountingTensor))))
    assert CountingTensor.operator_calls > 0
    assert gradient_checks
    assert all(
        map(torch.equal, (y.as_subclass(torch.Tensor) for y in result), tensors(CALLS[name](detached)))
    )


def test_a_parameter_that_is_written_gets_a_new_version():
    out = torch.nn.Parameter(torch.empty(1, 3, 2, 8))
    with torch.no_grad():
        before = out._version
        npu_rope.rms_norm(heads(detached), scale(detached), out=out)
    assert out._version == before + 1


def test_a_dispatch_mode_gets_an_operator_on_parameters():
    from torch._subclasses.fake_tensor import FakeTensorMode

    given = heads(torch.nn.Parameter), scale(torch.nn.Parameter)
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        y = npu_rope.rms_norm(*given)
    assert type(y).__name__ == "FakeTensor"


def test_every_call_of_a_patched_model_takes_the_hot_path_where_gradients_are_off(gradient_checks):
    transformers = pytest.importorskip("transformers")
    from npu_rope.integrations.transformers import apply_npu_rope

    size = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "vocab_size": 100}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(num_hidden_layers=2, **size)).eval()
    ids = torch.arange(5)[None]
    for level, fuse in itertools.product(("tables", "positions"), (False, True)):
        apply_npu_rope(model, level=level, fuse=fuse)
        gradient_checks.clear()  # of trial calls
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                assert model.generate(ids, min_new_tokens=2, max_new_tokens=2).shape == (1, 7)
            assert not gradient_checks
        assert model(ids).logits.requires_grad
        assert not gradient_checks
