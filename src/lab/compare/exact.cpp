#include "lab/compare/exact.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "base/units.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

constexpr std::size_t kMostParts = 20;  // of one figure of a table
constexpr std::size_t kNamed = 3;       // in a message

bool is_ok(const ResultRow& row) {
  const std::string status = row.status();
  return status.empty() || status == "ok";
}

std::string shown(const ExactChange& change, double value) {
  if (change.is_time) return fmt::format("{:.4g} ms", value);
  if (change.figure.ends_with("bytes")) return format_bytes(static_cast<std::int64_t>(value));
  return value == std::floor(value) && std::abs(value) < 1e15 ? fmt::format("{:.0f}", value)
                                                              : fmt::format("{:.6g}", value);
}

// Writes a change with its sign: "+4.00 KiB", "-2".
std::string shown_growth(const ExactChange& change) {
  return (change.growth() < 0 ? "-" : "+") + shown(change, std::abs(change.growth()));
}

// An entry of a table of parts: its figures in A and in B, added up over the rows with its keys.
struct Part {
  std::string label;
  std::map<std::string, std::array<std::optional<double>, 2>> figures;
};

std::map<std::string, Part> parts_of(const TablePair& pair, std::span<const Column> figures) {
  std::map<std::string, Part> out;
  for (std::size_t side : {0, 1}) {
    for (const ResultRow& row : (side == 0 ? pair.a : pair.b).rows) {
      if (row.text(pair.keys().front()) == "total") continue;
      Part& part = out[pair.identity(row)];
      if (part.label.empty()) part.label = pair.label(row, row);
      for (const Column& figure : figures) {
        const auto value = row.number(figure.name);
        std::optional<double>& sum = part.figures[figure.name][side];
        if (value) sum = sum.value_or(0) + *value;
      }
    }
  }
  return out;
}

std::string verdict_of(const ExactChange& c) {
  if (!c.b) return "only in A";
  if (!c.a) return "only in B";
  if (c.is_time) return "not judged";
  return c.growth() > 0 ? "more" : "less";
}

Fields<ExactChange> exact_fields() {
  using C = const ExactChange&;
  return {
      {col::table, &ExactChange::table},
      {col::row("the cell, or the part of it"), &ExactChange::row},
      {text_column("figure"), &ExactChange::figure},
      {col::a, [](C c) { return c.a ? Json(shown(c, *c.a)) : Json(); }},
      {col::b, [](C c) { return c.b ? Json(shown(c, *c.b)) : Json(); }},
      {col::change, [](C c) { return Json(shown_growth(c)); }},
      {with_digits(2, col::percent.titled("", "of A")),
       [](C c) { return when(c.b && c.a.value_or(0) != 0, 100 * c.growth() / c.a.value_or(1)); }},
      {col::verdict("more or less in B, exactly; times of single steps are not judged"),
       verdict_of},
      {data_only(real_column("a_value", "", "", -1, "A as a number, in bytes, counts or ms")),
       [](C c) { return or_null(c.a); }},
      {data_only(real_column("b_value", "", "", -1, "B likewise")),
       [](C c) { return or_null(c.b); }}};
}

}  // namespace

void ExactComparison::add(const TablePair& pair) {
  pair.is_of_parts() ? add_parts(pair) : add_cells(pair);
}

void ExactComparison::add_cells(const TablePair& pair) {
  const auto rows_of_b = pair.by_identity(pair.b);
  const std::vector<Column> figures = pair.columns(ColumnRole::kExact);
  for (const ResultRow& row : pair.a.rows) {
    const auto found = rows_of_b.find(pair.identity(row));
    if (found == rows_of_b.end() || !is_ok(row) || !is_ok(*found->second)) continue;
    const std::string label = pair.label(row, *found->second);
    for (const Column& column : figures) {
      const std::string& figure = column.name;
      const auto of_a = row.number(figure), of_b = found->second->number(figure);
      if (of_a.has_value() != of_b.has_value()) {
        missing_.push_back(fmt::format("{}: {} is only in {}", label, figure, of_a ? "A" : "B"));
      }
      if (!of_a || !of_b) continue;
      ++compared_;
      if (of_a != of_b) changes_.push_back({pair.a.name, label, figure, of_a, of_b});
    }
  }
}

void ExactComparison::add_parts(const TablePair& pair) {
  std::vector<Column> figures = pair.columns(ColumnRole::kPart);
  const auto is_exact = [](const Column& c) { return timing_of(c) == Timing::kNone; };
  std::ranges::stable_partition(figures, is_exact);
  const std::map<std::string, Part> parts = parts_of(pair, figures);
  for (const Column& figure : figures) {
    std::vector<ExactChange> found;
    for (const auto& [key, part] : parts) {
      const auto& [a, b] = part.figures.at(figure.name);
      if (!a && !b) continue;
      if (is_exact(figure)) ++compared_;
      if (a == b) continue;
      found.push_back(
          {pair.a.name, part.label, figure.name, a, b, true, !is_exact(figure), figure.whole});
    }
    std::ranges::stable_sort(found, std::greater(),
                             [](const ExactChange& c) { return std::abs(c.growth()); });
    if (found.size() > kMostParts) found.resize(kMostParts);
    changes_.insert(changes_.end(), found.begin(), found.end());
  }
}

Table ExactComparison::table() const {
  std::vector<ExactChange> sorted = changes_;
  std::ranges::stable_partition(sorted, [](const ExactChange& c) { return !c.is_part; });
  Table out = table_of("exact", "Exact figures that differ", exact_fields(), sorted);
  const auto differing =
      std::ranges::count_if(changes_, [](const ExactChange& c) { return !c.is_time; });
  out.notes.push_back(fmt::format(
      "{} figures were compared exactly{}", compared_ == 0 ? "no" : std::to_string(compared_),
      compared_ == 0   ? ""
      : differing == 0 ? ": all are the same"
                       : fmt::format("; of the parts at most {} per figure are listed, those that "
                                     "changed most",
                                     kMostParts)));
  for (const std::string& missing : missing_) out.notes.push_back(missing);
  if (std::ranges::any_of(changes_, &ExactChange::is_time)) {
    out.notes.push_back(
        "milliseconds of kernels are of a few steps of one process: they say where to look, not "
        "that anything changed");
  }
  return out;
}

// Names the parts of a figure that grew most, in the most detailed table of which any part grew.
std::string ExactComparison::parts_behind(const ExactChange& whole) const {
  std::vector<const ExactChange*> found;
  for (const ExactChange& c : changes_) {
    if (c.whole != whole.figure || c.is_time || c.growth() <= 0) continue;
    if (!found.empty() && found.front()->table != c.table) break;
    found.push_back(&c);
  }
  std::ranges::stable_sort(found, std::greater(), [](const ExactChange* c) { return c->growth(); });
  std::string out;
  for (std::size_t i = 0; i < std::min(found.size(), kNamed); ++i) {
    out += fmt::format("{}{} {}", i == 0 ? "; most in " : ", ", found[i]->row,
                       shown_growth(*found[i]));
  }
  return out;
}

void ExactComparison::judge(double fail_percent, Gate& gate) const {
  for (const ExactChange& c : changes_) {
    if (c.is_part || *c.b <= *c.a * (1 + fail_percent / 100)) continue;
    gate.regress(c.row, fmt::format("{} {} → {} ({}){}", c.figure, shown(c, *c.a), shown(c, *c.b),
                                    shown_growth(c), parts_behind(c)));
  }
  for (const std::string& missing : missing_) gate.undecide("exact figures", missing);
}

}  // namespace tracestep
