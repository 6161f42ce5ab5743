// The text of a graph, for aclmdlRIDebugJsonPrint and aclmdlRIDebugPrint.
#include "cann/runtime/graphs.h"
#include "src/json.h"

namespace simulated_cann {
namespace {

std::string name_of(const Capture& graph, size_t i) {
    const Capture::Node& node = graph.nodes[i];
    if (node.work.kind == Work::Kind::kRecord) return "EVENT_RECORD_" + std::to_string(i);
    if (node.work.kind == Work::Kind::kWait) return "EVENT_WAIT_" + std::to_string(node.waits_for);
    return node.work.name;
}

}  // namespace

// The nodes as a Chrome trace, which torch_npu reads (torch_npu/npu/_npugraph_utils.py). The times are positions
// in the order of the capture.
std::string as_trace(const Capture& graph) {
    std::string events;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
        ascend_sim::Json json;
        json.field("name", name_of(graph, i)).field("ph", "X");
        json.field("pid", ("simulated graph " + std::to_string(graph.id)));
        json.field("tid", ("stream" + std::to_string(graph.nodes[i].branch)));
        json.raw("ts", std::to_string(i)).raw("dur", "1").raw("args", "{}");
        events += (i ? ",\n" : "") + json.done();
    }
    return "[" + events + "]\n";
}

}  // namespace simulated_cann
