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

// A problem of the page: its first words, the lines that say what it is of, its sentences, the
// titles of its tables with the lines of these, the words of its pictures, and all of its text.
struct Part {
  std::string number, text;
  std::vector<std::string> runs, bold, pictures;
  std::vector<std::pair<std::string, std::vector<std::string>>> tables;
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
    if (line.starts_with("![")) part.pictures.push_back(line.substr(2, line.find("](") - 2));
    if (line.starts_with("### ")) part.tables.push_back({line, {}});
    const bool is_of_table = line.starts_with("| ") && !part.tables.empty();
    if (is_of_table) part.tables.back().second.push_back(line);
  }
  return out;
}

// The words of the text that are among these, as whole words.
Texts words_among(const std::string& text, const Texts& known) {
  Texts out;
  for (const std::string& word : known) {
    for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
      const auto is_letter = [&](std::size_t i) {
        return i < text.size() &&
               (text[i] == '-' || std::isalnum(static_cast<unsigned char>(text[i])) != 0);
      };
      if (!is_letter(at + word.size()) && (at == 0 || !is_letter(at - 1))) out.insert(word);
    }
  }
  return out;
}

const Texts kSizes{"tiny", "small", "planned"}, kPrecisions{"fp32", "bf16"},
    kOps{"fused ops", "primitive ops"},
    kPasses{"inference", "forward", "forward-backward", "backward", "step"};

bool has(const Texts& all, const std::string& one) {
  return all.contains(one);
}

// The sentence in the words of keys: "forward of tiny, bf16".
std::string in_keys(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const auto& [word, key] :
       {std::pair{"bfloat16", "bf16"}, {"float32", "fp32"}, {"plain ops", "primitive ops"}}) {
    for (std::size_t at = text.find(word); at != text.npos; at = text.find(word)) {
      text.replace(at, std::string_view(word).size(), key);
    }
  }
  return text;
}

// What the first lines of a problem say that it is of: "fused, primitive ops" is both.
std::string keys_of(const Part& part) {
  std::string out;
  for (const std::string& line : part.runs) {
    std::string keys = line.substr(0, std::min(line.find(". On "), line.find(". Measured ")));
    if (keys.find("fused, primitive ops") != keys.npos) keys += " fused ops";
    if (keys.find("primitive, fused ops") != keys.npos) keys += " primitive ops";
    // Both passes are parts of what has an update, or backward, besides.
    const bool has_both = keys.find("forward-backward") != keys.npos;
    if (has_both || keys.find("step") != keys.npos) keys += " forward backward";
    out += keys + " ";
  }
  return out;
}

// Empty, or what a problem says of another run than its first lines name.
std::string wrong_in(const Part& part) {
  const std::string keys = keys_of(part);
  const auto wrong = [&](const std::string& text, std::initializer_list<const Texts*> known) {
    for (const Texts* all : known) {
      const Texts of = words_among(keys, *all);
      for (const std::string& word : words_among(in_keys(text), *all)) {
        if (!of.empty() && !has(of, word))
          return part.number + ": \"" + text + "\" is of " + word + ", not of " + keys;
      }
    }
    return std::string();
  };
  for (const std::string& sentence : part.bold) {
    const std::string words = sentence.substr(0, sentence.find("**", 2));
    const std::string out = wrong(words, {&kSizes, &kPrecisions, &kOps, &kPasses});
    if (!out.empty()) return out;
  }
  if (!part.pictures.empty()) {  // others are of what their captions say
    const std::string out = wrong(part.pictures.front(), {&kSizes, &kPrecisions, &kOps, &kPasses});
    if (!out.empty()) return out;
  }
  for (const auto& [title, lines] : part.tables) {
    const std::string out = wrong(title, {&kPrecisions, &kOps, &kPasses});
    if (!out.empty()) return out;
    const Texts sizes = words_among(keys, kSizes);
    const bool has_sizes = !lines.empty() && lines[0].starts_with("| size ");
    const bool has_its_own = std::ranges::any_of(
        lines, [&](const std::string& line) { return !words_among(line, sizes).empty(); });
    if (has_sizes && !has_its_own) return part.number + ": a table without its model: " + title;
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

TEST(OneSubjectTest, ASentenceATableOrAPictureOfAnotherRunIsFound) {
  for (const auto& [said, altered] :
       {std::pair{"**Forward of small", "**Forward of tiny"},
        {"![Forward of small", "![Forward of tiny"},
        {"### forward, fp32, fused ops", "### forward, bf16, fused ops"},
        {"### forward, fp32, fused ops", "### forward, fp32, primitive ops"},
        {"### step, fp32, fused ops", "### inference, fp32, fused ops"},
        {"**In forward of small", "**In inference of small"},
        {"**bfloat16 autocast makes forward-backward", "**bfloat16 autocast makes inference"}}) {
    std::string page = page_of(small_study());
    const std::size_t at = page.find(said);
    ASSERT_NE(at, std::string::npos) << said;
    page.replace(at, std::string_view(said).size(), altered);
    EXPECT_TRUE(std::ranges::any_of(parts_of(page), [](const Part& p) {
      return !wrong_in(p).empty();
    })) << altered;
  }
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
