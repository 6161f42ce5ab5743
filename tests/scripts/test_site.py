"""The site's own extensions of Sphinx: the words of the search, in a browser, and links of pictures."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import html_pages
import pytest

pytest.importorskip("sphinx")
pytest.importorskip("myst_parser")

DOCS = Path(__file__).resolve().parents[2] / "docs"
CONF = f"""
import sys
sys.path.append({str(DOCS)!r})
project = "test"
extensions = ["myst_parser", "search_words", "accessible"]
html_theme = "basic"
root_doc = "index"
"""
PAGES = {
    "index": "# Start\n\n```{toctree}\n:hidden:\n\none\ntwo.zh\nthree.zh\n```\n\n![A square](square.svg)\n",
    "one": "# Kernels\n\nThe simulator runs kernels of RoPE.\n",
    "two.zh": "# \u7b2c\u4e8c\n\n\u8fd9\u91cc\u7684\u4eff\u771f\u5668\u4e0b\u53d1RoPE\u7b97\u5b50\u3002\n",
    "three.zh": "# \u7b2c\u4e09\n\n"
    "\u5728\u4eff\u771f\u5668\u4e0a\u8fd0\u884c\u7b97\u5b50\u3002\u4e0b\u65b9\u53d1\u9001\u3002\n",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    (folder / "conf.py").write_text(CONF)
    (folder / "square.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>')
    for name, text in PAGES.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    command = [sys.executable, "-W", "ignore", "-m", "sphinx", "-q", str(folder), str(folder / "built")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "built"


@pytest.mark.parametrize(
    ("query", "pages"),
    [
        ("\u4eff\u771f\u5668", {"two.zh", "three.zh"}),
        ("\u4eff", {"two.zh", "three.zh"}),
        ("\u4e0b\u53d1", {"two.zh"}),  # three.zh has both characters, but not next to each other
        ("rope", {"one", "two.zh"}),
        ("kernel", {"one"}),  # as in Sphinx's English search
        ("RoPE\u7b97\u5b50", {"two.zh"}),  # one and three.zh each have one of these words
        ("\u7b97\u5b50 rope", {"two.zh"}),
        ("\u540e\u7aef", set()),
    ],
)
def test_the_search_finds_every_page_with_the_word(site: Path, query: str, pages: set[str]) -> None:
    command = [html_pages.browser(), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    command += ["--virtual-time-budget=10000", "--dump-dom", f"{(site / 'search.html').as_uri()}?q={query}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    found = re.findall(r'<li class="kind-text"><a href="([^"?]+)\.html', done.stdout)
    assert set(map(html.unescape, found)) == pages
    assert "Failed to fetch" not in done.stderr  # a browser does not read other files


def test_a_picture_leads_to_its_file(site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    picture = '<img alt="A square" src="_images/square.svg" />'
    assert f'<a class="picture" href="_images/square.svg">{picture}</a>' in text
