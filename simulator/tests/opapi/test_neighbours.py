"""The stand-ins answer the neighbours of valid calls as neighbours.txt says; see neighbours.py."""

from __future__ import annotations

import pytest
from aclnn import Device
from neighbours import CHIPS, call_of, known, text_of

KNOWN = known()


@pytest.fixture(scope="module")
def chips():
    return [Device.of_stand_ins(chip) for chip in CHIPS]


@pytest.mark.long
@pytest.mark.parametrize(("op", "arguments"), KNOWN, ids=lambda text: text[:40])
def test_neighbours_of_a_call_have_the_known_answers(op, arguments, chips):
    assert text_of(call_of(op, arguments), chips).split("\n") == KNOWN[op, arguments].split("\n")
