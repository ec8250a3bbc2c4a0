// Fills a page from the tables of a report: the figures in its sentences and lines remember the
// cells that they come from.
#pragma once

#include <limits>
#include <vector>

#include "lab/pages/page.h"
#include "lab/report/chart/chart.h"
#include "lab/report/evidence.h"

namespace tracestep::pages {

struct Composed {
  Text lead, more;           // The answer, and the sentences after it.
  std::vector<RowRef> rows;  // The rows from which the text was read.
  // Rows of a small table, its head first; empty: the page has none.
  std::vector<std::vector<Text>> lines;
  std::vector<Chart> charts;  // The charts; their titles are still empty.
  // The smallest relative difference between measured numbers on which the answer depends: for a
  // range, half its width over its middle; for two numbers, their relative distance. Infinite: the
  // answer compares nothing.
  double least_difference = std::numeric_limits<double>::infinity();
};

// Composes the answer. Throws Unsupported if the first sentence lacks a figure, or if its outcome
// is "No answer: …". A later sentence or line that lacks a figure is left out.
Composed compose(const Page& page, const Evidence& evidence);

}  // namespace tracestep::pages
