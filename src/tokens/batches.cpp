#include "tokens/batches.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/random.h"

namespace tracestep {
namespace {

// Far beyond any batch that fits in memory, and safe from overflow in bytes.
constexpr std::int64_t kMaxBatchTokens = std::int64_t{1} << 40;

}  // namespace

Batches::Batches(TokenSourcePtr tokens, const Options& options)
    : tokens_(std::move(tokens)), options_(options) {
  const auto [batch, context, order, seed] = options_;
  if (batch < 1 || context < 1) {
    fail_usage("batches", "batch {} and context {} must be at least 1", batch, context);
  }
  if (batch > kMaxBatchTokens / context) {
    fail_usage("batches", "batch {} times context {} is more than {} tokens", batch, context,
               kMaxBatchTokens);
  }
  if (tokens_->size() <= context) {
    fail_input("batches", "{} has {} token{}; a context of {} needs at least {}", tokens_->name(),
               tokens_->size(), tokens_->size() == 1 ? "" : "s", context, context + 1);
  }
}

std::int64_t Batches::start_of(std::int64_t row) const {
  const std::int64_t size = tokens_->size();
  if (options_.order == Order::kSequential) {
    __extension__ using Wide = __int128;
    return static_cast<std::int64_t>(static_cast<Wide>(row) * options_.context % size);
  }
  const CounterRng rng(options_.seed, "batches");
  const auto starts = static_cast<std::uint64_t>(size - options_.context);
  return static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(row), starts));
}

Batch Batches::at(std::int64_t step) const {
  const std::int64_t context = options_.context;
  Batch out{HostTensor::zeros(DType::kI64, {options_.batch, context}),
            HostTensor::zeros(DType::kI64, {options_.batch, context})};
  const auto tokens = out.tokens.as<std::int64_t>(), targets = out.targets.as<std::int64_t>();
  std::vector<std::int64_t> row(static_cast<std::size_t>(context + 1));
  for (std::int64_t b = 0; b < options_.batch; ++b) {
    tokens_->read(start_of(step * options_.batch + b), row);
    std::copy(row.begin(), row.end() - 1, tokens.begin() + b * context);
    std::copy(row.begin() + 1, row.end(), targets.begin() + b * context);
  }
  return out;
}

}  // namespace tracestep
