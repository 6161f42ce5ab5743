// The tiling struct, its keys, and what a launch hands over besides.
#include "mini.h"

struct Small {
    uint32_t rows;
    float factor;
};

struct Large {
    uint64_t numbers[4];
};

// The launch passes 16 bytes unless a test says otherwise.
KERNEL(struct_that_fits) {
    REGISTER_TILING_DEFAULT(Small);
    GET_TILING_DATA(data, tiling);  // keeps SIM-TILING-01
    (void)data;
}

KERNEL(struct_longer_than_the_data) {
    REGISTER_TILING_DEFAULT(Large);
    GET_TILING_DATA(data, tiling);  // breaks SIM-TILING-01: the struct ends at byte 32 but the host passed 16
    (void)data;
}

KERNEL(member_past_the_data) {
    REGISTER_TILING_DEFAULT(Small);
    GET_TILING_DATA_WITH_STRUCT(Large, data, tiling);  // breaks SIM-TILING-01: 32
    (void)data;
}

// Launched with key 2.
KERNEL(key_with_a_branch) {
    if (TILING_KEY_IS(1)) {
    } else if (TILING_KEY_IS(2)) {  // keeps SIM-TILING-02
    }
}

KERNEL(key_without_a_branch) {
    if (TILING_KEY_IS(1)) {
    } else if (TILING_KEY_IS(3)) {  // breaks SIM-TILING-02: TILING_KEY_IS(2)
    }
}

// y[i] = factor for `rows` floats, from the tiling.
KERNEL(fill_by_tiling) {
    REGISTER_TILING_DEFAULT(Small);
    GET_TILING_DATA(data, tiling);
    Ub ub(kBytes);
    LocalTensor<float> t = ub.at<float>(0, kBytes / 4);
    Duplicate(t, data.factor, data.rows);
    order<HardEvent::V_MTE3>();
    DataCopy(global<float>(y), t, data.rows);
}

// What the cores leave in the workspace, one 32-byte block each, they read back themselves.
KERNEL(through_the_workspace) {
    Ub ub(256);
    LocalTensor<float> t = ub.at<float>(0, 64);
    GlobalTensor<float> mine = global<float>(GetUserWorkspace(workspace))[uint32_t(GetBlockIdx()) * 8];
    Duplicate(t, float(GetBlockIdx()), 8);
    order<HardEvent::V_MTE3>();
    DataCopy(mine, t, 8);
    order<HardEvent::MTE3_MTE2>();
    DataCopy(t[8], mine, 8);
    order<HardEvent::MTE2_MTE3>();
    DataCopy(global<float>(y)[uint32_t(GetBlockIdx()) * 8], t[8], 8);
}
