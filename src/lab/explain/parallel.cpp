// The topics on many ranks: what they send and hold, and how many of them pay. Closed forms, for
// sums and gathers in which no rank gets more than it must.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "lab/explain/scaling.h"
#include "lab/explain/topics.h"
#include "lab/fit/remedy.h"
#include "lab/predict/devices.h"

namespace tracestep {
namespace {

std::int64_t parameter_tensors(const ExplainInput& input) {
  const Program program = logits_program(input.model, input.shape);
  return std::ranges::count_if(
      program.leaves, [&](ValueId id) { return program.value(id).leaf == LeafKind::kParameter; });
}

// The rates R and W of a rank (scaling.h), and the words that say where each of them is from.
struct SourcedRates {
  RankRates of = {};
  std::string flops_from = "as given", link_from = "as given";
};

SourcedRates rates_of(const RanksInput& asked) {
  const PublishedDevice& device = asked.device != nullptr ? *asked.device : *known_device("H200");
  SourcedRates out{.of = {.ranks = asked.ranks,
                          .flops_per_s = asked.tflops * 1e12,
                          .link_bytes_per_s = asked.link_gb_s * 1e9,
                          .between_bytes_per_s = asked.between_gb_s * 1e9}};
  if (asked.tflops <= 0) {
    const bool has_bf16 = device.bf16_tflops > 0;
    out.of.flops_per_s = (has_bf16 ? device.bf16_tflops : device.fp16_tflops) * 1e12;
    out.flops_from =
        fmt::format("{} of {}, dense, by its data sheet", has_bf16 ? "bf16" : "fp16", device.name);
  }
  if (asked.link_gb_s <= 0) {
    const bool has_link = device.link_gb_s > 0;
    out.of.link_bytes_per_s = (has_link ? device.link_gb_s : device.host_gb_s) * 1e9;
    out.link_from =
        fmt::format("{} of {}, one way, nominal", has_link ? device.link : "PCIe", device.name);
  }
  return out;
}

}  // namespace

void explain_data_parallel(const ExplainInput& input, Explanation& out) {
  out.values.set("tensors", parameter_tensors(input));
  for (const int ranks : std::set<int>{2, 8, 64, input.ranks.ranks}) {
    if (ranks > 1) out.values.add("n").set("ranks", ranks);
  }
  const SourcedRates rates = rates_of(input.ranks);
  out.values.set("W", rates.of.link_bytes_per_s).set("call", kCallSeconds);
  out.values.set("w", rates.of.link_bytes_per_s * 1e-9).set("o", kCallSeconds * 1e6);
  RunSpec shared{.model = input.model, .shape = input.shape, .mode = Mode::kStep};
  shared.shape.batch *= 2;
  shared.parallel = {.ranks = 2, .shard = 1};
  out.values.set("flags", flags_of(shared));
}

void explain_parallel_limits(const ExplainInput& input, Explanation& out) {
  const SourcedRates rates = rates_of(input.ranks);
  Values& v = out.values;
  v.set("N", rates.of.ranks).set("R", rates.of.flops_per_s).set("W", rates.of.link_bytes_per_s);
  v.set("tflops", rates.of.flops_per_s * 1e-12).set("w", rates.of.link_bytes_per_s * 1e-9);
  v.set("flops_from", rates.flops_from).set("link_from", rates.link_from);
  out.more.push_back(bounds_table(input.model, input.shape, rates.of));
  for (const bool is_weak : {false, true}) {
    out.more.push_back(scaling_table(input.model, input.shape, rates.of, is_weak));
  }
}

}  // namespace tracestep
