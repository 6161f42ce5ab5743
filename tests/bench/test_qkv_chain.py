"""benchmarks/trace_qkv_chain.py: the chain of single launches computes what one launch computes, and moves
the bytes that the picture of docs/ops/qkv_norm_rope_cache.md shows."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from npu_rope import rms_norm_rope
from npu_rope.cli.trace import Dtype

ROOT = Path(__file__).resolve().parents[2]
CHIP = "Ascend910B1"
SVG = "{http://www.w3.org/2000/svg}"


def module(folder: str, name: str) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / folder))
        yield importlib.import_module(name)


@pytest.fixture(scope="module")
def chain() -> Iterator[Any]:
    yield from module("benchmarks", "trace_qkv_chain")


@pytest.fixture(scope="module")
def drawing(chain: Any) -> Iterator[Any]:
    yield from module("scripts", "draw_qkv_bytes")


def run_chain(chain: Any, sizes: Any, slots: Any = None) -> tuple[Any, dict[str, Any]]:
    """Return the call with its results, and the summary of each launch."""
    call = chain.Call(sizes, CHIP)
    if slots is not None:
        call.slots = slots
    return call, {step.name: step.launch(call) for step in chain.CHAIN}


def parts(call: Any) -> list[Any]:
    """q, k and v of the fused tensor."""
    ends = np.cumsum(list(call.sizes.heads.values()))
    return np.split(call.fused, ends[:-1], axis=1)


# ---- results ---------------------------------------------------------------------------------------

SHAPES = {
    "one token": (1, 32, 8, 128),
    "fewer tokens than cores": (32, 32, 8, 128),
    "one token more than cores": (49, 4, 1, 128),
    "tiles that end inside a token": (700, 9, 3, 80),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_chain_gives_the_bits_of_norm_and_rotation_with_intermediate_rounding(chain, shape):
    call, _ = run_chain(chain, chain.Sizes(*shape, dtype=Dtype.F16))
    q, k, v = parts(call)
    scales = call.scales["q"], call.scales["k"]
    positions = call.positions
    rotated = rms_norm_rope(
        *(q[None], k[None], *scales, positions, call.params),
        epsilon=chain.EPSILON,
        intermediate_rounding=True,
        backend="sim",
    )
    assert np.array_equal(call.q_out, rotated[0][0])
    assert np.array_equal(call.caches["k"][call.slots], rotated[1][0])
    assert np.array_equal(call.caches["v"][call.slots], v)


def test_the_one_launch_computes_what_the_chain_computes_but_for_roundings(chain):
    sizes = chain.Sizes(50, dtype=Dtype.F32)
    chained, _ = run_chain(chain, sizes)
    one = chain.Call(sizes, CHIP)
    chain.one_launch(one)
    # Both compute in float32, but in another order.
    assert np.abs(one.q_out - chained.q_out).max() < 2**-18 * np.abs(chained.q_out).max()
    assert np.abs(one.caches["k"] - chained.caches["k"]).max() < 2**-18 * np.abs(chained.caches["k"]).max()
    assert np.array_equal(one.caches["v"], chained.caches["v"])


def test_a_token_whose_slot_is_no_row_is_left_out(chain):
    slots = np.arange(60, dtype=np.int32)[::-1].copy()
    slots[[3, 58]] = -1, 60
    call, _ = run_chain(chain, chain.Sizes(60, 2, 2, 64, Dtype.F16), slots)
    kept = np.flatnonzero((slots >= 0) & (slots < 60))
    assert np.array_equal(call.caches["v"][slots[kept]], parts(call)[2][kept])
    assert not call.caches["v"][[56, 1]].any()  # the rows that tokens 3 and 58 had


# ---- bytes -----------------------------------------------------------------------------------------


def parameter_bytes(call: Any, name: str, summary: Any) -> tuple[int, int]:
    """Return the least and the most bytes that a launch reads besides q, k and v. Each core reads scales and
    frequencies: two to four float32 for each pair."""
    row, ids, cores = call.scales["q"].nbytes, 4 * call.sizes.tokens, int(summary["cores"])
    pairs = 4 * call.params.pairs
    scales = {"rms_norm of q": 1, "rms_norm of k": 1, "qkv_norm_rope_cache": 2}.get(name, 0) * cores * row
    ids = 0 if name in ("split", "rms_norm of q", "rms_norm of k") else ids  # positions or slots
    rotates = name in ("rope_qk", "qkv_norm_rope_cache")
    least, most = (scales + ids + rotates * vectors * cores * pairs for vectors in (2, 4))
    return least, most


@pytest.mark.parametrize("tokens", [48, 96, 240])
def test_each_launch_moves_the_bytes_of_its_tensors_and_its_parameters(chain, tokens):
    sizes = chain.Sizes(tokens)
    call, summaries = run_chain(chain, sizes)
    expected = {traffic.name: traffic for traffic in chain.chain_traffic(sizes)}
    assert list(expected) == list(summaries)
    summaries["qkv_norm_rope_cache"] = chain.one_launch(chain.Call(sizes, CHIP))
    expected["qkv_norm_rope_cache"] = chain.one_launch_traffic(sizes)
    for name, summary in summaries.items():
        reads, writes = (sum(moved.values()) for moved in (expected[name].reads, expected[name].writes))
        assert summary["bytes_written"] == writes, name
        least, most = parameter_bytes(call, name, summary)
        assert reads + least <= summary["bytes_read"] <= reads + most, name


def test_the_chain_moves_three_times_the_bytes_of_one_launch(chain):
    sizes = chain.Sizes(4096)
    one = chain.one_launch_traffic(sizes).total
    assert one == 2 * 4096 * 48 * 128 * 2
    assert sum(traffic.total for traffic in chain.chain_traffic(sizes)) == 3 * one


# ---- the picture -----------------------------------------------------------------------------------


def bars_of(tree: ElementTree.Element) -> list[ElementTree.Element]:
    return [rect for rect in tree.iterfind(f"{SVG}rect") if rect.attrib["class"] in ("q", "k", "v")]


def test_the_committed_picture_shows_the_bytes(drawing):
    assert drawing.PICTURE.read_text() == drawing.picture()


def test_the_bars_of_the_picture_have_the_lengths_of_the_bytes(chain, drawing):
    tree = ElementTree.fromstring(drawing.picture())
    launches = (*chain.chain_traffic(drawing.SIZES), chain.one_launch_traffic(drawing.SIZES))
    moved = [m for launch in launches for m in (*launch.reads.items(), *launch.writes.items())]
    bars = bars_of(tree)
    assert [bar.attrib["class"] for bar in bars] == [name for name, _ in moved]
    lengths = [float(bar.attrib["width"]) + drawing.GAP for bar in bars]
    longest = sum(launches[-1].reads.values())
    assert lengths == pytest.approx([count * drawing.BARS / longest for _, count in moved], abs=1e-3)
    shown = {text.text for text in tree.iterfind(f"{SVG}text")}
    assert {f"{launch.total:,}" for launch in launches[:-1]} <= shown
    assert f"{sum(launch.total for launch in launches[:-1]):,}" in shown
    assert "24,576: 33% of the chain" in shown


def test_no_text_of_the_picture_meets_another_part_of_it(drawing):
    tree = ElementTree.fromstring(drawing.picture())
    texts = list(tree.iterfind(f"{SVG}text"))
    labels = [text for text in texts if text.attrib["class"] == "in"]
    for bar, label in zip(bars_of(tree), labels, strict=True):
        assert 6.0 * len(label.text) < float(bar.attrib["width"])  # 11 px of a sans-serif font
    names = [text for text in texts if text.attrib["class"] == "name"]
    assert all(16 + 7.2 * len(name.text) < drawing.MIDDLE - drawing.BARS for name in names)
    assert drawing.WIDTH - 16 - 7.2 * len("24,576") > drawing.MIDDLE + drawing.BARS


# ---- the table -------------------------------------------------------------------------------------


def printed(chain: Any, capsys: Any, *arguments: str) -> list[list[str]]:
    """Return the cells of the tables."""
    chain.main(list(arguments))
    rows = capsys.readouterr().out.splitlines()
    return [[cell.strip(" *") for cell in row.strip("|").split("|")] for row in rows]


def test_the_table_has_the_ratio_of_the_cycles_and_of_the_times_with_launch_costs(chain, capsys):
    rows = printed(chain, capsys, "--tokens", "1,48", "--launch-us", "7.5")
    names = [row[0] for row in rows]
    assert names[2:8] == [step.name for step in chain.CHAIN]
    assert names[11] == "the same with 7.5 µs for each launch"
    for column in (1, 2):
        *steps, total, one = (float(row[column].split(" ")[0].replace(",", "")) for row in rows[2:10])
        assert total == pytest.approx(sum(steps), abs=4)
        assert float(rows[10][column]) == pytest.approx(one / total, abs=1e-3)
        cost = 7.5e3 * 1.85  # 1.85 GHz
        assert float(rows[11][column]) == pytest.approx((one + cost) / (total + 6 * cost), abs=1e-3)


def test_the_second_table_compares_with_the_recorded_cycles_of_the_same_sizes(chain, capsys):
    rows = printed(chain, capsys, "--tokens", "32,48", "--launch-us", "5")
    second = {row[0]: row[1:] for row in rows[rows.index([""]) + 1 :]}
    assert second["cycles"] == ["32 tokens"]  # nothing is recorded for 48
    recorded = [cycles[1] for cycles in chain.OFFICIAL_CHAIN.values()]
    assert second["chain: 5 launches"] == [f"{sum(recorded):,}"]
    one = float(second["qkv_norm_rope_cache: one launch"][0].replace(",", ""))
    assert rows[9][1].startswith(second["qkv_norm_rope_cache: one launch"][0])
    assert float(second["chain / one launch"][0]) == pytest.approx(sum(recorded) / one, abs=0.01)
    cost = 5e3 * 1.85
    expected = (sum(recorded) + 5 * cost) / (one + cost)
    assert float(second["the same with 5 µs for each launch"][0]) == pytest.approx(expected, abs=0.01)
    given = float(second["qkv_norm_rope_cache with given tables"][0].replace(",", ""))
    assert given < one  # the launch computes no table
    ratio = float(second["QkvRmsNormRopeCache / ours with given tables"][0])
    assert ratio == pytest.approx(chain.OFFICIAL_ONE_LAUNCH[1] / given, abs=0.01)


@pytest.mark.parametrize("arguments", [["--soc", "Ascend910B3"], ["--heads", "32,4"], ["--dtype", "f16"]])
def test_other_sizes_and_chips_have_no_second_table(chain, capsys, arguments):
    assert [""] not in printed(chain, capsys, "--tokens", "1", *arguments)


def test_a_table_is_written_between_the_marks_of_a_page(chain, capsys, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n" + chain.MARKS[0] + "old\n" + chain.MARKS[1] + "\nafter\n")
    chain.main(["--tokens", "1", "--heads", "2,1", "--dtype", "f16", "--markdown", str(page)])
    captured = capsys.readouterr()
    assert "1 tokens: one launch" in captured.err
    assert not captured.out
    text = page.read_text()
    assert text.startswith("before\n" + chain.MARKS[0] + "| cycles")
    assert text.endswith("\n" + chain.MARKS[1] + "\nafter\n")
    assert "old" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tokens", "1,0"], "argument --tokens: must be positive numbers such as 1,32 but got 1,0."),
        (["--heads", "32"], "argument --heads: must be two numbers such as 32,8 but got 1."),
        (["--head-size", "20"], "argument --head-size: must be whole blocks of 32 bytes but got 20."),
        (["--launch-us", "5,-1"], "argument --launch-us: must be numbers such as 5,20, none below 0"),
        (["--soc", "Ascend310P3"], "argument --soc: must have DataCopyPad, which the stores use"),
        (["--soc", "Ascend1"], "argument --soc: must be one of Ascend910B1, "),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_bad_arguments_are_refused_with_a_sentence(chain, capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        chain.main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("tokens", [32, pytest.param(4096, marks=pytest.mark.slow)])
def test_one_launch_takes_at_most_two_fifths_of_the_chain(chain, tokens):
    result = chain.measure(chain.Sizes(tokens), CHIP, lambda text: None)
    assert result.ratio(0) <= 0.40
    assert result.official_ratio(0) >= 2.5
