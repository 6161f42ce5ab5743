// Sorting, comparisons into the register, padding and saturation, compared with plain loops.
#include <algorithm>
#include <cstring>
#include <limits>

#include "instruction_bench.h"

using namespace AscendC;
using namespace bench;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// ---- sorting ---------------------------------------------------------------------------------------------------

// Whether a comes before b. The order is descending, with NaN first.
template <class T>
bool before(T a, T b) {
    if (float(a) != float(a)) return float(b) == float(b);
    return float(a) > float(b);
}

template <class T>
struct Entry {
    T score;
    uint32_t index;
};

template <class T>
std::vector<uint8_t> bytes_of(const std::vector<Entry<T>>& entries) {
    std::vector<uint8_t> bytes(entries.size() * 8);
    for (size_t i = 0; i < entries.size(); ++i) {
        std::memcpy(&bytes[8 * i], &entries[i].score, sizeof(T));
        std::memcpy(&bytes[8 * i + 4], &entries[i].index, 4);
    }
    return bytes;
}

#if __CCE_AICORE__ != 200
template <class T>
void check_sort32(const std::string& type) {
    constexpr uint32_t kN = 96;
    auto scores = numbers<T>(kN, -4, 4);
    for (uint32_t i = 0; i < kN; i += 3) scores[i] = T(float(int(float(scores[i]))));  // equal scores
    scores[40] = scores[33] = T(kNan);
    std::vector<uint32_t> indices(kN);
    std::vector<Entry<T>> want(kN);
    for (uint32_t i = 0; i < kN; ++i) want[i] = {scores[i], indices[i] = 1000 + 7 * i};
    for (uint32_t i = 0; i < kN; i += 32)
        std::stable_sort(want.begin() + i, want.begin() + i + 32,
                         [](const Entry<T>& a, const Entry<T>& c) { return before(a.score, c.score); });
    Bench b;
    const auto d = b.space<uint8_t>(8 * kN);
    const auto pad = b.space<uint8_t>(0);
    (void)pad;
    const auto i = b.put(indices);
    const auto s = b.put(scores);
    expect_rule("Sort32 " + type,
                b.run([&] { Sort32<T>(b(d).template ReinterpretCast<T>(), b(s), b(i), int32_t(kN / 32)); }), "");
    expect_bits("Sort32 " + type, b.get(d), bytes_of(want));
    for (int operand = 0; operand < 3; ++operand) {  // each operand 32 bytes later
        const uint32_t off[3] = {operand == 0 ? 32u / uint32_t(sizeof(T)) : 0u,
                                 operand == 1 ? 32u / uint32_t(sizeof(T)) : 0u, operand == 2 ? 8u : 0u};
        expect_rule(
            "Sort32 of an unaligned operand",
            b.run([&] { Sort32<T>(b(d).template ReinterpretCast<T>()[off[0]], b(s)[off[1]], b(i)[off[2]], 1); }), "");
        const std::string warning = std::string("`") + (operand ? operand == 1 ? "src0" : "src1" : "dst") + "` starts";
        const char* const found = std::strstr(ascend_sim_report(), "SIM-ALIGN-04");
        check(found && std::strstr(found, warning.c_str()), "a warning about the alignment: " + warning);
    }
    expect_rule("Sort32 of an operand at byte 4",
                b.run([&] { Sort32<T>(b(d).template ReinterpretCast<T>(), b(s), b(i)[1], 1); }), "SIM-ALIGN-01");
    const Slot<T> short_scores{s.byte, 31};
    expect_rule("Sort32 of 31 elements",
                b.run([&] { Sort32<T>(b(d).template ReinterpretCast<T>(), b(short_scores), b(i), 1); }),
                "SIM-BOUNDS-01");

    // If the rule only warns, 255 repeats are sorted.
    Bench c({false, "SIM-REPEAT-01"});
    const auto cd = c.put(std::vector<uint8_t>(256 * 256, 7));
    const auto cs = c.put(std::vector<T>(256 * 32, T(1.0f)));
    const auto ci = c.space<uint32_t>(256 * 32);
    expect_rule("Sort32 of 256 repeats",
                c.run([&] { Sort32<T>(c(cd).template ReinterpretCast<T>(), c(cs), c(ci), 256); }), "");
    const auto pairs = bytes_of(std::vector<Entry<T>>(255 * 32, Entry<T>{T(1.0f), 0}));
    std::vector<uint8_t> sorted(256 * 256, 7);
    std::copy(pairs.begin(), pairs.end(), sorted.begin());
    expect_bits("Sort32 of 256 repeats", c.get(cd), sorted);
}

// Merges lists of the lengths and compares the result with a sort of all entries. A suspended merge stops when one list
// is exhausted, so its result is the beginning of that sort.
template <class T>
void check_merge(const std::string& type, std::vector<uint16_t> lengths, bool suspends) {
    const std::string what = "MrgSort " + type + " of " + std::to_string(lengths.size()) + " lists";
    Random random;
    std::vector<std::vector<Entry<T>>> lists;
    uint32_t index = 0;
    for (uint16_t n : lengths) {
        std::vector<Entry<T>> list(n);
        for (Entry<T>& e : list) e = {T(float(int(random.between(-9, 9)))), index++};
        std::stable_sort(list.begin(), list.end(), [](auto& a, auto& c) { return before(a.score, c.score); });
        lists.push_back(list);
    }
    std::vector<Entry<T>> all;
    for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
    std::vector<uint32_t> owner;
    for (size_t i = 0; i < lists.size(); ++i) owner.insert(owner.end(), lengths[i], uint32_t(i));
    std::vector<uint32_t> order(all.size());
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t c) { return before(all[a].score, all[c].score); });
    std::vector<Entry<T>> want;
    std::vector<uint16_t> taken(4);
    for (uint32_t i : order) {
        want.push_back(all[i]);
        if (++taken[owner[i]] == lengths[owner[i]] && suspends) break;
    }
    Bench b;
    std::vector<Slot<uint8_t>> slots;
    for (const auto& list : lists) slots.push_back(b.put(bytes_of(list)));
    while (slots.size() < 4) slots.push_back(slots[0]);
    const auto d = b.space<uint8_t>(uint32_t(all.size() * 8));
    uint16_t got[4] = {};
    const auto body = [&] {
        const auto list = [&](int i) { return b(slots[i]).template ReinterpretCast<T>(); };
        uint16_t counts[4] = {};
        std::copy(lengths.begin(), lengths.end(), counts);
        const MrgSortSrcList<T> src(list(0), list(1), list(2), list(3));
        MrgSort<T>(b(d).template ReinterpretCast<T>(), src,
                   MrgSort4Info(counts, suspends, uint16_t((1 << lengths.size()) - 1), 1));
        if (suspends) GetMrgSortResult(got[0], got[1], got[2], got[3]);
    };
    expect_rule(what, b.run(body), "");
    auto bytes = bytes_of(want);
    bytes.resize(all.size() * 8);
    expect_bits(what, b.get(d), bytes);
    if (suspends) check(std::equal(taken.begin(), taken.end(), got), what + ": GetMrgSortResult");
}

template <class T>
void check_merges(const std::string& type) {
    check_merge<T>(type, {32, 32, 32, 32}, false);
    check_merge<T>(type, {5, 40, 1, 17}, false);
    check_merge<T>(type, {5, 40, 1, 17}, true);
    check_merge<T>(type, {12, 30}, false);
    check_merge<T>(type, {12, 30}, true);
    check_merge<T>(type, {8, 0, 9}, false);
    // Two repeats of four adjacent lists of four entries.
    std::vector<Entry<T>> entries(32);
    for (uint32_t i = 0; i < 32; ++i) entries[i] = {T(float(100 - int(i % 4) * 10 - int(i / 4))), i};
    auto want = entries;
    for (int r = 0; r < 2; ++r)
        std::stable_sort(want.begin() + 16 * r, want.begin() + 16 * (r + 1),
                         [](auto& a, auto& c) { return before(a.score, c.score); });
    Bench b;
    const auto s = b.put(bytes_of(entries)), d = b.space<uint8_t>(256);
    const auto call = [&](bool suspends, uint32_t third) {
        return b.run([&] {
            const LocalTensor<T> t = b(s).template ReinterpretCast<T>();
            constexpr uint32_t kList = 32 / sizeof(T);
            const uint16_t counts[4] = {4, 4, 4, 4};
            MrgSort<T>(b(d).template ReinterpretCast<T>(),
                       MrgSortSrcList<T>(t, t[kList], t[third * kList], t[3 * kList]),
                       MrgSort4Info(counts, suspends, 15, 2));
        });
    };
    expect_rule("MrgSort of two repeats", call(false, 2), "");
    expect_bits("MrgSort of two repeats", b.get(d), bytes_of(want));
    expect_rule("MrgSort of two repeats with suspension", call(true, 2), "SIM-REPEAT-01");
    expect_rule("MrgSort of two repeats of lists with a gap", call(false, 1), "SIM-REPEAT-01");
}
#else
template <class T>
void check_proposals(const std::string& type) {
    constexpr uint32_t kN = 32;
    auto scores = numbers<T>(kN, -3, 3);
    for (uint32_t i = 0; i < kN; i += 2) scores[i] = T(float(int(float(scores[i]))));
    std::vector<T> labels(kN);
    for (uint32_t i = 0; i < kN; ++i) labels[i] = T(float(i));
    auto want = std::vector<uint32_t>(kN);
    for (uint32_t i = 0; i < kN; ++i) want[i] = i;
    for (uint32_t i = 0; i < kN; i += 16)
        std::stable_sort(want.begin() + i, want.begin() + i + 16,
                         [&](uint32_t a, uint32_t c) { return before(scores[a], scores[c]); });
    auto merged = want;
    std::stable_sort(merged.begin(), merged.end(),
                     [&](uint32_t a, uint32_t c) { return before(scores[a], scores[c]); });
    Bench b;
    const auto s = b.put(scores), l = b.put(labels), p = b.put(std::vector<T>(8 * kN)), q = b.space<T>(8 * kN);
    const auto out = b.space<T>(kN), out2 = b.space<T>(kN), both = b.space<T>(kN);
    uint16_t taken[4] = {};
    const auto body = [&] {
        ProposalConcat(b(p), b(s), 2, 4);
        PipeBarrier<PIPE_V>();
        ProposalConcat(b(p), b(l), 2, 5);
        PipeBarrier<PIPE_V>();
        RpSort16(b(p), b(p), 2);
        PipeBarrier<PIPE_V>();
        ProposalExtract(b(out), b(p), 2, 4);
        ProposalExtract(b(out2), b(p), 2, 5);
        const uint16_t counts[4] = {16, 16, 0, 0};
        MrgSort4(b(q), MrgSortSrcList<T>(b(p), b(p)[128], b(p), b(p)), MrgSort4Info(counts, false, 3, 1));
        PipeBarrier<PIPE_V>();
        ProposalExtract(b(both), b(q), 2, 5);
        PipeBarrier<PIPE_V>();
        MrgSort4(b(q), MrgSortSrcList<T>(b(p), b(p)[128], b(p), b(p)), MrgSort4Info(counts, true, 3, 1));
        GetMrgSortResult(taken[0], taken[1], taken[2], taken[3]);
    };
    expect_rule("proposals " + type, b.run(body), "");
    std::vector<T> sorted(kN), label(kN), all(kN);
    uint16_t count[2] = {};
    bool stopped = false;
    for (uint32_t i = 0; i < kN; ++i) {
        sorted[i] = scores[want[i]];
        label[i] = labels[want[i]];
        all[i] = labels[merged[i]];
        if (!stopped) stopped = ++count[merged[i] / 16] == 16;
    }
    expect("RpSort16 " + type, b.get(out), sorted);
    expect("RpSort16's labels " + type, b.get(out2), label);
    expect("MrgSort4 " + type, b.get(both), all);
    check(taken[0] == count[0] && taken[1] == count[1], "GetMrgSortResult of MrgSort4");
    expect_rule("ProposalExtract's mode", b.run([&] { ProposalExtract(b(out), b(p), 1, 6); }), "SIM-MODE-01");
    // A tensor holds whole proposals.
    const Slot<T> cut{p.byte, 8 * kN - 1};
    expect_rule("ProposalConcat's size", b.run([&] { ProposalConcat(b(cut), b(s), 2, 4); }), "SIM-BOUNDS-01");
    expect_instruction("ProposalConcat");
    expect_rule("ProposalExtract's size", b.run([&] { ProposalExtract(b(out), b(cut), 2, 4); }), "SIM-BOUNDS-01");
    expect_rule("RpSort16's size", b.run([&] { RpSort16(b(q), b(cut), 2); }), "SIM-BOUNDS-01");
}

template <class T>
void check_padding(const std::string& type) {
    constexpr int kLanes = 32 / sizeof(T);
    constexpr uint32_t kN = 3 * kLanes;
    const auto x = varied_bits<T>(kN);
    for (uint8_t mode = 0; mode < 3; ++mode)
        for (bool right : {false, true}) {
            std::vector<T> want(kN, T(1));
            for (uint32_t i = 0; i + 2 < kN; ++i) {
                const T* const block = &x[i / kLanes * kLanes];
                const int k = int(i % kLanes);
                if (mode == 0) want[i] = block[right ? kLanes - 1 : 0];
                if (mode == 1) want[i] = block[kLanes - 1 - k];
                if (mode == 2 && right) want[i] = k == kLanes - 1 ? T(0) : block[kLanes - 2 - k];
                if (mode == 2 && !right) want[i] = k == 0 ? T(0) : block[kLanes - k];
            }
            Bench b;
            const auto s = b.put(x), d = b.put(std::vector<T>(kN, T(1)));
            expect_rule("VectorPadding " + type, b.run([&] { VectorPadding(b(d), b(s), mode, right, kN - 2); }), "");
            expect_bits("VectorPadding " + type, b.get(d), want);
        }
    Bench b;
    const auto s = b.put(x), d = b.put(std::vector<T>(kN, T(1)));
    std::vector<T> want(kN, T(1));
    want[1] = x[kLanes - 2];
    const uint64_t mask[2] = {2, 0};
    expect_rule("VectorPadding with a mask",
                b.run([&] { VectorPadding(b(d), b(s), 1, false, mask, 1, UnaryRepeatParams(1, 1, 8, 8)); }), "");
    expect_bits("VectorPadding with a mask", b.get(d), want);
    const UnaryRepeatParams far(1, 1, 8, 255);  // the last repeat's source is outside UB
    expect_rule("VectorPadding's stride", b.run([&] { VectorPadding(b(d), b(s), 1, false, mask, 255, far); }),
                "SIM-BOUNDS-01");
    const Slot<T> part{s.byte, kLanes - 1};  // whole blocks are read
    expect_rule("VectorPadding's block", b.run([&] { VectorPadding(b(d), b(part), 1, false, 1); }), "SIM-BOUNDS-01");
    expect_rule("VectorPadding of mode 3", b.run([&] { VectorPadding(b(d), b(s), 3, false, kN); }), "SIM-MODE-01");
}
#endif

// ---- the register of comparisons -----------------------------------------------------------------------------------

template <class T>
void check_compare_register(const std::string& type) {
    constexpr uint32_t kLanes = 256 / sizeof(T), kN = 2 * kLanes;
    auto x = numbers<T>(kN, -3, 3), y = x;
    std::rotate(y.begin(), y.begin() + 5, y.end());
    for (uint32_t i = 0; i < kN; i += 5) y[i] = x[i];
    x[2] = T(kNan);
    const bool results[6][3] = {{true, false, false}, {false, false, true}, {false, true, false},
                                {true, true, false},  {false, true, true},  {true, false, true}};
    for (int mode = 0; mode < 6; ++mode) {
        std::vector<uint8_t> want(128, 9);
        std::fill_n(want.begin(), 16, uint8_t(0));
        std::vector<T> selected(kN, T(7)), scalar(kN, T(7));
        for (uint32_t i = 0; i < kLanes - 3; ++i) {
            const float a = float(x[i]), c = float(y[i]);
            const bool holds = a != a ? mode == 5 : results[mode][a < c ? 0 : a == c ? 1 : 2];
            if (holds) want[i / 8] = uint8_t(want[i / 8] | 1 << i % 8);
        }
        for (uint32_t i = 0; i < kN; ++i) {
            const uint32_t lane = i % kLanes;
            const bool bit = want[lane / 8] >> lane % 8 & 1;
            if (lane < kLanes - 1) selected[i] = bit ? x[i] : y[i];
        }
        Bench b;
        const auto sx = b.put(x), sy = b.put(y), d = b.put(std::vector<T>(kN, T(7)));
        const auto bits = b.put(std::vector<uint8_t>(128, 9));
        const auto body = [&] {
            Compare(b(sx), b(sy), CMPMODE(mode), uint64_t(kLanes - 3), BinaryRepeatParams(1, 1, 1, 8, 8, 8));
            PipeBarrier<PIPE_V>();
            GetCmpMask(b(bits));
            SetVectorMask<T>(int32_t(kLanes - 1));
            Select<T, SELMODE::VSEL_CMPMASK_SPR>(b(d), b(sx), b(sy), 2, BinaryRepeatParams(1, 1, 1, 8, 8, 8));
            ResetMask();
        };
        expect_rule("Compare into the register " + type, b.run(body), "");
        expect("GetCmpMask " + type, b.get(bits), want);
        expect("Select by the register " + type, b.get(d), selected);
    }
    // SetCmpMask sets the scalar of mode 1, and the address of the bits of mode 2.
    std::vector<uint8_t> bits(64);
    Random random;
    for (uint8_t& v : bits) v = uint8_t(random.bits());
    std::vector<T> scalars(128 / sizeof(T), T(-1.5f)), one(kN), two(kN);
    for (uint32_t i = 0; i < kN; ++i) {
        const bool bit = bits[i / 8] >> i % 8 & 1;
        one[i] = bit ? x[i] : T(-1.5f);
        two[i] = bit ? x[i] : y[i];
    }
    Bench b;
    const auto sx = b.put(x), sy = b.put(y), d1 = b.space<T>(kN), d2 = b.space<T>(kN);
    const auto sb = b.put(bits);
    const auto sc = b.put(scalars);
    const auto address = b.space<int64_t>(4);
    const auto body = [&] {
        b(address).template ReinterpretCast<uint32_t>().SetValue(0, uint32_t(b(sb).GetPhyAddr()));
        PipeBarrier<PIPE_ALL>();
        SetCmpMask(b(sc));
        Select(b(d1), b(sb), b(sx), 2, BinaryRepeatParams(1, 1, 1, 8, 8, 8));
        SetCmpMask<int64_t>(b(address));
        Select<T, SELMODE::VSEL_TENSOR_TENSOR_MODE>(b(d2), b(sx), b(sy), 2, BinaryRepeatParams(1, 1, 1, 8, 8, 8));
    };
    expect_rule("Select by SetCmpMask " + type, b.run(body), "");
    expect("Select of a scalar " + type, b.get(d1), one);
    expect("Select of two tensors " + type, b.get(d2), two);

    const BinaryRepeatParams adjacent(1, 1, 1, 8, 8, 8);
    const uint32_t bits_of_two_repeats = kN / 8;
    auto select = [&](const Slot<uint8_t>& mask) {
        return b.run([&] {
            SetCmpMask(b(sc));
            Select(b(d1), b(mask), b(sx), 2, adjacent);
        });
    };
    expect_rule("Select by enough bits", select({sb.byte, bits_of_two_repeats}), "");
    expect_rule("Select by too few bits", select({sb.byte, bits_of_two_repeats - 1}), "SIM-BOUNDS-01");
    expect_rule("Select over its bits", select({d1.byte, bits_of_two_repeats}), "SIM-OVERLAP-01");
    expect_rule("Compare of an unaligned source",
                b.run([&] { Compare(b(sx)[1], b(sy), CMPMODE::LT, uint64_t(kLanes), adjacent); }), "SIM-ALIGN-01");
    expect_rule("GetCmpMask before Compare", b.run([&] { GetCmpMask(b(d1)); }), "SIM-INIT-01");
    expect_rule("Select before Compare",
                b.run([&] { Select<T, SELMODE::VSEL_CMPMASK_SPR>(b(d1), b(sx), b(sy), 2, adjacent); }), "SIM-INIT-01");
}

// ---- saturation ------------------------------------------------------------------------------------------------

void check_saturation() {
    const std::vector<half> x(128, half(60000.0f));
    for (bool at_start : {false, true}) {
        Bench b({at_start, nullptr});
        const auto s = b.put(x), d = b.space<half>(384);
        const auto body = [&] {
            Add(b(d), b(s), b(s), 128);
            AscendCUtils::SetOverflow(0);
            Add(b(d)[128], b(s), b(s), 128);
            AscendCUtils::SetOverflow(1);
            Add(b(d)[256], b(s), b(s), 128);
#if __CCE_AICORE__ == 220
            SetSaturationFlag<SaturationMode::FLOAT>(true);
            check(GetSaturationFlag<SaturationMode::FLOAT>(), "GetSaturationFlag");
            SetSaturationFlag<SaturationMode::FLOAT>(false);
            check(!GetSaturationFlag<SaturationMode::FLOAT>(), "GetSaturationFlag of an unset flag");
            SetSaturationFlag<SaturationMode::CAST>(true);
            check(GetSaturationFlag<SaturationMode::CAST>(), "GetSaturationFlag of conversions");
#endif
#if __CCE_AICORE__ != 200
            SetCtrlSpr<48, 48>(0);
            check(ascend_sim::saturates() && GetCtrlSpr<48, 48>() == 0, "SetCtrlSpr");
            SetCtrlSpr<48, 48>(1);
            check(!ascend_sim::saturates() && GetCtrlSpr<48, 48>() == 1, "SetCtrlSpr of 1");
#endif
        };
        expect_rule("saturation", b.run(body), "");
        const half most(65504.0f), infinity(std::numeric_limits<float>::infinity());
        std::vector<half> want(384, at_start ? most : infinity);
        std::fill_n(want.begin() + 128, 128, most);
        std::fill_n(want.begin() + 256, 128, infinity);
        expect("saturation", b.get(d), want);
    }
}

}  // namespace

int main() {
#if __CCE_AICORE__ != 200
    check_sort32<half>("half");
    check_sort32<float>("float");
    check_merges<half>("half");
    check_merges<float>("float");
#else
    check_proposals<half>("half");
    check_proposals<float>("float");
    check_padding<half>("half");
    check_padding<int32_t>("int32");
#endif
    check_compare_register<half>("half");
    check_compare_register<float>("float");
    check_saturation();
    return finish("sorting");
}
