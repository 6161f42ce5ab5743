// TPipe, TQue, TQueBind, TBuf: the allocation of UB, and the events that queues set and wait for.
#pragma once

#include "ascendc/sync.h"
#include "ascendc/tensor.h"

namespace AscendC {

template <TPosition src, TPosition dst, int32_t depth, auto mask = 0>
class TQueBind {
    static constexpr bool kIn = src == TPosition::GM && dst == TPosition::VECIN;
    static constexpr bool kOut = src == TPosition::VECOUT && dst == TPosition::GM;
    static constexpr bool kThrough = src == TPosition::VECIN && dst == TPosition::VECOUT;
    static_assert(kIn || kOut || kThrough,
                  "the simulator has the queues GM-VECIN, VECOUT-GM and VECIN-VECOUT; VECCALC memory is a TBuf");

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
    bool HasTensorInQue() const { return ascend_sim::queued(queue_) > 0; }
    bool VacantInQue() const { return ascend_sim::queued(queue_) < depth; }
    bool HasIdleBuffer() const { return ascend_sim::idle_buffers(queue_) > 0; }
    int32_t GetTensorCountInQue() const { return ascend_sim::queued(queue_); }
    void FreeAllEvent(ASCEND_SIM_SITE) { ascend_sim::free_all_events(queue_, site); }

private:
    friend class TPipe;
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
constexpr TPosition source_of(TPosition p) { return p == TPosition::VECIN ? TPosition::GM : p; }
constexpr TPosition target_of(TPosition p) { return p == TPosition::VECIN ? p : TPosition::GM; }
}  // namespace sim_detail

template <TPosition pos, int32_t depth, auto mask = 0>
class TQue : public TQueBind<sim_detail::source_of(pos), sim_detail::target_of(pos), depth, mask> {};

template <TPosition pos = TPosition::VECCALC>
class TBuf {
    static_assert(pos == TPosition::VECIN || pos == TPosition::VECOUT || pos == TPosition::VECCALC,
                  "a TBuf of a vector core is VECIN, VECOUT or VECCALC");

public:
    template <class T>
    LocalTensor<T> Get(ASCEND_SIM_SITE) {
        return LocalTensor<T>(ascend_sim::buffer_view(buffer_, site), pos);
    }
    template <class T>
    LocalTensor<T> Get(uint32_t elements, ASCEND_SIM_SITE) {
        LocalTensor<T> t = Get<T>(site);
        t.SetSize(elements);
        return t;
    }
    template <class T>
    LocalTensor<T> GetWithOffset(uint32_t elements, uint32_t offset_bytes, ASCEND_SIM_SITE) {
        ascend_sim::UbView v = ascend_sim::buffer_view(buffer_, site);
        v.addr = ascend_sim::ub_address(int64_t(v.addr) + offset_bytes);
        v.bytes = ascend_sim::saturated(ascend_sim::bytes_of<T>(elements));
        return LocalTensor<T>(v, pos);
    }

private:
    friend class TPipe;
    int32_t buffer_ = -1;
};

class TPipe {
public:
    explicit TPipe(ASCEND_SIM_SITE) { ascend_sim::pipe_created(this, site); }
    ~TPipe() noexcept(false) { Destroy(); }
    TPipe(const TPipe&) = delete;
    TPipe& operator=(const TPipe&) = delete;

    template <TPosition src, TPosition dst, int32_t depth, auto mask>
    bool InitBuffer(TQueBind<src, dst, depth, mask>& queue, uint8_t num, uint32_t len, ASCEND_SIM_SITE) {
        if (ascend_sim::has_buffers(queue.queue_))
            ascend_sim::broken_at(ascend_sim::Rule::Buffer01, "InitBuffer", site, "called twice.");
        queue.queue_ = ascend_sim::init_queue(queue.kind(), num, len, site);
        return true;
    }
    template <TPosition pos>
    bool InitBuffer(TBuf<pos>& buffer, uint32_t len, ASCEND_SIM_SITE) {
        if (ascend_sim::has_memory(buffer.buffer_))
            ascend_sim::broken_at(ascend_sim::Rule::Buffer01, "InitBuffer", site, "called twice.");
        buffer.buffer_ = ascend_sim::init_buffer(len, site);
        return true;
    }
    void Reset(ASCEND_SIM_SITE) { ascend_sim::pipe_reset(site); }
    void Destroy() {
        if (ascend_sim::current_pipe() == this) ascend_sim::pipe_destroyed();
    }

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
};

}  // namespace AscendC

// In the global namespace, as CANN has it.
inline AscendC::TPipe* GetTPipePtr(ASCEND_SIM_SITE) {
    if (!ascend_sim::current_pipe())
        ascend_sim::stuck_at(ascend_sim::Rule::Buffer04, "GetTPipePtr", site, "there is no TPipe.");
    return static_cast<AscendC::TPipe*>(ascend_sim::current_pipe());
}
