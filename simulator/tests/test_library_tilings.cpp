// The host's tiling functions of library functions: GetSoftMaxMaxTmpSize(), RmsNorm's tiling and the like.
//
// The expected values are those of asc-devkit's own tests of these functions (tests/api/adv_api/tiling/
// test_tiling.cpp), or, for whole tilings and for shapes that those tests lack, those that its functions return
// (impl/adv_api/tiling). For some arguments that the pages exclude, its functions log an error and
// continue; ours leave the results unchanged.
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cann/host/node.h"
#include "tiling/tiling_api.h"

using namespace AscendC;

namespace {

int failures = 0;
const char* soc = "";
using Values = std::vector<uint32_t>;

std::string text(const Values& values) {
    std::string all;
    for (uint32_t v : values) all += " " + std::to_string(v);
    return all;
}
void expect(const std::string& what, const Values& got, const Values& want) {
    if (got == want) return;
    ++failures;
    std::printf("FAILED: %s, %s: got%s, expected%s\n", soc, what.c_str(), text(got).c_str(), text(want).c_str());
}

constexpr uint32_t kUnchanged = 7;
// The two results of a function, and what it returns.
template <class F>
Values two_results(const F& function) {
    uint32_t first = kUnchanged, second = kUnchanged;
    if constexpr (std::is_same_v<decltype(function(first, second)), bool>) {
        const bool is_valid = function(first, second);
        return {first, second, is_valid};
    } else {
        function(first, second);
        return {first, second};
    }
}
#define TWO(call) two_results([&](uint32_t& a, uint32_t& b) { return call; })
const Values kRefused = {kUnchanged, kUnchanged};

ge::Shape shape(std::vector<int64_t> sizes) { return ge::Shape(std::move(sizes)); }

// The fields of a tiling, as an operator's class holds them and as a kernel's struct does.
template <class Class, class Struct, class F>
void expect_tiling(const std::string& what, const F& function, const Values& want) {
    Class of_host;
    function(of_host);
    Values got(of_host.GetDataSize() / 4);
    of_host.SaveToBuffer(got.data(), got.size() * 4);
    expect(what + " (class)", got, want);
    Struct of_kernel{};
    function(of_kernel);
    Values same(sizeof of_kernel / 4);
    std::memcpy(same.data(), &of_kernel, sizeof of_kernel);
    expect(what + " (struct)", same, want);
}
#define EXPECT_TILING(Name, call, ...) \
    expect_tiling<optiling::Name, AscendC::tiling::Name>(#call, [&](auto& t) { return call; }, __VA_ARGS__)
uint32_t bits(float value) {
    uint32_t all;
    std::memcpy(&all, &value, sizeof all);
    return all;
}

void check_elements() {
    const ge::Shape square = shape({128, 128}), few = shape({16}), none = shape({0, 8});
    constexpr uint32_t n = 128 * 128;
    expect("Cos of float", TWO(GetCosMaxMinTmpSize(square, 4, false, a, b)), {n * 4 * 3, 768});
    expect("Cos over its source", TWO(GetCosMaxMinTmpSize(square, 4, true, a, b)), {n * 4 * 2, 512});
    expect("Cos of half", TWO(GetCosMaxMinTmpSize(square, 2, false, a, b)), {n * 2 * 8, 2048});
    expect("Cos of half over its source", TWO(GetCosMaxMinTmpSize(square, 2, true, a, b)), {0, 0});
    expect("Sin of few halves", TWO(GetSinMaxMinTmpSize(few, 2, false, a, b)), {2048, 2048});
    expect("factor of Cos", TWO(GetCosTmpBufferFactorSize(4, a, b)), {3, 0});
    expect("Erf of no elements", TWO(GetErfMaxMinTmpSize(none, 4, false, a, b)), kRefused);
    expect("Gelu", TWO(GetGeluMaxMinTmpSize(square, 4, a, b)), {3 * n * 4, 3 * 256});
    expect("Gelu's sizes", {GetGeluMaxTmpSize(square, 2), GetGeluMinTmpSize(square, 2)}, {3 * n * 4, 3 * 256});
    expect("Exp", TWO(GetExpMaxMinTmpSize(square, 4, false, a, b)), {n * 4 * 3, 768, true});
    expect("Exp over its source", TWO(GetExpMaxMinTmpSize(square, 4, true, a, b)), {n * 4 * 2, 512, true});
    expect("factor of Exp", TWO(GetExpTmpBufferFactorSize(2, a, b)), {8, 0});
    expect("Acosh of few", TWO(GetAcoshMaxMinTmpSize(few, 2, false, a, b)), {512, 512});
    expect("Clamp", TWO(GetClampMaxMinTmpSize(square, 2, false, a, b)), {n, 128});
    expect("SwiGLU", TWO(GetSwiGLUMaxMinTmpSize(square, 2, a, b, false)), {n * 2 * 6, 256 * 6});
    expect("ReGlu", TWO(GetReGluMaxMinTmpSize(square, 2, false, a, b)), {n * 2 * 6, 256 * 6});
    expect("ReGlu over its source", TWO(GetReGluMaxMinTmpSize(square, 2, true, a, b)), kRefused);
    expect("Silu", TWO(GetSiluTmpSize(square, 4, false, a, b)), {0, 0});
    expect("Axpy", TWO(GetAxpyMaxMinTmpSize(square, 2, false, a, b)), {n * 2 * 4, 1024});
    expect("factor of Log2", TWO(GetLog2TmpBufferFactorSize(2, a, b)), {2, 0});
    expect("Asin of half", TWO(GetAsinMaxMinTmpSize(square, 2, false, a, b)), {6 * n * 2, 6 * 256});
    expect("Atan", TWO(GetAtanMaxMinTmpSize(square, 4, false, a, b)), {5 * n * 4, 5 * 256});
    expect("Log over its source", TWO(GetLogMaxMinTmpSize(square, 4, true, a, b)), {0, 0});
    expect("Tanh over its source", TWO(GetTanhMaxMinTmpSize(square, 4, true, a, b)), {n * 4, 256});
}

void check_shapes(const platform_ascendc::PlatformAscendC& chip) {
    const bool is_910b = chip.GetSocVersion() == platform_ascendc::SocVersion::ASCEND910B;
    const bool is_310p = chip.GetSocVersion() == platform_ascendc::SocVersion::ASCEND310P;
    const ge::Shape square = shape({128, 128}), one = shape({1});
    constexpr uint32_t n = 128 * 128;
    auto of_chip = [&](Values on_910b, Values on_310p, Values on_950) {
        return is_910b ? on_910b : is_310p ? on_310p : on_950;
    };
    expect("Round", TWO(GetRoundMaxMinTmpSize(chip, square, 2, false, a, b)),
           of_chip({n * 2, 256}, {2 * n * 2, 512}, kRefused));
    expect("factor of Round", TWO(GetRoundTmpBufferFactorSize(chip, 4, a, b)), of_chip({0, 0}, {1, 0}, {7, 0}));
    expect("Power of halves", TWO(GetPowerMaxMinTmpSize(square, square, false, 2, false, a, b)),
           of_chip({14 * n * 2 + 256, 7 * 256 + 256}, {16 * n * 2 + 256, 8 * 256 + 256}, {n * 12, n * 12}));
    expect("Power of int32, a scalar", TWO(GetPowerMaxMinTmpSize(square, one, true, 4, false, a, b)),
           of_chip({7 * n * 4, 7 * 256}, {8 * n * 4, 8 * 256}, {0, 0}));
    expect("factor of Power", TWO(GetPowerTmpBufferFactorSize(true, false, false, 4, a, b)),
           of_chip({5, 256}, {6, 256}, {3, 0}));
    expect("Broadcast, last axis",
           TWO(GetBroadCastMaxMinTmpSize(chip, shape({16, 1}), shape({16, 24}), 4, false, a, b)),
           of_chip({16 * 32, 8 * 32}, {32 + 16 * 24 * 4, 32 + 8 * 3 * 4}, kRefused));
    expect("Broadcast, first axis",
           TWO(GetBroadCastMaxMinTmpSize(chip, shape({1, 24}), shape({5, 24}), 4, false, a, b)),
           of_chip({32, 32}, {32, 32}, kRefused));
    expect("Broadcast to rows with a part of a block",
           TWO(GetBroadCastMaxMinTmpSize(chip, shape({1, 20}), shape({5, 20}), 4, false, a, b)), kRefused);
    expect("Broadcast of bytes", TWO(GetBroadCastMaxMinTmpSize(chip, one, shape({40}), 1, false, a, b)),
           {(16 + 48) * 2 + 32, (16 + 48) * 2 + 32});
    expect("Broadcast of bytes to rows with a part of a block",
           TWO(GetBroadCastMaxMinTmpSize(chip, shape({32, 1}), shape({32, 20}), 1, false, a, b)),
           of_chip({32 * 32 + 32 * 64 + (32 + 640) * 2, 16 * 32 + 16 * 64 + (32 + 640) * 2},
                   {32 + (32 + 640) * 2 + 32 * 20 * 2, 32 + (32 + 640) * 2 + 16 * 3 * 2}, kRefused));
    expect("Broadcast that does not fit",
           TWO(GetBroadCastMaxMinTmpSize(chip, shape({2, 8}), shape({4, 8}), 4, false, a, b)), kRefused);
    expect("Sort and Concat", {GetSortTmpSize(chip, 64, 4), GetConcatTmpSize(chip, 64, 4)},
           is_310p ? Values{64 * 8 * 4, 64 * 8 * 4} : Values{64 * 8, 0});
    expect("UnPad", TWO(GetUnPadMaxMinTmpSize(chip, shape({32, 32}), 4, a, b)),
           of_chip({0, 0}, {64 * 1024, 1024}, {0, 0}));
}

void check_reductions() {
    using P = ReducePattern;
    expect("Sum", TWO(GetSumMaxMinTmpSize(1000, 4, false, a, b)), {64, 64});
    expect("Sum of none", TWO(GetSumMaxMinTmpSize(0, 4, false, a, b)), kRefused);
    expect("Mean of halves in float", TWO(GetMeanMaxMinTmpSize(100, 2, 4, false, a, b)), {480, 480});
    expect("Mean of floats in half", TWO(GetMeanMaxMinTmpSize(100, 4, 2, false, a, b)), kRefused);
    const ge::Shape s = shape({5, 200}), power = shape({8, 64}), cube = shape({2, 2, 8});
    auto of = [&](auto function, const ge::Shape& s, ge::DataType type, P pattern, bool reuse = false) {
        return two_results([&](uint32_t& a, uint32_t& b) { function(s, type, pattern, true, reuse, a, b); });
    };
    expect("ReduceSum of rows", of(GetReduceSumMaxMinTmpSize, s, ge::DT_FLOAT, P::AR), {5 * 128 * 4, 5 * 128 * 4});
    expect("ReduceSum of columns", of(GetReduceSumMaxMinTmpSize, power, ge::DT_FLOAT, P::RA), {4 * 256, 4 * 256});
    expect("ReduceSum over its source", of(GetReduceSumMaxMinTmpSize, s, ge::DT_FLOAT, P::AR, true), {0, 0});
    expect("ReduceSum of halves", of(GetReduceSumMaxMinTmpSize, s, ge::DT_FLOAT16, P::AR), kRefused);
    expect("ReduceMean, whole", of(GetReduceMeanMaxMinTmpSize, s, ge::DT_FLOAT, P::R), kRefused);
    expect("ReduceMax, three sizes", of(GetReduceMaxMaxMinTmpSize, cube, ge::DT_FLOAT, P::AR), kRefused);
    expect("ReduceMax of rows", of(GetReduceMaxMaxMinTmpSize, s, ge::DT_FLOAT16, P::AR), {5 * 256, 5 * 256});
    expect("ReduceMin of short rows", of(GetReduceMinMaxMinTmpSize, shape({5, 8}), ge::DT_FLOAT, P::AR), {0, 0});
    expect("ReduceProd over its source", of(GetReduceProdMaxMinTmpSize, s, ge::DT_FLOAT, P::AR, true), {256, 256});
    expect("ReduceAny of bytes", of(GetReduceAnyMaxMinTmpSize, s, ge::DT_UINT8, P::AR),
           {224 * 2 + 5 * 32, 224 * 2 + 5 * 32});
    expect("ReduceAll of halves", of(GetReduceAllMaxMinTmpSize, s, ge::DT_FLOAT16, P::AR), kRefused);
}

void check_quantization_and_moves() {
    const ge::Shape rows = shape({10, 32}), long_row = shape({320}), big = shape({640, 5120});
    expect("AscendQuant", TWO(GetAscendQuantMaxMinTmpSize(rows, 4, a, b)), {640, 512});
    expect("AscendDequant of rows", TWO(GetAscendDequantMaxMinTmpSize(rows, 4, a, b)),
           {4 * (64 + 32 * 10 + 40), 4 * (64 + 32 + 40)});
    expect("AscendDequant of a row", TWO(GetAscendDequantMaxMinTmpSize(long_row, 4, a, b)),
           {4 * (64 + 320 + 328), 4 * (64 + 320 + 328)});
    expect("AscendDequant, three sizes", TWO(GetAscendDequantMaxMinTmpSize(shape({2, 3, 8}), 4, a, b)), kRefused);
    expect("factor of AscendDequant", TWO(GetAscendDequantTmpBufferFactorSize(rows, a, b)), {1, 104});
    expect("factor of AscendDequant of a row", TWO(GetAscendDequantTmpBufferFactorSize(long_row, a, b)), {2, 72});
    auto anti = [&](const ge::Shape& scales, bool transposed, ge::DataType to) {
        return TWO(GetAscendAntiQuantMaxMinTmpSize(big, scales, transposed, ge::DT_INT8, to, a, b));
    };
    constexpr uint32_t kColumns = 5120 * 8 + 64 * 640 * 4, kRows = 80 * 640 * 4;
    expect("AscendAntiQuant to half", anti(shape({1, 5120}), false, ge::DT_FLOAT16), {0, 0});
    expect("AscendAntiQuant by column", anti(shape({1, 5120}), false, ge::DT_BF16), {kColumns, kColumns});
    expect("AscendAntiQuant by row", anti(shape({640, 1}), true, ge::DT_BF16), {kRows, kRows});
    expect("AscendAntiQuant, one scale", anti(shape({1}), false, ge::DT_BF16), {640 * 5120 * 4, 1024});
    expect("factor of AscendAntiQuant",
           TWO(GetAscendAntiQuantTmpBufferFactorSize(big, shape({1, 5120}), false, ge::DT_INT8, ge::DT_BF16, a, b)),
           {0, kColumns});

    const ge::Shape s = shape({8, 128}), big_s = shape({128, 128}), one = shape({1}), wide = shape({8, 160});
    expect("Select", TWO(GetSelectWithBytesMaskMaxMinTmpSize(s, one, 2, s, 1, true, a, b)),
           {1024 * 2 + 512, 1024 * 2 + 512});
    expect("Select, many", TWO(GetSelectWithBytesMaskMaxMinTmpSize(one, big_s, 2, big_s, 1, false, a, b)),
           {128 * 128 * 2 + 512, 4096 * 2 + 512});
    expect("Select, few", TWO(GetSelectMaxMinTmpSize(shape({1, 16}), one, 2, shape({1, 16}), 1, true, a, b)),
           {1024, 1024});
    expect("Select with a longer mask", TWO(GetSelectMaxMinTmpSize(s, one, 2, wide, 1, false, a, b)),
           {1024 * 2 + 512 + 1024, 1024 * 2 + 512 + 1024});
    expect("CumSum along rows of halves", TWO(GetCumSumMaxMinTmpSize(shape({20, 32}), 2, true, false, a, b)),
           {32 * 32 * 6, 16 * 32 * 6});
    expect("CumSum along columns of halves", TWO(GetCumSumMaxMinTmpSize(shape({20, 32}), 2, false, false, a, b)),
           {20 * 32 * 4, 20 * 32 * 4});
    expect("CumSum of parts of blocks", TWO(GetCumSumMaxMinTmpSize(shape({20, 30}), 4, true, false, a, b)), kRefused);
    expect("DropOut", {GetDropOutMaxTmpSize(s, 2, true), GetDropOutMinTmpSize(s, 2, true)}, {2 * 1024 * 4, 512});
    expect("Pad", TWO(GetPadMaxMinTmpSize(shape({32, 32}), 4, a, b)), {64 * 1024, 1024});
}

void check_softmax(bool is950) {
    const ge::Shape s = shape({128, 128});
    constexpr uint32_t m = 128, k = 128, kPlain = 16 + 128 + 64;
    expect("SoftMax of other types", {GetSoftMaxMaxTmpSize(s, 1, true), GetSoftMaxFlashMinTmpSize(s, 0, true, true)},
           {0, 0});
    if (!is950) {
        expect("SoftMax", {GetSoftMaxMaxTmpSize(s, 2, true), GetSoftMaxMinTmpSize(s, 2, true)},
               {m * kPlain * 4, kPlain * 4});
        expect("SoftmaxFlash",
               {GetSoftMaxFlashMaxTmpSize(s, 4, true, true), GetSoftMaxFlashMinTmpSize(s, 4, true, true)},
               {m * (8 * 4 + k * 2) * 4, (8 * 4 + k * 2) * 4});
        expect("SoftmaxGrad", {GetSoftMaxGradMinTmpSize(s, 2, true, true), GetSoftMaxGradMinTmpSize(s, 4, false, true)},
               {(16 * 2 + k * 3 + 64) * 4, (8 * 2 + k + 64) * 4});
        expect("SoftmaxFlashV2",
               {GetSoftMaxFlashV2MaxTmpSize(s, 2, 2, true), GetSoftMaxFlashV2MinTmpSize(s, 2, 2, true)},
               {m * (k + 64 + 32) * 4, (k + 64 + 32) * 4});
        expect("SoftmaxFlashV2, basic block",
               {GetSoftMaxFlashV2MaxTmpSize(s, 2, 2, false, true), GetSoftMaxFlashV2MinTmpSize(s, 2, 4, false, true)},
               {64 * (k + 64 + 16) * 4, 8 * (k + 64 + 8) * 4});
        expect("SoftmaxFlashV2 without broadcast", {GetSoftMaxFlashV2MinTmpSize(s, 2, 4, true, false, true)},
               {(k + 64 + 8 * 2) * 4 * 16});
    } else {
        expect("SoftMax on Ascend950", {GetSoftMaxMaxTmpSize(s, 2, true), GetSoftMaxMinTmpSize(s, 2, true)},
               {m * kPlain * 4, m * (16 + k) * 4});
        constexpr uint32_t kFold = m * (8 + k) + 256 + m;
        expect("SoftMax and SoftmaxFlashV2 of float on Ascend950",
               {GetSoftMaxMinTmpSize(s, 4, true), GetSoftMaxFlashV2MinTmpSize(s, 4, 4, false)}, {kFold * 4, kFold * 4});
    }
    const Values tiles_of_64 = {128, 128, 16384, 128, 16, 2048, 64, 128, 8192, 64, 16, 1024, 2, 0, 0, 0};
    EXPECT_TILING(SoftMaxTiling, SoftMaxTilingFunc(s, 2, 100 * 1024 * 4, t), tiles_of_64);
    EXPECT_TILING(LogSoftMaxTiling, LogSoftMaxTilingFunc(s, 2, 100 * 1024 * 4, t), tiles_of_64);
    EXPECT_TILING(SoftMaxTiling, SoftMaxFlashTilingFunc(s, 2, 77952, t, false), tiles_of_64);
    EXPECT_TILING(SoftMaxTiling, SoftMaxGradTilingFunc(s, 2, 133120, t, true), tiles_of_64);
    EXPECT_TILING(SoftMaxTiling, SoftMaxFlashTilingFunc(s, 2, 77952, t, true),
                  {128, 128, 16384, 128, 16, 2048, 32, 128, 4096, 32, 16, 512, 4, 0, 0, 0});
    const ge::Shape odd = shape({3, 7, 40});
    EXPECT_TILING(SoftMaxTiling, SoftMaxTilingFunc(odd, 4, 10 * 112 * 4, t),
                  {21, 40, 840, 21, 8, 168, 8, 40, 320, 8, 8, 64, 2, 5, 200, 40});
    EXPECT_TILING(SoftMaxTiling, SoftMaxFlashV2TilingFunc(odd, 4, 4, 10 * 72 * 4, t, true),
                  {21, 40, 840, 21, 8, 168, 8, 40, 320, 8, 8, 64, 2, 5, 200, 40});
    EXPECT_TILING(SoftMaxTiling, SoftMaxTilingFunc(odd, 1, 4096, t), Values(16, 0));
    // 13600 bytes hold 16 rows in basic blocks, but 15 other rows.
    const ge::Shape rows_of_128 = shape({16, 128});
    EXPECT_TILING(SoftMaxTiling, SoftMaxFlashV2TilingFunc(rows_of_128, 2, 2, 13600, t, true, false),
                  {16, 128, 2048, 16, 16, 256, 8, 128, 1024, 8, 16, 128, 2, 0, 0, 0});
    EXPECT_TILING(SoftMaxTiling, SoftMaxFlashV2TilingFunc(rows_of_128, 2, 2, 13600, t, true, true),
                  {16, 128, 2048, 16, 16, 256, 16, 128, 2048, 16, 16, 256, 1, 0, 0, 0});
    tiling::SoftMaxTiling t{};
    SoftMaxTilingFunc(s, 2, 100 * 1024 * 4, t);
    tiling::SoftMaxTiling with_tail{};
    SoftMaxTilingFunc(odd, 4, 10 * 112 * 4, with_tail);
    expect("basic blocks", {IsBasicBlockInSoftMax(t), IsBasicBlockInSoftMax(with_tail, 4)}, {true, false});
}

void check_norms(bool is950) {
    const ge::Shape bshh = shape({2, 9, 64, 60}), bsh = shape({2, 8, 128}), bsh120 = shape({2, 8, 120});
    constexpr uint32_t kBsh = 2 * 8 * 128, kMeans = 2 * 2 * 8 * 4;
    expect("LayerNorm", TWO(GetLayerNormMaxMinTmpSize(bshh, 4, false, a, b)),
           {3 * 18 * 64 * 4 + 2 * 96, 3 * 64 * 4 + 2 * 96});
    EXPECT_TILING(LayerNormTiling, GetLayerNormNDTilingInfo(bshh, 8192, 2, false, t),
                  {2,  9,   64,   60, 1152, 18,  3,   0,  24, 24, 24,  2048, 640,
                   48, 688, 1328, 1,  640,  512, 640, 10, 8,  10, 640, 10,   bits(1.0f / 60)});
    EXPECT_TILING(LayerNormTiling, GetLayerNormNDTilingInfo(bshh, 128, 4, false, t), Values(26, 0));
    const ge::Shape ar = shape({18, 60});
    expect("LayerNorm with rstd, without it", TWO(GetLayerNormMaxMinTmpSize(ar, 4, false, true, true, a, b)), kRefused);
    if (is950) {
        expect("LayerNorm with rstd", TWO(GetLayerNormMaxMinTmpSize(ar, 4, false, true, false, a, b)),
               {(128 + 18) * 4, (128 + 18) * 4});
        expect("WelfordFinalize", TWO(GetWelfordFinalizeMaxMinTmpSize(shape({64}), 4, false, a, b)),
               {(64 + 128) * 4, (64 + 128) * 4});
    } else {
        expect("LayerNorm with rstd", TWO(GetLayerNormMaxMinTmpSize(ar, 4, false, true, false, a, b)),
               {512 + 96 + 2 * 24 * 64 * 4, 512 + 96});
        expect("LayerNorm without rstd", TWO(GetLayerNormMaxMinTmpSize(ar, 4, false, false, false, a, b)), kRefused);
        EXPECT_TILING(LayerNormSeparateTiling, GetLayerNormNDTilingInfo(ar, 8192, 4, false, true, t),
                      {18, 60,  0, 0, 0,   0,   1152, 18, 2, 0,  24,  2048, 960,
                       24, 984, 0, 1, 960, 192, 960,  15, 3, 15, 960, 15,   bits(1.0f / 60)});
        expect("WelfordUpdate", TWO(GetWelfordUpdateMaxMinTmpSize(shape({1, 100}), 2, 4, false, false, a, b)),
               {2 * 768, 768});
        expect("WelfordUpdate of a repeat",
               TWO(GetWelfordUpdateMaxMinTmpSize(shape({1, 64}), 2, 4, false, false, a, b)), {768, 768});
        expect("WelfordFinalize of a repeat", TWO(GetWelfordFinalizeMaxMinTmpSize(shape({64}), 4, false, a, b)),
               {1024, 1024});
        expect("WelfordFinalize", TWO(GetWelfordFinalizeMaxMinTmpSize(shape({72}), 4, false, a, b)),
               {(128 + 144) * 4, 1024});
        expect("WelfordFinalize of a part of a block",
               TWO(GetWelfordFinalizeMaxMinTmpSize(shape({70}), 4, false, a, b)), kRefused);
        expect("Normalize", TWO(GetNormalizeMaxMinTmpSize(ar, 2, 4, false, true, false, a, b)),
               {512 + 2 * 24 * 64 * 4, 4 * 256});
    }
    expect("Normalize without rstd", TWO(GetNormalizeMaxMinTmpSize(ar, 4, 4, false, false, false, a, b)), kRefused);

    expect("RmsNorm", TWO(GetRmsNormMaxMinTmpSize(shape({4, 32, 16}), 4, a, b)),
           {(4 * 32 * 16 + 4 * 32) * 4, (16 + 8) * 4, true});
    expect("RmsNorm, no basic block", TWO(GetRmsNormMaxMinTmpSize(shape({4, 32, 16}), 4, a, b, true)), {7, 7, false});
    EXPECT_TILING(RmsNormTiling, GetRmsNormTilingInfo(bsh, bsh120, 4096, 2, t),
                  {2, 8, 128, 120, bits(1.0f / 120), 384, 3, 8, 5, 1920, 128, 1});
    EXPECT_TILING(RmsNormTiling, GetRmsNormTilingInfo(bsh, bsh120, 1000, 2, t), Values(12, 0));
    expect("DeepNorm", TWO(GetDeepNormMaxMinTmpSize(bsh, 4, false, false, a, b)),
           {3 * kBsh * 4 + kMeans, 3 * 128 * 4 + kMeans, true});
    expect("DeepNorm, no basic block", TWO(GetDeepNormMaxMinTmpSize(shape({1, 9, 64}), 4, false, true, a, b)),
           {7, 7, false});
    EXPECT_TILING(DeepNormTiling, GetDeepNormTilingInfo(bsh, bsh120, 8192, 4, false, false, t),
                  {2, 8,   128,  120, 2048, 16,  3,    0, 16, 16, 16,  2048, 640,
                   0, 640, 1280, 3,   640,  128, 1920, 5, 1,  15, 640, 5,    bits(1.0f / 120)});
    EXPECT_TILING(DeepNormTiling, GetDeepNormTilingInfo(bsh, shape({1, 8, 128}), 8192, 4, false, false, t),
                  Values(26, 0));
    const ge::Shape batch = shape({8, 4, 16});
    expect("BatchNorm", TWO(GetBatchNormMaxMinTmpSize(shape({8, 1, 16}), shape({8, 1, 16}), 4, false, a, b)),
           {(3 * 128 + 32) * 4, (3 * 8 * 8 + 32) * 4, true});
    expect("BatchNorm, basic block", TWO(GetBatchNormMaxMinTmpSize(batch, batch, 4, false, a, b, true)),
           {(3 * 512 + 128) * 4, (3 * 8 * 64 + 128) * 4, true});
    EXPECT_TILING(BatchNormTiling, GetBatchNormNDTilingInfo(batch, batch, 4096, 4, false, t),
                  {8, 64, 0, 64, 1024, 320, 0, 320, 640, 1, 192, 40, 24, 40, 320, 40, bits(1.0f / 8), 4, 5, 4});
    const ge::Shape groups = shape({16, 16, 8, 8});
    expect("GroupNorm", TWO(GetGroupNormMaxMinTmpSize(groups, 4, false, 4, a, b)),
           {3 * 16 * 16 * 64 * 4 + 2 * 4 * 16 * 4, 3 * 4 * 64 * 4 + 2 * 4 * 16 * 4});
    EXPECT_TILING(GroupNormTiling, GetGroupNormNDTilingInfo(groups, 16384, 4, false, 4, t),
                  {16,
                   16,
                   64,
                   4,
                   4,
                   64,
                   256,
                   16384,
                   64,
                   3,
                   0,
                   64,
                   64,
                   64,
                   4096,
                   1280,
                   0,
                   1280,
                   2560,
                   12,
                   1280,
                   1024,
                   15360,
                   5,
                   4,
                   60,
                   1280,
                   5,
                   bits(1.0f / 256),
                   1});
    const ge::Shape large = shape({128, 128, 128, 128});
    expect("LayerNormGradBeta", TWO(GetLayerNormGradBetaMaxMinTmpSize(large, 2, false, a, b)),
           {128 * 128 * 128 * 4 * 4, 128 * 4 * 4});
    EXPECT_TILING(LayerNormGradBetaTiling, GetLayerNormGradBetaNDTilingInfo(bshh, 8192, 4, false, t),
                  {2048, 2, 9, 64, 60, 1152, 18, 1152, 1, 1, 0, 1152, 0, 1152, 18, 0, 0, 0, 0, 0});
    expect("LayerNormGrad", TWO(GetLayerNormGradMaxMinTmpSize(large, 4, false, a, b)),
           is950 ? Values{2 * 128 * 4, 2 * 128 * 4} : Values{128 * 128 * 128 * 6 * 4, 128 * 128 * 6 * 4});
    if (!is950)
        EXPECT_TILING(LayerNormGradTiling, GetLayerNormGradNDTilingInfo(bshh, 65536, 4, false, t),
                      {65536,
                       2,
                       9,
                       64,
                       60,
                       3072,
                       48,
                       0,
                       1152,
                       18,
                       0,
                       3072,
                       3072,
                       3072,
                       6144,
                       3072,
                       9216,
                       3072,
                       12288,
                       3072,
                       15360,
                       3072,
                       0,
                       3072,
                       0,
                       3072,
                       0,
                       3072,
                       bits(1.0f / 60),
                       bits(2.0f / 60)});
    EXPECT_TILING(
        PadTiling, PadTilingFunc(shape({32, 32}), shape({32, 31}), 8192, 4, t),
        {32, 32, 31, 24, 4, 255, 0, 32, 8160, 24, 8, 128, 1024, 128, 0, 32, 32, 128, 8, 0, 254, 0, 16, 0, 0, 0});
    tiling::PadTiling pad{};
    PadTilingFunc(shape({32, 32}), shape({32, 31}), 131072, 4, pad);  // 2048 rows are 256 repeats
    expect("Pad with much memory", {pad.brcbTilingRepeatTimes, pad.brcbTilingRepeatTimesTail}, {1, 2});
    EXPECT_TILING(UnPadTiling, UnPadTilingFunc(shape({32, 32}), 8192, 4, t), {32, 32, 8, 128, 1024, 128, 1, 32});
}

uint32_t check_all(gert::TilingContext*) {
    const auto* chip = platform_ascendc::PlatformAscendCManager::GetInstance();
    if (!chip) return 1;
    check_elements();
    check_shapes(*chip);
    check_reductions();
    check_quantization_and_moves();
    const bool is950 = std::string(soc) == "ascend950";
    check_softmax(is950);
    check_norms(is950);
    return 0;
}

}  // namespace

int main() {
    // Outside the tiling of a call, a program without CANN's runtime has no chip.
    expect("chip outside a tiling", {platform_ascendc::PlatformAscendCManager::GetInstance() != nullptr}, {false});
    for (const char* name : {"ascend910b", "ascend310p", "ascend950"}) {
        soc = name;
        simulated_cann::Node call;
        call.platform.profile = ascend_sim::find_profile(name);
        expect("chip in a tiling", {call.tile(check_all)}, {0});
    }
    std::printf("test_library_tilings: %s\n", failures ? "FAILED" : "passed");
    return failures ? 1 : 0;
}
