// ShapeInfo: a tensor's shape, which kernels pass to library functions.
//
// Rules: at most eight dimensions.
// Source: the page ShapeInfo.
#pragma once

#include "ascendc/types.h"

#define K_MAX_SHAPE_DIM 8

namespace AscendC {

constexpr int32_t K_MAX_DIM = K_MAX_SHAPE_DIM;

enum class DataFormat : uint8_t { ND = 0, NZ, NCHW, NC1HWC0, NHWC };

struct ShapeInfo {
    ShapeInfo() = default;
    ShapeInfo(const uint8_t inputShapeDim, const uint32_t inputShape[], const uint8_t inputOriginalShapeDim,
              const uint32_t inputOriginalShape[], const DataFormat inputFormat, ASCEND_SIM_SITE)
        : shapeDim(inputShapeDim), originalShapeDim(inputOriginalShapeDim), dataFormat(inputFormat) {
        copy(shape, inputShape, shapeDim, site);
        copy(originalShape, inputOriginalShape, originalShapeDim, site);
    }
    ShapeInfo(const uint8_t inputShapeDim, const uint32_t inputShape[], const DataFormat inputFormat, ASCEND_SIM_SITE)
        : ShapeInfo(inputShapeDim, inputShape, inputShapeDim, inputShape, inputFormat, site) {}
    ShapeInfo(const uint8_t inputShapeDim, const uint32_t inputShape[], ASCEND_SIM_SITE)
        : ShapeInfo(inputShapeDim, inputShape, DataFormat::ND, site) {}

    uint8_t shapeDim = 0, originalShapeDim = 0;
    uint32_t shape[K_MAX_DIM] = {}, originalShape[K_MAX_DIM] = {};
    DataFormat dataFormat = DataFormat::ND;

private:
    static void copy(uint32_t* to, const uint32_t* from, uint8_t& dimensions, ascend_sim::Site site) {
        if (dimensions > K_MAX_DIM) {
            ascend_sim::broken_at(ascend_sim::Rule::Count04, "ShapeInfo", site,
                                  "a shape has at most %d dimensions but got %d.", K_MAX_DIM, int(dimensions));
            dimensions = K_MAX_DIM;
        }
        for (int i = 0; i < dimensions; ++i) to[i] = from[i];
    }
};

// The product of the dimensions.
inline int GetShapeSize(const ShapeInfo& shapeInfo) {
    int size = 1;
    for (int i = 0; i < shapeInfo.shapeDim; ++i) size *= int(shapeInfo.shape[i]);
    return size;
}

}  // namespace AscendC
