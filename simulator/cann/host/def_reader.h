// An operator's definition as plain data, one record a SoC, and the host functions registered for it.
#pragma once

#include <string>
#include <vector>

#include "register/op_def_factory.h"

namespace npu_cann {

struct ParamRecord {
    std::string name;
    ops::Option param_type;
    std::vector<ge::DataType> types;  // a column each
    std::vector<ge::Format> formats;
    bool ignore_contiguous;
    bool auto_contiguous;
};

struct AttrRecord {
    std::string name;
    bool required;
    ops::AttrDataType type;
    bool has_default;
    std::string default_text;
    bool is_list() const { return type >= ops::AttrDataType::ATTR_DT_LIST_BOOL; }
    bool is_pointer() const { return is_list() || type == ops::AttrDataType::ATTR_DT_STR; }
};

// What a definition says for one SoC; soc "" is what it says for all.
struct OpRecord {
    std::string type, soc;
    std::vector<ParamRecord> inputs, outputs;
    std::vector<AttrRecord> attrs;
    std::vector<std::pair<std::string, std::string>> items;  // of the SoC's configuration
    // An output with an input's name is that input, written: the input's index, or -1.
    int input_of_output(size_t output) const;
    size_t columns() const { return inputs.empty() ? 0 : inputs[0].types.size(); }
};

struct DefReader {
    static std::vector<std::string> op_types();
    static std::vector<std::string> socs(const std::string& op_type);
    // False where there is no such operator, or it says nothing of this SoC.
    static bool read(const std::string& op_type, const std::string& soc, OpRecord* record);

private:
    static std::vector<ParamRecord> merged(const std::deque<ops::OpParamDef>& all,
                                           const std::deque<ops::OpParamDef>& of_soc);
};

// Registered with OpImplRegisterV2; null where nothing was.
struct OpFunctions {
    gert::OpImplRegisterV2::InferShapeKernelFunc infer_shape = nullptr;
    gert::OpImplRegisterV2::InferDataTypeKernelFunc infer_data_type = nullptr;
    gert::OpImplRegisterV2::TilingKernelFunc tiling = nullptr;
};
const OpFunctions& find_functions(const std::string& op_type);

// "AddCustom" is add_custom.
std::string snake_case(const std::string& op_type);

}  // namespace npu_cann
