// One HTML page of a whole report. Text and charts stand in it as they are; tables and answers are
// laid out by the page from the JSON that it carries, compressed: a study's is ten times as large
// as the rest. It makes no network requests, and shows only figures of that JSON.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/report/chart/chart.h"
#include "lab/report/statement.h"
#include "lab/report/table.h"

namespace tracestep {

struct PageSection {
  std::string id = {}, title = {};
  std::string reading = {};              // paragraphs, and code between lines of three backquotes
  std::vector<std::string> tables = {};  // shown
  std::vector<std::string> data = {};    // as downloads, and shown when they are opened
  std::vector<Chart> charts = {};
};

// The first screen.
struct PageHead {
  std::string title = {};
  std::vector<std::pair<std::string, std::string>> facts = {};  // "date", "2026-11-22"
  std::vector<Text> results = {};                               // a sentence each
  std::vector<Text> trust = {};  // how far the figures can be trusted
  std::vector<Chart> charts = {};
};

// `json`: a result as to_string(..., Format::kJson) gives it, with `tables` in it; the page shows
// its head, the answers of its table "answers", the sections, and its environment.
std::string html_page(const PageHead& head, std::string_view json, std::span<const Table> tables,
                      std::span<const PageSection> sections);

}  // namespace tracestep
