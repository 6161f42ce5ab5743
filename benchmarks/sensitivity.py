"""Run the kernels with the lowest and the highest published value of each figure of the timeline.

simulator/docs/figures.md has the values. A prefill's cores do equal work. One core with its part of the
tokens and of the memory's bandwidth therefore takes the cycles of the whole launch. Each case is also run in
full, to check this.

usage: sensitivity.py [--markdown docs/sensitivity.md]   (write the tables into this page)
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ascend_sim import Options, library
from page import with_table

from npu_rope.cli import trace, trace_norm
from npu_rope.cli.trace import Dtype, Launch, MemoryOrder, Mode

FIGURES_PAGE = Path(__file__).resolve().parents[1] / "simulator" / "docs" / "figures.md"
A2, P310 = "Ascend910B1", "Ascend310P3"
CHIPS = {A2: "Ascend910B and Ascend910_93", P310: "Ascend310P"}  # chip to the heading of its table
Figures = dict[str, float]
# Shares of a launch's cycles.
UNCHANGED = 0.0005  # a setting without effect
MAX_PART_DIFFERENCE = 0.002  # largest difference of one core's part from the launch
# Pairs of a core's rate and a read's latency that give the same time for the published copies.
RATES_AND_LATENCIES = ((24, 20), (32, 170), (64, 430), (128, 560))


@dataclass(frozen=True)
class Case:
    """A launch. ``make(tokens)`` returns it for a number of tokens or rows.

    Attributes:
        tokens: the number of tokens or rows of the whole launch.
        splits: whether each core has a part of the tokens; the parts differ by at most one token.
    """

    name: str
    chip: str
    make: Callable[[int], Launch]
    tokens: int
    splits: bool = True

    @cached_property
    def profile(self) -> dict[str, Any]:
        return next(p for p in library.load().profiles() if p["name"] == self.chip)

    @cached_property
    def whole(self) -> dict[str, Any]:
        """The summary of the whole launch with the profile's own figures."""
        return self.make(self.tokens)(Options(soc=self.chip, one_order=True))

    def bandwidth(self, figures: Figures) -> float:
        return float(figures.get("gm_bytes_per_cycle", self.profile["gm_bytes_per_cycle"]))

    @property
    def part(self) -> int:
        """The tokens of the slowest core."""
        return -(-self.tokens // self.profile["cores"]) if self.splits else self.tokens

    def options(self, figures: Figures) -> Options:
        """The options of a launch of ``part`` tokens."""
        if not self.splits:
            return Options(soc=self.chip, one_order=True, figures=figures)
        figures = {**figures, "gm_bytes_per_cycle": self.bandwidth(figures) / self.profile["cores"]}
        return Options(soc=self.chip, one_order=True, figures=figures, most_cores=1)

    def cycles(self, figures: Figures) -> float:
        """The cycles of the whole launch with these figures."""
        cycles: float = self.make(self.part)(self.options(figures))["cycles"]
        return cycles

    def share(self, cycles: float, figures: Figures) -> float:
        """The share of the memory's roofline that a launch with these cycles reaches."""
        share: float = self.whole["least_bytes"] / self.bandwidth(figures) / cycles
        return share

    def check(self) -> None:
        """Compare the whole launch with the part of one core."""
        whole, part = self.whole["cycles"], self.cycles({})
        if abs(part / whole - 1) > MAX_PART_DIFFERENCE:
            sys.exit(f"{self.name}: one core takes {part:,.0f} cycles, but the launch {whole:,.0f}")


def norm(make: Callable[..., Launch], dtype: Dtype) -> Callable[[int], Launch]:
    return lambda rows: make(shape=f"{rows},4096", dtype=dtype)


def rope(dtype: Dtype, mode: Mode = Mode.NEOX, heads: int = 32, **more: Any) -> Callable[[int], Launch]:
    return lambda tokens: trace.rope(shape=f"1,{tokens},{heads},128", dtype=dtype, mode=mode, **more)


def rotary_mul(dtype: Dtype, **more: Any) -> Callable[[int], Launch]:
    return lambda tokens: trace.rotary_mul(shape=f"1,{tokens},32,128", dtype=dtype, **more)


def norm_rope(dtype: Dtype) -> Callable[[int], Launch]:
    return lambda tokens: trace_norm.rms_norm_rope(shape=f"1,{tokens},32,128", keys=8, dtype=dtype)


CASES = (
    Case("neox bf16", A2, rope(Dtype.BF16), 4096),
    Case("neox f32", A2, rope(Dtype.F32), 4096),
    Case("normal bf16", A2, rope(Dtype.BF16, Mode.NORMAL), 4096),
    Case("normal f32", A2, rope(Dtype.F32, Mode.NORMAL), 4096),
    Case("bnsd neox bf16", A2, rope(Dtype.BF16, layout=MemoryOrder.BNSD), 4096),
    Case("8 heads neox bf16", A2, rope(Dtype.BF16, heads=8), 4096),
    Case("decode neox bf16", A2, rope(Dtype.BF16), 1, splits=False),
    Case("rotary_mul bf16", A2, rotary_mul(Dtype.BF16), 4096),
    Case("rotary_mul interleaved bf16", A2, rotary_mul(Dtype.BF16, interleaved=True), 4096),
    Case("rms_norm bf16", A2, norm(trace_norm.rms_norm, Dtype.BF16), 2048),
    Case("add_rms_norm bf16", A2, norm(trace_norm.add_rms_norm, Dtype.BF16), 2048),
    Case("rms_norm_rope bf16", A2, norm_rope(Dtype.BF16), 4096),
    Case("rms_norm_backward bf16", A2, norm(trace_norm.rms_norm_backward, Dtype.BF16), 2048),
    Case("neox f16", P310, rope(Dtype.F16), 4096),
    Case("normal f16", P310, rope(Dtype.F16, Mode.NORMAL), 4096),
    Case("rotary_mul f16", P310, rotary_mul(Dtype.F16), 4096),
    Case("rms_norm f16", P310, norm(trace_norm.rms_norm, Dtype.F16), 2048),
    Case("add_rms_norm f16", P310, norm(trace_norm.add_rms_norm, Dtype.F16), 2048),
    Case("rms_norm_rope f16", P310, norm_rope(Dtype.F16), 4096),
    Case("rms_norm_backward f16", P310, norm(trace_norm.rms_norm_backward, Dtype.F16), 2048),
)


def ranges(chip: str) -> dict[str, tuple[float, float]]:
    """The lowest and highest published value of each figure that has a range."""
    page = FIGURES_PAGE.read_text()
    found: dict[str, tuple[float, float]] = {}
    row = r"^\| %s \| [^|]+ \| ([\d.]+) \| ([\d.]+) \|"
    for heading in (CHIPS[A2], CHIPS[chip]):
        section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        for name, low, high in re.findall(row % r"`(\w+)`", section, re.MULTILINE):
            found[name] = (float(low), float(high))
    low, high = re.findall(row % chip, page, re.MULTILINE)[0]
    found["gm_bytes_per_cycle"] = (float(low), float(high))
    return found


def settings(chip: str) -> Iterator[tuple[str, Figures]]:
    """Yield settings with their names: the profile's figures, then each figure at each end of its range."""
    profile = next(p for p in library.load().profiles() if p["name"] == chip)
    yield "the profile's figures", {}
    for name, (low, high) in ranges(chip).items():
        for value in dict.fromkeys((low, high)):
            if f"{value:.3g}" != f"{profile[name]:.3g}":
                yield f"`{name}` {value:g}", {name: value}
    for rate, latency in RATES_AND_LATENCIES if chip == A2 else ():
        yield (
            f"`core_gm_bytes_per_cycle` {rate}, `read_latency_cycles` {latency}",
            {"core_gm_bytes_per_cycle": rate, "read_latency_cycles": latency},
        )


def table(chip: str) -> str:
    """Return a row for each setting and a column for each case: share of the roofline, cycles."""
    cases = [case for case in CASES if case.chip == chip]
    for case in cases:
        case.check()
    names = [case.name for case in cases]
    rows = [f"| {chip} | {' | '.join(names)} |", f"|---|{'---|' * len(cases)}"]
    unchanged, profile_cycles = [], [0.0] * len(cases)
    for text, figures in settings(chip):
        print(f"\r{chip} {text:70}", end="", file=sys.stderr)
        cycles = [case.cycles(figures) for case in cases]
        profile_cycles = profile_cycles if figures else cycles
        ratios = (new / old for new, old in zip(cycles, profile_cycles, strict=True))
        if figures and all(abs(ratio - 1) < UNCHANGED for ratio in ratios):
            unchanged.append(text)
            continue
        cells = (f"{case.share(c, figures):.1%} {c:,.0f}" for case, c in zip(cases, cycles, strict=True))
        rows.append(f"| {text} | {' | '.join(cells)} |")
    print(file=sys.stderr)
    note = f"Settings that change each launch by less than 0.05 %: {', '.join(unchanged)}."
    return "\n".join(rows) + f"\n\n{note}\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--markdown", type=Path, help="write the tables between the marks of this page")
    options = parser.parse_args()
    tables = {chip: table(chip) for chip in CHIPS}
    if options.markdown is None:
        print("\n".join(tables.values()), end="")
        return
    page = options.markdown.read_text()
    for chip, text in tables.items():
        marks = f"<!-- {chip}: begin -->\n", f"<!-- {chip}: end -->"
        page = with_table(page, *marks, text, options.markdown)
    options.markdown.write_text(page)


if __name__ == "__main__":
    main()
