#include "lab/measure/marks.h"

#include <algorithm>
#include <array>

#include <fmt/ranges.h>

#include "lab/measure/validity.h"

namespace tracestep {
namespace {

enum class Mark {
  kNone,        // not measured
  kSound,       // notes at most
  kNoisy,       // less certain than it looks
  kImpossible,  // contradicts arithmetic, beyond what noise explains
};

Mark mark_of(std::string_view verdict) {
  if (verdict.empty()) return Mark::kNone;
  const Severity worst = read_summary(verdict).worst.value_or(Severity::kNote);
  return static_cast<Mark>(1 + static_cast<int>(worst));  // as many are sound, noisy or impossible
}

struct Sign {
  const char *utf8, *ascii, *words;
};
constexpr std::array<Sign, 4> kSigns = {
    {{"", "", ""}, {"✓", "+", "sound"}, {"~", "~", "noisy"}, {"✗", "x", "impossible"}}};

const Sign& sign_of(Mark mark) {
  return kSigns[static_cast<std::size_t>(mark)];
}

bool is_of_checker(const std::string& note) {
  return read_summary(note).worst || is_count_of_sound_rows(note);
}

// Says why rows are marked: "~ noisy, 3 rows: fewer than six samples; other programs ran".
std::string reason(Mark mark, std::size_t rows, const std::vector<std::string>& codes,
                   bool has_utf8) {
  const Sign& sign = sign_of(mark);
  return fmt::format("{} {}, {} row{}: {}", has_utf8 ? sign.utf8 : sign.ascii, sign.words, rows,
                     rows == 1 ? "" : "s", fmt::join(words_of_codes(codes), "; "));
}

// Turns "doubt: tiny step: the samples … (unsteady)" into "~ noisy: tiny step: the samples …".
std::string in_words(std::string note, bool has_utf8) {
  const Mark mark = mark_of(note);
  if (!is_of_checker(note) || mark == Mark::kSound) return note;
  const std::size_t code = note.rfind(" (");
  if (code != std::string::npos && note.ends_with(')')) note.erase(code);
  const Sign& sign = sign_of(mark);
  return fmt::format("{} {}{}", has_utf8 ? sign.utf8 : sign.ascii, sign.words,
                     note.substr(note.find(':')));
}

}  // namespace

void mark_verdicts(Table& table, bool has_utf8) {
  const auto found = std::ranges::find_if(table.columns, is_verdict_column);
  if (found == table.columns.end()) {
    std::ranges::stable_partition(table.notes, [](auto& note) { return !is_of_checker(note); });
    for (std::string& note : table.notes) note = in_words(std::move(note), has_utf8);
    return;
  }
  const auto column = static_cast<std::size_t>(found - table.columns.begin());
  std::array<std::vector<std::string>, kSigns.size()> codes;
  std::array<std::size_t, kSigns.size()> counts{};
  for (auto& cells : table.rows) {
    const std::string verdict = cells[column].is_string() ? cells[column].as_string() : "";
    const Mark mark = mark_of(verdict);
    const auto at = static_cast<std::size_t>(mark);
    ++counts[at];
    for (std::string& code : read_summary(verdict).codes) {
      const bool is_new = std::ranges::find(codes[at], code) == codes[at].end();
      if (is_new) codes[at].push_back(std::move(code));
    }
    const Sign& sign = sign_of(mark);
    cells.erase(cells.begin() + static_cast<std::ptrdiff_t>(column));
    cells.insert(cells.begin(), Json(has_utf8 ? sign.utf8 : sign.ascii));
  }
  table.columns.erase(found);
  if (counts[0] == table.rows.size()) {
    for (auto& cells : table.rows) cells.erase(cells.begin());
    return;
  }
  // The blank is its header; an empty one would be the column's name.
  table.columns.insert(table.columns.begin(), {.name = "mark", .title = " ", .is_result = true});
  std::erase_if(table.notes, is_of_checker);
  std::vector<std::string> reasons;
  for (const Mark mark : {Mark::kImpossible, Mark::kNoisy}) {
    const auto at = static_cast<std::size_t>(mark);
    if (counts[at] > 0) reasons.push_back(reason(mark, counts[at], codes[at], has_utf8));
  }
  table.notes.insert(table.notes.begin(), reasons.begin(), reasons.end());
}

}  // namespace tracestep
