// The page of a study: it carries the study's JSON, shows nothing else, and asks for nothing.
#include "lab/report/html.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/report/chart/svg.h"
#include "lab/report/columns.h"
#include "lab/study/study_run.h"
#include "lab/study/summary.h"
#include "support/report_page.h"
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
  return to_string({"tracestep.study/2", environment(), study.tables}, Format::kJson);
}

std::string page_of(const StudyReport& study) {
  PageHead head = page_head(study, environment());
  head.title = "A <title>";
  return html_page(head, json_of(study), study.tables, page_sections(study));
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
  EXPECT_EQ(testing::json_of_page(page), json_of(study));
  // Tables of thousands of rows do not make a page too large to be handed around.
  StudyReport large = study;
  Table& rows = large.tables.back();
  const std::vector<Json> row = rows.rows.back();
  for (int i = 0; i < 20000; ++i) rows.add_row(row);
  EXPECT_GT(json_of(large).size(), json_of(study).size() + 1000000);
  EXPECT_LT(page_of(large).size(), page.size() + 100000);
}

TEST(HtmlTest, TheLayoutHoldsNoFigureOfTheRun) {
  const std::string page = page_of(small_study());
  const std::size_t begin = page.find("id=\"layout\">") + 12;
  const Json layout = Json::parse(page.substr(begin, page.find("</script>", begin) - begin), "");
  EXPECT_EQ(layout.find("rows"), nullptr);
  for (const auto& [name, table] : layout.at("tables").members()) {
    EXPECT_EQ(table.size(), 1u) << name;  // columns alone
    for (const Json& column : table.at("columns").items()) {
      for (const auto& [key, value] : column.members()) {
        EXPECT_TRUE(value.is_string() || key == "digits" || key == "hidden") << name << " " << key;
      }
    }
  }
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
  EXPECT_EQ(count(page, "</script>"), 3u);
  EXPECT_THAT(page, HasSubstr("<title>A &lt;title&gt;</title>"));
}

TEST(HtmlTest, ChartsReadColumnsThatAreThere) {
  const StudyReport& study = small_study();
  std::size_t charts = 0;
  for (const StudySection& section : study.sections) {
    for (const Chart& chart : section.charts) {
      ++charts;
      const auto table = std::ranges::find(study.tables, chart.table, &Table::name);
      ASSERT_NE(table, study.tables.end()) << chart.title << ": " << chart.table;
      for (const std::string& column : chart_columns(chart)) {
        EXPECT_NE(std::ranges::find(table->columns, column, &Column::name), table->columns.end())
            << chart.title << ": " << column;
      }
    }
  }
  for (const char* kind : {"lines", "bars", "roofline", "timeline"}) {
    EXPECT_TRUE(std::ranges::any_of(study.sections, [&](const StudySection& s) {
      return std::ranges::any_of(s.charts, [&](const Chart& c) { return c.kind == kind; });
    })) << kind;
  }
  EXPECT_GE(charts, 12u);
}

TEST(HtmlTest, EveryChartIsDrawnOnceForEachWidth) {
  const StudyReport& study = small_study();
  const std::string page = page_of(study);
  for (const StudySection& section : study.sections) {
    for (const Chart& chart : section.charts) {
      EXPECT_NE(draw_chart(chart, study.tables), "") << chart.title;
      // Outside of its section a chart says what it is of.
      const std::string of = chart.is_headline ? label_of(chart) : "";
      const std::string place = fmt::format(
          "data-kind=\"{}\" data-table=\"{}\">\n<figcaption><span>{}{}{}<", chart.kind, chart.table,
          xml_escaped(chart.title), of.empty() ? "" : ": ", xml_escaped(of));
      EXPECT_EQ(count(page, place), 1u) << place;
    }
  }
}

TEST(HtmlTest, PaperHasTheFirstTableAndTheFirstChartOfEachKind) {
  Table first{.name = "matrix@A"};
  first.columns = {text_column("component"), real_column("ms", "time", "ms", 1)};
  first.add_row({"ffn", 2.0});
  Table second = first;
  second.name = "matrix@B";
  const std::vector<Table> tables{first, second};
  const auto bars = [](const char* table) {
    return Chart{.kind = "bars",
                 .title = "Time",
                 .table = table,
                 .options = Json::Object{{"label", Json::Array{"component"}},
                                         {"values", Json::Array{"ms"}}}};
  };
  const PageSection sections[] = {
      {.id = "a", .title = "A", .tables = {"matrix@A"}, .charts = {bars("matrix@A")}},
      {.id = "b", .title = "B", .tables = {"matrix@B"}, .charts = {bars("matrix@B")}}};
  const std::string page = html_page({.title = "T"}, "{}", tables, sections);
  for (const char* place : {"<figure data-kind=\"bars\" data-table=\"matrix@A\"",
                            "<figure class=\"again\" data-kind=\"bars\" data-table=\"matrix@B\"",
                            "class=\"place\" data-table=\"matrix@A\"",
                            "class=\"place again\" data-table=\"matrix@B\""}) {
    EXPECT_EQ(count(page, place), 1u) << place;
  }
}

TEST(HtmlTest, TheFirstScreenSaysWhereAndWhenItsResultsAndHowFarToTrustThem) {
  const StudyReport& study = small_study();
  const PageHead head = page_head(study, Json::Object{{"cpu", "AMD"},
                                                      {"threads", 2},
                                                      {"date_utc", "2026-11-22T22:13:48Z"},
                                                      {"tool", "tracestep 0.1.0"},
                                                      {"commit", "abc"}});
  std::map<std::string, std::string> facts(head.facts.begin(), head.facts.end());
  EXPECT_EQ(facts["machine"], "AMD, 2 threads");
  EXPECT_EQ(facts["date"], "2026-11-22 22:13 UTC");
  EXPECT_EQ(facts["version"], "tracestep 0.1.0, commit abc");
  EXPECT_THAT(facts["models timed"], HasSubstr("small"));
  EXPECT_EQ(head.results.size(), 5u);
  EXPECT_EQ(head.trust.size(), 4u);
  EXPECT_EQ(head.charts.size(), 3u);
  for (const Answer& a : study.summary) EXPECT_FALSE(a.refused) << a.id << ": " << a.text.words();
  const std::string page = page_of(study);
  EXPECT_LT(page.find("<header>"), page.find("id=\"answers\""));
  EXPECT_THAT(page.substr(0, page.find("</header>")), HasSubstr("of &lt;some&gt; kind"));
}

TEST(HtmlTest, LongTablesAreDataThatIsShownWhenItIsOpened) {
  const StudyReport& study = small_study();
  std::size_t data = 0;
  for (const PageSection& section : page_sections(study)) {
    data += section.data.size();
    for (const std::string& name : section.tables) {
      EXPECT_LE(std::ranges::find(study.tables, name, &Table::name)->rows.size(), 25u) << name;
    }
  }
  EXPECT_GT(data, 0u);
  EXPECT_EQ(count(page_of(study), "<details class=\"data\">"), data);
}

TEST(HtmlTest, EveryTableOfTheRunStandsInASectionOnce) {
  const StudyReport& study = small_study();
  std::vector<std::string> names;
  for (const StudySection& section : study.sections) {
    for (const Table& table : section.tables) names.push_back(table.name);
  }
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
  EXPECT_EQ(names.size() + 3, study.tables.size());  // and summary, answers and readings
  const std::string page = page_of(study);
  for (const std::string& name : names) {
    EXPECT_THAT(page, HasSubstr("\"" + name + "\""));
  }
}

// Empty where there is none.
std::string browser() {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
      const std::filesystem::path program = std::filesystem::path(folder) / name;
      if (std::filesystem::exists(program)) return program.string();
    }
  }
  return "";
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
  // What a page says on its console stands in the log with this word.
  EXPECT_THAT(content_of(folder / "log"), Not(HasSubstr("CONSOLE")));
  const std::string dom = content_of(folder / "dom");
  std::size_t charts = 0, rows = 0;
  for (const StudySection& section : study.sections) charts += section.charts.size();
  for (const PageSection& section : page_sections(study)) {
    for (const std::string& name : section.tables) {
      rows += std::ranges::find(study.tables, name, &Table::name)->rows.size();
    }
  }
  EXPECT_EQ(count(dom, "<figure"), charts);
  EXPECT_EQ(count(dom, "<tr id=\"table-"), rows);
  for (const Answer& a : study.answers) EXPECT_THAT(dom, HasSubstr("id=\"answer-" + a.id + "\""));
}

}  // namespace
}  // namespace tracestep
