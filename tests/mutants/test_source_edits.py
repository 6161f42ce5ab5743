"""Every edit of the mutation tests applies to the current sources.

The mutation tests are slow and run late. These tests only read the sources and run in the default suite. If a
line that a mutation test edits has changed, they fail at once. The message has the text and its places.
"""

import re
from pathlib import Path

import changed_kernel
import mutate_kernels
import pytest
import source_edits
import test_qkv_kernel_mutants
import test_rope_mutants
from source_edits import CannotApply, Edit

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", test_rope_mutants.MUTANTS)
def test_an_edit_of_the_library_names_one_place(name):
    edit = test_rope_mutants.MUTANTS[name]
    source_edits.find(edit, [ROOT / folder for folder in test_rope_mutants.EDITED])
    assert edit.new != edit.old


KERNEL_EDITS = {**changed_kernel.CHANGES, **changed_kernel.BACKWARD_CHANGES}


@pytest.mark.parametrize("name", [name for name, edit in KERNEL_EDITS.items() if edit is not None])
def test_an_edit_of_a_kernel_names_one_place(name):
    edit = KERNEL_EDITS[name]
    source_edits.find(edit, [changed_kernel.KERNELS])
    assert edit.new != edit.old


QKV_SUITES = test_qkv_kernel_mutants.SUITES


@pytest.mark.parametrize(
    ("suite", "name"), [(suite, name) for suite in QKV_SUITES for name in QKV_SUITES[suite].changes]
)
def test_an_edit_of_the_kernels_of_qkv_norm_rope_cache_and_qk_square_sums_names_one_place(suite, name):
    edit = QKV_SUITES[suite].changes[name]
    source_edits.find(edit, [changed_kernel.KERNELS])
    assert edit.new != edit.old


MUTATED_AREAS = mutate_kernels.all_areas()


@pytest.mark.parametrize("name", [name for name, area in MUTATED_AREAS.items() if area.EQUIVALENT])
def test_every_entry_of_equivalent_names_a_mutant(name):
    """mutate_kernels.py does not start if an entry names no mutant."""
    assert mutate_kernels.stale_keys(MUTATED_AREAS[name]) == []


@pytest.mark.parametrize("name", MUTATED_AREAS)
def test_every_area_has_sources(name):
    assert MUTATED_AREAS[name].sources()


@pytest.fixture
def sources(tmp_path):
    (tmp_path / "one.h").write_text("int f(int a,\n      int b) { return a + b; }\n")
    (tmp_path / "two.cpp").write_text("int g() { return 1; }\nint h() { return 1; }\n")
    (tmp_path / "notes.md").write_text("int f(int a, int b)")
    return tmp_path


def test_an_edit_applies_in_any_source_and_with_any_line_breaks(sources):
    before = (sources / "one.h").read_text()
    with source_edits.applied(Edit("f(int a, int b)", "f(int b, int a)"), [sources]):
        assert (sources / "one.h").read_text() == "int f(int b, int a) { return a + b; }\n"
    assert (sources / "one.h").read_text() == before


def test_an_absent_text_is_an_error_that_names_it(sources):
    message = re.escape(f"{sources.name}/ must hold 'return a - b;' exactly once but got it at: nowhere.")
    with pytest.raises(CannotApply, match=message):
        source_edits.apply(Edit("return a - b;", ""), [sources])


def test_a_text_in_two_places_is_an_error_that_lists_both(sources):
    two = sources / "two.cpp"
    message = re.escape(f"exactly once but got it at: {two}:1, {two}:2.")
    with pytest.raises(CannotApply, match=message):
        source_edits.apply(Edit("return 1;", "return 2;"), [sources])
    assert "return 2;" not in two.read_text()
