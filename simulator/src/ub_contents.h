// The places in UB of a traced core, and what they hold over time.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "include/ascendc/runtime.h"

namespace ascend_sim {

// The time during which a place in UB held the same contents: from the first write to the last use. An instruction that
// writes the place without reading it begins new contents, if the place was read before or its tensor was freed.
struct UbContents {
    int32_t core;
    uint32_t addr, bytes;
    const char* api;  // the first instruction that wrote them
    Site site;
    double begin, end;
    uint32_t uses;  // instructions that read or wrote them
};

// A place in UB in the trace: a buffer of a TPipe, or a tensor at an address.
struct UbPlace {
    uint32_t addr, bytes, generation;
    bool is_open = false, was_read = false;
    UbContents contents = {};
};

struct UbPlaces {
    struct Use {
        UbPlace* place;
        uint32_t generation;
        bool reads, writes;
    };
    std::map<std::pair<uint32_t, uint32_t>, UbPlace> places;    // by address and bytes
    std::vector<Use> uses;                                      // of the running instruction
    std::vector<std::pair<uint32_t, uint32_t>> static_tensors;  // addresses and bytes
};

}  // namespace ascend_sim
