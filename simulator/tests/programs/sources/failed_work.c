// Queues work that fails when it runs, ignores the errors, and ends with 0. The argument selects the work: "index" (an
// index outside its tensor, three times), "collective" (calls of HCCL that differ), or "freed" (memory that was freed).
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "aclnnop/aclnn_index_select.h"
#include "aclnnop/aclnn_relu.h"
#include "hccl/hccl.h"

#define DEVICES 2
#define COUNT 8

static void check(int status, const char* call) {
    if (status == 0) return;
    fprintf(stderr, "%s: %d %s\n", call, status, aclGetRecentErrMsg());
    fflush(stderr);
    __builtin_trap();
}

static void* filled(const void* from, size_t bytes) {
    void* memory = NULL;
    check(aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
    check(aclrtMemcpy(memory, bytes, from, bytes, ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy");
    return memory;
}

static aclTensor* tensor_of(void* memory, aclDataType type, int64_t count) {
    const int64_t one = 1;
    return aclCreateTensor(&count, 1, type, &one, 0, ACL_FORMAT_ND, &count, 1, memory);
}

static void select_outside(aclrtStream stream) {
    const float values[COUNT] = {0};
    for (int64_t index = 0; index < 4; ++index) {
        const int64_t selected = index == 0 ? 7 : 10 * index + 1;
        aclTensor* self = tensor_of(filled(values, sizeof(values)), ACL_FLOAT, COUNT);
        aclTensor* out = tensor_of(filled(values, sizeof(float)), ACL_FLOAT, 1);
        aclTensor* indices = tensor_of(filled(&selected, sizeof(selected)), ACL_INT64, 1);
        uint64_t bytes = 0;
        aclOpExecutor* executor = NULL;
        check(aclnnIndexSelectGetWorkspaceSize(self, 0, indices, out, &bytes, &executor), "aclnnIndexSelect");
        check(bytes != 0, "the size of the workspace");
        aclnnIndexSelect(NULL, bytes, executor, stream);
        aclrtSynchronizeStream(stream);
    }
}

static void use_freed(aclrtStream stream) {
    const float values[COUNT] = {0};
    void* memory = filled(values, sizeof(values));
    uint64_t bytes = 0;
    aclOpExecutor* executor = NULL;
    check(aclnnInplaceReluGetWorkspaceSize(tensor_of(memory, ACL_FLOAT, COUNT), &bytes, &executor), "aclnnInplaceRelu");
    check(aclrtFree(memory), "aclrtFree");
    aclnnInplaceRelu(NULL, bytes, executor, stream);
    aclrtSynchronizeStream(stream);
}

static void reduce_other_counts(void) {
    const float values[COUNT] = {0};
    int32_t devices[DEVICES] = {0, 1};
    HcclComm comms[DEVICES];
    aclrtStream streams[DEVICES];
    check(HcclCommInitAll(DEVICES, devices, comms), "HcclCommInitAll");
    for (int i = 0; i < DEVICES; ++i) {
        check(aclrtSetDevice(i), "aclrtSetDevice");
        check(aclrtCreateStream(&streams[i]), "aclrtCreateStream");
        void* memory = filled(values, sizeof(values));
        HcclAllReduce(memory, memory, 4 + i, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comms[i], streams[i]);
    }
    for (int i = 0; i < DEVICES; ++i) {
        check(aclrtSetDevice(i), "aclrtSetDevice");
        aclrtSynchronizeStream(streams[i]);
    }
}

int main(int count, char** arguments) {
    check(count != 2, "the number of arguments");
    aclrtStream stream = NULL;
    check(aclInit(NULL), "aclInit");
    check(aclrtSetDevice(0), "aclrtSetDevice");
    check(aclrtCreateStream(&stream), "aclrtCreateStream");
    if (strcmp(arguments[1], "index") == 0) select_outside(stream);
    if (strcmp(arguments[1], "collective") == 0) reduce_other_counts();
    if (strcmp(arguments[1], "freed") == 0) use_freed(stream);
    return 0;
}
