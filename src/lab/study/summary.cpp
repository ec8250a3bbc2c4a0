#include "lab/study/summary.h"

#include <algorithm>
#include <array>
#include <functional>

#include <fmt/ranges.h>

#include "base/units.h"
#include "embedded/summary_pages.h"
#include "lab/report/digits.h"
#include "lab/study/study.h"

namespace tracestep {
namespace {

std::string text_in(const Json& environment, std::string_view name) {
  const Json* value = environment.find(name);
  if (value == nullptr || value->is_null()) return {};
  return value->is_string() ? value->as_string() : value->dump();
}

// The date of a study: "2026-11-22 22:13 UTC" of "2026-11-22T22:13:48Z".
std::string date_of(const Json& environment) {
  const std::string date = text_in(environment, "date_utc");
  return date.size() < 16 ? date : date.substr(0, 10) + " " + date.substr(11, 5) + " UTC";
}

std::string machine_of(const Json& environment) {
  const std::string cpu = text_in(environment, "cpu"), threads = text_in(environment, "threads");
  std::string out = cpu;
  if (!threads.empty()) out += fmt::format(", {} thread{}", threads, threads == "1" ? "" : "s");
  const Json* memory = environment.find("memory_total_bytes");
  if (memory != nullptr && memory->is_int()) out += ", " + format_bytes(memory->as_int());
  return out;
}

PageCard card_of(const Answer& a) {
  return {.id = a.id,
          .number = a.number,
          .question = a.question,
          .lead = a.lead,
          .more = a.more,
          .lines = a.lines,
          .charts = a.charts,
          .standing = a.refused ? "refused" : std::string(name_of(a.standing)),
          .doubt = a.doubt.words(),
          .rows = a.rows,
          .command = a.command,
          .is_extra = a.number.empty()};
}

}  // namespace

std::span<const Question> summary_questions() {
  static const std::vector<Question> all = [] {
    std::vector<Question> out;
    for (const summary_pages::File& file : summary_pages::files()) {
      std::ranges::move(questions_in(file.text), std::back_inserter(out));
    }
    return out;
  }();
  return all;
}

std::string models_of(const StudyReport& report) {
  constexpr std::int64_t kBytes = 256;
  std::vector<std::string> out;
  for (const Table& table : report.tables) {
    const auto size = table.index_of("size"), vocab = table.index_of("vocab");
    // Where time was short, bytes alone may be known of a model.
    const bool is_of_models =
        table.name == "cells" || table.name == "steps" || table.name == "memory";
    if (!is_of_models || !size) continue;
    for (const auto& row : table.rows) {
      std::string name = row[*size].as_string();
      if (vocab && row[*vocab].is_int()) {
        const std::int64_t tokens = row[*vocab].as_int();
        name += fmt::format(" (vocabulary {}{})", grouped(tokens),
                            tokens == kBytes ? ": one token a byte" : "");
      }
      if (std::ranges::find(out, name) == out.end()) out.push_back(std::move(name));
    }
  }
  return fmt::format("{}", fmt::join(out, ", "));
}

std::string machine_in_short(const Json& environment) {
  const std::string gpu = text_in(environment, "gpu");
  const std::string out = gpu.empty() ? machine_of(environment) : gpu;
  return out.empty() ? "this machine" : out;
}

std::vector<std::string> summary_facts(const StudyReport& report, const Json& environment) {
  const std::string gpu = text_in(environment, "gpu"), commit = text_in(environment, "commit");
  std::vector<std::string> out = {
      gpu, machine_of(environment), "models: " + models_of(report), date_of(environment),
      text_in(environment, "tool") + (commit.empty() ? "" : ", commit " + commit)};
  std::erase(out, "");
  return out;
}

PageHead page_head(const StudyReport& report, const Json& environment) {
  PageHead out{.title = "A training step, measured",
               .facts = summary_facts(report, environment),
               .numbers = "study.json"};
  for (const Answer& a : report.summary) {
    if (a.topic == kTile) out.tiles.push_back(card_of(a));
    if (a.topic == kShort) out.short_answers.push_back(card_of(a));
    if (a.topic != kTrust) continue;
    out.trust_question = a.question;
    out.trust = a.text;
  }
  return out;
}

std::string numbered_topic(const Answer& first) {
  const std::string part = first.number.substr(0, first.number.find(' '));
  return (part.empty() ? "" : part + " ") + first.topic;
}

std::vector<PageTopic> page_topics(const StudyReport& report) {
  std::vector<PageTopic> out;
  std::string topic;
  for (const Answer& a : report.answers) {
    if (a.topic != topic) out.push_back({.title = numbered_topic(a)});
    topic = a.topic;
    out.back().cards.push_back(card_of(a));
  }
  // A topic that the handout does not ask about shows all its cards; otherwise it would show none.
  for (PageTopic& one : out) {
    const bool is_asked = std::ranges::any_of(one.cards, std::not_fn(&PageCard::is_extra));
    for (PageCard& card : one.cards) card.is_extra = card.is_extra && is_asked;
  }
  return out;
}

std::vector<PageSection> page_sections(const StudyReport& report) {
  std::vector<PageSection> out;
  for (const StudySection& section : report.sections) {
    out.push_back({.id = section.id, .title = section.title, .reading = section.reading});
    for (const Table& table : section.tables) out.back().tables.push_back(table.name);
  }
  return out;
}

std::vector<Chart> charts_of(const StudyReport& report) {
  std::vector<Chart> out;
  for (const auto* answers : {&report.summary, &report.answers}) {
    for (const Answer& a : *answers) out.insert(out.end(), a.charts.begin(), a.charts.end());
  }
  return out;
}

}  // namespace tracestep
