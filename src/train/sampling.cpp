#include "train/sampling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/half.h"

namespace tracestep {
namespace {

template <class T>
void widen(std::span<const std::byte> bytes, std::vector<float>& out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T x;
    std::memcpy(&x, bytes.data() + i * sizeof(T), sizeof(T));
    if constexpr (std::is_floating_point_v<T>) {
      out[i] = static_cast<float>(x);
    } else {
      out[i] = to_float(x);
    }
  }
}

// The number of separate sums, which lets a compiler use vector instructions.
constexpr std::size_t kLanes = 16;

// True if all values are finite: 0 · x is 0 for a finite x, and NaN otherwise.
bool is_finite(std::span<const float> x) {
  std::array<float, kLanes> zeros{};
  std::size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) zeros[lane] += 0.0f * x[i + lane];
  }
  for (; i < x.size(); ++i) zeros[0] += 0.0f * x[i];
  return std::ranges::all_of(zeros, [](float zero) { return zero == 0.0f; });
}

float largest_of(std::span<const float> x) {
  std::array<float, kLanes> best;
  best.fill(x[0]);
  std::size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      best[lane] = x[i + lane] > best[lane] ? x[i + lane] : best[lane];
    }
  }
  float out = *std::ranges::max_element(best);
  for (; i < x.size(); ++i) out = std::max(out, x[i]);
  return out;
}

// Hands out tokens, the most likely first.
class MostLikely {
 public:
  explicit MostLikely(std::span<const double> weights) : is_later_{weights}, heap_(weights.size()) {
    std::iota(heap_.begin(), heap_.end(), 0);
    std::ranges::make_heap(heap_, is_later_);
  }

  std::int64_t next() {
    std::ranges::pop_heap(heap_, is_later_);
    const std::int64_t out = heap_.back();
    heap_.pop_back();
    return out;
  }

 private:
  struct IsLater {
    std::span<const double> weights;

    bool operator()(std::int64_t a, std::int64_t b) const {
      const double x = weights[static_cast<std::size_t>(a)];
      const double y = weights[static_cast<std::size_t>(b)];
      return x != y ? x < y : a > b;
    }
  };

  IsLater is_later_;
  std::vector<std::int64_t> heap_;
};

struct Candidates {
  std::vector<std::int64_t> tokens;
  double total = 0.0;  // of their weights
};

Candidates candidates(std::span<const double> weights, const Sampling& how) {
  Candidates out;
  const bool has_k = how.top_k > 0 && static_cast<std::size_t>(how.top_k) < weights.size();
  if (!has_k && how.top_p >= 1.0) {
    out.tokens.resize(weights.size());
    std::iota(out.tokens.begin(), out.tokens.end(), 0);
    out.total = std::reduce(weights.begin(), weights.end());
    return out;
  }
  const std::size_t most = has_k ? static_cast<std::size_t>(how.top_k) : weights.size();
  MostLikely order(weights);
  double all = has_k ? 0.0 : std::reduce(weights.begin(), weights.end());
  if (has_k) {
    for (std::size_t i = 0; i < most; ++i) {
      out.tokens.push_back(order.next());
      all += weights[static_cast<std::size_t>(out.tokens.back())];
    }
  }
  std::size_t count = 0;
  while (count < most && (count == 0 || out.total < how.top_p * all)) {
    if (count == out.tokens.size()) out.tokens.push_back(order.next());
    out.total += weights[static_cast<std::size_t>(out.tokens[count++])];
  }
  out.tokens.resize(count);
  return out;
}

}  // namespace

bool read_logits(const TensorView& logits, std::vector<float>& out) {
  out.resize(static_cast<std::size_t>(logits.count()));
  switch (logits.dtype) {
    case DType::kBF16: widen<BF16>(logits.bytes, out); break;
    case DType::kF16: widen<F16>(logits.bytes, out); break;
    case DType::kF64: widen<double>(logits.bytes, out); break;
    default: widen<float>(logits.bytes, out); break;
  }
  return is_finite(out);
}

std::int64_t sample(std::span<const float> logits, const Sampling& how, double uniform) {
  const float top = largest_of(logits);
  if (how.temperature == 0.0) return std::ranges::find(logits, top) - logits.begin();
  std::vector<double> weights(logits.size());
  std::ranges::transform(logits, weights.begin(), [&](float logit) {
    return std::exp((static_cast<double>(logit) - top) / how.temperature);
  });
  const Candidates from = candidates(weights, how);
  double at = uniform * from.total;
  for (const std::int64_t token : from.tokens) {
    at -= weights[static_cast<std::size_t>(token)];
    if (at < 0.0) return token;
  }
  return from.tokens.back();
}

}  // namespace tracestep
