#include "cann/runtime/report.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

#include "cann/locked.h"
#include "cann/runtime/allocations.h"
#include "cann/runtime/api.h"
#include "cann/runtime/host_calls.h"
#include "cann/runtime/scheduler.h"
#include "src/json.h"

namespace simulated_cann {
namespace {

using ascend_sim::Json, ascend_sim::json_list, ascend_sim::json_string;

constexpr size_t kKeptBroken = 20;   // reports of launches that broke a rule; more are only counted
constexpr size_t kKeptRaces = 100;   // messages; more are only counted
constexpr size_t kKeptRuns = 10000;  // launches of kernels on the timeline

// A kernel's run on the simulated device's clock.
struct KernelRun {
    std::string operator_name;
    double cores, cycles, microseconds;
};

std::string report_folder() {
    const char* named = std::getenv("ASCEND_SIM_REPORT_DIR");
    return named ? named : "";
}

struct Report {
    std::string folder = report_folder();
    std::map<std::string, uint64_t> launches, not_simulated, host_waits;
    std::vector<KernelRun> runs;
    std::vector<std::string> broken;  // operator and ascend_sim's JSON
    uint64_t broken_count = 0;
    std::vector<std::string> damage, races, freed;
    uint64_t race_count = 0;
    uint64_t work_left = 0;  // pieces in queues when the process ended

    bool used_the_npu() const {
        return !launches.empty() || !not_simulated.empty() || !host_waits.empty() || !damage.empty() ||
               !races.empty() || !freed.empty();
    }
    // Whether this process is a fork; its report counts only its own work.
    bool is_fork = false;
    uint64_t bytes_of_parent = 0;  // in use at the fork; the fork's copy need not be freed
};

std::string counts(const std::map<std::string, uint64_t>& by_name) {
    Json json;
    for (const auto& [name, count] : by_name) json.raw(name, std::to_string(count));
    return json.done();
}

std::string quoted_list(const std::vector<std::string>& texts) { return json_list(texts, json_string); }

// The number `name` in the simulator's report, or 0.
double number_of(const std::string& json, const std::string& name) {
    const size_t at = json.find("\"" + name + "\":");
    return at == std::string::npos ? 0 : std::strtod(json.c_str() + at + name.size() + 3, nullptr);
}

// The file is renamed into place, so that readers get a complete file. A fork writes only if it used the NPU or got its
// own folder: forks that do other work do not count as processes of the run.
void write(Report& r, bool ended) {
    const std::string folder = report_folder();
    if (folder.empty() || (r.is_fork && folder == r.folder && !r.used_the_npu())) return;
    std::vector<std::string> timeline;
    for (const KernelRun& one : r.runs) {
        Json run;
        run.field("operator", one.operator_name).field("cores", one.cores).field("cycles", one.cycles);
        timeline.push_back(run.field("microseconds", one.microseconds).done());
    }
    Json json;
    json.field("soc", soc_name()).raw("ended", ended ? "true" : "false").raw("launches", counts(r.launches));
    json.raw("broken", json_list(r.broken)).raw("broken_launches", std::to_string(r.broken_count));
    json.raw("damage", quoted_list(r.damage)).raw("not_simulated", counts(r.not_simulated));
    json.raw("races", quoted_list(r.races)).raw("race_count", std::to_string(r.race_count));
    json.raw("freed", quoted_list(r.freed)).raw("work_left", std::to_string(r.work_left));
    json.field("streams", stream_order() == Order::kImmediate ? "immediate" : "asynchronous");
    json.raw("seed", std::to_string(stream_seed()));
    json.raw("host_waits", counts(r.host_waits)).raw("kernel_runs", json_list(timeline));
    const uint64_t bytes = device_bytes_in_use();
    json.raw("bytes_not_freed", std::to_string(bytes - std::min(bytes, r.bytes_of_parent)));
    const std::string path = folder + "/" + std::to_string(getpid()) + ".runtime.json";
    const std::string draft = path + ".draft";
    std::FILE* file = std::fopen(draft.c_str(), "w");
    if (!file) return;
    std::fputs(json.done().c_str(), file);
    std::fclose(file);
    std::rename(draft.c_str(), path.c_str());
}

// A process that ends by _exit does not run at_end. Forks often end this way (Python's multiprocessing), so they write
// at each of their first 64 launches, then at every 64th.
void write_early(Report& r) {
    constexpr uint64_t kEach = 64;
    uint64_t count = 0;
    for (const auto& [name, launches] : r.launches) count += launches;
    if (r.is_fork && (count < kEach || count % kEach == 0)) write(r, false);
}

void lock_before_fork() { Locked<Report>::mutex().lock(); }
void unlock_after_fork() { Locked<Report>::mutex().unlock(); }

// The parent reports its counts, so the fork starts from zero.
void begin_in_fork() {
    unlock_after_fork();
    Locked<Report> r;
    r->is_fork = true;
    for (auto* counted : {&r->launches, &r->not_simulated, &r->host_waits}) counted->clear();
    for (auto* texts : {&r->broken, &r->damage, &r->races, &r->freed}) texts->clear();
    r->runs.clear();
    r->bytes_of_parent = device_bytes_in_use();
    r->broken_count = r->race_count = r->work_left = 0;
}

bool is_idle_fork() {
    Locked<Report> r;
    return r->is_fork && report_folder() == r->folder && !r->used_the_npu();
}

void at_end() {
    if (is_idle_fork()) return;  // the memory and the queues belong to its parent
    check_guards("when the process ended", GuardCheck::kFull);
    const uint64_t left = work_left();
    Locked<Report> r;
    r->work_left = left;
    write(*r, true);
}

// torch_npu's libraries are loaded after this one, so their work at exit runs before at_end.
__attribute__((constructor)) void begin() {
    write(*Locked<Report>(), false);
    std::atexit(at_end);
    pthread_atfork(lock_before_fork, unlock_after_fork, begin_in_fork);
}

void add_text(std::vector<std::string> Report::* list, const std::string& text) {
    Locked<Report> r;
    ((*r).*list).push_back(text);
    std::fprintf(stderr, "simulated CANN: %s\n", text.c_str());
    write(*r, false);
}

}  // namespace

std::string check_guards(const std::string& when, GuardCheck check) {
    std::string damage = guard_damage(check);
    if (!damage.empty()) report_damage(damage, when);
    return damage;
}

void report_damage(const std::string& damage, const std::string& when) {
    add_text(&Report::damage, damage + " Found " + when + ".");
}

void report_race(const std::string& text, const std::string& detail, bool is_new) {
    Locked<Report> r;
    ++r->race_count;
    if (!is_new || r->races.size() >= kKeptRaces) return;
    r->races.push_back(text);
    std::fprintf(stderr, "simulated CANN: race: %s%s\n", text.c_str(), detail.c_str());
    write(*r, false);
}

void report_freed(const std::string& text) { add_text(&Report::freed, text); }

void count_not_simulated(const std::string& call) {
    Locked<Report> r;
    ++r->not_simulated[call];
    write_early(*r);
}

void count_host_wait(const std::string& call) {
    Locked<Report> r;
    ++r->host_waits[call];
}

void record_launch(const std::string& operator_name, const std::string& simulator_report) {
    if (host_calls()) return;
    Locked<Report> r;
    ++r->launches[operator_name];
    if (double cycles = number_of(simulator_report, "cycles"); cycles > 0 && r->runs.size() < kKeptRuns)
        r->runs.push_back(
            {operator_name, number_of(simulator_report, "cores"), cycles, number_of(simulator_report, "microseconds")});
    if (simulator_report.find("\"status\":\"broken rule\"") == std::string::npos) return write_early(*r);
    ++r->broken_count;
    if (r->broken.size() < kKeptBroken)
        r->broken.push_back(Json().field("operator", operator_name).raw("report", simulator_report).done());
    write(*r, false);
}

}  // namespace simulated_cann
