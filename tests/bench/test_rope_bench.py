"""The benchmark: its rows, checks, verdicts and reports, and one run of the command."""

import csv
import importlib
import io
import json
import platform
from dataclasses import replace
from functools import partial

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("typer")

from typer.testing import CliRunner  # noqa: E402

from npu_rope import native  # noqa: E402
from npu_rope.bench import (  # noqa: E402
    family_rows,
    gradient_rows,
    growth_rows,
    harness,
    norm_rope_rows,
    norm_rows,
    patched_rows,
    qkv_rows,
    report,
    worker,
)
from npu_rope.bench.harness import NotInstalled, Unsupported  # noqa: E402
from npu_rope.bench.peers import peers  # noqa: E402
from npu_rope.bench.rope_rows import (  # noqa: E402
    CALL_FLOOR,
    GIVEN_TABLES,
    NUMPY,
    OUT,
    PACKED,
    RopeInputs,
    Row,
    for_pairs,
    ours,
    rows,
)
from npu_rope.bench.run import PEERS, BenchOptions, Results  # noqa: E402
from npu_rope.bench.targets import verdicts  # noqa: E402
from npu_rope.cli.app import app  # noqa: E402
from npu_rope.testing.bounds import OURS, PEER_ROUNDED_STEPS  # noqa: E402
from npu_rope.testing.families import SMALL as SMALL_MODEL  # noqa: E402

SMALL = ((1, 3, 2),)  # batch, tokens and heads of one tensor


def figure(contestant=OUT, kind="ours", *, row="prefill", dtype="f32", median=1.0, ratio=1.0, foreign=0.0):
    return {
        "row": f"{row} {dtype} neox 1 thread",
        "group": row,
        "shape": "[1,1,32,128]",
        "dtype": dtype,
        "mode": "neox",
        "threads": 1,
        "contestant": contestant,
        "kind": kind,
        "status": "ok",
        "note": "",
        "foreign_cores": foreign,
        "median_us": median,
        "min_us": median,
        "spread": 0.0,
        "samples": 5.0,
        "ratio": ratio,
        "ratio_of_medians": ratio,
    }


def not_installed(entry):
    measured = ("median_us", "min_us", "spread", "samples", "ratio", "ratio_of_medians")
    kept = {name: value for name, value in entry.items() if name not in measured}
    return kept | {"status": "not installed", "note": "pip install it"}


def results(*figures):
    facts = {"machine": "a machine", "isa": "baseline", "versions": {"torch": "2"}, "seconds_per_row": 1.0}
    return Results(facts, list(figures), [])


def outcomes(*figures):
    return [verdict.outcome for verdict in verdicts(figures)]


def outcome_of(target, *figures):
    """The outcome of the target whose text begins like this."""
    (outcome,) = (verdict.outcome for verdict in verdicts(figures) if verdict.target.startswith(target))
    return outcome


def test_every_shape_dtype_and_mode_is_a_row():
    found = BenchOptions().chosen_rows(2)
    # Rows per dtype: rope in two modes, its forms, two norms of three sizes, rms_norm_rope,
    # qkv_norm_rope_cache, patched modules, and gradients of three operators in two sizes.
    assert len(found) == 3 * (5 * 2 + 1 + 2 * 3 + 1 + 1 + 4 + 3 * 2) == len({row.name for row in found})
    assert all(row.name.endswith("2 threads") for row in found)


def test_rows_are_chosen_by_their_name():
    assert {row.group for row in rows(["f32"], ["neox"], 1, "decode")} == {"decode", "gqa decode"}
    assert [row.shape for row in rows(["f32"], ["neox"], 1, r"^decode \[32")] == ["[32,1,32,128]"]


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("mode", ["neox", "normal"])
def test_all_our_entry_points_give_the_reference_result(dtype, mode):
    for heads in (SMALL, ((2, 1, 4), (2, 1, 2))):
        inputs = RopeInputs(Row("decode" if len(heads) > 1 else "prefill", heads, dtype, mode, 1))
        for contestant in ours(inputs):
            if dtype != "bf16" or "NumPy" not in contestant.name:
                ready = contestant.prepare()
                with ready.around():
                    assert contestant.check(ready.result()) is None, contestant.name


@pytest.mark.peer
@pytest.mark.parametrize("mode", ["neox", "normal"])
def test_peers_are_within_the_looser_bound(mode):
    inputs = RopeInputs(Row("prefill", SMALL, "f16", mode, 1))
    found = list(peers(inputs, "onnx|transformers eager|ggml", None))
    assert len(found) == 4
    for contestant in found:
        ready = contestant.prepare()
        assert contestant.check(ready.result()) is None, contestant.name
        ready.close()


def test_the_filter_none_gives_no_peers():
    assert list(peers(RopeInputs(Row("prefill", SMALL, "f32", "neox", 1)), "none", None)) == []


@pytest.mark.parametrize("bound", [OURS, PEER_ROUNDED_STEPS], ids=["ours", "peer"])
@pytest.mark.parametrize("wrong", ["sign", "pairing", "position", "unrotated", "nan", "shape"])
def test_a_wrong_rotation_is_caught_by_either_bound(wrong, bound):
    import npu_rope

    inputs = RopeInputs(Row("prefill", SMALL, "bf16", "neox", 1))
    x, positions, params = inputs.xs[0], inputs.positions, inputs.params
    other = npu_rope.RopeParams(params.n_dims, "normal")
    rotated = {
        "sign": lambda: npu_rope.rope(x, positions, params, forward=False),
        "pairing": lambda: npu_rope.rope(x, positions, other),
        "position": lambda: npu_rope.rope(x, positions + 1, params),
        "unrotated": lambda: x,
        "nan": lambda: x * float("nan"),
        "shape": lambda: x[:, :2],
    }[wrong]()
    assert inputs.check(*bound)([rotated]) is not None
    assert inputs.check(*bound)([npu_rope.rope(x, positions, params)]) is None


PREFILL_CONTESTANTS = [OUT, GIVEN_TABLES, for_pairs(PACKED), for_pairs(GIVEN_TABLES)]


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", PREFILL_CONTESTANTS)
def test_the_prefill_verdict_judges_rope_and_rotary_mul_of_one_tensor_and_of_pairs(name, dtype):
    def prefill(ratio):
        row = "prefill" if name in (OUT, GIVEN_TABLES) else "gqa prefill"
        return figure(name, row=row, dtype=dtype, ratio=ratio)

    target = f"prefill {dtype}"
    assert outcome_of(target, prefill(1.15)) == "PASS"
    assert outcome_of(target, prefill(1.16)) == "MISS"
    assert outcome_of("prefill f32" if dtype != "f32" else "prefill f16", prefill(1.16)) == "NOT MEASURED"


def test_the_verdict_of_small_batches_judges_sixteen_bits():
    def small(ratio, dtype="f16", shape="[32,1,32,128]"):
        return figure(PACKED, row="decode", dtype=dtype, ratio=ratio) | {"shape": shape}

    target = "decode [32,1,32,128]"
    assert outcome_of(target, small(1.5), small(1.5, "bf16")) == "PASS"
    assert outcome_of(target, small(1.51)) == "MISS"
    assert outcome_of(target, small(2.0, "f32"), small(2.0, shape="[1,1,32,128]")) == "NOT MEASURED"


@pytest.mark.parametrize(
    ("interface", "name", "limit"),
    [
        ("torch.ops", PACKED, 2.3),
        ("the Python function:", OUT, 3.0),
        ("the Python function on NumPy", NUMPY, 8.0),
    ],
)
def test_the_verdicts_of_one_token_compare_with_an_empty_call(interface, name, limit):
    def one_token(name, ratio):
        return figure(name, "ours", row="decode", ratio=ratio) | {"shape": "[1,1,32,128]"}

    target, empty = f"decode [1,1,32,128] through {interface}", one_token(CALL_FLOOR, 0.5)
    assert outcome_of(target, empty, one_token(name, limit / 2)) == "PASS"
    assert outcome_of(target, empty, one_token(name, limit / 2 + 0.01)) == "MISS"
    assert outcome_of(target, one_token(name, 1.0)) == "NOT MEASURED"


@pytest.mark.parametrize("name", [OUT, for_pairs(OUT)])
def test_the_verdict_of_peers_compares_sixteen_bits(name):
    own = figure(name, dtype="bf16", median=2.0)
    slow, ahead = (figure("peer", "peer", dtype="bf16", median=median) for median in (2.0, 1.9))
    assert outcome_of("rotation in f16 and bf16: no peer", own, slow) == "PASS"
    assert outcome_of("rotation in f16 and bf16: no peer", own, ahead) == "MISS"


def test_the_decode_verdict_compares_the_operator_with_the_best_peer():
    own = figure(PACKED, row="decode", median=3.0)
    slow, fast = (figure(f"peer {t}", "peer", row="decode", median=t) for t in (9.0, 2.0))
    assert outcome_of("decode [1,1,32,128] f32", own, slow) == "PASS"
    assert outcome_of("decode [1,1,32,128] f32", own, slow, fast) == "MISS"


def test_no_form_may_cost_much_more_than_neox():
    def form(name, ratio):
        return figure(name, row="forms", ratio=ratio)

    target, neox = "every mode and form", form("neox", 1.1)
    assert outcome_of(target, neox, form("mrope, image", 1.42)) == "PASS"
    assert outcome_of(target, neox, form("mrope, image", 1.1), form("vision, image", 1.45)) == "MISS"


@pytest.mark.parametrize("mode", norm_rows.MODES)
def test_the_norm_verdict_depends_on_the_floor_and_the_peers(mode):
    def norm(name, kind="ours", *, shape="[2048,4096]", **values):
        return figure(name, kind, row="norm", **values) | {"mode": mode, "shape": shape}

    target, name = f"{mode} [", norm_rows.OUT[mode]
    limit = {"rms_norm": 1.15, "add_rms_norm": 1.3}[mode]
    own = norm(name, ratio=limit, median=2.0)
    slower, faster = (norm("torch", "peer", median=median) for median in (2.1, 1.9))
    assert outcome_of(target, own, slower) == "PASS"
    assert outcome_of(target, own, faster) == "MISS"
    assert outcome_of(target, norm(name, ratio=limit + 0.01, median=2.0)) == "MISS"
    assert outcome_of(target, norm(name, shape="[1,4096]")) == "NOT MEASURED"


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_the_norm_rope_verdict_compares_with_the_parts_and_the_floor(dtype):
    def norm_rope(name, ratio):
        return figure(name, row="norm-rope", ratio=ratio, dtype=dtype)

    target, parts = "rms_norm_rope", norm_rope(norm_rope_rows.PARTS, 1.95)
    assert outcome_of(target, norm_rope(norm_rope_rows.OUT, 1.5), parts) == "PASS"
    assert outcome_of(target, norm_rope(norm_rope_rows.OUT, 1.51), parts) == "MISS"
    assert (
        outcome_of(target, norm_rope(norm_rope_rows.OUT, 1.51), norm_rope(norm_rope_rows.PARTS, 9.0))
        == "MISS"
    )
    assert outcome_of(target, parts) == "NOT MEASURED"


@pytest.mark.parametrize(("dtype", "limit"), [("f32", 1.15), ("f16", 1.5), ("bf16", 1.5)])
def test_the_qkv_verdicts_compare_with_the_floor_and_both_kinds_of_peers(dtype, limit):
    def qkv(name=qkv_rows.OUT, kind="ours", **values):
        return figure(name, kind, row="qkv", **{"dtype": dtype, "median": 2.0, **values})

    floor, eager, compiled = (
        f"{qkv_rows.MODE}{rest}" for rest in (f" {dtype}: at most", ": at least 3.0", ": at least 1.3")
    )
    assert outcome_of(floor, qkv(ratio=limit)) == "PASS"
    assert outcome_of(floor, qkv(ratio=limit + 0.01)) == "MISS"
    assert outcome_of(eager, qkv()) == "NOT MEASURED"
    slow = qkv(qkv_rows.ORT, "peer", median=6.0)
    assert outcome_of(eager, qkv(), slow) == "PASS"
    assert outcome_of(eager, qkv(), slow, qkv(qkv_rows.TORCH, "peer", median=5.9)) == "MISS"
    assert outcome_of(compiled, qkv(), slow) == "NOT MEASURED"
    assert outcome_of(compiled, qkv(), qkv(qkv_rows.COMPILED, "peer", median=2.6)) == "PASS"
    assert outcome_of(compiled, qkv(), qkv(qkv_rows.COMPILED_TRANSFORMERS, "peer", median=2.5)) == "MISS"


@pytest.mark.parametrize(("mode", "limit"), [(patched_rows.NORM, 0.6), (patched_rows.DECODE, 1.0)])
def test_the_patched_verdict_depends_on_every_level_and_dtype(mode, limit):
    def patched(name, ratio, dtype="f32"):
        return figure(name, row="patched", ratio=ratio, dtype=dtype) | {"mode": mode}

    unpatched = patched(patched_rows.UNPATCHED, 1.0) | {"kind": "floor"}
    tables, positions = (patched_rows.name_of(level) for level in patched_rows.LEVELS)
    fast, slow = patched(tables, limit - 0.01), patched(positions, limit)
    assert outcome_of(mode, unpatched, fast) == "PASS"
    assert outcome_of(mode, unpatched, fast, slow) == "MISS"
    assert outcome_of(mode, unpatched, fast, patched(tables, limit, "bf16")) == "MISS"
    assert outcome_of(mode, unpatched) == "NOT MEASURED"
    (other_mode,) = {patched_rows.NORM, patched_rows.DECODE} - {mode}
    assert outcome_of(other_mode, unpatched, fast) == "NOT MEASURED"


@pytest.mark.parametrize(
    ("mode", "limit"),
    [
        (family_rows.NORM, 0.5),
        (family_rows.ROTATION, 0.4),
        (family_rows.DECODE, 0.95),
        (family_rows.PREFILL, 0.97),
        (family_rows.TRAINING, 0.97),
        (family_rows.COMPILED_DECODE, 0.95),
        (family_rows.COMPILED_PREFILL, 0.97),
    ],
)
def test_the_family_verdicts_depend_on_every_family(mode, limit):
    target = f"every family, {mode}"
    assert outcome_of(target, *family_row(mode, "llama", limit)) == "PASS"
    both = *family_row(mode, "llama", limit), *family_row(mode, "phi3", limit + 0.01)
    assert outcome_of(target, *both) == "MISS"
    (verdict,) = (v for v in verdicts(both) if v.target.startswith(target))
    assert verdict.detail == f"llama f32 1T {limit:.2f}; phi3 f32 1T {limit + 0.01:.2f}"
    others = {*family_rows.MODES} - {mode}
    assert all(outcome_of(f"every family, {m}", *both) == "NOT MEASURED" for m in others)


def test_the_share_verdict_compares_with_the_ceiling():
    def outcome(ours, ceiling):
        return outcome_of("every family: ", *family_row(family_rows.DECODE, "llama", ours, ceiling))

    assert outcome(0.825, 0.75) == "PASS"  # 70 % of the gain, exact in binary
    assert outcome(0.85, 0.75) == "MISS"
    assert outcome(1.0, 1.0) == "PASS"
    assert outcome(1.01, 1.0) == "MISS"
    assert outcome_of("every family: ", *family_row(family_rows.NORM, "llama", 0.5)) == "NOT MEASURED"
    figures = family_row(family_rows.DECODE, "llama", 1.01, 0.995)
    (verdict,) = (v for v in verdicts(figures) if v.target.startswith("every family: "))
    assert verdict.detail == "decode step llama f32 1T -1.0 of 0.5 %"


def family_row(mode, family, ratio, ceiling=None):
    """Figures of one row of a family, with a ceiling if its ratio is given."""
    entries = {"group": family_rows.GROUP, "mode": mode, "row": f"{family} {mode}"}
    contestants = [("transformers", "floor", 1.0), ("ours", "ours", ratio), ("nothing", "call", ceiling)]
    return [
        figure(family_rows.name_of(family, name), kind, ratio=value) | entries
        for name, kind, value in contestants
        if value is not None
    ]


def test_the_gradient_verdicts_judge_the_extra_time_and_backward():
    decode, training = (
        gradient_rows.row("f32", 1, "rope", sizes).shape
        for sizes in (gradient_rows.DECODE, gradient_rows.TRAINING)
    )

    def gradient(name, ratio, shape, row="gradient"):
        entries = {"mode": "rope", "group": gradient_rows.GROUP, "shape": shape}
        return figure(name, row=row, ratio=ratio) | entries

    def row_of(shape, without, with_gradient, backward, row="gradient"):
        names = gradient_rows.WITHOUT, gradient_rows.WITH, gradient_rows.BACKWARD
        ratios = without, with_gradient, backward
        return [gradient(name, ratio, shape, row) for name, ratio in zip(names, ratios, strict=True)]

    assert outcome_of("requires_grad [", *row_of(decode, 3.0, 5.2, 90.0)) == "PASS"
    assert outcome_of("requires_grad [", *row_of(decode, 3.0, 5.4, 1.0)) == "MISS"
    one_of_two = *row_of(decode, 3.0, 5.2, 1.0), *row_of(decode, 3.0, 5.4, 1.0, "other")
    assert outcome_of("requires_grad [", *one_of_two) == "MISS"
    assert outcome_of("requires_grad [", *row_of(training, 3.0, 5.0, 1.0)) == "NOT MEASURED"
    assert outcome_of("backward [", *row_of(training, 1.0, 90.0, 90.0)) == "PASS"
    assert outcome_of("backward [", *row_of(training, 1.0, 90.0, 91.0)) == "MISS"
    assert outcome_of("backward [", *row_of(decode, 1.0, 90.0, 91.0)) == "NOT MEASURED"


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("mode", gradient_rows.MODES)
def test_every_contestant_of_a_gradient_row_is_correct(mode, dtype):
    found = list(gradient_rows.contestants(gradient_rows.row(dtype, 1, mode)))
    calls = 2 if mode == "rms_norm" else 1  # a node, and a copy
    assert [c.kind for c in found] == ["floor", *["call"] * calls, "ours", "ours", "ours"]
    with torch.no_grad():  # as in the measuring process
        for contestant in found:
            ready = contestant.prepare()
            with ready.around():
                ready.call()
                assert contestant.check(ready.result()) is None, contestant.name
    assert found[-2].check(torch.zeros(1)) is not None
    assert found[-1].check(tuple(g * 1.01 for g in ready.result())) is not None


@pytest.mark.long
@pytest.mark.peer
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("mode", patched_rows.MODES)
def test_every_contestant_of_a_patched_row_is_correct(mode, dtype):
    found = list(patched_rows.contestants(patched_rows.row(dtype, 1, mode)))
    assert [c.kind for c in found] == ["floor", *["ours"] * (1 if mode == patched_rows.NORM else 2)]
    for contestant in found:
        ready = contestant.prepare()
        with ready.around():
            results = [ready.result(), ready.result()]  # a step does not change its cache
        assert torch.equal(*results)
        assert contestant.check(results[0]) is None, contestant.name
        if contestant.kind == "ours":
            assert contestant.check(results[0] * 1.2) is not None, contestant.name


def test_a_patched_row_is_not_measured_if_a_module_stays_unpatched(monkeypatch):
    monkeypatch.setattr("npu_rope.integrations.norm_forms.SAME_NORM", 0.0)
    *_, patched = patched_rows.contestants(patched_rows.row("f32", 1, patched_rows.NORM))
    with pytest.raises(RuntimeError, match="left"):
        patched.prepare()


def test_the_families_are_measured_only_if_they_are_asked_for():
    assert not [row for row in BenchOptions().chosen_rows(1) if row.group == family_rows.GROUP]
    found = BenchOptions(rows="^patched families").chosen_rows(1)
    assert len(found) == 15 * 7 * 2 == len({row.name for row in found})
    (row,) = BenchOptions(rows="^patched families qwen3 .*f32 prefill", dtypes=("f32",)).chosen_rows(2)
    assert row.name == "patched families qwen3 4 layers of 512 f32 prefill 2 threads"


@pytest.fixture
def small_families(monkeypatch):
    monkeypatch.setattr(
        family_rows, "SIZES", replace(SMALL_MODEL, vocab_size=512, max_position_embeddings=8192)
    )


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # from torch
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(
    "mode",
    [pytest.param(m, marks=[pytest.mark.slow] * (m in family_rows.EAGER)) for m in family_rows.MODES],
)
def test_every_contestant_of_a_family_row_is_correct(mode, dtype, small_families):
    found = list(family_rows.contestants(family_rows.row("qwen3", dtype, 1, mode)))
    is_model = mode not in (family_rows.NORM, family_rows.ROTATION)
    assert [c.kind for c in found] == ["floor", "ours", *["call"] * is_model]
    results = {}
    graphs = torch._dynamo.utils.counters["stats"]
    for contestant in found:
        torch._dynamo.reset()
        graphs.clear()
        ready = contestant.prepare()
        with ready.around():
            ready.call()
            first, second = ready.result(), ready.result()
        assert (graphs["unique_graphs"] > 0) == (mode in family_rows.EAGER)
        pairs = [(first, second)] if is_model else list(zip(first, second, strict=True))
        assert all(torch.equal(a, b) for a, b in pairs)  # a step changes neither its cache nor its weights
        results[contestant.kind] = first
    _, ours, *ceiling = found
    got = results["ours"]
    assert ours.check(got) is None
    assert ours.check(got * 1.2 if is_model else tuple(y * 1.2 for y in got)) is not None
    assert ours.check(results["floor"]) is None
    if ceiling:  # without rotations and norms, the model computes something else
        assert ours.check(results["call"]) is not None


ROUNDED_LAST = ("gemma3",)  # in float32; in bfloat16 also gpt-oss and olmo2


@pytest.mark.peer
@pytest.mark.parametrize("family", family_rows.FAMILIES)
def test_the_ceiling_has_no_rotation_and_no_norm_of_the_family(family, small_families, monkeypatch):
    from npu_rope.integrations import norm_forms, rope_forms

    found = {
        c.kind: c for c in family_rows.contestants(family_rows.row(family, "f32", 1, family_rows.DECODE))
    }
    calls = []

    def record(original, name, *given, **named):
        results = original(name, *given, **named)
        if results is not NotImplemented:
            calls.append(name)
        return results

    for module in (norm_forms, rope_forms):
        monkeypatch.setattr(module, "try_hot_path", partial(record, module.try_hot_path))
    for module, name in (
        *((norm_forms, name) for name in ("rms_norm", "rms_norm_rounded_last")),
        *((rope_forms, name) for name in ("rotary_mul_qk", "rotary_mul")),
    ):
        original = getattr(module, name)
        monkeypatch.setattr(
            module, name, partial(lambda f, name, *a, **n: calls.append(name) or f(*a, **n), original, name)
        )
    steps = {kind: contestant.prepare() for kind, contestant in found.items()}
    norm = {"rms_norm_rounded_last" if family in ROUNDED_LAST else "rms_norm"}
    rotation = "rotary_mul_qk_to_halves" if family == "deepseek-v3" else "rotary_mul_qk_heads_first"
    ours = {rotation} | (set() if family in ("cohere", "gpt-neox") else norm)
    expected = {"floor": set(), "call": set(), "ours": ours}
    logits = {}
    for kind, ready in steps.items():
        calls.clear()
        with ready.around():
            logits[kind] = ready.call()
        assert set(calls) == expected[kind], kind
    assert not torch.allclose(logits["call"], logits["floor"], rtol=1e-3)


@pytest.mark.peer
def test_a_family_without_rms_norms_has_no_norm_to_measure(small_families):
    for contestant in family_rows.contestants(family_rows.row("cohere", "f32", 1, family_rows.NORM)):
        with pytest.raises(Unsupported, match="no RMS norms"):
            contestant.prepare()


def test_growth_is_measured_only_if_it_is_asked_for():
    assert not [row for row in BenchOptions().chosen_rows(1) if row.group == growth_rows.GROUP]
    found = BenchOptions(rows="^growth").chosen_rows(1)
    assert len(found) == sum(map(len, growth_rows.SIZES.values())) * 3 == len({row.name for row in found})
    (row,) = BenchOptions(rows=r"^growth \[1,1000000,").chosen_rows(2)[1:2]
    assert (row.name, row.shape) == ("growth [1,1000000,8,128] f16 tokens 2 threads", "[1,S,8,128]")


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("mode", growth_rows.MODES)
def test_rope_in_a_growth_row_is_correct(mode, dtype):
    least, middle = growth_rows.SIZES[mode][0], growth_rows.SIZES[mode][4]
    for size in (least, middle):
        row = growth_rows.GrowthRow(growth_rows.GROUP, ((1, 1, 1),), dtype, mode, 1, size)
        copy, empty, ours = growth_rows.contestants(row)
        assert [c.kind for c in (copy, empty, ours)] == ["floor", "call", "ours"]
        result = ours.prepare().result().clone()
        assert tuple(result.shape) == row.dimensions
        assert ours.check(result) is None
        assert ours.check(result * 1.01) is not None
        result[:, -1] += 1  # the last token is among those that are checked
        assert ours.check(result) is not None
        copied = copy.prepare().result()
        assert not torch.equal(copied, result)


def test_a_growth_row_beyond_half_of_the_memory_is_not_measured(monkeypatch):
    monkeypatch.setattr(growth_rows.os, "sysconf", lambda name: 1024)
    row = growth_rows.GrowthRow(growth_rows.GROUP, ((1, 1, 1),), "f32", growth_rows.TOKENS, 1, 4096)
    for contestant in growth_rows.contestants(row):
        with pytest.raises(Unsupported, match="needs 32 MiB, more than half of this machine's memory"):
            contestant.prepare()


def growth_figure(contestant, kind, size, ratio):
    entries = {"group": growth_rows.GROUP, "mode": growth_rows.HEADS, "row": f"growth {size}"}
    return figure(f"N={size}: {contestant}", kind, ratio=ratio) | entries | {"shape": "[1,256,N,128]"}


def test_a_table_and_the_plot_have_every_size_of_growth():
    pytest.importorskip("matplotlib")
    from npu_rope.bench import growth_plot

    figures = [
        growth_figure(name, kind, size, ratio)
        for size in (1, 64)
        for name, kind, ratio in ((growth_rows.FLOOR, "floor", 1.0), (OUT, "ours", 1.5))
    ]
    (table,) = report.bench_tables(figures)
    assert table.title == "growth [1,256,N,128] f32 heads"
    assert [line[0].partition(":")[0] for line in table.lines] == ["N=1", "N=1", "N=64", "N=64"]
    stream = io.BytesIO()
    growth_plot.draw(results(*figures), stream, "svg")
    text = stream.getvalue().decode()
    assert "<!-- heads N -->" in text
    assert "<!-- [1,256,N,128], 1 thread -->" in text
    assert not growth_plot.drawn_figures(results(figure()))


@pytest.mark.parametrize("others", [0, 1])
def test_a_panel_of_growth_without_times_of_rope_is_left_empty(others):
    pytest.importorskip("matplotlib")
    from npu_rope.bench import growth_plot

    figures = [growth_figure(growth_rows.FLOOR, "floor", 64, 1.25)]
    figures += [growth_figure(OUT, "ours", 64, 1.25) | {"dtype": "unknown"}]
    other = growth_figure(OUT, "ours", 64, 1.5) | {"threads": 2, "mode": growth_rows.TOKENS}
    figures += [other] * others
    stream = io.BytesIO()
    growth_plot.draw(results(*figures), stream, "svg")
    text = stream.getvalue().decode()
    assert text.count("<!-- heads N -->") == 0
    assert text.count("<!-- tokens S -->") == others


def test_a_table_has_the_families_with_one_dtype_and_mode():
    rows_of = [family_row(family_rows.DECODE, family, 0.9, 0.8) for family in ("llama", "phi3")]
    (table,) = report.bench_tables([entry for row in rows_of for entry in row])
    assert table.header == ["contestant", "1T us", "spread", "x floor"]
    assert [(line[0], line[3]) for line in table.lines] == [
        (f"{family}: {name}", ratio)
        for family in ("llama", "phi3")
        for name, ratio in (("transformers", "1.00"), ("ours", "0.90"), ("nothing", "0.80"))
    ]


@pytest.mark.peer
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_every_contestant_of_a_norm_rope_row_is_correct(dtype, monkeypatch):
    monkeypatch.setattr(norm_rope_rows, "TOKENS", 64)
    monkeypatch.setattr(norm_rope_rows, "CHECKED", slice(None, None, 4))
    names = set()
    for contestant in norm_rope_rows.contestants(norm_rope_rows.row(dtype, 1), None):
        ready = contestant.prepare()
        names.add(contestant.name)
        if contestant.kind == "floor":
            continue
        result = ready.result()
        assert contestant.check(result) is None, contestant.name
        wrong = [y.clone() for y in result]
        wrong[1][0, 4] *= 1.2
        assert contestant.check(wrong) is not None, contestant.name
    assert {norm_rope_rows.OUT, norm_rope_rows.PARTS, norm_rope_rows.TRANSFORMERS} < names


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # from inductor
@pytest.mark.parametrize(
    ("dtype", "pattern"),
    [
        ("f32", "eager|onnx"),
        ("f16", "eager|onnx"),
        ("bf16", "eager|onnx"),
        pytest.param("bf16", None, marks=pytest.mark.slow, id="bf16-all"),  # compilation takes long
    ],
)
def test_every_contestant_of_a_qkv_row_is_correct(dtype, pattern, monkeypatch):
    monkeypatch.setattr(qkv_rows, "TOKENS", 256)
    monkeypatch.setattr(norm_rope_rows, "CHECKED", slice(4, None, 16))
    torch._dynamo.reset()
    names = set()
    for contestant in qkv_rows.contestants(qkv_rows.row(dtype, 1), pattern):
        if (contestant.name, dtype) == (qkv_rows.ORT, "bf16"):
            with pytest.raises(Unsupported):
                contestant.prepare()
            continue
        names.add(contestant.name)
        ready = contestant.prepare()
        if contestant.kind == "floor":
            continue
        ready.call()
        result = ready.result()  # of a second call: no call may add to an earlier one's caches
        assert contestant.check(result) is None, contestant.name
        for side in range(3):
            wrong = [y.clone() for y in result]
            wrong[side][4] *= 1.2
            assert contestant.check(wrong) is not None, contestant.name
    compiled = {qkv_rows.COMPILED, qkv_rows.COMPILED_TRANSFORMERS} if pattern is None else set()
    session = set() if dtype == "bf16" else {qkv_rows.ORT}
    others = {qkv_rows.OUT, qkv_rows.PARTS, qkv_rows.TORCH, qkv_rows.TRANSFORMERS}
    assert names - {"memory floor: torch copy_"} == others | compiled | session


@pytest.fixture
def cached_specification(monkeypatch):
    """Cache the expected results of norm_rows: computing them in long double takes longer than the calls."""
    compute, cache = norm_rows.rms_norm, {}

    def rms_norm(call):
        if id(call) not in cache:
            cache[id(call)] = call, compute(call)
        return cache[id(call)][1]

    monkeypatch.setattr(norm_rows, "rms_norm", rms_norm)


@pytest.mark.peer
@pytest.mark.usefixtures("cached_specification")
@pytest.mark.parametrize("mode", norm_rows.MODES)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_every_contestant_of_a_norm_row_is_correct(dtype, mode):
    refused, checked = [], []
    for contestant in norm_rows.contestants(norm_rows.row(dtype, 1, 64, mode), None, None):
        try:
            ready = contestant.prepare()
        except (Unsupported, NotInstalled):
            refused.append(contestant.name)
            continue
        result = ready.result()
        if contestant.kind != "floor":
            checked.append(contestant.name)
            assert contestant.check(result) is None, contestant.name
            results = result if isinstance(result, (tuple, list)) else [result]
            assert len(results) == (2 if mode == "add_rms_norm" else 1)
            for k in range(len(results)):
                wrong = [t.clone() for t in results]
                wrong[k][0, 5] *= 1.05
                assert contestant.check(wrong) is not None, contestant.name
        ready.close()
    expected = {norm_rows.TORCH, norm_rows.HF, norm_rows.OUT[mode]}
    assert expected | ({norm_rows.SEPARATE_CALLS} if mode == "add_rms_norm" else set()) <= set(checked)
    if dtype == "f32":
        assert not refused


def test_a_verdict_on_disturbed_figures_is_in_doubt():
    assert outcomes(figure(foreign=0.5))[0] == "PASS?"


def test_a_missing_peer_has_a_row_in_every_report():
    absent = not_installed(figure("ggml CPU rope_ext", "peer"))
    run = results(figure(), absent)
    stream = io.StringIO()
    report.write_console([run], stream)
    assert "not installed: pip install it" in " ".join(stream.getvalue().split())
    assert "| ggml CPU rope_ext (not installed: pip install it) | - | - | - |" in report.markdown([run])
    stream = io.StringIO(newline="")
    report.write_csv(run, stream)
    lines = list(csv.DictReader(stream.getvalue().splitlines()))
    assert [line["status"] for line in lines] == ["ok", "not installed"]


def test_the_floor_is_the_first_line_of_every_table_as_the_legend_says():
    """The floor is a copy of bytes in some tables, and transformers' own module in others."""
    assert "the floor is the first line of a table" in report.LEGEND
    assert "memory floor" not in report.LEGEND
    options = BenchOptions(dtypes=("f16",), modes=("neox",))
    for row in options.chosen_rows(1):
        first, *others = worker.contestants(row, options)
        assert first.kind == "floor", row.name
        assert "floor" not in [other.kind for other in others], row.name


def test_markdown_replaces_only_the_text_between_the_marks():
    page = f"# Mine\n\n{report.BEGIN}\nold\n{report.END}\n\nafter\n"
    text = report.into_page([results(figure())], page)
    assert text.startswith("# Mine\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert f"**{OUT}**" in text


def test_a_page_without_marks_is_not_replaced():
    begin, end = report.OWN_MARKS["norm"]
    for page in ("my notes\n", f"{begin}\nold\n{end}\n", f"{report.END}\n{report.BEGIN}\n"):
        with pytest.raises(ValueError, match=f"have the marks {report.BEGIN} and {report.END}"):
            report.into_page([results(figure())], page)
    assert report.into_page([results(figure())], "\n").startswith(report.BEGIN)


def test_each_kind_of_row_has_its_own_marks():
    begin, end = report.OWN_MARKS["norm"]
    norm = figure(norm_rows.OUT["rms_norm"], row="norm") | {"mode": "rms_norm", "shape": "[2048,4096]"}
    marks = f"{report.BEGIN}\nold\n{report.END}\n## Norms\n{begin}\nolder\n{end}\n"
    page_of_norms = report.into_page([results(norm)], marks)
    assert page_of_norms.startswith(f"{report.BEGIN}\nold\n{report.END}\n## Norms\n{begin}\n")
    assert "older" not in page_of_norms
    assert "### norm [2048,4096] f32 rms_norm" in page_of_norms
    assert "NOT MEASURED" not in page_of_norms
    both = report.into_page([results(figure(), norm)], marks)
    of_rope, _, of_norms = both.partition("## Norms")
    assert "old" not in of_rope
    assert "rms_norm(out=)" not in of_rope
    assert f"**{OUT}**" not in of_norms
    assert f"**{norm_rows.OUT['rms_norm']}**" in of_norms
    begin, end = report.OWN_MARKS["norm-rope"]
    fused = figure("fused", row="norm-rope") | {"mode": "rms_norm_rope"}
    page = report.into_page([results(norm, fused)], f"{marks}{begin}\noldest\n{end}\n")
    of_norms, _, of_fused = page.partition(begin)
    assert "old\n" in of_norms
    assert "**fused**" not in of_norms
    assert "**fused**" in of_fused
    assert "oldest" not in of_fused


def test_json_can_be_read_back(tmp_path):
    stream = io.StringIO()
    report.write_json(results(figure()), stream)
    path = tmp_path / "run.json"
    path.write_text(stream.getvalue())
    assert report.read_json(path).figures == [figure()]


def test_the_plot_is_a_png():
    pytest.importorskip("matplotlib")
    from npu_rope.bench import plot

    absent = figure("ggml CPU rope_ext", "peer") | {"status": "unsupported"}
    del absent["ratio"]
    stream = io.BytesIO()
    plot.draw(results(figure(), absent), stream, "png")
    assert stream.getvalue().startswith(b"\x89PNG")


def test_measured_results_that_no_plot_shows_are_written_before_the_plot_is_refused(tmp_path, monkeypatch):
    plot = tmp_path / "run.png"
    command = importlib.import_module("npu_rope.cli.bench")
    monkeypatch.setattr(command, "_measure", lambda options: results(figure() | {"mode": "mrope"}))
    outcome = CliRunner().invoke(app, ["bench", "--rows", "^decode", "--format", "csv", "--plot", str(plot)])
    assert outcome.exit_code == 2
    assert "mrope" in outcome.output
    assert "rows must include mode neox or normal, or measured rows of growth, for --plot" in outcome.output
    assert not plot.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--rows", "no such row"],
        ["--rows", "("],
        ["--threads", "0"],
        ["--dtypes", "f8"],
        ["--ggml-lib", "/nowhere"],
        ["--from", "/nowhere.json"],
        ["--output", "/"],
        ["--plot", "/nowhere/run.png"],
        ["--plot", "run.bmpx"],
        ["--markdown", "/nowhere/page.md"],
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_bad_usage_exits_2_with_a_rule(arguments):
    outcome = CliRunner().invoke(app, ["bench", *arguments])
    assert outcome.exit_code == 2
    assert " must " in outcome.output


INVALID_REPORTS = {
    "no JSON": "{",
    "no text": "\udcff",
    "list": "[]",
    "other object": "{}",
    "other schema": {"schema": 0},
    "no machine": {"machine": None},
    "date that is no text": {"date": 1},
    "rows that are no list": {"rows": {}},
    "row that is no object": {"rows": [1]},
    "row without a contestant": {"rows": [{"row": "x"}]},
    "row without foreign_cores": {"rows": [{k: v for k, v in figure().items() if k != "foreign_cores"}]},
    "time that is a text": {"rows": [figure() | {"median_us": "1"}]},
    "time beyond float64": {"rows": [figure() | {"median_us": 10**400}]},
    "time that is no number": {"rows": [figure() | {"median_us": float("nan")}]},
    "cores beyond float64": {"rows": [figure() | {"foreign_cores": 10**400}]},
    "growth without a size": {"rows": [figure(row="growth") | {"mode": "tokens"}]},
    "growth of an unknown dimension": {"rows": [figure("S=8: x", row="growth")]},
    "time of zero": {"rows": [figure() | {"median_us": 0}]},
    "ratio below zero": {"rows": [figure() | {"ratio": -1.0}]},
    "many thread counts": {"rows": [figure() | {"threads": i} for i in range(1, 18)]},
    "text that controls a terminal": {"machine": "\x1b[31m"},
    "problem that is no text": {"problems": [1]},
    "lists in lists without an end": "[" * 100_000,
}


@pytest.mark.parametrize("name", INVALID_REPORTS)
def test_from_refuses_an_invalid_report(name, tmp_path):
    content, path = INVALID_REPORTS[name], tmp_path / "run.json"
    if isinstance(content, dict):
        content = json.dumps(results(figure()).document() | content)
    path.write_text(content, errors="surrogateescape")
    outcome = CliRunner().invoke(app, ["bench", "--from", str(path)])
    assert outcome.exit_code == 2, outcome.output
    assert "[bench] from must be a file of --format json but got" in outcome.output


@pytest.mark.parametrize("form", ["console", "json", "csv"])
def test_from_shows_a_report_in_every_format(form, tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(results(figure()).document()))
    page = tmp_path / "page.md"
    command = ["bench", "--from", str(path), "--format", form, "--markdown", str(page)]
    outcome = CliRunner().invoke(app, command)
    assert outcome.exit_code == 0, outcome.output
    assert OUT in outcome.output
    assert f"**{OUT}**" in page.read_text()


def test_two_runs_are_shown_beside_each_other(tmp_path):
    paths = [tmp_path / "run.json", tmp_path / "again.json"]
    absent = not_installed(figure("peer", "peer"))
    for path, ratio in zip(paths, (0.75, 2.5), strict=True):
        run = results(figure() | {"ratio": ratio, "median_us": 100 * ratio}, absent)
        run.facts["date"] = f"the day of {path.stem}"
        path.write_text(json.dumps(run.document()))
    page = tmp_path / "page.md"
    command = ["bench", *(f"--from={path}" for path in paths), "--markdown", str(page)]
    outcome = CliRunner().invoke(app, command)
    assert outcome.exit_code == 0, outcome.output
    assert "Each cell has the figures of 2 runs: the day of run and the day of again." in outcome.output
    text = page.read_text()
    assert f"| **{OUT}** | 75, 250 | " in text
    assert " | 0.75, 2.50 |\n" in text
    assert "| peer (not installed: pip install it) | -, - | -, - | -, - |" in text
    target = "| prefill f32: at most 1.15 x the memory floor |"
    assert f"{target} PASS | neox 1T 0.75 |\n{target} MISS | neox 1T 2.50 |\n" in text
    for more in (["--format", "json"], ["--format", "csv"], ["--format", "html"], ["--plot", "run.svg"]):
        outcome = CliRunner().invoke(app, [*command, *more])
        assert outcome.exit_code == 2
        assert "[bench] from must be one run for" in outcome.output


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        ({"machine": "another"}, "one has machine "),
        ({"isa": "avx2"}, "one has isa "),
        ({"versions": {"numpy": "0"}}, "one has versions "),
        ({"seconds_per_row": 7.0}, "one has seconds_per_row "),
        ({"rows": [figure(row="another")]}, "only one of them has row another"),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else "",
)
def test_runs_that_differ_are_not_shown_beside_each_other(changed, difference, tmp_path):
    document = results(figure()).document()
    paths = [tmp_path / "run.json", tmp_path / "again.json"]
    for path, more in zip(paths, ({}, changed), strict=True):
        path.write_text(json.dumps(document | more))
    outcome = CliRunner().invoke(app, ["bench", *(f"--from={path}" for path in paths)])
    assert outcome.exit_code == 2, outcome.output
    text = " ".join(outcome.output.split())
    assert "[bench] from must be runs of the same rows on one machine but got" in text
    assert difference in text


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("--from=a.json", "--output=a.json"), "output must differ from from but got a.json."),
        (("--from=a.json", "--markdown=./a.json"), "markdown must differ from from but got a.json."),
        (("--from=a.json", "--markdown=b", "--output=b"), "markdown must differ from output but got b."),
        (("--output=c.svg", "--plot=c.svg"), "plot must differ from output but got c.svg."),
    ],
)
def test_a_file_is_not_read_or_written_twice(names, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = json.dumps(results(figure()).document())
    (tmp_path / "a.json").write_text(text)
    outcome = CliRunner().invoke(app, ["bench", *names])
    assert (outcome.exit_code, outcome.stderr) == (2, f"[bench] {message}\n")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.json": text}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("rows", "^norm"),
        ("threads", "1"),
        ("dtypes", "f32"),
        ("modes", "neox"),
        ("peers", "none"),
        ("seconds", "1.0"),
        ("ggml-lib", "x"),
        ("isa", "avx2"),
        ("quick", None),
    ],
)
def test_an_option_of_a_measurement_comes_without_an_earlier_run(option, value, tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(results(figure()).document()))
    words = [f"--{option}"] if value is None else [f"--{option}", value]
    outcome = CliRunner().invoke(app, ["bench", "--from", str(path), *words])
    expected = f"[bench] {option} must come without --from but got {value or True}.\n"
    assert (outcome.exit_code, outcome.stderr) == (2, expected)


def test_an_earlier_run_without_a_floors_ratio_has_no_verdict_about_it(tmp_path):
    one = {"shape": "[1,1,32,128]", "group": "decode"}
    floor = figure(CALL_FLOOR, "floor") | one
    del floor["ratio"]
    path = tmp_path / "run.json"
    path.write_text(json.dumps(results(floor, figure() | one).document()))
    outcome = CliRunner().invoke(app, ["bench", "--from", str(path)])
    assert outcome.exit_code == 0, outcome.output
    assert "x the call floor" not in outcome.output.replace("not measured", "")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("peers", "gglm", "peers must match a peer's name, or be none, but got gglm."),
        ("seconds", "0", "seconds must be above 0 and at most 3600 but got 0."),
        ("seconds", "nan", "seconds must be above 0 and at most 3600 but got nan."),
        ("seconds", "3601", "seconds must be above 0 and at most 3600 but got 3601."),
    ],
)
def test_a_value_without_effect_is_refused(option, value, message):
    outcome = CliRunner().invoke(app, ["bench", "--quick", "--rows", "^decode", f"--{option}", value])
    assert (outcome.exit_code, outcome.stdout, outcome.stderr) == (2, "", f"[bench] {message}\n")


def test_every_peer_of_a_row_can_be_named():
    inputs = RopeInputs(Row("prefill", SMALL, "f32", "neox", 1))
    assert {contestant.name for contestant in peers(inputs, None, None)} < set(PEERS)
    assert len(set(PEERS)) == len(PEERS)


@pytest.mark.parametrize("backend", ["sim", "reference", "gpu"])
def test_another_back_end_is_not_measured(backend, monkeypatch):
    monkeypatch.setenv("NPU_ROPE_BACKEND", backend)
    outcome = CliRunner().invoke(app, ["bench", "--quick", "--rows", r"^decode \[1,"])
    message = f"[bench] NPU_ROPE_BACKEND must be cpu or unset but got {backend}.\n"
    assert (outcome.exit_code, outcome.stderr) == (2, message)


def test_a_plot_without_rows_is_refused_before_the_measurement(tmp_path, monkeypatch):
    monkeypatch.setattr("npu_rope.cli.bench.run", None)
    plot = ["--plot", str(tmp_path / "p.png")]
    outcome = CliRunner().invoke(app, ["bench", "--quick", "--rows", r"^norm \[1,", *plot])
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith(
        "[bench] rows must include mode neox or normal, or measured rows of growth"
    )


def test_a_binary_page_is_refused_before_the_measurement(tmp_path):
    page = tmp_path / "page.md"
    page.write_bytes(b"\xff")
    outcome = CliRunner().invoke(app, ["bench", "--markdown", str(page)])
    assert outcome.exit_code == 2
    assert "[bench] markdown must be a text file but got" in outcome.output


def test_a_file_of_notes_is_refused_before_the_measurement(tmp_path):
    page = tmp_path / "notes.md"
    page.write_text("my notes\n")
    outcome = CliRunner().invoke(app, ["bench", "--markdown", str(page)])
    assert outcome.exit_code == 2
    assert f"markdown must be a new file or have the marks {report.BEGIN}" in " ".join(outcome.output.split())
    assert page.read_text() == "my notes\n"


def test_a_page_of_other_rows_is_refused_before_anything_is_written(tmp_path):
    page, saved, out = tmp_path / "norms.md", tmp_path / "saved.json", tmp_path / "out.html"
    page.write_text("{}\n{}\n".format(*report.OWN_MARKS["norm"]))
    before = page.read_text()
    with saved.open("w") as stream:
        report.write_json(results(figure()), stream)
    files = ["--format", "html", "--output", str(out), "--markdown", str(page)]
    outcome = CliRunner().invoke(app, ["bench", "--from", str(saved), *files])
    assert outcome.exit_code == 2
    assert "markdown must be a new file or have the marks" in " ".join(outcome.output.split())
    assert (out.exists(), page.read_text()) == (False, before)


HOSTILE = figure("=1+1 | <b>[x](y)") | {"shape": r"$\undefined{$ x$", "note": "@SUM(A1)", "status": "failed"}


def hostile_run(folder):
    path = folder / "run.json"
    run = results(HOSTILE, figure())
    run.problems.append("<script>")
    path.write_text(json.dumps(run.document()))
    return path


def test_texts_of_a_run_are_no_formulas_of_a_spreadsheet(tmp_path):
    outcome = CliRunner().invoke(app, ["bench", "--from", str(hostile_run(tmp_path)), "--format", "csv"])
    first, second = csv.DictReader(io.StringIO(outcome.stdout))
    assert first["contestant"] == "'=1+1 | <b>[x](y)"
    assert first["note"] == "'@SUM(A1)"
    assert second["contestant"] == OUT


def test_texts_of_a_run_are_no_markup(tmp_path):
    page = tmp_path / "page.md"
    CliRunner().invoke(app, ["bench", "--from", str(hostile_run(tmp_path)), "--markdown", str(page)])
    text = page.read_text()
    assert r"**=1+1 \| &lt;b>[x]\(y) (failed: @SUM(A1))**" in text
    assert "Not complete: &lt;script>" in text
    assert "<b>" not in text
    assert "<script>" not in text


def test_texts_of_a_run_are_no_formulas_of_a_plot(tmp_path):
    plot = tmp_path / "plot.svg"
    outcome = CliRunner().invoke(app, ["bench", "--from", str(hostile_run(tmp_path)), "--plot", str(plot)])
    assert outcome.exit_code == 1, outcome.output  # the run has a failed row
    assert r"prefill $\undefined{$ x$, 1 thread" in plot.read_text()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([figure() | {"mode": "vision"}], "must include mode neox or normal"),
        ([figure() | {"shape": str(i)} for i in range(101)], "must have at most 100 panels but got 101."),
    ],
    ids=["no panel", "many panels"],
)
def test_a_run_that_cannot_be_drawn_is_refused_before_anything_is_written(rows, message, tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(results(*rows).document()))
    outputs = {
        "markdown": tmp_path / "page.md",
        "plot": tmp_path / "plot.svg",
        "output": tmp_path / "table.txt",
    }
    options = [f"--{name}={file}" for name, file in outputs.items()]
    outcome = CliRunner().invoke(app, ["bench", "--from", str(path), *options])
    assert outcome.exit_code == 2, outcome.output
    assert f"[bench] rows {message}" in outcome.output
    assert list(tmp_path.iterdir()) == [path]


def test_an_instruction_set_without_the_library_is_refused(npu_rope_command):
    done = npu_rope_command("bench", "--isa", "avx2", NPU_ROPE_LIB_DIR="/nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "[cpu] backend must be available but its library libnpu_rope was not found in "
    )


NARROWEST = "baseline" if platform.machine() == "x86_64" else "neon"


def test_an_instruction_set_that_the_machine_lacks_is_refused_before_the_measurement():
    widest = native.load().isa()
    outcome = CliRunner().invoke(app, ["bench", "--isa", "avx999"])
    assert outcome.exit_code == 2
    message = "isa must be an instruction set that this machine runs, such as"
    assert f"[bench] {message} {widest}, but got avx999." in " ".join(outcome.output.split())
    assert native.load().isa() == widest


@pytest.mark.parametrize(("busy_cores", "waits"), [((0.1,), 0), ((1.5, 0.2, 0.0), 1)])
def test_a_row_waits_for_other_programs_and_says_so_once(busy_cores, waits, monkeypatch):
    left, called = list(busy_cores), []
    monkeypatch.setattr(harness.ForeignCpu, "cores", lambda self: left.pop(0))
    monkeypatch.setattr(harness.time, "sleep", lambda seconds: None)
    harness.wait_for_quiet(60.0, lambda: called.append(1))
    assert (left, len(called)) == ([], waits)


@pytest.mark.long
def test_the_command_measures_decode_rows_and_writes_the_documented_json(npu_rope_command, tmp_path):
    path = tmp_path / "run.json"
    options = ["--quick", "--rows", r"^decode \[1,.*f32 neox", "--peers", "none", "--isa", NARROWEST]
    done = npu_rope_command("bench", *options, "--format", "json", "--output", str(path))
    assert done.returncode == 0, done.stderr
    document = json.loads(path.read_text())
    assert {document["isa"], *(row["isa"] for row in document["rows"])} == {NARROWEST}
    assert set(document) == {
        "schema",
        "date",
        "machine",
        "isa",
        "versions",
        "seconds_per_row",
        "problems",
        "targets",
        "rows",
    }
    assert document["problems"] == []
    assert {row["threads"] for row in document["rows"]} == {1, 2}
    for row in document["rows"]:
        assert set(report.CSV_COLUMNS) >= set(row) >= {"row", "contestant", "status", "machine", "versions"}
        assert row["status"] == ("unsupported" if "NumPy" in row["note"] else "ok"), row
        if row["status"] == "ok":
            assert row["min_us"] <= row["median_us"]
            assert row["samples"] >= 5
            assert row["ratio"] > 0
