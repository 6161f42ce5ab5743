/* Calls of the simulated CANN on the host's own memory: the C interface of libascend_sim_cann beside CANN's.
 *
 * Between ascend_sim_begin_host_calls() and ascend_sim_end_host_calls(), aclnn's two phases of a generated operator on
 * the calling thread use the chip, the operator package, the memory and the options that are given here. A kernel runs
 * immediately, in its second phase. There is no device, no stream, no guarded device memory and no entry in the
 * process's report. Other threads are not affected. Argument checks, definitions, tilings and kernels are those of
 * other calls. */
#ifndef ASCEND_SIM_CANN_H
#define ASCEND_SIM_CANN_H

#include "include/ascend_sim.h"

#if defined(__cplusplus)
extern "C" {
#endif

typedef struct ascend_sim_host_calls {
    const char* chip;                  /* "Ascend910B3": one of ascend_sim_profiles() */
    const char* package;               /* the operator package's folder, without links */
    int32_t cores;                     /* number of the chip's cores that a tiling may use */
    const ascend_sim_memory* memories; /* that the calls may access, with workspaces; roles and names are unused */
    int32_t memory_count;
    const ascend_sim_launch* options; /* lenient, auto_sync, saturate, one_order, trace_path, trace_cores */
} ascend_sim_host_calls;

/* The struct and what it points to must remain valid until the end; they may change between calls. Begins do not nest:
 * a begin replaces the one before. */
ASCEND_SIM_EXPORT void ascend_sim_begin_host_calls(const ascend_sim_host_calls* calls);

/* Returns the message of the last call that failed; "" if none did. It is valid until the thread's next begin. */
ASCEND_SIM_EXPORT const char* ascend_sim_end_host_calls(void);

/* A kernel that a program launches itself, with <<<blocks, l2ctrl, stream>>>. */
typedef struct ascend_sim_kernel {
    const char* name;
    int32_t arch; /* __CCE_AICORE__ of the code */
    int64_t blocks;
    void* stream;
    ascend_sim_call call; /* with the context */
    void* context;
    void (*release)(void* context); /* called once, after the launch or its refusal */
    void* const* pointers;          /* the addresses among the kernel's arguments; `call` gets their places instead */
    int32_t pointer_count;
} ascend_sim_kernel;

/* Queues the kernel on its stream. Returns acl's status; a later wait for the stream returns that of the kernel. Its
 * memory is all of the device allocations that the pointers point into. */
ASCEND_SIM_EXPORT int32_t ascend_sim_launch_kernel(const ascend_sim_kernel* kernel);

#if defined(__cplusplus)
}
#endif

#endif
