#include "src/timeline.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <tuple>
#include <utility>

#include "src/json.h"

namespace ascend_sim {
namespace {

double cycles_of(const Timeline& timeline, const Profile& profile) {
    double total = 0;  // if there are more blocks than cores, they run in waves
    for (size_t first = 0; first < timeline.cores.size(); first += size_t(profile.cores)) {
        double wave = 0;
        for (size_t i = first; i < std::min(timeline.cores.size(), first + size_t(profile.cores)); ++i)
            wave = std::max(wave, timeline.cores[i].end);
        total += wave;
    }
    return total;
}

const char* row_name(int row) {
    constexpr const char* kNames[] = {"critical path", "MTE2 read latency", "MTE3 write latency"};
    return row < kPipes ? pipe_name(Pipe(row)) : kNames[row - kPipes];
}

void write_names(std::FILE* f, int core, bool first) {
    std::fprintf(f, "%s{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"core %d\"}}",
                 first ? "" : ",\n", core, core);
    for (int row = 0; row < kRows; ++row)
        std::fprintf(f, ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
                     core, row, row_name(row));
}

// Microseconds rounded as printed, so that spans that are adjacent in cycles are adjacent in the trace.
double printed_microseconds(double cycles, double clock_ghz) { return std::round(cycles / clock_ghz * 10) / 1e4; }

void write_span(std::FILE* f, const Span& s, double clock_ghz) {
    if (s.end <= s.begin) return;
    const double begin = printed_microseconds(s.begin, clock_ghz), end = printed_microseconds(s.end, clock_ghz);
    std::fprintf(f,
                 ",\n{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.4f,\"dur\":%.4f,\"args\":{\"line\":"
                 "\"%s\",\"cycles\":%.0f,\"bytes\":%llu,\"repeats\":%u}}",
                 s.api, s.core, int(s.row), begin, end - begin, where(s.site).c_str(), s.end - s.begin,
                 static_cast<unsigned long long>(s.bytes), s.repeats);
}

// A row for each place in UB, below the rows of its core. Places of later contents may overlap those of earlier ones.
void write_ub_contents(std::FILE* f, const std::vector<UbContents>& all, double clock_ghz) {
    std::map<std::tuple<int32_t, uint32_t, uint32_t>, int> rows;
    std::map<int32_t, int> rows_of_core;
    for (const UbContents& c : all) {
        const auto [row, is_new] = rows.emplace(std::make_tuple(c.core, c.addr, c.bytes), 0);
        if (is_new) {
            row->second = kRows + rows_of_core[c.core]++;
            std::fprintf(f,
                         ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":"
                         "\"UB [%u, %u)\"}}",
                         c.core, row->second, c.addr, c.addr + c.bytes);
        }
        if (c.end <= c.begin) continue;
        const double begin = printed_microseconds(c.begin, clock_ghz), end = printed_microseconds(c.end, clock_ghz);
        std::fprintf(f,
                     ",\n{\"ph\":\"X\",\"name\":\"%s\",\"cat\":\"ub\",\"pid\":%d,\"tid\":%d,\"ts\":%.4f,\"dur\":%.4f,"
                     "\"args\":{\"line\":\"%s\",\"cycles\":%.0f,\"address\":%u,\"bytes\":%u,\"uses\":%u}}",
                     c.api, c.core, row->second, begin, end - begin, where(c.site).c_str(), c.end - c.begin, c.addr,
                     c.bytes, c.uses);
    }
}

void write_events(const Timeline& timeline, double clock_ghz, std::FILE* f) {
    int64_t last_core = -1;
    bool shows_slowest = false;
    for (const Span& s : timeline.spans) {
        if (s.core != last_core) {
            write_names(f, s.core, last_core < 0);
            last_core = s.core;
            shows_slowest = shows_slowest || s.core == timeline.critical_core;
        }
        write_span(f, s, clock_ghz);
    }
    if (shows_slowest)
        for (const Step& s : timeline.critical_path)
            write_span(f,
                       {int32_t(timeline.critical_core), uint8_t(Row::Critical), s.api, s.site, s.begin, s.end, 0, 0},
                       clock_ghz);
    write_ub_contents(f, timeline.ub_contents, clock_ghz);
}

}  // namespace

std::string summary_of(const Timeline& timeline, const Profile& profile) {
    Totals all;
    size_t slowest = 0;
    for (size_t i = 0; i < timeline.cores.size(); ++i) {
        const Totals& t = timeline.cores[i];
        for (int p = 0; p < kPipes; ++p) all.instructions[p] += t.instructions[p];
        all.vector_repeats += t.vector_repeats;
        all.bytes_read += t.bytes_read;
        all.bytes_written += t.bytes_written;
        if (t.end > timeline.cores[slowest].end) slowest = i;
    }
    const double cycles = cycles_of(timeline, profile);
    const double moved = double(all.bytes_read + all.bytes_written);
    Json j;
    const size_t blocks = timeline.cores.size(), cores = std::min(blocks, size_t(profile.cores));
    j.field("soc", profile.name).field("blocks", double(blocks)).field("cores", double(cores));
    j.field("cycles", cycles);
    j.field("microseconds", cycles / profile.clock_ghz / 1e3);
    j.field("bytes_read", double(all.bytes_read)).field("bytes_written", double(all.bytes_written));
    j.field("vector_repeats", double(all.vector_repeats));
    j.field("gm_bytes_per_cycle", profile.gm_bytes_per_cycle).field("clock_ghz", profile.clock_ghz);
    const double roofline = moved / profile.gm_bytes_per_cycle;
    j.field("memory_roofline_cycles", roofline).field("roofline_share", cycles > 0 ? roofline / cycles : 0.0);
    j.field("slowest_core", double(slowest));
    for (int p = 0; p < kPipes; ++p) {
        const std::string name = pipe_name(Pipe(p));
        j.field(("instructions_" + name), double(all.instructions[p]));
        j.field(("busy_" + name), timeline.cores.empty() ? 0.0 : timeline.cores[slowest].busy[p]);
    }
    const Totals& shown = timeline.cores.empty() ? all : timeline.cores[slowest];  // all has no APIs
    const std::string by_api = json_list(shown.apis, [](const ApiTotal& t) {
        Json a;
        a.field("api", t.api).field("pipe", pipe_name(t.pipe)).field("count", double(t.count));
        return a.field("repeats", double(t.repeats)).field("bytes", double(t.bytes)).field("cycles", t.cycles).done();
    });
    j.raw("critical_path", critical_path_json(timeline.critical_path, timeline.critical_core));
    return j.raw("apis", by_api).done();
}

std::string write_trace(const char* path, const Timeline& timeline, const Profile& profile,
                        const std::string& summary) {
    std::FILE* f = std::fopen(path, "w");
    if (!f) return std::strerror(errno);
    std::fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", f);
    write_events(timeline, profile.clock_ghz, f);
    std::fprintf(f, "\n],\"otherData\":{\"summary\":%s}}\n", summary.c_str());
    std::fflush(f);
    const int error = std::ferror(f) ? errno : 0;
    if (std::fclose(f) == 0 && !error) return "";
    const std::string cause = std::strerror(error ? error : errno);
    // Half of a timeline must not stay. Devices and pipes do.
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path, ignored)) std::remove(path);
    return cause;
}

}  // namespace ascend_sim
