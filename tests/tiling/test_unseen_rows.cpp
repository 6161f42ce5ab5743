// rope_set_rows where nobody looked at the rows before the launch, as on a device: rows that are no rows of
// the cache are left out, all others written, nothing else touched. Through the real tiling and kernel.
#include <dlfcn.h>

#include <cmath>
#include <cstdio>
#include <vector>

#include "op_host/rope_check.h"
#include "op_host/rope_tiling.h"
#include "simulator/include/npu_sim.h"

using namespace npu_rope;

namespace {

constexpr int64_t kTokens = 40, kHeads = 3, kHeadSize = 64, kRow = kHeads * kHeadSize, kCacheRows = 50;
constexpr float kUntouched = 7.0f;

int run(const char* kernels, const char* soc, int32_t arch, int32_t cores) {
    std::vector<float> x(kTokens * kRow, 1.0f), cache(kCacheRows * kRow, kUntouched);
    std::vector<int32_t> positions(kTokens, 0);  // an angle of 0: rows come through as they are
    std::vector<int64_t> rows(kTokens);
    for (int64_t t = 0; t < kTokens; ++t) rows[t] = 2 * t - 15;  // -15, -13, ... 63
    rows[8] = int64_t{1} << 40;
    rows[9] = (int64_t{1} << 32) + 3;  // its low word is a row
    rows[10] = kCacheRows;             // the first that is none
    for (int64_t t = 0; t < kTokens; ++t)
        for (int64_t i = 0; i < kRow; ++i) x[t * kRow + i] = static_cast<float>(t + 1);

    RopeTilingInput in;
    in.shape.S = kTokens, in.shape.D = kHeadSize, in.shape.cache_rows = kCacheRows;
    in.shape.side[0] = {kHeads, {0, kRow, kHeadSize}, {0, kRow, kHeadSize}, false};
    in.shape.pos_stride[1] = in.shape.row_stride[1] = 1;
    in.dtype = in.out_dtype = NPU_ROPE_FLOAT32;
    in.scatters = in.rows_int64 = true;
    in.params = {kHeadSize, NPU_ROPE_MODE_NEOX, 0, 0, 10000.0, 1.0, 0.0, 1.0, 32.0, 1.0, {}};
    Platform platform{};
    platform.arch = arch;
    platform.cores = cores;
    platform.ub_bytes = 192 * 1024;
    RopeTilingData tiling;
    RopeLaunch launch;
    if (Check c = rope_tiling(in, platform, &tiling, &launch); !c.ok()) {
        std::fprintf(stderr, "%s\n", c.message.c_str());
        return 1;
    }
    std::string entry = "npu_rope_set_rows__" + std::string(soc) + "__float_int32_t_int64_t_float_float";
    void* library = dlopen((std::string(kernels) + "/" + entry + ".so").c_str(), RTLD_LAZY | RTLD_LOCAL);
    void* kernel = library ? dlsym(library, entry.c_str()) : nullptr;
    if (!kernel) {
        std::fprintf(stderr, "no kernel %s: %s\n", entry.c_str(), dlerror());
        return 1;
    }
    npu_sim_memory memories[] = {{"x", x.data(), x.size() * 4, NPU_SIM_IN},
                                 {"positions", positions.data(), positions.size() * 4, NPU_SIM_IN},
                                 {"rows", rows.data(), rows.size() * 8, NPU_SIM_IN},
                                 {"cache", cache.data(), cache.size() * 4, NPU_SIM_INOUT}};
    npu_sim_arg arguments[] = {{0, 0}, {1, 0}, {2, 0}, {-1, 0}, {3, 0}, {3, 0}};
    npu_sim_launch how = {};
    how.soc = soc;
    how.block_dim = launch.block_dim;
    how.tiling_key = launch.tiling_key;
    how.tiling = &tiling;
    how.tiling_bytes = sizeof tiling;
    if (npu_sim_run(kernel, memories, 4, arguments, 6, &how) != NPU_SIM_OK) {
        std::fprintf(stderr, "%s\n", npu_sim_report());
        return 1;
    }
    std::vector<float> expected(kCacheRows, kUntouched);
    for (int64_t t = 0; t < kTokens; ++t)
        if (rows[t] >= 0 && rows[t] < kCacheRows) expected[rows[t]] = static_cast<float>(t + 1);
    int wrong = 0, written = 0;
    for (int64_t r = 0; r < kCacheRows; ++r) {
        written += expected[r] != kUntouched;
        for (int64_t i = 0; i < kRow; ++i) wrong += cache[r * kRow + i] != expected[r];
    }
    std::printf("%s: %d rows of %d written, %d elements wrong\n", soc, written, int(kCacheRows), wrong);
    return wrong != 0 || written < 20;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    int failed = run(argv[1], "ascend910b", kArch910b, 48);
    failed += run(argv[1], "ascend310p", kArch310p, 8);
    return failed;
}
