#include "lab/fit/plan_page.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/units.h"
#include "lab/fit/plan.h"
#include "lab/memory/tables.h"
#include "lab/pages/first_answer.h"
#include "lab/report/html.h"
#include "lab/report/known_columns.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

constexpr const char *kChanges = "changes", *kParts = "parts";

const Table* filled(const std::vector<Table>& tables, std::string_view name) {
  const auto found = std::ranges::find(tables, name, &Table::name);
  return found == tables.end() || found->rows.empty() ? nullptr : &*found;
}

// A step that the page draws, with its figures and the name that it has on the page.
struct PlannedStep {
  RunSpec step;
  std::string name;  // "as asked for"
  std::optional<Prediction> time = {};
  std::int64_t peak_bytes = 0;

  std::string stack() const { return "stack@" + name; }
};

// Returns the step to draw; adds tables of its live bytes and, for the last, of holders and times.
PlannedStep shown_step(const FitQuestion& q, const RunSpec& step, std::string name, bool is_last,
                       std::vector<Table>& tables) {
  PlannedStep out{step, std::move(name)};
  const MemoryCell cell{.run = predict_memory(step, q.traits)};
  out.peak_bytes = cell.run.predicted_peak_bytes;
  tables.push_back(stack_table(cell));
  tables.back().name = out.stack();
  tables.back().title += ": " + out.name;
  if (q.times != nullptr)
    out.time.emplace(predict_program(step, cell.run.program, q.traits, *q.times));
  if (!is_last) return out;
  if (filled(tables, "holders") == nullptr) tables.push_back(holder_table(cell));
  if (out.time) tables.push_back(prediction_parts_table(*out.time));
  return out;
}

// Returns the steps to draw, and adds their tables: the proposed step, and the step as asked if it
// does not fit, unless the proposed one is shared among ranks in another way.
std::vector<PlannedStep> steps_of(const FitQuestion& q, const std::vector<Remedy>& plans,
                                  std::vector<Table>& tables) {
  const bool is_changed = !plans.empty() && !plans.front().command.empty();
  const bool has_asked =
      plans.empty() || (is_changed && plans.front().step.parallel == q.step.parallel);
  std::vector<PlannedStep> out;
  if (has_asked) out.push_back(shown_step(q, q.step, "as asked for", plans.empty(), tables));
  if (plans.empty()) return out;
  out.push_back(shown_step(q, repeated_part(plans.front()),
                           is_changed ? "as proposed" : "as asked for", true, tables));
  return out;
}

PageCard card(const std::string& id, const std::string& question, const std::string& lead,
              std::vector<Chart> charts) {
  PageCard out{.id = id, .question = question, .standing = "sound"};
  out.lead = Text(lead.c_str());
  out.charts = std::move(charts);
  return out;
}

PageCard bytes_card(const FitQuestion& q, const std::vector<PlannedStep>& steps) {
  Json limit = Json::object();
  limit["limit"] = q.limit_bytes;
  std::string lead;
  std::vector<Chart> charts;
  for (const PlannedStep& one : steps) {
    lead += fmt::format("{}{} it peaks at {}", lead.empty() ? "" : "; ", one.name,
                        format_bytes(one.peak_bytes));
    charts.push_back({.kind = "timeline",
                      .title = "Live bytes, " + one.name,
                      .table = one.stack(),
                      .options = limit});
  }
  lead.front() = 'A';  // of "as"
  return card("bytes", "Where are the bytes of the step?",
              lead + fmt::format(", of {}.", format_bytes(q.limit_bytes)), std::move(charts));
}

// Says which part takes the most time, and how much.
std::string longest_part(const Prediction& prediction) {
  const auto& parts = prediction.time.parts;
  const auto longest = std::ranges::max_element(parts, {}, &PredictedPart::ms);
  if (longest == parts.end()) return "Nothing takes time.";
  std::string out = fmt::format("The most goes to {} in {}: {:.0f} % of {}.", longest->component,
                                name_of(longest->phase), 100 * longest->ms / prediction.time.ms,
                                format_duration_ms(prediction.time.ms));
  if (prediction.time.beside_ms > 0) {
    out += fmt::format(" The parts add up to more, as {} of them run beside others.",
                       format_duration_ms(prediction.time.beside_ms));
  }
  return out;
}

// Adds a table of the plans whose first column numbers them; the charts name a plan by its number.
void add_changes(const std::vector<Table>& from, std::vector<Table>& tables) {
  const Table* table = filled(from, "remedies");
  if (table == nullptr) table = filled(from, "plan");
  if (table == nullptr || table->rows.size() < 2) return;
  Table out = *table;
  out.name = kChanges;
  out.title += ", by number";
  out.columns.insert(out.columns.begin(), col::number);
  for (std::size_t i = 0; i < out.rows.size(); ++i) {
    out.rows[i].insert(out.rows[i].begin(), std::to_string(i + 1));
  }
  tables.push_back(std::move(out));
}

PageCard price_card(const Table& changes, const std::vector<Remedy>& plans) {
  const auto bars = [&](const char* column, const char* title) {
    return Chart{.kind = "bars",
                 .title = title,
                 .table = kChanges,
                 .options = Json::parse(
                     fmt::format(R"({{"label":["number"],"values":["{}"]}})", column), "chart")};
  };
  const auto has = [&](std::string_view name) {
    return std::ranges::find(changes.columns, name, &Column::name) != changes.columns.end();
  };
  std::vector<Chart> charts;
  if (has("time_per_token")) charts.push_back(bars("time_per_token", "Time for a token"));
  if (has("tokens_per_s")) charts.push_back(bars("tokens_per_s", "Tokens a second"));
  charts.push_back(bars("peak_bytes", "Peak"));
  PageCard out = card("price", "What does each change cost?",
                      "Each of these fits; the first is the smallest change.", std::move(charts));
  for (const Remedy& plan : plans) out.items.push_back(plan.command);
  return out;
}

std::vector<PageCard> cards_of(const FitQuestion& q, const std::vector<PlannedStep>& steps,
                               const std::vector<Remedy>& plans, const std::vector<Table>& tables) {
  std::vector<PageCard> out{bytes_card(q, steps)};
  if (filled(tables, kParts) != nullptr && steps.back().time) {
    const Json bars = Json::parse(
        R"({"label":["phase","component"],"values":["ms"],"top":14,
                "skip":["total","beside other kernels"]})",
        "chart");
    out.push_back(
        card("time", "Where does its time go?", longest_part(*steps.back().time),
             {{.kind = "bars", .title = "Time by part", .table = kParts, .options = bars}}));
  }
  if (const Table* changes = filled(tables, kChanges)) out.push_back(price_card(*changes, plans));
  return out;
}

std::string commands_of(const std::vector<Remedy>& plans) {
  std::string out = "The step that is proposed comes first.\n\n```\n";
  for (const Remedy& plan : plans) out += command_of(plan) + '\n';
  return out + "```\n";
}

PageCard tile(std::string what, std::string figure, std::string more) {
  PageCard out{.question = std::move(what), .standing = "sound"};
  out.lead = Text(figure.c_str());
  out.more = Text(more.c_str());
  return out;
}

// Makes tiles of peak, time and speed of the step that is proposed, or that was asked for.
std::vector<PageCard> tiles_of(const FitQuestion& q, const PlannedStep& step,
                               const std::vector<Remedy>& plans) {
  const bool is_shared = step.step.parallel.is_on();
  std::vector<PageCard> out{tile(is_shared ? "peak of each device" : "peak",
                                 format_bytes(step.peak_bytes),
                                 "of " + format_bytes(q.limit_bytes))};
  if (!step.time) return out;
  const double ms = plans.empty() ? step.time->time.ms : plans.front().figures.ms;
  const BatchShape shape = plans.empty() ? step.step.shape : plans.front().step.shape;
  const double tokens = static_cast<double>(shape.batch * shape.context);
  out.push_back(tile("time of a step", format_duration_ms(ms),
                     fmt::format("for {} tokens", format_count(tokens))));
  out.push_back(
      tile("tokens a second", format_count(1e3 * tokens / ms), is_shared ? "of all devices" : ""));
  return out;
}

// The title of a plan: "qwen2.5-7b: batch 16, context 2048, bf16, step".
std::string title_of_plan(const RunSpec& step) {
  return fmt::format("{}: batch {}, context {}, {}, {}", step.model.name, step.shape.batch,
                     step.shape.context, name_of(step.precision), name_of(step.mode));
}

}  // namespace

std::string plan_page(const FitQuestion& q, const std::vector<Remedy>& plans,
                      std::vector<Table> tables, const Json& environment) {
  const auto answer = pages::first_answer(kFitSchema, tables, environment);
  add_changes(std::vector(tables), tables);
  const std::vector<PlannedStep> steps = steps_of(q, plans, tables);
  RunSpec named = q.step;
  if (!plans.empty()) named.model = plans.front().step.model;
  if (!plans.empty() && !plans.front().changes.empty()) named.shape = q.step.shape;
  PageHead head{.title = title_of_plan(named),
                .facts = {fmt::format("a limit of {}, of which {:.3g} % are left free",
                                      format_bytes(q.limit_bytes), 100 * q.margin),
                          "predicted from the program: nothing was run"},
                .tiles = tiles_of(q, steps.back(), plans),
                .command = plans.empty() ? command_of(q.step) : command_of(plans.front())};
  if (answer) {
    const bool is_largest = std::ranges::any_of(
        tables, [](const Table& table) { return table.name.starts_with("largest"); });
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
      {.title = "The step", .cards = cards_of(q, steps, plans, tables)}};
  const Json result = to_json({kFitSchema, environment, tables});
  return html_page(head, result, tables, topics, sections);
}

}  // namespace tracestep
