"""Peers of rope: ggml, ONNX Runtime, transformers (eager and compiled) and the formula of vLLM (compiled).

Each is called as its users call it. A peer with ``tables given`` or ``table given`` in its name receives cos
and sin. ggml, and peers with ``incl. tables`` in their names, compute them in the call. ONNX Runtime and ggml
write into preallocated buffers, the same ones in each call. Torch code allocates a new tensor in each call.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from npu_rope.bench.harness import Contestant, NotInstalled, Ready, Unsupported
from npu_rope.bench.peers_ggml import GGML, prepare_ggml
from npu_rope.bench.rope_rows import HEAD_DIM, RopeInputs, ready_from_writes
from npu_rope.optional_torch import torch
from npu_rope.testing.bounds import PEER_FLOAT32_TABLE, PEER_ROUNDED_STEPS

ORT = "ONNX Runtime RotaryEmbedding-23, tables given"
HF, HF_COMPUTED_TABLES = "transformers eager, tables given", "transformers eager, incl. tables"
HF_COMPILED = "transformers torch.compile, tables given"
HF_COMPILED_COMPUTED_TABLES = "transformers torch.compile, incl. tables"
VLLM_COMPILED = "vLLM's formula, torch.compile, table given"


def peers(inputs: RopeInputs, pattern: str | None, ggml_lib: str | None) -> Iterator[Contestant]:
    """Yield the peers whose name matches the pattern, in a fixed order; ``none`` matches no peer."""
    all_peers: list[tuple[str, Callable[[RopeInputs], Ready], tuple[float, int]]] = [
        (GGML, partial(prepare_ggml, given_folder=ggml_lib), PEER_FLOAT32_TABLE),
        (ORT, _onnxruntime, PEER_ROUNDED_STEPS),
        (HF, partial(_transformers, computes_tables=False, compiled=False), PEER_ROUNDED_STEPS),
        (
            HF_COMPUTED_TABLES,
            partial(_transformers, computes_tables=True, compiled=False),
            PEER_ROUNDED_STEPS,
        ),
        (HF_COMPILED, partial(_transformers, computes_tables=False, compiled=True), PEER_ROUNDED_STEPS),
        (
            HF_COMPILED_COMPUTED_TABLES,
            partial(_transformers, computes_tables=True, compiled=True),
            PEER_ROUNDED_STEPS,
        ),
        (VLLM_COMPILED, _vllm_formula, PEER_ROUNDED_STEPS),
    ]
    for name, prepare, bound in all_peers:
        if is_wanted(name, pattern):
            yield Contestant(name, "peer", partial(prepare, inputs), inputs.check(*bound))


def is_wanted(name: str, pattern: str | None) -> bool:
    """Return whether ``--peers`` selects the peer; ``none`` selects no peer."""
    return pattern is None or (pattern != "none" and re.search(pattern, name, re.IGNORECASE) is not None)


def require(*packages: str) -> None:
    """Raise NotInstalled if one of the packages is missing."""
    if any(importlib.util.find_spec(name) is None for name in packages):
        raise NotInstalled("pip install " + " ".join(packages))


def _tables(inputs: RopeInputs) -> tuple[Any, Any]:
    """Return cos and sin of every position up to the last, ``[P, D/2]``, computed in float64."""
    pairs = torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM
    positions = torch.arange(int(inputs.positions.max()) + 1, dtype=torch.float64)
    theta = torch.outer(positions, inputs.params.freq_base**-pairs)
    return theta.cos(), theta.sin()


# ---- ONNX Runtime ----------------------------------------------------------------------------------


def _onnxruntime(inputs: RopeInputs) -> Ready:
    if inputs.row.dtype == "bf16":
        raise Unsupported("its CPU provider has no bfloat16 kernel")
    require("onnx", "onnxruntime")
    cos, sin = (table.to(inputs.xs[0].dtype).numpy() for table in _tables(inputs))
    feeds = {"cos": cos, "sin": sin, "positions": inputs.positions.numpy()}
    outs = {}
    for i, x in enumerate(inputs.xs):
        feeds[f"x{i}"] = x.flatten(2).numpy()
        outs[f"y{i}"] = torch.empty_like(x).flatten(2).numpy()
    helper: Any = importlib.import_module("onnx.helper")
    attributes = {"interleaved": int(inputs.row.mode == "normal")}
    nodes = [
        helper.make_node(
            "RotaryEmbedding", [f"x{i}", "cos", "sin", "positions"], [f"y{i}"], num_heads=heads, **attributes
        )
        for i, (_, _, heads) in enumerate(inputs.row.sizes_bsn)
    ]
    call = session_call(onnx_model(nodes, feeds, outs), feeds, outs, inputs.row.threads)
    written = [torch.from_numpy(outs[f"y{i}"]).view(x.shape) for i, x in enumerate(inputs.xs)]
    return ready_from_writes([call], lambda: written)


def session_call(
    model: bytes, feeds: dict[str, Any], outs: dict[str, Any], threads: int
) -> Callable[[], object]:
    """Return a call by which ONNX Runtime runs a model on arrays and writes into arrays."""
    onnxruntime: Any = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    values = [(name, onnxruntime.OrtValue.ortvalue_from_numpy(array)) for name, array in feeds.items()]
    results = [(name, onnxruntime.OrtValue.ortvalue_from_numpy(array)) for name, array in outs.items()]
    for name, value in values:
        binding.bind_ortvalue_input(name, value)
    for name, value in results:
        binding.bind_ortvalue_output(name, value)

    # The default argument holds the arrays and OrtValues. The session uses their memory, so they must live as
    # long as the function.
    def call(kept: Any = (feeds, outs, values, results)) -> None:
        session.run_with_iobinding(binding)

    return call


def onnx_model(nodes: list[Any], feeds: dict[str, Any], outs: dict[str, Any]) -> bytes:
    """Return a model of these nodes. The arrays give the names, types and sizes of its inputs and outputs."""
    helper: Any = importlib.import_module("onnx.helper")
    types = {"float32": 1, "float16": 10, "int64": 7}  # onnx.TensorProto.DataType
    infos = [
        [
            helper.make_tensor_value_info(name, types[array.dtype.name], array.shape)
            for name, array in named.items()
        ]
        for named in (feeds, outs)
    ]
    graph = helper.make_graph(nodes, "peer", *infos)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    serialized: bytes = model.SerializeToString()
    return serialized


# ---- transformers ----------------------------------------------------------------------------------

# Llama pairs halves (neox). Cohere pairs neighbours (normal) and computes in float32.
_MODELS = {"neox": ("llama", "Llama", False), "normal": ("cohere", "Cohere", True)}


def _transformers(inputs: RopeInputs, *, computes_tables: bool, compiled: bool) -> Ready:
    require("transformers")
    folder, stem, is_float32 = _MODELS[inputs.row.mode]
    model: Any = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    config_class: Any = getattr(importlib.import_module("transformers"), f"{stem}Config")
    config = config_class(
        hidden_size=4096,
        num_attention_heads=32,
        max_position_embeddings=131072,
        rope_parameters={"rope_type": "default", "rope_theta": inputs.params.freq_base},
    )
    tables = getattr(model, f"{stem}RotaryEmbedding")(config)
    xs = [x.transpose(1, 2) for x in inputs.xs]  # transformers' layout is [B,N,S,D]

    def rotate_single(q: Any, cos: Any, sin: Any) -> Any:  # apply_rotary_pos_emb for one tensor
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        wide = q.float() if is_float32 else q
        return (wide * cos + model.rotate_half(wide) * sin).to(q.dtype)

    rotate = rotate_single if len(xs) == 1 else model.apply_rotary_pos_emb

    def rotate_from_positions(*tensors: Any) -> Any:
        *qk, positions = tensors
        return rotate(*qk, *tables(qk[0], positions))

    function, arguments = rotate, (*xs, *tables(xs[0], inputs.positions))
    if computes_tables:
        function, arguments = rotate_from_positions, (*xs, inputs.positions)
    if compiled:
        function = torch.compile(function, dynamic=False)
    return _formula(function, arguments, lambda y: y.transpose(1, 2))


def _formula(function: Any, arguments: Sequence[Any], to_heads: Callable[[Any], Any]) -> Ready:
    call = partial(function, *arguments)

    def result() -> list[Any]:
        results = call()
        return [to_heads(y) for y in (results if isinstance(results, (tuple, list)) else [results])]

    return Ready(call, result)


# ---- vLLM's formula --------------------------------------------------------------------------------


def _vllm_formula(inputs: RopeInputs) -> Ready:
    """Prepare RotaryEmbedding.forward_native on ``[T,N,D]``: gather rows, cast, rotate in x's dtype."""
    is_neox = inputs.row.mode == "neox"

    def rotate(table: Any, positions: Any, *xs: Any) -> Any:
        cos, sin = table.index_select(0, positions).chunk(2, -1)
        cos, sin = cos.unsqueeze(-2).to(xs[0].dtype), sin.unsqueeze(-2).to(xs[0].dtype)
        return [_rotate_pairs(x, cos, sin, is_neox) for x in xs]

    table = torch.cat(_tables(inputs), -1).float()
    xs = [x.flatten(0, 1) for x in inputs.xs]
    compiled = torch.compile(rotate, dynamic=False)
    arguments = (table, inputs.positions.reshape(-1), *xs)
    batch, length, _ = inputs.row.sizes_bsn[0]
    return _formula(compiled, arguments, lambda y: y.unflatten(0, (batch, length)))


def _rotate_pairs(x: Any, cos: Any, sin: Any, is_neox: bool) -> Any:
    x1, x2 = x.chunk(2, -1) if is_neox else (x[..., ::2], x[..., 1::2])
    y1, y2 = x1 * cos - x2 * sin, x2 * cos + x1 * sin
    return torch.cat((y1, y2), -1) if is_neox else torch.stack((y1, y2), -1).flatten(-2)
