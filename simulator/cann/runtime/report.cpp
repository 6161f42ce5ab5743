#include "cann/runtime/report.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "cann/locked.h"
#include "cann/runtime/allocations.h"
#include "cann/runtime/api.h"
#include "cann/runtime/forks.h"
#include "cann/runtime/host_calls.h"
#include "cann/runtime/scheduler.h"
#include "src/json.h"

namespace simulated_cann {
namespace {

using ascend_sim::Json, ascend_sim::json_list, ascend_sim::json_string;

constexpr size_t kMaxBrokenReports = 20;  // reports of launches that broke a rule; more are only counted
constexpr size_t kMaxTexts = 100;         // of races, and of failed work; more are only counted
constexpr size_t kMaxKernelRuns = 10000;  // launches of kernels on the timeline

// A kernel's run on the simulated device's clock.
struct KernelRun {
    std::string operator_name;
    double cores, cycles, microseconds;
};

std::string report_folder() {
    const char* folder = std::getenv("ASCEND_SIM_REPORT_DIR");
    return folder ? folder : "";
}

struct Report {
    std::string folder = report_folder();
    std::map<std::string, uint64_t> launches, not_simulated, beyond_documents, host_waits;
    std::vector<KernelRun> kernel_runs;
    std::vector<std::string> broken_launches;  // operator and ascend_sim's JSON
    uint64_t broken_launch_count = 0;
    std::vector<std::string> damage, races, freed, failed_work;
    uint64_t race_count = 0, failed_work_count = 0;
    uint64_t work_left = 0;  // pieces in queues when the process ended

    bool has_used_npu() const {
        return !launches.empty() || !not_simulated.empty() || !host_waits.empty() || !damage.empty() ||
               !races.empty() || !freed.empty() || !failed_work.empty();
    }
    // Whether this process is a fork; its report counts only its own work.
    bool is_fork = false;
    uint64_t parent_bytes = 0;  // in use at the fork; the fork's copy need not be freed
};

std::string counts_json(const std::map<std::string, uint64_t>& by_name) {
    Json json;
    for (const auto& [name, count] : by_name) json.raw(name, std::to_string(count));
    return json.done();
}

std::string texts_json(const std::vector<std::string>& texts) { return json_list(texts, json_string); }

// Returns the number with this name in the simulator's report, or 0.
double read_number(const std::string& json, const std::string& name) {
    const size_t at = json.find("\"" + name + "\":");
    return at == std::string::npos ? 0 : std::strtod(json.c_str() + at + name.size() + 3, nullptr);
}

// Says once that a report cannot be written. From the renamed draft, ascend-sim run knows that a report is lost.
void lose_report(const std::string& draft_path, const std::string& lost_path, const std::string& folder) {
    static std::atomic<bool> is_said{false};
    const std::string cause = std::strerror(errno);
    std::rename(draft_path.c_str(), lost_path.c_str());
    if (!is_said.exchange(true))
        print_message({"ASCEND_SIM_REPORT_DIR must be a folder one may write but got ", folder, ": ", cause, "."});
}

// Writes a draft and renames it, so that readers always get a complete file. A fork writes only if it used the NPU or
// has its own folder. So forks that do other work do not count as processes of the run.
void write_report(Report& report, bool ended) {
    const std::string folder = report_folder();
    if (folder.empty() || (report.is_fork && folder == report.folder && !report.has_used_npu())) return;
    std::vector<std::string> timeline;
    for (const KernelRun& kernel_run : report.kernel_runs) {
        Json run;
        run.field("operator", kernel_run.operator_name)
            .field("cores", kernel_run.cores)
            .field("cycles", kernel_run.cycles);
        timeline.push_back(run.field("microseconds", kernel_run.microseconds).done());
    }
    Json json;
    json.field("soc", soc_name()).raw("ended", ended ? "true" : "false").raw("launches", counts_json(report.launches));
    json.raw("broken", json_list(report.broken_launches))
        .raw("broken_launches", std::to_string(report.broken_launch_count));
    json.raw("damage", texts_json(report.damage)).raw("not_simulated", counts_json(report.not_simulated));
    json.raw("beyond_documents", counts_json(report.beyond_documents));
    json.raw("races", texts_json(report.races)).raw("race_count", std::to_string(report.race_count));
    json.raw("freed", texts_json(report.freed)).raw("work_left", std::to_string(report.work_left));
    json.raw("failed_work", texts_json(report.failed_work))
        .raw("failed_work_count", std::to_string(report.failed_work_count));
    json.field("streams", stream_order() == Order::kImmediate ? "immediate" : "asynchronous");
    json.raw("seed", std::to_string(stream_seed()));
    json.raw("host_waits", counts_json(report.host_waits)).raw("kernel_runs", json_list(timeline));
    const uint64_t bytes = bytes_not_freed();
    json.raw("bytes_not_freed", std::to_string(bytes - std::min(bytes, report.parent_bytes)));
    const std::string path = folder + "/" + std::to_string(getpid()) + ".runtime";
    const std::string draft_path = path + ".json.draft";
    errno = 0;
    std::FILE* file = std::fopen(draft_path.c_str(), "w");
    bool is_written = file && std::fputs(json.done().c_str(), file) >= 0;
    if (file) is_written = std::fclose(file) == 0 && is_written;
    if (is_written && std::rename(draft_path.c_str(), (path + ".json").c_str()) == 0) return;
    lose_report(draft_path, path + ".lost", folder);
}

// Writes the report at each of the first 64 launches, and later at a launch if 0.2 s have passed since the last write.
// The process may end by a signal or by _exit(), without end_report(). Forks often end in this way (Python's
// multiprocessing), so a fork also writes at every 64th launch.
void write_now_and_then(Report& report) {
    using Clock = std::chrono::steady_clock;
    constexpr uint64_t kInterval = 64;
    static Clock::time_point last_write;
    uint64_t count = 0;
    for (const auto& [name, launches] : report.launches) count += launches;
    const Clock::time_point now = Clock::now();
    const bool is_due = count < kInterval || (report.is_fork && count % kInterval == 0) ||
                        now - last_write > std::chrono::milliseconds(200);
    if (!is_due) return;
    last_write = now;
    write_report(report, false);
}

const ForkLock report_lock(LockRank::kReport, &Locked<Report>::mutex());

bool is_idle_fork() {
    Locked<Report> report;
    return report->is_fork && report_folder() == report->folder && !report->has_used_npu();
}

void end_report() {
    if (is_idle_fork()) return;  // the memory and the queues belong to its parent
    check_guards("when the process ended", GuardCheck::kFull);
    const uint64_t pieces_left = work_left();
    Locked<Report> report;
    report->work_left = pieces_left;
    write_report(*report, true);
}

// torch_npu's libraries are loaded after this one, so their work at exit runs before end_report().
__attribute__((constructor)) void begin_report() {
    write_report(*Locked<Report>(), false);
    std::atexit(end_report);
}

thread_local uint64_t errors_of_thread = 0;  // that are in the report

void add_text(std::vector<std::string> Report::* list, const std::string& text) {
    Locked<Report> report;
    ++errors_of_thread;
    ((*report).*list).push_back(text);
    print_message({text});
    write_report(*report, false);
}

}  // namespace

// The parent process reports its own counts, so the fork starts from zero.
void reset_report_in_fork() {
    Locked<Report> report;
    report->is_fork = true;
    for (auto* counted : {&report->launches, &report->not_simulated, &report->beyond_documents, &report->host_waits})
        counted->clear();
    for (auto* texts :
         {&report->broken_launches, &report->damage, &report->races, &report->freed, &report->failed_work})
        texts->clear();
    report->kernel_runs.clear();
    report->parent_bytes = bytes_not_freed();
    report->broken_launch_count = report->race_count = report->failed_work_count = report->work_left = 0;
}

void announce_simulation() {
    static std::atomic<bool> is_announced{false};
    if (!report_folder().empty() || is_announced.exchange(true)) return;
    std::fputs(
        "simulated CANN: this is ascend_sim, nothing runs on hardware; ascend-sim run -- PROGRAM prints a report.\n",
        stderr);
}

std::string check_guards(const std::string& when, GuardCheck check) {
    std::string damage = guard_damage(check);
    if (!damage.empty()) report_damage(damage, when);
    return damage;
}

void report_damage(const std::string& damage, const std::string& when) {
    add_text(&Report::damage, damage + " Found " + when + ".");
}

void print_message(std::initializer_list<std::string_view> parts) noexcept {
    const auto is_c1 = [](std::string_view part, size_t at) {  // U+0080 to U+009F: the byte 0xC2 and a second one
        return at + 1 < part.size() && part[at] == '\xC2' && static_cast<unsigned char>(part[at + 1]) < 0xA0;
    };
    // A line is one write, since the processes of a run share standard error, which has no buffer.
    char line[PIPE_BUF];
    size_t length = 0;
    const auto append = [&](std::string_view text) {
        if (length + text.size() > sizeof(line)) {
            std::fwrite(line, 1, length, stderr);
            length = 0;
        }
        text.copy(line + length, text.size());
        length += text.size();
    };
    flockfile(stderr);
    append("simulated CANN: ");
    for (const std::string_view part : parts)
        for (size_t i = 0; i < part.size(); ++i) {
            const auto byte = static_cast<unsigned char>(part[i]);
            const bool is_control = (byte < 0x20 && byte != '\n') || byte == 0x7F;
            if (is_control || is_c1(part, i) || (i > 0 && is_c1(part, i - 1))) {
                constexpr char kDigits[] = "0123456789abcdef";
                const char escaped[] = {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
                append({escaped, sizeof(escaped)});
            } else
                append(part.substr(i, 1));
        }
    append("\n");
    std::fwrite(line, 1, length, stderr);
    funlockfile(stderr);
}

void report_race(const std::string& text, const std::string& detail, bool is_new) {
    Locked<Report> report;
    ++report->race_count;
    if (!is_new || report->races.size() >= kMaxTexts) return;
    report->races.push_back(text);
    print_message({"race: ", text, detail});
    write_report(*report, false);
}

void report_freed(const std::string& text) { add_text(&Report::freed, text); }

uint64_t reported_errors() { return errors_of_thread; }

void report_failed_work(const std::string& error) {
    const size_t prefix_length = std::strlen(kErrorPrefix);
    const std::string text = error.compare(0, prefix_length, kErrorPrefix) == 0 ? error.substr(prefix_length) : error;
    Locked<Report> report;
    ++report->failed_work_count;
    if (report->failed_work.size() >= kMaxTexts) return;
    report->failed_work.push_back(text);
    print_message({"work failed: ", text});
    write_report(*report, false);
}

void count_not_simulated(const std::string& call) {
    Locked<Report> report;
    ++errors_of_thread;
    ++report->not_simulated[call];
    write_now_and_then(*report);
}

void count_beyond_document(const std::string& call) {
    Locked<Report> report;
    if (++report->beyond_documents[call] == 1) write_report(*report, false);  // the process may abort later
}

void count_beyond_document(const std::string& call, const std::string& reason) {
    count_beyond_document(call + " on " + soc_name() + ": " + reason);
}

// Returns the counts as JSON, for tests.
NPU_CANN_API const char* simulated_cann_calls_beyond_documents() {
    static std::string counts;
    counts = counts_json(Locked<Report>()->beyond_documents);
    return counts.c_str();
}

void count_host_wait(const std::string& call) {
    Locked<Report> report;
    ++report->host_waits[call];
}

void record_launch(const std::string& operator_name, const std::string& simulator_report) {
    if (host_calls()) return;
    Locked<Report> report;
    ++report->launches[operator_name];
    if (double cycles = read_number(simulator_report, "cycles");
        cycles > 0 && report->kernel_runs.size() < kMaxKernelRuns)
        report->kernel_runs.push_back({operator_name, read_number(simulator_report, "cores"), cycles,
                                       read_number(simulator_report, "microseconds")});
    if (simulator_report.find("\"status\":\"broken rule\"") == std::string::npos) return write_now_and_then(*report);
    ++errors_of_thread;
    ++report->broken_launch_count;
    if (report->broken_launches.size() < kMaxBrokenReports)
        report->broken_launches.push_back(
            Json().field("operator", operator_name).raw("report", simulator_report).done());
    write_report(*report, false);
}

}  // namespace simulated_cann
