// Rules on Ascend950.
#include "mini.h"

// The hardware keeps vector instructions in order.
KERNEL(v_after_v) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    Adds(t[64], t, 1.0f, 64);
    Adds(t[128], t[64], 1.0f, 64);  // keeps SIM-HAZARD-02
}

KERNEL(v_after_mte2) {
    Ub ub(1024);
    LocalTensor<float> t = ub.at<float>(0, 256);
    DataCopy(t, global<float>(x), 64);
    Adds(t[64], t, 1.0f, 64);  // breaks SIM-HAZARD-01: MTE2_V event missing
}

KERNEL(no_block) {
    Ub ub(1024);
    DataCopy(ub.at<float>(0, 64), global<float>(x), {0, 1, 0, 0});  // keeps SIM-COUNT-02
}

KERNEL(buffers_that_exceed_ub) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 253953);  // breaks SIM-BUFFER-02: 253953 bytes do not fit: 0 of UB's 253952 are taken
}
