"""Suite sequences: what is drawn, the text of a sequence, and how a failing one becomes simple."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npu_rope.testing.outcomes import OK
from npu_rope.testing.sequence_draw import CHANGES, sequence_cases
from npu_rope.testing.sequence_judge import judge_sequence
from npu_rope.testing.sequence_shrink import cost, shrink, simplifications
from npu_rope.testing.sequences import EXAMPLE, Node, Sequence, parse


def drawn(seed, count):
    return list(sequence_cases(seed, count))


def test_a_seed_determines_the_sequences():
    names = [sequence.name for sequence in drawn(3, 60)]
    assert names == [sequence.name for sequence in drawn(3, 60)]
    assert names[:20] == [sequence.name for sequence in drawn(3, 20)]
    assert len(set(names) - {sequence.name for sequence in drawn(4, 60)}) > 50


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
    for sequence in drawn(5, 6):
        result = judge_sequence(sequence, ["cpu"], None)
        assert [judgement.verdict for judgement in result.judgements] == [OK] * len(result.judgements)


def test_a_written_sequence_is_not_simplified():
    sequence = parse(EXAMPLE)
    assert isinstance(sequence, Sequence)
    assert not sequence.source
    assert judge_sequence(sequence, ["cpu"], None).case is sequence
