// Helpers of the definitions' tests: checks, tensors without memory, random layouts, a definition's messages.
#pragma once

#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "cann/host/def_reader.h"
#include "cann/host/node.h"
#include "csrc/core/dtype.h"
#include "op_host/platform.h"

namespace npu_rope {

using simulated_cann::DefReader;
using simulated_cann::Node;
using simulated_cann::OpRecord;

inline const char* g_test = "";
inline int g_failures = 0;

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, g_test, #condition); \
            ++g_failures;                                                                    \
        }                                                                                    \
    } while (0)

inline void check_text(const std::string& got, const std::string& expected) {
    if (got == expected) return;
    std::fprintf(stderr, "%s: got\n  %s\ninstead of\n  %s\n", g_test, got.c_str(), expected.c_str());
    ++g_failures;
}

inline ge::DataType ge_type(int32_t dtype) {
    constexpr ge::DataType kTypes[] = {ge::DT_FLOAT,  ge::DT_FLOAT16, ge::DT_BF16,
                                       ge::DT_DOUBLE, ge::DT_INT32,   ge::DT_INT64};
    return kTypes[dtype];
}

inline std::vector<int64_t> shape_of(const npu_rope_tensor& t) { return {t.shape, t.shape + t.ndim}; }

// A contiguous tensor without memory.
inline npu_rope_tensor tensor(int32_t dtype, std::vector<int64_t> shape) {
    npu_rope_tensor t = {nullptr, dtype, static_cast<int32_t>(shape.size()), {}, {}};
    int64_t step = 1;
    for (size_t d = shape.size(); d-- > 0; step *= shape[d]) {
        t.shape[d] = shape[d];
        t.stride[d] = step;
    }
    return t;
}

using Parameters = std::vector<Node::Parameter>;

// add_tensor adds a parameter with one tensor, add_none a parameter without a tensor.
inline void add_tensor(Parameters* to, const npu_rope_tensor& t) {
    to->push_back({Node::make_tensor(ge_type(t.dtype), shape_of(t))});
}
inline void add_none(Parameters* to) { to->emplace_back(); }

// Replaces the tensors of the parameters by tensors without shape and type.
inline void clear_shapes_and_types(Parameters* parameters) {
    for (Node::Parameter& p : *parameters) p = {Node::make_tensor(ge::DT_UNDEFINED, {})};
}

// Adds the attribute `strides`. It holds the strides of all tensors if the call passes them. A contiguous call has one
// 0 (from aclnn) or an empty list (from a graph); the calls of this function alternate between the two.
inline void add_strides(Node* node, const std::vector<int64_t>& strides, bool passed) {
    static const int64_t zero = 0;
    static bool alternate = false;
    if (passed) return node->add_attr_list(strides.data(), strides.size());
    alternate = !alternate;
    node->add_attr_list(&zero, alternate ? 1 : 0);
}

class Random {
public:
    explicit Random(unsigned seed) : engine_(seed) {}
    int64_t in(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }
    bool chance(int percent) { return in(1, 100) <= percent; }
    template <typename T>
    T one_of(std::initializer_list<T> all) {
        return all.begin()[in(0, static_cast<int64_t>(all.size()) - 1)];
    }

private:
    std::mt19937 engine_;
};

// Sets random strides: contiguous, with tokens and heads exchanged, a part of a wider array, or reversed.
inline void set_random_strides(Random* r, npu_rope_tensor* t) {
    int64_t order[NPU_ROPE_MAX_NDIM] = {0, 1, 2, 3}, step = 1;
    if (t->ndim > 2 && r->chance(40)) std::swap(order[t->ndim - 2], order[t->ndim - 3]);
    for (int k = t->ndim; k-- > 0;) {
        t->stride[order[k]] = step;
        step *= t->shape[order[k]] + (r->chance(30) && k < t->ndim - 1 ? r->in(0, 3) : 0);
        if (k == t->ndim - 1) step += r->chance(30) ? r->in(1, 40) : 0;
    }
    if (r->chance(10) && t->ndim > 1) t->stride[0] = -t->stride[0];
}

// The message with which a definition's tiling refuses a call, or "".
inline std::string tiling_error(Node* node, const char* type) {
    simulated_cann::take_logged_error();
    if (node->tile(simulated_cann::find_functions(type).tiling) == ge::GRAPH_SUCCESS) return "";
    return simulated_cann::take_logged_error();
}

// A chip's platform with its family's name, as a definition gets it from CANN.
inline Platform platform_of(const char* chip) {
    std::optional<Platform> known = find_platform(chip);
    if (!known) return {chip, kArch910b, 48, 196608};
    known->soc = known->arch == kArch310p ? "Ascend310P" : known->arch == kArch950 ? "Ascend950" : "Ascend910B";
    return *known;
}

// Checks that a definition's tiling sets the data and the launch of the operator's tiling function in op_host/.
template <typename Data, typename Launch>
void check_tiling(const Node& node, const char* chip, const Data& data, const Launch& launch) {
    bool is_310p = std::strcmp(chip, "Ascend310P3") == 0;
    CHECK(node.tiling.GetDataSize() == sizeof data);
    CHECK(std::memcmp(node.tiling.GetData(), &data, sizeof data) == 0);
    CHECK(node.block_dim == launch.block_dim);
    CHECK(node.tiling_key == launch.tiling_key);
    CHECK(node.schedule_mode == (launch.cores_wait ? 1 : 0));
    CHECK(node.workspaces.size() == 1);
    CHECK(node.workspaces[0] == static_cast<size_t>(launch.workspace_bytes) + (is_310p ? 2 : 16) * 1024 * 1024);
}

// Run the tests of the tables' operators (test_table_definitions.cpp) and of the norms (test_norm_definitions.cpp).
// Return the number of tests.
size_t test_table_definitions();
size_t test_norm_definitions();

}  // namespace npu_rope
