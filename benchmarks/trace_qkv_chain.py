"""Compare qkv_norm_rope_cache in one launch with a chain of single launches, in simulated cycles.

Both start from the fused tensor of the projection [tokens, heads of q, k and v, D]. Both end with the rotated
queries, and with keys and values in rows of their caches. The chain has six launches:

  split          copies q, k and v into tensors of their own   benchmarks/kernels/split_heads.cpp
  rms_norm of q  normalizes each head of the queries           npu_rope.rms_norm
  rms_norm of k  normalizes each head of the keys              npu_rope.rms_norm
  rope_qk        rotates queries and keys by their positions   npu_rope.rope_qk
  store of k     copies the keys into rows of their cache      benchmarks/kernels/scatter_rows.cpp
  store of v     copies the values into rows of their cache    benchmarks/kernels/scatter_rows.cpp

The table has the cycles of each launch, with the share of the memory roofline that it reaches. They come from
the simulator's model (simulator/docs/kernels.md), without the launch itself. The rows "with 5 µs for each
launch" show how much a launch's own cost adds to the difference.

A second table compares the one launch with the same chain of official kernels of CANN, if the sizes are those
of its recorded cycles (docs/official_kernels.md). The official kernels take cosines and sines from memory;
one row has our launch with such tables.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from ascend_sim import In, Options, Out, Part, compile, instructions, library
from ascend_sim.compiler import compile_soc
from page import with_table

from npu_rope import RopeParams, simulated_package
from npu_rope.cli.trace import Dtype, random_values, rounded_to
from npu_rope.executors import qkv_norm_rope_cache as qkv
from npu_rope.executors import rms_norm as norms
from npu_rope.executors import rotations
from npu_rope.qkv_norm_rope_cache_calls import QkvAttributes, qkv_tensors
from npu_rope.rms_norm_calls import RmsNormAttributes, rms_norm_tensors
from npu_rope.rope_calls import RopeCallAttributes, rope_qk_tensors

MARKS = "<!-- simulated chain: begin -->\n", "<!-- simulated chain: end -->"
OFFICIAL_MARKS = "<!-- official chain: begin -->\n", "<!-- official chain: end -->"
KERNELS = Path(__file__).resolve().parent / "kernels"
EXAMPLES = """
examples:
  trace_qkv_chain.py                                    Qwen3-8B, bfloat16, 1 to 4,096 tokens
  trace_qkv_chain.py --tokens 32                        a decode step of 32 sequences, in a few seconds
  trace_qkv_chain.py --heads 64,4 --dtype f16           64 heads of q, 4 of k and of v
  trace_qkv_chain.py --soc Ascend910B4 --launch-us 10   another chip, another cost of a launch
  trace_qkv_chain.py --markdown docs/ops/qkv_norm_rope_cache.md   write the tables into this page
"""
DEFAULT_CHIP = "Ascend910B1"
EPSILON = 1e-6
# A copy that starts at a multiple of it costs least (gm_line_bytes of the simulator's profiles).
LINE_BYTES = 512
MAX_TILE_BYTES = 48 * 1024
ITEM_BYTES = {Dtype.BF16: 2, Dtype.F16: 2, Dtype.F32: 4}


@dataclass(frozen=True)
class Sizes:
    """The sizes of a call.

    Attributes:
        tokens: the number of tokens.
        q_heads, k_heads: the heads of q, and the heads of k, which are also those of v.
        head_size: elements of a head.
        dtype: the type of all heads and caches.
    """

    tokens: int
    q_heads: int = 32
    k_heads: int = 8
    head_size: int = 128
    dtype: Dtype = Dtype.BF16

    @property
    def heads(self) -> dict[str, int]:
        return {"q": self.q_heads, "k": self.k_heads, "v": self.k_heads}

    @property
    def bytes(self) -> dict[str, int]:
        """The bytes of q, k and v."""
        of_a_head = self.tokens * self.head_size * ITEM_BYTES[self.dtype]
        return {name: heads * of_a_head for name, heads in self.heads.items()}


@dataclass(frozen=True)
class Traffic:
    """The bytes of q, k and v that a launch reads and writes. Scales, positions and slots are left out."""

    name: str
    reads: Mapping[str, int]
    writes: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.reads.values()) + sum(self.writes.values())


def traffic_of(sizes: Sizes, name: str, tensors: str) -> Traffic:
    """Return the traffic of a launch that reads each of the tensors once and writes each once."""
    moved = {tensor: sizes.bytes[tensor] for tensor in tensors}
    return Traffic(name, moved, moved)


def chain_traffic(sizes: Sizes) -> tuple[Traffic, ...]:
    return tuple(traffic_of(sizes, step.name, step.tensors) for step in CHAIN)


def one_launch_traffic(sizes: Sizes) -> Traffic:
    return traffic_of(sizes, "qkv_norm_rope_cache", "qkv")


class Call:
    """The inputs and outputs of a call. A launch takes the results of the launches before it.

    Attributes:
        kept: q, k and v by name, as the chain's last launch left them.
        q_out, k_cache, v_cache: the results of the one launch or of the chain.
    """

    def __init__(self, sizes: Sizes, chip: str) -> None:
        self.sizes, self.chip = sizes, chip
        t, d = sizes.tokens, sizes.head_size
        self.fused = rounded_to(random_values((t, sum(sizes.heads.values()), d)), sizes.dtype)
        self.scales = dict(zip("qk", rounded_to(random_values((2, d)), sizes.dtype), strict=True))
        self.params = RopeParams(d, "neox", freq_base=1e6)
        self.positions = np.arange(t, dtype=np.int32)
        self.slots = np.random.default_rng(1).permutation(t).astype(np.int32)
        self.kept: dict[str, Any] = {}
        self.q_out = self.new("q")
        self.caches = {name: np.zeros_like(self.new(name)) for name in "kv"}

    def new(self, name: str) -> Any:
        """Return memory for q, k or v."""
        return np.empty((self.sizes.tokens, self.sizes.heads[name], self.sizes.head_size), self.fused.dtype)

    @property
    def options(self) -> Options:
        return Options(soc=self.chip, one_order=True)

    @cached_property
    def cores(self) -> int:
        profile = next(p for p in library.load().profiles() if p["name"] == self.chip)
        return int(profile["cores"])


Summary = dict[str, Any]  # the simulator's summary of a launch


# ---- the launches of the chain ---------------------------------------------------------------------


def split(call: Call) -> Summary:
    call.kept = {name: call.new(name) for name in "qkv"}
    token_bytes = [part // call.sizes.tokens for part in call.sizes.bytes.values()]
    core_bytes = rounded_up(rounded_up(call.fused.nbytes, call.cores) // call.cores, LINE_BYTES)
    tile_bytes = min(MAX_TILE_BYTES, core_bytes)
    kernel = compile(KERNELS / "split_heads.cpp", "split_heads", soc=compile_soc(call.chip))
    report = kernel.run(
        In(call.fused),
        *(Out(part) for part in call.kept.values()),
        block_dim=-(-call.fused.nbytes // core_bytes),
        tiling=struct.pack("6q", *token_bytes, call.sizes.tokens, core_bytes, tile_bytes),
        options=call.options,
    )
    return report.summary


def normalize(call: Call, name: str) -> Summary:
    rows = call.kept[name].reshape(-1, call.sizes.head_size)
    results = (np.empty_like(rows),)
    attributes = RmsNormAttributes(epsilon=EPSILON)
    norms.launch_on_sim(call.options, rms_norm_tensors(rows, call.scales[name]), results, attributes, axis=1)
    call.kept[name] = results[0].reshape(call.kept[name].shape)
    return last_summary()


def rotate(call: Call) -> Summary:
    xs = [call.kept[name][None] for name in "qk"]
    results = call.q_out[None], np.empty_like(xs[1])
    tensors = rope_qk_tensors(*xs, call.positions, None, None)
    rotations.launch_on_sim(call.options, tensors, results, RopeCallAttributes(call.params))
    call.kept |= {"q": call.q_out, "k": results[1][0]}
    return last_summary()


def store(call: Call, name: str) -> Summary:
    x, t = call.kept[name], call.sizes.tokens
    row_bytes = x.nbytes // t
    pieces = 1  # cores that share a row
    while 2 * pieces * t <= call.cores and row_bytes % (2 * pieces * LINE_BYTES) == 0:
        pieces *= 2
    core_tokens = -(-t * pieces // call.cores)
    tile_tokens = max(1, min(MAX_TILE_BYTES * pieces // row_bytes, core_tokens))
    numbers = t, len(call.caches[name]), row_bytes, row_bytes // pieces, core_tokens, tile_tokens
    kernel = compile(KERNELS / "scatter_rows.cpp", "scatter_rows", soc=compile_soc(call.chip))
    report = kernel.run(
        In(x),
        In(call.slots),
        Part(call.caches[name]),
        block_dim=-(-t // core_tokens) * pieces,
        tiling=struct.pack("6q", *numbers),
        options=call.options,
    )
    return report.summary


@dataclass(frozen=True)
class Step:
    """A launch of the chain, and the tensors among q, k and v that it reads and writes."""

    name: str
    tensors: str
    launch: Callable[[Call], Summary]


CHAIN = (
    Step("split", "qkv", split),
    Step("rms_norm of q", "q", lambda call: normalize(call, "q")),
    Step("rms_norm of k", "k", lambda call: normalize(call, "k")),
    Step("rope_qk", "qk", rotate),
    Step("store of k", "k", lambda call: store(call, "k")),
    Step("store of v", "v", lambda call: store(call, "v")),
)


# ---- the one launch --------------------------------------------------------------------------------


def one_launch(call: Call, with_tables: bool = False) -> Summary:
    """Run qkv_norm_rope_cache.

    Args:
        with_tables: pass cosines and sines of each token and pair instead of frequencies.
    """
    ends = np.cumsum(list(call.sizes.heads.values()))
    xs = dict(zip("qkv", np.split(call.fused, ends[:-1], axis=1), strict=True))
    scales = {f"{name}_scale": scale for name, scale in call.scales.items()}
    others = {**scales, "positions": call.positions, "slots": call.slots}
    if with_tables:
        pairs = np.arange(call.params.pairs) / call.params.pairs
        angles = np.outer(call.positions, call.params.freq_base**-pairs).astype(np.float32)
        others |= {
            "cos": rounded_to(np.cos(angles), call.sizes.dtype),
            "sin": rounded_to(np.sin(angles), call.sizes.dtype),
        }
    outs = {"q_out": call.q_out, "k_cache": call.caches["k"], "v_cache": call.caches["v"]}
    attributes = QkvAttributes(call.params, epsilon=EPSILON)
    qkv.launch_on_sim(call.options, qkv_tensors(xs, others, outs), tuple(outs.values()), attributes)
    return last_summary()


def last_summary() -> Summary:
    """Return the summary of the last launch of an operator of the package."""
    summary: Summary = simulated_package.load().simulator.report()["summary"]
    return summary


def rounded_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


# ---- the tables ------------------------------------------------------------------------------------

# Cycles of official kernels on the simulated Ascend910B1, for OFFICIAL_TOKENS tokens of the default sizes.
# docs/official_kernels.md names the sources.
OFFICIAL_TOKENS = (1, 32, 256, 4096)
OFFICIAL_CHAIN = {
    "SplitV": (1100, 2016, 9129, 126609),
    "RmsNorm of q": (1372, 2732, 9067, 98991),
    "RmsNorm of k": (1371, 1567, 3702, 27063),
    "ApplyRotaryPosEmb": (2008, 2050, 9863, 136851),
    "ScatterPaKvCache of k and v": (1563, 1580, 6455, 73549),
}
OFFICIAL_ONE_LAUNCH = (1524, 5990, 31760, 469640)  # QkvRmsNormRopeCache


@dataclass(frozen=True)
class Result:
    """The summaries of a call's launches."""

    sizes: Sizes
    chain: dict[str, Summary]
    one: Summary
    one_with_tables: Summary

    def launch_cycles(self, launch_us: float) -> float:
        """Return the cost of a launch in cycles."""
        return float(launch_us * 1e3 * self.one["clock_ghz"])

    def ratio(self, launch_us: float) -> float:
        """The time of the one launch, as a share of the chain's, with a cost for each launch."""
        cost = self.launch_cycles(launch_us)
        chain = sum(summary["cycles"] + cost for summary in self.chain.values())
        return float((self.one["cycles"] + cost) / chain)

    def official(self, cycles: tuple[int, ...]) -> int:
        """The recorded cycles of an official kernel for the number of tokens."""
        return cycles[OFFICIAL_TOKENS.index(self.sizes.tokens)]

    def official_ratio(self, launch_us: float) -> float:
        """The time of the chain of official kernels over that of the one launch."""
        cost = self.launch_cycles(launch_us)
        chain = sum(self.official(cycles) + cost for cycles in OFFICIAL_CHAIN.values())
        return float(chain / (self.one["cycles"] + cost))


def measure(sizes: Sizes, chip: str, progress: Callable[[str], None]) -> Result:
    call, chain = Call(sizes, chip), {}
    for step in CHAIN:
        progress(f"{sizes.tokens:,} tokens: {step.name}")
        chain[step.name] = step.launch(call)
    progress(f"{sizes.tokens:,} tokens: one launch")
    one, one_with_tables = (one_launch(Call(sizes, chip), with_tables) for with_tables in (False, True))
    return Result(sizes, chain, one, one_with_tables)


def moved_bytes(summary: Summary) -> float:
    return float(summary["bytes_read"] + summary["bytes_written"])


def cycles_and_share(summary: Summary, least_bytes: int) -> str:
    """Return the cycles of a launch, and the share of the memory roofline that it reaches."""
    share = least_bytes / summary["gm_bytes_per_cycle"] / summary["cycles"]
    return f"{summary['cycles']:,.0f} ({share:.0%})"


class Table:
    """A table in Markdown with a column for each result."""

    def __init__(self, heading: str, results: list[Result]) -> None:
        self.results = results
        self.rows = list[str]()
        self.add(heading, lambda r: f"{r.sizes.tokens:,} token" + "s" * (r.sizes.tokens > 1))
        self.rows.append("|---|" + "---:|" * len(results))

    def add(self, name: str, cell: Callable[[Result], str]) -> None:
        self.rows.append(f"| {name} | {' | '.join(map(cell, self.results))} |")

    def __str__(self) -> str:
        return "\n".join(self.rows) + "\n"


def chain_table(results: list[Result], launch_us: list[float]) -> str:
    table = Table("cycles (share of the memory roofline)", results)
    for i, step in enumerate(CHAIN):
        table.add(
            step.name,
            lambda r, i=i: cycles_and_share(r.chain[CHAIN[i].name], chain_traffic(r.sizes)[i].total),
        )
    table.add(f"chain: {len(CHAIN)} launches", lambda r: f"{sum(s['cycles'] for s in r.chain.values()):,.0f}")
    table.add(
        "**qkv_norm_rope_cache: one launch**",
        lambda r: f"**{cycles_and_share(r.one, one_launch_traffic(r.sizes).total)}**",
    )
    table.add("one launch / chain", lambda r: f"**{r.ratio(0):.3f}**")
    for cost in launch_us:
        table.add(f"the same with {cost:g} µs for each launch", lambda r, cost=cost: f"{r.ratio(cost):.3f}")
    table.add(
        "bytes moved, one launch / chain",
        lambda r: f"{moved_bytes(r.one) / sum(map(moved_bytes, r.chain.values())):.3f}",
    )
    return str(table)


def official_table(results: list[Result], launch_us: list[float]) -> str:
    table = Table("cycles", results)
    for name, cycles in OFFICIAL_CHAIN.items():
        table.add(name, lambda r, cycles=cycles: f"{r.official(cycles):,}")
    table.add(
        f"chain: {len(OFFICIAL_CHAIN)} launches",
        lambda r: f"{sum(map(r.official, OFFICIAL_CHAIN.values())):,}",
    )
    table.add("**qkv_norm_rope_cache: one launch**", lambda r: f"**{r.one['cycles']:,.0f}**")
    table.add("chain / one launch", lambda r: f"**{r.official_ratio(0):.2f}**")
    for cost in launch_us:
        table.add(
            f"the same with {cost:g} µs for each launch", lambda r, cost=cost: f"{r.official_ratio(cost):.2f}"
        )
    table.add(
        "QkvRmsNormRopeCache: one launch, given tables", lambda r: f"{r.official(OFFICIAL_ONE_LAUNCH):,}"
    )
    table.add(
        "**qkv_norm_rope_cache with given tables**", lambda r: f"**{r.one_with_tables['cycles']:,.0f}**"
    )
    table.add(
        "QkvRmsNormRopeCache / ours with given tables",
        lambda r: f"**{r.official(OFFICIAL_ONE_LAUNCH) / r.one_with_tables['cycles']:.2f}**",
    )
    return str(table)


def official_results(results: list[Result], chip: str) -> list[Result]:
    """Return the results for which the cycles of official kernels are recorded."""
    has_record = {Sizes(tokens) for tokens in OFFICIAL_TOKENS}
    return [r for r in results if chip == DEFAULT_CHIP and r.sizes in has_record]


# ---- the command line ------------------------------------------------------------------------------


def positive_numbers(text: str) -> list[int]:
    """Return the numbers of a list such as 1,32."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"must be positive numbers such as 1,32 but got {text}.")
    return numbers


def costs(text: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = [-1.0]
    if not all(0 <= number < float("inf") for number in numbers):
        raise argparse.ArgumentTypeError(f"must be numbers such as 5,20, none below 0, but got {text}.")
    return numbers


def chip_of(soc: str) -> str:
    """Return the chip of an SoC or chip in any case."""
    for profile in library.load().profiles():
        if soc.lower() in (str(profile["name"]).lower(), str(profile["soc"]).lower()):
            return str(profile["name"])
    chips = ", ".join(str(profile["name"]) for profile in library.load().profiles())
    raise argparse.ArgumentTypeError(f"must be one of {chips} but got {soc}.")


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, metavar, kind, default, text in (
        (
            "--tokens",
            "N,...",
            positive_numbers,
            "1,32,256,4096",
            "numbers of tokens, one column of the table for each",
        ),
        ("--heads", "Q,K", positive_numbers, "32,8", "heads of q; heads of k, which are also those of v"),
        ("--head-size", "N", int, "128", "elements of a head"),
        ("--dtype", "TYPE", Dtype, "bf16", "bf16, f16 or f32"),
        ("--soc", "SOC", chip_of, DEFAULT_CHIP, "an SoC such as ascend910b, or a chip"),
        ("--launch-us", "US,...", costs, "5,20", "costs of a launch in µs, one row of the table for each"),
    ):
        help_text = f"{text} (default {default})"
        parser.add_argument(name, type=kind, default=default, metavar=metavar, help=help_text)
    help_text = "write the tables between the marks of this page instead of printing them"
    parser.add_argument("--markdown", type=Path, metavar="PAGE", help=help_text)
    options = parser.parse_args(arguments)
    if len(options.heads) != 2:
        parser.error(f"argument --heads: must be two numbers such as 32,8 but got {len(options.heads)}.")
    if options.head_size < 1 or options.head_size * ITEM_BYTES[options.dtype] % 32:
        parser.error(f"argument --head-size: must be whole blocks of 32 bytes but got {options.head_size}.")
    if not instructions(options.soc)["DataCopyPad"]:
        parser.error(f"argument --soc: must have DataCopyPad, which the stores use, but got {options.soc}.")
    return options


def main(arguments: list[str] | None = None) -> None:
    options = options_of(arguments)

    def progress(text: str) -> None:
        print(f"\r{text:40}", end="", file=sys.stderr, flush=True)

    results = []
    for tokens in options.tokens:
        sizes = Sizes(tokens, *options.heads, options.head_size, options.dtype)
        results.append(measure(sizes, options.soc, progress))
    print(file=sys.stderr)
    tables = {MARKS: chain_table(results, options.launch_us)}
    if recorded := official_results(results, options.soc):
        tables[OFFICIAL_MARKS] = official_table(recorded, options.launch_us)
    if options.markdown is None:
        print("\n".join(tables.values()), end="")
        return
    page = options.markdown.read_text()
    for marks, table in tables.items():
        page = with_table(page, *marks, table, options.markdown)
    options.markdown.write_text(page)


if __name__ == "__main__":
    main()
