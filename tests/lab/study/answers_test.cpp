// Answers: complete data answers every question, each piece of it is needed, and changed data
// changes what is said.
#include "lab/study/answers.h"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/print.h"
#include "lab/study/study_run.h"
#include "ops/functions.h"
#include "spec/fields.h"
#include "spec/step_program.h"
#include "support/command_runs.h"

namespace tracestep {
namespace {

using testing::cell_at;
using ::testing::HasSubstr;
using testing::small_study;

const Question& question_of(std::string_view id) {
  const auto found = std::ranges::find(questions(), id, &Question::id);
  EXPECT_NE(found, questions().end()) << id;
  return *found;
}

// The program of a run and where it runs; the model's name is none of it.
std::string program_of(const Json& key) {
  RunSpec run = run_of_key(key);
  run.model.name = "a model";
  return fmt::format("{} {}\n{}", run.place.device, run.place.threads, print(step_program(run)));
}

// The programs of the runs that the commands measure, read as a command reads its flags.
std::set<std::string> programs_of(const std::string& commands) {
  std::set<std::string> out;
  for (std::size_t start = 0, end = 0; start < commands.size(); start = end + 4) {
    end = std::min(commands.find(" && ", start), commands.size());
    for (const RunSpec& run : testing::runs_of(commands.substr(start, end - start))) {
      out.insert(program_of(key_of(run)));
    }
  }
  return out;
}

TEST(AnswersTest, ACompleteRunAnswersEveryQuestionFromItsRows) {
  const StudyReport& study = small_study();
  std::set<std::string> ids;
  for (const Answer& a : study.answers) {
    EXPECT_FALSE(a.refused) << a.id << ": " << a.text.words();
    EXPECT_FALSE(a.rows.empty()) << a.id;
    EXPECT_TRUE(ids.insert(a.id).second) << a.id << " is there twice";
    for (const RowRef& ref : a.rows) {
      const auto table = std::ranges::find(study.tables, ref.table, &Table::name);
      ASSERT_NE(table, study.tables.end()) << ref.table;
      EXPECT_LT(ref.row, table->rows.size());
      for (const std::string& column : ref.columns) {
        EXPECT_NE(std::ranges::find(table->columns, column, &Column::name), table->columns.end())
            << ref.table << " " << column;
      }
    }
  }
}

// The runs that the answer's rows are of, and those that its command measures.
std::set<std::string> runs_of_rows(const Answer& a) {
  std::set<std::string> out;
  for (const RowRef& ref : a.rows) {
    const auto table = std::ranges::find(small_study().tables, ref.table, &Table::name);
    const auto column = std::ranges::find(table->columns, "cell", &Column::name);
    // An attention by itself is no run.
    if (column == table->columns.end() || ref.table.starts_with("attention")) continue;
    const Json& cell =
        table->rows[ref.row][static_cast<std::size_t>(column - table->columns.begin())];
    const std::vector<Json> one{cell};
    for (const Json& key : cell.is_array() ? cell.items() : one) {
      if (key.is_object()) out.insert(program_of(key));
    }
  }
  return out;
}

TEST(AnswersTest, TheCommandThatMeasuresAgainIsOfTheSameRuns) {
  ops::register_all();
  int checked = 0;
  for (const Answer& a : small_study().answers) {
    const std::set<std::string> expected = runs_of_rows(a);
    if (expected.empty()) continue;
    EXPECT_EQ(programs_of(a.command), expected) << a.id << ": " << a.command;
    ++checked;
  }
  EXPECT_GT(checked, 20);
}

TEST(AnswersTest, EveryCellIsOfTheMachineOfTheStudy) {
  int checked = 0;
  for (const Table& table : small_study().tables) {
    const auto column = std::ranges::find(table.columns, "cell", &Column::name);
    if (column == table.columns.end() || column->kind != ColumnKind::kStructured) continue;
    for (const auto& row : table.rows) {
      const Json& cell = row[static_cast<std::size_t>(column - table.columns.begin())];
      const std::vector<Json> one{cell};
      for (const Json& key : cell.is_array() ? cell.items() : one) {
        if (!key.is_object()) continue;
        const Json* parallel = key.find("parallel");  // ranks of the machine divide its threads
        const int ranks = parallel != nullptr && parallel->as_string() != "none" ? 2 : 1;
        EXPECT_EQ(key.at("threads"), Json(testing::kStudyThreads / ranks)) << table.name;
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 50);
}

TEST(AnswersTest, WithoutTablesEveryQuestionIsRefusedWithTheReason) {
  for (const Question& question : questions()) {
    const Answer a = answer(question, {});
    EXPECT_TRUE(a.refused) << a.id;
    EXPECT_THAT(a.text.words(), HasSubstr("this run has no table")) << a.id;
    EXPECT_TRUE(a.rows.empty()) << a.id;
  }
}

TEST(AnswersTest, NoTableThatAnAnswerNamesCouldBeLeftOut) {
  const StudyReport& study = small_study();
  for (const Question& question : questions()) {
    const Answer before = answer(question, study.tables);
    std::set<std::string> used;
    for (const RowRef& ref : before.rows) used.insert(ref.table);
    for (const std::string& name : used) {
      std::vector<Table> fewer = study.tables;
      std::erase_if(fewer, [&](const Table& table) { return table.name == name; });
      const Answer after = answer(question, fewer);
      EXPECT_TRUE(after.refused || after.text.words() != before.text.words())
          << before.id << " says the same without " << name;
    }
  }
}

// A changed cell of the data, and the answer's words before and after.
struct Change {
  const char* id;
  std::string cell;  // "cells[mode step].samples_ms", as cell_at() reads it
  Json value;
  const char *before, *after;
};

// The profile's and the memory run's own tables.
std::string at_step(const std::string& table, const std::string& cell) {
  return table +
         "small d_model 16 d_ff 32 layers 2 heads 2 context 8 batch 2 vocab 32 step fp32 "
         "primitive" +
         cell;
}

std::vector<Change> changes() {
  const Json slow = Json::Array{900.0, 901.0, 902.0};
  return {
      // 80 ms and 240 ms: backward is 160 ms, twice forward; the step's 280 ms add 40 ms.
      {"pass-times", "cells[size small; mode forward-backward; ops fused].samples_ms",
       Json::Array{100.0, 100.0, 100.0}, "2.00 times forward, as twice",
       "0.25 times forward, where"},
      {"pass-times", "cells[size small; mode forward; ops fused].samples_ms", slow,
       "as twice the products", "No answer: forward with backward"},
      {"pass-times", "cells[size small; mode step; ops fused].samples_ms",
       Json::Array{240.0, 241.0, 242.0}, "AdamW adds 40.00", "What AdamW adds is lost in noise"},
      {"warm-up", "warmup[warmup 0].first_ms", 10.5, "takes 3.00 times as long",
       "Warm-up hardly shows here"},
      {"sizes", "cells[size small; mode forward; ops fused].samples_ms",
       Json::Array{18.0, 18.0, 18.0}, "8.00 times as long", "as where launching kernels takes it"},
      {"contexts", "scaling[mode step; context 16].samples_ms", Json::Array{700.0, 701.0, 702.0},
       "as its work grows", "for only"},
      {"fused", "granularity[size small; mode step].high", 1.4, "1.50 times as fast",
       "Noise leaves it open"},
      {"fused", "granularity[size small; mode step].low", Json(), "1.50 times as fast",
       "With fused kernels a step of tiny"},
      {"clocks", "clocks[mode inference].busy_ms", 1e6, "of which are kernels", "They disagree"},
      {"clocks", "clocks[mode inference].plain_wall_ms", Json(), "of which are kernels",
       "No answer"},
      {"top-kernel", "passes[mode step; pass backward].top_kernel", "another",
       "in backward the same kernel takes most", "in backward another takes most"},
      {"product-share", "passes[mode step; pass all].ms", 31.0, "it falls from", "it rises from"},
      {"product-share", "passes[mode step; pass all].ms", 1e9, "it falls from",
       "to 3e-06 % in a training step"},
      {"softmax",
       at_step("attention@",
               "[phase forward; part softmax, with scale and mask].ms_of_products_percent"),
       1.0, "softmax moves", "less than its"},
      {"launches", "launch_check[what weight products, forward].verdict", "differs", "Yes: all",
       "No: of weight products, forward"},
      {"sums", "accumulation[experiment 2: f16 + f16].error", 0.0, "What decides is the format",
       "does not decide"},
      {"stalls", "accumulation[experiment 5: bf16 + bf16].stalls_after", Json(),
       "In \"5: bf16 + bf16\"", "In \"7: longer, bf16 + bf16\""},
      {"dtypes", "autocast[autocast f16; value ln].dtype", "f16", "the layer norm's f32",
       "the layer norm's f16"},
      {"norms", "norms[norm layer norm; format bf16; step squares].lost_percent", 50.0,
       "which bfloat16 can", "bfloat16 loses rows, too"},
      {"formats", "formats[format bf16].max", 1e9, "has float32's range",
       "bfloat16 ends below float32"},
      {"lower-precision", "steps[size small; mode forward-backward; precision bf16].samples_ms",
       Json::Array{199.0, 200.0, 200.0, 200.0, 200.0, 201.0}, "2.00 times as fast",
       "2.00 times as slow"},
      {"lower-precision", "steps[size small; mode forward-backward; precision bf16].samples_ms",
       Json::Array{20.0, 120.0, 50.0, 90.0, 110.0, 40.0}, "2.00 times as fast",
       "gains no time beyond noise"},
      {"low-precision-memory",
       "memory_grid[mode step; precision bf16; context 256].versus_fp32_percent", 50.0,
       "Yes, but not always", "It depends: "},
      {"which-forward",
       "memory_grid[mode inference; precision fp32; context 256].predicted_peak_bytes",
       std::int64_t{1} << 40, "when nothing is kept", "which cannot be"},
      {"residual", "memory_grid[mode forward; precision fp32; context 256].residual_bytes", 12345,
       "in proportion to the context", "by less than the context"},
      {"static-bytes", "sizes[size planned].device_bytes", 1000, "That fits into",
       "That is more than"},
      {"activation-formula", at_step("formulas@", "[quantity saved by the whole model].bytes"),
       12345, "right to the byte", "and the program saves"},
      {"attribution", at_step("contract@", "[item difference].bytes"), 512, "each with an owner",
       "buffer by buffer 512 B differ"},
      {"attention-times", "attention[context 128; saved weights].forward_samples_ms",
       Json::Array{2.1, 2.1, 2.1}, "as T² asks for", "only 1.05 times"},
      {"attention-bytes", "attention_scaling[precision fp32; saved weights].tensors", 1.4,
       "one tensor of B·T² waits", "1.40 tensors of B·T² wait"},
      {"attention-bytes", "attention_scaling[precision fp32; saved weights].largest_error_percent",
       20.0, "one tensor", "No answer: a·T² + b·T + c misses the bytes"},
      {"attention-variants", "attention_scaling[precision fp32; saved scores+weights].tensors", 1.0,
       "One tensor of B·T² each", "No answer: the forms do not differ"},
      {"attention-limit", "attention[context 32; saved weights].status", "oom",
       "None of 4 measured cells", "When measured, 1 of 4 cells"},
      {"attention-cure", "attention[context 128; saved weights].saved_bytes", 64,
       "which it removes", "at this context"},
      {"attention-cure", "attention[context 128; attention flash].status", "oom", "Flash attention",
       "No answer"},
      {"training", "training[step 10].loss", 50.0, "Yes: from", "No, it rises"},
      {"validity", "validity.verdict", "doubt: unsteady", "Yes: none of", "No: 1 of"},
  };
}

TEST(AnswersTest, ChangedDataChangeTheAnswerOrTakeItAway) {
  for (const Change& c : changes()) {
    std::vector<Table> tables = small_study().tables;
    const Question& question = question_of(c.id);
    // Kernels that take microseconds may add up to more than a pass did at another time.
    if (c.cell.starts_with("clocks")) cell_at(tables, "clocks[mode inference].busy_ms") = 1e-3;
    // Nor does softmax take more than its share of FLOPs at every time.
    if (c.id == std::string_view("softmax")) cell_at(tables, c.cell) = 50.0;
    const std::string before = answer(question, tables).text.words();
    EXPECT_THAT(before, HasSubstr(c.before)) << c.id;
    cell_at(tables, c.cell) = c.value;
    const Answer after = answer(question, tables);
    EXPECT_THAT(after.text.words(), HasSubstr(c.after)) << c.id;
    EXPECT_NE(after.text.words(), before) << c.id;
    EXPECT_EQ(after.refused, after.text.words().starts_with("No answer")) << c.id;
  }
}

TEST(AnswersTest, TheTableOfAnswersNamesRowsForPeopleAndForPrograms) {
  const Answer a{.id = "x",
                 .number = {},
                 .topic = "T",
                 .question = "Why?",
                 .text = "Because.",
                 .rows = {{"clocks", 1, {"ms"}}, {"passes", 0, {"ms"}}, {"passes", 3, {"ms"}}},
                 .command = "tracestep profile"};
  EXPECT_EQ(rests_on(a), "clocks row 2; passes rows 1, 4");
  Answer many = a;
  many.rows.clear();
  for (std::size_t row : {4, 0, 1, 2, 6, 7}) many.rows.push_back({"norms", row, {}});
  EXPECT_EQ(rests_on(many), "norms rows 5, 1 to 3, 7, 8");
  Answer said = many;  // of rows that were read, those that the text has
  said.rows.push_back({"sub_norms", 1, {}});
  said.text = Text(Piece{"3.0", Basis::kFigure, "(sum(norms[2,7-8].ms) / sub_norms[2].ms)"});
  EXPECT_EQ(rests_on(said), "norms rows 2, 7, 8; sub_norms row 2");
  const std::vector<Answer> answers{a};
  const Table table = answers_table("answers", "Questions", answers);
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(Json(table.rows[0]).items()[7].dump(),
            R"([{"table":"clocks","row":1,"columns":["ms"]},)"
            R"({"table":"passes","row":0,"columns":["ms"]},)"
            R"({"table":"passes","row":3,"columns":["ms"]}])");
}

TEST(AnswersTest, AnAnswersOwnTableStandsInEveryReportOfIt) {
  const Answer a = answer(question_of("pass-times"), small_study().tables);
  ASSERT_EQ(a.lines.size(), 3u) << "two sizes";
  EXPECT_EQ(lines_of(a).rows[1][2].as_string(), "80.00 ± 0.23 ms");
  const Table table = answers_table("answers", "Questions", {&a, 1});
  const auto at = std::ranges::find(table.columns, "lines", &Column::name);
  const Json& lines = table.rows[0][static_cast<std::size_t>(at - table.columns.begin())];
  EXPECT_THAT(lines.dump(), HasSubstr(R"({"text":"80.00 ± 0.23 ms","figure":"(cells[)"));
  EXPECT_THAT(answers_text({&a, 1}), HasSubstr("backward, by difference"));
  for (const Format format : {Format::kMarkdown, Format::kLatex, Format::kTypst}) {
    EXPECT_THAT(study_page(small_study(), Json::object(), format, "charts"),
                HasSubstr("by difference"));
  }
}

}  // namespace
}  // namespace tracestep
