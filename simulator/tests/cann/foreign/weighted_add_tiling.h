#pragma once

#include <cstdint>

struct WeightedAddTilingData {
    uint32_t elements;
    float alpha;
    float weight;
    uint32_t unused;
};
