#pragma once

#include <cstdint>

struct PickedRowTilingData {
    int64_t row;
    uint32_t columns;
    int32_t plus;
    uint32_t parsed;
    int32_t deterministic;
    uint64_t unset;
};
