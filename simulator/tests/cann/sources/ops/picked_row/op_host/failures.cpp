#include "failures.h"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "base/dlog_pub.h"
#include "base/err_msg.h"

namespace optiling {

bool Succeeds(const gert::TilingContext* context, const char* how_it_fails) {
    const std::string how = how_it_fails;
    if (how == "two lines") {
        DlogRecord(63, DLOG_WARN, "a warning");
        DlogRecord(63, DLOG_ERROR, "%s is wrong", context->GetNodeName());
        DlogRecord(63, DLOG_ERROR, "so the call fails");
    }
    if (how == "a report") REPORT_USER_DEFINED_ERR_MSG("EZ9999", "x has %d rows", 3);
    if (how == "abort") {
        std::fprintf(stderr, "the tiling gives up\n");
        std::abort();
    }
    if (how == "exit") std::exit(7);
    if (how == "throw") throw std::runtime_error("thrown by the tiling");
    if (how == "output") std::printf("{\"tiling\": \"00\"}\n");
    return how.empty() || how == "output";
}

}  // namespace optiling
