// A reader of Python's pickle format that takes plain data alone: numbers, text, lists, tuples and
// dicts of protocols 2 to 5. A file that asks for a class or a call is refused, so reading one that
// a stranger wrote runs nothing.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tracestep {

struct PickleValue;
// The same object may be in several places.
using PickleRef = std::shared_ptr<PickleValue>;

struct PickleValue {
  using List = std::vector<PickleRef>;  // tuples as well
  using Dict = std::vector<std::pair<PickleRef, PickleRef>>;
  std::variant<std::monostate, bool, std::int64_t, double, std::string, List, Dict> data;

  // nullptr: not a dict, or no such text key.
  const PickleValue* find(std::string_view key) const;
  // Of another type: the fallback, no items.
  std::int64_t as_int(std::int64_t fallback = 0) const;
  std::string_view as_text() const;
  const List& items() const;
};

// Throws Error{kInput} naming `where` and the byte: a truncated file, an opcode that makes objects.
PickleRef unpickle(std::string_view bytes, const std::string& where);

}  // namespace tracestep
