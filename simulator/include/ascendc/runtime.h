// Interface of the simulated AI core for the headers of the instructions: memory, order, rules and time. src/
// implements the interface. A kernel uses it only through AscendC's functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ascendc/rules.h"

#define ASCEND_SIM_API __attribute__((visibility("default")))

// A kernel that was compiled for another version of this interface does not load: the library lacks this symbol
// (ascend_sim.h).
extern "C" ASCEND_SIM_API const int32_t ascend_sim_abi_2;

namespace ascend_sim {

__attribute__((used)) static const int32_t* const kRequiredVersion = &ascend_sim_abi_2;

// ---- where in the kernel ----------------------------------------------------------------------

struct Site {
    const char* file;
    int line;
    static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
        return {file, line};
    }
};

constexpr Site kUnknownSite{"kernel", 0};

// The last parameter of AscendC's functions in these headers. Its default is the caller's file and line.
#define ASCEND_SIM_SITE ::ascend_sim::Site site = ::ascend_sim::Site::here()

// ---- pipes and instructions -------------------------------------------------------------------

enum class Pipe : uint8_t { S, V, MTE2, MTE3 };
constexpr int kPipes = 4;

// Bytes of UB, [begin, end). They are wider than UB's addresses, so that sums do not wrap into valid memory.
struct Range {
    int64_t begin, end;
};

// A number of bytes, limited to the largest 32-bit number. No buffer is that large.
inline uint32_t saturated(uint64_t bytes) { return bytes < UINT32_MAX ? uint32_t(bytes) : UINT32_MAX; }

// An address in UB. An address that 32 bits cannot hold becomes a block outside every UB.
inline uint32_t ub_address(int64_t address) {
    constexpr uint32_t kOutsideUb = UINT32_MAX - 31;
    return address < 0 || address > kOutsideUb ? kOutsideUb : uint32_t(address);
}

// A tensor in UB, for the checks.
struct UbView {
    uint32_t addr = 0;  // of its first byte in UB
    uint32_t bytes = 0;
    int32_t buffer = -1;      // the number of its buffer; -1: none
    uint32_t generation = 0;  // of the buffer when the tensor was taken from it; a later use has another one
};

// The memory [begin, end) passed to SetGlobalBuffer; end is 0 if no size was passed.
struct GmView {
    uintptr_t begin = 0, end = 0;
};

// Starts an instruction; all calls up to the next finish_vector(), finish_copy() or finish_scalar() belong to it.
ASCEND_SIM_API void start(Pipe pipe, const char* api, Site site);
// Names the library function to which the next instructions belong, for reports and the timeline; null: none. Returns
// the previous name. A function that a library function calls does not change the name.
ASCEND_SIM_API const char* set_library_function(const char* name);
// The instruction accesses these bytes of the operand. Checks bounds, initialisation and order.
ASCEND_SIM_API void reads(const char* operand, const UbView& view, const Range* ranges, size_t n);
ASCEND_SIM_API void writes(const char* operand, const UbView& view, const Range* ranges, size_t n);
// A kernel takes the address of global memory.
ASCEND_SIM_API void take_gm(uintptr_t address, Site site);
// Like reads() and writes(), for global memory.
ASCEND_SIM_API void reads_gm(const char* operand, uintptr_t address, uint64_t bytes, const GmView& view);
ASCEND_SIM_API void writes_gm(const char* operand, uintptr_t address, uint64_t bytes, const GmView& view);
// A separate instruction: the scalar unit takes a reference to an element of UB. If the element's bytes have changed
// when the next instruction starts, the access counts as a write, else as a read.
ASCEND_SIM_API void scalar_reference(const UbView& view, Range range, Site site);
// As above, for an element of GM; a write goes to the scalar unit's cache.
ASCEND_SIM_API void gm_reference(uintptr_t address, uint64_t bytes, const GmView& view, Site site);
// Marks bytes that the instruction has just written as undefined, such as the filler of a copy or work space.
ASCEND_SIM_API void poison(const Range& range);
// The running copy has copied `bytes` bytes from `gm` to the UB byte `to`. Marks the bytes as undefined that no
// instruction had written in GM.
ASCEND_SIM_API void poison_unwritten(uintptr_t gm, uint64_t bytes, int64_t to);

// Kinds of work; the SoC's profile has the cost of each.
enum class Cost : uint8_t {
    Repeat,
    ThreeReads,
    Division,
    Function,
    Estimate,
    GatherMask,
    WholeReduce,
    BlockReduce,
    GatheredElement,
    SortedElement,
    IndexStore,
    IndexAddition,
    Mask,
    ScalarUb
};
// The cycles of a repeat or an element. element_bytes matters for Division and Function only.
ASCEND_SIM_API double cycles_of(Cost cost, uint32_t element_bytes = 4);
ASCEND_SIM_API double scalar_gm_cycles();  // the cycles of the running scalar access to GM

// The 32-byte blocks that an operand of a vector instruction accesses in UB. Addresses and strides are in bytes.
struct UbLines {
    uint32_t address;
    uint32_t blocks;  // in each repeat
    uint32_t block_stride, repeat_stride;
};
// Adds the cycles in which the running instruction waits for banks of UB to its cost.
ASCEND_SIM_API void access_banks(const UbLines* sources, size_t n, const UbLines& destination, uint32_t repeats,
                                 double cycles_per_repeat);

// Ends the instruction with its cost: vector cycles, the size of a transfer, or scalar cycles. has_tail: the
// instruction is a count form, and its last repeat is not full.
ASCEND_SIM_API void finish_vector(uint32_t repeats, double cycles_per_repeat, bool has_tail = false,
                                  Cost issue = Cost::Repeat);
ASCEND_SIM_API void finish_copy(uint64_t bytes, uint32_t bursts, uintptr_t gm_address);
ASCEND_SIM_API void finish_scalar(double cycles);

ASCEND_SIM_API uint8_t* ub();  // the core's Unified Buffer

// ---- rules ------------------------------------------------------------------------------------

// Reports a broken rule at the running instruction, or between instructions at `site`. Ends the core. If the rule is
// advice or the launch is lenient about it, keeps a warning instead.
ASCEND_SIM_API void broken(Rule rule, const char* format, ...) __attribute__((format(printf, 2, 3)));
ASCEND_SIM_API void broken_at(Rule rule, const char* api, Site site, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
// Like broken_at(), for a core that cannot continue: an error even if the launch is lenient.
[[noreturn]] ASCEND_SIM_API void fatal_at(Rule rule, const char* api, Site site, const char* format, ...)
    __attribute__((format(printf, 4, 5)));

// ---- order ------------------------------------------------------------------------------------

ASCEND_SIM_API void set_flag(Pipe from, Pipe to, int32_t id, const char* api, Site site);
ASCEND_SIM_API void wait_flag(Pipe from, Pipe to, int32_t id, const char* api, Site site);
ASCEND_SIM_API void barrier(int32_t pipe, Site site);  // a Pipe, or kAllPipes
ASCEND_SIM_API void order_pipes(Pipe from, Pipe to);   // later work of `to` waits for earlier work of `from`
constexpr int32_t kAllPipes = -1;
ASCEND_SIM_API int32_t alloc_event(Pipe from, Pipe to, const char* api, Site site);
ASCEND_SIM_API void release_event(Pipe from, Pipe to, int32_t id, const char* api, Site site);
ASCEND_SIM_API int32_t fetch_event(Pipe from, Pipe to, Site site);

// ---- buffers and queues -----------------------------------------------------------------------

ASCEND_SIM_API void pipe_created(void* pipe, Site site);  // of class TPipe
ASCEND_SIM_API void pipe_destroyed(bool waits);           // waits: for the work of all pipes
ASCEND_SIM_API void* current_pipe();                      // null: there is none
ASCEND_SIM_API void pipe_reset(Site site);

// A queue's kind. Its events order the pipe of the producer and the pipe of the consumer.
struct QueueKind {
    const char* name;
    Pipe producer, consumer;
    int32_t depth;
};
// InitBuffer of a queue and of a TBuf, from a TBufPool or, with pool -1, from the TPipe. `former` is the number that
// the object has from an earlier InitBuffer, or -1.
ASCEND_SIM_API int32_t init_queue(const QueueKind& kind, uint32_t buffers, uint64_t bytes, int32_t pool, int32_t former,
                                  Site site);
ASCEND_SIM_API int32_t init_buffer(uint64_t bytes, int32_t pool, int32_t former, Site site);
// Takes a pool of at most `buffers` buffers from the pool `parent`, or at the start of the pool `shared`.
ASCEND_SIM_API int32_t init_pool(uint64_t bytes, uint32_t buffers, int32_t parent, int32_t shared, Site site);
ASCEND_SIM_API void pool_reset(int32_t pool, Site site);
// The UB after the TPipe's buffers; no bytes if nothing is left.
ASCEND_SIM_API UbView rest_of_ub(const char* api, Site site);
ASCEND_SIM_API bool has_tensors();  // the TPipe divided UB by InitBuffer
// Memory at an address, for kernels without a TPipe. Their LocalMemAllocator is created once.
ASCEND_SIM_API UbView static_memory(const char* api, uint32_t address, uint64_t bytes, Site site);
ASCEND_SIM_API void static_allocator_created(Site site);
ASCEND_SIM_API UbView alloc_tensor(int32_t queue, Site site);
ASCEND_SIM_API void enqueue(int32_t queue, const UbView& view, Site site);
ASCEND_SIM_API UbView dequeue(int32_t queue, Site site);
// As above, but the event is between these pipes instead of the pipes of the queue.
ASCEND_SIM_API void enqueue(int32_t queue, const UbView& view, Pipe from, Pipe to, Site site);
ASCEND_SIM_API UbView dequeue(int32_t queue, Pipe from, Pipe to, Site site);
ASCEND_SIM_API void free_tensor(int32_t queue, const UbView& view, Site site);
ASCEND_SIM_API void free_all_events(int32_t queue, Site site);
ASCEND_SIM_API int32_t queued(int32_t queue);        // tensors between EnQue and DeQue
ASCEND_SIM_API int32_t idle_buffers(int32_t queue);  // number of free buffers
ASCEND_SIM_API UbView buffer_view(int32_t buffer, Site site);
// The address of a tensor's element in UB for the scalar unit. Its low 32 bits are the element's offset in UB. The core
// remembers the address until view_at() gets it. At its end, the core warns of the addresses that view_at() did not
// get, because the simulator does not check accesses through them (SIM-BOUNDS-06). The warning says if the element's
// bytes were not written when the kernel took its address.
ASCEND_SIM_API uint64_t physical_address(const UbView& view, uint64_t offset, uint32_t bytes, Site site);
// The newest buffer that contains the byte at the address, from there to the buffer's end. `buffer` is -1 if there is
// none. Only the low 32 bits of the address count.
ASCEND_SIM_API UbView view_at(uint64_t address);
ASCEND_SIM_API void set_user_tag(const UbView& view, int32_t tag);
ASCEND_SIM_API int32_t user_tag(const UbView& view);
// The UB after the TPipe's buffers, for library functions without sharedTmpBuffer. Its contents are undefined.
ASCEND_SIM_API UbView free_memory(const char* api, Site site);

// ---- the core's state -------------------------------------------------------------------------

ASCEND_SIM_API int64_t block_index();
ASCEND_SIM_API int64_t block_count();
// The registers of the last reduction to a maximum or minimum: the bits of the value and of its index.
struct ExtremumRegister {
    uint64_t value, index;
};
ASCEND_SIM_API void set_extremum_register(const ExtremumRegister* value);  // null: no valid result
ASCEND_SIM_API ExtremumRegister extremum_register(const char* api, Site site);
// The register with the number of elements that the last merge took from each of its four lists.
struct MergeRegister {
    uint16_t taken[4];
};
ASCEND_SIM_API void set_merge_register(const MergeRegister* value);  // null: it was a merge without suspension
ASCEND_SIM_API MergeRegister merge_register(const char* api, Site site);
ASCEND_SIM_API void set_sum_register(uint64_t bits);  // call it inside the vector instruction that computes the sum
ASCEND_SIM_API uint64_t sum_register(const char* api, Site site);
ASCEND_SIM_API void set_system_workspace(uint8_t* address);
ASCEND_SIM_API uint8_t* system_workspace();
ASCEND_SIM_API bool saturates();  // whether half clamps to its largest value instead of infinity
ASCEND_SIM_API void set_saturation(bool saturates, const char* api, Site site);
ASCEND_SIM_API void uses_reserved_ub(const char* api);  // for APIs that use the top 8 KiB as scratch

enum class Atomic : uint8_t { None, Add, Max, Min };
ASCEND_SIM_API void set_atomic(Atomic mode, int32_t dtype, Site site);
ASCEND_SIM_API Atomic atomic_mode();
ASCEND_SIM_API int32_t atomic_dtype();

// The vector mask register: in normal mode a bit for each lane; in counter mode `low` is the number of elements.
struct MaskRegister {
    bool counter = false;
    uint64_t low = ~0ull, high = ~0ull;
    const char* left_by = nullptr;  // the instruction that replaced the kernel's mask; null: none
};
ASCEND_SIM_API MaskRegister& mask_register();

// The register of SetDeqScale: the form of the last call, the scale's bits, and the vector form's tensor.
enum class DeqForm : uint8_t { Unset, Half, Tensor, Vector };
struct DeqRegister {
    DeqForm form = DeqForm::Unset;
    uint64_t bits = 0;
    UbView tensor;
};
ASCEND_SIM_API DeqRegister& deq_register();

// The register of SetPadValue: the padding value's bits, and the size of its type; 0 if the value is undefined.
struct PadRegister {
    uint32_t element_bytes = 0;
    uint64_t bits = 0;
};
ASCEND_SIM_API PadRegister& pad_register();

// The register of comparisons, which Select reads: 128 bits.
struct CompareRegister {
    bool is_set = false;
    uint8_t bytes[16] = {};
};
ASCEND_SIM_API CompareRegister& compare_register();

ASCEND_SIM_API void state_initialised();                            // by InitSocState
ASCEND_SIM_API int64_t system_counter(const char* api, Site site);  // reads the counter of the system's clock

// ---- other cores ------------------------------------------------------------------------------

// A signal has a key: the id of a flag, kSyncAllKey for SyncAll, or the address in GM of a form without a scheduler.
constexpr uint64_t kSyncAllKey = 16;

// Raises a signal of this core after the earlier work of a pipe (a Pipe), or of all pipes (kAllPipes).
ASCEND_SIM_API void raise_signal(uint64_t key, int32_t pipe, const char* api, Site site);
// The n-th wait of this core for `key` waits for the n-th signal of each of the cores [first, end).
ASCEND_SIM_API void wait_for_signals(uint64_t key, int64_t first, int64_t end, const char* api, Site site);
// Signals between two cores: the n-th wait of any core waits for the n-th signal of any core.
ASCEND_SIM_API void raise_pair_signal(uint64_t key, Site site);
ASCEND_SIM_API void wait_for_pair_signal(uint64_t key, Site site);
// The cores take turns in ascending order. raise_signal(key) ends a turn.
ASCEND_SIM_API void begin_core_order(uint64_t key);
ASCEND_SIM_API void wait_for_turn(uint64_t key, Site site);
ASCEND_SIM_API void check_core_flag(const char* api, uint32_t id, Site site);
// Notes that the kernel needs a type that starts the scheduler between cores.
ASCEND_SIM_API void needs_scheduler(const char* api, Site site);
ASCEND_SIM_API void set_kernel_type(const char* name, bool is_documented, bool starts_scheduler, Site site);
// The type of one tiling key, which replaces the default.
ASCEND_SIM_API void set_kernel_type_of_key(uint64_t key, const char* name, bool needs_cube_cores, bool is_documented,
                                           bool starts_scheduler, Site site);
// Checks memory in GM that cores poll. The memory must lie inside one tensor of the launch that is not an input. With
// starts_at_zero, its bytes must be 0 before its first use.
ASCEND_SIM_API void check_signal_memory(const char* operand, uintptr_t address, uint64_t bytes, const GmView& view,
                                        bool starts_at_zero);

// ---- caches -----------------------------------------------------------------------------------

ASCEND_SIM_API void clean_cache(uintptr_t address, bool whole, Site site);
ASCEND_SIM_API void write_to_cache(uintptr_t address, uint64_t bytes);  // call it inside a scalar write to GM

// ---- tiling -----------------------------------------------------------------------------------

ASCEND_SIM_API bool tiling_key_is(uint64_t key, ASCEND_SIM_SITE);
ASCEND_SIM_API void register_tiling(uint64_t bytes, Site site);
ASCEND_SIM_API void expect_tiling(uint64_t bytes, Site site);  // bytes: of the whole struct, even if a part is read
// Returns gm if `bytes` bytes of the launch's tiling data lie there, else reports and returns null.
ASCEND_SIM_API const void* tiling_data(const void* gm, uint64_t bytes, Site site);
ASCEND_SIM_API void copy_tiling(void* to, const void* gm, uint64_t bytes, Site site);

}  // namespace ascend_sim
