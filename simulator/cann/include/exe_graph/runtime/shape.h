// A tensor's sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iostream>
#include <limits>
#include <type_traits>
#include <vector>

namespace gert {

struct Shape {
public:
    static constexpr size_t kMaxDimNum = 25;
    static constexpr int64_t kInvalidDimValue = std::numeric_limits<int64_t>::min();

    Shape() = default;
    Shape(const std::initializer_list<int64_t>& sizes) {
        if (sizes.size() > kMaxDimNum) return;
        for (int64_t size : sizes) dims_[dim_num_++] = size;
    }
    bool operator==(const Shape& other) const {
        if (dim_num_ != other.dim_num_) return false;
        for (size_t i = 0; i < dim_num_; ++i)
            if (dims_[i] != other.dims_[i]) return false;
        return true;
    }
    bool operator!=(const Shape& other) const { return !(*this == other); }

    // The number of elements; kInvalidDimValue if it overflows.
    int64_t GetShapeSize() const {
        int64_t size = 1;
        for (size_t i = 0; i < dim_num_; ++i)
            if (__builtin_mul_overflow(size, dims_[i], &size)) return kInvalidDimValue;
        return size;
    }
    bool IsScalar() const { return dim_num_ == 0; }
    void SetScalar() { dim_num_ = 0; }
    size_t GetDimNum() const { return dim_num_; }
    void SetDimNum(const size_t dim_num) { dim_num_ = dim_num; }
    int64_t GetDim(const size_t index) const { return index < kMaxDimNum ? dims_[index] : kInvalidDimValue; }
    const int64_t& operator[](const size_t index) const { return dims_[index]; }
    int64_t& operator[](const size_t index) { return dims_[index]; }
    // Sets a size. As in CANN, a shorter shape is extended to only `index` dimensions, so it does not include the size.
    void SetDim(size_t index, const int64_t size) {
        if (index >= kMaxDimNum) return;
        dims_[index] = size;
        if (dim_num_ < index) dim_num_ = index;
    }
    Shape& AppendDim(const int64_t size) {
        if (dim_num_ < kMaxDimNum) dims_[dim_num_++] = size;
        return *this;
    }

private:
    size_t dim_num_ = 0;
    int64_t dims_[kMaxDimNum] = {};
};

}  // namespace gert
