// Computes the bytes and the time of a step, for a search that compares many: from its program, or
// sketched from programs of a few layers, since all that layers have grows with their number.
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

// More than any memory has.
inline constexpr std::int64_t kRefusedBytes = std::int64_t{1} << 61;

struct StepFigures {
  // 0: the step has a budget for its peak, which no choice of what to compute again meets.
  std::int64_t peak_bytes = 0;
  // Why there is no program of the step, and so no figure: bytes are kRefusedBytes, and the time is
  // endless. nullptr: there is one.
  std::shared_ptr<const Error> refusal = {};
  std::int64_t kept_bytes = 0;  // of the peak: weights and states in the device's memory
  std::int64_t host_bytes = 0;  // in the host's memory
  // Only in a sketch: upper bounds of the bytes that its programs together keep of each layer for
  // backward, and that forward, and all that comes before updates, hold at most besides leaves.
  std::optional<std::int64_t> saved_bytes = {}, forward_bytes = {}, computing_bytes = {};
  double ms = 0;  // predicted; modelled with rounded rates where nothing predicts it
  double flops = 0, moved_bytes = 0, kernels = 0;
};

// Reads the figures off the step's program. `times`: nullptr: its time is modelled.
StepFigures figures_of(const RunSpec& step, const Program& program, const DeviceTraits& traits,
                       const Predictor* times);

// Two numbers of layers, the second larger, whose programs say what one of `step`'s layers does;
// nullopt: its layers are too few for that, or differ in more than their number. Windows and groups
// of layers that run again repeat in all three alike.
std::optional<std::pair<std::int64_t, std::int64_t>> sketched_depths(const RunSpec& step);

class FiguresOfSteps {
 public:
  // `times` must outlive this; nullptr: times are modelled.
  FiguresOfSteps(DeviceTraits traits, const Predictor* times)
      : traits_(traits), times_(times), programs_(std::move(traits), times) {}

  // Figures from the step's program, or from those of its micro-batches and update; cached by step.
  // Steps that are refused have figures that say so, as in sketch().
  const StepFigures& exact(const RunSpec& step, std::int64_t micro_batches = 1);
  // Figures without the whole program where sketched_depths() are known. Bytes are exact but for
  // what a planned arena cannot fill.
  const StepFigures& sketch(const RunSpec& step, std::int64_t micro_batches = 1);
  // The peak of a step in nested blocks from programs of four and of eight layers, within five
  // hundredths; nullopt: its blocks are not nested, its layers are too few or not all alike, or
  // ranks share it. Programs that are refused have kRefusedBytes.
  std::optional<std::int64_t> nested_peak(const RunSpec& step);
  // The figures by sketch() without the whole program; nullptr: it has not been asked so far.
  const StepFigures* sketched(const RunSpec& step, std::int64_t micro_batches) const;

  // Weights and states in the device's memory, as sketch() says; without most passes.
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
  std::map<std::string, StepFigures> exact_, sketches_;  // by canonical key
  std::map<std::string, std::int64_t> kept_, nested_peaks_;
};

}  // namespace tracestep
