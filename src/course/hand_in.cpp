#include "course/hand_in.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"
#include "course/tables.h"
#include "lab/measure/statistics.h"
#include "lab/pages/pivot.h"
#include "lab/report/columns.h"
#include "lab/report/csv_reader.h"
#include "lab/report/prose.h"
#include "lab/report/spread.h"
#include "lab/study/summary.h"
#include "spec/fields.h"

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

// --- times of one's own --------------------------------------------------------------------------

constexpr std::string_view kMean = "mean_ms", kDeviation = "std_ms", kCount = "n";

// The study's samples for the cell: eager rows of composite kernels, else of primitive ops, unless
// the settings name others.
std::vector<double> our_samples(const OwnTime& own, const StudyReport& report) {
  for (const char* ops : {"fused", "primitive"}) {
    for (const char* name : {"cells", "scaling", "steps", "ways"}) {
      const auto table = std::ranges::find(report.tables, name, &Table::name);
      if (table == report.tables.end()) continue;
      for (const auto& row : table->rows) {
        const auto is = [&](std::string_view column, std::string_view wanted) {
          const Json* cell = pages::cell_in(*table, row, column);
          return cell != nullptr && pages::words_of(*cell) == wanted;
        };
        const auto is_usual = [&](std::string_view column, std::string_view usual) {
          return !own.setting(column).empty() || is(column, usual);
        };
        const Json* samples = pages::cell_in(*table, row, "samples_ms");
        const bool fits = std::ranges::all_of(
            own.cell, [&](const auto& setting) { return is(setting.first, setting.second); });
        if (fits && samples != nullptr && is_usual("ops", ops) && is_usual("executor", "eager")) {
          return pages::numbers_in(*samples);
        }
      }
    }
  }
  return {};
}

// "169.1 (A), 25.2 (B)": the published times of the same cell, by the wall clock.
std::string published_of(const OwnTime& own) {
  const std::string mode = own.setting("mode");
  const std::string pass = mode == "forward-backward" ? "forward+backward" : mode;
  std::string out;
  for (const PublishedTime& t : published_tables().times) {
    const bool fits = t.size == own.setting("size") &&
                      std::to_string(t.context) == own.setting("context") && t.pass == pass &&
                      t.precision == own.setting("precision") && t.clock == PublishedClock::kWall;
    if (!fits) continue;
    out += fmt::format("{}{} ({}{})", out.empty() ? "" : ", ",
                       t.is_oom ? "OOM" : fmt::format("{:.4g}", t.ms), t.study,
                       t.warmup < 0 ? "" : fmt::format(", warm-up {}", t.warmup));
  }
  return out;
}

double number_in(const std::string& cell, std::string_view column, const std::string& where) {
  char* end = nullptr;
  const double out = std::strtod(cell.c_str(), &end);
  if (cell.empty() || *end != '\0' || !std::isfinite(out) || out < 0) {
    throw Error(ErrorCode::kInput, where, fmt::format("\"{}\" is no {}", cell, column),
                "write a number, not negative");
  }
  return out;
}

}  // namespace

std::string OwnTime::setting(std::string_view name) const {
  for (const auto& [known, value] : cell) {
    if (known == name) return value;
  }
  return {};
}

std::vector<OwnTime> read_own_times(std::string_view csv, const std::string& name) {
  const std::vector<CsvRow> rows = parse_csv_rows(csv, name);
  const std::vector<std::string> head = rows.empty() ? std::vector<std::string>() : rows[0].cells;
  for (std::string_view column : {std::string_view("size"), kMean, kDeviation, kCount}) {
    if (std::ranges::find(head, column) == head.end()) {
      throw Error(ErrorCode::kInput, name, fmt::format("there is no column {}", column),
                  "the first line is: size,context,mode,precision,mean_ms,std_ms,n");
    }
  }
  std::vector<OwnTime> out;
  for (const CsvRow& row : std::span(rows).subspan(1)) {
    const std::string where = fmt::format("{}:{}", name, row.line);
    if (row.cells.size() != head.size()) {
      throw Error(
          ErrorCode::kInput, where,
          fmt::format("{} cells where the first line has {}", row.cells.size(), head.size()),
          "give each line a cell for each column");
    }
    OwnTime own{.cell = {}, .line = row.line};
    for (std::size_t i = 0; i < head.size(); ++i) {
      const std::string& cell = row.cells[i];
      if (head[i] == kMean) {
        own.mean_ms = number_in(cell, head[i], where);
      } else if (head[i] == kDeviation) {
        own.std_ms = number_in(cell, head[i], where);
      } else if (head[i] == kCount) {
        own.steps = std::llround(number_in(cell, head[i], where));
      } else if (find_field(head[i]) != nullptr) {
        own.cell.emplace_back(head[i], cell);
      } else {
        throw Error(ErrorCode::kInput, name, fmt::format("{} is no setting of a run", head[i]),
                    "columns are settings such as size, and mean_ms, std_ms, n");
      }
    }
    out.push_back(std::move(own));
  }
  return out;
}

Table own_times_table(std::span<const OwnTime> times, const StudyReport& report) {
  Table out{.name = "mine", .title = "My times, those of this study, and published ones"};
  if (times.empty()) return out;
  for (const auto& [name, value] : times.front().cell) out.columns.push_back(text_column(name));
  for (Column column :
       {text_column("mine"), int_column(std::string(kCount)), text_column("ours", "tracestep"),
        real_column("ratio", "mine over it", "", 2), text_column("published", "published (ms)")}) {
    out.columns.push_back(std::move(column));
  }
  std::vector<std::string> alone;
  std::vector<double> ratios;
  for (const OwnTime& own : times) {
    const std::vector<double> ours = our_samples(own, report);
    const std::string published = published_of(own);
    std::vector<Json> row;
    std::string label;
    for (const auto& [name, value] : own.cell) {
      row.emplace_back(value);
      label += value + " ";
    }
    if (!ours.empty()) ratios.push_back(own.mean_ms / mean_of(ours));
    if (ours.empty() && published.empty()) {
      alone.push_back(fmt::format("{}(line {})", label, own.line));
    }
    row.emplace_back(mean_and_deviation(own.mean_ms, own.std_ms));
    row.emplace_back(own.steps);
    row.push_back(ours.empty() ? Json()
                               : Json(mean_and_deviation(mean_of(ours), population_std_of(ours))));
    row.push_back(ours.empty() ? Json() : Json(ratios.back()));
    row.push_back(published.empty() ? Json() : Json(published));
    out.add_row(std::move(row));
  }
  if (!ratios.empty()) {
    out.notes.push_back(
        fmt::format("mine take {:.2f} times this study's, at the median of {} cells",
                    median_of(ratios), ratios.size()));
  }
  if (!alone.empty()) {
    out.notes.push_back(fmt::format("nothing to compare with, neither here nor published: {}",
                                    fmt::join(alone, "; ")));
  }
  return out;
}

std::string course_page(const StudyReport& report, const Json& environment,
                        std::span<const OwnTime> own, Format format, const std::string& charts) {
  const Prose prose(format);
  std::string out = prose.begin("Assignment 2: profiling and benchmarking");
  for (const std::string& fact : summary_facts(report, environment)) out += prose.item(fact);
  if (!own.empty()) {
    out += prose.heading(2, "My times") + prose.table(own_times_table(own, report));
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
