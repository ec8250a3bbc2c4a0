// Answers to the questions of the study, composed from a run's own tables: every figure and every
// comparison is made from rows that the answer names, and a question that the rows cannot answer
// gets no answer.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/report/question.h"

namespace tracestep {

// What the rows under an answer are worth, best first.
enum class Standing {
  kSound,
  kNotJudged,    // a time of a table that the validity checker does not judge
  kSingle,       // a time from a single sample
  kInterrupted,  // ended before its samples were taken
  kDoubtful,     // the validity checker doubts a row
  kInvalid,      // or finds that it is not what its label says
};
std::string_view name_of(Standing standing);
// The worst of the rows, by verdict, status and samples and by the columns that were read: a
// verdict on times does not count against bytes and counts of the same row (is_of_label()). Times
// of a table without verdicts stand like the rows whose verdicts were read beside them.
Standing standing_of(std::span<const Table> tables, std::span<const RowRef> rows);

struct Answer {
  std::string id, number, topic, question;  // number: of the handout's question, or empty
  Text text;                                // the answer, or why there is none
  std::vector<RowRef> rows;
  bool refused = false;
  Standing standing = Standing::kSound;  // of the worst of its rows
  std::vector<RowRef> worst = {};        // the rows that stand so by themselves; empty: all sound
  std::string command;                   // measures the rows again
};

// " (doubtful)": what the rows of an answer are worth; empty where they are sound, or it is
// refused.
std::string warning_of(const Answer& answer);

// The questions of every subject, in the order of the handout (lab/study/numbers.h).
std::span<const Question> questions();
// The questions of no other subject: training and published tables.
std::span<const Question> other_questions();

// The last rows of the table `training`, and the mean of their losses: a single batch says little,
// since losses of batches differ by more than a step changes.
std::vector<Evidence::Row> rows_at_end(const std::vector<Evidence::Row>& rows);
Quantity loss_at_end(const std::vector<Evidence::Row>& rows);

Answer answer(const Question& question, std::span<const Table> tables);
std::vector<Answer> answer_all(std::span<const Question> questions, std::span<const Table> tables);

// Rows: questions; columns: the rows an answer uses, as text for people and as a list for programs,
// and the pieces of the text with the formula of each figure and comparison
// (lab/report/quantity.h).
Table answers_table(std::string name, std::string title, std::span<const Answer> answers);
// "clocks row 2; passes rows 1, 4 (doubtful: passes row 4)": the first row of a table is 1.
std::string rests_on(const Answer& answer);

}  // namespace tracestep
