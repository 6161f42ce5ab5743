// TPipe, TQue, TQueBind, TBuf, TBufPool: the allocation of UB, and the events that queues set and wait for.
//
// A TBuf has no queue. As in CANN's class, its AllocTensor is Get, and FreeTensor does nothing; EnQue and DeQue are
// errors. A TBufPool divides a part of UB; another pool may share its memory.
// Source: the pages of 基础API/资源管理.
#pragma once

#include "ascendc/sync.h"
#include "ascendc/tensor.h"

namespace AscendC {

// A buffer of a queue, for the forms without a type.
using TBufHandle = uint8_t*;
using TBuffAddr = ascend_sim::UbView;

// Settings of a queue, for its template argument `mask`. Settings for other memory than UB have no effect.
struct TQueConfig {
    bool nd2nz = false, nz2nd = false, scmBlockGroup = false;
    uint32_t bufferLen = 0, bufferNumber = 0, consumerSize = 0;
    TPosition consumer[8] = {};
    bool enableStaticEvtId = false, enableLoopQueue = false;
};

namespace sim_detail {

struct Allocation;

// The pipes of the event that EnQue and DeQue use for a data path.
struct PathPipes {
    ascend_sim::Pipe from, to;
};
template <TPosition src, TPosition dst>
constexpr PathPipes path_pipes() {
    using ascend_sim::Pipe;
    constexpr auto kIsVector = [](TPosition position) {
        return position == TPosition::VECIN || position == TPosition::VECOUT || position == TPosition::VECCALC;
    };
    constexpr bool kIn = src == TPosition::GM && kIsVector(dst), kOut = kIsVector(src) && dst == TPosition::GM;
    constexpr bool kThrough = src == TPosition::VECIN && dst == TPosition::VECOUT;
    static_assert(kIn || kOut || kThrough, "a data path of a vector core is GM-VECIN, VECOUT-GM or VECIN-VECOUT");
    return {kOut ? Pipe::V : Pipe::MTE2, kIn ? Pipe::V : Pipe::MTE3};
}

// A handle is the buffer's number plus 1, so that no handle is null.
inline TBufHandle handle_of(const ascend_sim::UbView& view) {
    return reinterpret_cast<TBufHandle>(uintptr_t(view.buffer) + 1);
}
inline ascend_sim::UbView view_of(TBufHandle handle, ascend_sim::Site site) {
    return ascend_sim::buffer_view(int32_t(uintptr_t(handle)) - 1, site);
}

}  // namespace sim_detail

template <TPosition src, TPosition dst, int32_t depth, auto mask = 0>
class TQueBind {
    static constexpr bool kIn = src == TPosition::GM && dst == TPosition::VECIN;
    static constexpr bool kOut = src == TPosition::VECOUT && dst == TPosition::GM;
    static constexpr bool kThrough = src == TPosition::VECIN && dst == TPosition::VECOUT;
    static_assert(kIn || kOut || kThrough,
                  "the simulator has vector cores only, with the queues GM-VECIN, VECOUT-GM and VECIN-VECOUT; VECCALC "
                  "memory is a TBuf");

public:
    template <class T>
    LocalTensor<T> AllocTensor(ASCEND_SIM_SITE) {
        return LocalTensor<T>(ascend_sim::alloc_tensor(queue_, site), kPosition);
    }
    template <class T>
    void AllocTensor(LocalTensor<T>& tensor, ASCEND_SIM_SITE) {
        static_assert(depth == 0, "AllocTensor(tensor) needs a queue of depth 0");
        tensor = LocalTensor<T>(ascend_sim::alloc_tensor(queue_, site), kPosition);
    }
    template <class T>
    bool EnQue(const LocalTensor<T>& tensor, ASCEND_SIM_SITE) {
        ascend_sim::enqueue(queue_, tensor.view(), site);
        return true;
    }
    bool EnQue(TBufHandle buffer, ASCEND_SIM_SITE) {
        ascend_sim::enqueue(queue_, sim_detail::view_of(buffer, site), site);
        return true;
    }
    // The event joins the pipes of this path instead of the queue's.
    template <TPosition from, TPosition to, class T>
    bool EnQue(const LocalTensor<T>& tensor, ASCEND_SIM_SITE) {
        constexpr sim_detail::PathPipes kPipes = sim_detail::path_pipes<from, to>();
        ascend_sim::enqueue(queue_, tensor.view(), kPipes.from, kPipes.to, site);
        return true;
    }
    template <TPosition from, TPosition to, class T>
    LocalTensor<T> DeQue(ASCEND_SIM_SITE) {
        constexpr sim_detail::PathPipes kPipes = sim_detail::path_pipes<from, to>();
        return LocalTensor<T>(ascend_sim::dequeue(queue_, kPipes.from, kPipes.to, site),
                              to == TPosition::GM ? from : to);
    }
    TBufHandle DeQue(ASCEND_SIM_SITE) { return sim_detail::handle_of(ascend_sim::dequeue(queue_, site)); }
    template <class T>
    LocalTensor<T> DeQue(ASCEND_SIM_SITE) {
        return LocalTensor<T>(ascend_sim::dequeue(queue_, site), kPosition);
    }
    template <class T>
    void DeQue(LocalTensor<T>& tensor, ASCEND_SIM_SITE) {
        static_assert(depth == 0, "DeQue(tensor) needs a queue of depth 0");
        tensor = LocalTensor<T>(ascend_sim::dequeue(queue_, site), kPosition);
    }
    template <class T>
    void FreeTensor(LocalTensor<T>& tensor, ASCEND_SIM_SITE) {
        ascend_sim::free_tensor(queue_, tensor.view(), site);
    }
    template <class T>
    void FreeTensor(const LocalTensor<T>& tensor, ASCEND_SIM_SITE) {
        ascend_sim::free_tensor(queue_, tensor.view(), site);
    }
    void FreeBuffer(TBufHandle buffer, ASCEND_SIM_SITE) {
        ascend_sim::free_tensor(queue_, sim_detail::view_of(buffer, site), site);
    }
    bool HasTensorInQue() const { return ascend_sim::queued(queue_) > 0; }
    bool VacantInQue() const { return ascend_sim::queued(queue_) < depth; }
    bool HasIdleBuffer() const { return ascend_sim::idle_buffers(queue_) > 0; }
    int32_t GetTensorCountInQue() const { return ascend_sim::queued(queue_); }
    void FreeAllEvent(ASCEND_SIM_SITE) { ascend_sim::free_all_events(queue_, site); }

private:
    friend struct sim_detail::Allocation;
    static constexpr TPosition kPosition = kOut ? TPosition::VECOUT : TPosition::VECIN;
    static constexpr ascend_sim::QueueKind kind() {
        using ascend_sim::Pipe;
        if constexpr (kIn) return {"VECIN", Pipe::MTE2, Pipe::V, depth};
        if constexpr (kOut) return {"VECOUT", Pipe::V, Pipe::MTE3, depth};
        return {"VECIN-VECOUT", Pipe::MTE2, Pipe::MTE3, depth};
    }
    int32_t queue_ = -1;
};

namespace sim_detail {
// The ends of the data path of a TQue.
constexpr TPosition source_of(TPosition position) { return position == TPosition::VECIN ? TPosition::GM : position; }
constexpr TPosition target_of(TPosition position) { return position == TPosition::VECIN ? position : TPosition::GM; }
}  // namespace sim_detail

template <TPosition pos, int32_t depth, auto mask = 0>
class TQue : public TQueBind<sim_detail::source_of(pos), sim_detail::target_of(pos), depth, mask> {};

template <TPosition pos = TPosition::VECCALC>
class TBuf {
    static_assert(pos == TPosition::VECIN || pos == TPosition::VECOUT || pos == TPosition::VECCALC,
                  "the simulator has vector cores only, whose TBuf is VECIN, VECOUT or VECCALC");

public:
    template <class T>
    LocalTensor<T> Get(ASCEND_SIM_SITE) {
        return LocalTensor<T>(ascend_sim::buffer_view(buffer_, site), pos);
    }
    template <class T>
    LocalTensor<T> Get(uint32_t elements, ASCEND_SIM_SITE) {
        LocalTensor<T> tensor = Get<T>(site);
        tensor.SetSize(elements);
        return tensor;
    }
    template <class T>
    LocalTensor<T> GetWithOffset(uint32_t elements, uint32_t offset_bytes, ASCEND_SIM_SITE) {
        ascend_sim::UbView view = ascend_sim::buffer_view(buffer_, site);
        view.addr = ascend_sim::ub_address(int64_t(view.addr) + offset_bytes);
        view.bytes = ascend_sim::saturated(ascend_sim::bytes_of<T>(elements));
        return LocalTensor<T>(view, pos);
    }
    template <class T>
    LocalTensor<T> AllocTensor(ASCEND_SIM_SITE) {
        return Get<T>(site);
    }
    template <class T>
    void FreeTensor(const LocalTensor<T>&) {}
    template <class T>
    bool EnQue(const LocalTensor<T>&, ASCEND_SIM_SITE) {
        ascend_sim::broken_at(ascend_sim::Rule::Queue01, "EnQue", site, "a TBuf has no queue.");
        return false;
    }
    template <class T>
    LocalTensor<T> DeQue(ASCEND_SIM_SITE) {
        ascend_sim::broken_at(ascend_sim::Rule::Queue01, "DeQue", site, "a TBuf has no queue.");
        return Get<T>(site);
    }

private:
    friend struct sim_detail::Allocation;
    int32_t buffer_ = -1;
};

class TPipe;
template <TPosition pos, uint32_t bufIDSize>
class TBufPool;

namespace sim_detail {

constexpr int32_t kPoolOfPipe = -1, kNoPool = -2;  // values in place of a pool's number

// InitBuffer and InitBufPool of TPipe (`parent` is kPoolOfPipe) and of TBufPool.
struct Allocation {
    template <TPosition src, TPosition dst, int32_t depth, auto mask>
    static bool init(TQueBind<src, dst, depth, mask>& queue, uint8_t num, uint32_t len, int32_t parent,
                     ascend_sim::Site site) {
        queue.queue_ = ascend_sim::init_queue(queue.kind(), num, len, parent, queue.queue_, site);
        return true;
    }
    template <TPosition pos>
    static bool init(TBuf<pos>& buffer, uint32_t len, int32_t parent, ascend_sim::Site site) {
        buffer.buffer_ = ascend_sim::init_buffer(len, parent, buffer.buffer_, site);
        return true;
    }
    template <TPosition pos, uint32_t max_buffers>
    static bool init(TBufPool<pos, max_buffers>& pool, uint32_t len, int32_t parent, ascend_sim::Site site) {
        pool.pool_ = ascend_sim::init_pool(len, max_buffers, parent, kPoolOfPipe, site);
        return true;
    }
    template <TPosition pos, uint32_t max_buffers, TPosition shared_pos, uint32_t shared_max_buffers>
    static bool init(TBufPool<pos, max_buffers>& pool, uint32_t len, TBufPool<shared_pos, shared_max_buffers>& shared,
                     int32_t parent, ascend_sim::Site site) {
        pool.pool_ = ascend_sim::init_pool(len, max_buffers, parent, shared.pool_, site);
        return true;
    }
};

}  // namespace sim_detail

template <TPosition pos, uint32_t bufIDSize = 4>
class TBufPool {
    static_assert(pos == TPosition::VECIN || pos == TPosition::VECOUT || pos == TPosition::VECCALC,
                  "a TBufPool of a vector core is VECIN, VECOUT or VECCALC");
    static_assert(bufIDSize <= 16, "a TBufPool has at most 16 buffers");

public:
    template <class Queue>
    bool InitBuffer(Queue& queue, uint8_t num, uint32_t len, ASCEND_SIM_SITE) {
        return sim_detail::Allocation::init(queue, num, len, pool_, site);
    }
    template <TPosition buffer_pos>
    bool InitBuffer(TBuf<buffer_pos>& buffer, uint32_t len, ASCEND_SIM_SITE) {
        return sim_detail::Allocation::init(buffer, len, pool_, site);
    }
    template <class Pool>
    bool InitBufPool(Pool& pool, uint32_t len, ASCEND_SIM_SITE) {
        return sim_detail::Allocation::init(pool, len, pool_, site);
    }
    template <class Pool, class Shared>
    bool InitBufPool(Pool& pool, uint32_t len, Shared& shared, ASCEND_SIM_SITE) {
        return sim_detail::Allocation::init(pool, len, shared, pool_, site);
    }
    void Reset(ASCEND_SIM_SITE) { ascend_sim::pool_reset(pool_, site); }

private:
    friend struct sim_detail::Allocation;
    int32_t pool_ = sim_detail::kNoPool;
};

class TPipe {
public:
    explicit TPipe(ASCEND_SIM_SITE) { Init(site); }
    ~TPipe() noexcept(false) { end(true); }
    // A copy is a second TPipe. An assignment changes nothing, because all objects have the same state.
    TPipe(const TPipe&, ASCEND_SIM_SITE) { Init(site); }
    TPipe& operator=(const TPipe&) { return *this; }

    void Init(ASCEND_SIM_SITE) { ascend_sim::pipe_created(this, site); }
    template <TPosition src, TPosition dst, int32_t depth, auto mask>
    bool InitBuffer(TQueBind<src, dst, depth, mask>& queue, uint8_t num, uint32_t len, ASCEND_SIM_SITE) {
        return sim_detail::Allocation::init(queue, num, len, sim_detail::kPoolOfPipe, site);
    }
    template <TPosition pos>
    bool InitBuffer(TBuf<pos>& buffer, uint32_t len, ASCEND_SIM_SITE) {
        return sim_detail::Allocation::init(buffer, len, sim_detail::kPoolOfPipe, site);
    }
    template <class Pool>
    bool InitBufPool(Pool& pool, uint32_t len, ASCEND_SIM_SITE) {
        return sim_detail::Allocation::init(pool, len, sim_detail::kPoolOfPipe, site);
    }
    template <class Pool, class Shared>
    bool InitBufPool(Pool& pool, uint32_t len, Shared& shared, ASCEND_SIM_SITE) {
        return sim_detail::Allocation::init(pool, len, shared, sim_detail::kPoolOfPipe, site);
    }
    void Reset(ASCEND_SIM_SITE) { ascend_sim::pipe_reset(site); }
    // Ends the TPipe before its scope does, after all instructions.
    void Destroy() { end(true); }
    void DestroyWithoutPipeAll() { end(false); }

    template <HardEvent event>
    TEventID AllocEventID(ASCEND_SIM_SITE) {
        return TEventID(ascend_sim::alloc_event(source_pipe(event), target_pipe(event), "AllocEventID", site));
    }
    template <HardEvent event>
    void ReleaseEventID(TEventID id, ASCEND_SIM_SITE) {
        ascend_sim::release_event(source_pipe(event), target_pipe(event), id, "ReleaseEventID", site);
    }
    template <HardEvent event>
    TEventID FetchEventID(ASCEND_SIM_SITE) {
        return FetchEventID(event, site);
    }
    TEventID FetchEventID(HardEvent event, ASCEND_SIM_SITE) {
        return TEventID(ascend_sim::fetch_event(source_pipe(event), target_pipe(event), site));
    }

private:
    void end(bool waits) {
        if (ascend_sim::current_pipe() == this) ascend_sim::pipe_destroyed(waits);
    }
};

}  // namespace AscendC

// In the global namespace, as CANN has it.
inline AscendC::TPipe* GetTPipePtr(ASCEND_SIM_SITE) {
    if (!ascend_sim::current_pipe())
        ascend_sim::fatal_at(ascend_sim::Rule::Buffer04, "GetTPipePtr", site, "there is no TPipe.");
    return static_cast<AscendC::TPipe*>(ascend_sim::current_pipe());
}

namespace AscendC {
using ::GetTPipePtr;
}
