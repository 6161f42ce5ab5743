"""Print the requirements of extras in pyproject.toml, one per line, with those of the build.

usage: requirements.py EXTRA... [--without NAME...]

Extras that name the project's other extras are followed. --without leaves packages out, for the
scripts that install those in a step of their own.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent


def name_of(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match, requirement
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def requirements(project: dict[str, Any], extras: list[str]) -> list[str]:
    """The requirements of the extras; the project itself is replaced by the requirements of its extras."""
    found: list[str] = []
    for extra in extras:
        for requirement in project["optional-dependencies"][extra]:
            inner = re.fullmatch(r"[A-Za-z0-9._-]+\[([^]]*)\]", requirement)
            if inner and name_of(requirement) == name_of(project["name"]):
                found += requirements(project, [e.strip() for e in inner[1].split(",")])
            else:
                found.append(requirement)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("extras", nargs="*")
    parser.add_argument("--without", nargs="*", default=[])
    arguments = parser.parse_args()
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = pyproject["project"]
    every = pyproject["build-system"]["requires"] + project["dependencies"]
    every += requirements(project, arguments.extras)
    left_out = {name_of(name) for name in arguments.without}
    print("\n".join(dict.fromkeys(r for r in every if name_of(r) not in left_out)))


if __name__ == "__main__":
    main()
