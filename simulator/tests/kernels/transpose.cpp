// Transpose, TransDataTo5HD, sorting and the register of comparisons. All floats of a Ub are 1.
#include "mini.h"

KERNEL(transpose_in_place) {
    Ub ub(1024);
    LocalTensor<half> t = ub.at<half>(0, 256);
    Transpose(t, t);  // keeps SIM-OVERLAP-01
}

KERNEL(transpose_over_half_of_its_source) {
    Ub ub(1024);
    Transpose(ub.at<half>(256, 256), ub.at<half>(0, 256));  // breaks SIM-OVERLAP-01: `dst` (UB bytes [256, 768)) and `src` ([0, 512)) must not overlap
}

KERNEL(transpose_of_a_short_tensor) {
    Ub ub(1024);
    Transpose(ub.at<half>(512, 256), ub.at<half>(0, 255));  // breaks SIM-BOUNDS-01: `src`
}

KERNEL(transpose_from_an_unaligned_address) {
    Ub ub(1024);
    Transpose(ub.at<half>(512, 256), ub.at<half>(2, 256));  // breaks SIM-ALIGN-01: `src`
}

KERNEL(extended_transpose_of_a_wrong_type) {
    Ub ub(4096);
    Transpose(ub.at<half>(512, 256), ub.at<half>(0, 256), ub.at<uint8_t>(1024, 32), TransposeParamsExt(0, 0, 16, 16, TransposeType::TRANSPOSE_ND2ND_B16));  // breaks SIM-MODE-01: transposeType 10 is not supported for this type
}

KERNEL(extended_transpose) {
    Ub ub(4096);
    Transpose(ub.at<uint16_t>(512, 256), ub.at<uint16_t>(0, 256), ub.at<uint8_t>(1024, 32), TransposeParamsExt(0, 0, 16, 16, TransposeType::TRANSPOSE_ND2ND_B16));  // keeps SIM-MODE-01
}

KERNEL(extended_transpose_of_another_size) {
    Ub ub(4096);
    Transpose(ub.at<uint16_t>(512, 256), ub.at<uint16_t>(0, 256), ub.at<uint8_t>(1024, 32), TransposeParamsExt(0, 0, 8, 32, TransposeType::TRANSPOSE_ND2ND_B16));  // breaks SIM-MODE-01: hSize and wSize must be 16 but got 8 and 32
}

KERNEL(extended_transpose_of_part_of_a_block) {
    Ub ub(8192);
    Transpose(ub.at<half>(512, 256), ub.at<half>(0, 256), ub.at<uint8_t>(1024, 4096), TransposeParamsExt(1, 3, 2, 9, TransposeType::TRANSPOSE_NCHW2NHWC));  // breaks SIM-COUNT-04: in whole blocks but got 3 and 18
}

KERNEL(extended_transpose_of_nothing) {
    Ub ub(8192);
    Transpose(ub.at<half>(512, 256), ub.at<half>(0, 256), ub.at<uint8_t>(1024, 4096), TransposeParamsExt(0, 3, 2, 8, TransposeType::TRANSPOSE_NCHW2NHWC));  // warns SIM-COUNT-05
}

KERNEL(extended_transpose_in_place) {
    Ub ub(8192);
    Transpose(ub.at<half>(0, 256), ub.at<half>(0, 256), ub.at<uint8_t>(1024, 4096), TransposeParamsExt(1, 3, 2, 8, TransposeType::TRANSPOSE_NCHW2NHWC));  // breaks SIM-OVERLAP-01: `dst`
}

// Writes the addresses of the first sixteen 32-byte blocks of t to list.
template <class T>
__aicore__ inline void set_block_addresses(const LocalTensor<T>& t, uint64_t (&list)[16]) {
    for (uint32_t i = 0; i < 16; ++i) list[i] = uint64_t(t[i * 32 / sizeof(T)].GetPhyAddr());
}

KERNEL(blocks_in_place) {
    Ub ub(1024);
    uint64_t list[16];
    set_block_addresses(ub.at<half>(0, 256), list);
    TransDataTo5HD<half>(list, list, {false, false, 1, 0, 0});  // keeps SIM-OVERLAP-01
}

KERNEL(blocks_over_their_source) {
    Ub ub(2048);
    uint64_t to[16], from[16];
    set_block_addresses(ub.at<half>(32, 256), to);
    set_block_addresses(ub.at<half>(0, 256), from);
    TransDataTo5HD<half>(to, from, {false, false, 1, 0, 0});  // breaks SIM-OVERLAP-01: repeat 0 writes UB bytes
}

KERNEL(blocks_over_a_later_source) {
    Ub ub(2048);
    uint64_t to[16], from[16];
    set_block_addresses(ub.at<half>(512, 256), to);
    set_block_addresses(ub.at<half>(0, 256), from);
    TransDataTo5HD<half>(to, from, {false, false, 2, 16, 16});  // breaks SIM-OVERLAP-02: which repeat 1 reads as `src`
}

KERNEL(blocks_of_no_buffer) {
    Ub ub(1024);
    uint64_t to[16], from[16];
    set_block_addresses(ub.at<half>(0, 256), to);
    set_block_addresses(ub.at<half>(512, 256), from);
    to[15] = 4096;
    TransDataTo5HD<half>(to, from, {false, false, 1, 0, 0});  // breaks SIM-BOUNDS-02: `dstList` is no tensor of this core's buffers
}

KERNEL(blocks_at_the_end_of_the_last_buffer) {
    Ub ub(1024);
    uint64_t to[16], from[16];
    set_block_addresses(ub.at<half>(0, 256), to);
    set_block_addresses(ub.at<half>(512, 256), from);
    to[15] = 1024;
    TransDataTo5HD<half>(to, from, {false, false, 1, 0, 0});  // breaks SIM-BOUNDS-02: `dstList` is no tensor of this core's buffers
}

KERNEL(blocks_past_their_buffer) {
    Ub ub(1024);
    uint64_t to[16], from[16];
    set_block_addresses(ub.at<half>(0, 256), to);
    set_block_addresses(ub.at<half>(512, 256), from);
    TransDataTo5HD<half>(to, from, {false, false, 1, 0, 1});  // breaks SIM-BOUNDS-01: `srcList`
}

// ---- sorting -----------------------------------------------------------------------------------------------------

KERNEL(sort_of_unaligned_scores) {
    Ub ub(2048);
    Sort32<float>(ub.at<float>(1024, 64), ub.at<float>(32, 32), ub.at<uint32_t>(256, 32), 1);  // warns SIM-ALIGN-04: `src0` starts at UB byte 32, which is no multiple of 128
}

KERNEL(sort_of_aligned_scores) {
    Ub ub(2048);
    Sort32<float>(ub.at<float>(1024, 64), ub.at<float>(0, 32), ub.at<uint32_t>(256, 32), 1);  // keeps SIM-ALIGN-04
}

KERNEL(sort_over_its_indices) {
    Ub ub(2048);
    Sort32<float>(ub.at<float>(256, 64), ub.at<float>(0, 32), ub.at<uint32_t>(384, 32), 1);  // breaks SIM-OVERLAP-01: `dst`
}

KERNEL(sort_of_too_many_repeats) {
    Ub ub(131072);
    Sort32<half>(ub.at<half>(0, 32768), ub.at<half>(65536, 8192), ub.at<uint32_t>(81920, 8192), 256);  // breaks SIM-REPEAT-01: must be 0 .. 255 but got 256
}

__aicore__ inline MrgSortSrcList<float> four_lists(Ub& ub, uint32_t bytes) {
    return {ub.at<float>(0, 64), ub.at<float>(bytes, 64), ub.at<float>(2 * bytes, 64), ub.at<float>(3 * bytes, 64)};
}

KERNEL(merge_of_a_first_and_a_third_list) {
    Ub ub(4096);
    const uint16_t counts[4] = {8, 8, 8, 8};
    MrgSort<float>(ub.at<float>(2048, 64), four_lists(ub, 64), MrgSort4Info(counts, false, 5, 1));  // breaks SIM-MODE-01: validBit must be 3, 7 or 15 but got 5
}

KERNEL(merge_of_an_unaligned_list) {
    Ub ub(4096);
    const uint16_t counts[4] = {8, 8, 8, 8};
    MrgSort<float>(ub.at<float>(2048, 64), four_lists(ub, 68), MrgSort4Info(counts, false, 15, 1));  // breaks SIM-ALIGN-01: `src2` starts at UB byte 68, which is no multiple of 8
}

KERNEL(merge_of_a_long_list) {
    Ub ub(65536);
    const uint16_t counts[4] = {4096, 0, 0, 0};
    MrgSort<float>(ub.at<float>(32768, 8192), {ub.at<float>(0, 8192), ub.at<float>(0, 2), ub.at<float>(0, 2), ub.at<float>(0, 2)}, MrgSort4Info(counts, false, 3, 1));  // breaks SIM-COUNT-04: a list has 0 .. 4095 entries but list 1 has 4096
}

KERNEL(merge_over_a_list) {
    Ub ub(4096);
    const uint16_t counts[4] = {8, 8, 8, 8};
    MrgSort<float>(ub.at<float>(192, 64), four_lists(ub, 64), MrgSort4Info(counts, false, 15, 1));  // breaks SIM-OVERLAP-01: `dst` (UB bytes [192, 448)) and `src4` ([192, 256)) must not overlap
}

KERNEL(counts_of_a_merge) {
    Ub ub(4096);
    const uint16_t counts[4] = {8, 8, 8, 8};
    uint16_t taken[4];
    MrgSort<float>(ub.at<float>(2048, 64), four_lists(ub, 64), MrgSort4Info(counts, true, 15, 1));
    GetMrgSortResult(taken[0], taken[1], taken[2], taken[3]);  // keeps SIM-INIT-01
}

KERNEL(counts_of_a_merge_without_suspension) {
    Ub ub(4096);
    const uint16_t counts[4] = {8, 8, 8, 8};
    uint16_t taken[4];
    MrgSort<float>(ub.at<float>(2048, 64), four_lists(ub, 64), MrgSort4Info(counts, false, 15, 1));
    GetMrgSortResult(taken[0], taken[1], taken[2], taken[3]);  // breaks SIM-INIT-01: before a merge with ifExhaustedSuspension
}

// ---- the register of comparisons ------------------------------------------------------------------------------------

KERNEL(register_that_was_not_set) {
    Ub ub(1024);
    GetCmpMask(ub.at<uint8_t>(0, 128));  // breaks SIM-INIT-01: before Compare or SetCmpMask set it
}

KERNEL(register_into_a_short_tensor) {
    Ub ub(1024);
    Compare(ub.at<float>(0, 64), ub.at<float>(256, 64), CMPMODE::LT, uint64_t(64), {1, 1, 1, 8, 8, 8});
    GetCmpMask(ub.at<uint8_t>(512, 127));  // breaks SIM-WORK-01: `dst` must have 128 bytes but has 127
}

KERNEL(register_from_an_unaligned_address) {
    Ub ub(1024);
    SetCmpMask(ub.at<uint8_t>(8, 128));  // breaks SIM-ALIGN-01: no multiple of 16
}

KERNEL(select_of_a_scalar_over_the_scratch) {
    Ub ub(188448);
    SetCmpMask(ub.at<float>(0, 64));
    Select(ub.at<float>(512, 64), ub.at<uint8_t>(1024, 32), ub.at<float>(0, 64), 1, {1, 1, 1, 8, 8, 8});  // breaks SIM-BUFFER-05: Select: uses UB from byte 188416 on
}

KERNEL(conversions_that_do_not_saturate) {
    SetSaturationFlag<SaturationMode::CAST>(false);  // breaks SIM-MODE-01: no conversions to integers that do not saturate
}
