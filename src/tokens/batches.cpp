#include "tokens/batches.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "tokens/packed_rows.h"

namespace tracestep {
namespace {

// The most tokens of a batch: more than fit in memory, few enough that their bytes do not overflow.
constexpr std::int64_t kMaxBatchTokens = std::int64_t{1} << 40;

}  // namespace

Batches::Batches(TokenSourcePtr tokens, const Options& options)
    : tokens_(std::move(tokens)), options_(options) {
  const auto [batch, context, order, seed, packed] = options_;
  if (batch < 1 || context < 1) {
    fail_usage("batches"_field, "batch {} and context {} must be at least 1", batch, context);
  }
  if (batch > kMaxBatchTokens / context) {
    fail_usage("batches"_field, "batch {} times context {} is more than {} tokens", batch, context,
               kMaxBatchTokens);
  }
  if (packed) {
    packed_ = std::make_shared<PackedRows>(tokens_, context);
    return;
  }
  if (tokens_->size() <= context) {
    fail_input("batches"_field, "{} has {} token{}; a context of {} needs at least {}",
               tokens_->name(), tokens_->size(), tokens_->size() == 1 ? "" : "s", context,
               context + 1);
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

Batch empty_batch(std::int64_t rows, std::int64_t context, bool packed) {
  const auto zeros = [&] { return HostTensor::zeros(DType::kI64, {rows, context}); };
  Batch out{zeros(), zeros()};
  std::ranges::fill(out.targets.as<std::int64_t>(), kNoTarget);
  if (packed) {
    out.starts = zeros();
    out.ends = zeros();
  }
  return out;
}

void set_places(Batch& batch, std::int64_t at, std::span<const std::int64_t> read) {
  const auto tokens = batch.tokens.as<std::int64_t>(), targets = batch.targets.as<std::int64_t>();
  for (std::size_t i = 0; i + 1 < read.size(); ++i) {
    const std::size_t place = static_cast<std::size_t>(at) + i;
    const std::int64_t next = read[i + 1];
    tokens[place] = id_of(read[i]);
    if (!is_trained(next)) continue;
    targets[place] = next;
    ++batch.counted;
  }
  batch.loss_count = static_cast<double>(batch.counted);
}

// Returns the packed row to read `number`-th; the seed shuffles each round over all rows anew.
std::int64_t Batches::packed_row(std::int64_t number) const {
  const std::int64_t rows = packed_->rows(), round = number / rows;
  if (options_.order == Order::kSequential) return number % rows;
  if (shuffled_ != round) {
    order_.resize(static_cast<std::size_t>(rows));
    std::iota(order_.begin(), order_.end(), 0);
    const CounterRng rng(options_.seed, "documents");
    for (std::int64_t i = rows - 1; i > 0; --i) {
      const auto index = static_cast<std::uint64_t>(round * rows + i);
      const std::uint64_t other = rng.below(index, static_cast<std::uint64_t>(i) + 1);
      std::swap(order_[static_cast<std::size_t>(i)], order_[other]);
    }
    shuffled_ = round;
  }
  return order_[static_cast<std::size_t>(number % rows)];
}

Batch Batches::at(std::int64_t step) const {
  const std::int64_t context = options_.context, first = step * options_.batch;
  if (packed_ != nullptr) {
    std::vector<std::int64_t> rows;
    for (std::int64_t b = 0; b < options_.batch; ++b) rows.push_back(packed_row(first + b));
    return packed_->batch(rows);
  }
  Batch out = empty_batch(options_.batch, context);
  std::vector<std::int64_t> row(static_cast<std::size_t>(context + 1));
  for (std::int64_t b = 0; b < options_.batch; ++b) {
    tokens_->read(start_of(first + b), row);
    set_places(out, b * context, row);
  }
  return out;
}

}  // namespace tracestep
