#include "cann/hccl/call.h"

#include <cstring>

#include "cann/runtime/allocations.h"
#include "cann/runtime/api.h"
#include "cann/runtime/contexts.h"

namespace simulated_cann {
namespace {

constexpr uint32_t kIntegers =
    types_of(HCCL_DATA_TYPE_INT8, HCCL_DATA_TYPE_UINT8, HCCL_DATA_TYPE_INT16, HCCL_DATA_TYPE_UINT16,
             HCCL_DATA_TYPE_INT32, HCCL_DATA_TYPE_UINT32, HCCL_DATA_TYPE_INT64, HCCL_DATA_TYPE_UINT64);
constexpr uint32_t kAllTypes = kIntegers | types_of(HCCL_DATA_TYPE_FP16, HCCL_DATA_TYPE_FP32, HCCL_DATA_TYPE_FP64);
constexpr uint32_t kBfloat16Type = types_of(HCCL_DATA_TYPE_BFP16);
constexpr uint32_t kSums =
    types_of(HCCL_DATA_TYPE_INT8, HCCL_DATA_TYPE_INT16, HCCL_DATA_TYPE_INT32, HCCL_DATA_TYPE_FP16, HCCL_DATA_TYPE_FP32);
constexpr uint32_t kLongSums = kSums | kBfloat16Type | types_of(HCCL_DATA_TYPE_INT64);

bool is_ascend910_93() { return std::strncmp(soc_name(), "Ascend910_93", 12) == 0; }

uint32_t types_on_this_chip(const TypeSets& types) {
    return is_ascend310p() ? types.on_310p : is_ascend910_93() ? types.on_910_93 : types.on_910b;
}

// hicann/hccl src/ops/op_common/op_common.cc, CheckCount.
constexpr uint64_t kMaxCount = 0x7FFFFFFFF;

}  // namespace

const TypeSets kMovedTypes = {kAllTypes | kBfloat16Type, kAllTypes | kBfloat16Type, kAllTypes};
const TypeSets kReducedTypes = {kLongSums, kLongSums, kSums};
const TypeSets kReducedTypesV = {kSums | kBfloat16Type, kLongSums,
                                 types_of(HCCL_DATA_TYPE_INT16, HCCL_DATA_TYPE_FP16, HCCL_DATA_TYPE_FP32)};

// hicann/hccl src/ops/*/*_op.cc, the functions Check...InputPara: stream and comm must not be null. The runtime refuses
// a stream of another context.
Call::Call(const char* name, void* communicator, void* stream) : name_(name) {
    check_not_null("stream", stream);
    check_not_null("comm", communicator);
    if (!is_valid()) return;
    communicator_ = find_communicator(communicator);
    if (!communicator_) refuse(HCCL_E_PARA, "comm must be a communicator that exists.");
    stream_ = find_stream(stream);
    if (!stream_) refuse(HCCL_E_RUNTIME, "stream must be one that exists.");
    if (!is_valid()) return;
    if (check_stream_context(name, *stream_)) {
        result_ = HCCL_E_RUNTIME;
    } else if (stream_->device != communicator_->device()) {
        refuse(HCCL_E_RUNTIME, "stream must be one of device " + std::to_string(communicator_->device()) +
                                   ", that of comm, but got device " + std::to_string(stream_->device) + ".");
    }
}

void Call::refuse(HcclResult status, const std::string& rule) {
    if (is_valid()) result_ = fail_hccl(status, name_, rule);
}

void Call::refuse_on_310p() {
    if (is_ascend310p())
        refuse(HCCL_E_NOT_SUPPORT, "operation must not be used on Ascend310P, which does not have it.");
}

void Call::refuse_on_910b(const char* reason) {
    if (!is_ascend310p() && !is_ascend910_93()) refuse(HCCL_E_NOT_SUPPORT, reason);
}

void Call::check_not_null(const char* argument, const void* value) {
    if (!value) refuse(HCCL_E_PTR, std::string(argument) + " must not be null.");
}

void Call::check_type(HcclDataType type, const TypeSets& types) {
    if (uint32_t(type) < 32 && (types_on_this_chip(types) >> type & 1)) return;
    refuse(HCCL_E_NOT_SUPPORT, std::string("dataType must be one that the operation has on ") + soc_name() +
                                   " but got " + name_of_type(type) + " (" + std::to_string(type) + ").");
}

// The pages "op说明": prod has no int16 and no bfloat16; on Ascend310P int16 has the sum only.
void Call::check_reduction(HcclDataType type, HcclReduceOp op, const TypeSets& types) {
    check_type(type, types);
    if (uint32_t(op) > HCCL_REDUCE_MIN)
        return refuse(HCCL_E_NOT_SUPPORT, "op must be 0 to 3 but got " + std::to_string(op) + ".");
    const bool is_short = type == HCCL_DATA_TYPE_INT16 || type == HCCL_DATA_TYPE_BFP16;
    const bool has_op = op == HCCL_REDUCE_SUM || !is_short || (op != HCCL_REDUCE_PROD && !is_ascend310p());
    if (!has_op)
        refuse(HCCL_E_NOT_SUPPORT, std::string("op must be one that ") + name_of_type(type) + " has on " + soc_name() +
                                       " but got " + name_of_reduction(op) + ".");
}

void Call::check_rank(const char* argument, uint32_t rank) {
    if (!is_valid() || rank < rank_count()) return;
    refuse(HCCL_E_PARA, std::string(argument) + " must be less than the number of ranks, " +
                            std::to_string(rank_count()) + ", but got " + std::to_string(rank) + ".");
}

bool Call::check_root(uint32_t root) {
    refuse_on_310p();
    check_rank("root", root);
    return is_valid() && rank() == root;
}

// The alignment is that of the pages "约束说明". The pages do not say what happens with other memory; such memory is
// refused here.
void Call::check_buffer(const Buffer& buffer, HcclDataType type) {
    if (!is_valid() || !buffer.count) return;
    const std::string argument = buffer.argument;
    if (!buffer.first) return refuse(HCCL_E_PTR, argument + " must not be null.");
    if (buffer.count > kMaxCount)
        return refuse(HCCL_E_PARA, argument + " must have at most 34359738367 elements but got " +
                                       std::to_string(buffer.count) + ".");
    void* allocation = nullptr;
    uint64_t allocation_bytes = 0;
    int32_t device = 0;
    if (!find_allocation(buffer.first, &allocation, &allocation_bytes) || !device_of_address(buffer.first, &device))
        return refuse(HCCL_E_PARA, argument + " must be device memory.");
    if (device != communicator_->device())
        return refuse(HCCL_E_PARA, argument + " must be memory of device " + std::to_string(communicator_->device()) +
                                       ", that of comm, but got device " + std::to_string(device) + ".");
    const auto begin = static_cast<uint64_t>(static_cast<char*>(buffer.first) - static_cast<char*>(allocation));
    const uint64_t bytes = buffer.count * bytes_of_type(type);
    if (bytes > allocation_bytes - begin)
        return refuse(HCCL_E_PARA, argument + " must stay inside its allocation of " +
                                       std::to_string(allocation_bytes) + " bytes but got " + std::to_string(bytes) +
                                       " bytes from byte " + std::to_string(begin) + ".");
    if (reinterpret_cast<uintptr_t>(buffer.first) % bytes_of_type(type))
        refuse(HCCL_E_PARA, argument + " must be aligned to the " + std::to_string(bytes_of_type(type)) + " bytes of " +
                                name_of_type(type) + ".");
}

// An operation in place is common (torch's all_gather_into_tensor with a part of the output as its input). The pages do
// not mention other overlaps, which are refused here.
void Call::check_overlap(const Buffer& input, const Buffer& output, HcclDataType type, uint64_t allowed_element) {
    if (!is_valid() || !input.count || !output.count) return;
    const auto* input_first = static_cast<const char*>(input.first);
    const auto* output_first = static_cast<const char*>(output.first);
    const uint64_t item = bytes_of_type(type);
    const bool overlaps =
        input_first < output_first + output.count * item && output_first < input_first + input.count * item;
    // The smaller buffer may be this rank's part of the larger one.
    const bool is_part = input.count <= output.count ? input_first == output_first + allowed_element * item
                                                     : output_first == input_first + allowed_element * item;
    if (overlaps && !is_part)
        refuse(HCCL_E_PARA, std::string(input.argument) + " and " + output.argument + " must not overlap.");
}

void Call::check_buffers(const Buffer& input, const Buffer& output, HcclDataType type, uint64_t allowed_element) {
    check_buffer(input, type);
    check_buffer(output, type);
    check_overlap(input, output, type, allowed_element);
}

void Call::check_distinct_buffers(const Buffer& input, const Buffer& output, HcclDataType type) {
    check_buffer(input, type);
    check_buffer(output, type);
    if (!is_valid() || !input.first || !output.first) return;
    if (input.first == output.first)
        return refuse(HCCL_E_PARA, std::string(input.argument) + " and " + output.argument + " must differ.");
    check_overlap(input, output, type, UINT64_MAX / 16);
}

Exchange Call::exchange_with_all(const std::string& what) const {
    Exchange exchange;
    if (!communicator_) return exchange;
    exchange.channel = &communicator_->channel_of_all();
    for (uint32_t rank = 0; rank < rank_count(); ++rank) exchange.ranks.push_back(rank);
    exchange.message.call = exchange.message.signature = name_ + what;
    return exchange;
}

HcclResult Call::queue(std::vector<Exchange> exchanges) {
    if (!is_valid()) return result_;
    return queue_exchanges(name_.c_str(), communicator_, stream_, std::move(exchanges));
}

MemoryAccess access_of_buffer(const Buffer& buffer, HcclDataType type, bool writes) {
    const auto bytes = static_cast<int64_t>(buffer.count * bytes_of_type(type));
    return {buffer.argument, static_cast<char*>(buffer.first), {bytes}, {1}, 1, !writes, writes};
}

Segment segment_of(const Buffer& buffer, uint64_t first_element, uint64_t count, HcclDataType type) {
    const uint64_t item = bytes_of_type(type);
    return {static_cast<const char*>(buffer.first) + first_element * item, count * item};
}

std::string elements_text(uint64_t count, HcclDataType type) {
    return std::to_string(count) + " " + name_of_type(type);
}

}  // namespace simulated_cann
