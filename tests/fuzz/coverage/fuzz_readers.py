"""Fuzz RopeParams.from_gguf and RopeParams.from_hf with files and configurations of any content.

The bytes make a GGUF file or a config.json: with the keys that the readers know and values of any type, or of
any bytes. Properties of every call:

- A failure is a ValueError or TypeError of the form "[rope] argument must RULE but got VALUE.", or an
  OSError.
- A result has finite frequencies.
- A call takes at most MEMORY_BYTES, so a file with a huge count is refused before memory is requested. The
  option -timeout of libFuzzer limits its time.

scripts/fuzz.sh runs this program. Options: python_fuzzer.py.
"""

from __future__ import annotations

import json
import re
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

import atheris
from python_fuzzer import Program

# transformers reads a configuration of a model that it has; its code is slow and not what this program tests.
sys.modules["transformers"] = None  # type: ignore[assignment]
with atheris.instrument_imports(
    include=["npu_rope.gguf_header", "npu_rope.gguf_params", "npu_rope.hf_config", "npu_rope.hf_params"]
):
    from npu_rope import gguf_header, gguf_params, hf_config, hf_params
import gguf  # noqa: E402
import numpy as np  # noqa: E402

from npu_rope import RopeParams  # noqa: E402
from npu_rope.errors import BrokenRule  # noqa: E402

MEMORY_BYTES = 1 << 28
ERROR = re.compile(r"\[rope\] .+ must .+ but got .*\.", re.DOTALL)

# ---- GGUF ------------------------------------------------------------------------------------------------

ARCHITECTURES = sorted(
    {"llama", "qwen2", "qwen2vl", "qwen3vl", "gemma3", "deepseek2", "phi3", "glm4", "cohere2", "exaone4"}
    | {"llama4", "smallthinker", "hunyuan-moe", "minicpm", "qwen3next", "gpt-oss", "bert", "modern-bert"}
)
KEYS = sorted(gguf_params.ARCHITECTURE_KEYS)
TENSORS = [getattr(gguf_params, f"{kind}FACTORS_TENSOR") for kind in ("", "LONG_", "SHORT_")]
SIZES = {  # struct's format characters, by the number of a value's type
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
STRING, LIST = 8, 9
HOSTILE = (0, 1, 2, 2**16, 2**31 - 1, 2**32, 2**48, 2**63 - 1, 2**64 - 1)


def number(data: atheris.FuzzedDataProvider, code: str) -> bytes:
    """Return a number of this type: plausible or of any bits."""
    size = struct.calcsize(code)
    if code in "fd":
        plausible = data.PickValueInList(
            [10000.0, 1.0, 0.0, -1.0, 0.25, 8.0, 1e30, float("nan"), float("inf")]
        )
        packed = struct.pack("<" + code, plausible)
    else:
        plausible = data.PickValueInList([1, 2, 4, 16, 32, 64, 100, 127])
        packed = struct.pack("<" + code, plausible)
    return packed if data.ConsumeBool() else data.ConsumeBytes(size).ljust(size, b"\0")


def count(data: atheris.FuzzedDataProvider, given: int) -> int:
    """Return a length, seldom another one."""
    return given if data.ConsumeIntInRange(0, 15) else data.PickValueInList(list(HOSTILE))


def text(data: atheris.FuzzedDataProvider, value: bytes) -> bytes:
    return struct.pack("<Q", count(data, len(value))) + value


def value(data: atheris.FuzzedDataProvider) -> bytes:
    """Return a value with its type."""
    kind = data.PickValueInList([4, 6, 7, STRING, LIST, *SIZES])
    if kind == STRING:
        words = [b"yarn", b"linear", b"none", b"longrope", b"x", b"\xff", b""]
        return struct.pack("<I", kind) + text(data, data.PickValueInList(words))
    if kind != LIST:
        return struct.pack("<I", kind) + number(data, SIZES[kind])
    item = data.PickValueInList([4, 5, 7, 6, STRING, LIST, *SIZES])
    items = [
        text(data, b"a") if item not in SIZES else number(data, SIZES[item])
        for _ in range(data.ConsumeIntInRange(0, 5))
    ]
    return struct.pack("<IIQ", kind, item, count(data, len(items))) + b"".join(items)


def gguf_file(data: atheris.FuzzedDataProvider) -> bytes:
    """Return a file with keys and tensors that the reader uses."""
    architecture = data.PickValueInList(ARCHITECTURES).encode()
    entries = [(b"general.architecture", struct.pack("<I", STRING) + text(data, architecture))]
    if data.ConsumeBool():  # the keys that all models have
        for key, usual in (("embedding_length", 256), ("attention.head_count", 4), ("context_length", 4096)):
            entries.append((architecture + b"." + key.encode(), struct.pack("<II", 4, usual)))
    for _ in range(data.ConsumeIntInRange(0, 6)):
        name = data.PickValueInList([*KEYS, "general.alignment"])
        key = name.encode() if name.startswith("general") else architecture + b"." + name.encode()
        entries.append((key, value(data)))
    tensors = []
    for _ in range(data.ConsumeIntInRange(0, 2)):
        shape = [count(data, data.ConsumeIntInRange(0, 64)) for _ in range(count(data, 1) % 6)]
        dims = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        place = struct.pack("<IQ", data.PickValueInList([0, 1, 2, 30, 999]), count(data, 0))
        tensors.append((data.PickValueInList(TENSORS).encode(), dims + place))
    header = struct.pack("<IIQQ", gguf.GGUF_MAGIC, 3, count(data, len(tensors)), count(data, len(entries)))
    body = b"".join(text(data, name) + rest for name, rest in (*entries, *tensors))
    floats = np.linspace(1, 4, 64, dtype="<f4").tobytes()
    return header + body + bytes(-(len(header) + len(body)) % 32) + floats


# ---- config.json -----------------------------------------------------------------------------------------

ROPE_KEYS = ["rope_type", "type", "rope_theta", "factor", "beta_fast", "beta_slow", "low_freq_factor",
             "high_freq_factor", "original_max_position_embeddings", "short_factor", "long_factor",
             "attention_factor", "mscale", "mscale_all_dim", "mrope_section", "mrope_interleaved", "alpha",
             "truncate", "partial_rotary_factor", "rotary_dim"]  # fmt: skip
CONFIG_KEYS = ["head_dim", "hidden_size", "num_attention_heads", "n_embd", "n_head", "qk_rope_head_dim",
               "global_head_dim", "max_position_embeddings", "rope_theta", "layer_types", "model_type",
               "rope_interleave", "rotary_pct", "partial_rotary_factor", "rotary_dim", "rope_local_base_freq",
               "original_max_position_embeddings", "rope_scaling", "rope_parameters", "text_config",
               "_rope_type_labels"]  # fmt: skip
WORDS = [*hf_config.ROPE_TYPES, "su", "full_attention", "sliding_attention", "qwen2_vl", "qwen3_vl", "glm",
         "phi3", "hunyuan_v1", "minimax", "", "\u2028"]  # fmt: skip


def json_value(data: atheris.FuzzedDataProvider, depth: int) -> Any:
    """Return any value that JSON has."""
    kind = data.ConsumeIntInRange(0, 9)
    if kind <= 3:
        return data.PickValueInList([8.0, 10000.0, 1, 0.5, 64, 128, 4096, 0, -1])
    if kind == 4:
        return data.PickValueInList(
            [10**400, -(10**30), 2**31, 2**63, 1e308, 5e-324, float("nan"), float("inf")]
        )
    if kind == 5:
        return data.PickValueInList([True, False, None])
    if kind == 6:
        return data.PickValueInList(WORDS)
    if kind == 7 or depth == 0:
        return [json_value(data, 0) for _ in range(data.ConsumeIntInRange(0, 4))]
    if kind == 8:
        return [1.0] * data.PickValueInList([32, 64, 4, 1])
    return json_object(data, data.PickValueInList([ROPE_KEYS, CONFIG_KEYS, WORDS]), depth - 1)


def json_object(data: atheris.FuzzedDataProvider, keys: list[str], depth: int) -> dict[str, Any]:
    return {data.PickValueInList(keys): json_value(data, depth) for _ in range(data.ConsumeIntInRange(0, 6))}


def config(data: atheris.FuzzedDataProvider) -> dict[str, Any]:
    """Return a configuration with the entries of its rope_type, some of them changed."""
    rope = {
        "rope_type": data.PickValueInList(list(hf_config.ROPE_TYPES)),
        "rope_theta": 10000.0,
        "factor": 8.0,
    }
    rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 4096}
    rope |= {"short_factor": [1.0] * 32, "long_factor": [2.0] * 32}
    rope |= json_object(data, ROPE_KEYS, 1)
    made = {"head_dim": 64, "max_position_embeddings": 32768, "rope_parameters": rope}
    if data.ConsumeBool():
        made["rope_parameters"] = {
            "full_attention": rope,
            "sliding_attention": json_object(data, ROPE_KEYS, 1),
        }
    return made | json_object(data, CONFIG_KEYS, 3)


# ---- calls -----------------------------------------------------------------------------------------------

folder = tempfile.TemporaryDirectory(prefix="npu_rope_fuzz")
path = Path(folder.name) / "model"


def read(data: atheris.FuzzedDataProvider) -> None:
    """Make a file or a configuration, and read it."""
    kind = data.ConsumeIntInRange(0, 3)
    layer = data.PickValueInList([None, None, 0, 1, 5, 2**40])
    n_ctx = data.PickValueInList([None, None, 1, 4096, 2**40])
    layer_type = data.PickValueInList([None, None, "full_attention", "sliding_attention", "x"])
    if kind == 2:
        RopeParams.from_hf(config(data), layer_type, n_ctx).frequencies()
        return
    if kind == 3:
        entries = json.dumps(config(data)).encode()
        rest = data.ConsumeBytes(64)
        at = data.ConsumeIntInRange(0, len(entries))
        content = entries[:at] + rest + entries[at:] if data.ConsumeBool() else rest
    else:
        content = gguf_file(data) if kind == 0 else data.ConsumeBytes(1 << 12)
    path.write_bytes(content)
    model = (
        RopeParams.from_hf(path, layer_type, n_ctx) if kind == 3 else RopeParams.from_gguf(path, layer, n_ctx)
    )
    if not np.isfinite(model.frequencies()).all():
        raise AssertionError(f"frequencies must be finite but {model} has others")


def test(content: bytes) -> None:
    """Read and judge."""
    try:
        read(atheris.FuzzedDataProvider(content))
    except OSError:
        pass
    except BrokenRule as error:
        if not isinstance(error, (ValueError, TypeError)) or not ERROR.fullmatch(str(error).split("\n")[0]):
            raise


if __name__ == "__main__":
    Program(test, (gguf_header, gguf_params, hf_config, hf_params), MEMORY_BYTES).main()
