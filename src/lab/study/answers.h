// Answers the questions of the study from a run's own tables. Every figure and comparison is made
// from rows that the answer names; a question that the rows do not support gets no answer.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_words.h"
#include "lab/pages/compose.h"

namespace tracestep {

// How far the rows under an answer can be trusted, the best first.
enum class Standing {
  kSound,
  kNotJudged,    // A time in a table that the validity checker does not judge.
  kSingle,       // A time from a single sample.
  kInterrupted,  // A row that was interrupted before it had its samples.
  kDoubtful,     // A row that the validity checker doubts.
  kInvalid,      // A row that is not what its label says, as the validity checker found.
};
TRACESTEP_WORDS(Standing, "sound", "not judged", "single sample", "interrupted", "noisy",
                "impossible");
// The worst standing of the rows, by verdict, status, samples and the columns that were read. A
// verdict on times does not count against bytes and counts of the same row (is_of_label()). Times
// in a table without verdicts have the standing of the rows whose verdicts were read beside them. A
// doubt that is only about noise counts if the row's own noise, half the 95 % interval of its
// median over the median, reaches `least_difference`; with 0 it always counts. A row of which only
// large shares of a step's time were read has less noise than the step (docs/study.md).
Standing standing_of(std::span<const Table> tables, std::span<const RowRef> rows,
                     double least_difference = 0);

// Returns the parameters of a cell's step: all of the cell's but those of a start's warm-up.
Json key_of_step(const Json& cell);

// A question with the page that answers it.
struct Question {
  // `number`: that in the course handout, or empty.
  std::string id, number, topic, question, command;
  std::shared_ptr<const pages::Page> page;
};

struct Answer {
  // `number`: that of the question in the course handout, or empty.
  std::string id, number, topic, question;
  Text text;                  // The answer, or why there is none.
  Text lead = {}, more = {};  // The same text in two parts: its first sentence, and the rest.
  // Rows of a small table of the answer, its head first.
  std::vector<std::vector<Text>> lines = {};
  Text doubt = {};  // Reasons to doubt its rows; usually empty.
  std::vector<RowRef> rows;
  bool refused = false;
  Standing standing = Standing::kSound;  // The standing of the worst of its rows.
  std::vector<RowRef> worst = {};        // The rows that have this standing; empty: all are sound.
  std::string command;                   // The command that measures the rows again.
  std::vector<Chart> charts = {};        // Charts, whose titles state the finding.
};

// Returns the warning that follows an answer, such as " (noisy)"; empty if its rows are sound or if
// there is no answer.
std::string warning_of(const Answer& answer);

// The questions that a file of pages has.
std::vector<Question> questions_in(std::string_view markdown);

// The questions of every subject (lab/pages/questions/), in the order of the handout.
std::span<const Question> questions();

Answer answer(const Question& question, std::span<const Table> tables);
std::vector<Answer> answer_all(std::span<const Question> questions, std::span<const Table> tables);

// Returns a table with a row for each question. Columns: the rows that its answer uses, as text for
// people and as a list for programs, and the pieces of the text with the formula of each figure and
// comparison (lab/report/quantity.h).
Table answers_table(std::string name, std::string title, std::span<const Answer> answers);
// The answer's small table as a Table without title; without columns if the answer has none.
Table lines_of(const Answer& answer);
// The rows from which the figures, comparisons and quotations of the text are made; rows that only
// served to choose these are left out. If the text has no figures, all rows.
std::vector<RowRef> rows_in_text(const Answer& answer);
// Returns the rows of an answer in words: "clocks row 2; passes rows 1, 4 (noisy: passes row 4)".
// Rows count from 1.
std::string rests_on(const Answer& answer);

}  // namespace tracestep
