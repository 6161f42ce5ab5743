// LocalTensor: a typed view of UB. GlobalTensor: a typed view of GM. Scalar accesses run on pipe S.
#pragma once

#include <memory>

#include "ascendc/shape.h"

namespace ascend_sim {

// A tensor's shape. Copies of the tensor share it.
class TensorShape {
public:
    void set(const AscendC::ShapeInfo& shape) { shape_ = std::make_shared<const AscendC::ShapeInfo>(shape); }
    bool is_set() const { return shape_ != nullptr; }
    AscendC::ShapeInfo get(Site site) const {
        if (shape_) return *shape_;
        broken_at(Rule::Init05, "GetShapeInfo", site, "SetShapeInfo was not called for the tensor.");
        return {};
    }

private:
    std::shared_ptr<const AscendC::ShapeInfo> shape_;
};

// Checks that an offset in elements is a whole number of bytes, also for elements of half a byte.
template <class T>
void check_whole_bytes(uint64_t offset) {
    if (kIsInt4<T> && offset % 2)
        broken_at(Rule::Count04, "operator[]", kUnknownSite, "an offset of int4b_t must be even but got %llu.",
                  static_cast<unsigned long long>(offset));
}

// The bytes of a signed number of elements.
template <class T>
constexpr int64_t signed_bytes(int64_t elements) {
    return kIsInt4<T> ? elements / 2 : elements * int64_t(sizeof(T));
}

// The element at `index`, from its byte. A byte holds two elements of int4b_t.
template <class T>
T element_in(const uint8_t* byte, uint64_t index) {
    T value;
    std::memcpy(&value, byte, sizeof value);
    if constexpr (kIsInt4<T>) value = T(value.storage >> (index % 2 * 4));
    return value;
}
template <class T>
void store_element(uint8_t* byte, uint64_t index, T value) {
    if constexpr (kIsInt4<T>)
        value.storage = uint8_t(index % 2 ? (*byte & 15) | value.storage << 4 : (*byte & 0xf0) | value.storage);
    std::memcpy(byte, &value, sizeof value);
}

}  // namespace ascend_sim

namespace AscendC {
template <class T>
class LocalTensor;
}

namespace ascend_sim {

// The right source of an operator between tensors, with the line of the operator.
template <class T>
struct RightOperand {
    RightOperand(const AscendC::LocalTensor<T>& tensor, ASCEND_SIM_SITE) : tensor(tensor), site(site) {}
    const AscendC::LocalTensor<T>& tensor;
    Site site;
};

// The operation of an operator between tensors. tensor_operators.h defines the operations.
template <class T, class Operation>
struct TensorExpression {
    const AscendC::LocalTensor<T>& left;
    RightOperand<T> right;
};
struct AddOperation;
struct SubOperation;
struct MulOperation;
struct DivOperation;
struct AndOperation;
struct OrOperation;
template <AscendC::CMPMODE mode>
struct CompareOperation;

}  // namespace ascend_sim

namespace AscendC {

template <class T>
class LocalTensor {
public:
    using PrimType = T;
    LocalTensor() = default;
    explicit LocalTensor(const ascend_sim::UbView& view, TPosition position = TPosition::VECCALC)
        : view_(view), position_(position) {}
    // Memory at an address of UB, for kernels without a TPipe. Source: the page LocalTensor构造函数.
    LocalTensor(TPosition position, uint32_t address, uint32_t elements, ASCEND_SIM_SITE) : position_(position) {
        if (position != TPosition::VECIN && position != TPosition::VECOUT && position != TPosition::VECCALC)
            ascend_sim::fatal_at(ascend_sim::Rule::Bounds02, "LocalTensor", site,
                                 "the position is no memory of a vector core, and the simulator has no other cores.");
        view_ = ascend_sim::static_memory("LocalTensor", address, ascend_sim::bytes_of<T>(elements), site);
    }

    LocalTensor operator[](uint32_t offset) const {
        // The result ends where this tensor ends. A negative offset arrives as a large number. A result that begins
        // past the end or before UB's first byte has no bytes, so any use of it is reported.
        LocalTensor result = *this;
        const int64_t end = int64_t(view_.addr) + view_.bytes;
        ascend_sim::check_whole_bytes<T>(offset);
        const int64_t begin = view_.addr + ascend_sim::signed_bytes<T>(int32_t(offset));
        result.view_.addr = ascend_sim::ub_address(begin);
        result.view_.bytes = begin < 0 || begin > end ? 0 : uint32_t(end - begin);
        return result;
    }
    template <class U>
    LocalTensor<U> ReinterpretCast() const {
        return LocalTensor<U>(view_, position_);
    }
    uint32_t GetSize() const { return uint32_t(ascend_sim::elements_of<T>(view_.bytes)); }
    uint32_t GetLength() const { return view_.bytes; }
    void SetSize(uint32_t elements) { view_.bytes = ascend_sim::saturated(ascend_sim::bytes_of<T>(elements)); }
    void SetBufferLen(uint32_t bytes) { view_.bytes = bytes; }
    template <class U>
    void SetAddrWithOffset(const LocalTensor<U>& base, uint32_t offset) {  // in elements of base
        view_ = base[offset].view();
        position_ = TPosition(base.GetPosition());
    }
    // The tag belongs to the buffer, so that it passes through a queue.
    void SetUserTag(TTagType tag) const { ascend_sim::set_user_tag(view_, tag); }
    TTagType GetUserTag() const { return ascend_sim::user_tag(view_); }
    void SetShapeInfo(const ShapeInfo& shape) { shape_.set(shape); }
    ShapeInfo GetShapeInfo(ASCEND_SIM_SITE) const { return shape_.get(site); }
    const ascend_sim::TensorShape& shape() const { return shape_; }
    int32_t GetPosition() const { return int32_t(position_); }
    // The address of the tensor's memory. The scalar unit can use it as a pointer.
    uint64_t GetPhyAddr(ASCEND_SIM_SITE) const { return GetPhyAddr(0, site); }
    uint64_t GetPhyAddr(uint32_t offset, ASCEND_SIM_SITE) const {
        return ascend_sim::physical_address(view_, view_.addr + ascend_sim::bytes_of<T>(offset), sizeof(T), site);
    }

    T GetValue(uint32_t index, ASCEND_SIM_SITE) const {
        ascend_sim::start(ascend_sim::Pipe::S, "GetValue", site);
        const ascend_sim::Range range = range_of(index);
        ascend_sim::reads("tensor", view_, &range, 1);
        const T value = ascend_sim::element_in<T>(ascend_sim::ub() + range.begin, index);
        ascend_sim::finish_scalar(ascend_sim::cycles_of(ascend_sim::Cost::ScalarUb));
        return value;
    }
    template <class U>
    void SetValue(uint32_t index, U value, ASCEND_SIM_SITE) const {
        ascend_sim::start(ascend_sim::Pipe::S, "SetValue", site);
        const ascend_sim::Range range = range_of(index);
        ascend_sim::writes("tensor", view_, &range, 1);
        ascend_sim::store_element(ascend_sim::ub() + range.begin, index, T(value));
        ascend_sim::finish_scalar(ascend_sim::cycles_of(ascend_sim::Cost::ScalarUb));
    }
    // Returns a reference. Before the next instruction, the core compares bits to detect a write.
    T& operator()(uint32_t index, ASCEND_SIM_SITE) const {
        static_assert(!ascend_sim::kIsInt4<T>, "LocalTensor(): an element of half a byte has no reference");
        const ascend_sim::Range range = range_of(index);
        ascend_sim::scalar_reference(view_, range, site);
        return *reinterpret_cast<T*>(ascend_sim::ub() + range.begin);
    }

#define ASCEND_SIM_TENSOR_OPERATOR(symbol, ...)                                      \
    friend ascend_sim::TensorExpression<T, ascend_sim::__VA_ARGS__> operator symbol( \
        const LocalTensor& src0, const ascend_sim::RightOperand<T>& src1) {          \
        return {src0, src1};                                                         \
    }
    ASCEND_SIM_TENSOR_OPERATOR(+, AddOperation)
    ASCEND_SIM_TENSOR_OPERATOR(-, SubOperation)
    ASCEND_SIM_TENSOR_OPERATOR(*, MulOperation)
    ASCEND_SIM_TENSOR_OPERATOR(/, DivOperation)
    ASCEND_SIM_TENSOR_OPERATOR(&, AndOperation)
    ASCEND_SIM_TENSOR_OPERATOR(|, OrOperation)
    ASCEND_SIM_TENSOR_OPERATOR(<, CompareOperation<CMPMODE::LT>)
    ASCEND_SIM_TENSOR_OPERATOR(>, CompareOperation<CMPMODE::GT>)
    ASCEND_SIM_TENSOR_OPERATOR(==, CompareOperation<CMPMODE::EQ>)
    ASCEND_SIM_TENSOR_OPERATOR(<=, CompareOperation<CMPMODE::LE>)
    ASCEND_SIM_TENSOR_OPERATOR(>=, CompareOperation<CMPMODE::GE>)
    ASCEND_SIM_TENSOR_OPERATOR(!=, CompareOperation<CMPMODE::NE>)
#undef ASCEND_SIM_TENSOR_OPERATOR
    template <class Source, class Operation>
    void operator=(const ascend_sim::TensorExpression<Source, Operation>& expression) {
        Operation::run(*this, expression.left, expression.right.tensor, expression.right.site);
    }

    // Used by the simulator only.
    const ascend_sim::UbView& view() const { return view_; }
    T* data() const { return reinterpret_cast<T*>(ascend_sim::ub() + view_.addr); }

private:
    ascend_sim::Range range_of(uint32_t index) const {
        // A negative index arrives as a large number.
        const int64_t begin = view_.addr + ascend_sim::signed_bytes<T>(int32_t(index));
        return {begin, begin + int64_t(sizeof(T))};
    }
    ascend_sim::UbView view_;
    TPosition position_ = TPosition::VECCALC;
    ascend_sim::TensorShape shape_;
};

template <class T>
class GlobalTensor {
public:
    using PrimType = T;
    void SetGlobalBuffer(T* address, uint64_t elements, ASCEND_SIM_SITE) {
        ascend_sim::take_gm(uintptr_t(address), site);
        address_ = address;
        elements_ = elements;
        view_ = {uintptr_t(address), elements ? uintptr_t(address) + ascend_sim::bytes_of<T>(elements) : 0};
    }
    void SetGlobalBuffer(T* address, ASCEND_SIM_SITE) { SetGlobalBuffer(address, 0, site); }
    const T* GetPhyAddr() const { return address_; }
    T* GetPhyAddr(uint64_t offset) const { return at(offset); }
    uint64_t GetSize() const { return elements_; }
    GlobalTensor operator[](uint64_t offset) const {
        GlobalTensor result = *this;
        ascend_sim::check_whole_bytes<T>(offset);
        result.address_ = at(offset);
        result.elements_ = elements_ > offset ? elements_ - offset : 0;
        return result;
    }
    void SetShapeInfo(const ShapeInfo& shape) { shape_.set(shape); }
    ShapeInfo GetShapeInfo(ASCEND_SIM_SITE) const { return shape_.get(site); }
    template <CacheRwMode mode = CacheRwMode::RW>
    void SetL2CacheHint(CacheMode) {
        static_assert(ascend_sim::kTakes<T, ascend_sim::Api::SetL2CacheHint>,
                      "SetL2CacheHint: this SoC does not have it");
    }
    T GetValue(uint64_t offset, ASCEND_SIM_SITE) const {
        ascend_sim::start(ascend_sim::Pipe::S, "GlobalTensor::GetValue", site);
        ascend_sim::reads_gm("tensor", uintptr_t(at(offset)), sizeof(T), view_);
        const T value = ascend_sim::element_in<T>(reinterpret_cast<const uint8_t*>(at(offset)), offset);
        ascend_sim::finish_scalar(ascend_sim::scalar_gm_cycles());
        return value;
    }
    // Returns a reference, as LocalTensor does.
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
        ascend_sim::store_element(reinterpret_cast<uint8_t*>(at(offset)), offset, value);
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
        if (ascend_sim::kIsInt4<T>) bytes = int64_t(offset) / 2;
        return reinterpret_cast<T*>(uintptr_t(address_) + uintptr_t(bytes));
    }
    T* address_ = nullptr;
    uint64_t elements_ = 0;
    ascend_sim::GmView view_;
    ascend_sim::TensorShape shape_;
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
