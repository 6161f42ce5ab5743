"""Suite sequences: what is drawn, the text of a sequence, and how a failing one becomes simple."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from npu_rope.reference import rope as reference
from npu_rope.testing.outcomes import OK
from npu_rope.testing.sequence_draw import CHANGES, ROTATION, has_effect, sequence_cases
from npu_rope.testing.sequence_search import judge_sequence
from npu_rope.testing.sequence_shrink import cost, shrink, simplifications
from npu_rope.testing.sequences import EXAMPLE, CallSequence, Node, parse

YARN = ("ext_factor", "beta_fast", "beta_slow", "n_ctx_orig")


@functools.cache
def first_sequences(seed):
    return list(sequence_cases(seed, 600 if not seed else 200))


def drawn(seed, count):
    """Return the first sequences of a seed."""
    return first_sequences(seed)[:count]


@pytest.mark.long
def test_a_seed_determines_the_sequences():
    names = [sequence.name for sequence in drawn(1, 60)]
    assert names == [sequence.name for sequence in sequence_cases(1, 60)]
    assert names[:20] == [sequence.name for sequence in sequence_cases(1, 20)]
    assert len(set(names) - {sequence.name for sequence in drawn(2, 60)}) > 50


@pytest.mark.long
def test_the_drawn_sequences_cover_the_forms():
    sequences = drawn(0, 400)
    nodes = [node for sequence in sequences for node in sequence.nodes]
    assert {len(sequence.nodes) for sequence in sequences} == {2, 3}
    assert {sign for sequence in sequences for sign in sequence.signs} == {"+", ";", "|"}
    assert {node.mode for node in nodes} == {"normal", "neox", "mrope", "imrope", "vision"}
    for name in ("forward", "inplace", "type"):
        assert len({getattr(node, name) for node in nodes}) == 2, name
    for name in ("freq_scale", "freq_base", "ext_factor", "n_ctx_orig", "ff", "pos", "sections", "n_dims"):
        assert len({getattr(node, name) for node in nodes}) > 2, name


def test_most_calls_differ_from_the_one_before_in_one_property():
    names = [*Node.__dataclass_fields__]
    pairs = [pair for s in drawn(0, 300) for pair in zip(s.nodes, s.nodes[1:], strict=False)]
    differing = [sum(getattr(a, name) != getattr(b, name) for name in names) for a, b in pairs]
    assert sum(count <= 2 for count in differing) > 0.5 * len(pairs)
    assert "freq_scale" in CHANGES


def changed_alone(sequences):
    """Return the pairs of calls that differ in one attribute, by this attribute."""
    found = {}
    for sequence in sequences:
        for before, after in zip(sequence.nodes, sequence.nodes[1:], strict=False):
            differing = [n for n in Node.__dataclass_fields__ if getattr(before, n) != getattr(after, n)]
            if len(differing) == 1:
                found.setdefault(differing[0], []).append((before, after))
    return found


@pytest.fixture(scope="module")
def single_changes():
    return changed_alone(drawn(0, 600))


@pytest.mark.parametrize("name", [name for name in ROTATION if name != "n_offs"])
def test_each_change_of_the_rotation_has_an_effect(single_changes, name):
    assert len(single_changes[name]) >= 8
    for before, after in single_changes[name]:
        rotated = []
        for node in (before, after):
            x = replace(node, view=0).data().x
            factors = node.factors()
            rotated.append(reference.rope(x, node.positions(), node.params, factors, forward=node.forward))
        assert np.abs(rotated[0] - rotated[1]).max() > 0.01, (str(before), str(after))


def test_a_change_without_an_effect_is_not_drawn():
    plain = Node((1, 2, 1, 64), pos=1)
    yarn = replace(plain, freq_scale=0.25, ext_factor=1.0, n_ctx_orig=4096)
    for changes in ({"ext_factor": 0.5}, {"beta_fast": 8.0}, {"beta_slow": 2.0}, {"n_ctx_orig": 128}):
        assert not has_effect(plain, replace(plain, **changes)), changes
        assert has_effect(yarn, replace(yarn, **changes)), changes
    assert not has_effect(plain, replace(plain, freq_scale=0.25, beta_fast=8.0))  # one of two changes
    assert not has_effect(plain, replace(plain, n_dims=64))  # 0 is the whole head


@pytest.mark.parametrize("seed", range(3))
def test_200_sequences_have_each_change_of_a_table_alone(seed):
    pairs = changed_alone(drawn(seed, 200))
    for name in (*YARN, "freq_base", "freq_scale", "attn_factor", "ff", "pos", "mode", "sections", "n_dims"):
        assert len(pairs[name]) >= 2, name
    # None before, none after, and other contents
    assert {(a.ff > 0, b.ff > 0) for a, b in pairs["ff"]} == {(False, True), (True, False), (True, True)}


def test_the_text_of_a_sequence_describes_it():
    for sequence in drawn(1, 100):
        assert parse(sequence.name) == replace(sequence, source="")
    assert parse(EXAMPLE).signs == ("+",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rope(shape=[1,2,1,8]) rope(shape=[1,2,1,8])", "a call must be rope"),
        ("rope(mode=neox)", "must name its shape"),
        ("rope(shape=[1,2,1,8],speed=2)", "an attribute must be one of .* but got speed"),
        ("rope(shape=[1,2,1,8],mode=other)", "mode must be one of normal, .* but got other"),
        ("rope(shape=[1,2,1,8],freq_scale=abc)", "freq_scale must be a number but got abc"),
        ("rope(shape=[1,2,1,8],freq_base=[1,2])", r"freq_base must be a number but got \[1,2\]"),
        ("rope(shape=[1,2,1,8],n_dims=1.5)", "n_dims must be an integer but got 1.5"),
        ("rope(shape=8)", "shape must be a list of integers but got 8"),
        ("rope(shape=[1,2,1,7])", "with an even D"),
        ("rope_back(shape=[1,2,1,8],inplace=1)", "inplace must be 0 in rope_back"),
        ("rope(shape=[1,2,1,8],ff=-1)", "must be at least 0"),
    ],
)
def test_a_text_that_describes_no_sequence_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse(text)


def differs_in_freq_scale(sequence):
    """A cache that depends on freq_base only fails after a call with another freq_scale."""
    return any(
        a.freq_base == b.freq_base and a.freq_scale != b.freq_scale
        for a, b in zip(sequence.nodes, sequence.nodes[1:], strict=False)
    )


def test_a_failing_sequence_is_simplified_to_two_calls():
    found = [sequence for sequence in drawn(0, 200) if differs_in_freq_scale(sequence)]
    assert len(found) > 10
    for sequence in found[:3]:
        simplest = shrink(sequence, differs_in_freq_scale, 2000)
        assert differs_in_freq_scale(simplest)
        first, second = simplest.nodes
        other = replace(second, freq_scale=first.freq_scale)
        assert other == first == Node((1, 1, 1, 16), freq_scale=first.freq_scale), simplest.name
        assert simplest.signs == ("+",)
        assert not any(map(differs_in_freq_scale, simplifications(simplest)))


def test_the_number_of_attempts_is_limited():
    attempts = []
    shrink(drawn(0, 1)[0], lambda sequence: bool(attempts.append(sequence)), 7)
    assert len(attempts) == 7


def test_a_simplification_costs_less_or_has_fewer_calls():
    for sequence in drawn(2, 20):
        for simpler in simplifications(sequence):
            assert len(simpler.nodes) < len(sequence.nodes) or cost(simpler) < cost(sequence)


def test_sequences_are_right_on_the_cpu():
    for sequence in drawn(2, 6):
        result = judge_sequence(sequence, ["cpu"], None)
        assert [judgement.verdict for judgement in result.judgements] == [OK] * len(result.judgements)


def test_a_written_sequence_is_not_simplified():
    sequence = parse(EXAMPLE)
    assert isinstance(sequence, CallSequence)
    assert not sequence.source
    assert judge_sequence(sequence, ["cpu"], None).case is sequence
