// Constants of CANN's kernel headers that kernels use, with CANN's types.
//
// Sources: asc-devkit impl/basic_api/utils/kernel_utils_constants.h, impl/utils/sys_constants.h,
// impl/basic_api/kernel_macros.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ascendc/types.h"

namespace AscendC {

// Kinds of cores: an AI core of both kinds, a cube core, a vector core.
constexpr int32_t MIX = 0, AIC = 1, AIV = 2;

// ---- blocks and repeats --------------------------------------------------------------------------------

constexpr int32_t DEFAULT_BLK_NUM = 8, DEFAULT_BLK_STRIDE = 1, DEFAULT_BLOCK_SIZE = 256, DEFAULT_C0_SIZE = 32;
constexpr uint8_t DEFAULT_REPEAT_STRIDE = 8, HALF_DEFAULT_REPEAT_STRIDE = 4, ONE_FOURTH_DEFAULT_REPEAT_STRIDE = 2;
constexpr bool DEFAULT_REPEAT_STRIDE_MODE = false, STRIDE_SIZE_MODE = false;
constexpr int32_t DEFAULT_REDUCE_DST_REP_STRIDE = 1;
constexpr int32_t MIN_REPEAT_TIMES = 0, MAX_REPEAT_TIMES = 255;
constexpr uint8_t DEFAULT_DATA_COPY_NBURST = 1, DEFAULT_DATA_COPY_STRIDE = 0;
constexpr uint16_t ONE_BLK_SIZE = 32;
constexpr int32_t ONE_REPEAT_BYTE_SIZE = 256, ONE_BYTE_BIT_SIZE = 8;
constexpr int32_t BLOCK_CUBE = 16, CUBE_MAX_SIZE = 256, BYTE_PER_FRACTAL = 512;
constexpr int32_t HALF_FACTOR = 2, DOUBLE_FACTOR = 2;

constexpr uint8_t B8_BYTE_SIZE = 1, B16_BYTE_SIZE = 2, B32_BYTE_SIZE = 4, B64_BYTE_SIZE = 8;
constexpr uint8_t B16_DATA_NUM_PER_BLOCK = 16, B32_DATA_NUM_PER_BLOCK = 8;
constexpr int32_t B16_DATA_NUM_PER_REPEAT = 128, B32_DATA_NUM_PER_REPEAT = 64;
constexpr uint32_t HALF_REPEAT_SIZE = 128, FLOAT_REPEAT_SIZE = 64;
constexpr uint32_t ONE_REPEAT_HALF_SIZE = 128, ONE_REPEAT_FLOAT_SIZE = 64;
constexpr uint32_t MAX_REPEAT_HALF_SIZE = 128 * 255, MAX_REPEAT_FLOAT_SIZE = 64 * 255;
constexpr uint32_t ONE_BLK_HALF_NUM = 16, ONE_BLK_FLOAT_NUM = 8;
constexpr uint32_t BRCB_BROADCAST_NUMBER = 8, BRCB_MAX_REPEAT_SIZE = 8 * 255;
constexpr uint32_t INT4_TWO = 2, INT4_BIT_NUM = 4;
constexpr int32_t NCHW_CONV_ADDR_LIST_SIZE = 16;
constexpr uint8_t MRG_SORT_ELEMENT_LEN = 4, PAD_SIZE = 4;

// ---- masks ---------------------------------------------------------------------------------------------

constexpr uint64_t FULL_MASK = 0xffffffffffffffff, CONST_MASK_VALUE = 0x8000000000000000, MASK_PLACEHOLDER = 0;
constexpr int32_t FULL_MASK_LEN = 128, HALF_MASK_LEN = 64;
constexpr uint16_t MAX_HALF_MASK_LEN = 64, MASK_ARRAY_SIZE = 4;

// ---- memory --------------------------------------------------------------------------------------------

constexpr uint32_t TMP_UB_SIZE = 8 * 1024;
constexpr uint32_t TOTAL_UB_SIZE = (ascend_sim::kIs910b ? 192 : ascend_sim::kIs310p ? 256 : 248) * 1024;
constexpr uint32_t TMP_UB_OFFSET = (ascend_sim::kIs910b ? 184 : 248) * 1024;
constexpr int32_t TOTAL_VEC_LOCAL_SIZE = (ascend_sim::kIs910b ? 184 : 248) * 1024;
constexpr uint32_t SINGLE_MSG_SIZE = 64, CACHE_LINE_SIZE = 64;
constexpr size_t RESERVED_WORKSPACE = (ascend_sim::kIs310p ? 2 : 16) * 1024 * 1024;
constexpr int32_t QUE_MAX_EVENT = 8;

// ---- numbers -------------------------------------------------------------------------------------------

constexpr uint32_t F32_INF = 0x7f800000, F32_NEG_INF = 0xff800000, F32_NAN = 0x7fc00000;
constexpr int32_t DEQ_SHIFT_LEFT_17_BIT = 131072;
constexpr float DEQ_SHIFT_RIGHT_17_BIT = 1.0f / 131072;
constexpr uint16_t VALUE_512 = 512, UINT12_MAX = 4095, UINT15_MAX = 32767;

}  // namespace AscendC
