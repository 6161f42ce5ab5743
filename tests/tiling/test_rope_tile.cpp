// The layout of UB for a tile of a rotation kernel, and the search for the best tile (op_host/rope_tile.h), for random
// calls.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "op_host/rope_tile.h"

using namespace npu_rope;

namespace {

const char* g_test = "";
int g_failures = 0;

constexpr int kCalls = 3000;
constexpr int64_t kMaxTileRows[] = {4095, 512};  // the largest tile, without and with a norm, in rows

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t n, int64_t multiple) { return ceil_div(n, multiple) * multiple; }

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

// A random call: computed or given tables, one or two sides, with or without a norm, and every way to copy tiles.
struct Case {
    explicit Case(Random* r) {
        call.common = &common;
        call.ub_bytes = r->one_of<int64_t>({184, 248, 248, 64}) * 1024;
        call.item_bytes = r->one_of<int64_t>({2, 2, 4});
        call.out_bytes = r->chance(4) ? 2 : call.item_bytes;
        call.key = r->one_of<int32_t>({kRopeHalves, kRopeSwapByShifts, kRopeSwapByGather});
        common.copy_mode = r->one_of<int32_t>({kCopyBursts, kCopyBursts, kCopyPacked, kCopyScalar});
        common.tokens_inner = r->chance(4);
        common.head_size =
            static_cast<int32_t>(r->chance(2) ? 64 * r->in(1, 16) : r->in(2, r->one_of<int64_t>({40, 1024})));
        common.row_pitch = static_cast<int32_t>(round_up(common.head_size, 32 / call.item_bytes));
        common.n_dims = static_cast<int32_t>(2 * r->in(1, common.head_size / 2));
        int64_t lanes = call.key == kRopeHalves ? common.n_dims / 2 : common.n_dims;
        common.table_width = static_cast<int32_t>(round_up(lanes, 8));
        set_tables(r);
        const int64_t first_heads = r->one_of<int64_t>({1, 2, 8, 13, 32, 71, 128, 3000});
        call.sides = call.normalizes || r->chance(3) ? 2 : 1;
        set_heads(common, {first_heads, call.sides == 2 ? r->one_of<int64_t>({0, 1, 2, 8, 33}) : 0});
        common.head_parts = static_cast<int32_t>(r->chance(2) ? 1 : r->in(1, std::max(1, common.heads / 4)));
        common.seq = r->one_of<int64_t>({1, 2, 3, 16, 17, 100, 301, 5000});
        common.rows = common.seq * r->one_of<int64_t>({1, 1, 3});
        common.row_granule = common.copy_mode == kCopyPacked ? r->one_of<int32_t>({1, 2, 16}) : 1;
        common.row_parts = static_cast<int32_t>(r->in(1, std::min<int64_t>(48, round_up(common.rows, 16) / 16)));
    }
    Case(const Case&) = delete;

    void set_tables(Random* r) {
        if (r->chance(3)) {
            call.entry_bytes = r->one_of<int64_t>({2, 4});
            call.entry_pitch = round_up(r->chance(2) ? common.n_dims : common.n_dims / 2, 32 / call.entry_bytes);
            return;
        }
        call.position_bytes = r->in(1, 4) * r->one_of<int64_t>({4, 8});
        call.normalizes = r->chance(3);
        call.normalizes_partners = call.normalizes && r->chance(2);
    }

    // Makes the call one of qkv_norm_rope_cache, with values of another size, narrower outputs and factors.
    void make_qkv(Random* r) {
        common.copy_mode = r->one_of<int32_t>({kCopyBursts, kCopyScalar});
        common.tokens_inner = 0;
        call.normalizes_partners = false;
        call.stores_any_type = true;
        call.out_bytes = call.item_bytes;
        call.buffers = r->in(2, 3);
        call.sides = r->in(2, 3);
        const int64_t values = call.sides == 3 ? r->one_of<int64_t>({1, 2, 8}) : 0;
        set_heads(common, {r->one_of<int64_t>({0, 2, 8, 71}), r->one_of<int64_t>({1, 8, 17}), values});
        common.head_parts = 1;
        if (values > 0) call.value_size = r->chance(4) ? 1 : r->in(1, 1024);
        if (call.normalizes && r->chance(2))
            call.whole_heads = heads_of_side(common, heads_of_side(common, 0) > 0 && r->chance(2) ? 0 : 1);
        for (int side = 0; side < call.sides; ++side)
            call.out_row_bytes[side] = round_up(std::max<int64_t>(1, side == 2 ? call.value_size : common.head_size) *
                                                    (side == 0 ? call.item_bytes : r->one_of<int64_t>({1, 2, 4})),
                                                32);
        call.factors.bytes = 32 * r->in(0, 100);
        call.factors.staging_bytes = 32 * r->in(0, 100);
        call.factors.streamed_head_bytes = r->chance(2) ? 32 * r->in(1, 50) : 0;
    }

    int64_t row_bytes() const { return common.row_pitch * call.item_bytes; }
    int64_t unit_heads() const { return (common.heads + common.head_parts - 1) / common.head_parts; }
    // The largest number of heads of one side in a unit.
    int64_t max_heads() const {
        return std::min(unit_heads(),
                        std::max({heads_of_side(common, 0), heads_of_side(common, 1), heads_of_side(common, 2)}));
    }
    RopeTile random_tile(Random* r) const {
        RopeTile tile;
        tile.heads = r->in(1, std::min<int64_t>(max_heads(), 512));
        tile.tokens =
            r->in(1, std::clamp<int64_t>(kMaxTileRows[call.normalizes] / tile.heads, 1, r->chance(2) ? 248 : 8));
        tile.table_tokens = r->one_of<int64_t>({1, 2, 4, 8, 16, 32, 64, 128});
        return tile;
    }

    CommonTiling common{};
    RopeTileCall call;
};

void check(bool holds, const char* condition, int line, const Case& c, const RopeTile& t) {
    if (holds) return;
    std::fprintf(stderr,
                 "%s:%d: %s: %s\n  tile %" PRId64 " x %" PRId64 " table %" PRId64 "; item %" PRId64
                 " key %d copy mode %d inner %d head size %d heads %d of %d in %d parts, rows %" PRId64 ", seq %" PRId64
                 "\n",
                 __FILE__, line, g_test, condition, t.tokens, t.heads, t.table_tokens, c.call.item_bytes, c.call.key,
                 c.common.copy_mode, c.common.tokens_inner, c.common.head_size, c.common.heads_end[0], c.common.heads,
                 c.common.head_parts, c.common.rows, c.common.seq);
    if (++g_failures > 10) std::exit(1);
}
#define CHECK(c, tile, condition) check(condition, #condition, __LINE__, c, tile)

// The layout for an unlimited UB.
RopeLayout unlimited_layout(const Case& c, const RopeTile& tile) {
    RopeTileCall call = c.call;
    call.ub_bytes = int64_t{1} << 40;
    return *layout_of(call, tile);
}

// ---- layout_of ------------------------------------------------------------------------------------

void regions_are_aligned_and_do_not_overlap() {
    Random random;
    int fitting = 0;
    for (int k = 0; k < kCalls; ++k) {
        const Case c(&random);
        const RopeTile tile = c.random_tile(&random);
        RopeLayout l = unlimited_layout(c, tile);
        int64_t end = 0;
        for (const UbRegion* a : l.regions()) {
            CHECK(c, tile, a->offset >= 0 && a->bytes >= 0 && a->offset % 32 == 0 && a->bytes % 32 == 0);
            for (const UbRegion* b : l.regions())
                CHECK(c, tile, a == b || a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset);
            end = std::max(end, a->offset + a->bytes);
        }
        // Only a layout that exceeds UB is refused, and the limit does not change a layout.
        std::optional<RopeLayout> limited = layout_of(c.call, tile);
        CHECK(c, tile, limited.has_value() == (end <= c.call.ub_bytes));
        RopeTileCall exact = c.call;
        exact.ub_bytes = end;
        CHECK(c, tile, layout_of(exact, tile).has_value());
        if (!limited) continue;
        ++fitting;
        for (size_t i = 0; i < l.regions().size(); ++i) {
            CHECK(c, tile, limited->regions()[i]->offset == l.regions()[i]->offset);
            CHECK(c, tile, limited->regions()[i]->bytes == l.regions()[i]->bytes);
        }
    }
    if (fitting < kCalls / 4 || fitting > kCalls * 9 / 10) {
        std::fprintf(stderr, "%s: %d of %d layouts fit\n", g_test, fitting, kCalls);
        ++g_failures;
    }
}

// op_kernel/rotation/ and op_kernel/norm/head_norm.h show how much memory the kernels use in each region.
void regions_are_as_large_as_the_kernels_need() {
    Random random;
    for (int k = 0; k < kCalls; ++k) {
        const Case c(&random);
        const RopeTile tile = c.random_tile(&random);
        const RopeLayout l = unlimited_layout(c, tile);
        const int64_t lanes = tile.rows() * c.common.row_pitch, table = 4 * l.block_tokens * c.common.table_width;
        const bool packed = c.common.copy_mode == kCopyPacked, given = c.call.entry_bytes > 0;
        CHECK(c, tile, l.inputs.bytes >= 2 * lanes * c.call.item_bytes && l.outputs.bytes == l.inputs.bytes);
        CHECK(c, tile, !packed || l.inputs.bytes / 2 >= l.tail_offset + 32 * tile.rows());
        // The work buffer: float32 rows, then the temporaries. Unpacked float32 rows stay in the queue.
        CHECK(c, tile, l.temp_offset % 32 == 0 && l.work.bytes >= l.temp_offset + 4 * lanes);
        CHECK(c, tile, l.temp_offset >= 4 * lanes || (c.call.item_bytes == 4 && c.call.out_bytes == 4 && !packed));
        CHECK(c, tile, l.cos_offset % 32 == 0 && l.cos_offset >= table && l.table.bytes >= l.cos_offset + table);
        CHECK(c, tile, l.block_tokens % tile.tokens == 0 && l.block_tokens <= 248);
        CHECK(c, tile, l.tile_tokens[0] == tile.tokens && l.tile_tokens[1] <= l.block_tokens);
        int64_t second_heads = std::min<int64_t>(heads_of_side(c.common, 1), tile.heads);
        CHECK(c, tile,
              (l.tile_tokens[1] >= 1) == (c.call.sides == 2) && l.tile_tokens[1] * second_heads <= tile.rows());
        const int64_t entries = l.block_tokens * c.call.entry_pitch * c.call.entry_bytes;
        CHECK(c, tile, l.source.bytes == (given ? 2 * entries : l.token_slots * c.call.position_bytes));
        CHECK(c, tile, (l.frequencies.bytes > 0) == !given);
        CHECK(c, tile, (l.entry_offsets.bytes > 0) == (given && c.call.key != kRopeHalves));
        CHECK(c, tile, (l.gather_offsets.bytes > 0) == (packed || c.call.key == kRopeSwapByGather));
        CHECK(c, tile, l.stats.bytes >= 48 * tile.rows() * c.call.normalizes);
        CHECK(c, tile, l.factors.bytes >= 4 * tile.rows() * c.call.normalizes_partners);
        CHECK(c, tile, (l.scales.bytes + l.raw_scales.bytes + l.stats.bytes > 0) == c.call.normalizes);
    }
}

// The distance of an operand that follows these bytes: half the bank groups.
int64_t in_other_banks(int64_t bytes) { return round_up(bytes, 512) + 256; }

// A region has no byte more than the kernels need.
void regions_are_no_larger_than_the_kernels_need() {
    Random random;
    for (int k = 0; k < kCalls; ++k) {
        Case c(&random);
        const bool qkv = random.chance(2);
        if (qkv) c.make_qkv(&random);
        const RopeTile tile = c.random_tile(&random);
        const RopeLayout l = unlimited_layout(c, tile);
        const RopeTileCall& call = c.call;
        const bool packed = c.common.copy_mode == kCopyPacked, gathers = call.key == kRopeSwapByGather;
        const bool given = call.entry_bytes > 0, halves = call.key == kRopeHalves;
        const int64_t rows = tile.rows(), width = c.common.table_width, item = call.item_bytes;
        const int64_t value_pitch = round_up(call.value_size, 32 / item);
        const int64_t lanes = rows * std::max<int64_t>(c.common.row_pitch, value_pitch);
        const int64_t out_row = *std::max_element(std::begin(call.out_row_bytes), std::end(call.out_row_bytes));
        CHECK(c, tile, l.buffers == call.buffers && l.tail_offset == lanes * item);
        CHECK(c, tile, l.inputs.bytes == call.buffers * (lanes * item + 32 * rows * packed));
        CHECK(c, tile, l.outputs.bytes == (qkv ? call.buffers * rows * out_row : l.inputs.bytes));
        const int64_t most_gathered = (c.common.row_pitch <= 256 ? 2048 : 1024) / c.common.row_pitch;
        CHECK(c, tile, l.gather_rows == (gathers || packed) * std::clamp<int64_t>(most_gathered, 1, rows));
        const int64_t gather_lanes = l.gather_rows * c.common.row_pitch;
        CHECK(c, tile, l.gather_offsets.bytes == 4 * (gather_lanes * (gathers + 2 * packed) + 16 * packed));
        CHECK(c, tile, l.setup_lanes == round_up(std::max({gather_lanes, width, int64_t{16}}), 8));
        CHECK(c, tile, l.token_slots == round_up(l.block_tokens, 64));
        CHECK(c, tile,
              l.frequencies.bytes == 16 * width * !given && l.cos_offset == in_other_banks(4 * l.block_tokens * width));
        CHECK(c, tile, l.table.bytes == l.cos_offset + 4 * l.block_tokens * width);
        CHECK(c, tile, l.entry_offsets.bytes == 12 * width * (given && !halves));
        const int64_t entries = l.block_tokens * call.entry_pitch;
        CHECK(c, tile,
              l.source.bytes == (given ? 2 * entries * call.entry_bytes : l.token_slots * call.position_bytes));
        const int64_t slots = round_up(rows, 64);
        CHECK(c, tile, l.stats.bytes == 48 * slots * call.normalizes);
        CHECK(c, tile, l.factors.bytes == 4 * slots * call.normalizes_partners);
        const int64_t scales = 2 * c.common.row_pitch * (call.normalizes && !qkv);
        CHECK(c, tile, l.scales.bytes == (qkv ? call.factors.bytes : 4 * scales * (1 + call.normalizes_partners)));
        CHECK(c, tile, l.raw_scales.bytes == (item == 4 ? 0 : 2 * scales));

        // The sum of two products: the second one begins half the bank groups from the first one.
        const int64_t half = halves ? c.common.n_dims / 2 * 4 % 512 : 0, distance = half == 256 ? 0 : 256;
        const bool in_work = item == 2 || (call.out_bytes == 2 && !qkv) || packed;
        CHECK(c, tile, in_work || (l.outputs.bytes + l.temp_offset) % 512 == distance);
        CHECK(c, tile, l.temp_offset == (in_work ? round_up(4 * lanes, 512) + distance : l.temp_offset % 512));
        const int64_t temp_end = (in_work ? l.temp_offset : 512) + 4 * lanes;
        const int64_t setup = 6 * l.setup_lanes + !given * 12 * round_up(c.common.n_dims / 2, 8);
        const int64_t table = given ? entries : 3 * l.block_tokens * width + 21 * l.token_slots;
        int64_t staging_offset = round_up(4 * std::max(table, setup), 32), staging = call.factors.staging_bytes;
        if (call.factors.streamed_head_bytes > 0) {
            staging_offset = std::max(staging_offset, round_up(temp_end, 32));
            staging = std::max(staging, tile.heads * call.factors.streamed_head_bytes);
        }
        CHECK(c, tile, l.staging_offset == staging_offset);
        CHECK(c, tile, l.work.bytes == std::max(temp_end, staging_offset + staging));
    }
}

// Each side fills the buffers of side 0 with its tokens. A block has as many tokens as a table is for, or those of the
// unit, and tiles of equal numbers of tokens.
void tiles_of_all_sides_fill_the_same_buffers() {
    Random random;
    int values = 0;
    for (int k = 0; k < kCalls; ++k) {
        Case c(&random);
        c.make_qkv(&random);
        const RopeTile tile = c.random_tile(&random);
        const RopeLayout l = unlimited_layout(c, tile);
        const int64_t out_bytes = l.outputs.bytes / l.buffers, lanes = l.tail_offset / c.call.item_bytes;
        const int64_t value_pitch = round_up(c.call.value_size, 32 / c.call.item_bytes);
        for (int side = 1; side < c.call.sides; ++side) {
            const int64_t heads = std::clamp<int64_t>(heads_of_side(c.common, side), 1, tile.heads);
            const auto fits = [&](int64_t tokens) {
                if (side < 2 || c.call.value_size == 0) return tokens * heads <= tile.rows();
                return tokens * heads <= 4095 && tokens * heads * value_pitch <= lanes &&
                       tokens * heads * c.call.out_row_bytes[side] <= out_bytes;
            };
            const int64_t tokens = l.tile_tokens[side], block = l.block_tokens;
            const int64_t tiles = (block + tokens - 1) / tokens;
            CHECK(c, tile, fits(tokens) && tokens <= block && tokens == (block + tiles - 1) / tiles);
            CHECK(c, tile, tiles == 1 || !fits((block + tiles - 2) / (tiles - 1)));
            values += side == 2;
        }
    }
    if (values < kCalls / 4) ++g_failures;
}

// The size of rotated heads has no effect on a call without them.
void values_alone_have_rows_of_their_size() {
    Random random;
    Case c(&random);
    c.make_qkv(&random);
    c.call.sides = 3;
    c.call.item_bytes = 2;
    c.call.normalizes = false;
    c.call.value_size = 64;
    c.call.out_row_bytes[2] = 64 * 2;
    c.common.head_size = c.common.row_pitch = 1024;
    set_heads(c.common, {0, 0, 8});
    const RopeTile tile{4, 8, 1};
    CHECK(c, tile, c.call.max_head_size() == 64 && c.call.max_row_pitch() == 64);
    CHECK(c, tile, unlimited_layout(c, tile).tail_offset == 4 * 8 * 64 * 2);
}

// A larger tile never needs less memory, except for tables: the tokens of a block are a multiple of the tile's, so a
// tile with more tokens may have smaller blocks.
void regions_grow_with_the_tile() {
    Random random;
    for (int k = 0; k < kCalls; ++k) {
        const Case c(&random);
        const RopeTile tile = c.random_tile(&random);
        RopeLayout l = unlimited_layout(c, tile);
        RopeTile more_heads = tile, more_tokens = tile, more_table = tile;
        more_heads.heads += random.in(1, 9);
        more_tokens.tokens = std::min<int64_t>(248, tile.tokens + random.in(1, 9));
        more_table.table_tokens *= 2;
        for (const RopeTile& larger_tile : {more_heads, more_tokens, more_table}) {
            RopeLayout larger = unlimited_layout(c, larger_tile);
            CHECK(c, larger_tile, larger_tile.tokens > tile.tokens || larger.block_tokens >= l.block_tokens);
            for (size_t i = 0; i < l.regions().size(); ++i)
                CHECK(c, larger_tile,
                      larger.block_tokens < l.block_tokens || larger.regions()[i]->bytes >= l.regions()[i]->bytes);
            CHECK(c, larger_tile, larger.inputs.bytes > l.inputs.bytes || larger_tile.rows() == tile.rows());
            CHECK(c, larger_tile,
                  larger.outputs.bytes >= l.outputs.bytes && larger.gather_offsets.bytes >= l.gather_offsets.bytes);
            CHECK(c, larger_tile, larger.stats.bytes >= l.stats.bytes && larger.factors.bytes >= l.factors.bytes);
        }
    }
}

// ---- the search -----------------------------------------------------------------------------------

bool same(const RopeTile& a, const RopeTile& b) {
    return a.tokens == b.tokens && a.heads == b.heads && a.table_tokens == b.table_tokens;
}

void no_candidate_that_fits_is_better() {
    Random random;
    int tiled = 0, refused = 0;
    for (int k = 0; k < kCalls; ++k) {
        const Case c(&random);
        std::vector<RopeTile> all = tile_candidates(c.call);
        random.shuffle(&all);
        const std::optional<RopeLayout> best = best_layout(c.call, all);
        bool any_fits = false, chosen_is_candidate = false;
        for (const RopeTile& tile : all) {
            const bool fits = layout_of(c.call, tile).has_value();
            any_fits |= fits;
            refused += !fits;
            if (!fits || !best) continue;
            chosen_is_candidate |= same(tile, best->tile);
            const RopeTile& chosen = best->tile;
            CHECK(c, tile, tile.table_tokens <= chosen.table_tokens);
            CHECK(c, tile, tile.table_tokens < chosen.table_tokens || tile.rows() <= chosen.rows());
        }
        CHECK(c, RopeTile{}, best.has_value() == any_fits);
        if (!best) continue;
        CHECK(c, best->tile, chosen_is_candidate);
        ++tiled;
    }
    if (tiled < kCalls * 8 / 10 || refused < kCalls) {
        std::fprintf(stderr, "%s: %d of %d calls have a tile, %d candidates do not fit\n", g_test, tiled, kCalls,
                     refused);
        ++g_failures;
    }
}

void candidates_are_within_the_unit_and_the_instructions() {
    Random random;
    for (int k = 0; k < kCalls; ++k) {
        const Case c(&random);
        const std::vector<RopeTile> all = tile_candidates(c.call);
        int64_t max_rows = 0;
        for (const RopeTile& tile : all) max_rows = std::max(max_rows, tile.rows());
        // Runs of one head: each has at least three quarters of the last one.
        const bool one_head = c.common.tokens_inner && c.max_heads() == 1 && c.common.copy_mode != kCopyPacked;
        for (size_t i = 1; i < all.size() && one_head; ++i)
            CHECK(c, all[i],
                  all[i].table_tokens != all[i - 1].table_tokens || all[i].rows() >= all[i - 1].rows() * 3 / 4);
        for (const RopeTile& tile : all) {
            CHECK(c, tile, tile.tokens >= 1 && tile.tokens <= std::min<int64_t>(248, c.common.seq));
            CHECK(c, tile, tile.heads >= 1 && tile.heads <= c.max_heads() && tile.table_tokens >= 1);
            CHECK(c, tile, tile.rows() <= kMaxTileRows[c.call.normalizes]);
            // Runs of a packed tile have at least 32 bytes.
            for (const int64_t heads : {heads_of_side(c.common, 0), heads_of_side(c.common, 1)}) {
                if (heads == 0) continue;
                const int64_t last = (heads - 1) % tile.heads + 1;
                CHECK(c, tile,
                      c.common.copy_mode != kCopyPacked || last * c.common.head_size * c.call.item_bytes >= 32);
            }
            // Small tiles have the smallest table, unless the unit has no larger tiles. With tokens_inner the number of
            // heads is rounded down, so a tile may have little more than half of its candidate's rows.
            const int64_t small = c.common.tokens_inner ? 2048 : 4096;
            CHECK(c, tile, tile.table_tokens == 1 || tile.rows() * c.row_bytes() >= small || tile.rows() == max_rows);
        }
    }
}

// With the smallest table, each division of a token's heads into equal parts (rounded up) gives a candidate, from 16
// KiB down to a single head. A token of at least three times 16 KiB and a row has no larger parts, but for the whole.
void candidates_have_every_equal_part_of_a_tokens_heads() {
    Random random;
    int long_tokens = 0;
    for (int k = 0; k < kCalls; ++k) {
        const Case c(&random);
        if (c.common.copy_mode == kCopyPacked || c.common.tokens_inner || c.common.heads > 200) continue;
        const std::vector<RopeTile> all = tile_candidates(c.call);
        for (int64_t heads = 1; heads <= c.max_heads(); ++heads) {
            const int64_t parts = (c.max_heads() + heads - 1) / heads;
            const RopeTile tile{1, (c.max_heads() + parts - 1) / parts, 1};
            if (tile.rows() > kMaxTileRows[c.call.normalizes] || tile.rows() * c.row_bytes() > 16 * 1024) continue;
            CHECK(c, tile, std::any_of(all.begin(), all.end(), [&](const RopeTile& t) { return same(t, tile); }));
        }
        const int64_t row_bytes = c.call.max_row_pitch() * c.call.item_bytes;
        const int64_t parts = c.max_heads() * row_bytes / (16 * 1024 + row_bytes);
        if (parts <= 2 || c.call.whole_heads > 0) continue;
        ++long_tokens;
        for (const RopeTile& tile : all)
            CHECK(c, tile, tile.heads == c.max_heads() || tile.heads <= ceil_div(c.max_heads(), parts));
    }
    if (long_tokens < kCalls / 100) ++g_failures;
}

// The largest table and the preferred tile of a call, in rows and in tokens (op_host/tile_preferences.h).
struct Preferred {
    explicit Preferred(const Case& c) {
        const RopeTileCall& call = c.call;
        const int64_t granules = ceil_div(c.common.rows, c.common.row_granule);
        const int64_t unit_rows =
            std::min(c.common.rows, ceil_div(granules, c.common.row_parts) * c.common.row_granule);
        max_tokens = std::min({unit_rows, c.common.seq, int64_t{248}});
        const bool is_vector_bound = call.normalizes || call.key == kRopeSwapByGather;
        const int64_t block_tokens = is_vector_bound ? 16 : 8;
        const int64_t block_rows = call.normalizes || call.key != kRopeHalves ? 256 : 128;
        max_table = std::clamp(block_rows / c.unit_heads(), block_tokens, 4 * block_tokens);
        const int64_t work = unit_rows * c.unit_heads() * call.max_head_size() * call.item_bytes;
        const int64_t bytes = std::clamp<int64_t>(work / 4, is_vector_bound ? 8192 : 4096, 16384);
        row_bytes = call.max_row_pitch() * call.item_bytes;
        rows = bytes / row_bytes;
        tokens = std::clamp<int64_t>(ceil_div(bytes, c.max_heads() * row_bytes), 1, max_tokens);
    }

    int64_t max_tokens, max_table, rows, row_bytes, tokens;
};

// The first candidate with each table has the preferred size. Each candidate of at least 4 KiB is one with each table,
// and each call has a candidate of one row.
void candidates_have_every_table_and_the_preferred_size() {
    Random random;
    for (int k = 0; k < kCalls; ++k) {
        Case c(&random);
        if (random.chance(3)) c.make_qkv(&random);
        if (c.common.copy_mode == kCopyPacked) continue;
        const Preferred preferred(c);
        const std::vector<RopeTile> all = tile_candidates(c.call);
        const auto has = [&](const RopeTile& tile) {
            const bool is_allowed = tile.rows() <= kMaxTileRows[c.call.normalizes] && tile.heads >= c.call.whole_heads;
            return !is_allowed || std::any_of(all.begin(), all.end(), [&](const RopeTile& t) { return same(t, tile); });
        };
        int64_t max_table = 0;
        for (const RopeTile& tile : all) max_table = std::max(max_table, tile.table_tokens);
        const bool runs = c.common.tokens_inner != 0;
        CHECK(c, RopeTile{}, max_table <= preferred.max_table * (c.call.normalizes && !runs ? 2 : 1));
        CHECK(c, RopeTile{}, has({1, std::max<int64_t>(1, c.call.whole_heads), 1}));
        for (int64_t table = preferred.max_table; table >= 1; table /= 2) {
            RopeTile first{preferred.tokens, c.max_heads(), table};
            if (runs) {
                const int64_t least = std::max(table, 8192 / preferred.row_bytes);
                const int64_t parts = std::max<int64_t>(1, preferred.max_tokens / least);
                first.tokens = std::min(preferred.rows, ceil_div(preferred.max_tokens, parts));
                first.heads = std::min(c.max_heads(), preferred.rows / first.tokens);
            }
            CHECK(c, first, has(first));
            for (RopeTile tile : all) {
                if (tile.rows() * preferred.row_bytes < 4096) continue;
                if (runs && std::max(table, tile.table_tokens) * preferred.row_bytes > 8192) continue;  // longer runs
                tile.table_tokens = table;
                CHECK(c, tile, has(tile));
            }
        }
        const RopeTile fewer_tables{preferred.tokens, c.max_heads(), 2 * preferred.max_table};
        CHECK(c, fewer_tables, !c.call.normalizes || runs || has(fewer_tables));
    }
}

// A tile of just the heads that are normalized together is a candidate with each table, from 4 KiB on.
void candidates_have_the_heads_that_are_normalized_together() {
    Random random;
    Case c(&random);
    c.make_qkv(&random);
    c.common.n_dims = c.common.table_width = c.common.head_size = c.common.row_pitch = 128;
    c.common.rows = c.common.seq = 1000;
    c.common.row_parts = c.common.row_granule = 1;
    c.common.copy_mode = kCopyBursts;
    c.call.item_bytes = 2;
    c.call.key = kRopeHalves;
    c.call.normalizes = true;
    c.call.sides = 2;
    c.call.value_size = 0;
    for (const int64_t fewer : {15, 16, 17}) {  // no equal parts of 40 heads have these sizes
        set_heads(c.common, {40, fewer, 0});
        c.call.whole_heads = fewer;
        const std::vector<RopeTile> all = tile_candidates(c.call);
        for (const int64_t table : {1, 16}) {
            const RopeTile tile{1, fewer, table};
            const bool has = std::any_of(all.begin(), all.end(), [&](const RopeTile& t) { return same(t, tile); });
            CHECK(c, tile, has == (table == 1 || fewer * 128 * 2 >= 4096));
        }
    }
}

// Makes the call one of ten tokens with rows of 32 bytes.
void make_short_rows(Case* c, int32_t copy_mode) {
    c->call.item_bytes = c->call.out_bytes = 2;
    c->call.key = kRopeHalves;
    c->call.sides = 1;
    c->call.normalizes = c->call.normalizes_partners = false;
    c->common.copy_mode = copy_mode;
    c->common.tokens_inner = 0;
    c->common.rows = c->common.seq = 10;
    c->common.row_parts = c->common.head_parts = c->common.row_granule = 1;
    c->common.n_dims = 4;
    c->common.table_width = 8;
    c->common.head_size = c->common.row_pitch = 16;
}

// A run of a packed tile has at least 32 bytes.
void packed_runs_of_32_bytes_are_candidates() {
    Random random;
    Case c(&random);
    make_short_rows(&c, kCopyPacked);
    for (const int32_t head_size : {3, 4, 5}) {  // four heads have 24, 32 and 40 bytes
        c.common.head_size = head_size;
        set_heads(c.common, {4, 0, 0});
        CHECK(c, RopeTile{}, tile_candidates(c.call).empty() == (head_size == 3));
    }
}

void the_largest_tile_is_a_candidate() {
    Random random;
    Case c(&random);
    make_short_rows(&c, kCopyBursts);
    for (const bool normalizes : {false, true}) {
        c.call.normalizes = normalizes;
        for (const int64_t more : {0, 1}) {
            const int64_t heads = kMaxTileRows[normalizes] + more;
            set_heads(c.common, {heads, 0, 0});
            const std::vector<RopeTile> all = tile_candidates(c.call);
            const RopeTile tile{1, heads, 1};
            const bool has = std::any_of(all.begin(), all.end(), [&](const RopeTile& t) { return same(t, tile); });
            CHECK(c, tile, has == (more == 0));
        }
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
    TEST(tiles_of_all_sides_fill_the_same_buffers),
    TEST(values_alone_have_rows_of_their_size),
    TEST(regions_grow_with_the_tile),
    TEST(no_candidate_that_fits_is_better),
    TEST(candidates_are_within_the_unit_and_the_instructions),
    TEST(candidates_have_every_equal_part_of_a_tokens_heads),
    TEST(candidates_have_every_table_and_the_preferred_size),
    TEST(candidates_have_the_heads_that_are_normalized_together),
    TEST(packed_runs_of_32_bytes_are_candidates),
    TEST(the_largest_tile_is_a_candidate),
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
