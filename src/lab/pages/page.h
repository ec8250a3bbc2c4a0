// Pages: text whose every figure is a formula over the cells of a report, and whose every
// comparison is one of four outcomes. A file of Markdown holds several; one page is
//
//   # pass-times | 1.1.3 b | Time
//   Question: How long do forward and backward take?
//   $ bench --size small --mode forward,forward-backward
//   - step: most flops of cells[mode step; status ok]
//   - forward: beside step[mode forward]
//   - both: beside step[mode forward-backward]
//   - backward over forward (factor): ratio = (time(both) - time(forward)) / time(forward)
//   ? ratio with 1.6 to 2.4
//   less: Backward takes {ratio} times forward, less than its products ask for.
//   equal: Backward takes {ratio} times forward, as its products ask for.
//   unclear: Noise leaves open how long backward takes.
//   more: Backward takes {ratio} times forward, more than its products ask for.
//
// docs/pages.md says what each kind of line means. Text stands in labelled lines: no word of it
// begins with a digit, and none is "than" where no comparison has chosen the sentence.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "lab/report/quantity.h"

namespace tracestep::pages {

// Selects rows of a table: "most flops of cells[mode step; status ok] by context".
struct Selection {
  enum class Pick { kFirst, kLast, kMost, kLeast, kCommonest, kAll };
  Pick pick = Pick::kFirst;
  std::string key = {};     // For most and least: a formula over columns; for commonest: a column.
  std::string source = {};  // A table, or the name of rows that were selected before.
  std::string of = {};      // For "table@row": the row whose label names the table.
  // For "beside row": the row whose fields the rows must have, except for the conditions.
  std::string beside = {};
  std::string like = {};  // For "table like row": the row whose cell the rows must have.
  // For "table as row": the row whose keys the rows must have, except for the conditions.
  std::string as = {};
  std::vector<std::string> conditions = {};
  std::string by = {};  // A formula over columns by which the rows are sorted, the least first.
};

// A line "- what | how it is made (unit): name = formula". Without a formula, code sets the value
// of the name.
struct Figure {
  std::string what, unit, name, formula;
  std::string made = {};  // How the value is made, in words for readers, in place of the formula.
};

// A comparison "? name: left with right to high", and the sentence for each of its outcomes.
struct Outcome {
  // `left` is compared with the range from `right` to `high`; without `high`, with `right`.
  std::string name = {}, left = {}, right = {}, high = {};
  bool is_text = false;  // True: two cells with texts are compared.
  std::map<Ordering, std::string> cases = {};
};

// A row of an answer's small table, printed for each row of a selection.
struct Lines {
  std::string row = {}, rows = {};
  std::vector<std::pair<std::string, Selection>> beside = {};
  std::vector<std::string> head = {}, cells = {};
};

// A printed piece of a page; blocks are printed in order.
struct Block {
  enum class Kind { kText, kOutcome, kLines };
  Kind kind = Kind::kText;
  // True for "Or: ": the block is used if the rows of the block before it do not exist.
  bool is_alternative = false;
  std::string text = {};
  Outcome outcome = {};
  Lines lines = {};
};

// A chart below the answer, with its options: "Chart: lines scaling {…}".
struct Drawing {
  std::string kind, table, of;  // `of`: for "table@row", the row whose label names the table.
  Json options;                 // The options; a text "=row.column" stands for that cell.
};

struct Page {
  std::vector<std::string> head = {};  // The parts of the heading: "pass-times", "1.1.3 b", "Time".
  // The labelled texts "Question", "Claimed", "Right", "Note" and "Trap"; the last two may occur
  // several times.
  std::vector<std::pair<std::string, std::string>> labelled = {};
  std::string command = {};  // The command, without "tracestep" before it.
  std::vector<std::pair<std::string, Selection>> rows = {};
  std::vector<Figure> figures = {};
  std::vector<Outcome> phrases = {};  // Named comparisons, whose outcome texts insert as {name}.
  std::vector<Block> blocks = {};
  std::vector<Drawing> charts = {};
  int line_count = 0;

  const Figure* figure(std::string_view name) const;
  // Returns the text with this label; empty if there is none.
  std::string text(std::string_view label) const;
  const Selection* selection(std::string_view name) const;
  const Outcome* phrase(std::string_view name) const;
};

// Returns the parts between separators, without blanks around them.
std::vector<std::string> split(std::string_view text, std::string_view separator);

// Parses the pages of a file. CHECKs their form and names the page that is wrong.
std::vector<Page> parse(std::string_view markdown);

// The parts of a placeholder "{name:spec}"; "{?name}" is a condition.
struct Placeholder {
  bool is_condition = false;
  std::string name, spec;
};
// A template in pieces: each piece is plain words followed by a placeholder; the last one is words
// only.
struct Template {
  std::vector<std::string> plain;
  std::vector<Placeholder> places;
};
Template template_of(std::string_view text);

// Returns every table and column that a page names, as ("cells", "flops"); a table without a column
// comes from a selection. A test uses it to find pages that name what no experiment declares.
std::vector<std::pair<std::string, std::string>> names_in(const Page& page);

}  // namespace tracestep::pages
