// The GM addresses of the arguments of rms_norm, add_rms_norm and rms_norm_backward, and the function that runs their
// kernels.
#pragma once

#include "../rms_norm_tiling_data.h"
#include "kernel_operator.h"

namespace norm {

struct RmsNormArguments {
    GM_ADDR x;
    GM_ADDR residual;  // add_rms_norm only
    GM_ADDR scale;
    GM_ADDR out;
    GM_ADDR sum;  // add_rms_norm only
};

struct RmsNormBackwardArguments {
    GM_ADDR grad;
    GM_ADDR x;
    GM_ADDR scale;
    GM_ADDR dx;
    GM_ADDR dscale;
    GM_ADDR workspace;
};

template <typename Kernel, typename Arguments>
__aicore__ inline void RunKernel(const RmsNormTilingData* tiling, const Arguments& arguments) {
    AscendC::TPipe pipe;
    Kernel kernel;
    kernel.Run(&pipe, tiling, arguments);
}

// Runs the kernel for the launch's tiling key. Rows: kernel for rows that fit UB. LongRows: kernel for other rows. The
// keys are literals, because CANN's build reads them from the preprocessed source.
template <typename Rows, typename LongRows, typename Arguments>
__aicore__ inline void RunByKey(const RmsNormTilingData* tiling, const Arguments& arguments) {
    if (TILING_KEY_IS(1)) {
        RunKernel<Rows>(tiling, arguments);
    } else if (TILING_KEY_IS(2)) {
        RunKernel<LongRows>(tiling, arguments);
    }
}

static_assert(kRmsNormRows == 1 && kRmsNormLong == 2, "RunByKey has them as literals");

}  // namespace norm
