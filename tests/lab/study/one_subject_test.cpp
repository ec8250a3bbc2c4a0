// A hand-in is read as a person reads it: each problem says which run it is of, and its sentences,
// charts and tables are of that run.
#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "course/hand_in.h"
#include "course/problems.h"
#include "lab/pages/pivot.h"
#include "lab/report/chart/chart.h"
#include "lab/study/study_run.h"

namespace tracestep {
namespace {

using testing::small_study;
using Texts = std::set<std::string>;

// --- the page ------------------------------------------------------------------------------------

// A problem of the page: its first words, the lines that say what it is of, and all of its text.
struct Part {
  std::string number, text;
  std::vector<std::string> runs, bold, titles;
};

std::vector<Part> parts_of(const std::string& page) {
  std::vector<Part> out;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    constexpr std::string_view kProblem = "## Problem ";
    if (line.starts_with(kProblem)) {
      out.emplace_back().number = line.substr(kProblem.size(), line.find(':') - kProblem.size());
    }
    if (out.empty()) continue;
    Part& part = out.back();
    part.text += line + "\n";
    if (line.find(", by `") != std::string::npos) part.runs.push_back(line);
    if (line.starts_with("**")) part.bold.push_back(line);
    if (line.starts_with("### ")) part.titles.push_back(line);
  }
  return out;
}

// The words of the text that are among these, as whole words.
Texts words_among(const std::string& text, const Texts& known) {
  Texts out;
  for (const std::string& word : known) {
    for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
      const auto is_letter = [&](std::size_t i) {
        return i < text.size() && std::isalnum(static_cast<unsigned char>(text[i])) != 0;
      };
      if (!is_letter(at + word.size()) && (at == 0 || !is_letter(at - 1))) out.insert(word);
    }
  }
  return out;
}

const Texts kSizes{"tiny", "small", "planned"}, kPrecisions{"fp32", "bf16"},
    kOps{"fused ops", "primitive ops"};

bool has(const Texts& all, const std::string& one) {
  return all.contains(one);
}

// Empty, or what two lines of a problem say differently.
std::string wrong_in(const Part& part) {
  std::string first;
  for (const std::string& line : part.runs) first += line.substr(0, line.find(" On ")) + " ";
  for (const std::string& sentence : part.bold) {
    const std::string words = sentence.substr(0, sentence.find("**", 2));
    for (const std::string& size : words_among(words, kSizes)) {
      if (!has(words_among(first, kSizes), size)) return part.number + ": a sentence of " + size;
    }
  }
  for (const std::string& title : part.titles) {
    for (const Texts* known : {&kPrecisions, &kOps}) {
      const Texts said = words_among(title, *known), of = words_among(first, *known);
      const bool is_apart = !said.empty() && !of.empty() &&
                            std::ranges::none_of(said, [&](auto& word) { return has(of, word); });
      if (is_apart) return part.number + ": a table of another run: " + title;
    }
  }
  return {};
}

std::string page_of(const StudyReport& report) {
  return course_page(report, Json::object(), {}, Format::kMarkdown, "charts");
}

TEST(OneSubjectTest, SentencesAndTablesOfAProblemAreOfTheRunThatItsFirstLineNames) {
  const std::vector<Part> parts = parts_of(page_of(small_study()));
  ASSERT_GT(parts.size(), 20u);
  for (const Part& part : parts) {
    EXPECT_FALSE(part.runs.empty()) << part.number;
    EXPECT_EQ(wrong_in(part), "") << part.text;
  }
}

TEST(OneSubjectTest, ASentenceOfAnotherModelIsFound) {
  std::string page = page_of(small_study());
  const std::size_t at = page.find("**Forward of small");
  ASSERT_NE(at, std::string::npos);
  page.replace(at, 18, "**Forward of tiny ");
  EXPECT_TRUE(
      std::ranges::any_of(parts_of(page), [](const Part& p) { return !wrong_in(p).empty(); }));
}

// --- rows ----------------------------------------------------------------------------------------

const Table* table_named(const std::string& name) {
  const auto& tables = small_study().tables;
  const auto found = std::ranges::find(tables, name, &Table::name);
  return found == tables.end() ? nullptr : &*found;
}

// Joins what the rows of an answer's text have for a key.
Texts said_of(const Answer& answer, const std::string& key) {
  Texts out;
  for (const RowRef& ref : rows_in_text(answer)) {
    const Table* const table = table_named(ref.table);
    const Json* const cell = pages::cell_in(*table, table->rows[ref.row], key);
    if (cell != nullptr && !cell->is_null()) out.insert(pages::words_of(*cell));
  }
  return out;
}

bool is_drawn(const Chart& chart, const Table& table, const std::vector<Json>& row) {
  const Json* const where = chart.options.find("where");
  if (where == nullptr) return true;
  return std::ranges::all_of(where->members(), [&](const auto& condition) {
    const Json* const cell = pages::cell_in(table, row, condition.first);
    if (cell == nullptr) return true;
    if (!condition.second.is_array()) return *cell == condition.second;
    return std::ranges::any_of(condition.second.items(),
                               [&](const Json& one) { return one == *cell; });
  });
}

// Keys by which the chart tells its bars, lines or points apart.
Texts told_apart(const Chart& chart) {
  Texts out;
  for (const char* option : {"label", "series", "x", "stack", "over"}) {
    const Json* const names = chart.options.find(option);
    if (names == nullptr) continue;
    if (names->is_string()) out.insert(names->as_string());
    if (!names->is_array()) continue;
    for (const Json& name : names->items()) out.insert(name.as_string());
  }
  return out;
}

TEST(OneSubjectTest, AChartDrawsTheRunOfItsSentenceAndTellsOthersApart) {
  std::size_t checked = 0;
  for (const Answer& a : small_study().answers) {
    if (a.number.empty()) continue;  // no problem asks it
    for (const Chart& chart : a.charts) {
      const Table* const table = table_named(chart.table);
      ASSERT_NE(table, nullptr) << chart.table;
      for (const char* key : {"size", "vocab", "precision", "ops", "mode"}) {
        const Texts said = said_of(a, key);
        Texts drawn;
        for (const auto& row : table->rows) {
          const Json* const cell = pages::cell_in(*table, row, key);
          const bool counts = cell != nullptr && !cell->is_null() && is_drawn(chart, *table, row);
          if (counts) drawn.insert(pages::words_of(*cell));
        }
        if (said.empty() || drawn.empty()) continue;
        ++checked;
        EXPECT_TRUE(std::ranges::any_of(drawn, [&](auto& value) { return has(said, value); }))
            << a.id << ": no " << key << " of its sentence is drawn";
        const bool is_one =
            drawn.size() == 1 || has(told_apart(chart), key) || std::string_view(key) == "vocab";
        EXPECT_TRUE(is_one) << a.id << ": its chart mixes " << key;
      }
    }
  }
  EXPECT_GT(checked, 10u);
}

TEST(OneSubjectTest, TheProblemsAboutOneStepAreAllOfOneModelInOnePrecision) {
  std::map<std::string, Texts> all;
  for (const Answer& a : small_study().answers) {
    const bool is_of_step =
        a.number == "1.1.3 b" || a.number.starts_with("1.1.4") || a.number == "1.1.6 a";
    if (!is_of_step) continue;
    ASSERT_FALSE(a.refused) << a.id << ": " << a.text.words();
    for (const char* key : {"size", "vocab", "precision", "context"}) {
      const Texts said = said_of(a, key);
      all[key].insert(said.begin(), said.end());
    }
  }
  for (const auto& [key, values] : all) EXPECT_EQ(values.size(), 1u) << key;
}

}  // namespace
}  // namespace tracestep
