// Reduces one number over the devices of one process with HCCL, and prints the sum on each device.
#include <stdint.h>
#include <stdio.h>

#include "hccl/hccl.h"

#define DEVICES 2

static void check(int status, const char* call) {
    if (status == 0) return;
    fprintf(stderr, "%s: %d %s\n", call, status, aclGetRecentErrMsg());
    fflush(stderr);
    __builtin_trap();
}

int main(void) {
    int32_t devices[DEVICES] = {0, 1};
    HcclComm comms[DEVICES];
    aclrtStream streams[DEVICES];
    void* memory[DEVICES];
    HcclCommConfig config;
    check(aclInit(NULL), "aclInit");
    check(aclrtSetDevice(0), "aclrtSetDevice");
    HcclCommConfigInit(&config);
    check(HcclCommInitAll(DEVICES, devices, comms), "HcclCommInitAll");
    for (int i = 0; i < DEVICES; ++i) {
        const float value = 1.5f + (float)i;
        check(aclrtSetDevice(i), "aclrtSetDevice");
        check(aclrtCreateStream(&streams[i]), "aclrtCreateStream");
        check(aclrtMalloc(&memory[i], sizeof(value), ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
        check(aclrtMemcpy(memory[i], sizeof(value), &value, sizeof(value), ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy");
        check(HcclAllReduce(memory[i], memory[i], 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comms[i], streams[i]),
              "HcclAllReduce");
    }
    for (int i = 0; i < DEVICES; ++i) {
        float sum = 0;
        check(aclrtSetDevice(i), "aclrtSetDevice");
        check(aclrtSynchronizeStream(streams[i]), "aclrtSynchronizeStream");
        check(aclrtMemcpy(&sum, sizeof(sum), memory[i], sizeof(sum), ACL_MEMCPY_DEVICE_TO_HOST), "aclrtMemcpy");
        printf("%g\n", sum);
        check(HcclCommDestroy(comms[i]), "HcclCommDestroy");
        check(aclrtFree(memory[i]), "aclrtFree");
        check(aclrtDestroyStream(streams[i]), "aclrtDestroyStream");
    }
    return aclFinalize();
}
