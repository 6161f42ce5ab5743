"""ascend_sim.build compiles a user's kernel, and Kernel.run launches it on arrays."""

from __future__ import annotations

import os
import re
import shutil
import stat
from contextlib import nullcontext

import ascend_sim
import mini_kernels
import numpy as np
import pytest
from ascend_sim import In, InOut, Out, compiler
from ascend_sim.entry_parameters import before_tiling, entry_parameters

NEEDS_CLANG = pytest.mark.skipif(shutil.which("clang++-14") is None, reason="no clang++-14")
KERNEL = """
#include "kernel_operator.h"
#include "factor.h"
using namespace AscendC;

extern "C" __global__ __aicore__ void scale(GM_ADDR x, GM_ADDR y, GM_ADDR workspace, GM_ADDR tiling) {
    if (y == nullptr) return;
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 512);
    LocalTensor<float> t = buffer.Get<float>();
    GlobalTensor<float> in, out;
    in.SetGlobalBuffer((__gm__ float*)x, 64);
    out.SetGlobalBuffer((__gm__ float*)y, 64);
    DataCopy(t, in, 64);
    PipeBarrier<PIPE_ALL>();
    Muls(t, t, float(FACTOR), 64);
    PipeBarrier<PIPE_ALL>();
    DataCopy(out, t, 64);
}
"""


FACTOR_2 = "#ifndef FACTOR\n#define FACTOR 2\n#endif\n"


def write_project(folder):
    (folder / "scale.cpp").write_text(KERNEL)
    (folder / "factor.h").write_text(FACTOR_2)
    return folder


@pytest.fixture
def project(tmp_path):
    return write_project(tmp_path)


def build(project, more=(), **options):
    return ascend_sim.build(project / "scale.cpp", folder=project / "out", flags=["-O0", *more], **options)


def factor_of(library):
    x, y = np.full(64, 3, np.float32), np.zeros(64, np.float32)
    ascend_sim.Kernel(library, "scale", "ascend910b").run(In(x), Out(y))
    return y[0] / 3


# ---- compiling -----------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_kernel_may_have_another_suffix(project):
    source = project / "scale.asc"
    shutil.copy(project / "scale.cpp", source)
    assert factor_of(ascend_sim.build(source, folder=project / "out", flags=["-O0"])) == 2


def test_a_damaged_copy_of_a_source_is_written_again(project):
    """A kernel with numbers is called by a source that ascend_sim writes."""
    (project / "scale.cpp").write_text(KERNEL.replace("GM_ADDR workspace", "float factor, GM_ADDR workspace"))
    options = {"folder": project / "out", "flags": ["-O0"]}
    ascend_sim.compile(project / "scale.cpp", "scale", **options)
    (caller,) = (project / "out").glob("*.cpp")
    contents = caller.read_bytes()
    caller.write_bytes(b"")
    ascend_sim.compile(project / "scale.cpp", "scale", **options)
    assert caller.read_bytes() == contents


@pytest.mark.long
@pytest.mark.parametrize("name", ["g++", pytest.param("clang++-14", marks=NEEDS_CLANG)])
@pytest.mark.parametrize("count", [8000, 8200])
def test_a_frame_above_the_stack_of_a_core_does_not_compile(project, count, name, monkeypatch):
    monkeypatch.setenv("CXX", name)
    array = f"volatile float more[{count}]; more[uintptr_t(x) % {count}] = FACTOR;"
    (project / "scale.cpp").write_text(KERNEL.replace("TPipe pipe;", f"{array} TPipe pipe;"))
    message = r"is larger than 32768 bytes|exceeds limit \(32768\)"
    with nullcontext() if count == 8000 else pytest.raises(ascend_sim.CompileFailed, match=message):
        ascend_sim.build(project / "scale.cpp", folder=project / "out")


def test_the_default_folder_is_one_that_only_this_user_can_write(project, monkeypatch):
    monkeypatch.setattr(compiler.tempfile, "gettempdir", lambda: str(project))
    library = ascend_sim.build(project / "scale.cpp", flags=["-O0"])
    assert library.parent == project / f"ascend_sim-{os.getuid()}"
    assert stat.S_IMODE(library.parent.stat().st_mode) == 0o700
    library.parent.chmod(0o777)
    with pytest.raises(ValueError, match=r"must be a folder that only this user may write"):
        ascend_sim.build(project / "scale.cpp", flags=["-O0"])


def test_a_folder_that_cannot_be_written_is_refused_before_the_compiler_runs(project, monkeypatch):
    monkeypatch.setattr(compiler.subprocess, "run", lambda *a, **k: pytest.fail("the compiler ran"))
    inside_a_file = project / "scale.cpp" / "out"
    refused = rf"^\[sim\] folder must be one that can be written but got {inside_a_file}: Not a directory\.$"
    for compile_into in (
        lambda folder: ascend_sim.build(project / "scale.cpp", folder=folder),
        lambda folder: ascend_sim.compile(project / "scale.cpp", "scale", folder=folder),
    ):
        with pytest.raises(ValueError, match=refused):
            compile_into(inside_a_file)
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, *a: path != project and access(path, *a))  # also for root
    with pytest.raises(ValueError, match=rf"^\[sim\] folder must be one that .* but got {project}\.$"):
        ascend_sim.build(project / "scale.cpp", folder=project)


def test_without_a_temporary_folder_a_sentence_says_how_to_name_one(project, monkeypatch):
    def absent():
        raise FileNotFoundError

    monkeypatch.setattr(compiler.tempfile, "gettempdir", absent)
    with pytest.raises(ascend_sim.Unavailable, match=r"temporary folder must be available .*\n.*TMPDIR=PATH"):
        ascend_sim.build(project / "scale.cpp")


def test_a_compile_error_has_the_compilers_message(project):
    (project / "scale.cpp").write_text(KERNEL.replace("Muls(", "Mulls("))
    with pytest.raises(ascend_sim.CompileFailed, match=r"scale\.cpp:\d+:\d+: error: .*Mulls"):
        build(project)


def test_an_instruction_that_the_chip_lacks_is_reported_first_with_its_line(project):
    (project / "scale.cpp").write_text(KERNEL.replace("Muls(t, t, float(FACTOR), 64)", "Neg(t, t, 64)"))
    line = next(n for n, text in enumerate(KERNEL.splitlines(), 1) if "Muls(" in text)
    with pytest.raises(ascend_sim.CompileFailed) as failed:
        build(project)
    first, rest = str(failed.value).split("\n", 1)
    assert first == f"scale.cpp:{line}: Neg: this SoC does not have it"
    assert "required from here" in rest


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("nofile.cpp", "must be a file that can be read but got nofile.cpp: No such file or directory."),
        ("empty.cpp", "must have a kernel but got empty.cpp, which is empty."),
    ],
)
def test_a_source_without_a_kernel_is_refused(tmp_path, monkeypatch, name, rule):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.cpp").touch()
    with pytest.raises(ValueError, match=f"^{re.escape(f'[sim] source {rule}')}$"):
        ascend_sim.compile(name, "scale")
    assert [path.name for path in tmp_path.iterdir()] == ["empty.cpp"]


def test_an_unknown_chip_is_refused_at_compile_time(project):
    with pytest.raises(ValueError, match=r"^\[sim\] soc must be one of ascend910b, .* but got ascend910a\.$"):
        build(project, soc="ascend910a")


# ---- launching -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scale_library(tmp_path_factory):
    return build(write_project(tmp_path_factory.mktemp("scale")))


@pytest.fixture(scope="module")
def scale(scale_library):
    return ascend_sim.Kernel(scale_library, "scale", "ascend910b")


def ones():
    return np.ones(64, np.float32)


def test_a_kernel_reads_an_input_array_and_writes_an_output_array(scale):
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    scale.run(In(x), Out(y))
    assert np.array_equal(y, 2 * x)


def test_a_kernel_runs_in_place_on_an_array_that_is_passed_twice(scale):
    x = ones()
    scale.run(InOut(x), InOut(x))
    assert np.array_equal(x, 2 * ones())


SCALE_BY_NUMBER = """
#include "kernel_operator.h"
using namespace AscendC;
template <class T>
__global__ __aicore__ void scale_by(GM_ADDR x, GM_ADDR y, const float factor, uint32_t count) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, count * sizeof(T));
    LocalTensor<T> t = buffer.Get<T>();
    GlobalTensor<T> from, to;
    from.SetGlobalBuffer((__gm__ T*)x);
    to.SetGlobalBuffer((__gm__ T*)y);
    DataCopy(t, from, count);
    PipeBarrier<PIPE_ALL>();
    Muls(t, t, T(factor), count);
    PipeBarrier<PIPE_ALL>();
    DataCopy(to, t, count);
}
__global__ __aicore__ void plain(GM_ADDR x, GM_ADDR y) { scale_by<float>(x, y, 3.0f, 64); }
"""


@pytest.fixture(scope="module")
def scale_by_number(tmp_path_factory):
    """Return a function that returns an entry of SCALE_BY_NUMBER. Each entry is compiled once."""
    folder = tmp_path_factory.mktemp("numbers")
    source = folder / "scale_by.cpp"
    source.write_text(SCALE_BY_NUMBER)
    return lambda entry: ascend_sim.compile(source, entry, folder=folder, flags=["-O0"])


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_an_entry_may_be_a_template_with_numbers(scale_by_number, dtype):
    x, y = np.arange(64).astype(dtype), np.zeros(64, dtype)
    name = {np.float32: "float", np.float16: "half"}[dtype]
    scale_by_number(f"scale_by<{name}>").run(In(x), Out(y), 2.5, np.uint32(64))
    assert np.array_equal(y, x * dtype(2.5))


def test_an_entry_need_not_be_extern_c(scale_by_number):
    y = np.zeros(64, np.float32)
    scale_by_number("plain").run(In(ones()), Out(y))
    assert np.array_equal(y, 3 * ones())


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((2.5,), r"arguments must be 4 \(x, y, factor, count\) but got 3\."),
        ((2.5, -1), r"count must be 0 \.\. 4294967295 \(uint32_t\) but got -1\."),
        ((2.5, 1.5), r"count must be an integer \(uint32_t\) but got 1\.5\."),
        ((In(np.ones(64, np.float32)), 64), r"factor must be a number \(float\) but got an array\."),
        (("2", 64), r"factor must be a number \(float\) but got str\."),
    ],
)
def test_a_number_must_fit_its_parameter(scale_by_number, numbers, message):
    kernel = scale_by_number("scale_by<float>")
    with pytest.raises((ValueError, TypeError), match=message):
        kernel.run(In(ones()), Out(ones()), *numbers)
    with pytest.raises(TypeError, match=r"y must be In, Out, … or None but got int\."):
        kernel.run(In(ones()), 3, 2.5, 64)


@pytest.mark.parametrize(("first", "second"), [(In, Out), (In, InOut), (Out, Out), (InOut, Out)])
def test_arrays_that_overlap_are_refused(scale, first, second):
    x = np.ones(96, np.float32)
    with pytest.raises(
        ValueError,
        match=r"argument 1 must share no memory with an earlier one but got an array",
    ):
        scale.run(first(x[:64]), second(x[32:]))
    with pytest.raises(ValueError, match="must share no memory"):
        scale.run(first(x), second(x))


def test_a_launch_with_63_arguments_is_refused(scale):
    with pytest.raises(ValueError, match="launch must be possible but got too many arguments"):
        scale.run(*[In(ones())] * 63)


def test_a_compiled_entry_knows_the_number_of_its_arguments(project):
    options = {"defines": {"scale": "renamed"}, "folder": project / "out", "flags": ["-O0"]}
    kernel = ascend_sim.compile(project / "scale.cpp", "renamed", **options)
    with pytest.raises(ValueError, match=r"^\[sim\] arguments must be 2 \(x, y\) but got 3\.$"):
        kernel.run(In(ones()), Out(ones()), None)
    kernel.run(In(ones()), Out(ones()))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "void f(GM_ADDR x, /* (a) */ __gm__ uint8_t* y,\n GM_ADDR workspace, // (b)\n GM_ADDR tiling)",
            ("x", "y"),
        ),
        ("void f(GM_ADDR workspace, GM_ADDR tiling)", ()),
        ("void f_of(GM_ADDR x, GM_ADDR workspace, GM_ADDR tiling)", None),
        ("void f(GM_ADDR x, GM_ADDR y)", ("x", "y")),
        ("void f()", None),
        ("void f(GM_ADDR x,\n#if A\nGM_ADDR y,\n#endif\nGM_ADDR workspace, GM_ADDR tiling)", None),
        ("void g(GM_ADDR x) { f(x, tiling); }", None),
    ],
)
def test_the_source_names_the_entry_s_arguments_before_workspace_and_tiling(tmp_path, text, names):
    source = tmp_path / "f.cpp"
    source.write_text(f'extern "C" __global__ __aicore__ {text} {{}}\n')
    parameters = entry_parameters(source, "f")
    assert (parameters and tuple(p.name for p in before_tiling(parameters))) == names
    source.write_text(source.read_text() * 2)
    assert entry_parameters(source, "f") is None


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"block_dim": -1}, "block_dim must be 1 .. 65535 but got -1."),
        ({"block_dim": 2**32 + 1}, "block_dim must be 1 .. 65535 but got 4294967297."),
        ({"tiling_key": -1}, "tiling_key must be 0 .. 18446744073709551615 but got -1."),
        ({"workspace_bytes": 2**32 + 1}, "workspace_bytes must be 0 .. 4294967296 but got 4294967297."),
    ],
    ids=str,
)
def test_a_number_outside_its_range_is_refused(scale, option, message):
    with pytest.raises(ValueError, match=f"^{re.escape(f'[sim] {message}')}$"):
        scale.run(In(ones()), Out(ones()), **option)


@pytest.mark.parametrize("tiling", ["abc", 5, [1, 2]], ids=str)
def test_a_tiling_that_is_not_bytes_is_refused(scale, tiling):
    with pytest.raises(TypeError, match=rf"^\[sim\] tiling must be bytes but got {type(tiling).__name__}\.$"):
        scale.run(In(ones()), Out(ones()), tiling=tiling)
    scale.run(In(ones()), Out(ones()), tiling=np.arange(2))


def test_none_is_a_null_pointer(scale):
    scale.run(In(ones()), None)


@pytest.mark.parametrize("put", ["first", "second"])
def test_arrays_of_objects_and_of_another_byte_order_are_refused(scale, put):
    """Their bytes are no numbers of the kernel: a write to pointers of objects would end the process."""
    objects = np.array([object()] * 128, dtype=object)
    foreign = ones().astype(ones().dtype.newbyteorder())
    for array, rule in (
        (objects, "be an array of numbers but got object"),
        (foreign, "be in the machine's byte order but got >f4"),
    ):
        arguments = (In(array), Out(ones())) if put == "first" else (In(ones()), Out(array))
        index = 0 if put == "first" else 1
        with pytest.raises(TypeError, match=rf"^\[sim\] argument {index} must {rule}\.$"):
            scale.run(*arguments)


def test_arrays_with_gaps_are_refused(scale):
    with pytest.raises(ValueError, match=r"^\[sim\] argument 0 must be contiguous but got strides \(8,\)\.$"):
        scale.run(In(np.ones(128, np.float32)[::2]), Out(ones()))


def test_outputs_that_cannot_be_written_are_refused(scale):
    y = ones()
    y.flags.writeable = False
    with pytest.raises(ValueError, match="argument 1 must be writeable but got a read-only array"):
        scale.run(In(ones()), Out(y))


def test_an_entry_that_does_not_exist_is_refused(scale_library):
    with pytest.raises(ValueError, match=r"^\[sim\] entry must be a __global__ function but got skale\.$"):
        ascend_sim.Kernel(scale_library, "skale", "ascend910b")


@pytest.mark.parametrize("chip", ["Ascend910B4", "ascend910_93"])
def test_a_chip_with_the_same_instructions_runs_the_kernel(scale, chip):
    y = ones()
    report = scale.run(In(ones()), Out(y), options=ascend_sim.Options(soc=chip))
    assert report.summary["soc"].lower().startswith(chip.lower())
    assert np.array_equal(y, 2 * ones())


@pytest.mark.parametrize("chip", ["ascend310p", "Ascend310P3", "Ascend950"])
def test_a_chip_with_other_instructions_does_not_run_the_kernel(scale, chip):
    with pytest.raises(ValueError, match=rf"options\.soc must run code of ascend910b but got {chip}"):
        scale.run(In(ones()), Out(ones()), options=ascend_sim.Options(soc=chip))


def test_a_chip_that_does_not_exist_is_refused(scale):
    with pytest.raises(ValueError, match=r"options\.soc must be one of Ascend910B1, .* but got Ascend1000\."):
        scale.run(In(ones()), Out(ones()), options=ascend_sim.Options(soc="Ascend1000"))


def test_a_broken_rule_raises_an_exception_with_the_report(compiled):
    with pytest.raises(ascend_sim.KernelBroken) as caught:
        compiled("alignment", "add_from_inside_a_block").run(In(ones()), Out(ones()))
    claim = next(c for c in mini_kernels.claims() if c.entry == "add_from_inside_a_block")
    assert (caught.value.rule, caught.value.line) == (claim.rule, claim.line)
    assert str(caught.value) == caught.value.report.errors[0]["text"]
