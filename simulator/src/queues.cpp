// TPipe's buffers, and the states of a queue's tensor: Alloc, EnQue, DeQue, Free.
#include <algorithm>
#include <exception>

#include "src/chips.h"
#include "src/core.h"

namespace ascend_sim {
namespace {

constexpr size_t kMaxBuffers = 64;
constexpr int32_t kPoolOfPipe = -1;  // in place of a pool's number

const char* state_name(BufferState s) {
    constexpr const char* kNames[] = {"free", "allocated", "enqueued", "dequeued"};
    return kNames[int(s)];
}

// Rounds up to whole 32-byte blocks.
uint64_t whole_blocks(uint64_t bytes) { return (bytes + 31) / 32 * 32; }

// Takes whole blocks from the pool, or from UB. Returns false if they do not fit.
bool take_memory(int32_t pool, uint64_t bytes, uint32_t* address, Site site) {
    Machine& m = machine();
    const uint32_t used = pool < 0 ? m.ub_used : m.pools[pool].used;
    const uint32_t all = pool < 0 ? m.profile->ub_bytes : m.pools[pool].bytes;
    if (used + whole_blocks(bytes) > all) {
        broken_at(Rule::Buffer02, "InitBuffer", site, "%llu bytes do not fit: %u of %s %u are taken.",
                  static_cast<unsigned long long>(bytes), used, pool < 0 ? "UB's" : "the pool's", all);
        return false;
    }
    *address = used + (pool < 0 ? 0 : m.pools[pool].addr);
    (pool < 0 ? m.ub_used : m.pools[pool].used) += uint32_t(whole_blocks(bytes));
    return true;
}

// Whether one pool lies in the other.
bool is_ancestor(int32_t ancestor, int32_t pool) {
    for (; pool >= 0; pool = machine().pools[pool].parent)
        if (pool == ancestor) return true;
    return false;
}

// Another pool with the same memory must have been reset before this one is used.
void use_pool(int32_t pool, const char* api, Site site) {
    Machine& m = machine();
    Pool& p = m.pools[pool];
    for (int32_t i = 0; i < int32_t(m.pools.size()); ++i) {
        const Pool& other = m.pools[i];
        if (!other.has_work || is_ancestor(i, pool) || is_ancestor(pool, i)) continue;
        if (other.addr < p.addr + p.bytes && p.addr < other.addr + other.bytes)
            broken_at(Rule::Buffer06, api, site,
                      "a pool with the same memory has buffers since %s: its Reset is missing.",
                      where(other.used_at).c_str());
    }
    p.has_work = true;
    p.used_at = site;
}

void require_pool(int32_t pool, const char* api, Site site) {
    if (pool != kPoolOfPipe && (pool < 0 || machine().pools[pool].released))
        fatal_at(Rule::Buffer01, api, site, "the pool has no memory: InitBufPool missing.");
}

Buffer& push_buffer(int32_t queue, uint32_t address, uint64_t bytes, Site site) {
    Machine& m = machine();
    Buffer b;
    b.addr = address;
    b.bytes = uint32_t(bytes);
    b.queue = queue;
    b.valid_from = m.next_number;
    b.allocated_at = site;
    std::fill_n(m.ub.get() + b.addr, b.bytes, uint8_t(0xFF));  // NaN in every floating type
    m.buffers.push_back(b);
    return m.buffers.back();
}

int32_t add_buffer(int32_t queue, uint64_t bytes, int32_t pool, Site site) {
    Machine& m = machine();
    m.settle_reference();
    if (!m.pipe) broken_at(Rule::Buffer04, "InitBuffer", site, "there is no TPipe.");
    require_pool(pool, "InitBuffer", site);
    if (pool >= 0) {
        use_pool(pool, "InitBuffer", site);
        Pool& p = m.pools[pool];
        if (++p.buffers > p.most_buffers)
            broken_at(Rule::Buffer03, "InitBuffer", site, "the pool must have at most %u buffers but got one more.",
                      p.most_buffers);
    } else if (m.live_buffers++ >= kMaxBuffers)
        broken_at(Rule::Buffer03, "InitBuffer", site, "a pipe must have at most %zu buffers but got one more.",
                  kMaxBuffers);
    if (bytes == 0) broken_at(Rule::Buffer01, "InitBuffer", site, "length must be > 0 but got 0.");
    uint32_t address = 0;
    if (!take_memory(pool, bytes, &address, site)) return -1;
    push_buffer(queue, address, whole_blocks(bytes), site).pool = pool;
    return int32_t(m.buffers.size()) - 1;
}

UbView view_of(int32_t index) {
    const Buffer& b = machine().buffers[index];
    return {b.addr, b.bytes, index, b.generation};
}

bool has_buffers(int32_t queue) {
    const Machine& m = machine();
    return queue >= 0 && queue < int32_t(m.queues.size()) && !m.queues[queue].buffers.empty();
}
bool has_memory(int32_t buffer) {
    const Machine& m = machine();
    return buffer >= 0 && buffer < int32_t(m.buffers.size()) && !m.buffers[buffer].released;
}

Queue& require_queue(int32_t queue, const char* api, Site site) {
    Machine& m = machine();
    if (!has_buffers(queue)) fatal_at(Rule::Buffer01, api, site, "the queue has no buffers: InitBuffer missing.");
    return m.queues[queue];
}

// The buffer of a tensor, which must belong to the queue.
Buffer* own_buffer(int32_t queue, const UbView& view, const char* api, Site site) {
    Machine& m = machine();
    Buffer* buffer = view.buffer < 0 ? nullptr : &m.buffers[view.buffer];
    if (buffer && buffer->queue == queue) return buffer;
    const char* owner = !buffer ? "no buffer" : buffer->queue < 0 ? "a TBuf" : "another queue";
    const std::string place = buffer && buffer->queue >= 0 ? ", allocated at " + where(buffer->allocated_at) : "";
    broken_at(Rule::Queue05, api, site, "the tensor must belong to this queue but belongs to %s%s.", owner,
              place.c_str());
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
    for (Pool& p : m.pools) p.released = true;
    m.ub_used = 0;
    m.live_buffers = 0;
}

}  // namespace

void pipe_created(void* pipe, Site site) {
    Machine& m = machine();
    if (m.pipe) broken_at(Rule::Buffer04, "TPipe", site, "another TPipe exists.");
    if (m.static_buffer >= 0)
        broken_at(Rule::Buffer08, "TPipe", site, "the kernel has tensors at addresses, so it must have no TPipe.");
    m.pipe = pipe;
    m.pipe_was_created = true;
    m.pipe_created_at = site;
    state_initialised();
}

void pipe_destroyed(bool waits) {
    Machine& m = machine();
    m.pipe = nullptr;
    if (std::uncaught_exceptions()) return;
    release_all(m, "~TPipe", nullptr);
    m.barrier_is_due = waits;
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

int32_t init_queue(const QueueKind& kind, uint32_t buffers, uint64_t bytes, int32_t pool, int32_t former, Site site) {
    Machine& m = machine();
    if (has_buffers(former) && !m.buffers[m.queues[former].buffers[0]].was_reset)
        broken_at(Rule::Buffer01, "InitBuffer", site, "called twice.");
    if (buffers < 1 || buffers > kMaxBuffers)
        broken_at(Rule::Buffer01, "InitBuffer", site, "the number of buffers must be 1 .. 64 but got %u.", buffers);
    m.queues.push_back({kind, {}, {}, 0});
    const int32_t queue = int32_t(m.queues.size()) - 1;
    for (uint32_t i = 0; i < buffers; ++i) {
        const int32_t b = add_buffer(queue, bytes, pool, site);
        if (b >= 0) m.queues[queue].buffers.push_back(b);
    }
    return queue;
}

int32_t init_buffer(uint64_t bytes, int32_t pool, int32_t former, Site site) {
    if (has_memory(former) && !machine().buffers[former].was_reset)
        broken_at(Rule::Buffer01, "InitBuffer", site, "called twice.");
    const int32_t b = add_buffer(-1, bytes, pool, site);
    if (b >= 0) machine().buffers[b].state = BufferState::Occupied;
    return b;
}

int32_t init_pool(uint64_t bytes, uint32_t buffers, int32_t parent, int32_t shared, Site site) {
    Machine& m = machine();
    constexpr const char* kApi = "InitBufPool";
    if (!m.pipe) broken_at(Rule::Buffer04, kApi, site, "there is no TPipe.");
    Pool p;
    p.bytes = uint32_t(whole_blocks(bytes));
    p.most_buffers = buffers;
    p.parent = parent;
    require_pool(parent, kApi, site);
    require_pool(shared, kApi, site);
    if (shared >= 0) {
        const Pool& other = m.pools[shared];
        if (whole_blocks(bytes) > other.bytes)
            broken_at(Rule::Buffer02, kApi, site, "%llu bytes do not fit the %u of the pool whose memory it shares.",
                      static_cast<unsigned long long>(bytes), other.bytes);
        p.addr = other.addr;
        p.bytes = other.bytes;
    } else {
        if (parent >= 0 && (m.pools[parent].buffers += buffers) > m.pools[parent].most_buffers)
            broken_at(Rule::Buffer03, kApi, site, "the outer pool has fewer than the %u buffers of this one.", buffers);
        if (parent < 0 && (m.live_buffers += buffers) > kMaxBuffers)
            broken_at(Rule::Buffer03, kApi, site, "a pipe must have at most %zu buffers.", kMaxBuffers);
        if (!take_memory(parent, p.bytes, &p.addr, site)) p.bytes = 0;
    }
    m.pools.push_back(p);
    return int32_t(m.pools.size()) - 1;
}

// Ends the work of the pool's buffers: their contents are lost, and InitBuffer may divide its memory again.
void pool_reset(int32_t pool, Site site) {
    Machine& m = machine();
    require_pool(pool, "Reset", site);
    m.settle_reference();
    for (Buffer& b : m.buffers) {
        if (b.pool < 0 || !is_ancestor(pool, b.pool)) continue;
        if (b.queue >= 0 && b.state != BufferState::Free)
            broken_at(Rule::Queue04, "Reset", site, "a tensor allocated at %s was not freed.",
                      where(b.allocated_at).c_str());
        if (b.queue >= 0) wait_until_freed(b, m.queues[b.queue].kind, "Reset", site);
        b.valid_from = m.next_number;
        b.was_reset = true;
    }
    for (int32_t i = 0; i < int32_t(m.pools.size()); ++i)
        if (is_ancestor(pool, i)) m.pools[i].has_work = false;
    m.pools[pool].used = m.pools[pool].buffers = 0;
}

UbView rest_of_ub(const char* api, Site site) {
    Machine& m = machine();
    m.settle_reference();
    if (!m.pipe) broken_at(Rule::Buffer04, api, site, "there is no TPipe.");
    // The last 64 bytes of Ascend910B's UB hold messages.
    const uint32_t end = m.profile->ub_bytes - (m.profile->arch == kArch910b ? 64 : 0);
    if (m.ub_used >= end) return {};
    const bool is_same = has_memory(m.rest_buffer) && m.buffers[m.rest_buffer].addr == m.ub_used;
    if (!is_same) {
        push_buffer(-1, m.ub_used, end - m.ub_used, site).state = BufferState::Occupied;
        m.rest_buffer = int32_t(m.buffers.size()) - 1;
    }
    return view_of(m.rest_buffer);
}

bool has_tensors() { return machine().ub_used > 0; }

UbView static_memory(const char* api, uint32_t address, uint64_t bytes, Site site) {
    Machine& m = machine();
    m.settle_reference();
    if (m.pipe_was_created)
        broken_at(Rule::Buffer08, api, site, "the kernel has a TPipe, so it must have no tensors at addresses.");
    if (!m.is_initialised)
        broken_at(Rule::State03, api, site,
                  "InitSocState is missing before it: the kernel must call InitSocState first.");
    if (address % 32)
        broken_at(Rule::Align01, api, site, "the tensor starts at UB byte %u, which is no multiple of 32.", address);
    if (address + bytes > m.profile->ub_bytes)
        broken_at(Rule::Bounds02, api, site, "the tensor covers UB bytes [%u, %llu) but UB has %u.", address,
                  static_cast<unsigned long long>(address + bytes), m.profile->ub_bytes);
    if (m.static_buffer < 0) {
        push_buffer(-1, 0, m.profile->ub_bytes, site).state = BufferState::Occupied;
        m.static_buffer = int32_t(m.buffers.size()) - 1;
        m.buffers.back().valid_from = m.core_first;
    }
    UbView view = view_of(m.static_buffer);
    view.addr = address;
    view.bytes = saturated(bytes);
    auto& tensors = m.ub_places.static_tensors;
    const std::pair<uint32_t, uint32_t> tensor{view.addr, view.bytes};
    if (m.is_traced() && std::find(tensors.begin(), tensors.end(), tensor) == tensors.end()) tensors.push_back(tensor);
    return view;
}
void static_allocator_created(Site site) {
    Machine& m = machine();
    if (m.has_allocator) broken_at(Rule::Buffer08, "LocalMemAllocator", site, "another LocalMemAllocator exists.");
    m.has_allocator = true;
}

void Machine::check_static_end() const {
    if (static_buffer < 0 || ends_with_barrier || records.empty()) return;
    const Record& last = records.back();
    broken_at(Rule::State05, last.api, last.site,
              "PipeBarrier<PIPE_ALL> is missing after it: the kernel must end with this barrier.");
}

UbView alloc_tensor(int32_t queue, Site site) {
    Machine& m = machine();
    Queue& q = require_queue(queue, "AllocTensor", site);
    for (size_t tried = 0; tried < q.buffers.size(); ++tried) {
        const int32_t index = q.buffers[q.next++ % q.buffers.size()];
        Buffer& b = m.buffers[index];
        if (b.state != BufferState::Free) continue;
        if (b.pool >= 0) use_pool(b.pool, "AllocTensor", site);
        wait_until_freed(b, q.kind, "AllocTensor", site);
        b.state = BufferState::Occupied;
        b.valid_from = m.next_number;
        b.allocated_at = site;
        return view_of(index);
    }
    fatal_at(Rule::Queue03, "AllocTensor", site,
             "all %zu buffers are taken, one since %s: FreeTensor missing, the core would wait for ever.",
             q.buffers.size(), q.buffers.empty() ? "?" : where(m.buffers[q.buffers[0]].allocated_at).c_str());
}

void enqueue(int32_t queue, const UbView& view, Pipe from, Pipe to, Site site) {
    Queue& q = require_queue(queue, "EnQue", site);
    Buffer* b = own_buffer(queue, view, "EnQue", site);
    if (!b) return;
    if (view.generation != b->generation || b->state == BufferState::Free || b->state == BufferState::Enqueued)
        broken_at(Rule::Queue01, "EnQue", site, "the tensor must be allocated or dequeued but is %s.",
                  view.generation != b->generation ? "freed" : state_name(b->state));
    if (const int32_t depth = std::max(q.kind.depth, 1); int32_t(q.enqueued.size()) >= depth)
        broken_at(Rule::Queue02, "EnQue", site, "the queue of depth %d is full: DeQue missing.", depth);
    b->filled_by = from;
    b->filled_for = to;
    b->filled_event = alloc_event(from, to, "EnQue", site);
    set_flag(from, to, b->filled_event, "EnQue", site);
    b->state = BufferState::Enqueued;
    q.enqueued.push_back(view.buffer);
}
void enqueue(int32_t queue, const UbView& view, Site site) {
    const QueueKind& kind = require_queue(queue, "EnQue", site).kind;
    enqueue(queue, view, kind.producer, kind.consumer, site);
}

UbView dequeue(int32_t queue, Pipe from, Pipe to, Site site) {
    Machine& m = machine();
    Queue& q = require_queue(queue, "DeQue", site);
    if (q.enqueued.empty()) fatal_at(Rule::Queue01, "DeQue", site, "the queue is empty: EnQue missing.");
    const int32_t index = q.enqueued.front();
    q.enqueued.erase(q.enqueued.begin());
    Buffer& b = m.buffers[index];
    if (b.filled_by != from || b.filled_for != to)
        broken_at(Rule::Queue01, "DeQue", site, "it waits for a %s_%s event but EnQue set a %s_%s event.",
                  pipe_name(from), pipe_name(to), pipe_name(b.filled_by), pipe_name(b.filled_for));
    wait_flag(b.filled_by, b.filled_for, b.filled_event, "DeQue", site);
    release_event(b.filled_by, b.filled_for, b.filled_event, "DeQue", site);
    b.filled_event = -1;
    b.state = BufferState::Dequeued;
    return view_of(index);
}
UbView dequeue(int32_t queue, Site site) {
    const QueueKind& kind = require_queue(queue, "DeQue", site).kind;
    return dequeue(queue, kind.producer, kind.consumer, site);
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
    if (!m.pipe) fatal_at(Rule::Buffer04, api, site, "there is no TPipe.");
    // On Ascend910B the last 256 bytes are for messages (GetCoreMemSize).
    const uint32_t end = m.profile->ub_bytes - (m.profile->arch == kArch910b ? 256 : 0);
    if (m.ub_used >= end)
        fatal_at(Rule::Work01, api, site, "its temporary memory is above the TPipe's buffers, but they fill UB.");
    if (m.memory_above_buffers < 0 || m.buffers[m.memory_above_buffers].addr != m.ub_used) {
        m.memory_above_buffers = int32_t(m.buffers.size());
        m.buffers.push_back({});
    }
    Buffer& b = m.buffers[m.memory_above_buffers];
    b.addr = m.ub_used;
    b.bytes = end - m.ub_used;
    b.state = BufferState::Occupied;
    b.released = false;
    b.valid_from = m.next_number;
    return view_of(m.memory_above_buffers);
}

UbView buffer_view(int32_t buffer, Site site) {
    if (!has_memory(buffer)) fatal_at(Rule::Buffer01, "Get", site, "the TBuf has no memory: InitBuffer missing.");
    return view_of(buffer);
}

uint64_t physical_address(const UbView& view, uint64_t offset, uint32_t bytes, Site site) {
    Machine& m = machine();
    const Range element{int64_t(uint32_t(offset)), int64_t(uint32_t(offset)) + bytes};
    const bool is_in_buffer = view.buffer >= 0 && element.end <= int64_t(m.profile->ub_bytes);
    m.unchecked_addresses.try_emplace(
        uint32_t(offset), Machine::UncheckedAddress{site, is_in_buffer && m.is_written(element, view.buffer)});
    return uintptr_t(m.ub.get()) + uint32_t(offset);
}

UbView view_at(uint64_t address) {
    Machine& m = machine();
    const uint32_t offset = uint32_t(address);
    for (auto b = m.buffers.rbegin(); b != m.buffers.rend(); ++b)
        if (!b->released && offset >= b->addr && offset < uint64_t(b->addr) + b->bytes) {
            auto& unchecked = m.unchecked_addresses;
            unchecked.erase(unchecked.lower_bound(b->addr), unchecked.lower_bound(b->addr + b->bytes));
            return {offset, b->addr + b->bytes - offset, int32_t(&*b - m.buffers.data()), b->generation};
        }
    return {offset, 0, -1, 0};
}
void set_user_tag(const UbView& view, int32_t tag) {
    if (view.buffer >= 0) machine().buffers[view.buffer].user_tag = tag;
}
int32_t user_tag(const UbView& view) { return view.buffer < 0 ? 0 : machine().buffers[view.buffer].user_tag; }

}  // namespace ascend_sim
