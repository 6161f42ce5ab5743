// Compares results of library functions with formulas in double.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "instruction_bench.h"

namespace bench {

template <class T>
constexpr double kEpsilon = std::is_same_v<T, float> ? 0x1p-24 : 0x1p-11;  // relative error of a rounding to nearest
template <class T>
std::string type_name() {
    return std::is_same_v<T, float> ? "float" : "half";
}

// Checks for each element that |got - want| <= epsilon * (relative * |want| + absolute) + extra. A NaN in want allows
// any value.
template <class T>
void near(const std::string& what, const std::vector<T>& got, const std::vector<double>& want, double relative,
          double absolute = 0, double extra = 0) {
    check(got.size() == want.size(), what + ": number of elements");
    double worst = 0, scale = 0;
    for (size_t i = 0; i < want.size(); ++i) {
        if (std::isnan(want[i])) continue;
        const double g = double(float(got[i])), error = std::fabs(g - want[i]);
        worst = std::max(worst, error);
        scale = std::max(scale, std::fabs(want[i]));
        if (!(error <= kEpsilon<T> * (relative * std::fabs(want[i]) + absolute) + extra))
            return check(false, what + ": element " + std::to_string(i) + " is " + std::to_string(g) + ", not " +
                                    std::to_string(want[i]));
    }
    if (std::getenv("ASCEND_SIM_SHOW_ERRORS")) std::printf("%-40s %9.2e of %9.2e\n", what.c_str(), worst, scale);
}

}  // namespace bench
