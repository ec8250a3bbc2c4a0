// The pages of the study as a whole: they name what experiments declare, and they are short.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/input_file.h"
#include "lab/study/claims.h"
#include "lab/study/study_run.h"
#include "lab/study/summary.h"

namespace tracestep {
namespace {

using ::testing::IsEmpty;
using testing::measured_study;
using testing::small_study;
using testing::wrong_claims;

std::vector<Question> all_questions() {
  std::vector<Question> out(questions().begin(), questions().end());
  out.insert(out.end(), summary_questions().begin(), summary_questions().end());
  return out;
}

// "kinds@" stands for every table of that kind.
bool is_declared(const std::string& table, const std::string& column) {
  return std::ranges::any_of(measured_study().tables, [&](const Table& t) {
    const bool is_it = table.ends_with('@') ? t.name.starts_with(table) : t.name == table;
    return is_it && (column.empty() ||
                     std::ranges::find(t.columns, column, &Column::name) != t.columns.end());
  });
}

TEST(PagesTest, EveryNameInAPageIsOneThatAnExperimentDeclares) {
  std::size_t names = 0;
  for (const Question& q : all_questions()) {
    for (const auto& [table, column] : pages::names_in(*q.page)) {
      EXPECT_TRUE(is_declared(table, column)) << q.id << ": " << table << "." << column;
      ++names;
    }
  }
  EXPECT_GT(names, 400u);
}

TEST(PagesTest, APageIsShort) {
  for (const Question& q : all_questions()) EXPECT_LE(q.page->line_count, 30) << q.id;
}

std::size_t words_in(const std::string& text) {
  return 1 + static_cast<std::size_t>(std::ranges::count(text, ' '));
}

// Sentences end with a stop before a blank; a label or a number may have one inside.
std::size_t sentences_in(const std::string& text) {
  std::size_t out = 1;
  for (std::size_t at = text.find(". "); at != std::string::npos; at = text.find(". ", at + 1))
    ++out;
  return out;
}

// The first sentence, and how many figures stand in it.
std::pair<std::string, std::size_t> first_sentence(const Text& text) {
  const std::string first = text.words().substr(0, text.words().find(". "));
  std::size_t figures = 0, at = 0;
  for (const Piece& piece : text.pieces()) {
    figures += piece.basis == Basis::kFigure && at < first.size() ? 1 : 0;
    at += piece.words.size();
  }
  return {first, figures};
}

TEST(PagesTest, AnAnswerIsOneShortSentenceAndThreeMoreAtMost) {
  constexpr std::size_t kWords = 30, kFigures = 3, kSentences = 4, kLines = 9;
  for (const Question& question : all_questions()) {
    const Answer a = answer(question, small_study().tables);
    const auto& [first, figures] = first_sentence(a.text);
    EXPECT_LE(words_in(first), kWords) << a.id << ": " << first;
    EXPECT_LE(figures, kFigures) << a.id << ": " << first;
    EXPECT_LE(sentences_in(a.text.words()), kSentences) << a.id << ": " << a.text.words();
    EXPECT_LE(a.lines.size(), kLines) << a.id;
  }
}

TEST(PagesTest, AnswersHaveThirtyFiveWordsAtTheMeanAndEightyAtMost) {
  std::size_t words = 0, count = 0;
  for (const StudyReport* study : {&small_study(), &measured_study()}) {
    for (const Answer& a : study->answers) {
      EXPECT_LE(words_in(a.text.words()), 80u) << a.id << ": " << a.text.words();
      words += words_in(a.text.words());
      ++count;
    }
  }
  EXPECT_LE(static_cast<double>(words) / static_cast<double>(count), 35.0);
}

// For reading: TRACESTEP_STUDY=out/study.json test_lab --gtest_filter=PagesTest.Prints*
TEST(PagesTest, PrintsTheAnswersOfAStoredStudy) {
  const char* const path = std::getenv("TRACESTEP_STUDY");
  if (path == nullptr) GTEST_SKIP() << "TRACESTEP_STUDY names no study.json";
  const StudyReport study =
      answered(stored_study(read_text_file(path, "TRACESTEP_STUDY", std::uint64_t{256} << 20), path)
                   .sections);
  for (const auto* answers : {&study.summary, &study.answers}) {
    for (const Answer& a : *answers) EXPECT_THAT(wrong_claims(a, study.tables), IsEmpty()) << a.id;
  }
  std::cout << answers_text(study.summary) << answers_text(study.answers);
}

TEST(StudySizesTest, AModelTakesThePlaceOfTheLargerOnesAndAContextEndsTheGrowth) {
  for (StudySizes sizes : {cpu_study_sizes(), gpu_study_sizes(), quick_study_sizes()}) {
    const std::string small = sizes.models.front().name;
    ModelConfig model = preset("medium");
    model.name = "mine";
    at_context(64, sizes);
    of_model(model, sizes);
    EXPECT_EQ(sizes.models.size(), 2u);
    EXPECT_EQ(sizes.models.front().name, small) << "which is trained";
    EXPECT_EQ(sizes.models.back().name, "mine");
    EXPECT_EQ(sizes.planned.name, "mine");
    EXPECT_EQ(sizes.contexts.back(), 64);
    for (const auto* steps : {&sizes.recorded, &sizes.profiled}) {
      EXPECT_EQ(steps->back().model.name, "mine");
      for (const RunSpec& step : *steps) EXPECT_EQ(step.shape.context, 64);
    }
  }
}

TEST(StudySizesTest, SmallerStepsTakeSmallerSizesOfAllElse) {
  StudySizes sizes = cpu_study_sizes();
  const StudySizes quick = quick_study_sizes();
  at_shape(quick.shape, sizes);
  EXPECT_EQ(sizes.contexts, quick.contexts);
  EXPECT_EQ(sizes.attention_contexts, quick.attention_contexts);
  EXPECT_EQ(sizes.warmups, quick.warmups);
  EXPECT_EQ(sizes.error.tokens, quick.error.tokens);
  EXPECT_EQ(sizes.models.size(), 2u) << "the larger model stays: what is asked about growth";
}

TEST(StudySizesTest, ALongStudyOfAGpuHasTheLargestModelsAndKernelsOverContexts) {
  StudySizes sizes = gpu_study_sizes();
  const std::size_t profiled = sizes.profiled.size();
  add_long_sizes(sizes);
  EXPECT_EQ(sizes.precise.back().name, "2.7B");
  std::set<std::int64_t> contexts;
  for (const RunSpec& step : sizes.profiled) contexts.insert(step.shape.context);
  EXPECT_EQ(contexts, (std::set<std::int64_t>{128, 256, 512, 1024}));
  EXPECT_EQ(sizes.profiled.size(), profiled + 3);
  const StudyMachine machine;
  const StudyContext context{.machine = machine, .sizes = sizes, .announce = {}};
  std::set<std::string> planned;
  for (const RunSpec& run : runs_in(context, "steps")) {
    planned.insert(
        fmt::format("{} {} {}", run.model.name, name_of(run.mode), name_of(run.precision)));
  }
  for (const char* size : {"small", "medium", "large", "xl", "2.7B"}) {
    for (const char* mode : {"forward", "forward-backward"}) {
      for (const char* precision : {"fp32", "bf16"}) {
        EXPECT_TRUE(planned.contains(fmt::format("{} {} {}", size, mode, precision)))
            << size << " " << mode << " " << precision;
      }
    }
  }
}

}  // namespace
}  // namespace tracestep
