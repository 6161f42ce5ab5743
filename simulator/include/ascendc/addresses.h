// Functions of CANN's internal headers that take addresses instead of tensors: TransDataTo5HDImpl, DuplicateImpl,
// DataCopyUB2GMImpl. Some kernels call them.
//
// An address belongs to the newest buffer that contains it. Each function executes the same instruction as the function
// that takes tensors: DuplicateImpl executes that of Duplicate. ASCEND_SIM_SITE declares the parameter `site`.
// Source: asc-devkit impl/basic_api/dav_c220 and dav_m200.
#pragma once

#include "ascendc/duplicate.h"
#include "ascendc/transpose.h"

namespace ascend_sim {

template <class T>
AscendC::LocalTensor<T> tensor_at(const T* address) {
    return AscendC::LocalTensor<T>(view_at(uintptr_t(address)));
}

}  // namespace ascend_sim

namespace AscendC {

template <class T>
void TransDataTo5HDImpl(T* dstList[NCHW_CONV_ADDR_LIST_SIZE], T* srcList[NCHW_CONV_ADDR_LIST_SIZE],
                        const TransDataTo5HDParams& transDataTo5HDParams, ASCEND_SIM_SITE) {
    ascend_sim::trans_data_to_5hd<T>(
        [&](bool is_dst, int i) { return ascend_sim::view_at(uintptr_t((is_dst ? dstList : srcList)[i])); },
        transDataTo5HDParams, site);
}

template <class T>
void DuplicateImpl(T* dst, const T scalarValue, const int32_t count, ASCEND_SIM_SITE) {
    Duplicate(ascend_sim::tensor_at(dst), scalarValue, count, site);
}

template <class T>
void DataCopyUB2GMImpl(T* dst, T* src, const DataCopyParams& intriParams, ASCEND_SIM_SITE) {
    GlobalTensor<T> tensor;
    tensor.SetGlobalBuffer(dst);
    DataCopy(tensor, ascend_sim::tensor_at(src), intriParams, site);
}

}  // namespace AscendC
