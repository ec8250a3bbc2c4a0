#include "lab/read/read_page.h"

#include <algorithm>

#include "lab/pages/first_answer.h"
#include "lab/report/html.h"

namespace tracestep {
namespace {

bool has_rows(const std::vector<Table>& tables, std::string_view name) {
  const auto found = std::ranges::find(tables, name, &Table::name);
  return found != tables.end() && !found->rows.empty();
}

PageCard card_of(const Chart& chart, std::string id) {
  const std::size_t end = chart.title.find_last_not_of(": ");  // the colon is for a name of a cell
  PageCard out{
      .id = std::move(id), .question = chart.title.substr(0, end + 1), .standing = "sound"};
  out.charts = {chart};
  return out;
}

// The page's cards: the step, or the memory, along time; then the charts of the answer.
std::vector<PageCard> cards_of(const std::vector<Table>& tables, const Json& environment) {
  std::vector<PageCard> out;
  for (const Table& table : tables) {
    if (table.name == "step" && !table.rows.empty()) {
      out.push_back(
          card_of({.kind = kWorkChart, .title = table.title, .table = table.name}, "step"));
    } else if (table.name.starts_with("stack@") && !table.rows.empty()) {
      out.push_back(card_of(
          {.kind = "timeline",
           .title = table.title,
           .table = table.name,
           .options = Json::parse(R"({"row":"event, the fullest of each stretch"})", "chart")},
          "held"));
    }
  }
  for (const Chart& chart : pages::answer_charts(kReadSchema, tables, environment)) {
    out.push_back(card_of(chart, "chart-" + std::to_string(out.size())));
  }
  return out;
}

}  // namespace

std::string read_page(const std::string& title, std::vector<Table> tables,
                      const Json& environment) {
  PageHead head{.title = title};
  if (const auto answer = pages::first_answer(kReadSchema, tables, environment)) {
    PageCard first{.id = "answer",
                   .question = has_rows(tables, "snapshot") ? "Who holds the memory?"
                                                            : "Where does the time go?",
                   .standing = "sound"};
    first.lead = Text(answer->sentence.c_str());
    head.short_answers = {std::move(first)};
  }
  for (const Table& table : tables) {
    for (const std::string& note : table.notes) head.facts.push_back(note);
  }
  PageSection numbers{.id = "numbers", .title = "Tables"};
  for (const Table& table : tables) numbers.tables.push_back(table.name);
  const std::vector<PageTopic> topics{
      {.title = "The recording", .cards = cards_of(tables, environment)}};
  const std::vector<PageSection> sections{std::move(numbers)};
  return html_page(head, to_json({kReadSchema, environment, tables}), tables, topics, sections);
}

}  // namespace tracestep
