// Sizes and names of element types and formats (hicann/metadef base/utils/type_utils_impl.cc, base/type/types_impl.cc).
#include "graph/utils/type_utils.h"

namespace ge {
namespace {

struct TypeRow {
    const char* name;  // null for a number that is no type
    int size;          // in bytes; kBitOffset plus bits for a type below one byte; -1 if it has no fixed size
};

constexpr int kBitOffset = kDataTypeSizeBitOffset;

// The index is the number of the type.
constexpr TypeRow kTypes[DT_MAX] = {
    {"DT_FLOAT", 4},
    {"DT_FLOAT16", 2},
    {"DT_INT8", 1},
    {"DT_INT32", 4},
    {"DT_UINT8", 1},
    {nullptr, -1},
    {"DT_INT16", 2},
    {"DT_UINT16", 2},
    {"DT_UINT32", 4},
    {"DT_INT64", 8},
    {"DT_UINT64", 8},
    {"DT_DOUBLE", 8},
    {"DT_BOOL", 1},
    {"DT_STRING", -1},
    {"DT_DUAL_SUB_INT8", 1},
    {"DT_DUAL_SUB_UINT8", 1},
    {"DT_COMPLEX64", 8},
    {"DT_COMPLEX128", 16},
    {"DT_QINT8", 1},
    {"DT_QINT16", 2},
    {"DT_QINT32", 4},
    {"DT_QUINT8", 1},
    {"DT_QUINT16", 2},
    {"DT_RESOURCE", 8},
    {"DT_STRING_REF", -1},
    {"DT_DUAL", 5},
    {"DT_VARIANT", 8},
    {"DT_BFLOAT16", 2},
    {"DT_UNDEFINED", -1},
    {"DT_INT4", kBitOffset + 4},
    {"DT_UINT1", kBitOffset + 1},
    {"DT_INT2", kBitOffset + 2},
    {"DT_UINT2", kBitOffset + 2},
    {"DT_COMPLEX32", 4},
    {"DT_HIFLOAT8", 1},
    {"DT_FLOAT8_E5M2", 1},
    {"DT_FLOAT8_E4M3FN", 1},
    {"DT_FLOAT8_E8M0", 1},
    {"DT_FLOAT6_E3M2", kBitOffset + 6},
    {"DT_FLOAT6_E2M3", kBitOffset + 6},
    {"DT_FLOAT4_E2M1", kBitOffset + 4},
    {"DT_FLOAT4_E1M2", kBitOffset + 4},
    {"DT_HIFLOAT4", kBitOffset + 4},
};

// The index is the number of the format.
constexpr const char* kFormatNames[] = {"NCHW",
                                        "NHWC",
                                        "ND",
                                        "NC1HWC0",
                                        "FRACTAL_Z",
                                        "NC1C0HWPAD",
                                        "NHWC1C0",
                                        "FSR_NCHW",
                                        "FRACTAL_DECONV",
                                        "C1HWNC0",
                                        "FRACTAL_DECONV_TRANSPOSE",
                                        "FRACTAL_DECONV_SP_STRIDE_TRANS",
                                        "NC1HWC0_C04",
                                        "FRACTAL_Z_C04",
                                        "CHWN",
                                        "DECONV_SP_STRIDE8_TRANS",
                                        "HWCN",
                                        "NC1KHKWHWC0",
                                        "BN_WEIGHT",
                                        "FILTER_HWCK",
                                        "LOOKUP_LOOKUPS",
                                        "LOOKUP_KEYS",
                                        "LOOKUP_VALUE",
                                        "LOOKUP_OUTPUT",
                                        "LOOKUP_HITS",
                                        "C1HWNCoC0",
                                        "MD",
                                        "NDHWC",
                                        "FRACTAL_ZZ",
                                        "FRACTAL_NZ",
                                        "NCDHW",
                                        "DHWCN",
                                        "NDC1HWC0",
                                        "FRACTAL_Z_3D",
                                        "CN",
                                        "NC",
                                        "DHWNC",
                                        "FRACTAL_Z_3D_TRANSPOSE",
                                        "FRACTAL_ZN_LSTM",
                                        "FRACTAL_Z_G",
                                        "FORMAT_RESERVED",
                                        "ALL",
                                        "NULL",
                                        "ND_RNN_BIAS",
                                        "FRACTAL_ZN_RNN",
                                        "NYUV",
                                        "NYUV_A",
                                        "NCL",
                                        "FRACTAL_Z_WINO",
                                        "C1HWC0",
                                        "FRACTAL_NZ_C0_16",
                                        "FRACTAL_NZ_C0_32",
                                        "FRACTAL_NZ_C0_2",
                                        "FRACTAL_NZ_C0_4",
                                        "FRACTAL_NZ_C0_8",
                                        "END"};
static_assert(sizeof kFormatNames / sizeof kFormatNames[0] == FORMAT_END + 1);

}  // namespace

int GetSizeByDataType(DataType data_type) { return data_type < 0 || data_type >= DT_MAX ? -1 : kTypes[data_type].size; }

int64_t GetSizeInBytes(int64_t element_count, DataType data_type) {
    const int size = GetSizeByDataType(data_type);
    int64_t total = 0;
    if (element_count < 0 || size < 0) return -1;
    if (__builtin_mul_overflow(element_count, size > kBitOffset ? size - kBitOffset : size, &total)) return -1;
    return size > kBitOffset ? total / 8 + (total % 8 != 0) : total;
}

std::string TypeUtils::DataTypeToSerialString(const DataType data_type) {
    const bool known = data_type >= 0 && data_type < DT_MAX && kTypes[data_type].name;
    return known ? kTypes[data_type].name : "UNDEFINED";
}

std::string TypeUtils::FormatToSerialString(const Format format) {
    const int32_t primary = GetPrimaryFormat(format);
    if (primary > FORMAT_END) return "RESERVED";
    return kFormatNames[primary] + (HasSubFormat(format) ? ":" + std::to_string(GetSubFormat(format)) : "");
}

AscendString TypeUtils::DataTypeToAscendString(const DataType& data_type) {
    return DataTypeToSerialString(data_type).c_str();
}

AscendString TypeUtils::FormatToAscendString(const Format& format) { return FormatToSerialString(format).c_str(); }

bool TypeUtils::GetDataTypeLength(const DataType data_type, uint32_t& length) {
    const int size = GetSizeByDataType(data_type);
    if (size > 0) length = static_cast<uint32_t>(size);
    return size > 0;
}

}  // namespace ge
