#include "cann/host/tiling_cache.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>

#include "cann/locked.h"

namespace simulated_cann {
namespace {

// hicann/opbase src/nnopbase/individual_op/executor/indv_args_pool.cpp, ArgsPool::GetCacheSizeLimit: the default for a
// text that std::stoull refuses, which includes a number that is too large for it.
size_t read_entry_limit() {
    constexpr size_t kDefaultLimit = 10000, kMaxLimit = 10000000;
    const char* text = std::getenv("ACLNN_CACHE_LIMIT");
    if (!text) return kDefaultLimit;
    char* end = nullptr;
    errno = 0;
    const unsigned long long limit = std::strtoull(text, &end, 10);
    if (end == text || errno == ERANGE) return kDefaultLimit;
    return limit < kMaxLimit ? static_cast<size_t>(limit) : kMaxLimit;
}

const size_t g_entry_limit = read_entry_limit();

bool is_enabled() {
    static const bool enabled = [] {
        const char* setting = std::getenv("DISABLE_L2_CACHE");
        return !setting || std::strcmp(setting, "1") != 0;
    }();
    return enabled && g_entry_limit > 0;
}

struct Cache {
    std::list<std::string> order;  // most recently used first
    struct Entry {
        std::shared_ptr<const TilingResult> tiling;
        std::list<std::string>::iterator order_position;
    };
    std::map<std::string, Entry> entries;
};

template <typename T>
void append(std::string* text, T value) {
    text->append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

void TilingCacheKey::add_tensor(int32_t dtype, int32_t format, const std::vector<int64_t>& shape,
                                const std::vector<int64_t>& strides, int64_t offset) {
    append(&text_, static_cast<uint8_t>(dtype));
    append(&text_, static_cast<uint8_t>(format));
    for (const std::vector<int64_t>* list : {&shape, &strides}) {
        append(&text_, static_cast<uint8_t>(list->size()));
        for (int64_t value : *list) append(&text_, value);
    }
    append(&text_, offset);
}

std::shared_ptr<const TilingResult> find_tiling(const std::string& key) {
    if (!is_enabled()) return nullptr;
    Locked<Cache> cache;
    auto found = cache->entries.find(key);
    if (found == cache->entries.end()) return nullptr;
    cache->order.splice(cache->order.begin(), cache->order, found->second.order_position);
    return found->second.tiling;
}

void store_tiling(const std::string& key, std::shared_ptr<const TilingResult> tiling) {
    if (!is_enabled()) return;
    Locked<Cache> cache;
    if (cache->entries.count(key)) return;
    while (cache->entries.size() >= g_entry_limit) {
        cache->entries.erase(cache->order.back());
        cache->order.pop_back();
    }
    cache->order.push_front(key);
    cache->entries[key] = {std::move(tiling), cache->order.begin()};
}

}  // namespace simulated_cann
