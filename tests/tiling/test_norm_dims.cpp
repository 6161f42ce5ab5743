// The joined dimensions of a norm and the rules of its tensors (csrc/core/rms_norm_dims.h), for all small shapes.
#include <functional>
#include <numeric>

#include "csrc/core/rms_norm_dims.h"
#include "tests/tiling/failures.h"

using namespace npu_rope;

namespace {

using Sizes = std::vector<int64_t>;

struct Case {
    Sizes x, scale;
    int64_t axis = 0;
};

void describe(const Case& c) {
    std::fprintf(stderr, "x %s, scale %s, axis %lld\n", shape_text(c.x.data(), int(c.x.size())).c_str(),
                 shape_text(c.scale.data(), int(c.scale.size())).c_str(), static_cast<long long>(c.axis));
}

Dims dims_of(const Sizes& sizes, const Sizes& strides = {}) {
    return {static_cast<int64_t>(sizes.size()), sizes.data(), strides.data()};
}

int64_t product(const Sizes& sizes, int64_t first, int64_t end) {
    return std::accumulate(sizes.begin() + first, sizes.begin() + end, int64_t{1}, std::multiplies<>());
}

// Returns for each element of x, in their order, the number of the element of the scale that multiplies it.
Sizes elements_of_scale(const Sizes& x, const Sizes& scale) {
    const int64_t missing = int64_t(x.size() - scale.size());
    Sizes found;
    for (int64_t i = 0; i < product(x, 0, int64_t(x.size())); ++i) {
        int64_t rest = i, element = 0, step = 1;
        for (int64_t k = int64_t(x.size()) - 1; k >= missing; --k) {
            const int64_t size = scale[k - missing];
            if (size != 1) element += rest % x[k] * step;
            rest /= x[k];
            step *= size;
        }
        found.push_back(element);
    }
    return found;
}

void check_joined(const Case& c) {
    JoinedDims joined;
    joined.x = joined.scale = {7};  // of another call
    require_accepted(join_norm_dims("rms_norm", dims_of(c.x), dims_of(c.scale), c.axis, &joined), c);
    const int64_t ndim = int64_t(c.x.size()), axis = c.axis < 0 ? c.axis + ndim : c.axis;
    const int64_t count = int64_t(joined.x.size());
    CHECK(c, joined.scale.size() == joined.x.size() && joined.axis >= 0 && joined.axis < count);
    CHECK(c, product(joined.x, 0, joined.axis) == product(c.x, 0, axis));
    CHECK(c, product(joined.x, joined.axis, count) == product(c.x, axis, ndim));
    CHECK(c, elements_of_scale(joined.x, joined.scale) == elements_of_scale(c.x, c.scale));
    for (int64_t k = 0; k < count; ++k) {
        const bool is_whole_row = k == joined.axis && k + 1 == count;
        CHECK(c, joined.x[k] > 1 || is_whole_row);  // a row of one element still has a dimension
        const bool may_join = k > 0 && k != joined.axis;
        CHECK(c, !may_join || (joined.scale[k] == 1) != (joined.scale[k - 1] == 1));
    }
}

void for_each_sizes(size_t ndim, const Sizes& choices, const std::function<void(const Sizes&)>& call) {
    size_t count = 1;
    for (size_t k = 0; k < ndim; ++k) count *= choices.size();
    for (size_t i = 0; i < count; ++i) {
        Sizes sizes;
        for (size_t k = 0, rest = i; k < ndim; ++k, rest /= choices.size())
            sizes.push_back(choices[rest % choices.size()]);
        call(sizes);
    }
}

void small_shapes_are_joined() {
    int calls = 0;
    for (size_t ndim = 1; ndim <= 5; ++ndim)
        for_each_sizes(ndim, {1, 2, 3}, [&](const Sizes& x) {
            for (size_t scale_ndim = 0; scale_ndim <= ndim; ++scale_ndim)
                for_each_sizes(scale_ndim, {0, 1}, [&](const Sizes& varies) {
                    Case c{x, varies};
                    for (size_t k = 0; k < scale_ndim; ++k) c.scale[k] = varies[k] != 0 ? x[ndim - scale_ndim + k] : 1;
                    for (c.axis = -int64_t(ndim); c.axis < int64_t(ndim); ++c.axis) check_joined(c), ++calls;
                });
        });
    std::printf("joined dimensions: %d calls\n", calls);
}

void require_refused(const Case& c, const std::string& text) {
    JoinedDims joined;
    const Check refused = join_norm_dims("rms_norm", dims_of(c.x), dims_of(c.scale), c.axis, &joined);
    if (refused.message() != "[rms_norm] " + text) std::fprintf(stderr, "%s\n", refused.message().c_str());
    CHECK(c, refused.message() == "[rms_norm] " + text);
}

void axis_and_scale_are_checked() {
    require_refused({{2, 3, 4}, {4}, 3}, "axis must be in [-3, 2] but got 3.");
    require_refused({{2, 3, 4}, {4}, -4}, "axis must be in [-3, 2] but got -4.");
    for (const Sizes& scale : {Sizes{3}, {2, 4}, {3, 1, 4}, {1, 2, 3, 4}, {0}, {2, 3, 3}})
        require_refused({{2, 3, 4}, scale, 0}, "scale must be broadcastable to x's shape [2, 3, 4] but got " +
                                                   shape_text(scale.data(), int(scale.size())) + ".");
}

// A tensor beside x [2, 3, 4].
struct Tensor {
    Sizes sizes, strides;
    bool is_output;
    const char* text;  // the error; empty if the tensor is right
};

void describe(const Tensor& t) {
    std::fprintf(stderr, "sizes %s, strides %s, %s\n", shape_text(t.sizes.data(), int(t.sizes.size())).c_str(),
                 shape_text(t.strides.data(), int(t.strides.size())).c_str(), t.is_output ? "an output" : "an input");
}

void shapes_and_strides_are_checked() {
    const Sizes x{2, 3, 4};
    const Tensor tensors[] = {
        {{2, 3, 4}, {12, 4, 1}, false, ""},
        {{2, 3, 4}, {12, 4, 1}, true, ""},
        {{2, 3, 4}, {16, 4, 1}, false, ""},
        {{2, 3, 4}, {16, 4, 1}, true, "y must be contiguous but got strides [16, 4, 1]."},
        {{2, 3, 4}, {1, 2, 6}, true, "y must be contiguous but got strides [1, 2, 6]."},
        {{2, 3, 5}, {15, 5, 1}, false, "y must have x's shape [2, 3, 4] but got [2, 3, 5]."},
        {{2, 3}, {3, 1}, true, "y must have x's shape [2, 3, 4] but got [2, 3]."},
        {{2, 3, 4, 1}, {12, 4, 1, 1}, false, "y must have x's shape [2, 3, 4] but got [2, 3, 4, 1]."},
    };
    for (const Tensor& t : tensors) {
        const Check check = check_norm_dims("rms_norm", "y", dims_of(t.sizes, t.strides), dims_of(x), t.is_output);
        if (*t.text == '\0')
            require_accepted(check, t);
        else
            CHECK(t, check.message() == std::string("[rms_norm] ") + t.text);
    }
    const Tensor rows{{2, 3, 4}, {99, 4, 1}, true, ""};  // dense from its second dimension on
    for (int64_t first = -4; first < 3; ++first)
        CHECK(rows, dims_of(rows.sizes, rows.strides).is_dense_from(first) == (first > 0));
    const Tensor empty{{2, 0, 4}, {9, 9, 9}, true, ""};
    CHECK(empty, dims_of(empty.sizes, empty.strides).is_dense_from(0));
}

}  // namespace

int main() {
    small_shapes_are_joined();
    axis_and_scale_are_checked();
    shapes_and_strides_are_checked();
    std::printf("3 tests, %d failure(s)\n", g_failures);
    return g_failures != 0;
}
