// Several cores: rules for shared GM, and independence of the cores' order.
#include "mini.h"

namespace {

// Writes y[first, first + 64).
__aicore__ inline void write_from(GM_ADDR y, uint32_t first) {
    Ub ub(256);
    DataCopy(global<float>(y)[first], ub.at<float>(0, 64), 64);
}

// y[0, 8) += value.
__aicore__ inline void add_to_start(GM_ADDR y, float value) {
    Ub ub(256);
    LocalTensor<float> t = ub.at<float>(0, 8);
    Duplicate(t, value, 8);
    order<HardEvent::V_MTE3>();
    SetAtomicAdd<float>();
    DataCopy(global<float>(y), t, 8);
    SetAtomicNone();
}

}  // namespace

KERNEL(each_core_writes_its_own) {
    write_from(y, uint32_t(GetBlockIdx()) * 64);  // keeps SIM-CORE-01
}

KERNEL(cores_write_over_each_other) {
    Ub ub(256);
    Duplicate(ub.at<float>(0, 64), float(GetBlockIdx()), 64);
    order<HardEvent::V_MTE3>();
    DataCopy(global<float>(y)[uint32_t(GetBlockIdx()) * 56], ub.at<float>(0, 64), 64);  // breaks SIM-CORE-01: `dst` writes bytes [224, 256) of GM `y`, which core 0 wrote by DataCopy at @.
}

KERNEL(cores_add_to_the_same) {
    add_to_start(y, 1.0f);  // keeps SIM-CORE-01
}

KERNEL(cores_copy_in_turn) {
    Ub ub(256);
    const uint32_t mine = uint32_t(GetBlockIdx()) * 64;
    LocalTensor<float> t = ub.at<float>(0, 64);
    DataCopy(t, global<float>(y)[mine], 64);
    order<HardEvent::MTE2_MTE3>();
    DataCopy(global<float>(y)[mine], t, 64);  // keeps SIM-CORE-02
}

// In either order of the cores, the core that runs second reads data that the other one wrote.
KERNEL(cores_read_their_neighbour) {
    Ub ub(256);
    const uint32_t mine = uint32_t(GetBlockIdx()), other = 1 - mine;
    LocalTensor<float> t = ub.at<float>(0, 64);
    DataCopy(t, global<float>(y)[other * 64], 64);  // breaks SIM-CORE-02: `src` reads bytes [0, 256) of GM `y`, which core 0 wrote by DataCopy at @+2.
    order<HardEvent::MTE2_MTE3>();
    DataCopy(global<float>(y)[mine * 64], t, 64);
}

KERNEL(core_writes_what_another_read) {
    Ub ub(256);
    LocalTensor<float> t = ub.at<float>(0, 64);
    if (GetBlockIdx() == 0)
        DataCopy(t, global<float>(y), 64);
    else
        DataCopy(global<float>(y), t, 64);  // breaks SIM-CORE-02: `dst` writes bytes [0, 256) of GM `y`, which core 0 read by DataCopy at @-2.
}

KERNEL(core_reads_what_another_wrote) {
    Ub ub(256);
    LocalTensor<float> t = ub.at<float>(0, 64);
    if (GetBlockIdx() == 0)
        DataCopy(global<float>(y), t, 64);
    else
        DataCopy(t, global<float>(y), 64);  // breaks SIM-CORE-02: GM `y`, which core 0 wrote by DataCopy at @-2.
}

// A 64-byte line has sixteen floats.
KERNEL(scalars_of_two_cores_in_two_lines) {
    GlobalTensor<float> out = global<float>(y)[uint32_t(GetBlockIdx()) * 16];
    out.SetValue(0, 1.0f);  // keeps SIM-CORE-03
    DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE>(out);
}

KERNEL(scalars_of_two_cores_in_one_line) {
    GlobalTensor<float> out = global<float>(y)[uint32_t(GetBlockIdx()) * 8];
    out.SetValue(0, 1.0f);  // breaks SIM-CORE-03: this 64-byte line of GM has bytes that core 0 wrote by GlobalTensor::SetValue at @.
    DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE>(out);
}

KERNEL(scalar_beside_a_copy_of_another_core) {
    Ub ub(256);
    GlobalTensor<float> out = global<float>(y);
    if (GetBlockIdx() == 1) {
        DataCopy(out[8], ub.at<float>(0, 8), 8);  // breaks SIM-CORE-03: has bytes that core 0 wrote by GlobalTensor::SetValue at @+2.
    } else {
        out.SetValue(0, 1.0f);
        DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE>(out);
    }
}

KERNEL(scalar_over_a_copy_of_another_core) {
    Ub ub(256);
    GlobalTensor<float> out = global<float>(y);
    if (GetBlockIdx() == 0) {
        DataCopy(out, ub.at<float>(0, 8), 8);
    } else {
        out.SetValue(0, 2.0f);  // breaks SIM-CORE-03: has bytes that core 0 wrote by DataCopy at @-2.
        DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE>(out);
    }
}

KERNEL(store_through_a_reference_over_a_copy_of_another_core) {
    Ub ub(256);
    GlobalTensor<float> out = global<float>(y);
    if (GetBlockIdx() == 0) {
        Duplicate(ub.at<float>(0, 8), 2.0f, 8);
        order<HardEvent::V_MTE3>();
        DataCopy(out, ub.at<float>(0, 8), 8);
    } else {
        out(0) = 1.0f;  // breaks SIM-CORE-01: `tensor` writes bytes [0, 4) of GM `y`, which core 0 wrote by DataCopy at @-2.
        DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE>(out);
    }
}

// In float, (1e8 - 1e8) + 1 is 1 and (1 - 1e8) + 1e8 is 0.
KERNEL(float_sum_of_three_cores) {
    const float part[3] = {1e8f, -1e8f, 1.0f};
    Ub ub(256);
    LocalTensor<float> t = ub.at<float>(0, 8);
    Duplicate(t, part[GetBlockIdx()], 8);
    order<HardEvent::V_MTE3>();
    SetAtomicAdd<float>();
    DataCopy(global<float>(y), t, 8);  // breaks SIM-CORE-04: DataCopy: byte 2 of GM `y` is 0x80 with the cores in ascending order and 0x00 in descending order (16 bytes differ in all).
    SetAtomicNone();
}

KERNEL(exact_sum_of_three_cores) {
    add_to_start(y, float(GetBlockIdx()));  // keeps SIM-CORE-04
}

KERNEL(as_many_cores_as_there_may_be) {
    (void)GetBlockNum();  // keeps SIM-CORE-05
}

KERNEL(more_cores_than_there_may_be) {
    (void)GetBlockNum();  // breaks SIM-CORE-05 (no line): the block count must be 1 .. 65535 but got 65536
}

KERNEL(no_core) {
    (void)GetBlockNum();  // breaks SIM-CORE-05 (no line): but got 0
}

// The chip has 48 cores.
KERNEL(as_many_blocks_as_cores) {
    (void)GetBlockNum();  // keeps SIM-CORE-06
}

KERNEL(more_blocks_than_cores) {
    (void)GetBlockNum();  // warns SIM-CORE-06 (no line): at most the 48 cores of Ascend910B1 but got 1000: they run in 21 waves.
}
