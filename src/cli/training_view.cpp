#include "cli/training_view.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include "base/units.h"
#include "base/utf8.h"
#include "cli/remaining_time.h"
#include "cli/text_stream.h"
#include "lab/measure/statistics.h"
#include "lab/report/known_columns.h"
#include "tokens/tokenizer.h"

namespace tracestep::cli {
namespace {

constexpr std::int64_t kLines = 20;
constexpr std::chrono::minutes kLongestSilence{1};
constexpr std::size_t kSparklineWidth = 60;

// The first of 1, 2, 5, 10, … steps between lines that gives at most kLines lines.
std::int64_t round_interval(std::int64_t steps) {
  for (std::int64_t decade = 1;; decade *= 10) {
    for (const std::int64_t digit : {1, 2, 5}) {
      if (steps / (digit * decade) <= kLines) return digit * decade;
    }
  }
}

}  // namespace

void LossCurve::join(Point& to, const Point& next) {
  to.step = next.step;
  to.steps += next.steps;
  to.loss += next.loss;
  if (next.validation) to.validation = next.validation;
}

void LossCurve::add(const TrainStep& step) {
  const Point point{step.step, 1, step.loss, step.validation_loss};
  if (!points_.empty() && points_.back().steps < steps_each_) return join(points_.back(), point);
  points_.push_back(point);
  if (points_.size() <= kMostPoints) return;
  steps_each_ *= 2;
  std::vector<Point> halved;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    i % 2 == 0 ? halved.push_back(points_[i]) : join(halved.back(), points_[i]);
  }
  points_ = std::move(halved);
}

Table LossCurve::table() const {
  Table out{.name = "curve",
            .columns = {col::step.titled("step"), col::loss, col::validation_loss}};
  for (const Point& p : points_) {
    out.add_row({p.step, p.loss / static_cast<double>(p.steps),
                 p.validation ? Json(*p.validation) : Json()});
  }
  return out;
}

std::string LossCurve::sparkline(std::size_t width, bool has_utf8) const {
  if (points_.size() < 2) return {};
  static constexpr std::array kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr std::array kAscii = {"_", ".", "-", "~", "=", "+", "*", "#"};
  const std::size_t count = std::min(width, points_.size());
  std::vector<double> means;
  for (std::size_t i = 0; i < count; ++i) {
    Point all;
    for (std::size_t at = i * points_.size() / count; at < (i + 1) * points_.size() / count; ++at) {
      join(all, points_[at]);
    }
    means.push_back(all.loss / static_cast<double>(all.steps));
  }
  const auto [low, high] = std::ranges::minmax(means);
  std::string out = fmt::format("{:.3f} ", means.front());
  for (const double mean : means) {
    const double share = high > low ? (mean - low) / (high - low) : 0.0;
    const auto level = std::min<std::size_t>(7, static_cast<std::size_t>(share * 8));
    out += has_utf8 ? kBlocks[level] : kAscii[level];
  }
  return out + fmt::format(" {:.3f}", means.back());
}

TrainingView::TrainingView(Setup setup) : setup_(std::move(setup)) {}

void TrainingView::add(const TrainStep& step) {
  const auto now = Clock::now();
  ++done_;
  ++count_;
  loss_sum_ += step.loss;
  if (step.validation_loss) validation_ = step.validation_loss;
  if (done_ == 1) first_at_ = now;
  if (done_ == 2) rates_.clear();  // the first step is like none after it
  if (rates_.size() < kMostRates) {
    rates_.push_back(step.tokens_per_s);
  } else {
    rates_[static_cast<std::size_t>(count_) % kMostRates] = step.tokens_per_s;
  }
  if (!step.not_finite) curve_.add(step);
  const bool due = is_due(step, now);
  if (due || progress_.is_shown()) {
    const std::string line = text(step, now);
    if (due) log_info("{}", line);
    progress_.update(line);
  }
  if (due) {
    line_at_ = now;
    count_ = 0;
    rates_.clear();
    loss_sum_ = 0.0;
    validation_.reset();
  }
  if (step.sample.empty()) return;
  const auto prompt = text_of_prompt(setup_.tokenizer, setup_.prompt);
  std::vector<std::int64_t> tokens(prompt.begin(), prompt.end());
  tokens.insert(tokens.end(), step.sample.begin(), step.sample.end());
  // A model's vocabulary may have more entries than its tokenizer.
  std::erase_if(tokens, [&](std::int64_t id) { return !setup_.tokenizer->byte_count(id); });
  // Line by line, as it is read: one long line would have signs for its ends.
  std::istringstream text(setup_.tokenizer->decode(tokens));
  log_info("sample after step {}:", step.step);
  for (std::string line; std::getline(text, line);) log_info("  {}", line);
}

bool TrainingView::is_due(const TrainStep& step, Clock::time_point now) const {
  if (step.step == setup_.steps) return true;
  if (setup_.log_every) return step.step % *setup_.log_every == 0;
  return step.step % round_interval(setup_.steps) == 0 || now - line_at_ >= kLongestSilence;
}

std::string TrainingView::text(const TrainStep& step, Clock::time_point now) const {
  const double rate = median_of(rates_);
  std::string out = fmt::format("step {}/{}  loss {:.4f}  ", step.step, setup_.steps,
                                loss_sum_ / static_cast<double>(count_));
  if (validation_) out += fmt::format("validation loss {:.4f}  ", *validation_);
  out += fmt::format("lr {:.2e}  ", step.lr);
  if (!std::isnan(step.grad_norm)) out += fmt::format("norm {:#.3g}  ", step.grad_norm);
  if (step.loss_scale) {
    out += fmt::format("scale {:g}  skipped {}  ", *step.loss_scale, step.skipped_steps);
  }
  constexpr double kThousand = 1000;
  out += rate < kThousand ? fmt::format("{:.3g} tokens/s", rate) : format_count(rate) + " tokens/s";
  if (setup_.peak_flops > 0) {
    out += fmt::format("  MFU {:.1f} %", 100 * rate * setup_.flops_per_token / setup_.peak_flops);
  }
  const double left = static_cast<double>(setup_.steps - step.step);
  if (left <= 0 || done_ == 1) return out;
  const std::chrono::duration<double> passed = now - first_at_;
  return out + "  " + words_of_remaining(passed.count() / static_cast<double>(done_ - 1) * left) +
         " left";
}

void TrainingView::finish() {
  progress_.done();
  if (!stderr_is_terminal()) return;
  const std::string line = curve_.sparkline(kSparklineWidth, locale_has_utf8());
  if (!line.empty()) log_info("loss {}", line);
}

}  // namespace tracestep::cli
