// Data that a tiling reads and sets. A tiling reads shapes, types and attributes. It reads the values of an input only
// if the operator declares that (runtime_tensor.h), and never an address. Strides are absent on purpose: newer releases
// have them (hicann/metadef tiling_context.h), but CANN's documentation reserves them.
#pragma once

#include "exe_graph/runtime/extended_kernel_context.h"
#include "exe_graph/runtime/runtime_tensor.h"
#include "exe_graph/runtime/tiling_data.h"

namespace fe {
class PlatFormInfos;
}

namespace gert {

class TilingContext : public ExtendedKernelContext {
public:
    // The compile information that TilingParse filled.
    const void* GetCompileInfo() const;
    template <typename T>
    const T* GetCompileInfo() const {
        return reinterpret_cast<const T*>(GetCompileInfo());
    }
    const StorageShape* GetInputShape(const size_t index) const;
    const StorageShape* GetOptionalInputShape(const size_t ir_index) const { return GetDynamicInputShape(ir_index, 0); }
    const StorageShape* GetRequiredInputShape(const size_t ir_index) const { return GetDynamicInputShape(ir_index, 0); }
    const StorageShape* GetDynamicInputShape(const size_t ir_index, const size_t relative_index) const;
    const StorageShape* GetOutputShape(const size_t index) const;
    const Tensor* GetInputTensor(const size_t index) const;
    const Tensor* GetOptionalInputTensor(const size_t ir_index) const { return GetDynamicInputTensor(ir_index, 0); }
    const Tensor* GetRequiredInputTensor(const size_t ir_index) const { return GetDynamicInputTensor(ir_index, 0); }
    const Tensor* GetDynamicInputTensor(const size_t ir_index, const size_t relative_index) const;

    ge::graphStatus SetTilingKey(const uint64_t tiling_key);
    uint64_t GetTilingKey() const;
    ge::graphStatus SetScheduleMode(const uint32_t schedule_mode);
    uint32_t GetScheduleMode() const;
    ge::graphStatus SetBlockDim(const uint32_t block_dim);
    ge::graphStatus SetSimdNumBlocks(const uint32_t num_blocks) { return SetBlockDim(num_blocks); }
    uint32_t GetBlockDim() const;
    uint32_t GetSimdNumBlocks() const { return GetBlockDim(); }
    ge::graphStatus SetTilingCond(int32_t tiling_cond);
    int32_t GetTilingCond() const;
    ge::graphStatus SetNeedAtomic(const bool atomic);
    bool NeedAtomic() const;
    ge::graphStatus SetLocalMemorySize(const uint32_t local_memory_size);
    ge::graphStatus SetDynUBufSize(const uint32_t bytes) { return SetLocalMemorySize(bytes); }
    uint32_t GetLocalMemorySize() const;
    uint32_t GetDynUBufSize() const { return GetLocalMemorySize(); }
    TilingData* GetRawTilingData();
    // Null if the capacity of the operator's tiling data is too small for a T.
    template <typename T>
    auto GetTilingData() -> T* {
        TilingData* data = GetRawTilingData();
        if (data == nullptr || data->GetCapacity() < sizeof(T)) return nullptr;
        data->SetDataSize(sizeof(T));
        return static_cast<T*>(data->GetData());
    }
    // An array for the sizes of `workspace_count` workspaces; null if CANN allows fewer.
    size_t* GetWorkspaceSizes(const size_t workspace_count);
    size_t GetWorkspaceNum() const;
    fe::PlatFormInfos* GetPlatformInfo() const;
    // 1 if the process asked for deterministic results, else 0.
    int32_t GetDeterministic() const;
    int32_t GetDeterministicLevel() const;
};

}  // namespace gert
