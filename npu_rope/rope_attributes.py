"""The attributes of rope: fields, rules, and the numbers derived from them.

Names and formulas: ``specs/ggml_rope_acltensor.txt`` sections 1, 2 and 5. :class:`npu_rope.RopeParams` adds
the ways to read them from a model's files.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from npu_rope.errors import bad_type, bad_value
from npu_rope.values import Angle, angle_policy, as_float32, integer, number, require_positive

# Radians per position. Beyond it, angles modulo 2π are inaccurate at far positions.
MAX_FREQUENCY = 1e9


class RopeMode(IntEnum):
    """A mode, with ggml's number: which lanes form a pair, and by which position a pair rotates."""

    NORMAL = 0
    """Pairs ``(x[2i], x[2i+1])``."""
    NEOX = 2
    """Pairs ``(x[i], x[i + n_dims/2])``."""
    MROPE = 8
    """Pairs as in NEOX; each section of pairs rotates by one of a token's four positions."""
    VISION = 24
    """Pairs ``(x[i], x[i + n_dims])`` with n_dims = D/2; each section starts again at the first frequency."""
    IMROPE = 40
    """As MROPE, but time, height and width alternate from pair to pair."""

    @property
    def has_sections(self) -> bool:
        """Whether a token has several positions, as in mrope, vision and imrope."""
        return bool(self.value & RopeMode.MROPE.value)


# A token's positions in the modes with sections: time, height, width, extra.
AXES = 4
AXIS_NAMES = ("time", "height", "width", "extra")


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
    raise bad_value("rope", "mode", f"be one of {names}", repr(value) if isinstance(value, str) else value)


def _sections(value: Any) -> tuple[int, int, int, int]:
    if value is None:
        return (0, 0, 0, 0)
    if not isinstance(value, (Sequence, np.ndarray)) or isinstance(value, str):
        raise bad_type("rope", "sections", "be four integers >= 0", repr(value))
    numbers = [integer(f"sections[{i}]", v) for i, v in enumerate(value)]
    if len(numbers) != 4:
        raise bad_value("rope", "sections", "be four integers >= 0", f"{len(numbers)} integers")
    return (numbers[0], numbers[1], numbers[2], numbers[3])


@dataclass(frozen=True, repr=False)
class RopeAttributes:
    """The fields of :class:`npu_rope.RopeParams`, their rules, and the numbers derived from them."""

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
            raise bad_value("rope", "n_dims", "be a positive even number", self.n_dims)
        put("mode", _mode(self.mode))
        put("n_ctx_orig", integer("n_ctx_orig", self.n_ctx_orig))
        if self.n_ctx_orig < 0:
            raise bad_value("rope", "n_ctx_orig", "be >= 0", self.n_ctx_orig)
        for name in ("freq_base", "freq_scale", "ext_factor", "attn_factor", "beta_fast", "beta_slow"):
            put(name, number(name, getattr(self, name)))
        self._check_numbers()
        put("sections", _sections(self.sections))
        self._check_sections()
        put("n_offs", integer("n_offs", self.n_offs))
        if self.n_offs < 0 or self.n_offs % 2:
            raise bad_value("rope", "n_offs", "be an even number >= 0", self.n_offs)
        if self.n_offs and self.rope_mode is RopeMode.VISION:
            raise bad_value("rope", "n_offs", "be 0 in mode vision", self.n_offs)

    def _check_numbers(self) -> None:
        require_positive("freq_base", self.freq_base)
        require_positive("freq_scale", self.freq_scale)
        for name in ("ext_factor", "attn_factor"):
            if not math.isfinite(as_float32(getattr(self, name))):
                raise bad_value("rope", name, "be finite", f"{getattr(self, name):g}")
        if self.ext_factor == 0:
            return
        when = " when ext_factor is not 0"
        if self.n_ctx_orig <= 0:
            raise bad_value("rope", "n_ctx_orig", f"be positive{when}", self.n_ctx_orig)
        if as_float32(self.freq_base) == 1.0:
            raise bad_value("rope", "freq_base", f"differ from 1{when}", "1")
        require_positive("beta_fast", self.beta_fast, when)
        require_positive("beta_slow", self.beta_slow, when)

    def _check_sections(self) -> None:
        given = list(self.sections)
        if any(s < 0 for s in given):
            raise bad_value("rope", "sections", "be four integers >= 0", given)
        name = self.rope_mode.name.lower()
        if any(given) and not self.rope_mode.has_sections:
            raise bad_value("rope", "sections", f"be [0, 0, 0, 0] in mode {name}", given)
        if self.rope_mode.has_sections and not any(given[:3]):
            raise bad_value("rope", "sections", f"name time, height or width in mode {name}", given)

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
        """Return the exponent of :attr:`theta_scale` in each pair's frequency, ``[pairs]``.

        It is the pair's number. In mode vision it starts at 0 again at the beginning of each section, except
        in a section that follows an empty one: there the number continues.
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
        """The ratio of a pair's frequency to the previous pair's: ``freq_base**(-2/n_dims)`` (section 1)."""
        return float(self.freq_base ** (-2.0 / self.n_dims))

    def corr_dims(self) -> tuple[float, float]:
        """Return the ends of YaRN's ramp, in pair indices: from 0, and up to ``n_dims - 1`` (section 2).

        Raises:
            ValueError: ``n_ctx_orig``, ``freq_base`` or a beta gives no ramp.
        """
        for name in ("n_ctx_orig", "beta_fast", "beta_slow"):
            require_positive(name, float(getattr(self, name)), " for corr_dims")
        if self.freq_base == 1.0:
            raise bad_value("rope", "freq_base", "differ from 1 for corr_dims", "1")

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
        with np.errstate(over="ignore", under="ignore"):
            factors = np.asarray(freq_factors, np.float32)
        check_freq_factors(factors, self)
        check_freq_factor_values(factors, self)
        check_frequencies(self.extended_frequencies(factors).astype(np.float64))
        return factors

    def extended_frequencies(self, freq_factors: npt.ArrayLike | None = None) -> npt.NDArray[Any]:
        """Return :meth:`frequencies` before their rounding, in NumPy's widest float.

        A far position multiplies a frequency's error: 2**-53 of a radian becomes 2**-22 at position 2**31.
        """
        wide, pairs = np.longdouble, self.pairs
        with np.errstate(over="ignore"):
            unscaled = wide(self.freq_base) ** (wide(-2) * self.exponents() / self.n_dims)
        if freq_factors is not None:
            unscaled = unscaled / np.asarray(freq_factors, wide)[:pairs]
        frequency = unscaled * wide(self.freq_scale)
        if self.ext_factor != 0:
            low, high = self.corr_dims()
            ramp = 1 - np.clip((np.arange(pairs) - low) / max(0.001, high - low), 0, 1)
            mix = (ramp * self.ext_factor).astype(wide)
            frequency = frequency * (1 - mix) + unscaled * mix
        return frequency

    def __getstate__(self) -> dict[str, Any]:
        """Return only the fields. Other attributes, which back ends cache here, are not part of the value."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __repr__(self) -> str:
        """Return n_dims, the mode, and the arguments that differ from the defaults, by ggml's names."""
        parts = [f"n_dims={self.n_dims}", f"mode={self.rope_mode.name.lower()}"]
        for field in fields(self)[2:]:
            value = getattr(self, field.name)
            if value != field.default:
                parts.append(
                    f"{field.name}={value:g}" if isinstance(value, float) else f"{field.name}={value}"
                )
        return f"RopeParams({', '.join(parts)})"


class FileRope(NamedTuple):
    """A model's rope, read from the model's files."""

    attributes: RopeAttributes
    freq_factors: npt.NDArray[np.float32] | None = None


# ---- frequency factors ------------------------------------------------------------------------------


def check_freq_factors(factors: npt.NDArray[np.float32], params: RopeAttributes) -> None:
    """Check the shape of factors: ``[>= pairs]``."""
    if factors.ndim != 1 or len(factors) < params.pairs:
        raise bad_value(
            "rope",
            "freq_factors",
            f"have one dimension of at least {_pairs_rule(params)} elements",
            f"shape {list(factors.shape)}",
        )


def _pairs_rule(params: RopeAttributes) -> str:
    return f"n_dims{'' if params.pairs == params.n_dims else '/2'} = {params.pairs}"


def wrong_factors(factors: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return the indices of the frequency factors that are not positive and finite."""
    return np.flatnonzero(~(np.isfinite(factors) & (factors > 0)))


def check_freq_factor_values(factors: npt.NDArray[np.float32], params: RopeAttributes) -> None:
    """Check that the factors of the pairs are positive and finite. Further factors are not read."""
    used = np.asarray(factors[: params.pairs], np.float64)
    wrong = wrong_factors(used)
    if wrong.size:
        index = int(wrong[0])
        raise bad_value("rope", "freq_factors", "be positive and finite", f"{used[index]:g} at index {index}")


def check_frequencies(frequencies: npt.NDArray[np.float64]) -> None:
    """Check that each pair's frequency is at most ``MAX_FREQUENCY``, beyond which its angle is inaccurate."""
    wrong = np.flatnonzero(~(np.abs(frequencies) <= MAX_FREQUENCY))
    if wrong.size:
        pair = int(wrong[0])
        raise bad_value(
            "rope",
            "frequencies",
            "be at most 1e+09 radians per position",
            f"{abs(frequencies[pair]):g} for pair {pair}",
        )


# ---- ggml's float32 ---------------------------------------------------------------------------------


def ggml_angles(
    positions: npt.NDArray[Any],
    params: RopeAttributes,
    freq_factors: npt.ArrayLike | None = None,
    *,
    fused: bool = False,
) -> npt.NDArray[np.float32]:
    """Return ggml's float32 angles, operation by operation (section 5 and the CPU source's order).

    ``[..., pairs]`` for positions of any shape. In the modes with sections, the first axis of positions has
    four planes. ``fused`` computes YaRN's last sum of products as a fused multiply-add, as compilers may.
    """
    f = np.float32
    pairs, axes, exponents = params.pairs, params.axes(), params.exponents()
    factors = np.ones(pairs, f) if freq_factors is None else np.asarray(freq_factors, f)
    theta_scale = f(_powf()(f(params.freq_base), f(-2) / f(params.n_dims)))
    freq_scale, ext_factor = f(params.freq_scale), f(params.ext_factor)
    low, high = ggml_corr_dims(params) if ext_factor != 0 else (f(0), f(0))

    bases = np.asarray(positions).astype(f)
    if not params.rope_mode.has_sections:
        bases = bases[None]
    angles = np.empty((*bases.shape[1:], pairs), f)
    powers = [bases]  # bases * theta_scale, multiplied one step at a time
    while len(powers) <= exponents.max(initial=0):
        powers.append(powers[-1] * theta_scale)
    for i in range(pairs):
        theta = powers[exponents[i]][axes[i]]
        extrapolated = theta / factors[i]
        angle = freq_scale * extrapolated
        if ext_factor != 0:
            y = (f(i) - low) / max(f(0.001), high - low)
            mix = (f(1) - min(f(1), max(f(0), y))) * ext_factor
            if fused:  # the product angle*(1 - mix) is exact in float64
                exact = angle.astype(np.float64) * np.float64(f(1) - mix)
                angle = (exact + (extrapolated * mix).astype(np.float64)).astype(f)
            else:
                angle = angle * (f(1) - mix) + extrapolated * mix
        angles[..., i] = angle
    return angles


@cache
def _powf() -> Any:
    """Return C's powf, which ggml calls. glibc's rounds some results to the second nearest number: with
    n_dims 386 and freq_base 160 it errs by 0.5003 units in the last place, and the steps multiply the
    error."""
    function = ctypes.CDLL(None).powf  # Python itself is linked with C's library of mathematics
    function.restype, function.argtypes = ctypes.c_float, [ctypes.c_float, ctypes.c_float]
    return function


def ggml_corr_dims(params: RopeAttributes) -> tuple[np.float32, np.float32]:
    """Return the ends of YaRN's ramp, section 2 in float32."""
    f = np.float32
    n_dims, base, pi = f(params.n_dims), f(params.freq_base), f(np.pi)

    def dim(rotations: float) -> np.float32:
        turns = f(params.n_ctx_orig) / (f(rotations) * f(2) * pi)
        return n_dims * f(np.log(np.float64(turns))) / (f(2) * f(np.log(np.float64(base))))

    low = max(f(0), np.floor(dim(params.beta_fast)))
    return low, min(n_dims - f(1), np.ceil(dim(params.beta_slow)))
