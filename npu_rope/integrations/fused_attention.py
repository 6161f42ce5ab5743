"""Run the step between an attention module's projections and its KV cache by qkv_norm_rope_cache.

A fused module runs the code of its class's forward with three substitutes:

- its norms of queries and keys return their input unchanged;
- the rotation gets a :class:`Step` in place of cos, and runs the operator;
- a preallocated KV cache gets :class:`Rows` in place of keys and values. Where the cache copies both into its
  tensors by ``index_copy_``, the operator writes them there. Every other use of the rows computes the keys.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from npu_rope.integrations import rope_forms, rotation_form
from npu_rope.integrations.attention_forms import EMBEDDINGS, FusedForm, Rotation
from npu_rope.integrations.function_copies import with_globals
from npu_rope.integrations.norm_forms import weight_of
from npu_rope.integrations.rope_forms import OP
from npu_rope.ops.calls import records_calls
from npu_rope.ops.qkv_norm_rope_cache import qkv_norm_rope_cache


def fused_forward(
    forward: types.FunctionType,
    unfused: Callable[..., Any],
    rotations: Mapping[str, Rotation],
    form: FusedForm,
    *,
    takes_rows: Callable[[Any, Any], bool] | None = None,
    unwritten: Callable[[torch.Tensor], torch.Tensor] = torch.empty_like,
) -> Callable[..., Any]:
    """Return a forward for modules of this form.

    Args:
        forward: the forward of the module's class.
        unfused: the forward that runs calls without cos and sin.
        rotations: the rotations that forward calls, by their names.
        form: the module's form.
        takes_rows: returns whether a cache may get :class:`Rows` from a module; by default
            :func:`is_static_or_paged`.
        unwritten: returns a tensor like the given one, whose elements will be overwritten.
    """
    takes_rows = takes_rows or is_static_or_paged
    fused = with_globals(forward, {name: _fused_rotation(r, form) for name, r in rotations.items()})

    def forward_of_step(self: Any, *given: Any, **named: Any) -> Any:
        if given:
            named = {**dict(zip(form.parameters, given, strict=False)), **named}
        embeddings, cache = named.get(EMBEDDINGS), named.get(form.cache)
        if not isinstance(embeddings, (tuple, list)) or len(embeddings) != 2 or records_calls():
            return unfused(self, **named)
        stores = cache is not None and not torch.is_grad_enabled() and takes_rows(cache, self)
        step = Step(self, form, embeddings[0], stores, _allocator(cache, self) if stores else None, unwritten)
        named[EMBEDDINGS] = step, embeddings[1]
        if stores:
            named[form.cache] = _StoringCache(cache, step)
        results = fused(_WithoutNorms(self, form.norm_names) if form.norm_names else self, **named)
        step.require_update()
        return results

    forward_of_step.__name__ = "forward"  # pickle finds methods by name
    forward_of_step.__wrapped__ = unfused  # type: ignore[attr-defined]  # for inspect.signature
    return forward_of_step


def is_static_or_paged(cache: Any, module: Any) -> bool:
    """Return whether the cache is a static or paged one of transformers, which stores keys and values into
    tensors that it already has. The keys are written together with the values, so a cache that reads the keys
    before it stores the values must not get rows."""
    layer, layers = getattr(module, "layer_idx", None), getattr(cache, "layers", None)
    if layers is None:
        stored = getattr(cache, "layer_to_allocator", {}).get(layer)
    else:
        stored = layers[layer] if isinstance(layer, int) and layer < len(layers) else None
        if not getattr(stored, "is_compileable", False):
            return False
    return stored is not None and _is_of_transformers(cache) and _is_of_transformers(stored)


def _is_of_transformers(cache: Any) -> bool:
    update = getattr(type(cache), "update", None)
    return str(getattr(update, "__module__", "")).startswith("transformers.")


def _allocator(cache: Any, module: Any) -> Any:
    """Return the allocator of a paged cache for the module's layer; None: the cache is not paged."""
    allocators = getattr(cache, "layer_to_allocator", None)
    return None if allocators is None else allocators[module.layer_idx]


class _WithoutNorms:
    """An attention module whose norms of queries and keys return their input."""

    def __init__(self, module: torch.nn.Module, norm_names: tuple[str, ...]) -> None:
        self._module, self._norm_names = module, norm_names

    def __getattr__(self, name: str) -> Any:
        return _unchanged if name in self._norm_names else getattr(self._module, name)


def _unchanged(x: torch.Tensor) -> torch.Tensor:
    return x


def _fused_rotation(rotation: Rotation, form: FusedForm) -> Callable[..., Any]:
    """Return a function with the parameters of a model's rotation, which gets a Step as cos."""

    def rotate(heads: Sequence[torch.Tensor], step: Step, sin: torch.Tensor, dim: int | None) -> Any:
        return step.rotated(rotation, heads, sin, dim)

    return rope_forms.with_parameters(rotate, rotation.function, rotation.form)


class Step:
    """The step between the projections and the cache in one call of an attention module.

    Args:
        module, form: the module and its form.
        cos: the table.
        stores: the cache gets :class:`Rows`.
        allocator: the allocator of a paged cache; None: the cache is not paged.
        unwritten: as for :func:`fused_forward`.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        form: FusedForm,
        cos: torch.Tensor,
        stores: bool,
        allocator: Any,
        unwritten: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        self.module, self.form, self.cos = module, form, cos
        self.stores, self.allocator, self.unwritten = stores, allocator, unwritten
        self.is_pending = False  # the rotated queries are returned but not computed yet
        self.is_updating = False  # the cache's update runs
        self.is_stored = False  # the operator has written the rows of keys and values
        self.keys: torch.Tensor | None = None  # the rotated keys [S,N,D]
        self.target: tuple[torch.Tensor, int, torch.Tensor] | None = None  # where the cache stores the keys

    def rotated(
        self, rotation: Rotation, heads: Sequence[torch.Tensor], sin: torch.Tensor, dim: int | None
    ) -> tuple[Any, Any]:
        """Return the normalized and rotated queries, and such keys or :class:`Rows`, in the layout of heads.

        Args:
            rotation: the rotation.
            heads: queries and keys as projected.
            sin: the table.
            dim: the rotation's unsqueeze_dim, or None.
        """
        norms: list[Any] = [None if how is None else how.of(self.module) for how in self.form.norms]
        fitted = rotation_form.fit(rotation.form, heads, self.cos, sin, dim)
        is_fused = (
            fitted is not None
            and heads[0].ndim == 4
            and fitted[1] in self.form.params
            and not (rotation.form.promotes and self.cos.dtype != heads[0].dtype)
            and all(
                how is None or how.applies_to(norm, x)
                for how, norm, x in zip(self.form.norms, norms, heads, strict=True)
            )
            and self._set_norms(norms)
        )
        if not is_fused or fitted is None:
            normalized = [
                x if how is None else how(norm, x, self.form.axis)
                for how, norm, x in zip(self.form.norms, norms, heads, strict=True)
            ]
            named = {} if dim is None else {"unsqueeze_dim": dim}
            pair: tuple[Any, Any] = rotation.unfused(*normalized, self.cos, sin, **named)
            return pair
        self.axis, width = fitted
        q, k = (rotation_form.tokens_first(x, self.axis) for x in heads)
        self.batch, self.tokens = q.shape[0], q.shape[1]
        self.angles = self._angles(rotation, sin, width)
        self.q, self.k = q.flatten(0, 1), k.flatten(0, 1)
        if self.stores:
            self.is_pending = True
            self.q_out = self.unwritten(self.q)
            return self._as_heads(self.q_out), Rows(self, heads[1], is_keys=True)
        q, k, _ = qkv_norm_rope_cache(self.q, self.k, None, **self.angles, **self.norms)
        return self._as_heads(q), self._as_heads(k)

    def _set_norms(self, norms: Sequence[Any]) -> bool:
        """Set the operator's arguments of the norms. Return whether one operator computes both norms."""
        self.norms: dict[str, Any] = {}
        attributes = set()
        for name, how, norm in zip(("q_scale", "k_scale"), self.form.norms, norms, strict=True):
            if how is not None:
                self.norms[name] = weight_of(norm, str(how.form.weight))
                attributes.add((getattr(norm, how.form.epsilon), how.form.offset))
        if attributes:
            self.norms["epsilon"], self.norms["scale_offset"] = attributes.pop()
        return not attributes

    def _angles(self, rotation: Rotation, sin: torch.Tensor, width: int) -> dict[str, Any]:
        """Return the operator's arguments of the rotation."""
        form, cos = rotation.form, self.cos
        if rotation.uses is not None:
            found = rotation.uses.find(cos, sin, (form.pairs, form.tables, form.place))
            if found is not None:
                positions, params, factors = found
                of_tokens = positions.expand(*positions.shape[:-2], self.batch, self.tokens).flatten(-2)
                return {"positions": of_tokens, "params": params, "freq_factors": factors}
        if form.pairs == rotation_form.INTERLEAVED and form.tables == rotation_form.TWICE:
            cos, sin = cos[..., : width // 2], sin[..., : width // 2]
        rows = None
        if self.batch > 1 and (cos.ndim == 2 or cos.shape[0] == 1):
            rows = torch.arange(self.tokens, device=cos.device).repeat(self.batch)
        return {
            "positions": rows,
            "params": self.form.params[width],
            "cos": cos.reshape(-1, cos.shape[-1]),
            "sin": sin.reshape(-1, sin.shape[-1]),
        }

    def _as_heads(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``[S,N,D]`` of all batches in the layout of the module's heads."""
        return rotation_form.tokens_first(x.view(self.batch, self.tokens, *x.shape[1:]), self.axis)

    def require_update(self) -> None:
        """Require that the cache has got the rows.

        Raises:
            RuntimeError: it has not, so the queries are not computed.
        """
        if self.is_pending and not self.is_updating:
            kind = type(self.module).__name__
            raise RuntimeError(f"[{OP}] a fused module must update its cache but {kind} did not.")

    def rotated_keys(self) -> torch.Tensor:
        """Return the keys in the layout of the module's heads."""
        self.require_update()
        if self.keys is None:
            self.keys = torch.empty_like(self.k)
            if self.is_stored:  # the queries are computed already
                norms = {name: value for name, value in self.norms.items() if name != "q_scale"}
                q = self.q[:, :0]
                outs = q, self.keys, None
                qkv_norm_rope_cache(q, self.k, None, **self.angles, **norms, out=outs)
            else:
                outs = self.q_out, self.keys, None
                qkv_norm_rope_cache(self.q, self.k, None, **self.angles, **self.norms, out=outs)
                self.is_pending = False
        return self._as_heads(self.keys)

    def store(self, rows: Rows, target: torch.Tensor, dim: int, index: torch.Tensor) -> bool:
        """Replace ``target.index_copy_(dim, index, rows)``: write the rows of keys when the cache copies
        those of values. Return whether the copy is replaced."""
        if self.is_stored or self.keys is not None or not rows.match(target, dim, index):
            return False
        if rows.is_keys:
            self.target = target, dim, index
            return True
        if self.target is None or self.target[1] != dim or self.target[2] is not index:
            return False
        caches = self.target[0], target
        found = self._rows_of_layer(*caches, index) if target.ndim == 4 else self._pages(*caches, index)
        if found is None:
            return False
        k_cache, v_cache, slots = found
        v = (rows.x.transpose(1, 2) if rows.x.ndim == 4 else rows.x[None]).flatten(0, 1)
        into: dict[str, Any] = {"slots": slots, "k_cache": k_cache, "v_cache": v_cache, "out": self.q_out}
        qkv_norm_rope_cache(self.q, self.k, v, **self.angles, **self.norms, **into)
        self.target, self.is_stored, self.is_pending = None, True, False
        return True

    def _rows_of_layer(
        self, k_cache: torch.Tensor, v_cache: torch.Tensor, index: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return caches ``[B,N,L,D]`` as the operator takes them, and the rows of all tokens in them."""
        slots, length = index, k_cache.shape[2]
        if self.batch > 1:
            begins = torch.arange(0, self.batch * length, length, device=index.device)
            slots = (begins[:, None] + index).flatten()
        return k_cache.transpose(1, 2), v_cache.transpose(1, 2), slots

    def _pages(
        self, k_cache: torch.Tensor, v_cache: torch.Tensor, index: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
        """Return paged caches ``[L,N,D]`` as the operator takes them, and the rows of all tokens in them, or
        None if the caches have another layout.

        Pages of keys and values alternate in one tensor, and both caches are views of all pages. The operator
        gets one view of the keys' pages and one of the values'. Padding tokens share a row that is never
        read; the operator leaves them out.
        """
        names = "tokens_per_page", "write_trash_index", "block_physical_stride"
        if not all(isinstance(getattr(self.allocator, name, None), int) for name in names):
            return None
        size, trash, block = (int(getattr(self.allocator, name)) for name in names)
        row, *inner = k_cache.stride()
        alternate = (
            block % (2 * size) == 0
            and k_cache.stride() == v_cache.stride()
            and k_cache.untyped_storage().data_ptr() == v_cache.untyped_storage().data_ptr()
            and v_cache.storage_offset() - k_cache.storage_offset() == size * row
        )
        if not alternate:
            return None
        shape = (v_cache.shape[0] + size) // (2 * size), size, *k_cache.shape[1:]
        k_pages, v_pages = (c.as_strided(shape, (2 * size * row, row, *inner)) for c in (k_cache, v_cache))
        slots = torch.sub(index, index // (2 * size), alpha=size)
        return k_pages, v_pages, torch.where(index == trash, -1, slots)

    def store_keys(self) -> None:
        """Store the keys, if they wait for the values."""
        if self.target is not None:
            target, dim, index = self.target
            self.target = None
            keys = self._as_heads_first(self.rotated_keys())
            target.index_copy_(dim, index, keys if target.ndim == 4 else keys[0].transpose(0, 1))

    def update(self, cache: Any, keys: Rows, values: torch.Tensor, *given: Any, **named: Any) -> Any:
        """Update a cache and return its results."""
        self.is_updating = True
        results = cache.update(keys, Rows(self, values, is_keys=False), *given, **named)
        self.store_keys()
        results = plain(results)
        if self.is_pending:
            self.rotated_keys()
        self.is_updating = False
        return results

    def _as_heads_first(self, heads: torch.Tensor) -> torch.Tensor:
        return heads if self.axis == rotation_form.HEADS_FIRST else heads.transpose(1, 2)


def plain(value: Any) -> Any:
    """Return a value with tensors in place of its :class:`Rows`."""
    if isinstance(value, Rows):
        return value.tensor()
    if isinstance(value, (tuple, list)):
        return type(value)([plain(v) for v in value])
    if isinstance(value, dict):
        return {name: plain(v) for name, v in value.items()}
    return value


class Rows:
    """Keys or values that a cache stores. Where torch or a cache needs a tensor, it gets the rotated keys, or
    the values.

    Args:
        step: their step.
        x: the keys or values as projected, in the current layout.
        is_keys: these are keys.
        views: the calls of view methods that led to this layout.
    """

    def __init__(
        self, step: Step, x: torch.Tensor, is_keys: bool, views: tuple[tuple[str, tuple[int, ...]], ...] = ()
    ) -> None:
        self.step, self.x, self.is_keys, self.views = step, x, is_keys, views

    def tensor(self) -> torch.Tensor:
        """Return the rotated keys, or the values, in this layout."""
        self.step.store_keys()
        if not self.is_keys:
            return self.x
        keys = self.step.rotated_keys()
        for name, given in self.views:
            keys = getattr(keys, name)(*given)
        return keys

    def match(self, target: torch.Tensor, dim: int, index: torch.Tensor) -> bool:
        """Return whether the operator can store these rows along this dimension of a cache: heads
        ``[B,N,S,D]`` along S of ``[B,N,L,D]``, or ``[S,N,D]`` along the first of ``[L,N,D]``."""
        x, batch, tokens = self.x, self.step.batch, self.step.tokens
        if x.ndim == 4:
            fits = dim == 2 and x.shape[0] == batch and x.shape[2] == tokens
            fits = fits and target.shape[:2] == x.shape[:2]
        else:
            fits = dim == 0 and batch == 1 and x.shape[0] == tokens and self.step.allocator is not None
            fits = fits and x.ndim == 3 and target.shape[1] == x.shape[1]
        if self.is_keys and fits:
            token, head, lane = self.step.k.stride()
            strides = (tokens * token, head, token, lane) if x.ndim == 4 else (token, head, lane)
            fits = all(n == 1 or a == b for n, a, b in zip(x.shape, x.stride(), strides, strict=True))
        return (
            fits
            and target.ndim == x.ndim
            and target.shape[-1] == x.shape[-1]
            and target.stride(-1) == 1
            and target.dtype == x.dtype == self.step.q.dtype
            and target.device == x.device == index.device
        )

    @property
    def shape(self) -> torch.Size:
        """The sizes."""
        return self.x.shape

    @property
    def dtype(self) -> torch.dtype:
        """The dtype."""
        return self.x.dtype

    @property
    def device(self) -> torch.device:
        """The device."""
        return self.x.device

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.x.ndim

    def squeeze(self, *given: int) -> Rows:
        """Return the rows in another layout."""
        return Rows(self.step, self.x.squeeze(*given), self.is_keys, (*self.views, ("squeeze", given)))

    def unsqueeze(self, *given: int) -> Rows:
        """Return the rows in another layout."""
        return Rows(self.step, self.x.unsqueeze(*given), self.is_keys, (*self.views, ("unsqueeze", given)))

    def transpose(self, *given: int) -> Rows:
        """Return the rows in another layout."""
        return Rows(self.step, self.x.transpose(*given), self.is_keys, (*self.views, ("transpose", given)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tensor(), name)

    def __getitem__(self, index: Any) -> torch.Tensor:
        return self.tensor()[index]

    @classmethod
    def __torch_function__(
        cls, function: Any, kinds: Any, given: tuple[Any, ...] = (), named: dict[str, Any] | None = None
    ) -> Any:
        if function is torch.Tensor.index_copy_ and len(given) == 4 and isinstance(given[3], Rows):
            target, dim, index, rows = given
            if rows.step.store(rows, target, dim, index):
                return target
        return function(*plain(given), **plain(named or {}))


class _StoringCache:
    """A KV cache that gets rows, and whose results are tensors."""

    def __init__(self, cache: Any, step: Step) -> None:
        self._cache, self._step = cache, step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def update(self, keys: Any, values: Any, *given: Any, **named: Any) -> Any:
        """Call the cache's update."""
        if not isinstance(keys, Rows):
            return self._cache.update(keys, values, *given, **named)
        return self._step.update(self._cache, keys, values, *given, **named)
