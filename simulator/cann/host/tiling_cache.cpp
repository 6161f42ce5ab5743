#include "cann/host/tiling_cache.h"

#include <cstdlib>
#include <cstring>
#include <list>
#include <map>

#include "cann/locked.h"

namespace simulated_cann {
namespace {

size_t limit_of_environment() {
    constexpr size_t kDefault = 10000, kMost = 10000000;  // indv_args_pool.cpp
    const char* text = std::getenv("ACLNN_CACHE_LIMIT");
    if (!text) return kDefault;
    char* end = nullptr;
    const unsigned long long limit = std::strtoull(text, &end, 10);
    if (end == text) return kDefault;
    return limit < kMost ? static_cast<size_t>(limit) : kMost;
}

const size_t g_limit = limit_of_environment();

bool is_enabled() {
    static const bool enabled = [] {
        const char* disabled = std::getenv("DISABLE_L2_CACHE");
        return !disabled || std::strcmp(disabled, "1") != 0;
    }();
    return enabled && g_limit > 0;
}

struct Cache {
    std::list<std::string> order;  // most recently used first
    struct Entry {
        std::shared_ptr<const TilingResult> tiled;
        std::list<std::string>::iterator place;
    };
    std::map<std::string, Entry> entries;
};

template <typename T>
void append(std::string* text, T value) {
    text->append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

void TilingKey::tensor(int32_t dtype, int32_t format, const std::vector<int64_t>& shape,
                       const std::vector<int64_t>& strides, int64_t offset) {
    append(&text_, static_cast<uint8_t>(dtype));
    append(&text_, static_cast<uint8_t>(format));
    for (const std::vector<int64_t>* list : {&shape, &strides}) {
        append(&text_, static_cast<uint8_t>(list->size()));
        for (int64_t value : *list) append(&text_, value);
    }
    append(&text_, offset);
}

std::shared_ptr<const TilingResult> find_tiled(const std::string& key) {
    if (!is_enabled()) return nullptr;
    Locked<Cache> all;
    auto found = all->entries.find(key);
    if (found == all->entries.end()) return nullptr;
    all->order.splice(all->order.begin(), all->order, found->second.place);
    return found->second.tiled;
}

void store_tiling(const std::string& key, std::shared_ptr<const TilingResult> tiled) {
    if (!is_enabled()) return;
    Locked<Cache> all;
    if (all->entries.count(key)) return;
    while (all->entries.size() >= g_limit) {
        all->entries.erase(all->order.back());
        all->order.pop_back();
    }
    all->order.push_front(key);
    all->entries[key] = {std::move(tiled), all->order.begin()};
}

}  // namespace simulated_cann
