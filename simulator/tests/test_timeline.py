"""The timeline: costs of instructions and copies, parallel pipes, totals, the critical path, the trace."""

from __future__ import annotations

import itertools
import json
import struct
from collections import defaultdict

import ascend_sim
import numpy as np
import pytest
from ascend_sim import In, Part, library

FLOATS = 1 << 18
# Cycles of the model (simulator/docs/kernels.md, "The timeline"). VECTOR and COPY: the fixed cost of a vector
# instruction and of a copy. TAIL: the extra cost of a count form whose last repeat is not whole. ISSUE: the
# scalar unit's cost of issuing an instruction or setting a flag.
VECTOR, COPY, TAIL, READ_LATENCY, WRITE_LATENCY, ISSUE = 22, 20.6, 17, 570, 96, 2.2
FUNCTION, REDUCTION = 29, 32  # the fixed cost of Exp, Ln, Sqrt and Div, and of a reduction of a repeat
PIPES = ("S", "V", "MTE2", "MTE3")
CRITICAL, READS_IN_PROGRESS, WRITES_IN_PROGRESS = 4, 5, 6  # rows of the trace after the pipes


def run(compiled, entry, *, count, tiles=1, buffers=1, setting=0, block_dim=1, soc="ascend910b", **options):
    """Run an entry of kernels/timeline.cpp and return the summary of its report.

    setting: a number whose meaning depends on the entry; see the comments in timeline.cpp.
    """
    kernel = compiled("timeline", entry, soc)
    report = kernel.run(
        In(np.ones(FLOATS, np.float32), "x"),
        Part(np.zeros(FLOATS, np.float32), "y"),
        tiling=struct.pack("<4I", count, tiles, buffers, setting),
        block_dim=block_dim,
        options=ascend_sim.Options(soc=soc, **options),
    )
    # Tests may use more blocks than cores (SIM-CORE-06) and instructions without elements (SIM-COUNT-05).
    assert {w["rule"] for w in report.warnings} <= {"SIM-CORE-06", "SIM-COUNT-05"}
    return report.summary


def profile(soc="ascend910b"):
    return next(p for p in library.load().profiles() if p["soc"] == soc)


def cycles_of(summary, api):
    (total,) = [t for t in summary["apis"] if t["api"] == api]
    return total["cycles"]


# ---- inserted synchronisation ----------------------------------------------------------------------------


@pytest.mark.long
def test_inserted_synchronisation_costs_what_the_kernel_s_own_costs(compiled):
    own = run(compiled, "sums_and_scalar", count=4096)
    inserted = run(compiled, "sums_and_scalar", count=4096, setting=1, auto_sync=True)
    assert inserted["cycles"] == own["cycles"]
    assert [t for t in inserted["apis"] if t["api"] == "auto_sync"]


# ---- vector instructions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("repeats", [0, 1, 64, 128])
def test_a_vector_instruction_has_a_fixed_cost_and_costs_a_cycle_per_repeat(compiled, repeats):
    assert cycles_of(run(compiled, "add_repeats", count=repeats), "Adds") == VECTOR + repeats


@pytest.mark.parametrize(("count", "repeats"), [(1, 1), (64, 1), (65, 2), (4096, 64)])
def test_a_count_form_costs_more_if_its_last_repeat_is_not_whole(compiled, count, repeats):
    tail = TAIL if count % 64 else 0
    assert cycles_of(run(compiled, "add_count", count=count), "Adds") == VECTOR + repeats + tail


def test_reading_the_destination_takes_two_cycles_per_repeat(compiled):
    summary = run(compiled, "multiply_and_add_repeats", count=32)
    assert cycles_of(summary, "MulAddDst") == VECTOR + 2 * 32


# ---- banks of UB (test_published.py has the measured cases) ------------------------------------------------


@pytest.mark.parametrize(("stride", "cycles"), [(1, 1), (2, 1), (4, 2), (8, 4), (16, 8)])
def test_blocks_of_a_repeat_in_the_same_bank_group_are_read_one_after_another(compiled, stride, cycles):
    summary = run(compiled, "add_strided", count=stride)
    assert cycles_of(summary, "Adds") == VECTOR + 4 * cycles


def test_banks_do_not_limit_an_instruction_that_takes_longer(compiled):
    """Div takes four cycles for a repeat, the banks two if its sources share groups."""
    apart = run(compiled, "divide_repeats", count=32, figures={"bank_cycles": 0})
    assert cycles_of(run(compiled, "divide_repeats", count=32), "Div") == cycles_of(apart, "Div")


@pytest.mark.parametrize("count", [1, 15, 16, 17, 18, 33, 100])
def test_every_repeat_waits_for_the_banks_that_its_sources_share(compiled, count):
    """The groups recur after 16 repeats."""
    apart, shared = (run(compiled, "add_two_repeats", count=count, setting=n) for n in (0, 64))
    assert cycles_of(apart, "Add") == VECTOR + count
    assert cycles_of(shared, "Add") == VECTOR + 2 * count


@pytest.mark.long
@pytest.mark.parametrize(("soc", "cycles"), [("ascend950", 34 + 2 * 32), ("ascend310p", 20 + 32)])
def test_two_sources_cost_two_cycles_per_repeat_on_ascend950_and_one_on_ascend310p(compiled, soc, cycles):
    assert cycles_of(run(compiled, "add_two_repeats", count=32, soc=soc), "Add") == cycles


# ---- copies ----------------------------------------------------------------------------------------------


def test_a_copy_costs_its_bytes_over_the_core_s_port(compiled):
    small, large = (run(compiled, "copy_in", count=n)["busy_MTE2"] for n in (1024, 5120))
    assert small > COPY
    assert large - small == pytest.approx(4096 * 4 / profile()["core_gm_bytes_per_cycle"])


@pytest.mark.parametrize("count", [8, 1024, 8192])
def test_a_copy_is_done_after_its_latency_and_its_transfer_whichever_is_longer(compiled, count):
    summary = run(compiled, "copy_in", count=count)
    # The scalar unit first reads the two words of the tiling data and issues the copy.
    after = ISSUE * 3 + max(COPY + READ_LATENCY, summary["busy_MTE2"])
    assert summary["cycles"] == pytest.approx(after)


def test_short_bursts_cost_more_than_one_long_one(compiled):
    short, long = (run(compiled, "copy_in_bursts", count=n, tiles=512 // n) for n in (8, 512))
    assert short["bytes_read"] == long["bytes_read"] == 2048
    assert short["busy_MTE2"] - long["busy_MTE2"] == pytest.approx(
        63 * profile()["burst_overhead_bytes"] / profile()["core_gm_bytes_per_cycle"]
    )


def test_an_address_that_is_not_512_byte_aligned_costs_more(compiled):
    aligned, unaligned, next_aligned = (
        run(compiled, "copy_in", count=4096, setting=n)["busy_MTE2"] for n in (0, 8, 128)
    )
    assert aligned == next_aligned
    assert unaligned - aligned == pytest.approx(512 / profile()["core_gm_bytes_per_cycle"])


@pytest.mark.parametrize("cores", [1, 2, 32, 48])
def test_cores_share_the_memory_s_bandwidth(compiled, cores):
    chip = profile()
    rate = min(chip["core_gm_bytes_per_cycle"], chip["gm_bytes_per_cycle"] / cores)
    small, large = (run(compiled, "copy_in", count=n, block_dim=cores)["busy_MTE2"] for n in (1024, 5120))
    assert large - small == pytest.approx(4096 * 4 / rate)


def test_a_copy_is_issued_while_the_one_before_it_moves(compiled):
    one, two = (run(compiled, "copy_in_tiles", count=2048, tiles=n)["busy_MTE2"] for n in (1, 2))
    assert two - one == pytest.approx(one - COPY)
    fewest, more = (run(compiled, "copy_in_tiles", count=32, tiles=n)["busy_MTE2"] for n in (4, 12))
    assert more - fewest == pytest.approx(8 * COPY)


def test_the_same_copy_takes_longer_on_ascend310p(compiled):
    on_910b, on_310p = (
        run(compiled, "copy_in", count=8192, soc=soc)["cycles"] for soc in ("ascend910b", "ascend310p")
    )
    assert on_310p > 1.3 * on_910b


@pytest.mark.parametrize("between", ["nothing", "an Adds", "a barrier"])
def test_a_write_waits_for_a_read_through_v_also_without_an_instruction_of_v(compiled, between):
    """V waits for the read and signals the write, with or without an instruction in between."""
    summary = run(compiled, "relay", count=512, setting=["nothing", "an Adds", "a barrier"].index(between))
    read = max(summary["busy_MTE2"], COPY + READ_LATENCY)
    floor = read + summary["busy_MTE3"] + WRITE_LATENCY
    assert floor < summary["cycles"] < floor + 60


def test_a_copy_that_waits_for_the_memory_moves_nothing_meanwhile(compiled):
    """Here a core's share of the memory bandwidth exceeds its port's rate. The read waits for the write's
    transfer and then takes its full time at the port's rate."""
    chip, cores, count = profile(), 24, 4096
    assert chip["gm_bytes_per_cycle"] / cores > chip["core_gm_bytes_per_cycle"]
    summary = run(compiled, "out_and_in", count=count, block_dim=cores)
    write = count * 4 / (chip["gm_bytes_per_cycle"] / cores)
    assert summary["busy_MTE2"] > write + count * 4 / chip["core_gm_bytes_per_cycle"]


# ---- a whole kernel ----------------------------------------------------------------------------------------


def test_more_bytes_cost_more(compiled):
    cycles = [run(compiled, "add_tiles", count=n, tiles=4)["cycles"] for n in (64, 256, 1024, 4096)]
    assert cycles == sorted(set(cycles))


@pytest.mark.parametrize(("block_dim", "count", "tiles"), [(1, 2048, 8), (48, 512, 10)])
def test_two_buffers_are_faster_than_one(compiled, block_dim, count, tiles):
    """The next tile is read while this one waits for its write, even if the memory limits all cores."""
    amounts = {"count": count, "tiles": tiles, "block_dim": block_dim}
    one, two = (run(compiled, "add_tiles", buffers=n, **amounts) for n in (1, 2))
    assert two["bytes_read"] == one["bytes_read"]
    assert two["cycles"] < 0.8 * one["cycles"]


def test_a_copy_that_has_begun_is_not_delayed_by_one_that_was_issued_earlier(compiled):
    """In this loop a write is issued before the next tile's read, but it is ready only after that read has
    ended. If the write delayed the read, more work would shorten the loop. (Other loops:
    simulator/docs/kernels.md.)"""
    amounts = {"count": 768, "tiles": 5, "buffers": 2, "block_dim": 48}
    cycles = [run(compiled, "add_tiles", setting=n, **amounts)["cycles"] for n in range(16)]
    assert cycles == sorted(cycles)


def test_twice_as_many_blocks_as_cores_take_twice_the_time(compiled):
    one, two = (run(compiled, "add_tiles", count=64, tiles=2, block_dim=n)["cycles"] for n in (48, 96))
    assert two == pytest.approx(2 * one)


def test_totals_are_exact(compiled):
    summary = run(compiled, "add_tiles", count=248, tiles=3, buffers=2, block_dim=4)
    assert summary["bytes_read"] == summary["bytes_written"] == 4 * 3 * 248 * 4
    # The scalar unit reads the tiling data. For each tile it issues three instructions and sets four flags.
    assert [summary[f"instructions_{pipe}"] for pipe in PIPES] == [4 * (1 + 3 * (3 + 4)), 12, 12, 12]
    # busy_S is the time of one core, which reads two 64-bit words of tiling data.
    assert summary["busy_S"] == pytest.approx((2 + 3 * (3 + 4)) * ISSUE)
    assert summary["vector_repeats"] == 4 * 3 * 4
    assert summary["cores"] == 4
    assert summary["memory_roofline_cycles"] == 2 * 4 * 3 * 248 * 4 / profile()["gm_bytes_per_cycle"]
    assert summary["microseconds"] == pytest.approx(summary["cycles"] / profile()["clock_ghz"] / 1000)
    assert summary["roofline_share"] == summary["memory_roofline_cycles"] / summary["cycles"]
    apis = [t for t in summary["apis"] if t["pipe"] != "S"]
    assert [(t["api"], t["pipe"], t["count"], t["bytes"], t["repeats"]) for t in apis] == [
        ("DataCopy", "MTE2", 3, 3 * 248 * 4, 0),
        ("Adds", "V", 3, 0, 3 * 4),
        ("DataCopy", "MTE3", 3, 3 * 248 * 4, 0),
    ]
    assert summary["busy_V"] == 3 * (VECTOR + 4 + TAIL)


# ---- the critical path -----------------------------------------------------------------------------------


def described(steps):
    return [(step["pipe"], step["api"], step["what"]) for step in steps]


@pytest.mark.parametrize(("tiles", "buffers", "cores"), [(1, 1, 1), (5, 1, 3), (8, 2, 48)])
def test_the_critical_path_lasts_as_long_as_the_slowest_core(compiled, tiles, buffers, cores):
    summary = run(compiled, "add_tiles", count=512, tiles=tiles, buffers=buffers, block_dim=cores)
    path = summary["critical_path"]
    assert path["core"] == summary["slowest_core"]
    assert path["cycles"] == pytest.approx(summary["cycles"])
    assert sum(path["pipes"].values()) == pytest.approx(path["cycles"])
    assert sum(part["cycles"] for part in path["parts"]) == pytest.approx(path["cycles"])
    assert sum(part["count"] for part in path["parts"]) == path["steps"]
    assert len(path["longest"]) == min(10, path["steps"])


def test_the_critical_path_of_one_tile_has_its_copies_and_its_arithmetic(compiled):
    parts = run(compiled, "add_tiles", count=512)["critical_path"]["parts"]
    assert {("S", "GET_TILING_DATA", "work"), ("S", "issue", "issue")} <= set(described(parts))
    assert described(parts)[:2] == [("MTE2", "DataCopy", "latency"), ("MTE3", "DataCopy", "latency")]
    cycles = dict(zip(described(parts), [part["cycles"] for part in parts], strict=True))
    assert cycles["MTE2", "DataCopy", "latency"] == pytest.approx(READ_LATENCY)
    assert cycles["MTE3", "DataCopy", "latency"] == pytest.approx(WRITE_LATENCY)
    assert cycles["V", "Adds", "work"] == pytest.approx(VECTOR + 8)
    assert cycles["MTE2", "DataCopy", "issue"] == pytest.approx(COPY)


def test_the_longest_step_has_its_line_and_its_times(compiled):
    first = run(compiled, "add_tiles", count=512)["critical_path"]["longest"][0]
    assert (first["api"], first["what"]) == ("DataCopy", "latency")
    assert first["cycles"] == pytest.approx(READ_LATENCY)
    assert first["line"].startswith("timeline.cpp:")
    assert first["begin"] > COPY


@pytest.mark.parametrize(("cores", "what"), [(1, "port"), (48, "memory")])
def test_a_copy_waits_for_its_own_port_or_for_the_memory_that_all_share(compiled, cores, what):
    path = run(compiled, "copy_in", count=16384, block_dim=cores)["critical_path"]
    assert described(path["longest"])[0] == ("MTE2", "DataCopy", what)


def test_parallel_work_is_not_on_the_critical_path(compiled):
    summary = run(compiled, "add_tiles", count=4096, tiles=8, buffers=2)
    path = summary["critical_path"]
    assert path["pipes"]["V"] < 0.3 * summary["busy_V"]
    assert path["pipes"]["MTE2"] > 0.8 * path["cycles"]


# ---- the trace ------------------------------------------------------------------------------------------


def traced(compiled, tmp_path, **options):
    path = tmp_path / "trace.json"
    summary = run(compiled, "add_tiles", count=512, tiles=5, trace_path=str(path), **options)
    spans = defaultdict(list)
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["ph"] == "X":
            spans[event["pid"], event["tid"]].append(event)
    return summary, spans


def test_a_trace_has_every_instruction_and_those_of_one_pipe_do_not_overlap(compiled, tmp_path):
    summary, spans = traced(compiled, tmp_path, buffers=2, block_dim=3)
    for row, pipe in enumerate(PIPES):
        assert sum(len(spans[core, row]) for core in range(3)) == summary[f"instructions_{pipe}"]
    assert all(len(spans[core, row]) == 5 for core in range(3) for row in (1, 2, 3))
    rounding = 1e-9  # The decimals of ts and dur add up exactly, but their sum in float64 is rounded.
    for pipe_spans in spans.values():
        for before, after in itertools.pairwise(pipe_spans):
            assert after["ts"] >= before["ts"] + before["dur"] - rounding
    last = max(span["ts"] + span["dur"] for pipe_spans in spans.values() for span in pipe_spans)
    assert last <= summary["microseconds"] + 0.5e-4  # the last end is printed with four decimals


def test_a_trace_names_the_rows_of_each_core(compiled, tmp_path):
    traced(compiled, tmp_path, block_dim=2)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    rows = [*PIPES, "critical path", "MTE2 read latency", "MTE3 write latency"]
    for core in range(2):
        assert [names.get((core, row)) for row in range(len(rows))] == rows


def test_a_trace_shows_that_an_instruction_waits_for_its_data(compiled, tmp_path):
    _, spans = traced(compiled, tmp_path)
    copy, add, store = (spans[0, PIPES.index(pipe)][0] for pipe in ("MTE2", "V", "MTE3"))
    assert (copy["name"], add["name"], store["name"]) == ("DataCopy", "Adds", "DataCopy")
    cycles_per_microsecond = 1000 * profile()["clock_ghz"]
    assert (add["ts"] - copy["ts"]) * cycles_per_microsecond >= COPY + READ_LATENCY
    assert store["ts"] >= add["ts"] + add["dur"]
    assert add["args"]["line"].startswith("timeline.cpp:")
    assert (copy["args"]["bytes"], add["args"]["repeats"]) == (2048, 8)


def test_a_trace_shows_the_critical_path_of_the_slowest_core_without_a_gap(compiled, tmp_path):
    summary, spans = traced(compiled, tmp_path, block_dim=3)
    (path,) = [spans[key] for key in spans if key[1] == CRITICAL]
    assert spans[summary["slowest_core"], CRITICAL] == path
    assert (path[0]["ts"], len(path)) == (0, summary["critical_path"]["steps"])
    rounding = 2e-4
    for before, after in itertools.pairwise(path):
        assert after["ts"] == pytest.approx(before["ts"] + before["dur"], abs=rounding)
    assert path[-1]["ts"] + path[-1]["dur"] == pytest.approx(summary["microseconds"], abs=rounding)


def test_a_trace_shows_reads_and_writes_in_progress(compiled, tmp_path):
    summary, spans = traced(compiled, tmp_path)
    last = spans[0, WRITES_IN_PROGRESS][-1]
    assert (last["name"], last["args"]["cycles"]) == ("write latency", WRITE_LATENCY)
    assert (last["args"]["bytes"], last["args"]["repeats"]) == (0, 0)
    # After the last write, the destructor of TPipe waits for the flag that frees the queue's buffer.
    flag = profile()["flag_cycles"] / profile()["clock_ghz"] / 1000
    assert last["ts"] + last["dur"] == pytest.approx(summary["microseconds"] - flag, abs=2e-4)
    assert [span["name"] for span in spans[0, READS_IN_PROGRESS]] == ["read latency"] * 5


def test_trace_cores_limits_a_trace_to_the_first_cores(compiled, tmp_path):
    _, spans = traced(compiled, tmp_path, block_dim=4, trace_cores=2)
    assert {core for core, _ in spans} == {0, 1}


def test_a_trace_that_cannot_be_written_is_refused_before_anything_runs(compiled, tmp_path):
    y, before = np.zeros(8, np.float32), library.load().lib.ascend_sim_launches()
    options = ascend_sim.Options(trace_path=str(tmp_path / "nowhere" / "trace.json"))
    with pytest.raises(ValueError, match=r"options\.trace_path must be a file one may write but got "):
        compiled("reports", "number_of_each_core").run(In(y), Part(y.copy()), options=options)
    assert library.load().lib.ascend_sim_launches() == before
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_outputs_as_they_were(compiled):
    y = np.zeros(8, np.float32)
    with pytest.raises(ValueError, match="cannot write /dev/full"):
        compiled("reports", "number_of_each_core").run(
            In(np.zeros(8, np.float32)), Part(y), options=ascend_sim.Options(trace_path="/dev/full")
        )
    assert not y.any()


# ---- the profile ----------------------------------------------------------------------------------------


def test_scalar_accesses_cost_the_profile_s_cycles(compiled):
    """The first access to a 64-byte line of GM misses the cache."""
    for count, lines in ((3, 1), (16, 1), (17, 2)):
        summary = run(compiled, "scalar_accesses", count=count)
        hit, miss = profile()["scalar_ub_cycles"], profile()["scalar_miss_cycles"]
        in_gm = (("GlobalTensor::GetValue", lines), ("GlobalTensor::SetValue", lines))
        for api, misses in (("SetValue", 0), ("GetValue", 0), *in_gm):
            assert cycles_of(summary, api) == pytest.approx((count - misses) * hit + misses * miss)


def test_the_first_reference_to_a_line_of_gm_misses_the_cache(compiled):
    report = compiled("reports", "reference_to_gm").run(
        In(np.ones(4096, np.float32)), Part(np.zeros(4096, np.float32))
    )
    assert cycles_of(report.summary, "GlobalTensor()") == profile()["scalar_miss_cycles"]


@pytest.mark.parametrize(
    ("entry", "api", "fixed", "figure"),
    [
        ("add_repeats", "Adds", VECTOR, "repeat_cycles"),
        ("multiply_and_add_repeats", "MulAddDst", VECTOR, "three_reads_cycles"),
        ("divide_repeats", "Div", FUNCTION, "division_cycles"),
        ("root_repeats", "Sqrt", FUNCTION, "function_cycles"),
        ("estimate_repeats", "Rsqrt", VECTOR, "estimate_cycles"),
        ("sum_repeats", "WholeReduceSum", REDUCTION, "whole_reduce_cycles"),
        ("sum_blocks", "BlockReduceSum", VECTOR, "block_reduce_cycles"),
    ],
)
def test_a_repeat_costs_the_profile_s_cycles(compiled, entry, api, fixed, figure):
    assert cycles_of(run(compiled, entry, count=32), api) == pytest.approx(fixed + 32 * profile()[figure])


def test_a_repeat_of_a_function_costs_twice_as_much_in_half_as_in_float(compiled):
    """A repeat of half has twice the elements."""
    cycles = cycles_of(run(compiled, "half_root_repeats", count=32), "Sqrt")
    assert cycles == pytest.approx(FUNCTION + 32 * 2 * profile()["function_cycles"])


def test_a_figure_of_the_profile_may_be_replaced(compiled):
    plain, replaced = (
        run(compiled, "add_repeats", count=32, figures=figures)
        for figures in ({}, {"repeat_cycles": 2.3, "flag_cycles": 1})
    )
    assert cycles_of(replaced, "Adds") - cycles_of(plain, "Adds") == pytest.approx(32 * 1.3)
    for figures in (
        {"repeat": 1},
        {"cores": 4},
        {"repeat_cycles": -1},
        {"gm_bytes_per_cycle": 0},
        {"flag_cycles": np.nan},
    ):
        with pytest.raises(ValueError, match=r"options\.figures must"):
            run(compiled, "add_repeats", count=1, figures=figures)


def test_a_gather_costs_its_elements(compiled):
    cycles = cycles_of(run(compiled, "gather_count", count=256), "Gather")
    assert cycles == pytest.approx(VECTOR + 256 * profile()["gathered_element_cycles"])
