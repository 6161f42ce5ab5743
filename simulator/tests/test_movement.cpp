// Gathers, masks, comparisons and copies, compared with plain loops.
#include <algorithm>
#include <limits>

#include "instruction_bench.h"

using namespace AscendC;
using namespace bench;

namespace {

// ---- gathers ----------------------------------------------------------------------------------------------

template <class T>
void check_gather_of(const std::string& type) {
    const auto x = numbers<T>(640, 0, 30000);
    Random random;
    std::vector<uint32_t> offsets(600);
    for (uint32_t& o : offsets) o = random.bits() % 600 * uint32_t(sizeof(T));
    Bench b;
    const auto sx = b.put(x), sd = b.space<T>(608), sr = b.space<T>(1024);
    const auto so = b.put(offsets);
    expect_rule("Gather " + type, b.run([&] {
        Gather(b(sd), b(sx), b(so), uint32_t(8 * sizeof(T)), 597u);
        Gather(b(sr), b(sx), b(so), 0u, uint64_t(40), 3, 16);
    }),
                "");
    std::vector<T> want(608, T(0)), repeats(1024, T(0));
    for (uint32_t i = 0; i < 597; ++i) want[i] = x[offsets[i] / sizeof(T) + 8];
    constexpr uint32_t kLanes = 256 / sizeof(T);
    for (uint32_t r = 0; r < 3; ++r)
        for (uint32_t l = 0; l < 40; ++l) repeats[r * 2 * kLanes + l] = x[offsets[r * kLanes + l] / sizeof(T)];
    expect("Gather " + type, b.get(sd), want);
    expect("Gather's repeats " + type, b.get(sr), repeats);
}

// The page forbids a gather in place. If the rule only warns, each repeat is read before it is written.
void check_gather_in_place() {
    const auto x = numbers<float>(128, 0, 30000);
    std::vector<uint32_t> reversed(128);  // within each repeat of 64 elements
    for (uint32_t i = 0; i < 128; ++i) reversed[i] = (i / 64 * 64 + 63 - i % 64) * 4;
    Bench b({false, "SIM-OVERLAP-01"});
    const auto sx = b.put(x);
    const auto so = b.put(reversed);
    expect_rule("Gather in place", b.run([&] { Gather(b(sx), b(sx), b(so), 0u, 128u); }), "");
    std::vector<float> want(128);
    for (uint32_t i = 0; i < 128; ++i) want[i] = x[reversed[i] / 4];
    expect("Gather in place", b.get(sx), want);
}

void check_block_gather() {
#if __CCE_AICORE__ != 200
    const auto x = numbers<uint16_t>(1024, 0, 60000);
    Random random;
    std::vector<uint32_t> offsets(16);
    for (uint32_t& o : offsets) o = random.bits() % 64 * 32;
    offsets[0] = 63 * 32;  // the last block
    Bench b;
    const auto sx = b.put(x), sd = b.space<uint16_t>(512);
    const auto so = b.put(offsets);
    expect_rule("Gatherb", b.run([&] { Gatherb(b(sd), b(sx), b(so), 2, GatherRepeatParams(2, 16)); }), "");
    std::vector<uint16_t> want(512, 0);
    for (uint32_t i = 0; i < 16; ++i)
        std::copy_n(x.begin() + offsets[i] / 2, 16, want.begin() + (i / 8 * 16 + i % 8 * 2) * 16);
    expect("Gatherb", b.get(sd), want);

    // A block stride of 0 is taken as 1.
    Bench c;
    const auto cx = c.put(x), cd = c.space<uint16_t>(256);
    const auto co = c.put(offsets);
    expect_rule("Gatherb's stride 0", c.run([&] { Gatherb(c(cd), c(cx), c(co), 2, GatherRepeatParams(0, 8)); }), "");
    std::vector<uint16_t> adjacent;
    for (const uint32_t o : offsets) adjacent.insert(adjacent.end(), x.begin() + o / 2, x.begin() + o / 2 + 16);
    expect("Gatherb's stride 0", c.get(cd), adjacent);
#endif
}

void check_scatter() {
#if __CCE_AICORE__ != 220
    const auto x = numbers<float>(200, -5, 5);
    std::vector<uint32_t> offsets(200);
    for (uint32_t i = 0; i < 200; ++i) offsets[i] = i * 77 % 200 * 4;
    Bench b;
    const auto sx = b.put(x), sd = b.space<float>(208);
    const auto so = b.put(offsets);
    expect_rule("Scatter", b.run([&] { Scatter(b(sd), b(sx), b(so), 32u, 200u); }), "");
    std::vector<float> want(208, 0.0f);
    for (uint32_t i = 0; i < 200; ++i) want[i * 77 % 200 + 8] = x[i];
    expect("Scatter", b.get(sd), want);
    expect_rule("Scatter of a short source", b.run([&] {
        LocalTensor<float> s = b(sx);
        s.SetSize(199);
        Scatter(b(sd), s, b(so), 32u, 200u);
    }),
                "SIM-BOUNDS-01");
    expect_instruction("Scatter");

    // 64 lanes of each repeat of 256 bytes; the last repeat reads beyond the source.
    Bench c;
    const auto cx = c.put(x), cd = c.space<float>(208);
    const auto co = c.put(offsets);
    const auto scatter = [&](uint8_t repeats) {
        return c.run([&] { Scatter(c(cd), c(cx), c(co), 32u, uint64_t(64), repeats, uint8_t(8)); });
    };
    expect_rule("Scatter with a mask", scatter(3), "");
    std::fill(want.begin(), want.end(), 0.0f);
    for (uint32_t i = 0; i < 192; ++i) want[i * 77 % 200 + 8] = x[i];
    expect("Scatter with a mask", c.get(cd), want);
    expect_rule("Scatter of too many repeats", scatter(4), "SIM-BOUNDS-01");
    expect_instruction("Scatter");
#endif
}

template <class T, class U>
void check_gather_mask_of(const std::string& type) {
    constexpr uint32_t kLanes = 256 / sizeof(T);
    const auto x = numbers<T>(kLanes * 6, 0, 30000);
    auto selects = [](int pattern, uint32_t i) {
        const char* const text[] = {"", "10", "01", "1000", "0100", "0010", "0001", "1"};
        return text[pattern][i % std::strlen(text[pattern])] == '1';
    };
    for (int pattern = 1; pattern <= (ascend_sim::kIs310p ? 6 : 7); ++pattern)
        for (bool counter : {false, true}) {
            Bench b;
            const auto sx = b.put(x), sd = b.space<T>(kLanes * 6);
            uint64_t count = 0;
            const uint32_t mask = counter ? kLanes + 22 : 0;
            const std::string what =
                "GatherMask " + type + " pattern " + std::to_string(pattern) + (counter ? " counter" : "");
            expect_rule(what,
                        b.run([&] { GatherMask(b(sd), b(sx), uint8_t(pattern), counter, mask, {1, 2, 20, 0}, count); }),
                        "");
            std::vector<T> want;
            // Counter mode: `mask` elements per repeat. On Ascend310P, `mask` elements in all, in repeats of 256 bytes.
            for (uint32_t r = 0; r < 2; ++r) {
                uint32_t n = counter ? mask : kLanes;
                if (counter && ascend_sim::kIs310p) n = r ? mask - kLanes : kLanes;
                for (uint32_t i = 0; i < n; ++i)
                    if (selects(pattern, i)) want.push_back(x[r * 20 * 32 / sizeof(T) + i]);
            }
            check(count == want.size(), what + ": count " + std::to_string(count));
            want.resize(kLanes * 6, T(0));
            expect(what, b.get(sd), want);
        }
    // A pattern of the caller, one bit per element. Its repeats are src1RepeatStride blocks apart.
    Random random;
    std::vector<U> pattern(64);
    for (U& u : pattern) u = U(random.bits());
    Bench b;
    const auto sx = b.put(x), sd = b.space<T>(kLanes * 2);
    const auto sp = b.put(pattern);
    uint64_t count = 0;
    expect_rule("GatherMask by a tensor",
                b.run([&] { GatherMask(b(sd), b(sx), b(sp), false, 0, {1, 2, 8, 1}, count); }), "");
    std::vector<T> want;
    constexpr uint32_t kBits = 8 * sizeof(U);
    for (uint32_t r = 0; r < 2; ++r)
        for (uint32_t i = 0; i < kLanes; ++i)
            if (pattern[r * 32 / sizeof(U) + i / kBits] >> i % kBits & 1) want.push_back(x[r * kLanes + i]);
    check(count == want.size(), "GatherMask by a tensor: count");
    want.resize(kLanes * 2, T(0));
    expect("GatherMask by a tensor " + type, b.get(sd), want);
}

// Rules of Gather, GatherMask and Select.
void check_rules() {
    auto rule_of = [](auto call) {
        Bench b;
        const auto x = b.put(numbers<float>(256, 1, 9)), zeros = b.space<float>(256);
        const auto bits = b.space<uint32_t>(64);
        return b.run([&] { call(b(zeros), b(x), b(bits)); });
    };
    expect_rule("Gather to an odd element",
                rule_of([](auto d, auto x, auto offsets) { Gather(d[1], x, offsets, 0u, 64u); }),
                ascend_sim::kIs310p ? "" : "SIM-ALIGN-02");
    for (int pattern : {0, 8})
        expect_rule("GatherMask by pattern " + std::to_string(pattern), rule_of([=](auto d, auto x, auto) {
                        uint64_t count = 0;
                        GatherMask(d, x, uint8_t(pattern), false, 0, {1, 1, 8, 0}, count);
                    }),
                    "SIM-MODE-01");
    expect_rule("GatherMask by the bits of one repeat", rule_of([](auto d, auto x, auto bits) {
                    uint64_t count = 0;
                    bits.SetSize(2);
                    GatherMask(d, x, bits, false, 0, {1, 1, 8, 1}, count);
                }),
                "");
    auto select = [](auto d, auto bits, auto x, auto y, uint32_t count) {
        Select(d, bits, x, y, SELMODE::VSEL_TENSOR_TENSOR_MODE, count);
    };
    for (uint32_t bytes : {31u, 32u})
        expect_rule("Select by " + std::to_string(bytes) + " bytes", rule_of([=](auto d, auto x, auto bits) {
                        auto mask = bits.template ReinterpretCast<uint8_t>();
                        mask.SetSize(bytes);
                        select(d, mask, x, x, 256);
                    }),
                    bytes == 32 ? "" : "SIM-BOUNDS-01");
    expect_rule("Select into its second source",
                rule_of([=](auto y, auto x, auto bits) { select(y[8], bits, x, y, 64); }), "SIM-OVERLAP-01");
}

void check_interleave() {
#if __CCE_AICORE__ == 310
    const auto x = numbers<half>(128, -9, 9), y = numbers<half>(128, 10, 20);
    Bench b;
    const auto sx = b.put(x), sy = b.put(y), s0 = b.space<half>(128), s1 = b.space<half>(128);
    const auto t0 = b.space<half>(128), t1 = b.space<half>(128), u0 = b.space<half>(64), u1 = b.space<half>(64);
    expect_rule("Interleave", b.run([&] {
        Interleave(b(s0), b(s1), b(sx), b(sy), 128);
        DeInterleave(b(t0), b(t1), b(s0), b(s1), 128);
        DeInterleave(b(u0), b(u1), b(sx), 128);
    }),
                "");
    std::vector<half> w0(128), w1(128), v0(64), v1(64);
    for (uint32_t i = 0; i < 256; ++i) (i < 128 ? w0 : w1)[i % 128] = (i % 2 ? y : x)[i / 2];
    for (uint32_t i = 0; i < 128; ++i) (i % 2 ? v1 : v0)[i / 2] = x[i];
    expect("Interleave, first", b.get(s0), w0);
    expect("Interleave, second", b.get(s1), w1);
    expect("DeInterleave, even", b.get(t0), x);
    expect("DeInterleave, odd", b.get(t1), y);
    expect("DeInterleave one, even", b.get(u0), v0);
    expect("DeInterleave one, odd", b.get(u1), v1);
    expect_rule("DeInterleave into its source", b.run([&] { DeInterleave(b(s0), b(t1), b(s0), b(s1), 128); }),
                "SIM-OVERLAP-01");
#endif
}

// ---- comparing and selecting ------------------------------------------------------------------------------

void check_compare_select() {
    auto x = numbers<float>(256, -3, 3), y = x;
    std::rotate(y.begin(), y.begin() + 9, y.end());
    for (uint32_t i = 0; i < 256; i += 5) y[i] = x[i];
    x[3] = NAN;
    const CMPMODE modes[] = {CMPMODE::LT, CMPMODE::GT, CMPMODE::EQ, CMPMODE::LE, CMPMODE::GE, CMPMODE::NE};
    for (CMPMODE mode : modes) {
        Bench b;
        const auto sx = b.put(x), sy = b.put(y), st = b.put(x), ss = b.put(x), s0 = b.put(x);
        const auto bits = b.space<uint8_t>(32), scalar_bits = b.space<uint8_t>(32);
        const std::string what = "Compare " + std::to_string(int(mode));
        expect_rule(what, b.run([&] {
            Compare(b(bits), b(sx), b(sy), mode, 256u);
            Compares(b(scalar_bits), b(sx), 0.5f, mode, 256u);
            PipeBarrier<PIPE_V>();
            Select(b(st), b(bits), b(sx), b(sy), SELMODE::VSEL_TENSOR_TENSOR_MODE, 250u);
            Select(b(ss), b(bits), b(sx), -7.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, 64, 4, {1, 1, 1, 8, 8, 8});
            Select(b(s0), b(bits), b(sx), b(sy), SELMODE::VSEL_CMPMASK_SPR, 64, 4, {1, 1, 1, 8, 8, 8});
        }),
                    "");
        auto holds = [mode](float a, float c) {
            const bool all[] = {a<c, a> c, a == c, a <= c, a >= c, a != c};
            return all[int(mode)];
        };
        std::vector<uint8_t> wb(32, 0), ws(32, 0);
        std::vector<float> wt = x, wscalar(256), w0(256);
        for (uint32_t i = 0; i < 256; ++i) {
            if (holds(x[i], y[i])) wb[i / 8] = uint8_t(wb[i / 8] | 1u << i % 8);
            if (holds(x[i], 0.5f)) ws[i / 8] = uint8_t(ws[i / 8] | 1u << i % 8);
        }
        for (uint32_t i = 0; i < 256; ++i) {
            const bool bit = wb[i / 8] >> i % 8 & 1, first = wb[i % 64 / 8] >> i % 8 & 1;
            if (i < 250) wt[i] = bit ? x[i] : y[i];
            wscalar[i] = bit ? x[i] : -7.0f;
            w0[i] = first ? x[i] : y[i];
        }
        expect(what, b.get(bits), wb);
        expect(what + " scalar", b.get(scalar_bits), ws);
        expect(what + " Select, mode 2", b.get(st), wt);
        expect(what + " Select, mode 1", b.get(ss), wscalar);
        expect(what + " Select, mode 0", b.get(s0), w0);
    }
}

// ---- copies -----------------------------------------------------------------------------------------------

std::vector<uint8_t> counting_bytes(size_t n) {
    std::vector<uint8_t> v(n);
    for (size_t i = 0; i < n; ++i) v[i] = uint8_t(i * 7 + i / 256);
    return v;
}

template <class F>
std::vector<uint8_t> bytes_after_copies(const std::string& what, size_t out_bytes, F body, const char* rule = "") {
    std::vector<uint8_t> x = counting_bytes(8192), y(out_bytes, 0xee);
    expect_rule(what,
                launch(x, y, {},
                       [&](GM_ADDR gx, GM_ADDR gy) {
                           TPipe pipe;
                           TBuf<> buffer;
                           pipe.InitBuffer(buffer, 8192);
                           GlobalTensor<half> from, to;
                           from.SetGlobalBuffer(reinterpret_cast<half*>(gx), 4096);
                           to.SetGlobalBuffer(reinterpret_cast<half*>(gy), out_bytes / 2);
                           body(from, to, buffer.Get<half>());
                       }),
                rule);
    return y;
}

void check_copies() {
    const auto x = counting_bytes(8192);
    const auto plain = bytes_after_copies("DataCopy with strides", 2048, [](auto& from, auto& to, auto ub) {
        DataCopy(ub, from[3], {5, 2, 3, 1});  // bursts begin 5 blocks apart in GM and 3 in UB
        PipeBarrier<PIPE_ALL>();
        DataCopy(ub[2048], ub, DataCopyParams(5, 2, 1, 0));
        PipeBarrier<PIPE_ALL>();
        DataCopy(to, ub[2048], {5, 2, 0, 4});
    });
    std::vector<uint8_t> want(2048, 0xee);
    for (uint32_t i = 0; i < 5; ++i) std::copy_n(x.begin() + 6 + i * 160, 64, want.begin() + i * 192);
    expect("DataCopy with strides", plain, want);

    const auto nothing = bytes_after_copies(
        "DataCopy of no blocks", 64,
        [](auto& from, auto& to, auto ub) {
            DataCopy(ub, from, {5, 0, 0, 0});
            DataCopy(ub[32], ub, {5, 0, 0, 0});
            DataCopy(to, ub, {5, 0, 0, 0});
        },
        ascend_sim::kIs310p ? "SIM-COUNT-02" : "");
    expect("DataCopy of no blocks", nothing, std::vector<uint8_t>(64, 0xee));

    bytes_after_copies(
        "SetAtomicAdd of another type", 64,
        [](auto& from, auto& to, auto ub) {
            GlobalTensor<uint16_t> other;
            other.SetGlobalBuffer((uint16_t*)to.GetPhyAddr(), 32);
            DataCopy(ub, from, 32);
            PipeBarrier<PIPE_ALL>();
            SetAtomicAdd<int16_t>();
            DataCopy(other, ub.template ReinterpretCast<uint16_t>(), 32);
        },
        "SIM-STATE-02");
    bytes_after_copies(
        "GetValue past the tensor", 64, [](auto& from, auto&, auto) { from.GetValue(4096); }, "SIM-BOUNDS-03");

#if __CCE_AICORE__ != 200
    const auto padded = bytes_after_copies("DataCopyPad", 2048, [](auto& from, auto& to, auto ub) {
        DataCopyPad(ub, from, DataCopyExtParams(3, 38, 10, 1, 0), DataCopyPadExtParams<half>(true, 2, 3, half(1.0f)));
        PipeBarrier<PIPE_ALL>();
        DataCopy(to, ub, 32);  // the first burst and its padding, 2 + 19 + 3 elements, and 8 more up to 64 bytes
        DataCopyPad(to[128], ub, DataCopyExtParams(3, 38, 1, 100, 0));
    });
    want.assign(2048, 0xee);
    const uint8_t one[2] = {0x00, 0x3c};
    for (uint32_t i = 0; i < 64; ++i) want[i] = one[i % 2];
    std::copy_n(x.begin(), 38, want.begin() + 4);
    // In UB, each burst has 64 bytes and each gap 32.
    for (uint32_t b = 0; b < 3; ++b)
        for (uint32_t i = 0; i < 38; ++i) want[256 + b * 138 + i] = i < 4 ? one[i % 2] : x[b * 48 + i - 4];
    expect("DataCopyPad", padded, want);

    const auto gaps = bytes_after_copies("DataCopyPad with gaps", 192, [](auto& from, auto& to, auto ub) {
        DataCopyPad(ub, from, DataCopyExtParams(3, 64, 0, 1, 0), DataCopyPadExtParams<half>(false, 0, 0, half(0.0f)));
        PipeBarrier<PIPE_ALL>();
        DataCopy(to, ub, {3, 2, 1, 0});
    });
    expect("DataCopyPad with gaps", gaps, std::vector<uint8_t>(x.begin(), x.begin() + 192));

    for (int64_t value : {0, 1})
        bytes_after_copies(
            "DataCopyPad of 64 bits with " + std::to_string(value), 64,
            [=](auto& from, auto&, auto ub) {
                GlobalTensor<int64_t> wide;
                wide.SetGlobalBuffer((int64_t*)from.GetPhyAddr(), 8);
                DataCopyPad(ub.template ReinterpretCast<int64_t>(), wide, DataCopyExtParams(1, 8, 0, 0, 0),
                            DataCopyPadExtParams<int64_t>(true, 0, 1, value));
            },
            value ? "SIM-PAD-01" : "");

#if __CCE_AICORE__ == 310
    const auto compact = bytes_after_copies("PaddingMode::Compact", 32, [](auto& from, auto& to, auto ub) {
        DataCopyPad<half, PaddingMode::Compact>(ub, from, DataCopyExtParams(3, 6, 10, 0, 0),
                                                DataCopyPadExtParams<half>(false, 0, 0, half(0.0f)));
        PipeBarrier<PIPE_ALL>();
        DataCopyPad(to, ub, DataCopyExtParams(1, 18, 0, 0, 0));
    });
    want.assign(32, 0xee);
    for (uint32_t b = 0; b < 3; ++b) std::copy_n(x.begin() + b * 16, 6, want.begin() + b * 6);
    expect("PaddingMode::Compact", compact, want);
    // A gap has 64 bits and a sign. It has no effect on a single burst.
    bytes_after_copies("the lowest gap", 64, [](auto& from, auto&, auto ub) {
        DataCopyPad(ub, from, DataCopyExtParams(1, 64, std::numeric_limits<int64_t>::min(), 0, 0),
                    DataCopyPadExtParams<half>(false, 0, 0, half(0.0f)));
    });
#endif

    const auto filled = bytes_after_copies("DataCopyPad without padding", 192, [](auto& from, auto& to, auto ub) {
        DataCopyPad(ub, from, DataCopyExtParams(3, 38, 10, 0, 0), DataCopyPadExtParams<half>(false, 0, 0, half(1.0f)));
        PipeBarrier<PIPE_ALL>();
        DataCopy(to, ub, 96);
    });
    want.assign(192, 0);
    for (uint32_t b = 0; b < 3; ++b)
        for (uint32_t i = 0; i < 64; ++i) want[b * 64 + i] = x[b * 48 + (i < 38 ? i : i % 2)];
    expect("DataCopyPad without padding", filled, want);

    const auto by_register = bytes_after_copies("SetPadValue", 64, [](auto& from, auto& to, auto ub) {
        SetPadValue(half(1.0f));
        DataCopyPad(ub, from, DataCopyExtParams(1, 38, 0, 0, 0), DataCopyPadExtParams<half>(false, 2, 3, half(2.0f)));
        PipeBarrier<PIPE_ALL>();
        DataCopy(to, ub, 32);
    });
    want.assign(64, 0);
    for (uint32_t i = 0; i < 64; ++i) want[i] = i < 4 || i >= 42 ? one[i % 2] : x[i - 4];
    expect("SetPadValue", by_register, want);

    const auto older_form = bytes_after_copies("DataCopyPad, older form", 256, [](auto& from, auto& to, auto ub) {
        DataCopyPad(ub, from, DataCopyParams(2, 30, 2, 0), DataCopyPadParams(true, 0, 1, 0));
        PipeBarrier<PIPE_ALL>();
        DataCopyPad(to, ub, DataCopyParams(1, 64, 0, 0));
    });
    want.assign(256, 0xee);
    for (uint32_t b = 0; b < 2; ++b)
        for (uint32_t i = 0; i < 32; ++i) want[b * 32 + i] = i < 30 ? x[b * 32 + i] : 0;
    expect("DataCopyPad, older form", older_form, want);

    Bench b;
    const auto v = numbers<float>(1024, -9, 9);
    const auto sv = b.put(v), sd = b.space<float>(1024);
    expect_rule("Copy", b.run([&] { Copy(b(sd), b(sv), 64, 5, CopyRepeatParams(1, 2, 8, 24)); }), "");
    std::vector<float> moved(1024, 0.0f);
    for (uint32_t r = 0; r < 5; ++r)
        for (uint32_t l = 0; l < 64; ++l) moved[r * 64 + l] = v[r * 192 + l / 8 * 16 + l % 8];
    expect("Copy", b.get(sd), moved);

    // In counter mode, each repeat copies as many elements as the mask register gives.
    struct Counted {
        uint32_t elements;
        uint8_t repeats;
        CopyRepeatParams params;  // strides of blocks and repeats: dst, src, dst, src
    };
    for (const Counted& call : {Counted{144, 1, {1, 7, 8, 8}}, Counted{100, 3, {1, 1, 13, 0}},
                                Counted{20, 6, {1, 0, 3, 1}}, Counted{72, 2, {2, 3, 20, 30}}}) {
        const auto dst = b.put(std::vector<float>(1024, 0.5f));
        const std::string what = "Copy of " + std::to_string(call.elements) + " elements a repeat in counter mode";
        expect_rule(what, b.run([&] {
            SetMaskCount();
            SetVectorMask<float, MaskMode::COUNTER>(call.elements);
            Copy<float, false>(b(dst), b(sv), MASK_PLACEHOLDER, call.repeats, call.params);
            SetMaskNorm();
            ResetMask();
        }),
                    "");
        moved.assign(1024, 0.5f);
        for (uint32_t r = 0; r < call.repeats; ++r)
            for (uint32_t i = 0; i < call.elements; ++i)
                moved[(r * call.params.dstRepeatSize + i / 8 * call.params.dstStride) * 8 + i % 8] =
                    v[(r * call.params.srcRepeatSize + i / 8 * call.params.srcStride) * 8 + i % 8];
        expect(what, b.get(dst), moved);
    }
#endif

    std::vector<uint8_t> in(256), out(256);
    std::vector<float> a(64, 1.25f), c(64, 3.0f);
    std::memcpy(in.data(), a.data(), 256);
    std::memcpy(out.data(), c.data(), 256);
    expect_rule("SetAtomicAdd",
                launch(in, out, {},
                       [](GM_ADDR gx, GM_ADDR gy) {
                           TPipe pipe;
                           TBuf<> buffer;
                           pipe.InitBuffer(buffer, 256);
                           GlobalTensor<float> from, to;
                           from.SetGlobalBuffer(reinterpret_cast<float*>(gx), 64);
                           to.SetGlobalBuffer(reinterpret_cast<float*>(gy), 64);
                           DataCopy(buffer.Get<float>(), from, 64);
                           PipeBarrier<PIPE_ALL>();
                           SetAtomicAdd<float>();
                           DataCopy(to, buffer.Get<float>(), 64);
                           DataCopy(to, buffer.Get<float>(), 32);
                           SetAtomicNone();
                       }),
                "");
    std::vector<float> sum(64);
    std::memcpy(sum.data(), out.data(), 256);
    for (uint32_t i = 0; i < 64; ++i) check(sum[i] == (i < 32 ? 5.5f : 4.25f), "SetAtomicAdd's sum");
}

}  // namespace

int main() {
    check_gather_of<uint16_t>("uint16");
    check_gather_of<half>("half");
    check_gather_of<float>("float");
    check_gather_in_place();
    check_block_gather();
    check_scatter();
    check_gather_mask_of<half, uint16_t>("half");
    check_gather_mask_of<float, uint32_t>("float");
    check_rules();
    check_interleave();
    check_compare_select();
    check_copies();
    return finish("test_movement");
}
