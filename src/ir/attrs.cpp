#include "ir/attrs.h"

#include <algorithm>

namespace tracestep {

void Attrs::set(std::string_view name, AttrValue value) {
  auto at = std::lower_bound(entries_.begin(), entries_.end(), name,
                             [](const Entry& e, std::string_view n) { return e.first < n; });
  if (at != entries_.end() && at->first == name) {
    at->second = std::move(value);
  } else {
    entries_.emplace(at, std::string(name), std::move(value));
  }
}

const AttrValue* Attrs::find(std::string_view name) const {
  for (const Entry& e : entries_) {
    if (e.first == name) return &e.second;
  }
  return nullptr;
}

AttrKind kind_of(const AttrValue& value) {
  return static_cast<AttrKind>(value.index());
}

}  // namespace tracestep
