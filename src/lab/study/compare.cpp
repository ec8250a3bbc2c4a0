#include "lab/study/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/input_file.h"
#include "base/suggest.h"
#include "lab/measure/bootstrap.h"
#include "lab/measure/statistics.h"
#include "lab/study/columns.h"

namespace tracestep {
namespace {

constexpr double kConfidence = 0.95;

// What rows of a command are told apart by, and where their samples are.
struct Layout {
  std::string_view schema;
  std::vector<std::string_view> keys;  // columns, or members of "cell"
  struct Measure {
    std::string_view samples, name;  // the column, and what is timed; empty: the row as such
  };
  std::vector<Measure> measures;
};

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {"tracestep.bench/1",
       {"size", "d_model", "d_ff", "layers", "heads", "vocab", "context", "batch", "mode",
        "precision", "ops", "attention", "executor", "device"},
       {{"samples_ms", ""}}},
      {"tracestep.attention/1",
       {"batch", "context", "width", "causal", "attention", "saved", "precision", "device"},
       {{"forward_samples_ms", "forward"},
        {"backward_samples_ms", "backward"},
        {"whole_samples_ms", "whole"}}},
  };
  return all;
}

const Layout* layout_of(std::string_view schema) {
  const auto found = std::ranges::find(layouts(), schema, &Layout::schema);
  return found == layouts().end() ? nullptr : &*found;
}

const Json* key_of(const ResultRow& row, std::string_view key) {
  if (const Json* cell = row.find(key)) return cell;
  const Json* parameters = row.parameters();
  return parameters == nullptr ? nullptr : parameters->find(key);
}

std::string words(const Json& value) {
  return value.is_string() ? value.as_string() : value.dump();
}

// The keys that are compared, as one text.
std::string identity(const ResultRow& row, const Layout& layout,
                     const std::vector<std::string>& ignored) {
  std::string out;
  for (std::string_view key : layout.keys) {
    if (std::ranges::find(ignored, key) != ignored.end()) continue;
    const Json* value = key_of(row, key);
    out += fmt::format("{}={};", key, value == nullptr ? "" : value->dump());
  }
  return out;
}

// What people call a pair of rows; where they differ both are named.
std::string pair_label(const ResultRow& a, const ResultRow& b, const Layout& layout) {
  static const std::set<std::string_view> kQuiet = {"d_model", "d_ff",      "layers",  "heads",
                                                    "vocab",   "attention", "executor"};
  std::string out;
  for (std::string_view key : layout.keys) {
    const Json *left = key_of(a, key), *right = key_of(b, key);
    if (left == nullptr || right == nullptr) continue;
    const bool same = *left == *right;
    if (same && kQuiet.contains(key)) continue;
    std::string text = same ? words(*left) : fmt::format("{} → {}", words(*left), words(*right));
    if (left->is_number() || left->is_bool()) text = fmt::format("{} {}", key, text);
    out += (out.empty() ? "" : " ") + text;
  }
  return out.empty() ? "row" : out;
}

std::map<std::string, const ResultRow*> by_identity(const ResultFile& file, const Layout& layout,
                                                    const std::vector<std::string>& ignored) {
  std::map<std::string, const ResultRow*> out;
  for (const ResultRow& row : file.rows) {
    const auto [found, is_new] = out.emplace(identity(row, layout, ignored), &row);
    if (is_new) continue;
    throw Error(ErrorCode::kUsage, file.name,
                fmt::format("two rows are the same but for what is ignored: {} and {}",
                            pair_label(*found->second, *found->second, layout),
                            pair_label(row, row, layout)),
                "ignore fewer columns, or give files in which the others tell all rows apart");
  }
  return out;
}

void check_ignored(const Layout& layout, const std::vector<std::string>& ignored) {
  const std::vector<std::string> keys(layout.keys.begin(), layout.keys.end());
  for (const std::string& name : ignored) {
    if (std::ranges::find(keys, name) != keys.end()) continue;
    throw Error(ErrorCode::kUsage, "--ignore",
                fmt::format("rows of {} have no key \"{}\"{}", layout.schema, name,
                            did_you_mean(name, keys)),
                fmt::format("one of {}", fmt::join(keys, ", ")));
  }
}

// Facts that differ in every pair of runs and say nothing of the machine.
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

std::vector<Column> columns() {
  return {text_column("row", "", "what both rows measured"),
          text_column("verdict", "",
                      "same, faster, slower or unclear of B against A; invalid when either row is; "
                      "or what is missing"),
          int_column("count_a", "n A", "samples"),
          int_column("count_b", "n B"),
          real_column("median_a_ms", "A", "ms", 3, "median"),
          real_column("median_b_ms", "B", "ms", 3, "median"),
          real_column("ratio", "B / A", "", 3, "of the medians"),
          real_column("ratio_low", "from", "", 3,
                      "lower end of its 95 % interval, by 4000 resamples; empty with fewer than "
                      "six samples"),
          real_column("ratio_high", "to", "", 3, "the upper end"),
          real_column("p", "p", "", 4, "Mann-Whitney U, two-sided; exact for short lists"),
          bytes_column("peak_a_bytes", "peak A"),
          bytes_column("peak_b_bytes", "peak B"),
          text_column("objections", "", "of the validity checker, notes left out")};
}

std::string objections(const ResultRow& row) {
  std::vector<Verdict> verdicts = judge(row);
  std::erase_if(verdicts, [](const Verdict& v) { return v.severity == Severity::kNote; });
  return verdicts.empty() ? std::string() : summary_of(verdicts);
}

Json peak_of(const ResultRow& row) {
  const auto bytes = row.number("peak_bytes");
  return bytes ? Json(static_cast<std::int64_t>(*bytes)) : Json();
}

Json finite(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

class Report {
 public:
  Report(const ResultFile& a, const ResultFile& b, const Layout& layout,
         const CompareOptions& options)
      : layout_(layout), options_(options) {
    out_.environment = environment_table(a, b);
    out_.rows = {.name = "compare", .title = "B against A", .columns = columns()};
    const auto rows_of_a = by_identity(a, layout, options.ignored);
    const auto rows_of_b = by_identity(b, layout, options.ignored);
    for (const ResultRow& row : a.rows) {
      const auto found = rows_of_b.find(identity(row, layout, options.ignored));
      if (found == rows_of_b.end()) {
        add_lonely(row, "only in A");
      } else {
        add_pair(row, *found->second);
      }
    }
    for (const ResultRow& row : b.rows) {
      if (!rows_of_a.contains(identity(row, layout, options.ignored))) {
        add_lonely(row, "only in B");
      }
    }
    add_notes();
  }

  ComparisonReport finish() { return std::move(out_); }

 private:
  void add_lonely(const ResultRow& row, const char* where) {
    std::vector<Json> cells(out_.rows.columns.size());
    cells[0] = pair_label(row, row, layout_);
    cells[1] = where;
    out_.rows.add_row(std::move(cells));
  }

  void add_pair(const ResultRow& a, const ResultRow& b) {
    const std::string label = pair_label(a, b, layout_);
    const std::string status_a = a.text("status"), status_b = b.text("status");
    if (status_a != "ok" || status_b != "ok") {
      add_lonely(a, "");
      out_.rows.rows.back()[0] = label;
      out_.rows.rows.back()[1] =
          status_a == status_b ? status_a : fmt::format("{} → {}", status_a, status_b);
      if (options_.fail_percent && status_a == "ok") {
        out_.regressions.push_back(fmt::format("{}: {} → {}", label, status_a, status_b));
      }
      return;
    }
    for (const Layout::Measure& measure : layout_.measures) add_measure(label, measure, a, b);
  }

  void add_measure(const std::string& row_label, const Layout::Measure& measure, const ResultRow& a,
                   const ResultRow& b) {
    const std::string label =
        measure.name.empty() ? row_label : fmt::format("{} {}", row_label, measure.name);
    const std::vector<double> left = a.numbers(measure.samples), right = b.numbers(measure.samples);
    if (left.empty() || right.empty()) return;
    const Comparison c = compare_samples(left, right, options_.margin);
    const std::string of_a = objections(a), of_b = objections(b);
    const bool is_valid = !of_a.starts_with("invalid") && !of_b.starts_with("invalid");
    std::string against;
    if (!of_a.empty()) against = "A " + of_a;
    if (!of_b.empty()) against += (against.empty() ? "B " : "; B ") + of_b;
    out_.rows.add_row({label, is_valid ? name_of(c.change) : "invalid",
                       static_cast<std::int64_t>(left.size()),
                       static_cast<std::int64_t>(right.size()), median_of(left), median_of(right),
                       finite(c.ratio), finite(c.low), finite(c.high), c.p, peak_of(a), peak_of(b),
                       against.empty() ? Json() : Json(against)});
    ++tested_;
    if (left.size() != right.size()) other_counts_ = true;
    if (!options_.fail_percent || !is_valid || c.change != Change::kSlower) return;
    if (c.ratio <= 1 + *options_.fail_percent / 100) return;
    out_.regressions.push_back(fmt::format("{}: {:+.1f} % ({:+.1f} to {:+.1f} %)", label,
                                           100 * (c.ratio - 1), 100 * (c.low - 1),
                                           100 * (c.high - 1)));
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

  const Layout& layout_;
  const CompareOptions& options_;
  ComparisonReport out_;
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

ResultFile read_result(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const Json document = Json::parse(read_text_file(path, name, kMaxResultBytes), name);
  const Json* schema = document.is_object() ? document.find("schema") : nullptr;
  if (schema == nullptr || !schema->is_string()) {
    throw Error(ErrorCode::kInput, name, "it is no JSON result: there is no \"schema\"",
                "write one with --format json --output FILE");
  }
  if (layout_of(schema->as_string()) == nullptr) {
    std::vector<std::string_view> known;
    for (const Layout& layout : layouts()) known.push_back(layout.schema);
    throw Error(ErrorCode::kInput, name,
                fmt::format("rows of {} have no samples to compare", schema->as_string()),
                fmt::format("one of {}", fmt::join(known, ", ")));
  }
  ResultFile out{name, schema->as_string(), document.at("environment"), {}};
  const auto environment = std::make_shared<const Json>(out.environment);
  const Json::Array& rows = document.at("rows").items();
  if (rows.size() > kMaxResultRows) {
    fail_input(name, "{} rows; at most {} are read", rows.size(), kMaxResultRows);
  }
  for (const Json& row : rows) out.rows.emplace_back(row, environment);
  return out;
}

Comparison compare_samples(std::span<const double> a, std::span<const double> b, double margin) {
  constexpr double kSignificance = 1 - kConfidence;
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
  } else if (out.low > 1 && out.p < kSignificance) {
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
  const Layout* layout = layout_of(a.schema);
  TRACESTEP_CHECK(layout != nullptr, "no layout for {}", a.schema);
  check_ignored(*layout, options.ignored);
  return Report(a, b, *layout, options).finish();
}

}  // namespace tracestep
