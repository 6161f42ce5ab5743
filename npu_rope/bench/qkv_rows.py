"""qkv_norm_rope_cache compared with a copy of the least bytes and with the same chain of other libraries.

There is one row for each dtype: a prefill of 2048 tokens with Qwen3-8B's heads. The input is one fused tensor
of queries, keys and values. Keys and values are stored into paged caches, whose blocks are in random order.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import npu_rope
from npu_rope.bench.harness import Contestant, Ready, Unsupported
from npu_rope.bench.norm_rope_rows import EPSILON, PEER_ROUNDINGS, TOKENS, NormRopeInputs
from npu_rope.bench.peers import is_wanted, onnx_model, require, session_call
from npu_rope.bench.rope_rows import DTYPES, HEAD_DIM, Row, floor, ready_from_writes
from npu_rope.optional_torch import torch

GROUP, MODE = "qkv", "qkv_norm_rope_cache"
HEADS = (32, 8, 8)  # of q, k and v
BLOCK = 128  # tokens of a block of the caches, as vllm-ascend's default
OUT = "npu_rope.qkv_norm_rope_cache(out=)"
PARTS = "npu_rope.rms_norm_rope(cache=, out=), then index_copy_ of v"
TORCH, COMPILED = "torch eager", "torch.compile"
TRANSFORMERS = "transformers Qwen3 and StaticCache, eager"
COMPILED_TRANSFORMERS = "transformers Qwen3 and StaticCache, torch.compile"
ORT = "ONNX Runtime RMSNormalization-23, RotaryEmbedding-23, ScatterND"


def row(dtype: str, threads: int) -> Row:
    """Return the row of one dtype."""
    return Row(GROUP, tuple((1, TOKENS, heads) for heads in HEADS), dtype, MODE, threads)


class QkvInputs:
    """The input of all contestants, and the memory that they write to."""

    def __init__(self, bench_row: Row) -> None:
        generator = torch.Generator().manual_seed(29)
        dtype = getattr(torch, DTYPES[bench_row.dtype])
        tokens = bench_row.sizes_bsn[0][1]
        self.threads = bench_row.threads
        self.fused = torch.randn(tokens, sum(HEADS), HEAD_DIM, generator=generator).to(dtype)
        self.q, self.k, self.v = self.fused.split(HEADS, dim=1)
        scales = torch.randn(2, HEAD_DIM, generator=generator).to(dtype)
        xs = (self.q[None], self.k[None])
        self.norm_rope = NormRopeInputs(xs, tuple(scales), torch.arange(tokens), DTYPES[bench_row.dtype])
        self.scales, self.positions, self.params = scales, self.norm_rope.positions, self.norm_rope.params
        blocks = torch.randperm(tokens // BLOCK, generator=generator)
        self.slots = (blocks[:, None] * BLOCK + torch.arange(BLOCK)).flatten()
        self.q_out = torch.empty(self.q.shape, dtype=dtype)
        shape = tokens // BLOCK, BLOCK, HEADS[1], HEAD_DIM
        self.k_cache, self.v_cache = torch.empty(shape, dtype=dtype), torch.empty(shape, dtype=dtype)

    @property
    def caches(self) -> list[Any]:
        """The caches as rows ``[rows,N,D]``."""
        return [cache.flatten(0, 1) for cache in (self.k_cache, self.v_cache)]

    def written(self, q: Any = None) -> list[Any]:
        """Return q's result, and the rows of the caches in the order of the tokens."""
        return [self.q_out if q is None else q, *(cache[self.slots] for cache in self.caches)]

    def tables(self) -> tuple[Any, Any]:
        """Return cos and sin of all positions, ``[P,D/2]`` float32, computed in float64."""
        pairs = torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM
        angles = torch.outer(self.positions.double(), self.params.freq_base**-pairs)
        return angles.cos().float(), angles.sin().float()

    def check(self, peer_roundings: int) -> Callable[[Any], str | None]:
        """Return a check of some tokens by npu_rope's bound, widened for a peer's table and roundings. Values
        must be equal."""
        check_qk = self.norm_rope.check(peer_roundings, False)

        def check(results: Any) -> str | None:
            q, k, v = results
            return check_qk((q[None], k[None])) or (
                None if torch.equal(v, self.v) else "its values are wrong"
            )

        return check


def contestants(bench_row: Row, pattern: str | None) -> Iterator[Contestant]:
    """Yield the floor, npu_rope's own, and the peers whose name matches the pattern."""
    inputs = QkvInputs(bench_row)
    yield floor([inputs.fused])
    for name, prepare in ((OUT, _fused), (PARTS, _parts)):
        yield Contestant(name, "ours", partial(prepare, inputs), inputs.check(0))
    peers: tuple[tuple[str, Callable[[QkvInputs], Ready]], ...] = (
        (TORCH, partial(_torch, compiled=False)),
        (COMPILED, partial(_torch, compiled=True)),
        (TRANSFORMERS, partial(_transformers, compiled=False)),
        (COMPILED_TRANSFORMERS, partial(_transformers, compiled=True)),
        (ORT, _onnxruntime),
    )
    for name, prepare_peer in peers:
        if is_wanted(name, pattern):
            yield Contestant(name, "peer", partial(prepare_peer, inputs), inputs.check(PEER_ROUNDINGS))


# ---- ours ------------------------------------------------------------------------------------------


def _fused(inputs: QkvInputs) -> Ready:
    call = partial(
        npu_rope.qkv_norm_rope_cache,
        inputs.q,
        inputs.k,
        inputs.v,
        inputs.positions,
        inputs.params,
        q_scale=inputs.scales[0],
        k_scale=inputs.scales[1],
        epsilon=EPSILON,
        slots=inputs.slots,
        k_cache=inputs.k_cache,
        v_cache=inputs.v_cache,
        out=inputs.q_out,
    )
    return ready_from_writes([call], inputs.written)


def _parts(inputs: QkvInputs) -> Ready:
    k_rows, v_rows = inputs.caches
    norm_and_rotation = partial(
        npu_rope.rms_norm_rope,
        inputs.q,
        inputs.k,
        inputs.scales[0],
        inputs.scales[1],
        inputs.positions,
        inputs.params,
        rows=inputs.slots,
        cache=k_rows,
        epsilon=EPSILON,
        out=inputs.q_out,
    )
    store = partial(v_rows.index_copy_, 0, inputs.slots, inputs.v)
    return ready_from_writes([norm_and_rotation, store], inputs.written)


# ---- peers -----------------------------------------------------------------------------------------


def _torch(inputs: QkvInputs, *, compiled: bool) -> Ready:
    """Prepare split, rms_norm, vLLM's formula of the rotation with rows of a given table, and index_copy_."""
    norm = torch.nn.functional.rms_norm

    def rotate(x: Any, cos: Any, sin: Any) -> Any:
        x1, x2 = x.chunk(2, -1)
        return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), -1)

    def chain(fused: Any, scales: Any, table: Any, positions: Any, slots: Any, caches: Any) -> Any:
        q, k, v = fused.split(HEADS, dim=1)
        cos, sin = (
            part.unsqueeze(-2).to(fused.dtype) for part in table.index_select(0, positions).chunk(2, -1)
        )
        q, k = (
            rotate(norm(x, (HEAD_DIM,), scale, EPSILON), cos, sin)
            for x, scale in zip((q, k), scales, strict=True)
        )
        for cache, rows in zip(caches, (k, v), strict=True):
            cache.index_copy_(0, slots, rows)
        return q

    table = torch.cat(inputs.tables(), -1)
    function = torch.compile(chain, dynamic=False) if compiled else chain
    arguments = inputs.fused, inputs.scales, table, inputs.positions, inputs.slots, inputs.caches
    call = partial(function, *arguments)
    return Ready(call, lambda: inputs.written(call()))


def _transformers(inputs: QkvInputs, *, compiled: bool) -> Ready:
    """Prepare the steps of Qwen3Attention between its projections and the attention, with a StaticCache's
    layer. The rows of that cache are in the order of the tokens."""
    require("transformers")
    model: Any = importlib.import_module("transformers.models.qwen3.modeling_qwen3")
    cache_utils: Any = importlib.import_module("transformers.cache_utils")
    norms = [model.Qwen3RMSNorm(HEAD_DIM, eps=EPSILON) for _ in inputs.scales]
    for module, scale in zip(norms, inputs.scales, strict=True):
        module.requires_grad_(False).weight.data = scale
    cos_and_sin = [torch.cat([table, table], -1)[None].to(inputs.fused.dtype) for table in inputs.tables()]
    layer = cache_utils.StaticLayer(max_cache_len=inputs.fused.shape[0])

    def chain(fused: Any, cos: Any, sin: Any) -> Any:
        q, k, v = fused[None].split(HEADS, dim=2)
        q, k = (module(x).transpose(1, 2) for module, x in zip(norms, (q, k), strict=True))
        q, k = model.apply_rotary_pos_emb(q, k, cos, sin)
        layer.cumulative_length.zero_()  # each call stores the same tokens
        return q, *layer.update(k, v.transpose(1, 2))

    arguments = inputs.fused, *cos_and_sin
    chain(*arguments)  # the first call allocates the cache
    call = partial(torch.compile(chain, dynamic=False) if compiled else chain, *arguments)
    return Ready(call, lambda: [y[0].transpose(0, 1) for y in call()])


def _onnxruntime(inputs: QkvInputs) -> Ready:
    """Prepare a graph whose caches are copied once more by ScatterND."""
    if inputs.fused.dtype == torch.bfloat16:
        raise Unsupported("its CPU provider has no bfloat16 kernel")
    require("onnx", "onnxruntime")
    helper: Any = importlib.import_module("onnx.helper")
    tokens = inputs.fused.shape[0]
    cos, sin = (table.to(inputs.fused.dtype).numpy() for table in inputs.tables())
    widths = [heads * HEAD_DIM for heads in HEADS]
    feeds = {
        "fused": inputs.fused.view(1, tokens, -1).numpy(),
        "q_scale": inputs.scales[0].numpy(),
        "k_scale": inputs.scales[1].numpy(),
        "cos": cos,
        "sin": sin,
        "positions": inputs.positions[None].numpy(),
        "slots": inputs.slots[:, None].numpy(),
        "k_cache": torch.zeros(tokens, widths[1], dtype=inputs.fused.dtype).numpy(),
        "v_cache": torch.zeros(tokens, widths[2], dtype=inputs.fused.dtype).numpy(),
    }
    outs = {
        "q_out": inputs.q_out.view(1, tokens, -1).numpy(),
        "k_out": inputs.k_cache.view(tokens, -1).numpy(),
        "v_out": inputs.v_cache.view(tokens, -1).numpy(),
    }
    node, constants = helper.make_node, {"widths": widths, "rows": [tokens, -1]}
    nodes = [node("Constant", [], [name], value_ints=value) for name, value in constants.items()]
    nodes.append(node("Split", ["fused", "widths"], ["q", "k", "v"], axis=-1))
    for x, heads, rotated in (("q", HEADS[0], "q_out"), ("k", HEADS[1], "k_rotated")):
        nodes.append(node("Constant", [], [f"{x}_heads"], value_ints=[1, tokens, heads, HEAD_DIM]))
        nodes.append(node("Constant", [], [f"{x}_flat"], value_ints=[1, tokens, heads * HEAD_DIM]))
        nodes.append(node("Reshape", [x, f"{x}_heads"], [f"{x}_split"]))
        nodes.append(
            node("RMSNormalization", [f"{x}_split", f"{x}_scale"], [f"{x}_normalized"], epsilon=EPSILON)
        )
        nodes.append(node("Reshape", [f"{x}_normalized", f"{x}_flat"], [f"{x}_joined"]))
        inputs_of_rotation = [f"{x}_joined", "cos", "sin", "positions"]
        nodes.append(node("RotaryEmbedding", inputs_of_rotation, [rotated], num_heads=heads))
    for x, rows in (("k", "k_rotated"), ("v", "v")):
        nodes.append(node("Reshape", [rows, "rows"], [f"{x}_rows"]))
        nodes.append(node("ScatterND", [f"{x}_cache", "slots", f"{x}_rows"], [f"{x}_out"]))
    call = session_call(onnx_model(nodes, feeds, outs), feeds, outs, inputs.threads)
    return ready_from_writes([call], inputs.written)
