// TPipe's buffers, and the states of a queue's tensor: Alloc, EnQue, DeQue, Free.
#include <algorithm>
#include <exception>

#include "src/chips.h"
#include "src/core.h"

namespace ascend_sim {
namespace {

constexpr size_t kMaxBuffers = 64;

const char* state_name(BufferState s) {
    constexpr const char* kNames[] = {"free", "allocated", "enqueued", "dequeued"};
    return kNames[int(s)];
}

int32_t add_buffer(int32_t queue, uint64_t bytes, Site site) {
    Machine& m = machine();
    m.settle_reference();
    if (!m.pipe) broken_at(Rule::Buffer04, "InitBuffer", site, "there is no TPipe.");
    if (m.live_buffers >= kMaxBuffers)
        broken_at(Rule::Buffer03, "InitBuffer", site, "a pipe must have at most %zu buffers but got one more.",
                  kMaxBuffers);
    const uint64_t rounded = (bytes + 31) / 32 * 32;
    if (bytes == 0) broken_at(Rule::Buffer01, "InitBuffer", site, "length must be > 0 but got 0.");
    if (m.ub_used + rounded > m.profile->ub_bytes) {
        broken_at(Rule::Buffer02, "InitBuffer", site, "%llu bytes do not fit: %u of UB's %u are taken.",
                  static_cast<unsigned long long>(bytes), m.ub_used, m.profile->ub_bytes);
        return -1;
    }
    Buffer b;
    b.addr = m.ub_used;
    b.bytes = uint32_t(rounded);
    b.queue = queue;
    b.valid_from = m.next_number;
    b.allocated_at = site;
    m.ub_used += uint32_t(rounded);
    m.ub_peak = std::max(m.ub_peak, m.ub_used);
    m.live_buffers++;
    std::fill_n(m.ub.get() + b.addr, b.bytes, uint8_t(0xFF));  // NaN in every floating type
    m.buffers.push_back(b);
    return int32_t(m.buffers.size()) - 1;
}

UbView view_of(int32_t index) {
    const Buffer& b = machine().buffers[index];
    return {b.addr, b.bytes, index, b.generation};
}

Queue& require_queue(int32_t queue, const char* api, Site site) {
    Machine& m = machine();
    if (!has_buffers(queue)) stuck_at(Rule::Buffer01, api, site, "the queue has no buffers: InitBuffer missing.");
    return m.queues[queue];
}

// The buffer of a tensor, which must belong to the queue.
Buffer* own_buffer(int32_t queue, const UbView& view, const char* api, Site site) {
    Machine& m = machine();
    Buffer* buffer = view.buffer < 0 ? nullptr : &m.buffers[view.buffer];
    if (buffer && buffer->queue == queue) return buffer;
    const char* owner = !buffer ? "no buffer's" : buffer->queue < 0 ? "a TBuf's" : "another queue's";
    const std::string place = buffer && buffer->queue >= 0 ? ", allocated at " + where(buffer->allocated_at) : "";
    broken_at(Rule::Queue05, api, site, "the tensor is not one of this queue's: it is %s%s.", owner, place.c_str());
    return nullptr;
}

void wait_until_freed(Buffer& b, const QueueKind& kind, const char* api, Site site) {
    if (b.freed_event < 0) return;
    wait_flag(kind.consumer, kind.producer, b.freed_event, api, site);
    release_event(kind.consumer, kind.producer, b.freed_event, api, site);
    b.freed_event = -1;
}

// Frees all buffers, so that the next InitBuffer begins with an empty UB.
void release_all(Machine& m, const char* api, const Site* site) {
    m.settle_reference();
    for (Buffer& b : m.buffers) {
        if (b.released) continue;
        if (b.queue >= 0) wait_until_freed(b, m.queues[b.queue].kind, api, site ? *site : b.allocated_at);
        b.released = true;
        b.generation++;
    }
    for (Queue& q : m.queues) {
        q.buffers.clear();
        q.enqueued.clear();
    }
    m.ub_used = 0;
    m.live_buffers = 0;
}

}  // namespace

void pipe_created(void* pipe, Site site) {
    Machine& m = machine();
    if (m.pipe) broken_at(Rule::Buffer04, "TPipe", site, "another TPipe exists.");
    m.pipe = pipe;
    state_initialised();
}

void pipe_destroyed() {
    Machine& m = machine();
    m.pipe = nullptr;
    if (!std::uncaught_exceptions()) release_all(m, "~TPipe", nullptr);
}

void* current_pipe() { return machine().pipe; }

void pipe_reset(Site site) {
    Machine& m = machine();
    for (const Buffer& b : m.buffers)
        if (!b.released && b.queue >= 0 && b.state != BufferState::Free)
            broken_at(Rule::Queue04, "Reset", site, "a tensor allocated at %s was not freed.",
                      where(b.allocated_at).c_str());
    release_all(m, "Reset", &site);
}

int32_t init_queue(const QueueKind& kind, uint32_t buffers, uint64_t bytes, Site site) {
    Machine& m = machine();
    if (buffers < 1 || buffers > kMaxBuffers)
        broken_at(Rule::Buffer01, "InitBuffer", site, "the number of buffers must be 1 .. 64 but got %u.", buffers);
    m.queues.push_back({kind, {}, {}, 0});
    const int32_t queue = int32_t(m.queues.size()) - 1;
    for (uint32_t i = 0; i < buffers; ++i) {
        const int32_t b = add_buffer(queue, bytes, site);
        if (b >= 0) m.queues[queue].buffers.push_back(b);
    }
    return queue;
}

int32_t init_buffer(uint64_t bytes, Site site) {
    const int32_t b = add_buffer(-1, bytes, site);
    if (b >= 0) machine().buffers[b].state = BufferState::Occupied;
    return b;
}

bool has_buffers(int32_t queue) {
    const Machine& m = machine();
    return queue >= 0 && queue < int32_t(m.queues.size()) && !m.queues[queue].buffers.empty();
}
bool has_memory(int32_t buffer) {
    const Machine& m = machine();
    return buffer >= 0 && buffer < int32_t(m.buffers.size()) && !m.buffers[buffer].released;
}

UbView alloc_tensor(int32_t queue, Site site) {
    Machine& m = machine();
    Queue& q = require_queue(queue, "AllocTensor", site);
    for (size_t tried = 0; tried < q.buffers.size(); ++tried) {
        const int32_t index = q.buffers[q.next++ % q.buffers.size()];
        Buffer& b = m.buffers[index];
        if (b.state != BufferState::Free) continue;
        wait_until_freed(b, q.kind, "AllocTensor", site);
        b.state = BufferState::Occupied;
        b.valid_from = m.next_number;
        b.allocated_at = site;
        return view_of(index);
    }
    stuck_at(Rule::Queue03, "AllocTensor", site,
             "all %zu buffers are taken, one since %s: FreeTensor missing, the core would wait for ever.",
             q.buffers.size(), q.buffers.empty() ? "?" : where(m.buffers[q.buffers[0]].allocated_at).c_str());
}

void enqueue(int32_t queue, const UbView& view, Site site) {
    Queue& q = require_queue(queue, "EnQue", site);
    Buffer* b = own_buffer(queue, view, "EnQue", site);
    if (!b) return;
    if (view.generation != b->generation || b->state == BufferState::Free || b->state == BufferState::Enqueued)
        broken_at(Rule::Queue01, "EnQue", site, "the tensor must be allocated or dequeued but is %s.",
                  view.generation != b->generation ? "freed" : state_name(b->state));
    if (const int32_t depth = std::max(q.kind.depth, 1); int32_t(q.enqueued.size()) >= depth)
        broken_at(Rule::Queue02, "EnQue", site, "the queue of depth %d is full: DeQue missing.", depth);
    b->filled_event = alloc_event(q.kind.producer, q.kind.consumer, "EnQue", site);
    set_flag(q.kind.producer, q.kind.consumer, b->filled_event, "EnQue", site);
    b->state = BufferState::Enqueued;
    q.enqueued.push_back(view.buffer);
}

UbView dequeue(int32_t queue, Site site) {
    Machine& m = machine();
    Queue& q = require_queue(queue, "DeQue", site);
    if (q.enqueued.empty()) stuck_at(Rule::Queue01, "DeQue", site, "the queue is empty: EnQue missing.");
    const int32_t index = q.enqueued.front();
    q.enqueued.erase(q.enqueued.begin());
    Buffer& b = m.buffers[index];
    wait_flag(q.kind.producer, q.kind.consumer, b.filled_event, "DeQue", site);
    release_event(q.kind.producer, q.kind.consumer, b.filled_event, "DeQue", site);
    b.filled_event = -1;
    b.state = BufferState::Dequeued;
    return view_of(index);
}

void free_tensor(int32_t queue, const UbView& view, Site site) {
    Queue& q = require_queue(queue, "FreeTensor", site);
    Buffer* b = own_buffer(queue, view, "FreeTensor", site);
    if (!b) return;
    if (b->state == BufferState::Free || view.generation != b->generation) {
        broken_at(Rule::Queue01, "FreeTensor", site, "the tensor was freed already.");
        return;
    }
    if (b->state == BufferState::Enqueued)
        broken_at(Rule::Queue01, "FreeTensor", site, "the tensor is still in the queue: DeQue missing.");
    b->freed_event = alloc_event(q.kind.consumer, q.kind.producer, "FreeTensor", site);
    set_flag(q.kind.consumer, q.kind.producer, b->freed_event, "FreeTensor", site);
    b->state = BufferState::Free;
    b->generation++;
}

void free_all_events(int32_t queue, Site site) {
    Queue& q = require_queue(queue, "FreeAllEvent", site);
    for (int32_t index : q.buffers) wait_until_freed(machine().buffers[index], q.kind, "FreeAllEvent", site);
}

int32_t queued(int32_t queue) { return queue < 0 ? 0 : int32_t(machine().queues[queue].enqueued.size()); }

int32_t idle_buffers(int32_t queue) {
    if (queue < 0) return 0;
    Machine& m = machine();
    int32_t n = 0;
    for (int32_t index : m.queues[queue].buffers) n += m.buffers[index].state == BufferState::Free;
    return n;
}

UbView free_memory(const char* api, Site site) {
    Machine& m = machine();
    m.settle_reference();
    if (!m.pipe) stuck_at(Rule::Buffer04, api, site, "there is no TPipe.");
    // On Ascend910B the last 256 bytes are for messages (GetCoreMemSize).
    const uint32_t end = m.profile->ub_bytes - (m.profile->arch == kArch910b ? 256 : 0);
    if (m.ub_used >= end)
        stuck_at(Rule::Work01, api, site, "its temporary memory is above the TPipe's buffers, but they fill UB.");
    if (m.free_memory < 0 || m.buffers[m.free_memory].addr != m.ub_used) {
        m.free_memory = int32_t(m.buffers.size());
        m.buffers.push_back({});
    }
    Buffer& b = m.buffers[m.free_memory];
    b.addr = m.ub_used;
    b.bytes = end - m.ub_used;
    b.state = BufferState::Occupied;
    b.released = false;
    b.valid_from = m.next_number;
    return view_of(m.free_memory);
}

UbView buffer_view(int32_t buffer, Site site) {
    if (!has_memory(buffer)) stuck_at(Rule::Buffer01, "Get", site, "the TBuf has no memory: InitBuffer missing.");
    return view_of(buffer);
}

}  // namespace ascend_sim
