"""RopeParams.from_hf: results equal to those of the installed transformers; errors for bad configurations."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import os
import random
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from transformers import modeling_rope_utils
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from npu_rope import RopeMode, RopeParams, hf_params, rope
from npu_rope.hf_config import ROPE_TYPES

pytestmark = pytest.mark.peer

CONFIGURATIONS = 100  # of each type


def draw(kind: str, rng: random.Random):
    """Return a random configuration of a rope_type, and a seq_len."""
    head = rng.choice([32, 64, 80, 96, 128, 256])
    trained = rng.choice([512, 2048, 4096, 8192, 32768])
    entries = {"rope_type": kind, "rope_theta": rng.choice([10000.0, 500000.0, 1e6, 10 ** rng.uniform(2, 8)])}
    if rng.random() < 0.4:
        entries["partial_rotary_factor"] = rng.choice([0.25, 0.5, 0.75, 1.0])
    width = head if kind == "proportional" else int(head * entries.get("partial_rotary_factor", 1.0))
    if kind != "default":
        entries["factor"] = rng.choice([1.0, 2.0, 4.0, 8.0, 32.0, rng.uniform(1, 40)])
    if kind in ("yarn", "longrope", "llama3"):
        entries["original_max_position_embeddings"] = trained
    if kind == "yarn":
        if rng.random() < 0.5:
            entries["beta_fast"], entries["beta_slow"] = rng.uniform(8, 64), rng.uniform(0.5, 4)
        choice = rng.randrange(4)
        if choice == 1:
            entries["attention_factor"] = rng.uniform(0.5, 2)
        elif choice == 2:
            entries["mscale"], entries["mscale_all_dim"] = rng.uniform(0.5, 2), rng.uniform(0.5, 2)
        if rng.random() < 0.5:
            entries["truncate"] = rng.random() < 0.5
    if kind == "longrope":
        entries["short_factor"] = [rng.uniform(1, 2) for _ in range(width // 2)]
        entries["long_factor"] = [rng.uniform(1, 64) for _ in range(width // 2)]
        if rng.random() < 0.3:
            entries["attention_factor"] = rng.uniform(0.5, 2)
        if rng.random() < 0.3:
            del entries["factor"]
    if kind == "llama3":
        low_and_high = rng.choice([(1.0, 4.0), (0.5, 8.0), (2.0, 3.0)])
        entries["low_freq_factor"], entries["high_freq_factor"] = low_and_high
    longest = int(trained * rng.choice([1, 2, 16]))
    config = transformers.LlamaConfig(
        hidden_size=head * 2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=head,
        max_position_embeddings=longest,
        rope_parameters=entries,
    )
    return config, rng.choice([None, 1, trained, trained + 1, 3 * longest])


def results_of_transformers(config, seq_len):
    """Return transformers' inverse frequencies and attention factor."""
    kind = config.rope_parameters["rope_type"]
    if kind == "default":
        # Each model has its own class; Glm4's supports partial_rotary_factor.
        compute = transformers.models.glm4.modeling_glm4.Glm4RotaryEmbedding.compute_default_rope_parameters
        return compute(config)
    return ROPE_INIT_FUNCTIONS[kind](config, seq_len=seq_len)


class TorchInFloat64:
    """A torch whose float32 is float64, so that transformers' functions do not round to float32."""

    float = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def unrounded_results_of_transformers(config, seq_len, monkeypatch):
    kind = config.rope_parameters["rope_type"]
    module = modeling_rope_utils if kind != "default" else transformers.models.glm4.modeling_glm4
    with monkeypatch.context() as patched:
        patched.setattr(module, "torch", TorchInFloat64())
        return results_of_transformers(config, seq_len)


def worst_error(got, inverse) -> float:
    """Return the largest relative error. For a frequency of 0 it is the angle at position 2**31."""
    expected = np.asarray(inverse, np.float64)
    assert got.shape == expected.shape
    rotates = expected != 0
    angles = np.abs(got[~rotates]) * 2.0**31
    return max((np.abs(got[rotates] / expected[rotates] - 1)).max(), angles.max(initial=0))


@pytest.mark.parametrize("kind", ROPE_TYPES)
def test_frequencies_equal_those_of_transformers(kind, monkeypatch):
    rng = random.Random(f"from_hf {kind}")
    without_factors = 0
    for number in range(CONFIGURATIONS):
        config, seq_len = draw(kind, rng)
        ours = RopeParams.from_hf(config, seq_len=seq_len)
        exact, _ = unrounded_results_of_transformers(config, seq_len, monkeypatch)
        assert exact.dtype == torch.float64
        # longrope's exponents stay float32.
        limit = 1.2e-7 if kind != "longrope" else 1e-6
        assert worst_error(ours.frequencies(), exact) <= limit, (
            config.rope_parameters,
            seq_len,
            ours,
        )
        # transformers rounds at every step: the error is up to 4e-6 at the beginning of a ramp.
        inverse, attention = results_of_transformers(config, seq_len)
        rounding = worst_error(inverse.double().numpy(), exact)
        bound = max(1e-6, rounding + limit)
        assert worst_error(ours.frequencies(), inverse) <= bound, config.rope_parameters
        assert ours.params.mscale() == pytest.approx(attention, rel=1e-6), config.rope_parameters
        without_factors += ours.freq_factors is None
        if number % 10:
            continue
        # A saved and loaded configuration gives equal parameters.
        again = RopeParams.from_hf(json.loads(json.dumps(config.to_dict())), seq_len=seq_len)
        assert again.params == ours.params
        assert np.array_equal(again.frequencies(), ours.frequencies())
    least_share = {"default": 1.0, "linear": 1.0, "dynamic": 1.0, "yarn": 0.5}
    assert without_factors >= least_share.get(kind, 0) * CONFIGURATIONS


def test_older_files_give_the_same_parameters():
    new = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0}
    new |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    old = {name: value for name, value in new.items() if name != "rope_theta"}
    size = {"hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 131072}
    expected = RopeParams.from_hf({**size, "rope_parameters": new})
    for scaling in (old, {**old, "type": "llama3"}):
        got = RopeParams.from_hf({**size, "rope_theta": 500000.0, "rope_scaling": scaling})
        assert got.params == expected.params
        assert np.array_equal(got.freq_factors, expected.freq_factors)
    linear = {**size, "rope_theta": 10000, "rope_scaling": {"type": "linear", "factor": 4.0}}
    assert RopeParams.from_hf(linear).params == RopeParams(128, "neox", freq_scale=0.25)
    for more in ({"rope_theta": 1e4}, {"model_type": "llama"}):
        assert RopeParams.from_hf({**size, **more, "rope_scaling": None}).params == RopeParams(128, "neox")


def test_each_layer_type_has_its_own_parameters():
    config = transformers.Gemma3TextConfig()
    sliding = RopeParams.from_hf(config, "sliding_attention")
    full = RopeParams.from_hf(config, "full_attention")
    assert (sliding.params.freq_base, full.params.freq_base) == (10000, 1e6)
    with pytest.raises(
        ValueError, match="layer_type must be one of sliding_attention, full_attention"
    ) as caught:
        RopeParams.from_hf(config)
    assert str(caught.value).startswith("[rope] ")
    old = {"head_dim": 256, "rope_theta": 1e6, "rope_local_base_freq": 10000}
    old["rope_scaling"] = {"rope_type": "linear", "factor": 8.0}
    assert RopeParams.from_hf(old, "sliding_attention").params == RopeParams(256, "neox")
    assert RopeParams.from_hf(old, "full_attention").params == RopeParams(
        256, "neox", freq_base=1e6, freq_scale=1 / 8
    )
    without = {"head_dim": 64, "layer_types": ["full_attention", "sliding_attention"]}
    without["rope_parameters"] = {"full_attention": None, "sliding_attention": {"rope_theta": 1e4}}
    with pytest.raises(
        ValueError, match="layer_type must be one whose heads rotate but got 'full_attention'"
    ):
        RopeParams.from_hf(without, "full_attention")


def test_each_layer_type_has_its_own_head_size():
    config = transformers.Gemma4TextConfig()
    for kind in ("sliding_attention", "full_attention"):
        layer_config = config.per_layer_config[kind]
        ours = RopeParams.from_hf(config, kind)
        assert ours.params.n_dims == layer_config.head_dim
    inverse, _ = ROPE_INIT_FUNCTIONS["proportional"](config, layer_type="full_attention")
    assert worst_error(RopeParams.from_hf(config, "full_attention").frequencies(), inverse) <= 1e-6


def mode_of(config, *layer_type):
    return RopeParams.from_hf(config, *layer_type).params.rope_mode


def test_modes_and_sections_follow_from_the_model():
    assert mode_of(transformers.LlamaConfig()) is RopeMode.NEOX
    assert mode_of(transformers.CohereConfig()) is RopeMode.NORMAL
    glm = RopeParams.from_hf(transformers.Glm4Config())
    assert (glm.params.rope_mode, glm.params.n_dims) == (RopeMode.NORMAL, 64)
    neox = RopeParams.from_hf(transformers.GPTNeoXConfig())
    assert neox.params.n_dims == int(6144 // 64 * 0.25)
    deepseek = RopeParams.from_hf(transformers.DeepseekV3Config())
    assert (deepseek.params.rope_mode, deepseek.params.n_dims) == (RopeMode.NORMAL, 64)
    sections = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}
    vl = transformers.Qwen2VLTextConfig(head_dim=128, rope_parameters=dict(sections))
    assert RopeParams.from_hf(vl).params == RopeParams(128, "mrope", freq_base=1e6, sections=(16, 24, 24, 0))
    alternating = {**sections, "mrope_section": [24, 20, 20], "mrope_interleaved": True}
    vl = transformers.Qwen3VLConfig(text_config={"head_dim": 128, "rope_parameters": alternating})
    assert RopeParams.from_hf(vl).params.rope_mode is RopeMode.IMROPE
    for model, section in (("glm4v_text", [16, 24, 24]), ("hy_v4_vl_text", [12, 10, 10])):
        parameters = {**sections, "mrope_section": section}
        with pytest.raises(ValueError, match="mrope_section must belong to a model that pairs halves but"):
            RopeParams.from_hf({"model_type": model, "head_dim": 128, "rope_parameters": parameters})
    with pytest.raises(ValueError, match=r"^\[rope\] rope_parameters must have mrope_section for model_type"):
        RopeParams.from_hf(transformers.Glm4vTextConfig())


ALTERNATING_EMBEDDINGS = {
    "cohere_compass": "CohereCompassRotaryEmbedding",
    "cosmos3_edge": "Cosmos3EdgeTextRotaryEmbedding",
    "qwen3_5": "Qwen3_5TextRotaryEmbedding",
    "qwen3_5_moe": "Qwen3_5MoeTextRotaryEmbedding",
    "qwen3_omni_moe": "Qwen3OmniMoeThinkerTextRotaryEmbedding",
    "qwen3_vl": "Qwen3VLTextRotaryEmbedding",
    "qwen3_vl_moe": "Qwen3VLMoeTextRotaryEmbedding",
    "qwen4_exp": "Qwen4ExpTextRotaryEmbedding",
}


@pytest.mark.parametrize("model_type", ALTERNATING_EMBEDDINGS)
def test_alternating_sections_give_each_pair_the_axis_of_transformers(model_type):
    """With [time, height, width, time] as positions each pair rotates by the same axis as in transformers."""
    assert model_type.startswith(hf_params.ALTERNATING_SECTIONS)
    module = importlib.import_module(f"transformers.models.{model_type}.modeling_{model_type}")
    recomposed = getattr(module, ALTERNATING_EMBEDDINGS[model_type]).recomposition_frequencies
    layer_type = ("any",) if "layer_type" in inspect.signature(recomposed).parameters else ()
    rng, uncovered = random.Random(model_type), 0
    for _ in range(300):
        pairs = rng.randint(4, 64)
        first, second = sorted(rng.choices(range(pairs + 1), k=2))
        sections = rng.sample([first, second - first, rng.randint(0, pairs - second)], 3)
        if not any(sections):
            continue
        uncovered += sum(sections) < pairs
        axis_of_pair = torch.arange(3.0)[:, None, None, None].expand(3, 1, 1, pairs).clone()
        embedding = SimpleNamespace(mrope_section={"any": sections} if layer_type else sections)
        axes = recomposed(embedding, axis_of_pair, *layer_type)
        rope_parameters = {"rope_theta": 1e4, "mrope_section": sections, "mrope_interleaved": True}
        ours = RopeParams.from_hf({"head_dim": 2 * pairs, "rope_parameters": rope_parameters})
        assert ours.params.rope_mode is RopeMode.IMROPE
        assert (ours.params.axes() % 3).tolist() == axes[0, 0, :pairs].tolist(), sections
    assert uncovered > 100


def test_alternating_sections_that_do_not_cover_all_pairs_rotate_as_in_transformers():
    rope_parameters = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 3, 2]}
    config = transformers.Qwen3VLTextConfig(head_dim=32, rope_parameters=rope_parameters)
    module = transformers.models.qwen3_vl.modeling_qwen3_vl
    x, positions = torch.randn(1, 2, 9, 32), torch.randint(0, 50, (3, 1, 9))
    cos, sin = module.Qwen3VLTextRotaryEmbedding(config)(x, positions)
    expected, _ = module.apply_rotary_pos_emb(x, x, cos, sin)
    params, _ = RopeParams.from_hf(config)
    got = rope(x.transpose(1, 2), torch.cat((positions, positions[:1])), params)
    assert params.sections == (4, 3, 2, 7)
    assert (got.transpose(1, 2) - expected).abs().max() <= 1e-5


def test_a_file_gives_the_parameters_of_its_class(tmp_path):
    """These classes have their own names for the head size."""
    for name, layer_type in (
        ("Mistral4Config", None),
        ("JetMoeConfig", None),
        ("Zamba2Config", None),
        ("Gemma4TextConfig", "full_attention"),
    ):
        config = getattr(transformers, name)()
        config.save_pretrained(tmp_path)
        expected, got = (RopeParams.from_hf(c, layer_type) for c in (config, tmp_path))
        assert got.params == expected.params, name


def test_a_file_and_its_folder_are_both_accepted(tmp_path):
    config = transformers.LlamaConfig(rope_parameters={"rope_type": "default", "rope_theta": 7e5})
    config.save_pretrained(tmp_path)
    expected = RopeParams(128, "neox", freq_base=7e5)
    for path in (tmp_path, tmp_path / "config.json", str(tmp_path)):
        assert RopeParams.from_hf(path).params == expected


def test_rope_with_the_parameters_equals_transformers():
    config = transformers.LlamaConfig(
        hidden_size=256,
        num_attention_heads=4,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    )
    x = torch.randn(1, 9, 4, 64)
    embedding = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config)
    cos, sin = embedding(x, torch.arange(9)[None])
    expected, _ = transformers.models.llama.modeling_llama.apply_rotary_pos_emb(
        x, x, cos, sin, unsqueeze_dim=2
    )
    model = RopeParams.from_hf(config)
    got = rope(x, torch.arange(9), model.params, torch.from_numpy(model.freq_factors))
    assert (got - expected).abs().max() <= 2e-6


BAD = {
    "rope_type must be one of default, linear, dynamic, yarn, longrope, llama3, proportional but got 'x'.": {
        "rope_parameters": {"rope_type": "x"}
    },
    "rope_parameters must have factor for rope_type linear but got": {
        "rope_parameters": {"rope_type": "linear"}
    },
    "factor must be positive and finite but got -2.": {
        "rope_parameters": {"rope_type": "linear", "factor": -2.0}
    },
    "factor must be a number but got '4'.": {"rope_parameters": {"rope_type": "linear", "factor": "4"}},
    "rope_theta must be positive and finite but got nan.": {"rope_theta": math.nan},
    "rope_parameters must be a dict but got list.": {"rope_parameters": []},
    "head_dim must be a positive integer but got -1.": {"head_dim": -1},
    "n_dims must be a positive even number but got 63.": {"head_dim": 63},
    "max_position_embeddings must be a positive integer but got None.": {
        "rope_parameters": {"rope_type": "dynamic", "factor": 2.0}
    },
    "short_factor must have a number for each of 32 pairs but got (3,).": {
        "max_position_embeddings": 99,
        "rope_parameters": {"rope_type": "longrope", "short_factor": [1.0, 1, 1], "factor": 2.0},
    },
    "mrope_section must add up to at most 32 pairs but got [30, 30, 30].": {
        "rope_parameters": {"mrope_section": [30, 30, 30]}
    },
    "partial_rotary_factor must be at most 1 but got 2.": {"partial_rotary_factor": 2.0},
    "mrope_section must be up to four integers but got 7.": {"rope_parameters": {"mrope_section": 7}},
    "rope_parameters must give each pair a frequency whose factor fits float32 but got 6.22772e-43": {
        "max_position_embeddings": 8192,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 1e39,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
        },
    },
}


@pytest.mark.parametrize("message", BAD)
def test_a_bad_configuration_is_refused_with_the_reason(message):
    with pytest.raises((ValueError, TypeError)) as caught:
        RopeParams.from_hf({"head_dim": 64, "rope_theta": 1e4, **BAD[message]})
    assert str(caught.value).startswith(f"[rope] {message}")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rope_theta": {"full_attention": 5e5}}, "rope_theta must not be a dict but got one."),
        ({"rope_theta": {}}, "rope_theta must not be a dict but got one."),
        ({"partial_rotary_factor": {"a": 0.5}}, "partial_rotary_factor must not be a dict but got one."),
        ({"rope_parameters": {"factor": {}}}, "factor must not be a dict but got one."),
        ({"rope_scaling": 0}, "rope_scaling must be a dict but got int."),
        ({"rope_scaling": []}, "rope_scaling must be a dict but got list."),
        ({"text_config": {"model_type": "llama", "rope_scaling": ""}}, "rope_scaling must be a dict but got"),
    ],
    ids=str,
)
def test_an_entry_of_another_kind_in_a_model_of_transformers_is_not_replaced_by_a_default(values, message):
    config = {"model_type": "llama", "head_dim": 64, "hidden_size": 128, "num_attention_heads": 2, **values}
    with pytest.raises(TypeError, match=rf"^\[rope\] {re.escape(message)}"):
        RopeParams.from_hf(config)


def test_an_error_of_transformers_is_quoted_on_one_line():
    for values, reason in (
        ({"hidden_size": "x"}, "Field 'hidden_size' expected int, got str (value: 'x')"),
        (
            {"hidden_size": 100},
            "The hidden size (100) is not a multiple of the number of attention heads (32)",
        ),
    ):
        with pytest.raises(ValueError, match=r"^\[rope\] config must be one that transformers can") as caught:
            RopeParams.from_hf({"model_type": "llama", **values})
        assert reason in str(caught.value)
        assert "\n" not in str(caught.value)


def test_bad_arguments_are_refused(tmp_path):
    with pytest.raises(TypeError, match=r"^\[rope\] config must be a configuration, a dict or a path"):
        RopeParams.from_hf(None)
    with pytest.raises(ValueError, match=r"^\[rope\] config must be a readable file but got .*No such file"):
        RopeParams.from_hf(tmp_path / "none.json")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"^\[rope\] config must be a JSON file but got"):
        RopeParams.from_hf(tmp_path)
    with pytest.raises(ValueError, match=r"^\[rope\] config must have head_dim, or hidden_size and"):
        RopeParams.from_hf({"rope_theta": 1e4})
    with pytest.raises(
        ValueError,
        match=r"^\[rope\] config must have rope_parameters, or rope_theta, but got neither in .* gpt2",
    ):
        RopeParams.from_hf(transformers.GPT2Config())
    with pytest.raises(ValueError, match=r"^\[rope\] layer_type must be None for this config but got 'x'\."):
        RopeParams.from_hf({"head_dim": 64, "rope_theta": 1e4}, "x")
    with pytest.raises(ValueError, match=r"^\[rope\] layer_type must be one of full_attention but got 'x'\."):
        RopeParams.from_hf(transformers.Qwen3Config(), "x")
    for seq_len in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match=r"^\[rope\] seq_len must be a positive number of tokens"):
            RopeParams.from_hf({"head_dim": 64, "rope_theta": 1e4}, seq_len=seq_len)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"head_dim": 2**31 - 2}, "head_dim must be at most 65536 but got 2147483646."),
        ({"rotary_dim": "4"}, "rotary_dim must be an integer from 2 to head_dim 16 but got '4'."),
        ({"rotary_dim": 18}, "rotary_dim must be an integer from 2 to head_dim 16 but got 18."),
        ({"rope_theta": 10**400}, "config must have rope entries of valid types and sizes but got "),
        (
            {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": ["a", 3, 3]}},
            "config must have rope entries of valid types and sizes but got ",
        ),
        (
            {"max_position_embeddings": 64, "rope_parameters": {"rope_type": "yarn", "beta_fast": 1e308}},
            "config must have rope entries of valid types and sizes but got math domain error.",
        ),
    ],
    ids=["head", "width", "more width", "theta", "sections", "ramp"],
)
def test_values_of_a_wrong_kind_or_size_are_refused(changed, text):
    with pytest.raises(ValueError, match=r"^\[rope\]") as caught:
        RopeParams.from_hf({"head_dim": 16, "rope_theta": 10000.0, **changed})
    assert str(caught.value).startswith(f"[rope] {text}")


def test_a_named_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(ValueError, match=r"config must be a readable file but got .* \(it is no file\)\."):
        RopeParams.from_hf(tmp_path)


def test_a_path_with_a_null_byte_and_bytes_are_refused():
    with pytest.raises(ValueError, match=r"^\[rope\] config must be a readable file but got 'x\\x00y'\.$"):
        RopeParams.from_hf("x\0y")
    with pytest.raises(TypeError, match=r"^\[rope\] config must be a path, a dict or a .* but got bytes\."):
        RopeParams.from_hf(b"/x")


def test_a_file_of_nested_brackets_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"^\[rope\] config must be a JSON file but got"):
        RopeParams.from_hf(tmp_path)


@pytest.mark.parametrize("kind", ["hunyuan_v1_dense", "hunyuan_v1_moe", "no class"])
def test_a_fixed_alpha_replaces_the_length_of_the_sequence(kind):
    """The released files of Hunyuan have an alpha."""
    scaling = {"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "beta_fast": 32, "beta_slow": 1}
    sizes = {"hidden_size": 256, "num_attention_heads": 2, "head_dim": 128, "max_position_embeddings": 32768}
    config = {**sizes, "rope_theta": 10000.0, "rope_scaling": scaling}
    module = importlib.import_module("transformers.models.hunyuan_v1_dense.modeling_hunyuan_v1_dense")
    embedding = module.HunYuanDenseV1RotaryEmbedding(
        transformers.HunYuanDenseV1Config.from_dict(dict(config))
    )
    if kind != "no class":
        config["model_type"] = kind
    llama = {**config, "model_type": "llama"}  # its code does not use alpha
    assert RopeParams.from_hf(llama).params.freq_base == 10000
    for seq_len in (None, 40000):
        ours = RopeParams.from_hf(config, seq_len=seq_len).frequencies()
        assert np.abs(embedding.inv_freq.double().numpy() / ours - 1).max() <= 1e-6


@pytest.mark.parametrize(
    ("config", "width"),
    [
        (transformers.GPTJConfig(n_embd=368, n_head=4, rotary_dim=26), 26),
        (transformers.GPTJConfig(n_embd=352, n_head=4, rotary_dim=30), 30),
        (transformers.CodeGenConfig(n_embd=256, n_head=4, rotary_dim=32), 32),
        ({"model_type": "minimax_m2", "head_dim": 128, "rotary_dim": 64}, 64),
        ({"model_type": "minimax_m3_vl_text"}, 128),
        ({"model_type": "minimax", "head_dim": 128, "rotary_dim": 64}, 128),
        ({"model_type": "llama", "head_dim": 128, "rotary_dim": 64}, 128),
        ({"head_dim": 128, "rotary_dim": 64, "rope_theta": 1e4}, 64),  # from unknown code
    ],
)
def test_rotary_dim_is_used_only_where_the_models_code_uses_it(config, width):
    assert RopeParams.from_hf(config).params.n_dims == width


@pytest.mark.parametrize("kind", ["dinov3_vit", "eomt_dinov3", "llama4_vision_model"])
def test_models_that_rotate_by_rows_and_columns_are_refused(kind):
    config = transformers.CONFIG_MAPPING[kind]()
    with pytest.raises(
        ValueError, match=r"^\[rope\] model_type must rotate by a token's position in a sequence but got "
    ):
        RopeParams.from_hf(config)


def test_a_context_of_hundreds_of_digits_is_no_context():
    config = {"head_dim": 64, "rope_theta": 1e4, "max_position_embeddings": 10**400}
    assert hf_params.model_info(config).context is None
    with pytest.raises(ValueError, match=r"^\[rope\] max_position_embeddings must be a positive integer"):
        RopeParams.from_hf({**config, "rope_scaling": {"type": "dynamic", "factor": 2.0}})
    with pytest.raises(ValueError, match=r"^\[rope\] config must have rope entries of valid types and sizes"):
        hf_params.model_info({**config, "rope_theta": 10**400})


# ---- hostile files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_type", ["qwen2", "mamba", "olmo_hybrid"])
@pytest.mark.parametrize(
    "entry",
    [
        {"num_hidden_layers": 10**10},
        {"num_hidden_layers": 1e10},
        {"n_layer": 10**10},
        {"num_labels": 10**10},
        {"text_config": {"num_hidden_layers": 10**10}},
        {"out_indices": [1, 10**10]},
        {"attention_types": [[["global", "local"], 10**10]]},
    ],
    ids=str,
)
def test_a_count_that_would_make_endless_lists_is_refused(tmp_path, model_type, entry):
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": model_type, "head_dim": 64, "rope_theta": 1e4} | entry)
    )
    with pytest.raises(ValueError, match=r"^\[rope\] \w+ must be at most 65536 but got 10000000000(\.0)?\.$"):
        RopeParams.from_hf(tmp_path)


def test_a_configuration_with_many_types_of_layers_is_refused():
    ropes = {f"type_{i}": {"rope_theta": 10000.0} for i in range(65)}
    with pytest.raises(
        ValueError, match=r"^\[rope\] rope_parameters must be for at most 64 types .* got 65\.$"
    ):
        hf_params.layer_types({"model_type": "x", "head_dim": 64, "rope_parameters": ropes})


def test_a_configuration_without_an_end_is_refused(tmp_path):
    with open(tmp_path / "config.json", "wb") as stream:
        stream.truncate(1 << 40)  # no data: the file has holes
    with pytest.raises(ValueError, match=r"^\[rope\] config must have at most 4194304 bytes but got "):
        RopeParams.from_hf(tmp_path)
