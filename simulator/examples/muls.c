/* A program of CANN's aclnn interface: y = 2 x, for a transposed x. */
#include <stdio.h>

#include "acl/acl.h"
#include "aclnnop/aclnn_mul.h"

enum { kRows = 3, kColumns = 2, kCount = kRows * kColumns };

static void check(int status, const char* call) {
    if (status == ACL_SUCCESS) return;
    fprintf(stderr, "%s returned %d: %s\n", call, status, aclGetRecentErrMsg());
}

int main(void) {
    float values[kCount] = {1, 2, 3, 4, 5, 6}, factor = 2;
    const int64_t shape[] = {kRows, kColumns}, transposed[] = {1, kRows}, packed[] = {kColumns, 1},
                  storage[] = {kCount};
    void *x = NULL, *y = NULL, *workspace = NULL;
    uint64_t bytes = 0;
    aclOpExecutor* executor = NULL;
    aclrtStream stream = NULL;

    check(aclInit(NULL), "aclInit");
    check(aclrtSetDevice(0), "aclrtSetDevice");
    check(aclrtCreateStream(&stream), "aclrtCreateStream");
    check(aclrtMalloc(&x, sizeof values, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
    check(aclrtMalloc(&y, sizeof values, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
    check(aclrtMemcpy(x, sizeof values, values, sizeof values, ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy");

    aclTensor* in = aclCreateTensor(shape, 2, ACL_FLOAT, transposed, 0, ACL_FORMAT_ND, storage, 1, x);
    aclTensor* out = aclCreateTensor(shape, 2, ACL_FLOAT, packed, 0, ACL_FORMAT_ND, storage, 1, y);
    aclScalar* scalar = aclCreateScalar(&factor, ACL_FLOAT);
    check(aclnnMulsGetWorkspaceSize(in, scalar, out, &bytes, &executor), "aclnnMulsGetWorkspaceSize");
    if (bytes) check(aclrtMalloc(&workspace, bytes, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
    check(aclnnMuls(workspace, bytes, executor, stream), "aclnnMuls");
    check(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");

    check(aclrtMemcpy(values, sizeof values, y, sizeof values, ACL_MEMCPY_DEVICE_TO_HOST), "aclrtMemcpy");
    for (int row = 0; row < kRows; ++row) printf("%g %g\n", values[row * kColumns], values[row * kColumns + 1]);

    aclDestroyTensor(in);
    aclDestroyTensor(out);
    aclDestroyScalar(scalar);
    if (workspace) aclrtFree(workspace);
    aclrtFree(x);
    aclrtFree(y);
    aclrtDestroyStream(stream);
    aclrtResetDevice(0);
    return aclFinalize();
}
