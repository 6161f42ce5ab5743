// An operator's definition as plain data, one record per SoC, and its registered host functions.
#pragma once

#include <string>
#include <vector>

#include "register/op_def_factory.h"

namespace simulated_cann {

struct ParamRecord {
    std::string name;
    ops::Option param_type;
    std::vector<ge::DataType> types;  // one per column
    std::vector<ge::Format> formats;
    bool ignore_contiguous;
    bool auto_contiguous;
    bool value_depend = false;                        // the host functions read the input's values
    bool lists_types = false, lists_formats = false;  // set by DataTypeList() and FormatList()
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

// An operator's definition for one SoC; with soc "", the part that all SoCs share.
struct OpRecord {
    std::string type, soc;
    std::vector<ParamRecord> inputs, outputs;
    std::vector<AttrRecord> attrs;
    std::vector<std::pair<std::string, std::string>> items;  // keys and values of the SoC's configuration
    // The index of the input that has the output's name, so that the operator writes it in place; -1 if there is none.
    int input_of_output(size_t output) const;
    bool is_output(const std::string& parameter) const;
    size_t columns() const { return inputs.empty() ? 0 : inputs[0].types.size(); }
};

// Reads the definitions that are registered with OpDefFactory.
struct DefReader {
    static std::vector<std::string> op_types();
    static std::vector<std::string> socs(const std::string& op_type);
    // Returns false if the operator is unknown or has no configuration for this SoC; soc "" needs none.
    static bool read(const std::string& op_type, const std::string& soc, OpRecord* record);

    // The tiling that the definition itself names; null if none.
    static gert::OpImplRegisterV2::TilingKernelFunc tiling(const std::string& op_type);

private:
    static std::vector<ParamRecord> merge_params(const std::deque<ops::OpParamDef>& shared_params,
                                                 const std::deque<ops::OpParamDef>& soc_params);
};

// The functions registered with OpImplRegisterV2; null if not registered.
struct OpFunctions {
    gert::OpImplRegisterV2::InferShapeKernelFunc infer_shape = nullptr;
    gert::OpImplRegisterV2::InferDataTypeKernelFunc infer_data_type = nullptr;
    gert::OpImplRegisterV2::TilingKernelFunc tiling = nullptr;
    gert::OpImplRegisterV2::TilingParseFunc tiling_parse = nullptr;
    gert::OpImplRegisterV2::CompileInfoCreatorFunc create_compile_info = nullptr;
    gert::OpImplRegisterV2::CompileInfoDeleterFunc delete_compile_info = nullptr;
    std::vector<int32_t> value_inputs;  // indices of the inputs whose values a function reads
};
const OpFunctions& find_functions(const std::string& op_type);

// "AddCustom" becomes "add_custom".
std::string snake_case(const std::string& op_type);

}  // namespace simulated_cann
