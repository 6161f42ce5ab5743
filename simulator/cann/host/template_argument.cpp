// Encoding of template arguments into a tiling key (asc-devkit include/utils/tiling/template_argument.h).
#include "ascendc/host_api/tiling/template_argument.h"

#include <string>

#include "cann/host/log.h"

extern "C" void DlogRecord(int32_t module, int32_t level, const char* format, ...);

namespace {

constexpr int32_t kModule = 63, kError = 3;

// The values of an unsigned number: a list, a number of ranges with both ends, or ranges and then a list.
std::vector<uint64_t> values_of(const std::vector<uint64_t>& given) {
    if (given.empty()) return {};
    if (given[0] == ASCENDC_TPL_UI_LIST) return {given.begin() + 1, given.end()};
    std::vector<uint64_t> values;
    const size_t ranges = given.size() > 1 ? static_cast<size_t>(given[1]) : 0;
    for (size_t i = 1; i <= ranges && 2 * i + 1 < given.size(); ++i)
        for (uint64_t value = given[2 * i]; value <= given[2 * i + 1]; ++value) values.push_back(value);
    const size_t list = 2 + 2 * ranges;
    if (given[0] == ASCENDC_TPL_UI_MIX && list < given.size())
        values.insert(values.end(), given.begin() + static_cast<std::ptrdiff_t>(list), given.end());
    return values;
}

}  // namespace

ParamStruct::ParamStruct(const char* name, uint32_t param_type, uint8_t bit_width, std::vector<uint64_t> values,
                         const char* macro_type)
    : name(name),
      paramType(param_type),
      bitWidth(bit_width),
      vals(param_type == ASCENDC_TPL_UINT ? values_of(values) : std::move(values)),
      macroType(macro_type) {}

namespace AscendC {

// Arguments beyond the declared ones are ignored, and absent ones encode 0, as in CANN.
uint64_t FastEncodeTilingKeyDirect(const TilingDeclareParams& declared, std::initializer_list<uint64_t> arguments) {
    uint64_t key = 0;
    uint32_t bits = 0;
    auto argument = arguments.begin();
    for (const ParamStruct& p : declared) {
        if (argument == arguments.end()) break;
        uint64_t value = *argument++;
        if (p.paramType == ASCENDC_TPL_UINT) {
            const auto found = std::find(p.vals.begin(), p.vals.end(), value);
            if (found == p.vals.end()) {
                DlogRecord(kModule, kError, "[sim] template argument %s must be declared but got %llu.", p.name,
                           static_cast<unsigned long long>(value));
                return INVALID_TILING_KEY;
            }
            value = static_cast<uint64_t>(found - p.vals.begin());
        }
        if (bits < 64) key |= value << bits;
        bits += p.bitWidth;
    }
    if (bits <= 64) return key;
    DlogRecord(kModule, kError, "[sim] template arguments must have at most 64 bits but got %u.", bits);
    return INVALID_TILING_KEY;
}

}  // namespace AscendC
