"""How suite sequences finds the fault of a device that keeps a table from one call to the next.

The device is a double in this process. It rotates by the float64 reference, and has planted faults.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from npu_rope.reference import rope as reference
from npu_rope.rope_attributes import RopeMode
from npu_rope.testing import ggml_graph, sequence_search
from npu_rope.testing.faults import find_faults
from npu_rope.testing.ggml import GgmlAborted, GgmlInfo, StepResult
from npu_rope.testing.outcomes import AFTER, ALONE, FAIL, OK, SOMETIMES, CaseResult, Judgement
from npu_rope.testing.sequence_causes import Cause, cause_of
from npu_rope.testing.sequence_draw import sequence_cases
from npu_rope.testing.sequence_search import judge_sequence
from npu_rope.testing.sequences import Node, parse

PARAMS = (
    "freq_base",
    "freq_scale",
    "ext_factor",
    "attn_factor",
    "beta_fast",
    "beta_slow",
    "n_dims",
    "mode",
    "sections",
)
PROPERTIES = (*PARAMS, "n_ctx_orig", "ff", "pos", "forward")
FREED = "ggml ended with SIGABRT: {} is read from memory that was freed (allocation {})"


def properties(call):
    """Return what the table of a call depends on."""
    factors = None if call.freq_factors is None else call.freq_factors.tobytes()
    found = {name: getattr(call.params, name) for name in PARAMS}
    found |= {"n_ctx_orig": call.n_ctx_orig, "ff": factors, "pos": call.positions.tobytes()}
    return found | {"forward": call.forward, "size": (call.shape[1], call.shape[3], len(call.positions))}


def with_property(call, name, other):
    """Return the call with one property of another one."""
    if name in PARAMS:
        # YaRN needs a context, and the judge's parameters have none without it.
        values = {"n_ctx_orig": call.n_ctx_orig or 1, name: getattr(other.params, name)}
        return replace(call, params=replace(call.params, **values))
    if name == "n_ctx_orig":
        params = replace(call.params, n_ctx_orig=other.params.n_ctx_orig)
        return replace(call, params=params, n_ctx_orig=other.n_ctx_orig)
    attribute = {"ff": "freq_factors", "pos": "positions", "forward": "forward"}[name]
    return replace(call, **{attribute: getattr(other, attribute)})


class Device:
    """A double of a ggml process with a device.

    Args:
        forgotten: for each of these properties, the device takes the property of an earlier call that differs
            in nothing else. If it is a dictionary, an earlier call that has the same of the properties named.
        frees: the device ends if a call of a graph changes one of these properties: it frees memory early.
        is_wrong: returns whether the device rotates a call by other positions.
        overwrites: the device writes its inputs, which a later call of the graph reads.
    """

    def __init__(self, forgotten=(), frees=(), is_wrong=lambda call: False, overwrites=False):
        self.arguments = forgotten, frees, is_wrong, overwrites
        self.forgotten, self.frees, self.is_wrong, self.overwrites = self.arguments
        self.info = GgmlInfo("1", "", "", device="DOUBLE0")
        self.backend_count, self.sequences, self.runs = 0, [], []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def end(self):
        self.backend_count, self.sequences = 0, []

    def close(self):
        self.end()

    def new_process(self):
        process = Device(*self.arguments)
        process.runs = self.runs
        return process

    def too_old_for(self, params, *, inplace, set_rows):
        return ""

    def sequence(self, steps, device=""):
        self.runs.append(steps)
        self.backend_count += 1
        if device:
            return [StepResult(self._rotated(step.call)) for step in steps]
        self._end_if_freed(steps)
        caches = {}
        written = set()
        results = []
        for step in steps:
            if step.start == "backend":
                caches = {}
            if step.start != "node":
                written = set()
            call = step.call
            for name in self.forgotten:
                key = self._key(call, name)
                call = with_property(call, name, caches.setdefault((name, key), step.call))
            x = call.parent.tobytes()
            if self.is_wrong(call) or x in written:
                call = replace(call, positions=call.positions + 1)
            if self.overwrites:
                written.add(x)
            results.append(StepResult(self._rotated(call), failed="an input was written" * self.overwrites))
        return results

    def _key(self, call, name):
        names = self.forgotten[name] if isinstance(self.forgotten, dict) else {*properties(call)} - {name}
        return tuple((k, v) for k, v in properties(call).items() if k in names)

    def _end_if_freed(self, steps):
        for i, (before, step) in enumerate(pairwise(steps)):
            if step.start == "node":
                for name in self.frees:
                    if properties(before.call)[name] != properties(step.call)[name]:
                        raise GgmlAborted(FREED.format("a table", i), ())

    def _rotated(self, call):
        x = ggml_graph.view(np.ascontiguousarray(call.parent), call)
        arguments = call.positions, call.params, call.freq_factors
        return reference.rope(x, *arguments, forward=call.forward).astype(x.dtype)


@cache
def drawn():
    """Return sequences whose calls differ in one property only, by this property."""
    found = {}
    for sequence in sequence_cases(0, 200):
        names = {
            tuple(name for name in Node.__dataclass_fields__ if getattr(before, name) != getattr(after, name))
            for before, after in pairwise(sequence.nodes)
        }
        for name in PROPERTIES:
            if (name,) in names:
                found.setdefault(name, []).append(sequence)
    return found


def first_failing(device, sequences):
    """Return the result of the first sequence that fails."""
    results = (judge_sequence(sequence, [], device) for sequence in sequences)
    return next(result for result in results if result.verdict == FAIL)


def written(text, number=0):
    """Return a sequence as if it had been drawn."""
    return replace(parse(text), source=f"sequence {number}")


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_forgotten_property_is_found_and_shown_by_two_calls(name):
    device = Device(forgotten=(name,))
    result = first_failing(device, drawn()[name])
    first, second = result.case.nodes
    assert first != second
    assert replace(second, **{name: getattr(first, name)}) == first, result.case.name
    assert (result.cause, result.when) == (f"calls that differ in {name}", "after another")
    assert "+" in result.case.signs or name == "pos"
    # The printed command repeats the failure. Each call passes alone.
    assert judge_sequence(parse(result.case.name), [], device.new_process()).verdict == FAIL
    for node in result.case.nodes:
        assert judge_sequence(parse(str(node)), [], device.new_process()).verdict == OK


def test_a_correct_device_passes():
    device = Device()
    for sequence in sequence_cases(0, 12):
        assert judge_sequence(sequence, [], device).verdict == OK
    assert len(device.runs) == 24  # on the device and on the CPU


A = "rope(shape=[1,3,1,32],pos=1)"
SCALED = "rope(shape=[1,3,1,32],freq_scale=0.5,pos=1)"
SCALED_WITH_FACTORS = "rope(shape=[1,3,1,32],freq_scale=0.5,ff=1,pos=1)"


def test_a_second_sequence_with_the_fault_is_counted_and_not_simplified():
    device = Device(forgotten=("freq_scale",))
    first = judge_sequence(written(f"{A} + {SCALED}"), [], device)
    before = len(device.runs)
    other = written("rope(shape=[2,5,1,64],mode=neox) ; rope(shape=[2,5,1,64],mode=neox,freq_scale=1.5)")
    second = judge_sequence(other, [], device)
    assert second.like == first.case.name
    assert second.cause == first.cause == "calls that differ in freq_scale"
    assert second.case is other
    # The device, the CPU, the wrong call alone, and without the difference.
    assert len(device.runs) == before + 4


def test_a_second_fault_of_a_sequence_is_found_behind_a_known_one():
    device = Device(forgotten=("freq_scale", "attn_factor"))
    judge_sequence(written(f"{A} + {SCALED}"), [], device)
    behind = written(f"{A} + {SCALED} + {SCALED.replace('pos', 'attn_factor=1.25,pos')}", 7)
    result = judge_sequence(behind, [], device)
    assert result.cause == "calls that differ in attn_factor"
    assert not result.like
    assert result.note == "sequence 7 without freq_scale: each call passes alone"


YARN = "rope(shape=[1,3,1,32],freq_scale=0.5,ext_factor=1,n_ctx_orig=128,pos=1)"
OTHER_CONTEXT = YARN.replace("128", "4096")
OTHER_RAMP = YARN.replace("ext_factor=1", "ext_factor=0.5")
# As a table that only another base replaces, and a ramp whose key lacks the range of YaRN.
SHADOWED = {
    "freq_scale": ("size", "freq_base"),
    "n_ctx_orig": ("size", "freq_base", "freq_scale", "ext_factor"),
    "ext_factor": ("size", "freq_base", "freq_scale"),
}


@pytest.mark.parametrize(
    ("name", "text"), [("n_ctx_orig", f"{YARN} + {OTHER_CONTEXT}"), ("ext_factor", f"{YARN} ; {OTHER_RAMP}")]
)
def test_a_simplification_does_not_arrive_at_a_known_fault(name, text):
    device = Device(forgotten={other: SHADOWED[other] for other in ("freq_scale", name)})
    known = judge_sequence(written(f"{A} + {SCALED}"), [], device)
    assert known.cause == "calls that differ in freq_scale"
    result = judge_sequence(written(text, 5), [], device)
    assert result.cause == f"calls that differ in {name}"
    assert result.note == "sequence 5: each call passes alone"
    assert not result.like
    # Without the known fault of the device, the simplest sequence still fails.
    only = Device(forgotten={name: SHADOWED[name]})
    assert judge_sequence(parse(result.case.name), [], only).verdict == FAIL
    assert {fault.rule for fault in find_faults([known, result])} == {(known.cause,), (result.cause,)}


@pytest.mark.parametrize(
    ("name", "text"), [("n_ctx_orig", f"{YARN} + {OTHER_CONTEXT}"), ("ext_factor", f"{YARN} ; {OTHER_RAMP}")]
)
def test_a_simplification_that_arrives_at_an_unknown_fault_begins_again(name, text):
    device = Device(forgotten={other: SHADOWED[other] for other in ("freq_scale", name)})
    result = judge_sequence(written(text, 5), [], device)
    assert result.cause == f"calls that differ in {name}"
    how, _, other = result.note.rpartition(": ")
    assert how == (
        "sequence 5: each call passes alone; it also led to another fault (calls that differ in freq_scale)"
    )
    # The next sequence with the other fault shows it, and a later one is counted.
    for like in ("", other):
        second = judge_sequence(written(f"{A} + {SCALED}", 6), [], device)
        assert (second.cause, second.like) == ("calls that differ in freq_scale", like)
        assert second.case.name == (f"{A} + {SCALED}" if like else other)
        found = "sequence 6: it has the fault of another sequence"
        assert second.note == (found if like else "sequence 5: each call passes alone")


VISION = "rope(shape=[1,3,1,32],mode=vision,sections=[{}],pos=1)"


def test_calls_that_differ_are_not_the_fault_of_a_call_that_fails_alone():
    def is_wrong(call):
        return call.params.rope_mode is RopeMode.VISION and 0 in call.params.sections[:2]

    device = Device(forgotten=("sections",), is_wrong=is_wrong)
    alone = judge_sequence(written(VISION.format("0,4,4,4") + f" + {A}"), [], device)
    assert (alone.cause, alone.when) == ("a call with mode, sections", "alone")
    text = " + ".join(VISION.format(sections) for sections in ("4,4,4,4", "2,6,4,4"))
    result = judge_sequence(written(text), [], device)
    assert (result.cause, result.like) == ("calls that differ in sections", "")
    assert result.when == "after another"
    both = " + ".join(VISION.format(sections) for sections in ("0,4,4,4", "2,6,4,4"))
    counted = judge_sequence(written(both), [], device)
    assert (counted.cause, counted.like) == (result.cause, result.case.name)


def test_an_input_of_its_own_is_not_what_another_fault_needs():
    device = Device(forgotten={"freq_scale": SHADOWED["freq_scale"]}, overwrites=True)
    assert judge_sequence(written(f"{A} ; {A}"), [], device).cause == "any call"
    assert judge_sequence(written(f"{A} + {A}"), [], device).cause == "equal calls"
    result = judge_sequence(written(f"{A} + {SCALED}", 5), [], device)
    assert result.cause == "calls that differ in freq_scale"
    first, second = result.case.nodes
    assert first.x != second.x
    counted = judge_sequence(written(f"{SCALED} + {A}"), [], device)
    assert counted.like
    only = judge_sequence(written(f"{SCALED} + {A[:-1]},x=1)"), [], device)
    assert (only.cause, only.like) == (result.cause, result.case.name)


def test_equal_calls_of_a_device_that_writes_its_input_are_one_fault():
    device = Device(overwrites=True)
    alone = judge_sequence(written(f"{A} ; {A}"), [], device)
    assert (alone.cause, alone.when) == ("any call", "alone")
    first = judge_sequence(written(f"{A} + {A}"), [], device)
    assert (first.cause, first.when) == ("equal calls", "after another")
    before = len(device.runs)
    second = judge_sequence(written(f"{A} + {SCALED}"), [], device)
    assert (second.cause, second.like) == (first.cause, first.case.name)
    assert len(device.runs) <= before + 8
    table = {(fault.kind, fault.rule, fault.when) for fault in find_faults([first, second, alone])}
    assert table == {
        ("wrong values", ("equal calls",), "after another"),
        ("an input was written", (), "alone"),
    }


def test_memory_that_is_freed_early_is_found_and_shown_by_two_calls_of_a_graph():
    device = Device(frees=("freq_base", "ff"))
    result = judge_sequence(written(f"{A} ; {A} + {A.replace('pos=1', 'pos=1,freq_base=100')}"), [], device)
    assert result.case.signs == ("+",)
    assert result.cause == "calls that differ in freq_base"
    assert judge_sequence(parse(result.case.name), [], device.new_process()).verdict == FAIL


def test_a_known_message_is_not_simplified_for_another_cause():
    device = Device(frees=("freq_base", "ff"))
    first = judge_sequence(written(f"{A} + {A.replace('pos=1', 'pos=1,freq_base=100')}"), [], device)
    before = len(device.runs)
    for number in (1, 2):
        second = judge_sequence(written(f"{A} + {SCALED_WITH_FACTORS}", number), [], device)
        assert second.like == first.case.name
        assert second.cause == "calls that differ in ff"
    assert len(device.runs) <= before + 10


def test_the_table_has_a_row_for_each_cause_of_wrong_values_and_for_each_message():
    device = Device(forgotten=("freq_scale", "attn_factor"), frees=("freq_base", "ff"))
    texts = [
        f"{A} + {SCALED}",
        f"{SCALED} ; {A}",
        f"{A} ; {A.replace('pos', 'attn_factor=1.25,pos')}",
        f"{A} + {A.replace('pos', 'freq_base=100,pos')}",
        f"{A} + {A.replace('pos', 'ff=1,pos')}",
    ]
    results = [judge_sequence(written(text, i), [], device) for i, text in enumerate(texts)]
    faults = {(fault.kind, fault.rule): len(fault.failed) for fault in find_faults(results)}
    assert faults == {
        ("wrong values", ("calls that differ in freq_scale",)): 2,
        ("wrong values", ("calls that differ in attn_factor",)): 1,
        ("ended with SIGABRT: a table is read from memory that was freed (allocation 0)", ()): 2,
    }
    assert all(not fault.example[0].like for fault in find_faults(results))


def test_a_failure_that_a_new_process_does_not_repeat_is_reported_as_it_is(monkeypatch):
    device = Device(forgotten=("freq_scale",))
    monkeypatch.setattr(device, "new_process", Device)
    sequence = written(f"{A} + {SCALED}", 3)
    result = judge_sequence(sequence, [], device)
    assert result.case is sequence
    assert result.note == "sequence 3: it passes in a new process, alone"
    (fault,) = find_faults([result])
    assert (fault.rule, len(fault.failed), fault.when) == ((), 1, "sometimes")


def test_the_number_of_simplified_sequences_is_limited(monkeypatch):
    monkeypatch.setattr(sequence_search, "MOST_SIMPLIFIED", 1)
    device = Device(forgotten=("freq_scale", "attn_factor"))
    judge_sequence(written(f"{A} + {SCALED}"), [], device)
    result = judge_sequence(written(f"{A} + {A.replace('pos', 'attn_factor=1.25,pos')}", 4), [], device)
    assert result.note == "sequence 4: not simplified, because 1 others were"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (f"{A} + {SCALED}", "calls that differ in freq_scale"),
        ("rope(shape=[1,1,1,16]) ; rope(shape=[1,2,1,32])", "calls that differ in tokens, head"),
        (f"{A} + {A}", "equal calls"),
        ("rope(shape=[1,1,1,16],n_dims=8,pos=1)", "a call with n_dims"),
        ("rope(shape=[1,1,1,16])", "any call"),
    ],
)
def test_the_cause_is_what_the_simplest_sequence_still_has(text, cause):
    assert str(cause_of(parse(text))) == cause


@pytest.mark.parametrize(
    ("cause", "text", "removed"),
    [
        (Cause(("freq_scale",), False), f"{SCALED} + {A}", f"{SCALED} + {SCALED}"),
        (Cause(("ff",), False), f"{SCALED} + {A}", None),
        (Cause((), False), f"{A} ; {A}", f"{A[:-1]},x=1) ; {A[:-1]},x=2)"),
        (Cause((), False), f"{A} + {A[:-1]},x=1)", None),
        (Cause((), True), f"{A} + {A}", None),
        (Cause(("n_dims",), True), "rope(shape=[1,1,1,16],n_dims=8)", "rope(shape=[1,1,1,16])"),
        (
            Cause(("mode",), False),
            "rope(shape=[1,1,1,16]) + rope(shape=[1,1,1,16],mode=mrope,sections=[2,2,2,2])",
            "rope(shape=[1,1,1,16]) + rope(shape=[1,1,1,16])",
        ),
        (
            Cause(("head",), False),
            "rope(shape=[1,1,1,16]) + rope(shape=[1,1,1,32],n_dims=20)",
            "rope(shape=[1,1,1,16]) + rope(shape=[1,1,1,16])",
        ),
    ],
)
def test_a_cause_is_removed_from_a_sequence(cause, text, removed):
    other = cause.removed_from(parse(text))
    assert (other and other.name) == removed


def test_the_message_of_an_ended_process_names_no_call():
    device = Device(frees=("ff",))
    result = judge_sequence(parse(f"{A} + {SCALED_WITH_FACTORS}"), [], device)
    judgement = result.by("ggml")
    assert judgement.message == FREED.format("a table", 0)


def test_the_example_of_a_fault_is_the_simplified_sequence():
    def failed(text, **fields):
        return CaseResult(
            written(text), [Judgement("ggml", FAIL, ratio=2.0)], note="found", cause="x", **fields
        )

    long, short = "rope(shape=[1,9,1,64]) + rope(shape=[1,9,1,64])", "rope(shape=[1,1,1,16])"
    (fault,) = find_faults([failed(short, like=long), failed(long)])
    assert fault.example[0].case.name == long


@pytest.mark.parametrize("text", [f"{A} + {SCALED}", VISION.format("0,4,4,4")])
def test_a_sequence_that_a_user_gives_has_the_title_of_the_run_that_found_it(text):
    """The device forgets freq_scale, and is wrong in mode vision."""
    device = Device(("freq_scale",), is_wrong=lambda call: call.params.rope_mode is RopeMode.VISION)
    drawn = judge_sequence(written(text), [], device)
    given = judge_sequence(parse(drawn.case.name), [], device.new_process())
    titles = [
        (fault.kind, fault.rule, fault.when) for result in (drawn, given) for fault in find_faults([result])
    ]
    assert titles[0] == titles[1]
    assert titles[0][2] == (AFTER if "+" in text else ALONE)
    assert given.note.startswith("given by --op: ")


def test_a_sequence_that_a_user_gives_and_a_new_process_does_not_repeat_is_reported_so():
    device = Device(("freq_scale",))
    device.new_process = Device
    given = judge_sequence(parse(f"{A} + {SCALED}"), [], device)
    assert (given.verdict, given.when) == (FAIL, SOMETIMES)
