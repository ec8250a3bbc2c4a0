// One HTML page of a whole report: tables and charts, drawn by the page itself from the JSON that
// it carries. It makes no network requests, and shows only figures of that JSON.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/report/table.h"

namespace tracestep {

// A chart of a table's columns. `kind` is a drawing of web/charts.js or web/timeline.js: "lines",
// "bars", "roofline" or "timeline"; `options` names columns (see chart_columns()) and how to draw
// them.
struct Chart {
  std::string kind = {}, title = {}, table = {};
  Json options = Json::object();
};
// The columns that a chart reads, for checks.
std::vector<std::string> chart_columns(const Chart& chart);

// Its title and explanation are in the JSON's table "readings", under `id`.
struct PageSection {
  std::string id;
  std::vector<std::string> tables;
  std::vector<Chart> charts;
};

// `json`: a result as to_string(..., Format::kJson) gives it, with `tables` in it; the page shows
// the answers of its table "answers" first, then the sections, then its environment.
std::string html_page(std::string_view title, std::string_view json, std::span<const Table> tables,
                      std::span<const PageSection> sections);

// The JSON in a page: the one given to html_page(), except that "<" is escaped. Error{kInput} when
// `html` is not such a page.
std::string json_of_page(std::string_view html, const std::string& where);

}  // namespace tracestep
