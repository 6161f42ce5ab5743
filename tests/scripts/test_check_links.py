"""scripts/check_links.py names each link of a site that leads to no file or to no anchor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_links.py"
GOOD = """<h1 id="top">a</h1>
<a href="#top">t</a> <a href="sub/other.html#part">o</a> <img src="sub/a%20b.svg">
<a href="https://example.org/none#x">e</a> <a href="mailto:a@example.org">m</a>
"""
OTHER = '<p id="part">p</p><a href="../index.html#top">i</a>'


def check(folder: Path, index: str, other: str = OTHER) -> tuple[int, list[str]]:
    (folder / "sub").mkdir()
    (folder / "sub" / "a b.svg").touch()
    (folder / "sub" / "other.html").write_text(other)
    (folder / "index.html").write_text(index)
    done = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr.splitlines()


def test_a_site_whose_links_lead_somewhere_passes(tmp_path: Path) -> None:
    assert check(tmp_path, GOOD) == (0, [])


FAULTS = {
    "page": ("sub/other.html#part", "sub/no.html", "index.html:2: sub/no.html: there is no such file"),
    "anchor of a page": ("#part", "#no", "index.html:2: sub/other.html#no: there is no such anchor"),
    "anchor of the page itself": ("#top", "#no", "index.html:2: #no: there is no such anchor"),
    "image": ("a%20b.svg", "b.svg", "index.html:2: sub/b.svg: there is no such file"),
    "folder": ("sub/other.html#part", "sub", "index.html:2: sub: there is no such file"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_link_is_named(tmp_path: Path, name: str) -> None:
    old, new, message = FAULTS[name]
    assert check(tmp_path, GOOD.replace(old, new)) == (1, [message])


def test_a_broken_link_of_a_page_in_a_folder_is_named(tmp_path: Path) -> None:
    status, faults = check(tmp_path, GOOD, OTHER.replace("../index", "index"))
    assert (status, faults) == (1, ["sub/other.html:1: index.html#top: there is no such file"])


def test_an_absent_folder_is_bad_usage(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path / "no"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
