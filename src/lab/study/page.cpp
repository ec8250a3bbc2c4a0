// The report of a study as text: study.md, and the answers for a terminal.
#include <fmt/format.h>

#include "lab/study/study.h"

namespace tracestep {
namespace {

// " (doubtful)": what the rows of an answer are worth, unless they are sound.
std::string warning(const Answer& a) {
  if (a.refused || a.standing == Standing::kSound) return {};
  return fmt::format(" ({})", name_of(a.standing));
}

std::string answers_page(std::span<const Answer> answers) {
  std::string out, topic;
  for (const Answer& a : answers) {
    if (a.topic != topic) out += fmt::format("\n### {}\n", topic = a.topic);
    out += fmt::format("\n**{}** {}\n", a.question, a.text.words());
    if (!a.refused) out += fmt::format("Rests on {}{}; ", rests_on(a), warning(a));
    out +=
        fmt::format("{} `{}`.\n", a.refused ? "Measure it with" : "measure again with", a.command);
  }
  return out;
}

}  // namespace

std::string answers_text(std::span<const Answer> answers) {
  std::string out, topic;
  for (const Answer& a : answers) {
    if (a.topic != topic) out += fmt::format("\n== {}\n", topic = a.topic);
    out += fmt::format("\n{}{}\n  {}\n", a.question, warning(a), a.text.words());
  }
  return out;
}

std::string study_page(const StudyReport& report, const Json& environment) {
  std::string out =
      "# A training step, measured\n\n"
      "Written by `tracestep study`. `study.html` has the same with charts; the numbers, with "
      "every "
      "sample and some longer tables, are in `study.json`.\n\n## Questions and answers\n";
  out += answers_page(report.answers);
  for (const StudySection& section : report.sections) {
    out += fmt::format("\n## {}\n\n{}\n", section.title, section.reading);
    for (std::size_t i = 0; i < std::min(section.shown, section.tables.size()); ++i) {
      out += '\n';
      out += to_string({"", Json::object(), {section.tables[i]}}, Format::kMarkdown);
    }
  }
  out += "\n## Where this was measured\n\n";
  out += to_string({"", Json::object(), {key_value_table("environment", "", environment)}},
                   Format::kMarkdown);
  return out;
}

}  // namespace tracestep
