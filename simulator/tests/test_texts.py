"""Texts of files that come from elsewhere, as a terminal, a spreadsheet and a page of Markdown get them."""

import pytest
from ascend_sim.texts import in_markdown, in_table, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("é ± \U0001f600", "é ± \U0001f600"),
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\u202egnp.exe", r"\u202egnp.exe"),  # right to left
        ("\ud800", r"\ud800"),
    ],
)
def test_a_terminal_gets_escapes(text, shown):
    assert printable(text) == shown


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_a_spreadsheet_gets_no_formula(text):
    assert in_table(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "rope", "a=1", "1-2", "'=1"])
def test_other_cells_do_not_change(text):
    assert in_table(text) == text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("rope [1,32,128] f32, 1 thread", "rope [1,32,128] f32, 1 thread"),
        ("<script>&", "&lt;script>&amp;"),
        ("[text](javascript:x)", r"[text]\(javascript:x)"),
        ("a | b * c `d` \\", r"a \| b \* c \`d\` " + r"\\"),
        ("a\n# b", r"a\\n# b"),
    ],
)
def test_markdown_gets_no_markup(text, written):
    assert in_markdown(text) == written
