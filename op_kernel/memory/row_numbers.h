// The row numbers of tokens: each token has the number of its row in a cache or in given tables. The numbers are int32
// or int64 and stay in GM; the scalar unit reads them.
#pragma once

#include "../rope_tiling_data.h"
#include "kernel_operator.h"

namespace memory {

class RowNumbers {
public:
    __aicore__ inline void Init(const CommonTiling* tiling, GM_ADDR numbers) {
        tiling_ = tiling;
        numbers_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(numbers));
    }

    __aicore__ inline int64_t Get(int64_t batch, int64_t token) {
        int64_t word =
            (batch * tiling_->row_number_stride[0] + token * tiling_->row_number_stride[1]) * tiling_->row_number_words;
        int32_t low = numbers_.GetValue(static_cast<uint64_t>(word));
        if (tiling_->row_number_words == 1) return low;
        int64_t high = numbers_.GetValue(static_cast<uint64_t>(word + 1));
        return static_cast<int64_t>(static_cast<uint64_t>(high) << 32 | static_cast<uint32_t>(low));
    }

private:
    const CommonTiling* tiling_ = nullptr;
    AscendC::GlobalTensor<int32_t> numbers_;
};

}  // namespace memory
