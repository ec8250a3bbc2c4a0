// Answers to the questions of the study, composed from a run's own tables: every figure in them is
// read from a row that the answer names, and where the rows do not support one, it is refused.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/report/question.h"

namespace tracestep {

struct Answer {
  std::string id, topic, question;
  std::string text;  // the answer, or why there is none
  std::vector<RowRef> rows;
  bool refused = false;
  std::string command;  // measures the rows again
};

// Those of every subject, in the order of a report.
std::span<const Question> questions();
// Those that stand apart: training, published tables.
std::span<const Question> other_questions();

Answer answer(const Question& question, std::span<const Table> tables);
std::vector<Answer> answer_all(std::span<const Table> tables);

// Rows: questions; the rows an answer rests on as text for people and as a list for programs.
Table answers_table(std::span<const Answer> answers);
// "clocks row 2, passes rows 1 and 4": the first row of a table is 1.
std::string rests_on(const Answer& answer);

}  // namespace tracestep
