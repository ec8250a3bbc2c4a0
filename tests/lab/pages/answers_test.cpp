// The first sentence of every result, in every outcome: from tables alone.
#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "lab/pages/cases.h"
#include "lab/pages/first_answer.h"
#include "support/paths.h"

namespace tracestep::pages {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::optional<FirstAnswer> answer_of(const Case& c) {
  std::vector<Table> tables = tables_of(c);
  tables.erase(tables.begin());  // the machine
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
  EXPECT_EQ(schemas.size(), 21u);
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
  tables.erase(tables.begin());  // the machine
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
