#include "train/text_parts.h"

#include <algorithm>

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

std::vector<TextPart> parts_for(const RunSpec& run, const TokenSource& tokens, std::int64_t batches,
                                std::int64_t divisor) {
  const CapturedModel* const module = run.model.captured.get();
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
  std::vector<std::int64_t> read(static_cast<std::size_t>(part.tokens() + 1));
  tokens.read(part.start, read);
  Batch out{HostTensor::zeros(DType::kI64, {rows, context}),
            HostTensor::zeros(DType::kI64, {rows, context})};
  const auto ids = out.tokens.as<std::int64_t>(), targets = out.targets.as<std::int64_t>();
  for (std::int64_t at = 0; at < rows * context; at += part.tokens()) {
    std::copy(read.begin(), read.end() - 1, ids.begin() + at);
    std::copy(read.begin() + 1, read.end(), targets.begin() + at);
  }
  return out;
}

}  // namespace tracestep
