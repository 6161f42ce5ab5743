// Events and barriers between the pipes of one core, and the core's index.
#pragma once

#include "ascendc/types.h"

namespace ascend_sim {

// Lets the pipe `to` wait for the earlier work of the pipe `from`, by an event that the instruction fetches itself.
inline void hand_over(Pipe from, Pipe to, const char* api, Site site) {
    if (!current_pipe())
        broken_at(Rule::Buffer04, api, site, "there is no TPipe, but the instruction needs its events.");
    const int32_t event = fetch_event(from, to, site);
    set_flag(from, to, event, api, site);
    wait_flag(from, to, event, api, site);
}

}  // namespace ascend_sim

namespace AscendC {

// The two pipes of an event, in the order of HardEvent.
constexpr ascend_sim::Pipe source_pipe(HardEvent event) {
    using ascend_sim::Pipe;
    constexpr Pipe kFrom[] = {Pipe::S,    Pipe::S,    Pipe::S,    Pipe::V,    Pipe::V,    Pipe::V,
                              Pipe::MTE2, Pipe::MTE2, Pipe::MTE2, Pipe::MTE3, Pipe::MTE3, Pipe::MTE3};
    return kFrom[int(event)];
}

constexpr ascend_sim::Pipe target_pipe(HardEvent event) {
    using ascend_sim::Pipe;
    constexpr Pipe kTo[] = {Pipe::V, Pipe::MTE2, Pipe::MTE3, Pipe::S, Pipe::MTE2, Pipe::MTE3,
                            Pipe::S, Pipe::V,    Pipe::MTE3, Pipe::S, Pipe::V,    Pipe::MTE2};
    return kTo[int(event)];
}

// Raises a flag on the source pipe after all its earlier work.
template <HardEvent event>
void SetFlag(int32_t id, ASCEND_SIM_SITE) {
    ascend_sim::set_flag(source_pipe(event), target_pipe(event), id, "SetFlag", site);
}

// Stalls the target pipe until the flag is raised, then clears the flag.
template <HardEvent event>
void WaitFlag(int32_t id, ASCEND_SIM_SITE) {
    ascend_sim::wait_flag(source_pipe(event), target_pipe(event), id, "WaitFlag", site);
}

// Completes the pipe's earlier work before its later work starts; with PIPE_ALL, the work of all pipes.
template <pipe_t pipe>
void PipeBarrier(ASCEND_SIM_SITE) {
    static_assert(pipe == PIPE_V || pipe == PIPE_MTE2 || pipe == PIPE_MTE3 || pipe == PIPE_ALL,
                  "PipeBarrier takes PIPE_V, PIPE_MTE2, PIPE_MTE3 or PIPE_ALL");
    ascend_sim::barrier(pipe == PIPE_ALL ? ascend_sim::kAllPipes : int32_t(pipe), site);
}

// Orders the scalar unit's own memory accesses; the simulator runs them in order anyway.
template <MemDsbT type>
void DataSyncBarrier() {
    static_assert(ascend_sim::kTakes<std::integral_constant<MemDsbT, type>, ascend_sim::Api::DataSyncBarrier>,
                  "DataSyncBarrier: this SoC does not have it");
}

inline int64_t GetBlockIdx() { return ascend_sim::block_index(); }
inline int64_t GetBlockNum() { return ascend_sim::block_count(); }
inline int64_t GetSubBlockIdx() { return 0; }  // the simulator has no pairs of vector cores

}  // namespace AscendC
