// Topics on time: their numbers are those of a measured row.
#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "analysis/cost.h"
#include "base/units.h"
#include "ir/op_def.h"
#include "lab/explain/topics.h"
#include "lab/measure/sampling.h"
#include "lab/measure/statistics.h"
#include "lab/published/published.h"
#include "lab/report/columns.h"

namespace tracestep {
namespace {

double value(const ResultRow& row, std::string_view column) {
  return row.number(column).value_or(0.0);
}

std::string whose(const ResultRow& row) {
  return "numbers of " + row.label() + " on " + row.text("device");
}

// A missing column takes its line out: results of other versions have fewer.
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

}  // namespace

std::vector<Table> explain_warmup(const ExplainInput& input) {
  const ResultRow row = input.row();
  const std::vector<double> warm = row.numbers("warmup_ms"), samples = row.numbers("samples_ms");
  Worked out;
  out.note(whose(row));
  const double median = median_of(samples);
  out.ms("median of the samples", "middle of the sorted times",
         fmt::format("n = {}", samples.size()), median);
  if (!warm.empty()) {
    out.ms("first step", "t₁", "", warm[0]);
    out.ratio("first over median", "t₁ / median", fmt::format("{:.4g} / {:.4g}", warm[0], median),
              warm[0] / median);
    std::vector<double> together = warm;
    together.insert(together.end(), samples.begin(), samples.end());
    const double mean = mean_of(together), deviation = sample_std_of(together);
    out.ms("mean with warm-up steps in it", "Σt / n",
           fmt::format("n = {} + {}", warm.size(), samples.size()), mean);
    out.ms("its standard deviation", "√(Σ(t − mean)² / (n − 1))", "", deviation);
    out.ratio("error by the missing warm-up", "mean / median",
              fmt::format("{:.4g} / {:.4g}", mean, median), mean / median);
  } else {
    out.note("the row has no warm-up steps: its first sample is one");
  }
  return {out.table()};
}

std::vector<Table> explain_synchronisation(const ExplainInput& input) {
  const ResultRow row = input.row();
  Worked out;
  out.note(whose(row));
  if (has(row, {"wall_ms"}))
    out.ms("wall", "call until the device is done", "", value(row, "wall_ms"));
  if (has(row, {"issue_ms"}))
    out.ms("issue", "host time outside kernels", "", value(row, "issue_ms"));
  if (has(row, {"device_span_ms"})) {
    out.ms("span", "first kernel's start to last kernel's end", "", value(row, "device_span_ms"));
  }
  if (has(row, {"device_busy_ms"})) {
    out.ms("busy", "Σ kernel times", "", value(row, "device_busy_ms"));
  }
  if (has(row, {"wall_ms", "issue_ms"}) && value(row, "wall_ms") > 0) {
    const double issue = value(row, "issue_ms"), wall = value(row, "wall_ms");
    out.ratio("what a clock without a wait would show", "issue / wall",
              fmt::format("{:.4g} / {:.4g}", issue, wall), issue / wall);
  }
  out.note("on a device that works inside the call (a CPU) the two agree; on a GPU they do not");
  return {out.table()};
}

std::vector<Table> explain_std(const ExplainInput& input) {
  const ResultRow row = input.row();
  const std::vector<double> samples = row.numbers("samples_ms");
  Worked out;
  out.note(whose(row));
  const auto n = static_cast<double>(samples.size());
  const double mean = mean_of(samples), deviation = sample_std_of(samples);
  out.ms("mean", "Σt / n", fmt::format("n = {}", samples.size()), mean);
  out.ms("sample standard deviation", "√(Σ(t − mean)² / (n − 1))", "", deviation);
  out.ms("population standard deviation", "√(Σ(t − mean)² / n)", "", population_std_of(samples));
  out.ms("standard error of the mean", "s / √n", fmt::format("{:.4g} / √{}", deviation, n),
         deviation / std::sqrt(n));
  out.ms("median", "middle of the sorted times", "", median_of(samples));
  const Interval interval = median_interval(samples);
  const std::string covers = fmt::format("covers it with {:.1f} %", 100 * interval.coverage);
  out.ms("interval of the median, from", "order statistics", covers, interval.low);
  out.ms("to", "order statistics", covers, interval.high);
  return {out.table()};
}

std::vector<Table> explain_launch_bound(const ExplainInput& input) {
  const ResultRow row = input.row();
  Worked out;
  out.note(whose(row));
  if (!has(row, {"wall_ms", "device_busy_ms", "launches"})) {
    out.note("the row does not say how long kernels worked");
    return {out.table()};
  }
  const double wall = value(row, "wall_ms"), busy = value(row, "device_busy_ms");
  const double launches = value(row, "launches");
  out.ms("wall", "", "", wall).ms("busy", "Σ kernel times", "", busy);
  out.ratio("share in which kernels work", "busy / wall",
            fmt::format("{:.4g} / {:.4g}", busy, wall), busy / wall);
  out.ratio("kernels of a step", "launches", "", launches);
  if (launches > 0) {
    out.ms("mean kernel", "busy / launches", fmt::format("{:.4g} / {:.0f}", busy, launches),
           busy / launches);
    out.ms("the host's part of each", "max(0, wall − busy) / launches", "",
           std::max(0.0, wall - busy) / launches);
  }
  const Program forward = program_of(input, Mode::kForward);
  const auto layers = static_cast<double>(input.model.layers);
  const auto kernels = static_cast<double>(launch_count(forward));
  out.ratio("kernels of a forward pass per layer", "launches / L",
            fmt::format("{:.0f} / {:.0f}", kernels, layers), kernels / layers);
  return {out.table()};
}

std::vector<Table> explain_profiler_overhead(const ExplainInput& input) {
  const ResultRow row = input.row();
  Worked out;
  out.note(whose(row));
  if (!has(row, {"wall_ms", "instrumented_wall_ms", "launches"})) {
    out.note("the row has no steps with instruments: measure one with bench");
    return {out.table()};
  }
  const double wall = value(row, "wall_ms"), recorded = value(row, "instrumented_wall_ms");
  const double launches = std::max(1.0, value(row, "launches"));
  out.ms("step", "median", "", wall).ms("step with spans recorded", "median", "", recorded);
  out.ratio("cost", "recorded / plain", fmt::format("{:.4g} / {:.4g}", recorded, wall),
            recorded / wall);
  out.ms("cost per kernel", "(recorded − plain) / launches",
         fmt::format("{:.4g} / {:.0f}", recorded - wall, launches), (recorded - wall) / launches);
  out.note("timed steps are never recorded; shares and busy times come from steps of their own");
  return {out.table()};
}

std::vector<Table> explain_flops(const ExplainInput& input) {
  const ModelConfig& m = input.model;
  const double b = static_cast<double>(input.shape.batch),
               t = static_cast<double>(input.shape.context);
  const double c = static_cast<double>(m.d_model), f = static_cast<double>(m.d_ff);
  const double l = static_cast<double>(m.layers), v = static_cast<double>(m.vocab);
  Worked out;
  out.flops("projections of attention", "8·BTC²·L", fmt::format("8·{}·{}·{}²·{}", b, t, c, l),
            8 * b * t * c * c * l);
  out.flops("feed-forward", "6·BTCF·L", fmt::format("6·{}·{}·{}·{}·{}", b, t, c, f, l),
            6 * b * t * c * f * l);
  out.flops("scores and values", "4·BT²C·L", fmt::format("4·{}·{}²·{}·{}", b, t, c, l),
            4 * b * t * t * c * l);
  out.flops("head", "2·BTCV", fmt::format("2·{}·{}·{}·{}", b, t, c, v), 2 * b * t * c * v);
  out.flops("forward, all of them", "sum", "", forward_flops(m, b, t));
  const auto forward = static_cast<double>(gemm_flops(program_of(input, Mode::kForward)));
  const auto step = static_cast<double>(gemm_flops(program_of(input, Mode::kStep)));
  out.flops("forward, by the program", "Σ 2·M·N·K over its products", "", forward);
  out.flops("step, by the program", "Σ 2·M·N·K over its products", "", step);
  out.ratio("step over forward", "3", fmt::format("{:.6g} / {:.6g}", step, forward),
            step / forward);
  const double rule = 6 * static_cast<double>(parameter_formula(m)) * b * t;
  out.flops("the rule of six", "6·P·BT", fmt::format("6·{}·{}·{}", parameter_formula(m), b, t),
            rule);
  out.note("the rule of six counts the embedding as a product and leaves attention's scores out");
  return {out.table()};
}

std::vector<Table> explain_roofline(const ExplainInput& input) {
  const ResultRow row = input.row();
  Worked out;
  const Program program = program_of(input, Mode::kForward);
  for (std::string_view path : {"layers.0.ffn.w1", "layers.0.attn.softmax", "layers.0.ln1"}) {
    Cost cost;
    for (const Node& node : program.nodes) {
      if (node.origin().path == path && node.origin().phase == Phase::kForward &&
          node.op->kernel_class != KernelClass::kView) {
        cost += cost_of(program, node);
      }
    }
    const auto bytes = static_cast<double>(cost.bytes_read + cost.bytes_written);
    if (bytes <= 0) continue;
    out.ratio(fmt::format("intensity of {}", path), "FLOPs / bytes",
              fmt::format("{} / {}", cost.flops, static_cast<std::int64_t>(bytes)),
              static_cast<double>(cost.flops) / bytes);
  }
  for (const char* name : {"A100", "H200"}) {
    const PublishedDevice* d = known_device(name);
    out.ratio(fmt::format("ridge of an {} in fp32", name), "peak FLOP/s / bytes/s",
              fmt::format("{:.1f}e12 / {:.3f}e12", d->fp32_tflops, d->bandwidth_gb_s * 1e-3),
              d->fp32_tflops / d->bandwidth_gb_s * 1e3);
  }
  out.note(
      "below the ridge bytes are the bound, above it arithmetic; ridges by the vendors' peaks");
  out.note(fmt::format("intensities of {} at B = {}, T = {}", input.model.name, input.shape.batch,
                       input.shape.context));
  if (has(row, {"tflops"})) {
    const double reached = value(row, "tflops"), roof = value(row, "roof_tflops");
    out.add("reached by products", "FLOPs / median",
            fmt::format("{:.4g} / {:.4g} ms", value(row, "flops"), value(row, "median_ms")),
            format_flop_rate(reached * 1e12), reached, "TFLOP/s");
    if (roof > 0) {
      out.ratio("share of the measured roof", "reached / roof",
                fmt::format("{:.4g} / {:.4g}", reached, roof), reached / roof);
    }
    out.note(whose(row));
  }
  return {out.table()};
}

std::vector<Table> explain_gemm_share(const ExplainInput& input) {
  Worked out;
  for (Mode mode : {Mode::kInference, Mode::kForwardBackward, Mode::kStep}) {
    const Counted n = count(program_of(input, mode));
    const std::string name(name_of(mode));
    out.ratio(name + ": kernels that are products", "", "", static_cast<double>(n.products));
    out.ratio(name + ": other kernels", "", "", static_cast<double>(n.others));
    out.ratio(name + ": products' share of FLOPs", "products / all",
              fmt::format("{:.4g} / {:.4g}", n.product_flops, n.product_flops + n.other_flops),
              n.product_flops / (n.product_flops + n.other_flops));
    out.ratio(name + ": products' share of bytes moved", "products / all",
              fmt::format("{:.4g} / {:.4g}", n.product_bytes, n.product_bytes + n.other_bytes),
              n.product_bytes / (n.product_bytes + n.other_bytes));
  }
  const auto l = input.model.layers;
  out.ratio("products of a forward pass", "7L + 1 + 2L", fmt::format("7·{} + 1 + 2·{}", l, l),
            static_cast<double>(9 * l + 1));
  out.note("tracestep profile --mode inference,step measures the shares of time");
  return {out.table()};
}

}  // namespace tracestep
