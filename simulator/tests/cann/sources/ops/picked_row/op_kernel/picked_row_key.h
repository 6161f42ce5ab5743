// The template arguments of PickedRow, for its host and its kernel.
#pragma once

#include "ascendc/host_api/tiling/template_argument.h"

#define PLUS_NOTHING 3
#define PLUS_NUMBER 7

ASCENDC_TPL_ARGS_DECL(PickedRow, ASCENDC_TPL_UINT_DECL(plus, ASCENDC_TPL_4_BW, ASCENDC_TPL_UI_LIST, 3, 7),
                      ASCENDC_TPL_BOOL_DECL(doubled, 0, 1));

// No kernel is compiled for plus = 0 with doubled.
ASCENDC_TPL_SEL(ASCENDC_TPL_ARGS_SEL(ASCENDC_TPL_UINT_SEL(plus, ASCENDC_TPL_UI_LIST, 3),
                                     ASCENDC_TPL_BOOL_SEL(doubled, 0)),
                ASCENDC_TPL_ARGS_SEL(ASCENDC_TPL_UINT_SEL(plus, ASCENDC_TPL_UI_LIST, 7),
                                     ASCENDC_TPL_BOOL_SEL(doubled, 0, 1)));
