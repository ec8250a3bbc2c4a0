#include "lab/study/formula.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

namespace tracestep::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

[[noreturn]] void fail(const std::string& why) {
  throw std::runtime_error(why);
}

Unit unit_of_column(std::string_view name) {
  if (name.ends_with("_ms") || name == "ms" || name.ends_with("_us")) return Unit::kTime;
  if (name.ends_with("_bytes") || name == "bytes") return Unit::kBytes;
  return Unit::kNone;
}

int hundreds_of_column(std::string_view name) {
  return name.ends_with("_percent") ? 1 : 0;
}

// Cells that a reference stands for.
struct Cells {
  std::vector<const Json*> cells;
  std::vector<const Json*> counts = {};  // beside a list of samples: how many each visit took
  Unit unit = Unit::kNone;
  int hundreds = 0;

  Evaluated with(Evaluated value) const {
    value.hundreds = hundreds;
    return value;
  }
};

double binomial_cdf(std::size_t n, std::size_t k) {  // of a fair coin
  double sum = 0;
  for (std::size_t i = 0; i <= k; ++i) {
    sum += std::exp(std::lgamma(double(n) + 1) - std::lgamma(double(i) + 1) -
                    std::lgamma(double(n - i) + 1) - double(n) * std::log(2.0));
  }
  return sum;
}

Evaluated median(std::vector<double> s, Unit unit) {
  std::ranges::sort(s);
  const std::size_t n = s.size();
  const double middle = n % 2 == 1 ? s[n / 2] : s[n / 2 - 1] + 0.5 * (s[n / 2] - s[n / 2 - 1]);
  if (n == 1) return {middle, std::min(0.0, 2 * middle), std::max(0.0, 2 * middle), unit};
  std::size_t k = 0;
  while (k + 1 < n / 2 && 1 - 2 * binomial_cdf(n, k + 1) >= 0.95) ++k;
  return {middle, s[k], s[n - 1 - k], unit};
}

std::vector<double> numbers(const Json& list) {
  std::vector<double> out;
  if (!list.is_array()) return out;
  for (const Json& item : list.items()) {
    if (item.is_number()) out.push_back(item.as_double());
  }
  return out;
}

// The median of each visit's samples; none where the counts are not those of the samples.
std::vector<double> visit_medians(const Cells& cells) {
  std::vector<double> out;
  if (cells.cells.size() != 1 || cells.counts.size() != 1) return out;
  const std::vector<double> ms = numbers(*cells.cells[0]), counts = numbers(*cells.counts[0]);
  std::size_t next = 0;
  for (double count : counts) {
    if (!(count >= 1) || count > double(ms.size() - next)) return {};
    const auto length = static_cast<std::size_t>(count);
    const auto begin = ms.begin() + static_cast<std::ptrdiff_t>(next);
    out.push_back(median({begin, begin + static_cast<std::ptrdiff_t>(length)}, Unit::kNone).value);
    next += length;
  }
  return next == ms.size() ? out : std::vector<double>();
}

Evaluated spanned(double value, std::initializer_list<double> corners, Unit unit) {
  Evaluated out{value, value, value, unit};
  for (double c : corners) {
    if (std::isnan(c)) return {value, -kInf, kInf, unit};
    out.low = std::min(out.low, c);
    out.high = std::max(out.high, c);
  }
  return out;
}

class Parser {
 public:
  Parser(std::string_view text, std::span<const Table> tables) : rest_(text), tables_(tables) {}

  Evaluated expression() {
    if (take("(")) {
      const Evaluated a = expression();
      for (const char* op : {" + ", " - ", " * ", " / ", " ± "}) {
        if (!take(op)) continue;
        const Evaluated b = expression();
        expect(")");
        return apply(op[1], a, b);
      }
      fail("no operator at: " + std::string(rest_));
    }
    if (take("paired(")) return paired();
    for (const char* function : {"median(", "min(", "max(", "sum(", "count("}) {
      if (take(function)) return of_list(function);
    }
    if (take("log(")) {
      const Evaluated a = expression();
      expect(")");
      const double low = a.low > 0 ? std::log(a.low) : -kInf;
      return spanned(std::log(a.value), {low, std::log(a.high)}, Unit::kNone);
    }
    if (take("between(")) {
      const Evaluated a = expression();
      expect(", ");
      const Evaluated low = expression();
      expect(", ");
      const Evaluated high = expression();
      expect(")");
      Evaluated out = spanned(a.value, {low.value, high.value}, a.unit);
      out.hundreds = a.hundreds;
      return out;
    }
    return starts_number() ? number() : of_cell(reference());
  }

  EvaluatedRelation relation() {
    const std::string_view begin = rest_;
    const bool is_text = refers_to_text();
    const std::string left_text = is_text ? text() : "";
    const Evaluated a = is_text ? Evaluated{} : expression();
    const std::string left(begin.substr(0, begin.size() - rest_.size()));
    if (take(" in [")) {
      const Evaluated low = expression();
      expect(", ");
      const Evaluated high = expression();
      expect("]");
      return {"in",      low.value <= a.low && a.high <= high.value,
              low.value, high.value,
              a.unit,    true,
              left,      {}};
    }
    for (const char* symbol : {" < ", " > ", " = ", " ~ "}) {
      if (!take(symbol)) continue;
      const std::string_view behind = rest_;
      EvaluatedRelation out = is_text ? relate(symbol[1], left_text.compare(text()))
                                      : relate(symbol[1], a, expression());
      out.left = left;
      out.right = behind.substr(0, behind.size() - rest_.size());
      for (const char* interval : {"median(", " ± ", "between("}) {
        out.has_noise |= (out.left + out.right).find(interval) != std::string::npos;
      }
      return out;
    }
    fail("no relation at: " + std::string(rest_));
  }

  Cells reference() {
    const Table& table = table_named(name());
    expect("[");
    std::vector<std::size_t> rows;
    do {
      const std::size_t from = index(), to = take("-") ? index() : from;
      for (std::size_t i = from; i <= to; ++i) rows.push_back(i);
    } while (take(","));
    expect("].");
    const std::string column = word();
    const auto found = std::ranges::find(table.columns, column, &Column::name);
    if (found == table.columns.end()) fail("no column " + column);
    Cells out{{}, {}, unit_of_column(column), hundreds_of_column(column)};
    const std::string ending = "samples_ms";
    const std::string beside =
        column.ends_with(ending) ? column.substr(0, column.size() - ending.size()) + "visit_samples"
                                 : std::string("none");
    const auto counts = std::ranges::find(table.columns, beside, &Column::name);
    for (std::size_t row : rows) {
      if (row < 1 || row > table.rows.size()) fail("no such row in " + table.name);
      named_.push_back({&table, row - 1});
      out.cells.push_back(
          &table.rows[row - 1][static_cast<std::size_t>(found - table.columns.begin())]);
      if (counts == table.columns.end()) continue;
      out.counts.push_back(
          &table.rows[row - 1][static_cast<std::size_t>(counts - table.columns.begin())]);
    }
    return out;
  }

  bool take(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  void expect(std::string_view word) {
    if (!take(word)) fail("no \"" + std::string(word) + "\" at: " + std::string(rest_));
  }
  bool is_done() const { return rest_.empty(); }
  // The rows named since the last call.
  std::vector<NamedRow> take_named() { return std::exchange(named_, {}); }

 private:
  static Evaluated apply(char op, const Evaluated& a, const Evaluated& b) {
    Evaluated out = computed(op, a, b);
    // As a factor 100 makes percent; a term takes the scale of the other.
    const auto scale = [](const Evaluated& e) {
      return !e.is_literal ? e.hundreds : std::abs(e.value) == 100 ? 1 : 0;
    };
    out.hundreds = op == '*'      ? scale(a) + scale(b)
                   : op == '/'    ? scale(a) - scale(b)
                   : a.is_literal ? b.hundreds
                                  : a.hundreds;
    const bool is_sum = op == '+' || op == '-';
    if (is_sum && !a.is_literal && !b.is_literal && a.hundreds != b.hundreds) {
      fail("percent and a ratio are added");
    }
    return out;
  }

  static Evaluated computed(char op, const Evaluated& a, const Evaluated& b) {
    const bool is_sum = op == '+' || op == '-' || op == '\xc2';
    if (is_sum && a.unit != b.unit) fail("unlike units are added");
    if (op == '+') return spanned(a.value + b.value, {a.low + b.low, a.high + b.high}, a.unit);
    if (op == '-') return spanned(a.value - b.value, {a.low - b.high, a.high - b.low}, a.unit);
    if (op == '*') {
      if (a.unit != Unit::kNone && b.unit != Unit::kNone) fail("a product of units");
      return spanned(a.value * b.value,
                     {a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high},
                     a.unit == Unit::kNone ? b.unit : a.unit);
    }
    if (op == '/') {
      if (b.unit != Unit::kNone && a.unit != b.unit) fail("a rate has no unit here");
      const Unit unit = a.unit == b.unit ? Unit::kNone : a.unit;
      if (b.low <= 0 && b.high >= 0) return {a.value / b.value, -kInf, kInf, unit};
      return spanned(a.value / b.value,
                     {a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high}, unit);
    }
    const double by = std::abs(b.value);  // ±
    return spanned(a.value, {a.low - by, a.high + by}, a.unit);
  }

  static EvaluatedRelation relate(char symbol, const Evaluated& a, const Evaluated& b) {
    const bool is_more = a.low > b.high, is_less = a.high < b.low;
    const bool is_equal = a.low == a.high && b.low == b.high && a.value == b.value;
    const bool holds = symbol == '>'   ? is_more
                       : symbol == '<' ? is_less
                       : symbol == '=' ? is_equal
                                       : !is_more && !is_less && !is_equal;
    const auto is_zero = [](const Evaluated& e) { return e.value == 0 && e.low == e.high; };
    if (a.unit != b.unit && !is_zero(a) && !is_zero(b)) fail("unlike units are compared");
    if (!a.is_literal && !b.is_literal && a.hundreds != b.hundreds && !is_zero(a) && !is_zero(b)) {
      fail("percent and a ratio are compared");
    }
    return {std::string(1, symbol), holds, b.low, b.high, is_zero(a) ? b.unit : a.unit};
  }
  static EvaluatedRelation relate(char symbol, int order) {
    return {std::string(1, symbol),
            symbol == '='   ? order == 0
            : symbol == '<' ? order < 0
                            : order > 0,
            0, 0};
  }

  Evaluated of_list(std::string_view function) {
    const Cells found = reference();
    if (function == "count(" && take(", ")) {
      const std::string wanted = quoted();
      expect(")");
      const auto is_it = [&](const Json* c) { return c->is_string() && c->as_string() == wanted; };
      const auto n = static_cast<double>(std::ranges::count_if(found.cells, is_it));
      return {n, n, n, Unit::kNone};
    }
    expect(")");
    std::vector<double> values;
    std::size_t present = 0;
    for (const Json* cell : found.cells) {
      present += cell->is_null() ? 0 : 1;
      if (cell->is_number()) values.push_back(cell->as_double());
      if (!cell->is_array()) continue;
      for (const Json& item : cell->items()) values.push_back(item.as_double());
    }
    if (function == "count(") {
      const bool is_list = found.cells.size() == 1 && found.cells[0]->is_array();
      const double n = static_cast<double>(is_list ? values.size() : present);
      return {n, n, n, Unit::kNone};
    }
    if (values.empty()) fail("an empty list");
    if (function == "median(") {
      Evaluated out = median(values, found.unit);
      const std::vector<double> visits = visit_medians(found);
      if (visits.size() > 1) {
        const Evaluated of_visits = median(visits, found.unit);
        out.low = of_visits.low;
        out.high = of_visits.high;
      }
      return found.with(out);
    }
    double out = function == "sum(" ? 0 : values[0];
    for (double v : values) {
      out = function == "sum(" ? out + v : function == "min(" ? std::min(out, v) : std::max(out, v);
    }
    return found.with({out, out, out, found.unit});
  }

  // Two cells of samples, by the visits that rounds gave both.
  Evaluated paired() {
    const std::vector<double> a = visit_medians(reference());
    expect(", ");
    const std::vector<double> b = visit_medians(reference());
    expect(")");
    const std::size_t pairs = std::min(a.size(), b.size());  // the first rounds visited both
    if (pairs < 3) fail("visits that are no pairs");
    std::vector<double> ratios;
    for (std::size_t i = 0; i < pairs; ++i) ratios.push_back(a[i] / b[i]);
    return median(ratios, Unit::kNone);
  }

  Evaluated of_cell(const Cells& found) {
    if (found.cells.size() != 1 || !found.cells[0]->is_number()) fail("a cell without a number");
    const double v = found.cells[0]->as_double();
    return found.with({v, v, v, found.unit});
  }

  // True if a cell with a text follows.
  bool refers_to_text() const {
    Parser ahead = *this;
    try {
      const Cells found = ahead.reference();
      return found.cells.size() == 1 && found.cells[0]->is_string();
    } catch (const std::runtime_error&) {
      return false;
    }
  }
  std::string text() {
    const Cells found = reference();
    if (found.cells.size() != 1 || !found.cells[0]->is_string()) fail("a cell without a text");
    return found.cells[0]->as_string();
  }

  bool starts_number() const {
    return !rest_.empty() && (rest_[0] == '-' || (rest_[0] >= '0' && rest_[0] <= '9'));
  }
  Evaluated number() {
    std::size_t used = 0;
    const double v = std::stod(std::string(rest_), &used);
    rest_.remove_prefix(used);
    return {v, v, v, Unit::kNone, 0, true};
  }
  std::size_t index() {
    std::size_t used = 0;
    const unsigned long v = std::stoul(std::string(rest_), &used);
    rest_.remove_prefix(used);
    return v;
  }
  std::string word() {
    std::size_t n = 0;
    while (n < rest_.size() &&
           (std::isalnum(static_cast<unsigned char>(rest_[n])) != 0 || rest_[n] == '_'))
      ++n;
    const std::string out(rest_.substr(0, n));
    rest_.remove_prefix(n);
    return out;
  }
  std::string quoted() {
    std::size_t end = 1;
    while (end < rest_.size() && rest_[end] != '"') end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) fail("an open quotation");
    const std::string out = Json::parse(std::string(rest_.substr(0, end + 1)), "name").as_string();
    rest_.remove_prefix(end + 1);
    return out;
  }
  std::string name() { return rest_.starts_with('"') ? quoted() : word(); }

  const Table& table_named(const std::string& name) const {
    const auto found = std::ranges::find(tables_, name, &Table::name);
    if (found == tables_.end()) fail("no table " + name);
    return *found;
  }

  std::string_view rest_;
  std::span<const Table> tables_;
  std::vector<NamedRow> named_ = {};
};

}  // namespace

Evaluated evaluate(std::string_view formula, std::span<const Table> tables) {
  Parser parser(formula, tables);
  const Evaluated out = parser.expression();
  if (!parser.is_done()) fail("more than a formula: " + std::string(formula));
  return out;
}

std::vector<EvaluatedRelation> evaluate_relation(std::string_view formula,
                                                 std::span<const Table> tables) {
  Parser parser(formula, tables);
  std::vector<EvaluatedRelation> out;
  do out.push_back(parser.relation());
  while (parser.take(" and "));
  if (!parser.is_done()) fail("more than a relation: " + std::string(formula));
  return out;
}

const Json& cell_named(std::string_view formula, std::span<const Table> tables) {
  Parser parser(formula, tables);
  const Cells found = parser.reference();
  if (!parser.is_done() || found.cells.size() != 1) fail("no single cell: " + std::string(formula));
  return *found.cells[0];
}

std::vector<NamedRow> rows_named(std::string_view formula, std::span<const Table> tables) {
  Parser parser(formula, tables);
  const auto has = [&](const char* words) { return formula.find(words) != std::string_view::npos; };
  if (has(" < ") || has(" > ") || has(" = ") || has(" ~ ") || has(" in [")) {
    do parser.relation();
    while (parser.take(" and "));
  } else if (formula.find('(') < formula.find('[')) {
    parser.expression();
  } else if (has("[")) {
    parser.reference();
  }
  return parser.take_named();
}

std::optional<RatioRows> ratio_rows(std::string_view formula, std::span<const Table> tables) {
  Parser parser(formula, tables);
  if (!parser.take("(")) return {};
  parser.expression();
  RatioRows out{parser.take_named(), {}};
  if (!parser.take(" / ")) return {};
  parser.expression();
  out.below = parser.take_named();
  parser.expect(")");
  if (!parser.is_done()) return {};
  return out;
}

}  // namespace tracestep::testing
