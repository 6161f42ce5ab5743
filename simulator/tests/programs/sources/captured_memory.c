/* Memory and graphs: what is allocated during a capture, and replays after memory was freed. Each line of main() is a
   rule. A rule that does not hold prints its line and gives exit status 1. */
#include <stdio.h>
#include <string.h>

#include "acl/acl.h"
#include "aclnnop/aclnn_ones.h"

enum { VECTOR_CORE_ERROR = 507035, COUNT = 16 };
static int failed = 0;

static void expect(int got, int wanted, int line) {
    if (got == wanted) return;
    printf("line %d: %d instead of %d: %s\n", line, got, wanted, aclGetRecentErrMsg());
    failed = 1;
}
#define EXPECT(call, status) expect((int)(call), status, __LINE__)

/* Queues work that sets the memory to ones. */
static int set_to_one(void* memory, aclrtStream stream) {
    const int64_t dims[] = {COUNT}, strides[] = {1};
    aclTensor* tensor = aclCreateTensor(dims, 1, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, dims, 1, memory);
    uint64_t workspace = 0;
    aclOpExecutor* executor = NULL;
    int status = aclnnInplaceOneGetWorkspaceSize(tensor, &workspace, &executor);
    if (status == 0) status = aclnnInplaceOne(NULL, workspace, executor, stream);
    aclDestroyTensor(tensor);
    return status;
}

static int are_ones(const void* memory) {
    float values[COUNT];
    if (aclrtMemcpy(values, sizeof values, memory, sizeof values, ACL_MEMCPY_DEVICE_TO_HOST)) return 0;
    for (int i = 0; i < COUNT; ++i)
        if (values[i] != 1) return 0;
    return 1;
}

int main(void) {
    aclrtPhysicalMemProp prop;
    aclrtDrvMemHandle physical = NULL;
    aclrtStream stream = NULL;
    aclmdlRI graph = NULL;
    void *range = NULL, *allocated = NULL, *unused = NULL;
    const size_t page = 2 << 20, bytes = COUNT * sizeof(float);

    memset(&prop, 0, sizeof prop);
    prop.memAttr = ACL_HBM_MEM_HUGE;
    prop.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
    EXPECT(aclInit(NULL), 0);
    EXPECT(aclrtSetDevice(0), 0);
    EXPECT(aclrtCreateStream(&stream), 0);
    EXPECT(aclrtReserveMemAddress(&range, page, 0, NULL, 0), 0);

    EXPECT(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL), 0);
    EXPECT(aclrtMalloc(&unused, bytes, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    EXPECT(aclrtFree(unused), 0);
    EXPECT(aclrtMalloc(&allocated, bytes, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    EXPECT(aclrtMallocPhysical(&physical, page, &prop, 0), 0);
    EXPECT(aclrtMapMem(range, page, 0, physical, 0), 0);
    EXPECT(set_to_one(allocated, stream), 0);
    EXPECT(set_to_one(range, stream), 0);
    EXPECT(aclmdlRICaptureEnd(stream, &graph), 0);
    EXPECT(are_ones(allocated), 0);
    EXPECT(are_ones(range), 0);

    EXPECT(aclmdlRIExecuteAsync(graph, stream), 0);
    EXPECT(aclrtSynchronizeStream(stream), 0);
    EXPECT(are_ones(allocated), 1);
    EXPECT(are_ones(range), 1);

    /* A graph keeps the addresses of its capture. */
    EXPECT(aclrtFree(allocated), 0);
    EXPECT(aclmdlRIExecuteAsync(graph, stream), 0);
    EXPECT(aclrtSynchronizeStream(stream), VECTOR_CORE_ERROR);
    const char* message = aclGetRecentErrMsg();
    EXPECT(message && strstr(message, "aclnnInplaceOne: self is written to memory that was freed"), 1);
    return failed;
}
