// Attributes of a node: a small map from name to value, in name order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/dims.h"
#include "base/dtype.h"

namespace tracestep {

struct Program;
// A nested program: the body of a fused node. Shared and immutable.
using Region = std::shared_ptr<const Program>;

// Attributes are small: numbers, names, lists and programs, never tensors. A constant tensor is
// made by a generator node (fill, iota, …).
using AttrValue = std::variant<std::int64_t, double, bool, std::string, DType, Dims, Region>;

enum class AttrKind { kInt, kReal, kBool, kText, kDType, kInts, kRegion };

class Attrs {
 public:
  using Entry = std::pair<std::string, AttrValue>;

  Attrs() = default;
  Attrs(std::initializer_list<Entry> entries) {
    for (const Entry& e : entries) set(e.first, e.second);
  }

  void set(std::string_view name, AttrValue value);
  const AttrValue* find(std::string_view name) const;
  const std::vector<Entry>& entries() const { return entries_; }

  // Typed access. The attribute must exist and have this type; the builder fills in defaults.
  std::int64_t integer(std::string_view name) const { return get<std::int64_t>(name); }
  double real(std::string_view name) const { return get<double>(name); }
  bool flag(std::string_view name) const { return get<bool>(name); }
  const std::string& text(std::string_view name) const { return get<std::string>(name); }
  DType dtype(std::string_view name) const { return get<DType>(name); }
  const Dims& ints(std::string_view name) const { return get<Dims>(name); }
  const Program& region(std::string_view name) const { return *get<Region>(name); }

 private:
  template <class T>
  const T& get(std::string_view name) const {
    const AttrValue* value = find(name);
    TRACESTEP_CHECK(value != nullptr, "no attribute '{}'", name);
    TRACESTEP_CHECK(std::holds_alternative<T>(*value), "attribute '{}' has another type", name);
    return std::get<T>(*value);
  }

  std::vector<Entry> entries_;
};

AttrKind kind_of(const AttrValue& value);

}  // namespace tracestep
