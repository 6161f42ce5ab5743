// The call of a library function: its name in reports and on the timeline, and the checks that such functions share.
//
// Rules: operands start at a 32-byte border. A count is at most the operands' sizes. sharedTmpBuffer has at least the
// size that the host's function returns, and does not overlap the operands. Destination and source do not overlap,
// unless the function's page allows the same memory.
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
    template <class... Values>
    void report(Rule rule, const char* format, Values... values) const {
        broken_at(rule, name_, site_, format, values...);
    }
    // Checks the first n elements of an operand and returns their bytes.
    template <class T>
    Range check_operand(const char* name, const AscendC::LocalTensor<T>& tensor, uint64_t n) const {
        const UbView& view = tensor.view();
        if (view.addr % kBlockBytes)
            report(Rule::Align01, "`%s` starts at UB byte %u, which is no multiple of %u.", name, view.addr,
                   kBlockBytes);
        if (n * sizeof(T) > view.bytes)
            report(Rule::Bounds01, "`%s` has %u elements, but %llu are needed.", name, unsigned(view.bytes / sizeof(T)),
                   static_cast<unsigned long long>(n));
        return {view.addr, int64_t(view.addr + n * sizeof(T))};
    }
    // Checks that two operands do not overlap.
    void check_apart(const char* name0, Range bytes0, const char* name1, Range bytes1) const {
        if (bytes0.begin < bytes1.end && bytes1.begin < bytes0.end)
            report(Rule::Overlap01, "`%s` (UB bytes [%lld, %lld)) and `%s` ([%lld, %lld)) must not overlap.", name0,
                   static_cast<long long>(bytes0.begin), static_cast<long long>(bytes0.end), name1,
                   static_cast<long long>(bytes1.begin), static_cast<long long>(bytes1.end));
    }
    // Checks that two operands start at the same address or do not overlap.
    void check_same_or_apart(const char* name0, Range bytes0, const char* name1, Range bytes1) const {
        if (bytes0.begin != bytes1.begin) check_apart(name0, bytes0, name1, bytes1);
    }
    // Returns the temporary memory: sharedTmpBuffer, or the free memory above the TPipe's buffers if there is no
    // sharedTmpBuffer. The size is limited to the part that the function uses.
    AscendC::LocalTensor<uint8_t> temporary_memory(const AscendC::LocalTensor<uint8_t>* tmp, TmpSizes sizes) const {
        AscendC::LocalTensor<uint8_t> memory = tmp ? *tmp : AscendC::LocalTensor<uint8_t>(free_memory(name_, site_));
        if (memory.view().bytes < sizes.least)
            report(Rule::Work01, "%s must have at least %u bytes but has %u.",
                   tmp ? "`sharedTmpBuffer`" : "the memory above the TPipe's buffers", sizes.least,
                   memory.view().bytes);
        if (sizes.most) check_operand("sharedTmpBuffer", memory, 0);
        const uint32_t most = sizes.most > sizes.least ? sizes.most : sizes.least;
        if (memory.view().bytes > most) memory.SetSize(most);
        return memory;
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
