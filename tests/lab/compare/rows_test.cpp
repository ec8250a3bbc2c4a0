// Rows are told apart by the roles of their columns, also in results that do not say them.
#include "lab/compare/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/compare/compare.h"
#include "lab/compare/declared.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

using ::testing::ElementsAre;

// A value that the field does not have in `key`.
Json other(const Json& value) {
  if (value.is_bool()) return Json(!value.as_bool());
  if (value.is_int()) return Json(value.as_int() + 1);
  if (value.is_number()) return Json(value.as_double() + 1.0);
  return Json("another " + value.as_string());
}

// Rows of runs with these keys, with the columns of `table` and, in "cell", all fields.
ResultTable rows_of_runs(const Table& table, const std::vector<Json>& keys) {
  ResultTable out{table.name, table.columns, {}};
  for (const Json& key : keys) {
    Json cells = Json::object();
    for (const Column& column : table.columns) {
      if (const Json* value = key.find(column.name)) cells[column.name] = *value;
    }
    cells["cell"] = key;
    out.rows.emplace_back(std::move(cells));
  }
  return out;
}

bool is_of_runs(const Table& table) {
  return std::ranges::any_of(table.columns, [](const Column& column) {
    return column.role == ColumnRole::kKey && find_field(column.name) != nullptr;
  });
}

TEST(RowsTest, EveryFieldOfARunTellsTheRowsOfEveryTableApart) {
  int tables = 0;
  for (const Table& table : declared_tables()) {
    if (!is_of_runs(table)) continue;
    ++tables;
    for (const RunField& field : run_fields()) {
      if (!tells_apart(field)) continue;
      const Json key = key_of(RunSpec());
      Json changed = key;
      changed[field.name] = other(key.at(field.name));
      const ResultTable one = rows_of_runs(table, {key}), two = rows_of_runs(table, {changed}),
                        both = rows_of_runs(table, {key, changed});
      const TablePair apart(one, two, {}), within(both, both, {});
      // A field of speed alone is compared, unless a table has several values of it.
      EXPECT_EQ(apart.identity(one.rows[0]) == apart.identity(two.rows[0]),
                field.role == FieldRole::kSpeed)
          << table.name << ", " << field.name;
      EXPECT_EQ(within.by_identity(both).size(), 2u) << table.name << ", " << field.name;
      EXPECT_NE(within.label(both.rows[0], both.rows[0]), within.label(both.rows[1], both.rows[1]))
          << table.name << ", " << field.name;
    }
  }
  EXPECT_EQ(tables, 9);
}

TEST(RowsTest, ThreadsAndSeedsAreOfNoRow) {
  const Table& cells = declared_tables().front();
  const Json key = key_of(RunSpec());
  Json changed = key;
  for (const RunField& field : run_fields()) {
    const Json* value = key.find(field.name);
    if (!tells_apart(field) && !is_column(field) && value) changed[field.name] = other(*value);
  }
  ASSERT_NE(changed, key);
  const ResultTable one = rows_of_runs(cells, {key}), two = rows_of_runs(cells, {changed});
  const TablePair pair(one, two, {});
  EXPECT_EQ(pair.identity(one.rows[0]), pair.identity(two.rows[0]));
}

// The result of a command that writes this table, beside another one or alone.
Json written(const Table& table, bool is_alone) {
  Document document{"tracestep.some/1", Json::object(), {}};
  if (!is_alone) document.tables.push_back(key_value_table("first", "", Json::object()));
  document.tables.push_back(table);
  std::vector<Json> empty(table.columns.size());
  document.tables.back().rows = {std::move(empty)};
  return Json::parse(to_string(document, Format::kJson), "written");
}

Json without_roles(const Json& json) {
  if (json.is_array()) {
    Json::Array out;
    for (const Json& item : json.items()) out.push_back(without_roles(item));
    return out;
  }
  if (!json.is_object()) return json;
  Json::Object out;
  for (const auto& [name, value] : json.members()) {
    if (name != "role" && name != "part_of") out.emplace_back(name, without_roles(value));
  }
  return out;
}

// Of the columns that a comparison reads.
std::vector<std::string> roles_in(const std::vector<Column>& columns) {
  std::vector<std::string> out;
  for (const Column& c : columns) {
    if (c.role == ColumnRole::kShown || c.role == ColumnRole::kFollows) continue;
    out.push_back(fmt::format("{}: {} {}", c.name, name_of(c.role), c.whole));
  }
  return out;
}

TEST(RowsTest, AResultSaysTheRolesOfItsColumnsAndAnOlderOneHasThemAllTheSame) {
  for (const Table& table : declared_tables()) {
    for (const bool is_alone : {false, true}) {
      const Json now = written(table, is_alone);
      for (const Json& json : {now, without_roles(now)}) {
        const ResultFile file = result_of(json, "file.json");
        ASSERT_EQ(file.tables.size(), 1u) << table.name;
        EXPECT_EQ(roles_in(file.tables[0].columns), roles_in(table.columns)) << table.name;
        const bool is_memory = table.name.starts_with("memory");  // one by its columns
        EXPECT_EQ(file.tables[0].name, is_alone && is_memory ? "memory" : table.name);
      }
    }
  }
}

Json parsed(const std::string& text) {
  return Json::parse(text, "test");
}

TEST(RowsTest, AResultSaysThatAVerdictFollowsFromTheOtherColumnsOfItsRow) {
  for (const Table& table : declared_tables()) {
    const auto verdict = table.index_of("verdict");
    if (!verdict) continue;
    EXPECT_EQ(table.columns[*verdict].role, ColumnRole::kFollows) << table.name;
    const Json now = written(table, true);
    EXPECT_EQ(now.at("columns").at("verdict").at("role"), Json("follows")) << table.name;
  }
}

TEST(RowsTest, ATableThatNobodyKnowsIsComparedByItsRoles) {
  const auto result = [](int bytes, int part) {
    return result_of(parsed(fmt::format(
                         R"({{"schema":"tracestep.new/1","environment":{{}},
        "columns":{{"what":{{"role":"key"}},"held_bytes":{{"role":"exact"}}}},
        "rows":[{{"what":"it","held_bytes":{0}}},{{"what":"more","held_bytes":1}}],
        "tables":{{"new":{{"rows":[]}},"pieces":{{
          "columns":{{"piece":{{"role":"key"}},"of_it":{{"role":"part","part_of":"held_bytes"}},
                      "ms":{{"role":"part","unit":"ms"}}}},
          "rows":[{{"piece":"a","of_it":{1},"ms":1.0}},{{"piece":"b","of_it":3,"ms":2.0}}]}}}}}})",
                         bytes, part)),
                     "new.json");
  };
  const ComparisonReport report =
      compare_results(result(10, 7), result(14, 11), {.fail_percent = 0.0});
  EXPECT_THAT(report.regressions, ElementsAre("it: held_bytes 10 B → 14 B (+4 B); most in a +4"));
  EXPECT_TRUE(report.undecided.empty());
  EXPECT_THAT(report.exact.notes, ::testing::Contains(::testing::StartsWith("4 figures")));
}

TEST(RowsTest, PartsOfAnotherFigureAreNotNamed) {
  const auto result = [](int peak, int moved) {
    return result_of(parsed(fmt::format(
                         R"({{"schema":"tracestep.new/1","environment":{{}},
        "columns":{{"what":{{"role":"key"}},"peak_bytes":{{"role":"exact"}}}},
        "rows":[{{"what":"it","peak_bytes":{0}}}],
        "tables":{{"new":{{"rows":[]}},"kernels":{{
          "columns":{{"kernel":{{"role":"key"}},"bytes":{{"role":"part","part_of":"moved_bytes"}}}},
          "rows":[{{"kernel":"k","bytes":{1}}}]}}}}}})",
                         peak, moved)),
                     "new.json");
  };
  EXPECT_THAT(compare_results(result(10, 1), result(14, 9), {.fail_percent = 0.0}).regressions,
              ElementsAre("it: peak_bytes 10 B → 14 B (+4 B)"));
}

}  // namespace
}  // namespace tracestep
