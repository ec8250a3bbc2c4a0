#include "lab/pages/formula.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "lab/measure/noise.h"

namespace tracestep {
namespace {

using Row = Evidence::Row;
using Rows = std::span<const Row>;

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

Quantity power(const Quantity& base, const Quantity& exponent) {
  return Quantity::exact(std::pow(base.value, exponent.value),
                         fmt::format("({} ^ {})", base.formula, exponent.formula));
}

// "rows.column" in a formula: the rows that the first name stands for, and the column's name.
struct OfRows {
  Rows rows;
  std::string name;

  bool is_list() const { return rows.size() == 1 && rows.front().is_list(name); }
};

Quantity over(std::string_view function, const OfRows& c) {
  const Row& first = c.rows.front();
  if (function == "median") return median_in(first, c.name);
  if (function == "spread") return spread_percent_in(first, c.name);
  if (function == "mean") return sum_of(c.rows, c.name) / count_of(c.rows, c.name);
  if (function == "count") {
    return c.is_list() ? count_in(first, c.name) : count_of(c.rows, c.name);
  }
  if (function == "sum") return sum_of(c.rows, c.name);
  if (function == "min") return c.is_list() ? least_in(first, c.name) : least_of(c.rows, c.name);
  return c.is_list() ? most_in(first, c.name) : most_of(c.rows, c.name);
}

// Counts the rows whose text in `column` begins with `start`.
Quantity count_starting(Rows rows, std::string_view column, std::string_view start) {
  std::set<std::string> texts;
  for (const Row& row : rows) texts.insert(row.text(column));
  Quantity out = Quantity::constant(0);
  for (const std::string& text : texts) {
    if (text.starts_with(start)) out = out + count_of(rows, column, text);
  }
  return out;
}

bool is_over_rows(std::string_view function) {
  constexpr std::string_view kAll[] = {"median",   "spread", "mean", "count",
                                       "starting", "sum",    "min",  "max"};
  return std::ranges::find(kAll, function) != std::end(kAll);
}

// Reads a formula from left to right: a sum of products of powers of atoms.
class Parser {
 public:
  Parser(std::string_view formula, const Scope& scope)
      : rest_(formula), whole_(formula), scope_(scope) {}

  Evaluated all() {
    Quantity out = noisy();
    TRACESTEP_CHECK(rest_.empty(), "\"{}\": \"{}\" is left over", whole_, rest_);
    return {std::move(out), std::string(trimmed(numbers_))};
  }

 private:
  // Takes spaces, which stay in the text with numbers, and returns the next character; 0: the end.
  char next() {
    while (rest_.starts_with(' ')) take(1);
    return rest_.empty() ? '\0' : rest_.front();
  }
  std::string_view take(std::size_t count, bool is_printed = true) {
    const std::string_view out = rest_.substr(0, count);
    rest_.remove_prefix(out.size());
    if (is_printed) numbers_ += out;
    return out;
  }
  void expect(char c) {
    TRACESTEP_CHECK(next() == c, "\"{}\": '{}' is missing before \"{}\"", whole_, c, rest_);
    take(1);
  }
  const Quantity& printed(const Quantity& quantity) {
    numbers_ += plain_number(quantity.value);
    return quantity;
  }

  Quantity noisy() {
    constexpr std::string_view kPlusMinus = "±";
    Quantity out = sum();
    next();
    if (!rest_.starts_with(kPlusMinus)) return out;
    take(kPlusMinus.size());
    return plus_minus(out, sum());
  }
  Quantity sum() {
    Quantity out = product();
    while (next() == '+' || next() == '-') {
      const bool is_plus = take(1) == "+";
      const Quantity more = product();
      out = is_plus ? out + more : out - more;
    }
    return out;
  }
  Quantity product() {
    Quantity out = powers();
    while (next() == '*' || next() == '/') {
      const bool is_times = take(1) == "*";
      const Quantity by = powers();
      out = is_times ? out * by : out / by;
    }
    return out;
  }
  Quantity powers() {
    if (next() == '-') {
      take(1);
      return -1.0 * powers();
    }
    Quantity base = atom();
    if (next() != '^') return base;
    take(1);
    return power(base, powers());
  }

  Quantity atom() {
    const char c = next();
    if (c == '(') {
      take(1);
      Quantity out = noisy();
      expect(')');
      return out;
    }
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) return number();
    return named();
  }
  Quantity number() {
    double out = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), out);
    TRACESTEP_CHECK(error == std::errc(), "\"{}\": no number at \"{}\"", whole_, rest_);
    take(static_cast<std::size_t>(end - rest_.data()));
    return Quantity::constant(out);
  }
  std::string_view word() {
    const auto is_part = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
    };
    const auto end = std::ranges::find_if_not(rest_, is_part);
    TRACESTEP_CHECK(end != rest_.begin(), "\"{}\": no name at \"{}\"", whole_, rest_);
    return take(static_cast<std::size_t>(end - rest_.begin()), false);
  }

  // Reads a figure's name, a cell, a look-up, or a function, and returns its value.
  Quantity named() {
    next();
    const std::string_view name = word();
    if (rest_.starts_with('(')) return function(name);
    if (rest_.starts_with('.')) {
      take(1, false);
      const std::string_view what = word();
      if (rest_.starts_with('[')) return looked_up(name, what);
      const auto member = scope_.member ? scope_.member(name, what) : std::optional<Quantity>();
      return printed(member ? *member : rows(name).front().get(what));
    }
    const std::optional<Quantity> found =
        scope_.figure ? scope_.figure(name) : std::optional<Quantity>();
    TRACESTEP_CHECK(found.has_value(), "\"{}\": \"{}\" has no value", whole_, name);
    return printed(*found);
  }
  Rows rows(std::string_view name) const {
    const Rows out = scope_.rows ? scope_.rows(name) : Rows();
    TRACESTEP_CHECK(!out.empty(), "\"{}\": there are no rows \"{}\"", whole_, name);
    return out;
  }

  // Reads "rows.column" if a bracket or a comma follows; otherwise reads nothing: nullopt.
  std::optional<OfRows> column(bool is_before_comma = false) {
    const std::string_view before = rest_;
    if (std::isalpha(static_cast<unsigned char>(next())) != 0) {
      const std::string_view name = word();
      if (rest_.starts_with('.')) {
        take(1, false);
        const std::string_view what = word();
        const bool is_alone = rest_.starts_with(')') || rest_.starts_with(", \"") ||
                              (is_before_comma && rest_.starts_with(','));
        if (is_alone) return OfRows{rows(name), std::string(what)};
      }
    }
    rest_ = before;
    return std::nullopt;
  }

  std::optional<OfRows> column_behind_comma() {
    take(1, false);
    return column();
  }

  Quantity function(std::string_view name) {
    take(1, false);
    if (name == "time") {
      const std::string_view row = word();
      take(1, false);
      return printed(time_of(rows(row).front()));
    }
    if (name == "paired") {
      const std::optional<OfRows> a = column(true), b = a ? column_behind_comma() : std::nullopt;
      TRACESTEP_CHECK(b.has_value(), "\"{}\": paired(row.column, row.column)", whole_);
      take(1, false);
      return printed(paired_in(a->rows.front(), a->name, b->rows.front(), b->name));
    }
    if (is_over_rows(name)) {
      if (const auto c = column()) return over_rows(name, *c);
    }
    numbers_ += fmt::format("{}(", name);
    std::vector<Quantity> of = {noisy()};
    while (next() == ',') {
      take(1);
      of.push_back(noisy());
    }
    expect(')');
    return applied(name, of);
  }
  Quantity over_rows(std::string_view name, const OfRows& c) {
    if (rest_.starts_with(')')) {
      take(1, false);
      return printed(over(name, c));
    }
    const std::size_t quote = rest_.find('"'), end = rest_.find('"', quote + 1);
    TRACESTEP_CHECK((name == "count" || name == "starting") && end != std::string_view::npos,
                    "\"{}\": {} of a text", whole_, name);
    const std::string_view text = rest_.substr(quote + 1, end - quote - 1);
    take(end + 1, false);
    take(1, false);
    return printed(name == "count" ? count_of(c.rows, c.name, text)
                                   : count_starting(c.rows, c.name, text));
  }
  Quantity applied(std::string_view name, std::span<const Quantity> of) {
    if (name == "log" && of.size() == 1) return log(of[0]);
    if (name == "ceil" && of.size() == 1) {
      return Quantity::exact(std::ceil(of[0].value), fmt::format("ceil({})", of[0].formula));
    }
    if (name == "round" && of.size() == 1) {
      return Quantity::exact(std::round(of[0].value), fmt::format("round({})", of[0].formula));
    }
    if (name == "abs" && of.size() == 1) return of[0].value < 0 ? -1.0 * of[0] : of[0];
    if (name == "between" && of.size() == 3) return between(of[0], of[1], of[2]);
    TRACESTEP_CHECK(name == "min" || name == "max", "\"{}\": no function \"{}\"", whole_, name);
    return name == "min" ? *std::ranges::min_element(of, {}, &Quantity::value)
                         : *std::ranges::max_element(of, {}, &Quantity::value);
  }

  Quantity looked_up(std::string_view source, std::string_view what) {
    LookUp asked{std::string(source), std::string(what), {}};
    take(1, false);
    const std::size_t close = rest_.find(']');
    TRACESTEP_CHECK(close != std::string_view::npos, "\"{}\": a ] is missing", whole_);
    std::string_view keys = take(close, false);
    take(1, false);
    while (!keys.empty()) {
      const std::size_t end = std::min(keys.find(';'), keys.size());
      asked.keys.emplace_back(trimmed(keys.substr(0, end)));
      keys.remove_prefix(std::min(end + 1, keys.size()));
    }
    TRACESTEP_CHECK(scope_.look_up, "\"{}\": nothing can be looked up here", whole_);
    return printed(scope_.look_up(asked));
  }

  std::string_view rest_;
  const std::string_view whole_;
  std::string numbers_;
  const Scope& scope_;
};

}  // namespace

Evaluated evaluate(std::string_view formula, const Scope& scope) {
  return Parser(formula, scope).all();
}

std::string plain_number(double value) {
  constexpr double kAllDigits = 1e15;
  if (value != std::floor(value) || std::abs(value) >= kAllDigits) {
    return fmt::format("{:.7g}", value);
  }
  std::string digits = fmt::format("{:.0f}", std::abs(value));
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return (value < 0 ? "-" : "") + digits;
}

}  // namespace tracestep
