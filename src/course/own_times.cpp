#include "course/own_times.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/ranges.h>

#include "base/error.h"
#include "course/tables.h"
#include "lab/measure/statistics.h"
#include "lab/pages/pivot.h"
#include "lab/read/trace_tables.h"
#include "lab/report/csv_reader.h"
#include "lab/report/known_columns.h"
#include "lab/report/spread.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

constexpr std::string_view kMean = "mean_ms", kDeviation = "std_ms", kCount = "n", kTrace = "trace",
                           kOom = "OOM";

// --- the file ------------------------------------------------------------------------------------

double number_in(const std::string& cell, std::string_view column, const std::string& where) {
  char* end = nullptr;
  const double out = std::strtod(cell.c_str(), &end);
  if (cell.empty() || *end != '\0' || !std::isfinite(out) || out < 0) {
    throw Error(ErrorCode::kInput, where, fmt::format("\"{}\" is no {}", cell, column),
                "write a number, not negative");
  }
  return out;
}

void read_recording(const std::filesystem::path& path, OwnTime& own) {
  const ReadTrace trace = read_trace_of_file(path);
  const double step_ms = trace.times.mean_step_ms();
  own.mean_ms = step_ms;
  own.std_ms = sample_std_of(trace.times.step_ms);
  own.steps = static_cast<std::int64_t>(trace.times.count());
  own.recorded.emplace();
  own.recorded->calls =
      static_cast<double>(trace.times.pieces) / static_cast<double>(trace.times.count());
  const auto add = [&](std::string_view name, const std::vector<double>& ms) {
    own.recorded->shares.emplace_back(name, percent_of(mean_of(ms), step_ms));
  };
  for (const Part* part : trace.times.parts.of(PartLevel::kKind)) {
    add(trace.name_of(*part), part->times.ms_of(trace.times.count()));
  }
  add("gaps", trace.times.ms_of(PartLevel::kGap));
}

// Fills what a cell of the file says; empty ones say nothing.
void read_cell(std::string_view column, const std::string& cell, const std::string& where,
               const std::filesystem::path& folder, OwnTime& own) {
  if (cell.empty() && own.recorded) return;
  if (column == kTrace) {
    if (!cell.empty()) read_recording(folder / cell, own);
  } else if (column == kMean) {
    own.is_oom = cell == kOom;
    if (!own.is_oom) own.mean_ms = number_in(cell, column, where);
  } else if (own.is_oom && cell.empty()) {
    return;
  } else if (column == kDeviation) {
    own.std_ms = number_in(cell, column, where);
  } else {
    own.steps = std::llround(number_in(cell, column, where));
  }
}

void check_head(const std::vector<std::string>& head, const std::string& file) {
  const auto has = [&](std::string_view column) {
    return std::ranges::find(head, column) != head.end();
  };
  constexpr const char* kHead =
      "the first line is: size,context,mode,precision,mean_ms,std_ms,n; or size,context,mode,"
      "precision,trace";
  for (std::string_view column : {std::string_view("size"), kMean, kDeviation, kCount}) {
    if (has(column) || (column != "size" && has(kTrace))) continue;
    throw Error(ErrorCode::kInput, file, fmt::format("there is no column {}", column), kHead);
  }
  for (const std::string& name : head) {
    const bool is_time = name == kMean || name == kDeviation || name == kCount || name == kTrace;
    if (is_time || find_field(name) != nullptr) continue;
    throw Error(ErrorCode::kInput, file, fmt::format("{} is no setting of a run", name),
                "columns are settings such as size, and mean_ms, std_ms, n or trace");
  }
}

// --- the study's and others' ---------------------------------------------------------------------

// The study's row for the cell: eager ones of composite kernels, else of primitive ops, unless the
// settings name others. Calls `found(table, row)` for the first.
template <class Found>
void find_ours(const OwnTime& own, const StudyReport& report, const Found& found) {
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
        const bool fits = std::ranges::all_of(
            own.cell, [&](const auto& setting) { return is(setting.first, setting.second); });
        if (fits && is_usual("ops", ops) && is_usual("executor", "eager")) {
          return found(*table, row);
        }
      }
    }
  }
}

struct Ours {
  std::vector<double> samples = {};
  std::string status = {};  // of a cell without samples: "oom"
};

Ours ours_of(const OwnTime& own, const StudyReport& report) {
  Ours out;
  find_ours(own, report, [&](const Table& table, const std::vector<Json>& row) {
    if (const Json* samples = pages::cell_in(table, row, "samples_ms")) {
      out.samples = pages::numbers_in(*samples);
    }
    const Json* status = pages::cell_in(table, row, "status");
    if (out.samples.empty() && status != nullptr) out.status = pages::words_of(*status);
  });
  return out;
}

// "169.1 (A), 25.2 (B)": the published times of the same cell, by the wall clock.
std::string published_of(const OwnTime& own) {
  const std::string mode = own.setting("mode");
  const std::string pass = mode == "forward-backward" ? "forward+backward" : mode;
  // All published times have this value of the setting: true if the user's has it too, or none.
  const auto is_usual = [&](std::string_view setting, std::string_view value) {
    return own.setting(setting).empty() || own.setting(setting) == value;
  };
  std::string out;
  for (const PublishedTime& t : published_tables().times) {
    const bool fits = t.size == own.setting("size") &&
                      std::to_string(t.context) == own.setting("context") && t.pass == pass &&
                      t.precision == own.setting("precision") && t.clock == PublishedClock::kWall &&
                      is_usual("batch", "4") && is_usual("vocab", "10000");
    if (!fits) continue;
    out += fmt::format("{}{} ({}{})", out.empty() ? "" : ", ",
                       t.is_oom ? "OOM" : fmt::format("{:.4g}", t.ms), t.study,
                       t.warmup < 0 ? "" : fmt::format(", warm-up {}", t.warmup));
  }
  return out;
}

// The words of a cell say a setting: "context 128", "small".
bool says(const std::string& words, const std::string& name, const std::string& value) {
  const std::string padded = " " + words + " ";
  const bool is_number = value.find_first_not_of("0123456789") == std::string::npos;
  return padded.find(is_number ? fmt::format(" {} {} ", name, value) : " " + value + " ") !=
         std::string::npos;
}

// The study's profile of the cell by kinds of kernels, of composite ones if it has both; null:
// none.
const Table* profile_of(const OwnTime& own, const StudyReport& report) {
  const Table* out = nullptr;
  constexpr std::string_view kName = "time_by_class@";
  for (const Table& table : report.tables) {
    if (!table.name.starts_with(kName)) continue;
    const std::string words = table.name.substr(kName.size());
    const bool fits = std::ranges::all_of(
        own.cell, [&](const auto& setting) { return says(words, setting.first, setting.second); });
    if (fits && (out == nullptr || says(words, "ops", "fused"))) out = &table;
  }
  return out;
}

std::vector<Json> cell_of(const OwnTime& own) {
  std::vector<Json> out;
  for (const auto& [name, value] : own.cell) out.emplace_back(value);
  return out;
}

std::string words_of(const OwnTime& own) {
  std::string out;
  for (const auto& [name, value] : own.cell) out += value + " ";
  return out + fmt::format("(line {})", own.line);
}

Table beside_table(std::span<const OwnTime> times, const StudyReport& report) {
  Table out{.name = "mine", .title = "My times, those of this study, and published ones"};
  for (const auto& [name, value] : times.front().cell) out.columns.push_back(text_column(name));
  for (Column column :
       {text_column("mine"), int_column(std::string(kCount)), text_column("ours", "tracestep"),
        with_digits(2, col::ratio.titled("mine over it")),
        text_column("published", "published (ms)")}) {
    out.columns.push_back(std::move(column));
  }
  std::vector<std::string> alone;
  std::vector<double> ratios;
  for (const OwnTime& own : times) {
    const Ours ours = ours_of(own, report);
    const std::string published = published_of(own);
    if (ours.samples.empty() && ours.status.empty() && published.empty()) {
      alone.push_back(words_of(own));
    }
    const bool has_ratio = !own.is_oom && !ours.samples.empty();
    if (has_ratio) ratios.push_back(own.mean_ms / mean_of(ours.samples));
    std::vector<Json> row = cell_of(own);
    row.emplace_back(own.is_oom ? std::string(kOom) : mean_and_deviation(own.mean_ms, own.std_ms));
    row.push_back(own.steps > 0 ? Json(own.steps) : Json());
    row.push_back(!ours.samples.empty()
                      ? Json(mean_and_deviation(mean_of(ours.samples), sample_std_of(ours.samples)))
                  : ours.status == "oom" ? Json(kOom)
                                         : Json());
    row.push_back(has_ratio ? Json(ratios.back()) : Json());
    row.push_back(published.empty() ? Json() : Json(published));
    out.add_row(std::move(row));
  }
  out.notes.emplace_back(
      "mine: mean ± deviation of n steps; tracestep: this study's eager cell of the same settings, "
      "of composite kernels where it has both; published: by the wall clock, with the letter of "
      "the write-up");
  if (!ratios.empty()) {
    out.notes.push_back(
        fmt::format("mine take {:.2f} times this study's, at the median of {} cell{}",
                    median_of(ratios), ratios.size(), ratios.size() == 1 ? "" : "s"));
  }
  if (!alone.empty()) {
    out.notes.push_back(fmt::format("nothing to compare with, neither here nor published: {}",
                                    fmt::join(alone, "; ")));
  }
  return out;
}

// Kinds of work by name, in the order of the first recording that has them.
std::vector<std::string> kinds_in(std::span<const OwnTime> times) {
  std::vector<std::string> out;
  for (const OwnTime& own : times) {
    if (!own.recorded) continue;
    for (const auto& [kind, share] : own.recorded->shares) {
      if (share > 0 && std::ranges::find(out, kind) == out.end()) out.push_back(kind);
    }
  }
  return out;
}

Table recordings_table(std::span<const OwnTime> times, const StudyReport& report) {
  Table out{.name = "recordings", .title = "My recordings by kinds of work, beside this study's"};
  const std::vector<std::string> kinds = kinds_in(times);
  for (const auto& [name, value] : times.front().cell) out.columns.push_back(text_column(name));
  for (const std::string& kind : kinds) {
    out.columns.push_back(real_column(kind + "_percent", kind, "%", 1, "of my mean step"));
  }
  out.columns.push_back(with_digits(0, col::calls("a step of mine; ops on a CPU")));
  out.columns.push_back(real_column("ours_percent", "tracestep: matrix products", "%", 1));
  out.columns.push_back(int_column("ours_calls", "tracestep: launches"));
  for (const OwnTime& own : times) {
    if (!own.recorded) continue;
    std::vector<Json> row = cell_of(own);
    for (const std::string& kind : kinds) {
      const auto share =
          std::ranges::find(own.recorded->shares, kind, &std::pair<std::string, double>::first);
      row.push_back(share == own.recorded->shares.end() ? Json() : Json(share->second));
    }
    row.emplace_back(own.recorded->calls);
    const Table* profile = profile_of(own, report);
    std::int64_t launches = 0;
    Json products;
    for (const auto& line : profile == nullptr ? std::vector<std::vector<Json>>() : profile->rows) {
      if (const Json* count = pages::cell_in(*profile, line, "launches")) {
        launches += count->is_null() ? 0 : count->as_int();
      }
      if (pages::words_of(*pages::cell_in(*profile, line, "class")) == "matrix product") {
        products = *pages::cell_in(*profile, line, "share_percent");
      }
    }
    row.push_back(std::move(products));
    row.push_back(profile == nullptr ? Json() : Json(launches));
    out.add_row(std::move(row));
  }
  if (!out.rows.empty()) {
    out.notes.emplace_back(
        "kinds are told by names of kernels, and of ops on a CPU; more of a "
        "recording says tracestep read");
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

std::vector<OwnTime> read_own_times(std::string_view csv, const std::filesystem::path& file) {
  const std::string name = file.string();
  const std::vector<CsvRow> rows = parse_csv_rows(csv, name);
  const std::vector<std::string> head = rows.empty() ? std::vector<std::string>() : rows[0].cells;
  check_head(head, name);
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
    // A recording is read first: other cells may then be empty.
    for (const bool is_trace : {true, false}) {
      for (std::size_t i = 0; i < head.size(); ++i) {
        if ((head[i] == kTrace) != is_trace) continue;
        if (!is_trace && find_field(head[i]) != nullptr) {
          own.cell.emplace_back(head[i], row.cells[i]);
        } else {
          read_cell(head[i], row.cells[i], where, file.parent_path(), own);
        }
      }
    }
    if (own.mean_ms <= 0 && !own.is_oom) {
      throw Error(ErrorCode::kInput, where, "there is neither a time nor a recording",
                  "write mean_ms, std_ms and n, or a trace");
    }
    out.push_back(std::move(own));
  }
  return out;
}

std::vector<Table> own_times_tables(std::span<const OwnTime> times, const StudyReport& report) {
  if (times.empty()) return {};
  std::vector<Table> out = {beside_table(times, report)};
  Table recordings = recordings_table(times, report);
  if (!recordings.rows.empty()) out.push_back(std::move(recordings));
  return out;
}

}  // namespace tracestep
