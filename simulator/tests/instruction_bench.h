// Runs instructions on a simulated core and compares their results: a test puts vectors into UB, calls AscendC in a
// lambda, and reads the vectors back.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "include/ascend_sim.h"
#include "kernel_operator.h"

namespace bench {

inline int failures = 0;

inline void check(bool holds, const std::string& what) {
    if (holds) return;
    ++failures;
    std::printf("FAILED: %s\n", what.c_str());
}

// Returns elements whose bits have no pattern. The bits depend only on the element's number.
template <class T>
std::vector<T> varied_bits(uint32_t n) {
    std::vector<T> v(n);
    for (uint32_t i = 0; i < n; ++i) {
        const auto bits = uint64_t(i) * 0x9e3779b97f4a7c15ull >> 17;
        std::memcpy(&v[i], &bits, sizeof(T));
    }
    return v;
}

// Compares bits, because the elements may be NaN.
template <class T>
void expect_bits(const std::string& what, const std::vector<T>& got, const std::vector<T>& want) {
    check(got.size() == want.size() && !std::memcmp(got.data(), want.data(), got.size() * sizeof(T)), what);
}

inline const char* soc() {
    return ascend_sim::kIs910b ? "ascend910b" : ascend_sim::kIs310p ? "ascend310p" : "ascend950";
}

// Returns a core's part of floats in GM.
template <uint32_t kElements>
__aicore__ AscendC::GlobalTensor<float> part_of(uint8_t* address, uint32_t core) {
    AscendC::GlobalTensor<float> tensor;
    tensor.SetGlobalBuffer(reinterpret_cast<float*>(address) + core * kElements, kElements);
    return tensor;
}

// The sum of a number and a core's part of floats in GM, in UB.
template <uint32_t kElements>
struct PartAndNumber {
    __aicore__ PartAndNumber(uint8_t* address, uint32_t core, float number) {
        pipe.InitBuffer(buffer, kElements * sizeof(float));
        values = buffer.Get<float>();
        AscendC::DataCopy(values, part_of<kElements>(address, core), kElements);
        AscendC::PipeBarrier<PIPE_ALL>();
        AscendC::Adds(values, values, number, kElements);
        AscendC::PipeBarrier<PIPE_ALL>();
    }

    AscendC::TPipe pipe;
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer;
    AscendC::LocalTensor<float> values;
};

// ---- one launch of one core -----------------------------------------------------------------------------

struct Options {
    bool saturate = false;
    const char* lenient = nullptr;  // names of the rules that only warn, as ascend_sim_launch's
    const char* figures = nullptr;  // replaced figures of the profile, as ascend_sim_launch's
};

inline std::function<void(GM_ADDR, GM_ADDR)> kernel_body;
inline void kernel_entry(GM_ADDR x, GM_ADDR y, GM_ADDR, GM_ADDR) { kernel_body(x, y); }

// Returns "" or the rule that body broke. y changes only if body kept all rules.
inline std::string launch(std::vector<uint8_t>& x, std::vector<uint8_t>& y, const Options& options,
                          const std::function<void(GM_ADDR, GM_ADDR)>& body) {
    kernel_body = body;
    const ascend_sim_memory memories[] = {{"x", x.data(), x.size(), ASCEND_SIM_IN},
                                          {"y", y.data(), y.size(), ASCEND_SIM_INOUT}};
    const ascend_sim_arg args[] = {{0, 0}, {1, 0}};
    ascend_sim_launch settings{};
    settings.soc = soc();
    settings.block_dim = 1;
    settings.lenient = options.lenient;
    settings.figures = options.figures;
    settings.saturate = options.saturate;
    settings.one_order = 1;  // run the cores in one order only
    if (ascend_sim_run(reinterpret_cast<void*>(kernel_entry), memories, 2, args, 2, &settings) == ASCEND_SIM_OK)
        return "";
    const std::string report = ascend_sim_report();
    if (std::getenv("ASCEND_SIM_SHOW_REPORTS")) std::printf("%s\n", report.c_str());
    const size_t at = report.find("SIM-");
    return at == std::string::npos ? report : report.substr(at, report.find('"', at) - at);
}

// A number of the report of the last launch.
inline int reported(const std::string& name) {
    const std::string report = ascend_sim_report(), key = '"' + name + "\":";
    const size_t at = report.find(key);
    check(at != std::string::npos, "the report has no " + name);
    return at == std::string::npos ? 0 : std::atoi(report.c_str() + at + key.size());
}

// ---- vectors in UB --------------------------------------------------------------------------------------

// A vector in UB: its first byte and its number of elements.
template <class T>
struct Slot {
    uint32_t byte, elements;
};

class Bench {
public:
    explicit Bench(Options options = {}) : options_(options) {}

    template <class T>
    Slot<T> put(const std::vector<T>& values) {
        const Slot<T> slot{uint32_t(image_.size()), uint32_t(values.size())};
        image_.resize((image_.size() + values.size() * sizeof(T) + 31) / 32 * 32);
        if (!values.empty()) std::memcpy(image_.data() + slot.byte, values.data(), values.size() * sizeof(T));
        return slot;
    }
    template <class T>
    Slot<T> space(uint32_t elements) {
        return put(std::vector<T>(elements, T(0)));
    }
    template <class T>
    AscendC::LocalTensor<T> operator()(const Slot<T>& slot) {
        return buffer_->GetWithOffset<T>(slot.elements, slot.byte);
    }
    // Copies the vectors of put() to UB, calls body, and copies them back. Returns "" or the rule that body broke.
    std::string run(const std::function<void()>& body) {
        std::vector<uint8_t> out(image_.size());
        const std::string rule = launch(image_, out, options_, [&](GM_ADDR x, GM_ADDR y) {
            AscendC::TPipe pipe;
            AscendC::TBuf<> buffer;
            buffer_ = &buffer;
            const uint32_t bytes = uint32_t(image_.size());
            pipe.InitBuffer(buffer, bytes);
            AscendC::GlobalTensor<uint8_t> from, to;
            from.SetGlobalBuffer(x, bytes);
            to.SetGlobalBuffer(y, bytes);
            AscendC::DataCopy(buffer.Get<uint8_t>(), from, bytes);
            AscendC::PipeBarrier<PIPE_ALL>();
            body();
            AscendC::PipeBarrier<PIPE_ALL>();
            AscendC::DataCopy(to, buffer.Get<uint8_t>(), bytes);
        });
        if (rule.empty()) image_ = out;
        return rule;
    }
    template <class T>
    std::vector<T> get(const Slot<T>& slot) const {
        std::vector<T> values(slot.elements);
        if (slot.elements) std::memcpy(values.data(), image_.data() + slot.byte, slot.elements * sizeof(T));
        return values;
    }

private:
    Options options_;
    std::vector<uint8_t> image_;
    AscendC::TBuf<>* buffer_ = nullptr;
};

// ---- comparing ------------------------------------------------------------------------------------------

template <class T>
std::string bits_of(T v) {
    uint64_t u = 0;
    std::memcpy(&u, &v, sizeof v);
    char text[32];
    std::snprintf(text, sizeof text, "0x%0*llx", int(2 * sizeof v), static_cast<unsigned long long>(u));
    return text;
}

// Compares bits; all NaNs are equal.
template <class T>
bool same(T a, T b) {
    if (!std::memcmp(&a, &b, sizeof a)) return true;
    if constexpr (std::is_integral_v<T>)
        return false;
    else
        return std::isnan(float(a)) && std::isnan(float(b));
}

template <class T>
void expect(const std::string& what, const std::vector<T>& got, const std::vector<T>& want) {
    check(got.size() == want.size(), what + ": number of elements");
    for (size_t i = 0; i < got.size() && i < want.size(); ++i)
        if (!same(got[i], want[i]))
            return check(false, what + ": element " + std::to_string(i) + " is " + bits_of(got[i]) + ", not " +
                                    bits_of(want[i]));
}

inline void expect_rule(const std::string& what, const std::string& got, const char* rule) {
    check(got.compare(0, std::strlen(rule), rule) == 0 && (*rule || got.empty()),
          what + ": " + (*rule ? rule : "no broken rule") + " expected but got '" + got + "'");
}

// The report of the last launch names this instruction.
inline void expect_instruction(const std::string& name) {
    const std::string report = ascend_sim_report();
    check(report.find(", " + name + ": ") != std::string::npos, "a report that names " + name + ": " + report);
}

inline int finish(const char* name) {
    std::printf("%s (%s): %s\n", name, soc(), failures ? "FAILED" : "ok");
    return failures ? 1 : 0;
}

// Generates the same numbers on every platform.
class Random {
public:
    uint32_t bits() {
        state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
        return uint32_t(state_ >> 32);
    }
    float between(float low, float high) { return low + (high - low) * float(bits() >> 8) * 0x1p-24f; }

private:
    uint64_t state_ = 20261120;
};

// Returns n values of a new Random, so that calls with the same arguments return equal vectors.
template <class T>
std::vector<T> numbers(uint32_t n, float low, float high) {
    Random random;
    std::vector<T> v(n);
    for (T& x : v) {
        const float f = random.between(low, high);
        if constexpr (std::is_integral_v<T>)
            x = T(int64_t(f));
        else
            x = T(f);
    }
    return v;
}

}  // namespace bench
