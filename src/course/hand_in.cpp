#include "course/hand_in.h"

#include <algorithm>

#include "course/problems.h"
#include "lab/report/prose.h"
#include "lab/study/summary.h"

namespace tracestep {
namespace {

// Returns how an answer was measured: "large · context 512 … Measured on NVIDIA H200, n = 11, by".
std::string how_measured(const Answer& answer, const StudyReport& report,
                         const std::string& machine) {
  const std::string samples = samples_of_answer(answer, report.tables);
  std::string out = runs_of_answer(answer, report.tables);
  if (!out.empty()) out += ". ";
  if (answer.refused) return out + "To be measured by";
  if (samples.empty()) return out + "On " + machine + ", by";
  return out + "Measured on " + machine + ", " + samples + ", by";
}

// Writes the part of one problem: a heading, its answers, then its tables.
std::string problem_part(const Prose& prose, std::span<const Answer* const> answers,
                         const StudyReport& report, const std::string& machine,
                         const std::string& charts) {
  const std::string& number = answers.front()->number;
  const std::vector<ProblemTable> tables = tables_of_problem(number, report);
  const std::string_view name = name_of_problem(number);
  std::string out = prose.heading(
      2, name.empty() ? "Problem " + number : fmt::format("Problem {}: {}", number, name));
  for (const Answer* const a : answers) {
    const std::string how = prose.paragraph({}, how_measured(*a, report, machine), a->command),
                      said = prose.paragraph(a->lead.words(), a->more.words());
    // A refusal names the command below.
    out += prose.paragraph({}, a->question) + (a->refused ? said + how : how + said);
    if (!a->doubt.empty()) out += prose.paragraph({}, a->doubt.words());
    for (const Chart& chart : a->charts)
      out += prose.picture(charts + "/" + chart.name, chart.title);
    const bool is_replaced =
        std::ranges::find(tables, a->id, &ProblemTable::replaces) != tables.end();
    if (!a->lines.empty() && !is_replaced) out += prose.table(lines_of(*a));
  }
  for (const ProblemTable& each : tables) out += prose.table(each.table);
  return out;
}

}  // namespace

std::string course_page(const StudyReport& report, const Json& environment,
                        std::span<const OwnTime> own, Format format, const std::string& charts) {
  const Prose prose(format);
  std::string out = prose.begin("Assignment 2: profiling and benchmarking");
  for (const std::string& fact : summary_facts(report, environment)) out += prose.item(fact);
  out += prose.paragraph({},
                         "A time after which there is no ± is a median; ± is the standard "
                         "deviation around a mean. How many times one is as fast as another is the "
                         "median of their ratios in the rounds that timed both, so it may differ "
                         "from the ratio of their medians.");
  if (!own.empty()) {
    out += prose.heading(2, "My times");
    for (const Table& table : own_times_tables(own, report)) out += prose.table(table);
  }
  std::vector<const Answer*> asked;
  for (const Answer& a : report.answers) {
    if (!a.number.empty()) asked.push_back(&a);
  }
  std::ranges::stable_sort(asked, {}, [](const Answer* a) { return a->number; });
  const std::string machine = machine_in_short(environment);
  for (std::size_t begin = 0; begin < asked.size();) {
    std::size_t end = begin + 1;
    while (end < asked.size() && asked[end]->number == asked[begin]->number) ++end;
    out +=
        problem_part(prose, std::span(asked).subspan(begin, end - begin), report, machine, charts);
    begin = end;
  }
  return out + prose.end();
}

}  // namespace tracestep
