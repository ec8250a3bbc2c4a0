// Questions about the bytes of a step: peaks, what holds them, what is saved for backward.
#include <algorithm>

#include <fmt/format.h>

#include "lab/memory/planned_answers.h"
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
  const auto reserved = e.find(name, {{"item", "reserved at that moment"}});
  return say(
      "Yes. {}: {} buffers were predicted from the program, {} at the peak; {}, of what was asked "
      "of it{}, and no byte of that is without an owner.",
      {named(cell), whole(predicted.get("count")), bytes(predicted.get("bytes")),
       because(same, "the allocator measured the same to the byte"),
       reserved ? say(" ({} were reserved then)", {bytes(reserved->get("bytes"))}) : Text()});
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

constexpr Question kQuestions[] = {
    {"memory-timeline", "Memory", "What does active memory look like over a step?",
     "tracestep memory --size small --context 128 --tables timeline,phases", timeline},
    {"peaks", "Memory", "What is the peak per context, forward and training?",
     "tracestep memory --predict --size 2.7B --context 128,256,512 --mode forward,step --ops "
     "primitive",
     planned::peaks},
    {"low-precision-memory", "Memory", "Does mixed precision take less memory?",
     "tracestep memory --predict --size 2.7B --context 128,256,512 --mode forward,step --ops "
     "primitive --precision fp32,bf16",
     planned::low_precision},
    {"which-forward", "Memory", "Which forward does a forward peak mean?",
     "tracestep memory --predict --size 2.7B --mode inference,forward,step --ops primitive",
     planned::which_forward},
    {"residual", "Memory", "How large is one tensor of the residual stream?",
     "tracestep memory --predict --size 2.7B --context 128,256,512", planned::residual},
    {"static-bytes", "Memory", "How many bytes are there before any activation?",
     "tracestep memory --predict --size 2.7B --tables formulas", planned::static_bytes},
    {"activation-formula", "Memory", "What is saved for backward, as a formula, and is it right?",
     "tracestep memory --size small --context 128 --tables formulas", activation_formula},
    {"largest-buffers", "Memory", "What are the largest allocations, and where do they come from?",
     "tracestep memory --size small --context 128 --tables largest,holders", largest},
    {"component-bytes", "Memory",
     "How do the largest allocations of each component grow with the context, and what does "
     "bfloat16 change?",
     "tracestep memory --predict --size 2.7B --context 128,256,512 --mode step --ops primitive "
     "--precision fp32,bf16 --tables components --without parameters",
     planned::components},
    {"attribution", "Memory", "Is every byte attributed, and predicted before the run?",
     "tracestep memory --size small --context 128 --tables contract,holders", attribution},
    {"saved-operations", "Memory",
     "Which five operations save most for backward, and what does computing again cost?",
     "tracestep memory --size small --context 128 --tables saved_by_op,ledger", saved},
    {"two-graphs", "Memory",
     "Why can a loop over forward alone run out of memory where forward with backward does not?",
     "tracestep memory --predict --size small,medium,large,xl,2.7B --context 128,256,512,1024 "
     "--mode forward --account-as course-pytorch --live-graphs 2 --memory-limit 39.4GiB",
     planned::two_graphs},
};

}  // namespace

std::span<const Question> memory_questions() {
  return kQuestions;
}

}  // namespace tracestep
