// A page filled from the tables of a report: sentences and lines whose figures know the cells they
// are made of.
#pragma once

#include <limits>
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
  // The smallest relative difference that a comparison of measured numbers states: half the width
  // of a range over its middle; of two numbers, how far they lie apart. Infinite: there is none.
  double least_difference = std::numeric_limits<double>::infinity();
};

// Throws Unsupported where the answer lacks a figure, or its outcome says so ("No answer: …"). A
// later sentence, or a line, that lacks one is left out.
Composed compose(const Page& page, const Evidence& evidence);

}  // namespace tracestep::pages
