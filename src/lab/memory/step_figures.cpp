#include "lab/memory/step_figures.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <tuple>

#include "analysis/cost.h"
#include "analysis/memory_map.h"
#include "analysis/origins.h"
#include "analysis/roofline.h"
#include "exec/executor.h"
#include "lab/predict/kernel_work.h"
#include "passes/recompute_budget.h"
#include "spec/fields.h"
#include "spec/micro_batches.h"

namespace tracestep {
// Where in the step a node runs: what runs there holds bytes that grow evenly with the layers. In
// a pass over the layers, bytes only grow or only shrink, so that a first or a last one has most.
enum class Depth : int { kOutside, kFirst, kBetween, kLast };
using Where = std::tuple<Phase, int, std::string>;  // phase, depth and component

namespace {

constexpr double kTypicalLinkGbS = 25;  // to the host: a rounded rate, as those of modelled_us()

std::string key_text(const RunSpec& step, std::int64_t micro_batches) {
  return fmt::format("{} in {}", canonical_text(key_of(step)), micro_batches);
}

double modelled_ms(const Program& program, const BufferPlan& buffer_plan, DeviceKind kind) {
  double us = 0;
  for (const Node& node : program.nodes) {
    if (node.op->kernel_class == KernelClass::kCollective) {
      us += kCallSeconds * 1e6 +
            static_cast<double>(received_bytes(program, node, 0)) / (kLinkBytesPerS * 1e-6);
      continue;
    }
    const double link_us = bytes_over_link(program, buffer_plan, node) / (kTypicalLinkGbS * 1e3);
    us += std::max(modelled_us(program, node, kind), link_us);
  }
  return us * 1e-3;
}

// The number in "layers.12.attn"; nullopt: the path is in no layer.
std::optional<std::int64_t> layer_number(std::string_view path) {
  constexpr std::string_view kLayers = "layers.";
  if (!path.starts_with(kLayers)) return std::nullopt;
  std::int64_t out = 0;
  const char* begin = path.data() + kLayers.size();
  const auto [end, error] = std::from_chars(begin, path.data() + path.size(), out);
  return error == std::errc() && end != begin ? std::optional(out) : std::nullopt;
}

Where where_of(const Origin& origin, std::int64_t layers) {
  const std::optional<std::int64_t> layer = layer_number(origin.path);
  const Depth depth = !layer                 ? Depth::kOutside
                      : *layer == 0          ? Depth::kFirst
                      : *layer == layers - 1 ? Depth::kLast
                                             : Depth::kBetween;
  return {origin.phase, static_cast<int>(depth), component_of(origin.path)};
}

// A quantity of `layers` from those of two other numbers of layers.
double at_depth(double a, double b, std::pair<std::int64_t, std::int64_t> of, std::int64_t layers) {
  const auto steps = static_cast<double>(layers - of.first);
  return a + (b - a) * steps / static_cast<double>(of.second - of.first);
}
std::int64_t at_depth(std::int64_t a, std::int64_t b, std::pair<std::int64_t, std::int64_t> of,
                      std::int64_t layers) {
  return a + (b - a) / (of.second - of.first) * (layers - of.first);
}

bool grows_evenly(const Recomputation& choice) {
  if (choice.kind == Recomputation::Kind::kNone) return true;
  if (choice.kind != Recomputation::Kind::kParts) return false;
  return std::ranges::none_of(
      choice.paths, [](const std::string& path) { return layer_number(path).has_value(); });
}

// Of a rank, as they are summed.
std::int64_t summed_bytes(const RunSpec& step) {
  const bool is_low = step.parallel.low_sums && step.precision.autocast;
  const DType dtype = is_low ? *step.precision.autocast : step.precision.parameters;
  return parameter_formula(step.model) * static_cast<std::int64_t>(size_of(dtype)) /
         step.parallel.tensor;
}

StepFigures figures_without_peak(const RunSpec& step, std::span<const StepPart> parts,
                                 const DeviceTraits& traits, const Predictor* times) {
  StepFigures out{.kept_bytes = kept_bytes(parts)};
  for (const auto& [program, runs] : parts) {
    const Cost cost = total_cost(program);
    const auto n = static_cast<double>(runs);
    out.host_bytes = std::max(out.host_bytes, host_bytes(program));
    out.ms += n * (times != nullptr ? predict_program(step, program, traits, *times).time.ms
                                    : modelled_ms(program, plan_buffers(program), traits.kind));
    out.flops += n * static_cast<double>(cost.flops);
    out.moved_bytes += n * static_cast<double>(cost.bytes_read + cost.bytes_written);
    out.kernels += n * static_cast<double>(launch_count(program));
  }
  return out;
}

StepFigures figures_of(const RunSpec& step, std::span<const StepPart> parts,
                       const DeviceTraits& traits, const Predictor* times) {
  StepFigures out = figures_without_peak(step, parts, traits, times);
  out.peak_bytes = predicted_peak_bytes(step.executor, parts, traits);
  return out;
}

}  // namespace

StepFigures figures_of(const RunSpec& step, const Program& program, const DeviceTraits& traits,
                       const Predictor* times) {
  const StepPart whole{program};
  return figures_of(step, {&whole, 1}, traits, times);
}

struct FiguresOfSteps::Part {
  using Live = std::map<Where, std::int64_t>;  // the most bytes besides leaves
  StepFigures figures;
  std::int64_t leaves = 0;
  std::vector<Live> live;  // of each program of the step
};

std::optional<std::pair<std::int64_t, std::int64_t>> sketched_depths(const RunSpec& step) {
  if (!grows_evenly(step.recompute)) return std::nullopt;
  const std::int64_t layers = step.model.layers;
  const std::int64_t windows = step.model.window > 0 ? std::ssize(step.model.window_layers) : 1;
  const std::int64_t period = std::lcm(windows, std::int64_t{step.recompute.every});
  const std::int64_t fewest = 2 * period + 1;  // a first part, a last one, and layers between
  if (layers < fewest) return std::nullopt;
  const std::int64_t first = layers - (layers - fewest) / period * period;
  const std::int64_t second = first + period;
  if (first + second >= layers) return std::nullopt;
  return std::pair(first, second);
}

const StepFigures& FiguresOfSteps::exact(const RunSpec& step, std::int64_t micro_batches) {
  const auto [found, is_new] = exact_.try_emplace(key_text(step, micro_batches));
  if (!is_new) return found->second;
  try {
    ++programs_;
    found->second = figures_of(step, parts_of_step(step, micro_batches, traits_), traits_, times_);
  } catch (const BudgetNotMet&) {
    found->second = {};
  }
  return found->second;
}

FiguresOfSteps::Part FiguresOfSteps::part_of(const RunSpec& step, std::int64_t micro_batches,
                                             std::int64_t layers) {
  ++programs_;
  RunSpec shallow = step;
  shallow.model.layers = layers;
  // Batches of sums are those of the whole model.
  shallow.parallel = resolve_bucket(step.parallel, summed_bytes(step));
  const std::vector<StepPart> parts = parts_of_step(shallow, micro_batches, traits_);
  Part out{.figures = figures_without_peak(step, parts, traits_, times_),
           .leaves = leaf_bytes(parts),
           .live = {}};
  for (const StepPart& part : parts) {
    const std::int64_t leaves = leaf_bytes({&part, 1});
    const std::vector<std::int64_t> live =
        live_bytes_by_node(part.program, plan_buffers(part.program), traits_);
    Part::Live& most = out.live.emplace_back();
    for (std::size_t i = 0; i < live.size(); ++i) {
      if (live[i] == 0) continue;
      std::int64_t& bytes = most[where_of(part.program.nodes[i].origin(), layers)];
      bytes = std::max(bytes, live[i] - leaves);
    }
  }
  return out;
}

const StepFigures& FiguresOfSteps::sketch(const RunSpec& step, std::int64_t micro_batches) {
  const auto depths = sketched_depths(step);
  if (!depths) return exact(step, micro_batches);
  const auto [found, is_new] = sketches_.try_emplace(key_text(step, micro_batches));
  if (!is_new) return found->second;
  const Part a = part_of(step, micro_batches, depths->first),
             b = part_of(step, micro_batches, depths->second);
  const auto deep = [&](auto from, auto to) {
    return at_depth(from, to, *depths, step.model.layers);
  };
  const auto of = [&](auto StepFigures::*member) {
    return deep(a.figures.*member, b.figures.*member);
  };
  StepFigures& out = found->second;
  out = {.kept_bytes = of(&StepFigures::kept_bytes),
         .host_bytes = of(&StepFigures::host_bytes),
         .ms = of(&StepFigures::ms),
         .flops = of(&StepFigures::flops),
         .moved_bytes = of(&StepFigures::moved_bytes),
         .kernels = of(&StepFigures::kernels)};
  std::int64_t together = 0, fullest = 0;
  for (std::size_t i = 0; i < b.live.size(); ++i) {
    std::int64_t most = 0;
    for (const auto& [where, bytes] : b.live[i]) {
      const auto shallow = a.live[i].find(where);
      most = std::max(most, deep(shallow == a.live[i].end() ? bytes : shallow->second, bytes));
    }
    together += most;
    fullest = std::max(fullest, most);
  }
  out.peak_bytes = deep(a.leaves, b.leaves) + (has_arena(step.executor) ? together : fullest);
  return out;
}

}  // namespace tracestep
