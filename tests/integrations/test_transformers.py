"""apply_npu_rope on small models of transformers' families: results before, with and after the patch."""

from __future__ import annotations

import copy
import functools
import importlib
import io
import itertools
import pickle
import re
import threading
from pathlib import Path

import pytest
import torch
import transformers

from npu_rope.hf_params import INTERLEAVED, INTERLEAVED_SECTIONS
from npu_rope.integrations import left_to_compiler, norm_forms, rope_forms
from npu_rope.integrations.rope_forms import NotKnown
from npu_rope.integrations.rotary_embeddings import remember_positions
from npu_rope.integrations.rotation_form import EACH_TWICE, HALF, INTERLEAVED_TO_HALVES, ONCE, TWICE
from npu_rope.integrations.rotation_form import INTERLEAVED as NEIGHBOURS
from npu_rope.integrations.transformers import apply_npu_rope, unpatch
from npu_rope.testing.families import MODELS, SMALL, deepseek, make, model_of

pytestmark = [
    pytest.mark.peer,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]
LEVELS = ("tables", "positions")
# Replaced rotations, replaced norms, and modules left in place, for each family (vision tower included).
COUNTS = {
    "llama": (2, 5, 0),
    "llama3": (2, 5, 0),
    "qwen2.5": (2, 5, 0),
    "qwen3": (2, 9, 0),
    "qwen2-vl": (3, 5, 0),
    "qwen3-vl": (3, 9, 0),
    "glm4": (2, 9, 0),
    "glm4-moe": (2, 9, 0),
    "cohere": (2, 0, 3),
    "phi3": (2, 5, 0),
    "olmo2": (2, 9, 0),
    "gemma3": (2, 13, 0),
    "gpt-neox": (2, 0, 0),
    "gpt-oss": (2, 5, 0),
    "deepseek-v3": (4, 9, 0),
    "mistral": (2, 5, 0),
}


@pytest.fixture(autouse=True, scope="module")
def quiet():
    transformers.logging.set_verbosity_error()


def tokens(seed=1, shape=(2, 20)):
    return torch.randint(2, 128, shape, generator=torch.Generator().manual_seed(seed))


def logits(model, ids=None):
    with torch.no_grad():
        return model(tokens() if ids is None else ids).logits


def generate(model):
    return model.generate(tokens(), max_new_tokens=16, do_sample=False)


def gradients(model):
    model.zero_grad()
    ids = tokens(3)
    model(ids, labels=ids).loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def worst(got, expected):
    """Return the largest difference, relative to the largest element."""
    return ((got - expected).abs().max() / expected.abs().max()).item()


@pytest.mark.parametrize("family", MODELS)
def test_a_patched_family_gives_the_same_results(family):
    model, other = make(family), make(family, seed=5)
    before, tokens_before, gradients_before = logits(model), generate(model), gradients(model)
    others_before = logits(other)
    assert len(set(tokens_before[:, 20:].flatten().tolist())) > 5  # the output varies
    for level in LEVELS:
        report = apply_npu_rope(model, level=level)
        norms = sum(e.is_norm for e in report.replaced)
        assert (len(report.replaced) - norms, norms, len(report.left)) == COUNTS[family], str(report)
        assert worst(logits(model), before) <= 1e-5
        assert torch.equal(generate(model), tokens_before)
        patched_gradients = gradients(model)
        assert patched_gradients.keys() == gradients_before.keys()
        largest = max(g.abs().max() for g in gradients_before.values())
        for name, gradient in gradients_before.items():
            assert (patched_gradients[name] - gradient).abs().max() <= 1e-4 * largest, name
        # Other models of the class do not change.
        assert torch.equal(logits(other), others_before)
    assert unpatch(model) > 0
    assert torch.equal(logits(model), before)
    assert unpatch(model) == 0


@pytest.mark.parametrize("family", MODELS)
def test_level_tables_keeps_every_bit_in_float32(family):
    """In float32 the formula and each of its roundings are the same."""
    model = make(family)
    before = logits(model)
    assert apply_npu_rope(model, rms_norm=False, level="tables").replaced
    assert torch.equal(logits(model), before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_report_does_not_depend_on_the_usual_dtype_and_device(dtype, device, monkeypatch):
    """Programs that load models set them. Other threads see no other dtype in the meantime."""
    model = make("qwen3")
    expected = str(apply_npu_rope(model, fuse=True))
    usual = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device), monkeypatch.context() as patched:
            patched.setattr(torch, "set_default_dtype", None)
            assert str(apply_npu_rope(model, fuse=True)) == expected
        assert torch.get_default_dtype() == dtype
    finally:
        torch.set_default_dtype(usual)
    assert expected.startswith("2 rotations and 9 norms replaced, level tables; 0 left; 2 attentions fused")


@pytest.mark.parametrize("fuse", [False, True])
def test_positions_beyond_int32_are_rotated_by_the_tables(fuse):
    model, ids = make("llama"), tokens()
    at = torch.arange(2**31 - 10, 2**31 - 10 + ids.shape[1])[None].expand(2, -1)
    with torch.no_grad():
        expected = model(ids, position_ids=at).logits
        report = apply_npu_rope(model, level="positions", fuse=fuse)
        assert worst(model(ids, position_ids=at).logits, expected) < 1e-5
        assert "by tables: rope has no such rotation by the positions of these tables" in str(report)
        with torch._subclasses.fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
            assert model(tokens()).logits.shape == expected.shape
        model(ids)
    assert "by positions, and by tables" in str(report)


def test_the_models_call_our_operators(monkeypatch):
    """Replace our rotation and our norm by the identity: they are called, and the results change."""
    model = make("qwen3")
    before, calls = logits(model), []
    apply_npu_rope(model)
    with monkeypatch.context() as patched:
        unrotated = lambda q, k, *a, **n: calls.append("qk") or (q, k)  # noqa: E731
        patched.setattr(rope_forms, "rotary_mul_qk", unrotated)
        assert worst(logits(model), before) > 1e-2
        assert calls == ["qk"] * 2
    with monkeypatch.context() as patched:
        patched.setattr(norm_forms, "try_hot_path", lambda op, xs, a: calls.append("norm") or xs[0])
        assert worst(logits(model), before) > 1e-2
        assert calls == ["qk"] * 2 + ["norm"] * 9


def test_level_positions_is_more_accurate_at_far_positions_than_16_bit_tables():
    model = make("llama").to(torch.bfloat16)
    rotary = model.model.rotary_emb  # .to() rounds its frequencies; loading a model does not
    model.model.rotary_emb = type(rotary)(model.config)
    wide = make("llama")
    wide.load_state_dict({k: v.float() for k, v in model.state_dict().items()})
    ids, at = tokens(), torch.arange(200_000, 200_020)[None].expand(2, -1)
    with torch.no_grad():
        apply_npu_rope(wide, rms_norm=False, level="positions")
        exact = wide(ids, position_ids=at).logits
        errors = {}
        for level in LEVELS:
            report = apply_npu_rope(model, rms_norm=False, level=level)
            assert not report.notes
            errors[level] = worst(model(ids, position_ids=at).logits.float(), exact)
    assert errors["positions"] < errors["tables"]


@pytest.mark.parametrize("level", LEVELS)
def test_gradient_checkpointing_gives_the_same_gradients(level):
    model = make("qwen3").train()
    expected = gradients(model)
    apply_npu_rope(model, level=level)
    model.gradient_checkpointing_enable()
    got = gradients(model)
    largest = max(g.abs().max() for g in expected.values())
    assert all((got[n] - g).abs().max() <= 1e-5 * largest for n, g in expected.items())


@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "level"),
    [("llama3", "positions"), pytest.param("gemma3", "tables", marks=pytest.mark.slow)],
)
def test_a_patched_model_compiles_without_graph_breaks(family, level, monkeypatch):
    monkeypatch.setattr(left_to_compiler, "MOST_ROTATED_ELEMENTS_LEFT_TO_COMPILER", 0)
    monkeypatch.setattr(norm_forms, "is_norm_left_to_compiler", lambda x: False)
    model = make(family)
    before, expected = logits(model), gradients(model)
    apply_npu_rope(model, level=level)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=False)
    assert worst(logits(compiled), before) <= 1e-5
    got = gradients(compiled)
    largest = max(g.abs().max() for g in expected.values())
    names = {name.removeprefix("_orig_mod."): g for name, g in got.items()}
    assert all((names[n] - g).abs().max() <= 1e-5 * largest for n, g in expected.items())
    torch._dynamo.reset()


def operators_in(graph):
    """Return the names of npu_rope's operators that a graph calls."""
    called = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    return {name.split(".")[1] for name in called if name.startswith("npu_rope.")}


@pytest.mark.long
@pytest.mark.parametrize("level", LEVELS)
def test_compiled_norms_and_small_rotations_keep_the_code_that_the_compiler_can_fuse(level, monkeypatch):
    """Compiled models rotate by tables at level positions too."""
    model, x = make("qwen3"), tokens()
    before = logits(model)
    report = apply_npu_rope(model, level=level)
    operators = []

    def recording(graph, _):
        operators.append(operators_in(graph))
        return graph.forward

    hidden = x.numel() * model.config.hidden_size
    for most, expected in ((hidden, set()), (0, {"rotary_mul_qk"})):
        monkeypatch.setattr(left_to_compiler, "MOST_ROTATED_ELEMENTS_LEFT_TO_COMPILER", most)
        torch._dynamo.reset()
        compiled = torch.compile(model, fullgraph=True, backend=recording, dynamic=False)
        assert worst(logits(compiled), before) <= 1e-5
        assert set().union(*operators) == expected
        assert level == "tables" or uses_of(report) == [NOT_KEPT]
        operators.clear()
    torch._dynamo.reset()


@pytest.mark.parametrize("level", LEVELS)
def test_an_exported_model_has_only_operators_of_torch(level, monkeypatch):
    """A process without npu_rope can load the program, and it can be translated to ONNX."""
    monkeypatch.setattr(left_to_compiler, "MOST_ROTATED_ELEMENTS_LEFT_TO_COMPILER", 0)
    model, x = make("llama"), tokens()
    before = logits(model)
    apply_npu_rope(model, level=level)
    program = torch.export.export(model, (x,), {"use_cache": False}, strict=False)
    assert operators_in(program.graph_module) == set()
    assert worst(program.module()(x, use_cache=False).logits, before) <= 1e-5


class LogitsOf(torch.nn.Module):
    """torch.jit.trace takes results that are tensors."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x, use_cache=False).logits


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("fuse", [False, True])
def test_a_traced_model_has_only_operators_of_torch(fuse, level):
    model, x = make("qwen3"), tokens()
    before = logits(model)
    report = apply_npu_rope(model, fuse=fuse, level=level)
    traced, saved = torch.jit.trace(LogitsOf(model), (x,)), io.BytesIO()
    assert "npu_rope" not in str(traced.inlined_graph)
    torch.jit.save(traced, saved)
    assert worst(torch.jit.load(io.BytesIO(saved.getvalue()))(x), before) <= 1e-5
    logits(model)
    assert "not called" not in str(report)


@pytest.mark.parametrize("replaced", ["scripted", "builtin"])
def test_modules_without_a_python_forward_stay(replaced):
    """Their class has no function whose globals could be replaced."""

    class Builtin(torch.nn.Module):
        forward = torch.relu

    model = make("llama")
    model.extra = torch.jit.script(torch.nn.Linear(2, 2)) if replaced == "scripted" else Builtin()
    before = logits(model)
    assert str(apply_npu_rope(model)).startswith("2 rotations and 5 norms replaced")
    assert worst(logits(model), before) <= 1e-5


@pytest.mark.parametrize("level", LEVELS)
def test_a_deep_copy_keeps_the_patch_and_uses_its_own_weights(level):
    model = make("qwen3")
    before = logits(model)
    apply_npu_rope(model, level=level)
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    assert worst(logits(copied), before) <= 1e-5
    assert logits(model).abs().max() == 0
    assert unpatch(copied) == (11 if level == "tables" else 12)
    assert torch.equal(logits(copied), before)


def test_a_patched_model_is_saved_and_pickled_unpatched(tmp_path):
    model = make("llama3")
    plain, before = {n: v.clone() for n, v in model.state_dict().items()}, logits(model)
    apply_npu_rope(model, level="positions")
    assert list(model.state_dict()) == list(plain)
    assert all(torch.equal(v, plain[n]) for n, v in model.state_dict().items())
    model.save_pretrained(tmp_path)
    loaded = transformers.LlamaForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(logits(loaded.eval()), before)
    # A pickled copy is not patched, and can be patched again.
    pickled = pickle.loads(pickle.dumps(model))
    assert torch.equal(logits(pickled), before)
    assert str(apply_npu_rope(pickled)).startswith("2 rotations and 5 norms replaced")
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    assert torch.equal(logits(torch.load(stream, weights_only=False)), before)


def test_a_second_patch_replaces_the_first():
    model = make("llama")
    first = str(apply_npu_rope(model))
    assert str(apply_npu_rope(model)) == first
    assert unpatch(model) == 7


def test_the_report_lists_replaced_and_left_modules():
    report = apply_npu_rope(make("cohere"))
    assert str(report) == (
        "2 rotations and 0 norms replaced, level tables; 3 left\n"
        "replaced  2 x CohereAttention: apply_rotary_pos_emb (pairs: neighbours; tables: each entry twice)\n"
        "left      3 x CohereLayerNorm (what it computes is no RMS normalization known here)"
    )
    assert report.replaced[0].module == "model.layers.0.self_attn"
    assert report.left[0].form_or_reason == "what it computes is no RMS normalization known here"


def uses_of(report):
    """Return the different ways in which a report's functions rotated at level positions."""
    return list(dict.fromkeys(str(e.uses) for e in report.replaced if not e.is_norm))


NOT_MADE = "by tables: they are not the tensors that a verified rotary embedding made"
WRITTEN = "by tables: they were written to after the rotary embedding made them"
OTHER_SIZES = "by tables: the model's own function rotates heads and tables of these shapes and types"
NOT_KEPT = "by tables: torch.compile does not keep the identity of tables"
# Families with a function that the language model does not call: the vision tower's, DeepSeek-V3's second.
NOT_CALLED = {"qwen2-vl", "qwen3-vl", "deepseek-v3"}


@pytest.mark.parametrize("family", MODELS)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_report_shows_which_families_rotate_by_positions(family, mode):
    model = make(family)
    before = logits(model)
    report = apply_npu_rope(model, rms_norm=False, level="positions")
    assert uses_of(report) == ["not called yet"]
    with mode():
        assert worst(model(tokens()).logits, before) <= 1e-5
    rotated = NOT_MADE if family == "phi3" else "by positions"
    assert {*uses_of(report)} == {rotated, *["not called yet"] * (family in NOT_CALLED)}
    if family == "phi3":
        reason = "rope_type longrope changes with the length of the sequence"
        assert report.notes == [f"Phi3RotaryEmbedding's tables are used: {reason}"]
    elif family == "llama":
        assert not report.notes


def test_the_report_of_level_positions_follows_the_calls():
    model = make("llama")
    report = apply_npu_rope(model, rms_norm=False, level="positions")
    form = (
        "replaced  2 x LlamaAttention: apply_rotary_pos_emb"
        " (pairs: halves; tables: all entries, then all again;"
    )
    assert str(report).splitlines()[1] == f"{form} not called yet)"
    logits(model)
    assert str(report).splitlines()[1] == f"{form} by positions)"
    model.model.rotary_emb.inv_freq[:] /= 2
    logits(model)
    assert str(report).splitlines()[1] == f"{form} by positions, and {NOT_MADE})"


def test_a_forward_that_someone_else_replaced_is_left():
    model = make("llama")
    attention, norm = model.model.layers[0].self_attn, model.model.norm
    for module in (attention, norm):
        module.forward = functools.partial(type(module).forward, module)
    report = apply_npu_rope(model)
    reason = "its forward is not its class's: someone else replaced it"
    assert [(e.module, e.form_or_reason) for e in report.left] == [
        ("model.layers.0.self_attn", reason),
        ("model.norm", reason),
    ]
    unpatch(model)
    assert "forward" in attention.__dict__


def test_bad_arguments_are_refused():
    model = make("llama")
    with pytest.raises(TypeError, match=r"^\[apply_npu_rope\] model must be a torch.nn.Module but got str\."):
        apply_npu_rope("llama")
    with pytest.raises(ValueError, match=r"^\[apply_npu_rope\] level must be one of tables, positions but"):
        apply_npu_rope(model, level="angles")
    with pytest.raises(TypeError, match=r"^\[apply_npu_rope\] rope must be True or False but got 1\."):
        apply_npu_rope(model, rope=1)
    with pytest.raises(TypeError, match=r"^\[unpatch\] model must be a torch.nn.Module but got None"):
        unpatch(None)
    assert unpatch(model) == 0


def test_a_rotation_that_someone_else_replaced_gets_the_model_s_tables():
    model = make("llama")
    before = logits(model)
    attention = model.model.layers[0].self_attn
    attention.forward = functools.partial(type(attention).forward, attention)
    report = apply_npu_rope(model, level="positions")
    assert worst(logits(model), before) <= 1e-5
    assert uses_of(report) == ["by positions"]
    assert len(report.left) == 1


@pytest.mark.parametrize("is_replaced", [True, False])
def test_tables_are_used_where_they_do_not_follow_from_the_configuration(is_replaced):
    model = make("llama")
    rotary = model.model.rotary_emb
    if is_replaced:
        rotary.forward = functools.partial(type(rotary).forward, rotary)
        reason = "its forward is not its class's: someone else replaced it"
    else:
        rotary.inv_freq[-2:] /= 8
        reason = "its frequencies are not those of its configuration"
    before = logits(model)
    report = apply_npu_rope(model, level="positions")
    assert report.notes == [f"LlamaRotaryEmbedding's tables are used: {reason}"]
    assert worst(logits(model), before) <= 1e-5
    assert uses_of(report) == [NOT_MADE]


def tiny_model(model, config, **settings):
    torch.manual_seed(0)
    return model_of(model, config, **settings).eval()


@pytest.mark.parametrize(
    ("model", "config", "settings", "rotations"),
    [
        ("MoshiForCausalLM", "MoshiConfig", {"ffn_dim": 96, "head_dim": 16}, 2),
        ("RecurrentGemmaForCausalLM", "RecurrentGemmaConfig", {"num_hidden_layers": 3}, 1),
    ],
)
def test_attentions_that_make_their_own_tables_rotate_by_positions(model, config, settings, rotations):
    model = tiny_model(model, config, **settings)
    before = logits(model)
    report = apply_npu_rope(model, rms_norm=False, level="positions")
    assert len(report.replaced) == rotations
    assert not report.notes
    assert worst(logits(model), before) <= 1e-5
    assert uses_of(report) == ["by positions"]


USES = "RotaryEmbedding's tables are used:"
COMPLEX = f"{USES} they are complex64, not cos and sin"
AXIAL = (
    f"Qwen2VLVision{USES} rope has no parameters for its configuration (rope_type must be one of default,"
    " linear, dynamic, yarn, longrope, llama3, proportional but got 'axial')"
)
NOTES = {
    f"Llama4Text{COMPLEX}": lambda: tiny_model(
        "Llama4ForCausalLM", "Llama4TextConfig", head_dim=16, intermediate_size_mlp=96, num_local_experts=2
    ),
    f"DeepseekV2{COMPLEX}": lambda: tiny_model(
        "DeepseekV2ForCausalLM", "DeepseekV2Config", **deepseek(), head_dim=16
    ),
    AXIAL: lambda: make("qwen2-vl"),
}


@pytest.mark.parametrize("note", NOTES)
def test_a_note_names_the_tables_that_are_used(note):
    rotary = [m for m in NOTES[note]().modules() if type(m).__name__ == note.partition("'")[0]]
    assert [remember_positions(module) for module in rotary] == [(None, [note])] * len(rotary)
    assert rotary


def test_parts_of_a_model_may_be_patched_separately():
    model = make("llama")
    before = logits(model)
    report = apply_npu_rope(model, level="positions")
    attention = model.model.layers[0].self_attn
    apply_npu_rope(attention, level="tables")
    assert worst(logits(model), before) <= 1e-5
    unpatch(attention)
    assert worst(logits(model), before) <= 1e-5
    assert uses_of(report) == ["not called yet", "by positions"]
    report = apply_npu_rope(model, level="positions")
    unpatch(model.model.rotary_emb)
    assert worst(logits(model), before) <= 1e-5
    assert uses_of(report) == [NOT_MADE]


def test_a_model_without_weights_is_refused():
    with torch.device("meta"):
        model = MODELS["llama"](SMALL)
    with pytest.raises(ValueError, match=r"^\[apply_npu_rope\] model must have its weights but got"):
        apply_npu_rope(model)


# ---- classification of rotations --------------------------------------------------------------------

MODELS_FOLDER = Path(transformers.__file__).parent / "models"
# Models whose functions do not rotate (q, k) or (x) by cos and sin.
UNKNOWN_ROTATIONS = {
    "clvp",
    "codegen",
    "gptj",
    "deepseek_v2",
    "llama4",
    "nanochat",
    "dinov3_vit",
    "eomt_dinov3",
    "sapiens2",
}
UNKNOWN_ROTATIONS |= {"edgetam_video", "musicflamingo", "sam2_video", "sam3", "sam3_tracker_video"}


def named_rotations():
    """Yield the model and the function of each rotation of transformers, recognized by its name."""
    for path in sorted(MODELS_FOLDER.glob("*/modeling_*.py")):
        names = sorted(set(re.findall(r"^def (apply_\w*rotary\w*)\(", path.read_text(), re.MULTILINE)))
        if names:
            module = importlib.import_module(f"transformers.models.{path.parent.name}.{path.stem}")
            yield from ((path.parent.name, getattr(module, name)) for name in names)


def results_of(function, form, width, dtype):
    """Return the results of the function and of ours for heads and tables of that form."""
    angles = torch.rand(2, 7, width // 2) * 9
    tables = {
        TWICE: torch.cat((angles, angles), -1),
        EACH_TWICE: angles.repeat_interleave(2, -1),
        ONCE: angles,
    }[form.tables]
    heads = [torch.randn(2, n, 7, 32).to(dtype) for n in (4, 1)][: 1 if form.single else 2]
    heads = [h.transpose(1, 2).contiguous() for h in heads] if form.tokens_first else heads
    given = [h.clone() for h in heads]
    results = [
        f(*given, tables.cos().to(dtype), tables.sin().to(dtype))
        for f in (function, rope_forms.replacement(function, form))
    ]
    assert all(torch.equal(h, g) for h, g in zip(heads, given, strict=True))
    return [[r] if form.single else list(r) for r in results]


@pytest.mark.long
def test_every_rotation_of_transformers_is_classified_and_replaced():
    torch.manual_seed(0)
    pairs_of, unknown = {}, set()
    for model, function in named_rotations():
        try:
            form = rope_forms.classify(function)
        except NotKnown:
            unknown.add(model)
            continue
        pairs_of.setdefault(model, set()).add(form.pairs)
        for dtype, bound in ((torch.float32, 1e-6), (torch.bfloat16, 2e-2)):
            for width in (32,) if form.place is None else (32, 16):
                expected, got = results_of(function, form, width, dtype)
                for e, g in zip(expected, got, strict=True):
                    assert e.dtype == g.dtype
                    assert e.shape == g.shape
                    assert (e.float() - g.float()).abs().max() <= bound * e.abs().max().float(), (model, form)
    assert unknown == UNKNOWN_ROTATIONS
    assert sum(HALF in p for p in pairs_of.values()) > 130
    # from_hf's lists of models with interleaved pairs must match the functions.
    for model in {*INTERLEAVED, *INTERLEAVED_SECTIONS} & set(pairs_of):
        assert pairs_of[model] & {NEIGHBOURS, INTERLEAVED_TO_HALVES}, model
    neighbours = {m for m, p in pairs_of.items() if HALF not in p}
    vision_and_audio = {
        "efficientloftr",
        "inkling2",
        "lightglue",
        "pe_audio",
        "pe_audio_video",
        "pe_video",
    }
    assert neighbours - {*INTERLEAVED, *INTERLEAVED_SECTIONS} == vision_and_audio


def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


def rotated(x, cos, sin, axis=1):
    return x * cos.unsqueeze(axis) + rotate_half(x) * sin.unsqueeze(axis)


def gathered(q, k, cos, sin, position_ids=None, unsqueeze_dim=1):
    """Rotate as transformers did before 4.36, and as the code of many models still does."""
    if position_ids is not None:
        cos, sin = cos[position_ids], sin[position_ids]
    return rotated(q, cos, sin, unsqueeze_dim), rotated(k, cos, sin, unsqueeze_dim)


def gathered_from_rows(q, k, cos, sin, position_ids=None):
    if cos.ndim == 2:
        cos, sin = cos[position_ids], sin[position_ids]
    return rotated(q, cos, sin), rotated(k, cos, sin)


REFUSED = {
    "negated sin": lambda q, k, cos, sin: (rotated(q, cos, -sin), rotated(k, cos, -sin)),
    "swapped order": lambda q, k, cos, sin: (rotated(k, cos, sin), rotated(q, cos, sin)),
    "rotation of v": lambda q, k, v, cos, sin: tuple(rotated(x, cos, sin) for x in (q, k, v)),
    "arguments cos and sin swapped": lambda q, k, sin, cos: (rotated(q, cos, sin), rotated(k, cos, sin)),
    "cos used as sin": lambda q, k, cos, sin: (rotated(q, sin, cos), rotated(k, sin, cos)),
    "keys only": lambda q, k, cos, sin: (q, rotated(k, cos, sin)),
    "scaled": lambda q, k, cos, sin: (rotated(q, cos, sin) * 1.01, rotated(k, cos, sin)),
    "a window in the middle": lambda q, k, cos, sin: tuple(
        torch.cat((x[..., :2], rotated(x[..., 2:-2], cos[..., 2:-2], sin[..., 2:-2]), x[..., -2:]), -1)
        for x in (q, k)
    ),
    "cos moved by one token": lambda q, k, cos, sin: (rotated(q, cos.roll(1, 1), sin), rotated(k, cos, sin)),
    "an additional argument": lambda q, k, cos, sin, seqlens: (rotated(q, cos, sin), rotated(k, cos, sin)),
    "only heads of 16 lanes": lambda q, k, cos, sin: (
        (rotated(q, cos, sin), rotated(k, cos, sin)) if q.shape[-1] == 16 else (q, k)
    ),
    "normalized tables": lambda q, k, cos, sin: tuple(
        rotated(x, cos / (cos**2 + sin**2).sqrt(), sin / (cos**2 + sin**2).sqrt()) for x in (q, k)
    ),
    "in place": lambda q, k, cos, sin: (q.copy_(rotated(q, cos, sin)), k.copy_(rotated(k, cos, sin))),
    "one head for all": lambda q, k, cos, sin: (
        rotated(q, cos, sin)[:, :1].expand_as(q),
        rotated(k, cos, sin),
    ),
    "rows gathered by position_ids": gathered,
    "unsqueeze_dim without effect": lambda q, k, cos, sin, unsqueeze_dim=1: (
        rotated(q, cos, sin),
        rotated(k, cos, sin),
    ),
}


class AttentionOfGlobals(torch.nn.Module):
    """A module whose forward calls apply_rotary_pos_emb, a function of this file."""

    def forward(self, q, k, cos, sin):
        return apply_rotary_pos_emb(q, k, cos, sin)


def apply_rotary_pos_emb(q, k, cos, sin):
    return rotated(q, cos, sin), rotated(k, cos, sin)


@pytest.mark.parametrize("what", REFUSED)
def test_functions_that_differ_from_a_rotation_are_refused(what, monkeypatch):
    with pytest.raises(NotKnown):
        rope_forms.classify(REFUSED[what])
    monkeypatch.setitem(globals(), "apply_rotary_pos_emb", REFUSED[what])
    module = torch.nn.Sequential(AttentionOfGlobals())
    report = apply_npu_rope(module)
    assert not report.replaced
    assert [e.function for e in report.left] == ["apply_rotary_pos_emb"]
    assert "forward" not in module[0].__dict__


def test_a_users_module_is_replaced_and_gives_the_same_results():
    module = torch.nn.Sequential(AttentionOfGlobals())
    assert len(apply_npu_rope(module).replaced) == 1
    q, k, angles = torch.randn(2, 4, 6, 16), torch.randn(2, 1, 6, 16), torch.rand(2, 6, 8) * 7
    tables = [torch.cat((t, t), -1) for t in (angles.cos(), angles.sin())]
    for got, expected in zip(module[0](q, k, *tables), apply_rotary_pos_emb(q, k, *tables), strict=True):
        assert worst(got, expected) <= 1e-6


def ids_last(query, key, cos, sin, unsqueeze_dim=1, position_ids=None):
    return rotated(query, cos, sin, unsqueeze_dim), rotated(key, cos, sin, unsqueeze_dim)


def by_keyword(query, key, cos, sin, *, unsqueeze_dim=1):
    return rotated(query, cos, sin, unsqueeze_dim), rotated(key, cos, sin, unsqueeze_dim)


def optional_keys(query, key=None, cos=None, sin=None, unsqueeze_dim=1):
    q = rotated(query, cos, sin, unsqueeze_dim)
    return q if key is None else (q, rotated(key, cos, sin, unsqueeze_dim))


Q, K = torch.randn(2, 4, 6, 16), torch.randn(2, 1, 6, 16)
ANGLES = (torch.rand(2, 6, 8) * 7).repeat(1, 1, 2)
TABLES = ANGLES.cos(), ANGLES.sin()
TOKENS_FIRST = Q.transpose(1, 2), K.transpose(1, 2)
CALLS = [
    (ids_last, (*TOKENS_FIRST, *TABLES, 2), {}),
    (ids_last, (*TOKENS_FIRST, *TABLES, 2, torch.arange(6)[None]), {}),
    (ids_last, (*TOKENS_FIRST, *TABLES), {"unsqueeze_dim": -2}),
    (ids_last, (*TOKENS_FIRST, *(t[0] for t in TABLES), 1), {}),
    (ids_last, (Q, K, *(t[0] for t in TABLES)), {"unsqueeze_dim": 0}),
    (by_keyword, (*TOKENS_FIRST, *TABLES), {"unsqueeze_dim": 2}),
    (by_keyword, (), {"query": Q, "key": K, "cos": TABLES[0], "sin": TABLES[1]}),
    (optional_keys, (Q, K, *TABLES), {}),
    (optional_keys, (TOKENS_FIRST[0],), {"cos": TABLES[0], "sin": TABLES[1], "unsqueeze_dim": 2}),
]


@pytest.mark.parametrize(("function", "given", "named"), CALLS)
def test_a_replacement_accepts_the_functions_calls(function, given, named):
    ours = rope_forms.replacement(function, rope_forms.classify(function))
    for got, expected in zip(ours(*given, **named), function(*given, **named), strict=True):
        assert got.shape == expected.shape
        assert worst(got, expected) <= 1e-6


def test_a_replacement_refuses_other_calls():
    ours = rope_forms.replacement(by_keyword, rope_forms.classify(by_keyword))
    for given, named in (((Q, K, *TABLES, 2), {}), ((Q, K), {}), ((Q, K, *TABLES), {"v": Q})):
        with pytest.raises(TypeError, match=r"^\[apply_npu_rope\] a rotation must be given query, key, cos"):
            ours(*given, **named)


# ---- classification of norms ------------------------------------------------------------------------


class GivenNorm(torch.nn.Module):
    """A module that computes a given function of itself and x."""

    def __init__(self, compute, weight=True):
        super().__init__()
        self.compute, self.eps = compute, 1e-5
        if weight:
            self.weight = torch.nn.Parameter(torch.ones(48))

    def forward(self, x):
        return self.compute(self, x)


class RMSNorm(GivenNorm):
    """A module whose name is that of an RMS norm; it may compute something else."""


def normed(self, x):
    wide = x.float()
    return wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)


NORMS = {
    "weight; rounded, then times the weight": lambda s, x: s.weight * normed(s, x).to(x.dtype),
    "weight; times the weight in float32, then rounded": lambda s, x: (s.weight * normed(s, x)).to(x.dtype),
    "1 + weight; times the weight in float32, then rounded": lambda s, x: (
        normed(s, x) * (1 + s.weight.float())
    ).to(x.dtype),
    "1 + weight; rounded, then times the weight": lambda s, x: normed(s, x).to(x.dtype) * (1 + s.weight),
    "no weight; rounded, then times the weight": lambda s, x: normed(s, x).to(x.dtype),
}
NO_NORMS = {
    "mean subtracted": lambda s, x: s.weight * normed(s, x - x.mean(-1, keepdim=True)).to(x.dtype),
    "sum, not mean": lambda s, x: s.weight * x / (x.pow(2).sum(-1, keepdim=True) + s.eps).sqrt(),
    "a constant outside the root": lambda s, x: s.weight
    * x
    / (x.pow(2).mean(-1, keepdim=True).sqrt() + 0.01),
    "epsilon outside the root": lambda s, x: (
        s.weight * (x.float() / (x.float().pow(2).mean(-1, keepdim=True).sqrt() + s.eps)).to(x.dtype)
    ),
    "epsilon as a floor": lambda s, x: (
        s.weight * (x.float() * x.float().pow(2).mean(-1, keepdim=True).clamp(min=s.eps).rsqrt()).to(x.dtype)
    ),
    "dropout": lambda s, x: torch.nn.functional.dropout(s.weight * normed(s, x).to(x.dtype), 0.5, s.training),
    "half the weight": lambda s, x: s.weight / 2 * normed(s, x).to(x.dtype),
}


@pytest.mark.parametrize("form", NORMS)
def test_norms_are_classified_by_their_results(form):
    module = RMSNorm(NORMS[form], weight="no weight" not in form)
    assert str(norm_forms.classify(module)) == form
    x = torch.randn(7, 48)
    if "no weight" not in form:
        torch.nn.init.uniform_(module.weight, 0.5, 2)
    model = torch.nn.Sequential(module)
    for dtype, bound, unequal_share in ((torch.float32, 1e-6, 1.0), (torch.bfloat16, 1e-2, 0.02)):
        model = model.to(dtype)
        expected = model(x.to(dtype))
        assert len(apply_npu_rope(model).replaced) == 1
        got = model(x.to(dtype))
        unpatch(model)
        assert got.dtype == expected.dtype
        assert worst(got.float(), expected.float()) <= bound
        assert (got != expected).float().mean() <= unequal_share


@pytest.mark.parametrize("what", NO_NORMS)
def test_a_module_that_is_no_rms_norm_is_left(what):
    model = torch.nn.Sequential(RMSNorm(NO_NORMS[what]))
    report = apply_npu_rope(model)
    assert [e.form_or_reason for e in report.left] == ["what it computes is no RMS normalization known here"]
    assert "forward" not in model[0].__dict__


# ---- errors, types and shapes -----------------------------------------------------------------------


def raises_for_some_heads(q, k, cos, sin, unsqueeze_dim=1):
    if q.dtype == torch.bfloat16 or q.shape[-1] > 64:
        raise RuntimeError("not these\nat all")
    return rotated(q, cos, sin, unsqueeze_dim), rotated(k, cos, sin, unsqueeze_dim)


class ThreeDimensionalNorm(torch.nn.Module):
    """An RMSNorm that accepts only [B,S,D]."""

    def __init__(self, width):
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(torch.rand(width) + 0.5), 1e-6

    def forward(self, x):
        _, _, _ = x.shape
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)


class RaisingNorm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.eps = 1e-6

    def forward(self, x):
        raise KeyError("a key")


@pytest.mark.parametrize("level", LEVELS)
def test_a_module_that_raises_in_the_classification_is_left(level, monkeypatch):
    monkeypatch.setattr(
        "transformers.models.llama.modeling_llama.apply_rotary_pos_emb", raises_for_some_heads
    )
    model = make("llama")
    model.model.norm = torch.nn.Sequential(model.model.norm)
    model.model.norm.RaisingNorm = RaisingNorm()
    report = apply_npu_rope(model, level=level)
    reasons = {e.form_or_reason for e in report.left}
    assert "when it was tried it raised RuntimeError: not these" in reasons
    assert "when it was tried it raised KeyError: 'a key'" in reasons


def test_norms_without_a_weight_and_norms_of_three_dimensions_are_classified():
    plain = torch.nn.RMSNorm(48, eps=1e-6, elementwise_affine=False)
    assert norm_forms.classify(plain).weight is None
    assert norm_forms.classify(ThreeDimensionalNorm(24)).weight == "weight"


class ByWeightsType(torch.nn.Module):
    """An RMSNorm whose result has its weight's type, as in Idefics."""

    def __init__(self):
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(torch.rand(24) + 0.5), 1e-6

    def forward(self, x):
        x = x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * (x if self.weight.dtype == torch.float32 else x.to(self.weight.dtype))


@pytest.mark.parametrize("kind", ["llama", "gemma3", "torch", ByWeightsType])
@pytest.mark.parametrize(
    ("weight", "x"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float32, torch.bfloat16),
        (torch.float32, torch.float16),
        (torch.float16, torch.bfloat16),
        (torch.float64, torch.float32),
    ],
)
def test_norms_whose_weight_has_another_type_keep_their_result_type(kind, weight, x):
    if kind == "llama":
        norm = transformers.models.llama.modeling_llama.LlamaRMSNorm(24)
    elif kind == "gemma3":
        norm = transformers.models.gemma3.modeling_gemma3.Gemma3RMSNorm(24)
    else:
        norm = torch.nn.RMSNorm(24, eps=1e-6) if kind == "torch" else kind()
    torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
    norm = norm.to(weight)
    replaced = norm_forms.replacement(norm_forms.classify(norm), type(norm).forward)
    given = torch.randn(3, 7, 24, generator=torch.Generator().manual_seed(0)).to(x)
    with torch.no_grad():
        wanted, got = norm(given), replaced(norm, given)
    assert wanted.dtype == got.dtype
    bound = {torch.float32: 1e-6, torch.float64: 1e-6, torch.bfloat16: 2**-8, torch.float16: 2**-11}
    assert (wanted - got).abs().max() <= bound[wanted.dtype] * wanted.abs().max()


@pytest.mark.parametrize(
    "kind", ["integers", "complex", "rows of one number", "a tensor as epsilon", "0", "inf"]
)
def test_a_replaced_norm_leaves_unusual_calls_to_the_module(kind):
    norm = transformers.models.llama.modeling_llama.LlamaRMSNorm(24)
    torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
    replaced = norm_forms.replacement(norm_forms.classify(norm), type(norm).forward)
    x = torch.randn(3, 24, generator=torch.Generator().manual_seed(0))
    if kind == "integers":
        x = (10 * x).long()
    elif kind == "complex":
        x = x + 1j
    elif kind == "rows of one number":
        x = x[:, :1]
    elif kind == "a tensor as epsilon":
        norm.variance_epsilon = torch.tensor(1e-3)
    elif kind == "inf":
        norm.variance_epsilon = float("inf")
    else:
        x = x[0, 0]
    with torch.no_grad():
        assert torch.equal(norm(x), replaced(norm, x))


def test_a_replaced_norm_keeps_the_name_of_its_parameter():
    model = torch.nn.Sequential(torch.nn.RMSNorm(24, eps=1e-6))
    x = torch.randn(3, 24, generator=torch.Generator().manual_seed(0))
    wanted = model[0](x=x)
    assert apply_npu_rope(model).replaced
    torch.testing.assert_close(model[0](x=x), wanted)
    torch.testing.assert_close(torch.compile(model[0], fullgraph=True, backend="eager")(x=x), wanted)
    with pytest.raises(TypeError, match="'hidden_states'"):
        model[0](hidden_states=x)


def test_an_exception_leaves_the_model_unpatched(monkeypatch):
    model = make("llama")
    monkeypatch.setattr(norm_forms, "classify", lambda module: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        apply_npu_rope(model)
    assert not any("forward" in m.__dict__ for m in model.modules())


def drops_lanes(q, k, cos, sin, unsqueeze_dim=1):
    """Return only the rotated lanes; the caller appends the others."""
    w = cos.shape[-1]
    return rotated(q[..., :w], cos, sin, unsqueeze_dim), rotated(k[..., :w], cos, sin, unsqueeze_dim)


def trims_tables(q, k, cos, sin):
    cos, sin = cos[:, -q.shape[-2] :], sin[:, -q.shape[-2] :]
    return rotated(q, cos, sin), rotated(k, cos, sin)


def by_second_axis(q, k, cos, sin):
    return tuple(x * cos[:, None, :] + rotate_half(x) * sin[:, None, :] for x in (q, k))


def by_last_axes(q, k, cos, sin):
    return tuple(x * cos.unsqueeze(-3) + rotate_half(x) * sin.unsqueeze(-3) for x in (q, k))


def with_batches_first(q, k, cos, sin, unsqueeze_dim=1):
    if cos.ndim == 2:
        cos, sin = cos[None], sin[None]
    return rotated(q, cos, sin, unsqueeze_dim), rotated(k, cos, sin, unsqueeze_dim)


def with_two_axes(q, k, cos, sin, unsqueeze_dim=1):
    axis = 1 if unsqueeze_dim == 1 else 2
    return rotated(q, cos, sin, axis), rotated(k, cos, sin, axis)


@pytest.mark.parametrize("dim", [-4, -3, -2, -1, 0, 1, 2, 3])
@pytest.mark.parametrize("function", [with_batches_first, with_two_axes, by_keyword])
@pytest.mark.parametrize(
    ("heads", "table"),
    [
        ((2, 4, 4, 16), (4, 16)),
        ((4, 4, 4, 16), (4, 4, 16)),
        ((4, 4, 16), (4, 16)),
        ((1, 4, 4, 16), (1, 4, 16)),
    ],
)
def test_unsqueeze_dim_means_the_same_as_in_the_function(function, heads, table, dim):
    ours = rope_forms.replacement(function, rope_forms.classify(function))
    q, k = torch.randn(heads), torch.randn(heads)
    cos, sin = (torch.cat((t, t), -1) for t in torch.rand(2, *table[:-1], 8))
    for named in ({"unsqueeze_dim": dim}, {}):
        try:
            expected = function(q, k, cos, sin, **named)
        except (RuntimeError, IndexError) as error:
            with pytest.raises(type(error)):
                ours(q, k, cos, sin, **named)
            continue
        for got, wanted in zip(ours(q, k, cos, sin, **named), expected, strict=True):
            assert got.shape == wanted.shape
            assert torch.allclose(got, wanted, atol=1e-6)


def in_the_tables_dtype(q, k, cos, sin):
    q, k = q.to(cos.dtype), k.to(cos.dtype)
    return rotated(q, cos, sin), rotated(k, cos, sin)


def plain(q, k, cos, sin):
    return rotated(q, cos, sin), rotated(k, cos, sin)


@pytest.mark.parametrize("function", [in_the_tables_dtype, plain])
def test_heads_and_tables_of_mixed_types_give_the_functions_type(function):
    ours = rope_forms.replacement(function, rope_forms.classify(function))
    kinds = torch.float16, torch.bfloat16, torch.float32, torch.float64
    for q_type, k_type, cos_type, sin_type in itertools.product(kinds, repeat=4):
        q, k = torch.randn(2, 3, 5, 16).to(q_type), torch.randn(2, 3, 5, 16).to(k_type)
        angles = torch.rand(2, 5, 8).repeat(1, 1, 2)
        cos, sin = angles.cos().to(cos_type), angles.sin().to(sin_type)
        for got, wanted in zip(ours(q, k, cos, sin), function(q, k, cos, sin), strict=True):
            assert got.dtype == wanted.dtype
            eps = torch.finfo(min((wanted.dtype, cos_type, sin_type), key=lambda t: torch.finfo(t).bits)).eps
            assert (got - wanted).abs().max() <= 4 * eps * wanted.abs().max()


def test_a_function_that_always_gives_float32_is_refused():
    def widens(q, k, cos, sin):
        return rotated(q.float(), cos.float(), sin.float()), rotated(k.float(), cos.float(), sin.float())

    with pytest.raises(NotKnown, match="bfloat16 heads become float32"):
        rope_forms.classify(widens)


@pytest.mark.parametrize("function", [by_second_axis, by_last_axes, gathered_from_rows, by_keyword])
@pytest.mark.parametrize(
    ("heads", "table"),
    [
        ((4, 4, 16), (4, 16)),
        ((2, 4, 4, 16), (4, 16)),
        ((4, 4, 4, 16), (4, 4, 16)),
        ((4, 4, 16), (1, 4, 16)),
        ((1, 4, 4, 16), (1, 1, 4, 16)),
        ((3, 2, 4, 4, 16), (4, 16)),
    ],
)
def test_the_axis_of_heads_is_that_of_the_function(function, heads, table):
    """The numbers of tokens and heads are equal, so sizes do not identify the axes."""
    ours = rope_forms.replacement(function, rope_forms.classify(function))
    q, k = torch.randn(heads), torch.randn(heads)
    cos, sin = (torch.cat((t, t), -1) for t in torch.rand(2, *table[:-1], 8))
    try:
        expected = function(q, k, cos, sin)
    except (RuntimeError, TypeError):
        with pytest.raises((RuntimeError, TypeError)):
            ours(q, k, cos, sin)
        return
    for got, wanted in zip(ours(q, k, cos, sin), expected, strict=True):
        assert torch.allclose(got, wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("function", "table"),
    [
        (drops_lanes, (1, 5, 8)),
        (trims_tables, (1, 9, 16)),
        (drops_lanes, (1, 1, 16)),
        (drops_lanes, (3, 5, 16)),
    ],
    ids=["narrow", "long", "one row", "more batches"],
)
def test_tables_of_other_shapes_are_passed_to_the_original_function(function, table):
    ours = rope_forms.replacement(function, rope_forms.classify(function))
    q, k, cos, sin = torch.randn(1, 2, 5, 16), torch.randn(1, 1, 5, 16), torch.rand(table), torch.rand(table)
    for got, expected in zip(ours(q, k, cos, sin), function(q, k, cos, sin), strict=True):
        assert torch.equal(got, expected)
    table = torch.rand(1, 5, 16)
    for got, expected in zip(ours(q, k, table, table), function(q, k, table, table), strict=True):
        assert torch.allclose(got, expected, atol=1e-6)


# ---- the positions of tables ------------------------------------------------------------------------


class Rotation(torch.nn.Module):
    """Make tables of 8 lanes and pass them, with a change or not, to a function."""

    def __init__(self, change=lambda cos, sin: (cos, sin)):
        super().__init__()
        config = transformers.LlamaConfig(**SMALL.settings, head_dim=8)
        self.rotary_emb = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config)
        self.change = change

    def forward(self, q, k, ids):
        return rotary_of_heads(q, k, *self.change(*self.rotary_emb(q, ids)))


def rotary_of_heads(q, k, cos, sin):
    """Rotate as transformers does; Rotation calls this function."""
    return rotated(q, cos, sin), rotated(k, cos, sin)


def heads(tokens=5, width=8, dtype=torch.float32):
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(1, n, tokens, width, generator=generator).to(dtype) for n in (2, 1)]


def by_positions(model, q, k, ids):
    """Patch a model, check that it rotates by positions, and return its results."""
    report = apply_npu_rope(model, level="positions")
    got = model(q, k, ids)
    assert uses_of(report) == ["by positions"]
    return got


def assert_same(got, expected):
    assert all(map(torch.equal, got, expected))


@pytest.mark.parametrize(
    ("function", "head", "ids", "uses"),
    [
        (drops_lanes, 16, 5, OTHER_SIZES),
        (drops_lanes, 8, 5, "by positions"),
        (trims_tables, 8, 9, OTHER_SIZES),
        (trims_tables, 8, 1, OTHER_SIZES),
        (optional_keys, 8, 5, "by positions"),
    ],
    ids=["more lanes", "as many", "more positions", "one position", "optional keys"],
)
def test_at_level_positions_other_shapes_are_passed_to_the_original_function(
    function, head, ids, uses, monkeypatch
):
    monkeypatch.setitem(globals(), "rotary_of_heads", function)
    model = Rotation()
    (q, k), ids = heads(width=head), 7 + torch.arange(ids)[None]
    expected = model(q, k, ids)
    report = apply_npu_rope(model, level="positions")
    for got, wanted in zip(model(q, k, ids), expected, strict=True):
        assert torch.allclose(got, wanted, atol=1e-6)
    assert uses_of(report) == [uses]
    assert not report.notes


def test_at_level_positions_queries_without_keys_are_passed_to_the_original_function(monkeypatch):
    monkeypatch.setitem(globals(), "rotary_of_heads", optional_keys)
    model, (q, _), ids = Rotation(), heads(), torch.arange(5)[None]
    expected = model(q, None, ids)
    report = apply_npu_rope(model, level="positions")
    assert torch.equal(model(q, None, ids), expected)
    assert uses_of(report) == [OTHER_SIZES]


def written(table):
    table[:, 2] = table[:, 1]
    return table


def written_in_a_view(table):
    table.view(-1)[3:].zero_()
    return table


ROTATED_TOKENS = torch.tensor([[True, False, True, True, False]])[..., None]
CHANGES = {
    "backward": lambda cos, sin: (cos, -sin),
    "swapped": lambda cos, sin: (sin, cos),
    "cos twice": lambda cos, sin: (cos, cos),
    "cos twice as large": lambda cos, sin: (cos * 2, sin),
    "some tokens do not rotate": lambda cos, sin: (
        torch.where(ROTATED_TOKENS, cos, torch.ones_like(cos)),
        torch.where(ROTATED_TOKENS, sin, torch.zeros_like(sin)),
    ),
    "tokens of sin rolled": lambda cos, sin: (cos, sin.roll(1, 1)),
    "tokens in another order": lambda cos, sin: tuple(torch.cat((t[:, 3:], t[:, :3]), 1) for t in (cos, sin)),
    "no sin": lambda cos, sin: (cos, torch.zeros_like(sin)),
    "lanes flipped": lambda cos, sin: (cos.flip(-1), sin.flip(-1)),
    "copied": lambda cos, sin: (cos.clone(), sin.clone()),
    "cos copied": lambda cos, sin: (cos.clone(), sin),
    "a view": lambda cos, sin: (cos[:], sin[:]),
    "cast and back": lambda cos, sin: (cos.bfloat16().float(), sin.bfloat16().float()),
    "deep copies": lambda cos, sin: copy.deepcopy((cos, sin)),
    "shallow copy of cos, then written": lambda cos, sin: (written(copy.copy(cos)), sin),
    "shallow copies, then written": lambda cos, sin: (written(copy.copy(cos)), copy.copy(sin)),
    "pickled": lambda cos, sin: pickle.loads(pickle.dumps((cos, sin))),
    "detached": lambda cos, sin: (cos.detach(), sin.detach()),
}
WRITES = {
    "cos written": lambda cos, sin: (written(cos), sin),
    "sin written": lambda cos, sin: (cos, written(sin)),
    "written in a view": lambda cos, sin: (written_in_a_view(cos), sin),
    "scaled in place": lambda cos, sin: (cos.mul_(2), sin.mul_(2)),
    "backward in place": lambda cos, sin: (cos, sin.neg_()),
    "written with out=": lambda cos, sin: (torch.add(cos, 1, out=cos), sin),
}


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("change", [*CHANGES, *WRITES])
def test_at_level_positions_changed_tables_are_used(change, mode):
    """The results have the model's bits: positions are used only for the tensors made from them."""
    model, (q, k), ids = Rotation({**CHANGES, **WRITES}[change]), heads(), torch.arange(5)[None] * 7
    expected = model(q, k, ids)
    report = apply_npu_rope(model, level="positions")
    with mode():
        assert_same(model(q, k, ids), expected)
    assert uses_of(report) == [WRITTEN if change in WRITES else NOT_MADE]
    assert torch.equal(ids, torch.arange(5)[None] * 7)  # the caller's tensor is unchanged


@pytest.mark.parametrize("change", ["backward", "copied", "cos written"])
def test_at_level_positions_compiled_models_use_the_tables(change):
    model, (q, k), ids = Rotation({**CHANGES, **WRITES}[change]), heads(), torch.arange(5)[None]
    expected = model(q, k, ids)
    report = apply_npu_rope(model, level="positions")
    for got, wanted in zip(
        torch.compile(model, fullgraph=True, backend="aot_eager")(q, k, ids), expected, strict=True
    ):
        assert worst(got, wanted) <= 1e-6
    assert uses_of(report) == [NOT_KEPT]
    torch._dynamo.reset()


@pytest.mark.long
def test_compiled_layers_after_an_eager_rotary_embedding_use_its_tables():
    model = make("llama")
    before = logits(model)
    report = apply_npu_rope(model, rms_norm=False, level="positions")
    for layer in model.model.layers:
        layer.compile(backend="aot_eager", fullgraph=True)
    assert worst(logits(model), before) <= 1e-5
    assert uses_of(report) == [NOT_KEPT]
    torch._dynamo.reset()


EDITS_OF_TOKENS = {
    "rolled": lambda t: torch.cat((t[:, 1:], t[:, :1]), 1),
    "the first token for all": lambda t: t[:, :1].expand(-1, t.shape[1], -1).contiguous(),
    "cloned": lambda t: t.clone(),
    "fewer lanes": lambda t: t[..., :4],
    "unchanged": lambda t: t,
}


@pytest.mark.parametrize(
    ("family", "edit"),
    [
        *itertools.product(
            ["llama", "qwen2-vl", "qwen3-vl"], [e for e in EDITS_OF_TOKENS if "lanes" not in e]
        ),
        # GLM-4's function rotates as many lanes as its tables have.
        *itertools.product(["glm4"], EDITS_OF_TOKENS),
    ],
)
def test_at_level_positions_tables_changed_between_layers_are_used(family, edit):
    model, change = make(family), EDITS_OF_TOKENS[edit]
    language = getattr(model.model, "language_model", model.model)
    ids = torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(3))
    planes = torch.stack([torch.arange(9) * k % 7 + k for k in (1, 2, 3)])[:, None].expand(3, 2, 9).clone()
    planes[:, 1] += 4
    positions = planes if "vl" in family else planes[0]
    for layer in language.layers:
        layer.self_attn.register_forward_pre_hook(
            lambda _, given, named: (
                given,
                {**named, "position_embeddings": tuple(map(change, named["position_embeddings"]))},
            ),
            with_kwargs=True,
        )
    with torch.no_grad():
        wanted = language(ids, position_ids=positions).last_hidden_state
        report = apply_npu_rope(language, rms_norm=False, level="positions")
        got = language(ids, position_ids=positions).last_hidden_state
    assert not report.notes
    if edit == "unchanged":
        assert uses_of(report) == ["by positions"]
        assert worst(got, wanted) <= 1e-5
    else:
        assert uses_of(report) == [NOT_MADE]
        assert torch.equal(got, wanted)


@pytest.mark.parametrize("level", LEVELS)
def test_layers_in_another_order_rotate_by_the_tables_that_they_get(level):
    """Gemma chooses tables by a layer's index, which may differ from the layer's own attribute. The positions
    of a table come with the parameters that made it."""
    model = make("gemma3")
    layers = model.model.layers
    layers[0], layers[1] = layers[1], layers[0]
    wanted = logits(model)
    report = apply_npu_rope(model, rms_norm=False, level=level)
    assert worst(logits(model), wanted) <= 1e-5
    assert level == "tables" or uses_of(report) == ["by positions"]


def test_positions_may_have_other_integer_types():
    model, (q, k) = Rotation(), heads()
    expected = model(q, k, torch.arange(5)[None])
    for dtype in (torch.int16, torch.uint8, torch.int32, torch.int64):
        results = by_positions(model, q, k, torch.arange(5)[None].to(dtype))
        for got, wanted in zip(results, expected, strict=True):
            assert torch.allclose(got, wanted, atol=1e-6)
    report = apply_npu_rope(model, level="positions")
    assert_same(model(q, k, torch.arange(5.0)[None]), expected)
    assert uses_of(report) == [NOT_MADE]


class KeepsTables(Rotation):
    """Rotate by the tables of every earlier call of the rotary embedding."""

    def forward(self, q, k, ids):
        self.tables = [*getattr(self, "tables", []), self.rotary_emb(q, ids)]
        return [rotary_of_heads(q, k, *tables) for tables in self.tables]


def test_tables_of_an_earlier_call_rotate_by_its_positions():
    model, (q, k) = KeepsTables(), heads(dtype=torch.bfloat16)
    all_positions = [torch.arange(5)[None] + far for far in (0, 1000, 200_000)]
    expected = [by_positions(Rotation(), q, k, ids) for ids in all_positions]
    report = apply_npu_rope(model, level="positions")
    for count, ids in enumerate(all_positions, 1):
        for got, wanted in zip(model(q, k, ids), expected[:count], strict=True):
            assert_same(got, wanted)
    assert uses_of(report) == ["by positions"]
    # Use cos of one call and sin of another.
    report = apply_npu_rope(module := Rotation(), level="positions")
    module.change = lambda cos, sin: (cos, module.rotary_emb(q, all_positions[1])[1])
    cos, sin = (
        tables_of_class(module.rotary_emb, q, all_positions[0])[0],
        tables_of_class(module.rotary_emb, q, all_positions[1])[1],
    )
    plain_rotation = rope_forms.replacement(rotary_of_heads, rope_forms.classify(rotary_of_heads))
    assert_same(module(q, k, all_positions[0]), plain_rotation(q, k, cos, sin))
    assert uses_of(report) == [NOT_MADE]


def tables_of_class(module, *given):
    return type(module).forward(module, *given)


def test_a_later_write_to_positions_has_no_effect():
    """A static cache adds to its positions in place."""
    (q, k), ids = heads(), torch.arange(5)[None]
    expected = by_positions(Rotation(), q, k, ids.clone())
    model = Rotation(lambda cos, sin: (ids.add_(3), (cos, sin))[1])
    report = apply_npu_rope(model, level="positions")
    assert_same(model(q, k, ids), expected)
    assert ids[0, 0] == 3
    assert uses_of(report) == ["by positions"]


def double_attention_scaling(rotary):
    rotary.attention_scaling = 2.0


CHANGES_OF_A_ROTARY_EMBEDDING = {
    "frequencies written": lambda rotary: rotary.inv_freq.mul_(1.5),
    "frequencies replaced": lambda rotary: rotary.register_buffer("inv_freq", rotary.inv_freq * 1.5),
    "rounded": lambda rotary: rotary.to(torch.bfloat16),
    "scaled": double_attention_scaling,
}


@pytest.mark.parametrize("is_copied", [False, True])
@pytest.mark.parametrize("change", CHANGES_OF_A_ROTARY_EMBEDDING)
def test_a_rotary_embedding_that_changes_after_the_patch_rotates_by_its_tables(change, is_copied):
    model, (q, k), ids = Rotation(), heads(), torch.arange(5)[None] * 7
    before = by_positions(model, q, k, ids)
    report = apply_npu_rope(model, level="positions")
    changed = copy.deepcopy(model) if is_copied else model
    CHANGES_OF_A_ROTARY_EMBEDDING[change](changed.rotary_emb)
    got = changed(q, k, ids)
    assert uses_of(report) == [NOT_MADE]
    cos, sin = tables_of_class(changed.rotary_emb, q, ids)
    assert_same(got, rotary_of_heads(q, k, cos, sin))
    assert not torch.equal(got[0], before[0])


def test_a_copied_or_moved_rotary_embedding_still_rotates_by_positions():
    model, (q, k), ids = Rotation(), heads(), torch.arange(5)[None] * 7
    expected = by_positions(model, q, k, ids)
    report = apply_npu_rope(model, level="positions")
    again = copy.deepcopy(model)
    model.rotary_emb.register_buffer("inv_freq", model.rotary_emb.inv_freq.clone())  # as .to() does
    for module in (model, again, model, again):
        assert_same(module(q, k, ids), expected)
    assert uses_of(report) == ["by positions"]


class LearnedRotaryEmbedding(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.inv_freq = torch.nn.Parameter(config.rope_parameters["rope_theta"] ** (-torch.arange(4) / 4))

    def forward(self, x, position_ids):
        angles = (position_ids[..., None] * self.inv_freq).repeat(1, 1, 2)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def test_learned_frequencies_keep_their_gradient():
    model, (q, k), ids = Rotation(), heads(), torch.arange(5)[None]
    model.rotary_emb = LearnedRotaryEmbedding(model.rotary_emb.config)
    report = apply_npu_rope(model, level="positions")
    model(q, k, ids)[0].sum().backward()
    assert model.rotary_emb.inv_freq.grad.abs().sum() > 0
    assert uses_of(report) == [NOT_MADE]
    with torch.no_grad():
        model(q, k, ids)
    assert uses_of(report) == [f"by positions, and {NOT_MADE}"]


def test_each_thread_rotates_by_its_own_positions():
    """Two models share functions, and threads share a model. Each thread has its own positions."""
    models, (q, k) = [Rotation(), Rotation()], heads(dtype=torch.bfloat16)
    all_positions = [torch.arange(5)[None] + 10_007 * n for n in range(8)]
    expected = [by_positions(models[0], q, k, ids) for ids in all_positions]
    reports = [apply_npu_rope(model, level="positions") for model in models]
    barrier, wrong = threading.Barrier(len(all_positions)), []

    def work(n):
        barrier.wait()
        for _ in range(50):
            got = models[n % 2](q, k, all_positions[n])
            if not all(map(torch.equal, got, expected[n])):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(all_positions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert [uses_of(report) for report in reports] == [["by positions"]] * 2


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradient_checkpointing_rotates_twice_by_the_same_positions(use_reentrant):
    model = make("llama").train()
    report = apply_npu_rope(model, level="positions")
    expected = gradients(model)
    model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    model.enable_input_require_grads()
    got = gradients(model)
    assert all(torch.equal(got[name], gradient) for name, gradient in expected.items())
    assert uses_of(report) == ["by positions"]


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation_with_a_cache_rotates_by_positions(cache):
    model = make("llama")
    options = {
        "max_new_tokens": 12,
        "do_sample": False,
        "cache_implementation": cache,
        "disable_compile": True,
    }
    expected = model.generate(tokens(), **options)
    report = apply_npu_rope(model, level="positions")
    assert torch.equal(model.generate(tokens(), **options), expected)
    assert uses_of(report) == ["by positions"]


def test_a_rotation_of_the_last_lanes_uses_the_tables(monkeypatch):
    def rotate_last_lanes(q, k, cos, sin):
        w = cos.shape[-1]
        return tuple(torch.cat((x[..., :-w], rotated(x[..., -w:], cos, sin)), -1) for x in (q, k))

    monkeypatch.setitem(globals(), "rotary_of_heads", rotate_last_lanes)
    model, (q, k), ids = Rotation(), heads(width=16), torch.arange(5)[None]
    expected = model(q, k, ids)
    report = apply_npu_rope(model, level="positions")
    assert_same(model(q, k, ids), expected)
    assert uses_of(report) == ["by tables: rope has no such rotation by the positions of these tables"]
