"""A transformers model before and after ``apply_npu_rope``.

There are four kinds of rows: one RMSNorm module on a vector of 4096, a decode step of a small Llama, and a
decode step and a prefill of a small Qwen3 with a static cache. The last two also have a model with fused
attention modules. The floor of these rows is transformers' own module or model. A ratio is therefore the
median over rounds of the patched time divided by the unpatched time. Parameters keep requires_grad=True, as
in a loaded model. Every call runs under torch.no_grad().
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from npu_rope.bench import norm_rows
from npu_rope.bench.harness import Contestant, Ready
from npu_rope.bench.peers import require
from npu_rope.bench.rope_rows import DTYPES, Row
from npu_rope.optional_torch import torch

GROUP = "patched"
NORM, DECODE = "LlamaRMSNorm", "decode step"
STATIC_DECODE, STATIC_PREFILL = "static decode step", "static prefill"
MODES = (NORM, DECODE, STATIC_DECODE, STATIC_PREFILL)
UNPATCHED, PATCHED = "transformers, unpatched", "after apply_npu_rope"
LEVELS = ("tables", "positions")
FUSED = f"{PATCHED}, fused"
CONTEXT = 64  # tokens in the cache before the step
PROMPT = 512  # tokens of a prefill
# The three contestants' parameters (31 MB in float32) fit in a 32 MiB L3, so call overhead dominates.
LLAMA = {
    "num_hidden_layers": 4,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 512,
}
# Largest ratio of the error of a patched model's results to that of the unpatched model's.
MAX_ERROR_RATIO = 2.0


@dataclass(frozen=True)
class PatchedRow(Row):
    """A row of the benchmark for a module, or for a model."""

    @property
    def shape(self) -> str:
        """The shape of the module's input, or the model's layers and width."""
        if self.mode == NORM:
            return f"[1,{norm_rows.WIDTH}]"
        return f"{LLAMA['num_hidden_layers']} layers of {LLAMA['hidden_size']}"


def row(dtype: str, threads: int, mode: str) -> PatchedRow:
    """Return the row of one dtype and mode."""
    unused_heads = ((1, 1, 1),)
    return PatchedRow(GROUP, unused_heads, dtype, mode, threads)


def rows(dtypes: Sequence[str], threads: int) -> list[Row]:
    """Return every row for one number of threads."""
    return [row(dtype, threads, mode) for mode in MODES for dtype in dtypes]


def name_of(level: str) -> str:
    """Return the name of the contestant that is patched at this level."""
    return f"{PATCHED}, level {level}"


def contestants(bench_row: Row) -> Iterator[Contestant]:
    """Return transformers' own module or model, and the patched ones."""
    if bench_row.mode == NORM:
        return _norms(bench_row)
    return _models(bench_row) if bench_row.mode == DECODE else _static_models(bench_row)


def applied(model: Any, **options: Any) -> Any:
    """Call apply_npu_rope, which must replace everything that it examines, and return the model.

    Raises:
        RuntimeError: something was not replaced, or the report has notes.
    """
    integration: Any = importlib.import_module("npu_rope.integrations.transformers")
    report = integration.apply_npu_rope(model, **options)
    # It replaces no LayerNorm, which some families call by another name.
    left = [entry for entry in report.left if not entry.kind.endswith("LayerNorm")]
    if left or report.notes or report.not_fused or not report.replaced:
        raise RuntimeError(str(report))
    return model


# ---- a norm module -----------------------------------------------------------------------------------


def _norms(bench_row: Row) -> Iterator[Contestant]:
    inputs = norm_rows.NormInputs(norm_rows.row(bench_row.dtype, bench_row.threads, 1))
    for name, kind in ((UNPATCHED, "floor"), (PATCHED, "ours")):
        prepare = partial(_prepare_norm, inputs, patched=kind == "ours")
        yield Contestant(name, kind, prepare, inputs.check(ours=kind == "ours"))


def _prepare_norm(inputs: norm_rows.NormInputs, *, patched: bool) -> Ready:
    require("transformers")
    modeling: Any = importlib.import_module("transformers.models.llama.modeling_llama")
    model = torch.nn.Sequential(modeling.LlamaRMSNorm(norm_rows.WIDTH, eps=norm_rows.EPSILON))
    model[0].weight = torch.nn.Parameter(inputs.scale)
    if patched:
        applied(model)
    call = partial(model[0], inputs.x)
    return Ready(call, call, torch.no_grad)


# ---- a decode step -----------------------------------------------------------------------------------


class DecodeStep:
    """A model with some tokens in its cache; a call does not change the cache."""

    def __init__(self, model: Any) -> None:
        transformers: Any = importlib.import_module("transformers")
        tokens = tokens_of(CONTEXT + 1)
        self.model, self.last = model, tokens[:, CONTEXT:]
        self.cache = transformers.DynamicCache(config=model.config)
        # transformers 5.24 renamed the argument `past_key_values` to `cache`.
        renamed = "cache" in inspect.signature(model.forward).parameters
        self.arguments = {"cache" if renamed else "past_key_values": self.cache}
        with torch.no_grad():
            model(tokens[:, :CONTEXT], **self.arguments)

    def __call__(self) -> Any:
        """Return the step's logits."""
        logits = self.model(self.last, **self.arguments).logits
        self.cache.crop(-1)
        return logits


class _StaticCacheCall:
    """A model with a static cache; a call adds one token to CONTEXT tokens, or PROMPT tokens to none."""

    def __init__(self, model: Any, mode: str) -> None:
        transformers: Any = importlib.import_module("transformers")
        context = CONTEXT if mode == STATIC_DECODE else 0
        count = 1 if mode == STATIC_DECODE else PROMPT
        tokens = tokens_of(context + count)
        self.model, self.added = model, tokens[:, context:]
        self.cache = transformers.StaticCache(config=model.config, max_cache_len=2 * PROMPT)
        # transformers 5.24 renamed the argument `past_key_values` to `cache`.
        renamed = "cache" in inspect.signature(model.forward).parameters
        self.arguments = {"cache" if renamed else "past_key_values": self.cache, "logits_to_keep": 1}
        if context:
            with torch.no_grad():
                model(tokens[:, :context], **self.arguments)

    def __call__(self) -> Any:
        logits = self.model(self.added, **self.arguments).logits
        self.cache.crop(-self.added.shape[1])
        return logits


def tokens_of(count: int) -> Any:
    """Return ids of tokens, [1, count]."""
    return torch.randint(LLAMA["vocab_size"], (1, count), generator=_generator())


def _generator() -> Any:
    return torch.Generator().manual_seed(24)


def _llama(dtype: Any) -> Any:
    """Return the Llama. In every dtype it has the same weights, rounded."""
    return _model("LlamaForCausalLM", "LlamaConfig", dtype)


def _qwen3(dtype: Any) -> Any:
    """Return a Qwen3 of the Llama's sizes, which also normalizes each head of the queries and keys."""
    return _model("Qwen3ForCausalLM", "Qwen3Config", dtype, head_dim=32)


def _model(kind: str, config: str, dtype: Any, **sizes: int) -> Any:
    require("transformers")
    transformers: Any = importlib.import_module("transformers")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(24)
        model = getattr(transformers, kind)(getattr(transformers, config)(**LLAMA, **sizes)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.copy_(torch.rand(parameter.shape, generator=_generator()) + 0.5)
    return with_parameters(model, dtype)


def with_parameters(model: Any, dtype: Any) -> Any:
    """Return the model with parameters of that dtype. Its buffers stay float32, as in a loaded model."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


def _models(bench_row: Row) -> Iterator[Contestant]:
    check = ModelCheck(getattr(torch, DTYPES[bench_row.dtype]), _llama, DecodeStep)
    yield Contestant(UNPATCHED, "floor", partial(_prepare_step, check.dtype, None))
    for level in LEVELS:
        yield Contestant(name_of(level), "ours", partial(_prepare_step, check.dtype, level), check)


def _prepare_step(dtype: Any, level: str | None) -> Ready:
    model = _llama(dtype)
    if level is not None:
        applied(model, level=level)
    step = DecodeStep(model)
    return Ready(step, step, torch.no_grad)


def _static_models(bench_row: Row) -> Iterator[Contestant]:
    call_of = partial(_StaticCacheCall, mode=bench_row.mode)

    def prepare(**options: Any) -> Ready:
        model = _qwen3(check.dtype)
        if options:
            applied(model, **options)
        call = call_of(model)
        return Ready(call, call, torch.no_grad)

    check = ModelCheck(getattr(torch, DTYPES[bench_row.dtype]), _qwen3, call_of)
    yield Contestant(UNPATCHED, "floor", prepare)
    yield Contestant(name_of("tables"), "ours", partial(prepare, level="tables"), check)
    yield Contestant(FUSED, "ours", partial(prepare, fuse=True), check)


class ModelCheck:
    """Compare a model's results, such as logits, with the reference: those of a float64 model.

    The error may be MAX_ERROR_RATIO times that of the unpatched model. The reference is not exact, because
    its norms and rotary embedding compute in float32.
    """

    def __init__(self, dtype: Any, model_of: Callable[[Any], Any], call_of: Callable[[Any], Any]) -> None:
        self.dtype, self.model_of, self.call_of = dtype, model_of, call_of

    def __call__(self, results: Any) -> str | None:
        """Return None, or the fault of the results."""
        with torch.no_grad():
            # Both have the same rounded weights, so that only the arithmetic differs.
            wide = with_parameters(self.model_of(self.dtype), torch.float64)
            wide.set_experts_implementation("eager")  # the others cannot multiply float64
            reference = self.call_of(wide)()
            unpatched = self.call_of(self.model_of(self.dtype))()
        if results.shape != reference.shape or results.dtype != unpatched.dtype:
            return f"its results are {results.dtype} {list(results.shape)}"
        error, unpatched_error = (
            (values.double() - reference).abs().max().item() for values in (results, unpatched)
        )
        if not error <= MAX_ERROR_RATIO * unpatched_error:
            return f"its results have error {error:.3g}, the unpatched model's {unpatched_error:.3g}"
        return None
