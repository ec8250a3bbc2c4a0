// The report of a study as text: study.md, and the answers for a terminal.
#include <fmt/format.h>

#include "lab/report/prose.h"
#include "lab/study/study.h"
#include "lab/study/summary.h"

namespace tracestep {
namespace {

// "1.1.3 b: " before the question.
std::string numbered(const Answer& a) {
  return a.number.empty() ? a.question : fmt::format("{}: {}", a.number, a.question);
}

std::string answers_page(const Prose& prose, std::span<const Answer> answers) {
  std::string out, topic;
  for (const Answer& a : answers) {
    if (a.topic != topic) out += prose.heading(3, topic = a.topic);
    std::string text = a.text.words() + '\n';
    if (!a.refused) text += fmt::format("Rests on {}{}; ", rests_on(a), warning_of(a));
    text += a.refused ? "Measure it with" : "measure again with";
    out += prose.paragraph(numbered(a), text, a.command);
  }
  return out;
}

// What the first screen of the page says.
std::string summary_page(const Prose& prose, const StudyReport& report, const Json& environment) {
  std::string out;
  for (const auto& [name, value] : summary_facts(report, environment)) {
    out += prose.item(fmt::format("{}: {}", name, value));
  }
  for (std::string_view topic : {kResults, kTrust}) {
    out += prose.heading(2, topic == kResults ? "Results" : "How far to trust them");
    for (const Answer& a : report.summary) {
      if (a.topic == topic)
        out += prose.item(a.text.words() + (topic == kResults ? warning_of(a) : ""));
    }
  }
  return out;
}

}  // namespace

std::string answers_text(std::span<const Answer> answers) {
  std::string out, topic;
  for (const Answer& a : answers) {
    if (a.topic != topic) out += fmt::format("\n== {}\n", topic = a.topic);
    out += fmt::format("\n{}{}\n  {}\n", numbered(a), warning_of(a), a.text.words());
  }
  return out;
}

std::string study_page(const StudyReport& report, const Json& environment, Format format) {
  const Prose prose(format);
  std::string out = prose.begin("A training step, measured");
  out += prose.paragraph(
      {},
      "Written by tracestep study. study.html has the same with charts; the numbers, with every "
      "sample and some longer tables, are in study.json.");
  out += '\n' + summary_page(prose, report, environment);
  out += prose.heading(2, "Questions and answers") + answers_page(prose, report.answers);
  for (const StudySection& section : report.sections) {
    out += prose.heading(2, section.title) + prose.reading(section.reading);
    for (std::size_t i = 0; i < std::min(section.shown, section.tables.size()); ++i) {
      const Table& table = section.tables[i];
      if (format == Format::kMarkdown || table.rows.size() <= kMostRowsShown) {
        out += prose.table(table);
      }
    }
  }
  out += prose.heading(2, "Where this was measured");
  return out + prose.table(key_value_table("environment", "", environment)) + prose.end();
}

}  // namespace tracestep
