// The chain of steps that delayed a core's end, as JSON of the summary.
#include <algorithm>
#include <array>
#include <cstring>

#include "src/core.h"
#include "src/json.h"

namespace ascend_sim {
namespace {

constexpr size_t kLongest = 10;

const char* kind_name(StepKind kind) {
    constexpr const char* kNames[] = {"issue", "work", "port", "memory", "latency", "event", "barrier", "other cores"};
    return kNames[int(kind)];
}

// Steps with the same pipe, instruction name and kind.
struct Part {
    Pipe pipe;
    const char* api;
    StepKind kind;
    uint64_t count = 0;
    double cycles = 0;
};

Json described(Pipe pipe, const char* api, StepKind kind) {
    Json j;
    j.field("pipe", pipe_name(pipe)).field("api", api).field("what", kind_name(kind));
    return j;
}

std::vector<Part> parts_of(const std::vector<Step>& path) {
    std::vector<Part> parts;
    for (const Step& s : path) {
        auto same = [&s](const Part& p) { return p.pipe == s.pipe && p.kind == s.kind && !std::strcmp(p.api, s.api); };
        auto part = std::find_if(parts.begin(), parts.end(), same);
        if (part == parts.end()) part = parts.insert(part, {s.pipe, s.api, s.kind});
        part->count++;
        part->cycles += s.end - s.begin;
    }
    std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.cycles > b.cycles; });
    return parts;
}

}  // namespace

std::string critical_path_json(const std::vector<Step>& path, int64_t core) {
    std::array<double, kPipes> by_pipe{};
    for (const Step& s : path) by_pipe[size_t(s.pipe)] += s.end - s.begin;
    std::vector<Step> longest = path;
    std::stable_sort(longest.begin(), longest.end(),
                     [](const Step& a, const Step& b) { return a.end - a.begin > b.end - b.begin; });
    longest.resize(std::min(longest.size(), kLongest));

    Json pipes, j;
    for (int p = 0; p < kPipes; ++p) pipes.field(pipe_name(Pipe(p)), by_pipe[size_t(p)]);
    j.field("core", double(core)).field("cycles", path.empty() ? 0.0 : path.back().end);
    j.field("steps", double(path.size())).raw("pipes", pipes.done());
    j.raw("parts", json_list(parts_of(path), [](const Part& p) {
              return described(p.pipe, p.api, p.kind).field("count", double(p.count)).field("cycles", p.cycles).done();
          }));
    j.raw("longest", json_list(longest, [](const Step& s) {
              return described(s.pipe, s.api, s.kind)
                  .field("line", where(s.site))
                  .field("begin", s.begin)
                  .field("cycles", s.end - s.begin)
                  .done();
          }));
    return j.done();
}

}  // namespace ascend_sim
