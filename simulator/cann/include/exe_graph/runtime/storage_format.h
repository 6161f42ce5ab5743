// A tensor's format for its user (origin) and in memory (storage).
#pragma once

#include <memory>

#include "exe_graph/runtime/expand_dims_type.h"
#include "graph/types.h"

namespace gert {

struct StorageFormat {
public:
    StorageFormat() = default;
    StorageFormat(const ge::Format origin, const ge::Format storage, const ExpandDimsType&)
        : origin_(origin), storage_(storage) {}
    ge::Format GetOriginFormat() const { return origin_; }
    void SetOriginFormat(const ge::Format format) { origin_ = format; }
    ge::Format GetStorageFormat() const { return storage_; }
    void SetStorageFormat(const ge::Format format) { storage_ = format; }
    ExpandDimsType GetExpandDimsType() const { return {}; }
    bool operator==(const StorageFormat& other) const { return origin_ == other.origin_ && storage_ == other.storage_; }
    bool operator!=(const StorageFormat& other) const { return !(*this == other); }

private:
    ge::Format origin_ = ge::FORMAT_ND;
    ge::Format storage_ = ge::FORMAT_ND;
};

}  // namespace gert
