#include "lab/pages/page.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "base/error.h"

namespace tracestep::pages {
namespace {

std::string trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(' ') - first + 1));
}

// Removes and returns the text before `mark`, and removes the mark; nullopt where it is not there.
std::optional<std::string> take_until(std::string& text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string::npos) return std::nullopt;
  std::string out = trimmed(text.substr(0, at));
  text = trimmed(text.substr(at + mark.size()));
  return out;
}

bool take(std::string& text, std::string_view start) {
  if (!text.starts_with(start)) return false;
  text = trimmed(text.substr(start.size()));
  return true;
}

Selection selection_of(std::string text) {
  using Pick = Selection::Pick;
  Selection out;
  const std::pair<std::string_view, Pick> picks[] = {
      {"most ", Pick::kMost}, {"least ", Pick::kLeast}, {"commonest ", Pick::kCommonest},
      {"all ", Pick::kAll},   {"first ", Pick::kFirst}, {"last ", Pick::kLast}};
  for (const auto& [word, pick] : picks) {
    if (!take(text, word)) continue;
    out.pick = pick;
    const bool has_key = pick == Pick::kMost || pick == Pick::kLeast || pick == Pick::kCommonest;
    if (has_key) out.key = take_until(text, " of ").value_or("");
    take(text, "of ");
    break;
  }
  const std::size_t close = text.rfind(']'), open = text.find('[');
  std::string behind = close == std::string::npos ? text : text.substr(close + 1);
  if (const std::size_t by = behind.find(" by "); by != std::string::npos) {
    out.by = trimmed(behind.substr(by + 4));
    if (close == std::string::npos) text = text.substr(0, by);
  }
  if (open != std::string::npos) {
    TRACESTEP_CHECK(close != std::string::npos, "\"{}\": a ] is missing", text);
    out.conditions = split(text.substr(open + 1, close - open - 1), ";");
    text = text.substr(0, open);
  }
  out.source = trimmed(text);
  if (take(out.source, "beside ")) out.beside = std::exchange(out.source, "");
  if (auto table = take_until(out.source, " like ")) {
    out.like = std::exchange(out.source, *table);
  }
  if (auto table = take_until(out.source, " as ")) {
    out.as = std::exchange(out.source, *table);
  }
  if (auto table = take_until(out.source, "@")) out.of = std::exchange(out.source, *table);
  return out;
}

// Finds where a figure's name begins: after its unit, or before its formula; npos: no figure.
std::size_t name_of_figure(std::string_view line) {
  constexpr std::string_view kBehindUnit = "): ";
  const std::size_t unit = line.rfind(kBehindUnit);
  if (unit != std::string_view::npos) return unit + kBehindUnit.size();
  const std::size_t equals = line.find(" = "), colon = line.rfind(": ", equals);
  const bool is_one = equals != std::string_view::npos && colon != std::string_view::npos;
  return is_one ? colon + 2 : std::string_view::npos;
}

Figure figure_of(std::string_view line) {
  const std::size_t begin = name_of_figure(line);
  Figure out{.what = trimmed(line.substr(0, begin - 2)),
             .unit = "count",
             .name = trimmed(line.substr(begin)),
             .formula = {}};
  if (auto name = take_until(out.name, " = ")) {
    out.formula = std::exchange(out.name, *name);
  } else {
    out.formula = out.name;
  }
  const std::size_t open = out.what.rfind('(');
  if (out.what.ends_with(')') && open != std::string::npos) {
    out.unit = out.what.substr(open + 1, out.what.size() - open - 2);
    out.what = trimmed(out.what.substr(0, open));
  }
  if (auto what = take_until(out.what, "| ")) out.made = std::exchange(out.what, *what);
  return out;
}

// Reads a comparison: "ratio with 1.6 to 2.4", which may begin with a name: "pace: ratio with …".
Outcome outcome_of(std::string text) {
  Outcome out;
  out.is_text = take(text, "text ");
  if (auto name = take_until(text, ": ")) out.name = *name;
  out.is_text = out.is_text || take(text, "text ");
  auto left = take_until(text, " with ");
  TRACESTEP_CHECK(left.has_value(), "\"{}\": with what is it compared?", text);
  out.left = *left;
  out.right = text;
  if (auto low = take_until(text, " to ")) {
    out.right = *low;
    out.high = text;
  }
  return out;
}

std::optional<Ordering> ordering_of(std::string_view word) {
  if (word == "less") return Ordering::kLess;
  if (word == "equal") return Ordering::kEqual;
  if (word == "unclear") return Ordering::kUnclear;
  if (word == "more") return Ordering::kMore;
  return std::nullopt;
}

// Reads a chart: "bars matrix@step {…}".
Drawing drawing_of(std::string text) {
  Drawing out;
  out.kind = take_until(text, " ").value_or("");
  const std::size_t brace = std::min(text.find('{'), text.size());
  out.table = trimmed(text.substr(0, brace));
  if (auto table = take_until(out.table, "@")) out.of = std::exchange(out.table, *table);
  out.options = brace < text.size() ? Json::parse(text.substr(brace), text) : Json::object();
  return out;
}

std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> out = split(line, "|");
  TRACESTEP_CHECK(out.size() > 2, "\"{}\" is no line of cells", line);
  return {out.begin() + 1, out.end() - 1};
}

// Splits at commas, except those in brackets.
std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> out(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == ',' && depth == 0) {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  for (std::string& part : out) part = trimmed(part);
  return out;
}

// Reads the rows of a small table: "Each low of steps, full beside low[precision fp32]".
Lines lines_of(const std::string& text) {
  Lines out;
  std::vector<std::string> parts = parts_of(text);
  out.row = take_until(parts[0], " of ").value_or("");
  out.rows = parts[0];
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto name = take_until(parts[i], " ");
    TRACESTEP_CHECK(name.has_value(), "\"{}\" names no rows", text);
    out.beside.emplace_back(*name, selection_of(parts[i]));
  }
  return out;
}

// Splits a file into lines; one that begins with a space continues the one before it.
std::vector<std::string> logical_lines(std::string_view markdown) {
  std::vector<std::string> out;
  std::istringstream in{std::string(markdown)};
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(' ') && !out.empty()) {
      out.back() += " " + trimmed(line);
    } else {
      out.push_back(std::move(line));
    }
  }
  return out;
}

// CHECKs a text: no word begins with a digit, as figures have formulas; and where no comparison has
// chosen the text, it does not compare.
void check_words(const Page& page, std::string_view text, bool is_chosen) {
  for (const std::string& plain : template_of(text).plain) {
    for (const std::string& word : split(plain, " ")) {
      const bool is_number =
          !word.empty() && std::isdigit(static_cast<unsigned char>(word[0])) != 0;
      TRACESTEP_CHECK(!is_number, "{}: \"{}\" has no formula in \"{}\"", page.head[0], word, text);
      TRACESTEP_CHECK(is_chosen || word != "than", "{}: \"{}\" compares outside of an outcome",
                      page.head[0], text);
    }
  }
}

class Reader {
 public:
  std::vector<Page> pages;

  void read(const std::string& line) {
    if (line.starts_with("# ")) {
      pages.push_back({.head = split(line.substr(2), "|")});
      outcome_ = nullptr;
      return;
    }
    if (line.empty()) return;
    TRACESTEP_CHECK(!pages.empty(), "\"{}\" stands in no page", line);
    if (line.starts_with("$ ")) {
      page().command = line.substr(2);
    } else if (line.starts_with("- ")) {
      define(line.substr(2));
    } else if (line.starts_with("? ")) {
      compare(outcome_of(line.substr(2)));
    } else if (line.starts_with('|')) {
      add_cells(cells_of(line));
    } else {
      label(line);
    }
  }

 private:
  Page& page() { return pages.back(); }

  void define(const std::string& line) {
    if (name_of_figure(line) != std::string::npos) {
      page().figures.push_back(figure_of(line));
      return;
    }
    const std::size_t colon = line.find(": ");
    TRACESTEP_CHECK(colon != std::string::npos, "{}: \"{}\" defines nothing", page().head[0], line);
    page().rows.emplace_back(line.substr(0, colon), selection_of(line.substr(colon + 2)));
  }
  void compare(Outcome outcome) {
    if (outcome.name.empty()) {
      page().blocks.push_back({.kind = Block::Kind::kOutcome,
                               .is_alternative = std::exchange(is_alternative_, false),
                               .outcome = std::move(outcome)});
      outcome_ = &page().blocks.back().outcome;
    } else {
      page().phrases.push_back(std::move(outcome));
      outcome_ = &page().phrases.back();
    }
  }
  void add_cells(std::vector<std::string> cells) {
    TRACESTEP_CHECK(!page().blocks.empty() && page().blocks.back().kind == Block::Kind::kLines,
                    "{}: cells without \"Each\"", page().head[0]);
    Lines& lines = page().blocks.back().lines;
    (lines.head.empty() ? lines.head : lines.cells) = std::move(cells);
  }
  void label(const std::string& line) {
    const std::size_t colon = line.find(':');
    TRACESTEP_CHECK(colon != std::string::npos, "{}: \"{}\" has no label", page().head[0], line);
    const std::string label = line.substr(0, colon), text = trimmed(line.substr(colon + 1));
    const std::vector<std::string> words = split(label, ",");
    if (ordering_of(words[0])) {
      TRACESTEP_CHECK(outcome_ != nullptr, "{}: \"{}\" of no comparison", page().head[0], line);
      check_words(page(), text, true);
      for (const std::string& word : words) outcome_->cases[ordering_of(word).value()] = text;
    } else if (label.starts_with("Each ")) {
      outcome_ = nullptr;
      page().blocks.push_back({.kind = Block::Kind::kLines, .lines = lines_of(label.substr(5))});
    } else if (label == "Or" && text.empty()) {
      is_alternative_ = true;  // of the comparison in the next line
    } else if (label == "Answer" || label == "Then" || label == "Or") {
      check_words(page(), text, false);
      outcome_ = nullptr;
      page().blocks.push_back({.is_alternative = label == "Or", .text = text});
    } else if (label == "Company" || label == "Threads") {
      add_clause(label, text);
    } else if (label == "Chart") {
      page().charts.push_back(drawing_of(text));
    } else {
      page().labelled.emplace_back(label, text);
    }
  }

  // Adds a sentence: for "Company" if other programs ran, else if threads outnumber the cores.
  void add_clause(const std::string& label, const std::string& table) {
    if (page().selection("here") == nullptr) read("- here: machine");
    if (label == "Company") {
      read("- busiest: most others_cores of " + table + "[others_cores is there]");
      read("? busiest.others_cores with 0.1");
      read(
          "more: Noisy: other programs used {busiest.others_cores:.1f} of your "
          "{here.cores:count core}.");
    } else {
      read("? here.threads with here.cores");
      read(
          "more: Threads outnumber cores, {here.threads} to {here.cores}, and wait for each "
          "other.");
    }
  }

  Outcome* outcome_ = nullptr;
  bool is_alternative_ = false;
};

template <class Named>
auto find(const std::vector<Named>& all, std::string_view name) -> const Named* {
  const auto found = std::ranges::find(all, name, &Named::name);
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

std::vector<std::string> split(std::string_view text, std::string_view separator) {
  std::vector<std::string> out;
  while (true) {
    const std::size_t end = text.find(separator);
    out.push_back(trimmed(text.substr(0, end)));
    if (end == std::string_view::npos) return out;
    text.remove_prefix(end + separator.size());
  }
}

const Figure* Page::figure(std::string_view name) const {
  return find(figures, name);
}
std::string Page::text(std::string_view label) const {
  for (const auto& [name, text] : labelled) {
    if (name == label) return text;
  }
  return {};
}
const Outcome* Page::phrase(std::string_view name) const {
  return find(phrases, name);
}
const Selection* Page::selection(std::string_view name) const {
  const auto found = std::ranges::find(rows, name, &std::pair<std::string, Selection>::first);
  return found == rows.end() ? nullptr : &found->second;
}

std::vector<Page> parse(std::string_view markdown) {
  Reader reader;
  for (const std::string& line : logical_lines(markdown)) reader.read(line);
  std::istringstream in{std::string(markdown)};
  auto page = reader.pages.begin();
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("# ") && (page->line_count > 0)) ++page;
    page->line_count += line.empty() ? 0 : 1;
  }
  return std::move(reader.pages);
}

Template template_of(std::string_view text) {
  Template out;
  while (true) {
    const std::size_t open = text.find('{');
    out.plain.emplace_back(text.substr(0, open));
    if (open == std::string_view::npos) return out;
    const std::size_t close = text.find('}', open);
    TRACESTEP_CHECK(close != std::string_view::npos, "\"{}\": a brace is not closed", text);
    std::string inside(text.substr(open + 1, close - open - 1));
    Placeholder place;
    place.is_condition = take(inside, "?");
    const std::size_t colon = inside.find(':');
    place.name = inside.substr(0, colon);
    if (colon != std::string::npos) place.spec = inside.substr(colon + 1);
    out.places.push_back(std::move(place));
    text.remove_prefix(close + 1);
  }
}

}  // namespace tracestep::pages
