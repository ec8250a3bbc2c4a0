// The page of a report: its first screen, its answers as cards by topic, its tables by section.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lab/report/html.h"

namespace tracestep {

struct Answer;
struct Question;
struct StudyReport;

// The sentences of the first screen, as questions (lab/pages/summary/): tiles, four short answers,
// and how far to trust them.
std::span<const Question> summary_questions();
inline constexpr std::string_view kTile = "Tile", kShort = "Short", kTrust = "Trust";

// "AMD EPYC, 2 threads", "2026-11-22 22:13 UTC"; what is not known is left out.
std::vector<std::string> summary_facts(const StudyReport& report, const Json& environment);

// "NVIDIA H200", else the CPU with its threads.
std::string machine_in_short(const Json& environment);

// "1.1.3 Time": the topic of an answer, behind the number of its part of the handout.
std::string numbered_topic(const Answer& first);

// The page of a report, for html_page().
PageHead page_head(const StudyReport& report, const Json& environment);
std::vector<PageTopic> page_topics(const StudyReport& report);
std::vector<PageSection> page_sections(const StudyReport& report);

// Every chart of the report with its name, those of the first screen first.
std::vector<Chart> charts_of(const StudyReport& report);

}  // namespace tracestep
