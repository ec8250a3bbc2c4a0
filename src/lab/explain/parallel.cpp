// The topics on many ranks: what they send and hold, and how many of them pay. Closed forms, for
// sums and gathers in which no rank gets more than it must.
#include <algorithm>
#include <cmath>

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

// The problem communication_accounting of the course's handout of 2025.
void add_cluster(Explanation& out) {
  constexpr std::int64_t kC = 16384, kF = 53248, kBlocks = 126;
  constexpr double kCardBytes = 80e9;
  const double parameters = 2.0 * kC * kF * kBlocks, state = 16 * parameters;
  Values& v = out.values.add("cluster");
  v.set("c", kC).set("f", kF).set("blocks", kBlocks).set("parameters", parameters);
  v.set("state", state).set("cards", std::ceil(state / kCardBytes));
  v.set("saved", 2 * (kC + kF) * kBlocks);
}

double peak_flops_per_s() {
  const PublishedDevice* device = known_device(kCard);
  TRACESTEP_CHECK(device != nullptr, "no device {}", kCard);
  return device->bf16_tflops * 1e12;
}

}  // namespace

void explain_data_parallel(const ExplainInput& input, Explanation& out) {
  const double p = Letters(input).p, gradients = 4 * p;
  out.values.set("tensors", parameter_tensors(input)).set("gradients", gradients);
  for (const int ranks : {2, 8, 64}) {
    const double others = ranks - 1, share = others / ranks;
    Values& v = out.values.add("n").set("ranks", ranks);
    v.set("sum", 2 * share * gradients).set("direct", others * gradients);
    v.set("saved_states", share * 8 * p)
        .set("saved_all", share * 16 * p)
        .set("left", 16 * p / ranks);
  }
  out.values.set("w", kLinkBytesPerS * 1e-9).set("o", kCallSeconds * 1e6);
  out.values.set("bucket", std::sqrt(gradients * kLinkBytesPerS * kCallSeconds));
  RunSpec shared{.model = input.model, .shape = input.shape, .mode = Mode::kStep};
  shared.shape.batch *= 2;
  shared.parallel = {.ranks = 2, .shard = 1};
  out.values.set("flags", flags_of(shared));
  out.values.set("overhead", 2e3 * std::sqrt(gradients * kCallSeconds / kLinkBytesPerS));
}

void explain_parallel_limits(const ExplainInput& input, Explanation& out) {
  const Letters n(input);
  const double flops = peak_flops_per_s(), ratio = kLinkBytesPerS / flops, tokens = n.b * n.t;
  Values& v = out.values;
  v.set("device", kCard).set("tflops", flops * 1e-12).set("w", kLinkBytesPerS * 1e-9);
  v.set("flops_per_byte", 1 / ratio);
  v.set("data", 1 + tokens * ratio).set("sharded", 1 + tokens * ratio);
  v.set("tensor_forward", 1 + 1.5 * n.f * ratio).set("tensor_backward", 1 + 3 * n.f * ratio);
  v.set("both", 1.5 * tokens * n.f * ratio * ratio);
  v.set("both_in_turn", 0.375 * tokens * n.f * ratio * ratio);
  add_cluster(out);
}

}  // namespace tracestep
