// Questions about attention alone.
#include <algorithm>
#include <cmath>

#include "lab/attention/tables.h"
#include "lab/report/question.h"

namespace tracestep {
namespace {

using Row = Evidence::Row;

const Evidence::Where kPlain = {{"saved", "weights"}, {"status", "ok"}};

// The naive cell with the longest context and, among those, the widest heads.
Row longest(const Evidence& e) {
  const std::int64_t context = e.largest("attention", kPlain, "context").whole("context");
  Evidence::Where where = kPlain;
  where.emplace_back("context", context);
  return e.largest("attention", where, "width");
}

std::string times(const Evidence& e) {
  const Row last = longest(e);
  std::string out;
  double least = 1e300, most = 0;
  for (const Row& row :
       e.rows("attention",
              {{"saved", "weights"}, {"status", "ok"}, {"context", last.whole("context")}})) {
    out += fmt::format("{}width {}: {} and {}", out.empty() ? "" : "; ", row.whole("width"),
                       row.duration("forward_median_ms"), row.duration("backward_median_ms"));
    least = std::min(least, row.number("backward_over_forward"));
    most = std::max(most, row.number("backward_over_forward"));
  }
  const Row half = e.row("attention", {{"saved", "weights"},
                                       {"status", "ok"},
                                       {"width", last.whole("width")},
                                       {"context", last.whole("context") / 2}});
  const double growth = over(last.number("forward_median_ms"), half.number("forward_median_ms"));
  return fmt::format(
      "Batch {}, context {}, forward and backward apart: {}. Backward takes {:.2f} to {:.2f} times "
      "forward. Doubling the context to {} makes forward {:.2f} times as long{}",
      last.whole("batch"), last.whole("context"), out, least, most, last.whole("context"), growth,
      growth > 3.0   ? ": about four times, as S² work does."
      : growth > 2.2 ? ": less than the four times of S² work."
                     : ", far from the four times of S² work: something else still rules.");
}

std::string growth(const Evidence& e) {
  std::string out;
  for (const Row& row : e.rows("attention_scaling", {{"saved", "weights"}})) {
    const double tensors = row.number("tensors");
    require(row.number("largest_error_percent") < 1.0,
            fmt::format("a·S² + b·S + c misses the bytes at width {} by {:.1f} %",
                        row.whole("width"), row.number("largest_error_percent")));
    const double whole = std::round(tensors);
    out +=
        fmt::format("{}at width {} they fit {:.2f} bytes per S² ({:.2f} tensors of B·S²{})",
                    out.empty() ? "" : "; ", row.whole("width"), row.number("bytes_per_s2"),
                    tensors, std::abs(tensors - whole) < 0.05 ? "" : ", which is no whole number");
  }
  const Row last = longest(e);
  return fmt::format(
      "Bytes before backward: {}. At context {} and width {} they are {}; the peak is "
      "{}.",
      out, last.whole("context"), last.whole("width"), last.bytes("before_backward_bytes"),
      last.bytes("peak_bytes"));
}

std::string variants(const Evidence& e) {
  std::string out;
  double before = 0;
  bool rises = true;
  for (const char* saved : {"weights", "scores+weights", "scores+exp+weights"}) {
    const Row row = e.row("attention_scaling", {{"saved", saved}, {"precision", "fp32"}});
    const double tensors = row.number("tensors");
    rises = rises && tensors > before + 0.5;
    before = tensors;
    out += fmt::format("{}{}: {:.2f}", out.empty() ? "" : ", ", saved, tensors);
  }
  require(rises, fmt::format("the variants do not differ by one tensor each ({})", out));
  return fmt::format(
      "N² tensors alive before backward, by what an implementation keeps: {}. So the "
      "bytes alone tell the implementations apart, and their times are not of the "
      "same work.",
      out);
}

std::string out_of_memory(const Evidence& e) {
  const std::vector<Row> all = e.rows("attention", {{"saved", "weights"}});
  std::size_t failed = 0;
  std::string first;
  for (const Row& row : all) {
    if (row.text("status") != "oom") continue;
    ++failed;
    if (first.empty()) {
      first = fmt::format("width {}, context {}", row.whole("width"), row.whole("context"));
    }
  }
  std::string out =
      failed == 0
          ? fmt::format("None of these {} cells ran out of memory. ", all.size())
          : fmt::format("{} of {} cells ran out of memory, first {}. ", failed, all.size(), first);
  for (const Row& row : e.rows("attention_predicted")) {
    if (row.truth("fits")) continue;
    return out + fmt::format(
                     "Predicted from the program, the first context that does not fit this "
                     "device's {} at width {} is {}: it needs {} at the peak.",
                     row.bytes("device_bytes"), row.whole("width"), row.whole("context"),
                     row.bytes("peak_bytes"));
  }
  const Row last = e.largest("attention_predicted", {}, "context");
  return out + fmt::format("Predicted from the program, {} still fits {} ({} at the peak).",
                           last.whole("context"), last.bytes("device_bytes"),
                           last.bytes("peak_bytes"));
}

std::string removes(const Evidence& e) {
  const Row last = longest(e);
  const double bytes = last.number("before_backward_bytes"), square = last.number("saved_bytes");
  const double share = 100.0 * over(square, bytes);
  std::string out = fmt::format(
      "Of the {} before backward at context {}, width {}, {} ({:.1f} %) are tensors of S²; the "
      "rest, "
      "{}, grows with S. {} ",
      bytes_text(bytes), last.whole("context"), last.whole("width"), bytes_text(square), share,
      bytes_text(bytes - square),
      share > 50.0 ? "An attention that never stores the scores removes the larger part."
                   : "At this size the S² part is not yet what matters.");
  const Row flash = e.row("attention", {{"attention", "flash"},
                                        {"status", "ok"},
                                        {"context", last.whole("context")},
                                        {"width", last.whole("width")}});
  const double forward = over(last.number("forward_median_ms"), flash.number("forward_median_ms")),
               backward =
                   over(last.number("backward_median_ms"), flash.number("backward_median_ms"));
  const auto pace = [](double ratio) {
    return ratio >= 1.0 ? fmt::format("{:.2f} times as fast", ratio)
                        : fmt::format("{:.2f} times slower", 1.0 / ratio);
  };
  return out + fmt::format(
                   "Measured: the flash form, tile by tile, holds {} instead and {} at the "
                   "peak instead of {}; its forward is {} and its backward, which computes "
                   "the scores again, {}.",
                   flash.bytes("before_backward_bytes"), flash.bytes("peak_bytes"),
                   last.bytes("peak_bytes"), pace(forward), pace(backward));
}

constexpr Question kAttention[] = {
    {"attention-times", "Attention",
     "How long do attention's forward and its backward alone take as the context grows?",
     "tracestep attention", times},
    {"attention-bytes", "Attention", "How do attention's bytes grow with the context?",
     "tracestep attention", growth},
    {"attention-variants", "Attention", "What do one, two or three saved N² tensors cost?",
     "tracestep attention --saved weights,scores+weights,scores+exp+weights", variants},
    {"attention-limit", "Attention", "Where does attention run out of memory?",
     "tracestep attention --memory-limit 40GiB", out_of_memory},
    {"attention-cure", "Attention", "What would remove the cost?",
     "tracestep attention --attention naive,flash", removes},
};

}  // namespace

std::span<const Question> attention_questions() {
  return kAttention;
}

}  // namespace tracestep
