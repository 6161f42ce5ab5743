"""RopeParams.from_gguf on files with the metadata of real models, and on damaged and large files."""

from __future__ import annotations

import contextlib
import math
import os
import random
import re
import struct
import time
import tracemalloc

import gguf
import numpy as np
import pytest
import torch
import transformers
from gguf_files import LLAMA, write
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from npu_rope import RopeMode, RopeParams, gguf_params, rope
from npu_rope.gguf_header import GgufHeader


@pytest.fixture
def gguf_file(tmp_path):
    return lambda *a, **k: write(tmp_path / "model.gguf", *a, **k)


def test_the_factors_of_llama_3_1_are_read(gguf_file):
    """The factors are computed as in the converter. It permutes the weights, so the mode is normal."""
    config = transformers.LlamaConfig(
        hidden_size=4096,
        num_attention_heads=32,
        max_position_embeddings=131072,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    )
    inverse, _ = ROPE_INIT_FUNCTIONS["llama3"](config)
    factors = (500000.0 ** (-np.arange(64) / 64) / inverse.double().numpy()).astype(np.float32)
    model = RopeParams.from_gguf(gguf_file("llama", LLAMA, {"rope_freqs.weight": factors}))
    assert model.params == RopeParams(128, "normal", n_ctx_orig=131072, freq_base=500000.0)
    assert np.array_equal(model.freq_factors, factors)
    from_config = RopeParams.from_hf(config)
    assert np.abs(model.frequencies() / from_config.frequencies() - 1).max() <= 1e-6
    assert from_config.params.rope_mode is RopeMode.NEOX  # transformers' weights are not permuted
    rope(torch.randn(1, 3, 2, 128), torch.arange(3), model.params, torch.from_numpy(model.freq_factors))


def test_yarn_scales_cos_and_sin_as_transformers_does(gguf_file):
    """For Qwen, ggml multiplies by 1 + 0.1 ln(factor), which is also transformers' attention factor."""
    values = {**LLAMA, "rope.freq_base": 1e6, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
    values["rope.scaling.original_context_length"] = 32768
    model = RopeParams.from_gguf(gguf_file("qwen2", values))
    entries = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0}
    entries["original_max_position_embeddings"] = 32768
    config = {"head_dim": 128, "max_position_embeddings": 131072, "rope_parameters": entries}
    expected = RopeParams.from_hf(config)
    assert model.freq_factors is None
    assert np.allclose(model.frequencies(), expected.frequencies(), rtol=1e-6)
    assert model.params.mscale() == pytest.approx(0.1 * math.log(4) + 1, rel=1e-6)
    assert model.params.rope_mode is RopeMode.NEOX


def test_deepseek_s_multipliers_cancel(gguf_file):
    """DeepSeek has equal mscale and mscale_all_dim, which scale cos and sin by 1."""
    values = {
        **LLAMA,
        "rope.dimension_count": 64,
        "rope.freq_base": 10000.0,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 40.0,
        "rope.scaling.original_context_length": 4096,
        "rope.scaling.yarn_log_multiplier": 0.0707,
    }
    assert RopeParams.from_gguf(gguf_file("deepseek2", values)).params.mscale() == pytest.approx(1, rel=1e-6)
    # For every other architecture the converter's mscale is taken as 1.
    log = 0.1 * math.log(40)
    mscale = RopeParams.from_gguf(gguf_file("mistral3", values)).params.mscale()
    assert mscale == pytest.approx((1 + log) / (1 + 0.0707 * log), rel=1e-6)


@pytest.mark.parametrize("architecture", ["deepseek2-ocr", "deepseek32", "glm-dsa", "mistral4"])
def test_a_tenth_of_mscale_all_dim_in_the_file_is_multiplied_by_ten(gguf_file, architecture):
    """These converters write mscale_all_dim / 10. Their mscale is 1, so cos and sin are scaled by a ratio."""
    values = {**LLAMA, "rope.scaling.type": "yarn", "rope.scaling.factor": 40.0}
    log = 0.1 * math.log(40)
    for all_dims in (0.707, 1.0):
        values["rope.scaling.yarn_log_multiplier"] = all_dims / 10
        got = RopeParams.from_gguf(gguf_file(architecture, values)).params.mscale()
        assert got == pytest.approx((1 + log) / (1 + all_dims * log), rel=1e-6)
        # For other architectures the file's multiplier is used unchanged.
        values["rope.scaling.yarn_log_multiplier"] = all_dims
        unscaled = RopeParams.from_gguf(gguf_file("mistral3", values)).params.mscale()
        assert unscaled == pytest.approx(got, rel=1e-6)


def test_phi_3_chooses_its_factors_by_the_length_of_the_session(gguf_file):
    short, long = np.linspace(1, 2, 48, dtype=np.float32), np.linspace(1, 60, 48, dtype=np.float32)
    values = {
        **LLAMA,
        "rope.dimension_count": 96,
        "rope.freq_base": 10000.0,
        "rope.scaling.attn_factor": 1.19,
    }
    values["rope.scaling.original_context_length"] = 4096
    path = gguf_file("phi3", values, {"rope_factors_long.weight": long, "rope_factors_short.weight": short})
    for n_ctx, expected in ((4096, short), (4097, long), (None, long), (1, short)):
        model = RopeParams.from_gguf(path, n_ctx=n_ctx)
        assert np.array_equal(model.freq_factors, expected)
        assert model.params.mscale() == pytest.approx(1.19, rel=1e-6)
    entries = {"rope_type": "longrope", "short_factor": short.tolist(), "long_factor": long.tolist()}
    config = {
        "head_dim": 96,
        "max_position_embeddings": 131072,
        "original_max_position_embeddings": 4096,
        "rope_scaling": entries,
    }
    from_config = RopeParams.from_hf(config, seq_len=5000)
    assert np.allclose(RopeParams.from_gguf(path).frequencies(), from_config.frequencies(), rtol=1e-6)
    assert from_config.params.mscale() == pytest.approx(
        math.sqrt(1 + math.log(32) / math.log(4096)), rel=1e-6
    )


def test_gemma_3_has_another_base_for_layers_with_windows(gguf_file):
    values = {
        **LLAMA,
        "rope.dimension_count": 256,
        "rope.freq_base": 1e6,
        "rope.scaling.type": "linear",
        "rope.scaling.factor": 8.0,
        "attention.sliding_window": 1024,
    }
    path = gguf_file("gemma3", values)
    full = RopeParams(256, "neox", n_ctx_orig=131072, freq_base=1e6, freq_scale=1 / 8)
    window = RopeParams(256, "neox", n_ctx_orig=131072)
    for layer in range(32):
        expected = full if layer % 6 == 5 else window
        assert RopeParams.from_gguf(path, layer=layer).params == expected
    assert RopeParams.from_gguf(path).params == full
    # An entry in the file takes precedence over the architecture's default.
    pattern = [layer % 4 != 0 for layer in range(32)]
    with_pattern = {
        **values,
        "rope.freq_base_swa": 5000.0,
        "attention.sliding_window_pattern": pattern,
    }
    path = gguf_file("gemma3", with_pattern)
    assert RopeParams.from_gguf(path, layer=0).params == full
    assert RopeParams.from_gguf(path, layer=3).params.freq_base == 5000
    with pytest.raises(ValueError, match=r"^\[rope\] layer must be in \[0, 31\] but got 32\."):
        RopeParams.from_gguf(path, layer=32)


def test_layers_with_windows_and_their_own_theta_may_be_scaled_as_the_others(gguf_file):
    values = {
        **LLAMA,
        "rope.dimension_count": 64,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 32.0,
        "rope.scaling.original_context_length": 4096,
        "attention.sliding_window": 128,
        "rope.freq_base_swa": 12345.0,
    }
    path = gguf_file("gpt-oss", values)
    window, full = (RopeParams.from_gguf(path, layer=layer).params for layer in (0, 1))
    assert (window.freq_base, full.freq_base) == (12345, 500000)
    assert window.__getstate__() == {**full.__getstate__(), "freq_base": 12345}
    assert full.ext_factor == 1
    assert full.freq_scale == 1 / 32


WINDOW = {"attention.sliding_window": 4096}
EVERY_FOURTH, EVERY_FIRST_OF_FOUR = list(range(3, 32, 4)), list(range(0, 32, 4))
# Layers that llama.cpp's graphs do not rotate, by the architecture and the entries of the file.
WITHOUT_ROPE = [
    ("cohere2", WINDOW, EVERY_FOURTH),
    ("cohere2", {**WINDOW, "attention.sliding_window_pattern": 2}, list(range(1, 32, 2))),
    ("cohere2moe", {**WINDOW, "leading_dense_block_count": 0}, EVERY_FIRST_OF_FOUR),
    ("cohere2moe", {**WINDOW, "leading_dense_block_count": 1}, EVERY_FIRST_OF_FOUR[1:]),
    ("exaone4", {}, []),  # the model of 1.2 billion parameters
    ("exaone4", WINDOW, []),
    ("exaone4", {"block_count": 64}, list(range(3, 64, 4))),
    ("exaone-moe", WINDOW, EVERY_FOURTH),
    ("smollm3", {}, EVERY_FOURTH),
    ("afmoe", WINDOW, EVERY_FOURTH),
    ("llama4", {}, EVERY_FOURTH),
    ("llama4", {"attention.sliding_window": 0}, [31]),  # llama.cpp's code has (layer + 1) % layers
    ("smallthinker", {}, []),
    ("smallthinker", WINDOW, EVERY_FIRST_OF_FOUR),
    ("smallthinker", {**WINDOW, "block_count": 4}, []),
    ("granite", {}, []),
    ("granite", {"rope.scaling.finetuned": True}, []),
    ("granite", {"rope.scaling.finetuned": False}, list(range(32))),
    ("llama", {"rope.scaling.finetuned": False}, []),
    ("baichuan", {}, []),
    ("baichuan", {"block_count": 40}, list(range(40))),  # the model of 13 billion parameters has ALiBi
    # Layers without attention heads.
    ("lfm2", {"attention.head_count_kv": [0, 0, 8, 8], "block_count": 4}, [0, 1]),
    ("deci", {"attention.head_count": [32, 0, 32, 32], "block_count": 4}, [1]),
    ("qwen3next", {"block_count": 6, "full_attention_interval": 3}, [0, 1, 3, 4]),
    ("qwen3next", {"block_count": 6, "nextn_predict_layers": 1}, [0, 1, 2, 4]),
    ("qwen3next", {"block_count": 4, "attention.recurrent_layers": [True, False, True, False]}, [0, 2]),
]


@pytest.mark.parametrize(("architecture", "values", "unrotated"), WITHOUT_ROPE)
def test_layers_that_llama_cpp_does_not_rotate_are_refused(gguf_file, architecture, values, unrotated):
    path = gguf_file(architecture, {**LLAMA, **values})
    layers, refused = {**LLAMA, **values}["block_count"], []
    for layer in range(layers):
        try:
            RopeParams.from_gguf(path, layer=layer)
        except ValueError as error:
            assert str(error) == f"[rope] layer must be one whose heads rotate but got {layer}."  # noqa: PT017
            refused.append(layer)
    assert refused == unrotated
    if len(unrotated) < layers:  # without a layer, the parameters are those of a layer that rotates
        assert RopeParams.from_gguf(path).params.freq_base == 500000
        return
    with pytest.raises(ValueError, match=r"must have a layer whose heads rotate but got none\.$"):
        RopeParams.from_gguf(path)


def test_without_a_layer_the_parameters_are_those_of_a_layer_that_rotates(gguf_file):
    """If only layers with windows rotate, the parameters are theirs."""
    values = {**LLAMA, **WINDOW, "rope.freq_base_swa": 7.0}
    assert RopeParams.from_gguf(gguf_file("llama4", values)).params.freq_base == 7
    dense_first = {**values, "leading_dense_block_count": 1}
    assert RopeParams.from_gguf(gguf_file("cohere2moe", dense_first)).params.freq_base == 500000


def test_a_bad_number_of_layers_is_refused(gguf_file):
    with pytest.raises(
        ValueError, match=r"^\[rope\] block_count must be at most 4096 in .* but got 4000000000"
    ):
        RopeParams.from_gguf(gguf_file("smollm3", {**LLAMA, "block_count": 4000000000}))
    short = {**LLAMA, "attention.head_count": [32] * 31, "rope.dimension_count": 128}
    with pytest.raises(
        ValueError, match=r"llama.attention.head_count must have a value for layer 31 but got"
    ):
        RopeParams.from_gguf(gguf_file("llama", short))
    with pytest.raises(ValueError, match=r"^\[rope\] layer must be in \[0, 31\] but got 32\."):
        RopeParams.from_gguf(gguf_file("llama", LLAMA), layer=32)


def test_sections_and_their_modes_follow_from_the_architecture(gguf_file):
    values = {**LLAMA, "rope.dimension_sections": [16, 24, 24, 0]}
    assert RopeParams.from_gguf(gguf_file("qwen2vl", values)).params.rope_mode is RopeMode.MROPE
    for architecture, mode in (("qwen3vl", RopeMode.IMROPE), ("glm4", RopeMode.MROPE)):
        params = RopeParams.from_gguf(gguf_file(architecture, values)).params
        assert (params.rope_mode, params.sections) == (mode, (16, 24, 24, 0))
    assert RopeParams.from_gguf(gguf_file("glm4", LLAMA)).params.rope_mode is RopeMode.NORMAL


def test_every_architecture_is_in_one_group(gguf_file):
    groups = [
        gguf_params.NORMAL_ARCHITECTURES,
        gguf_params.NEOX_ARCHITECTURES,
        gguf_params.MROPE_ARCHITECTURES,
        gguf_params.IMROPE_ARCHITECTURES,
        frozenset(gguf_params.MODE_WITHOUT_SECTIONS),
        gguf_params.ARCHITECTURES_WITHOUT_ROPE,
    ]
    assert sum(map(len, groups)) == len(frozenset().union(*groups))
    known = set(gguf.MODEL_ARCH_NAMES.values())
    placed = frozenset().union(*groups)
    # A newer gguf may have up to 20 architectures that no group has.
    assert len(known - placed) <= 20, sorted(known - placed)
    for name in ("bloom", "mamba", "bert", "starcoder"):
        with pytest.raises(ValueError, match=f"general.architecture must be one with rope but got '{name}'"):
            RopeParams.from_gguf(gguf_file(name, LLAMA))
    with pytest.raises(ValueError, match=r"architecture must be one whose pairs are known but got 'new'"):
        RopeParams.from_gguf(gguf_file("new", LLAMA))


def test_older_and_shorter_files_are_read(gguf_file):
    """rope.scale_linear is an older name; the head size follows from embedding_length."""
    values = {name: value for name, value in LLAMA.items() if not name.startswith("rope.")}
    params = RopeParams.from_gguf(gguf_file("llama", {**values, "rope.scale_linear": 4.0})).params
    assert params == RopeParams(128, "normal", n_ctx_orig=131072, freq_scale=0.25)
    with pytest.raises(ValueError, match=r"must have rope.dimension_count, or embedding_length and"):
        RopeParams.from_gguf(gguf_file("llama", {}))
    unscaled = {**LLAMA, "rope.scaling.type": "none", "rope.scaling.factor": 4.0}
    assert RopeParams.from_gguf(gguf_file("llama", unscaled)).params.freq_scale == 1


BAD = {
    "llama.rope.freq_base must be a finite number": {"rope.freq_base": math.nan},
    "rope.scaling.type must be none, linear, yarn or longrope but got 'x'.": {"rope.scaling.type": "x"},
    "rope.scaling.factor must not be negative but got -2.": {"rope.scaling.factor": -2.0},
    "freq_base must be positive and finite but got -1.": {"rope.freq_base": -1.0},
    "n_dims must be a positive even number but got 7.": {"rope.dimension_count": 7},
    "llama.rope.dimension_count must be a positive integer": {"rope.dimension_count": "x"},
    "rope.dimension_sections must be up to four integers": {"rope.dimension_sections": [1, 2, 3, 4, 5]},
}


@pytest.mark.parametrize("message", BAD)
def test_a_bad_value_is_named(gguf_file, message):
    architecture = "qwen2vl" if "sections" in message else "llama"
    with pytest.raises(ValueError, match=r"^\[rope\] ") as caught:
        RopeParams.from_gguf(gguf_file(architecture, {**LLAMA, **BAD[message]}))
    assert str(caught.value).startswith(f"[rope] {message}")


def test_an_alpha_that_makes_theta_infinite_is_refused(tmp_path):
    alpha = text("hunyuan-dense.rope.scaling.alpha") + struct.pack("<Id", 12, 1e300)
    width = text("hunyuan-dense.rope.dimension_count") + struct.pack("<II", 4, 4)
    content = header_bytes([alpha, width]).replace(text("llama"), text("hunyuan-dense"))
    (tmp_path / "model.gguf").write_bytes(content)
    with pytest.raises(ValueError, match=r"^\[rope\] freq_base must be positive and finite but got inf\."):
        RopeParams.from_gguf(tmp_path / "model.gguf")


def test_bad_factors_are_refused(gguf_file):
    for factors, message in (
        (np.ones(3, np.float32), "rope_freqs.weight must have a factor for each of 64 pairs but got (3,)."),
        (
            np.full(64, -1, np.float32),
            "rope_freqs.weight must be positive and finite numbers but got others.",
        ),
        (np.ones(64, np.float16), "path must be a GGUF file that can be read but got"),
    ):
        with pytest.raises(ValueError, match=r"^\[rope\] ") as caught:
            RopeParams.from_gguf(gguf_file("llama", LLAMA, {"rope_freqs.weight": factors}))
        assert str(caught.value).startswith(f"[rope] {message}")


def test_heads_that_are_too_large_are_refused(tmp_path):
    path = write(tmp_path / "wide.gguf", "llama", LLAMA | {"rope.dimension_count": 2**31 - 2})
    with pytest.raises(ValueError, match=r"must have heads of at most 65536 lanes but got 2147483646\."):
        RopeParams.from_gguf(path)


def test_bad_arguments_are_refused(tmp_path, gguf_file):
    path = gguf_file("llama", LLAMA)
    for named in ({"layer": -1}, {"layer": 1.5}, {"n_ctx": 0}, {"n_ctx": True}):
        with pytest.raises(ValueError, match=r"^\[rope\] (layer|n_ctx) must be None or an integer from"):
            RopeParams.from_gguf(path, **named)
    with pytest.raises(TypeError, match=r"^\[rope\] path must be a file's name but got NoneType"):
        RopeParams.from_gguf(None)
    for bad, why in ((tmp_path / "none", "No such file or directory"), (tmp_path, "it is no file")):
        text = f"[rope] path must be a readable GGUF file but got {bad} ({why})."
        with pytest.raises(ValueError, match=re.escape(text)):
            RopeParams.from_gguf(bad)


# ---- damage ------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_file_truncated_at_any_length_is_refused(tmp_path, gguf_file):
    content = gguf_file("llama", LLAMA, {"rope_freqs.weight": np.ones(64, np.float32)}).read_bytes()
    assert RopeParams.from_gguf(tmp_path / "model.gguf").freq_factors is not None
    cut = tmp_path / "cut.gguf"
    for length in range(len(content)):
        cut.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"^\[rope\] path must be a GGUF file that can be read but got"):
            RopeParams.from_gguf(cut)


@pytest.mark.long
def test_damaged_files_raise_only_documented_errors(tmp_path, gguf_file):
    """A thousand files with wrong bytes in up to four places raise only ValueError or TypeError."""
    content = gguf_file("qwen2vl", {**LLAMA, "rope.dimension_sections": [16, 24, 24, 0]}).read_bytes()
    rng, refused = random.Random(0), []
    for _ in range(1000):
        damaged = bytearray(content)
        for _ in range(rng.randint(1, 4)):
            at, width = rng.randrange(len(content)), rng.choice([1, 4, 8])
            damaged[at : at + width] = rng.choice([rng.randbytes(width), b"\xff" * width, b"\0" * width])
        (tmp_path / "damaged.gguf").write_bytes(damaged)
        try:
            RopeParams.from_gguf(tmp_path / "damaged.gguf")
        except (ValueError, TypeError) as caught:
            refused.append(str(caught))
    assert len(refused) > 200
    assert all(message.startswith("[rope] ") for message in refused)


# ---- size --------------------------------------------------------------------------------------------


def text(value: str) -> bytes:
    """Return a string as GGUF stores it."""
    return struct.pack("<Q", len(value)) + value.encode()


def header_bytes(keys=(), tensors=(), n_keys=None, n_tensors=None) -> bytes:
    """Return the header of a file with these keys and tensors. It may claim other numbers of them."""
    numbers = n_tensors or len(tensors), n_keys or len(keys) + 2
    architecture = text("general.architecture") + struct.pack("<I", 8) + text("llama")
    width = text("llama.rope.dimension_count") + struct.pack("<II", 4, 128)
    return b"".join((struct.pack("<4sIQQ", b"GGUF", 3, *numbers), architecture, width, *keys, *tensors))


def string_list(key: str, count: int, body: bytes = b"") -> bytes:
    """Return a key whose value is a list of ``count`` strings."""
    return text(key) + struct.pack("<IIQ", 9, 8, count) + body


def peak_of(path) -> int:
    """Return the peak of the memory that reading the file allocates."""
    tracemalloc.start()
    try:
        RopeParams.from_gguf(path)
    except ValueError as error:
        assert str(error).startswith("[rope] path must be a GGUF file that can be read but got")  # noqa: PT017
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


HUGE, GIB = 2**62, 2**30
HUGE_NUMBERS = {
    "number of keys": header_bytes(n_keys=HUGE),
    "number of tensors": header_bytes(n_tensors=HUGE),
    "list": header_bytes([text("k") + struct.pack("<IIQ", 9, 4, HUGE)]),
    "list of strings": header_bytes([string_list("k", HUGE)]),
    "name": header_bytes([struct.pack("<Q", HUGE)]),
    "lists of lists": header_bytes([text("k") + struct.pack("<IIQ", 9, 9, 1) * 1000]),
    "dimensions": header_bytes([], [text("t") + struct.pack("<I", 2**31)]),
}


def bools(count: int) -> list[bytes]:
    """Return keys with Boolean values."""
    return [text(f"k{i}") + struct.pack("<IB", 7, 1) for i in range(count)]


# Files whose length matches their headers.
LARGE = {
    "short lists": lambda: header_bytes(
        [text(f"k{i}") + struct.pack("<IIQ", 9, 0, 4096) + bytes(4096) for i in range(2000)]
    ),
    "keys": lambda: header_bytes(bools(20000)),
    "too many keys": lambda: header_bytes(bools(100000)),
    "tensors": lambda: header_bytes(
        [], [text(f"t{i}") + struct.pack("<IQIQ", 1, 1, 0, 0) for i in range(20000)]
    ),
    "string": lambda: header_bytes([text("general.name") + struct.pack("<IQ", 8, GIB)]),
    "factors": lambda: header_bytes(
        [], [text("rope_freqs.weight") + struct.pack("<IQIQ", 1, GIB // 4, 0, 0)]
    ),
    "empty strings": lambda: header_bytes([string_list("k", 2**24)]),
}


@pytest.mark.parametrize("what", HUGE_NUMBERS)
def test_a_huge_number_in_a_small_file_allocates_little(tmp_path, what):
    (tmp_path / "huge.gguf").write_bytes(HUGE_NUMBERS[what] + bytes(64))
    with pytest.raises(ValueError, match=r"^\[rope\] path must be a GGUF file that can be read but got"):
        RopeParams.from_gguf(tmp_path / "huge.gguf")
    assert peak_of(tmp_path / "huge.gguf") < 4 << 20


@pytest.mark.parametrize("what", LARGE)
def test_a_large_file_takes_little_memory_and_time(tmp_path, what):
    path = tmp_path / "large.gguf"
    path.write_bytes(LARGE[what]())
    os.truncate(path, path.stat().st_size + GIB + 4096)  # a sparse file
    began = time.process_time()
    with contextlib.suppress(ValueError):
        RopeParams.from_gguf(path)
    assert time.process_time() - began < 2
    assert peak_of(path) < 32 << 20


def test_a_vocabulary_is_skipped(tmp_path):
    """131,072 tokens and merges and 3,000 tensors add little memory."""
    names = b"".join(text(f"token {i}") for i in range(131072))
    keys = [string_list(f"tokenizer.ggml.{key}", 131072, names) for key in ("tokens", "merges")]
    keys += [text("tokenizer.ggml.scores") + struct.pack("<IIQ", 9, 6, 131072) + bytes(4 * 131072)]
    keys += [text("llama.rope.freq_base") + struct.pack("<If", 6, 5e5)]
    tensors = [text(f"blk.{i}.ffn_up.weight") + struct.pack("<IQQIQ", 2, 8, 4, 1, 0) for i in range(3000)]
    (tmp_path / "model.gguf").write_bytes(header_bytes(keys, tensors) + bytes(128))
    assert RopeParams.from_gguf(tmp_path / "model.gguf").params == RopeParams(128, freq_base=5e5)
    assert peak_of(tmp_path / "model.gguf") < 4 << 20


# ---- the header --------------------------------------------------------------------------------------


@pytest.mark.parametrize("endianess", gguf.GGUFEndian)
def test_values_equal_those_of_ggufs_reader(tmp_path, endianess):
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(str(path), "llama", endianess=endianess)
    for name in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"):
        getattr(writer, f"add_{name}")(f"a.{name}", 100)
    writer.add_float32("a.float32", 0.1)
    writer.add_float64("a.float64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.string", "schön")
    for name, values in (("ints", [1, -2]), ("floats", [0.1, 2.0]), ("bools", [True, False, True])):
        writer.add_array(f"a.{name}", values)
    writer.add_token_list(["a", "bc"])
    writer.add_custom_alignment(64)
    tensor = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    writer.add_tensor("first", np.ones(3, np.float16))
    # For another byte order the writer swaps the array's bytes in place.
    writer.add_tensor("second", tensor.copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    expected = {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}
    with path.open("rb") as stream:
        header = GgufHeader(stream)
        for name in sorted(expected.keys() - {"tokenizer.ggml.tokens"}):
            if not name.startswith("GGUF."):  # fields of GGUFReader
                assert header.value(name) == expected[name], name
                assert type(header.value(name)) is type(expected[name]), name
        assert np.array_equal(header.floats("second"), tensor)
        assert header.value("none") is header.floats("none") is None


def test_text_that_is_not_utf_8_is_refused(tmp_path, gguf_file):
    content = gguf_file("phi3", LLAMA, {"rope_freqs.weight": np.ones(64, np.float32)}).read_bytes()
    for original, damaged, what in (
        (b"phi3.rope.freq_base", b"phi3.rope.freq_bas\xff", "the name of a key"),
        (b"rope_freqs.weight", b"rope_freqs.weigh\xff", "the name of a tensor"),
        (struct.pack("<Q4s", 4, b"phi3"), struct.pack("<Q4s", 4, b"phi\xff"), "its general.architecture"),
    ):
        (tmp_path / "bad.gguf").write_bytes(content.replace(original, damaged, 1))
        with pytest.raises(
            ValueError, match=r"^\[rope\] path must be a GGUF file that can be read but got"
        ) as caught:
            RopeParams.from_gguf(tmp_path / "bad.gguf")
        assert f"({what} is b" in str(caught.value)
        assert str(caught.value).endswith("\\xff', which is not UTF-8).")
