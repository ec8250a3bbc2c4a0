#include "lab/study/summary.h"

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include <fmt/ranges.h>

#include "base/units.h"
#include "lab/measure/elsewhere.h"
#include "lab/measure/judged.h"
#include "lab/measure/noise.h"
#include "lab/measure/validity_recorded.h"
#include "lab/report/digits.h"
#include "lab/study/study.h"

namespace tracestep {
namespace {

using Row = Evidence::Row;

// --- results
// ---------------------------------------------------------------------------------------

// The timed training step with the most work.
Row step_row(const Evidence& e) {
  return e.largest("cells", {{"mode", "step"}, {"ops", "fused"}, {"status", "ok"}}, "flops");
}

// 0: nothing speaks against the row's time, 1: the checker doubts it, 2: it is invalid.
int doubt_of(const Row& row) {
  const std::string verdict = row.text_or("verdict", "ok");
  return verdict.starts_with("invalid") ? 2 : verdict.starts_with("doubt") ? 1 : 0;
}

// The same cell wherever the study has timed it, the most trustworthy row first: the least doubted,
// of those the one with most samples.
std::vector<Row> all_of_cell(const Evidence& e, const Row& row) {
  std::vector<Row> out{row};
  std::ranges::copy(timed_elsewhere(e, row), std::back_inserter(out));
  // Of some only the median is kept.
  const auto samples = [](const Row& r) {
    return r.has("samples_ms") ? std::ssize(r.numbers("samples_ms")) : 0;
  };
  std::ranges::stable_sort(out, {}, [&](const Row& r) {
    const auto count = samples(r);
    return std::tuple(count == 0, doubt_of(r), -count);
  });
  return out;
}

// "medium at context 512, batch 4, fp32, fused ops"
Text run_of(const Row& row) {
  return say("{} at context {}, batch {}, {}, {} ops",
             {row.model(), whole(row.get("context")), whole(row.get("batch")),
              row.quote("precision"), row.quote("ops")});
}

Text step_result(const Evidence& e) {
  const Row row = step_row(e);
  const std::vector<Row> all = all_of_cell(e, row);
  std::vector<Text> again;
  for (std::size_t i = 1; i < all.size(); ++i) again.push_back(duration(time_of(all[i])));
  return say("A training step of {} takes {} at the median of {} samples, and {} at its peak.",
             {run_of(row), duration(median_in(all[0], "samples_ms")),
              whole(count_in(all[0], "samples_ms")), bytes(row.get("peak_bytes"))}) +
         (again.empty() ? Text()
                        : " " + say("{} it took {}.", {at_times(again.size()), join(again, ", ")}));
}

// What the kernels of the same step take by a profile, where its shares can be read.
Text in_its_profile(const Evidence& e, const Row& step) {
  std::optional<Row> forward, backward, optimizer;
  for (const Row& pass : e.same_cell(step, "passes")) {
    if (doubts_shares(pass.text_or("verdict", "ok")) || !pass.has("ms")) continue;
    const std::string name = pass.text("pass");
    if (name == "forward") forward = pass;
    if (name == "backward") backward = pass;
    if (name == "optimizer") optimizer = pass;
  }
  if (!forward || !backward || !optimizer) return {};
  return say(
      " In a profile of the step backward's kernels take {} times forward's, and those of "
      "the optimizer {}.",
      {decimal(backward->get("ms") / forward->get("ms")), duration(optimizer->get("ms"))});
}

Text pass_result(const Evidence& e) {
  const Row step = step_row(e), forward = e.beside(step, {{"mode", "forward"}, {"status", "ok"}}),
            both = e.beside(step, {{"mode", "forward-backward"}, {"status", "ok"}});
  const Quantity f = median_anywhere(e, forward), fb = median_anywhere(e, both);
  const Relation longer = compare(fb, f);
  require(longer.is(Ordering::kMore),
          say("forward with backward is {}",
              {because(longer, "not longer than forward alone beyond noise")}));
  std::vector<Text> again;
  for (const Row& other : timed_elsewhere(e, both)) {
    const Quantity ms = time_of(other);
    again.push_back(say("{}, which leaves {} times forward for backward",
                        {duration(ms), decimal((ms - f) / f)}));
  }
  return say("Timed by itself, forward takes {}, and forward with backward {}: their difference, "
             "backward, is {} times forward.",
             {duration(f), duration(fb), decimal((fb - f) / f)}) +
         (again.empty() ? Text()
                        : " " + say("{} forward with backward took {}.",
                                    {at_times(again.size()), join(again, "; ")})) +
         at_other_times(e, forward, "forward") + in_its_profile(e, step);
}

Text kernel_result(const Evidence& e) {
  const Row row = e.largest("passes", {{"mode", "step"}, {"pass", "all"}, {"status", "ok"}}, "ms");
  require(!doubts_shares(row.text_or("verdict", "ok")),
          say("the checker's verdict on the recorded steps of {} is {}",
              {row.name(), row.quote("verdict")}));
  return say("In the training step {} matrix products take {} of the kernels' time.",
             {row.name(), percent(100.0 * row.get("products_ms") / row.get("ms"))});
}

Text memory_result(const Evidence& e) {
  const Row row = e.largest("memory", {{"mode", "step"}, {"status", "ok"}}, "measured_peak_bytes");
  const Quantity measured = row.get("measured_peak_bytes");
  const auto alive = e.find("categories@" + row.text("label"), {{"category", "activation"}});
  Text out = say("The memory of a training step of {} peaks at {}; forward saves {} for backward. ",
                 {run_of(row), bytes(measured), bytes(row.get("saved_bytes"))});
  if (alive) {
    out += say("At the peak activations hold {}, {} of it. ",
               {bytes(alive->get("predicted_bytes")), percent(alive->get("share_percent"))});
  }
  return out + compare(row.get("predicted_peak_bytes"), measured)
                   .say({.less = "Predicted was less.",
                         .equal = "The prediction is equal to the byte.",
                         .more = "Predicted was more."});
}

Text training_result(const Evidence& e) {
  const std::vector<Row> rows = e.rows("training");
  require(rows.size() > 1, "nothing was trained, or one step only");
  const Row& end = rows.back();
  Text out =
      say("{} steps of training take the loss from {} in the first batch to {}, the mean of "
          "those at the end",
          {whole(end.get("step")), decimal(rows.front().get("loss"), 2),
           decimal(loss_at_end(rows), 2)});
  if (const auto validation = end.get_if("validation_loss")) {
    out += say("; on text that is not trained on it is {}", {decimal(*validation, 2)});
  }
  return out + ".";
}

// --- trust
// -----------------------------------------------------------------------------------------

Text sound_rows(const Evidence& e) {
  const std::vector<Row> rows = e.rows("validity");
  return say("Of {} timed rows the validity checker finds {} sound, {} doubtful and {} invalid.",
             {whole(count_of(rows, "verdict")), whole(count_where(rows, {"ok", "note"})),
              whole(count_where(rows, {"doubt"})), whole(count_where(rows, {"invalid"}))}) +
         beside_validity(e);
}

// The samples of a row that lie widest apart; those of attention are of three parts.
struct Spread {
  Row row;
  const char* part;
  std::string column;
  Quantity percent;

  // "medium context 512 step fp32 fused"; "the rung norm"; "forward of naive attention (weights),
  // width 16, context 4096".
  Text name() const {
    if (row.has("label")) return row.name();
    if (row.has("rung")) return say("the rung {}", {row.quote("rung")});
    const Text form = row.has("saved")
                          ? row.quote("saved")
                          : say("{} ops, {}", {row.quote("ops"), row.quote("executor")});
    return say(
        "{} of {} attention ({}), width {}, context {}",
        {part, row.quote("attention"), form, whole(row.get("width")), whole(row.get("context"))});
  }
  Text words() const {
    return say("those of {} in the table {}, {} of their median, from {} to {}{}",
               {name(), row.table().c_str(), tracestep::percent(percent),
                duration(least_in(row, column)), duration(most_in(row, column)),
                doubt_of(row) > 0 ? say(" ({})", {row.quote("verdict")}) : Text()});
  }
};

// The columns with samples of a whole row, or of attention's parts, whose names come with them.
std::vector<std::pair<const char*, const char*>> samples_of(const Row& row) {
  if (row.has("samples_ms")) return {{"", "samples_ms"}};
  return {{"forward", "forward_samples_ms"},
          {"backward", "backward_samples_ms"},
          {"whole", "whole_samples_ms"}};
}

std::optional<Spread> widest_spread(const Evidence& e, const char* table) {
  std::optional<Spread> out;
  if (!e.find(table, {{"status", "ok"}})) return out;
  for (const Row& row : e.rows(table, {{"status", "ok"}})) {
    for (const auto& [part, column] : samples_of(row)) {
      if (!row.has(column) || row.numbers(column).size() < 2) continue;
      const Quantity percent = spread_percent_in(row, column);
      if (!out || percent.value > out->percent.value) out = Spread{row, part, column, percent};
    }
  }
  return out;
}

// How far the times of one cell in several tables lie apart, where they do most.
Text widest_repetition(const Evidence& e) {
  std::optional<Quantity> most;
  Text out;
  for (const Row& row : e.rows("cells", {{"status", "ok"}})) {
    for (const Row& other : timed_elsewhere(e, row)) {
      const Quantity here = median_in(row, "samples_ms"), there = time_of(other);
      const bool is_longer = there.value > here.value;
      const Quantity &longer = is_longer ? there : here, &shorter = is_longer ? here : there;
      const Quantity apart = 100.0 * (longer - shorter) / shorter;
      if (most && apart.value <= most->value) continue;
      most = apart;
      out =
          say(" Of cells that were timed in several tables, the times of {} lie widest apart: {}, "
              "{} in the table "
              "cells, {} in the table {}.",
              {row.name(), percent(apart), duration(here), duration(there), other.table().c_str()});
    }
  }
  return out;
}

// Of each table that answers rest on, since some are far less steady than others.
Text worst_spread(const Evidence& e) {
  std::vector<Spread> spreads;
  for (const char* table : {"cells", "scaling", "ways", "ladder", "attention", "attention_ways"}) {
    if (const auto spread = widest_spread(e, table)) spreads.push_back(*spread);
  }
  require(!spreads.empty(), "a spread takes several samples of a row");
  std::ranges::stable_sort(spreads, std::greater{},
                           [](const Spread& s) { return s.percent.value; });
  std::vector<Text> list;
  for (const Spread& spread : spreads) list.push_back(spread.words());
  return say("Of the samples of a row, these lie widest apart in their table: {}.",
             {join(list, "; ")}) +
         widest_repetition(e);
}

// A steady neighbour shows in no sample, only in what the host counts.
Text other_programs(const Evidence& e) {
  std::vector<Text> counts;
  std::optional<Quantity> most;
  bool are_all_counted = true;
  for (const char* table : {"cells", "clocks", "attention"}) {
    if (!e.find(table, {})) continue;
    const std::vector<Row> all = e.rows(table);
    std::vector<Row> beside;
    std::ranges::copy_if(all, std::back_inserter(beside),
                         [](const Row& row) { return row.has("others_cores"); });
    are_all_counted = are_all_counted && beside.size() == all.size();
    if (beside.empty()) continue;
    const Quantity here = most_of(beside, "others_cores");
    if (!most || here.value > most->value) most = here;
    counts.push_back(say("{} of {} rows of the table {}", {whole(count_of(beside, "others_cores")),
                                                           whole(count_of(all, "cell")), table}));
  }
  require(most.has_value(), "how busy others kept the machine is not known");
  return compare(*most, Quantity::constant(0.1))
             .say({.more = "Other programs ran meanwhile; one that runs all the time shows in no "
                           "sample, and looks like a slow machine. "}) +
         say("The host counted them beside {}, and found up to {} cores at other work.{}",
             {join(counts, ", "), decimal(*most),
              are_all_counted ? "" : " What ran beside the other rows is not known."});
}

Text predictions(const Evidence& e) {
  std::optional<Relation> all;
  std::vector<Text> counts;
  // Measured and predicted; the steps of the first table were recorded buffer by buffer.
  for (const auto& [table, column, what] :
       {std::tuple{"memory", "measured_peak_bytes", "of recorded steps"},
        {"cells", "peak_bytes", "of timed steps"},
        {"attention", "peak_bytes", "of attention alone"}}) {
    if (!e.find(table, {{"status", "ok"}})) continue;
    const std::vector<Row> rows = e.rows(table, {{"status", "ok"}});
    for (const Row& row : rows) {
      const Quantity predicted = row.get("predicted_peak_bytes"), measured = row.get(column);
      const Relation same = compare(predicted, measured);
      if (!same.is(Ordering::kEqual)) {
        return say(
            "A peak {} is {}: {}, where {} were predicted.",
            {what, because(same, "not the predicted one"), bytes(measured), bytes(predicted)});
      }
      all = all ? both(*all, same) : same;
    }
    counts.push_back(say("{} {}", {whole(count_of(rows, column)), what}));
  }
  require(all.has_value(), "no peak was measured");
  return say("Peaks of memory that were predicted before they were measured: {}. {}.",
             {join(counts, ", "), because(*all, "Each is equal to its prediction, to the byte")});
}

constexpr Question kQuestions[] = {
    {"result-step", kResults, "How long is a step?", "tracestep bench", step_result},
    {"result-passes", kResults, "What takes it?", "tracestep bench", pass_result},
    {"result-kernels", kResults, "Which kernels?", "tracestep profile", kernel_result},
    {"result-memory", kResults, "How much memory?", "tracestep memory", memory_result},
    {"result-training", kResults, "Does it train?", "tracestep train", training_result},
    {"trust-rows", kTrust, "How many rows are sound?", "tracestep study", sound_rows},
    {"trust-spread", kTrust, "Which is least steady?", "tracestep study", worst_spread},
    {"trust-others", kTrust, "Did other programs run?", "tracestep study", other_programs},
    {"trust-bytes", kTrust, "Are predictions right?", "tracestep study", predictions},
};

// --- the page
// --------------------------------------------------------------------------------------

std::string text_in(const Json& environment, std::string_view name) {
  const Json* value = environment.find(name);
  if (value == nullptr || value->is_null()) return {};
  return value->is_string() ? value->as_string() : value->dump();
}

// "2026-11-22 22:13 UTC" of "2026-11-22T22:13:48Z".
std::string date_of(const Json& environment) {
  const std::string date = text_in(environment, "date_utc");
  return date.size() < 16 ? date : date.substr(0, 10) + " " + date.substr(11, 5) + " UTC";
}

std::string machine_of(const Json& environment) {
  const std::string cpu = text_in(environment, "cpu"), threads = text_in(environment, "threads");
  std::string out = cpu;
  if (!threads.empty()) out += fmt::format(", {} thread{}", threads, threads == "1" ? "" : "s");
  const Json* memory = environment.find("memory_total_bytes");
  if (memory != nullptr && memory->is_int()) out += ", " + format_bytes(memory->as_int());
  return out;
}

// "tiny (vocabulary 256), small (vocabulary 10,000)": the models of its timed steps.
std::string models_of(const StudyReport& report) {
  std::vector<std::string> out;
  for (const Table& table : report.tables) {
    constexpr std::array<std::string_view, 5> kTimed = {"cells", "ways", "warmup", "clocks",
                                                        "steps"};
    if (std::ranges::find(kTimed, table.name) == kTimed.end()) continue;
    for (const auto& row : table.rows) {
      std::string model = row[table.index_of("size").value()].as_string();
      if (const Json& vocab = row[table.index_of("vocab").value()]; vocab.is_int()) {
        model += fmt::format(" (vocabulary {})", grouped(vocab.as_int()));
      }
      if (std::ranges::find(out, model) == out.end()) out.push_back(std::move(model));
    }
  }
  return fmt::format("{}", fmt::join(out, ", "));
}

std::string answered(const StudyReport& report) {
  const auto refused = std::ranges::count(report.answers, true, &Answer::refused);
  return fmt::format("{} of {}", std::ssize(report.answers) - refused, report.answers.size());
}

}  // namespace

std::span<const Question> summary_questions() {
  return kQuestions;
}

std::vector<std::pair<std::string, std::string>> summary_facts(const StudyReport& report,
                                                               const Json& environment) {
  const std::string gpu = text_in(environment, "gpu"), commit = text_in(environment, "commit");
  std::vector<std::pair<std::string, std::string>> out = {
      {"machine", machine_of(environment)},
      {"device", gpu.empty() ? "CPU" : gpu},
      {"date", date_of(environment)},
      {"version", text_in(environment, "tool") + (commit.empty() ? "" : ", commit " + commit)},
      {"models timed", models_of(report)},
      {"questions answered", answered(report)}};
  std::erase_if(out, [](const auto& fact) { return fact.second.empty(); });
  return out;
}

Text first_screen_text(const Answer& answer) {
  Text out;
  if (answer.refused) out += Text(Piece{answer.question + " "});
  out += answer.text;
  if (answer.topic == kResults) out += Text(Piece{warning_of(answer)});
  return out;
}

PageHead page_head(const StudyReport& report, const Json& environment) {
  PageHead out{.title = "A training step, measured", .facts = summary_facts(report, environment)};
  for (const Answer& a : report.summary) {
    (a.topic == kResults ? out.results : out.trust).push_back(first_screen_text(a));
  }
  for (const StudySection& section : report.sections) {
    for (const Chart& chart : section.charts) {
      if (!chart.is_headline) continue;
      out.charts.push_back(chart);
      if (!label_of(chart).empty()) out.charts.back().title += ": " + label_of(chart);
    }
  }
  return out;
}

std::vector<PageSection> page_sections(const StudyReport& report) {
  std::vector<PageSection> out;
  for (const StudySection& section : report.sections) {
    PageSection page{.id = section.id, .title = section.title, .reading = section.reading};
    std::ranges::remove_copy_if(section.charts, std::back_inserter(page.charts),
                                &Chart::is_headline);
    for (std::size_t i = 0; i < section.tables.size(); ++i) {
      const Table& table = section.tables[i];
      const bool is_shown = i < section.shown && table.rows.size() <= kMostRowsShown;
      (is_shown ? page.tables : page.data).push_back(table.name);
    }
    out.push_back(std::move(page));
  }
  return out;
}

}  // namespace tracestep
