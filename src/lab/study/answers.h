// Answers to the questions of the study, composed from a run's own tables: every figure is read
// from a row that the answer names, and a question that the rows cannot answer gets no answer.
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

// The questions of every subject, in the order of a report.
std::span<const Question> questions();
// The questions of no other subject: training and published tables.
std::span<const Question> other_questions();

Answer answer(const Question& question, std::span<const Table> tables);
std::vector<Answer> answer_all(std::span<const Table> tables);

// Rows: questions; columns: the rows an answer uses, as text for people and as a list for programs.
Table answers_table(std::span<const Answer> answers);
// "clocks row 2, passes rows 1 and 4": the first row of a table is 1.
std::string rests_on(const Answer& answer);

}  // namespace tracestep
