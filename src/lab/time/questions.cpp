// Questions about the time of whole steps: passes, warm-up, noise, sizes, contexts.
#include <algorithm>
#include <cmath>
#include <map>

#include "lab/measure/statistics.h"
#include "lab/report/question.h"
#include "lab/time/tables.h"

namespace tracestep {
namespace {

using Row = Evidence::Row;

Row step_row(const Evidence& e) {
  return e.largest("cells", {{"mode", "step"}, {"ops", "fused"}, {"status", "ok"}}, "flops");
}

Row same_cell(const Evidence& e, const Row& like, const char* mode, const char* ops = "fused") {
  return e.row("cells", {{"size", like.text("size")},
                         {"context", like.whole("context")},
                         {"mode", mode},
                         {"ops", ops},
                         {"status", "ok"}});
}

std::string label(const Row& row) {
  return fmt::format("{} at context {}, batch {}", row.text("size"), row.whole("context"),
                     row.whole("batch"));
}

// How far the samples of a cell lie apart, in percent of their median.
double spread_percent(const Row& row) {
  const std::vector<double> samples = row.numbers("samples_ms");
  return 100.0 * over(max_of(samples) - min_of(samples), median_of(samples));
}

std::string pass_times(const Evidence& e) {
  const Row step = step_row(e), forward = same_cell(e, step, "forward"),
            both = same_cell(e, step, "forward-backward");
  const std::vector<double> f = forward.numbers("samples_ms"), fb = both.numbers("samples_ms"),
                            s = step.numbers("samples_ms");
  require(min_of(fb) > max_of(f),
          fmt::format("steps with backward ({} at least) are not all longer than forward alone ({} "
                      "at most), so their difference says nothing",
                      format_duration_ms(min_of(fb)), format_duration_ms(max_of(f))));
  const double forward_ms = median_of(f), backward_ms = median_of(fb) - forward_ms,
               optimizer_ms = median_of(s) - median_of(fb);
  const double ratio = over(backward_ms, forward_ms);
  std::string out = fmt::format(
      "{}: forward takes {}, backward {} (forward and backward together less forward). Backward is "
      "{:.2f} times forward; both together are {:.2f} times forward, which is another ratio. ",
      label(step), format_duration_ms(forward_ms), format_duration_ms(backward_ms), ratio,
      over(median_of(fb), forward_ms));
  out += ratio > 1.6 && ratio < 2.4
             ? "That is near two, the ratio of their matrix products. "
             : "That is not near two, the ratio of their matrix products: other work or waiting "
               "takes part. ";
  out += min_of(s) > max_of(fb)
             ? fmt::format("AdamW adds {}. ", format_duration_ms(optimizer_ms))
             : fmt::format(
                   "AdamW's part cannot be told: a whole step's median is {} away, and the "
                   "samples overlap. ",
                   format_duration_ms(std::abs(optimizer_ms)));
  out += fmt::format(
      "The samples lie within {:.1f} % (forward), {:.1f} % and {:.1f} % (whole step) "
      "of their medians, {} of each.",
      spread_percent(forward), spread_percent(both), spread_percent(step), s.size());
  return out;
}

std::string warm_up(const Evidence& e) {
  const Row cold = e.row("warmup", {{"warmup", 0}, {"status", "ok"}});
  const Row warm = e.largest("warmup", {{"status", "ok"}}, "warmup");
  require(warm.whole("warmup") > 0, "no row has warm-up steps");
  const double settled = warm.number("median_ms"), first = cold.number("first_ms");
  std::int64_t unsettled = 0;
  for (const Row& row : e.rows("warmup", {{"status", "ok"}})) {
    unsettled = std::max(unsettled, row.whole("unsettled"));
  }
  const double factor = over(first, settled);
  std::string out = fmt::format(
      "{} {}: without warm-up the first timed step takes {}, {:.2f} times the {} that steps take "
      "after {} others. ",
      warm.text("size"), warm.text("mode"), format_duration_ms(first), factor,
      format_duration_ms(settled), warm.whole("warmup"));
  if (factor > 1.1) {
    out += fmt::format(
        "In a mean that is {} ± {} instead of {} ± {}. A first step also pays for memory touched "
        "for the first time, threads and libraries. ",
        cold.duration("mean_ms"), cold.duration("std_ms"), warm.duration("mean_ms"),
        warm.duration("std_ms"));
  } else {
    out += "That is within 10 %: this device shows no effect of warm-up. ";
  }
  out += unsettled == 0
             ? "No leading step is 10 % above those at the end of its process."
             : fmt::format(
                   "The first {} of a process lie 10 % or more above those at its end, so fewer "
                   "warm-up steps than that would differ.",
                   unsettled == 1 ? "step" : fmt::format("{} steps", unsettled));
  return out;
}

std::string validity(const Evidence& e) {
  const std::vector<Row> rows = e.rows("validity");
  std::size_t sound = 0;
  struct Doubt {
    std::size_t count = 0;
    std::string first;
  };
  std::map<std::string, Doubt> doubts;
  for (const Row& row : rows) {
    const std::string verdict = row.text("verdict");
    if (verdict == "ok" || verdict.starts_with("notes")) {
      ++sound;
      continue;
    }
    Doubt& doubt = doubts[verdict];
    if (doubt.count++ == 0) doubt.first = row.text("cell");
  }
  std::string out = fmt::format(
      "{} of {} timed rows stand without a doubt of the validity checker. ", sound, rows.size());
  for (const auto& [verdict, doubt] : doubts) {
    out += fmt::format("{} with {} (first: {}). ", doubt.count, verdict, doubt.first);
  }
  return out + (sound == rows.size() ? "Every time is what its label says."
                                     : "Read those with the reasons in the table.");
}

std::string sizes(const Evidence& e) {
  const Row large =
      e.largest("cells", {{"mode", "forward"}, {"ops", "fused"}, {"status", "ok"}}, "flops");
  std::optional<Row> other;
  for (const Row& row :
       e.rows("cells", {{"mode", "forward"}, {"ops", "fused"}, {"status", "ok"}})) {
    if (row.text("size") != large.text("size")) other = row;
  }
  require(other.has_value(), "only one size was timed");
  const auto per_layer = [&](const Row& row) {
    return over(row.number("median_ms"),
                e.row("sizes", {{"size", row.text("size")}}).number("layers"));
  };
  const double time = over(large.number("median_ms"), other->number("median_ms"));
  const double flops = over(large.number("flops"), other->number("flops"));
  const double layer = over(per_layer(large), per_layer(*other));
  std::string out = fmt::format(
      "From {} to {} a forward pass has {:.1f} times the FLOPs and takes {:.1f} times as long; a "
      "layer takes {:.2f} times as long. ",
      other->text("size"), large.text("size"), flops, time, layer);
  if (layer < 1.15 && flops > 2.0) {
    return out +
           "Time per layer does not depend on its size: both are bound by launching kernels, "
           "and neither time says what the device can compute.";
  }
  if (time < 0.7 * flops) {
    return out + "Time grows more slowly than the work: the smaller one uses the device less well.";
  }
  return out + (time > 1.4 * flops
                    ? "Time grows faster than the work: the larger one leaves a cache "
                      "or the machine was busy."
                    : "Time follows the work.");
}

std::string contexts(const Evidence& e) {
  const Row last = e.largest("scaling", {{"mode", "step"}, {"status", "ok"}}, "context");
  const Evidence::Where same = {{"size", last.text("size")}, {"mode", "step"}, {"status", "ok"}};
  std::vector<double> x, y;
  std::optional<Row> half;
  for (const Row& row : e.rows("scaling", same)) {
    x.push_back(std::log(row.number("context")));
    y.push_back(std::log(row.number("median_ms")));
    if (2 * row.whole("context") == last.whole("context")) half = row;
  }
  require(x.size() >= 3 && half, "there are no three contexts, each twice the one before");
  const double mean_x = mean_of(x), mean_y = mean_of(y);
  double xy = 0, xx = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean_x) * (y[i] - mean_y);
    xx += (x[i] - mean_x) * (x[i] - mean_x);
  }
  const double slope = over(xy, xx);
  const double time = over(last.number("median_ms"), half->number("median_ms"));
  const double flops = over(last.number("flops"), half->number("flops"));
  return fmt::format(
      "{}, batch {}: over {} contexts the time of a step grows like T^{:.2f}. From {} to {} tokens "
      "it grows {:.2f} times with {:.2f} times the FLOPs. {}",
      last.text("size"), last.whole("batch"), x.size(), slope, half->whole("context"),
      last.whole("context"), time, flops,
      slope < 0.8   ? "That is less than proportional: short contexts do not fill the device."
      : slope > 1.2 ? "That is more than proportional: attention's T² part shows."
                    : "That is about proportional: attention's T² part is still small.");
}

// Of the largest model whose samples tell the two apart, or tell that they are the same.
std::string fused(const Evidence& e) {
  const Row largest = e.largest("granularity", {{"mode", "step"}}, "primitive_ms");
  std::optional<Row> clear;
  for (const Row& row : e.rows("granularity", {{"mode", "step"}})) {
    const bool larger = !clear || row.number("primitive_ms") > clear->number("primitive_ms");
    if (row.text("verdict") != "unclear" && larger) clear = row;
  }
  require(clear.has_value(),
          fmt::format("for {} these samples do not tell a ratio of {:.3f} from chance (p = {:.3f}; "
                      "an interval takes six of each)",
                      largest.text("size"), largest.number("ratio"), largest.number("p")));
  const Row& row = *clear;
  const std::string verdict = row.text("verdict");
  const double ratio = row.number("ratio");
  return fmt::format(
      "{}: a step takes {} with one kernel per composite and {} in primitive ops, as plain "
      "framework code runs it: {} ({:.2f} times the time, p = {:.3f} that this is chance). The "
      "peak "
      "goes from {} to {}.",
      row.text("size"), row.duration("fused_ms"), row.duration("primitive_ms"),
      verdict == "same" ? "no difference that matters"
                        : fmt::format("fused is {}", ratio < 1.0 ? "faster" : "slower"),
      ratio, row.number("p"), row.bytes("primitive_peak_bytes"), row.bytes("fused_peak_bytes"));
}

constexpr Question kQuestions[] = {
    {"pass-times", "Time",
     "How long do forward, backward and optimizer take, and how steady is it?",
     "tracestep bench --size small --mode forward,forward-backward,step", pass_times},
    {"warm-up", "Time", "What do warm-up steps leave out, and how many are enough?",
     "tracestep bench --warmup-study 0,1,2,5", warm_up},
    {"validity", "Time", "Is every time what its label says?", "tracestep bench", validity},
    {"sizes", "Time", "Does the time of a pass grow with the work from size to size?",
     "tracestep bench --size small,medium --mode forward", sizes},
    {"contexts", "Time", "How does the time of a step grow with the context?",
     "tracestep bench --size small --context 128,256,512,1024 --mode step", contexts},
    {"fused", "Time", "What do fused kernels save against primitive ops?",
     "tracestep bench --size small --ops fused,primitive --mode step", fused},
};

}  // namespace

std::span<const Question> time_questions() {
  return kQuestions;
}

}  // namespace tracestep
