"""Operators from their sources: their own definition and tiling run on the host, their kernel on the cores.

The operators belong to this project and have the style of CANN's libraries:

- ScaledAdd of the examples has a class of tiling data, and an optional input.
- PickedRow has a tiling that reads a value and chooses template arguments, and its kernel includes a file of
  another operator's folder.
- Negated and Untouched have no tiling.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import ascend_sim
import ml_dtypes
import numpy as np
import pytest
from ascend_sim import CompileFailed, KernelBroken, OperatorSources, Options, Tiling
from ascend_sim.operator_definition import Definition, Parameter
from ascend_sim.operator_host import HostCodeFailed
from ascend_sim.operator_tensors import KernelArguments, tensors_of
from ascend_sim.operator_types import copy_back, device_array
from ascend_sim.package import Refused
from ascend_sim.template_arguments import read_declarations

OPS = Path(__file__).resolve().parent / "sources" / "ops"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "scaled_add"


X = np.ones((2, 3), np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("operators")


def scaled_add_of(folder, **changed):
    settings = {
        "kernel": EXAMPLE / "op_kernel/scaled_add.cpp",
        "definition": EXAMPLE / "op_host/scaled_add_def.cpp",
        "tiling": [EXAMPLE / "op_host/scaled_add_tiling.cpp"],
        "folder": folder,
    }
    return OperatorSources(**settings | changed)


@pytest.fixture(scope="module")
def scaled_add(folder):
    return scaled_add_of(folder)


@pytest.fixture(scope="module")
def picked_row(folder):
    return OperatorSources(
        OPS / "picked_row/op_kernel/picked_row.cpp",
        definition=OPS / "picked_row/op_host/picked_row_def.cpp",
        tiling=[OPS / f"picked_row/op_host/{name}.cpp" for name in ("picked_row_tiling", "failures")],
        folder=folder,
    )


def negated_sources(folder, **changed):
    settings = {
        "kernel": OPS / "negated/op_kernel/negated.cpp",
        "definition": OPS / "negated/op_host/negated_def.cpp",
        "operator": "Negated",
        "folder": folder,
    }
    return OperatorSources(**settings | changed)


def vectors(dtype, count=2, shape=(8, 100)):
    return [
        v.astype(dtype) for v in np.random.default_rng(0).standard_normal((count, *shape), dtype=np.float32)
    ]


def rows(dtype=np.float32):
    return np.arange(21).reshape(3, 7).astype(dtype)


# ---- definition and tiling -----------------------------------------------------------------------------


@pytest.mark.long
def test_the_definition_has_types_and_defaults(scaled_add):
    definition = scaled_add.definition
    assert (definition.name, definition.kernel, definition.columns) == ("ScaledAdd", "scaled_add", 2)
    assert [p.name for p in definition.parameters] == ["x", "y", "bias", "z"]
    assert [(a.name, a.type, a.required, float(a.default)) for a in definition.attributes] == [
        ("scale", "float", False, 1.0)
    ]


def test_the_tiling_of_a_call_is_that_of_the_sources(scaled_add):
    x, y = vectors(np.float16)
    tiling = scaled_add.tile({"x": x, "y": y}, {"z": np.empty_like(x)}, scale=0.5)
    fields = np.dtype([("elements", "<i8"), ("tile", "<u4"), ("scale", "<f4")])
    # 800 elements on 48 cores are 17 for each core. The tiling rounds this up to 32 elements.
    assert np.frombuffer(tiling.data, fields).tolist() == [(800, 32, 0.5)]
    assert (tiling.key, tiling.block_dim, tiling.workspace_bytes, tiling.schedule_mode) == (0, 25, 0, 0)


def test_the_tiling_gets_the_chip_and_the_number_of_cores(scaled_add):
    x, y = vectors(np.float32, shape=(64, 1024))
    call = {"x": x, "y": y}, {"z": np.empty_like(x)}
    assert scaled_add.tile(*call).block_dim == 48
    assert scaled_add.tile(*call, options=Options("Ascend910B4")).block_dim == 40
    assert scaled_add.tile(*call, options=Options(most_cores=3)).block_dim == 3


@pytest.mark.long
def test_the_tiling_gets_values_of_inputs_and_the_compile_information_is_parsed_once(picked_row):
    call = {"x": rows(), "row": np.array([2])}, {"y": np.empty(7, np.float32)}
    names = ("row", "columns", "plus", "parsed", "deterministic", "unset")
    fields = np.dtype(list(zip(names, ("<i8", "<u4", "<i4", "<u4", "<i4", "<u8"), strict=True)))
    for deterministic in (False, True):
        tiling = picked_row.tile(*call, plus=5, options=Options(deterministic=deterministic))
        found = np.frombuffer(tiling.data, fields).tolist()
        # The field that the tiling does not set has undefined contents.
        assert found == [(2, 7, 5, 1, int(deterministic), 0xD7D7D7D7D7D7D7D7)]
    assert tiling.workspace_bytes == 4096  # without CANN's own 16 MiB


DEFINITION_WITH_AN_OPTIONAL_INPUT = """
#include "register/op_def_registry.h"
#include "register/op_impl_registry.h"
namespace optiling {
static ge::graphStatus tiling_of(gert::TilingContext* context) {
    context->SetBlockDim(1);
    context->SetTilingKey(context->GetInputShape(1) == nullptr ? 1 : 2);
    return ge::GRAPH_SUCCESS;
}
IMPL_OP_OPTILING(Second).Tiling(tiling_of);
}
namespace ops {
class Second : public OpDef {
public:
    explicit Second(const char* name) : OpDef(name) {
        this->Input("first").ParamType(OPTIONAL).DataType({ge::DT_FLOAT}).Format({ge::FORMAT_ND});
        this->Input("x").ParamType(REQUIRED).DataType({ge::DT_FLOAT}).Format({ge::FORMAT_ND});
        this->Output("y").ParamType(REQUIRED).DataType({ge::DT_FLOAT}).Format({ge::FORMAT_ND});
        this->AICore().AddConfig("ascend910b");
    }
};
OP_ADD(Second);
}
"""


@pytest.mark.parametrize(("generated", "key"), [(False, 1), (True, 2)])
def test_an_absent_input_keeps_its_index_in_a_call_of_a_generated_function(folder, tmp_path, generated, key):
    definition = tmp_path / "second_def.cpp"
    definition.write_text(DEFINITION_WITH_AN_OPTIONAL_INPUT)
    kernel = OPS / "negated/op_kernel/negated.cpp"  # this test does not run it
    operator = OperatorSources(kernel, definition=definition, folder=folder, generated_aclnn=generated)
    assert operator.tile({"x": X}, {"y": np.zeros_like(X)}).key == key
    assert operator.tile({"first": X, "x": X}, {"y": np.zeros_like(X)}).key == 2


def test_the_kernel_is_the_file_that_the_definition_names_for_the_soc(folder, tmp_path):
    definition = tmp_path / "negated_def.cpp"
    text = (OPS / "negated/op_host/negated_def.cpp").read_text()
    addition = (
        'OpAICoreConfig other; other.ExtendCfgInfo("opFile.value", "negated_apt"); '
        'this->AICore().AddConfig("ascend950", other);'
    )
    end = text.index('.AddConfig("ascend910_93");') + len('.AddConfig("ascend910_93");')
    definition.write_text(text[:end] + addition + text[end:])
    assert negated_sources(folder, definition=definition).soc == "ascend910b"
    with pytest.raises(
        ValueError, match=r"kernel must be negated_apt\.cpp, .*for ascend950, but got .*negated\.cpp"
    ):
        negated_sources(folder, definition=definition, soc="ascend950")


def test_template_arguments_are_encoded_by_their_index(picked_row):
    """The index of the template argument ``plus`` is in bits 0 to 3 of the key; ``doubled`` is bit 4."""
    call = {"x": rows(), "row": np.array([2])}, {"y": np.empty(7, np.float32)}
    assert [picked_row.tile(*call, plus=p, doubled=d).key for p in (0, 5) for d in (False, True)] == [
        0, 16, 1, 17,
    ]  # fmt: skip


DECLARED = """
@declared @UINT "mode" 4(1, 3, 5u, 9) @ DTYPE "type" 8(C_DT_FLOAT, ge::C_DT_BF16)
          @ UINT "size" 8(0, 1, 2, 4) @end
@selected @combination @ UINT "mode" 0(1, 5, 9, NO_NUMBER) @ DTYPE "type" 0(C_DT_FLOAT, C_DT_BF16)
          @ UINT "size" 0(2, 1, 3, 4, 2) @ TILING_STRUCT "" 0(Other)
          @combination @ UINT "mode" 0(1, 3) @ DTYPE "type" 0(C_DT_FLOAT) @ UINT "size" 0(0, 1, 2, 4) @end
"""


@pytest.mark.parametrize(
    ("key", "arguments", "struct"),
    [
        (1 | 0 << 4 | 0 << 12, ("5", "0", "2"), "Other"),
        (2 | 27 << 4 | 1 << 12, ("9", "27", "3"), "Other"),
        (0 | 0 << 4 | 2 << 12, ("3", "0", "4"), ""),
        (0 | 27 << 4 | 2 << 12, None, ""),  # mode 3 only with float
        (3 | 0 << 4 | 2 << 12, None, ""),  # there is no fourth mode
        (1 | 0 << 4 | 0 << 12 | 1 << 20, None, ""),  # bits above the last argument
    ],
)
def test_a_key_is_decoded_by_the_declaration(key, arguments, struct):
    declared = read_declarations(DECLARED)
    if arguments is None:
        with pytest.raises(ValueError, match=f"tiling key must be one of ASCENDC_TPL_SEL but got {key}:"):
            declared.decode(key)
    else:
        found = declared.decode(key)
        assert (found.arguments, found.tiling_struct) == (arguments, struct)


def test_a_kernel_without_declarations_has_none():
    assert read_declarations("int x;") is None


# ---- kernels -------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_call_gives_the_results_of_the_kernel(scaled_add, dtype, has_bias):
    x, y, bias = vectors(dtype, 3)
    z = np.empty_like(x)
    report = scaled_add.run({"x": x, "y": y, "bias": bias if has_bias else None}, {"z": z}, scale=0.5)
    expected = x + dtype(0.5) * y  # rounded after each step, as the kernel does
    assert np.array_equal(z, expected + bias if has_bias else expected)
    assert (report.tiling.key, report.tiling.block_dim) == (int(has_bias), 25)
    assert report.column == dict.fromkeys(["x", "y", "bias", "z"], np.dtype(dtype).name)
    assert (report.errors, report.warnings, report.summary["cores"]) == ([], [], 25)


def test_a_call_of_empty_tensors_computes_nothing(scaled_add):
    x, y = vectors(np.float32, shape=(0, 5))
    report = scaled_add.run({"x": x, "y": y}, {"z": np.empty_like(x)})
    assert (report.errors, report.warnings, report.tiling.block_dim) == ([], [], 1)


@pytest.mark.long
@pytest.mark.parametrize(("plus", "doubled"), [(0, False), (5, False), (5, True)])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_template_arguments_reach_the_kernel(picked_row, dtype, plus, doubled):
    y = np.zeros(7, dtype)
    picked_row.run({"x": rows(dtype), "row": np.array([1])}, {"y": y}, plus=plus, doubled=doubled)
    assert np.array_equal(y, rows(dtype)[1] * (1 + doubled) + plus)


def test_a_combination_that_the_kernel_does_not_select_has_no_kernel(picked_row):
    with pytest.raises(ValueError, match=re.escape("one of ASCENDC_TPL_SEL but got 16: plus 3, doubled 1.")):
        picked_row.run({"x": rows(), "row": np.array([1])}, {"y": np.zeros(7, np.float32)}, doubled=True)


@pytest.mark.long
def test_an_input_that_is_also_an_output_is_written_in_place(folder):
    x, expected = rows()[:, :8].copy().ravel()[:16].copy(), -rows().ravel()[:16]
    tiling = np.array([(16,)], [("count", "<u4")])[0]
    negated_sources(folder).run({"x": x}, {}, tiling=Tiling(tiling, key=5))
    assert np.array_equal(x, expected)


def written_input(folder, tmp_path):
    """Negated without the output that is also its input: the kernel writes its input all the same."""
    definition = tmp_path / "negated_def.cpp"
    text = (OPS / "negated/op_host/negated_def.cpp").read_text()
    output = text.index('        this->Output("x")')
    end = text.index("\n", output) + 1
    other = (
        '        this->Output("y").ParamType(REQUIRED).DataType({ge::DT_FLOAT}).Format({ge::FORMAT_ND});\n'
    )
    definition.write_text(text[:output] + other + text[end:])
    kernel = tmp_path / "negated.cpp"
    text = (OPS / "negated/op_kernel/negated.cpp").read_text()
    kernel.write_text(text.replace("GM_ADDR x_ref", "GM_ADDR y").replace("x_ref", "x").replace("X_REF", "X"))
    return OperatorSources(kernel, definition=definition, operator="Negated", folder=folder)


@pytest.mark.long
def test_an_input_that_the_kernel_writes_must_be_named(folder, tmp_path):
    operator = written_input(folder, tmp_path)
    x, y = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    call = {"inputs": {"x": x}, "outputs": {"y": y}, "tiling": Tiling(np.uint32(16).tobytes(), key=5)}
    with pytest.raises(KernelBroken, match="SIM-GM-01"):
        operator.run(**call)
    operator.run(**call, written_inputs=["x"])
    assert np.array_equal(x, -np.arange(16))
    with pytest.raises(ValueError, match=r"written_inputs must be inputs but got z\."):
        operator.run(**call, written_inputs=["z"])
    x.flags.writeable = False
    with pytest.raises(ValueError, match="x must be contiguous and writeable"):
        operator.run(**call, written_inputs=["x"])


@pytest.mark.long
def test_a_kernel_file_may_hold_a_function_that_launches_the_kernel(folder, tmp_path):
    """Two files of hicann/ops-nn do. The simulator never calls it. Reports name the kernel file's lines."""
    kernel = tmp_path / "negated.cpp"
    text = (OPS / "negated/op_kernel/negated.cpp").read_text()
    launcher = (
        "void run(uint8_t* x, void* stream) { negated<<<8, nullptr, stream>>>(x, x, nullptr, nullptr); }\n"
    )
    kernel.write_text(text + launcher)
    x = np.arange(16, dtype=np.float32)
    negated_sources(folder, kernel=kernel).run({"x": x}, {}, tiling=Tiling(np.uint32(16).tobytes(), key=5))
    assert np.array_equal(x, -np.arange(16))
    line = text.splitlines().index("    DataCopy(tile, from, td.count);") + 1
    with pytest.raises(KernelBroken, match=rf"\bnegated\.cpp:{line}\b"):
        negated_sources(folder, kernel=kernel).run(
            {"x": x}, {}, tiling=Tiling(np.uint32(24).tobytes(), key=5)
        )


@pytest.mark.long
def test_get_tiling_data_reads_the_default_struct_for_a_key_with_its_own_struct(folder, tmp_path):
    """The page GET_TILING_DATA: with several registered structs, the macro returns the default struct."""
    kernel, host = tmp_path / "negated.cpp", tmp_path / "negated_tiling.cpp"
    text = (OPS / "negated/op_kernel/negated.cpp").read_text()
    kernel.write_text(
        text.replace("    REGISTER_TILING_DEFAULT(NegatedTilingData);\n", "").replace(
            "struct NegatedTilingData {\n    uint32_t count;\n};\n", ""
        )
    )
    host.write_text(
        '#include "register/tilingdata_base.h"\nnamespace optiling {\n'
        "BEGIN_TILING_DATA_DEF(ByDefault)\nTILING_DATA_FIELD_DEF(uint64_t, count);\nEND_TILING_DATA_DEF;\n"
        "REGISTER_TILING_DATA_CLASS(Negated, ByDefault)\n"
        "BEGIN_TILING_DATA_DEF(OfKey)\nTILING_DATA_FIELD_DEF_ARR(uint64_t, 2, rows);\nEND_TILING_DATA_DEF;\n"
        "REGISTER_TILING_DATA_CLASS(Negated_5, OfKey)\n}\n"
    )
    x = np.arange(16, dtype=np.float32)
    operator = negated_sources(folder, kernel=kernel, tiling=[host])
    operator.run({"x": x}, {}, tiling=Tiling(np.uint64(16).tobytes(), key=5))
    assert np.array_equal(x, -np.arange(16))


def test_a_chip_of_another_soc_needs_a_definition_for_it(folder):
    assert negated_sources(folder, soc="ascend910_93").soc == "ascend910_93"
    with pytest.raises(
        ValueError, match=r"soc must be one that Negated is defined for, ascend910_93, ascend910b,"
    ):
        negated_sources(folder, soc="ascend310p")


def test_a_violation_names_the_line_of_the_kernel(folder):
    x = np.ones(16, np.float32)
    tiling = Tiling(np.uint32(24).tobytes(), key=5)
    with pytest.raises(KernelBroken, match=r"negated\.cpp:\d+"):
        negated_sources(folder).run({"x": x}, {}, tiling=tiling)
    report = negated_sources(folder).run({"x": x}, {}, tiling=tiling, check=False)
    assert report.errors[0]["rule"] == "SIM-BOUNDS-03"


@pytest.mark.long
def test_synchronisation_is_inserted_unless_it_is_turned_off(folder, tmp_path):
    """CANN's build inserts it between instructions of the vector pipe."""
    source = tmp_path / "scaled_add.cpp"
    text = (EXAMPLE / "op_kernel/scaled_add.cpp").read_text()
    source.write_text(text.replace("PipeBarrier<PIPE_V>();", ""))
    x, y = vectors(np.float32)
    z = np.zeros_like(x)
    operator = scaled_add_of(folder, kernel=source)
    operator.run({"x": x, "y": y}, {"z": z})
    assert np.array_equal(z, x + y)
    with pytest.raises(KernelBroken, match=r"SIM-HAZARD-\d+"):
        scaled_add_of(folder, kernel=source, auto_sync=False).run({"x": x, "y": y}, {"z": z})


@pytest.mark.long
def test_a_kernel_that_does_not_compile_names_its_own_file(folder, tmp_path):
    shutil.copytree(OPS / "picked_row", tmp_path / "ops" / "picked_row")
    sources = tmp_path / "ops" / "picked_row"
    kernel = sources / "op_kernel/picked_row.cpp"
    with pytest.raises(CompileFailed, match=re.escape("row_copy.h: No such file")) as caught:
        OperatorSources(
            kernel,
            definition=sources / "op_host/picked_row_def.cpp",
            tiling=[sources / f"op_host/{name}.cpp" for name in ("picked_row_tiling", "failures")],
            folder=folder,
        ).run({"x": rows(), "row": np.array([1])}, {"y": np.zeros(7, np.float32)})
    assert str(kernel) in str(caught.value)


def test_an_error_in_the_kernel_names_its_own_file(folder, tmp_path):
    """The compiler gets a symbolic link, as in CANN's build. The error must name the file."""
    kernel = tmp_path / "ops/negated/op_kernel/negated.cpp"
    kernel.parent.mkdir(parents=True)
    kernel.write_text((OPS / "negated/op_kernel/negated.cpp").read_text() + "nonsense;\n")
    with pytest.raises(CompileFailed, match="nonsense") as caught:
        negated_sources(folder, kernel=kernel).run({"x": X}, {}, tiling=Tiling(bytes(4)))
    assert f"{kernel}:" in str(caught.value)


# ---- host code that fails ------------------------------------------------------------------------------


def tile_with_failure(picked_row, how):
    y = np.zeros(7, np.float32)
    return picked_row.tile({"x": rows(), "row": np.array([1])}, {"y": y}, fails=how)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("two lines", "[PickedRow] PickedRow is wrong\nso the call fails"),
        ("a report", "[PickedRow] EZ9999: x has 3 rows"),
        ("nothing", "[PickedRow] the tiling failed without a message"),
    ],
)
def test_a_refusal_has_the_lines_that_the_tiling_logged(picked_row, how, message):
    with pytest.raises(Refused) as caught:
        tile_with_failure(picked_row, how)
    assert (caught.value.status, str(caught.value)) == (561002, message)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("abort", "[sim] tiling must return but ended its process with signal SIGABRT.\nthe tiling gives up"),
        ("exit", "[sim] tiling must return but ended its process with exit status 7."),
        ("throw", "[sim] thrown by the tiling."),
    ],
)
def test_a_tiling_that_does_not_return_is_an_error_and_the_next_call_runs(picked_row, how, message):
    with pytest.raises(HostCodeFailed) as caught:
        tile_with_failure(picked_row, how)
    assert str(caught.value) == message
    assert tile_with_failure(picked_row, "").block_dim == 1


def test_what_the_tiling_prints_is_no_reply(picked_row):
    assert tile_with_failure(picked_row, "output") == tile_with_failure(picked_row, "")


def test_an_error_has_the_output_of_its_own_call_only(picked_row):
    tile_with_failure(picked_row, "output")
    with pytest.raises(HostCodeFailed) as caught:
        tile_with_failure(picked_row, "exit")
    assert str(caught.value) == "[sim] tiling must return but ended its process with exit status 7."


def test_an_operator_without_a_tiling_function_needs_the_argument_tiling(folder):
    with pytest.raises(HostCodeFailed, match="operator Negated must have a tiling but registers none"):
        negated_sources(folder).run({"x": np.ones(16, np.float32)}, {})


def test_host_code_must_be_complete(folder):
    with pytest.raises(CompileFailed, match=r"tiling must define optiling::Succeeds.* Add the files that do"):
        OperatorSources(
            OPS / "picked_row/op_kernel/picked_row.cpp",
            definition=OPS / "picked_row/op_host/picked_row_def.cpp",
            tiling=[OPS / "picked_row/op_host/picked_row_tiling.cpp"],
            folder=folder,
        )


# ---- arguments -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"inputs": {"x": X}}, "y must be given but got nothing."),
        ({"inputs": {"x": X, "y": X, "w": X}}, "inputs must be x, y, bias but got w."),
        ({"outputs": {}}, "z must be given but got nothing."),
        ({"outputs": {"q": X}}, "outputs must be z but got q."),
        ({"inputs": {"x": X, "y": [X]}}, "y must be an array but got list."),
        ({"inputs": {"x": X, "y": X.astype(np.float16)}}, "but got x float32, y float16, z float32."),
        ({"inputs": {"x": X, "y": X.astype(np.complex64)}}, "but got complex64."),
        ({"outputs": {"z": X.T}}, "z must be contiguous and writeable but got strides (4, 12)."),
        ({"scales": 1}, "attributes must be scale but got scales."),
        ({"scale": "1"}, "scale must be a number but got str."),
        ({"formats": {"x": "NH"}}, "formats must name a tensor and one of NCHW"),
        ({"formats": {"x": "NHWC"}}, "tensors must have the types of one of the kernels"),
        ({"sums": ["x"]}, "sums must be outputs but got x."),
        (
            {"options": Options("Ascend310P3")},
            "options.soc must be a chip of ascend910b but got Ascend310P3.",
        ),
    ],
)
def test_an_argument_that_does_not_fit_is_named(scaled_add, changed, message):
    call = {"inputs": {"x": X, "y": X}, "outputs": {"z": np.zeros_like(X)}} | changed
    with pytest.raises((ValueError, TypeError), match=re.escape(message)) as caught:
        scaled_add.run(**call)
    assert str(caught.value).startswith("[sim] ")


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (None, "axes must be given but got nothing."),
        (3, "axes must be a list but got int."),
        ([0, 1.5], "axes must be an integer in the int64 range but got 1.5."),
        ([2**63], "axes must be an integer in the int64 range but got 9223372036854775808."),
    ],
)
def test_a_required_list_attribute_must_be_given_as_a_list(folder, axes, message):
    operator = negated_sources(folder, operator="Untouched")
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        operator.tile({"parts": [X, X]}, {"y": np.zeros(2, np.float32)}, axes=axes)


def test_a_dynamic_input_must_be_given_as_a_list_of_arrays(folder):
    operator = negated_sources(folder, operator="Untouched")
    with pytest.raises(TypeError, match="parts must be a list of arrays but got ndarray"):
        operator.tile({"parts": X}, {"y": np.zeros(2, np.float32)}, axes=[0])


@pytest.mark.parametrize("operator", [None, "Other"])
def test_the_caller_must_choose_an_operator_if_there_are_several(folder, operator):
    with pytest.raises(ValueError, match=f"operator must be one of Negated, Untouched but got {operator}"):
        negated_sources(folder, operator=operator)


def test_a_file_that_is_not_there_is_named(folder):
    with pytest.raises(ValueError, match=r"definition must be a file that can be read but got .*none.cpp"):
        negated_sources(folder, definition=OPS / "none.cpp")


def test_int4_is_packed_with_the_first_element_in_the_low_bits():
    x = np.array([[1, -2, 7], [-8, 0, 3]]).astype(ml_dtypes.int4)
    device = device_array(x)
    assert device.tolist() == [0xE1, 0x87, 0x30]
    back = np.zeros_like(x)
    copy_back(back, device)
    assert np.array_equal(back, x)


def test_int4_outputs_are_copied_back():
    definition = Definition("Some", "some", "", (), (Parameter("y", 2, (29,), (2,), False),), ())
    y = np.zeros((1, 3)).astype(ml_dtypes.int4)
    arguments = KernelArguments(*tensors_of(definition, {}, {"y": y}), ())
    arguments.arguments[0].array[...] = [0xE1, 0x07]
    arguments.unpack_results()
    assert y.astype(int).tolist() == [[1, -2, 7]]


def test_the_public_names_are_in_the_package():
    assert {"OperatorReport", "OperatorSources", "Tiling"} <= set(ascend_sim.__all__)
