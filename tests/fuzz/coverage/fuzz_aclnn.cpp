// Fuzz the simulated aclnn functions (simulator/cann/opapi/functions.def) with hostile tensors, lists, scalars and
// attributes. The bytes choose a function and its arguments. Half of the calls start from a valid one and change some
// of its arguments. The arguments of other calls resemble each other, so that some are accepted. Device memory is that
// of host calls (include/ascend_sim_cann.h): each tensor of a small extent has an allocation of exactly its extent, so
// that AddressSanitizer finds each access outside it.
//
// Properties of every call:
// - A phase that fails has a status and a message. A failed first phase writes nothing.
// - An accepted call whose tensors are small runs.
#include <dlfcn.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "aclnn/acl_meta.h"
#include "include/ascend_sim_cann.h"
#include "tests/fuzz/coverage/choices.h"

namespace {

// A call through a pointer of another type than the function's is on purpose. Only Clang has this check.
#ifdef __clang__
#define CALLS_ANY_TYPE __attribute__((no_sanitize("function")))
#else
#define CALLS_ANY_TYPE
#endif

constexpr int64_t kMostBytes = 1 << 12;       // of a tensor's allocation
constexpr int64_t kMostElements = 1 << 12;    // of a tensor of a call that runs
constexpr uint64_t kMostWorkspace = 1 << 20;  // bytes
constexpr size_t kMostRank = 10;

// A valid call, as valid_calls.py prints it. Its lists are constants, because vectors need minutes of compilation.
struct GivenTensor {
    int32_t type;
    std::initializer_list<int64_t> shape, strides;  // no strides: contiguous
    int32_t format;
};
struct GivenArgument {
    std::initializer_list<GivenTensor> tensors;
    std::initializer_list<double> numbers;
    int32_t type;  // of a scalar
    const char* text;
};
struct GivenCall {
    const char* function;
    std::initializer_list<GivenArgument> arguments;
};

struct Block {
    std::unique_ptr<char[]> memory;
    size_t bytes;
    std::vector<char> before;
};

// A call in the making: the shape and the type that its tensors share, and what it has allocated.
class Call {
public:
    // given: a valid call, or NULL.
    Call(Choices* choices, const char* name, const GivenCall* given) : c_(*choices), name_(name) {
        for (size_t k = 0; given && k < given->arguments.size(); ++k) {
            const std::initializer_list<GivenTensor>& tensors = given->arguments.begin()[k].tensors;
            if (tensors.size() == 0) continue;
            shape_ = tensors.begin()->shape;
            dtype_ = tensors.begin()->type;
            return;
        }
        const int64_t rank = c_.up_to(5);
        for (int64_t k = 0; k < rank; ++k) shape_.push_back(c_.one_of<int64_t>({2, 1, 3, 4, 8, 16, 32, 0}));
        dtype_ = c_.one_of<int32_t>({ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_INT32, ACL_INT64, ACL_INT8, ACL_BOOL,
                                     ACL_UINT8, ACL_DOUBLE, ACL_COMPLEX64, ACL_INT16, ACL_INT4});
    }
    ~Call() {
        for (const aclTensor* t : tensors_) aclDestroyTensor(t);
        for (const aclTensorList* t : tensor_lists_) aclDestroyTensorList(t);
        for (const aclScalar* s : scalars_) aclDestroyScalar(s);
        for (const aclScalarList* s : scalar_lists_) aclDestroyScalarList(s);
        for (const aclIntArray* a : int_arrays_) aclDestroyIntArray(a);
        for (const aclFloatArray* a : float_arrays_) aclDestroyFloatArray(a);
        for (const aclBoolArray* a : bool_arrays_) aclDestroyBoolArray(a);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // The bits of an argument of a parameter's type, such as "const aclTensor*". given: a valid argument, or NULL.
    uint64_t argument(const std::string& type, const GivenArgument* given) {
        given_ = given && !c_.chance(8) ? given : nullptr;
        if (given_ && given_->tensors.size() == 0 && given_->numbers.size() == 0 && !*given_->text) {
            if (type.find('*') != std::string::npos) return 0;
            given_ = nullptr;
        }
        if (type.find('*') != std::string::npos) {
            if (c_.chance(16)) return 0;
            if (has(type, "aclTensorList")) return bits(keep(&tensor_lists_, tensor_list()));
            if (has(type, "aclTensor")) return bits(keep(&tensors_, tensor()));
            if (has(type, "aclScalarList")) return bits(keep(&scalar_lists_, scalar_list()));
            if (has(type, "aclScalar")) return bits(keep(&scalars_, scalar()));
            if (has(type, "aclIntArray")) return bits(keep(&int_arrays_, int_array()));
            if (has(type, "aclFloatArray")) return bits(keep(&float_arrays_, float_array()));
            if (has(type, "aclBoolArray")) return bits(keep(&bool_arrays_, bool_array()));
            if (has(type, "char") && given_) return bits(given_->text);
            return has(type, "char") ? bits(text()) : 0;  // others are outputs of functions without a stand-in
        }
        if (has(type, "double")) return bits(real());
        if (has(type, "float")) return bits(static_cast<float>(real()));
        if (has(type, "bool")) return given_ ? integer() != 0 : c_.chance(2);
        if (has(type, "aclDataType")) return bits(given_ ? static_cast<int32_t>(integer()) : dtype());
        return bits(integer());
    }

    // The memory that the call may access.
    std::vector<ascend_sim_memory> memories() const {
        std::vector<ascend_sim_memory> all;
        for (const Block& block : blocks_) all.push_back({"", block.memory.get(), block.bytes, 0});
        return all;
    }
    bool is_small() const { return is_small_; }

    void remember() {
        for (Block& block : blocks_) block.before.assign(block.memory.get(), block.memory.get() + block.bytes);
    }
    bool has_changed() const {
        return std::any_of(blocks_.begin(), blocks_.end(), [](const Block& block) {
            return !std::equal(block.before.begin(), block.before.end(), block.memory.get());
        });
    }
    [[noreturn]] void fail(const char* property) const {
        std::fprintf(stderr, "broken: %s\naclnn%s\n", property, name_);
        for (const std::string& line : lines_) std::fprintf(stderr, "  %s\n", line.c_str());
        std::abort();
    }

private:
    static bool has(const std::string& type, const char* word) { return type.find(word) != std::string::npos; }
    template <class T>
    static uint64_t bits(T value) {
        uint64_t all = 0;
        std::memcpy(&all, &value, sizeof value);
        return all;
    }
    template <class T>
    static T* keep(std::vector<T*>* all, T* one) {
        if (one) all->push_back(one);
        return one;
    }

    int64_t hostile() {
        switch (c_.up_to(3)) {
            case 0:
                return c_.between(-8, 40);
            case 1:
                return (c_.chance(2) ? 1 : -1) * ((int64_t{1} << c_.up_to(62)) + c_.between(-2, 2));
            case 2:
                return c_.one_of<int64_t>({INT64_MAX, INT64_MIN, INT32_MAX, INT32_MIN});
            default:
                return static_cast<int64_t>(c_.bits(8));
        }
    }
    int64_t integer() {
        if (given_ && given_->numbers.size() > 0) return static_cast<int64_t>(*given_->numbers.begin());
        return c_.chance(8) ? hostile() : c_.between(-3, 8);
    }
    double real() {
        if (given_ && given_->numbers.size() > 0) return *given_->numbers.begin();
        if (!c_.chance(8)) return c_.one_of({1e-5, 1.0, 0.0, 0.5, 2.0, 10000.0, -1.0});
        if (c_.chance(2)) return c_.one_of({HUGE_VAL, -HUGE_VAL, std::nan(""), 1e300, 1e-320, -0.0});
        return std::ldexp(1.0, static_cast<int>(c_.between(-1074, 1023)));
    }
    int32_t dtype() {
        if (!c_.chance(4)) return dtype_;
        return static_cast<int32_t>(c_.chance(8) ? hostile() : c_.between(-1, 41));
    }
    char* text() {
        static char texts[][16] = {"",     "none", "half", "interleave", "quarter", "rotate_half", "BSH",
                                   "BNSD", "BSND", "TND",  "BNSD_BSND",  "SBH",     "static",      "dynamic",
                                   "sum",  "mean", "tanh", "rint",       "floor",   "left",        "bilinear",
                                   "ND",   "NTD",  "Norm", "PA_NZ",      "PA_BNSD"};
        return texts[c_.up_to(sizeof texts / sizeof *texts - 1)];
    }

    // The shape of the call, perhaps with fewer, more or other dimensions.
    std::vector<int64_t> shape() {
        std::vector<int64_t> shape = shape_;
        if (c_.chance(2)) {
            if (c_.chance(2)) shape.erase(shape.begin(), shape.begin() + c_.up_to(static_cast<int64_t>(shape.size())));
            if (c_.chance(3)) shape.resize(static_cast<size_t>(c_.up_to(static_cast<int64_t>(shape.size()))));
            for (int64_t k = c_.up_to(2); k > 0; --k)
                shape.insert(shape.begin() + c_.up_to(static_cast<int64_t>(shape.size())),
                             shape_.empty() || c_.chance(2)
                                 ? c_.up_to(17)
                                 : shape_[static_cast<size_t>(c_.up_to(static_cast<int64_t>(shape_.size()) - 1))]);
            if (!shape.empty() && c_.chance(3))
                shape[static_cast<size_t>(c_.up_to(static_cast<int64_t>(shape.size()) - 1))] = c_.up_to(17);
        }
        if (!shape.empty() && c_.chance(16))
            shape[static_cast<size_t>(c_.up_to(static_cast<int64_t>(shape.size()) - 1))] = hostile();
        if (c_.chance(64)) shape.resize(static_cast<size_t>(c_.up_to(kMostRank)), 1);
        return shape;
    }

    aclTensor* tensor() {
        return given_ && given_->tensors.size() > 0 ? tensor(*given_->tensors.begin()) : any_tensor();
    }
    // A tensor like this one, perhaps with another size, type, stride or format.
    aclTensor* tensor(const GivenTensor& given) {
        std::vector<int64_t> shape = given.shape, strides = given.strides;
        const size_t rank = shape.size();
        auto any = [&] { return static_cast<size_t>(c_.up_to(static_cast<int64_t>(rank) - 1)); };
        if (rank > 0 && c_.chance(16)) shape[any()] = c_.up_to(17);
        int64_t step = 1;
        if (strides.empty()) strides.resize(rank);
        for (size_t k = rank; k-- > 0 && given.strides.size() == 0; step *= std::max<int64_t>(shape[k], 1))
            strides[k] = step;
        if (rank > 0 && c_.chance(32)) strides[any()] = c_.one_of<int64_t>({0, 2, -1, 1, 64});
        const int32_t type = c_.chance(16) ? dtype() : given.type;
        const int32_t format = c_.chance(32) ? static_cast<int32_t>(c_.between(-1, 55)) : given.format;
        int64_t offset = 0;
        const auto [data, extent] = memory(shape, strides, type, &offset);
        describe(type, format, offset, true, shape, strides);
        return aclCreateTensor(shape.data(), rank, static_cast<aclDataType>(type), strides.data(), offset,
                               static_cast<aclFormat>(format), &extent, 1, data);
    }
    void describe(int32_t type, int32_t format, int64_t offset, bool has_strides, const std::vector<int64_t>& shape,
                  const std::vector<int64_t>& strides) {
        std::string line = "tensor of type " + std::to_string(type) + " format " + std::to_string(format) + " offset " +
                           std::to_string(offset) + (has_strides ? "" : " without strides");
        for (size_t k = 0; k < shape.size(); ++k)
            line += " " + std::to_string(shape[k]) + "*" + std::to_string(strides[k]);
        lines_.push_back(line);
    }
    aclTensor* any_tensor() {
        const std::vector<int64_t> shape = this->shape();
        const size_t rank = shape.size();
        std::vector<int64_t> strides(rank);
        uint64_t step = 1;
        for (size_t k = rank; k-- > 0;) {
            strides[k] = static_cast<int64_t>(step);
            step *= static_cast<uint64_t>(shape[k]);
        }
        if (rank > 1 && c_.chance(8)) std::swap(strides[0], strides[rank - 1]);
        if (rank > 0 && c_.chance(8)) {
            int64_t& stride = strides[static_cast<size_t>(c_.up_to(static_cast<int64_t>(rank) - 1))];
            stride = c_.one_of<int64_t>({0, 2, -1, 1, 64, hostile()});
        }
        const int32_t type = dtype();
        int64_t offset = c_.chance(8) ? (c_.chance(4) ? hostile() : c_.up_to(9)) : 0;
        const int32_t format = static_cast<int32_t>(c_.chance(16) ? c_.between(-1, 55) : int64_t{ACL_FORMAT_ND});
        const bool has_strides = !c_.chance(16);
        const auto [data, extent] = memory(shape, strides, type, &offset);
        std::vector<int64_t> storage{extent};
        if (c_.chance(4)) storage = shape;
        if (c_.chance(32)) storage.assign(1, hostile());
        describe(type, format, offset, has_strides, shape, strides);
        return aclCreateTensor(shape.data(), rank, static_cast<aclDataType>(type),
                               has_strides ? strides.data() : nullptr, offset, static_cast<aclFormat>(format),
                               storage.data(), storage.size(), data);
    }

    // Returns the address of a storage and its number of elements.
    std::pair<void*, int64_t> memory(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides,
                                     int32_t type, int64_t* offset) {
        __int128 low = 0, high = 0, count = 1;
        bool is_empty = false;
        for (size_t k = 0; k < shape.size(); ++k) {
            is_empty = is_empty || shape[k] == 0;
            (strides[k] < 0 ? low : high) += (static_cast<__int128>(shape[k]) - 1) * strides[k];
            if (shape[k] < 0 || low < -kMostBytes || high > kMostBytes || count > kMostElements) {
                is_small_ = false;
                low = high = 0, count = 1;
                break;
            }
            count *= shape[k];
        }
        if (count > kMostElements) is_small_ = false;
        if (c_.chance(32)) return {reinterpret_cast<void*>(uintptr_t{64}), 1};  // not device memory
        const int64_t item = type == ACL_COMPLEX128 ? 16
                             : type == ACL_DOUBLE || type == ACL_INT64 || type == ACL_UINT64 || type == ACL_COMPLEX64
                                 ? 8
                             : type == ACL_FLOAT || type == ACL_INT32 || type == ACL_UINT32                  ? 4
                             : type == ACL_INT8 || type == ACL_UINT8 || type == ACL_BOOL || type == ACL_INT4 ? 1
                                                                                                             : 2;
        if (*offset >= 0 && *offset < 16 && low < 0) *offset -= static_cast<int64_t>(low);
        const int64_t elements =
            is_empty ? 0 : static_cast<int64_t>(high - low + 1) + (*offset > 0 && *offset < 16 ? *offset : 0);
        const auto bytes = static_cast<size_t>(elements * item);
        if (!blocks_.empty() && c_.chance(8)) {  // memory of another tensor
            const Block& block = blocks_[static_cast<size_t>(c_.up_to(static_cast<int64_t>(blocks_.size()) - 1))];
            return {block.memory.get(), elements};
        }
        Block block{std::make_unique<char[]>(bytes), bytes, {}};
        const bool counts = c_.chance(2);
        for (size_t k = 0; k < bytes; ++k) {
            const size_t index = k / static_cast<size_t>(item);
            block.memory[k] =
                static_cast<char>(counts ? (k % static_cast<size_t>(item) == 0 ? index : 0) : index * 37 + k);
        }
        if (!counts && c_.chance(2)) std::fill_n(block.memory.get(), bytes, static_cast<char>(c_.bits(1)));
        blocks_.push_back(std::move(block));
        return {blocks_.back().memory.get(), elements};
    }

    aclTensorList* tensor_list() {
        std::vector<const aclTensor*> all;
        if (given_) {
            for (const GivenTensor& one : given_->tensors) all.push_back(tensor(one));
            return aclCreateTensorList(all.data(), all.size());
        }
        for (int64_t k = c_.up_to(3); k > 0; --k) all.push_back(c_.chance(16) ? nullptr : tensor());
        return aclCreateTensorList(all.data(), all.size());
    }
    aclScalar* scalar() {
        double values[2] = {real(), real()};
        const float narrow = static_cast<float>(values[0]);
        const int64_t whole = integer();
        const int32_t type = given_ && given_->type >= 0 ? given_->type : dtype();
        if (type == ACL_FLOAT) std::memcpy(values, &narrow, sizeof narrow);
        if (type != ACL_FLOAT && type != ACL_DOUBLE) std::memcpy(values, &whole, sizeof whole);
        if (type == ACL_BOOL) *reinterpret_cast<char*>(values) &= 1;
        return aclCreateScalar(values, static_cast<aclDataType>(type));
    }
    aclScalarList* scalar_list() {
        std::vector<const aclScalar*> all;
        for (int64_t k = c_.up_to(3); k > 0; --k)
            if (aclScalar* one = scalar()) all.push_back(one);
        return aclCreateScalarList(all.data(), all.size());
    }
    aclIntArray* int_array() {
        std::vector<int64_t> all;
        if (given_) {
            for (double number : given_->numbers) all.push_back(static_cast<int64_t>(number));
            if (!all.empty() && c_.chance(8))
                all[static_cast<size_t>(c_.up_to(static_cast<int64_t>(all.size()) - 1))] = c_.between(-3, 8);
            return aclCreateIntArray(all.data(), all.size());
        }
        for (int64_t k = c_.up_to(5); k > 0; --k) all.push_back(integer());
        if (c_.chance(4)) all = shape_;
        return aclCreateIntArray(all.data(), all.size());
    }
    aclFloatArray* float_array() {
        std::vector<float> all;
        if (given_) {
            for (double number : given_->numbers) all.push_back(static_cast<float>(number));
            return aclCreateFloatArray(all.data(), all.size());
        }
        for (int64_t k = c_.up_to(4); k > 0; --k) all.push_back(static_cast<float>(real()));
        return aclCreateFloatArray(all.data(), all.size());
    }
    aclBoolArray* bool_array() {
        bool all[5];
        const int64_t count = c_.up_to(5);
        for (int64_t k = 0; k < count; ++k) all[k] = c_.chance(2);
        return aclCreateBoolArray(all, static_cast<uint64_t>(count));
    }

    Choices& c_;
    const char* name_;
    const GivenArgument* given_ = nullptr;  // a valid argument in place of the one that is made
    std::vector<int64_t> shape_;
    int32_t dtype_ = 0;
    bool is_small_ = true;
    std::vector<Block> blocks_;
    std::vector<std::string> lines_;
    std::vector<aclTensor*> tensors_;
    std::vector<aclTensorList*> tensor_lists_;
    std::vector<aclScalar*> scalars_;
    std::vector<aclScalarList*> scalar_lists_;
    std::vector<aclIntArray*> int_arrays_;
    std::vector<aclFloatArray*> float_arrays_;
    std::vector<aclBoolArray*> bool_arrays_;
};

// A chip and memory for the calls of this thread.
class HostCalls {
public:
    explicit HostCalls(const char* chip) : calls_{chip, "no package", 40, nullptr, 0, &options_, 0} {}
    // Runs a phase and returns the message of its failure, or "".
    template <class Phase>
    std::string run(std::vector<ascend_sim_memory> memories, Phase phase) {
        calls_.memories = memories.data();
        calls_.memory_count = static_cast<int32_t>(memories.size());
        ascend_sim_begin_host_calls(&calls_);
        phase();
        return ascend_sim_end_host_calls();
    }

private:
    ascend_sim_launch options_{};
    ascend_sim_host_calls calls_;
};

#define REQUIRE(call, condition) ((condition) ? void() : (call).fail(#condition))

void* symbol(const std::string& name) {
    void* found = dlsym(RTLD_DEFAULT, name.c_str());
    if (found) return found;
    std::fprintf(stderr, "%s\n", dlerror());
    std::abort();
}

struct Function {
    std::string name;
    std::vector<std::string> types;  // of the parameters, without workspaceSize and executor
};

// Calls a first phase. The ABIs of Linux on x86_64 and aarch64 pass floating-point arguments in registers of their own,
// and the others in registers and then on the stack, both in order. So the call is the same as one with the arguments
// in the order of the declaration. (A call through each declaration would instantiate a thousand templates.)
constexpr size_t kMostWords = 64, kMostReals = 8;
template <size_t... kWord, size_t... kReal>
CALLS_ANY_TYPE int call_with(void* function, const uint64_t* words, const double* reals, std::index_sequence<kWord...>,
                             std::index_sequence<kReal...>) {
    return reinterpret_cast<int (*)(std::decay_t<decltype(words[kWord])>..., std::decay_t<decltype(reals[kReal])>...)>(
        function)(words[kWord]..., reals[kReal]...);
}

int first_phase(const Function& function, const std::vector<uint64_t>& arguments, uint64_t* workspace,
                aclOpExecutor** executor) {
    uint64_t words[kMostWords] = {};
    double reals[kMostReals] = {};
    size_t word_count = 0, real_count = 0;
    for (size_t k = 0; k < arguments.size(); ++k) {
        const std::string& type = function.types[k];
        const bool is_real = type.find('*') == std::string::npos &&
                             (type.find("double") != std::string::npos || type.find("float") != std::string::npos);
        if (word_count + 2 == kMostWords || real_count == kMostReals) std::abort();
        if (is_real)
            std::memcpy(&reals[real_count++], &arguments[k], sizeof arguments[k]);
        else
            words[word_count++] = arguments[k];
    }
    words[word_count++] = reinterpret_cast<uintptr_t>(workspace);
    words[word_count++] = reinterpret_cast<uintptr_t>(executor);
    return call_with(symbol("aclnn" + function.name + "GetWorkspaceSize"), words, reals,
                     std::make_index_sequence<kMostWords>(), std::make_index_sequence<kMostReals>());
}

CALLS_ANY_TYPE int second_phase(const Function& function, void* workspace, uint64_t bytes, aclOpExecutor* executor) {
    return reinterpret_cast<int (*)(void*, uint64_t, aclOpExecutor*, aclrtStream)>(symbol("aclnn" + function.name))(
        workspace, bytes, executor, nullptr);
}

// given: a valid call of the function, or NULL.
void fuzz(Choices* c, const Function& function, const GivenCall* given) {
    HostCalls calls(c->one_of({"Ascend910B2", "Ascend310P3", "Ascend950PR_9589"}));
    Call call(c, function.name.c_str(), given);
    std::vector<uint64_t> arguments;
    for (size_t k = 0; k < function.types.size(); ++k)
        arguments.push_back(call.argument(function.types[k], given ? given->arguments.begin() + k : nullptr));
    call.remember();
    uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    int status = 0;
    const std::string refusal =
        calls.run(call.memories(), [&] { status = first_phase(function, arguments, &bytes, &executor); });
    REQUIRE(call, (status == 0) == refusal.empty());
    REQUIRE(call, status == 0 || !call.has_changed());
    if (status != 0 || !executor) return;
    if (!call.is_small() || bytes > kMostWorkspace) {
        aclDestroyAclOpExecutor(executor);
        return;
    }
    std::vector<char> workspace(bytes);
    std::vector<ascend_sim_memory> memories = call.memories();
    memories.push_back({"", workspace.data(), bytes, 0});
    const std::string failure = calls.run(
        memories, [&] { status = second_phase(function, bytes ? workspace.data() : nullptr, bytes, executor); });
    REQUIRE(call, (status == 0) == failure.empty());
}

// Splits "(const aclTensor* self, aclTensor* out)" into the types of the parameters.
std::vector<std::string> types_of(const std::string& parameters) {
    std::vector<std::string> types;
    const std::string inside = parameters.substr(1, parameters.size() - 2);
    for (size_t begin = 0; begin < inside.size();) {
        const size_t end = std::min(inside.find(", ", begin), inside.size());
        const std::string parameter = inside.substr(begin, end - begin);
        types.push_back(parameter.substr(0, parameter.rfind(' ')));
        begin = end + 2;
    }
    return types;
}

// The functions that have a stand-in. The others fail with the same message for any arguments, also for zeros.
std::vector<Function> simulated_functions() {
    std::vector<Function> found;
    for (const auto& [name, parameters] : std::initializer_list<std::pair<const char*, const char*>>{
#define ACLNN(header, name, parameters) {#name, #parameters},
#define ACLNN_PLAIN(header, name, parameters)
#include "cann/opapi/functions.def"
         }) {
        const Function function{name, types_of(parameters)};
        HostCalls calls("Ascend910B2");
        uint64_t bytes = 0;
        aclOpExecutor* executor = nullptr;
        const std::vector<uint64_t> zeros(function.types.size());
        const std::string text = calls.run({}, [&] { first_phase(function, zeros, &bytes, &executor); });
        if (executor) aclDestroyAclOpExecutor(executor);
        if (text.find("is not simulated") == std::string::npos) found.push_back(function);
    }
    return found;
}

constexpr std::initializer_list<GivenCall> kValidCalls = {
#include "valid_calls.inc"
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
    static const std::vector<Function> functions = simulated_functions();
    Choices c(bytes, count);
    if (c.chance(2)) {
        const GivenCall& given = kValidCalls.begin()[c.up_to(static_cast<int64_t>(kValidCalls.size()) - 1)];
        for (const Function& function : functions)
            if (function.name == given.function) return fuzz(&c, function, &given), 0;
        return 0;
    }
    fuzz(&c, functions[static_cast<size_t>(c.up_to(static_cast<int64_t>(functions.size()) - 1))], nullptr);
    return 0;
}
