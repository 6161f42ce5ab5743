// Modes, patterns and scalars that an instruction does not support.
#include "mini.h"

KERNEL(shift_by_all_bits) {
    Ub ub(1024);
    ShiftLeft(ub.at<uint32_t>(512, 64), ub.at<uint32_t>(0, 64), uint32_t(32), 64);  // keeps SIM-MODE-01
}

KERNEL(shift_by_more_than_all_bits) {
    Ub ub(1024);
    ShiftLeft(ub.at<uint32_t>(512, 64), ub.at<uint32_t>(0, 64), uint32_t(33), 64);  // breaks SIM-MODE-01: 33
}

KERNEL(integers_compared_for_equality) {
    Ub ub(1024);
    Compare(ub.at<uint8_t>(512, 32), ub.at<int32_t>(0, 64), ub.at<int32_t>(256, 64), CMPMODE::EQ, 64);  // keeps SIM-MODE-01
}

KERNEL(integers_compared_for_order) {
    Ub ub(1024);
    Compare(ub.at<uint8_t>(512, 32), ub.at<int32_t>(0, 64), ub.at<int32_t>(256, 64), CMPMODE::LT, 64);  // breaks SIM-MODE-01: EQ
}

KERNEL(last_pattern) {
    Ub ub(1024);
    uint64_t kept = 0;
    GatherMask(ub.at<float>(512, 64), ub.at<float>(0, 64), uint8_t(7), false, 0, {1, 1, 8, 8}, kept);  // keeps SIM-MODE-01
}

KERNEL(pattern_past_the_last) {
    Ub ub(1024);
    uint64_t kept = 0;
    GatherMask(ub.at<float>(512, 64), ub.at<float>(0, 64), uint8_t(8), false, 0, {1, 1, 8, 8}, kept);  // breaks SIM-MODE-01: 8
}
