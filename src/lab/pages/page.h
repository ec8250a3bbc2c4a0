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

// Which rows of a table: "most flops of cells[mode step; status ok] by context".
struct Selection {
  enum class Pick { kFirst, kLast, kMost, kLeast, kCommonest, kAll };
  Pick pick = Pick::kFirst;
  std::string key = {};     // most, least: a formula over columns; commonest: a column
  std::string source = {};  // a table, or the name of other rows
  std::string of = {};      // "table@row": the table of that row's label
  std::string beside = {};  // "beside row": the same run but for the conditions
  std::string like = {};    // "table like row": rows of the same cell
  std::string as = {};      // "table as row": rows with that row's keys, but for the conditions
  std::vector<std::string> conditions = {};
  std::string by = {};  // the order: a formula over columns, the least first
};

// "- what | how it is made (unit): name = formula". Without a formula the name's value is given.
struct Figure {
  std::string what, unit, name, formula;
  std::string made = {};  // instead of the formula, for a reader
};

// "? name: left with right to high", and what is said in each case.
struct Outcome {
  std::string name = {}, left = {}, right = {}, high = {};  // without `high`: of two numbers
  bool is_text = false;                                     // two cells with texts
  std::map<Ordering, std::string> cases = {};
};

// A line for each row.
struct Lines {
  std::string row = {}, rows = {};
  std::vector<std::pair<std::string, Selection>> beside = {};
  std::vector<std::string> head = {}, cells = {};
};

// A piece of a page that is printed; blocks come in order.
struct Block {
  enum class Kind { kText, kOutcome, kLines };
  Kind kind = Kind::kText;
  bool is_alternative = false;  // "Or: ": where the block before it lacks its rows
  std::string text = {};
  Outcome outcome = {};
  Lines lines = {};
};

// "Chart: lines scaling {…}": what stands below the answer, with the options of a Chart.
struct Drawing {
  std::string kind, table, of;  // of: "table@row", the table of that row's label
  Json options;                 // a text "=row.column" stands for that cell
};

struct Page {
  std::vector<std::string> head = {};  // "pass-times", "1.1.3 b", "Time"
  // "Question", "Claimed", "Right", "Note", "Trap"; the last two may be there several times.
  std::vector<std::pair<std::string, std::string>> labelled = {};
  std::string command = {};  // without "tracestep"
  std::vector<std::pair<std::string, Selection>> rows = {};
  std::vector<Figure> figures = {};
  std::vector<Outcome> phrases = {};  // outcomes with a name, which texts use as {name}
  std::vector<Block> blocks = {};
  std::vector<Drawing> charts = {};
  int line_count = 0;

  const Figure* figure(std::string_view name) const;
  std::string text(std::string_view label) const;  // empty where there is none
  const Selection* selection(std::string_view name) const;
  const Outcome* phrase(std::string_view name) const;
};

// The parts between separators, without blanks around them.
std::vector<std::string> split(std::string_view text, std::string_view separator);

// CHECKs the form, naming the page.
std::vector<Page> parse(std::string_view markdown);

// "{name:spec}", taken apart; "{?name}" is a condition.
struct Placeholder {
  bool is_condition = false;
  std::string name, spec;
};
// A template in pieces: plain words, each followed by a placeholder but for the last.
struct Template {
  std::vector<std::string> plain;
  std::vector<Placeholder> places;
};
Template template_of(std::string_view text);

// Every table and column that a page names: ("cells", "flops"). A table without a column: of a
// selection. A page that names what no experiment declares is found by these.
std::vector<std::pair<std::string, std::string>> names_in(const Page& page);

}  // namespace tracestep::pages
