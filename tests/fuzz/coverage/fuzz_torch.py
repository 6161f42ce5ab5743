"""Fuzz the operators of torch on the CPU, and npu_rope's functions, with tensors of any kind.

The bytes choose an operator of ``torch.ops.npu_rope`` or a function of npu_rope, its tensors and its
attributes. The tensors fit, or have other sizes, strides, types or numbers of dimensions, overlap, lie on
another device, have no memory, or are of a kind that no operator reads. Properties of every call:

- AddressSanitizer and UndefinedBehaviorSanitizer, with which the library is built, report nothing.
- A failure has the form "[operator] argument must RULE but got VALUE.", or is an error of torch itself
  (TORCH_ERRORS).
- Results and gradients are those of the same call on dense copies (torch_gradients.py).
- A call that fails leaves all memory as it was. A call that succeeds writes only the elements of its outputs.
  The memory of sparse and quantized tensors is not compared.

scripts/fuzz.sh runs this program. Options: python_fuzzer.py.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Sequence
from typing import Any

import atheris
from python_fuzzer import Program
from torch_gradients import DifferentiableCall

with atheris.instrument_imports(include=["npu_rope.ops", "npu_rope.executors"]):
    import npu_rope
import torch

from npu_rope import RopeMode, RopeParams, backends
from npu_rope.errors import BrokenRule
from npu_rope.ops import rms_norm_rope

MEMORY_BYTES = 1 << 31
MOST_ELEMENTS = 1 << 15
MARGIN = 24  # elements before and after each tensor
ERROR = re.compile(r"\[\w+\] (.+?) must .+ but got .*", re.DOTALL)
# Errors of torch: no operator of a CPU takes the tensor, autograd refuses the write, or a gradient needs a
# sum of more dimensions than torch sums.
TORCH_ERRORS = re.compile(
    "a leaf Variable that requires grad|Could not run 'npu_rope::"
    "|a view of a leaf Variable|Inference tensors cannot be saved for backward"
    "|only tensors with up to 64 dims are supported"
    "|setStorage: sizes .* are out of bounds for storage of size 0"  # a part of released memory
)

# ---- tensors ---------------------------------------------------------------------------------------------

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
INTEGERS = (torch.int32, torch.int64)
OTHERS = (*FLOATS, *INTEGERS, torch.int8, torch.uint8, torch.bool, torch.int16, torch.complex64,
          torch.float8_e4m3fn, torch.uint32)  # fmt: skip
HOSTILE_INTEGERS = (0, 1, -1, 2, 3, 8, 64, 2**31 - 1, 2**31, -(2**31), 2**62, -(2**63), 2**63 - 1)
HOSTILE_FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-5, 10000.0, 32.0, 1e308, 5e-324, float("nan"), float("inf"))
# In which way a tensor differs from the usual one.
WAYS = ("", "", "", "", "", "transposed", "with gaps", "repeated", "any stride", "other size", "other rank",
        "other type", "another tensor", "special", "every second", "")  # fmt: skip
SPECIAL = ("meta", "sparse", "released", "conjugate", "negative", "leaf", "computed", "inference", "empty",
           "quantized", "misaligned")  # fmt: skip
UNWRITTEN = -7.0
POOL = torch.rand(MOST_ELEMENTS * 2 + 2 * MARGIN, generator=torch.Generator().manual_seed(0)) + 0.5


class Memory:
    """The tensors of a call, their memory, and the elements that the call may write."""

    def __init__(self, data: atheris.FuzzedDataProvider, releases: bool) -> None:
        self.data, self._releases = data, releases
        self._buffers: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._written: list[torch.Tensor] = []
        self._expected: list[torch.Tensor] = []
        self._drawn: list[torch.Tensor] = []

    def write(self, *tensors: Any) -> None:
        """Let the call write the elements of these tensors."""
        self._written += [each for each in tensors if isinstance(each, torch.Tensor)]

    def expect(self, result: torch.Tensor) -> None:
        """Require the call to write this tensor, which is no other tensor of the call: fill it with a number
        that no result has."""
        if result.layout == torch.strided and result.dtype in FLOATS and result.numel():
            for buffer, before in self._buffers:
                if _memory_of(result) == _memory_of(buffer) and not buffer.is_inference():
                    buffer.fill_(UNWRITTEN)
                    before.copy_(buffer)
                    self._expected.append(result)

    def in_place(self, arguments: Sequence[Any], out: Any) -> Any:
        """Return the first of these arguments instead of the results, as far as there are tensors."""
        results = out if isinstance(out, tuple) else (out,)
        own = tuple(arguments[: len(results)])
        if not all(isinstance(each, torch.Tensor) for each in (*own, *results)):
            return out
        self._expected = [each for each in self._expected if not any(each is one for one in results)]
        self.write(*own)
        return own if isinstance(out, tuple) else own[0]

    def is_written(self, tensor: torch.Tensor) -> bool:
        """Return whether the call may write this tensor."""
        return any(each is tensor for each in self._written)

    def replace(self, tensor: torch.Tensor, other: torch.Tensor) -> None:
        """Let the call take another tensor of the same elements instead."""
        if self.is_written(tensor):
            self._written.append(other)
        self._expected = [other if each is tensor else each for each in self._expected]
        self._drawn = [other if each is tensor else each for each in self._drawn]

    def check(self, failed: bool) -> None:
        """Raise AssertionError if other elements than those of outputs have changed, or if a call that has
        not failed left a result as it was."""
        for result in () if failed else self._expected:
            # flatten: torch reduces at most 64 dimensions
            is_read = sum(_memory_of(each) == _memory_of(result) for each in self._drawn) > 1
            if not is_read and (_detached(result) == UNWRITTEN).flatten().all():
                raise AssertionError("a result must be written but the call left it as it was")
        for buffer, before in self._buffers:
            changed = _bytes(buffer).ne(_bytes(before)).any(1)
            if not failed:
                for tensor in self._written:
                    if tensor.numel() and _memory_of(tensor) == _memory_of(buffer):
                        steps = tensor.stride()
                        shape = [n if step else 1 for n, step in zip(tensor.shape, steps, strict=True)]
                        torch.as_strided(changed, shape, steps, tensor.storage_offset()).fill_(False)
            if changed.any():
                raise AssertionError(f"memory must be as before but the {'failed ' * failed}call changed it")

    def _buffer(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        n = elements + 2 * MARGIN
        if dtype in INTEGERS:
            kind = self.data.ConsumeIntInRange(0, 7)
            buffer = torch.arange(-MARGIN, elements + MARGIN, dtype=dtype)
            if kind == 1:
                buffer.mul_(-(2**20))
            elif kind == 2:
                buffer.fill_(self.data.PickValueInList([-1, 1, 2, 100, 2**31 - 1, -(2**31)]))
            elif kind == 3:
                buffer.mul_(2**24 + 1)
        elif dtype.is_floating_point or dtype.is_complex:
            buffer = POOL[:n].to(dtype)
        else:
            buffer = POOL[:n].to(torch.uint8).to(dtype)
        return self.keep(buffer.clone())

    def keep(self, values: torch.Tensor) -> torch.Tensor:
        """Compare these elements after the call. Return them."""
        if values.numel():
            self._buffers.append((values, values.clone()))
        return values

    def tensor(self, shape: Sequence[int], dtype: torch.dtype, is_result: bool) -> torch.Tensor:
        """Return a tensor of this shape and type, or another one. A result holds a number that none has."""
        earlier = len(self._buffers)
        drawn = self._tensor(list(shape), dtype)
        self._drawn.append(drawn)
        if is_result and len(self._buffers) > earlier:  # it is no other tensor of the call
            self.expect(drawn)
        return drawn

    def _tensor(self, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
        data = self.data
        way = data.PickValueInList(list(WAYS))
        if way == "other size" and shape:
            shape[data.ConsumeIntInRange(0, len(shape) - 1)] = data.PickValueInList([0, 1, 2, 3, 5, 8, 16])
        elif way == "other rank":
            extra = data.PickValueInList([1, 2, 3, 20, 58, 59, 60, 70, 200])
            if data.ConsumeBool():
                shape[data.ConsumeIntInRange(0, len(shape)) : 0] = [1] * extra
            else:
                shape = shape[data.ConsumeIntInRange(0, len(shape)) :]
        elif way == "other type":
            dtype = data.PickValueInList(list(OTHERS))
        elif way == "another tensor" and self._drawn:
            return self._alias(data.PickValueInList(self._drawn), shape)
        if _elements(shape) > MOST_ELEMENTS:
            shape = [min(n, 2) for n in shape[-8:]]
        tensor = self._strided(shape, dtype, way)
        return self._special(tensor) if way == "special" else tensor

    def _strided(self, shape: list[int], dtype: torch.dtype, way: str) -> torch.Tensor:
        """Return a new tensor with usual or unusual strides."""
        data, steps, step = self.data, [0] * len(shape), 1
        order = list(range(len(shape)))[::-1]
        gap = 1
        if way == "transposed" and len(shape) > 1:
            at = data.ConsumeIntInRange(0, len(shape) - 2)
            order[at], order[at + 1] = order[at + 1], order[at]
        elif way in ("with gaps", "every second"):
            gap = data.ConsumeIntInRange(2, 3)
        for place, k in enumerate(order):
            if place == (0 if way == "every second" else 1):
                step *= gap
            steps[k] = step
            step *= max(shape[k], 1)
        if way == "repeated" and shape:
            steps[data.ConsumeIntInRange(0, len(shape) - 1)] = 0
        elif way == "any stride" and shape:
            steps[data.ConsumeIntInRange(0, len(shape) - 1)] = data.ConsumeIntInRange(0, 9)
        last = sum((n - 1) * each for n, each in zip(shape, steps, strict=True)) if 0 not in shape else 0
        if last >= 2 * MOST_ELEMENTS:
            steps, last = [0] * len(shape), 0
        return torch.as_strided(self._buffer(last + 1, dtype), shape, steps, MARGIN)

    def _alias(self, other: torch.Tensor, shape: list[int]) -> torch.Tensor:
        """Return another tensor of the call, or one that overlaps it."""
        data = self.data
        if data.ConsumeBool() or other.layout != torch.strided or other.is_quantized or other.is_meta:
            return other
        if _elements(shape) + MARGIN > other.untyped_storage().nbytes() // other.itemsize:
            return other
        steps = torch.empty(shape, device="meta").stride()
        return torch.as_strided(other, shape, steps, data.ConsumeIntInRange(0, MARGIN))

    def _special(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of a kind that is not an array in memory, or that autograd knows."""
        kind = self.data.PickValueInList(list(SPECIAL))
        if kind == "meta":
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        if kind == "sparse" and tensor.dtype in FLOATS:
            return tensor.to_sparse()
        # torch gives the address of released memory as 0; behind an offset it gives no sign of it. Its own
        # functions, which read integers, compute gradients of gradients, and print arguments of a wrong type,
        # end the process.
        if kind == "released" and tensor.dtype not in INTEGERS and self._releases:
            released = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
            released.untyped_storage().resize_(0)
            return released
        if kind == "conjugate" and tensor.dtype.is_complex:
            return tensor.conj()
        elif kind == "negative" and tensor.dtype in FLOATS:
            return torch._neg_view(tensor)
        elif kind == "leaf" and tensor.dtype in FLOATS:
            tensor.requires_grad_()
        elif kind == "computed" and tensor.dtype in FLOATS and tensor.numel():  # its memory is its own
            tensor = (tensor.clone(memory_format=torch.contiguous_format).requires_grad_() * 1).contiguous()
            self.keep(tensor.detach().view(-1))
        elif kind == "inference":
            with torch.inference_mode():
                tensor = tensor.clone(memory_format=torch.contiguous_format)
                self.keep(tensor.view(-1))
        elif kind == "empty":
            return torch.empty(0, dtype=tensor.dtype)
        elif kind == "misaligned" and tensor.numel():
            whole = torch.frombuffer(bytearray(tensor.numel() * tensor.itemsize + 1), dtype=torch.uint8)
            flat = torch.frombuffer(whole.numpy(), dtype=tensor.dtype, count=tensor.numel(), offset=1)
            self.keep(flat)
            return flat.view(tensor.shape)
        elif kind == "quantized":
            return torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.quint8)
        return tensor


def text(value: Any) -> str:
    """Return an argument in words."""
    if isinstance(value, tuple):
        return f"({', '.join(map(text, value))})"
    if not isinstance(value, torch.Tensor):
        return repr(value)
    strides = value.stride() if value.layout == torch.strided else value.layout
    kinds = [kind for kind in ("is_meta", "requires_grad", "is_quantized") if getattr(value, kind)]
    return " ".join([f"{value.dtype}{list(value.shape)}", f"strides {strides}", *kinds])


def _elements(shape: Sequence[int]) -> int:
    product = 1
    for n in shape:
        product *= n
    return product


def _bytes(buffer: torch.Tensor) -> torch.Tensor:
    return buffer.detach().view(torch.uint8).view(buffer.numel(), -1)


def _detached(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_neg()


def _memory_of(tensor: torch.Tensor) -> int:
    if tensor.layout != torch.strided or tensor.is_meta:
        return 0
    return tensor.untyped_storage().data_ptr()


# ---- arguments -------------------------------------------------------------------------------------------


class Call:
    """The sizes, types and attributes that the arguments of a call share, and its memory."""

    def __init__(self, data: atheris.FuzzedDataProvider, op: str, releases: bool) -> None:
        self.data, self.op, self.memory = data, op, Memory(data, releases)
        pick = data.PickValueInList
        self.batch, self.tokens = pick([1, 1, 2, 0]), pick([1, 3, 4, 2, 0, 33])
        self.heads, self.k_heads = pick([1, 2, 4, 5]), pick([1, 2])
        self.size = pick([8, 2, 4, 16, 32, 64, 80, 128, 256, 6, 7])
        self.dtype = pick(list(FLOATS))
        self.table_dtype = self.dtype if data.ConsumeIntInRange(0, 3) else torch.float32
        self.integers = pick(list(INTEGERS))
        self.mode = pick([RopeMode.NORMAL, RopeMode.NEOX, *RopeMode])
        self.n_dims = self.size // (2 if self.mode == RopeMode.VISION else 1)
        if data.ConsumeIntInRange(0, 3) == 0:
            self.n_dims = self.integer(self.size // 2)
        # Which of its usual shapes a tensor has: all that of one number fit together.
        self.form = 0 if "set_rows" in op and "qkv" not in op else pick([0, 0, 1, 2])
        self.form = 1 if "qkv" in op else self.form
        self.has_table, self.has_norm, self.has_v = data.ConsumeBool(), data.ConsumeBool(), data.ConsumeBool()

    def is_given(self, name: str) -> bool:
        """Return whether an optional tensor is given: in most calls, those that belong together."""
        usual = {"positions": True, "slots": True, "k_cache": True, "v": self.has_v, "v_cache": self.has_v}
        usual |= {"cos": self.has_table, "sin": self.has_table, "v_out": self.has_v}
        usual |= {"q_scale": self.has_norm, "k_scale": self.has_norm}
        return usual.get(name, False) ^ (self.data.ConsumeIntInRange(0, 15 if "qkv" in self.op else 3) == 0)

    def integer(self, usual: int) -> int:
        """Return a number that fits, or another one."""
        if self.data.ConsumeIntInRange(0, 15):
            return usual
        return int(
            self.data.PickValueInList([usual // 2, usual * 2 if abs(usual) < 2**62 else 0, *HOSTILE_INTEGERS])
        )

    def number(self, usual: float) -> float:
        """Return a number that fits, or another one."""
        if self.data.ConsumeIntInRange(0, 15):
            return usual
        return float(self.data.PickValueInList(list(HOSTILE_FLOATS)))

    def flag(self, usual: bool) -> bool:
        return usual ^ (self.data.ConsumeIntInRange(0, 3) == 0)

    def tensor(self, name: str) -> torch.Tensor:
        """Return a tensor for the argument of this name."""
        shapes, dtype = self._usual(name)
        shape = shapes[min(self.form, len(shapes) - 1)]
        if self.data.ConsumeIntInRange(0, 7) == 0:
            shape = self.data.PickValueInList(shapes)
        # In these operators k_out may be a cache, which rows of -1 leave as it is.
        may_be_cache = name == "k_out" and "norm_rope" in self.op
        return self.memory.tensor(shape, dtype, name in RESULTS and not may_be_cache)

    def _usual(self, name: str) -> tuple[list[list[int]], torch.dtype]:
        b, s, n, d = self.batch, self.tokens, self.heads, self.size
        if name.startswith(("k_quant", "v_quant")):
            return [[1], [self.k_heads], [self.k_heads, d]], torch.float32
        if name in ("cache", "k_cache", "v_cache"):
            n = n if name == "cache" and "norm" not in self.op else self.k_heads
            dtypes = [self.dtype] * 4 + [torch.float16, torch.int8, torch.float32]
            return [[64, n, d], [8, 8, n, d], [8, n, 8, d]], self.data.PickValueInList(dtypes)
        if name in ("positions", "rows", "slots", "start_pos", "pad_len", "seqstarts", "position_ids"):
            shapes = {
                "positions": [[4, s], [4, s], [3, s]] if self.mode.value & 8 else [[s], [s], [b, s]],
                "rows": [[b, s], [s]],
                "slots": [[s]],
                "position_ids": [[b, s]],
                "seqstarts": [[b + 1]],
            }
            return shapes.get(name, [[b], [1], []]), self.integers
        if name == "freq_factors":
            return [[max(0, min(self.n_dims, 512)) // 2], [d // 2]], torch.float32
        if name in ("cos_cache", "sin_cache"):
            return [[64, d // 2], [b, s, d // 2]], self.table_dtype
        if name in ("cos", "sin"):
            if "qkv" in self.op:
                return [[64, d], [64, d], [s, d // 2]], self.table_dtype
            return [[1, s, 1, d], [s, d], [1, 1, s, d], [b, s, 1, d], [s, d // 2]], self.table_dtype
        if name == "square_sums":
            return [[s, 2], [s, 2], [b, s, 2]], torch.float32
        if name == "packed":
            return [[self.data.PickValueInList([24, 32, 88, 104, 112])]], torch.uint8
        if name.endswith(("scale", "bias")):
            return [[d], [d], [1], [n, d]], self.table_dtype
        if name.startswith(("k", "v")):
            n = self.k_heads
        return [[b, s, n, d], [s, n, d], [b, n, s, d], [b, s, n * d]], self.dtype

    def packed(self, name: str) -> torch.Tensor:
        """Return the packed attributes of an operator, or other bytes. Raises ValueError if the attributes
        break its rules."""
        kind = self.data.ConsumeIntInRange(0, 7)
        if kind == 0:
            return self.tensor("packed")
        if "norm_rope" in name:
            attributes = rms_norm_rope.attributes_of(
                self.params(), self.number(1e-5), self.flag(False), self.angle()
            )
            content = backends.packed("rms_norm_rope", attributes)
        elif "rms_norm" in name:
            content = backends.packed_values("rms_norm", self.integer(-1), self.number(1e-5), self.integer(1))
        elif "rotary_mul" in name:
            flags = self.flag(False), self.flag(True)
            content = backends.packed_values(
                "rotary_mul_qk", flags[0], self.integer(0), self.integer(0), flags[1]
            )
        else:
            content = backends.packed_call(self.params(), self.flag(True), self.angle())
        if kind == 1:  # one byte is another
            at = self.data.ConsumeIntInRange(0, len(content) - 1)
            content = content[:at] + bytes([self.data.ConsumeIntInRange(0, 255)]) + content[at + 1 :]
        return torch.tensor(list(content), dtype=torch.uint8)

    def angle(self) -> Any:
        """Return a policy for angles."""
        return self.data.PickValueInList(["exact", "f32", "ggml"])

    def params(self) -> RopeParams:
        """Return parameters of rope. Raises BrokenRule if they break its rules."""
        return RopeParams(
            n_dims=self.n_dims,
            mode=self.mode,
            freq_base=self.number(10000.0),
            freq_scale=self.number(1.0),
            ext_factor=self.number(0.0),
            attn_factor=self.number(1.0),
            n_ctx_orig=self.integer(0),
            sections=(self.size // 4, self.size // 4, 0, 0) if self.mode.value & 8 else None,
            n_offs=self.integer(0),
        )

    def attribute(self, name: str, kind: str, usual: Any) -> Any:
        """Return an attribute of an operator: its type in the schema is ``kind``, its default ``usual``."""
        pick = self.data.PickValueInList
        if name == "sections":
            quarter = self.size // 4
            usual = [quarter, quarter, 0, 0] if self.mode.value & 8 else None
            return pick([usual] * 8 + [None, [1, 1, 1, 1], [2**40, 0, 0, -1], [1], []])
        if name in ("rope_mode", "angle"):
            return self.integer(self.mode.value if name == "rope_mode" else pick([0, 1, 2]))
        if kind == "bool":
            return self.flag(bool(usual))
        if kind == "str":
            return pick(["", "linear", "dynamic", "x"])
        if kind == "float":
            return self.number(float(usual))
        given = {"n_dims": self.n_dims, "num_heads": self.heads if self.form == 3 else 0}
        return self.integer(given.get(name, usual or 0))


def operator_call(call: Call, name: str) -> tuple[Any, list[Any], dict[str, Any]]:
    """Return an operator, its positional and its named arguments."""
    operator = getattr(torch.ops.npu_rope, name.removeprefix("npu_rope::")).default
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for argument in operator._schema.arguments:
        kind = str(argument.type)
        if "Tensor" in kind:
            if kind.startswith("Optional") and not call.is_given(argument.name):
                value = None
            else:
                value = call.packed(name) if argument.name == "packed" else call.tensor(argument.name)
            if value is not None and argument.alias_info is not None and argument.alias_info.is_write:
                call.memory.write(value)
        else:
            value = call.attribute(argument.name, kind, argument.default_value)
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            positional.append(value)
    return operator, positional, named


IN_PLACE = {"x", "q", "k"}
WRITTEN = {"out", "cache", "k_cache", "v_cache"}
RESULTS = {"out", "q_out", "k_out", "sum", "Y"}
Q_AND_K = ("q_out", "k_out")
PAIRS = {
    "rope_qk": Q_AND_K,
    "rotary_mul_qk": Q_AND_K,
    "rms_norm_rope": Q_AND_K,
    "add_rms_norm": ("out", "sum"),
}
PAIRS |= {"qkv_norm_rope_cache": (*Q_AND_K, "v_out")}


def function_call(call: Call, name: str) -> tuple[Any, list[Any], dict[str, Any]]:
    """Return a function of npu_rope and its arguments."""
    function = getattr(npu_rope, name)
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for each in inspect.signature(function).parameters.values():
        value: Any
        given = each.default is None and each.name != "backend" and call.is_given(each.name)
        if each.name == "backend" or (each.default is None and not given):
            value = None
        elif each.name == "params":
            value = call.params()
        elif each.name == "out" and name in PAIRS:
            value = tuple(call.tensor(part) for part in PAIRS[name])
            call.memory.write(*value)
        elif each.name == "angle":
            value = call.angle()
        elif each.default is inspect.Parameter.empty or each.default is None:
            value = call.tensor(each.name)
        else:
            value = call.attribute(each.name, type(each.default).__name__, each.default)
        if each.name in WRITTEN or (name.endswith("_") and each.name in IN_PLACE):
            call.memory.write(value)
        if each.kind is inspect.Parameter.KEYWORD_ONLY:
            named[each.name] = value
        else:
            positional.append(value)
    return function, positional, named


# ---- calls -----------------------------------------------------------------------------------------------

torch.set_num_threads(1)
npu_rope.rope(torch.zeros(1, 1, 1, 2), torch.zeros(1, dtype=torch.int32), RopeParams(n_dims=2))  # registers
OPERATORS = sorted(
    {schema.name for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("npu_rope::")}
)
FUNCTIONS = sorted(name for name in npu_rope.__all__ if inspect.isfunction(getattr(npu_rope, name)))
MODES = (torch.no_grad, torch.inference_mode, torch.enable_grad)
MENDED = {  # the outcome of each input of the corpus that once broke a property
    "mended-angle": "npu_rope::rms_norm_rope angle",
    "mended-empty-halves": "npu_rope::rotary_mul_qk_to_halves the head size",
    "mended-inference-result": "add_rms_norm out",
    "mended-meta-start": "rotary_position_embedding start_pos",
    "mended-negated-pair": "rotary_mul_qk_ k",
    "mended-released-packed": "npu_rope::rms_norm_rounded_last packed",
    "mended-sparse-in-backward": "rotary_mul_backward x",
    "mended-start-of-many-dimensions": "npu_rope::rotary_position_embedding (torch.float16, 0)",
}


def test(content: bytes) -> str:
    """Make a call, and judge it. Return its outcome: the function, then the argument that was refused, or the
    type and the form, and which gradients were compared."""
    data = atheris.FuzzedDataProvider(content)
    name = data.PickValueInList([*OPERATORS, *FUNCTIONS])
    mode = data.PickValueInList(list(MODES))
    is_operator = name.startswith("npu_rope::")
    call = Call(data, name, releases=is_operator and mode is not torch.enable_grad)
    try:
        run, positional, named = (operator_call if is_operator else function_call)(call, name)
    except BrokenRule as error:  # of RopeParams
        if not ERROR.fullmatch(str(error)):
            raise
        return "parameters"
    if named.get("out") is not None and data.ConsumeBool():
        named["out"] = call.memory.in_place(positional, named["out"])
    differentiable = None
    if mode is torch.enable_grad:
        differentiable = DifferentiableCall(data, call.memory, positional, named)
        positional, named = differentiable.positional, differentiable.named
    refused = compared = ""
    try:
        try:
            with mode():
                result = run(*positional, **named)
        except (RuntimeError, ValueError, TypeError) as error:
            rule = ERROR.match(str(error))
            if not (rule or TORCH_ERRORS.search(str(error))):
                raise
            refused = rule[1] if rule else "by torch"
        if differentiable and not refused:
            plain = run if is_operator else getattr(npu_rope, name.removesuffix("_"))
            compared = differentiable.compare(plain, not is_operator, result)
        call.memory.check(bool(refused))
    except Exception:
        values = [*map(text, positional), *(f"{key}={text(value)}" for key, value in named.items())]
        print(f"broken: {mode.__name__}, {name}({', '.join(values)})", file=sys.stderr)
        raise
    return f"{name} {refused or (call.dtype, call.form)}{compared}"


if __name__ == "__main__":
    Program(test, (), MEMORY_BYTES, MENDED).main()
