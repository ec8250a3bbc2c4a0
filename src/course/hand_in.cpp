#include "course/hand_in.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "lab/pages/pivot.h"
#include "lab/report/prose.h"
#include "lab/study/summary.h"

namespace tracestep {
namespace {

// --- tables of one key against another -----------------------------------------------------------

struct ProblemPivot {
  std::string_view number;
  std::vector<std::string_view> tables;
  pages::Pivot pivot;
};

const std::vector<ProblemPivot>& pivots() {
  static const std::vector<ProblemPivot> all = [] {
    std::vector<ProblemPivot> out;
    const auto add = [&](std::string_view number, std::vector<std::string_view> tables,
                         pages::Pivot pivot) {
      out.push_back({number, std::move(tables), std::move(pivot)});
    };
    for (const char* mode : {"forward", "forward-backward", "step"}) {
      add("1.1.3 b", {"cells", "scaling"},
          {.title = fmt::format("{}: mean ± deviation, by context", mode),
           .down = {"size"},
           .across = "context",
           .value = "samples_ms",
           .where = {{"mode", mode}, {"ops", "fused"}}});
    }
    add("1.1.5 c", {"steps"},
        {.title = "A pass in each precision: mean ± deviation",
         .down = {"size"},
         .across = "precision",
         .value = "samples_ms"});
    for (const char* precision : {"fp32", "bf16"}) {
      add(precision[0] == 'f' ? "1.1.6 b" : "1.1.6 c", {"memory_grid"},
          {.title = fmt::format("Peak in {}, by context", precision),
           .down = {"mode"},
           .across = "context",
           .value = "predicted_peak_bytes",
           .where = {{"precision", precision}}});
    }
    for (const char* form : {"naive", "flash"}) {
      const char* const saved = form[0] == 'n' ? "weights" : "lse";
      for (const auto& [title, value] : {std::pair{"forward", "forward_samples_ms"},
                                         {"backward", "backward_samples_ms"},
                                         {"bytes before backward", "before_backward_bytes"}}) {
        add(form[0] == 'n' ? "1.2.1 a" : "1.3", {"attention"},
            {.title = fmt::format("{} attention, {}, width by context", form, title),
             .down = {"width"},
             .across = "context",
             .value = value,
             .where = {{"attention", form}, {"saved", saved}}});
      }
    }
    add("1.2.2 b", {"ways"},
        {.title = "Eager and compiled: mean ± deviation",
         .down = {"mode"},
         .across = "executor",
         .value = "samples_ms",
         .where = {{"ops", "fused"}}});
    return out;
  }();
  return all;
}

// Empty where the study has no such rows, or a single cell.
Table table_of(const ProblemPivot& wanted, const StudyReport& report) {
  std::vector<const Table*> tables;
  for (std::string_view name : wanted.tables) {
    const auto found = std::ranges::find(report.tables, name, &Table::name);
    if (found != report.tables.end()) tables.push_back(&*found);
  }
  try {
    Table out = pages::pivoted(wanted.pivot, tables);
    if (out.rows.size() < 2 && out.columns.size() < 3) out.rows.clear();
    return out;
  } catch (const Error& error) {  // rows that nothing tells apart
    log_warn("the table \"{}\" is left out: {}", wanted.pivot.title, error.what());
    return {};
  }
}

}  // namespace

std::string course_page(const StudyReport& report, const Json& environment,
                        std::span<const OwnTime> own, Format format, const std::string& charts) {
  const Prose prose(format);
  std::string out = prose.begin("Assignment 2: profiling and benchmarking");
  for (const std::string& fact : summary_facts(report, environment)) out += prose.item(fact);
  if (!own.empty()) {
    out += prose.heading(2, "My times");
    for (const Table& table : own_times_tables(own, report)) out += prose.table(table);
  }
  std::vector<const Answer*> asked;
  for (const Answer& a : report.answers) {
    if (!a.number.empty()) asked.push_back(&a);
  }
  std::ranges::stable_sort(asked, {}, [](const Answer* a) { return a->number; });
  std::string number;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const Answer& a = *asked[i];
    if (a.number != number) out += prose.heading(2, "Problem " + (number = a.number));
    out += prose.paragraph({}, a.question) + prose.paragraph(a.lead.words(), a.more.words());
    for (const Chart& chart : a.charts) out += prose.picture(charts + "/" + chart.name);
    if (!a.lines.empty()) out += prose.table(lines_of(a));
    if (i + 1 < asked.size() && asked[i + 1]->number == number) continue;
    for (const ProblemPivot& pivot : pivots()) {
      if (pivot.number != number) continue;
      const Table table = table_of(pivot, report);
      if (!table.rows.empty()) out += prose.table(table);
    }
  }
  return out + prose.end();
}

}  // namespace tracestep
