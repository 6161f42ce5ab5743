// Context in which an operator fills its compile information, once for each chip, before the first tiling.
#pragma once

#include "exe_graph/runtime/extended_kernel_context.h"
#include "graph/types.h"

namespace fe {
class PlatFormInfos;
}

namespace gert {

// The context has the operator's type, but no call, so the numbers of tensors are 0.
class TilingParseContext : public ExtendedKernelContext {
public:
    // The compile information of a kernel that a Python operator compiled; AscendC kernels have none.
    const ge::char_t* GetCompiledJson() const { return nullptr; }
    // The T that the registration's TilingParse<T>() created.
    template <typename T>
    auto GetCompiledInfo() -> T* {
        return static_cast<T*>(compile_info());
    }
    fe::PlatFormInfos* GetPlatformInfo() const;

private:
    void* compile_info() const;
};

}  // namespace gert
