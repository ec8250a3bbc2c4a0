// Shows a training to a person while it runs and at its end: a line every few steps, samples of
// text, and the curve of losses. Nothing here influences the training.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "lab/report/table.h"
#include "train/loop.h"

namespace tracestep::cli {

// The losses of a training, averaged over equal numbers of steps into at most kMostPoints points.
class LossCurve {
 public:
  static constexpr std::size_t kMostPoints = 1024;

  void add(const TrainStep& step);
  Table table() const;  // "curve"
  // The curve as text, "4.21 █▆▄▂▁ 1.84": means over `width` parts of the training; ASCII without
  // UTF-8. Empty if there are fewer than two points.
  std::string sparkline(std::size_t width, bool has_utf8) const;

 private:
  struct Point {
    std::int64_t step = 0, steps = 0;  // The last step of the point, and its number of steps.
    double loss = 0.0;                 // The sum of the losses of these steps.
    std::optional<double> validation;  // the last one
  };
  static void join(Point& to, const Point& next);

  std::vector<Point> points_;
  std::int64_t steps_each_ = 1;
};

class TrainingView {
 public:
  struct Setup {
    std::int64_t steps = 0;
    // How many steps lie between lines; nullopt: so many that there are about twenty lines.
    std::optional<std::int64_t> log_every = {};
    double flops_per_token = 0.0;
    double peak_flops = 0.0;  // The peak FLOP/s of all devices together; 0: not known.
    std::vector<std::int64_t> prompt = {};  // The prompt of samples.
    const Tokenizer* tokenizer = nullptr;   // The tokenizer, which samples of text need.
  };
  explicit TrainingView(Setup setup);

  void add(const TrainStep& step);
  // On a terminal, prints the curve as a line.
  void finish();
  const LossCurve& curve() const { return curve_; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMostRates = TrainResult::kRecentSteps;

  bool is_due(const TrainStep& step, Clock::time_point now) const;
  std::string text(const TrainStep& step, Clock::time_point now) const;

  Setup setup_;
  Clock::time_point line_at_ = Clock::now();
  // The end of the first step. That step is not timed, because it prepares what later steps use.
  Clock::time_point first_at_;
  std::int64_t done_ = 0;
  // Sums since the last line.
  std::int64_t count_ = 0;
  double loss_sum_ = 0.0;
  std::optional<double> validation_;
  // Tokens/s of steps since the last line, at most kMostRates. Their median is shown, so that one
  // delayed step does not change the line.
  std::vector<double> rates_;
  LossCurve curve_;
  ProgressLine progress_;
};

}  // namespace tracestep::cli
