// Questions about the bytes of a step: peaks, what holds them, what is saved for backward.
#include <algorithm>
#include <cmath>

#include "lab/memory/tables.h"
#include "lab/report/question.h"

namespace tracestep {
namespace {

using Row = Evidence::Row;

// The measured training step with the highest peak; its own tables are called by its label.
Row main_cell(const Evidence& e) {
  return e.largest("memory", {{"mode", "step"}, {"status", "ok"}}, "measured_peak_bytes");
}

std::string label(const Row& row) {
  return fmt::format("{} {} {} {} {} {}", row.text("size"), row.whole("context"), row.text("mode"),
                     row.text("precision"), row.text("ops"), row.text("attention"));
}

// The size of the grid that is predicted.
std::string planned_size(const Evidence& e) {
  return e.largest("memory_grid", {}, "parameters").text("size");
}

std::vector<Row> planned(const Evidence& e, const char* mode, const char* precision) {
  std::vector<Row> out =
      e.rows("memory_grid", {{"size", planned_size(e)}, {"mode", mode}, {"precision", precision}});
  std::ranges::sort(out, {}, [](const Row& row) { return row.whole("context"); });
  return out;
}

std::string timeline(const Evidence& e) {
  const Row cell = main_cell(e);
  const std::vector<Row> phases = e.rows("phases@" + label(cell));
  std::string out;
  const Row* highest = nullptr;
  for (const Row& row : phases) {
    out += fmt::format("{}{} starts at {}, ends at {} and peaks at {} ({})",
                       out.empty() ? "" : "; ", row.text("phase"), row.bytes("first_bytes"),
                       row.bytes("last_bytes"), row.bytes("predicted_bytes"), row.text("at"));
    if (highest == nullptr || row.whole("predicted_bytes") > highest->whole("predicted_bytes")) {
      highest = &row;
    }
  }
  const Row* forward = nullptr;
  for (const Row& row : phases) {
    if (row.text("phase") == "forward") forward = &row;
  }
  require(forward != nullptr, "there is no forward phase");
  const bool grows = forward->whole("last_bytes") > forward->whole("first_bytes");
  return fmt::format("{}: {}. {} The step's peak is in the {}.", label(cell), out,
                     grows
                         ? "Forward climbs as it saves values, and backward comes down as it uses "
                           "them."
                         : "Forward saves nothing that stays.",
                     highest->text("phase"));
}

std::string peaks(const Evidence& e) {
  std::string out;
  for (const char* mode : {"forward", "step"}) {
    const std::vector<Row> rows = planned(e, mode, "fp32");
    out += fmt::format("{}{}: ", out.empty() ? "" : "; ",
                       mode == std::string_view("step") ? "a training step" : "forward");
    for (std::size_t i = 0; i < rows.size(); ++i) {
      out += fmt::format("{}{} at context {}", i == 0 ? "" : ", ",
                         rows[i].bytes("predicted_peak_bytes"), rows[i].whole("context"));
    }
  }
  const std::vector<Row> rows = planned(e, "step", "fp32");
  require(rows.size() >= 3, "there are no three contexts");
  const std::size_t n = rows.size();
  const double last = rows[n - 1].number("predicted_peak_bytes") -
                      rows[n - 2].number("predicted_peak_bytes"),
               before = rows[n - 2].number("predicted_peak_bytes") -
                        rows[n - 3].number("predicted_peak_bytes");
  std::string growth = fmt::format(
      "Over the first contexts of a step the static bytes set the peak; the last doubling adds {}.",
      bytes_text(last));
  if (before > 0.01 * rows[n - 2].number("predicted_peak_bytes")) {
    growth = fmt::format(
        "The last doubling adds {} and the one before {}: {}", bytes_text(last), bytes_text(before),
        last > 2.2 * before ? "more than twice as much, so the T² part already counts."
                            : "no more than twice as much, so the growth is linear here.");
  }
  return fmt::format("{}, predicted from the program: {}. {}", planned_size(e), out, growth);
}

std::string low_precision(const Evidence& e) {
  std::string out;
  bool has_more = false, has_less = false;
  double copies = 0;
  for (const char* mode : {"forward", "step"}) {
    for (const Row& row : planned(e, mode, "bf16")) {
      const double change = row.number("versus_fp32_percent");
      has_more = has_more || change > 0.05;
      has_less = has_less || change < -0.05;
      copies = std::max(copies, row.number("weight_cast_bytes"));
      out += fmt::format("{}{} {} {:+.1f} %", out.empty() ? "" : ", ", mode, row.whole("context"),
                         change);
    }
  }
  const char* reading = has_more && has_less
                            ? "It takes more where weights rule and less where activations do."
                        : has_more ? "It saves nothing at any of these."
                        : has_less ? "It takes less, or as much, at all of these."
                                   : "It makes no difference.";
  return fmt::format(
      "{} under bfloat16 autocast, against float32: {}. {} The float32 weights stay, "
      "and up to {} of narrow copies of them come on top.",
      planned_size(e), out, reading, bytes_text(copies));
}

std::string which_forward(const Evidence& e) {
  const Row inference = planned(e, "inference", "fp32").back(),
            forward = planned(e, "forward", "fp32").back(),
            step = planned(e, "step", "fp32").back();
  const double ratio =
      over(forward.number("predicted_peak_bytes"), inference.number("predicted_peak_bytes"));
  return fmt::format(
      "{} at context {}: {} when nothing is kept for backward, {} when forward keeps it, {} for a "
      "whole step. {}",
      planned_size(e), forward.whole("context"), inference.bytes("predicted_peak_bytes"),
      forward.bytes("predicted_peak_bytes"), step.bytes("predicted_peak_bytes"),
      ratio > 1.2 ? fmt::format("A forward peak is only comparable with its mode: the first two "
                                "differ {:.1f} times.",
                                ratio)
                  : "Here it hardly matters which forward is meant.");
}

std::string residual(const Evidence& e) {
  std::string out;
  double first = 0, last = 0, first_context = 0, last_context = 0;
  for (const Row& row : planned(e, "forward", "fp32")) {
    out += fmt::format("{}{} at context {}", out.empty() ? "" : ", ", row.bytes("residual_bytes"),
                       row.whole("context"));
    last = row.number("residual_bytes");
    last_context = row.number("context");
    if (first == 0) {
      first = last;
      first_context = last_context;
    }
  }
  const bool linear = std::abs(over(last, first) - over(last_context, first_context)) < 1e-9;
  return fmt::format(
      "One tensor of the residual stream of {} in float32 is {}: B·T·C·4 bytes, {}. "
      "That is one tensor, not the step's activations.",
      planned_size(e), out,
      linear ? "in proportion to the context" : "but not in proportion to the context");
}

std::string static_bytes(const Evidence& e) {
  const Row size = e.row("sizes", {{"size", planned_size(e)}});
  const double parameters = size.number("parameters"), bytes = size.number("static_bytes");
  const double each = over(bytes, parameters);
  std::string out = fmt::format(
      "{} has {:.0f} parameters. With weights, gradients and AdamW's two moments in float32 that "
      "is "
      "{:.0f} bytes each, {} before any activation. ",
      planned_size(e), parameters, each, bytes_text(bytes));
  if (const auto room = size.number_if("device_bytes")) {
    out += *room < bytes ? fmt::format("This device's {} cannot hold that.", bytes_text(*room))
                         : fmt::format("This device has {}.", bytes_text(*room));
  }
  return out;
}

std::string activation_formula(const Evidence& e) {
  const Row cell = main_cell(e);
  const Row layer = e.row("formulas@" + label(cell), {{"quantity", "saved by one layer"}});
  const Row all = e.row("formulas@" + label(cell), {{"quantity", "saved by the whole model"}});
  const double off = all.number("difference_percent");
  return fmt::format(
      "{}: one layer saves {} for backward: {} = {}. The whole model: {} by the formula, {} by the "
      "program. {}",
      label(cell), layer.text("formula"), layer.text("numbers"), layer.bytes("bytes"),
      all.bytes("bytes"), all.bytes("program_bytes"),
      std::abs(off) < 1e-6
          ? "They are equal to the byte."
          : fmt::format("They differ by {:.2f} %, so the formula lacks something.", off));
}

std::string largest(const Evidence& e) {
  const Row cell = main_cell(e);
  const Row first = e.rows("largest@" + label(cell)).front();
  std::string holders;
  std::size_t shown = 0;
  for (const Row& row : e.rows("holders@" + label(cell))) {
    if (shown == 3) break;
    const std::string component = row.text("component");
    if (component == "total" || component == "unattributed") continue;
    holders += fmt::format("{}{} of {} ({}, {})", shown == 0 ? "" : ", ", row.text("op"), component,
                           row.bytes("bytes"), percent_text(row.number("share_percent")));
    ++shown;
  }
  return fmt::format(
      "{}: the largest single buffer is {} of {} ({}, {}; {}). Added up over the "
      "layers, the peak is held by {}.",
      label(cell), first.text("op"), first.text("path"), first.bytes("bytes"),
      first.text("category"), first.text("reason"), holders);
}

std::string attribution(const Evidence& e) {
  const Row cell = main_cell(e);
  const std::string name = "contract@" + label(cell);
  const Row predicted = e.row(name, {{"item", "predicted peak, from the program"}}),
            measured = e.row(name, {{"item", "measured peak, by the allocator"}}),
            difference = e.row(name, {{"item", "difference"}});
  const Row unknown = e.row("holders@" + label(cell), {{"component", "unattributed"}});
  if (difference.whole("bytes") != 0 || difference.whole("count") != 0 ||
      unknown.whole("bytes") != 0) {
    return fmt::format(
        "No: {} predicted and {} measured differ by {} bytes, {} buffers have no "
        "partner, and {} belong to nobody.",
        predicted.bytes("bytes"), measured.bytes("bytes"), difference.whole("bytes"),
        difference.whole("count"), unknown.bytes("bytes"));
  }
  return fmt::format(
      "Yes. {}: {} buffers were predicted from the program, {} at the peak; the "
      "allocator measured the same to the byte, and no byte of it is without an owner.",
      label(cell), predicted.whole("count"), predicted.bytes("bytes"));
}

std::string saved(const Evidence& e) {
  const Row cell = main_cell(e);
  const std::string name = "saved_by_op@" + label(cell);
  const Row total = e.row(name, {{"component", "total"}});
  std::string list;
  double share = 0;
  std::size_t shown = 0;
  std::optional<Row> cheapest;
  for (const Row& row : e.rows(name)) {
    if (row.text("component") == "total") continue;
    const auto rate = row.number_if("bytes_per_us");
    if (rate && (!cheapest || *rate > cheapest->number("bytes_per_us"))) cheapest = row;
    if (shown == 5) continue;
    share += row.number("share_percent");
    list += fmt::format("{}{} of {} {}", shown == 0 ? "" : ", ", row.text("op"),
                        row.text("component"), percent_text(row.number("share_percent")));
    ++shown;
  }
  std::string out = fmt::format(
      "{}: {} are saved for backward. The five largest operations are {}: "
      "{:.0f} % of it.",
      label(cell), total.bytes("bytes"), list, share);
  if (cheapest) {
    out += fmt::format(" Cheapest to compute again is {} of {}: {} for {}.", cheapest->text("op"),
                       cheapest->text("component"), cheapest->bytes("bytes"),
                       format_duration_ms(cheapest->number("recompute_us") * 1e-3));
  }
  return out;
}

std::string two_graphs(const Evidence& e) {
  const std::vector<Row> rows = e.rows("live_graphs");
  std::string only;
  double limit = 0;
  for (const Row& row : rows) {
    limit = row.number("limit_bytes");
    if (row.number("one_graph_bytes") <= limit && row.number("two_graphs_bytes") > limit &&
        row.number("with_backward_bytes") <= limit) {
      only += fmt::format("{}{} at context {} ({} against {})", only.empty() ? "" : ", ",
                          row.text("size"), row.whole("context"), row.bytes("two_graphs_bytes"),
                          row.bytes("with_backward_bytes"));
    }
  }
  if (only.empty()) {
    return fmt::format(
        "At {} there is no such cell among these {}: two graphs or one, the statuses "
        "are those of forward with backward.",
        bytes_text(limit), rows.size());
  }
  return fmt::format(
      "A loop over forward alone that keeps its last result holds two graphs while the next one is "
      "built; backward frees its graph. By the closed form, at {} these run out in forward alone "
      "and not with backward: {}. Running inference, or dropping the result, cures it.",
      bytes_text(limit), only);
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
    {"attribution", "Memory", "Is every byte attributed, and predicted before the run?",
     "tracestep memory --size small --context 128 --tables contract,holders", attribution},
    {"saved-operations", "Memory",
     "Which five operations save most for backward, and what does computing again cost?",
     "tracestep memory --size small --context 128 --tables saved_by_op,ledger", saved},
    {"two-graphs", "Memory",
     "Why can a loop over forward alone run out of memory where forward with backward does not?",
     "tracestep memory --predict --mode forward --account-as course-pytorch --live-graphs 2 "
     "--memory-limit 39.4GiB",
     two_graphs},
};

}  // namespace

std::span<const Question> memory_questions() {
  return kQuestions;
}

}  // namespace tracestep
