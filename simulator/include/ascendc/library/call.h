// The call of a library function: its name in reports and on the timeline, and the checks that such functions share.
//
// Rules: operands on 32 bytes; a count at most the operands' sizes; sharedTmpBuffer at least as large as the host's
// function says, and apart from the operands; destination and source apart, unless the function's page allows the same
// memory. Functions insert their own barriers, so a caller needs none inside.
#pragma once

#include "ascendc/arithmetic.h"
#include "ascendc/library/tmp_sizes.h"

namespace ascend_sim {

class Call {
public:
    Call(const char* name, Site site) : name_(name), site_(site), is_outermost_(!set_library_function(name)) {}
    ~Call() {
        if (is_outermost_) set_library_function(nullptr);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    Site site() const { return site_; }
    template <class... A>
    void report(Rule rule, const char* format, A... values) const {
        broken_at(rule, name_, site_, format, values...);
    }
    // Returns the bytes of the first n elements.
    template <class T>
    Range operand(const char* what, const AscendC::LocalTensor<T>& t, uint64_t n) const {
        const UbView& v = t.view();
        if (v.addr % kBlockBytes)
            report(Rule::Align01, "`%s` starts at UB byte %u, which is no multiple of %u.", what, v.addr, kBlockBytes);
        if (n * sizeof(T) > v.bytes)
            report(Rule::Bounds01, "`%s` has %u elements, but %llu are needed.", what, unsigned(v.bytes / sizeof(T)),
                   static_cast<unsigned long long>(n));
        return {v.addr, int64_t(v.addr + n * sizeof(T))};
    }
    void apart(const char* a, Range x, const char* b, Range y) const {
        if (x.begin < y.end && y.begin < x.end)
            report(Rule::Overlap01, "`%s` (UB bytes [%lld, %lld)) and `%s` ([%lld, %lld)) must not overlap.", a,
                   static_cast<long long>(x.begin), static_cast<long long>(x.end), b, static_cast<long long>(y.begin),
                   static_cast<long long>(y.end));
    }
    void same_or_apart(const char* a, Range x, const char* b, Range y) const {
        if (x.begin != y.begin) apart(a, x, b, y);
    }
    // Returns the temporary memory: sharedTmpBuffer, or the free memory above the TPipe's buffers if there is no
    // sharedTmpBuffer. The part that the function does not use is cut off.
    AscendC::LocalTensor<uint8_t> temporary(const AscendC::LocalTensor<uint8_t>* tmp, TmpSizes sizes) const {
        AscendC::LocalTensor<uint8_t> used = tmp ? *tmp : AscendC::LocalTensor<uint8_t>(free_memory(name_, site_));
        if (used.view().bytes < sizes.least)
            report(Rule::Work01, "%s must have at least %u bytes but has %u.",
                   tmp ? "`sharedTmpBuffer`" : "the memory above the TPipe's buffers", sizes.least, used.view().bytes);
        if (sizes.most) operand("sharedTmpBuffer", used, 0);
        const uint32_t most = sizes.most > sizes.least ? sizes.most : sizes.least;
        if (used.view().bytes > most) used.SetSize(most);
        return used;
    }

private:
    const char* name_;
    Site site_;
    bool is_outermost_;
};

inline Range range_of(const AscendC::LocalTensor<uint8_t>& t) {
    return {t.view().addr, int64_t(t.view().addr) + t.view().bytes};
}

}  // namespace ascend_sim
