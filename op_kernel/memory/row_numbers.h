// The number of each token's row in a cache or in given tables: int32 or int64 numbers in GM, which the scalar unit
// reads.
#pragma once

#include "../rope_tiling_data.h"
#include "kernel_operator.h"

namespace memory {

class RowNumbers {
public:
    __aicore__ inline void Init(const RopeTilingHead* td, GM_ADDR numbers) {
        td_ = td;
        numbers_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(numbers));
    }

    __aicore__ inline int64_t Get(int64_t batch, int64_t token) {
        int64_t word = (batch * td_->index_stride[0] + token * td_->index_stride[1]) * td_->index_words;
        int32_t low = numbers_.GetValue(static_cast<uint64_t>(word));
        if (td_->index_words == 1) return low;
        int64_t high = numbers_.GetValue(static_cast<uint64_t>(word + 1));
        return static_cast<int64_t>(static_cast<uint64_t>(high) << 32 | static_cast<uint32_t>(low));
    }

private:
    const RopeTilingHead* td_ = nullptr;
    AscendC::GlobalTensor<int32_t> numbers_;
};

}  // namespace memory
