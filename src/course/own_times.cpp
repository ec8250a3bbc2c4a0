#include "course/own_times.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include <fmt/ranges.h>

#include "base/error.h"
#include "course/modelled.h"
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
// Throws Error{kInput} about the line or cell that `where` names.
[[noreturn]] void refuse(const std::string& where, std::string what, std::string right) {
  throw Error(ErrorCode::kInput, where, std::move(what), std::move(right));
}

// Reads a number in decimal digits; refuses others, negative ones, and more than 1e9 (eleven days).
double number_in(const std::string& cell, std::string_view column, const std::string& where) {
  constexpr double kMost = 1e9;
  char* end = nullptr;
  const double out = std::strtod(cell.c_str(), &end);
  const bool is_decimal = cell.find_first_not_of("0123456789.+-eE") == std::string::npos;
  if (cell.empty() || *end != '\0' || !is_decimal || !std::isfinite(out) || out < 0) {
    refuse(where, fmt::format("\"{}\" is no {}", cell, column),
           column == kMean ? "write a number of milliseconds, or OOM for a cell that ran out of "
                             "memory"
                           : "write a number, not negative");
  }
  if (out > kMost) refuse(where, fmt::format("{} {} is too much", column, cell), "write ms");
  return out;
}

std::int64_t count_in(const std::string& cell, const std::string& where) {
  const double out = number_in(cell, kCount, where);
  if (out < 1 || out != std::floor(out)) {
    refuse(where, fmt::format("\"{}\" is no n", cell),
           "n is how many steps the mean is of: a whole number, 1 or more");
  }
  return std::llround(out);
}

bool says_oom(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text == kOom;
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

// Reads a cell that tells a time: mean_ms, std_ms, n or trace; beside a trace others may be empty.
void read_cell(std::string_view column, const std::string& cell, const std::string& where,
               const std::filesystem::path& folder, OwnTime& own) {
  if (cell.empty() && own.recorded) return;
  if (column == kTrace) {
    if (!cell.empty()) read_recording(folder / cell, own);
  } else if (column == kMean) {
    own.is_oom = says_oom(cell);
    if (!own.is_oom) own.mean_ms = number_in(cell, column, where);
  } else if (own.is_oom) {
    if (cell.empty()) return;
    refuse(where, fmt::format("a cell that ran out of memory has {} {}", column, cell),
           "leave std_ms and n of it empty");
  } else if (column == kDeviation) {
    own.std_ms = number_in(cell, column, where);
  } else {
    own.steps = count_in(cell, where);
  }
}

// Reads a setting as a command takes it. A size that is no preset stays as a name, which one of the
// study's own sizes may have.
void read_setting(const RunField& field, const std::string& text, const std::string& where,
                  OwnTime& own) {
  if (text.empty()) {
    refuse(where, fmt::format("there is no {}", field.name), "give each line all of its settings");
  }
  own.cell.emplace_back(field.name, text);
  try {
    field.parse(where, text)(own.run);
  } catch (const Error& error) {
    if (field.name == "size") {
      own.run.model.name = text;
      return;
    }
    const bool is_backward = field.name == "mode" && text == "backward";
    refuse(where, fmt::format("{}: {}", field.name, error.message()),
           is_backward ? "write forward-backward; backward alone is the difference from forward"
                       : error.hint());
  }
}

void check_head(const std::vector<std::string>& head, const std::string& file) {
  const auto count = [&](std::string_view column) { return std::ranges::count(head, column); };
  constexpr const char* kHead =
      "the first line is: size,context,mode,precision,mean_ms,std_ms,n; or size,context,mode,"
      "precision,trace; batch and vocab are columns where they are not 4 and 10000";
  for (std::string_view column :
       {std::string_view("size"), std::string_view("context"), std::string_view("mode"),
        std::string_view("precision"), kMean, kDeviation, kCount}) {
    const bool is_time = column == kMean || column == kDeviation || column == kCount;
    if (count(column) > 0 || (is_time && count(kTrace) > 0)) continue;
    refuse(file, fmt::format("there is no column {}", column), kHead);
  }
  for (const std::string& name : head) {
    if (count(name) > 1) refuse(file, fmt::format("there are two columns {}", name), kHead);
    const bool is_time = name == kMean || name == kDeviation || name == kCount || name == kTrace;
    if (is_time || find_field(name) != nullptr) continue;
    refuse(file, fmt::format("{} is no setting of a run", name),
           "columns are settings such as size, and mean_ms, std_ms, n or trace");
  }
}

OwnTime time_in(const CsvRow& row, const std::vector<std::string>& head, const std::string& file,
                const std::filesystem::path& folder) {
  const std::string where = fmt::format("{}:{}", file, row.line);
  if (row.cells.size() != head.size()) {
    refuse(where,
           fmt::format("{} cells where the first line has {}", row.cells.size(), head.size()),
           "give each line a cell for each column");
  }
  OwnTime out;
  out.line = row.line;
  // A size sets what other settings change, and a recording, or OOM, lets other cells be empty.
  for (const char* first : {"size", "trace", "mean_ms", ""}) {
    for (std::size_t i = 0; i < head.size(); ++i) {
      const bool is_early = head[i] == "size" || head[i] == kTrace || head[i] == kMean;
      if (*first == '\0' ? is_early : head[i] != first) continue;
      if (const RunField* field = find_field(head[i])) {
        read_setting(*field, row.cells[i], where, out);
      } else {
        read_cell(head[i], row.cells[i], where, folder, out);
      }
    }
  }
  if (out.mean_ms <= 0 && !out.is_oom) {
    refuse(where, "there is neither a time nor a recording",
           "write mean_ms, std_ms and n, or a trace");
  }
  return out;
}

// --- the study's and others' ---------------------------------------------------------------------

// True for fields that tell runs apart here; of the fields with a model's sizes, only `vocab`.
bool is_told(const RunField& field) {
  return tells_apart(field) && (!is_own_size(field) || field.name == "vocab");
}

bool is_same_run(const OwnTime& own, const RunSpec& run) {
  return part_of_key(own.run, is_told) == part_of_key(run, is_told);
}

// Finds the study's row for the cell of `own`: with composite kernels, else with primitive ops,
// unless the settings name others. Calls `found(table, row)` for the first one.
template <class Found>
void find_ours(OwnTime own, const StudyReport& report, const Found& found) {
  for (const Granularity ops : {Granularity::kFused, Granularity::kPrimitive}) {
    if (own.setting("ops").empty()) own.run.ops = ops;
    for (const char* name : {"cells", "scaling", "steps", "ways"}) {
      const auto table = std::ranges::find(report.tables, name, &Table::name);
      if (table == report.tables.end()) continue;
      for (const auto& row : table->rows) {
        const Json* cell = pages::cell_in(*table, row, "cell");
        const bool is_of_run = cell != nullptr && cell->is_object();
        if (is_of_run && is_same_run(own, run_of_key(*cell))) return found(*table, row);
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

// The published wall times of the same cell in eager PyTorch, whatever our ops are.
std::vector<PublishedTime> published_of(const OwnTime& own) {
  std::vector<PublishedTime> out;
  const Mode mode = own.run.mode;
  const std::string pass =
      mode == Mode::kForwardBackward ? "forward+backward" : std::string(name_of(mode));
  for (const PublishedTime& t : published_tables().times) {
    const bool fits = t.size == own.setting("size") && t.pass == pass && t.context > 0 &&
                      t.precision == name_of(own.run.precision) && t.clock == PublishedClock::kWall;
    if (!fits) continue;
    RunSpec theirs = run_of({t.size, t.context, t.precision, t.pass});
    theirs.ops = own.run.ops;
    if (is_same_run(own, theirs)) out.push_back(t);
  }
  return out;
}

// Lists times with their sources: "169.1 (A: large alone), OOM (B: 5 warm-up steps)".
std::string words_of(std::span<const PublishedTime> times) {
  std::vector<std::string> out;
  for (const PublishedTime& t : times) {
    const std::string ms = t.is_oom ? std::string(kOom) : fmt::format("{:.4g}", t.ms);
    out.push_back(fmt::format("{} ({}: {})", ms, t.study, t.table));
  }
  return fmt::format("{}", fmt::join(out, ", "));
}

// Says which write-ups a table names: "A: device not stated; B: an RTX 5090 …".
std::string legend_of(const std::set<std::string>& studies) {
  std::vector<std::string> out;
  for (const PublishedStudy& study : published_tables().studies) {
    if (studies.contains(study.id)) out.push_back(study.id + ": " + study.about);
  }
  return fmt::format("{}", fmt::join(out, "; "));
}

// True if the words of a cell say a setting, as "context 128" or "small".
bool says(const std::string& words, const std::string& name, const std::string& value) {
  const std::string padded = " " + words + " ";
  const bool is_number = value.find_first_not_of("0123456789") == std::string::npos;
  return padded.find(is_number ? fmt::format(" {} {} ", name, value) : " " + value + " ") !=
         std::string::npos;
}

// The study's table of the cell's profile by kinds of kernels, that of fused ops if it has several;
// nullptr: none.
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
        with_digits(3, col::ratio.titled("mine over it")),
        text_column("published", "published (ms)")}) {
    out.columns.push_back(std::move(column));
  }
  constexpr double kFar = 200;  // as seconds in the place of milliseconds are
  std::vector<std::string> alone;
  std::vector<double> ratios;
  std::vector<std::string> far;
  std::set<std::string> studies;
  for (const OwnTime& own : times) {
    const Ours ours = ours_of(own, report);
    const std::vector<PublishedTime> theirs = published_of(own);
    const std::string published = words_of(theirs);
    for (const PublishedTime& t : theirs) studies.insert(t.study);
    if (ours.samples.empty() && ours.status.empty() && published.empty()) {
      alone.push_back(words_of(own));
    }
    const bool has_ratio = !own.is_oom && !ours.samples.empty();
    if (has_ratio) ratios.push_back(own.mean_ms / mean_of(ours.samples));
    const bool is_far = has_ratio && (ratios.back() < 1 / kFar || ratios.back() > kFar);
    if (is_far) far.push_back(words_of(own));
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
  out.notes.emplace_back(fmt::format(
      "mine: mean ± deviation of n steps; tracestep: this study's eager cell of the same settings, "
      "of composite kernels where it has both. Batch {}, vocabulary {} and all else as usual where "
      "the file does not say it",
      RunSpec().shape.batch, preset("small").vocab));
  if (!studies.empty()) {
    out.notes.push_back(
        "published: milliseconds by the wall clock, with the letter of the write-up and its "
        "table. " +
        legend_of(studies));
  }
  if (!ratios.empty()) {
    out.notes.push_back(
        fmt::format("mine take {:.3g} times this study's, at the median of {} cell{}",
                    median_of(ratios), ratios.size(), ratios.size() == 1 ? "" : "s"));
  }
  if (!far.empty()) {
    out.notes.push_back(
        fmt::format("far from this study's, as other units are: {}; mean_ms is in "
                    "milliseconds",
                    fmt::join(far, "; ")));
  }
  if (!alone.empty()) {
    out.notes.push_back(fmt::format("nothing to compare with, neither here nor published: {}",
                                    fmt::join(alone, "; ")));
  }
  return out;
}

// The kinds of work by name, in the order of the first recording that has them.
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
    OwnTime own = time_in(row, head, name, file.parent_path());
    const auto twin = std::ranges::find_if(out, [&](const OwnTime& other) {
      return part_of_key(own.run, is_told) == part_of_key(other.run, is_told);
    });
    if (twin != out.end()) {
      refuse(fmt::format("{}:{}", name, row.line),
             fmt::format("this is the cell of line {} again", twin->line),
             "give each cell once, or the setting in which they differ as a column");
    }
    out.push_back(std::move(own));
  }
  if (out.empty()) refuse(name, "there are no times below its first line", "add a line for each");
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
