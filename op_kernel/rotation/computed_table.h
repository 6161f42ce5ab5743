// The table of sines and cosines of a call that passes positions. lane_frequencies.h computes the frequencies, and
// sine_table.h computes the sines and cosines.
#pragma once

#include "../memory/tiles.h"
#include "../memory/vector_steps.h"
#include "../rope_tiling_data.h"
#include "kernel_operator.h"
#include "lane_frequencies.h"
#include "pair_index.h"
#include "positions.h"
#include "sine_table.h"

namespace rotation {

using namespace memory;

// The data in GM from which a table is computed.
struct RopeSource {
    GM_ADDR positions;
    GM_ADDR freq_factors;
    GM_ADDR turns;  // RopeTurns
};

// PositionT: type of the positions. key: the tiling key, kRopeHalves, kRopeSwapByShifts or kRopeSwapByGather.
template <typename PositionT, int32_t key>
class ComputedTable {
public:
    using Source = RopeSource;

    // setup: scratch memory until BuildConstants() returns. scratch: scratch memory of each call of Build().
    __aicore__ inline void Init(AscendC::TPipe* pipe, const CommonTiling* tiling, const Source& source,
                                LocalTensor<float> setup, LocalTensor<float> scratch) {
        pipe_ = pipe;
        source_ = source;
        lanes_.Init(pipe, tiling, setup);
        table_.Init(pipe, tiling, scratch, source.turns);
        positions_.Init(pipe, tiling, source.positions);
    }

    // Starts the copies that BuildConstants() needs.
    __aicore__ inline void LoadConstants() { lanes_.Load(source_.turns, source_.freq_factors, kByLane); }
    __aicore__ inline void BuildConstants(PairIndex* index) { lanes_.Build(pipe_, index, kByLane); }

    // Starts the copy of the positions that Build() needs. tile: the first one of the block.
    __aicore__ inline void Load(const Tile& tile) { positions_.Load(tile); }
    __aicore__ inline void Build(int32_t tokens) { table_.Build(&positions_, lanes_, tokens); }

    __aicore__ inline LocalTensor<float> Sin(int32_t row) const { return table_.Sin(row); }
    __aicore__ inline LocalTensor<float> Cos(int32_t row) const { return table_.Cos(row); }

    __aicore__ inline void Finish() { positions_.Finish(pipe_); }

private:
    static constexpr bool kByLane = key != kRopeHalves;  // the table has one lane for each lane of a head's row

    AscendC::TPipe* pipe_ = nullptr;
    Source source_{};
    LaneFrequencies lanes_;
    Positions<PositionT> positions_;
    SineTable table_;
};

}  // namespace rotation
