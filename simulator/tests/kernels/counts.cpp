// Sizes: whole blocks, fields of the copy structs, element counts, padding.
#include "mini.h"

KERNEL(copy_of_whole_blocks) {
    Ub ub(1024);
    DataCopy(ub.at<float>(0, 64), global<float>(x), 16);  // keeps SIM-COUNT-01
}

KERNEL(copy_of_a_block_and_a_half) {
    Ub ub(1024);
    DataCopy(ub.at<float>(0, 64), global<float>(x), 12);  // breaks SIM-COUNT-01: 12 elements of 4 bytes are no whole 32-byte blocks: the last 16 bytes are not copied
}

KERNEL(copy_out_of_less_than_a_block) {
    Ub ub(1024);
    DataCopy(global<float>(y), ub.at<float>(0, 64), 4);  // breaks SIM-COUNT-01: 4 elements of 4 bytes
}

KERNEL(most_blocks) {
    Ub ub(131072);
    DataCopy(ub.at<float>(0, 32768), global<float>(x, 32768), {4095, 1, 0, 0});  // keeps SIM-COUNT-03
}

KERNEL(one_block_too_many) {
    Ub ub(1024);
    DataCopy(ub.at<float>(0, 64), global<float>(x), {4096, 1, 0, 0});  // breaks SIM-COUNT-03: 4096
}

KERNEL(length_beyond_its_field) {
    Ub ub(1024);
    const uint32_t blocks = 65537;
    DataCopyParams params(1, blocks, 0, 0);  // breaks SIM-COUNT-03: 65537
    DataCopy(ub.at<float>(0, 64), global<float>(x), params);
}

KERNEL(gap_beyond_its_field) {
    Ub ub(1024);
    DataCopyParams params;
    params.srcStride = 65536u;  // breaks SIM-COUNT-03: 65536
    DataCopy(ub.at<float>(0, 64), global<float>(x), params);
}

KERNEL(negative_gap) {
    Ub ub(1024);
    const int32_t gap = -1;
    DataCopyParams params(2, 1, gap, 0);  // breaks SIM-COUNT-03: -1
    DataCopy(ub.at<float>(0, 64), global<float>(x), params);
}

KERNEL(padded_block_too_long) {
    Ub ub(1024);
    DataCopyPad(ub.at<float>(0, 64), global<float>(x), {1, 2097152, 0, 0, 0}, {false, 0, 0, 0});  // breaks SIM-COUNT-03: 2097152
}

KERNEL(padded_block_of_a_part_of_an_element) {
    Ub ub(1024);
    DataCopyPad(ub.at<float>(0, 64), global<float>(x), {1, 10, 0, 0, 0}, {false, 0, 0, 0});  // breaks SIM-COUNT-03: 10
}

KERNEL(padded_block_of_whole_elements) {
    Ub ub(1024);
    DataCopyPad(ub.at<float>(0, 64), global<float>(x), {1, 8, 0, 0, 0}, {false, 0, 0, 0});  // keeps SIM-COUNT-03
}

KERNEL(zero_elements) {
    Ub ub(1024);
    Add(ub.at<float>(0, 64), ub.at<float>(0, 64), ub.at<float>(0, 64), 0);  // keeps SIM-COUNT-04
}

KERNEL(one_element) {
    Ub ub(1024);
    Add(ub.at<float>(0, 64), ub.at<float>(0, 64), ub.at<float>(0, 64), 1);  // keeps SIM-COUNT-05
}

KERNEL(no_elements) {
    Ub ub(1024);
    Add(ub.at<float>(0, 64), ub.at<float>(0, 64), ub.at<float>(0, 64), 0);  // warns SIM-COUNT-05: the instruction does nothing
}

KERNEL(no_repeats) {
    Ub ub(2048);
    Adds(ub.at<float>(0, 64), ub.at<float>(256, 64), 1.0f, 64, 0, {1, 1, 8, 8});  // warns SIM-COUNT-05: the instruction does nothing
}

KERNEL(no_lanes) {
    Ub ub(2048);
    Adds(ub.at<float>(0, 64), ub.at<float>(256, 64), 1.0f, uint64_t(0), 1, {1, 1, 8, 8});  // warns SIM-COUNT-05: its mask selects no lane
}

KERNEL(no_bits_of_a_mask) {
    Ub ub(2048);
    uint64_t none[2] = {0, 0};
    Adds(ub.at<float>(0, 64), ub.at<float>(256, 64), 1.0f, none, 2, {1, 1, 8, 8});  // warns SIM-COUNT-05: its mask selects no lane
}

KERNEL(no_bursts) {
    Ub ub(1024);
    DataCopy(ub.at<float>(0, 64), global<float>(x), {0, 1, 0, 0});  // warns SIM-COUNT-05: the instruction does nothing
}

KERNEL(negative_elements) {
    Ub ub(1024);
    const int32_t n = -8;
    Add(ub.at<float>(0, 64), ub.at<float>(0, 64), ub.at<float>(0, 64), n);  // breaks SIM-COUNT-04: -8
}

KERNEL(compare_of_whole_repeats) {
    Ub ub(2048);
    Compare(ub.at<uint8_t>(1024, 32), ub.at<float>(0, 128), ub.at<float>(512, 128), CMPMODE::LT, 128);  // keeps SIM-COUNT-04
}

KERNEL(compare_of_a_repeat_and_a_half) {
    Ub ub(2048);
    Compare(ub.at<uint8_t>(1024, 32), ub.at<float>(0, 128), ub.at<float>(512, 128), CMPMODE::LT, 96);  // breaks SIM-COUNT-04: 96
}

KERNEL(padding_of_a_block) {
    Ub ub(1024);
    DataCopyPad(ub.at<float>(0, 64), global<float>(x), {1, 12, 0, 0, 0}, {true, 0, 5, 2.0f});  // keeps SIM-PAD-01
}

KERNEL(left_padding_of_more_than_a_block) {
    Ub ub(1024);
    DataCopyPad(ub.at<float>(0, 64), global<float>(x), {1, 12, 0, 0, 0}, {true, 9, 0, 2.0f});  // breaks SIM-PAD-01: 36 and 0
}

KERNEL(right_padding_of_more_than_a_block) {
    Ub ub(1024);
    DataCopyPad(ub.at<float>(0, 64), global<float>(x), {1, 12, 0, 0, 0}, {true, 0, 9, 2.0f});  // breaks SIM-PAD-01: 0 and 36
}

KERNEL(zero_padding_of_64_bits) {
    Ub ub(1024);
    DataCopyPad(ub.at<int64_t>(0, 32), global<int64_t>(x), {1, 8, 0, 0, 0}, {true, 0, 3, 0});  // keeps SIM-PAD-01
}

KERNEL(padding_of_64_bits) {
    Ub ub(1024);
    DataCopyPad(ub.at<int64_t>(0, 32), global<int64_t>(x), {1, 8, 0, 0, 0}, {true, 0, 3, 1});  // breaks SIM-PAD-01
}

KERNEL(padding_value_of_the_copys_type) {
    Ub ub(1024);
    SetPadValue(2.0f);
    DataCopyPad(ub.at<float>(0, 64), global<float>(x), {1, 12, 0, 0, 0}, {false, 0, 5, 0});  // keeps SIM-PAD-01
}

KERNEL(padding_value_of_another_type) {
    Ub ub(1024);
    SetPadValue(half(2.0f));
    DataCopyPad(ub.at<float>(0, 64), global<float>(x), {1, 12, 0, 0, 0}, {false, 0, 5, 0});  // breaks SIM-PAD-01: SetPadValue
}

// ---- incremented fields --------------------------------------------------------------------------------

KERNEL(fields_counted_up_to_what_fits) {
    Ub ub(1024);
    DataCopyParams params(0, 0, 1, 9);
    params.blockCount++;
    params.blockLen += 3;
    params.blockLen <<= 1;
    params.blockLen -= params.blockCount;
    --params.srcStride;
    params.dstStride %= 3;
    DataCopy(ub.at<float>(0, 40), global<float>(x), params);  // keeps SIM-COUNT-03
}

KERNEL(field_raised_past_what_fits) {
    DataCopyParams params(1, 1, 0, 0);
    params.blockLen += 65535;  // breaks SIM-COUNT-03: a field must be 0 .. 65535 but got 65536.
}

KERNEL(field_lowered_below_what_fits) {
    DataCopyParams params(1, 1, 0, 0);
    params.srcStride -= 1;  // breaks SIM-COUNT-03: but got -1.
}

KERNEL(field_counted_up_past_what_fits) {
    DataCopyParams params(65535, 1, 0, 0);
    params.blockCount++;  // breaks SIM-COUNT-03 (no line): but got 65536.
}
