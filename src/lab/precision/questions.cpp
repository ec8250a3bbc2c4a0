// Questions about number formats: sums, mixed precision, normalisation, and what a step gains.
#include <algorithm>

#include "lab/measure/elsewhere.h"
#include "lab/measure/noise.h"
#include "lab/precision/tables.h"
#include "lab/report/question.h"
#include "nn/scopes.h"

namespace tracestep {
namespace {

using Row = Evidence::Row;

Quantity size_of_error(const Row& row) {
  const Quantity error = row.get("error");
  return error.value < 0 ? -1.0 * error : error;
}

Text sums(const Evidence& e) {
  const auto sum = [&](const char* name) { return e.row("accumulation", {{"experiment", name}}); };
  const Row f32 = sum("1: f32 + f32"), f16 = sum("2: f16 + f16"), mixed = sum("3: f32 + f16"),
            cast = sum("4: f32 + f16, cast first");
  const Relation same = compare_texts(mixed, cast, "sum");
  // The error of the stored term alone, before any addition rounds.
  const Quantity exact = mixed.get("count") * mixed.get("term_value"),
                 goal = f32.get("value") - f32.get("error");
  const Relation stored = compare(mixed.get("term_value"), goal / mixed.get("count"));
  return say("{} times {} is {} in float32, {} in float16, and {} when float16 terms are added in "
             "float32{}. ",
             {whole(f32.get("count")), f32.quote("term"), f32.quote("sum"), f16.quote("sum"),
              mixed.quote("sum"),
              same.is(Ordering::kEqual)
                  ? because(same, ", which is the same with the cast written or implied")
                  : say("; with the cast written it is {}", {cast.quote("sum")})}) +
         compare(size_of_error(f16), size_of_error(mixed))
             .say({.less = "Here the accumulator's format does not decide the error. ",
                   .equal = "Here the accumulator's format does not decide the error. ",
                   .more = "So the accumulator's format decides more of the error than the terms' "
                           "does. "}) +
         say("In float16 {} is stored as {}: ", {mixed.quote("term"), mixed.quote("term_stored")}) +
         stored.say({.less = "that is below it, and the exact sum of such terms is ",
                     .equal = "that is equal to it, and the exact sum of such terms is ",
                     .more = "that is above it, and the exact sum of such terms is "}) +
         say("{}.", {significant(exact, 10)});
}

Text stalls(const Evidence& e) {
  const std::vector<Row> all = e.rows("accumulation");
  std::vector<Row> rows;
  for (const Row& row : all) {
    if (row.has("stalls_after")) rows.push_back(row);
  }
  if (rows.empty()) {
    return because(compare(count_of(all, "stalls_after"), Quantity::constant(0)),
                   "None of these sums stops growing.");
  }
  std::vector<Text> list;
  for (const Row& row : rows) {
    list.push_back(say("\"{}\" after {} of {} additions of {}, at {}",
                       {row.quote("experiment"), whole(row.get("stalls_after")),
                        whole(row.get("count")), row.quote("term"), row.quote("sum")}));
  }
  const Row earliest = *std::ranges::min_element(
      rows, {}, [](const Row& row) { return row.get("stalls_after").value; });
  const Relation least = compare(earliest.get("stalls_after"), least_of(rows, "stalls_after"));
  return say(
      "These sums stop growing: {}. {} is \"{}\", by the count of additions: from there adding a "
      "term rounds back to the "
      "sum itself.",
      {join(list, "; "), because(least, "The earliest to stop"), earliest.quote("experiment")});
}

Text dtypes(const Evidence& e) {
  std::vector<Text> list;
  for (const char* format : {"f16", "bf16"}) {
    const auto dtype = [&](const char* value) {
      return e.row("autocast", {{"autocast", format}, {"value", value}}).quote("dtype");
    };
    list.push_back(
        say("{} the parameters are {}, the first layer's output {}, ReLU's {}, the layer "
            "norm's {}, the logits {}, the loss {} and the gradients {}",
            {e.row("autocast", {{"autocast", format}}).quote("autocast"),
             dtype("parameter fc1.weight"), dtype("fc1"), dtype("relu"), dtype("ln"),
             dtype("logits"), dtype("loss"), dtype("gradient fc1.weight")}));
  }
  const Row norm = e.row("autocast", {{"autocast", "f16"}, {"value", "ln"}});
  return say(
      "Under autocast to {}. Why the norm's is {}: {} (its weight is a parameter, and sums "
      "run in float32).",
      {join(list, "; under autocast to "), norm.quote("dtype"), norm.quote("reason")});
}

// Which steps of a layer norm are sensitive in a format, and how many rows are lost.
Text sensitive_steps(const Evidence& e, const char* format, const char* name) {
  std::vector<Row> rows;
  std::vector<Text> sensitive, losing;
  for (const Row& row : e.rows("norms", {{"norm", "layer norm"}, {"format", format}})) {
    const std::string verdict = row.text("verdict"), step = row.text("step");
    if (step == "all of them" || step == "none") continue;
    rows.push_back(row);
    const Text where =
        say("{} at inputs of {}", {row.quote("step"), significant(row.get("input_scale"), 4)});
    if (verdict.starts_with("sensitive")) sensitive.push_back(where);
    if (verdict.starts_with("lost")) losing.push_back(where);
  }
  require(!rows.empty(), "no step of a layer norm was tried by itself");
  const Quantity lost = most_of(rows, "lost_percent");
  const Row most = *std::ranges::max_element(
      rows, {}, [](const Row& row) { return row.get("lost_percent").value; });
  return say("In {} {}, and ",
             {name, sensitive.empty()
                        ? Text("no step is sensitive")
                        : say("these are sensitive, off by over {} roundings: {}",
                              {whole(Quantity::constant(4)), join(sensitive, ", ")})}) +
         compare(lost, Quantity::constant(0))
             .say({.less = "the count of lost rows is below nothing. ",
                   .equal = "no row is lost to overflow or to zero. ",
                   .more = say(
                       "up to {} of the rows are lost to overflow or to zero, at inputs of {}{}. ",
                       {percent(lost), significant(most.get("input_scale"), 4),
                        losing.empty() ? Text() : say(", by {}", {join(losing, ", ")})})});
}

Text norms(const Evidence& e) {
  const Row half = e.row("formats", {{"format", "f16"}}),
            bf16 = e.row("formats", {{"format", "bf16"}}),
            single = e.row("formats", {{"format", "f32"}});
  return say("Layer norm, one step at a time in the narrow format: {}{}In float16 the squares of "
             "numbers up to {} are finite, and {} is {} number. ",
             {sensitive_steps(e, "f16", "float16"), sensitive_steps(e, "bf16", "bfloat16"),
              significant(half.get("largest_square"), 6),
              significant(e.row("formats", {{"format", "f64"}}).get("epsilon_as"), 1),
              half.truth("epsilon_is_normal") ? "a normal" : "no normal"}) +
         compare_with_range(bf16.get("max") / single.get("max"), 0.9, 1.1)
             .say({.less = "bfloat16 does not cure the range, which is below float32's.",
                   .equal = "bfloat16 cures the range, which is about the same as float32's; its "
                            "sums still want float32.",
                   .more =
                       "bfloat16 cures the range, which is above float32's; its sums still want "
                       "float32."});
}

Text formats(const Evidence& e) {
  const Row f32 = e.row("formats", {{"format", "f32"}}),
            f16 = e.row("formats", {{"format", "f16"}}),
            bf16 = e.row("formats", {{"format", "bf16"}});
  const auto words = [](const char* name, const Row& row) {
    return say("{}: {} exponent and {} mantissa bits, up to {}, spacing {} next to one. ",
               {name, whole(row.get("exponent_bits")), whole(row.get("mantissa_bits")),
                significant(row.get("max"), 4), significant(row.get("spacing_at_one"), 2)});
  };
  return words("float32", f32) + words("float16", f16) + words("bfloat16", bf16) +
         compare_with_range(bf16.get("max") / f32.get("max"), 0.9, 1.1)
             .say({.less = "bfloat16's range is below float32's",
                   .equal = "bfloat16's range is about the same as float32's",
                   .more = "bfloat16's range is above float32's"}) +
         compare(bf16.get("spacing_at_one"), f16.get("spacing_at_one"))
             .say({.less = ", and its steps are finer than float16's.",
                   .equal = ", and its steps are equal to float16's.",
                   .more = ", and its steps are coarser than float16's."});
}

// The bfloat16 steps that ran, each with the same step in float32, by the time of the latter.
std::vector<std::pair<Row, Row>> pairs_of(const Evidence& e) {
  std::vector<std::pair<Row, Row>> out;
  for (const Row& low : e.rows("steps", {{"precision", "bf16"}, {"status", "ok"}})) {
    out.emplace_back(low, e.beside(low, {{"precision", "fp32"}, {"status", "ok"}}));
  }
  std::ranges::stable_sort(out, {},
                           [](const auto& pair) { return pair.second.get("median_ms").value; });
  return out;
}

Text by_size(const Evidence& e) {
  const std::vector<std::pair<Row, Row>> pairs = pairs_of(e);
  require(pairs.size() >= 2, "there is one size only");
  std::vector<Text> list;
  for (const auto& [low, full] : pairs) {
    list.push_back(say("{} {} in float32 and {} in bfloat16, a quotient of {}",
                       {low.model(), duration(time_of(full)), duration(time_of(low)),
                        decimal(time_of(full) / time_of(low))}));
  }
  const auto gain = [](const std::pair<Row, Row>& pair) {
    return time_of(pair.second) / time_of(pair.first);
  };
  return say("{}. ", {join(list, "; ")}) +
         compare(gain(pairs.back()), gain(pairs.front()))
             .say(
                 {.less = say("From {} to {} the gain falls.",
                              {pairs.front().first.model(), pairs.back().first.model()}),
                  .equal = "The gain is the same.",
                  .unclear = "Whether the gain depends on the size cannot be told from this noise.",
                  .more = say("From {} to {} the gain rises.",
                              {pairs.front().first.model(), pairs.back().first.model()})});
}

// What the steps in other formats give, of the same run but for that.
Text in_other_formats(const Evidence& e, const Row& low) {
  std::vector<Text> list;
  for (const Row& row : e.rows("steps", {{"size", low.text("size")},
                                         {"vocab", low.whole("vocab")},
                                         {"context", low.whole("context")},
                                         {"mode", low.text("mode")},
                                         {"ops", low.text("ops")},
                                         {"status", "ok"}})) {
    const std::string precision = row.text("precision");
    if (precision == "fp32" || precision == low.text("precision")) continue;
    const auto error = row.get_if("gradient_error");
    list.push_back(
        say("{} {}{}", {row.quote("precision"), duration(row.get("median_ms")),
                        error ? say(" (gradients off by {})", {significant(*error, 2)}) : Text()}));
  }
  return list.empty() ? Text() : say(" In other formats: {}.", {join(list, ", ")});
}

// The float32 times of these components where the study has recorded such a step in another part;
// empty where it has not. Two recordings of one step show what their times are good for.
Text recorded_elsewhere(const Evidence& e, const Row& scores, const Row& softmax) {
  const auto full = e.find("cells", {{"size", scores.text("size")},
                                     {"context", scores.whole("context")},
                                     {"mode", "step"},
                                     {"ops", scores.text("ops")},
                                     {"precision", "fp32"}});
  if (!full) return {};
  std::vector<Text> list;
  for (const Row& row : {scores, softmax}) {
    const auto other =
        e.find("time_by_component@" + full->text("label"), {{"component", row.text("component")}});
    if (other && other->has("forward_ms")) list.push_back(duration(other->get("forward_ms")));
  }
  if (list.size() != 2) return {};
  return say(" Another recorded step in float32 has {} for these.", {join(list, " and ")});
}

Text scores_by_precision(const Evidence& e) {
  const auto part = [](std::string_view name) { return scope::path({scope::kAttention, name}); };
  const Row row =
      e.largest("precision_components",
                {{"precision", "bf16"}, {"component", part(scope::kScores)}}, "forward_ms");
  const Row softmax = e.beside(row, {{"component", part(scope::kSoftmax)}});
  const auto times = [](const Row& r) {
    return say(
        "{} in float32 and {} times that, {}, under bfloat16 autocast",
        {duration(r.get("fp32_forward_ms")),
         decimal(r.get("forward_ms") / r.get("fp32_forward_ms")), duration(r.get("forward_ms"))});
  };
  return say("{}, context {}, forward, all layers: the product of scores takes {}; softmax {}. The "
             "casts that autocast puts before an op are counted in its time.",
             {row.model(), whole(row.get("context")), times(row), times(softmax)}) +
         recorded_elsewhere(e, row, softmax);
}

Text lower_precision(const Evidence& e) {
  const std::vector<std::pair<Row, Row>> pairs = pairs_of(e);
  const auto has_errors = std::ranges::find_if(
      pairs, [](const auto& pair) { return pair.first.has("gradient_error"); });
  require(has_errors != pairs.end(), "no step in bfloat16 was held against float64");
  const auto& [low, full] = *has_errors;
  const Quantity slow = time_of(full), fast = time_of(low),
                 peak = 100.0 * (low.get("peak_bytes") / full.get("peak_bytes")) -
                        Quantity::constant(100);
  const auto deviation = [](const Row& row) { return duration(row.get("std_ms")); };
  return say("{} {}, context {}: float32 takes {} (deviation {}) and bfloat16 autocast {} ({}): ",
             {low.model(), low.quote("mode"), whole(low.get("context")), duration(slow),
              deviation(full), duration(fast), deviation(low)}) +
         compare(fast, slow)
             .say({.less = say("{} times as fast. ", {decimal(slow / fast)}),
                   .equal = "the same. ",
                   .unclear = "not apart beyond their noise. ",
                   .more = say("slower, by {} times. ", {decimal(fast / slow)})}) +
         say("The peak is {} in float32 and {} under autocast",
             {bytes(full.get("peak_bytes")), bytes(low.get("peak_bytes"))}) +
         compare_with_range(peak, -kSamePeakPercent, kSamePeakPercent)
             .say({.less = say(", less by {}. ", {percent(-1.0 * peak)}),
                   .equal = ", about the same. ",
                   .more = say(", more by {}. ", {percent(peak)})}) +
         say("Against float64, gradients of one sequence in a model cut to {} are off by {} "
             "in float32 and {} in bfloat16 (relative, of norms).",
             {counted(low.get("error_layers"), "layer"), significant(full.get("gradient_error"), 2),
              significant(low.get("gradient_error"), 2)}) +
         at_other_times(e, full, "the step in float32") + in_other_formats(e, low);
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
    {"precision-by-size", "Precision", "How does what bfloat16 gains depend on the model's size?",
     "tracestep precision --part steps --size tiny,small --precision fp32,bf16", by_size},
    {"scores-by-precision", "Precision",
     "How long do attention's scores and softmax take in float32 and under autocast?",
     "tracestep precision --part steps --precision fp32,bf16", scores_by_precision},
};

}  // namespace

std::span<const Question> precision_questions() {
  return kQuestions;
}

}  // namespace tracestep
