// A page filled from the tables of a report: sentences and lines whose figures know the cells they
// are made of.
#pragma once

#include <vector>

#include "lab/pages/page.h"
#include "lab/report/chart/chart.h"
#include "lab/report/evidence.h"

namespace tracestep::pages {

struct Composed {
  Text lead, more;                       // the answer, and what stands behind it
  std::vector<RowRef> rows;              // the rows that the text was read from
  std::vector<std::vector<Text>> lines;  // a table, its head first; empty: the page has none
  std::vector<Chart> charts;             // without titles
};

// Throws Unsupported where the answer lacks a figure, or its outcome says so ("No answer: …"). A
// later sentence, or a line, that lacks one is left out.
Composed compose(const Page& page, const Evidence& evidence);

}  // namespace tracestep::pages
