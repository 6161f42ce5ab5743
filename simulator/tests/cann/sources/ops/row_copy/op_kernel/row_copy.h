// Part of another operator, which PickedRow's kernel includes.
#pragma once

#include "kernel_operator.h"

template <typename T>
__aicore__ inline void CopyRow(const AscendC::LocalTensor<T>& to, const AscendC::GlobalTensor<T>& from,
                               uint32_t count) {
    AscendC::DataCopyExtParams copy{1, static_cast<uint32_t>(count * sizeof(T)), 0, 0, 0};
    AscendC::DataCopyPadExtParams<T> pad{false, 0, 0, 0};
    AscendC::DataCopyPad(to, from, copy, pad);
}

template <typename T>
__aicore__ inline void CopyRow(const AscendC::GlobalTensor<T>& to, const AscendC::LocalTensor<T>& from,
                               uint32_t count) {
    AscendC::DataCopyExtParams copy{1, static_cast<uint32_t>(count * sizeof(T)), 0, 0, 0};
    AscendC::DataCopyPad(to, from, copy);
}
