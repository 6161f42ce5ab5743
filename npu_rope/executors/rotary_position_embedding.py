"""Plan a call of rotary_position_embedding: its rules, the positions of its tokens, the parts that rotate by
the same frequencies, and the rounding of int8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from npu_rope.call_tensors import FLOAT_DTYPES, TensorSpec
from npu_rope.errors import bad_type, bad_value
from npu_rope.executors.tensors import is_tensor, require_dense, require_tensor_like, spec_of
from npu_rope.optional_torch import torch
from npu_rope.params import RopeParams
from npu_rope.values import integer

OP = "rotary_position_embedding"
_INT8 = (-128, 127)
_INT32 = (-(2**31), 2**31 - 1)


@lru_cache(maxsize=256, typed=True)
def _params(
    head_dim: int, rotary_dim: int, theta: float, longest: int, kind: str, factor: float, end: int
) -> RopeParams:
    return RopeParams.from_pmx(
        head_dim,
        rotary_dim=rotary_dim,
        theta=theta,
        max_position_embeddings=longest,
        scaling_type=kind,
        scaling_factor=factor,
        end=end,
    )


class Scaling(NamedTuple):
    """The attributes that determine the frequencies."""

    head_dim: int
    rotary_dim: int
    theta: float
    max_position_embeddings: int
    scaling_type: str
    scaling_factor: float

    def params(self, end: int) -> RopeParams:
        """Return the parameters; repeated calls reuse cached ones. ``end``: as in :class:`FrequencyGroup`."""
        try:
            return _params(*self, end)
        except TypeError:  # the cache needs hashes, which an attribute of a wrong type may lack
            return _params.__wrapped__(*self, end)

    def stretched_end(self, end: int) -> int:
        """Return the sequence's end if theta depends on it, else 0."""
        return end if self.scaling_type == "dynamic" and end > self.max_position_embeddings else 0


@dataclass(frozen=True)
class FrequencyGroup:
    """Batches, or packed tokens, that rotate by the same frequencies."""

    span: slice  # of the first dimension
    end: int  # the sequences' last position plus one if theta depends on it, else 0


def plan_call(
    query: Any, key: Any, start_pos: Any, pad_len: Any, seqstarts: Any, attributes: dict[str, Any]
) -> tuple[list[FrequencyGroup], Any, Scaling]:
    """Check a call. Return its parts, the tokens' positions (``[S]``, ``[B,S]`` or packed ``[T]``: a
    NumPy array, or a tensor on the query's device), and the attributes of the frequencies.

    Raises:
        ValueError, TypeError: an argument breaks its rule.
    """
    for name, given in (("query", query), ("key", key)):
        require_tensor_like(OP, name, given)
        if is_tensor(given):
            require_dense(OP, name, given)
    _check_query_and_key(query, key, packed=seqstarts is not None)
    scaling = Scaling(int(query.shape[-1]), **attributes)
    scaling.params(0)  # checks the attributes
    start_pos, pad_len, seqstarts = (_list_as_array(v) for v in (start_pos, pad_len, seqstarts))
    if scaling.scaling_type == "dynamic" or not _is_meta(query):
        for name, given in (("start_pos", start_pos), ("pad_len", pad_len), ("seqstarts", seqstarts)):
            if _is_meta(given):
                raise bad_value(OP, name, "have values", "a tensor on device meta")
    if seqstarts is None:
        return *_plan_padded(query, start_pos, pad_len, scaling), scaling
    if pad_len is not None:
        raise bad_value(OP, "pad_len", "be None where seqstarts is given", "both")
    return *_plan_packed(query, start_pos, seqstarts, scaling), scaling


def _is_meta(value: Any) -> bool:
    return is_tensor(value) and value.device.type == "meta"


def _check_query_and_key(query: Any, key: Any, *, packed: bool) -> None:
    specs = {"query": spec_of(query), "key": spec_of(key)}
    form = "[T,N,D] where seqstarts is given" if packed else "[B,S,N,D]"
    for name, spec in specs.items():
        if spec.dtype not in (*FLOAT_DTYPES, "int8"):
            kinds = f"{', '.join(FLOAT_DTYPES)} or int8"
            raise bad_type(OP, name, f"be {kinds}", spec.dtype)
        if len(spec.shape) != (3 if packed else 4):
            raise bad_value(OP, name, f"have shape {form}", spec.text())
    if is_tensor(query) != is_tensor(key):
        kind = "a torch tensor" if is_tensor(query) else "a NumPy array"
        raise bad_type(OP, "key", f"be {kind} like query", type(key).__name__)
    if is_tensor(query) and query.device != key.device:
        raise bad_value(OP, "key", f"be on query's device {query.device}", key.device)
    q, k = specs["query"], specs["key"]
    if k.dtype != q.dtype:
        raise bad_type(OP, "key", f"have query's dtype {q.dtype}", k.dtype)
    if _shape_without_heads(k) != _shape_without_heads(q):
        raise bad_value(OP, "key", f"have query's shape {q.text()} except for the heads", k.text())


def _shape_without_heads(spec: TensorSpec) -> tuple[int, ...]:
    return (*spec.shape[:-2], spec.shape[-1])


def _list_as_array(value: Any) -> Any:
    """Convert a list of numbers to an array, also an empty list. Return any other value unchanged."""
    if not isinstance(value, (list, tuple)):
        return value
    try:
        array = np.asarray(value) if value else np.zeros(0, np.int64)
    except ValueError:  # ragged
        return value
    return value if array.dtype.kind in "OSU" else array


def _check_integers(name: str, value: Any, shape: tuple[int, ...], rule: str) -> None:
    """Require an integer tensor or array of that shape. ``()`` accepts every shape of one element."""
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        raise bad_type(OP, name, f"be {rule}", type(value).__name__)
    spec = spec_of(value)
    if spec.dtype not in ("int32", "int64"):
        raise bad_type(OP, name, "be int32 or int64", spec.dtype)
    single = not shape and all(n == 1 for n in spec.shape)
    if not single and spec.shape != shape:
        raise bad_value(OP, name, f"be {rule}", f"shape {spec.text()}")


def position_formula(*, packed: bool) -> str:
    """Return the positions' name in an error: their formula."""
    return "start_pos + s" if packed else "start_pos + s - pad_len"


def _check_range(low: int, high: int, *, packed: bool) -> None:
    for position in (low, high):
        if not _INT32[0] <= position <= _INT32[1]:
            raise bad_value(OP, position_formula(packed=packed), "be in the int32 range", position)


def _check_seqstarts(starts: Sequence[int], tokens: int) -> None:
    if starts[0] != 0:
        raise bad_value(OP, "seqstarts", "begin with 0", starts[0])
    for before, after in pairwise(starts):
        if after < before:
            raise bad_value(OP, "seqstarts", "not decrease", f"{after} after {before}")
    if starts[-1] != tokens:
        raise bad_value(OP, "seqstarts", f"end with the number of tokens ({tokens})", starts[-1])


# ---- positions -------------------------------------------------------------------------------------


def _parts(stops: Sequence[int], ends: Sequence[int]) -> list[FrequencyGroup]:
    """Join neighbouring sequences of equal ends. ``stops[i]`` is the end of sequence i in the first
    dimension."""
    parts: list[FrequencyGroup] = []
    first = 0
    for stop, end in zip(stops, ends, strict=True):
        if stop == first:
            continue
        if parts and parts[-1].end == end:
            parts[-1] = FrequencyGroup(slice(parts[-1].span.start, stop), end)
        else:
            parts.append(FrequencyGroup(slice(first, stop), end))
        first = stop
    return parts or [FrequencyGroup(slice(0, first), 0)]


def _values_on_host(value: Any) -> Any:
    """Return integers as an int64 array of one dimension if the host can read them without waiting for a
    device and the call is not traced; else None."""
    if not is_tensor(value):
        return np.asarray(value).astype(np.int64).reshape(-1)
    if type(value) is not torch.Tensor or value.device.type != "cpu":
        return None
    return value.detach().reshape(-1).numpy().astype(np.int64)  # a NumPy array has at most 64 dimensions


def _values_of(value: Any) -> Any:
    """Return integers as an int64 array of one dimension. Wait for the device if they are on one."""
    on_host = _values_on_host(value)
    return value.detach().cpu().reshape(-1).numpy().astype(np.int64) if on_host is None else on_host


def _plan_padded(
    query: Any, start_pos: Any, pad_len: Any, scaling: Scaling
) -> tuple[list[FrequencyGroup], Any]:
    batches, tokens = int(query.shape[0]), query.shape[1]
    if isinstance(start_pos, (int, np.integer)) and not isinstance(start_pos, bool):
        start_pos = integer("start_pos", start_pos, OP, bits=64)
    else:
        _check_integers("start_pos", start_pos, (), "an integer or an integer tensor of one element")
    if pad_len is not None:
        _check_integers("pad_len", pad_len, (batches,), f"[B] = [{batches}] integers")
    _check_padded_range(start_pos, pad_len, batches, tokens)
    parts = [FrequencyGroup(slice(0, batches), 0)]
    if scaling.scaling_type == "dynamic":
        pads = [0] * batches if pad_len is None else _values_of(pad_len).tolist()
        begin = int(_values_of(start_pos).reshape(()))
        ends = [scaling.stretched_end(begin + int(tokens) - pad) for pad in pads]
        parts = _parts(range(1, batches + 1), ends)
    if not is_tensor(query):
        positions = np.arange(tokens, dtype=np.int64) + int(_values_of(start_pos).reshape(()))
        return parts, positions if pad_len is None else positions - _values_of(pad_len).reshape(-1, 1)
    begin = start_pos if isinstance(start_pos, int) else _as_tensor(start_pos).reshape(())
    positions = _token_indices(tokens, start_pos, pad_len) + begin
    if pad_len is not None:
        positions = positions - _as_tensor(pad_len).reshape(-1, 1)
    return parts, positions.to(query.device)


def _check_padded_range(start_pos: Any, pad_len: Any, batches: int, tokens: Any) -> None:
    """Check the range of the positions if the host can read them and the call has tokens."""
    if not (batches and tokens):
        return
    start, pads = _values_on_host(start_pos), _values_on_host(0 if pad_len is None else pad_len)
    if start is not None and pads is not None:
        first = start.reshape(()) - pads
        _check_range(int(first.min()), int(first.max()) + int(tokens) - 1, packed=False)


def _plan_packed(
    query: Any, start_pos: Any, seqstarts: Any, scaling: Scaling
) -> tuple[list[FrequencyGroup], Any]:
    tokens = query.shape[0]
    _check_integers("seqstarts", seqstarts, _valid_shape(seqstarts), "[B+1] integers")
    batches = int(seqstarts.shape[0]) - 1
    _check_integers(
        "start_pos", start_pos, (batches,), f"[B] = [{batches}] integers where seqstarts is given"
    )
    dynamic = scaling.scaling_type == "dynamic"
    values_of = _values_of if dynamic else _values_on_host
    starts, first_positions = values_of(seqstarts), values_of(start_pos)
    parts = [FrequencyGroup(slice(0, int(tokens)), 0)]
    if starts is not None:
        _check_seqstarts(starts.tolist(), int(tokens))
    if starts is not None and first_positions is not None:
        lengths = np.diff(starts)
        if lengths.any():
            has_tokens = lengths > 0
            last = int((first_positions + lengths)[has_tokens].max()) - 1
            _check_range(int(first_positions[has_tokens].min()), last, packed=True)
        if dynamic:
            ends = [scaling.stretched_end(int(end)) for end in first_positions + lengths]
            parts = _parts(starts[1:].tolist(), ends)
    if not is_tensor(query):
        shift = np.repeat(_values_of(start_pos) - starts[:-1], np.diff(starts))
        return parts, np.arange(tokens, dtype=np.int64) + shift
    starts, first_positions = _as_tensor(seqstarts), _as_tensor(start_pos)
    shift = torch.repeat_interleave(first_positions - starts[:-1], starts.diff(), output_size=tokens)
    return parts, (_token_indices(tokens, seqstarts, start_pos) + shift).to(query.device)


def _valid_shape(seqstarts: Any) -> tuple[int, ...]:
    """Return the shape of seqstarts if it is valid, else ``(-1,)``, which no array has."""
    shape = tuple(getattr(seqstarts, "shape", ()))
    return shape if len(shape) == 1 and shape[0] > 0 else (-1,)


def _as_tensor(value: Any) -> Any:
    """Return integers as an int64 tensor on their device."""
    return value.detach().long() if is_tensor(value) else torch.as_tensor(value, dtype=torch.int64)


def _token_indices(tokens: Any, *others: Any) -> Any:
    """Return 0, 1, 2, ... on the device of the first tensor in ``others``."""
    device = next((tensor.device for tensor in others if is_tensor(tensor)), None)
    return torch.arange(tokens, dtype=torch.int64, device=device)


# ---- int8, and parts -------------------------------------------------------------------------------


def widened(tensor: Any, backend: str | None) -> Any:
    """Convert int8 to float32; for the reference to float64, so that its result is rounded once."""
    wide = "float64" if backend == "reference" else "float32"
    return tensor.to(getattr(torch, wide)) if is_tensor(tensor) else tensor.astype(wide)


def narrowed(tensor: Any) -> Any:
    """Convert to int8: round half to even and saturate."""
    if is_tensor(tensor):
        return tensor.round().clamp(*_INT8).to(torch.int8)
    return np.clip(np.rint(tensor), *_INT8).astype(np.int8)


def joined(parts: Sequence[Any]) -> Any:
    """Concatenate the parts into one array or tensor."""
    return torch.cat(list(parts)) if is_tensor(parts[0]) else np.concatenate(parts)
