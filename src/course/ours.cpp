#include "course/ours.h"

#include <algorithm>

#include <fmt/format.h>

namespace tracestep {

OurTimes::OurTimes(const ReplayInput& ours) : gpu_(ours.gpu) {
  constexpr double kVocab = 10000;
  // Plain PyTorch code runs op by op, so where there are primitive rows, fused ones are another
  // quantity; so are compiled steps.
  const bool has_primitive =
      std::ranges::any_of(ours.rows, [](const ResultRow& row) { return row.ops() == "primitive"; });
  for (const ResultRow& row : ours.rows) {
    const auto context = row.context(), ms = row.median_ms();
    const auto batch = row.batch(), vocab = row.vocab();
    if (!context || !ms || row.status() != "ok" || row.size().empty()) continue;
    if (batch.value_or(double{kPublishedBatch}) != kPublishedBatch) continue;
    if (vocab.value_or(kVocab) != kVocab) continue;
    if (row.attention() == "flash") continue;  // theirs keep the scores
    if (row.text("executor") == "compiled") continue;
    if (const std::string ranks = row.text("parallel"); !ranks.empty() && ranks != "none") continue;
    if (has_primitive && row.ops() != "primitive") continue;
    ms_.emplace(key_of(row.size(), *context, row.precision(), row.mode()), *ms);
  }
}

double OurTimes::find(const PublishedTime& t) const {
  const auto of = [&](std::string_view mode) {
    const auto found = ms_.find(key_of(t.size, static_cast<double>(t.context), t.precision, mode));
    return found == ms_.end() ? 0.0 : found->second;
  };
  if (t.pass == "forward") return of("forward");
  if (t.pass == "step") return of("step");
  const double both = of("forward-backward");
  if (t.pass == "forward+backward") return both;
  const double forward = of("forward");
  return both > forward && forward > 0 ? both - forward : 0.0;
}

std::string OurTimes::key_of(std::string_view size, double context, std::string_view precision,
                             std::string_view mode) {
  return fmt::format("{}|{}|{}|{}", size, context, precision, mode);
}

}  // namespace tracestep
