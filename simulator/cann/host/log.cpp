#include "cann/host/log.h"

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "base/err_msg.h"

namespace simulated_cann {
namespace {

constexpr int32_t kError = 3;  // DLOG_ERROR, CANN's default level. Lines of lower levels are not recorded.

// g_lines are lines of the log, g_reports messages for the user. Most reports repeat a line of the log, so reports are
// used only if the log has no line.
thread_local std::vector<std::string> g_lines, g_reports;

std::string format_text(const char* format, va_list arguments) {
    char text[1024];
    std::vsnprintf(text, sizeof text, format, arguments);
    return text;
}

}  // namespace

std::vector<std::string> take_logged_errors() {
    std::vector<std::string> lines = std::exchange(g_lines, {}), reports = std::exchange(g_reports, {});
    return lines.empty() ? reports : lines;
}

std::string take_logged_error() {
    const std::vector<std::string> lines = take_logged_errors();
    return lines.empty() ? "" : lines.back();
}

}  // namespace simulated_cann

using namespace simulated_cann;

extern "C" {

int32_t CheckLogLevel(int32_t, int32_t level) { return level >= kError; }

int32_t AlogCheckDebugLevel(uint32_t, int32_t level) { return level >= kError; }

int32_t AlogRecord(uint32_t, uint32_t, int32_t level, const char* format, ...) {
    if (level < kError) return 0;
    va_list arguments;
    va_start(arguments, format);
    g_lines.push_back(format_text(format, arguments));
    va_end(arguments);
    return 0;
}

void DlogRecord(int32_t, int32_t level, const char* format, ...) {
    if (level < kError) return;
    va_list arguments;
    va_start(arguments, format);
    g_lines.push_back(format_text(format, arguments));
    va_end(arguments);
}

}  // extern "C"

namespace error_message {

int32_t RegisterFormatErrorMessage(const char*, size_t) { return 0; }

int32_t ReportInnerErrMsg(const char*, const char*, uint32_t, const char* error_code, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    g_reports.push_back(std::string(error_code) + ": " + format_text(format, arguments));
    va_end(arguments);
    return 0;
}

int32_t ReportUserDefinedErrMsg(const char* error_code, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    g_reports.push_back(std::string(error_code) + ": " + format_text(format, arguments));
    va_end(arguments);
    return 0;
}

int32_t ReportPredefinedErrMsg(const char* error_code, const std::vector<const char*>& key,
                               const std::vector<const char*>& value) {
    std::string text = std::string(error_code) + ":";
    for (size_t i = 0; i < key.size() && i < value.size(); ++i)
        text += (i ? ", " : " ") + std::string(key[i] ? key[i] : "") + " " + (value[i] ? value[i] : "");
    g_reports.push_back(text);
    return 0;
}

int32_t ReportPredefinedErrMsg(const char* error_code) { return ReportPredefinedErrMsg(error_code, {}, {}); }

}  // namespace error_message
