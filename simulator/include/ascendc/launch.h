// Launches of a program's own kernels. `ascend-sim program` replaces kernel<<<blocks, l2ctrl, stream>>>(arguments) by
// launch("kernel", blocks, l2ctrl, stream, [](auto... a) { kernel(a...); }, arguments).
//
// Meaning: the kernel is queued on the stream, with copies of its arguments. Pointers point into device memory; on the
// cores they have other addresses. l2ctrl is reserved and ignored. Page: asc-devkit 核函数, 内核调用符.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "include/ascend_sim_cann.h"

namespace ascend_sim {

template <class F, class... A>
struct KernelCall {
    F kernel;
    std::tuple<A...> arguments;

    // Calls the kernel with the addresses in place of the pointers.
    template <size_t... I>
    void run(uint8_t* const* addresses, std::index_sequence<I...>) const {
        std::tuple<A...> on_core = arguments;
        const auto replace = [&](auto& argument) {
            using T = std::decay_t<decltype(argument)>;
            if constexpr (std::is_pointer_v<T>) argument = reinterpret_cast<T>(*addresses++);
        };
        (replace(std::get<I>(on_core)), ...);
        kernel(std::get<I>(on_core)...);
    }
    static void call(uint8_t* const* addresses, const void* context) {
        static_cast<const KernelCall*>(context)->run(addresses, std::index_sequence_for<A...>());
    }
    static void release(void* context) { delete static_cast<KernelCall*>(context); }
};

template <class L, class F, class... A>
int32_t launch(const char* name, int64_t blocks, const L&, void* stream, F kernel, A... arguments) {
    using Call = KernelCall<F, A...>;
    std::vector<void*> pointers;
    const auto note = [&](auto argument) {
        if constexpr (std::is_pointer_v<decltype(argument)>)
            pointers.push_back(const_cast<void*>(static_cast<const void*>(argument)));
    };
    (note(arguments), ...);
    ascend_sim_kernel launched{};
    launched.name = name;
    launched.arch = __CCE_AICORE__;
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
