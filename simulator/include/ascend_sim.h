/* The simulator's C interface: run a compiled kernel on a simulated Ascend chip, core by core.
 *
 * A launch copies its memory into arenas: 512-byte aligned copies with guard zones. It runs all cores in ascending
 * order and again in descending order, compares the results, and copies outputs back if no rule was broken.
 * ascend_sim_report() returns the violations and the timeline's summary as JSON. */
#ifndef ASCEND_SIM_H
#define ASCEND_SIM_H

#include <stdint.h>

#if defined(__cplusplus)
extern "C" {
#endif

#define ASCEND_SIM_EXPORT __attribute__((visibility("default")))

/* The version of this interface and of the functions that compiled kernels call. Each kernel refers to the symbol of
 * its version, so it does not load with a library of another version. */
#define ASCEND_SIM_ABI_VERSION 2
ASCEND_SIM_EXPORT extern const int32_t ascend_sim_abi_2;
ASCEND_SIM_EXPORT int32_t ascend_sim_abi_version(void);

typedef enum ascend_sim_status {
    ASCEND_SIM_OK = 0,
    ASCEND_SIM_BROKEN_RULE = 1, /* ascend_sim_report() has the rule and the line of the kernel */
    ASCEND_SIM_BAD_CALL = 2     /* unknown SoC, rule or figure; too many arguments; trace_path not writable; not enough
                                   memory: the results are as they were */
} ascend_sim_status;

typedef enum ascend_sim_role {
    ASCEND_SIM_IN = 0,
    ASCEND_SIM_OUT = 1,
    ASCEND_SIM_INOUT = 2,
    ASCEND_SIM_SUM = 3, /* like INOUT, but no error if sums of atomic copies depend on the order of the cores */
    ASCEND_SIM_PART = 4 /* like OUT, but the kernel may leave bytes unwritten, such as gaps between rows */
} ascend_sim_role;

typedef struct ascend_sim_memory {
    const char* name;
    void* data;
    uint64_t bytes;
    int32_t role; /* ascend_sim_role */
} ascend_sim_memory;

/* One GM_ADDR argument: the index of a memory and an offset in bytes. memory -1: a null pointer. */
typedef struct ascend_sim_arg {
    int32_t memory;
    int64_t offset;
} ascend_sim_arg;

typedef struct ascend_sim_launch {
    const char* soc; /* "ascend910b", "Ascend910B3", ... */
    uint32_t block_dim;
    uint64_t tiling_key;
    const void* tiling;
    uint64_t tiling_bytes;
    uint64_t workspace_bytes;
    const char* lenient;    /* rules that only warn: "SIM-COUNT-01,SIM-EVENT-05", "all", NULL for none */
    int32_t auto_sync;      /* non-zero: order vector instructions and scalar accesses, as --cce-auto-sync does */
    int32_t saturate;       /* non-zero: half clamps to its largest value instead of infinity */
    int32_t one_order;      /* non-zero: run the cores in ascending order only */
    const char* trace_path; /* write the timeline as Chrome trace JSON; NULL: none */
    int32_t trace_cores;    /* number of cores in the timeline, from the first; 0: all */
    const char* figures;    /* replaces figures of the profile: "read_latency_cycles=570,flag_cycles=1"; NULL: none */
} ascend_sim_launch;

/* Runs the kernel `entry`, whose parameters are GM addresses: the arguments, then workspace and tiling. Returns an
 * ascend_sim_status. */
ASCEND_SIM_EXPORT int32_t ascend_sim_run(void* entry, const ascend_sim_memory* memories, int32_t memory_count,
                                         const ascend_sim_arg* args, int32_t arg_count,
                                         const ascend_sim_launch* launch);

/* Calls a kernel whose parameters are not all GM addresses. `addresses` has the GM addresses of the arguments, of the
 * workspace and of the tiling; `context` is the argument of ascend_sim_run_call. The function is called once for each
 * core in each order of the cores. The two orders may run at the same time, each on its own thread. It must not throw.
 */
typedef void (*ascend_sim_call)(uint8_t* const* addresses, const void* context);
ASCEND_SIM_EXPORT int32_t ascend_sim_run_call(ascend_sim_call call, const void* context,
                                              const ascend_sim_memory* memories, int32_t memory_count,
                                              const ascend_sim_arg* args, int32_t arg_count,
                                              const ascend_sim_launch* launch);

/* Returns a compiled kernel by its entry's name, <kernel>__<soc>__<types>. It searches the libraries in the environment
 * variable ASCEND_SIM_KERNELS, then <folder>/<soc>.so. NULL: there is no such entry, or a library does not load;
 * dlerror() has the reason. */
ASCEND_SIM_EXPORT void* ascend_sim_find_kernel(const char* folder, const char* entry);

/* The number of kernels that this thread has launched. */
ASCEND_SIM_EXPORT uint64_t ascend_sim_launches(void);

/* JSON of this thread's last launch; valid until the thread's next launch. */
ASCEND_SIM_EXPORT const char* ascend_sim_report(void);

/* The first message of the report, about a broken rule or a bad call; "" if there was no error. */
ASCEND_SIM_EXPORT const char* ascend_sim_message(void);

/* Returns non-zero if a trace can be written to this path. Leaves no new file. */
ASCEND_SIM_EXPORT int32_t ascend_sim_may_write(const char* path);

/* The rules and the SoC profiles as JSON. */
ASCEND_SIM_EXPORT const char* ascend_sim_rules(void);
ASCEND_SIM_EXPORT const char* ascend_sim_profiles(void);

/* JSON: the element types of each instruction for each instruction set (220, 200 or 310, "arch" in the profiles).
 * ["any"]: the type does not matter. []: the instruction set lacks the instruction. */
ASCEND_SIM_EXPORT const char* ascend_sim_instructions(void);
/* JSON: likewise, the round modes of each conversion. []: the instruction set lacks the conversion. */
ASCEND_SIM_EXPORT const char* ascend_sim_conversions(void);

#if defined(__cplusplus)
}
#endif

#endif
