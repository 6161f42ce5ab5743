// Cache of tilings, with CANN's key of a call.
//
// CANN runs a tiling once for each key and reuses its result (opbase indv_args_pool.cpp, indv_cache_key_builder.cpp):
// a tiling must depend only on the contents of the key. The environment is read when the library is loaded
// (ACLNN_CACHE_LIMIT, the number of entries; 0 turns the cache off) and at the first call (DISABLE_L2_CACHE=1).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace simulated_cann {

struct TilingResult {
    uint64_t tiling_key = 0;
    uint32_t block_dim = 0;
    std::vector<uint8_t> tiling;
    std::vector<size_t> workspaces;
};

// Null if the cache has no tiling for the key.
std::shared_ptr<const TilingResult> find_tiled(const std::string& key);
void store_tiling(const std::string& key, std::shared_ptr<const TilingResult> tiled);

// Builds a key with the contents of CANN's key. Attributes are appended as bytes without their lengths. `chip` is a
// name and a number of cores; CANN appends only the number. The rank of a communicator and the level of determinism,
// which CANN also appends (NnopbaseMatchArgs), are not simulated.
class TilingKey {
public:
    explicit TilingKey(const std::string& op_type, const std::string& chip) : text_(op_type + '/' + chip + '/') {}
    void tensor(int32_t dtype, int32_t format, const std::vector<int64_t>& shape, const std::vector<int64_t>& strides,
                int64_t offset);
    void no_tensor() { text_ += '/'; }
    void separator() { text_ += '/'; }
    void attribute(const void* bytes, size_t count) { text_.append(static_cast<const char*>(bytes), count); }
    const std::string& text() const { return text_; }

private:
    std::string text_;
};

}  // namespace simulated_cann
