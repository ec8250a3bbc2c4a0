// Figures of the programs that steps consist of, each program built once: steps that differ in
// their optimizer alone share those of their micro-batches, all micro-batches one update, and
// programs that compute different things again the passes before that.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "lab/predict/predict.h"
#include "spec/micro_batches.h"

namespace tracestep {

// Where in the step a node runs: what runs there holds bytes that grow evenly with the layers. In
// a pass over the layers, bytes only grow or only shrink, so that a first or a last one has most.
enum class LayerPlace : int { kNoLayer, kFirst, kBetween, kLast };
using Where = std::tuple<Phase, int, std::string>;  // phase, place and component

struct ProgramFigures {
  double ms = 0;  // by the model alone, uncorrected by a history
  double flops = 0, moved_bytes = 0, kernels = 0;
  std::vector<Value> leaves = {};
  // These are the leaves where the optimizer lies in the host's memory; nothing else differs in a
  // program that does not update. Only micro-batches have them.
  std::vector<Value> offloaded = {};
  std::map<Where, std::int64_t> live = {};  // the most bytes besides leaves
};

// A program of a step.
struct PartFigures {
  const ProgramFigures& program;
  const std::vector<Value>& leaves;
  std::int64_t runs = 1;
};

class ProgramCache {
 public:
  // `times` must outlive this; nullptr: times are modelled with rounded rates.
  ProgramCache(DeviceTraits traits, const Predictor* times)
      : traits_(std::move(traits)), times_(times) {}

  // Returns the figures of each part of parts_of_step(); they live as long as this cache. `step`
  // must say its bucket.
  std::vector<PartFigures> parts_of(const RunSpec& step, std::int64_t micro_batches);
  // Returns the leaves of all parts without their last passes, which change none.
  std::vector<Value> leaves_of(const RunSpec& step, std::int64_t micro_batches);
  std::size_t built() const { return built_; }  // programs

 private:
  const ProgramFigures& of_whole(const RunSpec& step);
  struct MicroBatch;  // a part that forms gradients
  static std::vector<MicroBatch> micro_batches_of(const RunSpec& step, std::int64_t parts);
  const ProgramFigures& of_micro_batch(const MicroBatch& part);
  const ProgramFigures& of_update(const RunSpec& step, const std::vector<Value>& leaves);
  // The program before recomputation, which `run` does not choose; valid until the next call.
  const Program& begun(RunSpec run, const std::string& key, const std::function<Program()>& built);
  Program passed(const RunSpec& run, const std::string& key, const std::function<Program()>& built);
  bool is_offloaded(const RunSpec& step) const;
  ProgramFigures figures_of(const RunSpec& run, const Program& program) const;

  DeviceTraits traits_;
  const Predictor* times_;
  std::map<std::string, ProgramFigures> figures_;
  std::map<std::string, Program> begun_;  // before anything is computed again
  std::size_t built_ = 0;
};

// Returns the time of a program on a device with rounded rates.
double modelled_ms(const Program& program, const BufferPlan& buffer_plan, DeviceKind kind);
// Returns 12 for "layers.12.attn", and nullopt for a path in no layer.
std::optional<std::int64_t> layer_number(std::string_view path);

}  // namespace tracestep
