#include "lab/compare/compare.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "lab/compare/conditions.h"
#include "lab/compare/declared.h"
#include "lab/compare/exact.h"
#include "lab/compare/gate.h"
#include "lab/measure/statistics.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

Json peak_of(const ResultRow& row) {
  const auto bytes = row.peak_bytes();
  return bytes ? Json(static_cast<std::int64_t>(*bytes)) : Json();
}

// A measure of two rows that are compared: the samples, their comparison and doubts about it.
struct Pair {
  std::string label, verdict;
  const ResultRow &row_a, &row_b;
  const ProcessSamples &a, &b;
  const Comparison& comparison;
  std::string objections, conditions;
};

std::int64_t count_of(const ProcessSamples& processes) {
  std::int64_t out = 0;
  for (const auto& samples : processes) out += std::ssize(samples);
  return out;
}

double median_of_medians(const ProcessSamples& processes) {
  return median_of(process_medians(processes));
}

// Makes a column of verdicts show people "impossible" for the checker's word "invalid".
Column shown_verdict(Column column) {
  column.words = {{"invalid", "impossible"}};
  return column;
}

Fields<Pair> pair_fields() {
  using P = const Pair&;
  return {
      {col::row("what both rows measured"), &Pair::label},
      {shown_verdict(col::verdict(
           "same, faster, slower or unclear of B against A; invalid when either row is; or what is "
           "missing")),
       &Pair::verdict},
      {int_column("processes_a", "processes A"), [](P p) { return std::ssize(p.a); }},
      {int_column("processes_b", "processes B"), [](P p) { return std::ssize(p.b); }},
      {int_column("count_a", "n A", "samples of all processes"), [](P p) { return count_of(p.a); }},
      {int_column("count_b", "n B"), [](P p) { return count_of(p.b); }},
      {real_column("median_a_ms", "A", "ms", 3, "median of the processes' medians"),
       [](P p) { return median_of_medians(p.a); }},
      {real_column("median_b_ms", "B", "ms", 3, "likewise"),
       [](P p) { return median_of_medians(p.b); }},
      {col::ratio("of the medians; the median of the ratios of pairs"),
       [](P p) { return finite_or_null(p.comparison.ratio); }},
      {col::ratio_low(
           "lower end of its 99.5 % interval, by 4000 resamples of processes or of their "
           "pairs and of samples in them; empty where there are too few"),
       [](P p) { return finite_or_null(p.comparison.low); }},
      {col::ratio_high("the upper end"), [](P p) { return finite_or_null(p.comparison.high); }},
      {with_digits(
           4, col::p("two-sided, of the processes' medians: Mann-Whitney U, exact without ties; of "
                     "pairs Wilcoxon's signed ranks, exact")),
       [](P p) { return finite_or_null(p.comparison.p); }},
      {bytes_column("peak_a_bytes", "peak A"), [](P p) { return peak_of(p.row_a); }},
      {bytes_column("peak_b_bytes", "peak B"), [](P p) { return peak_of(p.row_b); }},
      {text_column("conditions", "",
                   "what was different on the machine: load, other work, clocks of the CPU"),
       [](P p) { return or_null(p.conditions); }},
      {text_column("objections", "", "of the validity checker, notes left out"),
       [](P p) { return or_null(p.objections); }}};
}

struct Objection {
  std::string text = {};  // summary_of(); empty: there is none
  bool is_invalid = false;
};

// The validity checker's verdicts on the rows of a table, singly and compared with each other.
class Objections {
 public:
  explicit Objections(const ResultTable& table) {
    for (RowVerdict& v : judge_together(table.rows)) {
      together_[&table.rows[v.row]].push_back(std::move(v.verdict));
    }
  }

  Objection of(const ResultRow& row) const {
    std::vector<Verdict> verdicts = judge(row);
    if (const auto found = together_.find(&row); found != together_.end()) {
      verdicts.insert(verdicts.end(), found->second.begin(), found->second.end());
    }
    std::erase_if(verdicts, [](const Verdict& v) { return v.severity == Severity::kNote; });
    if (verdicts.empty()) return {};
    const auto is_invalid = [](const Verdict& v) { return v.severity == Severity::kInvalid; };
    return {summary_of(verdicts), std::ranges::any_of(verdicts, is_invalid)};
  }

 private:
  std::map<const ResultRow*, std::vector<Verdict>> together_;
};

// True if the row has samples in the column `measure`.
bool has_samples(const ResultRow& row, const Column& measure) {
  const Json* list = row.find(measure.name);
  return list != nullptr && !(list->is_array() && list->size() == 0);
}

// The row's samples by process; empty when the counts of processes do not add up to them.
ProcessSamples samples_of(const ResultRow& row, const Column& measure) {
  return by_process(row.numbers(measure.name), row.numbers(counts_column(measure.name)));
}

// Joins the samples of each run's processes into one list; empty when `runs` runs cannot have
// equally many processes.
ProcessSamples by_run(const ProcessSamples& processes, int runs) {
  const auto count = static_cast<std::size_t>(runs);
  if (processes.size() % count != 0) return {};
  ProcessSamples out(count);
  for (std::size_t i = 0; i < processes.size(); ++i) {
    std::vector<double>& run = out[i * count / processes.size()];
    run.insert(run.end(), processes[i].begin(), processes[i].end());
  }
  return out;
}

// True if every entry of the list is a time; a NaN is stored as null, which is not a number.
bool are_times(const ResultRow& row, const Column& measure) {
  const std::vector<double> samples = row.numbers(measure.name);
  const Json* list = row.find(measure.name);
  return list != nullptr && list->is_array() && samples.size() == list->size() &&
         !samples_of(row, measure).empty() &&
         std::ranges::all_of(samples, [](double ms) { return std::isfinite(ms) && ms > 0; });
}

// Returns pairs of tables of one name in both results, in the order of the declared tables. A table
// of parts is left out if nothing says of which cell they are parts: its name has no "@", and
// neither result has cells.
std::vector<TablePair> table_pairs(const ResultFile& a, const ResultFile& b,
                                   const std::vector<std::string>& ignored,
                                   bool are_of_two_things) {
  std::vector<std::pair<const ResultTable*, const ResultTable*>> found;
  for (const ResultTable& of_a : a.tables) {
    const auto of_b = std::ranges::find(b.tables, of_a.name, &ResultTable::name);
    if (of_b != b.tables.end()) found.emplace_back(&of_a, &*of_b);
  }
  std::ranges::stable_sort(found, {}, [](const auto& tables) {
    const std::string& name = tables.first->name;
    return std::ranges::find(declared_tables(), name.substr(0, name.find('@')), &Table::name);
  });
  const bool has_cells =
      std::ranges::any_of(found, [](const auto& tables) { return !tables.first->is_of_parts(); });
  std::vector<TablePair> out;
  for (const auto& [of_a, of_b] : found) {
    if (has_cells || of_a->name.find('@') != std::string::npos) {
      out.emplace_back(*of_a, *of_b, ignored, are_of_two_things);
    }
  }
  return out;
}

// The noise between processes, from every row that was measured in several.
std::optional<ProcessNoise> noise_in(std::span<const TablePair> pairs) {
  std::vector<ProcessSamples> cells;
  for (const TablePair& pair : pairs) {
    for (const ResultTable* table : {&pair.a, &pair.b}) {
      for (const ResultRow& row : table->rows) {
        for (const Column& measure : pair.columns(ColumnRole::kSamples)) {
          if (are_times(row, measure)) cells.push_back(samples_of(row, measure));
        }
      }
    }
  }
  return pooled_noise(cells);
}

class Report {
 public:
  Report(std::span<const TablePair> pairs, const CompareOptions& options) : options_(options) {
    noise_ = options.noise_percent ? ProcessNoise{std::log1p(*options.noise_percent / 100), 0}
                                   : noise_in(pairs);
    out_.rows = {.name = "compare", .title = "B against A", .columns = fields_.columns()};
    for (const TablePair& pair : pairs) add_table(pair);
    if (options.fail_percent) exact_.judge(*options.fail_percent, gate_);
    add_notes();
    out_.exact = exact_.table();
    gate_.finish(!is_any_timed_ && exact_.is_empty());
  }
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  ComparisonReport finish() { return std::move(out_); }

 private:
  void add_table(const TablePair& pair) {
    if (pair.is_of_parts()) {
      // A table without "@" in its name belongs to the only cell of its file.
      const bool is_of_known_cell = pair.a.name.find('@') != std::string::npos;
      if (is_of_known_cell || (matched_ > 0 && unmatched_ == 0)) exact_.add(pair);
      return;
    }
    const auto rows_of_a = pair.by_identity(pair.a), rows_of_b = pair.by_identity(pair.b);
    const Objections against_a(pair.a), against_b(pair.b);
    for (const ResultRow& row : pair.a.rows) {
      const auto found = rows_of_b.find(pair.identity(row));
      if (found == rows_of_b.end()) {
        add_unmatched(pair.label(row, row), "only in A");
        continue;
      }
      ++matched_;
      const ResultRow& other = *found->second;
      add_pair(pair, row, other, both(against_a.of(row), against_b.of(other)));
    }
    for (const ResultRow& row : pair.b.rows) {
      if (rows_of_a.contains(pair.identity(row))) continue;
      ++unmatched_;
      add_words(pair.label(row, row), "only in B");
    }
    exact_.add(pair);
  }

  // Adds a row with a verdict in words instead of figures.
  void add_words(const std::string& label, const std::string& verdict) {
    out_.rows.add_cells({{"row", label}, {"verdict", verdict}});
  }
  void add_unmatched(const std::string& label, const char* where) {
    ++unmatched_;
    add_words(label, where);
    gate_.undecide(label, where);
  }

  void add_pair(const TablePair& pair, const ResultRow& a, const ResultRow& b,
                const Objection& against) {
    const std::string label = pair.label(a, b);
    const std::string status_a = a.status(), status_b = b.status();
    const std::vector<Column> measures = pair.columns(ColumnRole::kSamples);
    const bool both_ran = status_a == "ok" && status_b == "ok";
    if (both_ran && measures.empty()) return;
    if (both_ran) return add_measures(label, a, b, measures, against);
    if (a.find("status") == nullptr && b.find("status") == nullptr) return;
    add_words(label, status_a == status_b ? status_a : fmt::format("{} → {}", status_a, status_b));
    gate_.judge_statuses(label, status_a, status_b);
  }

  // Joins what is said against either row: "A doubt: unsteady; B invalid: two_graphs".
  static Objection both(const Objection& of_a, const Objection& of_b) {
    std::string out = of_a.text.empty() ? "" : "A " + of_a.text;
    if (!of_b.text.empty()) out += (out.empty() ? "B " : "; B ") + of_b.text;
    return {std::move(out), of_a.is_invalid || of_b.is_invalid};
  }

  // Adds all measures of which a side has samples: an attention row may have forward only.
  void add_measures(const std::string& row_label, const ResultRow& a, const ResultRow& b,
                    std::span<const Column> measures, const Objection& against) {
    bool is_measured = false;
    for (const Column& measure : measures) {
      if (!has_samples(a, measure) && !has_samples(b, measure)) continue;
      is_measured = true;
      const std::string_view what = measure_of(measure.name);
      add_measure(what.empty() ? row_label : fmt::format("{} {}", row_label, what), measure, a, b,
                  against);
    }
    if (is_measured) return;
    add_words(row_label, "no samples in A");
    gate_.undecide(row_label, "no samples in A");
  }

  void add_measure(const std::string& label, const Column& measure, const ResultRow& a,
                   const ResultRow& b, const Objection& against) {
    const char* missing =
        a.numbers(measure.name).empty()   ? "no samples in A"
        : b.numbers(measure.name).empty() ? "no samples in B"
        : !are_times(a, measure) || !are_times(b, measure)
            ? "samples that are no positive numbers, or not those of its processes"
            : nullptr;
    if (missing != nullptr) {
      add_words(label, missing);
      return gate_.undecide(label, missing);
    }
    const ProcessSamples left = samples_of(a, measure), right = samples_of(b, measure);
    const Comparison c = compared(left, right);
    const bool is_valid = !against.is_invalid;
    const std::string verdict(is_valid ? name_of(c.change) : "invalid");
    out_.rows.add_row(fields_.row(
        {label, verdict, a, b, left, right, c, against.text, different_conditions(a, b)}));
    is_any_timed_ = true;
    if (is_valid) {
      gate_.judge_change(label, c);
    } else {
      gate_.undecide(label, against.text);
    }
  }

  // Compares by pairs of runs if there are enough of them, else by processes.
  Comparison compared(const ProcessSamples& a, const ProcessSamples& b) {
    if (options_.pairs > 0 && can_tell_pairs(static_cast<std::size_t>(options_.pairs))) {
      const ProcessSamples runs_of_a = by_run(a, options_.pairs),
                           runs_of_b = by_run(b, options_.pairs);
      if (!runs_of_a.empty() && !runs_of_b.empty()) {
        ++in_pairs_;
        return compare_pairs(runs_of_a, runs_of_b, options_.margin);
      }
    }
    if (!can_tell(a.size(), b.size())) ++(noise_ ? with_noise_ : too_few_);
    return compare_processes(a, b, options_.margin, noise_);
  }

  void add_notes() {
    std::vector<std::string>& notes = out_.rows.notes;
    if (!is_any_timed_) return;
    notes.push_back(fmt::format(
        "same: the 99.5 % interval of the ratio lies within ±{:.3g} %; faster, slower: it lies on "
        "one side of 1 and p < 0.005; unclear: neither, measure in more processes",
        100 * options_.margin));
    if (in_pairs_ > 0) {
      notes.push_back(fmt::format(
          "{} {} compared in {} pairs of runs, which cancel what changes slower than a pair takes",
          in_pairs_, in_pairs_ == 1 ? "row was" : "rows were", options_.pairs));
    }
    if (too_few_ > 0) {
      notes.push_back(fmt::format(
          "{} {} measured in too few processes to tell a difference from what a new process alone "
          "changes: six on each side are the least (`bench` can start them, and `compare` those of "
          "two builds in turns), unless the noise between processes is given",
          too_few_, too_few_ == 1 ? "row was" : "rows were"));
    }
    if (with_noise_ > 0) {
      notes.push_back(fmt::format(
          "where there are fewer than six processes on each side, the interval alone decides, with "
          "a noise between processes of {:.2f} % ({})",
          100 * std::expm1(noise_->log_std),
          options_.noise_percent
              ? "as given"
              : fmt::format("of the rows with several, {} degrees of freedom", noise_->degrees)));
    }
  }

  const CompareOptions& options_;
  const Fields<Pair> fields_ = pair_fields();
  std::optional<ProcessNoise> noise_;
  ComparisonReport out_;
  ExactComparison exact_;
  Gate gate_{options_.fail_percent, out_};
  int matched_ = 0, unmatched_ = 0;  // rows of cells
  int in_pairs_ = 0, too_few_ = 0, with_noise_ = 0;
  bool is_any_timed_ = false;
};

// Adds a data-only column that names the keys in which all rows of A differ from all rows of B.
void add_difference(std::span<const TablePair> pairs, Table& table) {
  const auto cells = std::ranges::find_if_not(pairs, &TablePair::is_of_parts);
  const std::string difference = cells == pairs.end() ? "" : cells->difference();
  table.columns.push_back(
      data_only(text_column("differs", "", "what all rows of A differ in from all of B")));
  for (std::vector<Json>& row : table.rows) row.push_back(or_null(difference));
}

}  // namespace

ComparisonReport compare_results(const ResultFile& a, const ResultFile& b,
                                 const CompareOptions& options) {
  // A gate compares rows of the same thing only.
  const std::vector<TablePair> pairs =
      table_pairs(a, b, options.ignored, !options.fail_percent.has_value());
  if (pairs.empty()) {
    throw Error(ErrorCode::kUsage, "compare",
                fmt::format("{} ({}) and {} ({}) measure different things", a.name, a.schema,
                            b.name, b.schema),
                "compare two results of the same command");
  }
  check_ignored(pairs, options.ignored);
  ComparisonReport out = Report(pairs, options).finish();
  for (Table* table : {&out.rows, &out.exact}) add_difference(pairs, *table);
  out.environment = environment_table(a, b);
  return out;
}

}  // namespace tracestep
