// The names of element types and formats in messages.
#pragma once

#include <string>

#include "graph/ascend_string.h"
#include "graph/types.h"

namespace ge {

class TypeUtils {
public:
    // "DT_FLOAT16"; "UNDEFINED" for a number that is no type.
    static std::string DataTypeToSerialString(const DataType data_type);
    static AscendString DataTypeToAscendString(const DataType& data_type);
    // "NCHW"; "RESERVED" for a number that is no format. The sub-format follows after a colon.
    static std::string FormatToSerialString(const Format format);
    static AscendString FormatToAscendString(const Format& format);
    // Sets `length` to the result of GetSizeByDataType(). Returns false for a type without a fixed size.
    static bool GetDataTypeLength(const DataType data_type, uint32_t& length);
};

}  // namespace ge
