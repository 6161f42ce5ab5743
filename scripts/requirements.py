"""Print the requirements of npu_rope's extras, one per line, with those of the builds.

usage: requirements.py EXTRA... [--project NAME] [--without NAME...]

Extras of npu-rope or ascend-sim that an extra names are replaced by their requirements. --project ascend-sim
prints those of the simulator. --without leaves out packages that the calling script installs separately.
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


def requirements(projects: dict[str, Any], name: str, extras: list[str]) -> list[str]:
    """Return a project's requirements. A requirement of a project of this repository is replaced by the
    requirements of this project."""
    project = projects[name]
    found: list[str] = []
    for requirement in sum(
        (project["optional-dependencies"][extra] for extra in extras), list(project["dependencies"])
    ):
        if (required := name_of(requirement)) in projects:
            extras_match = re.search(r"\[([^]]*)\]", requirement)
            if required != name or extras_match:
                found += requirements(
                    projects,
                    required,
                    [extra.strip() for extra in extras_match[1].split(",")] if extras_match else [],
                )
        else:
            found.append(requirement)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("extras", nargs="*")
    parser.add_argument("--project", default="npu-rope")
    parser.add_argument("--without", nargs="*", default=[])
    arguments = parser.parse_args()
    files = [tomllib.loads((folder / "pyproject.toml").read_text()) for folder in (ROOT, ROOT / "simulator")]
    projects = {name_of(file["project"]["name"]): file["project"] for file in files}
    all_requirements = [requirement for file in files for requirement in file["build-system"]["requires"]]
    all_requirements += requirements(projects, arguments.project, arguments.extras)
    left_out = {name_of(name) for name in arguments.without}
    print(
        "\n".join(
            dict.fromkeys(
                requirement for requirement in all_requirements if name_of(requirement) not in left_out
            )
        )
    )


if __name__ == "__main__":
    main()
