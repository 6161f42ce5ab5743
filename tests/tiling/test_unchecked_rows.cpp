// Row numbers that the host has not checked before the launch, as on a device. rope_set_rows skips numbers outside the
// cache, writes all other rows and changes no other memory. rotary_mul with position_ids clamps numbers outside the
// tables to the nearest row. The test uses the real tiling and kernels.
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "ascend_sim.h"
#include "csrc/core/rope_check.h"
#include "op_host/rope_tiling.h"

using namespace npu_rope;

namespace {

constexpr int64_t kTokens = 40, kHeads = 3, kHeadSize = 64, kRow = kHeads * kHeadSize, kCacheRows = 50;
constexpr float kInitial = 7.0f;

Platform platform_of(int32_t arch, int32_t cores) {
    Platform platform{};
    platform.arch = arch;
    platform.cores = cores;
    platform.ub_bytes = 192 * 1024;
    return platform;
}

bool launch_kernel(const char* kernels, const std::string& entry, const char* soc, const KernelLaunch& launch,
                   const void* tiling, size_t tiling_bytes, std::vector<ascend_sim_memory> memories,
                   std::vector<ascend_sim_arg> arguments) {
    void* kernel = ascend_sim_find_kernel(kernels, entry.c_str());
    if (!kernel) {
        std::fprintf(stderr, "no kernel %s: %s\n", entry.c_str(), dlerror());
        return false;
    }
    ascend_sim_launch options = {};
    options.soc = soc;
    options.block_dim = launch.block_dim;
    options.tiling_key = launch.tiling_key;
    options.tiling = tiling;
    options.tiling_bytes = tiling_bytes;
    if (ascend_sim_run(kernel, memories.data(), int32_t(memories.size()), arguments.data(), int32_t(arguments.size()),
                       &options) == ASCEND_SIM_OK)
        return true;
    std::fprintf(stderr, "%s\n", ascend_sim_report());
    return false;
}

// Returns 0 if the kernel writes exactly the valid rows of the cache.
int scatter(const char* kernels, const char* soc, int32_t arch, int32_t cores) {
    std::vector<float> x(kTokens * kRow, 1.0f), cache(kCacheRows * kRow, kInitial);
    std::vector<int32_t> positions(kTokens, 0);  // an angle of 0 does not change the rows
    std::vector<int64_t> rows(kTokens);
    for (int64_t t = 0; t < kTokens; ++t) rows[t] = 2 * t - 15;  // -15, -13, ... 63
    rows[8] = int64_t{1} << 40;
    rows[9] = (int64_t{1} << 32) + 3;  // its low word is a valid row
    rows[10] = kCacheRows;             // the first invalid row
    for (int64_t t = 0; t < kTokens; ++t)
        for (int64_t i = 0; i < kRow; ++i) x[t * kRow + i] = static_cast<float>(t + 1);

    RopeTilingInput in;
    in.shape.S = kTokens, in.shape.D = kHeadSize, in.shape.cache_rows = kCacheRows;
    in.shape.side[0] = {kHeads, {0, kRow, kHeadSize}, {0, kRow, kHeadSize}, false};
    in.shape.pos_stride[1] = in.shape.row_stride[1] = 1;
    in.dtype = in.out_dtype = NPU_ROPE_FLOAT32;
    in.scatters = in.rows_int64 = true;
    in.params = {kHeadSize, NPU_ROPE_MODE_NEOX, 0, 0, 10000.0, 1.0, 0.0, 1.0, 32.0, 1.0, {}};
    RopeTilingData tiling;
    KernelLaunch launch;
    if (Check c = rope_tiling(in, platform_of(arch, cores), &tiling, &launch); !c.ok()) {
        std::fprintf(stderr, "%s\n", c.message().c_str());
        return 1;
    }
    std::string entry = "npu_rope_set_rows__" + std::string(soc) + "__float_int32_t_int64_t_float_float";
    if (!launch_kernel(kernels, entry, soc, launch, &tiling, sizeof tiling,
                       {{"x", x.data(), x.size() * 4, ASCEND_SIM_IN},
                        {"positions", positions.data(), positions.size() * 4, ASCEND_SIM_IN},
                        {"rows", rows.data(), rows.size() * 8, ASCEND_SIM_IN},
                        {"cache", cache.data(), cache.size() * 4, ASCEND_SIM_INOUT}},
                       {{0, 0}, {1, 0}, {2, 0}, {-1, 0}, {3, 0}, {3, 0}}))
        return 1;
    std::vector<float> expected(kCacheRows, kInitial);
    for (int64_t t = 0; t < kTokens; ++t)
        if (rows[t] >= 0 && rows[t] < kCacheRows) expected[rows[t]] = static_cast<float>(t + 1);
    int wrong = 0, valid_rows = 0;
    for (int64_t r = 0; r < kCacheRows; ++r) {
        valid_rows += expected[r] != kInitial;
        for (int64_t i = 0; i < kRow; ++i) wrong += cache[r * kRow + i] != expected[r];
    }
    std::printf("%s: %d rows of %d to write, %d elements wrong\n", soc, valid_rows, int(kCacheRows), wrong);
    return wrong != 0 || valid_rows < 20;
}

// Returns 0 if all results are right. Table row r holds cos = r + 1 and sin = 0; x is 1, so each result is the cosine
// of the token's row.
int gather(const char* kernels, const char* soc, int32_t arch, int32_t cores, int64_t width) {
    constexpr int64_t kTableRows = 9;
    int64_t row = kHeads * width;
    std::vector<float> x(kTokens * row, 1.0f), out(kTokens * row, kInitial);
    std::vector<float> cos(kTableRows * width / 2), sin(cos.size(), 0.0f);
    for (size_t i = 0; i < cos.size(); ++i) cos[i] = static_cast<float>(int64_t(i) / (width / 2) + 1);
    std::vector<int64_t> ids(kTokens);
    for (int64_t t = 0; t < kTokens; ++t) ids[t] = t - 15;  // -15 .. 24
    ids[1] = -(int64_t{1} << 40);
    ids[2] = (int64_t{1} << 32) + 3;  // its low word is a valid row
    ids[3] = INT64_MIN;
    RopeTilingInput in;
    in.shape.S = kTokens, in.shape.D = width;
    in.shape.side[0] = {kHeads, {0, row, width}, {0, row, width}, false};
    in.dtype = in.out_dtype = NPU_ROPE_FLOAT32;
    in.params.mode = NPU_ROPE_MODE_NEOX;
    in.params.n_dims = static_cast<int32_t>(width);
    in.tables.has_ids = in.tables.ids_int64 = true;
    in.tables.rows = kTableRows;
    in.tables.cos_stride[1] = in.tables.sin_stride[1] = width / 2;
    in.tables.id_stride[1] = 1;
    RotaryTilingData tiling;
    KernelLaunch launch;
    if (Check c = rotary_tiling(in, platform_of(arch, cores), &tiling, &launch); !c.ok()) {
        std::fprintf(stderr, "%s\n", c.message().c_str());
        return 1;
    }
    std::string entry = "npu_rotary_mul__" + std::string(soc) + "__float_float_float_int64_t_float";
    if (!launch_kernel(kernels, entry, soc, launch, &tiling, sizeof tiling,
                       {{"x", x.data(), x.size() * 4, ASCEND_SIM_IN},
                        {"cos", cos.data(), cos.size() * 4, ASCEND_SIM_IN},
                        {"sin", sin.data(), sin.size() * 4, ASCEND_SIM_IN},
                        {"position_ids", ids.data(), ids.size() * 8, ASCEND_SIM_IN},
                        {"out", out.data(), out.size() * 4, ASCEND_SIM_OUT}},
                       {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}}))
        return 1;
    int wrong = 0;
    for (int64_t t = 0; t < kTokens; ++t) {
        int64_t nearest = std::min(std::max<int64_t>(ids[t], 0), kTableRows - 1);
        for (int64_t i = 0; i < row; ++i) wrong += out[t * row + i] != static_cast<float>(nearest + 1);
    }
    std::printf("%s: rows of %d gathered for %d tokens, %d elements wrong\n", soc, int(kTableRows), int(kTokens),
                wrong);
    return wrong != 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    int failed = scatter(argv[1], "ascend910b", kArch910b, 48) + scatter(argv[1], "ascend310p", kArch310p, 8);
    for (int64_t width : {64, 20})  // table rows of whole 32-byte blocks, and of 40 bytes
        failed +=
            gather(argv[1], "ascend910b", kArch910b, 48, width) + gather(argv[1], "ascend310p", kArch310p, 8, width);
    return failed;
}
