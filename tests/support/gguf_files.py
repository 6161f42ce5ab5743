"""GGUF files with the metadata of models, as the gguf package writes them."""

from __future__ import annotations

import gguf
import numpy as np

LLAMA = {
    "context_length": 131072,
    "embedding_length": 4096,
    "block_count": 32,
    "attention.head_count": 32,
    "rope.dimension_count": 128,
    "rope.freq_base": 500000.0,
}


def write(path, architecture, values, tensors=None):
    """Write a GGUF file with the metadata ``values``, a small token_embd.weight and ``tensors``."""
    writer = gguf.GGUFWriter(str(path), architecture)
    for name, value in values.items():
        key = f"{architecture}.{name}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    writer.add_token_list([f"token {i}" for i in range(10)])
    writer.add_tensor("token_embd.weight", np.zeros((4, 8), np.float16))
    for name, value in (tensors or {}).items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
