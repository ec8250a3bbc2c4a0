// Writes one HTML page of a whole report: a first screen, answers as cards with their charts, and
// tables that unfold. Text and charts stand in it as they are; tables are laid out by the page from
// the JSON that it carries, compressed: a study's is ten times as large as the rest. It makes no
// network requests.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/report/chart/chart.h"
#include "lab/report/evidence.h"
#include "lab/report/statement.h"
#include "lab/report/table.h"

namespace tracestep {

// A chart that only a page has, drawn by its script: pieces of work along time, below each other
// their passes, modules and kernels. Its table has the columns of lab/read's step_table().
inline constexpr const char* kWorkChart = "work";

// An answer: its sentence and its charts are shown, the rest unfolds.
struct PageCard {
  std::string id = {}, number = {}, question = {};
  Text lead = {}, more = {};
  std::vector<std::string> items = {};        // a numbered list, which its charts refer to
  std::vector<std::vector<Text>> lines = {};  // a table of its own, its head first
  std::vector<Chart> charts = {};
  std::string standing = {}, doubt = {};  // standing of its rows, "noisy", and the reason
  std::vector<RowRef> rows = {};
  std::string command = {};
  bool is_extra = false;  // folded away with others of its kind
};

struct PageTopic {
  std::string title = {};
  std::vector<PageCard> cards = {};
};

struct PageSection {
  std::string id = {}, title = {};
  std::string reading = {};  // paragraphs, and code between lines of three backquotes
  std::vector<std::string> tables = {};
};

struct PageHead {
  std::string title = {};
  std::vector<std::string> facts = {};       // place and time of the measurement
  std::vector<PageCard> tiles = {};          // a large figure (its lead), and what it is of
  std::vector<PageCard> short_answers = {};  // a single one takes the whole width
  std::string command = {};                  // the command that does what the first of them says
  std::string trust_question = {};
  Text trust = {};           // how far the figures can be trusted
  std::string numbers = {};  // the file beside it that has the same numbers; empty: there is none
};

// `result`: as to_json() gives it, with `tables` in it.
std::string html_page(const PageHead& head, const Json& result, std::span<const Table> tables,
                      std::span<const PageTopic> topics, std::span<const PageSection> sections);

// Reads back the result that was given to html_page(); null where `page` is none. Error{kInput}
// naming `name` where it is damaged.
Json result_of_page(std::string_view page, const std::string& name);

}  // namespace tracestep
