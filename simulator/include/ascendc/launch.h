// Launches of a program's own kernels. `ascend-sim program` replaces kernel<<<blocks, l2ctrl, stream>>>(arguments) by
// launch("kernel", blocks, l2ctrl, stream, [](auto... a) { kernel(a...); }, arguments).
//
// Meaning: the kernel is queued on the stream, with copies of its arguments. A pointer into device memory is replaced
// by the address that the memory has on the cores. l2ctrl is reserved and ignored.
// Source: asc-devkit, the pages 核函数 and 内核调用符.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "include/ascend_sim_cann.h"

namespace ascend_sim {

// A kernel and its arguments, until the launch.
template <class F, class... Arguments>
struct KernelCall {
    F kernel;
    std::tuple<Arguments...> arguments;

    // Calls the kernel with the addresses in place of the pointers.
    template <size_t... I>
    void run(uint8_t* const* addresses, std::index_sequence<I...>) const {
        std::tuple<Arguments...> core_arguments = arguments;
        const auto replace = [&](auto& argument) {
            using T = std::decay_t<decltype(argument)>;
            if constexpr (std::is_pointer_v<T>) argument = reinterpret_cast<T>(*addresses++);
        };
        (replace(std::get<I>(core_arguments)), ...);
        kernel(std::get<I>(core_arguments)...);
    }
    static void call(uint8_t* const* addresses, const void* context) {
        static_cast<const KernelCall*>(context)->run(addresses, std::index_sequence_for<Arguments...>());
    }
    static void release(void* context) { delete static_cast<KernelCall*>(context); }
};

template <class L2Control, class F, class... Arguments>
int32_t launch(const char* name, int64_t blocks, const L2Control&, void* stream, F kernel, Arguments... arguments) {
    using Call = KernelCall<F, Arguments...>;
    std::vector<void*> pointers;
    const auto add_pointer = [&](auto argument) {
        if constexpr (std::is_pointer_v<decltype(argument)>)
            pointers.push_back(const_cast<void*>(static_cast<const void*>(argument)));
    };
    (add_pointer(arguments), ...);
    ascend_sim_kernel launched{};
    launched.name = name;
    launched.arch = __CCE_AICORE__;
    launched.auto_sync = ASCEND_SIM_AUTO_SYNC;
    launched.blocks = blocks;
    launched.stream = stream;
    launched.call = &Call::call;
    launched.context = new Call{kernel, {arguments...}};
    launched.release = &Call::release;
    launched.pointers = pointers.data();
    launched.pointer_count = int32_t(pointers.size());
    return ascend_sim_launch_kernel(&launched);
}

}  // namespace ascend_sim
