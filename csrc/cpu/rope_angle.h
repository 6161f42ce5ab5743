// Convert rope's attributes to constants, from which a token's tables of cos and sin are computed for each angle
// policy. Formulas: specs/ggml_rope_acltensor.txt sections 1, 2 and 5.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "csrc/core/check.h"
#include "csrc/core/rope_frequency.h"
#include "csrc/cpu/rope_kernels.h"
#include "include/npu_rope.h"

namespace npu_rope {

// A token's positions, one per axis. They are equal in the modes without sections.
struct TokenPosition {
    int64_t on_axis[kRopeAxes];
    bool operator==(const TokenPosition& other) const {
        return std::equal(on_axis, on_axis + kRopeAxes, other.on_axis);
    }
};

// A token's float32 tables.
struct TokenTables {
    float *natural_cos, *natural_sin, *ordered_cos, *ordered_sin;  // the latter in the order of a kernel
    bool is_filled = false;                                        // the natural tables are of these:
    TokenPosition position = {};
    bool forward = true;
    const RopeKernels* ordered_by = nullptr;  // the ordered tables are those of position, by these kernels
};

// Tables that a thread keeps from one call to the next. In a decode step, the calls of all layers have the same
// positions.
class KeptTables {
public:
    // Returns tables for this number of tokens, or NULL if they take too much memory. Tables that were returned before
    // are kept.
    TokenTables* of(int64_t tokens, int pairs);

private:
    static constexpr int64_t kMostBytes = 128 << 10;
    struct alignas(64) CacheLine {
        float floats[16];
    };
    std::vector<TokenTables> tokens_;
    std::vector<CacheLine> memory_;
};

// turns_hi + turns_lo is the factor that gives turns. Under policy exact it multiplies a position: it is the pair's
// frequency / (2 pi). Under policy f32 it multiplies an angle in radians: it is 1 / (2 pi). turns_hi has 22 significant
// bits, so that its product with any int32 position or float32 angle is exact in a double.
struct AngleConstants {
    int32_t policy = NPU_ROPE_ANGLE_EXACT;
    int pairs = 0;
    std::vector<RopePairTerms> pair_terms;
    double mscale = 1;  // rope_mscale()

    std::vector<double> turns_hi, turns_lo;  // padded with zeros to a multiple of kPairPadding
    std::vector<float> freq_f32;             // policy f32: radians per position

    // policy ggml: its float32 constants
    float theta_scale = 1, freq_scale = 1, ext_factor = 0, mscale_f32 = 1, ramp_low = 0, ramp_high = 0;
    std::vector<float> freq_factors;

    KeptTables kept;  // computed from these constants
    int calls = 0;    // that use them
};

// The constants that a call uses. They do not change before the call ends: while it waits for its parts, a thread pool
// may run other calls on its thread.
class UsedConstants {
public:
    UsedConstants() = default;
    UsedConstants(const UsedConstants&) = delete;
    ~UsedConstants() {
        if (constants_) --constants_->calls;
    }
    void use(AngleConstants* constants) {
        constants_ = constants;
        ++constants->calls;
    }
    void own(std::unique_ptr<AngleConstants> constants) {
        use(constants.get());
        own_ = std::move(constants);
    }
    const AngleConstants& operator*() const { return *constants_; }
    const AngleConstants* operator->() const { return constants_; }
    // Returns kept tables. Returns NULL if they take too much memory, or if another call of this thread uses them.
    TokenTables* kept_tables(int64_t tokens) const {
        return constants_->calls == 1 ? constants_->kept.of(tokens, constants_->pairs) : nullptr;
    }

private:
    AngleConstants* constants_ = nullptr;
    std::unique_ptr<AngleConstants> own_;  // destroyed after ~UsedConstants() has counted
};

constexpr int kPairPadding = 16;

// Gives the constants of these arguments. Each thread caches the constants of its last calls, because a model calls
// with the same parameters thousands of times. freq_factors may be NULL. Its stride is factor_stride elements.
Check cached_angle_constants(const npu_rope_params& p, const float* freq_factors, int64_t factor_stride, int32_t policy,
                             UsedConstants* used);

// Computes cos and sin of one token under policy ggml from its position on every axis, and multiplies them by mscale.
// All operations are float32 in ggml's order, with the C library's cosf and sinf.
void ggml_cos_sin(const AngleConstants& constants, const int64_t* positions, float* cos_table, float* sin_table);

}  // namespace npu_rope
