// Error messages of rule violations.
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "src/core.h"

namespace ascend_sim {
namespace {

struct RuleRow {
    const char* id;
    bool only_warns;
};

constexpr RuleRow kRules[] = {
#define ASCEND_SIM_RULE(name, id, text, basis) {id, false},
#define ASCEND_SIM_ADVICE(name, id, text, basis) {id, true},
    ASCEND_SIM_RULES(ASCEND_SIM_RULE, ASCEND_SIM_ADVICE)
#undef ASCEND_SIM_ADVICE
#undef ASCEND_SIM_RULE
};

void add_report(Rule rule, const char* api, Site site, bool can_continue, const char* format, va_list args) {
    char text[1024];
    std::vsnprintf(text, sizeof text, format, args);
    Machine& m = machine();
    Report report = report_of(rule, api, site, m.core, text);
    const bool warns = kRules[int(rule)].only_warns || is_lenient(m.options.lenient, rule);
    if (!can_continue || !warns) {
        m.errors.push_back(std::move(report));
        throw Stop{};
    }
    // A line of the kernel reports each rule once. Init03 is reported for each output.
    for (const Report& w : m.warnings)
        if (w.rule == rule && w.file == report.file && w.line == report.line &&
            (rule != Rule::Init03 || w.text == report.text))
            return;
    m.warnings.push_back(std::move(report));
}

}  // namespace

Report report_of(Rule rule, const char* api, Site site, int64_t core, const char* message) {
    const std::string place = where(site) + ", core " + std::to_string(core) + ", " + api;
    return {rule, std::string(rule_id(rule)) + " " + place + ": " + message, site.file, site.line, core};
}

const char* rule_id(Rule rule) { return kRules[int(rule)].id; }
bool is_lenient(const std::set<std::string>& lenient, Rule rule) {
    return lenient.count("all") || lenient.count(rule_id(rule));
}
bool is_rule(const std::string& id) {
    return std::any_of(std::begin(kRules), std::end(kRules), [&](const RuleRow& row) { return id == row.id; });
}

const char* pipe_name(Pipe pipe) {
    constexpr const char* kNames[kPipes] = {"S", "V", "MTE2", "MTE3"};
    return kNames[int(pipe)];
}

std::string where(Site site) {
    const char* slash = std::strrchr(site.file, '/');
    return std::string(slash ? slash + 1 : site.file) + ":" + std::to_string(site.line);
}

void broken(Rule rule, const char* format, ...) {
    Machine& m = machine();
    va_list args;
    va_start(args, format);
    // va_end is not reached if add_report throws. It does nothing on the supported platforms.
    add_report(rule, m.running ? m.current.api : "kernel", m.current.site, true, format, args);
    va_end(args);
}

void broken_at(Rule rule, const char* api, Site site, const char* format, ...) {
    va_list args;
    va_start(args, format);
    add_report(rule, api, site, true, format, args);
    va_end(args);
}

void fatal_at(Rule rule, const char* api, Site site, const char* format, ...) {
    va_list args;
    va_start(args, format);
    add_report(rule, api, site, false, format, args);
    va_end(args);
    throw Stop{};  // not reached, because add_report throws
}

}  // namespace ascend_sim
