// Makes the page of a report: its first screen, its answers as cards by topic, and its tables by
// section.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lab/report/html.h"

namespace tracestep {

struct Answer;
struct Question;
struct StudyReport;

// The questions whose answers are the sentences of the first screen (lab/pages/summary/): tiles,
// four short answers, and how far to trust them.
std::span<const Question> summary_questions();
inline constexpr std::string_view kTile = "Tile", kShort = "Short", kTrust = "Trust";

// Facts of the machine and the time: "AMD EPYC, 2 threads", "2026-11-22 22:13 UTC". Unknown facts
// are left out.
std::vector<std::string> summary_facts(const StudyReport& report, const Json& environment);

// The machine's GPU ("NVIDIA H200"), else its CPU with the number of threads.
std::string machine_in_short(const Json& environment);

// The topic of an answer with the number of its part of the course handout: "1.1.3 Time".
std::string numbered_topic(const Answer& first);

// The page of a report, for html_page().
PageHead page_head(const StudyReport& report, const Json& environment);
std::vector<PageTopic> page_topics(const StudyReport& report);
std::vector<PageSection> page_sections(const StudyReport& report);

// Every chart of the report with a file name, those of the first screen first.
std::vector<Chart> charts_of(const StudyReport& report);

}  // namespace tracestep
