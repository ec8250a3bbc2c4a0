// Computes figures of the programs that make up a step, and builds each program once. Steps that
// differ only in their optimizer share the programs of their micro-batches, all micro-batches share
// one update program, and programs that differ only in what they recompute share the passes before
// recomputation.
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

// Which layer a node runs in, as far as live bytes depend on it: within a pass over the layers,
// bytes only grow or only shrink, so the most are held at the first or the last layer. Figures of
// few layers are extrapolated for each place.
enum class LayerPlace : int { kNoLayer, kFirst, kBetween, kLast };
using Where = std::tuple<Phase, int, std::string>;  // Phase, LayerPlace and component.

struct ProgramFigures {
  double ms = 0;  // The time by the model alone, without the correction by earlier measurements.
  double flops = 0, moved_bytes = 0, kernels = 0;
  std::vector<Value> leaves = {};
  // The leaves if the optimizer's states lie in the host's memory; a program that does not update
  // differs in nothing else. Only micro-batches have them.
  std::vector<Value> offloaded = {};
  std::map<Where, std::int64_t> live = {};  // The most bytes besides leaves, by place.
};

// The figures of one program of a step, its leaves, and how often the step runs it.
struct PartFigures {
  const ProgramFigures& program;
  const std::vector<Value>& leaves;
  std::int64_t runs = 1;
};

class ProgramCache {
 public:
  // Starts empty. `times` must outlive this; nullptr: times are modelled with rounded rates.
  ProgramCache(DeviceTraits traits, const Predictor* times)
      : traits_(std::move(traits)), times_(times) {}

  // Returns the figures of each program of a step (parts_of_step()), valid as long as this cache.
  // `step` must name its bucket size (`parallel.bucket_bytes`).
  std::vector<PartFigures> parts_of(const RunSpec& step, std::int64_t micro_batches);
  // Returns the leaves of all programs of a step, without the last passes, which change no leaf.
  std::vector<Value> leaves_of(const RunSpec& step, std::int64_t micro_batches);
  std::size_t built() const { return built_; }  // programs

 private:
  const ProgramFigures& of_whole(const RunSpec& step);
  struct MicroBatch;  // A micro-batch, which computes gradients.
  static std::vector<MicroBatch> micro_batches_of(const RunSpec& step, std::int64_t parts);
  const ProgramFigures& of_micro_batch(const MicroBatch& part);
  const ProgramFigures& of_update(const RunSpec& step, const std::vector<Value>& leaves);
  // Returns the program after the passes before recomputation, which is the same for every choice
  // of recomputation in `run`; valid until the next call.
  const Program& begun(RunSpec run, const std::string& key, const std::function<Program()>& built);
  Program passed(const RunSpec& run, const std::string& key, const std::function<Program()>& built);
  bool is_offloaded(const RunSpec& step) const;
  ProgramFigures figures_of(const RunSpec& run, const Program& program) const;

  DeviceTraits traits_;
  const Predictor* times_;
  std::map<std::string, ProgramFigures> figures_;
  std::map<std::string, Program> begun_;  // Programs before recomputation, by key.
  std::size_t built_ = 0;
};

// Returns the time of a program on a device with rounded rates.
double modelled_ms(const Program& program, const BufferPlan& buffer_plan, DeviceKind kind);
// Returns 12 for "layers.12.attn", and nullopt for a path in no layer.
std::optional<std::int64_t> layer_number(std::string_view path);

}  // namespace tracestep
