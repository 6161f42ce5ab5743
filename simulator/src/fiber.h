// A call on a stack of its own, which can stop in the middle and continue later on the same thread. A core runs on a
// fiber, because it may wait for other cores inside nested calls of its kernel.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace ascend_sim {

class Fiber {
public:
    explicit Fiber(std::function<void()> body);
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;
    ~Fiber();  // the body must have returned, or not have begun

    // Runs the body until it returns or pauses. The body must not throw.
    void resume();
    // Returns to the caller of resume(); called by the body.
    void pause();
    bool has_ended() const;

private:
    struct Parts;
    static void enter(unsigned high, unsigned low);
    std::unique_ptr<Parts> parts_;
};

}  // namespace ascend_sim
