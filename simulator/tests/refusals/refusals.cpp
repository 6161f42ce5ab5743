// Calls that an SoC or all SoCs lack, and similar calls that every SoC has; one per function. A line marked `not on`
// must not compile on these SoCs. The words after a colon are in the compiler's message. All other lines must compile
// on every SoC. No code runs.
#include "kernel_operator.h"
// Headers that CANN's kernels include; each must exist:
#include "basic_api/kernel_operator_intf.h"
#include "impl/dav_c220/kernel_operator_reg_others_impl.h"
#include "kernel_basic_intf.h"
#include "kernel_cube_intf.h"
#include "kernel_event.h"
#include "kernel_log.h"
#include "kernel_macros.h"
#include "kernel_operator_intf.h"
#include "kernel_operator_list_tensor_intf.h"
#include "kernel_tensor.h"
#include "kernel_tiling/kernel_tiling.h"
#include "kernel_type.h"
#include "kernel_utils.h"
#include "lib/activation/softmax.h"
#include "lib/index/arithprogression.h"
#include "lib/math/sin.h"
#include "lib/matmul_intf.h"
#include "lib/normalization/rmsnorm.h"
#include "lib/pad/broadcast.h"
#include "lib/reduce/sum.h"
#include "kernel_vec_intf.h"
#include "platform/platform_infos_def.h"
#include "register/tilingdata_base.h"
#include "utils/debug/asc_printf.h"
#include "utils/std/algorithm.h"

using namespace AscendC;

template <class T>
const LocalTensor<T>& ub();
template <class T>
const GlobalTensor<T>& gm();

struct Plain {
    uint32_t a, b;
};
struct FourBytes {
    uint32_t a;
};
struct Virtual {
    virtual ~Virtual();
    uint64_t a;
};
struct Packed {
    int8_t a;
    int64_t b;
    int8_t c[7];
} __attribute__((packed));
struct PackedInside {
    uint64_t a;
    Packed b;
};
struct WithPointer {
    float* a;
};
struct WithPointers {
    const uint8_t* a[2];
};
struct Nested {
    uint64_t a[3];
    struct {
        int16_t b[2];
        float c;
        bool d;
    } e[2];
    double f;
};
constexpr int kKey = 1;

// ---- types -------------------------------------------------------------------------------------------

void bfloat16_exists() { DataCopy(ub<bfloat16_t>(), gm<bfloat16_t>(), 16); }  // not on ascend310p
void half_exists() { DataCopy(ub<half>(), gm<half>(), 16); }
void copy_of_two_types() { DataCopy(ub<half>(), gm<float>(), 16); }  // not on any: no matching function

// ---- arithmetic --------------------------------------------------------------------------------------

void add_half() { Add(ub<half>(), ub<half>(), ub<half>(), 16); }
void add_int16() { Add(ub<int16_t>(), ub<int16_t>(), ub<int16_t>(), 16); }
void add_bfloat16() { Add(ub<bfloat16_t>(), ub<bfloat16_t>(), ub<bfloat16_t>(), 16); }  // not on ascend910b, ascend310p
void muls_bfloat16() { Muls(ub<bfloat16_t>(), ub<bfloat16_t>(), bfloat16_t(1.0f), 16); }  // not on ascend910b, ascend310p
void adds_uint16() { Adds(ub<uint16_t>(), ub<uint16_t>(), uint16_t(1), 16); }  // not on any: Adds: this SoC
void add_uint16() { Add(ub<uint16_t>(), ub<uint16_t>(), ub<uint16_t>(), 16); }  // not on ascend910b, ascend310p
extern const uint64_t kBits[2];
extern uint64_t bits[2];
void add_by_lane_count() { Add(ub<half>(), ub<half>(), ub<half>(), 64, 1, {1, 1, 1, 8, 8, 8}); }
void add_by_bits() { Add(ub<half>(), ub<half>(), ub<half>(), bits, 1, {1, 1, 1, 8, 8, 8}); }
void add_by_const_bits() { Add(ub<half>(), ub<half>(), ub<half>(), kBits, 1, {1, 1, 1, 8, 8, 8}); }  // not on any: no matching function
void cast_by_const_bits() { Cast(ub<float>(), ub<half>(), RoundMode::CAST_NONE, kBits, 1, {1, 1, 8, 4}); }
void add_by_literal_zero() { Add(ub<half>(), ub<half>(), ub<half>(), 0, 1, {1, 1, 1, 8, 8, 8}); }  // not on any
void add_int8() { Add(ub<int8_t>(), ub<int8_t>(), ub<int8_t>(), 32); }  // not on any: Add: this SoC does not have it for this type
void div_float() { Div(ub<float>(), ub<float>(), ub<float>(), 16); }
void and_uint16() { And(ub<uint16_t>(), ub<uint16_t>(), ub<uint16_t>(), 16); }
void and_float() { And(ub<float>(), ub<float>(), ub<float>(), 16); }  // not on any: And: this SoC
void axpy_widens() { Axpy(ub<float>(), ub<half>(), half(2.0f), 16); }
void axpy_narrows() { Axpy(ub<half>(), ub<float>(), 2.0f, 16); }  // not on any: Axpy: this SoC
void fused_bfloat16() { FusedMulAdd(ub<bfloat16_t>(), ub<bfloat16_t>(), ub<bfloat16_t>(), 16); }  // not on ascend910b, ascend310p
void mul_add_bfloat16() { MulAddDst(ub<bfloat16_t>(), ub<bfloat16_t>(), ub<bfloat16_t>(), 16); }  // not on any: MulAddDst: this SoC
void sqrt_float() { Sqrt(ub<float>(), ub<float>(), 16); }
void sqrt_int32() { Sqrt(ub<int32_t>(), ub<int32_t>(), 16); }  // not on any: Sqrt: this SoC
void neg_float() { Neg(ub<float>(), ub<float>(), 16); }  // not on ascend910b, ascend310p
void neg_uint16() { Neg(ub<uint16_t>(), ub<uint16_t>(), 16); }  // not on any: Neg: this SoC
void minus_one_times() { Muls(ub<float>(), ub<float>(), -1.0f, 16); }
void shift_left() { ShiftLeft(ub<uint32_t>(), ub<uint32_t>(), uint32_t(1), 16); }  // not on ascend310p
void shift_right() { ShiftRight(ub<int32_t>(), ub<int32_t>(), int32_t(1), 16); }  // not on ascend310p

// ---- moving ------------------------------------------------------------------------------------------

void pad_in() { DataCopyPad(ub<float>(), gm<float>(), {1, 4, 0, 0, 0}, {false, 0, 0, 0}); }  // not on ascend310p
void pad_out() { DataCopyPad(gm<half>(), ub<half>(), {1, 4, 0, 0, 0}); }  // not on ascend310p
void pad_value() { SetPadValue(1.0f); }  // not on ascend310p
void pad_compact() { DataCopyPad<int32_t, PaddingMode::Compact>(gm<int32_t>(), ub<int32_t>(), DataCopyExtParams(1, 4, 0, 0, 0)); }  // not on ascend910b, ascend310p
void copy_in_ub() { Copy(ub<float>(), ub<float>(), 64, 1, {1, 1, 8, 8}); }  // not on ascend310p
void data_copy_in_ub() { DataCopy(ub<float>(), ub<float>(), 64); }
void duplicate_half() { Duplicate(ub<half>(), half(1.0f), 16); }
void duplicate_int8() { Duplicate(ub<int8_t>(), int8_t(1), 32); }  // not on ascend910b, ascend310p
void gather_half() { Gather(ub<half>(), ub<half>(), ub<uint32_t>(), 0, 64); }
void gather_int8() { Gather(ub<int8_t>(), ub<int8_t>(), ub<uint32_t>(), 0, 64); }  // not on any: Gather: this SoC
void gather_blocks() { Gatherb(ub<uint16_t>(), ub<uint16_t>(), ub<uint32_t>(), 1, {1, 8}); }  // not on ascend310p
void scatter_float() { Scatter(ub<float>(), ub<float>(), ub<uint32_t>(), 0, 64); }  // not on ascend910b
void scatter_int32() { Scatter(ub<int32_t>(), ub<int32_t>(), ub<uint32_t>(), 0, 64); }  // not on ascend910b, ascend310p
void interleave_half() { Interleave(ub<half>(), ub<half>(), ub<half>(), ub<half>(), 64); }  // not on ascend910b, ascend310p
void deinterleave_half() { DeInterleave(ub<half>(), ub<half>(), ub<half>(), ub<half>(), 64); }  // not on ascend910b, ascend310p
void atomic_float() { SetAtomicAdd<float>(); }
void atomic_int32() { SetAtomicAdd<int32_t>(); }  // not on ascend310p
void atomic_uint32() { SetAtomicAdd<uint32_t>(); }  // not on any: SetAtomicAdd: this SoC
void transpose_of_float() { Transpose(ub<float>(), ub<float>()); }  // not on any: Transpose: this SoC
void transpose_of_bfloat16() { Transpose(ub<bfloat16_t>(), ub<bfloat16_t>(), ub<uint8_t>(), TransposeParamsExt()); }  // not on ascend910b, ascend310p: TransposeExt: this SoC
void blocks_of_int64(uint64_t (&list)[16]) { TransDataTo5HD<int64_t>(list, list, TransDataTo5HDParams()); }  // not on any: TransDataTo5HD: this SoC
void sort() { Sort32<float>(ub<float>(), ub<float>(), ub<uint32_t>(), 1); }  // not on ascend310p: Sort32: this SoC
void merge(const MrgSortSrcList<half>& src) { MrgSort<half>(ub<half>(), src, MrgSort4Info()); }  // not on ascend310p: MrgSort: this SoC
void merge_of_proposals(const MrgSortSrcList<half>& src) { MrgSort4<half>(ub<half>(), src, MrgSort4Info()); }  // not on ascend910b, ascend950: MrgSort4: this SoC
void sort_of_proposals() { RpSort16<half>(ub<half>(), ub<half>(), 1); }  // not on ascend910b, ascend950: RpSort16: this SoC
void concat_of_proposals() { ProposalConcat<half>(ub<half>(), ub<half>(), 1, 4); }  // not on ascend910b, ascend950: ProposalConcat: this SoC
void extract_of_proposals() { ProposalExtract<half>(ub<half>(), ub<half>(), 1, 4); }  // not on ascend910b, ascend950: ProposalExtract: this SoC
void compare_of_integers() { Compare(ub<int32_t>(), ub<int32_t>(), CMPMODE::EQ, uint64_t(64), BinaryRepeatParams()); }  // not on any: CompareRegister: this SoC
void select_of_mode_1() { Select<half, SELMODE::VSEL_TENSOR_SCALAR_MODE>(ub<half>(), ub<half>(), ub<half>(), 1, BinaryRepeatParams()); }  // not on any: mode 1 takes a mask tensor and one source
void padding_of_blocks() { VectorPadding(ub<half>(), ub<half>(), 0, false, 64); }  // not on ascend910b, ascend950: VectorPadding: this SoC
void saturation() { SetSaturationFlag<SaturationMode::FLOAT>(true); }  // not on ascend310p, ascend950: SetSaturationFlag: this SoC
bool saturation_flag() { return GetSaturationFlag<SaturationMode::CAST>(); }  // not on ascend310p, ascend950: GetSaturationFlag: this SoC
void control_bit() { SetCtrlSpr<48, 48>(1); }  // not on ascend310p: SetCtrlSpr: this SoC
int64_t value_of_control_bit() { return GetCtrlSpr<48, 48>(); }  // not on ascend310p: GetCtrlSpr: this SoC
void other_control_bit() { SetCtrlSpr<60, 60>(1); }  // not on any: the simulator has bit 48 only
void atomic_maximum() { SetAtomicMax<float>(); }  // not on ascend310p: SetAtomicMax: this SoC
void atomic_minimum() { SetAtomicMin<half>(); }  // not on ascend310p: SetAtomicMin: this SoC
void atomic_type() { SetAtomicType<uint32_t>(); }  // not on any: SetAtomicType: this SoC
void init_output() { InitOutput<float>(gm<float>(), 8, 0.0f); }  // not on ascend310p: InitOutput: this SoC
void fill_of_gm(GlobalTensor<bfloat16_t> t) { Fill(t, 8, bfloat16_t()); }  // not on ascend910b, ascend310p: Fill: this SoC
void allocator_of_l1() { LocalMemAllocator<Hardware::L1> allocator; }  // not on any: the simulator has vector cores only
void path_to_l1(TQueBind<TPosition::VECIN, TPosition::VECOUT, 1>& q) { q.EnQue<TPosition::GM, TPosition::A1, float>(ub<float>()); }  // not on any: a data path of a vector core
void atomic_bfloat16() { SetAtomicAdd<bfloat16_t>(); }  // not on ascend310p

// ---- conversions and reductions ---------------------------------------------------------------------

void cast_half_to_float() { Cast(ub<float>(), ub<half>(), RoundMode::CAST_NONE, 64); }
void cast_float_to_float() { Cast(ub<float>(), ub<float>(), RoundMode::CAST_RINT, 64); }  // not on ascend310p
void cast_int16_to_float() { Cast(ub<float>(), ub<int16_t>(), RoundMode::CAST_NONE, 64); }  // not on ascend310p
void cast_int64_to_float() { Cast(ub<float>(), ub<int64_t>(), RoundMode::CAST_RINT, 64); }  // not on ascend310p
void cast_bfloat16_to_half() { Cast(ub<half>(), ub<bfloat16_t>(), RoundMode::CAST_RINT, 64); }  // not on ascend910b, ascend310p
void cast_double_to_float() { Cast(ub<float>(), ub<double>(), RoundMode::CAST_RINT, 64); }  // not on any: Cast: this SoC
void cast_int32_to_half() { Cast(ub<half>(), ub<int32_t>(), RoundMode::CAST_NONE, 64); }
void cast_half_to_int4() { Cast(ub<int4b_t>(), ub<half>(), RoundMode::CAST_NONE, 64); }
void cast_int4_to_half() { Cast(ub<half>(), ub<int4b_t>(), RoundMode::CAST_NONE, 64); }  // not on ascend310p
void cast_int4_to_float() { Cast(ub<float>(), ub<int4b_t>(), RoundMode::CAST_NONE, 64); }  // not on any: Cast: this SoC
void add_int4() { Add(ub<int4b_t>(), ub<int4b_t>(), ub<int4b_t>(), 64); }  // not on any: Add: this SoC
void copy_int4() { DataCopy(ub<int4b_t>(), gm<int4b_t>(), 64); }
void reference_to_int4() { (void)ub<int4b_t>()(0); }  // not on any: an element of half a byte has no reference
void dequantize_to_int8() { CastDequant<int8_t, int16_t>(ub<int8_t>(), ub<int16_t>(), 64); }
void dequantize_to_half() { CastDequant<half, int32_t>(ub<half>(), ub<int32_t>(), 64); }  // not on ascend310p
void dequantize_float() { CastDequant<half, float>(ub<half>(), ub<float>(), 64); }  // not on any: CastDequant: this SoC
void scale_in_floats() { SetDeqScale(ub<float>(), VdeqInfo()); }  // not on any: SetDeqScale: the parameters
void add_relu_int32() { AddRelu(ub<int32_t>(), ub<int32_t>(), ub<int32_t>(), 64); }  // not on any: AddRelu: this SoC
void add_relu_half_to_half() { AddReluCast(ub<half>(), ub<half>(), ub<half>(), 64); }  // not on any: AddReluCast: this SoC
void truncate_half() { Truncate<half, RoundMode::CAST_RINT>(ub<half>(), ub<half>(), 64); }  // not on ascend910b, ascend310p
void truncate_to_odd() { Truncate<half, RoundMode::CAST_ODD>(ub<half>(), ub<half>(), 64); }  // not on any: Truncate:
void sum_float() { WholeReduceSum<float>(ub<float>(), ub<float>(), 64, 1, 1, 1, 8); }
void sum_int32() { WholeReduceSum<int32_t>(ub<int32_t>(), ub<int32_t>(), 64, 1, 1, 1, 8); }  // not on any: WholeReduceSum: this SoC
void largest_of_a_repeat() { WholeReduceMax(ub<float>(), ub<float>(), 64, 1, 1, 1, 8); }
void largest_integer_of_a_repeat() { WholeReduceMax(ub<int32_t>(), ub<int32_t>(), 64, 1, 1, 1, 8); }  // not on ascend910b, ascend310p: WholeReduceMax: this SoC
void largest_integer_of_blocks() { BlockReduceMax(ub<int32_t>(), ub<int32_t>(), 1, 64, 1, 1, 8); }  // not on any: BlockReduceMax: this SoC
void smallest_of_all() { ReduceMin(ub<half>(), ub<half>(), ub<half>(), 100, true); }
void smallest_int64() { ReduceMin(ub<int64_t>(), ub<int64_t>(), ub<int64_t>(), 100); }  // not on ascend910b, ascend310p
void smallest_int64_of_repeats() { ReduceMin(ub<int64_t>(), ub<int64_t>(), ub<int64_t>(), 32, 2, 8); }  // not on any: ReduceMin: this SoC
void largest_of_pairs() { ReducePairElem<ReduceType::MAX, half>(ub<half>(), ub<half>(), 128, 1, 1, 1, 8); }  // not on any: ReducePairElem
void register_of_a_value(float& value) { GetReduceRepeatMaxMinSpr(value); }  // not on ascend910b, ascend950
void register_of_an_index(float& value, float& index) { GetReduceRepeatMaxMinSpr(value, index); }  // not on ascend310p, ascend950
void compare_half() { Compare(ub<uint8_t>(), ub<half>(), ub<half>(), CMPMODE::LT, 128); }
void compare_int32() { Compare(ub<uint8_t>(), ub<int32_t>(), ub<int32_t>(), CMPMODE::EQ, 64); }  // not on ascend310p
void select_float() { Select(ub<float>(), ub<uint8_t>(), ub<float>(), 1.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, 64); }
void select_by_signed_bits() { Select(ub<float>(), ub<int8_t>(), ub<float>(), 1.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, 64); }  // not on any: Select: the mask is of

// ---- order, memory and scalars ------------------------------------------------------------------------

void barrier_of_v() { PipeBarrier<PIPE_V>(); }
void barrier_of_s() { PipeBarrier<PIPE_S>(); }  // not on any: PipeBarrier takes
void event_of_one_pipe() { SetFlag<HardEvent::V_V>(0); }  // not on any: V_V
void data_sync() { DataSyncBarrier<MemDsbT::DDR>(); }  // not on ascend310p
void clean_a_line() { DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE>(gm<float>()); }
void clean_a_line_out() { DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(gm<float>()); }  // not on ascend310p
void read_gm() { (void)gm<float>().GetValue(0); }
void read_gm_by_parentheses() { (void)gm<float>()(0); }  // not on ascend310p
void hint_the_cache(GlobalTensor<int32_t> t) { t.SetL2CacheHint(CacheMode::CACHE_MODE_DISABLE); }  // not on ascend310p
void queue_in() { TQue<TPosition::VECIN, 1> q; }
void queue_of_the_cube() { TQue<TPosition::A1, 1> q; }  // not on any: the simulator has vector cores only, with the queues
void buffer_of_the_cube() { TBuf<TPosition::CO1> b; }  // not on any: the simulator has vector cores only, whose TBuf
void in_place_alloc(TQue<TPosition::VECIN, 0> q, LocalTensor<float> t) { q.AllocTensor<float>(t); }
void in_place_alloc_of_depth_one(TQue<TPosition::VECIN, 1> q, LocalTensor<float> t) { q.AllocTensor<float>(t); }  // not on any: needs a queue of depth 0

void sine() { Sin(ub<float>(), ub<float>()); }
void hypotenuse() { Hypot(ub<float>(), ub<float>(), ub<float>()); }  // not on any: was not declared in this scope
void power_series() { Exp<float, 5>(ub<float>(), ub<float>(), 64); }  // not on ascend310p: TaylorExp: this SoC does not have it
void norm_of_groups(GroupNormTiling t) { GroupNorm(ub<float>(), ub<float>(), ub<float>(), ub<float>(), ub<float>(), ub<float>(), 1.0f, t); }  // not on ascend310p
void sum_of_rows(const uint32_t s[]) { ReduceSum<float, Pattern::Reduce::AR>(ub<float>(), ub<float>(), s, true); }  // not on ascend310p: SumPattern: this SoC does not have it
void mean_of_rows(const uint32_t s[]) { ReduceMean<float, Pattern::Reduce::AR>(ub<float>(), ub<float>(), s, true); }  // not on ascend310p: MeanPattern: this SoC does not have it
void largest_of_rows(const uint32_t s[]) { ReduceMax<float, Pattern::Reduce::AR>(ub<float>(), ub<float>(), s, true); }  // not on ascend310p: MaxPattern: this SoC does not have it
void smallest_of_rows(const uint32_t s[]) { ReduceMin<float, Pattern::Reduce::AR>(ub<float>(), ub<float>(), s, true); }  // not on ascend310p: MinPattern: this SoC does not have it
void product_of_rows(const uint32_t s[]) { ReduceProd<float, Pattern::Reduce::AR>(ub<float>(), ub<float>(), s, true); }  // not on ascend310p: ProdPattern: this SoC does not have it
void any_of_rows(const uint32_t s[]) { ReduceAny<float, Pattern::Reduce::AR>(ub<float>(), ub<float>(), s, true); }  // not on ascend310p: AnyPattern: this SoC does not have it
void all_of_rows(const uint32_t s[]) { ReduceAll<float, Pattern::Reduce::AR>(ub<float>(), ub<float>(), s, true); }  // not on ascend310p: AllPattern: this SoC does not have it
void other_pattern(const uint32_t s[]) { ReduceSum<float, Pattern::Reduce::R>(ub<float>(), ub<float>(), s, true); }  // not on any: the pattern must be AR or RA
void quantized_transposed() { AscendDequant(ub<half>(), ub<int32_t>(), ub<float>(), DequantParams{1, 64, 64}); }  // not on any
void element_written(LocalTensor<float> t) { t(0) = 1.0f; }
void element_of_gm_written() { gm<int32_t>()(0) = 1; }  // not on ascend310p: GlobalTensor(): this SoC does not have it
void sub_block_index() { (void)GetSubBlockIdx(); }
void sub_block_count() { (void)GetSubBlockNum(); }  // not on ascend310p
void system_counter() { (void)GetSystemCycle(); }  // not on ascend310p
void size_of_ub() { (void)GetUBSizeInBytes(); }  // not on ascend910b, ascend310p
void size_of_ub_at_run_time() { (void)GetRuntimeUBSize(); }  // not on ascend910b, ascend310p
void largest_float() { (void)NumericLimits<float>::Max(); }  // not on ascend910b, ascend310p: NumericLimits: this SoC
void infinite_integer() { (void)NumericLimits<int32_t>::Infinity(); }  // not on any
void larger_of_two_types() { (void)Std::max(1, 2.0f); }  // not on any: Std::max: both values have one type
void square_root() { (void)Std::sqrt(2.0f); }  // not on ascend910b, ascend310p: Std::sqrt: Ascend950
void scalar_to_half() { (void)Cast<float, half, RoundMode::CAST_ODD>(2.0f); }
void scalar_to_half_to_nearest() { (void)Cast<float, half, RoundMode::CAST_RINT>(2.0f); }  // not on any: Cast of a scalar
void scalar_to_bfloat16() { (void)AscendC::Cast(2.0f); }  // not on ascend310p
void integer_to_bfloat16() { (void)AscendC::Cast(2); }  // not on any: no matching function
void print_a_struct(Plain plain) { AscendC::printf("%d", plain); }  // not on any: printf prints numbers

// ---- tiling ------------------------------------------------------------------------------------------

void tiling_registered(GM_ADDR tiling) { REGISTER_TILING_DEFAULT(Plain); GET_TILING_DATA(data, tiling); (void)data; }
void tiling_not_registered(GM_ADDR tiling) { GET_TILING_DATA(data, tiling); (void)data; }  // not on any: AscendSimDefaultTiling
void tiling_of_four_bytes() { REGISTER_TILING_DEFAULT(FourBytes); }
void tiling_that_is_no_plain_data() { REGISTER_TILING_DEFAULT(Virtual); }  // not on any: plain data that the host and the kernel share
void tiling_with_a_field_off_its_size() { REGISTER_TILING_DEFAULT(Packed); }  // not on any: fields lie at multiples of their sizes
void tiling_with_a_packed_struct_inside(GM_ADDR tiling) { GET_TILING_DATA_WITH_STRUCT(PackedInside, data, tiling); (void)data; }  // not on any: fields lie at multiples
void tiling_with_a_pointer() { REGISTER_TILING_DEFAULT(WithPointer); }  // not on any: a tiling struct has no pointers
BEGIN_TILING_DATA_DEF(ByMacros) TILING_DATA_FIELD_DEF(uint64_t, rows); END_TILING_DATA_DEF;
REGISTER_TILING_DATA_CLASS(Refusals, ByMacros);
REGISTER_TILING_DATA_CLASS(Refusals, WithPointers);  // not on any: a tiling struct has no pointers
void tiling_with_nested_fields() { REGISTER_TILING_DEFAULT(Nested); }
bool key_that_is_a_number() { return TILING_KEY_IS(1); }
bool key_that_is_a_name() { return TILING_KEY_IS(kKey); }  // not on any: TILING_KEY_IS takes a literal
void vector_cores_only() { KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY); }
void cube_and_vector_cores() { KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2); }  // not on any: KERNEL_TYPE_MIX_AIC_1_2: the simulator has vector cores only, no cube
void all_cores() { SyncAll(); }  // not on ascend310p: SyncAll(): this SoC has only the form with workspaces
void cube_cores_too() { SyncAll<false>(); }  // not on any: SyncAll<false>
void all_cores_by_memory() { SyncAll(gm<int32_t>(), ub<int32_t>()); }
void flag_between_cores() { CrossCoreSetFlag<0, PIPE_MTE3>(3); }  // not on ascend310p: CrossCoreSetFlag: this SoC does not have it
void flag_of_the_cube() { CrossCoreSetFlag<2, PIPE_MTE3>(3); }  // not on any: CrossCoreSetFlag: modes 1, 2 and 4
void flag_of_the_scalar_unit() { CrossCoreSetFlag<0, PIPE_S>(3); }  // not on any: CrossCoreSetFlag: a vector core's pipe is
void wait_for_cores() { CrossCoreWaitFlag(3); }  // not on ascend310p: CrossCoreWaitFlag: this SoC does not have it

// ---- scalars ------------------------------------------------------------------------------------------------

#if __CCE_AICORE__ != 200
float sum_of_bfloat16(bfloat16_t a, bfloat16_t b) { return a + b; }  // not on ascend910b, ascend950: operator+: the scalar unit has none for bfloat16_t
float product_of_bfloat16(bfloat16_t a) { return 2.0f * a; }  // not on ascend910b, ascend950: operator*: the scalar unit has none
bool order_of_bfloat16(bfloat16_t a, bfloat16_t b) { return a < b; }  // not on ascend910b, ascend950: operator<: the scalar unit has none
bool equality_of_bfloat16(bfloat16_t a) { return a == 0; }  // not on ascend910b, ascend950: operator==: the scalar unit has none
void sum_in_bfloat16(bfloat16_t a) { a += 1.0f; }  // not on ascend910b, ascend950: operator+=: the scalar unit has none
void sum_in_float(float a, bfloat16_t b) { a -= b; }  // not on ascend910b, ascend950: operator-=: the scalar unit has none
float negative_bfloat16(bfloat16_t a) { return -a; }  // not on ascend910b, ascend950: operator-: the scalar unit has none
float sum_of_floats(bfloat16_t a, bfloat16_t b) { return ToFloat(a) + ToFloat(b); }
#endif

// ---- APIs of cube cores and of registers ------------------------------------------------------------------

extern "C" __global__ __cube__ void kernel_of_cube_cores() {}  // not on any: __cube__: a kernel of cube cores, but the simulator has vector cores only
extern "C" __global__ __mix__(1, 2) void kernel_of_both() {}  // not on any: __mix__: a kernel of cube cores
extern "C" __global__ __mix__(0, 1) void kernel_of_vector_cores() {}
extern "C" __global__ __vector__ void another_kernel_of_vector_cores() {}
void product() { Mmad(ub<half>(), ub<half>(), ub<half>(), 1); }  // not on any: Mmad: an API of cube cores, but the simulator has vector cores only
void product_of_types() { Mmad<float, half, half>(ub<float>(), ub<half>(), ub<half>(), 1); }  // not on any: Mmad: an API of cube cores
void load() { LoadData<half>(ub<half>(), gm<half>(), 1); }  // not on any: LoadData: an API of cube cores
void fix() { Fixpipe(gm<half>(), ub<half>(), 1); }  // not on any: Fixpipe: an API of cube cores
MmadParams parameters_of_a_product;  // not on any: MmadParams: an API of cube cores
LoadData3DParamsV2<half> parameters_of_a_load;  // not on any: LoadData3DParamsV2: an API of cube cores
Nd2NzParams parameters_of_a_copy;  // not on any: Nd2NzParams: the simulator lacks the copies that change the layout
struct TilingOfAProduct { TCubeTiling tiling; };  // not on any: TCubeTiling: an API of cube cores
using Operand = MatmulType<TPosition::GM, CubeFormat::ND, half>;
matmul::Matmul<Operand, Operand, Operand> object;  // not on any: Matmul: an API of cube cores
const MatmulConfig* config = nullptr;
void config_of_a_product() { GetMDLConfig(true, false); }  // not on any: GetMDLConfig: an API of cube cores
void registration() { REGIST_MATMUL_OBJ(1, 2, 3); }  // not on any: REGIST_MATMUL_OBJ: an API of cube cores
void event_of_cube_pipes() { TQueSync<PIPE_M, PIPE_V> event; }  // not on any: TQueSync: two different pipes of a vector core
void event_of_vector_pipes() { TQueSync<PIPE_MTE2, PIPE_V> event; }
MicroAPI::RegTensor<float> vector_register;  // not on any: RegTensor: the register API of Ascend950, but the simulated vector instructions use UB only
AscendC::Reg::MaskReg mask_register;  // not on any: MaskReg: the register API of Ascend950
void scope() { __VEC_SCOPE__ {} }  // not on any: a function that uses Ascend950's registers, but the simulated vector instructions use UB only
__simd_vf__ inline void function_of_registers() {}  // not on any: a function that uses Ascend950's registers
