// What the instruction headers ask of the simulated AI core: memory, order, rules and time.
// simulator/src implements it; a kernel sees nothing of this but through the AscendC names.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ascendc/rules.h"

#define NPU_SIM_API __attribute__((visibility("default")))

namespace npu_sim {

// ---- where in the kernel ----------------------------------------------------------------------

struct Site {
    const char* file;
    int line;
    static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
        return {file, line};
    }
};

// The last parameter of every AscendC call here: the caller's file and line, filled in by itself.
#define NPU_SIM_SITE ::npu_sim::Site site = ::npu_sim::Site::here()

// ---- pipes and instructions -------------------------------------------------------------------

enum class Pipe : uint8_t { S, V, MTE2, MTE3 };
constexpr int kPipes = 4;

// Bytes of UB, [begin, end); wider than UB's addresses, so that no sum wraps into memory that is there.
struct Range {
    int64_t begin, end;
};

// A number of bytes as far as 32 bits hold it: no buffer is as long as the largest.
inline uint32_t saturated(uint64_t bytes) { return bytes < UINT32_MAX ? uint32_t(bytes) : UINT32_MAX; }

// An address in UB; what 32 bits do not hold is a block that no UB has.
inline uint32_t ub_address(int64_t address) {
    constexpr uint32_t kNowhere = UINT32_MAX - 31;
    return address < 0 || address > kNowhere ? kNowhere : uint32_t(address);
}

// A tensor in UB as the checks see it.
struct UbView {
    uint32_t addr = 0;   // of its first byte in UB
    uint32_t bytes = 0;  // up to its end
    int32_t buffer = -1;
    uint32_t generation = 0;  // of the buffer when the tensor was taken from it
};

// What SetGlobalBuffer was given, [begin, end); end 0: it was given no size.
struct GmView {
    uintptr_t begin = 0, end = 0;
};

// Starts an instruction; everything up to finish() belongs to it.
NPU_SIM_API void start(Pipe pipe, const char* api, Site site);
// The instruction touches these bytes of the operand: bounds, poison and order are checked.
NPU_SIM_API void reads(const char* operand, const UbView& view, const Range* ranges, size_t n);
NPU_SIM_API void writes(const char* operand, const UbView& view, const Range* ranges, size_t n);
// The same for global memory.
NPU_SIM_API void reads_gm(const char* operand, uintptr_t address, uint64_t bytes, const GmView& view);
NPU_SIM_API void writes_gm(const char* operand, uintptr_t address, uint64_t bytes, const GmView& view);
// An instruction of its own: the scalar unit takes a reference to an element of UB. If its bytes differ when
// the next instruction starts it was written, else read.
NPU_SIM_API void scalar_reference(const UbView& view, Range range, Site site);
// The same of an element of GM, which is written into the scalar unit's cache.
NPU_SIM_API void gm_reference(uintptr_t address, uint64_t bytes, const GmView& view, Site site);
// These bytes, just written, hold nothing a kernel may rely on (a copy's filler).
NPU_SIM_API void poison(const Range& range);

// What the SoC's profile says that a part of an instruction costs.
enum class Cost : uint8_t {
    Repeat,
    ThreeReads,
    Division,
    Function,
    GatherMask,
    WholeReduce,
    BlockReduce,
    GatheredElement,
    IndexStore,
    IndexAddition,
    Mask,
    ScalarUb,
    ScalarGm
};
NPU_SIM_API double cycles_of(Cost cost);

// Ends it with its price: vector cycles, or a transfer's size.
NPU_SIM_API void finish_vector(uint32_t repeats, double cycles_per_repeat, bool sets_mask = false);
NPU_SIM_API void finish_copy(uint64_t bytes, uint32_t bursts, uintptr_t gm_address);
NPU_SIM_API void finish_scalar(double cycles);

NPU_SIM_API uint8_t* ub();  // the core's Unified Buffer

// ---- rules ------------------------------------------------------------------------------------

// Reports a broken rule at the running instruction (or at site, between instructions): ends the
// core, or is kept as a warning where the launch is lenient about the rule.
NPU_SIM_API void broken(Rule rule, const char* format, ...) __attribute__((format(printf, 2, 3)));
NPU_SIM_API void broken_at(Rule rule, const char* api, Site site, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
// The same where the core cannot go on: an error also where the launch is lenient.
[[noreturn]] NPU_SIM_API void stuck_at(Rule rule, const char* api, Site site, const char* format, ...)
    __attribute__((format(printf, 4, 5)));

// ---- order ------------------------------------------------------------------------------------

NPU_SIM_API void set_flag(Pipe from, Pipe to, int32_t id, const char* api, Site site);
NPU_SIM_API void wait_flag(Pipe from, Pipe to, int32_t id, const char* api, Site site);
NPU_SIM_API void barrier(int32_t pipe, Site site);  // a Pipe, or kAllPipes
constexpr int32_t kAllPipes = -1;
NPU_SIM_API int32_t alloc_event(Pipe from, Pipe to, const char* api, Site site);
NPU_SIM_API void release_event(Pipe from, Pipe to, int32_t id, const char* api, Site site);
NPU_SIM_API int32_t fetch_event(Pipe from, Pipe to, Site site);

// ---- buffers and queues -----------------------------------------------------------------------

NPU_SIM_API void pipe_created(Site site);
NPU_SIM_API void pipe_destroyed();
NPU_SIM_API bool pipe_alive();
NPU_SIM_API void pipe_reset(Site site);

// A queue's kind: which pipes its events join. fill: who waits for the filled buffer.
struct QueueKind {
    const char* name;
    Pipe producer, consumer;
    int32_t depth;
};
NPU_SIM_API int32_t init_queue(const QueueKind& kind, uint32_t buffers, uint64_t bytes, Site site);
NPU_SIM_API int32_t init_buffer(const char* position, uint64_t bytes, Site site);  // a TBuf
NPU_SIM_API bool has_buffers(int32_t queue);  // InitBuffer was called, and no TPipe::Reset since
NPU_SIM_API bool has_memory(int32_t buffer);
NPU_SIM_API UbView alloc_tensor(int32_t queue, Site site);
NPU_SIM_API void enqueue(int32_t queue, const UbView& view, Site site);
NPU_SIM_API UbView dequeue(int32_t queue, Site site);
NPU_SIM_API void free_tensor(int32_t queue, const UbView& view, Site site);
NPU_SIM_API void free_all_events(int32_t queue, Site site);
NPU_SIM_API int32_t queued(int32_t queue);        // tensors between EnQue and DeQue
NPU_SIM_API int32_t idle_buffers(int32_t queue);  // free ones
NPU_SIM_API UbView buffer_view(int32_t buffer, Site site);

// ---- the core's state -------------------------------------------------------------------------

NPU_SIM_API int64_t block_index();
NPU_SIM_API int64_t block_count();
NPU_SIM_API void set_sum_register(uint64_t bits);  // inside the vector instruction that leaves its sum there
NPU_SIM_API uint64_t sum_register(const char* api, Site site);
NPU_SIM_API void set_system_workspace(uint8_t* address);
NPU_SIM_API uint8_t* system_workspace();
NPU_SIM_API bool saturates();                        // half overflow: clamp instead of infinity
NPU_SIM_API void uses_reserved_ub(const char* api);  // an API whose scratch is the top 8 KiB

enum class Atomic : uint8_t { None, Add };
NPU_SIM_API void set_atomic(Atomic mode, int32_t dtype, Site site);
NPU_SIM_API Atomic atomic_mode();
NPU_SIM_API int32_t atomic_dtype();

// The vector mask register: {low, high} lanes, or in counter mode a number of elements.
struct MaskRegister {
    bool counter = false;
    uint64_t low = ~0ull, high = ~0ull;
    const char* left_by = nullptr;  // the instruction that put a mask of its own there since the kernel did
};
NPU_SIM_API MaskRegister& mask_register();

NPU_SIM_API void clean_cache(uintptr_t address, bool whole, Site site);
NPU_SIM_API void write_through_cache(uintptr_t address, uint64_t bytes);  // inside a scalar GM write

// ---- tiling -----------------------------------------------------------------------------------

NPU_SIM_API bool tiling_key_is(uint64_t key, NPU_SIM_SITE);
NPU_SIM_API void register_tiling(uint64_t bytes, Site site);
NPU_SIM_API void expect_tiling(uint64_t bytes, Site site);  // the whole struct, whatever is read of it
// gm, where so many bytes of the launch's tiling data lie there; else null.
NPU_SIM_API const void* tiling_data(const void* gm, uint64_t bytes, Site site);
NPU_SIM_API void copy_tiling(void* to, const void* gm, uint64_t bytes, Site site);

}  // namespace npu_sim
