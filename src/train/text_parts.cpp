#include "train/text_parts.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "captured/captured_model.h"

namespace tracestep {

std::vector<TextPart> parts_of(const TokenSource& tokens, BatchShape shape, std::int64_t batches,
                               std::int64_t divisor) {
  const auto [batch, context] = shape;
  const std::int64_t last = tokens.size() - 1;  // has no token that follows it
  if (last < 1) {
    fail_input("eval", "{} has {} token; the loss of one needs the next", tokens.name(),
               tokens.size());
  }
  std::vector<TextPart> out;
  std::int64_t at = 0;
  const auto add = [&](std::int64_t rows, std::int64_t length) {
    const bool repeats = rows < divisor;
    out.push_back({at, {repeats ? divisor : rows, length}, repeats});
    at += out.back().tokens();
  };
  const auto is_wanted = [&] { return batches == 0 || std::ssize(out) < batches; };
  while (is_wanted() && at < last) {
    const std::int64_t rows = std::min(batch, (last - at) / context);
    const std::int64_t together = rows - rows % divisor;
    add(together > 0 ? together : 1, rows > 0 ? context : last - at);
  }
  return out;
}

namespace {

std::vector<TextPart> packed_parts(const RunSpec& run, const TokenSourcePtr& tokens,
                                   std::int64_t batches, std::int64_t divisor) {
  const auto packed = std::make_shared<PackedRows>(tokens, run.shape.context);
  std::vector<TextPart> out;
  for (std::int64_t at = 0; at < packed->rows() && (batches == 0 || std::ssize(out) < batches);) {
    const std::int64_t rows = std::min(run.shape.batch, packed->rows() - at);
    const std::int64_t whole = rows - rows % divisor;
    const BatchShape shape{whole > 0 ? whole : divisor, run.shape.context};
    out.push_back({at, shape, whole == 0, packed});
    at += whole > 0 ? whole : 1;
  }
  return out;
}

}  // namespace

std::vector<TextPart> parts_for(const RunSpec& run, const TokenSourcePtr& source,
                                std::int64_t batches, std::int64_t divisor) {
  const CapturedModel* const module = run.model.captured.get();
  const TokenSource& tokens = *source;
  if (run.packed) return packed_parts(run, source, batches, divisor);
  if (module == nullptr) return parts_of(tokens, run.shape, batches, divisor);
  const BatchShape whole{module->batch * run.parallel.replicas(), module->context};
  std::vector<TextPart> out = parts_of(tokens, whole, batches, divisor);
  std::erase_if(out, [&](const TextPart& part) {
    return part.shape.batch != whole.batch || part.shape.context != whole.context || part.repeats;
  });
  if (out.empty()) {
    fail_input("eval", "{} has fewer tokens than a batch of {}, {} × {}", tokens.name(),
               run.model.name, whole.batch, whole.context);
  }
  return out;
}

std::int64_t tokens_of(const std::vector<TextPart>& parts) {
  std::int64_t out = 0;
  for (const TextPart& part : parts) out += part.tokens();
  return out;
}

Batch batch_of(const TextPart& part, const TokenSource& tokens) {
  const auto [rows, context] = part.shape;
  if (part.packed != nullptr) {
    std::vector<std::int64_t> numbers;
    for (std::int64_t i = 0; i < rows; ++i) numbers.push_back(part.start + (part.repeats ? 0 : i));
    return part.packed->batch(numbers);
  }
  std::vector<std::int64_t> read(static_cast<std::size_t>(part.tokens() + 1));
  tokens.read(part.start, read);
  Batch out = empty_batch(rows, context);
  for (std::int64_t at = 0; at < rows * context; at += part.tokens()) set_places(out, at, read);
  return out;
}

}  // namespace tracestep
