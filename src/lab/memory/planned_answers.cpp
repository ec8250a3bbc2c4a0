#include "lab/memory/planned_answers.h"

#include <algorithm>

#include <fmt/format.h>

#include "lab/measure/noise.h"
#include "nn/scopes.h"

namespace tracestep {
namespace {

using Row = Evidence::Row;

// The rows of the size that is predicted, by context.
std::vector<Row> planned_rows(const Evidence& e, const char* mode, const char* precision) {
  const std::string size = e.largest("memory_grid", {}, "parameters").text("size");
  std::vector<Row> out =
      e.rows("memory_grid", {{"size", size}, {"mode", mode}, {"precision", precision}});
  std::ranges::sort(out, {}, [](const Row& row) { return row.whole("context"); });
  return out;
}

Quantity peak_of(const Row& row) {
  return row.get("predicted_peak_bytes");
}

// "17.93 GiB at context 128, 24.18 GiB at context 256"
Text by_context(const std::vector<Row>& rows, const char* column) {
  std::vector<Text> list;
  for (const Row& row : rows) {
    list.push_back(say("{} at context {}", {bytes(row.get(column)), whole(row.get("context"))}));
  }
  return join(list, ", ");
}

// How the largest allocation of a component grows from the shortest planned context to the longest.
Text growth_of(const Evidence& e, const std::string& size, const std::string& component,
               const char* group) {
  const Evidence::Where where = {{"size", size},
                                 {"mode", "step"},
                                 {"precision", "fp32"},
                                 {"component", component},
                                 {"group", group}};
  const Row most = e.largest("planned_components", where, "context");
  Row least = most;
  for (const Row& row : e.rows("planned_components", where)) {
    if (row.whole("context") < least.whole("context")) least = row;
  }
  const Quantity times = most.get("context") / least.get("context"),
                 growth = most.get("largest_bytes") / least.get("largest_bytes"),
                 slope = log(growth) / log(times);
  return say("{} ({}, {}) from {} at context {} to {} at context {}",
             {most.quote("component"), most.quote("group"), most.quote("op"),
              bytes(least.get("largest_bytes")), whole(least.get("context")),
              bytes(most.get("largest_bytes")), whole(most.get("context"))}) +
         compare_with_range(slope, 1.5, 2.5)
             .say({.less = compare_with_range(slope, -0.2, 0.2)
                               .say({.equal = ", which does not depend on the context"}) +
                           compare_with_range(slope, 0.8, 1.2)
                               .say({.equal = ", in proportion to the context"}),
                   .equal = ", with the square of the context"});
}

// What autocast makes of it at the longest context: its bytes beside those in float32.
Text narrowed(const Evidence& e, const std::string& size, const std::string& component,
              const char* group) {
  const Row row = e.largest("planned_components",
                            {{"size", size},
                             {"mode", "step"},
                             {"precision", "bf16"},
                             {"component", component},
                             {"group", group}},
                            "context");
  const Quantity ratio = row.get("largest_bytes") / row.get("fp32_bytes");
  return say("{} ({}) has {} at context {} where float32 has {}",
             {row.quote("component"), row.quote("group"), bytes(row.get("largest_bytes")),
              whole(row.get("context")), bytes(row.get("fp32_bytes"))}) +
         compare_with_range(ratio, 0.9, 1.1)
             .say({.less = " (narrowed)", .equal = " (as it was)", .more = " (grown)"});
}

// How the bytes saved for backward change, over these rows and those in float32 beside them.
Text saved_in_low_precision(const Evidence& e, const std::vector<Row>& rows) {
  std::optional<Quantity> least, most;
  for (const Row& row : rows) {
    const Quantity full = e.beside(row, {{"precision", "fp32"}}).get("saved_bytes");
    if (full.value <= 0) continue;  // inference saves nothing
    const Quantity change = 100.0 * (row.get("saved_bytes") / full) - Quantity::constant(100);
    if (!least || change.value < least->value) least = change;
    if (!most || change.value > most->value) most = change;
  }
  if (!least) return {};
  return say(" What is saved for backward changes by {} to {}.",
             {signed_percent(*least), signed_percent(*most)});
}

// A step of the ladder from plain to compiled, before and after its rung of bfloat16.
std::optional<Text> ladder_in_low_precision(const Evidence& e) {
  if (!e.find("ladder", {{"precision", "bf16"}, {"status", "ok"}})) return std::nullopt;
  const std::vector<Row> rungs = e.rows("ladder", {{"status", "ok"}});
  for (std::size_t i = 1; i < rungs.size(); ++i) {
    const Row &full = rungs[i - 1], &low = rungs[i];
    if (full.text("precision") != "fp32" || low.text("precision") != "bf16") continue;
    const Quantity change =
        100.0 * (low.get("peak_bytes") / full.get("peak_bytes")) - Quantity::constant(100);
    return say("{} {} (a rung of the ladder, {})",
               {low.model(), signed_percent(change), low.quote("mode")});
  }
  return std::nullopt;
}

// Other models, of which steps were measured in both precisions; empty where there are none.
Text measured_low_precision(const Evidence& e, bool is_more_predicted) {
  if (!e.find("steps", {{"precision", "bf16"}, {"status", "ok"}})) return {};
  std::vector<Text> list;
  std::optional<Quantity> most;
  for (const Row& low : e.rows("steps", {{"precision", "bf16"}, {"status", "ok"}})) {
    const Row full = e.beside(low, {{"precision", "fp32"}, {"status", "ok"}});
    const Quantity change =
        100.0 * (low.get("peak_bytes") / full.get("peak_bytes")) - Quantity::constant(100);
    list.push_back(say("{} {} ({}, {} ops)",
                       {low.model(), signed_percent(change), low.quote("mode"), low.quote("ops")}));
    if (!most || change.value > most->value) most = change;
  }
  if (const auto rung = ladder_in_low_precision(e)) list.push_back(*rung);
  const Text out = say(" Of models that ran, the peak changes by: {}.", {join(list, ", ")});
  if (!is_more_predicted) return out;
  return out + compare_with_range(*most, -kSamePeakPercent, kSamePeakPercent)
                   .say({.less = " There it takes less: what comes out depends on the model and "
                                 "on its operations."});
}

}  // namespace

namespace planned {

Text components(const Evidence& e) {
  const std::string gate = scope::path({scope::kFeedForward, scope::kGate});
  const std::pair<std::string, const char*> shown[] = {
      {scope::path({scope::kAttention, scope::kScores}), "activation"},
      {scope::path({scope::kAttention, scope::kSoftmax}), "activation"},
      {gate, "activation"},
      {gate, "gradient"}};
  const Row model = e.largest("planned_components", {{"mode", "step"}}, "context");
  std::vector<Text> growth, low;
  for (const auto& [component, group] : shown) {
    growth.push_back(growth_of(e, model.text("size"), component, group));
    low.push_back(narrowed(e, model.text("size"), component, group));
  }
  return say("{}, predicted, single allocations by component: {}. Under bfloat16 autocast: {}.",
             {model.model(), join(growth, "; "), join(low, "; ")});
}

Text peaks(const Evidence& e) {
  const std::vector<Row> forward = planned_rows(e, "forward", "fp32"),
                         rows = planned_rows(e, "step", "fp32");
  require(rows.size() >= 3, "there are no three contexts");
  const std::size_t n = rows.size();
  const Quantity last = peak_of(rows[n - 1]) - peak_of(rows[n - 2]),
                 before = peak_of(rows[n - 2]) - peak_of(rows[n - 3]);
  Text out = say("{}, predicted from the program: forward: {}; a training step: {}. ",
                 {rows[0].model(), by_context(forward, "predicted_peak_bytes"),
                  by_context(rows, "predicted_peak_bytes")});
  const Relation flat = compare_with_range(before / peak_of(rows[n - 2]), -0.01, 0.01);
  const auto interval = [&](std::size_t i) {
    return say("from {} to {}", {whole(rows[i - 1].get("context")), whole(rows[i].get("context"))});
  };
  if (flat.is(Ordering::kEqual)) {
    return out + say("{}: there the static bytes set the peak. The growth {} adds {}.",
                     {because(flat,
                              "Between the contexts before the last a training step's peak stays "
                              "about the same"),
                      interval(n - 1), bytes(last)});
  }
  // In proportion to the tokens, the growths would be as the differences of the contexts.
  const auto tokens = [&](std::size_t i) {
    return rows[i].get("context") - rows[i - 1].get("context");
  };
  const Quantity per_token = (last / tokens(n - 1)) / (before / tokens(n - 2));
  return out +
         say("The growth {} adds {}, and that {} adds {}. ",
             {interval(n - 1), bytes(last), interval(n - 2), bytes(before)}) +
         compare_with_range(per_token, 0.9, 1.1)
             .say({.less = "Per token that is less than before.",
                   .equal = "Per token that is about the same: the growth is linear here.",
                   .more = "Per token that is more than before, so the T² part already counts."});
}

Text low_precision(const Evidence& e) {
  std::vector<Text> list;
  std::vector<Row> rows;
  for (const char* mode : {"inference", "forward", "step"}) {
    for (const Row& row : planned_rows(e, mode, "bf16")) {
      const Row full = e.beside(row, {{"precision", "fp32"}});
      list.push_back(say("{} {} {} ({} in float32)",
                         {row.quote("mode"), whole(row.get("context")),
                          signed_percent(row.get("versus_fp32_percent")), bytes(peak_of(full))}));
      rows.push_back(row);
    }
  }
  const Relation least = compare_with_range(least_of(rows, "versus_fp32_percent"),
                                            -kSamePeakPercent, kSamePeakPercent),
                 most = compare_with_range(most_of(rows, "versus_fp32_percent"), -kSamePeakPercent,
                                           kSamePeakPercent);
  const bool has_less = least.is(Ordering::kLess), has_more = most.is(Ordering::kMore);
  const char* reading = has_more && has_less ? "It takes more at some of these and less at others."
                        : has_more           ? "It takes more, or about as much, at each of these."
                        : has_less           ? "It takes less, or about as much, at each of these."
                                             : "It takes about the same at each of these.";
  return say("{} under bfloat16 autocast, against float32, batch {}, predicted: {}. {} The float32 "
             "weights stay, and up to {} of narrow copies of them come on top.",
             {rows[0].model(), whole(rows[0].get("batch")), join(list, ", "),
              because(both(least, most), reading), bytes(most_of(rows, "weight_cast_bytes"))}) +
         saved_in_low_precision(e, rows) + measured_low_precision(e, has_more);
}

Text which_forward(const Evidence& e) {
  const Row forward = planned_rows(e, "forward", "fp32").back();
  const Row inference = e.beside(forward, {{"mode", "inference"}}),
            step = e.beside(forward, {{"mode", "step"}});
  const Quantity ratio = peak_of(forward) / peak_of(inference);
  return say("{} at context {}: {} when nothing is kept for backward, {} when forward keeps it, {} "
             "for a whole step. ",
             {forward.model(), whole(forward.get("context")), bytes(peak_of(inference)),
              bytes(peak_of(forward)), bytes(peak_of(step))}) +
         compare_with_range(ratio, 1 / 1.2, 1.2)
             .say({.less = "The forward that keeps values would take less, which cannot be.",
                   .equal = "Here both forwards take about the same, and it hardly matters which "
                            "one is meant.",
                   .more = say("A forward peak says more only with its mode: the first two differ "
                               "{} times.",
                               {decimal(ratio, 1)})});
}

Text residual(const Evidence& e) {
  const std::vector<Row> rows = planned_rows(e, "forward", "fp32");
  Text out = say("One tensor of the residual stream of {} in float32 is {}: B·T·C elements. ",
                 {rows[0].model(), by_context(rows, "residual_bytes")});
  const Row &first = rows.front(), &last = rows.back();
  if (first.whole("context") < last.whole("context")) {
    const auto growth = [&](const char* column) { return last.get(column) / first.get(column); };
    out += compare(growth("residual_bytes"), growth("context"))
               .say({.less = "That is less than in proportion to the context. ",
                     .equal = "That is in proportion to the context. ",
                     .more = "That is more than in proportion to the context. "});
  }
  return out + "One tensor is not the step's activations.";
}

Text static_bytes(const Evidence& e) {
  const Row model =
      e.largest("memory_grid", {{"mode", "step"}, {"precision", "fp32"}}, "parameters");
  const Row size = e.row("sizes", {{"size", model.text("size")}});
  const Quantity parameters = size.get("parameters"), before = size.get("before_bytes"),
                 held = size.get("static_bytes");
  Text out =
      say("{} has {} parameters. Its weight and AdamW's two moments in float32 take {} for each "
          "parameter together, {} in all before any activation. With its gradient that is {}, {} "
          "in all when backward ends, whose activations are gone by then. ",
          {size.model(), whole(parameters), bytes(before / parameters), bytes(before),
           bytes(held / parameters), bytes(held)});
  if (const auto room = size.get_if("device_bytes")) {
    out += compare(held, *room)
               .say({.less = "That is less than this device's memory or the limit set for it",
                     .equal = "That is as much as this device's memory or the limit set for it",
                     .more = "That is more than this device's memory or the limit set for it"}) +
           say(", {}, of which a driver may hold a part.", {bytes(*room)});
  }
  return out;
}

Text two_graphs(const Evidence& e) {
  const std::vector<Row> rows = e.rows("live_graphs");
  std::vector<Text> only;
  for (const Row& row : rows) {
    const Quantity limit = row.get("limit_bytes"), two = row.get("two_graphs_bytes"),
                   backward = row.get("with_backward_bytes");
    if (two.value <= limit.value || backward.value > limit.value) continue;
    only.push_back(say("{} at context {} ({} against {})",
                       {row.model(), whole(row.get("context")), bytes(two), bytes(backward)}));
  }
  const Relation one_limit = compare(least_of(rows, "limit_bytes"), most_of(rows, "limit_bytes"));
  require(one_limit.is(Ordering::kEqual), "the cells were held against several limits");
  const Text limit = bytes(rows[0].get("limit_bytes"));
  if (only.empty()) {
    return say(
        "At {} there is no such cell among these {}: whatever runs out in forward alone also "
        "runs out with backward.",
        {limit, whole(count_of(rows, "limit_bytes"))});
  }
  return say(
      "A loop over forward alone that keeps its last result holds two graphs while the next "
      "one is built; backward frees its graph. By the closed form, on a card with {} for "
      "programs these run out in forward alone and not with backward: {}. Running inference, or "
      "dropping the result, cures it.",
      {limit, join(only, ", ")});
}

}  // namespace planned
}  // namespace tracestep
