// Kernels whose reports, results and timeline the tests look at; x and y as in the others.
#include "mini.h"

KERNEL(unordered_in_a_loop) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    for (int32_t i = 0; i < 5; ++i) Adds(t, t, 1.0f, 64);
}

KERNEL(copy_with_a_tail) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t, global<float>(x), 16);
    order<HardEvent::MTE2_MTE3>();
    DataCopy(global<float>(y), t, 12);
}
