// Vector clocks. They represent the happened-before relation that streams, events and waits guarantee.
#pragma once

#include <cstdint>
#include <vector>

namespace simulated_cann {

// A clock has one entry for each actor: the host is actor 0, each stream has its own number. The entry is the number of
// the actor's last step that is known to have happened before.
class Clock {
public:
    uint64_t at(size_t actor) const { return actor < steps_.size() ? steps_[actor] : 0; }
    // Adds one step of the actor and returns its number.
    uint64_t advance(size_t actor) {
        if (actor >= steps_.size()) steps_.resize(actor + 1, 0);
        return ++steps_[actor];
    }
    // Adds the steps that the other clock contains.
    void join(const Clock& other) {
        if (other.steps_.size() > steps_.size()) steps_.resize(other.steps_.size(), 0);
        for (size_t i = 0; i < other.steps_.size(); ++i)
            if (other.steps_[i] > steps_[i]) steps_[i] = other.steps_[i];
    }
    // Removes the steps that the other clock does not contain.
    void meet(const Clock& other) {
        for (size_t i = 0; i < steps_.size(); ++i)
            if (other.at(i) < steps_[i]) steps_[i] = other.at(i);
    }
    bool contains(const Clock& other) const {
        for (size_t i = 0; i < other.steps_.size(); ++i)
            if (other.steps_[i] > at(i)) return false;
        return true;
    }

private:
    std::vector<uint64_t> steps_;
};

constexpr size_t kHost = 0;

}  // namespace simulated_cann
