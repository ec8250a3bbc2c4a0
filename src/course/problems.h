// The problems of the handout: their names, the runs that an answer is of, and the tables of one
// key against another that a problem asks for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lab/study/study.h"

namespace tracestep {

// "benchmarking_script (b)" of "1.1.3 b"; empty: it has no name here.
std::string_view name_of_problem(std::string_view number);

// Names the runs whose rows an answer's text reads, key by key: "large, vocabulary 10,000 ·
// context 512 · batch 4 · fp32 · fused ops · forward, step". Empty where no row says so.
std::string runs_of_answer(const Answer& answer, std::span<const Table> tables);

// How many samples its times have: "11 to 18 samples a time"; empty where it reads none.
std::string samples_of_answer(const Answer& answer, std::span<const Table> tables);

struct ProblemTable {
  Table table;
  std::string_view replaces;  // the answer whose own lines it has
};
// The tables of a problem, all of the runs that its answers are of; without those that have one
// cell, or no rows.
std::vector<ProblemTable> tables_of_problem(std::string_view number, const StudyReport& report);

}  // namespace tracestep
