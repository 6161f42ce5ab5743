// A tensor's type and formats, which are known before its sizes.
#pragma once

#include "graph/types.h"

namespace npu_cann {
struct Node;
}

namespace gert {

class CompileTimeTensorDesc {
public:
    ge::DataType GetDataType() const { return data_type_; }
    ge::Format GetStorageFormat() const { return format_; }
    ge::Format GetOriginFormat() const { return format_; }

private:
    friend struct npu_cann::Node;
    ge::DataType data_type_ = ge::DT_UNDEFINED;
    ge::Format format_ = ge::FORMAT_ND;
};

}  // namespace gert
