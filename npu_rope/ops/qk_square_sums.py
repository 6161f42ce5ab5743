"""qk_square_sums: the Python function, and the registration with torch."""

from __future__ import annotations

from functools import partial
from typing import Any

from npu_rope import backends
from npu_rope.call_tensors import CallTensors
from npu_rope.executors import qk_square_sums as executors
from npu_rope.executors import rules
from npu_rope.executors.tensors import is_tensor, require_tensor_like, spec_of
from npu_rope.ops import calls
from npu_rope.ops.gradients import Gradient
from npu_rope.ops.registrar import Call, TorchOperator, register
from npu_rope.optional_torch import torch

OP = "qk_square_sums"


def qk_square_sums(q: Any, k: Any, *, backend: str | None = None) -> Any:
    """Sum the squares of each token's queries and keys, over its heads.

    Under tensor parallelism, models that normalize over all heads of a token (OLMo 2, MiniMax-M2) add these
    sums over the ranks and pass them to :func:`npu_rope.qkv_norm_rope_cache`.

    Args:
        q: ``[S,Nq,D]``, torch tensor or NumPy array; float32, float16, bfloat16 or float64.
        k: ``[S,Nk,D]``, of q's dtype.
        backend: name of a back end; None: ``NPU_ROPE_BACKEND``, else by q's device.

    Returns:
        ``[S,2]`` float32 (float64 for float64): the sums of q's squares and of k's. On ``reference`` and
        ``cpu`` they are added in float64 and rounded once; an NPU adds in float32, in a fixed order.
        Gradients flow to q and k.

    Raises:
        ValueError, TypeError: an argument breaks its rule.
        BackendUnavailable: the back end is unavailable or lacks this operator.

    >>> import numpy as np
    >>> qk_square_sums(np.full((2, 3, 4), 2.0), np.ones((2, 1, 4))).tolist()
    [[48.0, 4.0], [48.0, 4.0]]
    """
    require_tensor_like(OP, "q", q)
    call, chosen = _tensors(q, k), backends.default_backend if backend is None else backend
    if is_tensor(q) and chosen in (None, q.device.type):
        try:
            return torch.ops.npu_rope.qk_square_sums.default(q, k)
        except (RuntimeError, ValueError, TypeError) as error:
            raise calls.exception_of_call(error, partial(_check, call, {})) from error.__cause__
    return calls.run_named(chosen, call, {}, executors.run)[0]


def _tensors(q: Any, k: Any) -> CallTensors[Any]:
    return CallTensors(OP, {"q": q, "k": k})


def _check(call: CallTensors[Any], attributes: Any) -> None:
    """Check every rule that needs neither an element's value nor an address. Tensors may be fake."""
    calls.check_devices(call)
    rules.check_layout(call.map(spec_of), {})


def _backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
    return tuple(
        (2 * gradient[:, side, None, None] * x).to(x.dtype) for side, x in enumerate(ctx.saved_tensors)
    )


def _call(q: Any, k: Any) -> Call:
    return _tensors(q, k), {}


register(
    TorchOperator(
        "qk_square_sums(Tensor q, Tensor k) -> Tensor",
        _call,
        _check,
        executors.on_cpu_tensors,
        results=lambda call: {"out": executors.new_sums(call.first[1])},
        gradient=Gradient(_backward),
    )
)
