"""Which calls use the hot path.

A call outside the hot path checks whether a gradient or a tangent flows through its tensors. These tests
count the checks. Parameters have requires_grad=True in every loaded model: without gradients they must cost
no more than other tensors.
"""

import contextlib

import pytest

import npu_rope
from npu_rope.ops import gradients

torch = pytest.importorskip("torch")

from npu_rope import backends  # noqa: E402

pytestmark = pytest.mark.skipif(
    backends.torch_registration() is None, reason="torch's CPU operators were not built"
)

PARAMS = npu_rope.RopeParams(8, "neox")


@pytest.fixture
def gradient_checks(monkeypatch):
    """Return the list of operators that check whether their call is differentiated."""
    checked = []
    for name in ("refuse_tangents", "differentiates"):
        original = getattr(gradients, name)

        def counted(op, *rest, original=original):
            checked.append(op)
            return original(op, *rest)

        monkeypatch.setattr(gradients, name, counted)
    return checked


def heads(make, seed=0):
    return make(torch.randn(1, 3, 2, 8, generator=torch.Generator().manual_seed(seed)))


def table(make):
    return make(torch.rand(3, 8, generator=torch.Generator().manual_seed(9)))


def row(make, seed=5):
    return make(torch.rand(8, generator=torch.Generator().manual_seed(seed)))


POSITIONS = torch.arange(3)
CALLS = {
    "rms_norm": lambda p: npu_rope.rms_norm(heads(p), row(p)),
    "rms_norm(out=)": lambda p: npu_rope.rms_norm(heads(p), row(p), out=torch.empty(1, 3, 2, 8)),
    "add_rms_norm": lambda p: npu_rope.add_rms_norm(heads(p), heads(p, 1), row(p)),
    "rms_norm_rope": lambda p: npu_rope.rms_norm_rope(
        heads(p), heads(p, 1), row(p), row(p, 6), POSITIONS, PARAMS
    ),
    "rope": lambda p: npu_rope.rope(heads(p), POSITIONS, PARAMS),
    "rope_qk": lambda p: npu_rope.rope_qk(heads(p), heads(p, 1), POSITIONS, PARAMS),
    "rope_set_rows": lambda p: npu_rope.rope_set_rows(
        heads(p), POSITIONS, POSITIONS[None], torch.zeros(3, 2, 8), PARAMS
    ),
    "rotary_mul": lambda p: npu_rope.rotary_mul(heads(p), table(p), table(p)),
    "rotary_mul_qk": lambda p: npu_rope.rotary_mul_qk(heads(p), heads(p, 1), table(p), table(p)),
    "rotary_embedding": lambda p: npu_rope.rotary_embedding(
        heads(p).transpose(1, 2), p(table(p)[None, :, :4]), p(table(p)[None, :, :4])
    ),
}


def tensors(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def plain(x):
    return x.detach()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode], ids=lambda mode: mode.__name__)
@pytest.mark.parametrize("name", CALLS)
def test_parameters_take_the_hot_path_where_gradients_are_off(name, mode, gradient_checks):
    with mode():
        expected = tensors(CALLS[name](plain))
        assert not gradient_checks
        found = tensors(CALLS[name](torch.nn.Parameter))
    assert not gradient_checks
    assert all(map(torch.equal, found, expected))
    assert not any(y.requires_grad for y in found)


@pytest.mark.parametrize("name", CALLS)
def test_parameters_that_need_no_gradient_take_the_hot_path_where_gradients_are_on(name, gradient_checks):
    CALLS[name](lambda x: torch.nn.Parameter(x, requires_grad=False))
    assert not gradient_checks


@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("rope_set_rows", "rms_norm(out=)")])
def test_parameters_leave_the_hot_path_where_gradients_are_on(name, gradient_checks):
    found = tensors(CALLS[name](torch.nn.Parameter))
    assert gradient_checks
    assert all(y.requires_grad for y in found)


class Subclass(torch.Tensor):
    """A tensor with its own dispatch, which counts the operators of npu_rope."""

    operator_calls = 0

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.operator_calls += str(function).startswith("npu_rope")
        return super().__torch_function__(function, types, args, kwargs)


@pytest.mark.parametrize("wrap", [plain, torch.nn.Parameter], ids=["tensor", "parameter"])
@pytest.mark.parametrize("name", CALLS)
def test_a_subclass_leaves_the_hot_path_even_as_a_parameter(name, wrap, gradient_checks):
    """torch.nn.Parameter of a subclass is of the subclass, whose dispatch must get the operator."""
    Subclass.operator_calls = 0
    with torch.no_grad():
        result = tensors(CALLS[name](lambda x: wrap(x.as_subclass(Subclass))))
    assert Subclass.operator_calls > 0
    assert gradient_checks
    assert all(map(torch.equal, (y.as_subclass(torch.Tensor) for y in result), tensors(CALLS[name](plain))))


def test_a_parameter_that_is_written_gets_a_new_version():
    out = torch.nn.Parameter(torch.empty(1, 3, 2, 8))
    with torch.no_grad():
        before = out._version
        npu_rope.rms_norm(heads(plain), row(plain), out=out)
    assert out._version == before + 1


@contextlib.contextmanager
def fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        yield


def test_a_dispatch_mode_gets_an_operator_on_parameters():
    x, scale = heads(torch.nn.Parameter), row(torch.nn.Parameter)
    with torch.no_grad(), fake_tensors():
        y = npu_rope.rms_norm(x, scale)
    assert type(y).__name__ == "FakeTensor"


def test_every_call_of_a_patched_model_s_decode_step_takes_the_hot_path(gradient_checks):
    transformers = pytest.importorskip("transformers")
    from npu_rope.integrations.transformers import apply_npu_rope

    size = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "vocab_size": 100}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(num_hidden_layers=2, **size)).eval()
    cache, ids = transformers.DynamicCache(config=model.config), torch.arange(5)[None]
    for level in ("tables", "positions"):
        apply_npu_rope(model, level=level)
        gradient_checks.clear()
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                model(ids, past_key_values=transformers.DynamicCache(config=model.config))
            assert not gradient_checks
    model(ids, past_key_values=cache)
    assert gradient_checks
