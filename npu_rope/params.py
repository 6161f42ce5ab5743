"""RopeParams: the attributes of rope, validated once, and the numbers derived from them.

Names and formulas: ``specs/ggml_rope_acltensor.txt`` sections 1, 2 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from os import PathLike
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from npu_rope.errors import bad_type, bad_value

AnglePolicy = Literal["exact", "f32", "ggml"]
ANGLE_POLICIES: tuple[AnglePolicy, ...] = get_args(AnglePolicy)
Angle = AnglePolicy | Literal[0, 1, 2]  # a policy's name, or its number in C and in the schemas

# Radians per position beyond which the fractional turn of a far position loses its accuracy.
MAX_FREQUENCY = 1e9


class RopeMode(IntEnum):
    """How a head's dimensions pair up, with ggml's numbers."""

    NORMAL = 0
    """Pairs ``(x[2i], x[2i+1])``."""
    NEOX = 2
    """Pairs ``(x[i], x[i + n_dims/2])``."""
    MROPE = 8
    """Pairs as in NEOX; each section of pairs rotates by one of a token's four positions."""
    VISION = 24
    """Pairs ``(x[i], x[i + n_dims])``, n_dims = D/2 of them; a section restarts its frequencies."""
    IMROPE = 40
    """As MROPE, but height, width and time alternate from pair to pair."""

    @property
    def has_sections(self) -> bool:
        """Whether a token has several positions: mrope, vision, imrope."""
        return bool(self.value & RopeMode.MROPE.value)


# A token's positions in the modes with sections: time, height, width, extra.
AXES = 4
AXIS_NAMES = ("time", "height", "width", "extra")


def angle_policy(op: str, angle: Any) -> AnglePolicy:
    """Return the policy of that name or number.

    Raises:
        ValueError: the name or number is unknown.
    """
    for code, policy in enumerate(ANGLE_POLICIES):
        if isinstance(angle, str):
            if angle == policy:
                return policy
        elif isinstance(angle, (int, np.integer)) and not isinstance(angle, bool) and angle == code:
            return policy
    raise bad_value(op, f"angle must be exact (0), f32 (1) or ggml (2) but got {angle!r}.")


def flag(op: str, name: str, value: Any) -> bool:
    """Return a Python or NumPy bool as a bool.

    Raises:
        TypeError: the value is something else.
    """
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    told = repr(value) if value is None or isinstance(value, (int, float, str)) else type(value).__name__
    raise bad_type(op, f"{name} must be True or False but got {told}.")


def integer(name: str, value: Any, op: str = "rope", *, bits: int = 32) -> int:
    """Return a Python or NumPy integer of at most ``bits`` bits as an int.

    Raises:
        TypeError, ValueError: the value is something else, or does not fit.
    """
    if isinstance(value, (bool, np.timedelta64)) or not isinstance(value, (int, np.integer)):
        raise bad_type(op, f"{name} must be an integer but got {value!r}.")
    whole = int(value)
    if not -(2 ** (bits - 1)) <= whole < 2 ** (bits - 1):
        got = str(whole) if abs(whole) < 10**30 else "a number of more than 30 digits"
        raise bad_value(op, f"{name} must be in the int{bits} range but got {got}.")
    return whole


def number(name: str, value: Any, op: str = "rope") -> float:
    """Return a Python or NumPy number as a float.

    Raises:
        TypeError, ValueError: the value is something else, or an integer beyond float64.
    """
    numbers = int, float, np.integer, np.floating
    if isinstance(value, (bool, np.timedelta64)) or not isinstance(value, numbers):
        raise bad_type(op, f"{name} must be a number but got {value!r}.")
    try:
        return float(value)
    except OverflowError:
        raise bad_value(op, f"{name} must be finite but got an integer beyond float64.") from None


def _mode(value: Any) -> RopeMode:
    if isinstance(value, str):
        try:
            return RopeMode[value.upper()]
        except KeyError:
            pass
    elif isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        try:
            return RopeMode(int(value))
        except ValueError:
            pass
    names = ", ".join(f"{m.name.lower()} ({m.value})" for m in RopeMode)
    raise bad_value("rope", f"mode must be one of {names} but got {value}.")


def _sections(value: Any) -> tuple[int, int, int, int]:
    if value is None:
        return (0, 0, 0, 0)
    if not isinstance(value, (Sequence, np.ndarray)) or isinstance(value, str):
        raise bad_type("rope", f"sections must be four integers but got {value!r}.")
    numbers = [integer(f"sections[{i}]", v) for i, v in enumerate(value)]
    if len(numbers) != 4:
        raise bad_value("rope", f"sections must be four numbers >= 0 but got {len(numbers)} numbers.")
    return (numbers[0], numbers[1], numbers[2], numbers[3])


def _as_float32(value: float) -> float:
    """Round to float32. ggml, CANN and the tables hold attributes in float32, so a value that rounds to zero
    or infinity there is zero or infinite here."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return float(np.float32(value))


def _require_positive(name: str, value: float, when: str = "", *, op: str = "rope") -> None:
    if not (math.isfinite(_as_float32(value)) and _as_float32(value) > 0):
        raise bad_value(op, f"{name} must be positive and finite{when} but got {value:g}.")


def rotated_width(op: str, name: str, head: int, width: int) -> int:
    """Return the number of rotated dimensions of a head, from the argument of that name. 0 means all.

    Raises:
        ValueError: the width is odd or wider than the head.
    """
    if width == 0 and (head <= 0 or head % 2):
        raise bad_value(op, f"the head size must be even and positive where {name} is 0 but got {head}.")
    if width < 0 or width % 2 or width > head:
        raise bad_value(op, f"{name} must be 0 or an even number up to the head size {head} but got {width}.")
    return width or head


@dataclass(frozen=True, repr=False)
class RopeParams:
    """The attributes of one rotary position embedding, named as in ggml's ``rope_ext``.

    Args:
        n_dims: rotated width (rotary_dim): even, at most the head size.
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

    n_dims: int
    mode: RopeMode | int | str = RopeMode.NORMAL
    n_ctx_orig: int = 0
    freq_base: float = 10000.0
    freq_scale: float = 1.0
    ext_factor: float = 0.0
    attn_factor: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    sections: Sequence[int] = (0, 0, 0, 0)
    n_offs: int = 0

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        put("n_dims", integer("n_dims", self.n_dims))
        if self.n_dims <= 0 or self.n_dims % 2:
            raise bad_value("rope", f"n_dims must be a positive even number but got {self.n_dims}.")
        put("mode", _mode(self.mode))
        put("n_ctx_orig", integer("n_ctx_orig", self.n_ctx_orig))
        if self.n_ctx_orig < 0:
            raise bad_value("rope", f"n_ctx_orig must be >= 0 but got {self.n_ctx_orig}.")
        for name in ("freq_base", "freq_scale", "ext_factor", "attn_factor", "beta_fast", "beta_slow"):
            put(name, number(name, getattr(self, name)))
        self._check_numbers()
        put("sections", _sections(self.sections))
        self._check_sections()
        put("n_offs", integer("n_offs", self.n_offs))
        if self.n_offs < 0 or self.n_offs % 2:
            raise bad_value("rope", f"n_offs must be an even number >= 0 but got {self.n_offs}.")
        if self.n_offs and self.rope_mode is RopeMode.VISION:
            raise bad_value("rope", f"n_offs must be 0 in mode vision but got {self.n_offs}.")

    def _check_numbers(self) -> None:
        _require_positive("freq_base", self.freq_base)
        _require_positive("freq_scale", self.freq_scale)
        for name in ("ext_factor", "attn_factor"):
            if not math.isfinite(_as_float32(getattr(self, name))):
                raise bad_value("rope", f"{name} must be finite but got {getattr(self, name):g}.")
        if self.ext_factor == 0:
            return
        when = " when ext_factor is not 0"
        if self.n_ctx_orig <= 0:
            raise bad_value("rope", f"n_ctx_orig must be positive{when} but got {self.n_ctx_orig}.")
        if _as_float32(self.freq_base) == 1.0:
            raise bad_value("rope", f"freq_base must differ from 1{when} but got 1.")
        _require_positive("beta_fast", self.beta_fast, when)
        _require_positive("beta_slow", self.beta_slow, when)

    def _check_sections(self) -> None:
        given = list(self.sections)
        if any(s < 0 for s in given):
            raise bad_value("rope", f"sections must be four numbers >= 0 but got {given}.")
        name = self.rope_mode.name.lower()
        if any(given) and not self.rope_mode.has_sections:
            raise bad_value("rope", f"sections must be [0, 0, 0, 0] in mode {name} but got {given}.")
        if self.rope_mode.has_sections and not any(given[:3]):
            raise bad_value(
                "rope", f"sections must name time, height or width in mode {name} but got {given}."
            )

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
        """Return the attributes of PMX's RotaryPositionEmbedding
        (``specs/pmx_rotary_position_embedding.txt``, scaling as PMX's Python operators have it).

        Args:
            head_dim: D, the head size.
            rotary_dim: rotated width; 0: all of the head.
            theta: freq_base.
            max_position_embeddings: for ``dynamic``: the length beyond which theta grows.
            scaling_type: ``""``; ``"linear"``: positions are divided by ``scaling_factor``;
                ``"dynamic"``: with ``n = rotary_dim``, theta is multiplied by
                ``(f * end / max_position_embeddings - (f - 1)) ** (n / (n - 2))`` where ``end`` is
                beyond ``max_position_embeddings``.
            scaling_factor: f; positive and finite.
            end: for ``dynamic``: the position after the sequence's last one.

        Raises:
            ValueError, TypeError: an argument breaks its rule.

        >>> RopeParams.from_pmx(128, rotary_dim=64, scaling_type="linear", scaling_factor=4)
        RopeParams(n_dims=64, mode=normal, freq_scale=0.25)
        """
        op = "rotary_position_embedding"
        head, given = integer("head_dim", head_dim, op), integer("rotary_dim", rotary_dim, op)
        width = rotated_width(op, "rotary_dim", head, given)
        theta, factor = number("theta", theta, op), number("scaling_factor", scaling_factor, op)
        _require_positive("theta", theta, op=op)
        _require_positive("scaling_factor", factor, op=op)
        longest = integer("max_position_embeddings", max_position_embeddings, op)
        if longest <= 0:
            raise bad_value(op, f"max_position_embeddings must be positive but got {longest}.")
        if scaling_type not in ("", "linear", "dynamic"):
            raise bad_value(op, f"scaling_type must be '', 'linear' or 'dynamic' but got {scaling_type!r}.")
        if scaling_type == "linear":
            return cls(width, RopeMode.NORMAL, freq_base=theta, freq_scale=1.0 / factor)
        if scaling_type == "dynamic" and width == 2:
            raise bad_value(op, "scaling_type must not be 'dynamic' where 2 dimensions rotate but got it.")
        if scaling_type == "dynamic" and end > longest:
            stretched = theta * (factor * end / longest - (factor - 1.0)) ** (width / (width - 2.0))
            _require_positive("theta", stretched, " after its scaling", op=op)
            return cls(width, RopeMode.NORMAL, freq_base=stretched)
        return cls(width, RopeMode.NORMAL, freq_base=theta)

    @classmethod
    def from_hf(cls, config: Any, layer_type: str | None = None, seq_len: int | None = None) -> ModelRope:
        """Return the rope of a transformers configuration.

        Reads every rope_type of transformers 5.23 (default, linear, dynamic, yarn, longrope, llama3,
        proportional), in ``rope_parameters``, flat or by type of layer, or in the older ``rope_scaling`` and
        ``rope_theta``. Types that ggml's parameters can express become parameters. ggml lacks llama3,
        longrope, proportional, and yarn with ``truncate=False``; they become frequency factors.

        Args:
            config: the configuration object, a dict, or the path of a config.json or of its folder. A model
                with several parts gives its language model's rope. If transformers is installed and has the
                dict's ``model_type``, a dict is read as transformers reads it: some classes have their own
                names and defaults, which are not available without transformers.
            layer_type: the type of layer, if types of layers rotate differently (``"full_attention"``).
            seq_len: number of tokens. dynamic scales theta by it; longrope has other factors beyond its
                original context. None: up to that context.

        Returns:
            ``(params, freq_factors)``, which an operator takes unchanged: ``rope(x, positions, *it)``.

        Raises:
            ValueError, TypeError: the configuration lacks an entry, or an entry is invalid.

        >>> RopeParams.from_hf({"head_dim": 128, "rope_theta": 500000.0}).params
        RopeParams(n_dims=128, mode=neox, freq_base=500000)
        """
        from npu_rope.hf_params import from_hf

        return from_hf(config, layer_type, seq_len)

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
            ``(params, freq_factors)``, which an operator takes unchanged: ``rope(x, positions, *it)``.

        Raises:
            ValueError, TypeError: the file is damaged, truncated or lacks an entry, or its model or the layer
                has no rope.
            ImportError: gguf is not installed.
        """
        from npu_rope.gguf_params import from_gguf

        return from_gguf(path, layer, n_ctx)

    @property
    def rope_mode(self) -> RopeMode:
        """``mode`` as a :class:`RopeMode`."""
        return RopeMode(self.mode)  # type: ignore[arg-type]

    @property
    def pairs(self) -> int:
        """Number of rotated pairs: ``n_dims/2``, and ``n_dims`` in mode vision."""
        return self.n_dims if self.rope_mode is RopeMode.VISION else self.n_dims // 2

    def pair_lanes(self) -> tuple[slice, slice]:
        """Return the lanes of the pairs' first and second elements in a head (section 7)."""
        start, end = self.n_offs, self.n_offs + 2 * self.pairs
        if self.rope_mode is RopeMode.NORMAL:
            return slice(start, end, 2), slice(start + 1, end, 2)
        return slice(start, start + self.pairs), slice(start + self.pairs, end)

    def axes(self) -> npt.NDArray[np.int64]:
        """Return the index of the position that rotates each pair (0 time, 1 height, 2 width, 3 extra).

        ``[pairs]``; zeros in the modes without sections. Source: ggml_mrope_cache_init in the
        specification's CPU code; imrope's rule is that of current ggml.
        """
        sector = np.arange(self.pairs)
        if not self.rope_mode.has_sections:
            return np.zeros_like(sector)
        time, height, width, extra = self.sections
        sector = sector % (time + height + width + extra)
        if self.rope_mode is RopeMode.IMROPE:
            inside = sector < 3 * np.array([time, height, width])[sector % 3]
            return np.where(inside, sector % 3, 3)
        return np.searchsorted(np.cumsum([time, height, width]), sector, side="right")

    def exponents(self) -> npt.NDArray[np.int64]:
        """Return the power of :attr:`theta_scale` in each pair's frequency, ``[pairs]``.

        This is the pair's number. In mode vision each axis restarts at the beginning of its section, except
        an axis whose section begins where an earlier, empty one does: its number continues.
        """
        if self.rope_mode is not RopeMode.VISION:
            return np.arange(self.pairs)
        starts = [0, *np.cumsum(self.sections[:3])]
        counted, exponents = [0] * AXES, []
        for pair, axis in enumerate(self.axes()):
            sector = pair % sum(self.sections)
            if sector in starts:
                counted[starts.index(sector)] = 0
            exponents.append(counted[axis])
            counted = [n + 1 for n in counted]
        return np.array(exponents)

    @property
    def theta_scale(self) -> float:
        """Ratio of one pair's frequency to the one before it: ``freq_base**(-2/n_dims)`` (section 1)."""
        return float(self.freq_base ** (-2.0 / self.n_dims))

    def corr_dims(self) -> tuple[float, float]:
        """Return the ends of YaRN's ramp, in pair indices, clamped to ``[0, n_dims - 1]`` (section 2).

        Raises:
            ValueError: ``n_ctx_orig``, ``freq_base`` or a beta gives no ramp.
        """
        for name in ("n_ctx_orig", "beta_fast", "beta_slow"):
            _require_positive(name, float(getattr(self, name)), " for corr_dims")
        if self.freq_base == 1.0:
            raise bad_value("rope", "freq_base must differ from 1 for corr_dims but got 1.")

        def dim(rotations: float) -> float:
            turns = self.n_ctx_orig / (rotations * 2 * math.pi)
            return self.n_dims * math.log(turns) / (2 * math.log(self.freq_base))

        low = max(0.0, float(math.floor(dim(self.beta_fast))))
        return low, min(self.n_dims - 1.0, float(math.ceil(dim(self.beta_slow))))

    def mscale(self, policy: Angle = "exact") -> float:
        """Return the factor of cos and sin: ``attn_factor``, and with YaRN also
        ``1 + 0.1*ln(1/freq_scale)`` (section 5). In float32 for policy ``ggml``.
        """
        if angle_policy("rope", policy) != "ggml":
            yarn = 1.0 + 0.1 * math.log(1.0 / self.freq_scale) if self.ext_factor != 0 else 1.0
            return self.attn_factor * yarn
        f = np.float32
        scale = f(self.attn_factor)
        if self.ext_factor != 0:
            scale *= f(1) + f(0.1) * f(math.log(float(f(1) / f(self.freq_scale))))
        return float(scale)

    def frequencies(
        self, policy: Angle = "exact", freq_factors: npt.ArrayLike | None = None
    ) -> npt.NDArray[Any]:
        """Return the radians per position of each pair, with frequency scaling and YaRN (section 5).

        Args:
            policy: ``exact`` gives float64; ``f32`` rounds it to float32; ``ggml`` gives ggml's float32
                recurrence at position 1. (At other positions ggml's angle is not exactly this times the
                position, because it rounds after every step.)
            freq_factors: ``[>= pairs]``; pair i's frequency is divided by ``freq_factors[i]``.

        Returns:
            ``[pairs]``, float64 or float32.

        Raises:
            ValueError: the policy is unknown, or factors are too few, not positive or not finite.
        """
        policy = angle_policy("rope", policy)
        if policy == "ggml":
            from npu_rope.reference.rope import ggml_angles

            freq_factors = self._checked_factors(freq_factors)
            ones = np.ones((AXES, 1) if self.rope_mode.has_sections else 1, np.int64)
            at_one: npt.NDArray[np.float32] = ggml_angles(ones, self, freq_factors)[0]
            return at_one
        frequency = self.extended_frequencies(self._checked_factors(freq_factors))
        with np.errstate(over="ignore", under="ignore"):
            return frequency.astype(np.float64).astype(np.float64 if policy == "exact" else np.float32)

    def _checked_factors(self, freq_factors: npt.ArrayLike | None) -> npt.NDArray[np.float32] | None:
        if freq_factors is None:
            return None
        from npu_rope import checks

        with np.errstate(over="ignore", under="ignore"):
            factors = np.asarray(freq_factors, np.float32)
        checks.check_freq_factors(checks.TensorSpec("float32", factors.shape, (1,)), self)
        checks.check_freq_factor_values(factors, self)
        checks.check_frequencies(self.extended_frequencies(factors).astype(np.float64))
        return factors

    def extended_frequencies(self, freq_factors: npt.ArrayLike | None = None) -> npt.NDArray[Any]:
        """Return :meth:`frequencies` before their rounding, in NumPy's widest float.

        A far position multiplies a frequency's error: 2**-53 of a radian becomes 2**-22 at position 2**31.
        """
        wide, pairs = np.longdouble, self.pairs
        with np.errstate(over="ignore"):
            own = wide(self.freq_base) ** (wide(-2) * self.exponents() / self.n_dims)
        if freq_factors is not None:
            own = own / np.asarray(freq_factors, wide)[:pairs]
        frequency = own * wide(self.freq_scale)
        if self.ext_factor != 0:
            low, high = self.corr_dims()
            ramp = 1 - np.clip((np.arange(pairs) - low) / max(0.001, high - low), 0, 1)
            mix = (ramp * self.ext_factor).astype(wide)
            frequency = frequency * (1 - mix) + own * mix
        return frequency

    def __getstate__(self) -> dict[str, Any]:
        """Return only the fields. Other attributes, which back ends cache here, are not part of the value."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __repr__(self) -> str:
        """Return the arguments that differ from the defaults, by ggml's names."""
        said = [f"n_dims={self.n_dims}", f"mode={self.rope_mode.name.lower()}"]
        for field in fields(self)[2:]:
            value = getattr(self, field.name)
            if value != field.default:
                said.append(
                    f"{field.name}={value:g}" if isinstance(value, float) else f"{field.name}={value}"
                )
        return f"RopeParams({', '.join(said)})"


class ModelRope(NamedTuple):
    """A model's rope, read from the model's files: ``rope(x, positions, *it)``."""

    params: RopeParams
    """The attributes."""
    freq_factors: npt.NDArray[np.float32] | None = None
    """``[pairs]``: each pair's frequency is divided by its factor. None: no factors."""

    def frequencies(self, policy: Angle = "exact") -> npt.NDArray[Any]:
        """Return :meth:`RopeParams.frequencies` with the factors."""
        return self.params.frequencies(policy, self.freq_factors)
