// The addresses in GM of the arguments of rms_norm, add_rms_norm and rms_norm_backward.
#pragma once

#include "kernel_operator.h"

namespace norm {

struct RmsNormArguments {
    GM_ADDR x;
    GM_ADDR residual;  // residual and sum: add_rms_norm only
    GM_ADDR scale;
    GM_ADDR out;
    GM_ADDR sum;
};

struct RmsNormBackwardArguments {
    GM_ADDR grad;
    GM_ADDR x;
    GM_ADDR scale;
    GM_ADDR dx;
    GM_ADDR dscale;
};

}  // namespace norm
