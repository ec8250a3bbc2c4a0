#include "lab/compare/exact.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/units.h"
#include "lab/report/fields.h"

namespace tracestep {
namespace {

constexpr std::size_t kMostParts = 20;  // of one figure of a table
constexpr std::size_t kNamed = 3;       // in a message

bool is_ok(const ResultRow& row) {
  const std::string status = row.text("status");
  return status.empty() || status == "ok";
}

// "bytes", "launches" or the figure's own name: a part can explain a whole of the same unit.
std::string_view unit_of(std::string_view figure) {
  if (figure.ends_with("bytes")) return "bytes";
  for (std::string_view count : {"launches", "kernels", "per_step"}) {
    if (figure.ends_with(count)) return "launches";
  }
  return figure;
}

std::string shown(const ExactChange& change, double value) {
  if (change.is_time) return fmt::format("{:.4g} ms", value);
  if (unit_of(change.figure) == "bytes") return format_bytes(static_cast<std::int64_t>(value));
  return value == std::floor(value) && std::abs(value) < 1e15 ? fmt::format("{:.0f}", value)
                                                              : fmt::format("{:.6g}", value);
}

// "+4.00 KiB", "-2".
std::string shown_growth(const ExactChange& change) {
  return (change.growth() < 0 ? "-" : "+") + shown(change, std::abs(change.growth()));
}

// One entry of a table of parts: its figures, added up over the rows with the same keys.
struct Part {
  std::string label;
  std::map<std::string_view, double> figures;
};

std::map<std::string, Part> parts_of(const ResultTable& table) {
  std::vector<std::string_view> columns = table.layout->exact;
  if (!table.layout->shown_ms.empty()) columns.push_back(table.layout->shown_ms);
  std::map<std::string, Part> out;
  for (const ResultRow& row : table.rows) {
    if (row.text(table.layout->keys.front()) == "total") continue;
    Part& part = out[identity(row, *table.layout, {})];
    part.label = pair_label(row, row, *table.layout);
    for (std::string_view column : columns) {
      if (const auto value = row.number(column)) part.figures[column] += *value;
    }
  }
  return out;
}

const double* figure_of(const std::map<std::string, Part>& parts, const std::string& key,
                        std::string_view column) {
  const auto part = parts.find(key);
  if (part == parts.end()) return nullptr;
  const auto figure = part->second.figures.find(column);
  return figure == part->second.figures.end() ? nullptr : &figure->second;
}

std::string verdict_of(const ExactChange& c) {
  if (!c.in_b) return "only in A";
  if (!c.in_a) return "only in B";
  if (c.is_time) return "not judged";
  return c.growth() > 0 ? "more" : "less";
}

Fields<ExactChange> fields() {
  using C = const ExactChange&;
  return {{text_column("table"), &ExactChange::table},
          {text_column("row", "", "the cell, or the part of it"), &ExactChange::row},
          {text_column("figure"), &ExactChange::figure},
          {text_column("a", "A"), [](C c) { return c.in_a ? Json(shown(c, c.a)) : Json(); }},
          {text_column("b", "B"), [](C c) { return c.in_b ? Json(shown(c, c.b)) : Json(); }},
          {text_column("change"), [](C c) { return Json(shown_growth(c)); }},
          {real_column("percent", "", "%", 2, "of A"),
           [](C c) { return when(c.in_a && c.in_b && c.a != 0, 100 * c.growth() / c.a); }},
          {text_column("verdict", "",
                       "more or less in B, exactly; times of single steps are not judged"),
           verdict_of},
          {data_only(real_column("a_value", "", "", -1, "A as a number, in bytes, counts or ms")),
           [](C c) { return when(c.in_a, c.a); }},
          {data_only(real_column("b_value", "", "", -1, "B likewise")),
           [](C c) { return when(c.in_b, c.b); }}};
}

}  // namespace

void ExactComparison::add(const ResultTable& a, const ResultTable& b,
                          const std::vector<std::string>& ignored) {
  if (a.layout->is_parts) {
    add_parts(a, b);
  } else {
    add_cells(a, b, ignored);
  }
}

void ExactComparison::add_cells(const ResultTable& a, const ResultTable& b,
                                const std::vector<std::string>& ignored) {
  const auto rows_of_b = by_identity(b.rows, b.name, *a.layout, ignored);
  for (const ResultRow& row : a.rows) {
    const auto found = rows_of_b.find(identity(row, *a.layout, ignored));
    if (found == rows_of_b.end() || !is_ok(row) || !is_ok(*found->second)) continue;
    const std::string label = pair_label(row, *found->second, *a.layout);
    for (std::string_view figure : a.layout->exact) {
      const auto of_a = row.number(figure), of_b = found->second->number(figure);
      if (of_a.has_value() != of_b.has_value()) {
        missing_.push_back(fmt::format("{}: {} is only in {}", label, figure, of_a ? "A" : "B"));
      }
      if (!of_a || !of_b) continue;
      ++compared_;
      if (*of_a != *of_b) changes_.push_back({a.name, label, std::string(figure), *of_a, *of_b});
    }
  }
}

void ExactComparison::add_parts(const ResultTable& a, const ResultTable& b) {
  const auto of_a = parts_of(a), of_b = parts_of(b);
  std::set<std::string> keys;
  for (const auto* parts : {&of_a, &of_b}) {
    for (const auto& [key, part] : *parts) keys.insert(key);
  }
  std::vector<std::string_view> columns = a.layout->exact;
  if (!a.layout->shown_ms.empty()) columns.push_back(a.layout->shown_ms);
  for (std::string_view column : columns) {
    std::vector<ExactChange> found;
    const bool is_time = column == a.layout->shown_ms;
    for (const std::string& key : keys) {
      const double *left = figure_of(of_a, key, column), *right = figure_of(of_b, key, column);
      if (left == nullptr && right == nullptr) continue;
      if (!is_time) ++compared_;
      ExactChange change{a.name,
                         (of_a.contains(key) ? of_a : of_b).at(key).label,
                         std::string(column),
                         left == nullptr ? 0 : *left,
                         right == nullptr ? 0 : *right,
                         left != nullptr,
                         right != nullptr,
                         true,
                         is_time};
      if (change.growth() != 0 || change.in_a != change.in_b) found.push_back(std::move(change));
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
  Table out = table_of("exact", "Bytes, launches, FLOPs and errors that are not the same", fields(),
                       sorted);
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

// The parts that grew most in the same unit, from the most detailed table that has some; what is
// saved for backward has a table of its own.
std::string ExactComparison::parts_behind(const ExactChange& whole) const {
  std::vector<const ExactChange*> found;
  for (const ExactChange& c : changes_) {
    const bool is_saved = whole.figure == "saved_bytes";
    if (!c.is_part || c.is_time || c.growth() <= 0) continue;
    if (c.table.starts_with("saved_by_op") != is_saved) continue;
    if (unit_of(c.figure) != unit_of(whole.figure)) continue;
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
    if (c.is_part || c.b <= c.a * (1 + fail_percent / 100)) continue;
    gate.regress(c.row, fmt::format("{} {} → {} ({}){}", c.figure, shown(c, c.a), shown(c, c.b),
                                    shown_growth(c), parts_behind(c)));
  }
  for (const std::string& missing : missing_) gate.undecide("exact figures", missing);
}

}  // namespace tracestep
