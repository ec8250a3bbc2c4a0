// Rows, severities and what is printed; the checks themselves are in validity_checks.cpp and
// validity_pairs.cpp.
#include "lab/measure/validity.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/error.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

constexpr std::string_view kHostSpill = "host_spill";

// True if the row has numbers that can be judged.
bool is_measured(const ResultRow& row) {
  const std::string status = row.status();
  return status == "ok" || status == kSpill;
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

std::vector<ResultRow> rows_of(const Table& table, const Json& environment) {
  std::vector<ResultRow> out;
  for (const auto& row : table.rows) out.push_back(ResultRow::of(table.columns, row, environment));
  return out;
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

const Json* ResultRow::parameter(std::string_view field) const {
  const Json* cell = find(field);
  const Json* key = parameters();
  return cell == nullptr && key != nullptr ? key->find(field) : cell;
}

std::string ResultRow::label() const {
  const std::string out = label_of([this](const std::string& field) { return parameter(field); });
  return out.empty() ? "row" : out;
}

std::vector<Verdict> judge(const ResultRow& row) {
  std::vector<Verdict> out;
  if (!is_measured(row)) return out;
  for (const RowCheck& check : row_checks()) {
    if (auto verdict = check.check(row)) out.push_back(std::move(*verdict));
  }
  // When other work held the machine, it took the time between kernels, not launching.
  const auto has = [&out](std::string_view code) {
    return std::ranges::find(out, code, &Verdict::code) != out.end();
  };
  if (has("recorded_apart")) {
    std::erase_if(out, [](const Verdict& v) { return v.code == "launch_bound"; });
  }
  // A busy machine may explain any verdict but one on the label, so such a one is a doubt at most.
  for (Verdict& v : out) {
    const bool is_noise = had_company(row) && !is_of_label(v.code);
    if (is_noise) v.severity = std::min(v.severity, Severity::kDoubt);
  }
  return out;
}

std::string status_of(const ResultRow& row) {
  const std::string status = row.status();
  if (status != "ok") return status;
  const bool spills =
      std::ranges::any_of(judge(row), [](const Verdict& v) { return v.code == kHostSpill; });
  return spills ? std::string(kSpill) : status;
}

std::vector<std::vector<Verdict>> judge_all(std::span<const ResultRow> rows) {
  std::vector<std::vector<Verdict>> out;
  out.reserve(rows.size());
  for (const ResultRow& row : rows) out.push_back(judge(row));
  for (RowVerdict& v : judge_together(rows)) out[v.row].push_back(std::move(v.verdict));
  return out;
}

std::string summary_of(std::span<const Verdict> verdicts) {
  if (verdicts.empty()) return "ok";
  const Severity worst =
      std::ranges::max_element(verdicts, {}, [](const Verdict& v) { return v.severity; })->severity;
  std::vector<std::string_view> codes;
  for (const Verdict& v : verdicts) {
    const bool is_known = std::ranges::find(codes, v.code) != codes.end();
    if (v.severity == worst && !is_known) codes.push_back(v.code);
  }
  return fmt::format("{}: {}", name_of(worst), fmt::join(codes, ", "));
}

Judgement read_summary(std::string_view summary) {
  Judgement out;
  const std::string_view severity = summary.substr(0, summary.find(':'));
  for (Severity s : {Severity::kNote, Severity::kDoubt, Severity::kInvalid}) {
    if (severity == name_of(s)) out.worst = s;
  }
  if (!out.worst) return out;
  for (std::size_t end = severity.size(); end < summary.size();) {
    const std::size_t start = end + 2;  // after ": " or ", "
    end = std::min(summary.find(',', start), summary.size());
    out.codes.emplace_back(summary.substr(start, end - start));
  }
  return out;
}

std::string verdict_line(const std::string& label, const Verdict& verdict) {
  return fmt::format("{}: {}: {} ({})", name_of(verdict.severity), label, verdict.text,
                     verdict.code);
}

namespace {

// Groups rows by reason: a line names the first row that has it and how many others do.
std::vector<std::string> lines_by_reason(std::span<const ResultRow> rows,
                                         const std::vector<std::vector<Verdict>>& verdicts,
                                         std::string_view what) {
  struct Group {
    const Verdict* first;
    std::string label;
    int rows;
  };
  std::vector<Group> groups;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const Verdict& v : verdicts[i]) {
      const auto same = [&](const Group& g) {
        return g.first->code == v.code && g.first->severity == v.severity;
      };
      const auto found = std::ranges::find_if(groups, same);
      if (found == groups.end()) {
        groups.push_back({&v, rows[i].label(), 1});
      } else {
        ++found->rows;
      }
    }
  }
  std::vector<std::string> out;
  for (const Group& g : groups) {
    const std::string label =
        g.rows == 1 ? g.label : fmt::format("{} {}, such as {}", g.rows, what, g.label);
    out.push_back(verdict_line(label, *g.first));
  }
  return out;
}

}  // namespace

constexpr std::string_view kCount = "validity: ";

bool is_count_of_sound_rows(std::string_view note) {
  return note.starts_with(kCount);
}

std::vector<std::string> validity_notes(std::span<const ResultRow> rows) {
  return validity_notes(rows, judge_all(rows));
}

std::vector<std::string> validity_notes(std::span<const ResultRow> rows,
                                        const std::vector<std::vector<Verdict>>& verdicts,
                                        std::string_view what) {
  std::vector<std::string> out = lines_by_reason(rows, verdicts, what);
  std::size_t measured = 0, sound = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!is_measured(rows[i])) continue;
    ++measured;
    sound += std::ranges::all_of(verdicts[i],
                                 [](const Verdict& v) { return v.severity == Severity::kNote; });
  }
  if (measured == 0) return out;
  out.push_back(
      fmt::format("{}{} of {} measured {} without objection ({} checks of a "
                  "row, {} of rows together)",
                  kCount, sound, measured, what, row_checks().size(), pair_check_count()));
  return out;
}

bool is_of_label(std::string_view code) {
  constexpr std::string_view kCodes[] = {"swapped_label", "unit_mix_up", "two_graphs",
                                         "peak_differs"};
  return std::ranges::find(kCodes, code) != std::end(kCodes);
}

constexpr std::string_view kChecker = "of the validity checker: ";

Column verdict_column() {
  return {.name = "verdict",
          .description =
              std::string(kChecker) + "ok, or the worst of note, doubt and invalid with its codes",
          .role = ColumnRole::kFollows};
}

bool is_verdict_column(const Column& column) {
  return column.name == "verdict" && column.description.starts_with(kChecker);
}

void add_verdicts(Table& table, std::span<const ResultRow> rows) {
  const std::size_t column = table.index_of("verdict").value();
  TRACESTEP_CHECK(rows.size() == table.rows.size(), "{} rows to judge in {}", rows.size(),
                  table.name);
  const std::vector<std::vector<Verdict>> verdicts = judge_all(rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    table.rows[i][column] = is_measured(rows[i]) ? Json(summary_of(verdicts[i])) : Json();
  }
  for (std::string& note : validity_notes(rows)) table.notes.push_back(std::move(note));
}

}  // namespace tracestep
