// aclnnConvolution: convolution and transposed convolution in one to three dimensions, with groups. Each output element
// is the inner product of the weight and the inputs that the kernel covers. The products are added channel by channel,
// and within a channel by position in the kernel. Sources: hicann/ops-nn
// conv/convolution_forward/docs/aclnnConvolution.md and op_host/op_api/aclnn_convolution.cpp.
#include <algorithm>

#include "cann/opapi/cube.h"

namespace simulated_cann {
namespace {

using Sizes = std::vector<int64_t>;

constexpr int64_t kLargestDim = 1000000, kMostGroups = 65535, kLargestKernel = 255, kLargestPadding = 255;
constexpr int64_t kLargestKernel3d = 511, kLargestStride3d = 63, kLargestImage310p = 4096;

struct Convolution {
    Operand input, weight, output;
    std::optional<Operand> bias;
    Sizes stride, padding_before, padding_after, dilation, output_padding;
    bool is_transposed = false;
    int64_t groups = 1;
    CubeTypes types;

    size_t spatial_dims() const { return input.shape.size() - 2; }
    int64_t kernel(size_t dim) const { return weight.shape[dim + 2]; }
    int64_t output_channels() const { return is_transposed ? weight.shape[1] * groups : weight.shape[0]; }
};

class ConvolutionCheck {
public:
    ConvolutionCheck(FirstPhase* call, Convolution* convolution) : call_(call), c_(*convolution) {}

    void run(int8_t math_type) {
        check_ranks();
        if (call_->is_valid()) check_types(math_type);
        if (call_->is_valid()) check_values();
        if (call_->is_valid()) check_channels();
        if (call_->is_valid()) check_kernel();
        if (call_->is_valid()) check_output();
    }

    // The format of a tensor: NCL, NCHW or NCDHW for 3, 4 or 5 dimensions.
    void check_format(const char* name, const aclTensor* tensor) {
        if (!call_->is_valid()) return;
        static constexpr int32_t formats[] = {47, 0, 30};
        static constexpr const char* names[] = {"NCL", "NCHW", "NCDHW"};
        const size_t index = tensor->shape.size() - 3;
        call_->require(
            tensor->format == formats[index], name,
            std::string("be in the format ") + names[index] + " (aclFormat " + std::to_string(formats[index]) + ")",
            "aclFormat " + std::to_string(tensor->format));
    }

    // The format of bias: FormatChecker in the source.
    void check_bias_format(const aclTensor* bias) {
        if (!call_->is_valid() || !bias) return;
        constexpr int32_t kNchw = 0, kNd = 2, kNcdhw = 30, kNcl = 47;
        const int32_t format = bias->format;
        call_->require(format == kNchw || format == kNd || format == kNcdhw || format == kNcl, "bias",
                       "be in the format ND, NCL, NCHW or NCDHW", "aclFormat " + std::to_string(format));
        call_->report_beyond_document(c_.is_transposed && format != kNd,
                                      "its document requires the format ND for the bias of a transposed convolution");
    }

private:
    void require_between(const char* name, int64_t value, int64_t least, int64_t most) {
        call_->require(value >= least && value <= most, std::string("each ") + name,
                       "be in [" + std::to_string(least) + ", " + std::to_string(most) + "]", value);
    }

    void check_ranks() {
        const auto rank = static_cast<int64_t>(c_.input.shape.size());
        call_->require(c_.weight.shape.size() == c_.input.shape.size(), "weight",
                       "have " + std::to_string(rank) + " dimensions", static_cast<int64_t>(c_.weight.shape.size()));
        call_->require(c_.output.shape.size() == c_.input.shape.size(), "output",
                       "have " + std::to_string(rank) + " dimensions", static_cast<int64_t>(c_.output.shape.size()));
    }

    // The document supports neither float32 with cubeMathType 0 nor bfloat16 with cubeMathType 2, and it does not list
    // cubeMathType 4. On Ascend910B the source accepts all three: it computes bfloat16 with 2 in float16, and it treats
    // 4 as 0 (aclnn_convolution.cpp, HardwareLimitChecker, and matmul/common/op_host/op_api/cube_util.cpp,
    // CheckCubeMathType and CalcPromoteTypeCubemathtype). On Ascend310P the source refuses float32 with 0, 3 and 4.
    void check_types(int8_t math_type) {
        const int32_t input = c_.input.dtype, weight = c_.weight.dtype;
        const int32_t promoted = promoted_dtype(input, true, weight, true);
        call_->require(math_type >= kKeepDtype && math_type <= kUseFp32Add, "cubeMathType", "be in [0, 4]", math_type);
        call_->report_beyond_document(promoted == kFloat && math_type == kKeepDtype,
                                      "its document does not support float32 with cubeMathType 0");
        call_->report_beyond_document(math_type == kUseFp16 && (input == kBfloat16 || weight == kBfloat16),
                                      "its document does not support bfloat16 with cubeMathType 2");
        call_->report_beyond_document(math_type == kUseFp32Add, kUnlistedFp32Add);
        const bool acts_as_keep_dtype = math_type == kUseFp32Add && promoted != kFloat;  // accepted on every chip
        c_.types = cube_types(call_, input, weight, c_.output.dtype,
                              acts_as_keep_dtype ? int8_t{kKeepDtype} : math_type, false);
        if (math_type == kUseFp16) c_.types.rounding = CubeRounding::kFloat16;
        if (!call_->is_valid()) return;
        call_->require_dtype("output", c_.output, promoted);
        if (c_.bias) call_->require_dtype("bias", *c_.bias, input);
        // A kernel that reads float16 also writes float16.
        if (c_.types.rounding == CubeRounding::kFloat16) c_.types.result = kFloat16;
        call_->require(!is_ascend310p() || c_.spatial_dims() < 3 || (promoted == kFloat16 && !c_.is_transposed),
                       "input",
                       "have at most 4 dimensions on this chip, except in a float16 convolution that is not transposed",
                       shape_text(c_.input.shape));
    }

    void check_values() {
        for (int64_t value : c_.stride) call_->require(value > 0, "stride", "be positive", value);
        for (int64_t value : c_.dilation) call_->require(value > 0, "dilation", "be positive", value);
        for (const Sizes* padding : {&c_.padding_before, &c_.padding_after})
            for (int64_t value : *padding) call_->require(value >= 0, "padding", "be at least 0", value);
        call_->require(c_.groups >= 1 && c_.groups <= kMostGroups, "groups", "be in [1, 65535]", c_.groups);
        for (const Operand* operand : {&c_.input, &c_.weight})
            for (int64_t size : operand->shape)
                call_->require(size <= kLargestDim, "each dimension of input and weight", "be at most 1000000", size);
        for (size_t i = 0; i < c_.spatial_dims(); ++i) {
            call_->require(c_.kernel(i) > 0, "weight", "have a kernel with elements", shape_text(c_.weight.shape));
            if (c_.is_transposed)
                call_->require(c_.output_padding[i] >= 0 &&
                                   (c_.output_padding[i] < c_.stride[i] || c_.output_padding[i] < c_.dilation[i]),
                               "outputPadding", "be at least 0 and below stride or dilation", c_.output_padding[i]);
        }
    }

    // Sources: the table in the document, and padBinaryValid in the source.
    void check_kernel() {
        const size_t dims = c_.spatial_dims(), first_plane = dims == 3 ? 1 : 0;  // depth has no limits
        for (size_t i = first_plane; i < dims; ++i) {
            if (dims == 3) {
                require_between("kernel dimension of weight", c_.kernel(i), 1,
                                c_.is_transposed ? kLargestKernel : kLargestKernel3d);
                require_between("element of stride", c_.stride[i], 1, kLargestStride3d);
                require_between("element of padding", c_.padding_before[i], 0, kLargestPadding);
                require_between("element of dilation", c_.dilation[i], 1, kLargestKernel);
            } else if (c_.is_transposed) {
                require_between("kernel dimension of weight", c_.kernel(i), 1, kLargestKernel);
                require_between("element of dilation", c_.dilation[i], 1, kLargestKernel);
            } else {
                require_between("element of padding", std::max(c_.padding_before[i], c_.padding_after[i]), 0,
                                kLargestPadding);
            }
            const int64_t reach = to_size(Wide(c_.kernel(i) - 1) * c_.dilation[i] - c_.padding_before[i]);
            if (c_.is_transposed)
                call_->require(reach <= kLargestPadding && (dims < 3 || reach >= 0),
                               "(kernel - 1) * dilation - padding", dims < 3 ? "be at most 255" : "be in [0, 255]",
                               reach);
            if (!is_ascend310p()) continue;
            call_->report_beyond_document(dims == 3 && c_.kernel(0) > kLargestKernel,
                                          "its document limits each kernel dimension of weight to 255 on Ascend310P");
            require_between("kernel dimension of weight", c_.kernel(i), 1, kLargestKernel);
            require_between("image dimension of input", c_.input.shape[i + 2], 0, kLargestImage310p);
        }
    }

    // Attributes and sizes of any call: their products fit Wide. A size beyond int64 becomes the nearest number, which
    // no tensor has.
    using Wide = __int128;
    static int64_t to_size(Wide size) { return static_cast<int64_t>(std::clamp<Wide>(size, INT64_MIN, INT64_MAX)); }

    void check_channels() {
        const int64_t channels = c_.input.shape[1], in_weight = c_.weight.shape[c_.is_transposed ? 0 : 1];
        const int64_t expected = c_.is_transposed ? in_weight : to_size(Wide(in_weight) * c_.groups);
        call_->require(channels == expected, "input", "have " + std::to_string(expected) + " channels", channels);
        // ValueChecker in the source, CheckEmptyTensor.
        call_->require(channels > 0 || !c_.is_transposed, "input", "have channels in a transposed convolution",
                       channels);
        call_->require(c_.weight.shape[0] % c_.groups == 0, "weight",
                       "have a first dimension that is a multiple of groups, " + std::to_string(c_.groups),
                       c_.weight.shape[0]);
        if (c_.bias) call_->require_shape("bias", *c_.bias, {c_.output_channels()});
    }

    void check_output() {
        Sizes shape = {c_.input.shape[0], c_.output_channels()};
        for (size_t i = 0; i < c_.spatial_dims(); ++i) {
            const Wide reach = Wide(c_.dilation[i]) * (c_.kernel(i) - 1);
            const Wide padding = Wide(c_.padding_before[i]) + c_.padding_after[i], size = c_.input.shape[i + 2];
            if (c_.is_transposed) {
                shape.push_back(to_size((size - 1) * c_.stride[i] - padding + reach + c_.output_padding[i] + 1));
                continue;
            }
            call_->require(size + padding >= reach + 1, "input",
                           "be at least as large as the kernel in each dimension, with its padding",
                           shape_text(c_.input.shape));
            shape.push_back(to_size((size + padding - reach - 1) / c_.stride[i] + 1));
        }
        call_->require_shape("output", c_.output, shape);
        // ConvXdChecker in the source.
        call_->require((c_.input.count() && c_.weight.count()) || !c_.output.count(), "output",
                       "be empty if input or weight is empty", shape_text(c_.output.shape));
    }

    FirstPhase* call_;
    Convolution& c_;
};

int64_t product(const Sizes& sizes, size_t first) {
    int64_t result = 1;
    for (size_t i = first; i < sizes.size(); ++i) result *= sizes[i];
    return result;
}

// Splits a flat index into its coordinates in the dimensions from `first` on.
Sizes coordinates(int64_t index, const Sizes& shape, size_t first) {
    Sizes result(shape.size() - first);
    for (size_t i = shape.size(); i-- > first; index /= shape[i]) result[i - first] = index % shape[i];
    return result;
}

class ConvolutionRun {
public:
    explicit ConvolutionRun(const Convolution& convolution)
        : c_(convolution),
          image_(values_of<float>(c_.input)),
          kernel_size_(product(c_.weight.shape, 2)),
          input_size_(product(c_.input.shape, 2)),
          output_size_(product(c_.output.shape, 2)),
          group_inputs_(c_.input.shape[1] / c_.groups),
          group_outputs_(c_.output_channels() / c_.groups),
          weights_(weights_by_output()),
          sources_(source_positions()) {}

    void run() {
        std::vector<float> result(static_cast<size_t>(c_.output.count()));
        for (int64_t batch = 0; batch < c_.input.shape[0]; ++batch)
            for (int64_t group = 0; group < c_.groups; ++group) run_group(batch, group, result.data());
        if (c_.bias) {
            const std::vector<float> bias = values_of<float>(*c_.bias);
            for (size_t i = 0; i < result.size(); ++i)
                result[i] += bias[i / static_cast<size_t>(output_size_) % bias.size()];
        }
        if (c_.types.result != c_.output.dtype) round_to(c_.types.result, &result);
        set_values(c_.output, result);
    }

private:
    // The weight as [output channel][input channel of the group][position in the kernel].
    std::vector<float> weights_by_output() const {
        const std::vector<float> given = values_of<float>(c_.weight);
        if (!c_.is_transposed) return given;
        std::vector<float> result(given.size());
        for (int64_t channel = 0; channel < c_.input.shape[1]; ++channel)
            for (int64_t out = 0; out < group_outputs_; ++out) {
                const int64_t group = channel / group_inputs_, row = group * group_outputs_ + out;
                std::copy_n(given.data() + (channel * group_outputs_ + out) * kernel_size_, kernel_size_,
                            result.data() + (row * group_inputs_ + channel % group_inputs_) * kernel_size_);
            }
        return result;
    }

    // For each output position and each position in the kernel: the position in the image, or -1 for padding.
    std::vector<int64_t> source_positions() const {
        std::vector<int64_t> sources;
        sources.reserve(static_cast<size_t>(output_size_ * kernel_size_));
        for (int64_t position = 0; position < output_size_; ++position) {
            const Sizes at = coordinates(position, c_.output.shape, 2);
            for (int64_t tap = 0; tap < kernel_size_; ++tap)
                sources.push_back(source(at, coordinates(tap, c_.weight.shape, 2)));
        }
        return sources;
    }

    int64_t source(const Sizes& at, const Sizes& tap) const {
        int64_t index = 0;
        for (size_t i = 0; i < at.size(); ++i) {
            int64_t from = c_.is_transposed ? at[i] + c_.padding_before[i] - tap[i] * c_.dilation[i]
                                            : at[i] * c_.stride[i] - c_.padding_before[i] + tap[i] * c_.dilation[i];
            if (c_.is_transposed) {
                if (from % c_.stride[i]) return -1;
                from /= c_.stride[i];
            }
            if (from < 0 || from >= c_.input.shape[i + 2]) return -1;
            index = index * c_.input.shape[i + 2] + from;
        }
        return index;
    }

    void run_group(int64_t batch, int64_t group, float* result) const {
        constexpr int64_t kPositionsAtATime = 512;
        const int64_t length = group_inputs_ * kernel_size_;
        const float* image = image_.data() + (batch * c_.input.shape[1] + group * group_inputs_) * input_size_;
        float* out = result + (batch * c_.output_channels() + group * group_outputs_) * output_size_;
        Vectors rows{{}, length, 1, kFloat};
        for (int64_t i = 0; i < group_outputs_; ++i)
            rows.addresses.push_back(
                reinterpret_cast<const char*>(weights_.data() + (group * group_outputs_ + i) * length));
        for (int64_t first = 0; first < output_size_; first += kPositionsAtATime) {
            const int64_t count = std::min(kPositionsAtATime, output_size_ - first);
            std::vector<float> patches(static_cast<size_t>(count * length));
            Vectors columns{{}, length, 1, kFloat};
            for (int64_t j = 0; j < count; ++j) {
                float* patch = patches.data() + j * length;
                columns.addresses.push_back(reinterpret_cast<const char*>(patch));
                const int64_t* sources = sources_.data() + (first + j) * kernel_size_;
                for (int64_t channel = 0; channel < group_inputs_; ++channel)
                    for (int64_t tap = 0; tap < kernel_size_; ++tap)
                        *patch++ = sources[tap] < 0 ? 0 : image[channel * input_size_ + sources[tap]];
            }
            std::vector<float> products(static_cast<size_t>(group_outputs_ * count));
            multiply(rows, columns, c_.types.rounding, products.data());
            for (int64_t i = 0; i < group_outputs_; ++i)
                std::copy_n(products.data() + i * count, count, out + i * output_size_ + first);
        }
    }

    const Convolution& c_;
    const std::vector<float> image_;
    const int64_t kernel_size_, input_size_, output_size_, group_inputs_, group_outputs_;
    const std::vector<float> weights_;
    const std::vector<int64_t> sources_;
};

// Reads a list with one element for each dimension of the image.
Sizes spatial_list(FirstPhase* call, const char* name, const aclIntArray* array, size_t dims) {
    const Sizes values = call->integers(name, array);
    if (call->is_valid())
        call->require(values.size() == dims, name, "have " + std::to_string(dims) + " elements",
                      static_cast<int64_t>(values.size()));
    return values;
}

// Reads one padding for both sides of each dimension, or one for each side. A transposed convolution in one dimension,
// and each convolution in three dimensions, takes only the first form.
void read_padding(FirstPhase* call, const aclIntArray* array, Convolution* convolution) {
    const Sizes given = call->integers("padding", array);
    if (!call->is_valid()) return;
    const size_t dims = convolution->spatial_dims();
    const bool takes_sides = dims == 2 || (dims == 1 && !convolution->is_transposed);
    call->require(given.size() == dims || (takes_sides && given.size() == 2 * dims), "padding",
                  "have " + std::to_string(dims) + (takes_sides ? " or " + std::to_string(2 * dims) : "") + " elements",
                  static_cast<int64_t>(given.size()));
    if (!call->is_valid()) return;
    const bool has_sides = given.size() != dims;
    for (size_t i = 0; i < dims; ++i) {
        convolution->padding_before.push_back(given[has_sides ? 2 * i : i]);
        convolution->padding_after.push_back(given[has_sides ? 2 * i + 1 : i]);
    }
}

}  // namespace
}  // namespace simulated_cann

NPU_CANN_API aclError aclnnConvolutionGetWorkspaceSize(const aclTensor* input, const aclTensor* weight,
                                                       const aclTensor* bias, const aclIntArray* stride,
                                                       const aclIntArray* padding, const aclIntArray* dilation,
                                                       bool transposed, const aclIntArray* outputPadding,
                                                       const int64_t groups, aclTensor* output, int8_t cubeMathType,
                                                       uint64_t* bytes, aclOpExecutor** executor) {
    using namespace simulated_cann;
    FirstPhase call("aclnnConvolution");
    const TypesByChip types = with_bf16_except_310p(kHalfAndFloatTypes);
    Convolution c;
    ConvolutionCheck check(&call, &c);
    c.is_transposed = transposed;
    c.groups = groups;
    c.input = call.input("input", input, types, {3, 5});
    c.weight = call.input("weight", weight, types, {3, 5});
    c.bias = call.optional_input("bias", bias, types, {1, 1});
    c.output = call.output("output", output, types, {3, 5});
    check.check_format("input", input);
    check.check_format("weight", weight);
    check.check_format("output", output);
    check.check_bias_format(bias);
    const size_t dims = call.is_valid() ? c.spatial_dims() : 0;
    c.stride = spatial_list(&call, "stride", stride, dims);
    read_padding(&call, padding, &c);
    c.dilation = spatial_list(&call, "dilation", dilation, dims);
    if (transposed) c.output_padding = spatial_list(&call, "outputPadding", outputPadding, dims);
    if (call.is_valid()) check.run(cubeMathType);
    // The kernels convert the layout of their operands.
    if (call.is_valid())
        for (const Operand* operand : {&c.input, &c.weight, &c.output})
            call.ask_workspace(operand->count() * dtype_bytes(operand->dtype));
    auto body = [c] {
        if (c.output.count()) ConvolutionRun(c).run();
    };
    return call.finish(body, bytes, executor);
}
NPU_CANN_SECOND_PHASE(aclnnConvolution)
