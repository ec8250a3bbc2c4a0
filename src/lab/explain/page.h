// A page of `explain`: Markdown with placeholders, and the values that fill them. It holds a title,
// a table of worked lines, notes, and under "Traps:" what to watch out for.
//
//   {name}         the value; {name:.4g} as fmt has it
//   {name:bytes}   a value with its unit (bytes, ms, flops, tflops, ratio, percent, count)
//   {?name}        first in a line or a note: it is there when the value is
//   {list.name}    a value of a list's element: lines of one list are repeated for each element
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "lab/report/table.h"

namespace tracestep {

class Values {
 public:
  using Value = std::variant<double, std::int64_t, std::string>;

  template <class T>
  Values& set(const std::string& name, T value) {
    if constexpr (std::is_floating_point_v<T>) {
      values_[name] = static_cast<double>(value);
    } else if constexpr (std::is_integral_v<T>) {
      values_[name] = static_cast<std::int64_t>(value);
    } else {
      values_[name] = std::string(value);
    }
    return *this;
  }
  // Appends an element to a list.
  Values& add(const std::string& list) { return lists_[list].emplace_back(); }

  // nullptr when the value is not set.
  const Value* find(std::string_view name) const;
  const std::vector<Values>& list(std::string_view name) const;

 private:
  std::map<std::string, Value, std::less<>> values_;
  std::map<std::string, std::vector<Values>, std::less<>> lists_;
};

struct Page {
  std::string title;
  std::vector<std::array<std::string, 4>> lines;  // what, formula, with numbers, value
  std::vector<std::string> notes, traps;
};
Page parse_page(std::string_view markdown);

// The page as a table of lines with notes. CHECKs that every value it names is set.
Table fill(const Page& page, const Values& values);

}  // namespace tracestep
