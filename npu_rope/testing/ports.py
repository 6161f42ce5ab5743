"""Suite ``torch_npu`` of ``npu-rope validate``: calls of torch_npu's rotary functions, RMS norms and stores
into KV caches.

``npu_rope.compat.torch_npu`` runs each call on every back end. Executor ``torch_npu`` runs the same call by
torch_npu's own function. Each result is judged against the float64 formula of ``port_spec.py``, within the
bounds of that implementation's roundings. A call that breaks a documented limit of torch_npu's function runs
on npu_rope only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import numpy as np

from npu_rope import backends, chips
from npu_rope.compat import torch_npu as compat
from npu_rope.errors import BackendUnavailable
from npu_rope.ops.registrar import registered
from npu_rope.optional_torch import cause, load_torch_npu, torch
from npu_rope.testing.bounds import is_device
from npu_rope.testing.cases import generator_of
from npu_rope.testing.chip_types import lacks_type
from npu_rope.testing.ggml import GgmlProcess
from npu_rope.testing.outcomes import CaseResult, Judgement, compare_all, judge_each, require_near_cpu
from npu_rope.testing.port_case import Array, Arrays, PortCase
from npu_rope.testing.port_functions import FUNCTIONS

T = TypeVar("T")
PEER = "torch_npu"  # the executor that runs torch_npu's own functions
DTYPES = ("float32", "float16", "bfloat16")

# ---- the cases -----------------------------------------------------------------------------------------

_HALF_OR_INTERLEAVE = "rotary_mode must be half or interleave"
_AS_WIDE = "the cache must be as wide as a head"
_NO_OFFSET = "k_rope_offset and c_kv_offset must be None"
_NO_V = "v is not documented for torch_npu"
_SIZES = "gamma must have 512 elements, and cos 64"
_PAGED = {"rows": (6, 32)}
_TWO_BLOCKS = {"shape": (2, 1, 35, 576), "table": (2, 1, 35, 64)}
_TWO_HEADS = {"shape": (2, 2, 6, 192), "table": (2, 2, 6, 64), "values": 128}
_QKV_CACHE = {"cache_mode": "PA_NZ", "rows": (12, 32)}
# By function: each form's name, and its differences from the first form.
_FORMS: dict[str, dict[str, dict[str, Any]]] = {
    "npu_rotary_mul": {
        "half": {"shape": (2, 16, 8, 128), "table": (1, 16, 1, 128)},
        "by-batch": {"table": (2, 16, 1, 128)},
        "each-head": {"table": (2, 16, 8, 128)},
        "interleave": {"mode": "interleave"},
        "BNSD": {"shape": (2, 8, 16, 128), "table": (1, 1, 16, 128)},
        "BNSD-interleave": {"shape": (2, 8, 16, 64), "table": (1, 1, 16, 64), "mode": "interleave"},
        "SBND": {"shape": (16, 2, 8, 128), "table": (16, 1, 1, 128)},
        "decode": {"shape": (8, 1, 32, 128), "table": (8, 1, 1, 128)},
        "d6": {"shape": (2, 16, 3, 6), "table": (1, 16, 1, 6)},
        "float32-tables": {"wide": True},
        "quarter": {"mode": "quarter", "limit": _HALF_OR_INTERLEAVE},
        "by-batch-interleave": {
            "table": (2, 16, 1, 128),
            "mode": "interleave",
            "limit": "cos must have one row for all batches in mode interleave",
        },
        "packed": {"shape": (40, 8, 128), "table": (40, 1, 128), "limit": "input must have 4 dimensions"},
        "d1024": {
            "shape": (1, 16, 2, 1024),
            "table": (1, 16, 1, 1024),
            "limit": "the head size must be less than 896",
        },
    },
    "npu_apply_rotary_pos_emb": {
        "BSND": {"shape": (2, 16, 8, 128), "table": (2, 16, 1, 128), "keys": 2},
        "decode": {"shape": (8, 1, 32, 128), "table": (8, 1, 1, 128), "keys": 8},
        "BNSD": {
            "shape": (2, 8, 16, 128),
            "table": (2, 1, 16, 128),
            "layout": "BNSD",
            "limit": "layout must be BSND",
        },
        "for-all": {"table": (1, 16, 1, 128), "limit": "cos must have the batch of query"},
        "interleave": {"mode": "interleave", "limit": "rotary_mode must be half"},
        "d64": {"shape": (2, 16, 8, 64), "table": (2, 16, 1, 64), "limit": "the head size must be 128"},
    },
    "npu_interleave_rope": {
        "prefill": {"shape": (2, 8, 16, 64), "table": (2, 1, 16, 64)},
        "one-row": {"table": (2, 1, 1, 64)},
        "for-all": {"table": (1, 1, 16, 64), "limit": "cos must have the batch of x"},
        "d128": {"shape": (2, 8, 16, 128), "table": (2, 1, 16, 128), "limit": "the head size must be 64"},
    },
    "npu_mrope": {
        "one-kind": {"shape": (16, 8, 128), "table": (128,), "keys": 2},
        "one-kind-interleave": {"mode": "interleave"},
        "partial": {"table": (64,)},
        "d64": {"shape": (16, 8, 64), "table": (64,)},
        "sections": {"sections": (16, 24, 24)},
        "sections-interleave": {"sections": (16, 24, 24), "mode": "interleave"},
        "other-sections": {
            "sections": (24, 20, 20),
            "limit": "mrope_section must be [16,24,24] or zeros",
        },
        "cache-interleave": {
            "sections": (24, 20, 20),
            "cache_mode": "interleave",
            "limit": "cache_mode must be default",
        },
    },
    "_npu_rotary_embedding": {
        "half": {"shape": (16, 8, 128), "table": (128,), "keys": 2, "wide": True},
        "interleave": {"mode": "interleave"},
        "BSND": {"layout": "BSND"},
        "decode": {"shape": (3, 8, 128), "keys": 8},
        "partial": {"shape": (16, 8, 192), "mode": "interleave", "limit": _AS_WIDE},
    },
    "npu_kv_rmsnorm_rope_cache": {
        "Norm": {"shape": (2, 1, 6, 576), "table": (2, 1, 6, 64), "cache_mode": "Norm", "rows": (9,)},
        "PA": _PAGED | {"cache_mode": "PA"},
        "PA_BNSD": _PAGED | {"cache_mode": "PA_BNSD", "outputs": True},
        "PA_NZ": _PAGED | {"cache_mode": "PA_NZ", "outputs": True},
        "PA_BLK_BNSD": _PAGED | {"cache_mode": "PA_BLK_BNSD", **_TWO_BLOCKS},
        "PA_BLK_NZ": _PAGED | {"cache_mode": "PA_BLK_NZ", **_TWO_BLOCKS},
        "decode": _PAGED
        | {"cache_mode": "PA", "shape": (8, 1, 1, 576), "table": (8, 1, 1, 64), "rows": (8, 16)},
        "int8": _PAGED | {"cache_mode": "PA", "quantized": "scale", "outputs": True},
        "int8-NZ": _PAGED | {"cache_mode": "PA_NZ", "quantized": "scale"},
        "int8-BLK": _PAGED | {"cache_mode": "PA_BLK_BNSD", "quantized": "scale", **_TWO_BLOCKS},
        "asymmetric": _PAGED | {"quantized": "scale, offset", "cache_mode": "PA", "limit": _NO_OFFSET},
        "one-row": {"table": (2, 1, 1, 64), "limit": "cos must have a row for each token"},
        "d96": _PAGED | {"cache_mode": "PA", "shape": (2, 1, 6, 96), "table": (2, 1, 6, 32), "limit": _SIZES},
        "v": _PAGED
        | {"cache_mode": "PA", "shape": (2, 1, 6, 192), "values": 128, "outputs": True, "limit": _NO_V},
        "v-int8-NZ": _PAGED
        | {"cache_mode": "PA_NZ", **_TWO_HEADS, "quantized": "scale, offset", "limit": _NO_V},
    },
    "npu_qkv_rms_norm_rope_cache": {
        "PA_NZ": {"shape": (12, 18, 128), "table": (12, 128), "keys": 1, **_QKV_CACHE},
        "grouped": {"shape": (12, 12, 128), "keys": 2, "outputs": True},
        "int8": {"quantized": "scale"},
        "asymmetric": {"quantized": "scale, offset", "shape": (12, 12, 128), "keys": 2},
        "d96": {"shape": (12, 18, 96), "table": (12, 96), "limit": "the head size must be 128"},
        "partial": {"table": (12, 64), "limit": "cos must have the head size of qkv"},
    },
    "npu_rms_norm": {
        "row": {"shape": (2, 16, 8, 128), "table": (128,)},
        "long-row": {"shape": (3, 4096), "table": (4096,)},
        "two-dimensions": {"shape": (2, 3, 5, 32), "table": (5, 32)},
        "float32-gamma": {"wide": True},
    },
}
_FORMS["npu_add_rms_norm"] = _FORMS["npu_rms_norm"] | {
    "float32-gamma": {"wide": True, "limit": "gamma must have the dtype of x1"}
}
_FORMS["npu_gemma_rms_norm"] = _FORMS["npu_rms_norm"] | {
    "float32-gamma": {"wide": True, "limit": "gamma must have the dtype of input"}
}


def port_cases() -> Iterator[PortCase]:
    """Yield every form of every function in every type."""
    for function in FUNCTIONS:
        forms = _FORMS[function]
        first = next(iter(forms.values()))
        for form, differences in forms.items():
            for dtype in DTYPES:
                values = {**first, **differences}
                if values.get("wide") and "norm" in function and dtype == "float32":
                    values["limit"] = ""  # gamma then has the dtype of x
                yield PortCase(function, form, dtype, **values)


def make_data(case: PortCase) -> Arrays:
    """Return the tensors of a case, rounded to their types. The case's name seeds the generator."""
    generator = generator_of(case)
    function = FUNCTIONS[case.function]
    shapes = function.shapes(case).items()
    return {name: function.values(case, name, shape, generator) for name, shape in shapes}


# ---- judging -------------------------------------------------------------------------------------------


def judge_ports(case: PortCase, executors: list[str], ggml: GgmlProcess | None = None) -> CaseResult:
    """Run and judge one case on back ends and on ``PEER``; ggml has no such functions."""
    arrays = make_data(case)
    return judge_each(case, executors, partial(_unsupported_reason, case), partial(_judge, case, arrays))


def _remedy() -> str:
    command = "validate --suite torch_npu"
    if backends.simulated_soc() is None:
        return f"Install torch_npu. Without an NPU, simulate one: npu-rope sim -- npu-rope {command}."
    return f"To run them, {backends.simulated_torch_npu_remedy(command)}."


def _peer_lacks() -> str:
    pieces = [piece for piece in backends.npu_pieces() if piece.name in ("torch_npu", "CANN", "device")]
    absent = [piece.what for piece in pieces if piece.found is None]
    return f"it lacks {'; '.join(absent)}" if absent else ""


def peer_missing() -> str:
    """Return the pieces that torch_npu's own functions lack, and the remedy; empty if they can run."""
    lacks = _peer_lacks()
    return f"{lacks}. {_remedy()}" if lacks else ""


def require_peer() -> None:
    """Raise BackendUnavailable if torch_npu's own functions cannot run."""
    if lacks := _peer_lacks():
        raise BackendUnavailable(PEER, lacks, _remedy())


def _unsupported_reason(case: PortCase, executor: str) -> str:
    """Return in words why the executor does not support the case; empty if it does."""
    if torch is None:
        return cause
    function = FUNCTIONS[case.function]
    if executor != PEER:
        lacks = [op for op in function.operators if executor == "npu" and not registered[op].on_npu]
        return lacks_type(executor, (case.dtype,)) or (f"it does not have {lacks[0]}" if lacks else "")
    return limit_of(case, _chip()) or (function.not_simulated if backends.simulated_soc() else "")


def limit_of(case: PortCase, chip: str) -> str:
    """Return the documented limit of torch_npu's function that the call breaks on a chip; empty if none."""
    function, on_310p = FUNCTIONS[case.function], _is_310p(chip)
    has_wide_gamma = case.wide and "gamma" in function.tables and case.dtype != "float32"
    limits = {
        function.not_on_310p: on_310p,
        "Ascend310P has no bfloat16": on_310p and case.dtype == "bfloat16",
        f"{function.aclnn} has no {case.dtype}": case.dtype not in function.types,
        "gamma must have the dtype of input on Ascend310P": on_310p and has_wide_gamma,
        function.limit(case): True,
    }
    return next((limit for limit, is_broken in limits.items() if limit and is_broken), "")


def _judge(case: PortCase, arrays: Arrays, executor: str) -> Judgement:
    function = FUNCTIONS[case.function]
    invalid = function.invalid_on_310p if executor == PEER and _is_310p(_chip()) else ()
    results_of_case = function.results_of(case)
    names = [name for name in results_of_case if name not in invalid]

    def chosen(results: Sequence[T], names: Sequence[str] = names) -> list[T]:
        return [results[results_of_case.index(name)] for name in names]

    got = _run(case, arrays, executor)
    expected = chosen(function.expected(case, arrays, "" if executor == PEER else executor))
    judgement = compare_all(executor, chosen(got), expected, [f"{name}'s index" for name in names])
    if executor == PEER:
        both = zip(chosen(got), chosen(_run(case, arrays, "cpu")), strict=True)
        equal = np.concatenate([(result == on_cpu).ravel() for result, on_cpu in both])
        judgement.bit_equal = float(equal.mean())
    elif is_device(executor) and case.dtype != "float32":
        narrow = [n for n in names if n != "rstd" and function.dtype_of(case, n) == case.dtype]
        if narrow:
            results = (chosen(each, narrow) for each in (got, _run(case, arrays, "cpu")))
            flat, on_cpu = (np.concatenate([result.ravel() for result in each]) for each in results)
            require_near_cpu(judgement, flat, on_cpu, case.dtype)
    return judgement


def _chip() -> str:
    """Return the name of torch_npu's device."""
    load_torch_npu()
    return str(torch.npu.get_device_name(0))


def _is_310p(chip: str) -> bool:
    return chips.soc_of(chip) == "ascend310p"


def _run(case: PortCase, arrays: Arrays, executor: str) -> list[Array]:
    """Run a case and return the results in float64.

    Raises:
        AssertionError: the function wrote an input, or did not return the tensors that it overwrites.
    """
    function = FUNCTIONS[case.function]
    tensors = {
        name: torch.from_numpy(array).to(getattr(torch, function.dtype_of(case, name)))
        for name, array in arrays.items()
    }
    given = {name: tensor.clone() for name, tensor in tensors.items()}
    module: Any = compat
    if executor in (PEER, "npu"):
        load_torch_npu()
        given = {name: tensor.npu() for name, tensor in given.items()}
    if executor == PEER:
        module = sys.modules["torch_npu"]
    by_name = {name: given[name] for name in function.keywords(case)}
    in_order = [tensor for name, tensor in given.items() if name not in by_name]
    with _default_backend(None if executor == PEER else executor):
        returned = getattr(module, case.function)(*in_order, **by_name, **function.options(case))
    results = [returned] if isinstance(returned, torch.Tensor) else list(returned or ())
    if not function.returns_written:
        results = [*(given[name] for name in function.written), *results]
    for name, result in zip(function.written, results, strict=False):
        if result.data_ptr() != given[name].data_ptr():
            raise AssertionError(f"{case.function} must return {name} itself but returned another tensor")
    for name in given.keys() - set(function.written):
        if not torch.equal(given[name].cpu(), tensors[name]):
            raise AssertionError("an input was written")
    count = len(function.results_of(case))
    return [result.cpu().double().numpy() for result in results[:count]]


@contextmanager
def _default_backend(name: str | None) -> Iterator[None]:
    """Make ``name`` npu_rope's default back end."""
    before, backends.default_backend = backends.default_backend, name
    try:
        yield
    finally:
        backends.default_backend = before
