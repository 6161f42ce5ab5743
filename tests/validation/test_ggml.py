"""The installed ggml in its worker process: its results, aborts and refusals."""

import collections
import dataclasses
import platform
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import without_torch

import npu_rope
from npu_rope.params import RopeParams
from npu_rope.rope_attributes import RopeMode
from npu_rope.testing import ggml as ggml_module
from npu_rope.testing import ggml_graph, ggml_worker
from npu_rope.testing import judge as judge_module
from npu_rope.testing.bounds import TEST_BACKEND_OPS_NMSE
from npu_rope.testing.cases import ggml_cases, make_data
from npu_rope.testing.ggml import (
    Build,
    GgmlAborted,
    GgmlFailed,
    GgmlProcess,
    GgmlRefused,
    GgmlRope,
    GgmlUnavailable,
    find_library_dir,
)
from npu_rope.testing.judge import judge
from npu_rope.testing.outcomes import FAIL, OK, UNSUPPORTED

pytestmark = pytest.mark.peer


class ProcessWithoutTorch(GgmlProcess):
    worker = without_torch.WORKER


@pytest.fixture(scope="module")
def ggml():
    if sys.platform != "linux" or platform.machine() != "x86_64":
        pytest.skip("prebuilt ggml packages exist for Linux on x86_64 only")
    with ProcessWithoutTorch() as process:
        yield process


def _call(n_dims=8, width=8):
    x = np.arange(3 * width, dtype=np.float32).reshape(1, 3, 1, width)
    positions = np.arange(3, dtype=np.int32)
    return GgmlRope(x, x.shape, 0, positions, RopeParams(n_dims, "neox"), 0, None, True, False)


def test_ggml_reports_its_version(ggml):
    assert ggml.info.version[0].isdigit()
    assert ggml.info.cpu_library.startswith("libggml-cpu")


def test_position_zero_is_the_identity(ggml):
    call = _call()
    np.testing.assert_array_equal(ggml.rope(call)[0, 0], call.parent[0, 0])


def test_an_abort_is_reported_with_its_message_and_ggml_starts_again(ggml):
    with pytest.raises(GgmlAborted, match=r"SIGABRT.*GGML_ASSERT.*n_dims"):
        ggml.rope(_call(n_dims=16))
    assert ggml.rope(_call()).shape == (1, 3, 1, 8)


def test_a_missing_folder_is_reported_with_its_remedy(tmp_path):
    with pytest.raises(GgmlUnavailable, match="Name the folder of a build"):
        find_library_dir(str(tmp_path))


def test_a_ggml_that_is_not_installed_is_reported_with_its_remedy(monkeypatch):
    monkeypatch.delenv("NPU_ROPE_GGML_LIB", raising=False)
    monkeypatch.setattr(ggml_module, "_candidates", lambda given: iter(()))
    with pytest.raises(GgmlUnavailable, match="npm install"):
        find_library_dir()


def test_library_that_does_not_load_is_reported(tmp_path):
    for name in ("libggml-base.so", "libggml-cpu.so"):
        (tmp_path / name).write_text("not a library")
    with pytest.raises(GgmlUnavailable, match="must load"):
        GgmlProcess(str(tmp_path))


def _one_case_of_each_kind():
    chosen = {}
    for case in ggml_cases():
        if case.shape[1] <= 8:
            p = case.params
            key = (
                case.op,
                case.dtype,
                case.result_dtype,
                p.rope_mode,
                case.factors,
                case.view,
                case.inplace,
                p.ext_factor,
                p.n_offs,
                case.shape[1] == 8,
            )
            chosen.setdefault(key, case)
    return list(chosen.values())


ONE_OF_EACH_KIND = _one_case_of_each_kind()


@pytest.mark.parametrize("case", ONE_OF_EACH_KIND, ids=lambda c: c.name)
def test_ggml_agrees_with_policy_ggml(ggml, case):
    result = judge(case, ["cpu"], ggml)
    verdicts = {j.executor: j.verdict for j in result.judgements}
    expected = UNSUPPORTED if case.params.n_offs and "ggml_rope_set_offset" in ggml.info.missing else OK
    assert verdicts == {"cpu": OK, "cpu:ggml": OK, "ggml": expected}


def _changed_call(monkeypatch, **changes):
    """Change the arguments that the judge passes to ggml."""
    original = judge_module.ggml_call

    def changed(case, data):
        call = original(case, data)
        return dataclasses.replace(call, **{k: v(getattr(call, k)) for k, v in changes.items()})

    monkeypatch.setattr(judge_module, "ggml_call", changed)


def _first_case(**wanted):
    for case in ggml_cases():
        if wanted.items() <= {"op": case.op, "mode": case.params.rope_mode.value, "view": case.view}.items():
            return case
    raise AssertionError(wanted)


@pytest.mark.parametrize("op", ["ROPE", "ROPE_BACK", "ROPE_SET_ROWS"])
@pytest.mark.parametrize("mode", [0, 2, 8, 24])
def test_a_different_position_fails(ggml, monkeypatch, op, mode):
    case = _first_case(op=op, mode=mode)
    assert judge(case, [], ggml).by("ggml").verdict == OK
    _changed_call(monkeypatch, positions=lambda p: p + 1)
    assert judge(case, [], ggml).by("ggml").verdict == FAIL


def _height_moved(positions):
    axes = positions.reshape(4, -1).copy()
    axes[1] += 1
    return axes.reshape(-1)


@pytest.mark.parametrize("mode", [8, 24, 40])
def test_sections_and_the_positions_of_their_axes_reach_ggml(ggml, monkeypatch, mode):
    case = _first_case(op="ROPE", mode=mode, view=0)
    assert judge(case, [], ggml).by("ggml").verdict == OK
    with monkeypatch.context() as patch:
        _changed_call(patch, positions=_height_moved)
        assert judge(case, [], ggml).by("ggml").verdict == FAIL
    _changed_call(monkeypatch, params=lambda p: dataclasses.replace(p, sections=(1, *p.sections[1:])))
    assert judge(case, [], ggml).by("ggml").verdict == FAIL


SECTIONS = {
    "only time": (8, 0, 0, 0),
    "only height": (0, 8, 0, 0),
    "only width": (0, 0, 8, 0),
    "no time": (0, 5, 3, 0),
    "no height": (5, 0, 3, 0),
    "no width but extra": (3, 2, 0, 3),
    "no height, no width": (3, 0, 0, 5),
    "nine pairs": (4, 3, 2, 0),
    "repeated, one of them empty": (2, 0, 1, 1),
    "repeated, the first empty": (0, 2, 1, 0),
    "one pair": (1, 0, 0, 0),
    "more than there are pairs": (12, 12, 12, 4),
    "all of the head": (10, 10, 10, 10),
}


@pytest.mark.parametrize("sections", SECTIONS.values(), ids=SECTIONS)
@pytest.mark.parametrize("mode", ["mrope", "vision", "imrope"])
def test_sections_of_any_width_rotate_as_in_ggml(ggml, mode, sections):
    for forward, n_dims, factors in ((True, 20, None), (False, 12, "random")):
        n_dims = 20 if mode == "vision" else n_dims
        params = RopeParams(n_dims, mode, sections=sections)
        template = _first_case(op="ROPE", mode=params.rope_mode.value)
        case = dataclasses.replace(
            template,
            name=f"{mode}{sections}",
            shape=(1, 5, 2, 40),
            params=params,
            ggml_n_ctx_orig=0,
            forward=forward,
            factors=factors,
            view=0,
            dtype="float32",
        )
        result = judge(case, ["reference", "cpu"], ggml)
        verdicts = {j.executor: j.verdict for j in result.judgements}
        assert verdicts == {"reference": OK, "cpu": OK, "cpu:ggml": OK, "ggml": OK}, result


@pytest.mark.parametrize(
    ("mode", "n_dims", "sections"),
    [
        ("mrope", 8, (0, 0, 0, 4)),
        ("imrope", 8, (0, 0, 0, 0)),
        ("mrope", 8, (3, 3, 3, 0)),
        ("vision", 8, (2, 2, 0, 0)),
    ],
)
def test_sections_that_npu_rope_refuses_abort_ggml(ggml, mode, n_dims, sections):
    x = np.ones((1, 3, 1, 8), np.float32)
    positions = np.zeros(12, np.int32)
    with pytest.raises(ValueError, match="must"):
        npu_rope.rope(x, positions, RopeParams(n_dims, mode, sections=sections), backend="reference")
    params = RopeParams(2, mode, sections=(1, 0, 0, 0))
    for name, value in (("n_dims", n_dims), ("sections", sections)):
        object.__setattr__(params, name, value)
    with pytest.raises(GgmlAborted, match="GGML_ASSERT"):
        ggml.rope(dataclasses.replace(_call(), parent=x, positions=positions, params=params))


# ---- a cache -------------------------------------------------------------------------------------


def _cache_call(rows, cache_rows=5, cache_dtype=np.float16, index=np.int64):
    call = _call()
    cache = np.full((cache_rows, 1, 8), 7, cache_dtype)
    return dataclasses.replace(call, rows=np.array(rows, index), cache=cache)


@pytest.mark.parametrize("index", [np.int64, np.int32])
def test_tokens_are_written_to_their_rows_and_the_others_stay(ggml, index):
    call = _cache_call([4, 0, 2], index=index)
    cache = ggml.rope(call)
    rotated = ggml.rope(_call())[0]
    np.testing.assert_array_equal(cache[[4, 0, 2]], rotated.astype(np.float16))
    assert (cache[[1, 3]] == 7).all()


def test_a_token_in_a_wrong_row_fails(ggml, monkeypatch):
    case = next(c for c in ggml_cases() if c.cache_rows == 24)
    assert judge(case, [], ggml).by("ggml").verdict == OK
    with monkeypatch.context() as patch:
        _changed_call(patch, rows=lambda r: np.roll(r, 1))
        assert judge(case, [], ggml).by("ggml").verdict == FAIL
    _changed_call(monkeypatch, rows=lambda r: np.where(r == 0, 23, r))
    judgement = judge(case, [], ggml).by("ggml")
    assert (judgement.verdict, judgement.message) == (
        FAIL,
        "a row of the cache that no token belongs to was written",
    )


def test_a_row_outside_the_cache_aborts_ggml(ggml):
    with pytest.raises(GgmlAborted, match="GGML_ASSERT"):
        ggml.rope(_cache_call([4, 5, 2]))


def test_a_write_outside_a_view_in_place_is_detected():
    parent = np.zeros((1, 3, 2, 16), np.float32)
    call = dataclasses.replace(_call(), parent=parent, shape=(1, 3, 1, 8), inplace=True)
    graph = SimpleNamespace(call=call)
    after = parent.copy()
    after[..., :1, :8] = 1
    assert (ggml_graph.RopeGraph._inside(graph, after.copy()) == 1).all()
    after[0, 2, 1, 15] = 1
    with pytest.raises(GgmlFailed, match="memory outside the tensor was written"):
        ggml_graph.RopeGraph._inside(graph, after)


# ---- an older ggml ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "op", "mode", "n_offs", "inplace"),
    [
        ("ggml_rope_set_offset", "ROPE", 2, 32, False),
        ("ggml_rope_multi", "ROPE_BACK", 8, 0, False),
        ("ggml_rope_multi_inplace", "ROPE", 24, 0, True),
        ("ggml_set_rows", "ROPE_SET_ROWS", 0, 0, False),
    ],
)
def test_a_function_that_an_old_ggml_lacks_is_unsupported_by_name(
    ggml, monkeypatch, function, op, mode, n_offs, inplace
):
    key = (op, mode, n_offs, inplace)
    case = next(
        c
        for c in ggml_cases()
        if (c.op, c.params.rope_mode.value, c.params.n_offs, c.inplace) == key and c.shape[1] <= 8
    )
    older = dataclasses.replace(ggml.info, version="0.9.0", missing=frozenset([function]))
    monkeypatch.setattr(ggml, "info", older)
    judgement = judge(case, [], ggml).by("ggml")
    assert (judgement.verdict, judgement.message) == (UNSUPPORTED, f"ggml 0.9.0 has no {function}")
    assert judge(_first_case(op="ROPE", mode=2), [], ggml).by("ggml").verdict == OK


def test_a_ggml_that_computes_imrope_as_mrope_has_no_imrope(ggml, monkeypatch):
    case = _first_case(op="ROPE", mode=40)
    assert ggml.too_old_for(case.params, inplace=False, set_rows=False) == ""
    original = ggml.rope

    def older(call):
        as_mrope = call.params.rope_mode is RopeMode.IMROPE
        params = dataclasses.replace(call.params, mode="mrope") if as_mrope else call.params
        return original(dataclasses.replace(call, params=params))

    monkeypatch.setattr(ggml, "rope", older)
    monkeypatch.setattr(ggml, "_imrope_found", None)
    judgement = judge(case, [], ggml).by("ggml")
    assert judgement.verdict == UNSUPPORTED
    assert judgement.message == f"ggml {ggml.info.version} has no mode imrope"


# ---- devices ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def device(ggml):
    """Return a function that starts ggml on a device, which may be a stand-in, by its name."""
    started = {}

    class WithStandIns(GgmlProcess):
        worker = without_torch.STAND_INS

    def start(name):
        if name not in started:
            started[name] = WithStandIns(device=name)
        return started[name]

    yield start
    for process in started.values():
        process.close()


def test_the_registrys_cpu_equals_the_cpu_library(ggml):
    with GgmlProcess(device="CPU") as process:
        assert process.info.device == "CPU"
        assert process.info.description
        assert process.info.name == f"ggml {ggml.info.version} CPU"
        for case in ONE_OF_EACH_KIND[::7]:
            if not case.params.n_offs:
                call = judge_module.ggml_call(case, make_data(case))
                np.testing.assert_array_equal(process.rope(call), ggml.rope(call))


def test_an_unknown_device_is_refused_with_the_names(ggml):
    refused = (
        rf"^\[ggml\] device must be one of CPU but got CANN0\.\n{ggml.folder} has no libggml-cann\. "
        r"Name a build with this backend by --ggml-lib\.$"
    )
    with pytest.raises(GgmlUnavailable, match=refused):
        GgmlProcess(device="CANN0")


@pytest.mark.parametrize(
    ("missing", "remedy"),
    [
        ("libascendcl.so", "run npu-rope sim -- npu-rope validate"),
        ("libcust_opapi.so", "npu-rope sim finds npu_rope's simulated one, and ascend-sim run does not"),
    ],
)
@pytest.mark.parametrize("is_linked", [False, True])
def test_a_backend_whose_library_is_missing_names_it_and_its_remedy(
    ggml, tmp_path, missing, remedy, is_linked
):
    """``is_linked``: the registry is linked with the backend; otherwise the registry loads the backend."""

    def library(name, *flags):
        source = "int symbol; int *use(void) { return &symbol; }"
        command = ["cc", "-xc", "-", "-xnone", "-shared", "-fPIC", "-o", tmp_path / name, *flags]
        subprocess.run(command, input=source, text=True, check=True)

    library(missing, f"-Wl,-soname,{missing}")
    if is_linked:
        for name in ("libggml-base.so", "libggml-cpu.so"):
            library(name)
        library("libggml.so", "-Wl,--no-as-needed", tmp_path / missing)
    else:
        for path in Build(ggml.folder).libraries:
            (tmp_path / path.name).symlink_to(path.resolve())
    library("libggml-cann.so", "-Wl,--no-as-needed", tmp_path / missing)
    (tmp_path / missing).unlink()
    with pytest.raises(GgmlUnavailable) as refused:
        GgmlProcess(str(tmp_path), device="CANN0")
    first, *lines = str(refused.value).splitlines()
    assert f"{missing}: cannot open shared object file" in (first if is_linked else lines[0])
    assert remedy in lines[-1]


def test_a_second_simulated_device_has_a_remedy(monkeypatch):
    devices = object.__new__(ggml_worker.Devices)
    assert devices._how_to_get("CANN1", ["CANN0", "CPU"]) == ""
    monkeypatch.setenv("ASCEND_SIM_SOC", "Ascend910B2")
    assert devices._how_to_get("CANN1", ["CANN0", "CPU"]) == "\nnpu-rope sim --devices N simulates N devices."


def test_a_folder_without_the_registry_is_refused_with_the_missing_file(tmp_path):
    for name in ("libggml-base.so", "libggml-cpu.so", "libggml-cann.so"):
        (tmp_path / name).touch()
    assert Build(tmp_path).registry is None
    with pytest.raises(GgmlUnavailable, match=r"libggml\.so"):
        find_library_dir(str(tmp_path), registry=True)


@pytest.mark.parametrize(
    "name",
    ["libggml-684d824a.so.0.13.1", "libggml.v0.5.0.so", "libggml.so.0", "libggml.b6673.so", "libggml.dylib"],
)
def test_the_registry_is_found_by_its_name(tmp_path, name):
    for file in ("libggml-base.so", "libggml-cpu.so", "libggml-cann.so", name):
        (tmp_path / file).touch()
    assert Build(tmp_path).registry == tmp_path / name


def _link_libraries(source, target, names):
    target.mkdir(parents=True)
    for path in source.iterdir():
        if any(path.name.startswith(name) for name in names):
            (target / path.name).symlink_to(path)


@pytest.mark.long
def test_libraries_below_the_folder_are_those_of_the_build(tmp_path):
    """ggml alone has its backends in other folders than libggml-base."""
    installed, build = find_library_dir(registry=True), tmp_path / "build"
    registry = Build(installed).registry.name
    _link_libraries(installed, build / "src", ["libggml-base", registry])
    _link_libraries(installed, build / "src" / "ggml-cpu", ["libggml-cpu"])
    for folder in (build, build / "src"):
        with GgmlProcess(str(folder), device="CPU") as process:
            assert process.info.device == "CPU"
            assert process.info.cpu_library == registry
            assert process.rope(_call()).shape == (1, 3, 1, 8)
        with ProcessWithoutTorch(str(folder)) as process:
            assert process.info.cpu_library.startswith("libggml-cpu")
    with pytest.raises(GgmlUnavailable, match="ggml alone has them in build/src"):
        find_library_dir(str(build / "src" / "ggml-cpu"))


@pytest.fixture
def two_builds(tmp_path):
    for name in ("bin", "src"):
        (tmp_path / name).mkdir()
        for file in ("libggml-base.so", "libggml-cpu.so", "libggml.so"):
            (tmp_path / name / file).touch()
    return tmp_path


def test_a_folder_with_two_builds_is_refused_with_both(two_builds):
    both = rf"but got {two_builds}, which has builds in {two_builds}/bin and {two_builds}/src\."
    with pytest.raises(GgmlUnavailable, match=both):
        find_library_dir(str(two_builds))


def test_a_build_further_below_is_left_out(two_builds):
    folder = two_builds / "bin"
    (two_builds / "src").rename(folder / "old")
    assert find_library_dir(str(folder)) == folder
    assert {path.parent for path in Build(folder).libraries} == {folder}


def test_static_libraries_are_no_build(tmp_path):
    for file in ("libggml-base.a", "libggml-cpu.a"):
        (tmp_path / file).touch()
    with pytest.raises(GgmlUnavailable, match="a build with shared libraries"):
        find_library_dir(str(tmp_path))


def test_a_library_of_another_folder_is_refused_with_its_remedy(two_builds, monkeypatch):
    folder = two_builds / "bin"
    (folder / "ggml-cann").mkdir()
    below, outside = folder / "ggml-cann" / "libggml-cann.so", two_builds / "src" / "libggml.so"
    below.touch()
    monkeypatch.setattr(ggml_worker, "mapped_files", lambda: [str(below), "/lib/libc.so.6"])
    ggml_worker.require_own_libraries(Build(folder))
    monkeypatch.setattr(ggml_worker, "mapped_files", lambda: [str(below), str(outside)])
    with pytest.raises(GgmlUnavailable, match=rf"or below it but got {outside}, .*\nName the folder"):
        ggml_worker.require_own_libraries(Build(folder))


def _cases_by_message(process):
    cases = [c for c in ggml_cases() if c.shape[1] <= 8 and not c.params.n_offs]
    judgements = [judge(c, [], process).by("ggml") for c in cases]
    assert {j.verdict for j in judgements} == {OK, UNSUPPORTED}
    cases_by_message = collections.defaultdict(list)
    for case, judgement in zip(cases, judgements, strict=True):
        cases_by_message[judgement.message].append(case)
    return cases_by_message


@pytest.mark.long
def test_a_refusal_names_a_similar_node_that_the_device_accepts(device):
    cases = _cases_by_message(device("CANN0"))
    assert set(cases) == {"", "CANN0 refuses ROPE_BACK, but supports the call if it is forward"}
    assert {c.op for c in cases[""]} == {"ROPE", "ROPE_SET_ROWS"}
    cases = _cases_by_message(device("CANN310P"))
    assert set(cases) == {
        "",
        "CANN310P refuses ROPE",
        "CANN310P refuses ROPE, but supports the call if it is contiguous",
        "CANN310P refuses ROPE, but supports the call if it is in mode neox",
        "CANN310P refuses ROPE, but supports the call if it has n_dims = 80",
        "CANN310P refuses ROPE, but supports the call if it has n_dims = 128",
        "CANN310P refuses ROPE_BACK",
        "CANN310P refuses ROPE_BACK, but supports the call if it is forward",
    }
    assert {
        c.params.rope_mode
        for c in cases["CANN310P refuses ROPE, but supports the call if it is in mode neox"]
    } == {RopeMode.VISION}


def test_a_refusal_raises_ggml_refused(device):
    with pytest.raises(GgmlRefused, match="CANN0 refuses ROPE_BACK"):
        device("CANN0").rope(dataclasses.replace(_call(), forward=False))


@pytest.mark.long
def test_a_device_may_compute_its_angles_in_float32(device):
    tables = collections.Counter()
    for case in ONE_OF_EACH_KIND:
        if not case.params.n_offs:
            judgement = judge(case, [], device("FLOAT0")).by("ggml")
            assert judgement.verdict == OK, (case.name, judgement)
            assert judgement.nmse <= TEST_BACKEND_OPS_NMSE
            tables[judgement.table] += 1
    assert tables["float32"] > tables.total() / 2


@pytest.mark.long
def test_a_device_one_position_off_fails_with_its_worst_element(device):
    for case in ONE_OF_EACH_KIND[::5]:
        if not case.params.n_offs:
            judgement = judge(case, [], device("SHIFT0")).by("ggml")
            assert judgement.verdict == FAIL
            assert judgement.ratio > 10
            assert len(judgement.worst.index) == 4
            assert judgement.nmse > TEST_BACKEND_OPS_NMSE
