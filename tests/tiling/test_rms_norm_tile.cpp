// The layout of UB for a tile of a norm's kernel, and the search for the best tile (op_host/rms_norm_tile.h), for
// random calls.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "op_host/rms_norm_tile.h"

using namespace npu_rope;

namespace {

const char* g_test = "";
int g_failures = 0;

constexpr int kCalls = 3000;

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

class Random {
public:
    int64_t in(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }
    bool chance(int one_in) { return in(1, one_in) == 1; }
    template <typename T>
    T one_of(std::initializer_list<T> all) {
        return all.begin()[in(0, static_cast<int64_t>(all.size()) - 1)];
    }
    template <typename T>
    void shuffle(std::vector<T>* all) {
        std::shuffle(all->begin(), all->end(), engine_);
    }

private:
    std::mt19937_64 engine_{20261123};
};

// A random call of rms_norm, add_rms_norm or rms_norm_backward.
struct Case {
    explicit Case(Random* r) {
        call.common = &common;
        call.ub_bytes = r->one_of<int64_t>({184, 248, 248, 64}) * 1024;
        call.n = r->chance(2) ? r->in(1, 600) : r->in(600, r->one_of<int64_t>({17'000, 300'000}));
        call.x_bytes = r->one_of<int64_t>({2, 4});
        call.out_bytes = r->one_of<int64_t>({2, 4});
        call.backward = r->chance(3);
        call.adds = !call.backward && r->chance(2);
        call.scale_shared = call.backward || !r->chance(4);
        call.scale_pitch = round_up(call.n, 32 / call.out_bytes);
        common.copy_mode = r->one_of<int32_t>({kCopyBursts, kCopyBursts, kCopyPacked, kCopyScalar});
        const int64_t narrower = std::min(call.x_bytes, call.out_bytes);
        const bool packed = common.copy_mode == kCopyPacked;
        common.row_pitch = static_cast<int32_t>(round_up(call.n, 32 / (packed ? narrower : call.x_bytes)));
        common.out_pitch = static_cast<int32_t>(round_up(call.n, 32 / (packed ? narrower : call.out_bytes)));
        common.tokens_inner = r->chance(3);
        common.heads = static_cast<int32_t>(r->in(1, r->one_of<int64_t>({1, 9, 3000})));
        common.seq = r->in(1, r->one_of<int64_t>({1, 9, 3000}));
        common.rows = common.seq * r->in(1, 3);
        common.row_parts = static_cast<int32_t>(r->in(1, std::min<int64_t>(48, common.rows)));
        common.head_parts = static_cast<int32_t>(r->in(1, std::min<int64_t>(4, common.heads)));
    }
    Case(const Case&) = delete;

    RmsNormTile random_tile(Random* r) const {
        RmsNormTile tile;
        if (call.n > 5000 || r->chance(3)) {
            tile.chunk = 16 * r->in(1, 256);
            tile.keeps_row = r->chance(2);
            tile.keeps_scale = tile.keeps_row && (call.backward || call.scale_shared) && r->chance(2);
            return tile;
        }
        tile.heads = r->in(1, std::min<int64_t>(common.heads, 512));
        tile.tokens = r->in(1, std::clamp<int64_t>(20'000 / (call.n * tile.heads), 1, 512 / tile.heads));
        return tile;
    }
    std::vector<RmsNormTile> candidates(bool chunks) const { return chunks ? chunk_tiles(call) : row_tiles(call); }

    CommonTiling common{};
    RmsNormTileCall call;
};

void check(bool holds, const char* condition, int line, const Case& c, const RmsNormTile& t) {
    if (holds) return;
    std::fprintf(stderr,
                 "%s:%d: %s: %s\n  tile %" PRId64 " x %" PRId64 " chunk %" PRId64 " keeps %d %d; n %" PRId64
                 " bytes %" PRId64 " and %" PRId64 " copy mode %d adds %d backward %d rows %" PRId64 " heads %d\n",
                 __FILE__, line, g_test, condition, t.tokens, t.heads, t.chunk, t.keeps_row, t.keeps_scale, c.call.n,
                 c.call.x_bytes, c.call.out_bytes, c.common.copy_mode, c.call.adds, c.call.backward, c.common.rows,
                 c.common.heads);
    if (++g_failures > 10) std::exit(1);
}
#define CHECK(c, tile, condition) check(condition, #condition, __LINE__, c, tile)

// The layout for an unlimited UB.
RmsNormLayout unlimited_layout(const Case& c, const RmsNormTile& tile) {
    RmsNormTileCall call = c.call;
    call.ub_bytes = int64_t{1} << 40;
    return *layout_of(call, tile);
}

// Whether the offset is the first or the second one after the end that is half the bank groups from a multiple of them.
bool is_next_half(int64_t offset, int64_t end) { return offset % 512 == 256 && offset >= end && offset < end + 768; }

// ---- layout_of ------------------------------------------------------------------------------------

void regions_are_aligned_and_do_not_overlap() {
    Random random;
    int fitting = 0;
    for (int k = 0; k < kCalls; ++k) {
        const Case c(&random);
        const RmsNormTile tile = c.random_tile(&random);
        RmsNormLayout l = unlimited_layout(c, tile);
        int64_t end = 0;
        for (const UbRegion* a : l.regions()) {
            CHECK(c, tile, a->offset >= 0 && a->bytes >= 0 && a->offset % 32 == 0 && a->bytes % 32 == 0);
            for (const UbRegion* b : l.regions())
                CHECK(c, tile, a == b || a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset);
            end = std::max(end, a->offset + a->bytes);
        }
        // A region of two buffers has two aligned halves.
        for (const UbRegion* two : {&l.inputs, &l.outputs, &l.residuals, &l.sums, &l.grads})
            CHECK(c, tile, two->bytes % 64 == 0);
        // Only a layout that exceeds UB is refused.
        CHECK(c, tile, layout_of(c.call, tile).has_value() == (end <= c.call.ub_bytes));
        fitting += end <= c.call.ub_bytes;
        RmsNormTileCall call = c.call;
        call.ub_bytes = end;
        CHECK(c, tile, layout_of(call, tile).has_value());
    }
    if (fitting < kCalls / 4 || fitting > kCalls * 9 / 10) {
        std::fprintf(stderr, "%s: %d of %d layouts fit\n", g_test, fitting, kCalls);
        ++g_failures;
    }
}

// op_kernel/norm/*_kernel.h show how much memory the kernels use in each region.
void regions_are_as_large_as_the_kernels_need() {
    Random random;
    for (int k = 0; k < kCalls; ++k) {
        const Case c(&random);
        const RmsNormTile tile = c.random_tile(&random);
        const RmsNormLayout l = unlimited_layout(c, tile);
        const bool chunked = tile.chunk > 0, packed = !chunked && c.common.copy_mode == kCopyPacked;
        const bool backward = c.call.backward;
        const int64_t lanes = chunked ? tile.chunk : tile.rows() * c.common.row_pitch;
        const int64_t out_lanes = chunked ? tile.chunk : tile.rows() * c.common.out_pitch;
        const int64_t x_bytes = lanes * c.call.x_bytes, out_bytes = out_lanes * c.call.out_bytes;
        CHECK(c, tile, l.inputs.bytes >= 2 * x_bytes && l.outputs.bytes >= 2 * (backward ? x_bytes : out_bytes));
        CHECK(c, tile, l.sums.bytes == l.residuals.bytes && l.sums.bytes >= 2 * x_bytes * c.call.adds);
        CHECK(c, tile, (l.sums.bytes > 0) == c.call.adds && (l.grads.bytes > 0) == backward);
        CHECK(c, tile, l.grads.bytes >= 2 * out_bytes * backward);
        CHECK(c, tile, !packed || l.inputs.bytes / 2 >= l.tail_offset + 32 * tile.rows());
        CHECK(c, tile, l.stats.bytes >= 4 * (12 + 10 * backward) * tile.rows());
        CHECK(c, tile, (l.gather_offsets.bytes > 0) == packed && (l.raw_scale.bytes > 0) == (c.call.out_bytes == 2));
        if (chunked) {
            // A row's last chunk takes as much of UB as the others.
            const int64_t row = round_up(c.call.n, tile.chunk);
            CHECK(c, tile, (backward ? l.dscale : l.row).bytes >= 4 * (tile.keeps_row ? row : tile.chunk));
            CHECK(c, tile, l.scale.bytes >= 4 * (tile.keeps_scale ? row : tile.chunk));
            CHECK(c, tile, l.work.bytes >= 4 * ((2 + backward) * tile.chunk + (1 + backward) * l.levels * 64));
            CHECK(c, tile, row / tile.chunk < int64_t{1} << l.levels);
            continue;
        }
        CHECK(c, tile, l.tail_offset % 32 == 0);
        // The work buffer: float32 rows of x and of grad, then the temporaries. Unpacked float32 rows stay in the
        // queue. Two that follow each other begin half the bank groups apart.
        const bool rows_in_queue = c.call.x_bytes == 4 && !packed;
        const int64_t rows_bytes = backward ? l.g_offset : l.temp_offset;
        CHECK(c, tile, l.g_offset % 32 == 0 && l.temp_offset % 32 == 0 && (rows_bytes >= 4 * lanes || rows_in_queue));
        CHECK(c, tile, rows_in_queue ? rows_bytes == 0 : is_next_half(rows_bytes, 4 * lanes));
        CHECK(c, tile, !backward || is_next_half(l.temp_offset, l.g_offset + 4 * out_lanes));
        CHECK(c, tile, l.work.bytes >= l.temp_offset + 4 * lanes);
        CHECK(c, tile, l.dscale.bytes >= 4 * c.call.n * backward && l.row.bytes == 0 && l.levels == 0);
        CHECK(c, tile, l.scale.bytes >= 4 * c.call.n * (c.call.scale_shared ? 1 : tile.rows()));
    }
}

// A region has no byte more than the kernels need, apart from the buffers of a chunk, which are 32 bytes longer.
void regions_are_no_larger_than_the_kernels_need() {
    Random random;
    for (int k = 0; k < kCalls; ++k) {
        const Case c(&random);
        const RmsNormTile tile = c.random_tile(&random);
        const RmsNormLayout l = unlimited_layout(c, tile);
        const bool chunked = tile.chunk > 0, packed = !chunked && c.common.copy_mode == kCopyPacked;
        const int64_t rows = tile.rows(), chunks = chunked ? (c.call.n + tile.chunk - 1) / tile.chunk : 0;
        const int64_t lanes = chunked ? tile.chunk : rows * c.common.row_pitch;
        const int64_t out_lanes = chunked ? tile.chunk : rows * c.common.out_pitch;
        const int64_t x_bytes = lanes * c.call.x_bytes, out_bytes = out_lanes * c.call.out_bytes;
        const int64_t widest = std::max(x_bytes, out_bytes), tails = chunked ? 32 : 32 * rows;
        auto two = [&](int64_t bytes) { return 2 * (packed ? widest + tails : chunked ? bytes + tails : bytes); };
        const bool backward = c.call.backward;
        CHECK(c, tile, l.inputs.bytes == two(backward ? x_bytes : widest) && l.outputs.bytes == l.inputs.bytes);
        CHECK(c, tile, l.residuals.bytes == (c.call.adds ? two(x_bytes) : 0));
        CHECK(c, tile, l.grads.bytes == (backward ? two(out_bytes) : 0));
        CHECK(c, tile, l.tail_offset == (packed || (!chunked && !backward) ? widest : 0));
        const int64_t gather_rows = packed ? std::clamp<int64_t>(2048 / c.common.row_pitch, 1, rows) : 0;
        const int64_t gather_lanes = gather_rows * c.common.row_pitch;
        CHECK(c, tile, l.gather_rows == gather_rows);
        CHECK(c, tile, l.setup_lanes == (packed ? round_up(std::max<int64_t>(gather_lanes, 16), 8) : 0));
        CHECK(c, tile, l.gather_offsets.bytes == (packed ? 8 * (2 * gather_lanes + 16) : 0));
        CHECK(c, tile, l.stats.bytes == 4 * (12 + 10 * backward) * round_up(rows, 64));
        const int64_t kept = tile.keeps_scale ? chunks * tile.chunk : tile.chunk;
        const int64_t scales = chunked ? kept : (c.call.scale_shared ? 1 : rows) * c.call.scale_pitch;
        CHECK(c, tile, l.scale.bytes == 4 * scales);
        CHECK(c, tile, l.raw_scale.bytes == (c.call.out_bytes == 4 ? 0 : 2 * (chunked ? tile.chunk : scales)));
        const int64_t row = !chunked ? c.common.row_pitch : tile.keeps_row ? chunks * tile.chunk : tile.chunk;
        CHECK(c, tile, l.dscale.bytes == (backward ? 4 * (row + 16) : 0));
        CHECK(c, tile, l.row.bytes == (chunked && !backward ? 4 * row : 0));
        if (chunked) {
            CHECK(c, tile, chunks >= int64_t{1} << (l.levels - 1));
            const int64_t sums = ((1 + backward) * l.levels + 1) * 64;
            CHECK(c, tile, l.work.bytes == 4 * ((2 + backward) * tile.chunk + sums + 8 + 2 * 16));
            continue;
        }
        const int64_t narrow = backward ? std::min(c.call.x_bytes, c.call.out_bytes) : c.call.x_bytes;
        const int64_t temps = 4 * lanes + (packed && narrow == 2 ? 2 * lanes : 0);
        CHECK(c, tile, l.work.bytes == std::max(l.temp_offset + temps, 24 * l.setup_lanes));
    }
}

// ---- the search -----------------------------------------------------------------------------------

void no_candidate_that_fits_is_better() {
    Random random;
    int tiled = 0, refused = 0;
    for (int k = 0; k < kCalls; ++k) {
        const Case c(&random);
        std::vector<RmsNormTile> all = c.candidates(c.call.n > 5000 && (c.call.n > 16'384 || random.chance(2)));
        random.shuffle(&all);
        const std::optional<RmsNormLayout> best = best_layout(c.call, all);
        bool any_fits = false;
        for (const RmsNormTile& tile : all) {
            const bool fits = layout_of(c.call, tile).has_value();
            any_fits |= fits;
            refused += !fits;
            if (!fits || !best) continue;
            const RmsNormTile& chosen = best->tile;
            CHECK(c, tile, tile.keeps_row + tile.keeps_scale <= chosen.keeps_row + chosen.keeps_scale);
            CHECK(c, tile,
                  tile.keeps_row < chosen.keeps_row || tile.keeps_scale < chosen.keeps_scale ||
                      (tile.chunk <= chosen.chunk && tile.rows() <= chosen.rows()));
        }
        CHECK(c, RmsNormTile{}, best.has_value() == any_fits);
        tiled += best.has_value();
    }
    if (tiled < kCalls * 8 / 10 || refused < kCalls / 2) {
        std::fprintf(stderr, "%s: %d of %d calls have a tile, %d candidates do not fit\n", g_test, tiled, kCalls,
                     refused);
        ++g_failures;
    }
}

void candidates_are_within_the_unit_and_the_instructions() {
    Random random;
    for (int k = 0; k < kCalls; ++k) {
        const Case c(&random);
        const int64_t unit_rows = (c.common.rows + c.common.row_parts - 1) / c.common.row_parts;
        const int64_t unit_heads = (c.common.heads + c.common.head_parts - 1) / c.common.head_parts;
        const std::vector<RmsNormTile> rows = c.candidates(false);
        CHECK(c, RmsNormTile{}, !rows.empty() && rows.back().rows() == 1);
        for (size_t i = 1; i < rows.size() && unit_heads == 1; ++i)  // each has at least three quarters of the last one
            CHECK(c, rows[i], rows[i].rows() >= rows[i - 1].rows() * 3 / 4);
        // Bytes of a quarter of a core's rows, from 4 to 16 KiB.
        const int64_t row_bytes = c.common.row_pitch * c.call.x_bytes;
        const int64_t bytes = std::clamp<int64_t>(unit_rows * unit_heads * row_bytes / 4, 4096, 16384);
        for (const RmsNormTile& tile : rows) {
            CHECK(c, tile, (tile.rows() - 1) * row_bytes < bytes);
            CHECK(c, tile, tile.tokens >= 1 && tile.tokens <= std::min(unit_rows, c.common.seq));
            CHECK(c, tile, tile.heads >= 1 && tile.heads <= unit_heads && tile.rows() <= 512 && tile.chunk == 0);
        }
        if (c.call.n < 16) continue;  // such rows are never split
        const std::vector<RmsNormTile> chunks = c.candidates(true);
        CHECK(c, chunks.back(), chunks.back().chunk <= 512 && chunks.front().chunk > 4096 - 64);
        for (const RmsNormTile& tile : chunks) {
            const int64_t last = (c.call.n - 1) % tile.chunk + 1;
            CHECK(c, tile, tile.rows() == 1 && tile.chunk >= 16 && tile.chunk <= 4096 && tile.chunk % 16 == 0);
            CHECK(c, tile, last >= 16);  // a DMA's 32 bytes
            CHECK(c, tile, !tile.keeps_scale || (tile.keeps_row && (c.call.backward || c.call.scale_shared)));
        }
    }
}

// A tile of more than 4 rows is followed by one with three quarters of them, rounded down.
void candidates_have_fewer_and_fewer_rows() {
    Random random;
    Case c(&random);
    c.call.x_bytes = 2;
    c.common.row_pitch = 1700;  // a tile of 16 KiB has 5 rows
    c.common.rows = c.common.seq = 4096;
    c.common.heads = c.common.row_parts = c.common.head_parts = 1;
    std::vector<int64_t> rows;
    for (const RmsNormTile& tile : c.candidates(false)) rows.push_back(tile.rows());
    CHECK(c, RmsNormTile{}, rows == std::vector<int64_t>({5, 3, 2, 1}));
}

void a_last_chunk_has_at_least_16_elements() {
    Random random;
    Case c(&random);
    for (const int64_t whole : {4096, 8192})
        for (const int64_t rest : {15, 16, 17}) {
            c.call.n = whole + rest;
            const RmsNormTile first = c.candidates(true).front();
            CHECK(c, first, first.chunk == (rest < 16 ? 4080 : 4096));
        }
}

struct Test {
    const char* name;
    void (*run)();
};
#define TEST(function) {#function, function}

constexpr Test kTests[] = {
    TEST(regions_are_aligned_and_do_not_overlap),
    TEST(regions_are_as_large_as_the_kernels_need),
    TEST(regions_are_no_larger_than_the_kernels_need),
    TEST(no_candidate_that_fits_is_better),
    TEST(candidates_are_within_the_unit_and_the_instructions),
    TEST(candidates_have_fewer_and_fewer_rows),
    TEST(a_last_chunk_has_at_least_16_elements),
};

}  // namespace

int main() {
    for (const Test& test : kTests) {
        g_test = test.name;
        test.run();
    }
    std::printf("%zu tests, %d failure(s)\n", sizeof kTests / sizeof *kTests, g_failures);
    return g_failures == 0 ? 0 : 1;
}
