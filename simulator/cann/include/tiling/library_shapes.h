// Shapes, the simulated SoC, and the classes of tiling data, for the tiling functions of library functions. The layout
// of the classes is that of the kernel's structs.
//
// Where CANN's function only logs an error and sets no result, the function here leaves its results unchanged.
#pragma once

#include <cstddef>

#include "graph/tensor.h"
#include "include/ascendc/library/tiling_structs.h"
#include "register/tilingdata_base.h"
#include "tiling/platform/platform_ascendc.h"

namespace AscendC {

using TensorShape = ge::Shape;
using TensorDataType = ge::DataType;

}  // namespace AscendC

namespace optiling {

#define ASCEND_SIM_FIELD(type, name) TILING_DATA_FIELD_DEF(type, name)
#define ASCEND_SIM_STRUCT(Name, fields) \
    BEGIN_TILING_DATA_DEF(Name)         \
    fields(ASCEND_SIM_FIELD) END_TILING_DATA_DEF
ASCEND_SIM_TILING_STRUCTS(ASCEND_SIM_STRUCT)
#undef ASCEND_SIM_STRUCT
#undef ASCEND_SIM_FIELD

// Under this name CANN registers the structs of its API, which a kernel has as AscendC::tiling::Name.
#define ASCEND_SIM_STRUCT(Name, fields) REGISTER_TILING_DATA_CLASS(Name##OpApi, Name)
ASCEND_SIM_TILING_STRUCTS(ASCEND_SIM_STRUCT)
#undef ASCEND_SIM_STRUCT

}  // namespace optiling

namespace ascend_sim::host {

#define ASCEND_SIM_FIELD(type, name) to.set_##name(from.name);
#define ASCEND_SIM_STRUCT(Name, fields)                                                                    \
    inline void assign(optiling::Name& to, const AscendC::tiling::Name& from) { fields(ASCEND_SIM_FIELD) } \
    inline void assign(AscendC::tiling::Name& to, const AscendC::tiling::Name& from) { to = from; }
ASCEND_SIM_TILING_STRUCTS(ASCEND_SIM_STRUCT)
#undef ASCEND_SIM_STRUCT
#undef ASCEND_SIM_FIELD

using Chip = platform_ascendc::PlatformAscendC;
using Soc = platform_ascendc::SocVersion;
inline bool is_310p(const Chip& chip) { return chip.GetSocVersion() == Soc::ASCEND310P; }
inline bool is_950(const Chip& chip) { return !is_310p(chip) && chip.GetSocVersion() != Soc::ASCEND910B; }
inline bool is_310p() {
    const Chip* const chip = platform_ascendc::PlatformAscendCManager::GetInstance();
    return chip && is_310p(*chip);
}
inline bool is_950() {
    const Chip* const chip = platform_ascendc::PlatformAscendCManager::GetInstance();
    return chip && is_950(*chip);
}

// The size of dimension i.
inline uint32_t size_of(const ge::Shape& shape, size_t i) { return static_cast<uint32_t>(shape.GetDim(i)); }
inline uint32_t elements_of(const ge::Shape& shape) { return static_cast<uint32_t>(shape.GetShapeSize()); }

// A shape as m rows of k elements; k is the last dimension.
struct Rows {
    uint32_t m = 0, k = 0;
};
inline Rows rows_of(const ge::Shape& shape) {
    Rows rows;
    if (shape.GetDimNum() == 0) return rows;
    rows.k = size_of(shape, shape.GetDimNum() - 1);
    rows.m = rows.k ? elements_of(shape) / rows.k : 0;
    return rows;
}

// Sets the two results of a function Get...MaxMinTmpSize().
template <class S>
void give(const S& sizes, uint32_t& most, uint32_t& least) {
    most = sizes.most;
    least = sizes.least;
}

}  // namespace ascend_sim::host
