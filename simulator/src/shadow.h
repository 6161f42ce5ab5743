// A map from every byte of UB to a 32-bit word with the number of an instruction. One map has the instruction that last
// wrote the byte, the others have the instruction of a pipe that last read it. CoreMemory (core.h) defines the word's
// bits. Nearly every access covers whole 32-byte blocks. Therefore a block whose bytes share one word stores it once.
// The first access to a part of the block gives it a word for each byte.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "src/stretches.h"

namespace ascend_sim {

class Shadow {
public:
    void reset(uint32_t bytes) {
        block_words_.assign(bytes / kBlock, 0);
        mixed_.assign(bytes / kBlock, 0);
        byte_words_.reset(new uint32_t[bytes]);
    }

    void fill(uint32_t begin, uint32_t end, uint32_t word) {
        const uint32_t first = (begin + kBlock - 1) / kBlock, last = end / kBlock;
        if (first > last || begin % kBlock) fill_part(begin, std::min(end, first * kBlock), word);
        if (first < last) {
            std::fill(block_words_.begin() + first, block_words_.begin() + last, word);
            std::fill(mixed_.begin() + first, mixed_.begin() + last, uint8_t(0));
        }
        if (end % kBlock && last >= first) fill_part(std::max(begin, last * kBlock), end, word);
    }

    // Calls f(begin, end, word) for stretches of bytes with one word; may split a long stretch.
    template <class F>
    void for_each(uint32_t begin, uint32_t end, F f) const {
        for (uint32_t at = begin; at < end;) {
            const uint32_t block = at / kBlock;
            if (mixed_[block]) {
                const uint32_t stop = std::min(end, (block + 1) * kBlock);
                for_each_stretch(byte_words_.get(), at, stop,
                                 [&](uint64_t b, uint64_t e, uint32_t word) { f(uint32_t(b), uint32_t(e), word); });
                at = stop;
                continue;
            }
            const uint32_t word = block_words_[block], end_block = (end + kBlock - 1) / kBlock;
            uint32_t next = block + 1;
            while (next < end_block && block_words_[next] == word && !mixed_[next]) ++next;
            const uint32_t stop = std::min(end, next * kBlock);
            f(at, stop, word);
            at = stop;
        }
    }

private:
    static constexpr uint32_t kBlock = 32;

    // [begin, end) lies inside one block.
    void fill_part(uint32_t begin, uint32_t end, uint32_t word) {
        if (begin >= end) return;
        const uint32_t block = begin / kBlock;
        if (!mixed_[block]) {
            if (block_words_[block] == word) return;
            std::fill_n(byte_words_.get() + block * kBlock, kBlock, block_words_[block]);
            mixed_[block] = 1;
        }
        std::fill(byte_words_.get() + begin, byte_words_.get() + end, word);
    }

    std::vector<uint32_t> block_words_;  // of each block whose bytes share one word
    // Of each byte in the other blocks. It is not initialized: a launch uses few of its pages, and each costs time.
    std::unique_ptr<uint32_t[]> byte_words_;
    std::vector<uint8_t> mixed_;  // for each block: 1 if its bytes have words of their own
};

}  // namespace ascend_sim
