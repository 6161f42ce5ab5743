"""Names that have moved still work, and warn."""

from __future__ import annotations

import importlib
import sys

import ascend_sim
import pytest


def test_the_simulators_old_name_warns_and_gives_the_new_objects(monkeypatch):
    monkeypatch.delitem(sys.modules, "npu_rope.simulator", raising=False)
    with pytest.warns(DeprecationWarning, match="import ascend_sim"):
        old = importlib.import_module("npu_rope.simulator")
    assert {name: getattr(old, name) for name in old.__all__} == {
        name: getattr(ascend_sim, name) for name in old.__all__
    }
