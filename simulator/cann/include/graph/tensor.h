// A tensor's sizes, as the tiling functions of library functions take them (tiling/tiling_api.h).
#pragma once

#include <cstdint>
#include <vector>

#include "graph/types.h"

namespace ge {

class Shape {
public:
    Shape() = default;
    explicit Shape(const std::vector<int64_t>& dims) : dims_(dims) {}
    size_t GetDimNum() const { return dims_.size(); }
    int64_t GetDim(size_t index) const { return index < dims_.size() ? dims_[index] : 0; }
    std::vector<int64_t> GetDims() const { return dims_; }
    // The number of elements; 0 without sizes or if it overflows, -1 if a size is not known.
    int64_t GetShapeSize() const {
        if (dims_.empty()) return 0;
        int64_t size = 1;
        for (int64_t dim : dims_) {
            if (dim < 0) return -1;
            if (__builtin_mul_overflow(size, dim, &size)) return 0;
        }
        return size;
    }

private:
    std::vector<int64_t> dims_;
};

}  // namespace ge
