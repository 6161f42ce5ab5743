// aclop's descriptors and attributes. torch_npu creates them for operators that it runs without aclnn. The
// simulator does not run these operators. The descriptors store only the values that a call returns.
#include "cann/runtime/api.h"
#include "cann/runtime/report.h"

struct aclTensorDesc {
    std::vector<int64_t> shape;
    int32_t dtype, format;
};
struct aclDataBuffer {
    void* data;
    size_t bytes;
};
struct aclopAttr {};

using namespace simulated_cann;

NPU_CANN_API aclTensorDesc* aclCreateTensorDesc(int32_t dtype, int dims, const int64_t* shape, int32_t format) {
    if (dims < 0 || (dims > 0 && !shape)) return nullptr;
    return new aclTensorDesc{{shape, shape + dims}, dtype, format};
}
NPU_CANN_API void aclDestroyTensorDesc(const aclTensorDesc* desc) { delete desc; }
NPU_CANN_API void aclSetTensorDescName(aclTensorDesc* /*desc*/, const char* /*name*/) {}
NPU_CANN_API aclError aclSetTensorFormat(aclTensorDesc* desc, int32_t format) {
    if (!desc) return fail(kInvalidParam, __func__, "desc must not be null.");
    desc->format = format;
    return kSuccess;
}
NPU_CANN_API aclError aclSetTensorShape(aclTensorDesc* desc, int dims, const int64_t* shape) {
    if (!desc || dims < 0 || (dims > 0 && !shape))
        return fail(kInvalidParam, __func__, "desc and dims must not be null, and numDims must not be negative.");
    desc->shape.assign(shape, shape + dims);
    return kSuccess;
}
NPU_CANN_API aclError aclSetTensorPlaceMent(aclTensorDesc* desc, int32_t /*placement*/) {
    return desc ? kSuccess : fail(kInvalidParam, __func__, "desc must not be null.");
}
NPU_CANN_API aclError aclSetTensorConst(aclTensorDesc* desc, void* /*data*/, size_t /*bytes*/) {
    return desc ? kSuccess : fail(kInvalidParam, __func__, "desc must not be null.");
}
NPU_CANN_API int32_t aclGetTensorDescType(const aclTensorDesc* desc) { return desc ? desc->dtype : -1; }
NPU_CANN_API int32_t aclGetTensorDescFormat(const aclTensorDesc* desc) { return desc ? desc->format : -1; }
NPU_CANN_API size_t aclGetTensorDescNumDims(const aclTensorDesc* desc) { return desc ? desc->shape.size() : 0; }
NPU_CANN_API aclError aclGetTensorDescDimV2(const aclTensorDesc* desc, size_t index, int64_t* size) {
    if (!desc || !size || index >= desc->shape.size())
        return fail(kInvalidParam, __func__,
                    "desc and dimSize must not be null, and index must be less than the number of dimensions.");
    *size = desc->shape[index];
    return kSuccess;
}

// hicann/runtime docs/zh/api_ref/25-03_Operation_APIs.md, aclCreateDataBuffer, asks for the size 0 without data;
// src/acl/aclrt_impl/data_buffer.cpp accepts every size.
NPU_CANN_API aclDataBuffer* aclCreateDataBuffer(void* data, size_t bytes) {
    if (!data && bytes) count_beyond_document("aclCreateDataBuffer: size must be 0 if data is null");
    return new aclDataBuffer{data, bytes};
}
NPU_CANN_API aclError aclDestroyDataBuffer(const aclDataBuffer* buffer) {
    if (!buffer) return fail(kInvalidParam, __func__, "dataBuffer must not be null.");
    delete buffer;
    return kSuccess;
}

NPU_CANN_API aclopAttr* aclopCreateAttr() { return new aclopAttr; }
NPU_CANN_API void aclopDestroyAttr(const aclopAttr* attr) { delete attr; }

#define NPU_CANN_SET_ATTR(call, ...)                                                       \
    NPU_CANN_API aclError call(aclopAttr* attr, const char* name, __VA_ARGS__) {           \
        if (attr && name) return kSuccess;                                                 \
        return fail(kInvalidParam, "aclopSetAttr", "attr and attrName must not be null."); \
    }
NPU_CANN_SET_ATTR(aclopSetAttrBool, uint8_t)
NPU_CANN_SET_ATTR(aclopSetAttrInt, int64_t)
NPU_CANN_SET_ATTR(aclopSetAttrFloat, float)
NPU_CANN_SET_ATTR(aclopSetAttrDataType, int32_t)
NPU_CANN_SET_ATTR(aclopSetAttrString, const char*)
NPU_CANN_SET_ATTR(aclopSetAttrListBool, int, const uint8_t*)
NPU_CANN_SET_ATTR(aclopSetAttrListInt, int, const int64_t*)
NPU_CANN_SET_ATTR(aclopSetAttrListFloat, int, const float*)
NPU_CANN_SET_ATTR(aclopSetAttrListListInt, int, const int*, const int64_t* const*)
#undef NPU_CANN_SET_ATTR

namespace {
aclError refuse_operator(const char* name) {
    std::string text = std::string("aclop operator ") + (name ? name : "") +
                       " is not simulated: aclop operators have no stand-in. An aclnn stand-in goes into the file of "
                       "simulator/cann/opapi/ for its subject.";
    count_not_simulated(std::string("aclop ") + (name ? name : ""));
    return fail(kNotSupported, text);
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
