// One HTML page of a whole report: tables and charts, drawn by the page itself from the JSON that
// it carries. It asks nothing of the network, and holds no figure that is not in that JSON.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/report/table.h"

namespace tracestep {

// A figure of a table's columns. `kind` is a drawing of web/charts.js or web/timeline.js: "lines",
// "bars", "roofline" or "timeline"; `options` names columns (see chart_columns()) and says how.
struct Chart {
  std::string kind = {}, title = {}, table = {};
  Json options = Json::object();
};
// The columns that a chart reads, for checks.
std::vector<std::string> chart_columns(const Chart& chart);

// Its title and its reading stand in the JSON's table "readings" under `id`.
struct PageSection {
  std::string id;
  std::vector<std::string> tables;
  std::vector<Chart> charts;
};

// `json`: a result as to_string(..., Format::kJson) gives it, with `tables` in it; the page shows
// the answers of its table "answers" first, then the sections, then its environment.
std::string html_page(std::string_view title, std::string_view json, std::span<const Table> tables,
                      std::span<const PageSection> sections);

// The JSON that a page carries: the one given to html_page(), but for how "<" is written.
// Error{kInput}: no such page.
std::string json_of_page(std::string_view html, const std::string& where);

}  // namespace tracestep
