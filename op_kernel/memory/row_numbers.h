// The row numbers of tokens: each token has the number of its row in a cache or in given tables. The numbers are int32
// or int64 and stay in GM; the scalar unit reads them.
#pragma once

#include "kernel_operator.h"

namespace memory {

class RowNumbers {
public:
    // stride: strides of the numbers by batch and token. words: 32-bit words of a number.
    __aicore__ inline void Init(GM_ADDR numbers, const int64_t* stride, int32_t words) {
        stride_ = stride;
        words_ = words;
        numbers_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(numbers));
    }

    // offset: that of the first number, in numbers.
    __aicore__ inline int64_t Get(int64_t batch, int64_t token, int64_t offset = 0) {
        int64_t word = (batch * stride_[0] + token * stride_[1] + offset) * words_;
        int32_t low = numbers_.GetValue(static_cast<uint64_t>(word));
        if (words_ == 1) return low;
        int64_t high = numbers_.GetValue(static_cast<uint64_t>(word + 1));
        return static_cast<int64_t>(static_cast<uint64_t>(high) << 32 | static_cast<uint32_t>(low));
    }

private:
    const int64_t* stride_ = nullptr;
    int32_t words_ = 1;
    AscendC::GlobalTensor<int32_t> numbers_;
};

}  // namespace memory
