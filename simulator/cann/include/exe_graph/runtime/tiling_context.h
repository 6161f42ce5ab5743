// Data that a tiling reads and sets. A tiling reads shapes, types and attributes, but neither addresses nor values.
// Inputs whose values a tiling reads (ValueDepend) are not simulated. Strides are absent on purpose: newer releases
// have them (hicann/metadef tiling_context.h), but CANN's documentation reserves them.
#pragma once

#include "exe_graph/runtime/extended_kernel_context.h"
#include "exe_graph/runtime/tiling_data.h"

namespace fe {
class PlatFormInfos;
}

namespace gert {

class TilingContext : public ExtendedKernelContext {
public:
    const StorageShape* GetInputShape(const size_t index) const;
    const StorageShape* GetOptionalInputShape(const size_t ir_index) const;
    const StorageShape* GetRequiredInputShape(const size_t ir_index) const { return GetOptionalInputShape(ir_index); }
    const StorageShape* GetOutputShape(const size_t index) const;

    ge::graphStatus SetTilingKey(const uint64_t tiling_key);
    uint64_t GetTilingKey() const;
    ge::graphStatus SetBlockDim(const uint32_t block_dim);
    uint32_t GetBlockDim() const;
    TilingData* GetRawTilingData();
    // Null if the capacity of the operator's tiling data is too small for a T.
    template <typename T>
    auto GetTilingData() -> T* {
        TilingData* data = GetRawTilingData();
        if (data == nullptr || data->GetCapacity() < sizeof(T)) return nullptr;
        data->SetDataSize(sizeof(T));
        return static_cast<T*>(data->GetData());
    }
    // An array for the sizes of `workspace_count` workspaces.
    size_t* GetWorkspaceSizes(const size_t workspace_count);
    size_t GetWorkspaceNum() const;
    fe::PlatFormInfos* GetPlatformInfo() const;
};

}  // namespace gert
