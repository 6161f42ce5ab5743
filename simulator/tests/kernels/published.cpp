// Loops whose durations on chips are published (test_published.py). The tiling data hold the sizes. As in the measured
// kernels, nothing orders instructions that write the same bytes.
#include "mini.h"

struct Loop {
    uint32_t times;
    uint32_t rows, row_bytes, pitch_bytes;     // copies
    uint32_t count;                            // sums: halves of a tile
    uint32_t first, second, result;            // addresses in UB of an Add's operands; in copies, `first` is in GM
    uint32_t block_stride, repeat_stride;      // of the Add's first operand
};

#define READ_LOOP                  \
    REGISTER_TILING_DEFAULT(Loop); \
    GET_TILING_DATA(loop, tiling)

// `times` Adds of 64 repeats of floats.
KERNEL(sums_in_ub) {
    READ_LOOP;
    Ub ub(176 * 1024);
    LocalTensor<float> first = ub.at<float>(loop.first, 4096), second = ub.at<float>(loop.second, 4096);
    LocalTensor<float> result = ub.at<float>(loop.result, 4096);
    for (uint32_t i = 0; i < loop.times; ++i) {
        Add(result, first, second, 64, 64,
            {1, uint8_t(loop.block_stride), 1, 8, uint8_t(loop.repeat_stride), 8});
    }
}

// `times` copies of rows from GM. The rows begin `pitch_bytes` apart; the first begins at byte `first`.
KERNEL(copies) {
    READ_LOOP;
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 131072);
    LocalTensor<half> tile = buffer.Get<half>();
    const DataCopyExtParams params{uint16_t(loop.rows), loop.row_bytes, loop.pitch_bytes - loop.row_bytes, 0, 0};
    for (uint32_t i = 0; i < loop.times; ++i) {
        DataCopyPad(tile, global<half>(x, 1 << 20)[loop.first / 2], params, {false, 0, 0, half(0)});
    }
}

// z = x + y in tiles of `count` halves, with one buffer for each of x, y and z.
KERNEL(sums) {
    READ_LOOP;
    Ub ub(176 * 1024);
    LocalTensor<half> a = ub.at<half>(loop.first, loop.count), b = ub.at<half>(loop.second, loop.count);
    LocalTensor<half> sum = ub.at<half>(loop.result, loop.count);
    for (uint32_t i = 0; i < loop.times; ++i) {
        if (i != 0) WaitFlag<HardEvent::V_MTE2>(EVENT_ID0);
        DataCopy(a, global<half>(x, 1 << 20), loop.count);
        DataCopy(b, global<half>(x, 1 << 20)[loop.count], loop.count);
        SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
        WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
        if (i != 0) WaitFlag<HardEvent::MTE3_V>(EVENT_ID0);
        Add(sum, a, b, int32_t(loop.count));
        if (i + 1 != loop.times) SetFlag<HardEvent::V_MTE2>(EVENT_ID0);
        SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
        WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
        const uint64_t at = (uint64_t(GetBlockIdx()) * loop.times + i) * loop.count;
        DataCopy(global<half>(y, 1 << 24)[at], sum, loop.count);
        if (i + 1 != loop.times) SetFlag<HardEvent::MTE3_V>(EVENT_ID0);
    }
}
