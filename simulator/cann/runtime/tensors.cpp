// Functions of CANN's libnnopbase that create, read and destroy aclnn's handles. objects.h has the structs of the
// handles. Source of the checks for NULL and of the statuses: hicann/opbase src/nnopbase/common/api/acl_op_api.cpp.
#include <cstring>
#include <map>

#include "cann/runtime/api.h"

namespace simulated_cann {
namespace {

size_t value_bytes(int32_t dtype) {
    static const std::map<int32_t, size_t> bytes = {
        {2, 1},   {4, 1},  {12, 1},           // int8, uint8, bool
        {1, 2},   {6, 2},  {7, 2},  {27, 2},  // float16, int16, uint16, bfloat16
        {0, 4},   {3, 4},  {8, 4},  {33, 4},  // float, int32, uint32, complex32
        {9, 8},   {10, 8}, {11, 8}, {16, 8},  // int64, uint64, double, complex64
        {17, 16},                             // complex128
    };
    auto found = bytes.find(dtype);
    return found == bytes.end() ? 0 : found->second;
}

// The bytes of a scalar's value, or 0 if a scalar cannot have the type: hicann/opbase
// src/nnopbase/common/utils/common_types.cpp, aclScalar::aclScalar. It accepts types of 8, 6 and 4 bits (34 to 41), but
// not complex32.
size_t scalar_bytes(int32_t dtype) {
    constexpr int32_t kComplex32 = 33, kHifloat8 = 34, kFloat4E1M2 = 41;
    if (dtype >= kHifloat8 && dtype <= kFloat4E1M2) return 1;
    return dtype == kComplex32 ? 0 : value_bytes(dtype);
}

constexpr aclError kAclnnInner = 561000;

aclError copy_values(const std::vector<int64_t>& values, int64_t** out, uint64_t* count) {
    if (!out || !count) return kAclnnNullptr;
    *out = new int64_t[values.size() + 1];
    if (!values.empty()) std::memcpy(*out, values.data(), values.size() * sizeof(int64_t));
    *count = values.size();
    return kSuccess;
}

template <class T>
aclError destroy_handle(const T* object) {
    delete object;
    return kSuccess;
}

// A list owns its elements.
template <class List>
aclError destroy_list(const List* list) {
    if (list)
        for (const auto* item : list->values) delete item;
    return destroy_handle(list);
}

// NULL gives an empty list for every count (hicann/opbase common_types.cpp, aclArray and aclTensorList).
template <class List, class T>
List* create_list(const T* values, uint64_t count) {
    return values ? new List{{values, values + count}} : new List;
}

template <class List>
aclError get_count(const List* list, uint64_t* count) {
    if (!list || !count) return kAclnnNullptr;
    *count = list->values.size();
    return kSuccess;
}

// Sets the address of a tensor: the executor gets the address of the view's first element, and the aclTensor gets the
// address of the storage. The aclTensor changes even if the executor refuses the call.
aclError set_address(aclOpExecutor* executor, PooledExecutor::Side side, size_t index, aclTensor* tensor,
                     void* address) {
    if (!tensor) return fail(kAclnnInnerNullptr, "aclSetTensorAddr", "tensor must not be null.");
    tensor->data = address;
    if (!executor) return fail(kAclnnInnerNullptr, "aclSetTensorAddr", "executor must not be null.");
    if (!executor->pooled)
        return fail(kAclnnInner, "aclSetTensorAddr",
                    "changing the addresses of " + executor->name + " is not simulated.");
    char* first = static_cast<char*>(address) + tensor->offset * static_cast<int64_t>(value_bytes(tensor->dtype));
    return executor->pooled->set_address(side, index, first);
}

aclError refuse_dynamic_tensor(const char* call) {
    return fail(kAclnnInner,
                std::string(call) + " is not simulated, because operators with lists of tensors are not simulated.");
}

}  // namespace
}  // namespace simulated_cann

using namespace simulated_cann;

NPU_CANN_API aclTensor* aclCreateTensor(const int64_t* shape, uint64_t dims, int32_t dtype, const int64_t* strides,
                                        int64_t offset, int32_t format, const int64_t* storage_shape,
                                        uint64_t storage_dims, void* data) {
    if ((dims && !shape) || (storage_dims && !storage_shape)) {
        set_error("simulated CANN: aclCreateTensor: viewDims and storageDims must not be null.");
        return nullptr;
    }
    auto* tensor = new aclTensor;
    tensor->shape.assign(shape, shape + dims);
    tensor->strides.resize(dims);
    uint64_t step = 1;  // unsigned: it wraps for sizes that the functions refuse
    for (uint64_t i = dims; i-- > 0;) {
        tensor->strides[i] = strides ? strides[i] : static_cast<int64_t>(step);
        step *= static_cast<uint64_t>(shape[i]);
    }
    tensor->offset = offset;
    tensor->storage_shape.assign(storage_shape, storage_shape + storage_dims);
    tensor->dtype = dtype;
    tensor->format = format;
    tensor->data = data;
    return tensor;
}

NPU_CANN_API aclScalar* aclCreateScalar(void* value, int32_t dtype) {
    const size_t bytes = scalar_bytes(dtype);
    if (!value || bytes == 0) {
        set_error(
            "simulated CANN: aclCreateScalar: value must not be null and dataType must be the type of a number but "
            "got " +
            std::to_string(dtype) + ".");
        return nullptr;
    }
    auto* scalar = new aclScalar;
    std::memcpy(scalar->value, value, bytes);
    scalar->dtype = dtype;
    return scalar;
}

NPU_CANN_API aclIntArray* aclCreateIntArray(const int64_t* values, uint64_t count) {
    return create_list<aclIntArray>(values, count);
}
NPU_CANN_API aclFloatArray* aclCreateFloatArray(const float* values, uint64_t count) {
    return create_list<aclFloatArray>(values, count);
}
NPU_CANN_API aclBoolArray* aclCreateBoolArray(const bool* values, uint64_t count) {
    return create_list<aclBoolArray>(values, count);
}
NPU_CANN_API aclTensorList* aclCreateTensorList(const aclTensor* const* values, uint64_t count) {
    return create_list<aclTensorList>(values, count);
}
NPU_CANN_API aclScalarList* aclCreateScalarList(const aclScalar* const* values, uint64_t count) {
    return create_list<aclScalarList>(values, count);
}

NPU_CANN_API aclError aclDestroyTensor(const aclTensor* tensor) { return destroy_handle(tensor); }
NPU_CANN_API aclError aclDestroyScalar(const aclScalar* scalar) { return destroy_handle(scalar); }
NPU_CANN_API aclError aclDestroyIntArray(const aclIntArray* array) { return destroy_handle(array); }
NPU_CANN_API aclError aclDestroyFloatArray(const aclFloatArray* array) { return destroy_handle(array); }
NPU_CANN_API aclError aclDestroyBoolArray(const aclBoolArray* array) { return destroy_handle(array); }
NPU_CANN_API aclError aclDestroyTensorList(const aclTensorList* list) { return destroy_list(list); }
NPU_CANN_API aclError aclDestroyScalarList(const aclScalarList* list) { return destroy_list(list); }

// Deletes the executor of a stand-in; no second phase may have run it. Returns the executor of a generated operator to
// its pool. Source: hicann/opbase src/nnopbase/common/api/acl_op_api.cpp.
NPU_CANN_API aclError aclDestroyAclOpExecutor(aclOpExecutor* executor) {
    if (!executor) return fail(kAclnnInnerNullptr, __func__, "executor must not be null.");
    return destroy_executor(executor) ? kSuccess : executor->pooled->release();
}
NPU_CANN_API aclError aclSetAclOpExecutorRepeatable(aclOpExecutor* executor) {
    if (!executor) return fail(kAclnnInnerNullptr, __func__, "executor must not be null.");
    if (!executor->pooled)
        return fail(kAclnnInner, "aclSetAclOpExecutorRepeatable is not simulated for " + executor->name + ".");
    return executor->pooled->set_repeatable();
}
NPU_CANN_API aclError aclSetTensorAddr(aclOpExecutor* executor, size_t index, aclTensor* tensor, void* address) {
    return set_address(executor, PooledExecutor::Side::kAny, index, tensor, address);
}
NPU_CANN_API aclError aclSetInputTensorAddr(aclOpExecutor* executor, size_t index, aclTensor* tensor, void* address) {
    return set_address(executor, PooledExecutor::Side::kInput, index, tensor, address);
}
NPU_CANN_API aclError aclSetOutputTensorAddr(aclOpExecutor* executor, size_t index, aclTensor* tensor, void* address) {
    return set_address(executor, PooledExecutor::Side::kOutput, index, tensor, address);
}
// CANN exports each of the three functions above under a second name.
NPU_CANN_API aclError AclSetTensorAddr(aclOpExecutor* executor, size_t index, aclTensor* tensor, void* address) {
    return aclSetTensorAddr(executor, index, tensor, address);
}
NPU_CANN_API aclError AclSetInputTensorAddr(aclOpExecutor* executor, size_t index, aclTensor* tensor, void* address) {
    return aclSetInputTensorAddr(executor, index, tensor, address);
}
NPU_CANN_API aclError AclSetOutputTensorAddr(aclOpExecutor* executor, size_t index, aclTensor* tensor, void* address) {
    return aclSetOutputTensorAddr(executor, index, tensor, address);
}
NPU_CANN_API aclError aclSetDynamicTensorAddr(aclOpExecutor*, size_t, size_t, aclTensorList*, void*) {
    return refuse_dynamic_tensor(__func__);
}
NPU_CANN_API aclError aclSetDynamicInputTensorAddr(aclOpExecutor*, size_t, size_t, aclTensorList*, void*) {
    return refuse_dynamic_tensor(__func__);
}
NPU_CANN_API aclError aclSetDynamicOutputTensorAddr(aclOpExecutor*, size_t, size_t, aclTensorList*, void*) {
    return refuse_dynamic_tensor(__func__);
}

// The caller frees the results with delete[], as CANN documents.
NPU_CANN_API aclError aclGetViewShape(const aclTensor* tensor, int64_t** dims, uint64_t* count) {
    return tensor ? copy_values(tensor->shape, dims, count) : kAclnnNullptr;
}
NPU_CANN_API aclError aclGetViewStrides(const aclTensor* tensor, int64_t** strides, uint64_t* count) {
    return tensor ? copy_values(tensor->strides, strides, count) : kAclnnNullptr;
}
NPU_CANN_API aclError aclGetStorageShape(const aclTensor* tensor, int64_t** dims, uint64_t* count) {
    return tensor ? copy_values(tensor->storage_shape, dims, count) : kAclnnNullptr;
}
NPU_CANN_API aclError aclGetViewOffset(const aclTensor* tensor, int64_t* offset) {
    if (!tensor || !offset) return kAclnnNullptr;
    *offset = tensor->offset;
    return kSuccess;
}
NPU_CANN_API aclError aclGetDataType(const aclTensor* tensor, int32_t* dtype) {
    if (!tensor || !dtype) return kAclnnNullptr;
    constexpr int32_t kUndefined = 28;  // ge::DT_UNDEFINED, which is -1 in acl (hicann/opbase data_type_utils.h)
    *dtype = tensor->dtype == kUndefined ? -1 : tensor->dtype;
    return kSuccess;
}
NPU_CANN_API aclError aclGetFormat(const aclTensor* tensor, int32_t* format) {
    if (!tensor || !format) return kAclnnNullptr;
    *format = tensor->format;
    return kSuccess;
}
NPU_CANN_API aclError aclGetRawTensorAddr(const aclTensor* tensor, void** address) {
    if (!tensor || !address) return kAclnnNullptr;
    *address = tensor->data;
    return kSuccess;
}
NPU_CANN_API aclError aclSetRawTensorAddr(aclTensor* tensor, void* address) {
    if (!tensor) return kAclnnNullptr;
    tensor->data = address;
    return kSuccess;
}
NPU_CANN_API aclError aclGetIntArraySize(const aclIntArray* array, uint64_t* count) { return get_count(array, count); }
NPU_CANN_API aclError aclGetFloatArraySize(const aclFloatArray* array, uint64_t* count) {
    return get_count(array, count);
}
NPU_CANN_API aclError aclGetBoolArraySize(const aclBoolArray* array, uint64_t* count) {
    return get_count(array, count);
}
NPU_CANN_API aclError aclGetTensorListSize(const aclTensorList* list, uint64_t* count) {
    return get_count(list, count);
}
NPU_CANN_API aclError aclGetScalarListSize(const aclScalarList* list, uint64_t* count) {
    return get_count(list, count);
}
