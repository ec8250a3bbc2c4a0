#include "lab/study/random_tables.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace tracestep::testing {
namespace {

class Disturber {
 public:
  Disturber(std::vector<Table>& tables, std::span<const RowRef> used, std::uint64_t seed)
      : tables_(tables), used_(used), random_(seed) {}

  void run() {
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
      const bool is_used = !used_.empty() && below(4) != 0;
      is_used ? change_used() : change_any();
    }
    if (below(3) == 0) change_rows(touch(below(tables_.size())));
    if (below(12) == 0) remove_column(touch(below(tables_.size())));
  }
  const std::set<std::size_t>& touched() const { return touched_; }

 private:
  Table& touch(std::size_t table) {
    touched_.insert(table);
    return tables_[table];
  }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  double uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }

  void change_used() {
    const RowRef& ref = used_[below(used_.size())];
    const auto table = std::ranges::find(tables_, ref.table, &Table::name);
    if (table == tables_.end() || ref.columns.empty() || ref.row >= table->rows.size()) return;
    const std::string& name = ref.columns[below(ref.columns.size())];
    const auto column = std::ranges::find(table->columns, name, &Column::name);
    if (column == table->columns.end()) return;
    touch(static_cast<std::size_t>(table - tables_.begin()));
    change(*table, ref.row, static_cast<std::size_t>(column - table->columns.begin()));
  }
  void change_any() {
    Table& table = touch(below(tables_.size()));
    if (table.rows.empty() || table.columns.empty()) return;
    change(table, below(table.rows.size()), below(table.columns.size()));
  }

  void change(Table& table, std::size_t row, std::size_t column) {
    Json& cell = table.rows[row][column];
    const std::size_t kind = below(10);
    if (kind == 0) {
      cell = Json();
    } else if (kind <= 3) {  // a tie, or a contradiction
      const Json other = table.rows[below(table.rows.size())][column];
      cell = other;
    } else if (cell.is_array()) {
      change_list(cell);
    } else if (cell.is_int()) {
      cell = changed(cell.as_int());
    } else if (cell.is_number()) {
      cell = changed(cell.as_double());
    } else if (cell.is_bool()) {
      cell = !cell.as_bool();
    } else if (kind == 4) {
      cell = "something else";
    }
  }

  std::int64_t changed(std::int64_t v) {
    const std::int64_t values[] = {0, 1, -v, v + 1, v - 1, v / 2, std::int64_t{1} << 40};
    return values[below(std::size(values))];
  }
  double changed(double v) {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    const double values[] = {0.0,
                             -v,
                             v * uniform(0.97, 1.03),
                             v * uniform(0.4, 2.5),
                             v * 10,
                             v / 10,
                             1e300,
                             1e-300,
                             kInf,
                             std::nan(""),
                             v * uniform(0.4, 2.5),
                             v * uniform(0.97, 1.03)};
    return values[below(std::size(values))];
  }
  void change_list(Json& list) {
    Json out = Json::array();
    const std::size_t size = below(5) == 0 ? below(3) : list.items().size();
    const double scale = uniform(0.3, 3.0), noise = below(2) == 0 ? 0.001 : uniform(0, 0.8);
    const bool has_ties = below(4) == 0;
    for (std::size_t i = 0; i < size && i < list.items().size(); ++i) {
      const Json& item = list.items()[has_ties ? 0 : i];
      if (!item.is_number()) return;
      out.push_back(item.as_double() * scale * (has_ties ? 1 : uniform(1 - noise, 1 + noise)));
    }
    if (below(20) == 0) out.push_back(std::nan(""));
    list = std::move(out);
  }

  void change_rows(Table& table) {
    if (table.rows.empty()) return;
    switch (below(5)) {
      case 0: std::ranges::shuffle(table.rows, random_); break;
      case 1: std::ranges::reverse(table.rows); break;
      case 2:
        table.rows.erase(table.rows.begin() +
                         static_cast<std::ptrdiff_t>(below(table.rows.size())));
        break;
      case 3: table.rows = {table.rows[below(table.rows.size())]}; break;
      case 4: table.rows.push_back(std::vector<Json>(table.rows[below(table.rows.size())])); break;
    }
  }
  void remove_column(Table& table) {
    if (table.columns.empty()) return;
    const auto at = static_cast<std::ptrdiff_t>(below(table.columns.size()));
    table.columns.erase(table.columns.begin() + at);
    for (auto& row : table.rows) row.erase(row.begin() + at);
  }

  std::vector<Table>& tables_;
  std::span<const RowRef> used_;
  std::mt19937_64 random_;
  std::set<std::size_t> touched_;
};

}  // namespace

std::set<std::size_t> disturb(std::vector<Table>& tables, std::span<const RowRef> used,
                              std::uint64_t seed) {
  if (tables.empty()) return {};
  Disturber disturber(tables, used, seed);
  disturber.run();
  return disturber.touched();
}

}  // namespace tracestep::testing
