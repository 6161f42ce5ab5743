// Functions of the scalar unit, helpers and constants of CANN's headers, and the state of the core.
#include <limits>

#include "instruction_bench.h"

using namespace AscendC;
using namespace bench;

namespace {

#define EXPECT(condition) check(condition, #condition)

// ---- constants and helpers: types and values of CANN's headers -------------------------------------------

template <class T, class U>
constexpr bool is(U) {
    return std::is_same_v<T, U>;
}

void check_constants() {
    static_assert(is<int32_t>(DEFAULT_BLK_NUM) && is<uint8_t>(DEFAULT_REPEAT_STRIDE) && is<uint16_t>(ONE_BLK_SIZE));
    static_assert(is<int32_t>(ONE_REPEAT_BYTE_SIZE) && is<int32_t>(MAX_REPEAT_TIMES) && is<uint64_t>(FULL_MASK));
    static_assert(is<uint32_t>(TOTAL_UB_SIZE) && is<uint32_t>(TMP_UB_OFFSET) && is<uint8_t>(B16_BYTE_SIZE));
    const uint32_t ub[] = {196608, 262144, 253952}, scratch[] = {188416, 253952, 253952};
    const int core = int(ascend_sim::kSocColumn);
    EXPECT(TOTAL_UB_SIZE == ub[core] && TMP_UB_OFFSET == scratch[core]);
    EXPECT(TOTAL_VEC_LOCAL_SIZE == int32_t(scratch[core]));
    EXPECT(DEFAULT_BLK_NUM == 8 && B16_DATA_NUM_PER_BLOCK == 16);
    EXPECT(ONE_BLK_FLOAT_NUM == 8 && ONE_REPEAT_HALF_SIZE == 128 && MAX_REPEAT_FLOAT_SIZE == 16320);
    static_assert(DT_FLOAT16 == 1 && DT_INT4 == 29 && DT_FLOAT8_E4M3FN == 36);
    EXPECT(Ceil(65, 32) == 3 && ConstCeil(64, 32) == 2);
    static_assert(SupportBytes<half, 1, 2>() && !SupportBytes<half, 4>());
    EXPECT(AscendCUtils::GetBitSize(2) == 16 && AscendCUtils::GetC0Size() == 32 && AscendCUtils::GetC0Count(2) == 16);
    EXPECT(DivCeil(65, 32) == 3 && AlignUp(65, 32) == 96 && AlignUp(64, 32) == 64 && CeilDivision(7, 0) == 0);
    EXPECT(likely(1) && !unlikely(0));
    static_assert(IsSameType<Conditional<true, half, float>::type, half>::value);
    static_assert(IsSameType<Conditional<false, half, float>::type, float>::value);
    static_assert(IsSameType<half, half>::value && !IsSameType<half, float>::value);
    static_assert(SupportType<half, float, half>() && !SupportType<int8_t, float, half>());
    EXPECT(Std::max(2, 3) == 3 && Std::min(2.5f, -1.0f) == -1.0f);
    static_assert(Std::is_one_of_v<half, float, half> && Std::is_same_v<Std::remove_cvref_t<const int&>, int>);
    EXPECT(Std::get<1>(Std::make_tuple(1, 2.5f)) == 2.5f && Std::ceil_align(65, 32) == 96);
    EXPECT(g_coreType == (ascend_sim::kIs310p ? MIX : AIV));
    int kinds = 0;
    if ASCEND_IS_AIV
        kinds += 1;
    if ASCEND_IS_NOT_AIC
        kinds += 2;
    if ASCEND_IS_AIC
        kinds += 4;
    EXPECT(kinds == (ascend_sim::kIs310p ? 2 : 3));
}

// ---- tiling structs --------------------------------------------------------------------------------------

struct OneByte {
    uint8_t a;
};
struct ThreeBytes {
    uint8_t a, b, c;
};
struct Gaps {
    uint8_t a;
    uint64_t b;
    uint16_t c;
    uint32_t d;
};
struct ThreeWords {
    uint64_t a, b, c;
};
struct Parts {
    uint64_t a;
    ThreeWords b;
    Gaps c;
};
struct Pointer {
    ThreeWords a;
    uint32_t b;
    const Parts* c;
};

template <class S>
constexpr bool check_layout(bool has_pointer = false) {
    constexpr ascend_sim::FieldLayout kLayout = ascend_sim::field_layout<S>();
    return kLayout.bytes() == sizeof(S) && kLayout.alignment == alignof(S) && kLayout.has_pointer == has_pointer;
}
static_assert(check_layout<OneByte>() && check_layout<ThreeBytes>() && check_layout<Gaps>());
static_assert(check_layout<ThreeWords>() && check_layout<Parts>() && check_layout<Pointer>(true));

// ---- scalar conversions ----------------------------------------------------------------------------------

uint16_t raw_of(half h) { return h.raw; }

void check_conversions() {
    EXPECT((Cast<float, int32_t, RoundMode::CAST_RINT>(2.5f)) == 2);
    EXPECT((Cast<float, int32_t, RoundMode::CAST_ROUND>(2.5f)) == 3);
    EXPECT((Cast<float, int32_t, RoundMode::CAST_ROUND>(-2.5f)) == -3);
    EXPECT((Cast<float, int32_t, RoundMode::CAST_FLOOR>(-2.5f)) == -3);
    EXPECT((ScalarCast<float, int32_t, RoundMode::CAST_CEIL>(2.25f)) == 3);
    EXPECT((Cast<float, int32_t, RoundMode::CAST_RINT>(3e9f)) == 2147483647);
    // Odd: an inexact value gets an odd last bit. 1 + 2^-12 lies between 0x3c00 and 0x3c01.
    EXPECT(raw_of(Cast<float, half, RoundMode::CAST_ODD>(1.0f + 0x1p-12f)) == 0x3c01);
    EXPECT(raw_of(Cast<float, half, RoundMode::CAST_ODD>(1.5f)) == 0x3e00);
#if __CCE_AICORE__ != 200
    EXPECT(AscendC::Cast(3.14159f).raw == 0x4049 && AscendC::Cast(bfloat16_t(3.14159f)) == 3.140625f);
    EXPECT(ToBfloat16(1.0f + 0x1p-8f).raw == 0x3f80 && ToBfloat16(1.0f + 0x3p-8f).raw == 0x3f82);
    EXPECT(ToFloat(ToBfloat16(-2.0f)) == -2.0f);
    const bfloat16_t from_literals[] = {0, 1.5, 2.0f, uint8_t(3)};
    EXPECT(from_literals[0].raw == 0 && from_literals[1].raw == 0x3fc0 && from_literals[3].raw == 0x4040);
    EXPECT(DataCopyPadExtParams<bfloat16_t>(false, 0, 0, 1).paddingValue.raw == 0x3f80);
#endif
}

void check_bits() {
    EXPECT(GetBitCount<1>(0xffff) == 16 && GetBitCount<0>(0xffff) == 48 && ScalarGetCountOfValue<1>(5) == 2);
    EXPECT(CountLeadingZero(0) == 64 && CountLeadingZero(0xffff) == 48 && ScalarCountLeadingZero(~0ull) == 0);
    EXPECT(CountBitsCntSameAsSignBit(0) == -1 && CountBitsCntSameAsSignBit(-1) == -1);
    EXPECT(CountBitsCntSameAsSignBit(1) == 62 && CountBitsCntSameAsSignBit(INT64_MAX) == 0);
    EXPECT(CountBitsCntSameAsSignBit(INT64_MIN) == 0 && CountBitsCntSameAsSignBit(0x00F0000000000000) == 7);
    EXPECT(GetSFFValue<0>(~0ull) == -1 && GetSFFValue<1>(0) == -1 && GetSFFValue<1>(0xff00) == 8);
    EXPECT(GetSFFValue<0>(0xff) == 8 && ScalarGetSFFValue<0>(0xff00) == 0);
}

// ---- limits ----------------------------------------------------------------------------------------------

void check_limits() {
#if __CCE_AICORE__ == 310
    EXPECT(NumericLimits<uint8_t>::Max() == 255 && NumericLimits<int16_t>::Lowest() == -32768);
    EXPECT(NumericLimits<int32_t>::Min() == std::numeric_limits<int32_t>::min());
    EXPECT(NumericLimits<half>::Max().raw == 0x7bff && NumericLimits<half>::Lowest().raw == 0xfbff);
    EXPECT(NumericLimits<half>::Min().raw == 0x0400 && NumericLimits<half>::DeNormMin().raw == 1);
    EXPECT(NumericLimits<half>::QuietNaN().raw == 0x7e00 && NumericLimits<half>::SignalingNaN().raw == 0x7d00);
    EXPECT(NumericLimits<bfloat16_t>::NegativeInfinity().raw == 0xff80);
    EXPECT(NumericLimits<bfloat16_t>::Min().raw == 0x0080 && NumericLimits<bfloat16_t>::QuietNaN().raw == 0x7fc0);
    EXPECT(NumericLimits<float>::Max() == std::numeric_limits<float>::max());
    EXPECT(NumericLimits<float>::Min() == std::numeric_limits<float>::min());
    Bench b;
    const auto s = b.put(std::vector<float>(72, 1.0f));
    expect_rule("Infinity", b.run([&] { NumericLimits<float>::Infinity(b(s), 70u); }), "");
    std::vector<float> want(72, std::numeric_limits<float>::infinity());
    want[70] = want[71] = 1.0f;
    expect("Infinity", b.get(s), want);
#endif
}

// ---- the core's state ------------------------------------------------------------------------------------

void check_state() {
    Bench b;
    const auto s = b.put(std::vector<float>(64, 1.0f)), d = b.put(std::vector<float>(64, 5.0f));
    int64_t index = -1, count = -1, begin = -1, end = -1;
    expect_rule("state", b.run([&] {
        index = block_idx + get_block_idx() + get_subblockid();
        count = get_block_num() + GetTaskRatio() + GetTaskRation();
#if __CCE_AICORE__ != 200
        count += GetSubBlockNum() - 1;
        begin = GetSystemCycle();
        for (int i = 0; i < 1000; ++i) pipe_barrier(PIPE_ALL);
        end = GetSystemCycle();
#endif
        int64_t block_idx = 7;  // a kernel may have a variable of this name
        index += block_idx - 7;
        AscendCUtils::SetMask<float>(20);
        Adds<float, false>(b(d), b(s), 1.0f, MASK_PLACEHOLDER, 1, {1, 1, 8, 8});
        AscendCUtils::ResetMask();
        set_mask_count();
        set_vector_mask(0, 3);
        set_mask_norm();
        InitSocState();
        if (ascend_sim::kIs310p) ResetMask();
        set_flag(PIPE_V, PIPE_S, EVENT_ID0);
        wait_flag(PIPE_V, PIPE_S, EVENT_ID0);
        AscendC::printf("%d\n", int(b(d).GetValue(0)));
        PRINTF("%f\n", b(d).GetValue(0));
        DumpTensor(b(d), 1, 64);
        DumpAccChkPoint(b(d), 1, 0, 64);
        Async<EngineType::AIC, Trap>(ascend_sim::Site::here());
    }),
                "");
    EXPECT(index == 0 && count == 3 && GetDataBlockSizeInBytes() == 32);
    // 1000 barriers take about 3000 cycles at 1.8 GHz, on Ascend950 at 1.65 GHz. The counter has 50 MHz, on Ascend950
    // 1 GHz.
    const int64_t ticks = end - begin;
    EXPECT(ascend_sim::kIs310p || (ascend_sim::kIs950 ? ticks > 1000 && ticks < 4000 : ticks > 50 && ticks < 150));
    std::vector<float> want(64, 5.0f);
    for (int i = 0; i < 20; ++i) want[size_t(i)] = 2.0f;
    expect("SetMask of 20 lanes", b.get(d), want);
    expect_rule("an event between no two pipes", b.run([] { set_flag(PIPE_M, PIPE_S, EVENT_ID0); }), "SIM-EVENT-06");
    expect_rule("a negative mask", b.run([] { AscendCUtils::SetMask<float>(-1); }), "SIM-MASK-01");
    // SetMask<T>(len): 64 lanes are the register's low half; 128 and more are all.
    expect_rule("SetMask of a repeat", b.run([&] {
        AscendCUtils::SetMask<half>(64);
        EXPECT(ascend_sim::mask_register().low == ~0ull && ascend_sim::mask_register().high == 0);
        AscendCUtils::SetMask<half>(128);
        EXPECT(ascend_sim::mask_register().low == ~0ull && ascend_sim::mask_register().high == ~0ull);
        AscendCUtils::SetMask<half>(70);
        EXPECT(ascend_sim::mask_register().low == ~0ull && ascend_sim::mask_register().high == 63);
        AscendCUtils::SetMask<int64_t>(32);
        EXPECT(ascend_sim::mask_register().low == ~0ull && ascend_sim::mask_register().high == ~0ull);
        AscendCUtils::SetMask<half>(70);
        AscendCUtils::SetMask<float, false>(1);
        EXPECT(ascend_sim::mask_register().high == 63);
        AscendCUtils::ResetMask();
    }),
                "");
}

}  // namespace

int main() {
    check_constants();
    check_conversions();
    check_bits();
    check_limits();
    check_state();
    return finish("test_scalars");
}
