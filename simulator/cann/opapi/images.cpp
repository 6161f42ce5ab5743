// Functions of images: Im2col, AvgPool2d and MaxPool, which have windows, and UpsampleNearest2d.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cann/opapi/first_phase.h"
#include "cann/opapi/sums.h"
#include "cann/opapi/views.h"

namespace simulated_cann {
namespace {

// A window along one dimension.
struct Axis {
    int64_t size = 1, kernel = 1, stride = 1, before = 0, after = 0, dilation = 1;

    int64_t outputs(bool rounds_up) const {
        const int64_t room = size + before + after - dilation * (kernel - 1) - 1;
        if (room < 0 && (!rounds_up || room + stride - 1 < 0)) return 0;
        int64_t count = (room + (rounds_up ? stride - 1 : 0)) / stride + 1;
        if (rounds_up && (count - 1) * stride >= size + before)
            --count;  // a window must not start in the trailing padding
        return count;
    }
    // The outputs [first, first + count) are those whose window has its element `k` inside the image. `index` is the
    // position of that element in the image for output `first`.
    struct Inside {
        int64_t first, count, index;
    };
    Inside inside(int64_t k, int64_t outputs) const {
        const int64_t offset = k * dilation - before;
        const int64_t first = std::max<int64_t>(stride - 1 - offset, 0) / stride;
        const int64_t last = offset >= size ? 0 : std::min((size - 1 - offset) / stride + 1, outputs);
        return {first, std::max<int64_t>(last - first, 0), first * stride + offset};
    }
};

// Returns the two values that a list of one or two elements gives. An empty list gives `fallback`; it is an error if
// `fallback` is empty.
std::vector<int64_t> pair_of(FirstPhase* call, const char* name, const std::vector<int64_t>& given, int64_t least,
                             const std::vector<int64_t>& fallback) {
    const bool has_count = given.size() == 1 || given.size() == 2 || (given.empty() && !fallback.empty());
    call->require(has_count, name, fallback.empty() ? "have 1 or 2 elements" : "have 0, 1 or 2 elements",
                  static_cast<int64_t>(given.size()));
    for (int64_t value : given) call->require(value >= least, name, "be at least " + std::to_string(least), value);
    if (!call->is_valid()) return {1, 1};
    if (given.empty()) return fallback;
    return {given[0], given.back()};
}

// Adds a batch dimension of size 1 to an operand of three dimensions. Returns other operands unchanged.
Operand with_batch(const Operand& image) {
    return image.shape.size() == 3 ? with_repeated_dimension(image, 0, 1) : image;
}

// Requires numbers whose products fit int64. The documents name no limit, so this is the stricter reading.
void require_32_bits(FirstPhase* call, const Axis& axis) {
    for (int64_t value : {axis.size, axis.kernel, axis.stride, axis.before, axis.after, axis.dilation})
        call->require(value <= INT32_MAX, "self", "have sizes, windows, strides and paddings below 2^31", value);
}

// Requires that `self` has room for a window and that `out` has one element for each window.
void require_outputs(FirstPhase* call, const Operand& self, const Operand& out, const Axis& rows, const Axis& columns,
                     bool rounds_up) {
    if (!call->is_valid()) return;
    std::vector<int64_t> shape = self.shape;
    const size_t rank = shape.size();
    for (size_t dim = rank - 3; dim < rank; ++dim)
        call->require(shape[dim] > 0, "self", "have no empty dimension except the batch", shape_text(shape));
    require_32_bits(call, rows);
    require_32_bits(call, columns);
    if (!call->is_valid()) return;
    shape[rank - 2] = rows.outputs(rounds_up);
    shape[rank - 1] = columns.outputs(rounds_up);
    call->require(shape[rank - 2] > 0 && shape[rank - 1] > 0, "self", "contain a window", shape_text(self.shape));
    call->require_shape("out", out, shape);
}

// hicann/ops-math conversion/im2col/docs/aclnnIm2col.md and op_api/aclnn_im2col.cpp. The document does not list
// Ascend310P, for which CANN 8.1 has a kernel. The source casts the result to the type of out. The document lists types
// for self that no kernel has.
constexpr TypesByChip kColumnTypes = undocumented_on_310p(kRealTypes | kWideUnsigned | type_set({kComplex64}));

aclError prepare_im2col(const aclTensor* self_tensor, const aclIntArray* kernel_array,
                        const aclIntArray* dilation_array, const aclIntArray* padding_array,
                        const aclIntArray* stride_array, const aclTensor* out_tensor, uint64_t* bytes,
                        aclOpExecutor** executor) {
    FirstPhase call("aclnnIm2col");
    const TypesByChip types = undocumented_on_310p(kHalfAndFloatTypes);
    const Operand self = call.input("self", self_tensor, types, {3, 4});
    const struct {
        const char* name;
        std::vector<int64_t> values;
        int64_t least;
    } lists[] = {{"kernelSize", call.integers("kernelSize", kernel_array), 1},
                 {"dilation", call.integers("dilation", dilation_array), 1},
                 {"padding", call.integers("padding", padding_array), 0},
                 {"stride", call.integers("stride", stride_array), 1}};
    const Operand out = call.output("out", out_tensor, kColumnTypes, {2, 3});
    if (call.is_valid() && out.dtype != self.dtype) call.ask_workspace(out.count() * dtype_bytes(self.dtype));
    for (const auto& list : lists) {
        call.require(list.values.size() == 2, list.name, "have 2 elements", static_cast<int64_t>(list.values.size()));
        for (int64_t value : list.values)
            call.require(value >= list.least, list.name, "be at least " + std::to_string(list.least), value);
    }
    if (!call.is_valid()) return call.finish(nullptr, bytes, executor);
    const Operand images = with_batch(self);
    for (size_t dim = 1; dim < 4; ++dim)
        call.require(images.shape[dim] > 0, "self", "have no empty dimension except the batch", shape_text(self.shape));
    Axis axes[2];
    for (size_t i = 0; i < 2; ++i)
        axes[i] = {images.shape[2 + i], lists[0].values[i], lists[3].values[i],
                   lists[2].values[i],  lists[2].values[i], lists[1].values[i]};
    for (const Axis& axis : axes) require_32_bits(&call, axis);
    if (!call.is_valid()) return call.finish(nullptr, bytes, executor);
    const int64_t height = axes[0].outputs(false), width = axes[1].outputs(false);
    call.require(height > 0 && width > 0, "self", "contain a window", shape_text(self.shape));
    int64_t depth = 0;
    if (__builtin_mul_overflow(images.shape[1], axes[0].kernel * axes[1].kernel, &depth))
        depth = INT64_MAX;  // of no tensor
    std::vector<int64_t> shape{images.shape[0], depth, height * width};
    if (self.shape.size() == 3) shape.erase(shape.begin());
    call.require_shape("out", out, shape);
    auto body = [images, out, rows = axes[0], columns = axes[1], height, width] {
        std::vector<char> storage;
        const Operand from =
            out.dtype == images.dtype ? separate_from(out, images, &storage) : packed_as(out.dtype, images, &storage);
        fill_view(out, float_scalar(0));
        const Operand batched = out.shape.size() == 2 ? with_repeated_dimension(out, 0, 1) : out;
        Operand to = split_dimension(batched, 2, height, width);
        to = split_dimension(to, 1, images.shape[1] * rows.kernel, columns.kernel);
        to = split_dimension(to, 1, images.shape[1], rows.kernel);  // [N, C, kernel rows, kernel columns, H, W]
        for (int64_t i = 0; i < rows.kernel; ++i)
            for (int64_t j = 0; j < columns.kernel; ++j) {
                const auto y = rows.inside(i, height), x = columns.inside(j, width);
                if (!y.count || !x.count) continue;
                Operand place = narrow(narrow(to, 2, i, 1), 3, j, 1);
                place.shape.erase(place.shape.begin() + 2, place.shape.begin() + 4);
                place.strides.erase(place.strides.begin() + 2, place.strides.begin() + 4);
                copy_view(narrow(narrow(place, 2, y.first, y.count), 3, x.first, x.count),
                          narrow(narrow(from, 2, y.index, y.count, rows.stride), 3, x.index, x.count, columns.stride));
            }
    };
    return call.finish(body, bytes, executor);
}

// Calls reduce(values, count, row, column) with the elements of each window inside the image, and writes the results.
template <class Reduce>
void for_each_window(const Operand& out, const std::vector<float>& values, const Axis& rows, const Axis& columns,
                     Reduce reduce) {
    std::vector<float> results, window;
    results.reserve(static_cast<size_t>(out.count()));
    const int64_t height = out.shape[out.shape.size() - 2], width = out.shape.back();
    for (size_t plane = 0; results.size() < static_cast<size_t>(out.count()); plane += rows.size * columns.size)
        for (int64_t y = 0; y < height; ++y)
            for (int64_t x = 0; x < width; ++x) {
                window.clear();
                const int64_t top = y * rows.stride - rows.before, left = x * columns.stride - columns.before;
                for (int64_t i = std::max<int64_t>(top, 0); i < std::min(top + rows.kernel, rows.size); ++i)
                    for (int64_t j = std::max<int64_t>(left, 0); j < std::min(left + columns.kernel, columns.size); ++j)
                        window.push_back(values[plane + static_cast<size_t>(i * columns.size + j)]);
                results.push_back(reduce(window.data(), static_cast<int64_t>(window.size()), y, x));
            }
    set_values(out, results);
}

float as_half(float value) { return rounded_to(kFloat16, value); }

struct AveragePool {
    Axis rows, columns;
    bool counts_padding = true, is_half = false;
    int64_t divisor = 0;  // 0: divide by the number of elements

    // The number of elements of a window inside the padded image.
    int64_t padded_count(int64_t y, int64_t x) const {
        const auto reach = [](const Axis& axis, int64_t index) {
            const int64_t start = index * axis.stride - axis.before;
            return std::min(start + axis.kernel, axis.size + axis.after) - start;
        };
        return reach(rows, y) * reach(columns, x);
    }
    float average(const float* values, int64_t count, int64_t y, int64_t x) const {
        const int64_t elements = divisor ? divisor : counts_padding ? padded_count(y, x) : count;
        float factor = 1.0f / static_cast<float>(elements);
        if (is_half && is_ascend310p())
            factor = as_half(factor);  // on this chip, the factor is a float16 weight of the cube unit
        const float result = lane_sum(values, count, [factor](float value) { return value * factor; });
        return is_half ? as_half(result) : result;
    }
};

// Source of the values of cubeMathType: hicann/ops-nn pooling/avg_pool3_d/docs/aclnnAvgPool2d.md.
constexpr int8_t kKeepDtype = 0, kAllowLowerPrecision = 1, kUseFp16 = 2;

void check_cube_math_type(FirstPhase* call, int32_t dtype, int8_t cube_math_type) {
    const bool is_valid = cube_math_type == kKeepDtype             ? dtype != kFloat || !is_ascend310p()
                          : cube_math_type == kAllowLowerPrecision ? dtype != kFloat || is_ascend310p()
                          : cube_math_type == kUseFp16             ? dtype != kBfloat16
                                                                   : false;
    call->require(is_valid, "cubeMathType",
                  std::string("be one that supports ") + dtype_name(dtype) + " on " + soc_name(), cube_math_type);
}

// hicann/ops-nn pooling/avg_pool3_d/docs/aclnnAvgPool2d.md and op_api/aclnn_avgpool2d.cpp. The format of three
// dimensions is NCL.
aclError prepare_avg_pool(const aclTensor* self_tensor, const aclIntArray* kernel_array,
                          const aclIntArray* stride_array, const aclIntArray* padding_array, bool rounds_up,
                          AveragePool pool, int8_t cube_math_type, const aclTensor* out_tensor, uint64_t* bytes,
                          aclOpExecutor** executor) {
    FirstPhase call("aclnnAvgPool2d");
    const TypesByChip types = with_bf16_except_310p(kHalfAndFloatTypes);
    const Operand self = call.input("self", self_tensor, types, {3, 4});
    const std::vector<int64_t> kernel_list = call.integers("kernelSize", kernel_array);
    const std::vector<int64_t> stride_list = call.integers("strides", stride_array);
    const std::vector<int64_t> padding_list = call.integers("paddings", padding_array);
    const Operand out = call.output("out", out_tensor, types, {3, 4});
    call.require_dtype("out", out, self.dtype);
    if (call.is_valid()) {
        const int32_t format = self.shape.size() == 4 ? kNchw : kNcl;
        const char* rule = format == kNchw ? "have the format NCHW (0)" : "have the format NCL (47)";
        call.require(self_tensor->format == format, "self", rule, self_tensor->format);
        call.require(out_tensor->format == format, "out", rule, out_tensor->format);
    }
    const std::vector<int64_t> kernel = pair_of(&call, "kernelSize", kernel_list, 1, {});
    const std::vector<int64_t> strides = pair_of(&call, "strides", stride_list, 1, kernel);
    const std::vector<int64_t> paddings = pair_of(&call, "paddings", padding_list, 0, {});
    for (size_t i = 0; i < 2; ++i)
        call.require(paddings[i] <= kernel[i] / 2, "paddings", "be at most half of kernelSize", paddings[i]);
    check_cube_math_type(&call, self.dtype, cube_math_type);
    if (call.is_valid()) {
        const size_t rank = self.shape.size();
        pool.rows = {self.shape[rank - 2], kernel[0], strides[0], paddings[0], paddings[0]};
        pool.columns = {self.shape[rank - 1], kernel[1], strides[1], paddings[1], paddings[1]};
        pool.is_half = self.dtype == kFloat16 || (self.dtype == kFloat && cube_math_type != kKeepDtype);
        if (pool.is_half && self.dtype == kFloat) call.ask_workspace(2 * (self.count() + out.count()));
    }
    require_outputs(&call, self, out, pool.rows, pool.columns, rounds_up);
    call.report_beyond_document(self.count() == 0, "its document does not allow an empty self");
    auto body = [self, out, pool] {
        std::vector<float> values = values_of<float>(self);
        if (pool.is_half)
            for (float& value : values) value = as_half(value);
        for_each_window(out, values, pool.rows, pool.columns,
                        [&pool](const float* window, int64_t count, int64_t y, int64_t x) {
                            return pool.average(window, count, y, x);
                        });
    };
    return call.finish(body, bytes, executor);
}

// The paddings {top, left, bottom, right} of a list of 0, 1, 2 or 4 values.
std::vector<int64_t> four_paddings(const std::vector<int64_t>& given) {
    if (given.empty()) return {0, 0, 0, 0};
    if (given.size() == 4) return given;
    return {given[0], given.back(), given[0], given.back()};
}

// Whether MaxPool takes every plain format. The document lists the format ND, but the source converts four dimensions
// to NC1HWC0, which TransDataSpecial does for NCHW and NHWC only (hicann/ops-math
// conversion/trans_data/op_api/transdata.cpp). For NHWC, the kernel would pool other dimensions. On Ascend910B, a large
// window with equal paddings runs on MaxPool3DWithArgmaxV2, which takes every format.
bool takes_every_format(const Operand& self, const Axis (&axes)[2]) {
    constexpr int64_t kLargestKernel = 1000;
    const bool is_large = axes[0].kernel > kLargestKernel || axes[1].kernel > kLargestKernel;
    const bool is_even = axes[0].before == axes[0].after && axes[1].before == axes[1].after;
    return self.shape.size() == 3 || self.count() == 0 || (is_large && is_even && !is_ascend310p());
}

// hicann/ops-nn pooling/max_pool_v3/docs/aclnnMaxPool.md and op_api/aclnn_max_pool.cpp. The document does not define
// negative paddings, which are refused. The document does not list Ascend310P, for which the source has float16 only.
aclError prepare_max_pool(const aclTensor* self_tensor, const aclIntArray* kernel_array,
                          const aclIntArray* stride_array, int64_t auto_pad, const aclIntArray* pads_array,
                          const aclIntArray* dilations_array, bool rounds_up, const aclTensor* out_tensor,
                          uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnMaxPool");
    const TypesByChip types = undocumented_on_310p(kHalfAndFloatTypes, type_set({kFloat16}));
    const Operand self = call.input("self", self_tensor, types, {3, 4});
    const std::vector<int64_t> kernel_list = call.integers("kernelShape", kernel_array);
    const std::vector<int64_t> stride_list = call.integers("strides", stride_array);
    const std::vector<int64_t> pads_list = call.integers("pads", pads_array);
    const std::vector<int64_t> dilations = call.integers("dilations", dilations_array);
    const Operand out = call.output("out", out_tensor, types, {3, 4});
    call.require_dtype("out", out, self.dtype);
    call.require_format_of("self", self_tensor, "out", out_tensor);
    const std::vector<int64_t> kernel = pair_of(&call, "kernelShape", kernel_list, 1, {});
    const std::vector<int64_t> strides = pair_of(&call, "strides", stride_list, 1, {1, 1});
    call.require(auto_pad == 0, "autoPad", "be 0", auto_pad);
    for (const auto& [name, list] : {std::pair("pads", &pads_list), std::pair("dilations", &dilations)})
        call.require(list->size() < 3 || list->size() == 4, name, "have 0, 1, 2 or 4 elements",
                     static_cast<int64_t>(list->size()));
    for (int64_t value : dilations) call.require(value == 1, "dilations", "be 1", value);
    for (int64_t value : pads_list) call.require(value >= 0, "pads", "be at least 0", value);
    Axis axes[2];
    if (call.is_valid()) {
        const std::vector<int64_t> pads = four_paddings(pads_list);
        for (size_t i = 0; i < 2; ++i) {
            axes[i] = {self.shape[self.shape.size() - 2 + i], kernel[i], strides[i], pads[i], pads[i + 2]};
            call.require(pads[i] <= kernel[i] && pads[i + 2] <= kernel[i] - pads[i], "pads",
                         "add up to at most kernelShape in each dimension", shape_text(pads_list));
        }
    }
    require_outputs(&call, self, out, axes[0], axes[1], rounds_up);
    if (call.is_valid() && !takes_every_format(self, axes))
        call.require_inner(kAclnnInnerNullptr, self_tensor->format == kNchw, "self", "have the format NCHW (0)",
                           std::to_string(self_tensor->format));
    auto body = [self, out, rows = axes[0], columns = axes[1]] {
        for_each_window(out, values_of<float>(self), rows, columns,
                        [](const float* window, int64_t count, int64_t, int64_t) {
                            float greatest = -std::numeric_limits<float>::infinity();
                            for (int64_t i = 0; i < count; ++i)
                                if (window[i] > greatest || std::isnan(window[i])) greatest = window[i];
                            return greatest;
                        });
    };
    return call.finish(body, bytes, executor);
}

// The largest size is that of the source (CheckUplimit). The document has smaller limits: 2^20 for each size, and 60
// GiB for self and out with 16 * n channels.
void require_upsampled_sizes(FirstPhase* call, const Operand& self, const Operand& out, int32_t format) {
    constexpr int64_t kDocumentedSize = 1 << 20, kChannelUnit = 16;
    constexpr double kDocumentedBytes = 60.0 * (1 << 30);
    if (!call->is_valid()) return;
    bool has_large_size = false;
    double elements = 0;
    const int64_t channels = self.shape[format == kNhwc ? 3 : 1];
    for (const auto& [name, operand] : {std::pair("self", &self), std::pair("out", &out)}) {
        for (int64_t size : operand->shape) {
            call->require(size <= INT32_MAX, name, "have at most 2147483647 elements in each dimension", size);
            has_large_size = has_large_size || size > kDocumentedSize;
        }
        elements += static_cast<double>(operand->count()) / static_cast<double>(channels);
    }
    const int64_t padded_channels = (channels + kChannelUnit - 1) / kChannelUnit * kChannelUnit;
    const double bytes = elements * static_cast<double>(padded_channels * dtype_bytes(self.dtype));
    call->report_beyond_document(self.count() == 0, "its document excludes empty tensors");
    call->report_beyond_document(has_large_size, "its document requires sizes of at most 2^20");
    call->report_beyond_document(bytes >= kDocumentedBytes, "its document requires tensors of less than 60 GiB");
}

// hicann/ops-cv image/resize_nearest_neighbor_v2/docs/aclnnUpsampleNearest2d.md and aclnn_upsample_nearest_2d.cpp. In
// both formats, the source refuses an empty dimension except the first one. The document excludes float32 on
// Ascend310P, but the source accepts it, and CANN 8.1 has the kernel ResizeNearestNeighborV2. Along each axis, element
// i of n output elements is element floor(i * size / n) of the input. The index is computed in float32.
aclError prepare_upsample(const aclTensor* self_tensor, const aclIntArray* size_array, const aclTensor* out_tensor,
                          uint64_t* bytes, aclOpExecutor** executor) {
    FirstPhase call("aclnnUpsampleNearest2d");
    constexpr uint32_t on_310p = type_set({kFloat16, kDouble, kUint8});
    constexpr uint32_t kFloatType = type_set({kFloat});
    const TypesByChip types = with_undocumented(by_chip(on_310p | kBf16 | kFloatType, on_310p), 0, kFloatType);
    const Operand self = call.input("self", self_tensor, types, {4, 4});
    const std::vector<int64_t> size = call.integers("outputSize", size_array);
    const Operand out = call.output("out", out_tensor, types, {4, 4});
    call.require_dtype("out", out, self.dtype);
    call.require(size.size() == 2, "outputSize", "have 2 elements", static_cast<int64_t>(size.size()));
    for (int64_t value : size) call.require(value > 0, "outputSize", "be greater than 0", value);
    if (!call.is_valid()) return call.finish(nullptr, bytes, executor);
    const int32_t format = self_tensor->format;
    call.require(format == kNchw || format == kNhwc, "self", "have the format NCHW (0) or NHWC (1)", format);
    call.require_format_of("self", self_tensor, "out", out_tensor);
    const size_t height = format == kNhwc ? 1 : 2, width = height + 1;
    std::vector<int64_t> shape = self.shape;
    for (size_t dim = 1; dim < shape.size(); ++dim)
        call.require(shape[dim] > 0, "self", "have no empty dimension except the batch", shape_text(shape));
    for (size_t dim : {height, width}) {
        call.require(
            shape[dim] < (1 << 24) || self.dtype == kFloat || self.dtype == kFloat16 || self.dtype == kBfloat16, "self",
            "have fewer than 2^24 rows and columns", shape[dim]);
        shape[dim] = size[dim - height];
    }
    call.require_shape("out", out, shape);
    require_upsampled_sizes(&call, self, out, format);
    auto body = [self, out, height, width] {
        std::vector<char> storage;
        const Operand from = separate_from(out, self, &storage);
        const auto nearest = [&](size_t dim, int64_t index) {
            const float scale = static_cast<float>(from.shape[dim]) / static_cast<float>(out.shape[dim]);
            const auto found = static_cast<int64_t>(std::floor(static_cast<float>(index) * scale));
            return std::min(found, from.shape[dim] - 1);
        };
        for (int64_t y = 0; y < out.shape[height]; ++y) {
            const Operand to_row = narrow(out, height, y, 1), row = narrow(from, height, nearest(height, y), 1);
            for (int64_t x = 0; x < out.shape[width]; ++x)
                copy_view(narrow(to_row, width, x, 1), narrow(row, width, nearest(width, x), 1));
        }
    };
    return call.finish(body, bytes, executor);
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnIm2colGetWorkspaceSize(const aclTensor* self, const aclIntArray* kernel,
                                                  const aclIntArray* dilation, const aclIntArray* padding,
                                                  const aclIntArray* stride, const aclTensor* out, uint64_t* bytes,
                                                  aclOpExecutor** executor) {
    return simulated_cann::prepare_im2col(self, kernel, dilation, padding, stride, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnIm2col)

NPU_CANN_API aclError aclnnAvgPool2dGetWorkspaceSize(const aclTensor* self, const aclIntArray* kernel,
                                                     const aclIntArray* strides, const aclIntArray* paddings,
                                                     bool rounds_up, bool counts_padding, int64_t divisor,
                                                     int8_t cube_math_type, aclTensor* out, uint64_t* bytes,
                                                     aclOpExecutor** executor) {
    simulated_cann::AveragePool pool;
    pool.counts_padding = counts_padding;
    pool.divisor = divisor;
    return simulated_cann::prepare_avg_pool(self, kernel, strides, paddings, rounds_up, pool, cube_math_type, out,
                                            bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnAvgPool2d)

NPU_CANN_API aclError aclnnMaxPoolGetWorkspaceSize(const aclTensor* self, const aclIntArray* kernel,
                                                   const aclIntArray* strides, int64_t auto_pad,
                                                   const aclIntArray* pads, const aclIntArray* dilations,
                                                   int64_t rounds_up, aclTensor* out, uint64_t* bytes,
                                                   aclOpExecutor** executor) {
    return simulated_cann::prepare_max_pool(self, kernel, strides, auto_pad, pads, dilations, rounds_up != 0, out,
                                            bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnMaxPool)

NPU_CANN_API aclError aclnnUpsampleNearest2dGetWorkspaceSize(const aclTensor* self, const aclIntArray* output_size,
                                                             aclTensor* out, uint64_t* bytes,
                                                             aclOpExecutor** executor) {
    return simulated_cann::prepare_upsample(self, output_size, out, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnUpsampleNearest2d)
