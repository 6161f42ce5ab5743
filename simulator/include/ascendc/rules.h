// The rules that the simulator checks: identifier, requirement and basis. The basis is a page or header of CANN, or a
// check of its CPU debug library. "project rule" is the basis of a rule that has no source in CANN. docs/kernels.md
// lists the same table, which a test compares. Each rule has a test that breaks it. Advice only warns, about code that
// is legal but seldom intended.
#pragma once

namespace ascend_sim {

// RULE(name, identifier, requirement, basis); ADVICE has the same parameters.
#define ASCEND_SIM_RULES(RULE, ADVICE)                                                                                 \
    RULE(Align01, "SIM-ALIGN-01", "a UB operand starts on a 32-byte boundary", "CPU debug checks")                     \
    RULE(Align02, "SIM-ALIGN-02", "a reduction's or gather's UB operand has the alignment that its API demands",       \
         "CPU debug checks")                                                                                           \
    RULE(Align03, "SIM-ALIGN-03", "a GM address is a multiple of the element's size", "DataCopy")                      \
    ADVICE(Align04, "SIM-ALIGN-04", "Sort32's operands have the alignment of its repeats",                             \
           "Sort32, which also says 32 bytes")                                                                         \
    RULE(Bounds01, "SIM-BOUNDS-01", "UB bytes touched lie inside the operand's tensor", "CPU debug checks")            \
    RULE(Bounds02, "SIM-BOUNDS-02", "a tensor lies inside the buffer it was taken from", "CPU debug checks")           \
    RULE(Bounds03, "SIM-BOUNDS-03", "GM bytes touched lie inside one tensor of the launch", "GmAlloc's guard page")    \
    RULE(Bounds04, "SIM-BOUNDS-04", "the guard zones around GM tensors stay as they were", "GmAlloc's guard page")     \
    ADVICE(Bounds05, "SIM-BOUNDS-05", "GM bytes touched lie inside the size passed to SetGlobalBuffer, if any",        \
           "GlobalTensor's size checks")                                                                               \
    ADVICE(Bounds06, "SIM-BOUNDS-06", "UB is accessed through tensors; accesses through an address are not checked",   \
           "project rule")                                                                                             \
    ADVICE(Bounds07, "SIM-BOUNDS-07",                                                                                  \
           "the last block that a copy touches lies inside the tensor, not just the buffer", "CPU debug checks")       \
    RULE(Count01, "SIM-COUNT-01", "the size of a plain DataCopy is a multiple of 32 bytes (a rest would be dropped)",  \
         "DataCopy")                                                                                                   \
    RULE(Count02, "SIM-COUNT-02", "on Ascend310P, a copy's count, blockCount and blockLen are not zero",               \
         "data copy checks")                                                                                           \
    RULE(Count03, "SIM-COUNT-03", "a copy's blockCount, blockLen and gaps fit their fields", "data copy checks")       \
    RULE(Count04, "SIM-COUNT-04", "an element count is one that the instruction supports", "per API")                  \
    ADVICE(Count05, "SIM-COUNT-05",                                                                                    \
           "an instruction processes at least one element; an empty one still costs its issue",                        \
           "data copy checks, repeat forms")                                                                           \
    RULE(Pad01, "SIM-PAD-01", "padding is at most 32 bytes a side; 64-bit elements and DataCopyPadParams take 0 only", \
         "data copy pad checks")                                                                                       \
    RULE(Repeat01, "SIM-REPEAT-01", "repeatTime is 0 .. 255", "repeat forms")                                          \
    RULE(Stride01, "SIM-STRIDE-01", "strides fit their fields", "repeat params")                                       \
    RULE(Stride02, "SIM-STRIDE-02", "the destination's block stride is not 0", "repeat forms")                         \
    RULE(Mask01, "SIM-MASK-01",                                                                                        \
         "a mask selects at most 256 / (bytes of the widest element) lanes (on Ascend310P also at least one)",         \
         "mask checks")                                                                                                \
    RULE(Mask02, "SIM-MASK-02", "a bit mask of a 64-bit type selects no lane beyond its 32", "mask checks")            \
    RULE(Mask03, "SIM-MASK-03",                                                                                        \
         "mask mode and mask register are as an instruction requires, and back to normal at exit", "SetVectorMask")    \
    RULE(Overlap01, "SIM-OVERLAP-01", "destination and source are the same memory or do not overlap",                  \
         "address overlap constraints")                                                                                \
    RULE(Overlap02, "SIM-OVERLAP-02", "a repeat does not read what an earlier repeat wrote",                           \
         "address overlap constraints")                                                                                \
    ADVICE(Overlap03, "SIM-OVERLAP-03",                                                                                \
           "the result of a reduction, conversion or selection does not overlap its source",                           \
           "address overlap constraints, which are silent on it")                                                      \
    RULE(Round01, "SIM-ROUND-01", "the SoC has this round mode for this conversion", "Cast tables")                    \
    RULE(Mode01, "SIM-MODE-01", "a mode, pattern or scalar is one that the SoC's instruction supports", "per API")     \
    RULE(Queue01, "SIM-QUEUE-01", "a tensor is enqueued, dequeued and freed in a valid order", "kernel_tquebind")      \
    RULE(Queue02, "SIM-QUEUE-02", "a queue holds at most as many tensors as its depth", "TQue")                        \
    RULE(Queue03, "SIM-QUEUE-03", "AllocTensor finds a free buffer (otherwise the core would wait for ever)",          \
         "AllocTensor")                                                                                                \
    RULE(Queue04, "SIM-QUEUE-04", "every tensor is freed before the kernel ends", "ErrorLeak")                         \
    RULE(Queue05, "SIM-QUEUE-05", "a tensor goes back to the queue it came from", "ErrorBuffer3")                      \
    RULE(Queue06, "SIM-QUEUE-06", "a freed tensor is not used", "ErrorRead1, ErrorWrite1")                             \
    RULE(Event01, "SIM-EVENT-01", "a flag is not set again before it was waited for", "SetFlag")                       \
    RULE(Event02, "SIM-EVENT-02", "a flag is set before it is waited for", "WaitFlag")                                 \
    RULE(Event03, "SIM-EVENT-03", "event ids are 0 .. 7, and only allocated ones are released", "AllocEventID")        \
    RULE(Event04, "SIM-EVENT-04", "at most 8 events of a kind are allocated at a time", "AllocEventID")                \
    RULE(Event05, "SIM-EVENT-05", "no flag is left set at exit", "SetFlag")                                            \
    RULE(Event06, "SIM-EVENT-06", "an event's pipes are two different pipes of an AI vector core", "HardEvent")        \
    ADVICE(Event07, "SIM-EVENT-07",                                                                                    \
           "an event id that the kernel chooses is 0 .. 5, and TPipe assigns no id between the same pipes",            \
           "SetFlag, FetchEventID")                                                                                    \
    ADVICE(Event08, "SIM-EVENT-08", "an event id from AllocEventID is released", "AllocEventID")                       \
    RULE(Buffer01, "SIM-BUFFER-01",                                                                                    \
         "InitBuffer is called once for a queue or TBuf, with a length > 0 and 1 .. 64 buffers", "InitBuffer")         \
    RULE(Buffer02, "SIM-BUFFER-02", "all buffers together fit UB", "InitBuffer")                                       \
    RULE(Buffer03, "SIM-BUFFER-03", "a TPipe holds at most 64 buffers", "InitBuffer")                                  \
    RULE(Buffer04, "SIM-BUFFER-04", "there is one TPipe at a time, and it is used only while it exists", "TPipe")      \
    RULE(Buffer05, "SIM-BUFFER-05", "no tensor uses the top 8 KiB of UB if an API uses it as scratch",                 \
         "TMP_UB_OFFSET")                                                                                              \
    RULE(Buffer06, "SIM-BUFFER-06", "pools that share memory are used in turn, with Reset between them", "TBufPool")   \
    RULE(Buffer07, "SIM-BUFFER-07", "Fill of a GlobalTensor comes before any InitBuffer", "Fill")                      \
    RULE(Buffer08, "SIM-BUFFER-08",                                                                                    \
         "a kernel has a TPipe or tensors at addresses, not both, and at most one LocalMemAllocator",                  \
         "static tensors")                                                                                             \
    RULE(Init01, "SIM-INIT-01",                                                                                        \
         "UB bytes are written before a copy or the scalar unit reads them, or a result depends on them",              \
         "ErrorRead2")                                                                                                 \
    RULE(Init02, "SIM-INIT-02", "a sum of atomic copies and the scalar unit read no unwritten bytes of GM",            \
         "ErrorRead2")                                                                                                 \
    ADVICE(Init03, "SIM-INIT-03", "every byte of an output is written", "project rule")                                \
    ADVICE(Init04, "SIM-INIT-04", "no result depends on data of a longer copy that a later, shorter one left in UB",   \
           "project rule")                                                                                             \
    RULE(Init05, "SIM-INIT-05", "a shape is set before it is read", "GetShapeInfo")                                    \
    ADVICE(Init06, "SIM-INIT-06", "a vector instruction reads no undefined bytes, even if no result depends on them",  \
           "ErrorRead2")                                                                                               \
    ADVICE(Init07, "SIM-INIT-07", "a copy reads no bytes of an output or workspace that were never written",           \
           "ErrorRead2")                                                                                               \
    RULE(Hazard01, "SIM-HAZARD-01", "two pipes that touch the same UB bytes are ordered", "ErrorSync1, ErrorSync2")    \
    RULE(Hazard02, "SIM-HAZARD-02", "two vector instructions on the same UB bytes have a barrier between them",        \
         "PipeBarrier")                                                                                                \
    RULE(Hazard03, "SIM-HAZARD-03", "scalar accesses are ordered with the other pipes", "in-core synchronisation")     \
    RULE(Hazard04, "SIM-HAZARD-04", "copies of one pipe to the same bytes have a barrier between them", "DataCopy")    \
    RULE(Hazard05, "SIM-HAZARD-05", "a core's write to GM is ordered with its accesses to the same bytes", "DataCopy") \
    RULE(Core01, "SIM-CORE-01", "two cores do not write different values to a GM byte", "inter-core synchronisation")  \
    RULE(Core02, "SIM-CORE-02", "no core reads GM that another core writes", "inter-core synchronisation")             \
    RULE(Core03, "SIM-CORE-03", "no other core writes into a 64-byte line that a core's scalar unit writes",           \
         "GlobalTensor::SetValue")                                                                                     \
    RULE(Core04, "SIM-CORE-04", "the result does not depend on the order of the cores", "project rule")                \
    RULE(Core05, "SIM-CORE-05", "the block count is 1 .. 65535", "block dim")                                          \
    ADVICE(Core07, "SIM-CORE-07", "two cores do not write equal values to a GM byte either", "project rule")           \
    RULE(Sync01, "SIM-SYNC-01", "every core that a core waits for raises its signal", "CrossCoreWaitFlag, SyncAll")    \
    RULE(Sync02, "SIM-SYNC-02", "if blocks wait for each other, there are no more blocks than cores", "SyncAll")       \
    RULE(Sync03, "SIM-SYNC-03", "flags between cores need a kernel type that starts the scheduler between cores",      \
         "CrossCoreSetFlag")                                                                                           \
    RULE(Sync04, "SIM-SYNC-04", "flags between cores have ids 0 .. 15, and at most 15 signals are outstanding",        \
         "CrossCoreSetFlag")                                                                                           \
    RULE(Sync05, "SIM-SYNC-05",                                                                                        \
         "all cores set a flag between cores equally often, and each waits for it as often as it is set",              \
         "CrossCoreSetFlag")                                                                                           \
    RULE(Sync06, "SIM-SYNC-06", "memory that cores poll is initialised before its first use",                          \
         "SyncAll, IBSet, WaitPreBlock")                                                                               \
    ADVICE(Sync07, "SIM-SYNC-07", "a kernel with SyncAll() uses no flags 11 .. 14 of its own", "SyncAll")              \
    ADVICE(Type01, "SIM-TYPE-01", "the kernel type is one that CANN's documentation lists for the SoC",                \
           "KERNEL_TASK_TYPE")                                                                                         \
    ADVICE(Core06, "SIM-CORE-06", "there are no more blocks than cores: the rest wait for a second wave", "block dim") \
    RULE(Gm01, "SIM-GM-01", "an input is not written", "project rule")                                                 \
    RULE(Gm02, "SIM-GM-02", "scalar writes to GM leave the cache before a copy reads them and before the end",         \
         "DataCacheCleanAndInvalid")                                                                                   \
    RULE(Gm03, "SIM-GM-03", "the cache is invalidated before a scalar reads GM that a copy wrote",                     \
         "DataCacheCleanAndInvalid")                                                                                   \
    RULE(Index01, "SIM-INDEX-01",                                                                                      \
         "offsets are multiples of the element's size and inside their tensor, and no two of a scatter are equal",     \
         "Gather")                                                                                                     \
    RULE(Work01, "SIM-WORK-01", "a work tensor is as large as the instruction needs", "ReduceSum")                     \
    RULE(Tiling01, "SIM-TILING-01", "the tiling struct has as many bytes as the host passed", "GET_TILING_DATA")       \
    RULE(Tiling02, "SIM-TILING-02", "the launch's tiling key has a TILING_KEY_IS branch", "TILING_KEY_IS")             \
    RULE(State01, "SIM-STATE-01", "atomic mode is off at exit", "SetAtomicNone")                                       \
    RULE(State02, "SIM-STATE-02", "an atomic copy's elements have the type of its mode", "SetAtomicAdd")               \
    RULE(State03, "SIM-STATE-03", "a kernel with tensors at addresses calls InitSocState first", "InitSocState")       \
    RULE(State04, "SIM-STATE-04",                                                                                      \
         "before a conversion that needs a scale, the last SetDeqScale had the form that it needs", "SetDeqScale")     \
    RULE(State05, "SIM-STATE-05", "a kernel with tensors at addresses ends with PipeBarrier<PIPE_ALL>",                \
         "static tensors")                                                                                             \
    RULE(Assert01, "SIM-ASSERT-01", "the kernel's assertions hold, and it does not reach Trap", "assert, Trap")        \
    RULE(End01, "SIM-END-01", "a kernel ends by a return: no exception leaves it, and it does not call exit",          \
         "project rule")                                                                                               \
    RULE(End02, "SIM-END-02", "a core ends after at most 16,777,216 instructions: it is in no endless loop",           \
         "project rule")

enum class Rule {
#define ASCEND_SIM_RULE(name, id, text, basis) name,
    ASCEND_SIM_RULES(ASCEND_SIM_RULE, ASCEND_SIM_RULE)
#undef ASCEND_SIM_RULE
};

}  // namespace ascend_sim
