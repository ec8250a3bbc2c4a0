// The numbers and words that a topic's page names, set by the function that computes them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "lab/pages/page.h"
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

  // The value with this name; nullptr: it is not set.
  const Value* find(std::string_view name) const;
  const std::vector<Values>& list(std::string_view name) const;

 private:
  std::map<std::string, Value, std::less<>> values_;
  std::map<std::string, std::vector<Values>, std::less<>> lists_;
};

// Fills the page's figures into a table, with a line of a list repeated for each of its elements
// and the page's notes below. A line that names a value which is not set is left out.
Table fill(const pages::Page& page, const Values& values);

}  // namespace tracestep
