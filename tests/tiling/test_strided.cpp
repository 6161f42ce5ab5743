// Whether strided views share memory (csrc/core/strided.cpp), against the bytes of all their elements.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "csrc/core/strided.h"
#include "tests/fuzz/coverage/choices.h"
#include "tests/tiling/failures.h"

namespace npu_rope {

// In the namespace of its argument, where CHECK finds it.
void describe(const StridedView& v) {
    std::fprintf(stderr, "base %lld, items of %lld bytes:", static_cast<long long>(v.base),
                 static_cast<long long>(v.item_bytes));
    for (int k = 0; k < v.ndim; ++k)
        std::fprintf(stderr, " %lld every %lld", static_cast<long long>(v.size[k]),
                     static_cast<long long>(v.stride_bytes[k]));
    std::fprintf(stderr, "\n");
}

}  // namespace npu_rope

using namespace npu_rope;

namespace {

using Bytes = std::vector<int64_t>;

struct Case {
    StridedView a, b;
};

void describe(const Case& c) { describe(c.a), describe(c.b); }

// Returns the address of each element, in the order of the indices.
Bytes addresses_of(const StridedView& v) {
    Bytes found;
    if (!v.empty()) found.push_back(static_cast<int64_t>(v.base));
    for (int k = 0; k < v.ndim && !found.empty(); ++k) {
        Bytes next;
        for (int64_t at : found)
            for (int64_t i = 0; i < v.size[k]; ++i) next.push_back(at + i * v.stride_bytes[k]);
        found = next;
    }
    return found;
}

Bytes bytes_of(const StridedView& v) {
    Bytes found;
    for (int64_t at : addresses_of(v))
        for (int64_t byte = 0; byte < v.item_bytes; ++byte) found.push_back(at + byte);
    std::sort(found.begin(), found.end());
    return found;
}

// Whether each stride of these views is at least the extent of the smaller ones.
bool are_nested(std::initializer_list<StridedView> views) {
    std::map<int64_t, int64_t> sizes;  // by strides
    for (const StridedView& v : views) {
        std::set<int64_t> seen;
        for (int k = 0; k < v.ndim; ++k) {
            const int64_t stride = std::abs(v.stride_bytes[k]);
            if (v.size[k] <= 1) continue;
            if (!seen.insert(stride).second) return false;
            sizes[stride] = std::max(sizes[stride], v.size[k]);
        }
    }
    int64_t extent = views.begin()->item_bytes;
    for (const auto& [stride, size] : sizes) {
        if (stride < extent) return false;
        extent += (size - 1) * stride;
    }
    return true;
}

void check_view(const StridedView& v) {
    const Bytes bytes = bytes_of(v);
    const bool is_injective_view = std::adjacent_find(bytes.begin(), bytes.end()) == bytes.end();
    CHECK(v, is_injective(v) == (v.empty() || are_nested({v})));
    CHECK(v, !is_injective(v) || is_injective_view);
}

// Returns whether the views share a byte.
bool check_pair(const Case& c) {
    const Bytes a = bytes_of(c.a), b = bytes_of(c.b);
    Bytes common;
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common));
    const bool ranges_meet = !a.empty() && !b.empty() && a.front() <= b.back() && b.front() <= a.back();
    const bool is_exact = c.a.item_bytes == c.b.item_bytes && are_nested({c.a, c.b});
    CHECK(c, may_share_memory(c.a, c.b) == (is_exact ? !common.empty() : ranges_meet));
    CHECK(c, may_share_memory(c.b, c.a) == may_share_memory(c.a, c.b));
    return !common.empty();
}

// A view whose strides are some of `strides`, in any order.
StridedView random_view(Choices* random, const std::vector<int64_t>& strides, int64_t item_bytes, int64_t most) {
    StridedView v;
    v.base = static_cast<uintptr_t>(100'000 + item_bytes * random->up_to(40));
    v.item_bytes = item_bytes;
    v.ndim = static_cast<int>(random->between(1, kMaxDims));
    std::vector<int64_t> left = strides;
    for (int k = 0; k < v.ndim; ++k) {
        const int64_t at = random->up_to(static_cast<int64_t>(left.size()) - 1);
        v.size[k] = random->chance(50) ? 0 : random->between(1, most);
        v.stride_bytes[k] = left[at];
        left.erase(left.begin() + at);
        if (!random->chance(4)) continue;  // backwards
        if (v.size[k] > 1) v.base += static_cast<uintptr_t>((v.size[k] - 1) * v.stride_bytes[k]);
        v.stride_bytes[k] = -v.stride_bytes[k];
    }
    return v;
}

// Views of one buffer with eight dimensions. Their strides are nested, so every result is exact.
void views_of_a_buffer() {
    Choices random(1);
    int shared = 0, apart = 0;
    for (int i = 0; i < 20000; ++i) {
        const int64_t item_bytes = random.one_of({1, 2, 4, 8}), most = random.between(2, 3);
        std::vector<int64_t> strides;
        for (int64_t extent = item_bytes; strides.size() < 2 * kMaxDims; extent = strides.back() * most)
            strides.push_back(extent + item_bytes * random.chance(5) * random.up_to(2));
        const Case c{random_view(&random, strides, item_bytes, most), random_view(&random, strides, item_bytes, most)};
        check_view(c.a);
        ++(check_pair(c) ? shared : apart);
    }
    std::printf("views of a buffer: %d share memory, %d do not\n", shared, apart);
    if (shared < 1000 || apart < 1000) ++g_failures;
}

// Views with any strides, also 0 and equal ones, and items of different sizes.
void views_with_any_strides() {
    Choices random(2);
    for (int i = 0; i < 20000; ++i) {
        std::vector<int64_t> strides;
        for (int k = 0; k < 2 * kMaxDims; ++k) strides.push_back(random.up_to(random.one_of({8, 30, 120})));
        const int64_t bytes_a = random.one_of({1, 2, 4}), bytes_b = random.chance(4) ? 2 : bytes_a;
        const Case c{random_view(&random, strides, bytes_a, 3), random_view(&random, strides, bytes_b, 3)};
        check_view(c.a);
        check_pair(c);
    }
}

// A view and one that differs from it in one place, or in the stride of a dimension of size 1.
void views_of_the_same_elements() {
    Choices random(3);
    int same = 0;
    for (int i = 0; i < 20000; ++i) {
        Case c;
        c.a = c.b = random_view(&random, {4, 8, 24, 72, 216}, 4, 2);
        const int64_t k = random.up_to(c.a.ndim - 1);
        switch (random.up_to(5)) {
            case 0:
                c.b.base += 4;
                break;
            case 1:
                c.b.item_bytes = 2;
                break;
            case 2:
                ++c.b.size[k];
                break;
            case 3:
                --c.b.ndim;
                break;
            case 4:
                c.b.stride_bytes[k] += 4;
                break;
        }
        const bool have_one_shape = c.a.ndim == c.b.ndim && std::equal(c.a.size, c.a.size + c.a.ndim, c.b.size);
        const bool is_same = have_one_shape && c.a.base == c.b.base && c.a.item_bytes == c.b.item_bytes &&
                             (c.a.size[k] <= 1 || c.a.stride_bytes[k] == c.b.stride_bytes[k]);
        CHECK(c, is_same_view(c.a, c.b) == is_same);
        CHECK(c, !is_same || addresses_of(c.a) == addresses_of(c.b));
        same += is_same;
    }
    if (same < 3000) ++g_failures;
}

}  // namespace

int main() {
    views_of_a_buffer();
    views_with_any_strides();
    views_of_the_same_elements();
    std::printf("3 tests, %d failure(s)\n", g_failures);
    return g_failures != 0;
}
