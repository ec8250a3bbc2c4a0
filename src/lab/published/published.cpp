// The replay as a whole: rows are read, verdicts are counted per published table.
#include "lab/published/published.h"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include "base/error.h"
#include "lab/compare/compare.h"
#include "lab/compare/result_csv.h"
#include "lab/report/columns.h"
#include "nn/config.h"

namespace tracestep {
namespace {

std::string_view clock_name(PublishedClock clock) {
  switch (clock) {
    case PublishedClock::kWall: return "wall";
    case PublishedClock::kProfiled: return "profiled";
    case PublishedClock::kHostRange: return "host range";
  }
  return "?";
}

struct Counts {
  const PublishedTime* head = nullptr;
  Pace pace;
  std::map<Agreement, std::int64_t> of;
  std::map<std::string, std::int64_t> codes;
};

std::vector<Counts> count_by_table(const Published& published, std::span<const TimeReplay> judged) {
  std::vector<Counts> out;
  for (std::size_t i = 0; i < judged.size(); ++i) {
    const PublishedTime& t = published.times[i];
    if (out.empty() || out.back().head->study != t.study || out.back().head->table != t.table) {
      out.push_back({&t, judged[i].pace, {}, {}});
    }
    ++out.back().of[judged[i].verdict.agreement];
    ++out.back().codes[judged[i].verdict.code];
  }
  return out;
}

Json or_null(double value) {
  return value > 0 ? Json(value) : Json();
}

// What a study's fastest fp32 cell says of a device that it does not name.
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
  const double a100 = known_device("A100")->fp32_tflops;
  return fmt::format("; its fastest fp32 cell reaches {:.1f} TFLOP/s, {} an A100 has", best,
                     best > a100 ? "more than" : "less than");
}

Table summary_table(const Published& published, std::span<const TimeReplay> judged) {
  Table table{.name = "published",
              .title = "Published tables of times beside ours",
              .columns = {text_column("study"), text_column("table"), text_column("device"),
                          text_column("clock"), text_column("precision"), int_column("cells"),
                          int_column("agree"), int_column("explainable"), int_column("suspicious"),
                          int_column("not_compared", "not compared"),
                          real_column("pace", "pace", "x", 2,
                                      "theirs over ours, median of cells that nothing holds up"),
                          real_column("by_low", "peaks give", "x", 2,
                                      "from the vendors' peaks of both devices"),
                          real_column("by_high", "to", "x", 2), text_column("reasons")}};
  for (const Counts& c : count_by_table(published, judged)) {
    const auto count = [&](Agreement a) {
      const auto found = c.of.find(a);
      return found == c.of.end() ? std::int64_t{0} : found->second;
    };
    std::string reasons;
    std::int64_t cells = 0;
    for (const auto& [code, n] : c.codes) {
      reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ", n, code);
      cells += n;
    }
    table.add_row({c.head->study, c.head->table,
                   c.head->device.empty() ? Json("not stated") : Json(c.head->device),
                   clock_name(c.head->clock), c.head->precision, cells, count(Agreement::kAgree),
                   count(Agreement::kExplainable), count(Agreement::kSuspicious),
                   count(Agreement::kNotCompared), or_null(c.pace.ratio), or_null(c.pace.by_low),
                   or_null(c.pace.by_high), reasons});
  }
  for (const PublishedStudy& s : published.studies) {
    table.notes.push_back(
        fmt::format("write-up {}: {}{}", s.id, s.about, fastest(published, judged, s)));
  }
  table.notes.push_back(
      "agree: as the pace of the two devices has it, within a factor of 1.5; explainable: another "
      "figure than its label says, and the data show which; suspicious: impossible as labelled, or "
      "off without a reason in the data");
  return table;
}

}  // namespace

int Published::saved_scores(std::string_view study) const {
  const auto found = std::ranges::find(studies, study, &PublishedStudy::id);
  return found == studies.end() ? 2 : found->saved_scores;
}

std::string_view name_of(Agreement agreement) {
  switch (agreement) {
    case Agreement::kAgree: return "agree";
    case Agreement::kExplainable: return "explainable";
    case Agreement::kSuspicious: return "suspicious";
    case Agreement::kNotCompared: return "not compared";
  }
  return "?";
}

ReplayInput replay_input(std::vector<ResultRow> rows, const Json& environment) {
  const Json* gpu = environment.is_object() ? environment.find("gpu") : nullptr;
  return {std::move(rows), gpu != nullptr && gpu->is_string() ? gpu->as_string() : std::string()};
}

ReplayInput read_replay_input(const std::filesystem::path& path) {
  if (path.extension() == ".csv") {
    return {read_result_csv(path), {}};
  }
  ResultFile file = read_result(path);
  return replay_input(std::move(file.rows), file.environment);
}

Table time_replay_table(const Published& published, std::span<const TimeReplay> judged) {
  Table table{
      .name = "published_times",
      .title = "Published times cell by cell",
      .columns = {text_column("study"), text_column("table"), text_column("size"),
                  int_column("context"), text_column("pass"), text_column("precision"),
                  real_column("published_ms", "published", "ms", 2),
                  real_column("published_std_ms", "±", "ms", 2),
                  real_column("our_ms", "ours", "ms", 2), real_column("ratio", "ratio", "x", 2),
                  text_column("verdict"), text_column("code"), text_column("reason")}};
  for (std::size_t i = 0; i < judged.size(); ++i) {
    const PublishedTime& t = published.times[i];
    const TimeReplay& r = judged[i];
    const bool has_both = r.our_ms > 0 && !t.is_oom;
    table.add_row({t.study, t.table, t.size, t.context > 0 ? Json(t.context) : Json(), t.pass,
                   t.precision, t.is_oom ? Json() : Json(t.ms),
                   std::isnan(t.std_ms) ? Json() : Json(t.std_ms), or_null(r.our_ms),
                   has_both ? Json(t.ms / r.our_ms) : Json(), name_of(r.verdict.agreement),
                   r.verdict.code, r.verdict.text});
  }
  return table;
}

std::vector<Table> replay_published(const Published& published, const ReplayInput& ours) {
  const std::vector<TimeReplay> judged = judge_times(published, ours);
  return {summary_table(published, judged),        time_replay_table(published, judged),
          status_replay_table(published),          peak_replay_table(published, ours),
          attention_replay_table(published, ours), share_replay_table(published)};
}

}  // namespace tracestep
