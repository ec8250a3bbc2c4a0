// Answers to the questions of the study, composed from a run's own tables: every figure and every
// comparison is made from rows that the answer names, and a question that the rows cannot answer
// gets no answer.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/pages/compose.h"

namespace tracestep {

// Grades the rows under an answer, best first.
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
// of a table without verdicts stand like the rows whose verdicts were read beside them. Doubts that
// are about noise alone count where the row's own noise, half the 95 % interval of its median over
// the median, reaches `least_difference`; 0: always.
Standing standing_of(std::span<const Table> tables, std::span<const RowRef> rows,
                     double least_difference = 0);

// A page of questions: who asks what, and how it is answered.
struct Question {
  std::string id, number, topic, question, command;  // number: the handout's, or empty
  std::shared_ptr<const pages::Page> page;
};

struct Answer {
  std::string id, number, topic, question;    // number: of the handout's question, or empty
  Text text;                                  // the answer, or why there is none
  Text lead = {}, more = {};                  // the same in two: its first sentence, and the rest
  std::vector<std::vector<Text>> lines = {};  // a table of the answer's own, its head first
  Text doubt = {};                            // reasons against its rows; mostly empty
  std::vector<RowRef> rows;
  bool refused = false;
  Standing standing = Standing::kSound;  // of the worst of its rows
  std::vector<RowRef> worst = {};        // the rows that stand so by themselves; empty: all sound
  std::string command;                   // measures the rows again
  std::vector<Chart> charts = {};        // their titles say what was found
};

// " (doubtful)": what the rows of an answer are worth; empty where they are sound, or it is
// refused.
std::string warning_of(const Answer& answer);

// The questions that a file of pages has.
std::vector<Question> questions_in(std::string_view markdown);

// The questions of every subject (lab/pages/questions/), in the order of the handout.
std::span<const Question> questions();

Answer answer(const Question& question, std::span<const Table> tables);
std::vector<Answer> answer_all(std::span<const Question> questions, std::span<const Table> tables);

// Rows: questions; columns: the rows an answer uses, as text for people and as a list for programs,
// and the pieces of the text with the formula of each figure and comparison
// (lab/report/quantity.h).
Table answers_table(std::string name, std::string title, std::span<const Answer> answers);
// The answer's own lines, without a title; no columns where it has none.
Table lines_of(const Answer& answer);
// The rows from which figures, comparisons and quotations of the text are made; others were looked
// at to choose them. All where the text has none of them.
std::vector<RowRef> rows_in_text(const Answer& answer);
// "clocks row 2; passes rows 1, 4 (doubtful: passes row 4)": the first row of a table is 1.
std::string rests_on(const Answer& answer);

}  // namespace tracestep
