// Verdicts on published memory: who ran out and why, which closed form a peak follows, and how many
// tensors of B·T² stand between attention's forward and backward.
#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/units.h"
#include "course/modelled.h"
#include "course/ours.h"
#include "course/published.h"
#include "lab/measure/statistics.h"
#include "lab/memory/accounting.h"
#include "lab/memory/tables.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

RunSpec step_of(std::string_view size, std::int64_t context, Mode mode) {
  return {.model = preset(size), .shape = {kPublishedBatch, context}, .mode = mode};
}

// A closed form of a pass's peak: its name in words, and how it counts bytes.
struct Form {
  std::string name;
  Mode mode = Mode::kForward;
  Accounting as = {};

  double bytes(std::string_view size, std::int64_t context) const {
    return static_cast<double>(accounted_peak(step_of(size, context, mode), as).bytes);
  }
};

std::vector<Form> forms_of(std::string_view pass, int scores) {
  const auto form = [scores](std::string name, Mode mode, int graphs, bool kept) {
    return Form{std::move(name),
                mode,
                {.saved_scores = scores, .live_graphs = graphs, .kept_gradients = kept}};
  };
  if (pass == "forward") {
    return {form("one graph", Mode::kForward, 1, false),
            form("two graphs", Mode::kForward, 2, false)};
  }
  return {form("one graph, gradients set to none", Mode::kForwardBackward, 1, false),
          form("one graph, gradients kept", Mode::kForwardBackward, 1, true),
          form("AdamW, gradients set to none", Mode::kStep, 1, false),
          form("AdamW, gradients kept", Mode::kStep, 1, true)};
}

// --- statuses ------------------------------------------------------------------------------------

// The cells of one published table and pass of which it is known whether they ran out of memory.
struct StatusTable {
  const PublishedTime* head = nullptr;
  std::vector<const PublishedTime*> cells;

  bool has_oom() const {
    return std::ranges::any_of(cells, [](const PublishedTime* t) { return t->is_oom; });
  }
};

std::vector<StatusTable> status_tables(const Published& published) {
  constexpr std::size_t kWorthAsking = 10;  // fewer cells that all ran say nothing
  std::vector<StatusTable> out;
  for (const PublishedTime& t : published.times) {
    if (t.context == 0) continue;
    const auto found = std::ranges::find_if(out, [&](const StatusTable& s) {
      return s.head->study == t.study && s.head->table == t.table && s.head->pass == t.pass;
    });
    StatusTable& table = found == out.end() ? out.emplace_back(StatusTable{&t, {}}) : *found;
    table.cells.push_back(&t);
  }
  std::erase_if(out, [](const StatusTable& s) {
    const bool all_ran = s.head->pass == "backward" && s.cells.size() >= kWorthAsking;
    return !s.has_oom() && !(all_ran && known_device(s.head->device) != nullptr);
  });
  return out;
}

struct StatusMatch {
  double limit_bytes = 0;
  std::vector<std::string> differ;  // "xl/512"
};

// Compares statuses with a form's bytes and the device's memory, or the limit that fits best.
StatusMatch match_statuses(const StatusTable& table, const Form& form) {
  std::vector<double> bytes;
  bytes.reserve(table.cells.size());
  for (const PublishedTime* t : table.cells) bytes.push_back(form.bytes(t->size, t->context));
  const auto differing = [&](double limit) {
    StatusMatch out{limit, {}};
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const PublishedTime& t = *table.cells[i];
      if ((bytes[i] > limit) != t.is_oom)
        out.differ.push_back(fmt::format("{}/{}", t.size, t.context));
    }
    return out;
  };
  if (const PublishedDevice* device = known_device(table.head->device)) {
    return differing(device->usable_gib * kGiB);
  }
  StatusMatch best = differing(0);
  for (double limit : bytes) {
    if (StatusMatch m = differing(limit); m.differ.size() < best.differ.size()) best = std::move(m);
  }
  return best;
}

// --- peaks ---------------------------------------------------------------------------------------
// A sum of bytes that may explain a published peak, and its name in words.
struct NamedBytes {
  std::string name;
  double bytes = 0;
  bool is_label = false;  // true if the row's label says it
};

// Sums that may explain a peak under autocast: weights, narrow copies, activations mostly halved.
std::vector<NamedBytes> candidates_under_autocast(const PublishedPeak& peak) {
  const ModelConfig model = preset(peak.size);
  const auto p = static_cast<double>(parameter_formula(model));
  const auto c = static_cast<double>(model.d_model);
  const double copies = 2 * (p - static_cast<double>(model.vocab) * c -
                             (2 * static_cast<double>(model.layers) + 1) * c);
  const std::string name =
      fmt::format("our program under autocast, with {} of narrow weight copies",
                  format_bytes(static_cast<std::int64_t>(copies)));
  const double forward = forward_program_bytes(peak.size, peak.context, peak.precision);
  const double weights = 4 * p + copies;
  if (peak.pass == "forward") {
    return {{name, forward, true},
            {"the same with two graphs", 2 * forward - weights, false},
            {"weights and their narrow copies without any graph", weights, false}};
  }
  if (peak.pass == "forward of a step") {
    return {{"AdamW's states and " + name, 8 * p + forward, true},
            {"AdamW, gradients kept, and " + name, 12 * p + forward, false}};
  }
  if (peak.pass == "backward of a step") {
    return {{"weights, gradients and AdamW's states", 16 * p, true}};
  }
  return {{"AdamW, gradients kept, and " + name, 12 * p + forward, true}};
}

// The sums that may explain the peak of one phase of a step in fp32.
std::vector<NamedBytes> candidates_of_phase(const PublishedPeak& peak, int scores) {
  const auto p = static_cast<double>(parameter_formula(preset(peak.size)));
  const Form graph{"", Mode::kForward, {.saved_scores = scores, .live_graphs = 1}};
  const double forward = graph.bytes(peak.size, peak.context);
  if (peak.pass == "backward of a step") {
    return {{"weights, gradients and AdamW's states", 16 * p, true},
            {"the same and the whole graph", 12 * p + forward, false}};
  }
  return {{"weights, AdamW's states and one graph", 8 * p + forward, true},
          {"the same with gradients kept", 12 * p + forward, false}};
}

std::vector<NamedBytes> candidates(const PublishedPeak& peak, int scores) {
  if (peak.precision != "fp32") return candidates_under_autocast(peak);
  if (peak.pass.ends_with("of a step")) return candidates_of_phase(peak, scores);
  std::vector<NamedBytes> out;
  for (const Form& form : forms_of(peak.pass, scores)) {
    const bool is_label = peak.pass == "forward"    ? form.as.live_graphs == 1
                          : peak.pass == "backward" ? form.mode == Mode::kForwardBackward
                                                    : form.mode == Mode::kStep;
    out.push_back({form.name, form.bytes(peak.size, peak.context), is_label});
  }
  if (peak.pass == "forward") {
    const auto p = static_cast<double>(parameter_formula(preset(peak.size)));
    out.push_back({"weights without any graph", 4 * p, false});
  }
  return out;
}

struct PeakVerdict {
  ReplayVerdict verdict;
  NamedBytes form;
  double off_percent = 0;
};

// Returns the form whose bytes are nearest to the published peak, if one GB is `unit` bytes.
PeakVerdict nearest(const PublishedPeak& peak, std::span<const NamedBytes> forms, double unit) {
  PeakVerdict best{{}, {}, HUGE_VAL};
  for (const NamedBytes& form : forms) {
    const double off = 100 * (peak.gigabytes * unit / form.bytes - 1);
    if (std::abs(off) < std::abs(best.off_percent)) best = {{}, form, off};
  }
  return best;
}

PeakVerdict judge_peak(const PublishedPeak& peak, int scores) {
  constexpr double kClose = 7;  // percent: temporaries and rounding to 0.5 GB
  std::vector<NamedBytes> of_label, others;
  for (NamedBytes& form : candidates(peak, scores)) {
    (form.is_label ? of_label : others).push_back(std::move(form));
  }
  struct Reading {
    const std::vector<NamedBytes>& forms;
    double unit;
    const char* unit_name;
    Agreement agreement;
    const char* code;
  };
  constexpr const char* kDecimal = "GB of 10^9 bytes";
  for (const Reading& r :
       {Reading{of_label, kGiB, "GiB", Agreement::kAgree, "closed_form"},
        Reading{of_label, 1e9, kDecimal, Agreement::kExplainable, "unit"},
        Reading{others, kGiB, "GiB", Agreement::kExplainable, "another_peak"},
        Reading{others, 1e9, kDecimal, Agreement::kExplainable, "another_peak"}}) {
    PeakVerdict found = nearest(peak, r.forms, r.unit);
    if (std::abs(found.off_percent) > kClose) continue;
    found.verdict = {r.agreement, r.code, fmt::format("{}: {}", r.unit_name, found.form.name)};
    return found;
  }
  of_label.insert(of_label.end(), others.begin(), others.end());
  PeakVerdict found = nearest(peak, of_label, kGiB);
  found.verdict = {Agreement::kSuspicious, "unexplained",
                   "no closed form is within 7 %; nearest: " + found.form.name};
  return found;
}

// Returns the peak in bytes that we measured for the same cell; null if there is none.
Json our_peak(const ReplayInput& ours, const PublishedPeak& peak) {
  if (peak.pass.ends_with("of a step")) return {};
  RunSpec run = run_of({peak.size, peak.context, peak.precision, peak.pass});
  for (const Granularity ops : {Granularity::kPrimitive, Granularity::kFused}) {
    run.ops = ops;
    for (const ResultRow& row : ours.rows) {
      const auto bytes = row.peak_bytes();
      if (bytes && is_of_run(row, run)) return static_cast<std::int64_t>(*bytes);
    }
  }
  return {};
}

}  // namespace

ReplayVerdict judge_out_of_memory(const Published& published, const PublishedTime& t) {
  if (t.context == 0) {
    return {Agreement::kNotCompared, "out_of_memory", "at a context that is not stated"};
  }
  const std::vector<Form> forms = forms_of(t.pass, published.saved_scores(t.study));
  const double one = forms.front().bytes(t.size, t.context);
  const double more = forms.back().bytes(t.size, t.context);
  const PublishedDevice* device = known_device(t.device);
  if (device == nullptr) {
    double most = 0;  // of what ran
    for (const PublishedTime& other : published.times) {
      const bool ran = !other.is_oom && other.context > 0 && other.pass == t.pass;
      if (!ran || other.study != t.study || other.table != t.table) continue;
      most = std::max(most, forms.front().bytes(other.size, other.context));
    }
    const std::string text = fmt::format("{:.1f} GiB by the closed form; what ran needs {:.1f}",
                                         one / kGiB, most / kGiB);
    return {one > most ? Agreement::kExplainable : Agreement::kSuspicious, "out_of_memory", text};
  }
  const double limit = device->usable_gib * kGiB;
  if (one > limit) {
    return {Agreement::kAgree, "out_of_memory",
            fmt::format("{:.1f} GiB by the closed form, {:.1f} there are", one / kGiB,
                        device->usable_gib)};
  }
  if (more > limit) {
    return {Agreement::kExplainable, t.pass == "forward" ? "two_graphs" : "held_states",
            fmt::format("{:.1f} GiB would fit into {:.1f}; with {}: {:.1f}", one / kGiB,
                        device->usable_gib,
                        t.pass == "forward" ? "the graph of the result before still alive"
                                            : "AdamW's states and gradients held",
                        more / kGiB)};
  }
  return {Agreement::kSuspicious, "out_of_memory",
          fmt::format("{:.1f} GiB, {:.1f} at most, fit into the {:.1f} of this device", one / kGiB,
                      more / kGiB, device->usable_gib)};
}

Table status_replay_table(const Published& published) {
  struct Row {
    const StatusTable& t;
    const Form& form;
    StatusMatch match;
  };
  using R = const Row&;
  const Fields<Row> fields = {
      {col::study, [](R r) { return r.t.head->study; }},
      {col::table, [](R r) { return r.t.head->table; }},
      {col::pass, [](R r) { return r.t.head->pass; }},
      {col::cells("whose status is given"), [](R r) { return std::ssize(r.t.cells); }},
      {int_column("oom", "out of memory"),
       [](R r) {
         return std::int64_t{
             std::ranges::count_if(r.t.cells, [](const auto* c) { return c->is_oom; })};
       }},
      {text_column("accounting"), [](R r) { return r.form.name; }},
      {col::limit_bytes("of the device, or the one that fits best"),
       [](R r) { return static_cast<std::int64_t>(r.match.limit_bytes); }},
      {int_column("matched"),
       [](R r) { return std::ssize(r.t.cells) - std::ssize(r.match.differ); }},
      {text_column("differ"), [](R r) {
         return r.match.differ.empty() ? "none"
                                       : fmt::format("{}", fmt::join(r.match.differ, ", "));
       }}};
  Table table{.name = "published_statuses",
              .title = "Which accounting gives the published statuses",
              .columns = fields.columns()};
  for (const StatusTable& t : status_tables(published)) {
    for (const Form& form : forms_of(t.head->pass, published.saved_scores(t.head->study))) {
      table.add_row(fields.row({t, form, match_statuses(t, form)}));
    }
  }
  table.notes.push_back(
      "closed forms of plain PyTorch code, the formula course-pytorch of `memory`; one graph: "
      "what one step saves for backward; two: the result of the step before is still held");
  return table;
}

Table peak_replay_table(const Published& published, const ReplayInput& ours) {
  struct Row {
    const PublishedPeak& peak;
    PeakVerdict found;
  };
  using R = const Row&;
  const Fields<Row> fields = {
      {col::study, [](R r) { return r.peak.study; }},
      {col::table, [](R r) { return r.peak.table; }},
      {col::size, [](R r) { return r.peak.size; }},
      {col::context, [](R r) { return r.peak.context; }},
      {col::pass, [](R r) { return r.peak.pass; }},
      {col::precision, [](R r) { return r.peak.precision; }},
      {real_column("published", "published", "\"GB\"", 2), [](R r) { return r.peak.gigabytes; }},
      {bytes_column("form_bytes", "closed form"),
       [](R r) { return static_cast<std::int64_t>(r.found.form.bytes); }},
      {real_column("off_percent", "off by", "%", 1), [](R r) { return r.found.off_percent; }},
      {bytes_column("our_peak_bytes", "ours", "measured"),
       [&](R r) { return our_peak(ours, r.peak); }},
      {col::verdict, [](R r) { return name_of(r.found.verdict.agreement); }},
      {col::code, [](R r) { return r.found.verdict.code; }},
      {col::reason, [](R r) { return r.found.verdict.text; }}};
  std::vector<Row> rows;
  for (const PublishedPeak& peak : published.peaks) {
    rows.push_back({peak, judge_peak(peak, published.saved_scores(peak.study))});
  }
  return table_of("published_peaks", "Published peaks beside closed forms and ours", fields, rows);
}

}  // namespace tracestep
