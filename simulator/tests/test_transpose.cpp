// Transpositions, compared with plain loops.
#include <algorithm>
#include <cstring>
#include <limits>

#include "instruction_bench.h"

using namespace AscendC;
using namespace bench;

namespace {

// ---- Transpose -----------------------------------------------------------------------------------------------

template <class T>
void check_transpose(const std::string& type) {
    const auto x = varied_bits<T>(256);
    std::vector<T> want(256);
    for (int i = 0; i < 16; ++i)
        for (int k = 0; k < 16; ++k) want[k * 16 + i] = x[i * 16 + k];
    for (bool in_place : {false, true}) {
        Bench b;
        const auto s = b.put(x), d = in_place ? s : b.space<T>(256);
        expect_rule("Transpose " + type, b.run([&] { Transpose(b(d), b(s)); }), "");
        expect_bits("Transpose " + type, b.get(d), want);
    }
}

void check_transpose_type() {
    const auto x = varied_bits<uint16_t>(256);
    Bench b;
    const auto s = b.put(x), d = b.space<uint16_t>(256);
    const auto work = b.space<uint8_t>(32);
    TransposeParamsExt params(0, 0, 16, 16, TransposeType::TRANSPOSE_ND2ND_B16);
    expect_rule("TRANSPOSE_ND2ND_B16", b.run([&] { Transpose(b(d), b(s), b(work), params); }), "");
    std::vector<uint16_t> want(256);
    for (uint32_t i = 0; i < 256; ++i) want[i % 16 * 16 + i / 16] = x[i];
    expect_bits("TRANSPOSE_ND2ND_B16", b.get(d), want);
    params.hSize = 8;
    expect_rule("TRANSPOSE_ND2ND_B16 of 8 rows", b.run([&] { Transpose(b(d), b(s), b(work), params); }), "SIM-MODE-01");
}

template <class T>
void check_nchw(const std::string& type, TransposeType kind, uint16_t n, uint16_t c, uint16_t h, uint16_t w) {
    const std::string what = "Transpose of NCHW and NHWC, " + type + " " + std::to_string(int(kind));
    const uint32_t total = uint32_t(n) * c * h * w, plane = uint32_t(h) * w;
    const auto x = varied_bits<T>(total);
    std::vector<T> want(total);
    const bool to_nhwc = kind == TransposeType::TRANSPOSE_NCHW2NHWC;
    for (uint32_t i = 0; i < n; ++i)
        for (uint32_t j = 0; j < c; ++j)
            for (uint32_t k = 0; k < plane; ++k) {
                const uint32_t chw = (i * c + j) * plane + k, hwc = (i * plane + k) * c + j;
                (to_nhwc ? want[hwc] : want[chw]) = x[to_nhwc ? chw : hwc];
            }
    const uint32_t bytes = (to_nhwc ? c + 2 : 2 * c + 1) * (sizeof(T) == 1 ? 32 : 16) * 32;
    Bench b;
    const auto s = b.put(x), d = b.space<T>(total);
    const auto work = b.space<uint8_t>(bytes);
    const auto call = [&](uint32_t size) {
        return b.run([&] {
            LocalTensor<uint8_t> t = b(work);
            t.SetSize(size);
            Transpose(b(d), b(s), t, TransposeParamsExt(n, c, h, w, kind));
            PipeBarrier<PIPE_V>();
            Duplicate(b(work).template ReinterpretCast<int16_t>(), int16_t(0), int32_t(bytes / 2));
        });
    };
    if (!ascend_sim::kIs310p) {
        expect_rule(what + " with a short buffer", call(bytes - 1), "SIM-WORK-01");
        expect_instruction("Transpose");
    }
    expect_rule(what, call(bytes), "");
    expect_bits(what, b.get(d), want);
}

// TransDataTo5HD, whose lists have 16 source and 16 destination addresses. Neighbouring entries are kStep blocks apart.
template <class T>
void check_5hd(const std::string& type, int form, uint8_t repeats, uint16_t dst_stride, uint16_t src_stride,
               bool dst_high = false, bool src_high = false) {
    const std::string what =
        "TransDataTo5HD " + type + ", form " + std::to_string(form) + ", " + std::to_string(repeats) + " repeats";
    constexpr uint32_t kLanes = 32 / sizeof(T), kStep = 5;
    constexpr uint32_t kSize = kLanes * (16 * kStep + 16 * 4);
    const auto x = varied_bits<T>(kSize);
    std::vector<T> want(kSize, T(1));
    const uint32_t first_dst = repeats == 1 ? dst_stride : 0, first_src = repeats == 1 ? src_stride : 0;
    for (uint32_t r = 0; r < repeats; ++r)
        for (uint32_t i = 0; i < 16; ++i)
            for (uint32_t j = 0; j < 16; ++j) {
                // Element i of source j becomes element j of destination i. A block has eight 32-bit elements, so for a
                // 32-bit type two blocks make up such a destination.
                uint32_t block = i, lane = j, of_source = i;
                if (sizeof(T) == 4) {
                    if (i >= 8) continue;
                    block = 2 * i + j / 8;
                    lane = j % 8;
                }
                if (sizeof(T) == 1) lane += dst_high ? 16 : 0, of_source += src_high ? 16 : 0;
                want[(kStep * block + first_dst + r * dst_stride) * kLanes + lane] =
                    x[(kStep * j + first_src + r * src_stride) * kLanes + of_source];
            }
    Bench b;
    const auto s = b.put(x), d = b.put(std::vector<T>(kSize, T(1)));
    const auto lists = b.space<uint64_t>(32);
    const TransDataTo5HDParams p(dst_high, src_high, repeats, dst_stride, src_stride);
    const auto body = [&] {
        uint64_t to[16], from[16];
        LocalTensor<T> dst[16], src[16];
        T *dst_at[16], *src_at[16];
        for (uint32_t i = 0; i < 16; ++i) {
            dst[i] = b(d)[i * kStep * kLanes];
            src[i] = b(s)[i * kStep * kLanes];
            to[i] = uint64_t(dst[i].GetPhyAddr());
            from[i] = uint64_t(src[i].GetPhyAddr());
            dst_at[i] = (__ubuf__ T*)dst[i].GetPhyAddr();
            src_at[i] = (__ubuf__ T*)src[i].GetPhyAddr();
            b(lists).SetValue(i, to[i]);
            b(lists).SetValue(16 + i, from[i]);
        }
        PipeBarrier<PIPE_ALL>();
        if (form == 0) TransDataTo5HD<T>(to, from, p);
        if (form == 1) TransDataTo5HD<T>(dst, src, p);
        if (form == 2) TransDataTo5HD<T>(b(lists), b(lists)[16], p);
        if (form == 3) TransDataTo5HDImpl(dst_at, src_at, p);
    };
    expect_rule(what, b.run(body), "");
    expect_bits(what, b.get(d), want);
}

template <class T>
void check_5hds(const std::string& type) {
    for (int form = 0; form < 4; ++form) {
        check_5hd<T>(type, form, 1, 0, 0);
        check_5hd<T>(type, form, 1, 2, 3);
        check_5hd<T>(type, form, 3, 1, 2);
    }
}

// Lists in one memory; dst_block, src_block: the blocks of their entries. A single repeat begins one stride later.
void check_lists_in_one_memory() {
    auto rule_of = [](auto dst_block, auto src_block, const TransDataTo5HDParams& params) {
        Bench b;
        const auto s = b.put(varied_bits<half>(128 * 16));
        return b.run([&] {
            LocalTensor<half> dst[16], src[16];
            for (uint32_t i = 0; i < 16; ++i) {
                dst[i] = b(s)[dst_block(i) * 16];
                src[i] = b(s)[src_block(i) * 16];
            }
            TransDataTo5HD<half>(dst, src, params);
        });
    };
    const TransDataTo5HDParams once(false, false, 1, 0, 0), src_later(false, false, 1, 0, 6);
    auto one_of_src = [](uint32_t i) { return i == 7 ? 3 : 32 + i; };
    auto all_but_last = [](uint32_t i) { return i < 15 ? i : 60; };
    auto from_22 = [](uint32_t i) { return 22 + i; };
    auto from_0 = [](uint32_t i) { return i; };
    expect_rule("a destination in the source", rule_of(one_of_src, from_0, once), "SIM-OVERLAP-01");
    expect_rule("a destination between the sources", rule_of(from_22, all_but_last, src_later), "");
    expect_rule("destinations that are the sources", rule_of(from_0, from_0, once), "");
}

}  // namespace

int main() {
    check_transpose_type();
    check_lists_in_one_memory();
    check_transpose<uint16_t>("uint16");
    check_transpose<half>("half");
    for (TransposeType kind : {TransposeType::TRANSPOSE_NCHW2NHWC, TransposeType::TRANSPOSE_NHWC2NCHW}) {
        check_nchw<half>("half", kind, 3, 3, 2, 8);
        check_nchw<float>("float", kind, 1, 17, 5, 8);
        check_nchw<int8_t>("int8", kind, 2, 5, 4, 16);
    }
    check_5hds<half>("half");
    check_5hds<int16_t>("int16");
    check_5hds<float>("float");
    for (bool dst_high : {false, true})
        for (bool src_high : {false, true})
            for (int form = 0; form < 4; ++form) check_5hd<uint8_t>("uint8", form, 3, 1, 2, dst_high, src_high);
    check_5hds<int8_t>("int8");
    return finish("transpose");
}
