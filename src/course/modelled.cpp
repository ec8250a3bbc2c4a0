#include "course/modelled.h"

#include <map>
#include <mutex>

#include "analysis/origins.h"
#include "base/error.h"
#include "course/ours.h"
#include "ir/op_def.h"
#include "lab/memory/run.h"
#include "nn/scopes.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

constexpr std::int64_t kFewLayers = 2;

struct Passes {
  Mode mode = Mode::kForward;
  bool is_backward_alone = false;
};

Passes passes_of(std::string_view pass) {
  if (pass == "inference") return {Mode::kInference};
  if (pass == "forward") return {Mode::kForward};
  if (pass == "step") return {Mode::kStep};
  TRACESTEP_CHECK(pass == "backward" || pass == "forward+backward", "no pass \"{}\"", pass);
  return {Mode::kForwardBackward, pass == "backward"};
}

RunSpec of_layers(const PassOfCell& cell, std::int64_t layers) {
  RunSpec out = run_of(cell);
  out.model.layers = layers;
  return out;
}

// Extrapolates to `layers` layers from the values at two and three.
double extrapolated(double two, double three, std::int64_t layers) {
  return two + (three - two) * static_cast<double>(layers - kFewLayers);
}

bool is_part(const Node& node, std::string_view part) {
  return component_of(node.origin().path) == scope::path({scope::kAttention, part});
}

ModelledPass pass_of_few_layers(const PassOfCell& cell, std::int64_t layers,
                                const PublishedDevice& device) {
  const Program program = step_program(of_layers(cell, layers));
  ModelledPass out;
  for (const Node& node : program.nodes) {
    if (makes_views(program, node)) continue;
    if (passes_of(cell.pass).is_backward_alone && node.origin().phase != Phase::kBackward) continue;
    const double ms = roof_time(program, node, device).ms();
    out.launches += 1;
    if (is_product(node)) {
      out.products += 1;
      out.product_ms += ms;
      if (is_part(node, scope::kScores) || is_part(node, scope::kValues)) {
        out.attention_product_ms += ms;
      }
    } else {
      out.other_ms += ms;
      if (is_part(node, scope::kSoftmax)) out.softmax_ms += ms;
    }
  }
  return out;
}

ModelledPass pass_of_all_layers(const PassOfCell& cell, const PublishedDevice& device) {
  const ModelledPass two = pass_of_few_layers(cell, kFewLayers, device),
                     three = pass_of_few_layers(cell, kFewLayers + 1, device);
  const std::int64_t layers = preset(cell.size).layers;
  const auto at = [&](double ModelledPass::*member) {
    return extrapolated(two.*member, three.*member, layers);
  };
  return {at(&ModelledPass::product_ms), at(&ModelledPass::other_ms),
          at(&ModelledPass::softmax_ms), at(&ModelledPass::attention_product_ms),
          at(&ModelledPass::products),   at(&ModelledPass::launches)};
}

}  // namespace

RunSpec run_of(const PassOfCell& cell) {
  RunSpec out{.model = preset(cell.size),
              .shape = {kPublishedBatch, cell.context},
              .mode = passes_of(cell.pass).mode,
              .ops = Granularity::kPrimitive};
  out.precision = parse_precision("precision", cell.precision);
  return out;
}

double forward_program_bytes(std::string_view size, std::int64_t context,
                             std::string_view precision) {
  const auto peak_of = [&](std::int64_t layers) {
    const RunSpec spec =
        of_layers({std::string(size), context, std::string(precision), "forward"}, layers);
    return static_cast<double>(predict_memory(spec, {}).map.peak_bytes);
  };
  return extrapolated(peak_of(kFewLayers), peak_of(kFewLayers + 1), preset(size).layers);
}

ModelledPass modelled_pass(const PassOfCell& cell, const PublishedDevice& device) {
  // The results are cached, because many figures belong to the same cell.
  static std::map<std::pair<std::string, PassOfCell>, ModelledPass> known;
  static std::mutex guard;
  const std::lock_guard lock(guard);
  const auto key = std::make_pair(device.name, cell);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  return known[key] = pass_of_all_layers(cell, device);
}

ShareRange share_range(double part_ms, double rest_ms, double least) {
  const auto percent = [](double part, double rest) { return 100 * part / (part + rest); };
  return {percent(part_ms, rest_ms / least), percent(part_ms / least, rest_ms)};
}

}  // namespace tracestep
