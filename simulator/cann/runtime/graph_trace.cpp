// A graph as text, for aclmdlRIDebugJsonPrint and aclmdlRIDebugPrint.
#include "cann/runtime/graphs.h"
#include "src/json.h"

namespace simulated_cann {
namespace {

std::string node_name(const Graph& graph, size_t index) {
    const Graph::Node& node = graph.nodes[index];
    if (node.work.kind == Work::Kind::kRecord) return "EVENT_RECORD_" + std::to_string(index);
    if (node.work.kind == Work::Kind::kWait) return "EVENT_WAIT_" + std::to_string(node.waits_for);
    return node.work.name;
}

}  // namespace

// Returns the nodes as a Chrome trace, which torch_npu reads (torch_npu/npu/_npugraph_utils.py). A node's time is its
// position in the order of the capture.
std::string to_chrome_trace(const Graph& graph) {
    std::string events;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
        ascend_sim::Json json;
        json.field("name", node_name(graph, i)).field("ph", "X");
        json.field("pid", ("simulated graph " + std::to_string(graph.id)));
        json.field("tid", ("stream" + std::to_string(graph.nodes[i].branch)));
        json.raw("ts", std::to_string(i)).raw("dur", "1").raw("args", "{}");
        events += (i ? ",\n" : "") + json.done();
    }
    return "[" + events + "]\n";
}

}  // namespace simulated_cann
