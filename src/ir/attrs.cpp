#include "ir/attrs.h"

#include <algorithm>

#include "base/error.h"

namespace tracestep {

Attrs::Attrs() = default;
Attrs::Attrs(const Attrs& other) = default;
Attrs::Attrs(Attrs&& other) noexcept = default;
Attrs& Attrs::operator=(const Attrs& other) = default;
Attrs& Attrs::operator=(Attrs&& other) noexcept = default;
Attrs::~Attrs() = default;

Attrs::Attrs(std::initializer_list<Entry> entries) {
  for (const Entry& e : entries) set(e.first, e.second);
}

const std::vector<Attrs::Entry>& Attrs::entries() const {
  return entries_.get();
}

void Attrs::set(std::string_view name, AttrValue value) {
  std::vector<Entry>& entries = entries_.edit();
  const auto at = std::ranges::lower_bound(entries, name, {}, &Entry::first);
  if (at != entries.end() && at->first == name) {
    at->second = std::move(value);
  } else {
    entries.emplace(at, std::string(name), std::move(value));
  }
}

const AttrValue* Attrs::find(std::string_view name) const {
  for (const Entry& e : entries()) {
    if (e.first == name) return &e.second;
  }
  return nullptr;
}

template <class T>
const T& Attrs::get(std::string_view name) const {
  const AttrValue* value = find(name);
  TRACESTEP_CHECK(value != nullptr, "no attribute '{}'", name);
  TRACESTEP_CHECK(std::holds_alternative<T>(*value), "attribute '{}' has another type", name);
  return std::get<T>(*value);
}

std::int64_t Attrs::integer(std::string_view name) const {
  return get<std::int64_t>(name);
}
double Attrs::real(std::string_view name) const {
  return get<double>(name);
}
bool Attrs::flag(std::string_view name) const {
  return get<bool>(name);
}
const std::string& Attrs::text(std::string_view name) const {
  return get<std::string>(name);
}
DType Attrs::dtype(std::string_view name) const {
  return get<DType>(name);
}
const Dims& Attrs::ints(std::string_view name) const {
  return get<Dims>(name);
}
const Program& Attrs::region(std::string_view name) const {
  return *get<Region>(name);
}

AttrKind kind_of(const AttrValue& value) {
  return static_cast<AttrKind>(value.index());
}

}  // namespace tracestep
