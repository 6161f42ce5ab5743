// HcclSend, HcclRecv, HcclBatchSendRecv and groups of calls (hicann/hccl docs/zh/api_ref/comm_op_interface/, the pages
// with these names). A send ends when the other rank receives: HCCL writes into the receiver's memory, so both ranks
// wait for each other.
#include "cann/hccl/call.h"
#include "cann/runtime/api.h"
#include "hccl/hccl.h"

namespace simulated_cann {
namespace {

// Refuses the call if the files of the channel cannot be made.
Exchange make_exchange(Call* call, HcclSendRecvType kind, const Buffer& buffer, HcclDataType type, uint32_t other) {
    const bool is_send = kind == HCCL_SEND;
    const uint32_t rank = call->rank();
    Exchange exchange;
    try {
        exchange.channel = is_send ? &call->communicator()->channel_of_pair(rank, other)
                                   : &call->communicator()->channel_of_pair(other, rank);
    } catch (const FileError& error) {
        call->refuse(HCCL_E_SYSCALL, error.what());
        return exchange;
    }
    exchange.ranks = is_send ? std::vector<uint32_t>{rank, other} : std::vector<uint32_t>{other, rank};
    exchange.message.signature = elements_text(buffer.count, type);
    exchange.message.call = std::string(is_send ? "a send" : "a receive") + " of " + exchange.message.signature;
    exchange.message.segments = {is_send ? segment_of(buffer, 0, buffer.count, type) : Segment{}};
    exchange.read = [=](const Messages& messages) -> std::string {
        const bool is_read = is_send || messages[0].read_for(0, static_cast<char*>(buffer.first));
        return is_read ? "" : "the message of the sender cannot be read.";
    };
    (is_send ? exchange.reads : exchange.writes).push_back(access_of_buffer(buffer, type, !is_send));
    return exchange;
}

void check_item(Call* call, const char* rank_argument, const Buffer& buffer, HcclDataType type, uint32_t other) {
    call->check_rank(rank_argument, other);
    call->check_type(type, kMovedTypes);
    call->check_buffer(buffer, type);
}

// The pages do not say that a rank may send to itself outside of a batch. The rank would wait for itself, so the
// call is refused.
HcclResult queue_one(Call* call, HcclSendRecvType kind, const Buffer& buffer, HcclDataType type, uint32_t other) {
    const char* rank_argument = kind == HCCL_SEND ? "destRank" : "srcRank";
    call->refuse_on_310p();
    check_item(call, rank_argument, buffer, type, other);
    if (call->is_valid() && other == call->rank())
        call->refuse(HCCL_E_PARA, std::string(rank_argument) + " must be another rank.");
    if (!call->is_valid()) return call->result();
    return call->queue({make_exchange(call, kind, buffer, type, other)});
}

}  // namespace
}  // namespace simulated_cann

using namespace simulated_cann;

NPU_CANN_API HcclResult HcclSend(void* send, uint64_t count, HcclDataType type, uint32_t target, HcclComm comm,
                                 aclrtStream stream) {
    if (count == 0) return HCCL_SUCCESS;
    Call call(__func__, comm, stream);
    return queue_one(&call, HCCL_SEND, {"sendBuf", send, count}, type, target);
}

NPU_CANN_API HcclResult HcclRecv(void* receive, uint64_t count, HcclDataType type, uint32_t source, HcclComm comm,
                                 aclrtStream stream) {
    if (count == 0) return HCCL_SUCCESS;
    Call call(__func__, comm, stream);
    return queue_one(&call, HCCL_RECV, {"recvBuf", receive, count}, type, source);
}

// The calls of a group do not wait for each other. The sources of hcomm are not public; this is the meaning that
// torch_npu 2.13 gives to groups (Ascend/pytorch torch_npu/csrc/distributed/ProcessGroupHCCL.cpp, startCoalescing and
// pointToPoint).
NPU_CANN_API HcclResult HcclGroupStart() {
    begin_group();
    return HCCL_SUCCESS;
}
NPU_CANN_API HcclResult HcclGroupEnd() {
    const HcclResult result = end_group();
    return result == HCCL_E_PARA ? fail_hccl(result, __func__, "a group must have begun (HcclGroupStart).") : result;
}

NPU_CANN_API HcclResult HcclBatchSendRecv(HcclSendRecvItem* items, uint32_t count, HcclComm comm, aclrtStream stream) {
    if (count == 0) return HCCL_SUCCESS;
    Call call(__func__, comm, stream);
    call.refuse_on_310p();
    call.check_not_null("sendRecvInfo", items);
    std::vector<Exchange> exchanges;
    for (uint32_t i = 0; i < count && call.is_valid(); ++i) {
        const HcclSendRecvItem& item = items[i];
        const Buffer buffer{"buf", item.buf, item.count};
        if (item.sendRecvType != HCCL_SEND && item.sendRecvType != HCCL_RECV)
            call.refuse(HCCL_E_PARA, "sendRecvType must be 0 or 1 but got " + std::to_string(item.sendRecvType) + ".");
        check_item(&call, "remoteRank", buffer, item.dataType, item.remoteRank);
        if (call.is_valid() && item.remoteRank == call.rank())
            call.refuse(HCCL_E_NOT_SUPPORT,
                        "remoteRank must be another rank: a send from a rank to itself is not simulated.");
        if (call.is_valid() && item.count)
            exchanges.push_back(make_exchange(&call, item.sendRecvType, buffer, item.dataType, item.remoteRank));
    }
    if (!call.is_valid() || exchanges.empty()) return call.result();
    return call.queue(std::move(exchanges));
}
