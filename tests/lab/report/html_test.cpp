// The page of a study: it carries the study's JSON, shows nothing else, and asks for nothing.
#include "lab/report/html.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "lab/report/chart/svg.h"
#include "lab/report/columns.h"
#include "lab/study/study_run.h"
#include "lab/study/summary.h"
#include "support/page_words.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::small_study;

const Json& environment() {
  static const Json out = Json::Object{{"cpu", "of <some> kind & \"name\""}};
  return out;
}

std::string json_of(const StudyReport& study) {
  return study_json(study, environment()).dump(2);
}

std::string page_of(const StudyReport& study) {
  PageHead head = page_head(study, environment());
  head.title = "A <title>";
  return html_page(head, study_json(study, environment()), study.tables, page_topics(study),
                   page_sections(study));
}

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t out = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + 1)) {
    ++out;
  }
  return out;
}

TEST(HtmlTest, ThePageCarriesTheSameNumbersAsTheJson) {
  const StudyReport& study = small_study();
  const std::string page = page_of(study);
  EXPECT_EQ(result_of_page(page, "page").dump(2), json_of(study));
  // Tables of thousands of rows do not make a page too large to be handed around.
  StudyReport large = study;
  Table& rows = large.tables.back();
  const std::vector<Json> row = rows.rows.back();
  for (int i = 0; i < 20000; ++i) rows.add_row(row);
  EXPECT_GT(json_of(large).size(), json_of(study).size() + 1000000);
  EXPECT_LT(page_of(large).size(), page.size() + 100000);
}

TEST(HtmlTest, NothingIsFetched) {
  const std::string page = page_of(small_study());
  // The name of the SVG namespace is no address that a browser would open.
  EXPECT_EQ(count(page, "http://"), count(page, "http://www.w3.org/2000/svg"));
  EXPECT_EQ(count(page, "https://"), 0u);
  for (const char* part : {" src=", "@import", "url(", "<iframe", "fetch(", "XMLHttpRequest",
                           "import(", "WebSocket"}) {
    EXPECT_THAT(page, Not(HasSubstr(part)));
  }
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
}

TEST(HtmlTest, TextOfTheRunCannotEndTheScriptItStandsIn) {
  const StudyReport& study = small_study();
  const std::string json = json_of(study);
  ASSERT_THAT(json, HasSubstr("The </script> end."));  // the sample of the training
  const std::string page = page_of(study);
  EXPECT_EQ(count(page, "<script"), count(page, "</script>"));
  EXPECT_EQ(count(page, "</script>"), 2u);
  EXPECT_THAT(page, HasSubstr("<title>A &lt;title&gt;</title>"));
}

TEST(HtmlTest, ChartsReadColumnsThatAreThereAndHaveNamesOfTheirOwn) {
  const StudyReport& study = small_study();
  std::set<std::string> names, kinds;
  for (const Chart& chart : charts_of(study)) {
    EXPECT_TRUE(names.insert(chart.name).second) << chart.name;
    kinds.insert(chart.kind);
    const auto table = std::ranges::find(study.tables, chart.table, &Table::name);
    ASSERT_NE(table, study.tables.end()) << chart.name << ": " << chart.table;
    for (const std::string& column : chart_columns(chart)) {
      EXPECT_NE(std::ranges::find(table->columns, column, &Column::name), table->columns.end())
          << chart.name << ": " << column;
    }
  }
  EXPECT_THAT(kinds, ::testing::ElementsAre("bars", "lines", "roofline", "timeline"));
  EXPECT_GE(names.size(), 15u);
}

TEST(HtmlTest, EveryChartStandsInItsCardOnceForEachWidth) {
  const StudyReport& study = small_study();
  const std::string page = page_of(study);
  EXPECT_EQ(count(page, "<figure "), charts_of(study).size());
  EXPECT_EQ(count(page, "<div class=\"narrow\"><svg"), charts_of(study).size());
  for (const Answer& a : study.answers) {
    const std::size_t begin = page.find("id=\"answer-" + a.id + "\"");
    ASSERT_NE(begin, std::string::npos) << a.id;
    const std::string card = page.substr(begin, page.find("</article>", begin) - begin);
    EXPECT_EQ(count(card, "<figure "), a.charts.size()) << a.id;
    EXPECT_LT(card.find("class=\"lead\""), card.find("<details>")) << a.id;
  }
}

TEST(HtmlTest, ThePageIsShortAndShorterBeforeAnythingIsUnfolded) {
  const testing::PageWords words = testing::words_of_page(page_of(small_study()));
  EXPECT_LE(words.before, 1600u);
  EXPECT_GE(words.before, 500u);
  EXPECT_LE(words.all, 8000u);  // marks of noise add some tens
}

TEST(HtmlTest, AShortAnswerCarriesTheSignOfItsRowsInTheSentenceToo) {
  PageHead head{.title = "A step", .facts = {}, .numbers = "study.json"};
  PageCard card{.id = "short-time", .question = "What takes the time?"};
  card.lead = Text("Backward takes most.");
  card.standing = "noisy";
  head.short_answers = {card, card};
  head.short_answers[1].standing = "sound";
  const StudyReport& study = small_study();
  const std::string page = html_page(head, study_json(study, environment()), study.tables, {}, {});
  EXPECT_EQ(count(page, "<p class=\"lead\">~ "), 1u);
  EXPECT_EQ(count(page, "<span class=\"mark noisy\""), 1u);
}

TEST(HtmlTest, TheFirstScreenHasFourFiguresFourAnswersThreeChartsAndALineOfTrust) {
  const StudyReport& study = small_study();
  const PageHead head = page_head(study, Json::Object{{"cpu", "AMD"},
                                                      {"threads", 2},
                                                      {"date_utc", "2026-11-22T22:13:48Z"},
                                                      {"tool", "tracestep 0.1.0"},
                                                      {"commit", "abc"}});
  EXPECT_THAT(head.facts,
              ::testing::ElementsAre("AMD, 2 threads", HasSubstr("small"), "2026-11-22 22:13 UTC",
                                     "tracestep 0.1.0, commit abc"));
  EXPECT_EQ(head.tiles.size(), 4u);
  EXPECT_EQ(head.short_answers.size(), 4u);
  EXPECT_FALSE(head.trust.empty());
  std::size_t charts = 0;
  for (const PageCard& card : head.short_answers) charts += card.charts.size();
  EXPECT_EQ(charts, 3u);
  for (const Answer& a : study.summary) EXPECT_FALSE(a.refused) << a.id << ": " << a.text.words();
  const std::string page = page_of(study);
  EXPECT_LT(page.find("<header>"), page.find("id=\"answer-"));
  EXPECT_THAT(page.substr(0, page.find("</header>")), HasSubstr("of &lt;some&gt; kind"));
}

// The surroundings of the first byte in which two texts differ that are too large to be printed.
std::string first_difference(const std::string& a, const std::string& b) {
  const auto [at, other] = std::ranges::mismatch(a, b);
  if (at == a.end() && other == b.end()) return "";
  const auto begin = static_cast<std::size_t>(at - a.begin()),
             from = begin - std::min<std::size_t>(begin, 200);
  return a.substr(from, 300) + "\n--- and\n" + b.substr(from, 300);
}

TEST(HtmlTest, AStoredStudyGivesTheSamePage) {
  const StudyReport& study = small_study();
  const std::string page = page_of(study);
  for (const std::string& text : {page, json_of(study)}) {
    const StoredStudy stored = stored_study(text, "study");
    const StudyReport again = answered(stored.sections);
    // gtest cannot print the difference of texts as large as these.
    EXPECT_EQ(first_difference(json_of(again), json_of(study)), "");
    EXPECT_EQ(first_difference(page_of(again), page), "");
  }
  EXPECT_THROW(stored_study("{\"schema\": \"tracestep.bench/1\"}", "bench.json"), Error);
}

TEST(HtmlTest, EveryTableOfTheRunStandsInASectionOnce) {
  const StudyReport& study = small_study();
  std::vector<std::string> names;
  for (const StudySection& section : study.sections) {
    for (const Table& table : section.tables) names.push_back(table.name);
  }
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
  EXPECT_EQ(names.size() + 4, study.tables.size());  // and subject, summary, answers and readings
  const std::string page = page_of(study);
  for (const std::string& name : names) {
    EXPECT_EQ(count(page, "class=\"place\" data-table=\"" + name + "\""), 1u) << name;
  }
}

TEST(HtmlTest, SectionsOfOneKindUnfoldFromOneLine) {
  const StudyReport& study = small_study();
  std::map<std::string, std::vector<std::string>> cells;  // of "Kernels of one step: CELL"
  for (const StudySection& section : study.sections) {
    const std::size_t colon = section.title.find(": ");
    if (colon == std::string::npos) continue;
    cells[section.title.substr(0, colon)].push_back(section.title.substr(colon + 2));
  }
  const std::string page = page_of(study);
  std::size_t groups = 0;
  for (const auto& [subject, of] : cells) {
    if (of.size() == 1) continue;
    ++groups;
    const std::size_t line =
        page.find(fmt::format("<summary>{} ({})</summary>", subject, of.size()));
    ASSERT_NE(line, std::string::npos) << subject;
    for (const std::string& cell : of) {
      EXPECT_NE(page.find("<summary>" + cell + "</summary>", line), std::string::npos) << cell;
    }
  }
  EXPECT_GE(groups, 1u);
}

// The first program with one of these names; empty where there is none.
std::string program_named(std::initializer_list<const char*> names) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    for (const char* name : names) {
      const std::filesystem::path program = std::filesystem::path(folder) / name;
      if (std::filesystem::exists(program)) return program.string();
    }
  }
  return "";
}

std::string browser() {
  return program_named({"chromium", "chromium-browser", "google-chrome"});
}

TEST(HtmlTest, TheScriptOfThePageMakesTheResultOfWhatThePageCarries) {
  const std::string node = program_named({"node"});
  if (node.empty()) GTEST_SKIP() << "there is no node";
  const TempFolder folder;
  const std::string page = page_of(small_study());
  folder.write("page.html", page);
  folder.write("study.json", json_of(small_study()));
  folder.write("check.js", R"(
    const fs = require('fs'), zlib = require('zlib');
    const page = fs.readFileSync('page.html', 'utf8');
    const script = page.slice(page.lastIndexOf('<script>') + '<script>'.length);
    const byRow = eval('(' + script.match(/function byRow\(result\) \{[^]*?\n\}\n/)[0] + ')');
    const packed = Buffer.from(page.match(/id="report">([^<]*)</)[1], 'base64');
    const found = byRow(JSON.parse(zlib.gunzipSync(packed).toString()));
    const asked = JSON.parse(fs.readFileSync('study.json', 'utf8'));
    process.exit(JSON.stringify(found) === JSON.stringify(asked) ? 0 : 1);
  )");
  const std::string call = fmt::format("cd '{}' && '{}' check.js", folder.path().string(), node);
  EXPECT_EQ(std::system(call.c_str()), 0);
}

TEST(HtmlTest, ABrowserDrawsItAllWithoutAnErrorAndWithoutANetwork) {
  if (browser().empty()) GTEST_SKIP() << "there is no browser of the Chromium family";
  const StudyReport& study = small_study();
  const TempFolder folder;
  const std::filesystem::path page = folder.write("study.html", page_of(study));
  const std::string command = fmt::format(
      "'{}' --headless --no-sandbox --disable-gpu --user-data-dir='{}' --virtual-time-budget=1000 "
      "--host-resolver-rules='MAP * ~NOTFOUND' --enable-logging=stderr --dump-dom 'file://{}' "
      "> '{}' 2> '{}'",
      browser(), (folder / "profile").string(), page.string(), (folder / "dom").string(),
      (folder / "log").string());
  ASSERT_EQ(std::system(command.c_str()), 0) << content_of(folder / "log");
  // The log has this word for each line that a page writes to its console.
  EXPECT_THAT(content_of(folder / "log"), Not(HasSubstr("CONSOLE")));
  const std::string dom = content_of(folder / "dom");
  EXPECT_EQ(count(dom, "<figure"), charts_of(study).size());
  for (const Answer& a : study.answers) EXPECT_THAT(dom, HasSubstr("id=\"answer-" + a.id + "\""));
}

}  // namespace
}  // namespace tracestep
