// What a reader of a report sees first: where it was measured, five sentences of result, how far
// the figures can be trusted; and the plan of its page.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lab/report/html.h"

namespace tracestep {

struct Answer;
struct Question;
struct StudyReport;

// The most rows of a table that a page shows before they are asked for, and that print has.
inline constexpr std::size_t kMostRowsShown = 25;

// The sentences, as questions (lab/pages/summary/): of topic kResults, then kTrust.
std::span<const Question> summary_questions();
inline constexpr std::string_view kResults = "Results", kTrust = "Trust";

// "date", "2026-11-22"; what is not known is left out.
std::vector<std::pair<std::string, std::string>> summary_facts(const StudyReport& report,
                                                               const Json& environment);

// An answer as the first screen has it: with its question where there is none, and results with
// what their rows are worth.
Text first_screen_text(const Answer& answer);

// The page of a report, for html_page().
PageHead page_head(const StudyReport& report, const Json& environment);
std::vector<PageSection> page_sections(const StudyReport& report);

}  // namespace tracestep
