#include "lab/compare/compare.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/input_file.h"
#include "lab/compare/gate.h"
#include "lab/compare/rows.h"
#include "lab/measure/bootstrap.h"
#include "lab/measure/statistics.h"
#include "lab/report/fields.h"

namespace tracestep {
namespace {

constexpr double kConfidence = 0.95;
constexpr double kSignificance = 1 - kConfidence;

// Facts that differ in every pair of runs and do not describe the machine.
bool is_of_the_run(std::string_view item) {
  return item == "date_utc" || item == "command_line";
}

Table environment_table(const ResultFile& a, const ResultFile& b) {
  Table table{.name = "environment",
              .title = "What differs between the machines and builds",
              .columns = {text_column("item"), text_column("a", "A"), text_column("b", "B")}};
  const auto add = [&](const std::string& item, const Json* left, const Json* right) {
    const Json missing;
    if (left == nullptr) left = &missing;
    if (right == nullptr) right = &missing;
    if (is_of_the_run(item) || *left == *right) return;
    table.add_row({item, words(*left), words(*right)});
  };
  for (const auto& [item, value] : a.environment.members()) {
    add(item, &value, b.environment.find(item));
  }
  for (const auto& [item, value] : b.environment.members()) {
    if (a.environment.find(item) == nullptr) add(item, nullptr, &value);
  }
  if (table.rows.empty()) table.notes.push_back("nothing: machine and build are the same");
  return table;
}

Json peak_of(const ResultRow& row) {
  const auto bytes = row.number("peak_bytes");
  return bytes ? Json(static_cast<std::int64_t>(*bytes)) : Json();
}

// One measure of a pair of rows.
struct Pair {
  std::string label, verdict;
  const ResultRow &row_a, &row_b;
  const std::vector<double>&a, &b;
  const Comparison& comparison;
  std::string objections;
};

Fields<Pair> fields() {
  using P = const Pair&;
  return {{text_column("row", "", "what both rows measured"), &Pair::label},
          {text_column("verdict", "",
                       "same, faster, slower or unclear of B against A; invalid when either row "
                       "is; or what is missing"),
           &Pair::verdict},
          {int_column("count_a", "n A", "samples"), [](P p) { return std::ssize(p.a); }},
          {int_column("count_b", "n B"), [](P p) { return std::ssize(p.b); }},
          {real_column("median_a_ms", "A", "ms", 3, "median"), [](P p) { return median_of(p.a); }},
          {real_column("median_b_ms", "B", "ms", 3, "median"), [](P p) { return median_of(p.b); }},
          {real_column("ratio", "B / A", "", 3, "of the medians"),
           [](P p) { return finite_or_null(p.comparison.ratio); }},
          {real_column("ratio_low", "from", "", 3,
                       "lower end of its 95 % interval, by 4000 resamples; empty with fewer than "
                       "six samples"),
           [](P p) { return finite_or_null(p.comparison.low); }},
          {real_column("ratio_high", "to", "", 3, "the upper end"),
           [](P p) { return finite_or_null(p.comparison.high); }},
          {real_column("p", "p", "", 4, "Mann-Whitney U, two-sided; exact for short lists"),
           [](P p) { return p.comparison.p; }},
          {bytes_column("peak_a_bytes", "peak A"), [](P p) { return peak_of(p.row_a); }},
          {bytes_column("peak_b_bytes", "peak B"), [](P p) { return peak_of(p.row_b); }},
          {text_column("objections", "", "of the validity checker, notes left out"),
           [](P p) { return or_null(p.objections); }}};
}

// The validity checker's verdicts on the rows of a file, singly and compared with each other.
class Objections {
 public:
  explicit Objections(const ResultFile& file) {
    for (RowVerdict& v : judge_together(file.rows)) {
      together_[&file.rows[v.row]].push_back(std::move(v.verdict));
    }
  }

  std::string of(const ResultRow& row) const {
    std::vector<Verdict> verdicts = judge(row);
    if (const auto found = together_.find(&row); found != together_.end()) {
      verdicts.insert(verdicts.end(), found->second.begin(), found->second.end());
    }
    std::erase_if(verdicts, [](const Verdict& v) { return v.severity == Severity::kNote; });
    return verdicts.empty() ? std::string() : summary_of(verdicts);
  }

 private:
  std::map<const ResultRow*, std::vector<Verdict>> together_;
};

bool has_samples(const ResultRow& row, const ResultLayout::Measure& measure) {
  const Json* list = row.find(measure.samples);
  return list != nullptr && !(list->is_array() && list->size() == 0);
}

// Whether every entry of the list is a time; a NaN is stored as null, which is not a number.
bool are_times(const ResultRow& row, const ResultLayout::Measure& measure) {
  const std::vector<double> samples = row.numbers(measure.samples);
  return samples.size() == row.find(measure.samples)->size() &&
         std::ranges::all_of(samples, [](double ms) { return std::isfinite(ms) && ms > 0; });
}

class Report {
 public:
  Report(const ResultFile& a, const ResultFile& b, const ResultLayout& layout,
         const CompareOptions& options)
      : layout_(layout), options_(options), against_a_(a), against_b_(b) {
    out_.environment = environment_table(a, b);
    out_.rows = {.name = "compare", .title = "B against A", .columns = fields_.columns()};
    const std::vector<std::string> ignored = ignored_keys(a, b, options.ignored);
    const auto rows_of_a = by_identity(a, layout, ignored);
    const auto rows_of_b = by_identity(b, layout, ignored);
    for (const ResultRow& row : a.rows) {
      const auto found = rows_of_b.find(identity(row, layout, ignored));
      if (found != rows_of_b.end()) {
        add_pair(row, *found->second);
        continue;
      }
      const std::string label = pair_label(row, row, layout_);
      add_words(label, "only in A");
      gate_.undecide(label, "only in A");
    }
    for (const ResultRow& row : b.rows) {
      if (rows_of_a.contains(identity(row, layout, ignored))) continue;
      add_words(pair_label(row, row, layout_), "only in B");
    }
    add_notes();
    gate_.finish(tested_);
  }
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  ComparisonReport finish() { return std::move(out_); }

 private:
  // Adds a row with a verdict in words instead of figures.
  void add_words(const std::string& label, const std::string& verdict) {
    out_.rows.add_cells({{"row", label}, {"verdict", verdict}});
  }

  void add_pair(const ResultRow& a, const ResultRow& b) {
    const std::string label = pair_label(a, b, layout_);
    const std::string status_a = a.text("status"), status_b = b.text("status");
    if (status_a == "ok" && status_b == "ok") return add_measures(label, a, b);
    add_words(label, status_a == status_b ? status_a : fmt::format("{} → {}", status_a, status_b));
    gate_.judge_statuses(label, status_a, status_b);
  }

  // Of both rows: "A doubt: unsteady; B invalid: two_graphs".
  std::string both_objections(const ResultRow& a, const ResultRow& b) const {
    const std::string of_a = against_a_.of(a), of_b = against_b_.of(b);
    std::string out = of_a.empty() ? "" : "A " + of_a;
    if (!of_b.empty()) out += (out.empty() ? "B " : "; B ") + of_b;
    return out;
  }

  // A measure without samples on either side was not taken: an attention row may have forward only.
  void add_measures(const std::string& row_label, const ResultRow& a, const ResultRow& b) {
    const std::string against = both_objections(a, b);
    bool is_measured = false;
    for (const ResultLayout::Measure& measure : layout_.measures) {
      if (!has_samples(a, measure) && !has_samples(b, measure)) continue;
      is_measured = true;
      add_measure(measure.name.empty() ? row_label : fmt::format("{} {}", row_label, measure.name),
                  measure, a, b, against);
    }
    if (is_measured) return;
    add_words(row_label, "no samples in A");
    gate_.undecide(row_label, "no samples in A");
  }

  void add_measure(const std::string& label, const ResultLayout::Measure& measure,
                   const ResultRow& a, const ResultRow& b, const std::string& against) {
    const std::vector<double> left = a.numbers(measure.samples), right = b.numbers(measure.samples);
    const char* missing = left.empty()    ? "no samples in A"
                          : right.empty() ? "no samples in B"
                          : !are_times(a, measure) || !are_times(b, measure)
                              ? "samples that are no positive numbers"
                              : nullptr;
    if (missing != nullptr) {
      add_words(label, missing);
      return gate_.undecide(label, missing);
    }
    const Comparison c = compare_samples(left, right, options_.margin);
    const bool is_valid = against.find("invalid") == std::string::npos;
    const std::string verdict(is_valid ? name_of(c.change) : "invalid");
    out_.rows.add_row(fields_.row({label, verdict, a, b, left, right, c, against}));
    ++tested_;
    if (left.size() != right.size()) other_counts_ = true;
    if (is_valid) {
      gate_.judge_change(label, c);
    } else {
      gate_.undecide(label, against);
    }
  }

  void add_notes() {
    std::vector<std::string>& notes = out_.rows.notes;
    notes.push_back(fmt::format(
        "same: the 95 % interval of the ratio lies within ±{:.3g} %; faster, slower: it lies on "
        "one side of 1 and p < 0.05; unclear: neither, measure more",
        100 * options_.margin));
    if (tested_ >= 5) {
      notes.push_back(fmt::format(
          "{} comparisons at 5 %: by chance alone {:.1f} of them would come out faster or slower",
          tested_, 0.05 * tested_));
    }
    notes.push_back(
        "samples of one process share its clocks and the place of its memory: compare two runs of "
        "the same build first, to see what a new process alone changes");
    if (other_counts_) {
      notes.push_back(
          "some rows have different numbers of samples: medians and their intervals can be "
          "compared, standard deviations and minima cannot");
    }
  }

  const ResultLayout& layout_;
  const CompareOptions& options_;
  const Objections against_a_, against_b_;
  const Fields<Pair> fields_ = fields();
  ComparisonReport out_;
  Gate gate_{options_.fail_percent, out_};
  int tested_ = 0;
  bool other_counts_ = false;
};

}  // namespace

std::string_view name_of(Change change) {
  switch (change) {
    case Change::kSame: return "same";
    case Change::kFaster: return "faster";
    case Change::kSlower: return "slower";
    case Change::kUnclear: return "unclear";
  }
  return "?";
}

void check_members(const Json& document, const std::string& name) {
  const auto refuse = [&](const char* what) {
    fail_input(name, "it is no whole JSON result: there is no {}", what);
  };
  const Json *environment = document.find("environment"), *rows = document.find("rows");
  if (environment == nullptr || !environment->is_object()) refuse("object \"environment\"");
  if (rows == nullptr || !rows->is_array()) refuse("array \"rows\"");
}

ResultFile read_result(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const Json document = Json::parse(read_text_file(path, name, kMaxResultBytes), name);
  const Json* schema = document.is_object() ? document.find("schema") : nullptr;
  if (schema == nullptr || !schema->is_string()) {
    throw Error(ErrorCode::kInput, name, "it is no JSON result: there is no \"schema\"",
                "write one with --format json --output FILE");
  }
  if (layout_of(schema->as_string()) == nullptr) {
    throw Error(ErrorCode::kInput, name,
                fmt::format("rows of {} have no samples to compare", schema->as_string()),
                fmt::format("one of {}", fmt::join(compared_schemas(), ", ")));
  }
  check_members(document, name);
  ResultFile out{name, schema->as_string(), document.at("environment"), {}};
  const auto environment = std::make_shared<const Json>(out.environment);
  const Json::Array& rows = document.at("rows").items();
  if (rows.size() > kMaxResultRows) {
    fail_input(name, "{} rows; at most {} are read", rows.size(), kMaxResultRows);
  }
  for (const Json& row : rows) out.rows.emplace_back(row, environment);
  return out;
}

bool is_slower(const Comparison& c) {
  return c.low > 1 && c.p < kSignificance;
}

Comparison compare_samples(std::span<const double> a, std::span<const double> b, double margin) {
  const Interval interval = ratio_interval(a, b, kConfidence);
  Comparison out{.ratio = median_of(b) / median_of(a),
                 .low = interval.low,
                 .high = interval.high,
                 .p = mann_whitney_p(a, b)};
  if (interval.coverage < kConfidence) return out;
  if (out.low >= 1 - margin && out.high <= 1 + margin) {
    out.change = Change::kSame;
  } else if (out.high < 1 && out.p < kSignificance) {
    out.change = Change::kFaster;
  } else if (is_slower(out)) {
    out.change = Change::kSlower;
  }
  return out;
}

ComparisonReport compare_results(const ResultFile& a, const ResultFile& b,
                                 const CompareOptions& options) {
  if (a.schema != b.schema) {
    throw Error(ErrorCode::kUsage, "compare",
                fmt::format("{} is {} and {} is {}", a.name, a.schema, b.name, b.schema),
                "compare two results of the same command");
  }
  const ResultLayout* layout = layout_of(a.schema);
  TRACESTEP_CHECK(layout != nullptr, "no layout for {}", a.schema);
  check_ignored(*layout, options.ignored);
  return Report(a, b, *layout, options).finish();
}

}  // namespace tracestep
