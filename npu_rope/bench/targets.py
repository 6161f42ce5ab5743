"""The speed targets of ``npu-rope bench``, judged by the figures of one run.

In the targets of prefill, of small batches and of peers, rope's time is the smaller one of
``npu_rope.rope(out=)`` and ``rope_packed_out``, the operator that it calls. Both write into a preallocated
buffer, as the memory floor (a copy of the same bytes), ggml and ONNX Runtime do. In the decode targets, the
time through torch.ops is the smaller one of ``rope_packed_out`` and ``rope_packed_``, in place. Rows of
queries and keys have the same interfaces of ``rope_qk``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from npu_rope.bench import (
    family_rows,
    form_rows,
    gradient_rows,
    growth_rows,
    norm_rope_rows,
    norm_rows,
    patched_rows,
    qkv_rows,
)
from npu_rope.bench.rope_rows import (
    CALL_FLOOR,
    DTYPES,
    GIVEN_TABLES,
    IN_PLACE,
    NUMPY,
    OUT,
    PACKED,
    PACKED_IN_PLACE,
    SCHEMA,
    for_pairs,
)

# Largest time of rope and rotary_mul divided by the memory floor's: prefill, and small batches in 16 bits.
FLOOR_LIMIT, SMALL_BATCH_LIMIT = 1.15, 1.5
SMALL_BATCH, ONE_TOKEN = "[32,1,32,128]", "[1,1,32,128]"
# Largest time of a decoded token divided by the call floor's, by interface.
CALL_LIMITS = {
    "torch.ops": ((PACKED, PACKED_IN_PLACE), 2.3),
    "the Python function": ((OUT, IN_PLACE), 3.0),
    "the Python function on NumPy": ((NUMPY,), 8.0),
}
FORM_LIMIT = 1.3  # largest time of a mode or form divided by NeoX's
# Largest time of a norm divided by the memory floor's.
NORM_LIMITS = {"rms_norm": 1.15, "add_rms_norm": 1.3}
# Least time of rms_norm and rope_qk divided by rms_norm_rope's; its largest time divided by the floor's.
FUSION_GAIN, FUSED_LIMIT = 1.3, 1.5
# Largest time of qkv_norm_rope_cache divided by the memory floor's, by dtype; least time of the fastest peer
# of each kind divided by qkv_norm_rope_cache's.
QKV_FLOOR_LIMITS = {"f32": 1.15, "f16": 1.5, "bf16": 1.5}
QKV_GAINS = {"eager": 3.0, "compiled": 1.3}
# Largest time of a patched module, and of a patched model's step, divided by transformers' own time.
PATCHED_LIMITS = {patched_rows.NORM: 0.6, patched_rows.DECODE: 1.0}
# The same ratios for each family of models; and the least share of the ceiling's gain that a patched model
# reaches.
FAMILY_LIMITS = {
    family_rows.NORM: 0.5,
    family_rows.ROTATION: 0.4,
    family_rows.DECODE: 0.95,
    family_rows.PREFILL: 0.97,
    family_rows.TRAINING: 0.97,
    family_rows.COMPILED_DECODE: 0.95,
    family_rows.COMPILED_PREFILL: 0.97,
}
LEAST_SHARE = 0.7
# Largest extra time of requires_grad, in empty calls; largest time of backward divided by forward's.
REQUIRES_GRAD_LIMIT, BACKWARD_LIMIT = 2.3, 1.0
_OWN_TARGETS = (
    form_rows,
    norm_rows,
    norm_rope_rows,
    qkv_rows,
    patched_rows,
    family_rows,
    gradient_rows,
    growth_rows,
)
DISTURBED_CORES = 0.1  # CPU cores that other programs use
# A figure is the result of one contestant in one row, as worker.as_dict returns it.
Figures = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class TargetVerdict:
    """The verdict on one target. ``outcome`` is PASS or MISS, or NOT MEASURED if the run lacks the rows. PASS
    and MISS end with ``?`` if other programs used the machine."""

    target: str
    outcome: str
    detail: str


def verdicts(figures: Figures) -> list[TargetVerdict]:
    """Judge every target."""
    own_target_groups = tuple(rows.GROUP for rows in _OWN_TARGETS)
    modes = dict.fromkeys(figure["mode"] for figure in figures if figure["group"] not in own_target_groups)
    decode = [*_call_verdicts(figures), *(_decode_verdict(figures, mode) for mode in modes)]
    norms = [*(_norm_verdict(figures, mode) for mode in norm_rows.MODES), _norm_rope_verdict(figures)]
    patched = [_patched_verdict(figures, mode) for mode in PATCHED_LIMITS]
    patched += [*_family_verdicts(figures), _share_verdict(figures)]
    rope = [
        *_floor_verdicts(figures),
        _small_batch_verdict(figures),
        _peer_verdict(figures),
        *decode,
        _forms_verdict(figures),
    ]
    return [*rope, *norms, *_qkv_verdicts(figures), *patched, *_gradient_verdicts(figures)]


def measured_and_not(judged: Sequence[TargetVerdict]) -> tuple[list[TargetVerdict], list[TargetVerdict]]:
    """Return the verdicts on measured targets, and those on targets whose rows the run lacks."""
    measured = [verdict for verdict in judged if verdict.outcome != "NOT MEASURED"]
    return measured, [verdict for verdict in judged if verdict.outcome == "NOT MEASURED"]


def grouped(figures: Figures, name_of: Callable[[dict[str, Any]], str]) -> dict[str, list[dict[str, Any]]]:
    """Return the figures of each name, in the order of measurement."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for figure in figures:
        by_name.setdefault(name_of(figure), []).append(figure)
    return by_name


def by_row(figures: Figures) -> dict[str, list[dict[str, Any]]]:
    """Return the figures of each row."""
    return grouped(figures, itemgetter("row"))


def is_disturbed(figure: dict[str, Any]) -> bool:
    """Return whether other programs used DISTURBED_CORES or more during the measurement."""
    return (figure["foreign_cores"] or 0.0) >= DISTURBED_CORES


def fastest(figures: Figures, *, kind: str | None = None, names: Sequence[str] = ()) -> dict[str, Any] | None:
    """Return the measured figure with the least median among those of the kind or the names."""
    measured = [figure for figure in figures if "median_us" in figure]
    candidates = [figure for figure in measured if figure["kind"] == kind or figure["contestant"] in names]
    return min(candidates, key=lambda figure: float(figure["median_us"]), default=None)


@dataclass
class _Target:
    """A target, its figures so far with their descriptions, and whether all of them meet it."""

    description: str
    is_met: bool = True
    details: list[str] = field(default_factory=list)
    figures: list[dict[str, Any]] = field(default_factory=list)

    def add(self, is_met: bool, detail: str, *figures: dict[str, Any]) -> None:
        """Add figures, with their description and whether they meet the target."""
        self.is_met = self.is_met and is_met
        self.details.append(detail)
        self.figures += figures

    def verdict(self) -> TargetVerdict:
        """Return the verdict on the figures that were added."""
        if not self.figures:
            reason = "this run has no such row, or no peer in it"
            return TargetVerdict(self.description, "NOT MEASURED", reason)
        any_disturbed = any(map(is_disturbed, self.figures))
        outcome = ("PASS" if self.is_met else "MISS") + ("?" if any_disturbed else "")
        advice = " (others used the machine: measure again when it is idle)" if any_disturbed else ""
        return TargetVerdict(self.description, outcome, "; ".join(self.details) + advice)


def _best(row: Figures, *names: str) -> dict[str, Any] | None:
    """Return the fastest of our contestants of these names, or of the same names for queries and keys."""
    return fastest(row, names=(*names, *map(for_pairs, names)))


def _floor_verdicts(figures: Figures) -> Iterator[TargetVerdict]:
    for dtype in DTYPES:
        target = _Target(f"prefill {dtype}: at most {FLOOR_LIMIT} x the memory floor")
        for row in by_row(figures).values():
            group = row[0]["group"]
            if group not in ("prefill", "gqa prefill") or row[0]["dtype"] != dtype:
                continue
            label = f"{group.removesuffix('prefill')}{row[0]['mode']} {row[0]['threads']}T"
            for text, names in (("", (OUT, PACKED)), (" tables given", (GIVEN_TABLES,))):
                best = _best(row, *names)
                if best and "ratio" in best:
                    target.add(best["ratio"] <= FLOOR_LIMIT, f"{label}{text} {best['ratio']:.2f}", best)
        yield target.verdict()


def _small_batch_verdict(figures: Figures) -> TargetVerdict:
    target = _Target(f"decode {SMALL_BATCH} f16 and bf16: at most {SMALL_BATCH_LIMIT} x the memory floor")
    for row in by_row(figures).values():
        best = _best(row, OUT, PACKED)
        if row[0]["shape"] != SMALL_BATCH or row[0]["dtype"] == "f32" or not best or "ratio" not in best:
            continue
        detail = f"{best['dtype']} {best['mode']} {best['threads']}T {best['ratio']:.2f}"
        target.add(best["ratio"] <= SMALL_BATCH_LIMIT, detail, best)
    return target.verdict()


def _call_verdicts(figures: Figures) -> Iterator[TargetVerdict]:
    """Judge the time of a decoded token divided by that of an empty call in the same rounds."""
    for interface, (names, limit) in CALL_LIMITS.items():
        target = _Target(f"decode {ONE_TOKEN} through {interface}: at most {limit} x the call floor")
        for row in by_row(figures).values():
            ours, empty = fastest(row, names=names), fastest(row, names=(CALL_FLOOR,))
            if row[0]["shape"] != ONE_TOKEN or not ours or not empty:
                continue
            if "ratio" not in ours or "ratio" not in empty:
                continue
            ratio = ours["ratio"] / empty["ratio"]
            detail = f"{ours['dtype']} {ours['mode']} {ours['threads']}T {ratio:.2f}"
            target.add(ratio <= limit, detail, ours, empty)
        yield target.verdict()


def _peer_verdict(figures: Figures) -> TargetVerdict:
    target = _Target("rotation in f16 and bf16: no peer ahead in any row")
    for name, row in by_row(figures).items():
        ours, peer = _best(row, OUT, PACKED), fastest(row, kind="peer")
        if row[0]["dtype"] == "f32" or ours is None or peer is None:
            continue
        is_ahead = peer["median_us"] < ours["median_us"]
        peer_us, our_us = (format_microseconds(figure["median_us"]) for figure in (peer, ours))
        times = f"{peer_us} against our {our_us} us"
        target.add(not is_ahead, f"{name}: {peer['contestant']} {times}" if is_ahead else "", ours)
    target.details = [*filter(None, target.details)] or [f"rows with peers: {len(target.figures)}"]
    return target.verdict()


def _forms_verdict(figures: Figures) -> TargetVerdict:
    """Judge each form's time divided by NeoX's. Both are multiples of the floor in the same rounds."""
    target = _Target(f"every mode and form: at most {FORM_LIMIT} x NeoX of the same bytes")
    for row in by_row(figures).values():
        if row[0]["group"] != form_rows.GROUP:
            continue
        ours = [figure for figure in row if figure["kind"] == "ours" and "ratio" in figure]
        neox = next((figure for figure in ours if figure["contestant"] == form_rows.NEOX), None)
        if neox is None:
            continue
        worst = max(ours, key=lambda figure: float(figure["ratio"]))
        ratio = worst["ratio"] / neox["ratio"]
        detail = f"{neox['dtype']} {neox['threads']}T {ratio:.2f} ({worst['contestant']})"
        target.add(ratio <= FORM_LIMIT, detail, *ours)
    return target.verdict()


def _norm_verdict(figures: Figures, mode: str) -> TargetVerdict:
    """Judge a norm of prefill's size by the floor and the fastest peer."""
    shape, limit = norm_rows.row("f32", 1).shape, NORM_LIMITS[mode]
    target = _Target(f"{mode} {shape}: at most {limit} x the memory floor, no peer ahead")
    for row in by_row(figures).values():
        if (row[0]["group"], row[0]["mode"], row[0]["shape"]) != (norm_rows.GROUP, mode, shape):
            continue
        ours, peer = fastest(row, names=(norm_rows.OUT[mode],)), fastest(row, kind="peer")
        if ours is None or "ratio" not in ours:
            continue
        best_peer = f", best peer {peer['median_us'] / ours['median_us']:.1f} x ours" if peer else ""
        is_ahead = peer is not None and peer["median_us"] < ours["median_us"]
        target.add(
            ours["ratio"] <= limit and not is_ahead,
            f"{ours['dtype']} {ours['threads']}T {ours['ratio']:.2f}{best_peer}",
            ours,
        )
    return target.verdict()


def _norm_rope_verdict(figures: Figures) -> TargetVerdict:
    """Judge rms_norm_rope by the floor, and by the time of its parts, a multiple of the floor in the same
    rounds."""
    limits = f"at most {FUSED_LIMIT} x the memory floor, at least {FUSION_GAIN} x as fast as its parts"
    target = _Target(f"rms_norm_rope: {limits}")
    for row in by_row(figures).values():
        fused, parts = (fastest(row, names=(name,)) for name in (norm_rope_rows.OUT, norm_rope_rows.PARTS))
        if fused is None or parts is None or "ratio" not in fused or "ratio" not in parts:
            continue
        gain = parts["ratio"] / fused["ratio"]
        detail = f"{fused['dtype']} {fused['threads']}T {fused['ratio']:.2f}, {gain:.2f} x as fast"
        target.add(gain >= FUSION_GAIN and fused["ratio"] <= FUSED_LIMIT, detail, fused, parts)
    return target.verdict()


def _qkv_verdicts(figures: Figures) -> Iterator[TargetVerdict]:
    """Judge qkv_norm_rope_cache by the floor, and by the fastest eager and compiled peers."""
    rows = [row for row in by_row(figures).values() if row[0]["group"] == qkv_rows.GROUP]
    measured = [(row, ours) for row in rows if (ours := fastest(row, names=(qkv_rows.OUT,))) is not None]
    for dtype, limit in QKV_FLOOR_LIMITS.items():
        target = _Target(f"{qkv_rows.MODE} {dtype}: at most {limit} x the memory floor")
        for _, ours in measured:
            if ours["dtype"] == dtype and "ratio" in ours:
                target.add(ours["ratio"] <= limit, f"{ours['threads']}T {ours['ratio']:.2f}", ours)
        yield target.verdict()
    for kind, limit in QKV_GAINS.items():
        target = _Target(f"{qkv_rows.MODE}: at least {limit} x as fast as the fastest {kind} peer")
        for row, ours in measured:
            is_compiled = kind == "compiled"
            peers = [f for f in row if ("torch.compile" in f["contestant"]) == is_compiled]
            peer = fastest(peers, kind="peer")
            if peer is not None:
                gain = peer["median_us"] / ours["median_us"]
                detail = f"{ours['dtype']} {ours['threads']}T {gain:.1f} ({peer['contestant']})"
                target.add(gain >= limit, detail, ours, peer)
        yield target.verdict()


def _patched_verdict(figures: Figures, mode: str) -> TargetVerdict:
    """Judge the patched time divided by transformers' own, which is the floor of these rows."""
    limit = PATCHED_LIMITS[mode]
    target = _Target(f"{mode} after apply_npu_rope: below {limit} x transformers' own")
    for ours in figures:
        is_patched = (ours["group"], ours["mode"], ours["kind"]) == (patched_rows.GROUP, mode, "ours")
        if is_patched and "ratio" in ours:
            level = ours["contestant"].removeprefix(patched_rows.PATCHED).replace(", level", "")
            detail = f"{ours['dtype']} {ours['threads']}T{level} {ours['ratio']:.2f}"
            target.add(ours["ratio"] < limit, detail, ours)
    return target.verdict()


def _family_verdicts(figures: Figures) -> Iterator[TargetVerdict]:
    """Judge each family's patched time divided by transformers' own, which is the floor of these rows."""
    for mode, limit in FAMILY_LIMITS.items():
        target = _Target(f"every family, {mode} after apply_npu_rope: at most {limit} x transformers' own")
        for ours in figures:
            is_patched = (ours["group"], ours["mode"], ours["kind"]) == (family_rows.GROUP, mode, "ours")
            if is_patched and "ratio" in ours:
                target.add(ours["ratio"] <= limit, f"{_family_label(ours)} {ours['ratio']:.2f}", ours)
        yield target.verdict()


def _share_verdict(figures: Figures) -> TargetVerdict:
    """Judge the time that the patch saves divided by the time that the ceiling saves."""
    target = _Target(f"every family: at least {LEAST_SHARE:.0%} of the time of its rotations and norms saved")
    for row in by_row(figures).values():
        ours = next((f for f in row if f["kind"] == "ours" and "ratio" in f), None)
        ceiling = next((f for f in row if f["kind"] == "call" and "ratio" in f), None)
        if row[0]["group"] != family_rows.GROUP or ours is None or ceiling is None:
            continue
        gain, largest_gain = 1 - ours["ratio"], 1 - ceiling["ratio"]
        # Not the share: of a small gain it is far from all others, and means nothing.
        detail = f"{ours['mode']} {_family_label(ours)} {100 * gain:.1f} of {100 * largest_gain:.1f} %"
        target.add(gain >= LEAST_SHARE * largest_gain, detail, ours, ceiling)
    return target.verdict()


def _family_label(figure: dict[str, Any]) -> str:
    family = figure["contestant"].partition(":")[0]
    return f"{family} {figure['dtype']} {figure['threads']}T"


def _gradient_verdicts(figures: Figures) -> Iterator[TargetVerdict]:
    """Judge the extra time of requires_grad for a decoded token, and backward for a batch in training."""
    decode, training = (
        gradient_rows.row("f32", 1, gradient_rows.MODES[0], sizes).shape
        for sizes in (gradient_rows.DECODE, gradient_rows.TRAINING)
    )
    extra = _Target(f"requires_grad {decode}: at most {REQUIRES_GRAD_LIMIT} empty calls more than without")
    backward = _Target(f"backward {training}: at most {BACKWARD_LIMIT} x forward with requires_grad")
    for row in by_row(figures).values():
        if row[0]["group"] != gradient_rows.GROUP:
            continue
        measured = {figure["contestant"]: figure for figure in row if "ratio" in figure}
        label = f"{row[0]['mode']} {row[0]['dtype']} {row[0]['threads']}T"
        names = gradient_rows.WITHOUT, gradient_rows.WITH, gradient_rows.BACKWARD
        if not all(name in measured for name in names):
            continue
        without, with_gradient, back = (measured[name] for name in names)
        if row[0]["shape"] == decode:
            more = with_gradient["ratio"] - without["ratio"]
            extra.add(more <= REQUIRES_GRAD_LIMIT, f"{label} {more:.2f}", without, with_gradient)
        elif row[0]["shape"] == training:
            ratio = back["ratio"] / with_gradient["ratio"]
            backward.add(ratio <= BACKWARD_LIMIT, f"{label} {ratio:.2f}", with_gradient, back)
    yield extra.verdict()
    yield backward.verdict()


def _decode_verdict(figures: Figures, mode: str) -> TargetVerdict:
    target = _Target(f"decode [1,1,32,128] f32 {mode} through torch.ops: at most the best peer's time")
    for row in by_row(figures).values():
        first = row[0]
        key = ("decode", "[1,1,32,128]", "f32", mode)
        if (first["group"], first["shape"], first["dtype"], first["mode"]) != key:
            continue
        ours, peer = fastest(row, names=(PACKED, PACKED_IN_PLACE)), fastest(row, kind="peer")
        if ours is None or peer is None:
            continue
        schema = fastest(row, names=(SCHEMA,))
        full_schema_text = f", full schema {format_microseconds(schema['median_us'])}" if schema else ""
        best = f"best peer {format_microseconds(peer['median_us'])} ({peer['contestant']})"
        detail = f"{first['threads']}T: {format_microseconds(ours['median_us'])} us{full_schema_text}, {best}"
        target.add(ours["median_us"] <= peer["median_us"], detail, ours)
    return target.verdict()


def format_microseconds(value: float) -> str:
    """Format a number of microseconds with three significant digits and without an exponent.

    >>> format_microseconds(2.0512), format_microseconds(1234.5)
    ('2.05', '1230')
    """
    return f"{float(f'{value:.3g}'):g}"
