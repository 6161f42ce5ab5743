"""Recognize the normalization that a model's module computes, by calling a copy of it, and replace it."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from npu_rope.integrations.left_to_compiler import is_compiling, is_norm_left_to_compiler
from npu_rope.integrations.rope_forms import NotKnown, or_not_known
from npu_rope.ops.calls import records_calls, try_hot_path
from npu_rope.ops.rms_norm import rms_norm, rms_norm_rounded_last
from npu_rope.rms_norm_calls import FORWARD, ROUNDED_LAST

ROUND_FIRST, ROUND_LAST = "rounded, then times the weight", "times the weight in float32, then rounded"
EPSILONS = ("variance_epsilon", "eps", "epsilon", "norm_eps")
# A float32 result with an error above this share of its largest element comes from another formula.
SAME_NORM = 1e-5
ROWS = 64
# Share of elements in which two bfloat16 results may differ. With another order of rounding, about a third of
# the elements differ.
MAX_DIFFERENT_SHARE = 0.02
ROW_SIZES = (1e4, 1e2, 1.0, 0.1)  # magnitudes of rows, in units of sqrt(epsilon)


@dataclass(frozen=True)
class NormForm:
    """A normalization of the last dimension by its root mean square.

    Attributes:
        weight: name of the weight's parameter; None: no weight.
        offset: number added to the weight.
        order: when the result is rounded to x's dtype.
        epsilon: name of epsilon's attribute.
        holds_for_mixed_dtypes: whether the form holds for x of another dtype than the weight's. If not, the
            module's own forward handles such x.
    """

    weight: str | None
    offset: float
    order: str
    epsilon: str
    holds_for_mixed_dtypes: bool = True

    def __str__(self) -> str:
        weight = (
            "no weight" if self.weight is None else f"{self.offset:g} + weight" if self.offset else "weight"
        )
        return f"{weight}; {self.order}"


def looks_like_norm(module: torch.nn.Module) -> bool:
    """Return whether the module's class is named like a norm and is no LayerNorm. The report lists every such
    module."""
    name = type(module).__name__
    return (name.endswith("Norm") or "RMSNorm" in name) and not isinstance(module, torch.nn.LayerNorm)


def classify(module: torch.nn.Module) -> NormForm:
    """Return the module's normalization. A copy with random weights is called in float32 and in bfloat16.

    Raises:
        NotKnown: the module has another form or raises an exception. The message has the reason.
    """
    form: NormForm = or_not_known(_classified, module)
    return form


def _classified(module: torch.nn.Module) -> NormForm:
    if any(True for _ in module.children()):
        raise NotKnown("it has modules of its own")
    names = list(inspect.signature(type(module).forward).parameters)
    if len(names) != 2:
        raise NotKnown(f"it takes ({', '.join(names[1:])}), not one tensor")
    parameters = dict(module.named_parameters(recurse=False))
    if len(parameters) > 1 or next(module.buffers(recurse=False), None) is not None:
        raise NotKnown("it has more than a weight")
    weight = next(iter(parameters), None)
    epsilon = next((n for n in EPSILONS if isinstance(getattr(module, n, None), float)), None)
    if epsilon is None:
        raise NotKnown(f"it has none of {', '.join(EPSILONS)}")
    width = getattr(module, "normalized_shape", (32,))[-1] if weight is None else parameters[weight].shape[-1]
    if weight is not None and parameters[weight].ndim != 1:
        raise NotKnown("its weight is not one-dimensional")
    probe = copy.deepcopy(module).to("cpu")
    probe.__dict__.pop("forward", None)
    generator = torch.Generator().manual_seed(0)
    if weight is not None:
        # Weights of 1 would hide the order of rounding, which only inexact products show.
        values = torch.rand(width, generator=generator, dtype=torch.float32) + 0.5
        setattr(probe, weight, torch.nn.Parameter(values, requires_grad=False))
    x = torch.randn(1, ROWS, width, generator=generator, dtype=torch.float32)
    # In some rows epsilon is negligible against the mean square, in others equal, and in others dominant.
    x *= (
        torch.tensor(ROW_SIZES, dtype=torch.float32).repeat(ROWS // len(ROW_SIZES))[:, None]
        * getattr(module, epsilon) ** 0.5
    )
    for offset in (0.0, 1.0) if weight is not None else (0.0,):
        for order in (ROUND_FIRST, ROUND_LAST):
            form = NormForm(weight, offset, order, epsilon)
            if _is_same(probe, form, x):
                mixed = weight is None or _holds_for_mixed_dtypes(probe, form, x)
                return replace(form, holds_for_mixed_dtypes=mixed)
    raise NotKnown("what it computes is no RMS normalization known here")


def _is_same(probe: torch.nn.Module, form: NormForm, x: torch.Tensor) -> bool:
    """Return whether the probe computes the form: in float32 within rounding errors, in training and
    evaluation mode; in bfloat16 bit for bit, except for a few elements."""
    with torch.no_grad():
        for training in (False, True):
            wanted, got = probe.train(training)(x), normalized(form, probe, x)
            if wanted.shape != got.shape or wanted.dtype != got.dtype:
                return False
            largest = wanted.abs().amax(-1, keepdim=True)
            if ((wanted - got).abs() > SAME_NORM * largest).any():
                return False
        narrow = copy.deepcopy(probe).to(torch.bfloat16)
        wanted, got = narrow(x.bfloat16()), normalized(form, narrow, x.bfloat16())
    return wanted.dtype == got.dtype and bool((wanted != got).float().mean() < MAX_DIFFERENT_SHARE)


def _holds_for_mixed_dtypes(probe: torch.nn.Module, form: NormForm, x: torch.Tensor) -> bool:
    """Return whether the form also holds if x and the weight have different dtypes."""
    narrow = copy.deepcopy(probe).to(torch.bfloat16)
    with torch.no_grad():
        for module, given in ((narrow, x), (probe, x.bfloat16())):
            wanted, got = module(given), normalized(form, module, given)
            if wanted.dtype != got.dtype:
                return False
            if wanted.dtype == torch.float32:
                if ((wanted - got).abs() > 4 * SAME_NORM * wanted.abs().amax(-1, keepdim=True)).any():
                    return False
            elif (wanted != got).float().mean() >= MAX_DIFFERENT_SHARE:
                return False
    return True


def normalized(form: NormForm, module: torch.nn.Module, x: torch.Tensor) -> Any:
    """Compute the module's form by :func:`npu_rope.rms_norm`, with the module's weight and epsilon."""
    epsilon = getattr(module, form.epsilon)
    if form.weight is None:
        ones = torch.ones(x.shape[-1], dtype=x.dtype, device=x.device)
        return rms_norm(x, ones, epsilon=epsilon)
    weight = weight_of(module, form.weight)
    operator, _ = operator_of(form, x.dtype) if x.dtype == weight.dtype else (None, None)
    if operator == FORWARD:
        return rms_norm(x, weight, epsilon=epsilon)
    if operator == ROUNDED_LAST or form.order == ROUND_LAST:
        return rms_norm_rounded_last(x, weight, epsilon, form.offset)
    weight = weight + form.offset if form.offset else weight
    # torch multiplies two dtypes in the promoted one.
    return rms_norm(x, weight.to(torch.promote_types(x.dtype, weight.dtype)), epsilon=epsilon)


def operator_of(form: NormForm, dtype: torch.dtype) -> tuple[str, float] | tuple[None, None]:
    """Return the operator that computes a form if x and the weight have this dtype, and the operator's last
    argument, which is stash_type or scale_offset. None: no single operator does."""
    if not form.offset and (form.order == ROUND_FIRST or dtype in _WIDE):
        return FORWARD, 1
    if dtype == torch.float32 or (form.order == ROUND_LAST and dtype != torch.float64):
        return ROUNDED_LAST, form.offset
    return None, None


_WIDE = (torch.float32, torch.float64)
_DTYPES = (torch.float16, torch.bfloat16, *_WIDE)


def weight_of(module: torch.nn.Module, name: str) -> torch.Tensor:
    """Return the module's weight. The parameters' dictionary is read first, because an attribute lookup costs
    a tenth of the time of a decode-sized call. The dictionary lacks a parametrized weight."""
    weight = module._parameters.get(name)
    if weight is None:
        weight = getattr(module, name)
    return weight


def _is_usual(form: NormForm, module: torch.nn.Module, x: torch.Tensor) -> bool:
    """Return whether x and epsilon are like those with which the form was recognized. The module's own
    forward handles others, such as integers, or rows of one number that the weight broadcasts."""
    epsilon = getattr(module, form.epsilon)
    if type(epsilon) is not float or not 0 <= epsilon < 1e38 or x.dtype not in _DTYPES or x.ndim == 0:
        return False
    if form.weight is None:
        return True
    weight = weight_of(module, form.weight)
    return weight.dtype in _DTYPES and x.shape[-1] == weight.shape[0]


def replacement(form: NormForm, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for modules of this form, whose class has the original one. Its name is ``forward``:
    pickle finds methods by name. Its parameter has the original's name, for callers that name it. It
    does not read ``type(self)``, because torch.compile would compare the classes of all norms in each call of
    the graph."""
    name, epsilon = form.weight, form.epsilon
    operators = {dtype: operator_of(form, dtype) for dtype in (torch.float32, torch.float16, torch.bfloat16)}

    def forward(self: Any, hidden_states: Any) -> Any:
        if is_compiling() and is_norm_left_to_compiler(hidden_states):
            return original(self, hidden_states)
        weight = self._parameters.get(name)
        if weight is not None and weight.dtype == hidden_states.dtype:
            # The usual call: the lines below would take a fifth of the time of a decode-sized call.
            operator, last = operators.get(weight.dtype, (None, None))
            if operator is not None and type(e := getattr(self, epsilon)) is float:
                y = try_hot_path(operator, (hidden_states, weight), (-1, e, last))
                if y is not NotImplemented:
                    return y
        if records_calls() or not _is_usual(form, self, hidden_states):
            return original(self, hidden_states)
        if not form.holds_for_mixed_dtypes and hidden_states.dtype != getattr(self, str(name)).dtype:
            return original(self, hidden_states)
        return normalized(form, self, hidden_states)

    code = forward.__code__
    names = tuple(inspect.signature(original).parameters)
    forward.__code__ = code.replace(co_varnames=(*names, *code.co_varnames[len(names) :]))
    return forward
