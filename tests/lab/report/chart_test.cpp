// Charts: what they draw is in the table, at the right place, and named.
#include "lab/report/chart/chart.h"

#include <cmath>
#include <regex>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "lab/report/chart/drawings.h"
#include "lab/report/chart/svg.h"
#include "lab/report/columns.h"

namespace tracestep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

// All matches of the only group of `pattern`.
std::vector<std::string> found(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> out;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) {
    out.push_back((*it)[1]);
  }
  return out;
}

std::vector<double> numbers(const std::string& text, const std::string& pattern) {
  std::vector<double> out;
  for (const std::string& s : found(text, pattern)) out.push_back(std::stod(s));
  return out;
}

Table times() {
  Table table{
      .name = "time",
      .columns = {text_column("size"), text_column("mode"), int_column("context"),
                  real_column("median_ms", "median", "ms", 1),
                  real_column("low_ms", "from", "ms", 1), real_column("high_ms", "to", "ms", 1)}};
  table.add_row({"tiny", "forward", 128, 10.0, 9.0, 12.0});
  table.add_row({"tiny", "step", 128, 40.0, 38.0, 42.0});
  table.add_row({"tiny", "forward", 256, 20.0, 19.0, 21.0});
  table.add_row({"tiny", "step", 256, 80.0, Json(), Json()});
  return table;
}

Chart bars() {
  return {.kind = "bars",
          .title = "Times & more",
          .table = "time",
          .options = Json::Object{
              {"label", Json::Array{"size", "mode"}},
              {"values", Json::Array{"median_ms"}},
              {"where", Json::Object{{"context", 128}}},
              {"range", Json::Object{{"median_ms", Json::Array{"low_ms", "high_ms"}}}}}};
}

Chart lines() {
  return {.kind = "lines",
          .title = "Times",
          .table = "time",
          .options = Json::Object{{"x", "context"},
                                  {"y", Json::Array{"median_ms"}},
                                  {"series", Json::Array{"mode"}},
                                  {"log", "xy"}}};
}

TEST(ChartTest, BarsAreAsLongAsTheirValuesAndHaveTheirIntervals) {
  const std::vector<Table> tables{times()};
  const std::string svg = draw_chart(bars(), tables);
  const std::vector<double> widths =
      numbers(svg, "class=\"f0\" x=.* width=\"([0-9.]+)\" height=\"15\"");
  ASSERT_THAT(widths, SizeIs(2));
  EXPECT_NEAR(widths[1] / widths[0], 4.0, 0.01);
  EXPECT_THAT(
      found(svg, "<title>([^<]*)</title>"),
      ElementsAre("tiny forward: 10 ms (9 ms to 12 ms)", "tiny step: 40 ms (38 ms to 42 ms)"));
  const std::vector<double> from = numbers(svg, "whisker\" x1=\"([0-9.]+)"),
                            to = numbers(svg, "whisker\" .*x2=\"([0-9.]+)");
  ASSERT_THAT(from, SizeIs(2));
  EXPECT_NEAR((to[0] - from[0]) / widths[0], 0.3, 0.01);
  EXPECT_THAT(svg, HasSubstr(">median (ms)</text>"));
  EXPECT_THAT(svg, HasSubstr("aria-label=\"Times &amp; more\""));
}

TEST(ChartTest, AValueStandsAtItsBarAndAWhiskerOnBothSidesOfIt) {
  const std::vector<Table> tables{times()};
  const std::string svg = draw_chart(bars(), tables);
  const std::vector<double> begins = numbers(svg, "class=\"f0\" x=\"([0-9.]+)"),
                            widths = numbers(svg, "class=\"f0\" x=.* width=\"([0-9.]+)\""),
                            labels = numbers(svg, "<text class=\"soft over\" x=\"([0-9.]+)"),
                            from = numbers(svg, "whisker\" x1=\"([0-9.]+)"),
                            to = numbers(svg, "whisker\" .*x2=\"([0-9.]+)");
  ASSERT_THAT(labels, SizeIs(2));
  EXPECT_THAT(numbers(svg, "whisker cap\" x1=\"([0-9.]+)"), SizeIs(4));
  for (std::size_t i = 0; i < 2; ++i) {
    const double end = begins[i] + widths[i];
    EXPECT_NEAR(labels[i], end + 6, 0.2);
    EXPECT_LT(from[i], end);
    EXPECT_GT(to[i], end);
  }
}

TEST(ChartTest, ALineThatAnotherLiesOnIsSeenBesideIt) {
  const auto wide_ones = [](double apart) {
    Table table = times();
    table.rows.clear();
    for (const int context : {128, 256}) {
      table.add_row({"tiny", "step", context, 40.0, Json(), Json()});
      table.add_row({"tiny", "forward", context, 40.0 * apart, Json(), Json()});
      table.add_row({"tiny", "far", context, 400.0, Json(), Json()});
    }
    return found(draw_chart(lines(), std::vector<Table>{table}), "class=\"(line s[0-9] under)\"");
  };
  EXPECT_THAT(wide_ones(1.02), ElementsAre("line s0 under"));
  EXPECT_THAT(wide_ones(2.0), ::testing::IsEmpty());
}

TEST(ChartTest, ALineThatSeveralLieOnIsWiderThanEachOfThem) {
  Table table = times();
  table.rows.clear();
  for (const int context : {128, 256, 512, 1024}) {
    for (const char* mode : {"a", "b", "c", "d"}) {
      // They part in the first point, where one of them is far above.
      const double ms = context == 128 ? 40.0 * (1 + mode[0] - 'a') : 40.0;
      table.add_row({"tiny", mode, context, ms, Json(), Json()});
    }
  }
  const std::string svg = draw_chart(lines(), std::vector<Table>{table});
  EXPECT_THAT(found(svg, "class=\"line s[0-9]([a-z ]*)\""),
              ElementsAre(" under deeper", " under deep", " under", ""));
}

TEST(ChartTest, StepsHaveNoTicksBetweenThem) {
  Table table = times();
  table.rows.clear();
  for (const int step : {1, 2, 3, 4}) table.add_row({"tiny", "step", step, 40.0, Json(), Json()});
  Chart chart = lines();
  chart.options["log"] = "";
  const std::string svg = draw_chart(chart, std::vector<Table>{table});
  EXPECT_THAT(svg, Not(HasSubstr(">1.5<")));
  EXPECT_THAT(svg, HasSubstr(">2<"));
}

TEST(ChartTest, AMedianHasTheIntervalOfItsTable) {
  Table table = times();
  for (Column& column : table.columns) {
    if (column.name == "low_ms") column.name = "interval_low_ms";
    if (column.name == "high_ms") column.name = "interval_high_ms";
  }
  Chart chart = bars();
  chart.options["range"] = Json::object();
  EXPECT_THAT(numbers(draw_chart(chart, std::vector<Table>{table}), "whisker\" x1=\"([0-9.]+)"),
              SizeIs(2));
}

TEST(ChartTest, ACaptionSaysWhatIsDrawn) {
  std::vector<Table> tables{times()};
  tables[0].title = "Every cell";
  EXPECT_EQ(caption_of(bars(), tables), "median (ms): Every cell");
  tables[0].name = "time@small";
  Chart chart = lines();
  chart.table = "time@small";
  EXPECT_EQ(caption_of(chart, tables), "median (ms): Every cell, small");
}

// Rows of two precisions, which the chart does not name.
Table precisions() {
  Table table = times();
  for (const char* key : {"size", "mode"})
    table.columns[*table.index_of(key)].role = ColumnRole::kKey;
  table.columns.insert(table.columns.begin() + 2, data_only(as_key(text_column("precision"))));
  const std::vector<std::vector<Json>> rows = std::exchange(table.rows, {});
  for (const char* precision : {"fp32", "bf16"}) {
    for (std::vector<Json> row : rows) {
      row.insert(row.begin() + 2, Json(precision));
      if (precision[0] == 'b') row[4] = row[4].as_double() * 3;
      table.add_row(std::move(row));
    }
  }
  return table;
}

TEST(ChartTest, RowsThatDifferInAKeyAreBarsAndLinesOfTheirOwn) {
  const std::vector<Table> tables{precisions()};
  Chart chart = bars();
  chart.options["range"] = Json::Object{};
  EXPECT_THAT(found(draw_chart(chart, tables), "<title>([^<]*)</title>"),
              ElementsAre("tiny forward fp32: 10 ms", "tiny step fp32: 40 ms",
                          "tiny forward bf16: 30 ms", "tiny step bf16: 120 ms"));
  const std::vector<std::string> names =
      found(draw_chart(lines(), tables), "<text class=\"name\"[^>]*>([a-z]+ [a-z0-9]+)<");
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("forward fp32", "forward bf16", "step fp32",
                                                     "step bf16"));
}

TEST(ChartTest, RowsThatNothingTellsApartAreAnErrorAndNeverASum) {
  for (Chart chart : {bars(), lines()}) {
    std::vector<Table> tables{times()};
    tables[0].rows.push_back(std::vector<Json>(tables[0].rows[0]));
    EXPECT_THROW(draw_chart(chart, tables), Error) << chart.kind;
  }
  Table lists{.name = "starts", .columns = {int_column("warmup"), reals_column("steps_ms")}};
  lists.add_row({0, Json::Array{3.0, 1.0}});
  Chart chart{.kind = "lines",
              .table = "starts",
              .options = Json::Object{{"list", "steps_ms"}, {"series", Json::Array{"warmup"}}}};
  EXPECT_NE(draw_chart(chart, std::vector<Table>{lists}), "");
  lists.add_row({0, Json::Array{3.0, 1.0}});
  EXPECT_THROW(draw_chart(chart, std::vector<Table>{lists}), Error);
}

TEST(ChartTest, ABarAddsUpOnlyWhatItSaysThatItAddsUp) {
  Table table{.name = "t",
              .columns = {as_key(text_column("op")), as_key(text_column("component")),
                          real_column("ms", "", "ms", 1)}};
  table.add_row({"matmul", "head", 1.0});
  table.add_row({"matmul", "attn", 2.0});
  Chart chart{.kind = "bars",
              .table = "t",
              .options = Json::Object{{"label", Json::Array{"op"}}, {"values", Json::Array{"ms"}}}};
  EXPECT_THAT(found(draw_chart(chart, std::vector<Table>{table}), "<title>([^<]*)</title>"),
              ElementsAre("matmul head: 1 ms", "matmul attn: 2 ms"));
  chart.options["over"] = Json::Array{"component"};
  EXPECT_THAT(found(draw_chart(chart, std::vector<Table>{table}), "<title>([^<]*)</title>"),
              ElementsAre("matmul: 3 ms"));
  table.add_row({"matmul", "attn", 2.0});
  EXPECT_THROW(draw_chart(chart, std::vector<Table>{table}), Error);
}

TEST(ChartTest, SegmentsAddUpAndOnlyTheLongestBarsAreShown) {
  Table table{
      .name = "t",
      .columns = {text_column("part"), text_column("phase"), real_column("ms", "", "ms", 1)}};
  table.add_row({"a", "backward", 6.0});
  table.add_row({"a", "forward", 4.0});
  table.add_row({"b", "forward", 3.0});
  table.add_row({"c", "forward", 2.0});
  const Chart chart{.kind = "bars",
                    .title = "Parts",
                    .table = "t",
                    .options = Json::Object{{"label", Json::Array{"part"}},
                                            {"values", Json::Array{"ms"}},
                                            {"stack", "phase"},
                                            {"top", 1}}};
  const std::vector<Table> tables{table};
  const std::string svg = draw_chart(chart, tables);
  // Forward comes first, whichever row does.
  EXPECT_THAT(found(svg, "<title>([^<]*)</title>"),
              ElementsAre("a\nforward: 4 ms", "a\nbackward: 6 ms", "2 more\nforward: 5 ms"));
  EXPECT_THAT(svg, HasSubstr(">10 ms</text>"));
}

TEST(ChartTest, LinesHaveAPointARowAndTheMeasuredValuesAsTicks) {
  const std::vector<Table> tables{times()};
  const std::string svg = draw_chart(lines(), tables);
  EXPECT_THAT(found(svg, "<title>([^<]*)</title>"),
              ElementsAre("forward\ncontext 128: 10 ms", "forward\ncontext 256: 20 ms",
                          "step\ncontext 128: 40 ms", "step\ncontext 256: 80 ms"));
  // Twice the time at twice the context: parallel on logarithmic axes.
  const std::vector<double> ys = numbers(svg, "<circle .* cy=\"([0-9.]+)\"");
  ASSERT_THAT(ys, SizeIs(4));
  EXPECT_NEAR(ys[0] - ys[1], ys[2] - ys[3], 0.2);
  EXPECT_THAT(svg, HasSubstr(">128</text>"));
  EXPECT_THAT(svg, HasSubstr(">256</text>"));
}

TEST(ChartTest, ContextsAreTicksInFullAndSeveralColumnsShareTheirUnit) {
  std::vector<Table> tables{times()};
  tables[0].rows[2][2] = 16384;
  EXPECT_THAT(draw_chart(lines(), tables), HasSubstr(">16384</text>"));
  Chart parts = bars();
  parts.options["values"] = Json::Array{"median_ms", "low_ms"};
  EXPECT_THAT(draw_chart(parts, tables), HasSubstr(">ms</text>"));
}

TEST(ChartTest, AValueWithoutAPlaceOnALogarithmicAxisIsLeftOut) {
  std::vector<Table> tables{times()};
  tables[0].rows[0][3] = 0.0;
  EXPECT_THAT(found(draw_chart(lines(), tables), "<title>([^<]*)</title>"), SizeIs(3));
}

Table stack() {
  Table table{.name = "stack",
              .columns = {text_column("phase"), bytes_column("parameter"),
                          bytes_column("activation"), bytes_column("total_bytes")}};
  table.add_row({"forward", 1024, 0, 1024});
  table.add_row({"forward", 1024, 3072, 4096});
  table.add_row({"backward", 1024, 1024, 2048});
  return table;
}

TEST(ChartTest, ATimelineStacksItsCategoriesAndMarksThePeak) {
  const std::vector<Table> tables{stack()};
  const std::string svg =
      draw_chart({.kind = "timeline", .title = "Bytes", .table = "stack"}, tables);
  EXPECT_THAT(svg, HasSubstr("viewBox=\"0 0 3 1000\""));
  EXPECT_THAT(svg, HasSubstr(">peak 4.00 KiB</text>"));
  // The sum, painted first, reaches 4096 of 1.04 × 4096 bytes at the second kernel.
  EXPECT_THAT(found(svg, "class=\"f1\" d=\"([^\"]*)\""),
              ElementsAre("M0 1000V760h1V38h1V519h1V1000Z"));
  EXPECT_THAT(found(svg, "class=\"f0\" d=\"([^\"]*)\""), ElementsAre("M0 1000V760h3V1000Z"));
  EXPECT_THAT(found(svg, "divider\" x1=\"([0-9.]+)"), ElementsAre("2"));
}

// Each kernel has the same width, so the axis counts kernels whatever their times are.
TEST(ChartTest, ATimelineCountsKernelsAlsoWhereTheirTimesAreKnown) {
  Table table = stack();
  table.columns.push_back(real_column("time_ms", "at", "ms", 3));
  table.rows.clear();
  for (int i = 0; i < 100; ++i) {  // the second half ten times as slow
    table.add_row({"forward", 1024, 0, 1024, i < 50 ? 0.1 * i : i - 45.0});
  }
  const std::vector<Table> tables{table};
  const std::string svg =
      draw_chart({.kind = "timeline", .title = "Bytes", .table = "stack"}, tables, {.width = 582});
  EXPECT_THAT(svg, HasSubstr(">kernel, in the order of the program</text>"));
  EXPECT_THAT(found(svg, "<text class=\"soft\" x=\"([0-9.]+)\"[^>]*>20<"), ElementsAre("166"));
  EXPECT_THAT(found(svg, "<text class=\"soft\" x=\"([0-9.]+)\"[^>]*>80<"), ElementsAre("466"));
  EXPECT_THAT(svg, Not(HasSubstr(">activation</text>"))) << "which nobody can see";
}

TEST(ChartTest, NamesStandAtTheEndsOfLinesAndEqualLinesShareOne) {
  std::vector<Table> tables{times()};
  const std::string svg = draw_chart(lines(), tables);
  const std::vector<double> ends = numbers(svg, "<circle class=\"f[01]\" cx=\"([0-9.]+)\"");
  const double right = *std::ranges::max_element(ends);
  for (double x : numbers(svg, "<text class=\"name\" x=\"([0-9.]+)\"[^>]*>(?:forward|step)<")) {
    EXPECT_GT(x, right);
  }
  for (const std::size_t row : {1u, 3u}) tables[0].rows[row][3] = tables[0].rows[row - 1][3];
  EXPECT_THAT(found(draw_chart(lines(), tables), "<text class=\"name\"[^>]*>(forward.*)<"),
              ::testing::IsEmpty())
      << "a single line needs no name";
  EXPECT_THAT(
      found(draw_chart(lines(), tables), "<title>([^<]*)</title>"),
      ElementsAre("forward, step\ncontext 128: 10 ms", "forward, step\ncontext 256: 20 ms"));
}

TEST(ChartTest, APlotOfBytesReachesTheNextCardThatHoldsThem) {
  Table table{.name = "peaks", .columns = {int_column("context"), bytes_column("peak")}};
  table.add_row({128, std::int64_t{20} << 30});
  table.add_row({256, std::int64_t{30} << 30});
  const Chart chart{.kind = "lines",
                    .title = "Peaks",
                    .table = "peaks",
                    .options = Json::Object{{"x", "context"}, {"y", "peak"}, {"cards", true}}};
  const std::vector<Table> tables{table};
  EXPECT_THAT(found(draw_chart(chart, tables), ">(card of [^<]*)<"),
              ElementsAre("card of 24 GiB", "card of 40 GiB"));
}

TEST(ChartTest, OfManyKernelsThePeakIsKept) {
  Table table = stack();
  table.rows.clear();
  for (std::int64_t i = 0; i < 20000; ++i) {
    const std::int64_t bytes = i == 12345 ? 1 << 20 : 1024;
    table.add_row({"forward", 1024, bytes - 1024, bytes});
  }
  const std::vector<Table> tables{table};
  const std::string svg =
      draw_chart({.kind = "timeline", .title = "Bytes", .table = "stack"}, tables);
  EXPECT_THAT(svg, HasSubstr(">peak 1.00 MiB</text>"));
  EXPECT_LT(svg.size(), 20000u);
}

TEST(ChartTest, ARooflineHasTheCeilingsOfTheDtypesThatItNames) {
  Table matrix{.name = "matrix"};
  for (const char* text : {"component", "phase", "op"}) matrix.columns.push_back(text_column(text));
  for (const char* number : {"flops", "bytes", "ms"}) {
    matrix.columns.push_back(real_column(number, "", "", 1));
  }
  matrix.add_row({"ffn", "forward", "matmul", 1e9, 1e7, 0.5});
  Table ceilings{.name = "ceilings"};
  ceilings.columns = {text_column("ceiling"), real_column("value", "", "", 1), text_column("unit"),
                      text_column("dtype")};
  ceilings.add_row({"bandwidth", 4000.0, "GB/s", Json()});
  ceilings.add_row({"arithmetic", 20000.0, "GFLOP/s", Json()});
  ceilings.add_row({"products, f32", 50000.0, "GFLOP/s", "f32"});
  ceilings.add_row({"products, bf16", 800000.0, "GFLOP/s", "bf16"});
  const std::vector<Table> tables{matrix, ceilings};
  Chart chart{.kind = "roofline",
              .title = "Roofline",
              .table = "matrix",
              .options = Json::Object{
                  {"ceilings", "ceilings"}, {"dtypes", Json::Array{"f32"}}, {"series", "phase"}}};
  EXPECT_THAT(draw_chart(chart, tables), HasSubstr("products, f32"));
  EXPECT_THAT(draw_chart(chart, tables), HasSubstr("arithmetic"));
  EXPECT_THAT(draw_chart(chart, tables), Not(HasSubstr("products, bf16")));
  chart.options["dtypes"] = Json::Array{"bf16"};
  EXPECT_THAT(draw_chart(chart, tables), HasSubstr("products, bf16"));
}

TEST(ChartTest, NamesOfKernelsLieOnNoOtherWords) {
  Table matrix{.name = "matrix"};
  for (const char* text : {"component", "phase", "op"}) matrix.columns.push_back(text_column(text));
  for (const char* number : {"flops", "bytes", "ms"}) {
    matrix.columns.push_back(real_column(number, "", "", 1));
  }
  for (const char* component : {"w1", "w2", "w3"}) {  // all of them at the ceiling
    matrix.add_row({component, "forward", "matmul", 5e11, 1e9, 10.0});
  }
  Table ceilings{.name = "ceilings"};
  ceilings.columns = {text_column("ceiling"), real_column("value", "", "", 1), text_column("unit"),
                      text_column("dtype")};
  ceilings.add_row({"bandwidth", 4000.0, "GB/s", Json()});
  ceilings.add_row({"products, f32", 50000.0, "GFLOP/s", "f32"});
  const Chart chart{
      .kind = "roofline",
      .title = "Roofline",
      .table = "matrix",
      .options = Json::Object{
          {"ceilings", "ceilings"}, {"dtypes", Json::Array{"f32"}}, {"series", "phase"}}};
  const std::string svg = draw_chart(chart, std::vector<Table>{matrix, ceilings});
  std::vector<double> heights =
      numbers(svg, "<text class=\"over\"[^>]* y=\"([0-9.]+)\"[^>]*>(?:matmul|50)");
  ASSERT_GE(heights.size(), 3u) << svg;
  std::ranges::sort(heights);
  for (std::size_t i = 1; i < heights.size(); ++i) EXPECT_GE(heights[i] - heights[i - 1], 13.9);
}

TEST(ChartTest, RowsAreChosenByAValueOrAListOfThem) {
  const std::vector<Table> tables{times()};
  Chart chart = lines();
  for (const Json& wanted : {Json("step"), Json(Json::Array{"step", "inference"})}) {
    chart.options["where"] = Json::Object{{"mode", wanted}};
    EXPECT_THAT(found(draw_chart(chart, tables), "<title>([^<]*)</title>"),
                ElementsAre("step\ncontext 128: 40 ms", "step\ncontext 256: 80 ms"));
  }
}

TEST(ChartTest, NothingToDrawIsNoDrawing) {
  for (const char* kind : {"lines", "bars", "roofline", "timeline"}) {
    Chart chart = kind == std::string("bars") ? bars() : lines();
    chart.kind = kind;
    EXPECT_EQ(draw_chart(chart, {}), "") << kind;
  }
}

TEST(ChartTest, NothingIsDrawnOutsideOfANarrowDrawing) {
  const std::vector<Table> tables{times(), stack()};
  for (Chart chart :
       {bars(), lines(), Chart{.kind = "timeline", .title = "Bytes", .table = "stack"}}) {
    const std::string svg = draw_chart(chart, tables, {.width = kNarrowChart});
    for (double x : numbers(svg, " c?x[12]?=\"(-?[0-9.]+)\"")) {
      EXPECT_GE(x, 0) << chart.kind;
      EXPECT_LE(x, kNarrowChart) << chart.kind;
    }
  }
}

TEST(ChartTest, APictureBringsItsStyleAndItsTitle) {
  const std::vector<Table> tables{times()};
  const std::string picture = as_picture(draw_chart(bars(), tables), bars().title);
  EXPECT_THAT(picture, HasSubstr("<style>"));
  EXPECT_THAT(picture, HasSubstr(">Times &amp; more</text>"));
  EXPECT_THAT(picture, Not(HasSubstr("var(")));  // which librsvg does not know
}

TEST(ChartTest, LongNamesKeepWhatTellsThemApart) {
  const std::string start =
      "void tracestep::cuda::(anonymous namespace)::elementwise_kernel<float, ";
  const std::vector<std::string> names = {start + "tracestep::Add>(Arguments)",
                                          start + "tracestep::Mul>(Arguments)", "matmul"};
  const std::vector<std::string> shown = short_names(names);
  EXPECT_THAT(shown[0], HasSubstr("elementwise_ke…"));
  EXPECT_THAT(shown[0], HasSubstr("Add>("));
  EXPECT_THAT(shown[1], HasSubstr("Mul>("));
  EXPECT_EQ(shown[2], "matmul");
}

TEST(ChartTest, NamesThatDifferInTheMiddleAndFarBehindStayApart) {
  const std::string start = "sm80_xmma_gemm_f32f32_f32f32_f32_",
                    end = "_ffma_aligna4_alignc4_execute";
  std::vector<std::string> names;
  for (const char* way : {"nn_n", "nt_n", "tn_n"}) {
    for (const char* tile : {"64x64x8", "64x128x8", "128x128x8"}) {
      names.push_back(start + way + "_tilesize" + tile + "_stage3_warpsize2x2x1" + end);
    }
  }
  names.push_back(start + "nn_n_tilesize128x128x8_stage3_warpsize4x4x1" + end);
  const std::vector<std::string> shown = short_names(names);
  EXPECT_THAT(shown[5], HasSubstr("sm80_xmma_gemm…nt_n_tilesize128x128"));
  EXPECT_EQ(std::set(shown.begin(), shown.end()).size(), names.size());
}

}  // namespace
}  // namespace tracestep
