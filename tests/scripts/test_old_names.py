"""Names of earlier releases warn: the simulator's modules still work, and variables are ignored."""

from __future__ import annotations

import importlib
import sys

import ascend_sim
import pytest

from npu_rope import simulated_package
from npu_rope.integrations.transformers import Entry


def test_the_simulators_old_name_warns_and_gives_the_new_objects(monkeypatch):
    monkeypatch.delitem(sys.modules, "npu_rope.simulator", raising=False)
    with pytest.warns(DeprecationWarning, match="import ascend_sim"):
        old = importlib.import_module("npu_rope.simulator")
    assert {name: getattr(old, name) for name in old.__all__} == {
        name: getattr(ascend_sim, name) for name in old.__all__
    }
    types = {"X": "half"}
    defines = ascend_sim.compiler.column_defines("npu_rope_qk", "ascend910b", types)
    assert old.operator_defines("rope_qk", "ascend910b", types) == defines


def test_the_old_name_of_the_simulators_library_warns_and_gives_the_new_objects(monkeypatch):
    monkeypatch.delitem(sys.modules, "npu_rope.native_sim", raising=False)
    with pytest.warns(DeprecationWarning, match=r"import ascend_sim\.library"):
        old = importlib.import_module("npu_rope.native_sim")
    assert (old.load, old.SimOptions) == (ascend_sim.library.load, ascend_sim.Options)


@pytest.mark.parametrize("name", ["SOC", "STREAMS", "SEED", "KERNELS"])
def test_the_old_name_of_a_variable_warns(monkeypatch, name):
    monkeypatch.setenv(f"NPU_ROPE_SIM_{name}", "0")
    with pytest.warns(FutureWarning, match=f"set ASCEND_SIM_{name}"):
        simulated_package.warn_of_old_variables()


def test_the_old_name_of_an_entrys_text_warns():
    entry = Entry("layers.0.norm", "LlamaRMSNorm", "", "weight", replaced=True, is_norm=True)
    with pytest.warns(DeprecationWarning, match=r"Entry\.text\(\)"):
        old = entry.told()
    assert old == entry.text() == "LlamaRMSNorm (weight)"


@pytest.mark.parametrize(("old", "new"), [("what", "function"), ("how", "form_or_reason")])
def test_the_old_name_of_an_entrys_attribute_warns(old, new):
    entry = Entry("layers.0", "LlamaAttention", "apply_rotary_pos_emb", "halves", replaced=True)
    with pytest.warns(DeprecationWarning, match=rf"Entry\.{new}"):
        value = getattr(entry, old)
    assert value == getattr(entry, new)
    assert value in ("apply_rotary_pos_emb", "halves")
