#include "lab/pages/cases.h"

#include <algorithm>
#include <filesystem>
#include <regex>

#include <gtest/gtest.h>

#include "base/input_file.h"
#include "lab/pages/page.h"
#include "support/paths.h"
#include "support/tables.h"

namespace tracestep::pages {
namespace {

void change(Row& row, const std::string& cells) {
  for (auto& [column, value] : testing::cells_in(cells)) {
    const auto found = std::ranges::find(row, column, &Row::value_type::first);
    if (!value) {
      if (found != row.end()) row.erase(found);
    } else if (found != row.end()) {
      found->second = std::move(*value);
    } else {
      row.emplace_back(column, std::move(*value));
    }
  }
}

void read_rows(const std::string& line, Case& out) {
  static const std::regex form(R"(([^:]+?)( (\d+|all|again))?:(.*))");
  std::smatch parts;
  ASSERT_TRUE(std::regex_match(line, parts, form)) << line;
  const std::string table = parts[1], which = parts[3], cells = parts[4];
  std::vector<Row>& rows = out.rows(table);
  if (table == "machine") rows.clear();
  if (which == "all") {
    for (Row& row : rows) change(row, cells);
  } else if (which.empty() || which == "again") {
    if (cells.empty()) return;
    rows.push_back(which.empty() ? Row() : rows.back());
    change(rows.back(), cells);
  } else {
    change(rows.at(std::stoul(which) - 1), cells);
  }
}

std::vector<Case> cases_in(const std::filesystem::path& path) {
  std::string text = read_text_file(path, "cases", 1 << 20);
  for (std::size_t at = 0; (at = text.find("\n  ", at)) != std::string::npos;) {
    text.replace(at, 3, " ");  // a line that goes on
  }
  std::vector<Case> out;
  bool is_new = true;
  for (const std::string& line : split(text, "\n")) {
    if (line.empty()) continue;
    if (std::exchange(is_new, false)) out.emplace_back().schema = path.stem().string();
    if (line.starts_with("> ")) {
      out.back().sentence = line.substr(2);
      is_new = true;
    } else if (line.starts_with("= ") || line.starts_with("like ")) {
      for (const std::string& part : split(line, ", ")) {
        if (part.starts_with("= ")) out.back().name = part.substr(2);
        if (!part.starts_with("like ")) continue;
        out.back().tables = std::ranges::find(out, part.substr(5), &Case::name)->tables;
      }
    } else {
      read_rows(line, out.back());
    }
  }
  return out;
}

ColumnKind kind_of(const Json& cell) {
  if (cell.is_string()) return ColumnKind::kText;
  if (cell.is_bool()) return ColumnKind::kBool;
  if (cell.is_array()) return ColumnKind::kReals;
  return cell.is_int() ? ColumnKind::kInt : ColumnKind::kReal;
}

}  // namespace

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> out;
    const auto folder = testing::source_folder() / "tests/lab/pages/cases";
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      std::ranges::move(cases_in(file.path()), std::back_inserter(out));
    }
    return out;
  }();
  return all;
}

std::vector<Table> tables_of(const Case& c) {
  std::vector<Table> out;
  for (const auto& [name, rows] : c.tables) {
    Table table{.name = name};
    for (const Row& row : rows) {
      for (const auto& [column, cell] : row) {
        if (table.index_of(column)) continue;
        table.columns.push_back({.name = column, .kind = kind_of(cell)});
      }
    }
    for (const Row& row : rows) {
      table.rows.emplace_back(table.columns.size());
      for (const auto& [column, cell] : row) {
        table.rows.back()[table.index_of(column).value()] = cell;
      }
    }
    out.push_back(std::move(table));
  }
  return out;
}

}  // namespace tracestep::pages
