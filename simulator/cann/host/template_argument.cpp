// Encoding of template arguments into a tiling key (asc-devkit include/utils/tiling/template_argument.h).
#include "ascendc/host_api/tiling/template_argument.h"

#include <string>

#include "base/dlog_pub.h"

namespace {

constexpr int32_t kModule = OP, kLevel = DLOG_ERROR;  // arguments of CANN's log

// Returns the values that a declaration of an unsigned argument allows. The first element is the kind of the
// declaration. After ASCENDC_TPL_UI_LIST, the values follow. Otherwise the number of ranges and both ends of each range
// follow; after ASCENDC_TPL_UI_MIX, single values follow the ranges.
std::vector<uint64_t> expand_values(const std::vector<uint64_t>& given) {
    if (given.empty()) return {};
    if (given[0] == ASCENDC_TPL_UI_LIST) return {given.begin() + 1, given.end()};
    std::vector<uint64_t> values;
    const size_t range_count = given.size() > 1 ? static_cast<size_t>(given[1]) : 0;
    for (size_t i = 1; i <= range_count && 2 * i + 1 < given.size(); ++i)
        for (uint64_t value = given[2 * i]; value <= given[2 * i + 1]; ++value) values.push_back(value);
    const size_t list_begin = 2 + 2 * range_count;
    if (given[0] == ASCENDC_TPL_UI_MIX && list_begin < given.size())
        values.insert(values.end(), given.begin() + static_cast<std::ptrdiff_t>(list_begin), given.end());
    return values;
}

}  // namespace

ParamStruct::ParamStruct(const char* name, uint32_t param_type, uint8_t bit_width, std::vector<uint64_t> values,
                         const char* macro_type)
    : name(name),
      paramType(param_type),
      bitWidth(bit_width),
      vals(param_type == ASCENDC_TPL_UINT ? expand_values(values) : std::move(values)),
      macroType(macro_type) {}

namespace AscendC {

// As in CANN, arguments beyond the declared ones are ignored, and absent ones are encoded as 0.
uint64_t FastEncodeTilingKeyDirect(const TilingDeclareParams& declared, std::initializer_list<uint64_t> arguments) {
    uint64_t key = 0;
    uint32_t used_bits = 0;
    auto argument = arguments.begin();
    for (const ParamStruct& param : declared) {
        if (argument == arguments.end()) break;
        uint64_t value = *argument++;
        if (param.paramType == ASCENDC_TPL_UINT) {
            const auto found = std::find(param.vals.begin(), param.vals.end(), value);
            if (found == param.vals.end()) {
                DlogRecord(kModule, kLevel, "[sim] template argument %s must be declared but got %llu.", param.name,
                           static_cast<unsigned long long>(value));
                return INVALID_TILING_KEY;
            }
            value = static_cast<uint64_t>(found - param.vals.begin());
        }
        if (used_bits < 64) key |= value << used_bits;
        used_bits += param.bitWidth;
    }
    if (used_bits <= 64) return key;
    DlogRecord(kModule, kLevel, "[sim] template arguments must have at most 64 bits but got %u.", used_bits);
    return INVALID_TILING_KEY;
}

}  // namespace AscendC
