// The state of one pass over a launch's cores, and of the running core. A pass runs the cores sequentially on
// one thread; passes on different threads share no state.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "include/ascendc/runtime.h"
#include "src/bookings.h"
#include "src/profile.h"
#include "src/shadow.h"

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

enum class StepKind : uint8_t { Issue, Work, Transfer, Memory, Latency, Event, Barrier };

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
    bool adds = false;  // an atomic copy
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
    bool released = false;  // its TPipe was reset or destroyed
    uint32_t generation = 0;
    uint32_t valid_from = 0;    // bytes written by earlier instructions count as uninitialised
    int32_t filled_event = -1;  // set by EnQue, waited for by DeQue
    int32_t freed_event = -1;   // set by FreeTensor, waited for by AllocTensor
    Site allocated_at{"", 0};
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

struct GmTensor {
    std::string name;
    uintptr_t base = 0;
    uint64_t bytes = 0;
    Role role = Role::In;
    using Pages = std::vector<std::unique_ptr<uint32_t[]>>;  // an instruction's number for each byte of each page
    Pages writer, copy_reader, scalar_reader;
};

// An instruction that accessed GM that cores may share, kept for the whole launch.
struct GmAccess {
    uint32_t number;
    int64_t core;
    const char* api;
    Site site;
    bool adds = false;  // an atomic copy
};

// The access of the instruction `number`, which must have been noted; nullptr for 0. Numbers ascend in `all`.
const GmAccess* find_access(const std::vector<GmAccess>& all, uint32_t number);

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

struct LaunchOptions {
    bool auto_sync = false, saturate = false;
    bool keeps_steps = false;  // for the critical path
    int64_t traced_cores = 0;  // keep the spans of cores below this index
    std::set<std::string> lenient;
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
    std::unordered_map<uint64_t, uint32_t> scalar_lines;  // 64-byte line -> its first scalar write
    std::vector<Report> errors, warnings;
    std::vector<Span> spans;
    std::vector<Totals> per_core;
    std::vector<Step> critical_path;  // of the slowest core so far, from its start to its end
    int64_t critical_core = -1;
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
    bool pipe_alive = false;
    std::vector<Buffer> buffers;
    std::vector<Queue> queues;
    uint32_t ub_used = 0, ub_peak = 0;
    size_t live_buffers = 0;
    const char* reserved_user = nullptr;
    Site reserved_site{nullptr, 0};
    Atomic atomic = Atomic::None;
    int32_t atomic_type = 0;
    Site atomic_site{nullptr, 0};
    MaskRegister mask;
    DeqRegister deq;
    bool is_initialised = false;  // by InitSocState
    uint64_t sum_bits = 0;        // register of ReduceSum's count form
    bool has_sum = false, has_extremum = false;
    ExtremumRegister extremum = {};
    uint8_t* system_workspace = nullptr;
    const char* library_function = nullptr;
    std::map<std::pair<const char*, const char*>, const char*> library_names;  // of instructions inside a function
    int32_t free_memory = -1;  // index of the buffer above the TPipe's own ones
    std::map<uint64_t, Site> dirty_lines;                  // 64-byte lines written by scalars and not cleaned yet
    std::unordered_map<uint64_t, uint32_t> cleaned_lines;  // line -> instruction that invalidated it
    uint32_t cleaned_all = 0;
    Moment pipe_free[kPipes], pipe_done[kPipes];
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

    // The running instruction.
    Record current{Pipe::S, 0, "kernel", {"kernel", 0}};
    bool running = false;
};

// The pass on this thread and its running core.
struct Machine : LaunchState, CoreState {
    // UB and its shadow are kept from core to core: numbers below core_first belong to earlier cores.
    struct AlignedDelete {
        void operator()(uint8_t* p) const { ::operator delete[](p, std::align_val_t(64)); }
    };
    std::unique_ptr<uint8_t[], AlignedDelete> ub;
    Shadow writer;                      // number << 1 | poisoned
    std::array<Shadow, kPipes> reader;  // number
    uint32_t next_number = 1, core_first = 1;

    // Lists of the running core; the next core uses their memory again.
    std::vector<Record> records;
    Bookings gm_time;
    std::vector<Step> steps;  // only if options.keeps_steps
    // The running instruction's reads are marked in the shadow when it ends, so that until then the shadow holds the
    // reads of other instructions only.
    std::vector<Range> reads;
    uint32_t number = 0;
    Moment issue;

    void begin_core(int64_t index);
    void mark_reads();
    void settle_reference();
    void settle_gm_reference();
    void end_core();
    void check_registered_tiling() const;
    void check_event_at_end(Pipe from, Pipe to, int id) const;
    void end_time();
    const Record& record(uint32_t instruction) const { return records[instruction - core_first]; }
    // Whether the instruction's work is known to be complete when the running one starts.
    bool is_ordered(uint32_t instruction) const;
    GmTensor* find_gm(uintptr_t address, uint64_t bytes);
};

Machine& machine();  // of this thread

// Fills unwritten memory with bits that a kernel hardly ever stores (NaN in half, bfloat16 and float), so that a
// store through a reference changes them.
void fill_unwritten(void* element, uint64_t bytes);

// Records a step of a pipe that begins at `from`; returns its end.
Moment step(Pipe pipe, StepKind kind, const char* api, Site site, const Moment& from, double end);
// Occupies the scalar unit for `cycles`.
void spend_scalar(const char* api, Site site, double cycles, StepKind kind = StepKind::Work);
std::string critical_path_json(const std::vector<Step>& path, int64_t core);

std::string where(Site site);  // "npu_add.cpp:12"
const char* pipe_name(Pipe pipe);

}  // namespace ascend_sim
