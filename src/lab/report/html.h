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

// The name of a chart that the page's own script draws: spans of work along a time axis, and below
// them the passes, modules and kernels that they belong to. Its table has the columns of lab/read's
// step_table().
inline constexpr const char* kWorkChart = "work";

// An answer on the page: its sentence and charts are shown, and the rest unfolds on a click.
struct PageCard {
  std::string id = {}, number = {}, question = {};
  Text lead = {}, more = {};
  std::vector<std::string> items = {};        // a numbered list, which its charts refer to
  std::vector<std::vector<Text>> lines = {};  // Rows of a small table; the first one is its head.
  std::vector<Chart> charts = {};
  // How far the answer's rows can be trusted, such as "noisy", and the reason.
  std::string standing = {}, doubt = {};
  std::vector<RowRef> rows = {};
  std::string command = {};
  bool is_extra = false;  // True if the card is folded away together with others of its kind.
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
  std::vector<std::string> facts = {};  // Place and time of the measurement.
  // Large figures: `lead` is the number, and the text says of what.
  std::vector<PageCard> tiles = {};
  // Answers in two columns; a single one takes the whole width.
  std::vector<PageCard> short_answers = {};
  std::string command = {};  // The command that carries out the first short answer.
  std::string trust_question = {};
  Text trust = {};  // How far the figures can be trusted.
  // The name of the file with the same numbers beside the page; empty: there is none.
  std::string numbers = {};
};

// Makes the page. `result`: as to_json() gives it, with `tables` in it.
std::string html_page(const PageHead& head, const Json& result, std::span<const Table> tables,
                      std::span<const PageTopic> topics, std::span<const PageSection> sections);

// Reads back the result that was given to html_page(); null where `page` is none. Throws
// Error{kInput} naming `name` where it is damaged.
Json result_of_page(std::string_view page, const std::string& name);

}  // namespace tracestep
