// Cache of the results of tilings. As in CANN, the key consists of a call's tensors and attributes.
//
// CANN runs a tiling once for each key and reuses its result (opbase indv_args_pool.cpp, indv_cache_key_builder.cpp).
// So a tiling must depend only on the contents of the key. The variable ACLNN_CACHE_LIMIT is the number of entries; 0
// turns the cache off. It is read when the library is loaded. DISABLE_L2_CACHE=1 also turns the cache off. This
// variable is read at the first call.
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
std::shared_ptr<const TilingResult> find_tiling(const std::string& key);
void store_tiling(const std::string& key, std::shared_ptr<const TilingResult> tiling);

// Builds a key with the contents of CANN's key. As in CANN, attributes are appended as bytes without their lengths.
// `platform` is the chip's name, its number of cores and the level of determinism; CANN appends no name. CANN also
// appends the rank of a communicator (NnopbaseMatchArgs), which is not simulated.
class TilingCacheKey {
public:
    explicit TilingCacheKey(const std::string& op_type, const std::string& platform)
        : text_(op_type + '/' + platform + '/') {}
    void add_tensor(int32_t dtype, int32_t format, const std::vector<int64_t>& shape,
                    const std::vector<int64_t>& strides, int64_t offset);
    void add_no_tensor() { text_ += '/'; }
    void add_separator() { text_ += '/'; }
    void add_attribute(const void* bytes, size_t count) { text_.append(static_cast<const char*>(bytes), count); }
    const std::string& text() const { return text_; }

private:
    std::string text_;
};

}  // namespace simulated_cann
