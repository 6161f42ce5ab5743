// Vectors of lane numbers in UB. Each core computes them once, during its setup, in scratch memory that only the setup
// uses.
#pragma once

#include "../rope_tiling_data.h"
#include "kernel_operator.h"
#include "vector_steps.h"

namespace memory {

class LaneNumbers {
public:
    __aicore__ inline void Init(const CommonTiling* tiling, LocalTensor<float> scratch) {
        count_ = tiling->setup_lanes;
        FloatAllocator temps(scratch);
        for (int32_t k = 0; k < kRopeSetupLaneTemps; ++k) lane_[k] = temps.Take(count_);
        rest_ = scratch[kRopeSetupLaneTemps * count_];
    }

    // Numbers() is valid from this call to the end of the setup.
    __aicore__ inline void FillNumbers() { FillAscending(lane_[0], count_); }
    // 0, 1, 2, ..., setup_lanes - 1.
    __aicore__ inline LocalTensor<float> Numbers() const { return lane_[0]; }
    __aicore__ inline LocalTensor<float> Temp(int32_t k) const { return lane_[1 + k]; }
    // The scratch memory that follows the vectors.
    __aicore__ inline LocalTensor<float> Rest() const { return rest_; }

private:
    int32_t count_ = 0;
    LocalTensor<float> lane_[kRopeSetupLaneTemps], rest_;
};

}  // namespace memory
