// CANN's error messages for the user (hicann/runtime include/dfx/base/err_msg.h). cann/host/log.cpp records them.
// Headers of operator libraries get the number of their module from this header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/log_types.h"

#define REPORT_INNER_ERR_MSG(error_code, format, ...) \
    (void)error_message::ReportInnerErrMsg(__FILE__, __FUNCTION__, __LINE__, (error_code), (format), ##__VA_ARGS__)
#define REPORT_USER_DEFINED_ERR_MSG(error_code, format, ...) \
    (void)error_message::ReportUserDefinedErrMsg((error_code), (format), ##__VA_ARGS__)
#define REPORT_PREDEFINED_ERR_MSG(...) error_message::ReportPredefinedErrMsg(__VA_ARGS__)
#define REG_FORMAT_ERROR_MSG(error_msg, error_msg_len) \
    REG_FORMAT_ERROR_MSG_UNIQ_HELPER((error_msg), (error_msg_len), __COUNTER__)
#define REG_FORMAT_ERROR_MSG_UNIQ_HELPER(error_msg, error_msg_len, counter) \
    REG_FORMAT_ERROR_MSG_UNIQ((error_msg), (error_msg_len), counter)
#define REG_FORMAT_ERROR_MSG_UNIQ(error_msg, error_msg_len, counter)                       \
    [[maybe_unused]] static const int32_t register_error_msg_##counter = []() -> int32_t { \
        return error_message::RegisterFormatErrorMessage((error_msg), (error_msg_len));    \
    }()

namespace error_message {

constexpr size_t const LIMIT_PER_MSG = 1024U;

// Receives the texts of predefined messages, as JSON, and ignores them. So a predefined message shows only its keys and
// values.
int32_t RegisterFormatErrorMessage(const char* error_msg, size_t error_msg_len);
int32_t ReportInnerErrMsg(const char* file_name, const char* func, uint32_t line, const char* error_code,
                          const char* format, ...) __attribute__((format(printf, 5, 6)));
int32_t ReportUserDefinedErrMsg(const char* error_code, const char* format, ...) __attribute__((format(printf, 2, 3)));
int32_t ReportPredefinedErrMsg(const char* error_code, const std::vector<const char*>& key,
                               const std::vector<const char*>& value);
int32_t ReportPredefinedErrMsg(const char* error_code);

}  // namespace error_message

namespace ge {
using error_message::ReportInnerErrMsg;
using error_message::ReportPredefinedErrMsg;
using error_message::ReportUserDefinedErrMsg;
}  // namespace ge
