"""scripts/check_release.py accepts this repository and names each fault of a changelog or a version."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import ascend_sim
import pytest

import npu_rope
from npu_rope import native

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "check_release.py"
FILES = ("CHANGELOG.md", "pyproject.toml", "simulator/ascend_sim/__init__.py", "CITATION.cff")
GOOD = """# Changelog

## [Unreleased]

### Added

- One ([page](pyproject.toml)).

## [0.2.0] - 2026-03-01

### Added

- Two.

### Changed

- Three.

## [0.1.0] - 2026-02-01

### Fixed

- Four.
"""
VERSION = "0.2.0"
DEPENDENCIES = f'dependencies = ["ascend-sim=={VERSION}"]\n'


def citation_of(changelog: str) -> str:
    """Return a citation that agrees with the changelog."""
    date = re.search(rf"^## \[{VERSION}\] - (\S+)$", changelog, re.MULTILINE)
    return f"version: {VERSION}\n" + (f"date-released: {date[1]}\n" if date else "")


def check(
    folder: Path,
    *options: str,
    changelog: str = GOOD,
    pyproject: str = DEPENDENCIES,
    citation: str | None = None,
) -> list[str]:
    """Return the faults that the script prints about a repository with these files."""
    citation = citation_of(changelog) if citation is None else citation
    texts = changelog, pyproject, f'__version__ = "{VERSION}"\n', citation
    for name, text in zip(FILES, texts, strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "scripts").mkdir()
    (folder / "scripts" / SCRIPT.name).write_text(SCRIPT.read_text())
    command = [sys.executable, folder / "scripts" / SCRIPT.name, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode != 0) == bool(done.stderr), done
    return done.stderr.splitlines()


def test_this_repository_has_no_faults() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_packages_and_library_have_the_same_version() -> None:
    library = native.load().version()
    distributions = [importlib.metadata.version(name) for name in ("npu-rope", "ascend-sim")]
    assert {library, npu_rope.__version__, *distributions} == {ascend_sim.__version__}


def test_a_good_changelog_has_no_faults(tmp_path: Path) -> None:
    assert check(tmp_path) == []


FAULTS = {
    "unreleased is not first": (
        GOOD.replace("[Unreleased]", "[0.3.0] - 2026-04-01").replace("[0.1.0] - 2026-02-01", "[Unreleased]"),
        "CHANGELOG.md:19: [Unreleased] must be the first version",
    ),
    "no date": (
        GOOD.replace(" - 2026-02-01", ""),
        "CHANGELOG.md:19: the heading must be [X.Y.Z] - YYYY-MM-DD",
    ),
    "no such day": (GOOD.replace("2026-02-01", "2026-02-30"), "CHANGELOG.md:19: the heading must be"),
    "older date above": (
        GOOD.replace("2026-03-01", "2026-01-01"),
        "CHANGELOG.md:19: [0.1.0] - 2026-02-01 must be",
    ),
    "older version above": (
        GOOD.replace("[0.1.0]", "[0.2.1]"),
        "CHANGELOG.md:19: [0.2.1] - 2026-02-01 must be",
    ),
    "unknown part": (GOOD.replace("### Fixed", "### Repaired"), "CHANGELOG.md:19: the parts of [0.1.0]"),
    "parts in another order": (
        GOOD.replace("### Changed", "### Fixed").replace("### Added\n\n- Two", "### Changed\n\n- Two"),
        "CHANGELOG.md:9: the parts of [0.2.0]",
    ),
    "part twice": (GOOD.replace("### Changed", "### Added"), "CHANGELOG.md:9: the parts of [0.2.0]"),
    "empty part": (
        GOOD.replace("- Two.", ""),
        "CHANGELOG.md:11: [0.2.0] - 2026-03-01 has no entries in its part Added",
    ),
    "broken link": (
        GOOD.replace("(pyproject.toml)", "(no.md#part)"),
        "CHANGELOG.md:7: the link no.md leads to no",
    ),
    "version without a heading": (
        GOOD.replace("[0.2.0]", "[0.1.9]"),
        "CHANGELOG.md: version 0.2.0 of simulator/ascend_sim/__init__.py has no heading",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_changelog_is_named(tmp_path: Path, name: str) -> None:
    changelog, message = FAULTS[name]
    faults = check(tmp_path, changelog=changelog)
    assert len(faults) == 1
    assert faults[0].startswith(message)


def test_another_version_in_the_dependencies_is_named(tmp_path: Path) -> None:
    (fault,) = check(tmp_path, pyproject='dependencies = ["ascend-sim==0.1.9"]\n')
    assert fault.endswith("must have ascend-sim==0.2.0 once but have ['0.1.9']")


def test_another_version_or_date_of_the_citation_is_named(tmp_path: Path) -> None:
    faults = check(tmp_path, citation="version: 0.1.0\n")
    assert faults == [
        "CITATION.cff: version must be 0.2.0 but is 0.1.0",
        "CITATION.cff: date-released must be 2026-03-01 but is absent",
    ]


@pytest.mark.parametrize("folder", [ROOT, ROOT / "simulator"])
def test_the_description_on_an_index_page_has_no_relative_links(folder: Path) -> None:
    text = (folder / "pyproject.toml").read_text()
    description = text[text.index("[project.readme]") : text.index("[project.optional-dependencies]")]
    assert len(description) > 500
    assert "](" not in description
    assert 'readme = "' not in text


def test_a_release_has_the_tag_of_its_version_and_no_unreleased_entries(tmp_path: Path) -> None:
    assert check(tmp_path, "--tag", "v0.2.1") == [
        "the tag must be v0.2.0 but is v0.2.1",
        "CHANGELOG.md: a release must have no heading [Unreleased]",
    ]
