// Assertions in each of their forms, and Trap.
#include "mini.h"

KERNEL(assertion_that_holds) {
    Ub ub(256);
    assert(GetBlockNum() == 1);  // keeps SIM-ASSERT-01
    ASSERT(GetBlockNum() != 0 && "there are blocks");
    ascendc_assert(GetBlockIdx() == 0, "the index is %d", int(GetBlockIdx()));
    ASCENDC_ASSERT((GetBlockNum() == 1), { KERNEL_LOG(KERNEL_ERROR, "%d blocks", int(GetBlockNum())); });
}

KERNEL(assertion_that_fails) {
    Ub ub(256);
    assert(GetBlockNum() == 2);  // breaks SIM-ASSERT-01: assert: `GetBlockNum() == 2` does not hold
}

KERNEL(assertion_with_a_format_that_fails) {
    Ub ub(256);
    ascendc_assert(GetBlockNum() == 2, "%d blocks", int(GetBlockNum()));  // breaks SIM-ASSERT-01: ascendc_assert:
}

KERNEL(upper_case_assertion_that_fails) {
    Ub ub(256);
    ASSERT(GetBlockNum() == 0 && "no \\ block");  // breaks SIM-ASSERT-01: ASSERT: `GetBlockNum() == 0 && "no \\ block"`
}

KERNEL(assertion_with_an_action_that_fails) {
    Ub ub(256);
    ASCENDC_ASSERT(GetBlockNum() == 2, { KERNEL_LOG(KERNEL_ERROR, "blocks"); });  // breaks SIM-ASSERT-01: ASCENDC_ASSERT
}

KERNEL(trap_that_is_reached) {
    Ub ub(256);
    if (GetBlockNum() == 1) Trap();  // breaks SIM-ASSERT-01: the kernel stops itself here
}
