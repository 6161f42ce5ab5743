"""The site's own extensions of Sphinx: the words of the search, links of pictures, languages, wide tables.
Also axe-core's rules on pages of the documentation.
"""

from __future__ import annotations

import html
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import html_pages
import pytest

pytest.importorskip("sphinx")
pytest.importorskip("myst_parser")
pytest.importorskip("furo")

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
CONF = f"""
import sys
sys.path.append({str(DOCS)!r})
project = "test"
extensions = ["myst_parser", "search_words", "accessible"]
html_theme = "furo"
html_static_path = [{str(DOCS / "static")!r}]
html_css_files = ["site.css"]
root_doc = "index"
"""
PAGES = {
    "index": "# Start\n\n```{toctree}\n:hidden:\n\none\ntwo.zh\nthree.zh\n```\n\n![A square](square.svg)\n",
    "one": "# Kernels\n\n[\u4e2d\u6587](two.zh.md)\n\nThe simulator runs kernels of RoPE. "
    "Error 507015, SIM-BOUNDS-03.\n\n"
    f"|{'| '.join(50 * ['`item_bytes`'])}|\n|{50 * '-|'}\n",
    "two.zh": "# \u7b2c\u4e8c\n\n[English](one.md)\n\n"
    "\u8fd9\u91cc\u7684\u4eff\u771f\u5668\u4e0b\u53d1RoPE\u7b97\u5b50\u3002\n\n## \u7b97\u5b50\n",
    "three.zh": "# \u7b2c\u4e09\n\n"
    "\u5728\u4eff\u771f\u5668\u4e0a\u8fd0\u884c\u7b97\u5b50\u3002\u4e0b\u65b9\u53d1\u9001\u3002SIM-BOUNDS-04\u3002\n",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    (folder / "conf.py").write_text(CONF)
    (folder / "square.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>')
    for name, text in PAGES.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    build(str(folder), str(folder / "built"))
    return folder / "built"


def build(*arguments: str) -> None:
    """Build a site with these arguments of Sphinx."""
    command = [sys.executable, "-W", "ignore", "-m", "sphinx", "-q", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def page_in_a_frame(path: Path) -> str:
    """Return a page for `html_pages.run_script`, which finds its style beside the page's file."""
    return path.read_text(encoding="utf-8").replace("<head>", f'<head><base href="{path.as_uri()}">', 1)


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
        ("507015", {"one"}),
        ("SIM-BOUNDS-03", {"one"}),
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


VOID_TAGS = ("link", "meta", "input", "img", "br")


class Languages(HTMLParser):
    """Collect the texts and labels of a page, each with the language that the nearest element names."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.languages: list[str] = []
        self.found: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        names = dict(attributes)
        language = names.get("lang") or (self.languages[-1] if self.languages else "")
        labels = [names.get(name) or "" for name in ("alt", "aria-label", "placeholder", "title")]
        self.found += [(language, label) for label in labels if tag != "link"]
        if tag not in VOID_TAGS:
            self.languages.append("" if tag in ("script", "style") else language)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID_TAGS:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        self.languages.pop()

    def handle_data(self, data: str) -> None:
        self.found += [(self.languages[-1], data.strip())] if self.languages else []

    def of(self, language: str) -> set[str]:
        """Return the texts and labels in a language."""
        return {text for each, text in self.found if each == language and text}


def test_links_and_texts_of_the_theme_name_their_language(site: Path) -> None:
    english, chinese = (Languages((site / name).read_text()) for name in ("one.html", "two.zh.html"))
    assert english.of("zh-CN") == {"\u7b2c\u4e8c", "\u7b2c\u4e09", "\u4e2d\u6587"}
    texts = {"English", "Kernels", "Skip to content", "Back to top", "On this page", "Next", "Previous"}
    texts |= {"Search", "Pages", "Contents of this page", "Toggle site navigation sidebar", "Menu", "Expand"}
    texts |= {"Toggle Light / Dark / Auto color theme", "Link to this heading"}
    assert texts <= chinese.of("en")
    assert len(chinese.of("zh-CN")) > 3
    assert all(re.search("[\u4e00-\u9fff]", text) for text in chinese.of("zh-CN"))
    assert not [text for text in chinese.of("en") | english.of("en") if re.search("[\u4e00-\u9fff]", text)]


@pytest.mark.long
def test_a_shadow_shows_where_a_table_continues(site: Path, tmp_path: Path) -> None:
    """Also over the cells' code."""
    script = html_pages.shadows_script("document.querySelector('.table-wrapper')")
    found = html_pages.run_script(page_in_a_frame(site / "one.html"), script, tmp_path)
    assert found == [[False, True], [True, True], [True, False]]


# The pages of the documentation with each kind of content, and the pages that Sphinx adds.
DOCUMENTATION = (
    *("README", "README.zh", "docs/site", "docs/api", "docs/c_api", "docs/benchmarks", "docs/ops/rope"),
    "docs/tutorials/ascendc_kernel.zh",
)


@pytest.fixture(scope="module")
def documentation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build these pages only."""
    html_pages.axe()
    folder = tmp_path_factory.mktemp("documentation")
    pages = ",".join(f"{name}.md" for name in DOCUMENTATION)
    build("-c", str(DOCS), "-D", f"include_patterns={pages}", str(ROOT), str(folder))
    return folder


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", [*DOCUMENTATION, "search", "genindex"])
def test_axe_finds_no_fault(documentation: Path, name: str, width: int, tmp_path: Path) -> None:
    html_pages.browser()
    text = page_in_a_frame(documentation / f"{name}.html")
    for theme in ("light", "dark"):
        set_theme = f"document.body.dataset.theme = '{theme}';"
        assert html_pages.faults_of_access(text, tmp_path, width, set_theme) == [], theme
