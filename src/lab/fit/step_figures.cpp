#include "lab/fit/step_figures.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <ranges>
#include <utility>

#include "analysis/cost.h"
#include "analysis/memory_map.h"
#include "base/integers.h"
#include "exec/executor.h"
#include "passes/recompute_budget.h"
#include "spec/fields.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

std::string key_text(const RunSpec& step, std::int64_t micro_batches) {
  return fmt::format("{} in {}", canonical_text(key_of(step)), micro_batches);
}

// Makes the step's micro-batches one batch, to be divided anew.
RunSpec undivided(RunSpec step) {
  step.shape.batch *= step.accumulate;
  step.accumulate = 1;
  return step;
}

// Extrapolates a quantity to `layers` layers from those of two other numbers of layers.
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

// The numbers of layers from which peaks with nested recomputation are extrapolated.
constexpr std::pair<std::int64_t, std::int64_t> kNestedDepths{4, 8};

// Returns how many inputs of blocks are held while backward runs the last of `layers` nested
// blocks: that of the first block, of the middle one, of the middle of the rest, …, and its own.
std::int64_t nested_levels(std::int64_t layers) {
  return std::bit_width(static_cast<std::uint64_t>(layers));
}

// Returns the most bytes of blocks' inputs and of later blocks' gradients held while a block
// between the first and the last runs: passes/recompute.cpp drops later inputs, and halves ranges.
std::int64_t nested_between(std::int64_t layers, std::int64_t input, std::int64_t gradients) {
  std::vector<std::int64_t> levels{0};
  std::int64_t out = 0;
  for (std::int64_t block = layers - 1; block > 0; --block) {
    while (levels.back() > block) levels.pop_back();
    while (levels.back() < block) levels.push_back((levels.back() + block + 2) / 2);
    if (block == layers - 1) continue;
    out = std::max(out, std::ssize(levels) * input + (layers - 1 - block) * gradients);
  }
  return out;
}

// Extrapolates the live bytes of steps with nested recomputation from those of 4 and of 8 layers.
class NestedBytes {
 public:
  NestedBytes(const std::map<Where, std::int64_t>& few, const std::map<Where, std::int64_t>& more)
      : few_(few), more_(more) {}

  // Returns the bytes at `where` with `layers` layers: in backward, by the inputs held at the last
  // layer (nested_levels()) and by nested_between() between; else linear in the layers.
  std::int64_t at(const Where& where, std::int64_t layers) const {
    const auto& [phase, place, component] = where;
    const std::int64_t known = more_.at(where), many = kNestedDepths.second;
    if (phase == Phase::kBackward || phase == Phase::kRecompute) {
      const std::int64_t input = std::max<std::int64_t>(growth(of(where, LayerPlace::kLast)), 0);
      if (place == static_cast<int>(LayerPlace::kLast))
        return known + (nested_levels(layers) - nested_levels(many)) * input;
      if (place == static_cast<int>(LayerPlace::kBetween)) {
        const std::int64_t first = growth(of(where, LayerPlace::kFirst));
        const std::int64_t each = std::max<std::int64_t>(first, 0) / (many - kNestedDepths.first);
        return known + nested_between(layers, input, each) - nested_between(many, input, each);
      }
    }
    return known + growth(where) / (many - kNestedDepths.first) * (layers - many);
  }

 private:
  static Where of(const Where& where, LayerPlace place) {
    return {std::get<Phase>(where), static_cast<int>(place), std::get<std::string>(where)};
  }
  std::int64_t growth(const Where& where) const {
    const auto a = few_.find(where), b = more_.find(where);
    return a == few_.end() || b == more_.end() ? 0 : b->second - a->second;
  }

  const std::map<Where, std::int64_t>&few_, &more_;
};

// Bytes of a rank's gradients in the type in which ranks sum them.
std::int64_t summed_bytes(const RunSpec& step) {
  const bool is_low = step.parallel.low_sums && step.precision.autocast;
  const DType dtype = is_low ? *step.precision.autocast : step.precision.parameters;
  const std::int64_t count =
      trains_part(step) ? trained_parameters(step) : parameter_formula(step.model);
  return count * static_cast<std::int64_t>(size_of(dtype)) / step.parallel.tensor;
}

// Returns the step with `layers` layers, but with gradient buckets as large as in the whole model.
RunSpec of_layers(const RunSpec& step, std::int64_t layers) {
  RunSpec out = step;
  out.model.layers = layers;
  out.parallel = resolve_bucket(step.parallel, summed_bytes(step));
  return out;
}

// Returns figures(); where a program is refused, figures that say why.
template <class Figures>
StepFigures unless_refused(const Figures& figures) {
  try {
    return figures();
  } catch (const BudgetNotMet&) {
    throw;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUsage) throw;
    return {.peak_bytes = kRefusedBytes,
            .refusal = std::make_shared<const Error>(error),
            .kept_bytes = kRefusedBytes,
            .ms = std::numeric_limits<double>::infinity()};
  }
}

// The bytes that the programs of a step hold: their sum where each keeps an arena of its own
// (`is_kept`), else the most of any one, as each gives its memory back.
struct Held {
  bool is_kept = false;
  std::int64_t bytes = 0;

  void add(std::int64_t of_program) {
    bytes = is_kept ? bytes + of_program : std::max(bytes, of_program);
  }
};

StepFigures figures_of(const RunSpec& step, std::span<const StepPart> parts,
                       const DeviceTraits& traits, const Predictor* times) {
  StepFigures out{.peak_bytes = predicted_peak_bytes(step.executor, parts, traits),
                  .kept_bytes = kept_bytes(parts)};
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

}  // namespace

StepFigures figures_of(const RunSpec& step, const Program& program, const DeviceTraits& traits,
                       const Predictor* times) {
  const StepPart whole{program};
  return figures_of(step, {&whole, 1}, traits, times);
}

// Figures of a step with few layers, over all its programs.
struct FiguresOfSteps::Depth {
  StepFigures figures = {};
  std::int64_t leaves = 0;
  std::vector<PartFigures> parts;
};

std::optional<std::pair<std::int64_t, std::int64_t>> sketched_depths(const RunSpec& step) {
  if (!grows_evenly(step.recompute) || step.model.captured != nullptr) return std::nullopt;
  const std::int64_t layers = step.model.layers;
  const std::int64_t windows = step.model.window > 0 ? std::ssize(step.model.window_layers) : 1;
  const std::int64_t pattern = std::lcm(windows, std::int64_t{std::ssize(step.model.rope_layers)});
  const std::int64_t period = std::lcm(pattern, std::int64_t{step.recompute.every});
  // Needs a first part, a last one, and layers between; weights are gathered a layer ahead.
  const std::int64_t ahead = step.parallel.shards_weights() ? period : 0;
  const std::int64_t fewest = 2 * period + 1 + ahead;
  if (layers < fewest) return std::nullopt;
  const std::int64_t first = layers - (layers - fewest) / period * period;
  // In compiled steps one kernel sums for the norms of four layers, and its inputs are held until
  // then; with ranks, some sums wait for those of other layers.
  const std::int64_t together = has_arena(step.executor) || step.parallel.is_on() ? 4 : 1;
  const std::int64_t second = first + round_up(together, period);
  if (first + second >= layers) return std::nullopt;
  return std::pair(first, second);
}

const StepFigures& FiguresOfSteps::exact(const RunSpec& step, std::int64_t micro_batches) {
  if (step.accumulate > 1) return exact(undivided(step), micro_batches * step.accumulate);
  const auto [found, is_new] = exact_.try_emplace(key_text(step, micro_batches));
  if (!is_new) return found->second;
  try {
    found->second = unless_refused([&] {
      return figures_of(step, parts_of_step(step, micro_batches, traits_), traits_, times_);
    });
  } catch (const BudgetNotMet&) {
    found->second = {};
  }
  return found->second;
}

FiguresOfSteps::Depth FiguresOfSteps::at_layers(const RunSpec& step, std::int64_t micro_batches,
                                                std::int64_t layers) {
  Depth out{.parts = programs_.parts_of(of_layers(step, layers), micro_batches)};
  std::vector<Value> leaves;
  for (const auto& [program, own, runs] : out.parts) {
    const auto n = static_cast<double>(runs);
    out.figures.ms += n * program.ms;
    out.figures.flops += n * program.flops;
    out.figures.moved_bytes += n * program.moved_bytes;
    out.figures.kernels += n * program.kernels;
    out.figures.host_bytes = std::max(out.figures.host_bytes, host_bytes(own));
    std::ranges::copy(own, std::back_inserter(leaves));
  }
  if (times_ != nullptr) out.figures.ms *= correction_factor(step, *times_);
  out.figures.kept_bytes = tracestep::kept_bytes(leaves);
  out.leaves = out.figures.kept_bytes + input_bytes(leaves);
  return out;
}

const StepFigures* FiguresOfSteps::sketched(const RunSpec& step, std::int64_t micro_batches) const {
  if (step.accumulate > 1) return sketched(undivided(step), micro_batches * step.accumulate);
  const auto found = sketches_.find(key_text(step, micro_batches));
  return found == sketches_.end() ? nullptr : &found->second;
}

std::int64_t FiguresOfSteps::kept_bytes(const RunSpec& step, std::int64_t micro_batches) {
  if (step.accumulate > 1) return kept_bytes(undivided(step), micro_batches * step.accumulate);
  const auto [found, is_new] = kept_.try_emplace(key_text(step, micro_batches));
  if (!is_new) return found->second;
  const auto at = [&](std::int64_t layers) {
    return tracestep::kept_bytes(programs_.leaves_of(of_layers(step, layers), micro_batches));
  };
  const std::int64_t layers = step.model.layers;
  const auto depths = sketched_depths(step);
  const auto known = [&]() -> StepFigures {
    return {.kept_bytes = depths ? at_depth(at(depths->first), at(depths->second), *depths, layers)
                                 : at(layers)};
  };
  return found->second = unless_refused(known).kept_bytes;
}

const StepFigures& FiguresOfSteps::sketch(const RunSpec& step, std::int64_t micro_batches) {
  if (step.accumulate > 1) return sketch(undivided(step), micro_batches * step.accumulate);
  const auto depths = sketched_depths(step);
  if (!depths) return exact(step, micro_batches);
  const auto [found, is_new] = sketches_.try_emplace(key_text(step, micro_batches));
  if (is_new) {
    found->second = unless_refused([&] { return sketched_between(step, micro_batches, *depths); });
  }
  return found->second;
}

std::optional<std::int64_t> FiguresOfSteps::nested_peak(const RunSpec& step) {
  const ModelConfig& model = step.model;
  const bool are_alike = model.captured == nullptr && std::ssize(model.rope_layers) <= 1 &&
                         (model.window == 0 || std::ssize(model.window_layers) <= 1);
  const bool is_nested = step.recompute.kind == Recomputation::Kind::kNested;
  const bool is_one = step.accumulate == 1 && !step.parallel.is_on();
  if (!is_nested || !are_alike || !is_one || model.layers <= 2 * kNestedDepths.second)
    return std::nullopt;
  const auto [found, is_new] = nested_peaks_.try_emplace(key_text(step, 1));
  if (is_new) {
    found->second =
        unless_refused([&] { return StepFigures{.peak_bytes = nested_from_few(step)}; }).peak_bytes;
  }
  return found->second;
}

std::int64_t FiguresOfSteps::nested_from_few(const RunSpec& step) {
  const auto [few, more] = kNestedDepths;
  const Depth a = at_layers(step, 1, few), b = at_layers(step, 1, more);
  const std::int64_t layers = step.model.layers;
  const NestedBytes bytes(a.parts[0].program.live, b.parts[0].program.live);
  std::int64_t live = 0;
  for (const Where& where : b.parts[0].program.live | std::views::keys) {
    live = std::max(live, bytes.at(where, layers));
  }
  return at_depth(a.leaves, b.leaves, kNestedDepths, layers) + live;
}

StepFigures FiguresOfSteps::sketched_between(const RunSpec& step, std::int64_t micro_batches,
                                             std::pair<std::int64_t, std::int64_t> depths) {
  const Depth a = at_layers(step, micro_batches, depths.first),
              b = at_layers(step, micro_batches, depths.second);
  const auto deep = [&](auto from, auto to) {
    return at_depth(from, to, depths, step.model.layers);
  };
  const auto of = [&](auto StepFigures::*member) {
    return deep(a.figures.*member, b.figures.*member);
  };
  StepFigures out{.kept_bytes = of(&StepFigures::kept_bytes),
                  .host_bytes = of(&StepFigures::host_bytes),
                  .ms = of(&StepFigures::ms),
                  .flops = of(&StepFigures::flops),
                  .moved_bytes = of(&StepFigures::moved_bytes),
                  .kernels = of(&StepFigures::kernels)};
  const bool are_apart = micro_batches > kMostInOneProgram;
  Held all{.is_kept = are_apart && has_arena(step.executor)}, computing = all, forward = all;
  std::int64_t saved_by_all = 0;
  for (std::size_t i = 0; i < b.parts.size(); ++i) {
    const auto &less = a.parts[i].program.live, &more = b.parts[i].program.live;
    std::map<Phase, std::int64_t> most;
    std::int64_t saved = 0;
    for (const auto& [where, bytes] : more) {
      const auto same = less.find(where);
      const std::int64_t shallow = same == less.end() ? bytes : same->second;
      std::int64_t& of_phase = most[std::get<Phase>(where)];
      of_phase = std::max(of_phase, deep(shallow, bytes));
      if (std::get<Phase>(where) != Phase::kForward) continue;
      saved = std::max(saved, (bytes - shallow) / (depths.second - depths.first));
    }
    saved_by_all += saved;
    forward.add(most[Phase::kForward]);
    const std::int64_t of_updates = std::exchange(most[Phase::kOptimizer], 0);
    const std::int64_t before = std::ranges::max(most | std::views::values);
    computing.add(before);
    all.add(std::max(before, of_updates));
  }
  out.saved_bytes = saved_by_all;
  out.forward_bytes = forward.bytes;
  out.computing_bytes = computing.bytes;
  out.peak_bytes = deep(a.leaves, b.leaves) + all.bytes;
  return out;
}

}  // namespace tracestep
