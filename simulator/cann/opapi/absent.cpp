// The functions of libopapi without a stand-in. Each call fails, and its message and the report name the function. The
// definitions are weak: a stand-in replaces them.
extern "C" int simulated_cann_not_simulated(const char* call);

#define ABSENT(name) \
    extern "C" __attribute__((weak, visibility("default"))) int name() { return simulated_cann_not_simulated(#name); }
#define ACLNN(header, name, parameters)   \
    ABSENT(aclnn##name##GetWorkspaceSize) \
    ABSENT(aclnn##name)
#define ACLNN_PLAIN(header, name, parameters) ABSENT(aclnn##name)
#include "cann/opapi/functions.def"
