/* The part of libascend_sim_cann's C interface that CANN lacks: aclnn calls on the host's own memory, and launches of a
 * program's own kernels.
 *
 * Host calls: ascend_sim_begin_host_calls() selects a chip, an operator package, memory and options for the calling
 * thread. Until ascend_sim_end_host_calls(), both phases of an aclnn call of a generated operator use them. A kernel
 * runs immediately, in the second phase. There is no device, no stream, no guarded device memory and no entry in the
 * process's report. Other threads are not affected. Argument checks, definitions, tilings and kernels are the same as
 * in other calls. */
#ifndef ASCEND_SIM_CANN_H
#define ASCEND_SIM_CANN_H

#include "include/ascend_sim.h"

#if defined(__cplusplus)
extern "C" {
#endif

typedef struct ascend_sim_host_calls {
    const char* chip;                  /* "Ascend910B3": one of ascend_sim_profiles() */
    const char* package;               /* the path of the operator package's folder, with symbolic links resolved */
    int32_t cores;                     /* number of the chip's cores that a tiling may use */
    const ascend_sim_memory* memories; /* all that the calls may access, with workspaces; roles and names are unused */
    int32_t memory_count;
    const ascend_sim_launch* options; /* the fields from `lenient` on are used; the call sets the others */
    int32_t deterministic; /* non-zero: tilings see CANN's deterministic mode, as after ACL_OPT_DETERMINISTIC 1 */
} ascend_sim_host_calls;

/* The struct and the data behind its pointers must remain valid until ascend_sim_end_host_calls(). They may change
 * between calls. Calls of this function do not nest: a further call replaces the struct. */
ASCEND_SIM_EXPORT void ascend_sim_begin_host_calls(const ascend_sim_host_calls* calls);

/* Returns the message of the last aclnn call that failed; "" if all succeeded. It is valid until the thread's next
 * ascend_sim_begin_host_calls(). */
ASCEND_SIM_EXPORT const char* ascend_sim_end_host_calls(void);

/* A kernel that a program itself launches, with <<<blocks, l2ctrl, stream>>>. */
typedef struct ascend_sim_kernel {
    const char* name;
    int32_t arch;      /* __CCE_AICORE__ of the code */
    int32_t auto_sync; /* non-zero: the compiler inserts synchronisation, see ascend_sim_launch */
    int64_t blocks;
    void* stream;
    ascend_sim_call call; /* gets `context` as its last argument */
    void* context;
    void (*release)(void* context); /* called once, after the launch or if it fails */
    void* const* pointers;          /* the kernel's pointers; `call` gets the GM addresses for them */
    int32_t pointer_count;
} ascend_sim_kernel;

/* Queues the kernel on its stream. Returns acl's status of the queueing; a later wait for the stream returns the
 * kernel's status. The kernel may access all device allocations that the pointers point into. */
ASCEND_SIM_EXPORT int32_t ascend_sim_launch_kernel(const ascend_sim_kernel* kernel);

#if defined(__cplusplus)
}
#endif

#endif
