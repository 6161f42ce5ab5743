// A tensor that a host function reads: sizes, format and type, and the values of an input on whose values the function
// depends.
#pragma once

#include "exe_graph/runtime/storage_format.h"
#include "exe_graph/runtime/storage_shape.h"

namespace simulated_cann {
struct Node;
}

namespace gert {

enum TensorPlacement : int32_t { kOnDeviceHbm, kOnHost, kFollowing, kOnDeviceP2p, kTensorPlacementEnd };

// The values are null unless the definition or the registration declares the dependency (metadef
// docs/api/gert_namespace/infershapecontext/GetInputTensor.md).
class Tensor {
public:
    Tensor() = default;
    Tensor(const StorageShape& shape, const StorageFormat& format, ge::DataType data_type)
        : shape_(shape), format_(format), data_type_(data_type) {}
    int64_t GetShapeSize() const { return shape_.GetStorageShape().GetShapeSize(); }
    template <class T>
    const T* GetData() const {
        return static_cast<const T*>(GetAddr());
    }
    const void* GetAddr() const { return data_; }
    size_t GetSize() const { return size_; }
    ge::DataType GetDataType() const { return data_type_; }
    void SetDataType(const ge::DataType data_type) { data_type_ = data_type; }
    const Shape& GetStorageShape() const { return shape_.GetStorageShape(); }
    Shape& MutableStorageShape() { return shape_.MutableStorageShape(); }
    const Shape& GetOriginShape() const { return shape_.GetOriginShape(); }
    Shape& MutableOriginShape() { return shape_.MutableOriginShape(); }
    const StorageShape& GetShape() const { return shape_; }
    StorageShape& GetShape() { return shape_; }
    ge::Format GetStorageFormat() const { return format_.GetStorageFormat(); }
    ge::Format GetOriginFormat() const { return format_.GetOriginFormat(); }
    const StorageFormat& GetFormat() const { return format_; }
    ExpandDimsType GetExpandDimsType() const { return {}; }
    TensorPlacement GetPlacement() const { return data_ ? kOnHost : kOnDeviceHbm; }

private:
    friend struct simulated_cann::Node;
    StorageShape shape_;
    StorageFormat format_;
    ge::DataType data_type_ = ge::DT_UNDEFINED;
    const void* data_ = nullptr;
    size_t size_ = 0;  // in bytes
};

}  // namespace gert
