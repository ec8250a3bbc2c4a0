#include "lab/explain/expression.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"

namespace tracestep {
namespace {

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// Reads a formula from left to right: a sum of products of powers of atoms.
class Parser {
 public:
  Parser(std::string_view formula, const std::map<std::string, double, std::less<>>& names,
         const std::function<double(const LookUp&)>& look_up)
      : rest_(formula), whole_(formula), names_(names), look_up_(look_up) {}

  Evaluated all() {
    const double value = sum();
    TRACESTEP_CHECK(rest_.empty(), "\"{}\": \"{}\" is left over", whole_, rest_);
    return {value, std::string(trimmed(numbers_))};
  }

 private:
  // Spaces are kept in the text with numbers, where a reader wants them too.
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

  double sum() {
    double out = product();
    while (next() == '+' || next() == '-') {
      const bool is_plus = take(1) == "+";
      const double more = product();
      out += is_plus ? more : -more;
    }
    return out;
  }
  double product() {
    double out = power();
    while (next() == '*' || next() == '/') {
      const bool is_times = take(1) == "*";
      const double by = power();
      out = is_times ? out * by : out / by;
    }
    return out;
  }
  double power() {
    if (next() == '-') {
      take(1);
      return -power();
    }
    const double base = atom();
    if (next() != '^') return base;
    take(1);
    return std::pow(base, power());
  }

  double atom() {
    const char c = next();
    if (c == '(') {
      take(1);
      const double out = sum();
      expect(')');
      return out;
    }
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) return number();
    return named();
  }
  double number() {
    double out = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), out);
    TRACESTEP_CHECK(error == std::errc(), "\"{}\": no number at \"{}\"", whole_, rest_);
    take(static_cast<std::size_t>(end - rest_.data()));
    return out;
  }
  std::string_view word() {
    const auto is_part = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
    };
    const auto end = std::ranges::find_if_not(rest_, is_part);
    TRACESTEP_CHECK(end != rest_.begin(), "\"{}\": no name at \"{}\"", whole_, rest_);
    return take(static_cast<std::size_t>(end - rest_.begin()), false);
  }

  // A value's name, a look-up, or a function.
  double named() {
    next();
    const std::string_view name = word();
    if (rest_.starts_with('.')) return looked_up(name);
    if (rest_.starts_with('(')) return function(name);
    const auto found = names_.find(name);
    TRACESTEP_CHECK(found != names_.end(), "\"{}\": \"{}\" has no value", whole_, name);
    numbers_ += plain_number(found->second);
    return found->second;
  }
  double function(std::string_view name) {
    TRACESTEP_CHECK(name == "min" || name == "max", "\"{}\": no function \"{}\"", whole_, name);
    numbers_ += name;
    expect('(');
    double out = sum();
    while (next() == ',') {
      take(1);
      const double other = sum();
      out = name == "min" ? std::min(out, other) : std::max(out, other);
    }
    expect(')');
    return out;
  }
  double looked_up(std::string_view source) {
    take(1, false);
    LookUp asked{std::string(source), std::string(word()), {}};
    TRACESTEP_CHECK(rest_.starts_with('['), "\"{}\": keys are missing", whole_);
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
    const double out = look_up_(asked);
    numbers_ += plain_number(out);
    return out;
  }

  std::string_view rest_;
  const std::string_view whole_;
  std::string numbers_;
  const std::map<std::string, double, std::less<>>& names_;
  const std::function<double(const LookUp&)>& look_up_;
};

}  // namespace

Evaluated evaluate(std::string_view formula,
                   const std::map<std::string, double, std::less<>>& names,
                   const std::function<double(const LookUp&)>& look_up) {
  return Parser(formula, names, look_up).all();
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
  return value < 0 ? "-" + digits : digits;
}

}  // namespace tracestep
