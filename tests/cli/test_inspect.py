"""npu-rope inspect prints how the model of a configuration or of a GGUF file rotates."""

from __future__ import annotations

import html
import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import transformers
from gguf_files import LLAMA, write
from typer.testing import CliRunner

from npu_rope import RopeParams, rope
from npu_rope.cli.app import app

LLAMA_3 = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}


@pytest.fixture(autouse=True, scope="module")
def transformers_logs():
    """Configure transformers' logging before the tests. Its handler keeps the stderr of that moment, and
    CliRunner closes its own stderr after each call."""
    transformers.logging.get_verbosity()


@pytest.fixture
def config(tmp_path):
    def write_config(**values):
        (tmp_path / "config.json").write_text(json.dumps({**LLAMA_3, **values}))
        return tmp_path / "config.json"

    return write_config


def inspect(*arguments, status=0):
    done = CliRunner().invoke(app, ["inspect", *map(str, arguments)])
    assert done.exit_code == status, done.output + done.stderr
    return done.stdout if status == 0 else done.stderr


def as_json(*arguments):
    return json.loads(inspect(*arguments, "--json"))


def test_the_output_describes_llama_3(config):
    path = config()
    output = inspect(path)
    for expected in (
        "llama (transformers configuration)",
        "rope_type llama3",
        "64, from 1 to 8",
        "131072 tokens",
    ):
        assert expected in output
    assert "trained with 8192" in output
    assert len(re.findall(r"^ +\d+ +\d+, \d+ ", output, re.MULTILINE)) == 64
    assert re.search(r"^ +63 +63, 127 +3\.06893e-07 +2\.04736e\+07 +2\.5592e\+06 +8 ", output, re.MULTILINE)
    assert len(re.findall(r"^ +\d+ +\d+, \d+ ", inspect(path, "--no-pairs"), re.MULTILINE)) == 0


def test_the_json_has_the_parameters_and_frequencies_that_the_package_computes(config):
    path = config()
    (found,) = as_json(path)["ropes"]
    model = RopeParams.from_hf(path)
    assert RopeParams(**found["params"]) == model.params
    assert found["freq_factors"] == model.freq_factors.tolist()
    assert [row["frequency"] for row in found["pairs"]] == model.frequencies().tolist()
    unscaled = 500000.0 ** (-np.arange(64) / 64)
    before = [row["wavelength_before"] for row in found["pairs"]]
    assert np.allclose(before, 2 * np.pi / unscaled, rtol=1e-12)
    assert found["pairs"][5]["lanes"] == [5, 69]
    assert (found["context"], found["trained_context"]) == (131072, 8192)


def test_the_python_call_runs(config):
    for path in (config(), config(rope_scaling={"type": "linear", "factor": 4.0})):
        (found,) = as_json(path)["ropes"]
        names = {"RopeParams": RopeParams, "rope": rope}
        names |= {"x": np.ones((1, 3, 2, 128), np.float32), "positions": np.arange(3)}
        exec(found["python"], names)
        assert np.array_equal(names["y"], rope(names["x"], names["positions"], *RopeParams.from_hf(path)))


@pytest.mark.parametrize("name", ['q"uote.json', "back\\slash.json", "line\nfeed.json", "größe 𝄞.json"])
def test_the_python_call_names_any_file(config, tmp_path, name):
    path = config().rename(tmp_path / name)
    (found,) = as_json(path)["ropes"]
    call = found["python"].splitlines()[0].partition(" = ")[2]
    assert eval(call, {"RopeParams": RopeParams}).params == RopeParams.from_hf(path).params


@pytest.mark.parametrize(
    ("values", "call"),
    [
        (
            {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}},
            "ggml_rope_ext(ctx, x, positions, NULL, 128, GGML_ROPE_TYPE_NEOX, 32768,"
            " 500000.0f, 0.25f, 1.0f, 1.0f, 32.0f, 1.0f)",
        ),
        (
            {},
            "ggml_rope_ext(ctx, x, positions, freq_factors, 128, GGML_ROPE_TYPE_NEOX, 0,"
            " 500000.0f, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f)",
        ),
        (
            {"model_type": "cohere", "rope_scaling": None, "rope_theta": 7.5},
            "ggml_rope_ext(ctx, x, positions, NULL, 128, GGML_ROPE_TYPE_NORMAL, 0,"
            " 7.5f, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f)",
        ),
        (
            {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}},
            "int sections[4] = {16, 24, 24, 0};\n"
            "ggml_rope_multi(ctx, x, positions, NULL, 128, sections, GGML_ROPE_TYPE_MROPE, 0,"
            " 500000.0f, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f)",
        ),
    ],
)
def test_the_ggml_call_has_the_order_of_ggmls_arguments(config, values, call):
    path = config(**values)
    assert as_json(path)["ropes"][0]["ggml"] == call
    assert call in inspect(path, "--no-pairs")


def test_the_back_ends_and_their_types_are_listed(config):
    found = as_json(config())["ropes"][0]["back_ends"]
    assert found["cpu"] == found["sim"] == found["reference"] == "float32, float16, bfloat16"
    assert found["sim:ascend310p"] == "float32, float16"
    assert found["npu"].startswith("no: it lacks ")
    assert found["ggml's CANN backend"].startswith("yes")
    wide = as_json(config(head_dim=1028, rope_scaling=None))["ropes"][0]["back_ends"]
    assert wide["cpu"] == "float32, float16, bfloat16"
    for device in ("sim", "sim:ascend310p"):
        assert wide[device].startswith("no: [rope] x must have a head size of at most 1024"), device
    assert wide["ggml's CANN backend"] == "no: its heads have at most 896 dimensions"


def test_each_layer_type_has_its_own_rope(config):
    entries = {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}
    path = config(rope_parameters=entries, rope_scaling=None)
    both = as_json(path)["ropes"]
    assert [r["params"]["freq_base"] for r in both] == [1e6, 1e4]
    (one,) = as_json(path, "--layer-type", "sliding_attention")["ropes"]
    assert one == both[1]
    assert 'layer_type="sliding_attention"' in one["python"]
    message = inspect(path, "--layer-type", "other", status=2)
    assert message.startswith("[rope] layer_type must be one of full_attention, sliding_attention")


def test_a_file_is_read_once(config, monkeypatch):
    entries = {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}
    path, open_path, opened = config(rope_parameters=entries, rope_scaling=None), Path.open, []
    monkeypatch.setattr(Path, "open", lambda self, *a, **k: opened.append(self) or open_path(self, *a, **k))
    inspect(path)
    assert opened.count(path) == 2  # for its first bytes, which tell its kind, and for its contents


def test_a_gguf_file_with_two_kinds_of_layers(tmp_path):
    values = {**LLAMA, "attention.sliding_window": 1024, "rope.freq_base": 1e6}
    path = write(tmp_path / "model.gguf", "gemma3", values)
    contents = as_json(path)
    assert (contents["kind"], contents["model"]) == ("GGUF file", "gemma3")
    full, windowed = contents["ropes"]
    assert full["params"]["freq_base"] == 1e6
    assert windowed["params"]["freq_base"] == 1e4
    assert windowed["layers"] == "layers with a window (0-4, 6-10, 12-16, ..., 30-31)"
    names = {"RopeParams": RopeParams, "rope": rope}
    names |= {"x": np.ones((1, 3, 2, 128), np.float32), "positions": np.arange(3)}
    exec(windowed["python"], names)
    (one,) = as_json(path, "--layer", "7")["ropes"]
    assert one["params"] == windowed["params"]


def test_wavelengths_before_scaling_use_theta_without_alpha(tmp_path):
    path = write(tmp_path / "model.gguf", "hunyuan-dense", {**LLAMA, "rope.scaling.alpha": 1000.0})
    (found,) = as_json(path)["ropes"]
    assert found["params"]["freq_base"] == pytest.approx(500000 * 1000 ** (128 / 126))
    before = [row["wavelength_before"] for row in found["pairs"]]
    assert np.allclose(before, 2 * np.pi * 500000 ** (np.arange(64) / 64), rtol=1e-12)
    assert "before: with the file's theta, which its converter may already have scaled\n" in inspect(path)


def test_layers_without_rope_are_listed(tmp_path):
    path = write(tmp_path / "model.gguf", "smollm3", LLAMA)
    contents = as_json(path)
    assert contents["layers_without_rope"] == list(range(3, 32, 4))
    (rotating,) = contents["ropes"]
    assert rotating["layers"] == "layers with rope (0-2, 4-6, 8-10, ..., 28-30)"
    assert "no rope in layers 3, 7, 11, ..., 31\n" in inspect(path, "--no-pairs")
    assert inspect(path, "--layer", 3, status=2).startswith("[rope] layer must be one whose heads rotate but")
    dense_first = {
        **LLAMA,
        "attention.sliding_window": 4096,
        "leading_dense_block_count": 1,
        "rope.freq_base_swa": 7.0,
    }
    contents = as_json(write(tmp_path / "model.gguf", "cohere2moe", dense_first))
    assert [r["layers"] for r in contents["ropes"]] == [
        "layers with full attention (0)",
        "layers with a window (1-3, 5-7, 9-11, ..., 29-31)",
    ]
    assert as_json(write(tmp_path / "model.gguf", "llama", LLAMA))["layers_without_rope"] == []


def test_n_ctx_is_the_length_of_the_session(config):
    path = config(rope_scaling={"type": "dynamic", "factor": 2.0}, max_position_embeddings=4096)
    short, long = (as_json(path, *more)["ropes"][0] for more in ((), ("--n-ctx", 16384)))
    assert long["params"]["freq_base"] > 4 * short["params"]["freq_base"]
    assert "seq_len=16384" in long["python"]
    assert long["pairs"][1]["wavelength"] > long["pairs"][1]["wavelength_before"]
    assert (long["context"], long["session"], short["session"]) == (4096, 16384, None)
    for found, tokens in ((short, 4096), (long, 16384)):  # turns count the context in use
        assert found["pairs"][0]["turns"] == pytest.approx(tokens / (2 * np.pi))
    assert "4096 tokens; session of 16384" in inspect(path, "--no-pairs", "--n-ctx", 16384)


def test_pairs_that_do_not_rotate_are_marked(config, tmp_path):
    """Gemma 4 rotates one pair of four."""
    entries = {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25}
    path = config(rope_parameters=entries, rope_scaling=None)
    (found,) = as_json(path)["ropes"]
    pairs = found["pairs"]
    assert [p["wavelength"] is None for p in pairs] == [False] * 16 + [True] * 48
    assert all(p["turns"] == 0 for p in pairs[16:])
    assert pairs[15]["wavelength"] == pytest.approx(pairs[15]["wavelength_before"])
    output = inspect(path, "--plot", tmp_path / "still.svg")
    assert len(re.findall(r"^ +\d+ +\d+, \d+ +0 +- .* - +does not rotate *$", output, re.MULTILINE)) == 48
    assert "64, from 1 to 1; pairs that do not rotate: 48" in output
    assert "as it is; pairs that do not rotate: 48" in (tmp_path / "still.svg").read_text()


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_the_plot_has_the_type_of_its_suffix(config, tmp_path, suffix):
    target = tmp_path / f"wavelengths{suffix}"
    assert f"Wrote {target}" in inspect(config(), "--no-pairs", "--plot", target).replace("\n", "")
    begin = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix]
    assert target.read_bytes().startswith(begin)
    if suffix == ".png":
        width, height = struct.unpack(">II", target.read_bytes()[16:24])
        assert width > 800
        assert height > 500
    if suffix == ".svg":
        labels = re.findall(r"<!-- (.*?) -->", target.read_text())
        assert {"before scaling", "after scaling", "context, 131072 tokens", "trained with 8192"} <= set(
            labels
        )


@pytest.mark.parametrize("name", ["a$\\frac{$b", "$\\undefined{x}$", "m" * 3000])
def test_any_model_name_can_be_the_title(config, tmp_path, name):
    inspect(config(model_type=name), "--no-pairs", "--plot", tmp_path / "named.svg")
    labels = [html.unescape(t) for t in re.findall(r"<!-- (.*?) -->", (tmp_path / "named.svg").read_text())]
    shown = name if len(name) <= 80 else f"{name[:77]}..."
    assert shown in [label.replace("\\$", "$") for label in labels]


@pytest.mark.long
def test_letters_that_the_terminal_lacks_are_escaped(config):
    command = [sys.executable, "-m", "npu_rope.cli", "inspect", str(config(model_type="\u6a21\u578b"))]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("\\u6a21\\u578b (transformers configuration)")


def test_the_plot_marks_the_session_and_the_context(config, tmp_path):
    path = config(rope_scaling={"type": "dynamic", "factor": 2.0}, max_position_embeddings=4096)
    inspect(path, "--n-ctx", 16384, "--plot", tmp_path / "dynamic.svg")
    labels = re.findall(r"<!-- (.*?) -->", (tmp_path / "dynamic.svg").read_text())
    assert {"session, 16384 tokens", "context, 4096 tokens", "after scaling"} <= set(labels)


def test_bad_usage_exits_2_with_its_message(config, tmp_path):
    path = config()
    gguf = write(tmp_path / "model.gguf", "llama", LLAMA)
    path.with_suffix(".svg").write_bytes(path.read_bytes())
    for arguments, message in (
        ((tmp_path / "none",), "[rope] config must be a readable file but got"),
        ((gguf, "--layer-type", "x"), "[inspect] layer-type must be of a config.json but got"),
        ((path, "--layer", "3"), "[inspect] layer must be of a GGUF file but got"),
        ((path, "--plot", tmp_path / "x.jpg"), "[inspect] plot must end in .png, .svg, .pdf but got"),
        (
            (path, "--plot", tmp_path / "no" / "x.png"),
            "[inspect] plot must be a file in an existing folder",
        ),
        (
            (drawn := path.with_suffix(".svg"), "--plot", drawn),
            "[inspect] plot must differ from file but got",
        ),
        ((config(rope_scaling={"type": "x"}),), "[rope] rope_type must be one of default, linear,"),
    ):
        assert inspect(*arguments, status=2).startswith(message)
    assert not list(tmp_path.glob("x.*"))


def test_control_characters_are_escaped(config, tmp_path):
    output = inspect(config(model_type="red\x1b[31m\nlines"))
    assert output.startswith("red\\x1b[31m\\nlines (transformers configuration)\n")
    message = inspect(config(rope_scaling={"rope_type": "red\x1b[31m"}), status=2)
    assert message.splitlines()[0].endswith(" but got 'red\\x1b[31m'.")
    path = write(tmp_path / "model.gguf", "red\x1b[31m", LLAMA)
    message = inspect(path, status=2)
    assert message.startswith("[rope] general.architecture must be a name in ")
    assert message.endswith(" but got 'red\\x1b[31m'.\n")
