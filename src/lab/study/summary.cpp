#include "lab/study/summary.h"

#include <algorithm>
#include <array>

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

// "2026-11-22 22:13 UTC" of "2026-11-22T22:13:48Z".
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

// "tiny (vocabulary 256), small (vocabulary 10,000)": the models of its timed steps.
std::string models_of(const StudyReport& report) {
  std::vector<std::string> out;
  for (const Table& table : report.tables) {
    constexpr std::array<std::string_view, 5> kTimed = {"cells", "ways", "warmup", "clocks",
                                                        "steps"};
    if (std::ranges::find(kTimed, table.name) == kTimed.end()) continue;
    for (const auto& row : table.rows) {
      std::string model = row[table.index_of("size").value()].as_string();
      if (const Json& vocab = row[table.index_of("vocab").value()]; vocab.is_int()) {
        model += fmt::format(" (vocabulary {})", grouped(vocab.as_int()));
      }
      if (std::ranges::find(out, model) == out.end()) out.push_back(std::move(model));
    }
  }
  return fmt::format("{}", fmt::join(out, ", "));
}

std::string answered(const StudyReport& report) {
  const auto refused = std::ranges::count(report.answers, true, &Answer::refused);
  return fmt::format("{} of {}", std::ssize(report.answers) - refused, report.answers.size());
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

std::vector<std::pair<std::string, std::string>> summary_facts(const StudyReport& report,
                                                               const Json& environment) {
  const std::string gpu = text_in(environment, "gpu"), commit = text_in(environment, "commit");
  std::vector<std::pair<std::string, std::string>> out = {
      {"machine", machine_of(environment)},
      {"device", gpu.empty() ? "CPU" : gpu},
      {"date", date_of(environment)},
      {"version", text_in(environment, "tool") + (commit.empty() ? "" : ", commit " + commit)},
      {"models timed", models_of(report)},
      {"questions answered", answered(report)}};
  std::erase_if(out, [](const auto& fact) { return fact.second.empty(); });
  return out;
}

Text first_screen_text(const Answer& answer) {
  Text out;
  if (answer.refused) out += Text(Piece{answer.question + " "});
  out += answer.text;
  if (answer.topic == kResults) out += Text(Piece{warning_of(answer)});
  return out;
}

PageHead page_head(const StudyReport& report, const Json& environment) {
  PageHead out{.title = "A training step, measured", .facts = summary_facts(report, environment)};
  for (const Answer& a : report.summary) {
    (a.topic == kResults ? out.results : out.trust).push_back(first_screen_text(a));
  }
  for (const StudySection& section : report.sections) {
    for (const Chart& chart : section.charts) {
      if (!chart.is_headline) continue;
      out.charts.push_back(chart);
      if (!label_of(chart).empty()) out.charts.back().title += ": " + label_of(chart);
    }
  }
  return out;
}

std::vector<PageSection> page_sections(const StudyReport& report) {
  std::vector<PageSection> out;
  for (const StudySection& section : report.sections) {
    PageSection page{.id = section.id, .title = section.title, .reading = section.reading};
    std::ranges::remove_copy_if(section.charts, std::back_inserter(page.charts),
                                &Chart::is_headline);
    for (std::size_t i = 0; i < section.tables.size(); ++i) {
      const Table& table = section.tables[i];
      const bool is_shown = i < section.shown && table.rows.size() <= kMostRowsShown;
      (is_shown ? page.tables : page.data).push_back(table.name);
    }
    out.push_back(std::move(page));
  }
  return out;
}

}  // namespace tracestep
