/* Virtual memory: each line of main() is a rule. A rule that does not hold prints its line and gives exit status 1. */
#include <stdio.h>
#include <string.h>

#include "acl/acl.h"

enum { INVALID = 100000, RT_INVALID = 107000, NOT_SUPPORTED = 200001 };
static int failed = 0;

static void expect(int got, int wanted, int line) {
    if (got == wanted) return;
    printf("line %d: %d instead of %d: %s\n", line, got, wanted, aclGetRecentErrMsg());
    failed = 1;
}
#define EXPECT(call, status) expect((int)(call), status, __LINE__)

int main(void) {
    aclrtPhysicalMemProp prop;
    aclrtDrvMemHandle first = NULL, second = NULL, none = NULL;
    void* range = NULL;
    size_t page = 0;
    char host[8] = "abcdefg", back[8] = "";

    memset(&prop, 0, sizeof prop);
    prop.memAttr = ACL_HBM_MEM_HUGE;
    prop.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
    EXPECT(aclInit(NULL), 0);
    EXPECT(aclrtSetDevice(0), 0);

    EXPECT(aclrtMemGetAllocationGranularity(&prop, ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED, &page), 0);
    EXPECT(page, 2 << 20);
    EXPECT(aclrtMallocPhysical(&none, page + 1, &prop, 0), RT_INVALID);
    EXPECT(aclrtMallocPhysical(&none, 0, &prop, 0), INVALID);
    EXPECT(aclrtMallocPhysical(&none, page, &prop, 1), INVALID);
    prop.memAttr = ACL_DDR_MEM_HUGE;
    EXPECT(aclrtMallocPhysical(&none, page, &prop, 0), INVALID);
    prop.memAttr = ACL_HBM_MEM_HUGE;
    EXPECT(aclrtMallocPhysical(&first, page, &prop, 0), 0);
    EXPECT(aclrtMallocPhysical(&second, page, &prop, 0), 0);

    EXPECT(aclrtReserveMemAddress(&range, 4 * page, 1, NULL, 0), RT_INVALID);
    EXPECT(aclrtReserveMemAddress(&range, 4 * page, 0, NULL, 0), 0);
    EXPECT(aclrtMapMem(range, page, 0, first, 1), INVALID);
    EXPECT(aclrtMapMem((char*)range + 4 * page, page, 0, first, 0), RT_INVALID);
    EXPECT(aclrtMapMem(range, page, 0, first, 0), 0);
    EXPECT(aclrtMapMem(range, page, 0, second, 0), RT_INVALID);
    /* A copy may not leave the mapped memory, and may cross from one mapping to the next. */
    EXPECT(aclrtMemcpy((char*)range + page - 4, 8, host, 8, ACL_MEMCPY_HOST_TO_DEVICE), INVALID);
    EXPECT(aclrtMapMem((char*)range + page, page, 0, second, 0), 0);
    EXPECT(aclrtMemcpy((char*)range + page - 4, 8, host, 8, ACL_MEMCPY_HOST_TO_DEVICE), 0);
    EXPECT(aclrtMemcpy(back, 8, (char*)range + page - 4, 8, ACL_MEMCPY_DEVICE_TO_HOST), 0);
    EXPECT(strcmp(back, host), 0);

    EXPECT(aclrtReleaseMemAddress(range), RT_INVALID);
    EXPECT(aclrtUnmapMem((char*)range + 1), RT_INVALID);
    EXPECT(aclrtFreePhysical(first), 0);
    EXPECT(aclrtFreePhysical(first), RT_INVALID);
    EXPECT(aclrtMemcpy(back, 8, range, 8, ACL_MEMCPY_DEVICE_TO_HOST), 0); /* it lives until it is unmapped */
    EXPECT(aclrtUnmapMem(range), 0);
    EXPECT(aclrtUnmapMem((char*)range + page), 0);
    EXPECT(aclrtFreePhysical(second), 0);
    EXPECT(aclrtReleaseMemAddress(range), 0);
    EXPECT(aclrtReleaseMemAddress(range), RT_INVALID);
    return failed;
}
