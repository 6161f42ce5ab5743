/* The simulator's C interface: run a compiled kernel on a simulated Ascend chip, core by core.
 *
 * A launch copies its memory into 512-byte aligned arenas with guard zones, runs every core in ascending
 * and in descending order, compares the results, and copies outputs back if no rule was broken.
 * npu_sim_report() returns the violations and the timeline's summary as JSON. */
#ifndef NPU_SIM_H
#define NPU_SIM_H

#include <stdint.h>

#if defined(__cplusplus)
extern "C" {
#endif

#define NPU_SIM_EXPORT __attribute__((visibility("default")))

typedef enum npu_sim_status {
    NPU_SIM_OK = 0,
    NPU_SIM_BROKEN_RULE = 1, /* npu_sim_report() names the rule and the place in the kernel */
    NPU_SIM_BAD_CALL = 2     /* no such SoC, too many arguments */
} npu_sim_status;

typedef enum npu_sim_role {
    NPU_SIM_IN = 0,
    NPU_SIM_OUT = 1,
    NPU_SIM_INOUT = 2,
    NPU_SIM_SUM = 3 /* as INOUT, but sums of atomic copies may depend on the order of the cores */
} npu_sim_role;

typedef struct npu_sim_memory {
    const char* name;
    void* data;
    uint64_t bytes;
    int32_t role; /* npu_sim_role */
} npu_sim_memory;

/* One GM_ADDR argument: a place in a memory, or memory -1 for a null pointer. */
typedef struct npu_sim_arg {
    int32_t memory;
    int64_t offset;
} npu_sim_arg;

typedef struct npu_sim_launch {
    const char* soc; /* "ascend910b", "Ascend910B3", ... */
    uint32_t block_dim;
    uint64_t tiling_key;
    const void* tiling;
    uint64_t tiling_bytes;
    uint64_t workspace_bytes;
    const char* lenient;    /* rules that only warn, "SIM-COUNT-01,SIM-EVENT-05"; NULL: none; "all" */
    int32_t auto_sync;      /* non-zero: insert V-V and scalar order, as bisheng's --cce-auto-sync */
    int32_t saturate;       /* non-zero: half overflow clamps */
    int32_t one_order;      /* non-zero: ascending only */
    const char* trace_path; /* write the timeline as Chrome trace JSON; NULL: none */
    int32_t trace_cores;    /* number of cores in the timeline, from the first; 0: all */
} npu_sim_launch;

/* Runs the kernel `entry`, which takes all arguments, then workspace and tiling, as GM addresses. */
NPU_SIM_EXPORT int32_t npu_sim_run(void* entry, const npu_sim_memory* memories, int32_t memory_count,
                                   const npu_sim_arg* args, int32_t arg_count, const npu_sim_launch* launch);

/* A compiled kernel by its entry's name: from the libraries in NPU_ROPE_SIM_KERNELS, else from
 * npu_rope_sim_kernels/ beside this library. NULL if not found; dlerror() has the reason. */
NPU_SIM_EXPORT void* npu_sim_find_kernel(const char* entry);

/* The number of kernels that this thread has launched. */
NPU_SIM_EXPORT uint64_t npu_sim_launches(void);

/* JSON of this thread's last launch; valid until the thread's next launch. */
NPU_SIM_EXPORT const char* npu_sim_report(void);

/* The report's first message: of the broken rule or the bad call; "" if there was no error. */
NPU_SIM_EXPORT const char* npu_sim_message(void);

/* Non-zero if a trace can be written to this path. Leaves no new file. */
NPU_SIM_EXPORT int32_t npu_sim_may_write(const char* path);

/* The rules and the SoC profiles as JSON. */
NPU_SIM_EXPORT const char* npu_sim_rules(void);
NPU_SIM_EXPORT const char* npu_sim_profiles(void);

/* JSON of the element types of each instruction and the round modes of each conversion, by instruction set (220,
 * 200, 310, as "arch" in the profiles). ["any"] means that the type does not matter, [] that the set lacks it. */
NPU_SIM_EXPORT const char* npu_sim_instructions(void);
NPU_SIM_EXPORT const char* npu_sim_conversions(void);

#if defined(__cplusplus)
}
#endif

#endif
