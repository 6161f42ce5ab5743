// The choices that make a call, from a seed or from the bytes of a fuzzer. If the bytes have ended, each choice is the
// first one: 0, no, or the first of a list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <random>

class Choices {
public:
    explicit Choices(uint64_t seed) : engine_(seed) {}
    Choices(const uint8_t* bytes, size_t count) : next_(bytes), end_(bytes + count) {}

    // A number from 0 to max, which is at least 0.
    int64_t up_to(int64_t max) {
        if (engine_) return std::uniform_int_distribution<int64_t>(0, max)(*engine_);
        if (max == INT64_MAX) return static_cast<int64_t>(bits(8) >> 1);
        int count = 1;
        while (count < 8 && max >> (8 * count)) ++count;
        return static_cast<int64_t>(bits(count) % (static_cast<uint64_t>(max) + 1));
    }
    int64_t between(int64_t low, int64_t high) { return low + up_to(high - low); }
    bool chance(int one_in) { return engine_ ? up_to(one_in - 1) == 0 : up_to(one_in - 1) == one_in - 1; }
    // Any number of this many bytes.
    uint64_t bits(int bytes) {
        if (engine_) return (*engine_)() >> (64 - 8 * bytes);
        uint64_t value = 0;
        for (int k = 0; k < bytes && next_ != end_; ++k) value |= uint64_t{*next_++} << (8 * k);
        return value;
    }
    template <typename T>
    T one_of(std::initializer_list<T> all) {
        return all.begin()[up_to(static_cast<int64_t>(all.size()) - 1)];
    }

private:
    std::optional<std::mt19937_64> engine_;
    const uint8_t *next_ = nullptr, *end_ = nullptr;
};
