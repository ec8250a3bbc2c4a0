// The report of a study as text: study.md, and the answers for a terminal.
#include <set>

#include <fmt/format.h>

#include "base/utf8.h"
#include "lab/report/columns.h"
#include "lab/report/prose.h"
#include "lab/report/writers.h"
#include "lab/study/study.h"
#include "lab/study/summary.h"

namespace tracestep {
namespace {

constexpr std::size_t kMostRows = 25;  // of a table in Markdown

// Returns the question, after its number in the course handout if it has one: "1.1.3 b: …".
std::string numbered(const Answer& a) {
  return a.number.empty() ? a.question : fmt::format("{}: {}", a.number, a.question);
}

// Writes an answer: its first sentence in bold, charts, the rest of its text, its table, its rows.
std::string answer_part(const Prose& prose, const Answer& a, const std::string& charts) {
  std::string out = prose.paragraph({}, numbered(a));
  out += prose.paragraph(a.lead.words(), {});
  for (const Chart& chart : a.charts) out += prose.picture(charts + "/" + chart.name, chart.title);
  if (!a.more.empty()) out += prose.paragraph({}, a.more.words());
  if (!a.lines.empty()) out += prose.table(lines_of(a));
  std::string trust =
      a.refused ? "Measure it with" : "Rests on " + rests_on(a) + "; measure again with";
  if (!a.doubt.empty()) trust = a.doubt.words() + " " + trust;
  return out + prose.paragraph({}, trust, a.command);
}

std::string answers_page(const Prose& prose, std::span<const Answer> answers,
                         const std::string& charts) {
  std::string out, topic;
  for (const Answer& a : answers) {
    if (a.topic != topic) out += prose.heading(2, numbered_topic(a));
    topic = a.topic;
    out += answer_part(prose, a, charts);
  }
  return out;
}

// Returns the length to which names, cut in the middle, stay apart from each other; at most 400.
std::size_t length_that_tells(const std::set<std::string>& names) {
  constexpr std::size_t kLeast = 100, kMost = 400;
  for (std::size_t length = kLeast; length < kMost; length += kLeast / 2) {
    std::set<std::string> cut;
    for (const std::string& name : names) cut.insert(message_line(name, length));
    if (cut.size() == names.size()) return length;
  }
  return kMost;
}

// Cuts names of kernels in the middle: those of templates have hundreds of letters.
void cut_kernel_names(Table& table) {
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const std::string& name = table.columns[i].name;
    if (name != "Name" && !name.ends_with("kernel")) continue;
    std::set<std::string> names;
    for (const std::vector<Json>& row : table.rows) {
      if (row[i].is_string()) names.insert(row[i].as_string());
    }
    const std::size_t length = length_that_tells(names);
    for (std::vector<Json>& row : table.rows) {
      if (row[i].is_string()) row[i] = message_line(row[i].as_string(), length);
    }
  }
}

// The table as answers cite it: under its name, its rows numbered.
Table with_numbers(Table table) {
  cut_kernel_names(table);
  table.title += fmt::format("{}[{}]", table.title.empty() ? "" : " ", table.name);
  table.columns.insert(table.columns.begin(), int_column("row", "row"));
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    table.rows[i].insert(table.rows[i].begin(), static_cast<std::int64_t>(i + 1));
  }
  return table;
}

// Returns an answer's text, after "~" or "✗" if its rows are not sound; a tile's as a sentence.
std::string short_words(const Answer& a) {
  const bool is_said = !a.refused && a.standing != Standing::kSound;
  const std::string sign = !is_said ? "" : a.standing == Standing::kInvalid ? "✗ " : "~ ";
  if (a.topic != kTile || a.refused) return sign + a.text.words();
  return fmt::format("{}{}. {}", sign, a.lead.words(), a.more.words());
}

// Writes the text of the page's first screen.
std::string summary_page(const Prose& prose, const StudyReport& report, const Json& environment,
                         const std::string& charts) {
  std::string out, trust;
  for (const std::string& fact : summary_facts(report, environment)) out += prose.item(fact);
  for (const Answer& a : report.summary) {
    if (a.topic == kTrust) trust = prose.paragraph(a.question, a.text.words());
    if (a.topic != kTile) continue;
    out += prose.paragraph(a.question + ":", short_words(a));
  }
  for (const Answer& a : report.summary) {
    if (a.topic != kShort) continue;
    out += prose.paragraph(a.question, short_words(a));
    for (const Chart& chart : a.charts)
      out += prose.picture(charts + "/" + chart.name, chart.title);
  }
  return out + trust;
}

}  // namespace

std::string summary_text(const StudyReport& report, std::size_t columns) {
  const auto refused = std::ranges::count_if(report.answers, &Answer::refused);
  const auto sound = std::ranges::count_if(
      report.answers, [](const Answer& a) { return !a.refused && a.standing == Standing::kSound; });
  std::string out =
      fmt::format("Of {} questions {} are answered, {} of them from rows without a doubt.\n",
                  report.answers.size(), std::ssize(report.answers) - refused, sound);
  std::string topic;
  for (const Answer& a : report.summary) {
    if (a.refused) continue;
    if (a.topic != topic) out += '\n';
    topic = a.topic;
    const std::string text = (a.topic == kTile ? ": " : " ") + short_words(a);
    for (const std::string& line : in_lines(a.question + text, columns)) {
      out += line + '\n';
    }
  }
  return out;
}

std::string answers_text(std::span<const Answer> answers) {
  std::string out, topic;
  for (const Answer& a : answers) {
    if (a.topic != topic) out += fmt::format("\n== {}\n", topic = a.topic);
    out += fmt::format("\n{}{}\n  {}\n", numbered(a), warning_of(a), a.text.words());
    if (a.lines.empty()) continue;
    out += to_string({"", Json::object(), {lines_of(a)}}, Format::kText);
  }
  return out;
}

std::string study_page(const StudyReport& report, const Json& environment, Format format,
                       const std::string& charts) {
  const Prose prose(format);
  std::string out = prose.begin("A training step, measured");
  out += '\n' + summary_page(prose, report, environment, charts);
  out += answers_page(prose, report.answers, charts);
  if (format == Format::kMarkdown) {
    out += prose.paragraph({},
                           "Each table has its name in study.json in brackets; the rows that "
                           "answers rest on are counted from 1.");
    for (const StudySection& section : report.sections) {
      out += prose.heading(2, section.title) + prose.reading(section.reading);
      for (const Table& table : section.tables) {
        if (table.rows.size() <= kMostRows) out += prose.table(with_numbers(table));
      }
    }
  }
  out += prose.heading(2, "Where this was measured");
  return out + prose.table(key_value_table("environment", "", environment)) + prose.end();
}

}  // namespace tracestep
