// Fuzz the tilings (op_host/*_tiling.h). The bytes make a call, and the checks of tests/tiling judge its tiling.
#include <cstdlib>

#include "tests/tiling/qk_square_sums_tiling_calls.h"
#include "tests/tiling/qkv_tiling_calls.h"
#include "tests/tiling/rms_norm_tiling_calls.h"
#include "tests/tiling/rope_tiling_calls.h"

constexpr int64_t kMostHeads = 6000;  // for speed

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
    Choices c(bytes, count);
    const int64_t tiling = c.up_to(3);
    const char* chip = c.one_of({"Ascend910B1", "Ascend910B3", "Ascend310P3", "Ascend310P1", "Ascend950PR_9589"});
    if (tiling == 0) rope_tilings::check_random_call(&c, chip, kMostHeads);
    if (tiling == 1) rms_norm_tilings::check_random_call(&c, chip);
    if (tiling == 2) qk_square_sums_tilings::check_random_call(&c, chip, kMostHeads);
    if (tiling == 3) qkv_tilings::check_random_call(&c, chip, kMostHeads);
    if (g_failures > 0) std::abort();
    return 0;
}
