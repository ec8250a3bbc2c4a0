// The sections of a study by the pages of sections.md, in reading order: the cost of a step first,
// then the figures that explain it.
#include <algorithm>

#include "base/error.h"
#include "embedded/study_pages.h"
#include "lab/pages/page.h"
#include "lab/study/study.h"

namespace tracestep {
namespace {

const std::vector<pages::Page>& all_sections() {
  static const std::vector<pages::Page> all = pages::parse(study_pages::kSectionsMd);
  return all;
}

// Returns the name of a section's page: "memory-*" for "memory-small context 128 step".
std::string page_id(std::string_view id) {
  const std::size_t dash = id.find('-');
  return std::string(id.substr(0, dash)) + (dash == std::string_view::npos ? "" : "-*");
}

const pages::Page& page_of(std::string_view id) {
  const auto found = std::ranges::find_if(
      all_sections(), [&](const pages::Page& page) { return page.head[0] == page_id(id); });
  TRACESTEP_CHECK(found != all_sections().end(), "no section {}", id);
  return *found;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

}  // namespace

std::string text_of_section(std::string_view id, std::string_view label,
                            const SectionValues& values) {
  std::string out = page_of(id).text(label);
  for (const auto& [name, value] : values) out = replaced(out, "{" + name + "}", value);
  return out;
}

StudySection section(const std::string& id, std::vector<Table> tables,
                     const SectionValues& values) {
  const std::size_t dash = id.find('-');
  return {.id = id,
          .title = replaced(page_of(id).head[1], "*",
                            dash == std::string::npos ? "" : id.substr(dash + 1)),
          .reading = text_of_section(id, "Reading", values),
          .tables = std::move(tables)};
}

std::size_t place_of(const StudySection& section) {
  const auto found = std::ranges::find_if(all_sections(), [&](const pages::Page& page) {
    return page_id(page.head[0]) == page_id(section.id) || page.head[0] == section.id;
  });
  return static_cast<std::size_t>(found - all_sections().begin());
}

}  // namespace tracestep
