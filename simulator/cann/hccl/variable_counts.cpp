// Operations of HCCL with a count of elements for each rank. hicann/hccl docs/zh/api_ref/comm_op_interface/:
// HcclAllGatherV.md, HcclReduceScatterV.md, HcclAlltoAllV.md, HcclAlltoAllVC.md.
#include <algorithm>
#include <cstring>

#include "cann/hccl/call.h"
#include "cann/runtime/api.h"
#include "hccl/hccl.h"

namespace simulated_cann {
namespace {

// For each rank, the count and the distance from the buffer's start, in elements. The arrays are read during the call.
struct Parts {
    std::vector<uint64_t> counts, begins;

    // The number of elements of a buffer that holds all parts.
    uint64_t extent() const {
        uint64_t extent = 0;
        for (size_t i = 0; i < counts.size(); ++i)
            if (counts[i]) extent = std::max(extent, begins[i] + counts[i]);
        return extent;
    }
    std::string text() const {
        std::string text;
        for (size_t i = 0; i < counts.size(); ++i)
            text += (i ? ", " : "") + std::to_string(counts[i]) + " at " + std::to_string(begins[i]);
        return text;
    }
};

Parts read_parts(Call* call, const char* counts_name, const void* counts, const char* begins_name, const void* begins) {
    call->check_not_null(counts_name, counts);
    call->check_not_null(begins_name, begins);
    if (!call->is_valid()) return {};
    const auto *count = static_cast<const uint64_t*>(counts), *begin = static_cast<const uint64_t*>(begins);
    return {{count, count + call->rank_count()}, {begin, begin + call->rank_count()}};
}

// The parts that this rank receives must not share elements. The pages do not mention such parts, which are refused
// here.
void check_disjoint(Call* call, const char* argument, const Parts& parts) {
    for (size_t i = 0; i < parts.counts.size(); ++i)
        for (size_t j = 0; j < i; ++j)
            if (parts.counts[i] && parts.counts[j] && parts.begins[i] < parts.begins[j] + parts.counts[j] &&
                parts.begins[j] < parts.begins[i] + parts.counts[i])
                call->refuse(HCCL_E_PARA, std::string(argument) + " must give each rank elements of its own.");
}

std::vector<MemoryAccess> accesses_of_parts(const Buffer& buffer, const Parts& parts, HcclDataType type, bool writes) {
    std::vector<MemoryAccess> accesses;
    for (size_t rank = 0; rank < parts.counts.size(); ++rank) {
        if (!parts.counts[rank]) continue;
        char* first = static_cast<char*>(buffer.first) + parts.begins[rank] * bytes_of_type(type);
        accesses.push_back(access_of_buffer({buffer.argument, first, parts.counts[rank]}, type, writes));
    }
    return accesses;
}

std::vector<Segment> segments_of(const Buffer& buffer, const Parts& parts, HcclDataType type) {
    std::vector<Segment> segments;
    for (size_t rank = 0; rank < parts.counts.size(); ++rank)
        segments.push_back(segment_of(buffer, parts.begins[rank], parts.counts[rank], type));
    return segments;
}

// Copies the messages to the parts of `out`. A message must have the size of its part.
std::function<std::string(const Messages&)> gather(const Buffer& out, const Parts& parts, HcclDataType type,
                                                   uint32_t rank) {
    return [=](const Messages& messages) -> std::string {
        const uint64_t item = bytes_of_type(type);
        for (size_t from = 0; from < messages.size(); ++from) {
            if (messages[from].bytes_for(rank) != parts.counts[from] * item)
                return "recvCounts[" + std::to_string(from) + "] of rank " + std::to_string(rank) + " must be the " +
                       std::to_string(messages[from].bytes_for(rank) / item) + " elements that rank " +
                       std::to_string(from) + " sends but got " + std::to_string(parts.counts[from]) + ".";
            if (parts.counts[from] &&
                !messages[from].read_for(rank, static_cast<char*>(out.first) + parts.begins[from] * item))
                return "the message of a rank cannot be read.";
        }
        return "";
    };
}

HcclResult all_to_all(Call* call, const Buffer& in, const Parts& sent, const Buffer& out, const Parts& received,
                      HcclDataType type) {
    check_disjoint(call, "recvCounts", received);
    call->check_type(type, kMovedTypes);
    call->check_distinct_buffers(in, out, type);
    if (!call->is_valid()) return call->result();
    Exchange exchange = call->exchange_with_all(std::string(" of ") + name_of_type(type));
    exchange.message.segments = segments_of(in, sent, type);
    exchange.read = gather(out, received, type, call->rank());
    exchange.reads = accesses_of_parts(in, sent, type, false);
    exchange.writes = accesses_of_parts(out, received, type, true);
    return call->queue({std::move(exchange)});
}

// HcclAllGatherV.md and HcclReduceScatterV.md: the products of Ascend910B have these operations only for several
// servers with the same number of devices. The simulated devices belong to one server.
constexpr const char* kSeveralServers = "operation must be used on several servers on this chip.";

}  // namespace
}  // namespace simulated_cann

using namespace simulated_cann;

NPU_CANN_API HcclResult HcclAlltoAllV(const void* send, const void* send_counts, const void* send_begins,
                                      HcclDataType send_type, const void* receive, const void* receive_counts,
                                      const void* receive_begins, HcclDataType receive_type, HcclComm comm,
                                      aclrtStream stream) {
    Call call(__func__, comm, stream);
    const Parts sent = read_parts(&call, "sendCounts", send_counts, "sdispls", send_begins);
    const Parts received = read_parts(&call, "recvCounts", receive_counts, "rdispls", receive_begins);
    if (send_type != receive_type) call.refuse(HCCL_E_PARA, "sendType and recvType must be equal.");
    return all_to_all(&call, {"sendBuf", const_cast<void*>(send), sent.extent()}, sent,
                      {"recvBuf", const_cast<void*>(receive), received.extent()}, received, send_type);
}

// The row i of the matrix has the counts that rank i sends. The parts of a buffer follow each other.
NPU_CANN_API HcclResult HcclAlltoAllVC(const void* send, const void* matrix, HcclDataType send_type,
                                       const void* receive, HcclDataType receive_type, HcclComm comm,
                                       aclrtStream stream) {
    Call call(__func__, comm, stream);
    call.refuse_on_310p();
    call.check_not_null("sendCountMatrix", matrix);
    if (send_type != receive_type) call.refuse(HCCL_E_PARA, "sendType and recvType must be equal.");
    if (!call.is_valid()) return call.result();
    const auto* counts = static_cast<const uint64_t*>(matrix);
    const uint32_t rank = call.rank(), ranks = call.rank_count();
    Parts sent, received;
    uint64_t send_begin = 0, receive_begin = 0;
    for (uint32_t other = 0; other < ranks; ++other) {
        sent.counts.push_back(counts[rank * ranks + other]);
        sent.begins.push_back(send_begin);
        received.counts.push_back(counts[other * ranks + rank]);
        received.begins.push_back(receive_begin);
        send_begin += sent.counts.back();
        receive_begin += received.counts.back();
    }
    return all_to_all(&call, {"sendBuf", const_cast<void*>(send), sent.extent()}, sent,
                      {"recvBuf", const_cast<void*>(receive), received.extent()}, received, send_type);
}

NPU_CANN_API HcclResult HcclAllGatherV(void* send, uint64_t send_count, void* receive, const void* receive_counts,
                                       const void* receive_begins, HcclDataType type, HcclComm comm,
                                       aclrtStream stream) {
    Call call(__func__, comm, stream);
    call.refuse_on_910b(kSeveralServers);
    const Parts received = read_parts(&call, "recvCounts", receive_counts, "recvDispls", receive_begins);
    if (!call.is_valid()) return call.result();
    const Buffer in{"sendBuf", send, send_count}, out{"recvBuf", receive, received.extent()};
    if (send_count != received.counts[call.rank()])
        call.refuse(HCCL_E_PARA, "sendCount must be the recvCounts of this rank, " +
                                     std::to_string(received.counts[call.rank()]) + ", but got " +
                                     std::to_string(send_count) + ".");
    check_disjoint(&call, "recvCounts", received);
    call.check_type(type, kMovedTypes);
    call.check_distinct_buffers(in, out, type);
    if (!call.is_valid()) return call.result();
    Exchange exchange = call.exchange_with_all(std::string(" of ") + name_of_type(type) + ", " + received.text());
    exchange.message.segments = {segment_of(in, 0, send_count, type)};
    exchange.read = gather(out, received, type, call.rank());
    exchange.reads = {access_of_buffer(in, type, false)};
    exchange.writes = accesses_of_parts(out, received, type, true);
    return call.queue({std::move(exchange)});
}

NPU_CANN_API HcclResult HcclReduceScatterV(void* send, const void* send_counts, const void* send_begins, void* receive,
                                           uint64_t receive_count, HcclDataType type, HcclReduceOp op, HcclComm comm,
                                           aclrtStream stream) {
    Call call(__func__, comm, stream);
    call.refuse_on_910b(kSeveralServers);
    const Parts sent = read_parts(&call, "sendCounts", send_counts, "sendDispls", send_begins);
    if (!call.is_valid()) return call.result();
    const Buffer in{"sendBuf", send, sent.extent()}, out{"recvBuf", receive, receive_count};
    if (receive_count != sent.counts[call.rank()])
        call.refuse(HCCL_E_PARA, "recvCount must be the sendCounts of this rank, " +
                                     std::to_string(sent.counts[call.rank()]) + ", but got " +
                                     std::to_string(receive_count) + ".");
    if (op == HCCL_REDUCE_PROD || (is_ascend310p() && op != HCCL_REDUCE_SUM))
        call.refuse(HCCL_E_NOT_SUPPORT, std::string("op must be one that the operation has on ") + soc_name() +
                                            " but got " + name_of_reduction(op) + ".");
    call.check_reduction(type, op, kReducedTypesV);
    call.check_distinct_buffers(in, out, type);
    if (!call.is_valid()) return call.result();
    Exchange exchange = call.exchange_with_all(std::string(" of ") + name_of_type(type) + ", " + name_of_reduction(op) +
                                               ", " + sent.text());
    exchange.message.segments = segments_of(in, sent, type);
    exchange.read = [=, rank = call.rank()](const Messages& messages) -> std::string {
        std::vector<char> next(out.count * bytes_of_type(type));
        std::vector<char> result(next.size());
        for (size_t i = 0; i < messages.size(); ++i) {
            if (!messages[i].read_for(rank, i ? next.data() : result.data()))
                return "the message of a rank cannot be read.";
            if (i) reduce(type, op, result.data(), next.data(), out.count);
        }
        if (!result.empty()) std::memcpy(out.first, result.data(), result.size());
        return "";
    };
    exchange.reads = accesses_of_parts(in, sent, type, false);
    exchange.writes = {access_of_buffer(out, type, true)};
    return call.queue({std::move(exchange)});
}
