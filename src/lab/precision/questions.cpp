// Questions about number formats: sums, mixed precision, normalisation, and what a step gains.
#include <cmath>

#include "lab/precision/tables.h"
#include "lab/report/question.h"

namespace tracestep {
namespace {

using Row = Evidence::Row;

std::string sums(const Evidence& e) {
  const auto sum = [&](const char* name) { return e.row("accumulation", {{"experiment", name}}); };
  const Row f32 = sum("1: f32 + f32"), f16 = sum("2: f16 + f16"), mixed = sum("3: f32 + f16"),
            cast = sum("4: f32 + f16, cast first");
  const double stored = std::stod(mixed.text("term_stored"));
  const bool same = mixed.text("sum") == cast.text("sum");
  const bool stays = std::abs(f16.number("error")) > std::abs(mixed.number("error"));
  return fmt::format(
      "1000 times 0.01 is {} in float32, {} in float16, and {} when float16 terms are added in "
      "float32{}. {} The mixed sum is {} 10 because 0.01 is stored as {}, not because of adding.",
      f32.text("sum"), f16.text("sum"), mixed.text("sum"),
      same ? ", whether the cast is written or implied" : "; with the cast written it is another",
      stays ? "The accumulator's format decides the error more than the terms' does."
            : "Here the accumulator's format does not decide the error.",
      stored > 0.01 ? "above" : "below", mixed.text("term_stored"));
}

std::string stalls(const Evidence& e) {
  std::string out;
  std::int64_t earliest = -1;
  std::string where;
  for (const Row& row : e.rows("accumulation")) {
    const auto at = row.number_if("stalls_after");
    if (!at) continue;
    out += fmt::format("{}{} after {:.0f} additions, at {}", out.empty() ? "" : "; ",
                       row.text("experiment"), *at, row.text("sum"));
    if (earliest < 0 || static_cast<std::int64_t>(*at) < earliest) {
      earliest = static_cast<std::int64_t>(*at);
      where = row.text("experiment");
    }
  }
  if (out.empty()) return "None of these sums stops growing.";
  return fmt::format(
      "These sums stop growing: {}. The first to stop is {}: from there a term is "
      "less than half the spacing of the format.",
      out, where);
}

std::string dtypes(const Evidence& e) {
  std::string out;
  for (const char* format : {"f16", "bf16"}) {
    const auto dtype = [&](const char* value) {
      return e.row("autocast", {{"autocast", format}, {"value", value}}).text("dtype");
    };
    out += fmt::format(
        "{}under autocast to {} the parameters are {}, the first layer's output {}, ReLU's {}, the "
        "layer norm's {}, the logits {}, the loss {} and the gradients {}",
        out.empty() ? "" : "; ", format, dtype("parameter fc1.weight"), dtype("fc1"), dtype("relu"),
        dtype("ln"), dtype("logits"), dtype("loss"), dtype("gradient fc1.weight"));
  }
  out[0] = 'U';
  const Row norm = e.row("autocast", {{"autocast", "f16"}, {"value", "ln"}});
  return fmt::format("{}. Why the norm's is {}: {}.", out, norm.text("dtype"), norm.text("reason"));
}

std::string norms(const Evidence& e) {
  std::string out;
  for (const char* format : {"f16", "bf16"}) {
    std::string sensitive;
    double lost = 0;
    for (const Row& row : e.rows("norms", {{"norm", "layer norm"}, {"format", format}})) {
      const std::string verdict = row.text("verdict"), step = row.text("step");
      if (step == "all of them" || step == "none") continue;
      lost = std::max(lost, row.number("lost_percent"));
      const bool is_named = sensitive.find(step) != std::string::npos;
      if (!is_named && (verdict.starts_with("sensitive") || verdict.starts_with("lost"))) {
        sensitive += (sensitive.empty() ? "" : ", ") + step;
      }
    }
    out += fmt::format(
        "In {} {}, and {}. ", format == std::string_view("f16") ? "float16" : "bfloat16",
        sensitive.empty() ? "no step is sensitive" : "these are sensitive: " + sensitive,
        lost > 0 ? fmt::format("up to {:.0f} % of the rows are lost to overflow or to "
                               "zero",
                               lost)
                 : "no row is lost to overflow");
  }
  const Row half = e.row("formats", {{"format", "f16"}});
  return fmt::format(
      "Layer norm, one step at a time in the narrow format: {}Squares overflow float16 above "
      "{:.1f}, "
      "and 1e-5 is {} number there. So bfloat16 {} the range, and sums still want float32.",
      out, half.number("largest_square"),
      half.truth("epsilon_is_normal") ? "a normal" : "no normal",
      e.row("formats", {{"format", "bf16"}}).number("max") > 1e30 ? "cures" : "does not cure");
}

std::string formats(const Evidence& e) {
  const Row f32 = e.row("formats", {{"format", "f32"}}),
            f16 = e.row("formats", {{"format", "f16"}}),
            bf16 = e.row("formats", {{"format", "bf16"}});
  const auto words = [](const char* name, const Row& row) {
    return fmt::format("{}: {} exponent and {} mantissa bits, up to {:.4g}, spacing {:.2g} at 1",
                       name, row.whole("exponent_bits"), row.whole("mantissa_bits"),
                       row.number("max"), row.number("spacing_at_one"));
  };
  return fmt::format("{}. {}. {}. {}", words("float32", f32), words("float16", f16),
                     words("bfloat16", bf16),
                     bf16.number("spacing_at_one") > f16.number("spacing_at_one")
                         ? "bfloat16 has float32's range and the coarser steps."
                         : "float16 has the coarser steps.");
}

std::string lower_precision(const Evidence& e) {
  const Row low = e.largest("steps", {{"precision", "bf16"}, {"status", "ok"}}, "median_ms");
  const Row full = e.row("steps", {{"precision", "fp32"},
                                   {"size", low.text("size")},
                                   {"context", low.whole("context")},
                                   {"mode", low.text("mode")},
                                   {"status", "ok"}});
  const double speed = over(full.number("median_ms"), low.number("median_ms"));
  const double spread = over(full.number("std_ms"), full.number("median_ms")) +
                        over(low.number("std_ms"), low.number("median_ms"));
  const std::string what =
      std::abs(speed - 1.0) <= spread
          ? fmt::format("no difference beyond the noise ({:.2f}x, noise {:.0f} %)", speed,
                        100.0 * spread)
      : speed > 1.0 ? fmt::format("{:.2f} times as fast", speed)
                    : fmt::format("{:.2f} times slower", 1.0 / speed);
  const double peak = over(low.number("peak_bytes"), full.number("peak_bytes"));
  return fmt::format(
      "{} {}, context {}: float32 takes {} and bfloat16 autocast {}: {}. The peak is {} against {} "
      "({}). Against float64, gradients are off by {:.2g} in float32 and {:.2g} in bfloat16 "
      "(relative, of norms).",
      low.text("size"), low.text("mode"), low.whole("context"), full.duration("median_ms"),
      low.duration("median_ms"), what, low.bytes("peak_bytes"), full.bytes("peak_bytes"),
      std::abs(peak - 1.0) < 0.005 ? "the same" : fmt::format("{:+.0f} %", 100.0 * (peak - 1.0)),
      full.number("gradient_error"), low.number("gradient_error"));
}

constexpr Question kQuestions[] = {
    {"sums", "Precision", "What do sums in float32, float16 and mixed formats give?",
     "tracestep precision --part accumulation", sums},
    {"stalls", "Precision", "Where do sums in narrow formats stop growing?",
     "tracestep precision --part accumulation", stalls},
    {"dtypes", "Precision", "Which dtype has each value of a small model under autocast?",
     "tracestep precision --part autocast", dtypes},
    {"norms", "Precision", "What in a normalisation is sensitive, and does bfloat16 cure it?",
     "tracestep precision --part norms", norms},
    {"formats", "Precision", "What can each number format hold?",
     "tracestep precision --part formats", formats},
    {"lower-precision", "Precision",
     "What does a lower precision save in time and memory, and what "
     "does it lose?",
     "tracestep precision --part steps", lower_precision},
};

}  // namespace

std::span<const Question> precision_questions() {
  return kQuestions;
}

}  // namespace tracestep
