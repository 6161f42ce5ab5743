// HCCL's functions. A function of functions.def without a definition in simulator/cann/hccl fails when it is called.
#pragma once

#include "acl/acl.h"
#include "hccl/hccl_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HCCL(type, name, parameters) type name parameters;
#include "hccl/functions.def"
#undef HCCL

// Sets a configuration to its default values.
static inline void HcclCommConfigInit(HcclCommConfig* config) {
    struct {
        size_t size;
        uint32_t magicWord, version;
        uint64_t reserved;
    } info = {sizeof(HcclCommConfig), HCCL_COMM_CONFIG_MAGIC_WORD, HCCL_COMM_CONFIG_VERSION, 0};
    const uint32_t not_set = 0xffffffffU;
    if (!config) return;
    __builtin_memset(config, 0, sizeof(*config));
    __builtin_memcpy(config->reserved, &info, sizeof(info));
    config->hcclBufferSize = config->hcclDeterministic = config->hcclRdmaTrafficClass = not_set;
    config->hcclRdmaServiceLevel = config->hcclQos = not_set;
    config->hcclExecTimeOut = -1;
    config->hcclSymWinMaxMemSizePerRank = 16;
}

#ifdef __cplusplus
}
#endif
