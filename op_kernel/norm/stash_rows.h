// Round rows to the stash type, in which ONNX's RMSNormalization computes, and from it to the type of x.
#pragma once

#include "../memory/row_steps.h"
#include "../memory/vector_steps.h"
#include "../rms_norm_tiling_data.h"
#include "kernel_operator.h"

namespace norm {

using namespace memory;

class StashRows {
public:
    __aicore__ inline void Init(int32_t stash) { stash_ = stash; }

    __aicore__ inline bool IsFloat32() const { return stash_ == kStashFloat32; }

    // Rounds float32 rows to the nearest numbers of the stash type.
    __aicore__ inline void Round(LocalTensor<float> rows, LocalTensor<float> temp, int32_t count) {
        if (stash_ == kStashFloat16) RoundTo<half>(rows, temp, count);
#if __CCE_AICORE__ != 200
        if (stash_ == kStashBfloat16) RoundTo<bfloat16_t>(rows, temp, count);
#endif
    }

    // Rounds float32 rows to the stash type, then to T, the type of x.
    template <typename T>
    __aicore__ inline void RoundToStashThenTo(LocalTensor<float> rows, LocalTensor<float> temp, int32_t count) {
        Round(rows, temp, count);
        if constexpr (sizeof(T) != sizeof(float)) RoundTo<T>(rows, temp, count);
    }

private:
    int32_t stash_ = 0;
};

}  // namespace norm
