"""The table of supported element types (ascendc/availability.h): each cell matches the calls that compile."""

from __future__ import annotations

import itertools
import re

import ascend_sim
import pytest
import test_refusals
from ascend_sim import library
from test_refusals import SOCS

# The C++ type of each element; `Other` represents all structures.
TYPES = {
    name: f"{name}_t" for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
}
TYPES |= {"bool": "bool", "half": "half", "bfloat16": "bfloat16_t", "float": "float", "double": "double"}
TYPES |= {"int4": "int4b_t", "other": "Other"}

BINARY = "{name}(t<{T}>(), t<{T}>(), t<{T}>(), 64)"
SCALAR = "{name}(t<{T}>(), t<{T}>(), v<{T}>(), 64)"
UNARY = "{name}(t<{T}>(), t<{T}>(), 64)"
COMPARE_SCALAR = "{name}(t<uint8_t>(), t<{T}>(), v<{T}>(), CMPMODE::EQ, 128)"
REDUCE = "{name}<{T}>(t<{T}>(), t<{T}>(), 64, 1, 1, 1, 8)"
REDUCE_ALIAS = "{name}<ReduceType::SUM, {T}, {T}>(t<{T}>(), t<{T}>(), 64, 1, 1, 1, 8)"
INDEXED = "{name}(t<{T}>(), t<{T}>(), t<uint32_t>(), 0, 64)"
PROGRESSION = "{name}(t<{T}>(), v<{T}>(), v<{T}>(), 64)"
TWO_TO_TWO = "{name}(t<{T}>(), t<{T}>(), t<{T}>(), t<{T}>(), 64)"
WITH_MEMORY = "{name}(t<{T}>(), t<{T}>(), t<uint8_t>(), 64u)"
WITHOUT_MEMORY = "{name}(t<{T}>(), t<{T}>(), 64u)"
TWO_WITH_MEMORY = "{name}(t<{T}>(), t<{T}>(), t<{T}>(), t<uint8_t>(), 64u)"

# A call of each library function.
LIBRARY_CALLS = {
    **dict.fromkeys(("Ceil", "Floor", "Round", "Trunc", "Frac", "Sign"), WITH_MEMORY),
    **dict.fromkeys(("Sigmoid", "Gelu", "FasterGelu", "FasterGeluV2", "Erf", "Erfc"), WITH_MEMORY),
    **dict.fromkeys(("Sin", "Cos", "Tan", "Asin", "Acos", "Atan"), WITH_MEMORY),
    **dict.fromkeys(("Tanh", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh"), WITH_MEMORY),
    **dict.fromkeys(("Log", "Log2", "Log10", "Silu"), WITHOUT_MEMORY),
    **dict.fromkeys(("Fmod", "Xor", "Power", "GeGLU", "ReGlu"), TWO_WITH_MEMORY),
    **dict.fromkeys(("ClampMax", "ClampMin"), "{name}(t<{T}>(), t<{T}>(), t<uint8_t>(), v<{T}>(), 64u)"),
    "Swish": "Swish(t<{T}>(), t<{T}>(), 64u, v<{T}>())",
    "SwiGLU": "SwiGLU(t<{T}>(), t<{T}>(), t<{T}>(), 1.0f, t<uint8_t>(), 64u)",
    "Exp with taylorExpandLevel": "Exp<{T}, 5>(t<{T}>(), t<{T}>(), t<uint8_t>(), 64u)",
    "Broadcast": "Broadcast<{T}, 1, 0>(t<{T}>(), t<{T}>(), shape, shape, t<uint8_t>())",
    "SoftMax": "SoftMax<{T}>(t<{T}>(), t<{T}>(), t<uint8_t>(), v<SoftMaxTiling>())",
    "LogSoftMax": "LogSoftMax(t<{T}>(), t<{T}>(), t<{T}>(), t<{T}>(), t<uint8_t>(), v<LogSoftMaxTiling>())",
    "SimpleSoftMax": "SimpleSoftMax<{T}>(" + "t<{T}>(), " * 4 + "t<uint8_t>(), v<SoftMaxTiling>())",
    "AdjustSoftMaxRes": "AdjustSoftMaxRes(t<{T}>(), t<{T}>(), 0u, v<{T}>(), v<SoftMaxShapeInfo>())",
    **dict.fromkeys(
        ("SoftmaxFlash", "SoftmaxFlashV2"),
        "{name}<{T}>(" + "t<{T}>(), " * 7 + "t<uint8_t>(), v<SoftMaxTiling>())",
    ),
    **dict.fromkeys(
        ("SoftmaxGrad", "SoftmaxGradFront"),
        "{name}(" + "t<{T}>(), " * 3 + "t<uint8_t>(), v<SoftMaxTiling>())",
    ),
    "LayerNorm": "LayerNorm(" + "t<{T}>(), " * 6 + "t<uint8_t>(), v<{T}>(), l<LayerNormTiling>())",
    "LayerNorm with outputRstd": "LayerNorm<{T}, {T}>(t<{T}>(), t<float>(), t<float>(), "
    "t<{T}>(), t<{T}>(), t<{T}>(), 1.0f, t<uint8_t>(), v<LayerNormPara>(), v<LayerNormSeparateTiling>())",
    "Normalize": "Normalize<{T}, {T}>(t<{T}>(), t<float>(), t<float>(), t<float>(), "
    "t<{T}>(), t<{T}>(), t<{T}>(), t<uint8_t>(), 1.0f, v<NormalizePara>())",
    "RmsNorm": "RmsNorm(t<{T}>(), t<{T}>(), t<{T}>(), t<uint8_t>(), v<{T}>(), v<RmsNormTiling>())",
    "DeepNorm": "DeepNorm(" + "t<{T}>(), " * 7 + "t<uint8_t>(), v<{T}>(), v<{T}>(), l<DeepNormTiling>())",
    "BatchNorm": "BatchNorm(" + "t<{T}>(), " * 6 + "t<uint8_t>(), v<{T}>(), l<BatchNormTiling>())",
    "GroupNorm": "GroupNorm(" + "t<{T}>(), " * 6 + "t<uint8_t>(), v<{T}>(), l<GroupNormTiling>())",
    "WelfordUpdate": "WelfordUpdate<{T}, float>("
    + "t<float>(), " * 4
    + "t<{T}>(), t<uint8_t>(), v<WelfordUpdateParam>())",
    "LayerNormGrad": "LayerNormGrad("
    + "t<{T}>(), " * 7
    + "t<uint8_t>(), v<{T}>(), l<LayerNormGradTiling>())",
    "LayerNormGradBeta": "LayerNormGradBeta("
    + "t<{T}>(), " * 4
    + "t<uint8_t>(), v<LayerNormGradBetaTiling>())",
    **{
        f"Reduce{kind} of rows or columns": f"Reduce{kind}<{{T}}, Pattern::Reduce::AR>"
        "(t<{T}>(), t<{T}>(), t<uint8_t>(), shape, true)"
        for kind in ("Sum", "Mean", "Max", "Min", "Prod", "Any", "All")
    },
    **dict.fromkeys(("Sum", "Mean"), "{name}(t<{T}>(), t<{T}>(), t<uint8_t>(), v<{name}Params>())"),
    "AscendQuant": "AscendQuant(t<int8_t>(), t<{T}>(), t<uint8_t>(), 1.0f, 0.0f, 64u)",
    "AscendDequant to": "AscendDequant(t<{T}>(), t<int32_t>(), scales<{T}>(), t<uint8_t>(), "
    "v<DequantParams>())",
    "AscendAntiQuant to": "AscendAntiQuant<int8_t, {T}, false>(t<{T}>(), t<int8_t>(), v<{T}>(), v<{T}>(), "
    "t<uint8_t>(), 64u)",
}

# A call of each instruction, with element type T.
CALLS = {
    **LIBRARY_CALLS,
    **dict.fromkeys(
        ("Add", "Sub", "Mul", "Max", "Min", "Div", "And", "Or", "MulAddDst", "FusedMulAdd"), BINARY
    ),
    **dict.fromkeys(("AddRelu", "SubRelu", "MulAddRelu", "FusedMulAddRelu"), BINARY),
    **{
        f"{name} to {text}, of": f"{name}(t<{target}>(), t<{{T}}>(), t<{{T}}>(), 64)"
        for name, text, target in (
            ("AddReluCast", "int8", "int8_t"),
            ("AddReluCast", "half", "half"),
            ("SubReluCast", "int8", "int8_t"),
            ("SubReluCast", "half", "half"),
            ("MulCast", "int8 or uint8", "uint8_t"),
            ("AddDeqRelu", "half", "half"),
        )
    },
    "CastDequant to int8 or uint8, of": "CastDequant<int8_t, {T}>(t<int8_t>(), t<{T}>(), 64)",
    "CastDequant to half, of": "CastDequant<half, {T}>(t<half>(), t<{T}>(), 64)",
    "Truncate": "Truncate<{T}, RoundMode::CAST_RINT>(t<{T}>(), t<{T}>(), 64)",
    **dict.fromkeys(("Adds", "Muls", "Maxs", "Mins", "Axpy", "LeakyRelu", "ShiftLeft", "ShiftRight"), SCALAR),
    **dict.fromkeys(("Abs", "Exp", "Ln", "Sqrt", "Rsqrt", "Reciprocal", "Relu", "Not", "Neg"), UNARY),
    "Axpy into float, of": "Axpy(t<float>(), t<{T}>(), v<{T}>(), 64)",
    "MulAddDst into float, of": "MulAddDst(t<float>(), t<{T}>(), t<{T}>(), 64)",
    "Compare": "Compare(t<uint8_t>(), t<{T}>(), t<{T}>(), CMPMODE::EQ, 128)",
    **dict.fromkeys(("Compares", "CompareScalar"), COMPARE_SCALAR),
    "Select": "Select(t<{T}>(), t<uint8_t>(), t<{T}>(), t<{T}>(), SELMODE::VSEL_TENSOR_TENSOR_MODE, 64)",
    **dict.fromkeys(("WholeReduceSum", "BlockReduceSum", "PairReduceSum"), REDUCE),
    "RepeatReduceSum": "RepeatReduceSum<{T}>(t<{T}>(), t<{T}>(), 1, 64, 1, 1, 1, 8)",
    **dict.fromkeys(("ReduceRepeat", "ReduceDataBlock", "ReducePairElem"), REDUCE_ALIAS),
    **dict.fromkeys(("WholeReduceMax", "WholeReduceMin", "BlockReduceMax", "BlockReduceMin"), REDUCE),
    "ReduceRepeat to a maximum or minimum": "ReduceRepeat<ReduceType::MAX, {T}, {T}>"
    "(t<{T}>(), t<{T}>(), 64, 1, 1, 1, 8)",
    **dict.fromkeys(("ReduceSum", "ReduceMax", "ReduceMin"), "{name}(t<{T}>(), t<{T}>(), t<{T}>(), 64)"),
    "GetReduceRepeatMaxMinSpr of a value": "{T} a; GetReduceRepeatMaxMinSpr(a)",
    "GetReduceRepeatMaxMinSpr of a value and its index": "{T} a, b; GetReduceRepeatMaxMinSpr(a, b)",
    "CreateVecIndex": "CreateVecIndex(t<{T}>(), v<{T}>(), 64)",
    **dict.fromkeys(("ArithProgression", "Arange"), PROGRESSION),
    "Duplicate": "Duplicate(t<{T}>(), v<{T}>(), 64)",
    "Brcb": "Brcb(t<{T}>(), t<{T}>(), 1, {{1, 8}})",
    **dict.fromkeys(("Gather", "Scatter"), INDEXED),
    "Gatherb": "Gatherb(t<{T}>(), t<{T}>(), t<uint32_t>(), 1, {{1, 8}})",
    "GatherMask": "uint64_t n; GatherMask(t<{T}>(), t<{T}>(), 1, false, 0, {{1, 1, 8, 8}}, n)",
    **dict.fromkeys(("Interleave", "DeInterleave"), TWO_TO_TWO),
    "Copy": "Copy(t<{T}>(), t<{T}>(), 32, 1, {{1, 1, 8, 8}})",
    "DataCopy": "DataCopy(t<{T}>(), g<{T}>(), 64)",
    "DataCopyPad": "DataCopyPad(g<{T}>(), t<{T}>(), DataCopyExtParams(1, 8, 0, 0, 0))",
    "SetPadValue": "SetPadValue(v<{T}>())",
    "DataCopyPad with PaddingMode::Compact": "DataCopyPad<{T}, PaddingMode::Compact>"
    "(g<{T}>(), t<{T}>(), DataCopyExtParams(1, 8, 0, 0, 0))",
    **dict.fromkeys(("SetAtomicAdd", "SetAtomicMax", "SetAtomicMin", "SetAtomicType"), "{name}<{T}>()"),
    "Fill, InitGlobalMemory": "auto x = g<{T}>(); Fill(x, 8, v<{T}>())",
    "Transpose": "Transpose(t<{T}>(), t<{T}>())",
    "Transpose with TransposeParamsExt": "Transpose(t<{T}>(), t<{T}>(), t<uint8_t>(), TransposeParamsExt())",
    "TransDataTo5HD": "uint64_t a[16]; TransDataTo5HD<{T}>(a, a, TransDataTo5HDParams())",
    "Sort32": "Sort32<{T}>(t<{T}>(), t<{T}>(), t<uint32_t>(), 1)",
    "Sort": "Sort(t<{T}>(), t<{T}>(), t<uint32_t>(), l<LocalTensor<{T}>>(), 1)",
    "MrgSort of counted lists": "MrgSort<{T}>(t<{T}>(), MrgSortSrcList<{T}>(), "
    "l<const uint16_t[4]>(), l<uint32_t[4]>(), 15, 1)",
    "Concat": "Concat(l<LocalTensor<{T}>>(), t<{T}>(), t<{T}>(), 1)",
    "Extract": "Extract(t<{T}>(), t<uint32_t>(), t<{T}>(), 1)",
    **dict.fromkeys(("MrgSort", "MrgSort4"), "{name}<{T}>(t<{T}>(), MrgSortSrcList<{T}>(), MrgSort4Info())"),
    "RpSort16": "RpSort16<{T}>(t<{T}>(), t<{T}>(), 1)",
    **dict.fromkeys(("ProposalConcat", "ProposalExtract"), "{name}<{T}>(t<{T}>(), t<{T}>(), 1, 4)"),
    "Compare into the register": "Compare(t<{T}>(), t<{T}>(), CMPMODE::LT, uint64_t(1), "
    "BinaryRepeatParams())",
    "VectorPadding": "VectorPadding(t<{T}>(), t<{T}>(), 0, false, 64)",
    "InitOutput": "InitOutput<{T}>(g<{T}>(), 8, v<{T}>())",
    "DataCacheCleanAndInvalid with DcciDst": "DataCacheCleanAndInvalid"
    "<{T}, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(g<{T}>())",
    "GlobalTensor::operator()": "(void)g<{T}>()(0)",
    "SetL2CacheHint": "auto x = g<{T}>(); x.SetL2CacheHint(CacheMode::CACHE_MODE_DISABLE)",
    "NumericLimits": "(void)NumericLimits<{T}>::Max()",
}
# With float, these calls are a plain Axpy and a plain MulAddDst.
PLAIN_FORMS = {("Axpy into float, of", "float"), ("MulAddDst into float, of", "float")}
# Instructions without an element type.
UNTYPED = {
    "DataSyncBarrier": "DataSyncBarrier<MemDsbT::DDR>()",
    "SyncAll()": "SyncAll()",
    "CrossCoreSetFlag": "CrossCoreSetFlag<0, PIPE_MTE3>(3)",
    "CrossCoreWaitFlag": "CrossCoreWaitFlag(3)",
}
UNTYPED |= {
    name: f"(void){name}()"
    for name in ("GetSubBlockNum", "GetSystemCycle", "GetUBSizeInBytes", "GetRuntimeUBSize")
}
UNTYPED |= {
    "SetSaturationFlag": "SetSaturationFlag<SaturationMode::FLOAT>(true)",
    "GetSaturationFlag": "GetSaturationFlag<SaturationMode::FLOAT>()",
    "SetCtrlSpr": "SetCtrlSpr<48, 48>(0)",
    "GetCtrlSpr": "GetCtrlSpr<48, 48>()",
}
# Rows of the table that the compiler cannot check. The simulator reports them at run time (SIM-MODE-01).
AT_RUN_TIME = {"comparisons other than EQ"}

# In the calls above, t is a tensor in UB, g a tensor in GM, v a value, l a variable.
HEAD = """#include "kernel_operator.h"
using namespace AscendC;
struct Other { uint32_t a, b; };
template <class T> LocalTensor<T>& t();
template <class T> const GlobalTensor<T>& g();
template <class T> const T& v();
template <class T> T& l();
template <class T> auto& scales() { return t<std::conditional_t<std::is_same_v<T, half>, uint64_t, T>>(); }
extern const uint32_t shape[2];
"""

# Patterns that find an instruction in refusals.cpp where the row's name alone does not identify the call.
CALL_PATTERNS = {
    "DataCopyPad with PaddingMode::Compact": r"PaddingMode::Compact",
    "DataCacheCleanAndInvalid with DcciDst": r"DcciDst::",
    "GlobalTensor::operator()": r"gm<\w+>\(\)\(0\)",
    "SyncAll()": r"\bSyncAll\(\)",
    "SetL2CacheHint": r"\.SetL2CacheHint\(",
    "NumericLimits": r"NumericLimits<",
    "Exp with taylorExpandLevel": r"\bExp<\w+, \d+>\(",
    **{
        f"Reduce{kind} of rows or columns": rf"\bReduce{kind}<\w+, Pattern::"
        for kind in ("Sum", "Mean", "Max", "Min", "Prod", "Any", "All")
    },
    "CastDequant to half, of": r"CastDequant<half, int32_t>\(",
    "GetReduceRepeatMaxMinSpr of a value": r"GetReduceRepeatMaxMinSpr\(value\)",
    "GetReduceRepeatMaxMinSpr of a value and its index": r"GetReduceRepeatMaxMinSpr\(value, index\)",
}


def types_of(soc):
    """The elements that the SoC's compiler supports."""
    return [name for name in TYPES if soc != "ascend310p" or name != "bfloat16"]


def compiles(soc, calls, tmp_path):
    """Return whether each call compiles. One run of the compiler covers all calls, each on its own line."""
    source = tmp_path / "calls.cpp"
    lines = [f"void f{i}() {{ {call}; }}" for i, call in enumerate(calls)]
    source.write_text(HEAD + "\n".join(lines) + "\n")
    pattern = test_refusals.error_line_pattern(source)
    output = test_refusals.compiler_output(source, soc)
    refused = {int(line) for line in pattern.findall(output)}
    first = HEAD.count("\n") + 1
    return [first + i not in refused for i in range(len(calls))]


def instructions_without_types():
    """Pairs of an instruction and an SoC that lacks it."""
    return [(name, soc) for soc in SOCS for name, types in ascend_sim.instructions(soc).items() if not types]


@pytest.mark.long
@pytest.mark.parametrize("soc", ["ascend910b", "ascend310p", "ascend950"])
def test_an_instruction_compiles_only_with_the_types_of_its_row(soc, tmp_path):
    table = ascend_sim.instructions(soc)
    assert set(table) == set(CALLS) | set(UNTYPED) | AT_RUN_TIME
    cells = [(name, element) for name in CALLS for element in types_of(soc)]
    cells = [cell for cell in cells if cell not in PLAIN_FORMS]
    calls = [CALLS[name].format(name=name, T=TYPES[element]) for name, element in cells]
    compiled = compiles(soc, [*calls, *UNTYPED.values()], tmp_path)
    expected = [element in table[name] or table[name] == ("any",) for name, element in cells]
    expected += [bool(table[name]) for name in UNTYPED]
    wrong = [
        cell
        for cell, is_compiled, should in zip([*cells, *UNTYPED], compiled, expected, strict=True)
        if is_compiled != should
    ]
    assert wrong == []


@pytest.mark.parametrize("soc", ["ascend910b", "ascend310p", "ascend950"])
def test_cast_compiles_only_with_the_pairs_that_have_round_modes(soc, tmp_path):
    table = ascend_sim.conversions(soc)
    pairs = [(a, b) for a in types_of(soc) for b in types_of(soc)]
    calls = [f"Cast(t<{TYPES[b]}>(), t<{TYPES[a]}>(), RoundMode::CAST_NONE, 64)" for a, b in pairs]
    compiled = compiles(soc, calls, tmp_path)
    assert list(itertools.compress(pairs, compiled)) == [p for p in pairs if table.get(p)]


def test_refusals_cpp_has_a_line_for_every_instruction_that_an_soc_lacks():
    """refusals.cpp is written independently, so it detects wrong cells of the table."""
    text = test_refusals.SOURCE.read_text().splitlines()
    missing = []
    for name, soc in instructions_without_types():
        call_pattern = re.compile(CALL_PATTERNS.get(name, rf"\b{name}(?:<[^()]*>)?\("))
        if not any(call_pattern.search(text[line - 1]) for line in test_refusals.required_messages(soc)):
            missing.append((name, soc))
    assert missing == []


def test_ascend310p_has_no_bfloat16():
    rows = [*ascend_sim.instructions("ascend310p").values()]
    assert [types for types in rows if "bfloat16" in types] == []
    assert [p for p, modes in ascend_sim.conversions("ascend310p").items() if "bfloat16" in p and modes] == []


def test_every_instruction_is_listed_once_with_a_source():
    rows = library.load().instructions()
    assert len({row["instruction"] for row in rows}) == len(rows)
    assert [row for row in rows if not row["source"]] == []
    assert all(any(row[arch] for arch in ("220", "200", "310")) for row in rows)


def test_chips_of_an_soc_have_its_instructions_and_conversions():
    assert ascend_sim.instructions("Ascend910B4") == ascend_sim.instructions("ascend910_93")
    assert ascend_sim.instructions("ASCEND910B4") == ascend_sim.instructions("ascend910b4")
    assert ascend_sim.conversions("Ascend310P") == ascend_sim.conversions("ascend310p")
    assert ascend_sim.conversions("Ascend310P3") == ascend_sim.conversions("ascend310p")


def test_an_unknown_soc_is_refused():
    with pytest.raises(ValueError, match=r"\[sim\] soc must be one of .* but got ascend310b\."):
        ascend_sim.instructions("ascend310b")
