// The topics on many ranks: what they send and hold, and how many of them pay. Closed forms, for
// sums and gathers in which no rank gets more than it must.
#include <algorithm>

#include "base/error.h"
#include "lab/explain/topics.h"
#include "lab/memory/fit.h"
#include "lab/published/published.h"

namespace tracestep {
namespace {

constexpr const char* kCard = "H200";

std::int64_t parameter_tensors(const ExplainInput& input) {
  const Program program = logits_program(input.model, input.shape);
  return std::ranges::count_if(
      program.leaves, [&](ValueId id) { return program.value(id).leaf == LeafKind::kParameter; });
}

double peak_flops_per_s() {
  const PublishedDevice* device = known_device(kCard);
  TRACESTEP_CHECK(device != nullptr, "no device {}", kCard);
  return device->bf16_tflops * 1e12;
}

}  // namespace

void explain_data_parallel(const ExplainInput& input, Explanation& out) {
  out.values.set("tensors", parameter_tensors(input));
  for (const int ranks : {2, 8, 64}) out.values.add("n").set("ranks", ranks);
  out.values.set("W", kLinkBytesPerS).set("call", kCallSeconds);
  out.values.set("w", kLinkBytesPerS * 1e-9).set("o", kCallSeconds * 1e6);
  RunSpec shared{.model = input.model, .shape = input.shape, .mode = Mode::kStep};
  shared.shape.batch *= 2;
  shared.parallel = {.ranks = 2, .shard = 1};
  out.values.set("flags", flags_of(shared));
}

void explain_parallel_limits(const ExplainInput&, Explanation& out) {
  const double flops = peak_flops_per_s();
  Values& v = out.values;
  v.set("device", kCard).set("tflops", flops * 1e-12).set("w", kLinkBytesPerS * 1e-9);
  v.set("R", flops).set("W", kLinkBytesPerS);
}

}  // namespace tracestep
