// Runs a random program from the tiling data: copies, vector and scalar instructions on eight blocks of UB and
// of y, flags and barriers. test_order.py predicts the first unordered step by its own model.
#include "mini.h"

struct Program {
    uint32_t length, unused;
    uint8_t steps[64][3];  // operation, and two operands
};

enum Operation : uint8_t { kCopyIn, kVector, kCopyOut, kStore, kLoad, kSet, kWait, kBarrier };

namespace {

template <HardEvent event>
__aicore__ inline void flag(bool set, int32_t id) {
    if (set)
        SetFlag<event>(id);
    else
        WaitFlag<event>(id);
}

__aicore__ inline void flag(uint8_t event, bool set, int32_t id) {
    switch (HardEvent(event)) {
        case HardEvent::S_V: return flag<HardEvent::S_V>(set, id);
        case HardEvent::S_MTE2: return flag<HardEvent::S_MTE2>(set, id);
        case HardEvent::S_MTE3: return flag<HardEvent::S_MTE3>(set, id);
        case HardEvent::V_S: return flag<HardEvent::V_S>(set, id);
        case HardEvent::V_MTE2: return flag<HardEvent::V_MTE2>(set, id);
        case HardEvent::V_MTE3: return flag<HardEvent::V_MTE3>(set, id);
        case HardEvent::MTE2_S: return flag<HardEvent::MTE2_S>(set, id);
        case HardEvent::MTE2_V: return flag<HardEvent::MTE2_V>(set, id);
        case HardEvent::MTE2_MTE3: return flag<HardEvent::MTE2_MTE3>(set, id);
        case HardEvent::MTE3_S: return flag<HardEvent::MTE3_S>(set, id);
        case HardEvent::MTE3_V: return flag<HardEvent::MTE3_V>(set, id);
        case HardEvent::MTE3_MTE2: return flag<HardEvent::MTE3_MTE2>(set, id);
    }
}

__aicore__ inline void barrier(uint8_t pipe) {
    switch (pipe) {
        case PIPE_V: return PipeBarrier<PIPE_V>();
        case PIPE_MTE2: return PipeBarrier<PIPE_MTE2>();
        case PIPE_MTE3: return PipeBarrier<PIPE_MTE3>();
        default: return PipeBarrier<PIPE_ALL>();
    }
}

}  // namespace

KERNEL(random_program) {
    REGISTER_TILING_DEFAULT(Program);
    GET_TILING_DATA(program, tiling);
    Ub ub(8 * 32);
    LocalTensor<float> t = ub.at<float>(0, 64);
    for (uint32_t i = 0; i < program.length; ++i) {
        const uint8_t* step = program.steps[i];
        LocalTensor<float> a = t[step[1] * 8], b = t[step[2] * 8];
        switch (step[0]) {
            case kCopyIn: DataCopy(a, global<float>(y)[step[2] * 8], 8); break;
            case kVector: Adds(a, b, 1.0f, 8); break;
            case kCopyOut: DataCopy(global<float>(y)[step[2] * 8], a, 8); break;
            case kStore: a.SetValue(0, 1.0f); break;
            case kLoad: (void)a.GetValue(0); break;
            case kSet: flag(step[1], true, step[2]); break;
            case kWait: flag(step[1], false, step[2]); break;
            default: barrier(step[1]); break;
        }
    }
}
