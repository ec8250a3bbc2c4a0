// The replay of published tables: what each is found to be, and that altered figures change it.
#include "course/published.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "lab/predict/devices.h"
#include "nn/config.h"
#include "spec/fields.h"
#include "support/paths.h"
#include "support/tables.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using A = Agreement;

// Rows of ours: an imaginary device on which every cell takes its FLOPs at 40 TFLOP/s.
ReplayInput steady_rows() {
  ReplayInput out;
  for (const char* size : {"small", "medium", "large", "xl", "2.7B"}) {
    for (int context : {128, 256, 512, 1024}) {
      for (const char* precision : {"fp32", "bf16"}) {
        for (const char* mode : {"forward", "forward-backward", "step"}) {
          const double passes = std::string(mode) == "forward" ? 1 : 3;
          const double speed = std::string(precision) == "fp32" ? 40e9 : 160e9;  // per ms
          Json row = Json::object();
          row["size"] = size;
          row["context"] = context;
          row["batch"] = 4;
          row["vocab"] = 10000;
          row["mode"] = mode;
          row["precision"] = precision;
          row["ops"] = "primitive";
          row["status"] = "ok";
          row["median_ms"] = passes * forward_flops(preset(size), 4, context) / speed;
          out.rows.emplace_back(std::move(row));
        }
      }
    }
  }
  return out;
}

struct Find {
  const char *study, *table, *size, *pass;
  std::int64_t context;
  const char* precision = "fp32";
};

class PublishedTest : public ::testing::Test {
 protected:
  PublishedTime& cell(const Find& f) {
    for (PublishedTime& t : published_.times) {
      if (t.study == f.study && t.table == f.table && t.size == f.size && t.pass == f.pass &&
          t.context == f.context && t.precision == f.precision) {
        return t;
      }
    }
    throw Error(ErrorCode::kFailed, "test", std::string("no cell ") + f.table + " " + f.size);
  }

  ReplayVerdict verdict(const Find& f) {
    const std::vector<TimeReplay> judged = judge_times(published_, ours_);
    return judged[static_cast<std::size_t>(&cell(f) - published_.times.data())].verdict;
  }

  Published published_ = published_tables();
  std::size_t first_ = 0;
  ReplayInput ours_ = steady_rows();
};

TEST_F(PublishedTest, TheTablesHaveTheCellsThatWerePrinted) {
  EXPECT_EQ(cell({"B", "5 warm-up steps", "large", "forward+backward", 256}).ms, 207.6);
  EXPECT_EQ(cell({"B", "5 warm-up steps", "large", "forward+backward", 256}).std_ms, 1.967);
  EXPECT_EQ(cell({"C", "all sizes", "2.7B", "forward+backward", 128}).ms, 672.3);
  EXPECT_TRUE(cell({"C", "contexts", "xl", "forward", 512}).is_oom);
  EXPECT_EQ(cell({"E", "fp32", "large", "backward", 1024}).ms, 1412.987);
  EXPECT_EQ(cell({"D", "main table", "xl", "backward", 0}).warmup, 0);
  EXPECT_EQ(published_.attention.size(), 60u);
}

// Cells as they were printed, or with another time, and what they are found to be.
TEST_F(PublishedTest, EachFaultOfATimeIsFoundWhereItIsAndWhereItIsPlanted) {
  const Find paced{"C", "contexts", "large", "forward", 512},
      issued{"C", "host ranges", "small", "forward", 1024},
      behind{"C", "host ranges", "small", "backward", 1024},
      low{"B", "bf16 beside fp32", "2.7B", "forward", 128, "bf16"},
      spilled{"D", "main table", "xl", "backward", 0},
      both{"C", "all sizes", "2.7B", "forward+backward", 128};
  constexpr double kPrinted = 0;
  struct {
    Find cell;
    double ms;
    const char* verdict;
  } const cases[] = {
      {paced, kPrinted, "agree same_pace"},
      {paced, 2 * cell(paced).ms, "suspicious unexplained"},
      {paced, 1000 * cell(paced).ms, "explainable unit"},
      // 4.1 TFLOP in 250 ms are 16.4 TFLOP/s of 19.5; in 200 ms they are 20.5.
      {paced, 250, "agree same_pace"},
      {paced, 200, "suspicious faster_than_the_roof"},
      // A time that does not grow with the layers' work is the host's.
      {{"C", "all sizes", "small", "forward", 128}, kPrinted, "explainable launch_bound"},
      {{"C", "all sizes", "medium", "forward", 128}, kPrinted, "explainable launch_bound"},
      {{"C", "all sizes", "large", "forward", 128}, kPrinted, "explainable launch_bound"},
      {{"C", "all sizes", "2.7B", "forward", 128}, kPrinted, "agree same_pace"},
      {{"B", "no warm-up", "small", "forward", 128}, kPrinted, "explainable no_warmup"},
      {{"D", "main table", "small", "forward", 0}, kPrinted, "explainable no_warmup"},
      {{"B", "under the profiler", "small", "forward", 128}, kPrinted, "explainable profiler"},
      {spilled, kPrinted, "suspicious host_memory"},
      {spilled, 400, "explainable no_warmup"},
      {low, kPrinted, "suspicious slower_in_low_precision"},
      {low, 160, "explainable profiler"},  // as its fp32 partner under the profiler
      // Forward alone is 219 ms.
      {both, kPrinted, "agree same_pace"},
      {both, 300, "suspicious backward_shorter_than_forward"},
      {both, 219, "suspicious sum_below_its_part"},
      // 103.9 is what forward is when the study waits.
      {issued, kPrinted, "suspicious missing_synchronization"},
      {behind, kPrinted, "suspicious missing_synchronization"},
      {issued, 103.9, "explainable host_range"},
  };
  for (const auto& c : cases) {
    const double printed = cell(c.cell).ms;
    if (c.ms != kPrinted) cell(c.cell).ms = c.ms;
    const ReplayVerdict found = verdict(c.cell);
    EXPECT_EQ(fmt::format("{} {}", name_of(found.agreement), found.code), c.verdict)
        << c.cell.table << " " << c.cell.size << " " << c.ms << ": " << found.text;
    cell(c.cell).ms = printed;
  }
  cell(issued).ms = 103.9;
  EXPECT_EQ(verdict(behind).agreement, A::kExplainable) << "where its forward waits";
}

// A value of the field that is neither the usual one nor the row's own.
Json other_value(const RunField& field, const Json* own) {
  std::vector<std::string> texts = field.choices;
  texts.insert(texts.end(), field.examples.begin(), field.examples.end());
  texts.insert(texts.end(), {"3", "16"});
  for (const std::string& text : texts) {
    RunSpec run;
    try {
      field.parse(field.where(), text)(run);
    } catch (const Error&) {
      continue;
    }
    Json out = field.value(run);
    if (out != field.value(RunSpec()) && (own == nullptr || out != *own)) return out;
  }
  return Json(true);
}

TEST_F(PublishedTest, ARowOfAnotherRunStandsBesideNoCell) {
  const Find f{"C", "contexts", "large", "forward", 512};
  const auto our_ms = [&] {
    return judge_times(published_,
                       ours_)[static_cast<std::size_t>(&cell(f) - published_.times.data())]
        .our_ms;
  };
  const double plain_ms = our_ms();
  ASSERT_GT(plain_ms, 0);
  std::size_t fields = 0;
  for (const RunField& field : run_fields()) {
    if (!tells_apart(field) || field.name == "size") continue;
    Json row = Json::Object{{"size", "large"},    {"context", 512},    {"batch", 4},
                            {"vocab", 10000},     {"mode", "forward"}, {"precision", "fp32"},
                            {"ops", "primitive"}, {"status", "ok"},    {"median_ms", 1.0}};
    row[field.name] = other_value(field, row.find(field.name));
    ours_.rows.insert(ours_.rows.begin(), ResultRow(std::move(row)));
    EXPECT_EQ(our_ms(), plain_ms) << field.name;
    ours_.rows.erase(ours_.rows.begin());
    ++fields;
  }
  EXPECT_GT(fields, 30u);
}

TEST_F(PublishedTest, ACellInTwoTablesOfAStudyIsCountedAsComparedAgain) {
  const ReplayInput ours = steady_rows();
  const std::vector<TimeReplay> judged = judge_times(published_, ours);
  std::set<std::string> cells;
  std::int64_t compared = 0, again = 0;
  for (std::size_t i = 0; i < judged.size(); ++i) {
    if (!judged[i].is_compared) continue;
    const PublishedTime& t = published_.times[i];
    ++compared;
    cells.insert(fmt::format("{} {} {} {} {}", t.study, t.size, t.context, t.pass, t.precision));
  }
  const Table table = replay_published(published_, ours).front();
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    again += testing::cell(table, row, "compared_again").as_int();
  }
  EXPECT_GT(again, 0);
  EXPECT_EQ(again, compared - std::ssize(cells));
}

TEST_F(PublishedTest, MeasuredCeilingsStandBesideThePublishedOnes) {
  Table ceilings{.name = "ceilings", .columns = {{.name = "ceiling"}, {.name = "dtype"}}};
  for (const char* dtype : {"f32", "bf16", "f64"}) ceilings.add_row({"products", dtype});
  ceilings.add_row({"bandwidth", Json()});
  Table other = ceilings;
  add_published_peaks("a device of nobody", other);
  EXPECT_EQ(other.columns.size(), 2u);
  add_published_peaks("NVIDIA H200", ceilings);
  const PublishedDevice& h200 = *known_device("NVIDIA H200");
  ASSERT_EQ(ceilings.columns.size(), 3u);
  EXPECT_EQ(ceilings.rows[0][2], Json(1e3 * h200.fp32_tflops));
  EXPECT_EQ(ceilings.rows[1][2], Json(1e3 * h200.bf16_tflops));
  EXPECT_TRUE(ceilings.rows[2][2].is_null());
  EXPECT_EQ(ceilings.rows[3][2], Json(h200.bandwidth_gb_s));
}

TEST_F(PublishedTest, AnOutOfMemoryIsExplainedByWhatWasAlive) {
  EXPECT_EQ(verdict({"C", "contexts", "xl", "forward", 512}).code, "two_graphs");
  EXPECT_EQ(verdict({"C", "contexts", "xl", "forward", 1024}).agreement, A::kAgree);
  EXPECT_EQ(verdict({"B", "5 warm-up steps", "xl", "forward+backward", 128}).code, "held_states");
  PublishedTime& small = cell({"C", "contexts", "small", "forward", 128});
  small.is_oom = true;
  EXPECT_EQ(verdict({"C", "contexts", "small", "forward", 128}).agreement, A::kSuspicious);
}

TEST_F(PublishedTest, WithoutRowsOfOursOnlyPredictionsAndContradictionsAreFound) {
  ours_ = {};
  EXPECT_EQ(verdict({"C", "contexts", "large", "forward", 512}).code, "predicted");
  EXPECT_EQ(verdict({"C", "host ranges", "small", "forward", 1024}).agreement, A::kSuspicious);
  EXPECT_EQ(verdict({"A", "fp32", "small", "forward+backward", 0}).agreement, A::kNotCompared);
}

TEST_F(PublishedTest, APaceThatThePeaksOfBothDevicesForbidIsSuspicious) {
  ours_.gpu = "NVIDIA H200";
  const Find f{"C", "contexts", "large", "forward", 512};
  EXPECT_EQ(verdict(f).agreement, A::kAgree) << verdict(f).text;
  for (PublishedTime& t : published_.times) {
    if (t.study == "C") t.ms *= 1000;
  }
  EXPECT_EQ(verdict(f).code, "off_the_peaks");
}

// --- memory -------------------------------------------------------------------------------------

std::string cell_text(const Table& table, std::size_t row, std::string_view column) {
  const Json& value = testing::cell(table, row, column);
  return value.is_string() ? value.as_string() : value.dump();
}

bool has(const Table& table, std::string_view column, std::string_view text) {
  return std::ranges::any_of(table.rows, [at = table.index_of(column).value(), text](auto& row) {
    return row[at] == Json(text);
  });
}

TEST_F(PublishedTest, OneAccountingGivesEachTableOfStatuses) {
  const auto matched = [](const Table& t, std::string study, std::string pass, std::string form) {
    for (std::size_t r = 0; r < t.rows.size(); ++r) {
      if (cell_text(t, r, "study") == study && cell_text(t, r, "pass") == pass &&
          cell_text(t, r, "accounting") == form) {
        return cell_text(t, r, "matched") + "/" + cell_text(t, r, "cells");
      }
    }
    return std::string("no row");
  };
  const Table table = status_replay_table(published_);
  EXPECT_EQ(matched(table, "B", "forward", "two graphs"), "20/20");
  EXPECT_EQ(matched(table, "B", "forward", "one graph"), "16/20");
  EXPECT_EQ(matched(table, "B", "forward+backward", "AdamW, gradients kept"), "20/20");
  EXPECT_EQ(matched(table, "B", "forward+backward", "one graph, gradients kept"), "16/20");
  EXPECT_EQ(matched(table, "C", "forward", "two graphs"), "20/20");
  EXPECT_EQ(matched(table, "C", "backward", "one graph, gradients set to none"), "14/14");
  EXPECT_EQ(matched(table, "C", "backward", "one graph, gradients kept"), "13/14");
}

TEST_F(PublishedTest, APeakFollowsTheFormOfItsLabelOrOfAnother) {
  const auto verdict_of = [&](const PublishedPeak& peak) {
    Published one = published_;
    one.peaks = {peak};
    const Table table = peak_replay_table(one, {});
    return cell_text(table, 0, "verdict") + " " + cell_text(table, 0, "reason");
  };
  EXPECT_EQ(verdict_of({"B", "peaks", "forward", "2.7B", "fp32", 512, 44.17}),
            "agree GiB: one graph");
  EXPECT_EQ(verdict_of({"A", "peaks", "forward", "2.7B", "fp32", 256, 35.0}),
            "explainable GiB: two graphs");
  EXPECT_EQ(verdict_of({"E", "peaks", "step", "2.7B", "fp32", 512, 70}),
            "explainable GB of 10^9 bytes: AdamW, gradients set to none");
  EXPECT_TRUE(
      verdict_of({"B", "peaks", "forward", "2.7B", "fp32", 512, 30}).starts_with("suspicious"));
  const std::string autocast = verdict_of({"B", "peaks", "forward", "2.7B", "bf16", 256, 27.51});
  EXPECT_TRUE(autocast.starts_with("agree GiB: our program under autocast")) << autocast;
  EXPECT_TRUE(
      verdict_of({"B", "peaks", "forward", "2.7B", "bf16", 256, 14}).starts_with("suspicious"));
}

TEST_F(PublishedTest, SavedSquaresTellTheImplementation) {
  const auto reason = [&](std::size_t index) {
    Published altered = published_;
    const Table table = attention_replay_table(altered, {});
    return cell_text(table, index, "memory_verdict") + ": " +
           cell_text(table, index, "memory_reason");
  };
  // The longest context of width 16 of each study.
  EXPECT_TRUE(reason(4).starts_with("agree: 2 tensors of B·T²")) << reason(4);
  EXPECT_TRUE(reason(24).starts_with("agree: 3 tensors of B·T², 6 of B·T·D, a mask")) << reason(24);
  EXPECT_TRUE(reason(44).starts_with("agree: 1 tensors of B·T²")) << reason(44);
  published_.attention[44].before_backward_mib += 4096;  // half a tensor
  EXPECT_TRUE(reason(44).starts_with("suspicious")) << reason(44);
}

TEST_F(PublishedTest, AttentionOfOnePaceAgreesUntilAFigureIsAltered) {
  // Ours: naive forms that take B's times by three; a flash row that must not be looked at.
  ReplayInput ours;
  for (const PublishedAttention& a : published_.attention) {
    if (a.study != "B") continue;
    for (const char* form : {"naive", "flash"}) {
      Json row = Json::object();
      row["batch"] = 8;
      row["width"] = a.width;
      row["context"] = a.context;
      row["attention"] = form;
      row["saved"] = "scores+exp+weights";
      row["precision"] = "fp32";
      row["status"] = "ok";
      row["forward_median_ms"] = form[0] == 'n' ? a.forward_ms / 3 : 0.01;
      row["backward_median_ms"] = a.backward_ms / 3;
      ours.rows.emplace_back(std::move(row));
    }
  }
  const auto verdict_of = [&](std::size_t index) {
    return cell_text(attention_replay_table(published_, ours), index, "verdict");
  };
  EXPECT_EQ(verdict_of(24), "agree");  // B, width 16, context 16384: 105.4 and 290.6 ms
  published_.attention[24].forward_ms = 200;
  EXPECT_EQ(verdict_of(24), "suspicious");
  published_.attention[24].forward_ms = 300;  // above backward
  EXPECT_EQ(verdict_of(24), "suspicious");
  published_.attention[24].forward_ms = 15;  // 34 GB in less than 2.04 TB/s move
  EXPECT_EQ(verdict_of(24), "suspicious");
}

TEST_F(PublishedTest, SharesAddUpToNoMoreThanTheWhole) {
  EXPECT_FALSE(has(kernel_replay_table(published_), "code", "more_than_all"));
  published_.kernels.back().percent += 10;
  EXPECT_TRUE(has(kernel_replay_table(published_), "code", "more_than_all"));
}

// The code of the first row whose cells are these.
std::string code_of(const Table& table, const std::map<std::string, std::string>& cells) {
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    if (std::ranges::all_of(
            cells, [&](const auto& c) { return cell_text(table, r, c.first) == c.second; })) {
      return cell_text(table, r, "code");
    }
  }
  return "no row";
}

TEST_F(PublishedTest, CountsOfKernelsAreOfSeveralPasses) {
  const auto code = [&](const char* study, const char* size, const char* context) {
    return code_of(
        kernel_replay_table(published_),
        {{"study", study}, {"table", "largest kernel"}, {"size", size}, {"context", context}});
  };
  EXPECT_EQ(code("C", "medium", "256"), "several_passes");
  for (PublishedKernel& k : published_.kernels) {
    if (k.study == "C" && k.count > 0) k.count += 1;  // 149, 241, 97, 577 and 677: no divisor
  }
  EXPECT_EQ(code("C", "small", "512"), "launches");      // 97 of 109 in one pass
  EXPECT_EQ(code("C", "medium", "256"), "unexplained");  // 677 of 217
}

TEST_F(PublishedTest, ASumOfCountsNamesTheModel) {
  const auto code = [&] {
    return code_of(kernel_replay_table(published_), {{"study", "E"}, {"table", "largest kernel"}});
  };
  EXPECT_EQ(code(), "model");
  for (PublishedKernel& k : published_.kernels) {
    if (k.study == "E" && k.count > 0) k.count += 1;
  }
  EXPECT_EQ(code(), "not_compared");
}

TEST_F(PublishedTest, AKernelIsNoLargerThanItsKind) {
  const auto code = [&] { return cell_text(kernel_replay_table(published_), first_, "verdict"); };
  for (std::size_t i = 0; i < published_.kernels.size(); ++i) {
    const PublishedKernel& k = published_.kernels[i];
    if (k.study == "B" && k.pass == "inference" && k.size == "small" && k.context == 128) {
      first_ = i;
      break;
    }
  }
  EXPECT_EQ(code(), "not compared");
  published_.kernels[first_].percent = 91;  // all products have 88
  EXPECT_EQ(code(), "suspicious");
}

TEST_F(PublishedTest, AllocationsAreThoseThatTheProgramPredicts) {
  const auto code = [&](const char* category, const char* pass) {
    return code_of(allocation_replay_table(published_),
                   {{"category", category}, {"pass", pass}, {"context", "256"}});
  };
  for (const char* category :
       {"AttnScores", "Softmax", "FFN", "Norm", "Embed", "Attn", "einsum", "Block"}) {
    EXPECT_EQ(code(category, "forward"), "predicted") << category;
    EXPECT_EQ(code(category, "step"), "predicted") << category;
  }
  EXPECT_EQ(code("AttnOut", "forward"), "label");
  EXPECT_EQ(code("Gradient", "step"), "predicted");
  EXPECT_EQ(code("Opt State", "step"), "predicted");
  for (PublishedAllocation& a : published_.allocations) a.fp32_mib += 1;
  EXPECT_EQ(code("FFN", "forward"), "arithmetic");
  for (PublishedAllocation& a : published_.allocations) a.difference_mib -= 1;
  EXPECT_EQ(code("FFN", "forward"), "unexplained");
}

TEST_F(PublishedTest, PrintedArithmeticIsDoneAgain) {
  const auto code = [&](const char* quantity) {
    return code_of(arithmetic_replay_table(published_), {{"quantity", quantity}});
  };
  EXPECT_EQ(code("speedup"), "rounded");
  EXPECT_EQ(code("bytes over S², width 16"), "unit");
  for (PublishedArithmetic& a : published_.arithmetic) a.printed += 0.1;
  EXPECT_EQ(code("speedup"), "arithmetic");
  for (PublishedAttention& a : published_.attention) a.per_square = 32.19;
  EXPECT_EQ(code("bytes over S², width 16"), "arithmetic");
}

TEST_F(PublishedTest, SharesAndRatiosLieWhereARooflineOfTheirDeviceAllows) {
  const Table parts = parts_replay_table(published_);
  EXPECT_FALSE(has(parts, "verdict", "suspicious"));
  EXPECT_EQ(code_of(parts, {{"study", "C"}}), "another_whole");
  for (PublishedParts& p : published_.parts) p.softmax_ms *= 100;
  EXPECT_TRUE(has(parts_replay_table(published_), "verdict", "suspicious"));
  const auto code = [&] {
    return code_of(product_share_replay_table(published_, {}),
                   {{"study", "B"}, {"size", "small"}, {"context", "1024"}, {"pass", "step"}});
  };
  EXPECT_EQ(code(), "roofline");
  for (PublishedShare& s : published_.product_shares) s.percent = 99;
  EXPECT_EQ(code(), "off_the_roofline");
}

TEST_F(PublishedTest, WhereNoRowOfOursMeasuredACellItsPartOfARooflineIsHeldAgainstTheOthers) {
  ours_ = {};
  const Find f{"E", "fp32", "large", "forward", 512};
  EXPECT_EQ(verdict(f).code, "predicted") << verdict(f).text;
  cell(f).ms *= 4;
  EXPECT_EQ(verdict(f).agreement, A::kNotCompared);
}

// --- files --------------------------------------------------------------------------------------

// A step of ours, eager in primitive ops and compiled in fused ones.
ReplayInput pair_of(const char* size, std::int64_t context, double eager_ms, double compiled_ms) {
  ReplayInput out;
  for (const char* executor : {"eager", "compiled"}) {
    const bool is_eager = std::string_view(executor) == "eager";
    Json row = Json::Object{{"size", size},   {"context", context},   {"batch", 4},
                            {"mode", "step"}, {"precision", "fp32"},  {"attention", "naive"},
                            {"status", "ok"}, {"executor", executor}, {"peak_bytes", 1000}};
    row["ops"] = is_eager ? "primitive" : "fused";
    row["median_ms"] = is_eager ? eager_ms : compiled_ms;
    out.rows.emplace_back(std::move(row));
  }
  return out;
}

TEST_F(PublishedTest, GainsOfCompilingAreHeldAgainstOurs) {
  EXPECT_EQ(published_.pairs.size(), 51u);
  const auto row_of = [&](const Table& table, std::string_view size, std::int64_t context) {
    for (const auto& row : table.rows) {
      if (row[1] == Json(std::string(size)) && row[3] == Json(context)) return row;
    }
    ADD_FAILURE() << size << " " << context;
    return table.rows.front();
  };
  const Table same = pair_replay_table(published_, pair_of("xl", 512, 300, 200));
  const auto row = row_of(same, "xl", 512);
  EXPECT_NEAR(row[7].as_double(), 1850.8 / 1653.7, 1e-12);
  EXPECT_EQ(row[8].as_double(), 1.5);
  EXPECT_NEAR(row[9].as_double(), 100 * (1 - 49.86 / 60.34), 1e-9);
  EXPECT_EQ(row[10].as_double(), 0);
  EXPECT_EQ(row[12].as_string(), "same_direction");
  EXPECT_EQ(row_of(same, "xl", 128)[12].as_string(), "not_compared");
  const Table other = pair_replay_table(published_, pair_of("xl", 512, 200, 300));
  EXPECT_EQ(row_of(other, "xl", 512)[12].as_string(), "other_direction");
  EXPECT_EQ(row_of(other, "xl", 512)[11].as_string(), name_of(A::kSuspicious));
  const Table none = pair_replay_table(published_, pair_of("xl", 512, 200, 200));
  EXPECT_EQ(row_of(none, "xl", 512)[12].as_string(), "other_direction");
}

TEST_F(PublishedTest, CompiledAttentionThatDoesNotGrowWithItsWorkIsTheHosts) {
  std::int64_t host_bound = 0;
  for (const auto& row : pair_replay_table(published_, {}).rows) {
    if (row[12].as_string() != "host_bound") continue;
    ++host_bound;
    EXPECT_LE(row[3].as_int(), 1024);
  }
  EXPECT_EQ(host_bound, 8);  // forward and backward of every width at 256
}

TEST_F(PublishedTest, RowsComeFromACommittedTable) {
  const ReplayInput input =
      read_replay_input(testing::source_folder() / "bench" / "results" / "cuda-h200-grid.csv");
  EXPECT_GT(input.rows.size(), 100u);
  EXPECT_EQ(input.rows[0].text("size"), "small");
  EXPECT_EQ(input.rows[0].label(), "small context 128 inference fp32 fused");
  ASSERT_EQ(input.rows[0].numbers("samples_ms").size(), 10u);
  EXPECT_EQ(input.rows[0].numbers("samples_ms")[0], 4.58);
  EXPECT_TRUE(std::ranges::any_of(input.rows, [](const ResultRow& row) {
    return row.text("throttled").starts_with("sw_power_cap, held by");  // a cell with a comma
  }));
  const std::vector<Table> tables = replay_published(published_, input);
  ASSERT_EQ(tables.size(), 12u);
  EXPECT_EQ(tables[2].rows.size(), published_.times.size());
}

TEST_F(PublishedTest, ATableOfSomethingElseIsNamed) {
  const TempFolder folder;
  folder.write("a.csv", "size,context\nsmall,128\n");
  EXPECT_THROW(read_replay_input(folder.path() / "a.csv"), Error);
}

}  // namespace
}  // namespace tracestep
