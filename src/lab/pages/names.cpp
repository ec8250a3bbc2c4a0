// Lists the tables and columns that a page names, so that misspelt ones are found without a run.
#include <cctype>
#include <map>
#include <set>

#include "lab/pages/page.h"
#include "lab/report/chart/chart.h"

namespace tracestep::pages {
namespace {

// Returns the table of the rows that a name stands for; empty: it stands for no rows.
std::string table_of(const Page& page, const std::map<std::string, Selection>& more,
                     const std::string& name, int depth = 0) {
  if (depth > 8) return {};
  const auto of = [&](const Selection& s) {
    if (!s.beside.empty()) return table_of(page, more, s.beside, depth + 1);
    const std::string other =
        s.of.empty() && s.source != name ? table_of(page, more, s.source, depth + 1) : "";
    return !other.empty() ? other : s.source + (s.of.empty() ? "" : "@");
  };
  if (const Selection* s = page.selection(name)) return of(*s);
  if (const auto found = more.find(name); found != more.end()) return of(found->second);
  return {};
}

}  // namespace

std::vector<std::pair<std::string, std::string>> names_in(const Page& page) {
  std::set<std::pair<std::string, std::string>> out;
  std::map<std::string, Selection> more;
  for (const Block& block : page.blocks) {
    if (block.kind != Block::Kind::kLines) continue;
    more[block.lines.row] = {.source = block.lines.rows};
    for (const auto& [name, selection] : block.lines.beside) more[name] = selection;
  }
  // "row.column" in a formula or in a placeholder.
  const auto add_formula = [&](std::string_view text) {
    for (std::size_t dot = text.find('.'); dot != std::string_view::npos;
         dot = text.find('.', dot + 1)) {
      const auto is_part = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
      };
      std::size_t begin = dot, end = dot + 1;
      while (begin > 0 && is_part(text[begin - 1])) --begin;
      while (end < text.size() && is_part(text[end])) ++end;
      const std::string name(text.substr(begin, dot - begin));
      const std::string table = table_of(page, more, name);
      if (!table.empty()) out.emplace(table, text.substr(dot + 1, end - dot - 1));
    }
  };
  const auto add_text = [&](std::string_view text) {
    for (const Placeholder& place : template_of(text).places) add_formula(place.name);
  };
  const auto add_outcome = [&](const Outcome& outcome) {
    for (const std::string* part : {&outcome.left, &outcome.right, &outcome.high}) {
      add_formula(*part);
    }
    for (const auto& [order, text] : outcome.cases) add_text(text);
  };
  const auto add_selection = [&](const std::string& name, const Selection& s) {
    const std::string table = table_of(page, more, name);
    if (!table.empty()) out.emplace(table, "");
    for (const std::string& condition : s.conditions) {
      const std::size_t space = condition.find(' ');
      const std::string column = condition.substr(0, space), value = condition.substr(space + 1);
      const bool is_compared = condition.find_first_of("<>") != std::string::npos;
      const bool is_cell = !table_of(page, more, value.substr(0, value.find('.'))).empty();
      if (is_compared || is_cell) add_formula(value);
      if (column.find('.') == std::string::npos) out.emplace(table, column);
    }
    if (s.pick == Selection::Pick::kCommonest) out.emplace(table, s.key);
  };
  for (const auto& [name, selection] : page.rows) add_selection(name, selection);
  for (const Figure& figure : page.figures) add_formula(figure.formula);
  for (const Outcome& phrase : page.phrases) add_outcome(phrase);
  for (const Block& block : page.blocks) {
    add_text(block.text);
    if (block.kind == Block::Kind::kOutcome) add_outcome(block.outcome);
    for (const std::string& cell : block.lines.cells) add_text(cell);
    for (const auto& [name, selection] : block.lines.beside) add_selection(name, selection);
  }
  for (const Drawing& drawing : page.charts) {
    const std::string table = drawing.table + (drawing.of.empty() ? "" : "@");
    const Chart chart{.kind = drawing.kind, .table = table, .options = drawing.options};
    for (const std::string& column : chart_columns(chart)) out.emplace(table, column);
  }
  return {out.begin(), out.end()};
}

}  // namespace tracestep::pages
