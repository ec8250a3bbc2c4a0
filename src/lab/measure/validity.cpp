// Rows, severities and what is printed; the checks themselves are in validity_checks.cpp.
#include "lab/measure/validity.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include <fmt/format.h>

#include "spec/fields.h"

namespace tracestep {
namespace {

// The columns that identify what was measured, as opposed to results and ceilings.
const std::vector<std::string_view>& keys() {
  static const std::vector<std::string_view> all = [] {
    std::vector<std::string_view> out;
    for (const RunField& field : run_fields()) {
      const bool matters = field.role != FieldRole::kSpeed || field.is_axis;
      if (is_column(field) && matters) out.push_back(field.name);
    }
    return out;
  }();
  return all;
}

bool is_ok(const ResultRow& row) {
  return row.text("status") == "ok";
}

// The values by which rows are compared, read once from each row. NaN: missing.
struct Facts {
  explicit Facts(const ResultRow& of) : row(&of) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    const std::vector<double> samples = of.numbers("samples_ms");
    flops = of.number("flops").value_or(kNan);
    median = of.number("median_ms").value_or(kNan);
    least = samples.empty() ? kNan : *std::ranges::min_element(samples);
    most = samples.empty() ? kNan : *std::ranges::max_element(samples);
  }

  const ResultRow* row;
  double flops, median, least, most;
};

// Of two rows that differ in their mode alone, the one with more FLOPs cannot be the faster one:
// its time lies below the other's beyond what either varies by.
std::optional<Verdict> more_work_in_less_time(const Facts& row, const Facts& other) {
  constexpr double kMoreWork = 1.5;
  if (!(row.flops >= kMoreWork * other.flops) || !(row.most < other.least)) return {};
  if (std::isnan(row.median) || std::isnan(other.median)) return {};
  return Verdict{
      "more_work_in_less_time", Severity::kInvalid,
      fmt::format("{:.1f} times the FLOPs of {} in {:.2f} of its time: labels are swapped, "
                  "or a wait is missing",
                  row.flops / other.flops, other.row->label(), row.median / other.median)};
}

// A kernel at a larger size is not many times slower per FLOP, unless its memory is somewhere else.
std::optional<Verdict> collapsed_speed(const Facts& row, const Facts& other) {
  constexpr double kCollapse = 10.0;
  if (!(row.flops >= other.flops) || other.flops <= 0) return {};
  const double ratio = row.median / row.flops * (other.flops / other.median);
  if (!(ratio > kCollapse)) return {};
  return Verdict{
      "collapsed_speed", Severity::kDoubt,
      fmt::format("{:.0f} times the time per FLOP of {}, which has fewer FLOPs: memory of the host "
                  "in use, or the device was held back; not a time of this device",
                  ratio, other.row->label())};
}

// A check of two rows that differ at most in these columns.
struct PairCheck {
  std::optional<Verdict> (*check)(const Facts& row, const Facts& other);
  std::span<const std::string_view> except;
};
constexpr std::array<std::string_view, 1> kMode = {"mode"};
constexpr std::array<std::string_view, 5> kSizes = {"size", "context", "batch", "vocab", "mode"};
constexpr PairCheck kPairChecks[] = {{more_work_in_less_time, kMode}, {collapsed_speed, kSizes}};

// The rows that ran, in lists of those that are alike but for the columns of `except`.
std::vector<std::vector<std::size_t>> alike(std::span<const ResultRow> rows,
                                            std::span<const std::string_view> except) {
  std::map<std::string, std::vector<std::size_t>> lists;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!is_ok(rows[i])) continue;
    std::string alike;
    for (std::string_view key : keys()) {
      if (std::ranges::find(except, key) != except.end()) continue;
      const Json* cell = rows[i].find(key);
      alike += (cell == nullptr ? std::string() : cell->dump()) + '\n';
    }
    lists[alike].push_back(i);
  }
  std::vector<std::vector<std::size_t>> out;
  for (auto& [text, list] : lists) out.push_back(std::move(list));
  return out;
}

std::string note_line(const ResultRow& row, const Verdict& verdict) {
  return fmt::format("{}: {}: {} ({})", name_of(verdict.severity), row.label(), verdict.text,
                     verdict.code);
}

}  // namespace

ResultRow::ResultRow(Json cells, Json environment)
    : ResultRow(std::move(cells), std::make_shared<const Json>(std::move(environment))) {}

ResultRow::ResultRow(Json cells, std::shared_ptr<const Json> environment)
    : cells_(std::move(cells)), environment_(std::move(environment)) {}

ResultRow ResultRow::of(const std::vector<Column>& columns, const std::vector<Json>& cells,
                        const Json& environment) {
  Json::Object object;
  for (std::size_t i = 0; i < columns.size() && i < cells.size(); ++i) {
    object.emplace_back(columns[i].name, cells[i]);
  }
  return ResultRow(std::move(object), environment);
}

const Json* ResultRow::find(std::string_view column) const {
  const Json* cell = cells_.is_object() ? cells_.find(column) : nullptr;
  return cell == nullptr || cell->is_null() ? nullptr : cell;
}

std::optional<double> ResultRow::number(std::string_view column) const {
  const Json* cell = find(column);
  if (cell == nullptr || !cell->is_number()) return {};
  return cell->as_double();
}

std::optional<bool> ResultRow::truth(std::string_view column) const {
  const Json* cell = find(column);
  if (cell == nullptr || !cell->is_bool()) return {};
  return cell->as_bool();
}

std::string ResultRow::text(std::string_view column) const {
  const Json* cell = find(column);
  return cell == nullptr || !cell->is_string() ? std::string() : cell->as_string();
}

std::vector<double> ResultRow::numbers(std::string_view column) const {
  const Json* cell = find(column);
  std::vector<double> out;
  if (cell == nullptr || !cell->is_array()) return out;
  for (const Json& item : cell->items()) {
    if (item.is_number()) out.push_back(item.as_double());
  }
  return out;
}

std::optional<double> ResultRow::environment_number(std::string_view item) const {
  const Json* value = environment_->is_object() ? environment_->find(item) : nullptr;
  if (value == nullptr || !value->is_number()) return {};
  return value->as_double();
}

const Json* ResultRow::parameters() const {
  const Json* cell = find("cell");
  return cell == nullptr || !cell->is_object() ? nullptr : cell;
}

std::string ResultRow::label() const {
  std::string out;
  for (const RunField& field : run_fields()) {
    const Json* cell = field.is_axis ? find(field.name) : nullptr;
    if (cell == nullptr) continue;
    // Without what goes without saying, as label_of().
    if (field.show == FieldShow::kVarying && *cell == field.value(RunSpec())) continue;
    out += (out.empty() ? "" : " ") + (cell->is_string() ? cell->as_string() : cell->dump());
  }
  return out.empty() ? "row" : out;
}

std::string_view name_of(Severity severity) {
  switch (severity) {
    case Severity::kNote: return "note";
    case Severity::kDoubt: return "doubt";
    case Severity::kInvalid: return "invalid";
  }
  return "?";
}

std::vector<Verdict> judge(const ResultRow& row) {
  std::vector<Verdict> out;
  if (!is_ok(row)) return out;
  for (const RowCheck& check : row_checks()) {
    if (auto verdict = check.check(row)) out.push_back(std::move(*verdict));
  }
  return out;
}

std::vector<RowVerdict> judge_together(std::span<const ResultRow> rows) {
  const std::vector<Facts> facts(rows.begin(), rows.end());
  std::vector<RowVerdict> out;
  for (const PairCheck& check : kPairChecks) {
    for (const std::vector<std::size_t>& list : alike(rows, check.except)) {
      for (std::size_t i : list) {
        if (!rows[i].number("tflops")) continue;
        // One verdict per row: the first partner that shows the fault is enough.
        for (std::size_t j : list) {
          if (i == j) continue;
          auto verdict = check.check(facts[i], facts[j]);
          if (!verdict) continue;
          out.push_back({i, std::move(*verdict)});
          break;
        }
      }
    }
  }
  std::ranges::stable_sort(out, {}, &RowVerdict::row);
  return out;
}

std::string summary_of(std::span<const Verdict> verdicts) {
  if (verdicts.empty()) return "ok";
  const Severity worst =
      std::ranges::max_element(verdicts, {}, [](const Verdict& v) { return v.severity; })->severity;
  std::string codes;
  for (const Verdict& v : verdicts) {
    if (v.severity == worst) codes += (codes.empty() ? "" : ", ") + v.code;
  }
  return fmt::format("{}: {}", name_of(worst), codes);
}

std::vector<std::string> validity_notes(std::span<const ResultRow> rows) {
  std::vector<std::string> out;
  std::vector<bool> is_doubted(rows.size(), false);
  const auto add = [&](std::size_t i, const Verdict& verdict) {
    out.push_back(note_line(rows[i], verdict));
    if (verdict.severity != Severity::kNote) is_doubted[i] = true;
  };
  const std::vector<RowVerdict> together = judge_together(rows);
  std::size_t measured = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (is_ok(rows[i])) ++measured;
    for (const Verdict& verdict : judge(rows[i])) add(i, verdict);
    for (const RowVerdict& v : together) {
      if (v.row == i) add(i, v.verdict);
    }
  }
  if (measured == 0) return out;
  const auto doubted = static_cast<std::size_t>(std::ranges::count(is_doubted, true));
  out.push_back(
      fmt::format("validity: {} of {} measured rows without objection ({} checks of a "
                  "row, 2 of rows together)",
                  measured - doubted, measured, row_checks().size()));
  return out;
}

}  // namespace tracestep
