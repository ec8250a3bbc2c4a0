// Topics on time: their numbers are those of a measured row.
#include <algorithm>
#include <cmath>

#include "analysis/cost.h"
#include "analysis/memory_map.h"
#include "ir/op_def.h"
#include "lab/explain/topics.h"
#include "lab/measure/statistics.h"
#include "lab/predict/devices.h"
#include "nn/scopes.h"

namespace tracestep {
namespace {

double value(const ResultRow& row, std::string_view column) {
  return row.number(column).value_or(0.0);
}

// True if the row has these columns, without which a line is left out: older results lack some.
bool has(const ResultRow& row, std::initializer_list<std::string_view> columns) {
  return std::ranges::all_of(columns,
                             [&](std::string_view c) { return row.number(c).has_value(); });
}

struct Counted {
  std::int64_t products = 0, others = 0;      // kernels
  double product_flops = 0, other_flops = 0;  // each distinct element moved once
  double product_bytes = 0, other_bytes = 0;
};

Counted count(const Program& program) {
  Counted out;
  for (const Node& node : program.nodes) {
    const KernelClass kind = node.op->kernel_class;
    if (kind == KernelClass::kView) continue;
    const Cost cost = cost_of(program, node);
    const auto bytes = static_cast<double>(cost.bytes_read + cost.bytes_written);
    const bool is_product = kind == KernelClass::kGemm;
    (is_product ? out.products : out.others) += 1;
    (is_product ? out.product_flops : out.other_flops) += static_cast<double>(cost.flops);
    (is_product ? out.product_bytes : out.other_bytes) += bytes;
  }
  return out;
}

Program program_of(const ExplainInput& input, Mode mode) {
  return step_program({.model = input.model, .shape = input.shape, .mode = mode});
}

// Sets `name` when the row has the column.
void set_if(Values& out, const std::string& name, const ResultRow& row, std::string_view column) {
  if (has(row, {column})) out.set(name, value(row, column));
}

}  // namespace

void explain_warmup(const ExplainInput& input, Explanation& out) {
  const ResultRow row = input.row();
  const std::vector<double> warm = row.warmup_ms(), samples = row.samples_ms();
  Values& v = out.values;
  v.set("row", whose(row, input)).set("samples", samples.size()).set("median", median_of(samples));
  if (warm.empty()) {
    v.set("no_warmup", "");
    return;
  }
  std::vector<double> together = warm;
  together.insert(together.end(), samples.begin(), samples.end());
  v.set("warm", warm.size()).set("first", warm[0]);
  v.set("mean", mean_of(together)).set("deviation", sample_std_of(together));
}

void explain_synchronisation(const ExplainInput& input, Explanation& out) {
  const ResultRow row = input.row();
  Values& v = out.values;
  v.set("row", whose(row, input));
  set_if(v, "wall", row, "wall_ms");
  set_if(v, "issue", row, "issue_ms");
  set_if(v, "span", row, "device_span_ms");
  set_if(v, "busy", row, "device_busy_ms");
}

void explain_std(const ExplainInput& input, Explanation& out) {
  const ResultRow row = input.row();
  const std::vector<double> samples = row.samples_ms();
  const Interval interval = median_interval(samples);
  Values& v = out.values;
  v.set("row", whose(row, input)).set("samples", samples.size());
  v.set("mean", mean_of(samples)).set("deviation", sample_std_of(samples));
  v.set("population", population_std_of(samples));
  v.set("median", median_of(samples)).set("coverage", 100 * interval.coverage);
  v.set("low", interval.low).set("high", interval.high);
}

void explain_launch_bound(const ExplainInput& input, Explanation& out) {
  const ResultRow row = input.row();
  Values& v = out.values;
  v.set("row", whose(row, input));
  if (!has(row, {"wall_ms", "device_busy_ms", "launches"})) {
    v.set("no_busy", "");
    return;
  }
  v.set("wall", value(row, "wall_ms")).set("busy", value(row, "device_busy_ms"));
  v.set("launches", value(row, "launches"));
  v.set("forward_kernels", launch_count(program_of(input, Mode::kForward)));
}

void explain_profiler_overhead(const ExplainInput& input, Explanation& out) {
  const ResultRow row = input.row();
  Values& v = out.values;
  v.set("row", whose(row, input));
  if (!has(row, {"wall_ms", "instrumented_wall_ms", "launches"})) {
    v.set("no_cost", "");
    return;
  }
  v.set("wall", value(row, "wall_ms")).set("recorded", value(row, "instrumented_wall_ms"));
  v.set("launches", std::max(1.0, value(row, "launches")));
}

void explain_flops(const ExplainInput& input, Explanation& out) {
  out.values.set("matrices", input.model.is_gated ? 3 : 2);
  out.values.set("counts_embedding",
                 input.model.is_tied ? "" : "counts the embedding as a product and ");
  out.values.set("forward", gemm_flops(program_of(input, Mode::kForward)));
  out.values.set("step", gemm_flops(program_of(input, Mode::kStep)));
}

void explain_lora(const ExplainInput& input, Explanation& out) {
  const RunSpec full{.model = input.model,
                     .shape = input.shape,
                     .precision = parse_precision("precision", "bf16")};
  RunSpec lora = full;
  lora.lora = {.rank = 16, .alpha = 32, .targets = {"all"}};
  Values& v = out.values;
  v.set("rank", lora.lora.rank).set("trained", trained_parameters(lora));
  double adapters = 0;
  for (const auto& [name, run] : {std::pair("full", full), std::pair("lora", lora)}) {
    const Program program = step_program(run);
    const Counted counted = count(program);
    v.set(name, counted.product_flops).set(std::string(name) + "_products", counted.products);
    v.set(std::string(name) + "_peak", predicted_peak_bytes(program, plan_buffers(program), {}));
    for (const Node& node : program.nodes) {
      const bool is_adapter = node.origin().path.ends_with(".lora");
      if (is_adapter && is_product(node))
        adapters += static_cast<double>(cost_of(program, node).flops);
    }
  }
  v.set("adapters", adapters);
}

void explain_roofline(const ExplainInput& input, Explanation& out) {
  const ResultRow row = input.row();
  Values& v = out.values;
  const Program program = program_of(input, Mode::kForward);
  const std::string first = scope::layer(0);
  for (const std::string& path : {scope::path({first, scope::kFeedForward, scope::kGate}),
                                  scope::path({first, scope::kAttention, scope::kSoftmax}),
                                  scope::path({first, scope::kFirstNorm})}) {
    Cost cost;
    for (const Node& node : program.nodes) {
      if (node.origin().path == path && node.origin().phase == Phase::kForward &&
          node.op->kernel_class != KernelClass::kView) {
        cost += cost_of(program, node);
      }
    }
    const std::int64_t bytes = cost.bytes_read + cost.bytes_written;
    if (bytes <= 0) continue;
    v.add("part").set("path", path).set("flops", cost.flops).set("bytes", bytes);
  }
  for (const char* name : {"A100 SXM 80 GB", "H200"}) {
    const PublishedDevice* d = known_device(name);
    Values& device = v.add("device").set("name", name).set("tflops", d->fp32_tflops);
    device.set("tb_s", d->bandwidth_gb_s * 1e-3);
  }
  if (!has(row, {"tflops"})) return;
  const double reached = value(row, "tflops"), roof = value(row, "roof_tflops");
  v.set("row", whose(row, input)).set("reached", reached);
  v.set("flops", value(row, "flops")).set("median", value(row, "median_ms"));
  if (roof > 0) v.set("roof", roof);
}

void explain_gemm_share(const ExplainInput& input, Explanation& out) {
  for (Mode mode : {Mode::kInference, Mode::kForwardBackward, Mode::kStep}) {
    const Counted n = count(program_of(input, mode));
    const double flops = n.product_flops + n.other_flops, bytes = n.product_bytes + n.other_bytes;
    Values& v = out.values.add("mode").set("name", name_of(mode));
    v.set("products", n.products).set("others", n.others);
    v.set("product_flops", n.product_flops).set("all_flops", flops);
    v.set("product_bytes", n.product_bytes).set("all_bytes", bytes);
    if (mode == Mode::kInference) out.values.set("forward_products", n.products);
  }
}

}  // namespace tracestep
