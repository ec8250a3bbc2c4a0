// Questions about the bytes of a step: peaks, what holds them, what is saved for backward.
#include <algorithm>

#include <fmt/format.h>

#include "lab/memory/tables.h"
#include "lab/report/question.h"
#include "nn/scopes.h"

namespace tracestep {
namespace {

using Row = Evidence::Row;

// The measured training step with the highest peak; its own tables are called by its label.
Row main_cell(const Evidence& e) {
  return e.largest("memory", {{"mode", "step"}, {"status", "ok"}}, "measured_peak_bytes");
}

std::string label(const Row& row) {
  return row.text("label");
}

Text named(const Row& row) {
  return row.name();
}

// The rows of the size that is predicted, by context.
std::vector<Row> planned(const Evidence& e, const char* mode, const char* precision) {
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

Text timeline(const Evidence& e) {
  const Row cell = main_cell(e);
  const std::vector<Row> phases = e.rows("phases@" + label(cell));
  std::vector<Text> list;
  for (const Row& row : phases) {
    list.push_back(
        say("{} has {} at its first kernel, {} at its last and {} at its peak ({})",
            {row.quote("phase"), bytes(row.get("first_bytes")), bytes(row.get("last_bytes")),
             bytes(row.get("predicted_bytes")), row.quote("at")}));
  }
  const auto climb = [&](const char* phase, const Cases& cases) {
    const auto found = e.find("phases@" + label(cell), {{"phase", phase}});
    if (!found) return Text();
    return compare(found->get("last_bytes"), found->get("first_bytes")).say(cases);
  };
  const Row highest = e.largest("phases@" + label(cell), {}, "predicted_bytes");
  const Relation most = leads(highest, phases, "predicted_bytes");
  return say("{}: {}. ", {named(cell), join(list, "; ")}) +
         climb("forward", {.less = "Forward ends lower than it starts. ",
                           .equal = "Forward saves nothing that stays. ",
                           .more = "Forward climbs as it saves values. "}) +
         climb("backward", {.less = "Backward comes down as it uses saved values. ",
                            .equal = "Backward ends as high as it starts. ",
                            .more = "Backward ends higher than it starts: gradients outweigh what "
                                    "it frees. "}) +
         say("{} {}.",
             {because(most, "The step's highest peak is in phase"), highest.quote("phase")});
}

Text peaks(const Evidence& e) {
  const std::vector<Row> forward = planned(e, "forward", "fp32"), rows = planned(e, "step", "fp32");
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

constexpr double kEqualPercent = 0.05;  // as printed

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
  return out + compare_with_range(*most, -kEqualPercent, kEqualPercent)
                   .say({.less = " There it takes less: what comes out depends on the model and "
                                 "on its operations."});
}

Text low_precision(const Evidence& e) {
  std::vector<Text> list;
  std::vector<Row> rows;
  for (const char* mode : {"inference", "forward", "step"}) {
    for (const Row& row : planned(e, mode, "bf16")) {
      const Row full = e.beside(row, {{"precision", "fp32"}});
      list.push_back(say("{} {} {} ({} in float32)",
                         {row.quote("mode"), whole(row.get("context")),
                          signed_percent(row.get("versus_fp32_percent")), bytes(peak_of(full))}));
      rows.push_back(row);
    }
  }
  const Relation least = compare_with_range(least_of(rows, "versus_fp32_percent"), -kEqualPercent,
                                            kEqualPercent),
                 most = compare_with_range(most_of(rows, "versus_fp32_percent"), -kEqualPercent,
                                           kEqualPercent);
  const bool has_less = least.is(Ordering::kLess), has_more = most.is(Ordering::kMore);
  const char* reading = has_more && has_less ? "It takes more at some of these and less at others."
                        : has_more           ? "It takes more, or as much, at each of these."
                        : has_less           ? "It takes less, or as much, at each of these."
                                             : "It makes no difference at any of these.";
  return say("{} under bfloat16 autocast, against float32, batch {}, predicted: {}. {} The float32 "
             "weights stay, and up to {} of narrow copies of them come on top.",
             {rows[0].model(), whole(rows[0].get("batch")), join(list, ", "),
              because(both(least, most), reading), bytes(most_of(rows, "weight_cast_bytes"))}) +
         saved_in_low_precision(e, rows) + measured_low_precision(e, has_more);
}

Text which_forward(const Evidence& e) {
  const Row forward = planned(e, "forward", "fp32").back();
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
  const std::vector<Row> rows = planned(e, "forward", "fp32");
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
      say("{} has {} parameters. Weights and AdamW's two moments in float32 are {} each, {} before "
          "any activation. Gradients make it {} each, {} when backward ends, whose activations are "
          "gone by then. ",
          {size.model(), whole(parameters), bytes(before / parameters), bytes(before),
           bytes(held / parameters), bytes(held)});
  if (const auto room = size.get_if("device_bytes")) {
    out += compare(held, *room)
               .say({.less = "That is less than a run may use of this device's memory",
                     .equal = "That is as much as a run may use of this device's memory",
                     .more = "That is more than a run may use of this device's memory"}) +
           say(", {}.", {bytes(*room)});
  }
  return out;
}

Text activation_formula(const Evidence& e) {
  const Row cell = main_cell(e);
  const Row layer = e.row("formulas@" + label(cell), {{"quantity", "saved by one layer"}});
  const Row all = e.row("formulas@" + label(cell), {{"quantity", "saved by the whole model"}});
  const Quantity by_formula = all.get("bytes"), by_program = all.get("program_bytes");
  const Text off = signed_percent(100.0 * (by_formula - by_program) / by_program);
  return say("{}: one layer saves {} for backward: {} = {}. The whole model: {} by the formula, {} "
             "by the program. ",
             {named(cell), layer.quote("formula"), layer.quote("numbers"),
              bytes(layer.get("bytes")), bytes(by_formula), bytes(by_program)}) +
         compare(by_formula, by_program)
             .say({.less = Text("The formula says less (") + off + "): it lacks something.",
                   .equal = "They are equal to the byte.",
                   .more = Text("The formula says more (") + off +
                           "): it has something that the "
                           "program has not."});
}

Text largest(const Evidence& e) {
  constexpr std::size_t kShown = 3;
  const Row cell = main_cell(e);
  const std::vector<Row> buffers = e.rows("largest@" + label(cell));
  const Row first = e.largest("largest@" + label(cell), {}, "bytes");
  std::vector<Row> holders;
  for (const Row& row : e.rows("holders@" + label(cell))) {
    const std::string component = row.text("component");
    // Rows without an operation sum up others.
    if (component != "total" && row.has("op")) holders.push_back(row);
  }
  require(!holders.empty(), "nothing holds the peak");
  std::ranges::stable_sort(holders, std::greater{},
                           [](const Row& row) { return row.whole("bytes"); });
  const Relation most = leads(holders.front(), holders, "bytes");
  std::vector<Text> list;
  for (std::size_t i = 0; i < std::min(kShown, holders.size()); ++i) {
    const Row& row = holders[i];
    list.push_back(
        say("{} of {} ({}, {})", {row.quote("op"), row.quote("component"), bytes(row.get("bytes")),
                                  percent(row.get("share_percent"))}));
  }
  return say(
      "{}: {} {} of {} ({}; {}). A buffer is named by the operation that wrote it first; its bytes "
      "may be those of a later one by then. Added up over the layers, the peak is held by these "
      "and "
      "others, {}: {}.",
      {named(cell), because(leads(first, buffers, "bytes"), "no single buffer is larger than"),
       first.quote("op"), first.quote("path"), bytes(first.get("bytes")), first.quote("reason"),
       because(most, "the largest part first"), join(list, ", ")});
}

Text attribution(const Evidence& e) {
  const Row cell = main_cell(e);
  const std::string name = "contract@" + label(cell);
  const Row predicted = e.row(name, {{"item", "predicted peak, from the program"}}),
            measured = e.row(name, {{"item", "measured peak, by the allocator"}}),
            difference = e.row(name, {{"item", "difference"}});
  const Row unknown = e.row("holders@" + label(cell), {{"component", "unattributed"}});
  const Relation same = compare(predicted.get("bytes"), measured.get("bytes"));
  if (!same.is(Ordering::kEqual) || difference.whole("bytes") != 0 ||
      difference.whole("count") != 0 || unknown.whole("bytes") != 0) {
    return say(
        "No: {} predicted, {} measured. Buffer by buffer they differ by {}, {} buffers have "
        "no partner, and {} belong to nobody.",
        {bytes(predicted.get("bytes")), bytes(measured.get("bytes")),
         bytes(difference.get("bytes")), whole(difference.get("count")),
         bytes(unknown.get("bytes"))});
  }
  return say(
      "Yes. {}: {} buffers were predicted from the program, {} at the peak; {}, and no byte "
      "of it is without an owner.",
      {named(cell), whole(predicted.get("count")), bytes(predicted.get("bytes")),
       because(same, "the allocator measured the same to the byte")});
}

// By the times of recorded kernels, where each of the operations has one.
Text cheapest_by_time(const std::vector<Row>& priced) {
  const bool are_timed = std::ranges::all_of(
      priced, [](const Row& row) { return row.has("bytes_per_us") && row.has("recompute_us"); });
  if (!are_timed) return {};
  const Row& best = *std::ranges::max_element(
      priced, {}, [](const Row& row) { return row.get("bytes_per_us").value; });
  return say(" {} is {} of {}: {} in {}.",
             {because(leads(best, priced, "bytes_per_us"),
                      "Cheapest to compute again for its bytes, by time,"),
              best.quote("op"), best.quote("component"), bytes(best.get("bytes")),
              duration(1e-3 * best.get("recompute_us"))});
}

// By the work that was counted. Several operations may free as much for theirs.
Text cheapest_by_work(const std::vector<Row>& priced, double worthwhile) {
  const Row& best = *std::ranges::max_element(
      priced, {}, [](const Row& row) { return row.get("freed_per_work").value; });
  const Quantity most = best.get("freed_per_work");
  std::vector<Text> names;
  std::optional<Relation> alike;
  for (const Row& row : priced) {
    const Relation close = compare_with_range(row.get("freed_per_work") / most, 0.99, 1.0);
    const bool is_best = row.formula("bytes") == best.formula("bytes");
    if (is_best || !close.is(Ordering::kEqual)) continue;
    names.push_back(say("{} of {}", {row.quote("op"), row.quote("component")}));
    alike = alike ? both(*alike, close) : close;
  }
  return say(" {} (of operations that save at least {} of it) is {} of {}, by work and not "
             "by time: {} are free again for {} moved and {} FLOPs, where {} FLOPs are "
             "counted as a byte.",
             {because(leads(best, priced, "freed_per_work"), "Cheapest to compute again"),
              percent(Quantity::constant(worthwhile)), best.quote("op"), best.quote("component"),
              bytes(best.get("bytes")), bytes(best.get("recompute_moved_bytes")),
              whole(best.get("recompute_flops")), whole(best.get("flops_per_byte"))}) +
         (alike ? say(" {}: {}.",
                      {because(*alike, "About as cheap by that count"), join(names, ", ")})
                : Text());
}

// Those that the list leaves out though they save as much as the last of it.
Text as_large_as_the_last(const std::vector<Row>& rows, std::size_t shown) {
  std::vector<Text> names;
  std::optional<Relation> same;
  for (std::size_t i = shown; i < rows.size(); ++i) {
    const Relation equal = compare(rows[i].get("bytes"), rows[shown - 1].get("bytes"));
    if (!equal.is(Ordering::kEqual)) break;
    names.push_back(say("{} of {}", {rows[i].quote("op"), rows[i].quote("component")}));
    same = same ? both(*same, equal) : equal;
  }
  return same ? say(" {} {}.",
                    {because(*same, "As much as the last of these save"), join(names, ", ")})
              : Text();
}

Text saved(const Evidence& e) {
  constexpr std::size_t kShown = 5;
  constexpr double kWorthwhile = 1;  // percent of what is saved
  const Row cell = main_cell(e);
  const std::string name = "saved_by_op@" + label(cell);
  const Row total = e.row(name, {{"component", "total"}});
  std::vector<Row> rows, priced;
  for (const Row& row : e.rows(name)) {
    if (row.text("component") == "total") continue;
    rows.push_back(row);
    const bool is_worthwhile = row.get("share_percent").value >= kWorthwhile;
    if (row.has("freed_per_work") && is_worthwhile) priced.push_back(row);
  }
  require(!rows.empty(), "nothing is saved for backward");
  std::ranges::stable_sort(rows, std::greater{}, [](const Row& row) { return row.whole("bytes"); });
  const Relation most = leads(rows.front(), rows, "bytes");
  const Text others = as_large_as_the_last(rows, kShown);
  rows.resize(std::min(kShown, rows.size()), rows.front());
  std::vector<Text> list;
  for (const Row& row : rows) {
    const auto us = row.get_if("recompute_us");
    list.push_back(say("{} of {} {}{}",
                       {row.quote("op"), row.quote("component"), percent(row.get("share_percent")),
                        us ? say(" ({} to compute again)", {duration(1e-3 * *us)}) : Text()}));
  }
  Text out = say(
      "{}: {} are saved for backward. {} {} operations are {}: {} of it.{} An operation is named "
      "by what it gives, which may lie in the buffer of the one before it.",
      {named(cell), bytes(total.get("bytes")), because(most, "The largest"),
       whole(count_of(rows, "bytes")), join(list, ", "), percent(sum_of(rows, "share_percent")),
       others});
  if (priced.empty()) return out;
  return out + cheapest_by_time(priced) + cheapest_by_work(priced, kWorthwhile);
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

constexpr Question kQuestions[] = {
    {"memory-timeline", "Memory", "What does active memory look like over a step?",
     "tracestep memory --size small --context 128 --tables timeline,phases", timeline},
    {"peaks", "Memory", "What is the peak per context, forward and training?",
     "tracestep memory --predict --size 2.7B --context 128,256,512 --mode forward,step --ops "
     "primitive",
     peaks},
    {"low-precision-memory", "Memory", "Does mixed precision take less memory?",
     "tracestep memory --predict --size 2.7B --context 128,256,512 --mode forward,step --ops "
     "primitive --precision fp32,bf16",
     low_precision},
    {"which-forward", "Memory", "Which forward does a forward peak mean?",
     "tracestep memory --predict --size 2.7B --mode inference,forward,step --ops primitive",
     which_forward},
    {"residual", "Memory", "How large is one tensor of the residual stream?",
     "tracestep memory --predict --size 2.7B --context 128,256,512", residual},
    {"static-bytes", "Memory", "How many bytes are there before any activation?",
     "tracestep memory --predict --size 2.7B --tables formulas", static_bytes},
    {"activation-formula", "Memory", "What is saved for backward, as a formula, and is it right?",
     "tracestep memory --size small --context 128 --tables formulas", activation_formula},
    {"largest-buffers", "Memory", "What are the largest allocations, and where do they come from?",
     "tracestep memory --size small --context 128 --tables largest,holders", largest},
    {"component-bytes", "Memory",
     "How do the largest allocations of each component grow with the context, and what does "
     "bfloat16 change?",
     "tracestep memory --predict --size 2.7B --context 128,256,512 --mode step --ops primitive "
     "--precision fp32,bf16 --tables components --without parameters",
     components},
    {"attribution", "Memory", "Is every byte attributed, and predicted before the run?",
     "tracestep memory --size small --context 128 --tables contract,holders", attribution},
    {"saved-operations", "Memory",
     "Which five operations save most for backward, and what does computing again cost?",
     "tracestep memory --size small --context 128 --tables saved_by_op,ledger", saved},
    {"two-graphs", "Memory",
     "Why can a loop over forward alone run out of memory where forward with backward does not?",
     "tracestep memory --predict --size small,medium,large,xl,2.7B --context 128,256,512,1024 "
     "--mode forward --account-as course-pytorch --live-graphs 2 --memory-limit 39.4GiB",
     two_graphs},
};

}  // namespace

std::span<const Question> memory_questions() {
  return kQuestions;
}

}  // namespace tracestep
