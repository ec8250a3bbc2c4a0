#include "lab/fit/program_figures.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "analysis/cost.h"
#include "analysis/lanes.h"
#include "analysis/memory_map.h"
#include "analysis/origins.h"
#include "analysis/roofline.h"
#include "base/indexed.h"
#include "lab/predict/kernel_work.h"
#include "passes/update_passes.h"
#include "spec/fields.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

constexpr double kTypicalLinkGbS = 25;  // to the host: a rounded rate, as those of modelled_us()
constexpr const char* kBeforeRecompute = "offload";  // the last pass that does not know what is
constexpr std::size_t kMostBegun = 64;  // programs that are kept unfinished, each about a megabyte

Where where_of(const Origin& origin, std::int64_t layers) {
  const std::optional<std::int64_t> layer = layer_number(origin.path);
  const LayerPlace place = !layer                 ? LayerPlace::kNoLayer
                           : *layer == 0          ? LayerPlace::kFirst
                           : *layer == layers - 1 ? LayerPlace::kLast
                                                  : LayerPlace::kBetween;
  return {origin.phase, static_cast<int>(place), component_of(origin.path)};
}

bool is_of_one_layer(const Node& node) {
  if (node.op->kernel_class == KernelClass::kCollective) return false;
  return std::ranges::all_of(node.origins, [&](const Origin& origin) {
    return layer_number(origin.path) == layer_number(node.origin().path);
  });
}

// Returns a program's key. `kind`: which of the run's programs it is, as fields do not say it.
std::string key_text(std::string_view kind, const RunSpec& run) {
  return fmt::format("{} {}", kind, canonical_text(key_of(run)));
}

// Maps steps with the same update to one step: an update does not depend on how gradients arose.
RunSpec as_update(RunSpec step) {
  const RunSpec usual;
  step.shape = usual.shape;
  step.attention = usual.attention;
  step.recompute = usual.recompute;
  step.loss_chunks = usual.loss_chunks;
  step.ffn_chunks = usual.ffn_chunks;
  step.offload = offload_of(has_optimizer(step.offload), false);
  return step;
}

}  // namespace

double modelled_ms(const Program& program, const BufferPlan& buffer_plan, DeviceKind kind) {
  double us = 0;
  std::array<double, kLaneCount>
      moves_us{};  // by lane: those beside each other take the longer time
  for (const Node& node : program.nodes) {
    if (node.op->kernel_class == KernelClass::kCollective) {
      us += kCallSeconds * 1e6 +
            static_cast<double>(received_bytes(program, node, 0)) / (kLinkBytesPerS * 1e-6);
      continue;
    }
    const double link_us = bytes_over_link(program, buffer_plan, node) / (kTypicalLinkGbS * 1e3);
    const bool is_move =
        link_us > 0 && node.op->kernel_class == KernelClass::kCopy && has_lane(*node.op);
    double& sum = is_move ? moves_us[at(static_cast<int>(node.attrs.integer("lane")))] : us;
    sum += std::max(modelled_us(program, node, kind), link_us);
  }
  return (us + std::ranges::max(moves_us)) * 1e-3;
}

std::optional<std::int64_t> layer_number(std::string_view path) {
  constexpr std::string_view kLayers = "layers.";
  if (!path.starts_with(kLayers)) return std::nullopt;
  std::int64_t out = 0;
  const char* begin = path.data() + kLayers.size();
  const auto [end, error] = std::from_chars(begin, path.data() + path.size(), out);
  return error == std::errc() && end != begin ? std::optional(out) : std::nullopt;
}

struct ProgramCache::MicroBatch {
  RunSpec run;  // whatever updates with its gradients
  std::string kind;
  std::int64_t parts = 1, runs = 1;

  Program loss() const { return micro_batch_loss(run, parts); }
};

std::vector<ProgramCache::MicroBatch> ProgramCache::micro_batches_of(const RunSpec& step,
                                                                     std::int64_t parts) {
  const auto of = [&](GradientKind kind, std::int64_t runs) {
    RunSpec divided = step;
    divided.shape.batch /= parts;
    divided.optimizer.report_norm = divided.optimizer.guard_finite = true;
    MicroBatch out{micro_batch_of(divided, kind),
                   fmt::format("{} of {}", static_cast<int>(kind), parts), parts, runs};
    out.run.offload = offload_of(false, has_activations(step.offload));
    out.run.optimizer.moments = Moments::kF32;
    return out;
  };
  return {of(GradientKind::kPersistent, 1), of(GradientKind::kAccumulate, parts - 1)};
}

std::vector<PartFigures> ProgramCache::parts_of(const RunSpec& step, std::int64_t micro_batches) {
  if (micro_batches == 1) {
    const ProgramFigures& whole = of_whole(step);
    return {{whole, whole.leaves}};
  }
  std::vector<PartFigures> out;
  std::vector<Value> all;
  for (const MicroBatch& part : micro_batches_of(step, micro_batches)) {
    const ProgramFigures& figures = of_micro_batch(part);
    out.push_back({figures, is_offloaded(step) ? figures.offloaded : figures.leaves, part.runs});
    std::ranges::copy(out.back().leaves, std::back_inserter(all));
  }
  const ProgramFigures& update = of_update(step, all);
  out.push_back({update, update.leaves});
  return out;
}

std::vector<Value> ProgramCache::leaves_of(const RunSpec& step, std::int64_t micro_batches) {
  using tracestep::leaves_of;
  if (micro_batches == 1)
    return leaves_of(begun(step, "step", [&] { return forward_program(step); }));
  std::vector<Value> out;
  for (const MicroBatch& part : micro_batches_of(step, micro_batches)) {
    const Program& program = begun(part.run, part.kind, [&] { return part.loss(); });
    std::ranges::move(leaves_of(is_offloaded(step) ? offload(program) : program),
                      std::back_inserter(out));
  }
  const std::vector<Value>& updated = of_update(step, out).leaves;
  out.insert(out.end(), updated.begin(), updated.end());
  return out;
}

bool ProgramCache::is_offloaded(const RunSpec& step) const {
  return has_optimizer(step.offload) && traits_.has_own_memory();
}

const ProgramFigures& ProgramCache::of_whole(const RunSpec& step) {
  const std::string key = key_text("step", step);
  const auto [found, is_new] = figures_.try_emplace(key);
  if (!is_new) return found->second;
  return found->second =
             figures_of(step, passed(step, "step", [&] { return forward_program(step); }));
}

const ProgramFigures& ProgramCache::of_micro_batch(const MicroBatch& part) {
  const auto [found, is_new] = figures_.try_emplace(key_text(part.kind, part.run));
  if (!is_new) return found->second;
  const Program program = passed(part.run, part.kind, [&] { return part.loss(); });
  ProgramFigures& out = found->second = figures_of(part.run, program);
  if (traits_.has_own_memory()) out.offloaded = tracestep::leaves_of(offload(program));
  return out;
}

const ProgramFigures& ProgramCache::of_update(const RunSpec& step,
                                              const std::vector<Value>& leaves) {
  std::string name = "update of";
  for (const Value& leaf : leaves) {
    if (leaf.leaf != LeafKind::kInput) name += fmt::format(" {} {}", leaf.name, leaf.type.str());
  }
  const RunSpec update = as_update(step);
  const auto [found, is_new] = figures_.try_emplace(key_text(name, update));
  if (!is_new) return found->second;
  ++built_;
  return found->second = figures_of(step, update_of_micro_batches(update, leaves, traits_));
}

const Program& ProgramCache::begun(RunSpec run, const std::string& key,
                                   const std::function<Program()>& built) {
  run.recompute = {};
  const std::string text = key_text(key, run);
  const auto found = begun_.find(text);
  if (found != begun_.end()) return found->second;
  if (begun_.size() >= kMostBegun) begun_.clear();
  return begun_[text] = program_for(built(), run, traits_, {.stop_after = kBeforeRecompute});
}

Program ProgramCache::passed(const RunSpec& run, const std::string& key,
                             const std::function<Program()>& built) {
  ++built_;
  return program_for(begun(run, key, built), run, traits_, {.start_after = kBeforeRecompute});
}

ProgramFigures ProgramCache::figures_of(const RunSpec& run, const Program& program) const {
  const Cost cost = total_cost(program);
  const BufferPlan buffer_plan = plan_buffers(program);
  ProgramFigures out{.ms = times_ != nullptr
                               ? times_->model.time_of(run, program, traits_, times_->link).ms
                               : modelled_ms(program, buffer_plan, traits_.kind),
                     .flops = static_cast<double>(cost.flops),
                     .moved_bytes = static_cast<double>(cost.bytes_read + cost.bytes_written),
                     .kernels = static_cast<double>(launch_count(program)),
                     .leaves = tracestep::leaves_of(program)};
  const std::int64_t leaves = kept_bytes(out.leaves) + input_bytes(out.leaves);
  const std::vector<std::int64_t> live = live_bytes_by_node(program, buffer_plan, traits_);
  Where where{Phase::kForward, 0, ""};
  for (std::size_t i = 0; i < live.size(); ++i) {
    if (live[i] == 0) continue;
    // A node that sums for several layers, or sends for others, runs where the one before does.
    const Node& node = program.nodes[i];
    if (is_of_one_layer(node)) where = where_of(node.origin(), run.model.layers);
    std::int64_t& bytes = out.live[where];
    bytes = std::max(bytes, live[i] - leaves);
  }
  return out;
}

}  // namespace tracestep
