// Table of the element types that each instruction takes on each SoC: one row per instruction; an empty cell if the SoC
// lacks the instruction. The headers' static_asserts use the table, docs/kernels.md lists it, and a test compiles every
// instruction with every type on every SoC. A second table has the round modes of conversions.
//
// The table omits calls that every SoC supports for every type (queues, flags, barriers, masks, scalar accesses). On
// Ascend910B, 910_93 and 310P a cell has the types of the vendor's page, with two exceptions. Types that C++ lacks (an
// 8-bit float) are omitted, and so is bfloat16 on Ascend310P, whose compiler lacks it even if a page lists it
// (Duplicate). On Ascend950, a cell has the types that both the SoC and the simulator support. The pages list more: 8-
// and 64-bit types in count forms, integers of Div, Abs and sums.
//
// Sources: the named page of the vendor's API reference. "support" is a page's list of products, "notes" a section of
// the project's notes on the architecture.
#pragma once

#include <cstdint>

#include "ascendc/library/availability.h"

namespace ascend_sim {

enum class Element : uint8_t {
    Bool,
    Int8,
    Uint8,
    Int16,
    Uint16,
    Half,
    Bfloat16,
    Int32,
    Uint32,
    Float,
    Int64,
    Uint64,
    Double,
    Int4,
    Other  // structures and all other types
};
constexpr const char* kElementNames[] = {"bool",   "int8",  "uint8", "int16",  "uint16", "half", "bfloat16", "int32",
                                         "uint32", "float", "int64", "uint64", "double", "int4", "other"};
constexpr int kElements = sizeof kElementNames / sizeof *kElementNames;

using Elements = uint32_t;  // a set of Element
constexpr Elements set_of(Element element) { return 1u << uint32_t(element); }

namespace cell {
constexpr Elements kNone = 0, kAny = (1u << kElements) - 1;  // kAny: any type, also for an API without types
constexpr Elements kBool = set_of(Element::Bool), kInt8 = set_of(Element::Int8), kUint8 = set_of(Element::Uint8),
                   kInt16 = set_of(Element::Int16), kUint16 = set_of(Element::Uint16), kHalf = set_of(Element::Half),
                   kBfloat16 = set_of(Element::Bfloat16), kInt32 = set_of(Element::Int32),
                   kUint32 = set_of(Element::Uint32), kFloat = set_of(Element::Float), kInt64 = set_of(Element::Int64);
constexpr Elements kInt8s = kInt8 | kUint8, kInt16s = kInt16 | kUint16, kInt32s = kInt32 | kUint32,
                   kInt64s = kInt64 | set_of(Element::Uint64);
constexpr Elements kFloating = kHalf | kFloat;
constexpr Elements kSigned = kFloating | kInt16 | kInt32;   // types of most arithmetic
constexpr Elements kWords = kFloating | kInt16s | kInt32s;  // 16 and 32 bits, without bfloat16
constexpr Elements kAllWords = kWords | kBfloat16;
constexpr Elements kNumbers = kAllWords | kInt8s | kInt64s;
}  // namespace cell

// ROW(identifier, name, Ascend910B and 910_93, Ascend310P, Ascend950, source)
#define ASCEND_SIM_INSTRUCTIONS(ROW)                                                                                  \
    ROW(Add, "Add", kSigned, kSigned, kAllWords, "Add")                                                               \
    ROW(Sub, "Sub", kSigned, kSigned, kAllWords, "Sub")                                                               \
    ROW(Mul, "Mul", kSigned, kSigned, kAllWords, "Mul")                                                               \
    ROW(Max, "Max", kSigned, kSigned, kAllWords, "Max")                                                               \
    ROW(Min, "Min", kSigned, kSigned, kAllWords, "Min")                                                               \
    ROW(Div, "Div", kFloating, kFloating, kFloating, "Div")                                                           \
    ROW(And, "And", kInt16s, kInt16s, kInt16s | kInt32s, "And")                                                       \
    ROW(Or, "Or", kInt16s, kInt16s, kInt16s | kInt32s, "Or")                                                          \
    ROW(Not, "Not", kInt16s, kInt16s, kInt16s | kInt32s, "Not")                                                       \
    ROW(Adds, "Adds", kSigned, kSigned, kSigned | kBfloat16, "Adds")                                                  \
    ROW(Muls, "Muls", kSigned, kSigned, kSigned | kBfloat16, "Muls")                                                  \
    ROW(Maxs, "Maxs", kSigned, kSigned, kSigned | kBfloat16, "Maxs")                                                  \
    ROW(Mins, "Mins", kSigned, kSigned, kSigned | kBfloat16, "Mins")                                                  \
    ROW(Axpy, "Axpy", kFloating, kFloating, kFloating | kBfloat16, "Axpy")                                            \
    ROW(AxpyToFloat, "Axpy into float, of", kHalf, kHalf, kHalf, "Axpy")                                              \
    ROW(MulAddDst, "MulAddDst", kFloating, kFloating, kFloating, "MulAddDst")                                         \
    ROW(MulAddDstToFloat, "MulAddDst into float, of", kHalf, kHalf, kHalf, "MulAddDst")                               \
    ROW(FusedMulAdd, "FusedMulAdd", kFloating, kFloating, kFloating | kBfloat16, "FusedMulAdd")                       \
    ROW(Abs, "Abs", kFloating, kFloating, kFloating, "Abs")                                                           \
    ROW(Exp, "Exp", kFloating, kFloating, kFloating, "Exp")                                                           \
    ROW(Ln, "Ln", kFloating, kFloating, kFloating, "Ln")                                                              \
    ROW(Sqrt, "Sqrt", kFloating, kFloating, kFloating, "Sqrt")                                                        \
    ROW(Rsqrt, "Rsqrt", kFloating, kFloating, kFloating, "Rsqrt")                                                     \
    ROW(Reciprocal, "Reciprocal", kFloating, kFloating, kFloating, "Reciprocal")                                      \
    ROW(LeakyRelu, "LeakyRelu", kFloating, kFloating, kFloating, "LeakyRelu")                                         \
    ROW(AddRelu, "AddRelu", kFloating | kInt16, kFloating | kInt16, kFloating | kInt16, "AddRelu")                    \
    ROW(SubRelu, "SubRelu", kFloating | kInt16, kFloating | kInt16, kFloating | kInt16, "SubRelu")                    \
    ROW(MulAddRelu, "MulAddRelu", kFloating, kFloating, kFloating, "MulAddRelu")                                      \
    ROW(FusedMulAddRelu, "FusedMulAddRelu", kFloating, kFloating, kFloating, "MulAddRelu")                            \
    ROW(AddReluCastToInt8, "AddReluCast to int8, of", kHalf | kInt16, kHalf | kInt16, kHalf | kInt16, "AddReluCast")  \
    ROW(AddReluCastToHalf, "AddReluCast to half, of", kFloat, kFloat, kFloat, "AddReluCast")                          \
    ROW(SubReluCastToInt8, "SubReluCast to int8, of", kHalf | kInt16, kHalf | kInt16, kHalf | kInt16, "SubReluCast")  \
    ROW(SubReluCastToHalf, "SubReluCast to half, of", kFloat, kFloat, kFloat, "SubReluCast")                          \
    ROW(MulCast, "MulCast to int8 or uint8, of", kHalf, kHalf, kHalf, "MulCast")                                      \
    ROW(AddDeqRelu, "AddDeqRelu to half, of", kInt32, kInt32, kInt32, "AddDeqRelu")                                   \
    ROW(CastDequantTo8Bits, "CastDequant to int8 or uint8, of", kInt16, kInt16, kInt16, "CastDequant")                \
    ROW(CastDequantToHalf, "CastDequant to half, of", kInt32, kNone, kInt32, "CastDequant")                           \
    ROW(Truncate, "Truncate", kNone, kNone, kFloating | kBfloat16, "Truncate (ISASI)")                                \
    ROW(Relu, "Relu", kFloating | kInt32, kFloating | kInt32, kFloating | kInt32, "Relu")                             \
    ROW(Neg, "Neg", kNone, kNone, kSigned, "Neg (ISASI)")                                                             \
    ROW(ShiftLeft, "ShiftLeft", kInt16s | kInt32s, kNone, kInt16s | kInt32s, "ShiftLeft")                             \
    ROW(ShiftRight, "ShiftRight", kInt16s | kInt32s, kNone, kInt16s | kInt32s, "ShiftRight")                          \
    ROW(Compare, "Compare", kFloating | kInt32, kFloating, kWords, "Compare")                                         \
    ROW(Compares, "Compares", kFloating | kInt32, kFloating, kWords, "Compares")                                      \
    ROW(CompareScalar, "CompareScalar", kFloating | kInt32, kFloating, kWords, "Compares")                            \
    ROW(CompareOrder, "comparisons other than EQ", kFloating, kFloating, kWords, "Compare, Compares")                 \
    ROW(Select, "Select", kFloating, kFloating, kAllWords, "Select")                                                  \
    ROW(WholeReduceSum, "WholeReduceSum", kFloating, kFloating, kFloating, "ReduceRepeat")                            \
    ROW(ReduceRepeat, "ReduceRepeat", kFloating, kFloating, kFloating, "ReduceRepeat")                                \
    ROW(RepeatReduceSum, "RepeatReduceSum", kFloating, kFloating, kFloating, "ReduceRepeat")                          \
    ROW(BlockReduceSum, "BlockReduceSum", kFloating, kFloating, kFloating, "ReduceDataBlock")                         \
    ROW(ReduceDataBlock, "ReduceDataBlock", kFloating, kFloating, kFloating, "ReduceDataBlock")                       \
    ROW(PairReduceSum, "PairReduceSum", kFloating, kFloating, kFloating, "ReducePairElem")                            \
    ROW(ReducePairElem, "ReducePairElem", kFloating, kFloating, kFloating, "ReducePairElem")                          \
    ROW(ReduceSum, "ReduceSum", kFloating, kFloating, kFloating, "ReduceSum")                                         \
    ROW(WholeReduceMax, "WholeReduceMax", kFloating, kFloating, kWords, "ReduceRepeat")                               \
    ROW(WholeReduceMin, "WholeReduceMin", kFloating, kFloating, kWords, "ReduceRepeat")                               \
    ROW(ReduceRepeatExtremum, "ReduceRepeat to a maximum or minimum", kFloating, kFloating, kWords, "ReduceRepeat")   \
    ROW(BlockReduceMax, "BlockReduceMax", kFloating, kFloating, kFloating, "ReduceDataBlock")                         \
    ROW(BlockReduceMin, "BlockReduceMin", kFloating, kFloating, kFloating, "ReduceDataBlock")                         \
    ROW(ReduceMax, "ReduceMax", kFloating, kFloating, kWords | kInt64s, "ReduceMax; 64 bits: count forms only")       \
    ROW(ReduceMin, "ReduceMin", kFloating, kFloating, kWords | kInt64s, "ReduceMin; 64 bits: count forms only")       \
    ROW(GetExtremum, "GetReduceRepeatMaxMinSpr of a value", kNone, kFloating, kNone,                                  \
        "GetReduceRepeatMaxMinSpr (ISASI)")                                                                           \
    ROW(GetExtremumAndIndex, "GetReduceRepeatMaxMinSpr of a value and its index", kFloating, kNone, kNone,            \
        "GetReduceRepeatMaxMinSpr (ISASI)")                                                                           \
    ROW(CreateVecIndex, "CreateVecIndex", kSigned, kSigned, kSigned | kInt8 | kInt64,                                 \
        "CreateVecIndex; on Ascend310P as on Ascend910B")                                                             \
    ROW(ArithProgression, "ArithProgression", kSigned, kSigned, kSigned | kInt64, "Arange")                           \
    ROW(Arange, "Arange", kSigned, kSigned, kSigned | kInt64, "Arange")                                               \
    ROW(Duplicate, "Duplicate", kAllWords, kWords, kNumbers | kBool, "Duplicate")                                     \
    ROW(Brcb, "Brcb", kAllWords, kWords, kAllWords, "Brcb")                                                           \
    ROW(Gather, "Gather", kAllWords, kWords, kAllWords | kInt64s, "Gather")                                           \
    ROW(Gatherb, "Gatherb", kUint16 | kUint32, kNone, kNumbers, "Gatherb (ISASI)")                                    \
    ROW(Scatter, "Scatter", kNone, kFloating | kUint16 | kUint32, kAllWords | kInt64s, "Scatter (ISASI)")             \
    ROW(GatherMask, "GatherMask", kAllWords, kWords, kAllWords | kInt8s, "GatherMask")                                \
    ROW(Interleave, "Interleave", kNone, kNone, kNumbers, "Interleave (ISASI)")                                       \
    ROW(DeInterleave, "DeInterleave", kNone, kNone, kNumbers, "DeInterleave (ISASI)")                                 \
    ROW(Copy, "Copy", kAllWords, kNone, kNumbers, "Copy")                                                             \
    ROW(DataCopy, "DataCopy", kAny, kAny, kAny, "DataCopy; any type: its bytes are moved")                            \
    ROW(DataCopyPad, "DataCopyPad", kAny, kNone, kAny, "DataCopyPad, support")                                        \
    ROW(SetPadValue, "SetPadValue", kNumbers, kNone, kNumbers | kBool, "SetPadValue(ISASI)")                          \
    ROW(DataCopyPadCompact, "DataCopyPad with PaddingMode::Compact", kNone, kNone, kAny, "DataCopyPad")               \
    ROW(CompareRegister, "Compare into the register", kFloating, kFloating, kFloating, "Compare（结果存入寄存器）")   \
    ROW(VectorPadding, "VectorPadding", kNone, kWords, kNone, "VectorPadding(ISASI)")                                 \
    ROW(SetSaturationFlag, "SetSaturationFlag", kAny, kNone, kNone, "SetSaturationFlag(ISASI), support")              \
    ROW(GetSaturationFlag, "GetSaturationFlag", kAny, kNone, kNone, "GetSaturationFlag(ISASI), support")              \
    ROW(SetCtrlSpr, "SetCtrlSpr", kAny, kNone, kAny, "SetCtrlSpr(ISASI), support")                                    \
    ROW(GetCtrlSpr, "GetCtrlSpr", kAny, kNone, kAny, "GetCtrlSpr(ISASI), support")                                    \
    ROW(Transpose, "Transpose", kHalf | kInt16s, kHalf | kInt16s, kHalf | kInt16s, "Transpose")                       \
    ROW(TransposeExt, "Transpose with TransposeParamsExt", kWords | kInt8s, kWords | kInt8s, kAllWords | kInt8s,      \
        "Transpose")                                                                                                  \
    ROW(TransDataTo5HD, "TransDataTo5HD", kWords | kInt8s, kWords | kInt8s, kAllWords | kInt8s, "TransDataTo5HD")     \
    ROW(Sort32, "Sort32", kFloating, kNone, kFloating, "Sort32")                                                      \
    ROW(MrgSort, "MrgSort", kFloating, kNone, kFloating, "MrgSort")                                                   \
    ROW(MrgSort4, "MrgSort4", kNone, kFloating, kNone, "MrgSort4")                                                    \
    ROW(RpSort16, "RpSort16", kNone, kFloating, kNone, "RpSort16")                                                    \
    ROW(ProposalConcat, "ProposalConcat", kNone, kFloating, kNone, "ProposalConcat")                                  \
    ROW(ProposalExtract, "ProposalExtract", kNone, kFloating, kNone, "ProposalExtract")                               \
    ROW(SetAtomicMax, "SetAtomicMax", kSigned | kBfloat16 | kInt8, kNone, kSigned | kBfloat16 | kInt8,                \
        "SetAtomicMax(ISASI)")                                                                                        \
    ROW(SetAtomicMin, "SetAtomicMin", kSigned | kBfloat16 | kInt8, kNone, kSigned | kBfloat16 | kInt8,                \
        "SetAtomicMin(ISASI)")                                                                                        \
    ROW(SetAtomicType, "SetAtomicType", kSigned | kBfloat16 | kInt8, kFloating | kInt16, kSigned | kBfloat16 | kInt8, \
        "SetAtomicType")                                                                                              \
    ROW(Fill, "Fill, InitGlobalMemory", kWords, kWords, kNumbers, "Fill (高阶API)")                                   \
    ROW(InitOutput, "InitOutput", kAllWords, kNone, kAllWords,                                                        \
        "no page; asc-devkit impl/basic_api/kernel_operator_common_intf_impl.h")                                      \
    ROW(SetAtomicAdd, "SetAtomicAdd", kSigned | kBfloat16 | kInt8, kFloating | kInt16, kSigned | kBfloat16 | kInt8,   \
        "SetAtomicAdd")                                                                                               \
    ROW(DataSyncBarrier, "DataSyncBarrier", kAny, kNone, kAny, "DataSyncBarrier (ISASI), support")                    \
    ROW(CleanWithDestination, "DataCacheCleanAndInvalid with DcciDst", kAny, kNone, kAny, "DataCacheCleanAndInvalid") \
    ROW(GmReference, "GlobalTensor::operator()", kAny, kNone, kAny, "notes G")                                        \
    ROW(SyncAll, "SyncAll()", kAny, kNone, kAny, "SyncAll, support")                                                  \
    ROW(CrossCoreSetFlag, "CrossCoreSetFlag", kAny, kNone, kAny, "CrossCoreSetFlag, support")                         \
    ROW(CrossCoreWaitFlag, "CrossCoreWaitFlag", kAny, kNone, kAny, "CrossCoreWaitFlag, support")                      \
    ROW(SetL2CacheHint, "SetL2CacheHint", kAny, kNone, kAny, "SetL2CacheHint, support")                               \
    ROW(GetSubBlockNum, "GetSubBlockNum", kAny, kNone, kAny, "GetSubBlockNum (ISASI), support")                       \
    ROW(GetSystemCycle, "GetSystemCycle", kAny, kNone, kAny, "GetSystemCycle (ISASI), support")                       \
    ROW(GetUBSizeInBytes, "GetUBSizeInBytes", kNone, kNone, kAny, "GetUBSizeInBytes, support")                        \
    ROW(GetRuntimeUBSize, "GetRuntimeUBSize", kNone, kNone, kAny, "GetRuntimeUBSize, support")                        \
    ROW(NumericLimits, "NumericLimits", kNone, kNone, kAllWords | kInt8s, "NumericLimits")

enum class Api : uint8_t {
#define ASCEND_SIM_INSTRUCTION(name, text, a910b, a310p, a950, source) name,
    ASCEND_SIM_INSTRUCTIONS(ASCEND_SIM_INSTRUCTION) ASCEND_SIM_LIBRARY_FUNCTIONS(ASCEND_SIM_INSTRUCTION)
#undef ASCEND_SIM_INSTRUCTION
};

enum class SocColumn : uint8_t { A910b, A310p, A950 };
constexpr int kSocColumns = 3;
constexpr SocColumn soc_column_of(int32_t arch) {
    return arch == 220 ? SocColumn::A910b : arch == 200 ? SocColumn::A310p : SocColumn::A950;
}

struct Instruction {
    const char* name;
    Elements types[kSocColumns];
    const char* source;
};
namespace cell {
constexpr Instruction kRows[] = {
#define ASCEND_SIM_INSTRUCTION(name, text, a910b, a310p, a950, source) {text, {a910b, a310p, a950}, source},
    ASCEND_SIM_INSTRUCTIONS(ASCEND_SIM_INSTRUCTION) ASCEND_SIM_LIBRARY_FUNCTIONS(ASCEND_SIM_INSTRUCTION)
#undef ASCEND_SIM_INSTRUCTION
};
}  // namespace cell
inline constexpr auto& kInstructions = cell::kRows;

constexpr bool has(Api api, SocColumn column) { return kInstructions[int(api)].types[int(column)] != 0; }

constexpr bool takes(Api api, SocColumn column, Element type) {
    return kInstructions[int(api)].types[int(column)] & set_of(type);
}

// ---- conversions ---------------------------------------------------------------------------------------

// Sets of RoundMode: one bit per mode, in its order. kFloorToTrunc has CAST_FLOOR, CAST_CEIL, CAST_ROUND and
// CAST_TRUNC.
constexpr const char* kRoundModeNames[] = {"CAST_NONE",  "CAST_RINT",  "CAST_FLOOR", "CAST_CEIL",
                                           "CAST_ROUND", "CAST_TRUNC", "CAST_ODD",   "CAST_HYBRID"};
constexpr int kRoundModes = sizeof kRoundModeNames / sizeof *kRoundModeNames;
constexpr uint32_t kCastNone = 1 << 0, kCastRint = 1 << 1, kFloorToTrunc = 0x3c,
                   kRintToTrunc = kCastRint | kFloorToTrunc, kCastOdd = 1 << 6,
                   kAllModes = kCastNone | kRintToTrunc | kCastOdd;

// Source type, target type, and the round modes on each SoC; 0 means that the SoC lacks the conversion. The conversion
// of int32 to half multiplies by SetDeqScale's scale and ignores the mode. Sources: the tables of Cast's page;
// asc-devkit impl/basic_api/dav_m200 for conversions of Ascend310P that the page lacks.
struct Conversion {
    Element from, to;
    uint32_t modes[kSocColumns];
};
constexpr Conversion kConversions[] = {
    {Element::Half, Element::Float, {kCastNone, kCastNone, kCastNone}},
    {Element::Float,
     Element::Half,
     {kRintToTrunc | kCastOdd | kCastNone, kCastOdd | kCastNone, kRintToTrunc | kCastOdd | kCastNone}},
    {Element::Bfloat16, Element::Float, {kCastNone, 0, kCastNone}},
    {Element::Float, Element::Bfloat16, {kRintToTrunc, 0, kRintToTrunc}},
    {Element::Float, Element::Float, {kRintToTrunc, 0, kRintToTrunc}},
    {Element::Float, Element::Int16, {kRintToTrunc, 0, kRintToTrunc}},
    {Element::Float, Element::Int32, {kRintToTrunc, kRintToTrunc, kRintToTrunc}},
    {Element::Float, Element::Int64, {kRintToTrunc, 0, kRintToTrunc}},
    {Element::Int16, Element::Float, {kCastNone, 0, kCastNone}},
    {Element::Int32, Element::Float, {kRintToTrunc | kCastNone, kCastNone, kRintToTrunc}},
    {Element::Int64, Element::Float, {kRintToTrunc, 0, kRintToTrunc}},
    {Element::Half, Element::Int8, {kRintToTrunc | kCastNone, kFloorToTrunc | kCastNone, kRintToTrunc}},
    {Element::Half, Element::Uint8, {kRintToTrunc | kCastNone, kFloorToTrunc | kCastNone, kRintToTrunc}},
    {Element::Half, Element::Int16, {kRintToTrunc, kCastRint, kRintToTrunc}},
    {Element::Half, Element::Int32, {kRintToTrunc, kRintToTrunc, kRintToTrunc}},
    {Element::Int8, Element::Half, {kCastNone, kCastNone, kCastNone}},
    {Element::Uint8, Element::Half, {kCastNone, kCastNone, kCastNone}},
    {Element::Int16, Element::Half, {kRintToTrunc | kCastNone, kCastNone, kRintToTrunc}},
    {Element::Bfloat16, Element::Int32, {kRintToTrunc, 0, kRintToTrunc}},
    {Element::Bfloat16, Element::Half, {0, 0, kRintToTrunc}},
    {Element::Half, Element::Bfloat16, {0, 0, kRintToTrunc}},
    {Element::Int32, Element::Int16, {kCastNone, kCastNone, kCastNone}},
    {Element::Int32, Element::Int64, {kCastNone, 0, kCastNone}},
    {Element::Int64, Element::Int32, {kCastNone, 0, kCastNone}},
    {Element::Int32, Element::Half, {kAllModes, kAllModes, kAllModes}},
    {Element::Half, Element::Int4, {kRintToTrunc | kCastNone, kCastNone, kRintToTrunc}},
    {Element::Int4, Element::Half, {kCastNone, 0, kCastNone}},
};

constexpr uint32_t modes_of(SocColumn column, Element from, Element to) {
    for (const Conversion& row : kConversions)
        if (row.from == from && row.to == to) return row.modes[int(column)];
    return 0;
}

}  // namespace ascend_sim
