"""Table of the CANN versions that each torch_npu works with, and detection of the installed versions.

Sources of the table, in Ascend/pytorch: ``COMPATIBILITY.md`` and ``docker/OVERVIEW*.md`` name the CANN that a
package is published with; ``docs/zh/release_notes.md`` of line 26.1 names all CANN versions that a release
line is compatible with. No combination was run.

``scripts/build_npu.sh`` runs this file by itself, before npu_rope is installed. Therefore the file imports
only the standard library. ``python3 -I npu_rope/cann_versions.py CANN_FOLDER SOC...`` prints the version of
a CANN, and which of the given SoCs that CANN knows.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# The oldest torch that npu_rope's operators support. A torch_npu has the version series of its torch.
OLDEST_TORCH = (2, 10)
# The oldest CANN in the sources for that torch.
OLDEST_CANN = (8, 5)
# The oldest CANN that knows an SoC, if that is newer than OLDEST_CANN. Ascend950: the samples of
# mirror-cann/asc-devkit (README.md) require 9.1.0, and Ascend/pytorch docker/OVERVIEW.md has images for it
# with 9.1.0 only.
OLDEST_CANN_OF = {"ascend950": (9, 1)}


@dataclass(frozen=True)
class Release:
    """A published torch_npu.

    Attributes:
        torch_npu: the package's version.
        torch: the torch it is built for.
        recommended: the CANN it is published with.
        compatible: all series of CANN, ``(major, minor)``, with which its release line is compatible.
        source: the source of these versions.
    """

    torch_npu: str
    torch: str
    recommended: str
    compatible: tuple[tuple[int, int], ...]
    source: str


_ALL = ((8, 5), (9, 0), (9, 1))
RELEASES = (
    Release("2.10.0", "2.10.0", "9.0.0", _ALL, "line 26.0"),
    Release("2.10.0.post4", "2.10.0", "9.1.0", _ALL, "line 26.1"),
    Release("2.11.0", "2.11.0", "9.1.0", _ALL, "line 26.1"),
    Release("2.12.0", "2.12.0", "9.1.0", _ALL, "line 26.1"),
    # No release note names it yet.
    Release("2.13.0", "2.13.0", "9.1.0", ((9, 1),), "its build image"),
)
# The newest release with a release note. docs/npu.md and docker/Dockerfile.npu install it.
RECOMMENDED = next(r for r in reversed(RELEASES) if r.source.startswith("line "))


def series(version: str) -> tuple[int, int] | None:
    """Return ``(major, minor)`` of a version such as ``"9.0.0"`` or ``"8.1.RC1"``; None for other texts.

    Example:
        >>> series("9.1.0"), series("8.1.RC1"), series("cann-9.0.0"), series("unknown")
        ((9, 1), (8, 1), (9, 0), None)
    """
    found = re.search(r"(?<![\d.])(\d+)\.(\d+)(?![\d])", version)
    return (int(found[1]), int(found[2])) if found else None


def _value(path: Path, key: str) -> str | None:
    """Return the value of the line ``key=value`` without quotes; None if no line has the key."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        name, equals, value = line.partition("=")
        if equals and name.strip() == key:
            return value.strip().strip('"') or None
    return None


def cann_version(home: str | Path) -> str | None:
    """Return the version of the CANN in a folder (ASCEND_HOME_PATH), or None if no file has a version.

    Files, in this order:

    - ``<arch>-linux/ascend_toolkit_install.info`` (hicann/runtime README.md; torch_npu/utils/collect_env.py);
    - ``share/info/runtime/version.info``, ``Version`` (hicann/runtime src/acl/aclrt_impl/acl.cpp), else
      ``version_dir``;
    - ``runtime/version.info`` of CANN 8, ``version_dir``; there ``Version`` is another number.
    """
    folder = Path(home)
    for path in sorted(folder.glob("*-linux/ascend_toolkit_install.info")):
        if (version := _value(path, "version")) and series(version):
            return version
    for part, keys in (("share/info/runtime", ("Version", "version_dir")), ("runtime", ("version_dir",))):
        for key in keys:
            version = _value(folder / part / "version.info", key)
            if version and series(version):
                return version
    return None


def socs_of(version: str | None, socs: Iterable[str]) -> list[str]:
    """Return those of the SoCs that a CANN of this version knows; the version is None if unknown."""
    found = None if version is None else series(version)
    return [soc for soc in socs if soc not in OLDEST_CANN_OF or (found and found >= OLDEST_CANN_OF[soc])]


def release_of(torch_npu: str) -> Release | None:
    """Return the table's entry for a torch_npu, or None. ``2.13.0+git…`` is the release 2.13.0."""
    version = torch_npu.partition("+")[0]
    return next((r for r in RELEASES if r.torch_npu == version), None)


@dataclass(frozen=True)
class Compatibility:
    """Whether two parts are compatible, None if this is unknown; ``remedy`` fixes a mismatch."""

    compatible: bool | None
    text: str
    remedy: str = ""


def _too_old(cann: str) -> Compatibility:
    oldest = ".".join(map(str, OLDEST_CANN))
    return Compatibility(
        False,
        f"CANN must be {oldest} or newer but is {cann}",
        f"Install CANN {RECOMMENDED.recommended} from https://www.hiascend.com/cann and source its"
        " set_env.sh.",
    )


def _too_old_torch(torch_npu: str, cann: str | None) -> Compatibility:
    """Return the verdict. Its remedy names the pairs of packages for this CANN, or all pairs."""
    oldest = ".".join(map(str, OLDEST_TORCH))
    known = cann if cann is not None and series(cann) is not None else None
    pairs = _pairs(known)
    install = (
        f"Install one of these pairs for CANN {known}" if known and pairs else "Install one of these pairs"
    )
    return Compatibility(
        False,
        f"npu_rope needs torch {oldest} or newer but torch_npu {torch_npu} is for an older one",
        f"{install}, and then npu_rope again: {pairs or _pairs(None)}. {_INDEX}.",
    )


def judge(cann: str | None, torch_npu: str | None) -> Compatibility:
    """Return whether a CANN and a torch_npu are compatible."""
    if cann is not None and (found := series(cann)) is not None and found < OLDEST_CANN:
        return _too_old(cann)
    if torch_npu is None:
        return Compatibility(None, "torch_npu is not installed, so there is nothing to compare")
    if (found := series(torch_npu)) is not None and found < OLDEST_TORCH:
        return _too_old_torch(torch_npu, cann)
    if cann is None or series(cann) is None:
        return Compatibility(
            None,
            f"CANN's version is not known; torch_npu {torch_npu} is published with {_published(torch_npu)}",
            "Compare with docs/npu.md.",
        )
    release = release_of(torch_npu)
    if release is None:
        known = ", ".join(r.torch_npu for r in RELEASES)
        return Compatibility(
            None,
            f"torch_npu {torch_npu} is not in the table, which has {known}",
            "Compare with Ascend/pytorch's COMPATIBILITY.md.",
        )
    if series(cann) in release.compatible:
        exact = "as published" if cann == release.recommended else f"published with {release.recommended}"
        return Compatibility(
            True, f"CANN {cann} and torch_npu {torch_npu} ({exact}, {release.source}); not run by us"
        )
    others = ", ".join(f"{major}.{minor}" for major, minor in release.compatible)
    return Compatibility(
        False,
        f"torch_npu {torch_npu} must have a CANN of {others} but CANN is {cann}",
        f"Install CANN {release.recommended}{_for_cann(cann)}.",
    )


def _published(torch_npu: str) -> str:
    release = release_of(torch_npu)
    return f"CANN {release.recommended}" if release else "a CANN that the table does not have"


def _for_cann(cann: str) -> str:
    """Return the alternative to an installation of another CANN: the packages that are compatible with this
    one; empty if there are none."""
    pairs = _pairs(cann)
    if not pairs:
        return ""
    return f", or one of these pairs for CANN {cann}, and then npu_rope again: {pairs}. {_INDEX}"


# PyPI's torch for x86 is the CUDA build.
_INDEX = "Step 3 of docs/npu.md has the index of CPU builds that torch comes from"


def _pairs(cann: str | None) -> str:
    """Return the packages that are compatible with a CANN; for None, all packages."""
    fit = [r for r in RELEASES if cann is None or series(cann) in r.compatible]
    return "; ".join(f"torch=={r.torch} torch_npu=={r.torch_npu}" for r in fit)


def judge_binding(built_for: str | None, torch_npu: str | None) -> Compatibility:
    """Return whether npu_rope's binding was built for the installed torch_npu.

    Args:
        built_for: the torch_npu at build time, from :func:`binding_built_for`.
        torch_npu: the installed torch_npu.
    """
    if built_for is None:
        return Compatibility(None, "the binding does not say which torch_npu it was built for")
    if torch_npu is None:
        return Compatibility(None, f"built for torch_npu {built_for}, which is not installed")
    if built_for == torch_npu:
        return Compatibility(True, f"built for torch_npu {built_for}")
    return Compatibility(
        False,
        f"the binding must be built for the installed torch_npu {torch_npu} but was built for {built_for}",
        "in a checkout: pip install --no-build-isolation --force-reinstall --no-deps .",
    )


_MARK = re.compile(rb"\[npu_rope\] built for torch_npu ([0-9A-Za-z.+_-]+)")


def binding_built_for(library: str | Path) -> str | None:
    """Return the torch_npu that a binding was built for, from the text in its file, without loading it."""
    found = _MARK.search(Path(library).read_bytes())
    return found[1].decode() if found else None


def main(arguments: list[str]) -> int:
    """Print a CANN's version on one line, and on the next one the named SoCs that this CANN knows.

    The exit status is 0, 1 if there is no version, 2 if it is too old.
    """
    version = cann_version(arguments[0])
    print("unknown version" if version is None else version)
    print(*socs_of(version, arguments[1:]))
    if version is None:
        return 1
    found = series(version)
    return 2 if found is None or found < OLDEST_CANN else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
