#include "cann/opapi/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cann/opapi/cube.h"

namespace simulated_cann {
namespace {

constexpr int64_t kRowsAtATime = 128, kKeysAtATime = 512;
constexpr float kHidden = std::numeric_limits<float>::lowest();  // score of a key that the mask hides
constexpr float kInfinity = std::numeric_limits<float>::infinity();

const char* element(const Operand& operand, int64_t batch, int64_t head, int64_t token) {
    return operand.first + (batch * operand.strides[0] + head * operand.strides[1] + token * operand.strides[2]) *
                               dtype_bytes(operand.dtype);
}

// Queries of the heads that share one head of keys and values.
class HeadGroup {
public:
    HeadGroup(const Attention& attention, int64_t batch, int64_t key_head)
        : attention_(attention),
          batch_(batch),
          key_head_(key_head),
          heads_(attention.query.shape[1] / attention.key.shape[1]),
          tokens_(attention.query_lengths[static_cast<size_t>(batch)]),
          keys_(attention.key_lengths[static_cast<size_t>(batch)]),
          band_(attention.bands[static_cast<size_t>(batch)]),
          head_size_(attention.query.shape[3]),
          value_size_(attention.value.shape[3]) {}

    void run() const {
        for (int64_t first = 0; first < heads_ * tokens_; first += kRowsAtATime)
            run_rows(first, std::min(kRowsAtATime, heads_ * tokens_ - first));
    }

private:
    struct Rows {
        int64_t first = 0, count = 0;
        Vectors queries;
        std::vector<float> sums, maxima, products;
        std::vector<char> sees_key;
    };

    int64_t head_of(int64_t row) const { return key_head_ * heads_ + row / tokens_; }
    int64_t token_of(int64_t row) const { return row % tokens_; }

    void run_rows(int64_t first, int64_t count) const {
        const auto size = static_cast<size_t>(count);
        Rows rows{first,
                  count,
                  {{}, head_size_, attention_.query.strides[3], attention_.query.dtype},
                  std::vector<float>(size),
                  std::vector<float>(size, -kInfinity),
                  std::vector<float>(size * static_cast<size_t>(value_size_)),
                  std::vector<char>(size)};
        for (int64_t i = 0; i < count; ++i)
            rows.queries.addresses.push_back(
                element(attention_.query, batch_, head_of(first + i), token_of(first + i)));
        for (int64_t key = 0; key < keys_; key += kKeysAtATime)
            add_keys(&rows, key, std::min(kKeysAtATime, keys_ - key));
        store_rows(rows);
    }

    void add_keys(Rows* rows, int64_t first_key, int64_t count) const {
        Vectors keys{{}, head_size_, attention_.key.strides[3], attention_.key.dtype};
        for (int64_t j = 0; j < count; ++j)
            keys.addresses.push_back(element(attention_.key, batch_, key_head_, first_key + j));
        std::vector<float> scores(static_cast<size_t>(rows->count * count));
        multiply(rows->queries, keys, CubeRounding::kNone, scores.data());
        for (float& score : scores) score *= attention_.scale;
        if (attention_.is_high_performance) round_to(kFloat16, &scores);
        for (int64_t i = 0; i < rows->count; ++i) {
            finish_scores(rows, i, first_key, count, scores.data() + i * count);
            exponentiate(rows, i, count, scores.data() + i * count);
        }
        add_values(rows, scores, first_key, count);
    }

    // Adds pse and hides keys.
    void finish_scores(Rows* rows, int64_t i, int64_t first_key, int64_t count, float* scores) const {
        const int64_t row = rows->first + i, token = token_of(row);
        if (attention_.pse) {
            const Operand& pse = *attention_.pse;
            float shifts[kKeysAtATime];
            load(pse.dtype,
                 element(pse, pse.shape[0] == 1 ? 0 : batch_, head_of(row), token) +
                     first_key * pse.strides[3] * dtype_bytes(pse.dtype),
                 pse.strides[3], count, shifts);
            for (int64_t j = 0; j < count; ++j) scores[j] += shifts[j];
        }
        const char* hides = nullptr;
        if (attention_.mask) {
            const Operand& mask = *attention_.mask;
            hides = mask.first + (mask.shape[0] == 1 ? 0 : batch_) * mask.strides[0] + token * mask.strides[1] +
                    first_key * mask.strides[2];
        }
        bool sees_key = false;
        for (int64_t j = 0; j < count; ++j) {
            const int64_t distance = first_key + j - token;
            const bool is_hidden =
                distance < band_.first || distance > band_.last || (hides && hides[j * attention_.mask->strides[2]]);
            if (is_hidden) scores[j] = kHidden;
            sees_key = sees_key || !is_hidden;
        }
        if (sees_key) rows->sees_key[static_cast<size_t>(i)] = 1;
    }

    // Replaces each score of a row by exp(score - maximum), and scales the row's earlier sums to the new maximum.
    void exponentiate(Rows* rows, int64_t i, int64_t count, float* scores) const {
        const auto at = static_cast<size_t>(i);
        float maximum = rows->maxima[at];
        for (int64_t j = 0; j < count; ++j) maximum = std::max(maximum, scores[j]);
        // Keys whose pse is -infinity have no weight. If no key has a weight, the result is NaN.
        const bool has_weight = maximum != -kInfinity;
        float sum = 0;
        for (int64_t j = 0; j < count; ++j) sum += scores[j] = has_weight ? std::exp(scores[j] - maximum) : 0;
        const float rescale = has_weight ? std::exp(rows->maxima[at] - maximum) : 1;
        rows->sums[at] = rows->sums[at] * rescale + sum;
        rows->maxima[at] = maximum;
        float* products = rows->products.data() + i * value_size_;
        for (int64_t d = 0; d < value_size_; ++d) products[d] *= rescale;
    }

    void add_values(Rows* rows, const std::vector<float>& weights, int64_t first_key, int64_t count) const {
        const Operand& value = attention_.value;
        Vectors lines{{}, count, 1, kFloat}, columns{{}, count, value.strides[2], value.dtype};
        for (int64_t i = 0; i < rows->count; ++i)
            lines.addresses.push_back(reinterpret_cast<const char*>(weights.data() + i * count));
        const char* first = element(value, batch_, key_head_, first_key);
        for (int64_t d = 0; d < value_size_; ++d)
            columns.addresses.push_back(first + d * value.strides[3] * dtype_bytes(value.dtype));
        std::vector<float> products(rows->products.size());
        multiply(lines, columns, value.dtype == kBfloat16 ? CubeRounding::kBfloat16 : CubeRounding::kFloat16,
                 products.data());
        for (size_t i = 0; i < products.size(); ++i) rows->products[i] += products[i];
    }

    void store_rows(const Rows& rows) const {
        for (int64_t i = 0; i < rows.count; ++i) {
            const auto at = static_cast<size_t>(i);
            const int64_t head = head_of(rows.first + i), token = token_of(rows.first + i);
            const int64_t last_band_key = token + band_.last, first_band_key = token + band_.first;
            const bool has_key_in_band = last_band_key >= 0 && first_band_key < keys_;
            const bool is_zero = !rows.sees_key[at] && (attention_.zeroes_blind_queries || !has_key_in_band);
            std::vector<float> result(static_cast<size_t>(value_size_));
            for (int64_t d = 0; d < value_size_ && !is_zero; ++d)
                result[static_cast<size_t>(d)] =
                    rows.products[static_cast<size_t>(i * value_size_ + d)] / rows.sums[at];
            store(attention_.out.dtype, const_cast<char*>(element(attention_.out, batch_, head, token)),
                  attention_.out.strides[3], value_size_, result.data());
            if (!attention_.lse) continue;
            const float lse = is_zero ? kInfinity : std::log(rows.sums[at]) + rows.maxima[at];
            store_one(kFloat, const_cast<char*>(element(*attention_.lse, batch_, head, token)), lse);
        }
    }

    const Attention& attention_;
    const int64_t batch_, key_head_, heads_, tokens_, keys_;
    const AttentionBand band_;
    const int64_t head_size_, value_size_;
};

}  // namespace

void run_attention(const Attention& attention) {
    set_values(attention.out, std::vector<float>(static_cast<size_t>(attention.out.count())));
    if (attention.lse)
        set_values(*attention.lse, std::vector<float>(static_cast<size_t>(attention.lse->count()), kInfinity));
    for (int64_t batch = 0; batch < attention.query.shape[0]; ++batch)
        for (int64_t head = 0; head < attention.key.shape[1]; ++head) HeadGroup(attention, batch, head).run();
}

}  // namespace simulated_cann
