"""npu_rope/cann_versions.py: the table against docs/npu.md, versions read from installations, verdicts."""

from __future__ import annotations

import re
from pathlib import Path

import cann_stand_in as stand_in
import pytest

from npu_rope import cann_versions, native

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_equals_that_of_the_documentation():
    text = (ROOT / "docs/npu.md").read_text()
    rows = re.findall(r"^\| (2\.\S+) \| (\S+) \| (\S+) \| ([\d., ]+) \| .* not run \|$", text, re.M)
    table = [
        (r.torch_npu, r.torch, r.recommended, ", ".join(f"{a}.{b}" for a, b in r.compatible))
        for r in cann_versions.RELEASES
    ]
    assert rows == table


def test_the_newest_release_with_a_release_note_is_recommended_everywhere():
    release = cann_versions.RECOMMENDED
    npu = (ROOT / "docs/npu.md").read_text()
    row = re.search(rf"^\| {re.escape(release.torch_npu)} \|.*$", npu, re.M)[0]
    assert "release line" in row
    later = npu[npu.index(row) + len(row) :].partition("\n\n")[0]
    assert later.count("\n| ") == later.count("in no release note yet")
    assert re.findall(r"^pip install torch==(\S+)", npu, re.M) == [release.torch]
    assert re.findall(r"^pip install torch_npu==(\S+)$", npu, re.M) == [release.torch_npu]
    assert f"The commands above install {release.torch_npu}, " in npu
    assert f"**Install CANN {release.recommended}**" in npu
    container = dict(re.findall(r"^ARG (\w+)=(\S+)$", (ROOT / "docker/Dockerfile.npu").read_text(), re.M))
    assert container["TORCH_VERSION"] == release.torch
    assert container["TORCH_NPU_VERSION"] == release.torch_npu
    assert container["CANN_VERSION"] == release.recommended
    script = (ROOT / "scripts/build_npu.sh").read_text()
    assert f"Get CANN {release.recommended}'s toolkit from" in script


def test_the_documentation_names_the_versions_that_the_tests_run_with():
    script = (ROOT / "scripts/lib.sh").read_text()
    tested = dict(re.findall(r"^(TORCH_VERSION|TORCH_NPU_VERSION)=(\S+)$", script, re.M))
    simulated = (ROOT / "docs/simulator.md").read_text()
    index = "https://download.pytorch.org/whl/cpu"
    for text in (simulated, (ROOT / "README.md").read_text()):
        assert f"pip install torch=={tested['TORCH_VERSION']} --index-url {index}" in text
    assert f"pip install torch_npu=={tested['TORCH_NPU_VERSION']} " in simulated
    assert f"Every test runs with {tested['TORCH_NPU_VERSION']}" in (ROOT / "docs/npu.md").read_text()


@pytest.mark.parametrize("version", ["8.5.0", "9.0.0", "9.1.0", "9.1.RC2"])
def test_the_version_is_read_from_each_layout(tmp_path, version):
    assert cann_versions.cann_version(stand_in.cann(tmp_path / "cann", version)) == version


def test_cann_8_has_its_version_next_to_a_packages_version(tmp_path):
    text = "Version=7.7.0.1.238\nversion_dir=8.1.RC1\ntimestamp=20250428\n"
    stand_in.write(tmp_path / "runtime/version.info", text)
    assert cann_versions.cann_version(tmp_path) == "8.1.RC1"


@pytest.mark.parametrize("text", ["", "Version=\n", "version\n", "Version=unknown\n", "\x00\xff=\n"])
def test_a_file_without_a_version_gives_none(tmp_path, text):
    stand_in.write(tmp_path / "share/info/runtime/version.info", text)
    assert cann_versions.cann_version(tmp_path) is None
    assert cann_versions.cann_version(tmp_path / "nonexistent") is None


COMPATIBLE = [("9.0.0", "2.10.0"), ("8.5.0", "2.10.0"), ("9.1.0", "2.13.0"), ("9.1.0", "2.10.0.post4")]
COMPATIBLE += [("9.0.0", "2.12.0"), ("9.1.0", "2.13.0+gitabc")]
INCOMPATIBLE = {
    ("8.1.RC1", "2.13.0"): "CANN must be 8.5 or newer but is 8.1.RC1",
    ("8.3.RC1", None): "CANN must be 8.5 or newer but is 8.3.RC1",
    ("9.0.0", "2.13.0"): "torch_npu 2.13.0 must have a CANN of 9.1 but CANN is 9.0.0",
    ("10.0.0", "2.12.0"): "torch_npu 2.12.0 must have a CANN of 8.5, 9.0, 9.1 but CANN is 10.0.0",
}
UNKNOWN = [("9.1.0", None), (None, "2.13.0"), ("9.1.0", "2.99.0"), ("nonsense", "2.13.0")]


@pytest.mark.parametrize(("cann", "torch_npu"), COMPATIBLE)
def test_compatible_versions_are_accepted(cann, torch_npu):
    verdict = cann_versions.judge(cann, torch_npu)
    assert verdict.compatible is True
    assert verdict.text.endswith("; not run by us")


@pytest.mark.parametrize("pair", INCOMPATIBLE)
def test_incompatible_versions_have_a_remedy(pair):
    verdict = cann_versions.judge(*pair)
    assert (verdict.compatible, verdict.text) == (False, INCOMPATIBLE[pair])
    assert verdict.remedy.startswith("Install CANN 9.1.0")
    assert "none" not in verdict.remedy


@pytest.mark.parametrize("cann", ["9.0.0", "8.5.0"])
def test_the_remedy_names_every_torch_npu_for_this_cann_and_its_torch(cann):
    assert cann_versions.judge(cann, "2.13.0").remedy == (
        f"Install CANN 9.1.0, or one of these pairs for CANN {cann}, and then npu_rope again:"
        " torch==2.10.0 torch_npu==2.10.0; torch==2.10.0 torch_npu==2.10.0.post4;"
        " torch==2.11.0 torch_npu==2.11.0; torch==2.12.0 torch_npu==2.12.0."
        " Step 3 of docs/npu.md has the index of CPU builds that torch comes from."
    )


def test_the_documentation_names_the_index_of_cpu_builds_in_step_3_and_its_commands():
    text = (ROOT / "docs/npu.md").read_text()
    step = re.search(r"^3\. (.*?)^4\. ", text, re.M | re.S)[1]
    assert "torch comes from the index of CPU builds" in step
    index = "https://download.pytorch.org/whl/cpu"
    assert re.search(rf"^pip install torch==\S+ --index-url {index}$", text, re.M)


ALL_PAIRS = "; ".join(f"torch=={r.torch} torch_npu=={r.torch_npu}" for r in cann_versions.RELEASES)


@pytest.mark.parametrize(
    ("cann", "torch_npu", "pairs"),
    [
        ("9.1.0", "2.9.0", f" for CANN 9.1.0, and then npu_rope again: {ALL_PAIRS}."),
        ("9.1.0", "2.8.0.post2", f" for CANN 9.1.0, and then npu_rope again: {ALL_PAIRS}."),
        (
            "8.5.0",
            "2.9.0+gitabc",
            " for CANN 8.5.0, and then npu_rope again: torch==2.10.0 torch_npu==2.10.0;",
        ),
        ("10.0.0", "2.1.0", f", and then npu_rope again: {ALL_PAIRS}."),
        (None, "2.9.0", f", and then npu_rope again: {ALL_PAIRS}."),
        ("nonsense", "1.11.0", f", and then npu_rope again: {ALL_PAIRS}."),
    ],
)
def test_a_torch_npu_for_an_old_torch_is_incompatible(cann, torch_npu, pairs):
    verdict = cann_versions.judge(cann, torch_npu)
    assert (verdict.compatible, verdict.text) == (
        False,
        f"npu_rope needs torch 2.10 or newer but torch_npu {torch_npu} is for an older one",
    )
    assert verdict.remedy.startswith(f"Install one of these pairs{pairs}")
    assert ("torch_npu==2.13.0" in verdict.remedy) == (cann != "8.5.0")
    assert verdict.remedy.endswith("docs/npu.md has the index of CPU builds that torch comes from.")


def test_every_release_of_the_table_is_for_a_supported_torch():
    assert all(
        cann_versions.series(r.torch_npu) >= cann_versions.OLDEST_TORCH for r in cann_versions.RELEASES
    )


def test_the_remedy_for_an_unsupported_cann_names_only_a_cann():
    assert cann_versions.judge("10.0.0", "2.12.0").remedy == "Install CANN 9.1.0."


@pytest.mark.parametrize(("cann", "torch_npu"), UNKNOWN)
def test_unknown_versions_have_no_verdict(cann, torch_npu):
    assert cann_versions.judge(cann, torch_npu).compatible is None


def test_the_binding_contains_the_torch_npu_that_it_was_built_for():
    library = native.find_library("npu_rope_torch_npu")
    if library is None:
        pytest.skip("the binding of torch_npu is not built here")
    built_for = cann_versions.binding_built_for(library)
    assert re.fullmatch(r"2\.\d+\.\d+\S*", built_for)
    assert cann_versions.judge_binding(built_for, built_for).compatible is True
    other = cann_versions.judge_binding(built_for, "2.9.0")
    assert (other.compatible, other.text) == (
        False,
        f"the binding must be built for the installed torch_npu 2.9.0 but was built for {built_for}",
    )
    assert "--force-reinstall" in other.remedy


def test_a_library_without_the_text_gives_none(tmp_path):
    (tmp_path / "lib.so").write_bytes(b"\x7fELF and more")
    assert cann_versions.binding_built_for(tmp_path / "lib.so") is None
    assert cann_versions.judge_binding(None, "2.13.0").compatible is None
