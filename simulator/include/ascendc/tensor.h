// LocalTensor: a typed view of UB. GlobalTensor: a typed view of GM. Scalar accesses run on pipe S.
#pragma once

#include "ascendc/types.h"

namespace AscendC {

template <class T>
class LocalTensor {
public:
    using PrimType = T;
    LocalTensor() = default;
    explicit LocalTensor(const ascend_sim::UbView& view, TPosition position = TPosition::VECCALC)
        : view_(view), position_(position) {}

    LocalTensor operator[](uint32_t offset) const {
        // The view keeps its end; a negative offset arrives as a large number. A view that begins past the end
        // or before UB's first byte has no bytes, so any use of it is reported.
        LocalTensor t = *this;
        const int64_t end = int64_t(view_.addr) + view_.bytes;
        const int64_t begin = view_.addr + int64_t(int32_t(offset)) * int64_t(sizeof(T));
        t.view_.addr = ascend_sim::ub_address(begin);
        t.view_.bytes = begin < 0 || begin > end ? 0 : uint32_t(end - begin);
        return t;
    }
    template <class U>
    LocalTensor<U> ReinterpretCast() const {
        return LocalTensor<U>(view_, position_);
    }
    uint32_t GetSize() const { return view_.bytes / sizeof(T); }
    uint32_t GetLength() const { return view_.bytes; }
    void SetSize(uint32_t elements) { view_.bytes = ascend_sim::saturated(uint64_t(elements) * sizeof(T)); }
    int32_t GetPosition() const { return int32_t(position_); }
    uint64_t GetPhyAddr() const { return view_.addr; }
    uint64_t GetPhyAddr(uint32_t offset) const { return view_.addr + uint64_t(offset) * sizeof(T); }

    T GetValue(uint32_t index, ASCEND_SIM_SITE) const {
        ascend_sim::start(ascend_sim::Pipe::S, "GetValue", site);
        const ascend_sim::Range r = range_of(index);
        ascend_sim::reads("tensor", view_, &r, 1);
        T value;
        std::memcpy(&value, ascend_sim::ub() + r.begin, sizeof value);
        ascend_sim::finish_scalar(ascend_sim::cycles_of(ascend_sim::Cost::ScalarUb));
        return value;
    }
    template <class U>
    void SetValue(uint32_t index, U value, ASCEND_SIM_SITE) const {
        ascend_sim::start(ascend_sim::Pipe::S, "SetValue", site);
        const ascend_sim::Range r = range_of(index);
        ascend_sim::writes("tensor", view_, &r, 1);
        const T converted = T(value);
        std::memcpy(ascend_sim::ub() + r.begin, &converted, sizeof converted);
        ascend_sim::finish_scalar(ascend_sim::cycles_of(ascend_sim::Cost::ScalarUb));
    }
    // A reference. Before the next instruction, the core compares bits to detect a write.
    T& operator()(uint32_t index, ASCEND_SIM_SITE) const {
        const ascend_sim::Range r = range_of(index);
        ascend_sim::scalar_reference(view_, r, site);
        return *reinterpret_cast<T*>(ascend_sim::ub() + r.begin);
    }

    // Used by the simulator only.
    const ascend_sim::UbView& view() const { return view_; }
    T* data() const { return reinterpret_cast<T*>(ascend_sim::ub() + view_.addr); }

private:
    ascend_sim::Range range_of(uint32_t index) const {
        // A negative index arrives as a large number.
        const int64_t begin = view_.addr + int64_t(int32_t(index)) * int64_t(sizeof(T));
        return {begin, begin + int64_t(sizeof(T))};
    }
    ascend_sim::UbView view_;
    TPosition position_ = TPosition::VECCALC;
};

template <class T>
class GlobalTensor {
public:
    using PrimType = T;
    void SetGlobalBuffer(T* address, uint64_t elements) {
        address_ = address;
        elements_ = elements;
        view_ = {uintptr_t(address), elements ? uintptr_t(address + elements) : 0};
    }
    void SetGlobalBuffer(T* address) { SetGlobalBuffer(address, 0); }
    const T* GetPhyAddr() const { return address_; }
    T* GetPhyAddr(uint64_t offset) const { return address_ + offset; }
    uint64_t GetSize() const { return elements_; }
    GlobalTensor operator[](uint64_t offset) const {
        GlobalTensor t = *this;
        t.address_ = at(offset);
        t.elements_ = elements_ > offset ? elements_ - offset : 0;
        return t;
    }
    template <CacheRwMode mode = CacheRwMode::RW>
    void SetL2CacheHint(CacheMode) {
        static_assert(ascend_sim::kTakes<T, ascend_sim::Api::SetL2CacheHint>,
                      "SetL2CacheHint: this SoC does not have it");
    }
    T GetValue(uint64_t offset, ASCEND_SIM_SITE) const {
        ascend_sim::start(ascend_sim::Pipe::S, "GlobalTensor::GetValue", site);
        ascend_sim::reads_gm("tensor", uintptr_t(at(offset)), sizeof(T), view_);
        T value;
        std::memcpy(&value, at(offset), sizeof value);
        ascend_sim::finish_scalar(ascend_sim::scalar_gm_cycles());
        return value;
    }
    // A reference, as in LocalTensor.
    T& operator()(uint64_t offset, ASCEND_SIM_SITE) const {
        static_assert(ascend_sim::kTakes<T, ascend_sim::Api::GmReference>, "GlobalTensor(): this SoC does not have it");
        ascend_sim::gm_reference(uintptr_t(at(offset)), sizeof(T), view_, site);
        return *at(offset);
    }
    // Writes to the scalar unit's cache; DataCacheCleanAndInvalid writes the line to GM.
    void SetValue(uint64_t offset, T value, ASCEND_SIM_SITE) const {
        ascend_sim::start(ascend_sim::Pipe::S, "GlobalTensor::SetValue", site);
        ascend_sim::writes_gm("tensor", uintptr_t(at(offset)), sizeof(T), view_);
        ascend_sim::write_to_cache(uintptr_t(at(offset)), sizeof(T));
        std::memcpy(at(offset), &value, sizeof value);
        ascend_sim::finish_scalar(ascend_sim::scalar_gm_cycles());
    }

    // Used by the simulator only.
    T* data() const { return address_; }
    const ascend_sim::GmView& view() const { return view_; }

private:
    // A negative offset arrives as a large number. An offset that overflows gives null.
    T* at(uint64_t offset) const {
        int64_t bytes = 0;
        if (__builtin_mul_overflow(int64_t(offset), int64_t(sizeof(T)), &bytes)) return nullptr;
        return reinterpret_cast<T*>(uintptr_t(address_) + uintptr_t(bytes));
    }
    T* address_ = nullptr;
    uint64_t elements_ = 0;
    ascend_sim::GmView view_;
};

template <class T, CacheLine line, DcciDst destination>
void DataCacheCleanAndInvalid(const GlobalTensor<T>& tensor, ASCEND_SIM_SITE) {
    static_assert(ascend_sim::kTakes<T, ascend_sim::Api::CleanWithDestination>,
                  "DataCacheCleanAndInvalid: this SoC has only the form without DcciDst");
    ascend_sim::clean_cache(uintptr_t(tensor.data()), line == CacheLine::ENTIRE_DATA_CACHE, site);
}
template <class T, CacheLine line>
void DataCacheCleanAndInvalid(const GlobalTensor<T>& tensor, ASCEND_SIM_SITE) {
    ascend_sim::clean_cache(uintptr_t(tensor.data()), line == CacheLine::ENTIRE_DATA_CACHE, site);
}

}  // namespace AscendC
