#include "lab/pages/compose.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "lab/measure/validity.h"
#include "lab/pages/figures.h"
#include "lab/pages/formula.h"

namespace tracestep::pages {
namespace {

using Row = Evidence::Row;

constexpr std::size_t kMostLines = 8;

// Returns the unit of a cell's number, by the name of its column.
std::string_view unit_of(std::string_view column, const Json& cell) {
  if (column == "ms" || column.ends_with("_ms")) return "ms";
  if (column == "bytes" || column.ends_with("_bytes")) return "bytes";
  if (column.ends_with("_percent")) return "percent";
  return cell.is_int() ? "count" : "factor";
}

double number_or(const Json* cell, double otherwise) {
  const bool is_number = cell != nullptr && cell->is_number() && !std::isnan(cell->as_double());
  return is_number ? cell->as_double() : otherwise;
}

// Thrown where the page itself says that there is no answer, or rows cannot be told apart:
// composing ends. After any other Unsupported, the page's next alternative is tried.
class Refusal : public Unsupported {
 public:
  using Unsupported::Unsupported;
};

// Evaluates a page over the tables of a report.
class Composer {
 public:
  Composer(const Page& page, const Evidence& evidence) : page_(page), evidence_(evidence) {
    scope_ = {.figure = [this](std::string_view name) { return figure(name); },
              .rows = [this](std::string_view name) { return rows_named(name); },
              .look_up = {}};
  }

  Composed all() {
    Composed out;
    TRACESTEP_CHECK(!page_.blocks.empty(), "{} says nothing", page_.head[0]);
    for (std::size_t next = answer(out); next < page_.blocks.size(); ++next) {
      const Block& block = page_.blocks[next];
      if (block.is_alternative || block.kind == Block::Kind::kLines) continue;
      const std::vector<RowRef> before = evidence_.used();
      try {
        add(block, out.more);
      } catch (const Unsupported&) {
        evidence_.forget(before);
      }
    }
    out.rows = evidence_.used();
    for (const Block& block : page_.blocks) {
      if (block.kind == Block::Kind::kLines) add_lines(block.lines, out);
    }
    for (const Drawing& drawing : page_.charts) add_chart(drawing, out);
    out.least_difference = least_difference_;
    return out;
  }

 private:
  // Adds the first block, or else the first alternative after it, whose rows are there; where none
  // has rows, throws what the first one lacks. Returns the index of the block after the added one.
  std::size_t answer(Composed& out) {
    std::optional<Unsupported> first;
    for (std::size_t i = 0; i == 0 || (i < page_.blocks.size() && page_.blocks[i].is_alternative);
         ++i) {
      const std::vector<RowRef> before = evidence_.used();
      try {
        add(page_.blocks[i], out.lead);
        return i + 1;
      } catch (const Refusal&) {
        throw;
      } catch (const Unsupported& missing) {
        evidence_.forget(before);
        if (!first) first = missing;
      }
    }
    throw Unsupported(*first);
  }

  void add(const Block& block, Text& out) {
    const Text text = block.kind == Block::Kind::kText ? said(block.text) : chosen(block.outcome);
    if (!out.empty() && !text.empty()) out += " ";
    out += text;
  }

  // Adds a chart; leaves it out where a row that it names is missing.
  void add_chart(const Drawing& drawing, Composed& out) {
    const std::vector<RowRef> before = evidence_.used();
    try {
      Chart chart{.kind = drawing.kind, .table = drawing.table, .options = drawing.options};
      if (!drawing.of.empty()) {
        const Json* label = row_named(drawing.of).peek("label");
        if (label == nullptr || !label->is_string()) return;
        chart.table += "@" + label->as_string();
      }
      fill_in(chart.options);
      out.charts.push_back(std::move(chart));
    } catch (const Unsupported&) {
    }
    evidence_.forget(before);
  }
  void fill_in(Json& options) {
    if (options.is_string() && options.as_string().starts_with('=')) {
      options = value_of(options.as_string().substr(1));
    } else if (options.is_array()) {
      Json::Array items = options.items();
      for (Json& item : items) fill_in(item);
      options = std::move(items);
    } else if (options.is_object()) {
      std::vector<std::string> keys;
      for (const auto& [key, value] : options.members()) keys.push_back(key);
      for (const std::string& key : keys) fill_in(options[key]);
    }
  }

  void add_lines(const Lines& lines, Composed& out) {
    std::vector<Text> head;
    for (const std::string& cell : lines.head) head.push_back(Text(Piece{cell}));
    std::vector<std::vector<Text>> found = {std::move(head)};
    std::vector<Row> rows;
    try {
      rows = {rows_named(lines.rows).begin(), rows_named(lines.rows).end()};
    } catch (const Unsupported&) {
      return;
    }
    const std::size_t all = rows.size();
    if (all > kMostLines) rows = shortened(rows, out.rows);
    const auto known = rows_;
    for (const Row& row : rows) {
      const std::vector<RowRef> before = evidence_.used();
      rows_.insert_or_assign(lines.row, std::vector<Row>{row});
      try {
        for (const auto& [name, selection] : lines.beside) {
          rows_.insert_or_assign(name, selected(selection));
        }
        std::vector<Text> cells;
        for (const std::string& cell : lines.cells) cells.push_back(filled(cell));
        found.push_back(std::move(cells));
      } catch (const Unsupported&) {
        evidence_.forget(before);
      }
      rows_ = known;
    }
    if (found.size() == 1) return;
    if (all > kMostLines) {
      found[0][0] += Text(Piece{fmt::format(" ({} of {} rows)", found.size() - 1, all)});
    }
    out.lines = std::move(found);
  }

  // Returns kMostLines rows at most: those from which the text was read, and the first others.
  static std::vector<Row> shortened(std::span<const Row> rows, std::span<const RowRef> read) {
    const auto is_read = [&](const Row& row) {
      return std::ranges::any_of(read, [&](const RowRef& ref) { return row.is(ref); });
    };
    auto left = static_cast<std::ptrdiff_t>(kMostLines) - std::ranges::count_if(rows, is_read);
    std::vector<Row> out;
    for (const Row& row : rows) {
      if (out.size() < kMostLines && (is_read(row) || left-- > 0)) out.push_back(row);
    }
    return out;
  }

  // --- the rows that a page's names stand for ----------------------------------------------------

  std::span<const Row> rows_named(std::string_view name) {
    const auto known = rows_.find(name);
    if (known != rows_.end()) return known->second;
    const Selection* selection = page_.selection(name);
    if (selection == nullptr) return {};
    return rows_.emplace(name, selected(*selection)).first->second;
  }
  const Row& row_named(std::string_view name) {
    const std::span<const Row> found = rows_named(name);
    TRACESTEP_CHECK(!found.empty(), "{}: there are no rows \"{}\"", page_.head[0], name);
    return found.front();
  }

  std::vector<Row> selected(const Selection& s) {
    std::vector<Row> out = candidates(s);
    if (!s.by.empty()) {
      std::ranges::stable_sort(out, {}, [&](const Row& row) { return key_of(s.by, row); });
    }
    if (s.pick == Selection::Pick::kAll) return out;
    // All keys of the run are given, so if several rows have them, the table lacks a key.
    const bool is_unclear = !s.as.empty() && s.pick == Selection::Pick::kFirst && out.size() > 1;
    if (is_unclear) {
      throw Refusal(Text(
          Piece{fmt::format("several rows of the table {} are of one run", out.front().table()),
                Basis::kQuote}));
    }
    Row found = picked(s, out);
    if (std::ranges::any_of(out, [&](const Row& row) { return found.is_like(row); })) {
      fail_alike(found);
    }
    return {found};
  }

  [[noreturn]] static void fail_alike(const Row& row) {
    throw Refusal(
        Text(Piece{fmt::format("two rows of the table {} are alike", row.table()), Basis::kQuote}));
  }

  Row picked(const Selection& s, const std::vector<Row>& from) {
    switch (s.pick) {
      case Selection::Pick::kAll:
      case Selection::Pick::kFirst: return from.front();
      case Selection::Pick::kLast: return from.back();
      case Selection::Pick::kCommonest: return commonest(from, s.key);
      case Selection::Pick::kMost:
      case Selection::Pick::kLeast: break;
    }
    const bool is_most = s.pick == Selection::Pick::kMost;
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    std::vector<double> keys;
    for (const Row& row : from) {
      const double key = key_of(s.key, row);
      keys.push_back(is_most || key == kNone ? key : -key);
    }
    const auto best = std::ranges::max_element(keys);
    if (*best == kNone) {
      throw Unsupported(Text(Piece{fmt::format("no row that it asks for of the table {} has {}",
                                               from.front().table(), s.key),
                                   Basis::kQuote}));
    }
    return from[static_cast<std::size_t>(best - keys.begin())];
  }

  // Returns the rows that meet the conditions; throws Unsupported when there are none.
  std::vector<Row> candidates(const Selection& s) {
    Evidence::Where where;
    std::vector<std::string> others;
    for (const std::string& condition : s.conditions) {
      if (auto equal = equality(condition)) {
        where.emplace_back(equal->first, equal->second);
      } else {
        others.push_back(condition);
      }
    }
    std::vector<Row> out = from_source(s, where);
    std::erase_if(out, [&](const Row& row) {
      return std::ranges::any_of(others, [&](const std::string& c) { return !holds(c, row); });
    });
    if (out.empty()) {
      throw Unsupported(Text(Piece{
          fmt::format("the table {} has no row that it asks for", table_of(s)), Basis::kQuote}));
    }
    return out;
  }

  std::vector<Row> from_source(const Selection& s, const Evidence::Where& where) {
    if (!s.beside.empty()) return {evidence_.beside(row_named(s.beside), where)};
    if (!s.like.empty()) {
      std::vector<Row> out = evidence_.same_cell(row_named(s.like), s.source);
      std::erase_if(out, [&](const Row& row) { return !matches(row, where); });
      return out;
    }
    if (!s.as.empty()) return evidence_.as(row_named(s.as), s.source, where);
    const Selection* rows = page_.selection(s.source);
    if (s.of.empty() && rows != nullptr && rows != &s) {
      const std::span<const Row> all = rows_named(s.source);
      std::vector<Row> out(all.begin(), all.end());
      std::erase_if(out, [&](const Row& row) { return !matches(row, where); });
      return out;
    }
    if (!s.of.empty()) row_named(s.of).text_or("verdict", "");  // its verdict holds for this table
    return evidence_.rows(table_of(s), where);
  }
  std::string table_of(const Selection& s) {
    if (!s.beside.empty()) return row_named(s.beside).table();
    const Selection* rows = page_.selection(s.source);
    if (s.of.empty() && rows != nullptr && rows != &s) return table_of(*rows);
    if (s.of.empty()) return s.source;
    const Json* label = row_named(s.of).peek("label");
    return s.source + "@" + (label != nullptr && label->is_string() ? label->as_string() : "");
  }
  static bool matches(const Row& row, const Evidence::Where& where) {
    return std::ranges::all_of(where, [&](const auto& condition) {
      const Json* cell = row.peek(condition.first);
      return cell != nullptr && *cell == condition.second;
    });
  }

  // Reads "mode step" or "context last.context / 2" as column and value; nullopt: no equality.
  std::optional<std::pair<std::string_view, Json>> equality(const std::string& condition) {
    const std::size_t space = condition.find(' ');
    TRACESTEP_CHECK(space != std::string::npos, "{}: \"{}\" is no condition", page_.head[0],
                    condition);
    const std::string value = condition.substr(space + 1);
    for (const char* other : {"not ", "starts ", "is there", "< ", "> ", "<= ", ">= "}) {
      if (value.starts_with(other) || condition.find(std::string(" ") + other) != condition.npos) {
        return std::nullopt;
      }
    }
    return std::pair(std::string_view(condition).substr(0, space), value_of(value));
  }
  Json value_of(const std::string& value) {
    const std::size_t dot = value.find('.');
    const bool is_of_row = dot != std::string::npos && !rows_or_none(value.substr(0, dot)).empty();
    if (is_of_row) {
      const Json* cell = row_named(value.substr(0, dot)).peek(value.substr(dot + 1));
      if (cell != nullptr) return *cell;
      const double number = evaluate(value, scope_).quantity.value;
      return number == std::floor(number) ? Json(static_cast<std::int64_t>(number)) : Json(number);
    }
    if (value == "true" || value == "false") return Json(value == "true");
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    if (*end != '\0' || value.find_first_of("0123456789") == std::string::npos) return Json(value);
    return number == std::floor(number) ? Json(static_cast<std::int64_t>(number)) : Json(number);
  }
  std::span<const Row> rows_or_none(std::string_view name) {
    const bool is_known = rows_.contains(name) || page_.selection(name) != nullptr;
    return is_known ? rows_named(name) : std::span<const Row>();
  }

  // True if the row meets "verdict starts doubt", "op is there", "two_graphs_bytes > limit_bytes".
  bool holds(const std::string& condition, const Row& row) {
    for (const auto& [symbol, is_or_equal] :
         {std::pair{" <= ", true}, {" >= ", true}, {" < ", false}, {" > ", false}}) {
      const std::size_t at = condition.find(symbol);
      if (at == std::string::npos) continue;
      const double a = key_of(condition.substr(0, at), row),
                   b = key_of(condition.substr(at + std::string_view(symbol).size()), row);
      const bool is_less = symbol[1] == '<';
      return is_or_equal && a == b ? true : is_less ? a < b : a > b;
    }
    const std::size_t space = condition.find(' ');
    const Json* cell = row.peek(condition.substr(0, space));
    const std::string rest = condition.substr(space + 1);
    const bool is_there = cell != nullptr && !cell->is_null();
    if (rest == "is there") return is_there;
    const std::string text = is_there && cell->is_string() ? cell->as_string() : "";
    constexpr std::string_view kStarts = "starts ", kNotStarts = "not starts ";
    if (rest.starts_with(kStarts)) return text.starts_with(rest.substr(kStarts.size()));
    if (rest.starts_with(kNotStarts)) return !text.starts_with(rest.substr(kNotStarts.size()));
    const Json unwanted = value_of(rest.substr(4));  // "not …"
    return cell == nullptr || *cell != unwanted;
  }

  // Returns a formula's value over columns of the row and figures; -inf where a cell has no number.
  double key_of(std::string_view formula, const Row& row) {
    const std::vector<RowRef> before = evidence_.used();
    bool is_missing = false;
    Scope scope = scope_;
    scope.figure = [&](std::string_view name) -> std::optional<Quantity> {
      const Json* cell = row.peek(name);
      if (cell == nullptr && page_.figure(name) != nullptr) return figure(name);
      const double value = number_or(cell, std::numeric_limits<double>::infinity());
      is_missing = is_missing || !std::isfinite(value);
      return Quantity::constant(std::isfinite(value) ? value : 1.0);
    };
    scope.rows = [&](std::string_view name) -> std::span<const Row> {
      return name == "row" ? std::span(&row, 1) : rows_named(name);
    };
    double out = 0;
    try {
      out = evaluate(formula, scope).quantity.value;
    } catch (const Unsupported&) {
      is_missing = true;  // as a row without samples
    }
    evidence_.forget(before);
    return is_missing ? -std::numeric_limits<double>::infinity() : out;
  }
  static Row commonest(const std::vector<Row>& rows, const std::string& column) {
    const auto count = [&](const Row& row) {
      return std::ranges::count_if(rows, [&](const Row& other) {
        const Json *a = row.peek(column), *b = other.peek(column);
        return a != nullptr && b != nullptr && *a == *b;
      });
    };
    return *std::ranges::max_element(rows, {}, count);
  }

  // --- the value of a page's figure --------------------------------------------------------------

  std::optional<Quantity> figure(std::string_view name) {
    const Figure* found = page_.figure(name);
    if (found == nullptr) return std::nullopt;
    return evaluate(found->formula, scope_).quantity;
  }

  // --- the words of a page, with its figures in their places -------------------------------------

  Text filled(std::string_view text) {
    const Template parts = template_of(text);
    Text out{Piece{parts.plain[0]}};
    for (std::size_t i = 0; i < parts.places.size(); ++i) {
      out += at(parts.places[i]);
      out += Text(Piece{parts.plain[i + 1]});
    }
    return out;
  }
  Text at(const Placeholder& place) {
    if (const Outcome* phrase = page_.phrase(place.name)) return chosen(*phrase);
    constexpr std::size_t kShortName = 40;  // bytes
    const bool is_of_row = place.spec == "model" || place.spec == "name";
    if (const Figure* found = page_.figure(place.name); found != nullptr && !is_of_row) {
      return shown(*figure(place.name), place.spec.empty() ? found->unit : place.spec);
    }
    const std::size_t dot = place.name.find('.');
    const Row& row = row_named(place.name.substr(0, dot));
    if (dot == std::string::npos) return place.spec == "model" ? row.model() : row.name();
    const std::string column = place.name.substr(dot + 1);
    const Json* cell = row.peek(column);
    if (cell != nullptr && cell->is_string() && place.spec == "why") {
      const std::vector<std::string> why = words_of_codes(read_summary(cell->as_string()).codes);
      return Text(Piece{fmt::format("{}", fmt::join(why, "; "))});
    }
    if (cell != nullptr && cell->is_string() && place.spec == "short") {
      return row.quote_apart(column, kShortName);
    }
    if (cell != nullptr && cell->is_string()) return row.quote(column);
    const Quantity q = row.get(column);
    return shown(q, place.spec.empty() ? unit_of(column, *cell) : place.spec);
  }

  Text chosen(const Outcome& outcome) {
    const Relation relation = relation_of(outcome);
    const auto found = outcome.cases.find(relation.order);
    if (found == outcome.cases.end()) return {};
    return said(found->second, &relation);
  }
  // Fills the figures into the words; throws Refusal if these say that there is no answer.
  Text said(std::string_view words, const Relation* relation = nullptr) {
    constexpr std::string_view kNone = "No answer: ";
    const bool is_none = words.starts_with(kNone);
    Text text = filled(is_none ? words.substr(kNone.size()) : words);
    if (relation != nullptr) text = because(*relation, std::move(text));
    if (is_none) throw Refusal(text);
    return text;
  }
  Relation relation_of(const Outcome& outcome) {
    if (outcome.is_text) {
      const std::size_t a = outcome.left.find('.'), b = outcome.right.find('.');
      return compare_texts(row_named(outcome.left.substr(0, a)),
                           row_named(outcome.right.substr(0, b)), outcome.left.substr(a + 1));
    }
    const Quantity left = evaluate(outcome.left, scope_).quantity,
                   right = evaluate(outcome.right, scope_).quantity;
    if (outcome.high.empty()) {
      const Relation out = tracestep::compare(left, right);
      const double larger = std::max(std::abs(left.value), std::abs(right.value));
      const bool is_apart = out.is(Ordering::kLess) || out.is(Ordering::kMore);
      if (is_apart && larger > 0) {
        note_difference(left, right, std::abs(left.value - right.value) / larger);
      }
      return out;
    }
    const double low = right.value, high = evaluate(outcome.high, scope_).quantity.value;
    const Relation out = compare_with_range(left, low, high);
    note_difference(left, right, difference_from(out, left.value, low, high));
    return out;
  }
  // Returns by how much, relative to itself, a number may move before the sentence changes: to the
  // nearer end of a range that it lies outside of, or half the width over the middle of a range
  // that it lies in. Infinite where the sentence says that noise leaves it open.
  static double difference_from(const Relation& relation, double value, double low, double high) {
    if (relation.is(Ordering::kEqual) && low + high > 0) return (high - low) / (high + low);
    if (relation.is(Ordering::kLess) && low > 0) return (low - value) / low;
    if (relation.is(Ordering::kMore) && value > 0) return (value - high) / value;
    return std::numeric_limits<double>::infinity();
  }
  // Keeps the smallest difference of all comparisons in which noise may move one of the numbers.
  void note_difference(const Quantity& left, const Quantity& right, double difference) {
    const bool is_measured = left.low < left.high || right.low < right.high;
    if (is_measured) least_difference_ = std::min(least_difference_, difference);
  }

  const Page& page_;
  const Evidence& evidence_;
  Scope scope_;
  std::map<std::string, std::vector<Row>, std::less<>> rows_ = {};
  double least_difference_ = std::numeric_limits<double>::infinity();
};

}  // namespace

Composed compose(const Page& page, const Evidence& evidence) {
  return Composer(page, evidence).all();
}

}  // namespace tracestep::pages
