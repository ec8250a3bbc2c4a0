// The first sentence of every result, in every outcome: from tables alone.
#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/input_file.h"
#include "base/json.h"
#include "lab/pages/first_answer.h"
#include "support/paths.h"
#include "support/tables.h"

namespace tracestep::pages {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Row = std::vector<std::pair<std::string, Json>>;

// A case of cases/NAME.md, of results with the schema tracestep.NAME/1:
//   = a name, like another case    begins with the rows of the other one
//   bench: size tiny; mode step    adds a row to a table, or with `again` one like the last row
//   bench 1: std_ms -              changes cells of a row, or of all: here it has no such column
//   > What is said of these rows.
// Cells are those of support/tables.h. `machine` is where they were measured.
struct Case {
  std::string schema, name, sentence;
  std::vector<std::pair<std::string, std::vector<Row>>> tables = {
      {"machine",
       {{{"cores", 2}, {"memory_total_bytes", 4096}, {"device_memory_limit_bytes", 2147483648}}}}};

  std::vector<Row>& rows(const std::string& table) {
    const auto found = std::ranges::find(tables, table, &decltype(tables)::value_type::first);
    return found == tables.end() ? tables.emplace_back(table, std::vector<Row>()).second
                                 : found->second;
  }
};

void change(Row& row, const std::string& cells) {
  for (auto& [column, value] : testing::cells_in(cells)) {
    const auto found = std::ranges::find(row, column, &Row::value_type::first);
    if (!value) {
      row.erase(found);
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

ColumnKind kind_of(const Json& cell) {
  if (cell.is_string()) return ColumnKind::kText;
  if (cell.is_bool()) return ColumnKind::kBool;
  if (cell.is_array()) return ColumnKind::kReals;
  return cell.is_int() ? ColumnKind::kInt : ColumnKind::kReal;
}

// Each with the columns of the first row that has them.
std::vector<Table> tables_of(const Case& c) {
  std::vector<Table> out;
  for (const auto& [name, rows] : c.tables) {
    if (name == "machine") continue;
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

std::optional<FirstAnswer> answer_of(const Case& c) {
  std::vector<Table> tables = tables_of(c);
  Json machine = Json::object();
  for (const auto& [name, value] : c.tables.front().second.front()) machine[name] = value;
  return first_answer("tracestep." + c.schema + "/1", tables, machine);
}

TEST(AnswerPagesTest, EachOutcomeIsChosenByItsRows) {
  for (const Case& c : cases()) {
    const auto found = answer_of(c);
    ASSERT_TRUE(found.has_value()) << c.schema << ": " << c.sentence;
    EXPECT_THAT(found->sentence, HasSubstr(c.sentence)) << c.schema;
  }
}

std::string escaped_for_regex(const std::string& words) {
  return std::regex_replace(words, std::regex(R"([.^$|()\[\]{}*+?\\])"), R"(\$&)");
}

// The words of a template around what is filled in.
std::regex pattern_of(const std::string& text) {
  std::string out;
  const Template parts = template_of(text);
  for (std::size_t i = 0; i < parts.plain.size(); ++i) {
    out += (i > 0 ? ".*" : "") + escaped_for_regex(parts.plain[i]);
  }
  return std::regex(out);
}

TEST(AnswerPagesTest, EveryTextOfEveryPageIsSaidByOneOfTheCases) {
  const std::filesystem::path folder = testing::source_folder() / "src/lab/pages/commands";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "these are no sources";
  std::vector<std::string> said;
  for (const Case& c : cases()) said.push_back(answer_of(c).value().sentence);
  std::set<std::string> schemas;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const std::string schema = file.path().stem().string();
    if (!answer_pages("tracestep." + schema + "/1").empty()) schemas.insert(schema);
  }
  EXPECT_EQ(schemas.size(), 20u);
  int texts = 0;
  for (const std::string& schema : schemas) {
    for (const Page& page : answer_pages("tracestep." + schema + "/1")) {
      std::vector<std::string> all;
      for (const Block& block : page.blocks) {
        if (!block.text.empty()) all.push_back(block.text);
        for (const auto& [order, text] : block.outcome.cases) all.push_back(text);
      }
      for (const Outcome& phrase : page.phrases) {
        for (const auto& [order, text] : phrase.cases) all.push_back(text);
      }
      for (const std::string& text : all) {
        const std::regex pattern = pattern_of(text);
        EXPECT_TRUE(std::ranges::any_of(
            said, [&](const std::string& s) { return std::regex_search(s, pattern); }))
            << schema << ", " << page.head[0] << ": " << text;
        ++texts;
      }
    }
  }
  EXPECT_GT(texts, 90);
}

TEST(AnswerPagesTest, AnAnswerMarksTheColumnsThatAreAskedFor) {
  std::vector<Table> tables = tables_of(*std::ranges::find(cases(), "a step", &Case::name));
  const auto found = first_answer("tracestep.bench/1", tables, Json::object());
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->table, "bench");
  ASSERT_EQ(tables.size(), 1u) << "the machine is no table of the result";
  std::vector<std::string> results;
  for (const Column& column : tables[0].columns) {
    if (column.is_result) results.push_back(column.name);
  }
  EXPECT_THAT(results, ElementsAre("peak_bytes", "mean_ms", "std_ms", "median_ms", "tokens_per_s"));
}

TEST(AnswerPagesTest, WithoutRowsThereIsNoAnswer) {
  std::vector<Table> tables = {{.name = "bench"}};
  EXPECT_FALSE(first_answer("tracestep.bench/1", tables, Json::object()));
  EXPECT_FALSE(first_answer("tracestep.passes/1", tables, Json::object())) << "no pages";
  EXPECT_TRUE(answer_pages("tracestep.show/1").empty());
}

}  // namespace
}  // namespace tracestep::pages
