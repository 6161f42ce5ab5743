// Repeats, strides and masks.
#include "mini.h"

KERNEL(most_repeats) {
    Ub ub(131072);
    Adds(ub.at<float>(65536, 64 * 255), ub.at<float>(0, 64 * 255), 1.0f, 64, 255, {1, 1, 8, 8});  // keeps SIM-REPEAT-01
}

KERNEL(one_repeat_too_many) {
    Ub ub(131072);
    Adds(ub.at<float>(65536, 64 * 256), ub.at<float>(0, 64 * 256), 1.0f, 64, 256, {1, 1, 8, 8});  // breaks SIM-REPEAT-01: repeatTime must be 0 .. 255 but got 256
}

KERNEL(negative_repeats) {
    Ub ub(1024);
    const int32_t left = -1;
    Adds(ub.at<float>(0, 64), ub.at<float>(256, 64), 1.0f, 64, left, {1, 1, 8, 8});  // breaks SIM-REPEAT-01: repeatTime must be 0 .. 255 but got -1.
}

KERNEL(no_repeat) {
    Ub ub(1024);
    Adds(ub.at<float>(0, 64), ub.at<float>(256, 64), 1.0f, 64, 0, {1, 1, 8, 8});  // keeps SIM-REPEAT-01
}

KERNEL(widest_stride) {
    Ub ub(32768);
    LocalTensor<float> t = ub.at<float>(0, 8192);
    const uint32_t stride = 255;
    Add(t, t, t, 64, 2, {1, 1, 1, stride, stride, stride});  // keeps SIM-STRIDE-01
}

KERNEL(stride_beyond_its_field) {
    Ub ub(32768);
    LocalTensor<float> t = ub.at<float>(0, 8192);
    const uint32_t stride = 256;
    BinaryRepeatParams params(1, 1, 1, stride, 8, 8);  // breaks SIM-STRIDE-01: 256
    Add(t, t, t, 64, 2, params);
}

KERNEL(stride_set_beyond_its_field) {
    Ub ub(32768);
    LocalTensor<float> t = ub.at<float>(0, 8192);
    UnaryRepeatParams params;
    params.srcRepStride = 300;  // breaks SIM-STRIDE-01: 300
    Adds(t, t, 1.0f, 64, 2, params);
}

KERNEL(copy_stride_beyond_its_limit) {
    Ub ub(32768);
    LocalTensor<float> t = ub.at<float>(0, 8192);
    Copy(t, t[4096], 64, 1, {1, 1, 4096, 8});  // breaks SIM-STRIDE-01: 4096
}

KERNEL(source_blocks_read_again) {
    Ub ub(2048);
    LocalTensor<float> t = ub.at<float>(0, 512);
    Add(t[256], t, t[64], 64, 1, {1, 0, 1, 8, 8, 8});  // keeps SIM-STRIDE-02
}

KERNEL(destination_blocks_written_again) {
    Ub ub(2048);
    LocalTensor<float> t = ub.at<float>(0, 512);
    Add(t[256], t, t[64], 64, 1, {0, 1, 1, 8, 8, 8});  // breaks SIM-STRIDE-02: `dst` has block stride 0
}

KERNEL(mask_of_a_repeat) {
    Ub ub(2048);
    LocalTensor<float> t = ub.at<float>(0, 512);
    Add(t[256], t, t[64], 64, 1, {1, 1, 1, 8, 8, 8});  // keeps SIM-MASK-01
}

KERNEL(mask_of_more_than_a_repeat) {
    Ub ub(2048);
    LocalTensor<float> t = ub.at<float>(0, 512);
    Add(t[256], t, t[64], 65, 1, {1, 1, 1, 8, 8, 8});  // breaks SIM-MASK-01: mask must be 0 .. 64 but got 65
}

KERNEL(negative_mask) {
    Ub ub(2048);
    LocalTensor<float> t = ub.at<float>(0, 512);
    const int32_t left = -4;
    Add(t[256], t, t[64], left, 1, {1, 1, 1, 8, 8, 8});  // breaks SIM-MASK-01: mask must be 0 .. 64 but got -4.
}

KERNEL(mask_of_a_repeat_of_half) {
    Ub ub(2048);
    LocalTensor<half> t = ub.at<half>(0, 1024);
    Add(t[512], t, t[128], 128, 1, {1, 1, 1, 8, 8, 8});  // keeps SIM-MASK-01
}

// The wider type of a conversion determines its lanes.
KERNEL(mask_of_a_wider_source) {
    Ub ub(2048);
    Cast(ub.at<half>(1024, 512), ub.at<float>(0, 256), RoundMode::CAST_RINT, 128, 1, {1, 1, 8, 8});  // breaks SIM-MASK-01: 128
}

KERNEL(bit_mask_of_64_bit_lanes) {
    Ub ub(2048);
    uint64_t mask[2] = {0xffffffff, 0};
    Cast(ub.at<float>(1024, 64), ub.at<int64_t>(0, 32), RoundMode::CAST_RINT, mask, 1, {1, 1, 4, 8});  // keeps SIM-MASK-02
}

KERNEL(bit_mask_beyond_the_64_bit_lanes) {
    Ub ub(2048);
    uint64_t mask[2] = {0x1ffffffff, 0};
    Cast(ub.at<float>(1024, 64), ub.at<int64_t>(0, 32), RoundMode::CAST_RINT, mask, 1, {1, 1, 4, 8});  // breaks SIM-MASK-02
}

// The mask of a 32-bit type may have one word, because a second word is not read.
KERNEL(bit_mask_of_32_bit_lanes) {
    Ub ub(2048);
    LocalTensor<float> t = ub.at<float>(0, 512);
    uint64_t mask[1] = {0xffffffffffffffff};
    Add(t[256], t, t[64], mask, 1, {1, 1, 1, 8, 8, 8});  // keeps SIM-MASK-02
}

KERNEL(mask_register_reset) {
    Ub ub(2048);
    LocalTensor<float> t = ub.at<float>(0, 512);
    SetVectorMask<float>(0, 0xff);
    Add<float, false>(t[256], t, t[64], MASK_PLACEHOLDER, 1, {1, 1, 1, 8, 8, 8});
    ResetMask();  // keeps SIM-MASK-03
}

KERNEL(mask_register_left) {
    Ub ub(2048);
    LocalTensor<float> t = ub.at<float>(0, 512);
    SetVectorMask<float>(0, 0xff);  // breaks SIM-MASK-03
    Add<float, false>(t[256], t, t[64], MASK_PLACEHOLDER, 1, {1, 1, 1, 8, 8, 8});
}

// The instruction in between leaves its own mask in the register.
KERNEL(mask_register_after_another_mask) {
    Ub ub(2048);
    LocalTensor<float> t = ub.at<float>(0, 512);
    SetVectorMask<float>(0, 0xff);
    Add(t[256], t, t[64], 32, 1, {1, 1, 1, 8, 8, 8});
    Add<float, false>(t[320], t, t[64], MASK_PLACEHOLDER, 1, {1, 1, 1, 8, 8, 8});  // breaks SIM-MASK-03: Add
    ResetMask();
}

// The register's mode decides the meaning of SetVectorMask's two numbers.
KERNEL(counter_mode_without_its_name) {
    Ub ub(2048);
    LocalTensor<float> t = ub.at<float>(0, 512);
    SetMaskCount();
    SetVectorMask<float>(0, 100);  // keeps SIM-MASK-03
    Add<float, false>(t[256], t, t[128], MASK_PLACEHOLDER, 1, {1, 1, 1, 8, 8, 8});
    SetMaskNorm();
    ResetMask();
}

KERNEL(counter_mode_with_a_high_mask) {
    Ub ub(2048);
    LocalTensor<float> t = ub.at<float>(0, 512);
    SetMaskCount();
    SetVectorMask<float>(1, 100);  // breaks SIM-MASK-03: the mask is for normal mode but the mode is counter.
    SetMaskNorm();
    ResetMask();
}

KERNEL(counter_mode_with_lanes) {
    Ub ub(2048);
    LocalTensor<float> t = ub.at<float>(0, 512);
    SetMaskCount();
    SetVectorMask<float>(64);  // breaks SIM-MASK-03: the mask is for normal mode but the mode is counter.
    SetMaskNorm();
    ResetMask();
}

KERNEL(counter_mode_reset) {
    Ub ub(2048);
    LocalTensor<float> t = ub.at<float>(0, 512);
    SetMaskCount();
    SetVectorMask<float, MaskMode::COUNTER>(0, 100);
    Add<float, false>(t[256], t, t[128], MASK_PLACEHOLDER, 1, {1, 1, 1, 8, 8, 8});
    SetMaskNorm();
    ResetMask();  // keeps SIM-MASK-03
}

KERNEL(counter_mode_left) {
    Ub ub(2048);
    LocalTensor<float> t = ub.at<float>(0, 512);
    SetMaskCount();  // breaks SIM-MASK-03
}

KERNEL(stride_doubled_to_what_fits) {
    Ub ub(16384);
    UnaryRepeatParams params;
    params.dstRepStride *= 2;
    Adds(ub.at<float>(8192, 1024), ub.at<float>(0, 1024), 1.0f, 64, 2, params);  // keeps SIM-STRIDE-01
}

KERNEL(stride_doubled_past_what_fits) {
    UnaryRepeatParams params(1, 1, 128, 8);
    params.dstRepStride *= 2;  // breaks SIM-STRIDE-01: a field must be 0 .. 255 but got 256.
}
