// The behaviour of CANN's headers for the host code of operators. Each section names its source; the numbers in it are
// those of the source, not of the code under test. usage: host_headers SECTION
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "ascendc/host_api/tiling/template_argument.h"
#include "base/alog_pub.h"
#include "base/dlog_pub.h"
#include "base/err_msg.h"
#include "cann/host/node.h"
#include "graph/ascend_string.h"
#include "graph/c_types.h"
#include "graph/operator_reg.h"
#include "graph/tensor.h"
#include "graph/utils/type_utils.h"
#include "platform/platform_info.h"
#include "register/op_impl_registry.h"
#include "register/tilingdata_base.h"
#include "securec.h"
#include "tiling/platform/platform_ascendc.h"
#include "tiling/tiling_api.h"

namespace {

int g_failures = 0;

#define EXPECT(condition)                                                \
    do {                                                                 \
        if (!(condition)) {                                              \
            std::printf("line %d: expected %s\n", __LINE__, #condition); \
            ++g_failures;                                                \
        }                                                                \
    } while (0)

using simulated_cann::Node;
using simulated_cann::take_logged_errors;
using Lines = std::vector<std::string>;

// ---- gert: shapes and formats (hicann/metadef inc/external/exe_graph/runtime/shape.h, storage_format.h) ------------

void shapes() {
    const gert::Shape shape{2, 3, 4};
    EXPECT(shape.GetShapeSize() == 24 && shape.GetDimNum() == 3 && shape.GetDim(2) == 4);
    EXPECT(shape.GetDim(25) == INT64_MIN);
    EXPECT(gert::Shape().IsScalar() && gert::Shape().GetShapeSize() == 1);
    EXPECT((gert::Shape{INT64_MAX, 2}.GetShapeSize()) == INT64_MIN);
    EXPECT((gert::Shape{0, INT64_MAX}.GetShapeSize()) == 0);
    EXPECT((gert::Shape{1, 2} != gert::Shape{1, 2, 1}) && (gert::Shape{1, 2} == gert::Shape{1, 2}));
    gert::Shape grown;
    for (int i = 0; i < 30; ++i) grown.AppendDim(i);
    EXPECT(grown.GetDimNum() == 25);
    gert::StorageShape both({1, 6}, {6});
    EXPECT(both.GetOriginShape().GetDimNum() == 2 && both.GetStorageShape().GetDimNum() == 1);
    const gert::StorageFormat format(ge::FORMAT_NCHW, ge::FORMAT_NC1HWC0, {});
    EXPECT(format.GetOriginFormat() == ge::FORMAT_NCHW && format.GetStorageFormat() == ge::FORMAT_NC1HWC0);
    EXPECT(format != gert::StorageFormat(ge::FORMAT_NCHW, ge::FORMAT_NCHW, {}));
    // ge::Shape (inc/external/graph/tensor.h): a shape without sizes has no elements, an unknown size gives -1.
    EXPECT(ge::Shape().GetShapeSize() == 0 && ge::Shape({2, -1}).GetShapeSize() == -1);
    EXPECT(ge::Shape({2, 3}).GetShapeSize() == 6 && ge::Shape({2, 3}).GetDim(5) == 0);
}

// ---- gert: contexts (metadef inc/external/exe_graph/runtime/extended_kernel_context.h, tiling_context.h) ----------

// Parameters: a required x, an absent optional one, a list of two, a required one with values.
void fill(Node& node) {
    static const int64_t values[] = {7, 9};
    node.type = "Some";
    const auto tensor = [](ge::DataType type, int64_t size) { return Node::make_tensor(type, {size}, ge::FORMAT_ND); };
    node.inputs = {
        {tensor(ge::DT_FLOAT16, 2)}, {}, {tensor(ge::DT_FLOAT, 3), tensor(ge::DT_FLOAT, 4)}, {tensor(ge::DT_INT64, 2)}};
    node.outputs = {{tensor(ge::DT_FLOAT, 5)}};
    Node::set_values(&node.inputs[3][0], values, sizeof values);
}

// The functions with "Ir" in their names, and those of optional and dynamic parameters, count the parameters of the
// definition; the others count tensors.
void check_parameters(gert::TilingContext* context, uint32_t first_of_list) {
    EXPECT(context->GetOptionalInputShape(1) == nullptr && context->GetOptionalInputDesc(1) == nullptr);
    EXPECT(context->GetOptionalInputTensor(1) == nullptr);
    EXPECT(context->GetDynamicInputShape(2, 1)->GetStorageShape().GetDim(0) == 4);
    EXPECT(context->GetDynamicInputShape(2, 2) == nullptr && context->GetDynamicInputTensor(9, 0) == nullptr);
    EXPECT(context->GetRequiredInputTensor(3)->GetStorageShape().GetDim(0) == 2);
    const auto* list = context->GetIrInputInstanceInfo(2);
    EXPECT(list->GetInstanceNum() == 2 && list->GetInstanceStart() == first_of_list);
    EXPECT(context->GetIrInputInstanceInfo(1)->GetInstanceNum() == 0);
    EXPECT(context->GetIrInputInstanceInfo(4) == nullptr);
}

uint32_t check_inputs(gert::TilingContext* context) {
    // An index without "Ir" counts the tensors that the call has.
    EXPECT(context->GetComputeNodeInputNum() == 4 && context->GetComputeNodeOutputNum() == 1);
    EXPECT(context->GetInputShape(1)->GetStorageShape().GetDim(0) == 3);
    EXPECT(context->GetInputDesc(3)->GetDataType() == ge::DT_INT64 && context->GetInputDesc(4) == nullptr);
    EXPECT(context->GetInputShape(4) == nullptr && context->GetInputTensor(4) == nullptr);
    check_parameters(context, 1);
    const auto* info = context->GetComputeNodeInfo();
    EXPECT(info->GetIrInputsNum() == 4 && info->GetInputsNum() == 4 && info->GetOutputsNum() == 1);
    EXPECT(info->GetInputInstanceInfo(3)->GetInstanceStart() == 3 && info->GetInputTdInfo(7) == nullptr);
    EXPECT(std::string(context->GetNodeType()) == "Some");
    // The tiling can read the values of an input only if its registration declared that it needs them.
    EXPECT(context->GetInputTensor(3)->GetData<int64_t>()[1] == 9 && context->GetInputTensor(3)->GetSize() == 16);
    EXPECT(context->GetInputTensor(0)->GetData<uint16_t>() == nullptr);
    EXPECT(context->GetInputTensor(0)->GetPlacement() == gert::kOnDeviceHbm);
    return ge::GRAPH_SUCCESS;
}

// In a call of a function that CANN generated, the absent input has a slot.
uint32_t check_inputs_of_a_generated_function(gert::TilingContext* context) {
    EXPECT(context->GetComputeNodeInputNum() == 5);
    EXPECT(context->GetInputShape(1) == nullptr && context->GetInputDesc(1) == nullptr);
    EXPECT(context->GetInputShape(2)->GetStorageShape().GetDim(0) == 3);
    EXPECT(context->GetInputDesc(4)->GetDataType() == ge::DT_INT64 && context->GetInputDesc(5) == nullptr);
    check_parameters(context, 2);
    return ge::GRAPH_SUCCESS;
}

uint32_t set_results(gert::TilingContext* context) {
    struct Small {
        int64_t a[8];
    };
    struct Large {
        int64_t a[9];
    };
    EXPECT(context->GetTilingData<Large>() == nullptr);  // the capacity is 64 bytes
    EXPECT(context->GetTilingData<Small>() != nullptr && context->GetRawTilingData()->GetDataSize() == 64);
    EXPECT(context->GetRawTilingData()->Append(1.0f) == ge::GRAPH_FAILED);
    context->GetRawTilingData()->SetDataSize(60);
    EXPECT(context->GetRawTilingData()->Append(1.0f) == ge::GRAPH_SUCCESS);
    EXPECT(context->GetRawTilingData()->Expand(size_t(-8)) == nullptr);
    EXPECT(context->GetWorkspaceNum() == 0 && context->GetWorkspaceSizes(65) == nullptr);
    size_t* sizes = context->GetWorkspaceSizes(1);
    sizes[0] = 5;
    EXPECT(context->GetWorkspaceSizes(2) == sizes && sizes[0] == 5 && context->GetWorkspaceNum() == 2);
    context->SetTilingKey(11);
    context->SetBlockDim(12);
    context->SetScheduleMode(1);
    context->SetLocalMemorySize(13);
    context->SetNeedAtomic(true);
    context->SetTilingCond(14);
    EXPECT(context->GetTilingKey() == 11 && context->GetBlockDim() == 12 && context->GetScheduleMode() == 1);
    EXPECT(context->GetLocalMemorySize() == 13 && context->NeedAtomic() && context->GetTilingCond() == 14);
    EXPECT(context->GetDeterministic() == 1);
    return ge::GRAPH_FAILED;
}

uint32_t parse(gert::TilingParseContext* context) {
    *context->GetCompiledInfo<int>() = 3;
    EXPECT(context->GetComputeNodeInputNum() == 0 && context->GetCompiledJson() == nullptr);
    return platform_ascendc::PlatformAscendC(context->GetPlatformInfo()).GetCoreNumAiv() == 48 ? ge::GRAPH_SUCCESS
                                                                                               : ge::GRAPH_FAILED;
}

void contexts() {
    Node node;
    fill(node);
    EXPECT(node.tile(check_inputs) == ge::GRAPH_SUCCESS);
    node.absent_inputs_have_slots = true;
    EXPECT(node.tile(check_inputs_of_a_generated_function) == ge::GRAPH_SUCCESS);
    node.absent_inputs_have_slots = false;
    Node other(64);
    other.deterministic = 1;
    EXPECT(other.tile(set_results) == ge::GRAPH_FAILED);
    EXPECT(other.tiling_key == 11 && other.block_dim == 12 && other.schedule_mode == 1 && other.need_atomic);
    Node parsed;
    int info = 0;
    parsed.compile_info = &info;
    parsed.platform.profile = ascend_sim::find_profile("Ascend910B1");
    EXPECT(parsed.parse(parse) == ge::GRAPH_SUCCESS && info == 3);
}

// ---- platform (asc-devkit impl/utils/tiling/platform/platform_ascendc.cpp; Ascend910B1.ini, Ascend310P3.ini) ------

void platform() {
    using namespace platform_ascendc;
    fe::PlatFormInfos infos(ascend_sim::find_profile("Ascend910B1")), p(ascend_sim::find_profile("Ascend310P3"));
    PlatformAscendC a(&infos), b(&p);
    EXPECT(a.GetCoreNumAiv() == 48 && a.GetCoreNumAic() == 24 && a.GetCoreNumVector() == 0);
    EXPECT(b.GetCoreNumAiv() == 8 && b.GetCoreNumAic() == 8 && b.GetCoreNumVector() == 7);
    EXPECT(a.GetSocVersion() == SocVersion::ASCEND910B && b.GetSocVersion() == SocVersion::ASCEND310P);
    EXPECT(a.GetCurNpuArch() == NpuArch::DAV_2201 && b.GetCurNpuArch() == NpuArch::DAV_2002);
    EXPECT(a.GetLibApiWorkSpaceSize() == 16u << 20 && b.GetLibApiWorkSpaceSize() == 2u << 20);
    uint64_t bytes = 1;
    a.GetCoreMemSize(CoreMemType::UB, bytes);
    EXPECT(bytes == 192 * 1024 - 256);  // 256 bytes are for messages between cores
    b.GetCoreMemSize(CoreMemType::UB, bytes);
    EXPECT(bytes == 256 * 1024);
    a.GetCoreMemSize(CoreMemType::L1, bytes);
    EXPECT(bytes == 512 * 1024 - 256);
    a.GetCoreMemSize(CoreMemType::BT, bytes);
    EXPECT(bytes == 1024);
    b.GetCoreMemSize(CoreMemType::FB, bytes);
    EXPECT(bytes == 1024);  // this chip has none, so the number stays
    a.ReserveLocalMemory(ReservedSize::RESERVED_SIZE_16K);
    a.GetCoreMemSize(CoreMemType::UB, bytes);
    EXPECT(bytes == 176 * 1024 - 256);
    a.GetCoreMemBw(CoreMemType::L2, bytes);
    EXPECT(bytes == 110);
    // Two vector cores for each cube core; with more blocks than cores the result is 0.
    EXPECT(a.CalcTschNumBlocks(5, 24, 48) == 3 && a.CalcTschNumBlocks(49, 24, 48) == 0);
    EXPECT(a.CalcTschNumBlocks(5, 8, 8) == 5 && a.CalcTschNumBlocks(5, 0, 8) == 5);
    std::string text;
    EXPECT(infos.GetPlatformRes("version", "Short_SoC_version", text) && text == "Ascend910B");
    EXPECT(infos.GetPlatformRes("SoCInfo", "vector_core_cnt", text) && text == "48");
    EXPECT(!infos.GetPlatformRes("version", "none", text) && text == "48");
    std::map<std::string, std::string> all;
    EXPECT(infos.GetPlatformRes("AICoreSpec", all) && all.at("ub_size") == "196608" && all.count("fb0_size"));
    EXPECT(infos.GetCoreNumByType("VectorCore") == 48 && infos.GetCoreNumByType("AiCore") == 24);
}

// A request for data that the simulator lacks ends the process with a message.
void platform_without_data() {
    fe::PlatFormInfos infos(ascend_sim::find_profile("Ascend910B1"));
    std::map<std::string, std::string> all;
    infos.GetPlatformRes("VectorCoreintrinsicDtypeMap", all);
}

void platform_without_information() { platform_ascendc::PlatformAscendC(nullptr).GetCoreNum(); }

// ---- tiling data (metadef inc/external/register/tilingdata_base.h; page TilingData结构定义) ------------------------

BEGIN_TILING_DATA_DEF(Inner)
TILING_DATA_FIELD_DEF(uint16_t, half);
END_TILING_DATA_DEF;
BEGIN_TILING_DATA_DEF(Outer)
TILING_DATA_FIELD_DEF(uint8_t, one);
TILING_DATA_FIELD_DEF(float, four);
TILING_DATA_FIELD_DEF_ARR(int16_t, 5, list);
TILING_DATA_FIELD_DEF_STRUCT(Inner, inner);
TILING_DATA_FIELD_DEF(int64_t, eight);
END_TILING_DATA_DEF;
REGISTER_TILING_DATA_CLASS(Tested, Outer)
REGISTER_TILING_DATA_CLASS(InnerOp, Inner)

void tiling_data() {
    Outer data;
    EXPECT(Inner().GetDataSize() == 8);  // filled up to 8 bytes
    EXPECT(data.GetDataSize() == 40 && std::string(data.GetTilingClassName()) == "Outer");
    int16_t list[] = {1, -2, 3, 0, 0};
    data.set_one(5);
    data.set_four(0.5f);
    data.set_list(list);
    data.inner.set_half(6);
    data.set_eight(-7);
    EXPECT(data.get_one() == 5 && data.get_four() == 0.5f && data.get_list()[1] == -2 && data.get_eight() == -7);
    EXPECT(data.inner.get_half() == 6);
    struct Layout {
        uint8_t one;
        float four;
        int16_t list[5];
        alignas(8) uint16_t half;
        alignas(8) int64_t eight;
    } saved;
    data.SaveToBuffer(&saved, sizeof saved);
    EXPECT(sizeof saved == 40 && saved.one == 5 && saved.four == 0.5f && saved.list[2] == 3 && saved.half == 6 &&
           saved.eight == -7);
    // A class on the caller's memory changes that memory in place, so SaveToBuffer() saves nothing.
    Outer same(&saved);
    same.set_eight(8);
    EXPECT(saved.eight == 8 && same.inner.get_half() == 6);
    Layout untouched{};
    same.SaveToBuffer(&untouched, sizeof untouched);
    EXPECT(untouched.eight == 0);
    auto& factory = optiling::CTilingDataClassFactory::GetInstance();
    EXPECT(factory.CreateTilingDataInstance("Tested")->GetDataSize() == 40);
    EXPECT(factory.CreateTilingDataInstance("None") == nullptr);
    // The struct of a library function has a name of its own, by which the builder knows that kernels define it
    // already.
    EXPECT(factory.CreateTilingDataInstance("SoftMaxTilingOpApi") != nullptr);
}

// ---- securec.h (libboundscheck) ------------------------------------------------------------------------------------

void checked_memory() {
    char to[8];
    EXPECT(strcpy_s(to, sizeof to, "abc") == EOK && std::string(to) == "abc");
    EXPECT(strcat_s(to, sizeof to, "def") == EOK && std::string(to) == "abcdef");
    EXPECT(strcat_s(to, sizeof to, "gh") != EOK && to[0] == 0);
    EXPECT(memcpy_s(to, sizeof to, "1234567", 8) == EOK && std::string(to) == "1234567");
    EXPECT(memcpy_s(to, 4, "12345", 5) == (ERANGE | 128) && to[0] == 0 && to[3] == 0 && to[4] == '5');
    EXPECT(memcpy_s(to, sizeof to, nullptr, 1) == (EINVAL | 128) && memcpy_s(nullptr, 4, "a", 1) == EINVAL);
    EXPECT(memset_s(to, 4, 'x', 2) == EOK && to[1] == 'x' && memset_s(to, 4, 'y', 5) != EOK && to[3] == 'y');
    EXPECT(sprintf_s(to, sizeof to, "%d", 1234567) == 7 && sprintf_s(to, sizeof to, "%d", 12345678) == -1);
    EXPECT(to[0] == 0);
}

// ---- names of types and formats (metadef base/utils/type_utils_impl.cc) --------------------------------------------

void type_names() {
    using ge::TypeUtils;
    EXPECT(TypeUtils::DataTypeToSerialString(ge::DT_FLOAT16) == "DT_FLOAT16");
    EXPECT(TypeUtils::DataTypeToSerialString(ge::DT_BF16) == "DT_BFLOAT16");
    EXPECT(TypeUtils::DataTypeToSerialString(static_cast<ge::DataType>(5)) == "UNDEFINED");
    EXPECT(std::string(TypeUtils::FormatToAscendString(ge::FORMAT_ND).GetString()) == "ND");
    EXPECT(TypeUtils::FormatToSerialString(static_cast<ge::Format>(200)) == "RESERVED");
    uint32_t bytes = 1;
    EXPECT(TypeUtils::GetDataTypeLength(ge::DT_INT64, bytes) && bytes == 8);
    EXPECT(!TypeUtils::GetDataTypeLength(ge::DT_STRING, bytes) && bytes == 8);
    EXPECT(ge::GetSizeByDataType(ge::DT_FLOAT) == 4 && ge::GetSizeByDataType(ge::DT_INT4) == 1004);
    EXPECT(ge::GetSizeInBytes(3, ge::DT_INT4) == 2 && ge::GetSizeInBytes(-1, ge::DT_INT8) == -1);
    EXPECT(C_DT_BF16 == static_cast<int>(ge::DT_BF16) && C_FORMAT_NCDHW == static_cast<int>(ge::FORMAT_NCDHW));
    const ge::AscendString none(nullptr), empty("");
    EXPECT(none != empty && none < empty && std::string(none.GetString()).empty());
    EXPECT(ge::AscendString("abc", 2) == ge::AscendString("ab") && none.GetLength() == 0);
}

// ---- log (hicann/runtime pkg_inc/base/dlog_pub.h, include/dfx/base/alog_pub.h, include/dfx/base/err_msg.h) ---------

void logs() {
    EXPECT(CheckLogLevel(OP, DLOG_ERROR) == 1 && CheckLogLevel(OP, DLOG_WARN) == 0);
    DlogRecord(OP, DLOG_WARN, "warning %d", 1);
    DlogRecord(OP, DLOG_ERROR, "error %d", 2);
    EXPECT(AlogCheckDebugLevel(OP, DLOG_ERROR) == 1 && AlogCheckDebugLevel(OP, DLOG_WARN) == 0);
    AlogRecord(OP, DLOG_TYPE_DEBUG, DLOG_INFO, "information");
    AlogRecord(OP, DLOG_TYPE_RUN, DLOG_ERROR, "error %s", "three");
    EXPECT((take_logged_errors() == Lines{"error 2", "error three"}));
    EXPECT(take_logged_errors().empty());
    // A report repeats a logged error, so it is used only if no error was logged.
    REPORT_INNER_ERR_MSG("EZ0001", "size %d", 4);
    ge::ReportPredefinedErrMsg("EZ0002", {"name", "value"}, {"x", "5"});
    EXPECT((take_logged_errors() == Lines{"EZ0001: size 4", "EZ0002: name x, value 5"}));
    REPORT_USER_DEFINED_ERR_MSG("EZ0003", "report");
    DlogRecord(OP, DLOG_ERROR, "line");
    EXPECT((take_logged_errors() == Lines{"line"}));
}

// ---- template arguments (asc-devkit include/utils/tiling/template_argument.h; page 模板参数定义) --------------------

ASCENDC_TPL_ARGS_DECL(Tested, ASCENDC_TPL_DTYPE_DECL(type, C_DT_FLOAT, C_DT_FLOAT16),
                      ASCENDC_TPL_UINT_DECL(list, ASCENDC_TPL_4_BW, ASCENDC_TPL_UI_LIST, 10, 12, 9),
                      ASCENDC_TPL_UINT_DECL(ranges, ASCENDC_TPL_8_BW, ASCENDC_TPL_UI_RANGE, 2, 1, 3, 8, 9),
                      ASCENDC_TPL_UINT_DECL(mix, ASCENDC_TPL_4_BW, ASCENDC_TPL_UI_MIX, 1, 0, 2, 7),
                      ASCENDC_TPL_BOOL_DECL(flag, 0, 1));

void template_arguments() {
    // A type is encoded by its value, a number by its index; the first argument has the lowest bits.
    EXPECT(GET_TPL_TILING_KEY(C_DT_FLOAT16, 12, 1, 0, 0) == (1u | 1u << 8));
    EXPECT(GET_TPL_TILING_KEY(C_DT_FLOAT, 9, 9, 7, 1) == (2u << 8 | 4u << 12 | 3u << 20 | 1u << 24));
    EXPECT(take_logged_errors().empty());
    EXPECT(GET_TPL_TILING_KEY(C_DT_FLOAT, 11, 1, 0, 0) == INVALID_TILING_KEY);
    EXPECT((take_logged_errors() == Lines{"[sim] template argument list must be declared but got 11."}));
    const TilingDeclareParams wide(9, ASCENDC_TPL_FORMAT_DECL(f, 0));
    EXPECT(AscendC::FastEncodeTilingKeyDirect(wide, {0, 0, 0, 0, 0, 0, 0, 0, 0}) == INVALID_TILING_KEY);
    EXPECT((take_logged_errors() == Lines{"[sim] template arguments must have at most 64 bits but got 72."}));
}

const std::map<std::string, void (*)()> kSections = {
    {"shapes", shapes},
    {"contexts", contexts},
    {"platform", platform},
    {"platform_without_data", platform_without_data},
    {"platform_without_information", platform_without_information},
    {"tiling_data", tiling_data},
    {"checked_memory", checked_memory},
    {"type_names", type_names},
    {"logs", logs},
    {"template_arguments", template_arguments},
};

}  // namespace

int main(int count, char** arguments) {
    const auto found = kSections.find(count > 1 ? arguments[1] : "");
    if (found == kSections.end()) return 2;
    found->second();
    return g_failures ? 1 : 0;
}
