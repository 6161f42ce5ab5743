"""Pages of HTML in tests: their elements and data, and their scripts in a headless browser."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
from functools import cache
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

VOID_TAGS = ("meta", "br", "wbr", "line", "circle", "input")
LOADING_TAGS = ("script", "img", "link", "iframe", "object", "form")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


class Page(HTMLParser):
    """Collect what a browser loads, what a keyboard can reach, and the texts of some elements."""

    def __init__(self, text):
        super().__init__()
        self.text = text
        self.ids, self.links, self.loading_tags, self.open_tags, self.scrolling = [], [], [], [], []
        self.scripts, self.commands, self.headings = [], [], []
        self.language, self.collecting = None, None
        self.feed(text)
        assert self.open_tags == []

    def handle_starttag(self, tag, attributes):
        if tag == "wbr":  # inside a text
            return
        a = dict(attributes)
        if "id" in a:
            self.ids.append(a["id"])
        if tag == "a":
            self.links.append(a["href"])
        if tag == "html":
            self.language = a["lang"]
        if tag in LOADING_TAGS or "src" in a or "onclick" in a:
            self.loading_tags.append(tag)
        if a.get("class") == "scroll" and "role" in a:
            self.scrolling.append(a)
        collected = {"script": self.scripts, "h1": self.headings, "h2": self.headings, "h3": self.headings}
        self.collecting = self.commands if a.get("class") == "command" else collected.get(tag)
        if self.collecting is not None:
            self.collecting.append("")
        if tag not in VOID_TAGS:
            self.open_tags.append(tag)

    def handle_data(self, data):
        if self.collecting is not None:
            self.collecting[-1] += data

    def handle_endtag(self, tag):
        self.collecting = None
        if tag not in VOID_TAGS:
            assert self.open_tags.pop() == tag

    def data(self):
        return json.loads(self.scripts[0])


def check_page(page):
    """Assert that a page with scripts loads nothing, runs only its own script, and has links that work."""
    assert page.language == "en"
    assert page.loading_tags == ["script", "script"]  # the data, and the page's own script
    digest = base64.b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
    assert (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
        in page.text
    )
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert "url(" not in page.text
    assert not re.search(r"""\b(?:fetch|import)\(|XMLHttpRequest|(?:src|href)=(?!["']?#)""", page.text)
    assert all(a["tabindex"] == "0" and a["role"] == "region" and a["aria-label"] for a in page.scrolling)


def browser():
    """Return the path of a browser; skip the test if there is none."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser on PATH: {', '.join(BROWSERS)} (Debian: apt-get install chromium)")
    return found


def run_script(text, script, folder, width=1280):
    """Return what a script reports that runs in a headless browser after the page's own scripts.

    Args:
        text: the page.
        script: the body of an async JavaScript function, which returns a value for JSON.
        folder: receives the page and the browser's profile.
        width: of the page, in pixels.
    """
    executable = browser()
    # The page's own policy forbids another script.
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    catch = '<script>onerror = (message) => parent.postMessage({ error: message }, "*");</script>'
    report = f"""<script>(async () => {{ {script} }})().then(
(value) => parent.postMessage({{ value }}, "*"), (e) => parent.postMessage({{ error: e.stack }}, "*"));
</script></body>"""
    text = text.replace("<head>", f"<head>{catch}").replace("</body>", report)
    # A window has at least 500 pixels, a frame has any number.
    frame = f"""<!doctype html><script>onmessage = (event) => {{ const place = document.createElement("pre");
place.textContent = JSON.stringify(event.data); document.body.append(place); }};</script><body>
<iframe srcdoc="{escape(text)}" width="{width}" height="900" style="border: 0"></iframe>"""
    (folder / "frame.html").write_text(frame)
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom"]
    options += [f"--user-data-dir={folder / 'profile'}", "--window-size=1400,1000"]
    command = [executable, *options, "--virtual-time-budget=10000", (folder / "frame.html").as_uri()]
    # The time limit only ends a browser that hangs. Beside other work, a page of 100,000 spans takes minutes.
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    reported = [
        json.loads(unescape(each))
        for each in re.findall("<pre>(.*?)</pre>", done.stdout[done.stdout.index("</iframe>") :], re.S)
    ]
    assert len(reported) == 1, done.stdout[-2000:] + done.stderr[-2000:]
    assert "error" not in reported[0], reported
    return reported[0]["value"]


def shadows_script(box):
    """Return a script for `run_script`: whether a shadow lies over the left and the right edge of a box
    with a table, before it scrolls, in the middle, and at the end.

    Args:
        box: the expression of the element that scrolls.
    """
    return f"""
        const style = document.createElement("style"), box = {box};
        style.textContent = "html {{ scroll-behavior: auto }}"
          + " .continues::before, .continues::after {{ pointer-events: auto }}";
        document.head.append(style);
        box.scrollIntoView();
        const isShadow = (x, y) => document.elementFromPoint(x, y).className === "continues";
        return [0, (box.scrollWidth - box.clientWidth) / 2, box.scrollWidth].map((left) => {{
          box.scrollLeft = left;
          const at = box.getBoundingClientRect(), y = at.top + Math.min(at.height, 600) / 2;
          return [4, box.clientWidth - 4].map((x) => isShadow(at.left + box.clientLeft + x, y));
        }});"""


@cache
def axe():
    """Return the source of axe-core. If the environment does not name its file, skip the test."""
    path = os.environ.get("NPU_ROPE_AXE")
    if not path:
        pytest.skip("NPU_ROPE_AXE does not name axe.min.js (npm install axe-core; MPL-2.0)")
    return Path(path).read_text()


def faults_of_access(text, folder, width, theme):
    """Return the rules that axe-core finds violated in a page, each with its elements.

    Args:
        text: the page.
        folder: see `run_script`.
        width: of the page, in pixels.
        theme: a statement of JavaScript, which sets the page's theme.
    """
    script = f"{theme} {axe()}; const found = await axe.run(document, {{ resultTypes: ['violations'] }});"
    script += " return found.violations.map((v) => [v.id, v.nodes.map((n) => n.target)]);"
    return run_script(text, script, folder, width)
