/* Virtual memory: each line of main() is a rule. A rule that does not hold prints its line and gives exit status 1. */
#include <stdio.h>
#include <string.h>

#include "acl/acl.h"

enum { INVALID = 100000, RT_INVALID = 107000, NO_DEVICE = 107001, NOT_SUPPORTED = 200001, NO_MEMORY = 207001 };
static int failed = 0;

static void expect(int got, int wanted, int line) {
    if (got == wanted) return;
    printf("line %d: %d instead of %d: %s\n", line, got, wanted, aclGetRecentErrMsg());
    failed = 1;
}
#define EXPECT(call, status) expect((int)(call), status, __LINE__)

static void refused_properties(aclrtPhysicalMemProp prop, size_t page) {
    const int attributes[] = {ACL_HBM_MEM_HUGE, ACL_HBM_MEM_NORMAL, ACL_MEM_NORMAL, ACL_MEM_HUGE};
    const int of_the_host[] = {ACL_DDR_MEM_HUGE, ACL_DDR_MEM_NORMAL, ACL_DDR_MEM_P2P_HUGE, ACL_DDR_MEM_P2P_NORMAL};
    aclrtDrvMemHandle made = NULL;
    aclrtPhysicalMemProp other = prop;
    for (int i = 0; i < 4; ++i) {
        other.memAttr = (aclrtMemAttr)attributes[i];
        EXPECT(aclrtMallocPhysical(&made, page, &other, 0), 0);
        EXPECT(aclrtFreePhysical(made), 0);
        other.memAttr = (aclrtMemAttr)of_the_host[i];
        EXPECT(aclrtMallocPhysical(&made, page, &other, 0), INVALID);
        EXPECT(aclrtMemGetAllocationGranularity(&other, ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM, &page), INVALID);
    }
    aclrtMemAttr unknown[] = {ACL_DDR_MEM, ACL_HBM_MEM, ACL_HBM_MEM_P2P_HUGE, ACL_HBM_MEM_P2P_HUGE1G, (aclrtMemAttr)99};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; ++i) {
        other.memAttr = unknown[i];
        EXPECT(aclrtMallocPhysical(&made, page, &other, 0), INVALID);
    }
    other.location.id = 1;
    EXPECT(aclrtMallocPhysical(&made, page, &other, 0), INVALID);
    other.location.id = 0;
    other.memAttr = ACL_MEM_HUGE1G;
    EXPECT(aclrtMallocPhysical(&made, page, &other, 0), NOT_SUPPORTED);
    for (int type = 2; type < 4; ++type) {
        other.location.type = (aclrtMemLocationType)type;
        EXPECT(aclrtMallocPhysical(&made, page, &other, 0), INVALID);
    }
    other = prop;
    other.location.type = ACL_MEM_LOCATION_TYPE_HOST;
    EXPECT(aclrtMallocPhysical(&made, page, &other, 0), NOT_SUPPORTED);
    other = prop;
    other.location.id = 1;
    EXPECT(aclrtMallocPhysical(&made, page, &other, 0), NO_DEVICE);
    other = prop;
    other.handleType = (aclrtMemHandleType)1;
    EXPECT(aclrtMallocPhysical(&made, page, &other, 0), INVALID);
    other = prop;
    other.allocationType = (aclrtMemAllocationType)1;
    EXPECT(aclrtMallocPhysical(&made, page, &other, 0), INVALID);
}

/* The number of bytes of the device that are in use. */
static size_t used(void) {
    size_t left = 0, total = 0;
    EXPECT(aclrtGetMemInfo(ACL_HBM_MEM, &left, &total), 0);
    return total - left;
}

static int kind_of(void* address) {
    aclrtPtrAttributes attributes;
    EXPECT(aclrtPointerGetAttributes(address, &attributes), 0);
    return (int)attributes.location.type;
}

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
    page = 0;
    EXPECT(aclrtMemGetAllocationGranularity(&prop, ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM, &page), 0);
    EXPECT(page, 2 << 20);
    EXPECT(aclrtMemGetAllocationGranularity(NULL, ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM, &page), INVALID);
    EXPECT(aclrtMemGetAllocationGranularity(&prop, ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM, NULL), INVALID);
    EXPECT(aclrtMemGetAllocationGranularity(&prop, (aclrtMemGranularityOptions)2, &page), INVALID);
    refused_properties(prop, page);
    EXPECT(aclrtMallocPhysical(NULL, page, &prop, 0), INVALID);
    EXPECT(aclrtMallocPhysical(&none, page, NULL, 0), INVALID);
    EXPECT(aclrtMallocPhysical(&none, (size_t)1 << 45, &prop, 0), NO_MEMORY);
    EXPECT(aclrtMallocPhysical(&none, page + 1, &prop, 0), RT_INVALID);
    EXPECT(aclrtMallocPhysical(&none, 0, &prop, 0), INVALID);
    EXPECT(aclrtMallocPhysical(&none, page, &prop, 1), INVALID);
    prop.memAttr = ACL_DDR_MEM_HUGE;
    EXPECT(aclrtMallocPhysical(&none, page, &prop, 0), INVALID);
    prop.memAttr = ACL_HBM_MEM_HUGE;
    EXPECT(aclrtMallocPhysical(&first, page, &prop, 0), 0);
    EXPECT(aclrtMallocPhysical(&second, page, &prop, 0), 0);

    EXPECT(aclrtReserveMemAddress(&range, 4 * page, 1, NULL, 0), RT_INVALID);
    EXPECT(aclrtReserveMemAddress(NULL, page, 0, NULL, 0), INVALID);
    EXPECT(aclrtReserveMemAddress(&range, 0, 0, NULL, 0), INVALID);
    EXPECT(aclrtReserveMemAddress(&range, page, 0, NULL, 2), INVALID);
    EXPECT(aclrtReserveMemAddress(&range, page, 0, host, 0), NOT_SUPPORTED);
    EXPECT(aclrtReserveMemAddress(&range, page, 0, NULL, 1), 0);
    EXPECT((size_t)range % page, 0);
    EXPECT(aclrtReleaseMemAddress(range), 0);
    EXPECT(aclrtReserveMemAddress(&range, 4 * page, 0, NULL, 0), 0);
    EXPECT((size_t)range % page, 0);
    EXPECT(aclrtMapMem(range, page, 0, first, 1), INVALID);
    EXPECT(aclrtMapMem(NULL, page, 0, first, 0), INVALID);
    EXPECT(aclrtMapMem(range, page, 0, NULL, 0), INVALID);
    EXPECT(aclrtMapMem(range, 0, 0, first, 0), INVALID);
    EXPECT(aclrtMapMem(range, page, page, first, 0), RT_INVALID);
    EXPECT(aclrtMapMem(range, 2 * page, 0, first, 0), RT_INVALID);
    EXPECT(aclrtMapMem(range, page, 0, host, 0), RT_INVALID);
    EXPECT(aclrtMapMem((char*)range + 4 * page, page, 0, first, 0), RT_INVALID);
    EXPECT(aclrtMapMem((char*)range + 1, page, 0, first, 0), RT_INVALID);
    EXPECT(aclrtMapMem((char*)range + 4096, page, 0, first, 0), RT_INVALID);
    EXPECT(aclrtMapMem((char*)range + 3 * page + 4096, page, 0, first, 0), RT_INVALID);
    EXPECT(aclrtMapMem((char*)range - 4096, page, 0, first, 0), RT_INVALID);
    EXPECT(used(), 0);
    EXPECT(kind_of(range), 2);
    EXPECT(aclrtMapMem((char*)range + 3 * page, page, 0, first, 0), 0); /* the last page */
    EXPECT(used(), page);
    EXPECT(kind_of((char*)range + 3 * page), 1);
    EXPECT(kind_of((char*)range + 4 * page - 1), 1);
    EXPECT(kind_of((char*)range + 3 * page - 1), 2);
    EXPECT(aclrtMemcpy(back, 8, (char*)range + 3 * page, 8, ACL_MEMCPY_DEVICE_TO_HOST), 0);
    EXPECT(memcmp(back, "\xff\xff\xff\xff\xff\xff\xff\xff", 8), 0); /* fresh memory is NaN */
    EXPECT(aclrtMapMem((char*)range + 2 * page + 4096, page, 0, second, 0), RT_INVALID);
    EXPECT(aclrtUnmapMem((char*)range + 3 * page), 0);
    EXPECT(used(), 0);
    EXPECT(kind_of((char*)range + 3 * page), 2);
    EXPECT(aclrtMapMem(range, page, 0, first, 0), 0);
    EXPECT(aclrtMapMem((char*)range + 4096, page, 0, second, 0), RT_INVALID);
    EXPECT(aclrtMapMem((char*)range + 2 * page, page, 0, first, 0), 0); /* the same memory again */
    EXPECT(aclrtMemcpy((char*)range + 2 * page, 8, host, 8, ACL_MEMCPY_HOST_TO_DEVICE), 0);
    EXPECT(aclrtMemcpy(back, 8, range, 8, ACL_MEMCPY_DEVICE_TO_HOST), 0);
    EXPECT(strcmp(back, host), 0);
    EXPECT(aclrtMemcpy((char*)range + page - 4, 8, host, 8, ACL_MEMCPY_HOST_TO_DEVICE), INVALID); /* a gap follows */
    EXPECT(aclrtUnmapMem((char*)range + 2 * page), 0);
    memset(back, 0, sizeof back);
    EXPECT(aclrtMapMem(range, page, 0, second, 0), RT_INVALID);
    /* A copy may not leave the mapped memory, and may cross from one mapping to the next. */
    EXPECT(aclrtMemcpy((char*)range + page - 4, 8, host, 8, ACL_MEMCPY_HOST_TO_DEVICE), INVALID);
    EXPECT(aclrtMapMem((char*)range + page, page, 0, second, 0), 0);
    EXPECT(aclrtMemcpy((char*)range + page - 4, 8, host, 8, ACL_MEMCPY_HOST_TO_DEVICE), 0);
    EXPECT(aclrtMemcpy(back, 8, (char*)range + page - 4, 8, ACL_MEMCPY_DEVICE_TO_HOST), 0);
    EXPECT(strcmp(back, host), 0);

    EXPECT(aclrtReleaseMemAddress(range), RT_INVALID);
    EXPECT(aclrtReleaseMemAddress(NULL), INVALID);
    EXPECT(aclrtUnmapMem((char*)range + 1), RT_INVALID);
    EXPECT(aclrtUnmapMem(NULL), INVALID);
    EXPECT(aclrtFreePhysical(NULL), INVALID);
    EXPECT(aclrtFreePhysical(first), 0);
    EXPECT(aclrtFreePhysical(first), RT_INVALID);
    EXPECT(aclrtMapMem((char*)range + 2 * page, page, 0, first, 0), RT_INVALID);
    EXPECT(aclrtMemcpy(back, 8, range, 8, ACL_MEMCPY_DEVICE_TO_HOST), 0); /* it lives until it is unmapped */
    EXPECT(aclrtUnmapMem(range), 0);
    EXPECT(aclrtUnmapMem((char*)range + page), 0);
    EXPECT(aclrtFreePhysical(second), 0);
    EXPECT(aclrtReleaseMemAddress(range), 0);
    EXPECT(aclrtReleaseMemAddress(range), RT_INVALID);
    return failed;
}
