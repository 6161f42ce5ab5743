// The bytes that a tiling passes to its kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "graph/ge_error_codes.h"
#include "securec.h"

namespace gert {

class TilingData {
public:
    size_t GetCapacity() const { return capacity_; }
    size_t GetDataSize() const { return data_size_; }
    void SetDataSize(const size_t size) { data_size_ = size; }
    void* GetData() { return data_; }
    const void* GetData() const { return data_; }
    template <typename T, typename std::enable_if<std::is_standard_layout<T>::value, int>::type = 0>
    ge::graphStatus Append(const T& data) {
        void* to = Expand(sizeof data);
        if (to == nullptr) return ge::GRAPH_FAILED;
        std::memcpy(to, &data, sizeof data);
        return ge::GRAPH_SUCCESS;
    }
    template <typename T, typename std::enable_if<std::is_standard_layout<T>::value, int>::type = 0>
    ge::graphStatus Append(const T* data, size_t count) {
        size_t bytes = 0;
        void* to = __builtin_mul_overflow(sizeof(T), count, &bytes) ? nullptr : Expand(bytes);
        if (to == nullptr) return ge::GRAPH_FAILED;
        std::memcpy(to, data, bytes);
        return ge::GRAPH_SUCCESS;
    }
    // Null if the capacity is exceeded.
    void* Expand(size_t size) {
        if (size > capacity_ || data_size_ > capacity_ - size) return nullptr;
        void* at = static_cast<uint8_t*>(data_) + data_size_;
        data_size_ += size;
        return at;
    }
    void Init(const size_t capacity, void* const data) {
        capacity_ = capacity;
        data_size_ = 0;
        data_ = data;
    }

    TilingData() = default;
    TilingData(const TilingData&) = delete;
    TilingData& operator=(const TilingData&) = delete;

private:
    size_t capacity_ = 0;
    size_t data_size_ = 0;
    void* data_ = nullptr;
};

template <typename T>
TilingData& operator<<(TilingData& out, const T& data) {
    out.Append(data);
    return out;
}

}  // namespace gert
