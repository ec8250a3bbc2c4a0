// Computes the bytes and the time of a step, for a search that compares many: exactly from its
// program, or as a sketch from programs of a few layers, because bytes and time grow linearly with
// the layers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "lab/fit/program_figures.h"

namespace tracestep {

// A number of bytes that no memory has; it stands for a step that is refused.
inline constexpr std::int64_t kRefusedBytes = std::int64_t{1} << 61;

struct StepFigures {
  // The peak; 0: the step has a memory budget, which no choice of recomputation meets.
  std::int64_t peak_bytes = 0;
  // The reason why the step has no program: its bytes are then kRefusedBytes and its time is
  // infinite. nullptr: it has one.
  std::shared_ptr<const Error> refusal = {};
  // Bytes of the peak that are weights and states in the device's memory.
  std::int64_t kept_bytes = 0;
  std::int64_t host_bytes = 0;  // Bytes in the host's memory.
  // Only in a sketch, as upper bounds: the bytes that the step's programs together save for
  // backward in each layer, and the most bytes besides leaves that forward, and everything else
  // before the updates, hold.
  std::optional<std::int64_t> saved_bytes = {}, forward_bytes = {}, computing_bytes = {};
  double ms = 0;  // The predicted time; modelled with rounded rates if nothing predicts it.
  double flops = 0, moved_bytes = 0, kernels = 0;
};

// Computes the figures of a step from its program. With `times` nullptr, the time is modelled with
// rounded rates.
StepFigures figures_of(const RunSpec& step, const Program& program, const DeviceTraits& traits,
                       const Predictor* times);

// Two numbers of layers, the second one larger, whose programs differ by what one layer of `step`
// adds. Attention windows and groups of recomputed layers repeat alike in both and in the step.
// nullopt: the step has too few layers, or its layers are not alike.
std::optional<std::pair<std::int64_t, std::int64_t>> sketched_depths(const RunSpec& step);

class FiguresOfSteps {
 public:
  // Computes figures of steps on a device. `times` must outlive this; nullptr: times are modelled.
  FiguresOfSteps(DeviceTraits traits, const Predictor* times)
      : traits_(traits), times_(times), programs_(std::move(traits), times) {}

  // The exact figures, from the step's program or from those of its micro-batches and update;
  // cached by step. A refused step has figures with a refusal, here and in sketch().
  const StepFigures& exact(const RunSpec& step, std::int64_t micro_batches = 1);
  // Estimated figures, from few layers where sketched_depths() gives their numbers, else from the
  // whole program. Bytes are exact except for the gaps of a planned arena.
  const StepFigures& sketch(const RunSpec& step, std::int64_t micro_batches = 1);
  // Returns the peak of a step with nested recomputation, within 5 %, from programs of four and of
  // eight layers; nullopt if its recomputation is not nested, its layers are too few or not all
  // alike, or ranks share it. Refused programs have kRefusedBytes.
  std::optional<std::int64_t> nested_peak(const RunSpec& step);
  // The figures that an earlier sketch() found without the whole program; nullptr: there are none
  // yet.
  const StepFigures* sketched(const RunSpec& step, std::int64_t micro_batches) const;

  // The bytes of weights and states in the device's memory, as sketch() has them but found faster.
  std::int64_t kept_bytes(const RunSpec& step, std::int64_t micro_batches = 1);

  std::size_t programs() const { return exact_.size() + programs_.built(); }  // built so far

 private:
  struct Depth;  // figures of a few layers
  StepFigures sketched_between(const RunSpec& step, std::int64_t micro_batches,
                               std::pair<std::int64_t, std::int64_t> depths);
  std::int64_t nested_from_few(const RunSpec& step);
  Depth at_layers(const RunSpec& step, std::int64_t micro_batches, std::int64_t layers);

  DeviceTraits traits_;
  const Predictor* times_;
  ProgramCache programs_;
  // Figures by the canonical key of the step.
  std::map<std::string, StepFigures> exact_, sketches_;
  std::map<std::string, std::int64_t> kept_, nested_peaks_;
};

}  // namespace tracestep
