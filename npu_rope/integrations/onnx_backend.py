"""An ``onnx.backend`` of the operators that npu_rope has: RMSNormalization and RotaryEmbedding.

It runs models that have no other nodes, on any of npu_rope's back ends. It needs the onnx package
(``pip install 'npu-rope[onnx]'``).

    import npu_rope.integrations.onnx_backend as backend

    outputs = backend.run_model(model, inputs, backend="cpu")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper
from onnx.backend.base import Backend, BackendRep

from npu_rope import rms_norm, rotary_embedding

Array = npt.NDArray[Any]
OPSET = 23  # the first opset that has the operators


def _run(
    operator: Callable[..., Any],
    names: Sequence[str],
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    backend: str | None,
) -> tuple[Any]:
    """Run an operator on a node's inputs. Pass those of the named attributes that the node has."""
    named = {name: attributes[name] for name in names if name in attributes}
    return (operator(*inputs, **named, backend=backend),)


OPERATORS: Mapping[str, Callable[[Sequence[Any], Mapping[str, Any], str | None], tuple[Any, ...]]] = {
    "RMSNormalization": partial(_run, rms_norm, ("axis", "epsilon", "stash_type")),
    "RotaryEmbedding": partial(_run, rotary_embedding, ("interleaved", "num_heads", "rotary_embedding_dim")),
}


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {argument.name: helper.get_attribute_value(argument) for argument in node.attribute}


def _is_supported(node: onnx.NodeProto) -> bool:
    return node.domain in ("", "ai.onnx") and node.op_type in OPERATORS


def _kind(node: onnx.NodeProto) -> str:
    return f"{node.domain or 'ai.onnx'}.{node.op_type}"


def _unsupported(model: onnx.ModelProto) -> str | None:
    """Return the part of a model that npu_rope does not support, as an error's value, or None."""
    versions = {opset.domain or "ai.onnx": opset.version for opset in model.opset_import}
    if versions.get("ai.onnx", 0) < OPSET:
        return f"opset {versions.get('ai.onnx', 0)}"
    for node in model.graph.node:
        if not _is_supported(node):
            return f"node {node.name or node.output[0]}, which is {_kind(node)}"
    return None


class NpuRopeModel(BackendRep):
    """A prepared model.

    Args:
        model: all its nodes are :data:`OPERATORS`.
        backend: one of npu_rope's back ends; None: the default one.
    """

    def __init__(self, model: onnx.ModelProto, backend: str | None = None) -> None:
        self._graph, self._backend = model.graph, backend
        initialisers = self._graph.initializer
        self._initialisers = {tensor.name: numpy_helper.to_array(tensor) for tensor in initialisers}
        self._all_inputs = {value.name: value.type for value in model.graph.input}
        self._inputs = [name for name in self._all_inputs if name not in self._initialisers]

    def _checked(self, name: str, value: Array) -> Array:
        """Return an input that has the type and the sizes which the graph declares."""
        if not self._all_inputs[name].HasField("tensor_type"):
            return value
        declared = self._all_inputs[name].tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(declared.elem_type)
        if value.dtype != dtype:
            raise TypeError(f"[onnx_backend] {name} must be {dtype} but got {value.dtype}.")
        if declared.HasField("shape"):
            dims = declared.shape.dim  # some exporters write -1 for an unknown size
            sizes = [n.dim_value if n.HasField("dim_value") and n.dim_value >= 0 else None for n in dims]
            if len(sizes) != value.ndim or any(
                n not in (None, m) for n, m in zip(sizes, value.shape, strict=True)
            ):
                shape = ",".join("?" if n is None else str(n) for n in sizes)
                raise ValueError(
                    f"[onnx_backend] {name} must have shape [{shape}] but got {list(value.shape)}."
                )
        return value

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Array, ...]:
        """Return the graph's outputs. ``inputs`` is a sequence of the inputs without initialisers, in the
        graph's order, or a mapping by name, which may also replace initialisers.

        Raises:
            ValueError, TypeError: an input is missing, unknown, or breaks an operator's rule.
        """
        if isinstance(inputs, np.ndarray):
            raise TypeError("[onnx_backend] inputs must be a list or a mapping but got an array.")
        if not isinstance(inputs, Mapping):
            if len(inputs) != len(self._inputs):
                raise ValueError(
                    f"[onnx_backend] inputs must have length {len(self._inputs)} but got {len(inputs)}."
                )
            inputs = dict(zip(self._inputs, inputs, strict=True))
        missing = [name for name in self._inputs if name not in inputs]
        if missing:
            got = ", ".join(inputs) or "none"
            raise ValueError(f"[onnx_backend] inputs must have {', '.join(missing)} but got {got}.")
        if unknown := [name for name in inputs if name not in self._all_inputs]:
            known = ", ".join(self._all_inputs)
            raise ValueError(f"[onnx_backend] inputs must be the graph's {known} but got {unknown[0]}.")
        values: dict[str, Any] = dict(self._initialisers)
        values.update({name: self._checked(name, np.asarray(value)) for name, value in inputs.items()})
        for node in self._graph.node:
            given = [values[name] if name else None for name in node.input]
            results = OPERATORS[node.op_type](given, _attributes(node), self._backend)
            values.update(zip(node.output, results, strict=False))
        return tuple(values[output.name] for output in self._graph.output)


class NpuRopeBackend(Backend):
    """ONNX's interface of a back end. The argument ``backend`` names one of npu_rope's back ends."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Return whether the device is CPU, the opset has the operators, and every node is one of them."""
        return cls.supports_device(device) and _unsupported(model) is None

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto, device: str = "CPU", *, backend: str | None = None, **kwargs: Any
    ) -> NpuRopeModel:
        """Return a checked model, ready to run.

        Raises:
            ValueError: the device is not CPU, the opset is too old, or a node is none of :data:`OPERATORS`.
        """
        cls._require_device(device)
        onnx.checker.check_model(model)
        if (got := _unsupported(model)) is not None:
            rule = f"only nodes {', '.join(OPERATORS)} of opset {OPSET} or later"
            raise ValueError(f"[onnx_backend] model must have {rule} but got {got}.")
        return NpuRopeModel(model, backend)

    @classmethod
    def run_model(
        cls,
        model: onnx.ModelProto,
        inputs: Any,
        device: str = "CPU",
        *,
        backend: str | None = None,
        **kwargs: Any,
    ) -> tuple[Array, ...]:
        """Run a model once: :meth:`prepare`, then :meth:`NpuRopeModel.run`."""
        return cls.prepare(model, device, backend=backend).run(inputs)

    @classmethod
    def run_node(  # type: ignore[override]  # onnx declares **kwargs as dicts
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Any = None,
        *,
        backend: str | None = None,
        **kwargs: Any,
    ) -> tuple[Array, ...]:
        """Run one node on its inputs, in the node's order.

        Raises:
            ValueError: the device is not CPU, or the node is none of :data:`OPERATORS`, or has other inputs,
                outputs or attributes than ONNX's operator.
        """
        cls._require_device(device)
        if not _is_supported(node):
            rule = f"node must be {', '.join(OPERATORS)}"
            raise ValueError(f"[onnx_backend] {rule} but got {_kind(node)}.")
        checked = onnx.NodeProto()
        checked.CopyFrom(node)
        checked.domain = ""  # the checker knows ai.onnx by this name only
        try:
            onnx.checker.check_node(checked)
        except onnx.checker.ValidationError as error:
            cause = str(error).splitlines()[0]
            raise ValueError(f"[onnx_backend] node must be one of ONNX but got: {cause}") from None
        if isinstance(inputs, np.ndarray):
            raise TypeError("[onnx_backend] inputs must be a list but got an array.")
        given, present = list(inputs), [bool(name) for name in node.input]
        if len(given) == sum(present):  # those with an empty name are left out
            values = iter(given)
            given = [next(values) if is_given else None for is_given in present]
        elif len(given) != len(present):
            rule = f"inputs must have length {len(present)}"
            raise ValueError(f"[onnx_backend] {rule} but got {len(given)}.")
        return OPERATORS[node.op_type](given, _attributes(node), backend)

    @classmethod
    def _require_device(cls, device: str) -> None:
        if not cls.supports_device(device):
            raise ValueError(
                f"[onnx_backend] device must be CPU (backend= names npu_rope's) but got {device}."
            )

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether the device is CPU. Inputs and outputs are arrays of the host on every backend."""
        return device.partition(":")[0] == "CPU"


is_compatible = NpuRopeBackend.is_compatible
prepare = NpuRopeBackend.prepare
run_model = NpuRopeBackend.run_model
run_node = NpuRopeBackend.run_node
supports_device = NpuRopeBackend.supports_device
