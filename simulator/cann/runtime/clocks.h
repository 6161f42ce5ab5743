// Vector clocks: the happened-before relation that streams, events and waits guarantee.
#pragma once

#include <cstdint>
#include <vector>

namespace simulated_cann {

// One entry per actor: the host is actor 0, each stream has its own number. An entry is the number of the actor's
// last step that is known to have happened before.
class Clock {
public:
    uint64_t at(size_t actor) const { return actor < steps_.size() ? steps_[actor] : 0; }
    uint64_t advance(size_t actor) {
        if (actor >= steps_.size()) steps_.resize(actor + 1, 0);
        return ++steps_[actor];
    }
    void join(const Clock& other) {
        if (other.steps_.size() > steps_.size()) steps_.resize(other.steps_.size(), 0);
        for (size_t i = 0; i < other.steps_.size(); ++i)
            if (other.steps_[i] > steps_[i]) steps_[i] = other.steps_[i];
    }

private:
    std::vector<uint64_t> steps_;
};

constexpr size_t kHost = 0;

}  // namespace simulated_cann
