#include "lab/report/table.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "lab/report/columns.h"
#include "lab/report/csv_reader.h"
#include "lab/report/writers.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

Table small_table() {
  Table table{.name = "times",
              .title = "Step time",
              .columns = {{.name = "size", .title = "model"},
                          {.name = "parameters", .kind = ColumnKind::kInt},
                          {.name = "mean_ms",
                           .title = "mean",
                           .unit = "ms",
                           .kind = ColumnKind::kReal,
                           .digits = 2,
                           .description = "arithmetic mean"},
                          {.name = "peak_bytes", .title = "peak", .kind = ColumnKind::kBytes},
                          {.name = "ok", .kind = ColumnKind::kBool},
                          {.name = "samples_ms", .kind = ColumnKind::kReals}}};
  table.add_row({"small", 128625408, 12.345, std::int64_t{3} << 29, true, Json::Array{1.5, 2}});
  table.add_row({"a|b,\"c\" µ_$", 7, Json(), Json(), false, Json()});
  return table;
}

Document document() {
  Json environment = Json::object();
  environment["threads"] = 2;
  Table table = small_table();
  table.notes = {"100 % of it"};
  return {"tracestep.test/1", environment, {table}};
}

TEST(TableTest, ATextTableAlignsNumbersRightAndUsesHumanUnits) {
  EXPECT_EQ(to_string(document(), Format::kText),
            "Step time\n"
            "\n"
            "model         parameters  mean (ms)      peak  ok\n"
            "-----------  -----------  ---------  --------  ---\n"
            "small        128,625,408      12.35  1.50 GiB  yes\n"
            "a|b,\"c\" µ_$            7          -         -  no\n"
            "\n"
            "100 % of it\n");
}

TEST(TableTest, PeopleSeeAColumnThatTellsRowsApartOnlyWhereItDoes) {
  Table table{.name = "rows",
              .columns = {{.name = "size"}, {.name = "executor", .if_varies = true}}};
  table.add_row({"tiny", "eager"});
  table.add_row({"small", "eager"});
  EXPECT_EQ(to_string({"tracestep.test/1", Json::object(), {table}}, Format::kText).find("eager"),
            std::string::npos);
  EXPECT_NE(to_string({"tracestep.test/1", Json::object(), {table}}, Format::kCsv).find("eager"),
            std::string::npos);
  table.add_row({"small", "compiled"});
  EXPECT_NE(to_string({"tracestep.test/1", Json::object(), {table}}, Format::kText).find("eager"),
            std::string::npos);
}

std::string on_terminal(const Table& table, TextView view) {
  std::ostringstream out;
  write_text({"tracestep.test/1", Json::object(), {table}}, out, view);
  return out.str();
}

TEST(TableTest, ATerminalShowsTheColumnsThatFitAndNamesTheOthers) {
  Table table = small_table();
  table.columns[3].is_result = true;
  table.columns.push_back({.name = "verdict", .is_result = true});
  table.rows[0].emplace_back("ok");
  table.rows[1].emplace_back("doubt: unsteady");
  EXPECT_EQ(on_terminal(table, {.width = 44, .way_out = " (wider!)"}),
            "Step time\n"
            "\n"
            "model            peak  ok   verdict\n"
            "-----------  --------  ---  ---------------\n"
            "small        1.50 GiB  yes  ok\n"
            "a|b,\"c\" µ_$         -  no   doubt: unsteady\n"
            "\n"
            "not shown for lack of width: parameters,\n"
            "mean (ms) (wider!)\n");
  EXPECT_EQ(on_terminal(table, {.width = 500}), on_terminal(table, {}));
}

Table keyed_table() {
  Table table{.name = "t",
              .title = "Times",
              .columns = {as_key(text_column("size")), as_key(text_column("precision")),
                          text_column("status"), real_column("wall_ms", "wall", "ms", 1),
                          real_column("median_ms", "median of all", "ms", 1), int_column("none")}};
  table.add_row({"tiny", "fp32", "ok", 1.0, 2.0, Json()});
  table.add_row({"tiny", "bf16", "ok", 1.5, 2.5, Json()});
  table.columns[4].is_result = true;
  return table;
}

TEST(TableTest, TimesOfASecondAndMoreAreInSecondsInAllColumns) {
  Table table{.name = "t",
              .columns = {text_column("size"), real_column("ms", "time", "ms", -1),
                          real_column("std_ms", "std", "ms", 2)}};
  table.add_row({"xl", 29803.4, 150.0});
  table.add_row({"2.7B", 123456.7, Json()});
  EXPECT_EQ(on_terminal(table, {}),
            "size  time (s)  std (s)\n"
            "----  --------  -------\n"
            "xl        29.8     0.15\n"
            "2.7B     123.5        -\n");
  table.add_row({"tiny", 20.0, 1.0});
  EXPECT_EQ(on_terminal(table, {}),
            "size  time (ms)  std (ms)\n"
            "----  ---------  --------\n"
            "xl       29,803    150.00\n"
            "2.7B    123,457         -\n"
            "tiny         20      1.00\n")
      << "one row of less keeps milliseconds, without an exponent";
}

TEST(TableTest, ANeededTextTakesMoreLinesBeforeAColumnIsLeftOut) {
  Table table{.name = "t",
              .columns = {as_key(text_column("mode")), as_key(text_column("executor")),
                          text_column("is"), int_column("peak")}};
  table.columns[2].is_result = table.columns[3].is_result = true;
  table.add_row({"forward-backward", "compiled", "too few samples", 66230000});
  EXPECT_THAT(
      on_terminal(table, {.width = 48}),
      ::testing::AllOf(::testing::HasSubstr("66,230,000"), ::testing::HasSubstr("too few")));
}

TEST(TableTest, AScreenSaysOnceWhatIsTheSameInAllRows) {
  EXPECT_EQ(on_terminal(on_screen(keyed_table()), {}),
            "Times: size tiny\n"
            "\n"
            "precision  wall (ms)  median of all (ms)\n"
            "---------  ---------  ------------------\n"
            "fp32             1.0                 2.0\n"
            "bf16             1.5                 2.5\n");
  Table one = keyed_table();
  one.rows.pop_back();
  EXPECT_EQ(on_terminal(on_screen(one), {}),
            "Times: size tiny, precision fp32\n"
            "\n"
            "wall (ms)  median of all (ms)\n"
            "---------  ------------------\n"
            "      1.0                 2.0\n")
      << "figures of a single row stay in it";
}

TEST(TableTest, AScreenThatIsNarrowKeepsKeysAndResults) {
  EXPECT_EQ(on_terminal(on_screen(keyed_table()), {.width = 20}),
            "Times: size tiny\n"
            "\n"
            "precision  median of\n"
            "            all (ms)\n"
            "---------  ---------\n"
            "fp32             2.0\n"
            "bf16             2.5\n");
}

TEST(TableTest, FlagsAreNeverCutAndTheirLinesEndBetweenThem) {
  Table table{
      .name = "t",
      .columns = {to_copy(text_column("flags")), real_column("ms", "time a token", "× as asked", 3),
                  text_column("empty"), text_column("why")}};
  table.columns[0].is_result = table.columns[1].is_result = true;
  table.add_row(
      {"--precision bf16 --attention flash --recompute 'layers.*.attn' --offload optimizer "
       "--updates early",
       0.135, "", "a reason"});
  EXPECT_EQ(on_terminal(on_screen(table), {.width = 36}),
            "flags                         time a\n"
            "                               token\n"
            "                               (× as\n"
            "                              asked)\n"
            "----------------------------  ------\n"
            "--precision bf16               0.135\n"
            "--attention flash\n"
            "--recompute 'layers.*.attn'\n"
            "--offload optimizer\n"
            "--updates early\n");
}

// A note about one column goes where that column goes.
TEST(TableTest, AScreenDoesNotSpeakOfColumnsThatItHides) {
  Table table = keyed_table();
  table.columns[5].data_only = true;
  table.notes = {"wall: by the host's clock", "none: of a column that is never shown", "a note"};
  const auto notes_in = [&](std::size_t width) {
    std::ostringstream out;
    const LeftOut left = write_table(on_screen(table), {.width = width, .lines = 40}, out);
    const std::string text = out.str();
    return std::pair(text.substr(text.rfind("\n\n") + 2), left.notes);
  };
  EXPECT_EQ(notes_in(80),
            std::pair(std::string("wall: by the host's clock\na note\n"), std::size_t{0}));
  EXPECT_EQ(notes_in(20), std::pair(std::string("a note\n"), std::size_t{1}));
}

TEST(TableTest, RowsAndNotesBeyondAScreenAreCounted) {
  Table table = keyed_table();
  for (int i = 0; i < 30; ++i) table.add_row({"tiny", "fp16", "ok", 1.0, 2.0, Json()});
  table.notes = {"a note", std::string(5000, 'x')};
  std::ostringstream out;
  const LeftOut left = write_table(on_screen(table), {.width = 80, .lines = 20}, out);
  const std::string text = out.str();
  EXPECT_LE(std::ranges::count(text, '\n'), 20);
  EXPECT_GT(left.rows, 10u);
  EXPECT_EQ(left.notes, 1u);
  EXPECT_TRUE(text.ends_with("a note\n")) << text;
}

// This holds for tables of many rows; those of few share a screen.
TEST(TableTest, ALongTextTakesThreeLinesAtMost) {
  Table table{.name = "t", .columns = {{.name = "a"}, {.name = "why"}}};
  table.add_row({"y",
                 "a reason that takes more characters than three lines have, so many that its "
                 "end is left out"});
  EXPECT_THAT(on_terminal(table, {.width = 30}),
              ::testing::EndsWith("   have, so many that its end\n   is left out\n"));
  table.add_row({"x", "a reason that takes more characters than there are"});
  for (int i = 0; i < 5; ++i) table.add_row({"z", "none"});
  EXPECT_THAT(on_terminal(table, {.width = 30}),
              ::testing::StartsWith("a  why\n"
                                    "-  ---------------------------\n"
                                    "y  a reason that takes more\n"
                                    "   characters than three lines\n"
                                    "   have, so many that its end…\n"
                                    "x  a reason that takes more\n"
                                    "   characters than there are\n"));
}

TEST(TableTest, ColoursTellGoodDoubtfulAndBadApart) {
  Table table{.name = "t", .columns = {{.name = "status"}, {.name = "verdict"}}};
  table.add_row({"ok", "doubt: unsteady"});
  table.add_row({"oom", "-"});
  table.notes = {"invalid: x: reason"};
  EXPECT_EQ(on_terminal(table, {.has_colour = true}),
            "status  verdict\n"
            "------  ---------------\n"
            "\x1b[32mok    \x1b[0m  \x1b[33mdoubt: unsteady\x1b[0m\n"
            "\x1b[31moom   \x1b[0m  -\n"
            "\n"
            "\x1b[31minvalid: x: reason\x1b[0m\n");
}

TEST(TableTest, AMarkdownTablePadsItsColumns) {
  EXPECT_EQ(to_string(document(), Format::kMarkdown),
            "### Step time\n"
            "\n"
            "| model        |  parameters | mean (ms) |     peak | ok  |\n"
            "| ------------ | ----------: | --------: | -------: | --- |\n"
            "| small        | 128,625,408 |     12.35 | 1.50 GiB | yes |\n"
            "| a\\|b,\"c\" µ_$ |           7 |         - |        - | no  |\n"
            "\n"
            "100 % of it\n");
}

TEST(TableTest, CsvQuotesWhatNeedsItAndKeepsRawValues) {
  EXPECT_EQ(to_string(document(), Format::kCsv),
            "size,parameters,mean_ms,peak_bytes,ok,samples_ms\r\n"
            "small,128625408,12.345,1610612736,true,\"[1.5,2]\"\r\n"
            "\"a|b,\"\"c\"\" µ_$\",7,,,false,\r\n");
}

// Spreadsheets run a text that begins like a formula, terminals one that begins with an escape.
TEST(TableTest, CsvTextsAreHarmlessAndComeBackAsTheyWere) {
  const std::vector<std::string> texts = {"=HYPERLINK(\"http://x\")",
                                          "+1",
                                          "-1 %",
                                          "@SUM(1)",
                                          "\t=1",
                                          "\r=1",
                                          "'=1",
                                          "''=1",
                                          "'quoted'",
                                          "'",
                                          "a=b",
                                          "\x1b]0;owned\x07",
                                          "\\x1b",
                                          "\\x5cx1b",
                                          "two\nlines",
                                          "comma, \"quote\"",
                                          "\u202egpj.exe",
                                          "\xff",
                                          "caf\xc3\xa9",
                                          "C:\\xyz",
                                          "-",
                                          "= 1"};
  Table table{.name = "t", .columns = {{.name = "text"}, {.name = "n", .kind = ColumnKind::kReal}}};
  for (const std::string& text : texts) table.add_row({text, -1.5});
  const std::string csv = to_string({"tracestep.test/1", Json::object(), {table}}, Format::kCsv);
  for (const char* raw : {"\x1b", "\x07", "\u202e", "\xff", "\n=", "\n+", "\n-", "\n@", "\n\t",
                          "\"=", "\"+", "\"\t", "\"\r"}) {
    EXPECT_EQ(csv.find(raw), std::string::npos) << raw << " in " << csv;
  }
  const auto rows = parse_csv(csv, "t.csv");
  ASSERT_EQ(rows.size(), texts.size() + 1);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(from_csv_text(rows[i + 1][0]), texts[i]);
    EXPECT_EQ(rows[i + 1][1], "-1.5");
  }
}

TEST(TableTest, ARowOfNothingInOneColumnIsARow) {
  Table table{.name = "t", .columns = {{.name = "x", .kind = ColumnKind::kReal}}};
  for (double x : {1.0, std::nan(""), 2.0}) table.add_row({x});
  const auto rows = parse_csv_rows(to_string({"s", Json::object(), {table}}, Format::kCsv), "t");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[2].cells[0], "");
  EXPECT_FALSE(rows[3].begins_table);
}

TEST(TableTest, DamagedCsvIsNamedByLineAndColumn) {
  const auto refused = [](std::string_view text) {
    return message_of(ErrorCode::kInput, [&] { parse_csv(text, "t.csv"); });
  };
  EXPECT_EQ(refused(std::string_view("a,b\n1,\0\n", 8)), "[t.csv] line 2, column 2: a NUL byte");
  EXPECT_EQ(refused("a,b\xff\n"), "[t.csv] line 1, column 2: bytes that are no UTF-8");
  EXPECT_EQ(refused("a,b\n\"1\n2\",\"3\n4"),
            "[t.csv] line 3, column 2: the quote at its start is not closed");
}

TEST(TableTest, MarksThatMoveOtherCharactersAreShownInEveryFormatForPeople) {
  Table table{.name = "t", .title = "a\u202eb", .columns = {{.name = "c\u2066"}}};
  table.add_row({"d\u202e\x1b"});
  table.notes = {"e\u202e\x1b[2J"};
  for (Format f : {Format::kText, Format::kMarkdown, Format::kLatex, Format::kTypst}) {
    const std::string text = to_string({"s", Json::object(), {table}}, f);
    for (const char* raw : {"\u202e", "\u2066", "\x1b"}) {
      EXPECT_EQ(text.find(raw), std::string::npos) << text;
    }
    EXPECT_NE(text.find("202e"), std::string::npos) << text;
  }
}

TEST(TableTest, JsonHasSchemaEnvironmentAndRawRows) {
  const Json json = Json::parse(to_string(document(), Format::kJson), "out");
  EXPECT_EQ(json.at("schema").as_string(), "tracestep.test/1");
  EXPECT_EQ(json.at("environment").at("threads").as_int(), 2);
  const Json& row = json.at("rows").items()[0];
  EXPECT_EQ(row.at("peak_bytes").as_int(), std::int64_t{3} << 29);
  EXPECT_EQ(row.at("samples_ms").size(), 2u);
  EXPECT_TRUE(json.at("rows").items()[1].at("mean_ms").is_null());
  EXPECT_EQ(json.at("columns").at("mean_ms").at("description").as_string(), "arithmetic mean");
  EXPECT_EQ(json.at("columns").at("peak_bytes").at("unit").as_string(), "bytes");
  EXPECT_EQ(json.find("tables"), nullptr);
}

TEST(TableTest, SeveralTablesAreAlsoKeyedByNameInJson) {
  Document two = document();
  two.tables.push_back(key_value_table("machine", "Machine", two.environment));
  const Json json = Json::parse(to_string(two, Format::kJson), "out");
  EXPECT_EQ(json.at("rows").size(), 2u);
  EXPECT_EQ(json.at("tables").at("times").at("rows"), json.at("rows"));
  EXPECT_EQ(json.at("tables").at("machine").at("rows").items()[0].at("value").as_string(), "2");
  EXPECT_NE(to_string(two, Format::kText).find("\n\nMachine\n\nitem     value\n"),
            std::string::npos);
}

TEST(TableTest, LatexEscapesItsSpecialCharacters) {
  const std::string latex = to_string(document(), Format::kLatex);
  EXPECT_NE(latex.find("\\begin{tabular}{lrrrl}"), std::string::npos);
  EXPECT_NE(latex.find("  a|b,\\textquotedbl{}c\\textquotedbl{} µ\\_\\$ & 7 & -{} & -{} & no \\\\"),
            std::string::npos);
  EXPECT_NE(latex.find("100 \\% of it"), std::string::npos);
}

TEST(TableTest, TypstCellsAreStringLiterals) {
  const std::string typst = to_string(document(), Format::kTypst);
  EXPECT_NE(typst.find("columns: 5,"), std::string::npos);
  EXPECT_NE(typst.find(R"( "a|b,\"c\" µ_$", "7", "-", "-", "no",)"), std::string::npos);
}

TEST(TableTest, ATableWithoutRowsHasNoHeadForPeople) {
  const Table empty{.name = "t", .title = "Peaks", .columns = {{.name = "size"}}};
  Table noted = empty;
  noted.notes = {"nothing fits"};
  for (Format f : {Format::kText, Format::kMarkdown, Format::kLatex, Format::kTypst}) {
    const std::string silent = to_string({"s", Json::object(), {empty}}, f);
    EXPECT_EQ(silent.find("Peaks"), std::string::npos) << silent;
    const std::string text = to_string({"s", Json::object(), {empty, noted}}, f);
    EXPECT_EQ(text.find("size"), std::string::npos) << text;
    EXPECT_NE(text.find("nothing fits"), std::string::npos) << text;
  }
  EXPECT_EQ(to_string({"s", Json::object(), {empty}}, Format::kCsv), "size\r\n");
}

TEST(TableTest, PeopleReadTheWordsOfAColumn) {
  Table table{.name = "t", .columns = {without_run(text_column("status"))}};
  table.add_row({"oom"});
  const Document document{"s", Json::object(), {table}};
  EXPECT_NE(to_string(document, Format::kText).find("does not fit"), std::string::npos);
  EXPECT_EQ(Json::parse(to_string(document, Format::kJson), "").at("rows").items()[0].at("status"),
            Json("oom"));
}

TEST(TableTest, AnEnvironmentIsShownInWordsAndUnits) {
  Json facts = Json::object();
  facts["gpu_memory_bytes"] = std::int64_t{3} << 29;
  facts["date_utc"] = "2026-01-01";
  const Document document{"s", facts, {key_value_table("machine", "Machine", facts)}};
  EXPECT_EQ(to_string(document, Format::kText),
            "Machine\n\nitem        value\n----------  ----------\nGPU memory  1.50 GiB\n"
            "date UTC    2026-01-01\n");
  EXPECT_EQ(to_string(document, Format::kCsv),
            "item,value\r\ngpu_memory_bytes,1610612736\r\ndate_utc,2026-01-01\r\n");
}

TEST(TableTest, ControlCharactersOfAFileDoNotReachACsv) {
  Table table{.name = "t", .columns = {{.name = "a"}}};
  table.add_row({"x\x1b[31m"});
  EXPECT_EQ(to_string({"s", Json::object(), {table}}, Format::kCsv), "a\r\nx\\x1b[31m\r\n");
}

TEST(TableTest, ColumnsForDataOnlyStayOutOfTheFormatsForPeople) {
  Document d{"s", Json::object(), {}};
  Table table{.name = "t", .columns = {{.name = "a"}}};
  table.columns.push_back({.name = "hidden", .data_only = true});
  table.add_row({"line\nbreak \x1b[31m", "x"});
  d.tables.push_back(table);
  for (Format f : {Format::kText, Format::kMarkdown, Format::kLatex, Format::kTypst}) {
    EXPECT_EQ(to_string(d, f).find("hidden"), std::string::npos);
    EXPECT_EQ(to_string(d, f).find('\x1b'), std::string::npos);
  }
  EXPECT_NE(to_string(d, Format::kCsv).find("a,hidden\r\n\"line\nbreak"), std::string::npos);
}

TEST(TableTest, WhatIsNotZeroIsNotShownAsZero) {
  Table table{.name = "p", .columns = {{.name = "p", .kind = ColumnKind::kReal, .digits = 3}}};
  for (double p : {0.0, 0.00004, -0.0002, 0.0006, 0.012}) table.add_row({p});
  const std::string text = to_string({"", Json::object(), {table}}, Format::kCsv);
  EXPECT_NE(text.find("4e-05"), std::string::npos) << text;  // data keep their value
  EXPECT_EQ(to_string({"", Json::object(), {table}}, Format::kText),
            "       p\n--------\n   0.000\n < 0.001\n> -0.001\n   0.001\n   0.012\n");
}

TEST(TableTest, NumbersThatAreNoNumbersAreEmpty) {
  Table table{.name = "t", .columns = {{.name = "x", .kind = ColumnKind::kReal}}};
  table.add_row({std::numeric_limits<double>::quiet_NaN()});
  table.add_row({0.000123456});
  const Document d{"s", Json::object(), {table}};
  EXPECT_EQ(to_string(d, Format::kText), "        x\n---------\n        -\n0.0001235\n");
  EXPECT_EQ(to_string(d, Format::kCsv), "x\r\n\"\"\r\n0.000123456\r\n");
}

TEST(TableTest, UnknownFormatsSuggestAKnownOne) {
  EXPECT_EQ(parse_format("--format", "typst"), Format::kTypst);
  try {
    parse_format("--format", "jsn");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUsage);
    EXPECT_STREQ(e.what(),
                 "[--format] unknown format \"jsn\"; did you mean json? one of text, markdown, "
                 "csv, json, latex, typst");
  }
}

TEST(TableTest, AnOutputFileAppearsWholeAndAFolderIsRefused) {
  const std::filesystem::path folder = testing::TempDir();
  const std::string path = (folder / "tracestep_table_test.json").string();
  write_output(document(), Format::kJson, path);
  EXPECT_EQ(std::filesystem::file_size(path), to_string(document(), Format::kJson).size());
  std::filesystem::remove(path);
  try {
    write_output(document(), Format::kJson, folder.string());
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kOutput);
  }
}

}  // namespace
}  // namespace tracestep
