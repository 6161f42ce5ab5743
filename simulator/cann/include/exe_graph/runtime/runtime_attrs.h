// The attributes of one call of an operator, in the order of its definition. Floats are float32 here, even if the
// caller passed another type.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exe_graph/runtime/continuous_vector.h"

namespace simulated_cann {
struct Node;
}

namespace gert {

// Getters return null if the attribute does not exist. The type of an attribute is not checked: a getter for another
// type returns a pointer to the attribute's bytes, as in CANN.
class RuntimeAttrs {
public:
    template <typename T>
    const T* GetAttrPointer(size_t index) const {
        return static_cast<const T*>(GetPointerByIndex(index));
    }
    const int64_t* GetInt(const size_t index) const { return GetAttrPointer<int64_t>(index); }
    const float* GetFloat(const size_t index) const { return GetAttrPointer<float>(index); }
    const bool* GetBool(const size_t index) const { return GetAttrPointer<bool>(index); }
    const char* GetStr(const size_t index) const { return GetAttrPointer<char>(index); }
    const TypedContinuousVector<int64_t>* GetListInt(const size_t index) const {
        return GetAttrPointer<TypedContinuousVector<int64_t>>(index);
    }
    const TypedContinuousVector<float>* GetListFloat(const size_t index) const {
        return GetAttrPointer<TypedContinuousVector<float>>(index);
    }
    size_t GetAttrNum() const;

    RuntimeAttrs(const RuntimeAttrs&) = delete;
    RuntimeAttrs& operator=(const RuntimeAttrs&) = delete;

private:
    friend struct simulated_cann::Node;
    RuntimeAttrs() = default;
    const void* GetPointerByIndex(size_t index) const;

    const simulated_cann::Node* node_ = nullptr;
};

}  // namespace gert
