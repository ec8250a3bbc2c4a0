// Composes the beginning of a command's result on screen: the answer in a sentence, and the table
// that supports it. Both are pages (commands/, docs/pages.md), which are found by the result's
// schema.
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

// Returns the pages of a schema such as "tracestep.bench/1"; none: the command answers no question.
std::span<const Page> answer_pages(std::string_view schema);

// Returns the help page of a command: its first page, with a heading such as "bench | command |
// Measure". CHECKs that there is one.
const Page& command_page(std::string_view command);

// A table and the columns of it that a page shows: "Shows: passes: products_percent, top_kernel".
struct Shown {
  std::string table;
  std::vector<std::string> columns;
};
std::vector<Shown> shown_by(const Page& page);

struct FirstAnswer {
  std::string sentence;
  std::string table;
};
// Returns the answer of the first page whose rows exist; nullopt: none has them, for instance
// because the command has measured nothing yet. Pages may use the row `machine`, which has the
// numbers and texts of `environment`. Marks the columns that the page shows as results.
std::optional<FirstAnswer> first_answer(std::string_view schema, std::vector<Table>& tables,
                                        const Json& environment);

// Returns the charts of all pages of the schema that these tables support. The first page's charts
// are titled by its answer, others by their tables. A chart of a kind of table ("stack") is made
// for each table of the kind ("stack@small context 128 step"); if there are several, they are
// titled by the question and their cells.
std::vector<Chart> answer_charts(std::string_view schema, std::vector<Table> tables,
                                 const Json& environment);

}  // namespace tracestep::pages
