// Attributes of a node: a small map from name to value, in name order. Copies share their memory.
// Nothing that copies or destroys a value is inline: half of all files would compile it again.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/dims.h"
#include "base/dtype.h"
#include "base/shared_vector.h"

namespace tracestep {

struct Program;
// A nested program: the body of a fused node. Shared and immutable.
using Region = std::shared_ptr<const Program>;

// The value of an attribute: a number, name, list or program, never a tensor. A constant tensor is
// made by a generator node (fill, iota, …).
using AttrValue = std::variant<std::int64_t, double, bool, std::string, DType, Dims, Region>;

enum class AttrKind { kInt, kReal, kBool, kText, kDType, kInts, kRegion };

class Attrs {
 public:
  using Entry = std::pair<std::string, AttrValue>;

  Attrs();
  Attrs(std::initializer_list<Entry> entries);
  Attrs(const Attrs& other);
  Attrs(Attrs&& other) noexcept;
  Attrs& operator=(const Attrs& other);
  Attrs& operator=(Attrs&& other) noexcept;
  ~Attrs();

  void set(std::string_view name, AttrValue value);
  const AttrValue* find(std::string_view name) const;
  const std::vector<Entry>& entries() const;

  // Return an attribute, which must exist and have this type; the builder adds defaults.
  std::int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  bool flag(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  DType dtype(std::string_view name) const;
  const Dims& ints(std::string_view name) const;
  const Program& region(std::string_view name) const;

 private:
  template <class T>
  const T& get(std::string_view name) const;

  SharedVector<Entry> entries_;
};

AttrKind kind_of(const AttrValue& value);

}  // namespace tracestep
