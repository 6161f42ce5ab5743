// Alignment of operands: UB blocks, boundaries of reductions and gathers, elements of GM.
#include "mini.h"

KERNEL(add_from_a_block) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    Add(t[128], t[8], t[64], 32);  // keeps SIM-ALIGN-01
}

KERNEL(add_from_inside_a_block) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    Add(t[128], t[4], t[64], 32);  // breaks SIM-ALIGN-01: `src0` starts at UB byte 16
}

KERNEL(add_into_a_block) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    Add(t[129], t[8], t[64], 32);  // breaks SIM-ALIGN-01: `dst` starts at UB byte 516
}

KERNEL(copy_in_to_a_block) {
    Ub ub(1024);
    DataCopy(ub.at<float>(32, 128), global<float>(x), 64);  // keeps SIM-ALIGN-01
}

KERNEL(copy_in_into_a_block) {
    Ub ub(1024);
    DataCopy(ub.at<float>(16, 128), global<float>(x), 64);  // breaks SIM-ALIGN-01: UB byte 16
}

KERNEL(copy_out_from_a_block) {
    Ub ub(1024);
    DataCopy(global<float>(y), ub.at<float>(96, 64), 64);  // keeps SIM-ALIGN-01
}

KERNEL(copy_out_from_inside_a_block) {
    Ub ub(1024);
    DataCopy(global<float>(y), ub.at<float>(100, 64), 64);  // breaks SIM-ALIGN-01: UB byte 100
}

KERNEL(padded_copy_to_a_block) {
    Ub ub(1024);
    DataCopyPad(ub.at<float>(64, 8), global<float>(x), {1, 12, 0, 0, 0}, {false, 0, 0, 0});  // keeps SIM-ALIGN-01
}

KERNEL(padded_copy_into_a_block) {
    Ub ub(1024);
    DataCopyPad(ub.at<float>(68, 8), global<float>(x), {1, 12, 0, 0, 0}, {false, 0, 0, 0});  // breaks SIM-ALIGN-01: 68
}

KERNEL(block_sums_to_a_block) {
    Ub ub(1024);
    BlockReduceSum<float>(ub.at<float>(512 + 32, 8), ub.at<float>(0, 64), 1, 64, 1, 1, 8);  // keeps SIM-ALIGN-02
}

KERNEL(block_sums_into_a_block) {
    Ub ub(1024);
    BlockReduceSum<float>(ub.at<float>(512 + 16, 8), ub.at<float>(0, 64), 1, 64, 1, 1, 8);  // breaks SIM-ALIGN-02: `dst`
}

KERNEL(half_block_sums_to_half_a_block) {
    Ub ub(1024);
    BlockReduceSum<half>(ub.at<half>(512 + 16, 8), ub.at<half>(0, 128), 1, 128, 1, 1, 8);  // keeps SIM-ALIGN-02
}

KERNEL(row_sum_to_an_element) {
    Ub ub(1024);
    WholeReduceSum<float>(ub.at<float>(512 + 4, 1), ub.at<float>(0, 64), 64, 1, 1, 1, 8);  // keeps SIM-ALIGN-02
}

KERNEL(row_sum_into_an_element) {
    Ub ub(1024);
    WholeReduceSum<float>(ub.at<float>(512 + 2, 1), ub.at<float>(0, 64), 64, 1, 1, 1, 8);  // breaks SIM-ALIGN-02: `dst`
}

KERNEL(gm_from_an_element) {
    Ub ub(1024);
    DataCopy(ub.at<float>(0, 8), global<float>(x + 4, 8), 8);  // keeps SIM-ALIGN-03
}

KERNEL(gm_from_inside_an_element) {
    Ub ub(1024);
    DataCopy(ub.at<float>(0, 8), global<float>(x + 2, 8), 8);  // breaks SIM-ALIGN-03: 4
}

KERNEL(padded_gm_from_any_byte) {
    Ub ub(1024);
    DataCopyPad(ub.at<uint8_t>(0, 32), global<uint8_t>(x + 3, 8), {1, 7, 0, 0, 0}, {false, 0, 0, 0});  // keeps SIM-ALIGN-03
}
