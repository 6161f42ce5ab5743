"""docs/kernels.md lists rules, instructions and conversions, README.md the public interface."""

from __future__ import annotations

import ast
import importlib
import os
import re
from pathlib import Path

import ascend_sim
import pytest
from ascend_sim import library

README = Path(__file__).resolve().parents[1] / "README.md"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "kernels.md"
NOT_FIGURES = {"name", "soc", "arch", "cores", "clock_ghz", "ub_bytes", "reserved_from"}  # keys of a profile
FIGURES = PAGE.with_name("figures.md")
ARCHS = {"220": "Ascend910B, 910_93", "200": "Ascend310P", "310": "Ascend950"}


def rules():
    rows = ["| rule | what must hold | basis |", "|---|---|---|"]
    for rule in library.load().rules():
        severity = " (warns)" if rule["severity"] == "warning" else ""
        rows.append(f"| {rule['rule']} | {rule['text']}{severity} | {rule['basis']} |")
    return "\n".join(rows) + "\n"


def instructions():
    """Adjacent instructions with the same types and source share a row. The last cell names the source."""
    shared = []
    for row in library.load().instructions():
        name, cells = row["instruction"], [row[arch] for arch in ARCHS]
        source = "" if row["source"] == name else row["source"]
        if shared and shared[-1][1:] == (cells, source):
            shared[-1][0].append(name)
        else:
            shared.append(([name], cells, source))
    rows = [f"| instruction | {' | '.join(ARCHS.values())} | page |", "|---|---|---|---|---|"]
    for names, cells, source in shared:
        types = " | ".join(", ".join(cell) or "—" for cell in cells)
        rows.append(f"| {', '.join(names)} | {types} | {source or 'its own'} |")
    return "\n".join(rows) + "\n"


def conversions():
    rows = [f"| from | to | {' | '.join(ARCHS.values())} |", "|---|---|---|---|---|"]
    for row in library.load().conversions():
        modes = (", ".join(m.removeprefix("CAST_") for m in row[arch]) or "—" for arch in ARCHS)
        rows.append(f"| {row['from']} | {row['to']} | {' | '.join(modes)} |")
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize("table", [rules, instructions, conversions], ids=lambda table: table.__name__)
def test_the_page_lists_every_row_as_the_simulator_returns_it(table):
    """ASCEND_SIM_UPDATE_DOCS=1 writes the table instead."""
    begin, end = f"<!-- {table.__name__}: begin -->\n", f"<!-- {table.__name__}: end -->"
    text = PAGE.read_text()
    if os.environ.get("ASCEND_SIM_UPDATE_DOCS"):
        PAGE.write_text(re.sub(f"{begin}.*?{end}", lambda _: begin + table() + end, text, flags=re.DOTALL))
        text = PAGE.read_text()
    assert text.partition(begin)[2].partition(end)[0] == table()


def figures_of(heading):
    """The cells of a chip family's table in docs/figures.md: value, lowest, highest."""
    section = FIGURES.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]+ \| [^|]+ \| [^|]+?) \|", section, re.MULTILINE))


def value_and_range(row):
    """The numbers of a row. The value replaces the last two cells if they are "—" (nothing is published)."""
    cells = row.split(" | ")
    return [float(cells[0] if cell == "—" else cell) for cell in cells]


@pytest.mark.parametrize("heading", ["Ascend910B and Ascend910_93", "Ascend310P", "Ascend950"])
def test_every_figure_of_a_profile_has_a_row_with_its_value(heading):
    rows = figures_of("Ascend910B and Ascend910_93") | figures_of(heading)
    soc = heading.partition(" ")[0].lower()
    profile = next(p for p in library.load().profiles() if p["soc"] == soc)
    bandwidths = {"gm_bytes_per_cycle"}  # each chip has its own; they are in a separate table
    assert set(rows) == set(profile) - NOT_FIGURES
    for name in set(rows) - bandwidths:
        value, lowest, highest = value_and_range(rows[name])
        assert profile[name] == pytest.approx(value, rel=1e-3), name
        assert lowest <= value <= highest, name


def test_every_chip_s_bandwidth_has_a_row_with_its_value():
    rows = re.findall(
        r"^\| (Ascend\w[\w-]*) \| (\d[^|]* \| [^|]+ \| [^|]+?) \|", FIGURES.read_text(), re.MULTILINE
    )
    profiles = {p["name"]: p["gm_bytes_per_cycle"] for p in library.load().profiles()}
    assert sorted(name for name, _ in rows) == sorted(profiles)
    for name, row in rows:
        value, lowest, highest = value_and_range(row)
        assert profiles[name] == pytest.approx(value, rel=1e-3), name
        assert lowest <= value <= highest, name


def public_interface():
    """The names of each module in the README's table."""
    section = README.read_text().partition("## Public interface\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return {module.strip(" `"): re.findall(r"`(\w+)`", names) for module, names, _ in rows}


def modules():
    """Yield each module of the package with the names of its ``__all__``, read without an import."""
    package = Path(ascend_sim.__file__).parent
    for path in package.rglob("*.py"):
        name = ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                yield name, ast.literal_eval(node.value)


def test_the_readme_lists_the_public_interface():
    assert public_interface() == dict(modules())


@pytest.mark.parametrize("module", public_interface())
def test_every_public_name_exists_and_has_a_docstring(module):
    imported = importlib.import_module(module)
    for name in imported.__all__:
        value = getattr(imported, name)
        # A dataclass without a docstring has its signature as __doc__.
        described = (value.__doc__ or "").partition("(")[0] not in ("", name)
        assert isinstance(value, str) or described, f"{module}.{name}"


def test_the_package_exports_only_its_public_names():
    names = {
        n
        for n, value in vars(ascend_sim).items()
        if getattr(value, "__module__", "").startswith("ascend_sim.")
    }
    assert names | {"__version__"} == set(ascend_sim.__all__)
