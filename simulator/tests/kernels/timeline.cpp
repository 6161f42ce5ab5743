// Kernels whose durations the tests compare. The tiling data hold the sizes.
#include "mini.h"

struct Amounts {
    uint32_t count;    // floats of a tile, or repeats
    uint32_t tiles;
    uint32_t buffers;  // of each queue
    uint32_t setting;  // in copy_in, relay, add_tiles and sums_and_scalar; their comments give its meaning
};

#define READ_AMOUNTS                  \
    REGISTER_TILING_DEFAULT(Amounts); \
    GET_TILING_DATA(amounts, tiling)

// One copy of `count` floats, from float `setting` of GM on.
KERNEL(copy_in) {
    READ_AMOUNTS;
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, amounts.count * 4);
    DataCopy(buffer.Get<float>(), global<float>(x, 1 << 20)[amounts.setting], amounts.count);
}

// `tiles` bursts of `count` floats in one copy.
KERNEL(copy_in_bursts) {
    READ_AMOUNTS;
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, amounts.tiles * amounts.count * 4);
    DataCopy(buffer.Get<float>(), global<float>(x, 1 << 20),
             {uint16_t(amounts.tiles), uint16_t(amounts.count / 8), 8, 0});
}

// `tiles` copies of `count` floats.
KERNEL(copy_in_tiles) {
    READ_AMOUNTS;
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, amounts.tiles * amounts.count * 4);
    for (uint32_t tile = 0; tile < amounts.tiles; ++tile)
        DataCopy(buffer.Get<float>()[tile * amounts.count], global<float>(x, 1 << 20)[tile * amounts.count],
                 amounts.count);
}

// One Adds of `count` repeats.
KERNEL(add_repeats) {
    READ_AMOUNTS;
    Ub ub(65536);
    LocalTensor<float> t = ub.at<float>(0, 16384);
    Adds(t, t, 1.0f, 64, uint8_t(amounts.count), {1, 1, 8, 8});
}

// One Adds of four repeats whose source has block stride `count`.
KERNEL(add_strided) {
    READ_AMOUNTS;
    Ub ub(65536);
    LocalTensor<float> t = ub.at<float>(0, 16384);
    Adds(t, t[4096], 1.0f, 64, 4, {1, uint16_t(amounts.count), 8, 8});
}

// One Add of `count` repeats of two sources in different groups of Ascend910B's banks; with setting 64 in the same.
KERNEL(add_two_repeats) {
    READ_AMOUNTS;
    Ub ub(65536);
    LocalTensor<float> t = ub.at<float>(0, 16384);
    Add(t, t[4096 + 64 - amounts.setting], t[8192], 64, uint8_t(amounts.count), {1, 1, 1, 8, 8, 8});
}

// One Adds of `count` floats.
KERNEL(add_count) {
    READ_AMOUNTS;
    Ub ub(65536);
    LocalTensor<float> t = ub.at<float>(0, 16384);
    Adds(t, t, 1.0f, int32_t(amounts.count));
}

// One MulAddDst, which also reads its destination, of `count` repeats. Two of its three operands share
// bank groups of UB.
KERNEL(multiply_and_add_repeats) {
    READ_AMOUNTS;
    Ub ub(65536);
    LocalTensor<float> t = ub.at<float>(0, 16384);
    MulAddDst(t, t[8192 + 64], t[4096], 64, uint8_t(amounts.count), {1, 1, 1, 8, 8, 8});
}

// Other instructions of `count` repeats.
KERNEL(divide_repeats) {
    READ_AMOUNTS;
    Ub ub(65536);
    LocalTensor<float> t = ub.at<float>(0, 16384);
    Div(t, t[4096], t[8192], 64, uint8_t(amounts.count), {1, 1, 1, 8, 8, 8});
}
KERNEL(root_repeats) {
    READ_AMOUNTS;
    Ub ub(65536);
    LocalTensor<float> t = ub.at<float>(0, 16384);
    Sqrt(t, t, 64, uint8_t(amounts.count), {1, 1, 8, 8});
}
KERNEL(half_root_repeats) {
    READ_AMOUNTS;
    Ub ub(65536);
    LocalTensor<half> t = ub.at<half>(0, 32768);
    Sqrt(t, t, 128, uint8_t(amounts.count), {1, 1, 8, 8});
}
KERNEL(estimate_repeats) {
    READ_AMOUNTS;
    Ub ub(65536);
    LocalTensor<float> t = ub.at<float>(0, 16384);
    Rsqrt(t, t, 64, uint8_t(amounts.count), {1, 1, 8, 8});
}
KERNEL(sum_repeats) {
    READ_AMOUNTS;
    Ub ub(65536);
    LocalTensor<float> t = ub.at<float>(0, 16384);
    WholeReduceSum<float>(t[8192], t, 64, int32_t(amounts.count), 1, 1, 8);
}
KERNEL(sum_blocks) {
    READ_AMOUNTS;
    Ub ub(65536);
    LocalTensor<float> t = ub.at<float>(0, 16384);
    BlockReduceSum<float>(t[8192], t, int32_t(amounts.count), 64, 1, 1, 8);
}

// Gathers the first element of a tensor in UB `count` times.
KERNEL(gather_count) {
    READ_AMOUNTS;
    Ub ub(65536);
    LocalTensor<uint32_t> offsets = ub.at<uint32_t>(0, 8192);
    Duplicate(offsets, uint32_t(0), 8192);
    PipeBarrier<PIPE_V>();
    Gather(ub.at<float>(32768, 4096), ub.at<float>(49152, 4096), offsets, 0, amounts.count);
}

// Writes and reads `count` scalars of UB and of GM.
KERNEL(scalar_accesses) {
    READ_AMOUNTS;
    Ub ub(256);
    LocalTensor<float> t = ub.at<float>(0, 64);
    float sum = 0;
    for (uint32_t i = 0; i < amounts.count; ++i) {
        t.SetValue(i, 1.0f);
        sum += t.GetValue(i) + global<float>(x, 64).GetValue(i);
        global<float>(y, 64).SetValue(i, sum);
    }
    DataCacheCleanAndInvalid<float, CacheLine::ENTIRE_DATA_CACHE>(global<float>(y, 64));
}

// Copies in and out with V in between. V only waits if `setting` is 0, adds if it is 1, and has a barrier if it is 2.
KERNEL(relay) {
    READ_AMOUNTS;
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, amounts.count * 4);
    LocalTensor<float> t = buffer.Get<float>();
    DataCopy(t, global<float>(x, 1 << 20), amounts.count);
    auto arrived = pipe.FetchEventID(HardEvent::MTE2_V);
    SetFlag<HardEvent::MTE2_V>(arrived);
    WaitFlag<HardEvent::MTE2_V>(arrived);
    if (amounts.setting == 1) Adds(t, t, 1.0f, int32_t(amounts.count));
    if (amounts.setting == 2) PipeBarrier<PIPE_V>();
    auto ready = pipe.FetchEventID(HardEvent::V_MTE3);
    SetFlag<HardEvent::V_MTE3>(ready);
    WaitFlag<HardEvent::V_MTE3>(ready);
    DataCopy(global<float>(y, 1 << 20), t, amounts.count);
}

// Every core copies `count` floats out and then in, without a wait in between.
KERNEL(out_and_in) {
    READ_AMOUNTS;
    Ub ub(131072);
    LocalTensor<float> t = ub.at<float>(0, 16384), other = ub.at<float>(65536, 16384);
    const uint64_t at = uint64_t(GetBlockIdx()) * amounts.count;
    DataCopy(global<float>(y, 1 << 20)[at], t, amounts.count);
    DataCopy(other, global<float>(x, 1 << 20)[at], amounts.count);
}

// Every core: y = x + 1 in `tiles` tiles of `count` floats through queues of `buffers` buffers; `setting` more Adds
// per tile.
KERNEL(add_tiles) {
    READ_AMOUNTS;
    TPipe pipe;
    TQue<TPosition::VECIN, 1> in;
    TQue<TPosition::VECOUT, 1> out;
    pipe.InitBuffer(in, uint8_t(amounts.buffers), amounts.count * 4);
    pipe.InitBuffer(out, uint8_t(amounts.buffers), amounts.count * 4);
    for (uint32_t tile = 0; tile < amounts.tiles; ++tile) {
        const uint64_t at = (uint64_t(GetBlockIdx()) * amounts.tiles + tile) * amounts.count;
        LocalTensor<float> a = in.AllocTensor<float>();
        DataCopy(a, global<float>(x, 1 << 20)[at], amounts.count);
        in.EnQue(a);
        LocalTensor<float> b = in.DeQue<float>();
        LocalTensor<float> c = out.AllocTensor<float>();
        Adds(c, b, 1.0f, int32_t(amounts.count));
        for (uint32_t more = 0; more < amounts.setting; ++more) {
            PipeBarrier<PIPE_V>();
            Adds(c, c, 1.0f, int32_t(amounts.count));
        }
        in.FreeTensor(b);
        out.EnQue(c);
        LocalTensor<float> d = out.DeQue<float>();
        DataCopy(global<float>(y, 1 << 20)[at], d, amounts.count);
        out.FreeTensor(d);
    }
}

// Two dependent sums and a scalar read of the result. `setting` is 1 if the kernel leaves the order to the compiler.
KERNEL(sums_and_scalar) {
    READ_AMOUNTS;
    Ub ub(65536);
    LocalTensor<float> t = ub.at<float>(0, 16384);
    Adds(t, t, 1.0f, int32_t(amounts.count));
    if (!amounts.setting) PipeBarrier<PIPE_V>();
    Adds(t, t, 1.0f, int32_t(amounts.count));
    if (!amounts.setting) order<HardEvent::V_S>();
    (void)t.GetValue(0);
}

// A write of one scalar of UB through a reference, and its read.
KERNEL(reference_to_ub) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 256);
    LocalTensor<float> t = buffer.Get<float>();
    t(3) = 1.0f;
    PipeBarrier<PIPE_ALL>();
    (void)t.GetValue(3);
}

// Two tensors at addresses. The first one gets new contents after the second one has read it.
KERNEL(tensors_at_addresses) {
    InitSocState();
    READ_AMOUNTS;
    LocalMemAllocator<> allocator;
    LocalTensor<float> a = allocator.Alloc<float>(1024), b = allocator.Alloc<float>(512);
    Duplicate(a, 1.0f, 1024);
    PipeBarrier<PIPE_V>();
    Adds(b, a, 1.0f, int32_t(amounts.count));
    PipeBarrier<PIPE_V>();
    Duplicate(a, 2.0f, 1024);
    PipeBarrier<PIPE_ALL>();
}
