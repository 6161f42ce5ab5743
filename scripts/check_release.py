"""Check CHANGELOG.md and the numbers of the version.

- The headings of the changelog: `## [Unreleased]` first, if present, then `## [X.Y.Z] - YYYY-MM-DD`, the
  newest first. The version of simulator/ascend_sim/__init__.py has a heading.
- The parts of a version, each at most once and not empty: Added, Fixed, Changed, Deprecated, Removed,
  Security, in this order.
- Each relative link of the changelog leads to a file.
- The dependencies in pyproject.toml have ascend-sim in that version.
- CITATION.cff has that version and the date of its heading.

usage: check_release.py [--tag vX.Y.Z]

--tag also requires that the tag's version is the version, and that no entry is unreleased.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION_FILE = "simulator/ascend_sim/__init__.py"
PARTS = ("Added", "Fixed", "Changed", "Deprecated", "Removed", "Security")
UNRELEASED = "[Unreleased]"


def version_of(text: str) -> str:
    """Return the version in the text of VERSION_FILE."""
    found = re.search(r'^__version__ = "(\d+\.\d+\.\d+)"$', text, re.MULTILINE)
    if not found:
        raise SystemExit(f'{VERSION_FILE} must have a line __version__ = "X.Y.Z"')
    return found[1]


def sections(text: str, marks: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line number, heading, text below it) for each heading of this level."""
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith(f"{marks} ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield start + 1, lines[start][len(marks) :].strip(), "\n".join(lines[start + 1 : end])


def heading_faults(text: str) -> Iterator[str]:
    """Yield the faults in the order and the form of the versions' headings."""
    previous: tuple[tuple[int, ...], date] | None = None
    for number, (line, heading, _) in enumerate(sections(text, "##")):
        if heading == UNRELEASED:
            if number:
                yield f"CHANGELOG.md:{line}: {UNRELEASED} must be the first version"
            continue
        found = re.fullmatch(r"\[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d{2}-\d{2})", heading)
        try:
            day = date.fromisoformat(found[4]) if found else None
        except ValueError:
            day = None
        if not found or not day:
            yield f"CHANGELOG.md:{line}: the heading must be [X.Y.Z] - YYYY-MM-DD but is {heading}"
            continue
        version = tuple(int(part) for part in found.groups()[:3])
        if previous and not (version < previous[0] and day <= previous[1]):
            yield f"CHANGELOG.md:{line}: {heading} must be older than the version above it"
        previous = version, day


def part_faults(text: str) -> Iterator[str]:
    """Yield the faults in the parts of each version."""
    for line, heading, body in sections(text, "##"):
        names = []
        for offset, name, entries in sections(body, "###"):
            names.append(name)
            if not re.search(r"^- ", entries, re.MULTILINE):
                yield f"CHANGELOG.md:{line + offset}: {heading} has no entries in its part {name}"
        if not names or names != [part for part in PARTS if part in names]:
            expected = ", ".join(PARTS)
            yield f"CHANGELOG.md:{line}: the parts of {heading} must be of {expected} but are {names}"


def link_faults(text: str) -> Iterator[str]:
    """Yield the relative links that lead to no file. The site's build checks their anchors."""
    for number, line in enumerate(text.splitlines(), 1):
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", line):
            if "://" not in target and not (ROOT / target).exists():
                yield f"CHANGELOG.md:{number}: the link {target} leads to no file"


def citation_faults(text: str, version: str, citation: str) -> Iterator[str]:
    """Yield the entries of CITATION.cff that disagree with the version and its date in the changelog."""
    dates = re.findall(rf"^## \[{re.escape(version)}\] - (\S+)$", text, re.MULTILINE)
    for key, expected in (("version", [version]), ("date-released", dates)):
        found = re.findall(rf"^{key}: *(.*)$", citation, re.MULTILINE)
        if found != expected:
            wanted, given = (" ".join(values) or "absent" for values in (expected, found))
            yield f"CITATION.cff: {key} must be {wanted} but is {given}"


def version_faults(text: str, version: str, pyproject: str, tag: str | None) -> Iterator[str]:
    """Yield the places that disagree with the version."""
    headings = [heading for _, heading, _ in sections(text, "##")]
    if not any(heading.startswith(f"[{version}] ") for heading in headings):
        yield f"CHANGELOG.md: version {version} of {VERSION_FILE} has no heading"
    pinned = re.findall(r'"ascend-sim==([^"]*)"', pyproject)
    if pinned != [version]:
        yield f"pyproject.toml: the dependencies must have ascend-sim=={version} once but have {pinned}"
    if tag is not None:
        if tag != f"v{version}":
            yield f"the tag must be v{version} but is {tag}"
        if UNRELEASED in headings:
            yield f"CHANGELOG.md: a release must have no heading {UNRELEASED}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("--tag", metavar="vX.Y.Z", help="the tag of a release")
    tag = parser.parse_args().tag
    text, pyproject = (ROOT / "CHANGELOG.md").read_text(), (ROOT / "pyproject.toml").read_text()
    version = version_of((ROOT / VERSION_FILE).read_text())
    faults = [
        *heading_faults(text),
        *part_faults(text),
        *link_faults(text),
        *version_faults(text, version, pyproject, tag),
        *citation_faults(text, version, (ROOT / "CITATION.cff").read_text()),
    ]
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        return 1
    print(f"The changelog, the citation and all places of version {version} agree.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
