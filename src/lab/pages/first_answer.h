// Composes the head of a command's result on screen: the answer in a sentence, and the one table
// that bears it out. Both are pages (commands/, docs/pages.md), chosen by the result's schema.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/pages/page.h"
#include "lab/report/chart/chart.h"
#include "lab/report/table.h"

namespace tracestep::pages {

// The pages of a schema, "tracestep.bench/1"; none: the command answers no question.
std::span<const Page> answer_pages(std::string_view schema);

// The help's text on a command: its first page, headed "bench | command | Measure". CHECKs that
// there is one.
const Page& command_page(std::string_view command);

// A table and the columns that are asked of it: "Shows: passes: products_percent, top_kernel".
struct Shown {
  std::string table;
  std::vector<std::string> columns;
};
std::vector<Shown> shown_by(const Page& page);

struct FirstAnswer {
  std::string sentence;
  std::string table;
};
// The answer of the first page whose rows are there; nullopt: there is none, as for a command that
// has nothing measured yet. Pages may name the row `machine`: what `environment` has of numbers and
// texts. Marks the columns that are asked for as results.
std::optional<FirstAnswer> first_answer(std::string_view schema, std::vector<Table>& tables,
                                        const Json& environment);

// The charts of all its pages that these tables support, the first of a page titled by its answer,
// others by their tables. A chart of a kind of table, "stack", is one for each table of that kind,
// "stack@small context 128 step"; several are titled by the question and their cells.
std::vector<Chart> answer_charts(std::string_view schema, std::vector<Table> tables,
                                 const Json& environment);

}  // namespace tracestep::pages
