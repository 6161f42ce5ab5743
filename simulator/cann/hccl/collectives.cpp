// Operations of HCCL in which every rank has the same number of elements. The rules are those of hicann/hccl
// docs/zh/api_ref/comm_op_interface/, a page for each function, and of src/ops/. A call without elements returns at
// once (src/ops/*/*_op.cc), and so does the call of each other rank, whose counts must be equal.
#include <cstring>

#include "cann/hccl/call.h"
#include "cann/runtime/api.h"
#include "hccl/hccl.h"

namespace simulated_cann {
namespace {

// Copies the messages to parts of `out`, one for each rank, of `part` elements.
std::function<std::string(const Messages&)> gather_parts(const Buffer& out, uint64_t part, HcclDataType type,
                                                         uint32_t rank) {
    return [=](const Messages& messages) -> std::string {
        auto* to = static_cast<char*>(out.first);
        for (const ReceivedMessage& message : messages) {
            if (!message.read_for(rank, to)) return "the message of a rank cannot be read.";
            to += part * bytes_of_type(type);
        }
        return "";
    };
}

// Reduces the messages in the order of the ranks, which gives the same result on every rank.
std::function<std::string(const Messages&)> reduce_messages(const Buffer& out, HcclDataType type, HcclReduceOp op,
                                                            uint32_t rank) {
    return [=](const Messages& messages) -> std::string {
        const uint64_t bytes = out.count * bytes_of_type(type);
        std::vector<char> result(bytes), next(bytes);
        for (size_t i = 0; i < messages.size(); ++i) {
            std::vector<char>& target = i == 0 ? result : next;
            if (messages[i].bytes_for(rank) != bytes || !messages[i].read_for(rank, target.data()))
                return "the message of a rank cannot be read.";
            if (i > 0) reduce(type, op, result.data(), next.data(), out.count);
        }
        std::memcpy(out.first, result.data(), bytes);
        return "";
    };
}

std::string reduction_text(uint64_t count, HcclDataType type, HcclReduceOp op) {
    return " of " + elements_text(count, type) + ", " + name_of_reduction(op);
}

HcclResult finish(Call* call, Exchange exchange, const std::vector<MemoryAccess>& reads,
                  const std::vector<MemoryAccess>& writes) {
    exchange.reads = reads;
    exchange.writes = writes;
    return call->queue({std::move(exchange)});
}

}  // namespace
}  // namespace simulated_cann

using namespace simulated_cann;

NPU_CANN_API HcclResult HcclAllReduce(void* send, void* receive, uint64_t count, HcclDataType type, HcclReduceOp op,
                                      HcclComm comm, aclrtStream stream) {
    if (count == 0) return HCCL_SUCCESS;
    Call call(__func__, comm, stream);
    const Buffer in{"sendBuf", send, count}, out{"recvBuf", receive, count};
    call.check_reduction(type, op, kReducedTypes);
    call.check_buffers(in, out, type, 0);
    if (!call.is_valid()) return call.result();
    Exchange exchange = call.exchange_with_all(reduction_text(count, type, op));
    exchange.message.segments = {segment_of(in, 0, count, type)};
    exchange.read = reduce_messages(out, type, op, call.rank());
    return finish(&call, std::move(exchange), {access_of_buffer(in, type, false)}, {access_of_buffer(out, type, true)});
}

NPU_CANN_API HcclResult HcclReduce(void* send, void* receive, uint64_t count, HcclDataType type, HcclReduceOp op,
                                   uint32_t root, HcclComm comm, aclrtStream stream) {
    if (count == 0) return HCCL_SUCCESS;
    Call call(__func__, comm, stream);
    const bool is_root = call.check_root(root);
    if (!call.is_valid()) return call.result();
    const Buffer in{"sendBuf", send, count}, out{"recvBuf", receive, is_root ? count : 0};
    call.check_reduction(type, op, kReducedTypes);
    call.check_buffers(in, out, type, 0);
    if (!call.is_valid()) return call.result();
    Exchange exchange = call.exchange_with_all(reduction_text(count, type, op) + " to rank " + std::to_string(root));
    exchange.message.segments = {segment_of(in, 0, count, type)};
    exchange.read = [](const Messages&) { return std::string(); };
    if (is_root) exchange.read = reduce_messages(out, type, op, root);
    return finish(&call, std::move(exchange), {access_of_buffer(in, type, false)}, {access_of_buffer(out, type, true)});
}

NPU_CANN_API HcclResult HcclReduceScatter(void* send, void* receive, uint64_t count, HcclDataType type, HcclReduceOp op,
                                          HcclComm comm, aclrtStream stream) {
    if (count == 0) return HCCL_SUCCESS;
    Call call(__func__, comm, stream);
    if (!call.is_valid()) return call.result();
    const Buffer in{"sendBuf", send, count * call.rank_count()}, out{"recvBuf", receive, count};
    call.check_reduction(type, op, kReducedTypes);
    call.check_buffers(in, out, type, count * call.rank());
    if (!call.is_valid()) return call.result();
    Exchange exchange = call.exchange_with_all(reduction_text(count, type, op));
    for (uint32_t rank = 0; rank < call.rank_count(); ++rank)
        exchange.message.segments.push_back(segment_of(in, rank * count, count, type));
    exchange.read = reduce_messages(out, type, op, call.rank());
    return finish(&call, std::move(exchange), {access_of_buffer(in, type, false)}, {access_of_buffer(out, type, true)});
}

NPU_CANN_API HcclResult HcclAllGather(void* send, void* receive, uint64_t count, HcclDataType type, HcclComm comm,
                                      aclrtStream stream) {
    if (count == 0) return HCCL_SUCCESS;
    Call call(__func__, comm, stream);
    if (!call.is_valid()) return call.result();
    const Buffer in{"sendBuf", send, count}, out{"recvBuf", receive, count * call.rank_count()};
    call.check_type(type, kMovedTypes);
    call.check_buffers(in, out, type, count * call.rank());
    if (!call.is_valid()) return call.result();
    Exchange exchange = call.exchange_with_all(" of " + elements_text(count, type));
    exchange.message.segments = {segment_of(in, 0, count, type)};
    exchange.read = gather_parts(out, count, type, call.rank());
    return finish(&call, std::move(exchange), {access_of_buffer(in, type, false)}, {access_of_buffer(out, type, true)});
}

NPU_CANN_API HcclResult HcclBroadcast(void* data, uint64_t count, HcclDataType type, uint32_t root, HcclComm comm,
                                      aclrtStream stream) {
    if (count == 0) return HCCL_SUCCESS;
    Call call(__func__, comm, stream);
    const Buffer buffer{"buf", data, count};
    call.refuse_on_310p();
    call.check_type(type, kMovedTypes);
    call.check_rank("root", root);
    call.check_buffer(buffer, type);
    if (!call.is_valid()) return call.result();
    const bool is_root = call.rank() == root;
    Exchange exchange =
        call.exchange_with_all(" of " + elements_text(count, type) + " from rank " + std::to_string(root));
    exchange.message.segments = {segment_of(buffer, 0, is_root ? count : 0, type)};
    exchange.read = [=](const Messages& messages) -> std::string {
        const bool is_read = is_root || messages[root].read_for(0, static_cast<char*>(data));
        return is_read ? "" : "the message of the root cannot be read.";
    };
    const std::vector<MemoryAccess> access{access_of_buffer(buffer, type, !is_root)};
    return finish(&call, std::move(exchange), is_root ? access : std::vector<MemoryAccess>{},
                  is_root ? std::vector<MemoryAccess>{} : access);
}

// HcclScatter.md: sendBuf is the root's; the other ranks may pass null.
NPU_CANN_API HcclResult HcclScatter(void* send, void* receive, uint64_t count, HcclDataType type, uint32_t root,
                                    HcclComm comm, aclrtStream stream) {
    if (count == 0) return HCCL_SUCCESS;
    Call call(__func__, comm, stream);
    const bool is_root = call.check_root(root);
    if (!call.is_valid()) return call.result();
    const Buffer in{"sendBuf", send, is_root ? count * call.rank_count() : 0}, out{"recvBuf", receive, count};
    call.check_type(type, kMovedTypes);
    call.check_buffers(in, out, type, count * call.rank());
    if (!call.is_valid()) return call.result();
    Exchange exchange =
        call.exchange_with_all(" of " + elements_text(count, type) + " from rank " + std::to_string(root));
    for (uint32_t rank = 0; rank < call.rank_count(); ++rank)
        exchange.message.segments.push_back(is_root ? segment_of(in, rank * count, count, type) : Segment{});
    exchange.read = [=, rank = call.rank()](const Messages& messages) -> std::string {
        return messages[root].read_for(rank, static_cast<char*>(receive)) ? ""
                                                                          : "the message of the root cannot be read.";
    };
    return finish(&call, std::move(exchange), {access_of_buffer(in, type, false)}, {access_of_buffer(out, type, true)});
}

NPU_CANN_API HcclResult HcclAlltoAll(const void* send, uint64_t send_count, HcclDataType send_type, const void* receive,
                                     uint64_t receive_count, HcclDataType receive_type, HcclComm comm,
                                     aclrtStream stream) {
    if (send_count == 0 && receive_count == 0) return HCCL_SUCCESS;
    Call call(__func__, comm, stream);
    if (!call.is_valid()) return call.result();
    if (send_count != receive_count) call.refuse(HCCL_E_PARA, "sendCount and recvCount must be equal.");
    if (send_type != receive_type) call.refuse(HCCL_E_PARA, "sendType and recvType must be equal.");
    const uint64_t count = send_count;
    const Buffer in{"sendBuf", const_cast<void*>(send), count * call.rank_count()};
    const Buffer out{"recvBuf", const_cast<void*>(receive), count * call.rank_count()};
    call.check_type(send_type, kMovedTypes);
    call.check_distinct_buffers(in, out, send_type);
    if (!call.is_valid()) return call.result();
    Exchange exchange = call.exchange_with_all(" of " + elements_text(count, send_type));
    for (uint32_t rank = 0; rank < call.rank_count(); ++rank)
        exchange.message.segments.push_back(segment_of(in, rank * count, count, send_type));
    exchange.read = gather_parts(out, count, send_type, call.rank());
    return finish(&call, std::move(exchange), {access_of_buffer(in, send_type, false)},
                  {access_of_buffer(out, send_type, true)});
}

NPU_CANN_API HcclResult HcclBarrier(HcclComm comm, aclrtStream stream) {
    Call call(__func__, comm, stream);
    if (!call.is_valid()) return call.result();
    Exchange exchange = call.exchange_with_all("");
    exchange.message.segments = {Segment{}};
    exchange.read = [](const Messages&) { return std::string(); };
    return finish(&call, std::move(exchange), {}, {});
}
