// The tiling struct, its keys, and other arguments of a launch.
#include "mini.h"
#include "register/tilingdata_base.h"

struct Small {
    uint32_t rows;
    float factor;
    uint64_t spare;
};

struct Large {
    uint64_t first;
    uint64_t others[3];
};

struct Parts {
    Small first, second;
};

// Defined by the host's macros.
BEGIN_TILING_DATA_DEF(Inner)
TILING_DATA_FIELD_DEF(uint32_t, rows)
END_TILING_DATA_DEF;
REGISTER_TILING_DATA_CLASS(InnerOp, Inner);
BEGIN_TILING_DATA_DEF(ByMacros)
TILING_DATA_FIELD_DEF_STRUCT(Inner, inner);
TILING_DATA_FIELD_DEF_ARR(float, 3, factors);
END_TILING_DATA_DEF;
REGISTER_TILING_DATA_CLASS(Mini, ByMacros);

// The launch passes 16 bytes unless a comment gives another size.
KERNEL(struct_that_fits) {
    REGISTER_TILING_DEFAULT(Small);
    GET_TILING_DATA(data, tiling);  // keeps SIM-TILING-01
    (void)data;
}

KERNEL(member_of_the_struct_that_fits) {
    REGISTER_TILING_DEFAULT(Small);
    GET_TILING_DATA_MEMBER(Small, factor, factor, tiling);  // keeps SIM-TILING-01
    (void)factor;
}

// The launch passes 24 bytes, because the host's classes fill the struct up to a multiple of 8 bytes.
KERNEL(struct_of_the_hosts_macros) {
    REGISTER_TILING_DEFAULT(ByMacros);
    GET_TILING_DATA(data, tiling);  // keeps SIM-TILING-01
    (void)(data.inner.rows + data.factors[2]);
}

KERNEL(struct_longer_than_the_data) {
    REGISTER_TILING_DEFAULT(Large);
    GET_TILING_DATA(data, tiling);  // breaks SIM-TILING-01: the struct has 32 bytes but the host passed 16.
    (void)data;
}

// The launch passes 64 bytes.
KERNEL(struct_shorter_than_the_data) {
    REGISTER_TILING_DEFAULT(Small);
    GET_TILING_DATA(data, tiling);  // breaks SIM-TILING-01: the struct has 16 bytes but the host passed 64.
    (void)data;
}

KERNEL(another_struct_than_the_registered) {
    REGISTER_TILING_DEFAULT(Small);
    GET_TILING_DATA_WITH_STRUCT(Large, data, tiling);  // breaks SIM-TILING-01: the struct has 32 bytes
    (void)data;
}

KERNEL(member_of_another_struct) {
    GET_TILING_DATA_MEMBER(Large, first, number, tiling);  // breaks SIM-TILING-01: the struct has 32 bytes
    (void)number;
}

// The launch passes 64 bytes. No macro reads the data.
KERNEL(struct_read_by_a_pointer_of_its_own) {
    REGISTER_TILING_DEFAULT(Small);  // breaks SIM-TILING-01: REGISTER_TILING_DEFAULT: the struct has 16 bytes but the host passed 64.
    (void)reinterpret_cast<__gm__ Small*>(tiling)->rows;
}

KERNEL(one_of_the_registered_structs) {
    REGISTER_TILING_DEFAULT(Large);
    REGISTER_TILING_FOR_TILINGKEY("TILING_KEY_VAR == 2", Small);
    GET_TILING_DATA_WITH_STRUCT(Small, data, tiling);  // keeps SIM-TILING-01
    (void)data;
}

// The launch passes 32 bytes, also to the next kernel.
KERNEL(part_of_the_data_by_a_copy) {
    GET_TILING_DATA_PTR_WITH_STRUCT(Parts, parts, tiling);
    COPY_TILING_WITH_STRUCT(Small, &parts->second, second);  // keeps SIM-TILING-01
    (void)second->rows;
}

KERNEL(part_past_the_data) {
    GET_TILING_DATA_PTR_WITH_STRUCT(Parts, parts, tiling);
    COPY_TILING_WITH_STRUCT(Small, &parts->second.factor, second);  // breaks SIM-TILING-01: after what the host passed
    (void)second;
}

KERNEL(tiling_from_somewhere_else) {
    GET_TILING_DATA_WITH_STRUCT(Small, data, workspace);  // breaks SIM-TILING-01: the pointer is not the kernel's tiling argument
    (void)data;
}

// This kernel and the next are launched with key 2.
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

// Each core reads back its own 32-byte block of the workspace.
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
