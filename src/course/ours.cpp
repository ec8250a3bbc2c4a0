#include "course/ours.h"

#include <algorithm>

#include "course/modelled.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

// Returns the granularity of ops in which our rows are compared: primitive ops if any row has them,
// as plain PyTorch code runs op by op, else fused ones.
Granularity granularity_of(const ReplayInput& ours) {
  const bool has_primitive =
      std::ranges::any_of(ours.rows, [](const ResultRow& row) { return row.ops() == "primitive"; });
  return has_primitive ? Granularity::kPrimitive : Granularity::kFused;
}

}  // namespace

bool is_of_run(const ResultRow& row, const RunSpec& run) {
  return row.label() == label_of(run);
}

bool is_of_attention_run(const ResultRow& row, const RunSpec& run, bool any_ops) {
  const Json key = key_of(run);
  const auto label = [any_ops](const auto& value_of) {
    return label_of([&](const std::string& name) -> const Json* {
      const bool is_asked = is_of_attention(field_named(name)) && !(any_ops && name == "ops");
      return is_asked ? value_of(name) : nullptr;
    });
  };
  return label([&](const std::string& name) { return row.parameter(name); }) ==
         label([&](const std::string& name) { return key.find(name); });
}

OurTimes::OurTimes(const ReplayInput& ours) : ops_(granularity_of(ours)), gpu_(ours.gpu) {
  for (const ResultRow& row : ours.rows) {
    const auto ms = row.median_ms();
    if (ms && row.status() == "ok") ms_.emplace(row.label(), *ms);
  }
}

double OurTimes::find(const PublishedTime& t) const {
  if (t.size.empty() || t.context == 0) return 0.0;
  const auto of = [&](const char* pass) {
    RunSpec run = run_of({t.size, t.context, t.precision, pass});
    run.ops = ops_;
    const auto found = ms_.find(label_of(run));
    return found == ms_.end() ? 0.0 : found->second;
  };
  if (t.pass != "backward") return of(t.pass.c_str());
  const double both = of("forward+backward"), forward = of("forward");
  return both > forward && forward > 0 ? both - forward : 0.0;
}

}  // namespace tracestep
