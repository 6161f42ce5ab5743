// Checks of the arguments of one HCCL operation. The first broken rule is the result of the call.
#pragma once

#include <string>
#include <vector>

#include "cann/hccl/exchange.h"
#include "cann/hccl/reduce.h"

namespace simulated_cann {

// The data types of an operation: on Ascend910B, on Ascend910_93, and on Ascend310P.
struct TypeSets {
    uint32_t on_910b, on_910_93, on_310p;
};
// Every integer and floating-point type; no bfloat16 on Ascend310P. The pages "dataType说明" of hicann/hccl
// docs/zh/api_ref/comm_op_interface/: HcclAllGather.md, HcclBroadcast.md, HcclSend.md and the others that only move
// data.
extern const TypeSets kMovedTypes;
// HcclAllReduce.md, HcclReduce.md, HcclReduceScatter.md.
extern const TypeSets kReducedTypes;
// HcclReduceScatterV.md.
extern const TypeSets kReducedTypesV;

// A buffer of device memory.
struct Buffer {
    const char* argument;
    void* first;
    uint64_t count;  // of elements
};

class Call {
public:
    Call(const char* name, void* communicator, void* stream);

    bool is_valid() const { return result_ == HCCL_SUCCESS; }
    HcclResult result() const { return result_; }
    const CommunicatorPtr& communicator() const { return communicator_; }
    uint32_t rank() const { return communicator_->rank(); }
    uint32_t rank_count() const { return communicator_->rank_count(); }

    void refuse(HcclResult status, const std::string& rule);
    // Refuse the call on a chip that the operation's page does not list.
    void refuse_on_310p();
    void refuse_on_910b(const char* reason);
    void check_not_null(const char* argument, const void* value);
    void check_type(HcclDataType type, const TypeSets& types);
    // The type must be one of the set, and the reduction one that the chip has for this type.
    void check_reduction(HcclDataType type, HcclReduceOp op, const TypeSets& types);
    void check_rank(const char* argument, uint32_t rank);
    // Refuses the call on Ascend310P, and checks the root. Returns whether this rank is the root.
    bool check_root(uint32_t root);
    // The buffer must be device memory of the communicator's device, inside one allocation, and aligned to its type. A
    // buffer without elements is not checked.
    void check_buffer(const Buffer& buffer, HcclDataType type);
    // Check each buffer, and their overlap. The buffers may be the same, or `input` may begin at this element of
    // `output`, but they may not overlap otherwise.
    void check_buffers(const Buffer& input, const Buffer& output, HcclDataType type, uint64_t allowed_element);
    // As above, but the buffers must not overlap at all.
    void check_distinct_buffers(const Buffer& input, const Buffer& output, HcclDataType type);

    // An exchange with all ranks. `what` follows the name of the call in messages.
    Exchange exchange_with_all(const std::string& what) const;
    // Queues the exchanges if the call is valid.
    HcclResult queue(std::vector<Exchange> exchanges);

private:
    void check_overlap(const Buffer& input, const Buffer& output, HcclDataType type, uint64_t allowed_element);

    std::string name_;
    HcclResult result_ = HCCL_SUCCESS;
    CommunicatorPtr communicator_;
    StreamPtr stream_;
};

MemoryAccess access_of_buffer(const Buffer& buffer, HcclDataType type, bool writes);
Segment segment_of(const Buffer& buffer, uint64_t first_element, uint64_t count, HcclDataType type);
std::string elements_text(uint64_t count, HcclDataType type);  // such as "8 float32"

}  // namespace simulated_cann
