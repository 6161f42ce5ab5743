"""Corrections of the theme's HTML that readers and axe-core's rules require, in the pages of a build.

A picture is a link to its file, because a phone shows it small. The captions of the sidebar have a level, the
two sidebars have names, the keyboard reaches code and tables that scroll, a wide table has an element which
shows that it continues (site.css), an empty cell is no header, the page of the search has a heading. Chinese
pages, Chinese links of English pages, and the links and the theme's English texts of Chinese pages name their
language.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

CORRECTIONS = (
    ('class="caption" role="heading">', 'class="caption" role="heading" aria-level="2">'),
    ('<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="Pages">'),
    ('<aside class="toc-drawer', '<aside aria-label="Contents of this page" class="toc-drawer'),
    ("<pre>", '<pre tabindex="0">'),
    ('<th class="head"><p></p></th>', "<td></td>"),
    ('<span class="caption-text">\u4e2d', '<span class="caption-text" lang="zh-CN">\u4e2d'),
    ('<div class="context">', '<div class="context" lang="en">'),  # in a link to a page of any language
    ('<div id="search-results">', '<h1 class="visually-hidden">Search</h1>\n<div id="search-results">'),
)
# The beginnings of the theme's elements with English texts or labels.
ENGLISH = (
    '<svg xmlns="http://www.w3.org/2000/svg" style="display: none;"',
    '<input type="checkbox" class="sidebar-toggle"',
    '<header class="mobile-header"',
    '<aside class="sidebar-drawer"',
    '<div class="content-icon-container"',
    '<div class="bottom-of-page"',
    '<aside aria-label="Contents of this page"',
)
LINK = re.compile(r"<a (?=[^>]*>(.*?)</a>)", re.DOTALL)
TABLE = re.compile(r'<div class="(table-wrapper[^"]*)">')
PICTURE = re.compile(r'<img alt="[^"]*" src="([^"]*_images/[^"]*)" />')


def correct(app: Sphinx, exception: Exception | None) -> None:
    """Correct the pages that this build has written."""
    if exception or app.builder.format != "html":
        return
    for path in Path(app.outdir).rglob("*.html"):
        text = path.read_text()
        if 'aria-label="Pages"' in text:  # a page of an earlier build
            continue
        for old, new in CORRECTIONS:
            text = text.replace(old, new)
        text = TABLE.sub(r'<div tabindex="0" class="\1"><div class="continues"></div>', text)
        text = PICTURE.sub(r'<a class="picture" href="\1">\g<0></a>', text)
        path.write_text(name_languages(text, path.name.endswith(".zh.html")))


def name_languages(text: str, is_chinese: bool) -> str:
    """Return a page whose root and elements in another language name their languages."""
    if is_chinese:
        text = text.replace('lang="en"', 'lang="zh-CN"', 1)
        for element in ENGLISH:
            text = text.replace(element, f'{element} lang="en"')

    def name_language(link: re.Match[str]) -> str:
        if re.search("[\u4e00-\u9fff]", link[1]):
            return '<a lang="zh-CN" '
        return '<a lang="en" ' if is_chinese else link[0]

    return LINK.sub(name_language, text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Correct the pages after a build."""
    app.connect("build-finished", correct)
    return {"version": "1", "parallel_read_safe": True}
