#include "cli/plan_page.h"

#include <fmt/format.h>

#include "base/units.h"
#include "lab/memory/fit.h"
#include "lab/memory/tables.h"
#include "lab/pages/first_answer.h"
#include "lab/report/html.h"
#include "spec/fields.h"

namespace tracestep::cli {
namespace {

bool has(const std::vector<Table>& tables, std::string_view name) {
  const auto found = std::ranges::find(tables, name, &Table::name);
  return found != tables.end() && !found->rows.empty();
}

// The tables of the step that is proposed: its live bytes, and its time by part.
void add_step_tables(const FitQuestion& q, const RunSpec& step, std::vector<Table>& tables) {
  const MemoryCell cell{.run = predict_memory(step, q.traits)};
  tables.push_back(stack_table(cell));
  if (!has(tables, "holders")) tables.push_back(holder_table(cell));  // else what the least has
  if (q.times == nullptr) return;
  const Prediction prediction = predict_program(step, cell.run.program, q.traits, *q.times);
  tables.push_back(prediction_parts_table(prediction));
}

PageCard card(const std::string& id, const std::string& question, const std::string& lead,
              std::vector<Chart> charts) {
  PageCard out{.id = id, .question = question, .standing = "sound"};
  out.lead = Text(lead.c_str());
  out.charts = std::move(charts);
  return out;
}

std::vector<PageCard> cards_of(const FitQuestion& q, const std::vector<Table>& tables,
                               const std::string& step) {
  std::vector<PageCard> out;
  Json limit = Json::object();
  limit["limit"] = q.limit_bytes;
  out.push_back(
      card("bytes", "Where are the bytes of the step?",
           "Live bytes of " + step + ", kernel by kernel, and the end of the memory.",
           {{.kind = "timeline", .title = "Live bytes", .table = "stack", .options = limit}}));
  if (has(tables, "parts")) {
    const Json bars = Json::parse(
        R"({"label":["phase","component"],"values":["ms"],"top":14,"skip":["total"]})", "chart");
    out.push_back(
        card("time", "Where does its time go?", "Predicted, all layers added up.",
             {{.kind = "bars", .title = "Time by part", .table = "parts", .options = bars}}));
  }
  if (has(tables, "remedies")) {
    const auto bars = [](const char* column) {
      return Json::parse(fmt::format(R"({{"label":["flags"],"values":["{}"]}})", column), "chart");
    };
    out.push_back(card(
        "price", "What does each change cost?",
        "Time for a token, as a multiple of the step as asked for; and the peak.",
        {{.kind = "bars",
          .title = "Time for a token",
          .table = "remedies",
          .options = bars("time_per_token")},
         {.kind = "bars", .title = "Peak", .table = "remedies", .options = bars("peak_bytes")}}));
  }
  return out;
}

std::string commands_of(const std::vector<Remedy>& plans) {
  std::string out = "The step that is proposed comes first.\n\n```\n";
  for (const Remedy& plan : plans) out += command_of(plan) + '\n';
  return out + "```\n";
}

}  // namespace

std::string plan_page(const FitQuestion& q, const std::vector<Remedy>& plans,
                      std::vector<Table> tables, const Json& environment) {
  const RunSpec step = plans.empty() ? q.step : repeated_part(plans.front());
  add_step_tables(q, step, tables);
  const auto answer = pages::first_answer(kFitSchema, tables, environment);
  PageHead head{.title = "Plan of a training step",
                .facts = {label_of(step.model == q.step.model ? q.step : step),
                          fmt::format("a limit of {}, of which {:.3g} % are left free",
                                      format_bytes(q.limit_bytes), 100 * q.margin),
                          "predicted from the program: nothing was run"}};
  if (answer) {
    const bool is_largest = has(tables, "largest") || has(tables, "largest_model");
    head.short_answers = {
        card("answer", is_largest ? "How large can it be?" : "Does it fit?", answer->sentence, {})};
  }
  std::vector<PageSection> sections;
  if (!plans.empty()) {
    sections.push_back({.id = "commands", .title = "Commands", .reading = commands_of(plans)});
  }
  PageSection numbers{.id = "numbers", .title = "Tables"};
  for (const Table& table : tables) numbers.tables.push_back(table.name);
  sections.push_back(std::move(numbers));
  const std::vector<PageTopic> topics{
      {.title = "The step", .cards = cards_of(q, tables, label_of(step))}};
  const Json result = to_json({kFitSchema, environment, tables});
  return html_page(head, result, tables, topics, sections);
}

}  // namespace tracestep::cli
