// Layout of a list attribute: capacity and size, then the elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "graph/ge_error_codes.h"

namespace gert {

class ContinuousVector {
public:
    template <typename T>
    static std::unique_ptr<uint8_t[]> Create(const size_t capacity) {
        auto holder = std::make_unique<uint8_t[]>(sizeof(ContinuousVector) + capacity * sizeof(T));
        reinterpret_cast<ContinuousVector*>(holder.get())->Init(capacity);
        return holder;
    }
    void Init(const size_t capacity) {
        capacity_ = capacity;
        size_ = 0;
    }
    size_t GetSize() const { return size_; }
    ge::graphStatus SetSize(const size_t size) {
        if (size > capacity_) return ge::GRAPH_FAILED;
        size_ = size;
        return ge::GRAPH_SUCCESS;
    }
    size_t GetCapacity() const { return capacity_; }
    const void* GetData() const { return this + 1; }
    void* MutableData() { return this + 1; }

private:
    size_t capacity_;
    size_t size_;
};

template <typename T>
class TypedContinuousVector : private ContinuousVector {
public:
    using ContinuousVector::GetCapacity;
    using ContinuousVector::GetSize;
    using ContinuousVector::SetSize;
    T* MutableData() { return static_cast<T*>(ContinuousVector::MutableData()); }
    const T* GetData() const { return static_cast<const T*>(ContinuousVector::GetData()); }
};

}  // namespace gert
