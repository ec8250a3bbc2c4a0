// The whole replay: reads our rows, and counts the verdicts for each published table.
#include "course/published.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "base/error.h"
#include "lab/compare/result_file.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "nn/config.h"

namespace tracestep {
namespace {

struct Counts {
  const PublishedTime* head = nullptr;
  Pace pace;
  std::map<Agreement, std::int64_t> of = {};
  std::int64_t statuses = 0, statuses_agree = 0, statuses_with_more = 0;
  std::int64_t ours = 0, compared = 0, compared_again = 0, predicted = 0;
  std::map<std::string, std::int64_t> codes = {};

  std::int64_t cells() const {
    std::int64_t out = 0;
    for (const auto& [code, n] : codes) out += n;
    return out;
  }
  std::int64_t count(Agreement agreement) const {
    const auto found = of.find(agreement);
    return found == of.end() ? 0 : found->second;
  }
  // Counts the reasons of verdicts in words: "12 same_pace, 3 launch_bound".
  std::string reasons() const {
    std::string out;
    for (const auto& [code, n] : codes) {
      out += fmt::format("{}{} {}", out.empty() ? "" : ", ", n, code);
    }
    return out;
  }
};

Fields<Counts> count_fields() {
  using C = const Counts&;
  const auto count = [](const char* name, const char* title, Agreement agreement) {
    return Field<Counts>{int_column(name, title), [agreement](C c) { return c.count(agreement); }};
  };
  return {
      {col::study, [](C c) { return c.head->study; }},
      {col::table, [](C c) { return c.head->table; }},
      {col::device, [](C c) { return c.head->device.empty() ? "not stated" : c.head->device; }},
      {text_column("clock"), [](C c) { return name_of(c.head->clock); }},
      {col::precision, [](C c) { return c.head->precision; }},
      {col::cells, &Counts::cells},
      {int_column("times", "", "cells that ran"), [](C c) { return c.cells() - c.statuses; }},
      {int_column("ours", "", "of those, with a time of our run"), &Counts::ours},
      {int_column("compared", "", "times held against ours, at the pace of the other cells"),
       &Counts::compared},
      {data_only(int_column("compared_again", "",
                            "of those, of a cell that an earlier table of the study has as well")),
       &Counts::compared_again},
      {int_column("agree", "", "of those"),
       [](C c) { return c.count(Agreement::kAgree) - c.statuses_agree - c.predicted; }},
      {int_column("predicted", "as predicted",
                  "times without a row of ours, at the multiple of a roofline that the other cells "
                  "of their study have"),
       &Counts::predicted},
      {int_column("statuses", "out of memory"), &Counts::statuses},
      {int_column("statuses_agree", "as it must", "of those, by the closed form of their label"),
       &Counts::statuses_agree},
      {int_column("statuses_with_more", "with more alive",
                  "of those, which would fit but for a second graph or AdamW's states"),
       &Counts::statuses_with_more},
      count("explainable", "", Agreement::kExplainable),
      count("suspicious", "", Agreement::kSuspicious),
      count("not_compared", "not compared", Agreement::kNotCompared),
      {real_column("pace", "pace", "x", 2,
                   "theirs over ours, median of cells that nothing holds up"),
       [](C c) { return positive_or_null(c.pace.ratio); }},
      {real_column("by_low", "peaks give", "x", 2, "from the vendors' peaks of both devices"),
       [](C c) { return positive_or_null(c.pace.by_low); }},
      {real_column("by_high", "to", "x", 2), [](C c) { return positive_or_null(c.pace.by_high); }},
      {text_column("reasons"), &Counts::reasons}};
}

std::vector<Counts> count_by_table(const Published& published, std::span<const TimeReplay> judged) {
  std::vector<Counts> out;
  std::set<std::tuple<std::string, std::string, std::int64_t, std::string, std::string>> compared;
  for (std::size_t i = 0; i < judged.size(); ++i) {
    const PublishedTime& t = published.times[i];
    if (out.empty() || out.back().head->study != t.study || out.back().head->table != t.table) {
      out.push_back({&t, judged[i].device_pace});
    }
    Counts& counts = out.back();
    const Agreement agreement = judged[i].verdict.agreement;
    ++counts.of[agreement];
    ++counts.codes[judged[i].verdict.code];
    counts.ours += !t.is_oom && judged[i].our_ms > 0 ? 1 : 0;
    if (judged[i].is_compared) {
      const bool is_new = compared.insert({t.study, t.size, t.context, t.pass, t.precision}).second;
      ++counts.compared;
      counts.compared_again += is_new ? 0 : 1;
    }
    counts.predicted += judged[i].is_predicted ? 1 : 0;
    counts.statuses += t.is_oom ? 1 : 0;
    counts.statuses_agree += t.is_oom && agreement == Agreement::kAgree ? 1 : 0;
    const std::string& code = judged[i].verdict.code;
    counts.statuses_with_more += code == "two_graphs" || code == "held_states" ? 1 : 0;
  }
  return out;
}

// Tells the rate of a study's fastest fp32 cell, which hints at a device that it does not name.
std::string fastest(const Published& published, std::span<const TimeReplay> judged,
                    const PublishedStudy& study) {
  double best = 0;
  for (std::size_t i = 0; i < judged.size(); ++i) {
    const PublishedTime& t = published.times[i];
    const bool counts = t.study == study.id && t.device.empty() && t.precision == "fp32" &&
                        t.context > 0 && !t.is_oom &&
                        judged[i].verdict.agreement != Agreement::kSuspicious;
    if (!counts) continue;
    const double passes = t.pass == "forward" ? 1 : t.pass == "backward" ? 2 : 3;
    best =
        std::max(best, passes * forward_flops(preset(t.size), 4, static_cast<double>(t.context)) /
                           t.ms * 1e-9);
  }
  if (best == 0) return {};
  const double a100 = known_device("A100 SXM 80 GB")->fp32_tflops;
  return fmt::format("; its fastest fp32 cell reaches {:.1f} TFLOP/s, {}", best,
                     best > a100 ? "more than an A100 has" : "which tells no device");
}

Table summary_table(const Published& published, std::span<const TimeReplay> judged) {
  Table table = table_of("published", "Published tables of times beside ours", count_fields(),
                         count_by_table(published, judged));
  for (const PublishedStudy& s : published.studies) {
    table.notes.push_back(
        fmt::format("write-up {}: {}{}", s.id, s.about, fastest(published, judged, s)));
  }
  table.notes.push_back(
      "agree: as the other cells have the pace of the two devices, within a factor of 1.5; "
      "statuses (out of memory) are counted apart; explainable: another figure than its label "
      "says, and the data show which; suspicious: impossible as labelled, or off without a reason "
      "in the data");
  return table;
}

// Counts the verdicts of each kind in every table that has a verdict for each figure.
Table verdict_table(std::span<const Table> tables) {
  constexpr Agreement kAll[] = {Agreement::kAgree, Agreement::kExplainable, Agreement::kSuspicious,
                                Agreement::kNotCompared};
  Table out{.name = "published_verdicts",
            .title = "Published figures, and how they were judged",
            .columns = {col::table, int_column("figures")}};
  for (Agreement a : kAll) {
    std::string name(name_of(a));
    std::ranges::replace(name, ' ', '_');
    out.columns.push_back(int_column(name, std::string(name_of(a))));
  }
  for (const Table& table : tables) {
    const std::optional<std::size_t> at = table.index_of("verdict");
    if (!at) continue;
    std::vector<Json> row = {table.name, std::ssize(table.rows)};
    for (Agreement a : kAll) {
      row.emplace_back(std::int64_t{std::ranges::count_if(
          table.rows, [&](const auto& r) { return r[*at].as_string() == name_of(a); })});
    }
    out.add_row(std::move(row));
  }
  return out;
}

}  // namespace

int Published::saved_scores(std::string_view study) const {
  const auto found = std::ranges::find(studies, study, &PublishedStudy::id);
  return found == studies.end() ? 2 : found->saved_scores;
}

ReplayInput replay_input(std::vector<ResultRow> rows, const Json& environment) {
  return {std::move(rows), text_at(environment, "gpu")};
}

ReplayInput read_replay_input(const std::filesystem::path& path) {
  const ResultFile file = read_result(path);
  return replay_input(file.cells(), file.environment);
}

Table time_replay_table(const Published& published, std::span<const TimeReplay> judged) {
  struct Row {
    const PublishedTime& t;
    const TimeReplay& r;
  };
  using R = const Row&;
  const Fields<Row> fields = {
      {col::study, [](R c) { return c.t.study; }},
      {col::table, [](R c) { return c.t.table; }},
      {col::size, [](R c) { return c.t.size; }},
      {col::context, [](R c) { return when(c.t.context > 0, c.t.context); }},
      {col::pass, [](R c) { return c.t.pass; }},
      {col::precision, [](R c) { return c.t.precision; }},
      {real_column("published_ms", "published", "ms", 2),
       [](R c) { return when(!c.t.is_oom, c.t.ms); }},
      {real_column("published_std_ms", "±", "ms", 2),
       [](R c) { return finite_or_null(c.t.std_ms); }},
      {real_column("our_ms", "ours", "ms", 2), [](R c) { return positive_or_null(c.r.our_ms); }},
      {real_column("ratio", "ratio", "x", 2),
       [](R c) { return when(c.r.our_ms > 0 && !c.t.is_oom, c.t.ms / c.r.our_ms); }},
      {col::modelled_ms("where ours does not tell"),
       [](R c) { return positive_or_null(c.r.modelled_ms); }},
      {col::verdict, [](R c) { return name_of(c.r.verdict.agreement); }},
      {col::code, [](R c) { return c.r.verdict.code; }},
      {col::reason, [](R c) { return c.r.verdict.text; }}};
  std::vector<Row> rows;
  for (std::size_t i = 0; i < judged.size(); ++i) rows.push_back({published.times[i], judged[i]});
  return table_of("published_times", "Published times cell by cell", fields, rows);
}

std::vector<Table> replay_published(const Published& published, const ReplayInput& ours) {
  const std::vector<TimeReplay> judged = judge_times(published, ours);
  std::vector<Table> out = {
      summary_table(published, judged),        {},  // of verdicts, when all others are there
      time_replay_table(published, judged),    status_replay_table(published),
      peak_replay_table(published, ours),      allocation_replay_table(published),
      attention_replay_table(published, ours), parts_replay_table(published),
      kernel_replay_table(published),          product_share_replay_table(published, ours),
      pair_replay_table(published, ours),      arithmetic_replay_table(published)};
  out[1] = verdict_table(out);
  return out;
}

StudySection published_section(std::vector<ResultRow> rows, const Json& environment) {
  return section("published",
                 replay_published(published_tables(), replay_input(std::move(rows), environment)));
}

}  // namespace tracestep
