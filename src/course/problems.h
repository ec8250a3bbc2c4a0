// The problems of the handout: their names, the runs that an answer is of, and the tables of one
// key against another that a problem asks for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lab/study/study.h"

namespace tracestep {

// The name of a problem by its number: "benchmarking_script (b)" for "1.1.3 b"; empty: it has none
// here.
std::string_view name_of_problem(std::string_view number);

// The runs whose rows an answer's text reads, key by key: "large, vocabulary 10,000 · context 512 ·
// batch 4 · fp32 · fused ops · forward, step". Empty if no row names them.
std::string runs_of_answer(const Answer& answer, std::span<const Table> tables);

// How many samples the answer's times have: "n = 11 to 18 of each time"; empty if it reads none.
std::string samples_of_answer(const Answer& answer, std::span<const Table> tables);

struct ProblemTable {
  Table table;
  std::string_view replaces;  // The answer whose small table this one replaces.
};
// The tables of a problem, for the runs of its answers. Tables with a single cell or without rows
// are left out.
std::vector<ProblemTable> tables_of_problem(std::string_view number, const StudyReport& report);

}  // namespace tracestep
