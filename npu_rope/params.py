"""RopeParams: the attributes of rope, validated once, and the ways to get them from a model's files."""

from __future__ import annotations

from dataclasses import dataclass, fields
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from npu_rope.errors import bad_value
from npu_rope.gguf_params import from_gguf
from npu_rope.hf_params import from_hf
from npu_rope.rope_attributes import FileRope, RopeAttributes, RopeMode
from npu_rope.values import Angle, integer, number, require_positive, rotated_width


@dataclass(frozen=True, repr=False)
class RopeParams(RopeAttributes):
    """The attributes of one rotary position embedding, named as in ggml's ``rope_ext``.

    Args:
        n_dims: rotated width (rotary_dim): even, at most the head size; in mode vision half the head size.
        mode: a :class:`RopeMode`, its ggml number or its name (``"neox"``).
        n_ctx_orig: context length the model was trained with, in tokens; needed by YaRN.
        freq_base: theta; pair ``i`` rotates by ``freq_base**(-2i/n_dims)`` radians per position.
        freq_scale: multiplies every interpolated frequency (1/factor of linear scaling and YaRN).
        ext_factor: weight of YaRN's extrapolation; 0 switches YaRN off.
        attn_factor: multiplies cos and sin.
        beta_fast, beta_slow: ends of YaRN's ramp, in rotations over ``n_ctx_orig``.
        sections: widths, in pairs, of the sections that rotate by the time, height, width and extra position;
            only in the modes mrope, vision and imrope, where one of the first three must be positive. They
            repeat if they do not cover all pairs.
        n_offs: first rotated dimension: even, ``n_offs + n_dims`` at most the head size; 0 in mode
            vision.

    Raises:
        ValueError, TypeError: an argument breaks its rule.

    >>> RopeParams(128, "neox", freq_base=500000.0)
    RopeParams(n_dims=128, mode=neox, freq_base=500000)
    >>> RopeParams(4, "normal").frequencies()
    array([1.  , 0.01])
    """

    @classmethod
    def from_pmx(
        cls,
        head_dim: int,
        *,
        rotary_dim: int = 0,
        theta: float = 10000.0,
        max_position_embeddings: int = 2048,
        scaling_type: str = "",
        scaling_factor: float = 1.0,
        end: int = 0,
    ) -> RopeParams:
        """Return the attributes of PMX's RotaryPositionEmbedding, with the scaling of PMX's Python operators.

        Args:
            head_dim: D, the head size.
            rotary_dim: rotated width; 0: all of the head.
            theta: freq_base.
            max_position_embeddings: for ``dynamic``: the length beyond which theta grows.
            scaling_type: ``""``; ``"linear"``: positions are divided by ``scaling_factor``;
                ``"dynamic"``: with ``n = rotary_dim``, theta is multiplied by
                ``(f * end / max_position_embeddings - (f - 1)) ** (n / (n - 2))`` if ``end`` exceeds
                ``max_position_embeddings``.
            scaling_factor: f; positive and finite.
            end: for ``dynamic``: the sequence's last position plus one, >= 0.

        Raises:
            ValueError, TypeError: an argument breaks its rule.

        >>> RopeParams.from_pmx(128, rotary_dim=64, scaling_type="linear", scaling_factor=4)
        RopeParams(n_dims=64, mode=normal, freq_scale=0.25)
        """
        op = "rotary_position_embedding"
        head, given = integer("head_dim", head_dim, op), integer("rotary_dim", rotary_dim, op)
        width = rotated_width(op, "rotary_dim", head, given)
        theta, factor = number("theta", theta, op), number("scaling_factor", scaling_factor, op)
        require_positive("theta", theta, op=op)
        require_positive("scaling_factor", factor, op=op)
        longest = integer("max_position_embeddings", max_position_embeddings, op)
        if longest <= 0:
            raise bad_value(op, "max_position_embeddings", "be positive", longest)
        end = integer("end", end, op, bits=64)
        if end < 0:
            raise bad_value(op, "end", "be >= 0", end)
        if scaling_type not in ("", "linear", "dynamic"):
            raise bad_value(op, "scaling_type", "be '', 'linear' or 'dynamic'", repr(scaling_type))
        if scaling_type == "linear":
            return cls(width, RopeMode.NORMAL, freq_base=theta, freq_scale=1.0 / factor)
        if scaling_type == "dynamic" and width == 2:
            raise bad_value(op, "scaling_type", "be '' or 'linear' where 2 dimensions rotate", "'dynamic'")
        if scaling_type == "dynamic" and end > longest:
            stretched = theta * (factor * end / longest - (factor - 1.0)) ** (width / (width - 2.0))
            require_positive("theta", stretched, " after its scaling", op=op)
            return cls(width, RopeMode.NORMAL, freq_base=stretched)
        return cls(width, RopeMode.NORMAL, freq_base=theta)

    @classmethod
    def from_hf(cls, config: Any, layer_type: str | None = None, seq_len: int | None = None) -> ModelRope:
        """Return the rope of a transformers configuration.

        It may have any rope_type of transformers 5.24: default, linear, dynamic, yarn, longrope, llama3,
        proportional. The type is in ``rope_parameters``, flat or by type of layer, or in the older
        ``rope_scaling`` and ``rope_theta``. Types that ggml's parameters can express become parameters. ggml
        lacks llama3, longrope, proportional, and yarn with ``truncate=False``; they become frequency factors.

        Args:
            config: the configuration object, a dict, or the path of a config.json or of its folder. A model
                with several parts gives its language model's rope. If transformers is installed and has the
                dict's ``model_type``, a dict is read as transformers reads it: some classes have their own
                names and defaults, which are not available without transformers.
            layer_type: the type of layer, if types of layers rotate differently (``"full_attention"``).
            seq_len: number of tokens. dynamic scales theta by it; longrope has other factors beyond its
                original context. None: up to that context.

        Returns:
            ``(params, freq_factors)``, as operators take them: ``rope(x, positions, *model_rope)``.

        Raises:
            ValueError, TypeError: the configuration lacks an entry, or an entry is invalid.

        >>> RopeParams.from_hf({"head_dim": 128, "rope_theta": 500000.0}).params
        RopeParams(n_dims=128, mode=neox, freq_base=500000)
        """
        return ModelRope.of(from_hf(config, layer_type, seq_len))

    @classmethod
    def from_gguf(
        cls, path: str | PathLike[str], layer: int | None = None, n_ctx: int | None = None
    ) -> ModelRope:
        """Return the rope of a GGUF file, as llama.cpp reads it. Needs the ``gguf`` package.

        The mode is the architecture's, for the weights in the file's order: a converter permutes Llama's
        queries and keys, so the same model is ``normal`` here and ``neox`` in transformers.

        Args:
            path: the file; the first file if the model is split into several.
            layer: the layer's number, for models whose sliding-window layers rotate differently or whose
                layers do not all rotate. None: a layer that rotates, with full attention if such a layer
                rotates.
            n_ctx: number of tokens of the session, by which llama.cpp chooses between long and short factors.
                None: the model's own context length.

        Returns:
            ``(params, freq_factors)``, as operators take them: ``rope(x, positions, *model_rope)``.

        Raises:
            ValueError, TypeError: the file is damaged, truncated or lacks an entry, or its model or the layer
                has no rope.
            ImportError: gguf is not installed.
        """
        return ModelRope.of(from_gguf(path, layer, n_ctx))


class ModelRope(NamedTuple):
    """A model's rope, read from the model's files: ``rope(x, positions, *model_rope)``."""

    params: RopeParams
    """The attributes."""
    freq_factors: npt.NDArray[np.float32] | None = None
    """The divisors of the pairs' frequencies, with shape ``[pairs]``, or None if there are none."""

    def frequencies(self, policy: Angle = "exact") -> npt.NDArray[Any]:
        """Return :meth:`RopeParams.frequencies` with the factors."""
        return self.params.frequencies(policy, self.freq_factors)

    @classmethod
    def of(cls, read: FileRope) -> ModelRope:
        """Return the parameters and factors of a rope that was read from a model's files."""
        values = {field.name: getattr(read.attributes, field.name) for field in fields(read.attributes)}
        return cls(RopeParams(**values), read.freq_factors)
