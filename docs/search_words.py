"""Words of the site's search, for pages in English and in Chinese.

Chinese text has no spaces, so its words are pairs of adjacent characters, and single characters for queries
of one. The words of other text are those of Sphinx's English search, and numbers. Without a server, a browser
does not let a page read other pages; the results then have no excerpts.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

HAN = r"\u3400-\u4dbf\u4e00-\u9fff"
PARTS = re.compile(rf"[{HAN}]+|[^\W{HAN}]+")


class Search(SearchEnglish):
    """Sphinx's English search, also for pairs of Chinese characters and for numbers, such as error codes."""

    js_splitter_code = rf"""
// A query of Chinese characters finds the pages that contain each pair of adjacent ones.
var splitQuery = (query) => query.split(/[^\p{{Letter}}\p{{Number}}_\p{{Emoji_Presentation}}]+/u)
  .flatMap((word) => word.match(/[{HAN}]+|[^{HAN}]+/g) || [])
  .flatMap((part) => (/[{HAN}]{{2}}/.test(part)
    ? Array.from({{ length: part.length - 1 }}, (_, i) => part.slice(i, i + 2)) : [part]));

// Sphinx skips numbers.
const parseWithoutNumbers = Search._parseQuery;
Search._parseQuery = (query) => {{
  const parsed = parseWithoutNumbers(query);
  const [, searchTerms, , highlightTerms] = parsed;
  for (const term of splitQuery(query).filter((word) => /^\d+$/.test(word))) {{
    searchTerms.add(term);
    highlightTerms.add(term);
  }}
  return parsed;
}};

// Sphinx also lists pages with as many terms as have three or more characters. Every term is required here.
const pagesWithMostTerms = Search.performTermsSearch;
Search.performTermsSearch = (searchTerms, excludedTerms) => {{
  const pages = [...searchTerms].map((term) =>
    new Set(pagesWithMostTerms(new Set([term]), new Set()).map(([page]) => page)));
  return pagesWithMostTerms(searchTerms, excludedTerms)
    .filter(([page]) => pages.every((found) => found.has(page)));
}};
"""

    def split(self, input: str) -> list[str]:
        """Return the words of a text."""
        words: list[str] = []
        for part in PARTS.findall(input):
            pairs = map("".join, pairwise(part))
            words += [*part, *pairs] if re.match(f"[{HAN}]", part) else [part]
        return words

    def word_filter(self, word: str) -> bool:
        """Return whether the index has a word."""
        return word not in self.stopwords


NO_EXCERPTS_FROM_FILES = """
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
"""


def setup(app: Sphinx) -> dict[str, Any]:
    """Replace the English search, and the excerpts of pages that a browser opened as files."""
    app.add_search_language(Search)
    app.add_js_file(None, body=NO_EXCERPTS_FROM_FILES)
    return {"version": "1", "parallel_read_safe": True}
