// aclop's descriptors and attributes, which torch_npu creates for operators that it runs without aclnn. They are
// stored, but running such an operator is not simulated.
#include <map>

#include "cann/runtime/api.h"
#include "cann/runtime/report.h"

struct aclTensorDesc {
    std::vector<int64_t> shape;
    int32_t dtype, format, placement;
    std::string name;
};
struct aclDataBuffer {
    void* data;
    size_t bytes;
};
struct aclopAttr {
    std::map<std::string, std::string> values;
};

using namespace npu_cann;

NPU_CANN_API aclTensorDesc* aclCreateTensorDesc(int32_t dtype, int dims, const int64_t* shape, int32_t format) {
    if (dims < 0 || (dims > 0 && !shape)) return nullptr;
    return new aclTensorDesc{{shape, shape + dims}, dtype, format, 0, ""};
}
NPU_CANN_API void aclDestroyTensorDesc(const aclTensorDesc* desc) { delete desc; }
NPU_CANN_API void aclSetTensorDescName(aclTensorDesc* desc, const char* name) {
    if (desc) desc->name = name ? name : "";
}
NPU_CANN_API aclError aclSetTensorFormat(aclTensorDesc* desc, int32_t format) {
    if (!desc) return failed(kInvalidParam, __func__, "desc must not be null.");
    desc->format = format;
    return kSuccess;
}
NPU_CANN_API aclError aclSetTensorShape(aclTensorDesc* desc, int dims, const int64_t* shape) {
    if (!desc || dims < 0 || (dims > 0 && !shape))
        return failed(kInvalidParam, __func__, "desc and dims must not be null.");
    desc->shape.assign(shape, shape + dims);
    return kSuccess;
}
NPU_CANN_API aclError aclSetTensorPlaceMent(aclTensorDesc* desc, int32_t placement) {
    if (!desc) return failed(kInvalidParam, __func__, "desc must not be null.");
    desc->placement = placement;
    return kSuccess;
}
NPU_CANN_API aclError aclSetTensorConst(aclTensorDesc* desc, void* /*data*/, size_t /*bytes*/) {
    return desc ? kSuccess : failed(kInvalidParam, __func__, "desc must not be null.");
}
NPU_CANN_API int32_t aclGetTensorDescType(const aclTensorDesc* desc) { return desc ? desc->dtype : -1; }
NPU_CANN_API int32_t aclGetTensorDescFormat(const aclTensorDesc* desc) { return desc ? desc->format : -1; }
NPU_CANN_API size_t aclGetTensorDescNumDims(const aclTensorDesc* desc) { return desc ? desc->shape.size() : 0; }
NPU_CANN_API aclError aclGetTensorDescDimV2(const aclTensorDesc* desc, size_t index, int64_t* size) {
    if (!desc || !size || index >= desc->shape.size())
        return failed(kInvalidParam, __func__, "index must be less than the number of dimensions.");
    *size = desc->shape[index];
    return kSuccess;
}

NPU_CANN_API aclDataBuffer* aclCreateDataBuffer(void* data, size_t bytes) { return new aclDataBuffer{data, bytes}; }
NPU_CANN_API aclError aclDestroyDataBuffer(const aclDataBuffer* buffer) {
    delete buffer;
    return kSuccess;
}

NPU_CANN_API aclopAttr* aclopCreateAttr() { return new aclopAttr; }
NPU_CANN_API void aclopDestroyAttr(const aclopAttr* attr) { delete attr; }

namespace {
aclError keep(aclopAttr* attr, const char* name, std::string value) {
    if (!attr || !name) return failed(kInvalidParam, "aclopSetAttr", "attr and attrName must not be null.");
    attr->values[name] = std::move(value);
    return kSuccess;
}
template <class T>
aclError keep_list(aclopAttr* attr, const char* name, int count, const T* values) {
    std::string text;
    for (int i = 0; i < count; ++i) text += (i ? "," : "") + std::to_string(values[i]);
    return keep(attr, name, text);
}
}  // namespace

NPU_CANN_API aclError aclopSetAttrBool(aclopAttr* attr, const char* name, uint8_t value) {
    return keep(attr, name, value ? "true" : "false");
}
NPU_CANN_API aclError aclopSetAttrInt(aclopAttr* attr, const char* name, int64_t value) {
    return keep(attr, name, std::to_string(value));
}
NPU_CANN_API aclError aclopSetAttrFloat(aclopAttr* attr, const char* name, float value) {
    return keep(attr, name, std::to_string(value));
}
NPU_CANN_API aclError aclopSetAttrDataType(aclopAttr* attr, const char* name, int32_t value) {
    return keep(attr, name, std::to_string(value));
}
NPU_CANN_API aclError aclopSetAttrString(aclopAttr* attr, const char* name, const char* value) {
    return keep(attr, name, value ? value : "");
}
NPU_CANN_API aclError aclopSetAttrListBool(aclopAttr* attr, const char* name, int count, const uint8_t* values) {
    return keep_list(attr, name, count, values);
}
NPU_CANN_API aclError aclopSetAttrListInt(aclopAttr* attr, const char* name, int count, const int64_t* values) {
    return keep_list(attr, name, count, values);
}
NPU_CANN_API aclError aclopSetAttrListFloat(aclopAttr* attr, const char* name, int count, const float* values) {
    return keep_list(attr, name, count, values);
}
NPU_CANN_API aclError aclopSetAttrListListInt(aclopAttr* attr, const char* name, int lists, const int* counts,
                                              const int64_t* const* values) {
    std::string text;
    for (int i = 0; i < lists; ++i) {
        text += i ? ";" : "";
        for (int k = 0; k < counts[i]; ++k) text += (k ? "," : "") + std::to_string(values[i][k]);
    }
    return keep(attr, name, text);
}

namespace {
aclError refuse_operator(const char* name) {
    std::string text = std::string("aclop operator ") + (name ? name : "") +
                       " is not simulated: aclop operators have no stand-in. An aclnn stand-in goes into a file of "
                       "simulator/cann/opapi/, by subject.";
    count_not_simulated(std::string("aclop ") + (name ? name : ""));
    return failed(kNotSupported, text);
}
}  // namespace

NPU_CANN_API aclError aclopCompileAndExecute(const char* name, int, const aclTensorDesc* const*,
                                             const aclDataBuffer* const*, int, const aclTensorDesc* const*,
                                             aclDataBuffer* const*, const aclopAttr*, int, int, const char*, void*) {
    return refuse_operator(name);
}
NPU_CANN_API aclError aclopCompileAndExecuteV2(const char* name, int, aclTensorDesc**, aclDataBuffer**, int,
                                               aclTensorDesc**, aclDataBuffer**, aclopAttr*, int, int, const char*,
                                               void*) {
    return refuse_operator(name);
}
