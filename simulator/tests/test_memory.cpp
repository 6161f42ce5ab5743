// Memory: queues with paths, pools, tensors at addresses, the rest of UB, atomic copies and the initialisation of GM.
#include <algorithm>
#include <limits>

#include "instruction_bench.h"

using namespace AscendC;
using namespace bench;

namespace {

constexpr uint32_t kN = 128;  // floats of a buffer

template <class T>
GlobalTensor<T> global(GM_ADDR address) {
    GlobalTensor<T> tensor;
    tensor.SetGlobalBuffer(reinterpret_cast<T*>(address));
    return tensor;
}

template <class T>
std::vector<uint8_t> bytes_of(const std::vector<T>& values) {
    std::vector<uint8_t> bytes(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

// Runs body with x in GM and compares GM y with `want`; y is `before` at first.
template <class T>
void check_launch(const std::string& what, const std::vector<T>& x, const std::vector<T>& before,
                  const std::vector<T>& want, const std::function<void(GM_ADDR, GM_ADDR)>& body) {
    std::vector<uint8_t> in = bytes_of(x), out = bytes_of(before);
    expect_rule(what, launch(in, out, {}, body), "");
    std::vector<T> got(before.size());
    std::memcpy(got.data(), out.data(), out.size());
    expect(what, got, want);
}

// Expects y = 2 * x.
void check_doubling(const std::string& what, const std::function<void(GM_ADDR, GM_ADDR)>& body) {
    const auto x = numbers<float>(kN, -9, 9);
    auto want = x;
    for (float& v : want) v += v;
    check_launch<float>(what, x, std::vector<float>(kN), want, body);
}

// ---- queues ----------------------------------------------------------------------------------------------

void check_paths() {
    check_doubling("EnQue and DeQue with paths", [](GM_ADDR x, GM_ADDR y) {
        TPipe pipe;
        TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> queue;
        pipe.InitBuffer(queue, 1, kN * sizeof(float));
        for (int i = 0; i < 2; ++i) {
            LocalTensor<float> t = queue.AllocTensor<float>();
            DataCopy(t, global<float>(x), kN);
            queue.EnQue<TPosition::GM, TPosition::VECIN, float>(t);
            t = queue.DeQue<TPosition::GM, TPosition::VECIN, float>();
            check(t.GetPosition() == int32_t(TPosition::VECIN), "the position of DeQue with a path");
            Add(t, t, t, kN);
            queue.EnQue<TPosition::VECOUT, TPosition::GM, float>(t);
            t = queue.DeQue<TPosition::VECOUT, TPosition::GM, float>();
            DataCopy(global<float>(y), t, kN);
            queue.FreeTensor(t);
            PipeBarrier<PIPE_MTE3>();
        }
    });
    const auto x_values = numbers<float>(kN, -9, 9);
    check_launch<float>("a path through UB", x_values, std::vector<float>(kN), x_values, [](GM_ADDR x, GM_ADDR y) {
        TPipe pipe;
        TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> queue;
        pipe.InitBuffer(queue, 1, kN * sizeof(float));
        LocalTensor<float> t = queue.AllocTensor<float>();
        DataCopy(t, global<float>(x), kN);
        queue.EnQue<TPosition::VECIN, TPosition::VECOUT, float>(t);
        t = queue.DeQue<TPosition::VECIN, TPosition::VECOUT, float>();
        DataCopy(global<float>(y), t, kN);
        queue.FreeTensor(t);
    });
    check_doubling("a queue of depth 0", [](GM_ADDR x, GM_ADDR y) {
        TPipe pipe;
        TQue<TPosition::VECIN, 0> queue;
        pipe.InitBuffer(queue, 1, kN * sizeof(float));
        LocalTensor<float> allocated, t;
        queue.AllocTensor(allocated);
        DataCopy(allocated, global<float>(x), kN);
        queue.EnQue(allocated);
        queue.DeQue(t);
        check(t.GetPhyAddr() == allocated.GetPhyAddr() && t.GetSize() == kN, "the tensor of a queue of depth 0");
        Add(t, t, t, kN);
        PipeBarrier<PIPE_ALL>();
        DataCopy(global<float>(y), t, kN);
        queue.FreeTensor(t);
    });
    check_doubling("a full queue", [](GM_ADDR x, GM_ADDR y) {
        TPipe pipe;
        TQue<TPosition::VECIN, 2> queue;
        pipe.InitBuffer(queue, 2, kN * sizeof(float));
        for (int i = 0; i < 2; ++i) {
            check(queue.VacantInQue(), "a queue that is not full");
            LocalTensor<float> t = queue.AllocTensor<float>();
            DataCopy(t, global<float>(x), kN);
            queue.EnQue(t);
        }
        check(!queue.VacantInQue(), "a full queue");
        LocalTensor<float> a = queue.DeQue<float>(), b = queue.DeQue<float>();
        Add(a, a, b, kN);
        PipeBarrier<PIPE_ALL>();
        DataCopy(global<float>(y), a, kN);
        queue.FreeTensor(a);
        queue.FreeTensor(b);
    });
    check_doubling("forms without a type, and a TBuf's tensors", [](GM_ADDR x, GM_ADDR y) {
        TPipe pipe;
        TQue<TPosition::VECIN, 1> in;
        TQue<TPosition::VECOUT, 1> out;
        TBuf<TPosition::VECCALC> buffer;
        pipe.InitBuffer(in, 2, kN * sizeof(float));
        pipe.InitBuffer(out, 1, kN * sizeof(float));
        pipe.InitBuffer(buffer, kN * sizeof(float));
        LocalTensor<float> t = in.AllocTensor<float>(), sum = out.AllocTensor<float>();
        DataCopy(t, global<float>(x), kN);
        t.SetUserTag(77);
        in.EnQue(t);
        const TBufHandle handle = in.DeQue();
        LocalTensor<float> work = buffer.AllocTensor<float>();
        check(t.GetUserTag() == 77, "the tag of a buffer");
        check(work.GetUserTag() == 0 && work.GetSize() == kN, "the tensor of a TBuf");
        Add(work, t, t, kN);
        PipeBarrier<PIPE_V>();
        DataCopy(sum, work, kN);
        in.FreeBuffer(handle);
        buffer.FreeTensor(work);
        out.EnQue(sum);
        sum = out.DeQue<float>();
        DataCopy(global<float>(y), sum, kN);
        out.FreeTensor(sum);
    });
}

void check_pipes() {
    check_doubling("a TPipe that is destroyed and used again", [](GM_ADDR x, GM_ADDR y) {
        TPipe pipe;
        TBuf<> buffer;
        for (int i = 0; i < 2; ++i) {
            if (i) pipe.Init();
            pipe.InitBuffer(buffer, kN * sizeof(float));
            LocalTensor<float> t = buffer.Get<float>();
            DataCopy(t, i ? global<float>(y) : global<float>(x), kN);
            PipeBarrier<PIPE_ALL>();
            if (i) Add(t, t, t, kN);
            PipeBarrier<PIPE_ALL>();
            DataCopy(global<float>(y), t, kN);
            pipe.Destroy();
        }
    });
    check_doubling("the end of a TPipe waits for its instructions", [](GM_ADDR x, GM_ADDR y) {
        for (int i = 0; i < 3; ++i) {
            TPipe pipe;
            TBuf<> buffer;
            pipe.InitBuffer(buffer, kN * sizeof(float));
            LocalTensor<float> t = buffer.Get<float>();
            TPipe* const same = AscendC::GetTPipePtr();
            check(same == &pipe && ::GetTPipePtr() == &pipe, "GetTPipePtr");
            if (i != 1) DataCopy(t, i ? global<float>(y) : global<float>(x), kN);
            if (i == 1) continue;
            PipeBarrier<PIPE_ALL>();
            if (i) Add(t, t, t, kN);
            PipeBarrier<PIPE_ALL>();
            DataCopy(global<float>(y), t, kN);
        }
    });
}

void check_pools() {
    check_doubling("pools that share memory", [](GM_ADDR x, GM_ADDR y) {
        TPipe pipe;
        TBufPool<TPosition::VECCALC> outer, first;
        TBufPool<TPosition::VECCALC, 2> second;
        TBuf<> head, kept;
        TQue<TPosition::VECIN, 1> in, again;
        TQue<TPosition::VECOUT, 1> out;
        constexpr uint32_t kBytes = kN * sizeof(float);
        pipe.InitBuffer(head, 64);
        pipe.InitBufPool(outer, 3 * kBytes);
        TBufPool<TPosition::VECCALC, 1> inner;
        outer.InitBuffer(kept, kBytes);
        outer.InitBufPool(inner, 2 * kBytes);
        pipe.InitBufPool(first, 2 * kBytes + 1);
        pipe.InitBufPool(second, 2 * kBytes + 32, first);
        first.InitBuffer(in, 2, kBytes);
        LocalTensor<float> a = in.AllocTensor<float>();
        check(uint32_t(a.GetPhyAddr()) == 64 + 3 * kBytes, "the address of a pool's buffer");
        DataCopy(a, global<float>(x), kN);
        in.EnQue(a);
        a = in.DeQue<float>();
        LocalTensor<float> sum = kept.Get<float>();
        check(uint32_t(sum.GetPhyAddr()) == 64, "the address of the outer pool's buffer");
        Add(sum, a, a, kN);
        in.FreeTensor(a);
        first.Reset();
        second.InitBuffer(out, 1, kBytes);
        LocalTensor<float> b = out.AllocTensor<float>();
        check(uint32_t(b.GetPhyAddr()) == 64 + 3 * kBytes, "the address of the other pool's buffer");
        PipeBarrier<PIPE_V>();
        DataCopy(b, sum, kN);
        out.EnQue(b);
        b = out.DeQue<float>();
        DataCopy(global<float>(y), b, kN);
        out.FreeTensor(b);
        second.Reset();
        // The first pool's queue may be used again, and its memory may be divided again.
        a = in.AllocTensor<float>();
        in.FreeTensor(a);
        first.Reset();
        first.InitBuffer(in, 1, 2 * kBytes);
        a = in.AllocTensor<float>();
        check(uint32_t(a.GetPhyAddr()) == 64 + 3 * kBytes && a.GetSize() == 2 * kN, "a pool's memory divided again");
        in.FreeTensor(a);
    });
}

// ---- tensors at addresses ----------------------------------------------------------------------------------

void check_addresses() {
    check_doubling("tensors at addresses", [](GM_ADDR x, GM_ADDR y) {
        InitSocState();
        LocalMemAllocator allocator;
        const auto a = allocator.Alloc<float, kN>();
        const auto odd = allocator.Alloc<TPosition::VECIN, uint8_t, 33>();
        const auto b = allocator.Alloc<TPosition::VECOUT, float>(kN);
        check(uint32_t(a.GetPhyAddr()) == 0 && a.GetSize() == kN, "the first tensor");
        check(uint32_t(odd.GetPhyAddr()) == 4 * kN && odd.GetPosition() == int32_t(TPosition::VECIN),
              "the second tensor");
        check(uint32_t(b.GetPhyAddr()) == 4 * kN + 64 && allocator.GetCurAddr() == 8 * kN + 64, "the third tensor");
        const LocalTensor<float> c(TPosition::VECCALC, 4096, kN);
        WaitPreTaskEnd();  // without effect outside a SuperKernel, like SetNextTaskStart
        DataCopy(a, global<float>(x), kN);
        SetFlag<HardEvent::MTE2_V>(EVENT_ID3);
        WaitFlag<HardEvent::MTE2_V>(EVENT_ID3);
        Add(c, a, a, kN);
        PipeBarrier<PIPE_V>();
        Adds(b, c, 0.0f, kN);
        TQueSync<PIPE_V, PIPE_MTE3> event;
        event.SetFlag(EVENT_ID0);
        event.WaitFlag(EVENT_ID0);
        DataCopy(global<float>(y), b, kN);
        SetNextTaskStart();
        PipeBarrier<PIPE_ALL>();
    });
    check_doubling("a tensor at an address after others were written", [](GM_ADDR x, GM_ADDR y) {
        InitSocState();
        const LocalTensor<float> a(TPosition::VECCALC, 0, kN);
        DataCopy(a, global<float>(x), kN);
        PipeBarrier<PIPE_ALL>();
        const LocalTensor<float> b(TPosition::VECCALC, 4 * kN, kN);
        Add(b, a, a, kN);
        PipeBarrier<PIPE_ALL>();
        DataCopy(global<float>(y), b, kN);
        PipeBarrier<PIPE_ALL>();
    });
}

void check_tensors() {
    check_doubling("tensors' sizes and shapes", [](GM_ADDR x, GM_ADDR y) {
        TPipe pipe;
        TBuf<> buffer;
        pipe.InitBuffer(buffer, 4096);
        LocalTensor<float> t = buffer.Get<float>();
        LocalTensor<half> h;
        h.SetAddrWithOffset(t, 16);
        check(uint32_t(h.GetPhyAddr()) == 64 && h.GetSize() == (4096 - 64) / 2, "SetAddrWithOffset");
        h.SetBufferLen(100);
        check(h.GetSize() == 50 && h.GetLength() == 100, "SetBufferLen");
        const uint32_t shape[] = {4, 32};
        h.SetShapeInfo(ShapeInfo(2, shape, DataFormat::NZ));
        const LocalTensor<half> copy = h[16];
        check(copy.GetShapeInfo().shape[1] == 32 && copy.GetShapeInfo().dataFormat == DataFormat::NZ, "GetShapeInfo");
        GlobalTensor<float> gm = global<float>(x);
        gm.SetShapeInfo(ShapeInfo(2, shape));
        check(gm.GetShapeInfo().shapeDim == 2, "GlobalTensor::GetShapeInfo");
        LocalTensor<uint8_t> rest;
        check(PopStackBuffer<uint8_t, TPosition::LCM>(rest), "PopStackBuffer");
        const uint32_t ub = (ascend_sim::kIs910b ? 192 * 1024 - 64 : ascend_sim::kIs310p ? 256 * 1024 : 248 * 1024);
        check(uint32_t(rest.GetPhyAddr()) == 4096 && rest.GetSize() == ub - 4096, "the rest of UB");
        DataCopy(t, gm, kN);
        PipeBarrier<PIPE_ALL>();
        Add(t, t, t, kN);
        PipeBarrier<PIPE_ALL>();
        DataCopy(global<float>(y), t, kN);
    });
    check_doubling("pointers made of addresses", [](GM_ADDR x, GM_ADDR y) {
        TPipe pipe;
        TBuf<> buffer;
        pipe.InitBuffer(buffer, 4096 + kN * sizeof(float));
        LocalTensor<float> t = buffer.GetWithOffset<float>(kN, 4096);
        DataCopy(t, global<float>(x), kN);
        PipeBarrier<PIPE_ALL>();
        check(t.GetPhyAddr(3) == t.GetPhyAddr() + 12, "GetPhyAddr of an element");
        __ubuf__ float* pointer = (__ubuf__ float*)t.GetPhyAddr();
        for (uint32_t i = 0; i < kN; ++i) pointer[i] += *reinterpret_cast<__ubuf__ float*>(t.GetPhyAddr(i));
        PipeBarrier<PIPE_ALL>();
        DataCopy(global<float>(y), t, kN);
    });
}

// ---- GM ----------------------------------------------------------------------------------------------------

template <class T, class F>
void check_atomic(const std::string& what, F set, T (*combine)(T, T)) {
    auto x = numbers<T>(kN, -100, 100), before = numbers<T>(kN, -120, 120);
    std::rotate(before.begin(), before.begin() + 9, before.end());
    if constexpr (!std::is_integral_v<T>) {
        x[3] = before[4] = T(std::numeric_limits<float>::quiet_NaN());
        x[5] = T(-std::numeric_limits<float>::infinity());
    }
    auto want = before;
    for (uint32_t i = 0; i < kN; ++i) want[i] = combine(before[i], x[i]);
    check_launch<T>(what, x, before, want, [&](GM_ADDR in, GM_ADDR out) {
        TPipe pipe;
        TBuf<> buffer;
        pipe.InitBuffer(buffer, kN * sizeof(T));
        LocalTensor<T> t = buffer.Get<T>();
        DataCopy(t, global<T>(in), kN);
        PipeBarrier<PIPE_ALL>();
        set();
        DataCopy(global<T>(out), t, kN);
        DisableDmaAtomic();
    });
}

#if __CCE_AICORE__ != 200
template <class T>
T larger(T a, T b) {
    if (float(b) != float(b)) return b;
    return float(a) < float(b) ? b : a;
}
template <class T>
T smaller(T a, T b) {
    if (float(b) != float(b)) return b;
    return float(b) < float(a) ? b : a;
}
template <class T>
void check_extremes(const std::string& type) {
    check_atomic<T>("SetAtomicMax " + type, [] { SetAtomicMax<T>(); }, larger<T>);
    check_atomic<T>("SetAtomicMin " + type, [] { SetAtomicMin<T>(); }, smaller<T>);
    check_atomic<T>(
        "SetAtomicType " + type,
        [] {
            SetAtomicMax<std::conditional_t<std::is_same_v<T, half>, float, half>>();
            SetAtomicType<T>();
        },
        larger<T>);
}
#endif

template <class T, class F>
void check_fill(const std::string& what, uint32_t size, T value, F call) {
    std::vector<T> before(size + 70, T(1)), want = before;
    std::fill_n(want.begin(), size, value);
    check_launch<T>(what + " of " + std::to_string(size), before, before, want, [&](GM_ADDR, GM_ADDR y) {
        TPipe pipe;
        GlobalTensor<T> gm = global<T>(y);
        call(gm, size, value);
    });
    check(!std::strstr(ascend_sim_report(), "SIM-"), what + " of " + std::to_string(size) + " gives a warning");
}

template <class T>
void check_fills(const std::string& type, T value) {
    for (uint32_t size : {0u, 1u, 7u, 16u, 1000u, 4080u, 50001u}) {
        check_fill<T>("Fill " + type, size, value, [](auto& gm, uint32_t n, T v) { Fill(gm, n, v); });
        // Two calls with the same value need no event between them.
        check_fill<T>("InitGlobalMemory " + type, size, value, [](auto& gm, uint32_t n, T v) {
            InitGlobalMemory(gm, n / 2, v);
            GlobalTensor<T> rest = gm[n / 2];
            InitGlobalMemory(rest, n - n / 2, v);
        });
#if __CCE_AICORE__ != 200
        check_fill<T>("InitOutput " + type, size, value, [](auto& gm, uint32_t n, T v) { InitOutput<T>(gm, n, v); });
#endif
    }
}

void check_copies_of_fill() {
    check_fill<float>("InitGlobalMemory twice", 1024, 1.0f, [](auto& gm, uint32_t n, float v) {
        InitGlobalMemory(gm, n, v);
        InitGlobalMemory(gm, n, v);
    });
    // A copy has at most 65280 bytes.
    auto copies = [](uint32_t size) {
        check_fill<float>("Fill", size, 1.0f, [](auto& gm, uint32_t n, float v) { Fill(gm, n, v); });
        return reported("instructions_MTE3");
    };
    check(copies(16384) == copies(16320) + 1, "the copies of Fill");
}

}  // namespace

int main() {
    check_paths();
    check_pipes();
    check_pools();
    check_addresses();
    check_tensors();
#if __CCE_AICORE__ != 200
    check_extremes<int8_t>("int8");
    check_extremes<int16_t>("int16");
    check_extremes<half>("half");
    check_extremes<bfloat16_t>("bfloat16");
    check_extremes<int32_t>("int32");
    check_extremes<float>("float");
#endif
    check_atomic<int16_t>(
        "SetAtomicAdd int16", [] { SetAtomicAdd<int16_t>(); }, [](int16_t a, int16_t b) { return int16_t(a + b); });
    check_fills<float>("float", -2.5f);
    check_fills<half>("half", half(-2.5f));
    check_fills<int32_t>("int32", -7);
    check_fills<uint16_t>("uint16", 65535);
    check_copies_of_fill();
    return finish("memory");
}
