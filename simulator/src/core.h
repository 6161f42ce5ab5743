// The state of one pass over a launch's cores, and of the running core. A pass runs one core at a time on one thread,
// up to the core's end or to a wait for other cores. Passes on different threads share no state.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "include/ascendc/runtime.h"
#include "src/bookings.h"
#include "src/profile.h"
#include "src/shadow.h"
#include "src/ub_contents.h"

namespace ascend_sim {

// ---- reports ----------------------------------------------------------------------------------

struct Report {
    Rule rule;
    std::string text;  // the complete error message
    std::string file;
    int32_t line = 0;
    int64_t core = -1;
};

// Exception that ends the core after a rule violation.
struct Stop {};

const char* rule_id(Rule rule);
Report report_of(Rule rule, const char* api, Site site, int64_t core, const char* message);
bool is_lenient(const std::set<std::string>& lenient, Rule rule);
bool is_rule(const std::string& id);

// ---- order: vector clocks over the four pipes -----------------------------------------------------

struct Clock {
    std::array<uint32_t, kPipes> complete{};  // per pipe: number of instructions known to be complete
    void join(const Clock& other) {
        for (int p = 0; p < kPipes; ++p)
            if (other.complete[p] > complete[p]) complete[p] = other.complete[p];
    }
};

// ---- time ------------------------------------------------------------------------------------------

enum class StepKind : uint8_t { Issue, Work, Transfer, Memory, Latency, Event, Barrier, Cores };

// An interval of one pipe's time, and the step that had to end before it.
struct Step {
    Pipe pipe;
    StepKind kind;
    const char* api;
    Site site;
    double begin, end;
    int32_t after;  // the step whose end is this one's begin; -1: the core's start
};

struct Flag {
    bool set = false, allocated = false, fetched = false;
    Clock clock;
    Moment raised;
    Site set_at{"", 0}, allocated_at{"", 0};
};

constexpr int kEvents = 8, kKernelEvents = 6;  // the compiler uses 6 and 7

// Sources of the event ids between two pipes.
struct EventKind {
    bool assigned = false;       // by a queue, AllocEventID or FetchEventID
    Site chosen_at{nullptr, 0};  // a SetFlag whose id the kernel chose itself
};

// ---- one instruction's record --------------------------------------------------------------------

struct Record {
    Pipe pipe;
    uint32_t seq;  // within its pipe
    const char* api;
    Site site;
    bool is_atomic = false;  // a copy while an atomic mode is on
};

// Rows of a core in the trace, after those of its pipes.
enum class Row : uint8_t { Critical = kPipes, ReadLatency, WriteLatency };
constexpr int kRows = kPipes + 3;

// One entry of a trace.
struct Span {
    int32_t core;
    uint8_t row;
    const char* api;
    Site site;
    double begin, end;
    uint64_t bytes;
    uint32_t repeats;
};

// ---- buffers and queues ------------------------------------------------------------------------

enum class BufferState : uint8_t { Free, Occupied, Enqueued, Dequeued };

struct Buffer {
    uint32_t addr = 0, bytes = 0;
    int32_t queue = -1;  // -1: a TBuf
    BufferState state = BufferState::Free;
    bool released = false;    // its TPipe was reset or destroyed
    uint32_t generation = 0;  // counts how often the buffer was freed; a tensor with an older number was freed
    int32_t pool = -1;
    int32_t user_tag = 0;
    bool was_reset = false;     // by its pool, so that InitBuffer may follow
    uint32_t valid_from = 0;    // bytes written by earlier instructions count as uninitialised
    int32_t filled_event = -1;  // set by EnQue, waited for by DeQue
    Pipe filled_by = Pipe::MTE2, filled_for = Pipe::V;
    int32_t freed_event = -1;  // set by FreeTensor, waited for by AllocTensor
    Site allocated_at{"", 0};
};

// A part of UB that a TBufPool manages.
struct Pool {
    uint32_t addr = 0, bytes = 0, used = 0;
    uint32_t most_buffers = 0, buffers = 0;
    int32_t parent = -1;
    bool has_work = false;  // buffers since its last Reset
    bool released = false;  // its TPipe was reset or destroyed
    Site used_at{"", 0};
};

// The last copy from GM to a place in UB by one line of the kernel.
struct CopyPlace {
    Site site;
    int64_t begin, end;
    int64_t longest_end;  // the largest end of the line's copies to this place
    uint32_t number;      // of the last copy
};

struct Queue {
    QueueKind kind;
    std::vector<int32_t> buffers;
    std::vector<int32_t> enqueued;  // oldest first
    size_t next = 0;
};

// ---- global memory -------------------------------------------------------------------------------

enum class Role : int32_t { In, Out, InOut, Workspace, Tiling };

constexpr uint64_t kPageBytes = 4096, kLineBytes = 64;
constexpr uint64_t kGuardBytes = 4096;  // around each tensor of GM

// A call that the kernel makes.
struct Call {
    const char* api = nullptr;
    Site site{nullptr, 0};
};

struct GmTensor {
    std::string name;
    uintptr_t base = 0;
    uint64_t bytes = 0;
    Role role = Role::In;
    bool must_be_filled = false;                             // every byte must be written
    Call taken_by;                                           // the first SetGlobalBuffer with an address in it
    using Pages = std::vector<std::unique_ptr<uint32_t[]>>;  // an instruction's number for each byte of each page
    Pages writer, copy_reader, scalar_reader;
};

// An instruction that accessed GM that cores may share, kept for the whole launch.
struct GmAccess {
    uint32_t number;
    int64_t core;
    Record record;
};

// A write over bytes that another core wrote. If the instruction does not change them, the cores wrote the same values.
struct WriteOfTwoCores {
    const char* operand;
    const GmTensor* tensor;
    uint64_t begin, end;
    std::string words;
    std::vector<uint8_t> before;
};

// The access of the instruction `number`, which must have been noted; nullptr for 0. Numbers ascend in `all`.
const GmAccess* find_access(const std::vector<GmAccess>& all, uint32_t number);

// ---- signals between cores -----------------------------------------------------------------------

// A core's state when it raised a signal. A core that has waited for the signal knows that this work is complete.
struct CoreSignal {
    Clock complete;             // this core's instructions
    std::vector<Clock> others;  // other cores' instructions that this core knows to be complete, by core
    double raised = 0;
    Site site{nullptr, 0};
};

// Signals by a key (a flag, or an address in GM) and by the core that raises them, in order; and each core's waits.
class CoreSignals {
public:
    std::vector<CoreSignal>& raised(uint64_t key, int64_t core) { return raised_[{key, core}]; }
    size_t& waits(uint64_t key, int64_t core) { return waits_[{key, core}]; }

private:
    std::map<std::pair<uint64_t, int64_t>, std::vector<CoreSignal>> raised_;
    std::map<std::pair<uint64_t, int64_t>, size_t> waits_;
};

// A core's wait for others. missing() returns a core whose signal is missing, or -1 when the wait is over.
struct CoreWait {
    std::function<int64_t()> missing;
    const char* api;
    Site site;
};

// ---- totals --------------------------------------------------------------------------------------

struct ApiTotal {
    const char* api;
    Pipe pipe;
    uint64_t count = 0, repeats = 0, bytes = 0;
    double cycles = 0;
};

struct Totals {
    std::vector<ApiTotal> apis;
    uint64_t instructions[kPipes] = {}, vector_repeats = 0;
    uint64_t bytes_read = 0, bytes_written = 0;
    double busy[kPipes] = {};
    double end = 0;
};

// A struct that the kernel registered for its tiling data.
struct RegisteredTiling {
    uint64_t bytes;
    Site site;
};

// The data that a pass overwrites, to find out whether a result depends on them.
struct Spoiling {
    bool leftovers = false;      // overwrite the leftovers of copies with kSpoiled
    int fill = -1;               // overwrites undefined bytes that a vector instruction reads; negative: none
    Site only_site{nullptr, 0};  // if it has a file: overwrite only bytes that the instruction there reads
};
constexpr int kSpoiled = 0xFF;  // NaN in half, bfloat16 and float; -1 in integers

struct LaunchOptions {
    bool auto_sync = false, saturate = false;
    bool keeps_steps = false;  // for the critical path
    Spoiling spoiling;
    int64_t traced_cores = 0;  // keep the spans of cores below this index
    std::set<std::string> lenient;
};

// A read of a leftover: data of an earlier, longer copy that a later, shorter copy of the same line did not
// overwrite.
struct LeftoverRead {
    const char* api = nullptr;  // null: none
    Site site{nullptr, 0}, copy{nullptr, 0};
    int64_t core = 0;
};

// The first read of an instruction from UB bytes that are undefined.
struct UndefinedRead {
    const char* api;
    Site site;
    int64_t core;
    std::string text;
};

// The state that lasts for a whole pass over the cores.
struct LaunchState {
    const Profile* profile = nullptr;
    LaunchOptions options;
    int64_t blocks = 1;
    uint64_t tiling_key = 0;
    bool key_matched = false;
    Site last_key_check{nullptr, 0};  // TILING_KEY_IS
    std::vector<GmTensor> gm;
    size_t last_gm = 0;
    std::vector<GmAccess> gm_accesses;                    // ascending
    std::unordered_map<uint64_t, uint32_t> scalar_lines;  // 64-byte line -> its last scalar write
    std::unordered_set<uint64_t> unclean_lines;           // 64-byte lines with scalar writes that are still in a cache
    CoreSignals signals;
    std::set<uint64_t> signal_memory;              // addresses of memory that cores poll
    std::set<uint64_t> core_order_keys;            // keys of begin_core_order()
    std::function<void(const CoreWait&)> pause;    // of the running core; throws Stop if the wait cannot end
    std::vector<WriteOfTwoCores> doubtful_writes;  // of the running instruction
    std::vector<Report> errors, warnings;
    std::vector<Span> spans;
    std::vector<UbContents> ub_contents;  // of the traced cores
    std::vector<Totals> per_core;
    std::vector<Step> critical_path;  // of the slowest core so far, from its start to its end
    int64_t critical_core = -1;
    LeftoverRead leftover_read;  // the first one
    std::vector<UndefinedRead> undefined_reads;
};

// The state of one core, which is new for each core of a launch.
struct CoreState {
    int64_t core = 0;
    std::vector<RegisteredTiling> registered_tilings;
    bool tiling_read = false;
    Clock clock[kPipes];
    uint32_t issued[kPipes] = {};
    Flag flags[kPipes][kPipes][kEvents];
    EventKind event_kinds[kPipes][kPipes];
    void* pipe = nullptr;  // its TPipe
    std::vector<Buffer> buffers;
    std::vector<Queue> queues;
    std::vector<Pool> pools;
    int32_t static_buffer = -1;  // all of UB, if the kernel has tensors at addresses
    int32_t rest_buffer = -1;    // the rest of UB after the TPipe's buffers
    bool has_allocator = false, pipe_was_created = false;
    Site pipe_created_at{nullptr, 0};
    bool barrier_is_due = false;     // a TPipe has ended; at the kernel's end its barrier costs nothing
    bool ends_with_barrier = false;  // PipeBarrier<PIPE_ALL> after all instructions
    uint32_t ub_used = 0;
    int64_t touched_end = 0;  // the end of the bytes of UB that the kernel's tensors have touched
    size_t live_buffers = 0;
    const char* reserved_user = nullptr;  // the API that uses the top 8 KiB of UB
    Site reserved_site{nullptr, 0};
    Atomic atomic = Atomic::None;
    int32_t atomic_type = 0;
    Site atomic_site{nullptr, 0};
    MaskRegister mask;
    std::vector<CopyPlace> copies;
    bool has_leftovers = false;
    DeqRegister deq;
    PadRegister pad;
    CompareRegister compare;
    int8_t saturates = -1;        // 0 or 1: the kernel's mode instead of the launch's
    bool is_initialised = false;  // by InitSocState
    uint64_t sum_bits = 0;        // register of ReduceSum's count form
    bool has_sum = false, has_extremum = false, has_merge = false;
    ExtremumRegister extremum = {};
    MergeRegister merge = {};
    uint8_t* system_workspace = nullptr;
    const char* library_function = nullptr;
    int32_t memory_above_buffers = -1;     // index of the buffer with the rest of UB above the TPipe's buffers
    std::map<uint64_t, Site> dirty_lines;  // 64-byte lines written by scalars and not cleaned yet
    std::unordered_map<uint64_t, uint32_t> loaded_lines;   // line in the cache -> the access that loaded it
    std::unordered_map<uint64_t, uint32_t> cleaned_lines;  // line -> instruction that invalidated it
    uint32_t cleaned_all = 0;
    bool missed_cache = false;  // the running scalar access loaded a line
    double bank_wait = 0;       // cycles of the running vector instruction
    Moment pipe_free[kPipes];   // when the pipe may issue its next instruction
    Moment pipe_done[kPipes];   // when the pipe has completed its earlier instructions
    Moment port_free[kPipes];   // MTE2, MTE3: the bytes of the earlier copies have moved
    Span latency[kPipes] = {};  // of the last copy; the trace shows it up to the next copy's end
    Totals totals;

    // The last reference that the scalar unit took to an element of UB or GM, and the element's earlier bits.
    struct Reference {
        bool open = false, is_gm = false, is_new = false;  // new: an element of an output, not written yet
        UbView view;
        Range range;
        uint8_t before[8], output[8];  // output: the host's value of a new element of an output
        GmView gm_view;
        uintptr_t address = 0;
        uint64_t bytes = 0;
    } reference;

    // Bytes of GM that a copy read although no instruction had written them. Only the last such copy is stored.
    struct UnwrittenGm {
        uint32_t instruction;
        uintptr_t begin, end;
    };
    std::vector<UnwrittenGm> unwritten_gm;

    // The addresses that physical_address() returned and view_at() has not got, by the offset in UB.
    struct UncheckedAddress {
        Site site;  // of the first call
        bool was_written;
    };
    std::map<uint32_t, UncheckedAddress> unchecked_addresses;

    // The running instruction.
    Record current{Pipe::S, 0, "kernel", {"kernel", 0}};
    bool running = false;
    UbPlaces ub_places;
    // Calls that need a kernel type with the scheduler between cores, or that use its flags.
    Call scheduler_user, reserved_flag_user;
    bool uses_sync_all = false;
    const char* kernel_type = nullptr;
    bool starts_scheduler = true, has_type_of_key = false;
    uint32_t number = 0;  // of the running instruction; the cores and passes of a thread share the count
    Moment issue;

    // The numbers of the core's instructions. They form several intervals, because other cores run while the core
    // waits: one from resumed_first on since its last wait, and those in earlier_numbers.
    struct Numbers {
        uint32_t first, end;
        size_t record;  // the index in `records` of the first instruction
    };
    uint32_t resumed_first = 1;
    size_t resumed_record = 0;
    std::vector<Numbers> earlier_numbers;
    // The other cores' instructions that are known to be complete, by core; empty before the first wait for them.
    std::vector<Clock> others;
};

// Memory of a core. A core that begins takes it over from a core that has ended.
struct CoreMemory {
    // The address is a multiple of 4 GiB, so that its low 32 bits are the offset in UB (physical_address()).
    struct GiveBack {
        void operator()(uint8_t* p) const;
    };
    std::unique_ptr<uint8_t[], GiveBack> ub;
    Shadow writer;                      // number << 1 | poisoned; numbers below core_first belong to earlier cores
    std::array<Shadow, kPipes> reader;  // number

    std::vector<Record> records;
    Bookings gm_time;
    std::vector<Step> steps;  // only if options.keeps_steps
    // The running instruction's reads are marked in the shadow when it ends, so that until then the shadow holds the
    // reads of other instructions only.
    std::vector<Range> reads;
};

struct CoreContext : CoreState, CoreMemory {
    uint32_t core_first = 1;
};

// The pass on this thread and its running core.
struct Machine : LaunchState, CoreContext {
    uint32_t next_number = 1;

    void begin_core(int64_t index);
    void check_scheduler() const;
    void mark_reads();
    void settle_reference();  // between instructions; also a barrier that is due
    void settle_gm_reference();
    void settle_doubtful_writes();
    void insert_synchronisation(Pipe before);
    void note_copy(const Range& range);
    void note_reads_of_leftovers(const Range& range);
    void note_undefined_read(const Range& range, const std::string& text);
    void end_core();
    void check_registered_tiling() const;
    void check_event_at_end(Pipe from, Pipe to, int id) const;
    void end_time();
    void check_static_end() const;
    bool is_traced() const { return core < options.traced_cores; }
    void note_ub_use(const UbView& view, bool writes);
    void note_ub_time(double begin, double end);
    // Whether the instruction is one of this core.
    bool owns(uint32_t instruction) const { return instruction >= resumed_first || find_earlier(instruction); }
    // The record of an instruction of this core.
    const Record& record(uint32_t instruction) const {
        if (instruction >= resumed_first) return records[resumed_record + (instruction - resumed_first)];
        const Numbers* numbers = find_earlier(instruction);
        return records[numbers->record + (instruction - numbers->first)];
    }
    const Numbers* find_earlier(uint32_t instruction) const;
    // Whether another core's access is known to be complete.
    bool has_seen(const GmAccess& access) const;
    // Whether the instruction's work is known to be complete when the running one starts.
    bool is_ordered(uint32_t instruction) const;
    void note_unwritten_gm(uintptr_t begin, uintptr_t end);
    // Whether instructions have written all bytes of the range, which belongs to the buffer.
    bool is_written(const Range& range, int32_t buffer) const;
    GmTensor* find_gm(uintptr_t address, uint64_t bytes);
};

Machine& machine();  // of this thread

// Fills unwritten memory with bits that a kernel hardly ever stores (NaN in half, bfloat16 and float), so that a
// store through a reference changes them.
void fill_unwritten(void* element, uint64_t bytes);

// Records a step of a pipe that begins at `from`; returns its end.
Moment step(Pipe pipe, StepKind kind, const char* api, Site site, const Moment& from, double end);
// Adds an interval to a pipe's totals and to the trace.
void keep_span(Pipe pipe, const char* api, Site site, double begin, double end, uint64_t bytes, uint32_t repeats);
// Occupies the scalar unit for `cycles`.
void spend_scalar(const char* api, Site site, double cycles, StepKind kind = StepKind::Work);
std::string critical_path_json(const std::vector<Step>& path, int64_t core);

// Returns the tensor in GM that contains these bytes, or null after a report.
GmTensor* require_gm(const char* operand, uintptr_t address, uint64_t bytes);
// Checks that an access to `t` lies in the memory that the kernel passed to SetGlobalBuffer.
void check_view(const char* operand, const GmView& view, const GmTensor& t, uintptr_t address, uint64_t bytes);
void check_flags_between_cores();

inline bool is_same(Site a, Site b) { return a.line == b.line && a.file == b.file; }
std::string where(Site site);  // "npu_add.cpp:12"
const char* pipe_name(Pipe pipe);

}  // namespace ascend_sim
