// Shows a person a training while it runs and at its end: a line every few steps, samples of text,
// and the curve of its losses. Nothing here decides a number of the training.
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

// The losses of a training in at most kMostPoints points of as many steps each.
class LossCurve {
 public:
  static constexpr std::size_t kMostPoints = 1024;

  void add(const TrainStep& step);
  Table table() const;  // "curve"
  // "4.21 █▆▄▂▁ 1.84": mean losses of `width` stretches of steps; without UTF-8 in ASCII. Empty
  // before there are two points.
  std::string sparkline(std::size_t width, bool has_utf8) const;

 private:
  struct Point {
    std::int64_t step = 0, steps = 0;  // the last one, and how many
    double loss = 0.0;                 // the sum over them
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
    std::optional<std::int64_t> log_every = {};  // steps; nullopt: about twenty lines in all
    double flops_per_token = 0.0;
    double peak_flops = 0.0;                // of all devices together, per second; 0: not known
    std::vector<std::int64_t> prompt = {};  // of samples
    const Tokenizer* tokenizer = nullptr;   // needed for samples
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
  Clock::time_point first_at_;  // the end of the first step, which makes what all of them use
  std::int64_t done_ = 0;
  // Figures since the last line.
  std::int64_t count_ = 0;
  double loss_sum_ = 0.0;
  std::optional<double> validation_;
  // Tokens/s since the last line, at most kMostRates. Their median is shown, as the result has that
  // of all steps: one that something else held up counts for one.
  std::vector<double> rates_;
  LossCurve curve_;
  ProgressLine progress_;
};

}  // namespace tracestep::cli
