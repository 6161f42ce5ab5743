#include "cann/host/kernel_header.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <set>
#include <stdexcept>
#include <vector>

#include "register/tilingdata_base.h"

namespace simulated_cann {
namespace {

using optiling::TilingDef;
using optiling::TilingField;

class StructWriter {
public:
    // Adds the class and the structs inside it, each once.
    void add(const TilingDef& def) {
        const std::string name = def.GetTilingClassName();
        if (!written_.insert(name).second) return;
        std::string body;
        for (const TilingField& field : def.fields()) body += "    " + declaration(field) + ";\n";
        text_ += "struct " + name + " {\n" + body + "};\nstatic_assert(sizeof(" + name +
                 ") == " + std::to_string(def.GetDataSize()) + ", \"the kernel's and the host's " + name +
                 " differ\");\n";
    }
    const std::string& text() const { return text_; }

private:
    std::string declaration(const TilingField& field) {
        if (field.struct_type.empty())
            return field.type + " " + field.name + (field.elements ? "[" + std::to_string(field.elements) + "]" : "");
        auto& factory = optiling::CTilingDataClassFactory::GetInstance();
        if (factory.CreateTilingDataInstance((field.struct_type + "OpApi").c_str()))
            return "AscendC::tiling::" + field.struct_type + " " + field.name;
        const auto inner_struct = factory.CreateTilingDataInstance((field.struct_type + "Op").c_str());
        if (!inner_struct)
            throw std::runtime_error("tiling struct " + field.struct_type + " must be registered as " +
                                     field.struct_type + "Op but is not");
        add(*inner_struct);
        return field.struct_type + " " + field.name;
    }
    std::set<std::string> written_;
    std::string text_;
};

bool is_number(const std::string& text) {
    return !text.empty() &&
           std::all_of(text.begin(), text.end(), [](unsigned char character) { return std::isdigit(character) != 0; });
}

}  // namespace

std::string kernel_header(const std::string& op_type) {
    auto& factory = optiling::CTilingDataClassFactory::GetInstance();
    const std::shared_ptr<TilingDef> default_def = factory.CreateTilingDataInstance(op_type.c_str());
    if (!default_def) return "";
    StructWriter writer;
    writer.add(*default_def);
    for (const std::string& name : factory.names()) {
        if (name.compare(0, op_type.size() + 1, op_type + "_") != 0) continue;
        if (is_number(name.substr(op_type.size() + 1))) writer.add(*factory.CreateTilingDataInstance(name.c_str()));
    }
    return "// Generated from the classes of tiling data of " + op_type +
           "'s host code.\n#pragma once\n#include \"kernel_tiling/kernel_tiling.h\"\n" + writer.text() +
           "using AscendSimDefaultTiling = " + default_def->GetTilingClassName() + ";\n";
}

}  // namespace simulated_cann
